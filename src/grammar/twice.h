#ifndef QUASAR_GRAMMAR_TWICE_H
#define QUASAR_GRAMMAR_TWICE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Names of members that are there already. An automaton cannot remember them; where a schema
 * leaves names open they are looked for in the text so far.
 */
struct twice {
    struct name {
        size_t at, n;
    } * names; /* of the objects that are open, the innermost last */
    size_t n, cap;
    size_t *level; /* of each open object or array: names before it; arrays have the top bit */
    size_t depth, cap_depth;
    bool in_string, escaped, in_name, expects; /* a name: in one, or one may begin */
    size_t from;                               /* of the name that is open */
    const char *text;
};

/* Looks through the beginning of a JSON text, which is borrowed. */
void twice_scan(struct twice *t, const char *text, size_t n);
void twice_fini(struct twice *t);
/* Whether n more bytes end a name that the innermost object has. */
bool twice_ends(const struct twice *t, const char *p, size_t n);

#endif
