/* What the engine lets read at any place, read in order. */
#include "config.h"
#include "conv/giving.h"

int giving_next(void *ctx, void *dst, size_t n, struct err *e)
{
    struct giving *g = ctx;
    const int rc = g->state.read(g->state.ctx, g->at, dst, n, e);
    g->at += n;
    return rc;
}
