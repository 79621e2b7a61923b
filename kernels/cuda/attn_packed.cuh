#ifndef QUASAR_KERNELS_CUDA_ATTN_PACKED_CUH
#define QUASAR_KERNELS_CUDA_ATTN_PACKED_CUH

/*
 * Decode attention over packed keys and values: codes become fragments of MMAs in
 * registers. Planes (kvlayout.h) are such that a lane finds the codes of its rows of a
 * fragment in a word or two; which elements (of keys) or keys (of values) are in which
 * column is its affair, as long as queries (weights) have the same order.
 */

#include "kernels/cuda/attn_kv.cuh"
#include "kernels/cuda/attn_units.cuh"

enum { KV_FRESH = 320 }; /* bytes of a new row's codes in shared memory */

static __device__ __forceinline__ void kv_keep(unsigned char *to, int lane, const struct kv_lane *v)
{
    *(uint2 *)(to + 8 * lane) = make_uint2(v->c[0], v->c[1]);
    *(uint16_t *)(to + 256 + 2 * lane) = (uint16_t)v->scale;
}

static __device__ __forceinline__ struct kv_lane kv_kept(const unsigned char *from, int lane)
{
    const uint2 c = *(const uint2 *)(from + 8 * lane);
    const struct kv_lane v = {{c.x, c.y}, *(const uint16_t *)(from + 256 + 2 * lane)};
    return v;
}

/* Keys of levels are multiplied as whole numbers, 128 h + l with bytes h and l, and queries are
 * made such numbers too, of 14 bits and a sign, by half: the products h h and h l + l h are exact,
 * l l is left out (1e-4 of a score's spread at most). */
static __device__ __forceinline__ bool kv_whole(enum be_kv kv)
{
    return kv == BE_KV_K3V3 || kv == BE_KV_K5V3;
}

/* Queries of a step's rows in shared memory, 512 bytes each, and what scales the sums of their
 * halves: for either half and query, a factor and what is added before. */
struct kv_scale {
    float by, plus;
};

/* 16 bytes of a whole query: h, l of elements 32 t + 8 step ... + 7 of a half. */
static __device__ __forceinline__ int kv_whole_unit(int row, int half, int step, int t)
{
    return row * 512 + ((half * 16 + step * 4 + t) ^ (row & 1) * 4) * 16;
}

static __device__ __forceinline__ void kv_store_whole(enum be_kv kv, unsigned char *q, int row,
                                                      const float *x, struct kv_scale *scale,
                                                      int lane)
{
    float most = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        most = fmaxf(most, fabsf(x[i]));
    }
#pragma unroll
    for (int i = 1; i < 16; i *= 2) {
        most = fmaxf(most, __shfl_xor_sync(AT_ALL, most, i));
    }
    const float by = most > 1e-30f ? __fdiv_rn(16319, most) : 0;
    uint32_t h[2] = {0, 0}, l[2] = {0, 0};
    int sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int n = __float2int_rn(__fmul_rn(x[i], by)), high = (n + 64) >> 7;
        h[i / 4] |= (uint32_t)(high & 255) << i % 4 * 8;
        l[i / 4] |= (uint32_t)((n - 128 * high) & 255) << i % 4 * 8;
        sum += n;
    }
#pragma unroll
    for (int i = 1; i < 16; i *= 2) {
        sum += __shfl_xor_sync(AT_ALL, sum, i);
    }
    *(uint4 *)(q + kv_whole_unit(row, lane / 16, lane % 4, lane % 16 / 4)) =
        make_uint4(h[0], h[1], l[0], l[1]);
    if (lane % 16 == 0) {
        const float level = kv == BE_KV_K3V3 ? KV_I3 : KV_I5;
        scale[lane / 16 * 8].by = __fdiv_rn(__fmul_rn(most, 128), __fmul_rn(16319, level));
        scale[lane / 16 * 8].plus = kv == BE_KV_K3V3 ? 0 : __fmul_rn((float)sum, 64.5f / 128);
    }
}

