/* A recursive descent over regular expressions. */
#include "config.h"
#include "grammar/regex.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MOST 100

struct re {
    struct nodes *x;
    const char *p;
    size_t n, at;
    const struct regex_opts *o;
    int depth;
    int rc;
    struct err *e;
};

static node fail(struct re *r, int code, const char *what)
{
    if (r->rc == 0) {
        r->rc =
            err_set(r->e, code, "the regular expression: %s, at character %zu", what, r->at + 1);
    }
    return NODE_FAIL;
}

static bool more(const struct re *r)
{
    return r->rc == 0 && r->at < r->n;
}

static bool next_is(const struct re *r, char c)
{
    return more(r) && r->p[r->at] == c;
}

static bool take(struct re *r, char c)
{
    const bool is = next_is(r, c);
    r->at += is;
    return is;
}

/* ---- classes ---- */

static void word_set(struct char_set *s)
{
    char_set_add(s, '0', '9');
    char_set_add(s, 'A', 'Z');
    char_set_add(s, '_', '_');
    char_set_add(s, 'a', 'z');
}

static void space_set(struct char_set *s)
{
    char_set_add(s, '\t', '\r');
    char_set_add(s, ' ', ' ');
    char_set_add(s, 0xA0, 0xA0);
    char_set_add(s, 0x1680, 0x1680);
    char_set_add(s, 0x2000, 0x200A);
    char_set_add(s, 0x2028, 0x2029);
    char_set_add(s, 0x202F, 0x202F);
    char_set_add(s, 0x205F, 0x205F);
    char_set_add(s, 0x3000, 0x3000);
    char_set_add(s, 0xFEFF, 0xFEFF);
}

/* \d and the like; false: it is none of them. */
static bool class_of(char c, struct char_set *out)
{
    struct char_set s = {0};
    switch (c) {
    case 'd':
    case 'D':
        char_set_add(&s, '0', '9');
        break;
    case 'w':
    case 'W':
        word_set(&s);
        break;
    case 's':
    case 'S':
        space_set(&s);
        break;
    default:
        return false;
    }
    char_set_close(&s);
    if (c < 'a') {
        char_set_invert(&s);
    }
    char_set_merge(out, &s);
    char_set_free(&s);
    return true;
}

static int32_t hex(struct re *r, int least, int most)
{
    int32_t v = 0;
    int n = 0;
    while (n < most && more(r)) {
        const char c = r->p[r->at];
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0) {
            break;
        }
        v = v << 4 | d;
        r->at++;
        n++;
    }
    if (n < least) {
        fail(r, QE_FORMAT, "digits are missing");
    }
    return v;
}

/* \uHHHH, also a pair of them, and \u{…}; behind the u. */
static int32_t unicode(struct re *r)
{
    int32_t v = 0;
    if (take(r, '{')) {
        v = hex(r, 1, 6);
        if (!take(r, '}')) {
            fail(r, QE_FORMAT, "} is missing");
        }
    } else {
        v = hex(r, 4, 4);
        if (v >= 0xD800 && v < 0xDC00 && r->at + 1 < r->n && r->p[r->at] == '\\' &&
            r->p[r->at + 1] == 'u') {
            r->at += 2;
            const int32_t low = hex(r, 4, 4);
            v = 0x10000 + ((v & 0x3FF) << 10) + (low & 0x3FF);
        }
    }
    if (v > CHAR_MAX_CODE || (v >= 0xD800 && v < 0xE000)) {
        fail(r, QE_FORMAT, "there is no such character");
    }
    return v;
}

/* The character behind a backslash. */
static int32_t escape(struct re *r)
{
    static const char from[] = "nrtfv0a", to[] = "\n\r\t\f\v\0\a";
    if (!more(r)) {
        fail(r, QE_FORMAT, "it ends with a backslash");
        return 0;
    }
    const char c = r->p[r->at];
    const char *at = memchr(from, c, sizeof from - 1);
    if (at) {
        r->at++;
        return to[at - from];
    }
    if (c == 'x' || c == 'u') {
        r->at++;
        return c == 'x' ? hex(r, 2, 2) : unicode(r);
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9')) {
        fail(r, QE_USAGE, "this escape is not understood");
        return 0;
    }
    return chars_next(r->p, r->n, &r->at);
}

