/* Looks for a pattern in text, line by line. A pattern that takes too long at a place is not found
 * there. */
#include "config.h"
#include "tui/search.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"

#define MATCH_LIMIT 200000 /* steps of one attempt: a pattern cannot stop the screen */

struct search {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
};

static bool has_upper(const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        utf8proc_int32_t c = -1;
        utf8proc_ssize_t k =
            utf8proc_iterate((const utf8proc_uint8_t *)p + i, (utf8proc_ssize_t)(n - i), &c);
        if (k <= 0) {
            i++;
            continue;
        }
        if (c == '\\') { /* \W and the like are no letters */
            i += 2;
            continue;
        }
        if (utf8proc_category(c) == UTF8PROC_CATEGORY_LU) {
            return true;
        }
        i += (size_t)k;
    }
    return false;
}

struct search *search_create(const char *pattern, size_t n)
{
    if (n == 0) {
        return NULL;
    }
    uint32_t flags = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C;
    flags |= has_upper(pattern, n) ? 0 : PCRE2_CASELESS;
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *c = pcre2_compile((PCRE2_SPTR)pattern, n, flags, &code, &at, NULL);
    if (!c) {
        flags = (flags & ~(uint32_t)PCRE2_NEVER_BACKSLASH_C) | PCRE2_LITERAL;
        c = pcre2_compile((PCRE2_SPTR)pattern, n, flags, &code, &at, NULL);
    }
    if (!c) {
        return NULL; /* not even as it stands: half a character */
    }
    (void)pcre2_jit_compile(c, PCRE2_JIT_COMPLETE); /* without, it is only slower */
    struct search *s = mem_zalloc(sizeof *s);
    s->code = c;
    s->data = pcre2_match_data_create_from_pattern(c, NULL);
    s->limits = pcre2_match_context_create(NULL);
    if (!s->data || !s->limits) {
        search_free(s);
        return NULL;
    }
    (void)pcre2_set_match_limit(s->limits, MATCH_LIMIT);
    return s;
}

void search_free(struct search *s)
{
    if (s) {
        pcre2_match_data_free(s->data);
        pcre2_match_context_free(s->limits);
        pcre2_code_free(s->code);
        free(s);
    }
}

bool search_next(const struct search *s, const char *p, size_t n, size_t from, size_t *at,
                 size_t *len)
{
    int rc = pcre2_match(s->code, (PCRE2_SPTR)p, n, from, PCRE2_NOTEMPTY, s->data, s->limits);
    if (rc < 0) {
        return false;
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(s->data);
    if (v[1] <= v[0] || v[0] < from) { /* \K can do that */
        return false;
    }
    *at = v[0];
    *len = v[1] - v[0];
    return true;
}

static void add_hit(struct search_hits *out, size_t at, size_t len)
{
    if (out->n == out->cap) {
        out->cap = out->cap ? out->cap * 2 : 16;
        out->v = mem_realloc(out->v, out->cap * sizeof *out->v);
    }
    out->v[out->n++] = (struct search_hit){(uint32_t)at, (uint32_t)len};
}

size_t search_text(const struct search *s, const char *p, size_t n, struct search_hits *out)
{
    size_t found = 0;
    for (size_t line = 0; line < n;) {
        const char *nl = memchr(p + line, '\n', n - line);
        const size_t k = nl ? (size_t)(nl - p) - line : n - line;
        size_t at = 0;
        size_t len = 0;
        for (size_t from = 0; k && search_next(s, p + line, k, from, &at, &len); from = at + len) {
            found++;
            if (out) {
                add_hit(out, line + at, len);
            }
        }
        line += k + 1;
    }
    return found;
}

void search_hits_free(struct search_hits *h)
{
    free(h->v);
    *h = (struct search_hits){0};
}
