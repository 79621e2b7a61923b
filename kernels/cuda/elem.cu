/* The small kernels around decode's products: embedding, final norm, inputs of the
 * head and the MTP layer, argmax, rotary angles. One block per row throughout. */
#include "kernels/cuda/cu.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row.cuh"

enum { THREADS = 512, WARPS = THREADS / 32, PARTS = 64, SCAN = 256 };
#define ALL 0xffffffffu

/* An embedding table as the container lays it out. */
struct rows_of {
    const void *data, *scales;
    int dtype; /* enum dtype */
    int cols;
};

static struct rows_of table_of(const struct tensor *t, int hidden)
{
    struct rows_of r = {t->data, t->scales, (int)t->dtype, hidden};
    return r;
}

/* Elements col and col + 1 (col even) of a row. */
static __device__ float2 fetch2(const struct rows_of &t, int row, int col)
{
    const size_t at = (size_t)row * t.cols + col;
    if (t.dtype == DT_F32) {
        return *(const float2 *)((const float *)t.data + at);
    }
    if (t.dtype == DT_F16) {
        const ushort2 h = *(const ushort2 *)((const uint16_t *)t.data + at);
        return make_float2(half_of(h.x), half_of(h.y));
    }
    if (t.dtype == DT_BF16) {
        const ushort2 h = *(const ushort2 *)((const uint16_t *)t.data + at);
        return make_float2(__uint_as_float((uint32_t)h.x << 16),
                           __uint_as_float((uint32_t)h.y << 16));
    }
    const uint16_t *scale = (const uint16_t *)t.scales;
    if (t.dtype == DT_Q8_G128) {
        const char2 c = *(const char2 *)((const int8_t *)t.data + at);
        const float s = half_of(scale[at / 128]);
        return make_float2((float)c.x * s, (float)c.y * s);
    }
    const int b = ((const uint8_t *)t.data)[at / 2];
    const float s = half_of(scale[at / 64]);
    return make_float2((float)((b & 15) - 8) * s, (float)((b >> 4) - 8) * s);
}

/* Sum over the block of one value a thread, the same for all. scratch: WARPS floats. */
static __device__ float block_sum(float v, float *scratch)
{
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        scratch[threadIdx.x / 32] = v;
    }
    __syncthreads();
    float s = 0;
    for (int i = 0; i < WARPS; i++) {
        s += scratch[i];
    }
    return s;
}

static __device__ __forceinline__ float rstd_of(float ss, int n, float eps)
{
    return 1 / sqrtf(ss / (float)n + eps);
}

/* A warp's 64 values, two to a lane: fp16 to x, sums of its 32s to sum[0], sum[CU_ROWS]. */
static __device__ __forceinline__ void put_act(uint16_t *x, float *sum, float2 v)
{
    const int lane = threadIdx.x % 32;
    const uint32_t h = f16x2_of_f32(v.x, v.y);
    *(uint32_t *)(x + 2 * lane) = h;
    float s = half_of((uint16_t)h) + half_of((uint16_t)(h >> 16));
#pragma unroll
    for (int i = 8; i > 0; i /= 2) {
        s += __shfl_xor_sync(ALL, s, i);
    }
    if (lane % 16 == 0) {
        sum[lane / 16 * CU_ROWS] = s;
    }
}

/* Every 64 of a row are one warp's: their squares are summed the same way wherever. */
static __global__ void embed_kernel(struct rows_of t, const int32_t *count, const int32_t *token,
                                    int hidden, const float *w, float eps, struct cu_resid out)
{
    __shared__ float scratch[WARPS];
    const int row = blockIdx.x, warp = threadIdx.x / 32, col0 = threadIdx.x % 32 * 2;
    pdl_wait();
    pdl_launch();
    if (row >= *count) {
        return;
    }
    const int id = token[row];
    float mine = 0;
    for (int g = warp; g < hidden / 64; g += WARPS) {
        const int col = g * 64 + col0;
        const float2 v = fetch2(t, id, col);
        *(float2 *)(out.x + (size_t)row * hidden + col) = v;
        const float ss = warp_sum(fmaf(v.x, v.x, v.y * v.y));
        if (col0 == 0) {
            out.ss[g * CU_ROWS + row] = ss;
            mine += ss;
        }
    }
    const float power = near_power(rstd_of(block_sum(mine, scratch), hidden, eps));
    if (threadIdx.x == 0) {
        out.power[row] = power;
    }
    for (int g = warp; g < hidden / 64; g += WARPS) {
        const int col = g * 64 + col0;
        const float2 v = fetch2(t, id, col);
        put_act(out.act.x + (size_t)row * hidden + g * 64, out.act.sum + g * 2 * CU_ROWS + row,
                make_float2(v.x * w[col] * power, v.y * w[col + 1] * power));
    }
}

extern "C" int cu_embed(struct cu_ctx *c, const struct cu_batch *b, const struct tensor *table,
                        int hidden, const float *w, float eps, struct cu_resid *out)
{
    return cu_launch(c, "embed", embed_kernel, dim3((unsigned)b->rows), dim3(THREADS), 0,
                     table_of(table, hidden), b->count, b->token, hidden, w, eps, *out);
}

