/* Walks. What they share with others of the same grammar (its automaton, and the ids that may
 * follow in each state) lies under the grammar's lock; the place of each walk is its own. */
#include "config.h"
#include "grammar/walk.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/inside.h"
#include "grammar/tree.h"
#include "grammar/twice.h"

#define MASK_BYTES  (16U << 20) /* of one grammar; then they are made anew */
#define FORCED_MOST 96          /* bytes */

enum phase {
    WP_THOUGHT,
    WP_ANSWER,
    WP_FREE, /* a call, which nobody judges; or what is around calls */
    WP_OVER
};

/* A place between two tokens. */
struct spot {
    enum phase phase;
    int k;         /* in a thought: bytes of its end */
    int32_t state; /* in an answer */
    bool fresh;    /* nothing but line breaks is there of it */
    char last;     /* its last byte */
};

struct walk {
    struct grammar *g;
    struct words *words;
    int32_t *end;
    int n_end;
    int32_t call_opener;
    bool between;
    struct spot at;
    bool begun;               /* at.state is known */
    bool failed;              /* there was no room for its states, or it took what may not be */
    bool lines;               /* the answer has line breaks */
    struct twice names, then; /* where they must not come twice: of the answer; behind drafts */
    uint32_t *row;            /* [n_row], used while one is made */
    size_t n_row;
    struct walk *next, **prev;
};

struct walk *walk_create(const struct walk_opts *o)
{
    struct walk *w = mem_zalloc(sizeof *w);
    grammar_ref(o->grammar);
    words_ref(o->words);
    w->g = o->grammar;
    w->words = o->words;
    w->n_end = o->n_end;
    w->end = mem_array((size_t)o->n_end + 1, sizeof *w->end);
    if (o->n_end > 0) {
        memcpy(w->end, o->end, (size_t)o->n_end * sizeof *w->end);
    }
    w->call_opener = o->call_opener;
    w->between = o->between;
    w->at = (struct spot){.phase = o->in_thought ? WP_THOUGHT
                                   : o->between  ? WP_FREE
                                                 : WP_ANSWER,
                          .fresh = !o->between};
    pthread_mutex_lock(&w->g->lock);
    w->next = w->g->walks;
    w->prev = &w->g->walks;
    if (w->next) {
        w->next->prev = &w->next;
    }
    w->g->walks = w;
    pthread_mutex_unlock(&w->g->lock);
    return w;
}

void walk_free(struct walk *w)
{
    if (!w) {
        return;
    }
    pthread_mutex_lock(&w->g->lock);
    *w->prev = w->next;
    if (w->next) {
        w->next->prev = w->prev;
    }
    pthread_mutex_unlock(&w->g->lock);
    grammar_free(w->g);
    words_free(w->words);
    twice_fini(&w->names);
    twice_fini(&w->then);
    free(w->row);
    free(w->end);
    free(w);
}

/* ---- the shared part; with the lock ---- */

static void drop_masks(struct grammar *g)
{
    for (size_t i = 0; i < g->cap_masks; i++) {
        free(g->masks[i].bits);
    }
    free(g->masks);
    g->masks = NULL;
    g->n_masks = g->cap_masks = g->mask_bytes = 0;
}

/* Forgets the states that no walk stands in, when there are many. */
static void tidy(struct grammar *g)
{
    if (!auto_large(g->a)) {
        return;
    }
    int n = 0;
    for (const struct walk *w = g->walks; w; w = w->next) {
        n++;
    }
    int32_t *states = mem_array((size_t)n + 1, sizeof *states);
    n = 0;
    for (const struct walk *w = g->walks; w; w = w->next) {
        states[n++] = w->begun ? w->at.state : AUTO_DEAD;
    }
    auto_shrink(g->a, states, n);
    n = 0;
    for (struct walk *w = g->walks; w; w = w->next) {
        w->at.state = states[n++];
    }
    free(states);
    drop_masks(g);
}

