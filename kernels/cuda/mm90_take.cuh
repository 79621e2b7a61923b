#ifndef QUASAR_KERNELS_CUDA_MM90_TAKE_CUH
#define QUASAR_KERNELS_CUDA_MM90_TAKE_CUH

/* A chain of products on sm_90 (mm_sm90.cuh): what becomes of the sums of runs. */

#include "kernels/cuda/mm90_room.cuh"

/* ---- the warps that take the sums of runs, and those that finish tiles of several
 * contributions ---- */

/* Where the words of a contribution and batch row col are; links have two areas by turns. */
static __device__ __forceinline__ const uint4 *piece_at(const struct mm_op &a, int slot, int col,
                                                        int odd, int lane)
{
    return (const uint4 *)a.part + (size_t)(2 * slot + odd) * (MM_SLOT / 2) + col * MM_LANES + lane;
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
    uint32_t turns = 0;
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
            mbar_wait(room.full + (uint32_t)group * 8, turns++ & 1);
            sum_take<NT, MM90_STREAM>(v, room.exchange, at.kind, first, count, lane);
            __syncwarp();
            if (lane == 0) {
                mbar_arrive(room.empty);
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
                const uint32_t now = ticket + (uint32_t)i;
                if (FINISH == 1 && count - first == 1) {
                    gather<1, 2 * MM90_PARTS>(v, a, w.z, w.w, first, count, g.link[i].odd, now,
                                              lane);
                } else {
                    gather<MM90_COLS, MM90_PARTS>(v, a, w.z, w.w, first, count, g.link[i].odd, now,
                                                  lane);
                }
                finish_rows(a, w.x, w.y, first, count, lane, f, b, v, now);
            }
        }
    }
}

#endif
