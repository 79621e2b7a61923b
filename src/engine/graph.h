#ifndef QUASAR_ENGINE_GRAPH_H
#define QUASAR_ENGINE_GRAPH_H

#include <stdbool.h>

#include "base/err.h"
#include "kernels/backend.h"

/* The forward pass over a backend; owns nothing. */
struct graph {
    const struct be_ops *ops;
    struct backend *b;
    const struct be_shape *shape;
};

/* From tokens to the hidden state after the final norm, every row; the states
 * of the batch's slots and pages advance. */
int graph_main(const struct graph *g, const struct be_batch *batch, struct err *e);

/* The MTP layer over rows that pair tokens[i] with source[i] (see
 * be_ops.mtp_embed). kv_only: only its keys and values are wanted. */
int graph_mtp(const struct graph *g, const struct be_batch *batch, const int32_t *source,
              bool kv_only, struct err *e);

/* Fills the MTP layer's cache for the rows of the main pass just run: each row's
 * token completes the pair of the position before it, whose hidden state is the
 * row before or, for the first row of a span, the one saved with the slot; then
 * saves every span's last hidden state there. Does not touch logits. keep: how many
 * of each span's rows count; NULL: all. ahead[i]: the first pair of span i is there
 * already; NULL: none is. pairs and source have room for n_rows, spans for n_spans. */
struct graph_scratch {
    int32_t *pairs, *source;
    struct be_span *spans;
};
int graph_mtp_follow(const struct graph *g, const struct be_batch *batch, const int *keep,
                     const bool *ahead, const struct graph_scratch *s, struct err *e);

#endif
