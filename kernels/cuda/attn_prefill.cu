/*
 * Gated attention of a prefill call: the append of all rows' keys and values, then
 * flash attention of tiles of query rows. Keys are taken in tiles of 64 from
 * position 0 up, in ascending order, with the same operations on every row whatever
 * tile of queries it lies in: a tile that a row may not see has no effect on it, bit
 * for bit.
 */
#include <stddef.h>

#include "kernels/cuda/attn_kv.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

enum {
    KEYS = 64,
    TILE = 4 * AT_BLOCK, /* 64 rows of 256 halves */
    TILE_F8 = 2 * AT_BLOCK,
    ROWS90 = 128 /* query rows of a block on sm_90 */
};

struct prefill_args {
    struct attn_in in;
    const int32_t *count;
    const struct cu_span *span;
    const int32_t *page;
    uint16_t *xt;
    enum be_kv kv;
};

/* ---- append ---- */

template <int F8>
__global__ void __launch_bounds__(256)
    append_kernel(const struct prefill_args a, const int32_t *span_of, const int32_t *pos)
{
    const int lane = threadIdx.x % 32;
    const int i = (int)blockIdx.x * 8 + (int)threadIdx.x / 32;
    const int row = i / (2 * a.in.kv_heads), head = i / 2 % a.in.kv_heads, which = i % 2;
    pdl_launch();
    pdl_wait();
    if (row >= a.count[0]) {
        return;
    }
    float x[8];
    load8(a.in.proj + (size_t)row * a.in.ld + (which ? a.in.col_v : a.in.col_k) + head * AT_D +
              8 * lane,
          x);
    if (which == 0) {
        norm_rotate(x, a.in.k_norm, a.in.rot + (size_t)row * BE_ROT_DIM, a.in.eps, lane);
    }
    const int p = pos[row];
    const int page = a.page[a.span[span_of[row]].page + p / BE_PAGE];
    if (F8 == AT_PACKED) {
        const struct kv_lane v = kv_encode(kvq_of(a.kv, which), kv_row_of(x), lane);
        kv_put(a.kv, which, kv_tile(a.in, a.kv, page, which, head, p % BE_PAGE), p % KEYS, lane, v);
    } else {
        store_kv<F8 == AT_F8>(kv_head(a.in, page, which, head, F8 ? 256 : 512), p % BE_PAGE, x,
                              lane);
    }
}

/* ---- a block's tile of queries ---- */

struct place {
    int head, row, n, pos, page; /* n rows from `row`, the first at position pos */
    int tiles;                   /* of keys */
};

/* The heads of one tile are neighbours, so that keys come from L2; tiles with many
 * keys (the last) come first. False: no tile for this block. */
static __device__ __forceinline__ bool find_place(const struct prefill_args &a, int rows,
                                                  struct place *p)
{
    const int spans = a.count[1];
    int total = 0;
    for (int i = 0; i < spans; i++) {
        total += (a.span[i].n + rows - 1) / rows;
    }
    int t = total - 1 - (int)blockIdx.x / a.in.q_heads;
    if (t < 0) {
        return false;
    }
    for (int i = 0; i < spans; i++) {
        const struct cu_span s = a.span[i];
        const int n = (s.n + rows - 1) / rows;
        if (t < n) {
            p->head = (int)blockIdx.x % a.in.q_heads;
            p->row = s.first + t * rows;
            p->n = s.n - t * rows < rows ? s.n - t * rows : rows;
            p->pos = s.pos + t * rows;
            p->page = s.page;
            p->tiles = (p->pos + p->n - 1) / KEYS + 1;
            return true;
        }
        t -= n;
    }
    return false;
}

/* A tile of keys (values) of 64: its first byte in the cache. */
static __device__ __forceinline__ const uint8_t *tile_at(const struct prefill_args &a,
                                                         const struct place &p, int tile, int which,
                                                         int row_bytes)
{
    const int page = a.page[p.page + tile / (BE_PAGE / KEYS)];
    return kv_head(a.in, page, which, p.head / (a.in.q_heads / a.in.kv_heads), row_bytes) +
           tile % (BE_PAGE / KEYS) * KEYS * row_bytes;
}

/* The same of packed ones. */
static __device__ __forceinline__ const uint8_t *packed_at(const struct prefill_args &a,
                                                           const struct place &p, int tile,
                                                           int which)
{
    const int page = a.page[p.page + tile / (BE_PAGE / KEYS)];
    return kv_tile(a.in, a.kv, page, which, p.head / (a.in.q_heads / a.in.kv_heads),
                   tile % (BE_PAGE / KEYS) * KEYS);
}

static __device__ __forceinline__ int packed_bytes(const struct prefill_args &a, int which)
{
    return KEYS * (int)kvq_row_bytes(kvq_of(a.kv, which));
}

