/*
 * Gated DeltaNet for many rows: blocks of the absolute 64-token grid in the
 * chunked form. With X = K S, new values N = T beta (V - e^G X), T = (I + A)^-1,
 * outputs e^G Q S + P N and S <- e^G_last S + (e^(G_last - G) K)^T N. What does
 * not need S is made for all blocks at once; one walk over the blocks has the
 * rest. Rows past a block's end are zeros everywhere.
 *
 * fp16 operands in two parts where the state's error counts: x = high + low / 2048.
 */
#include "kernels/cuda/gdn.cuh"
#include "kernels/cuda/gdn_stages.h"

enum { B = GDN_B, D = GDN_D };

#define LOW     2048.0f
#define LOW_INV (1.0f / 2048.0f)

struct gdn_block {
    int span, row, n; /* rows of the batch */
    int t;            /* of the first, counted from the span's first */
    bool last;
};

static __device__ __forceinline__ int blocks_of(const struct cu_span &s)
{
    return s.n > 0 ? (s.pos % B + s.n + B - 1) / B : 0;
}

/* Block j of a span. */
static __device__ __forceinline__ struct gdn_block block_of(const struct cu_span &s, int span,
                                                            int j)
{
    const int from = j > 0 ? j * B - s.pos % B : 0;
    const int to = min(s.n, (j + 1) * B - s.pos % B);
    return {span, s.first + from, to - from, from, to == s.n};
}

/* Spans from w's first on that one launch has. */
static __device__ __forceinline__ int spans_of(const struct cu_batch &b, const struct gdn_work &w)
{
    return min(b.count[1], w.first_span + CU_ROWS);
}

/* Block `index` of a launch's spans; false beyond the last. */
static __device__ __forceinline__ bool find_block(const struct cu_batch &b,
                                                  const struct gdn_work &w, int index,
                                                  struct gdn_block *out)
{
    const int end = spans_of(b, w);
    for (int i = w.first_span; i < end; i++) {
        const struct cu_span s = b.span[i];
        const int n = blocks_of(s);
        if (index < n) {
            *out = block_of(s, i, index);
            return true;
        }
        index -= n;
    }
    return false;
}

/* Place of 16-byte unit c of a row, in a tile of 128 or 64 halves a row. */
static __device__ __forceinline__ uint32_t unit128(int row, int c)
{
    return (uint32_t)(row * 256 + ((c ^ row % 8) << 4));
}

static __device__ __forceinline__ uint32_t unit64(int row, int c)
{
    return (uint32_t)(row * 128 + ((c ^ row % 8) << 4));
}

/* Two values as high and low parts. */
static __device__ __forceinline__ void split(float x, float y, uint32_t *high, uint32_t *low)
{
    *high = f16x2_of_f32(x, y);
    const float2 h = gdn_unpack(*high);
    *low = f16x2_of_f32((x - h.x) * LOW, (y - h.y) * LOW);
}

/*
 * Convolution, silu, L2 norms. A block of 4 warps has a head's 128 channels (four a
 * lane) of a grid block, 16 rows a warp, or, where four blocks share the rows, 4: the
 * way of a short prompt, whose time is that of loads one after the other. k goes out as two fp16
 * parts, q as one (without 128^-0.5), v as fp32. The span's last block writes the convolution
 * state. Reads 4, writes 3 to 4 bytes a channel and row.
 */
__global__ void __launch_bounds__(128)
    gdn_conv_rows(const struct cu_batch b, const struct cu_gdn g, const struct gdn_work w)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int head = (int)blockIdx.x, ch = head * D + 4 * lane;
    struct gdn_block blk;
    pdl_launch();
    float4 taps[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        taps[i] = *(const float4 *)(g.conv_w + 4 * (size_t)(ch + i));
    }
    pdl_wait();
    if (!find_block(b, w, (int)blockIdx.y, &blk)) {
        return;
    }
    const struct cu_span span = b.span[blk.span];
    const int channels = (2 * g.k_heads + g.v_heads) * D;
    const size_t conv = (size_t)span.slot * g.state.conv_stride;
    const float *old = g.state.conv + conv + (size_t)span.parity * 3 * (size_t)channels + ch;
    float *next = g.state.conv + conv + (size_t)(1 - span.parity) * 3 * (size_t)channels + ch;
    const float *in = g.proj + (size_t)span.first * g.ld + g.col_qkv + ch;
    const int per_warp = 16 / (int)gridDim.z, r0 = per_warp * (4 * (int)blockIdx.z + warp);
    float4 x[3];
