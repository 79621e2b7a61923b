/*
 * Gated attention of a decode step, in one launch: append, query norm and
 * rotation, flash-decoding, combination, gate.
 *
 * A split is 128 positions; a unit is what one block reads in a row: one split,
 * from position 8,192 on 4. Units are combined in groups of 16, then the groups:
 * always in ascending order, set by absolute positions alone. A unit's block takes
 * all query heads of a key head and several rows of a span at once as the N side of
 * MMAs, so that keys and values are read once; how many rows changes no bit of a
 * row, so it is chosen by what fills the chip.
 */
#include <stddef.h>

#include "kernels/cuda/attn.cuh"

namespace
{

enum {
    SPLIT = 128,
    WIDE_FROM = 64, /* splits; from here on a unit has WIDE of them */
    WIDE = 4,
    GROUP = 16,       /* units */
    GROUPS_MAX = 136, /* counters of a (row, head): a million positions, and the last */
    SLOT = 16384,     /* of the ring */
    THREADS = 256,
    MAX_SLOTS = 8,
    STAGE_LD = 260, /* floats */
    SCRATCH = 2 * 8 * STAGE_LD * 4,
    AHEAD = 2 /* fills under way without mbarriers */
};

static __host__ __device__ __forceinline__ int unit_of(int split)
{
    return split < WIDE_FROM ? split : WIDE_FROM + (split - WIDE_FROM) / WIDE;
}

static __device__ __forceinline__ int unit_first(int unit)
{
    return unit < WIDE_FROM ? unit : WIDE_FROM + (unit - WIDE_FROM) * WIDE;
}

struct decode_args {
    struct attn_in in;
    const int32_t *count;
    const struct cu_span *span;
    const int32_t *page;
    uint16_t *x;
    float *sum;
    uint32_t *counter;
    float *part, *part_ml;   /* [row][q_head][units]: 256 sums; maximum, sum of weights */
    float *whole, *whole_ml; /* the same of groups */
    int units, groups;
    int spans, slots;
    bool bulk;
};

/* Some rows of a span; all spans' make the list of work. Its splits of head 0, then
 * head 1 and so on are numbers base ... of the whole work. */
struct job {
    int row, n, pos; /* first row, its position */
    int fresh;       /* position of the span's first row: cached from here on now */
    int span_row;    /* that row */
    int page, splits, base;
};
struct jobs {
    int n, total;
    struct job job[CU_ROWS];
};

struct unit {
    int job, head, split, n;
};

/* One block's share begins at *at; the next unit whose first split lies in it. */
static __device__ __forceinline__ bool next_unit(const struct jobs *w, int *at, int end,
                                                 struct unit *u)
{
    while (*at < end) {
        int j = 0;
        while (j + 1 < w->n && w->job[j + 1].base <= *at) {
            j++;
        }
        const int splits = w->job[j].splits;
        const int rel = *at - w->job[j].base;
        const int head = rel / splits, split = rel % splits;
        const int unit = unit_of(split), past = unit_first(unit + 1);
        const int n = (past < splits ? past : splits) - split;
        *at += n;
        if (unit_first(unit) == split) {
            u->job = j, u->head = head, u->split = split, u->n = n;
            return true;
        }
    }
    return false;
}

/* By one thread. Rows per job: as many as fit, fewer when blocks would stay idle. */
static __device__ void make_jobs(const struct cu_span *span, int spans, int kv_heads, int most,
                                 struct jobs *w)
{
    int splits = 0;
    for (int i = 0; i < spans; i++) {
        splits += ((span[i].pos + span[i].n - 1) / SPLIT + 1) * kv_heads;
    }
    const int want = splits > 0 ? (int)gridDim.x / splits : 1;
    w->n = w->total = 0;
    for (int i = 0; i < spans; i++) {
        const int n = span[i].n;
        int parts = (n + most - 1) / most;
        parts = parts > want ? parts : want < n ? want : n;
        const int rows = parts > 0 ? (n + parts - 1) / parts : 1;
        for (int r = 0; r < n && w->n < CU_ROWS; r += rows) {
            struct job *j = &w->job[w->n++];
            j->row = span[i].first + r;
            j->n = n - r < rows ? n - r : rows;
            j->pos = span[i].pos + r;
            j->fresh = span[i].pos;
            j->span_row = span[i].first;
            j->page = span[i].page;
            j->splits = (j->pos + j->n - 1) / SPLIT + 1;
            j->base = w->total;
            w->total += j->splits * kv_heads;
        }
    }
}

/* ---- the ring of slots: K and V of a split in the order of use ---- */

/*
 * Slots are numbered through a block's share. The fill of number i + ahead is
 * started at step i, when the slot's reader before is done: bulk copies by one
 * thread, which mbarriers announce; else cp.async by all, with a barrier of the
 * block at each step.
 */
struct feed {
    int at, end; /* the rest of the share */
    struct unit u;
    int split, part; /* next; no unit: part < 0 */
    int page, next_page;
};
struct fill {
    const uint8_t *src; /* NULL: nothing */
    int valid;          /* rows of 64, of which 256 bytes each are copied */
};

struct ring {
    uint32_t base, full, empty; /* shared addresses */
    struct feed *feed;
    struct fill *fill; /* [2] */
    int slots, slot;
    uint32_t phase, step;
    bool bulk;
};

/* The page of a split is asked for one page ahead. */
static __device__ __forceinline__ void feed_pages(const struct decode_args &a, const struct job *j,
                                                  struct feed *f, bool fresh)
{
    const int p = f->split / (BE_PAGE / SPLIT), last = (j->splits - 1) / (BE_PAGE / SPLIT);
    f->page = fresh ? a.page[j->page + p] : f->next_page;
    f->next_page = p < last ? a.page[j->page + p + 1] : 0;
}

/* By one thread: what the next slot gets. */
template <bool F8>
static __device__ struct fill feed_next(const struct decode_args &a, const struct jobs *w,
                                        struct feed *f)
{
    constexpr int row_bytes = F8 ? 256 : 512, parts = F8 ? 2 : 4;
    struct fill r = {NULL, 0};
    if (f->part == 2 * parts) {
        f->part = 0;
        f->split++;
        if (f->split == f->u.split + f->u.n) {
            f->part = -1;
        } else if (f->split % (BE_PAGE / SPLIT) == 0) {
            feed_pages(a, &w->job[f->u.job], f, false);
        }
    }
    if (f->part < 0) {
        if (!next_unit(w, &f->at, f->end, &f->u)) {
            return r;
        }
        f->part = 0;
        f->split = f->u.split;
        feed_pages(a, &w->job[f->u.job], f, true);
    }
    const int i = f->part++;
    const int valid =
        w->job[f->u.job].fresh - f->split * SPLIT - (F8 ? i % parts : i % parts / 2) * 64;
    r.src = kv_head(a.in, f->page, i / parts, f->u.head, row_bytes) +
            f->split % (BE_PAGE / SPLIT) * SPLIT * row_bytes + i % parts * SLOT;
    r.valid = valid < 0 ? 0 : valid < 64 ? valid : 64;
    return r;
}

/* By one thread, after the slot's last readers have released it. */
static __device__ __forceinline__ void fill_bulk(const struct ring *r, struct fill f, int slot)
{
    const uint32_t full = r->full + 8 * (uint32_t)slot;
    const uint32_t dst = r->base + (uint32_t)(slot * SLOT), n = (uint32_t)f.valid * 128;
    if (f.valid == 0) {
        mbar_arrive(full);
    } else if (f.valid == 64) {
        mbar_arrive_expect(full, SLOT);
        bulk_load(dst, f.src, SLOT, full);
    } else {
        mbar_arrive_expect(full, 2 * n);
        bulk_load(dst, f.src, n, full);
        bulk_load(dst + AT_BLOCK, f.src + AT_BLOCK, n, full);
    }
}

/* By all. */
static __device__ __forceinline__ void fill_async(const struct ring *r, struct fill f, int slot,
                                                  int tid)
{
    const uint32_t dst = r->base + (uint32_t)(slot * SLOT);
    for (int i = tid; f.src && i < SLOT / 16; i += THREADS) {
        if (i % 512 / 8 < f.valid) {
            cp_async16(dst + 16 * (uint32_t)i, f.src + 16 * (size_t)i);
        }
    }
    cp_async_commit();
}

/* The first fills, after a barrier of the block. */
template <bool F8>
static __device__ void ring_start(const struct decode_args &a, const struct jobs *w, struct ring *r,
                                  int tid)
{
    const int n = r->bulk ? r->slots - 1 : AHEAD;
#pragma unroll 1
    for (int i = 0; i < n; i++) {
        if (tid == 0) {
            const struct fill f = feed_next<F8>(a, w, r->feed);
            if (!r->bulk) {
                r->fill[i & 1] = f;
            } else if (f.src) {
                fill_bulk(r, f, i);
            }
        }
        if (!r->bulk) {
            __syncthreads();
            fill_async(r, r->fill[i & 1], i, tid);
        }
    }
    if (!r->bulk) {
        __syncthreads(); /* the entries have been read */
    }
}

/* A step begins: starts one fill, waits for this step's if it is the warp's. */
template <bool F8>
static __device__ __forceinline__ uint32_t ring_wait(const struct decode_args &a,
                                                     const struct jobs *w, struct ring *r,
                                                     bool mine, int tid)
{
    if (tid == 0) {
        const struct fill f = feed_next<F8>(a, w, r->feed);
        if (!r->bulk) {
            r->fill[r->step & 1] = f;
        } else if (f.src) {
            /* The slot of the step before; its phase is the one before when it wraps. */
            const int before = r->slot > 0 ? r->slot - 1 : r->slots - 1;
            const uint32_t phase = r->slot > 0 ? r->phase : r->phase ^ 1;
            if (r->step > 0) {
                mbar_wait(r->empty + 8 * (uint32_t)before, phase);
            }
            fill_bulk(r, f, before);
        }
    }
    if (r->bulk) {
        __syncwarp();
        if (mine) {
            mbar_wait(r->full + 8 * (uint32_t)r->slot, r->phase);
        }
    } else {
        cp_async_wait<AHEAD - 1>();
        __syncthreads();
        const int slot = r->slot + AHEAD < r->slots ? r->slot + AHEAD : r->slot + AHEAD - r->slots;
        fill_async(r, r->fill[r->step & 1], slot, tid);
    }
    return r->base + (uint32_t)(r->slot * SLOT);
}

/* The warp has read what it wanted of the slot. */
static __device__ __forceinline__ void ring_release(struct ring *r, bool mine, int times, int lane)
{
    if (r->bulk && mine) {
        __syncwarp();
        for (int i = 0; lane == 0 && i < times; i++) {
            mbar_arrive(r->empty + 8 * (uint32_t)r->slot);
        }
    }
    r->step++;
    if (++r->slot == r->slots) {
        r->slot = 0;
        r->phase ^= 1;
    }
}

/* ---- fragments ---- */

/* s += keys (16 of this warp) * queries, over the slot's half (fp8: all) of the
 * elements. kr: the warp's first key among the slot's 64. */
template <bool F8, int NT>
static __device__ __forceinline__ void scores(float (*s)[4], int tiles, uint32_t slot, uint32_t q,
                                              int half, int kr, int lane)
{
    const int row = kr + (lane & 15), up = lane >> 4;
    const uint32_t keys = slot + (uint32_t)row * 128;
#pragma unroll
    for (int k = 0; k < 16; k += 2) { /* units of 16 bytes: one MMA step, fp8: two */
        uint32_t r[4], f[2][4];
        const int u = k + up;
        ldmatrix_x4(r, keys + (uint32_t)(u / 8 * AT_BLOCK + ((u ^ row) & 7) * 16));
#pragma unroll
        for (int m = 0; m < 4; m++) { /* matrices: keys, keys + 8, the next unit's */
            if (F8) {
                f8_pairs(r[m], &f[m / 2][m % 2], &f[m / 2][m % 2 + 2]);
            } else {
                f[0][m] = r[m];
            }
        }
        const int v = F8 ? 2 * k + (lane >> 3) : 16 * half + k + (lane >> 3 & 1);
        const uint32_t qa = q + (uint32_t)((lane & 7) * 512 + v / 8 * 128 + ((v ^ lane) & 7) * 16);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            if (n < tiles) {
                uint32_t b[4];
                const uint32_t at = qa + (uint32_t)(n * 8 * 512);
                if (F8) {
                    ldmatrix_x4(b, at);
                    mma_f16(s[n], f[0], b[0], b[1], s[n]);
                    mma_f16(s[n], f[1], b[2], b[3], s[n]);
                } else {
                    ldmatrix_x2(b, at);
                    mma_f16(s[n], f[0], b[0], b[1], s[n]);
                }
            }
        }
    }
}

