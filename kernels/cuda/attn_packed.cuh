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

/* Place, among the 128 of a half, at which the fragments of keys have element j. */
static __device__ __forceinline__ int kv_place(enum kvq_kind k, int j)
{
    const int t = j / 32, e = j % 32;
    /* Step of 16 and number among the lane's four. */
    const int step = k == KVQ_T3 ? e / 16 * 4 + e % 2 * 2 + e % 16 / 8 : e / 4;
    const int i = k == KVQ_T3 ? e % 8 / 2 : e % 4;
    return step * 16 + 2 * t + i % 2 + i / 2 * 8;
}

/* A turned query as fp16 in the order of the keys' fragments; units swizzled by row. */
static __device__ __forceinline__ void kv_store_query(enum kvq_kind k, unsigned char *q, int row,
                                                      const float *x, int lane)
{
    unsigned char *to = q + row * 512;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int j = lane % 16 * 8 + i;
        /* As fp8 keys: elements 4 t ... 4 t + 3 of 16. */
        const int at =
            k == KVQ_B8 ? j / 16 * 16 + j % 16 / 4 * 2 + j % 2 + j % 4 / 2 * 8 : kv_place(k, j);
        const int d = lane / 16 * 128 + at;
        *(uint16_t *)(to + d / 64 * 128 + (((d / 8) ^ row) & 7) * 16 + d % 8 * 2) =
            f16_of_f32(x[i]);
    }
}

/* ---- keys ---- */

/* Two steps of 16 elements: fragments f of two rows, from eight codes each. */
static __device__ __forceinline__ void kv_steps3(uint32_t x, int up, uint32_t (*f)[4])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t lo, hi;
        kv_levels3(x >> 16 * i, &lo, &hi);
        f[i][up] = prmt(lo, hi, 0x5140);
        f[i][up + 2] = prmt(lo, hi, 0x7362);
    }
}

static __device__ __forceinline__ void kv_steps5(uint32_t x, uint32_t signs, int pair, int up,
                                                 uint32_t (*f)[4])
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t lo, hi;
        kv_levels5(x >> 16 * i, &lo, &hi);
        f[i][up] = prmt(lo, hi, 0x5140) ^ (signs << (15 - pair - 2 * i) & 0x80008000);
        f[i][up + 2] = prmt(lo, hi, 0x7362) ^ (signs << (14 - pair - 2 * i) & 0x80008000);
    }
}

/* Queries in shared memory: of tile n at q0 + 4096 n, units swizzled by row. */
struct kv_queries {
    uint32_t q0;
};
/* Or a tile's fragments in registers, two for 16 elements. */
struct kv_query {
    uint32_t f[32];
};

static __device__ __forceinline__ void kv_query_at(const struct kv_queries &q, int n, int i,
                                                   uint32_t *b)
{
    ldmatrix_x4(b, (q.q0 ^ (uint32_t)(i % 2 * 64)) + (uint32_t)(i / 2 * 128 + n * 4096));
}

static __device__ __forceinline__ void kv_query_at(const struct kv_query &q, int n, int i,
                                                   uint32_t *b)
{
    (void)n;
#pragma unroll
    for (int x = 0; x < 4; x++) {
        b[x] = q.f[4 * i + x];
    }
}

/* acc += a tile of 16 keys times the query tiles, over elements 32 i of the row. */
template <int TILES, class Q>
static __device__ __forceinline__ void kv_mma(float (*acc)[4], const uint32_t (*f)[4], const Q &q,
                                              int i)
{
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        uint32_t b[4];
        kv_query_at(q, n, i, b);
        mma_f16(acc[n], f[0], b[0], b[1], acc[n]);
        mma_f16(acc[n], f[1], b[2], b[3], acc[n]);
    }
}

/* s += the rows' scales times what their half gave. */
template <int TILES>
static __device__ __forceinline__ void kv_scaled(float (*s)[4], const float (*acc)[4],
                                                 const unsigned char *scale)
{
    const float a = halves(*(const uint16_t *)scale).x;
    const float b = halves(*(const uint16_t *)(scale + 32)).x; /* eight rows on */
#pragma unroll
    for (int n = 0; n < TILES; n++) {
        s[n][0] = fmaf(acc[n][0], a, s[n][0]);
        s[n][1] = fmaf(acc[n][1], a, s[n][1]);
        s[n][2] = fmaf(acc[n][2], b, s[n][2]);
        s[n][3] = fmaf(acc[n][3], b, s[n][3]);
    }
}

template <int TILES, class Q>
static __device__ __forceinline__ void scores_t3(float (*s)[4], const unsigned char *slot,
                                                 const Q &q, int row, int t)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float acc[TILES][4] = {};
        uint2 lo[2];
        uint32_t hi[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            lo[r] = *(const uint2 *)(slot + h * 2048 + (row + 8 * r) * 32 + 8 * t);
            hi[r] = *(const uint32_t *)(slot + KVL_T3_HI + h * 1024 + (row + 8 * r) * 16 + 4 * t);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) { /* bits i / 2 of words, i % 2 of codes */
            uint32_t f[2][4];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint32_t w = i / 2 ? lo[r].y : lo[r].x;
                const uint32_t third = i < 2 ? hi[r] << (2 - i) : hi[r] >> (i - 2);
                kv_steps3((w >> i % 2 * 2 & 0x33333333) | (third & 0x44444444), r, f);
            }
            kv_mma<TILES>(acc, f, q, 4 * h + i);
        }
        kv_scaled<TILES>(s, acc, slot + KVL_T3_SCALE + row * 4 + 2 * h);
    }
}

