/*
 * Matrix products with weights in place, for any number of rows. One order of
 * addition everywhere: lane j of sixteen adds the elements k = j (mod 16) in
 * ascending k (4-bit weights: even elements of a block of 32 before odd ones,
 * pair j in lane j), then one tree over the lanes. One row runs eight outputs
 * at a time from the file's bytes, a few in one tile (few.c); many run over four
 * outputs that were first turned to fp32 in cache. All give the same bits.
 */
#include "config.h"
#include "kernels/cpu/isa.h"

#include "kernels/cpu/few.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/weight.h"

/* The last k % 16 elements of an unquantised row. */
static v16 weight_tail(enum dtype t, const uint8_t *p, int n)
{
    uint8_t buf[64] = {0};
    v16 a = v16_zero();
    v16 b = a;
    memcpy(buf, p, bytes_of(t, (size_t)n));
    weight2(t, buf, 0, a, &a, &b);
    return a;
}

/* ---- activations ---- */

/* Even elements of each block of 32 first, then the odd ones. */
static void split_pairs(float *x, int k)
{
    for (int i = 0; i < k; i += 32) {
        float t[32];
        for (int j = 0; j < 16; j++) {
            t[j] = x[i + 2 * j];
            t[16 + j] = x[i + 2 * j + 1];
        }
        memcpy(x + i, t, sizeof t);
    }
}

/* Row i of the input, padded with zeros to kp, in the order the weights want. */
static void pack_row(const struct mm_in *in, int i, bool pairs, float *o, size_t kp)
{
    size_t r = in->index ? (size_t)in->index[i] : (size_t)i;
    const float *x = in->x + r * in->ldx;
    if (in->norm) {
        ISA(norm_row)(x, in->norm, in->eps, in->k, o);
    } else {
        memcpy(o, x, (size_t)in->k * sizeof *o);
    }
    memset(o + in->k, 0, (kp - (size_t)in->k) * sizeof *o);
    if (pairs) {
        split_pairs(o, in->k);
    }
}

static void pack(const struct mm_in *in, int first, int n, bool pairs, float *out, size_t kp)
{
    for (int i = 0; i < n; i++) {
        pack_row(in, first + i, pairs, out + (size_t)i * kp, kp);
    }
}

/* All rows in the tiles that few wants; row has room for one. */
static void pack_few(const struct mm_in *in, bool pairs, float *out, size_t kp, float *row)
{
    for (int i = 0, from = 0; i < few_tiles(in->rows); i++) {
        const int height = few_height(in->rows, i);
        for (int r = 0; r < height; r++) {
            pack_row(in, from + r, pairs, row, kp);
            for (size_t s = 0; s < kp; s += 16) {
                memcpy(out + s * (size_t)height + (size_t)r * 16, row + s, 16 * sizeof *row);
            }
        }
        from += height;
        out += (size_t)height * kp;
    }
}

/* ---- one row ---- */

enum { WIDE = 8 };

/* How far ahead of use weights are requested: the same place some groups of
 * rows on, or, in long rows, further down the row. */
static size_t ahead_of(size_t row_bytes)
{
    const size_t group = WIDE * row_bytes;
    return group > 16384 ? 1024 : (4096 + group - 1) / group * group;
}

