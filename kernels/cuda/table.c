/* The tables of a pass: written by the host into a pinned stage, sent to the same
 * place in device memory with one copy. A stage is written again only when its
 * copy is over. */
#include "config.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/host.h"

static size_t take(size_t *used, size_t n, size_t size)
{
    const size_t at = *used;
    *used += (n * size + 63) / 64 * 64;
    return at;
}

static void table_layout(struct cuda_table *t, size_t *used, int rows)
{
    const size_t n = (size_t)rows;
    t->cap = rows;
    t->count = take(used, 2, sizeof(int32_t));
    t->token = take(used, n, sizeof(int32_t));
    t->pos = take(used, n, sizeof(int32_t));
    t->span_of = take(used, n, sizeof(int32_t));
    t->span = take(used, n, sizeof(struct cu_span));
    t->src = take(used, n, sizeof(float *));
}

size_t cuda_block_layout(struct cuda_block *k, int rows0, int rows1, size_t pages)
{
    size_t used = 0;
    table_layout(&k->batch[0], &used, rows0);
    table_layout(&k->batch[1], &used, rows1);
    k->batch[0].rope = take(&used, (size_t)(rows0 + rows1), 3 * sizeof(int32_t));
    k->batch[1].rope = k->batch[0].rope + (size_t)rows0 * 3 * sizeof(int32_t);
    k->rot_count = take(&used, 2, sizeof(int32_t));
    k->out_of = take(&used, CU_ROWS, sizeof(int32_t));
    k->out_count = take(&used, CUDA_MAX_OUT / CU_ROWS * 2, sizeof(int32_t));
    k->out_rows = take(&used, CUDA_MAX_OUT, sizeof(int32_t));
    k->save_count = take(&used, 2, sizeof(int32_t));
    k->save_row = take(&used, CU_ROWS, sizeof(int32_t));
    k->save_slot = take(&used, CU_ROWS, sizeof(int32_t));
    k->fold_count = take(&used, 2, sizeof(int32_t));
    k->fold_span = take(&used, CU_ROWS, sizeof(struct cu_span));
    k->fold_accepted = take(&used, CU_ROWS, sizeof(int32_t));
    k->page = take(&used, pages, sizeof(int32_t));
    k->page_cap = pages;
    k->size = used;
    return used;
}

int cuda_block_open(struct backend *b, struct cuda_block *k, int stages)
{
    int rc = 0;
    for (int i = 0; i < stages && rc == 0; i++) {
        void *p = NULL;
        rc = rt_pin(b->rt, k->size, &p);
        if (rc == 0) {
            memset(p, 0, k->size);
            k->stage[i].host = p;
            k->stages = i + 1;
            rc = rt_event_create(b->rt, &k->stage[i].sent);
        }
    }
    return rc;
}

void cuda_block_close(struct backend *b, struct cuda_block *k)
{
    for (int i = 0; i < k->stages; i++) {
        rt_event_free(k->stage[i].sent);
        rt_unpin(b->rt, k->stage[i].host);
    }
    k->stages = 0;
}

int cuda_block_begin(struct backend *b, struct cuda_block *k, struct err *e)
{
    k->at = (k->at + 1) % k->stages;
    int rc = rt_wait(k->stage[k->at].sent);
    if (rc) {
        return cuda_fail(b, rc, e);
    }
    k->host = k->stage[k->at].host;
    k->page_used = 0;
    return 0;
}

/* Where the n pages of a span lie among the entries, appended unless they are there
 * already (the MTP layer's batch has the page tables of the main one). */
static int put_pages(struct cuda_block *k, const int32_t *pages, size_t n, int32_t *at)
{
    int32_t *to = (int32_t *)(k->host + k->page);
    for (int i = 0; i < k->batch[0].cap && k->page_used > 0; i++) {
        const struct cu_span *sp = (const struct cu_span *)(k->host + k->batch[0].span) + i;
        if (i >= ((const int32_t *)(k->host + k->batch[0].count))[1]) {
            break;
        }
        const size_t from = (size_t)sp->page;
        if (from + n <= k->page_used && memcmp(to + from, pages, n * sizeof *to) == 0) {
            *at = sp->page;
            return 0;
        }
    }
    if (n > k->page_cap - k->page_used) {
        return -1;
    }
    memcpy(to + k->page_used, pages, n * sizeof *to);
    *at = (int32_t)k->page_used;
    k->page_used += n;
    return 0;
}

/* Where row `row` of an MTP batch finds its hidden state. */
static const float *source_of(const struct backend *b, int slot, int row, int32_t source)
{
    const size_t hidden = (size_t)b->shape.hidden;
    if (source == BE_H_SLOT) {
        return cuda_slot_hidden(b, slot);
    }
    return source > BE_H_CHAIN ? b->h + (size_t)source * hidden
                               : b->m + (size_t)cuda_chain_row(row, source) * hidden;
}

