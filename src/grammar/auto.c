/* A set of stacks, determinised as it is walked. A cell is the top of a stack: a node with what
 * is left of its bounds, and the cell below. The cells of a state wait for a byte (or for the
 * end): what can be done without one is done when the state is made. */
#include "config.h"
#include "grammar/auto.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define CELLS_LARGE  (1 << 19) /* then it is made anew … */
#define STATES_LARGE (1 << 15)
#define CELLS_MOST   (1 << 22) /* … and if it cannot be: full */
#define STATES_MOST  (1 << 18)
#define SET_MOST     (1 << 14) /* readings of one text at once */
#define END          0         /* the cell below all */

struct cell {
    int32_t node, lo, hi, up;
};

struct cells {
    struct cell *v;
    int32_t n, cap;
    int32_t *mark; /* the last closure that it was in */
    int32_t *table;
    int32_t slots;
};

struct state {
    int32_t at, n; /* of sets */
    bool accepts;
    int32_t near; /* the state of auto_near; -1: not known */
};

struct tables {
    struct cells cells;
    struct state *state;
    int32_t n_states, cap_states;
    int32_t *next; /* [n_states][classes]; -1: not known */
    int32_t *sets; /* cells of the states */
    int32_t n_sets, cap_sets;
    int32_t *table; /* of states */
    int32_t slots;
};

struct automaton {
    const struct nodes *x;
    uint8_t class_of[256];
    int classes;
    uint8_t byte_of[256]; /* one of each class */
    int width[256];       /* bytes of each class */
    struct tables t;
    int32_t *todo, *set; /* while a state is made */
    int32_t n_todo, cap_todo, n_set, cap_set;
    int32_t round;
    int near; /* what near states are for */
    bool full;
};

/* ---- growing ---- */

static void add_to(int32_t **v, int32_t *n, int32_t *cap, int32_t what)
{
    if (*n == *cap) {
        *cap = *cap ? 2 * *cap : 64;
        *v = mem_realloc(*v, (size_t)*cap * sizeof **v);
    }
    (*v)[(*n)++] = what;
}

static void cells_index(struct cells *c, int32_t i)
{
    uint32_t at = (uint32_t)hash64(&c->v[i], sizeof c->v[i], 1) & (uint32_t)(c->slots - 1);
    while (c->table[at]) {
        at = (at + 1) & (uint32_t)(c->slots - 1);
    }
    c->table[at] = i + 1;
}

static void cells_grow(struct cells *c)
{
    c->cap = c->cap ? 2 * c->cap : 256;
    c->v = mem_realloc(c->v, (size_t)c->cap * sizeof *c->v);
    c->mark = mem_realloc(c->mark, (size_t)c->cap * sizeof *c->mark);
    free(c->table);
    c->slots = 2 * c->cap;
    c->table = mem_zalloc((size_t)c->slots * sizeof *c->table);
    for (int32_t i = 0; i < c->n; i++) {
        cells_index(c, i);
    }
}

static int32_t cell_of(struct automaton *a, node n, int32_t lo, int32_t hi, int32_t up)
{
    struct cells *c = &a->t.cells;
    const struct cell k = {n, lo, hi, up};
    uint32_t at = (uint32_t)hash64(&k, sizeof k, 1) & (uint32_t)(c->slots - 1);
    for (; c->table[at]; at = (at + 1) & (uint32_t)(c->slots - 1)) {
        if (memcmp(&c->v[c->table[at] - 1], &k, sizeof k) == 0) {
            return c->table[at] - 1;
        }
    }
    if (c->n >= CELLS_MOST) {
        a->full = true;
        return END;
    }
    if (c->n == c->cap) {
        cells_grow(c);
    }
    c->v[c->n] = k;
    c->mark[c->n] = 0;
    cells_index(c, c->n);
    return c->n++;
}

static uint32_t set_hash(const int32_t *v, int32_t n)
{
    return (uint32_t)hash64(v, (size_t)n * sizeof *v, 2);
}

static void states_index(struct tables *t, int32_t s)
{
    uint32_t at = set_hash(t->sets + t->state[s].at, t->state[s].n) & (uint32_t)(t->slots - 1);
    while (t->table[at]) {
        at = (at + 1) & (uint32_t)(t->slots - 1);
    }
    t->table[at] = s + 1;
}

static void states_grow(struct automaton *a)
{
    struct tables *t = &a->t;
    t->cap_states = t->cap_states ? 2 * t->cap_states : 64;
    t->state = mem_realloc(t->state, (size_t)t->cap_states * sizeof *t->state);
    t->next = mem_realloc(t->next, (size_t)t->cap_states * (size_t)a->classes * sizeof *t->next);
    free(t->table);
    t->slots = 2 * t->cap_states;
    t->table = mem_zalloc((size_t)t->slots * sizeof *t->table);
    for (int32_t i = 0; i < t->n_states; i++) {
        states_index(t, i);
    }
}

