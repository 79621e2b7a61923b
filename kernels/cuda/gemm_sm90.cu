/* The prefill product on sm_90: wgmma with the weights, dequantised, in registers as
 * its rows and the tokens from shared memory as its columns. Four warps fetch tokens
 * and codes by bulk copies into a ring; each other warpgroup turns the codes of its
 * rows into fp16 for the next product while the last one runs. */
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/wgmma.cuh"

#include <string.h>

enum { FRAG = 128 * 16 * 4 }; /* a warpgroup's registers for a step */

/* Launch shapes: WG warpgroups of MT x 64 rows each, N tokens. A stage of the ring has
 * one step or two (where a round of the loop has two, and codes are small). */
template <int KIND, int WG, int MT, int N> struct shape90 {
    static constexpr int kind = KIND, wg = WG, mt = MT, tiles = WG * MT, rows = tiles * 64,
                         tokens = N;
    static constexpr int steps = MT == 1 && KIND != CU_W16 ? 2 : 1;
    static constexpr int step = gemm_kind<KIND>::step;
    static constexpr int xt = N * 128;           /* bytes of a step's tokens */
    static constexpr int w = steps * step;       /* of a tile's weights in a stage */
    static constexpr int copies = steps + tiles; /* that fill a stage */
    static constexpr int put = WG * 4 * GEMM_STAGE;
    /* A lone warpgroup has a helper, which makes the registers of every second step. */
    static constexpr bool help = WG == 1 && steps == 2;
    static constexpr int frags = help ? 2 * FRAG : 0;
    static constexpr int fixed = 1024 + put + frags;        /* barriers, staging */
    static constexpr int slack = 1024 - 128;                /* for the alignment */
    static constexpr int room = 227 * 1024 - slack - fixed; /* one block a multiprocessor */
    static constexpr int stages = room / (steps * xt + tiles * w);
    static constexpr int smem = slack + fixed + stages * (steps * xt + tiles * w);
    static constexpr int threads = WG * 128 + help * 128 + 128;
    /* Registers are moved from the copying warpgroup to the others: to hold 128
     * accumulators, or 32 with four warpgroups. */
    static constexpr int regs = MT * N == 256 ? 232 : WG == 4 ? 104 : 0;
    static constexpr int copy_regs = WG == 4 ? 64 : 40;
    /* 16-bit matrices may have blocks beside the others. */
    static constexpr bool mixed = MT == 1 && KIND != CU_W16;
    static_assert(stages >= 3, "a ring of three stages");
    static_assert(16 * stages + 96 <= 1024, "room for the barriers");
};

/* Where things lie in a block's shared memory. */
struct place90 {
    uint8_t *put, *w;
    uint32_t xt, full, empty;
    uint32_t idle;       /* a barrier for which nobody waits */
    uint8_t *frag;       /* two steps' registers from the helper */
    uint32_t made, used; /* [2] their barriers */
    int *last;           /* a word of the computing warps */
};

#if defined QUASAR_EMULATE || defined __CUDA_ARCH_FEAT_SM90_ALL

/* One uninterrupted run of steps of a tile, within one of its chains. unit: the chain's
 * index among those of the shared tiles; ~chain in a tile of the block alone. */
struct piece {
    int row_tile, token_tile, from, to, unit;
};

GEMM_FN int chain_of(const struct gemm_args *a, const struct piece *p)
{
    return p->unit < 0 ? ~p->unit : p->unit & ((1 << a->log) - 1);
}

/* The i-th of this block. Pieces of the shared tiles go from the block's last chain to
 * its first: the front of a chain that the next block ends is computed at once, the
 * chain whose front the block before has computed comes at the end. No block waits for
 * one with a higher index. */
