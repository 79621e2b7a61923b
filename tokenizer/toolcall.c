/* Tool calls in a stream of text: what is certainly text goes out at once, what
 * may become a call is held until it is one or cannot be one. */
#include "config.h"
#include "tokenizer/toolcall.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tokenizer/toolcall_int.h"

/* Up to here a held call is parsed again with every piece; beyond, only when a
 * piece brings something that can end it. */
#define ALWAYS_PARSE 1024

struct toolcall {
    json_t *tools;
    struct buf held;
    size_t tried; /* bytes of held already looked at; 0: no call is open */
    struct toolcall_item *items;
    size_t first, n_items, cap;
};

struct toolcall *toolcall_create(const json_t *tools)
{
    struct toolcall *t = mem_zalloc(sizeof *t);
    t->tools = tools ? json_deep_copy(tools) : NULL;
    return t;
}

void toolcall_item_fini(struct toolcall_item *it)
{
    buf_free(&it->text);
    free(it->name);
    json_decref(it->arguments);
    memset(it, 0, sizeof *it);
}

void toolcall_free(struct toolcall *t)
{
    if (!t) {
        return;
    }
    for (size_t i = t->first; i < t->n_items; i++) {
        toolcall_item_fini(&t->items[i]);
    }
    free(t->items);
    buf_free(&t->held);
    json_decref(t->tools);
    free(t);
}

bool toolcall_next(struct toolcall *t, struct toolcall_item *out)
{
    if (t->first == t->n_items) {
        t->first = t->n_items = 0;
        return false;
    }
    *out = t->items[t->first++];
    return true;
}

static struct toolcall_item *add_item(struct toolcall *t)
{
    if (t->n_items == t->cap) {
        size_t bytes = 0;
        t->cap = t->cap ? t->cap * 2 : 4;
        if (!arr_size(t->cap, sizeof *t->items, &bytes)) {
            bytes = SIZE_MAX;
        }
        t->items = mem_realloc(t->items, bytes);
    }
    struct toolcall_item *it = &t->items[t->n_items++];
    memset(it, 0, sizeof *it);
    return it;
}

static void drop(struct toolcall *t, size_t n)
{
    memmove(t->held.data, t->held.data + n, t->held.len - n);
    buf_truncate(&t->held, t->held.len - n);
}

static void give_text(struct toolcall *t, size_t n)
{
    if (n == 0) {
        return;
    }
    bool join = t->n_items > t->first && !t->items[t->n_items - 1].is_call;
    struct toolcall_item *it = join ? &t->items[t->n_items - 1] : add_item(t);
    buf_add(&it->text, t->held.data, n);
    drop(t, n);
}

/* Offset of the first opening tag, whole or cut off by the end; n when none. */
static size_t find_open(const char *p, size_t n, bool *whole)
{
    static const char *const tags[] = {TAG_CALL, TAG_FUNC};
    for (size_t i = 0; i < n; i++) {
        const char *lt = memchr(p + i, '<', n - i);
        if (!lt) {
            return n;
        }
        i = (size_t)(lt - p);
        for (size_t k = 0; k < 2; k++) {
            size_t len = strlen(tags[k]), left = n - i;
            if (memcmp(lt, tags[k], left < len ? left : len) == 0) {
                *whole = left >= len;
                return i;
            }
        }
    }
    return n;
}

static bool has_json_body(const struct toolcall *t)
{
    size_t i = strlen(TAG_CALL);
    while (i < t->held.len && strchr(" \t\r\n", t->held.data[i])) {
        i++;
    }
    return memcmp(t->held.data, TAG_CALL, strlen(TAG_CALL)) == 0 && t->held.data[i] == '{';
}

/* Whether the bytes that came since the last look can end the held call. */
static bool worth_trying(const struct toolcall *t)
{
    static const char *const tags[] = {TAG_CALL, TAG_CALL_END, TAG_FUNC, TAG_FUNC_END};
    if (t->tried == 0 || t->held.len <= ALWAYS_PARSE) {
        return true;
    }
    const char *p = t->held.data;
    if (memchr(p + t->tried, '}', t->held.len - t->tried) && has_json_body(t)) {
        return true;
    }
    size_t overlap = strlen(TAG_CALL_END) - 1;
    size_t from = t->tried > overlap ? t->tried - overlap : 0;
    for (size_t k = 0; k < sizeof tags / sizeof *tags; k++) {
        if (memmem(p + from, t->held.len - from, tags[k], strlen(tags[k]))) {
            return true;
        }
    }
    /* Behind </function> any character may decide, a blank only prolongs. */
    size_t n = t->tried;
    while (n > 0 && (p[n - 1] == ' ' || (p[n - 1] >= '\t' && p[n - 1] <= '\r'))) {
        n--;
    }
    size_t len = strlen(TAG_FUNC_END);
    return n >= len && memcmp(p + n - len, TAG_FUNC_END, len) == 0;
}

static void work(struct toolcall *t, bool eof)
{
    while (t->held.len > 0) {
        bool whole = false;
        size_t at = find_open(t->held.data, t->held.len, &whole);
        if (at > 0) {
            give_text(t, at);
            t->tried = 0;
            continue;
        }
        if (!whole && !eof) {
            return;
        }
        if (!eof && !worth_trying(t)) {
            t->tried = t->held.len;
            return;
        }
        size_t used = 0;
        char *name = NULL;
        json_t *args = NULL;
        enum verdict v = V_NO;
        if (whole) {
            v = call_parse(t->tools, t->held.data, t->held.len, false, &used, &name, &args);
        }
        if (v == V_MORE && eof) {
            v = call_parse(t->tools, t->held.data, t->held.len, true, &used, &name, &args);
        }
        if (v == V_MORE) {
            t->tried = t->held.len;
            return;
        }
        t->tried = 0;
        if (v == V_NO) {
            give_text(t, 1); /* only the '<': what follows is looked at afresh */
            continue;
        }
        struct toolcall_item *it = add_item(t);
        it->is_call = true;
        it->name = name;
        it->arguments = args;
        buf_add(&it->text, t->held.data, used);
        drop(t, used);
    }
}

void toolcall_feed(struct toolcall *t, const char *p, size_t n)
{
    buf_add(&t->held, p, n);
    work(t, false);
}

void toolcall_finish(struct toolcall *t)
{
    work(t, true);
}
