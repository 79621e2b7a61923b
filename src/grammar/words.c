/* A vocabulary as a tree, laid out in the order in which it is walked. */
#include "config.h"
#include "grammar/words.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/tree.h"

struct entry {
    const char *p;
    size_t n;
    int32_t id;
};

static int by_bytes(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;
    const size_t n = p->n < q->n ? p->n : q->n;
    const int d = memcmp(p->p, q->p, n);
    return d ? d : p->n != q->n ? (p->n > q->n) - (p->n < q->n) : (p->id > q->id) - (p->id < q->id);
}

static void copy_bytes(struct words *w)
{
    size_t size = 0, n = 0;
    for (int32_t id = 0; id < w->n; id++) {
        size += w->source.bytes(w->source.ctx, id, &n) ? n : 0;
    }
    w->pool = mem_alloc(size + 1);
    size = 0;
    for (int32_t id = 0; id < w->n; id++) {
        n = 0;
        const char *p = w->source.bytes(w->source.ctx, id, &n);
        w->at[id] = (uint32_t)size;
        w->added[id] =
            p && n > 0 && n <= LENGTH_MOST ? (uint8_t)w->source.added(w->source.ctx, id) : 2;
        if (p) {
            memcpy(w->pool + size, p, n);
            size += n;
        }
    }
    w->at[w->n] = (uint32_t)size;
}

static uint16_t plain_characters(const char *p, size_t n)
{
    uint16_t k = 0;
    if (!utf8_valid(p, n)) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)p[i] < 0x20 || p[i] == '"' || p[i] == '\\') {
            return 0;
        }
        k = (uint16_t)(k + (((unsigned char)p[i] & 0xC0) != 0x80));
    }
    return k;
}

static int32_t grow(struct words *w, int32_t *cap, int byte, int depth)
{
    if (w->n_branches == *cap) {
        *cap = *cap ? 2 * *cap : 4096;
        w->branch = mem_realloc(w->branch, (size_t)*cap * sizeof *w->branch);
    }
    w->branch[w->n_branches] = (struct branch){.byte = (uint8_t)byte, .depth = (uint16_t)depth};
    return w->n_branches++;
}

static void build(struct words *w, const struct entry *e, int32_t n)
{
    int32_t path[LENGTH_MOST], cap = 0;
    size_t depth = 0;
    const char *before = "";
    for (int32_t i = 0; i < n; i++) {
        size_t same = 0;
        while (same < depth && same < e[i].n && e[i].p[same] == before[same]) {
            same++;
        }
        while (depth > same) {
            w->branch[path[--depth]].skip = w->n_branches;
        }
        for (; depth < e[i].n; depth++) {
            path[depth] = grow(w, &cap, (unsigned char)e[i].p[depth], (int)depth);
        }
        struct branch *b = &w->branch[path[depth - 1]];
        if (b->n_ids == 0) {
            b->ids = i;
        }
        b->n_ids++;
        w->sorted[i] = e[i].id;
        w->plain[e[i].id] = w->added[e[i].id] ? 0 : plain_characters(e[i].p, e[i].n);
        for (size_t k = 0; w->plain[e[i].id] == 0 && k < depth; k++) {
            w->branch[path[k]].special = true;
        }
        before = e[i].p;
        if ((int32_t)e[i].n > w->longest) {
            w->longest = (int32_t)e[i].n;
        }
    }
    while (depth > 0) {
        w->branch[path[--depth]].skip = w->n_branches;
    }
}

static bool is_blank(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (p[i] == ' ' || (p[i] >= '\t' && p[i] <= '\r'))) {
        i++;
    }
    return i == n;
}

static void find_kinds(struct words *w)
{
    w->quoted = mem_array((size_t)w->n + 1, sizeof *w->quoted);
    w->begins = mem_zalloc((w->n_words + 1) * sizeof *w->begins);
    for (int32_t id = 0; id < w->n; id++) {
        size_t n = 0;
        const char *p = words_bytes(w, id, &n);
        const bool is = w->added[id] < 2 && !is_blank(p, n);
        w->begins[id / 32] |= (uint32_t)is << (id % 32);
        if (w->added[id] == 0 && n > 0 && memchr(p, '"', n)) {
            w->quoted[w->n_quoted++] = id;
        }
    }
}

