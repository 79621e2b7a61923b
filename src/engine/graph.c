/* The forward pass, written once: embedding, layers of (mixer, FFN), final norm;
 * and the MTP layer behind it. */
#include "config.h"
#include "engine/graph.h"

int graph_main(const struct graph *g, const struct be_batch *batch, struct err *e)
{
    const struct be_ops *o = g->ops;
    int rc = o->begin(g->b, batch, e);
    if (rc == 0) {
        rc = o->embed(g->b, e);
    }
    for (int i = 0; i < g->shape->layers && rc == 0; i++) {
        rc = g->shape->attention[i] ? o->attention(g->b, i, e) : o->gdn(g->b, i, e);
        if (rc == 0) {
            rc = o->ffn(g->b, i, e);
        }
    }
    return rc == 0 ? o->final_norm(g->b, e) : rc;
}

int graph_mtp(const struct graph *g, const struct be_batch *batch, const int32_t *source,
              bool kv_only, struct err *e)
{
    int rc = g->ops->mtp_embed(g->b, batch, source, e);
    return rc == 0 ? g->ops->mtp_layer(g->b, kv_only, e) : rc;
}

int graph_mtp_follow(const struct graph *g, const struct be_batch *batch, const int *keep,
                     const bool *ahead, const struct graph_scratch *s, struct err *e)
{
    int n = 0, n_spans = 0, row = 0;
    for (int i = 0; i < batch->n_spans; i++) {
        const struct be_span *span = &batch->spans[i];
        const int rows = keep ? keep[i] : span->n;
        /* Nothing comes before the first token. */
        const int skip = span->pos == 0 || (ahead && ahead[i]);
        if (rows > skip) {
            struct be_span *to = &s->spans[n_spans++];
            *to = *span;
            to->pos = span->pos - 1 + skip;
            to->n = rows - skip;
            for (int j = skip; j < rows; j++) {
                s->pairs[n] = batch->tokens[row + j];
                s->source[n++] = j == 0 ? (int32_t)BE_H_SLOT : row + j - 1;
            }
        }
        row += span->n;
    }
    int rc = 0;
    if (n > 0) {
        struct be_batch mtp = {.mode = batch->mode == BE_PREFILL ? BE_PREFILL : BE_DECODE,
                               .n_rows = n,
                               .n_spans = n_spans,
                               .spans = s->spans,
                               .tokens = s->pairs};
        rc = graph_mtp(g, &mtp, s->source, true, e);
    }
    row = 0;
    for (int i = 0; i < batch->n_spans && rc == 0; i++) {
        const int rows = keep ? keep[i] : batch->spans[i].n;
        if (rows > 0) {
            rc = g->ops->hidden_save(g->b, row + rows - 1, batch->spans[i].slot, e);
        }
        row += batch->spans[i].n;
    }
    return rc;
}
