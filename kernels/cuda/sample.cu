/* Drawing tokens on the device, to the bit as kernels/sample.c does it: edits, mask,
 * temperature, min-p, top-k, top-p, noise.
 *
 * PARTS blocks to a row look at a slice each, and the last to arrive decides what they
 * look for in the next launch (sample_cut.cuh): one launch where nothing is cut, up to
 * two more for each of the cuts; where few tokens are likely the second launch is the
 * last with work. A row costs a read of its logits and, where it is cut, a write and a
 * read of them for each further launch, all in L2. */
#include "kernels/cuda/sample_cut.cuh"

#include "kernels/cuda/launch.cuh"

enum {
    PARTS = 64,
    LEAST_SLICE = 256,
    COLUMNS = 8 /* of a block's sums by octave: lanes rarely meet in one */
};

/* What a slice tells. */
struct part {
    float max, score; /* score: of the best draw, where there is one */
    int32_t top, drawn;
    int32_t anchor; /* octave of max */
    uint32_t count[SM_OCTAVES];
    u64 mass[SM_OCTAVES];
};

/* All [CU_ROWS]. */
struct places {
    uint32_t *arrived, *listed;
    float *x; /* [slice * PARTS] */
    struct search *search;
    struct part *part; /* [PARTS] */
    u64 *list;         /* [LISTED] */
    u64 *mass;         /* [2][BINS]: top-k's, top-p's */
    uint32_t *count;   /* the same */
    int slice, parts;  /* logits to a slice, a multiple of 64; slices of a row */
};

static int slice_of(int used)
{
    const int slice = ((used + PARTS - 1) / PARTS + 63) / 64 * 64;
    return slice > LEAST_SLICE ? slice : LEAST_SLICE;
}

/* The counters first: nothing else must be zero. The same for any number of rows. */
static struct places places_of(void *work, int used)
{
    struct places p = {};
    p.slice = slice_of(used);
    p.parts = (used + p.slice - 1) / p.slice;
    p.arrived = (uint32_t *)work;
    p.listed = p.arrived + 32;
    p.x = (float *)(p.listed + 32);
    p.search = (struct search *)(p.x + (size_t)CU_ROWS * p.slice * PARTS);
    p.part = (struct part *)(p.search + CU_ROWS);
    p.list = (u64 *)(p.part + CU_ROWS * PARTS);
    p.mass = p.list + CU_ROWS * LISTED;
    p.count = (uint32_t *)(p.mass + CU_ROWS * 2 * BINS);
    return p;
}

extern "C" size_t cu_sample_work(int used)
{
    return 64 * sizeof(uint32_t) +
           CU_ROWS * (sizeof(struct search) + PARTS * sizeof(struct part) +
                      2 * BINS * (sizeof(u64) + sizeof(uint32_t)) + LISTED * sizeof(u64) +
                      (size_t)slice_of(used) * PARTS * sizeof(float));
}

extern "C" int cu_sample_looks(const struct be_sample *s, int used)
{
    if (s->temp < SM_GREEDY_BELOW) {
        return 0;
    }
    const bool k = s->top_k > 0 && s->top_k < used, first = k || s->min_p > 0;
    return s->top_p < 1 ? (first ? 4 : 2) : k ? 2 : first ? 1 : 0;
}

/* ---- noise ---- */

static __device__ APART float noise_of(uint32_t word)
{
    return sm_gumbel(word);
}

static __device__ APART float noise_at(uint64_t seed, uint32_t pos, uint32_t id)
{
    return sm_gumbel(philox_word(seed, pos, PHILOX_TARGET, id));
}

static __device__ __forceinline__ float noise(const struct cu_sample_row &s, int32_t id)
{
    return noise_at(s.seed, s.pos, (uint32_t)id);
}

static __device__ __forceinline__ bool is_greedy(const struct cu_sample_row &s)
{
    return s.temp < SM_GREEDY_BELOW;
}

