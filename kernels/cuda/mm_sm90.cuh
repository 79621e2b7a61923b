#ifndef QUASAR_KERNELS_CUDA_MM_SM90_CUH
#define QUASAR_KERNELS_CUDA_MM_SM90_CUH

/*
 * A chain of products and DeltaNet steps in one launch, for chips with bulk copies. One
 * block to a multiprocessor, all there at once. A block's producer warp runs through the
 * weights of all links without waiting for anything but room in its ring, so that memory
 * stays busy while a link's results travel to the next: weights wait for nobody.
 *
 * Eight streaming warps take a stage's steps by number: step s of K is warp s % 8's, which
 * brings the inputs of its steps to shared memory itself, so that warps wait for nothing but
 * their own inputs. Other warps take the sums of runs, a tile each in turn, and finish tiles
 * or send contributions to them; yet others finish tiles of several contributions. All that
 * blocks hand to each other, contributions to a tile as well as what one link makes for the
 * next, travels as words of 8 bytes, value and ticket: a reader needs neither fence nor
 * counter, it sees by the ticket that the value is there.
 *
 * Memory is written again safely because of what a finished tile says: it needed all that
 * the link before makes, and whoever made that had taken his inputs. A DeltaNet head needs
 * only some tiles of the link before; so contributions have two areas by turns of products,
 * and what goes from link to link has three.
 */
#include "kernels/cuda/gdn_step.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mm_put.cuh"
#include "kernels/cuda/mm_step.cuh"

enum {
    MM90_STREAM = 8, /* streaming warps */
    MM90_STREAM_THREADS = MM90_STREAM * MM_LANES,
    MM90_STAGE = MM90_STREAM * MM_STAGE, /* bytes: 8 steps of W4, 4 of W8, 2 of W16 */
    MM90_X_ROW = MM_X_STEP + 16,         /* of a step of a row: rows do not share banks */
    MM90_COLS = 4,                       /* batch rows that are finished at a time */
    MM90_PARTS = 4,                      /* contributions that are on their way at a time */
    MM90_AREAS = 2,                      /* of the exchange, at most */
    MM90_EXCHANGE_BARS = 8,
    BAR90_STREAM = 1
};

static const uint32_t MM90_KEPT = 0; /* a ticket that nobody waits for */

/* The warps of a block in order: those that stream, take sums, finish tiles, the producer. For
 * few rows 12 have 168 registers each, for more there are 15 or 16 with 128. */
template <int NT, bool MANY> struct mm90_warps {
    static constexpr int take = MANY ? 4 : 2, finish = !MANY ? 1 : NT == 1 ? 3 : 2;
    static constexpr int finish_0 = MM90_STREAM + take, producer = finish_0 + finish;
    static constexpr int threads = (producer + 1) * MM_LANES;
    static constexpr int asked = MANY ? 8 : 6; /* units of inputs that a lane asks for at a time */
    static constexpr bool ahead = !MANY;       /* a step is read while another is computed */
    static constexpr int groups = take / NT;   /* of takers, by tile */
    static constexpr int areas = MANY ? 1 : MM90_AREAS; /* of the exchange */
    /* With 16 warps the streaming ones take registers from the others. */
    static constexpr bool uneven = NT == 1 && MANY;
    static constexpr int stream_regs = 152, other_regs = 104;
};

/* Floats of an area of the exchange. */
static constexpr __host__ __device__ int mm90_exchange(int nt)
{
    return MM90_STREAM * nt * 8 * MM_COL;
}

struct mm90_link {
    uint32_t gdn; /* or a product */
    union {
        struct {
            struct mm_op mm;
            int odd; /* which of the areas for contributions */
        };
        struct {
            struct cu_gdn g;
            struct gdn_step_args p;
            struct mm_words w; /* x: the inputs, values; out: the activations, pairs */
        } step;
    };
};

/* Where a block's shared memory has its parts; of x and offset each streaming warp has one. */
struct mm90_smem {
    uint32_t stages, x, x_warp, offset, offset_warp, exchange, blocks, bars, bytes;
    uint32_t steps, step_rows; /* for how many steps, and rows of them, a warp has room */
};

struct mm90_args {
    struct cu_batch b;
    uint32_t *left;   /* how many blocks have come to their end; zero before and after */
    uint32_t *ticket; /* of this launch; the next has the next */
    int n;
    int flying; /* stages on their way at a time: what waits behind them waits longer */
    struct mm90_smem at;
    struct mm90_link link[CU_LINKS];
};

