#ifndef QUASAR_KERNELS_CUDA_MM90_TAKE_CUH
#define QUASAR_KERNELS_CUDA_MM90_TAKE_CUH

/* A chain of products on sm_90 (mm_sm90.cuh): what becomes of the sums of runs. */

#include "kernels/cuda/mm90_room.cuh"

/* Where the words of a contribution and batch row col are; links have two areas by turns. */
static __device__ __forceinline__ const uint4 *piece_at(const struct mm_op &a, int slot, int col,
                                                        int odd, int lane)
{
    return (const uint4 *)a.part + (size_t)(2 * slot + odd) * (MM_SLOT / 2) + col * MM_LANES + lane;
}

/* Waits until a word of each contribution to a tile is there, whose others will soon be: many
 * warps that look at all of what is missing all the time would slow down whoever writes it. */
static __device__ __forceinline__ void await_parts(const struct mm_op &a, int slot0, int parts,
                                                   int col, int odd, uint32_t ticket, int lane)
{
    for (int i = lane; i < parts; i += MM_LANES) {
        while (!is_there(ld_ticket(piece_at(a, slot0 + i, col, odd, lane)), ticket)) {
            look_again();
        }
    }
    __syncwarp();
}

/* Adds the contributions to a tile, in order, of COLS batch rows; PARTS on their way. */
template <int COLS, int PARTS>
static __device__ __forceinline__ void gather(float2 *sum, const struct mm_op &a, int slot0,
                                              int parts, int first, int count, int odd,
                                              uint32_t ticket, int lane)
{
#pragma unroll
    for (int c = 0; c < COLS; c++) {
        sum[c] = make_float2(0, 0);
    }
    for (int i = 0; i < parts; i += PARTS) {
        uint4 t[COLS][PARTS];
        bool again = true;
#pragma unroll
        for (int c = 0; c < COLS; c++) {
#pragma unroll
            for (int j = 0; j < PARTS; j++) {
                const bool is = i + j < parts && first + c < count;
                t[c][j] = is ? ld_ticket(piece_at(a, slot0 + i + j, first + c, odd, lane))
                             : make_uint4(0, ticket, 0, ticket);
            }
        }
        do { /* all that are missing at once */
            again = false;
#pragma unroll
            for (int c = 0; c < COLS; c++) {
#pragma unroll
                for (int j = 0; j < PARTS; j++) {
                    again = again || !is_there(t[c][j], ticket);
                }
            }
            if (again) {
                look_again();
#pragma unroll
                for (int c = 0; c < COLS; c++) {
#pragma unroll
                    for (int j = 0; j < PARTS; j++) {
                        if (!is_there(t[c][j], ticket)) {
                            t[c][j] = ld_ticket(piece_at(a, slot0 + i + j, first + c, odd, lane));
                        }
                    }
                }
            }
        } while (again);
#pragma unroll
        for (int c = 0; c < COLS; c++) {
#pragma unroll
            for (int j = 0; j < PARTS; j++) {
                sum[c].x += __uint_as_float(t[c][j].x);
                sum[c].y += __uint_as_float(t[c][j].z);
            }
        }
    }
}

/* This block's sum of earlier phases of a run's tile. */
template <int N>
static __device__ __forceinline__ void kept_sums(float2 (&v)[N], const struct mm_op &a,
                                                 const struct run_at &at, int first, int count,
                                                 int odd, int lane)
{
    const bool earlier = !MM_META_FIRST(at.meta);
#pragma unroll
    for (int c = 0; c < N; c++) {
        v[c] = make_float2(0, 0);
        if (earlier && first + c < count) {
            const uint4 t = ld_ticket(piece_at(a, at.slot, first + c, odd, lane));
            v[c] = make_float2(__uint_as_float(t.x), __uint_as_float(t.z));
        }
    }
}

template <int N>
static __device__ __forceinline__ void send_sums(const float2 (&v)[N], const struct mm_op &a,
                                                 const struct run_at &at, int first, int count,
                                                 int odd, uint32_t ticket, int lane)
{
#pragma unroll
    for (int c = 0; c < N; c++) {
        if (first + c < count) {
            st_ticket((void *)piece_at(a, at.slot, first + c, odd, lane), __float_as_uint(v[c].x),
                      __float_as_uint(v[c].y), ticket);
        }
    }
}

/* 1 / rms of batch rows first .. first + N - 1 from the sums of squares of every 64, which the
 * whole warp adds up; rows from count on: anything. */
