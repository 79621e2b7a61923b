#ifndef QUASAR_GRAMMAR_WORDS_H
#define QUASAR_GRAMMAR_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A model's tokens as a tree of their bytes, so that all that begin in the same way are judged
 * at once. Immutable; any thread.
 */
struct words;

struct words_source {
    int32_t n; /* ids are below it */
    /* The bytes of an id, borrowed; NULL: there is none. */
    const char *(*bytes)(void *ctx, int32_t id, size_t *n);
    /* Of an added token: 1; of one that readers do not see: 2; else 0. */
    int (*added)(void *ctx, int32_t id);
    /* The usual tokens of a text: at most `most` ids; returns how many. Any thread, for as long
     * as there are walks. */
    int (*encode)(void *ctx, const char *p, size_t n, int32_t *ids, int most);
    void *ctx;
};

struct words *words_create(const struct words_source *s);
/* The ids that a text may begin with: tokens that readers see and that are not white space alone;
 * a mask of *n_words, as long as w. */
const uint32_t *words_begins(const struct words *w, size_t *n_words);
void words_ref(struct words *w);
void words_free(struct words *w); /* NULL is allowed */

#endif
