#ifndef QUASAR_BASE_PHASES_H
#define QUASAR_BASE_PHASES_H

#include <stdbool.h>
#include <stdint.h>

/* Where the time of something that happens once went: a short list of named parts, in
 * the order in which they ended. */
enum { PHASES_MOST = 32 };

struct phase {
    const char *name; /* static */
    double seconds;
    bool beside; /* ran beside others: not a part of the sum */
};

struct phases {
    struct phase v[PHASES_MOST];
    int n;
};

/* One more; what does not fit is left out. */
void phases_add(struct phases *p, const char *name, double seconds, bool beside);
/* One that began at `since` (nanoseconds of the real clock) and ends now; returns now. */
int64_t phases_lap(struct phases *p, const char *name, int64_t since);
/* All of another list behind one's own. */
void phases_append(struct phases *p, const struct phases *more);

#endif
