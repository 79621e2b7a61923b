#ifndef QUASAR_TOKENIZER_LOAD_H
#define QUASAR_TOKENIZER_LOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "tokenizer/vocab.h"

/* The two sources of a tokenizer's tables. t is zeroed; after a failure it may
 * be half filled and only tokenizer_free may touch it. */
int load_json(struct tokenizer *t, const char *p, size_t n, struct err *e);
/* Added tokens that only tokenizer_config.json lists; before vocab_finish. */
int load_config(struct tokenizer *t, const char *p, size_t n, struct err *e);

bool load_is_tok(const char *p, size_t n);
int load_tok(struct tokenizer *t, const char *p, size_t n, struct err *e);

#endif
