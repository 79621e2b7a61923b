#ifndef QUASAR_TOKENIZER_VOCAB_H
#define QUASAR_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "tokenizer/pretok.h"

/* The tables behind struct tokenizer: what each id stands for, which ids merge,
 * which texts are added tokens. Private to this directory. Filled by the two
 * loaders, never written afterwards. */

#define VOCAB_MAX_IDS   (1 << 21)
#define VOCAB_MAX_ADDED 4096
#define VOCAB_NO_RANK   UINT32_MAX

enum vocab_kind {
    VOCAB_NONE,    /* a hole: no such id */
    VOCAB_BASE,    /* bytes, reachable by merging (or not) */
    VOCAB_RAW,     /* text that is not in the byte alphabet; never matched */
    VOCAB_ADDED,   /* matched as a whole, shown */
    VOCAB_SPECIAL, /* matched as a whole, hidden from readers */
};

struct vocab_entry {
    uint32_t off, len; /* in bytes[] */
    enum vocab_kind kind;
};

/* What a rank merges. */
struct vocab_merge {
    int32_t left, right, merged;
};

/* One slot of the open-addressing table from a pair to its rank. */
struct vocab_pair {
    int32_t left, right;
    uint32_t rank; /* VOCAB_NO_RANK: empty */
};

struct tokenizer {
    char *bytes;
    size_t bytes_n, bytes_cap;
    struct vocab_entry *entry; /* by id */
    int32_t n_ids;
    size_t entry_cap;
    int32_t *slot; /* base entries by their bytes; -1 empty */
    size_t slot_mask;
    int32_t byte_id[256];
    struct vocab_merge *merge; /* by rank */
    size_t n_merges, merge_cap;
    struct vocab_pair *pair;
    size_t pair_mask;
    int32_t *added; /* ids, sorted by first byte, then longest first */
    size_t n_added;
    uint16_t added_at[257]; /* first index in added of each first byte */
    bool nfc;
    struct pretok *pretok;
};

/* Base entry from its text in the byte alphabet. */
int vocab_add_base(struct tokenizer *t, int64_t id, const char *p, size_t n, struct err *e);
/* Added token from its literal text. The same token twice is accepted. */
int vocab_add_added(struct tokenizer *t, int64_t id, const char *p, size_t n, bool special,
                    struct err *e);
/* Between the last base entry and the first merge: finds duplicates and missing
 * bytes. expected: number of merges to make room for (a hint). */
int vocab_index(struct tokenizer *t, struct err *e);
/* The next merge, both sides in the byte alphabet. */
int vocab_add_merge(struct tokenizer *t, const char *left, size_t left_n, const char *right,
                    size_t right_n, struct err *e);
/* After the last merge and added token: builds the pair table and the matcher. */
int vocab_finish(struct tokenizer *t, struct err *e);

/* Rank of a pair, or VOCAB_NO_RANK. */
static inline uint32_t vocab_rank(const struct tokenizer *t, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15ULL;
    for (size_t i = (size_t)(h >> 32) & t->pair_mask;; i = (i + 1) & t->pair_mask) {
        const struct vocab_pair *s = &t->pair[i];
        if (s->rank == VOCAB_NO_RANK || (s->left == left && s->right == right)) {
            return s->rank;
        }
    }
}

/* Longest added token that the text begins with; -1 for none. */
int32_t vocab_match_added(const struct tokenizer *t, const char *p, size_t n, size_t *len);

/* Foreign text for an error message: one line, cut, in room for QUOTED_MAX. */
#define QUOTED_MAX 72
const char *vocab_quote(const char *p, size_t n, char out[QUOTED_MAX]);

#endif
