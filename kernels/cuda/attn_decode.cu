/*
 * Gated attention of a decode step, in one launch: append, query norm and
 * rotation, flash-decoding, combination, gate.
 *
 * A unit (attn_units.cuh) is what a block reads in a row, with all query heads of a key
 * head and several rows of a span at once as the N side of MMAs, so that keys and
 * values are read once. Units are combined in groups of 8, then the groups, always in
 * ascending order. Partial results stay as accumulators lie in lanes.
 *
 * One block to a multiprocessor: eight warps compute; on sm_90 a ninth fills a ring of
 * slots by bulk copies, as far ahead as it holds, across splits, units and heads, and
 * starts before the kernel's predecessor has ended: rows cached earlier are older. There one
 * tile of queries has a kernel of its own (attn_one.cuh).
 */
#include <stddef.h>

#include "kernels/cuda/attn_packed.cuh"
#include "kernels/cuda/attn_units.cuh"

namespace
{

enum {
    HALF = 64, /* keys of a slot */
    GROUP = AT_GROUP,
    GROUPS_MAX = AT_GROUPS_MAX,
    WARPS = 8,
    WORKERS = WARPS * 32,
    MAX_SLOTS = 12,
    STAGE_LD = 260, /* floats */
    TILE = AT_TILE
};

struct decode_args {
    struct attn_in in;
    const int32_t *count;
    const struct cu_span *span;
    const int32_t *page;
    uint16_t *x;
    float *sum;
    uint32_t *counter;
    /* [head][unit][rows] tiles: sums, and (maximum, sum of weights) of 8 queries */
    float *part, *part_ml;
    float *whole, *whole_ml; /* the same of groups */
    int rows, units, groups;
    int spans, slots;
    enum be_kv kv;
    int slot_bytes, key_bytes, value_bytes; /* of packed formats: of a slot, of tiles */
    int ring_key_bytes, ring_value_bytes;   /* slots of the kernel for one tile, `slots` of each */
    int flight;                             /* of which so many are on their way at once */
    int group, inverse; /* query heads of a key head; 65536 / group, rounded up */
};

/* Of query number q of a job: its row, and its head among the key head's. */
static __device__ __forceinline__ int row_of(const struct decode_args &a, int q)
{
    return q * a.inverse >> 16;
}

static __device__ __forceinline__ int head_of(const struct decode_args &a, int q)
{
    return q - row_of(a, q) * a.group;
}

template <bool BULK, int NT> struct threads {
    /* A warpgroup, of which one lane fills, when the others need its registers. */
    static constexpr int fill = !BULK ? 0 : NT > 1 ? 128 : 32;
    static constexpr int all = WORKERS + fill;
};

template <int NT> struct shape {
    static constexpr int keys = NT > 3 ? 2 : 1; /* 16-key tiles of a warp's scores */
    static constexpr int tiles = NT / keys;     /* query tiles of them */
    static constexpr int key_warps = WARPS / keys;
    static constexpr int sums = (NT + WARPS - 1) / WARPS; /* query tiles whose l it keeps */
    static constexpr int at_once = NT > 1 ? 3 : 1;        /* rows that it prepares */
};

/* What a block has behind the ring. */
template <int NT> struct alignas(16) shared {
    unsigned char q[NT * 4096]; /* queries: rows of 512 bytes, units swizzled by row */
    unsigned char p[NT * 2048]; /* weights: [tile][key][8 queries] fp16 */
    float red[WARPS][NT * 8];   /* maxima by warp */
    float top[2][NT * 8];       /* maximum of a query so far: read one, write the other */
    float scale[NT * 8];        /* of what was summed under the old one */
    int pos[NT * 8];            /* of each query */
    alignas(16) struct kv_scale by[NT * 16]; /* of queries of packed formats */
    struct attn_jobs jobs;
    uint64_t full[MAX_SLOTS], empty[MAX_SLOTS];
    uint32_t last; /* whether this block was the last arriver */
};
/* Behind that, scratch: the new rows' K, then V; later a tile's results. */
static __host__ __device__ __forceinline__ int scratch_bytes(int rows, int row_bytes)
{
    const int stage = 8 * STAGE_LD * 4, fresh = 2 * rows * row_bytes;
    return stage > fresh ? stage : fresh;
}

static __device__ __forceinline__ void workers_sync(void)
{
    bar_sync(1, WORKERS);
}

/* ---- the ring: K of a split in two slots of 64 rows, then V ---- */

/* Where the splits of a block's share lie, in order. */
struct walk {
    struct attn_place at; /* the rest of the share */
    struct attn_unit u;
    int split; /* next, of u */
    const uint8_t *values;
    int job, number, page, next_page; /* page `number` of the job's table, and the one after */
};

static __device__ __forceinline__ struct walk walk_from(struct attn_place at)
{
    struct walk k = {};
    k.at = at;
    k.job = -1;
    return k;
}

/* Bytes of 64 rows of keys, or of values. */
template <int F8>
static __device__ __forceinline__ int tile_bytes(const struct decode_args &a, int which)
{
    return F8 == AT_PACKED ? which ? a.value_bytes : a.key_bytes : HALF * (F8 ? 256 : 512);
}

template <int F8> static __device__ __forceinline__ int slot_size(const struct decode_args &a)
{
    return F8 == AT_PACKED ? a.slot_bytes : HALF * (F8 ? 256 : 512);
}

/* Keys of the next split (values: in k), and how many rows of it were cached before; or
 * NULL. A page's number is asked for one page ahead. */
template <int F8>
static __device__ __forceinline__ const uint8_t *walk_next(const struct decode_args &a,
                                                           const struct attn_jobs *w,
                                                           struct walk *k, int *cached)
{
    constexpr int of_page = BE_PAGE / AT_SPLIT;
    if (k->split == k->u.split + k->u.n) {
        if (!next_unit(w, &k->at, &k->u)) {
            return NULL;
        }
        k->split = k->u.split;
    }
    const struct attn_job *j = &w->job[k->u.job];
    const int number = k->split / of_page;
    if (k->u.job != k->job || number != k->number) {
        const bool ahead = k->u.job == k->job && number == k->number + 1;
        k->page = ahead ? k->next_page : a.page[j->page + number];
        k->next_page = number < (j->splits - 1) / of_page ? a.page[j->page + number + 1] : 0;
        k->job = k->u.job;
        k->number = number;
    }
    *cached = j->fresh - k->split * AT_SPLIT;
    const int keys = tile_bytes<F8>(a, 0), values = tile_bytes<F8>(a, 1);
    const int tile = k->split++ % of_page * (AT_SPLIT / HALF);
    const uint8_t *page = a.in.cache + (size_t)k->page * a.in.page_stride;
    k->values = page + (size_t)(a.in.kv_heads * keys + k->u.head * values) * (BE_PAGE / HALF) +
                (size_t)(tile * values);
    return page + (size_t)(k->u.head * keys) * (BE_PAGE / HALF) + (size_t)(tile * keys);
}

struct ring {
    uint32_t base, full, empty; /* shared addresses */
    int slots, slot;
    uint32_t phase;
};

static __device__ __forceinline__ void ring_next(struct ring *r)
{
    if (++r->slot == r->slots) {
        r->slot = 0;
        r->phase ^= 1;
    }
}

/* By one thread: all fills of a share, as slots become free. */
template <int F8>
static __device__ void fill_bulk(const struct decode_args &a, const struct attn_jobs *w,
                                 struct ring r, struct walk k)
{
    constexpr int row_bytes = F8 ? 256 : 512;
    const int slot_bytes = slot_size<F8>(a);
    int cached = 0;
    const uint8_t *keys;
    while ((keys = walk_next<F8>(a, w, &k, &cached)) != NULL) {
#pragma unroll 1
        for (int i = 0; i < 4; i++) {
            const int bytes = tile_bytes<F8>(a, i / 2);
            const uint8_t *src = (i < 2 ? keys : k.values) + i % 2 * bytes;
            const int n = cached - i % 2 * HALF;
            const uint32_t dst = r.base + (uint32_t)(r.slot * slot_bytes);
            const uint32_t full = r.full + 8 * (uint32_t)r.slot;
            mbar_wait(r.empty + 8 * (uint32_t)r.slot, r.phase ^ 1);
            /* Planes have no rows: what is stale in them is patched, or seen by none. */
            if (n >= HALF || (F8 == AT_PACKED && n > 0)) {
                mbar_arrive_expect(full, (uint32_t)bytes);
                bulk_load(dst, src, (uint32_t)bytes, full);
            } else if (n > 0) {
                mbar_arrive_expect(full, (uint32_t)(n * row_bytes));
#pragma unroll 1
                for (int b = 0; b < slot_bytes; b += AT_BLOCK) {
                    bulk_load(dst + (uint32_t)b, src + b, (uint32_t)n * 128, full);
                }
            } else {
                mbar_arrive(full);
            }
            ring_next(&r);
        }
    }
}

/* Without bulk copies all fill together, slots - 1 ahead of what is read. */
struct feed {
    struct walk k;
    const uint8_t *keys;
    int cached, part, slot;
};

template <int F8>
static __device__ void fill_async(const struct decode_args &a, const struct attn_jobs *w,
                                  const struct ring *r, struct feed *f, int tid)
{
    const int slot_bytes = slot_size<F8>(a);
    if (f->part == 4) {
        f->part = 0;
        f->keys = walk_next<F8>(a, w, &f->k, &f->cached);
    }
    if (f->keys) {
        const int bytes = tile_bytes<F8>(a, f->part / 2);
        const uint8_t *src = (f->part < 2 ? f->keys : f->k.values) + f->part % 2 * bytes;
        const int n = f->cached - f->part % 2 * HALF;
        const uint32_t dst = r->base + (uint32_t)(f->slot * slot_bytes);
        for (int i = tid; i < bytes / 16; i += WORKERS) {
            if (F8 == AT_PACKED ? n > 0 : i % 512 / 8 < n) {
                cp_async16(dst + 16 * (uint32_t)i, src + 16 * i);
            }
        }
        f->part++;
    }
    f->slot = f->slot + 1 == r->slots ? 0 : f->slot + 1;
    cp_async_commit();
}

/* The slot that is next is there. Also for a warp that does not read it: one that went on
 * could leave a slot twice before others had left it once, and the ring would be filled
 * under their hands. */
template <bool BULK, int F8>
static __device__ __forceinline__ void slot_wait(const struct decode_args &a,
                                                 const struct attn_jobs *w, const struct ring *r,
                                                 struct feed *f, int tid)
{
    if (BULK) {
        mbar_wait(r->full + 8 * (uint32_t)r->slot, r->phase);
        return;
    }
    if (r->slots > 3) {
        cp_async_wait<2>();
    } else if (r->slots == 3) {
        cp_async_wait<1>();
    } else {
        cp_async_wait<0>();
    }
    workers_sync();
    fill_async<F8>(a, w, r, f, tid);
}

template <bool BULK> static __device__ __forceinline__ void slot_done(struct ring *r, int lane)
{
    if (BULK) {
        __syncwarp();
        if (lane == 0) {
            mbar_arrive(r->empty + 8 * (uint32_t)r->slot);
        }
    }
    ring_next(r);
}

/* ---- fragments ---- */

/* s += keys (16 to a tile) * queries. row: of the slot, the warp's first; q: its first
 * query tile. */
template <int F8, int NT>
static __device__ __forceinline__ void scores(float (*s)[shape<NT>::tiles][4], uint32_t slot,
                                              uint32_t q, int row, int lane)
{
    constexpr int keys = shape<NT>::keys, tiles = shape<NT>::tiles;
    /* Units u, with u's lowest bits swizzled by the row: 16-byte unit 4 i + c is at
     * base ^ (64 if i is odd), in block i / 2 (fp8: units 2 i + c, 32, i / 4). */
    const int up = lane >> 4;
    const uint32_t k0 = slot + (uint32_t)((row + (lane & 15)) * 128 + ((up ^ lane) & 7) * 16);
    const uint32_t q0 = q + (uint32_t)((lane & 7) * 512 + (((lane >> 3) ^ lane) & 7) * 16);
#pragma unroll
    for (int i = 0; i < 8; i++) { /* 32 elements */
        uint32_t f[2][keys][4];
#pragma unroll
        for (int m = 0; m < keys; m++) {
            if (F8) {
                uint32_t r[4];
                ldmatrix_x4(r, (k0 ^ (uint32_t)(i % 4 * 32)) +
                                   (uint32_t)(i / 4 * AT_BLOCK + m * 2048));
#pragma unroll
                for (int x = 0; x < 4; x++) { /* keys, keys + 8, the next unit's */
                    f8_pairs(r[x], &f[x / 2][m][x % 2], &f[x / 2][m][x % 2 + 2]);
                }
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    ldmatrix_x4(f[h][m], (k0 ^ (uint32_t)(i % 2 * 64 + h * 32)) +
                                             (uint32_t)(i / 2 * AT_BLOCK + m * 2048));
                }
            }
        }
#pragma unroll
        for (int n = 0; n < tiles; n++) {
            uint32_t b[4];
            ldmatrix_x4(b, (q0 ^ (uint32_t)(i % 2 * 64)) + (uint32_t)(i / 2 * 128 + n * 4096));
#pragma unroll
            for (int m = 0; m < keys; m++) {
                mma_f16(s[m][n], f[0][m], b[0], b[1], s[m][n]);
                mma_f16(s[m][n], f[1][m], b[2], b[3], s[m][n]);
            }
        }
    }
}

