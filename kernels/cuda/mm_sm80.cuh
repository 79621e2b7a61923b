#ifndef QUASAR_KERNELS_CUDA_MM_SM80_CUH
#define QUASAR_KERNELS_CUDA_MM_SM80_CUH

/* The weight-streaming product with cp.async alone: a persistent grid walks the list of
 * mm_plan.h; every warp has its own ring of weights, ahead of everything else. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mm_put.cuh"
#include "kernels/cuda/mm_step.cuh"

enum {
    MM80_THREADS = (MM80_WARPS + MM_PUT_WARPS) * MM_LANES,
    MM80_PARTS = 4, /* contributions, */
    MM80_COLS = 2   /* of batch rows, on their way at a time */
};

struct mm80_args {
    struct mm_op op;
    const int32_t *count;
    struct mm_smem at;
};

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

/* ---- the ring: what a warp asks for next ---- */

struct source {
    uint64_t src;    /* next unit (a stage's content) */
    int step, end;   /* block step it belongs to; end of its run */
    int left, units; /* units left of the step, and in all */
    int bytes, skip; /* of a unit; from a step's last unit to the warp's next step */
    int run;         /* the run after this one, and its first word: */
    int4 word;
};

/* Goes on to the run that holds s.step; the table is n_runs long. */
static __device__ __forceinline__ void source_seek(struct source &s, const struct mm_run *run,
                                                   int n_runs)
{
    while (s.step >= s.end && s.run < n_runs) {
        s.left = s.units = 1 << s.word.w;
        s.bytes = MM_STAGE - 64 * s.word.w;
        s.skip = (MM80_WARPS - 1) * s.units * s.bytes;
        s.src = word_src(s.word) + (uint64_t)(s.step - s.end) * (uint32_t)(s.units * s.bytes);
        s.end += s.word.z;
        s.run++;
        if (s.run < n_runs) {
            s.word = run_word(run + s.run, 0);
        }
    }
}

/* Fills a stage with the next unit, if there is one. */
static __device__ __forceinline__ void source_fill(struct source &s, const struct mm_run *run,
                                                   int n_runs, int steps, int lane, uint32_t stage)
{
    if (s.step < steps) {
        const uint8_t *from = (const uint8_t *)s.src + lane * 16;
        const uint32_t to = stage + (uint32_t)lane * 16;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            cp_async16(to + i * MM_LANES * 16, from + i * MM_LANES * 16);
        }
        if (lane * 16 < s.bytes - 4 * MM_LANES * 16) {
            cp_async16(to + 4 * MM_LANES * 16, from + 4 * MM_LANES * 16);
        }
        s.src += (uint32_t)s.bytes;
        if (--s.left == 0) {
            s.left = s.units;
            s.step += MM80_WARPS;
            s.src += (uint32_t)s.skip;
            source_seek(s, run, n_runs);
        }
    }
    cp_async_commit();
}

/* Brings a phase's slice of the rows to shared memory. */
static __device__ __forceinline__ void stage_x(const struct mm_op &a, int count, int k0, int n,
                                               uint32_t x)
{
    const int units = n * MM_X_STEP / 16;
    for (int i = threadIdx.x; i < units * count; i += MM80_WARPS * MM_LANES) {
        const int row = i / units, u = i % units;
        cp_async16(x + (uint32_t)row * a.x_row + (uint32_t)u * 16,
                   a.x + (size_t)row * a.k + k0 * 64 + u * 8);
    }
    cp_async_commit();
}

enum { BAR80_STREAM = 1, BAR80_EMPTY, BAR80_FULL /* one for each finishing warp */ };

