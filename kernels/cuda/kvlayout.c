/* Cache pages as they lie on the device, read and written row by row on the host: for
 * views, made-up pages and tests. */
#include "config.h"
#include "kernels/cuda/kvlayout.h"

#include <stdbool.h>
#include <string.h>

#include "kernels/cuda/cu.h"
#include "kernels/kvq.h"

/* Some bits of a byte: read, or set when there is a value to put. */
struct bits {
    bool put;
    uint8_t *at;
    int shift, mask;
};

static int move(const struct bits *b, int value)
{
    if (b->put) {
        *b->at = (uint8_t)((*b->at & ~(b->mask << b->shift)) | (value & b->mask) << b->shift);
    }
    return *b->at >> b->shift & b->mask;
}

/* T3: element d of row r; keys. */
static void t3_key(bool put, uint8_t *tile, int r, int d, int8_t *code)
{
    const int h = d / KVQ_HALF, j = d % KVQ_HALF, i = j % 32 / 8, n = j % 8;
    uint8_t *at = tile + r * KVL_T3_KEY + j / 32 * 24 + h * 12 + n / 2;
    if (i < 3) {
        const struct bits all = {put, at + 4 * i, 4 * (n % 2), 7};
        *code = (int8_t)move(&all, *code);
        return;
    }
    int v = 0;
    for (int k = 0; k < 3; k++) {
        const struct bits one = {put, at + 4 * k, 4 * (n % 2) + 3, 1};
        v |= move(&one, *code >> k) << k;
    }
    *code = (int8_t)v;
}

/* Values. */
static void t3_value(bool put, uint8_t *tile, int r, int d, int8_t *code)
{
    const int w = d / 32, m = d / 16 % 2, g = d % 16 / 2, up = d % 2;
    const struct bits lo = {put, tile + cu_kv_plane(8 * w + g, r), 4 * m + 2 * up, 3};
    const struct bits hi = {put, tile + KVL_T3_HI + cu_kv_plane(4 * w + g / 2, r),
                            g % 2 * 2 + 4 * m + up, 1};
    *code = (int8_t)(move(&lo, *code) | move(&hi, *code >> 2) << 2);
}

static void t5_key(bool put, uint8_t *tile, int r, int d, int8_t *code)
{
    const int h = d / KVQ_HALF, j = d % KVQ_HALF, e = j % 32, bit = 8 * (e % 4) + 7 - e / 4;
    const struct bits lo = {put, tile + h * 4096 + r * 64 + j / 2, 4 * (j % 2), 15};
    const struct bits sign = {put, tile + KVL_T5_SIGN + h * 1024 + r * 16 + j / 32 * 4 + bit / 8,
                              bit % 8, 1};
    const int m = move(&lo, *code & 16 ? *code : ~*code);
    *code = (int8_t)(move(&sign, !(*code & 16)) ? 15 - m : 16 + m);
}

static void b8_key(bool put, uint8_t *tile, int r, int d, int8_t *code)
{
    const struct bits all = {put, tile + cu_kv_offset(BE_KV_F8, r, d), 0, 255};
    *code = (int8_t)(move(&all, *code + 128) - 128);
}

static void b4_value(bool put, uint8_t *tile, int r, int d, int8_t *code)
{
    const struct bits all = {put, tile + cu_kv_plane(d / 2, r), d % 2 * 4, 15};
    *code = (int8_t)(move(&all, *code + 8) - 8);
}

/* Scale number i of row r: its bytes. */
static void move_scale(enum kvq_kind k, int which, bool put, uint8_t *tile, int r, int i,
                       uint16_t *scale)
{
    if (k == KVQ_B8 || k == KVQ_B4) {
        /* A step of 2^(e - 127 - bits) as an fp16: its exponent is biased by 15. */
        const int less = 127 - 15 + (k == KVQ_B8 ? 6 : 2);
        uint8_t *p =
            k == KVQ_B8 ? tile + KVL_B8_STEP + r * 16 + i : tile + KVL_B4_STEP + cu_kv_plane(i, r);
        if (put) {
            *p = (uint8_t)((*scale - less) * 4);
        }
        *scale = (uint16_t)(*p / 4 + less);
        return;
    }
    uint8_t *p = which         ? tile + KVL_T3_SCALE + cu_kv_plane(i, r) * 2
                 : k == KVQ_T3 ? tile + KVL_T3_SCALE + r * 4 + i * 2
                               : tile + KVL_T5_SCALE + r * 4 + i * 2;
    if (put) {
        memcpy(p, scale, sizeof *scale);
    }
    memcpy(scale, p, sizeof *scale);
}

