#ifndef QUASAR_KERNELS_CUDA_MM_PUT_CUH
#define QUASAR_KERNELS_CUDA_MM_PUT_CUH

/* What the two kernels of the weight-streaming product share around the stream itself: a
 * product's arguments, and how a tile's sums are brought together and finished. */
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

/* What the links of a chain hand to each other: words of 8 bytes, value and ticket, which
 * a reader looks at until it finds the ticket of the link that writes them. NULL: what is
 * read or written comes from, or goes to, another launch, as plain values. */
struct mm_words {
    const uint2 *x;                    /* [row][ld]: pairs of inputs */
    const uint2 *ss, *power;           /* of the norm on the input: [64s][CU_ROWS], [CU_ROWS] */
    const uint2 *old, *resid_ss;       /* the state before: [row][ld], and its sums */
    uint2 *out;                        /* [row][ld]: pairs of activations, or values of STORE */
    uint2 *resid, *ss_out, *power_out; /* the new state */
    int ld;                            /* words from a row to the next */
    uint32_t x_at, ss_at, old_at;      /* the links that write x; ss, power; old, resid_ss */
    bool plain;                        /* the new state is also written plainly */
};

/* One product, as kernels see it. */
struct mm_op {
    struct mm_words w;
    const struct mm_run *run;
    const struct mm_phase *phase;
    const struct mm_block *block;
    const struct mm_finish *finish;
    const uint16_t *x;
    const float *sum;
    const float *ss, *in_power; /* of the input's norm, or NULL */
    const float *resid_ss;
    int n_blocks, n_finish;
    int k;         /* inputs */
    int ss_groups; /* 64s of the norm on the input */
    int resid_groups;
    float inv_norm_k, inv_hidden, eps;
    int out;        /* enum cu_mm_out */
    int ld;         /* of y, or of the activations that are written */
    uint32_t x_row; /* bytes from a row of activations in shared memory to the next */
    float *y;
    uint16_t *act_x;
    float *act_sum; /* NULL: not wanted */
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

/* ---- after a run ---- */

/* A lane's rows of a tile: of row block 2 (lane / 16) + lane % 2, g = lane % 16 / 2 and
 * g + 8. */
static __device__ __forceinline__ int lane_row(int lane)
{
    return (2 * (lane / 16) + lane % 2) * 16 + lane % 16 / 2;
}

/* Sums over each half of the warp and over all of it, of N batch rows side by side;
 * every lane has them. */
template <int N> static __device__ __forceinline__ void halves(float (&v)[N])
{
#pragma unroll
    for (int i = 8; i > 0; i /= 2) {
#pragma unroll
        for (int c = 0; c < N; c++) {
            v[c] += __shfl_xor_sync(MM_ALL, v[c], i);
        }
    }
}

template <int N> static __device__ __forceinline__ void wholes(float (&v)[N])
{
#pragma unroll
    for (int c = 0; c < N; c++) {
        v[c] += __shfl_xor_sync(MM_ALL, v[c], 16);
    }
    halves(v);
}

/* A word's value, once it is there. */
static __device__ __forceinline__ float word_value(uint2 w, const uint2 *from, uint32_t ticket)
{
    while (w.y != ticket) {
        look_again();
        w = ld_word(from);
    }
    return __uint_as_float(w.x);
}

/* Two activations, inputs k and k + 1 of the next product. */
static __device__ __forceinline__ void put_pair(const struct mm_op &a, int batch_row, int k,
                                                uint16_t lo, uint16_t hi, uint32_t ticket)
{
    const uint32_t v = (uint32_t)hi << 16 | lo;
    if (a.w.out) {
        st_word(a.w.out + (size_t)batch_row * a.w.ld + k / 2, v, ticket);
    } else {
        *(uint32_t *)(a.act_x + (size_t)batch_row * a.ld + k) = v;
    }
}

/* Batch rows first .., N of them: pairs of gate and up. Lanes that differ in bit 1 have
 * neighbours. */
template <int N>
static __device__ __forceinline__ void put_silu(const struct mm_op &a, int tile, int first,
                                                int count, int lane, const float2 *v,
                                                uint32_t ticket)
{
    const int row = tile * 32 + lane_row(lane) / 16 * 8 + lane % 16 / 2;
    const bool odd = lane & 2;
    uint32_t h[N + 1];
    h[N] = 0;
#pragma unroll
    for (int c = 0; c < N; c++) {
        h[c] = f16_of_f32(v[c].x / (1 + expf(-v[c].x)) * v[c].y);
    }
#pragma unroll
    for (int c = 0; c < N; c += 2) {
        if (first + c < count) {
            const uint32_t other = __shfl_xor_sync(MM_ALL, odd ? h[c] : h[c + 1], 2);
            const int to = first + c + (odd ? 1 : 0);
            if (to < count && (c + 1 < N || !odd)) {
                put_pair(a, to, row & ~1, (uint16_t)(odd ? other : h[c]),
                         (uint16_t)(odd ? h[c + 1] : other), ticket);
            }
        }
    }
    if (a.act_sum) {
        float s[N];
#pragma unroll
        for (int c = 0; c < N; c++) {
            s[c] = half_of((uint16_t)h[c]);
        }
        wholes(s);
#pragma unroll
        for (int c = 0; c < N; c++) {
            if (lane == c && first + c < count) {
                a.act_sum[tile * CU_ROWS + first + c] = s[c];
            }
        }
    }
}

template <int N>
static __device__ __forceinline__ void put_resid(const struct mm_op &a, int tile, int first,
                                                 int count, int lane, const float2 *v,
                                                 const float2 *old, float2 norm, float power,
                                                 uint32_t ticket)
{
    const int row = tile * 64 + lane_row(lane);
    const bool odd = lane & 2;
    float ss[N], s[N];
#pragma unroll
    for (int c = 0; c < N; c++) {
        const float p = __shfl_sync(MM_ALL, power, first + c);
        const float x0 = old[c].x + v[c].x, x1 = old[c].y + v[c].y;
        const uint16_t h0 = f16_of_f32(x0 * norm.x * p), h1 = f16_of_f32(x1 * norm.y * p);
        ss[c] = fmaf(x0, x0, x1 * x1);
        s[c] = half_of(h0) + half_of(h1);
        if (first + c < count) {
            const uint32_t other = __shfl_xor_sync(MM_ALL, (uint32_t)(odd ? h0 : h1), 2);
            put_pair(a, first + c, odd ? row + 7 : row, (uint16_t)(odd ? other : h0),
                     (uint16_t)(odd ? h1 : other), ticket);
            if (a.w.resid) {
                uint2 *to = a.w.resid + (size_t)(first + c) * a.w.ld + row;
                st_word(to, __float_as_uint(x0), ticket);
                st_word(to + 8, __float_as_uint(x1), ticket);
            }
            if (a.w.plain) {
                float *x = a.resid_x + (size_t)(first + c) * a.ld + row;
                x[0] = x0;
                x[8] = x1;
            }
        }
    }
    wholes(ss);
    if (a.act_sum) { /* lanes 0..15 have the first 32 rows, the others the second */
        halves(s);
    }
#pragma unroll
    for (int c = 0; c < N; c++) {
        const int at = first + c;
        if (at < count) {
            if (a.act_sum && lane % 16 == c) {
                a.act_sum[(2 * tile + lane / 16) * CU_ROWS + at] = s[c];
            }
            if (lane == c && a.w.ss_out) {
                st_word(a.w.ss_out + tile * CU_ROWS + at, __float_as_uint(ss[c]), ticket);
            }
            if (lane == c && a.w.plain) {
                a.resid_ss_out[tile * CU_ROWS + at] = ss[c];
            }
        }
    }
    if (tile == 0 && lane >= first && lane < first + N && lane < count) {
        if (a.w.power_out) {
            st_word(a.w.power_out + lane, __float_as_uint(power), ticket);
        }
        if (a.w.plain) {
            a.power[lane] = power;
        }
    }
}

template <int N>
static __device__ __forceinline__ void put_store(const struct mm_op &a, const struct mm_mat &m,
                                                 int tile, int first, int count, int lane,
                                                 const float2 *v, uint32_t ticket)
{
    const int row = (tile - m.tile0) * 64 + lane_row(lane);
#pragma unroll
    for (int c = 0; c < N; c++) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float value = h ? v[c].y : v[c].x;
            const int at = m.col0 + row + 8 * h;
            if (row + 8 * h < m.rows && first + c < count) {
                if (a.w.out) {
                    st_word(a.w.out + (size_t)(first + c) * a.w.ld + at, __float_as_uint(value),
                            ticket);
                } else {
                    a.y[(size_t)(first + c) * a.ld + at] = value;
                }
            }
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
    uint2 ticket[8]; /* of the old state's words */
};

/* Scales of a tile's rows. */
static __device__ __forceinline__ void before_scale(struct before &b, const struct mm_op &a,
                                                    int tile, int mat, int lane)
{
    const struct mm_mat &m = a.mat[mat];
    b.scale = make_float2(1, 1);
    if (m.row_scale) {
        const float *s = m.row_scale + (tile - m.tile0) * 64 + lane_row(lane);
        b.scale = make_float2(s[0], s[8]);
    }
}

/* The next norm's weights of a tile's rows. */
static __device__ __forceinline__ void before_norm(struct before &b, const struct mm_op &a,
                                                   int tile, int lane)
{
    const int row = tile * 64 + lane_row(lane);
    b.norm = make_float2(0, 0);
    if (a.next_norm) {
        b.norm = make_float2(a.next_norm[row], a.next_norm[row + 8]);
    }
}

/* Asks for the old state of N batch rows; before_settle has it. */
template <int N>
static __device__ __forceinline__ void before_ask(struct before &b, const struct mm_op &a, int tile,
                                                  int first, int count, int lane,
                                                  uint32_t old_ticket)
{
    const int row = tile * 64 + lane_row(lane);
#pragma unroll
    for (int c = 0; c < N; c++) {
        b.old[c] = make_float2(0, 0);
        b.ticket[c] = make_uint2(old_ticket, old_ticket);
        if (a.out != CU_MM_RESIDUAL || first + c >= count) {
            continue;
        }
        if (a.w.old) {
            const uint2 *from = a.w.old + (size_t)(first + c) * a.w.ld + row;
            const uint2 w0 = ld_word(from), w1 = ld_word(from + 8);
            b.old[c] = make_float2(__uint_as_float(w0.x), __uint_as_float(w1.x));
            b.ticket[c] = make_uint2(w0.y, w1.y);
        } else {
            const float *x = a.resid_x + (size_t)(first + c) * a.ld + row;
            b.old[c] = make_float2(ld_l2_f32(x), ld_l2_f32(x + 8));
        }
    }
}

template <int N>
static __device__ __forceinline__ void before_settle(struct before &b, const struct mm_op &a,
                                                     int tile, int first, int count, int lane,
                                                     uint32_t old_ticket)
{
    if (a.out == CU_MM_RESIDUAL && a.w.old) {
        const uint2 *from = a.w.old + (size_t)first * a.w.ld + tile * 64 + lane_row(lane);
#pragma unroll
        for (int c = 0; c < N; c++) {
            if (first + c < count) {
                const uint2 *at_c = from + (size_t)c * a.w.ld;
                const uint2 w0 = {__float_as_uint(b.old[c].x), b.ticket[c].x};
                const uint2 w1 = {__float_as_uint(b.old[c].y), b.ticket[c].y};
                b.old[c] = make_float2(word_value(w0, at_c, old_ticket),
                                       word_value(w1, at_c + 8, old_ticket));
            }
        }
    }
}

template <int N>
static __device__ __forceinline__ void before_load(struct before &b, const struct mm_op &a,
                                                   int tile, int mat, int first, int count,
                                                   int lane, uint32_t old_ticket)
{
    before_scale(b, a, tile, mat, lane);
    before_norm(b, a, tile, lane);
    before_ask<N>(b, a, tile, first, count, lane, old_ticket);
    before_settle<N>(b, a, tile, first, count, lane, old_ticket);
}

/* Finishes N batch rows of a tile from `first`, whose sums over K are v. */
template <int N>
static __device__ __forceinline__ void finish(const struct mm_op &a, int tile, int mat, int count,
                                              int first, int lane, struct factors f,
                                              const struct before &b, float2 *v, uint32_t ticket)
{
#pragma unroll
    for (int c = 0; c < N; c++) {
        const float owed = __shfl_sync(MM_ALL, f.owed, first + c);
        v[c].x *= b.scale.x * owed;
        v[c].y *= b.scale.y * owed;
    }
    if (a.out == CU_MM_RESIDUAL || a.out == CU_MM_START) {
        put_resid<N>(a, tile, first, count, lane, v, b.old, b.norm, f.power, ticket);
    } else if (a.out == CU_MM_SILU) {
        put_silu<N>(a, tile, first, count, lane, v, ticket);
    } else {
        put_store<N>(a, a.mat[mat], tile, first, count, lane, v, ticket);
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
