/*
 * Products with a few rows. A weight is turned to fp32 in a register and meets all rows
 * of a tile there, at most six. Tiles of more rows would leave room for fewer outputs,
 * and their activations none in first-level cache; so more rows are two or three tiles.
 * Where all of them fit into that cache, the first tile leaves its fp32 weights in memory
 * for the others (an eighth faster with 8 to 16 rows); else the tiles pass one after the
 * other over as many weights as stay in second-level cache. Sums are named one by one
 * where weights are turned too, because arrays of that size end up in memory there. Same
 * order of addition as gemm.c.
 */
#include "config.h"
#include "kernels/cpu/few.h"

#include "kernels/cpu/weight.h"

#if V16_TILE > 1

enum {
    OUTS = 4,
    PASS_BYTES = 256 << 10, /* of weights, that all tiles pass over */
    PANEL_BYTES = 40 << 10, /* of activations and one panel */
    PANEL_FROM = 7          /* rows: a tile of three gains nothing from a panel */
};

#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5)

/* Outputs o .. o + n of row r, of which the lanes are still to be added. */
ALWAYS_INLINE void put(const struct mm_out *m, int r, int o, int n, v16 a, v16 b, v16 c, v16 d)
{
    float *y = m->y + (size_t)r * m->ldy + o;
    float sum[OUTS];
    if (n == OUTS && !m->add) {
        v16_sum4(y, a, b, c, d);
        return;
    }
    v16_sum4(sum, a, b, c, d);
    for (int i = 0; i < n; i++) {
        y[i] = m->add ? y[i] + sum[i] : sum[i];
    }
}

/* Outputs o .. o + n of a tile of rows, the first of which is row `from`. The weights,
 * vector s of output i, stay at panel + (s * OUTS + i) * 16, unless it is NULL. */
ALWAYS_INLINE void few_dot(const enum dtype t, const int rows, const struct mm_out *m, int k,
                           int from, const float *x, int o, int n, float *panel)
{
    const int group = group_of(t);
    const size_t row_bytes = bytes_of(t, (size_t)k);
    const size_t row_groups = (size_t)(k / group);
    const uint8_t *scales = m->w->scales;
    /* Missing outputs repeat the last. */
    const size_t w0 = (size_t)o;
    const size_t w1 = n > 1 ? w0 + 1 : w0;
    const size_t w2 = n > 2 ? w0 + 2 : w1;
    const size_t w3 = n > 3 ? w0 + 3 : w2;
    const uint8_t *p0 = (const uint8_t *)m->w->data + w0 * row_bytes;
    const uint8_t *p1 = p0 + (w1 - w0) * row_bytes;
    const uint8_t *p2 = p0 + (w2 - w0) * row_bytes;
    const uint8_t *p3 = p0 + (w3 - w0) * row_bytes;
#define X(r) v16 a##r = v16_zero(), b##r = a##r, c##r = a##r, d##r = a##r;
    EACH(X)
#undef X
    /* The same place some outputs on, or, in long rows, further down the row. */
    const size_t step = OUTS * row_bytes;
    const size_t ahead = step > 16384 ? 1024 : (4096 + step - 1) / step * step;
    for (size_t g = 0; g < row_groups; g++) {
        UNROLL for (size_t i = 0; i < bytes_of(t, (size_t)group); i += 64)
        {
            __builtin_prefetch(p0 + ahead + i);
            __builtin_prefetch(p1 + ahead + i);
            __builtin_prefetch(p2 + ahead + i);
            __builtin_prefetch(p3 + ahead + i);
        }
        const v16 s0 = scale_of(t, scales, w0 * row_groups + g);
        const v16 s1 = scale_of(t, scales, w1 * row_groups + g);
        const v16 s2 = scale_of(t, scales, w2 * row_groups + g);
        const v16 s3 = scale_of(t, scales, w3 * row_groups + g);
        for (int j = 0; j < group / 32; j++) {
            v16 a[2], b[2], c[2], d[2];
            weight2(t, p0, j, s0, &a[0], &a[1]);
            weight2(t, p1, j, s1, &b[0], &b[1]);
            weight2(t, p2, j, s2, &c[0], &c[1]);
            weight2(t, p3, j, s3, &d[0], &d[1]);
            if (panel) {
                UNROLL for (int i = 0; i < 2; i++)
                {
                    v16_store(panel, a[i]);
                    v16_store(panel + 16, b[i]);
                    v16_store(panel + 32, c[i]);
                    v16_store(panel + 48, d[i]);
                    panel += 16 * OUTS;
                }
            }
#define X(r)                                                                                       \
    if (r < rows) {                                                                                \
        const v16 v = v16_load(x + 16 * r);                                                        \
        a##r = v16_fma(a[HALF], v, a##r);                                                          \
        b##r = v16_fma(b[HALF], v, b##r);                                                          \
        c##r = v16_fma(c[HALF], v, c##r);                                                          \
        d##r = v16_fma(d[HALF], v, d##r);                                                          \
    }
#define HALF 0
            EACH(X)
#undef HALF
            x += 16 * rows;
#define HALF 1
            EACH(X)
#undef HALF
#undef X
            x += 16 * rows;
        }
        p0 += bytes_of(t, (size_t)group);
        p1 += bytes_of(t, (size_t)group);
        p2 += bytes_of(t, (size_t)group);
        p3 += bytes_of(t, (size_t)group);
    }
#define X(r)                                                                                       \
    if (r < rows) {                                                                                \
        put(m, from + r, o, n, a##r, b##r, c##r, d##r);                                            \
    }
    EACH(X)
#undef X
}

/* The same from a panel that another tile left. */
ALWAYS_INLINE void few_again(const int rows, const struct mm_out *m, int k, int from,
                             const float *x, int o, int n, const float *panel)
{
    v16 acc[FEW_TILE][OUTS];
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int i = 0; i < OUTS; i++)
        {
            acc[r][i] = v16_zero();
        }
    }
    for (int s = 0; s < k / 16; s++) {
        v16 w[OUTS];
        UNROLL for (int i = 0; i < OUTS; i++)
        {
            w[i] = v16_load(panel + 16 * i);
        }
        UNROLL for (int r = 0; r < rows; r++)
        {
            const v16 v = v16_load(x + 16 * r);
            UNROLL for (int i = 0; i < OUTS; i++)
            {
                acc[r][i] = v16_fma(w[i], v, acc[r][i]);
            }
        }
        panel += 16 * OUTS;
        x += 16 * rows;
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        put(m, from + r, o, n, acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
    }
}