int cuda_block_batch(struct backend *b, struct cuda_block *k, int i, const struct be_batch *t,
                     const int32_t *source, struct err *e)
{
    const struct cuda_table *tab = &k->batch[i];
    int32_t *count = (int32_t *)(k->host + tab->count);
    int32_t *pos = (int32_t *)(k->host + tab->pos);
    int32_t *span_of = (int32_t *)(k->host + tab->span_of);
    int32_t *rope = (int32_t *)(k->host + tab->rope);
    const float **src = (const float **)(k->host + tab->src);
    struct cu_span *span = (struct cu_span *)(k->host + tab->span);
    int row = 0;
    if (i == 0) {
        count[1] = 0; /* no page table to share yet */
    }
    memcpy(k->host + tab->token, t->tokens, (size_t)t->n_rows * sizeof(int32_t));
    for (int s = 0; s < t->n_spans; s++) {
        const struct be_span *from = &t->spans[s];
        struct cu_span to = {.first = row,
                             .n = from->n,
                             .pos = from->pos,
                             .slot = from->slot,
                             .parity = b->parity[from->slot]};
        const size_t pages = (size_t)((from->pos + from->n - 1) / BE_PAGE + 1);
        if (put_pages(k, from->pages, pages, &to.page) < 0) {
            return err_set(e, QE_INTERNAL, "page tables of more than %zu entries", k->page_cap);
        }
        span[s] = to;
        for (int j = 0; j < from->n; j++, row++) {
            pos[row] = from->pos + j;
            span_of[row] = s;
            for (int a = 0; a < 3; a++) {
                rope[3 * row + a] = t->rope ? t->rope[row][a] : from->pos + j;
            }
            if (source) {
                src[row] = source_of(b, from->slot, row, source[row]);
            }
        }
    }
    count[0] = t->n_rows;
    count[1] = t->n_spans;
    *(int32_t *)(k->host + k->rot_count) = (i ? k->batch[0].cap : 0) + t->n_rows;
    return 0;
}

void cuda_block_fold(struct backend *b, struct cuda_block *k, const int32_t *accepted)
{
    int32_t *count = (int32_t *)(k->host + k->fold_count);
    struct cu_span *span = (struct cu_span *)(k->host + k->fold_span);
    int32_t *kept = (int32_t *)(k->host + k->fold_accepted);
    int row = 0;
    for (int i = 0; i < b->n_spans; i++) {
        const struct be_span *from = &b->span[i];
        span[i] = (struct cu_span){.first = row,
                                   .n = from->n,
                                   .pos = from->pos,
                                   .slot = from->slot,
                                   .parity = b->parity[from->slot]};
        kept[i] = accepted[i];
        row += from->n;
    }
    count[0] = row;
    count[1] = b->n_spans;
}

int cuda_block_send(struct backend *b, struct cuda_block *k, struct err *e)
{
    const size_t n = k->page + k->page_used * sizeof(int32_t);
    int rc = rt_upload(b->rt, k->device, k->host, n);
    rc = rc ? rc : rt_record(b->rt, k->stage[k->at].sent);
    k->host = NULL;
    return rc ? cuda_fail(b, rc, e) : 0;
}

struct cu_batch cuda_block_view(const struct backend *b, const struct cuda_block *k, int i,
                                struct cuda_bounds bounds)
{
    const struct cuda_table *t = &k->batch[i];
    const uint8_t *d = k->device;
    return (struct cu_batch){.count = (const int32_t *)(d + t->count),
                             .token = (const int32_t *)(d + t->token),
                             .pos = (const int32_t *)(d + t->pos),
                             .span_of = (const int32_t *)(d + t->span_of),
                             .span = (const struct cu_span *)(d + t->span),
                             .page = (const int32_t *)(d + k->page),
                             .rope = (const int32_t *)(d + t->rope),
                             .rot = k == &b->pre ? b->pre_rot : b->rot[i],
                             .rows = bounds.rows,
                             .spans = bounds.spans,
                             .mode = (enum be_mode)bounds.mode};
}

struct cu_batch cuda_block_folded(const struct cuda_block *k, struct cuda_bounds bounds)
{
    return (struct cu_batch){.count = (const int32_t *)(k->device + k->fold_count),
                             .span = (const struct cu_span *)(k->device + k->fold_span),
                             .rows = bounds.rows,
                             .spans = bounds.spans,
                             .mode = (enum be_mode)bounds.mode};
}
