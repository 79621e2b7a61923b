/* The stream: what is certainly text goes out at once, what may become a call is held until it is
 * one or cannot be one. */
#include "config.h"
#include "tools/recogniser.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tools/inside.h"

/* Up to here what is held is read again with every byte; beyond, only when a byte may decide. */
#define ALWAYS 512
/* … and as long as that pays: so many bytes may be read for each that came. */
#define READS 64

const char *const tool_modes[] = {
    "0a", "0b", "1",  "2",  "3",   "4",   "6",   "7",   "8",   "9",   "10",  "11",  "12", "13",
    "14", "15", "16", "17", "18",  "19",  "20",  "21",  "22",  "23",  "u1",  "u2",  "u3", "u5",
    "u6", "u7", "u8", "u9", "u12", "u13", "u14", "u15", "u16", "u18", "u19", "u20", NULL};

bool tool_mode_taught(const char *mode)
{
    return mode[0] == '0' || strcmp(mode, "u20") == 0;
}

struct recogniser {
    struct toolset *tools;
    bool strict, declared, thought;
    struct markdown md;
    bool wrapped; /* in a wrapper */
    bool after;   /* a call, or what is left of one, has just ended */
    bool between; /* … and only white space has come since */
    struct buf held;
    size_t credit; /* bytes that may be read */
    bool given_up; /* a call began and was none: what follows it is not completed, nor guessed */
    /* braces in held, up to scanned */
    size_t scanned, depth;
    bool in_text, escaped, balanced;
    int missed;
    struct tool_item *items;
    size_t first, n_items, cap;
};

struct recogniser *recogniser_create(const struct recogniser_opts *o)
{
    struct recogniser *r = mem_zalloc(sizeof *r);
    r->tools = toolset_create(o->tools);
    r->strict = o->strict;
    r->declared = o->declared;
    r->thought = o->thought;
    return r;
}

void tool_item_fini(struct tool_item *it)
{
    buf_free(&it->text);
    free(it->name);
    json_decref(it->arguments);
    memset(it, 0, sizeof *it);
}

void recogniser_free(struct recogniser *r)
{
    if (!r) {
        return;
    }
    for (size_t i = r->first; i < r->n_items; i++) {
        tool_item_fini(&r->items[i]);
    }
    free(r->items);
    buf_free(&r->held);
    toolset_free(r->tools);
    free(r);
}

bool recogniser_next(struct recogniser *r, struct tool_item *out)
{
    if (r->first == r->n_items) {
        r->first = r->n_items = 0;
        return false;
    }
    *out = r->items[r->first++];
    return true;
}

int recogniser_missed(const struct recogniser *r)
{
    return r->missed;
}

/* ---- what goes out ---- */

/* The last item if it is of this kind and can be added to; else a new one. */
static struct tool_item *item_for(struct recogniser *r, enum tool_item_kind kind)
{
    if (kind != TOOL_CALL && r->n_items > r->first && r->items[r->n_items - 1].kind == kind) {
        return &r->items[r->n_items - 1];
    }
    if (r->n_items == r->cap) {
        size_t bytes = 0;
        r->cap = r->cap ? r->cap * 2 : 4;
        if (!arr_size(r->cap, sizeof *r->items, &bytes)) {
            bytes = SIZE_MAX;
        }
        r->items = mem_realloc(r->items, bytes);
    }
    struct tool_item *it = &r->items[r->n_items++];
    memset(it, 0, sizeof *it);
    it->kind = kind;
    return it;
}

static void drop(struct recogniser *r, size_t n)
{
    memmove(r->held.data, r->held.data + n, r->held.len - n);
    buf_truncate(&r->held, r->held.len - n);
    r->credit = r->scanned = r->depth = 0;
    r->in_text = r->escaped = r->balanced = false;
}

static void say(struct recogniser *r, char c)
{
    buf_addc(&item_for(r, TOOL_TEXT)->text, c);
    markdown_feed(&r->md, c);
    r->wrapped = r->wrapped && is_blank(c);
}

static void give_text(struct recogniser *r)
{
    say(r, r->held.data[0]);
    drop(r, 1);
}

static struct tool_item *give(struct recogniser *r, enum tool_item_kind kind, size_t n)
{
    struct tool_item *it = item_for(r, kind);
    buf_add(&it->text, r->held.data, n);
    drop(r, n);
    markdown_reset(&r->md);
    r->after = true;
    return it;
}

/* ---- when to look ---- */

/* Follows the braces, from the first one on. */
static void follow_braces(struct recogniser *r)
{
    for (; r->scanned < r->held.len; r->scanned++) {
        const char c = r->held.data[r->scanned];
        if (r->in_text) {
            r->in_text = c != '"' || r->escaped;
            r->escaped = c == '\\' && !r->escaped;
        } else if (c == '"' && r->depth > 0) {
            r->in_text = true;
            r->escaped = false;
        } else if (c == '{' || c == '[') {
            r->depth++;
        } else if ((c == '}' || c == ']') && r->depth > 0) {
            r->balanced = --r->depth == 0 || r->balanced;
        }
    }
}

/* Whether a tag that ends a call, or begins another, stands at the end of what is held, but for
 * white space and one byte. */
