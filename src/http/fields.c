/* Typed looks into a request's body that name the field at fault. */
#include "config.h"
#include "http/fields.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

bool fields_ok(const struct fields *f)
{
    return f->e.code == 0;
}

/* The first complaint stays. i: the item of an array, negative for none. */
static void complain(struct fields *f, const char *key, int64_t i, const char *fmt, va_list ap)
{
    char what[256], item[32] = "";
    vsnprintf(what, sizeof what, fmt, ap);
    if (i >= 0) {
        snprintf(item, sizeof item, "[%" PRId64 "]", i);
    }
    if (fields_ok(f)) {
        f->field = key;
        err_set(&f->e, QE_FORMAT, "%s%s: %s", key, item, what);
    }
}

void fields_wrong(struct fields *f, const char *key, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain(f, key, -1, fmt, ap);
    va_end(ap);
}

void fields_wrong_item(struct fields *f, const char *key, size_t i, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain(f, key, (int64_t)i, fmt, ap);
    va_end(ap);
}

const char *field_type(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    case JSON_NULL:
        break;
    }
    return "null";
}

/* The field's value; NULL when there is nothing to look at. */
static json_t *get(const struct fields *f, const char *key)
{
    json_t *v = fields_ok(f) ? json_object_get(f->o, key) : NULL;
    return json_is_null(v) ? NULL : v;
}

void fields_num(struct fields *f, const char *key, double lo, double hi, double *out)
{
    const json_t *v = get(f, key);
    if (!v) {
        return;
    }
    const double x = json_number_value(v);
    if (!json_is_number(v)) {
        fields_wrong(f, key, "is %s; it must be a number from %g to %g", field_type(v), lo, hi);
    } else if (!(x >= lo && x <= hi)) {
        fields_wrong(f, key, "is %g; it must be from %g to %g", x, lo, hi);
    } else {
        *out = x;
    }
}

/* Whole numbers also as 5.0, as some clients write them. */
static bool whole(const json_t *v, int64_t *out)
{
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return true;
    }
    const double x = json_is_real(v) ? json_real_value(v) : NAN;
    if (!(fabs(x) <= 0x1p53) || x != floor(x)) {
        return false;
    }
    *out = (int64_t)x;
    return true;
}

void fields_int(struct fields *f, const char *key, int64_t lo, int64_t hi, int64_t *out)
{
    const json_t *v = get(f, key);
    int64_t x = 0;
    if (!v) {
        return;
    }
    if (!whole(v, &x)) {
        fields_wrong(f, key, "is %s; it must be a whole number from %lld to %lld", field_type(v),
                     (long long)lo, (long long)hi);
    } else if (x < lo || x > hi) {
        fields_wrong(f, key, "is %lld; it must be from %lld to %lld", (long long)x, (long long)lo,
                     (long long)hi);
    } else {
        *out = x;
    }
}

void fields_limit(struct fields *f, const char *key, int lo, int hi, int *out)
{
    int64_t x = INT64_MIN;
    fields_int(f, key, lo, INT64_MAX, &x);
    if (x != INT64_MIN) {
        *out = x > hi ? hi : (int)x;
    }
}

void fields_bool(struct fields *f, const char *key, bool *out)
{
    const json_t *v = get(f, key);
    if (v && !json_is_boolean(v)) {
        fields_wrong(f, key, "is %s; it must be true or false", field_type(v));
    } else if (v) {
        *out = json_is_true(v);
    }
}

void fields_str(struct fields *f, const char *key, const char **out)
{
    const json_t *v = get(f, key);
    if (v && !json_is_string(v)) {
        fields_wrong(f, key, "is %s; it must be a string", field_type(v));
    } else if (v) {
        *out = json_string_value(v);
    }
}

json_t *fields_array(struct fields *f, const char *key)
{
    json_t *v = get(f, key);
    if (v && !json_is_array(v)) {
        fields_wrong(f, key, "is %s; it must be an array", field_type(v));
        return NULL;
    }
    return v;
}

json_t *fields_object(struct fields *f, const char *key)
{
    json_t *v = get(f, key);
    if (v && !json_is_object(v)) {
        fields_wrong(f, key, "is %s; it must be an object", field_type(v));
        return NULL;
    }
    return v;
}

const char *fields_word(struct fields *f, const char *object, const char *key, const char *name)
{
    const json_t *o = fields_object(f, object);
    const json_t *v = json_object_get(o, key);
    if (v && !json_is_string(v) && !json_is_null(v)) {
        fields_wrong(f, name, "is %s; it must be a string", field_type(v));
    }
    return json_is_string(v) ? json_string_value(v) : "";
}

/* Item i of the tools, or something inside of it (at, "" for all of it). */
__attribute__((format(printf, 4, 5))) static void wrong_tool(struct fields *f, const char *tool,
                                                             const char *at, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (fields_ok(f)) {
        f->field = "tools";
        err_set(&f->e, QE_FORMAT, "%s%s: %s", tool, at, what);
    }
}

/* What a call's markup cannot carry about a name: what ends its tag, what is taken off its ends
 * because models add it, and more than is looked through for that end. NULL: nothing. */
