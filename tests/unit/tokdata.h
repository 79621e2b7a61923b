#ifndef QUASAR_TESTS_TOKDATA_H
#define QUASAR_TESTS_TOKDATA_H

#include <stddef.h>

#include "base/buf.h"

/* The committed tokenizers: merges as planes of bytes, the rest as JSON; see
 * tests/data/README. Everything here ends the program when a file is missing. */

/* tests/data/NAME, decompressed when the name ends in .zst. */
void tokdata_read(const char *name, struct buf *out);

/* tokenizer.json of "qwen3" or "demo"; split_of: whose split pattern it has. */
void tokdata_json(const char *name, const char *split_of, struct buf *out);

/* The same tokens as a .tok file. */
void tokdata_tok(const char *name, struct buf *out);

/* Both with the first few merges only, and the added tokens moved down. */
void tokdata_json_small(const char *name, size_t merges, struct buf *out);
void tokdata_tok_small(const char *name, size_t merges, struct buf *out);

#endif
