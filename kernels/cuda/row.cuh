#ifndef QUASAR_KERNELS_CUDA_ROW_CUH
#define QUASAR_KERNELS_CUDA_ROW_CUH

/* What decode's kernels do alike to values of a row. */

#include <string.h>

#include "kernels/cuda/ptx.cuh"

static __device__ __forceinline__ float half_of(uint16_t h)
{
    __half v;
    memcpy((void *)&v, &h, sizeof v);
    return __half2float(v);
}

/* Sum over the warp, the same for all its lanes. */
static __device__ __forceinline__ float warp_sum(float v)
{
#pragma unroll
    for (int i = 16; i > 0; i /= 2) {
        v += __shfl_xor_sync(0xffffffffu, v, i);
    }
    return v;
}

/* The power of two next to x, from 2^-30 to 2^30. */
static __device__ __forceinline__ float near_power(float x)
{
    const uint32_t e = (__float_as_uint(x) + 0x400000) >> 23;
    return __uint_as_float((e < 97 ? 97 : e > 157 ? 157 : e) << 23);
}

#endif
