#ifndef QUASAR_TUI_FUZZY_H
#define QUASAR_TUI_FUZZY_H

#include <stddef.h>

/*
 * How well a text fits the few letters that somebody typed: all of them occur in it, in
 * order. Pure.
 */

/* Higher is better; negative: it does not fit. A query without capitals ignores case. What
 * begins a word, or follows on what matched before, counts more, and so does a shorter text.
 * Blanks in the query only separate words, each of which is looked for in the whole text. An
 * empty query fits everything, with 0. */
int fuzzy_score(const char *query, const char *text);

struct fuzzy_hit {
    size_t index; /* in what was ranked */
    int score;
};

/* Best first; equal ones keep the order they have. */
void fuzzy_sort(struct fuzzy_hit *hits, size_t n);

#endif
