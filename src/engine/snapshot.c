/* Kept states: values in host memory, pages by reference. The values' memory is
 * pinned where the backend wants that, and goes from one state to the next because
 * pinning takes longer than the copy. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/impl.h"

struct engine_snap {
    int len;
    bool pure;
    void *values; /* be_ops.state_size bytes */
    struct kv_table kv;
};

/* ---- memory ---- */

int snap_take_values(struct engine *g, void **out, struct err *e)
{
    struct snaps *m = &g->snaps;
    if (m->n_spare > 0) {
        *out = m->spare[--m->n_spare];
        return 0;
    }
    const size_t n = g->ops->state_size(g->b);
    if (g->ops->host_alloc) {
        return g->ops->host_alloc(g->b, n, out, e);
    }
    *out = malloc(n);
    return *out ? 0 : err_set(e, QE_NOMEM, "no memory for the %zu bytes of a kept state", n);
}

void snap_give_values(struct engine *g, void *values)
{
    struct snaps *m = &g->snaps;
    if (m->n_spare == m->cap_spare) {
        m->cap_spare = m->cap_spare ? 2 * m->cap_spare : 8;
        m->spare = mem_realloc(m->spare, m->cap_spare * sizeof *m->spare);
    }
    m->spare[m->n_spare++] = values;
}

bool engine_snap_prepare(struct engine *g, size_t spare)
{
    void *values = NULL;
    if (lane_prepare(g)) {
        return true;
    }
    if (!g->ops->host_alloc || g->snaps.n_spare >= spare ||
        g->ops->host_alloc(g->b, g->ops->state_size(g->b), &values, NULL) < 0) {
        return false;
    }
    snap_give_values(g, values);
    return true;
}

void snaps_fini(struct engine *g)
{
    struct snaps *m = &g->snaps;
    for (size_t i = 0; i < m->n_spare; i++) {
        if (g->ops->host_free) {
            g->ops->host_free(g->b, m->spare[i]);
        } else {
            free(m->spare[i]);
        }
    }
    free(m->spare);
    *m = (struct snaps){0};
}

/* ---- taking and putting back ---- */

int engine_snap_take(struct engine *g, int seq, struct engine_snap **out, struct err *e)
{
    struct seq *s = NULL;
    void *values = NULL;
    int rc = engine_seq_whole(g, seq, &s, e);
    rc = rc < 0 ? rc : snap_take_values(g, &values, e);
    if (rc < 0) {
        return rc;
    }
    rc = g->ops->state_export(g->b, seq, values, e);
    if (rc < 0) {
        snap_give_values(g, values);
        return rc;
    }
    struct engine_snap *k = mem_zalloc(sizeof *k);
    k->len = s->len;
    k->pure = s->pure;
    k->values = values;
    kv_keep(&g->pool, &k->kv, &s->kv, s->len);
    g->snaps.n++;
    *out = k;
    return 0;
}

int engine_snap_restore(struct engine *g, int seq, const struct engine_snap *k, struct err *e)
{
    struct seq *s = NULL;
    int rc = engine_seq_of(g, seq, &s, e);
    if (rc == 0 && k->len > g->ctx) {
        rc = err_set(e, QE_NOMEM, "the kept state has %d tokens; the window holds %d", k->len,
                     g->ctx);
    }
    if (rc < 0) {
        return rc;
    }
    g->held.n_spans = 0;
    s->ahead = -1;
    rc = g->ops->state_import(g->b, seq, k->values, e);
    if (rc < 0) {
        engine_seq_reset(g, seq);
        return rc;
    }
    kv_share(&g->pool, &s->kv, &k->kv, k->len);
    s->len = k->len;
    s->pure = k->pure;
    s->broken = false;
    return 0;
}

void engine_snap_free(struct engine *g, struct engine_snap *k)
{
    if (k) {
        kv_drop_kept(&g->pool, &k->kv);
        snap_give_values(g, k->values);
        g->snaps.n--;
        free(k);
    }
}

/* ---- looking ---- */

int engine_snap_len(const struct engine_snap *k)
{
    return k->len;
}

bool engine_snap_pure(const struct engine_snap *k)
{
    return k->pure;
}

const void *snap_parts(const struct engine_snap *k, const int32_t **pages, int *n)
{
    *pages = k->kv.pages;
    *n = k->kv.n;
    return k->values;
}

uint64_t engine_snap_bytes(const struct engine *g, const struct engine_snap *k)
{
    const int alone = k ? kv_alone(&g->pool, &k->kv) : 0;
    return g->ops->state_size(g->b) + (uint64_t)alone * g->ops->page_size(g->b);
}

struct engine_kept engine_kept(const struct engine *g)
{
    return (struct engine_kept){.n = g->snaps.n,
                                .bytes = (uint64_t)g->snaps.n * g->ops->state_size(g->b) +
                                         (uint64_t)g->pool.n_kept * g->ops->page_size(g->b),
                                .pages = g->pool.n_pages,
                                .pages_free = g->pool.n_free,
                                .pages_kept = g->pool.n_kept,
                                .page_tokens = BE_PAGE,
                                .page_bytes = g->ops->page_size(g->b)};
}

void engine_on_full(struct engine *g, bool (*fn)(void *ctx), void *ctx)
{
    g->pool.full = fn;
    g->pool.full_ctx = ctx;
}

size_t engine_snap_state_size(const struct engine *g, const struct engine_snap *k)
{
    return STATE_HEADER + g->ops->state_size(g->b) + (size_t)k->kv.n * g->ops->page_size(g->b);
}
