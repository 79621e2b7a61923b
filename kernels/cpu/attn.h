#ifndef QUASAR_KERNELS_CPU_ATTN_H
#define QUASAR_KERNELS_CPU_ATTN_H

/* Floats of scratch: queries, scores of one page and accumulators of eight
 * heads. */
#define ATTN_SCRATCH (3 * 8 * 256)

#endif
