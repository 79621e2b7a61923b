/* What stands between the prefill products: embedding rows, norms into tiled
 * activations, the MTP layer's input. All bound by memory. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

#include "base/dtype.h"

#include <string.h>

enum { THREADS = 256, WARPS = THREADS / 32, UNITS = 4, WIDEST = THREADS * UNITS * 8 };

/* The embedding table in the container's layout. */
struct table {
    const void *data;
    const uint16_t *scales;
    int dtype;
};

static __device__ __forceinline__ float half_at(const uint16_t *p)
{
    __half h;
    memcpy((void *)&h, p, sizeof h);
    return __half2float(h);
}

/* Elements i, i + 1 of a row of n; i is even. */
static __device__ __forceinline__ float2 pair_at(struct table t, size_t row, int n, int i)
{
    const size_t at = row * (size_t)n + (size_t)i;
    float2 v;
    switch (t.dtype) {
    case DT_F32:
        return *(const float2 *)((const float *)t.data + at);
    case DT_F16: {
        const uint16_t *p = (const uint16_t *)t.data + at;
        return make_float2(half_at(p), half_at(p + 1));
    }
    case DT_BF16: {
        const uint32_t w = *(const uint32_t *)((const uint16_t *)t.data + at);
        return make_float2(__uint_as_float(w << 16), __uint_as_float(w & 0xffff0000));
    }
    case DT_Q8_G128: {
        const int8_t *p = (const int8_t *)t.data + at;
        const float s = half_at(t.scales + at / 128);
        v = make_float2(p[0] * s, p[1] * s);
        return v;
    }
    default: {
        const int b = ((const uint8_t *)t.data)[at / 2];
        const float s = half_at(t.scales + at / 64);
        v = make_float2(((b & 15) - 8) * s, ((b >> 4) - 8) * s);
        return v;
    }
    }
}

/* A thread's part of a row, in the units that xt is made of: unit tid + THREADS i is
 * 4 pairs, 16 apart, from the pair 2 (unit % 8) of the 64 inputs unit / 8. */
struct part {
    float2 v[UNITS][4];
};

static __device__ __forceinline__ int column(int unit, int t)
{
    return unit / 8 * 64 + 16 * t + 2 * (unit % 8);
}

/* sum of squares of the row: of a thread, of a warp, of the block, each in one order */
static __device__ __forceinline__ float square_sum(const struct part *p, float *warp_sum)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
#pragma unroll
        for (int t = 0; t < 4; t++) {
            sum = fmaf(p->v[i][t].x, p->v[i][t].x, sum);
            sum = fmaf(p->v[i][t].y, p->v[i][t].y, sum);
        }
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, d);
    }
    if ((threadIdx.x & 31) == 0) {
        warp_sum[threadIdx.x >> 5] = sum;
    }
    __syncthreads();
    sum = warp_sum[0];
#pragma unroll
    for (int w = 1; w < WARPS; w++) {
        sum += warp_sum[w];
    }
    return sum;
}

/* xt row `row`, of k inputs, from column `first` on: fp16(p * scale * w). */
static __device__ __forceinline__ void write_units(const struct part *p, float scale,
                                                   const float *w, int n, uint16_t *xt, int row,
                                                   int k, int first, float *h)
{
    uint8_t *to = (uint8_t *)xt + (size_t)(row >> 7) * (k >> 6) * 16384 + (row & 127) * 128;
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
        const int unit = (int)threadIdx.x + THREADS * i;
        if (unit * 8 >= n) {
            break;
        }
        uint32_t o[4];
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const int c = column(unit, t);
            const float2 g = *(const float2 *)(w + c);
            const float2 y = make_float2(p->v[i][t].x * scale * g.x, p->v[i][t].y * scale * g.y);
            o[t] = f16x2_of_f32(y.x, y.y);
            if (h) {
                *(float2 *)(h + c) = y;
            }
        }
        const int u = (first >> 3) + unit;
        *(uint4 *)(to + (size_t)(u >> 3) * 16384 + (((u & 7) ^ (row & 7)) << 4)) =
            make_uint4(o[0], o[1], o[2], o[3]);
    }
}

/* ---- x = embed[token]: a block a row ---- */
__global__ void __launch_bounds__(THREADS)
    pre_embed(const int32_t *count, const int32_t *token, struct table t, int hidden, float *x)
{
    pdl_launch();
    pdl_wait();
    const int row = (int)blockIdx.x;
    if (row >= count[0]) {
        return;
    }
    const size_t from = (size_t)token[row];
    for (int i = 2 * (int)threadIdx.x; i < hidden; i += 2 * THREADS) {
        *(float2 *)(x + (size_t)row * hidden + i) = pair_at(t, from, hidden, i);
    }
}

