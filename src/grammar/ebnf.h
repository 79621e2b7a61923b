#ifndef QUASAR_GRAMMAR_EBNF_H
#define QUASAR_GRAMMAR_EBNF_H

#include "base/err.h"
#include "grammar/node.h"

/*
 * Grammars in the usual notation: rules "name ::= …" (also ":" and "="), in which stand names,
 * "texts" and 'texts', classes [a-z], ., /regular expressions/, groups ( ), |, * + ? {m,n};
 * comments from # or // to the end of the line. The answer is the rule root, or start, or the
 * first.
 */
int ebnf_compile(struct nodes *x, const char *p, size_t n, node *out, struct err *e);

#endif
