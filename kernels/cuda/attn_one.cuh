#ifndef QUASAR_KERNELS_CUDA_ATTN_ONE_CUH
#define QUASAR_KERNELS_CUDA_ATTN_ONE_CUH

/*
 * Decode attention with one tile of 8 queries (a row of 6 heads) on Hopper; included by
 * attn_decode.cu alone. A block's warps have roles, so that latencies of one hide behind the
 * other's work: a filling warp has a ring of keys and a ring of values; four warps make scores
 * and weights of a split, 32 keys each, up to two splits ahead of eight that weigh values, 32
 * elements each, and merge. The bits are those of the kernel for more tiles.
 */

enum {
    KEY_WARPS = 4,
    KEY_TILES = 2, /* of 16 keys, a warp's */
    KEY_THREADS = KEY_WARPS * 32,
    ONE_THREADS = WORKERS + KEY_THREADS + 32,
    ONE_SLOTS = 16
};

/* AT_F16, AT_F8 or AT_PACKED of a format. */
template <int KV> struct one_kind {
    static constexpr int f8 = KV == BE_KV_F16 ? AT_F16 : KV == BE_KV_F8 ? AT_F8 : AT_PACKED;
};

struct alignas(16) shared_one {
    unsigned char q[4096];
    unsigned char p[2][2048];   /* weights of a split: [key][8 queries] fp16 */
    float red[2][KEY_WARPS][8]; /* maxima by warp */
    float top[2][8];            /* maximum of a query so far */
    float scale[2][8];          /* of what was summed under the one before */
    float sum[8];
    int pos[8];                         /* of each query */
    alignas(16) struct kv_scale by[16]; /* of queries of packed formats */
    struct attn_jobs jobs;
    uint64_t full[2][ONE_SLOTS], empty[2][ONE_SLOTS]; /* keys, values */
    uint64_t ready[2], used[2];                       /* weights */
    uint32_t last;
};
/* Behind that, scratch: new rows' K; then their V, or a tile's results. */

static __device__ __forceinline__ struct ring one_ring(const struct decode_args &a,
                                                       struct shared_one *sh, uint32_t slots,
                                                       int which)
{
    return {slots + (uint32_t)(which * a.slots * a.ring_key_bytes),
            smem_addr(sh->full[which]),
            smem_addr(sh->empty[which]),
            a.slots,
            0,
            0};
}

/* All of a slot's rows that were cached before. */
template <int KV>
static __device__ __forceinline__ void one_fill(const uint8_t *src, int n, int bytes,
                                                struct ring *r)
{
    constexpr int F8 = one_kind<KV>::f8;
    constexpr int row_bytes = F8 ? 256 : 512;
    const uint32_t dst = r->base + (uint32_t)(r->slot * bytes), full = r->full + 8 * r->slot;
    mbar_wait(r->empty + 8 * (uint32_t)r->slot, r->phase ^ 1);
    if (n >= HALF || (F8 == AT_PACKED && n > 0)) {
        mbar_arrive_expect(full, (uint32_t)bytes);
        bulk_load(dst, src, (uint32_t)bytes, full);
    } else if (n > 0) {
        mbar_arrive_expect(full, (uint32_t)(n * row_bytes));
#pragma unroll 1
        for (int b = 0; b < bytes; b += AT_BLOCK) {
            bulk_load(dst + (uint32_t)b, src + b, (uint32_t)n * 128, full);
        }
    } else {
        mbar_arrive(full);
    }
    ring_next(r);
}

/* Loads follow each other K, K, V, V; what is on its way is limited, because all that others ask
 * of memory would wait behind it. */
struct one_flight {
    struct ring keys, values;
    int n, part;
};

