/* Named parts of a time. */
#include "config.h"
#include "base/phases.h"

#include "base/clock.h"

void phases_add(struct phases *p, const char *name, double seconds, bool beside)
{
    if (p->n < PHASES_MOST) {
        p->v[p->n++] = (struct phase){name, seconds, beside};
    }
}

int64_t phases_lap(struct phases *p, const char *name, int64_t since)
{
    const int64_t now = clock_now(clock_real());
    phases_add(p, name, clock_seconds(now - since), false);
    return now;
}

void phases_append(struct phases *p, const struct phases *more)
{
    for (int i = 0; i < more->n; i++) {
        phases_add(p, more->v[i].name, more->v[i].seconds, more->v[i].beside);
    }
}