static struct mask *find_mask(struct grammar *g, const struct words *words, int32_t state)
{
    size_t i = ((size_t)state * 2654435761U + (size_t)((uintptr_t)words >> 6)) & (g->cap_masks - 1);
    while (g->masks[i].bits && (g->masks[i].state != state || g->masks[i].words != words)) {
        i = (i + 1) & (g->cap_masks - 1);
    }
    return &g->masks[i];
}

static void grow_masks(struct grammar *g)
{
    struct mask *old = g->masks;
    const size_t n = g->cap_masks;
    g->cap_masks = n ? 2 * n : 64;
    g->masks = mem_zalloc(g->cap_masks * sizeof *g->masks);
    for (size_t i = 0; i < n; i++) {
        if (old[i].bits) {
            *find_mask(g, old[i].words, old[i].state) = old[i];
        }
    }
    free(old);
}

/* Within a string most ids are plain characters: these are known, and not looked at. */
static void fill_mask(struct grammar *g, struct words *w, int32_t state, uint32_t *bits)
{
    int32_t at[LENGTH_MOST + 1]; /* by depth */
    int32_t most = 0;
    const bool text = auto_in_text(g->a, state, &most);
    if (text) {
        memcpy(bits, words_plain(w, most), w->n_words * sizeof *bits);
    }
    for (int32_t i = 0; i < w->n_branches;) {
        const struct branch *b = &w->branch[i];
        const int32_t s = text && !b->special
                              ? AUTO_DEAD
                              : auto_step(g->a, b->depth ? at[b->depth - 1] : state, b->byte);
        if (s == AUTO_DEAD) {
            i = b->skip;
            continue;
        }
        at[b->depth] = s;
        for (int32_t k = b->ids; k < b->ids + b->n_ids; k++) {
            const int32_t id = w->sorted[k];
            const bool legal = (g->marks || w->added[id] == 0) && !(text && w->plain[id] > 0);
            bits[id / 32] |= (uint32_t)legal << (id % 32);
        }
        i++;
    }
}

/* The ids whose bytes may follow in a state. Borrowed until the next call. */
static const uint32_t *mask_of(struct grammar *g, struct words *w, int32_t state)
{
    const size_t size = (w->n_words + 1) * sizeof(uint32_t);
    const int32_t near = auto_near(g->a, state, w->longest);
    if (g->mask_bytes + size > MASK_BYTES) {
        drop_masks(g);
    }
    if (2 * (g->n_masks + 1) > g->cap_masks) {
        grow_masks(g);
    }
    struct mask *m = find_mask(g, w, near);
    if (!m->bits) {
        uint32_t *bits = mem_zalloc(size);
        fill_mask(g, w, near, bits);
        *m = (struct mask){w, near, bits};
        g->n_masks++;
        g->mask_bytes += size;
    }
    return m->bits;
}

/* ---- places; with the lock ---- */

static void begin(struct walk *w)
{
    tidy(w->g);
    if (!w->begun && w->at.phase == WP_ANSWER) {
        w->at.state = auto_start(w->g->a, w->g->root);
        w->begun = true;
    }
}

static bool is_end(const struct walk *w, int32_t id)
{
    for (int i = 0; i < w->n_end; i++) {
        if (w->end[i] == id) {
            return true;
        }
    }
    return false;
}

static bool step_bytes(struct walk *w, struct spot *s, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int c = (unsigned char)p[i];
        if (s->phase == WP_THOUGHT) {
            s->k = thought_step(s->k, c);
            if (s->k == THOUGHT_LEN && w->between) {
                s->phase = WP_FREE;
                return true;
            }
            if (s->k == THOUGHT_LEN) {
                s->phase = WP_ANSWER;
                s->state = auto_start(w->g->a, w->g->gap);
            }
            continue;
        }
        s->state = auto_step(w->g->a, s->state, c);
        s->fresh = s->fresh && c == '\n';
        s->last = p[i];
        if (s->state == AUTO_DEAD) {
            return false;
        }
    }
    if (w->between && s->phase == WP_ANSWER && auto_over(w->g->a, s->state)) {
        s->phase = WP_FREE; /* the call is whole */
    }
    return true;
}

