#ifndef QUASAR_KERNELS_CPU_V16_H
#define QUASAR_KERNELS_CPU_V16_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * Sixteen fp32 lanes: one AVX-512 register, two AVX2 registers, or a plain
 * array. The three agree lane by lane; AVX-512 and AVX2 bit for bit, the array
 * too where the compiler has a fast fmaf (__FP_FAST_FMAF), else its fused
 * multiply-adds round twice. Every file that includes this is compiled once
 * for each instruction set.
 */

#if defined(__AVX512F__)
#include <immintrin.h>
#define V16_TILE 6 /* rows of a register tile four vectors wide */

typedef __m512 v16;

static inline v16 v16_zero(void)
{
    return _mm512_setzero_ps();
}

static inline v16 v16_set1(float x)
{
    return _mm512_set1_ps(x);
}

static inline v16 v16_load(const void *p)
{
    return _mm512_loadu_ps(p);
}

static inline void v16_store(float *p, v16 v)
{
    _mm512_storeu_ps(p, v);
}

/* The first n lanes; the others are zero, and not touched in memory. */
static inline v16 v16_load_part(const void *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1U << n) - 1), p);
}

static inline void v16_store_part(float *p, v16 v, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1U << n) - 1), v);
}

static inline v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}

static inline v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}

static inline v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}

static inline v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}

static inline v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}

static inline v16 v16_round(v16 a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

/* 2^n for whole n in -126..127. */
static inline v16 v16_pow2(v16 n)
{
    __m512i i = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(i, 23));
}

/* v where x >= limit, else zero. */
static inline v16 v16_keep_from(v16 v, v16 x, v16 limit)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_GE_OQ), v);
}

/* The one order in which lanes are added: i + (i + 8), then + 4, + 2, + 1. */
static inline float v16_sum(v16 v)
{
    __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

/* Four sums at once, each in the order of v16_sum. */
static inline void v16_sum4(float out[4], v16 a, v16 b, v16 c, v16 d)
{
    v16 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    v16 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xEE));
    v16 s4 = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xDD));
    v16 s2 = _mm512_add_ps(s4, _mm512_permute_ps(s4, 0x4E));
    v16 s1 = _mm512_add_ps(s2, _mm512_permute_ps(s2, 0xB1));
    _mm_storeu_ps(out, _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, s1)));
}

static inline float v16_maximum(v16 v)
{
    return _mm512_reduce_max_ps(v);
}

static inline v16 v16_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}

static inline void v16_store_f16(void *p, v16 v)
{
    _mm256_storeu_si256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Sixteen E4M3. Its bits in the places of an fp16's are the value times 2^-8. */
static inline v16 v16_load_f8(const void *p)
{
    __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(p));
    __m256i m = _mm256_and_si256(b, _mm256_set1_epi16(0x7F));
    __m256i nan = _mm256_cmpeq_epi16(m, _mm256_set1_epi16(0x7F));
    __m256i sign = _mm256_slli_epi16(_mm256_srli_epi16(b, 7), 15);
    __m256i h = _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(m, 7), sign),
                                _mm256_and_si256(nan, _mm256_set1_epi16(0x7E00)));
    return _mm512_mul_ps(_mm512_cvtph_ps(h), _mm512_set1_ps(256));
}

static inline v16 v16_load_bf16(const void *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p)), 16));
}

static inline v16 v16_load_i8(const void *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}

/* An fp16 scale in all lanes. */
static inline v16 v16_set1_f16(const void *p)
{
    int16_t h = 0;
    memcpy(&h, p, sizeof h);
    return _mm512_cvtph_ps(_mm256_set1_epi16(h));
}

/* What v16_q4 needs to know of a scale: here the sixteen values it gives. */
static inline v16 v16_q4_scale(v16 scale)
{
    return _mm512_mul_ps(_mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7),
                         scale);
}

/* 16 bytes of two codes: the 16 low ones (even elements), the 16 high ones. */
static inline void v16_q4(const void *p, v16 scale, v16 *even, v16 *odd)
{
    __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
    *even = _mm512_permutexvar_ps(b, scale);
    *odd = _mm512_permutexvar_ps(_mm512_srli_epi32(b, 4), scale);
}

#elif defined(__AVX2__)
#include <immintrin.h>
#define V16_TILE 1

typedef struct {
    __m256 a, b;
} v16;

static inline v16 v16_of(__m256 a, __m256 b)
{
    v16 v = {a, b};
    return v;
}

static inline v16 v16_zero(void)
{
    return v16_of(_mm256_setzero_ps(), _mm256_setzero_ps());
}

static inline v16 v16_set1(float x)
{
    return v16_of(_mm256_set1_ps(x), _mm256_set1_ps(x));
}

