/* The weight-streaming product of 1 to 16 rows: a persistent grid walks the list of
 * mm_plan.h; every warp has its own ring of weights, ahead of everything else. */
#include "kernels/cuda/mm_plan.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mm_step.cuh"
#include "kernels/cuda/row.cuh"

enum {
    COL = 68,      /* floats from a row of the batch to the next in the exchange area */
    STAGES80 = 3,  /* of the cp.async ring */
    X_STEP = 128,  /* bytes of a step in a row of activations */
    RUN_BATCH = 4, /* contributions, */
    RUN_COLS = 2,  /* of batch rows, on their way at a time */
    LANES = 32
};
#define ALL 0xffffffffu

struct mm_mat {
    const float *row_scale;
    int tile0, rows, col0;
};

struct mm_args {
    const struct mm_run *run;
    const struct mm_phase *phase;
    const struct mm_block *block;
    const int32_t *count;
    const uint16_t *x;
    const float *sum;
    const float *ss; /* of the input's norm, or NULL */
    const float *resid_ss;
    int k;         /* inputs */
    int ss_groups; /* 64s of the norm on the input */
    int resid_groups;
    float inv_norm_k, inv_hidden, eps;
    int out; /* enum cu_mm_out */
    int stages;
    int trigger;
    int ld; /* of y, or of the activations that are written */
    float *y;
    uint16_t *act_x;
    float *act_sum;
    float *resid_x, *resid_ss_out, *power;
    const float *next_norm;
    uint32_t *counter;
    float *part;
    const struct mm_run *next_run;
    const struct mm_block *next_block;
    int next_blocks, next_bytes;
    struct mm_smem at;
    struct mm_mat mat[MM_MATS];
};

/* ---- the ring: what a warp asks for next ---- */

struct source {
    uint64_t src;    /* next unit (a stage's content) */
    int step, end;   /* block step it belongs to; end of its run */
    int left, units; /* units left of the step, and in all */
    int bytes, skip; /* of a unit; from a step's last unit to the warp's next step */
    int run;         /* the run after this one, and its first word: */
    int4 word;
};

static __device__ __forceinline__ int4 run_word(const struct mm_run *r, int i)
{
    return ((const int4 *)r)[i];
}

static __device__ __forceinline__ uint64_t word_src(int4 w)
{
    return (uint64_t)(uint32_t)w.y << 32 | (uint32_t)w.x;
}

/* Goes on to the run that holds s.step; the table is n_runs long. */
template <int W>
static __device__ __forceinline__ void source_seek(struct source &s, const struct mm_run *run,
                                                   int n_runs)
{
    while (s.step >= s.end && s.run < n_runs) {
        s.left = s.units = 1 << s.word.w;
        s.bytes = MM_STAGE - 64 * s.word.w;
        s.skip = (W - 1) * s.units * s.bytes;
        s.src = word_src(s.word) + (uint64_t)(s.step - s.end) * (uint32_t)(s.units * s.bytes);
        s.end += s.word.z;
        s.run++;
        if (s.run < n_runs) {
            s.word = run_word(run + s.run, 0);
        }
    }
}

/* Fills a stage with the next unit, if there is one. */
template <bool SM90>
static __device__ __forceinline__ void source_fill(struct source &s, const struct mm_run *run,
                                                   int n_runs, int steps, int lane, uint32_t stage,
                                                   uint32_t bar, uint64_t policy)
{
    constexpr int W = SM90 ? 8 : 4;
    if (s.step < steps) {
        if (SM90) {
            if (lane == 0) {
                mbar_arrive_expect(bar, (uint32_t)s.bytes);
                bulk_load_hint(stage, (const void *)s.src, (uint32_t)s.bytes, bar, policy);
            }
        } else {
            const uint8_t *from = (const uint8_t *)s.src + lane * 16;
            const uint32_t to = stage + (uint32_t)lane * 16;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                cp_async16(to + i * LANES * 16, from + i * LANES * 16);
            }
            if (lane * 16 < s.bytes - 4 * LANES * 16) {
                cp_async16(to + 4 * LANES * 16, from + 4 * LANES * 16);
            }
        }
        s.src += (uint32_t)s.bytes;
        if (--s.left == 0) {
            s.left = s.units;
            s.step += W;
            s.src += (uint32_t)s.skip;
            source_seek<W>(s, run, n_runs);
        }
    }
    if (!SM90) {
        cp_async_commit();
    }
}

