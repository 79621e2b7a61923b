/* The graph of a grammar. Nodes are found again by their contents, so a part that is said twice
 * is one, and states that differ only in how they were reached become equal. */
#include "config.h"
#include "grammar/node.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define NODES_MOST (1 << 20)

struct nodes {
    struct node_rec *rec;
    int32_t n, cap;
    int32_t *table; /* of size slots: 1 + node, 0: free */
    int32_t slots;
    struct byte_set *sets;
    int32_t n_sets, cap_sets;
    node *body; /* of each rule; -1: none yet */
    int32_t n_rules, cap_rules;
    bool full;
    node character, plain; /* of JSON strings */
};

/* ---- making ---- */

static uint64_t key_of(const struct node_rec *r)
{
    const int32_t k[5] = {r->kind, r->a, r->b, r->lo, r->hi};
    return hash64(k, sizeof k, 0);
}

static bool same(const struct node_rec *p, const struct node_rec *q)
{
    return p->kind == q->kind && p->a == q->a && p->b == q->b && p->lo == q->lo && p->hi == q->hi;
}

static void put(struct nodes *x, int32_t n)
{
    uint64_t at = key_of(&x->rec[n]) & (uint64_t)(x->slots - 1);
    while (x->table[at]) {
        at = (at + 1) & (uint64_t)(x->slots - 1);
    }
    x->table[at] = n + 1;
}

static void grow(struct nodes *x)
{
    x->cap = x->cap ? 2 * x->cap : 256;
    x->rec = mem_realloc(x->rec, (size_t)x->cap * sizeof *x->rec);
    free(x->table);
    x->slots = 2 * x->cap;
    x->table = mem_zalloc((size_t)x->slots * sizeof *x->table);
    for (int32_t i = 0; i < x->n; i++) {
        put(x, i);
    }
}

static node make(struct nodes *x, struct node_rec r)
{
    uint64_t at = key_of(&r) & (uint64_t)(x->slots - 1);
    for (; x->table[at]; at = (at + 1) & (uint64_t)(x->slots - 1)) {
        if (same(&x->rec[x->table[at] - 1], &r)) {
            return x->table[at] - 1;
        }
    }
    if (x->n >= NODES_MOST) {
        x->full = true;
        return NODE_FAIL;
    }
    if (x->n == x->cap) {
        grow(x);
    }
    x->rec[x->n] = r;
    put(x, x->n);
    return x->n++;
}

struct nodes *nodes_create(void)
{
    struct nodes *x = mem_zalloc(sizeof *x);
    grow(x);
    make(x, (struct node_rec){.kind = NK_FAIL});
    make(x, (struct node_rec){.kind = NK_EMPTY});
    return x;
}

void nodes_free(struct nodes *x)
{
    if (x) {
        free(x->rec);
        free(x->table);
        free(x->sets);
        free(x->body);
        free(x);
    }
}

bool nodes_full(const struct nodes *x)
{
    return x->full;
}

node nodes_set(struct nodes *x, const struct byte_set *s)
{
    static const struct byte_set none;
    if (memcmp(s, &none, sizeof none) == 0) {
        return NODE_FAIL;
    }
    int32_t i = 0;
    while (i < x->n_sets && memcmp(&x->sets[i], s, sizeof *s) != 0) {
        i++;
    }
    if (i == x->n_sets) {
        if (x->n_sets == x->cap_sets) {
            x->cap_sets = x->cap_sets ? 2 * x->cap_sets : 64;
            x->sets = mem_realloc(x->sets, (size_t)x->cap_sets * sizeof *x->sets);
        }
        x->sets[x->n_sets++] = *s;
    }
    return make(x, (struct node_rec){.kind = NK_BYTES, .a = i});
}

node nodes_range(struct nodes *x, int from, int to)
{
    struct byte_set s = {{0}};
    for (int c = from; c <= to; c++) {
        byte_add(&s, c);
    }
    return nodes_set(x, &s);
}

node nodes_byte(struct nodes *x, int c)
{
    return nodes_range(x, c, c);
}

node nodes_text(struct nodes *x, const char *p, size_t n)
{
    node r = NODE_EMPTY;
    while (n > 0) {
        r = nodes_seq(x, nodes_byte(x, (unsigned char)p[--n]), r);
    }
    return r;
}

node nodes_str(struct nodes *x, const char *s)
{
    return nodes_text(x, s, strlen(s));
}