static inline v16 v16_load(const void *p)
{
    return v16_of(_mm256_loadu_ps(p), _mm256_loadu_ps((const float *)p + 8));
}

static inline void v16_store(float *p, v16 v)
{
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}

static inline v16 v16_load_part(const void *p, int n)
{
    float t[16] = {0};
    memcpy(t, p, (size_t)n * sizeof *t);
    return v16_load(t);
}

static inline void v16_store_part(float *p, v16 v, int n)
{
    float t[16];
    v16_store(t, v);
    memcpy(p, t, (size_t)n * sizeof *t);
}

static inline v16 v16_add(v16 a, v16 b)
{
    return v16_of(_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b));
}

static inline v16 v16_sub(v16 a, v16 b)
{
    return v16_of(_mm256_sub_ps(a.a, b.a), _mm256_sub_ps(a.b, b.b));
}

static inline v16 v16_mul(v16 a, v16 b)
{
    return v16_of(_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b));
}

static inline v16 v16_div(v16 a, v16 b)
{
    return v16_of(_mm256_div_ps(a.a, b.a), _mm256_div_ps(a.b, b.b));
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    return v16_of(_mm256_fmadd_ps(a.a, b.a, c.a), _mm256_fmadd_ps(a.b, b.b, c.b));
}

static inline v16 v16_max(v16 a, v16 b)
{
    return v16_of(_mm256_max_ps(a.a, b.a), _mm256_max_ps(a.b, b.b));
}

static inline v16 v16_min(v16 a, v16 b)
{
    return v16_of(_mm256_min_ps(a.a, b.a), _mm256_min_ps(a.b, b.b));
}

static inline v16 v16_round(v16 a)
{
    return v16_of(_mm256_round_ps(a.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                  _mm256_round_ps(a.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline __m256 v8_pow2(__m256 n)
{
    __m256i i = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(i, 23));
}

static inline v16 v16_pow2(v16 n)
{
    return v16_of(v8_pow2(n.a), v8_pow2(n.b));
}

static inline v16 v16_keep_from(v16 v, v16 x, v16 limit)
{
    return v16_of(_mm256_and_ps(v.a, _mm256_cmp_ps(x.a, limit.a, _CMP_GE_OQ)),
                  _mm256_and_ps(v.b, _mm256_cmp_ps(x.b, limit.b, _CMP_GE_OQ)));
}

static inline float v16_sum(v16 v)
{
    __m256 s8 = _mm256_add_ps(v.a, v.b);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

static inline void v16_sum4(float out[4], v16 a, v16 b, v16 c, v16 d)
{
    __m256 a8 = _mm256_add_ps(a.a, a.b);
    __m256 b8 = _mm256_add_ps(b.a, b.b);
    __m256 c8 = _mm256_add_ps(c.a, c.b);
    __m256 d8 = _mm256_add_ps(d.a, d.b);
    __m256 ab =
        _mm256_add_ps(_mm256_permute2f128_ps(a8, b8, 0x20), _mm256_permute2f128_ps(a8, b8, 0x31));
    __m256 cd =
        _mm256_add_ps(_mm256_permute2f128_ps(c8, d8, 0x20), _mm256_permute2f128_ps(c8, d8, 0x31));
    __m256 s2 = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xEE));
    __m256 s1 = _mm256_add_ps(s2, _mm256_permute_ps(s2, 0xB1)); /* a a c c | b b d d */
    _mm_storeu_ps(out, _mm_blend_ps(_mm256_castps256_ps128(s1), _mm256_extractf128_ps(s1, 1), 0xA));
}

static inline float v16_maximum(v16 v)
{
    __m256 m8 = _mm256_max_ps(v.a, v.b);
    __m128 m4 = _mm_max_ps(_mm256_castps256_ps128(m8), _mm256_extractf128_ps(m8, 1));
    __m128 m2 = _mm_max_ps(m4, _mm_movehl_ps(m4, m4));
    return _mm_cvtss_f32(_mm_max_ss(m2, _mm_movehdup_ps(m2)));
}

static inline v16 v16_load_f16(const void *p)
{
    const __m128i *q = p;
    return v16_of(_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1)));
}

static inline void v16_store_f16(void *p, v16 v)
{
    __m128i *q = p;
    _mm_storeu_si128(q, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline v16 v16_load_f8(const void *p)
{
    __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(p));
    __m256i m = _mm256_and_si256(b, _mm256_set1_epi16(0x7F));
    __m256i nan = _mm256_cmpeq_epi16(m, _mm256_set1_epi16(0x7F));
    __m256i sign = _mm256_slli_epi16(_mm256_srli_epi16(b, 7), 15);
    __m256i h = _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(m, 7), sign),
                                _mm256_and_si256(nan, _mm256_set1_epi16(0x7E00)));
    const __m256 up = _mm256_set1_ps(256);
    return v16_of(_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(h)), up),
                  _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(h, 1)), up));
}

