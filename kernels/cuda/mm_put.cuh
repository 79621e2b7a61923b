#ifndef QUASAR_KERNELS_CUDA_MM_PUT_CUH
#define QUASAR_KERNELS_CUDA_MM_PUT_CUH

/* What the two kernels of the weight-streaming product share around the stream itself: a
 * product's arguments, the factors of the norm on its input, and how a tile's sums are
 * brought together and finished. */
#include "kernels/cuda/mm_plan.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row.cuh"

enum {
    MM_X_STEP = 128, /* bytes of a step in a row of activations */
    MM_LANES = 32
};
#define MM_ALL 0xffffffffu

struct mm_mat {
    const float *row_scale;
    int tile0, rows, col0;
};

/* One product, as kernels see it. */
struct mm_op {
    const struct mm_run *run;
    const struct mm_phase *phase;
    const struct mm_block *block;
    const uint16_t *x;
    const float *sum;
    const float *ss, *in_power; /* of the input's norm, or NULL */
    const float *resid_ss;
    int n_blocks, tiles;
    int k;         /* inputs */
    int ss_groups; /* 64s of the norm on the input */
    int resid_groups;
    float inv_norm_k, inv_hidden, eps;
    int out;        /* enum cu_mm_out */
    int ld;         /* of y, or of the activations that are written */
    uint32_t x_row; /* bytes from a row of activations in shared memory to the next */
    float *y;
    uint16_t *act_x;
    float *act_sum;
    float *resid_x, *resid_ss_out, *power;
    const float *next_norm;
    uint32_t *counter;
    void *part; /* [slot][CU_ROWS]: contributions; on sm_80 of 64 floats, on sm_90 of 32 times
                   two words of 8 bytes, value and ticket */
    struct mm_mat mat[MM_MATS];
};

static __device__ __forceinline__ int4 run_word(const struct mm_run *r, int i)
{
    return ((const int4 *)r)[i];
}

static __device__ __forceinline__ uint64_t word_src(int4 w)
{
    return (uint64_t)(uint32_t)w.y << 32 | (uint32_t)w.x;
}

/* ---- before the runs: everything that earlier products wrote is read past L1, which may
 * hold what was there before ---- */

/* A thread's part of the sum of squares of row threadIdx % 16, added to that of the
 * other half of its warp: of the W warps, W numbers a row remain. */
template <int W>
static __device__ __forceinline__ float row_part(const float *ss, int groups, int count)
{
    const int row = threadIdx.x % CU_ROWS;
    float s = 0;
    if (row < count) {
#pragma unroll 5
        for (int i = threadIdx.x / CU_ROWS; i < groups; i += W * MM_LANES / CU_ROWS) {
            s += ld_l2_f32(ss + i * CU_ROWS + row);
        }
    }
    return s + __shfl_xor_sync(MM_ALL, s, 16);
}

static __device__ __forceinline__ float row_rstd(const float *part, int warps, int row, float inv_k,
                                                 float eps)
{
    float s = 0;
    for (int i = 0; i < warps; i++) {
        s += part[i * CU_ROWS + row];
    }
    return 1 / sqrtf(s * inv_k + eps);
}

static __device__ __forceinline__ float2 l2_float2(const float *p)
{
    const uint2 v = ld_l2_8(p);
    return make_float2(__uint_as_float(v.x), __uint_as_float(v.y));
}

/* A thread's share of a phase's offsets, [step][n-tile][t]: loaded, then put as two
 * columns' -1032 and -1152 times the sum. */
template <int Q> struct offsets {
    float2 sum[Q];
};

template <int NT, int W, int Q>
static __device__ __forceinline__ void offsets_load(struct offsets<Q> &o, const struct mm_op &a,
                                                    int count, int k0, int n)
{
#pragma unroll
    for (int q = 0; q < Q; q++) {
        const int i = (int)threadIdx.x + q * W * MM_LANES, col = i % (NT * 4) * 2;
        o.sum[q] = make_float2(0, 0);
        if (i < n * NT * 4 && col < count) {
            const float *s = a.sum + (size_t)(k0 + i / (NT * 4)) * 2 * CU_ROWS + col;
            const float2 lo = l2_float2(s), hi = l2_float2(s + CU_ROWS);
            o.sum[q] = make_float2(lo.x + hi.x, col + 1 < count ? lo.y + hi.y : 0);
        }
    }
}

template <int NT, int W, int Q>
static __device__ __forceinline__ void offsets_put(const struct offsets<Q> &o, int n, uint8_t *to)
{
#pragma unroll
    for (int q = 0; q < Q; q++) {
        const int i = (int)threadIdx.x + q * W * MM_LANES;
        if (i < n * NT * 4) {
            const float2 v = o.sum[q];
            ((float4 *)to)[i] = make_float4(-1032 * v.x, -1032 * v.y, -1152 * v.x, -1152 * v.y);
        }
    }
}

/* ---- after a run ---- */

/* A lane's rows of a tile: of row block 2 (lane / 16) + lane % 2, g = lane % 16 / 2 and
 * g + 8. */