/* Packed keys (values) of a tile as fp16, by n threads; rows that do not exist are zeros. */
static __device__ __forceinline__ void widen_packed(const struct prefill_args &a, int which,
                                                    unsigned char *to, const unsigned char *from,
                                                    int rows, int tid, int n)
{
    const enum kvq_kind k = kvq_of(a.kv, which);
#pragma unroll 1
    for (int i = tid; i < TILE / 16; i += n) {
        /* Neighbours in a row of keys, and in a plane's line of values. */
        const int r = which ? i % KEYS : i / 32, u = which ? i / KEYS : i % 32;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (r < rows) {
            v = which ? kv_value8(k, from, r, u) : kv_key8(k, from, r, u);
        }
        *(uint4 *)(to + kv_unit(r, u, 512)) = v;
    }
}

/* Rows of the tile that exist. */
static __device__ __forceinline__ int tile_rows(const struct place &p, int tile)
{
    const int n = p.pos + p.n - tile * KEYS;
    return n < KEYS ? n : KEYS;
}

/* A warp's 16 rows of queries, from row `first` of the block's tile. */
template <bool PERMUTED, bool PACKED>
static __device__ __forceinline__ void load_queries(const struct prefill_args &a,
                                                    const struct place &p, unsigned char *q,
                                                    int first, int lane)
{
#pragma unroll 8
    for (int i = first; i < first + 16; i++) {
        float x[8] = {};
        if (i < p.n) {
            const size_t row = (size_t)(p.row + i);
            load8(a.in.proj + row * a.in.ld + a.in.col_q + p.head * 2 * AT_D + 8 * lane, x);
            norm_rotate(x, a.in.q_norm, a.in.rot + row * BE_ROT_DIM, a.in.eps, lane);
        }
        if (PACKED) {
            kv_turn(kvq_of(a.kv, 0), false, x, lane);
        }
        store_q<PERMUTED>(q, i, x, lane);
    }
}

/* Running softmax of a warp's 16 rows: a lane has rows g and g + 8. */
struct soft {
    float m[2], l[2]; /* maximum score, sum of weights of this lane's columns */
    int pos[2];
};

/*
 * Scores s (tile n of 8 keys: s[4 n ..], as an MMA leaves them) become weights;
 * c is what the sums before are multiplied by: exactly 1 when nothing is seen.
 * key: position of the lane's first column.
 */
static __device__ __forceinline__ void soften(float *s, struct soft *f, float *c, bool masked,
                                              int key)
{
    if (masked) {
#pragma unroll
        for (int i = 0; i < 32; i++) {
            s[i] = key + i / 4 * 8 + i % 2 > f->pos[i / 2 % 2] ? -INFINITY : s[i];
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float m = f->m[r];
#pragma unroll
        for (int n = 0; n < 8; n++) {
            m = fmaxf(m, fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
        }
        m = fmaxf(m, __shfl_xor_sync(AT_ALL, m, 1));
        m = fmaxf(m, __shfl_xor_sync(AT_ALL, m, 2));
        const float top = __fmul_rn(m, AT_SCALE);
        c[r] = ex2_approx(__fsub_rn(__fmul_rn(f->m[r], AT_SCALE), top));
        f->m[r] = m;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < 8; n++) {
            float *p = s + 4 * n + 2 * r;
            p[0] = ex2_approx(fmaf(p[0], AT_SCALE, -top));
            p[1] = ex2_approx(fmaf(p[1], AT_SCALE, -top));
            sum = __fadd_rn(sum, __fadd_rn(p[0], p[1]));
        }
        f->l[r] = fmaf(f->l[r], c[r], sum);
    }
}

/* The A fragments of the weights: 4 registers for every 16 keys. */
static __device__ __forceinline__ void pack_weights(const float *s, uint32_t *p)
{
#pragma unroll
    for (int i = 0; i < 16; i++) {
        p[i] = f16x2_of_f32(s[2 * i], s[2 * i + 1]);
    }
}

static __device__ __forceinline__ void rescale(float *o, const float *c)
{
#pragma unroll
    for (int i = 0; i < 128; i++) {
        o[i] = __fmul_rn(o[i], c[i / 2 % 2]);
    }
}

static __device__ __forceinline__ void soft_start(struct soft *f, const struct place &p, int first,
                                                  int lane)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int i = first + lane / 4 + 8 * r;
        f->m[r] = -INFINITY;
        f->l[r] = 0;
        f->pos[r] = p.pos + (i < p.n ? i : p.n - 1);
    }
}

/* Row i of a tile's results in q: turned back, and gated. */
static __device__ __forceinline__ void turn_back_row(const struct prefill_args &a,
                                                     const struct place &p, unsigned char *q, int i,
                                                     int lane)
{
    uint4 *at = (uint4 *)(q + q_unit(i, lane));
    const uint4 v = *at;
    const uint32_t h[4] = {v.x, v.y, v.z, v.w};
    float x[8], gate[8];
    load8(a.in.proj + (size_t)(p.row + i) * a.in.ld + a.in.col_q + p.head * 2 * AT_D + AT_D +
              8 * lane,
          gate);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const float2 two = halves(h[j]);
        x[2 * j] = two.x;
        x[2 * j + 1] = two.y;
    }
    kv_turn(kvq_of(a.kv, 1), true, x, lane);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        x[j] = __fmul_rn(x[j], at_sigmoid(gate[j]));
    }
    *at = pack_f16(x);
}