static __device__ __forceinline__ bool is_cut(const struct cu_sample_row &s, int used)
{
    return !is_greedy(s) &&
           (s.top_p < 1 || (s.top_k > 0 && s.top_k < used) || s.log_min_p > -INFINITY);
}

/* The best with those of four tokens whose bit is set in `in`. */
static __device__ __forceinline__ void draw_quad(const struct cu_sample_row &s, uint32_t id,
                                                 const float *x, unsigned in, struct best &b)
{
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        most = in >> i & 1 ? fmaxf(most, x[i]) : most;
    }
    if (most == -INFINITY || SM_ADD(most, SM_GUMBEL_MAX) < b.score) {
        return;
    }
    uint32_t word[4];
    philox_quad(s.seed, s.pos, PHILOX_TARGET, id / 4, word);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if ((in >> i & 1) && x[i] > -INFINITY &&
            SM_ADD(x[i], sm_gumbel_bound(word[i])) >= b.score) {
            offer(b, SM_ADD(x[i], noise_of(word[i])), (int32_t)id + i);
        }
    }
}

/* ---- the first look ---- */

struct slice_of_row {
    const float *logits; /* of the row */
    int lo, n;           /* first id; how many there are */
};

static __device__ __forceinline__ bool allowed(const uint32_t *allow, int32_t id)
{
    return !allow || (allow[id / 32] >> (id % 32) & 1);
}

static __device__ APART float edited(float l, const struct be_edit *e, float repetition,
                                     float frequency, float presence, float temp)
{
    return sm_scale(sm_edit(l, e, repetition, frequency, presence), temp);
}

static __device__ void edit_slice(const struct slice_of_row &w, const struct cu_sample_row &s,
                                  const uint32_t *allow, const struct be_edit *edit, int n,
                                  float *x)
{
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int32_t id = edit[i].id;
        if (id >= w.lo && id < w.lo + w.n && allowed(allow, id)) {
            x[id - w.lo] = edited(w.logits[id], &edit[i], s.repetition, s.frequency, s.presence,
                                  sm_temp(s.temp));
        }
    }
    __syncthreads();
}

/* The slice as the row's settings leave it, in shared memory; -inf past the end. */
static __device__ void load_slice(const struct slice_of_row &w, const struct cu_sample_row &s,
                                  const struct cu_sample &a, int slice, float *x)
{
    const uint32_t *allow = s.allow < 0 ? NULL : a.mask + s.allow;
    const float temp = sm_temp(s.temp);
#pragma unroll 8
    for (int i = threadIdx.x; i < slice; i += blockDim.x) {
        x[i] = i < w.n && allowed(allow, w.lo + i) ? sm_scale(w.logits[w.lo + i], temp) : -INFINITY;
    }
    __syncthreads();
    if (s.n_edit > 0) {
        edit_slice(w, s, allow, a.edit + s.edit, s.n_edit, x);
    }
    if (s.n_over > 0) {
        edit_slice(w, s, allow, a.edit + s.over, s.n_over, x);
    }
}

/* The best draw of a slice in which nothing is cut. */
static __device__ struct best draw_slice(const struct slice_of_row &w,
                                         const struct cu_sample_row &s, const float *x,
                                         struct best top)
{
    struct best b = {0, -1};
    if (top.id < 0) {
        return b;
    }
    offer(b, SM_ADD(top.score, noise(s, top.id)), top.id);
    for (int q = threadIdx.x; q < (w.n + 3) / 4; q += blockDim.x) {
        const float4 v = *(const float4 *)(x + 4 * q);
        const float each[4] = {v.x, v.y, v.z, v.w};
        draw_quad(s, (uint32_t)(w.lo + 4 * q), each, 15, b);
    }
    return b;
}

/* Counts and masses of the slice's octaves; a mass as union room has it. */
struct octaves {
    uint32_t count[SM_OCTAVES * COLUMNS], low[SM_OCTAVES * COLUMNS], high[SM_OCTAVES * COLUMNS];
};

