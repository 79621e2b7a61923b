#ifndef QUASAR_CONV_LANDED_H
#define QUASAR_CONV_LANDED_H

#include <jansson.h>
#include <stddef.h>

#include "view/tools.h"

/* What became of tool calls: counted, told to the log, and what was missed is kept on request. */
struct landed;

/* misses: a file to which answers with missed calls are appended; NULL: they are not kept. */
struct landed *landed_create(const char *misses);
void landed_free(struct landed *l);

/* A turn with tools is over. modes: of its calls, an array of strings; missed: markers that stayed
 * text; text: of the answer; tools: the definitions. */
void landed_turn(struct landed *l, const json_t *modes, int missed, const char *text, size_t n,
                 const json_t *tools);
/* Any thread. */
void landed_view(const struct landed *l, struct view_tools *out);

#endif