/*
 * o / l * sigmoid(gate) of a warp's 16 rows to xt, by way of the shared memory that
 * held their queries (q). Tile n of 8 elements: o[4 n ..]; with SPREAD tiles 2 u and
 * 2 u + 1 are the even and the odd elements of 16. PACKED: turned back before the gate.
 */
template <bool SPREAD, bool PACKED>
static __device__ __forceinline__ void write_rows(const struct prefill_args &a,
                                                  const struct place &p, const float *o,
                                                  struct soft *f, unsigned char *q, int first,
                                                  int lane)
{
    const int g = lane / 4, t = lane % 4;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float l = f->l[r];
        l = __fadd_rn(l, __shfl_xor_sync(AT_ALL, l, 1));
        l = __fadd_rn(l, __shfl_xor_sync(AT_ALL, l, 2));
        const float inv = 1 / l;
        const int i = first + g + 8 * r;
        if (i < p.n) {
            const float *gate =
                a.in.proj + (size_t)(p.row + i) * a.in.ld + a.in.col_q + p.head * 2 * AT_D + AT_D;
#pragma unroll
            for (int n0 = 0; n0 < 32; n0 += 8) {
                /* 4 elements of each 16 of 64: their places, and their gates at once */
                int d[8];
                float2 y[8];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    d[2 * k] = 8 * (n0 + 2 * k) + (SPREAD ? 4 * t : 2 * t);
                    d[2 * k + 1] = d[2 * k] + (SPREAD ? 2 : 8);
                    if (!PACKED) {
                        y[2 * k] = __ldcg((const float2 *)(gate + d[2 * k]));
                        y[2 * k + 1] = __ldcg((const float2 *)(gate + d[2 * k + 1]));
                    }
                }
#pragma unroll
                for (int k = 0; k < 8; k++) {
                    const float *at = o + 4 * (n0 + k / 2 * 2) + 2 * r;
                    float v0 = SPREAD ? at[k % 2] : at[k % 2 * 4];
                    float v1 = SPREAD ? at[4 + k % 2] : at[k % 2 * 4 + 1];
                    v0 = __fadd_rn(__fmul_rn(v0, inv), 0.0f);
                    v1 = __fadd_rn(__fmul_rn(v1, inv), 0.0f);
                    if (!PACKED) {
                        v0 = __fmul_rn(v0, at_sigmoid(y[k].x));
                        v1 = __fmul_rn(v1, at_sigmoid(y[k].y));
                    }
                    *(uint32_t *)(q + q_unit(i, d[k] / 8) + d[k] % 8 * 2) = f16x2_of_f32(v0, v1);
                }
            }
        }
    }
    __syncwarp();
    if (PACKED) {
#pragma unroll 1
        for (int i = first; i < first + 16 && i < p.n; i++) {
            turn_back_row(a, p, q, i, lane);
        }
        __syncwarp();
    }
    const int k64 = a.in.q_heads * (AT_D / 64), unit = lane % 8;
#pragma unroll 4
    for (int i = 0; i < 16; i++) {
        const int r = first + i % 4 * 4 + lane / 8, chunk = i / 4;
        if (r < p.n) {
            /* Unit v of a row's 64 elements: pairs at 16 j + 2 v. */
            uint32_t v[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int d = 64 * chunk + 16 * j + 2 * unit;
                v[j] = *(const uint32_t *)(q + q_unit(r, d / 8) + d % 8 * 2);
            }
            const int row = p.row + r;
            const size_t block =
                (size_t)(row / 128) * (size_t)k64 + (size_t)(p.head * (AT_D / 64) + chunk);
            uint16_t *to = a.xt + block * 8192 + row % 128 * 64 + ((unit ^ row) & 7) * 8;
            *(uint4 *)to = make_uint4(v[0], v[1], v[2], v[3]);
        }
    }
}

/* ---- sm_80: mma.sync, cp.async ---- */

/* Starts the copy of a tile; rows that do not exist become zeros. */
template <int ROW_BYTES, int N>
static __device__ __forceinline__ void copy_tile(uint32_t dst, const uint8_t *src, int rows,
                                                 int tid)
{
#pragma unroll
    for (int i = 0; i < KEYS * ROW_BYTES / 16 / N; i++) {
        const int u = i * N + tid;
        cp_async16_if(dst + 16 * (uint32_t)u, src + 16 * (size_t)u, u % 512 / 8 < rows);
    }
    cp_async_commit();
}