#pragma unroll
    for (int i = 0; i < 3; i++) {
        const int t = blk.t + r0 - 3 + i;
        x[i] = make_float4(0, 0, 0, 0);
        if (r0 < blk.n) {
            x[i] = *(const float4 *)(t < 0 ? old + (size_t)(3 + t) * (size_t)channels
                                           : in + (size_t)t * g.ld);
        }
    }
    uint8_t *tile = w.kq + ((size_t)blockIdx.y * (size_t)g.k_heads +
                            (size_t)(head < g.k_heads ? head : head - g.k_heads)) *
                               GDN_KQ_BYTES;
    float *v =
        w.v + ((size_t)blk.row * (size_t)g.v_heads + (size_t)(head - 2 * g.k_heads)) * D + 4 * lane;
    for (int r = r0; r < r0 + per_warp; r += 4) {
        float4 in4[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            in4[i] = make_float4(0, 0, 0, 0);
            if (r + i < blk.n) {
                in4[i] = *(const float4 *)(in + (size_t)(blk.t + r + i) * g.ld);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float4 y;
            y.x = gdn_conv(taps[0], x[0].x, x[1].x, x[2].x, in4[i].x);
            y.y = gdn_conv(taps[1], x[0].y, x[1].y, x[2].y, in4[i].y);
            y.z = gdn_conv(taps[2], x[0].z, x[1].z, x[2].z, in4[i].z);
            y.w = gdn_conv(taps[3], x[0].w, x[1].w, x[2].w, in4[i].w);
            x[0] = x[1];
            x[1] = x[2];
            x[2] = in4[i];
            const bool valid = r + i < blk.n;
            if (head >= 2 * g.k_heads) {
                if (valid) {
                    *(float4 *)(v + (size_t)(r + i) * (size_t)g.v_heads * D) = y;
                }
                continue;
            }
            const float ss = fmaf(y.w, y.w, fmaf(y.z, y.z, fmaf(y.y, y.y, y.x * y.x)));
            const float s = valid ? rsqrt_approx(warp_sum(ss) + 1e-6f) : 0.0f;
            uint2 high, low;
            split(y.x * s, y.y * s, &high.x, &low.x);
            split(y.z * s, y.w * s, &high.y, &low.y);
            const uint32_t at = unit128(r + i, lane / 2) + (uint32_t)(lane % 2 * 8);
            if (head < g.k_heads) {
                *(uint2 *)(tile + 2 * B * D * 2 + at) = high;
            } else {
                *(uint2 *)(tile + at) = high;
                *(uint2 *)(tile + B * D * 2 + at) = low;
            }
        }
    }
    if (blk.last && blockIdx.z == 0 && warp < 3) {
        const int t = span.n - 3 + warp;
        *(float4 *)(next + (size_t)warp * (size_t)channels) =
            *(const float4 *)(t < 0 ? old + (size_t)(3 + t) * (size_t)channels
                                    : in + (size_t)t * g.ld);
    }
}

/* ---- what needs no state: T and P ---- */

enum { LDA = B + 4 };

static __device__ __forceinline__ double shfl_up(double x, int d)
{
    uint32_t u[2];
    memcpy(u, &x, sizeof u);
    u[0] = __shfl_up_sync(GDN_FULL, u[0], d);
    u[1] = __shfl_up_sync(GDN_FULL, u[1], d);
    memcpy(&x, u, sizeof u);
    return x;
}

/* The block's gates, by one warp: beta and the sum of log decays up to each row as
 * g + low (strong decay makes sums large, and only their differences count); and
 * what the walk wants of them. */
static __device__ __forceinline__ void gates(const struct cu_gdn &p, const struct gdn_block &blk,
                                             int h, int lane, float *beta, float *g, float *low,
                                             float *out)
{
    double part[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = 2 * lane + i;
        const float *in = p.proj + (size_t)(blk.row + r) * p.ld + h;
        part[i] = 0;
        beta[r] = 0;
        if (r < blk.n) {
            part[i] = (double)gdn_log_decay(p.a_log[h], in[p.col_a], p.dt_bias[h]);
            beta[r] = gdn_beta(in[p.col_b]);
        }
        out[r] = beta[r];
    }
    double sum = part[0] + part[1];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const double other = shfl_up(sum, d);
        sum += lane >= d ? other : 0;
    }
    double before = shfl_up(sum, 1);
    before = lane > 0 ? before : 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = 2 * lane + i;
        before += part[i];
        g[r] = (float)before;
        low[r] = (float)(before - (double)g[r]);
        out[B + r] = expf(g[r]);
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int r = 2 * lane + i;
        out[2 * B + r] = expf((g[B - 1] - g[r]) + (low[B - 1] - low[r]));
    }
    if (lane < 4) {
        out[3 * B + lane] = expf(g[B - 1]);
    }
}