static int by_number(const void *a, const void *b)
{
    const int32_t p = *(const int32_t *)a, q = *(const int32_t *)b;
    return (p > q) - (p < q);
}

/* The state of a->set. */
static int32_t state_of(struct automaton *a)
{
    struct tables *t = &a->t;
    const int32_t n = a->n_set;
    if (n > 1) {
        qsort(a->set, (size_t)n, sizeof *a->set, by_number);
    }
    uint32_t at = set_hash(a->set, n) & (uint32_t)(t->slots - 1);
    for (; t->table[at]; at = (at + 1) & (uint32_t)(t->slots - 1)) {
        const struct state *s = &t->state[t->table[at] - 1];
        if (s->n == n &&
            (n == 0 || memcmp(t->sets + s->at, a->set, (size_t)n * sizeof *a->set) == 0)) {
            return t->table[at] - 1;
        }
    }
    if (t->n_states >= STATES_MOST) {
        a->full = true;
        return AUTO_DEAD;
    }
    if (t->n_states == t->cap_states) {
        states_grow(a);
    }
    const int32_t s = t->n_states++;
    t->state[s] = (struct state){.at = t->n_sets, .n = n, .near = -1};
    t->state[s].accepts = n > 0 && a->set[0] == END;
    for (int32_t i = 0; i < n; i++) {
        add_to(&t->sets, &t->n_sets, &t->cap_sets, a->set[i]);
    }
    memset(t->next + (size_t)s * (size_t)a->classes, 0xff, (size_t)a->classes * sizeof *t->next);
    states_index(t, s);
    return s;
}

/* ---- making states ---- */

static void set_begin(struct automaton *a)
{
    a->n_set = a->n_todo = 0;
    a->round++;
}

static void later(struct automaton *a, node n, int32_t up)
{
    const struct node_rec *r = nodes_at(a->x, n);
    if (!r->productive) {
        return;
    }
    const bool rep = r->kind == NK_REP;
    add_to(&a->todo, &a->n_todo, &a->cap_todo, cell_of(a, n, rep ? r->lo : 0, rep ? r->hi : 0, up));
}

static void open_rep(struct automaton *a, const struct cell *c, const struct node_rec *r)
{
    if (c->lo == 0) {
        add_to(&a->todo, &a->n_todo, &a->cap_todo, c->up);
    }
    if (!nodes_at(a->x, r->a)->productive) {
        return;
    }
    const int32_t hi = c->hi == REP_ANY ? REP_ANY : c->hi - 1;
    const int32_t rest =
        hi == 0 ? c->up : cell_of(a, c->node, c->lo > 0 ? c->lo - 1 : 0, hi, c->up);
    later(a, r->a, rest);
}

/* Adds what a stack comes to before the next byte. */
static void set_add(struct automaton *a, int32_t cell)
{
    add_to(&a->todo, &a->n_todo, &a->cap_todo, cell);
    while (a->n_todo > 0 && !a->full) {
        const int32_t i = a->todo[--a->n_todo];
        if (a->t.cells.mark[i] == a->round) {
            continue;
        }
        a->t.cells.mark[i] = a->round;
        const struct cell c = a->t.cells.v[i];
        if (i == END) {
            add_to(&a->set, &a->n_set, &a->cap_set, i);
            continue;
        }
        const struct node_rec *r = nodes_at(a->x, c.node);
        switch ((enum node_kind)r->kind) {
        case NK_FAIL:
            break;
        case NK_EMPTY:
            add_to(&a->todo, &a->n_todo, &a->cap_todo, c.up);
            break;
        case NK_BYTES:
            add_to(&a->set, &a->n_set, &a->cap_set, i);
            break;
        case NK_SEQ:
            later(a, r->a,
                  cell_of(a, r->b, nodes_at(a->x, r->b)->lo, nodes_at(a->x, r->b)->hi, c.up));
            break;
        case NK_ALT:
            later(a, r->a, c.up);
            later(a, r->b, c.up);
            break;
        case NK_REP:
            open_rep(a, &c, r);
            break;
        case NK_REF:
            later(a, nodes_body(a->x, r->a), c.up);
            break;
        }
        a->full = a->full || a->n_set > SET_MOST || a->n_todo > 16 * SET_MOST;
    }
}

static int32_t set_end(struct automaton *a)
{
    return a->full ? AUTO_DEAD : state_of(a);
}