/* A block's view of its shared memory. */
struct mm90_room {
    uint32_t ring, ring_full, ring_empty; /* shared addresses; a barrier per stage each */
    uint32_t full, empty; /* of the exchange's areas; full: [area][group of takers] */
    uint8_t *base, *x, *offset;
    uint32_t x_warp, offset_warp;
    float *exchange;
    int4 *blocks;   /* by link */
    uint32_t *left; /* warps of the block that have come to their end */
    int stages, steps, step_rows;
};

static __device__ __forceinline__ struct mm90_room room_of(const struct mm90_smem &at,
                                                           unsigned char *smem)
{
    struct mm90_room r;
    r.base = smem;
    r.ring = smem_addr(smem);
    r.stages = (int)at.stages;
    r.steps = (int)at.steps;
    r.step_rows = (int)at.step_rows;
    r.ring_full = smem_addr(smem + at.bars);
    r.ring_empty = r.ring_full + at.stages * 8;
    r.empty = r.ring_empty + at.stages * 8;
    r.full = r.empty + MM90_AREAS * 8;
    r.x = smem + at.x;
    r.offset = smem + at.offset;
    r.x_warp = at.x_warp;
    r.offset_warp = at.offset_warp;
    r.exchange = (float *)(smem + at.exchange);
    r.blocks = (int4 *)(smem + at.blocks);
    r.left = (uint32_t *)(smem + at.blocks + CU_LINKS * sizeof(int4));
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

/* What a warp that writes and reads words starts from: link i's are marked by this plus i,
 * never by MM90_KEPT. */
static __device__ __forceinline__ uint32_t first_ticket(const struct mm90_args &g)
{
    return (ld_relaxed(g.ticket) + 1) * CU_LINKS;
}

/* A warp that has read the ticket is done; the last of all blocks' raises it. */
static __device__ __forceinline__ void leave(const struct mm90_args &g,
                                             const struct mm90_room &room, uint32_t warps, int lane)
{
    __syncwarp();
    if (lane == 0 && atomicAdd(room.left, 1u) == warps - 1 &&
        atom_add_acq_rel(g.left, 1) == gridDim.x - 1) {
        *g.left = 0;
        ++*g.ticket;
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

/* ---- the warps that take the sums of runs, and those that finish tiles of several
 * contributions ---- */

static __device__ __forceinline__ bool is_there(uint4 t, uint32_t ticket)
{
    return t.y == ticket && t.w == ticket;
}

/* Where the words of a contribution and batch row col are; links have two areas by turns. */
static __device__ __forceinline__ const uint4 *piece_at(const struct mm_op &a, int slot, int col,
                                                        int odd, int lane)
{
    return (const uint4 *)a.part + (size_t)(2 * slot + odd) * (MM_SLOT / 2) + col * MM_LANES + lane;
}

/* Adds the contributions to a tile, in order. */
static __device__ __forceinline__ void gather(float2 (&sum)[MM90_COLS], const struct mm_op &a,
                                              int slot0, int parts, int first, int count, int odd,
                                              uint32_t ticket, int lane)
{
#pragma unroll
    for (int c = 0; c < MM90_COLS; c++) {
        sum[c] = make_float2(0, 0);
    }
    for (int i = 0; i < parts; i += MM90_PARTS) {
        uint4 t[MM90_COLS][MM90_PARTS];
        bool again = true;
#pragma unroll
        for (int c = 0; c < MM90_COLS; c++) {
#pragma unroll
            for (int j = 0; j < MM90_PARTS; j++) {
                const bool is = i + j < parts && first + c < count;
                t[c][j] = is ? ld_ticket(piece_at(a, slot0 + i + j, first + c, odd, lane))
                             : make_uint4(0, ticket, 0, ticket);
            }
        }
        do { /* all that are missing at once */
            again = false;
#pragma unroll
            for (int c = 0; c < MM90_COLS; c++) {
#pragma unroll
                for (int j = 0; j < MM90_PARTS; j++) {
                    again = again || !is_there(t[c][j], ticket);
                }
            }
            if (again) {
                look_again();
#pragma unroll
                for (int c = 0; c < MM90_COLS; c++) {
#pragma unroll
                    for (int j = 0; j < MM90_PARTS; j++) {
                        if (!is_there(t[c][j], ticket)) {
                            t[c][j] = ld_ticket(piece_at(a, slot0 + i + j, first + c, odd, lane));
                        }
                    }
                }
            }
        } while (again);
#pragma unroll
        for (int c = 0; c < MM90_COLS; c++) {
#pragma unroll
            for (int j = 0; j < MM90_PARTS; j++) {
                sum[c].x += __uint_as_float(t[c][j].x);
                sum[c].y += __uint_as_float(t[c][j].z);
            }
        }
    }
}

/* This block's sum of earlier phases of a run's tile. */
static __device__ __forceinline__ void kept_sums(float2 (&v)[8], const struct mm_op &a,
                                                 const struct run_at &at, int first, int count,
                                                 int odd, int lane)
{
    const bool earlier = !MM_META_FIRST(at.meta);
#pragma unroll
    for (int c = 0; c < 8; c++) {
        v[c] = make_float2(0, 0);
        if (earlier && first + c < count) {
            const uint4 t = ld_ticket(piece_at(a, at.slot, first + c, odd, lane));
            v[c] = make_float2(__uint_as_float(t.x), __uint_as_float(t.z));
        }
    }
}

static __device__ __forceinline__ void send_sums(const float2 (&v)[8], const struct mm_op &a,
                                                 const struct run_at &at, int first, int count,
                                                 int odd, uint32_t ticket, int lane)
{
#pragma unroll
    for (int c = 0; c < 8; c++) {
        if (first + c < count) {
            st_ticket((void *)piece_at(a, at.slot, first + c, odd, lane), __float_as_uint(v[c].x),
                      __float_as_uint(v[c].y), ticket);
        }
    }
}

/* 1 / rms of a batch row from the sums of squares of every 64, which the whole warp adds up. */
static __device__ __forceinline__ float rstd_of(const float *plain, const uint2 *words, int groups,
                                                int row, uint32_t ticket, float inv_k, float eps,
                                                int lane)
{
    enum { AT_ONCE = 4 };
    float s = 0;
    for (int g0 = 0; g0 < groups; g0 += AT_ONCE * MM_LANES) {
        uint2 w[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            const int at = g0 + i * MM_LANES + lane;
            w[i] = make_uint2(0, ticket);
            if (at < groups && words) {
                w[i] = ld_word(words + at * CU_ROWS + row);
            } else if (at < groups) {
                w[i].x = __float_as_uint(ld_l2_f32(plain + at * CU_ROWS + row));
            }
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            s += word_value(w[i], words + (g0 + i * MM_LANES + lane) * CU_ROWS + row, ticket);
        }
    }
    return 1 / sqrtf(warp_sum(s) * inv_k + eps);
}

/* What is known of batch rows first .. end - 1, in lanes of these numbers; ticket: of the
 * launch. */
static __device__ __forceinline__ struct factors factors_of90(const struct mm_op &a, int lane,
                                                              int first, int end, uint32_t ticket)
{
    struct factors f = {1, 1};
    if (a.ss) {
        float power = 1;
        if (lane >= first && lane < end) {
            power = a.w.power ? word_value(ld_word(a.w.power + lane), a.w.power + lane,
                                           ticket + a.w.ss_at)
                              : ld_l2_f32(a.in_power + lane);
        }
        for (int row = first; row < end; row++) {
            const float rstd = rstd_of(a.ss, a.w.ss, a.ss_groups, row, ticket + a.w.ss_at,
                                       a.inv_norm_k, a.eps, lane);
            f.owed = lane == row ? rstd / power : f.owed;
        }
    }
    if (a.out == CU_MM_RESIDUAL) {
        for (int row = first; row < end; row++) {
            const float rstd = rstd_of(a.resid_ss, a.w.resid_ss, a.resid_groups, row,
                                       ticket + a.w.old_at, a.inv_hidden, a.eps, lane);
            f.power = lane == row ? near_power(rstd) : f.power;
        }
    }
    return f;
}

/* Batch rows first .. first + 3 of a tile from their sums. */
static __device__ __forceinline__ void finish_rows(const struct mm_op &a, int tile, int mat,
                                                   int first, int count, int lane, struct factors f,
                                                   const struct before &b, float2 (&v)[MM90_COLS],
                                                   uint32_t ticket)
{
    if (count - first == 1) {
        finish<1>(a, tile, mat, count, first, lane, f, b, v, ticket);
    } else {
        finish<MM90_COLS>(a, tile, mat, count, first, lane, f, b, v, ticket);
    }
}

static __device__ __forceinline__ int least(int a, int b)
{
    return a < b ? a : b;
}

/* Takes the sums of runs, batch rows 8 (mine % NT) and up of the tiles that are by number
 * those of mine / NT. A tile that is one block's alone is finished here, others' sums are sent:
 * this waits for no other block but for what the link before makes. */
template <int NT, typename WARPS>
static __device__ __forceinline__ void take_links(const struct mm90_args &g,
                                                  const struct mm90_room &room, int mine, int lane,
                                                  int count)
{
    const int group = mine / NT, first = 8 * (mine % NT);
    const uint32_t ticket = first_ticket(g);
    uint32_t nth = 0, turns[MM90_AREAS] = {}; /* runs of the block so far; own of each area */
    for (int i = 0; i < g.n; i++) {
        if (g.link[i].gdn) {
            continue;
        }
        const struct mm_op &a = g.link[i].mm;
        const struct mm_block blk = block_of(room, i);
        const struct mm_run *run = a.run + blk.run;
        const uint32_t now = ticket + (uint32_t)i;
        const int odd = g.link[i].odd;
        struct run_words words = {};
        struct factors f = {1, 1};
        bool known = false;
        for (int r = 0; r < blk.n_runs; r++) {
            if (r % MM_LANES == 0) {
                words_load(words, run, r, blk.n_runs, lane);
            }
            const struct run_at at = run_of(words, r);
            const int area = (int)(nth++ % WARPS::areas);
            if (at.tile % WARPS::groups != group) {
                continue;
            }
            const int mat = MM_META_MAT(at.meta);
            const bool last = MM_META_LAST(at.meta) != 0;
            const bool whole = last && MM_META_PARTS(at.meta) == 1;
            if (whole && !known) {
                known = true;
                f = factors_of90(a, lane, first, least(first + 8, count), ticket);
            }
            float2 v[8];
            kept_sums(v, a, at, first, count, odd, lane);
            uint32_t turn = turns[0];
            if (area == 0) {
                turns[0]++;
            } else {
                turn = turns[1]++;
            }
            mbar_wait(room.full + (uint32_t)(area * WARPS::groups + group) * 8, turn & 1);
            sum_take<NT, MM90_STREAM>(v, room.exchange + area * mm90_exchange(NT), at.kind, first,
                                      count, lane);
            __syncwarp();
            if (lane == 0) {
                mbar_arrive(room.empty + (uint32_t)area * 8);
            }
            if (whole) {
#pragma unroll
                for (int h = 0; h < 8; h += MM90_COLS) {
                    if (first + h < count) {
                        float2 part[MM90_COLS];
#pragma unroll
                        for (int c = 0; c < MM90_COLS; c++) {
                            part[c] = v[h + c];
                        }
                        struct before b;
                        before_load<MM90_COLS>(b, a, at.tile, mat, first + h, count, lane,
                                               ticket + a.w.old_at);
                        finish_rows(a, at.tile, mat, first + h, count, lane, f, b, part, now);
                    }
                }
            } else {
                send_sums(v, a, at, first, count, odd, last ? now : MM90_KEPT, lane);
            }
        }
    }
}

/* Finishes the tiles of several contributions that are this block's, of every so many batch
 * rows those of warp `mine`. What it waits for comes from warps that do not wait for it in the
 * same link. */
template <int FINISH>
static __device__ __forceinline__ void finish_links(const struct mm90_args &g, int mine, int lane,
                                                    int count)
{
    const uint32_t ticket = first_ticket(g);
    for (int i = 0; i < g.n; i++) {
        if (g.link[i].gdn) {
            continue;
        }
        const struct mm_op &a = g.link[i].mm;
        const int n = a.n_blocks, b0 = (int)blockIdx.x;
        const int begin = (b0 * a.n_finish + n - 1) / n, end = ((b0 + 1) * a.n_finish + n - 1) / n;
        struct factors f = {1, 1};
        for (int at = begin; b0 < n && at < end; at++) {
            const int4 w = *(const int4 *)(a.finish + at); /* struct mm_finish */
            for (int first = mine * MM90_COLS; first < count; first += FINISH * MM90_COLS) {
                struct before b;
                before_load<MM90_COLS>(b, a, w.x, w.y, first, count, lane, ticket + a.w.old_at);
                if (at == begin) {
                    const struct factors now =
                        factors_of90(a, lane, first, least(first + MM90_COLS, count), ticket);
                    f = lane >= first && lane < first + MM90_COLS ? now : f;
                }
                float2 v[MM90_COLS];
                gather(v, a, w.z, w.w, first, count, g.link[i].odd, ticket + (uint32_t)i, lane);
                finish_rows(a, w.x, w.y, first, count, lane, f, b, v, ticket + (uint32_t)i);
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

/* As gdn_plain, but words of a chain. */
struct gdn_words {
    struct mm_words w;
    uint32_t from, to; /* tickets */
    struct asked {
        uint2 v;
    };
    struct asked4 {
        uint4 v[2];
    };
    __device__ __forceinline__ const uint2 *at(int row, int col) const
    {
        return w.x + (size_t)row * w.ld + col;
    }
    __device__ __forceinline__ struct asked ask(int row, int col) const
    {
        return {ld_word(at(row, col))};
    }
    __device__ __forceinline__ float value(const struct asked &a) const
    {
        return __uint_as_float(a.v.x);
    }
    template <int C, int R>
    __device__ __forceinline__ void settle(struct asked (&a)[C][R], int row, int rows,
                                           const int (&col)[C], int cols) const
    {
        for (bool again = true; again;) {
            again = false;
#pragma unroll
            for (int i = 0; i < C * R; i++) {
                again = again || (i / R < cols && i % R < rows && a[i / R][i % R].v.y != from);
            }
            if (again) {
                look_again();
#pragma unroll
                for (int i = 0; i < C * R; i++) {
                    if (i / R < cols && i % R < rows && a[i / R][i % R].v.y != from) {
                        a[i / R][i % R] = ask(row + i % R, col[i / R]);
                    }
                }
            }
        }
    }
    __device__ __forceinline__ struct asked4 ask4(int row, int col) const
    {
        return {{ld_ticket(at(row, col)), ld_ticket(at(row, col + 2))}};
    }
    __device__ __forceinline__ float4 take4(struct asked4 a, int row, int col) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            while (a.v[i].y != from || a.v[i].w != from) {
                look_again();
                a.v[i] = ld_ticket(at(row, col + 2 * i));
            }
        }
        return make_float4(__uint_as_float(a.v[0].x), __uint_as_float(a.v[0].z),
                           __uint_as_float(a.v[1].x), __uint_as_float(a.v[1].z));
    }
    __device__ __forceinline__ void put(int row, int h, int lane, uint2 packed) const
    {
        st_ticket(w.out + (size_t)row * w.ld + h * (GDN_D / 2) + 2 * lane, packed.x, packed.y, to);
    }
};

struct gdn_no_wait {
    __device__ __forceinline__ void operator()() const
    {
    }
};

/* DeltaNet: the block's heads and spans. Its shared memory is that of the streaming warps'
 * inputs; they keep together here. */
static __device__ __forceinline__ void stream_gdn(const struct mm90_args &g,
                                                  const struct mm90_room &room, int i,
                                                  uint32_t ticket)
{
    const struct cu_gdn &d = g.link[i].step.g;
    const int items = d.v_heads * g.b.count[1];
    const struct gdn_room at = gdn_room_at(room.x, g.b.rows);
    const struct gdn_words ports = {g.link[i].step.w, ticket + g.link[i].step.w.x_at,
                                    ticket + (uint32_t)i};
    for (int item = (int)blockIdx.x; item < items; item += (int)gridDim.x) {
        stream_sync()();
        gdn_item<MM90_STREAM>(g.b, d, g.link[i].step.p, item % d.v_heads, item / d.v_heads,
                              (int)threadIdx.x, at, gdn_no_wait(), stream_sync(), ports);
    }
    if ((int)blockIdx.x < items) {
        stream_sync()();
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
    uint32_t puts;   /* runs left in the exchange so far */
    uint32_t ticket; /* of the launch */
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

/* A warp's steps of a phase: number i is step first + 8 i of K. */
struct own_steps {
    int first, n;
};

static __device__ __forceinline__ struct own_steps own_steps_of(int k0, int n, int warp)
{
    struct own_steps o;
    o.first = k0 + ((warp - k0) & (MM90_STREAM - 1));
    o.n = (k0 + n - o.first + MM90_STREAM - 1) / MM90_STREAM;
    return o;
}

/* Inputs from another launch: all rows of the warp's steps, step by step. */
static __device__ __forceinline__ void inputs_plain(const struct mm_op &a, struct own_steps o,
                                                    uint32_t x, int lane, int count)
{
    int j = 0, row = lane / 8;
    while (row >= count) {
        row -= count;
        j++;
    }
    for (uint32_t p = (uint32_t)lane / 8; j < o.n; p += 4) {
        cp_async16(x + p * MM90_X_ROW + lane % 8 * 16,
                   a.x + (size_t)row * a.k + (o.first + MM90_STREAM * j) * 64 + lane % 8 * 8);
        row += 4;
        while (row >= count) {
            row -= count;
            j++;
        }
    }
    cp_async_commit();
    cp_async_wait<0>();
}

/* Inputs from the link before: a lane takes four of them at a time, in half a warp a row's
 * step; ASKED: units on their way. */
template <int ASKED>
static __device__ __forceinline__ void inputs_words(const struct mm_op &a, struct own_steps o,
                                                    uint8_t *x, int lane, int count,
                                                    uint32_t ticket)
{
    const int all = o.n * count;
    int j = 0, row = lane / 16;
    while (row >= count) {
        row -= count;
        j++;
    }
    const uint2 *from = a.w.x + o.first * 32 + lane % 16 * 2;
    for (int p0 = 0; p0 < all; p0 += 2 * ASKED) {
        int at[ASKED]; /* in words */
        uint4 t[ASKED];
#pragma unroll
        for (int i = 0; i < ASKED; i++) {
            at[i] = row * a.w.ld + j * (MM90_STREAM * 32);
            t[i] = make_uint4(0, ticket, 0, ticket);
            if (p0 + 2 * i + lane / 16 < all) {
                t[i] = ld_ticket(from + at[i]);
            }
            row += 2;
            while (row >= count) {
                row -= count;
                j++;
            }
        }
        for (bool again = true; again;) { /* all that are missing at once */
            again = false;
#pragma unroll
            for (int i = 0; i < ASKED; i++) {
                again = again || !is_there(t[i], ticket);
            }
            if (again) {
                look_again();
#pragma unroll
                for (int i = 0; i < ASKED; i++) {
                    if (!is_there(t[i], ticket)) {
                        t[i] = ld_ticket(from + at[i]);
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < ASKED; i++) {
            const int p = p0 + 2 * i + lane / 16;
            if (p < all) {
                *(uint2 *)(x + (uint32_t)p * MM90_X_ROW + lane % 16 * 8) =
                    make_uint2(t[i].x, t[i].z);
            }
        }
    }
}

/* Brings a phase's inputs of the warp's steps to shared memory, and their offsets: what codes
 * have too much, -1032 and -1152 times the sum of the inputs, which is a product with ones. */
template <int NT, int ASKED>
static __device__ __forceinline__ void stage_phase(const struct mm_op &a, struct own_steps o,
                                                   uint8_t *x, uint8_t *offset, int lane, int count,
                                                   uint32_t ticket)
{
    __syncwarp(); /* nobody needs what was there */
    if (a.w.x) {
        inputs_words<ASKED>(a, o, x, lane, count, ticket + a.w.x_at);
    } else {
        inputs_plain(a, o, smem_addr(x), lane, count);
    }
    __syncwarp();
    const uint32_t one = 0x3C003C00, ones[4] = {one, one, one, one};
    const float zeros[4] = {0, 0, 0, 0};
#pragma unroll 3
    for (int j = 0; j < o.n; j++) {
        const uint8_t *step = x + (uint32_t)(j * count) * MM90_X_ROW;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            const int row = lane / 4 + 8 * n;
            const uint8_t *at = step + (row < count ? row : count - 1) * MM90_X_ROW + lane % 4 * 32;
            const uint4 b[2] = {*(const uint4 *)at, *(const uint4 *)(at + 16)};
            float d[2][4];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                mma_f16(d[h], ones, b[h].x, b[h].y, zeros);
                mma_f16(d[h], ones, b[h].z, b[h].w, d[h]);
            }
            if (lane < 4) {
                const float s0 = d[0][0] + d[1][0], s1 = d[0][1] + d[1][1];
                *(float4 *)(offset + (j * NT + n) * 64 + lane * 16) =
                    make_float4(-1032 * s0, -1032 * s1, -1152 * s0, -1152 * s1);
            }
        }
    }
    __syncwarp();
}

/* Shared addresses of a lane's parts of a warp's next step; q and scale in the ring's first
 * stage. */
struct stream_place {
    uint32_t q, scale, x, offset, x_step;
};

/* Waits for the stage at the cursor and has this warp's step in registers. */
static __device__ __forceinline__ void step_take(struct weights_w4 &w, struct inputs<1> &in,
                                                 const struct mm90_room &room, struct cursor &at,
                                                 struct stream_place &p)
{
    const uint32_t stage = (uint32_t)at.slot * MM90_STAGE;
    in.b[0][0] = ld_shared16(p.x);
    in.b[0][1] = ld_shared16(p.x + 16);
    const uint4 c = ld_shared16(p.offset);
    in.c[0] = make_float4(__uint_as_float(c.x), __uint_as_float(c.y), __uint_as_float(c.z),
                          __uint_as_float(c.w));
    mbar_wait(room.ring_full + (uint32_t)at.slot * 8, at.parity);
    weights_load(w, p.q + stage, p.scale + stage);
    advance(at, room.stages);
    p.x += p.x_step;
    p.offset += 64;
}

/* n whole stages of W4: while a step is computed the next one comes from shared memory. */
static __device__ __forceinline__ void whole_stages(float (*acc)[1][4],
                                                    const struct mm90_room &room, struct stream &s,
                                                    struct stream_place p, int n, int lane)
{
    struct weights_w4 w[2];
    struct inputs<1> in[2];
    struct cursor at = s.at;
    step_take(w[0], in[0], room, at, p);
    for (n--; n >= 2; n -= 2) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            step_take(w[1 - i], in[1 - i], room, at, p);
            step_w4<1>(acc, w[i], in[i]);
            leave_stage(room, s.at, lane);
        }
    }
    if (n > 0) {
        step_take(w[1], in[1], room, at, p);
        step_w4<1>(acc, w[0], in[0]);
        leave_stage(room, s.at, lane);
        w[0] = w[1];
        in[0] = in[1];
    }
    step_w4<1>(acc, w[0], in[0]);
    leave_stage(room, s.at, lane);
}

template <int NT, typename WARPS>
static __device__ __forceinline__ void stream_mm(const struct mm90_args &g,
                                                 const struct mm90_room &room, int i,
                                                 const struct mm_block &blk, struct stream &s,
                                                 int warp, int lane, int count)
{
    const struct mm_op &a = g.link[i].mm;
    const struct mm_run *run = a.run + blk.run;
    const struct mm_phase *phase = a.phase + blk.phase;
    uint8_t *const x = room.x + (uint32_t)warp * room.x_warp;
    uint8_t *const offset = room.offset + (uint32_t)warp * room.offset_warp;
    const int row = lane / 4 < count ? lane / 4 : count - 1;
    const int row8 = lane / 4 + 8 < count ? lane / 4 + 8 : count - 1;
    const uint8_t *const x_lane = x + row * MM90_X_ROW + lane % 4 * 32;
    const uint8_t *const offset_lane = offset + lane % 4 * 16;
    const uint32_t x8 = (uint32_t)(row8 - row) * MM90_X_ROW;
    const uint32_t x_step = (uint32_t)count * MM90_X_ROW;
    struct run_words words = {};
    struct own_steps own = {};
    int phase_end = 0, phases = 0, k0 = 0, staged = 0;
    for (int r = 0; r < blk.n_runs; r++) {
        if (r % MM_LANES == 0) {
            words_load(words, run, r, blk.n_runs, lane);
        }
        if (r == phase_end) {
            const int4 ph = *(const int4 *)(phase + phases);
            k0 = ph.x;
            if (k0 >= staged) { /* as many phases as there is room for */
                int n = ph.y;
                own = own_steps_of(k0, n, warp);
                for (int p = phases + 1, end = ph.z; end < blk.n_runs; p++) {
                    const int4 next = *(const int4 *)(phase + p);
                    const struct own_steps more = own_steps_of(k0, n + next.y, warp);
                    if (next.x != k0 + n || more.n > room.steps ||
                        more.n * count > room.step_rows) {
                        break;
                    }
                    own = more;
                    n += next.y;
                    end = next.z;
                }
                staged = k0 + n;
                stage_phase<NT, WARPS::asked>(a, own, x, offset, lane, count, s.ticket);
            }
            phase_end = ph.z;
            phases++;
        }
        const int kind = __shfl_sync(MM_ALL, words.w0.w, r % MM_LANES);
        int left = __shfl_sync(MM_ALL, words.w0.z, r % MM_LANES);
        const int putter = __shfl_sync(MM_ALL, words.w1.x, r % MM_LANES) % WARPS::groups;
        const int k = k0 + MM_META_K((uint32_t)__shfl_sync(MM_ALL, words.w1.w, r % MM_LANES));
        /* where in the run this warp's first step is, and which of its own that is */
        int mine = (warp - k) & (MM90_STREAM - 1);
        const int nth = (k + mine - own.first) / MM90_STREAM;
        const uint8_t *xp = x_lane + (uint32_t)nth * x_step;
        const uint8_t *op = offset_lane + nth * (NT * 64);
        float acc[4][NT][4];
#pragma unroll
        for (int j = 0; j < 4 * NT * 4; j++) {
            acc[j / (NT * 4)][j / 4 % NT][j % 4] = 0;
        }
        if (kind == CU_W4) {
            const uint8_t *step = room.base + mine * MM_STAGE;
            const int whole = WARPS::ahead ? left / MM90_STREAM : 0;
            if (whole > 0) {
                const uint32_t step0 = room.ring + (uint32_t)(mine * MM_STAGE);
                const struct stream_place p = {step0 + (uint32_t)lane * 16,
                                               step0 + 2048 + (uint32_t)lane / 4 * 16,
                                               smem_addr(xp), smem_addr(op), x_step};
                whole_stages((float(*)[1][4])acc, room, s, p, whole, lane);
                left -= whole * MM90_STREAM;
                xp += (uint32_t)whole * x_step;
                op += whole * 64;
            }
            for (; left >= MM90_STREAM; left -= MM90_STREAM) { /* whole stages */
                struct inputs<NT> in;
                inputs_load<NT>(in, xp, x8, op);
                mbar_wait(room.ring_full + (uint32_t)s.at.slot * 8, s.at.parity);
                step_w4<NT>(acc, step + s.at.slot * MM90_STAGE, lane, in);
                leave_stage(room, s.at, lane);
                xp += x_step;
                op += NT * 64;
            }
            if (left > 0) {
                mbar_wait(room.ring_full + (uint32_t)s.at.slot * 8, s.at.parity);
                if (mine < left) {
                    struct inputs<NT> in;
                    inputs_load<NT>(in, xp, x8, op);
                    step_w4<NT>(acc, step + s.at.slot * MM90_STAGE, lane, in);
                }
                leave_stage(room, s.at, lane);
            }
        } else {
            const int cap = stage_steps(kind);
            for (; left > 0; left -= cap) {
                mbar_wait(room.ring_full + (uint32_t)s.at.slot * 8, s.at.parity);
                if (mine < cap && mine < left) {
                    struct inputs<NT> in;
                    inputs_load<NT>(in, xp, x8, op);
                    step_wide<NT>(acc,
                                  room.base + s.at.slot * MM90_STAGE +
                                      (uint32_t)mine * step_bytes_of(kind),
                                  kind, lane, in);
                    xp += x_step;
                    op += NT * 64;
                }
                leave_stage(room, s.at, lane);
                mine = (mine - cap) & (MM90_STREAM - 1);
            }
        }
        const int area = (int)(s.puts % WARPS::areas);
        mbar_wait(room.empty + (uint32_t)area * 8, (s.puts / WARPS::areas & 1) ^ 1);
        s.puts++;
        exchange_put<NT>(room.exchange + area * mm90_exchange(NT) + warp * (8 * NT * MM_COL), acc,
                         lane);
        __syncwarp();
        if (lane == 0) {
            mbar_arrive(room.full + (uint32_t)(area * WARPS::groups + putter) * 8);
        }
    }
}

/* Every link in turn. What earlier kernels wrote is touched after pdl_wait only. */
template <int NT, bool MANY>
static __global__ void __launch_bounds__(mm90_warps<NT, MANY>::threads, 1)
    mm90_kernel(const __grid_constant__ struct mm90_args g)
{
    typedef mm90_warps<NT, MANY> warps;
    const int lane = (int)threadIdx.x % MM_LANES, warp = (int)threadIdx.x / MM_LANES;
    const struct mm90_room room = room_of(g.at, cu_smem());
    if ((int)threadIdx.x < g.n) {
        const struct mm90_link &l = g.link[threadIdx.x];
        const bool part = !l.gdn && (int)blockIdx.x < l.mm.n_blocks;
        room.blocks[threadIdx.x] =
            part ? *(const int4 *)(l.mm.block + blockIdx.x) : make_int4(0, 0, 0, 0);
    }
    if (threadIdx.x == MM90_STREAM_THREADS) {
        *room.left = 0;
        for (int s = 0; s < room.stages; s++) {
            mbar_init(room.ring_full + (uint32_t)s * 8, 1);
            mbar_init(room.ring_empty + (uint32_t)s * 8, MM90_STREAM);
        }
        for (int i = 0; i < warps::areas; i++) {
            mbar_init(room.empty + (uint32_t)i * 8, NT);
        }
        for (int i = 0; i < warps::areas * warps::groups; i++) {
            mbar_init(room.full + (uint32_t)i * 8, MM90_STREAM);
        }
        mbar_fence_init();
    }
    __syncthreads();
    /* The batch's tables came a kernel or more before the one that this may overlap. */
    const int count = (int)ld_relaxed(g.b.count);
    if (warp >= MM90_STREAM) {
        if (warps::uneven) {
            regs_dec<warps::other_regs>();
        }
        if (warp == warps::producer) {
            produce(g, room, lane);
            return;
        }
        pdl_wait();
        if (warp < warps::finish_0) {
            take_links<NT, warps>(g, room, warp - MM90_STREAM, lane, count);
        } else {
            finish_links<warps::finish>(g, warp - warps::finish_0, lane, count);
        }
        leave(g, room, warps::producer, lane);
        return;
    }
    if (warps::uneven) {
        regs_inc<warps::stream_regs>();
    }
    pdl_wait();
    pdl_launch();
    struct stream s = {{0, 0}, 0, first_ticket(g)};
    for (int i = 0; i < g.n; i++) {
        if (g.link[i].gdn) {
            stream_gdn(g, room, i, s.ticket);
        } else {
            stream_mm<NT, warps>(g, room, i, block_of(room, i), s, warp, lane, count);
        }
    }
    leave(g, room, warps::producer, lane);
}

#endif