/* ---- before the runs ---- */

/* A thread's part of the sum of squares of row threadIdx % 16, added to that of the
 * other half of its warp: of the W warps, W numbers a row remain. */
template <int W>
static __device__ __forceinline__ float row_part(const float *ss, int groups, int count)
{
    const int row = threadIdx.x % CU_ROWS;
    float s = 0;
    if (row < count) {
#pragma unroll 5
        for (int i = threadIdx.x / CU_ROWS; i < groups; i += W * LANES / CU_ROWS) {
            s += ss[i * CU_ROWS + row];
        }
    }
    return s + __shfl_xor_sync(ALL, s, 16);
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

/* Brings a phase's slice of the rows to shared memory; x_bar counts it. */
template <bool SM90, int W>
static __device__ void stage_x(const struct mm_args &a, int count, int k0, int n, uint32_t x,
                               uint32_t x_bar)
{
    const uint32_t bytes = (uint32_t)n * X_STEP;
    if (SM90) {
        if (threadIdx.x < LANES) {
            if (threadIdx.x == 0) {
                mbar_arrive_expect(x_bar, bytes * (uint32_t)count);
            }
            __syncwarp();
            const int row = (int)threadIdx.x;
            if (row < count) {
                bulk_load(x + (uint32_t)row * a.at.x_row, a.x + (size_t)row * a.k + k0 * 64, bytes,
                          x_bar);
            }
        }
    } else {
        const int units = n * X_STEP / 16;
        for (int i = threadIdx.x; i < units * count; i += W * LANES) {
            const int row = i / units, u = i % units;
            cp_async16(x + (uint32_t)row * a.at.x_row + (uint32_t)u * 16,
                       a.x + (size_t)row * a.k + k0 * 64 + u * 8);
        }
        cp_async_commit();
    }
}

/* A thread's share of a phase's offsets, [step][n-tile][t]: loaded, then put as two
 * columns' -1032 and -1152 times the sum. */
struct offsets {
    float2 sum[2];
};

template <int NT, int W>
static __device__ __forceinline__ struct offsets offsets_load(const struct mm_args &a, int count,
                                                              int k0, int n)
{
    struct offsets o;
#pragma unroll
    for (int q = 0; q < 2; q++) {
        const int i = (int)threadIdx.x + q * W * LANES, col = i % (NT * 4) * 2;
        o.sum[q] = make_float2(0, 0);
        if (i < n * NT * 4 && col < count) {
            const float *s = a.sum + (size_t)(k0 + i / (NT * 4)) * 2 * CU_ROWS + col;
            const float2 lo = *(const float2 *)s, hi = *(const float2 *)(s + CU_ROWS);
            o.sum[q] = make_float2(lo.x + hi.x, col + 1 < count ? lo.y + hi.y : 0);
        }
    }
    return o;
}

template <int NT, int W>
static __device__ __forceinline__ void offsets_put(const struct offsets &o, int n, uint8_t *to)
{
#pragma unroll
    for (int q = 0; q < 2; q++) {
        const int i = (int)threadIdx.x + q * W * LANES;
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

/* Rows of batch row `col`: a pair of gate and up. */
static __device__ __forceinline__ void put_silu(const struct mm_args &a, int tile, int col,
                                                int lane, float2 v)
{
    const int row = tile * 32 + lane_row(lane) / 16 * 8 + lane % 16 / 2;
    const uint16_t h = f16_of_f32(v.x / (1 + expf(-v.x)) * v.y);
    a.act_x[(size_t)col * a.ld + row] = h;
    const float s = warp_sum(half_of(h));
    if (lane == 0) {
        a.act_sum[tile * CU_ROWS + col] = s;
    }
}

static __device__ __forceinline__ void put_resid(const struct mm_args &a, int tile, int col,
                                                 int lane, float2 v, float2 old, float2 norm,
                                                 float power)
{
    const int row = tile * 64 + lane_row(lane);
    const float x0 = old.x + v.x, x1 = old.y + v.y;
    float *x = a.resid_x + (size_t)col * a.ld + row;
    x[0] = x0;
    x[8] = x1;
    const float ss = warp_sum(fmaf(x0, x0, x1 * x1));
    const uint16_t h0 = f16_of_f32(x0 * norm.x * power), h1 = f16_of_f32(x1 * norm.y * power);
    a.act_x[(size_t)col * a.ld + row] = h0;
    a.act_x[(size_t)col * a.ld + row + 8] = h1;
    /* lanes 0..15 have the first 32 rows, the others the second */
    float s = half_of(h0) + half_of(h1);
#pragma unroll
    for (int i = 8; i > 0; i /= 2) {
        s += __shfl_xor_sync(ALL, s, i);
    }
    if (lane % 16 == 0) {
        a.act_sum[(2 * tile + lane / 16) * CU_ROWS + col] = s;
    }
    if (lane == 0) {
        a.resid_ss_out[tile * CU_ROWS + col] = ss;
        if (tile == 0) {
            a.power[col] = power;
        }
    }
}

static __device__ __forceinline__ void put_store(const struct mm_args &a, const struct mm_mat &m,
                                                 int tile, int col, int lane, float2 v)
{
    const int row = (tile - m.tile0) * 64 + lane_row(lane);
    float *y = a.y + (size_t)col * a.ld + m.col0;
    if (row < m.rows) {
        y[row] = v.x;
    }
    if (row + 8 < m.rows) {
        y[row + 8] = v.y;
    }
}

/* What a warp that finishes batch rows knows of them: lane r % 16 of row r. */
struct factors {
    float owed;  /* by the norm on the input */
    float power; /* of the new state */
};

/* What a run's words say. */
struct run_at {
    int tile, slot, slot0;
    uint32_t meta;
};

/* Finishes eight batch rows of a tile from `first`. With `given` their sums are `sum`; else
 * they are the tile's contributions, added here in order. */
static __device__ __forceinline__ void finish(const struct mm_args &a, const struct run_at &at,
                                              int count, int first, int lane, struct factors f,
                                              bool given, const float2 (&sum)[8])
{
    constexpr int NC = 8;
    const int parts = MM_META_PARTS(at.meta), tile = at.tile;
    const struct mm_mat &m = a.mat[MM_META_MAT(at.meta)];
    const float *p = a.part + (size_t)at.slot0 * MM_SLOT + first * 64 + lane * 2;
    const int row = tile * 64 + lane_row(lane);
    float2 v[NC], old[NC], scale = {1, 1}, norm = {0, 0};
    if (m.row_scale) {
        const float *s = m.row_scale + row - m.tile0 * 64;
        scale = make_float2(s[0], s[8]);
    }
    const bool resid = a.out == CU_MM_RESIDUAL || a.out == CU_MM_START;
    if (resid) {
        norm = make_float2(a.next_norm[row], a.next_norm[row + 8]);
    }
#pragma unroll
    for (int c = 0; c < NC; c++) {
        v[c] = given ? sum[c] : make_float2(0, 0);
        old[c] = make_float2(0, 0);
        if (a.out == CU_MM_RESIDUAL && first + c < count) {
            const float *x = a.resid_x + (size_t)(first + c) * a.ld + row;
            old[c] = make_float2(x[0], x[8]);
        }
    }
    for (int i = 0; i < parts && !given; i += RUN_BATCH) {
#pragma unroll
        for (int h = 0; h < NC; h += RUN_COLS) {
            uint2 t[RUN_COLS][RUN_BATCH];
#pragma unroll
            for (int c = 0; c < RUN_COLS; c++) {
#pragma unroll
                for (int j = 0; j < RUN_BATCH; j++) {
                    t[c][j] = make_uint2(0, 0);
                    if (i + j < parts && first + h + c < count) {
                        t[c][j] = ld_l2_8(p + (size_t)(i + j) * MM_SLOT + (h + c) * 64);
                    }
                }
            }
#pragma unroll
            for (int c = 0; c < RUN_COLS; c++) {
#pragma unroll
                for (int j = 0; j < RUN_BATCH; j++) {
                    v[h + c].x += __uint_as_float(t[c][j].x);
                    v[h + c].y += __uint_as_float(t[c][j].y);
                }
            }
        }
    }
#pragma unroll
    for (int c = 0; c < NC; c++) {
        const int col = first + c;
        if (col < count) {
            const float owed = __shfl_sync(ALL, f.owed, col);
            const float power = __shfl_sync(ALL, f.power, col);
            v[c].x *= scale.x * owed;
            v[c].y *= scale.y * owed;
            if (resid) {
                put_resid(a, tile, col, lane, v[c], old[c], norm, power);
            } else if (a.out == CU_MM_SILU) {
                put_silu(a, tile, col, lane, v[c]);
            } else {
                put_store(a, m, tile, col, lane, v[c]);
            }
        }
    }
}

/* The accumulators of a warp into its part of the exchange area: by batch row, in it
 * by (row block / 2, g, row block % 2, row / 8 % 2). */
template <int NT>
static __device__ __forceinline__ void exchange_put(float *mine, const float (*acc)[NT][4],
                                                    int lane)
{
    float *to = mine + lane % 4 * 2 * COL + lane / 4 * 4;
#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                *(float4 *)(to + (8 * n + e) * COL + h * 32) =
                    make_float4(acc[2 * h][n][e], acc[2 * h][n][2 + e], acc[2 * h + 1][n][e],
                                acc[2 * h + 1][n][2 + e]);
            }
        }
    }
}

