#ifndef QUASAR_KERNELS_CUDA_SAMPLE_CUT_CUH
#define QUASAR_KERNELS_CUDA_SAMPLE_CUT_CUH

/*
 * Where a row is cut: what one block knows of it and decides, between the launches in
 * which all blocks look at the row (sample.cu).
 *
 * A token's rank is one number, smaller for what is drawn first: its logit's order, then
 * its id. A search narrows a range of ranks that holds the token at which a count (top-k)
 * or a mass (top-p) reaches its bound: first an octave, then one of BINS parts of it, and
 * when few are left they are listed, sorted and looked at one by one. Everything added is
 * an integer, so that no order matters.
 */
#include <float.h>

#include "kernels/cuda/cu.h"

#include "kernels/cuda/ptx.cuh"
#include "kernels/sample_math.h"

enum {
    MAX_THREADS = 512,
    MAX_WARPS = MAX_THREADS / 32,
    BINS = 1024,   /* of an octave */
    LISTED = 1024, /* tokens that are ranked one by one */
    BIN_SHIFT = 20 /* of a power: 2^30 to an octave */
};
#define ALL 0xffffffffu

/* A function of its own: the code of a draw is cold, and to be read costs more than a call. */
#define APART __attribute__((noinline))

typedef unsigned long long u64;

/* ---- ranks ---- */

enum { ID_BITS = 18 };
#define ID_MASK ((1u << ID_BITS) - 1)
static_assert(BE_MAX_IDS == 1 << ID_BITS, "an id is the low part of a rank");

static __device__ __forceinline__ uint32_t key_of(float x)
{
    const uint32_t u = __float_as_uint(x);
    return u >> 31 ? ~u : u | 0x80000000u;
}

static __device__ __forceinline__ float value_of(uint32_t key)
{
    return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

static __device__ __forceinline__ u64 rank_of(float x, uint32_t id)
{
    return (u64)~key_of(x) << ID_BITS | id;
}

static __device__ __forceinline__ float value_at(u64 rank)
{
    return value_of(~(uint32_t)(rank >> ID_BITS));
}

static __device__ __forceinline__ int32_t id_at(u64 rank)
{
    return (int32_t)(rank & ID_MASK);
}

/* The smallest key whose power is no less; one past infinity's when there is none. */
static __device__ APART uint32_t first_key(int64_t power)
{
    uint32_t lo = key_of(-FLT_MAX), hi = key_of(INFINITY) + 1;
    while (lo < hi) {
        const uint32_t mid = lo + (hi - lo) / 2;
        if (sm_power(value_of(mid)) >= power) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return lo;
}

/* ---- sums and the best of a block ---- */

struct best {
    float score;
    int32_t id; /* -1: none yet */
};

static __device__ __forceinline__ void offer(struct best &b, float score, int32_t id)
{
    if (id >= 0 && (b.id < 0 || score > b.score || (score == b.score && id < b.id))) {
        b.score = score;
        b.id = id;
    }
}

static __device__ __forceinline__ void best_of_warp(struct best &b)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        const float score = __shfl_xor_sync(ALL, b.score, i);
        const int id = __shfl_xor_sync(ALL, b.id, i);
        offer(b, score, id);
    }
}

/* What a block's threads tell each other. Shared. */
struct scratch {
    struct best best[MAX_WARPS];
    u64 mass[MAX_WARPS];
    uint32_t count[MAX_WARPS];
};

/* The block's, in every thread. */
static __device__ APART struct best best_of_block(struct best b, struct scratch *t)
{
    best_of_warp(b);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        t->best[threadIdx.x / 32] = b;
    }
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x / 32; i++) {
        offer(b, t->best[i].score, t->best[i].id);
    }
    return b;
}

struct sum {
    u64 mass;
    uint32_t count;
};

