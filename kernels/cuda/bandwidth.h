#ifndef QUASAR_KERNELS_CUDA_BANDWIDTH_H
#define QUASAR_KERNELS_CUDA_BANDWIDTH_H

#include <stddef.h>

#include "kernels/cuda/cu.h"

struct rt;

#ifdef __cplusplus
extern "C" {
#endif

/* One pass of reading; one of copying (bytes a multiple of 64). sink: 4 bytes that
 * are written only if the sum of all words is an unlikely one. */
int cu_bw_read(struct cu_ctx *c, const void *p, size_t bytes, void *sink);
int cu_bw_copy(struct cu_ctx *c, void *dst, const void *src, size_t bytes);

/* GB (1e9 bytes) per second, the best of several passes over a block of about
 * `bytes` that it takes for the purpose; copying counts both ways. */
int cuda_bandwidth(struct rt *r, struct cu_ctx *c, size_t bytes, double *read, double *copy);

#ifdef __cplusplus
}
#endif

#endif
