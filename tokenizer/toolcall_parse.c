/* The grammar of one tool call. Values are raw text and may themselves contain
 * tags, so the tag that closes a value is told from its look by what follows:
 * the next parameter, or the end of the call; and a parameter opened inside a
 * value on a line of its own takes its closing tag with it. */
#include "config.h"
#include "tokenizer/toolcall_int.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define NAME_MAX_BYTES 256

struct cursor {
    const json_t *tools;
    const char *p;
    size_t n, at;
    bool eof, wrapped;
};

static void skip_blank(struct cursor *c)
{
    while (c->at < c->n && (c->p[c->at] == ' ' || (c->p[c->at] >= '\t' && c->p[c->at] <= '\r'))) {
        c->at++;
    }
}

static enum verdict more(const struct cursor *c)
{
    return c->eof ? V_NO : V_MORE;
}

/* Whether the tag comes next; steps over it if so. */
static enum verdict match(struct cursor *c, const char *tag)
{
    size_t k = strlen(tag), left = c->n - c->at;
    if (memcmp(c->p + c->at, tag, left < k ? left : k) != 0) {
        return V_NO;
    }
    if (left < k) {
        return more(c);
    }
    c->at += k;
    return V_YES;
}

/* The name up to '>', without quotes. */
static enum verdict read_name(struct cursor *c, char **out)
{
    size_t end = c->at;
    while (end < c->n && c->p[end] != '>') {
        if (c->p[end] == '<' || c->p[end] == '\n' || c->p[end] == 0 ||
            end - c->at >= NAME_MAX_BYTES) {
            return V_NO;
        }
        end++;
    }
    if (end == c->n) {
        return more(c);
    }
    const char *s = c->p + c->at;
    size_t k = end - c->at;
    while (k > 0 && (s[0] == ' ' || s[0] == '\t')) {
        s++;
        k--;
    }
    while (k > 0 && (s[k - 1] == ' ' || s[k - 1] == '\t' || s[k - 1] == '\r')) {
        k--;
    }
    if (k >= 2 && (s[0] == '"' || s[0] == '\'') && s[k - 1] == s[0]) {
        s++;
        k -= 2;
    }
    if (k == 0 || !utf8_valid(s, k)) {
        return V_NO;
    }
    *out = mem_strndup(s, k);
    c->at = end + 1;
    return V_YES;
}

/* Whether a closing parameter tag that ends at c is real: what follows it is
 * the next parameter or the end of the call. */
static enum verdict closes(struct cursor c)
{
    skip_blank(&c);
    enum verdict v = match(&c, TAG_PARAM);
    if (v != V_NO) {
        return v;
    }
    v = match(&c, TAG_FUNC_END);
    if (v != V_YES) {
        return v == V_NO && c.eof && c.wrapped ? match(&c, TAG_CALL_END) : v;
    }
    if (!c.wrapped || c.eof) {
        return V_YES;
    }
    skip_blank(&c);
    static const char *const next[] = {TAG_CALL_END, TAG_CALL, TAG_FUNC};
    for (size_t i = 0; i < sizeof next / sizeof *next; i++) {
        v = match(&c, next[i]);
        if (v != V_NO) {
            return v;
        }
    }
    return V_NO;
}

/* At the end of the text, for values without a proper closing tag: a known
 * parameter opened on a new line, or the end of the call. */
static bool closes_bare(struct cursor c, const char *name)
{
    if (match(&c, TAG_FUNC_END) == V_YES) {
        skip_blank(&c);
        return c.at == c.n || match(&c, TAG_CALL_END) == V_YES;
    }
    char *key = NULL;
    bool known = c.at > 0 && c.p[c.at - 1] == '\n' && match(&c, TAG_PARAM) == V_YES &&
                 read_name(&c, &key) == V_YES && schema_find(c.tools, name, key);
    free(key);
    return known;
}

/* End of the value that starts at c->at; *next is behind its closing tag. */
static enum verdict find_end(const struct cursor *c, const char *name, size_t *end, size_t *next)
{
    const size_t none = SIZE_MAX, close_len = strlen(TAG_PARAM_END);
    size_t depth = 0, first = none, bare = none;
    for (size_t i = c->at; i < c->n; i++) {
        const char *lt = memchr(c->p + i, '<', c->n - i);
        if (!lt) {
            break;
        }
        i = (size_t)(lt - c->p);
        struct cursor here = *c;
        here.at = i;
        if (c->eof && bare == none && closes_bare(here, name)) {
            bare = i;
        }
        if (i > 0 && c->p[i - 1] == '\n' && match(&here, TAG_PARAM) == V_YES) {
            depth++;
            continue;
        }
        here.at = i;
        if (match(&here, TAG_PARAM_END) != V_YES) {
            continue;
        }
        enum verdict v = closes(here);
        if (depth > 0) {
            first = v == V_YES && first == none ? i : first;
            depth--;
        } else if (v == V_YES) {
            *end = i;
            *next = i + close_len;
            return V_YES;
        } else if (v == V_MORE) {
            return V_MORE;
        }
    }
    if (!c->eof || (first == none && bare == none)) {
        return more(c);
    }
    *end = first < bare ? first : bare;
    *next = first < bare ? first + close_len : bare;
    return V_YES;
}

