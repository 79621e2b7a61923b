/*
 * Gated attention over paged keys and values. One unit of work is a row and
 * the query heads that share its key head (or some of them). Its keys are read
 * page by page in ascending order: scores of one page, its maximum, then
 * accumulator and sum rescaled and the page's values added in key order. So a
 * row's result does not depend on where a prompt was cut, on its neighbours or
 * on the pages' places.
 */
#include "config.h"
#include "kernels/cpu/isa.h"

#include <math.h>

#include "kernels/backend.h"
#include "kernels/cpu/attn.h"
#include "kernels/cpu/tile.h"

enum { D = BE_HEAD_DIM, HALF = BE_ROT_DIM / 2 };

/* This layer's keys (values: which = 1) of a head in a page. */
static uint8_t *head_of(const struct attn_args *a, int32_t page, int which, int head)
{
    size_t tile = (size_t)BE_PAGE * D * tile_width(a->kv);
    return a->cache + (size_t)page * a->page_size + a->offset +
           ((size_t)which * (size_t)a->kv_heads + (size_t)head) * tile;
}

/* Rotates the first 64 elements: pairs (i, i + 32). */
static void rotate(float *x, const float *rot)
{
    for (int i = 0; i < HALF; i += 16) {
        v16 c = v16_load(rot + i);
        v16 s = v16_load(rot + HALF + i);
        v16 a = v16_load(x + i);
        v16 b = v16_load(x + HALF + i);
        v16_store(x + i, v16_sub(v16_mul(a, c), v16_mul(b, s)));
        v16_store(x + HALF + i, v16_add(v16_mul(b, c), v16_mul(a, s)));
    }
}

static void store_row(uint8_t *head, int at, const float *x, enum be_kv kv)
{
    for (int i = 0; i < D && kv == BE_KV_F8; i++) {
        head[at * D + i] = f32_to_f8(x[i]);
    }
    for (int i = 0; i < D && kv != BE_KV_F8; i += 16) {
        v16 v = v16_load(x + i);
        if (kv == BE_KV_F16) {
            v16_store_f16((uint16_t *)head + at * D + i, v);
        } else {
            v16_store((float *)head + at * D + i, v);
        }
    }
}

void ISA(attn_append)(const struct attn_args *a, int tid, int nt)
{
    const int heads = a->kv_heads + (a->kv_only ? 0 : a->q_heads);
    for (int unit = tid; unit < a->rows * heads; unit += nt) {
        int r = unit / heads;
        int h = unit % heads;
        const float *rot = a->rot + (size_t)r * BE_ROT_DIM;
        if (h >= a->kv_heads) {
            float *q = a->q + ((size_t)r * (size_t)a->q_heads + (size_t)(h - a->kv_heads)) * 2 * D;
            ISA(norm_row)(q, a->q_norm, a->eps, D, q);
            rotate(q, rot);
            continue;
        }
        const struct cpu_row *row = &a->row[r];
        size_t in = ((size_t)r * (size_t)a->kv_heads + (size_t)h) * D;
        int32_t page = row->pages[row->pos / BE_PAGE];
        float k[D];
        ISA(norm_row)(a->k + in, a->k_norm, a->eps, D, k);
        rotate(k, rot);
        store_row(head_of(a, page, 0, h), row->pos % BE_PAGE, k, a->kv);
        store_row(head_of(a, page, 1, h), row->pos % BE_PAGE, a->v + in, a->kv);
    }
}

/* s[r][0..n) = q[r] keys^T; the rest of the last vector is -inf. */
ALWAYS_INLINE void scores(const int rows, const enum be_kv kv, const uint8_t *keys, int n,
                          const float *q, float *s)
{
    for (int j = 0; j < n; j += 4) {
        float out[8][4];
        const void *k = keys + (size_t)j * D * tile_width(kv);
        tile_dot(rows, kv, k, 16, D, q, D, D / 16, out);
        for (int r = 0; r < rows; r++) {
            memcpy(s + r * BE_PAGE + j, out[r], sizeof out[r]);
        }
    }
    for (int r = 0; r < rows; r++) {
        for (int j = n; j < (n + 15) / 16 * 16; j++) {
            s[r * BE_PAGE + j] = -INFINITY;
        }
    }
}

/* Turns one row's scores into weights relative to the new maximum; returns the
 * factor for what was accumulated before. */