static __device__ void sum_slice(const float *x, int n, int32_t anchor, struct octaves *o,
                                 struct part *out)
{
    for (int i = threadIdx.x; i < SM_OCTAVES * COLUMNS; i += blockDim.x) {
        o->count[i] = o->low[i] = o->high[i] = 0;
    }
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int64_t power = sm_power(x[i]);
        const int below = anchor - sm_octave(power);
        if (x[i] > -INFINITY && below < SM_OCTAVES) {
            const int at = below * COLUMNS + threadIdx.x % COLUMNS;
            const uint32_t rest = (uint32_t)sm_mass(power);
            atomicAdd(&o->count[at], 1u);
            atomicAdd(&o->low[at], rest & 0xffff);
            atomicAdd(&o->high[at], rest >> 16);
        }
    }
    __syncthreads();
    /* blockDim is whole warps, so that a warp's lanes leave the loop together. */
    for (int i = threadIdx.x; i < SM_OCTAVES * COLUMNS; i += blockDim.x) {
        uint32_t count = o->count[i], low = o->low[i], high = o->high[i];
#pragma unroll
        for (int d = COLUMNS / 2; d > 0; d /= 2) {
            count += __shfl_xor_sync(ALL, count, d);
            low += __shfl_xor_sync(ALL, low, d);
            high += __shfl_xor_sync(ALL, high, d);
        }
        if (i % COLUMNS == 0) {
            out->count[i / COLUMNS] = count;
            out->mass[i / COLUMNS] = ((u64)count << 32) + ((u64)high << 16) + low;
        }
    }
}

/* The best of all parts by their tops or draws; the first warp, in all its lanes. */
static __device__ struct best best_of_parts(const struct part *part, int n, bool drawn)
{
    struct best b = {0, -1};
#pragma unroll
    for (int k = 0; k < PARTS / 32; k++) {
        const int i = threadIdx.x + 32 * k;
        if (i < n) {
            const struct part *p = part + i;
            const float score = __uint_as_float(ld_relaxed(drawn ? &p->score : &p->max));
            offer(b, score, (int32_t)ld_relaxed(drawn ? &p->drawn : &p->top));
        }
    }
    best_of_warp(b);
    return b;
}

/* The octaves of all slices on the row's scale. Threads in groups of one to an octave add
 * some slices each. */
static __device__ void join_octaves(struct search *s, const struct part *part, int n,
                                    union room *room)
{
    uint32_t *count = room->slice.count;
    u64 *mass = (u64 *)room->slice.low;
    const int groups = (int)blockDim.x / SM_OCTAVES, group = threadIdx.x / SM_OCTAVES;
    const int o = threadIdx.x % SM_OCTAVES;
    struct sum v = {0, 0};
#pragma unroll 4
    for (int i = group < groups ? group : n; i < n; i += groups) {
        const struct part *p = part + i;
        const int at = o - (s->anchor - (int32_t)ld_relaxed(&p->anchor));
        if ((int32_t)ld_relaxed(&p->top) >= 0 && at >= 0) {
            const uint2 m = ld_l2_8(&p->mass[at]);
            v.mass += (u64)m.y << 32 | m.x;
            v.count += ld_relaxed(&p->count[at]);
        }
    }
    __syncthreads();
    if (group < groups) {
        count[threadIdx.x] = v.count;
        mass[threadIdx.x] = v.mass;
    }
    __syncthreads();
    if (threadIdx.x < SM_OCTAVES) {
        for (int g = 1; g < groups; g++) {
            v.count += count[g * SM_OCTAVES + threadIdx.x];
            v.mass += mass[g * SM_OCTAVES + threadIdx.x];
        }
        s->count[threadIdx.x] = v.count;
        s->mass[threadIdx.x] = v.mass;
    }
    __syncthreads();
}

