/* A recursive descent over rules. A rule ends where the next name of one stands. */
#include "config.h"
#include "grammar/ebnf.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/regex.h"

#define DEPTH_MOST 100

struct rule {
    const char *name; /* in the text */
    size_t n;
    int32_t rule;
    bool defined;
};

struct ebnf {
    struct nodes *x;
    const char *p;
    size_t n, at;
    struct rule *rules;
    size_t n_rules, cap_rules;
    int depth, rc;
    struct err *e;
};

static node fail(struct ebnf *b, const char *what)
{
    size_t line = 1;
    for (size_t i = 0; i < b->at && i < b->n; i++) {
        line += b->p[i] == '\n';
    }
    if (b->rc == 0) {
        b->rc = err_set(b->e, QE_FORMAT, "the grammar: %s in line %zu", what, line);
    }
    return NODE_FAIL;
}

static void skip(struct ebnf *b)
{
    while (b->at < b->n) {
        const char c = b->p[b->at];
        if (c == '#' || (c == '/' && b->at + 1 < b->n && b->p[b->at + 1] == '/')) {
            while (b->at < b->n && b->p[b->at] != '\n') {
                b->at++;
            }
        } else if (strchr(" \t\r\n", c) && c) {
            b->at++;
        } else {
            return;
        }
    }
}

static bool is_name(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && ((c >= '0' && c <= '9') || c == '-' || c == '.'));
}

static size_t name_at(const struct ebnf *b)
{
    size_t n = 0;
    while (b->at + n < b->n && is_name(b->p[b->at + n], n == 0)) {
        n++;
    }
    return n;
}

/* How long "name ::=" is here; 0: there is none. *name: of the name alone. */
static size_t head_at(const struct ebnf *b, size_t *name)
{
    static const char *const signs[] = {"::=", ":=", ":", "="};
    size_t i = b->at + name_at(b);
    *name = i - b->at;
    while (*name > 0 && i < b->n && (b->p[i] == ' ' || b->p[i] == '\t')) {
        i++;
    }
    for (int k = 0; k < 4 && *name > 0; k++) {
        const size_t len = strlen(signs[k]);
        if (len <= b->n - i && memcmp(b->p + i, signs[k], len) == 0) {
            return i + len - b->at;
        }
    }
    return 0;
}

static struct rule *rule_of(struct ebnf *b, const char *name, size_t n)
{
    for (size_t i = 0; i < b->n_rules; i++) {
        if (b->rules[i].n == n && memcmp(b->rules[i].name, name, n) == 0) {
            return &b->rules[i];
        }
    }
    if (b->n_rules == b->cap_rules) {
        b->cap_rules = b->cap_rules ? 2 * b->cap_rules : 32;
        b->rules = mem_realloc(b->rules, b->cap_rules * sizeof *b->rules);
    }
    b->rules[b->n_rules] = (struct rule){name, n, nodes_rule(b->x), false};
    return &b->rules[b->n_rules++];
}

/* ---- items ---- */

/* The end of a class, text or expression that began with a character; n: there is none. */
static size_t closing(const struct ebnf *b, char close)
{
    size_t i = b->at + 1;
    while (i < b->n && b->p[i] != close) {
        i += b->p[i] == '\\' ? 2 : 1;
    }
    return i < b->n ? i : b->n;
}

static node expression(struct ebnf *b, size_t from, size_t to)
{
    const struct regex_opts ro = {.form = CHARS_RAW, .whole = true};
    node n = NODE_FAIL;
    struct err e = ERR_INIT;
    if (regex_compile(b->x, b->p + from, to - from, &ro, &n, &e) < 0) {
        return fail(b, e.msg);
    }
    return n;
}

/* A text: what is special in an expression is not here, but escapes are the same. */
static node text(struct ebnf *b, char quote)
{
    const size_t end = closing(b, quote);
    struct buf re = BUF_INIT;
    if (end == b->n) {
        return fail(b, "a text has no end");
    }
    for (size_t i = b->at + 1; i < end; i++) {
        if (b->p[i] == '\\') {
            buf_addc(&re, '\\');
            buf_addc(&re, b->p[++i]);
            continue;
        }
        if (strchr("()[]{}.*+?^$|/", b->p[i]) && b->p[i]) {
            buf_addc(&re, '\\');
        }
        buf_addc(&re, b->p[i]);
    }
    const struct regex_opts ro = {.form = CHARS_RAW, .whole = true};
    node n = NODE_FAIL;
    struct err e = ERR_INIT;
    if (regex_compile(b->x, re.data ? re.data : "", re.len, &ro, &n, &e) < 0) {
        fail(b, "a text has an escape that is not understood");
    }
    buf_free(&re);
    b->at = end + 1;
    return n;
}

static node alternatives(struct ebnf *b);

