#ifndef QUASAR_KERNELS_CUDA_MM_STEP_CUH
#define QUASAR_KERNELS_CUDA_MM_STEP_CUH

/* One step of the weight-streaming product: 64 rows by 64 inputs. */

#include "kernels/cuda/mm_plan.h"
#include "kernels/cuda/ptx.cuh"

/* What all row blocks of a step share: the inputs of a lane (16 of a batch row) and
 * the offsets of its columns, -1032 and -1152 times their sum. */
template <int NT> struct inputs {
    uint4 b[NT][2];
    float4 c[NT];
};

template <int NT>
static __device__ __forceinline__ void inputs_load(struct inputs<NT> &in, const uint8_t *x,
                                                   uint32_t x_rows8, const uint8_t *offset)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        in.b[n][0] = *(const uint4 *)(x + n * x_rows8);
        in.b[n][1] = *(const uint4 *)(x + n * x_rows8 + 16);
        in.c[n] = *(const float4 *)(offset + n * 64);
    }
}

/* MMA j takes words 2 j and 2 j + 1 of the 8. */
static __device__ __forceinline__ uint32_t word_of(const uint4 *b, int i)
{
    const uint4 v = b[i / 4];
    return i % 4 == 0 ? v.x : i % 4 == 1 ? v.y : i % 4 == 2 ? v.z : v.w;
}

static __device__ __forceinline__ float2 unpack_scale(uint32_t s)
{
    __half2 h;
    memcpy((void *)&h, &s, sizeof h);
    return __half22float2(h);
}

/* acc of rows g and g + 8 of a row block += scale * d. */
template <int NT>
static __device__ __forceinline__ void add_scaled(float (*acc)[4], const float (*d)[4], uint32_t s)
{
    const float2 f = unpack_scale(s);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        acc[n][0] = fmaf(f.x, d[n][0], acc[n][0]);
        acc[n][1] = fmaf(f.x, d[n][1], acc[n][1]);
        acc[n][2] = fmaf(f.y, d[n][2], acc[n][2]);
        acc[n][3] = fmaf(f.y, d[n][3], acc[n][3]);
    }
}

/* The step's first MMA starts from the offsets, so that codes need no subtraction. */
template <int NT>
static __device__ __forceinline__ void mma_all(float (*d)[4], const uint32_t *a,
                                               const struct inputs<NT> &in, int j, bool nibbles)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const uint32_t b0 = word_of(in.b[n], 2 * j), b1 = word_of(in.b[n], 2 * j + 1);
        if (j == 0) {
            const float lo0 = nibbles ? in.c[n].x : in.c[n].z;
            const float lo1 = nibbles ? in.c[n].y : in.c[n].w;
            const float c[4] = {lo0, lo1, in.c[n].z, in.c[n].w};
            mma_f16(d[n], a, b0, b1, c);
        } else {
            mma_f16(d[n], a, b0, b1, d[n]);
        }
    }
}

/* The weights of a W4 step, a lane's: four row blocks. */
struct weights_w4 {
    uint4 q[4], scale;
};

/* q, scale: shared addresses of the lane's parts. */
static __device__ __forceinline__ void weights_load(struct weights_w4 &w, uint32_t q,
                                                    uint32_t scale)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        w.q[i] = ld_shared16(q + (uint32_t)i * 512);
    }
    w.scale = ld_shared16(scale);
}

/* 1024 + code for rows g, 1024 + 16 code for rows g + 8, whose sums are thus 16 times too
 * large until the end of the run. Row blocks rb .. rb + GROUP - 1: chains of MMAs that do not
 * depend on each other. */
template <int NT, int GROUP>
static __device__ __forceinline__ void blocks_w4(float (*acc)[NT][4], const uint4 *q,
                                                 const uint32_t *scale, const struct inputs<NT> &in)
{
    float d[GROUP][NT][4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            const uint32_t w = word_of(&q[i], j), w8 = w >> 8;
            const uint32_t a[4] = {
                lop3<0xEA>(w, 0x000F000F, 0x64006400), lop3<0xEA>(w, 0x00F000F0, 0x64006400),
                lop3<0xEA>(w8, 0x000F000F, 0x64006400), lop3<0xEA>(w8, 0x00F000F0, 0x64006400)};
            mma_all<NT>(d[i], a, in, j, true);
        }
    }
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        add_scaled<NT>(acc[i], d[i], scale[i]);
    }
}

/* A step whose weights are in registers. */
template <int NT>
static __device__ __forceinline__ void step_w4(float (*acc)[NT][4], const struct weights_w4 &w,
                                               const struct inputs<NT> &in)
{
    const uint32_t scale[4] = {w.scale.x, w.scale.y, w.scale.z, w.scale.w};
    blocks_w4<NT, 4>(acc, w.q, scale, in);
}

/* A step from shared memory. */
template <int NT>
static __device__ __forceinline__ void step_w4(float (*acc)[NT][4], const uint8_t *step, int lane,
                                               const struct inputs<NT> &in)
{
    constexpr int GROUP = NT == 1 ? 4 : 2;
    const uint4 s4 = *(const uint4 *)(step + 2048 + lane / 4 * 16);
    const uint32_t scale[4] = {s4.x, s4.y, s4.z, s4.w};
#pragma unroll
    for (int rb = 0; rb < 4; rb += GROUP) {
        uint4 q[GROUP];
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            q[i] = *(const uint4 *)(step + (rb + i) * 512 + lane * 16);
        }
        blocks_w4<NT, GROUP>(acc + rb, q, scale + rb, in);
    }
}

/* Half a step, row blocks of acc[0], acc[1]: 1024 + (code + 128). */
template <int NT>
static __device__ __forceinline__ void half_w8(float (*acc)[NT][4], const uint8_t *stage, int lane,
                                               const struct inputs<NT> &in)
{
    const uint2 scale = *(const uint2 *)(stage + 2048 + lane / 4 * 8);
    float d[2][NT][4];
#pragma unroll
    for (int u = 0; u < 2; u++) {
        uint4 q[2];
        q[0] = *(const uint4 *)(stage + u * 512 + lane * 16);
        q[1] = *(const uint4 *)(stage + 1024 + u * 512 + lane * 16);
#pragma unroll
        for (int j = 0; j < 2; j++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t g0 = word_of(&q[i], 2 * j), g8 = word_of(&q[i], 2 * j + 1);
                const uint32_t a[4] = {prmt(g0, 0x64646464, 0x4140), prmt(g8, 0x64646464, 0x4140),
                                       prmt(g0, 0x64646464, 0x4342), prmt(g8, 0x64646464, 0x4342)};
                mma_all<NT>(d[i], a, in, 2 * u + j, false);
            }
        }
    }
    add_scaled<NT>(acc[0], d[0], scale.x);
    add_scaled<NT>(acc[1], d[1], scale.y);
}

/* A quarter of a step, one row block. */
template <int NT>
static __device__ __forceinline__ void quarter_w16(float (*acc)[4], const uint8_t *stage, int lane,
                                                   const struct inputs<NT> &in)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint4 q = *(const uint4 *)(stage + j * 512 + lane * 16);
        const uint32_t a[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
        for (int n = 0; n < NT; n++) {
            mma_f16(acc[n], a, word_of(in.b[n], 2 * j), word_of(in.b[n], 2 * j + 1), acc[n]);
        }
    }
}

#endif
