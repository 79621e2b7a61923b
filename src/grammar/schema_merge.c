/* One schema out of two that both hold, and what references stand for. */
#include "config.h"
#include "grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/number.h"

#define FOLLOW_MOST  64  /* references to references */
#define PRODUCT_MOST 256 /* alternatives of both */

/* ---- references ---- */

/* The next part of a JSON pointer, unescaped; false: it is too long. */
static bool pointer_part(const char **p, char *out, size_t size)
{
    size_t n = 0;
    for ((*p)++; **p && **p != '/'; (*p)++) {
        char c = **p;
        if (c == '~' && ((*p)[1] == '0' || (*p)[1] == '1')) {
            c = *++*p == '0' ? '~' : '/';
        } else if (c == '%' && (*p)[1] && (*p)[2]) {
            const char hex[3] = {(*p)[1], (*p)[2], 0};
            char *end = NULL;
            const long v = strtol(hex, &end, 16);
            if (*end == 0) {
                c = (char)v;
                *p += 2;
            }
        }
        if (n + 1 >= size) {
            return false;
        }
        out[n++] = c;
    }
    out[n] = 0;
    return true;
}

static const json_t *find(const json_t *root, const char *ref)
{
    const json_t *at = root;
    const char *p = ref + 1;
    char part[512];
    while (at && *p == '/') {
        if (!pointer_part(&p, part, sizeof part)) {
            return NULL;
        }
        at = json_is_array(at) ? json_array_get(at, (size_t)strtoul(part, NULL, 10))
                               : json_object_get(at, part);
    }
    return *p ? NULL : at;
}

const json_t *schema_target(struct schema *c, const json_t *v)
{
    const char *ref = json_string_value(json_object_get(v, "$ref"));
    if (!ref || ref[0] != '#') {
        schema_wrong(c, QE_USAGE, "only references to places of its own (\"#/…\") are understood");
        return NULL;
    }
    const json_t *target = find(c->root, ref);
    if (!target) {
        schema_wrong(c, QE_FORMAT, "a reference leads nowhere");
    }
    return target;
}

/* v without references in its first level. */
static const json_t *followed(struct schema *c, const json_t *v)
{
    for (int i = 0; v && json_object_get(v, "$ref"); i++) {
        const json_t *target = i < FOLLOW_MOST ? schema_target(c, v) : NULL;
        if (!target) {
            if (i >= FOLLOW_MOST) {
                schema_wrong(c, QE_USAGE, "references lead to each other");
            }
            return NULL;
        }
        json_t *rest = json_copy((json_t *)(uintptr_t)v);
        json_object_del(rest, "$ref");
        json_array_append_new(c->kept, rest);
        if (json_object_get(target, "$ref")) {
            json_t *next = json_copy(rest);
            json_object_update_missing(next, (json_t *)(uintptr_t)target);
            json_array_append_new(c->kept, next);
            v = next;
            continue;
        }
        return schema_merge(c, target, rest);
    }
    return v;
}

/* ---- both ---- */

static json_t *both(const json_t *a, const json_t *b)
{
    json_t *list = json_array();
    json_array_append(list, (json_t *)(uintptr_t)a);
    json_array_append(list, (json_t *)(uintptr_t)b);
    json_t *o = json_object();
    json_object_set_new(o, "allOf", list);
    return o;
}

static bool has(const json_t *list, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (json_equal(json_array_get(list, i), v)) {
            return true;
        }
    }
    return false;
}

static json_t *as_list(const json_t *v)
{
    if (json_is_array(v)) {
        return json_copy((json_t *)(uintptr_t)v);
    }
    json_t *list = json_array();
    json_array_append(list, (json_t *)(uintptr_t)v);
    return list;
}

static json_t *common(const json_t *a, const json_t *b)
{
    json_t *p = as_list(a), *q = as_list(b), *out = json_array();
    for (size_t i = 0; i < json_array_size(p); i++) {
        if (has(q, json_array_get(p, i))) {
            json_array_append(out, json_array_get(p, i));
        }
    }
    json_decref(p);
    json_decref(q);
    return out;
}

/* Types of both: a whole number is a number. */
static json_t *types(const json_t *a, const json_t *b)
{
    json_t *integer = json_string("integer"), *number = json_string("number");
    json_t *p = as_list(a), *q = as_list(b), *out = common(a, b);
    if (((has(p, integer) && has(q, number)) || (has(q, integer) && has(p, number))) &&
        !has(out, integer) && !has(out, number)) {
        json_array_append(out, integer);
    }
    json_decref(p);
    json_decref(q);
    json_decref(integer);
    json_decref(number);
    return out;
}

static json_t *joined(const json_t *a, const json_t *b)
{
    json_t *out = as_list(a);
    for (size_t i = 0; i < json_array_size(b); i++) {
        if (!has(out, json_array_get(b, i))) {
            json_array_append(out, json_array_get(b, i));
        }
    }
    return out;
}

static json_t *product(struct schema *c, const json_t *a, const json_t *b)
{
    json_t *out = json_array();
    if (json_array_size(a) * json_array_size(b) > PRODUCT_MOST) {
        schema_wrong(c, QE_USAGE, "there are too many alternatives of alternatives");
        return out;
    }
    for (size_t i = 0; i < json_array_size(a); i++) {
        for (size_t k = 0; k < json_array_size(b); k++) {
            json_array_append_new(out, both(json_array_get(a, i), json_array_get(b, k)));
        }
    }
    return out;
}

