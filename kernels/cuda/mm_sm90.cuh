#ifndef QUASAR_KERNELS_CUDA_MM_SM90_CUH
#define QUASAR_KERNELS_CUDA_MM_SM90_CUH

/*
 * A chain of products and DeltaNet steps in one launch, for chips with bulk copies. One
 * block to a multiprocessor, all there at once. A block's producer warp runs through the
 * weights of all links without waiting for anything but room in its ring, so that memory
 * stays busy while a link's results travel to the next: weights wait for nobody.
 *
 * Eight streaming warps take a stage's steps by number: step s of K is warp s % 8's, which
 * brings the inputs of its steps to shared memory itself, so that warps wait for nothing but
 * their own inputs. Other warps take the sums of runs and finish tiles or send contributions to
 * them; tiles of several contributions are finished by yet another warp, or, with many rows, by
 * streaming warps at the end of a link. All that
 * blocks hand to each other, contributions to a tile as well as what one link makes for the
 * next, travels as words of 8 bytes, value and ticket: a reader needs neither fence nor
 * counter, it sees by the ticket that the value is there.
 *
 * Memory is written again safely because of what a finished tile says: it needed all that
 * the link before makes, and whoever made that had taken his inputs. A DeltaNet head needs
 * only some tiles of the link before; so contributions have two areas by turns of products,
 * and what goes from link to link has three.
 */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mm90_inputs.cuh"
#include "kernels/cuda/mm90_take.cuh"
#include "kernels/cuda/mm_step.cuh"

/* ---- the producer ---- */

static __device__ __forceinline__ void produce(const struct mm90_args &g,
                                               const struct mm90_room &room, int lane)
{
    const uint64_t policy = l2_evict_first();
    struct cursor at = {0, 0}, landed = {0, 0};
    int flying = 0;
    int i = 0;
    while (i < g.n && g.link[i].gdn) {
        i++;
    }
    struct mm_block blk = {};
    struct run_words words = {};
    if (i < g.n) {
        blk = block_of(room, i);
        words_load(words, g.link[i].mm.run + blk.run, 0, blk.n_runs, lane);
    }
    while (i < g.n) {
        int next = i + 1;
        while (next < g.n && g.link[next].gdn) {
            next++;
        }
        struct mm_block blk_next = {};
        struct run_words words_next = {};
        if (next < g.n) {
            blk_next = block_of(room, next);
            words_load(words_next, g.link[next].mm.run + blk_next.run, 0, blk_next.n_runs, lane);
        }
        const struct mm_run *run = g.link[i].mm.run + blk.run;
        for (int r = 0; r < blk.n_runs; r++) {
            if (r > 0 && r % MM_LANES == 0) {
                words_load(words, run, r, blk.n_runs, lane);
            }
            int4 w;
            w.x = __shfl_sync(MM_ALL, words.w0.x, r % MM_LANES);
            w.y = __shfl_sync(MM_ALL, words.w0.y, r % MM_LANES);
            w.z = __shfl_sync(MM_ALL, words.w0.z, r % MM_LANES);
            w.w = __shfl_sync(MM_ALL, words.w0.w, r % MM_LANES);
            const int cap = stage_steps(w.w);
            uint64_t src = word_src(w);
            for (int left = w.z; left > 0; left -= cap) {
                const uint32_t full = room.ring_full + (uint32_t)at.slot * 8;
                const uint32_t n = (uint32_t)(left < cap ? left : cap) * step_bytes_of(w.w);
                mbar_wait(room.ring_empty + (uint32_t)at.slot * 8, at.parity ^ 1);
                if (flying == g.flying) {
                    mbar_wait(room.ring_full + (uint32_t)landed.slot * 8, landed.parity);
                    advance(landed, room.stages);
                } else {
                    flying++;
                }
                if (lane == 0) {
                    mbar_arrive_expect(full, n);
                    bulk_load_hint(room.ring + (uint32_t)at.slot * MM90_STAGE, (const void *)src, n,
                                   full, policy);
                }
                src += n;
                advance(at, room.stages);
            }
        }
        i = next;
        blk = blk_next;
        words = words_next;
    }
}

/* ---- the streaming warps ---- */

