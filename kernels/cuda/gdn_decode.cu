/*
 * Gated DeltaNet, step by step: up to CU_ROWS rows, one launch. Bound by the state,
 * which is read once and written once per span however many rows the span has.
 * The same kernel folds: it repeats the step for recorded rows without outputs.
 */
#include "kernels/cuda/gdn.cuh"

enum {
    KEY_WARPS = 4, /* of 32 keys each, */
    COL_WARPS = 4, /* of 32 value columns each */
    WARPS = KEY_WARPS * COL_WARPS,
    THREADS = WARPS * 32,
    CH = 3 * GDN_D,                         /* a head's channels: q, k, v */
    LD = CH + GDN_D,                        /* of a row in shared memory: those and z */
    CHANNELS = (CH + THREADS - 1) / THREADS /* of a thread */
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

static __device__ __forceinline__ float dot4(float4 a, float4 b)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, a.x * b.x)));
}

static __device__ __forceinline__ void load4(float *to, const float *from)
{
    const float4 v = *(const float4 *)from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}

/* Channel c of a head's q (0..127), k (128..255), v (256..) in the qkv row. */
static __device__ __forceinline__ int channel_of(int c, int kh, int k_heads, int h)
{
    return c < 128   ? kh * 128 + c
           : c < 256 ? (k_heads + kh) * 128 + c - 128
                     : (2 * k_heads + h) * 128 + c - 256;
}

/* Sums of products with k (x) and q (y) of 8 keys by 4 columns, added up over the
 * four lanes that share the columns; the lane keeps two of the eight sums: of k in
 * the warp's lower half, q in the upper, columns 0, 1 or 2, 3 by bit 3. */
static __device__ __forceinline__ float2 scatter_sums(const float *x, const float *y, int lane)
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
static __device__ __forceinline__ float4 total(const float *part)
{
    const float4 a = *(const float4 *)part, b = *(const float4 *)(part + 2 * GDN_D);
    const float4 c = *(const float4 *)(part + 4 * GDN_D), d = *(const float4 *)(part + 6 * GDN_D);
    return make_float4(((a.x + b.x) + c.x) + d.x, ((a.y + b.y) + c.y) + d.y,
                       ((a.z + b.z) + c.z) + d.z, ((a.w + b.w) + c.w) + d.w);
}

/* u = beta (v - e^g S^T k), before the update of S; sk without k's norm. */
static __device__ __forceinline__ float4 delta(const struct gdn_coef &e, float4 v, float4 sk)
{
    const float d = -e.decay * e.k_scale;
    return make_float4(e.beta * fmaf(d, sk.x, v.x), e.beta * fmaf(d, sk.y, v.y),
                       e.beta * fmaf(d, sk.z, v.z), e.beta * fmaf(d, sk.w, v.w));
}

/* o = e^g S^T q + (q k) u, which is S^T q after the update. */
static __device__ __forceinline__ float4 output(const struct gdn_coef &e, float4 u, float4 sq)
{
    const float d = e.decay * e.q_scale;
    return make_float4(fmaf(d, sq.x, e.qk * u.x), fmaf(d, sq.y, e.qk * u.y),
                       fmaf(d, sq.z, e.qk * u.z), fmaf(d, sq.w, e.qk * u.w));
}

/* The row's activations of one head from o, four columns a lane. */
static __device__ __forceinline__ void put_row(const struct cu_gdn &g, int row, int h, int lane,
                                               float4 o, float4 z)
{
    const float4 y = gdn_gated_norm(o, z, *(const float4 *)(g.gnorm + 4 * lane), g.eps);
    uint2 packed;
    packed.x = f16x2_of_f32(y.x, y.y);
    packed.y = f16x2_of_f32(y.z, y.w);
    *(uint2 *)(g.act.x + ((size_t)row * (size_t)g.v_heads + (size_t)h) * GDN_D + 4 * lane) = packed;
    const float2 a = gdn_unpack(packed.x), b = gdn_unpack(packed.y);
    float sum = (a.x + a.y) + (b.x + b.y);
    sum += __shfl_xor_sync(GDN_FULL, sum, 1);
    sum += __shfl_xor_sync(GDN_FULL, sum, 2);
    sum += __shfl_xor_sync(GDN_FULL, sum, 4);
    if (lane % 8 == 0) {
        g.act.sum[(h * 4 + lane / 8) * CU_ROWS + row] = sum;
    }
}

