/* The CUDA runtime behind rt.h. */
#include "config.h"
#include "kernels/cuda/rt.h"

#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime_api.h>

#include "base/mem.h"

struct rt {
    int device;
    cudaStream_t stream;
};

struct rt_event {
    cudaEvent_t event;
};

struct rt_graph {
    cudaGraphExec_t exec;
};

static int open_stream(int device, bool first, struct rt **out)
{
    struct rt *r = mem_zalloc(sizeof *r);
    int least = 0, greatest = 0;
    r->device = device;
    cudaError_t rc = cudaSetDevice(device);
    if (rc == cudaSuccess && first) {
        rc = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    }
    if (rc == cudaSuccess) {
        rc = cudaStreamCreateWithPriority(&r->stream, cudaStreamNonBlocking, greatest);
    }
    if (rc != cudaSuccess) {
        free(r);
        return (int)rc;
    }
    *out = r;
    return 0;
}

int rt_open(int device, struct rt **out)
{
    return open_stream(device, false, out);
}

int rt_open_first(int device, struct rt **out)
{
    return open_stream(device, true, out);
}

void rt_close(struct rt *r)
{
    if (r) {
        cudaStreamDestroy(r->stream);
        free(r);
    }
}

int rt_look(int device, struct rt_info *out)
{
    struct cudaDeviceProp prop;
    cudaError_t rc = cudaSetDevice(device);
    if (rc == cudaSuccess) {
        rc = cudaGetDeviceProperties(&prop, device);
    }
    if (rc == cudaSuccess) {
        snprintf(out->name, sizeof out->name, "%.*s", (int)sizeof out->name - 1, prop.name);
        out->cc = prop.major * 10 + prop.minor;
        out->n_sm = prop.multiProcessorCount;
        rc = cudaMemGetInfo(&out->mem_free, &out->mem_total);
    }
    return (int)rc;
}

int rt_info(struct rt *r, struct rt_info *out)
{
    return rt_look(r->device, out);
}

int rt_mhz(const struct rt *r)
{
    int khz = 0;
    return cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, r->device) == cudaSuccess ? khz / 1000
                                                                                        : 0;
}

int rt_enter(const struct rt *r)
{
    return (int)cudaSetDevice(r->device);
}

void *rt_stream(const struct rt *r)
{
    return r->stream;
}

int rt_device(const struct rt *r)
{
    return r->device;
}

const char *rt_reason(int code)
{
    return cudaGetErrorString((cudaError_t)code);
}

bool rt_is_nomem(int code)
{
    return code == cudaErrorMemoryAllocation;
}

/* A failed allocation is not remembered: the next call starts clean. */
static int forget(cudaError_t rc)
{
    if (rc != cudaSuccess) {
        (void)cudaGetLastError();
    }
    return (int)rc;
}

int rt_alloc(struct rt *r, size_t bytes, void **out)
{
    (void)r;
    *out = NULL;
    return forget(cudaMalloc(out, bytes));
}

void rt_free(struct rt *r, void *p)
{
    (void)r;
    if (p) {
        cudaFree(p);
    }
}

int rt_pin(struct rt *r, size_t bytes, void **out)
{
    (void)r;
    *out = NULL;
    return forget(cudaMallocHost(out, bytes));
}

void rt_unpin(struct rt *r, void *p)
{
    (void)r;
    if (p) {
        cudaFreeHost(p);
    }
}

int rt_register(struct rt *r, void *p, size_t bytes)
{
    (void)r;
    return forget(cudaHostRegister(p, bytes, cudaHostRegisterDefault));
}

void rt_unregister(struct rt *r, void *p)
{
    (void)r;
    cudaHostUnregister(p);
}

int rt_upload(struct rt *r, void *device, const void *host, size_t bytes)
{
    return (int)cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, r->stream);
}

int rt_download(struct rt *r, void *host, const void *device, size_t bytes)
{
    return (int)cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, r->stream);
}

int rt_copy(struct rt *r, void *dst, const void *src, size_t bytes)
{
    return (int)cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, r->stream);
}

int rt_fill(struct rt *r, void *device, int byte, size_t bytes)
{
    return (int)cudaMemsetAsync(device, byte, bytes, r->stream);
}

int rt_upload_rows(struct rt *r, void *device, size_t device_pitch, const void *host,
                   size_t host_pitch, size_t width, size_t rows)
{
    return (int)cudaMemcpy2DAsync(device, device_pitch, host, host_pitch, width, rows,
                                  cudaMemcpyHostToDevice, r->stream);
}

int rt_download_rows(struct rt *r, void *host, size_t host_pitch, const void *device,
                     size_t device_pitch, size_t width, size_t rows)
{
    return (int)cudaMemcpy2DAsync(host, host_pitch, device, device_pitch, width, rows,
                                  cudaMemcpyDeviceToHost, r->stream);
}

int rt_sync(struct rt *r)
{
    return (int)cudaStreamSynchronize(r->stream);
}

int rt_event_create(struct rt *r, struct rt_event **out)
{
    (void)r;
    struct rt_event *ev = mem_zalloc(sizeof *ev);
    cudaError_t rc = cudaEventCreate(&ev->event);
    if (rc != cudaSuccess) {
        free(ev);
        return (int)rc;
    }
    *out = ev;
    return 0;
}

void rt_event_free(struct rt_event *ev)
{
    if (ev) {
        cudaEventDestroy(ev->event);
        free(ev);
    }
}

int rt_record(struct rt *r, struct rt_event *ev)
{
    return (int)cudaEventRecord(ev->event, r->stream);
}

int rt_wait(struct rt_event *ev)
{
    return (int)cudaEventSynchronize(ev->event);
}

bool rt_done(struct rt_event *ev)
{
    return cudaEventQuery(ev->event) != cudaErrorNotReady;
}

int rt_follow(struct rt *r, struct rt_event *ev)
{
    return (int)cudaStreamWaitEvent(r->stream, ev->event, 0);
}

int rt_elapsed(const struct rt_event *from, const struct rt_event *to, float *ms)
{
    return (int)cudaEventElapsedTime(ms, from->event, to->event);
}

int rt_capture_begin(struct rt *r)
{
    return (int)cudaStreamBeginCapture(r->stream, cudaStreamCaptureModeThreadLocal);
}

int rt_capture_end(struct rt *r, struct rt_graph **out)
{
    cudaGraph_t graph = NULL;
    cudaError_t rc = cudaStreamEndCapture(r->stream, &graph);
    if (rc != cudaSuccess) {
        return forget(rc);
    }
    struct rt_graph *g = mem_zalloc(sizeof *g);
    rc = cudaGraphInstantiate(&g->exec, graph, 0);
    cudaGraphDestroy(graph);
    if (rc != cudaSuccess) {
        free(g);
        return forget(rc);
    }
    *out = g;
    return 0;
}

int rt_graph_launch(struct rt *r, struct rt_graph *g)
{
    return (int)cudaGraphLaunch(g->exec, r->stream);
}

void rt_graph_free(struct rt *r, struct rt_graph *g)
{
    (void)r;
    if (g) {
        cudaGraphExecDestroy(g->exec);
        free(g);
    }
}