/* o += values (32 elements of this warp) * weights, over n keys of the slot (a multiple
 * of 32), key0 ... of the split; l += weights, of the query tiles that the warp has. */
template <int F8, int NT>
static __device__ __forceinline__ void values(float (*o)[NT][4], float (*l)[4], uint32_t slot,
                                              uint32_t p, int key0, int n_keys, int warp, int lane)
{
    /* Lanes ask for rows that differ by multiples of 8 from step to step. */
    const int key = F8 ? lane & 15 : (lane & 7) + (lane >> 4) * 8;
    const int unit = F8 ? 2 * warp + (lane >> 4) : 4 * warp + (lane >> 3 & 1);
    const uint32_t v0 =
        slot + (uint32_t)(unit / 8 * AT_BLOCK + key * 128) + (uint32_t)(((unit ^ lane) & 7) * 16);
    const uint32_t p0 = p + (uint32_t)((key0 + lane) * 16);
#pragma unroll
    for (int k = 0; k < HALF; k += 32) {
        if (k < n_keys) {
            uint32_t f[2][2][4]; /* [step][tile of 16 elements] */
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t at = (uint32_t)((k + 16 * i) * 128);
                if (F8) {
                    uint32_t r[4];
                    ldmatrix_x4_trans(r, v0 + at);
#pragma unroll
                    for (int m = 0; m < 2; m++) {
                        f8_even_odd(r[2 * m], &f[i][m][0], &f[i][m][1]);
                        f8_even_odd(r[2 * m + 1], &f[i][m][2], &f[i][m][3]);
                    }
                } else {
                    ldmatrix_x4_trans(f[i][0], v0 + at);
                    ldmatrix_x4_trans(f[i][1], (v0 ^ 32) + at);
                }
            }
            weigh_values<NT, shape<NT>::sums, WARPS>(o, l, f, p0 + (uint32_t)(k * 16), warp);
        }
    }
}

