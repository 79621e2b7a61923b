#ifndef QUASAR_KERNELS_KVQ_MATH_H
#define QUASAR_KERNELS_KVQ_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kvq.h"

/*
 * Elements of the packed cache formats, for the host and the device: tables, and the few operations
 * whose rounding decides a code. No product here is added to anything, so that no compiler can fuse
 * what another does not; sums that matter name their fma.
 */
/* Signs before (and of T3, T5 after) the transform: bit i % 32 of word i / 32 set: -1. */
#define KVQ_S1                                                                                     \
    {                                                                                              \
        0xe46a0359U, 0x42f85949U, 0xa4c63bbbU, 0x49f250a9U                                         \
    }
#define KVQ_S2                                                                                     \
    {                                                                                              \
        0x16acee90U, 0x3f628fdcU, 0xb7a5357aU, 0xbea56562U                                         \
    }

/* Optimal levels for coordinates of a random unit vector of 128, and what lies half
 * way; 5 bits: of the positive half. */
#define KVQ_C3                                                                                     \
    {                                                                                              \
        -0.190207F, -0.118786F, -0.066822F, -0.021663F, 0.021663F, 0.066822F, 0.118786F, 0.190207F \
    }
#define KVQ_C5                                                                                     \
    {                                                                                              \
        0.00582388F, 0.01750547F, 0.02928998F, 0.04125080F, 0.05346908F, 0.06603809F, 0.07906913F, \
            0.09270022F, 0.10710939F, 0.12253633F, 0.13932019F, 0.15797059F, 0.17931595F,          \
            0.20486116F, 0.23786362F, 0.28821075F                                                  \
    }

/* Codes 0..7, ascending: how many thresholds v reaches. */
KVQ_FN int kvq_code3(float v)
{
    return (v >= -0.154496F) + (v >= -0.092804F) + (v >= -0.044243F) + (v >= 0) + (v >= 0.044243F) +
           (v >= 0.092804F) + (v >= 0.154496F);
}

/* Codes 0..31, ascending. */
KVQ_FN int kvq_code5(float v)
{
    const float c[16] = KVQ_C5;
    const float a = fabsf(v);
    const int up = v >= 0;
    int n = 0;
    for (int i = 0; i < 15; i++) {
        const float half = (c[i] + c[i + 1]) * 0.5F;
        n += up ? a >= half : a > half;
    }
    return up ? 16 + n : 15 - n;
}

/* Exponents of 16 elements that share one, biased by 127, so that a step is a normal
 * fp16 and so is every value: amax lies in [2^E, 2^(E + 1)), a step is 2^(E - bits),
 * bits 6 (8-bit keys) or 2 (4-bit values). */
KVQ_FN int kvq_exponent(float amax, int bits)
{
    uint32_t u = 0;
    memcpy(&u, &amax, sizeof u);
    const int e = (int)(u >> 23 & 255);
    const int low = 127 - 14 + bits, high = 127 + (bits == 6 ? 11 : 13);
    return e < low ? low : e > high ? high : e;
}

/* 2^n of a normal float. */
KVQ_FN float kvq_pow2(int n)
{
    const uint32_t u = (uint32_t)(n + 127) << 23;
    float f = 0;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* -127..127 or -7..7 steps. */
KVQ_FN int kvq_steps(float v, int exponent, int bits)
{
    const float most = bits == 6 ? 127.0F : 7.0F;
    float x = v * kvq_pow2(bits + 127 - exponent);
    x = x > most ? most : x < -most ? -most : x;
    return x == x ? (int)rintf(x) : 0;
}

#endif
