/* Calls made of JSON, and of what nearly is JSON: keys under other names, quotes that are missing
 * or not escaped, braces that are lost. First it is read as JSON; only what is none is read key by
 * key, where a text ends at the quote that something fitting follows. */
#include "config.h"
#include "tools/inside.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "tools/value.h"

#define WORD_MOST 128
#define DEEPEST   4

static const char *const name_keys[] = {"name", "tool", "tool_name", "function", NULL};
static const char *const args_keys[] = {"arguments", "parameters", "input", "args", NULL};
static const char *const wrap_keys[] = {"tool_call", "function_call", NULL};
static const char *const body_keys[] = {"arguments", "parameters", "input",
                                        "args",      "content",    NULL};
static const char *const side_keys[] = {"type", "id", "call_id", NULL};

static bool is_one_of(const char *const *list, const char *p, size_t n)
{
    for (; *list; list++) {
        if (strlen(*list) == n && memcmp(*list, p, n) == 0) {
            return true;
        }
    }
    return false;
}

static bool may_be_one_of(const char *const *list, const char *p, size_t n)
{
    for (; *list; list++) {
        if (strlen(*list) >= n && memcmp(*list, p, n) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

/* A word with or without quotes. V_YES: c is behind it; *quotes: how many it had. */
static enum verdict read_word(struct cursor *c, const char **p, size_t *n, int *quotes)
{
    *quotes = c->at < c->n && c->p[c->at] == '"';
    c->at += (size_t)*quotes;
    const size_t from = c->at;
    while (c->at < c->n && c->at - from < WORD_MOST && is_word(c->p[c->at])) {
        c->at++;
    }
    *p = c->p + from;
    *n = c->at - from;
    if (c->at == c->n) {
        return more(c);
    }
    if (*n > 0 && c->p[c->at] == '"') {
        c->at++;
        ++*quotes;
    }
    return *n > 0 ? V_YES : V_NO;
}

enum verdict json_span(const struct cursor *c, size_t *len)
{
    bool in_string = false, escaped = false;
    size_t depth = 0;
    for (size_t i = c->at; i < c->n; i++) {
        const char ch = c->p[i];
        if (in_string) {
            in_string = ch != '"' || escaped;
            escaped = ch == '\\' && !escaped;
        } else if (ch == '"') {
            in_string = true;
            escaped = false;
        } else if (ch == '{' || ch == '[') {
            depth++;
        } else if ((ch == '}' || ch == ']') && (depth == 0 || --depth == 0)) {
            *len = i + 1 - c->at;
            return V_YES;
        }
    }
    return more(c);
}

static void set_tool(struct call *out, const struct tool *t)
{
    out->tool = t;
    free(out->name);
    out->name = mem_strdup(t->name);
}

/* ---- well-formed objects ---- */

static json_t *first_of(const json_t *o, const char *const *keys)
{
    json_t *v = NULL;
    for (; *keys && !v; keys++) {
        v = json_object_get(o, *keys);
    }
    return v;
}

/* Arguments as an object or its text; NULL: neither. New reference. */
static json_t *as_arguments(json_t *v)
{
    json_t *o = json_is_string(v) ? value_json(json_string_value(v), json_string_length(v))
                                  : json_incref(v);
    if (!json_is_object(o)) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static void take_args(struct call *out, json_t *args)
{
    if (out->args) {
        json_object_update(out->args, args);
        json_decref(args);
    } else {
        out->args = args;
    }
}

/* Whose arguments an object is that has no name beside it. */
static enum verdict take_nameless(const struct cursor *c, json_t *inner, struct call *out, bool all)
{
    const char *mode = "6";
    json_t *args = inner;
    if (json_object_size(inner) == 1) {
        const char *key = json_object_iter_key(json_object_iter(inner));
        json_t *v = json_object_get(inner, key);
        if (json_is_object(v) &&
            (is_one_of(args_keys, key, strlen(key)) || strcmp(key, "function") == 0)) {
            args = v;
            mode = "7";
        }
    }
    const struct tool *t = toolset_infer(c->tools, args, all);
    if (!t) {
        return V_NO;
    }
    set_tool(out, t);
    take_args(out, json_deep_copy(args));
    value_fit(t, out->args);
    out->mode = mode;
    return V_YES;
}

/* The keys beside the name as arguments. */
static json_t *flat_arguments(const json_t *o, const char *name_key)
{
    json_t *args = json_object();
    const char *key = NULL;
    json_t *v = NULL;
    json_object_foreach((json_t *)(uintptr_t)o, key, v)
    {
        if (strcmp(key, name_key) != 0 && !is_one_of(side_keys, key, strlen(key))) {
            json_object_set(args, key, v);
        }
    }
    return args;
}

static bool knows_all(const struct tool *t, const json_t *args)
{
    const char *key = NULL;
    json_t *v = NULL;
    json_object_foreach((json_t *)(uintptr_t)args, key, v)
    {
        if (!tool_param(t, key, strlen(key))) {
            return false;
        }
    }
    return true;
}

static enum verdict classify(const struct cursor *c, const json_t *o, struct call *out, int depth)
{
    json_t *inner = json_object_size(o) <= 2 ? first_of(o, wrap_keys) : NULL;
    json_t *fn = json_object_get(o, "function");
    inner = !inner && json_is_object(fn) && json_object_get(fn, "name") ? fn : inner;
    if (json_is_object(inner) && depth < DEEPEST) {
        const enum verdict v = classify(c, inner, out, depth + 1);
        out->mode = v == V_YES ? "4" : out->mode;
        return v;
    }
    size_t which = 0;
    const json_t *id = NULL;
    for (; name_keys[which]; which++) {
        id = json_object_get(o, name_keys[which]);
        if (id) {
            break;
        }
    }
    if (json_is_object(id) && json_object_get(id, "name") && depth < DEEPEST) {
        const enum verdict v = classify(c, id, out, depth + 1);
        out->mode = v == V_YES ? "6" : out->mode;
        return v;
    }
    if (json_is_object(id)) {
        return which == 0 && json_object_size(o) == 1
                   ? take_nameless(c, (json_t *)(uintptr_t)id, out, false)
                   : V_NO;
    }
    const char *name = json_string_value(id);
    if (!name || !name[0] || strlen(name) != json_string_length(id)) {
        return V_NO;
    }
    const struct tool *tool = toolset_resolve(c->tools, name, strlen(name));
    json_t *given = first_of(o, args_keys);
    given = json_is_null(given) ? NULL : given;
    json_t *args = given ? as_arguments(given) : flat_arguments(o, name_keys[which]);
    const bool flat = !given && json_object_size(args) > 0;
    bool good = args && (tool ? !flat || knows_all(tool, args) : c->wrapped && which == 0 && !flat);
    good = good && (c->wrapped || given || (tool && tool_satisfied(tool, args)));
    if (!good) {
        json_decref(args);
        return V_NO;
    }
    if (tool) {
        set_tool(out, tool);
    } else {
        out->name = mem_strdup(name);
    }
    take_args(out, args);
    value_fit(tool, out->args);
    const bool same = tool && strcmp(tool->name, name) == 0;
    const bool usual = given == json_object_get(o, "arguments") || !given;
    out->mode = !tool                 ? "u20"
                : flat                ? "10"
                : which > 0 || !usual ? "8"
                : !same               ? "u1"
                : c->wrapped          ? "0b"
                                      : "1";
    return V_YES;
}

/* ---- nearly JSON ---- */

/* Text with escapes, of which some may be none, and quotes that should have been escaped. */
static json_t *unescape(const char *p, size_t n)
{
    struct buf b = BUF_INIT;
    buf_addc(&b, '"');
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\\' && i + 1 < n && strchr("\"\\/bfnrtu", p[i + 1])) {
            bool good = p[i + 1] != 'u' || i + 5 < n;
            for (size_t k = 2; good && p[i + 1] == 'u' && k < 6; k++) {
                good = strchr("0123456789abcdefABCDEF", p[i + k]) != NULL && p[i + k];
            }
            if (good) {
                buf_add(&b, p + i, 2);
                i++;
                continue;
            }
        }
        if (p[i] == '\\' || p[i] == '"') {
            buf_addc(&b, '\\');
        }
        buf_addc(&b, p[i]);
    }
    buf_addc(&b, '"');
    json_t *v = value_json(b.data, b.len);
    buf_free(&b);
    return v ? v : json_str_lossy(p, n);
}

/* Whether a closing tag that ends a call, or what is left of one, is at c. */
static enum verdict closing_tag(const struct cursor *c)
{
    struct tag t;
    const enum verdict v = tag_read(c, &t);
    if (v != V_YES) {
        return v;
    }
    return t.kind != TAG_VALUE && (t.closing || t.kind == TAG_WRAP || t.kind == TAG_FUNC) ? V_YES
                                                                                          : V_NO;
}

/* Whether what follows a quote shows that it ended a text. */
static enum verdict ends_text(struct cursor c, const struct tool *tool)
{
    skip_blank(&c);
    if (c.at == c.n) {
        return c.eof ? V_YES : V_MORE;
    }
    const char ch = c.p[c.at];
    if (ch == '<') {
        return closing_tag(&c);
    }
    if (ch == ',') {
        const char *p = NULL;
        size_t n = 0;
        int quotes = 0;
        c.at++;
        skip_blank(&c);
        const enum verdict v = read_word(&c, &p, &n, &quotes);
        if (v != V_YES) {
            return v;
        }
        skip_blank(&c);
        if (c.at == c.n) {
            return more(&c);
        }
        return quotes > 0 && c.p[c.at] == ':' &&
                       (!tool || !tool->props || tool_param(tool, p, n) ||
                        is_one_of(body_keys, p, n))
                   ? V_YES
                   : V_NO;
    }
    if (ch != '}') {
        return V_NO;
    }
    const size_t from = ++c.at;
    skip_blank(&c);
    if (c.at == c.n) {
        return c.eof ? V_YES : V_MORE;
    }
    if (c.p[c.at] == '}' || c.p[c.at] == '{' || memchr(c.p + from, '\n', c.at - from)) {
        return V_YES;
    }
    return c.p[c.at] == '<' ? closing_tag(&c) : V_NO;
}

/* Closing tags at the end of what was cut off. */
static size_t without_tags(const char *p, size_t n)
{
    for (;;) {
        size_t k = n;
        while (k > 0 && is_blank(p[k - 1])) {
            k--;
        }
        if (k < 4 || p[k - 1] != '>') {
            return n;
        }
        size_t lt = k - 1;
        while (lt > 0 && p[lt] != '<' && k - lt < 24) {
            lt--;
        }
        if (p[lt] != '<' || p[lt + 1] != '/') {
            return n;
        }
        n = lt;
        while (n > 0 && is_blank(p[n - 1])) {
            n--;
        }
    }
}

/* The tag that closes a raw text: </content>, or that of the key. */
static bool closes_raw(const struct cursor *c, const char *key, size_t *end)
{
    const size_t left = c->n - c->at, k = strlen(key);
    static const char content[] = "</content>";
    if (left >= sizeof content - 1 && memcmp(c->p + c->at, content, sizeof content - 1) == 0) {
        *end = c->at + sizeof content - 1;
        return true;
    }
    if (left >= k + 3 && memcmp(c->p + c->at, "</", 2) == 0 &&
        memcmp(c->p + c->at + 2, key, k) == 0 && c->p[c->at + 2 + k] == '>') {
        *end = c->at + k + 3;
        return true;
    }
    return false;
}

/* A text whose opening quote is at c. */
static enum verdict read_text(struct cursor *c, struct call *out, const char *key, json_t **value)
{
    const size_t from = c->at + 1;
    bool open_escape = false, inner = false;
    for (size_t i = from; i < c->n; i++) {
        struct cursor here = *c;
        size_t end = 0;
        here.at = i;
        if (c->p[i] == '\\') {
            open_escape = i + 1 == c->n;
            i++;
            continue;
        }
        if (c->p[i] == '<' && closes_raw(&here, key, &end)) {
            here.at = end;
            const enum verdict v = ends_text(here, out->tool);
            if (v == V_YES) {
                *value = json_str_lossy(c->p + from, i - from);
                c->at = end;
                out->mode = "3";
            }
            if (v != V_NO) {
                return v;
            }
        }
        if (c->p[i] != '"') {
            continue;
        }
        here.at = i + 1;
        const enum verdict v = ends_text(here, out->tool);
        if (v == V_YES) {
            *value = unescape(c->p + from, i - from);
            c->at = i + 1;
            out->mode = inner ? "11" : out->mode;
        }
        if (v != V_NO) {
            return v;
        }
        inner = true;
    }
    if (!c->eof || c->cut || c->wrapped) {
        return more(c);
    }
    const size_t to = open_escape ? c->n - 1 : from + without_tags(c->p + from, c->n - from);
    *value = unescape(c->p + from, to - from);
    c->at = c->n;
    out->mode = open_escape ? "13" : "2";
    return V_YES;
}

/* <content>…</content> */
static enum verdict read_raw(struct cursor *c, struct call *out, const char *key, json_t **value)
{
    const char *gt = memchr(c->p + c->at, '>', c->n - c->at);
    if (!gt || (size_t)(gt - c->p) - c->at > WORD_MOST || c->p[c->at + 1] == '/') {
        return gt ? V_NO : more(c);
    }
    const size_t word = c->at + 1, word_n = (size_t)(gt - c->p) - word, from = word + word_n + 1;
    char *tag = mem_strndup(c->p + word, word_n);
    enum verdict v = V_NO;
    bool undecided = false;
    for (size_t i = from; i < c->n && v != V_YES; i++) {
        struct cursor here = *c;
        size_t end = 0;
        here.at = i;
        if (c->p[i] == '<' && (closes_raw(&here, tag, &end) || closes_raw(&here, key, &end))) {
            here.at = end;
            v = ends_text(here, out->tool);
            undecided = v == V_MORE;
            if (v == V_YES) {
                *value = json_str_lossy(c->p + from, i - from);
                c->at = end;
                out->mode = "3";
            }
        }
    }
    free(tag);
    return v == V_YES ? v : undecided ? V_MORE : more(c);
}

static enum verdict read_value(struct cursor *c, struct call *out, const char *key, json_t **value)
{
    skip_blank(c);
    if (c->at == c->n) {
        return more(c);
    }
    const char ch = c->p[c->at];
    size_t len = 0;
    if (ch == '"') {
        return read_text(c, out, key, value);
    }
    if (ch == '<') {
        return read_raw(c, out, key, value);
    }
    if (ch == '{' || ch == '[') {
        const enum verdict v = json_span(c, &len);
        if (v != V_YES) {
            return v;
        }
    } else {
        while (c->at + len < c->n && !strchr(",}] \t\r\n<", c->p[c->at + len])) {
            len++;
        }
        if (c->at + len == c->n && !c->eof) {
            return V_MORE;
        }
    }
    *value = len > 0 ? value_json(c->p + c->at, len) : NULL;
    c->at += len;
    return *value ? V_YES : V_NO;
}

/* Keys and values up to the brace, or to what ends the call. */
static enum verdict read_pairs(struct cursor *c, struct call *out)
{
    for (;;) {
        const char *p = NULL;
        size_t n = 0;
        int quotes = 0;
        json_t *value = NULL;
        skip_blank(c);
        if (c->at == c->n) {
            return !c->eof ? V_MORE : c->cut || json_object_size(out->args) == 0 ? V_NO : V_YES;
        }
        const char ch = c->p[c->at];
        if (ch == '}') {
            c->at++;
            return V_YES;
        }
        if (ch == ',') {
            c->at++;
            continue;
        }
        if (ch == '<') {
            return closing_tag(c);
        }
        enum verdict v = read_word(c, &p, &n, &quotes);
        if (v != V_YES) {
            return v;
        }
        skip_blank(c);
        v = match(c, ":");
        if (v != V_YES || quotes == 0) {
            return v == V_YES ? V_NO : v;
        }
        char *key = mem_strndup(p, n);
        v = read_value(c, out, key, &value);
        if (v == V_YES) {
            json_object_set_new(out->args, key, value);
        }
        free(key);
        if (v != V_YES) {
            return v;
        }
    }
}

enum verdict json_args(struct cursor *c, struct call *out, bool *loose)
{
    size_t len = 0;
    const enum verdict v = json_span(c, &len);
    out->args = out->args ? out->args : json_object();
    if (v == V_YES) {
        json_t *o = value_json(c->p + c->at, len);
        if (json_is_object(o)) {
            c->at += len;
            take_args(out, o);
            value_fit(out->tool, out->args);
            return V_YES;
        }
        json_decref(o);
    }
    if (v == V_MORE) {
        return V_MORE;
    }
    *loose = true;
    c->at++;
    const enum verdict w = read_pairs(c, out);
    if (w == V_YES) {
        value_fit(out->tool, out->args);
    }
    return w == V_NO && !c->eof ? V_MORE : w;
}

/* The key of the arguments and what stands there, behind a name. */
enum verdict json_tail(struct cursor *c, struct call *out)
{
    const char *p = NULL;
    size_t n = 0;
    int quotes = 0;
    bool loose = false;
    out->args = out->args ? out->args : json_object();
    skip_blank(c);
    const bool comma = c->at < c->n && c->p[c->at] == ',';
    c->at += comma;
    skip_blank(c);
    if (c->at == c->n) {
        return more(c);
    }
    struct tag t;
    if (c->p[c->at] == '<') {
        enum verdict v = tag_is(c, TAG_PARAM, false, &t);
        if (v != V_YES) {
            return v;
        }
        v = xml_tail(c, out);
        out->mode = v == V_YES ? "17" : out->mode;
        return v;
    }
    const size_t start = c->at;
    enum verdict v = read_word(c, &p, &n, &quotes);
    if (v != V_YES) {
        return v;
    }
    if (!is_one_of(args_keys, p, n)) {
        if (!tool_param(out->tool, p, n)) {
            return V_NO;
        }
        c->at = start; /* they stand beside the name */
        v = read_pairs(c, out);
        value_fit(out->tool, out->args);
        out->mode = v == V_YES && strcmp(out->mode, "1") == 0 ? "10" : out->mode;
        return v == V_YES && !knows_all(out->tool, out->args) ? V_NO : v;
    }
    skip_blank(c);
    if (c->at == c->n) {
        return more(c);
    }
    if (c->p[c->at] == '>') {
        out->mode = "u8";
    } else if (c->p[c->at] != ':') {
        return V_NO;
    }
    c->at++;
    skip_blank(c);
    if (c->at == c->n) {
        return more(c);
    }
    if (quotes < 2 && strcmp(out->mode, "u8") != 0) {
        out->mode = "9";
    }
    if (c->p[c->at] == '{') {
        return json_args(c, out, &loose);
    }
    json_t *text = NULL;
    v = c->p[c->at] == '"' ? read_text(c, out, "arguments", &text) : V_NO;
    if (v == V_YES) {
        json_t *args = as_arguments(text);
        v = args ? V_YES : V_NO;
        if (args) {
            take_args(out, args);
            value_fit(out->tool, out->args);
        }
    }
    json_decref(text);
    return v;
}

/* An object of arguments alone: only closing tags behind it make it a call. */
static enum verdict lone_arguments(struct cursor *c, struct call *out)
{
    bool loose = false;
    struct call got = {.mode = "23"};
    struct cursor at = *c;
    enum verdict v = json_args(&at, &got, &loose);
    if (v == V_YES) {
        struct cursor behind = at;
        struct tag t;
        skip_blank(&behind);
        v = tag_read(&behind, &t);
        v = v == V_YES && (!t.closing || t.kind == TAG_VALUE || t.kind == TAG_RESULT) ? V_NO : v;
    }
    const struct tool *tool = v == V_YES ? toolset_infer(c->tools, got.args, true) : NULL;
    if (tool) {
        set_tool(out, tool);
        value_fit(tool, got.args);
        take_args(out, json_incref(got.args));
        out->mode = "23";
        *c = at;
    } else if (v == V_YES) {
        v = V_NO;
    }
    call_free(&got);
    return v;
}

/* What stands where a name should, and is an object. */
static enum verdict object_for_name(struct cursor *c, struct call *out)
{
    struct cursor in = *c;
    const char *p = NULL;
    size_t n = 0;
    int quotes = 0;
    bool loose = false;
    in.at++;
    skip_blank(&in);
    enum verdict v = read_word(&in, &p, &n, &quotes);
    if (v != V_YES) {
        return v;
    }
    if (is_one_of(name_keys, p, n) && !is_one_of(name_keys + 3, p, n)) {
        return V_RESIDUE; /* a beginning that was given up, ahead of another */
    }
    struct call got = {.mode = "6"};
    v = json_args(c, &got, &loose);
    v = v == V_YES ? take_nameless(c, got.args, out, false) : v;
    call_free(&got);
    return v;
}

/* Behind the opening brace, read word by word. */
static enum verdict read_broken(struct cursor *c, struct call *out, int depth)
{
    static const char fused[] = "function=";
    const char *p = NULL;
    size_t n = 0;
    int quotes = 0;
    const size_t brace = c->at++;
    skip_blank(c);
    struct cursor f = *c;
    f.at += f.at < f.n && f.p[f.at] == '"';
    if (match(&f, fused) == V_YES) {
        enum verdict v = read_word(&f, &p, &n, &quotes);
        const struct tool *t = v == V_YES ? toolset_resolve(c->tools, p, n) : NULL;
        if (!t) {
            return v == V_YES ? V_NO : v;
        }
        set_tool(out, t);
        out->mode = "u9";
        c->at = f.at;
        v = match(c, ">");
        v = v == V_YES ? xml_tail(c, out) : v;
        out->mode = "u9";
        return v;
    }
    enum verdict v = read_word(c, &p, &n, &quotes);
    if (v != V_YES) {
        return v;
    }
    skip_blank(c);
    const bool colon = c->at < c->n && c->p[c->at] == ':';
    if (!colon) {
        return c->at == c->n ? more(c) : V_NO;
    }
    if (!is_one_of(name_keys, p, n) && !is_one_of(wrap_keys, p, n)) {
        c->at = brace;
        return lone_arguments(c, out);
    }
    const bool wraps = is_one_of(wrap_keys, p, n), alias = p[0] != 'n';
    c->at++;
    skip_blank(c);
    if (c->at == c->n) {
        return more(c);
    }
    if (c->p[c->at] == '{') {
        if (wraps || depth > 0) {
            v = depth < DEEPEST ? read_broken(c, out, depth + 1) : V_NO;
            out->mode = v == V_YES && wraps && strcmp(out->mode, "1") == 0 ? "4" : out->mode;
            return v;
        }
        return object_for_name(c, out);
    }
    if (wraps) {
        return V_NO;
    }
    v = read_word(c, &p, &n, &quotes);
    if (v != V_YES) {
        return v;
    }
    const struct tool *t = toolset_resolve(c->tools, p, n);
    if (!t) {
        return V_NO;
    }
    set_tool(out, t);
    out->mode = alias ? "8" : quotes < 2 ? "12" : "1";
    const char *mode = out->mode;
    v = json_tail(c, out);
    if (v == V_YES && strcmp(mode, "1") == 0 && strcmp(out->mode, "1") == 0) {
        out->mode = "u7";
    }
    return v;
}

/* Whether a call may begin with the brace at c: looks at its first key, and at the name. */
static enum verdict may_begin(const struct cursor *from)
{
    struct cursor c = *from;
    const char *p = NULL;
    size_t n = 0;
    int quotes = 0;
    c.at++;
    skip_blank(&c);
    if (c.at < c.n && c.p[c.at] != '"') {
        return V_NO;
    }
    const size_t key = c.at + 1;
    enum verdict v = read_word(&c, &p, &n, &quotes);
    if (v == V_NO && c.at == c.n) {
        return V_NO;
    }
    if (v == V_MORE) {
        n = c.n > key ? c.n - key : 0;
        p = c.p + key;
        if (n == 0 || may_be_one_of(name_keys, p, n) || may_be_one_of(wrap_keys, p, n)) {
            return V_MORE;
        }
        for (size_t i = 0; i < c.tools->n; i++) {
            const char *have = NULL;
            json_t *x = NULL;
            json_object_foreach((json_t *)(uintptr_t)c.tools->v[i].props, have, x)
            {
                if (strncmp(have, p, n) == 0) {
                    return V_MORE;
                }
            }
        }
        return V_NO;
    }
    if (v == V_NO) {
        return V_NO;
    }
    if (c.p[c.at] == '=' && quotes == 1 && n == 8 && memcmp(p, "function", 8) == 0) {
        return V_YES;
    }
    const bool names = is_one_of(name_keys, p, n);
    if (quotes < 2 || (!names && !is_one_of(wrap_keys, p, n) && !is_one_of(side_keys, p, n))) {
        return quotes == 2 && toolset_has_key(c.tools, p, n) ? V_YES : V_NO;
    }
    skip_blank(&c);
    v = match(&c, ":");
    if (v != V_YES) {
        return v;
    }
    skip_blank(&c);
    if (c.at == c.n || !names || c.wrapped || c.p[c.at] == '{') {
        return c.at == c.n ? more(&c) : V_YES;
    }
    v = read_word(&c, &p, &n, &quotes);
    if (v == V_MORE) {
        return toolset_may_name(c.tools, p, n) ? V_MORE : V_NO;
    }
    return v == V_YES && toolset_resolve(c.tools, p, n) ? V_YES : V_NO;
}

enum verdict json_call(struct cursor *c, struct call *out)
{
    const size_t start = c->at;
    size_t len = 0;
    enum verdict v = c->strict ? V_NO : may_begin(c);
    if (v != V_YES) {
        return v;
    }
    v = json_span(c, &len);
    if (v == V_YES) {
        json_t *o = value_json(c->p + c->at, len);
        const bool object = json_is_object(o);
        if (object) {
            v = classify(c, o, out, 0);
        }
        json_decref(o);
        if (object && v == V_YES) {
            c->at += len;
            return V_YES;
        }
        if (object) {
            return lone_arguments(c, out);
        }
    } else if (v == V_MORE) {
        return V_MORE;
    }
    v = read_broken(c, out, 0);
    if (v == V_RESIDUE) {
        return v;
    }
    if (v != V_YES) {
        c->at = start;
    }
    return v == V_NO && !c->eof ? V_MORE : v;
}

enum verdict json_headless(struct cursor *c, struct call *out)
{
    const char *p = NULL;
    size_t n = 0;
    int quotes = 0;
    if (c->strict || (c->at < c->n && c->p[c->at] == '"')) {
        return V_NO;
    }
    enum verdict v = read_word(c, &p, &n, &quotes);
    if (v == V_MORE) {
        return toolset_may_name(c->tools, p, n) ? V_MORE : V_NO;
    }
    const struct tool *t = v == V_YES && quotes == 1 ? toolset_find(c->tools, p, n) : NULL;
    if (!t) {
        return V_NO;
    }
    skip_blank(c);
    if (c->at == c->n || c->p[c->at] != ',') {
        return c->at == c->n ? more(c) : V_NO;
    }
    set_tool(out, t);
    out->mode = "10";
    v = json_tail(c, out);
    out->mode = "10";
    return v;
}
