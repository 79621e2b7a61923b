#ifndef QUASAR_KERNELS_CUDA_ATTN_CUH
#define QUASAR_KERNELS_CUDA_ATTN_CUH

/*
 * What attention's decode and prefill kernels share: a warp's work on one row of a
 * head (norm, rotation, storing), and where things lie. A lane has the 8 elements
 * 8 lane .. 8 lane + 7 of a row of 256.
 */

#include "kernels/cuda/cu.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row.cuh"

/* What a kernel is made for: its template parameter F8. */
enum { AT_F16, AT_F8, AT_PACKED };

enum {
    AT_D = BE_HEAD_DIM,
    AT_BLOCK = 8192 /* 64 rows of 128 bytes, in the cache and in shared memory */
};

#define AT_ALL 0xffffffffU
/* 1 / sqrt(256) * log2(e): scores become exponents of two. */
#define AT_SCALE (0.0625f * 1.4426950408889634f)

/* The inputs of a layer, as in struct cu_attn. */
struct attn_in {
    const float *proj, *rot, *q_norm, *k_norm;
    size_t ld;
    int col_q, col_k, col_v;
    int q_heads, kv_heads;
    float eps;
    uint8_t *cache;
    size_t page_stride;
};

static inline struct attn_in attn_inputs(const struct cu_batch *b, const struct cu_attn *a)
{
    struct attn_in in = {};
    in.proj = a->proj;
    in.rot = b->rot;
    in.q_norm = a->q_norm;
    in.k_norm = a->k_norm;
    in.ld = a->ld;
    in.col_q = a->col_q;
    in.col_k = a->col_k;
    in.col_v = a->col_v;
    in.q_heads = a->q_heads;
    in.kv_heads = a->kv_heads;
    in.eps = a->eps;
    in.cache = a->cache;
    in.page_stride = a->page_stride;
    return in;
}

/* Decode's launch, otherwise chosen by the shapes where 0: blocks of a multiprocessor,
 * slots of a block's ring, blocks in all, query tiles of a kernel (1, 3, 6, 12), KB that a block
 * has on their way at once. None changes a bit. */
struct attn_tune {
    int per_sm, slots, grid, tiles, flight;
};
cudaError_t attn_decode_tuned(struct cu_ctx *c, const struct cu_batch *b, const struct cu_attn *a,
                              const struct attn_tune *tune);

/* The append alone, of every row; in attn_prefill.cu. */
cudaError_t attn_append(struct cu_ctx *c, const struct cu_batch *b, const struct cu_attn *a);

