/* One tag as models write them: <function=NAME>, <function name="NAME">, with quotes that may
 * be missing on one side, or a word alone. */
#include "config.h"
#include "tools/inside.h"

#include <stdlib.h>
#include <string.h>

#define VALUE_MOST 200

static const struct word {
    const char *text;
    enum tag_kind kind;
} words[] = {
    {"tool_call", TAG_WRAP},      {"tool_calls", TAG_WRAP},
    {"function_calls", TAG_WRAP}, {"tool_use", TAG_WRAP},
    {"function", TAG_FUNC},       {"invoke", TAG_FUNC},
    {"tool", TAG_FUNC},           {"parameter", TAG_PARAM},
    {"name", TAG_NAME},           {"tool_name", TAG_NAME},
    {"parameter_name", TAG_NAME}, {"result", TAG_RESULT},
    {"output", TAG_RESULT},       {"tool_response", TAG_RESULT},
    {"tool_result", TAG_RESULT},  {"function_results", TAG_RESULT},
    {"content", TAG_VALUE},       {"file", TAG_VALUE},
};
#define N_WORDS (sizeof words / sizeof *words)

bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

void skip_blank(struct cursor *c)
{
    while (c->at < c->n && is_blank(c->p[c->at])) {
        c->at++;
    }
}

enum verdict more(const struct cursor *c)
{
    return c->eof ? V_NO : V_MORE;
}

enum verdict match(struct cursor *c, const char *text)
{
    const size_t k = strlen(text), left = c->n - c->at;
    if (memcmp(c->p + c->at, text, left < k ? left : k) != 0) {
        return V_NO;
    }
    if (left < k) {
        return more(c);
    }
    c->at += k;
    return V_YES;
}

static bool is_word_char(char c)
{
    return (c >= 'a' && c <= 'z') || c == '_';
}

static bool is_quote(char c)
{
    return c == '"' || c == '\'';
}

static void trim(struct tag *t)
{
    while (t->value_n > 0 && (is_blank(t->value[0]) || is_quote(t->value[0]))) {
        t->quoted = t->quoted || is_quote(t->value[0]);
        t->value++;
        t->value_n--;
    }
    while (t->value_n > 0 &&
           (is_blank(t->value[t->value_n - 1]) || is_quote(t->value[t->value_n - 1]))) {
        t->quoted = t->quoted || is_quote(t->value[t->value_n - 1]);
        t->value_n--;
    }
}

static bool is_ident(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':';
}

/* The value behind '=', up to '>'; of a name also up to what ends the name. */
static enum verdict read_value(const struct cursor *c, size_t at, struct tag *t)
{
    size_t end = at;
    if (t->kind == TAG_NAME) {
        while (end < c->n && (is_quote(c->p[end]) || is_ident(c->p[end]))) {
            end++;
        }
    } else {
        while (end < c->n && c->p[end] != '>' && c->p[end] != '\n' && c->p[end] != '<' &&
               c->p[end] != 0 && end - at <= VALUE_MOST) {
            end++;
        }
    }
    if (end == c->n) {
        return more(c);
    }
    t->valued = true;
    t->value = c->p + at;
    t->value_n = end - at;
    trim(t);
    if (t->value_n == 0 || (t->kind != TAG_NAME && c->p[end] != '>')) {
        return V_NO;
    }
    t->end = end + (c->p[end] == '>');
    return V_YES;
}

/* The attribute that names it; others do not belong here. */
static enum verdict read_attribute(const struct cursor *c, size_t at, struct tag *t)
{
    struct cursor s = *c;
    s.at = at;
    skip_blank(&s);
    if (s.at < s.n && s.p[s.at] == '>' && at > 0) {
        t->end = s.at + 1;
        return V_YES;
    }
    if (s.at == s.n) {
        return more(c);
    }
    const enum verdict v = match(&s, "name");
    if (v != V_YES) {
        return v;
    }
    skip_blank(&s);
    if (s.at == s.n) {
        return more(c);
    }
    if (s.p[s.at] != '=') {
        return V_NO;
    }
    t->attribute = true;
    return read_value(c, s.at + 1, t);
}

static enum verdict read_rest(const struct cursor *c, size_t at, struct tag *t)
{
    if (at == c->n) {
        return more(c);
    }
    if (c->p[at] == '>') {
        t->end = at + 1;
        return V_YES;
    }
    if (t->closing) {
        return V_NO;
    }
    if (c->p[at] == '=') {
        return read_value(c, at + 1, t);
    }
    return is_blank(c->p[at]) && c->p[at] != '\n' ? read_attribute(c, at, t) : V_NO;
}

enum verdict tag_read(const struct cursor *c, struct tag *t)
{
    size_t at = c->at;
    if (at == c->n) {
        return more(c);
    }
    if (c->p[at] != '<') {
        return V_NO;
    }
    at++;
    memset(t, 0, sizeof *t);
    t->closing = at < c->n && c->p[at] == '/';
    at += t->closing;
    size_t end = at;
    while (end < c->n && end - at < 20 && is_word_char(c->p[end])) {
        end++;
    }
    bool may = false;
    for (size_t i = 0; i < N_WORDS; i++) {
        const size_t k = strlen(words[i].text);
        if (k == end - at && memcmp(words[i].text, c->p + at, k) == 0) {
            t->kind = words[i].kind;
            t->word = words[i].text;
        }
        may = may ||
              (end == c->n && k >= end - at && memcmp(words[i].text, c->p + at, end - at) == 0);
    }
    if (t->word && (end < c->n || c->eof)) {
        return read_rest(c, end, t);
    }
    return may ? more(c) : V_NO;
}

enum verdict tag_is(const struct cursor *c, enum tag_kind kind, bool closing, struct tag *t)
{
    const enum verdict v = tag_read(c, t);
    return v == V_YES && (t->kind != kind || t->closing != closing) ? V_NO : v;
}

bool tag_is_stub(const char *p, size_t n)
{
    for (size_t i = 0; i < N_WORDS; i++) {
        const size_t k = strlen(words[i].text);
        const size_t skip = n > 1 && p[1] == '/' ? 2 : 1;
        if ((words[i].kind == TAG_WRAP || words[i].kind == TAG_FUNC) && n >= skip + 5 &&
            p[0] == '<' && n - skip <= k && k > 4 &&
            memcmp(words[i].text, p + skip, n - skip) == 0) {
            return true;
        }
    }
    return false;
}

void call_free(struct call *c)
{
    free(c->name);
    json_decref(c->args);
    memset(c, 0, sizeof *c);
}