GEMM_FN bool piece_at(const struct gemm_args *a, int block, int i, struct piece *p)
{
    const int steps = a->steps, alone = a->waves << a->log;
    int tile = block + (i >> a->log) * a->blocks, from = 0, to = steps;
    p->unit = ~(i & ((1 << a->log) - 1));
    if (i >= alone) {
        const int base = a->waves * a->blocks, total = (a->tiles - base) * a->kg;
        const int begin = block * a->share;
        const int end = begin + a->share < total ? begin + a->share : total;
        const int t = (end - 1) / steps - (i - alone);
        if (begin >= end || t < begin / steps) {
            return false;
        }
        from = begin > t * steps ? begin - t * steps : 0;
        to = end < (t + 1) * steps ? end - t * steps : steps;
        p->unit = t;
        tile = base + (t >> a->log);
    } else if (tile >= a->tiles) {
        return false;
    }
    const int first = chain_of(a, p) * steps;
    p->from = first + from;
    p->to = first + to;
    p->row_tile = tile / a->token_tiles;
    p->token_tile = tile - p->row_tile * a->token_tiles;
    return true;
}

GEMM_FN const struct gemm_mat *mat_of(const struct gemm_args *a, int row_tile)
{
    int i = 0;
    while (i + 1 < a->n && row_tile >= a->m[i + 1].first) {
        i++;
    }
    return &a->m[i];
}

/* ---- the copying warps ---- */

enum { COPIERS = 4 };

/* A stage is filled by as many copies as it has steps (tokens) and tiles (weights);
 * one lane of each copying warp starts every fourth of them: to judge by tiles with two
 * and with five copies a step, a lane takes some 230 cycles for each. A piece with an
 * odd number of steps begins with a stage of one. */
template <class S> GEMM_FN void produce(const struct gemm_args *a, int block, struct place90 at)
{
    const int first = ((int)threadIdx.x >> 5) % COPIERS;
    int stage = 0, fresh = S::stages;
    uint32_t parity = 1;
    bool waited = false;
    struct piece p;
    for (int i = 0; piece_at(a, block, i, &p); i++) {
        const struct gemm_mat *m = mat_of(a, p.row_tile);
        const int tile = (p.row_tile - m->first) * S::tiles;
        const int token = p.token_tile * S::tokens;
        const uint8_t *const x = (const uint8_t *)a->xt +
                                 ((size_t)(token >> 7) * a->kg + p.from) * 16384 +
                                 (token & 127) * 128;
        const uint8_t *const w = m->data + ((size_t)tile * a->kg + p.from) * S::step;
        const size_t next = (size_t)a->kg * S::step; /* tile */
        const int n = p.to - p.from, odd = n % S::steps, rounds = (n + odd) / S::steps;
        /* A first filling of the ring: the weights, which no kernel writes, before the
         * wait for the tokens. */
        const int ahead = waited ? 0 : rounds < fresh ? rounds : fresh;
        for (int half = waited ? 1 : 0; half < 2; half++) {
            if (half == 1 && !waited) {
                pdl_wait();
                waited = true;
                stage = 0;
            }
            const int end = half == 0 ? ahead : rounds;
            for (int r = 0, k = 0; r < end; r++) {
                const int steps = r == 0 && odd ? 1 : S::steps;
                const uint32_t bar = at.full + 8 * stage;
                if (half == 0 || r >= ahead) {
                    if (fresh == 0) {
                        mbar_wait(at.empty + 8 * stage, parity);
                    } else {
                        fresh--;
                    }
                }
#pragma unroll
                for (int c0 = 0; c0 < S::copies; c0 += COPIERS) {
                    const int c = c0 + first, j = c - S::steps;
                    if (c >= S::copies) {
                        continue;
                    }
                    if (j < 0 && half == 1) {
                        if (c < steps) {
                            mbar_arrive_expect(bar, S::xt);
                            bulk_load(at.xt + (stage * S::steps + c) * S::xt,
                                      x + (size_t)(k + c) * 16384, S::xt, bar);
                        } else {
                            mbar_arrive(bar);
                        }
                    } else if (j >= 0 && (half == 0 || r >= ahead)) {
                        if (tile + j < m->tiles) {
                            mbar_arrive_expect(bar, steps * S::step);
                            bulk_load(smem_addr(at.w) + (stage * S::tiles + j) * S::w,
                                      w + j * next + (size_t)k * S::step, steps * S::step, bar);
                        } else {
                            mbar_arrive(bar); /* no such rows: whatever is there will do */
                        }
                    }
                }
                k += steps;
                if (++stage == S::stages) {
                    stage = 0;
                    parity ^= half == 1;
                }
            }
        }
    }
    if (!waited) {
        pdl_wait();
    }
}

