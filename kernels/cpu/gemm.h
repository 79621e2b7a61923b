#ifndef QUASAR_KERNELS_CPU_GEMM_H
#define QUASAR_KERNELS_CPU_GEMM_H

#include <stddef.h>

/* Rows of activations that a thread keeps in its second-level cache while all
 * its weights pass by: about 384 KiB, at least enough for a decode step. */
static inline int gemm_block_rows(int k)
{
    int rows = (384 << 10) / (4 * k) / 6 * 6;
    return rows < 18 ? 18 : rows > 510 ? 510 : rows;
}

/* Floats of scratch enough for products over any k up to max_k: the rows, each
 * padded to whole vectors, and one panel of four weight rows. */
static inline size_t gemm_scratch(int max_k)
{
    size_t kp = ((size_t)max_k + 15) / 16 * 16;
    size_t budget = (384 << 10) / 4 + 510 * 15;
    return (18 * kp > budget ? 18 * kp : budget) + 4 * kp;
}

#endif