static __device__ __forceinline__ void one_land(struct one_flight *f, int most)
{
    if (++f->n <= most) {
        return;
    }
    f->n--;
    if (f->part < 2) {
        mbar_wait(f->keys.full + 8 * (uint32_t)f->keys.slot, f->keys.phase);
        ring_next(&f->keys);
    } else {
        mbar_wait(f->values.full + 8 * (uint32_t)f->values.slot, f->values.phase);
        ring_next(&f->values);
    }
    f->part = (f->part + 1) % 4;
}

template <int KV>
static __device__ void one_fills(const struct decode_args &a, struct shared_one *sh, uint32_t slots,
                                 struct attn_place at)
{
    constexpr int F8 = one_kind<KV>::f8;
    struct walk k = walk_from(at);
    struct ring keys = one_ring(a, sh, slots, 0), values = one_ring(a, sh, slots, 1);
    struct one_flight flight = {keys, values, 0, 0};
    int cached = 0;
    const uint8_t *src;
    while ((src = walk_next<F8>(a, &sh->jobs, &k, &cached)) != NULL) {
        const int kb = tile_bytes<F8>(a, 0), vb = tile_bytes<F8>(a, 1);
        one_land(&flight, a.flight);
        one_fill<KV>(src, cached, kb, &keys);
        one_land(&flight, a.flight);
        one_fill<KV>(src + kb, cached - HALF, kb, &keys);
        one_land(&flight, a.flight);
        one_fill<KV>(k.values, cached, vb, &values);
        one_land(&flight, a.flight);
        one_fill<KV>(k.values + vb, cached - HALF, vb, &values);
    }
}

/* ---- keys ---- */

/* s += the warp's keys times the queries. */
template <int KV>
static __device__ __forceinline__ void one_scores(float (*s)[1][4], uint32_t slot,
                                                  const struct kv_query &q, int row, int lane)
{
    constexpr int F8 = one_kind<KV>::f8;
    const uint32_t k0 =
        slot + (uint32_t)((row + (lane & 15)) * 128 + (((lane >> 4) ^ lane) & 7) * 16);
#pragma unroll
    for (int i = 0; i < 8; i++) {
#pragma unroll
        for (int m = 0; m < KEY_TILES; m++) {
            uint32_t f[2][4];
            if (F8) {
                uint32_t r[4];
                ldmatrix_x4(r, (k0 ^ (uint32_t)(i % 4 * 32)) +
                                   (uint32_t)(i / 4 * AT_BLOCK + m * 2048));
#pragma unroll
                for (int x = 0; x < 4; x++) {
                    f8_pairs(r[x], &f[x / 2][x % 2], &f[x / 2][x % 2 + 2]);
                }
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    ldmatrix_x4(f[h], (k0 ^ (uint32_t)(i % 2 * 64 + h * 32)) +
                                          (uint32_t)(i / 2 * AT_BLOCK + m * 2048));
                }
            }
            mma_f16(s[m][0], f[0], q.f[4 * i], q.f[4 * i + 1], s[m][0]);
            mma_f16(s[m][0], f[1], q.f[4 * i + 2], q.f[4 * i + 3], s[m][0]);
        }
    }
}

/* Queries of the job (when they changed), and its new keys in the unit. */
template <int KV>
static __device__ __forceinline__ void one_prepare_keys(const struct decode_args &a,
                                                        const struct attn_job *j, int head,
                                                        struct fresh f, bool again,
                                                        struct shared_one *sh,
                                                        unsigned char *scratch, int warp, int lane)
{
    constexpr int F8 = one_kind<KV>::f8;
    const int queries = again ? 0 : j->n * a.group;
    const int all = queries + (f.f1 > f.f0 ? f.f1 - f.f0 : 0);
#pragma unroll 1
    for (int item = warp; item < all; item += KEY_WARPS) {
        const bool query = item < queries;
        const int pos = query ? j->pos : f.f0 + item - queries;
        const int row = query ? j->row + row_of(a, item) : j->span_row + pos - j->fresh;
        const int col = query ? a.in.col_q + (head * a.group + head_of(a, item)) * 2 * AT_D
                              : a.in.col_k + head * AT_D;
        float x[8];
        load8(a.in.proj + (size_t)row * a.in.ld + col + 8 * lane, x);
        const int page = a.page[j->page + pos / BE_PAGE];
        norm_rotate(x, query ? a.in.q_norm : a.in.k_norm, a.in.rot + (size_t)row * BE_ROT_DIM,
                    a.in.eps, lane);
        if (!query) {
            keep_row<F8>(a, j, head, false, pos, page, x,
                         scratch + (pos - f.f0) * fresh_bytes<F8>(), lane);
        } else if (F8 == AT_PACKED) {
            kv_turn(kvq_of(a.kv, 0), false, x, lane);
            kv_store_query(a.kv, sh->q, item, x, sh->by, lane);
        } else {
            store_query<F8 == AT_F8>(sh->q, item, x, lane);
        }
    }
    if (!again && warp == 0 && lane < 8) {
        sh->pos[lane] = j->pos + (lane < j->n * a.group ? row_of(a, lane) : 0);
    }
}