/* ---- xt = fp16(norm(x)): a block a row, read once ---- */
__global__ void __launch_bounds__(THREADS)
    pre_norm(const float *x, int hidden, const float *w, float eps, uint16_t *xt, float *h)
{
    __shared__ float warp_sum[WARPS];
    const int row = (int)blockIdx.x;
    pdl_launch();
    for (int i = 32 * (int)threadIdx.x; row == 0 && i < hidden; i += 32 * THREADS) {
        prefetch_l2(w + i);
    }
    pdl_wait();
    const float *from = x + (size_t)row * hidden;
    struct part p;
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
        const int unit = (int)threadIdx.x + THREADS * i;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            p.v[i][t] =
                unit * 8 < hidden ? *(const float2 *)(from + column(unit, t)) : make_float2(0, 0);
        }
    }
    const float sum = square_sum(&p, warp_sum);
    const float scale = 1 / sqrtf(sum / (float)hidden + eps);
    write_units(&p, scale, w, hidden, xt, row, hidden, 0, h ? h + (size_t)row * hidden : NULL);
}

/* ---- xt = (enorm(embed[token]), hnorm(hidden state)): two blocks a row ---- */
__global__ void __launch_bounds__(THREADS)
    pre_mtp_input(const int32_t *count, const int32_t *token, struct table table, int hidden,
                  const float *const *src, const float *enorm, const float *hnorm, float eps,
                  uint16_t *xt)
{
    __shared__ float warp_sum[WARPS];
    pdl_launch();
    pdl_wait();
    const int row = (int)blockIdx.x;
    const bool second = blockIdx.y == 1;
    if (row >= count[0]) {
        return;
    }
    const float *from = second ? src[row] : NULL;
    const size_t id = second ? 0 : (size_t)token[row];
    struct part p;
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
        const int unit = (int)threadIdx.x + THREADS * i;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const int c = column(unit, t);
            p.v[i][t] = unit * 8 >= hidden ? make_float2(0, 0)
                        : second           ? *(const float2 *)(from + c)
                                           : pair_at(table, id, hidden, c);
        }
    }
    const float sum = square_sum(&p, warp_sum);
    const float scale = 1 / sqrtf(sum / (float)hidden + eps);
    write_units(&p, scale, second ? hnorm : enorm, hidden, xt, row, 2 * hidden, second ? hidden : 0,
                NULL);
}

/* ---- host ---- */

static struct table table_of(const struct tensor *t)
{
    struct table r = {t->data, (const uint16_t *)t->scales, (int)t->dtype};
    return r;
}

static bool fits(int hidden)
{
    return hidden > 0 && hidden % 64 == 0 && hidden <= WIDEST;
}

extern "C" int cu_pre_embed(struct cu_ctx *c, const struct cu_batch *b, const struct tensor *table,
                            int hidden, float *x)
{
    if (!fits(hidden)) {
        return (int)cudaErrorInvalidValue;
    }
    return (int)cu_launch(c, "pre_embed", pre_embed, dim3((unsigned)b->rows), dim3(THREADS), 0,
                          b->count, b->token, table_of(table), hidden, x);
}

extern "C" int cu_pre_norm(struct cu_ctx *c, const float *x, int rows, int hidden, const float *w,
                           float eps, uint16_t *xt, float *h)
{
    if (!fits(hidden)) {
        return (int)cudaErrorInvalidValue;
    }
    return (int)cu_launch(c, "pre_norm", pre_norm, dim3((unsigned)rows), dim3(THREADS), 0, x,
                          hidden, w, eps, xt, h);
}

extern "C" int cu_pre_mtp_input(struct cu_ctx *c, const struct cu_batch *b,
                                const struct tensor *table, int hidden, const float *const *src,
                                const float *enorm, const float *hnorm, float eps, uint16_t *xt)
{
    if (!fits(hidden)) {
        return (int)cudaErrorInvalidValue;
    }
    return (int)cu_launch(c, "pre_mtp_input", pre_mtp_input, dim3((unsigned)b->rows, 2),
                          dim3(THREADS), 0, b->count, b->token, table_of(table), hidden, src, enorm,
                          hnorm, eps, xt);
}