/* o += values (32 elements of this warp) * weights, over the slot's 64 keys, which
 * are keys key0 ... of the split. unit: the warp's first 16-byte unit in the slot. */
template <bool F8, int NT>
static __device__ __forceinline__ void values(float (*o)[NT][4], int tiles, uint32_t slot,
                                              uint32_t p, int key0, int unit, int lane)
{
#pragma unroll
    for (int k = 0; k < 64; k += 32) {
        uint32_t f[2][2][4]; /* [step][tile of 16 elements] */
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if (F8) {
                uint32_t r[4];
                const int key = k + 16 * i + (lane & 15), u = unit + (lane >> 4);
                ldmatrix_x4_trans(
                    r, slot + (uint32_t)(u / 8 * AT_BLOCK + key * 128 + ((u ^ key) & 7) * 16));
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    f8_even_odd(r[2 * m], &f[i][m][0], &f[i][m][1]);
                    f8_even_odd(r[2 * m + 1], &f[i][m][2], &f[i][m][3]);
                }
            } else {
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    const int key = k + 16 * i + (lane & 7) + (lane >> 4) * 8;
                    const int u = unit + 2 * m + (lane >> 3 & 1);
                    ldmatrix_x4_trans(f[i][m], slot + (uint32_t)(u / 8 * AT_BLOCK + key * 128 +
                                                                 ((u ^ key) & 7) * 16));
                }
            }
        }