/* ---- the computing warpgroups ---- */

/* Where the reader of the ring stands. */
struct reader {
    int stage;
    uint32_t parity;
    uint32_t round; /* of two steps, counted for the helper */
};

template <class S> GEMM_FN void advance(struct reader *r)
{
    if (++r->stage == S::stages) {
        r->stage = 0;
        r->parity ^= 1;
    }
}

template <int N> GEMM_FN void issue(float *d, uint32_t *a, uint64_t b)
{
    wgmma_touch_a<16>(a);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < 4; j++) {
        wgmma_rs<N>(d, a + 4 * j, b + WGMMA_K16 * j, 1);
    }
    wgmma_commit();
}

GEMM_FN void release(uint32_t bar, int lane)
{
    __syncwarp();
    if (lane == 0) {
        mbar_arrive(bar);
    }
}

/* A thread's registers of a step on their way from the helper: 16 bytes a lane. */
GEMM_FN void frag_store(const uint32_t *a, uint8_t *slot, int warp, int lane)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        *(uint4 *)(slot + warp * 2048 + j * 512 + lane * 16) =
            make_uint4(a[4 * j], a[4 * j + 1], a[4 * j + 2], a[4 * j + 3]);
    }
}

GEMM_FN void frag_load(uint32_t *a, const uint8_t *slot, int warp, int lane)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint4 v = *(const uint4 *)(slot + warp * 2048 + j * 512 + lane * 16);
        a[4 * j] = v.x;
        a[4 * j + 1] = v.y;
        a[4 * j + 2] = v.z;
        a[4 * j + 3] = v.w;
    }
}

/* n steps of the ring into d. The products of one 64-row tile's step run while the
 * registers for the next are made. `w` is the warpgroup's first tile in stage 0. The
 * loops have one way in, one out and no branch between: else ptxas waits for every
 * product. So a release stands where the first round has nothing to give back: it goes
 * to the barrier `idle`. */