/* Around calls, where all may come. */
static void step_between(struct walk *w, struct spot *s, int32_t id)
{
    if (is_end(w, id)) {
        s->phase = WP_OVER;
    } else if (s->phase == WP_FREE && id == w->call_opener) {
        s->phase = WP_ANSWER;
        s->state = auto_start(w->g->a, w->g->root);
        s->last = '>';
    } else if (s->phase == WP_THOUGHT && id < w->words->n) {
        size_t n = 0;
        const char *p = words_bytes(w->words, id, &n);
        (void)step_bytes(w, s, p, n);
    }
}

static bool step(struct walk *w, struct spot *s, int32_t id)
{
    if (id < 0) {
        return false;
    }
    if (w->between && s->phase != WP_ANSWER) {
        step_between(w, s, id);
        return true;
    }
    if (is_end(w, id)) {
        const bool may = s->phase == WP_FREE || s->phase == WP_OVER ||
                         (s->phase == WP_ANSWER && auto_accepts(w->g->a, s->state));
        s->phase = WP_OVER;
        return may;
    }
    if (s->phase == WP_FREE) {
        return true;
    }
    if (s->phase == WP_ANSWER && s->fresh && id == w->call_opener) {
        s->phase = WP_FREE;
        return true;
    }
    const int added = id < w->words->n ? w->words->added[id] : 2;
    if (s->phase == WP_OVER || added == 2 ||
        (added == 1 && s->phase == WP_ANSWER && !w->g->marks)) {
        return false;
    }
    size_t n = 0;
    const char *p = words_bytes(w->words, id, &n);
    return step_bytes(w, s, p, n);
}

/* The place after n drafts; false: they may not stand there. */
static bool after(struct walk *w, const int32_t *draft, int n, struct spot *s)
{
    *s = w->at;
    for (int i = 0; i < n; i++) {
        if (!step(w, s, draft[i])) {
            return false;
        }
    }
    return true;
}

static void set(uint32_t *allow, size_t n_words, int32_t id, bool on)
{
    if (id >= 0 && (size_t)id / 32 < n_words) {
        const uint32_t bit = 1U << (id % 32);
        allow[id / 32] = on ? allow[id / 32] | bit : allow[id / 32] & ~bit;
    }
}

static void copy(uint32_t *allow, size_t n_words, const struct words *w, const uint32_t *from)
{
    memcpy(allow, from, (n_words < w->n_words ? n_words : w->n_words) * sizeof *allow);
}

static void take_names(struct walk *w, struct twice *t, int32_t id)
{
    if (id >= 0 && id < w->words->n && !is_end(w, id)) {
        size_t n = 0;
        const char *p = words_bytes(w->words, id, &n);
        (void)twice_take(t, p, n);
    }
}

/* Takes away the ids that would end a name which its object has already, unless nothing would be
 * left then. */
static void not_twice(struct walk *w, const int32_t *draft, int n, uint32_t *allow, size_t n_words)
{
    const struct words *v = w->words;
    bool any = false, left = false;
    twice_copy(&w->then, &w->names);
    for (int i = 0; i < n; i++) {
        take_names(w, &w->then, draft[i]);
    }
    if (w->n_row < n_words) {
        w->row = mem_realloc(w->row, n_words * sizeof *w->row);
        w->n_row = n_words;
    }
    memcpy(w->row, allow, n_words * sizeof *allow);
    for (int32_t i = 0; i < v->n_quoted; i++) {
        const int32_t id = v->quoted[i];
        size_t len = 0;
        const char *p = words_bytes(v, id, &len);
        if ((size_t)id / 32 < n_words && (allow[id / 32] >> (id % 32) & 1) && !is_end(w, id) &&
            !twice_would(&w->then, p, len)) {
            set(w->row, n_words, id, false);
            any = true;
        }
    }
    for (size_t i = 0; any && i < n_words && !left; i++) {
        left = w->row[i] != 0;
    }
    if (left) {
        memcpy(allow, w->row, n_words * sizeof *allow);
    }
}