/* Asks the first weights of this block's part of the next product into L2. */
static __device__ __forceinline__ void prefetch_next(const struct mm_args &a)
{
    if (blockIdx.x < (unsigned)a.next_blocks) {
        const struct mm_block b = a.next_block[blockIdx.x];
        int left = a.next_bytes;
        for (int r = 0; r < b.n_runs && left > 0; r++) {
            const int4 w = run_word(a.next_run + b.run + r, 0);
            const int bytes = w.z * ((MM_STAGE - 64 * w.w) << w.w);
            bulk_prefetch((const void *)word_src(w), (uint32_t)(bytes < left ? bytes : left & ~15));
            left -= bytes;
        }
    }
}

/* Streaming warps, and warps that finish what those have summed. */
template <int NT, bool SM90> struct mm_warps {
    static constexpr int stream = SM90 ? 8 : 4;
    static constexpr int put = MM_PUT_WARPS;
    static constexpr int threads = (stream + put) * LANES;
    static constexpr int per_sm = SM90 || NT == 2 ? 1 : 2;
};

enum { BAR_STREAM = 1, BAR_EMPTY, BAR_FULL /* one for each finishing warp */ };

/* Where a block's shared memory has its parts, and its barriers. */
struct mm_room {
    uint8_t *x, *offset;
    float *exchange, *sums;
    uint32_t full, empty, x_bar; /* full: one for each finishing warp */
};

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
static __device__ __forceinline__ struct factors factors_of(const struct mm_args &a, int lane,
                                                            int count, const float *sums,
                                                            const float *in_power)
{
    struct factors f = {1, 1};
    const int row = lane % CU_ROWS;
    if (a.ss && row < count) {
        f.owed = row_rstd(sums, W, row, a.inv_norm_k, a.eps) / in_power[row];
    }
    if (a.out == CU_MM_RESIDUAL && row < count) {
        f.power = near_power(row_rstd(sums + W * CU_ROWS, W, row, a.inv_hidden, a.eps));
    }
    return f;
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
    return __shfl_sync(ALL, before, 0) == (uint32_t)parts - 1;
}

