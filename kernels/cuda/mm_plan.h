#ifndef QUASAR_KERNELS_CUDA_MM_PLAN_H
#define QUASAR_KERNELS_CUDA_MM_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/cu.h"

/*
 * The work list of the weight-streaming product: who reads which weights, and in
 * what order their sums are added. A pure function of the shapes, the number of
 * blocks and the limits below; never of the rows of a batch.
 *
 * K is cut into slices, so that a block holds only a slice of the activations at
 * a time. A run is some steps of one tile inside one slice; a phase is a block's
 * runs in one slice. All runs of a block on the same tile are one contribution to
 * it (a slot of scratch); the contributions of a tile are added in block order by
 * whoever delivers the last one, or by the block that the plan says.
 */

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MM_MATS = 4,
    MM_MAX_TILES = 8192, /* counters in the scratch have a fixed place */
    MM_PUT_WARPS = 4,    /* of a block, that finish tiles; CU_SM80 */
    MM_SLOT = 64 * CU_ROWS,
    MM_COL = 68,     /* floats from a row of the batch to the next in the exchange area */
    MM80_WARPS = 4,  /* that stream, and */
    MM80_STAGES = 3, /* stages of a warp's ring; CU_SM80 */
    MM_STAGE = 2176  /* bytes of a W4 step; half a W8 one and a quarter of a W16 one are less */
};

enum mm_order {
    MM_AUTO,
    MM_BY_SLICE, /* a block has one slice and many tiles: little activation traffic */
    MM_BY_TILE   /* a block has few tiles and all slices: little traffic of partial sums */
};

/* What may be tuned; zero picks the default. */
struct mm_tune {
    int slice;  /* most steps of a slice */
    int per_sm; /* blocks per multiprocessor; CU_SM80 */
    enum mm_order order;
};

struct mm_run {   /* read as two 16-byte words */
    uint64_t src; /* the first step's bytes */
    int32_t n;    /* steps */
    int32_t kind;
    int32_t tile; /* of the plan: tiles of all matrices in order */
    int32_t slot, slot0;
    uint32_t meta; /* MM_META */
};
/* mat, first and last run of its contribution, contributions of the tile, first step
 * relative to the phase's. */
#define MM_META(mat, first, last, parts, k)                                                        \
    ((uint32_t)(mat) | (uint32_t)(first) << 2 | (uint32_t)(last) << 3 | (uint32_t)(parts) << 4 |   \
     (uint32_t)(k) << 16)
#define MM_META_MAT(m)   ((int)((m)&3))
#define MM_META_FIRST(m) ((m)&4)
#define MM_META_LAST(m)  ((m)&8)
#define MM_META_PARTS(m) ((int)((m) >> 4 & 0xfff))
#define MM_META_K(m)     ((int)((m) >> 16))

struct mm_phase {
    int32_t k0, n;   /* its slice, in steps */
    int32_t run_end; /* counted from the block's first run */
    int32_t unused;
};

struct mm_block {
    int32_t run, n_runs;
    int32_t phase, steps;
};

/* A tile of several contributions; its n-th of all is finished by block
 * n * n_blocks / n_finish. CU_SM90. */
struct mm_finish {
    int32_t tile, mat, slot0, parts;
};

struct cu_mm_plan {
    enum cu_path path;
    int n, kg, tiles;
    struct cu_mat mat[MM_MATS];
    int tile0[MM_MATS]; /* first tile of each */
    int col0[MM_MATS];  /* first output column */
    int n_blocks, n_runs, n_phases, n_slots;
    int n_shared;       /* slots of tiles with several contributions; they come first */
    bool keeps;         /* whether a contribution takes several runs */
    int slice;          /* steps of the longest phase */
    int grain;          /* steps that are not cut apart */
    struct mm_run *run; /* host */
    struct mm_phase *phase;
    struct mm_block *block;
    struct mm_finish *finish;
    int n_finish;
    void *device; /* the four tables, one behind the other */
    const struct mm_run *d_run;
    const struct mm_phase *d_phase;
    const struct mm_block *d_block;
    const struct mm_finish *d_finish;
};

/* The host half; *out is freed by mm_plan_free. -1: the matrices do not fit together. */
int mm_plan_make(enum cu_path path, int n_sm, const struct cu_mat *const *mats, int n,
                 const struct mm_tune *tune, struct cu_mm_plan **out);
void mm_plan_free(struct cu_mm_plan *p);

/* Bytes from a row of activations in shared memory to the next: an odd number of 16-byte
 * units, so that rows do not share banks. */
uint32_t mm_x_row(const struct cu_mm_plan *p);

/* Where things lie in a block's shared memory, for nt (1, 2) n-tiles of 8 rows; CU_SM80. */
struct mm_smem {
    uint32_t x, offset, exchange, sums, bytes;
};
struct mm_smem mm_smem_of(const struct cu_mm_plan *p, int nt);

/* cu_mm_plan_create with other than the default choices; tune may be NULL. */
int cu_mm_plan_create_tuned(struct cu_ctx *c, const struct cu_mat *const *mats, int n,
                            const struct mm_tune *tune, struct cu_mm_plan **out);

#ifdef __cplusplus
}
#endif

#endif
