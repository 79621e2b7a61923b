/* Drawing tokens on the device, to the bit as kernels/sample.c does it: edits, mask,
 * temperature, min-p, top-k, top-p, noise. One launch for all rows: PARTS blocks to a
 * row look at a slice each; the last to arrive finds the cut and draws.
 *
 * Everything added is an integer, so that no order matters. A cut is looked for in the
 * one octave of masses that holds it, by digits of the logits' order. */
#include "kernels/cuda/cu.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/sample_math.h"

enum {
    MAX_THREADS = 512,
    MAX_WARPS = MAX_THREADS / 32,
    PARTS = 32,
    RUN = 64,   /* logits whose largest is kept */
    AT_ONCE = 4 /* runs a warp reads before it looks at them */
};
#define ALL 0xffffffffu

typedef unsigned long long u64;

/* What a slice tells. */
struct part {
    float max, score; /* the best draw, where nothing is cut */
    int32_t top, drawn;
    int32_t anchor; /* octave of max */
    uint32_t count[SM_OCTAVES];
    u64 mass[SM_OCTAVES];
};

struct places {
    float *x;       /* [rows][slice * PARTS] */
    float *highest; /* [rows][runs] */
    struct part *part;
    uint32_t *arrived;
    int slice, runs; /* logits to a slice, a multiple of RUN; runs of a row */
};

static __host__ __device__ int slice_of(int used)
{
    return ((used + PARTS - 1) / PARTS + RUN - 1) / RUN * RUN;
}

/* The counters first: nothing else must be zero. The same for any number of rows. */
static struct places places_of(void *work, int used)
{
    struct places p = {};
    p.slice = slice_of(used);
    p.runs = p.slice * PARTS / RUN;
    p.arrived = (uint32_t *)work;
    p.part = (struct part *)(p.arrived + 32);
    p.highest = (float *)(p.part + CU_ROWS * PARTS);
    p.x = p.highest + (size_t)CU_ROWS * p.runs;
    return p;
}

extern "C" size_t cu_sample_work(int used)
{
    const size_t slice = (size_t)slice_of(used) * PARTS;
    return 32 * sizeof(uint32_t) +
           CU_ROWS * (PARTS * sizeof(struct part) + (slice + slice / RUN) * sizeof(float));
}

/* ---- the best of many ---- */

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

/* The block's, in every thread. scratch: one for each warp. */
static __device__ struct best best_of_block(struct best b, struct best *scratch)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        const float score = __shfl_xor_sync(ALL, b.score, i);
        const int id = __shfl_xor_sync(ALL, b.id, i);
        offer(b, score, id);
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        scratch[threadIdx.x / 32] = b;
    }
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x / 32; i++) {
        offer(b, scratch[i].score, scratch[i].id);
    }
    return b;
}