static void allow_at(struct walk *w, const struct spot *s, uint32_t *allow, size_t n_words)
{
    bool end = true;
    if (w->between && s->phase != WP_ANSWER) {
        memset(allow, 0xff, n_words * sizeof *allow);
        return;
    }
    switch (s->phase) {
    case WP_FREE:
        memset(allow, 0xff, n_words * sizeof *allow);
        return;
    case WP_THOUGHT:
        copy(allow, n_words, w->words, words_thought(w->words, s->k));
        end = false;
        break;
    case WP_ANSWER:
        copy(allow, n_words, w->words, mask_of(w->g, w->words, s->state));
        end = auto_accepts(w->g->a, s->state);
        if (s->fresh) {
            set(allow, n_words, w->call_opener, true);
        }
        break;
    case WP_OVER:
        break;
    }
    for (int i = 0; i < w->n_end; i++) {
        set(allow, n_words, w->end[i], end);
    }
}

/* ---- the face ---- */

void walk_row(struct walk *w, const int32_t *draft, int n, uint32_t *allow, size_t n_words)
{
    struct spot s;
    memset(allow, 0, n_words * sizeof *allow);
    pthread_mutex_lock(&w->g->lock);
    begin(w);
    if (!w->failed && after(w, draft, n, &s)) {
        allow_at(w, &s, allow, n_words);
        if (w->g->open && s.phase == WP_ANSWER && w->at.phase == WP_ANSWER) {
            not_twice(w, draft, n, allow, n_words);
        }
        if (auto_full(w->g->a)) {
            memset(allow, 0, n_words * sizeof *allow);
        }
    }
    pthread_mutex_unlock(&w->g->lock);
}

int walk_legal(struct walk *w, const int32_t *draft, int n)
{
    int k = 0;
    pthread_mutex_lock(&w->g->lock);
    begin(w);
    struct spot s = w->at;
    while (k < n && !w->failed && step(w, &s, draft[k])) {
        k++;
    }
    pthread_mutex_unlock(&w->g->lock);
    return k;
}

/* The next byte, when one is likely: the only one, with a blank before it where one is usual.
 * -1: there is none. */
static int likely(struct walk *w, const struct spot *s)
{
    bool space = false;
    const int c = auto_only(w->g->a, s->state, &space);
    if (c < 0 || !space) {
        return c;
    }
    return w->lines ? -1 : s->last == ':' || s->last == ',' ? ' ' : c;
}

int walk_forced(struct walk *w, int32_t *ids, int most)
{
    char text[FORCED_MOST];
    size_t n = 0;
    pthread_mutex_lock(&w->g->lock);
    begin(w);
    struct spot s = w->at;
    while (s.phase == WP_ANSWER && !w->failed && n < sizeof text && s.state != AUTO_DEAD) {
        const int c = likely(w, &s);
        if (c < 0) {
            break;
        }
        text[n] = (char)c;
        if (!step_bytes(w, &s, text + n, 1)) {
            break;
        }
        n++;
    }
    pthread_mutex_unlock(&w->g->lock);
    return n > 0 ? w->words->source.encode(w->words->source.ctx, text, n, ids, most) : 0;
}

void walk_take(struct walk *w, int32_t id)
{
    pthread_mutex_lock(&w->g->lock);
    begin(w);
    const enum phase was = w->at.phase;
    w->failed = w->failed || !step(w, &w->at, id) || auto_full(w->g->a);
    w->begun = w->begun || w->at.phase == WP_ANSWER;
    if (w->g->open && was == WP_ANSWER) {
        take_names(w, &w->names, id);
    }
    if (w->at.phase == WP_ANSWER && !w->at.fresh && id >= 0 && id < w->words->n && !w->lines) {
        size_t n = 0;
        const char *p = words_bytes(w->words, id, &n);
        w->lines = n > 0 && memchr(p, '\n', n) != NULL;
    }
    pthread_mutex_unlock(&w->g->lock);
}

bool walk_complete(struct walk *w)
{
    pthread_mutex_lock(&w->g->lock);
    begin(w);
    const bool is =
        w->at.phase == WP_OVER || (w->at.phase == WP_ANSWER && auto_over(w->g->a, w->at.state));
    pthread_mutex_unlock(&w->g->lock);
    return is;
}