static bool ends_in_tag(const struct recogniser *r)
{
    const char *p = r->held.data;
    size_t n = r->held.len;
    if (p[n - 1] != '>' && !is_blank(p[n - 1])) {
        n--;
    }
    while (n > 0 && is_blank(p[n - 1])) {
        n--;
    }
    if (n == 0 || p[n - 1] != '>') {
        return false;
    }
    const size_t most = n < 24 ? n : 24;
    const char *lt = memrchr(p + n - most, '<', most);
    struct cursor c = {.p = lt, .n = lt ? (size_t)(p + n - lt) : 0, .eof = true};
    struct tag t;
    return lt && tag_read(&c, &t) == V_YES && (t.kind == TAG_FUNC || t.kind == TAG_WRAP);
}

static bool worth_a_look(struct recogniser *r)
{
    const size_t n = r->held.len;
    if (n <= ALWAYS) {
        return true;
    }
    follow_braces(r);
    if (r->credit < n || !(r->balanced || ends_in_tag(r))) {
        return false;
    }
    r->credit -= n;
    return true;
}

/* ---- the stream ---- */

static void give_call(struct recogniser *r, struct call *call, size_t used)
{
    struct tool_item *it = give(r, TOOL_CALL, used);
    it->name = call->name;
    it->arguments = call->args ? call->args : json_object();
    it->mode = call->mode;
    call->name = NULL;
    call->args = NULL;
    r->wrapped = r->wrapped || call->opened;
    r->given_up = false;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* In a thought only a wrapper counts. */
static bool may_begin(const struct recogniser *r, char c, bool line_start)
{
    if (r->thought && !r->wrapped) {
        return c == '<';
    }
    return c == '<' || c == '{' || (line_start && (c == '>' || is_word(c)));
}

static bool is_wrapper_stub(const struct cursor *c)
{
    static const char tag[] = "<tool_call";
    const size_t k = sizeof tag - 1, n = c->n - c->at;
    return memcmp(c->p + c->at, tag, n < k ? n : k) == 0;
}

/* Behind a call: what belongs to nobody. */
static bool step_after(struct recogniser *r, const struct cursor *c)
{
    bool wrapper = false;
    size_t used = 0;
    const enum verdict v = parse_closer(c, &used, &wrapper);
    if (v == V_YES) {
        give(r, TOOL_RESIDUE, used);
        r->wrapped = r->wrapped && !wrapper;
        r->given_up = false;
    } else if (v == V_NO) {
        r->after = false;
        r->between = true;
    }
    return v != V_MORE;
}

/* A marker that is not meant, or is not one. */
static void pass_over(struct recogniser *r, const struct cursor *c, bool shown, bool call)
{
    const bool marker = call || parse_is_marker(c);
    if (shown && marker) {
        markdown_marked(&r->md);
    }
    r->missed += !shown && marker;
    r->given_up = r->given_up || (!shown && parse_is_head(c));
    r->between = false;
    give_text(r);
}

/* One decision about the first byte held; false: what follows decides. */
static bool step(struct recogniser *r, bool eof, bool cut)
{
    struct cursor c = {.tools = r->tools,
                       .p = r->held.data,
                       .n = r->held.len,
                       .eof = eof,
                       .cut = cut || r->given_up,
                       .guess = !r->given_up,
                       .wrapped = r->wrapped,
                       .strict = r->strict};
    if (r->after) {
        return step_after(r, &c);
    }
    if (r->between) { /* white space between two calls is no text */
        skip_blank(&c);
        if (c.at == c.n) {
            return false;
        }
    }
    const char first = c.p[c.at];
    const bool line_start = r->wrapped || markdown_line_start(&r->md);
    if (!may_begin(r, first, line_start) || (r->thought && !r->wrapped && !is_wrapper_stub(&c))) {
        r->between = false;
        give_text(r);
        return true;
    }
    if (!eof && !worth_a_look(r)) {
        return false;
    }
    struct call call = {.mode = "1"};
    size_t used = 0;
    enum verdict v = parse_one(&c, line_start, &call, &used);
    v = v == V_YES && r->declared && !call.tool ? V_NO : v;
    const enum verdict shown = markdown_shows(&r->md, c.p + c.at, c.n - c.at, eof || v == V_NO);
    bool decided = true;
    if (v == V_NO || shown == V_YES) {
        /* in a list it matters whether it is a marker */
        decided = v != V_MORE || !markdown_in_item(&r->md) || parse_is_marker(&c);
        if (decided) {
            pass_over(r, &c, shown == V_YES, v == V_YES || v == V_RESIDUE);
        }
    } else if (v == V_MORE || shown == V_MORE) {
        decided = false;
    } else if (v == V_RESIDUE) {
        give(r, TOOL_RESIDUE, c.at + used);
        r->wrapped = r->wrapped || call.opened;
        r->given_up = false;
    } else {
        if (c.at > 0) {
            give(r, TOOL_RESIDUE, c.at);
        }
        give_call(r, &call, used);
    }
    call_free(&call);
    return decided;
}

void recogniser_feed(struct recogniser *r, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        buf_addc(&r->held, p[i]);
        r->credit += READS;
        while (r->held.len > 0 && step(r, false, false)) {
        }
    }
}

void recogniser_finish(struct recogniser *r, bool cut)
{
    while (r->held.len > 0 && step(r, true, cut)) {
    }
    if (r->held.len > 0) { /* white space behind a call */
        give(r, TOOL_RESIDUE, r->held.len);
    }
}