template <class S>
GEMM_FN void multiply(float (*d)[S::tokens / 2], int n, struct reader *in, const struct place90 &at,
                      const uint8_t *w, uint64_t desc, int rb, int lane)
{
    constexpr int KIND = S::kind, MT = S::mt, N = S::tokens, W = S::tiles * S::w;
    constexpr int X = S::steps * (S::xt >> 4); /* a stage's tokens in a descriptor */
    uint32_t a0[16], a1[16], before = at.idle;
    wgmma_touch<MT * N / 2>(d[0]);
    mbar_wait(at.full + 8 * in->stage, in->parity);
    gemm_load_a<KIND>(a0, w + in->stage * W, rb, lane);
    if constexpr (MT == 2) {
        for (int k = 1;; k++) {
            const int s = in->stage;
            const uint64_t b = desc + (uint64_t)(s * X);
            issue<N>(d[0], a0, b);
            wgmma_wait<1>();
            release(before, lane);
            before = at.empty + 8 * s;
            gemm_load_a<KIND>(a1, w + s * W + S::w, rb, lane);
            issue<N>(d[1], a1, b);
            advance<S>(in);
            if (k == n) {
                break;
            }
            mbar_wait(at.full + 8 * in->stage, in->parity);
            wgmma_wait<1>();
            gemm_load_a<KIND>(a0, w + in->stage * W, rb, lane);
        }
    } else {
        if (n & 1) {
            issue<N>(d[0], a0, desc + (uint64_t)(in->stage * X));
            wgmma_wait<0>();
            wgmma_touch<N / 2>(d[0]);
            before = at.empty + 8 * in->stage;
            advance<S>(in);
            if (n == 1) {
                release(before, lane);
                return;
            }
            mbar_wait(at.full + 8 * in->stage, in->parity);
            gemm_load_a<KIND>(a0, w + in->stage * W, rb, lane);
        }
        if constexpr (S::steps == 1) {
            int s0, s1;
            for (int k = n & ~1;; k -= 2) {
                s0 = in->stage;
                issue<N>(d[0], a0, desc + (uint64_t)(s0 * X));
                advance<S>(in);
                s1 = in->stage;
                mbar_wait(at.full + 8 * s1, in->parity);
                wgmma_wait<1>();
                release(before, lane);
                gemm_load_a<KIND>(a1, w + s1 * W, rb, lane);
                issue<N>(d[0], a1, desc + (uint64_t)(s1 * X));
                advance<S>(in);
                if (k == 2) {
                    break;
                }
                mbar_wait(at.full + 8 * in->stage, in->parity);
                wgmma_wait<1>();
                release(at.empty + 8 * s0, lane);
                before = at.empty + 8 * s1;
                gemm_load_a<KIND>(a0, w + in->stage * W, rb, lane);
            }
            wgmma_wait<0>();
            wgmma_touch<N / 2>(d[0]);
            release(at.empty + 8 * s0, lane);
            release(at.empty + 8 * s1, lane);
            return;
        }
        /* One warp a scheduler: both steps' codes of a stage are read ahead of their
         * expansion; four have no registers for it, and hide it by each other. With a
         * helper, the second step's registers come from it. */
        constexpr bool EARLY = S::wg < 4;
        struct gemm_raw<KIND> r0, r1;
        if (EARLY && !S::help) {
            gemm_fetch<KIND>(&r1, w + in->stage * W + S::step, rb, lane);
        }
        for (int k = n >> 1;; k--) {
            const int s = in->stage;
            const uint64_t b = desc + (uint64_t)(s * X);
            issue<N>(d[0], a0, b);
            wgmma_wait<1>();
            release(before, lane);
            before = at.empty + 8 * s;
            if constexpr (S::help) {
                const uint32_t slot = in->round & 1;
                mbar_wait(at.made + 8 * slot, in->round >> 1 & 1);
                frag_load(a1, at.frag + slot * FRAG, rb, lane);
                release(at.used + 8 * slot, lane);
                in->round++;
            } else {
                if (!EARLY) {
                    gemm_fetch<KIND>(&r1, w + s * W + S::step, rb, lane);
                }
                gemm_expand<KIND>(a1, &r1);
            }
            issue<N>(d[0], a1, b + (S::xt >> 4));
            advance<S>(in);
            if (k == 1) {
                break;
            }
            mbar_wait(at.full + 8 * in->stage, in->parity);
            if (EARLY) {
                gemm_fetch<KIND>(&r0, w + in->stage * W, rb, lane);
                if (!S::help) {
                    gemm_fetch<KIND>(&r1, w + in->stage * W + S::step, rb, lane);
                }
                wgmma_wait<1>();
            } else {
                wgmma_wait<1>();
                gemm_fetch<KIND>(&r0, w + in->stage * W, rb, lane);
            }
            gemm_expand<KIND>(a0, &r0);
        }
    }
    wgmma_wait<0>();
    wgmma_touch<MT * N / 2>(d[0]);
    release(before, lane);
}

/* A tile's sums to memory: each thread its own. */
template <int REGS, int THREADS> GEMM_FN void sums_save(const float *d, float *to)
{
    float4 *p = (float4 *)to + threadIdx.x;
#pragma unroll
    for (int i = 0; i < REGS / 4; i++) {
        p[i * THREADS] = make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
    }
}

/* d = the sums there + d */
template <int REGS, int THREADS> GEMM_FN void sums_add(float *d, const float *from)
{
    const float4 *p = (const float4 *)from + threadIdx.x;
#pragma unroll
    for (int i = 0; i < REGS / 4; i++) {
        const float4 v = ld_l2_16_if(p + i * THREADS, true);
        d[4 * i] += v.x;
        d[4 * i + 1] += v.y;
        d[4 * i + 2] += v.z;
        d[4 * i + 3] += v.w;
    }
}

/* On their way from one block to the next. */
template <int REGS, int THREADS> GEMM_FN void part_save(const float *d, float *part, uint32_t *flag)
{
    sums_save<REGS, THREADS>(d, part);
    fence_gpu();
    bar_sync(1, THREADS);
    if (threadIdx.x == 0) {
        st_release(flag, 1);
    }
}

