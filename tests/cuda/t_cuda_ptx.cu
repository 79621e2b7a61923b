/* Every wrapper of ptx.cuh and wgmma.cuh against plain arithmetic. On a GPU this is
 * also the proof of the emulator: both must pass the same tests. */
#include "cutest.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

static __global__ void k_copy(const float *src, float *dst)
{
    unsigned char *smem = cu_smem();
    float *s = (float *)smem;
    cp_async4(smem_addr(s + threadIdx.x), src + threadIdx.x);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    dst[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

int main(void)
{
    cut_begin();
    struct cu_ctx *c = cut_ctx(CU_SM80, false);
    float h[96], g[96];
    for (int i = 0; i < 96; i++) {
        h[i] = cut_normal();
    }
    float *src = cut_upload(h, 96), *dst = cut_new<float>(96);
    cut_must(cu_launch(c, "k_copy", k_copy, dim3(1), dim3(96), 96 * 4, src, dst), "k_copy");
    cut_download(g, dst, 96);
    bool good = true;
    for (int i = 0; i < 96; i++) {
        good &= g[i] == h[95 - i];
    }
    cut_ok(good, "cp_async4");
    cut_free(src);
    cut_free(dst);
    return cut_end();
}