enum { INNER_THREADS = 256 };

/* Rows 16 RB .. of T = (I + A)^-1 left of their diagonal block, which is there:
 * -T_dd (A T above). R rows of a column a thread. */
template <int RB, int R>
static __device__ __forceinline__ void inverse_rows(const float *a, float *t, int tid)
{
    constexpr int COLS = 16 * RB;
    const int col = tid % COLS, i0 = tid / COLS * R;
    float y[R];
#pragma unroll
    for (int i = 0; i < R; i++) {
        y[i] = 0;
    }
    if (i0 < 16) {
        for (int m = col / 16 * 16; m < COLS; m += 4) {
            float x[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                x[k] = t[(m + k) * LDA + col];
            }
#pragma unroll
            for (int i = 0; i < R; i++) {
                const float4 c = *(const float4 *)(a + (COLS + i0 + i) * LDA + m);
                y[i] = fmaf(c.w, x[3], fmaf(c.z, x[2], fmaf(c.y, x[1], fmaf(c.x, x[0], y[i]))));
            }
        }
#pragma unroll
        for (int i = 0; i < R; i++) {
            t[(COLS + i0 + i) * LDA + col] = y[i];
            y[i] = 0;
        }
    }
    __syncthreads();
    if (i0 < 16) {
#pragma unroll
        for (int m = 0; m < 16; m += 4) {
            float x[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                x[k] = t[(COLS + m + k) * LDA + col];
            }
#pragma unroll
            for (int i = 0; i < R; i++) {
                const float4 c = *(const float4 *)(t + (COLS + i0 + i) * LDA + COLS + m);
                y[i] = fmaf(c.w, x[3], fmaf(c.z, x[2], fmaf(c.y, x[1], fmaf(c.x, x[0], y[i]))));
            }
        }
    }
    __syncthreads();
    if (i0 < 16) {
#pragma unroll
        for (int i = 0; i < R; i++) {
            t[(COLS + i0 + i) * LDA + col] = -y[i];
        }
    }
    __syncthreads();
}

/* T from A, both [64][LDA] in shared memory, by INNER_THREADS. Row t uses rows up to t. */
static __device__ __forceinline__ void inverse(const float *a, float *t, int tid)
{
    const int first = tid / 32 * 16, col = tid % 32;
    if (first < B && col < 16) {
        float x[16];
#pragma unroll
        for (int i = 0; i < 16; i++) {
            float y = i == col ? 1.0f : 0.0f;
#pragma unroll
            for (int m = 0; m < i; m++) {
                y = fmaf(-a[(first + i) * LDA + first + m], x[m], y);
            }
            x[i] = y;
            t[(first + i) * LDA + first + col] = y;
        }
    }
    __syncthreads();
    inverse_rows<1, 1>(a, t, tid);
    inverse_rows<2, 2>(a, t, tid);
    inverse_rows<3, 4>(a, t, tid);
}

/*
 * A = beta (K K^T) e^(G_i - G_j) below the diagonal, P = (Q K^T) e^(G_i - G_j) up
 * to it, T = (I + A)^-1, for one value head and grid block; two warps for 16 rows, the second
 * has columns 32 to 63. One of those that have nothing there makes the gates meanwhile.
 * Reads 48 KB of K and Q (shared by the heads of a key head), writes 24 KB.
 */