static __global__ void final_norm_kernel(const int32_t *count, const float *x, const float *ss,
                                         int hidden, const float *w, float eps, float *h,
                                         const int32_t *out_of, struct cu_act out)
{
    __shared__ float scratch[WARPS];
    const int row = blockIdx.x, warp = threadIdx.x / 32, col0 = threadIdx.x % 32 * 2;
    pdl_wait();
    pdl_launch();
    if (row >= *count) {
        return;
    }
    const int to = out_of ? out_of[row] : -1;
    float mine = 0;
    for (int i = threadIdx.x; i < hidden / 64; i += THREADS) {
        mine += ss[i * CU_ROWS + row];
    }
    const float r = rstd_of(block_sum(mine, scratch), hidden, eps);
    for (int g = warp; g < hidden / 64; g += WARPS) {
        const int i = g * 64 + col0;
        const float2 v = *(const float2 *)(x + (size_t)row * hidden + i);
        const float2 y = make_float2(v.x * r * w[i], v.y * r * w[i + 1]);
        *(float2 *)(h + (size_t)row * hidden + i) = y;
        if (to >= 0) {
            put_act(out.x + (size_t)to * hidden + g * 64, out.sum + g * 2 * CU_ROWS + to, y);
        }
    }
}

extern "C" int cu_final_norm(struct cu_ctx *c, const struct cu_batch *b, const struct cu_resid *in,
                             int hidden, const float *w, float eps, float *h, const int32_t *out_of,
                             const struct cu_act *out)
{
    const struct cu_act none = {NULL, NULL};
    return cu_launch(c, "final_norm", final_norm_kernel, dim3((unsigned)b->rows), dim3(THREADS), 0,
                     b->count, in->x, in->ss, hidden, w, eps, h, out_of, out ? *out : none);
}

static __global__ void gather_kernel(const float *h, const int32_t *rows, const int32_t *n,
                                     int hidden, struct cu_act out)
{
    const int row = blockIdx.x, warp = threadIdx.x / 32, col0 = threadIdx.x % 32 * 2;
    pdl_wait();
    pdl_launch();
    if (row >= *n) {
        return;
    }
    const float *from = h + (size_t)rows[row] * hidden;
    for (int g = warp; g < hidden / 64; g += WARPS) {
        put_act(out.x + (size_t)row * hidden + g * 64, out.sum + g * 2 * CU_ROWS + row,
                *(const float2 *)(from + g * 64 + col0));
    }
}

extern "C" int cu_gather(struct cu_ctx *c, const float *h, const int32_t *rows, const int32_t *n,
                         int max_n, int hidden, struct cu_act *out)
{
    if (max_n > CU_ROWS) {
        return cudaErrorInvalidValue;
    }
    return cu_launch(c, "gather", gather_kernel, dim3((unsigned)max_n), dim3(THREADS), 0, h, rows,
                     n, hidden, *out);
}

/* Block (row, 0) does the embedding's half, (row, 1) the hidden state's. */
static __global__ void mtp_input_kernel(struct rows_of t, const int32_t *count,
                                        const int32_t *token, int hidden, const float *const *src,
                                        const float *enorm, const float *hnorm, float eps,
                                        struct cu_act out)
{
    __shared__ float scratch[WARPS];
    const int row = blockIdx.x, warp = threadIdx.x / 32, col0 = threadIdx.x % 32 * 2;
    pdl_wait();
    pdl_launch();
    if (row >= *count) {
        return;
    }
    if (blockIdx.y == 1) { /* an fp32 table of one row */
        t.data = src[row];
        t.dtype = DT_F32;
    }
    const int id = blockIdx.y == 1 ? 0 : token[row];
    const float *w = blockIdx.y == 1 ? hnorm : enorm;
    float mine = 0;
    for (int g = warp; g < hidden / 64; g += WARPS) {
        const float2 v = fetch2(t, id, g * 64 + col0);
        mine += warp_sum(fmaf(v.x, v.x, v.y * v.y));
    }
    const float r = rstd_of(block_sum(col0 == 0 ? mine : 0, scratch), hidden, eps);
    const int first = blockIdx.y * (hidden / 64);
    for (int g = warp; g < hidden / 64; g += WARPS) {
        const int col = g * 64 + col0;
        const float2 v = fetch2(t, id, col);
        put_act(out.x + (size_t)row * 2 * hidden + (first + g) * 64,
                out.sum + (first + g) * 2 * CU_ROWS + row,
                make_float2(v.x * r * w[col], v.y * r * w[col + 1]));
    }
}

extern "C" int cu_mtp_input(struct cu_ctx *c, const struct cu_batch *b, const struct tensor *table,
                            int hidden, const float *const *src, const float *enorm,
                            const float *hnorm, float eps, struct cu_act *out)
{
    return cu_launch(c, "mtp_input", mtp_input_kernel, dim3((unsigned)b->rows, 2), dim3(THREADS), 0,
                     table_of(table, hidden), b->count, b->token, hidden, src, enorm, hnorm, eps,
                     *out);
}