static __device__ __forceinline__ float noise(const struct cu_sample_row &s, int32_t id)
{
    return sm_gumbel(philox_word(s.seed, s.pos, PHILOX_TARGET, (uint32_t)id));
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

/* ---- a slice ---- */

struct slice_of_row {
    const float *logits; /* of the row */
    int lo, n;           /* first id; how many there are */
};

static __device__ __forceinline__ bool allowed(const uint32_t *allow, int32_t id)
{
    return !allow || (allow[id / 32] >> (id % 32) & 1);
}

static __device__ void edit_slice(const struct slice_of_row &w, const struct cu_sample_row &s,
                                  const uint32_t *allow, const struct be_edit *edit, int n,
                                  float *x)
{
    const float temp = sm_temp(s.temp);
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int32_t id = edit[i].id;
        if (id >= w.lo && id < w.lo + w.n && allowed(allow, id)) {
            const struct be_edit e = edit[i];
            x[id - w.lo] =
                sm_scale(sm_edit(w.logits[id], &e, s.repetition, s.frequency, s.presence), temp);
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
#pragma unroll 4
    for (int i = threadIdx.x; i < slice; i += blockDim.x) {
        x[i] = i < w.n && allowed(allow, w.lo + i) ? sm_scale(w.logits[w.lo + i], temp) : -INFINITY;
    }
    __syncthreads();
    edit_slice(w, s, allow, a.edit + s.edit, s.n_edit, x);
    edit_slice(w, s, allow, a.edit + s.over, s.n_over, x);
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
    const float least = SM_ADD(top.score, noise(s, top.id));
    offer(b, least, top.id);
    for (int q = threadIdx.x; q < (w.n + 3) / 4; q += blockDim.x) {
        const float4 v = *(const float4 *)(x + 4 * q);
        const float most = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
        if (SM_ADD(most, SM_GUMBEL_MAX) < b.score || most == -INFINITY) {
            continue;
        }
        uint32_t word[4];
        philox_quad(s.seed, s.pos, PHILOX_TARGET, (uint32_t)(w.lo / 4 + q), word);
        const float each[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (each[i] > -INFINITY && SM_ADD(each[i], sm_gumbel_bound(word[i])) >= b.score) {
                offer(b, SM_ADD(each[i], sm_gumbel(word[i])), w.lo + 4 * q + i);
            }
        }
    }
    return b;
}

/* Counts and masses of the slice's octaves. A mass is 2^32 and 32 bits more, which are
 * added in halves: 32-bit sums cannot overflow in a slice. */
struct octaves {
    uint32_t count[SM_OCTAVES], low[SM_OCTAVES], high[SM_OCTAVES];
};

static __device__ void sum_slice(const float *x, int n, int32_t anchor, bool masses,
                                 struct octaves *o, struct part *out)
{
    for (int i = threadIdx.x; i < SM_OCTAVES; i += blockDim.x) {
        o->count[i] = o->low[i] = o->high[i] = 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int64_t power = sm_power(x[i]);
        const int below = anchor - sm_octave(power);
        if (x[i] > -INFINITY && below < SM_OCTAVES) {
            atomicAdd(&o->count[below], 1u);
            if (masses) {
                const uint32_t rest = (uint32_t)sm_mass(power);
                atomicAdd(&o->low[below], rest & 0xffff);
                atomicAdd(&o->high[below], rest >> 16);
            }
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < SM_OCTAVES; i += blockDim.x) {
        out->count[i] = o->count[i];
        out->mass[i] = ((u64)o->count[i] << 32) + ((u64)o->high[i] << 16) + o->low[i];
    }
}

/* x and its runs' largest to global memory, for the block that finishes the row. */
static __device__ void keep_slice(const float *x, int slice, float *to, float *highest)
{
    for (int i = threadIdx.x; i < slice / 4; i += blockDim.x) {
        ((float4 *)to)[i] = ((const float4 *)x)[i];
    }
    for (int r = threadIdx.x / 32; r < slice / RUN; r += blockDim.x / 32) {
        float m = fmaxf(x[r * RUN + threadIdx.x % 32], x[r * RUN + 32 + threadIdx.x % 32]);
#pragma unroll
        for (int i = 16; i > 0; i /= 2) {
            m = fmaxf(m, __shfl_xor_sync(ALL, m, i));
        }
        if (threadIdx.x % 32 == 0) {
            highest[r] = m;
        }
    }
}

/* ---- the cut of a whole row; one block ---- */

struct cut {
    /* the row */
    const float *x;
    int32_t top, anchor;
    float max;
    int runs;
    /* what survives, as struct sample_kept has it */
    float least;
    int32_t last;
    /* runs to be looked at */
    const float *highest; /* shared */
    int *list;            /* shared */
    /* by octave, then by digit; shared */
    u64 *mass;
    uint32_t *count;
    struct found *found;
    struct best *scratch;
};

/* A search for where a sum passes a bound, inside one octave. Shared. */
struct found {
    int n_list;
    int octave;
    u64 above, limit; /* top-p: mass of the octaves above; the bound */
    u64 part;         /* … of the octave's own tokens that rank above */
    uint32_t before;  /* top-k and ties: how many rank above */
    uint32_t want;    /* … and how many there may be */
    uint32_t prefix;  /* of the value searched */
    uint32_t ties;    /* how many tokens have all of it */
};

/* Lists the runs that hold a token of this octave or above it, or, with value, one not
 * below that. */
static __device__ void list_runs(const struct cut &c, int octave, bool value, float least)
{
    if (threadIdx.x == 0) {
        c.found->n_list = 0;
    }
    __syncthreads();
    for (int r = threadIdx.x; r < c.runs; r += blockDim.x) {
        const float h = c.highest[r];
        const bool in =
            value ? h >= least : c.anchor - sm_octave(sm_power(h)) <= octave && h >= c.least;
        if (in && h > -INFINITY) {
            c.list[atomicAdd(&c.found->n_list, 1)] = r;
        }
    }
    __syncthreads();
}

static __device__ __forceinline__ uint32_t key_of(float x)
{
    const uint32_t u = __float_as_uint(x);
    return u >> 31 ? ~u : u | 0x80000000u;
}

static __device__ __forceinline__ float value_of(uint32_t key)
{
    return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

enum search { BY_COUNT, BY_MASS, BY_ID };

/* Whether a token takes part in the pass over the digit at `shift`, and its digit. */
template <int HOW>
static __device__ __forceinline__ bool digit_of(const struct cut &c, float x, int32_t id, int shift,
                                                uint32_t value, uint32_t *digit)
{
    const uint32_t v = HOW == BY_ID ? (uint32_t)id : key_of(x);
    *digit = v >> shift & 255;
    const bool same = shift >= 24 || v >> (shift + 8) == c.found->prefix;
    if (HOW == BY_ID) {
        return same && key_of(x) == value;
    }
    return same && x >= c.least && x > -INFINITY &&
           c.anchor - sm_octave(sm_power(x)) == c.found->octave;
}

/* One pass: counts and masses by digit, over the listed runs. */
template <int HOW>
static __device__ void count_digits(const struct cut &c, int shift, uint32_t value)
{
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        c.count[i] = 0;
        c.mass[i] = 0;
    }
    __syncthreads();
    const int n = c.found->n_list, lane = threadIdx.x % 32;
    for (int at = threadIdx.x / 32 * AT_ONCE; at < n; at += (int)blockDim.x / 32 * AT_ONCE) {
        float x[AT_ONCE][2];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            const float *p = c.x + c.list[at + k < n ? at + k : at] * RUN;
            x[k][0] = ld_l2_f32(p + lane);
            x[k][1] = ld_l2_f32(p + lane + 32);
        }
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            for (int h = 0; h < 2 && at + k < n; h++) {
                uint32_t digit = 0;
                const int32_t id = c.list[at + k] * RUN + h * 32 + lane;
                if (digit_of<HOW>(c, x[k][h], id, shift, value, &digit)) {
                    atomicAdd(&c.count[digit], 1u);
                    if (HOW == BY_MASS) {
                        atomicAdd(&c.mass[digit], (u64)sm_mass(sm_power(x[k][h])));
                    }
                }
            }
        }
    }
    __syncthreads();
}

/* Whether with these more the bound is reached. */
template <int HOW>
static __device__ __forceinline__ bool reaches(const struct found *f, uint32_t count, u64 mass)
{
    return HOW == BY_MASS ? f->above + sm_shift(f->part + mass, f->octave) >= f->limit
                          : f->before + count >= f->want;
}

/* The digit at which the bound is reached; the first warp. From the largest digit down,
 * ids from the smallest up; eight digits to a lane. */
template <int HOW> static __device__ void choose_digit(const struct cut &c)
{
    struct found *f = c.found;
    const int lane = threadIdx.x;
    uint32_t count = 0;
    u64 mass = 0;
    for (int i = 0; i < 8; i++) {
        const int d = HOW == BY_ID ? 8 * lane + i : 255 - 8 * lane - i;
        count += c.count[d];
        mass += c.mass[d];
    }
    uint32_t count_to = count;
    u64 mass_to = mass;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
        const uint32_t n = __shfl_up_sync(ALL, count_to, i);
        const u64 m = __shfl_up_sync(ALL, mass_to, i);
        count_to += lane >= i ? n : 0;
        mass_to += lane >= i ? m : 0;
    }
    const bool mine =
        reaches<HOW>(f, count_to, mass_to) && !reaches<HOW>(f, count_to - count, mass_to - mass);
    const unsigned who = __ballot_sync(ALL, mine);
    __syncwarp();
    if (lane != __ffs((int)who) - 1) {
        return;
    }
    count = count_to - count;
    mass = mass_to - mass;
    int d = 0;
    for (int i = 0; i < 8; i++) {
        d = HOW == BY_ID ? 8 * lane + i : 255 - 8 * lane - i;
        if (reaches<HOW>(f, count + c.count[d], mass + c.mass[d])) {
            break;
        }
        count += c.count[d];
        mass += c.mass[d];
    }
    f->before += count;
    f->part += mass;
    f->prefix = f->prefix << 8 | (uint32_t)d;
    f->ties = c.count[d];
}

