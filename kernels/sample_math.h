#ifndef QUASAR_KERNELS_SAMPLE_MATH_H
#define QUASAR_KERNELS_SAMPLE_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/philox.h"
#include "kernels/backend.h"

/*
 * The arithmetic of drawing a token, for C and for CUDA: the same source, every
 * operation rounded by itself, so that both give the same bits. Nothing here calls
 * a library's exp or log.
 *
 * Masses are integers. x * log2(e) is rounded once to a multiple of 2^-30; its
 * whole part is the token's octave, and of the rest 2^rest is taken with 32 bits.
 * Masses of one octave add exactly, in any order; the sum is then shifted to the
 * scale of the likeliest token's octave.
 */
#ifdef __CUDACC__
#define SM_FN static __host__ __device__ __forceinline__
#else
#define SM_FN static inline
#endif

/* One rounding each: a compiler for the device would fuse a product and a sum. */
#ifdef __CUDA_ARCH__
#define SM_MUL(a, b)  __fmul_rn(a, b)
#define SM_ADD(a, b)  __fadd_rn(a, b)
#define SM_DIV(a, b)  __fdiv_rn(a, b)
#define SM_DMUL(a, b) __dmul_rn(a, b)
#define SM_DADD(a, b) __dadd_rn(a, b)
#else
#define SM_MUL(a, b)  ((a) * (b))
#define SM_ADD(a, b)  ((a) + (b))
#define SM_DIV(a, b)  ((a) / (b))
#define SM_DMUL(a, b) ((a) * (b))
#define SM_DADD(a, b) ((a) + (b))
#endif

#define SM_GREEDY_BELOW 1e-5F
#define SM_COLDEST      0.01F

#define SM_OCTAVES 64 /* below the likeliest token; what lies deeper has no mass */

SM_FN uint32_t sm_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

SM_FN float sm_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* ---- logits ---- */

/* A raw logit as the edit leaves it. */
SM_FN float sm_edit(float l, const struct be_edit *x, float repetition, float frequency,
                    float presence)
{
    if (x->flags & BE_BAN) {
        return -INFINITY;
    }
    l = SM_ADD(l, x->bias);
    if (x->flags & BE_SEEN) {
        l = l > 0 ? SM_DIV(l, repetition) : SM_MUL(l, repetition);
    }
    l = SM_ADD(l, -SM_MUL(frequency, (float)x->count));
    return x->count > 0 ? SM_ADD(l, -presence) : l;
}

/* Divided by the temperature; what is no number can not be drawn. */
SM_FN float sm_scale(float l, float temp)
{
    float x = SM_ADD(SM_DIV(l, temp), 0.0F); /* one zero */
    return x == x ? x : -INFINITY;
}

/* The divisor: 1 where drawing is greedy. */
SM_FN float sm_temp(float temp)
{
    return temp < SM_GREEDY_BELOW ? 1.0F : temp < SM_COLDEST ? SM_COLDEST : temp;
}

/* ---- noise ---- */

/* ln x of a positive, normal x, within 2 ulp. */
SM_FN float sm_log(float x)
{
    const uint32_t u = sm_bits(x) - 0x3F3504F3U; /* sqrt(1/2) */
    const float e = (float)((int32_t)u >> 23);
    const float f = SM_ADD(sm_float((u & 0x7FFFFFU) + 0x3F3504F3U), -1.0F);
    float p = -0.07859612601044388F;
    p = SM_ADD(SM_MUL(p, f), 0.12881641247845846F);
    p = SM_ADD(SM_MUL(p, f), -0.13128751621398124F);
    p = SM_ADD(SM_MUL(p, f), 0.14181192898271416F);
    p = SM_ADD(SM_MUL(p, f), -0.16624554508132736F);
    p = SM_ADD(SM_MUL(p, f), 0.20002286228046767F);
    p = SM_ADD(SM_MUL(p, f), -0.25000810388277944F);
    p = SM_ADD(SM_MUL(p, f), 0.3333331672659808F);
    const float s = SM_MUL(f, f);
    p = SM_ADD(SM_MUL(SM_MUL(p, f), s), SM_MUL(s, -0.5F));
    /* ln 2 in two parts, the first with few enough bits to be exact times e. */
    p = SM_ADD(p, SM_MUL(e, -2.12194440e-4F));
    return SM_ADD(SM_ADD(p, f), SM_MUL(e, 0.693359375F));
}

/* Gumbel noise of a word: v = min((w + 1/2) / 2^32, 1 - 2^-24), -ln(-ln(1 - v)). */
SM_FN float sm_gumbel(uint32_t w)
{
    float v = SM_MUL(SM_ADD((float)w, 0.5F), 0x1p-32F);
    v = v < 1.0F - 0x1p-24F ? v : 1.0F - 0x1p-24F;
    const float u = SM_ADD(1.0F, -v);
    const float lost = SM_ADD(SM_ADD(1.0F, -u), -v); /* v as rounded into u, less v */
    return -sm_log(SM_ADD(-sm_log(u), -SM_DIV(lost, u)));
}

/* No noise is larger. */
#define SM_GUMBEL_MAX 22.9F

/* No noise of this word is larger; cheap. */
SM_FN float sm_gumbel_bound(uint32_t w)
{
    const int32_t e = (int32_t)(sm_bits((float)(w | 1)) >> 23) - 127; /* w >= 2^e, nearly */
    return SM_MUL((float)(33 - e - (w == 0 ? 0 : 1)), 0.6932F);
}

/* ---- masses ---- */

/* x * log2(e) in units of 2^-30. */
SM_FN int64_t sm_power(float x)
{
    x = x < 0x1p20F ? x : 0x1p20F;
    x = x > -0x1p20F ? x : -0x1p20F;
    /* Adding 1.5 * 2^52 leaves the nearest integer in the low bits. */
    const double d = SM_DADD(SM_DMUL((double)x, 0x1.71547652b82fep+30), 0x1.8p52);
    int64_t y;
    memcpy(&y, &d, sizeof y);
    return y - 0x4338000000000000;
}

SM_FN int32_t sm_octave(int64_t power)
{
    return (int32_t)(power >> 30);
}

#ifdef __CUDA_ARCH__
#define SM_MULHI(a, b) __umulhi(a, b)
#else
#define SM_MULHI(a, b) ((uint32_t)((uint64_t)(a) * (b) >> 32))
#endif

/* 2^32 * 2^(power within its octave), 2^32 up to 2^33. */
SM_FN uint64_t sm_mass(int64_t power)
{
    const uint32_t f = (uint32_t)power << 2;
    uint32_t p = 92247U;
    p = 616897U + SM_MULHI(p, f);
    p = 5764057U + SM_MULHI(p, f);
    p = 41292765U + SM_MULHI(p, f);
    p = 238392277U + SM_MULHI(p, f);
    p = 1031764567U + SM_MULHI(p, f);
    p = 2977044486U + SM_MULHI(p, f);
    return ((uint64_t)1 << 32) + SM_MULHI(p, f);
}

/* The mass of an octave that lies `below` under the likeliest token's, from the sum of
 * its tokens' masses, on the common scale. */
SM_FN uint64_t sm_shift(uint64_t sum, int below)
{
    return below < SM_OCTAVES ? (sum << 11) >> below : 0;
}

/* Tokens stay while the mass ranked above them is less than this. */
SM_FN uint64_t sm_limit(uint64_t total, float top_p)
{
    const double limit = SM_DMUL((double)total, (double)top_p);
    const uint64_t whole = (uint64_t)limit;
    return whole + ((double)whole < limit || whole == 0);
}

#endif
