#ifndef QUASAR_TOKENIZER_TOOLCALL_H
#define QUASAR_TOKENIZER_TOOLCALL_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "base/buf.h"

/*
 * Finds tool calls in the text of an answer (never feed it a thought):
 *
 *   <tool_call>
 *   <function=NAME>
 *   <parameter=KEY>
 *   VALUE
 *   </parameter>
 *   </function>
 *   </tool_call>
 *
 * and what models make of it: no <tool_call> around, no closing tag, quoted
 * names, or a JSON body {"name", "arguments"}. Whatever does not parse comes
 * back as text, so texts and raw calls in order are the whole input. How the
 * input is cut into pieces makes no difference.
 */
struct toolcall;

struct toolcall_item {
    bool is_call;
    struct buf text;   /* plain text, or the source of the call */
    char *name;        /* calls only */
    json_t *arguments; /* calls only: an object */
};
void toolcall_item_fini(struct toolcall_item *it);

/* tools: the definitions given to the model ({"type": "function", "function":
 * {"name", "parameters"}} or the inner object), or NULL. Values are converted by
 * the schema found there; without one only objects and lists are read as JSON. */
struct toolcall *toolcall_create(const json_t *tools);
void toolcall_free(struct toolcall *t);

void toolcall_feed(struct toolcall *t, const char *p, size_t n);
/* The answer is over. A call that only lacks its closing tags still counts. */
void toolcall_finish(struct toolcall *t);
/* Takes the next text or call that is certain; false when there is none yet. */
bool toolcall_next(struct toolcall *t, struct toolcall_item *out);

#endif
