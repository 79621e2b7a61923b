#ifndef QUASAR_KERNELS_CUDA_GDN_STEP_CUH
#define QUASAR_KERNELS_CUDA_GDN_STEP_CUH

/*
 * Gated DeltaNet, step by step, one value head of one span: what the decode kernel and
 * the chain of products (mm_sm90.cuh) share. For each row t of the span, with the state
 * S [128 key][128 value]:
 * S' = e^g S, u = beta (v - S'^T k), S = S' + k u^T, o = S^T q.
 *
 * 16 warps, or 8 that do two warps' parts each, or twice 8 in two blocks that have half the
 * columns each and tell each other the sums of squares for the norm. A thread keeps 8 keys by 4
 * columns of S for a part; one barrier a row adds up the keys. Every sum has the same order
 * whatever the rows. q and k channels are convolved by every head that shares them; the first
 * writes their state. Bytes: 64 KB read and 64 KB written per head and span.
 */
#include "kernels/cuda/gdn.cuh"

enum {
    GDN_KEY_WARPS = 4, /* parts of 32 keys each, */
    GDN_COL_WARPS = 4, /* by parts of 32 value columns each: a warp's, or one of its two */
    GDN_PARTS = GDN_KEY_WARPS * GDN_COL_WARPS,
    GDN_CH = 3 * GDN_D,     /* a head's channels: q, k, v */
    GDN_LD = GDN_CH + GDN_D /* of a row in shared memory: and z */
};

struct gdn_step_args {
    const int32_t *accepted; /* fold: rows of each span to take, else NULL */
    float *record;           /* [rows][channels + 2 v_heads], or NULL */
    bool hold;               /* the state stays as it was */
};

/* The row's coefficients. */
struct gdn_coef {
    float beta, decay;
    float q_scale, k_scale; /* of the L2 norms; q's with 128^-0.5 */
    float qk;               /* product of the two normed vectors */
};

static __device__ __forceinline__ float gdn_dot4(float4 a, float4 b)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, a.x * b.x)));
}

static __device__ __forceinline__ void gdn_load4(float *to, const float *from)
{
    const float4 v = *(const float4 *)from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

/* Channel c of a head's q (0..127), k (128..255), v (256..) in the qkv row. v0: the first of v. */
static __device__ __forceinline__ int gdn_channel_of(int c, int kh, int k_heads, int h, int v0)
{
    return c < 128   ? kh * 128 + c
           : c < 256 ? (k_heads + kh) * 128 + c - 128
                     : (2 * k_heads + h) * 128 + v0 + c - 256;
}

/* Sums of products with k (x) and q (y) of 8 keys by 4 columns, added up over the
 * four lanes that share the columns; the lane keeps two of the eight sums: of k in
 * the warp's lower half, q in the upper, columns 0, 1 or 2, 3 by bit 3. */
static __device__ __forceinline__ float2 gdn_scatter_sums(const float *x, const float *y, int lane)
{
    const bool upper = lane & 16, odd = lane & 8;
    float keep[4];
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const float other = __shfl_xor_sync(GDN_FULL, upper ? x[c] : y[c], 16);
        keep[c] = (upper ? y[c] : x[c]) + other;
    }
    const float a = __shfl_xor_sync(GDN_FULL, odd ? keep[0] : keep[2], 8);
    const float b = __shfl_xor_sync(GDN_FULL, odd ? keep[1] : keep[3], 8);
    return make_float2((odd ? keep[2] : keep[0]) + a, (odd ? keep[3] : keep[1]) + b);
}

/* Four sums of 128 keys from the four key warps' parts, [4][2][128]. */
static __device__ __forceinline__ float4 gdn_total(const float *part)
{
    const float4 a = *(const float4 *)part, b = *(const float4 *)(part + 2 * GDN_D);
    const float4 c = *(const float4 *)(part + 4 * GDN_D), d = *(const float4 *)(part + 6 * GDN_D);
    return make_float4(((a.x + b.x) + c.x) + d.x, ((a.y + b.y) + c.y) + d.y,
                       ((a.z + b.z) + c.z) + d.z, ((a.w + b.w) + c.w) + d.w);
}

/* u = beta (v - e^g S^T k), before the update of S; sk without k's norm. */
static __device__ __forceinline__ float4 gdn_delta(const struct gdn_coef &e, float4 v, float4 sk)
{
    const float d = -e.decay * e.k_scale;
    return make_float4(e.beta * fmaf(d, sk.x, v.x), e.beta * fmaf(d, sk.y, v.y),
                       e.beta * fmaf(d, sk.z, v.z), e.beta * fmaf(d, sk.w, v.w));
}