static node item(struct ebnf *b)
{
    const char c = b->p[b->at];
    const size_t name = name_at(b);
    node n = NODE_FAIL;
    if (c == '"' || c == '\'') {
        return text(b, c);
    }
    if (c == '[' || c == '/') {
        const size_t end = closing(b, c == '[' ? ']' : '/');
        if (end == b->n) {
            return fail(b, "a class or expression has no end");
        }
        n = c == '[' ? expression(b, b->at, end + 1) : expression(b, b->at + 1, end);
        b->at = end + 1;
        return n;
    }
    if (c == '.') {
        b->at++;
        return chars_range(b->x, 0, CHAR_MAX_CODE, CHARS_RAW);
    }
    if (c == '(') {
        b->at++;
        if (++b->depth > DEPTH_MOST) {
            return fail(b, "groups are too deep");
        }
        n = alternatives(b);
        b->depth--;
        if (b->rc == 0 && (b->at >= b->n || b->p[b->at] != ')')) {
            return fail(b, ") is missing");
        }
        b->at++;
        return n;
    }
    if (name == 0) {
        return fail(b, "this is not understood");
    }
    n = nodes_ref(b->x, rule_of(b, b->p + b->at, name)->rule);
    b->at += name;
    return n;
}

static bool number(struct ebnf *b, int32_t *out)
{
    const size_t from = b->at;
    int64_t v = 0;
    skip(b);
    while (b->at < b->n && b->p[b->at] >= '0' && b->p[b->at] <= '9') {
        v = v < REP_MOST ? v * 10 + (b->p[b->at] - '0') : v;
        b->at++;
    }
    const bool some = b->at > from;
    *out = v > REP_MOST ? REP_MOST : (int32_t)v;
    skip(b);
    return some;
}

static node repeated(struct ebnf *b)
{
    node n = item(b);
    while (b->rc == 0 && b->at < b->n && strchr("*+?{", b->p[b->at]) && b->p[b->at]) {
        const char c = b->p[b->at++];
        int32_t lo = c == '+', hi = c == '?' ? 1 : REP_ANY;
        if (c == '{') {
            const bool low = number(b, &lo);
            const bool comma = b->at < b->n && b->p[b->at] == ',';
            b->at += comma;
            hi = lo;
            if (comma && !number(b, &hi)) {
                hi = REP_ANY;
            }
            if ((!low && !comma) || b->at >= b->n || b->p[b->at++] != '}' || hi < lo) {
                return fail(b, "bounds are wrong");
            }
        }
        n = nodes_rep(b->x, n, lo, hi);
    }
    return n;
}

static node sequence(struct ebnf *b)
{
    node *part = NULL, n = NODE_EMPTY;
    size_t k = 0, cap = 0, name = 0;
    for (skip(b); b->rc == 0 && b->at < b->n; skip(b)) {
        if (b->p[b->at] == '|' || b->p[b->at] == ')' || b->p[b->at] == ';' || head_at(b, &name)) {
            break;
        }
        if (k == cap) {
            cap = cap ? 2 * cap : 16;
            part = mem_realloc(part, cap * sizeof *part);
        }
        part[k++] = repeated(b);
    }
    while (k > 0) {
        n = nodes_seq(b->x, part[--k], n);
    }
    free(part);
    return n;
}

static node alternatives(struct ebnf *b)
{
    node n = sequence(b);
    while (b->rc == 0 && b->at < b->n && b->p[b->at] == '|') {
        b->at++;
        n = nodes_alt(b->x, n, sequence(b));
    }
    return n;
}

/* ---- rules ---- */

static void rules(struct ebnf *b)
{
    for (skip(b); b->rc == 0 && b->at < b->n; skip(b)) {
        size_t name = 0;
        const size_t head = head_at(b, &name);
        if (head == 0) {
            fail(b, b->p[b->at] == ')' ? "( is missing" : "there is no rule (name ::= …)");
            return;
        }
        const char *at = b->p + b->at;
        struct rule *r = rule_of(b, at, name);
        if (r->defined) {
            fail(b, "a rule has this name already");
            return;
        }
        r->defined = true;
        const int32_t rule = r->rule;
        b->at += head;
        nodes_rule_set(b->x, rule, alternatives(b));
        if (b->at < b->n && b->p[b->at] == ';') {
            b->at++;
        }
    }
}

static const struct rule *root_of(const struct ebnf *b)
{
    static const char *const names[] = {"root", "start"};
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < b->n_rules; i++) {
            if (b->rules[i].n == strlen(names[k]) &&
                memcmp(b->rules[i].name, names[k], b->rules[i].n) == 0) {
                return &b->rules[i];
            }
        }
    }
    return b->n_rules > 0 ? &b->rules[0] : NULL;
}

int ebnf_compile(struct nodes *x, const char *p, size_t n, node *out, struct err *e)
{
    struct ebnf b = {.x = x, .p = p, .n = n, .e = e};
    if (!utf8_valid(p, n)) {
        return err_set(e, QE_FORMAT, "the grammar is not UTF-8");
    }
    rules(&b);
    for (size_t i = 0; i < b.n_rules && b.rc == 0; i++) {
        if (!b.rules[i].defined) {
            b.rc = err_set(e, QE_FORMAT, "the grammar: there is no rule \"%.*s\"",
                           (int)(b.rules[i].n < 80 ? b.rules[i].n : 80), b.rules[i].name);
        }
    }
    const struct rule *root = root_of(&b);
    if (b.rc == 0 && !root) {
        b.rc = err_set(e, QE_FORMAT, "the grammar has no rules");
    }
    if (b.rc == 0) {
        *out = nodes_ref(x, root->rule);
    }
    free(b.rules);
    return b.rc;
}
