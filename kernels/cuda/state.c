/* Recurrent states and cache pages: copies in device memory, blobs for the host and
 * fp32 views for tests. A blob has one convolution state, the current one, beside
 * each layer's recurrent state, as on the CPU. */
#include "config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/kvlayout.h"
#include "kernels/geometry.h"
#include "kernels/kvq.h"

float *cuda_slot(const struct backend *b, int slot)
{
    return b->state + (size_t)slot * b->slot_floats;
}

float *cuda_slot_hidden(const struct backend *b, int slot)
{
    return cuda_slot(b, slot) + b->s_floats + b->conv_floats;
}

/* Bytes of a layer's part of a blob: recurrent state, then convolution state. */
static size_t s_bytes(const struct backend *b)
{
    return (size_t)b->shape.v_heads * BE_DN_DIM * BE_DN_DIM * sizeof(float);
}

static size_t conv_bytes(const struct backend *b)
{
    return (size_t)(BE_CONV - 1) * (size_t)b->channels * sizeof(float);
}

size_t cuda_state_size(const struct backend *b)
{
    return (size_t)b->n_gdn * (s_bytes(b) + conv_bytes(b)) +
           (size_t)b->shape.hidden * sizeof(float);
}

size_t cuda_page_size(const struct backend *b)
{
    return b->page_bytes;
}

static int begin_op(struct backend *b, const char *doing, struct err *e)
{
    int rc = cuda_flush(b, e);
    b->doing = doing;
    return rc;
}

static int result(struct backend *b, int status, struct err *e)
{
    return status ? cuda_fail(b, status, e) : 0;
}

int cuda_state_reset(struct backend *b, int slot, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    rc = rc < 0 ? rc : begin_op(b, "clearing a state", e);
    if (rc < 0) {
        return rc;
    }
    b->parity[slot] = 0;
    return result(b, rt_fill(b->rt, cuda_slot(b, slot), 0, b->slot_floats * sizeof(float)), e);
}

int cuda_state_copy(struct backend *b, int dst, int src, struct err *e)
{
    int rc = be_check_slot(b->slots, dst, e);
    rc = rc < 0 ? rc : be_check_slot(b->slots, src, e);
    rc = rc < 0 ? rc : begin_op(b, "copying a state", e);
    if (rc < 0 || dst == src) {
        return rc;
    }
    b->parity[dst] = b->parity[src];
    return result(
        b, rt_copy(b->rt, cuda_slot(b, dst), cuda_slot(b, src), b->slot_floats * sizeof(float)), e);
}

int cuda_state_export(struct backend *b, int slot, void *out, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    rc = rc < 0 ? rc : begin_op(b, "reading a state", e);
    if (rc < 0) {
        return rc;
    }
    const size_t s = s_bytes(b), conv = conv_bytes(b), layers = (size_t)b->n_gdn;
    const uint8_t *from = (const uint8_t *)cuda_slot(b, slot);
    uint8_t *to = out;
    const uint8_t *from_conv = from + b->s_floats * sizeof(float) + b->parity[slot] * conv;
    int status = 0;
    if (layers > 0) {
        status = rt_download_rows(b->rt, to, s + conv, from, s, s, layers);
        status = status
                     ? status
                     : rt_download_rows(b->rt, to + s, s + conv, from_conv, 2 * conv, conv, layers);
    }
    status = status ? status
                    : rt_download(b->rt, to + layers * (s + conv), cuda_slot_hidden(b, slot),
                                  (size_t)b->shape.hidden * sizeof(float));
    return status ? cuda_fail(b, status, e) : cuda_finish(b, e);
}

int cuda_state_import(struct backend *b, int slot, const void *in, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    rc = rc < 0 ? rc : begin_op(b, "writing a state", e);
    if (rc < 0) {
        return rc;
    }
    const size_t s = s_bytes(b), conv = conv_bytes(b), layers = (size_t)b->n_gdn;
    uint8_t *to = (uint8_t *)cuda_slot(b, slot);
    const uint8_t *from = in;
    int status = 0;
    b->parity[slot] = 0;
    if (layers > 0) {
        status = rt_upload_rows(b->rt, to, s, from, s + conv, s, layers);
        status = status ? status
                        : rt_upload_rows(b->rt, to + b->s_floats * sizeof(float), 2 * conv,
                                         from + s, s + conv, conv, layers);
    }
    status = status ? status
                    : rt_upload(b->rt, cuda_slot_hidden(b, slot), from + layers * (s + conv),
                                (size_t)b->shape.hidden * sizeof(float));
    /* in is the caller's again when this returns */
    return status ? cuda_fail(b, status, e) : cuda_finish(b, e);
}