/* Without a branch around the registers: see multiply. Not from another block: zeros. */
template <int REGS, int THREADS>
GEMM_FN void part_load(float *d, const float *part, uint32_t *flag, bool from)
{
    if (from) {
        if (threadIdx.x == 0) {
            while (ld_acquire(flag) == 0) {
            }
        }
        bar_sync(1, THREADS);
    }
    const float4 *p = (const float4 *)part + threadIdx.x;
#pragma unroll
    for (int i = 0; i < REGS / 4; i++) {
        const float4 v = ld_l2_16_if(p + i * THREADS, from);
        d[4 * i] = v.x;
        d[4 * i + 1] = v.y;
        d[4 * i + 2] = v.z;
        d[4 * i + 3] = v.w;
    }
}

/* A chain that ended is in d. Whether the tile is whole then, with its sum in d: its chains
 * are added up in `part` where the block has the tile alone; else the last block
 * to bring one adds them all. last: a word of shared memory. */
template <int REGS, int THREADS>
GEMM_FN bool gather(const struct gemm_args *a, int block, const struct piece *p, float *d,
                    volatile int *last)
{
    constexpr size_t size = (size_t)REGS * THREADS;
    const int n = (1 << a->log) - 1;
    if (p->unit < 0) {
        float *const own = a->part + block * size;
        if (~p->unit > 0) {
            sums_add<REGS, THREADS>(d, own);
        }
        if (~p->unit < n) {
            sums_save<REGS, THREADS>(d, own);
        }
        return ~p->unit == n;
    }
    sums_save<REGS, THREADS>(d, a->chain + p->unit * size);
    fence_gpu();
    bar_sync(1, THREADS);
    if (threadIdx.x == 0) {
        *last = (int)atom_inc_acq_rel(a->done + (p->unit >> a->log), (uint32_t)n) == n;
    }
    bar_sync(1, THREADS);
    if (!*last) {
        return false;
    }
    fence_gpu();
#pragma unroll
    for (int i = 0; i < REGS; i++) {
        d[i] = -0.0f; /* plus anything: the same bits */
    }
#pragma unroll 1
    for (int c = 0; c <= n; c++) {
        sums_add<REGS, THREADS>(d, a->chain + ((p->unit & ~n) + c) * size);
    }
    return true;
}

/* Sums of a warpgroup's MT x 64 rows from `row` of m, by N tokens. put: the
 * warpgroup's part of the staging memory. */
template <int KIND, int MT, int N>
GEMM_FN void finish(const struct gemm_args *a, const struct gemm_mat *m, float (*d)[N / 2],
                    uint8_t *put, int row, int token, int wg, int warp, int lane)
{
    const int g = lane >> 2;
    float *stage = (float *)(put + warp * GEMM_STAGE);
#pragma unroll
    for (int q = 0; q < N / 32; q++) {
#pragma unroll
        for (int i = 0; i < MT; i++) {
            const int r = row + i * 64 + warp * 16, rows = m->rows - r;
            float lo = 1, hi = 1;
            if (KIND == CU_W16 && rows > 0) {
                lo = m->row_scale[r + g];
                hi = m->row_scale[r + g + 8];
            }
            if (a->out == CU_GEMM_SILU) {
                gemm_silu(d[i] + 16 * q, put + (q & 1) * 4096, (row >> 4 & 4) + 4 * i + warp, lo,
                          hi, lane);
            } else if (rows > 0) {
                gemm_put(d[i] + 16 * q, stage,
                         a->y + (size_t)(token + 32 * q) * a->ldy + m->col + r, a->ldy,
                         a->rows - token - 32 * q, rows, m->vec, a->out == CU_GEMM_ADD, lo, hi,
                         lane);
            }
        }
        if (a->out == CU_GEMM_SILU && (q & 1)) {
            /* 64 tokens of a block of 64 outputs (or, MT 1, of half of each unit) */
            bar_sync(2 + wg, 128);
            const int first = token + 32 * (q - 1), left = a->rows - first;
            uint8_t *to = (uint8_t *)a->xt_out +
                          ((size_t)(first >> 7) * (m->rows >> 7) + (row >> 7)) * 16384 +
                          (first & 127) * 128;
            for (int u = warp * 32 + lane; u < 512 && row < m->rows; u += 128) {
                if (u >> 3 < left) {
                    if (MT == 2) {
                        ((uint4 *)to)[u] = ((const uint4 *)put)[u];
                    } else {
                        const int at = 2 * u + (row >> 6 & 1);
                        ((uint2 *)to)[at] = ((const uint2 *)put)[at];
                    }
                }
            }
            bar_sync(2 + wg, 128);
        }
    }
}