/* A turned query as the keys' fragments want it; row: of all tiles. scales: of tiles. */
static __device__ __forceinline__ void kv_store_query(enum be_kv kv, unsigned char *q, int row,
                                                      const float *x, struct kv_scale *scale,
                                                      int lane)
{
    if (kv_whole(kv)) {
        kv_store_whole(kv, q, row, x, scale + row / 8 * 16 + row % 8, lane);
        return;
    }
    /* fp16, units swizzled by row; as fp8 keys: elements 4 t ... 4 t + 3 of 16. */
    unsigned char *to = q + row * 512;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int j = lane % 16 * 8 + i;
        const int at = j / 16 * 16 + j % 16 / 4 * 2 + j % 2 + j % 4 / 2 * 8;
        const int d = lane / 16 * 128 + at;
        *(uint16_t *)(to + d / 64 * 128 + (((d / 8) ^ row) & 7) * 16 + d % 8 * 2) =
            f16_of_f32(x[i]);
    }
}

/* ---- keys ---- */

/* Tiles of queries in shared memory, 4,096 bytes and 16 scales each. */
struct kv_queries {
    const unsigned char *q;
    const struct kv_scale *scale;
};
/* Or one tile's fragments in registers, four for 32 elements. */
struct kv_query {
    uint32_t f[32];
    const struct kv_scale *scale;
};

static __device__ __forceinline__ void kv_query_at(enum be_kv kv, const struct kv_queries &q, int n,
                                                   int i, uint32_t *b, int lane)
{
    const unsigned char *tile = q.q + n * 4096;
    if (kv_whole(kv)) {
        const uint4 v = *(const uint4 *)(tile + kv_whole_unit(lane / 4, i / 4, i % 4, lane % 4));
        b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
    } else {
        const int at =
            (lane & 7) * 512 + i / 2 * 128 + ((i % 2 * 4 + (lane >> 3)) ^ (lane & 7)) * 16;
        ldmatrix_x4(b, smem_addr(tile + at));
    }
}

static __device__ __forceinline__ void kv_query_at(enum be_kv kv, const struct kv_query &q, int n,
                                                   int i, uint32_t *b, int lane)
{
    (void)kv, (void)n, (void)lane;
#pragma unroll
    for (int x = 0; x < 4; x++) {
        b[x] = q.f[4 * i + x];
    }
}

/* Sums of a half in whole numbers, by two weights. */
template <int TILES> struct kv_sums {
    int32_t hh[TILES][4], hl[TILES][4];
};

/* sums += a tile of 16 keys, in bytes h and l, times the query tiles, over elements of step i. */
template <int TILES, class Q>
static __device__ __forceinline__ void kv_mma_whole(struct kv_sums<TILES> *sum, const uint32_t *h,
                                                    const uint32_t *l, enum be_kv kv, const Q &q,
                                                    int i, int lane)
{
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        uint32_t b[4];
        kv_query_at(kv, q, n, i, b, lane);
        mma_s8(sum->hh[n], h, b[0], b[1], sum->hh[n]);
        mma_s8(sum->hl[n], h, b[2], b[3], sum->hl[n]);
        mma_s8(sum->hl[n], l, b[0], b[1], sum->hl[n]);
    }
}

/* s += the rows' scales times what their half gave. */
template <int TILES, class Q>
static __device__ __forceinline__ void kv_scaled(float (*s)[4], const struct kv_sums<TILES> *sum,
                                                 const Q &q, int half, const unsigned char *scale,
                                                 int t)
{
    const float a = halves(*(const uint16_t *)scale).x;
    const float b = halves(*(const uint16_t *)(scale + 32)).x; /* eight rows on */
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        const float4 c = *(const float4 *)(q.scale + n * 16 + half * 8 + 2 * t);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float all = (float)(sum->hh[n][i] * 128 + sum->hl[n][i]);
            const float by = __fmul_rn(i < 2 ? a : b, i % 2 ? c.z : c.x);
            s[n][i] = fmaf(__fadd_rn(all, i % 2 ? c.w : c.y), by, s[n][i]);
        }
    }
}