int cuda_page_copy(struct backend *b, int dst, int src, struct err *e)
{
    int rc = be_check_page(b->pages, dst, e);
    rc = rc < 0 ? rc : be_check_page(b->pages, src, e);
    rc = rc < 0 ? rc : begin_op(b, "copying a cache page", e);
    if (rc < 0 || dst == src) {
        return rc;
    }
    const size_t n = b->page_bytes;
    return result(b, rt_copy(b->rt, b->cache + (size_t)dst * n, b->cache + (size_t)src * n, n), e);
}

/* Where head j of all keys, then all values, begins in a layer's part of a page. */
static size_t head_at(const struct backend *b, size_t j)
{
    const size_t heads = (size_t)b->shape.kv_heads;
    const size_t keys = BE_PAGE * kvq_row_bytes(kvq_of(b->kv, 0));
    const size_t values = BE_PAGE * kvq_row_bytes(kvq_of(b->kv, 1));
    return j < heads ? j * keys : heads * keys + (j - heads) * values;
}

/* Zeroes what the heads' keys (which = 1: values) have beyond the first rows in the part
 * of a page's blob of each of some layers. */
static void clear_tail(const struct backend *b, uint8_t *parts, size_t layers, int which, int rows)
{
    const size_t tile = KVL_ROWS * kvq_row_bytes(kvq_of(b->kv, which));
    const size_t kept = (size_t)(rows / KVL_ROWS) * tile, heads = (size_t)b->shape.kv_heads;
    uint8_t mask[KVL_ROWS * BE_HEAD_DIM * sizeof(float)];
    cu_kv_mask(b->kv, which, rows % KVL_ROWS, mask);
    for (size_t i = 0; i < layers * heads && rows < BE_PAGE; i++) {
        uint8_t *p =
            parts + i / heads * b->layer_bytes + head_at(b, (which ? heads : 0) + i % heads) + kept;
        for (size_t k = 0; k < tile; k++) {
            p[k] &= mask[k];
        }
        memset(p + tile, 0, (BE_PAGE / KVL_ROWS - 1) * tile - kept);
    }
}

int cuda_page_export(struct backend *b, int page, int n, void *out, struct err *e)
{
    int rc = be_check_page(b->pages, page, e);
    rc = rc < 0 ? rc : begin_op(b, "reading a cache page", e);
    if (rc < 0) {
        return rc;
    }
    const size_t bytes = b->page_bytes;
    int status = rt_download(b->rt, out, b->cache + (size_t)page * bytes, bytes);
    rc = status ? cuda_fail(b, status, e) : cuda_finish(b, e);
    if (rc == 0) {
        cuda_page_trim(b, n, out);
    }
    return rc;
}

void cuda_page_trim(const struct backend *b, int n, void *blob)
{
    const size_t own = (size_t)b->n_attention, mtp = b->page_bytes / b->layer_bytes - own;
    for (int which = 0; which < 2 && n <= BE_PAGE; which++) {
        clear_tail(b, blob, own, which, n);
        clear_tail(b, (uint8_t *)blob + own * b->layer_bytes, mtp, which, n - 1);
    }
}

int cuda_page_import(struct backend *b, int page, const void *in, struct err *e)
{
    int rc = be_check_page(b->pages, page, e);
    rc = rc < 0 ? rc : begin_op(b, "writing a cache page", e);
    if (rc < 0) {
        return rc;
    }
    const size_t n = b->page_bytes;
    int status = rt_upload(b->rt, b->cache + (size_t)page * n, in, n);
    return status ? cuda_fail(b, status, e) : cuda_finish(b, e);
}

/* ---- places ---- */

