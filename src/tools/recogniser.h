#ifndef QUASAR_TOOLS_RECOGNISER_H
#define QUASAR_TOOLS_RECOGNISER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/*
 * Finds tool calls in what a model says, as it says it. The shape it was taught is
 *
 *   <tool_call>
 *   <function=NAME>
 *   <parameter=KEY>
 *   VALUE
 *   </parameter>
 *   </function>
 *   </tool_call>
 *
 * or, in the other dialect, {"name": NAME, "arguments": {…}} in the wrapper; docs/tools.md lists
 * what models make of both, and all of that is found too. What stands in displayed Markdown, what
 * belongs to a result that the model made up, and what is only nearly a call stays text. Texts,
 * calls and residue in their order are the whole input, byte for byte. How the input is cut into
 * pieces makes no difference: it is looked at one byte at a time.
 */
struct recogniser;

enum tool_item_kind {
    TOOL_TEXT,
    TOOL_CALL,
    TOOL_RESIDUE /* of markers around calls: for nobody to see */
};

struct tool_item {
    enum tool_item_kind kind;
    struct buf text; /* its source */
    /* Calls: the name (declared, except mode "u20"), an object, and which shape it had: "0a" and
     * "0b" are as taught. */
    char *name;
    json_t *arguments;
    const char *mode;
};
void tool_item_fini(struct tool_item *it);

struct recogniser_opts {
    const json_t *tools; /* the definitions; copied. See tools/toolset.h */
    bool strict;         /* only what is exactly as taught */
    bool declared;       /* no call of another name, however well formed */
    bool thought;        /* what is read is a thought: only calls in a wrapper */
};
struct recogniser *recogniser_create(const struct recogniser_opts *o);
void recogniser_free(struct recogniser *r);

void recogniser_feed(struct recogniser *r, const char *p, size_t n);
/* Nothing follows. cut: because a limit ended it, so that what is incomplete stays text. */
void recogniser_finish(struct recogniser *r, bool cut);
/* Takes the next item that is certain; false when there is none yet. */
bool recogniser_next(struct recogniser *r, struct tool_item *out);

/* Markers that stayed in the text though nothing shows them: calls that were missed. */
int recogniser_missed(const struct recogniser *r);

/* Every mode by its name, in the order of docs/tools.md; NULL ends the list. */
extern const char *const tool_modes[];
/* Whether calls of this mode needed no help. */
bool tool_mode_taught(const char *mode);

#endif
