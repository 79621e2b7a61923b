/* CUDA device discovery. A probe kernel runs once, so that "no kernel image for
 * this device" is reported by name before any weight is read. */
#include "kernels/cuda/device.h"

#include <cuda_runtime.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One thread; writes the compute capability it was compiled for. */
__global__ void probe_kernel(int *out)
{
#ifdef __CUDA_ARCH__
    *out = __CUDA_ARCH__;
#else
    *out = 0;
#endif
}

static int fail(char *why, size_t why_size, const char *what, cudaError_t rc)
{
    snprintf(why, why_size, "%s: %s", what, cudaGetErrorString(rc));
    return -1;
}

extern "C" int cuda_device_count(char *why, size_t why_size)
{
    int n = 0;
    cudaError_t rc = cudaGetDeviceCount(&n);
    if (rc != cudaSuccess) {
        fail(why, why_size, "no CUDA device", rc);
        (void)cudaGetLastError();
        return 0;
    }
    if (n == 0) {
        snprintf(why, why_size, "no CUDA device");
    }
    return n;
}

extern "C" int cuda_device_probe(int index, struct cuda_device_info *out, char *why,
                                 size_t why_size)
{
    struct cudaDeviceProp prop;
    cudaError_t rc = cudaGetDeviceProperties(&prop, index);
    if (rc != cudaSuccess) {
        return fail(why, why_size, "cannot query the CUDA device", rc);
    }
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", prop.name);
    out->cc_major = prop.major;
    out->cc_minor = prop.minor;
    out->n_sm = prop.multiProcessorCount;
    rc = cudaSetDevice(index);
    if (rc != cudaSuccess) {
        return fail(why, why_size, "cannot use the CUDA device", rc);
    }
    cudaDriverGetVersion(&out->driver_version);
    cudaRuntimeGetVersion(&out->runtime_version);
    rc = cudaMemGetInfo(&out->mem_free, &out->mem_total);
    if (rc != cudaSuccess) {
        return fail(why, why_size, "cannot read the CUDA device's memory", rc);
    }
    int *dev = NULL;
    int host = 0;
    rc = cudaMalloc((void **)&dev, sizeof *dev);
    if (rc == cudaSuccess) {
        probe_kernel<<<1, 1>>>(dev);
        rc = cudaGetLastError();
    }
    if (rc == cudaSuccess) {
        rc = cudaMemcpy(&host, dev, sizeof host, cudaMemcpyDeviceToHost);
    }
    cudaFree(dev);
    if (rc != cudaSuccess) {
        return fail(why, why_size, "this build cannot run on the CUDA device", rc);
    }
    if (host == 0) {
        snprintf(why, why_size, "the probe kernel did not run");
        return -1;
    }
    return 0;
}

struct cuda_wake {
    pthread_t thread;
    int index;
};

static void *wake(void *arg)
{
    const struct cuda_wake *w = (const struct cuda_wake *)arg;
    if (cudaSetDevice(w->index) == cudaSuccess) {
        cudaFree(NULL); /* older runtimes make the context only now */
    }
    return NULL;
}

extern "C" struct cuda_wake *cuda_device_wake(int index)
{
    struct cuda_wake *w = (struct cuda_wake *)calloc(1, sizeof *w);
    if (!w) {
        return NULL;
    }
    w->index = index;
    sigset_t all, before; /* signals are the program's, not ours */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(&w->thread, NULL, wake, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        free(w);
        return NULL;
    }
    return w;
}

extern "C" void cuda_device_woken(struct cuda_wake *w)
{
    if (w) {
        pthread_join(w->thread, NULL);
        free(w);
    }
}