template <int KV>
static __device__ void one_keys(const struct decode_args &a, struct shared_one *sh,
                                unsigned char *slots, struct attn_place at, int tid)
{
    constexpr int F8 = one_kind<KV>::f8;
    const int warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    const int key_row = warp * 16 * KEY_TILES; /* of the split */
    const int slot_bytes = tile_bytes<F8>(a, 0);
    const struct kv_queries tile = {sh->q, sh->by};
    const uint32_t ready = smem_addr(sh->ready), used = smem_addr(sh->used);
    struct ring ring = one_ring(a, sh, smem_addr(slots), 0);
    unsigned char *scratch = (unsigned char *)(sh + 1);
    struct kv_query q;
    q.scale = sh->by;
    int job = -1, head = -1, turn = 0;
    uint32_t phase = 1; /* of `used` of buffer 0, and of buffer 1 after it */
    struct attn_unit u;
    pdl_wait();
    while (next_unit(&sh->jobs, &at, &u)) {
        const struct attn_job *j = &sh->jobs.job[u.job];
        struct fresh f = fresh_of(j, &u);
        const bool again = u.job == job && u.head == head;
        if (!again || f.f1 > f.f0) {
            bar_sync(2,
                     KEY_THREADS); /* all are through with queries, and rows of the unit before */
            one_prepare_keys<KV>(a, j, u.head, f, again, sh, scratch, warp, lane);
            bar_sync(2, KEY_THREADS);
        }
        if (job < 0) {
            pdl_launch();
        }
        if (!again) {
#pragma unroll
            for (int i = 0; i < 8; i++) {
                kv_query_at((enum be_kv)KV, tile, 0, i, q.f + 4 * i, lane);
            }
        }
        job = u.job;
        head = u.head;
        const int2 pos = *(const int2 *)&sh->pos[2 * t];
#pragma unroll 1
        for (int split = u.split; split < u.split + u.n; split++) {
            const int from = split * AT_SPLIT, keys = j->pos + j->n - from;
            const bool patched = f.f1 > f.f0 && from + AT_SPLIT > f.f0;
            float s[KEY_TILES][1][4] = {};
#pragma unroll 1
            for (int i = 0; i < 2; i++) {
                unsigned char *slot = slots + ring.slot * slot_bytes;
                mbar_wait(ring.full + 8 * (uint32_t)ring.slot, ring.phase);
                if (patched) {
                    patch_call<F8, KEY_WARPS>(a.kv, scratch, slot, from + HALF * i, 0, f, tid);
                    fence_proxy_async();
                    bar_sync(2, KEY_THREADS);
                }
                if (key_row / HALF == i && HALF * i < keys) {
                    if (F8 == AT_PACKED) {
                        packed_scores<KEY_TILES, 1>((enum be_kv)KV, s, slot, q, key_row % HALF,
                                                    lane);
                    } else {
                        one_scores<KV>(s, ring.base + (uint32_t)(ring.slot * slot_bytes), q,
                                       key_row % HALF, lane);
                    }
                }
                slot_done<true>(&ring, lane);
            }
            const bool masked = from + AT_SPLIT - 1 > j->pos;
            float x = -INFINITY, y = -INFINITY;
#pragma unroll
            for (int m = 0; m < KEY_TILES; m++) {
                float *v = s[m][0];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    v[i] = __fmul_rn(v[i], AT_SCALE);
                    if (masked &&
                        from + key_row + 16 * m + g + i / 2 * 8 > (i % 2 ? pos.y : pos.x)) {
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
                *(float2 *)&sh->red[turn][warp][2 * t] = make_float2(x, y);
            }
            bar_sync(2, KEY_THREADS);
            float2 old = *(const float2 *)&sh->top[1 - turn][2 * t];
            if (split == u.split) {
                old = make_float2(-INFINITY, -INFINITY);
            }
            x = old.x, y = old.y;
#pragma unroll
            for (int i = 0; i < KEY_WARPS; i++) {
                const float2 r = *(const float2 *)&sh->red[turn][i][2 * t];
                x = fmaxf(x, r.x);
                y = fmaxf(y, r.y);
            }
            /* Nothing of this row so far: weights of zero, not NaN. */
            const float rx = x == -INFINITY ? 0 : x, ry = y == -INFINITY ? 0 : y;
            unsigned char *to = sh->p[turn] + (key_row + g) * 16 + 4 * t;
            uint32_t p[KEY_TILES][2];
#pragma unroll
            for (int m = 0; m < KEY_TILES; m++) {
                const float *v = s[m][0];
                p[m][0] = f16x2_of_f32(ex2_approx(v[0] - rx), ex2_approx(v[1] - ry));
                p[m][1] = f16x2_of_f32(ex2_approx(v[2] - rx), ex2_approx(v[3] - ry));
            }
            mbar_wait(used + 8 * (uint32_t)turn, phase);
            if (warp == 0 && g == 0) {
                *(float2 *)&sh->top[turn][2 * t] = make_float2(x, y);
                *(float2 *)&sh->scale[turn][2 * t] =
                    make_float2(ex2_approx(old.x - rx), ex2_approx(old.y - ry));
            }
#pragma unroll
            for (int m = 0; m < KEY_TILES; m++) {
                *(uint32_t *)(to + 256 * m) = p[m][0];
                *(uint32_t *)(to + 256 * m + 128) = p[m][1];
            }
            __syncwarp();
            if (lane == 0) {
                mbar_arrive(ready + 8 * (uint32_t)turn);
            }
            phase ^= (uint32_t)turn;
            turn = 1 - turn;
        }
    }
}

/* ---- values ---- */

template <int KV>
static __device__ __forceinline__ void one_prepare_values(const struct decode_args &a,
                                                          const struct attn_job *j, int head,
                                                          struct fresh f, unsigned char *scratch,
                                                          int warp, int lane)
{
    constexpr int F8 = one_kind<KV>::f8;
#pragma unroll 1
    for (int pos = f.f0 + warp; pos < f.f1; pos += WARPS) {
        const int row = j->span_row + pos - j->fresh;
        float x[8];
        load8(a.in.proj + (size_t)row * a.in.ld + a.in.col_v + head * AT_D + 8 * lane, x);
        keep_row<F8>(a, j, head, true, pos, a.page[j->page + pos / BE_PAGE], x,
                     scratch + (pos - f.f0) * fresh_bytes<F8>(), lane);
    }
}

template <int KV>
static __device__ void one_values(const struct decode_args &a, struct shared_one *sh,
                                  unsigned char *slots, struct attn_place at, int tid)
{
    constexpr int F8 = one_kind<KV>::f8;
    const int warp = tid / 32, lane = tid % 32, g = lane / 4, t = lane % 4;
    const int slot_bytes = tile_bytes<F8>(a, 1);
    const uint32_t ready = smem_addr(sh->ready), used = smem_addr(sh->used);
    const struct attn_jobs *w = &sh->jobs;
    struct ring ring = one_ring(a, sh, smem_addr(slots), 1);
    unsigned char *first = slots + a.slots * a.ring_key_bytes;
    unsigned char *scratch = (unsigned char *)(sh + 1) + a.rows * fresh_bytes<F8>();
    int turn = 0;
    uint32_t phase = 0;
    struct attn_unit u;
    struct arrival done = {0, 0, 0, 0};
    pdl_wait();
    for (;;) {
        const bool more = next_unit(w, &at, &u);
        if (done.n > 0 && (!more || done.job != u.job || done.head != u.head ||
                           done.group != unit_of(u.split) / GROUP)) {
            combine<F8, 4>(a, w, done, scratch, &sh->last, warp, lane, tid);
            done.n = 0;
        }
        if (!more) {
            return;
        }
        const struct attn_job *j = &w->job[u.job];
        const struct fresh f = fresh_of(j, &u);
        if (f.f1 > f.f0) {
            workers_sync();
            one_prepare_values<KV>(a, j, u.head, f, scratch, warp, lane);
            workers_sync();
        }
        float o[2][1][4] = {}, l[1][4] = {};
        float2 top = make_float2(0, 0);
#pragma unroll 1
        for (int split = u.split; split < u.split + u.n; split++) {
            const int from = split * AT_SPLIT, keys = j->pos + j->n - from;
            const bool patched = f.f1 > f.f0 && from + AT_SPLIT > f.f0;
            const uint32_t p_at = smem_addr(sh->p[turn]);
            mbar_wait(ready + 8 * (uint32_t)turn, phase);
            const float2 c = *(const float2 *)&sh->scale[turn][2 * t];
            top = *(const float2 *)&sh->top[turn][2 * t];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                o[i][0][0] = __fmul_rn(o[i][0][0], c.x);
                o[i][0][1] = __fmul_rn(o[i][0][1], c.y);
                o[i][0][2] = __fmul_rn(o[i][0][2], c.x);
                o[i][0][3] = __fmul_rn(o[i][0][3], c.y);
            }
            l[0][0] = __fmul_rn(l[0][0], c.x);
            l[0][1] = __fmul_rn(l[0][1], c.y);
#pragma unroll 1
            for (int i = 0; i < 2; i++) {
                unsigned char *slot = first + ring.slot * slot_bytes;
                mbar_wait(ring.full + 8 * (uint32_t)ring.slot, ring.phase);
                if (patched) {
                    patch_call<F8, WARPS>(a.kv, scratch, slot, from + HALF * i, 1, f, tid);
                    fence_proxy_async();
                    workers_sync();
                }
                const int n = keys - HALF * i;
                if (F8 == AT_PACKED) {
                    packed_values<1, WARPS, 1>((enum be_kv)KV, o, l, slot, p_at, HALF * i, n, warp,
                                               lane);
                } else {
                    values<F8, 1>(o, l, ring.base + (uint32_t)(ring.slot * slot_bytes), p_at,
                                  HALF * i, n, warp, lane);
                }
                slot_done<true>(&ring, lane);
            }
            __syncwarp();
            if (lane == 0) {
                mbar_arrive(used + 8 * (uint32_t)turn);
            }
            phase ^= (uint32_t)turn;
            turn = 1 - turn;
        }
        if (j->splits == 1) {
            finish_alone<F8>(a, j, u.head, o[0][0], o[1][0], l[0], sh->sum, scratch, warp, lane);
            continue;
        }
        const int unit = unit_of(u.split);
        const size_t to = tile_of(a, j, u.head, a.units, unit);
        const float r[2][4] = {{o[0][0][0], o[0][0][1], o[0][0][2], o[0][0][3]},
                               {o[1][0][0], o[1][0][1], o[1][0][2], o[1][0][3]}};
        store_frag(a.part + to * TILE, r, warp, lane);
        if (warp == 0 && g == 0) {
            *(float4 *)(a.part_ml + to * 16 + 4 * t) = make_float4(top.x, l[0][0], top.y, l[0][1]);
        }
        done.job = u.job, done.head = u.head, done.group = unit / GROUP;
        done.n++;
    }
}