struct stream_sync {
    __device__ __forceinline__ void operator()() const
    {
        bar_sync(BAR90_STREAM, MM90_STREAM_THREADS);
    }
};

/* As gdn_plain, but words of a chain. */
struct gdn_words {
    struct mm_words w;
    uint32_t from, to; /* tickets */
    uint2 *halves;
    int v_heads;
    struct asked {
        uint2 v;
    };
    struct asked4 {
        uint4 v[2];
    };
    __device__ __forceinline__ const uint2 *at(int row, int col) const
    {
        return w.x + (size_t)row * w.ld + col;
    }
    __device__ __forceinline__ struct asked ask(int row, int col) const
    {
        return {ld_word(at(row, col))};
    }
    __device__ __forceinline__ float value(const struct asked &a) const
    {
        return __uint_as_float(a.v.x);
    }
    template <int C, int R>
    __device__ __forceinline__ void settle(struct asked (&a)[C][R], int row, int rows,
                                           const int (&col)[C], int cols) const
    {
        for (bool again = true; again;) {
            again = false;
#pragma unroll
            for (int i = 0; i < C * R; i++) {
                again = again || (i / R < cols && i % R < rows && a[i / R][i % R].v.y != from);
            }
            if (again) {
                look_again();
#pragma unroll
                for (int i = 0; i < C * R; i++) {
                    if (i / R < cols && i % R < rows && a[i / R][i % R].v.y != from) {
                        a[i / R][i % R] = ask(row + i % R, col[i / R]);
                    }
                }
            }
        }
    }
    __device__ __forceinline__ struct asked4 ask4(int row, int col) const
    {
        return {{ld_ticket(at(row, col)), ld_ticket(at(row, col + 2))}};
    }
    __device__ __forceinline__ float4 take4(struct asked4 a, int row, int col) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            while (a.v[i].y != from || a.v[i].w != from) {
                look_again();
                a.v[i] = ld_ticket(at(row, col + 2 * i));
            }
        }
        return make_float4(__uint_as_float(a.v[0].x), __uint_as_float(a.v[0].z),
                           __uint_as_float(a.v[1].x), __uint_as_float(a.v[1].z));
    }
    __device__ __forceinline__ uint2 *half_at(int row, int h, int half) const
    {
        return halves + (row * v_heads + h) * 2 + half;
    }
    __device__ __forceinline__ void tell(int row, int h, int half, float v) const
    {
        st_word(half_at(row, h, half), __float_as_uint(v), to);
    }
    __device__ __forceinline__ float told(int row, int h, int half) const
    {
        const uint2 *from_half = half_at(row, h, half);
        return word_value(ld_word(from_half), from_half, to);
    }
    __device__ __forceinline__ void put(int row, int h, int lane, uint2 packed) const
    {
        st_ticket(w.out + (size_t)row * w.ld + h * (GDN_D / 2) + 2 * lane, packed.x, packed.y, to);
    }
};

struct gdn_no_wait {
    __device__ __forceinline__ void operator()() const
    {
    }
};

template <int HALVES>
static __device__ __forceinline__ void gdn_items(const struct mm90_args &g,
                                                 const struct mm90_room &room, int i,
                                                 uint32_t ticket)
{
    const struct cu_gdn &d = g.link[i].step.g;
    const int items = d.v_heads * g.b.count[1] * HALVES;
    const struct gdn_room at = gdn_room_at(room.x, g.b.rows);
    const struct gdn_words ports = {g.link[i].step.w, ticket + g.link[i].step.w.x_at,
                                    ticket + (uint32_t)i, g.link[i].step.halves, d.v_heads};
    for (int item = (int)blockIdx.x; item < items; item += (int)gridDim.x) {
        const int head = item / HALVES;
        stream_sync()();
        gdn_item<MM90_STREAM, HALVES>(g.b, d, g.link[i].step.p, head % d.v_heads, item % HALVES,
                                      head / d.v_heads, (int)threadIdx.x, at, gdn_no_wait(),
                                      stream_sync(), ports);
    }
    if ((int)blockIdx.x < items) {
        stream_sync()();
    }
}

/* DeltaNet: the block's heads and spans. Its shared memory is that of the streaming warps'
 * inputs; they keep together here. With several rows a head takes long and is done by two
 * blocks, where there are as many. */
