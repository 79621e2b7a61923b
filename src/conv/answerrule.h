#ifndef QUASAR_CONV_ANSWERRULE_H
#define QUASAR_CONV_ANSWERRULE_H

#include <jansson.h>

#include "conv/form.h"
#include "conv/settings.h"

/* What an answer is asked for with, as far as its form depends on it. All borrowed. */
struct answer_ask {
    const struct settings *set;
    const json_t *tools;         /* definitions as in requests; NULL: none */
    const struct tokenizer *tok; /* outlives the rule */
    const int32_t *end;          /* ids that end it */
    int n_end;
    int room;           /* tokens that the window leaves for it */
    bool opens_thought; /* the prompt leaves a thought open … */
    bool opens_call;    /* … or a call, which must come */
};

/* The rule of all that is wanted of an answer at once: a call that must come, or the form that
 * was asked for, where with tools a call may come instead; calls of tools that are strict; a
 * thought with a budget. out->ctx NULL: nothing is. Errors as forms_grammar. */
int answer_rule(struct forms *f, const struct answer_ask *a, struct engine_form *out,
                struct err *e);

/* The tools that may be called: all, or those of a list of names with a line break after each
 * (NULL: all). New reference. */
json_t *answer_tools(const json_t *tools, const char *allowed);

#endif
