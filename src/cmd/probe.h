#ifndef QUASAR_CMD_PROBE_H
#define QUASAR_CMD_PROBE_H

#include <jansson.h>

#include "base/err.h"
#include "engine/engine.h"

/* Looks into a running engine that the measuring commands share. */

/* Sums that identify a large array: shape, sum, abs_sum, l2, the first 8 values
 * ("head"). */
json_t *probe_checksum(const float *v, const int64_t *shape, int n_dims);

/* State of every layer of seq, which holds the n tokens of ids, in the layout of
 * the reference files: conv_states [1, channels, 4] with the newest column last,
 * recurrent_states [1, heads, 128 (key), 128 (value)], keys and values
 * [1, heads, tokens, 256]. The engine keeps three columns of the convolution;
 * the fourth is the oldest of before, a sequence of the n-1 first tokens
 * (-1 when n is 1). attention[i] says which layers have keys. New reference. */
int probe_states(struct engine *g, const json_t *config, int seq, int before, json_t **out,
                 struct err *e);

/* Natural logarithm of the sum of exponentials of the first n. */
double probe_logsumexp(const float *logits, int n);

/* The k largest (larger value first, then lower id) into ids. */
void probe_top(const float *logits, int n, int k, int32_t *ids);

/* The lowest id among the largest. */
int32_t probe_argmax(const float *logits, int n);

#endif
