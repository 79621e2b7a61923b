#ifndef QUASAR_GRAMMAR_REGEX_H
#define QUASAR_GRAMMAR_REGEX_H

#include "grammar/chars.h"
#include "grammar/node.h"

/*
 * Regular expressions: the common part of ECMAScript's and Python's. Literals, ".", classes,
 * \d \w \s and their opposites, \n \t \r \f \v \0 \xHH \uHHHH \u{…}, groups (also named, not
 * kept), |, * + ? {m,n} (lazy or not is one), ^ and $ at the ends of an alternative. No
 * look-around, back references, \b, \p.
 */
struct regex_opts {
    enum char_form form;
    bool whole; /* matches all of the text; else any part of it (with `any` around) */
    node any;   /* any text, for that */
};
/* QE_FORMAT: it is no regular expression; QE_USAGE: it has what is not understood. */
int regex_compile(struct nodes *x, const char *p, size_t n, const struct regex_opts *o, node *out,
                  struct err *e);

#endif
