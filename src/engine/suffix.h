#ifndef QUASAR_ENGINE_SUFFIX_H
#define QUASAR_ENGINE_SUFFIX_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Drafts out of the text itself: where did the last tokens stand before, and what
 * came after them there? Two ways to know. An exact match is the longest earlier
 * occurrence of the last tokens (four at least), found through chains of equal
 * 4-grams. An anchor follows one earlier passage token by token; when the text
 * departs from it by a word or a line that was changed, put in or left out, the
 * anchor looks for the place where both go on together, so that a copy with small
 * edits keeps being predicted.
 *
 * The text may be several in a row: suffix_begin starts one that has its end in view
 * alone, while the earlier ones stay places to draft from.
 *
 * Memory: twelve to twenty bytes a token, at most SUFFIX_MOST tokens (the older half
 * is dropped then). Appending is O(1) amortised, guessing O(1) chain steps.
 */
#define SUFFIX_MOST   (1 << 18)
#define SUFFIX_DRAFTS 16

/* How good a guess is, by what speaks for it. Lost: so many tokens agreed since the
 * text left the passage. Then exact matches of growing length. */
enum suffix_class {
    SC_LOST0,
    SC_LOST1,
    SC_LOST2,
    SC_LOST3,
    SC_4,
    SC_6,
    SC_8,
    SC_12,
    SC_20,
    SC_40,
    SC_COUNT
};

struct suffix {
    int32_t *ids;
    int32_t *prev; /* where the 4-gram that ends here ended before; -1: nowhere */
    int32_t *head; /* by hash: where such a 4-gram ended last */
    int n, cap, bits;
    int from; /* where the present text starts; -1: its start was dropped */

    int at;       /* anchor: what is expected next stands here; -1: no anchor */
    int run;      /* tokens that agreed since the anchor was cast */
    int left_at;  /* where the passage was left; -1: it is being followed */
    int left_for; /* tokens since */
};

struct suffix_guess {
    int n; /* 0: nothing to say */
    enum suffix_class class;
    int match; /* tokens that agree */
    int32_t ids[SUFFIX_DRAFTS];
};

void suffix_init(struct suffix *s);
void suffix_fini(struct suffix *s);
/* Forgets the text. */
void suffix_clear(struct suffix *s);
void suffix_push(struct suffix *s, const int32_t *ids, int n);
/* The present text is ids: pushes what is new where they go on from it, else ends it and
 * pushes all of them. */
void suffix_begin(struct suffix *s, const int32_t *ids, int n);
/* What comes after the text: most tokens, at most SUFFIX_DRAFTS. */
void suffix_guess(struct suffix *s, int most, struct suffix_guess *out);

#endif