static __device__ __forceinline__ int lane_row(int lane)
{
    return (2 * (lane / 16) + lane % 2) * 16 + lane % 16 / 2;
}

/* Sums over each half of the warp and over all of it, of eight batch rows side by side;
 * every lane has them. */
static __device__ __forceinline__ void halves(float (&v)[8])
{
#pragma unroll
    for (int i = 8; i > 0; i /= 2) {
#pragma unroll
        for (int c = 0; c < 8; c++) {
            v[c] += __shfl_xor_sync(MM_ALL, v[c], i);
        }
    }
}

static __device__ __forceinline__ void wholes(float (&v)[8])
{
#pragma unroll
    for (int c = 0; c < 8; c++) {
        v[c] += __shfl_xor_sync(MM_ALL, v[c], 16);
    }
    halves(v);
}

/* Batch rows first ..: pairs of gate and up. */
static __device__ __forceinline__ void put_silu(const struct mm_op &a, int tile, int first,
                                                int count, int lane, const float2 (&v)[8])
{
    const int row = tile * 32 + lane_row(lane) / 16 * 8 + lane % 16 / 2;
    float s[8];
#pragma unroll
    for (int c = 0; c < 8; c++) {
        const uint16_t h = f16_of_f32(v[c].x / (1 + expf(-v[c].x)) * v[c].y);
        if (first + c < count) {
            a.act_x[(size_t)(first + c) * a.ld + row] = h;
        }
        s[c] = half_of(h);
    }
    wholes(s);
#pragma unroll
    for (int c = 0; c < 8; c++) {
        if (lane == c && first + c < count) {
            a.act_sum[tile * CU_ROWS + first + c] = s[c];
        }
    }
}

static __device__ __forceinline__ void put_resid(const struct mm_op &a, int tile, int first,
                                                 int count, int lane, const float2 (&v)[8],
                                                 const float2 (&old)[8], float2 norm, float power)
{
    const int row = tile * 64 + lane_row(lane);
    float ss[8], s[8];
#pragma unroll
    for (int c = 0; c < 8; c++) {
        const float p = __shfl_sync(MM_ALL, power, first + c);
        const float x0 = old[c].x + v[c].x, x1 = old[c].y + v[c].y;
        const uint16_t h0 = f16_of_f32(x0 * norm.x * p), h1 = f16_of_f32(x1 * norm.y * p);
        if (first + c < count) {
            float *x = a.resid_x + (size_t)(first + c) * a.ld + row;
            x[0] = x0;
            x[8] = x1;
            a.act_x[(size_t)(first + c) * a.ld + row] = h0;
            a.act_x[(size_t)(first + c) * a.ld + row + 8] = h1;
        }
        ss[c] = fmaf(x0, x0, x1 * x1);
        s[c] = half_of(h0) + half_of(h1);
    }
    /* lanes 0..15 have the first 32 rows, the others the second */
    wholes(ss);
    halves(s);
#pragma unroll
    for (int c = 0; c < 8; c++) {
        if (first + c < count) {
            if (lane % 16 == c) {
                a.act_sum[(2 * tile + lane / 16) * CU_ROWS + first + c] = s[c];
            }
            if (lane == c) {
                a.resid_ss_out[tile * CU_ROWS + first + c] = ss[c];
            }
        }
    }
    if (tile == 0 && lane >= first && lane < first + 8 && lane < count) {
        a.power[lane] = power;
    }
}

static __device__ __forceinline__ void put_store(const struct mm_op &a, const struct mm_mat &m,
                                                 int tile, int first, int count, int lane,
                                                 const float2 (&v)[8])
{
    const int row = (tile - m.tile0) * 64 + lane_row(lane);
    float *y = a.y + (size_t)first * a.ld + m.col0;
#pragma unroll
    for (int c = 0; c < 8; c++) {
        if (row < m.rows && first + c < count) {
            y[(size_t)c * a.ld + row] = v[c].x;
        }
        if (row + 8 < m.rows && first + c < count) {
            y[(size_t)c * a.ld + row + 8] = v[c].y;
        }
    }
}

/* What a warp that finishes batch rows knows of them: lane r % 16 of row r. */
struct factors {
    float owed;  /* by the norm on the input */
    float power; /* of the new state */
};

/* What a run's words say. */
struct run_at {
    int kind, tile, slot, slot0;
    uint32_t meta;
};

/* What finishing eight batch rows of a tile needs beside their sums; asked for early. */
struct before {
    float2 old[8], scale, norm;
};

