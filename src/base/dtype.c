/* Weight formats: names, sizes, and the scalar conversions. */
#include "config.h"
#include "base/dtype.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

const char *dtype_name(enum dtype t)
{
    switch (t) {
    case DT_F32:
        return "f32";
    case DT_F16:
        return "f16";
    case DT_Q8_G128:
        return "q8_g128";
    case DT_Q4_G64:
        return "q4_g64";
    case DT_BF16:
        return "bf16";
    }
    return NULL;
}

int dtype_group(enum dtype t)
{
    return t == DT_Q8_G128 ? 128 : t == DT_Q4_G64 ? 64 : 1;
}

int dtype_sizes(enum dtype t, uint64_t rows, uint64_t cols, size_t *data, size_t *scales)
{
    size_t n = 0;
    uint64_t group = (uint64_t)dtype_group(t);
    if (cols % group != 0 || !arr_size(rows, cols, &n)) {
        return -1;
    }
    size_t bytes = n;
    size_t extra = group > 1 ? n / group * 2 : 0;
    switch (t) {
    case DT_F32:
        if (!arr_size(n, 4, &bytes)) {
            return -1;
        }
        break;
    case DT_F16:
    case DT_BF16:
        if (!arr_size(n, 2, &bytes)) {
            return -1;
        }
        break;
    case DT_Q8_G128:
        break;
    case DT_Q4_G64:
        bytes = n / 2;
        break;
    }
    *data = bytes;
    *scales = extra;
    return 0;
}

uint64_t tensor_rows(const struct tensor *t)
{
    uint64_t n = 1;
    for (int i = 0; i + 1 < t->n_dims; i++) {
        n *= t->shape[i];
    }
    return n;
}

uint64_t tensor_cols(const struct tensor *t)
{
    return t->n_dims > 0 ? t->shape[t->n_dims - 1] : 1;
}

static float bits_to_float(uint32_t u)
{
    float f = 0;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t float_to_bits(float f)
{
    uint32_t u = 0;
    memcpy(&u, &f, sizeof u);
    return u;
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000U) << 16;
    uint32_t exp = h >> 10 & 31;
    uint32_t man = h & 0x3FFU;
    if (exp == 31) {
        return bits_to_float(sign | 0x7F800000U | man << 13);
    }
    if (exp == 0) {
        float f = (float)man * 0x1p-24F;
        return sign ? -f : f;
    }
    return bits_to_float(sign | (exp + 112) << 23 | man << 13);
}

uint16_t f32_to_f16(float x)
{
    uint32_t u = float_to_bits(x);
    uint32_t sign = u >> 16 & 0x8000U;
    u &= 0x7FFFFFFFU;
    if (u > 0x7F800000U) {
        return (uint16_t)(sign | 0x7E00U);
    }
    if (u >= 0x477FF000U) { /* rounds past the largest finite half */
        return (uint16_t)(sign | 0x7C00U);
    }
    if (u < 0x38800000U) { /* subnormal half: let the fp32 adder round */
        float f = bits_to_float(u) + 0.5F;
        return (uint16_t)(sign | (float_to_bits(f) - 0x3F000000U));
    }
    u += 0xFFFU + (u >> 13 & 1);
    return (uint16_t)(sign | (u - 0x38000000U) >> 13);
}

float bf16_to_f32(uint16_t h)
{
    return bits_to_float((uint32_t)h << 16);
}

uint16_t f32_to_bf16(float x)
{
    uint32_t u = float_to_bits(x);
    if ((u & 0x7FFFFFFFU) > 0x7F800000U) {
        return (uint16_t)(u >> 16 | 0x40U);
    }
    return (uint16_t)((u + 0x7FFFU + (u >> 16 & 1)) >> 16);
}

float f8_to_f32(uint8_t h)
{
    const int e = h >> 3 & 15, m = h & 7;
    const float sign = h & 0x80 ? -1 : 1;
    if (e == 15 && m == 7) {
        return NAN;
    }
    return sign * (e == 0 ? ldexpf((float)m, -9) : ldexpf((float)(8 + m), e - 10));
}

uint8_t f32_to_f8(float x)
{
    const uint8_t sign = signbit(x) ? 0x80 : 0;
    const float a = fabsf(x);
    if (isnan(x)) {
        return sign | 0x7F;
    }
    if (a >= 448) {
        return sign | 0x7E;
    }
    int e = -6; /* of the smallest normal number, which subnormals share */
    if (a >= 0x1p-6F) {
        frexpf(a, &e);
        e--;
    }
    int m = (int)rintf(ldexpf(a, 3 - e)); /* nearest even; 0..16, from 8 on normal */
    if (m == 16) {
        m = 8;
        e++;
    }
    const int code = m < 8 ? m : (e + 7) << 3 | (m & 7);
    return (uint8_t)(sign | (code < 0x7E ? code : 0x7E));
}