/* A tile over outputs first .. end. */
ALWAYS_INLINE void few_tile(const enum dtype t, const int rows, const struct mm_out *m, int k,
                            int from, const float *x, int first, int end, float *panel)
{
    for (int o = first; o < end; o += OUTS) {
        const int n = end - o < OUTS ? end - o : OUTS;
        if (!panel) {
            few_dot(t, rows, m, k, from, x, o, n, NULL);
        } else if (from == 0) {
            few_dot(t, rows, m, k, 0, x, o, n, panel);
        } else {
            few_again(rows, m, k, from, x, o, n, panel);
        }
    }
}

ALWAYS_INLINE void few_of(const enum dtype t, const struct mm_out *m, int k, int rows,
                          const float *x, int first, int end, float *panel)
{
    const int tiles = few_tiles(rows);
    const int in_pass = (int)(PASS_BYTES / bytes_of(t, (size_t)k)) / OUTS * OUTS;
    const bool close = (size_t)(rows + OUTS) * (size_t)k * sizeof *x <= PANEL_BYTES;
    panel = rows > PANEL_FROM && close ? panel : NULL;
    const int most = panel ? OUTS : tiles == 1 ? end - first : in_pass < OUTS ? OUTS : in_pass;
    for (int o = first; o < end; o += most) {
        const int stop = end - o < most ? end : o + most;
        for (int i = 0, from = 0; i < tiles; i++) {
            const int height = few_height(rows, i);
            const float *tile = x + (size_t)from * (size_t)k;
            switch (height) {
            case 2:
                few_tile(t, 2, m, k, from, tile, o, stop, panel);
                break;
            case 3:
                few_tile(t, 3, m, k, from, tile, o, stop, panel);
                break;
            case 4:
                few_tile(t, 4, m, k, from, tile, o, stop, panel);
                break;
            case 5:
                few_tile(t, 5, m, k, from, tile, o, stop, panel);
                break;
            default:
                few_tile(t, 6, m, k, from, tile, o, stop, panel);
                break;
            }
            from += height;
        }
    }
}

void ISA(few)(const struct mm_out *m, int k, int rows, const float *x, int first, int end,
              float *panel)
{
    if (m->w->dtype == DT_Q4_G64) {
        few_of(DT_Q4_G64, m, k, rows, x, first, end, panel);
    } else {
        few_of(DT_Q8_G128, m, k, rows, x, first, end, panel);
    }
}

#else

void ISA(few)(const struct mm_out *m, int k, int rows, const float *x, int first, int end,
              float *panel)
{
    /* few_takes says no */
    (void)m, (void)k, (void)rows, (void)x, (void)first, (void)end, (void)panel;
}

#endif
