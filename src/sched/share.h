#ifndef QUASAR_SCHED_SHARE_H
#define QUASAR_SCHED_SHARE_H

#include <stddef.h>
#include <stdint.h>

/*
 * What each owner of jobs has had of the engine, in tokens: a computed prompt token counts
 * one, a decoded one SHARE_DECODE, both divided by the owner's weight. Whoever has had
 * least is served next; the others' lead is the deficit that they make good first. One who
 * comes, or comes again, begins at most SHARE_CREDIT below the least of those who are being
 * served: nobody saves up by staying away. No locking of its own.
 */
#define SHARE_DECODE 4
#define SHARE_CREDIT 2048

struct share_owner {
    uint64_t id;
    double had;
    int weight;
    int jobs; /* that wait, run or gave way */
    int running;
    uint64_t used;
};

/* Owners are remembered while they have jobs, and some after that. */
struct share {
    struct share_owner *v;
    size_t n, cap;
    uint64_t tick;
};

void share_init(struct share *s);
void share_fini(struct share *s);
/* A job of the owner arrives, with its weight from now on; is over; starts to run or stops. */
void share_come(struct share *s, uint64_t id, int weight);
void share_gone(struct share *s, uint64_t id);
void share_run(struct share *s, uint64_t id, int more);
/* The owner was given so many prompt tokens, and decoded ones. */
void share_charge(struct share *s, uint64_t id, int prompt, int decoded);
/* One who has come; borrowed until the next share_come. */
const struct share_owner *share_of(const struct share *s, uint64_t id);
/* Whether one of a's jobs is to give way to one of b's: a has more of what runs than it would
 * be due to beside one more of b's. */
int share_owes(const struct share_owner *a, const struct share_owner *b);

#endif