template <int TILES, class Q>
static __device__ __forceinline__ void scores_t5(float (*s)[4], const unsigned char *slot,
                                                 const Q &q, int row, int t)
{
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float acc[TILES][4] = {};
        uint4 m[2];
        uint32_t signs[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            m[r] = *(const uint4 *)(slot + h * 4096 + (row + 8 * r) * 64 + 16 * t);
            signs[r] =
                *(const uint32_t *)(slot + KVL_T5_SIGN + h * 1024 + (row + 8 * r) * 16 + 4 * t);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            uint32_t f[2][4];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint32_t w = i == 0 ? m[r].x : i == 1 ? m[r].y : i == 2 ? m[r].z : m[r].w;
                kv_steps5(w, signs[r], 4 * i, r, f);
            }
            kv_mma<TILES>(acc, f, q, 4 * h + i);
        }
        kv_scaled<TILES>(s, acc, slot + KVL_T5_SCALE + row * 4 + 2 * h);
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
        kv_mma<TILES>(s, f, q, i);
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
            scores_t3<TILES>(s[m], slot, q, mine, lane % 4);
        } else if (kv == BE_KV_K5V3) {
            scores_t5<TILES>(s[m], slot, q, mine, lane % 4);
        } else {
            scores_b8<TILES>(s[m], slot, q, mine, lane);
        }
    }
}

/* ---- values ---- */

/* Fragments of 32 elements (those of `warp`, two tiles of 16) of 16 keys, chunk `c` of the
 * slot. Rows g and g + 8 of tile m are elements 16 m + 2 g, 16 m + 2 g + 1, as fp8 has them. */
static __device__ __forceinline__ void values_t3(uint32_t (*f)[4], const unsigned char *slot, int c,
                                                 int warp, int lane)
{
    const int g = lane / 4, t = lane % 4;
    const uint32_t lo = *(const uint32_t *)(slot + kv_plane(8 * warp + g, 16 * c + 4 * t));
    const uint32_t hi =
        *(const uint32_t *)(slot + KVL_T3_HI + kv_plane(4 * warp + g / 2, 16 * c + 4 * t)) >>
        g % 2 * 2;
    const uint2 scale =
        *(const uint2 *)(slot + KVL_T3_SCALE + warp / 4 * 128 + (16 * c + 4 * t) * 2);
#pragma unroll
    for (int up = 0; up < 2; up++) {
        const uint32_t x = (lo >> 2 * up & 0x33333333) | (hi << (2 - up) & 0x44444444);
#pragma unroll
        for (int i = 0; i < 2; i++) { /* keys 4 t, 4 t + 1; 4 t + 2, 4 t + 3 */
            uint32_t l, h;
            kv_levels3(x >> 16 * i, &l, &h);
            f[0][up + 2 * i] = kv_mul(prmt(l, h, 0x6240), i ? scale.y : scale.x);
            f[1][up + 2 * i] = kv_mul(prmt(l, h, 0x7351), i ? scale.y : scale.x);
        }
    }
}

static __device__ __forceinline__ void values_b4(uint32_t (*f)[4], const unsigned char *slot, int c,
                                                 int warp, int lane)
{
    const int g = lane / 4, t = lane % 4, at = 16 * c + 4 * t;
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const uint32_t w = *(const uint32_t *)(slot + kv_plane(16 * warp + 8 * m + g, at));
        const uint32_t e = *(const uint32_t *)(slot + KVL_B4_STEP + (2 * warp + m) * KVL_ROWS + at);
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

/* o += values (32 elements of this warp) * weights, over n keys of the slot (a multiple of
 * 32), key0 ... of the split; l += weights, of the query tiles that the warp has. */
template <int NT, int WARPS, int SUMS>
static __device__ __forceinline__ void packed_values(enum be_kv kv, float (*o)[NT][4],
                                                     float (*l)[4], const unsigned char *slot,
                                                     uint32_t p, int key0, int n_keys, int warp,
                                                     int lane)
{
    /* The key in row j of a step's weights. */
    const int j = lane % 16;
    const int key = j % 8 / 2 * 4 + (kv == BE_KV_K8V4 ? j / 8 + j % 2 * 2 : j / 8 * 2 + j % 2);
    const uint32_t p0 = p + (uint32_t)((key0 + (lane & 16) + key) * 16);
#pragma unroll 1
    for (int k = 0; k < KVL_ROWS && k < n_keys; k += 32) {
        uint32_t f[2][2][4]; /* [step][tile of 16 elements] */
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (kv == BE_KV_K8V4) {
                values_b4(f[i], slot, k / 16 + i, warp, lane);
            } else {
                values_t3(f[i], slot, k / 16 + i, warp, lane);
            }
        }
        weigh_values<NT, SUMS, WARPS>(o, l, f, p0 + (uint32_t)(k * 16), warp);
    }
}

#endif