static void move_packed(enum kvq_kind k, int which, bool put, uint8_t *tile, int r,
                        struct kvq_codes *c)
{
    for (int d = 0; d < BE_HEAD_DIM; d++) {
        switch (k) {
        case KVQ_T3:
            (which ? t3_value : t3_key)(put, tile, r, d, &c->code[d]);
            break;
        case KVQ_T5:
            t5_key(put, tile, r, d, &c->code[d]);
            break;
        case KVQ_B8:
            b8_key(put, tile, r, d, &c->code[d]);
            break;
        case KVQ_B4:
            b4_value(put, tile, r, d, &c->code[d]);
            break;
        case KVQ_F32:
        case KVQ_F16:
        case KVQ_F8:
            break;
        }
    }
    const int n = k == KVQ_B8 || k == KVQ_B4 ? BE_HEAD_DIM / KVQ_GROUP : 2;
    for (int i = 0; i < n; i++) {
        move_scale(k, which, put, tile, r, i, &c->scale[i]);
    }
}

void cu_kv_put(enum be_kv kv, int which, uint8_t *head, int row, const uint8_t *from)
{
    const enum kvq_kind k = kvq_of(kv, which);
    const size_t bytes = kvq_row_bytes(k), width = bytes / BE_HEAD_DIM;
    if (kvq_packed(k)) {
        struct kvq_codes c;
        kvq_unpack(k, from, &c);
        move_packed(k, which, true, head + (size_t)(row / KVL_ROWS * KVL_ROWS) * bytes,
                    row % KVL_ROWS, &c);
        return;
    }
    for (int d = 0; d < BE_HEAD_DIM; d++) {
        memcpy(head + cu_kv_offset(kv, row, d), from + (size_t)d * width, width);
    }
}

void cu_kv_get(enum be_kv kv, int which, const uint8_t *head, int row, uint8_t *to)
{
    const enum kvq_kind k = kvq_of(kv, which);
    const size_t bytes = kvq_row_bytes(k), width = bytes / BE_HEAD_DIM;
    if (kvq_packed(k)) {
        struct kvq_codes c = {.code = {0}};
        uint8_t *tile = (uint8_t *)(uintptr_t)head; /* only read */
        move_packed(k, which, false, tile + (size_t)(row / KVL_ROWS * KVL_ROWS) * bytes,
                    row % KVL_ROWS, &c);
        kvq_pack(k, &c, to);
        return;
    }
    for (int d = 0; d < BE_HEAD_DIM; d++) {
        memcpy(to + (size_t)d * width, head + cu_kv_offset(kv, row, d), width);
    }
}

void cu_kv_mask(enum be_kv kv, int which, int rows, uint8_t *mask)
{
    /* What a row is put into comes out the same whatever was there, and nothing else does. */
    static const uint8_t any[BE_HEAD_DIM * sizeof(float)];
    uint8_t ones[KVL_ROWS * BE_HEAD_DIM * sizeof(float)];
    const size_t n = KVL_ROWS * kvq_row_bytes(kvq_of(kv, which));
    memset(mask, 0, n);
    memset(ones, 0xFF, n);
    for (int row = 0; row < rows; row++) {
        cu_kv_put(kv, which, mask, row, any);
        cu_kv_put(kv, which, ones, row, any);
    }
    for (size_t i = 0; i < n; i++) {
        mask[i] = (uint8_t) ~(mask[i] ^ ones[i]);
    }
}
