#ifndef QUASAR_GRAMMAR_SCHEMA_H
#define QUASAR_GRAMMAR_SCHEMA_H

#include <jansson.h>

#include "base/buf.h"
#include "grammar/syntax.h"

/*
 * JSON schemas as expressions. Subschemas that are referred to become rules, so that they may
 * refer to themselves. docs/structured-output.md lists the keywords.
 */
struct schema {
    struct syntax s;
    const json_t *root; /* what "#" means */
    bool strict;
    struct buf *notes; /* may be NULL: what was left out */
    struct err *e;

    int rc;           /* the first failure */
    struct buf place; /* where we are: "#/properties/a" */
    int depth, made;  /* schemas around us; all of them so far */
    struct schema_rule {
        const json_t *schema;
        int32_t rule;
    } * rules;
    size_t n_rules, cap_rules;
    json_t *kept; /* schemas that were merged */
    bool open;    /* some object has members that the schema does not name */
};

/* x: where nodes go; the rest as grammar_compile. root is borrowed until schema_fini. */
void schema_init(struct schema *c, struct nodes *x, const json_t *root, bool strict,
                 struct buf *notes, struct err *e);
void schema_fini(struct schema *c);

/* A value of the schema v, which lies in root or is its own. NODE_FAIL with c->rc < 0 where it
 * cannot be made; without that: no value fits. */
node schema_node(struct schema *c, const json_t *v);

/* ---- the parts; src/grammar only ---- */

/* c->rc and *c->e, with the place. */
node schema_wrong(struct schema *c, int code, const char *what);
/* A keyword that cannot be kept: noted, or refused where strict. */
void schema_left_out(struct schema *c, const char *keyword);
/* Enters a part of the schema, and leaves it: what schema_enter gave goes to schema_leave. */
size_t schema_enter(struct schema *c, const char *key, const char *name);
void schema_leave(struct schema *c, size_t before);
/* The schema that holds where both do, without $ref in its first level. Borrowed from c. */
const json_t *schema_merge(struct schema *c, const json_t *a, const json_t *b);
/* What a schema with $ref stands for; NULL with c->rc. */
const json_t *schema_target(struct schema *c, const json_t *v);

node schema_object(struct schema *c, const json_t *v);
node schema_array(struct schema *c, const json_t *v);
node schema_string(struct schema *c, const json_t *v);
/* A bound that is a whole number, 0 or more; `none` where there is none. */
int32_t schema_bound(struct schema *c, const json_t *v, const char *key, int32_t none);

#endif
