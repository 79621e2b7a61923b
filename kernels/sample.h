#ifndef QUASAR_KERNELS_SAMPLE_H
#define QUASAR_KERNELS_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/backend.h"

/* A vocabulary entry and its logit. */
struct sample_entry {
    float value;
    int32_t id;
};

/* Whether a temperature means the likeliest token, without any noise. */
bool sample_is_greedy(const struct be_sample *s);

/* Draws one token from logits[0..n) by docs/sampling.md: temperature, min-p,
 * top-k, top-p, Gumbel-max. heap is scratch of n entries. */
int32_t sample_row(const float *logits, int n, const struct be_sample *s,
                   struct sample_entry *heap);

#endif