#pragma unroll
        for (int n = 0; n < NT; n++) {
            if (n < tiles) {
                uint32_t b[4];
                ldmatrix_x4_trans(b, p + (uint32_t)(n * 2048 + (key0 + k + lane) * 16));
#pragma unroll
                for (int m = 0; m < 2; m++) {
                    mma_f16(o[m][n], f[0][m], b[0], b[1], o[m][n]);
                    mma_f16(o[m][n], f[1][m], b[2], b[3], o[m][n]);
                }
            }
        }
    }
}

/* ---- results ---- */

/* o / l * sigmoid(gate) in fp16, and the sums of every 32. */
static __device__ __forceinline__ void finish(const struct decode_args &a, int row, int head,
                                              const float *o, float l, int lane)
{
    float g[8];
    load8(a.in.proj + (size_t)row * a.in.ld + a.in.col_q + head * 2 * AT_D + AT_D + 8 * lane, g);
    const float r = 1 / l;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        /* + 0: what was flushed to -0 and then had zeros added is the same */
        g[i] = __fmul_rn(__fadd_rn(__fmul_rn(o[i], r), 0.0f), at_sigmoid(g[i]));
    }
    const uint4 v = pack_f16(g);
    const uint32_t h[4] = {v.x, v.y, v.z, v.w};
    float s = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 p = halves(h[i]);
        s = __fadd_rn(s, __fadd_rn(p.x, p.y));
    }
    s = __fadd_rn(s, __shfl_xor_sync(AT_ALL, s, 1));
    s = __fadd_rn(s, __shfl_xor_sync(AT_ALL, s, 2));
    *(uint4 *)(a.x + ((size_t)row * a.in.q_heads + head) * AT_D + 8 * lane) = v;
    if (lane % 4 == 0) {
        a.sum[(size_t)(head * (AT_D / 32) + lane / 4) * CU_ROWS + row] = s;
    }
}