static enum verdict read_param(struct cursor *c, const char *name, json_t *args)
{
    char *key = NULL;
    enum verdict v = read_name(c, &key);
    if (v != V_YES) {
        return v;
    }
    size_t end = 0, next = 0;
    v = find_end(c, name, &end, &next);
    if (v == V_YES) {
        size_t from = c->at, to = end;
        if (from < to && c->p[from] == '\r' && from + 1 < to && c->p[from + 1] == '\n') {
            from += 2;
        } else if (from < to && c->p[from] == '\n') {
            from++;
        }
        if (from < to && c->p[to - 1] == '\n') {
            to--;
            to -= from < to && c->p[to - 1] == '\r';
        }
        json_t *value = schema_convert(schema_find(c->tools, name, key), c->p + from, to - from);
        json_object_set_new(args, key, value);
        c->at = next;
    }
    free(key);
    return v;
}

/* Length of the JSON object at c, found by its braces. */
static enum verdict json_span(const struct cursor *c, size_t *len)
{
    bool in_string = false, escaped = false;
    size_t depth = 0;
    for (size_t i = c->at; i < c->n; i++) {
        char ch = c->p[i];
        if (in_string) {
            if (ch == '"' && !escaped) {
                in_string = false;
            }
            escaped = ch == '\\' && !escaped;
        } else if (ch == '"') {
            in_string = true;
            escaped = false;
        } else if (ch == '{' || ch == '[') {
            depth++;
        } else if ((ch == '}' || ch == ']') && --depth == 0) {
            *len = i + 1 - c->at;
            return V_YES;
        }
    }
    return more(c);
}

static enum verdict read_json(struct cursor *c, json_t **out)
{
    size_t len = 0;
    enum verdict v = json_span(c, &len);
    if (v != V_YES) {
        return v;
    }
    json_t *o = json_lenient(c->p + c->at, len);
    if (!json_is_object(o)) {
        json_decref(o);
        return V_NO;
    }
    c->at += len;
    *out = o;
    return V_YES;
}

/* {"name": …, "arguments": {…} or its JSON text}. */
static enum verdict read_json_body(struct cursor *c, char **name, json_t **args)
{
    json_t *o = NULL;
    enum verdict v = read_json(c, &o);
    if (v != V_YES) {
        return v;
    }
    const json_t *id = json_object_get(o, "name");
    json_t *a = json_object_get(o, "arguments");
    a = a ? a : json_object_get(o, "parameters");
    json_t *own = NULL;
    if (!a || json_is_null(a)) {
        own = json_object();
    } else if (json_is_string(a)) {
        own = json_lenient(json_string_value(a), json_string_length(a));
    } else {
        own = json_incref(a);
    }
    bool good = json_string_length(id) > 0 &&
                strlen(json_string_value(id)) == json_string_length(id) && json_is_object(own);
    if (good) {
        *name = mem_strdup(json_string_value(id));
        *args = own;
    } else {
        json_decref(own);
    }
    json_decref(o);
    return good ? V_YES : V_NO;
}

/* <function=NAME> to </function>. */
static enum verdict read_function(struct cursor *c, char **name, json_t **args)
{
    enum verdict v = match(c, TAG_FUNC);
    if (v == V_YES) {
        v = read_name(c, name);
    }
    if (v != V_YES) {
        return v;
    }
    *args = json_object();
    for (;;) {
        skip_blank(c);
        if (c->at == c->n) {
            return more(c);
        }
        if (c->p[c->at] == '{' && json_object_size(*args) == 0) {
            json_t *o = NULL;
            v = read_json(c, &o);
            if (v != V_YES) {
                return v;
            }
            json_decref(*args);
            *args = o;
            skip_blank(c);
            return match(c, TAG_FUNC_END);
        }
        v = match(c, TAG_PARAM);
        if (v == V_YES) {
            v = read_param(c, *name, *args);
            if (v != V_YES) {
                return v;
            }
            continue;
        }
        if (v == V_MORE) {
            return v;
        }
        struct cursor end = *c;
        if (c->wrapped && match(&end, TAG_CALL_END) == V_YES) {
            return V_YES; /* no </function>: the caller reads the outer tag */
        }
        v = match(c, TAG_FUNC_END);
        if (v == V_NO && c->wrapped && match(&end, TAG_CALL_END) == V_MORE) {
            return V_MORE;
        }
        return v;
    }
}

enum verdict call_parse(const json_t *tools, const char *p, size_t n, bool eof, size_t *used,
                        char **name, json_t **args)
{
    struct cursor c = {.tools = tools, .p = p, .n = n, .eof = eof};
    char *id = NULL;
    json_t *got = NULL;
    c.wrapped = match(&c, TAG_CALL) == V_YES;
    if (c.wrapped) {
        skip_blank(&c);
    }
    enum verdict v = V_NO;
    if (c.at == c.n) {
        v = more(&c);
    } else if (c.wrapped && c.p[c.at] == '{') {
        v = read_json_body(&c, &id, &got);
    } else {
        v = read_function(&c, &id, &got);
    }
    if (v == V_YES) {
        /* The outer tag belongs to the call even when it was not opened; when it
         * is missing, the blanks behind the call do not. */
        size_t end = c.at;
        skip_blank(&c);
        v = c.at == c.n ? more(&c) : match(&c, TAG_CALL_END);
        if (v == V_NO) {
            c.at = end;
            v = V_YES;
        }
    }
    if (v == V_YES) {
        *used = c.at;
        *name = id;
        *args = got;
    } else {
        free(id);
        json_decref(got);
    }
    return v;
}
