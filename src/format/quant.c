/* Our own weight types: fp32 rows to codes and scales, and back. The loops are
 * written for the vectoriser: no branch inside a group, rounding to nearest
 * even by adding 1.5 * 2^23, bad values found by comparing exponent bits. The
 * caller's blobs may lie at any address, hence the unaligned element types. */
#include "config.h"
#include "format/quant.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Work below this many elements is not worth waking threads for. */
#define PARALLEL_MIN 65536

#define INF_BITS      0x7F800000
#define F16_OVERFLOW  0x477FF000 /* from here on rounds past the largest finite half */
#define BF16_OVERFLOW 0x7F7F8000

typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));

static int32_t bits_of(float x)
{
    int32_t u = 0;
    memcpy(&u, &x, sizeof u);
    return u;
}

static float float_of(int32_t u)
{
    float x = 0;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Bits of the largest magnitude; INF_BITS or more when one is not finite. */
static int32_t max_bits(const float *w, uint64_t n)
{
    int32_t m = 0;
#pragma omp simd reduction(max : m)
    for (uint64_t i = 0; i < n; i++) {
        int32_t u = bits_of(w[i]) & 0x7FFFFFFF;
        m = u > m ? u : m;
    }
    return m;
}

/* w / s rounded to nearest even and clipped to lo..hi; |w / s| < 2^22. */
static void group_codes(const float *w, int n, float s, float lo, float hi, int32_t bias,
                        uint8_t *q)
{
#pragma omp simd
    for (int i = 0; i < n; i++) {
        float x = w[i] / s;
        x = x > hi ? hi : x;
        x = x < lo ? lo : x;
        q[i] = (uint8_t)(bits_of(x + 12582912.0F) - 0x4B400000 + bias);
    }
}

static bool encode_q8(const float *w, uint64_t cols, uint8_t *q, any_u16 *scales)
{
    for (uint64_t g = 0; g < cols / 128; g++, w += 128, q += 128) {
        int32_t m = max_bits(w, 128);
        uint16_t h = f32_to_f16(float_of(m) / 127.0F);
        if (m >= INF_BITS || h >= 0x7C00) {
            return false;
        }
        scales[g] = h;
        if (h == 0) {
            memset(q, 0, 128);
        } else {
            group_codes(w, 128, f16_to_f32(h), -127.0F, 127.0F, 0, q);
        }
    }
    return true;
}

static bool encode_q4(const float *w, uint64_t cols, uint8_t *q, any_u16 *scales)
{
    for (uint64_t g = 0; g < cols / 64; g++, w += 64, q += 32) {
        int32_t m = max_bits(w, 64);
        uint16_t h = f32_to_f16(float_of(m) / 7.0F);
        if (m >= INF_BITS || h >= 0x7C00) {
            return false;
        }
        scales[g] = h;
        if (h == 0) {
            memset(q, 0x88, 32);
            continue;
        }
        uint8_t code[64];
        group_codes(w, 64, f16_to_f32(h), -8.0F, 7.0F, 8, code);
#pragma omp simd
        for (int i = 0; i < 32; i++) {
            q[i] = (uint8_t)(code[2 * i] | code[2 * i + 1] << 4);
        }
    }
    return true;
}

/* The value of f32_to_f16 without its branches; finite input that fits. */
static uint16_t half_of(float x)
{
    int32_t u = bits_of(x);
    int32_t sign = u >> 16 & 0x8000;
    u &= 0x7FFFFFFF;
    int32_t sub = bits_of(float_of(u) + 0.5F) - 0x3F000000;
    int32_t nor = (u + 0xFFF + (u >> 13 & 1) - 0x38000000) >> 13;
    return (uint16_t)(sign | (u < 0x38800000 ? sub : nor));
}

static bool encode_f16(const float *w, uint64_t cols, any_u16 *out)
{
    if (max_bits(w, cols) >= F16_OVERFLOW) {
        return false;
    }
#pragma omp simd
    for (uint64_t i = 0; i < cols; i++) {
        out[i] = half_of(w[i]);
    }
    return true;
}

static bool encode_bf16(const float *w, uint64_t cols, any_u16 *out)
{
    if (max_bits(w, cols) >= BF16_OVERFLOW) {
        return false;
    }
#pragma omp simd
    for (uint64_t i = 0; i < cols; i++) {
        uint32_t u = (uint32_t)bits_of(w[i]);
        out[i] = (uint16_t)((u + 0x7FFFU + (u >> 16 & 1)) >> 16);
    }
    return true;
}

static bool encode_row(enum dtype t, const float *w, uint64_t cols, uint8_t *data, uint8_t *scales)
{
    switch (t) {
    case DT_F32:
        memcpy(data, w, cols * 4);
        return max_bits(w, cols) < INF_BITS;
    case DT_F16:
        return encode_f16(w, cols, (any_u16 *)data);
    case DT_BF16:
        return encode_bf16(w, cols, (any_u16 *)data);
    case DT_Q8_G128:
        return encode_q8(w, cols, data, (any_u16 *)scales);
    case DT_Q4_G64:
        return encode_q4(w, cols, data, (any_u16 *)scales);
    }
    return false;
}

/* Says why encode_row refused this row. */
static int refuse_row(enum dtype t, const float *w, uint64_t row, uint64_t cols, struct err *e)
{
    uint64_t at = 0;
    for (uint64_t c = 0; c < cols; c++) {
        if (!isfinite(w[c])) {
            return err_set(e, QE_FORMAT,
                           "the weight in row %" PRIu64 ", column %" PRIu64
                           " is %s: the source is damaged",
                           row, c, isnan(w[c]) ? "not a number" : "infinite");
        }
        at = fabsf(w[c]) > fabsf(w[at]) ? c : at;
    }
    return err_set(e, QE_FORMAT,
                   "the weight %g in row %" PRIu64 ", column %" PRIu64
                   " is too large for %s: choose a wider type",
                   (double)w[at], row, at, dtype_name(t));
}

void quant_at(enum dtype t, uint64_t row, uint64_t cols, size_t *data, size_t *scales)
{
    uint64_t n = row * cols;
    *scales = dtype_group(t) > 1 ? n / (uint64_t)dtype_group(t) * 2 : 0;
    switch (t) {
    case DT_F32:
        *data = n * 4;
        break;
    case DT_F16:
    case DT_BF16:
        *data = n * 2;
        break;
    case DT_Q8_G128:
        *data = n;
        break;
    case DT_Q4_G64:
        *data = n / 2;
        break;
    }
}

int quant_encode(enum dtype t, const float *src, uint64_t rows, uint64_t cols, void *data,
                 void *scales, struct err *e)
{
    if (!dtype_name(t)) {
        return err_set(e, QE_USAGE, "there is no weight type %d", (int)t);
    }
    if (cols % (uint64_t)dtype_group(t) != 0) {
        return err_set(e, QE_USAGE, "%s needs rows of a multiple of %d weights, not %" PRIu64,
                       dtype_name(t), dtype_group(t), cols);
    }
    size_t row_data = 0;
    size_t row_scales = 0;
    quant_at(t, 1, cols, &row_data, &row_scales);
    rows = cols ? rows : 0;
    uint64_t bad = UINT64_MAX;
#pragma omp parallel for schedule(static)                                                          \
    reduction(min                                                                                  \
              : bad) if (rows > 1 && rows * cols >= PARALLEL_MIN)
    for (uint64_t r = 0; r < rows; r++) {
        uint8_t *s = scales ? (uint8_t *)scales + r * row_scales : NULL;
        if (!encode_row(t, src + r * cols, cols, (uint8_t *)data + r * row_data, s)) {
            bad = r < bad ? r : bad;
        }
    }
    return bad == UINT64_MAX ? 0 : refuse_row(t, src + bad * cols, bad, cols, e);
}

static void decode_f16(const any_u16 *h, uint64_t n, float *dst)
{
#pragma omp simd
    for (uint64_t i = 0; i < n; i++) {
        int32_t mag = (h[i] & 0x7FFF) << 13;
        int32_t sign = (int32_t)((uint32_t)(h[i] & 0x8000) << 16);
        float x = float_of(mag) * 0x1p112F; /* exact, subnormal halves too */
        int32_t u = mag >= 31 << 23 ? mag | INF_BITS : bits_of(x);
        dst[i] = float_of(u | sign);
    }
}

static void decode_bf16(const any_u16 *h, uint64_t n, float *dst)
{
#pragma omp simd
    for (uint64_t i = 0; i < n; i++) {
        dst[i] = float_of((int32_t)((uint32_t)h[i] << 16));
    }
}

static void decode_q8(const int8_t *q, const any_u16 *scales, uint64_t cols, float *dst)
{
    for (uint64_t g = 0; g < cols / 128; g++, q += 128, dst += 128) {
        float s = f16_to_f32(scales[g]);
#pragma omp simd
        for (int i = 0; i < 128; i++) {
            dst[i] = (float)q[i] * s;
        }
    }
}

static void decode_q4(const uint8_t *q, const any_u16 *scales, uint64_t cols, float *dst)
{
    for (uint64_t g = 0; g < cols / 64; g++, q += 32, dst += 64) {
        float s = f16_to_f32(scales[g]);
#pragma omp simd
        for (int i = 0; i < 32; i++) {
            dst[2 * i] = (float)((q[i] & 15) - 8) * s;
            dst[2 * i + 1] = (float)((q[i] >> 4) - 8) * s;
        }
    }
}

void quant_decode(enum dtype t, const void *data, const void *scales, uint64_t rows, uint64_t cols,
                  float *dst)
{
    size_t row_data = 0;
    size_t row_scales = 0;
    quant_at(t, 1, cols, &row_data, &row_scales);
    rows = cols ? rows : 0;
#pragma omp parallel for schedule(static) if (rows > 1 && rows * cols >= PARALLEL_MIN)
    for (uint64_t r = 0; r < rows; r++) {
        const uint8_t *p = (const uint8_t *)data + r * row_data;
        const any_u16 *s =
            scales ? (const any_u16 *)((const uint8_t *)scales + r * row_scales) : NULL;
        float *d = dst + r * cols;
        switch (t) {
        case DT_F32:
            memcpy(d, p, cols * 4);
            break;
        case DT_F16:
            decode_f16((const any_u16 *)p, cols, d);
            break;
        case DT_BF16:
            decode_bf16((const any_u16 *)p, cols, d);
            break;
        case DT_Q8_G128:
            decode_q8((const int8_t *)p, s, cols, d);
            break;
        case DT_Q4_G64:
            decode_q4(p, s, cols, d);
            break;
        }
    }
}
