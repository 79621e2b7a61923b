#ifndef QUASAR_HTTP_CHOICE_H
#define QUASAR_HTTP_CHOICE_H

#include "http/api.h"
#include "http/fields.h"

/* What a request says of calling tools, and of thinking, in every client's words. */

/* tool_choice and the like, and the tools (in the template's form; NULL: none) that the model is
 * shown: none where none may be called. */
void choice_take(struct ask *a, struct fields *f, json_t *tools);

/* The word for how much to think: none and minimal turn it off; NULL or "": nothing is said. field
 * is its name in messages; unknown words are wrong if checked. on: any other turns it on. */
void choice_effort(struct ask *a, struct fields *f, const char *field, const char *word, bool on,
                   bool checked);
/* Switches and budgets that several servers know: enable_thinking, thinking_budget,
 * thinking {type, budget_tokens}, chat_template_kwargs, reasoning {max_tokens, enabled}. */
void choice_thinking(struct ask *a, struct fields *f);

#endif
