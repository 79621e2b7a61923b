/* Small copies whose places lie in device tables. */
#include "kernels/cuda/move.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

/* One block per row. */
static __global__ void hidden_save_kernel(const float *h, int hidden, const int32_t *n,
                                          const int32_t *row, const int32_t *slot, float *to,
                                          size_t stride)
{
    const int i = (int)blockIdx.x;
    pdl_wait();
    pdl_launch();
    if (i >= *n) {
        return;
    }
    const float *from = h + (size_t)row[i] * (size_t)hidden;
    float *out = to + (size_t)slot[i] * stride;
    for (int k = (int)threadIdx.x; k < hidden; k += (int)blockDim.x) {
        out[k] = from[k];
    }
}

extern "C" int cu_hidden_save(struct cu_ctx *c, const float *h, int hidden, const int32_t *n,
                              const int32_t *row, const int32_t *slot, int max_n, float *to,
                              size_t stride)
{
    return (int)cu_launch(c, "hidden_save", hidden_save_kernel, dim3((unsigned)max_n), dim3(256), 0,
                          h, hidden, n, row, slot, to, stride);
}
