/* The block types of GGUF: decode to fp32, and the exact crossing between Q8_0
 * or Q4_0 blocks and our own groups. Blocks have odd sizes, so that nothing in
 * them is aligned. */
#include "config.h"
#include "format/quant.h"

#include <inttypes.h>
#include <string.h>

#define PARALLEL_MIN 65536

typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));

static const struct {
    uint32_t type;
    const char *name;
    uint32_t elems;
    uint32_t bytes;
} types[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
};

bool gguf_type_info(uint32_t type, const char **name, uint32_t *elems, uint32_t *bytes)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].type != type) {
            continue;
        }
        if (name) {
            *name = types[i].name;
        }
        if (elems) {
            *elems = types[i].elems;
        }
        if (bytes) {
            *bytes = types[i].bytes;
        }
        return true;
    }
    return false;
}

bool gguf_type_decodable(uint32_t type)
{
    switch (type) {
    case GGUF_F32:
    case GGUF_F16:
    case GGUF_BF16:
    case GGUF_Q4_0:
    case GGUF_Q8_0:
    case GGUF_Q4_K:
    case GGUF_Q5_K:
    case GGUF_Q6_K:
        return true;
    default:
        return false;
    }
}

static float half_at(const uint8_t *p)
{
    return f16_to_f32(*(const any_u16 *)p);
}

static void decode_q8_0(const uint8_t *b, float *y)
{
    float d = half_at(b);
    const int8_t *q = (const int8_t *)b + 2;
#pragma omp simd
    for (int i = 0; i < 32; i++) {
        y[i] = (float)q[i] * d;
    }
}

static void decode_q4_0(const uint8_t *b, float *y)
{
    float d = half_at(b);
    const uint8_t *q = b + 2;
#pragma omp simd
    for (int i = 0; i < 16; i++) {
        y[i] = (float)((q[i] & 15) - 8) * d;
        y[i + 16] = (float)((q[i] >> 4) - 8) * d;
    }
}

/* The 6-bit scale and minimum of sub-block j out of twelve packed bytes. */
static void k_scale_min(const uint8_t *s, int j, float d, float dmin, float *scale, float *min)
{
    int sc = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    int mn = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    *scale = d * (float)sc;
    *min = dmin * (float)mn;
}

/* Q4_K, and Q5_K when qh holds the fifth bits. */
static void decode_k45(const uint8_t *b, const uint8_t *qh, const uint8_t *q, float *y)
{
    float d = half_at(b);
    float dmin = half_at(b + 2);
    for (int c = 0; c < 4; c++, q += 32, y += 64) {
        float s0 = 0;
        float m0 = 0;
        float s1 = 0;
        float m1 = 0;
        k_scale_min(b + 4, 2 * c, d, dmin, &s0, &m0);
        k_scale_min(b + 4, 2 * c + 1, d, dmin, &s1, &m1);
#pragma omp simd
        for (int l = 0; l < 32; l++) {
            int h = qh ? qh[l] >> 2 * c : 0;
            y[l] = s0 * (float)((q[l] & 15) | (h & 1) << 4) - m0;
            y[l + 32] = s1 * (float)((q[l] >> 4) | (h & 2) << 3) - m1;
        }
    }
}

static void decode_q6_k(const uint8_t *b, float *y)
{
    float d = half_at(b + 208);
    for (int n = 0; n < 2; n++, y += 128) {
        const uint8_t *ql = b + 64 * n;
        const uint8_t *qh = b + 128 + 32 * n;
        const int8_t *sc = (const int8_t *)b + 192 + 8 * n;
        for (int half = 0; half < 2; half++) {
            float s0 = d * (float)sc[half];
            float s1 = d * (float)sc[half + 2];
            float s2 = d * (float)sc[half + 4];
            float s3 = d * (float)sc[half + 6];
#pragma omp simd
            for (int l = 16 * half; l < 16 * half + 16; l++) {
                y[l] = s0 * (float)(((ql[l] & 15) | (qh[l] & 3) << 4) - 32);
                y[l + 32] = s1 * (float)(((ql[l + 32] & 15) | (qh[l] >> 2 & 3) << 4) - 32);
                y[l + 64] = s2 * (float)(((ql[l] >> 4) | (qh[l] >> 4 & 3) << 4) - 32);
                y[l + 96] = s3 * (float)(((ql[l + 32] >> 4) | (qh[l] >> 6) << 4) - 32);
            }
        }
    }
}

int quant_decode_gguf(uint32_t type, const void *data, uint64_t n, float *dst, struct err *e)
{
    const char *name = "";
    uint32_t elems = 1;
    uint32_t bytes = 1;
    if (!gguf_type_info(type, &name, &elems, &bytes)) {
        return err_set(e, QE_UNSUPPORTED, "there is no block type %" PRIu32, type);
    }
    if (n % elems != 0) {
        return err_set(e, QE_FORMAT, "%" PRIu64 " elements are no whole blocks of %s", n, name);
    }
    const uint8_t *p = data;
    uint64_t blocks = n / elems;
    switch (type) {
    case GGUF_F32:
        quant_decode(DT_F32, p, NULL, 1, n, dst);
        return 0;
    case GGUF_F16:
        quant_decode(DT_F16, p, NULL, 1, n, dst);
        return 0;
    case GGUF_BF16:
        quant_decode(DT_BF16, p, NULL, 1, n, dst);
        return 0;
    case GGUF_Q4_0:
    case GGUF_Q8_0:
    case GGUF_Q4_K:
    case GGUF_Q5_K:
    case GGUF_Q6_K:
        break;
    default:
        return err_set(e, QE_UNSUPPORTED, "the block type %s is not decoded here", name);
    }
#pragma omp parallel for schedule(static) if (n >= PARALLEL_MIN)
    for (uint64_t i = 0; i < blocks; i++) {
        const uint8_t *b = p + i * bytes;
        float *y = dst + i * elems;
        switch (type) {
        case GGUF_Q8_0:
            decode_q8_0(b, y);
            break;
        case GGUF_Q4_0:
            decode_q4_0(b, y);
            break;
        case GGUF_Q4_K:
            decode_k45(b, NULL, b + 16, y);
            break;
        case GGUF_Q5_K:
            decode_k45(b, b + 16, b + 48, y);
            break;
        default:
            decode_q6_k(b, y);
            break;
        }
    }
    return 0;
}

