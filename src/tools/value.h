#ifndef QUASAR_TOOLS_VALUE_H
#define QUASAR_TOOLS_VALUE_H

#include <jansson.h>
#include <stddef.h>

#include "tools/toolset.h"

/* Text of a parameter to a JSON value, by the tool's schema. */

/* The value of a parameter's text; one that does not fit its schema stays the text it is: the
 * tool refuses it, not the reader. tool, key: whose; tool NULL: unknown. New reference. */
json_t *value_convert(const struct tool *tool, const char *key, const char *p, size_t n);
/* The values of an object that are texts where the schema allows none, converted in place. */
void value_fit(const struct tool *tool, json_t *args);
/* Parses JSON, forgiving raw control characters inside strings; NULL if bad. */
json_t *value_json(const char *p, size_t n);

#endif
