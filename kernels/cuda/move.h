#ifndef QUASAR_KERNELS_CUDA_MOVE_H
#define QUASAR_KERNELS_CUDA_MOVE_H

#include "kernels/cuda/cu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to + slot[i] * stride = row row[i] of h, for i < *n (at most max_n): what the MTP
 * layer starts from. */
int cu_hidden_save(struct cu_ctx *c, const float *h, int hidden, const int32_t *n,
                   const int32_t *row, const int32_t *slot, int max_n, float *to, size_t stride);

#ifdef __cplusplus
}
#endif

#endif
