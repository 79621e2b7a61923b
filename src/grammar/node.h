#ifndef QUASAR_GRAMMAR_NODE_H
#define QUASAR_GRAMMAR_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * What grammars are made of: expressions over bytes that share their parts, and named rules,
 * which may refer to each other. Equal expressions are one node.
 */
typedef int32_t node;
struct nodes;

enum node_kind {
    NK_FAIL,  /* nothing */
    NK_EMPTY, /* the empty text */
    NK_BYTES, /* one byte of a set: a is the set */
    NK_SEQ,   /* a, then b */
    NK_ALT,   /* a or b */
    NK_REP,   /* a, from lo to hi times (hi REP_ANY: any number) */
    NK_REF    /* rule a */
};
#define REP_ANY  INT32_MAX
#define REP_MOST (1 << 20) /* more in a bound is as many */

struct node_rec {
    uint8_t kind;
    bool empty;      /* after nodes_finish: the empty text is among it */
    bool productive; /* … it has a text at all */
    int32_t a, b, lo, hi;
};

struct byte_set {
    uint32_t bits[8];
};

struct nodes *nodes_create(void);
void nodes_free(struct nodes *x);

#define NODE_FAIL  0
#define NODE_EMPTY 1
node nodes_set(struct nodes *x, const struct byte_set *s);
node nodes_byte(struct nodes *x, int c);
node nodes_range(struct nodes *x, int from, int to);
node nodes_text(struct nodes *x, const char *p, size_t n);
node nodes_str(struct nodes *x, const char *s);
node nodes_seq(struct nodes *x, node a, node b);
node nodes_seq3(struct nodes *x, node a, node b, node c);
node nodes_alt(struct nodes *x, node a, node b);
node nodes_rep(struct nodes *x, node a, int32_t lo, int32_t hi);
node nodes_opt(struct nodes *x, node a);
/* One of n texts, in any order; those that begin alike share it. */
struct node_text {
    const char *p;
    size_t n;
};
node nodes_texts(struct nodes *x, const struct node_text *t, size_t n);

/* A rule without a body yet; the node that refers to it, and its body. */
int32_t nodes_rule(struct nodes *x);
node nodes_ref(struct nodes *x, int32_t rule);
void nodes_rule_set(struct nodes *x, int32_t rule, node body);

/* Told of a character of JSON strings and of the bytes that are one by themselves ("a" among
 * them), so that walks know long texts when they are in one. */
void nodes_text_is(struct nodes *x, node character, node plain);
node nodes_character(const struct nodes *x); /* NODE_FAIL: not told */
node nodes_plain(const struct nodes *x);

/* More nodes were made than there is room for; what is made since is NODE_FAIL. */
bool nodes_full(const struct nodes *x);

/* Works out what holds for all of them; no nodes are made after that. QE_USAGE: root has no text
 * at all; a rule begins with itself; there are too many. */
int nodes_finish(struct nodes *x, node root, struct err *e);

/* After nodes_finish. */
const struct node_rec *nodes_at(const struct nodes *x, node n);
node nodes_body(const struct nodes *x, int32_t rule);
const struct byte_set *nodes_bytes(const struct nodes *x, int32_t set);
int32_t nodes_sets(const struct nodes *x);

static inline bool byte_in(const struct byte_set *s, int c)
{
    return s->bits[c >> 5] >> (c & 31) & 1;
}

static inline void byte_add(struct byte_set *s, int c)
{
    s->bits[c >> 5] |= 1U << (c & 31);
}

#endif