template <int N>
static __device__ __forceinline__ void rstds(float (&rstd)[N], const float *plain,
                                             const uint2 *words, int groups, int first, int count,
                                             uint32_t ticket, float inv_k, float eps, int lane)
{
    enum { AT_ONCE = N >= 4 ? 3 : 4 };
    float s[N] = {};
    for (int g0 = lane; words && first < count && g0 < groups; g0 += MM_LANES) {
        while (ld_word(words + g0 * CU_ROWS + first).y != ticket) {
            look_again(); /* as in await_parts */
        }
    }
    __syncwarp();
    for (int g0 = 0; g0 < groups; g0 += AT_ONCE * MM_LANES) {
        uint2 w[N][AT_ONCE];
#pragma unroll
        for (int c = 0; c < N; c++) {
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                const int at = (g0 + i * MM_LANES + lane) * CU_ROWS + first + c;
                const bool is = g0 + i * MM_LANES + lane < groups && first + c < count;
                w[c][i] = make_uint2(0, ticket);
                if (is && words) {
                    w[c][i] = ld_word(words + at);
                } else if (is) {
                    w[c][i].x = __float_as_uint(ld_l2_f32(plain + at));
                }
            }
        }
        for (bool again = true; again;) { /* all that are missing at once */
            again = false;
#pragma unroll
            for (int i = 0; i < N * AT_ONCE; i++) {
                again = again || w[i / AT_ONCE][i % AT_ONCE].y != ticket;
            }
            if (again) {
                look_again();
#pragma unroll
                for (int i = 0; i < N * AT_ONCE; i++) {
                    uint2 *const one = &w[i / AT_ONCE][i % AT_ONCE];
                    if (one->y != ticket) {
                        *one = ld_word(words + (g0 + i % AT_ONCE * MM_LANES + lane) * CU_ROWS +
                                       first + i / AT_ONCE);
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < N * AT_ONCE; i++) {
            s[i / AT_ONCE] += __uint_as_float(w[i / AT_ONCE][i % AT_ONCE].x);
        }
    }
#pragma unroll
    for (int c = 0; c < N; c++) {
        rstd[c] = 1 / sqrtf(warp_sum(s[c]) * inv_k + eps);
    }
}

/* What is known of batch rows first .. first + N - 1, in lanes of these numbers; ticket: of the
 * launch. */
template <int N>
static __device__ __forceinline__ struct factors factors_of90(const struct mm_op &a, int lane,
                                                              int first, int count, uint32_t ticket)
{
    struct factors f = {1, 1};
    float rstd[N];
    if (a.ss) {
        const bool mine = lane >= first && lane < first + N && lane < count;
        uint2 word = make_uint2(__float_as_uint(1.0f), ticket + a.w.ss_at);
        if (mine && a.w.power) {
            word = ld_word(a.w.power + lane);
        } else if (mine) {
            word.x = __float_as_uint(ld_l2_f32(a.in_power + lane));
        }
        rstds<N>(rstd, a.ss, a.w.ss, a.ss_groups, first, count, ticket + a.w.ss_at, a.inv_norm_k,
                 a.eps, lane);
        const float power = word_value(word, a.w.power + lane, ticket + a.w.ss_at);
#pragma unroll
        for (int c = 0; c < N; c++) {
            f.owed = lane == first + c ? rstd[c] / power : f.owed;
        }
    }
    if (a.out == CU_MM_RESIDUAL) {
        rstds<N>(rstd, a.resid_ss, a.w.resid_ss, a.resid_groups, first, count, ticket + a.w.old_at,
                 a.inv_hidden, a.eps, lane);
#pragma unroll
        for (int c = 0; c < N; c++) {
            f.power = lane == first + c ? near_power(rstd[c]) : f.power;
        }
    }
    return f;
}

/* Batch rows first .. first + N - 1 of a tile from their sums; ONE: they may be one. */
template <int N, bool ONE>
static __device__ __forceinline__ void finish_rows(const struct mm_op &a, int tile, int mat,
                                                   int first, int count, int lane, struct factors f,
                                                   const struct before &b, float2 (&v)[N],
                                                   uint32_t ticket)
{
    if (ONE && count - first == 1) {
        finish<1>(a, tile, mat, count, first, lane, f, b, v, ticket);
    } else {
        finish<N>(a, tile, mat, count, first, lane, f, b, v, ticket);
    }
}

/* Which rows of which shared tile of a link are streaming warp `warp`'s to finish, n rows at a
 * time. Of all tiles and rows in order the first warps of all blocks have one each, then the
 * second. */
struct shared_item {
    int at, end, sets;
};

static __device__ __forceinline__ struct shared_item shared_item_of(const struct mm_op &a, int warp,
                                                                    int n, int count)
{
    struct shared_item s;
    s.sets = (count + n - 1) / n;
    s.end = (int)blockIdx.x < a.n_blocks ? a.n_finish * s.sets : 0;
    s.at = warp * a.n_blocks + (int)blockIdx.x;
    return s;
}

/* Of how many streaming warps a taker brings what they need. */
template <int TAKERS> static constexpr __host__ __device__ int ready_items()
{
    return (MM90_STREAM + TAKERS - 1) / TAKERS;
}

/* The first shared tiles of streaming warps mine, mine + TAKERS, ...; parts 0: none. */
template <int N, int TAKERS>
static __device__ __forceinline__ void ready_tiles(int4 (&w)[ready_items<TAKERS>()],
                                                   const struct mm_op &a, int mine, int count)
{
#pragma unroll
    for (int j = 0; j < ready_items<TAKERS>(); j++) {
        const struct shared_item s = shared_item_of(a, mine + j * TAKERS, N, count);
        w[j] = make_int4(0, 0, 0, 0);
        if (mine + j * TAKERS < MM90_STREAM && s.at < s.end) {
            w[j] = *(const int4 *)(a.finish + s.at / s.sets); /* struct mm_finish */
        }
    }
}

/* What finishing this link's shared tiles needs, for every streaming warp's first one, and all
 * rows' factors; by the takers, each its part, before there are sums to take. All of it but the
 * norm's sums has long been there. */
template <int N, int TAKERS, int ROWS>
static __device__ __forceinline__ void bring_ready(const struct mm_op &a,
                                                   const struct mm90_room &room, int mine,
                                                   const int4 (&w)[ready_items<TAKERS>()],
                                                   const struct factors &f, int lane, int count,
                                                   uint32_t ticket)
{
    constexpr int ITEMS = ready_items<TAKERS>();
    struct mm90_ready<N> *const ready = (struct mm90_ready<N> *)(room.ready_at + CU_ROWS * 8);
    if (a.out == CU_MM_RESIDUAL || a.out == CU_MM_START) {
        struct before b[ITEMS];
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const struct shared_item s = shared_item_of(a, mine + j * TAKERS, N, count);
            before_ask<N>(b[j], a, w[j].x, s.at % s.sets * N, w[j].w ? count : 0, lane,
                          ticket + a.w.old_at);
        }
#pragma unroll
        for (int j = 0; j < ITEMS; j++) {
            const struct shared_item s = shared_item_of(a, mine + j * TAKERS, N, count);
            if (w[j].w) {
                struct mm90_ready<N> *const to = &ready[mine + j * TAKERS];
                before_settle<N>(b[j], a, w[j].x, s.at % s.sets * N, count, lane,
                                 ticket + a.w.old_at);
#pragma unroll
                for (int c = 0; c < N; c++) {
                    to->old[c][lane] = b[j].old[c];
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < ITEMS; j++) {
        if (lane == 0 && mine + j * TAKERS < MM90_STREAM) {
            ready[mine + j * TAKERS].tile = w[j];
        }
    }
    if (lane >= ROWS * mine && lane < ROWS * (mine + 1) && lane < CU_ROWS) {
        ((float2 *)room.ready_at)[lane] = make_float2(f.owed, f.power);
    }
    __syncwarp();
    if (lane == 0) {
        mbar_arrive(room.ready);
    }
}

/* Takes the sums of runs, some batch rows of the tiles that are by number those of a group. A
 * tile that is one block's alone is finished here, others' sums are sent: this waits for no other
 * block but for what the link before makes. */
template <int NT, typename WARPS>
static __device__ __forceinline__ void take_links(const struct mm90_args &g,
                                                  const struct mm90_room &room, int mine, int lane,
                                                  int count)
{
    constexpr int ROWS = WARPS::rows;
    const int group = mine / WARPS::takers, first = ROWS * (mine % WARPS::takers);
    const uint32_t ticket = first_ticket(g);
    uint32_t turns = 0, links = 0;
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
        words_load(words, run, 0, blk.n_runs, lane);
        struct factors f = {1, 1};
        bool known = false;
        if (WARPS::finish == 0) {
            int4 w[ready_items<WARPS::takers>()];
            ready_tiles<WARPS::finished, WARPS::takers>(w, a, mine, count);
            f = factors_of90<ROWS>(a, lane, first, count, ticket);
            known = true;
            mbar_wait(room.read, (links++ & 1) ^ 1);
            bring_ready<WARPS::finished, WARPS::takers, ROWS>(a, room, mine, w, f, lane, count,
                                                              ticket);
        }
        for (int r = 0; r < blk.n_runs; r++) {
            if (r > 0 && r % MM_LANES == 0) {
                words_load(words, run, r, blk.n_runs, lane);
            }
            const struct run_at at = run_of(words, r);
            if (at.tile % WARPS::groups != group) {
                continue;
            }
            const int mat = MM_META_MAT(at.meta);
            const bool last = MM_META_LAST(at.meta) != 0;
            const bool whole = last && MM_META_PARTS(at.meta) == 1 && first < count;
            struct before b;
            if (whole) {
                before_load<ROWS>(b, a, at.tile, mat, first, count, lane, ticket + a.w.old_at);
                if (!known) {
                    known = true;
                    f = factors_of90<ROWS>(a, lane, first, count, ticket);
                }
            }
            float2 v[ROWS];
            kept_sums(v, a, at, first, count, odd, lane);
            mbar_wait(room.full + (uint32_t)group * 8, turns++ & 1);
            sum_take<NT, MM90_STREAM>(v, room.exchange, at.kind, first, count, lane);
            __syncwarp();
            if (lane == 0) {
                mbar_arrive(room.empty);
            }
            if (whole) {
                finish_rows<ROWS, WARPS::takers == 1>(a, at.tile, mat, first, count, lane, f, b, v,
                                                      now);
            } else {
                send_sums(v, a, at, first, count, odd, last ? now : MM90_KEPT, lane);
            }
        }
    }
}

/* Finishes the tiles of several contributions that are this block's. What it waits for comes
 * from warps that do not wait for it in the same link. */
static __device__ __forceinline__ void finish_links(const struct mm90_args &g, int lane, int count)
{
    enum { ROWS = 4 };
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
            struct before b;
            before_load<ROWS>(b, a, w.x, w.y, 0, count, lane, ticket + a.w.old_at);
            if (at == begin) {
                f = factors_of90<ROWS>(a, lane, 0, count, ticket);
            }
            float2 v[ROWS];
            const uint32_t now = ticket + (uint32_t)i;
            if (count == 1) {
                gather<1, 2 * MM90_PARTS>(v, a, w.z, w.w, 0, count, g.link[i].odd, now, lane);
            } else {
                gather<ROWS, MM90_PARTS>(v, a, w.z, w.w, 0, count, g.link[i].odd, now, lane);
            }
            finish_rows<ROWS, true>(a, w.x, w.y, 0, count, lane, f, b, v, now);
        }
    }
}

/* The same, of link i, by streaming warp `warp` when it is through with its runs: N batch rows of
 * a tile at a time; what takers brought is the first's. */
template <int N>
static __device__ __forceinline__ void finish_shared(const struct mm90_args &g,
                                                     const struct mm90_room &room, int i,
                                                     uint32_t link, int warp, int lane, int count,
                                                     uint32_t ticket)
{
    const struct mm_op &a = g.link[i].mm;
    const struct mm90_ready<N> *const ready =
        (const struct mm90_ready<N> *)(room.ready_at + CU_ROWS * 8) + warp;
    const uint32_t now = ticket + (uint32_t)i;
    mbar_wait(room.ready, link & 1);
    const float2 known = ((const float2 *)room.ready_at)[lane % CU_ROWS];
    const struct factors f = {known.x, known.y};
    int4 w = ready->tile;
    struct before b = {};
    if (w.w) {
        before_scale(b, a, w.x, w.y, lane);
        before_norm(b, a, w.x, lane);
#pragma unroll
        for (int c = 0; c < N; c++) {
            b.old[c] = ready->old[c][lane];
        }
    }
    __syncwarp();
    if (lane == 0) {
        mbar_arrive(room.read);
    }
    struct shared_item s = shared_item_of(a, warp, N, count);
    for (bool first_item = true; s.at < s.end; s.at += MM90_STREAM * a.n_blocks) {
        const int first = s.at % s.sets * N;
        if (!first_item) {
            w = *(const int4 *)(a.finish + s.at / s.sets); /* struct mm_finish */
            before_load<N>(b, a, w.x, w.y, first, count, lane, ticket + a.w.old_at);
        }
        first_item = false;
        float2 v[N];
        await_parts(a, w.z, w.w, first, g.link[i].odd, now, lane);
        gather<N, 2 * MM90_PARTS>(v, a, w.z, w.w, first, count, g.link[i].odd, now, lane);
        finish<N>(a, w.x, w.y, count, first, lane, f, b, v, now);
    }
}

#endif
