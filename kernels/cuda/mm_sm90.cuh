#ifndef QUASAR_KERNELS_CUDA_MM_SM90_CUH
#define QUASAR_KERNELS_CUDA_MM_SM90_CUH

/*
 * A chain of products and DeltaNet steps in one launch, for chips with bulk copies. One
 * block to a multiprocessor, all there at once. A block's producer warp runs through the
 * weights of all links without waiting for anything but room in its ring, so that memory
 * stays busy while a link's results travel to the next: weights wait for nobody.
 *
 * Eight streaming warps take a run's steps in turn; a stage of the ring holds eight steps
 * of W4, and no two runs. The warps beside them finish tiles, a tile each in turn.
 * Contributions to a tile travel between blocks as words of 8 bytes, value and ticket, so
 * that a reader needs no fence: it sees by the ticket that the value is there. A link
 * begins when the link before it is complete: its tiles (or rows and heads) are counted
 * in device memory by whoever finishes them.
 */
#include "kernels/cuda/gdn_step.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mm_put.cuh"
#include "kernels/cuda/mm_step.cuh"

enum {
    MM90_STREAM = 8, /* streaming warps */
    MM90_STREAM_THREADS = MM90_STREAM * MM_LANES,
    MM90_PUT = 3,                        /* warps that finish tiles, for every eight batch rows */
    MM90_STAGE = MM90_STREAM * MM_STAGE, /* bytes: 8 steps of W4, 4 of W8, 2 of W16 */
    MM90_OFFSETS = 2,                    /* of a slice, put by a thread */
    MM90_PARTS = 4,                      /* contributions, */
    MM90_COLS = 4,                       /* of batch rows, on their way at a time */
    BAR90_STREAM = 1
};

static const uint32_t MM90_KEPT = 0; /* a ticket that nobody waits for */

struct mm90_link {
    uint32_t gdn; /* or a product */
    union {
        struct mm_op mm;
        struct {
            struct cu_gdn g;
            struct gdn_step_args p;
        } step;
    };
};

/* Where a block's shared memory has its parts. */
struct mm90_smem {
    uint32_t stages, x, offset, exchange, sums, blocks, bars, bytes;
};

struct mm90_args {
    struct cu_batch b;
    uint32_t *done;   /* [CU_LINKS], zero before and after */
    uint32_t *ticket; /* of this launch; the next has the next */
    int n;
    int flying; /* stages on their way at a time: what waits behind them waits longer */
    struct mm90_smem at;
    struct mm90_link link[CU_LINKS];
};

/* A block's view of its shared memory. */
struct mm90_room {
    uint32_t ring, ring_full, ring_empty; /* shared addresses; a barrier per stage each */
    uint32_t full, empty;                 /* of the exchange; full: one for each finishing warp */
    uint8_t *base, *x, *offset;
    float *exchange, *sums;
    int4 *blocks; /* by link */
    int stages;
};

static __device__ __forceinline__ struct mm90_room room_of(const struct mm90_smem &at,
                                                           unsigned char *smem)
{
    struct mm90_room r;
    r.base = smem;
    r.ring = smem_addr(smem);
    r.stages = (int)at.stages;
    r.ring_full = smem_addr(smem + at.bars);
    r.ring_empty = r.ring_full + at.stages * 8;
    r.empty = r.ring_empty + at.stages * 8;
    r.full = r.empty + 8;
    r.x = smem + at.x;
    r.offset = smem + at.offset;
    r.exchange = (float *)(smem + at.exchange);
    r.sums = (float *)(smem + at.sums);
    r.blocks = (int4 *)(smem + at.blocks);
    return r;
}

/* A stage of the ring, for producer and consumers alike. */
struct cursor {
    int slot;
    uint32_t parity;
};

static __device__ __forceinline__ void advance(struct cursor &c, int stages)
{
    c.slot++;
    if (c.slot == stages) {
        c.slot = 0;
        c.parity ^= 1;
    }
}

/* Steps of this kind that a stage holds; it holds one kind. */
static __device__ __forceinline__ int stage_steps(int kind)
{
    return MM90_STREAM >> kind;
}

static __device__ __forceinline__ uint32_t step_bytes_of(int kind)
{
    return (uint32_t)(MM_STAGE - 64 * kind) << kind;
}