/* y[0..n) (+)= dot(x, w[o + i]), n <= WIDE; missing rows repeat the first. */
ALWAYS_INLINE void wide_dot(const enum dtype t, const struct tensor *w, int k, int o, int n,
                            const float *x, float *y, bool add)
{
    const int group = group_of(t);
    const size_t row_bytes = bytes_of(t, (size_t)k);
    const size_t row_groups = (size_t)(k / group);
    const uint8_t *data = w->data;
    const uint8_t *scales = w->scales;
    const uint8_t *p[WIDE];
    size_t g0[WIDE];
    v16 acc[WIDE];
    UNROLL for (int i = 0; i < WIDE; i++)
    {
        size_t r = (size_t)(o + (i < n ? i : 0));
        p[i] = data + r * row_bytes;
        g0[i] = r * row_groups;
        acc[i] = v16_zero();
    }
    int at = 0;
    size_t byte = 0;
    const size_t ahead = ahead_of(row_bytes);
    for (size_t g = 0; g < row_groups; g++) {
        UNROLL for (int i = 0; i < WIDE; i++)
        {
            UNROLL for (size_t c = 0; c < bytes_of(t, (size_t)group); c += 64)
            {
                __builtin_prefetch(p[i] + byte + ahead + c);
            }
        }
        v16 s[WIDE];
        UNROLL for (int i = 0; i < WIDE; i++)
        {
            s[i] = scale_of(t, scales, g0[i] + g);
        }
        if (group == 16) {
            v16 xa = v16_load(x + at);
            UNROLL for (int i = 0; i < WIDE; i++)
            {
                v16 a = xa;
                v16 b = xa;
                weight2(t, p[i] + byte, 0, s[i], &a, &b);
                acc[i] = v16_fma(a, xa, acc[i]);
            }
        } else {
            UNROLL for (int j = 0; j < group / 32; j++)
            {
                v16 xa = v16_load(x + at + 32 * j);
                v16 xb = v16_load(x + at + 32 * j + 16);
                UNROLL for (int i = 0; i < WIDE; i++)
                {
                    v16 a = xa;
                    v16 b = xb;
                    weight2(t, p[i] + byte, j, s[i], &a, &b);
                    acc[i] = v16_fma(b, xb, v16_fma(a, xa, acc[i]));
                }
            }
        }
        at += group;
        byte += bytes_of(t, (size_t)group);
    }
    if (at < k) {
        v16 xa = v16_load(x + at);
        UNROLL for (int i = 0; i < WIDE; i++)
        {
            acc[i] = v16_fma(weight_tail(t, p[i] + byte, k - at), xa, acc[i]);
        }
    }
    float sum[WIDE];
    v16_sum4(sum, acc[0], acc[1], acc[2], acc[3]);
    v16_sum4(sum + 4, acc[4], acc[5], acc[6], acc[7]);
    for (int i = 0; i < n; i++) {
        y[i] = add ? y[i] + sum[i] : sum[i];
    }
}

ALWAYS_INLINE void wide_outs(const enum dtype t, const struct mm_out *m, int k, const float *x,
                             int first, int end)
{
    for (int o = first; o < end; o += WIDE) {
        wide_dot(t, m->w, k, o, end - o < WIDE ? end - o : WIDE, x, m->y + o, m->add);
    }
}

static void one_row(const struct mm_out *m, int k, const float *x, int first, int end)
{
    switch (m->w->dtype) {
    case DT_F32:
        wide_outs(DT_F32, m, k, x, first, end);
        break;
    case DT_F16:
        wide_outs(DT_F16, m, k, x, first, end);
        break;
    case DT_BF16:
        wide_outs(DT_BF16, m, k, x, first, end);
        break;
    case DT_Q8_G128:
        wide_outs(DT_Q8_G128, m, k, x, first, end);
        break;
    case DT_Q4_G64:
        wide_outs(DT_Q4_G64, m, k, x, first, end);
        break;
    }
}

/* ---- several rows ---- */

enum { PANEL = 4 };

/* Weight rows o.. as fp32, vector s of row i at out + (s * PANEL + i) * 16. */
ALWAYS_INLINE void panel_row(const enum dtype t, const struct tensor *w, int k, int o, float *out)
{
    const int group = group_of(t);
    const size_t row_groups = (size_t)(k / group);
    const uint8_t *p = (const uint8_t *)w->data + (size_t)o * bytes_of(t, (size_t)k);
    size_t s = 0;
    for (size_t g = 0; g < row_groups; g++) {
        UNROLL for (size_t c = 0; c < bytes_of(t, (size_t)group); c += 64)
        {
            __builtin_prefetch(p + PANEL * bytes_of(t, (size_t)k) + c); /* the next panel */
        }
        v16 scale = scale_of(t, w->scales, (size_t)o * row_groups + g);
        v16 a = scale;
        v16 b = scale;
        if (group == 16) {
            weight2(t, p, 0, scale, &a, &b);
            v16_store(out + s * PANEL * 16, a);
            s++;
        } else {
            UNROLL for (int j = 0; j < group / 32; j++)
            {
                weight2(t, p, j, scale, &a, &b);
                v16_store(out + s * PANEL * 16, a);
                v16_store(out + (s + 1) * PANEL * 16, b);
                s += 2;
            }
        }
        p += bytes_of(t, (size_t)group);
    }
    if (k % group != 0) {
        v16_store(out + s * PANEL * 16, weight_tail(t, p, k % group));
    }
}

static void panel(const struct tensor *w, int k, int o, int n, float *out)
{
    for (int i = 0; i < PANEL; i++) {
        int row = o + (i < n ? i : 0);
        float *d = out + 16 * (size_t)i;
        switch (w->dtype) {
        case DT_F32:
            panel_row(DT_F32, w, k, row, d);
            break;
        case DT_F16:
            panel_row(DT_F16, w, k, row, d);
            break;
        case DT_BF16:
            panel_row(DT_BF16, w, k, row, d);
            break;
        case DT_Q8_G128:
            panel_row(DT_Q8_G128, w, k, row, d);
            break;
        case DT_Q4_G64:
            panel_row(DT_Q4_G64, w, k, row, d);
            break;
        }
    }
}