/* The key (or id) of the token at which the bound is reached. */
template <int HOW> static __device__ uint32_t search(const struct cut &c, uint32_t value)
{
    if (threadIdx.x == 0) {
        c.found->prefix = 0;
        c.found->before = HOW == BY_ID ? 0 : c.found->before;
        c.found->part = 0;
    }
    __syncthreads();
    for (int shift = 24; shift >= 0; shift -= 8) {
        count_digits<HOW>(c, shift, value);
        if (threadIdx.x < 32) {
            choose_digit<HOW>(c);
        }
        __syncthreads();
    }
    return c.found->prefix;
}

/* The octaves of all slices on the row's scale: c.count, c.mass. */
static __device__ void join_octaves(const struct cut &c, const struct part *part)
{
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        c.count[i] = 0;
        c.mass[i] = 0;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < PARTS * SM_OCTAVES; i += blockDim.x) {
        const struct part *p = part + i / SM_OCTAVES;
        const int o = i % SM_OCTAVES;
        if ((int32_t)ld_relaxed(&p->top) < 0) {
            continue;
        }
        const int below = o + c.anchor - (int32_t)ld_relaxed(&p->anchor);
        if (below < SM_OCTAVES) {
            const uint2 m = ld_l2_8(&p->mass[o]);
            atomicAdd(&c.count[below], ld_relaxed(&p->count[o]));
            atomicAdd(&c.mass[below], (u64)m.y << 32 | m.x);
        }
    }
    __syncthreads();
}

