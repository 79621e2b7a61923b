/* The few calls of the CUDA runtime that tests and plans make: device memory is host
 * memory, poisoned, and everything has happened when the call returns. */
#include "emu_priv.h"

extern "C" {

cudaError_t cudaMalloc(void **p, size_t n)
{
    /* QUASAR_EMU_BLOCK: no block of more megabytes is to be had */
    const char *mb = getenv("QUASAR_EMU_BLOCK");
    if (mb && n > strtoull(mb, NULL, 10) << 20) {
        return cudaErrorMemoryAllocation;
    }
    if (posix_memalign(p, 256, n ? n : 1) != 0) {
        return cudaErrorMemoryAllocation;
    }
    memset(*p, 0xff, n);
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    free(p);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, size_t n)
{
    return cudaMalloc(p, n);
}

cudaError_t cudaFreeHost(void *p)
{
    return cudaFree(p);
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind)
{
    (void)kind;
    if (n > 0) {
        memmove(dst, src, n);
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)stream;
    return cudaMemcpy(dst, src, n, kind);
}

cudaError_t cudaMemset(void *p, int v, size_t n)
{
    memset(p, v, n);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int v, size_t n, cudaStream_t stream)
{
    (void)stream;
    return cudaMemset(p, v, n);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaSuccess                     ? "no error"
           : e == cudaErrorInvalidConfiguration ? "invalid launch configuration"
           : e == cudaErrorMemoryAllocation     ? "out of memory"
                                                : "an error of the runtime";
}
}
