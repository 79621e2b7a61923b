#ifndef QUASAR_KERNELS_CUDA_RT_H
#define QUASAR_KERNELS_CUDA_RT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * The few things the host side asks of the CUDA runtime: memory, copies, one
 * stream, events, graphs. rt.c is the real one; tests put an emulation in its
 * place. Functions that return int return 0 or a CUDA error code. Everything
 * but rt_sync, rt_wait and the allocations is enqueued on the stream.
 */
struct rt; /* one device and its stream */
struct rt_graph;
struct rt_event;

struct rt_info {
    char name[128];
    int cc; /* 90: compute capability 9.0 */
    int n_sm;
    size_t mem_total, mem_free;
};

int rt_open(int device, struct rt **out);
/* The same with a stream whose kernels are given multiprocessors before others'. */
int rt_open_first(int device, struct rt **out);
void rt_close(struct rt *r);
int rt_info(struct rt *r, struct rt_info *out);
/* What rt_info says, of a device that is not open. */
int rt_look(int device, struct rt_info *out);
/* The multiprocessors' highest clock; 0 where it is not told. Asking takes milliseconds. */
int rt_mhz(const struct rt *r);
/* Every thread but the one that opened r calls this before anything else. */
int rt_enter(const struct rt *r);
void *rt_stream(const struct rt *r); /* a cudaStream_t */
int rt_device(const struct rt *r);

/* CUDA's words for an error code; whether it means that memory ran out. */
const char *rt_reason(int code);
bool rt_is_nomem(int code);

/* Device memory, and pinned host memory. NULL may be freed. */
int rt_alloc(struct rt *r, size_t bytes, void **out);
void rt_free(struct rt *r, void *p);
int rt_pin(struct rt *r, size_t bytes, void **out);
void rt_unpin(struct rt *r, void *p);
/* Pins memory that is there already (whole pages), and lets it go again. */
int rt_register(struct rt *r, void *p, size_t bytes);
void rt_unregister(struct rt *r, void *p);

/* A host side of an upload or download stays as it is until an event after it
 * has been waited for; pageable memory is allowed (and slower). */
int rt_upload(struct rt *r, void *device, const void *host, size_t bytes);
int rt_download(struct rt *r, void *host, const void *device, size_t bytes);
int rt_copy(struct rt *r, void *dst, const void *src, size_t bytes);
int rt_fill(struct rt *r, void *device, int byte, size_t bytes);
/* rows pieces of width bytes, at these distances. */
int rt_upload_rows(struct rt *r, void *device, size_t device_pitch, const void *host,
                   size_t host_pitch, size_t width, size_t rows);
int rt_download_rows(struct rt *r, void *host, size_t host_pitch, const void *device,
                     size_t device_pitch, size_t width, size_t rows);

/* Waits for all that was enqueued; reports what failed since the last call. */
int rt_sync(struct rt *r);

int rt_event_create(struct rt *r, struct rt_event **out);
void rt_event_free(struct rt_event *ev);
int rt_record(struct rt *r, struct rt_event *ev);
int rt_wait(struct rt_event *ev);  /* the host waits; at once if never recorded */
bool rt_done(struct rt_event *ev); /* whether rt_wait would return at once */
/* What is enqueued on r from now on comes after what ev was recorded behind. */
int rt_follow(struct rt *r, struct rt_event *ev);
/* Milliseconds between two that have been waited for. */
int rt_elapsed(const struct rt_event *from, const struct rt_event *to, float *ms);

/* What is enqueued between the two becomes a graph instead of running; on failure
 * the stream works as before. capture_end is called even after an error inside. */
int rt_capture_begin(struct rt *r);
int rt_capture_end(struct rt *r, struct rt_graph **out);
int rt_graph_launch(struct rt *r, struct rt_graph *g);
void rt_graph_free(struct rt *r, struct rt_graph *g);

#endif
