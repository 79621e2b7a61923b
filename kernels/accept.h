#ifndef QUASAR_KERNELS_ACCEPT_H
#define QUASAR_KERNELS_ACCEPT_H

#include "kernels/sample.h"

/*
 * Accepting drafts by rejection (docs/sampling.md, "Speculation"): lossless for any
 * proposal, but another text than without speculation. The rest of the program draws
 * every row with the target's own noise instead and accepts what is equal.
 */

/* The served distribution of one verified row, and the proposal the draft for it was
 * drawn from (NULL: the draft was not drawn, it is what it is). */
struct accept_row {
    const struct sample_kept *kept;
    const struct be_sample *s;
    const double *p, *q; /* [kept->n] */
};

/* rows 0 .. n judge draft[0 .. n); the last stands behind all of them. Returns how many
 * are accepted; *next is the token drawn after them: from the residual of the row that
 * rejected, or from the last row. Noise: kind 1 accepts, kind 0 draws; a proposal's own
 * draw must have been of kind 2. */
int accept_chain(const struct accept_row *row, const int32_t *draft, int n, int32_t *next);

#endif
