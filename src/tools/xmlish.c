/* Calls made of tags. Values are raw text and may themselves contain tags, so the tag that closes
 * a value is told from its look by what follows: the next parameter, or the end of the call; and a
 * parameter opened inside a value on a line of its own takes its closing tag with it. At the end
 * of the text, where nothing better can come, a value also ends where its call must. */
#include "config.h"
#include "tools/inside.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tools/value.h"

#define SHORT_VALUE 256 /* of one line: believed complete though nothing closes it */
#define NAME_MOST   128

enum head { HEAD_NONE, HEAD_FUNC, HEAD_NAME };

struct reader {
    struct cursor *c;
    struct call *out;
    enum head head;
    bool trained;     /* <function=NAME> as it is taught */
    bool placeholder; /* … but with a word for the name in its place */
    bool loose;       /* something was made good */
    bool closed;      /* </function> was there */
    bool unended;     /* the last value has no end of its own */
    int params;
};

/* ---- where a value ends ---- */

/* Whether a closing parameter tag that ends at c is real. */
static enum verdict closes(struct cursor c)
{
    struct tag t;
    skip_blank(&c);
    if (c.at == c.n) {
        return c.eof ? V_YES : V_MORE;
    }
    enum verdict v = tag_read(&c, &t);
    if (v != V_YES) {
        return v;
    }
    if (t.kind == TAG_PARAM && !t.closing) {
        return V_YES;
    }
    if (t.kind == TAG_WRAP && t.closing) {
        return c.eof ? V_YES : V_NO;
    }
    if (t.kind != TAG_FUNC || !t.closing) {
        return V_NO;
    }
    if (!c.wrapped || c.eof) {
        return V_YES;
    }
    c.at = t.end;
    skip_blank(&c);
    v = tag_read(&c, &t);
    if (v != V_YES) {
        return v;
    }
    return t.kind == TAG_WRAP || (!t.closing && (t.kind == TAG_FUNC || t.kind == TAG_NAME)) ? V_YES
                                                                                            : V_NO;
}

static bool at_line_start(const struct cursor *c, size_t at)
{
    return at == 0 || c->p[at - 1] == '\n';
}

/* Whether only white space, or a tag that ends or begins a call, follows. */
static bool ends_here(struct cursor c)
{
    struct tag t;
    skip_blank(&c);
    return c.at == c.n || (tag_read(&c, &t) == V_YES && (t.kind == TAG_WRAP || t.kind == TAG_FUNC));
}

/* At the end of the text: whether a value without a proper closing tag ends before this tag.
 * *refuse: it would, but then nobody can tell what belongs to which call. */
static bool bounds(const struct reader *r, struct cursor here, const struct tag *t, bool *refuse)
{
    const struct cursor *c = r->c;
    const bool line = at_line_start(c, here.at);
    struct cursor behind = here;
    behind.at = t->end;
    switch (t->kind) {
    case TAG_FUNC:
        *refuse = !t->closing && line && t->valued;
        return *refuse || (t->closing && ends_here(behind));
    case TAG_WRAP:
        return t->closing ? ends_here(behind) : line;
    case TAG_PARAM:
        return !t->closing && line && t->valued &&
               (r->out->tool ? tool_param(r->out->tool, t->value, t->value_n) != NULL
                             : toolset_has_key(c->tools, t->value, t->value_n));
    case TAG_NAME:
    case TAG_RESULT:
    case TAG_VALUE:
        break;
    }
    return false;
}

/* Whether a closing tag that ends at c leads to the end of the function, over other closing tags
 * and words. */
static bool leads_out(struct cursor c)
{
    struct tag t;
    for (; c.at < c.n; c.at++) {
        if (c.p[c.at] == '<' && tag_read(&c, &t) == V_YES) {
            if (t.kind == TAG_FUNC && t.closing) {
                return true;
            }
            if (!t.closing) {
                return false;
            }
        }
    }
    return false;
}

/* A result begins in it and does not end: the model went on by itself. */
static bool holds_result(const char *p, size_t n)
{
    struct cursor c = {.p = p, .n = n, .eof = true};
    struct tag t;
    int depth = 0;
    for (; c.at < n; c.at++) {
        if (p[c.at] == '<' && tag_read(&c, &t) == V_YES && t.kind == TAG_RESULT) {
            depth += t.closing ? -1 : 1;
        }
    }
    return depth > 0;
}

