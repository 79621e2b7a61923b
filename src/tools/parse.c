/* What begins at a place in the text: a call of some shape, a wrapper around one, or what is left
 * of one. */
#include "config.h"
#include "tools/inside.h"

#include <string.h>

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* A wrapper's opening tag t at c: what matters is what it holds. */
static enum verdict read_wrapper(const struct cursor *c, const struct tag *t, struct call *out,
                                 size_t *used)
{
    struct cursor in = *c;
    struct tag next;
    in.at = t->end;
    in.wrapped = true;
    skip_blank(&in);
    if (in.at == in.n) {
        *used = in.at - c->at;
        return c->eof ? V_RESIDUE : V_MORE;
    }
    enum verdict v = tag_read(&in, &next);
    if (v == V_YES && (next.closing || (next.kind == TAG_WRAP && !next.valued))) {
        *used = in.at - c->at;
        out->opened = true;
        return V_RESIDUE;
    }
    size_t inner = 0;
    v = parse_one(&in, true, out, &inner);
    if (v == V_YES || v == V_RESIDUE) {
        *used = in.at - c->at + inner;
        out->opened = true;
    }
    return v;
}

/* A bracket that is left of an opening tag, before a parameter on the next line. */
static enum verdict read_bracket(struct cursor *c, struct call *out)
{
    struct tag t;
    c->at++;
    const size_t from = c->at;
    skip_blank(c);
    if (c->at == c->n) {
        return more(c);
    }
    if (!memchr(c->p + from, '\n', c->at - from)) {
        return V_NO;
    }
    enum verdict v = tag_is(c, TAG_PARAM, false, &t);
    v = v == V_YES ? xml_call(c, out) : v;
    out->mode = v == V_YES ? "u16" : out->mode;
    return v;
}

static enum verdict read_tag(struct cursor *c, struct call *out, size_t *used)
{
    struct tag t;
    const size_t start = c->at;
    enum verdict v = tag_read(c, &t);
    if (v == V_NO && c->eof && !c->strict && tag_is_stub(c->p + c->at, c->n - c->at)) {
        *used = c->n - start;
        return V_RESIDUE;
    }
    if (v != V_YES) {
        return v;
    }
    if (t.closing) {
        *used = t.end - start;
        return t.kind == TAG_PARAM || t.kind == TAG_FUNC || t.kind == TAG_WRAP ? V_RESIDUE : V_NO;
    }
    if (t.kind == TAG_WRAP && !t.valued) {
        return read_wrapper(c, &t, out, used);
    }
    if (t.kind == TAG_RESULT || t.kind == TAG_VALUE || (c->strict && !c->wrapped)) {
        return V_NO;
    }
    v = xml_call(c, out);
    *used = c->at - start;
    return v;
}

enum verdict parse_one(const struct cursor *from, bool line_start, struct call *out, size_t *used)
{
    struct cursor c = *from;
    const char ch = c.p[c.at];
    enum verdict v = V_NO;
    if (ch == '<') {
        return read_tag(&c, out, used);
    }
    if (ch == '{') {
        v = json_call(&c, out);
    } else if (ch == '>' && line_start && !c.strict) {
        v = read_bracket(&c, out);
    } else if (line_start && is_name_char(ch)) {
        v = json_headless(&c, out);
    }
    *used = c.at - from->at;
    return v;
}

enum verdict parse_closer(const struct cursor *from, size_t *used, bool *wrapper)
{
    struct cursor c = *from;
    struct tag t;
    skip_blank(&c);
    if (c.at == c.n) {
        return more(&c);
    }
    const char ch = c.p[c.at];
    if (ch == '}') {
        *used = c.at + 1 - from->at;
        return V_YES;
    }
    if (ch == ',') {
        c.at++;
        *used = c.at - from->at;
        skip_blank(&c);
        return c.at == c.n ? more(&c) : c.p[c.at] == '{' ? V_YES : V_NO;
    }
    const enum verdict v = tag_read(&c, &t);
    if (v == V_NO && c.eof && tag_is_stub(c.p + c.at, c.n - c.at)) {
        *used = c.n - from->at;
        return V_YES;
    }
    if (v != V_YES) {
        return v;
    }
    *used = t.end - from->at;
    *wrapper = t.kind == TAG_WRAP;
    return t.closing && t.kind != TAG_RESULT ? V_YES : V_NO;
}

bool parse_is_marker(const struct cursor *c)
{
    struct tag t;
    struct cursor s = *c;
    if (c->p[c->at] == '{') {
        static const char *const starts[] = {"{\"name\": \"", "{\"name\":\""};
        for (size_t i = 0; i < 2; i++) {
            const size_t k = strlen(starts[i]);
            if (c->n - c->at > k && memcmp(c->p + c->at, starts[i], k) == 0) {
                const char *end = memchr(c->p + c->at + k, '"', c->n - c->at - k);
                return end && toolset_resolve(c->tools, c->p + c->at + k,
                                              (size_t)(end - (c->p + c->at + k)));
            }
        }
        return false;
    }
    s.eof = true;
    return tag_read(&s, &t) == V_YES &&
           ((t.kind == TAG_WRAP && strncmp(t.word, "tool_call", 9) == 0) ||
            (t.kind == TAG_FUNC && t.valued) || (t.kind == TAG_PARAM && t.valued));
}

bool parse_is_head(const struct cursor *c)
{
    struct tag t;
    struct cursor s = *c;
    s.eof = true;
    return tag_read(&s, &t) == V_YES && !t.closing &&
           (t.kind == TAG_WRAP || t.kind == TAG_NAME || (t.kind == TAG_FUNC && t.valued));
}