/* o = e^g S^T q + (q k) u, which is S^T q after the update. */
static __device__ __forceinline__ float4 gdn_output(const struct gdn_coef &e, float4 u, float4 sq)
{
    const float d = e.decay * e.q_scale;
    return make_float4(fmaf(d, sq.x, e.qk * u.x), fmaf(d, sq.y, e.qk * u.y),
                       fmaf(d, sq.z, e.qk * u.z), fmaf(d, sq.w, e.qk * u.w));
}

static __device__ __forceinline__ uint2 gdn_pack(float4 y)
{
    uint2 packed;
    packed.x = f16x2_of_f32(y.x, y.y);
    packed.y = f16x2_of_f32(y.z, y.w);
    return packed;
}

/*
 * Where a step's inputs come from and its activations go, of one launch: plain values. Inputs
 * are asked for, then settled, then values.
 */
struct gdn_plain {
    const float *proj;
    size_t ld;
    struct cu_act act;
    int v_heads;
    struct asked {
        float v;
    };
    __device__ __forceinline__ struct asked ask(int row, int col) const
    {
        return {ld_l2_f32(proj + (size_t)row * ld + col)};
    }
    __device__ __forceinline__ float value(const struct asked &a) const
    {
        return a.v;
    }
    /* Returns when C by R asked values of columns col and rows from row are there, those of
     * columns c < n_col and rows r < n_row. */
    template <int C, int R>
    __device__ __forceinline__ void settle(struct asked (&)[C][R], int, int, const int (&)[C],
                                           int) const
    {
    }
    typedef float4 asked4;
    __device__ __forceinline__ asked4 ask4(int row, int col) const
    {
        return ld_l2_f4(proj + (size_t)row * ld + col);
    }
    __device__ __forceinline__ float4 take4(const asked4 &a, int, int) const
    {
        return a;
    }
    /* What a head's other half tells this one. */
    __device__ __forceinline__ void tell(int, int, int, float) const
    {
    }
    __device__ __forceinline__ float told(int, int, int) const
    {
        return 0;
    }
    __device__ __forceinline__ void put(int row, int h, int lane, uint2 packed) const
    {
        *(uint2 *)(act.x + ((size_t)row * (size_t)v_heads + (size_t)h) * GDN_D + 4 * lane) = packed;
        const float2 a = gdn_unpack(packed.x), b = gdn_unpack(packed.y);
        float sum = (a.x + a.y) + (b.x + b.y);
        sum += __shfl_xor_sync(GDN_FULL, sum, 1);
        sum += __shfl_xor_sync(GDN_FULL, sum, 2);
        sum += __shfl_xor_sync(GDN_FULL, sum, 4);
        if (lane % 8 == 0) {
            act.sum[(h * 4 + lane / 8) * CU_ROWS + row] = sum;
        }
    }
};

/* Shared memory of an item: [rows of the span][GDN_LD]; partial sums; coefficients. */
struct gdn_room {
    float *x, *part;
    struct gdn_coef *coef;
};

enum { GDN_PART_FLOATS = 2 * GDN_KEY_WARPS * 2 * GDN_D };

static inline __host__ __device__ size_t gdn_room_bytes(int rows)
{
    return ((size_t)rows * GDN_LD + GDN_PART_FLOATS) * sizeof(float) +
           CU_ROWS * sizeof(struct gdn_coef);
}

static __device__ __forceinline__ struct gdn_room gdn_room_at(uint8_t *p, int rows)
{
    struct gdn_room r;
    r.part = (float *)p;
    r.x = r.part + GDN_PART_FLOATS;
    r.coef = (struct gdn_coef *)(r.x + (size_t)rows * GDN_LD);
    return r;
}

/* The activations of rows from `first`, n of them, whose outputs are in x, by the warps in turn. */
template <int WARPS, typename PORTS>
static __device__ __forceinline__ void gdn_put_rows(const struct cu_gdn &g, const float *x, int h,
                                                    int first, int n, int warp, int lane,
                                                    const PORTS &ports)
{
#pragma unroll
    for (int j = 0; j < CU_ROWS / WARPS; j++) {
        const int i = warp + j * WARPS;
        const float *o = x + i * GDN_LD + 4 * lane;
        if (i < n) {
            ports.put(first + i, h, lane,
                      gdn_pack(gdn_gated_norm(*(const float4 *)o, *(const float4 *)(o + GDN_CH),
                                              *(const float4 *)(g.gnorm + 4 * lane), g.eps)));
        }
    }
}