__global__ void __launch_bounds__(INNER_THREADS, 2)
    gdn_inner(const struct cu_batch b, const struct cu_gdn p, const struct gdn_work w)
{
    __shared__ float beta[B], g[B], low[B];
    unsigned char *smem = cu_smem();
    const int tid = (int)threadIdx.x, lane = tid % 32;
    const int warp = tid / 32 % 4, j0 = tid / 128 * 2; /* of 16 rows; of 16 columns */
    const int h = (int)blockIdx.x, kh = h / (p.v_heads / p.k_heads);
    struct gdn_block blk;
    pdl_launch();
    pdl_wait();
    if (!find_block(b, w, (int)blockIdx.y, &blk)) {
        return;
    }
    const uint32_t kq = smem_addr(smem);
    const uint8_t *from =
        w.kq + ((size_t)blockIdx.y * (size_t)p.k_heads + (size_t)kh) * GDN_KQ_BYTES;
    for (int i = tid * 16; i < GDN_KQ_BYTES; i += INNER_THREADS * 16) {
        cp_async16(kq + (uint32_t)i, from + i);
    }
    cp_async_commit();
    const size_t unit = (size_t)blockIdx.y * (size_t)p.v_heads + (size_t)h;
    cp_async_wait<0>();
    __syncthreads();
    if (warp == 0 && j0 > 0) {
        gates(p, blk, h, lane, beta, g, low, w.gate + unit * GDN_GATE_FLOATS);
    }

    float kk[4][4] = {}, cross[4][4] = {}, qk[4][4] = {};
    const int a_row = 16 * warp + lane % 16, b_row = lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int ks = 0; ks < 8; ks++) {
        uint32_t ah[4], al[4], aq[4];
        const uint32_t at = kq + unit128(a_row, 2 * ks + lane / 16);
        ldmatrix_x4(ah, at);
        ldmatrix_x4(al, at + B * D * 2);
        ldmatrix_x4(aq, at + 2 * B * D * 2);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if (j0 + j > warp) {
                continue;
            }
            uint32_t bh[4], bl[4];
            const uint32_t bt = kq + unit128(16 * (j0 + j) + b_row, 2 * ks + lane / 8 % 2);
            ldmatrix_x4(bh, bt);
            ldmatrix_x4(bl, bt + B * D * 2);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int c = 2 * j + i;
                mma_f16(kk[c], ah, bh[2 * i], bh[2 * i + 1], kk[c]);
                mma_f16(cross[c], ah, bl[2 * i], bl[2 * i + 1], cross[c]);
                mma_f16(qk[c], aq, bh[2 * i], bh[2 * i + 1], qk[c]);
                mma_f16(cross[c], al, bh[2 * i], bh[2 * i + 1], cross[c]);
            }
        }
    }
    __syncthreads(); /* A and T take the place of K and Q */

    float *am = (float *)smem, *tm = am + B * LDA;
    uint8_t *out = w.tp + unit * GDN_TP_BYTES;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const int unit8 = 2 * j0 + c, j = 8 * unit8 + 2 * (lane % 4);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = 16 * warp + 8 * half + lane / 4;
            float a[2], q[2];
#pragma unroll
            for (int e = 0; e < 2; e++) {
                const float d = i >= j + e ? expf((g[i] - g[j + e]) + (low[i] - low[j + e])) : 0.0f;
                const float k = fmaf(cross[c][2 * half + e], LOW_INV, kk[c][2 * half + e]);
                a[e] = i > j + e ? beta[i] * k * d : 0.0f;
                q[e] = qk[c][2 * half + e] * d;
            }
            if (unit8 / 2 <= warp) {
                *(float2 *)(am + i * LDA + j) = make_float2(a[0], a[1]);
            }
            *(uint32_t *)(out + 2 * B * B * 2 + unit64(i, unit8) + 4 * (lane % 4)) =
                f16x2_of_f32(q[0], q[1]);
        }
    }
    __syncthreads();
    inverse(am, tm, tid);
    for (int i = tid; i < B * 8; i += INNER_THREADS) {
        const int row = i / 8, c = i % 8;
        uint4 high = make_uint4(0, 0, 0, 0), low4 = make_uint4(0, 0, 0, 0);
        if (c / 2 <= row / 16) {
            const float4 x = *(const float4 *)(tm + row * LDA + 8 * c);
            const float4 y = *(const float4 *)(tm + row * LDA + 8 * c + 4);
            split(x.x, x.y, &high.x, &low4.x);
            split(x.z, x.w, &high.y, &low4.y);
            split(y.x, y.y, &high.z, &low4.z);
            split(y.z, y.w, &high.w, &low4.w);
        }
        *(uint4 *)(out + unit64(row, c)) = high;
        *(uint4 *)(out + B * B * 2 + unit64(row, c)) = low4;
    }
}

/* ---- the walk ---- */

enum {
    WALK_COLS = 64, /* value columns of a block, 16 a warp */
    LDV = WALK_COLS + 4,
    AT_TP = GDN_KQ_BYTES,
    AT_V = AT_TP + GDN_TP_BYTES,
    AT_GATE = AT_V + B * LDV * 4,
    STAGE_BYTES = AT_GATE + GDN_GATE_FLOATS * 4,
    GATE_USED = 3 * B + 4,
    V_ROWS = 128 / (WALK_COLS / 4) /* that 128 threads copy at once */
};

