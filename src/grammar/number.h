#ifndef QUASAR_GRAMMAR_NUMBER_H
#define QUASAR_GRAMMAR_NUMBER_H

#include <jansson.h>

#include "grammar/node.h"

/*
 * JSON numbers between bounds, exactly, by their digits. Numbers whose bounds leave it open have
 * at most 18 digits before the point, 18 after it and 2 in the exponent; with a bound there is no
 * exponent.
 */

/* Whether a number is beyond 64 bits, so that the text that it was read from is not known. */
bool number_is_wide(const json_t *v);
/* a less b, exactly: negative, 0, positive. */
int number_compare(const json_t *a, const json_t *b);

struct number_bounds {
    const json_t *lo, *hi; /* numbers; NULL: none */
    bool lo_open, hi_open; /* the bound itself is not among them */
};
/* A bound that is wide leaves what has 64 bits. */
node number_node(struct nodes *x, const struct number_bounds *b, bool integer);

#endif