/* ---- results ---- */

/* o * sigmoid(gate g) in fp16, and the sums of every 32. */
static __device__ __forceinline__ void finish(const struct decode_args &a, int row, int head,
                                              const float *o, float *g, int lane)
{
#pragma unroll
    for (int i = 0; i < 8; i++) {
        /* + 0: what was flushed to -0 and then had zeros added is the same */
        g[i] = __fmul_rn(__fadd_rn(o[i], 0.0f), at_sigmoid(g[i]));
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

/* Results of a query tile as the MMAs leave them: this warp's 32 elements. */
struct frag {
    float o[2][4];
    float m[2], l[2]; /* of queries 2 t, 2 t + 1 */
};

/* Through shared memory: a warp gets a query. */
template <int F8>
static __device__ __forceinline__ void finish_tile(const struct decode_args &a,
                                                   const struct attn_job *j, int head, int tile,
                                                   const struct frag *r, unsigned char *scratch,
                                                   int warp, int lane)
{
    const int g = lane / 4, t = lane % 4, q = 8 * tile + warp;
    const int row = j->row + row_of(a, q), qh = head * a.group + head_of(a, q);
    const bool there = q < j->n * a.group;
    float gate[8];
    if (there) {
        load8(a.in.proj + (size_t)row * a.in.ld + a.in.col_q + qh * 2 * AT_D + AT_D + 8 * lane,
              gate);
    }
    float *stage = (float *)scratch;
    const float x = rcp_approx(r->l[0]), y = rcp_approx(r->l[1]);
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const int d = 32 * warp + 16 * m + (F8 ? 2 * g : g), up = F8 ? 1 : 8;
        float *to = stage + 2 * t * STAGE_LD + d;
        to[0] = __fmul_rn(r->o[m][0], x);
        to[STAGE_LD] = __fmul_rn(r->o[m][1], y);
        to[up] = __fmul_rn(r->o[m][2], x);
        to[STAGE_LD + up] = __fmul_rn(r->o[m][3], y);
    }
    workers_sync();
    if (there) {
        float o[8];
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            const float4 v = *(const float4 *)(stage + warp * STAGE_LD + 8 * lane + i);
            o[i] = v.x, o[i + 1] = v.y, o[i + 2] = v.z, o[i + 3] = v.w;
        }
        if (F8 == AT_PACKED) {
            kv_turn(kvq_of(a.kv, 1), true, o, lane);
        }
        finish(a, row, qh, o, gate, lane);
    }
    workers_sync(); /* scratch is free again */
}

/* The one tile of a job that is not split: from what its warps have, o of their own dimensions
 * and l, the sums, which the first warp has. sums: 8 floats of shared memory. */
template <int F8>
static __device__ __forceinline__ void finish_alone(const struct decode_args &a,
                                                    const struct attn_job *j, int head,
                                                    const float *o0, const float *o1,
                                                    const float *l, float *sums,
                                                    unsigned char *scratch, int warp, int lane)
{
    const int t = lane % 4;
    if (warp == 0 && lane / 4 == 0) {
        *(float2 *)&sums[2 * t] = make_float2(l[0], l[1]);
    }
    workers_sync();
    const float2 sum = *(const float2 *)&sums[2 * t];
    const struct frag r = {
        {{o0[0], o0[1], o0[2], o0[3]}, {o1[0], o1[1], o1[2], o1[3]}}, {0, 0}, {sum.x, sum.y}};
    finish_tile<F8>(a, j, head, 0, &r, scratch, warp, lane);
}

static __device__ __forceinline__ void store_frag(float *part, const float (*o)[4], int warp,
                                                  int lane)
{
#pragma unroll
    for (int m = 0; m < 2; m++) {
        *(float4 *)(part + ((warp * 2 + m) * 32 + lane) * 4) =
            make_float4(o[m][0], o[m][1], o[m][2], o[m][3]);
    }
}

template <int BY> struct merging {
    float4 a[BY], b[BY], ml[BY];
};

static __device__ __forceinline__ float4 load_ml(const float *ml, bool there)
{
    float4 v = ld_l2_16_if(ml, there);
    v.x = there ? v.x : -INFINITY;
    v.z = there ? v.z : -INFINITY;
    return v;
}