static __device__ __forceinline__ void before_load(struct before &b, const struct mm_op &a,
                                                   const struct run_at &at, int first, int count,
                                                   int lane)
{
    const struct mm_mat &m = a.mat[MM_META_MAT(at.meta)];
    const int row = at.tile * 64 + lane_row(lane);
    b.scale = make_float2(1, 1);
    b.norm = make_float2(0, 0);
    if (m.row_scale) {
        const float *s = m.row_scale + row - m.tile0 * 64;
        b.scale = make_float2(s[0], s[8]);
    }
    if (a.next_norm) {
        b.norm = make_float2(a.next_norm[row], a.next_norm[row + 8]);
    }
#pragma unroll
    for (int c = 0; c < 8; c++) {
        b.old[c] = make_float2(0, 0);
        if (a.out == CU_MM_RESIDUAL && first + c < count) {
            const float *x = a.resid_x + (size_t)(first + c) * a.ld + row;
            b.old[c] = make_float2(ld_l2_f32(x), ld_l2_f32(x + 8));
        }
    }
}

/* Finishes eight batch rows of a tile from `first`, whose sums over K are v. */
static __device__ __forceinline__ void finish(const struct mm_op &a, const struct run_at &at,
                                              int count, int first, int lane, struct factors f,
                                              const struct before &b, float2 (&v)[8])
{
    const int tile = at.tile;
    const struct mm_mat &m = a.mat[MM_META_MAT(at.meta)];
#pragma unroll
    for (int c = 0; c < 8; c++) {
        const float owed = __shfl_sync(MM_ALL, f.owed, first + c);
        v[c].x *= b.scale.x * owed;
        v[c].y *= b.scale.y * owed;
    }
    if (a.out == CU_MM_RESIDUAL || a.out == CU_MM_START) {
        put_resid(a, tile, first, count, lane, v, b.old, b.norm, f.power);
    } else if (a.out == CU_MM_SILU) {
        put_silu(a, tile, first, count, lane, v);
    } else {
        put_store(a, m, tile, first, count, lane, v);
    }
}

/* The accumulators of a warp into its part of the exchange area: by batch row, in it by
 * (row block / 2, g, row block % 2, row / 8 % 2). */
template <int NT>
static __device__ __forceinline__ void exchange_put(float *area, const float (*acc)[NT][4],
                                                    int lane)
{
    float *to = area + lane % 4 * 2 * MM_COL + lane / 4 * 4;
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                *(float4 *)(to + (8 * n + e) * MM_COL + h * 32) =
                    make_float4(acc[2 * h][n][e], acc[2 * h][n][2 + e], acc[2 * h + 1][n][e],
                                acc[2 * h + 1][n][2 + e]);
            }
        }
    }
}

/* 32 runs of the block's list, one to a lane, so that the next is always at hand. */
struct run_words {
    int base;
    int4 w0, w1;
};

static __device__ __forceinline__ void words_load(struct run_words &w, const struct mm_run *run,
                                                  int base, int n, int lane)
{
    w.base = base;
    w.w0 = w.w1 = make_int4(0, 0, 0, 0);
    if (base + lane < n) {
        w.w0 = run_word(run + base + lane, 0);
        w.w1 = run_word(run + base + lane, 1);
    }
}

/* The owed factors and powers from the parts of the sums of squares. */
template <int W>
static __device__ __forceinline__ struct factors factors_of(const struct mm_op &a, int lane,
                                                            int count, const float *sums)
{
    struct factors f = {1, 1};
    const int row = lane % CU_ROWS;
    if (a.ss && row < count) {
        f.owed = row_rstd(sums, W, row, a.inv_norm_k, a.eps) / ld_l2_f32(a.in_power + row);
    }
    if (a.out == CU_MM_RESIDUAL && row < count) {
        f.power = near_power(row_rstd(sums + W * CU_ROWS, W, row, a.inv_hidden, a.eps));
    }
    return f;
}

/* A run's words by the lane that holds them. */
static __device__ __forceinline__ struct run_at run_of(const struct run_words &w, int r)
{
    struct run_at at;
    at.kind = __shfl_sync(MM_ALL, w.w0.w, r % MM_LANES);
    at.tile = __shfl_sync(MM_ALL, w.w1.x, r % MM_LANES);
    at.slot = __shfl_sync(MM_ALL, w.w1.y, r % MM_LANES);
    at.slot0 = __shfl_sync(MM_ALL, w.w1.z, r % MM_LANES);
    at.meta = (uint32_t)__shfl_sync(MM_ALL, w.w1.w, r % MM_LANES);
    return at;
}

/* v += the streaming warps' sums of batch rows first and up, in the order of the W areas of
 * the exchange. */
template <int NT, int W, int N>
static __device__ __forceinline__ void sum_take(float2 (&v)[N], const float *exchange, int kind,
                                                int first, int count, int lane)
{
    const float up = kind == CU_W4 ? 0.0625f : 1;
#pragma unroll
    for (int c = 0; c < N; c++) {
        if (first + c < count) {
            const float *from = exchange + (first + c) * MM_COL + lane * 2;
            float2 sum = {0, 0};
#pragma unroll
            for (int i = 0; i < W; i++) {
                const float2 t = *(const float2 *)(from + i * (8 * NT * MM_COL));
                sum.x += t.x;
                sum.y += t.y;
            }
            v[c].x += sum.x;
            v[c].y += sum.y * up;
        }
    }
}

#endif