static inline __m256 v8_bf16(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

static inline v16 v16_load_bf16(const void *p)
{
    const __m128i *q = p;
    return v16_of(v8_bf16(_mm_loadu_si128(q)), v8_bf16(_mm_loadu_si128(q + 1)));
}

static inline v16 v16_load_i8(const void *p)
{
    __m128i b = _mm_loadu_si128(p);
    return v16_of(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(b)),
                  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(b, 8))));
}

static inline v16 v16_set1_f16(const void *p)
{
    int16_t h = 0;
    memcpy(&h, p, sizeof h);
    __m256 s = _mm256_cvtph_ps(_mm_set1_epi16(h));
    return v16_of(s, s);
}

static inline v16 v16_q4_scale(v16 scale)
{
    return scale;
}

static inline __m256 v8_q4(__m256i code, __m256 scale)
{
    __m256i c = _mm256_sub_epi32(code, _mm256_set1_epi32(8));
    return _mm256_mul_ps(_mm256_cvtepi32_ps(c), scale);
}

static inline void v16_q4(const void *p, v16 scale, v16 *even, v16 *odd)
{
    __m128i b = _mm_loadu_si128(p);
    __m128i lo = _mm_and_si128(b, _mm_set1_epi8(15));
    __m128i hi = _mm_and_si128(_mm_srli_epi16(b, 4), _mm_set1_epi8(15));
    *even = v16_of(v8_q4(_mm256_cvtepu8_epi32(lo), scale.a),
                   v8_q4(_mm256_cvtepu8_epi32(_mm_srli_si128(lo, 8)), scale.b));
    *odd = v16_of(v8_q4(_mm256_cvtepu8_epi32(hi), scale.a),
                  v8_q4(_mm256_cvtepu8_epi32(_mm_srli_si128(hi, 8)), scale.b));
}

#else
#include <math.h>

#include "base/dtype.h"
#define V16_TILE 1

typedef struct {
    float f[16];
} v16;

static inline v16 v16_set1(float x)
{
    v16 r;
    for (int i = 0; i < 16; i++) {
        r.f[i] = x;
    }
    return r;
}

static inline v16 v16_zero(void)
{
    return v16_set1(0);
}

static inline v16 v16_load(const void *p)
{
    v16 r;
    memcpy(r.f, p, sizeof r.f);
    return r;
}

static inline void v16_store(float *p, v16 v)
{
    memcpy(p, v.f, sizeof v.f);
}

static inline v16 v16_load_part(const void *p, int n)
{
    v16 r = v16_zero();
    memcpy(r.f, p, (size_t)n * sizeof r.f[0]);
    return r;
}

static inline void v16_store_part(float *p, v16 v, int n)
{
    memcpy(p, v.f, (size_t)n * sizeof v.f[0]);
}

static inline v16 v16_add(v16 a, v16 b)
{
    for (int i = 0; i < 16; i++) {
        a.f[i] += b.f[i];
    }
    return a;
}

static inline v16 v16_sub(v16 a, v16 b)
{
    for (int i = 0; i < 16; i++) {
        a.f[i] -= b.f[i];
    }
    return a;
}

static inline v16 v16_mul(v16 a, v16 b)
{
    for (int i = 0; i < 16; i++) {
        a.f[i] *= b.f[i];
    }
    return a;
}

static inline v16 v16_div(v16 a, v16 b)
{
    for (int i = 0; i < 16; i++) {
        a.f[i] /= b.f[i];
    }
    return a;
}

static inline v16 v16_fma(v16 a, v16 b, v16 c)
{
    for (int i = 0; i < 16; i++) {
#ifdef __FP_FAST_FMAF
        c.f[i] = fmaf(a.f[i], b.f[i], c.f[i]);
#else
        c.f[i] = a.f[i] * b.f[i] + c.f[i];
#endif
    }
    return c;
}

static inline v16 v16_max(v16 a, v16 b)
{
    for (int i = 0; i < 16; i++) {
        a.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i];
    }
    return a;
}

static inline v16 v16_min(v16 a, v16 b)
{
    for (int i = 0; i < 16; i++) {
        a.f[i] = a.f[i] < b.f[i] ? a.f[i] : b.f[i];
    }
    return a;
}

static inline v16 v16_round(v16 a)
{
    for (int i = 0; i < 16; i++) {
        a.f[i] = rintf(a.f[i]);
    }
    return a;
}