/* The warps beside the stream: warp `mine` takes the runs of the tiles that are its by
 * number, adds the streaming warps' sums in warp order and is done with them while
 * other warps have the next runs: each step of this has a round trip to L2 behind the
 * stream. A contribution goes to scratch; the block that brings a tile's last one adds
 * them up and finishes. */
template <int NT, bool SM90>
static __device__ __forceinline__ void put_runs(const struct mm_args &a, const struct mm_block &blk,
                                                const struct mm_room &room, struct run_words words,
                                                int mine, int lane, int count,
                                                const float *in_power)
{
    using warps = mm_warps<NT, SM90>;
    constexpr int W = warps::stream, NC = 8 * NT;
    const struct mm_run *run = a.run + blk.run;
    struct factors f = {1, 1};
    int turns = 0; /* of this warp */
    for (int r = 0; r < blk.n_runs; r++) {
        if (r > 0 && r % LANES == 0) {
            words_load(words, run, r, blk.n_runs, lane);
        }
        struct run_at at;
        at.tile = __shfl_sync(ALL, words.w1.x, r % LANES);
        at.slot = __shfl_sync(ALL, words.w1.y, r % LANES);
        at.slot0 = __shfl_sync(ALL, words.w1.z, r % LANES);
        at.meta = (uint32_t)__shfl_sync(ALL, words.w1.w, r % LANES);
        const int kind = __shfl_sync(ALL, words.w0.w, r % LANES);
        if (at.tile % warps::put != mine) {
            continue;
        }
        const int parts = MM_META_PARTS(at.meta);
        const bool first_run = MM_META_FIRST(at.meta) != 0;
        const bool last_run = MM_META_LAST(at.meta) != 0;
        float2 v[NC];
        float *part = a.part + (size_t)at.slot * MM_SLOT + lane * 2;
#pragma unroll
        for (int c = 0; c < NC; c++) { /* this block's sum of earlier phases */
            v[c] = !first_run && c < count ? *(const float2 *)(part + c * 64) : make_float2(0, 0);
        }
        if (SM90) {
            mbar_wait(room.full + (uint32_t)mine * 8, (uint32_t)(turns & 1));
        } else {
            bar_sync(BAR_FULL + mine, (W + 1) * LANES);
        }
        if (turns++ == 0) {
            f = factors_of<W>(a, lane, count, room.sums, in_power);
        }
        const float up = kind == CU_W4 ? 0.0625f : 1;
#pragma unroll
        for (int c = 0; c < NC; c++) {
            if (c < count) {
                const float *from = room.exchange + c * COL + lane * 2;
                float2 sum = {0, 0};
#pragma unroll
                for (int i = 0; i < W; i++) {
                    const float2 t = *(const float2 *)(from + i * (8 * NT * COL));
                    sum.x += t.x;
                    sum.y += t.y;
                }
                v[c].x += sum.x;
                v[c].y += sum.y * up;
            }
        }
        __syncwarp();
        if (SM90) {
            if (lane == 0) {
                mbar_arrive(room.empty);
            }
        } else if (r + 1 < blk.n_runs) {
            bar_arrive(BAR_EMPTY, (W + 1) * LANES);
        }
        const bool whole = last_run && parts == 1;
        if (!whole) {
#pragma unroll
            for (int c = 0; c < NC; c++) {
                if (c < count) {
                    *(float2 *)(part + c * 64) = v[c];
                }
            }
            if (!last_run || !deliver(a.counter + at.tile, parts, lane)) {
                continue;
            }
        }
#pragma unroll
        for (int h = 0; h < NC; h += 8) {
            if (h < count) {
                float2 eight[8];
#pragma unroll
                for (int c = 0; c < 8; c++) {
                    eight[c] = v[h + c];
                }
                finish(a, at, count, h, lane, f, whole, eight);
            }
        }
    }
}