static void panel_rows(const float *w, const float *x, size_t kp, int rows, float *y, size_t ldy,
                       int n, bool add)
{
    for (int r = 0; r < rows; r += V16_TILE) {
        int h = rows - r < V16_TILE ? rows - r : V16_TILE;
        float out[V16_TILE][4];
#define DOT(R) tile_dot(R, BE_KV_F32, w, PANEL * 16, 16, x + (size_t)r * kp, kp, kp / 16, out)
        TILE_SWITCH(h, DOT);
#undef DOT
        for (int i = 0; i < h; i++) {
            float *d = y + (size_t)(r + i) * ldy;
            for (int o = 0; o < n; o++) {
                d[o] = add ? d[o] + out[i][o] : out[i][o];
            }
        }
    }
}

void ISA(matmul)(const struct mm_in *in, const struct mm_out *out, int n_out, float *scratch,
                 int tid, int nt)
{
    const size_t kp = ((size_t)in->k + 15) / 16 * 16;
    const int block = gemm_block_rows(in->k);
    float *x = scratch;
    float *w = scratch + (size_t)block * kp;
    for (int r = 0; r < in->rows; r += block) {
        int rows = in->rows - r < block ? in->rows - r : block;
        for (int pairs = 0; pairs < 2; pairs++) {
            bool packed = false;
            bool packed_few = false;
            for (int i = 0; i < n_out; i++) {
                const struct mm_out *m = &out[i];
                int first = 0;
                int end = 0;
                cpu_share(m->n_out, tid, nt, &first, &end);
                if ((m->w->dtype == DT_Q4_G64) != pairs || first == end) {
                    continue;
                }
                if (few_takes(m->w->dtype, in->rows)) {
                    if (!packed_few) {
                        pack_few(in, pairs, x, kp, w);
                        packed_few = true;
                        packed = false;
                    }
                    ISA(few)(m, in->k, in->rows, x, first, end, w);
                    continue;
                }
                if (!packed) {
                    pack(in, r, rows, pairs, x, kp);
                    packed = true;
                    packed_few = false;
                }
                if (in->rows == 1) {
                    one_row(m, in->k, x, first, end);
                    continue;
                }
                for (int o = first; o < end; o += PANEL) {
                    int n = end - o < PANEL ? end - o : PANEL;
                    panel(m->w, in->k, o, n, w);
                    panel_rows(w, x, kp, rows, m->y + (size_t)r * m->ldy + o, m->ldy, n, m->add);
                }
            }
        }
    }
}

/* Row id of w in natural order. */
static void decode_row(const struct tensor *w, int k, int id, float *out)
{
    const size_t row_groups = (size_t)k / (size_t)group_of(w->dtype);
    const uint8_t *p = (const uint8_t *)w->data + (size_t)id * bytes_of(w->dtype, (size_t)k);
    const int group = group_of(w->dtype);
    for (int i = 0; i < k; i += 32) {
        v16 a = v16_zero();
        v16 b = a;
        if (group == 16) {
            for (int h = i; h < i + 32 && h < k; h += 16) {
                const uint8_t *q = p + bytes_of(w->dtype, (size_t)h);
                if (k - h < 16) {
                    v16_store_part(out + h, weight_tail(w->dtype, q, k - h), k - h);
                } else {
                    weight2(w->dtype, q, 0, a, &a, &b);
                    v16_store(out + h, a);
                }
            }
            continue;
        }
        v16 scale = scale_of(w->dtype, w->scales, (size_t)id * row_groups + (size_t)(i / group));
        weight2(w->dtype, p + bytes_of(w->dtype, (size_t)i), 0, scale, &a, &b);
        float t[32];
        v16_store(t, a);
        v16_store(t + 16, b);
        for (int j = 0; j < 32; j++) {
            out[i + j] = w->dtype == DT_Q4_G64 ? t[(j & 1) * 16 + j / 2] : t[j];
        }
    }
}

void ISA(embed)(const struct tensor *w, const int32_t *ids, int n, float *out, size_t ldo, int tid,
                int nt)
{
    for (int i = tid; i < n; i += nt) {
        decode_row(w, (int)tensor_cols(w), ids[i], out + (size_t)i * ldo);
    }
}
