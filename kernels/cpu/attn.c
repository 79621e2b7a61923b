/*
 * Gated attention over paged keys and values. One unit of work is a row and
 * the query heads that share its key head (or some of them). Its keys are read
 * page by page in ascending order: scores of one page, its maximum, then
 * accumulator and sum rescaled and the page's values added in key order. So a
 * row's result does not depend on where a prompt was cut, on its neighbours or
 * on the pages' places. Packed keys and values become fp32 a few rows at a time;
 * queries are turned as turned keys are, and sums of turned values back at the end.
 */
#include "config.h"
#include "kernels/cpu/isa.h"

#include <math.h>

#include "kernels/backend.h"
#include "kernels/cpu/attn.h"
#include "kernels/cpu/kvtile.h"
#include "kernels/cpu/tile.h"
#include "kernels/kvq.h"

enum { D = BE_HEAD_DIM, HALF = BE_ROT_DIM / 2, ROWS = ATTN_ROWS };

/* This layer's keys (values: which = 1) of a head in a page. */
static uint8_t *head_of(const struct attn_args *a, int32_t page, int which, int head)
{
    const size_t keys = BE_PAGE * kvq_row_bytes(kvq_of(a->kv, 0));
    const size_t values = BE_PAGE * kvq_row_bytes(kvq_of(a->kv, 1));
    return a->cache + (size_t)page * a->page_size + a->offset +
           (which ? (size_t)a->kv_heads * keys + (size_t)head * values : (size_t)head * keys);
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

static void store_row(uint8_t *head, int at, const float *x, enum kvq_kind k)
{
    uint8_t *row = head + (size_t)at * kvq_row_bytes(k);
    if (kvq_packed(k)) {
        struct kvq_codes c;
        kvq_quantise(k, x, &c);
        kvq_pack(k, &c, row);
    }
    for (int i = 0; i < D && k == KVQ_F8; i++) {
        row[i] = f32_to_f8(x[i]);
    }
    for (int i = 0; i < D && (k == KVQ_F16 || k == KVQ_F32); i += 16) {
        v16 v = v16_load(x + i);
        if (k == KVQ_F16) {
            v16_store_f16((uint16_t *)row + i, v);
        } else {
            v16_store((float *)row + i, v);
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
        store_row(head_of(a, page, 0, h), row->pos % BE_PAGE, k, kvq_of(a->kv, 0));
        store_row(head_of(a, page, 1, h), row->pos % BE_PAGE, a->v + in, kvq_of(a->kv, 1));
    }
}

/* s[r][0..n) = q[r] keys^T. */
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

/* n rows of packed keys or values, by their run-time kind. */
static void expand(enum kvq_kind k, const uint8_t *rows, int n, float *out)
{
    switch (k) {
    case KVQ_B8:
        kv_expand(KVQ_B8, rows, n, out);
        return;
    case KVQ_T5:
        kv_expand(KVQ_T5, rows, n, out);
        return;
    case KVQ_T3:
        kv_expand(KVQ_T3, rows, n, out);
        return;
    case KVQ_B4:
        kv_expand(KVQ_B4, rows, n, out);
        return;
    case KVQ_F32:
    case KVQ_F16:
    case KVQ_F8:
        return;
    }
}

/* What a page adds to some heads of a row. */
struct page_job {
    const uint8_t *keys, *values;
    int n; /* rows */
    enum kvq_kind k, v;
    const float *q;
    float *s, *acc, *max, *sum;
    float *rows; /* [ROWS][256] */
};

/* Scores to weights, the rest of the last vector to zero; what was summed is rescaled. */
static inline void reweigh(int rows, const struct page_job *p)
{
    for (int r = 0; r < rows; r++) {
        float *s = p->s + r * BE_PAGE;
        for (int j = p->n; j < (p->n + 15) / 16 * 16; j++) {
            s[j] = -INFINITY;
        }
        v16 c = v16_set1(soften(s, p->n, &p->max[r], &p->sum[r]));
        for (int i = 0; i < D; i += 16) {
            v16_store(p->acc + r * D + i, v16_mul(v16_load(p->acc + r * D + i), c));
        }
    }
}

ALWAYS_INLINE void page_step(const int rows, const enum be_kv kv, const struct page_job *p)
{
    scores(rows, kv, p->keys, p->n, p->q, p->s);
    reweigh(rows, p);
    for (int i = 0; i < D; i += 64) {
        const void *v = p->values + (size_t)i * tile_width(kv);
        tile_axpy(rows, kv, p->s, BE_PAGE, 1, v, D, (size_t)p->n, p->acc + i, D);
    }
}

/* acc[r] += weights s[r] times n expanded rows. */
ALWAYS_INLINE void packed_sums(const int rows, const float *v, int n, const float *s, float *acc)
{
    for (int i = 0; i < D; i += 64) {
        tile_axpy(rows, BE_KV_F32, s, BE_PAGE, 1, v + i, D, (size_t)n, acc + i, D);
    }
}

/* The same of packed ones, for up to ATTN_HEADS heads: rows are expanded once for all. */
static void packed_step(int heads, const struct page_job *p)
{
    const size_t key = kvq_row_bytes(p->k), value = kvq_row_bytes(p->v);
    for (int j = 0; j < p->n; j += ROWS) {
        const int n = p->n - j < ROWS ? p->n - j : ROWS;
        expand(p->k, p->keys + (size_t)j * key, n, p->rows);
        for (int h = 0; h < heads; h += V16_TILE) {
#define STEP(R)                                                                                    \
    scores(R, BE_KV_F32, (const uint8_t *)p->rows, n, p->q + h * D, p->s + h * BE_PAGE + j)
            TILE_SWITCH(heads - h < V16_TILE ? heads - h : V16_TILE, STEP);
#undef STEP
        }
    }
    reweigh(heads, p);
    for (int j = 0; j < p->n; j += ROWS) {
        const int n = p->n - j < ROWS ? p->n - j : ROWS;
        expand(p->v, p->values + (size_t)j * value, n, p->rows);
        for (int h = 0; h < heads; h += V16_TILE) {
#define STEP(R) packed_sums(R, p->rows, n, p->s + h * BE_PAGE + j, p->acc + h * D)
            TILE_SWITCH(heads - h < V16_TILE ? heads - h : V16_TILE, STEP);
#undef STEP
        }
    }
}

/* Query heads h .. h + n of row r, all on key head kv: at most V16_TILE, of packed ones
 * ATTN_HEADS. */
static void unit_heads(const struct attn_args *a, int r, int kv, int h, int n, float *scratch)
{
    float *q = scratch;
    float *s = q + ATTN_HEADS * D;
    float *acc = s + ATTN_HEADS * BE_PAGE;
    float max[ATTN_HEADS];
    float sum[ATTN_HEADS] = {0};
    struct page_job p = {.k = kvq_of(a->kv, 0),
                         .v = kvq_of(a->kv, 1),
                         .q = q,
                         .s = s,
                         .acc = acc,
                         .max = max,
                         .sum = sum,
                         .rows = acc + ATTN_HEADS * D};
    const float *in = a->q + ((size_t)r * (size_t)a->q_heads + (size_t)h) * 2 * D;
    for (int i = 0; i < n; i++) {
        max[i] = -INFINITY;
        for (int d = 0; d < D; d++) {
            q[i * D + d] = in[i * 2 * D + d] * 0.0625F;
            acc[i * D + d] = 0;
        }
        kvq_turn(p.k, q + i * D);
    }
    const struct cpu_row *row = &a->row[r];
    for (int at = 0; at <= row->pos; at += BE_PAGE) {
        const int32_t page = row->pages[at / BE_PAGE];
        p.n = row->pos + 1 - at < BE_PAGE ? row->pos + 1 - at : BE_PAGE;
        p.keys = head_of(a, page, 0, kv);
        p.values = head_of(a, page, 1, kv);
        if (kvq_packed(p.k)) {
            packed_step(n, &p);
        } else if (a->kv == BE_KV_F8) {
#define STEP(R) page_step(R, BE_KV_F8, &p)
            TILE_SWITCH(n, STEP);
#undef STEP
        } else if (a->kv == BE_KV_F16) {
#define STEP(R) page_step(R, BE_KV_F16, &p)
            TILE_SWITCH(n, STEP);
#undef STEP
        } else {
#define STEP(R) page_step(R, BE_KV_F32, &p)
            TILE_SWITCH(n, STEP);
#undef STEP
        }
    }
    float *out = a->o + ((size_t)r * (size_t)a->q_heads + (size_t)h) * D;
    for (int i = 0; i < n; i++) {
        v16 l = v16_set1(1 / sum[i]);
        kvq_turn_back(p.v, acc + i * D);
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
    const int most = kvq_packed(kvq_of(a->kv, 0)) ? ATTN_HEADS : V16_TILE;
    height = height < most ? height : most;
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
