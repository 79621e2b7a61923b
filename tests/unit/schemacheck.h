#ifndef QUASAR_TESTS_SCHEMACHECK_H
#define QUASAR_TESTS_SCHEMACHECK_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Whether v is a value of a schema, by the words of JSON Schema 2020-12: written apart from the
 * grammars, to judge what comes out of them. Of formats only dates are looked at. */
bool schema_accepts(const json_t *root, const json_t *schema, const json_t *v);
/* The same of a text, which must be one JSON value, in which no object has a member twice. */
bool schema_accepts_text(const json_t *schema, const char *p, size_t n);

#endif
