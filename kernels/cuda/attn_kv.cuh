#ifndef QUASAR_KERNELS_CUDA_ATTN_KV_CUH
#define QUASAR_KERNELS_CUDA_ATTN_KV_CUH

/*
 * Packed keys and values on the device (kvq.h, kvlayout.h): a warp's encoding of a row,
 * turning of rows, and expansion to fp16, eight neighbours at a time for prefill. The bits
 * of a code are those of kernels/kvq.c. A lane has elements 8 lane .. 8 lane + 7 of a row.
 */

#include "kernels/cuda/attn.cuh"
#include "kernels/cuda/kvlayout.h"
#include "kernels/kvq.h"
#include "kernels/kvq_math.h"

/* ---- tables ---- */

/* Low and high bytes of the levels as fp16, four to a word. */
enum : uint32_t {
    KV_L3_0 = 0x8c479a16,
    KV_L3_1 = 0x169a478c,
    KV_H3_0 = 0xa5acafb2,
    KV_H3_1 = 0x322f2c25
};

/* Levels of keys as whole numbers 128 h + l, in bytes: T3's times KV_I3; T5's magnitudes times
 * KV_I5, less 64.5, so that flipping all bits of h and l is the other sign. h, l of T5 are below
 * 128: a selector's fourth bit makes 0 of them. */
enum : uint32_t {
    KV_I3_H0 = 0xf1d3b081,
    KV_I3_H1 = 0x7f502d0f,
    KV_I3_L0 = 0x3d1b31c1,
    KV_I3_L1 = 0x3fcfe5c3,
    KV_I5_H0 = 0x110c0702,
    KV_I5_H1 = 0x28221c17,
    KV_I5_H2 = 0x453d362f,
    KV_I5_H3 = 0x7f695a4f,
    KV_I5_L0 = 0x7247260c,
    KV_I5_L1 = 0x6a60782b,
    KV_I5_L2 = 0x774e1020,
    KV_I5_L3 = 0x7f466a39
};
#define KV_I3 85796.0f
#define KV_I5 57067.6146f

/* ---- a row, by a warp ---- */

/* A lane's eight codes, a byte each, and its scale: T3, T5 the fp16 of its half; B8, B4 the
 * high byte of its group's step as fp16. */
struct kv_lane {
    uint32_t c[2];
    uint32_t scale;
};

static __device__ __forceinline__ int kv_code(const struct kv_lane *v, int i)
{
    return (int)(int8_t)(v->c[i / 4] >> 8 * (i % 4));
}

/* Flips signs of the lane's elements; `second`: those after the transform. */
static __device__ __forceinline__ void kv_flip(float *x, bool second, int lane)
{
    const uint32_t a[4] = KVQ_S1, b[4] = KVQ_S2;
    const int word = lane % 16 / 4;
    uint32_t s = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        s = word == i ? (second ? b[i] : a[i]) : s;
    }
    s >>= lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] = s >> i & 1 ? -x[i] : x[i];
    }
}

/* The transform of both halves, not divided by sqrt(128). */
static __device__ __forceinline__ void kv_transform(float *x, int lane)
{
#pragma unroll
    for (int n = 1; n < 8; n *= 2) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            if (!(i & n)) {
                const float a = x[i], b = x[i + n];
                x[i] = __fadd_rn(a, b);
                x[i + n] = __fsub_rn(a, b);
            }
        }
    }
#pragma unroll
    for (int n = 1; n < 16; n *= 2) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float other = __shfl_xor_sync(AT_ALL, x[i], n);
            x[i] = lane & n ? __fsub_rn(other, x[i]) : __fadd_rn(x[i], other);
        }
    }
}

static __device__ __forceinline__ void kv_root(float *x)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] = __fmul_rn(x[i], 0.08838834764831845f);
    }
}

/* A lane's elements. Functions that take and give it are calls: rows are few beside tiles,
 * and what is inlined into a kernel costs it registers. */
struct kv_row {
    float x[8];
};

static __device__ __forceinline__ struct kv_row kv_row_of(const float *x)
{
    struct kv_row r;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        r.x[i] = x[i];
    }
    return r;
}

/* kvq_turn, and with `back` kvq_turn_back. */
static __device__ __noinline__ struct kv_row kv_turned(enum kvq_kind k, bool back, struct kv_row r,
                                                       int lane)
{
    if (back ? k != KVQ_B4 : true) {
        kv_flip(r.x, back, lane);
    }
    kv_transform(r.x, lane);
    if (back || k != KVQ_B4) {
        kv_flip(r.x, !back, lane);
    }
    kv_root(r.x);
    return r;
}