template <class S> GEMM_FN void consume(const struct gemm_args *a, int block, struct place90 at)
{
    constexpr int N = S::tokens, MT = S::mt, THREADS = S::wg * 128;
    const int wg = (int)threadIdx.x >> 7, warp = (int)threadIdx.x >> 5 & 3;
    const int lane = (int)threadIdx.x & 31;
    struct reader in = {0, 0, 0};
    struct piece p;
    const uint8_t *const w = at.w + wg * MT * S::w;
    uint8_t *const put = at.put + wg * 4 * GEMM_STAGE;
    pdl_wait();
    for (int i = 0; piece_at(a, block, i, &p); i++) {
        constexpr size_t size = (size_t)S::rows * N;
        float d[MT][N / 2];
        const bool begun = p.from > chain_of(a, &p) * a->steps;
        const int from = begun ? block - 1 : 0;
        part_load<MT * N / 2, THREADS>(d[0], a->part + from * size, a->flag + from, begun);
        multiply<S>(d, p.to - p.from, &in, at, w, wgmma_desc(at.xt), warp, lane);
        const int first = chain_of(a, &p) * a->steps;
        if (p.to < first + a->steps) {
            part_save<MT * N / 2, THREADS>(d[0], a->part + block * size, a->flag + block);
            continue;
        }
        if (p.from > first && threadIdx.x == 0) {
            st_release(a->flag + block - 1, 0);
        }
        if (a->log == 0 || gather<MT * N / 2, THREADS>(a, block, &p, d[0], at.last)) {
            const struct gemm_mat *m = mat_of(a, p.row_tile);
            finish<S::kind, MT, N>(a, m, d, put, (p.row_tile - m->first) * S::rows + wg * MT * 64,
                                   p.token_tile * N, wg, warp, lane);
        }
    }
}

/* The helper of a lone warpgroup: its warp w makes registers for the other's warp w. */
template <class S> GEMM_FN void assist(const struct gemm_args *a, int block, struct place90 at)
{
    constexpr int KIND = S::kind;
    const int warp = (int)threadIdx.x >> 5 & 3, lane = (int)threadIdx.x & 31;
    struct reader in = {0, 0, 0};
    struct piece p;
    for (int i = 0; piece_at(a, block, i, &p); i++) {
        const int n = p.to - p.from, odd = n & 1;
        if (odd) { /* a stage of one step, not the helper's */
            mbar_wait(at.full + 8 * in.stage, in.parity);
            release(at.empty + 8 * in.stage, lane);
            advance<S>(&in);
        }
        for (int k = n >> 1; k > 0; k--) {
            uint32_t frag[16];
            struct gemm_raw<KIND> r;
            mbar_wait(at.full + 8 * in.stage, in.parity);
            gemm_fetch<KIND>(&r, at.w + in.stage * S::w + S::step, warp, lane);
            gemm_expand<KIND>(frag, &r);
            release(at.empty + 8 * in.stage, lane);
            advance<S>(&in);
            const uint32_t slot = in.round & 1;
            mbar_wait(at.used + 8 * slot, ~(in.round >> 1) & 1);
            frag_store(frag, at.frag + slot * FRAG, warp, lane);
            release(at.made + 8 * slot, lane);
            in.round++;
        }
    }
}

/* Found anew in each branch: of a choice between two, the compiler would forget that it
 * is shared memory. */
template <class S> GEMM_FN struct place90 place_of(uint8_t *smem)
{
    struct place90 at;
    at.full = smem_addr(smem);
    at.empty = at.full + 8 * S::stages;
    at.idle = at.empty + 8 * S::stages;
    at.made = at.idle + 8;
    at.used = at.made + 16;
    at.last = (int *)(smem + 1024 - 32);
    at.put = smem + 1024;
    at.frag = at.put + S::put;
    at.xt = at.full + S::fixed;
    at.w = smem + S::fixed + S::stages * S::steps * S::xt;
    return at;
}