struct walk {
    const struct cu_gdn *g;
    const struct gdn_work *w;
    int h, kh, first_col;
};

/* The lane's first element of S: key 2 t, column g of the warp's. */
static __device__ __forceinline__ float *state_at(const struct cu_gdn &p, int slot,
                                                  const struct walk &k, int warp, int lane)
{
    return p.state.s + (size_t)slot * p.state.s_stride +
           ((size_t)k.h * D + (size_t)(2 * (lane % 4))) * D + k.first_col + 16 * warp + lane / 4;
}

/* Starts the copies of a grid block's operands into a stage. */
static __device__ __forceinline__ void fetch(const struct walk &k, const struct gdn_block &blk,
                                             int index, uint32_t stage, int tid)
{
    const uint8_t *kq =
        k.w->kq + ((size_t)index * (size_t)k.g->k_heads + (size_t)k.kh) * GDN_KQ_BYTES;
    const size_t unit = (size_t)index * (size_t)k.g->v_heads + (size_t)k.h;
    const uint8_t *tp = k.w->tp + unit * GDN_TP_BYTES;
    const float *gate = k.w->gate + unit * GDN_GATE_FLOATS;
    const size_t ld = (size_t)k.g->v_heads * D;
    const float *v = k.w->v + (size_t)blk.row * ld + k.h * D + k.first_col;
#pragma unroll 8
    for (int i = tid * 16; i < GDN_KQ_BYTES; i += 128 * 16) {
        cp_async16(stage + (uint32_t)i, kq + i);
    }
#pragma unroll
    for (int i = tid * 16; i < GDN_TP_BYTES; i += 128 * 16) {
        cp_async16(stage + AT_TP + (uint32_t)i, tp + i);
    }
    if (tid < GATE_USED / 4) {
        cp_async16(stage + AT_GATE + 16 * (uint32_t)tid, gate + 4 * tid);
    }
    int row = tid / (WALK_COLS / 4);
    const int c = tid % (WALK_COLS / 4) * 4;
    v += (size_t)row * ld + c;
    stage += AT_V + (uint32_t)(row * LDV + c) * 4;
#pragma unroll
    for (int i = 0; i < B / V_ROWS; i++) {
        cp_async16_if(stage + (uint32_t)(i * V_ROWS * LDV * 4), v, row < blk.n);
        row += V_ROWS;
        v += V_ROWS * ld;
    }
}

/* Fragments of rows 16 j .. and 16 columns, from the accumulators c of tiles 2 j and
 * 2 j + 1: an accumulator's rows are a left operand's rows. */
static __device__ __forceinline__ void split_frag(const float (*c)[4], uint32_t *high,
                                                  uint32_t *low)
{
    split(c[0][0], c[0][1], &high[0], &low[0]);
    split(c[0][2], c[0][3], &high[1], &low[1]);
    split(c[1][0], c[1][1], &high[2], &low[2]);
    split(c[1][2], c[1][3], &high[3], &low[3]);
}

static __device__ __forceinline__ void high_frag(const float (*c)[4], uint32_t *high)
{
    high[0] = f16x2_of_f32(c[0][0], c[0][1]);
    high[1] = f16x2_of_f32(c[0][2], c[0][3]);
    high[2] = f16x2_of_f32(c[1][0], c[1][1]);
    high[3] = f16x2_of_f32(c[1][2], c[1][3]);
}

/* d += a b for the pair of tiles in b, in three products of parts. */
static __device__ __forceinline__ void mma_parts(float (*d)[4], float (*cross)[4],
                                                 const uint32_t *ah, const uint32_t *al,
                                                 const uint32_t *bh, const uint32_t *bl)
{
    mma_f16(d[0], ah, bh[0], bh[1], d[0]);
    mma_f16(d[1], ah, bh[2], bh[3], d[1]);
    mma_f16(cross[0], al, bh[0], bh[1], cross[0]);
    mma_f16(cross[1], al, bh[2], bh[3], cross[1]);
    mma_f16(cross[0], ah, bl[0], bl[1], cross[0]);
    mma_f16(cross[1], ah, bl[2], bl[3], cross[1]);
}

/* One grid block for the warp's 16 columns. s[i]: S^T (columns g, g + 8; keys 8 i +
 * 2 t, + 1). All products are transposed, value columns as rows, so that results of
 * one are left operands of the next without leaving the registers. */