/* ---- classes of bytes ---- */

static void classes(struct automaton *a)
{
    a->classes = 1;
    for (int32_t s = 0; s < nodes_sets(a->x) && a->classes < 256; s++) {
        const struct byte_set *set = nodes_bytes(a->x, s);
        int in[256], out[256]; /* the new class of each, of bytes in the set */
        int n = a->classes;
        for (int i = 0; i < n; i++) {
            in[i] = out[i] = -1;
        }
        for (int c = 0; c < 256; c++) {
            *(byte_in(set, c) ? &in[a->class_of[c]] : &out[a->class_of[c]]) = 0;
        }
        for (int i = 0; i < a->classes; i++) {
            in[i] = in[i] == 0 && out[i] == 0 ? n++ : i;
        }
        for (int c = 0; c < 256; c++) {
            if (byte_in(set, c)) {
                a->class_of[c] = (uint8_t)in[a->class_of[c]];
            }
        }
        a->classes = n;
    }
    for (int c = 255; c >= 0; c--) {
        a->byte_of[a->class_of[c]] = (uint8_t)c;
        a->width[a->class_of[c]]++;
    }
}

/* ---- the face ---- */

static void tables_init(struct automaton *a)
{
    a->t = (struct tables){.n_states = 0};
    a->round = 0;
    cells_grow(&a->t.cells);
    states_grow(a);
    cell_of(a, NODE_EMPTY, 0, 0, -1); /* END */
    set_begin(a);
    state_of(a); /* AUTO_DEAD */
}

static void tables_fini(struct tables *t)
{
    free(t->cells.v);
    free(t->cells.mark);
    free(t->cells.table);
    free(t->state);
    free(t->next);
    free(t->sets);
    free(t->table);
}

struct automaton *auto_create(const struct nodes *x)
{
    struct automaton *a = mem_zalloc(sizeof *a);
    a->x = x;
    classes(a);
    tables_init(a);
    return a;
}

void auto_free(struct automaton *a)
{
    if (a) {
        tables_fini(&a->t);
        free(a->todo);
        free(a->set);
        free(a);
    }
}

int32_t auto_start(struct automaton *a, node root)
{
    const struct node_rec *r = nodes_at(a->x, root);
    set_begin(a);
    set_add(a, cell_of(a, root, r->kind == NK_REP ? r->lo : 0, r->kind == NK_REP ? r->hi : 0, END));
    return set_end(a);
}

int32_t auto_step(struct automaton *a, int32_t state, int byte)
{
    const int class = a->class_of[byte];
    const size_t at = (size_t)state * (size_t)a->classes + (size_t) class;
    if (a->t.next[at] >= 0) {
        return a->t.next[at];
    }
    set_begin(a);
    const struct state s = a->t.state[state];
    for (int32_t i = 0; i < s.n; i++) {
        const int32_t cell = a->t.sets[s.at + i];
        const struct cell c = a->t.cells.v[cell];
        if (cell != END && byte_in(nodes_bytes(a->x, nodes_at(a->x, c.node)->a), byte)) {
            set_add(a, c.up);
        }
    }
    const int32_t to = set_end(a);
    if (!a->full) {
        a->t.next[at] = to;
    }
    return to;
}

bool auto_accepts(const struct automaton *a, int32_t state)
{
    return a->t.state[state].accepts;
}

bool auto_over(const struct automaton *a, int32_t state)
{
    return a->t.state[state].accepts && a->t.state[state].n == 1;
}