/* BY partial results, `step` tiles apart, of which n are there. */
template <int BY>
static __device__ __forceinline__ void merge_load(struct merging<BY> *g, const float *part,
                                                  const float *ml, size_t step, int n, int warp,
                                                  int lane)
{
    const float *from = part + (warp * 64 + lane) * 4;
#pragma unroll
    for (int i = 0; i < BY; i++) {
        g->ml[i] = load_ml(ml + (size_t)i * step * 16 + lane % 4 * 4, i < n);
        g->a[i] = ld_l2_16_if(from + (size_t)i * step * TILE, i < n);
        g->b[i] = ld_l2_16_if(from + (size_t)i * step * TILE + 128, i < n);
    }
}

/* n partial results, in order; BY at once are on their way. */
template <int BY>
static __device__ __forceinline__ void merge(const float *part, const float *ml, size_t step, int n,
                                             struct frag *r, int warp, int lane)
{
    struct merging<BY> g;
    merge_load<BY>(&g, part, ml, step, n, warp, lane);
    float x = -INFINITY, y = -INFINITY;
#pragma unroll
    for (int i = 0; i < BY; i++) {
        x = fmaxf(x, g.ml[i].x);
        y = fmaxf(y, g.ml[i].z);
    }
#pragma unroll 4
    for (int i = BY; i < n; i++) {
        const float4 v = load_ml(ml + (size_t)i * step * 16 + lane % 4 * 4, true);
        x = fmaxf(x, v.x);
        y = fmaxf(y, v.z);
    }
    r->m[0] = x, r->m[1] = y;
    r->l[0] = r->l[1] = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        r->o[0][i] = r->o[1][i] = 0;
    }
    const float rx = x == -INFINITY ? 0 : x, ry = y == -INFINITY ? 0 : y;
#pragma unroll 1
    for (int from = 0;;) {
#pragma unroll
        for (int i = 0; i < BY; i++) {
            const float wx = ex2_approx(g.ml[i].x - rx), wy = ex2_approx(g.ml[i].z - ry);
            r->l[0] = fmaf(wx, g.ml[i].y, r->l[0]);
            r->l[1] = fmaf(wy, g.ml[i].w, r->l[1]);
            r->o[0][0] = fmaf(wx, g.a[i].x, r->o[0][0]);
            r->o[0][1] = fmaf(wy, g.a[i].y, r->o[0][1]);
            r->o[0][2] = fmaf(wx, g.a[i].z, r->o[0][2]);
            r->o[0][3] = fmaf(wy, g.a[i].w, r->o[0][3]);
            r->o[1][0] = fmaf(wx, g.b[i].x, r->o[1][0]);
            r->o[1][1] = fmaf(wy, g.b[i].y, r->o[1][1]);
            r->o[1][2] = fmaf(wx, g.b[i].z, r->o[1][2]);
            r->o[1][3] = fmaf(wy, g.b[i].w, r->o[1][3]);
        }
        from += BY;
        if (from >= n) {
            return;
        }
        merge_load<BY>(&g, part + (size_t)from * step * TILE, ml + (size_t)from * step * 16, step,
                       n - from, warp, lane);
    }
}

/* After the workers' stores: so many more of n have arrived; true if the last was among them. */
static __device__ __forceinline__ bool last_of(uint32_t *counter, int more, int n, uint32_t *flag,
                                               int tid)
{
    workers_sync();
    if (tid == 0) {
        const bool last = atom_add_acq_rel(counter, (uint32_t)more) == (uint32_t)(n - more);
        if (last) {
            *counter = 0;
        }
        *flag = last;
    }
    workers_sync();
    return *flag != 0;
}

/* Where a job's tiles of a unit, or a group, begin, in tiles. */
static __device__ __forceinline__ size_t tile_of(const struct decode_args &a,
                                                 const struct attn_job *j, int head, int units,
                                                 int unit)
{
    return ((size_t)head * units + unit) * a.rows + j->row;
}

/* Units of a group that the block has stored and not told of yet: of so many there is one
 * arrival, which costs more than a split. */
struct arrival {
    int job, head, group, n;
};

/* Merges their group when it is complete, and the groups when they are. */
template <int F8, int BY>
static __device__ __forceinline__ void combine(const struct decode_args &a,
                                               const struct attn_jobs *w, struct arrival of,
                                               unsigned char *scratch, uint32_t *flag, int warp,
                                               int lane, int tid)
{
    const struct attn_job *j = &w->job[of.job];
    const int head = of.head, mine = of.group;
    const int tiles = (j->n * a.group + 7) / 8;
    const int units = unit_of(j->splits - 1) + 1, groups = (units + GROUP - 1) / GROUP;
    uint32_t *counter = a.counter + (size_t)(j->row * a.in.kv_heads + head) * GROUPS_MAX;
    const int left = units - mine * GROUP;
    /* Level 0: units of a group; level 1: groups. How many is carried along: of a choice by
     * level within the loop, nvcc 13.0 overwrote the number of groups with the other one. */
    int n = left < GROUP ? left : GROUP, more = of.n;
#pragma unroll 1
    for (int level = 0;; level++, n = groups, more = 1) {
        if (!last_of(counter + (level ? GROUPS_MAX - 1 : mine), more, n, flag, tid)) {
            return;
        }
        const size_t from =
            level ? tile_of(a, j, head, a.groups, 0) : tile_of(a, j, head, a.units, mine * GROUP);
        const float *part = (level ? a.whole : a.part) + from * TILE;
        const float *ml = (level ? a.whole_ml : a.part_ml) + from * 16;
        const size_t to = tile_of(a, j, head, a.groups, mine);
        const bool done = level || groups == 1;
#pragma unroll 1
        for (int i = 0; i < tiles; i++) {
            struct frag r;
            merge<BY>(part + (size_t)i * TILE, ml + i * 16, (size_t)a.rows, n, &r, warp, lane);
            if (done) {
                finish_tile<F8>(a, j, head, i, &r, scratch, warp, lane);
            } else {
                store_frag(a.whole + (to + i) * TILE, r.o, warp, lane);
                if (warp == 0 && lane < 4) {
                    *(float4 *)(a.whole_ml + (to + i) * 16 + 4 * lane) =
                        make_float4(r.m[0], r.l[0], r.m[1], r.l[1]);
                }
            }
        }
        if (done) {
            return;
        }
    }
}

/* ---- a unit ---- */

/* Positions of this step's rows in a unit: from f0, ends before f1. */
struct fresh {
    int f0, f1;
};