template <bool MANY>
static __device__ __forceinline__ void stream_gdn(const struct mm90_args &g,
                                                  const struct mm90_room &room, int i,
                                                  uint32_t ticket)
{
    if (MANY && 2 * g.link[i].step.g.v_heads * g.b.count[1] <= (int)gridDim.x) {
        gdn_items<2>(g, room, i, ticket);
    } else {
        gdn_items<1>(g, room, i, ticket);
    }
}

/* A step of 8 or 16 bits. */
template <int NT>
static __device__ __forceinline__ void step_wide(float (*acc)[NT][4], const uint8_t *step, int kind,
                                                 int lane, const struct inputs<NT> &in)
{
    if (kind == CU_W8) {
        half_w8<NT>(acc, step, lane, in);
        half_w8<NT>(acc + 2, step + (MM_STAGE - 64), lane, in);
    } else {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            quarter_w16<NT>(acc[q], step + q * (MM_STAGE - 128), lane, in);
        }
    }
}

/* What a streaming warp carries from link to link. */
struct stream {
    struct cursor at;
    uint32_t puts;   /* runs left in the exchange so far */
    uint32_t links;  /* products so far */
    uint32_t ticket; /* of the launch */
};

/* Done with the stage it is at. */
static __device__ __forceinline__ void leave_stage(const struct mm90_room &room, struct cursor &at,
                                                   int lane)
{
    __syncwarp();
    if (lane == 0) {
        mbar_arrive(room.ring_empty + (uint32_t)at.slot * 8);
    }
    advance(at, room.stages);
}

/* Shared addresses of a lane's parts of a warp's next step; q and scale in the ring's first
 * stage. */
struct stream_place {
    uint32_t q, scale, x, offset, x_step;
};

/* Waits for the stage at the cursor and has this warp's step in registers. */
static __device__ __forceinline__ void step_take(struct weights_w4 &w, struct inputs<1> &in,
                                                 const struct mm90_room &room, struct cursor &at,
                                                 struct stream_place &p)
{
    const uint32_t stage = (uint32_t)at.slot * MM90_STAGE;
    in.b[0][0] = ld_shared16(p.x);
    in.b[0][1] = ld_shared16(p.x + 16);
    const uint4 c = ld_shared16(p.offset);
    in.c[0] = make_float4(__uint_as_float(c.x), __uint_as_float(c.y), __uint_as_float(c.z),
                          __uint_as_float(c.w));
    mbar_wait(room.ring_full + (uint32_t)at.slot * 8, at.parity);
    weights_load(w, p.q + stage, p.scale + stage);
    advance(at, room.stages);
    p.x += p.x_step;
    p.offset += 64;
}

/* n whole stages of W4: while a step is computed the next one comes from shared memory. */
static __device__ __forceinline__ void whole_stages(float (*acc)[1][4],
                                                    const struct mm90_room &room, struct stream &s,
                                                    struct stream_place p, int n, int lane)
{
    struct weights_w4 w[2];
    struct inputs<1> in[2];
    struct cursor at = s.at;
    step_take(w[0], in[0], room, at, p);
    for (n--; n >= 2; n -= 2) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            step_take(w[1 - i], in[1 - i], room, at, p);
            step_w4<1>(acc, w[i], in[i]);
            leave_stage(room, s.at, lane);
        }
    }
    if (n > 0) {
        step_take(w[1], in[1], room, at, p);
        step_w4<1>(acc, w[0], in[0]);
        leave_stage(room, s.at, lane);
        w[0] = w[1];
        in[0] = in[1];
    }
    step_w4<1>(acc, w[0], in[0]);
    leave_stage(room, s.at, lane);
}