/*
 * For each row t of a span and value head, with the state S [128 key][128 value]:
 * S' = e^g S, u = beta (v - S'^T k), S = S' + k u^T, o = S^T q.
 *
 * A block has a span's head. A thread keeps 8 keys by 4 columns of S; one barrier a row
 * adds up the keys. Every sum has the same order whatever the rows. q and k channels are
 * convolved by every head that shares them; the first writes their state.
 *
 * Before pdl_wait it reads weights, the span table, S and the convolution state: S
 * and the states were written by this layer's launch of an earlier step, the table
 * by a copy before the step. The kernel just before this one must write none of
 * them; that one let this start only after its own pdl_wait, so that everything
 * before it is done.
 *
 * Bytes: 64 KB read and 64 KB written per head and span. sm_80 and up.
 */
__global__ void __launch_bounds__(THREADS, 2)
    gdn_step(const struct cu_batch b, const struct cu_gdn g, const struct gdn_step_args p)
{
    const int tid = (int)threadIdx.x, warp = tid / 32, lane = tid % 32;
    __shared__ __align__(16) float part[2][KEY_WARPS][2][GDN_D];
    __shared__ struct gdn_coef coef[CU_ROWS];
    float *x = (float *)cu_smem(); /* [rows of the span][LD]: q, k, v after the convolution; z */

    const int h = (int)blockIdx.x;
    if ((int)blockIdx.y >= b.count[1]) {
        pdl_wait();
        return;
    }
    const struct cu_span span = b.span[blockIdx.y];
    const int share = g.v_heads / g.k_heads, kh = h / share;
    const int channels = (2 * g.k_heads + g.v_heads) * GDN_D;
    const size_t record_ld = (size_t)(channels + 2 * g.v_heads);

    const int key = warp / COL_WARPS * 32 + lane / 8 * 8,
              col = warp % COL_WARPS * 32 + lane % 8 * 4;
    float *state = g.state.s + (size_t)span.slot * g.state.s_stride +
                   ((size_t)h * GDN_D + (size_t)key) * GDN_D + col;
    float4 s[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        s[i] = ld_l2_f4(state + i * GDN_D);
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
        if (c < CH) {
            const int ch = channel_of(c, kh, g.k_heads, h);
            taps[j] = *(const float4 *)(g.conv_w + 4 * (size_t)ch);
            old[j][0] = ld_l2_f32(conv_old + ch);
            old[j][1] = ld_l2_f32(conv_old + ch + channels);
            old[j][2] = ld_l2_f32(conv_old + ch + 2 * channels);
        }
    }

    pdl_wait();
    pdl_launch(); /* the next product's weights can come meanwhile */
    int n = span.n;
    if (p.accepted) {
        n = p.accepted[blockIdx.y] < n ? p.accepted[blockIdx.y] : n;
    }
    const float *proj = g.proj + (size_t)span.first * g.ld;
    float *record = p.record ? p.record + (size_t)span.first * record_ld : NULL;
    if (g.act.x && warp < n) {
        cp_async16(smem_addr(x + warp * LD + CH + 4 * lane),
                   proj + (size_t)warp * g.ld + g.col_z + h * GDN_D + 4 * lane);
    }
    const int gate_row = THREADS - 1 - tid;
    if (gate_row < n) {
        const float beta = proj[(size_t)gate_row * g.ld + g.col_b + h];
        const float a = proj[(size_t)gate_row * g.ld + g.col_a + h];
        coef[gate_row].beta = gdn_beta(beta);
        coef[gate_row].decay = expf(gdn_log_decay(g.a_log[h], a, g.dt_bias[h]));
        if (record) {
            record[(size_t)gate_row * record_ld + channels + h] = beta;
            record[(size_t)gate_row * record_ld + channels + g.v_heads + h] = a;
        }
    }
#pragma unroll
    for (int j = 0; j < CHANNELS; j++) {
        const int c = tid + j * THREADS;
        if (c >= CH) {
            continue;
        }
        const int ch = channel_of(c, kh, g.k_heads, h);
        /* q and k belong to the first of the heads that share them */
        const bool mine = c >= 256 || h % share == 0;
        const float *in = proj + g.col_qkv + ch;
        float x0 = old[j][0], x1 = old[j][1], x2 = old[j][2];
        for (int r0 = 0; r0 < n; r0 += 2) {
            float v[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                v[i] = r0 + i < n ? in[(size_t)(r0 + i) * g.ld] : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                if (r0 + i < n) {
                    x[(r0 + i) * LD + c] = gdn_conv(taps[j], x0, x1, x2, v[i]);
                    x0 = x1;
                    x1 = x2;
                    x2 = v[i];
                    if (record && mine) {
                        record[(size_t)(r0 + i) * record_ld + ch] = v[i];
                    }
                }
            }
        }
        if (mine && !p.hold) {
            conv_new[ch] = x0;
            conv_new[ch + channels] = x1;
            conv_new[ch + 2 * channels] = x2;
        }
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    for (int r = warp; r < n; r += WARPS) {
        const float4 q = *(const float4 *)(x + r * LD + 4 * lane);
        const float4 k = *(const float4 *)(x + r * LD + GDN_D + 4 * lane);
        const float qq = warp_sum(dot4(q, q)), kk = warp_sum(dot4(k, k));
        const float qk = warp_sum(dot4(q, k));
        if (lane == 0) {
            const float k_scale = rsqrt_approx(kk + 1e-6f);
            const float q_scale = GDN_Q_SCALE * rsqrt_approx(qq + 1e-6f);
            coef[r].k_scale = k_scale;
            coef[r].q_scale = q_scale;
            coef[r].qk = qk * (q_scale * k_scale);
        }
    }
    __syncthreads();

    for (int r = 0; r < n; r++) {
        float *row = x + r * LD;
        float sk[4] = {0, 0, 0, 0}, sq[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            float k[4], q[4];
            load4(k, row + GDN_D + key + i);
            load4(q, row + key + i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const float4 e = s[i + j];
                sk[0] = fmaf(k[j], e.x, sk[0]), sq[0] = fmaf(q[j], e.x, sq[0]);
                sk[1] = fmaf(k[j], e.y, sk[1]), sq[1] = fmaf(q[j], e.y, sq[1]);
                sk[2] = fmaf(k[j], e.z, sk[2]), sq[2] = fmaf(q[j], e.z, sq[2]);
                sk[3] = fmaf(k[j], e.w, sk[3]), sq[3] = fmaf(q[j], e.w, sq[3]);
            }
        }
        /* two buffers: a warp is at most one barrier ahead */
        *(float2 *)&part[r % 2][warp / COL_WARPS][lane / 16][col + lane / 8 % 2 * 2] =
            scatter_sums(sk, sq, lane);
        __syncthreads();
        const struct gdn_coef e = coef[r];
        if (g.act.x && warp == r % WARPS) {
            const int at = 4 * lane;
            const float4 u =
                delta(e, *(const float4 *)(row + 256 + at), total(&part[r % 2][0][0][at]));
            const float4 o = output(e, u, total(&part[r % 2][0][1][at]));
            *(float4 *)(row + at) = o; /* nobody needs q any more */
        }
        if (p.hold && r == n - 1) {
            break;
        }
        const float4 u =
            delta(e, *(const float4 *)(row + 256 + col), total(&part[r % 2][0][0][col]));
        const float ux = e.k_scale * u.x, uy = e.k_scale * u.y;
        const float uz = e.k_scale * u.z, uw = e.k_scale * u.w;
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            float k[4];
            load4(k, row + GDN_D + key + i);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float4 *const a = &s[i + j];
                a->x = fmaf(k[j], ux, e.decay * a->x);
                a->y = fmaf(k[j], uy, e.decay * a->y);
                a->z = fmaf(k[j], uz, e.decay * a->z);
                a->w = fmaf(k[j], uw, e.decay * a->w);
            }
        }
    }
    if (!p.hold && n > 0) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            *(float4 *)(state + i * GDN_D) = s[i];
        }
    }
    if (!g.act.x) {
        return;
    }
    __syncwarp();
    for (int r = warp; r < n; r += WARPS) {
        const float *o = x + r * LD + 4 * lane;
        put_row(g, span.first + r, h, lane, *(const float4 *)o, *(const float4 *)(o + CH));
    }
}

