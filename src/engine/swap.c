/* Sequences that give way: their whole state in host memory, to come back with the bits that
 * were there. Memory is pinned where the backend wants that, a block for the values and one
 * for each page, and goes from one state to the next because pinning takes long. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/impl.h"

struct engine_swap {
    int len;
    bool pure;
    void *values; /* be_ops.state_size bytes */
    void **pages; /* be_ops.page_size bytes each */
    int n_pages;
};

/* ---- memory ---- */

static int take_block(struct engine *g, struct blocks *m, size_t n, void **out, struct err *e)
{
    if (m->n > 0) {
        *out = m->spare[--m->n];
        return 0;
    }
    if (g->ops->host_alloc) {
        return g->ops->host_alloc(g->b, n, out, e);
    }
    *out = malloc(n);
    return *out ? 0 : err_set(e, QE_NOMEM, "no memory for %zu bytes of a state that gives way", n);
}

static void give_block(struct engine *g, struct blocks *m, void *block)
{
    if (!g->ops->host_alloc) {
        free(block);
        return;
    }
    if (m->n == m->cap) {
        m->cap = m->cap ? 2 * m->cap : 16;
        m->spare = mem_realloc(m->spare, m->cap * sizeof *m->spare);
    }
    m->spare[m->n++] = block;
}

void swaps_fini(struct engine *g)
{
    struct blocks *m = &g->swaps;
    for (size_t i = 0; i < m->n; i++) {
        g->ops->host_free(g->b, m->spare[i]);
    }
    free(m->spare);
    *m = (struct blocks){0};
}

/* ---- out and in ---- */

uint64_t engine_swap_size(const struct engine *g, int seq)
{
    return g->ops->state_size(g->b) +
           (uint64_t)kv_pages_for(engine_seq_len(g, seq)) * g->ops->page_size(g->b);
}

uint64_t engine_swap_bytes(const struct engine *g, const struct engine_swap *w)
{
    return g->ops->state_size(g->b) + (uint64_t)w->n_pages * g->ops->page_size(g->b);
}

int engine_swap_pages(const struct engine_swap *w)
{
    return w->n_pages;
}

int engine_swap_out(struct engine *g, int seq, struct engine_swap **out, struct err *e)
{
    struct seq *s = NULL;
    int rc = engine_seq_whole(g, seq, &s, e);
    if (rc < 0) {
        return rc;
    }
    const int pages = kv_pages_for(s->len);
    struct engine_swap *w = mem_zalloc(sizeof *w);
    *w = (struct engine_swap){.len = s->len, .pure = s->pure};
    w->pages = mem_array((size_t)pages + 1, sizeof *w->pages);
    memset(w->pages, 0, ((size_t)pages + 1) * sizeof *w->pages);
    rc = snap_take_values(g, &w->values, e);
    rc = rc < 0 ? rc : g->ops->state_export(g->b, seq, w->values, e);
    for (int i = 0; i < pages && rc == 0; i++) {
        rc = take_block(g, &g->swaps, g->ops->page_size(g->b), &w->pages[i], e);
        w->n_pages += rc == 0;
        rc = rc < 0
                 ? rc
                 : g->ops->page_export(g->b, s->kv.pages[i], s->len - i * BE_PAGE, w->pages[i], e);
    }
    if (rc < 0) {
        engine_swap_free(g, w);
        return rc;
    }
    *out = w;
    return 0;
}

int engine_swap_in(struct engine *g, int seq, const struct engine_swap *w, struct err *e)
{
    struct seq *s = NULL;
    int rc = engine_seq_of(g, seq, &s, e);
    if (rc < 0) {
        return rc;
    }
    engine_seq_reset(g, seq);
    rc = kv_writable(&g->pool, &s->kv, 0, w->len, e);
    rc = rc < 0 ? rc : g->ops->state_import(g->b, seq, w->values, e);
    for (int i = 0; i < w->n_pages && rc == 0; i++) {
        rc = g->ops->page_import(g->b, s->kv.pages[i], w->pages[i], e);
    }
    if (rc < 0) {
        engine_seq_reset(g, seq);
        return rc;
    }
    s->len = w->len;
    s->pure = w->pure;
    return 0;
}

void engine_swap_free(struct engine *g, struct engine_swap *w)
{
    if (w) {
        if (w->values) {
            snap_give_values(g, w->values);
        }
        for (int i = 0; i < w->n_pages; i++) {
            give_block(g, &g->swaps, w->pages[i]);
        }
        free(w->pages);
        free(w);
    }
}

int engine_seq_reserve(struct engine *g, int seq, int n, struct err *e)
{
    struct seq *s = NULL;
    int rc = engine_seq_of(g, seq, &s, e);
    return rc < 0 ? rc
                  : kv_writable(&g->pool, &s->kv, g->mtp && s->len > 0 ? s->len - 1 : s->len,
                                s->len + n, e);
}
