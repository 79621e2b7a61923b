#ifndef QUASAR_BASE_JSONIO_H
#define QUASAR_BASE_JSONIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

/* Thin helpers over jansson: parse with one-line errors, typed lookups that
 * name the field, and compact output. Duplicate keys are refused; objects keep
 * the order of their keys. */

/* Parses n bytes; *out is a new reference. what names the text in errors. Whole numbers that do
 * not fit 64 bits become the nearest fraction. */
int json_parse(const char *p, size_t n, const char *what, json_t **out, struct err *e);
int json_parse_file(const char *path, size_t max, json_t **out, struct err *e);

/* Lookups in an object. A missing key gives QE_NOTFOUND without touching *out
 * when required is false (return 0, *out unchanged); a wrong type or a number
 * outside [lo, hi] is QE_FORMAT with the field's name, value and limit. */
int json_get_int(const json_t *o, const char *key, bool required, int64_t lo, int64_t hi,
                 int64_t *out, struct err *e);
int json_get_num(const json_t *o, const char *key, bool required, double *out, struct err *e);
int json_get_bool(const json_t *o, const char *key, bool required, bool *out, struct err *e);
/* *out is borrowed from o. */
int json_get_str(const json_t *o, const char *key, bool required, const char **out, struct err *e);

/* Appends the compact text of v; nine digits of a number are enough for figures of ours. */
void json_write(const json_t *v, struct buf *out);

/* As Python's json.dumps(ensure_ascii=False): separators ", " and ": ", key
 * order kept, non-ASCII raw, floats in shortest form. What chat templates call
 * tojson. */
void json_write_spaced(const json_t *v, struct buf *out);

/* Compact, and every number reads back as the same one: for values that are somebody else's. */
void json_write_exact(const json_t *v, struct buf *out);

/* Writes v (compact, one line) to standard output and releases it. */
void json_print_take(json_t *v);

/* A JSON string of text that may hold invalid UTF-8 (each bad byte becomes
 * U+FFFD). New reference. */
json_t *json_str_lossy(const char *p, size_t n);

#endif
