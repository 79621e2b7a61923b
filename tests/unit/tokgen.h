#ifndef QUASAR_TESTS_TOKGEN_H
#define QUASAR_TESTS_TOKGEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* The random texts of tests/oracle/tokenizer.mjs, byte for byte. */
struct tokgen;

struct tokgen *tokgen_create(void);
void tokgen_free(struct tokgen *g);

/* Text number i, into out (emptied first). */
void tokgen_text(struct tokgen *g, uint32_t i, struct buf *out);

/* Whether well-formed text has a code point that the vectors leave out. */
bool tokgen_excluded(const struct tokgen *g, const char *p, size_t n);

#endif
