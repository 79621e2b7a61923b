/* A validator of JSON values, as plain as the specification. */
#include "config.h"
#include "tests/unit/schemacheck.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static bool whole(const json_t *v)
{
    return json_is_integer(v) ||
           (json_is_real(v) && json_real_value(v) == floor(json_real_value(v)));
}

static bool of_type(const json_t *v, const char *t)
{
    return strcmp(t, "null") == 0      ? json_is_null(v)
           : strcmp(t, "boolean") == 0 ? json_is_boolean(v)
           : strcmp(t, "integer") == 0 ? whole(v)
           : strcmp(t, "number") == 0  ? json_is_number(v)
           : strcmp(t, "string") == 0  ? json_is_string(v)
           : strcmp(t, "array") == 0   ? json_is_array(v)
                                       : json_is_object(v);
}

static bool type_fits(const json_t *type, const json_t *v)
{
    if (!json_is_array(type)) {
        return !type || of_type(v, json_string_value(type));
    }
    for (size_t i = 0; i < json_array_size(type); i++) {
        if (of_type(v, json_string_value(json_array_get(type, i)))) {
            return true;
        }
    }
    return false;
}

static bool found(const char *pattern, const char *p, size_t n)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                   PCRE2_UTF | PCRE2_DOLLAR_ENDONLY, &code, &at, NULL);
    if (!re) {
        abort();
    }
    pcre2_match_data *m = pcre2_match_data_create_from_pattern(re, NULL);
    const int rc = pcre2_match(re, (PCRE2_SPTR)p, n, 0, 0, m, NULL);
    pcre2_match_data_free(m);
    pcre2_code_free(re);
    return rc >= 0;
}

static size_t characters(const json_t *v)
{
    const char *p = json_string_value(v);
    size_t n = 0;
    for (size_t i = 0; i < json_string_length(v); i++) {
        n += ((unsigned char)p[i] & 0xC0) != 0x80;
    }
    return n;
}

static bool is_date(const char *p)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int y = 0, m = 0, d = 0;
    char rest = 0;
    if (strlen(p) != 10 || sscanf(p, "%4d-%2d-%2d%c", &y, &m, &d, &rest) != 3 || m < 1 || m > 12) {
        return false;
    }
    const bool leap = (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    return d >= 1 && d <= days[m - 1] + (m == 2 && leap);
}

static double bound(const json_t *s, const char *key, double none)
{
    const json_t *b = json_object_get(s, key);
    return json_is_number(b) ? json_number_value(b) : none;
}

/* Whole numbers are compared as such: not all of them are doubles. */
static int compare(const json_t *a, const json_t *b)
{
    if (json_is_integer(a) && json_is_integer(b)) {
        const json_int_t p = json_integer_value(a), q = json_integer_value(b);
        return (p > q) - (p < q);
    }
    const double p = json_number_value(a), q = json_number_value(b);
    return (p > q) - (p < q);
}

static bool number_fits(const json_t *s, const json_t *v)
{
    const json_t *lo = json_object_get(s, "minimum"), *hi = json_object_get(s, "maximum");
    const json_t *more = json_object_get(s, "exclusiveMinimum");
    const json_t *less = json_object_get(s, "exclusiveMaximum");
    return (!lo || compare(v, lo) >= 0) && (!hi || compare(v, hi) <= 0) &&
           (!more || compare(v, more) > 0) && (!less || compare(v, less) < 0);
}

static bool string_fits(const json_t *s, const json_t *v)
{
    const char *pattern = json_string_value(json_object_get(s, "pattern"));
    const char *format = json_string_value(json_object_get(s, "format"));
    const double n = (double)characters(v);
    return n >= bound(s, "minLength", 0) && n <= bound(s, "maxLength", INFINITY) &&
           (!pattern || found(pattern, json_string_value(v), json_string_length(v))) &&
           (!format || strcmp(format, "date") != 0 || is_date(json_string_value(v)));
}