/* Without exactly one line break at each end. */
static void strip(const char *p, size_t *from, size_t *to)
{
    if (*from < *to && p[*from] == '\r' && *from + 1 < *to && p[*from + 1] == '\n') {
        *from += 2;
    } else if (*from < *to && p[*from] == '\n') {
        (*from)++;
    }
    if (*from < *to && p[*to - 1] == '\n') {
        (*to)--;
        *to -= *from < *to && p[*to - 1] == '\r';
    }
}

/* The whole rest of the text as the value: only what is believed complete. */
static bool may_be_rest(const struct cursor *c)
{
    size_t from = c->at, to = c->n;
    if (c->cut || !c->wrapped) {
        return !c->cut;
    }
    strip(c->p, &from, &to);
    return to > from && to < c->n && to - from <= SHORT_VALUE &&
           !memchr(c->p + from, '\n', to - from);
}

/* End of the value that starts at c->at; *next is behind its closing tag. */
static enum verdict value_end(struct reader *r, size_t *end, size_t *next)
{
    const struct cursor *c = r->c;
    const size_t none = SIZE_MAX;
    size_t depth = 0, first = none, bare = none, lead = none, behind = 0, lead_behind = 0;
    bool refuse = false;
    for (size_t i = c->at; i < c->n; i++) {
        const char *lt = memchr(c->p + i, '<', c->n - i);
        struct cursor here = *c;
        struct tag t;
        if (!lt) {
            break;
        }
        i = here.at = (size_t)(lt - c->p);
        if (tag_read(&here, &t) != V_YES) {
            continue;
        }
        if (c->eof && bare == none && bounds(r, here, &t, &refuse)) {
            bare = i;
        }
        if (t.kind != TAG_PARAM) {
            continue;
        }
        if (!t.closing) {
            depth += at_line_start(c, i);
            continue;
        }
        here.at = t.end;
        const enum verdict v = closes(here);
        if (depth > 0) {
            if (v == V_YES && first == none) {
                first = i;
                behind = t.end;
            }
            depth--;
        } else if (v == V_YES) {
            *end = i;
            *next = t.end;
            return V_YES;
        } else if (v == V_MORE) {
            return V_MORE;
        } else if (c->eof && lead == none && leads_out(here)) {
            lead = i;
            lead_behind = t.end;
        }
    }
    if (!c->eof) {
        return V_MORE;
    }
    r->loose = true;
    if (lead < first) {
        first = lead;
        behind = lead_behind;
    }
    if (first < bare) {
        *end = first;
        *next = behind;
    } else if (bare != none) {
        *end = *next = bare;
    } else if (may_be_rest(c)) {
        r->unended = true;
        *end = *next = c->n;
    } else {
        return V_NO;
    }
    return (bare == *end && refuse) || holds_result(c->p + c->at, *end - c->at) ? V_NO : V_YES;
}

/* ---- parameters ---- */

static void set_tool(struct call *out, const struct tool *t)
{
    out->tool = t;
    free(out->name);
    out->name = mem_strdup(t->name);
}

/* A parameter that holds all of them as JSON. */
static bool merge_arguments(struct reader *r, const char *p, size_t n)
{
    while (n > 0 && is_blank(p[n - 1])) {
        n--;
    }
    json_t *o = NULL;
    for (int extra = 0; !json_is_object(o) && extra < 3 && n > 0; extra++) {
        json_decref(o);
        o = value_json(p, n);
        n -= p[n - 1] == '}'; /* one brace too many */
    }
    if (json_is_object(o)) {
        json_object_update(r->out->args, o);
    }
    const bool good = json_is_object(o);
    json_decref(o);
    return good;
}

static bool is_text(const struct tag *t, const char *word)
{
    return t->value_n == strlen(word) && memcmp(t->value, word, t->value_n) == 0;
}

/* Whether the tag only tells the call's name: <parameter=function=run>, or a declared name that
 * has no value. */
