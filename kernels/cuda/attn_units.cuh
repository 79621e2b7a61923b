#ifndef QUASAR_KERNELS_CUDA_ATTN_UNITS_CUH
#define QUASAR_KERNELS_CUDA_ATTN_UNITS_CUH

/*
 * How decode attention is cut: splits of 128 positions; units of 1 to 16 splits, longer
 * the deeper they lie, each one chain of sums; jobs, which are some rows of a span that
 * share what is read. Units follow from absolute positions alone; who works on which,
 * and how many rows a job has, changes no bit.
 */

#include "kernels/cuda/attn.cuh"

enum {
    AT_SPLIT = 128,
    AT_GROUP = 8,        /* units that are combined first */
    AT_DEEP = 12,        /* splits of a block from which on units of several tiles count more */
    AT_GROUPS_MAX = 152, /* counters of a (row, head): two million positions, and the last */
    AT_TILE = 8 * AT_D   /* floats of the sums of 8 queries */
};

/* From split 0, 32, 64, 256 and 1024 on, units of 1, 2, 4, 8 and 16 splits: a quarter of what a
 * multiprocessor of 132 gets of a context that ends there, so that shares can be even. */
static __host__ __device__ __forceinline__ int unit_of(int split)
{
    return split < 32     ? split
           : split < 64   ? 32 + (split - 32) / 2
           : split < 256  ? 48 + (split - 64) / 4
           : split < 1024 ? 96 + (split - 256) / 8
                          : 192 + (split - 1024) / 16;
}

static __host__ __device__ __forceinline__ int unit_first(int unit)
{
    return unit < 32    ? unit
           : unit < 48  ? 32 + (unit - 32) * 2
           : unit < 96  ? 64 + (unit - 48) * 4
           : unit < 192 ? 256 + (unit - 96) * 8
                        : 1024 + (unit - 192) * 16;
}

/* What lies before a unit costs, and what n splits of a head do, in eighths of a split; each: what
 * a unit costs beside its splits. */
static __host__ __device__ __forceinline__ int unit_cost(int unit, int each)
{
    return 8 * unit_first(unit) + each * unit;
}

static __host__ __device__ __forceinline__ int splits_cost(int n, int each)
{
    return 8 * n + each * (unit_of(n - 1) + 1);
}

/* The unit that cost number c of a head belongs to. */
static __host__ __device__ __forceinline__ int unit_at(int c, int each)
{
    return c < unit_cost(32, each)    ? c / (8 + each)
           : c < unit_cost(48, each)  ? 32 + (c - unit_cost(32, each)) / (16 + each)
           : c < unit_cost(96, each)  ? 48 + (c - unit_cost(48, each)) / (32 + each)
           : c < unit_cost(192, each) ? 96 + (c - unit_cost(96, each)) / (64 + each)
                                      : 192 + (c - unit_cost(192, each)) / (128 + each);
}

/* Where the partial results of a step lie in its work memory, in bytes: counters, then
 * tiles [head][unit or group][rows] of sums, and their 16 floats (maximum, sum of weights)
 * of 8 queries. Sums are as accumulators have them: at ((element / 32) * 2 + element / 16 %
 * 2) * 128 + lane * 4. */
struct attn_layout {
    size_t part, whole, part_ml, whole_ml, size;
    int units, groups;
};

static inline struct attn_layout attn_layout_of(int kv_heads, int max_ctx, int rows)
{
    struct attn_layout w;
    w.units = unit_of((max_ctx + AT_SPLIT - 1) / AT_SPLIT) + 1;
    w.groups = (w.units + AT_GROUP - 1) / AT_GROUP;
    const size_t heads = (size_t)rows * (size_t)kv_heads;
    const size_t counters = (size_t)CU_ROWS * (size_t)kv_heads * AT_GROUPS_MAX * sizeof(uint32_t);
    w.part = (counters + 255) / 256 * 256;
    w.whole = w.part + heads * (size_t)w.units * AT_TILE * sizeof(float);
    w.part_ml = w.whole + heads * (size_t)w.groups * AT_TILE * sizeof(float);
    w.whole_ml = w.part_ml + heads * (size_t)w.units * 16 * sizeof(float);
    w.size = w.whole_ml + heads * (size_t)w.groups * 16 * sizeof(float);
    return w;
}

/* Some rows of a span; all spans' make the list of work. What its units of head 0 cost, then
 * those of head 1 and so on, are numbers base ... of the whole work. */
struct attn_job {
    int row, n, pos; /* first row, its position */
    int fresh;       /* position of the span's first row: cached from here on now */
    int span_row;    /* that row */
    int page, splits, base;
    int cost; /* of a head */
};
struct attn_jobs {
    int n, total, heads;
    int each; /* of unit_cost */
    struct attn_job job[CU_ROWS];
};

struct attn_unit {
    int job, head, split, n;
};

/* A unit in the list of work: unit `unit` of a head of a job, which is cost number `at` of all; the
 * work before `end` is a block's. */
struct attn_place {
    int at, end, job, head, unit;
};