static inline v16 v16_pow2(v16 n)
{
    for (int i = 0; i < 16; i++) {
        uint32_t u = (uint32_t)((int32_t)n.f[i] + 127) << 23;
        memcpy(&n.f[i], &u, sizeof u);
    }
    return n;
}

static inline v16 v16_keep_from(v16 v, v16 x, v16 limit)
{
    for (int i = 0; i < 16; i++) {
        v.f[i] = x.f[i] >= limit.f[i] ? v.f[i] : 0;
    }
    return v;
}

static inline float v16_sum(v16 v)
{
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            v.f[i] += v.f[i + half];
        }
    }
    return v.f[0];
}

static inline void v16_sum4(float out[4], v16 a, v16 b, v16 c, v16 d)
{
    out[0] = v16_sum(a);
    out[1] = v16_sum(b);
    out[2] = v16_sum(c);
    out[3] = v16_sum(d);
}

static inline float v16_maximum(v16 v)
{
    float m = v.f[0];
    for (int i = 1; i < 16; i++) {
        m = v.f[i] > m ? v.f[i] : m;
    }
    return m;
}

static inline v16 v16_load_f16(const void *p)
{
    uint16_t h[16];
    v16 r;
    memcpy(h, p, sizeof h);
    for (int i = 0; i < 16; i++) {
        r.f[i] = f16_to_f32(h[i]);
    }
    return r;
}

static inline void v16_store_f16(void *p, v16 v)
{
    uint16_t h[16];
    for (int i = 0; i < 16; i++) {
        h[i] = f32_to_f16(v.f[i]);
    }
    memcpy(p, h, sizeof h);
}

static inline v16 v16_load_f8(const void *p)
{
    uint8_t b[16];
    v16 r;
    memcpy(b, p, sizeof b);
    for (int i = 0; i < 16; i++) {
        r.f[i] = f8_to_f32(b[i]);
    }
    return r;
}

static inline v16 v16_load_bf16(const void *p)
{
    uint16_t h[16];
    v16 r;
    memcpy(h, p, sizeof h);
    for (int i = 0; i < 16; i++) {
        r.f[i] = bf16_to_f32(h[i]);
    }
    return r;
}

static inline v16 v16_load_i8(const void *p)
{
    int8_t c[16];
    v16 r;
    memcpy(c, p, sizeof c);
    for (int i = 0; i < 16; i++) {
        r.f[i] = c[i];
    }
    return r;
}

static inline v16 v16_set1_f16(const void *p)
{
    uint16_t h = 0;
    memcpy(&h, p, sizeof h);
    return v16_set1(f16_to_f32(h));
}

static inline v16 v16_q4_scale(v16 scale)
{
    return scale;
}

static inline void v16_q4(const void *p, v16 scale, v16 *even, v16 *odd)
{
    uint8_t c[16];
    memcpy(c, p, sizeof c);
    for (int i = 0; i < 16; i++) {
        even->f[i] = (float)((c[i] & 15) - 8) * scale.f[i];
        odd->f[i] = (float)((c[i] >> 4) - 8) * scale.f[i];
    }
}
#endif

/* exp, relative error below 2e-7 between the limits; 0 below -87.3, clamped
 * above 88.3. Argument reduction by ln 2 in two parts and a polynomial, the
 * same in every lane. exp(0) is 1 exactly. */
static inline v16 v16_exp(v16 x)
{
    const v16 low = v16_set1(-87.3F);
    v16 c = v16_min(v16_max(x, low), v16_set1(88.3F));
    v16 n = v16_round(v16_mul(c, v16_set1(1.44269504F)));
    v16 r = v16_fma(n, v16_set1(-0.693359375F), c);
    r = v16_fma(n, v16_set1(2.12194440e-4F), r);
    v16 p = v16_set1(1.9875691500e-4F);
    p = v16_fma(p, r, v16_set1(1.3981999507e-3F));
    p = v16_fma(p, r, v16_set1(8.3334519073e-3F));
    p = v16_fma(p, r, v16_set1(4.1665795894e-2F));
    p = v16_fma(p, r, v16_set1(1.6666665459e-1F));
    p = v16_fma(p, r, v16_set1(5.0000001201e-1F));
    p = v16_add(v16_fma(p, v16_mul(r, r), r), v16_set1(1));
    return v16_keep_from(v16_mul(p, v16_pow2(n)), x, low);
}

static inline v16 v16_sigmoid(v16 x)
{
    const v16 one = v16_set1(1);
    return v16_div(one, v16_add(one, v16_exp(v16_sub(v16_zero(), x))));
}

static inline v16 v16_silu(v16 x)
{
    return v16_div(x, v16_add(v16_set1(1), v16_exp(v16_sub(v16_zero(), x))));
}

#endif