/* Adds up the tile's contributions of batch rows first .. first + 7, in order. */
static __device__ __forceinline__ void gather80(float2 (&v)[8], const struct mm_op &a,
                                                const struct run_at &at, int first, int count,
                                                int lane)
{
    const int parts = MM_META_PARTS(at.meta);
    const float *p = (float *)a.part + (size_t)at.slot0 * MM_SLOT + first * 64 + lane * 2;
#pragma unroll
    for (int c = 0; c < 8; c++) {
        v[c] = make_float2(0, 0);
    }
    for (int i = 0; i < parts; i += MM80_PARTS) {
#pragma unroll
        for (int h = 0; h < 8; h += MM80_COLS) {
            float2 t[MM80_COLS][MM80_PARTS];
#pragma unroll
            for (int c = 0; c < MM80_COLS; c++) {
#pragma unroll
                for (int j = 0; j < MM80_PARTS; j++) {
                    t[c][j] = make_float2(0, 0);
                    if (i + j < parts && first + h + c < count) {
                        t[c][j] = l2_float2(p + (size_t)(i + j) * MM_SLOT + (h + c) * 64);
                    }
                }
            }
#pragma unroll
            for (int c = 0; c < MM80_COLS; c++) {
#pragma unroll
                for (int j = 0; j < MM80_PARTS; j++) {
                    v[h + c].x += t[c][j].x;
                    v[h + c].y += t[c][j].y;
                }
            }
        }
    }
}

/* Is this the last of a tile's contributions? The warp's writes come first. */
static __device__ __forceinline__ bool deliver(uint32_t *counter, int parts, int lane)
{
    uint32_t before = 0;
    __syncwarp();
    if (lane == 0) {
        fence_gpu();
        before = atomicAdd(counter, 1u);
        if (before == (uint32_t)parts - 1) {
            fence_gpu();
            *counter = 0;
        }
    }
    return __shfl_sync(MM_ALL, before, 0) == (uint32_t)parts - 1;
}

/* What becomes of a run's sums: kept, delivered, or, where the tile is complete, finished. */
template <int NT>
static __device__ __forceinline__ void put_sums80(const float2 (&v)[8 * NT], const struct mm_op &a,
                                                  const struct run_at &at, int count, int lane,
                                                  struct factors f)
{
    const int parts = MM_META_PARTS(at.meta);
    const bool last = MM_META_LAST(at.meta) != 0, whole = last && parts == 1;
    if (!whole) {
        float *part = (float *)a.part + (size_t)at.slot * MM_SLOT + lane * 2;
#pragma unroll
        for (int c = 0; c < 8 * NT; c++) {
            if (c < count) {
                *(float2 *)(part + c * 64) = v[c];
            }
        }
        if (!last || !deliver(a.counter + at.tile, parts, lane)) {
            return;
        }
    }
#pragma unroll
    for (int h = 0; h < 8 * NT; h += 8) {
        if (h < count) {
            float2 eight[8];
            if (whole) {
#pragma unroll
                for (int c = 0; c < 8; c++) {
                    eight[c] = v[h + c];
                }
            } else {
                gather80(eight, a, at, h, count, lane);
            }
            struct before b;
            before_load<8>(b, a, at.tile, MM_META_MAT(at.meta), h, count, lane, 0);
            finish<8>(a, at.tile, MM_META_MAT(at.meta), count, h, lane, f, b, eight, 0);
        }
    }
}

/* This block's sum of earlier phases of a run's tile. */
template <int NT>
static __device__ __forceinline__ void sum_begin(float2 (&v)[8 * NT], const struct mm_op &a,
                                                 const struct run_at &at, int count, int lane)
{
    const float *part = (float *)a.part + (size_t)at.slot * MM_SLOT + lane * 2;
    const bool first = MM_META_FIRST(at.meta) != 0;
#pragma unroll
    for (int c = 0; c < 8 * NT; c++) {
        v[c] = !first && c < count ? *(const float2 *)(part + c * 64) : make_float2(0, 0);
    }
}

/* The warps beside the stream: warp `mine` takes the runs of the tiles that are its by
 * number, adds the streaming warps' sums in warp order and is done with them while
 * other warps have the next runs: each step of this has a round trip to L2 behind the
 * stream. */