/* A query, as store_q has it (attn.cuh), but a row's 32 units follow each other. */
template <bool PERMUTED>
static __device__ __forceinline__ void store_query(unsigned char *q, int row, const float *x,
                                                   int lane)
{
    const uint4 v = pack_f16(x);
    unsigned char *to = q + row * 512 + (lane & ~7) * 16;
    if (PERMUTED) {
        const int u = lane & 6, side = lane % 2 * 8;
        *(uint2 *)(to + ((u ^ row) & 7) * 16 + side) = make_uint2(v.x, v.z);
        *(uint2 *)(to + (((u + 1) ^ row) & 7) * 16 + side) = make_uint2(v.y, v.w);
    } else {
        *(uint4 *)(to + ((lane ^ row) & 7) * 16) = v;
    }
}

static __device__ __forceinline__ struct fresh fresh_of(const struct attn_job *j,
                                                        const struct attn_unit *u)
{
    struct fresh f = {u->split * AT_SPLIT, (u->split + u->n) * AT_SPLIT};
    f.f0 = f.f0 > j->fresh ? f.f0 : j->fresh;
    f.f1 = f.f1 < j->pos + j->n ? f.f1 : j->pos + j->n;
    return f;
}

/* Of a new row of keys or values in scratch. */
template <int F8> static __host__ __device__ constexpr int fresh_bytes(void)
{
    return F8 == AT_PACKED ? (int)KV_FRESH : F8 ? 256 : 512;
}

/* A new row, of a page's position `pos`: into scratch and, if it is the job's, into the cache. */
template <int F8>
static __device__ __forceinline__ void keep_row(const struct decode_args &a,
                                                const struct attn_job *j, int head, bool value,
                                                int pos, int page, const float *x,
                                                unsigned char *to, int lane)
{
    constexpr int row_bytes = F8 ? 256 : 512;
    if (F8 == AT_PACKED) {
        const struct kv_lane v = kv_encode(kvq_of(a.kv, value), kv_row_of(x), lane);
        kv_keep(to, lane, &v);
        if (pos >= j->pos) {
            kv_put(a.kv, value, kv_tile(a.in, a.kv, page, value, head, pos % BE_PAGE), pos % HALF,
                   lane, v);
        }
        return;
    }
    if (F8) {
        *(uint2 *)(to + lane * 8) = pack_f8(x);
    } else {
        *(uint4 *)(to + lane * 16) = pack_f16(x);
    }
    if (pos >= j->pos) {
        store_kv<F8 == AT_F8>(kv_head(a.in, page, value, head, row_bytes), pos % BE_PAGE, x, lane);
    }
}

/* Queries of the job (when they changed) and the new rows of the unit; new rows of the
 * job are stored in the cache too. */
template <int F8, int NT>
static __device__ __forceinline__ void prepare(const struct decode_args &a,
                                               const struct attn_job *j, int head, struct fresh f,
                                               bool again, struct shared<NT> *sh,
                                               unsigned char *scratch, int warp, int lane, int tid)
{
    constexpr int at_once = F8 == AT_PACKED ? 1 : shape<NT>::at_once;
    const int queries = again ? 0 : j->n * a.group;
    const int rows = f.f1 > f.f0 ? f.f1 - f.f0 : 0, all = queries + 2 * rows;
#pragma unroll 1
    for (int from = warp; from < all; from += WARPS * at_once) {
        float x[at_once][8], w[at_once][8], c[at_once][8], z[at_once][8];
        int page[at_once], item[at_once];
#pragma unroll
        for (int i = 0; i < at_once; i++) { /* the last one again where there is none */
            item[i] = from + i * WARPS < all ? from + i * WARPS : all - 1;
            const int fresh = item[i] - queries;
            const bool query = fresh < 0, value = fresh >= rows;
            const int pos = query ? j->pos : f.f0 + (value ? fresh - rows : fresh);
            const int row = query ? j->row + row_of(a, item[i]) : j->span_row + pos - j->fresh;
            const int col = query   ? a.in.col_q + (head * a.group + head_of(a, item[i])) * 2 * AT_D
                            : value ? a.in.col_v + head * AT_D
                                    : a.in.col_k + head * AT_D;
            load8(a.in.proj + (size_t)row * a.in.ld + col + 8 * lane, x[i]);
            load_turn(query ? a.in.q_norm : a.in.k_norm, a.in.rot + (size_t)row * BE_ROT_DIM, w[i],
                      c[i], z[i], lane);
            page[i] = a.page[j->page + pos / BE_PAGE];
        }
#pragma unroll
        for (int i = 0; i < at_once; i++) {
            const int fresh = item[i] - queries;
            const bool value = fresh >= rows;
            if (!value) {
                turn_row(x[i], w[i], c[i], z[i], a.in.eps, lane);
            }
            if (fresh < 0) {
                if (F8 == AT_PACKED) {
                    kv_turn(kvq_of(a.kv, 0), false, x[i], lane);
                    kv_store_query(a.kv, sh->q, item[i], x[i], sh->by, lane);
                } else {
                    store_query<F8 == AT_F8>(sh->q, item[i], x[i], lane);
                }
                continue;
            }
            const int pos = f.f0 + (value ? fresh - rows : fresh);
            keep_row<F8>(a, j, head, value, pos, page[i], x[i],
                         scratch + (value * a.rows + pos - f.f0) * fresh_bytes<F8>(), lane);
        }
    }
    for (int i = tid; i < NT * 8; i += WORKERS) {
        sh->pos[i] = j->pos + (i < j->n * a.group ? row_of(a, i) : 0);
        sh->top[0][i] = -INFINITY;
    }
}

/* Puts the new rows, of which the first lies at `from`, into a slot that begins at position `pos`
 * of the sequence, and zeros behind them as far as `values` reads; by so many warps. */
template <int F8, int BY>
static __device__ __forceinline__ void patch(enum be_kv kv, const unsigned char *from,
                                             unsigned char *slot, int pos, int which,
                                             struct fresh f, int tid)
{
    constexpr int units = F8 ? 16 : 32;
    const int first = f.f0 > pos ? f.f0 - pos : 0;
    const int past = f.f1 - pos, end = (past + 31) & ~31;
    if (F8 == AT_PACKED) {
        for (int row = first + tid / 32; row < HALF && row < past; row += BY) {
            kv_put(kv, which, slot, row, tid % 32,
                   kv_kept(from + (pos + row - f.f0) * KV_FRESH, tid % 32));
        }
        for (int row = (past > 0 ? past : 0) + tid; row < HALF && row < end; row += BY * 32) {
            kv_put_zeros(kv, which, slot, row);
        }
    }
    for (int i = F8 == AT_PACKED ? HALF * units : first * units + tid;
         i < HALF * units && i < end * units; i += BY * 32) {
        const int row = i / units, u = i % units;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (row < past) {
            v = *(const uint4 *)(from + ((pos + row - f.f0) * units + u) * 16);
        }
        *(uint4 *)(slot + u / 8 * AT_BLOCK + row * 128 + ((u ^ row) & 7) * 16) = v;
    }
}