static __device__ __forceinline__ void walk_block(float (*s)[4], uint32_t stage, const float *v,
                                                  const float *gate, int lane, int n, float *out,
                                                  size_t ld)
{
    const int g = lane / 4, t = lane % 4;
    /* a stage is aligned to 256: a row's unit 2 k + i is at unit i's place ^ 32 k */
    const int b_row = lane / 16 * 8 + lane % 8, b_unit = lane / 8 % 2;
    const uint32_t k_at = stage + unit128(b_row, b_unit);
    const uint32_t t_at = stage + AT_TP + unit64(b_row, b_unit);
    uint32_t rh[4][4], rl[4][4];
    {
        float x[8][4] = {}, cross[8][4] = {};
#pragma unroll
        for (int ks = 0; ks < 8; ks++) {
            uint32_t sh[4], sl[4];
            split_frag(&s[2 * ks], sh, sl);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t bh[4], bl[4];
                const uint32_t at = (k_at ^ (uint32_t)(32 * ks)) + 16 * 256 * j;
                ldmatrix_x4(bh, at);
                ldmatrix_x4(bl, at + B * D * 2);
                mma_parts(&x[2 * j], &cross[2 * j], sh, sl, bh, bl);
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = 8 * i + 2 * t;
            const float2 beta = *(const float2 *)(gate + row);
            const float2 eg = *(const float2 *)(gate + B + row);
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const float e = c % 2 ? eg.y : eg.x;
                const float value = v[(row + c % 2) * LDV + g + c / 2 * 8];
                const float ks = fmaf(cross[i][c], LOW_INV, x[i][c]);
                x[i][c] = (c % 2 ? beta.y : beta.x) * fmaf(-e, ks, value);
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
            split_frag(&x[2 * j], rh[j], rl[j]);
        }
    }

    float nv[8][4] = {};
#pragma unroll
    for (int half = 0; half < 4; half += 2) {
        float cross[4][4] = {};
#pragma unroll
        for (int k = 0; k < half + 2; k++) {
#pragma unroll
            for (int j = half; j < half + 2; j++) {
                if (k <= j) {
                    uint32_t bh[4], bl[4];
                    const uint32_t at = (t_at ^ (uint32_t)(32 * k)) + 16 * 128 * j;
                    ldmatrix_x4(bh, at);
                    ldmatrix_x4(bl, at + B * B * 2);
                    mma_parts(&nv[2 * j], &cross[2 * (j - half)], rh[k], rl[k], bh, bl);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                nv[2 * half + i][c] = fmaf(cross[i][c], LOW_INV, nv[2 * half + i][c]);
            }
        }
    }

    {
        float o[8][4] = {};
#pragma unroll
        for (int ks = 0; ks < 8; ks++) {
            uint32_t sh[4];
            high_frag(&s[2 * ks], sh);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t bq[4];
                ldmatrix_x4(bq, (k_at ^ (uint32_t)(32 * ks)) + 2 * B * D * 2 + 16 * 256 * j);
                mma_f16(o[2 * j], sh, bq[0], bq[1], o[2 * j]);
                mma_f16(o[2 * j + 1], sh, bq[2], bq[3], o[2 * j + 1]);
            }
        }
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float2 eg = *(const float2 *)(gate + B + 8 * i + 2 * t);
            o[i][0] *= eg.x;
            o[i][1] *= eg.y;
            o[i][2] *= eg.x;
            o[i][3] *= eg.y;
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint32_t nh[4];
            high_frag(&nv[2 * k], nh);
#pragma unroll
            for (int j = k; j < 4; j++) {
                uint32_t bp[4];
                ldmatrix_x4(bp, (t_at ^ (uint32_t)(32 * k)) + 2 * B * B * 2 + 16 * 128 * j);
                mma_f16(o[2 * j], nh, bp[0], bp[1], o[2 * j]);
                mma_f16(o[2 * j + 1], nh, bp[2], bp[3], o[2 * j + 1]);
            }
        }
        out += (size_t)(2 * t) * ld + g;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int row = 8 * i + 2 * t;
            if (row < n) {
                out[0] = o[i][0] * GDN_Q_SCALE;
                out[8] = o[i][2] * GDN_Q_SCALE;
            }
            if (row + 1 < n) {
                out[ld] = o[i][1] * GDN_Q_SCALE;
                out[ld + 8] = o[i][3] * GDN_Q_SCALE;
            }
            out += 8 * ld;
        }
    }