/* A streaming warp's place in its ring. */
struct ring {
    uint32_t at, begin, end; /* in shared memory, from its start */
    uint32_t bar, bars, parity;
};

/*
 * y[row][r] = sum over k of x[row][k] W[r][k] and what follows it (finish). Block b
 * does the runs of its list, phase by phase: step i of the block is streaming warp
 * i % W's. At a run's end the warps leave their sums in shared memory and go on; the
 * other warps (put_runs) see to the rest. Reads every weight once; bound by that.
 */
template <int NT, bool SM90>
static __global__ void __launch_bounds__(mm_warps<NT, SM90>::threads, mm_warps<NT, SM90>::per_sm)
    mm_kernel(const __grid_constant__ struct mm_args a, const float *in_power)
{
    using warps = mm_warps<NT, SM90>;
    constexpr int W = warps::stream;
    unsigned char *smem = cu_smem();
    const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
    const int stages = SM90 ? a.stages : STAGES80;
    const struct mm_block blk = a.block[blockIdx.x];
    const struct mm_run *run = a.run + blk.run;
    const uint32_t bars = smem_addr(smem + a.at.bars);
    struct mm_room room;
    room.x = smem + a.at.x;
    room.offset = smem + a.at.offset;
    room.exchange = (float *)(smem + a.at.exchange);
    room.sums = (float *)(smem + a.at.sums);
    room.empty = bars + (uint32_t)(W * stages) * 8;
    room.x_bar = room.empty + 8;
    room.full = room.empty + 16;
    struct ring ring;
    ring.begin = ring.at = (uint32_t)warp * (uint32_t)stages * MM_STAGE;
    ring.end = ring.begin + (uint32_t)stages * MM_STAGE;
    ring.bar = ring.bars = bars + (uint32_t)(warp * stages) * 8;
    ring.parity = 0;
    const uint32_t smem0 = smem_addr(smem);
    const uint64_t policy = SM90 ? l2_evict_first() : 0;

    /* weights first: they wait for nobody */
    struct source src;
    src.step = warp;
    src.end = src.run = 0;
    src.left = src.units = src.bytes = src.skip = 0;
    src.src = 0;
    src.word = blk.n_runs ? run_word(run, 0) : make_int4(0, 0, 0, 0);
    if (warp < W) {
        if (SM90) {
            if (lane == 0) {
                for (int s = 0; s < stages; s++) {
                    mbar_init(ring.bars + (uint32_t)s * 8, 1);
                }
                if (warp == 0) {
                    mbar_init(room.empty, 1);
                    mbar_init(room.x_bar, 1);
                    for (int i = 0; i < MM_PUT_WARPS; i++) {
                        mbar_init(room.full + (uint32_t)i * 8, W);
                    }
                }
                mbar_fence_init();
            }
            __syncwarp();
        }
        source_seek<W>(src, run, blk.n_runs);
        for (int s = 0; s < stages; s++) {
            source_fill<SM90>(src, run, blk.n_runs, blk.steps, lane,
                              smem0 + ring.begin + (uint32_t)s * MM_STAGE,
                              ring.bars + (uint32_t)s * 8, policy);
        }
    }
    /* rows past count are zeros */
    for (uint32_t i = threadIdx.x; i < a.at.x_row * NT * 8 / 16; i += blockDim.x) {
        ((uint4 *)room.x)[i] = make_uint4(0, 0, 0, 0);
    }
    if (SM90) {
        fence_proxy_async();
    }
    /* The lists never change, and the batch's tables came a kernel or more before the
     * one that this may overlap. */
    const int count = (int)ld_relaxed(a.count);
    struct run_words words = {};
    words_load(words, run, 0, blk.n_runs, lane);
    const struct mm_phase *phase = a.phase + blk.phase;
    int4 ph = blk.n_runs ? *(const int4 *)phase : make_int4(0, 0, 0, 0);
    __syncthreads();
    pdl_wait();
    if (warp >= W) {
        put_runs<NT, SM90>(a, blk, room, words, warp - W, lane, count, in_power);
        return;
    }

    float acc[4][NT][4];
    int start = 0, step = warp; /* of the run; this warp's next */
    int phase_end = 0, phases = 0;
    bool launched = false;
    for (int r = 0; r < blk.n_runs; r++) {
        if (r > 0 && r % LANES == 0) {
            words_load(words, run, r, blk.n_runs, lane);
        }
        if (r == phase_end) {
            if (phases > 0) {
                bar_sync(BAR_STREAM, W * LANES); /* all are done with the slice before */
            }
            stage_x<SM90, W>(a, count, ph.x, ph.y, smem0 + a.at.x, room.x_bar);
            const struct offsets o = offsets_load<NT, W>(a, count, ph.x, ph.y);
            if (phases == 0) {
                const float in = a.ss ? row_part<W>(a.ss, a.ss_groups, count) : 0;
                const float resid = a.resid_ss ? row_part<W>(a.resid_ss, a.resid_groups, count) : 0;
                if (lane < CU_ROWS) {
                    room.sums[warp * CU_ROWS + lane] = in;
                    room.sums[(W + warp) * CU_ROWS + lane] = resid;
                }
            }
            offsets_put<NT, W>(o, ph.y, room.offset);
            if (SM90) {
                mbar_wait(room.x_bar, phases & 1);
            } else {
                cp_async_wait<0>();
            }
            bar_sync(BAR_STREAM, W * LANES);
            phase_end = ph.z;
            phases++;
            if (phase_end < blk.n_runs) {
                ph = *(const int4 *)(phase + phases);
            }
        }
        if (!launched && src.step + a.trigger * W >= blk.steps) {
            launched = true;
            pdl_launch();
            if (SM90 && threadIdx.x == (W - 1) * LANES) {
                prefetch_next(a);
            }
            __syncwarp();
        }
        const int kind = __shfl_sync(ALL, words.w0.w, r % LANES);
        const int end = start + __shfl_sync(ALL, words.w0.z, r % LANES);
        const int putter = __shfl_sync(ALL, words.w1.x, r % LANES) % warps::put;
        const int at = MM_META_K((uint32_t)__shfl_sync(ALL, words.w1.w, r % LANES)) + step - start;
        const uint8_t *xp = room.x + lane / 4 * a.at.x_row + lane % 4 * 32 + at * X_STEP;
        const uint8_t *op = room.offset + at * (NT * 64) + lane % 4 * 16;
        const uint32_t x8 = 8 * a.at.x_row;
#pragma unroll
        for (int i = 0; i < 4 * NT; i++) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                acc[i / NT][i % NT][j] = 0;
            }
        }
        struct inputs<NT> in;