static __device__ __forceinline__ void kv_turn(enum kvq_kind k, bool back, float *x, int lane)
{
    if (kvq_turned(k)) {
        const struct kv_row r = kv_turned(k, back, kv_row_of(x), lane);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[i] = r.x[i];
        }
    }
}

/* Sum of squares of the lane's half. */
static __device__ __forceinline__ float kv_squares(const float *x)
{
    float s = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        s = fmaf(x[i], x[i], s);
    }
#pragma unroll
    for (int n = 1; n < 16; n *= 2) {
        s = __fadd_rn(s, __shfl_xor_sync(AT_ALL, s, n));
    }
    return s;
}

static __device__ __forceinline__ float kv_level(enum kvq_kind k, int code)
{
    const float c3[4] = {0.021663f, 0.066822f, 0.118786f, 0.190207f}, c5[16] = KVQ_C5;
    const bool up = code & (k == KVQ_T3 ? 4 : 16);
    float v = 0;
    if (k == KVQ_T3) {
        const int m = up ? code & 3 : ~code & 3;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v = m == i ? c3[i] : v;
        }
    } else {
        const int m = up ? code & 15 : ~code & 15;
#pragma unroll
        for (int i = 0; i < 16; i++) {
            v = m == i ? c5[i] : v;
        }
    }
    return up ? v : -v;
}

/* kvq_quantise. */
static __device__ __noinline__ struct kv_lane kv_encode(enum kvq_kind k, struct kv_row r, int lane)
{
    struct kv_lane out = {{0, 0}, 0};
    float *x = r.x;
    if (k == KVQ_B8 || k == KVQ_B4) {
        const int bits = k == KVQ_B8 ? 6 : 2;
        kv_turn(k, false, x, lane);
        float amax = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            amax = fmaxf(amax, fabsf(x[i]));
        }
        amax = fmaxf(amax, __shfl_xor_sync(AT_ALL, amax, 1));
        const int e = kvq_exponent(amax, bits);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            out.c[i / 4] |= (uint32_t)(kvq_steps(x[i], e, bits) & 255) << 8 * (i % 4);
        }
        out.scale = (uint32_t)((e - (127 - 15 + bits)) * 4);
        return out;
    }
    const float all = kv_squares(x);
    kv_flip(x, false, lane);
    kv_transform(x, lane);
    kv_flip(x, true, lane);
    const float by = all > 1e-20f ? __fdiv_rn(1, __fsqrt_rn(__fmul_rn(all, 128))) : 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float v = __fmul_rn(x[i], by);
        const int code = k == KVQ_T3 ? kvq_code3(v) : kvq_code5(v);
        out.c[i / 4] |= (uint32_t)code << 8 * (i % 4);
        x[i] = kv_level(k, code);
    }
    out.scale = f16_of_f32(__fsqrt_rn(__fdiv_rn(all, kv_squares(x))));
    return out;
}

/* Bits of four neighbouring lanes together. */
static __device__ __forceinline__ uint32_t kv_or4(uint32_t v)
{
    v |= __shfl_xor_sync(AT_ALL, v, 1);
    return v | __shfl_xor_sync(AT_ALL, v, 2);
}

static __device__ __forceinline__ int kv_plane(int i, int r)
{
    return i * KVL_ROWS + (r >> 2 & 3) * 16 + (r >> 4) * 4 + (r & 3);
}

static __device__ __forceinline__ void kv_put_t3_key(unsigned char *tile, int r, int lane,
                                                     const struct kv_lane *v)
{
    const int h = lane / 16, t = lane % 16 / 4, i = lane % 4;
    uint32_t x = 0;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        x |= ((uint32_t)kv_code(v, n) & 7) << 4 * n;
    }
    /* The fourth lane's codes go into the spare bits of the others'. */
    const uint32_t last = __shfl_sync(AT_ALL, x, lane | 3);
    if (i < 3) {
        *(uint32_t *)(tile + r * KVL_T3_KEY + t * 24 + h * 12 + i * 4) =
            x | (last >> i & 0x11111111) << 3;
    }
    if (lane % 16 == 0) {
        *(uint16_t *)(tile + KVL_T3_SCALE + r * 4 + 2 * h) = (uint16_t)v->scale;
    }
}