/* Of this thread and those before it; *total: of all. */
static __device__ APART struct sum scan_block(struct sum v, struct scratch *t, struct sum *total)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        const u64 mass = __shfl_up_sync(ALL, v.mass, i);
        const uint32_t count = __shfl_up_sync(ALL, v.count, i);
        v.mass += lane >= i ? mass : 0;
        v.count += lane >= i ? count : 0;
    }
    __syncthreads();
    if (lane == 31) {
        t->mass[warp] = v.mass;
        t->count[warp] = v.count;
    }
    __syncthreads();
    total->mass = 0;
    total->count = 0;
    for (int i = 0; i < (int)blockDim.x / 32; i++) {
        v.mass += i < warp ? t->mass[i] : 0;
        v.count += i < warp ? t->count[i] : 0;
        total->mass += t->mass[i];
        total->count += t->count[i];
    }
    return v;
}

/* ---- a row's search ---- */

enum mode {
    DONE,  /* the row's token is drawn */
    COUNT, /* next: counts and masses of the octave's bins, inside the range */
    LIST   /* next: what is in the range; when it draws, the best of what ranks above it */
};

/* Between launches in global memory, inside one shared. */
struct search {
    int32_t mode;
    bool by_mass, draws; /* top-p's cut, else that of top-k and min-p; see LIST */
    int32_t top, anchor; /* the likeliest token and its octave */
    float max, cut;      /* its logit; what is below is gone */
    int32_t octave;      /* in which the cut is, from the likeliest's down */
    uint32_t want;       /* top-k; 0: none, or min-p cuts more */
    uint32_t n;          /* tokens in the range; or more, where it was never counted */
    uint32_t before;     /* how many rank above the range, ... */
    u64 part;            /* ... and the mass of those in its octave */
    u64 above, limit;    /* top-p: the mass of the octaves above; the bound */
    u64 first, last;     /* the range, of ranks */
    int64_t from, to;    /* the same as powers, before it is set */
    uint32_t key[2];
    uint32_t count[SM_OCTAVES];
    u64 mass[SM_OCTAVES]; /* without what is below the cut, from begin_mass on */
};

/* Shared memory of a block that looks or decides. */
union room {
    struct {
        /* While the block counts the mass is 2^32 and 32 bits more to a token, which are
         * added in halves: 32-bit sums cannot overflow in a slice. */
        uint32_t count[BINS], low[BINS], high[BINS];
    } slice;
    struct {
        u64 rank[LISTED], before[LISTED];
        u64 above[SM_OCTAVES], start[SM_OCTAVES];
    } list;
};

/* A whole row in global memory, read by one block. */
struct whole {
    const float *x;
    int n; /* a multiple of 4 */
};

static __device__ __forceinline__ int octave_of(const struct search *s, float x)
{
    return s->anchor - sm_octave(sm_power(x));
}

static __device__ __forceinline__ u64 mass_of(float x)
{
    return sm_mass(sm_power(x));
}

/* The range from the octave down to a bin of it: to be set. Few are listed with all that
 * ranks above them, else the octave is counted. One thread. */
static __device__ void aim(struct search *s, uint32_t n)
{
    s->n = n;
    s->part = 0;
    s->mode = n <= LISTED ? LIST : COUNT;
    s->draws = false;
    s->from = (int64_t)(s->anchor - s->octave) * (1 << 30);
    s->to = INT64_MAX;
    if (s->mode == LIST) {
        s->before = 0;
    } else {
        s->to = s->from + (1 << 30);
    }
}

/* Nothing is left to be found: only to be drawn from what the cut left. One thread. */
static __device__ void aim_at_nothing(struct search *s)
{
    s->mode = LIST;
    s->draws = true;
    s->want = s->n = 0;
    s->first = rank_of(s->cut, ID_MASK) + 1;
    s->last = 0;
    s->from = s->to = 0;
}

/* s->from, to as a range of ranks, not below the cut. */
static __device__ APART void set_range(struct search *s)
{
    __syncthreads();
    if (s->from == s->to) {
        return;
    }
    if (threadIdx.x < 2) {
        s->key[threadIdx.x] = first_key(threadIdx.x == 0 ? s->from : s->to);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        const u64 cut = rank_of(s->cut, ID_MASK);
        s->first = s->to == INT64_MAX ? 0 : (u64) ~(s->key[1] - 1) << ID_BITS;
        s->last = (u64)~s->key[0] << ID_BITS | ID_MASK;
        s->last = cut < s->last ? cut : s->last;
    }
    __syncthreads();
}