/* The same of half a head: a row by half a warp, so that a warp waits once for the other half's
 * sums. */
template <int WARPS, typename PORTS>
static __device__ __forceinline__ void gdn_put_half_rows(const struct cu_gdn &g, const float *x,
                                                         int h, int half, int first, int n,
                                                         int warp, int lane, const PORTS &ports)
{
    static_assert(2 * WARPS == CU_ROWS, "two rows of a warp");
    const int i = warp + lane / 16 * WARPS, at = lane % 16 + 16 * half;
    const float *o_at = x + i * GDN_LD + lane % 16 * 4;
    const float4 o = i < n ? *(const float4 *)o_at : make_float4(0, 0, 0, 0);
    const float ss = gdn_half_sum(gdn_squares(o));
    if (i < n) {
        if (lane % 16 == 0) {
            ports.tell(first + i, h, half, ss);
        }
        const float4 z = *(const float4 *)(o_at + GDN_CH);
        const float4 gnorm = *(const float4 *)(g.gnorm + 4 * at);
        const float all = ss + ports.told(first + i, h, 1 - half);
        ports.put(first + i, h, at, gdn_pack(gdn_gated(o, z, gnorm, all, g.eps)));
    }
}

/*
 * Head h of span number i by threads tid 0 .. 32 WARPS - 1. before() returns when the inputs
 * may be asked for; sync() is a barrier of these threads; ports: gdn_plain, or the like. Before
 * before() it reads weights, the span table, S and the convolution state, which must be there
 * already. HALVES 2: only value columns 64 half .. 64 half + 63; the other half is done at the
 * same time by another block.
 */
