/* The prefill product on sm_90: wgmma with the weights, dequantised, in registers as
 * its rows and the tokens from shared memory as its columns. One warp fetches tokens
 * and codes by bulk copies into a ring; each other warpgroup turns the codes of its
 * rows into fp16 for the next product while the last one runs. */
#include "kernels/cuda/gemm.cuh"
#include "kernels/cuda/wgmma.cuh"

#include <string.h>

/* Launch shapes: WG warpgroups of MT x 64 rows each, N tokens. */
template <int KIND, int WG, int MT, int N> struct shape90 {
    static constexpr int rows = WG * MT * 64;
    static constexpr int xt = N * 128;                        /* bytes of tokens a stage, */
    static constexpr int w = WG * MT * gemm_kind<KIND>::step; /* of weights */
    static constexpr int put = WG * 4 * GEMM_STAGE;
    static constexpr int per_sm = WG == 1 ? 2 : 1;
    static constexpr int room = (228 * 1024) / per_sm - 1024 - (1024 - 128) - 512;
    static constexpr int stages = (room - put) / (xt + w);
    static constexpr int smem = stages * (xt + w) + put + stages * 16 + 16 + 1024 - 128;
    /* 128 accumulators: registers are moved from the copying warpgroup to the others */
    static constexpr bool move = MT * N == 256;
    static constexpr int threads = WG * 128 + (move ? 128 : 32);
};

#if defined QUASAR_EMULATE || defined __CUDA_ARCH_FEAT_SM90_ALL

/* One uninterrupted run of steps of a tile. */
struct piece {
    int row_tile, token_tile, from, to;
};

/* The i-th of this block. Pieces of the shared tiles go from the block's last tile to
 * its first: the front of a tile that the next block ends is computed at once, the
 * tile whose front the block before has computed comes at the end. No block waits for
 * one with a higher index. */
