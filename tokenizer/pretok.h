#ifndef QUASAR_TOKENIZER_PRETOK_H
#define QUASAR_TOKENIZER_PRETOK_H

#include <stddef.h>

#include "base/err.h"

/* The family's split patterns: text to the pieces that merging never crosses. */
struct pretok;

/* What one thread needs to run the pattern. */
struct pretok_run {
    const struct pretok *pattern;
    void *match, *context;
};

/* pattern: the regular expression of a tokenizer.json's Split step; NULL for
 * the current family's. Patterns other than the two known ones are refused. */
int pretok_create(const char *pattern, size_t n, struct pretok **out, struct err *e);
void pretok_free(struct pretok *p);

void pretok_run_init(struct pretok_run *r, const struct pretok *p);
void pretok_run_fini(struct pretok_run *r);

/* Bytes of the first piece of well-formed text (n > 0); at least 1. The text
 * must reach to the end of its section, for one rule looks ahead. */
size_t pretok_next(const struct pretok_run *r, const char *p, size_t n);

#endif
