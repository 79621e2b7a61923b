/* The weight tiles and the tiled activations: where every element lies. */
#include "config.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "kernels/cuda/cu.h"

enum { TILE = 64, STEP = 64, BLOCK = 16 };

size_t cu_step_bytes(enum cu_kind kind)
{
    return kind == CU_W4 ? 2176 : kind == CU_W8 ? 4224 : 8192;
}

size_t cu_mat_bytes(enum cu_kind kind, int rows, int k)
{
    return (size_t)((rows + TILE - 1) / TILE) * (size_t)(k / STEP) * cu_step_bytes(kind);
}

enum cu_kind cu_kind_of(enum dtype t)
{
    return t == DT_Q4_G64 ? CU_W4 : t == DT_Q8_G128 ? CU_W8 : CU_W16;
}

size_t cu_xt_bytes(int rows, int k)
{
    return (size_t)((rows + 127) / 128) * (size_t)(k / STEP) * 16384;
}

/* Place of input c of a step in the order in which MMAs take them: the lanes of
 * a fragment's row hold 16 inputs in a row, 4 to each of the step's four MMAs. */
static int logical(int c)
{
    const int t = c / 16, j = c % 16 / 4, high = c % 4 / 2;
    return j * 16 + high * 8 + 2 * t + c % 2;
}

size_t cu_xt_index(int row, int col, int k)
{
    const int at = logical(col % STEP);
    const size_t block = (size_t)(row / 128) * (size_t)(k / STEP) + (size_t)(col / STEP);
    return block * 8192 + (size_t)(row % 128) * 64 + (size_t)((at / 8 ^ row % 8) * 8 + at % 8);
}

size_t cu_kv_offset(enum be_kv kv, int row, int d)
{
    const size_t element = kv == BE_KV_F8 ? 1 : kv == BE_KV_F16 ? 2 : 4;
    const size_t byte = (size_t)d * element, row_bytes = BE_HEAD_DIM * element;
    return (size_t)(row / 64) * 64 * row_bytes + byte / 128 * 8192 + (size_t)(row % 64) * 128 +
           (byte / 16 % 8 ^ (size_t)row % 8) * 16 + byte % 16;
}

/* ---- packing ---- */

static uint16_t scale_bits(const struct tensor *t, size_t row, int k, int step)
{
    const int group = dtype_group(t->dtype);
    uint16_t s;
    const size_t at = row * (size_t)(k / group) + (size_t)(step * STEP / group);
    memcpy(&s, (const uint8_t *)t->scales + 2 * at, sizeof s);
    return s;
}

/* Code of an element, 4-bit ones as 0..15, 8-bit ones as -127..127. */
static int code_of(const struct tensor *t, size_t row, int k, int col)
{
    const uint8_t *p = t->data;
    const size_t at = row * (size_t)k + (size_t)col;
    if (t->dtype == DT_Q8_G128) {
        return (int8_t)p[at];
    }
    return at % 2 ? p[at / 2] >> 4 : p[at / 2] & 15;
}

static float value_of(const struct tensor *t, size_t at)
{
    uint16_t h;
    float f;
    switch (t->dtype) {
    case DT_F32:
        memcpy(&f, (const uint8_t *)t->data + 4 * at, sizeof f);
        return f;
    case DT_F16:
        memcpy(&h, (const uint8_t *)t->data + 2 * at, sizeof h);
        return f16_to_f32(h);
    default:
        memcpy(&h, (const uint8_t *)t->data + 2 * at, sizeof h);
        return bf16_to_f32(h);
    }
}

