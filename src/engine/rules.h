#ifndef QUASAR_ENGINE_RULES_H
#define QUASAR_ENGINE_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"
#include "kernels/backend.h"

/*
 * The rules of one request together with what they count: which tokens its prompt
 * and its output hold. One owner; the engine only reads it. Taking a token costs
 * the same however long the sequence is; nothing is allocated after rules_create.
 */

/* Checks and copies what it needs; vocab: ids below it can be drawn. *out is NULL
 * when the rules do nothing, and every function here takes NULL for that. QE_USAGE
 * names what is out of range; the form is then still the caller's. */
int rules_create(const struct engine_rules *r, const int32_t *prompt, size_t n_prompt, int vocab,
                 struct rules **out, struct err *e);
void rules_free(struct rules *r);

/* One more token of the output. */
void rules_take(struct rules *r, int32_t id);

/* Tokens taken since the start. */
int rules_taken(const struct rules *r);

/* How many of n drafts the form of the answer lets come, one after the other; all of them where
 * there is no form. And ids that it all but says, at most `most`; returns how many. */
int rules_legal(const struct rules *r, const int32_t *draft, int n);
int rules_forced(const struct rules *r, int32_t *ids, int most);

/* Fills what the rules mean for a row that n drafts precede (0 .. ENGINE_MAX_DRAFT).
 * The pointers hold until the next rules_take, or until the next row with as many
 * drafts. */
void rules_row(const struct rules *r, const int32_t *draft, int n, struct be_sample *out);

#endif
