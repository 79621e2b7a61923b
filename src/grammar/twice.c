/* A look at JSON text that knows only where names are. What it looks at is well formed. */
#include "config.h"
#include "grammar/twice.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define ARRAY (SIZE_MAX / 2 + 1)

static void push(struct twice *t, bool array)
{
    if (t->depth == t->cap_depth) {
        t->cap_depth = t->cap_depth ? 2 * t->cap_depth : 16;
        t->level = mem_realloc(t->level, t->cap_depth * sizeof *t->level);
    }
    t->level[t->depth++] = t->n | (array ? ARRAY : 0);
    t->expects = !array;
}

static void pop(struct twice *t)
{
    if (t->depth > 0) {
        t->n = t->level[--t->depth] & ~ARRAY;
    }
    t->expects = false;
}

static bool in_object(const struct twice *t)
{
    return t->depth > 0 && !(t->level[t->depth - 1] & ARRAY);
}

static void end_string(struct twice *t, size_t at)
{
    t->in_string = false;
    if (!t->in_name) {
        return;
    }
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 16;
        t->names = mem_realloc(t->names, t->cap * sizeof *t->names);
    }
    t->names[t->n++] = (struct name){t->from, at - t->from};
    t->in_name = t->expects = false;
}

void twice_scan(struct twice *t, const char *text, size_t n)
{
    *t = (struct twice){.text = text};
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (t->in_string) {
            if (t->escaped) {
                t->escaped = false;
            } else if (c == '\\') {
                t->escaped = true;
            } else if (c == '"') {
                end_string(t, i);
            }
        } else if (c == '"') {
            t->in_string = true;
            t->in_name = t->expects;
            t->from = i + 1;
        } else if (c == '{' || c == '[') {
            push(t, c == '[');
        } else if (c == '}' || c == ']') {
            pop(t);
        } else if (c == ',') {
            t->expects = in_object(t);
        }
    }
    if (t->in_string) {
        t->from = t->in_name ? t->from : n;
    }
}

void twice_fini(struct twice *t)
{
    free(t->names);
    free(t->level);
}

/* Whether the innermost object has the name that is `before` of the text and then p[0..n). */
static bool has(const struct twice *t, const char *before, size_t n_before, const char *p, size_t n)
{
    const size_t first = in_object(t) ? t->level[t->depth - 1] : t->n;
    for (size_t i = first; i < t->n; i++) {
        const char *name = t->text + t->names[i].at;
        if (t->names[i].n == n_before + n && memcmp(name, before, n_before) == 0 &&
            memcmp(name + n_before, p, n) == 0) {
            return true;
        }
    }
    return false;
}

bool twice_ends(const struct twice *t, const char *p, size_t n)
{
    bool in_string = t->in_string, escaped = t->escaped, in_name = t->in_name;
    bool expects = t->expects, left = false; /* another object than the innermost */
    size_t from = 0;
    const char *before = t->text + t->from;
    /* A name that is open began in the text. */
    size_t n_before = t->in_string && t->in_name ? strlen(before) : 0;
    for (size_t i = 0; i < n; i++) {
        const char c = p[i];
        if (in_string && escaped) {
            escaped = false;
        } else if (in_string && c == '\\') {
            escaped = true;
        } else if (in_string && c == '"') {
            if (in_name && !left && has(t, before, n_before, p + from, i - from)) {
                return true;
            }
            in_string = in_name = expects = false;
        } else if (!in_string && c == '"') {
            in_string = true;
            in_name = expects;
            n_before = 0;
            from = i + 1;
        } else if (!in_string && (c == '{' || c == '[' || c == '}' || c == ']')) {
            left = true;
            expects = c == '{';
        } else if (!in_string && c == ',') {
            expects = left ? expects : in_object(t);
        }
    }
    return false;
}