/* This block's part of link i, from shared memory. */
static __device__ __forceinline__ struct mm_block block_of(const struct mm90_room &room, int i)
{
    const int4 v = room.blocks[i];
    struct mm_block b;
    b.run = v.x;
    b.n_runs = v.y;
    b.phase = v.z;
    b.steps = v.w;
    return b;
}

/* How often a link's counter is raised. */
static __device__ __forceinline__ uint32_t link_parts(const struct mm90_link &l, int nt, int count)
{
    return l.gdn ? (uint32_t)(l.step.g.v_heads * count) : (uint32_t)(l.mm.tiles * nt);
}

/* A part of link i is complete; the warp's writes come first. Whoever completes a link
 * knows that nobody looks at the counter of the link before it any more. */
static __device__ __forceinline__ void link_done(const struct mm90_args &g, int i, uint32_t parts,
                                                 int lane)
{
    __syncwarp();
    if (lane == 0 && atom_add_acq_rel(g.done + i, 1) == parts - 1) {
        if (i > 0) {
            g.done[i - 1] = 0;
        }
        if (i == g.n - 1) {
            g.done[i] = 0;
            ++*g.ticket;
        }
    }
}

/* ---- the producer ---- */

static __device__ __forceinline__ void produce(const struct mm90_args &g,
                                               const struct mm90_room &room, int lane)
{
    const uint64_t policy = l2_evict_first();
    struct cursor at = {0, 0}, landed = {0, 0};
    int flying = 0;
    int i = 0;
    while (i < g.n && g.link[i].gdn) {
        i++;
    }
    struct mm_block blk = {};
    struct run_words words = {};
    if (i < g.n) {
        blk = block_of(room, i);
        words_load(words, g.link[i].mm.run + blk.run, 0, blk.n_runs, lane);
    }
    while (i < g.n) {
        int next = i + 1;
        while (next < g.n && g.link[next].gdn) {
            next++;
        }
        struct mm_block blk_next = {};
        struct run_words words_next = {};
        if (next < g.n) {
            blk_next = block_of(room, next);
            words_load(words_next, g.link[next].mm.run + blk_next.run, 0, blk_next.n_runs, lane);
        }
        const struct mm_run *run = g.link[i].mm.run + blk.run;
        for (int r = 0; r < blk.n_runs; r++) {
            if (r > 0 && r % MM_LANES == 0) {
                words_load(words, run, r, blk.n_runs, lane);
            }
            int4 w;
            w.x = __shfl_sync(MM_ALL, words.w0.x, r % MM_LANES);
            w.y = __shfl_sync(MM_ALL, words.w0.y, r % MM_LANES);
            w.z = __shfl_sync(MM_ALL, words.w0.z, r % MM_LANES);
            w.w = __shfl_sync(MM_ALL, words.w0.w, r % MM_LANES);
            const int cap = stage_steps(w.w);
            uint64_t src = word_src(w);
            for (int left = w.z; left > 0; left -= cap) {
                const uint32_t full = room.ring_full + (uint32_t)at.slot * 8;
                const uint32_t n = (uint32_t)(left < cap ? left : cap) * step_bytes_of(w.w);
                mbar_wait(room.ring_empty + (uint32_t)at.slot * 8, at.parity ^ 1);
                if (flying == g.flying) {
                    mbar_wait(room.ring_full + (uint32_t)landed.slot * 8, landed.parity);
                    advance(landed, room.stages);
                } else {
                    flying++;
                }
                if (lane == 0) {
                    mbar_arrive_expect(full, n);
                    bulk_load_hint(room.ring + (uint32_t)at.slot * MM90_STAGE, (const void *)src, n,
                                   full, policy);
                }
                src += n;
                advance(at, room.stages);
            }
        }
        i = next;
        blk = blk_next;
        words = words_next;
    }
}

/* ---- the warps that finish tiles: warp `mine` those that are its by number ---- */

/* Contributions of some batch rows of a tile, on their way. */
struct pieces {
    uint4 t[MM90_COLS][MM90_PARTS];
};

/* Where the words of contribution i of a tile and batch row col are. */
static __device__ __forceinline__ const uint4 *piece_at(const struct mm_op &a,
                                                        const struct run_at &at, int i, int col,
                                                        int lane)
{
    return (const uint4 *)a.part + (size_t)(at.slot0 + i) * (MM_SLOT / 2) + col * MM_LANES + lane;
}