/* The k-th largest value, or -inf when it is too deep to matter. */
static __device__ float kth_largest(const struct cut &c, int k)
{
    if (threadIdx.x == 0) {
        struct found *f = c.found;
        uint32_t before = 0;
        int o = 0;
        while (o < SM_OCTAVES && before + c.count[o] < (uint32_t)k) {
            before += c.count[o++];
        }
        f->octave = o;
        f->before = before;
        f->want = (uint32_t)k;
    }
    __syncthreads();
    if (c.found->octave == SM_OCTAVES) {
        return -INFINITY;
    }
    list_runs(c, c.found->octave, false, 0);
    return value_of(search<BY_COUNT>(c, 0));
}

/* Mass in the octave of c.least of what is not below it, into the joined octaves; what
 * lies deeper has none. */
static __device__ void trim_octaves(const struct cut &c)
{
    const int octave = c.anchor - sm_octave(sm_power(c.least));
    if (!(c.least > -INFINITY) || octave >= SM_OCTAVES) {
        return;
    }
    list_runs(c, octave, false, 0);
    for (int o = octave + threadIdx.x; o < SM_OCTAVES; o += blockDim.x) {
        c.mass[o] = 0;
    }
    __syncthreads();
    u64 sum = 0;
    const int n = c.found->n_list * RUN;
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const float x = ld_l2_f32(c.x + c.list[i / RUN] * RUN + i % RUN);
        const int64_t power = sm_power(x);
        if (x >= c.least && c.anchor - sm_octave(power) == octave) {
            sum += sm_mass(power);
        }
    }
    if (sum) {
        atomicAdd(&c.mass[octave], sum);
    }
    __syncthreads();
}

/* Moves c's cut up to where the mass above reaches top_p of all. */
static __device__ void cut_mass(struct cut &c, float top_p)
{
    struct found *f = c.found;
    trim_octaves(c);
    if (threadIdx.x == 0) {
        u64 total = 0, above = 0;
        for (int o = 0; o < SM_OCTAVES; o++) {
            total += sm_shift(c.mass[o], o);
        }
        f->limit = sm_limit(total, top_p);
        int o = 0;
        while (o < SM_OCTAVES - 1 && above + sm_shift(c.mass[o], o) < f->limit) {
            above += sm_shift(c.mass[o], o);
            o++;
        }
        f->octave = o;
        f->above = above;
    }
    __syncthreads();
    list_runs(c, f->octave, false, 0);
    const uint32_t key = search<BY_MASS>(c, 0);
    const float value = value_of(key);
    /* Of the ties as many as there is room for, the lowest ids. */
    if (threadIdx.x == 0) {
        const u64 mass = sm_mass(sm_power(value));
        uint32_t lo = 1, hi = f->ties;
        while (lo < hi) {
            const uint32_t mid = (lo + hi) / 2;
            if (f->above + sm_shift(f->part + mid * mass, f->octave) >= f->limit) {
                hi = mid;
            } else {
                lo = mid + 1;
            }
        }
        f->want = lo;
    }
    __syncthreads();
    c.least = value;
    if (f->want < f->ties) {
        c.last = (int32_t)search<BY_ID>(c, key);
    }
}

/* The best draw among the survivors. */
static __device__ struct best draw_kept(const struct cut &c, const struct cu_sample_row &s)
{
    list_runs(c, 0, true, c.least);
    struct best b = {0, -1};
    offer(b, SM_ADD(c.max, noise(s, c.top)), c.top);
    const int n = c.found->n_list * RUN;
#pragma unroll 4
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        const int32_t id = c.list[i / RUN] * RUN + i % RUN;
        const float x = ld_l2_f32(c.x + id);
        const bool in = x > c.least || (x == c.least && id <= c.last && x > -INFINITY);
        if (in && SM_ADD(x, SM_GUMBEL_MAX) >= b.score) {
            offer(b, SM_ADD(x, noise(s, id)), id);
        }
    }
    return best_of_block(b, c.scratch);
}