static __device__ __forceinline__ void kv_put_t5_key(unsigned char *tile, int r, int lane,
                                                     const struct kv_lane *v)
{
    const int h = lane / 16, a = lane % 4;
    uint32_t m = 0, sign = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t c = (uint32_t)kv_code(v, i);
        m |= ((c & 16 ? c : ~c) & 15) << 4 * i;
        sign |= (~c >> 4 & 1) << (8 * (i % 4) + 7 - i / 4);
    }
    sign = kv_or4(sign >> 2 * a);
    *(uint32_t *)(tile + h * 4096 + r * 64 + lane % 16 * 4) = m;
    tile[KVL_T5_SIGN + h * 1024 + r * 16 + lane % 16] = (uint8_t)(sign >> 8 * a);
    if (lane % 16 == 0) {
        *(uint16_t *)(tile + KVL_T5_SCALE + r * 4 + 2 * h) = (uint16_t)v->scale;
    }
}

static __device__ __forceinline__ void kv_put_b8_key(unsigned char *tile, int r, int lane,
                                                     const struct kv_lane *v)
{
    *(uint2 *)(tile + kv_unit(r, lane / 2, 256) + lane % 2 * 8) =
        make_uint2(v->c[0] ^ 0x80808080U, v->c[1] ^ 0x80808080U);
    if (lane % 2 == 0) {
        tile[KVL_B8_STEP + r * 16 + lane / 2] = (uint8_t)v->scale;
    }
}

static __device__ __forceinline__ void kv_put_t3_value(unsigned char *tile, int r, int lane,
                                                       const struct kv_lane *v)
{
    const int w = lane / 4, a = lane % 4, m = a / 2;
    uint32_t lo = 0, hi = 0; /* a byte for each pair; for each two */
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t c = (uint32_t)kv_code(v, 2 * j), d = (uint32_t)kv_code(v, 2 * j + 1);
        lo |= ((c & 3) | (d & 3) << 2) << 8 * j;
        hi |= ((c >> 2 & 1) | (d >> 2 & 1) << 1) << (j / 2 * 8 + j % 2 * 2);
    }
    lo <<= 4 * m;
    hi <<= 4 * m;
    lo |= __shfl_xor_sync(AT_ALL, lo, 2);
    hi |= __shfl_xor_sync(AT_ALL, hi, 2);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int j = 2 * m + i;
        tile[kv_plane(8 * w + a % 2 * 4 + j, r)] = (uint8_t)(lo >> 8 * j);
    }
    tile[KVL_T3_HI + kv_plane(4 * w + a % 2 * 2 + m, r)] = (uint8_t)(hi >> 8 * m);
    if (lane % 16 == 0) {
        *(uint16_t *)(tile + KVL_T3_SCALE + kv_plane(lane / 16, r) * 2) = (uint16_t)v->scale;
    }
}

static __device__ __forceinline__ void kv_put_b4_value(unsigned char *tile, int r, int lane,
                                                       const struct kv_lane *v)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const int c = kv_code(v, 2 * j) + 8, d = kv_code(v, 2 * j + 1) + 8;
        tile[kv_plane(4 * lane + j, r)] = (uint8_t)(c | d << 4);
    }
    if (lane % 2 == 0) {
        tile[KVL_B4_STEP + kv_plane(lane / 2, r)] = (uint8_t)v->scale;
    }
}

/* Row r of a tile of keys (values), in the cache or in shared memory; by a whole warp. */
static __device__ __noinline__ void kv_put(enum be_kv kv, bool value, unsigned char *tile, int r,
                                           int lane, const struct kv_lane v)
{
    if (kv == BE_KV_K8V4) {
        if (value) {
            kv_put_b4_value(tile, r, lane, &v);
        } else {
            kv_put_b8_key(tile, r, lane, &v);
        }
    } else if (value) {
        kv_put_t3_value(tile, r, lane, &v);
    } else if (kv == BE_KV_K5V3) {
        kv_put_t5_key(tile, r, lane, &v);
    } else {
        kv_put_t3_key(tile, r, lane, &v);
    }
}