template <int TILES, class Q>
static __device__ __forceinline__ void scores_t3(float (*s)[4], const unsigned char *slot,
                                                 const Q &q, int row, int lane)
{
    const int t = lane % 4;
    uint32_t w[2][6]; /* of rows 8 apart: three of either half */
#pragma unroll
    for (int r = 0; r < 2; r++) {
#pragma unroll
        for (int i = 0; i < 3; i++) {
            const uint2 v = *(const uint2 *)(slot + (row + 8 * r) * KVL_T3_KEY + t * 24 + 8 * i);
            w[r][2 * i] = v.x;
            w[r][2 * i + 1] = v.y;
        }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        struct kv_sums<TILES> sum = {
        };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t h[4], l[4];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint32_t *v = w[r] + 3 * half;
                const uint32_t x = kv_nibbles3(v[0], v[1], v[2], i);
                h[r] = prmt(KV_I3_H0, KV_I3_H1, x);
                l[r] = prmt(KV_I3_L0, KV_I3_L1, x);
                h[r + 2] = prmt(KV_I3_H0, KV_I3_H1, x >> 16);
                l[r + 2] = prmt(KV_I3_L0, KV_I3_L1, x >> 16);
            }
            kv_mma_whole<TILES>(&sum, h, l, BE_KV_K3V3, q, 4 * half + i, lane);
        }
        kv_scaled<TILES>(s, &sum, q, half, slot + KVL_T3_SCALE + row * 4 + 2 * half, t);
    }
}

/* Four magnitudes in nibbles, those with m set negative. */
static __device__ __forceinline__ void kv_levels5_whole(uint32_t x, uint32_t m, uint32_t *h,
                                                        uint32_t *l)
{
    const uint32_t y = x ^ 0x88888888;
    *h = (prmt(KV_I5_H0, KV_I5_H1, x) | prmt(KV_I5_H2, KV_I5_H3, y)) ^ m;
    *l = (prmt(KV_I5_L0, KV_I5_L1, x) | prmt(KV_I5_L2, KV_I5_L3, y)) ^ m;
}

template <int TILES, class Q>
static __device__ __forceinline__ void scores_t5(float (*s)[4], const unsigned char *slot,
                                                 const Q &q, int row, int lane)
{
    const int t = lane % 4;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        struct kv_sums<TILES> sum = {
        };
        uint4 m[2];
        uint32_t signs[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            m[r] = *(const uint4 *)(slot + half * 4096 + (row + 8 * r) * 64 + 16 * t);
            signs[r] =
                *(const uint32_t *)(slot + KVL_T5_SIGN + half * 1024 + (row + 8 * r) * 16 + 4 * t);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t h[4], l[4];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint32_t x = i == 0 ? m[r].x : i == 1 ? m[r].y : i == 2 ? m[r].z : m[r].w;
                /* The sign of each byte, eight times. */
                kv_levels5_whole(x, prmt(signs[r] << 2 * i, 0, 0xba98), &h[r], &l[r]);
                kv_levels5_whole(x >> 16, prmt(signs[r] << (2 * i + 1), 0, 0xba98), &h[r + 2],
                                 &l[r + 2]);
            }
            kv_mma_whole<TILES>(&sum, h, l, BE_KV_K5V3, q, 4 * half + i, lane);
        }
        kv_scaled<TILES>(s, &sum, q, half, slot + KVL_T5_SCALE + row * 4 + 2 * half, t);
    }
}

template <int TILES, class Q>
static __device__ __forceinline__ void scores_b8(float (*s)[4], const unsigned char *slot,
                                                 const Q &q, int row, int lane)
{
    const int first = row - lane / 4;
    const uint32_t k0 =
        smem_addr(slot) + (uint32_t)((first + (lane & 15)) * 128 + (((lane >> 4) ^ lane) & 7) * 16);
    uint4 steps[2];
    steps[0] = *(const uint4 *)(slot + KVL_B8_STEP + row * 16);
    steps[1] = *(const uint4 *)(slot + KVL_B8_STEP + (row + 8) * 16);
#pragma unroll
    for (int i = 0; i < 8; i++) { /* units 2 i, 2 i + 1 */
        uint32_t f[2][4], r[4];
        ldmatrix_x4(r, (k0 ^ (uint32_t)(i % 4 * 32)) + (uint32_t)(i / 4 * AT_BLOCK));
#pragma unroll
        for (int x = 0; x < 4; x++) { /* rows, rows + 8, the next unit's */
            const uint4 w = steps[x % 2];
            const uint32_t byte = (uint32_t)(2 * i + x / 2) % 4;
            const uint32_t step = prmt(i / 2 == 0   ? w.x
                                       : i / 2 == 1 ? w.y
                                       : i / 2 == 2 ? w.z
                                                    : w.w,
                                       0, 0x0404 | byte * 0x1010);
            const uint32_t zero = kv_mul(step, 0xe480e480);
            f[x / 2][x % 2] = kv_fma(prmt(r[x], 0x64646464, 0x4140), step, zero);
            f[x / 2][x % 2 + 2] = kv_fma(prmt(r[x], 0x64646464, 0x4342), step, zero);
        }
#pragma unroll
        for (int n = 0; n < TILES; n++) {
            uint32_t b[4];
            kv_query_at(BE_KV_K8V4, q, n, i, b, lane);
            mma_f16(s[n], f[0], b[0], b[1], s[n]);
            mma_f16(s[n], f[1], b[2], b[3], s[n]);
        }
    }
}

