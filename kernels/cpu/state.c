/* Recurrent states and cache pages as blobs: copy, export, import, and fp32
 * views for tests. A copy is exact. */
#include "config.h"
#include "kernels/cpu/cpu.h"

#include <string.h>

#include "kernels/geometry.h"
#include "kernels/kvq.h"

float *cpu_slot(const struct backend *b, int slot)
{
    return (float *)b->state.p + (size_t)slot * b->slot_floats;
}

/* Recurrent state of the DeltaNet layer with this number, then its convolution
 * state. */
float *cpu_slot_gdn(const struct backend *b, int slot, int index)
{
    size_t layer = (size_t)b->shape.v_heads * BE_DN_DIM * BE_DN_DIM +
                   (size_t)(BE_CONV - 1) * (size_t)b->channels;
    return cpu_slot(b, slot) + (size_t)index * layer;
}

float *cpu_slot_hidden(const struct backend *b, int slot)
{
    return cpu_slot_gdn(b, slot, b->n_gdn);
}

void *cpu_state_at(const struct backend *b, int slot, size_t at, size_t *n)
{
    *n = cpu_state_size(b) - at;
    return (uint8_t *)cpu_slot(b, slot) + at;
}

static uint8_t *page_at(const struct backend *b, int page)
{
    return (uint8_t *)b->cache.p + (size_t)page * b->page_bytes;
}

void *cpu_page_at(const struct backend *b, int page, size_t at, size_t *n)
{
    *n = b->page_bytes - at;
    return page_at(b, page) + at;
}

size_t cpu_state_size(const struct backend *b)
{
    return b->slot_floats * sizeof(float);
}

size_t cpu_page_size(const struct backend *b)
{
    return b->page_bytes;
}

int cpu_state_reset(struct backend *b, int slot, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    if (rc == 0) {
        memset(cpu_slot(b, slot), 0, cpu_state_size(b));
    }
    return rc;
}

int cpu_state_copy(struct backend *b, int dst, int src, struct err *e)
{
    int rc = be_check_slot(b->slots, dst, e);
    rc = rc < 0 ? rc : be_check_slot(b->slots, src, e);
    if (rc == 0 && dst != src) {
        memcpy(cpu_slot(b, dst), cpu_slot(b, src), cpu_state_size(b));
    }
    return rc;
}

int cpu_state_export(struct backend *b, int slot, void *out, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    if (rc == 0) {
        memcpy(out, cpu_slot(b, slot), cpu_state_size(b));
    }
    return rc;
}

int cpu_state_import(struct backend *b, int slot, const void *in, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    if (rc == 0) {
        memcpy(cpu_slot(b, slot), in, cpu_state_size(b));
    }
    return rc;
}

int cpu_page_copy(struct backend *b, int dst, int src, struct err *e)
{
    int rc = be_check_page(b->pages, dst, e);
    rc = rc < 0 ? rc : be_check_page(b->pages, src, e);
    if (rc == 0 && dst != src) {
        memcpy(page_at(b, dst), page_at(b, src), b->page_bytes);
    }
    return rc;
}

/* Zeroes what a layer's part of a page's blob has beyond its first rows. */
static void clear_tail(const struct backend *b, uint8_t *part, int rows)
{
    for (int which = 0; which < 2; which++) {
        const size_t bytes = kvq_row_bytes(kvq_of(b->kv, which));
        for (int head = 0; head < b->shape.kv_heads; head++, part += BE_PAGE * bytes) {
            memset(part + (size_t)rows * bytes, 0, (size_t)(BE_PAGE - rows) * bytes);
        }
    }
}

int cpu_page_export(struct backend *b, int page, int n, void *out, struct err *e)
{
    int rc = be_check_page(b->pages, page, e);
    if (rc < 0) {
        return rc;
    }
    memcpy(out, page_at(b, page), b->page_bytes);
    cpu_page_trim(b, n, out);
    return 0;
}

