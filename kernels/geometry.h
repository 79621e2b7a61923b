#ifndef QUASAR_KERNELS_GEOMETRY_H
#define QUASAR_KERNELS_GEOMETRY_H

#include "kernels/backend.h"

/* Refuses a geometry or options that no backend could run, by the value's name. */
int be_check_shape(const struct be_shape *s, const struct be_opts *o, struct err *e);

/* Refuses tensors that are absent, of another shape or cut short, by name. */
int be_check_weights(const struct be_shape *s, const struct be_weights *w, struct err *e);

/* Refuses a batch that does not fit together, or that names a slot, page or token
 * there is not: such a batch is a mistake of the caller. */
int be_check_batch(const struct be_shape *s, const struct be_batch *t, int slots, int pages,
                   int max_rows, struct err *e);

/* Refuse one of them: a slot, a page, rows to be read of `have` (at most `most`). */
int be_check_slot(int slots, int slot, struct err *e);
int be_check_page(int pages, int page, struct err *e);
int be_check_rows(const int32_t *rows, int n, int have, int most, struct err *e);

/* Which of the positions T, H, W turns frequency i (in turn as long as the
 * section of H or W lasts, T for the rest), and the frequencies; 32 of each. */
void be_rope(const struct be_shape *s, uint8_t *axis, double *inv_freq);

#endif