/* What the next launch looks for. */
static __device__ void plan(struct search *s, const struct cu_sample_row &r, int used,
                            const struct part *part, int n, union room *room)
{
    if (threadIdx.x < 32) {
        const struct best top = best_of_parts(part, n, false);
        if (threadIdx.x == 0) {
            s->top = top.id;
            s->max = top.score;
            s->anchor = sm_octave(sm_power(top.score));
            s->mode = DONE;
            s->from = s->to = 0;
        }
    }
    __syncthreads();
    if (s->top < 0) {
        return;
    }
    join_octaves(s, part, n, room);
    if (threadIdx.x == 0) {
        begin(s, r, used);
    }
    set_range(s);
}

/* ---- a further look ---- */

/* Slice by slice: bins of what is in the range, an octave. */
static __device__ void count_slice(const struct search *s, const float *x, int lo, int n,
                                   union room *room, uint32_t *count, u64 *mass)
{
    uint32_t *const counts = room->slice.count;
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) {
        counts[i] = room->slice.low[i] = room->slice.high[i] = 0;
    }
    __syncthreads();
    float4 next = ld_l2_16_if(x + lo + 4 * threadIdx.x, (int)threadIdx.x < n / 4);
#pragma unroll 1
    for (int q = threadIdx.x; q < n / 4; q += blockDim.x) {
        const float4 v = next;
        const int then = q + (int)blockDim.x;
        next = ld_l2_16_if(x + lo + 4 * then, then < n / 4);
        const float each[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u64 rank = rank_of(each[i], (uint32_t)(lo + 4 * q + i));
            if (rank >= s->first && rank <= s->last) {
                const int64_t power = sm_power(each[i]);
                const int bin = BINS - 1 - ((int)(power >> BIN_SHIFT) & (BINS - 1));
                const uint32_t rest = (uint32_t)sm_mass(power);
                atomicAdd(&counts[bin], 1u);
                atomicAdd(&room->slice.low[bin], rest & 0xffff);
                atomicAdd(&room->slice.high[bin], rest >> 16);
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) {
        const uint32_t c = counts[i];
        if (c > 0) {
            atomicAdd(&count[i], c);
            atomicAdd(&mass[i],
                      ((u64)c << 32) + ((u64)room->slice.high[i] << 16) + room->slice.low[i]);
        }
    }
}

/* What is in the range goes to the list; the best draw of what ranks above it. */
static __device__ struct best list_slice(const struct search *s, const struct cu_sample_row &r,
                                         const float *x, int lo, int n, uint32_t *listed, u64 *list)
{
    struct best b = {0, -1};
    if (s->draws && rank_of(s->max, (uint32_t)s->top) < s->first) {
        offer(b, SM_ADD(s->max, noise(r, s->top)), s->top);
    }
    float4 next = ld_l2_16_if(x + lo + 4 * threadIdx.x, (int)threadIdx.x < n / 4);
#pragma unroll 1
    for (int q = threadIdx.x; q < n / 4; q += blockDim.x) {
        const float4 v = next;
        const int then = q + (int)blockDim.x;
        next = ld_l2_16_if(x + lo + 4 * then, then < n / 4);
        const float each[4] = {v.x, v.y, v.z, v.w};
        unsigned in = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const u64 rank = rank_of(each[i], (uint32_t)(lo + 4 * q + i));
            if (rank < s->first) {
                in |= 1u << i;
            } else if (rank <= s->last) {
                const uint32_t at = atomicAdd(listed, 1u);
                if (at < LISTED) {
                    list[at] = rank;
                }
            }
        }
        if (s->draws) {
            draw_quad(r, (uint32_t)(lo + 4 * q), each, in, b);
        }
    }
    return b;
}

/* The token, from the first n of the list and what the slices drew. */
static __device__ int32_t draw_listed(const struct search *s, const struct cu_sample_row &r, int n,
                                      const struct part *part, int parts, struct scratch *t,
                                      const u64 *rank)
{
    struct best b = {0, -1};
    if (s->draws && threadIdx.x < 32) {
        b = best_of_parts(part, parts, true);
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float x = value_at(rank[i]);
        if (b.id < 0 || SM_ADD(x, SM_GUMBEL_MAX) >= b.score) {
            offer(b, SM_ADD(x, noise(r, id_at(rank[i]))), id_at(rank[i]));
        }
    }
    return best_of_block(b, t).id;
}

