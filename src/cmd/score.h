#ifndef QUASAR_CMD_SCORE_H
#define QUASAR_CMD_SCORE_H

#include <stdbool.h>

#include <jansson.h>

#include "base/err.h"
#include "engine/engine.h"
#include "format/container.h"
#include "tokenizer/tokenizer.h"

/* What score.c and its comparison with reference files (scoreref.c) share. */
struct scorer {
    struct engine *g;
    const struct container *file;
    const struct tokenizer *tok; /* NULL when the model has none */
    bool decode;                 /* --as decode */
    int from;                    /* … behind so many tokens, which are read as a prompt is */
};

/* Called for every position, with its output; may read it. */
typedef int (*score_row_fn)(void *ctx, int pos, int output, struct err *e);

/* Computes n tokens after what seq holds, by the chosen path, and calls row for
 * each when it is not NULL. */
int score_tokens(const struct scorer *s, int seq, const int32_t *ids, int n, score_row_fn row,
                 void *ctx, struct err *e);

/* What changes when the cache is kept as by g instead of as by ref, two engines over the
 * same weights: losses, KL divergence, other likeliest tokens, by position. The text is cut
 * into windows, each from an empty sequence. *out is a new reference. */
int score_against(struct engine *g, struct engine *ref, const int32_t *ids, int n, json_t **out,
                  struct err *e);
void score_against_print(const json_t *report);

/* Compares with a reference file: ids, logits, state, greedy continuation,
 * drafts. *report is a new reference; *ok says whether all is within limits. */
int score_reference(const struct scorer *s, const char *path, json_t **report, bool *ok,
                    struct err *e);

#endif