/* The block's barriers, by one thread. */
template <class S> GEMM_FN void prepare(uint8_t *smem)
{
    const struct place90 at = place_of<S>(smem);
    for (int i = 0; i < S::stages; i++) {
        mbar_init(at.full + 8 * i, S::copies);
        mbar_init(at.empty + 8 * i, (S::wg + S::help) * 4);
    }
    mbar_init(at.idle, S::wg * 4);
    for (int i = 0; i < 4; i++) {
        mbar_init(at.made + 8 * i, 4);
    }
    mbar_fence_init();
}
#endif

/* Tokens and weights read once per tile, rows x N x k multiplied: bound by the tensor
 * cores from 256 rows by 64 tokens up, 64 x 128 bytes of shared memory a cycle; with
 * fewer rows by a step's way through one warp of each scheduler, some 250 cycles. The
 * blocks after a's are side's: 16-bit matrices over the same tokens. */
template <int KIND, int WG, int MT, int N>
__global__ void __launch_bounds__(shape90<KIND, WG, MT, N>::threads, 1)
    gemm90(const __grid_constant__ struct gemm_args a,
           const __grid_constant__ struct gemm_args side)
{
#if defined QUASAR_EMULATE || defined __CUDA_ARCH_FEAT_SM90_ALL
    using S = shape90<KIND, WG, MT, N>;
    using T = shape90<S::mixed ? (int)CU_W16 : KIND, WG, MT, N>;
    uint8_t *const smem = cu_smem_aligned(1024);
    int block = (int)blockIdx.x;
    if (a.share > 0) {
        /* Blocks of an earlier launch have theirs: they take them before they let this
         * one start. */
        int *const number = (int *)(smem + 1024 - 16);
        if (threadIdx.x == 0) {
            *number = (int)atom_inc_acq_rel(a.ticket, gridDim.x - 1);
        }
        __syncthreads();
        block = *number;
    }
    const bool main = !S::mixed || block < a.blocks;
    if (threadIdx.x == 0) {
        if (main) {
            prepare<S>(smem);
        } else {
            prepare<T>(smem);
        }
    }
    __syncthreads();
    pdl_launch();
    if (threadIdx.x < WG * 128) {
        if constexpr (S::regs > 0) {
            regs_inc<S::regs>();
        }
        if (main) {
            consume<S>(&a, block, place_of<S>(smem));
        } else if constexpr (S::mixed) {
            consume<T>(&side, block - a.blocks, place_of<T>(smem));
        }
    } else if (S::help && threadIdx.x < 256) {
        if constexpr (S::help) {
            if (main) {
                assist<S>(&a, block, place_of<S>(smem));
            }
        }
    } else {
        if constexpr (S::regs > 0) {
            regs_dec<S::copy_regs>();
        }
        if (threadIdx.x % 32 == 0) {
            if (main) {
                produce<S>(&a, block, place_of<S>(smem));
            } else if constexpr (S::mixed) {
                produce<T>(&side, block - a.blocks, place_of<T>(smem));
            }
        }
    }
#else
    __trap();
#endif
}

/* ---- host ---- */

struct row90 {
    int rows, tokens;
    int cost; /* cycles of a step of the tile */
    bool mixed;
};

/* Bits do not depend on the choice: every element is the same chains of products. */
static const struct row90 table90[] = {
    {256, 128, 1300, false},
    {256, 64, 1000, true},
    {128, 64, 546, true},
    {64, 64, 380, true},
};
enum { SHAPES90 = sizeof table90 / sizeof table90[0] };

enum { PART_FLOATS = 256 * 128 };

template <int KIND, int WG, int MT, int N>
static int launch90(struct cu_ctx *c, const struct gemm_args *a, const struct gemm_args *side)
{
    using S = shape90<KIND, WG, MT, N>;
    using T = shape90<S::mixed ? (int)CU_W16 : KIND, WG, MT, N>;
    return (int)cu_launch(c, "gemm_sm90", gemm90<KIND, WG, MT, N>,
                          dim3((unsigned)(a->blocks + side->blocks)), dim3(S::threads),
                          S::smem > T::smem ? S::smem : T::smem, *a, *side);
}