/* s = 16 queries * 64 keys. */
template <int F8>
static __device__ __forceinline__ void scores80(float *s, uint32_t q, uint32_t k, int first,
                                                int lane)
{
#pragma unroll
    for (int i = 0; i < 32; i++) {
        s[i] = 0;
    }
    const int row = first + (lane & 15);
#pragma unroll 4
    for (int step = 0; step < 16; step++) {
        uint32_t f[4];
        ldmatrix_x4(f, q + q_unit(row, 2 * step + (lane >> 4)));
        if (F8) {
#pragma unroll
            for (int n = 0; n < 8; n += 4) {
                uint32_t b[4];
                ldmatrix_x4(b, k + kv_unit(8 * n + lane, step, 256));
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    uint32_t lo, hi;
                    f8_pairs(b[i], &lo, &hi);
                    mma_f16(s + 4 * (n + i), f, lo, hi, s + 4 * (n + i));
                }
            }
        } else {
#pragma unroll
            for (int n = 0; n < 8; n += 2) {
                uint32_t b[4];
                ldmatrix_x4(b, k + kv_unit(8 * n + (lane & 7) + (lane >> 4) * 8,
                                           2 * step + (lane >> 3 & 1), 512));
                mma_f16(s + 4 * n, f, b[0], b[1], s + 4 * n);
                mma_f16(s + 4 * n + 4, f, b[2], b[3], s + 4 * n + 4);
            }
        }
    }
}

/* o += weights of 64 keys * values. */
template <int F8>
static __device__ __forceinline__ void values80(float *o, const uint32_t *p, uint32_t v, int lane)
{
#pragma unroll
    for (int step = 0; step < 4; step++) {
        const int key = 16 * step + (lane & 15);
#pragma unroll
        for (int n = 0; n < 32; n += F8 ? 4 : 2) {
            uint32_t b[4];
            const int u = n / 2 * (F8 ? 1 : 2) + (lane >> 4);
            ldmatrix_x4_trans(b, v + kv_unit(key, u, F8 ? 256 : 512));
            if (F8) {
                uint32_t e[2][2], d[2][2]; /* even, odd elements of two units */
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    f8_even_odd(b[i], &e[i / 2][i % 2], &d[i / 2][i % 2]);
                }
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float *to = o + 4 * n + 8 * i;
                    mma_f16(to, p + 4 * step, e[i][0], e[i][1], to);
                    mma_f16(to + 4, p + 4 * step, d[i][0], d[i][1], to + 4);
                }
            } else {
                mma_f16(o + 4 * n, p + 4 * step, b[0], b[1], o + 4 * n);
                mma_f16(o + 4 * n + 4, p + 4 * step, b[2], b[3], o + 4 * n + 4);
            }
        }
    }
}

/* 16 rows of queries for each warp; values of a tile arrive during its scores, the
 * next keys during its sum. */
template <int F8, int WARPS>
__global__ void __launch_bounds__(WARPS * 32, 1) prefill_sm80(const struct prefill_args a)
{
    constexpr int row_bytes = F8 ? 256 : 512;
    unsigned char *q = cu_smem();
    const uint32_t q_at = smem_addr(q), k_at = q_at + WARPS * 16 * 512;
    const uint32_t v_at = k_at + KEYS * row_bytes;
    const int tid = threadIdx.x, lane = tid % 32, first = tid / 32 * 16;
    struct place p;
    pdl_launch();
    pdl_wait();
    if (!find_place(a, WARPS * 16, &p)) {
        return;
    }
    copy_tile<row_bytes, WARPS * 32>(k_at, tile_at(a, p, 0, 0, row_bytes), tile_rows(p, 0), tid);
    load_queries<F8 == AT_F8, false>(a, p, q, first, lane);
    struct soft f;
    soft_start(&f, p, first, lane);
    float o[128];
#pragma unroll
    for (int i = 0; i < 128; i++) {
        o[i] = 0;
    }
    /* Of the warp: its first position, and the last, beyond which it sees nothing. */
    const int low = p.pos + first;
    const int high = p.pos + (first + 15 < p.n ? first + 15 : p.n - 1);
#pragma unroll 1
    for (int j = 0; j < p.tiles; j++) {
        const bool seen = j * KEYS <= high;
        float s[32], c[2];
        uint32_t w[16];
        cp_async_wait<0>();
        __syncthreads();
        copy_tile<row_bytes, WARPS * 32>(v_at, tile_at(a, p, j, 1, row_bytes), tile_rows(p, j),
                                         tid);
        if (seen) {
            scores80<F8>(s, q_at, k_at, first, lane);
            soften(s, &f, c, j * KEYS + KEYS - 1 > low, j * KEYS + 2 * (lane % 4));
            pack_weights(s, w);
        }
        cp_async_wait<0>();
        __syncthreads();
        if (j + 1 < p.tiles) {
            copy_tile<row_bytes, WARPS * 32>(k_at, tile_at(a, p, j + 1, 0, row_bytes),
                                             tile_rows(p, j + 1), tid);
        }
        if (seen) {
            rescale(o, c);
            values80<F8>(o, w, v_at, lane);
        }
    }
    write_rows<F8 == AT_F8, false>(a, p, o, &f, q, first, lane);
}

/* Starts the copy of a packed tile. */
template <int N>
static __device__ __forceinline__ void copy_packed(const struct prefill_args &a,
                                                   const struct place &p, uint32_t dst, int tile,
                                                   int which, int tid)
{
    const uint8_t *src = packed_at(a, p, tile, which);
    for (int i = tid; i < packed_bytes(a, which) / 16; i += N) {
        cp_async16(dst + 16 * (uint32_t)i, src + 16 * i);
    }
    cp_async_commit();
}