template <int NT, typename WARPS>
static __device__ __forceinline__ void stream_mm(const struct mm90_args &g,
                                                 const struct mm90_room &room, int i,
                                                 const struct mm_block &blk, struct stream &s,
                                                 int warp, int lane, int count)
{
    const struct mm_op &a = g.link[i].mm;
    const struct mm_run *run = a.run + blk.run;
    const struct mm_phase *phase = a.phase + blk.phase;
    uint8_t *const x = room.x + (uint32_t)warp * room.x_warp;
    uint8_t *const offset = room.offset + (uint32_t)warp * room.offset_warp;
    const int row = lane / 4 < count ? lane / 4 : count - 1;
    const int row8 = lane / 4 + 8 < count ? lane / 4 + 8 : count - 1;
    const uint8_t *const x_lane = x + row * MM90_X_ROW + lane % 4 * 32;
    const uint8_t *const offset_lane = offset + lane % 4 * 16;
    const uint32_t x8 = (uint32_t)(row8 - row) * MM90_X_ROW;
    const uint32_t x_step = (uint32_t)count * MM90_X_ROW;
    struct run_words words = {};
    struct own_steps own = {};
    int phase_end = 0, phases = 0, k0 = 0, staged = 0;
    for (int r = 0; r < blk.n_runs; r++) {
        if (r % MM_LANES == 0) {
            words_load(words, run, r, blk.n_runs, lane);
        }
        if (r == phase_end) {
            const int4 ph = *(const int4 *)(phase + phases);
            k0 = ph.x;
            if (k0 >= staged) { /* as many phases as there is room for */
                int n = ph.y;
                own = own_steps_of(k0, n, warp);
                for (int p = phases + 1, end = ph.z; end < blk.n_runs; p++) {
                    const int4 next = *(const int4 *)(phase + p);
                    const struct own_steps more = own_steps_of(k0, n + next.y, warp);
                    if (next.x != k0 + n || more.n > room.steps ||
                        more.n * count > room.step_rows) {
                        break;
                    }
                    own = more;
                    n += next.y;
                    end = next.z;
                }
                staged = k0 + n;
                stage_phase<NT, WARPS::asked>(a, own, x, offset, lane, count, s.ticket);
            }
            phase_end = ph.z;
            phases++;
        }
        const int kind = __shfl_sync(MM_ALL, words.w0.w, r % MM_LANES);
        int left = __shfl_sync(MM_ALL, words.w0.z, r % MM_LANES);
        const int putter = __shfl_sync(MM_ALL, words.w1.x, r % MM_LANES) % WARPS::groups;
        const int k = k0 + MM_META_K((uint32_t)__shfl_sync(MM_ALL, words.w1.w, r % MM_LANES));
        /* where in the run this warp's first step is, and which of its own that is */
        int mine = (warp - k) & (MM90_STREAM - 1);
        const int nth = (k + mine - own.first) / MM90_STREAM;
        const uint8_t *xp = x_lane + (uint32_t)nth * x_step;
        const uint8_t *op = offset_lane + nth * (NT * 64);
        float acc[4][NT][4];
#pragma unroll
        for (int j = 0; j < 4 * NT * 4; j++) {
            acc[j / (NT * 4)][j / 4 % NT][j % 4] = 0;
        }
        if (kind == CU_W4) {
            const uint8_t *step = room.base + mine * MM_STAGE;
            const int whole = WARPS::ahead ? left / MM90_STREAM : 0;
            if (whole > 0) {
                const uint32_t step0 = room.ring + (uint32_t)(mine * MM_STAGE);
                const struct stream_place p = {step0 + (uint32_t)lane * 16,
                                               step0 + 2048 + (uint32_t)lane / 4 * 16,
                                               smem_addr(xp), smem_addr(op), x_step};
                whole_stages((float(*)[1][4])acc, room, s, p, whole, lane);
                left -= whole * MM90_STREAM;
                xp += (uint32_t)whole * x_step;
                op += whole * 64;
            }
            for (; left >= MM90_STREAM; left -= MM90_STREAM) { /* whole stages */
                struct inputs<NT> in;
                inputs_load<NT>(in, xp, x8, op);
                mbar_wait(room.ring_full + (uint32_t)s.at.slot * 8, s.at.parity);
                step_w4<NT>(acc, step + s.at.slot * MM90_STAGE, lane, in);
                leave_stage(room, s.at, lane);
                xp += x_step;
                op += NT * 64;
            }
            if (left > 0) {
                mbar_wait(room.ring_full + (uint32_t)s.at.slot * 8, s.at.parity);
                if (mine < left) {
                    struct inputs<NT> in;
                    inputs_load<NT>(in, xp, x8, op);
                    step_w4<NT>(acc, step + s.at.slot * MM90_STAGE, lane, in);
                }
                leave_stage(room, s.at, lane);
            }
        } else {
            const int cap = stage_steps(kind);
            for (; left > 0; left -= cap) {
                mbar_wait(room.ring_full + (uint32_t)s.at.slot * 8, s.at.parity);
                if (mine < cap && mine < left) {
                    struct inputs<NT> in;
                    inputs_load<NT>(in, xp, x8, op);
                    step_wide<NT>(acc,
                                  room.base + s.at.slot * MM90_STAGE +
                                      (uint32_t)mine * step_bytes_of(kind),
                                  kind, lane, in);
                    xp += x_step;
                    op += NT * 64;
                }
                leave_stage(room, s.at, lane);
                mine = (mine - cap) & (MM90_STREAM - 1);
            }
        }
        mbar_wait(room.empty, (s.puts & 1) ^ 1);
        s.puts++;
        exchange_put<NT>(room.exchange + warp * (8 * NT * MM_COL), acc, lane);
        __syncwarp();
        if (lane == 0) {
            mbar_arrive(room.full + (uint32_t)putter * 8);
        }
    }
}

