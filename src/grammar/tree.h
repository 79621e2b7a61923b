#ifndef QUASAR_GRAMMAR_TREE_H
#define QUASAR_GRAMMAR_TREE_H

#include <pthread.h>
#include <stdatomic.h>

#include "grammar/words.h"

/* The insides of words: words.c and walk.c only. */

/* A byte of the tree; its children follow it, then (at skip) what is no child of it. */
struct branch {
    int32_t skip;
    int32_t ids; /* of words.sorted: those that end here, n_ids */
    uint16_t n_ids, depth;
    uint8_t byte;
    bool special; /* it, or what is below it, has ids that are not plain */
};

#define LENGTH_MOST 1024 /* bytes of a token in the tree; longer ones are never legal */
#define THOUGHT_END "</think>"
#define THOUGHT_LEN 8

struct words {
    atomic_int refs;
    struct words_source source;
    int32_t n, longest; /* ids; bytes of the longest in the tree */
    int32_t *sorted;    /* ids by their bytes */
    struct branch *branch;
    int32_t n_branches;
    uint32_t *at;   /* [n + 1] of each id, in pool */
    char *pool;     /* the bytes */
    uint8_t *added; /* [n] as words_source.added; 2 also for ids without bytes */
    size_t n_words; /* of a mask */
    /* [n] characters of each id whose bytes are whole ones that a JSON string has as they are,
     * and is not added; 0: it is not plain */
    uint16_t *plain;
    uint32_t *begins; /* words_begins */
    int32_t *quoted;  /* ids that have a quote and are not added, n_quoted */
    int32_t n_quoted;

    pthread_mutex_t lock; /* of what follows */
    uint32_t *thought[THOUGHT_LEN];
    uint32_t **short_plain; /* [longest + 1] */
};

/* The plain ids of at most n characters. Borrowed. */
const uint32_t *words_plain(struct words *w, int32_t n);

/* The ids that may come in a thought when the last k bytes begin its end. Borrowed. */
const uint32_t *words_thought(struct words *w, int k);
/* The bytes of the end that are there after one more; THOUGHT_LEN: all. */
int thought_step(int k, int byte);

static inline const char *words_bytes(const struct words *w, int32_t id, size_t *n)
{
    *n = w->at[id + 1] - w->at[id];
    return w->pool + w->at[id];
}

#endif
