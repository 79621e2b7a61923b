#ifndef QUASAR_HTTP_FIELDS_H
#define QUASAR_HTTP_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define FIELDS_NAME_MOST 200 /* bytes of a tool's name */

/*
 * Fields of a request's body. A field that is missing or null leaves the value as it was; one of
 * a wrong type or range is QE_FORMAT, and its name is left in f->field. After a failure the rest do
 * nothing, so that a parser may read all its fields and look once.
 */
struct fields {
    const json_t *o;
    const char *field; /* at fault */
    struct err e;
};

void fields_num(struct fields *f, const char *key, double lo, double hi, double *out);
void fields_int(struct fields *f, const char *key, int64_t lo, int64_t hi, int64_t *out);
/* As fields_int, into an int; more than hi counts as hi. */
void fields_limit(struct fields *f, const char *key, int lo, int hi, int *out);
void fields_bool(struct fields *f, const char *key, bool *out);
/* Borrowed from the body. */
void fields_str(struct fields *f, const char *key, const char **out);
/* An array or object, borrowed; NULL when there is none. */
json_t *fields_array(struct fields *f, const char *key);
json_t *fields_object(struct fields *f, const char *key);
/* A string inside an object of the body, "" when there is none; name is what both are called in
 * messages ("reasoning.effort"). Borrowed. */
const char *fields_word(struct fields *f, const char *object, const char *key, const char *name);
/* The array of tools, whose items must be objects; within (NULL: the item itself) holds its name
 * and, as schema, what it takes. Names must be strings that the markup of a call can carry, schemas
 * objects. NULL: there is none. */
json_t *fields_tools(struct fields *f, const char *within, const char *schema);
/* tool_choice must be a string or an object, where its shape has both. */
void fields_choice(struct fields *f, bool string);
/* A string, or an array of at most max strings; *list is allocated, its strings borrowed. */
void fields_strings(struct fields *f, const char *key, size_t max, const char ***list, size_t *n);
/* What is wrong with a field, in words. */
void fields_wrong(struct fields *f, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* … with item i of it: "KEY[i]: …". */
void fields_wrong_item(struct fields *f, const char *key, size_t i, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
bool fields_ok(const struct fields *f);

/* What kind of value it is, in words. */
const char *field_type(const json_t *v);
/* The string of a key, "" where there is none; borrowed. */
const char *field_str(const json_t *o, const char *key);
/* Whether the key "type" is this. */
bool field_is(const json_t *o, const char *type);

#endif
