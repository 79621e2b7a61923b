#ifndef QUASAR_ENGINE_RSTATE_H
#define QUASAR_ENGINE_RSTATE_H

#include <stdbool.h>

/* Which recurrent states of the backend are taken. A sequence has one slot for
 * its whole life, and its number is the sequence's. */
struct rstate {
    bool *taken;
    int n, n_taken;
};

void rstate_init(struct rstate *r, int n);
void rstate_fini(struct rstate *r);
int rstate_take(struct rstate *r); /* the lowest free slot, or -1 */
void rstate_give(struct rstate *r, int slot);
bool rstate_has(const struct rstate *r, int slot);

#endif