void *cuda_state_at(const struct backend *b, int slot, size_t at, size_t *n)
{
    const size_t s = s_bytes(b), conv = conv_bytes(b), layer = at / (s + conv);
    const size_t in = at % (s + conv);
    uint8_t *p = (uint8_t *)cuda_slot(b, slot);
    if (layer >= (size_t)b->n_gdn) {
        const size_t h = at - (size_t)b->n_gdn * (s + conv);
        *n = (size_t)b->shape.hidden * sizeof(float) - h;
        return (uint8_t *)cuda_slot_hidden(b, slot) + h;
    }
    if (in < s) {
        *n = s - in;
        return p + layer * s + in;
    }
    *n = s + conv - in;
    return p + b->s_floats * sizeof(float) + (2 * layer + b->parity[slot]) * conv + in - s;
}

void *cuda_page_at(const struct backend *b, int page, size_t at, size_t *n)
{
    *n = b->page_bytes - at;
    return b->cache + (size_t)page * b->page_bytes + at;
}

int cuda_host_alloc(struct backend *b, size_t bytes, void **out, struct err *e)
{
    b->doing = "pinning host memory";
    return result(b, rt_pin(b->rt, bytes, out), e);
}

void cuda_host_free(struct backend *b, void *p)
{
    rt_unpin(b->rt, p);
}

/* ---- views ---- */

int cuda_read_gdn(struct backend *b, int layer, int slot, float *conv, float *s, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    if (rc < 0) {
        return rc;
    }
    if (layer < 0 || layer >= b->shape.layers || b->attention[layer]) {
        return err_set(e, QE_INTERNAL, "layer %d is not a DeltaNet layer", layer);
    }
    uint8_t *blob = mem_alloc(cuda_state_size(b));
    rc = cuda_state_export(b, slot, blob, e);
    if (rc == 0) {
        const size_t n = s_bytes(b);
        const uint8_t *at = blob + (size_t)b->layers[layer].index * (n + conv_bytes(b));
        if (s) {
            memcpy(s, at, n);
        }
        const float *c = (const float *)(at + n);
        for (int ch = 0; conv && ch < b->channels; ch++) {
            for (int j = 0; j < BE_CONV - 1; j++) {
                conv[ch * (BE_CONV - 1) + j] = c[j * b->channels + ch];
            }
        }
    }
    free(blob);
    return rc;
}

int cuda_page_fill(struct backend *b, int page, struct err *e)
{
    const size_t layers = b->page_bytes / b->layer_bytes, heads = (size_t)b->shape.kv_heads;
    uint8_t *made = mem_alloc(b->page_bytes);
    memset(made, 0, b->page_bytes);
    for (int row = 0; row < BE_PAGE; row++) {
        for (int which = 0; which < 2; which++) {
            uint8_t stored[BE_HEAD_DIM * sizeof(float)];
            kvq_made_up(kvq_of(b->kv, which), row, which, stored);
            for (size_t j = which ? heads : 0; j < heads * (which ? 2 : 1); j++) {
                cu_kv_put(b->kv, which, made + head_at(b, j), row, stored);
            }
        }
    }
    for (size_t i = 1; i < layers; i++) {
        memcpy(made + i * b->layer_bytes, made, b->layer_bytes);
    }
    const int rc = cuda_page_import(b, page, made, e);
    free(made);
    return rc;
}

int cuda_read_kv(struct backend *b, int layer, const int32_t *pages, int n, float *k, float *v,
                 struct err *e)
{
    const bool mtp = layer == b->shape.layers && b->shape.mtp;
    if (!mtp && (layer < 0 || layer >= b->shape.layers || !b->attention[layer])) {
        return err_set(e, QE_INTERNAL, "layer %d has no keys and values", layer);
    }
    const size_t at = (size_t)b->layers[layer].index * b->layer_bytes;
    const size_t heads = (size_t)b->shape.kv_heads;
    uint8_t *page = mem_alloc(b->page_bytes);
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        if (i % BE_PAGE == 0) {
            rc = cuda_page_export(b, pages[i / BE_PAGE], INT_MAX, page, e);
        }
        for (size_t j = 0; j < 2 * heads && rc == 0; j++) {
            float *out = j < heads ? k : v;
            if (!out) {
                continue;
            }
            uint8_t row[BE_HEAD_DIM * sizeof(float)];
            cu_kv_get(b->kv, j >= heads, page + at + head_at(b, j), i % BE_PAGE, row);
            kvq_read(kvq_of(b->kv, j >= heads), row,
                     out + ((size_t)i * heads + j % heads) * BE_HEAD_DIM);
        }
    }
    free(page);
    return rc;
}
