#ifndef QUASAR_KERNELS_CUDA_GDN_STAGES_H
#define QUASAR_KERNELS_CUDA_GDN_STAGES_H

#include "kernels/cuda/cu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The stages of cu_gdn_prefill, for measuring them one by one. */
enum { GDN_CONV = 1, GDN_INNER = 2, GDN_WALK = 4, GDN_NORM = 8, GDN_ALL = 15 };

/* Launches some of them; each works on what the ones before it left. */
int gdn_prefill_stages(struct cu_ctx *c, const struct cu_batch *b, const struct cu_gdn *g,
                       unsigned stages);

#ifdef __cplusplus
}
#endif

#endif
