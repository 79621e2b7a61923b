#ifndef QUASAR_FORMAT_TOKJSON_H
#define QUASAR_FORMAT_TOKJSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/err.h"

/*
 * Tokenizers of the family between their forms: a tokenizer.json text and the
 * lists (tokens, types, merges) of GGUF and of version 1's .tok.
 */
enum tok_type { TOK_NORMAL = 1, TOK_CONTROL = 3, TOK_USER = 4, TOK_UNUSED = 5 };

struct tok_list {
    char **tokens;  /* as tokenizer.json spells them, UTF-8; NULL in a hole */
    uint8_t *types; /* enum tok_type */
    size_t n, cap;
    char **merges; /* "left right" */
    size_t n_merges;
    bool marks_in_words; /* the pattern of Qwen3.5 and later; false: Qwen2, Qwen3 */
};

void tok_list_fini(struct tok_list *l);

/* Adds a token under its id (replacing an earlier one), a merge at the end.
 * QE_FORMAT for an impossible id, invalid UTF-8 or a NUL. */
int tok_list_token(struct tok_list *l, int64_t id, const char *s, size_t n, enum tok_type type,
                   struct err *e);
int tok_list_merge(struct tok_list *l, const char *s, size_t n, struct err *e);

/* Reads a tokenizer.json (and the added tokens of a tokenizer_config.json, or
 * NULL). l is zero initialised; the caller ends it also after a failure. */
int tok_list_parse(struct tok_list *l, const char *json, size_t n, const char *config,
                   size_t config_n, struct err *e);

/* A tokenizer.json with the family's normaliser, pattern and decoder. *out is
 * the caller's (free). */
int tok_list_json(const struct tok_list *l, char **out, struct err *e);

/* The bytes of a .tok as a tokenizer.json. */
int tokjson_from_tok(const char *p, size_t n, const char *what, char **out, struct err *e);

#endif
