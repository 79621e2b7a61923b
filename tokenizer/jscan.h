#ifndef QUASAR_TOKENIZER_JSCAN_H
#define QUASAR_TOKENIZER_JSCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* A forward reader of JSON text without a tree: half a million strings of a
 * vocabulary go by without an allocation each. Every function returns 0 or a
 * negative code with the byte offset in the message. */
struct jscan {
    const char *start, *p, *end;
    struct buf tmp; /* the last string that had escapes */
    struct err *e;
};

/* Text of a string: in the input, or in tmp until the next string. */
struct jtext {
    const char *p;
    size_t n;
};

void jscan_init(struct jscan *s, const char *p, size_t n, struct err *e);
void jscan_fini(struct jscan *s);

/* The first byte of the next value or mark; 0 at the end. Skips blanks. */
char jscan_peek(struct jscan *s);
/* Consumes the mark c, or fails. */
int jscan_expect(struct jscan *s, char c);
/* In an object or array after its opening mark: 1 and the reader stands before
 * the next element, or 0 and the closing mark is consumed. first: true for the
 * first call, which clears it. */
int jscan_next(struct jscan *s, char close, bool *first);
int jscan_string(struct jscan *s, struct jtext *out);
/* A key and its colon. */
int jscan_key(struct jscan *s, struct jtext *out);
/* A whole number (no fraction, no exponent). */
int jscan_int(struct jscan *s, int64_t *out);
/* Any value; its text if out is not NULL. Nesting up to 64. */
int jscan_skip(struct jscan *s, struct jtext *out);
bool jtext_is(const struct jtext *t, const char *s);

#endif
