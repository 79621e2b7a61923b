#ifndef QUASAR_TESTS_KMODEL_H
#define QUASAR_TESTS_KMODEL_H

#include "kernels/backend.h"

/*
 * A small random model for kernel tests, and the same model in double precision
 * straight from docs/model.md, one token after the other.
 */
struct kmodel {
    struct be_shape shape;
    struct be_weights w;
    struct be_layer *layers;
    uint8_t *attention;
    void **owned;
    int n_owned;
};

/* Deterministic numbers. */
uint32_t krand(uint64_t *state);
float krandf(uint64_t *state); /* -1..1 */

/* Random tensor of a dtype, scaled by amp; owned by m. */
struct tensor kmodel_tensor(struct kmodel *m, uint64_t *seed, enum dtype t, int rows, int cols,
                            float amp);
/* Element [r][c] of a tensor as the dtype defines it. */
double ktensor_at(const struct tensor *t, int r, int c);

/* Layers: every fourth is attention. Matrices in dtype t; b and a stay f32. */
void kmodel_init(struct kmodel *m, const struct be_shape *shape, enum dtype t, uint64_t seed);
void kmodel_free(struct kmodel *m);

/* One sequence of the reference. */
struct kref;
struct kref *kref_create(const struct kmodel *m, int max_tokens);
void kref_free(struct kref *r);
/* Appends a token at the next position; rope may be NULL. Fills logits [vocab]
 * and the final hidden [hidden] when not NULL. */
void kref_step(struct kref *r, int32_t token, const int32_t rope[3], double *logits,
               double *hidden);
/* Pairs hidden with token at the next MTP position; fills m and logits. */
void kref_mtp(struct kref *r, const double *hidden, int32_t token, double *m, double *logits);
const double *kref_state(const struct kref *r, int layer); /* [v_heads][128][128] */

#endif