#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float2 rest = *(const float2 *)(gate + 2 * B + 8 * i + 2 * t);
        nv[i][0] *= rest.x;
        nv[i][1] *= rest.y;
        nv[i][2] *= rest.x;
        nv[i][3] *= rest.y;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        split_frag(&nv[2 * j], rh[j], rl[j]);
    }
    const float decay = gate[3 * B];
    const uint32_t row_at = stage + unit128(lane % 16, lane / 16);
#pragma unroll
    for (int kp = 0; kp < 8; kp += 2) {
        float d[4][4] = {}, cross[4][4] = {};
#pragma unroll
        for (int j = 0; j < 4; j++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                uint32_t bh[4], bl[4];
                const uint32_t at = (row_at ^ (uint32_t)(32 * (kp + i))) + 16 * 256 * j;
                ldmatrix_x4_trans(bh, at);
                ldmatrix_x4_trans(bl, at + B * D * 2);
                mma_parts(&d[2 * i], &cross[2 * i], rh[j], rl[j], bh, bl);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const float add = fmaf(cross[i][c], LOW_INV, d[i][c]);
                s[2 * kp + i][c] = fmaf(decay, s[2 * kp + i][c], add);
            }
        }
    }
}

/*
 * The blocks of a span one after the other for one value head and 64 of its
 * columns, 16 a warp, S^T in registers. Reads a block's 73 KB of K, Q, T, P and
 * 16 KB of V; outputs before the norm replace V. 3 fp16 products where the state
 * depends on it, one where only the outputs do. STAGES 2 hides the copies and
 * takes 180 KB of shared memory, STAGES 1 takes 90.
 */
template <int STAGES>
__global__ void __launch_bounds__(128)
    gdn_walk(const struct cu_batch b, const struct cu_gdn p, const struct gdn_work w)
{
    unsigned char *smem = cu_smem_aligned(256);
    const int tid = (int)threadIdx.x, warp = tid / 32, lane = tid % 32;
    pdl_launch();
    pdl_wait();
    const int which = w.first_span + (int)blockIdx.y;
    if (which >= spans_of(b, w)) {
        return;
    }
    int index = 0;
    for (int i = w.first_span; i < which; i++) {
        const struct cu_span s = b.span[i];
        index += blocks_of(s);
    }
    const struct cu_span span = b.span[which];
    const int blocks = blocks_of(span);
    struct walk k;
    k.g = &p;
    k.w = &w;
    k.h = (int)blockIdx.x / (D / WALK_COLS);
    k.kh = k.h / (p.v_heads / p.k_heads);
    k.first_col = (int)blockIdx.x % (D / WALK_COLS) * WALK_COLS;
    const size_t ld = (size_t)p.v_heads * D;
    float *state = state_at(p, span.slot, k, warp, lane);
    float s[16][4];
#pragma unroll
    for (int i = 0; i < 16; i++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            s[i][c] = state[(8 * i + c % 2) * D + c / 2 * 8];
        }
    }
    if (STAGES == 2) {
        if (blocks > 0) {
            fetch(k, block_of(span, 0, 0), index, smem_addr(smem), tid);
        }
        cp_async_commit();
    }
    for (int j = 0; j < blocks; j++) {
        unsigned char *stage = smem + (STAGES == 2 ? j % 2 * STAGE_BYTES : 0);
        const struct gdn_block blk = block_of(span, 0, j);
        if (STAGES == 2) {
            if (j + 1 < blocks) {
                fetch(k, block_of(span, 0, j + 1), index + j + 1,
                      smem_addr(smem + (j + 1) % 2 * STAGE_BYTES), tid);
            }
        } else {
            fetch(k, blk, index + j, smem_addr(stage), tid);
        }
        cp_async_commit();
        cp_async_wait<STAGES - 1>();
        __syncthreads();
        walk_block(s, smem_addr(stage), (const float *)(stage + AT_V) + 16 * warp,
                   (const float *)(stage + AT_GATE), lane, blk.n,
                   w.v + (size_t)blk.row * ld + k.h * D + k.first_col + 16 * warp, ld);
        __syncthreads();
    }
    state = state_at(p, span.slot, k, warp, lane);
#pragma unroll
    for (int i = 0; i < 16; i++) {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            state[(8 * i + c % 2) * D + c / 2 * 8] = s[i][c];
        }
    }
}

/* Gated norm of a row's heads, one a warp, into the tiled activations: 4 + 4 bytes
 * read and 2 written an element. */