node nodes_seq(struct nodes *x, node a, node b)
{
    if (a == NODE_FAIL || b == NODE_FAIL) {
        return NODE_FAIL;
    }
    if (a == NODE_EMPTY || b == NODE_EMPTY) {
        return a == NODE_EMPTY ? b : a;
    }
    if (x->rec[a].kind != NK_SEQ) {
        return make(x, (struct node_rec){.kind = NK_SEQ, .a = a, .b = b});
    }
    /* To the right, so that equal ones are equal. */
    size_t n = 0;
    for (node i = a; x->rec[i].kind == NK_SEQ; i = x->rec[i].b) {
        n++;
    }
    node *part = mem_array(n + 1, sizeof *part), last = a;
    for (size_t i = 0; i < n; i++) {
        part[i] = x->rec[last].a;
        last = x->rec[last].b;
    }
    node r = make(x, (struct node_rec){.kind = NK_SEQ, .a = last, .b = b});
    while (n > 0 && r != NODE_FAIL) {
        r = make(x, (struct node_rec){.kind = NK_SEQ, .a = part[--n], .b = r});
    }
    free(part);
    return r;
}

node nodes_seq3(struct nodes *x, node a, node b, node c)
{
    return nodes_seq(x, a, nodes_seq(x, b, c));
}

node nodes_alt(struct nodes *x, node a, node b)
{
    if (a == NODE_FAIL || a == b) {
        return b;
    }
    if (b == NODE_FAIL) {
        return a;
    }
    if (x->rec[a].kind == NK_BYTES && x->rec[b].kind == NK_BYTES) {
        struct byte_set s = x->sets[x->rec[a].a];
        for (int i = 0; i < 8; i++) {
            s.bits[i] |= x->sets[x->rec[b].a].bits[i];
        }
        return nodes_set(x, &s);
    }
    return make(x, (struct node_rec){.kind = NK_ALT, .a = a, .b = b});
}

node nodes_rep(struct nodes *x, node a, int32_t lo, int32_t hi)
{
    lo = lo > REP_MOST ? REP_MOST : lo;
    hi = hi > REP_MOST ? REP_ANY : hi;
    if (hi < lo || (a == NODE_FAIL && lo > 0)) {
        return NODE_FAIL;
    }
    if (hi == 0 || a == NODE_FAIL || a == NODE_EMPTY) {
        return NODE_EMPTY;
    }
    if (lo == 1 && hi == 1) {
        return a;
    }
    return make(x, (struct node_rec){.kind = NK_REP, .a = a, .lo = lo, .hi = hi});
}

node nodes_opt(struct nodes *x, node a)
{
    return nodes_rep(x, a, 0, 1);
}

static int by_bytes(const void *a, const void *b)
{
    const struct node_text *p = a, *q = b;
    const size_t n = p->n < q->n ? p->n : q->n;
    const int d = n > 0 ? memcmp(p->p, q->p, n) : 0;
    return d ? d : (p->n > q->n) - (p->n < q->n);
}

/* Of sorted texts that agree in their first `at` bytes. Deep only as texts differ. */
static node sorted(struct nodes *x, const struct node_text *t, size_t n, size_t at)
{
    node all = NODE_FAIL;
    size_t i = 0;
    while (i < n && t[i].n == at) {
        all = NODE_EMPTY;
        i++;
    }
    while (i < n) {
        const char c = t[i].p[at];
        size_t end = i + 1;
        while (end < n && t[end].p[at] == c) {
            end++;
        }
        size_t alike = at + 1; /* as far as the first and the last agree, all do */
        while (alike < t[i].n && alike < t[end - 1].n && t[i].p[alike] == t[end - 1].p[alike]) {
            alike++;
        }
        const node rest = sorted(x, t + i, end - i, alike);
        all = nodes_alt(x, all, nodes_seq(x, nodes_text(x, t[i].p + at, alike - at), rest));
        i = end;
    }
    return all;
}

node nodes_texts(struct nodes *x, const struct node_text *t, size_t n)
{
    struct node_text *copy = mem_array(n + 1, sizeof *copy);
    if (n > 0) {
        memcpy(copy, t, n * sizeof *copy);
        qsort(copy, n, sizeof *copy, by_bytes);
    }
    const node r = sorted(x, copy, n, 0);
    free(copy);
    return r;
}

int32_t nodes_rule(struct nodes *x)
{
    if (x->n_rules == x->cap_rules) {
        x->cap_rules = x->cap_rules ? 2 * x->cap_rules : 32;
        x->body = mem_realloc(x->body, (size_t)x->cap_rules * sizeof *x->body);
    }
    x->body[x->n_rules] = NODE_FAIL;
    return x->n_rules++;
}

node nodes_ref(struct nodes *x, int32_t rule)
{
    return make(x, (struct node_rec){.kind = NK_REF, .a = rule});
}

void nodes_rule_set(struct nodes *x, int32_t rule, node body)
{
    x->body[rule] = body;
}

void nodes_text_is(struct nodes *x, node character, node plain)
{
    x->character = character;
    x->plain = plain;
}

node nodes_character(const struct nodes *x)
{
    return x->character;
}