static bool array_fits(const json_t *root, const json_t *s, const json_t *v)
{
    const json_t *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items");
    const size_t n = json_array_size(v);
    for (size_t i = 0; i < n; i++) {
        const json_t *one = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (one && !schema_accepts(root, one, json_array_get(v, i))) {
            return false;
        }
    }
    return (double)n >= bound(s, "minItems", 0) && (double)n <= bound(s, "maxItems", INFINITY);
}

static bool member_fits(const json_t *root, const json_t *s, const char *key, const json_t *v)
{
    const json_t *named = json_object_get(json_object_get(s, "properties"), key);
    const json_t *names = json_object_get(s, "propertyNames");
    const json_t *rest = json_object_get(s, "additionalProperties");
    bool known = named != NULL;
    bool fits = !named || schema_accepts(root, named, v);
    const char *pattern = NULL;
    json_t *one = NULL;
    json_object_foreach(json_object_get(s, "patternProperties"), pattern, one)
    {
        if (found(pattern, key, strlen(key))) {
            known = true;
            fits = fits && schema_accepts(root, one, v);
        }
    }
    if (names) {
        json_t *name = json_string(key);
        fits = fits && schema_accepts(root, names, name);
        json_decref(name);
    }
    return fits && (known || !rest || schema_accepts(root, rest, v));
}

static bool object_fits(const json_t *root, const json_t *s, const json_t *v)
{
    const json_t *required = json_object_get(s, "required");
    for (size_t i = 0; i < json_array_size(required); i++) {
        if (!json_object_get(v, json_string_value(json_array_get(required, i)))) {
            return false;
        }
    }
    const char *key = NULL;
    json_t *member = NULL;
    json_object_foreach((json_t *)(size_t)v, key, member)
    {
        if (!member_fits(root, s, key, member)) {
            return false;
        }
    }
    const double n = (double)json_object_size(v);
    return n >= bound(s, "minProperties", 0) && n <= bound(s, "maxProperties", INFINITY);
}

static size_t how_many(const json_t *root, const json_t *list, const json_t *v)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        n += schema_accepts(root, json_array_get(list, i), v);
    }
    return n;
}

static const json_t *target(const json_t *root, const char *ref)
{
    const json_t *at = root;
    char part[128];
    for (const char *p = ref + 1; *p == '/' && at;) {
        size_t n = 0;
        for (p++; *p && *p != '/'; p++) {
            char c = *p;
            if (c == '~') {
                c = *++p == '1' ? '/' : '~';
            } else if (c == '%') {
                unsigned v = 0;
                sscanf(p + 1, "%2x", &v);
                c = (char)v;
                p += 2;
            }
            part[n++] = c;
        }
        part[n] = 0;
        at = json_object_get(at, part);
    }
    return at;
}

static bool equal_to_one(const json_t *list, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_equal(json_array_get(list, i), v)) {
            return true;
        }
    }
    return false;
}

bool schema_accepts(const json_t *root, const json_t *s, const json_t *v)
{
    if (json_is_boolean(s)) {
        return json_is_true(s);
    }
    const char *ref = json_string_value(json_object_get(s, "$ref"));
    const json_t *list = json_object_get(s, "enum"), *only = json_object_get(s, "const");
    const json_t *all = json_object_get(s, "allOf"), *any = json_object_get(s, "anyOf");
    const json_t *one = json_object_get(s, "oneOf");
    return (!ref || schema_accepts(root, target(root, ref), v)) &&
           type_fits(json_object_get(s, "type"), v) && (!list || equal_to_one(list, v)) &&
           (!only || json_equal(only, v)) &&
           (!all || how_many(root, all, v) == json_array_size(all)) &&
           (!any || how_many(root, any, v) > 0) && (!one || how_many(root, one, v) == 1) &&
           (!json_is_number(v) || number_fits(s, v)) && (!json_is_string(v) || string_fits(s, v)) &&
           (!json_is_array(v) || array_fits(root, s, v)) &&
           (!json_is_object(v) || object_fits(root, s, v));
}

bool schema_accepts_text(const json_t *schema, const char *p, size_t n)
{
    json_t *v = json_loadb(p, n, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const bool is = v && schema_accepts(schema, schema, v);
    json_decref(v);
    return is;
}
