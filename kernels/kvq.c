/* Packed keys and values: rows to codes and back. Everything that rounds is here or in
 * kvq_math.h, in one order, so that equal rows give equal codes on every path. */
#include "config.h"
#include "kernels/kvq.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "kernels/kvq_math.h"

static const uint32_t s1[4] = KVQ_S1, s2[4] = KVQ_S2;
static const float c3[8] = KVQ_C3, c5[16] = KVQ_C5;

const char *be_kv_name(enum be_kv kv)
{
    switch (kv) {
    case BE_KV_F32:
        return "f32";
    case BE_KV_F16:
        return "fp16";
    case BE_KV_F8:
        return "fp8";
    case BE_KV_K8V4:
        return "k8v4";
    case BE_KV_K5V3:
        return "k5v3";
    case BE_KV_K3V3:
        return "k3v3";
    }
    return "?";
}

size_t be_kv_bytes(enum be_kv kv, int kv_heads)
{
    return (size_t)kv_heads * (kvq_row_bytes(kvq_of(kv, 0)) + kvq_row_bytes(kvq_of(kv, 1)));
}

static void flip(float *x, const uint32_t *signs)
{
    for (int i = 0; i < KVQ_HALF; i++) {
        x[i] = signs[i / 32] >> i % 32 & 1 ? -x[i] : x[i];
    }
}

/* H, not divided by sqrt(128). */
static void transform(float *x)
{
    for (int n = 1; n < KVQ_HALF; n *= 2) {
        for (int i = 0; i < KVQ_HALF; i += 2 * n) {
            for (int j = i; j < i + n; j++) {
                const float a = x[j], b = x[j + n];
                x[j] = a + b;
                x[j + n] = a - b;
            }
        }
    }
}

static void scale(float *x, float by)
{
    for (int i = 0; i < KVQ_HALF; i++) {
        x[i] *= by;
    }
}

static const float root = 0.08838834764831845F; /* 1 / sqrt(128) */

void kvq_turn(enum kvq_kind k, float *x)
{
    for (int h = 0; kvq_turned(k) && h < BE_HEAD_DIM; h += KVQ_HALF) {
        flip(x + h, s1);
        transform(x + h);
        if (k != KVQ_B4) {
            flip(x + h, s2);
        }
        scale(x + h, root);
    }
}

void kvq_turn_back(enum kvq_kind k, float *x)
{
    for (int h = 0; kvq_turned(k) && h < BE_HEAD_DIM; h += KVQ_HALF) {
        if (k != KVQ_B4) {
            flip(x + h, s2);
        }
        transform(x + h);
        flip(x + h, s1);
        scale(x + h, root);
    }
}

/* The sum of squares of 128: eight neighbours in order, then pairs, fours and so on:
 * the order in which 16 lanes exchange theirs. */
static float squares(const float *x)
{
    float p[16];
    for (int i = 0; i < 16; i++) {
        p[i] = 0;
        for (int j = 0; j < 8; j++) {
            p[i] = fmaf(x[8 * i + j], x[8 * i + j], p[i]);
        }
    }
    for (int n = 1; n < 16; n *= 2) {
        for (int i = 0; i < 16; i += 2 * n) {
            p[i] += p[i + n];
        }
    }
    return p[0];
}

static float level(enum kvq_kind k, int code)
{
    return k == KVQ_T3 ? c3[code & 7] : code & 16 ? c5[code & 15] : -c5[~code & 15];
}

/* Half h of a row of levels. */
static void quantise_half(enum kvq_kind k, const float *x, int h, struct kvq_codes *out)
{
    float y[KVQ_HALF], c[KVQ_HALF];
    memcpy(y, x + h * KVQ_HALF, sizeof y);
    const float all = squares(y);
    flip(y, s1);
    transform(y);
    flip(y, s2);
    const float by = all > 1e-20F ? 1 / sqrtf(all * 128) : 0;
    for (int i = 0; i < KVQ_HALF; i++) {
        const float v = y[i] * by;
        const int code = k == KVQ_T3 ? kvq_code3(v) : kvq_code5(v);
        out->code[h * KVQ_HALF + i] = (int8_t)code;
        c[i] = level(k, code);
    }
    const float length = sqrtf(all / squares(c));
    out->scale[h] = f32_to_f16(length < 65504 ? length : 65504);
}

static void quantise_blocks(enum kvq_kind k, const float *x, struct kvq_codes *out)
{
    const int bits = k == KVQ_B8 ? 6 : 2;
    float y[BE_HEAD_DIM];
    memcpy(y, x, sizeof y);
    kvq_turn(k, y);
    for (int g = 0; g < BE_HEAD_DIM / KVQ_GROUP; g++) {
        float amax = 0;
        for (int i = 0; i < KVQ_GROUP; i++) {
            amax = fmaxf(amax, fabsf(y[g * KVQ_GROUP + i]));
        }
        const int e = kvq_exponent(amax, bits);
        out->scale[g] = (uint16_t)e;
        for (int i = 0; i < KVQ_GROUP; i++) {
            out->code[g * KVQ_GROUP + i] = (int8_t)kvq_steps(y[g * KVQ_GROUP + i], e, bits);
        }
    }
}

void kvq_quantise(enum kvq_kind k, const float *x, struct kvq_codes *out)
{
    *out = (struct kvq_codes){.code = {0}};
    if (k == KVQ_B8 || k == KVQ_B4) {
        quantise_blocks(k, x, out);
    } else {
        quantise_half(k, x, 0, out);
        quantise_half(k, x, 1, out);
    }
}