/* As a call, out of the way of loops that seldom need it. */
template <int F8, int BY>
static __device__ __noinline__ void patch_call(enum be_kv kv, const unsigned char *from,
                                               unsigned char *slot, int pos, int which,
                                               struct fresh f, int tid)
{
    patch<F8, BY>(kv, from, slot, pos, which, f, tid);
}

/* By all workers; then all of the slot is there for all. */
template <bool BULK, int F8>
static __device__ __forceinline__ void patch_all(const struct decode_args &a,
                                                 const unsigned char *scratch, unsigned char *slot,
                                                 int pos, int which, struct fresh f, int tid)
{
    patch<F8, WARPS>(a.kv, scratch + which * a.rows * fresh_bytes<F8>(), slot, pos, which, f, tid);
    if (BULK) {
        fence_proxy_async();
    }
    workers_sync();
}

/* A block's units. For the scores a warp has 16 or 32 keys of the split, for the result
 * 32 elements. */
template <bool BULK, int F8, int NT>
static __device__ __forceinline__ void units(const struct decode_args &a, struct shared<NT> *sh,
                                             unsigned char *slots, struct ring ring,
                                             struct attn_place at, int tid)
{
    typedef struct shape<NT> is;
    const int slot_bytes = slot_size<F8>(a);
    const int warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    const int kw = warp % is::key_warps, n0 = warp / is::key_warps * is::tiles;
    const int key_row = kw * 16 * is::keys; /* of the split */
    const uint32_t q_at = smem_addr(sh->q), p_at = smem_addr(sh->p);
    const struct attn_jobs *w = &sh->jobs;
    unsigned char *scratch = (unsigned char *)(sh + 1);
    struct feed feed = {walk_from(at), NULL, 0, 4, 0};
    for (int i = 1; !BULK && i < ring.slots; i++) {
        fill_async<F8>(a, w, &ring, &feed, tid);
    }
    pdl_wait();
    int job = -1, head = -1;
    struct attn_unit u;
    struct arrival done = {0, 0, 0, 0};
    for (;;) {
        const bool more = next_unit(w, &at, &u);
        if (done.n > 0 && (!more || done.job != u.job || done.head != u.head ||
                           done.group != unit_of(u.split) / GROUP)) {
            combine<F8, GROUP>(a, w, done, scratch, &sh->last, warp, lane, tid);
            done.n = 0;
        } else if (done.n > 0) {
            workers_sync(); /* the unit before is through with shared memory */
        }
        if (!more) {
            break;
        }
        const struct attn_job *j = &w->job[u.job];
        const struct fresh f = fresh_of(j, &u);
        prepare<F8, NT>(a, j, u.head, f, u.job == job && u.head == head, sh, scratch, warp, lane,
                        tid);
        workers_sync();
        if (job < 0) {
            pdl_launch();
        }
        job = u.job;
        head = u.head;

        float o[2][NT][4], l[is::sums][4];
        int turn = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int n = 0; n < NT; n++) {
                o[0][n][i] = o[1][n][i] = 0;
            }
#pragma unroll
            for (int n = 0; n < is::sums; n++) {
                l[n][i] = 0;
            }
        }
#pragma unroll 1
        for (int split = u.split; split < u.split + u.n; split++) {
            const int from = split * AT_SPLIT, keys = j->pos + j->n - from;
            const bool patched = f.f1 > f.f0 && from + AT_SPLIT > f.f0;
            float s[is::keys][is::tiles][4];
#pragma unroll
            for (int m = 0; m < is::keys; m++) {
#pragma unroll
                for (int n = 0; n < is::tiles; n++) {
                    s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
                }
            }
#pragma unroll 1
            for (int i = 0; i < 2; i++) {
                const bool mine = key_row / HALF == i && HALF * i < keys;
                slot_wait<BULK, F8>(a, w, &ring, &feed, tid);
                if (patched) {
                    patch_all<BULK, F8>(a, scratch, slots + ring.slot * slot_bytes, from + HALF * i,
                                        0, f, tid);
                }
                if (mine && F8 == AT_PACKED) {
                    const struct kv_queries q = {sh->q + n0 * 4096, sh->by + n0 * 16};
                    packed_scores<is::keys, is::tiles>(a.kv, s, slots + ring.slot * slot_bytes, q,
                                                       key_row % HALF, lane);
                } else if (mine) {
                    scores<F8, NT>(s, ring.base + (uint32_t)(ring.slot * slot_bytes),
                                   q_at + (uint32_t)(n0 * 4096), key_row % HALF, lane);
                }
                slot_done<BULK>(&ring, lane);
            }

            /* Maxima; masked is what the row does not see. */
            const bool masked = from + AT_SPLIT - 1 > j->pos;
#pragma unroll
            for (int n = 0; n < is::tiles; n++) {
                const int2 pos = *(const int2 *)&sh->pos[8 * (n0 + n) + 2 * t];
                float x = -INFINITY, y = -INFINITY;
#pragma unroll
                for (int m = 0; m < is::keys; m++) {
                    float *v = s[m][n];
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int key = from + key_row + 16 * m + g + i / 2 * 8;
                        v[i] = __fmul_rn(v[i], AT_SCALE);
                        if (masked && key > (i % 2 ? pos.y : pos.x)) {
                            v[i] = -INFINITY;
                        }
                    }
                    x = fmaxf(x, fmaxf(v[0], v[2]));
                    y = fmaxf(y, fmaxf(v[1], v[3]));
                }
#pragma unroll
                for (int i = 4; i < 32; i *= 2) {
                    x = fmaxf(x, __shfl_xor_sync(AT_ALL, x, i));
                    y = fmaxf(y, __shfl_xor_sync(AT_ALL, y, i));
                }
                if (g == 0) {
                    *(float2 *)&sh->red[kw][8 * (n0 + n) + 2 * t] = make_float2(x, y);
                }
            }
            workers_sync();

            /* Weights. */