static __device__ __forceinline__ void store_part(float *part, float *ml, size_t at, const float *o,
                                                  float m, float l, int lane)
{
    float4 *p = (float4 *)(part + at * AT_D) + 2 * lane;
    p[0] = make_float4(o[0], o[1], o[2], o[3]);
    p[1] = make_float4(o[4], o[5], o[6], o[7]);
    if (lane == 0) {
        *(float2 *)(ml + 2 * at) = make_float2(m, l);
    }
}

/* n partial results, in order. */
static __device__ __forceinline__ void merge(const float *part, const float *ml, int n, float *o,
                                             float *m, float *l, int lane)
{
    float top = -INFINITY;
    for (int i = lane; i < n; i += 32) {
        top = fmaxf(top, __ldcg(ml + 2 * i));
    }
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        top = fmaxf(top, __shfl_xor_sync(AT_ALL, top, i));
    }
    const float ref = top == -INFINITY ? 0 : top;
    *m = top;
    *l = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        o[i] = 0;
    }
    for (int i = 0; i < n; i += 32) {
        const bool there = i + lane < n;
        const float w = there ? ex2_approx(__ldcg(ml + 2 * (i + lane)) - ref) : 0;
        const float lw = there ? __ldcg(ml + 2 * (i + lane) + 1) : 0;
        const int end = n - i < 32 ? n - i : 32;
#pragma unroll 8
        for (int j = 0; j < end; j++) {
            float x[8];
            load8(part + (size_t)(i + j) * AT_D + 8 * lane, x);
            const float wj = __shfl_sync(AT_ALL, w, j);
            *l = fmaf(wj, __shfl_sync(AT_ALL, lw, j), *l);
#pragma unroll
            for (int k = 0; k < 8; k++) {
                o[k] = fmaf(wj, x[k], o[k]);
            }
        }
    }
}

/* One more of n has arrived; true in the last one's threads. */
static __device__ __forceinline__ bool last_of(uint32_t *counter, int n, uint32_t *flag, int tid)
{
    fence_gpu();
    __syncthreads();
    if (tid == 0) {
        const bool last = atom_add_acq_rel(counter, 1) == (uint32_t)n - 1;
        if (last) {
            *counter = 0;
        }
        *flag = last;
    }
    __syncthreads();
    const bool last = *flag != 0;
    fence_gpu();
    return last;
}

/* Merges the unit's group when it is complete, and the groups when they are. */
static __device__ void combine(const struct decode_args &a, const struct job *j, int head, int unit,
                               uint32_t *flag, int warp, int lane, int tid)
{
    const int group = a.in.q_heads / a.in.kv_heads, queries = j->n * group;
    const int units = unit_of(j->splits - 1) + 1, groups = (units + GROUP - 1) / GROUP;
    const int mine = unit / GROUP, first = mine * GROUP;
    const int n = units - first < GROUP ? units - first : GROUP;
    uint32_t *counter = a.counter + (size_t)(j->row * a.in.kv_heads + head) * GROUPS_MAX;
    if (!last_of(counter + mine, n, flag, tid)) {
        return;
    }
    for (int q = warp; q < queries; q += THREADS / 32) {
        const int row = j->row + q / group, qh = head * group + q % group;
        const size_t at = (size_t)row * a.in.q_heads + qh;
        float o[8], m, l;
        merge(a.part + (at * a.units + first) * AT_D, a.part_ml + 2 * (at * a.units + first), n, o,
              &m, &l, lane);
        if (groups == 1) {
            finish(a, row, qh, o, l, lane);
        } else {
            store_part(a.whole, a.whole_ml, at * a.groups + mine, o, m, l, lane);
        }
    }
    if (groups == 1 || !last_of(counter + GROUPS_MAX - 1, groups, flag, tid)) {
        return;
    }
    for (int q = warp; q < queries; q += THREADS / 32) {
        const int row = j->row + q / group, qh = head * group + q % group;
        const size_t at = ((size_t)row * a.in.q_heads + qh) * a.groups;
        float o[8], m, l;
        merge(a.whole + at * AT_D, a.whole_ml + 2 * at, groups, o, &m, &l, lane);
        finish(a, row, qh, o, l, lane);
    }
}

/* ---- a block's shared memory after the ring ---- */