void kvq_values(enum kvq_kind k, const struct kvq_codes *c, float *x)
{
    for (int i = 0; i < BE_HEAD_DIM; i++) {
        if (k == KVQ_B8 || k == KVQ_B4) {
            const int bits = k == KVQ_B8 ? 6 : 2;
            x[i] = (float)c->code[i] * kvq_pow2(c->scale[i / KVQ_GROUP] - 127 - bits);
        } else {
            x[i] = level(k, c->code[i]) * f16_to_f32(c->scale[i / KVQ_HALF]);
        }
    }
}

/* ---- bytes ---- */

/* Offsets of a row's half in its order. */
static int half_bytes(enum kvq_kind k)
{
    return k == KVQ_T3 ? KVQ_T3_HALF : KVQ_T5_HALF;
}

void kvq_pack(enum kvq_kind k, const struct kvq_codes *c, uint8_t *row)
{
    memset(row, 0, kvq_row_bytes(k));
    if (k == KVQ_T3 || k == KVQ_T5) {
        for (int i = 0; i < BE_HEAD_DIM; i++) {
            const int h = i / KVQ_HALF, j = i % KVQ_HALF, code = c->code[i];
            uint8_t *p = row + h * half_bytes(k);
            if (j == 0) {
                memcpy(p, &c->scale[h], sizeof c->scale[h]);
            }
            if (k == KVQ_T3) {
                p[2 + j / 4] |= (uint8_t)((code & 3) << 2 * (j % 4));
                p[34 + j / 8] |= (uint8_t)(code >> 2 << j % 8);
            } else {
                p[2 + j / 2] |= (uint8_t)((code & 15) << 4 * (j % 2));
                p[66 + j / 8] |= (uint8_t)(code >> 4 << j % 8);
            }
        }
        return;
    }
    for (int i = 0; i < BE_HEAD_DIM; i++) {
        if (k == KVQ_B8) {
            row[i] = (uint8_t)c->code[i];
        } else {
            row[i / 32 * 16 + i % 16] |= (uint8_t)((c->code[i] + 8) << (i % 32 < 16 ? 0 : 4));
        }
    }
    for (int g = 0; g < BE_HEAD_DIM / KVQ_GROUP; g++) {
        row[(k == KVQ_B8 ? 256 : 128) + g] = (uint8_t)c->scale[g];
    }
}

void kvq_unpack(enum kvq_kind k, const uint8_t *row, struct kvq_codes *c)
{
    *c = (struct kvq_codes){.code = {0}};
    for (int i = 0; i < BE_HEAD_DIM; i++) {
        const int h = i / KVQ_HALF, j = i % KVQ_HALF;
        const uint8_t *p = row + h * half_bytes(k);
        switch (k) {
        case KVQ_T3:
            c->code[i] =
                (int8_t)((p[2 + j / 4] >> 2 * (j % 4) & 3) | (p[34 + j / 8] >> j % 8 & 1) << 2);
            break;
        case KVQ_T5:
            c->code[i] =
                (int8_t)((p[2 + j / 2] >> 4 * (j % 2) & 15) | (p[66 + j / 8] >> j % 8 & 1) << 4);
            break;
        case KVQ_B8:
            c->code[i] = (int8_t)row[i];
            break;
        case KVQ_B4:
            c->code[i] = (int8_t)((row[i / 32 * 16 + i % 16] >> (i % 32 < 16 ? 0 : 4) & 15) - 8);
            break;
        case KVQ_F32:
        case KVQ_F16:
        case KVQ_F8:
            break;
        }
        if (kvq_turned(k) && k != KVQ_B4 && j == 0) {
            memcpy(&c->scale[h], p, sizeof c->scale[h]);
        }
    }
    for (int g = 0; (k == KVQ_B8 || k == KVQ_B4) && g < BE_HEAD_DIM / KVQ_GROUP; g++) {
        c->scale[g] = row[(k == KVQ_B8 ? 256 : 128) + g];
    }
}

void kvq_store(enum kvq_kind k, const float *x, uint8_t *row)
{
    if (kvq_packed(k)) {
        struct kvq_codes c;
        kvq_quantise(k, x, &c);
        kvq_pack(k, &c, row);
        return;
    }
    for (int i = 0; i < BE_HEAD_DIM; i++) {
        const uint16_t half = f32_to_f16(x[i]);
        const uint8_t byte = f32_to_f8(x[i]);
        const size_t width = kvq_row_bytes(k) / BE_HEAD_DIM;
        memcpy(row + (size_t)i * width,
               k == KVQ_F8    ? (const void *)&byte
               : k == KVQ_F16 ? (const void *)&half
                              : (const void *)&x[i],
               width);
    }
}

void kvq_read(enum kvq_kind k, const uint8_t *row, float *x)
{
    if (kvq_packed(k)) {
        struct kvq_codes c;
        kvq_unpack(k, row, &c);
        kvq_values(k, &c, x);
        kvq_turn_back(k, x);
        return;
    }
    for (int i = 0; i < BE_HEAD_DIM; i++) {
        const size_t width = kvq_row_bytes(k) / BE_HEAD_DIM;
        uint16_t half = 0;
        memcpy(k == KVQ_F32 ? (void *)&x[i] : (void *)&half, row + (size_t)i * width, width);
        if (k != KVQ_F32) {
            x[i] = k == KVQ_F8 ? f8_to_f32((uint8_t)half) : f16_to_f32(half);
        }
    }
}

void kvq_made_up(enum kvq_kind k, int row, int which, uint8_t *out)
{
    float x[BE_HEAD_DIM];
    uint32_t r = (uint32_t)(2 * row + which) * 2654435761U + 1;
    for (int i = 0; i < BE_HEAD_DIM; i++) {
        r = r * 1664525U + 1013904223U;
        x[i] = (float)(r >> 8) * 0x1p-23F - 1;
    }
    kvq_store(k, x, out);
}