/* Packed tiles arrive in stages, keys and values in turn, and become fp16 in one place: a
 * tile's values arrive during its scores, the next keys during its sum. */
template <int WARPS>
__global__ void __launch_bounds__(WARPS * 32, 1) prefill_packed80(const struct prefill_args a)
{
    constexpr int threads = WARPS * 32;
    unsigned char *q = cu_smem(), *wide = q + WARPS * 16 * 512, *keys = wide + TILE;
    unsigned char *values = keys + packed_bytes(a, 0);
    const uint32_t q_at = smem_addr(q), wide_at = smem_addr(wide);
    const int tid = threadIdx.x, lane = tid % 32, first = tid / 32 * 16;
    struct place p;
    pdl_launch();
    pdl_wait();
    if (!find_place(a, WARPS * 16, &p)) {
        return;
    }
    copy_packed<threads>(a, p, smem_addr(keys), 0, 0, tid);
    copy_packed<threads>(a, p, smem_addr(values), 0, 1, tid);
    load_queries<false, true>(a, p, q, first, lane);
    struct soft f;
    soft_start(&f, p, first, lane);
    float o[128];
#pragma unroll
    for (int i = 0; i < 128; i++) {
        o[i] = 0;
    }
    const int low = p.pos + first;
    const int high = p.pos + (first + 15 < p.n ? first + 15 : p.n - 1);
#pragma unroll 1
    for (int j = 0; j < p.tiles; j++) {
        const bool seen = j * KEYS <= high;
        float s[32], c[2];
        uint32_t w[16];
        cp_async_wait<1>();
        __syncthreads();
        widen_packed(a, 0, wide, keys, tile_rows(p, j), tid, threads);
        __syncthreads();
        if (j + 1 < p.tiles) {
            copy_packed<threads>(a, p, smem_addr(keys), j + 1, 0, tid);
        }
        if (seen) {
            scores80<AT_F16>(s, q_at, wide_at, first, lane);
            soften(s, &f, c, j * KEYS + KEYS - 1 > low, j * KEYS + 2 * (lane % 4));
            pack_weights(s, w);
        }
        if (j + 1 < p.tiles) {
            cp_async_wait<1>();
        } else {
            cp_async_wait<0>();
        }
        __syncthreads();
        widen_packed(a, 1, wide, values, tile_rows(p, j), tid, threads);
        __syncthreads();
        if (j + 1 < p.tiles) {
            copy_packed<threads>(a, p, smem_addr(values), j + 1, 1, tid);
        }
        if (seen) {
            rescale(o, c);
            values80<AT_F16>(o, w, wide_at, lane);
        }
    }
    write_rows<false, true>(a, p, o, &f, q, first, lane);
}

/* ---- sm_90: wgmma, bulk copies ---- */

/* One of two slots for tiles of keys, and of values; a tile's copy is announced on
 * full, its last read on empty. stage: fp8 tiles on their way. */
struct bars90 {
    uint64_t k_full[2], k_empty[2], v_full[2], v_empty[2], stage[2];
};

enum {
    Q90 = ROWS90 / 64 * TILE,
    K90 = Q90,
    V90 = K90 + 2 * TILE,
    STAGE90 = V90 + 2 * TILE,
    PRODUCER90 = 128 /* threads */
};

static __device__ __forceinline__ void zero_rows(unsigned char *tile, int rows, int tid, int n)
{
    for (int i = tid; i < TILE / 16; i += n) {
        if (i % 512 / 8 >= rows) {
            *(uint4 *)(tile + 16 * i) = make_uint4(0, 0, 0, 0);
        }
    }
}

static __device__ __forceinline__ void bulk_tile(uint32_t dst, const uint8_t *src, int rows,
                                                 int blocks, uint32_t bar)
{
    mbar_arrive_expect(bar, (uint32_t)(rows * 128 * blocks));
    if (rows == KEYS) {
        bulk_load(dst, src, (uint32_t)(blocks * AT_BLOCK), bar);
    } else {
        for (int i = 0; i < blocks; i++) {
            bulk_load(dst + (uint32_t)(i * AT_BLOCK), src + i * AT_BLOCK, (uint32_t)rows * 128,
                      bar);
        }
    }
}

/* One warp: tiles as they are. */
static __device__ __forceinline__ void produce(const struct prefill_args &a, const struct place &p,
                                               unsigned char *mem, struct bars90 *b, int lane)
{
    const uint32_t at = smem_addr(mem);
    for (int j = 0; j < p.tiles; j++) {
        const int slot = j % 2, rows = tile_rows(p, j);
        const uint32_t again = (uint32_t)(j / 2 + 1) & 1;
        mbar_wait(smem_addr(&b->k_empty[slot]), again);
        if (lane == 0) {
            bulk_tile(at + K90 + slot * TILE, tile_at(a, p, j, 0, 512), rows, 4,
                      smem_addr(&b->k_full[slot]));
        }
        mbar_wait(smem_addr(&b->v_empty[slot]), again);
        if (rows < KEYS) {
            zero_rows(mem + V90 + slot * TILE, rows, lane, 32);
            fence_proxy_async();
        }
        __syncwarp();
        if (lane == 0) {
            bulk_tile(at + V90 + slot * TILE, tile_at(a, p, j, 1, 512), rows, 4,
                      smem_addr(&b->v_full[slot]));
        }
        __syncwarp();
    }
}