#define UNIT_BEGIN()                                                                               \
    if (SM90) {                                                                                    \
        mbar_wait(ring.bar, ring.parity);                                                          \
    } else {                                                                                       \
        cp_async_wait<STAGES80 - 1>();                                                             \
        __syncwarp();                                                                              \
    }                                                                                              \
    const uint8_t *unit = smem + ring.at
#define UNIT_END()                                                                                 \
    __syncwarp();                                                                                  \
    source_fill<SM90>(src, run, blk.n_runs, blk.steps, lane, smem0 + ring.at, ring.bar, policy);   \
    ring.at += MM_STAGE;                                                                           \
    ring.bar += 8;                                                                                 \
    if (ring.at == ring.end) {                                                                     \
        ring.at = ring.begin;                                                                      \
        ring.bar = ring.bars;                                                                      \
        ring.parity ^= 1;                                                                          \
    }
        if (kind == CU_W4) {
            for (; step < end; step += W, xp += W * X_STEP, op += W * NT * 64) {
                UNIT_BEGIN();
                inputs_load<NT>(in, xp, x8, op);
                step_w4<NT>(acc, unit, lane, in);
                UNIT_END();
            }
        } else if (kind == CU_W8) {
            for (; step < end; step += W, xp += W * X_STEP, op += W * NT * 64) {
                inputs_load<NT>(in, xp, x8, op);
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    UNIT_BEGIN();
                    half_w8<NT>(acc + 2 * h, unit, lane, in);
                    UNIT_END();
                }
            }
        } else {
            for (; step < end; step += W, xp += W * X_STEP, op += W * NT * 64) {
                inputs_load<NT>(in, xp, x8, op);
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    UNIT_BEGIN();
                    quarter_w16<NT>(acc[q], unit, lane, in);
                    UNIT_END();
                }
            }
        }