/* ---- argmax ---- */

/* The largest and the second largest of some logits. */
struct best {
    float v, second;
    int32_t id; /* the lowest of v's; INT32_MAX: none yet */
};

static __device__ __forceinline__ void best_add(struct best &b, float v, float second, int id)
{
    const bool wins = v > b.v || (v == b.v && id < b.id);
    const float loser = wins ? b.v : v;
    b.second = fmaxf(fmaxf(b.second, second), loser);
    if (wins) {
        b.v = v;
        b.id = id;
    }
}

/* The block's, in thread 0. scratch: one for each warp. */
static __device__ struct best best_of_block(struct best b, struct best *scratch)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        const float v = __shfl_xor_sync(ALL, b.v, i);
        const float second = __shfl_xor_sync(ALL, b.second, i);
        const int id = __shfl_xor_sync(ALL, b.id, i);
        best_add(b, v, second, id);
    }
    if (threadIdx.x % 32 == 0) {
        scratch[threadIdx.x / 32] = b;
    }
    __syncthreads();
    for (int i = 1; i < (int)blockDim.x / 32 && threadIdx.x == 0; i++) {
        best_add(b, scratch[i].v, scratch[i].second, scratch[i].id);
    }
    return b;
}

static __device__ __forceinline__ struct best best_none(void)
{
    struct best b = {-INFINITY, -INFINITY, INT32_MAX};
    return b;
}

/* PARTS blocks to a row; the last to arrive joins what all found. */
static __global__ void argmax_kernel(const float *logits, size_t ld, int used, const int32_t *n,
                                     uint32_t *arrived, struct best *part, int32_t *ids,
                                     float *margin)
{
    __shared__ struct best scratch[SCAN / 32];
    __shared__ bool last;
    const int row = blockIdx.y;
    pdl_wait();
    pdl_launch();
    if (row >= *n) {
        return;
    }
    const float *p = logits + (size_t)row * ld;
    struct best b = best_none();
#pragma unroll 4
    for (int i = blockIdx.x * SCAN + threadIdx.x; i < used; i += PARTS * SCAN) {
        best_add(b, p[i], -INFINITY, i);
    }
    b = best_of_block(b, scratch);
    if (threadIdx.x == 0) {
        part[row * PARTS + blockIdx.x] = b;
        __threadfence();
        last = atomicAdd(&arrived[row], 1u) == PARTS - 1;
    }
    __syncthreads();
    if (!last) {
        return;
    }
    __threadfence();
    const volatile struct best *from = part + row * PARTS;
    b = best_none();
    if (threadIdx.x < PARTS) {
        b.v = from[threadIdx.x].v;
        b.second = from[threadIdx.x].second;
        b.id = from[threadIdx.x].id;
    }
    b = best_of_block(b, scratch);
    if (threadIdx.x == 0) {
        ids[row] = b.id == INT32_MAX ? 0 : b.id; /* nothing but NaN */
        margin[row] = b.v - b.second;
        arrived[row] = 0;
    }
}

extern "C" size_t cu_argmax_work(int vocab)
{
    (void)vocab;
    return 256 + sizeof(struct best) * PARTS * CU_ROWS;
}

extern "C" int cu_argmax(struct cu_ctx *c, const float *logits, size_t ld, int used,
                         const int32_t *n, int max_n, void *work, int32_t *ids, float *margin)
{
    if (max_n > CU_ROWS || used < 1) {
        return cudaErrorInvalidValue;
    }
    struct best *part = (struct best *)((unsigned char *)work + 256);
    return cu_launch(c, "argmax", argmax_kernel, dim3(PARTS, (unsigned)max_n), dim3(SCAN), 0,
                     logits, ld, used, n, (uint32_t *)work, part, ids, margin);
}

/* ---- rotary angles ---- */

enum { ROT_PAIRS = BE_ROT_DIM / 2, ROT_ROWS = 8 };

static __global__ void rot_kernel(const int32_t *count, const int32_t *rope, const uint8_t *axis,
                                  const double *inv_freq, float *rot)
{
    const int row = blockIdx.x * ROT_ROWS + threadIdx.x / ROT_PAIRS;
    const int i = threadIdx.x % ROT_PAIRS;
    pdl_wait();
    pdl_launch();
    if (row < *count) {
        const double angle = (double)rope[row * 3 + axis[i]] * inv_freq[i];
        rot[row * BE_ROT_DIM + i] = (float)cos(angle);
        rot[row * BE_ROT_DIM + ROT_PAIRS + i] = (float)sin(angle);
    }
}

extern "C" int cu_rot(struct cu_ctx *c, const struct cu_batch *b, const uint8_t *axis,
                      const double *inv_freq)
{
    return cu_launch(c, "rot", rot_kernel, dim3((unsigned)(b->rows + ROT_ROWS - 1) / ROT_ROWS),
                     dim3(ROT_ROWS * ROT_PAIRS), 0, b->count, b->rope, axis, inv_freq, b->rot);
}
