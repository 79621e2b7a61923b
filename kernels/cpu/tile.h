#ifndef QUASAR_KERNELS_CPU_TILE_H
#define QUASAR_KERNELS_CPU_TILE_H

#include "kernels/backend.h"
#include "kernels/cpu/v16.h"

/*
 * The two register tiles everything is made of. Row counts are compile-time
 * constants in the callers, so that the loops over rows unroll into registers.
 * A row's arithmetic does not depend on the tile's height.
 */
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#if defined(__AVX2__)
#define UNROLL _Pragma("GCC unroll 8")
#else
#define UNROLL
#endif

/* Bytes of an element of keys and values in the cache. */
ALWAYS_INLINE size_t tile_width(enum be_kv kv)
{
    return kv == BE_KV_F8 ? 1 : kv == BE_KV_F16 ? 2 : 4;
}

ALWAYS_INLINE v16 tile_load(const void *p, size_t i, enum be_kv kv)
{
    return kv == BE_KV_F8    ? v16_load_f8((const uint8_t *)p + i)
           : kv == BE_KV_F16 ? v16_load_f16((const uint16_t *)p + i)
                             : v16_load((const float *)p + i);
}

/*
 * y[r][0..3] = dot(x[r], w[0..3]) over 16 * steps elements: lane j adds the
 * elements k = j (mod 16) in ascending k, then v16_sum. Vector s of weight row
 * o lies at w + s * step + o * row (elements).
 */
ALWAYS_INLINE void tile_dot(const int rows, const enum be_kv kv, const void *w, size_t step,
                            size_t row, const float *x, size_t ldx, size_t steps, float (*y)[4])
{
    v16 acc[8][4];
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int o = 0; o < 4; o++)
        {
            acc[r][o] = v16_zero();
        }
    }
    for (size_t s = 0; s < steps; s++) {
        v16 v[4];
        UNROLL for (int o = 0; o < 4; o++)
        {
            v[o] = tile_load(w, s * step + (size_t)o * row, kv);
        }
        UNROLL for (int r = 0; r < rows; r++)
        {
            v16 a = v16_load(x + (size_t)r * ldx + s * 16);
            UNROLL for (int o = 0; o < 4; o++)
            {
                acc[r][o] = v16_fma(v[o], a, acc[r][o]);
            }
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        v16_sum4(y[r], acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
    }
}

/*
 * c[r][0..63] += sum over t of a[r * ar + t * at] * b[t][0..63], t ascending.
 */
ALWAYS_INLINE void tile_axpy(const int rows, const enum be_kv kv, const float *a, size_t ar,
                             size_t at, const void *b, size_t ldb, size_t n, float *c, size_t ldc)
{
    v16 acc[8][4];
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int o = 0; o < 4; o++)
        {
            acc[r][o] = v16_load(c + (size_t)r * ldc + 16 * o);
        }
    }
    for (size_t t = 0; t < n; t++) {
        v16 v[4];
        UNROLL for (int o = 0; o < 4; o++)
        {
            v[o] = tile_load(b, t * ldb + 16 * (size_t)o, kv);
        }
        UNROLL for (int r = 0; r < rows; r++)
        {
            v16 s = v16_set1(a[(size_t)r * ar + t * at]);
            UNROLL for (int o = 0; o < 4; o++)
            {
                acc[r][o] = v16_fma(s, v[o], acc[r][o]);
            }
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        UNROLL for (int o = 0; o < 4; o++)
        {
            v16_store(c + (size_t)r * ldc + 16 * o, acc[r][o]);
        }
    }
}

/* Runs CALL(rows) for a run-time count 1..V16_TILE. */
#if V16_TILE == 6
#define TILE_SWITCH(n, CALL)                                                                       \
    do {                                                                                           \
        switch (n) {                                                                               \
        case 1:                                                                                    \
            CALL(1);                                                                               \
            break;                                                                                 \
        case 2:                                                                                    \
            CALL(2);                                                                               \
            break;                                                                                 \
        case 3:                                                                                    \
            CALL(3);                                                                               \
            break;                                                                                 \
        case 4:                                                                                    \
            CALL(4);                                                                               \
            break;                                                                                 \
        case 5:                                                                                    \
            CALL(5);                                                                               \
            break;                                                                                 \
        default:                                                                                   \
            CALL(6);                                                                               \
            break;                                                                                 \
        }                                                                                          \
    } while (0)
#else
#define TILE_SWITCH(n, CALL)                                                                       \
    do {                                                                                           \
        (void)(n);                                                                                 \
        CALL(1);                                                                                   \
    } while (0)
#endif

#endif
