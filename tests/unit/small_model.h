#ifndef QUASAR_TESTS_UNIT_SMALL_MODEL_H
#define QUASAR_TESTS_UNIT_SMALL_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Checkpoints of a few hundred kilobytes with the shapes of the family: 4
 * layers (3 DeltaNet, 1 attention), hidden 256, FFN 384, 2 key and 6 value
 * heads, 2 query heads over 1, 320 rows of vocabulary, random bf16 weights.
 */
struct small_opts {
    bool no_mtp, tied, nested, sharded;
    const char *model_type; /* NULL: the right one */
    const char *leave_out;  /* a tensor's full name */
    const char *poison;     /* a tensor with one NaN */
};

/* A Hugging Face folder at path (made). Fails the test on any error. */
void small_model_write(const char *path, const struct small_opts *o);

/* A version 1 container (and .tok) with the tensors of a GGUF that convert
 * wrote from such a model. */
void small_model_q27(const char *gguf, const char *q27);

/* Removes a folder with its files (one level), or a file. */
void small_model_remove(const char *path);

/* Reads a whole file; the caller frees. */
char *small_read(const char *path, size_t *n);
void small_write(const char *path, const void *p, size_t n);

#endif
