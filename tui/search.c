/* Looks for a pattern in laid-out rows. A line that was wrapped is put together
 * again without its ornaments, and what is found in it is cut at the rows. */
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

/* ---- rows ---------------------------------------------------------------- */

/* A stretch of a line, and where it is in the rows. */
struct part {
    size_t line; /* offset in the line */
    size_t row, at;
};
struct parts {
    struct part *v;
    size_t n, cap;
};

static void add_hit(struct search_hits *out, struct search_hit h)
{
    if (out->n == out->cap) {
        out->cap = out->cap ? out->cap * 2 : 16;
        out->v = mem_realloc(out->v, out->cap * sizeof *out->v);
    }
    out->matches += h.first;
    out->v[out->n++] = h;
}

/* Appends what row i says. */
static void add_row(const struct text_rows *r, size_t i, struct buf *line, struct parts *parts)
{
    const size_t end = text_row_end(r, i);
    const size_t runs = i + 1 < r->n_rows ? r->rows[i + 1].run : r->n_runs;
    for (size_t k = r->rows[i].run; k < runs; k++) {
        const size_t from = r->runs[k].at;
        const size_t to = k + 1 < runs ? r->runs[k + 1].at : end;
        if (r->runs[k].style & TEXT_DECOR) {
            continue;
        }
        if (parts->n == parts->cap) {
            parts->cap = parts->cap ? parts->cap * 2 : 16;
            parts->v = mem_realloc(parts->v, parts->cap * sizeof *parts->v);
        }
        parts->v[parts->n++] = (struct part){line->len, i, from};
        buf_add(line, r->text.data + from, to - from);
    }
}

/* Cuts a match at the parts; neighbouring pieces of a row become one. */
static void add_match(const struct parts *parts, size_t line_n, size_t at, size_t len,
                      struct search_hits *out)
{
    bool first = true;
    for (size_t k = 0; k < parts->n; k++) {
        const struct part *p = &parts->v[k];
        const size_t p_end = k + 1 < parts->n ? parts->v[k + 1].line : line_n;
        const size_t from = at > p->line ? at : p->line;
        const size_t to = at + len < p_end ? at + len : p_end;
        if (from >= to) {
            continue;
        }
        struct search_hit *last = out->n ? &out->v[out->n - 1] : NULL;
        const size_t where = p->at + (from - p->line);
        if (!first && last->row == p->row && last->at + last->len == where) {
            last->len += to - from;
        } else {
            add_hit(out, (struct search_hit){p->row, where, to - from, first});
        }
        first = false;
    }
}

void search_rows(const struct search *s, const struct text_rows *r, struct search_hits *out)
{
    struct buf line = BUF_INIT;
    struct parts parts = {0};
    for (size_t i = 0; i < r->n_rows; i++) {
        add_row(r, i, &line, &parts);
        if (!r->rows[i].hard && i + 1 < r->n_rows) {
            continue;
        }
        size_t at = 0;
        size_t len = 0;
        for (size_t from = 0; line.len && search_next(s, line.data, line.len, from, &at, &len);
             from = at + len) {
            add_match(&parts, line.len, at, len, out);
        }
        buf_truncate(&line, 0);
        parts.n = 0;
    }
    free(parts.v);
    buf_free(&line);
}

void search_hits_clear(struct search_hits *h)
{
    h->n = 0;
    h->matches = 0;
}

void search_hits_free(struct search_hits *h)
{
    free(h->v);
    *h = (struct search_hits){0};
}
