/* Recurrent-state slots. */
#include "config.h"
#include "engine/rstate.h"

#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"

void rstate_init(struct rstate *r, int n)
{
    *r = (struct rstate){.n = n};
    r->taken = mem_array((size_t)n, sizeof *r->taken);
}

void rstate_fini(struct rstate *r)
{
    free(r->taken);
    *r = (struct rstate){0};
}

int rstate_take(struct rstate *r)
{
    for (int i = 0; i < r->n; i++) {
        if (!r->taken[i]) {
            r->taken[i] = true;
            r->n_taken++;
            return i;
        }
    }
    return -1;
}

void rstate_give(struct rstate *r, int slot)
{
    assert(rstate_has(r, slot));
    r->taken[slot] = false;
    r->n_taken--;
}

bool rstate_has(const struct rstate *r, int slot)
{
    return slot >= 0 && slot < r->n && r->taken[slot];
}
