#ifndef QUASAR_TOKENIZER_BPE_H
#define QUASAR_TOKENIZER_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

/* Reused room for long pieces. Zero initialised is ready. */
struct bpe_scratch {
    struct bpe_symbol *sym;
    uint64_t *heap;
    size_t sym_cap, heap_cap, heap_n;
};
void bpe_scratch_free(struct bpe_scratch *s);

/* Pieces up to this many bytes go through the plain loop. */
#define BPE_SHORT 48

/* Appends the ids of one piece: the lowest rank merges first, the leftmost of
 * equal ones, until none applies. bpe_piece chooses between the two others,
 * which give the same ids: the plain loop (n <= BPE_SHORT) and a heap over a
 * linked list, n log n (n < 2^32). */
void bpe_piece(const struct tokenizer *t, const char *p, size_t n, struct bpe_scratch *s,
               struct tok_ids *out);
void bpe_short(const struct tokenizer *t, const char *p, size_t n, struct tok_ids *out);
void bpe_long(const struct tokenizer *t, const char *p, size_t n, struct bpe_scratch *s,
              struct tok_ids *out);

#endif