template <int WARPS, int HALVES, typename BEFORE, typename SYNC, typename PORTS>
static __device__ __forceinline__ void gdn_item(const struct cu_batch &b, const struct cu_gdn &g,
                                                const struct gdn_step_args &p, int h, int half,
                                                int i_span, int tid, const struct gdn_room &room,
                                                const BEFORE &before, const SYNC &sync,
                                                const PORTS &ports)
{
    const int warp = tid / 32, lane = tid % 32;
    float *const x = room.x;
    const struct cu_span span = b.span[i_span];
    const int share = g.v_heads / g.k_heads, kh = h / share;
    const int channels = (2 * g.k_heads + g.v_heads) * GDN_D;
    const size_t record_ld = (size_t)(channels + 2 * g.v_heads);

    constexpr int THREADS = 32 * WARPS, PARTS = GDN_PARTS / HALVES / WARPS;
    constexpr int COLS = GDN_D / HALVES, COL_WARPS = GDN_COL_WARPS / HALVES;
    constexpr int ALL_CHANNELS = 2 * GDN_D + COLS;
    constexpr int CHANNELS = (ALL_CHANNELS + THREADS - 1) / THREADS; /* of a thread */
    constexpr int ROWS = 4;                                          /* asked for at a time */
    const int col = warp % COL_WARPS * 32 + lane % 8 * 4;            /* of this half */
    const int key_warp = warp / COL_WARPS, key = key_warp * 32 + lane / 8 * 8;
    constexpr int KEYS = 32 * GDN_KEY_WARPS / PARTS; /* from a part's keys to the next's */
    float *state = g.state.s + (size_t)span.slot * g.state.s_stride +
                   ((size_t)h * GDN_D + (size_t)key) * GDN_D + COLS * half + col;
    float4 s[PARTS][8];
#pragma unroll
    for (int i = 0; i < 8 * PARTS; i++) {
        s[i / 8][i % 8] = ld_l2_f4(state + (i / 8 * KEYS + i % 8) * GDN_D);
    }
    const float *conv_old = g.state.conv + (size_t)span.slot * g.state.conv_stride +
                            (size_t)span.parity * 3 * (size_t)channels;
    float *conv_new = g.state.conv + (size_t)span.slot * g.state.conv_stride +
                      (size_t)(1 - span.parity) * 3 * (size_t)channels;
    float4 taps[CHANNELS];
    float old[CHANNELS][3];
#pragma unroll
    for (int j = 0; j < CHANNELS; j++) {
        const int c = tid + j * THREADS;
        if (c < ALL_CHANNELS) {
            const int ch = gdn_channel_of(c, kh, g.k_heads, h, COLS * half);
            taps[j] = *(const float4 *)(g.conv_w + 4 * (size_t)ch);
            old[j][0] = ld_l2_f32(conv_old + ch);
            old[j][1] = ld_l2_f32(conv_old + ch + channels);
            old[j][2] = ld_l2_f32(conv_old + ch + 2 * channels);
        }
    }
    const int gate_row = THREADS - 1 - tid;
    float a_log = 0, dt_bias = 0;
    if (HALVES == 2 && gate_row < CU_ROWS) { /* later it would be waited for */
        a_log = g.a_log[h];
        dt_bias = g.dt_bias[h];
    }

    before();
    int n = span.n;
    if (p.accepted) {
        n = p.accepted[i_span] < n ? p.accepted[i_span] : n;
    }
    float *record = p.record ? p.record + (size_t)span.first * record_ld : NULL;
    const bool puts = g.act.x && 4 * lane < COLS; /* four columns of a row's output */
    const int z_col = g.col_z + h * GDN_D + COLS * half + 4 * lane;
    typename PORTS::asked4 z[CU_ROWS / WARPS] = {};
#pragma unroll
    for (int i = 0; i < CU_ROWS / WARPS; i++) {
        if (warp + i * WARPS < n && puts) {
            z[i] = ports.ask4(span.first + warp + i * WARPS, z_col);
        }
    }
    const int gate_col[2] = {g.col_b + h, g.col_a + h};
    typename PORTS::asked gate[2][1] = {};
    if (gate_row < n) {
        gate[0][0] = ports.ask(span.first + gate_row, gate_col[0]);
        gate[1][0] = ports.ask(span.first + gate_row, gate_col[1]);
    }
    int ch[CHANNELS], col_of[CHANNELS];
#pragma unroll
    for (int j = 0; j < CHANNELS; j++) {
        ch[j] = gdn_channel_of(tid + j * THREADS, kh, g.k_heads, h, COLS * half);
        col_of[j] = g.col_qkv + ch[j];
    }
    const int channels_here =
        tid + (CHANNELS - 1) * THREADS < ALL_CHANNELS ? CHANNELS : CHANNELS - 1;
    for (int r0 = 0; r0 < n; r0 += ROWS) {
        typename PORTS::asked in[CHANNELS][ROWS] = {};
        const int rows = n - r0 < ROWS ? n - r0 : ROWS;
#pragma unroll
        for (int j = 0; j < CHANNELS; j++) {
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if (j < channels_here && i < rows) {
                    in[j][i] = ports.ask(span.first + r0 + i, col_of[j]);
                }
            }
        }
        ports.settle(in, span.first + r0, rows, col_of, channels_here);
#pragma unroll
        for (int j = 0; j < CHANNELS; j++) {
            if (j >= channels_here) {
                continue;
            }
            /* q and k belong to the first of the heads that share them */
            const int c = tid + j * THREADS;
            const bool mine = c >= 256 || (h % share == 0 && half == 0);
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if (i < rows) {
                    const float v = ports.value(in[j][i]);
                    x[(r0 + i) * GDN_LD + c] =
                        gdn_conv(taps[j], old[j][0], old[j][1], old[j][2], v);
                    old[j][0] = old[j][1];
                    old[j][1] = old[j][2];
                    old[j][2] = v;
                    if (record && mine) {
                        record[(size_t)(r0 + i) * record_ld + ch[j]] = v;
                    }
                }
            }
        }
    }
#pragma unroll
    for (int j = 0; j < CHANNELS; j++) {
        const int c = tid + j * THREADS;
        if (j < channels_here && (c >= 256 || (h % share == 0 && half == 0)) && !p.hold) {
            conv_new[ch[j]] = old[j][0];
            conv_new[ch[j] + channels] = old[j][1];
            conv_new[ch[j] + 2 * channels] = old[j][2];
        }
    }
    if (gate_row < n) {
        ports.settle(gate, span.first + gate_row, 1, gate_col, 2);
        const float beta = ports.value(gate[0][0]), a = ports.value(gate[1][0]);
        room.coef[gate_row].beta = gdn_beta(beta);
        room.coef[gate_row].decay = expf(HALVES == 2 ? gdn_log_decay(a_log, a, dt_bias)
                                                     : gdn_log_decay(g.a_log[h], a, g.dt_bias[h]));
        if (record && half == 0) {
            record[(size_t)gate_row * record_ld + channels + h] = beta;
            record[(size_t)gate_row * record_ld + channels + g.v_heads + h] = a;
        }
    }