/* top-p: the octave in which the mass reaches the bound. One thread. */
static __device__ APART void begin_mass(struct search *s, float top_p)
{
    u64 total = 0, above = 0;
#pragma unroll 4
    for (int o = 0; o < SM_OCTAVES; o++) {
        total += sm_shift(s->mass[o], o);
    }
    s->limit = sm_limit(total, top_p);
    uint32_t n = s->count[0];
    int o = 0;
#pragma unroll 1
    while (o < SM_OCTAVES - 1 && above + sm_shift(s->mass[o], o) < s->limit) {
        above += sm_shift(s->mass[o], o);
        n += s->count[++o];
    }
    s->by_mass = true;
    s->octave = o;
    s->above = above;
    aim(s, n);
}

/* The first search of a row, from its octaves. One thread. */
static __device__ void begin(struct search *s, const struct cu_sample_row &r, int used)
{
    int octave = SM_OCTAVES;
    s->cut = -INFINITY;
    s->by_mass = false;
    s->want = 0;
    if (r.log_min_p > -INFINITY) {
        s->cut = SM_ADD(s->max, r.log_min_p);
        s->cut = s->cut < s->max ? s->cut : s->max;
        octave = octave_of(s, s->cut);
        octave = octave < SM_OCTAVES ? octave : SM_OCTAVES;
    }
    /* The k-th largest is lower than min-p's cut when it is in a deeper octave; when it is
     * deeper than all of them, no noise lifts what it cuts off. */
    const uint32_t k = r.top_k > 0 && r.top_k < used ? (uint32_t)r.top_k : 0;
    uint32_t before = 0;
#pragma unroll 2
    for (int o = 0; o < SM_OCTAVES && o <= octave; o++) {
        if ((k > 0 && before + s->count[o] >= k) || o == octave) {
            s->want = k > 0 && before + s->count[o] >= k ? k : 0;
            octave = o;
            break;
        }
        before += s->count[o];
    }
    if (octave < SM_OCTAVES && (s->want > 0 || r.top_p < 1)) {
        s->octave = octave;
        s->before = before;
        aim(s, before + s->count[octave]);
    } else if (r.top_p < 1) {
        begin_mass(s, r.top_p);
    } else {
        aim_at_nothing(s);
    }
}

/* min-p and top-k have left this mass in the octave of their cut. One thread. */
static __device__ APART void go_on(struct search *s, u64 mass, float top_p)
{
    if (top_p >= 1) {
        aim_at_nothing(s);
        return;
    }
    s->mass[s->octave] = mass;
#pragma unroll 1
    for (int o = s->octave + 1; o < SM_OCTAVES; o++) {
        s->mass[o] = 0;
        s->count[o] = 0;
    }
    begin_mass(s, top_p);
}

/* Whether the bound is reached with these more. */
static __device__ __forceinline__ bool reaches(const struct search *s, struct sum v)
{
    return s->by_mass ? s->above + sm_shift(s->part + v.mass, s->octave) >= s->limit
                      : s->want > 0 && s->before + v.count >= s->want;
}

/* ---- too many for a list: one block halves the range ---- */

struct seen {
    struct sum sum;
    u64 least, most;
};

/* The tokens with ranks first..last. */
static __device__ APART struct seen look(const struct whole &w, u64 first, u64 last)
{
    struct seen v = {{0, 0}, ~0ull, 0};
#pragma unroll 4
    for (int q = threadIdx.x; q < w.n / 4; q += blockDim.x) {
        const float4 f = ld_l2_f4(w.x + 4 * q);
        const float each[4] = {f.x, f.y, f.z, f.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u64 rank = rank_of(each[i], (uint32_t)(4 * q + i));
            if (rank >= first && rank <= last) {
                v.sum.mass += mass_of(each[i]);
                v.sum.count++;
                v.least = rank < v.least ? rank : v.least;
                v.most = rank > v.most ? rank : v.most;
            }
        }
    }
    return v;
}