#undef UNIT_BEGIN
#undef UNIT_END
        start = end;
        if (SM90) {
            mbar_wait(room.empty, (uint32_t)(r & 1) ^ 1);
        } else if (r > 0) {
            bar_sync(BAR_EMPTY, (W + 1) * LANES);
        }
        exchange_put<NT>(room.exchange + warp * (8 * NT * COL), acc, lane);
        __syncwarp();
        if (SM90) {
            if (lane == 0) {
                mbar_arrive(room.full + (uint32_t)putter * 8);
            }
        } else {
            bar_arrive(BAR_FULL + putter, (W + 1) * LANES);
        }
    }
    if (!launched) {
        pdl_launch();
    }
}

/* ---- host ---- */

extern "C" int cu_mm_plan_create_tuned(struct cu_ctx *c, const struct cu_mat *const *mats, int n,
                                       const struct mm_tune *tune, struct cu_mm_plan **out)
{
    struct cu_mm_plan *p = NULL;
    if (mm_plan_make(c->path, c->n_sm, mats, n, tune, &p) < 0) {
        return cudaErrorInvalidValue;
    }
    const size_t runs = (size_t)p->n_runs * sizeof *p->run;
    const size_t phases = (size_t)p->n_phases * sizeof *p->phase;
    const size_t blocks = (size_t)p->n_blocks * sizeof *p->block;
    cudaError_t rc = cudaMalloc(&p->device, runs + phases + blocks);
    if (rc != cudaSuccess) {
        mm_plan_free(p);
        return rc;
    }
    uint8_t *d = (uint8_t *)p->device;
    p->d_run = (const struct mm_run *)d;
    p->d_phase = (const struct mm_phase *)(d + runs);
    p->d_block = (const struct mm_block *)(d + runs + phases);
    rc = cudaMemcpy(d, p->run, runs, cudaMemcpyHostToDevice);
    if (rc == cudaSuccess) {
        rc = cudaMemcpy(d + runs, p->phase, phases, cudaMemcpyHostToDevice);
    }
    if (rc == cudaSuccess) {
        rc = cudaMemcpy(d + runs + phases, p->block, blocks, cudaMemcpyHostToDevice);
    }
    if (rc != cudaSuccess) {
        cu_mm_plan_free(p);
        return rc;
    }
    *out = p;
    return cudaSuccess;
}

extern "C" int cu_mm_plan_create(struct cu_ctx *c, const struct cu_mat *const *mats, int n,
                                 struct cu_mm_plan **out)
{
    return cu_mm_plan_create_tuned(c, mats, n, NULL, out);
}