#pragma unroll
    for (int i = 0; i < CU_ROWS / WARPS; i++) {
        const int r = warp + i * WARPS;
        if (r < n && puts) {
            *(float4 *)(x + r * GDN_LD + GDN_CH + 4 * lane) =
                ports.take4(z[i], span.first + r, z_col);
        }
    }
    sync();
    for (int r = warp; r < n; r += WARPS) {
        const float4 q = *(const float4 *)(x + r * GDN_LD + 4 * lane);
        const float4 k = *(const float4 *)(x + r * GDN_LD + GDN_D + 4 * lane);
        const float qq = warp_sum(gdn_dot4(q, q)), kk = warp_sum(gdn_dot4(k, k));
        const float qk = warp_sum(gdn_dot4(q, k));
        if (lane == 0) {
            const float k_scale = rsqrt_approx(kk + 1e-6f);
            const float q_scale = GDN_Q_SCALE * rsqrt_approx(qq + 1e-6f);
            room.coef[r].k_scale = k_scale;
            room.coef[r].q_scale = q_scale;
            room.coef[r].qk = qk * (q_scale * k_scale);
        }
    }
    sync();

    for (int r = 0; r < n; r++) {
        float *row = x + r * GDN_LD;
        const int buffer = r % 2 * GDN_KEY_WARPS * 2; /* a warp is at most a barrier ahead */
#pragma unroll
        for (int part = 0; part < PARTS; part++) {
            float sk[4] = {0, 0, 0, 0}, sq[4] = {0, 0, 0, 0};
#pragma unroll
            for (int i = 0; i < 8; i += 4) {
                float k[4], q[4];
                gdn_load4(k, row + GDN_D + part * KEYS + key + i);
                gdn_load4(q, row + part * KEYS + key + i);
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const float4 e = s[part][i + j];
                    sk[0] = fmaf(k[j], e.x, sk[0]), sq[0] = fmaf(q[j], e.x, sq[0]);
                    sk[1] = fmaf(k[j], e.y, sk[1]), sq[1] = fmaf(q[j], e.y, sq[1]);
                    sk[2] = fmaf(k[j], e.z, sk[2]), sq[2] = fmaf(q[j], e.z, sq[2]);
                    sk[3] = fmaf(k[j], e.w, sk[3]), sq[3] = fmaf(q[j], e.w, sq[3]);
                }
            }
            const int to = buffer + (key_warp + part * KEYS / 32) * 2 + lane / 16;
            *(float2 *)&room.part[to * GDN_D + col + lane / 8 % 2 * 2] =
                gdn_scatter_sums(sk, sq, lane);
        }
        sync();
        const struct gdn_coef e = room.coef[r];
        if (puts && warp == r % WARPS) {
            const int at = 4 * lane;
            const float4 u = gdn_delta(e, *(const float4 *)(row + 256 + at),
                                       gdn_total(&room.part[buffer * GDN_D + at]));
            const float4 o = gdn_output(e, u, gdn_total(&room.part[(buffer + 1) * GDN_D + at]));
            *(float4 *)(row + at) = o; /* nobody needs q any more */
        }
        if (r == n - 1) { /* whoever waits for the output waits no longer than that */
            if (g.act.x) {
                __syncwarp();
                if constexpr (HALVES == 2) {
                    gdn_put_half_rows<WARPS>(g, x, h, half, span.first, n, warp, lane, ports);
                } else {
                    gdn_put_rows<WARPS>(g, x, h, span.first, n, warp, lane, ports);
                }
            }
            if (p.hold) {
                break;
            }
        }
        const float4 u = gdn_delta(e, *(const float4 *)(row + 256 + col),
                                   gdn_total(&room.part[buffer * GDN_D + col]));
        const float ux = e.k_scale * u.x, uy = e.k_scale * u.y;
        const float uz = e.k_scale * u.z, uw = e.k_scale * u.w;
#pragma unroll
        for (int i = 0; i < 8 * PARTS; i += 4) {
            float k[4];
            gdn_load4(k, row + GDN_D + i / 8 * KEYS + key + i % 8);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float4 *const a = &s[i / 8][i % 8 + j];
                a->x = fmaf(k[j], ux, e.decay * a->x);
                a->y = fmaf(k[j], uy, e.decay * a->y);
                a->z = fmaf(k[j], uz, e.decay * a->z);
                a->w = fmaf(k[j], uw, e.decay * a->w);
            }
        }
    }
    if (!p.hold && n > 0) {
#pragma unroll
        for (int i = 0; i < 8 * PARTS; i++) {
            *(float4 *)(state + (i / 8 * KEYS + i % 8) * GDN_D) = s[i / 8][i % 8];
        }
    }
}

#endif