node nodes_plain(const struct nodes *x)
{
    return x->plain;
}

/* ---- what holds for them ---- */

static bool productive(const struct nodes *x, const struct node_rec *r)
{
    switch ((enum node_kind)r->kind) {
    case NK_FAIL:
        return false;
    case NK_EMPTY:
    case NK_BYTES:
        return true;
    case NK_SEQ:
        return x->rec[r->a].productive && x->rec[r->b].productive;
    case NK_ALT:
        return x->rec[r->a].productive || x->rec[r->b].productive;
    case NK_REP:
        return r->lo == 0 || x->rec[r->a].productive;
    case NK_REF:
        return x->rec[x->body[r->a]].productive;
    }
    return false;
}

static bool empty(const struct nodes *x, const struct node_rec *r)
{
    switch ((enum node_kind)r->kind) {
    case NK_FAIL:
    case NK_BYTES:
        return false;
    case NK_EMPTY:
        return true;
    case NK_SEQ:
        return x->rec[r->a].empty && x->rec[r->b].empty;
    case NK_ALT:
        return x->rec[r->a].empty || x->rec[r->b].empty;
    case NK_REP:
        return r->lo == 0 || x->rec[r->a].empty;
    case NK_REF:
        return x->rec[x->body[r->a]].empty;
    }
    return false;
}

static void settle(struct nodes *x)
{
    for (bool more = true; more;) {
        more = false;
        for (int32_t i = 0; i < x->n; i++) {
            struct node_rec *r = &x->rec[i];
            const bool p = productive(x, r), m = empty(x, r);
            more = more || p != r->productive || m != r->empty;
            r->productive = p;
            r->empty = m;
        }
    }
}

/* Rules that can stand at the very beginning of a node, depth first; true: one of them is on the
 * way that leads here. state: 0 new, 1 on the way, 2 done. */
struct visit {
    node n;
    bool leave;
};

static bool begins_with_itself(const struct nodes *x, node root, uint8_t *state)
{
    size_t n = 0, cap = 64;
    struct visit *todo = mem_array(cap, sizeof *todo);
    bool found = false;
    todo[n++] = (struct visit){root, false};
    while (n > 0 && !found) {
        const struct visit v = todo[--n];
        if (v.leave) {
            state[v.n] = 2;
            continue;
        }
        if (state[v.n]) {
            found = state[v.n] == 1;
            continue;
        }
        state[v.n] = 1;
        const struct node_rec *r = &x->rec[v.n];
        node next[2] = {-1, -1};
        if (r->productive && r->kind == NK_SEQ) {
            next[0] = r->a;
            next[1] = x->rec[r->a].empty ? r->b : -1;
        } else if (r->productive && r->kind == NK_ALT) {
            next[0] = r->a;
            next[1] = r->b;
        } else if (r->productive && r->kind == NK_REP) {
            next[0] = r->a;
        } else if (r->productive && r->kind == NK_REF) {
            next[0] = x->body[r->a];
        }
        if (n + 3 > cap) {
            cap *= 2;
            todo = mem_realloc(todo, cap * sizeof *todo);
        }
        todo[n++] = (struct visit){v.n, true};
        for (int i = 0; i < 2; i++) {
            if (next[i] >= 0 && x->rec[next[i]].productive) {
                todo[n++] = (struct visit){next[i], false};
            }
        }
    }
    free(todo);
    return found;
}

int nodes_finish(struct nodes *x, node root, struct err *e)
{
    if (x->full) {
        return err_set(e, QE_USAGE, "it is too large: more than %d parts", NODES_MOST);
    }
    settle(x);
    if (!x->rec[root].productive) {
        return err_set(e, QE_USAGE, "nothing can match it");
    }
    /* What may be empty may be left out as often as one likes. */
    for (int32_t i = 0; i < x->n; i++) {
        if (x->rec[i].kind == NK_REP && x->rec[x->rec[i].a].empty) {
            x->rec[i].lo = 0;
        }
    }
    uint8_t *state = mem_zalloc((size_t)x->n);
    bool bad = false;
    for (int32_t i = 0; i < x->n_rules && !bad; i++) {
        bad = begins_with_itself(x, x->body[i], state);
    }
    free(state);
    return bad ? err_set(e, QE_USAGE, "a rule begins with itself: let it begin with something else")
               : 0;
}

const struct node_rec *nodes_at(const struct nodes *x, node n)
{
    return &x->rec[n];
}

node nodes_body(const struct nodes *x, int32_t rule)
{
    return x->body[rule];
}

const struct byte_set *nodes_bytes(const struct nodes *x, int32_t set)
{
    return &x->sets[set];
}

int32_t nodes_sets(const struct nodes *x)
{
    return x->n_sets;
}