GEMM_FN bool piece_at(const struct gemm_args *a, int block, int i, struct piece *p)
{
    int tile = block + i * (int)gridDim.x;
    p->from = 0;
    p->to = a->kg;
    if (i >= a->waves) {
        const int base = a->waves * (int)gridDim.x, total = (a->tiles - base) * a->kg;
        const int begin = block * a->share;
        const int end = begin + a->share < total ? begin + a->share : total;
        const int t = (end - 1) / a->kg - (i - a->waves);
        if (begin >= end || t < begin / a->kg) {
            return false;
        }
        p->from = begin > t * a->kg ? begin - t * a->kg : 0;
        p->to = end < (t + 1) * a->kg ? end - t * a->kg : a->kg;
        tile = base + t;
    } else if (tile >= a->tiles) {
        return false;
    }
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

/* ---- the copying warp; one lane ---- */

template <class S, int TILES, int STEP>
GEMM_FN void produce(const struct gemm_args *a, int block, uint32_t xt, uint32_t w, uint32_t full,
                     uint32_t empty)
{
    int stage = 0, fresh = S::stages;
    uint32_t parity = 1;
    bool waited = false;
    struct piece p;
    for (int i = 0; piece_at(a, block, i, &p); i++) {
        const struct gemm_mat *m = mat_of(a, p.row_tile);
        const int tile = (p.row_tile - m->first) * TILES;
        const int token = p.token_tile * (S::xt / 128);
        const uint8_t *x = (const uint8_t *)a->xt +
                           ((size_t)(token >> 7) * a->kg + p.from) * 16384 + (token & 127) * 128;
        /* A first filling of the ring: the weights, which no kernel writes, before the
         * wait for the tokens. */
        const int ahead = waited ? 0 : p.to - p.from < fresh ? p.to - p.from : fresh;
        for (int half = waited ? 1 : 0; half < 2; half++) {
            if (half == 1 && !waited) {
                pdl_wait();
                waited = true;
                stage = 0;
            }
            const int n = half == 0 ? ahead : p.to - p.from;
            for (int k = 0; k < n; k++) {
                const uint32_t bar = full + 8 * stage;
                if (half == 0 || k >= ahead) {
                    if (fresh == 0) {
                        mbar_wait(empty + 8 * stage, parity);
                    } else {
                        fresh--;
                    }
                    mbar_arrive_expect(bar, S::xt + S::w);
#pragma unroll
                    for (int r = 0; r < TILES; r++) {
                        const int at = tile + r < m->tiles ? tile + r : m->tiles - 1;
                        bulk_load(w + stage * S::w + r * STEP,
                                  m->data + ((size_t)at * a->kg + p.from + k) * STEP, STEP, bar);
                    }
                }
                if (half == 1) {
                    bulk_load(xt + stage * S::xt, x + (size_t)k * 16384, S::xt, bar);
                }
                if (++stage == S::stages) {
                    stage = 0;
                    parity ^= half == 1;
                }
            }
        }
    }
}

/* ---- the computing warpgroups ---- */

/* Where the reader of the ring stands. */
struct reader {
    int stage;
    uint32_t parity;
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

/* n steps of the ring into d. The products of one 64-row tile's step run while the
 * registers for the next are made. `w` is the warpgroup's first tile in stage 0. The
 * loops have one way in, one out and no branch between: else ptxas waits for every
 * product. So a release stands where the first round has nothing to give back: it goes
 * to the barrier `idle`, for which nobody waits. */
template <class S, int KIND, int MT, int N>
GEMM_FN void multiply(float (*d)[N / 2], int n, struct reader *in, const uint8_t *w, uint64_t desc,
                      uint32_t full, uint32_t empty, uint32_t idle, int rb, int lane)
{
    constexpr int STEP = gemm_kind<KIND>::step;
    uint32_t a0[16], a1[16], before = idle;
    wgmma_touch<MT * N / 2>(d[0]);
    mbar_wait(full + 8 * in->stage, in->parity);
    gemm_load_a<KIND>(a0, w + in->stage * S::w, rb, lane);
    if constexpr (MT == 2) {
        for (int k = 1;; k++) {
            const int s = in->stage;
            const uint64_t b = desc + (uint64_t)(s * (S::xt >> 4));
            issue<N>(d[0], a0, b);
            wgmma_wait<1>();
            release(before, lane);
            before = empty + 8 * s;
            gemm_load_a<KIND>(a1, w + s * S::w + STEP, rb, lane);
            issue<N>(d[1], a1, b);
            advance<S>(in);
            if (k == n) {
                break;
            }
            mbar_wait(full + 8 * in->stage, in->parity);
            wgmma_wait<1>();
            gemm_load_a<KIND>(a0, w + in->stage * S::w, rb, lane);
        }
    } else {
        if (n & 1) {
            issue<N>(d[0], a0, desc + (uint64_t)(in->stage * (S::xt >> 4)));
            wgmma_wait<0>();
            wgmma_touch<N / 2>(d[0]);
            before = empty + 8 * in->stage;
            advance<S>(in);
            if (n == 1) {
                release(before, lane);
                return;
            }
            mbar_wait(full + 8 * in->stage, in->parity);
            gemm_load_a<KIND>(a0, w + in->stage * S::w, rb, lane);
        }
        int s0, s1;
        if constexpr (KIND == CU_W16) {
            for (int k = n & ~1;; k -= 2) {
                s0 = in->stage;
                issue<N>(d[0], a0, desc + (uint64_t)(s0 * (S::xt >> 4)));
                advance<S>(in);
                s1 = in->stage;
                mbar_wait(full + 8 * s1, in->parity);
                wgmma_wait<1>();
                release(before, lane);
                gemm_load_a<KIND>(a1, w + s1 * S::w, rb, lane);
                issue<N>(d[0], a1, desc + (uint64_t)(s1 * (S::xt >> 4)));
                advance<S>(in);
                if (k == 2) {
                    break;
                }
                mbar_wait(full + 8 * in->stage, in->parity);
                wgmma_wait<1>();
                release(empty + 8 * s0, lane);
                before = empty + 8 * s1;
                gemm_load_a<KIND>(a0, w + in->stage * S::w, rb, lane);
            }
        } else {
            /* One warp a scheduler: codes are read a step ahead of their expansion. At the
             * end there is none ahead, and the last one is read again. */
            struct gemm_raw<KIND> r0, r1;
            struct reader next = *in;
            advance<S>(&next);
            mbar_wait(full + 8 * next.stage, next.parity);
            gemm_fetch<KIND>(&r1, w + next.stage * S::w, rb, lane);
            for (int k = n & ~1;; k -= 2) {
                s0 = in->stage;
                issue<N>(d[0], a0, desc + (uint64_t)(s0 * (S::xt >> 4)));
                s1 = next.stage;
                *in = next;
                advance<S>(in);
                next.stage = k > 2 ? in->stage : next.stage;
                next.parity = k > 2 ? in->parity : next.parity;
                mbar_wait(full + 8 * next.stage, next.parity);
                gemm_fetch<KIND>(&r0, w + next.stage * S::w, rb, lane);
                wgmma_wait<1>();
                release(before, lane);
                gemm_expand<KIND>(a1, &r1);
                issue<N>(d[0], a1, desc + (uint64_t)(s1 * (S::xt >> 4)));
                if (k == 2) {
                    break;
                }
                advance<S>(&next);
                mbar_wait(full + 8 * next.stage, next.parity);
                gemm_fetch<KIND>(&r1, w + next.stage * S::w, rb, lane);
                wgmma_wait<1>();
                release(empty + 8 * s0, lane);
                before = empty + 8 * s1;
                gemm_expand<KIND>(a0, &r0);
            }
        }
        wgmma_wait<0>();
        wgmma_touch<MT * N / 2>(d[0]);
        release(empty + 8 * s0, lane);
        release(empty + 8 * s1, lane);
        return;
    }
    wgmma_wait<0>();
    wgmma_touch<MT * N / 2>(d[0]);
    release(before, lane);
}

/* A tile's sums on their way from one block to the next: each thread its own. */
template <int REGS, int THREADS> GEMM_FN void part_save(const float *d, float *part, uint32_t *flag)
{
    float4 *p = (float4 *)part + threadIdx.x;
#pragma unroll
    for (int i = 0; i < REGS / 4; i++) {
        p[i * THREADS] = make_float4(d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
    }
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

template <int KIND, int WG, int MT, int N>
GEMM_FN void consume(const struct gemm_args *a, int block, const uint8_t *w, uint8_t *put,
                     uint32_t xt, uint32_t full, uint32_t empty, uint32_t idle)
{
    using S = shape90<KIND, WG, MT, N>;
    const int wg = (int)threadIdx.x >> 7, warp = (int)threadIdx.x >> 5 & 3;
    const int lane = (int)threadIdx.x & 31;
    struct reader in = {0, 0};
    struct piece p;
    w += wg * MT * gemm_kind<KIND>::step;
    put += wg * 4 * GEMM_STAGE;
    pdl_wait();
    for (int i = 0; piece_at(a, block, i, &p); i++) {
        constexpr size_t size = (size_t)WG * 128 * MT * (N / 2);
        float d[MT][N / 2];
        const int from = p.from > 0 ? block - 1 : 0;
        part_load<MT * N / 2, WG * 128>(d[0], a->part + from * size, a->flag + from, p.from > 0);
        multiply<S, KIND, MT, N>(d, p.to - p.from, &in, w, wgmma_desc(xt), full, empty, idle, warp,
                                 lane);
        if (p.to < a->kg) {
            part_save<MT * N / 2, WG * 128>(d[0], a->part + block * size, a->flag + block);
        } else {
            if (p.from > 0 && threadIdx.x == 0) {
                st_release(a->flag + block - 1, 0);
            }
            const struct gemm_mat *m = mat_of(a, p.row_tile);
            finish<KIND, MT, N>(a, m, d, put, (p.row_tile - m->first) * S::rows + wg * MT * 64,
                                p.token_tile * N, wg, warp, lane);
        }
    }
}
#endif

/* Tokens and weights read once per tile, rows x N x k multiplied: bound by the tensor
 * cores from 128 rows by 64 tokens up, 64 x 128 bytes of shared memory a cycle. */
template <int KIND, int WG, int MT, int N>
__global__ void __launch_bounds__(shape90<KIND, WG, MT, N>::threads, WG == 1 ? 2 : 1)
    gemm90(const __grid_constant__ struct gemm_args a)
{
#if defined QUASAR_EMULATE || defined __CUDA_ARCH_FEAT_SM90_ALL
    using S = shape90<KIND, WG, MT, N>;
    uint8_t *const xt = cu_smem_aligned(1024);
    uint8_t *const w = xt + S::stages * S::xt;
    uint8_t *const put = w + S::stages * S::w;
    const uint32_t full = smem_addr(put + S::put), empty = full + 8 * S::stages;
    const uint32_t idle = empty + 8 * S::stages;
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::stages; i++) {
            mbar_init(full + 8 * i, 1);
            mbar_init(empty + 8 * i, WG * 4);
        }
        mbar_init(idle, WG * 4);
        mbar_fence_init();
        int number = (int)blockIdx.x;
        if (a.share > 0) {
            pdl_wait();
            number = (int)atom_add_acq_rel(a.ticket, 1);
            if (number == (int)gridDim.x - 1) {
                st_release(a.ticket, 0);
            }
        }
        *(int *)(put + S::put + 16 * S::stages + 8) = number;
    }
    __syncthreads();
    const int block = *(const int *)(put + S::put + 16 * S::stages + 8);
    pdl_launch();
    if (threadIdx.x < WG * 128) {
        if constexpr (S::move) {
            regs_inc<232>();
        }
        consume<KIND, WG, MT, N>(&a, block, w, put, smem_addr(xt), full, empty, idle);
    } else {
        if constexpr (S::move) {
            regs_dec<40>();
        }
        if (threadIdx.x == WG * 128) {
            produce<S, WG * MT, gemm_kind<KIND>::step>(&a, block, smem_addr(xt), smem_addr(w), full,
                                                       empty);
        }
    }
#else
    __trap();
#endif
}

/* ---- host ---- */

struct row90 {
    int rows, tokens;
    int cost;  /* cycles of a step of the tile */
    bool hand; /* one block a multiprocessor, which may hand a tile to another */
};

/* Bits do not depend on the choice: every element is the same chain of products. */
static const struct row90 table90[] = {
    {256, 128, 1100, true},
    {256, 64, 600, true},
    {128, 64, 330, true},
    {64, 64, 215, false},
};
enum { SHAPES90 = sizeof table90 / sizeof table90[0] };

enum { PART_FLOATS = 256 * 128 };

template <int KIND, int WG, int MT, int N>
static int launch90(struct cu_ctx *c, struct gemm_args *a, int blocks)
{
    using S = shape90<KIND, WG, MT, N>;
    static_assert(S::stages >= 3, "a ring of three stages");
    return (int)cu_launch(c, "gemm_sm90", gemm90<KIND, WG, MT, N>, dim3((unsigned)blocks),
                          dim3(S::threads), S::smem, *a);
}

template <int KIND> static int pick90(struct cu_ctx *c, struct gemm_args *a, int pick, int blocks)
{
    switch (pick) {
    case 0:
        return launch90<KIND, 2, 2, 128>(c, a, blocks);
    case 1:
        return launch90<KIND, 2, 2, 64>(c, a, blocks);
    case 2:
        return launch90<KIND, 2, 1, 64>(c, a, blocks);
    default:
        return launch90<KIND, 1, 1, 64>(c, a, blocks);
    }
}

/* Bytes: sums, flags, ticket. */
size_t gemm_sm90_work(int n_sm)
{
    return (size_t)n_sm * (PART_FLOATS * 4 + 4) + 4;
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
        waves = waves < 16 ? 16 : t->hand && !work ? (waves + 15) / 16 * 16 : waves;
        if (i == 0 || waves * t->cost < best) {
            best = waves * t->cost;
            pick = i;
        }
    }
    return pick;
}

int gemm_sm90(struct cu_ctx *c, enum cu_kind kind, struct gemm_args *a, void *work, int shape)
{
    const int pick = shape < 0 ? choose90(c, a, work != NULL) : shape;
    if (pick >= SHAPES90) {
        return (int)cudaErrorInvalidValue;
    }
    const struct row90 *t = &table90[pick];
    gemm_cut(a, t->rows, t->tokens);
    const int blocks = t->hand && a->tiles > c->n_sm ? c->n_sm : a->tiles;
    a->waves = (a->tiles + blocks - 1) / blocks;
    a->share = 0;
    if (work && a->tiles % blocks != 0) {
        a->waves = a->tiles / blocks - 1;
        a->share = ((a->tiles - a->waves * blocks) * a->kg + blocks - 1) / blocks;
        a->part = (float *)work;
        a->flag = (uint32_t *)((float *)work + (size_t)c->n_sm * PART_FLOATS);
        a->ticket = a->flag + c->n_sm;
    }
    switch (kind) {
    case CU_W4:
        return pick90<CU_W4>(c, a, pick, blocks);
    case CU_W8:
        return pick90<CU_W8>(c, a, pick, blocks);
    case CU_W16:
        return pick90<CU_W16>(c, a, pick, blocks);
    }
    return (int)cudaErrorInvalidValue;
}
