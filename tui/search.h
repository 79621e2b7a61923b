#ifndef QUASAR_TUI_SEARCH_H
#define QUASAR_TUI_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tui/text.h"

/*
 * A pattern and where it is found in laid-out rows. The pattern is a regular
 * expression of PCRE2; one that is not valid is looked for as it stands. An
 * upper-case letter in it makes case count. UI thread only.
 */
struct search;

/* NULL: the pattern is empty. */
struct search *search_create(const char *pattern, size_t n);
void search_free(struct search *s);
/* The first match of at least one byte in p[from..n); false: none. */
bool search_next(const struct search *s, const char *p, size_t n, size_t from, size_t *at,
                 size_t *len);

/* A piece of a match in one row: bytes of the rows' text. */
struct search_hit {
    size_t row, at, len;
    bool first; /* else the same match goes on from the row above */
};
struct search_hits {
    struct search_hit *v;
    size_t n, cap;
    size_t matches; /* pieces with .first */
};
/* Appends every match in what the rows say, ornaments left out; a line that was
 * wrapped is one line. */
void search_rows(const struct search *s, const struct text_rows *r, struct search_hits *out);
void search_hits_clear(struct search_hits *h);
void search_hits_free(struct search_hits *h);

#endif
