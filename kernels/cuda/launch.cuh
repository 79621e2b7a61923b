#ifndef QUASAR_KERNELS_CUDA_LAUNCH_CUH
#define QUASAR_KERNELS_CUDA_LAUNCH_CUH

/* Launching a kernel on a context's stream, and a kernel's dynamic shared memory. */

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

#include "kernels/cuda/cu.h"

/* A parameter whose type is not deduced from: arguments convert to it. */
template <typename T> struct cu_param {
    typedef T type;
};

#ifndef QUASAR_EMULATE /* else tests/emu/emu.h has them */

/* The block's dynamic shared memory, 128-byte aligned; _aligned: rounded up to
 * `align` (a power of two), for which the launch asks align - 128 bytes more. */
static __device__ __forceinline__ unsigned char *cu_smem(void)
{
    extern __shared__ __align__(128) unsigned char cu_dynamic[];
    return cu_dynamic;
}

static __device__ __forceinline__ unsigned char *cu_smem_aligned(unsigned align)
{
    unsigned char *p = cu_smem();
    unsigned a = (unsigned)__cvta_generic_to_shared(p);
    return p + ((align - a % align) & (align - 1));
}

#endif

/* Enqueues kernel(args...) with smem bytes of dynamic shared memory; with c->pdl it
 * may start before its predecessor ends (then it calls pdl_wait). Safe under capture.
 * name must live as long as c. With c->dry nothing is
 * launched, only loaded. */
template <typename... P>
static cudaError_t cu_launch_as(struct cu_ctx *c, const char *name, bool together,
                                void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                                typename cu_param<P>::type... args)
{
    if (c->leave_out && c->leave_out(c, name)) {
        return cudaSuccess;
    }
    c->launches++;
    c->kernel = name;
#ifdef QUASAR_EMULATE
    if (c->dry) {
        return cudaSuccess;
    }
    return emu_launch(name, kernel, grid, block, smem, c->path == CU_SM90, c->pdl, together,
                      args...);
#else
    (void)together;
    if (smem > 32 << 10) {
        /* The default limit is 48 KB less what the kernel has statically. Only ever
         * raised: graphs already captured hold launches with more. */
        cudaFuncAttributes now;
        cudaError_t rc = cudaFuncGetAttributes(&now, (const void *)kernel);
        if (rc == cudaSuccess && (size_t)now.maxDynamicSharedSizeBytes < smem) {
            rc = cudaFuncSetAttribute((const void *)kernel,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
        }
        if (rc != cudaSuccess) {
            return rc;
        }
    }
    if (c->dry) { /* asking for it is what loads a kernel */
        cudaFuncAttributes now;
        return cudaFuncGetAttributes(&now, (const void *)kernel);
    }
    /* One split of L1 for all of a chain: a multiprocessor changes it only when idle, so that
     * the next kernel's blocks could not start beside this one's. */
    cudaLaunchAttribute attr[2] = {};
    attr[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attr[0].val.programmaticStreamSerializationAllowed = 1;
    attr[1].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attr[1].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = smem;
    config.stream = (cudaStream_t)c->stream;
    config.attrs = attr;
    config.numAttrs = c->pdl ? 2 : 0;
    void *argv[] = {(void *)&args..., NULL};
    return cudaLaunchKernelExC(&config, (const void *)kernel, argv);
#endif
}

template <typename... P>
static cudaError_t cu_launch(struct cu_ctx *c, const char *name, void (*kernel)(P...), dim3 grid,
                             dim3 block, size_t smem, typename cu_param<P>::type... args)
{
    return cu_launch_as<P...>(c, name, false, kernel, grid, block, smem, args...);
}

/* The same for a kernel whose blocks wait for each other: the grid must fit the device at
 * once. Earlier kernels' blocks leave, and later ones come only when all of this one's have
 * let them (pdl_launch). */
template <typename... P>
static cudaError_t cu_launch_together(struct cu_ctx *c, const char *name, void (*kernel)(P...),
                                      dim3 grid, dim3 block, size_t smem,
                                      typename cu_param<P>::type... args)
{
    return cu_launch_as<P...>(c, name, true, kernel, grid, block, smem, args...);
}

#endif