const uint32_t *words_begins(const struct words *w, size_t *n_words)
{
    *n_words = w->n_words;
    return w->begins;
}

struct words *words_create(const struct words_source *s)
{
    struct words *w = mem_zalloc(sizeof *w);
    atomic_init(&w->refs, 1);
    w->source = *s;
    w->n = s->n;
    w->n_words = ((size_t)s->n + 31) / 32;
    w->sorted = mem_array((size_t)s->n + 1, sizeof *w->sorted);
    w->at = mem_array((size_t)s->n + 1, sizeof *w->at);
    w->added = mem_alloc((size_t)s->n + 1);
    w->plain = mem_zalloc(((size_t)s->n + 1) * sizeof *w->plain);
    pthread_mutex_init(&w->lock, NULL);
    copy_bytes(w);
    find_kinds(w);
    struct entry *e = mem_array((size_t)s->n + 1, sizeof *e);
    int32_t n = 0;
    for (int32_t id = 0; id < w->n; id++) {
        size_t len = 0;
        const char *p = words_bytes(w, id, &len);
        if (w->added[id] < 2) {
            e[n++] = (struct entry){p, len, id};
        }
    }
    qsort(e, (size_t)n, sizeof *e, by_bytes);
    build(w, e, n);
    free(e);
    w->short_plain = mem_zalloc(((size_t)w->longest + 1) * sizeof *w->short_plain);
    return w;
}

void words_ref(struct words *w)
{
    atomic_fetch_add_explicit(&w->refs, 1, memory_order_relaxed);
}

void words_free(struct words *w)
{
    if (!w || atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (int k = 0; k < THOUGHT_LEN; k++) {
        free(w->thought[k]);
    }
    for (int32_t n = 0; n <= w->longest; n++) {
        free(w->short_plain[n]);
    }
    free(w->short_plain);
    free(w->plain);
    free(w->begins);
    free(w->quoted);
    pthread_mutex_destroy(&w->lock);
    free(w->sorted);
    free(w->branch);
    free(w->at);
    free(w->pool);
    free(w->added);
    free(w);
}

const uint32_t *words_plain(struct words *w, int32_t n)
{
    n = n > w->longest ? w->longest : n;
    pthread_mutex_lock(&w->lock);
    if (!w->short_plain[n]) {
        uint32_t *m = mem_zalloc((w->n_words + 1) * sizeof *m);
        for (int32_t id = 0; id < w->n; id++) {
            const bool is = w->plain[id] > 0 && w->plain[id] <= n;
            m[id / 32] |= (uint32_t)is << (id % 32);
        }
        w->short_plain[n] = m;
    }
    pthread_mutex_unlock(&w->lock);
    return w->short_plain[n];
}

/* ---- thoughts ---- */

int thought_step(int k, int byte)
{
    static const char end[] = THOUGHT_END;
    /* Only its first character begins it again. */
    return byte == end[k] ? k + 1 : byte == end[0] ? 1 : 0;
}

/* Whether an id may stand there: the end, if it has it, is followed by line breaks alone. */
static bool in_thought(const struct words *w, int32_t id, int k)
{
    size_t n = 0;
    const char *p = words_bytes(w, id, &n);
    size_t i = 0;
    while (i < n && k < THOUGHT_LEN) {
        k = thought_step(k, (unsigned char)p[i++]);
    }
    const size_t rest = n - i;
    while (i < n && p[i] == '\n') {
        i++;
    }
    return w->added[id] < 2 && i == n && rest <= 2;
}

const uint32_t *words_thought(struct words *w, int k)
{
    pthread_mutex_lock(&w->lock);
    if (!w->thought[k]) {
        uint32_t *m = mem_zalloc((w->n_words + 1) * sizeof *m);
        for (int32_t id = 0; id < w->n; id++) {
            m[id / 32] |= (uint32_t)in_thought(w, id, k) << (id % 32);
        }
        w->thought[k] = m;
    }
    pthread_mutex_unlock(&w->lock);
    return w->thought[k];
}