/* s += keys (16 to a tile) * queries. row: of the slot, the warp's first. */
template <int KEYS, int TILES, class Q>
static __device__ __forceinline__ void packed_scores(enum be_kv kv, float (*s)[TILES][4],
                                                     const unsigned char *slot, const Q &q, int row,
                                                     int lane)
{
#pragma unroll
    for (int m = 0; m < KEYS; m++) {
        const int mine = row + 16 * m + lane / 4;
        if (kv == BE_KV_K3V3) {
            scores_t3<TILES>(s[m], slot, q, mine, lane);
        } else if (kv == BE_KV_K5V3) {
            scores_t5<TILES>(s[m], slot, q, mine, lane);
        } else {
            scores_b8<TILES>(s[m], slot, q, mine, lane);
        }
    }
}

/* ---- values ---- */

/* What a lane needs of a slot's values: words of 16 keys each, of which it has four. */
struct kv_words {
    uint4 a, b;          /* T3: low bits, third bits; B4: of both tiles */
    uint4 scale, scale2; /* T3: fp16 of keys; B4: steps of both tiles */
};

static __device__ __forceinline__ uint32_t kv_word(uint4 v, int c)
{
    return c == 0 ? v.x : c == 1 ? v.y : c == 2 ? v.z : v.w;
}

static __device__ __forceinline__ struct kv_words kv_load_values(enum be_kv kv,
                                                                 const unsigned char *slot,
                                                                 int warp, int lane)
{
    const int g = lane / 4, t = lane % 4;
    struct kv_words w;
    slot += 16 * t;
    if (kv == BE_KV_K8V4) {
        w.a = *(const uint4 *)(slot + (16 * warp + g) * KVL_ROWS);
        w.b = *(const uint4 *)(slot + (16 * warp + 8 + g) * KVL_ROWS);
        w.scale = *(const uint4 *)(slot + KVL_B4_STEP + 2 * warp * KVL_ROWS);
        w.scale2 = *(const uint4 *)(slot + KVL_B4_STEP + (2 * warp + 1) * KVL_ROWS);
    } else {
        const unsigned char *scale = slot + KVL_T3_SCALE + warp / 4 * 128 + 16 * t;
        w.a = *(const uint4 *)(slot + (8 * warp + g) * KVL_ROWS);
        w.b = *(const uint4 *)(slot + KVL_T3_HI + (4 * warp + g / 2) * KVL_ROWS);
        w.scale = *(const uint4 *)scale;
        w.scale2 = *(const uint4 *)(scale + 16);
    }
    return w;
}

/* Fragments of 32 elements (those of `warp`, two tiles of 16) of 16 keys, chunk `c` of the
 * slot. Rows g and g + 8 of tile m are elements 16 m + 2 g, 16 m + 2 g + 1, as fp8 has them.
 * The scales are the weights' affair. */