/* The ends of the range to where there are tokens. */
static __device__ void tighten(struct search *s, const struct whole &w, union room *room)
{
    struct seen v = look(w, s->first, s->last);
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        const u64 least = __shfl_xor_sync(ALL, v.least, i);
        const u64 most = __shfl_xor_sync(ALL, v.most, i);
        v.least = least < v.least ? least : v.least;
        v.most = most > v.most ? most : v.most;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        room->list.rank[threadIdx.x / 32] = v.least;
        room->list.before[threadIdx.x / 32] = v.most;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < (int)blockDim.x / 32; i++) {
            const u64 least = room->list.rank[i], most = room->list.before[i];
            v.least = least < v.least ? least : v.least;
            v.most = most > v.most ? most : v.most;
        }
        s->first = v.least;
        s->last = v.most;
    }
    __syncthreads();
}

/* Until few are left or, for top-k, whose ties all stay, only ties. */
static __device__ void narrow(struct search *s, const struct whole &w, struct scratch *t,
                              union room *room)
{
    tighten(s, w, room);
    while (s->n > LISTED && (s->by_mass || s->first >> ID_BITS != s->last >> ID_BITS)) {
        const u64 half = s->first + (s->last - s->first) / 2;
        const u64 mid = s->by_mass ? half : half | ID_MASK;
        struct sum total;
        scan_block(look(w, s->first, mid).sum, t, &total);
        const bool here = reaches(s, total);
        __syncthreads();
        if (threadIdx.x == 0) {
            if (here) {
                s->last = mid;
                s->n = total.count;
            } else {
                s->first = mid + 1;
                s->n -= total.count;
                s->before += total.count;
                s->part += total.mass;
            }
        }
        __syncthreads();
    }
}

/* ---- after COUNT ---- */

/* The bin in which the bound is reached, from all blocks' counts; without one the octave
 * is cut by min-p alone. */
static __device__ void choose_bin(struct search *s, const uint32_t *count, const u64 *mass,
                                  const struct whole &w, float top_p, struct scratch *t,
                                  union room *room)
{
    const int each = (BINS + (int)blockDim.x - 1) / (int)blockDim.x;
    const int begins = threadIdx.x * each;
    struct sum mine = {0, 0}, total;
    for (int b = begins; b < begins + each && b < BINS; b++) {
        const uint2 m = ld_l2_8(&mass[b]);
        mine.mass += (u64)m.y << 32 | m.x;
        mine.count += ld_relaxed(&count[b]);
    }
    const struct sum to = scan_block(mine, t, &total);
    struct sum v = {to.mass - mine.mass, to.count - mine.count};
    const bool found = reaches(s, total), here = reaches(s, to) && !reaches(s, v);
    __syncthreads();
    if (here) {
        for (int b = begins;; b++) {
            const uint2 m = ld_l2_8(&mass[b]);
            const struct sum bin = {(u64)m.y << 32 | m.x, ld_relaxed(&count[b])};
            const struct sum with = {v.mass + bin.mass, v.count + bin.count};
            if (reaches(s, with)) {
                s->from += (int64_t)(BINS - 1 - b) << BIN_SHIFT;
                s->to = s->from + (1 << BIN_SHIFT);
                s->n = bin.count;
                break;
            }
            v = with;
        }
        s->part += v.mass;
        s->before += v.count;
        s->mode = LIST;
        s->draws = s->by_mass || top_p >= 1;
    } else if (!found && threadIdx.x == 0) {
        go_on(s, total.mass, top_p);
    }
    set_range(s);
    if (!found || s->n <= LISTED) {
        return;
    }
    narrow(s, w, t, room);
    const bool ties = s->n > LISTED;
    __syncthreads();
    if (ties) {
        if (threadIdx.x == 0) {
            s->cut = value_at(s->first);
            go_on(s, s->part + s->n * mass_of(s->cut), top_p);
        }
        set_range(s);
    }
}

