#ifndef QUASAR_KERNELS_CUDA_GDN_CUH
#define QUASAR_KERNELS_CUDA_GDN_CUH

/* What the two forms of Gated DeltaNet share: gates, convolution, gated norm, and
 * where things lie in cu_gdn.work. */

#include <string.h>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/cu.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row.cuh"

enum {
    GDN_D = BE_DN_DIM,
    GDN_B = BE_BLOCK,
    GDN_KQ_BYTES = 3 * GDN_B * GDN_D * 2, /* K high, K low, Q */
    GDN_TP_BYTES = 3 * GDN_B * GDN_B * 2, /* T high, T low, P */
    GDN_GATE_FLOATS = 4 * GDN_B           /* beta, e^G, e^(G_last - G), e^G_last */
};

#define GDN_FULL    0xffffffffu
#define GDN_Q_SCALE 0.08838834764831845f /* 128^-0.5 */

/* cu_gdn.work, used by one prefill at a time. Blocks: of the 64-token grid, the
 * spans' one after the other. */
struct gdn_work {
    uint8_t *kq; /* [blocks][k_heads] GDN_KQ_BYTES */
    uint8_t *tp; /* [blocks][v_heads] GDN_TP_BYTES */
    float *gate; /* [blocks][v_heads] GDN_GATE_FLOATS */
    float *v;    /* [rows][v_heads * 128]: values, later outputs before the norm */
    size_t bytes;
    int first_span; /* prefill goes by CU_ROWS spans */
};

/* Blocks that rows in so many spans can touch. */
static inline int gdn_blocks(int rows, int spans)
{
    const int most = rows / GDN_B + 2 * spans;
    return rows < most ? rows : most;
}

/* work NULL: only the size. */
static inline struct gdn_work gdn_layout(void *work, int k_heads, int v_heads, int rows, int spans)
{
    struct gdn_work w = {};
    const size_t vh = (size_t)v_heads, blocks = (size_t)gdn_blocks(rows, spans);
    const size_t tp = blocks * (size_t)k_heads * GDN_KQ_BYTES;
    const size_t gate = tp + blocks * vh * GDN_TP_BYTES;
    const size_t v = gate + blocks * vh * GDN_GATE_FLOATS * sizeof(float);
    w.bytes = v + (size_t)rows * vh * GDN_D * sizeof(float);
    if (work) {
        uint8_t *const p = (uint8_t *)work;
        w.kq = p;
        w.tp = p + tp;
        w.gate = (float *)(p + gate);
        w.v = (float *)(p + v);
    }
    return w;
}

static __device__ __forceinline__ float gdn_silu(float x)
{
    return x * rcp_approx(1.0f + expf(-x));
}

static __device__ __forceinline__ float gdn_beta(float b)
{
    return rcp_approx(1.0f + expf(-b));
}

/* Logarithm of the decay, not above 0. */
static __device__ __forceinline__ float gdn_log_decay(float a_log, float a, float dt_bias)
{
    const float u = a + dt_bias;
    return a_log * (u > 20.0f ? u : log1pf(expf(u)));
}

/* Four taps w on the inputs x0 (oldest) .. x3. */
static __device__ __forceinline__ float gdn_conv(float4 w, float x0, float x1, float x2, float x3)
{
    return gdn_silu(fmaf(w.w, x3, fmaf(w.z, x2, fmaf(w.y, x1, w.x * x0))));
}

static __device__ __forceinline__ float2 gdn_unpack(uint32_t h)
{
    __half2 p;
    memcpy((void *)&p, &h, sizeof p);
    return __half22float2(p);
}

/* Sum over each half of the warp, the same for all its lanes. */
static __device__ __forceinline__ float gdn_half_sum(float v)
{
#pragma unroll
    for (int i = 8; i > 0; i /= 2) {
        v += __shfl_xor_sync(GDN_FULL, v, i);
    }
    return v;
}

static __device__ __forceinline__ float gdn_squares(float4 o)
{
    return fmaf(o.w, o.w, fmaf(o.z, o.z, fmaf(o.y, o.y, o.x * o.x)));
}

/* y = rms(o) gnorm silu(z) for four of a head's values; ss: the sum of all their squares. */
static __device__ __forceinline__ float4 gdn_gated(float4 o, float4 z, float4 w, float ss,
                                                   float eps)
{
    const float r = rsqrt_approx(fmaf(ss, 1.0f / GDN_D, eps));
    return make_float4(o.x * r * w.x * gdn_silu(z.x), o.y * r * w.y * gdn_silu(z.y),
                       o.z * r * w.z * gdn_silu(z.z), o.w * r * w.w * gdn_silu(z.w));
}

/* The same for a head's row: four values a lane, all lanes. The sum is that of its halves'. */
static __device__ __forceinline__ float4 gdn_gated_norm(float4 o, float4 z, float4 w, float eps)
{
    const float half = gdn_half_sum(gdn_squares(o));
    return gdn_gated(o, z, w, half + __shfl_xor_sync(GDN_FULL, half, 16), eps);
}

#endif