static void put_u16(uint8_t *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

/* Element (r, c) of a row block and step, r < 16, c < 64. */
static void put_w4(uint8_t *step, int rb, int r, int c, int code)
{
    const int t = c / 16, j = c % 16 / 4, high = c % 4 / 2, lane = 4 * (r % 8) + t;
    const int bit = 4 * (high * 2 + r / 8) + 16 * (c % 2);
    step[rb * 512 + lane * 16 + 4 * j + bit / 8] |= (uint8_t)(code << bit % 8);
}

static void put_w8(uint8_t *step, int rb, int r, int c, int code)
{
    const int t = c / 16, j = c % 16 / 4, high = c % 4 / 2, lane = 4 * (r % 8) + t;
    uint8_t *half = step + rb / 2 * 2112 + rb % 2 * 1024;
    half[j / 2 * 512 + lane * 16 + j % 2 * 8 + r / 8 * 4 + high * 2 + c % 2] =
        (uint8_t)(code + 128);
}

static void put_w16(uint8_t *step, int rb, int r, int c, uint16_t value)
{
    const int t = c / 16, j = c % 16 / 4, high = c % 4 / 2, lane = 4 * (r % 8) + t;
    put_u16(step + rb * 2048 + j * 512 + lane * 16 + (2 * high + r / 8) * 4 + c % 2 * 2, value);
}

static void put_scale(enum cu_kind kind, uint8_t *step, int rb, int r, uint16_t s)
{
    if (kind == CU_W4) {
        put_u16(step + 2048 + (r % 8 * 4 + rb) * 4 + r / 8 * 2, s);
    } else {
        put_u16(step + rb / 2 * 2112 + 2048 + (r % 8 * 2 + rb % 2) * 4 + r / 8 * 2, s);
    }
}

/* The power of two that brings the row's largest value to [2^14, 2^15). */
static float row_power(const struct tensor *t, size_t row, int k)
{
    float max = 0;
    for (int c = 0; c < k; c++) {
        const float v = fabsf(value_of(t, row * (size_t)k + (size_t)c));
        max = v > max ? v : max;
    }
    int e = 0;
    frexpf(max, &e);
    e = e > -100 ? e : -100; /* its reciprocal stays a normal number */
    return max > 0 ? ldexpf(1, 15 - e) : 1;
}

static void pack_row(enum cu_kind kind, const struct tensor *t, size_t row, int k, int rb, int r,
                     uint8_t *tile, float *row_scale)
{
    const size_t bytes = cu_step_bytes(kind);
    float power = 1;
    if (kind == CU_W16) {
        power = row_power(t, row, k);
        *row_scale = 1 / power;
    }
    for (int g = 0; g < k / STEP; g++) {
        uint8_t *step = tile + (size_t)g * bytes;
        for (int c = 0; c < STEP; c++) {
            const int col = g * STEP + c;
            if (kind == CU_W16) {
                const float v = value_of(t, row * (size_t)k + (size_t)col);
                put_w16(step, rb, r, c, f32_to_f16(v * power));
            } else if (kind == CU_W8) {
                const int code = code_of(t, row, k, col);
                put_w8(step, rb, r, c, t->dtype == DT_Q4_G64 ? code - 8 : code);
            } else {
                put_w4(step, rb, r, c, code_of(t, row, k, col));
            }
        }
        if (kind != CU_W16) {
            put_scale(kind, step, rb, r, scale_bits(t, row, k, g));
        }
    }
}

/* Zero codes and scales of the block's 16 rows, so that rows past the end are 0. */
static void clear_block(enum cu_kind kind, uint8_t *tile, int rb, int steps)
{
    for (int g = 0; g < steps; g++) {
        uint8_t *step = tile + (size_t)g * cu_step_bytes(kind);
        if (kind == CU_W4) {
            memset(step + rb * 512, 0, 512);
        } else if (kind == CU_W8) {
            memset(step + rb / 2 * 2112 + rb % 2 * 1024, 128, 1024);
        } else {
            memset(step + rb * 2048, 0, 2048);
        }
        for (int r = 0; r < BLOCK && kind != CU_W16; r++) {
            put_scale(kind, step, rb, r, 0);
        }
    }
}

void cu_pack_block(enum cu_kind kind, const struct tensor *const src[2], int n_src, int rows, int k,
                   int block, uint8_t *tile, float *row_scale)
{
    const int rb = block % 4;
    clear_block(kind, tile, rb, k / STEP);
    for (int r = 0; r < BLOCK; r++) {
        const int row = block * BLOCK + r;
        if (kind == CU_W16) {
            row_scale[r] = 1;
        }
        if (row >= rows) {
            continue;
        }
        const struct tensor *t = n_src == 2 ? src[r / 8] : src[0];
        const size_t at = n_src == 2 ? (size_t)(block * 8 + r % 8) : (size_t)row;
        assert(kind == CU_W16 ? t->dtype != DT_Q4_G64 && t->dtype != DT_Q8_G128
                              : kind == CU_W8 || t->dtype == DT_Q4_G64);
        pack_row(kind, t, at, k, rb, r, tile, kind == CU_W16 ? &row_scale[r] : NULL);
    }
}