/* A product's runs and what else of it is this warp's. */
template <int NT, typename WARPS>
static __device__ __forceinline__ void stream_link(const struct mm90_args &g,
                                                   const struct mm90_room &room, int i,
                                                   struct stream &s, int warp, int lane, int count)
{
    stream_mm<NT, WARPS>(g, room, i, block_of(room, i), s, warp, lane, count);
    if (WARPS::finish == 0) {
        finish_shared<WARPS::finished>(g, room, i, s.links, warp, lane, count, s.ticket);
    }
    s.links++;
}

/* Every link in turn. What earlier kernels wrote is touched after pdl_wait only. */
template <int NT, bool MANY>
static __global__ void __launch_bounds__(mm90_warps<NT, MANY>::threads, 1)
    mm90_kernel(const __grid_constant__ struct mm90_args g)
{
    typedef mm90_warps<NT, MANY> warps;
    const int lane = (int)threadIdx.x % MM_LANES, warp = (int)threadIdx.x / MM_LANES;
    const struct mm90_room room = room_of(g.at, cu_smem());
    if ((int)threadIdx.x < g.n) {
        const struct mm90_link &l = g.link[threadIdx.x];
        const bool part = !l.gdn && (int)blockIdx.x < l.mm.n_blocks;
        room.blocks[threadIdx.x] =
            part ? *(const int4 *)(l.mm.block + blockIdx.x) : make_int4(0, 0, 0, 0);
    }
    if (threadIdx.x == MM90_STREAM_THREADS) {
        *room.left = 0;
        for (int s = 0; s < room.stages; s++) {
            mbar_init(room.ring_full + (uint32_t)s * 8, 1);
            mbar_init(room.ring_empty + (uint32_t)s * 8, MM90_STREAM);
        }
        mbar_init(room.empty, warps::takers);
        mbar_init(room.ready, warps::takers);
        mbar_init(room.read, MM90_STREAM);
        for (int i = 0; i < warps::groups; i++) {
            mbar_init(room.full + (uint32_t)i * 8, MM90_STREAM);
        }
        mbar_fence_init();
    }
    __syncthreads();
    /* The batch's tables came a kernel or more before the one that this may overlap. */
    const int count = (int)ld_relaxed(g.b.count);
    if (warp >= MM90_STREAM) {
        if (warp == warps::producer) {
            produce(g, room, lane);
            return;
        }
        pdl_wait();
        if (warp < warps::finish_0) {
            take_links<NT, warps>(g, room, warp - MM90_STREAM, lane, count);
        } else {
            finish_links(g, lane, count);
        }
        leave(g, room, warps::producer, lane);
        return;
    }
    pdl_wait();
    pdl_launch();
    struct stream s = {{0, 0}, 0, 0, first_ticket(g)};
    for (int i = 0; i < g.n; i++) {
        if (g.link[i].gdn) {
            stream_gdn<MANY>(g, room, i, s.ticket);
        } else {
            stream_link<NT, warps>(g, room, i, s, warp, lane, count);
        }
    }
    leave(g, room, warps::producer, lane);
}

#endif