template <int NT>
static __device__ __forceinline__ void put_runs(const struct mm_op &a, const struct mm_block &blk,
                                                const float *exchange, const float *sums,
                                                struct run_words words, int mine, int lane,
                                                int count)
{
    const struct mm_run *run = a.run + blk.run;
    struct factors f = {1, 1};
    bool known = false;
    for (int r = 0; r < blk.n_runs; r++) {
        if (r > 0 && r % MM_LANES == 0) {
            words_load(words, run, r, blk.n_runs, lane);
        }
        const struct run_at at = run_of(words, r);
        if (at.tile % MM_PUT_WARPS != mine) {
            continue;
        }
        float2 v[8 * NT];
        sum_begin<NT>(v, a, at, count, lane);
        bar_sync(BAR80_FULL + mine, (MM80_WARPS + 1) * MM_LANES);
        if (!known) {
            known = true;
            f = factors_of<MM80_WARPS>(a, lane, count, sums);
        }
        sum_take<NT, MM80_WARPS>(v, exchange, at.kind, 0, count, lane);
        __syncwarp();
        if (r + 1 < blk.n_runs) {
            bar_arrive(BAR80_EMPTY, (MM80_WARPS + 1) * MM_LANES);
        }
        put_sums80<NT>(v, a, at, count, lane, f);
    }
}

/*
 * y[row][r] = sum over k of x[row][k] W[r][k] and what follows it (finish). Block b
 * does the runs of its list, phase by phase: step i of the block is streaming warp
 * i % MM80_WARPS's. At a run's end the warps leave their sums in shared memory and go on;
 * the other warps (put_runs) see to the rest. Reads every weight once; bound by that.
 */
