#ifndef QUASAR_GRAMMAR_TWICE_H
#define QUASAR_GRAMMAR_TWICE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Names of members that are there already. An automaton cannot remember them; where a schema
 * leaves names open they are kept beside it, those of the objects that are open and no others.
 */
struct twice {
    char *pool; /* the names, one after the other, and of the open one what is there */
    size_t used, cap_pool;
    size_t *end; /* of each name in pool */
    size_t n, cap;
    size_t *level; /* of each open object or array: names before it; arrays have the top bit */
    size_t depth, cap_depth;
    bool in_string, escaped, in_name, expects; /* a name: in one, or one may begin */
};

void twice_fini(struct twice *t); /* zero is an empty text */
void twice_copy(struct twice *to, const struct twice *from);
/* n more bytes of a JSON text that is well formed. False: a name among them was in its object
 * before; they are taken all the same. */
bool twice_take(struct twice *t, const char *p, size_t n);
/* What twice_take would say; t stays as it is. */
bool twice_would(struct twice *t, const char *p, size_t n);

#endif