/* Asks for contributions i, i + 1, ... of batch rows col, col + 1, ... but this block's. */
static __device__ __forceinline__ void pieces_load(struct pieces &p, const struct mm_op &a,
                                                   const struct run_at &at, int i, int col,
                                                   uint32_t ticket, int count, int lane)
{
    const int parts = MM_META_PARTS(at.meta);
#pragma unroll
    for (int c = 0; c < MM90_COLS; c++) {
#pragma unroll
        for (int j = 0; j < MM90_PARTS; j++) {
            p.t[c][j] = make_uint4(0, ticket, 0, ticket);
            if (i + j < parts && i + j != at.slot - at.slot0 && col + c < count) {
                p.t[c][j] = ld_ticket(piece_at(a, at, i + j, col + c, lane));
            }
        }
    }
}

/* Adds them to sums, in order; own: this block's. */
static __device__ __forceinline__ void pieces_add(struct pieces &p, float2 (&sum)[8], int from,
                                                  const float2 (&own)[8], const struct mm_op &a,
                                                  const struct run_at &at, int i, int col,
                                                  uint32_t ticket, int lane)
{
#pragma unroll
    for (int c = 0; c < MM90_COLS; c++) {
#pragma unroll
        for (int j = 0; j < MM90_PARTS; j++) {
            uint4 t = p.t[c][j];
            while (t.y != ticket || t.w != ticket) {
                look_again();
                t = ld_ticket(piece_at(a, at, i + j, col + c, lane));
            }
            const bool mine = i + j == at.slot - at.slot0;
            sum[from + c].x += mine ? own[from + c].x : __uint_as_float(t.x);
            sum[from + c].y += mine ? own[from + c].y : __uint_as_float(t.z);
        }
    }
}

/* This block's sum of earlier phases of a run's tile. */
static __device__ __forceinline__ void kept_sums(float2 (&v)[8], const struct mm_op &a,
                                                 const struct run_at &at, int first, int count,
                                                 int lane)
{
    const bool earlier = !MM_META_FIRST(at.meta);
#pragma unroll
    for (int c = 0; c < 8; c++) {
        v[c] = make_float2(0, 0);
        if (earlier && first + c < count) {
            const uint4 t = ld_ticket(piece_at(a, at, at.slot - at.slot0, first + c, lane));
            v[c] = make_float2(__uint_as_float(t.x), __uint_as_float(t.z));
        }
    }
}

/* What becomes of a run's sums of batch rows first .. first + 7: kept, sent, or, where the
 * tile is complete, finished; true then. Whoever sends a tile's last contribution finishes
 * it; the others' are asked for before it is known who that is. */
static __device__ __forceinline__ bool put_sums(float2 (&v)[8], const struct mm_op &a,
                                                const struct run_at &at, uint32_t *counter,
                                                uint32_t ticket, int first, int count, int lane,
                                                struct factors f)
{
    const int parts = MM_META_PARTS(at.meta);
    const bool last = MM_META_LAST(at.meta) != 0;
    struct before b;
    if (!last || parts > 1) {
#pragma unroll
        for (int c = 0; c < 8; c++) {
            if (first + c < count) {
                st_ticket((void *)piece_at(a, at, at.slot - at.slot0, first + c, lane),
                          __float_as_uint(v[c].x), __float_as_uint(v[c].y),
                          last ? ticket : MM90_KEPT);
            }
        }
        if (!last) {
            return false;
        }
        uint32_t before = 0;
        if (lane == 0) {
            before = atomicAdd(counter, 1u);
        }
        struct pieces p;
        pieces_load(p, a, at, 0, first, ticket, count, lane);
        before_load(b, a, at, first, count, lane);
        if (__shfl_sync(MM_ALL, before, 0) != (uint32_t)parts - 1) {
            return false;
        }
        if (lane == 0) {
            *counter = 0;
        }
        float2 sum[8];
#pragma unroll
        for (int c = 0; c < 8; c++) {
            sum[c] = make_float2(0, 0);
        }
        for (int i = 0; i < parts; i += MM90_PARTS) {
#pragma unroll
            for (int c = 0; c < 8; c += MM90_COLS) {
                if (first + c < count) {
                    if (i > 0 || c > 0) {
                        pieces_load(p, a, at, i, first + c, ticket, count, lane);
                    }
                    pieces_add(p, sum, c, v, a, at, i, first + c, ticket, lane);
                }
            }
        }
#pragma unroll
        for (int c = 0; c < 8; c++) {
            v[c] = sum[c];
        }
    } else {
        before_load(b, a, at, first, count, lane);
    }
    finish(a, at, count, first, lane, f, b, v);
    return true;
}