void cpu_page_trim(const struct backend *b, int n, void *blob)
{
    for (size_t i = 0; i < b->page_bytes / b->layer_bytes; i++) {
        const int rows = n - (i == (size_t)b->n_attention);
        if (rows < BE_PAGE) {
            clear_tail(b, (uint8_t *)blob + i * b->layer_bytes, rows);
        }
    }
}

int cpu_page_import(struct backend *b, int page, const void *in, struct err *e)
{
    int rc = be_check_page(b->pages, page, e);
    if (rc == 0) {
        memcpy(page_at(b, page), in, b->page_bytes);
    }
    return rc;
}

int cpu_page_fill(struct backend *b, int page, struct err *e)
{
    const size_t layers = b->page_bytes / b->layer_bytes, heads = (size_t)b->shape.kv_heads;
    int rc = be_check_page(b->pages, page, e);
    uint8_t *p = rc == 0 ? page_at(b, page) : NULL;
    for (int which = 0; which < 2 && rc == 0; which++) {
        const enum kvq_kind k = kvq_of(b->kv, which);
        const size_t bytes = kvq_row_bytes(k);
        for (int row = 0; row < BE_PAGE; row++) {
            uint8_t made[BE_HEAD_DIM * sizeof(float)];
            kvq_made_up(k, row, which, made);
            for (size_t i = 0; i < layers * heads; i++) {
                memcpy(p + i / heads * b->layer_bytes +
                           (which ? heads * BE_PAGE * kvq_row_bytes(kvq_of(b->kv, 0)) : 0) +
                           (i % heads * BE_PAGE + (size_t)row) * bytes,
                       made, bytes);
            }
        }
    }
    return rc;
}

int cpu_read_gdn(struct backend *b, int layer, int slot, float *conv, float *s, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    if (rc < 0) {
        return rc;
    }
    if (layer < 0 || layer >= b->shape.layers || b->attention[layer]) {
        return err_set(e, QE_INTERNAL, "layer %d is not a DeltaNet layer", layer);
    }
    const size_t n = (size_t)b->shape.v_heads * BE_DN_DIM * BE_DN_DIM;
    const float *state = cpu_slot_gdn(b, slot, b->index[layer]);
    if (s) {
        memcpy(s, state, n * sizeof *s);
    }
    for (int ch = 0; conv && ch < b->channels; ch++) {
        for (int j = 0; j < BE_CONV - 1; j++) {
            conv[ch * (BE_CONV - 1) + j] = state[n + (size_t)(j * b->channels + ch)];
        }
    }
    return 0;
}

int cpu_read_kv(struct backend *b, int layer, const int32_t *pages, int n, float *k, float *v,
                struct err *e)
{
    const bool mtp = layer == b->shape.layers && b->shape.mtp;
    if (!mtp && (layer < 0 || layer >= b->shape.layers || !b->attention[layer])) {
        return err_set(e, QE_INTERNAL, "layer %d has no keys and values", layer);
    }
    const size_t at = (size_t)(mtp ? b->n_attention : b->index[layer]) * b->layer_bytes;
    const size_t heads = (size_t)b->shape.kv_heads;
    for (int i = 0; i < n; i++) {
        int rc = be_check_page(b->pages, pages[i / BE_PAGE], e);
        if (rc < 0) {
            return rc;
        }
        const uint8_t *p = page_at(b, pages[i / BE_PAGE]) + at;
        for (size_t j = 0; j < 2 * heads; j++) {
            float *out = j < heads ? k : v;
            const enum kvq_kind kind = kvq_of(b->kv, j >= heads);
            const size_t keys = heads * BE_PAGE * kvq_row_bytes(kvq_of(b->kv, 0));
            const size_t bytes = kvq_row_bytes(kind);
            if (out) {
                kvq_read(kind,
                         p + (j < heads ? 0 : keys) +
                             (j % heads * BE_PAGE + (size_t)(i % BE_PAGE)) * bytes,
                         out + ((size_t)i * heads + j % heads) * BE_HEAD_DIM);
            }
        }
    }
    return 0;
}