/* Decides on the list; -1: not drawn yet. */
static __device__ int32_t end_list(struct search *s, const struct cu_sample_row &r,
                                   const struct places &p, int row, struct scratch *t,
                                   union room *room)
{
    const uint32_t listed = ld_relaxed(&p.listed[row]);
    const int n = listed < LISTED ? (int)listed : LISTED;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const uint2 rank = ld_l2_8(p.list + (size_t)row * LISTED + i);
        room->list.rank[i] = (u64)rank.y << 32 | rank.x;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        p.listed[row] = 0;
    }
    const int kept = choose_listed(s, n, r.top_p, t, room);
    if (kept < 0) {
        return -1;
    }
    return draw_listed(s, r, kept, p.part + (size_t)row * PARTS, p.parts, t, room->list.rank);
}

/* ---- the kernels ---- */

/* Whether this block is the row's last; what all wrote is seen then. */
static __device__ bool arrive(const struct places &p, int row, bool *is_last)
{
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        *is_last =
            atom_inc_acq_rel(&p.arrived[row], (uint32_t)p.parts - 1) == (uint32_t)p.parts - 1;
    }
    __syncthreads();
    return *is_last;
}

enum { SEARCH_WORDS = sizeof(struct search) / sizeof(uint32_t) };

static __device__ void load_search(struct search *shared, const struct search *from)
{
    for (int i = threadIdx.x; i < SEARCH_WORDS; i += blockDim.x) {
        ((uint32_t *)shared)[i] = ld_relaxed((const uint32_t *)from + i);
    }
    __syncthreads();
}

static __device__ void store_search(struct search *to, const struct search *shared)
{
    __syncthreads();
    for (int i = threadIdx.x; i < SEARCH_WORDS; i += blockDim.x) {
        ((uint32_t *)to)[i] = ((const uint32_t *)shared)[i];
    }
}

/* logits [rows][ld], a slice to a block. Rows that nothing cuts are drawn here; of others
 * x and the octaves' counts and masses are left in work. */
static __global__ void __launch_bounds__(MAX_THREADS, 2)
    sample_kernel(const struct cu_sample a, const struct places p)
{
    __shared__ struct scratch scratch;
    __shared__ struct octaves octaves;
    __shared__ union room room;
    __shared__ struct search search;
    __shared__ bool is_last;
    float *x = (float *)cu_smem();
    const int row = blockIdx.y;
    pdl_wait();
    pdl_launch();
    if (row >= *a.n) {
        return;
    }
    const struct cu_sample_row s = a.row[row];
    const bool cuts = is_cut(s, a.used);
    struct slice_of_row w = {a.logits + (size_t)row * a.ld, (int)blockIdx.x * p.slice, 0};
    w.n = a.used - w.lo < p.slice ? a.used - w.lo : p.slice;
    load_slice(w, s, a, p.slice, x);

    struct best top = {-INFINITY, -1};
#pragma unroll 8
    for (int i = threadIdx.x; i < w.n; i += blockDim.x) {
        offer(top, x[i], x[i] > -INFINITY ? w.lo + i : -1);
    }
    top = best_of_block(top, &scratch);
    struct part *const parts = p.part + (size_t)row * PARTS;
    struct part *const out = parts + blockIdx.x;
    struct best drawn = top;
    if (!cuts && !is_greedy(s)) {
        drawn = best_of_block(draw_slice(w, s, x, top), &scratch);
    }
    const int32_t anchor = sm_octave(sm_power(top.score));
    if (cuts) {
        float4 *const to = (float4 *)(p.x + (size_t)row * p.slice * PARTS + w.lo);
        for (int i = threadIdx.x; i < p.slice / 4; i += blockDim.x) {
            to[i] = ((const float4 *)x)[i];
        }
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < 2 * BINS;
             i += p.parts * blockDim.x) {
            p.count[row * 2 * BINS + i] = 0;
            p.mass[row * 2 * BINS + i] = 0;
        }
        sum_slice(x, w.n, anchor, &octaves, out);
    }
    if (threadIdx.x == 0) {
        out->max = top.score;
        out->top = top.id;
        out->score = drawn.score;
        out->drawn = drawn.id;
        out->anchor = anchor;
    }
    if (!arrive(p, row, &is_last)) {
        return;
    }
    if (cuts) {
        plan(&search, s, a.used, parts, p.parts, &room);
        store_search(p.search + row, &search);
        if (search.top < 0 && threadIdx.x == 0) {
            a.ids[row] = -1;
        }
    } else if (threadIdx.x < 32) {
        const int32_t id = best_of_parts(parts, p.parts, true).id;
        if (threadIdx.x == 0) {
            a.ids[row] = id;
            p.search[row].mode = DONE;
        }
    }
}