/* Warp number `mine`: batch rows 8 (mine % NT) and up of the tiles that are mine / NT's by
 * number. */
template <int NT>
static __device__ __forceinline__ void put_links(const struct mm90_args &g,
                                                 const struct mm90_room &room, int mine, int lane,
                                                 int count)
{
    const int group = mine / NT, first = 8 * (mine % NT);
    const uint32_t ticket = (ld_relaxed(g.ticket) + 1) * CU_LINKS; /* never that of kept sums */
    uint32_t turns = 0;
    for (int i = 0; i < g.n; i++) {
        if (g.link[i].gdn) {
            continue;
        }
        const struct mm_op &a = g.link[i].mm;
        const struct mm_block blk = block_of(room, i);
        const struct mm_run *run = a.run + blk.run;
        struct run_words words = {};
        struct factors f = {1, 1};
        bool known = false;
        for (int r = 0; r < blk.n_runs; r++) {
            if (r % MM_LANES == 0) {
                words_load(words, run, r, blk.n_runs, lane);
            }
            const struct run_at at = run_of(words, r);
            if (at.tile % MM90_PUT != group) {
                continue;
            }
            float2 v[8];
            kept_sums(v, a, at, first, count, lane);
            mbar_wait(room.full + (uint32_t)group * 8, turns++ & 1);
            if (!known) {
                known = true;
                f = factors_of<MM90_STREAM>(a, lane, count, room.sums);
            }
            sum_take<NT, MM90_STREAM>(v, room.exchange, at.kind, first, count, lane);
            __syncwarp();
            if (lane == 0) {
                mbar_arrive(room.empty);
            }
            if (put_sums(v, a, at, a.counter + at.tile * 2 + mine % NT, ticket + (uint32_t)i, first,
                         count, lane, f)) {
                link_done(g, i, (uint32_t)(a.tiles * NT), lane);
            }
        }
    }
}

/* ---- the streaming warps ---- */

struct stream_sync {
    __device__ __forceinline__ void operator()() const
    {
        bar_sync(BAR90_STREAM, MM90_STREAM_THREADS);
    }
};

/* Returns when link i - 1 is complete, for all streaming warps, which have then also left
 * what they did before. */
struct link_ready {
    const struct mm90_args &g;
    int i, nt, count;
    __device__ __forceinline__ void operator()() const
    {
        if (i > 0 && threadIdx.x == 0) {
            wait_at_least(g.done + i - 1, link_parts(g.link[i - 1], nt, count));
        }
        bar_sync(BAR90_STREAM, MM90_STREAM_THREADS);
    }
};

struct row_done {
    const struct mm90_args &g;
    int i, lane;
    uint32_t parts;
    __device__ __forceinline__ void operator()() const
    {
        link_done(g, i, parts, lane);
    }
};

/* DeltaNet: the block's heads and spans. */
template <int NT>
static __device__ __forceinline__ void stream_gdn(const struct mm90_args &g,
                                                  const struct mm90_room &room, int i, int lane,
                                                  int count)
{
    const struct cu_gdn &d = g.link[i].step.g;
    const int items = d.v_heads * g.b.count[1];
    const struct gdn_room at = gdn_room_at(room.x, g.b.rows);
    const struct row_done done = {g, i, lane, link_parts(g.link[i], NT, count)};
    const struct link_ready ready = {g, i, NT, count};
    for (int item = (int)blockIdx.x; item < items; item += (int)gridDim.x) {
        /* the barrier in ready also keeps the items' shared memory apart */
        gdn_item<MM90_STREAM>(g.b, d, g.link[i].step.p, item % d.v_heads, item / d.v_heads,
                              (int)threadIdx.x, at, ready, stream_sync(), done);
    }
}

/* A step of 8 or 16 bits. */
template <int NT>
static __device__ __forceinline__ void step_wide(float (*acc)[NT][4], const uint8_t *step, int kind,
                                                 int lane, const struct inputs<NT> &in)
{
    if (kind == CU_W8) {
        half_w8<NT>(acc, step, lane, in);
        half_w8<NT>(acc + 2, step + (MM_STAGE - 64), lane, in);
    } else {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            quarter_w16<NT>(acc[q], step + q * (MM_STAGE - 128), lane, in);
        }
    }
}

