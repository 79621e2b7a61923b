#ifndef QUASAR_CONV_PROMPT_H
#define QUASAR_CONV_PROMPT_H

#include <jansson.h>

#include "conv/settings.h"
#include "sched/sched.h"
#include "tokenizer/template.h"
#include "tokenizer/tokenizer.h"

/* Turns conversations into token ids with a model's own tokenizer and template. */
struct prompt {
    struct tokenizer *tok;
    bool has_template;
    enum template_kind kind;
    struct err no_template; /* why there is none */
};

/* From the blobs of a loaded model. template: NULL, a name, or a file. A model
 * without a usable template of its own is still good for bare text. */
int prompt_open(struct prompt *p, const struct sched *s, const char *template, struct err *e);
void prompt_close(struct prompt *p);

/* What a prompt is beside its ids. */
struct prompt_shape {
    bool opens_thought; /* it ends inside a thought */
    bool opens_call;    /* it ends with the beginning of a tool call */
    struct rendered_ends ends;
};

/* The ids that ask for an answer to messages. System messages lose the lines in which
 * clients count or date their requests: what else is the same would never be reused. */
int prompt_messages(const struct prompt *p, const json_t *messages, const json_t *tools,
                    const struct settings *s, struct tok_ids *ids, struct prompt_shape *shape,
                    struct err *e);

#endif
