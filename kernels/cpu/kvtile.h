#ifndef QUASAR_KERNELS_CPU_KVTILE_H
#define QUASAR_KERNELS_CPU_KVTILE_H

#include "kernels/cpu/tile.h"
#include "kernels/kvq.h"
#include "kernels/kvq_math.h"

/*
 * Rows of packed keys or values as fp32, sixteen elements at a time. What a row becomes
 * does not depend on the others.
 */

/* Levels of sixteen codes: two low bits each in lo, their third bit in hi. */
#if defined(__AVX512F__)
ALWAYS_INLINE v16 kv_levels3(uint32_t lo, uint16_t hi)
{
    const __m512 t = _mm512_setr_ps(-0.190207F, -0.118786F, -0.066822F, -0.021663F, 0.021663F,
                                    0.066822F, 0.118786F, 0.190207F, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m512i at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i c = _mm512_srlv_epi32(_mm512_set1_epi32((int)lo), at);
    c = _mm512_and_si512(c, _mm512_set1_epi32(3));
    c = _mm512_mask_or_epi32(c, hi, c, _mm512_set1_epi32(4));
    return _mm512_permutexvar_ps(c, t);
}

/* Four low bits each in the words a (the first eight) and b. */
ALWAYS_INLINE v16 kv_levels5(uint32_t a, uint32_t b, uint16_t hi)
{
    const float c5[16] = KVQ_C5;
    const __m512 t = _mm512_loadu_ps(c5);
    const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i w = _mm512_mask_set1_epi32(_mm512_set1_epi32((int)a), 0xFF00, (int)b);
    __m512i c = _mm512_srlv_epi32(w, at);
    /* The lower half of the levels is the upper one mirrored. */
    const __mmask16 down = (__mmask16)~hi;
    c = _mm512_mask_xor_epi32(c, down, c, _mm512_set1_epi32(15));
    const __m512 v = _mm512_permutexvar_ps(c, t);
    return _mm512_mask_xor_ps(v, down, v, _mm512_set1_ps(-0.0F));
}

/* Low (high: shift 4) halves of sixteen bytes less 8. */
ALWAYS_INLINE v16 kv_steps4(const uint8_t *p, int shift)
{
    __m512i c = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
    c = _mm512_and_si512(_mm512_srl_epi32(c, _mm_cvtsi32_si128(shift)), _mm512_set1_epi32(15));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(c, _mm512_set1_epi32(8)));
}

#elif defined(__AVX2__)
ALWAYS_INLINE __m256 kv_half3(uint32_t lo, uint32_t hi)
{
    const __m256 t = _mm256_setr_ps(-0.190207F, -0.118786F, -0.066822F, -0.021663F, 0.021663F,
                                    0.066822F, 0.118786F, 0.190207F);
    const __m256i at = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i c = _mm256_srlv_epi32(_mm256_set1_epi32((int)lo), at);
    c = _mm256_and_si256(c, _mm256_set1_epi32(3));
    __m256i h = _mm256_and_si256(_mm256_set1_epi32((int)hi), bit);
    h = _mm256_and_si256(_mm256_cmpeq_epi32(h, bit), _mm256_set1_epi32(4));
    return _mm256_permutevar8x32_ps(t, _mm256_or_si256(c, h));
}

ALWAYS_INLINE v16 kv_levels3(uint32_t lo, uint16_t hi)
{
    return v16_of(kv_half3(lo, hi), kv_half3(lo >> 16, (uint32_t)hi >> 8));
}

ALWAYS_INLINE __m256 kv_half5(uint32_t w, uint32_t hi)
{
    const float c5[16] = KVQ_C5;
    const __m256i at = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i h = _mm256_and_si256(_mm256_set1_epi32((int)hi), bit);
    const __m256i down = _mm256_cmpeq_epi32(h, _mm256_setzero_si256());
    __m256i c = _mm256_srlv_epi32(_mm256_set1_epi32((int)w), at);
    c = _mm256_xor_si256(c, down); /* mirrored; bits from 4 on do not matter */
    const __m256 a = _mm256_permutevar8x32_ps(_mm256_loadu_ps(c5), c);
    const __m256 b = _mm256_permutevar8x32_ps(_mm256_loadu_ps(c5 + 8), c);
    const __m256 v = _mm256_blendv_ps(a, b, _mm256_castsi256_ps(_mm256_slli_epi32(c, 28)));
    return _mm256_xor_ps(v, _mm256_and_ps(_mm256_castsi256_ps(down), _mm256_set1_ps(-0.0F)));
}