enum gguf_type quant_gguf_type(enum dtype t)
{
    switch (t) {
    case DT_F32:
        break;
    case DT_F16:
        return GGUF_F16;
    case DT_BF16:
        return GGUF_BF16;
    case DT_Q8_G128:
        return GGUF_Q8_0;
    case DT_Q4_G64:
        return GGUF_Q4_0;
    }
    return GGUF_F32;
}

void quant_to_gguf(enum dtype t, const void *data, const void *scales, uint64_t rows, uint64_t cols,
                   void *blocks)
{
    const uint8_t *q = data;
    const any_u16 *s = scales;
    uint8_t *b = blocks;
    uint64_t n = rows * cols;
    if (t == DT_Q8_G128) {
#pragma omp parallel for schedule(static) if (n >= PARALLEL_MIN)
        for (uint64_t i = 0; i < n / 32; i++) {
            *(any_u16 *)(b + i * 34) = s[i / 4];
            memcpy(b + i * 34 + 2, q + i * 32, 32);
        }
    } else if (t == DT_Q4_G64) {
        /* theirs pairs element l with l + 16, ours 2l with 2l + 1 */
#pragma omp parallel for schedule(static) if (n >= PARALLEL_MIN)
        for (uint64_t i = 0; i < n / 32; i++) {
            const uint8_t *from = q + i * 16;
            uint8_t *to = b + i * 18;
            *(any_u16 *)to = s[i / 2];
            for (int l = 0; l < 8; l++) {
                to[2 + 2 * l] = (uint8_t)((from[l] & 15) | (from[l + 8] & 15) << 4);
                to[3 + 2 * l] = (uint8_t)(from[l] >> 4 | (from[l + 8] & 0xF0));
            }
        }
    } else {
        size_t bytes = 0;
        size_t none = 0;
        quant_at(t, rows, cols, &bytes, &none);
        memcpy(b, q, bytes);
    }
}

bool quant_gguf_shared(uint32_t type, const void *blocks, uint64_t rows, uint64_t cols,
                       enum dtype *t)
{
    const uint8_t *b = blocks;
    uint64_t n = rows * cols;
    switch (type) {
    case GGUF_F32:
        *t = DT_F32;
        return true;
    case GGUF_F16:
        *t = DT_F16;
        return true;
    case GGUF_BF16:
        *t = DT_BF16;
        return true;
    case GGUF_Q8_0:
        if (cols % 128 != 0) {
            return false;
        }
        for (uint64_t i = 0; i < n / 32; i++) {
            uint16_t h = *(const any_u16 *)(b + i * 34);
            if (h >= 0x7C00 || h != *(const any_u16 *)(b + i / 4 * 4 * 34) ||
                memchr(b + i * 34 + 2, 0x80, 32)) {
                return false;
            }
        }
        *t = DT_Q8_G128;
        return true;
    case GGUF_Q4_0:
        if (cols % 64 != 0) {
            return false;
        }
        for (uint64_t i = 0; i < n / 32; i++) {
            uint16_t h = *(const any_u16 *)(b + i * 18);
            if (h >= 0x7C00 || h != *(const any_u16 *)(b + i / 2 * 2 * 18)) {
                return false;
            }
        }
        *t = DT_Q4_G64;
        return true;
    default:
        return false;
    }
}

void quant_from_gguf(uint32_t type, const void *blocks, uint64_t rows, uint64_t cols, void *data,
                     void *scales)
{
    const uint8_t *b = blocks;
    uint8_t *q = data;
    any_u16 *s = scales;
    uint64_t n = rows * cols;
    if (type == GGUF_Q8_0) {
#pragma omp parallel for schedule(static) if (n >= PARALLEL_MIN)
        for (uint64_t g = 0; g < n / 128; g++) {
            const uint8_t *from = b + g * 4 * 34;
            s[g] = *(const any_u16 *)from;
            for (int k = 0; k < 4; k++) {
                memcpy(q + g * 128 + 32 * k, from + 34 * k + 2, 32);
            }
        }
    } else if (type == GGUF_Q4_0) {
#pragma omp parallel for schedule(static) if (n >= PARALLEL_MIN)
        for (uint64_t g = 0; g < n / 64; g++) {
            s[g] = *(const any_u16 *)(b + g * 2 * 18);
            for (int k = 0; k < 2; k++) {
                const uint8_t *from = b + (2 * g + (uint64_t)k) * 18 + 2;
                uint8_t *to = q + g * 32 + 16 * k;
                for (int l = 0; l < 8; l++) {
                    to[l] = (uint8_t)((from[2 * l] & 15) | (from[2 * l + 1] & 15) << 4);
                    to[l + 8] = (uint8_t)(from[2 * l] >> 4 | (from[2 * l + 1] & 0xF0));
                }
            }
        }
    } else {
        uint32_t bytes = 0;
        if (gguf_type_info(type, NULL, NULL, &bytes)) {
            memcpy(q, b, n * bytes);
        }
    }
}