__global__ void __launch_bounds__(256)
    gdn_norm(const struct cu_batch b, const struct cu_gdn g, const struct gdn_work w)
{
    const int row = (int)blockIdx.x, lane = (int)threadIdx.x % 32;
    const int h = (int)blockIdx.y * 8 + (int)threadIdx.x / 32;
    pdl_launch();
    pdl_wait();
    if (row >= b.count[0] || h >= g.v_heads) {
        return;
    }
    const float4 o =
        *(const float4 *)(w.v + ((size_t)row * (size_t)g.v_heads + (size_t)h) * D + 4 * lane);
    const float4 z = *(const float4 *)(g.proj + (size_t)row * g.ld + g.col_z + h * D + 4 * lane);
    const float4 y = gdn_gated_norm(o, z, *(const float4 *)(g.gnorm + 4 * lane), g.eps);
    /* columns 4 lane .. + 3 lie in two pairs, in neighbouring 16-byte units */
    const int tiles = g.v_heads * (D / 64), t = lane % 16 / 4, unit = 2 * (lane % 4);
    uint16_t *tile = g.xt +
                     ((size_t)(row / 128) * (size_t)tiles + (size_t)(h * 2 + lane / 16)) * 8192 +
                     row % 128 * 64 + 2 * t;
    *(uint32_t *)(tile + ((unit ^ row % 8) << 3)) = f16x2_of_f32(y.x, y.y);
    *(uint32_t *)(tile + (((unit + 1) ^ row % 8) << 3)) = f16x2_of_f32(y.z, y.w);
}

extern "C" size_t cu_gdn_work(int k_heads, int v_heads, int max_rows)
{
    return gdn_layout(NULL, k_heads, v_heads, max_rows, CU_ROWS).bytes;
}

/* Everything but the norm, for up to CU_ROWS spans. */
static cudaError_t stages_of_spans(struct cu_ctx *c, const struct cu_batch *b,
                                   const struct cu_gdn *g, const struct gdn_work &w, int n,
                                   unsigned stages)
{
    const unsigned blocks = (unsigned)gdn_blocks(b->rows, n), heads = (unsigned)g->v_heads;
    const unsigned conv_heads = (unsigned)(2 * g->k_heads) + heads;
    const dim3 conv(conv_heads, blocks, conv_heads * blocks < 4 * (unsigned)c->n_sm ? 4 : 1);
    const dim3 walk(heads * (D / WALK_COLS), (unsigned)n);
    cudaError_t rc = cudaSuccess;
    if (stages & GDN_CONV) {
        rc = cu_launch(c, "gdn_conv_rows", gdn_conv_rows, conv, dim3(128), 0, *b, *g, w);
    }
    if (rc == cudaSuccess && stages & GDN_INNER) {
        rc = cu_launch(c, "gdn_inner", gdn_inner, dim3(heads, blocks), dim3(INNER_THREADS),
                       GDN_KQ_BYTES, *b, *g, w);
    }
    if (rc == cudaSuccess && stages & GDN_WALK) {
        rc = c->path == CU_SM90 ? cu_launch(c, "gdn_walk", gdn_walk<2>, walk, dim3(128),
                                            2 * STAGE_BYTES + 128, *b, *g, w)
                                : cu_launch(c, "gdn_walk", gdn_walk<1>, walk, dim3(128),
                                            STAGE_BYTES + 128, *b, *g, w);
    }
    return rc;
}

extern "C" int gdn_prefill_stages(struct cu_ctx *c, const struct cu_batch *b,
                                  const struct cu_gdn *g, unsigned stages)
{
    if (b->rows < 1 || b->spans < 1 || g->v_heads % g->k_heads) {
        return cudaErrorInvalidValue;
    }
    const int most = b->spans < CU_ROWS ? b->spans : CU_ROWS;
    struct gdn_work w = gdn_layout(g->work, g->k_heads, g->v_heads, b->rows, most);
    cudaError_t rc = cudaSuccess;
    for (; rc == cudaSuccess && w.first_span < b->spans; w.first_span += CU_ROWS) {
        const int rest = b->spans - w.first_span;
        rc = stages_of_spans(c, b, g, w, rest < CU_ROWS ? rest : CU_ROWS, stages);
    }
    if (rc == cudaSuccess && stages & GDN_NORM) {
        rc = cu_launch(c, "gdn_norm", gdn_norm,
                       dim3((unsigned)b->rows, (unsigned)(g->v_heads + 7) / 8), dim3(256), 0, *b,
                       *g, w);
    }
    return rc;
}

extern "C" int cu_gdn_prefill(struct cu_ctx *c, const struct cu_batch *b, const struct cu_gdn *g)
{
    return gdn_prefill_stages(c, b, g, GDN_ALL);
}