/* ---- the kernel ---- */

/* logits [rows][ld], a slice to a block; x and the slices' parts go to work and come back
 * from L2 for the last block of the row. A row costs one read of its logits and, where
 * it is cut, a write and some reads of the runs that matter. */
static __global__ void __launch_bounds__(MAX_THREADS)
    sample_kernel(const struct cu_sample a, const struct places p)
{
    __shared__ struct best scratch[MAX_WARPS];
    __shared__ struct octaves octaves;
    __shared__ u64 mass[256];
    __shared__ uint32_t count[256];
    __shared__ struct found found;
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
    w.n = w.n > 0 ? w.n : 0;
    load_slice(w, s, a, p.slice, x);

    struct best top = {-INFINITY, -1};
    for (int i = threadIdx.x; i < w.n; i += blockDim.x) {
        offer(top, x[i], x[i] > -INFINITY ? w.lo + i : -1);
    }
    top = best_of_block(top, scratch);
    struct part *const parts = p.part + (size_t)row * PARTS;
    struct part *const out = parts + blockIdx.x;
    struct best drawn = top;
    if (!cuts && !is_greedy(s)) {
        drawn = best_of_block(draw_slice(w, s, x, top), scratch);
    }
    const int32_t anchor = sm_octave(sm_power(top.score));
    if (cuts) {
        sum_slice(x, w.n, anchor, s.top_p < 1, &octaves, out);
        keep_slice(x, p.slice, p.x + (size_t)row * p.slice * PARTS + w.lo,
                   p.highest + (size_t)row * p.runs + w.lo / RUN);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        out->max = top.score;
        out->top = top.id;
        out->score = drawn.score;
        out->drawn = drawn.id;
        out->anchor = anchor;
        is_last = atom_add_acq_rel(&p.arrived[row], 1) == PARTS - 1;
    }
    __syncthreads();
    if (!is_last) {
        return;
    }

    top.id = drawn.id = -1;
    for (int i = 0; i < PARTS; i++) {
        offer(top, __uint_as_float(ld_relaxed(&parts[i].max)), (int32_t)ld_relaxed(&parts[i].top));
        offer(drawn, __uint_as_float(ld_relaxed(&parts[i].score)),
              (int32_t)ld_relaxed(&parts[i].drawn));
    }
    if (cuts && top.id >= 0) {
        struct cut c = {};
        c.x = p.x + (size_t)row * p.slice * PARTS;
        c.top = top.id;
        c.max = top.score;
        c.anchor = sm_octave(sm_power(top.score));
        c.runs = p.runs;
        c.least = -INFINITY;
        c.last = INT32_MAX;
        c.highest = x;
        c.list = (int *)x + p.runs;
        c.mass = mass;
        c.count = count;
        c.found = &found;
        c.scratch = scratch;
        for (int r = threadIdx.x; r < p.runs; r += blockDim.x) {
            x[r] = ld_l2_f32(p.highest + (size_t)row * p.runs + r);
        }
        join_octaves(c, parts);
        float kth = -INFINITY;
        if (s.top_k > 0 && s.top_k < a.used) {
            kth = kth_largest(c, s.top_k);
        }
        if (s.log_min_p > -INFINITY) {
            c.least = SM_ADD(c.max, s.log_min_p);
            c.least = c.least < c.max ? c.least : c.max;
        }
        c.least = kth > c.least ? kth : c.least;
        if (s.top_p < 1) {
            join_octaves(c, parts);
            cut_mass(c, s.top_p);
        }
        drawn = draw_kept(c, s);
    }
    if (threadIdx.x == 0) {
        a.ids[row] = top.id < 0 ? -1 : drawn.id;
        p.arrived[row] = 0;
    }
}

extern "C" int cu_sample(struct cu_ctx *c, const struct cu_sample *s)
{
    if (s->used < 1 || s->used > BE_MAX_IDS || s->max_n < 1 || s->max_n > CU_ROWS) {
        return cudaErrorInvalidValue;
    }
    const struct places p = places_of(s->work, s->used);
    /* A small vocabulary has no work for many threads. */
    const int wide = p.slice / 4 / 32 * 32;
    const unsigned threads = wide > MAX_THREADS ? (unsigned)MAX_THREADS
                             : wide < 64        ? 64u
                                                : (unsigned)wide;
    const size_t slice = (size_t)p.slice * sizeof(float);
    const size_t lists = (size_t)p.runs * 2 * sizeof(float);
    return cu_launch(c, "sample", sample_kernel, dim3(PARTS, (unsigned)s->max_n), dim3(threads),
                     slice > lists ? slice : lists, *s, p);
}
