/* Reading and copying device memory as fast as it goes: the yardstick of decode. */
#include "kernels/cuda/bandwidth.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

enum { THREADS = 512, UNROLL = 8 };

/* Every block reads tiles of THREADS * UNROLL units of 16 bytes, UNROLL loads of a
 * thread in flight. */
static __global__ void bw_read_kernel(const uint4 *p, size_t n, uint32_t *sink)
{
    const size_t tile = (size_t)THREADS * UNROLL;
    uint32_t sum = 0;
    pdl_wait();
    pdl_launch();
    for (size_t at = blockIdx.x * tile; at < n; at += (size_t)gridDim.x * tile) {
        uint4 v[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++) {
            const size_t k = at + (size_t)i * THREADS + threadIdx.x;
            v[i] = k < n ? p[k] : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < UNROLL; i++) {
            sum += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
        }
    }
    if (sum == 0x5EEDBEEF) {
        *sink = sum;
    }
}

static __global__ void bw_copy_kernel(uint4 *dst, const uint4 *src, size_t n)
{
    const size_t tile = (size_t)THREADS * UNROLL;
    pdl_wait();
    pdl_launch();
    for (size_t at = blockIdx.x * tile; at < n; at += (size_t)gridDim.x * tile) {
        uint4 v[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; i++) {
            const size_t k = at + (size_t)i * THREADS + threadIdx.x;
            v[i] = k < n ? src[k] : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int i = 0; i < UNROLL; i++) {
            const size_t k = at + (size_t)i * THREADS + threadIdx.x;
            if (k < n) {
                dst[k] = v[i];
            }
        }
    }
}

extern "C" int cu_bw_read(struct cu_ctx *c, const void *p, size_t bytes, void *sink)
{
    return (int)cu_launch(c, "bw_read", bw_read_kernel, dim3((unsigned)c->n_sm * 4), dim3(THREADS),
                          0, (const uint4 *)p, bytes / 16, (uint32_t *)sink);
}

extern "C" int cu_bw_copy(struct cu_ctx *c, void *dst, const void *src, size_t bytes)
{
    return (int)cu_launch(c, "bw_copy", bw_copy_kernel, dim3((unsigned)c->n_sm * 4), dim3(THREADS),
                          0, (uint4 *)dst, (const uint4 *)src, bytes / 16);
}