template <int NT> struct shared {
    unsigned char q[NT * 4096];     /* queries: rows of 512 bytes, units swizzled by row */
    unsigned char p[NT * 2048];     /* weights: [tile][key][8 queries] fp16 */
    unsigned char scratch[SCRATCH]; /* the new rows, 16 of K, then V; later results */
    float red[8][NT * 8];           /* a value per warp and query */
    float top[2][NT * 8];           /* maximum of a query so far: read one, write the other */
    int pos[NT * 8];                /* of each query */
    struct jobs jobs;
    struct cu_span span[CU_ROWS];
    struct feed feed;
    struct fill fill[2];
    uint64_t full[MAX_SLOTS], empty[MAX_SLOTS];
    uint32_t last; /* whether this block was the last arriver */
};

/* The new positions in a unit: from f0, ends before f1. */
struct fresh {
    int f0, f1;
};

/* Queries of the job (when they changed) and the new rows of the unit; new rows of
 * the job are stored in the cache too. */
template <bool F8, int NT>
static __device__ void prepare(const struct decode_args &a, const struct job *j,
                               const struct unit *u, struct fresh f, bool again,
                               struct shared<NT> *sh, int warp, int lane, int tid)
{
    constexpr int row_bytes = F8 ? 256 : 512;
    const int group = a.in.q_heads / a.in.kv_heads;
    const int queries = again ? 0 : j->n * group, padded = again ? 0 : (queries + 7) / 8 * 8;
    const int rows = f.f1 > f.f0 ? f.f1 - f.f0 : 0;
    for (int i = warp; i < padded + 2 * rows; i += THREADS / 32) {
        float x[8] = {};
        if (i < padded) {
            if (i < queries) {
                const int row = j->row + i / group, head = u->head * group + i % group;
                load8(a.in.proj + (size_t)row * a.in.ld + a.in.col_q + head * 2 * AT_D + 8 * lane,
                      x);
                norm_rotate(x, a.in.q_norm, a.in.rot + (size_t)row * BE_ROT_DIM, a.in.eps, lane);
            }
            const uint4 v = pack_f16(x);
            unsigned char *to = sh->q + i * 512;
            if (F8) {
                const int n = lane & ~1, side = lane % 2 * 8;
                *(uint2 *)(to + ((n & ~7) | ((n ^ i) & 7)) * 16 + side) = make_uint2(v.x, v.z);
                *(uint2 *)(to + ((n & ~7) | (((n + 1) ^ i) & 7)) * 16 + side) =
                    make_uint2(v.y, v.w);
            } else {
                *(uint4 *)(to + ((lane & ~7) | ((lane ^ i) & 7)) * 16) = v;
            }
            continue;
        }
        const int which = (i - padded) / rows, pos = f.f0 + (i - padded) % rows;
        const int row = j->span_row + pos - j->fresh;
        load8(a.in.proj + (size_t)row * a.in.ld + (which ? a.in.col_v : a.in.col_k) +
                  u->head * AT_D + 8 * lane,
              x);
        if (which == 0) {
            norm_rotate(x, a.in.k_norm, a.in.rot + (size_t)row * BE_ROT_DIM, a.in.eps, lane);
        }
        unsigned char *to = sh->scratch + (which * CU_ROWS + pos - f.f0) * row_bytes;
        if (F8) {
            *(uint2 *)(to + lane * 8) = pack_f8(x);
        } else {
            *(uint4 *)(to + lane * 16) = pack_f16(x);
        }
        if (pos >= j->pos) {
            uint8_t *head =
                kv_head(a.in, a.page[j->page + pos / BE_PAGE], which, u->head, row_bytes);
            store_kv<F8>(head, pos % BE_PAGE, x, lane);
        }
    }
    for (int i = tid; i < padded; i += THREADS) {
        sh->pos[i] = j->pos + (i < queries ? i / group : 0);
    }
}

/* Puts the new rows into a slot that begins at position `pos` of the sequence, and
 * zeros behind them. */
template <bool F8, int NT>
static __device__ void patch(struct shared<NT> *sh, unsigned char *slot, int pos, int half,
                             int which, struct fresh f, int tid)
{
    constexpr int row_bytes = F8 ? 256 : 512;
    for (int i = tid; i < SLOT / 16; i += THREADS) {
        const int row = i / 16, u = i % 16;
        if (pos + row >= f.f0) {
            uint4 v = make_uint4(0, 0, 0, 0);
            if (pos + row < f.f1) {
                v = *(const uint4 *)(sh->scratch +
                                     (which * CU_ROWS + pos + row - f.f0) * row_bytes +
                                     (16 * half + u) * 16);
            }
            *(uint4 *)(slot + u / 8 * AT_BLOCK + row * 128 + ((u ^ row) & 7) * 16) = v;
        }
    }
}

/*
 * A block takes total / gridDim splits' worth of units. For the scores each of the 8
 * warps has 16 keys of the split, for the result 32 elements.
 */
