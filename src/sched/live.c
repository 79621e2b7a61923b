/* Live states: which tokens a kept sequence stands for. The state cannot be cut
 * back, so a prompt either extends all of it or cannot use it. */
#include "config.h"
#include "sched/live.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct live *live_create(void)
{
    struct live *l = mem_zalloc(sizeof *l);
    l->seq = -1;
    atomic_init(&l->refs, 1);
    atomic_init(&l->doomed, 0);
    atomic_init(&l->tag, 0);
    return l;
}

void live_tag(struct live *l, int64_t tag)
{
    atomic_store_explicit(&l->tag, tag, memory_order_relaxed);
}

void live_ref(struct live *l)
{
    atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed);
}

void live_unref(struct live *l)
{
    if (atomic_fetch_sub_explicit(&l->refs, 1, memory_order_acq_rel) == 1) {
        free(l->ids);
        spec_seq_free(l->q);
        free(l);
    }
}

void live_free(struct live *l)
{
    if (l) {
        atomic_store_explicit(&l->doomed, 1, memory_order_relaxed);
        live_unref(l);
    }
}

int live_match(const struct live *l, const int32_t *prompt, int n)
{
    if (l->seq < 0 || l->n >= n) {
        return 0;
    }
    return memcmp(l->ids, prompt, (size_t)l->n * sizeof *prompt) == 0 ? l->n : 0;
}

void live_keep(struct live *l, int seq, int32_t *ids, int n)
{
    free(l->ids);
    l->ids = ids;
    l->n = n;
    l->seq = seq;
}

void live_drop(struct live *l, struct engine *g)
{
    if (l->seq >= 0) {
        engine_seq_close(g, l->seq);
    }
    l->seq = -1;
    l->n = 0;
    free(l->ids);
    l->ids = NULL;
}
