#ifndef QUASAR_KERNELS_CPU_FEW_H
#define QUASAR_KERNELS_CPU_FEW_H

#include "kernels/cpu/isa.h"
#include "kernels/cpu/v16.h"

/* Products with 2 .. 16 rows of activations: the rows of a verified draft, or of several
 * sequences. */
enum { FEW_ROWS = 16, FEW_TILE = 6 };

/* With fewer registers than AVX-512 has, the panels of many rows serve better. */
static inline bool few_takes(enum dtype t, int rows)
{
    return V16_TILE > 1 && rows > 1 && rows <= FEW_ROWS && (t == DT_Q8_G128 || t == DT_Q4_G64);
}

/* The rows in tiles of nearly equal height, the higher ones first. */
static inline int few_tiles(int rows)
{
    return (rows + FEW_TILE - 1) / FEW_TILE;
}

static inline int few_height(int rows, int tile)
{
    const int n = few_tiles(rows);
    return rows / n + (tile < rows % n);
}

/* Outputs first .. end of one product. x: tile after tile; in each, vector s of row r of
 * the tile, in the order the weights want, at (s * its height + r) * 16. panel: memory for
 * four rows of weights in fp32. */
void ISA(few)(const struct mm_out *m, int k, int rows, const float *x, int first, int end,
              float *panel);

#endif