template <bool F8, int NT>
static __device__ void compute_units(const struct decode_args &a, const struct jobs *w,
                                     struct shared<NT> *sh, unsigned char *slots, struct ring ring,
                                     int at, int end, uint32_t *flag, int tid)
{
    constexpr int parts = F8 ? 2 : 4;
    const int warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    const uint32_t q_at = smem_addr(sh->q), p_at = smem_addr(sh->p);
    const int group = a.in.q_heads / a.in.kv_heads;
    int job = -1, head = -1;
    struct unit u;
    while (next_unit(w, &at, end, &u)) {
        const struct job *j = &w->job[u.job];
        const int queries = j->n * group, tiles = (queries + 7) / 8;
        struct fresh f = {u.split * SPLIT, (u.split + u.n) * SPLIT};
        f.f0 = f.f0 > j->fresh ? f.f0 : j->fresh;
        f.f1 = f.f1 < j->pos + j->n ? f.f1 : j->pos + j->n;
        const bool again = u.job == job && u.head == head;
        if (!again || f.f1 > f.f0) {
            prepare<F8, NT>(a, j, &u, f, again, sh, warp, lane, tid);
            __syncthreads();
        }
        if (job < 0) {
            pdl_launch();
        }
        job = u.job;
        head = u.head;

        float o[2][NT][4], l[NT][2];
        int turn = 0;
#pragma unroll
        for (int n = 0; n < NT; n++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                o[0][n][i] = o[1][n][i] = 0;
            }
            l[n][0] = l[n][1] = 0;
        }
        for (int i = tid; i < NT * 8; i += THREADS) {
            sh->top[0][i] = -INFINITY;
        }
        for (int split = u.split; split < u.split + u.n; split++) {
            const int from = split * SPLIT;
            const bool patched = from + SPLIT > f.f0 && f.f1 > f.f0;
            float s[NT][4];
#pragma unroll
            for (int n = 0; n < NT; n++) {
                s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
            }
#pragma unroll 1
            for (int i = 0; i < parts; i++) {
                const int block = F8 ? i : i / 2, half = F8 ? 0 : i % 2;
                const bool mine = block == warp / 4;
                const uint32_t slot = ring_wait<F8>(a, w, &ring, mine || patched, tid);
                if (patched) {
                    patch<F8, NT>(sh, slots + ring.slot * SLOT, from + 64 * block, half, 0, f, tid);
                    if (ring.bulk) {
                        fence_proxy_async();
                    }
                    __syncthreads();
                }
                if (mine) {
                    scores<F8, NT>(s, tiles, slot, q_at, half, warp % 4 * 16, lane);
                }
                ring_release(&ring, mine, F8 ? 2 : 1, lane);
            }
            const bool masked = from + SPLIT - 1 > j->pos;
            const int key = from + 16 * warp + g;
#pragma unroll
            for (int n = 0; n < NT; n++) {
                if (n < tiles) {
                    const int *pos = sh->pos + 8 * n + 2 * t;
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        s[n][i] = __fmul_rn(s[n][i], AT_SCALE);
                        if (masked && key + i / 2 * 8 > pos[i % 2]) {
                            s[n][i] = -INFINITY;
                        }
                    }
                    float x = fmaxf(s[n][0], s[n][2]), y = fmaxf(s[n][1], s[n][3]);
#pragma unroll
                    for (int i = 4; i < 32; i *= 2) {
                        x = fmaxf(x, __shfl_xor_sync(AT_ALL, x, i));
                        y = fmaxf(y, __shfl_xor_sync(AT_ALL, y, i));
                    }
                    if (g == 0) {
                        *(float2 *)&sh->red[warp][8 * n + 2 * t] = make_float2(x, y);
                    }
                }
            }
            __syncthreads();
#pragma unroll
            for (int n = 0; n < NT; n++) {
                if (n < tiles) {
                    const float2 old = *(const float2 *)&sh->top[turn][8 * n + 2 * t];
                    float x = old.x, y = old.y;
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        const float2 r = *(const float2 *)&sh->red[i][8 * n + 2 * t];
                        x = fmaxf(x, r.x);
                        y = fmaxf(y, r.y);
                    }
                    /* Nothing of this row so far: weights of zero, not NaN. */
                    const float rx = x == -INFINITY ? 0 : x, ry = y == -INFINITY ? 0 : y;
                    const float cx = ex2_approx(old.x - rx), cy = ex2_approx(old.y - ry);
                    if (warp == 0 && g == 0) {
                        *(float2 *)&sh->top[1 - turn][8 * n + 2 * t] = make_float2(x, y);
                    }
                    const uint32_t lo =
                        f16x2_of_f32(ex2_approx(s[n][0] - rx), ex2_approx(s[n][1] - ry));
                    const uint32_t hi =
                        f16x2_of_f32(ex2_approx(s[n][2] - rx), ex2_approx(s[n][3] - ry));
                    unsigned char *to = sh->p + n * 2048 + (16 * warp + g) * 16 + 4 * t;
                    *(uint32_t *)to = lo;
                    *(uint32_t *)(to + 128) = hi;
                    const float2 wl = halves(lo), wh = halves(hi);
                    l[n][0] = fmaf(l[n][0], cx, __fadd_rn(wl.x, wh.x));
                    l[n][1] = fmaf(l[n][1], cy, __fadd_rn(wl.y, wh.y));
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        o[i][n][0] = __fmul_rn(o[i][n][0], cx);
                        o[i][n][1] = __fmul_rn(o[i][n][1], cy);
                        o[i][n][2] = __fmul_rn(o[i][n][2], cx);
                        o[i][n][3] = __fmul_rn(o[i][n][3], cy);
                    }
                }
            }
            turn = 1 - turn;
            __syncthreads();