/* Shared memory that a block may have here. */
static inline cudaError_t attn_smem_limit(const struct cu_ctx *c, int *bytes)
{
#ifdef QUASAR_EMULATE
    *bytes = c->path == CU_SM90 ? 227 << 10 : 99 << 10;
    return cudaSuccess;
#else
    int device = 0;
    (void)c;
    const cudaError_t rc = cudaGetDevice(&device);
    return rc != cudaSuccess
               ? rc
               : cudaDeviceGetAttribute(bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
#endif
}

/* What both refuse. */
static inline cudaError_t attn_check(const struct cu_attn *a)
{
    if (a->kv == BE_KV_F32) {
        return cudaErrorNotSupported;
    }
    const int group = a->kv_heads > 0 ? a->q_heads / a->kv_heads : 0;
    const bool fine = group >= 1 && group <= 8 && group * a->kv_heads == a->q_heads;
    return fine || (a->kv_only && a->kv_heads > 0) ? cudaSuccess : cudaErrorInvalidValue;
}

/* Byte of 16-byte unit u of a row in a head's part of a page; row_bytes 512 or 256. */
static __device__ __forceinline__ uint32_t kv_unit(int row, int u, int row_bytes)
{
    return (uint32_t)((row / 64) * 64 * row_bytes + u / 8 * AT_BLOCK + row % 64 * 128 +
                      ((u ^ row) & 7) * 16);
}

/* The keys (values: which = 1) of a head in a page. */
static __device__ __forceinline__ uint8_t *kv_head(const struct attn_in &in, int page, int which,
                                                   int head, int row_bytes)
{
    return in.cache + (size_t)page * in.page_stride +
           (size_t)(which * in.kv_heads + head) * (size_t)(BE_PAGE * row_bytes);
}

static __device__ __forceinline__ void load8(const float *p, float *x)
{
    const float4 a = __ldcg((const float4 *)p), b = __ldcg((const float4 *)p + 1);
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w;
    x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

/* RMS norm, then the rotation of elements 0..63 (pairs i, i + 32): of the lane's weights
 * n, cosines c and sines z; what lanes 8 and up have of those does not matter. */
static __device__ __forceinline__ void turn_row(float *x, const float *n, const float *c,
                                                const float *z, float eps, int lane)
{
    float s = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        s = fmaf(x[i], x[i], s);
    }
    const float r = rsqrt_approx(fmaf(warp_sum(s), 1.0f / AT_D, eps));
#pragma unroll
    for (int i = 0; i < 8; i++) {
        x[i] = __fmul_rn(__fmul_rn(x[i], r), n[i]);
        const float other = __shfl_xor_sync(AT_ALL, x[i], 4);
        const float side = lane < 4 ? -z[i] : z[i];
        const float turned = fmaf(x[i], c[i], __fmul_rn(other, side));
        x[i] = lane < 8 ? turned : x[i];
    }
}

static __device__ __forceinline__ void load_turn(const float *w, const float *rot, float *n,
                                                 float *c, float *z, int lane)
{
    load8(w + 8 * lane, n);
    load8(rot + 8 * (lane & 3), c);
    load8(rot + 32 + 8 * (lane & 3), z);
}

/* The same with weights w and the row's rot. */
static __device__ __forceinline__ void norm_rotate(float *x, const float *w, const float *rot,
                                                   float eps, int lane)
{
    float n[8], c[8], z[8];
    load_turn(w, rot, n, c, z, lane);
    turn_row(x, n, c, z, eps, lane);
}

static __device__ __forceinline__ uint4 pack_f16(const float *x)
{
    return make_uint4(f16x2_of_f32(x[0], x[1]), f16x2_of_f32(x[2], x[3]), f16x2_of_f32(x[4], x[5]),
                      f16x2_of_f32(x[6], x[7]));
}

static __device__ __forceinline__ uint2 pack_f8(const float *x)
{
    return make_uint2(e4m3x2_of_f32(x[0], x[1]) | (uint32_t)e4m3x2_of_f32(x[2], x[3]) << 16,
                      e4m3x2_of_f32(x[4], x[5]) | (uint32_t)e4m3x2_of_f32(x[6], x[7]) << 16);
}

/* The row's elements in the cache's format at its place there. */
template <bool F8>
static __device__ __forceinline__ void store_kv(uint8_t *head, int row, const float *x, int lane)
{
    if (F8) {
        *(uint2 *)(head + kv_unit(row, lane / 2, 256) + lane % 2 * 8) = pack_f8(x);
    } else {
        *(uint4 *)(head + kv_unit(row, lane, 512)) = pack_f16(x);
    }
}

/*
 * Queries in shared memory: fp16, rows of 32 units, 64 rows in blocks like the
 * cache's. With permuted, each 16 elements are in the order in which the fragments
 * of an fp8 key have them: an 8-bit ldmatrix gives a lane elements 4 t .. 4 t + 3,
 * taken as 2 t, 2 t + 1 and 2 t + 8, 2 t + 9 of the product's sum.
 */
static __device__ __forceinline__ uint32_t q_unit(int row, int u)
{
    return kv_unit(row, u, 512);
}

template <bool PERMUTED>
static __device__ __forceinline__ void store_q(unsigned char *q, int row, const float *x, int lane)
{
    const uint4 v = pack_f16(x);
    if (PERMUTED) {
        const int u = lane & ~1, side = lane % 2 * 8;
        *(uint2 *)(q + q_unit(row, u) + side) = make_uint2(v.x, v.z);
        *(uint2 *)(q + q_unit(row, u + 1) + side) = make_uint2(v.y, v.w);
    } else {
        *(uint4 *)(q + q_unit(row, lane)) = v;
    }
}

/* Four E4M3 as fp16: bytes 0, 1 and 2, 3; or 0, 2 and 1, 3. */
static __device__ __forceinline__ void f8_pairs(uint32_t v, uint32_t *lo, uint32_t *hi)
{
    f16x4_of_e4m3x4(v, lo, hi);
}

static __device__ __forceinline__ void f8_even_odd(uint32_t v, uint32_t *even, uint32_t *odd)
{
    f8_pairs(prmt(v, 0, 0x3120), even, odd);
}

/* Two fp16 as fp32. */
static __device__ __forceinline__ float2 halves(uint32_t v)
{
    __half2 h;
    memcpy((void *)&h, &v, sizeof h);
    return make_float2(__low2float(h), __high2float(h));
}

static __device__ __forceinline__ float at_sigmoid(float x)
{
    return rcp_approx(1 + ex2_approx(-1.4426950408889634f * x));
}

#endif
