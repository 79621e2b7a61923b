/* A look at JSON text that knows only where names are. */
#include "config.h"
#include "grammar/twice.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define ARRAY (SIZE_MAX / 2 + 1)

void twice_fini(struct twice *t)
{
    free(t->pool);
    free(t->end);
    free(t->level);
}

static void *room(void *p, size_t *cap, size_t n, size_t size)
{
    if (n > *cap) {
        *cap = n < 16 ? 16 : 2 * n;
        p = mem_realloc(p, *cap * size);
    }
    return p;
}

void twice_copy(struct twice *to, const struct twice *from)
{
    struct twice t = *from;
    t.pool = room(to->pool, &to->cap_pool, from->used + 1, 1);
    t.end = room(to->end, &to->cap, from->n + 1, sizeof *t.end);
    t.level = room(to->level, &to->cap_depth, from->depth + 1, sizeof *t.level);
    t.cap_pool = to->cap_pool;
    t.cap = to->cap;
    t.cap_depth = to->cap_depth;
    if (from->used > 0) {
        memcpy(t.pool, from->pool, from->used);
    }
    if (from->n > 0) {
        memcpy(t.end, from->end, from->n * sizeof *t.end);
    }
    if (from->depth > 0) {
        memcpy(t.level, from->level, from->depth * sizeof *t.level);
    }
    *to = t;
}

static size_t begin_of(const struct twice *t, size_t name)
{
    return name > 0 ? t->end[name - 1] : 0;
}

static void push(struct twice *t, bool array)
{
    t->level = room(t->level, &t->cap_depth, t->depth + 1, sizeof *t->level);
    t->level[t->depth++] = t->n | (array ? ARRAY : 0);
    t->expects = !array;
}

static void pop(struct twice *t)
{
    if (t->depth > 0) {
        t->n = t->level[--t->depth] & ~ARRAY;
        t->used = begin_of(t, t->n);
    }
    t->expects = false;
}

static bool in_object(const struct twice *t)
{
    return t->depth > 0 && !(t->level[t->depth - 1] & ARRAY);
}

/* The name that is open is whole. False: its object has it. */
static bool end_name(struct twice *t)
{
    const size_t from = begin_of(t, t->n), n = t->used - from;
    const size_t first = in_object(t) ? t->level[t->depth - 1] : t->n;
    bool is_new = true;
    for (size_t i = first; i < t->n && is_new; i++) {
        const size_t at = begin_of(t, i);
        is_new = t->end[i] - at != n || memcmp(t->pool + at, t->pool + from, n) != 0;
    }
    t->end = room(t->end, &t->cap, t->n + 1, sizeof *t->end);
    t->end[t->n++] = t->used;
    t->in_name = t->expects = false;
    return is_new;
}

static bool in_string(struct twice *t, char c)
{
    if (!t->escaped && c == '"') {
        t->in_string = false;
        return !t->in_name || end_name(t);
    }
    t->escaped = !t->escaped && c == '\\';
    if (t->in_name) {
        t->pool = room(t->pool, &t->cap_pool, t->used + 1, 1);
        t->pool[t->used++] = c;
    }
    return true;
}

bool twice_take(struct twice *t, const char *p, size_t n)
{
    bool is_new = true;
    for (size_t i = 0; i < n; i++) {
        const char c = p[i];
        if (t->in_string) {
            is_new = in_string(t, c) && is_new;
        } else if (c == '"') {
            t->in_string = true;
            t->in_name = t->expects;
        } else if (c == '{' || c == '[') {
            push(t, c == '[');
        } else if (c == '}' || c == ']') {
            pop(t);
        } else if (c == ',') {
            t->expects = in_object(t);
        }
    }
    return is_new;
}

bool twice_would(struct twice *t, const char *p, size_t n)
{
    struct twice copy = {.n = 0};
    if (memchr(p, '}', n) || memchr(p, ']', n)) { /* names are forgotten on the way */
        twice_copy(&copy, t);
        const bool is_new = twice_take(&copy, p, n);
        twice_fini(&copy);
        return is_new;
    }
    const struct twice before = *t;
    const bool is_new = twice_take(t, p, n);
    copy = *t; /* what has grown stays so */
    *t = before;
    t->pool = copy.pool;
    t->end = copy.end;
    t->level = copy.level;
    t->cap_pool = copy.cap_pool;
    t->cap = copy.cap;
    t->cap_depth = copy.cap_depth;
    return is_new;
}