/* What a streaming warp carries from link to link. */
struct stream {
    struct cursor at;
    uint32_t puts; /* runs left in the exchange so far */
};

/* Done with the stage it is at. */
static __device__ __forceinline__ void leave_stage(const struct mm90_room &room, struct cursor &at,
                                                   int lane)
{
    __syncwarp();
    if (lane == 0) {
        mbar_arrive(room.ring_empty + (uint32_t)at.slot * 8);
    }
    advance(at, room.stages);
}

/* Brings a phase's slice of the rows, its offsets and, for a link's first, the norms' sums
 * to shared memory. */
template <int NT>
static __device__ __forceinline__ void stage_phase(const struct mm_op &a,
                                                   const struct mm90_room &room, int4 ph,
                                                   bool first, int warp, int lane, int count)
{
    const int units = ph.y * (MM_X_STEP / 16);
    const uint32_t x = smem_addr(room.x);
    for (int row = 0; row < count; row++) {
        for (int u = (int)threadIdx.x; u < units; u += MM90_STREAM_THREADS) {
            cp_async16(x + (uint32_t)row * a.x_row + (uint32_t)u * 16,
                       a.x + (size_t)row * a.k + ph.x * 64 + u * 8);
        }
    }
    cp_async_commit();
    struct offsets<MM90_OFFSETS> o;
    offsets_load<NT, MM90_STREAM, MM90_OFFSETS>(o, a, count, ph.x, ph.y);
    if (first) {
        const float in = a.ss ? row_part<MM90_STREAM>(a.ss, a.ss_groups, count) : 0;
        const float resid =
            a.resid_ss ? row_part<MM90_STREAM>(a.resid_ss, a.resid_groups, count) : 0;
        if (lane < CU_ROWS) {
            room.sums[warp * CU_ROWS + lane] = in;
            room.sums[(MM90_STREAM + warp) * CU_ROWS + lane] = resid;
        }
    }
    offsets_put<NT, MM90_STREAM, MM90_OFFSETS>(o, ph.y, room.offset);
    cp_async_wait<0>();
    stream_sync()();
}

template <int NT>
static __device__ __forceinline__ void stream_mm(const struct mm90_args &g,
                                                 const struct mm90_room &room, int i,
                                                 const struct mm_block &blk, struct stream &s,
                                                 int warp, int lane, int count)
{
    const struct mm_op &a = g.link[i].mm;
    const struct mm_run *run = a.run + blk.run;
    const struct mm_phase *phase = a.phase + blk.phase;
    struct run_words words = {};
    int phase_end = 0, phases = 0;
    for (int r = 0; r < blk.n_runs; r++) {
        if (r % MM_LANES == 0) {
            words_load(words, run, r, blk.n_runs, lane);
        }
        if (r == phase_end) {
            const int4 ph = *(const int4 *)(phase + phases);
            if (phases == 0) {
                link_ready{g, i, NT, count}();
            } else {
                stream_sync()();
            }
            stage_phase<NT>(a, room, ph, phases == 0, warp, lane, count);
            phase_end = ph.z;
            phases++;
        }
        const int kind = __shfl_sync(MM_ALL, words.w0.w, r % MM_LANES);
        int left = __shfl_sync(MM_ALL, words.w0.z, r % MM_LANES);
        const int putter = __shfl_sync(MM_ALL, words.w1.x, r % MM_LANES) % MM90_PUT;
        int k = MM_META_K((uint32_t)__shfl_sync(MM_ALL, words.w1.w, r % MM_LANES));
        const uint8_t *xp = room.x + lane / 4 * a.x_row + lane % 4 * 32;
        const uint8_t *op = room.offset + lane % 4 * 16;
        const uint32_t x8 = 8 * a.x_row;
        float acc[4][NT][4];
#pragma unroll
        for (int j = 0; j < 4 * NT * 4; j++) {
            acc[j / (NT * 4)][j / 4 % NT][j % 4] = 0;
        }
        if (kind == CU_W4) {
            xp += (k + warp) * MM_X_STEP;
            op += (k + warp) * (NT * 64);
            const uint8_t *step = room.base + warp * MM_STAGE;
            for (; left >= MM90_STREAM; left -= MM90_STREAM) { /* whole stages */
                struct inputs<NT> in;
                inputs_load<NT>(in, xp, x8, op);
                mbar_wait(room.ring_full + (uint32_t)s.at.slot * 8, s.at.parity);
                step_w4<NT>(acc, step + s.at.slot * MM90_STAGE, lane, in);
                leave_stage(room, s.at, lane);
                xp += MM90_STREAM * MM_X_STEP;
                op += MM90_STREAM * NT * 64;
            }
            if (left > 0) {
                mbar_wait(room.ring_full + (uint32_t)s.at.slot * 8, s.at.parity);
                if (warp < left) {
                    struct inputs<NT> in;
                    inputs_load<NT>(in, xp, x8, op);
                    step_w4<NT>(acc, step + s.at.slot * MM90_STAGE, lane, in);
                }
                leave_stage(room, s.at, lane);
            }
        } else {
            const int cap = stage_steps(kind);
            int mine = warp; /* which of a stage's steps is this warp's, after those before */
            for (; left > 0; left -= cap, k += cap) {
                mbar_wait(room.ring_full + (uint32_t)s.at.slot * 8, s.at.parity);
                if (mine < cap && mine < left) {
                    struct inputs<NT> in;
                    inputs_load<NT>(in, xp + (k + mine) * MM_X_STEP, x8,
                                    op + (k + mine) * (NT * 64));
                    step_wide<NT>(acc,
                                  room.base + s.at.slot * MM90_STAGE +
                                      (uint32_t)mine * step_bytes_of(kind),
                                  kind, lane, in);
                }
                leave_stage(room, s.at, lane);
                mine = (mine + MM90_STREAM - cap) % MM90_STREAM;
            }
        }
        mbar_wait(room.empty, (s.puts++ & 1) ^ 1);
        exchange_put<NT>(room.exchange + warp * (8 * NT * MM_COL), acc, lane);
        __syncwarp();
        if (lane == 0) {
            mbar_arrive(room.full + (uint32_t)putter * 8);
        }
    }
}