static float soften(float *s, int n, float *max, float *sum)
{
    v16 m = v16_load(s);
    for (int j = 16; j < n; j += 16) {
        m = v16_max(m, v16_load(s + j));
    }
    float top = v16_maximum(m);
    top = top > *max ? top : *max;
    v16 t = v16_set1(top);
    v16 l = v16_zero();
    for (int j = 0; j < n; j += 16) {
        v16 p = v16_exp(v16_sub(v16_load(s + j), t));
        v16_store(s + j, p);
        l = v16_add(l, p);
    }
    float c[16];
    v16_store(c, v16_exp(v16_set1(*max - top)));
    *sum = *sum * c[0] + v16_sum(l);
    *max = top;
    return c[0];
}

ALWAYS_INLINE void page_step(const int rows, const enum be_kv kv, const uint8_t *keys,
                             const uint8_t *values, int n, const float *q, float *s, float *acc,
                             float *max, float *sum)
{
    scores(rows, kv, keys, n, q, s);
    for (int r = 0; r < rows; r++) {
        v16 c = v16_set1(soften(s + r * BE_PAGE, n, &max[r], &sum[r]));
        for (int i = 0; i < D; i += 16) {
            v16_store(acc + r * D + i, v16_mul(v16_load(acc + r * D + i), c));
        }
    }
    for (int i = 0; i < D; i += 64) {
        const void *v = values + (size_t)i * tile_width(kv);
        tile_axpy(rows, kv, s, BE_PAGE, 1, v, D, (size_t)n, acc + i, D);
    }
}

/* Query heads h .. h + n of row r, n <= V16_TILE, all on key head kv. */
static void unit_heads(const struct attn_args *a, int r, int kv, int h, int n, float *scratch)
{
    float *q = scratch;
    float *s = q + V16_TILE * D;
    float *acc = s + V16_TILE * BE_PAGE;
    float max[V16_TILE];
    float sum[V16_TILE] = {0};
    const float *in = a->q + ((size_t)r * (size_t)a->q_heads + (size_t)h) * 2 * D;
    for (int i = 0; i < n; i++) {
        max[i] = -INFINITY;
        for (int d = 0; d < D; d++) {
            q[i * D + d] = in[i * 2 * D + d] * 0.0625F;
            acc[i * D + d] = 0;
        }
    }
    const struct cpu_row *row = &a->row[r];
    for (int at = 0; at <= row->pos; at += BE_PAGE) {
        int keys = row->pos + 1 - at < BE_PAGE ? row->pos + 1 - at : BE_PAGE;
        int32_t page = row->pages[at / BE_PAGE];
        const uint8_t *k = head_of(a, page, 0, kv);
        const uint8_t *v = head_of(a, page, 1, kv);
        if (a->kv == BE_KV_F8) {
#define STEP(R) page_step(R, BE_KV_F8, k, v, keys, q, s, acc, max, sum)
            TILE_SWITCH(n, STEP);
#undef STEP
        } else if (a->kv == BE_KV_F16) {
#define STEP(R) page_step(R, BE_KV_F16, k, v, keys, q, s, acc, max, sum)
            TILE_SWITCH(n, STEP);
#undef STEP
        } else {
#define STEP(R) page_step(R, BE_KV_F32, k, v, keys, q, s, acc, max, sum)
            TILE_SWITCH(n, STEP);
#undef STEP
        }
    }
    float *out = a->o + ((size_t)r * (size_t)a->q_heads + (size_t)h) * D;
    for (int i = 0; i < n; i++) {
        v16 l = v16_set1(1 / sum[i]);
        for (int d = 0; d < D; d += 16) {
            v16 gate = v16_sigmoid(v16_load(in + i * 2 * D + D + d));
            v16_store(out + i * D + d, v16_mul(v16_mul(v16_load(acc + i * D + d), l), gate));
        }
    }
}

void ISA(attn)(const struct attn_args *a, float *scratch, int tid, int nt)
{
    const int group = a->q_heads / a->kv_heads;
    /* With few rows the heads of one key head are shared out too. */
    int split = (nt + a->rows * a->kv_heads - 1) / (a->rows * a->kv_heads);
    int height = (group + split - 1) / split;
    height = height < V16_TILE ? height : V16_TILE;
    const int parts = (group + height - 1) / height;
    const int per_row = a->kv_heads * parts;
    for (int unit = tid; unit < a->rows * per_row; unit += nt) {
        int r = unit / per_row;
        int kv = unit % per_row / parts;
        int h = unit % parts * height;
        int n = group - h < height ? group - h : height;
        unit_heads(a, r, kv, kv * group + h, n, scratch);
    }
}