/* Makes row r of a tile zeros by its scales alone, whatever its codes are; by one thread. */
static __device__ __forceinline__ void kv_put_zeros(enum be_kv kv, bool value, unsigned char *tile,
                                                    int r)
{
    if (kv == BE_KV_K8V4 && value) {
        for (int i = 0; i < 16; i++) {
            tile[KVL_B4_STEP + kv_plane(i, r)] = 0;
        }
    } else if (kv == BE_KV_K8V4) {
        *(uint4 *)(tile + KVL_B8_STEP + r * 16) = make_uint4(0, 0, 0, 0);
    } else if (value) {
        *(uint16_t *)(tile + KVL_T3_SCALE + kv_plane(0, r) * 2) = 0;
        *(uint16_t *)(tile + KVL_T3_SCALE + kv_plane(1, r) * 2) = 0;
    } else {
        *(uint32_t *)(tile + (kv == BE_KV_K5V3 ? KVL_T5_SCALE : KVL_T3_SCALE) + r * 4) = 0;
    }
}

/* The tile of a head's keys (values) in a page that has row `row` of it. */
static __device__ __forceinline__ unsigned char *kv_tile(const struct attn_in &in, enum be_kv kv,
                                                         int page, bool value, int head, int row)
{
    const size_t keys = kvq_row_bytes(kvq_of(kv, 0)), values = kvq_row_bytes(kvq_of(kv, 1));
    const size_t rows =
        value ? (size_t)in.kv_heads * keys + (size_t)head * values : (size_t)head * keys;
    return in.cache + (size_t)page * in.page_stride + rows * BE_PAGE +
           (size_t)(row / KVL_ROWS * KVL_ROWS) * (value ? values : keys);
}

/* ---- codes to fp16 ---- */

static __device__ __forceinline__ __half2 kv_h2(uint32_t v)
{
    __half2 h;
    memcpy((void *)&h, &v, sizeof h);
    return h;
}

static __device__ __forceinline__ uint32_t kv_mul(uint32_t a, uint32_t b)
{
    const __half2 h = __hmul2(kv_h2(a), kv_h2(b));
    uint32_t v;
    memcpy(&v, &h, sizeof v);
    return v;
}

static __device__ __forceinline__ uint32_t kv_fma(uint32_t a, uint32_t b, uint32_t c)
{
    const __half2 h = __hfma2(kv_h2(a), kv_h2(b), kv_h2(c));
    uint32_t v;
    memcpy(&v, &h, sizeof v);
    return v;
}

/* Levels of the four 3-bit codes in nibbles 0 to 3: low bytes, high bytes. */
static __device__ __forceinline__ void kv_levels3(uint32_t x, uint32_t *lo, uint32_t *hi)
{
    *lo = prmt(KV_L3_0, KV_L3_1, x);
    *hi = prmt(KV_H3_0, KV_H3_1, x);
}

/* Of the four 4-bit magnitudes. */
static __device__ __forceinline__ void kv_levels5(uint32_t x, uint32_t *lo, uint32_t *hi)
{
    const uint32_t sel = x & 0x7777;
    /* ff where the fourth bit is not set: a selector with it repeats the sign of a 1. */
    const uint32_t small = prmt(0x01010101, 0x01010101, x) * 255;
    *lo =
        (prmt(0x48807bf7, 0xef0f3ad8, sel) & small) | (prmt(0x0e75d8db, 0x9d9d8ebd, sel) & ~small);
    *hi =
        (prmt(0x2927241d, 0x2d2d2c2a, sel) & small) | (prmt(0x31302f2e, 0x34333231, sel) & ~small);
}

/* ---- eight neighbours, for prefill ---- */

/* Of codes in nibbles. */
static __device__ __forceinline__ uint4 kv_eight3(uint32_t x, uint32_t scale)
{
    uint32_t l0, h0, l1, h1;
    kv_levels3(x, &l0, &h0);
    kv_levels3(x >> 16, &l1, &h1);
    return make_uint4(kv_mul(prmt(l0, h0, 0x5140), scale), kv_mul(prmt(l0, h0, 0x7362), scale),
                      kv_mul(prmt(l1, h1, 0x5140), scale), kv_mul(prmt(l1, h1, 0x7362), scale));
}

/* Nibbles with codes, of word i of the three that have 32 (i = 3: of their spare bits). */
static __device__ __forceinline__ uint32_t kv_nibbles3(uint32_t x, uint32_t y, uint32_t z, int i)
{
    if (i < 3) {
        return (i == 0 ? x : i == 1 ? y : z) & 0x77777777;
    }
    return (x >> 3 & 0x11111111) | (y >> 2 & 0x22222222) | (z >> 1 & 0x44444444);
}

/* T3 codes of values, two low bits each in lo (16 bits), the third bits of elements 2 j + s in
 * bits 4 j + s of hi. */
