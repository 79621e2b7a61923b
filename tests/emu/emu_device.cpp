/* The rest of the runtime that the backend's host side wants: one device, a stream on
 * which everything has happened at once, and graphs, which are lists of launches with
 * the arguments that they were captured with. */
#include "emu_priv.h"

struct emu_node {
    struct emu_call call; /* arg: a copy of the arguments */
};

struct emu_list {
    struct emu_node *v;
    int n, cap;
};

static struct emu_list *capturing;
static long launched; /* the time, as events tell it: a millisecond a launch */

bool emu_record(const struct emu_call *c)
{
    if (!capturing) {
        launched++;
        return false;
    }
    struct emu_list *l = capturing;
    if (l->n == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 64;
        l->v = (struct emu_node *)realloc((void *)l->v, (size_t)l->cap * sizeof *l->v);
    }
    struct emu_node *n = &l->v[l->n++];
    n->call = *c;
    n->call.arg = malloc(c->arg_size);
    memcpy(n->call.arg, c->arg, c->arg_size);
    return true;
}

static void list_free(struct emu_list *l)
{
    for (int i = 0; i < l->n; i++) {
        free(l->v[i].call.arg);
    }
    free((void *)l->v);
    free((void *)l);
}

extern "C" {

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "emulated device");
    const char *cc = getenv("QUASAR_EMU_CC");
    p->major = cc ? atoi(cc) / 10 : 9;
    p->minor = cc ? atoi(cc) % 10 : 0;
    p->multiProcessorCount = 7;
    return cudaSetDevice(device);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    *value = attr == cudaDevAttrClockRate ? 1000000 : 0;
    return cudaSetDevice(device);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    /* QUASAR_EMU_FREE: how many megabytes the device says are free */
    const char *mb = getenv("QUASAR_EMU_FREE");
    *free_bytes = mb ? strtoull(mb, NULL, 10) << 20 : (size_t)4 << 30;
    *total = (size_t)5 << 30;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority)
{
    (void)flags;
    (void)priority;
    *s = NULL;
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags)
{
    (void)s;
    (void)e;
    (void)flags;
    return cudaSuccess;
}

/* QUASAR_EMU_NO_REGISTER: as where memory of one's own cannot be pinned */
cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags)
{
    (void)flags;
    return p && n && !getenv("QUASAR_EMU_NO_REGISTER") ? cudaSuccess : cudaErrorNotSupported;
}

cudaError_t cudaHostUnregister(void *p)
{
    return p ? cudaSuccess : cudaErrorInvalidValue;
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    (void)s;
    return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind, cudaStream_t s)
{
    if (width > dst_pitch || width > src_pitch) {
        return cudaErrorInvalidPitchValue;
    }
    cudaError_t rc = cudaSuccess;
    for (size_t i = 0; i < height && rc == cudaSuccess; i++) {
        rc = cudaMemcpyAsync((char *)dst + i * dst_pitch, (const char *)src + i * src_pitch, width,
                             kind, s);
    }
    return rc;
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    *e = (cudaEvent_t)calloc(1, sizeof launched);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
    free((void *)e);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    (void)s;
    *(long *)(void *)e = launched;
    return capturing ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
    (void)e;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    (void)e;
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    *ms = (float)(*(long *)(void *)to - *(long *)(void *)from);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode)
{
    (void)s;
    (void)mode;
    capturing = (struct emu_list *)calloc(1, sizeof *capturing);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph)
{
    (void)s;
    *graph = (cudaGraph_t)capturing;
    capturing = NULL;
    return cudaSuccess;
}

/* The list changes hands: a graph is made executable once. QUASAR_EMU_GRAPHS limits
 * how many there may be, as memory would. */
static int graphs;

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    (void)flags;
    struct emu_list *from = (struct emu_list *)graph;
    const char *limit = getenv("QUASAR_EMU_GRAPHS");
    if (limit && graphs >= atoi(limit)) {
        return cudaErrorMemoryAllocation;
    }
    struct emu_list *to = (struct emu_list *)calloc(1, sizeof *to);
    *to = *from;
    memset((void *)from, 0, sizeof *from);
    *exec = (cudaGraphExec_t)to;
    graphs++;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    list_free((struct emu_list *)graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    list_free((struct emu_list *)exec);
    graphs--;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    (void)s;
    const struct emu_list *l = (const struct emu_list *)exec;
    cudaError_t rc = cudaSuccess;
    for (int i = 0; i < l->n && rc == cudaSuccess; i++) {
        rc = emu_run(&l->v[i].call);
    }
    return rc;
}
}
