/*
 * Products with a few rows. A weight is turned to fp32 in a register, once for a tile of
 * at most six rows, and meets all of them there. Tiles of more rows would leave room for
 * fewer outputs, and their activations no room in first-level cache; so more rows are
 * two or three tiles, which pass one after the other over as many weights as stay in
 * second-level cache. Sums are named one by one because arrays of that size end up in
 * memory. Same order of addition as gemm.c.
 */
#include "config.h"
#include "kernels/cpu/few.h"

#include "kernels/cpu/weight.h"

#if V16_TILE > 1

enum { OUTS = 4, PASS_BYTES = 256 << 10 };

#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5)

/* One output of row r. */
static void put(const struct mm_out *m, int r, int o, float y)
{
    float *d = m->y + (size_t)r * m->ldy + o;
    *d = m->add ? *d + y : y;
}

/* Outputs o .. o + n of a tile of rows, the first of which is row `from`. */
ALWAYS_INLINE void few_dot(const enum dtype t, const int rows, const struct mm_out *m, int k,
                           int from, const float *x, int o, int n)
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
    float y[OUTS];
#define X(r)                                                                                       \
    if (r < rows) {                                                                                \
        v16_sum4(y, a##r, b##r, c##r, d##r);                                                       \
        for (int i = 0; i < n; i++) {                                                              \
            put(m, from + r, o + i, y[i]);                                                         \
        }                                                                                          \
    }
    EACH(X)
#undef X
}

ALWAYS_INLINE void few_tile(const enum dtype t, const int rows, const struct mm_out *m, int k,
                            int from, const float *x, int first, int end)
{
    for (int o = first; o < end; o += OUTS) {
        few_dot(t, rows, m, k, from, x, o, end - o < OUTS ? end - o : OUTS);
    }
}

ALWAYS_INLINE void few_of(const enum dtype t, const struct mm_out *m, int k, int rows,
                          const float *x, int first, int end)
{
    const int pass = (int)(PASS_BYTES / bytes_of(t, (size_t)k)) / OUTS * OUTS;
    const int most = few_tiles(rows) == 1 ? end - first : pass < OUTS ? OUTS : pass;
    for (int o = first; o < end; o += most) {
        const int stop = end - o < most ? end : o + most;
        for (int i = 0, from = 0; i < few_tiles(rows); i++) {
            const int height = few_height(rows, i);
            const float *tile = x + (size_t)from * (size_t)k;
            switch (height) {
            case 2:
                few_tile(t, 2, m, k, from, tile, o, stop);
                break;
            case 3:
                few_tile(t, 3, m, k, from, tile, o, stop);
                break;
            case 4:
                few_tile(t, 4, m, k, from, tile, o, stop);
                break;
            case 5:
                few_tile(t, 5, m, k, from, tile, o, stop);
                break;
            default:
                few_tile(t, 6, m, k, from, tile, o, stop);
                break;
            }
            from += height;
        }
    }
}

void ISA(few)(const struct mm_out *m, int k, int rows, const float *x, int first, int end)
{
    if (m->w->dtype == DT_Q4_G64) {
        few_of(DT_Q4_G64, m, k, rows, x, first, end);
    } else {
        few_of(DT_Q8_G128, m, k, rows, x, first, end);
    }
}

#else

void ISA(few)(const struct mm_out *m, int k, int rows, const float *x, int first, int end)
{
    (void)m, (void)k, (void)rows, (void)x, (void)first, (void)end; /* few_takes says no */
}

#endif