/* One more look at the rows that are not drawn yet. */
static __global__ void __launch_bounds__(MAX_THREADS, 2)
    look_kernel(const struct cu_sample a, const struct places p)
{
    __shared__ struct scratch scratch;
    __shared__ union room room;
    __shared__ struct search search;
    __shared__ bool is_last;
    const int row = blockIdx.y;
    pdl_wait();
    pdl_launch();
    if (row >= *a.n || ld_relaxed(&p.search[row].mode) == DONE) {
        return;
    }
    const struct cu_sample_row s = a.row[row];
    load_search(&search, p.search + row);
    const float *const x = p.x + (size_t)row * p.slice * PARTS;
    const int lo = (int)blockIdx.x * p.slice;
    const int bins = (row * 2 + (search.by_mass ? 1 : 0)) * BINS;
    struct part *const parts = p.part + (size_t)row * PARTS;
    const bool counts = search.mode == COUNT;
    if (counts) {
        count_slice(&search, x, lo, p.slice, &room, p.count + bins, p.mass + bins);
    } else {
        struct best b =
            list_slice(&search, s, x, lo, p.slice, p.listed + row, p.list + (size_t)row * LISTED);
        if (search.draws) {
            b = best_of_block(b, &scratch);
        }
        if (threadIdx.x == 0) {
            parts[blockIdx.x].score = b.score;
            parts[blockIdx.x].drawn = b.id;
        }
    }
    if (!arrive(p, row, &is_last)) {
        return;
    }
    if (counts) {
        const struct whole w = {x, p.slice * p.parts};
        choose_bin(&search, p.count + bins, p.mass + bins, w, s.top_p, &scratch, &room);
    } else {
        const int32_t id = end_list(&search, s, p, row, &scratch, &room);
        if (threadIdx.x == 0 && id >= 0) {
            a.ids[row] = id;
            search.mode = DONE;
        }
    }
    store_search(p.search + row, &search);
}

extern "C" int cu_sample(struct cu_ctx *c, const struct cu_sample *s)
{
    if (s->used < 1 || s->used > BE_MAX_IDS || s->max_n < 1 || s->max_n > CU_ROWS || s->looks < 0 ||
        s->looks > CU_MAX_LOOKS) {
        return cudaErrorInvalidValue;
    }
    const struct places p = places_of(s->work, s->used);
    /* A small vocabulary has no work for many threads. */
    const int wide = (p.slice / 8 + 31) / 32 * 32;
    const dim3 threads(wide < 64 ? 64u : (unsigned)wide);
    const dim3 grid((unsigned)p.parts, (unsigned)s->max_n);
    cudaError_t rc = cu_launch(c, "sample", sample_kernel, grid, threads,
                               (size_t)p.slice * sizeof(float), *s, p);
    for (int i = 0; i < s->looks && rc == cudaSuccess; i++) {
        rc = cu_launch(c, "sample look", look_kernel, grid, threads, 0, *s, p);
    }
    return rc;
}
