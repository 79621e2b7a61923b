#ifndef QUASAR_GRAMMAR_GRAMMAR_H
#define QUASAR_GRAMMAR_GRAMMAR_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * What an answer may be, as an automaton over bytes: made of a JSON schema, a regular
 * expression, a list of choices, or a grammar. Recursion is followed with a stack, so it is
 * as deep as the answer. docs/structured-output.md says what of each language is understood.
 * A grammar is immutable for its owners, and may be used by several walks at once.
 */
struct grammar;

enum grammar_kind {
    GK_OBJECT, /* any JSON object; the text is not looked at */
    GK_SCHEMA, /* a JSON schema */
    GK_REGEX,  /* the whole answer matches it */
    GK_CHOICE, /* a JSON array of strings: the answer is one of them */
    GK_EBNF    /* rules: name ::= … */
};

/* Compiles n bytes of text. strict: what a schema says and an automaton cannot keep is QE_USAGE;
 * else it is left out, and told in notes (may be NULL) as "keyword at #/place", with ", "
 * between. QE_FORMAT: the text is wrong; QE_USAGE: nothing can match it, or it is too large. All
 * of them say where. *out is one reference. */
int grammar_compile(enum grammar_kind kind, const char *p, size_t n, bool strict,
                    struct grammar **out, struct buf *notes, struct err *e);

/* The text of calls in a dialect of chat templates. XML:
 *   <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n…</function>\n</tool_call>
 * with strings as they are and all else as JSON. JSON:
 *   <tool_call>\n{"name": "NAME", "arguments": {…}}\n</tool_call> */
enum grammar_dialect { GD_XML, GD_JSON };

/* What of a call stands before the text of the grammar: nothing; <tool_call>; that and its line
 * break. */
enum grammar_from { GF_START, GF_TAG, GF_LINE };

/* Which calls. tools: an array of definitions as in requests ({"type": "function", "function":
 * {"name", "parameters", "strict", …}}); borrowed. */
struct grammar_tools {
    const json_t *tools;
    const char *only; /* the one to be called; NULL: any */
    enum grammar_dialect dialect;
    bool several; /* more calls may follow the first, a line break between */
    bool loose;   /* the arguments of tools that are not "strict" may be any */
    enum grammar_from from;
};

/* The automaton of an answer that is calls of these tools and nothing else, with arguments by
 * each tool's parameters: required ones present, none twice, types and values as the schema says,
 * in the order of the schema. Keywords that cannot be kept are left out, as without strict
 * above. QE_USAGE: no tool of that name, or no tool at all. */
int grammar_calls(const struct grammar_tools *t, struct grammar **out, struct buf *notes,
                  struct err *e);

void grammar_ref(struct grammar *g);
void grammar_free(struct grammar *g); /* NULL is allowed */

/* Whether all of these bytes are an answer; any thread. */
bool grammar_matches(struct grammar *g, const char *p, size_t n);
/* Whether they can be the beginning of one. */
bool grammar_begins(struct grammar *g, const char *p, size_t n);

#endif