template <int KV>
__global__ void __launch_bounds__(ONE_THREADS, 1) attn_one_kernel(const struct decode_args a)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 900
    return;
#endif
    unsigned char *slots = cu_smem();
    struct shared_one *sh =
        (struct shared_one *)(slots + a.slots * (a.ring_key_bytes + a.ring_value_bytes));
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    if (warp == WARPS + KEY_WARPS) {
        if (lane < a.slots) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                mbar_init(smem_addr(&sh->full[i][lane]), 1);
                mbar_init(smem_addr(&sh->empty[i][lane]), i ? (int)WARPS : (int)KEY_WARPS);
            }
        }
        if (lane < 2) {
            mbar_init(smem_addr(&sh->ready[lane]), KEY_WARPS);
            mbar_init(smem_addr(&sh->used[lane]), WARPS);
        }
        mbar_fence_init();
        make_jobs(a.count, a.span, a.spans, a.in.kv_heads, 8 / a.group, false, &sh->jobs, lane);
    }
    for (int i = tid; i < 4096 / 16; i += ONE_THREADS) { /* queries that a tile lacks */
        *(uint4 *)(sh->q + 16 * i) = make_uint4(0, 0, 0, 0);
    }
    if (tid < 16) {
        sh->by[tid] = {0, 0};
    }
    __syncthreads();
    const uint32_t total = (uint32_t)sh->jobs.total;
    const struct attn_place at = place_of(&sh->jobs, (int)(total * blockIdx.x / gridDim.x),
                                          (int)(total * (blockIdx.x + 1) / gridDim.x));
    if (warp < WARPS) {
        one_values<KV>(a, sh, slots, at, tid);
    } else if (warp < WARPS + KEY_WARPS) {
        one_keys<KV>(a, sh, slots, at, tid - WORKERS);
    } else if (lane == 0) {
        one_fills<KV>(a, sh, smem_addr(slots), at);
    }
}