static __device__ __forceinline__ uint32_t kv_spread3(uint32_t lo, uint32_t hi)
{
    lo = (lo | lo << 8) & 0x00ff00ff;
    lo = (lo | lo << 4) & 0x0f0f0f0f;
    lo = (lo | lo << 2) & 0x33333333;
    hi = (hi | hi << 8) & 0x00330033;
    hi = (hi | hi << 4) & 0x03030303;
    hi = (hi | hi << 3) & 0x11111111;
    return lo | hi << 2;
}

static __device__ __forceinline__ uint32_t kv_twice(uint32_t half)
{
    return half | half << 16;
}

/* Elements 8 u .. 8 u + 7 of row r as fp16. */
static __device__ __forceinline__ uint4 kv_key8(enum kvq_kind k, const unsigned char *tile, int r,
                                                int u)
{
    const int h = u / 16, j = u % 16, a = u % 4;
    if (k == KVQ_T3) {
        const uint32_t *w = (const uint32_t *)(tile + r * KVL_T3_KEY + j / 4 * 24 + h * 12);
        return kv_eight3(kv_nibbles3(w[0], w[1], w[2], a),
                         kv_twice(*(const uint16_t *)(tile + KVL_T3_SCALE + r * 4 + 2 * h)));
    }
    if (k == KVQ_T5) {
        const uint32_t m = *(const uint32_t *)(tile + h * 4096 + r * 64 + 4 * j);
        const uint32_t s = *(const uint32_t *)(tile + KVL_T5_SIGN + h * 1024 + r * 16 + j / 4 * 4);
        const uint32_t n = kv_twice(*(const uint16_t *)(tile + KVL_T5_SCALE + r * 4 + 2 * h));
        uint32_t l0, h0, l1, h1;
        kv_levels5(m, &l0, &h0);
        kv_levels5(m >> 16, &l1, &h1);
        uint32_t v[4] = {prmt(l0, h0, 0x5140), prmt(l0, h0, 0x7362), prmt(l1, h1, 0x5140),
                         prmt(l1, h1, 0x7362)};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t neg = prmt(s << (2 * a + i / 2), 0, i % 2 ? 0x3424 : 0x1404);
            v[i] = kv_mul(v[i] ^ (neg & 0x80008000), n);
        }
        return make_uint4(v[0], v[1], v[2], v[3]);
    }
    const uint2 c = *(const uint2 *)(tile + kv_unit(r, u / 2, 256) + u % 2 * 8);
    const uint32_t step = kv_twice((uint32_t)tile[KVL_B8_STEP + r * 16 + u / 2] << 8);
    const uint32_t zero = kv_mul(step, 0xe480e480); /* -1152 */
    return make_uint4(kv_fma(prmt(c.x, 0x64646464, 0x4140), step, zero),
                      kv_fma(prmt(c.x, 0x64646464, 0x4342), step, zero),
                      kv_fma(prmt(c.y, 0x64646464, 0x4140), step, zero),
                      kv_fma(prmt(c.y, 0x64646464, 0x4342), step, zero));
}

static __device__ __forceinline__ uint4 kv_value8(enum kvq_kind k, const unsigned char *tile, int r,
                                                  int u)
{
    uint32_t v[4];
    if (k == KVQ_T3) {
        const int w = u / 4, a = u % 4, m = a / 2;
        const uint32_t n =
            kv_twice(*(const uint16_t *)(tile + KVL_T3_SCALE + kv_plane(u / 16, r) * 2));
        uint32_t lo = 0, hi = 0;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t c = tile[kv_plane(8 * w + a % 2 * 4 + j, r)];
            lo |= (c >> 4 * m & 15) << 4 * j;
        }
#pragma unroll
        for (int j = 0; j < 2; j++) {
            const uint32_t c = tile[KVL_T3_HI + kv_plane(4 * w + a % 2 * 2 + j, r)] >> 4 * m;
            hi |= ((c & 3) | (c & 12) << 2) << 8 * j;
        }
        return kv_eight3(kv_spread3(lo, hi), n);
    }
    const uint32_t step = kv_twice((uint32_t)tile[KVL_B4_STEP + kv_plane(u / 2, r)] << 8);
    const uint32_t zero = kv_mul(step, 0xce00ce00); /* -24 */
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t c = tile[kv_plane(4 * u + j, r)];
        v[j] = kv_fma(((c & 15) << 6) | (c >> 4) << 22 | 0x4c004c00, step, zero);
    }
    return make_uint4(v[0], v[1], v[2], v[3]);
}

#endif