/* One item of a class: a character, or (-1) a set that was added. */
static int32_t class_item(struct re *r, struct char_set *s)
{
    if (!take(r, '\\')) {
        const int32_t c = chars_next(r->p, r->n, &r->at);
        if (c < 0) {
            fail(r, QE_FORMAT, "] is missing");
        }
        return c;
    }
    if (more(r) && class_of(r->p[r->at], s)) {
        r->at++;
        return -1;
    }
    if (take(r, 'b')) {
        return '\b';
    }
    return escape(r);
}

static node class(struct re *r)
{
    struct char_set s = {0};
    const bool invert = take(r, '^');
    while (r->rc == 0 && !take(r, ']')) {
        const int32_t from = class_item(r, &s);
        int32_t to = from;
        if (from >= 0 && next_is(r, '-') && r->at + 1 < r->n && r->p[r->at + 1] != ']') {
            r->at++;
            to = class_item(r, &s);
            if (to < from && r->rc == 0) {
                fail(r, QE_FORMAT, "a range of a class is the wrong way round");
            }
        }
        if (from >= 0) {
            char_set_add(&s, from, to);
        }
    }
    char_set_close(&s);
    if (invert) {
        char_set_invert(&s);
    }
    const node n = r->rc == 0 ? chars_of(r->x, &s, r->o->form) : NODE_FAIL;
    char_set_free(&s);
    return n;
}

static node any_char(struct re *r)
{
    struct char_set s = {0};
    char_set_add(&s, '\n', '\n');
    char_set_add(&s, '\r', '\r');
    char_set_add(&s, 0x2028, 0x2029);
    char_set_close(&s);
    char_set_invert(&s);
    const node n = chars_of(r->x, &s, r->o->form);
    char_set_free(&s);
    return n;
}

/* ---- the expression ---- */

static node alternatives(struct re *r, bool top);

static node group(struct re *r)
{
    if (take(r, '?')) {
        if (take(r, 'P') || next_is(r, '<')) {
            const bool behind =
                r->at + 1 < r->n && (r->p[r->at + 1] == '=' || r->p[r->at + 1] == '!');
            if (!take(r, '<') || behind) {
                return fail(r, QE_USAGE, "look-around is not understood");
            }
            while (more(r) && r->p[r->at] != '>') {
                r->at++;
            }
            if (!take(r, '>')) {
                return fail(r, QE_FORMAT, "> is missing");
            }
        } else if (!take(r, ':')) {
            return fail(r, QE_USAGE, "this kind of group is not understood");
        }
    }
    if (++r->depth > DEPTH_MOST) {
        return fail(r, QE_USAGE, "its groups are too deep");
    }
    const node n = alternatives(r, false);
    r->depth--;
    if (r->rc == 0 && !take(r, ')')) {
        return fail(r, QE_FORMAT, ") is missing");
    }
    return n;
}

static node atom(struct re *r)
{
    const char c = r->p[r->at];
    struct char_set s = {0};
    switch (c) {
    case '(':
        r->at++;
        return group(r);
    case '[':
        r->at++;
        return class(r);
    case '.':
        r->at++;
        return any_char(r);
    case '*':
    case '+':
    case '?':
        return fail(r, QE_FORMAT, "there is nothing to repeat");
    case '^':
    case '$':
        return fail(r, QE_USAGE, "^ and $ are understood at the ends only");
    case '\\':
        r->at++;
        if (more(r) && class_of(r->p[r->at], &s)) {
            r->at++;
            char_set_close(&s);
            const node n = chars_of(r->x, &s, r->o->form);
            char_set_free(&s);
            return n;
        }
        break;
    default:
        break;
    }
    const int32_t code = c == '\\' ? escape(r) : chars_next(r->p, r->n, &r->at);
    if (code < 0) {
        return fail(r, QE_FORMAT, "it is not UTF-8");
    }
    return r->rc == 0 ? chars_range(r->x, code, code, r->o->form) : NODE_FAIL;
}

