#ifndef QUASAR_KERNELS_CPU_WEIGHT_H
#define QUASAR_KERNELS_CPU_WEIGHT_H

#include "kernels/cpu/tile.h"

/* Weights from their bytes to fp32 vectors. Dtypes are compile-time constants in the
 * callers. */

/* Elements that one pass over a row's bytes handles at a time: a scale group,
 * or one vector. */
ALWAYS_INLINE int group_of(const enum dtype t)
{
    return t == DT_Q8_G128 ? 128 : t == DT_Q4_G64 ? 64 : 16;
}

/* Bytes of n elements. */
ALWAYS_INLINE size_t bytes_of(const enum dtype t, size_t n)
{
    return t == DT_F32 ? n * 4 : t == DT_Q8_G128 ? n : t == DT_Q4_G64 ? n / 2 : n * 2;
}

/* Vector j of the group at p as fp32; scale as prepared by scale_of. */
ALWAYS_INLINE void weight2(const enum dtype t, const uint8_t *p, int j, v16 scale, v16 *a, v16 *b)
{
    switch (t) {
    case DT_F32:
        *a = v16_load(p);
        break;
    case DT_F16:
        *a = v16_load_f16(p);
        break;
    case DT_BF16:
        *a = v16_load_bf16(p);
        break;
    case DT_Q8_G128:
        *a = v16_mul(v16_load_i8(p + 32 * j), scale);
        *b = v16_mul(v16_load_i8(p + 32 * j + 16), scale);
        break;
    case DT_Q4_G64:
        v16_q4(p + 16 * j, scale, a, b);
        break;
    }
}

ALWAYS_INLINE v16 scale_of(const enum dtype t, const uint8_t *scales, size_t group)
{
    if (t == DT_Q8_G128) {
        return v16_set1_f16(scales + 2 * group);
    }
    if (t == DT_Q4_G64) {
        return v16_q4_scale(v16_set1_f16(scales + 2 * group));
    }
    return v16_zero();
}

#endif