template <int NT>
static __global__ void __launch_bounds__(MM80_THREADS, NT == 2 ? 1 : 2)
    mm80_kernel(const __grid_constant__ struct mm80_args g)
{
    const struct mm_op &a = g.op;
    constexpr int W = MM80_WARPS;
    unsigned char *smem = cu_smem();
    const int lane = threadIdx.x % MM_LANES, warp = threadIdx.x / MM_LANES;
    const struct mm_block blk = a.block[blockIdx.x];
    const struct mm_run *run = a.run + blk.run;
    uint8_t *const x = smem + g.at.x, *const offset = smem + g.at.offset;
    float *const exchange = (float *)(smem + g.at.exchange);
    float *const sums = (float *)(smem + g.at.sums);
    const uint32_t ring = (uint32_t)warp * MM80_STAGES * MM_STAGE;
    const uint32_t ring_end = ring + MM80_STAGES * MM_STAGE;
    uint32_t stage = ring;
    const uint32_t smem0 = smem_addr(smem);

    /* weights first: they wait for nobody */
    struct source src;
    src.step = warp;
    src.end = src.run = 0;
    src.left = src.units = src.bytes = src.skip = 0;
    src.src = 0;
    src.word = blk.n_runs ? run_word(run, 0) : make_int4(0, 0, 0, 0);
    if (warp < W) {
        source_seek(src, run, blk.n_runs);
        for (int s = 0; s < MM80_STAGES; s++) {
            source_fill(src, run, blk.n_runs, blk.steps, lane,
                        smem0 + ring + (uint32_t)s * MM_STAGE);
        }
    }
    /* rows past count are zeros */
    for (uint32_t i = threadIdx.x; i < a.x_row * NT * 8 / 16; i += blockDim.x) {
        ((uint4 *)x)[i] = make_uint4(0, 0, 0, 0);
    }
    const int count = (int)ld_relaxed(g.count);
    struct run_words words = {};
    words_load(words, run, 0, blk.n_runs, lane);
    const struct mm_phase *phase = a.phase + blk.phase;
    int4 ph = blk.n_runs ? *(const int4 *)phase : make_int4(0, 0, 0, 0);
    __syncthreads();
    pdl_wait();
    if (warp >= W) {
        put_runs<NT>(a, blk, exchange, sums, words, warp - W, lane, count);
        return;
    }

    float acc[4][NT][4];
    int start = 0, step = warp; /* of the run; this warp's next */
    int phase_end = 0, phases = 0;
    for (int r = 0; r < blk.n_runs; r++) {
        if (r > 0 && r % MM_LANES == 0) {
            words_load(words, run, r, blk.n_runs, lane);
        }
        if (r == phase_end) {
            if (phases > 0) {
                bar_sync(BAR80_STREAM, W * MM_LANES); /* all are done with the slice before */
            }
            stage_x(a, count, ph.x, ph.y, smem0 + g.at.x);
            struct offsets<2> o;
            offsets_load<NT, W, 2>(o, a, count, ph.x, ph.y);
            if (phases == 0) {
                const float in = a.ss ? row_part<W>(a.ss, a.ss_groups, count) : 0;
                const float resid = a.resid_ss ? row_part<W>(a.resid_ss, a.resid_groups, count) : 0;
                if (lane < CU_ROWS) {
                    sums[warp * CU_ROWS + lane] = in;
                    sums[(W + warp) * CU_ROWS + lane] = resid;
                }
            }
            offsets_put<NT, W, 2>(o, ph.y, offset);
            cp_async_wait<0>();
            bar_sync(BAR80_STREAM, W * MM_LANES);
            phase_end = ph.z;
            phases++;
            if (phase_end < blk.n_runs) {
                ph = *(const int4 *)(phase + phases);
            }
        }
        const int kind = __shfl_sync(MM_ALL, words.w0.w, r % MM_LANES);
        const int end = start + __shfl_sync(MM_ALL, words.w0.z, r % MM_LANES);
        const int putter = __shfl_sync(MM_ALL, words.w1.x, r % MM_LANES) % MM_PUT_WARPS;
        const int at =
            MM_META_K((uint32_t)__shfl_sync(MM_ALL, words.w1.w, r % MM_LANES)) + step - start;
        const uint8_t *xp = x + lane / 4 * a.x_row + lane % 4 * 32 + at * MM_X_STEP;
        const uint8_t *op = offset + at * (NT * 64) + lane % 4 * 16;
        const uint32_t x8 = 8 * a.x_row;
#pragma unroll
        for (int i = 0; i < 4 * NT; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                acc[i / NT][i % NT][j] = 0;
            }
        }
        for (; step < end; step += W, xp += W * MM_X_STEP, op += W * NT * 64) {
            struct inputs<NT> in;
            inputs_load<NT>(in, xp, x8, op);
#pragma unroll 1
            for (int unit = 0; unit < 1 << kind; unit++) {
                cp_async_wait<MM80_STAGES - 1>();
                __syncwarp();
                const uint8_t *at_stage = smem + stage;
                if (kind == CU_W4) {
                    step_w4<NT>(acc, at_stage, lane, in);
                } else if (kind == CU_W8) {
                    if (unit == 0) {
                        half_w8<NT>(acc, at_stage, lane, in);
                    } else {
                        half_w8<NT>(acc + 2, at_stage, lane, in);
                    }
                } else if (unit < 2) {
                    if (unit == 0) {
                        quarter_w16<NT>(acc[0], at_stage, lane, in);
                    } else {
                        quarter_w16<NT>(acc[1], at_stage, lane, in);
                    }
                } else if (unit == 2) {
                    quarter_w16<NT>(acc[2], at_stage, lane, in);
                } else {
                    quarter_w16<NT>(acc[3], at_stage, lane, in);
                }
                __syncwarp();
                source_fill(src, run, blk.n_runs, blk.steps, lane, smem0 + stage);
                stage = stage + MM_STAGE == ring_end ? ring : stage + MM_STAGE;
            }
        }
        start = end;
        if (r > 0) {
            bar_sync(BAR80_EMPTY, (W + 1) * MM_LANES);
        }
        exchange_put<NT>(exchange + warp * (8 * NT * MM_COL), acc, lane);
        __syncwarp();
        bar_arrive(BAR80_FULL + putter, (W + 1) * MM_LANES);
    }
}

#endif
