#ifndef QUASAR_GRAMMAR_SYNTAX_H
#define QUASAR_GRAMMAR_SYNTAX_H

#include <jansson.h>

#include "base/buf.h"
#include "grammar/node.h"

/*
 * The pieces of JSON text: what every grammar of JSON shares. White space is bounded: at most a
 * blank, or a line break and its indentation.
 */
struct syntax {
    struct nodes *x;
    node space;         /* where there may be some */
    node comma, colon;  /* with the space behind */
    node character;     /* one of a string, in any way it can be written */
    node text;          /* any number of them */
    node string;        /* any string */
    node number, whole; /* any number; any whole number */
    node value;         /* anything, however deep */
    node object, array; /* any */
};
void syntax_init(struct syntax *s, struct nodes *x);

/* The value itself, with any white space between its parts. */
node syntax_literal(struct syntax *s, const json_t *v);
/* A string of these characters, in the usual way of writing it. */
node syntax_string(struct syntax *s, const char *p, size_t n);
/* "key": value */
node syntax_pair(struct syntax *s, node key, node value);
/* Any string but these n. */
node syntax_other_key(struct syntax *s, const char *const *keys, size_t n);

#endif
