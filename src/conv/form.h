#ifndef QUASAR_CONV_FORM_H
#define QUASAR_CONV_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "conv/conv.h"
#include "sched/sched.h"
#include "grammar/grammar.h"
#include "grammar/words.h"
#include "tokenizer/tokenizer.h"

/*
 * Forms of answers: the grammars that requests name, compiled once and kept by what they were
 * made of, together with the tokens of the model. Any thread.
 */
struct forms;

struct forms *forms_create(void);
void forms_free(struct forms *f); /* NULL is allowed; forms made with it may live on */

/* The grammar of a form (not of CF_NONE), one reference; compiled unless it is kept from before.
 * What is left out of it is logged when it is compiled. Errors as grammar_compile. */
int forms_grammar(struct forms *f, const struct conv_form *form, struct grammar **out,
                  struct err *e);
/* … of calls, as grammar_calls. */
int forms_calls(struct forms *f, const struct grammar_tools *t, struct grammar **out,
                struct err *e);

/* The tokens of tok, which must outlive them, as a tree; made once. One reference. */
struct words *forms_words(struct forms *f, const struct tokenizer *tok);

/* How a grammar is walked along an answer. */
struct form_walk {
    struct grammar *grammar;     /* borrowed */
    const struct tokenizer *tok; /* outlives the rule */
    const int32_t *end;          /* ids that end the answer; copied */
    int n_end;
    bool in_thought; /* the prompt leaves a thought open */
    bool may_call;   /* a call (<tool_call>) may come instead of what the grammar says */
    bool between;    /* the grammar is of a call: it holds behind each <tool_call>, and around the
                        calls all may come */
};
/* Makes the engine's rule of it. It is owned by whoever gets it: free is called through it. */
void forms_rule(struct forms *f, const struct form_walk *how, struct engine_form *out);

#endif
