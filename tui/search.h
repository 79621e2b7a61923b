#ifndef QUASAR_TUI_SEARCH_H
#define QUASAR_TUI_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A pattern and where it is found in a text. The pattern is a regular
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

/* Where a match is in a text. */
struct search_hit {
    uint32_t at, len;
};
struct search_hits {
    struct search_hit *v;
    size_t n, cap;
};
/* The number of matches in p[0..n), each within a line; they are appended to out, unless that is
 * NULL. */
size_t search_text(const struct search *s, const char *p, size_t n, struct search_hits *out);
void search_hits_free(struct search_hits *h);

#endif
