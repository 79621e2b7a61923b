/* Sets of code points as expressions over bytes. */
#include "config.h"
#include "grammar/chars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

void char_set_add(struct char_set *s, int32_t from, int32_t to)
{
    if (from > to) {
        return;
    }
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 16;
        s->v = mem_realloc(s->v, s->cap * sizeof *s->v);
    }
    s->v[s->n++] = (struct char_range){from, to};
}

void char_set_merge(struct char_set *s, const struct char_set *other)
{
    for (size_t i = 0; i < other->n; i++) {
        char_set_add(s, other->v[i].from, other->v[i].to);
    }
}

static int by_start(const void *a, const void *b)
{
    const struct char_range *p = a, *q = b;
    return (p->from > q->from) - (p->from < q->from);
}

void char_set_close(struct char_set *s)
{
    size_t k = 0;
    if (s->n == 0) {
        return;
    }
    qsort(s->v, s->n, sizeof *s->v, by_start);
    for (size_t i = 1; i < s->n; i++) {
        if (s->v[i].from <= s->v[k].to + 1) {
            s->v[k].to = s->v[i].to > s->v[k].to ? s->v[i].to : s->v[k].to;
        } else {
            s->v[++k] = s->v[i];
        }
    }
    s->n = k + 1;
}

void char_set_invert(struct char_set *s)
{
    struct char_set out = {0};
    int32_t next = 0;
    for (size_t i = 0; i < s->n; i++) {
        char_set_add(&out, next, s->v[i].from - 1);
        next = s->v[i].to + 1;
    }
    char_set_add(&out, next, CHAR_MAX_CODE);
    char_set_free(s);
    *s = out;
}

void char_set_free(struct char_set *s)
{
    free(s->v);
    *s = (struct char_set){0};
}

/* ---- UTF-8 ---- */

static int encode(int32_t c, uint8_t out[4])
{
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (uint8_t)(0xC0 | c >> 6);
        out[1] = (uint8_t)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (uint8_t)(0xE0 | c >> 12);
        out[1] = (uint8_t)(0x80 | (c >> 6 & 63));
        out[2] = (uint8_t)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | c >> 18);
    out[1] = (uint8_t)(0x80 | (c >> 12 & 63));
    out[2] = (uint8_t)(0x80 | (c >> 6 & 63));
    out[3] = (uint8_t)(0x80 | (c & 63));
    return 4;
}

/* From lo to hi, n bytes each. */
static node between(struct nodes *x, const uint8_t *lo, const uint8_t *hi, int n)
{
    static const uint8_t least[3] = {0x80, 0x80, 0x80}, most[3] = {0xBF, 0xBF, 0xBF};
    if (n == 1) {
        return nodes_range(x, lo[0], hi[0]);
    }
    if (lo[0] == hi[0]) {
        return nodes_seq(x, nodes_byte(x, lo[0]), between(x, lo + 1, hi + 1, n - 1));
    }
    int from = lo[0], to = hi[0];
    node all = NODE_FAIL;
    if (memcmp(lo + 1, least, (size_t)n - 1) != 0) {
        all = nodes_seq(x, nodes_byte(x, from++), between(x, lo + 1, most, n - 1));
    }
    if (memcmp(hi + 1, most, (size_t)n - 1) != 0) {
        const node last = nodes_seq(x, nodes_byte(x, to--), between(x, least, hi + 1, n - 1));
        all = nodes_alt(x, all, last);
    }
    if (from <= to) {
        all = nodes_alt(x, all,
                        nodes_seq(x, nodes_range(x, from, to), between(x, least, most, n - 1)));
    }
    return all;
}

/* Without surrogates, of characters that stand for themselves. */
static node plain(struct nodes *x, int32_t from, int32_t to)
{
    static const int32_t edge[] = {0x7F, 0x7FF, 0xD7FF, 0xDFFF, 0xFFFF, CHAR_MAX_CODE};
    node all = NODE_FAIL;
    for (size_t i = 0; i < sizeof edge / sizeof *edge && from <= to; i++) {
        const int32_t end = to < edge[i] ? to : edge[i];
        if (from > edge[i]) {
            continue;
        }
        if (edge[i] != 0xDFFF) {
            uint8_t lo[4], hi[4];
            const int n = encode(from, lo);
            encode(end, hi);
            all = nodes_alt(x, all, between(x, lo, hi, n));
        }
        from = end + 1;
    }
    return all;
}

/* ---- JSON ---- */

static node escaped(struct nodes *x, int32_t c)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *at = c ? memchr(from, c, sizeof from - 1) : NULL;
    char s[8];
    if (at) {
        snprintf(s, sizeof s, "\\%c", to[at - from]);
    } else {
        snprintf(s, sizeof s, "\\u%04x", (unsigned)c);
    }
    return nodes_str(x, s);
}

node chars_range(struct nodes *x, int32_t from, int32_t to, enum char_form form)
{
    if (form == CHARS_RAW) {
        return plain(x, from, to);
    }
    node all = NODE_FAIL;
    for (; from <= to && from < 0x20; from++) {
        all = nodes_alt(x, all, escaped(x, from));
    }
    static const int32_t special[] = {'"', '\\'};
    for (int i = 0; i < 2; i++) {
        if (from <= special[i] && to >= special[i]) {
            all = nodes_alt(x, all, plain(x, from, special[i] - 1));
            all = nodes_alt(x, all, escaped(x, special[i]));
            from = special[i] + 1;
        }
    }
    return nodes_alt(x, all, plain(x, from, to));
}

node chars_of(struct nodes *x, const struct char_set *s, enum char_form form)
{
    node all = NODE_FAIL;
    for (size_t i = 0; i < s->n; i++) {
        all = nodes_alt(x, all, chars_range(x, s->v[i].from, s->v[i].to, form));
    }
    return all;
}

int32_t chars_next(const char *p, size_t n, size_t *at)
{
    if (*at >= n) {
        return -1;
    }
    const uint8_t *s = (const uint8_t *)p + *at;
    const int len = s[0] < 0x80 ? 1 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    if ((size_t)len > n - *at || !utf8_valid((const char *)s, (size_t)len)) {
        return -1;
    }
    int32_t c = len == 1 ? s[0] : s[0] & (0x7F >> len);
    for (int i = 1; i < len; i++) {
        c = c << 6 | (s[i] & 63);
    }
    *at += (size_t)len;
    return c;
}

node chars_text(struct nodes *x, const char *p, size_t n, enum char_form form)
{
    if (form == CHARS_RAW) {
        return nodes_text(x, p, n);
    }
    node r = NODE_EMPTY;
    while (n > 0) { /* from the end: what is before goes before */
        size_t from = n - 1, at = 0;
        while (from > 0 && ((unsigned char)p[from] & 0xC0) == 0x80) {
            from--;
        }
        const int32_t c = chars_next(p + from, n - from, &at);
        if (c < 0) {
            return NODE_FAIL;
        }
        r = nodes_seq(x, chars_range(x, c, c, form), r);
        n = from;
    }
    return r;
}
