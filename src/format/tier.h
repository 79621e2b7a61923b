#ifndef QUASAR_FORMAT_TIER_H
#define QUASAR_FORMAT_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"

/*
 * Tiers: which weight format each tensor gets. The base is the same for all
 * quantised ones (norms, A_log, dt_bias and convolutions in fp32, the a and b
 * projections in fp16, embedding, keys, values and the MTP layer in Q8, the
 * rest in Q4); a tier promotes some matrices to Q8 and chooses the head's form.
 */
struct tier;

/* NULL for an unknown name. Qwen3.8 has its own promotions. */
const struct tier *tier_find(const char *name, bool is_38);
const char *tier_name(const struct tier *t);
/* "f32|bf16|…" for messages. */
const char *tier_names(void);

/* The type for a tensor by our name. fell_back tells that its row length is no
 * multiple of the group and fp16 was taken instead. */
enum dtype tier_dtype(const struct tier *t, const char *name, int n_dims, const uint64_t *shape,
                      bool *fell_back);
/* True when a second copy of the head, lm_head.q4.weight, belongs to it. */
bool tier_has_draft_head(const struct tier *t);

#endif
