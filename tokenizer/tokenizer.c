/* Opening a tokenizer and asking it about single ids. */
#include "config.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tokenizer/load.h"
#include "tokenizer/vocab.h"

/* Offsets into the texts are 32 bits wide. */
#define MAX_SOURCE ((size_t)1 << 30)

void tok_ids_add(struct tok_ids *t, int32_t id)
{
    if (t->n == t->cap) {
        size_t bytes = 0;
        t->cap = t->cap ? 2 * t->cap : 64;
        if (!arr_size(t->cap, sizeof *t->v, &bytes)) {
            (void)mem_array(t->cap, sizeof *t->v);
        }
        t->v = mem_realloc(t->v, bytes);
    }
    t->v[t->n++] = id;
}

void tok_ids_free(struct tok_ids *t)
{
    free(t->v);
    *t = (struct tok_ids){NULL, 0, 0};
}

int tokenizer_open(const char *p, size_t n, const char *config, size_t config_n, const char *what,
                   struct tokenizer **out, struct err *e)
{
    struct tokenizer *t = mem_zalloc(sizeof *t);
    size_t blank = 0;
    while (blank < n && strchr(" \t\r\n", p[blank]) && p[blank]) {
        blank++;
    }
    int rc = 0;
    if (n > MAX_SOURCE || config_n > MAX_SOURCE) {
        rc = err_set(e, QE_FORMAT, "it is larger than 1 GiB");
    } else if (load_is_tok(p, n)) {
        rc = load_tok(t, p, n, e);
    } else if (blank < n && p[blank] == '{') {
        rc = load_json(t, p, n, e);
    } else {
        rc = err_set(e, QE_FORMAT, "%s",
                     n == 0 ? "it is empty" : "it is neither a tokenizer.json nor a .tok file");
    }
    if (rc == 0 && config) {
        rc = load_config(t, config, config_n, e);
    }
    rc = rc < 0 ? rc : vocab_finish(t, e);
    if (rc < 0) {
        tokenizer_free(t);
        return err_wrap(e, rc, "%s", what);
    }
    *out = t;
    return 0;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t) {
        return;
    }
    pretok_free(t->pretok);
    free(t->bytes);
    free(t->entry);
    free(t->slot);
    free(t->merge);
    free(t->pair);
    free(t->added);
    free(t);
}

int32_t tokenizer_size(const struct tokenizer *t)
{
    return t->n_ids;
}

int32_t tokenizer_added_id(const struct tokenizer *t, const char *text, size_t n)
{
    for (size_t i = 0; i < t->n_added; i++) {
        const struct vocab_entry *v = &t->entry[t->added[i]];
        if (v->len == n && memcmp(t->bytes + v->off, text, n) == 0) {
            return t->added[i];
        }
    }
    return -1;
}

const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *n)
{
    if (id < 0 || id >= t->n_ids || t->entry[id].kind == VOCAB_NONE) {
        return NULL;
    }
    *n = t->entry[id].len;
    return t->bytes + t->entry[id].off;
}

bool tokenizer_is_added(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_ids &&
           (t->entry[id].kind == VOCAB_ADDED || t->entry[id].kind == VOCAB_SPECIAL);
}

bool tokenizer_is_special(const struct tokenizer *t, int32_t id)
{
    return id >= 0 && id < t->n_ids && t->entry[id].kind == VOCAB_SPECIAL;
}
