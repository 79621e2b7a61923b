#ifndef QUASAR_KERNELS_CPU_FEW_H
#define QUASAR_KERNELS_CPU_FEW_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/v16.h"

/* Products with 2 .. 10 rows of activations: the rows of a verified draft, or of
 * several sequences. From there on a panel in cache is as fast. */
enum { FEW_ROWS = 10 };

/* With fewer registers than AVX-512 has, the panels of many rows serve better. */
static inline bool few_takes(enum dtype t, int rows)
{
    return V16_TILE > 1 && rows > 1 && rows <= FEW_ROWS && (t == DT_Q8_G128 || t == DT_Q4_G64);
}

/* Rows of the tile that computes them: the missing ones are zero. */
static inline int few_height(int rows)
{
    return rows <= 6 ? rows : (rows + 1) / 2 * 2;
}

/* Outputs first .. end of one product. x: vector s of row r, in the order the weights
 * want, at x + (s * few_height(rows) + r) * 16. */
void ISA(few)(const struct mm_out *m, int k, int rows, const float *x, int first, int end);

#endif