/* The next of the block's units. */
static __device__ __forceinline__ bool next_unit(const struct attn_jobs *w, struct attn_place *p,
                                                 struct attn_unit *u)
{
    if (p->at >= p->end) {
        return false;
    }
    const int splits = w->job[p->job].splits, past = unit_first(p->unit + 1);
    u->job = p->job, u->head = p->head, u->split = unit_first(p->unit);
    u->n = (past < splits ? past : splits) - u->split;
    p->at += 8 * u->n + w->each;
    p->unit++;
    if (past >= splits) {
        p->unit = 0;
        if (++p->head == w->heads) {
            p->head = 0;
            p->job++;
        }
    }
    return true;
}

/* Before the first unit that begins in the part of the work from at to end. */
static __device__ __forceinline__ struct attn_place place_of(const struct attn_jobs *w, int at,
                                                             int end)
{
    struct attn_place p = {end, end, 0, 0, 0};
    if (at >= end) {
        return p;
    }
    while (p.job + 1 < w->n && w->job[p.job + 1].base <= at) {
        p.job++;
    }
    const int cost = w->job[p.job].cost, rel = at - w->job[p.job].base;
    p.head = rel / cost;
    p.unit = unit_at(rel % cost, w->each);
    p.at = w->job[p.job].base + p.head * cost + unit_cost(p.unit, w->each);
    if (p.at < at) {
        struct attn_unit u;
        next_unit(w, &p, &u);
    }
    return p;
}

/* Sum of x of the lanes before. */
static __device__ __forceinline__ int lanes_before(int x, int lane)
{
    int sum = x;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        const int y = __shfl_up_sync(AT_ALL, sum, i);
        sum += lane >= i ? y : 0;
    }
    return sum - x;
}

/* By one warp, a span to a lane. Rows per job: `most`, fewer when blocks would stay
 * idle. Units of a job of several tiles cost more, which counts where blocks have many. */
static __device__ __forceinline__ void make_jobs(const int32_t *count, const struct cu_span *span,
                                                 int spans, int kv_heads, int most, bool tiles,
                                                 struct attn_jobs *w, int lane)
{
    /* The first is asked for together with their number; others are there only if counted. */
    struct cu_span s = span[0];
    const int there = count[1] < spans ? count[1] : spans;
    if (lane > 0 && lane < there) {
        s = span[lane];
    }
    s.n = lane < there ? s.n : 0;
    const int all = s.n > 0 ? ((s.pos + s.n - 1) / AT_SPLIT + 1) * kv_heads : 0;
    const int splits = __shfl_sync(AT_ALL, lanes_before(all, lane), CU_ROWS);
    const int each = tiles && splits >= AT_DEEP * (int)gridDim.x ? 8 : 1;
    const int want = splits > 0 ? (int)gridDim.x / splits : 1;
    int parts = (s.n + most - 1) / most;
    parts = parts > want ? parts : want < s.n ? want : s.n;
    const int rows = parts > 0 ? (s.n + parts - 1) / parts : 1;
    const int jobs = (s.n + rows - 1) / rows;
    int mine = 0;
    for (int r = 0; r < s.n; r += rows) {
        const int last = r + rows < s.n ? r + rows : s.n;
        mine += splits_cost((s.pos + last - 1) / AT_SPLIT + 1, each) * kv_heads;
    }
    int at = lanes_before(jobs, lane), base = lanes_before(mine, lane);
    if (lane == CU_ROWS) { /* the lane after the last span's */
        w->n = at;
        w->total = base;
        w->heads = kv_heads;
        w->each = each;
    }
    for (int r = 0; r < s.n && at < CU_ROWS; r += rows, at++) {
        struct attn_job *j = &w->job[at];
        j->row = s.first + r;
        j->n = s.n - r < rows ? s.n - r : rows;
        j->pos = s.pos + r;
        j->fresh = s.pos;
        j->span_row = s.first;
        j->page = s.page;
        j->splits = (j->pos + j->n - 1) / AT_SPLIT + 1;
        j->base = base;
        j->cost = splits_cost(j->splits, each);
        base += j->cost * kv_heads;
    }
}

/* l += the weights of 32 keys, which lie at p, tile behind tile, of the tiles the warp has. */
template <int NT, int SUMS, int WARPS>
static __device__ __forceinline__ void sum_weights(float (*l)[4], uint32_t p, int warp)
{
    const uint32_t ones[4] = {0x3c003c00, 0x3c003c00, 0x3c003c00, 0x3c003c00};
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        const int n = warp + WARPS * i;
        if (n < NT) {
            uint32_t b[4];
            ldmatrix_x4_trans(b, p + (uint32_t)(n * 2048));
            mma_f16(l[i], ones, b[0], b[1], l[i]);
            mma_f16(l[i], ones, b[2], b[3], l[i]);
        }
    }
}

/* o += values * weights of 32 keys, whose fragments f are [step][tile of 16 elements]; and
 * sum_weights. */
template <int NT, int SUMS, int WARPS>
static __device__ __forceinline__ void weigh_values(float (*o)[NT][4], float (*l)[4],
                                                    const uint32_t (&f)[2][2][4], uint32_t p,
                                                    int warp)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        uint32_t b[4];
        ldmatrix_x4_trans(b, p + (uint32_t)(n * 2048));
#pragma unroll
        for (int m = 0; m < 2; m++) {
            mma_f16(o[m][n], f[0][m], b[0], b[1], o[m][n]);
            mma_f16(o[m][n], f[1][m], b[2], b[3], o[m][n]);
        }
    }
    sum_weights<NT, SUMS, WARPS>(l, p, warp);
}

#endif
