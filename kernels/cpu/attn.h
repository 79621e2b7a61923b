#ifndef QUASAR_KERNELS_CPU_ATTN_H
#define QUASAR_KERNELS_CPU_ATTN_H

/* Heads that are computed together at most. */
#define ATTN_HEADS 8
/* Rows of packed keys or values that are expanded at once. */
#define ATTN_ROWS 32

/* Floats of scratch: queries, scores of one page and accumulators of all
 * heads; expanded rows. */
#define ATTN_SCRATCH (3 * ATTN_HEADS * 256 + ATTN_ROWS * 256)

#endif