ALWAYS_INLINE v16 kv_levels5(uint32_t a, uint32_t b, uint16_t hi)
{
    return v16_of(kv_half5(a, hi), kv_half5(b, (uint32_t)hi >> 8));
}

ALWAYS_INLINE v16 kv_steps4(const uint8_t *p, int shift)
{
    const __m128i b = _mm_loadu_si128((const __m128i *)p);
    const __m128i c = _mm_and_si128(_mm_srl_epi16(b, _mm_cvtsi32_si128(shift)), _mm_set1_epi8(15));
    const __m128i s = _mm_sub_epi8(c, _mm_set1_epi8(8));
    return v16_of(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(s)),
                  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(s, 8))));
}

#else
ALWAYS_INLINE v16 kv_levels3(uint32_t lo, uint16_t hi)
{
    const float c3[8] = KVQ_C3;
    v16 r;
    for (int i = 0; i < 16; i++) {
        r.f[i] = c3[(lo >> 2 * i & 3) | (hi >> i & 1U) << 2];
    }
    return r;
}

ALWAYS_INLINE v16 kv_levels5(uint32_t a, uint32_t b, uint16_t hi)
{
    const float c5[16] = KVQ_C5;
    v16 r;
    for (int i = 0; i < 16; i++) {
        const uint32_t c = (i < 8 ? a : b) >> 4 * (i % 8) & 15;
        r.f[i] = hi >> i & 1 ? c5[c] : -c5[15 - c];
    }
    return r;
}

ALWAYS_INLINE v16 kv_steps4(const uint8_t *p, int shift)
{
    v16 r;
    for (int i = 0; i < 16; i++) {
        r.f[i] = (float)((p[i] >> shift & 15) - 8);
    }
    return r;
}
#endif

ALWAYS_INLINE uint32_t kv_word(const uint8_t *p)
{
    uint32_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

ALWAYS_INLINE uint16_t kv_short(const uint8_t *p)
{
    uint16_t w;
    memcpy(&w, p, sizeof w);
    return w;
}

/* Elements 16 s .. 16 s + 15 of a row. */
ALWAYS_INLINE v16 kv_load(const enum kvq_kind k, const uint8_t *row, int s)
{
    const uint8_t *half = row + s / 8 * (k == KVQ_T3 ? KVQ_T3_HALF : KVQ_T5_HALF);
    const int j = s % 8;
    switch (k) {
    case KVQ_T3:
        return v16_mul(kv_levels3(kv_word(half + 2 + 4 * j), kv_short(half + 34 + 2 * j)),
                       v16_set1_f16(half));
    case KVQ_T5:
        return v16_mul(kv_levels5(kv_word(half + 2 + 8 * j), kv_word(half + 6 + 8 * j),
                                  kv_short(half + 66 + 2 * j)),
                       v16_set1_f16(half));
    case KVQ_B8:
        return v16_mul(v16_load_i8(row + 16 * s), v16_set1(kvq_pow2(row[256 + s] - 127 - 6)));
    case KVQ_B4:
        return v16_mul(kv_steps4(row + s / 2 * 16, s % 2 * 4),
                       v16_set1(kvq_pow2(row[128 + s] - 127 - 2)));
    case KVQ_F32:
    case KVQ_F16:
    case KVQ_F8:
        break;
    }
    return v16_zero();
}

/* n rows of 256. */
ALWAYS_INLINE void kv_expand(const enum kvq_kind k, const uint8_t *rows, int n, float *out)
{
    const size_t bytes = kvq_row_bytes(k);
    for (int i = 0; i < n; i++) {
        for (int s = 0; s < BE_HEAD_DIM / 16; s++) {
            v16_store(out + i * BE_HEAD_DIM + 16 * s, kv_load(k, rows + (size_t)i * bytes, s));
        }
    }
}

#endif