#pragma unroll
            for (int n = 0; n < is::tiles; n++) {
                const int q = 8 * (n0 + n) + 2 * t;
                const float2 old = *(const float2 *)&sh->top[turn][q];
                float x = old.x, y = old.y;
#pragma unroll
                for (int i = 0; i < is::key_warps; i++) {
                    const float2 r = *(const float2 *)&sh->red[i][q];
                    x = fmaxf(x, r.x);
                    y = fmaxf(y, r.y);
                }
                /* Nothing of this row so far: weights of zero, not NaN. */
                const float rx = x == -INFINITY ? 0 : x, ry = y == -INFINITY ? 0 : y;
                if (kw == 0 && g == 0) {
                    *(float2 *)&sh->top[1 - turn][q] = make_float2(x, y);
                    *(float2 *)&sh->scale[q] =
                        make_float2(ex2_approx(old.x - rx), ex2_approx(old.y - ry));
                }
#pragma unroll
                for (int m = 0; m < is::keys; m++) {
                    const float *v = s[m][n];
                    unsigned char *to =
                        sh->p + (n0 + n) * 2048 + (key_row + 16 * m + g) * 16 + 4 * t;
                    *(uint32_t *)to = f16x2_of_f32(ex2_approx(v[0] - rx), ex2_approx(v[1] - ry));
                    *(uint32_t *)(to + 128) =
                        f16x2_of_f32(ex2_approx(v[2] - rx), ex2_approx(v[3] - ry));
                }
            }
            turn = 1 - turn;
            workers_sync();

#pragma unroll
            for (int n = 0; n < NT; n++) {
                const float2 c = *(const float2 *)&sh->scale[8 * n + 2 * t];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    o[i][n][0] = __fmul_rn(o[i][n][0], c.x);
                    o[i][n][1] = __fmul_rn(o[i][n][1], c.y);
                    o[i][n][2] = __fmul_rn(o[i][n][2], c.x);
                    o[i][n][3] = __fmul_rn(o[i][n][3], c.y);
                }
            }
#pragma unroll
            for (int i = 0; i < is::sums; i++) {
                if (warp + WARPS * i < NT) {
                    const float2 c = *(const float2 *)&sh->scale[8 * (warp + WARPS * i) + 2 * t];
                    l[i][0] = __fmul_rn(l[i][0], c.x);
                    l[i][1] = __fmul_rn(l[i][1], c.y);
                }
            }
#pragma unroll 1
            for (int i = 0; i < 2; i++) {
                slot_wait<BULK, F8>(a, w, &ring, &feed, tid);
                if (patched) {
                    patch_all<BULK, F8>(a, scratch, slots + ring.slot * slot_bytes, from + HALF * i,
                                        1, f, tid);
                }
                if (F8 == AT_PACKED) {
                    packed_values<NT, WARPS, is::sums>(a.kv, o, l, slots + ring.slot * slot_bytes,
                                                       p_at, HALF * i, keys - HALF * i, warp, lane);
                } else {
                    values<F8, NT>(o, l, ring.base + (uint32_t)(ring.slot * slot_bytes), p_at,
                                   HALF * i, keys - HALF * i, warp, lane);
                }
                slot_done<BULK>(&ring, lane);
            }
        }

        const int tiles = (j->n * a.group + 7) / 8;
        if (NT == 1 && j->splits == 1) {
            finish_alone<F8>(a, j, u.head, o[0][0], o[1][0], l[0], sh->scale, scratch, warp, lane);
            continue;
        }
        const int unit = unit_of(u.split);
        const size_t to = tile_of(a, j, u.head, a.units, unit);
#pragma unroll
        for (int n = 0; n < NT; n++) {
            if (n < tiles) {
                const float r[2][4] = {{o[0][n][0], o[0][n][1], o[0][n][2], o[0][n][3]},
                                       {o[1][n][0], o[1][n][1], o[1][n][2], o[1][n][3]}};
                store_frag(a.part + (to + n) * TILE, r, warp, lane);
            }
        }
#pragma unroll
        for (int i = 0; i < is::sums; i++) {
            const int n = warp + WARPS * i;
            if (n < tiles && g == 0) {
                const float2 m = *(const float2 *)&sh->top[turn][8 * n + 2 * t];
                *(float4 *)(a.part_ml + (to + n) * 16 + 4 * t) =
                    make_float4(m.x, l[i][0], m.y, l[i][1]);
            }
        }
        done.job = u.job, done.head = u.head, done.group = unit / GROUP;
        done.n++;
    }
}

template <bool BULK, int F8, int NT>
__global__ void __launch_bounds__((threads<BULK, NT>::all), 1)
    attn_decode_kernel(const struct decode_args a)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 900
    if (BULK) {
        return;
    }
#endif
    const int slot_bytes = slot_size<F8>(a);
    unsigned char *slots = cu_smem();
    struct shared<NT> *sh = (struct shared<NT> *)(slots + a.slots * slot_bytes);
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    const struct ring ring = {
        smem_addr(slots), smem_addr(sh->full), smem_addr(sh->empty), a.slots, 0, 0};
    /* The tables and the rows cached before are older than the kernel that this one
     * may overlap with; proj and rot are not. */
    if (warp == (BULK ? WARPS : 0)) {
        if (BULK && lane < a.slots) {
            mbar_init(ring.full + 8 * (uint32_t)lane, 1);
            mbar_init(ring.empty + 8 * (uint32_t)lane, WARPS);
            mbar_fence_init();
        }
        make_jobs(a.count, a.span, a.spans, a.in.kv_heads, NT * 8 / a.group, NT > 1, &sh->jobs,
                  lane);
    }
    if (warp < WARPS) { /* queries that a tile lacks are zeros, later any old ones */
        for (int i = tid; i < NT * 4096 / 16; i += WORKERS) {
            *(uint4 *)(sh->q + 16 * i) = make_uint4(0, 0, 0, 0);
        }
        for (int i = tid; i < NT * 16; i += WORKERS) {
            sh->by[i] = {0, 0};
        }
    }
    __syncthreads();
    const uint32_t total = (uint32_t)sh->jobs.total;
    const struct attn_place at = place_of(&sh->jobs, (int)(total * blockIdx.x / gridDim.x),
                                          (int)(total * (blockIdx.x + 1) / gridDim.x));
    if (BULK && warp >= WARPS) {
        if (NT > 1) {
            regs_dec<40>();
        }
        if (tid == WORKERS) {
            fill_bulk<F8>(a, &sh->jobs, ring, walk_from(at));
        }
    } else {
        if (BULK && NT > 1) {
            regs_inc<232>();
        }
        units<BULK, F8, NT>(a, sh, slots, ring, at, tid);
    }
}

#include "kernels/cuda/attn_one.cuh"

/* ---- launch ---- */