static bool number(struct re *r, int32_t *out)
{
    int64_t v = 0;
    const size_t from = r->at;
    while (more(r) && r->p[r->at] >= '0' && r->p[r->at] <= '9') {
        v = v < REP_MOST ? v * 10 + (r->p[r->at] - '0') : v;
        r->at++;
    }
    *out = v > REP_MOST ? REP_MOST : (int32_t)v;
    return r->at > from;
}

/* Bounds behind an atom; false: there are none. "{" that begins none is itself. */
static bool bounds(struct re *r, int32_t *lo, int32_t *hi)
{
    *lo = 0;
    *hi = REP_ANY;
    if (take(r, '*')) {
        return true;
    }
    if (take(r, '+')) {
        *lo = 1;
        return true;
    }
    if (take(r, '?')) {
        *hi = 1;
        return true;
    }
    const size_t from = r->at;
    if (take(r, '{')) {
        const bool low = number(r, lo);
        if (low && take(r, '}')) {
            *hi = *lo;
            return true;
        }
        if (take(r, ',')) {
            const bool high = number(r, hi);
            *hi = high ? *hi : REP_ANY;
            if ((low || high) && take(r, '}')) {
                return true;
            }
        }
        r->at = from;
    }
    return false;
}

static node term(struct re *r)
{
    node n = atom(r);
    int32_t lo = 0, hi = 0;
    bool first = true;
    while (r->rc == 0 && bounds(r, &lo, &hi)) {
        if (!first) {
            return fail(r, QE_FORMAT, "two repetitions behind each other");
        }
        first = false;
        take(r, '?');
        if (hi < lo) {
            return fail(r, QE_FORMAT, "bounds are the wrong way round");
        }
        n = nodes_rep(r->x, n, lo, hi);
    }
    return n;
}

static bool ends_here(const struct re *r)
{
    return r->at + 1 == r->n || r->p[r->at + 1] == '|';
}

static node sequence(struct re *r, bool top)
{
    const bool start = top && take(r, '^');
    bool end = false;
    node parts[64], n = NODE_EMPTY;
    int k = 0;
    while (more(r) && !next_is(r, '|') && !(next_is(r, ')') && !top)) {
        if (next_is(r, ')')) {
            return fail(r, QE_FORMAT, "( is missing");
        }
        if (top && next_is(r, '$') && ends_here(r)) {
            r->at++;
            end = true;
            continue;
        }
        parts[k++] = term(r);
        if (k == 64) { /* some at a time, joined from the right */
            node some = NODE_EMPTY;
            while (k > 0) {
                some = nodes_seq(r->x, parts[--k], some);
            }
            n = nodes_seq(r->x, n, some);
        }
    }
    node some = NODE_EMPTY;
    while (k > 0) {
        some = nodes_seq(r->x, parts[--k], some);
    }
    n = nodes_seq(r->x, n, some);
    if (top && !r->o->whole) {
        n = nodes_seq3(r->x, start ? NODE_EMPTY : r->o->any, n, end ? NODE_EMPTY : r->o->any);
    }
    return n;
}

static node alternatives(struct re *r, bool top)
{
    node n = sequence(r, top);
    while (r->rc == 0 && take(r, '|')) {
        n = nodes_alt(r->x, n, sequence(r, top));
    }
    return n;
}

int regex_compile(struct nodes *x, const char *p, size_t n, const struct regex_opts *o, node *out,
                  struct err *e)
{
    struct re r = {.x = x, .p = p, .n = n, .o = o, .e = e};
    const node all = alternatives(&r, true);
    if (r.rc == 0) {
        *out = all;
    }
    return r.rc;
}