template <int KV>
static cudaError_t launch_one(struct cu_ctx *c, struct decode_args *a, int limit, int grid,
                              const struct attn_tune *tune)
{
    constexpr int F8 = one_kind<KV>::f8;
    a->ring_key_bytes = F8 == AT_PACKED ? a->key_bytes : HALF * (F8 ? 256 : 512);
    a->ring_value_bytes = F8 == AT_PACKED ? a->value_bytes : HALF * (F8 ? 256 : 512);
    const int fresh = a->rows * fresh_bytes<F8>(), stage = 8 * STAGE_LD * 4;
    const int fixed = (int)sizeof(struct shared_one) + fresh + (stage > fresh ? stage : fresh);
    const int both = a->ring_key_bytes + a->ring_value_bytes;
    int n = (limit - fixed) / both;
    n = n < ONE_SLOTS ? n : ONE_SLOTS;
    a->slots = tune->slots > 0 && tune->slots < n ? tune->slots : n;
    const int kb = tune->flight > 0 ? tune->flight : 48;
    a->flight = kb * 2048 / both < 2 ? 2 : kb * 2048 / both;
    /* A slot is filled again 2 * slots - 1 loads later at the earliest. */
    a->flight = a->flight < 2 * a->slots - 1 ? a->flight : 2 * a->slots - 1;
    return cu_launch(c,
                     F8 == AT_PACKED ? "attention, packed cache"
                     : F8            ? "attention, fp8 cache"
                                     : "attention, fp16 cache",
                     attn_one_kernel<KV>, dim3((unsigned)grid), dim3(ONE_THREADS),
                     (size_t)(fixed + a->slots * both), *a);
}

#endif