#pragma unroll 1
            for (int i = 0; i < parts; i++) {
                const int block = F8 ? i : i / 2, half = F8 ? 0 : i % 2;
                const bool mine = F8 || half == warp / 4;
                const uint32_t slot = ring_wait<F8>(a, w, &ring, mine || patched, tid);
                if (patched) {
                    patch<F8, NT>(sh, slots + ring.slot * SLOT, from + 64 * block, half, 1, f, tid);
                    if (ring.bulk) {
                        fence_proxy_async();
                    }
                    __syncthreads();
                }
                if (mine) {
                    values<F8, NT>(o, tiles, slot, p_at, 64 * block, F8 ? 2 * warp : warp % 4 * 4,
                                   lane);
                }
                ring_release(&ring, mine, 1, lane);
            }
        }

        /* Sums of weights: over the warp's keys, then the warps in order. */
#pragma unroll
        for (int n = 0; n < NT; n++) {
            if (n < tiles) {
#pragma unroll
                for (int i = 4; i < 32; i *= 2) {
                    l[n][0] += __shfl_xor_sync(AT_ALL, l[n][0], i);
                    l[n][1] += __shfl_xor_sync(AT_ALL, l[n][1], i);
                }
                if (g == 0) {
                    *(float2 *)&sh->red[warp][8 * n + 2 * t] = make_float2(l[n][0], l[n][1]);
                }
            }
        }
        __syncthreads();
        /* A tile of 8 queries at a time through shared memory: a warp gets a query. */
#pragma unroll
        for (int n = 0; n < NT; n++) {
            if (n < tiles) {
                float *stage = (float *)sh->scratch + n % 2 * 8 * STAGE_LD;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int d = 32 * warp + 16 * i + (F8 ? 2 * g : g), up = F8 ? 1 : 8;
                    float *to = stage + 2 * t * STAGE_LD + d;
                    to[0] = o[i][n][0];
                    to[STAGE_LD] = o[i][n][1];
                    to[up] = o[i][n][2];
                    to[STAGE_LD + up] = o[i][n][3];
                }
                __syncthreads();
                const int q = 8 * n + warp;
                if (q < queries) {
                    const int row = j->row + q / group, qh = u.head * group + q % group;
                    float x[8], sum = 0;
#pragma unroll
                    for (int i = 0; i < 8; i++) {
                        x[i] = stage[warp * STAGE_LD + 8 * lane + i];
                        sum = __fadd_rn(sum, sh->red[i][q]);
                    }
                    if (j->splits == 1) {
                        finish(a, row, qh, x, sum, lane);
                    } else {
                        const size_t to = ((size_t)row * a.in.q_heads + qh) * a.units;
                        store_part(a.part, a.part_ml, to + unit_of(u.split), x, sh->top[turn][q],
                                   sum, lane);
                    }
                }
            }
        }
        __syncthreads();
        if (j->splits > 1) {
            combine(a, j, u.head, unit_of(u.split), flag, warp, lane, tid);
        }
    }
}

template <bool F8, int NT>
__global__ void __launch_bounds__(THREADS, NT > 4 ? 1 : 2)
    attn_decode_kernel(const struct decode_args a)
{
    unsigned char *slots = cu_smem();
    struct shared<NT> *sh = (struct shared<NT> *)(slots + a.slots * SLOT);
    const int tid = threadIdx.x;
    struct ring ring = {smem_addr(slots),
                        smem_addr(sh->full),
                        smem_addr(sh->empty),
                        &sh->feed,
                        sh->fill,
                        a.slots,
                        0,
                        0,
                        0,
                        a.bulk};
    /* The tables and the rows cached before are older than the kernel that this one
     * may overlap with; proj and rot are not. */
    if (tid < 32) {
        int spans = a.count[1];
        spans = spans < a.spans ? spans : a.spans;
        if (tid < spans) {
            sh->span[tid] = a.span[tid];
        }
        __syncwarp();
        if (tid == 0) {
            make_jobs(sh->span, spans, a.in.kv_heads, NT * 8 / (a.in.q_heads / a.in.kv_heads),
                      &sh->jobs);
            sh->feed.at = (int)((int64_t)sh->jobs.total * blockIdx.x / gridDim.x);
            sh->feed.end = (int)((int64_t)sh->jobs.total * (blockIdx.x + 1) / gridDim.x);
            sh->feed.part = -1;
        }
    } else if (tid == 32 && a.bulk) {
        for (int i = 0; i < a.slots; i++) {
            mbar_init(ring.full + 8 * (uint32_t)i, 1);
            mbar_init(ring.empty + 8 * (uint32_t)i, F8 ? 8 : 4);
        }
        mbar_fence_init();
    }
    __syncthreads();
    const int at = (int)((int64_t)sh->jobs.total * blockIdx.x / gridDim.x);
    const int end = (int)((int64_t)sh->jobs.total * (blockIdx.x + 1) / gridDim.x);
    ring_start<F8>(a, &sh->jobs, &ring, tid);
    pdl_wait();
    compute_units<F8, NT>(a, &sh->jobs, sh, slots, ring, at, end, &sh->last, tid);
}