extern "C" void cu_mm_plan_free(struct cu_mm_plan *p)
{
    if (p) {
        cudaFree(p->device);
        mm_plan_free(p);
    }
}

/* Counters have one place whatever the plan: a product never dirties another's. */
static size_t counter_bytes(void)
{
    return (size_t)MM_MAX_TILES * sizeof(uint32_t);
}

extern "C" size_t cu_mm_work(const struct cu_mm_plan *p)
{
    return counter_bytes() + (size_t)p->n_slots * MM_SLOT * sizeof(float);
}

/* What does not fit the plan, or NULL. */
static bool usable(const struct cu_batch *b, const struct cu_mm *m)
{
    const struct cu_mm_plan *p = m->plan;
    const bool whole = p->n == 1 && p->mat[0].rows % 64 == 0;
    return b->rows >= 1 && b->rows <= CU_ROWS && (m->out == CU_MM_STORE || whole) &&
           (!m->ss || m->norm_k % 64 == 0);
}

extern "C" int cu_mm(struct cu_ctx *c, const struct cu_batch *b, const struct cu_mm *m)
{
    const struct cu_mm_plan *p = m->plan;
    if (!usable(b, m)) {
        return cudaErrorInvalidValue;
    }
    const int nt = b->rows > 8 ? 2 : 1;
    const int rows = p->mat[0].rows;
    struct mm_args a = {};
    a.run = p->d_run;
    a.phase = p->d_phase;
    a.block = p->d_block;
    a.count = b->count;
    a.x = m->in.x;
    a.sum = m->in.sum;
    a.ss = m->ss;
    a.resid_ss = m->resid_ss;
    a.k = p->kg * 64;
    a.ss_groups = m->ss ? m->norm_k / 64 : 0;
    a.inv_norm_k = m->ss ? 1.0f / (float)m->norm_k : 0;
    a.resid_groups = rows / 64;
    a.inv_hidden = 1.0f / (float)rows;
    a.eps = m->eps;
    a.out = m->out;
    a.stages = p->stages[nt - 1];
    a.trigger = p->trigger;
    switch (m->out) {
    case CU_MM_STORE:
        a.y = m->y;
        a.ld = (int)m->ldy;
        break;
    case CU_MM_SILU:
        a.act_x = m->act.x;
        a.act_sum = m->act.sum;
        a.ld = rows / 2;
        break;
    case CU_MM_RESIDUAL:
    case CU_MM_START:
        a.act_x = m->resid.act.x;
        a.act_sum = m->resid.act.sum;
        a.resid_x = m->resid.x;
        a.resid_ss_out = m->resid.ss;
        a.power = m->resid.power;
        a.next_norm = m->next_norm;
        a.ld = rows;
        break;
    }
    a.counter = (uint32_t *)m->work;
    a.part = (float *)((uint8_t *)m->work + counter_bytes());
    if (m->next && m->next->prefetch[nt - 1]) {
        a.next_run = m->next->d_run;
        a.next_block = m->next->d_block;
        a.next_blocks = m->next->n_blocks;
        a.next_bytes = m->next->prefetch[nt - 1];
    }
    a.at = mm_smem_of(p, nt);
    for (int i = 0; i < p->n; i++) {
        a.mat[i].row_scale = p->mat[i].row_scale;
        a.mat[i].tile0 = p->tile0[i];
        a.mat[i].rows = p->mat[i].rows;
        a.mat[i].col0 = p->col0[i];
    }
    const dim3 grid((unsigned)p->n_blocks);
    const dim3 block(c->path == CU_SM80
                         ? nt == 1 ? mm_warps<1, false>::threads : mm_warps<2, false>::threads
                     : nt == 1 ? mm_warps<1, true>::threads
                               : mm_warps<2, true>::threads);
    if (c->path == CU_SM80) {
        return nt == 1
                   ? cu_launch(c, "mm", mm_kernel<1, false>, grid, block, a.at.bytes, a, m->power)
                   : cu_launch(c, "mm16", mm_kernel<2, false>, grid, block, a.at.bytes, a,
                               m->power);
    }
    return nt == 1 ? cu_launch(c, "mm", mm_kernel<1, true>, grid, block, a.at.bytes, a, m->power)
                   : cu_launch(c, "mm16", mm_kernel<2, true>, grid, block, a.at.bytes, a, m->power);
}