static const char *bad_name(const json_t *name)
{
    static const char ends[] = " \t\n\v\f\r\"'`";
    const char *s = json_string_value(name);
    const size_t n = json_string_length(name);
    return n == 0                                         ? "is empty"
           : n > FIELDS_NAME_MOST                         ? "is too long"
           : memchr(s, '>', n) || memchr(s, '<', n)       ? "has < or >"
           : memchr(s, '\n', n) || memchr(s, 0, n)        ? "has a line break or a zero byte"
           : strchr(ends, s[0]) || strchr(ends, s[n - 1]) ? "begins or ends with a blank or a quote"
                                                          : NULL;
}

/* One tool; those of kinds that are not known have neither name nor schema. tool: what it is called
 * in messages. */
static void check_tool(struct fields *f, const json_t *t, const char *tool, const char *within,
                       const char *schema)
{
    const json_t *o = within ? json_object_get(t, within) : t;
    if (!json_is_object(t)) {
        wrong_tool(f, tool, "", "is %s; it must be an object", field_type(t));
        return;
    }
    const bool kind = json_is_string(json_object_get(t, "type"));
    if ((!o || !within) && kind && !field_is(t, "function") && !field_is(t, "custom")) {
        return;
    }
    if (o && !json_is_object(o)) {
        wrong_tool(f, tool, "", "%s is %s; it must be an object", within, field_type(o));
        return;
    }
    if (!o) { /* of free text, or written flat, as another API has it */
        within = json_is_object(json_object_get(t, "custom")) ? "custom" : NULL;
        o = within ? json_object_get(t, within) : t;
    }
    const json_t *name = json_object_get(o, "name"), *text = json_object_get(o, "description");
    const json_t *s = json_object_get(o, schema);
    const char *bad = json_is_string(name) ? bad_name(name) : NULL;
    char at[32];
    snprintf(at, sizeof at, "%s%s.name", within ? "." : "", within ? within : "");
    if (!json_is_string(name)) {
        wrong_tool(f, tool, at, "is %s; it must be a string", name ? field_type(name) : "missing");
    } else if (bad) {
        wrong_tool(f, tool, at,
                   "%s; a name that the model can call has at most %d bytes, no < or >, no line "
                   "break, and neither blank nor quote at its ends",
                   bad, FIELDS_NAME_MOST);
    } else if (text && !json_is_string(text) && !json_is_null(text)) {
        wrong_tool(f, tool, "", "the description is %s; it must be a string", field_type(text));
    } else if (s && !json_is_object(s) && !json_is_null(s)) {
        wrong_tool(f, tool, "", "%s is %s; it must be an object", schema, field_type(s));
    }
}

/* A list of tools, and those of the namespaces in it. */
static void check_tools(struct fields *f, const json_t *list, const char *within,
                        const char *schema)
{
    const json_t *t = NULL;
    size_t i = 0;
    char tool[64];
    json_array_foreach((json_t *)(uintptr_t)list, i, t)
    {
        snprintf(tool, sizeof tool, "tools[%zu]", i);
        check_tool(f, t, tool, within, schema);
        const json_t *inner = json_object_get(t, "tools");
        size_t k = 0;
        const json_t *u = NULL;
        if (!field_is(t, "namespace")) {
            continue;
        }
        json_array_foreach((json_t *)(uintptr_t)inner, k, u)
        {
            snprintf(tool, sizeof tool, "tools[%zu].tools[%zu]", i, k);
            check_tool(f, u, tool, within, schema);
        }
    }
}

json_t *fields_tools(struct fields *f, const char *within, const char *schema)
{
    json_t *list = fields_array(f, "tools");
    check_tools(f, list, within, schema);
    return list;
}

void fields_choice(struct fields *f, bool string)
{
    const json_t *v = get(f, "tool_choice");
    if (v && !json_is_object(v) && !(string && json_is_string(v))) {
        fields_wrong(f, "tool_choice", "is %s; it must be %san object", field_type(v),
                     string ? "a string or " : "");
    }
}

void fields_strings(struct fields *f, const char *key, size_t max, const char ***list, size_t *n)
{
    const json_t *v = get(f, key);
    if (!v) {
        return;
    }
    const size_t many = json_is_array(v) ? json_array_size(v) : 1;
    if (!json_is_array(v) && !json_is_string(v)) {
        fields_wrong(f, key, "is %s; it must be a string or an array of strings", field_type(v));
        return;
    }
    if (many > max) {
        fields_wrong(f, key, "has %zu strings; at most %zu can be given", many, max);
        return;
    }
    const char **out = mem_array(many + 1, sizeof *out);
    for (size_t i = 0; i < many; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(s)) {
            fields_wrong(f, key, "has %s; it must have strings only", field_type(s));
            free(out);
            return;
        }
        out[i] = json_string_value(s);
    }
    *list = out;
    *n = many;
}

const char *field_str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

bool field_is(const json_t *o, const char *type)
{
    return strcmp(field_str(o, "type"), type) == 0;
}