template <bool BULK, int F8, int NT>
static cudaError_t launch(struct cu_ctx *c, struct decode_args *a, int limit, int grid,
                          const struct attn_tune *tune, bool *fits)
{
    const size_t slot_bytes = F8 == AT_PACKED ? (size_t)a->slot_bytes : HALF * (F8 ? 256 : 512);
    /* Each block takes 1 KB more. */
    const size_t mine =
        sizeof(struct shared<NT>) + (size_t)scratch_bytes(a->rows, F8 == AT_PACKED ? (int)KV_FRESH
                                                                   : F8            ? 256
                                                                                   : 512);
    const size_t fixed = mine + (tune->per_sm > 1 ? 1024 : 0);
    const size_t room = (size_t)(limit / tune->per_sm);
    const int n = (int)(room < fixed ? 0 : (room - fixed) / slot_bytes);
    a->slots = tune->slots > 0 && tune->slots < n ? tune->slots : n;
    const int most = BULK ? MAX_SLOTS : 4;
    a->slots = a->slots < most ? a->slots : most;
    *fits = a->slots >= 2;
    if (!*fits) {
        return cudaSuccess;
    }
    return cu_launch(c,
                     F8 == AT_PACKED ? "attention, packed cache"
                     : F8            ? "attention, fp8 cache"
                                     : "attention, fp16 cache",
                     attn_decode_kernel<BULK, F8, NT>, dim3((unsigned)grid),
                     dim3(threads<BULK, NT>::all), mine + (size_t)a->slots * slot_bytes, *a);
}

/* One tile: by warps with roles on Hopper. */
template <bool BULK, int F8>
static cudaError_t launch_tile(struct cu_ctx *c, struct decode_args *a, int limit, int grid,
                               const struct attn_tune *tune)
{
    if constexpr (BULK) {
        switch (a->kv) {
        case BE_KV_F16:
            return launch_one<BE_KV_F16>(c, a, limit, grid, tune);
        case BE_KV_F8:
            return launch_one<BE_KV_F8>(c, a, limit, grid, tune);
        case BE_KV_K8V4:
            return launch_one<BE_KV_K8V4>(c, a, limit, grid, tune);
        case BE_KV_K5V3:
            return launch_one<BE_KV_K5V3>(c, a, limit, grid, tune);
        case BE_KV_K3V3:
            return launch_one<BE_KV_K3V3>(c, a, limit, grid, tune);
        case BE_KV_F32:
            break;
        }
        return cudaErrorNotSupported;
    } else {
        bool fits = false;
        const cudaError_t rc = launch<BULK, F8, 1>(c, a, limit, grid, tune, &fits);
        return fits ? rc : cudaErrorNotSupported;
    }
}

/* The fewest query tiles that hold a job's rows, if shared memory does; of packed formats one or
 * six. */
template <bool BULK, int F8>
static cudaError_t launch_for(struct cu_ctx *c, struct decode_args *a, int limit, int tiles,
                              int grid, const struct attn_tune *tune)
{
    bool fits = false;
    cudaError_t rc = cudaSuccess;
    if constexpr (F8 == AT_PACKED) {
        if (tiles > 1) {
            rc = launch<BULK, F8, 6>(c, a, limit, grid, tune, &fits);
        }
    } else {
        if (tiles > 6) {
            rc = launch<BULK, F8, 12>(c, a, limit, grid, tune, &fits);
        }
        if (!fits && tiles > 3) {
            rc = launch<BULK, F8, 6>(c, a, limit, grid, tune, &fits);
        }
        if (!fits && tiles > 1) {
            rc = launch<BULK, F8, 3>(c, a, limit, grid, tune, &fits);
        }
    }
    return fits ? rc : launch_tile<BULK, F8>(c, a, limit, grid, tune);
}

template <int F8>
static cudaError_t launch_any(struct cu_ctx *c, struct decode_args *a, int limit, int tiles,
                              int grid, const struct attn_tune *tune)
{
    return c->path == CU_SM90 ? launch_for<true, F8>(c, a, limit, tiles, grid, tune)
                              : launch_for<false, F8>(c, a, limit, tiles, grid, tune);
}

} // namespace

extern "C" size_t cu_attn_work(int q_heads, int kv_heads, int max_ctx, int max_rows)
{
    (void)q_heads; /* at most 8 to a key head */
    return attn_layout_of(kv_heads, max_ctx, max_rows < CU_ROWS ? max_rows : CU_ROWS).size;
}

cudaError_t attn_decode_tuned(struct cu_ctx *c, const struct cu_batch *b, const struct cu_attn *a,
                              const struct attn_tune *tune)
{
    cudaError_t rc = attn_check(a);
    if (rc != cudaSuccess || a->kv_only) {
        return rc != cudaSuccess ? rc : attn_append(c, b, a);
    }
    const struct attn_layout w = attn_layout_of(a->kv_heads, a->max_ctx, b->rows);
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
    d.rows = b->rows;
    d.units = w.units;
    d.groups = w.groups;
    d.spans = b->spans;
    d.group = a->q_heads / a->kv_heads;
    d.inverse = (65536 + d.group - 1) / d.group;
    int limit = 0;
    rc = attn_smem_limit(c, &limit);
    if (rc != cudaSuccess) {
        return rc;
    }
    struct attn_tune t = *tune;
    const int splits = a->kv_heads * ((a->max_ctx + AT_SPLIT - 1) / AT_SPLIT); /* of a span */
    const int rows = (b->rows + b->spans - 1) / b->spans;
    t.per_sm = t.per_sm > 0 ? t.per_sm : 1;
    const int blocks = t.grid > 0 ? t.grid : t.per_sm * c->n_sm;
    const int grid = b->rows * splits < blocks ? b->rows * splits : blocks;
    /* The kernel makes at least so many jobs of a span. */
    const int jobs = grid / (b->spans * splits) > 1 ? grid / (b->spans * splits) : 1;
    const int tiles = t.tiles > 0 ? t.tiles : ((rows + jobs - 1) / jobs * d.group + 7) / 8;
    d.kv = a->kv;
    d.key_bytes = HALF * (int)kvq_row_bytes(kvq_of(a->kv, 0));
    d.value_bytes = HALF * (int)kvq_row_bytes(kvq_of(a->kv, 1));
    d.slot_bytes = d.key_bytes > d.value_bytes ? d.key_bytes : d.value_bytes;
    if (kvq_packed(kvq_of(a->kv, 0))) {
        return launch_any<AT_PACKED>(c, &d, limit, tiles, grid, &t);
    }
    return a->kv == BE_KV_F8 ? launch_any<AT_F8>(c, &d, limit, tiles, grid, &t)
                             : launch_any<AT_F16>(c, &d, limit, tiles, grid, &t);
}

extern "C" int cu_attn_decode(struct cu_ctx *c, const struct cu_batch *b, const struct cu_attn *a)
{
    const struct attn_tune none = {};
    return attn_decode_tuned(c, b, a, &none);
}