/* fp8: four warps turn tiles from a stage into fp16. */
static __device__ __forceinline__ void stage90(const struct prefill_args &a, const struct place &p,
                                               uint32_t at, struct bars90 *b, int n)
{
    if (n < 2 * p.tiles) {
        bulk_tile(at + STAGE90 + n % 2 * TILE_F8, tile_at(a, p, n / 2, n % 2, 256),
                  tile_rows(p, n / 2), 2, smem_addr(&b->stage[n % 2]));
    }
}

static __device__ __forceinline__ void widen(const struct prefill_args &a, const struct place &p,
                                             unsigned char *mem, struct bars90 *b, int tid)
{
    const uint32_t at = smem_addr(mem);
    if (tid == 0) {
        stage90(a, p, at, b, 0);
        stage90(a, p, at, b, 1);
    }
    for (int n = 0; n < 2 * p.tiles; n++) {
        const int j = n / 2, which = n % 2, slot = j % 2, rows = tile_rows(p, j);
        unsigned char *to = mem + (which ? V90 : K90) + slot * TILE;
        const unsigned char *from = mem + STAGE90 + which * TILE_F8;
        mbar_wait(smem_addr(which ? &b->v_empty[slot] : &b->k_empty[slot]),
                  (uint32_t)(j / 2 + 1) & 1);
        mbar_wait(smem_addr(&b->stage[which]), (uint32_t)j & 1);
#pragma unroll 2
        for (int i = tid; i < TILE_F8 / 16; i += PRODUCER90) {
            const int row = i % 512 / 8, u = i / 512 * 8 + ((i ^ row) & 7); /* 16 elements */
            uint4 lo = make_uint4(0, 0, 0, 0), hi = lo;
            if (row < rows) {
                const uint4 v = *(const uint4 *)(from + 16 * i);
                f8_pairs(v.x, &lo.x, &lo.y);
                f8_pairs(v.y, &lo.z, &lo.w);
                f8_pairs(v.z, &hi.x, &hi.y);
                f8_pairs(v.w, &hi.z, &hi.w);
            }
            *(uint4 *)(to + kv_unit(row, 2 * u, 512)) = lo;
            *(uint4 *)(to + kv_unit(row, 2 * u + 1, 512)) = hi;
        }
        fence_proxy_async();
        bar_sync(1, PRODUCER90);
        if (tid == 0) {
            mbar_arrive(smem_addr(which ? &b->v_full[slot] : &b->k_full[slot]));
            stage90(a, p, at, b, n + 2);
        }
    }
}

/* The same of packed tiles. */
static __device__ __forceinline__ void stage_packed(const struct prefill_args &a,
                                                    const struct place &p, uint32_t at,
                                                    struct bars90 *b, int n)
{
    if (n < 2 * p.tiles) {
        const uint32_t bytes = (uint32_t)packed_bytes(a, n % 2), bar = smem_addr(&b->stage[n % 2]);
        mbar_arrive_expect(bar, bytes);
        bulk_load(at + STAGE90 + (n % 2 ? (uint32_t)packed_bytes(a, 0) : 0),
                  packed_at(a, p, n / 2, n % 2), bytes, bar);
    }
}

static __device__ __forceinline__ void widen_all(const struct prefill_args &a,
                                                 const struct place &p, unsigned char *mem,
                                                 struct bars90 *b, int tid)
{
    const uint32_t at = smem_addr(mem);
    if (tid == 0) {
        stage_packed(a, p, at, b, 0);
        stage_packed(a, p, at, b, 1);
    }
#pragma unroll 1
    for (int n = 0; n < 2 * p.tiles; n++) {
        const int j = n / 2, which = n % 2, slot = j % 2;
        mbar_wait(smem_addr(which ? &b->v_empty[slot] : &b->k_empty[slot]),
                  (uint32_t)(j / 2 + 1) & 1);
        mbar_wait(smem_addr(&b->stage[which]), (uint32_t)j & 1);
        widen_packed(a, which, mem + (which ? V90 : K90) + slot * TILE,
                     mem + STAGE90 + (which ? packed_bytes(a, 0) : 0), tile_rows(p, j), tid,
                     PRODUCER90);
        fence_proxy_async();
        bar_sync(1, PRODUCER90);
        if (tid == 0) {
            mbar_arrive(smem_addr(which ? &b->v_full[slot] : &b->k_full[slot]));
            stage_packed(a, p, at, b, n + 2);
        }
    }
}

