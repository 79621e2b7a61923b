#ifndef QUASAR_CONV_FORM_H
#define QUASAR_CONV_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "conv/conv.h"
#include "sched/sched.h"
#include "grammar/grammar.h"
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

/* Makes the engine's rule of a grammar (its reference is kept by the caller): for a job with
 * these ends whose prompt leaves a thought open (in_thought) or not. tok must outlive it.
 * may_call: a call (<tool_call>) may come instead of what the grammar says. The rule is owned by
 * whoever gets it: free is called through it. */
void forms_rule(struct forms *f, const struct tokenizer *tok, struct grammar *g, const int32_t *end,
                int n_end, bool in_thought, bool may_call, struct engine_form *out);

#endif
