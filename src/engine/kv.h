#ifndef QUASAR_ENGINE_KV_H
#define QUASAR_ENGINE_KV_H

#include <stdbool.h>

#include "base/err.h"
#include "kernels/backend.h"

/* Pages of the key/value cache: who has them, and what to copy before a shared
 * one is written. A page belongs to as many page tables as its count says. */
struct kv_pool {
    const struct be_ops *ops;
    struct backend *b;
    int n_pages, n_free;
    int n_kept;         /* pages that no sequence has: only kept tables do */
    int32_t *free_list; /* the last of n_free is handed out next */
    int32_t *refs;
    int32_t *kept; /* how many of the references are kept tables' */
    /* Asked when no page is free, in the middle of kv_writable, as often as it returns
     * true: gives a table of somebody else back. NULL: nobody can. */
    bool (*full)(void *ctx);
    void *full_ctx;
};

/* One sequence's pages, in order of position. */
struct kv_table {
    int32_t *pages;
    int n, cap;
};

void kv_pool_init(struct kv_pool *p, const struct be_ops *ops, struct backend *b, int n_pages);
void kv_pool_fini(struct kv_pool *p);

/* Makes positions from..to-1 writable: the table grows to cover them, and pages
 * that others share are copied. QE_NOMEM when pages run out; the table may then
 * have grown, which changes nothing. */
int kv_writable(struct kv_pool *p, struct kv_table *t, int from, int to, struct err *e);

/* dst, emptied first, takes part in the pages of src that cover 0..len-1. */
void kv_share(struct kv_pool *p, struct kv_table *dst, const struct kv_table *src, int len);

/* The same for a table that no sequence has: it stands for a state that is kept, is
 * never written, and goes with kv_drop_kept. */
void kv_keep(struct kv_pool *p, struct kv_table *dst, const struct kv_table *src, int len);
void kv_drop_kept(struct kv_pool *p, struct kv_table *t);
/* How many of its pages nothing else has. */
int kv_alone(const struct kv_pool *p, const struct kv_table *t);

/* Gives pages beyond those that cover 0..len-1 back. */
void kv_trim(struct kv_pool *p, struct kv_table *t, int len);
void kv_table_fini(struct kv_pool *p, struct kv_table *t);

int kv_pages_for(int len);

#endif
