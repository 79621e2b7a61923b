#ifndef QUASAR_KERNELS_CUDA_PLAN_H
#define QUASAR_KERNELS_CUDA_PLAN_H

#include <stdint.h>

#include "kernels/backend.h"

/* The memory plan of the CUDA backend: arithmetic alone. */
struct cuda_needs {
    int cc; /* compute capability, 90 for 9.0 */
    uint64_t free;
    uint64_t weights, slot, page, work; /* bytes; slot: of one state */
    int slots, layers, graphs;
};

/* About so many kernels has a step of one row: some five a layer. */
int cuda_plan_step_kernels(int layers);

/* Fills everything but the device's name. */
void cuda_plan_make(const struct cuda_needs *n, struct be_plan *out);

/* QE_NOMEM with the plan in one line: what `pages` pages and the rest need, what is
 * free, and what would fit. doing: what met the end of memory all the same, like
 * "uploading the weights"; NULL when the plan itself says that it cannot be. */
int cuda_plan_refuse(const struct be_plan *p, int pages, const char *doing, struct err *e);

#endif