template <int KIND>
static int pick90(struct cu_ctx *c, int pick, const struct gemm_args *a,
                  const struct gemm_args *side)
{
    switch (pick) {
    case 0:
        return launch90<KIND, 2, 2, 128>(c, a, side);
    case 1:
        return launch90<KIND, 4, 1, 64>(c, a, side);
    case 2:
        return launch90<KIND, 2, 1, 64>(c, a, side);
    default:
        return launch90<KIND, 1, 1, 64>(c, a, side);
    }
}

/* Bytes: sums handed on, chains; flags, counts, ticket. */
size_t gemm_sm90_work(int n_sm)
{
    return (size_t)n_sm * ((1 + GEMM_PARTS) * PART_FLOATS * 4 + 2 * 4) + 4;
}

/* The fastest launch shape: cycles a step times tiles a multiprocessor, in 1/16. */
static int choose90(struct cu_ctx *c, struct gemm_args *a, bool work)
{
    int pick = 0;
    long best = 0;
    for (int i = 0; i < SHAPES90; i++) {
        const struct row90 *t = &table90[i];
        gemm_cut(a, t->rows, t->tokens);
        long waves = 16L * a->tiles / c->n_sm;
        const long least = 16 >> a->log;
        waves = waves < least ? least : !work ? (waves + 15) / 16 * 16 : waves;
        if (i == 0 || waves * t->cost < best) {
            best = waves * t->cost;
            pick = i;
        }
    }
    return pick;
}

static void cut90(const struct cu_ctx *c, const struct row90 *t, void *work, struct gemm_args *a)
{
    gemm_cut(a, t->rows, t->tokens);
    const int chains = a->tiles << a->log;
    a->blocks = chains > c->n_sm ? c->n_sm : chains;
    a->waves = (a->tiles + a->blocks - 1) / a->blocks;
    a->share = 0;
    if (!work) {
        return;
    }
    a->part = (float *)work;
    a->chain = a->part + (size_t)c->n_sm * PART_FLOATS;
    a->flag = (uint32_t *)(a->chain + (size_t)c->n_sm * GEMM_PARTS * PART_FLOATS);
    a->done = a->flag + c->n_sm;
    a->ticket = a->done + c->n_sm;
    if (a->tiles % a->blocks != 0) {
        /* at least a tile a block where a tile is one chain; fewer, in chains, else */
        a->waves = a->tiles / a->blocks - (a->log == 0);
        const int left = (a->tiles - a->waves * a->blocks) * a->kg;
        a->share = (left + a->blocks - 1) / a->blocks;
        if (a->log > 0 && a->share < a->steps) {
            a->share = a->steps;
        }
    }
}

int gemm_sm90(struct cu_ctx *c, struct gemm_args a[3], void *work, int shape)
{
    if (shape >= SHAPES90) {
        return (int)cudaErrorInvalidValue;
    }
    static const struct gemm_args none = {};
    struct gemm_args *const wide = &a[CU_W16];
    int rc = (int)cudaSuccess;
    for (int kind = 0; kind < 3 && rc == (int)cudaSuccess; kind++) {
        if (a[kind].n == 0) {
            continue;
        }
        const int pick = shape < 0 ? choose90(c, &a[kind], work != NULL) : shape;
        const struct row90 *t = &table90[pick];
        cut90(c, t, work, &a[kind]);
        const struct gemm_args *side = &none;
        if (kind != CU_W16 && wide->n > 0 && t->mixed) {
            cut90(c, t, NULL, wide);
            if (a[kind].blocks + wide->tiles <= c->n_sm) {
                side = wide;
            }
        }
        switch ((enum cu_kind)kind) {
        case CU_W4:
            rc = pick90<CU_W4>(c, pick, &a[kind], side);
            break;
        case CU_W8:
            rc = pick90<CU_W8>(c, pick, &a[kind], side);
            break;
        case CU_W16:
            rc = pick90<CU_W16>(c, pick, &a[kind], side);
            break;
        }
        if (side == wide) {
            wide->n = 0;
        }
    }
    return rc;
}
