#ifndef QUASAR_TOKENIZER_TOKENIZER_H
#define QUASAR_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* Bytes to token ids and back: byte-level BPE of the Qwen family. Immutable
 * after opening; any number of threads may encode and decode at once. */
struct tokenizer;

/* Growing list of ids. Zero initialised is empty. */
struct tok_ids {
    int32_t *v;
    size_t n, cap;
};
void tok_ids_add(struct tok_ids *t, int32_t id);
void tok_ids_free(struct tok_ids *t);

/* From the bytes of a tokenizer.json (config: tokenizer_config.json, may be
 * NULL; adds the tokens that only it lists) or of a q27 .tok file; which one is
 * seen from the bytes. what names the source in errors. */
int tokenizer_open(const char *p, size_t n, const char *config, size_t config_n, const char *what,
                   struct tokenizer **out, struct err *e);
void tokenizer_free(struct tokenizer *t);

/* Appends the ids of the text. Ill-formed UTF-8 becomes U+FFFD per maximal
 * subpart first. specials: added tokens written in the text are matched; false
 * for anything that comes from outside. n is below 4 GiB. */
void tokenizer_encode(const struct tokenizer *t, const char *p, size_t n, bool specials,
                      struct tok_ids *out);

/* One more than the largest id. */
int32_t tokenizer_size(const struct tokenizer *t);
/* Id of an added token by its text, or -1. */
int32_t tokenizer_added_id(const struct tokenizer *t, const char *text, size_t n);
/* The bytes an id stands for; NULL when there is no such id. Borrowed. */
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *n);
bool tokenizer_is_added(const struct tokenizer *t, int32_t id);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id); /* hidden from readers */

/* Streaming detokeniser: never emits part of a character. Zero initialised is
 * ready. */
struct detok {
    char pending[4];
    int n;
};
/* Appends the text that is complete after this id; ill-formed bytes come out as
 * U+FFFD. Special tokens are left out unless show_specials. */
void detok_add(struct detok *d, const struct tokenizer *t, int32_t id, bool show_specials,
               struct buf *out);
/* Appends U+FFFD for a dangling tail and starts afresh. */
void detok_flush(struct detok *d, struct buf *out);

#endif
