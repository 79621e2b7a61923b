/* Ways to the backend's memory beside its work. Opening one takes milliseconds (it pins
 * memory), so they are kept. */
#include "config.h"

#include "engine/impl.h"

static int capacity(const struct engine *g)
{
    return (int)(sizeof g->lanes.spare / sizeof *g->lanes.spare);
}

int lane_take(struct engine *g, struct be_lane **out, struct err *e)
{
    *out = NULL;
    if (!g->ops->lane_open) {
        return 0;
    }
    if (g->lanes.n > 0) {
        *out = g->lanes.spare[--g->lanes.n];
        return 0;
    }
    return g->ops->lane_open(g->b, LANE_BYTES, out, e);
}

void lane_give(struct engine *g, struct be_lane *l)
{
    if (l && g->lanes.n < capacity(g)) {
        g->lanes.spare[g->lanes.n++] = l;
    } else if (l) {
        g->ops->lane_close(l);
    }
}

bool lane_prepare(struct engine *g)
{
    struct be_lane *l = NULL;
    /* one state comes, one goes */
    if (!g->ops->lane_open || g->lanes.n > g->readers ||
        g->ops->lane_open(g->b, LANE_BYTES, &l, NULL) < 0) {
        return false;
    }
    lane_give(g, l);
    return true;
}

void lanes_fini(struct engine *g)
{
    while (g->lanes.n > 0) {
        g->ops->lane_close(g->lanes.spare[--g->lanes.n]);
    }
}

void *lane_place(const struct engine *g, int slot, const int32_t *pages, size_t at, size_t *n)
{
    const size_t values = g->ops->state_size(g->b), page = g->ops->page_size(g->b);
    if (at < values) {
        return g->ops->state_at(g->b, slot, at, n);
    }
    return g->ops->page_at(g->b, pages[(at - values) / page], (at - values) % page, n);
}