/* What holds for a member that v does not name. */
static const json_t *unnamed(const json_t *v)
{
    const json_t *rest = json_object_get(v, "additionalProperties");
    return rest && !json_is_true(rest) && !json_object_get(v, "patternProperties") ? rest : NULL;
}

/* Members of both: what only one of them names, the other may say something about too. */
static json_t *members(const json_t *a, const json_t *b)
{
    const json_t *p = json_object_get(a, "properties"), *q = json_object_get(b, "properties");
    json_t *out = json_object();
    const char *key = NULL;
    json_t *v = NULL;
    json_object_foreach((json_t *)(uintptr_t)p, key, v)
    {
        const json_t *other = json_object_get(q, key);
        other = other ? other : unnamed(b);
        json_object_set_new(out, key, other ? both(v, other) : json_incref(v));
    }
    json_object_foreach((json_t *)(uintptr_t)q, key, v)
    {
        if (!json_object_get(p, key)) {
            const json_t *other = unnamed(a);
            json_object_set_new(out, key, other ? both(v, other) : json_incref(v));
        }
    }
    return out;
}

static bool is_any(const char *key, const char *const *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(key, keys[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The value of a keyword that both have; a new reference, NULL: a's stays. */
static json_t *keyword(struct schema *c, const char *key, const json_t *p, const json_t *q)
{
    static const char *const largest[] = {"minimum", "exclusiveMinimum", "minLength", "minItems",
                                          "minProperties"};
    static const char *const least[] = {"maximum", "exclusiveMaximum", "maxLength", "maxItems",
                                        "maxProperties"};
    static const char *const nested[] = {"items", "additionalProperties", "propertyNames"};
    if (strcmp(key, "type") == 0) {
        return types(p, q);
    }
    if (strcmp(key, "enum") == 0) {
        return common(p, q);
    }
    if (strcmp(key, "required") == 0 || strcmp(key, "allOf") == 0) {
        return joined(p, q);
    }
    if (strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) {
        return product(c, p, q);
    }
    if (is_any(key, largest, 5) && json_is_number(p) && json_is_number(q)) {
        return json_incref((json_t *)(uintptr_t)(number_compare(p, q) >= 0 ? p : q));
    }
    if (is_any(key, least, 5) && json_is_number(p) && json_is_number(q)) {
        return json_incref((json_t *)(uintptr_t)(number_compare(p, q) <= 0 ? p : q));
    }
    if (is_any(key, nested, 3)) {
        return json_is_false(p) || json_is_false(q) ? json_false() : both(p, q);
    }
    return NULL;
}

/* A copy of v in which const is an enum, so that two of them meet. */
static json_t *copy_of(const json_t *v)
{
    json_t *o = json_copy((json_t *)(uintptr_t)v);
    json_t *only = json_object_get(o, "const");
    if (only) {
        const json_t *list = json_object_get(o, "enum");
        json_t *one = json_array();
        if (!list || has(list, only)) {
            json_array_append(one, only);
        }
        json_object_set_new(o, "enum", one);
        json_object_del(o, "const");
    }
    return o;
}

const json_t *schema_merge(struct schema *c, const json_t *a, const json_t *b)
{
    static const char *const told[] = {"title",    "description", "default",     "examples",
                                       "$comment", "$defs",       "definitions", "nullable"};
    static const char *const open[] = {"patternProperties", "prefixItems", "pattern", "format",
                                       "multipleOf"};
    if (++c->depth > 150) {
        c->depth--;
        schema_wrong(c, QE_USAGE, "references lead to each other");
        return NULL;
    }
    a = followed(c, a);
    b = a ? followed(c, b) : NULL;
    c->depth--;
    if (!a || !b) {
        return NULL;
    }
    if (json_is_boolean(a) || json_is_boolean(b)) {
        return json_is_false(a) || json_is_true(b) ? a : b;
    }
    if (!json_is_object(a) || !json_is_object(b)) {
        schema_wrong(c, QE_FORMAT, "this is neither an object nor true or false");
        return NULL;
    }
    if (json_object_size(b) == 0 || json_object_size(a) == 0) {
        return json_object_size(b) == 0 ? a : b;
    }
    json_t *out = copy_of(a), *more = copy_of(b);
    json_array_append_new(c->kept, out);
    json_array_append_new(c->kept, more);
    if (json_object_get(a, "properties") || json_object_get(b, "properties")) {
        json_object_set_new(out, "properties", members(a, b));
        json_object_del(more, "properties");
    }
    const char *key = NULL;
    json_t *v = NULL;
    json_object_foreach(more, key, v)
    {
        const json_t *had = json_object_get(out, key);
        if (!had) {
            json_object_set(out, key, v);
        } else if (!json_equal(had, v) && !is_any(key, told, 8)) {
            json_t *value = keyword(c, key, had, v);
            if (value) {
                json_object_set_new(out, key, value);
            } else if (is_any(key, open, 5)) {
                schema_left_out(c, key);
            }
        }
    }
    return out;
}
