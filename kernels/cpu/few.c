/*
 * Products with a few rows. A weight is turned to fp32 in a register, once, and meets
 * all rows there: turning it costs about as much as two rows. Sums stand in as many
 * registers as there are, named one by one because arrays of that size end up in
 * memory. Same order of addition as gemm.c.
 */
#include "config.h"
#include "kernels/cpu/few.h"

#include "kernels/cpu/weight.h"

#if V16_TILE > 1

#define EACH(X)      X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)
#define EACH_PAIR(X) X(0, 1) X(2, 3) X(4, 5) X(6, 7) X(8, 9)

/* One output of row r. */
static void put(const struct mm_out *m, int r, int o, float y)
{
    float *d = m->y + (size_t)r * m->ldy + o;
    *d = m->add ? *d + y : y;
}

/* outs (2 or 4) outputs from o on, n of which exist, of a tile `rows` high, used of
 * which are wanted. */
ALWAYS_INLINE void few_dot(const enum dtype t, const int rows, const int outs,
                           const struct mm_out *m, int k, int used, const float *x, int o, int n)
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
    const size_t step = (size_t)outs * row_bytes;
    const size_t ahead = step > 16384 ? 1024 : (4096 + step - 1) / step * step;
    for (size_t g = 0; g < row_groups; g++) {
        UNROLL for (size_t i = 0; i < bytes_of(t, (size_t)group); i += 64)
        {
            __builtin_prefetch(p0 + ahead + i);
            __builtin_prefetch(p1 + ahead + i);
            if (outs > 2) {
                __builtin_prefetch(p2 + ahead + i);
                __builtin_prefetch(p3 + ahead + i);
            }
        }
        const v16 s0 = scale_of(t, scales, w0 * row_groups + g);
        const v16 s1 = scale_of(t, scales, w1 * row_groups + g);
        const v16 s2 = outs > 2 ? scale_of(t, scales, w2 * row_groups + g) : s0;
        const v16 s3 = outs > 2 ? scale_of(t, scales, w3 * row_groups + g) : s0;
        for (int j = 0; j < group / 32; j++) {
            v16 a[2], b[2], c[2], d[2];
            weight2(t, p0, j, s0, &a[0], &a[1]);
            weight2(t, p1, j, s1, &b[0], &b[1]);
            if (outs > 2) {
                weight2(t, p2, j, s2, &c[0], &c[1]);
                weight2(t, p3, j, s3, &d[0], &d[1]);
            }
#define X(r)                                                                                       \
    if (r < rows) {                                                                                \
        const v16 v = v16_load(x + 16 * r);                                                        \
        a##r = v16_fma(a[HALF], v, a##r);                                                          \
        b##r = v16_fma(b[HALF], v, b##r);                                                          \
        c##r = outs > 2 ? v16_fma(c[HALF], v, c##r) : c##r;                                        \
        d##r = outs > 2 ? v16_fma(d[HALF], v, d##r) : d##r;                                        \
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
    float y[4];
    if (outs == 4) {
#define X(r)                                                                                       \
    if (r < rows && r < used) {                                                                    \
        v16_sum4(y, a##r, b##r, c##r, d##r);                                                       \
        for (int i = 0; i < n; i++) {                                                              \
            put(m, r, o + i, y[i]);                                                                \
        }                                                                                          \
    }
        EACH(X)
#undef X
    } else {
#define X(r, q)                                                                                    \
    if (r < rows && r < used) {                                                                    \
        v16_sum4(y, a##r, b##r, a##q, b##q);                                                       \
        for (int i = 0; i < n; i++) {                                                              \
            put(m, r, o + i, y[i]);                                                                \
            if (q < used) {                                                                        \
                put(m, q, o + i, y[2 + i]);                                                        \
            }                                                                                      \
        }                                                                                          \
    }
        EACH_PAIR(X)
#undef X
    }
}

ALWAYS_INLINE void few_outs(const enum dtype t, const int rows, const int outs,
                            const struct mm_out *m, int k, int used, const float *x, int first,
                            int end)
{
    for (int o = first; o < end; o += outs) {
        few_dot(t, rows, outs, m, k, used, x, o, end - o < outs ? end - o : outs);
    }
}

ALWAYS_INLINE void few_of(const enum dtype t, const struct mm_out *m, int k, int rows,
                          const float *x, int first, int end)
{
    switch (few_height(rows)) {
    case 2:
        few_outs(t, 2, 4, m, k, rows, x, first, end);
        break;
    case 3:
        few_outs(t, 3, 4, m, k, rows, x, first, end);
        break;
    case 4:
        few_outs(t, 4, 4, m, k, rows, x, first, end);
        break;
    case 5:
        few_outs(t, 5, 4, m, k, rows, x, first, end);
        break;
    case 6:
        few_outs(t, 6, 4, m, k, rows, x, first, end);
        break;
    case 8:
        few_outs(t, 8, 2, m, k, rows, x, first, end);
        break;
    default:
        few_outs(t, 10, 2, m, k, rows, x, first, end);
        break;
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