static bool is_space(int c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

int auto_only(struct automaton *a, int32_t state, bool *space)
{
    int only = -1;
    *space = false;
    if (auto_accepts(a, state)) {
        return -1;
    }
    for (int c = 0; c < a->classes; c++) {
        if (auto_step(a, state, a->byte_of[c]) == AUTO_DEAD) {
            continue;
        }
        if (a->width[c] == 1 && is_space(a->byte_of[c])) {
            *space = true;
        } else if (only >= 0 || a->width[c] > 1) {
            return -1;
        } else {
            only = a->byte_of[c];
        }
    }
    return only;
}

static int32_t near_cell(struct automaton *a, int32_t cell, int n)
{
    /* From the bottom up: a chain is as deep as the text. */
    int32_t depth = 0;
    bool far = false;
    for (int32_t i = cell; i != END; i = a->t.cells.v[i].up) {
        const struct cell *c = &a->t.cells.v[i];
        far = far || c->lo > n || (c->hi > n && c->hi != REP_ANY);
        depth++;
    }
    if (!far) {
        return cell;
    }
    int32_t *chain = mem_array((size_t)depth, sizeof *chain), up = END;
    for (int32_t i = cell, k = 0; i != END; i = a->t.cells.v[i].up) {
        chain[k++] = i;
    }
    while (depth > 0) {
        const struct cell c = a->t.cells.v[chain[--depth]];
        up = cell_of(a, c.node, c.lo > n ? n : c.lo, c.hi > n ? REP_ANY : c.hi, up);
    }
    free(chain);
    return up;
}

int32_t auto_near(struct automaton *a, int32_t state, int n)
{
    if (a->t.state[state].near >= 0 && a->near == n) {
        return a->t.state[state].near;
    }
    a->near = n; /* one owner, one number */
    const struct state s = a->t.state[state];
    a->n_set = 0;
    for (int32_t i = 0; i < s.n; i++) {
        const int32_t cell = near_cell(a, a->t.sets[s.at + i], n);
        add_to(&a->set, &a->n_set, &a->cap_set, cell);
    }
    if (a->n_set > 1) { /* two may have become one */
        qsort(a->set, (size_t)a->n_set, sizeof *a->set, by_number);
        int32_t k = 1;
        for (int32_t i = 1; i < a->n_set; i++) {
            if (a->set[i] != a->set[k - 1]) {
                a->set[k++] = a->set[i];
            }
        }
        a->n_set = k;
    }
    const int32_t to = set_end(a);
    if (!a->full) {
        a->t.state[state].near = to;
    }
    return a->full ? state : to;
}

/* The cell below a character that is being waited for; -1: there is none. */
static int32_t below_character(const struct automaton *a, const struct state *s)
{
    for (int32_t i = 0; i < s->n; i++) {
        const int32_t cell = a->t.sets[s->at + i];
        if (cell != END && a->t.cells.v[cell].node == nodes_plain(a->x)) {
            return a->t.cells.v[cell].up;
        }
    }
    return -1;
}

bool auto_in_text(struct automaton *a, int32_t state, int32_t *most)
{
    const node character = nodes_character(a->x);
    const struct state s = a->t.state[state];
    const int32_t rest = character == NODE_FAIL ? -1 : below_character(a, &s);
    if (rest < 0) {
        return false;
    }
    /* All of the state must be this character, or the end of the string. */
    set_begin(a);
    set_add(a, cell_of(a, character, 0, 0, rest));
    for (int32_t i = 0; i < s.n; i++) {
        const int32_t cell = a->t.sets[s.at + i];
        if (cell == END) {
            return false;
        }
        const struct byte_set *set = nodes_bytes(a->x, nodes_at(a->x, a->t.cells.v[cell].node)->a);
        struct byte_set quote = {{0}};
        byte_add(&quote, '"');
        if (a->t.cells.mark[cell] != a->round && memcmp(set, &quote, sizeof quote) != 0) {
            return false;
        }
    }
    const struct cell *c = &a->t.cells.v[rest];
    const struct node_rec *r = rest == END ? NULL : nodes_at(a->x, c->node);
    const bool more = r && r->kind == NK_REP && r->a == character;
    *most = !more ? 1 : c->hi >= REP_MOST ? REP_ANY : c->hi + 1;
    return !a->full;
}

bool auto_full(const struct automaton *a)
{
    return a->full;
}

bool auto_large(const struct automaton *a)
{
    return a->full || a->t.n_states > STATES_LARGE || a->t.cells.n > CELLS_LARGE;
}

static int32_t copy_cell(struct automaton *a, const struct tables *from, int32_t cell)
{
    int32_t depth = 0, up = END;
    for (int32_t i = cell; i != END; i = from->cells.v[i].up) {
        depth++;
    }
    int32_t *chain = mem_array((size_t)depth + 1, sizeof *chain);
    for (int32_t i = cell, k = 0; i != END; i = from->cells.v[i].up) {
        chain[k++] = i;
    }
    while (depth > 0) {
        const struct cell c = from->cells.v[chain[--depth]];
        up = cell_of(a, c.node, c.lo, c.hi, up);
    }
    free(chain);
    return up;
}

void auto_shrink(struct automaton *a, int32_t *states, int n)
{
    struct tables old = a->t;
    a->full = false;
    tables_init(a);
    for (int i = 0; i < n; i++) {
        const struct state s = old.state[states[i]];
        a->n_set = 0;
        for (int32_t k = 0; k < s.n; k++) {
            const int32_t cell = copy_cell(a, &old, old.sets[s.at + k]);
            add_to(&a->set, &a->n_set, &a->cap_set, cell);
        }
        states[i] = set_end(a);
    }
    tables_fini(&old);
}