static enum verdict names_call(struct reader *r, const struct tag *t)
{
    static const char prefix[] = "function=";
    const size_t k = sizeof prefix - 1;
    if (r->out->name || r->params > 0) {
        return V_NO;
    }
    const bool merged = t->value_n > k && memcmp(t->value, prefix, k) == 0;
    const struct tool *tool = merged ? toolset_resolve(r->c->tools, t->value + k, t->value_n - k)
                                     : toolset_find(r->c->tools, t->value, t->value_n);
    if (!tool) {
        return V_NO;
    }
    struct cursor c = *r->c;
    struct tag following;
    c.at = t->end;
    skip_blank(&c);
    const enum verdict v = merged ? V_YES : tag_is(&c, TAG_PARAM, false, &following);
    if (v == V_YES) {
        set_tool(r->out, tool);
        r->out->mode = merged ? "u13" : "22";
        r->head = HEAD_FUNC;
        r->loose = true;
        r->c->at = t->end;
    }
    return v;
}

/* One parameter, whose opening tag is t. */
static enum verdict read_param(struct reader *r, const struct tag *t)
{
    struct cursor *c = r->c;
    struct call *out = r->out;
    if (!t->valued || !utf8_valid(t->value, t->value_n)) {
        return V_NO;
    }
    enum verdict v = names_call(r, t);
    if (v != V_NO) {
        return v;
    }
    if (r->head == HEAD_NONE && !out->name && !toolset_has_key(c->tools, t->value, t->value_n) &&
        !is_text(t, "arguments")) {
        return V_NO;
    }
    size_t end = 0, next = 0;
    c->at = t->end;
    v = value_end(r, &end, &next);
    if (v != V_YES) {
        return v;
    }
    size_t from = c->at, to = end;
    strip(c->p, &from, &to);
    c->at = next;
    if (t->attribute && out->mode && strcmp(out->mode, "0a") == 0) {
        out->mode = "u3";
    }
    const struct tool *named =
        !out->name && is_text(t, "name") ? toolset_resolve(c->tools, c->p + from, to - from) : NULL;
    if (named) {
        set_tool(out, named);
        out->mode = "u12";
        r->head = HEAD_FUNC;
        return V_YES;
    }
    if (is_text(t, "arguments") && !tool_param(out->tool, "arguments", 9) &&
        merge_arguments(r, c->p + from, to - from)) {
        r->params++;
        r->loose = true;
        out->mode = out->mode && strcmp(out->mode, "0a") != 0 ? out->mode : "14";
        return V_YES;
    }
    char *key = mem_strndup(t->value, t->value_n);
    json_t *value = out->tool || out->name ? value_convert(out->tool, key, c->p + from, to - from)
                                           : json_str_lossy(c->p + from, to - from);
    json_object_set_new(out->args, key, value);
    free(key);
    r->params++;
    return V_YES;
}

/* ---- the rest of a call ---- */

/* Words between closing tags, up to the end of the function. */
static bool skip_words(struct cursor *c)
{
    if (!c->eof || !leads_out(*c)) {
        return false;
    }
    do {
        c->at++;
    } while (c->at < c->n && c->p[c->at] != '<');
    return true;
}

/* Up to the end of the call. */
static enum verdict read_params(struct reader *r)
{
    struct cursor *c = r->c;
    for (;;) {
        struct tag t;
        const size_t start = c->at;
        skip_blank(c);
        if (c->at == c->n) {
            c->at = c->eof ? start : c->at;
            return c->eof ? V_YES : V_MORE;
        }
        if (c->p[c->at] == '}' && r->loose) {
            c->at++;
            continue;
        }
        enum verdict v = tag_read(c, &t);
        if (v == V_MORE) {
            return v;
        }
        if (v == V_NO) {
            if (c->p[c->at] == '<' && c->eof && tag_is_stub(c->p + c->at, c->n - c->at)) {
                return V_YES;
            }
            if (!skip_words(c)) {
                return V_NO;
            }
            r->loose = true;
            continue;
        }
        if (t.kind == TAG_PARAM && !t.closing) {
            v = read_param(r, &t);
            if (v != V_YES) {
                return v;
            }
            continue;
        }
        if (t.kind == TAG_FUNC && t.closing) {
            c->at = t.end;
            r->closed = true;
            return V_YES;
        }
        if (t.kind == TAG_WRAP || t.kind == TAG_FUNC || t.kind == TAG_NAME) {
            if (t.closing && t.kind == TAG_NAME) {
                c->at = t.end;
                continue;
            }
            if (!c->eof && !c->wrapped) {
                return V_MORE; /* the end of the text may be kinder */
            }
            r->loose = r->loose || t.kind != TAG_WRAP || !t.closing;
            c->at = start;
            return V_YES;
        }
        if (!t.closing) {
            return V_NO;
        }
        c->at = t.end; /* a stray one */
        r->loose = true;
    }
}

