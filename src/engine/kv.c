/* The page allocator. Positions in a sequence are written once and in order, so
 * only the last page of a fork is ever copied, except when an imported or forked
 * sequence is drafted over. */
#include "config.h"
#include "engine/kv.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

int kv_pages_for(int len)
{
    return (len + BE_PAGE - 1) / BE_PAGE;
}

void kv_pool_init(struct kv_pool *p, const struct be_ops *ops, struct backend *b, int n_pages)
{
    *p = (struct kv_pool){.ops = ops, .b = b, .n_pages = n_pages, .n_free = n_pages};
    p->free_list = mem_array((size_t)n_pages, sizeof *p->free_list);
    p->refs = mem_array((size_t)n_pages, sizeof *p->refs);
    p->kept = mem_array((size_t)n_pages, sizeof *p->kept);
    for (int i = 0; i < n_pages; i++) {
        p->free_list[i] = n_pages - 1 - i;
    }
}

void kv_pool_fini(struct kv_pool *p)
{
    free(p->free_list);
    free(p->refs);
    free(p->kept);
    *p = (struct kv_pool){0};
}

/* Changes how many have a page, and how many of these keep it. */
static void count(struct kv_pool *p, int32_t page, int refs, int kept)
{
    p->n_kept -= p->refs[page] > 0 && p->refs[page] == p->kept[page];
    p->refs[page] += refs;
    p->kept[page] += kept;
    assert(p->kept[page] >= 0 && p->refs[page] >= p->kept[page]);
    p->n_kept += p->refs[page] > 0 && p->refs[page] == p->kept[page];
    if (p->refs[page] == 0) {
        p->free_list[p->n_free++] = page;
    }
}

/* Something may have been given back. */
static bool ask(struct kv_pool *p)
{
    return p->full && p->full(p->full_ctx);
}

static int take(struct kv_pool *p, int32_t *page, struct err *e)
{
    while (p->n_free == 0 && ask(p)) {
    }
    if (p->n_free == 0) {
        return err_set(e, QE_NOMEM,
                       "the key/value cache is full (%d pages of %d tokens): close a sequence or "
                       "give a smaller --ctx",
                       p->n_pages, BE_PAGE);
    }
    *page = p->free_list[--p->n_free];
    p->refs[*page] = 1;
    return 0;
}

static void drop(struct kv_pool *p, int32_t page)
{
    count(p, page, -1, 0);
}

static void push(struct kv_table *t, int32_t page)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 8;
        t->pages = mem_realloc(t->pages, (size_t)t->cap * sizeof *t->pages);
    }
    t->pages[t->n++] = page;
}

int kv_writable(struct kv_pool *p, struct kv_table *t, int from, int to, struct err *e)
{
    for (int i = from / BE_PAGE; i < kv_pages_for(to) && i < t->n; i++) {
        /* What others give back may be their part in this very page. */
        while (p->refs[t->pages[i]] > 1 && p->n_free == 0 && ask(p)) {
        }
        if (p->refs[t->pages[i]] > 1) {
            int32_t mine = 0;
            int rc = take(p, &mine, e);
            if (rc == 0) {
                rc = p->ops->page_copy(p->b, mine, t->pages[i], e);
                if (rc < 0) {
                    drop(p, mine);
                }
            }
            if (rc < 0) {
                return rc;
            }
            drop(p, t->pages[i]);
            t->pages[i] = mine;
        }
    }
    while (t->n < kv_pages_for(to)) {
        int32_t page = 0;
        int rc = take(p, &page, e);
        if (rc < 0) {
            return rc;
        }
        push(t, page);
    }
    return 0;
}

void kv_share(struct kv_pool *p, struct kv_table *dst, const struct kv_table *src, int len)
{
    kv_trim(p, dst, 0);
    for (int i = 0; i < kv_pages_for(len) && i < src->n; i++) {
        count(p, src->pages[i], 1, 0);
        push(dst, src->pages[i]);
    }
}

void kv_keep(struct kv_pool *p, struct kv_table *dst, const struct kv_table *src, int len)
{
    *dst = (struct kv_table){0};
    for (int i = 0; i < kv_pages_for(len) && i < src->n; i++) {
        count(p, src->pages[i], 1, 1);
        push(dst, src->pages[i]);
    }
}

void kv_drop_kept(struct kv_pool *p, struct kv_table *t)
{
    for (int i = 0; i < t->n; i++) {
        count(p, t->pages[i], -1, -1);
    }
    free(t->pages);
    *t = (struct kv_table){0};
}

int kv_alone(const struct kv_pool *p, const struct kv_table *t)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        n += p->refs[t->pages[i]] == 1;
    }
    return n;
}

void kv_trim(struct kv_pool *p, struct kv_table *t, int len)
{
    while (t->n > kv_pages_for(len)) {
        drop(p, t->pages[--t->n]);
    }
}

void kv_table_fini(struct kv_pool *p, struct kv_table *t)
{
    kv_trim(p, t, 0);
    free(t->pages);
    *t = (struct kv_table){0};
}