/* Slots of the ring for `blocks` blocks of an SM. */
static int slots_for(size_t fixed, int blocks, int limit)
{
    const size_t each = (size_t)(limit / blocks);
    const int n = (int)(each < fixed ? 0 : (each - fixed) / SLOT);
    return n < MAX_SLOTS ? n : MAX_SLOTS;
}

template <bool F8, int NT>
static cudaError_t launch(struct cu_ctx *c, struct decode_args *a, int limit, int work, bool *fits)
{
    /* Besides: static variables, and 1 KB that each block costs. */
    const size_t fixed = sizeof(struct shared<NT>) + 3072;
    int blocks = NT > 4 ? 1 : 2;
    a->slots = slots_for(fixed, blocks, limit);
    if (a->slots < AHEAD + 1) {
        blocks = 1;
        a->slots = slots_for(fixed, 1, limit);
    }
    *fits = a->slots >= AHEAD + 1;
    if (!*fits) {
        return cudaSuccess;
    }
    const int grid = work < blocks * c->n_sm ? work : blocks * c->n_sm;
    return cu_launch(c, F8 ? "attention, fp8 cache" : "attention, fp16 cache",
                     attn_decode_kernel<F8, NT>, dim3((unsigned)grid), dim3(THREADS),
                     sizeof(struct shared<NT>) + (size_t)a->slots * SLOT, *a);
}

/* The fewest query tiles that hold a span's rows, if shared memory does. */
template <bool F8>
static cudaError_t launch_for(struct cu_ctx *c, struct decode_args *a, int limit, int queries,
                              int work)
{
    bool fits = false;
    cudaError_t rc = cudaSuccess;
    if (queries > 32) {
        rc = launch<F8, 12>(c, a, limit, work, &fits);
    }
    if (!fits && queries > 8) {
        rc = launch<F8, 4>(c, a, limit, work, &fits);
    }
    if (!fits) {
        rc = launch<F8, 1>(c, a, limit, work, &fits);
    }
    return fits ? rc : cudaErrorNotSupported;
}

/* Offsets of the parts of work. */
struct work_layout {
    size_t part, part_ml, whole, whole_ml, size;
    int units, groups;
};

static struct work_layout layout_of(int q_heads, int kv_heads, int max_ctx, int rows)
{
    struct work_layout w;
    w.units = unit_of((max_ctx + SPLIT - 1) / SPLIT) + 1;
    w.groups = (w.units + GROUP - 1) / GROUP;
    const size_t heads = (size_t)rows * (size_t)q_heads;
    const size_t counters = (size_t)CU_ROWS * (size_t)kv_heads * GROUPS_MAX * sizeof(uint32_t);
    w.part = (counters + 255) / 256 * 256;
    w.whole = w.part + heads * (size_t)w.units * AT_D * sizeof(float);
    w.part_ml = w.whole + heads * (size_t)w.groups * AT_D * sizeof(float);
    w.whole_ml = w.part_ml + heads * (size_t)w.units * 2 * sizeof(float);
    w.size = w.whole_ml + heads * (size_t)w.groups * 2 * sizeof(float);
    return w;
}

} // namespace

extern "C" size_t cu_attn_work(int q_heads, int kv_heads, int max_ctx, int max_rows)
{
    return layout_of(q_heads, kv_heads, max_ctx, max_rows < CU_ROWS ? max_rows : CU_ROWS).size;
}

extern "C" int cu_attn_decode(struct cu_ctx *c, const struct cu_batch *b, const struct cu_attn *a)
{
    cudaError_t rc = attn_check(a);
    if (rc != cudaSuccess || a->kv_only) {
        return rc != cudaSuccess ? rc : attn_append(c, b, a);
    }
    const struct work_layout w = layout_of(a->q_heads, a->kv_heads, a->max_ctx, b->rows);
    if (b->rows < 1 || b->rows > CU_ROWS || b->spans < 1 || b->spans > b->rows ||
        w.groups >= GROUPS_MAX) {
        return cudaErrorInvalidValue;
    }
    struct decode_args d = {};
    unsigned char *work = (unsigned char *)a->work;
    d.in = attn_inputs(b, a);
    d.count = b->count;
    d.span = b->span;
    d.page = b->page;
    d.x = a->act.x;
    d.sum = a->act.sum;
    d.counter = (uint32_t *)work;
    d.part = (float *)(work + w.part);
    d.part_ml = (float *)(work + w.part_ml);
    d.whole = (float *)(work + w.whole);
    d.whole_ml = (float *)(work + w.whole_ml);
    d.units = w.units;
    d.groups = w.groups;
    d.spans = b->spans;
    d.bulk = c->path == CU_SM90;
    int limit = 0;
    rc = attn_smem_limit(c, &limit);
    if (rc != cudaSuccess) {
        return rc;
    }
    const int rows = (b->rows + b->spans - 1) / b->spans;
    const int queries = rows * (a->q_heads / a->kv_heads);
    /* At most this many splits, and each a block. */
    const int work_most = b->rows * a->kv_heads * ((a->max_ctx + SPLIT - 1) / SPLIT);
    return a->kv == BE_KV_F8 ? launch_for<true>(c, &d, limit, queries, work_most)
                             : launch_for<false>(c, &d, limit, queries, work_most);
}