/* Whose call it is, when no name was there; and whether all of it is believed. */
static enum verdict settle(struct reader *r)
{
    struct call *out = r->out;
    if (!out->name) {
        const struct tool *t = r->params > 0 && r->c->guess && (r->head != HEAD_NONE || r->closed)
                                   ? toolset_infer(r->c->tools, out->args, false)
                                   : NULL;
        if (!t) {
            return V_NO;
        }
        set_tool(out, t);
        out->mode = r->head == HEAD_NONE ? "21" : "20";
        r->loose = true;
        const char *key = NULL;
        json_t *v = NULL;
        void *next = NULL;
        json_object_foreach_safe(out->args, next, key, v)
        {
            if (json_is_string(v)) {
                json_object_set_new(
                    out->args, key,
                    value_convert(t, key, json_string_value(v), json_string_length(v)));
            }
        }
    }
    if (r->head == HEAD_NAME && r->params == 0 && !r->closed) {
        return V_NO;
    }
    if (!r->closed && !r->unended && r->c->eof && r->c->at == r->c->n) {
        /* it just ends: only if nothing is missing */
        if (r->c->cut || !out->tool || !tool_satisfied(out->tool, out->args)) {
            return V_NO;
        }
    }
    if (!out->tool && (r->loose || !r->trained || !r->closed)) {
        return V_NO; /* what is not declared must be well formed */
    }
    if (r->c->strict && (r->loose || !r->trained || !r->closed)) {
        return V_NO;
    }
    if (out->mode && strcmp(out->mode, "0a") == 0) {
        if (!out->tool) {
            out->mode = "u20";
        } else if (r->unended) {
            out->mode = "u6";
        } else if (!r->closed) {
            out->mode = "u5";
        } else if (r->loose) {
            out->mode = "u18";
        }
    }
    return V_YES;
}

enum verdict xml_tail(struct cursor *c, struct call *out)
{
    struct reader r = {.c = c, .out = out, .head = HEAD_FUNC, .loose = true};
    out->args = out->args ? out->args : json_object();
    const enum verdict v = read_params(&r);
    return v == V_YES ? (r.params == 0 ? V_NO : settle(&r)) : v;
}

/* ---- the beginning ---- */

static bool is_ident(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char c = p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '-' || c == '.' || c == ':')) {
            return false;
        }
    }
    return n > 0 && n <= NAME_MOST;
}

static bool take_function(struct reader *r, const struct tag *t)
{
    const struct tool *tool = t->valued ? toolset_resolve(r->c->tools, t->value, t->value_n) : NULL;
    r->head = HEAD_FUNC;
    if (!t->valued) {
        return true;
    }
    if (tool) {
        set_tool(r->out, tool);
        const bool same =
            strlen(tool->name) == t->value_n && memcmp(tool->name, t->value, t->value_n) == 0;
        const bool plain = strcmp(t->word, "function") == 0;
        r->trained = same && plain && !t->attribute && !t->quoted;
        r->out->mode = t->attribute ? (plain ? "19" : "u14") : r->trained ? "0a" : "u1";
        return true;
    }
    r->placeholder = is_text(t, "name") || is_text(t, "function_name") || is_text(t, "tool_name");
    if (!r->placeholder && !t->attribute && strcmp(t->word, "function") == 0 &&
        is_ident(t->value, t->value_n)) {
        r->out->name = mem_strndup(t->value, t->value_n);
        r->trained = !t->quoted;
        r->out->mode = "0a";
        return true;
    }
    return r->placeholder;
}