static __device__ __forceinline__ void scores90(float *s, uint32_t q, uint32_t k)
{
    const uint64_t dq = wgmma_desc(q), dk = wgmma_desc(k);
    wgmma_touch<32>(s);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const uint64_t at = (uint64_t)(i / 4 * (AT_BLOCK / 16) + i % 4 * WGMMA_K16);
        wgmma_ss<64>(s, dq + at, dk + at, i > 0);
    }
    wgmma_commit();
}

static __device__ __forceinline__ void values90(float *o, uint32_t *w, uint32_t v)
{
    const uint64_t dv = wgmma_desc_t(v, AT_BLOCK);
    wgmma_touch<128>(o);
    wgmma_touch_a<16>(w);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        wgmma_rs<256, 1>(o, w + 4 * i, dv + (uint64_t)(i * WGMMA_T_K16), 1);
    }
    wgmma_commit();
}

static __device__ __forceinline__ void arrive_warp(uint64_t *bar, int lane)
{
    __syncwarp();
    if (lane == 0) {
        mbar_arrive(smem_addr(bar));
    }
}

/* A warpgroup's 64 rows. The products of the next tile's scores and of this tile's
 * sum run one behind the other; the next softmax runs beside the sum. */
template <bool PACKED>
static __device__ __forceinline__ void consume(const struct prefill_args &a, const struct place &p,
                                               unsigned char *mem, struct bars90 *b, int tid)
{
    const int lane = tid % 32, group = tid / 128, first = tid / 32 * 16;
    const uint32_t at = smem_addr(mem), q = at + (uint32_t)(group * TILE);
    load_queries<false, PACKED>(a, p, mem, first, lane);
    fence_proxy_async();
    bar_sync(2 + group, 128);
    struct soft f;
    soft_start(&f, p, first, lane);
    float o[128], s[32], c[2];
    uint32_t w[16];
#pragma unroll
    for (int i = 0; i < 128; i++) {
        o[i] = 0;
    }
    /* Tiles that the warpgroup sees. */
    const int rows = p.n - 64 * group < 64 ? p.n - 64 * group : 64;
    const int tiles = rows > 0 ? (p.pos + 64 * group + rows - 1) / KEYS + 1 : 0;
    const int low = p.pos + first, column = 2 * (lane % 4);
    if (tiles > 0) {
        mbar_wait(smem_addr(&b->k_full[0]), 0);
        scores90(s, q, at + K90);
        wgmma_wait<0>();
        wgmma_touch<32>(s);
        arrive_warp(&b->k_empty[0], lane);
        soften(s, &f, c, KEYS - 1 > low, column);
        pack_weights(s, w);
#pragma unroll 1
        for (int j = 1; j < tiles; j++) {
            const int slot = j % 2, last = (j - 1) % 2;
            mbar_wait(smem_addr(&b->k_full[slot]), (uint32_t)(j / 2) & 1);
            scores90(s, q, at + K90 + (uint32_t)(slot * TILE));
            mbar_wait(smem_addr(&b->v_full[last]), (uint32_t)((j - 1) / 2) & 1);
            values90(o, w, at + V90 + (uint32_t)(last * TILE));
            wgmma_wait<1>();
            wgmma_touch<32>(s);
            arrive_warp(&b->k_empty[slot], lane);
            soften(s, &f, c, j * KEYS + KEYS - 1 > low, j * KEYS + column);
            wgmma_wait<0>();
            wgmma_touch<128>(o);
            wgmma_touch_a<16>(w);
            arrive_warp(&b->v_empty[last], lane);
            pack_weights(s, w);
            rescale(o, c);
        }
        const int last = (tiles - 1) % 2;
        mbar_wait(smem_addr(&b->v_full[last]), (uint32_t)((tiles - 1) / 2) & 1);
        values90(o, w, at + V90 + (uint32_t)(last * TILE));
        wgmma_wait<0>();
        wgmma_touch<128>(o);
        arrive_warp(&b->v_empty[last], lane);
    }
    for (int j = tiles; j < p.tiles; j++) { /* only the other warpgroup's */
        mbar_wait(smem_addr(&b->k_full[j % 2]), (uint32_t)(j / 2) & 1);
        arrive_warp(&b->k_empty[j % 2], lane);
        mbar_wait(smem_addr(&b->v_full[j % 2]), (uint32_t)(j / 2) & 1);
        arrive_warp(&b->v_empty[j % 2], lane);
    }
    bar_sync(2 + group, 128); /* all have read the queries */
    write_rows<false, PACKED>(a, p, o, &f, mem, first, lane);
}