/* Warps beside the stream: those that finish tiles, then the producer. */
template <int NT> struct mm90_warps {
    static constexpr int producer = MM90_STREAM + MM90_PUT * NT;
    static constexpr int threads = (producer + 1) * MM_LANES;
};

/* Every link in turn. What earlier kernels wrote is touched after pdl_wait only. */
template <int NT>
static __global__ void __launch_bounds__(mm90_warps<NT>::threads, 1)
    mm90_kernel(const __grid_constant__ struct mm90_args g)
{
    const int lane = (int)threadIdx.x % MM_LANES, warp = (int)threadIdx.x / MM_LANES;
    const struct mm90_room room = room_of(g.at, cu_smem());
    if ((int)threadIdx.x < g.n) {
        const struct mm90_link &l = g.link[threadIdx.x];
        const bool part = !l.gdn && (int)blockIdx.x < l.mm.n_blocks;
        room.blocks[threadIdx.x] =
            part ? *(const int4 *)(l.mm.block + blockIdx.x) : make_int4(0, 0, 0, 0);
    }
    if (threadIdx.x == MM90_STREAM_THREADS) {
        for (int s = 0; s < room.stages; s++) {
            mbar_init(room.ring_full + (uint32_t)s * 8, 1);
            mbar_init(room.ring_empty + (uint32_t)s * 8, MM90_STREAM);
        }
        mbar_init(room.empty, NT);
        for (int i = 0; i < MM90_PUT; i++) {
            mbar_init(room.full + (uint32_t)i * 8, MM90_STREAM);
        }
        mbar_fence_init();
    }
    __syncthreads();
    /* The batch's tables came a kernel or more before the one that this may overlap. */
    const int count = (int)ld_relaxed(g.b.count);
    if (warp >= MM90_STREAM) {
        if (warp == mm90_warps<NT>::producer) {
            produce(g, room, lane);
            return;
        }
        pdl_wait();
        put_links<NT>(g, room, warp - MM90_STREAM, lane, count);
        return;
    }
    pdl_wait();
    pdl_launch();
    struct stream s = {{0, 0}, 0};
    for (int i = 0; i < g.n; i++) {
        if (g.link[i].gdn) {
            stream_gdn<NT>(g, room, i, lane, count);
        } else {
            stream_mm<NT>(g, room, i, block_of(room, i), s, warp, lane, count);
        }
    }
}

#endif