/* ---- after LIST ---- */

/* Ascending; what is behind n of room is lost. Returns with a barrier. */
static __device__ void sort(u64 *rank, int n)
{
    int size = 2;
    while (size < n) {
        size *= 2;
    }
    for (int i = n + threadIdx.x; i < size; i += blockDim.x) {
        rank[i] = ~0ull;
    }
    for (int k = 2; k <= size; k *= 2) {
        for (int j = k / 2; j > 0; j /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < size / 2; i += blockDim.x) {
                const int a = 2 * i - (i & (j - 1)), b = a + j;
                const u64 at_a = rank[a], at_b = rank[b];
                if ((at_a > at_b) == ((a & k) == 0)) {
                    rank[a] = at_b;
                    rank[b] = at_a;
                }
            }
        }
    }
    __syncthreads();
}

/* How many of the first n listed are not below the cut; the mass of those of them that are
 * in the search's octave. */
static __device__ struct sum above_cut(const struct search *s, const u64 *rank, int n,
                                       struct scratch *t)
{
    struct sum v = {0, 0}, total;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float x = value_at(rank[i]);
        if (x >= s->cut) {
            v.count++;
            v.mass += octave_of(s, x) == s->octave ? mass_of(x) : 0;
        }
    }
    scan_block(v, t, &total);
    return total;
}

/* How many of the first n listed stay by top-p. */
static __device__ int stay(const struct search *s, int n, struct scratch *t, union room *room)
{
    const u64 *rank = room->list.rank;
    const int each = (n + (int)blockDim.x - 1) / (int)blockDim.x;
    const int begins = threadIdx.x * each, ends = begins + each < n ? begins + each : n;
    struct sum mine = {0, 0}, total;
    for (int i = begins; i < ends; i++) {
        mine.mass += mass_of(value_at(rank[i]));
    }
    u64 before = scan_block(mine, t, &total).mass - mine.mass;
    for (int i = begins; i < ends; i++) {
        const float x = value_at(rank[i]);
        room->list.before[i] = before;
        if (i == 0 || octave_of(s, value_at(rank[i - 1])) != octave_of(s, x)) {
            room->list.start[octave_of(s, x)] = before;
        }
        before += mass_of(x);
    }
    if (threadIdx.x == 0) {
        u64 above = 0;
#pragma unroll 2
        for (int o = 0; o <= s->octave; o++) {
            room->list.above[o] = above;
            above += sm_shift(s->mass[o], o);
        }
    }
    __syncthreads();
    struct sum v = {0, 0};
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int o = octave_of(s, value_at(rank[i]));
        if (o > s->octave) {
            continue;
        }
        const u64 part = s->part + room->list.before[i] - room->list.start[o];
        v.count += room->list.above[o] + sm_shift(part, o) < s->limit;
    }
    scan_block(v, t, &total);
    return (int)total.count;
}

/* From the n tokens in the range, which room has in any order: how many of them, once
 * sorted, are drawn from; -1: another search begins. */
static __device__ int choose_listed(struct search *s, int n, float top_p, struct scratch *t,
                                    union room *room)
{
    u64 *rank = room->list.rank;
    if (n == 0) {
        return 0;
    }
    sort(rank, n);
    if (s->by_mass) {
        return stay(s, n, t, room);
    }
    if (threadIdx.x == 0 && s->want > 0 && s->before + (uint32_t)n >= s->want) {
        s->cut = value_at(rank[s->want - s->before - 1]);
    }
    __syncthreads();
    const struct sum kept = above_cut(s, rank, n, t);
    if (top_p >= 1) {
        return (int)kept.count;
    }
    const bool all = s->first == 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        go_on(s, s->part + kept.mass, top_p);
    }
    __syncthreads();
    if (all) {
        return stay(s, (int)kept.count, t, room);
    }
    set_range(s);
    return -1;
}

#endif
