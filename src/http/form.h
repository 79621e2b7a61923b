#ifndef QUASAR_HTTP_FORM_H
#define QUASAR_HTTP_FORM_H

#include "http/api.h"
#include "http/fields.h"

/*
 * What clients say about the form of an answer, in every shape: into a->q.form, whose text is a's.
 * A form that cannot be is told when the request is made (QE_FORMAT, QE_USAGE).
 */

/* {"type": "text" | "json_object" | "json_schema" | "regex" | "choice" | "grammar", …}; where the
 * schema is, and strict, beside the type or in an object "json_schema". key names it in errors;
 * v may be NULL: nothing is said. */
void form_take(struct ask *a, struct fields *f, const char *key, const json_t *v);
/* structured_outputs {json, json_object, regex, choice, grammar}, guided_json, guided_regex,
 * guided_choice, guided_grammar. */
void form_take_guided(struct ask *a, struct fields *f);

#endif