static int step(struct cu_ctx *c, const char *name, const struct cu_batch *b,
                const struct cu_gdn *g, const struct gdn_step_args &p)
{
    if (b->spans < 1 || b->rows < 1 || b->rows > CU_ROWS || g->v_heads % g->k_heads) {
        return cudaErrorInvalidValue;
    }
    /* one span may have all rows */
    const size_t smem = (size_t)b->rows * LD * sizeof(float);
    return cu_launch(c, name, gdn_step, dim3((unsigned)g->v_heads, (unsigned)b->spans),
                     dim3(THREADS), smem, *b, *g, p);
}

extern "C" int cu_gdn_decode(struct cu_ctx *c, const struct cu_batch *b, const struct cu_gdn *g)
{
    struct gdn_step_args p = {};
    p.record = g->record;
    p.hold = g->hold;
    return step(c, "gdn_decode", b, g, p);
}

extern "C" int cu_gdn_fold(struct cu_ctx *c, const struct cu_batch *b, const struct cu_gdn *g,
                           const int32_t *accepted)
{
    struct cu_gdn from = *g;
    struct gdn_step_args p = {};
    const int channels = (2 * g->k_heads + g->v_heads) * GDN_D;
    from.proj = g->record;
    from.ld = (size_t)(channels + 2 * g->v_heads);
    from.col_qkv = 0;
    from.col_b = channels;
    from.col_a = channels + g->v_heads;
    from.act.x = NULL;
    p.accepted = accepted;
    return step(c, "gdn_fold", b, &from, p);
}
