#ifndef QUASAR_KERNELS_CUDA_REPACK_H
#define QUASAR_KERNELS_CUDA_REPACK_H

#include "kernels/cuda/cu.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Some tiles of a matrix from the container's own layout, on the device: the same
 * bytes that cu_pack_block writes. */
struct cu_repack {
    enum cu_kind kind;
    int n_src; /* 2: they alternate by 8 rows */
    struct {
        enum dtype dtype;
        const void *data, *scales; /* of the first source row that these tiles hold */
    } src[2];
    int rows, k;      /* of the whole matrix */
    int first, n;     /* tiles */
    uint8_t *out;     /* of the first tile */
    float *row_scale; /* of the first tile; CU_W16 */
};
int cu_repack(struct cu_ctx *c, const struct cu_repack *r);

#ifdef __cplusplus
}
#endif

#endif