template <int F8>
__global__ void __launch_bounds__(PRODUCER90 + 256, 1) prefill_sm90(const struct prefill_args a)
{
    unsigned char *mem = cu_smem_aligned(1024);
    struct bars90 *bars = (struct bars90 *)(mem + STAGE90 + (F8 ? 2 * TILE_F8 : 0));
    const int tid = threadIdx.x;
    struct place p;
    pdl_launch();
    pdl_wait();
    if (!find_place(a, ROWS90, &p)) {
        return;
    }
    if (tid == 0) {
        for (int i = 0; i < 2; i++) {
            mbar_init(smem_addr(&bars->k_full[i]), 1);
            mbar_init(smem_addr(&bars->v_full[i]), 1);
            mbar_init(smem_addr(&bars->k_empty[i]), 8);
            mbar_init(smem_addr(&bars->v_empty[i]), 8);
            mbar_init(smem_addr(&bars->stage[i]), 1);
        }
        mbar_fence_init();
    }
    __syncthreads();
    if (tid < PRODUCER90) {
        regs_dec<40>();
        if (F8 == AT_PACKED) {
            widen_all(a, p, mem, bars, tid);
        } else if (F8) {
            widen(a, p, mem, bars, tid);
        } else if (tid < 32) {
            produce(a, p, mem, bars, tid);
        }
    } else {
        regs_inc<232>();
        consume<F8 == AT_PACKED>(a, p, mem, bars, tid - PRODUCER90);
    }
}

/* ---- launches ---- */

static struct prefill_args args_of(const struct cu_batch *b, const struct cu_attn *a)
{
    struct prefill_args p = {};
    p.in = attn_inputs(b, a);
    p.count = b->count;
    p.span = b->span;
    p.page = b->page;
    p.xt = a->xt;
    p.kv = a->kv;
    return p;
}

static dim3 grid_of(const struct cu_batch *b, const struct cu_attn *a, int rows)
{
    return dim3((unsigned)((b->rows / rows + b->spans) * a->q_heads));
}

template <int F8, int WARPS>
static cudaError_t launch80(struct cu_ctx *c, const struct cu_batch *b, const struct cu_attn *a)
{
    const size_t smem = WARPS * 16 * 512 + 2 * KEYS * (F8 ? 256 : 512);
    return cu_launch(c, "prefill attention (mma)", prefill_sm80<F8, WARPS>,
                     grid_of(b, a, WARPS * 16), dim3(WARPS * 32), smem, args_of(b, a));
}

template <int WARPS>
static cudaError_t launch_packed80(struct cu_ctx *c, const struct cu_batch *b,
                                   const struct cu_attn *a)
{
    const size_t tiles = KEYS * be_kv_bytes(a->kv, 1);
    return cu_launch(c, "prefill attention (mma, packed)", prefill_packed80<WARPS>,
                     grid_of(b, a, WARPS * 16), dim3(WARPS * 32), WARPS * 16 * 512 + TILE + tiles,
                     args_of(b, a));
}

template <int F8>
static cudaError_t launch90(struct cu_ctx *c, const struct cu_batch *b, const struct cu_attn *a)
{
    const size_t smem = STAGE90 + (F8 ? 2 * TILE_F8 : 0) + sizeof(struct bars90) + 1024 - 128;
    return cu_launch(c, "prefill attention (wgmma)", prefill_sm90<F8>, grid_of(b, a, ROWS90),
                     dim3(PRODUCER90 + 256), smem, args_of(b, a));
}

} // namespace

cudaError_t attn_append(struct cu_ctx *c, const struct cu_batch *b, const struct cu_attn *a)
{
    const unsigned grid = (unsigned)(b->rows * a->kv_heads + 3) / 4;
    if (kvq_packed(kvq_of(a->kv, 0))) {
        return cu_launch(c, "append to the packed cache", append_kernel<AT_PACKED>, dim3(grid),
                         dim3(256), 0, args_of(b, a), b->span_of, b->pos);
    }
    return a->kv == BE_KV_F8
               ? cu_launch(c, "append to the fp8 cache", append_kernel<AT_F8>, dim3(grid),
                           dim3(256), 0, args_of(b, a), b->span_of, b->pos)
               : cu_launch(c, "append to the fp16 cache", append_kernel<AT_F16>, dim3(grid),
                           dim3(256), 0, args_of(b, a), b->span_of, b->pos);
}

extern "C" int cu_attn_prefill(struct cu_ctx *c, const struct cu_batch *b, const struct cu_attn *a)
{
    cudaError_t rc = attn_check(a);
    rc = rc != cudaSuccess ? rc : attn_append(c, b, a);
    if (rc != cudaSuccess || a->kv_only) {
        return rc;
    }
    const bool f8 = a->kv == BE_KV_F8, packed = kvq_packed(kvq_of(a->kv, 0));
    if (c->path == CU_SM90) {
        return packed ? launch90<AT_PACKED>(c, b, a)
               : f8   ? launch90<true>(c, b, a)
                      : launch90<false>(c, b, a);
    }
    int limit = 0;
    rc = attn_smem_limit(c, &limit);
    if (rc != cudaSuccess) {
        return rc;
    }
    if (packed) {
        return limit >= 130 << 10 ? launch_packed80<8>(c, b, a) : launch_packed80<4>(c, b, a);
    }
    if (limit >= 130 << 10) {
        return f8 ? launch80<true, 8>(c, b, a) : launch80<false, 8>(c, b, a);
    }
    return f8 ? launch80<true, 4>(c, b, a) : launch80<false, 4>(c, b, a);
}
