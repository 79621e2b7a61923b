/* See suffix.h. A guess that runs past the end of the text goes on from its own
 * tokens, so periodic text keeps going. */
#include "config.h"
#include "engine/suffix.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define GRAM       4
#define CHAIN      64  /* earlier places looked at */
#define LONGEST    256 /* tokens compared backwards */
#define TRUSTED    12  /* agreed tokens after which a departure is looked into */
#define SPAN       24  /* tokens after a departure, in either text, that are searched */
#define FOUND      4   /* agreed tokens after which the passage counts as found again */
#define FIRST_BITS 10
#define GAP        (-1) /* between two texts: no token */

void suffix_init(struct suffix *s)
{
    *s = (struct suffix){.at = -1, .left_at = -1};
}

void suffix_fini(struct suffix *s)
{
    free(s->ids);
    free(s->prev);
    free(s->head);
    suffix_init(s);
}

static void forget_places(struct suffix *s)
{
    for (int i = 0; i < 1 << s->bits; i++) {
        s->head[i] = -1;
    }
}

void suffix_clear(struct suffix *s)
{
    s->n = s->from = 0;
    s->at = s->left_at = -1;
    s->run = s->left_for = 0;
    if (s->head) {
        forget_places(s);
    }
}

/* Of the 4-gram that ends at i. */
static uint32_t place(const struct suffix *s, int i)
{
    uint64_t h = 0;
    for (int k = 0; k < GRAM; k++) {
        h = (h ^ (uint32_t)s->ids[i - k]) * 0x9E3779B97F4A7C15U;
    }
    return (uint32_t)(h >> (64 - s->bits));
}

static void enter(struct suffix *s, int i)
{
    s->prev[i] = -1;
    if (i >= GRAM - 1) {
        const uint32_t h = place(s, i);
        s->prev[i] = s->head[h];
        s->head[h] = i;
    }
}

static void rebuild(struct suffix *s)
{
    forget_places(s);
    for (int i = 0; i < s->n; i++) {
        enter(s, i);
    }
}

static void grow(struct suffix *s)
{
    if (s->n == SUFFIX_MOST) {
        const int drop = s->n / 2;
        s->n -= drop;
        memmove(s->ids, s->ids + drop, (size_t)s->n * sizeof *s->ids);
        s->from = s->from >= drop ? s->from - drop : -1;
        s->at = s->at >= drop ? s->at - drop : -1;
        s->left_at = s->left_at >= drop ? s->left_at - drop : -1;
        rebuild(s);
        return;
    }
    s->bits = s->cap ? s->bits + 1 : FIRST_BITS;
    s->cap = 1 << s->bits;
    s->ids = mem_realloc(s->ids, (size_t)s->cap * sizeof *s->ids);
    s->prev = mem_realloc(s->prev, (size_t)s->cap * sizeof *s->prev);
    s->head = mem_realloc(s->head, (size_t)s->cap * sizeof *s->head);
    rebuild(s);
}

/* Tokens that agree backwards from places a < b, both included. */
static int agree(const struct suffix *s, int a, int b, int most)
{
    int n = 0;
    while (n < most && a - n >= 0 && s->ids[a - n] == s->ids[b - n]) {
        n++;
    }
    return n;
}

/* The passage was left: the place near where it was left that best fits the tokens
 * since, or, where none does, the place that a change of as many tokens leads to. */
static void look_around(struct suffix *s)
{
    const int last = s->n - 1;
    int best = -1, most = 0, near = 0;
    for (int p = s->left_at; p < s->left_at + SPAN && p < last; p++) {
        const int n = agree(s, p, last, s->left_for < FOUND ? s->left_for : FOUND);
        const int off = abs(p - (s->left_at + s->left_for - 1));
        if (n > most || (n == most && n > 0 && off < near)) {
            best = p;
            most = n;
            near = off;
        }
    }
    s->at = most > 0 ? best + 1 : s->left_at + s->left_for;
    s->run = most;
}

static void follow(struct suffix *s, int32_t id)
{
    const bool right = s->ids[s->at] == id;
    if (right && s->left_at < 0) {
        s->at++;
        s->run++;
        return;
    }
    if (right) {
        s->at++;
        s->run++;
        s->left_for++;
        if (s->run >= FOUND) {
            s->left_at = -1;
            s->run = TRUSTED; /* as good as before */
        }
        return;
    }
    if (s->left_at < 0) {
        if (s->run < TRUSTED) {
            s->at = -1;
            return;
        }
        s->left_at = s->at;
        s->left_for = 0;
    }
    s->left_for++;
    if (s->left_for > SPAN) {
        s->at = s->left_at = -1;
        return;
    }
    look_around(s);
}

void suffix_push(struct suffix *s, const int32_t *ids, int n)
{
    for (int i = 0; i < n; i++) {
        if (s->n == s->cap || s->n == SUFFIX_MOST) {
            grow(s);
        }
        s->ids[s->n++] = ids[i];
        enter(s, s->n - 1);
        if (s->at >= 0 && s->at < s->n - 1) {
            follow(s, ids[i]);
        }
        if (s->at >= s->n) { /* nothing stands there yet */
            s->at = s->left_at = -1;
        }
    }
}

void suffix_begin(struct suffix *s, const int32_t *ids, int n)
{
    const int held = s->from >= 0 ? s->n - s->from : n + 1;
    if (held <= n &&
        (held == 0 || memcmp(s->ids + s->from, ids, (size_t)held * sizeof *ids) == 0)) {
        suffix_push(s, ids + held, n - held);
        return;
    }
    const int32_t gap = GAP;
    suffix_push(s, &gap, 1);
    s->from = s->n;
    s->at = s->left_at = -1;
    suffix_push(s, ids, n);
}

static enum suffix_class class_of(const struct suffix *s, int match)
{
    if (s->left_at >= 0) {
        return match > 2 ? SC_LOST3 : (enum suffix_class)(SC_LOST0 + match);
    }
    return match >= 40   ? SC_40
           : match >= 20 ? SC_20
           : match >= 12 ? SC_12
           : match >= 8  ? SC_8
           : match >= 6  ? SC_6
                         : SC_4;
}

void suffix_guess(struct suffix *s, int most, struct suffix_guess *out)
{
    const int last = s->n - 1;
    *out = (struct suffix_guess){0};
    most = most < SUFFIX_DRAFTS ? most : SUFFIX_DRAFTS;
    if (last < GRAM || most < 1) {
        return;
    }
    int best = -1, match = GRAM - 1;
    int c = s->prev[last];
    for (int k = 0; k < CHAIN && c >= 0 && match < LONGEST; k++, c = s->prev[c]) {
        const int n = agree(s, c, last, LONGEST);
        if (n > match) { /* of equals the latest stays */
            best = c;
            match = n;
        }
    }
    if (best >= 0 && (s->left_at < 0 || match >= 2 * GRAM)) {
        if (s->at != best + 1) {
            s->run = match;
        }
        s->run = s->run > match ? s->run : match;
        s->at = best + 1;
        s->left_at = -1;
    } else if (s->at < 0 || s->at > last) {
        return;
    } else {
        match = s->run;
    }
    out->match = match;
    out->class = class_of(s, match);
    for (int i = 0; i < most; i++) {
        const int p = s->at + i;
        const int32_t id = p < s->n ? s->ids[p] : out->ids[p - s->n];
        if (id == GAP) {
            return;
        }
        out->ids[out->n++] = id;
    }
}