/* A declared name that stands in the text; steps over it and a closing tag of it. */
static enum verdict take_words(struct reader *r)
{
    struct cursor *c = r->c;
    size_t end = c->at;
    struct tag t;
    while (end < c->n && end - c->at < NAME_MOST && is_ident(c->p + end, 1)) {
        end++;
    }
    if (end == c->n) {
        return toolset_may_name(c->tools, c->p + c->at, end - c->at) ? more(c) : V_NO;
    }
    const struct tool *tool = toolset_resolve(c->tools, c->p + c->at, end - c->at);
    if (!tool || end == c->at) {
        return V_NO;
    }
    struct cursor behind = *c;
    behind.at = end;
    skip_blank(&behind);
    const enum verdict v = tag_read(&behind, &t);
    if (v == V_MORE) {
        return v;
    }
    set_tool(r->out, tool);
    c->at = end;
    if (v == V_YES && t.closing && (t.kind == TAG_NAME || t.kind == TAG_PARAM)) {
        c->at = t.end;
    }
    return V_YES;
}

/* The name of a tag that is for it. */
static enum verdict take_name(struct reader *r, const struct tag *t)
{
    struct call *out = r->out;
    r->head = HEAD_NAME;
    r->c->at = t->end;
    if (t->valued) {
        const struct tool *tool = toolset_resolve(r->c->tools, t->value, t->value_n);
        if (!tool) {
            return V_NO;
        }
        set_tool(out, tool);
        out->mode = "15";
        return V_YES;
    }
    skip_blank(r->c);
    if (r->c->at == r->c->n) {
        return more(r->c);
    }
    if (r->c->p[r->c->at] == '<') {
        return V_YES; /* nameless */
    }
    out->mode = strcmp(t->word, "tool_name") == 0        ? "14"
                : strcmp(t->word, "parameter_name") == 0 ? "u15"
                                                         : "18";
    return take_words(r);
}

/* What follows the head of a call, and belongs to it as a whole: V_NO when parameters do. */
static enum verdict take_object(struct reader *r)
{
    struct cursor *c = r->c;
    struct call *out = r->out;
    bool loose = false;
    if (!out->name && !r->placeholder) {
        const enum verdict v = json_call(c, out);
        out->mode = v == V_YES && r->head == HEAD_FUNC ? "16" : out->mode;
        return v;
    }
    const enum verdict v = json_args(c, out, &loose);
    r->loose = r->loose || loose;
    if (v == V_YES && (!out->tool || c->strict)) {
        return V_NO;
    }
    return v;
}

enum verdict xml_call(struct cursor *c, struct call *out)
{
    struct reader r = {.c = c, .out = out};
    enum verdict v = V_YES;
    out->args = json_object();
    for (int parts = 0; parts < 6; parts++) {
        struct tag t;
        skip_blank(c);
        if (c->at == c->n) {
            return more(c);
        }
        const char ch = c->p[c->at];
        if (ch == '{') {
            return take_object(&r);
        }
        if (ch == ',' && r.head == HEAD_NAME && out->name) {
            out->mode = "15";
            return json_tail(c, out);
        }
        if (ch != '<') {
            if (out->name || (r.head != HEAD_FUNC)) {
                return V_NO;
            }
            v = take_words(&r); /* the name where it does not belong */
            if (v != V_YES) {
                return v;
            }
            out->mode = "u2";
            continue;
        }
        v = tag_read(c, &t);
        if (v != V_YES) {
            return v;
        }
        if ((t.kind == TAG_PARAM && !t.closing) || (t.closing && out->name)) {
            if (t.closing && t.kind != TAG_FUNC && t.kind != TAG_WRAP) {
                c->at = t.end;
                continue;
            }
            if (t.kind == TAG_WRAP && !c->wrapped && !c->eof) {
                return V_MORE;
            }
            v = read_params(&r);
            return v == V_YES ? settle(&r) : v;
        }
        if (t.closing || out->name) {
            return V_NO;
        }
        if (t.kind == TAG_NAME) {
            v = take_name(&r, &t);
            if (v != V_YES) {
                return v;
            }
            continue;
        }
        if ((t.kind != TAG_FUNC && t.kind != TAG_WRAP) || !take_function(&r, &t)) {
            return V_NO;
        }
        c->at = t.end;
    }
    return V_NO;
}