static __device__ __forceinline__ void values_t3(uint32_t (*f)[4], const struct kv_words &w, int c,
                                                 int lane)
{
    const uint32_t lo = kv_word(w.a, c), hi = kv_word(w.b, c) >> (lane / 4 % 2 * 2);
#pragma unroll
    for (int up = 0; up < 2; up++) {
        const uint32_t x = (lo >> 2 * up & 0x33333333) | (hi << (2 - up) & 0x44444444);
#pragma unroll
        for (int i = 0; i < 2; i++) { /* keys 4 t, 4 t + 1; 4 t + 2, 4 t + 3 */
            uint32_t l, h;
            kv_levels3(x >> 16 * i, &l, &h);
            f[0][up + 2 * i] = prmt(l, h, 0x6240);
            f[1][up + 2 * i] = prmt(l, h, 0x7351);
        }
    }
}

static __device__ __forceinline__ void values_b4(uint32_t (*f)[4], const struct kv_words &v, int c)
{
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const uint32_t w = kv_word(m ? v.b : v.a, c), e = kv_word(m ? v.scale2 : v.scale, c);
#pragma unroll
        for (int i = 0; i < 2; i++) { /* keys 4 t, 4 t + 2; 4 t + 1, 4 t + 3 */
            const uint32_t step = prmt(e, 0, i ? 0x3414 : 0x2404);
            const uint32_t zero = kv_mul(step, 0xce00ce00);
            const uint32_t even = i ? w >> 2 : w << 6, odd = i ? w >> 6 : w << 2;
            f[m][2 * i] = kv_fma((even & 0x03c003c0) | 0x4c004c00, step, zero);
            f[m][2 * i + 1] = kv_fma((odd & 0x03c003c0) | 0x4c004c00, step, zero);
        }
    }
}

/* The key of 32 whose weights lane `lane` names to ldmatrix. */
static __device__ __forceinline__ int kv_weight_row(enum be_kv kv, int lane)
{
    const int j = lane % 16;
    return (lane & 16) + j % 8 / 2 * 4 + (kv == BE_KV_K8V4 ? j / 8 + j % 2 * 2 : j / 8 * 2 + j % 2);
}

/* weigh_values, with weights times the keys' scales (of the lane's four of 16, twice). */
template <int NT, int SUMS, int WARPS>
static __device__ __forceinline__ void weigh_scaled(float (*o)[NT][4], float (*l)[4],
                                                    const uint32_t (&f)[2][2][4], uint32_t p,
                                                    uint4 scale, int warp)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, p + (uint32_t)(n * 2048));
        b[0] = kv_mul(b[0], scale.x);
        b[1] = kv_mul(b[1], scale.y);
        b[2] = kv_mul(b[2], scale.z);
        b[3] = kv_mul(b[3], scale.w);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            mma_f16(o[m][n], f[0][m], b[0], b[1], o[m][n]);
            mma_f16(o[m][n], f[1][m], b[2], b[3], o[m][n]);
        }
    }
    sum_weights<NT, SUMS, WARPS>(l, p, warp);
}

/* o += values (32 elements of this warp) * weights, over n keys of the slot (a multiple of
 * 32), key0 ... of the split; l += weights, of the query tiles that the warp has. */
template <int NT, int WARPS, int SUMS>
static __device__ __forceinline__ void packed_values(enum be_kv kv, float (*o)[NT][4],
                                                     float (*l)[4], const unsigned char *slot,
                                                     uint32_t p, int key0, int n_keys, int warp,
                                                     int lane)
{
    const uint32_t p0 = p + (uint32_t)((key0 + kv_weight_row(kv, lane)) * 16);
    const struct kv_words w = kv_load_values(kv, slot, warp, lane);
#pragma unroll
    for (int k = 0; k < KVL_ROWS; k += 32) {
        if (k >= n_keys) {
            break;
        }
        uint32_t f[2][2][4]; /* [step][tile of 16 elements] */
        if (kv == BE_KV_K8V4) {
            values_b4(f[0], w, k / 16);
            values_b4(f[1], w, k / 16 + 1);
            weigh_values<NT, SUMS, WARPS>(o, l, f, p0 + (uint32_t)(k * 16), warp);
        } else {
            values_t3(f[0], w, k / 16, lane);
            values_t3(f[1], w, k / 16 + 1, lane);
            const uint4 scale = k ? w.scale2 : w.scale;
            weigh_scaled<NT, SUMS, WARPS>(o, l, f, p0 + (uint32_t)(k * 16), scale, warp);
        }
    }
}

#endif
