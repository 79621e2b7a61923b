/* From a schema to the values that it lets through: references, alternatives, types. */
#include "config.h"
#include "grammar/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/number.h"

#define DEPTH_MOST 200
#define MADE_MOST  20000

void schema_init(struct schema *c, struct nodes *x, const json_t *root, bool strict,
                 struct buf *notes, struct err *e)
{
    *c = (struct schema){.root = root, .strict = strict, .notes = notes, .e = e};
    syntax_init(&c->s, x);
    c->kept = json_array();
    buf_adds(&c->place, "#");
}

void schema_fini(struct schema *c)
{
    buf_free(&c->place);
    free(c->rules);
    json_decref(c->kept);
}

node schema_wrong(struct schema *c, int code, const char *what)
{
    if (c->rc == 0) {
        c->rc = err_set(c->e, code, "the schema: %s at %.200s", what, c->place.data);
    }
    return NODE_FAIL;
}

void schema_left_out(struct schema *c, const char *keyword)
{
    if (c->strict) {
        char what[128];
        snprintf(what, sizeof what, "%.60s cannot be kept", keyword);
        schema_wrong(c, QE_USAGE, what);
        return;
    }
    if (c->notes && c->notes->len < 4096) {
        buf_printf(c->notes, "%s%s at %.200s", c->notes->len ? ", " : "", keyword, c->place.data);
    }
}

size_t schema_enter(struct schema *c, const char *key, const char *name)
{
    const size_t before = c->place.len;
    if (before < 1000) {
        buf_printf(&c->place, "/%s", key);
        if (name) {
            buf_printf(&c->place, "/%.60s", name);
        }
    }
    return before;
}

void schema_leave(struct schema *c, size_t before)
{
    buf_truncate(&c->place, before);
}

int32_t schema_bound(struct schema *c, const json_t *v, const char *key, int32_t none)
{
    const json_t *b = json_object_get(v, key);
    if (!b) {
        return none;
    }
    const double d = json_number_value(b);
    if (!json_is_number(b) || d < 0 || d != floor(d)) {
        schema_wrong(c, QE_FORMAT, "a bound is no whole number from 0 on");
        return none;
    }
    return d > REP_MOST ? REP_MOST + 1 : (int32_t)d;
}

/* ---- types ---- */

enum {
    T_NULL = 1,
    T_BOOL = 2,
    T_INT = 4,
    T_NUM = 8,
    T_STR = 16,
    T_ARR = 32,
    T_OBJ = 64,
    T_ALL = 127
};

static int type_bit(const char *word)
{
    static const char *const words[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};
    for (int i = 0; i < 7; i++) {
        if (strcmp(word, words[i]) == 0) {
            return 1 << i;
        }
    }
    return 0;
}

static int types_named(struct schema *c, const json_t *type)
{
    int all = 0;
    const size_t n = json_is_array(type) ? json_array_size(type) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *t = json_is_array(type) ? json_array_get(type, i) : type;
        const int bit = json_is_string(t) ? type_bit(json_string_value(t)) : 0;
        if (!bit) {
            schema_wrong(c, QE_FORMAT, "there is no such type");
            return 0;
        }
        all |= bit;
    }
    return all;
}

/* Without a type: those that its keywords are about. */
static int types_meant(const json_t *v)
{
    static const struct {
        const char *key;
        int types;
    } about[] = {{"properties", T_OBJ},
                 {"required", T_OBJ},
                 {"patternProperties", T_OBJ},
                 {"additionalProperties", T_OBJ},
                 {"propertyNames", T_OBJ},
                 {"minProperties", T_OBJ},
                 {"maxProperties", T_OBJ},
                 {"items", T_ARR},
                 {"prefixItems", T_ARR},
                 {"minItems", T_ARR},
                 {"maxItems", T_ARR},
                 {"pattern", T_STR},
                 {"format", T_STR},
                 {"minLength", T_STR},
                 {"maxLength", T_STR},
                 {"minimum", T_NUM},
                 {"maximum", T_NUM},
                 {"exclusiveMinimum", T_NUM},
                 {"exclusiveMaximum", T_NUM},
                 {"multipleOf", T_NUM}};
    int all = 0;
    for (size_t i = 0; i < sizeof about / sizeof *about; i++) {
        all |= json_object_get(v, about[i].key) ? about[i].types : 0;
    }
    return all ? all : T_ALL;
}

static int types_of(struct schema *c, const json_t *v)
{
    const json_t *type = json_object_get(v, "type");
    int all = type ? types_named(c, type) : types_meant(v);
    if (json_is_true(json_object_get(v, "nullable"))) {
        all |= T_NULL;
    }
    return all;
}

static bool is_type(const json_t *v, int types)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return types & T_OBJ;
    case JSON_ARRAY:
        return types & T_ARR;
    case JSON_STRING:
        return types & T_STR;
    case JSON_INTEGER:
        return types & (T_INT | T_NUM);
    case JSON_REAL:
        return types & T_NUM || (types & T_INT && json_real_value(v) == floor(json_real_value(v)));
    case JSON_TRUE:
    case JSON_FALSE:
        return types & T_BOOL;
    case JSON_NULL:
        break;
    }
    return types & T_NULL;
}

static node number(struct schema *c, const json_t *v, bool integer)
{
    struct number_bounds b = {.lo = json_object_get(v, "minimum"),
                              .hi = json_object_get(v, "maximum")};
    const json_t *lo = json_object_get(v, "exclusiveMinimum");
    const json_t *hi = json_object_get(v, "exclusiveMaximum");
    const json_t *step = json_object_get(v, "multipleOf");
    const json_t *const given[] = {b.lo, b.hi, lo, hi};
    for (int i = 0; i < 4; i++) {
        if (given[i] && !json_is_number(given[i]) && !json_is_boolean(given[i])) {
            return schema_wrong(c, QE_FORMAT, "a bound is no number");
        }
    }
    if (json_is_boolean(lo)) {
        b.lo_open = json_is_true(lo);
    } else if (lo && (!b.lo || number_compare(lo, b.lo) >= 0)) {
        b.lo = lo;
        b.lo_open = true;
    }
    if (json_is_boolean(hi)) {
        b.hi_open = json_is_true(hi);
    } else if (hi && (!b.hi || number_compare(hi, b.hi) <= 0)) {
        b.hi = hi;
        b.hi_open = true;
    }
    b.lo = json_is_number(b.lo) ? b.lo : NULL;
    b.hi = json_is_number(b.hi) ? b.hi : NULL;
    if ((number_is_wide(b.lo) && json_real_value(b.lo) > 0) ||
        (number_is_wide(b.hi) && json_real_value(b.hi) < 0)) {
        return schema_wrong(c, QE_USAGE, "a bound beyond 64 bits cannot be kept exactly");
    }
    if (step && !(integer && json_number_value(step) == 1)) {
        schema_left_out(c, "multipleOf");
    }
    return !b.lo && !b.hi ? integer ? c->s.whole : c->s.number : number_node(c->s.x, &b, integer);
}

static node by_types(struct schema *c, const json_t *v, int types)
{
    struct nodes *x = c->s.x;
    node all = NODE_FAIL;
    if (types == T_ALL) {
        c->open = true;
        return c->s.value;
    }
    if (types & T_OBJ) {
        all = nodes_alt(x, all, schema_object(c, v));
    }
    if (types & T_ARR) {
        all = nodes_alt(x, all, schema_array(c, v));
    }
    if (types & T_STR) {
        all = nodes_alt(x, all, schema_string(c, v));
    }
    if (types & (T_NUM | T_INT)) {
        all = nodes_alt(x, all, number(c, v, !(types & T_NUM)));
    }
    if (types & T_BOOL) {
        all = nodes_alt(x, all, nodes_alt(x, nodes_str(x, "true"), nodes_str(x, "false")));
    }
    return types & T_NULL ? nodes_alt(x, all, nodes_str(x, "null")) : all;
}

/* ---- references ---- */

static bool is_note(const char *key)
{
    static const char *const notes[] = {"title",    "description", "default",  "examples",
                                        "$schema",  "$id",         "$comment", "deprecated",
                                        "readOnly", "writeOnly",   "$defs",    "definitions",
                                        "$anchor",  "example",     "$ref"};
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++) {
        if (strcmp(key, notes[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether v has nothing but what is told about it, and perhaps a reference. */
static bool only_told(const json_t *v)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)(uintptr_t)v, key, value)
    {
        if (!is_note(key)) {
            return false;
        }
    }
    return true;
}

/* Equal schemas are one rule: what is merged anew wherever recursion comes by must meet itself. */
static node by_rule(struct schema *c, const json_t *target)
{
    for (size_t i = 0; i < c->n_rules; i++) {
        if (c->rules[i].schema == target || json_equal(c->rules[i].schema, target)) {
            return nodes_ref(c->s.x, c->rules[i].rule);
        }
    }
    if (c->n_rules == c->cap_rules) {
        c->cap_rules = c->cap_rules ? 2 * c->cap_rules : 16;
        c->rules = mem_realloc(c->rules, c->cap_rules * sizeof *c->rules);
    }
    const int32_t rule = nodes_rule(c->s.x);
    c->rules[c->n_rules++] = (struct schema_rule){target, rule};
    const node body = schema_node(c, target);
    nodes_rule_set(c->s.x, rule, body);
    return nodes_ref(c->s.x, rule);
}

/* ---- alternatives ---- */

static node literals(struct schema *c, const json_t *list, int types)
{
    struct nodes *x = c->s.x;
    const size_t n = json_array_size(list);
    struct node_text *text = mem_array(n + 1, sizeof *text);
    size_t texts = 0;
    node all = NODE_FAIL;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        if (!is_type(v, types)) {
            continue;
        }
        if (number_is_wide(v)) {
            schema_wrong(c, QE_USAGE, "a number beyond 64 bits cannot be kept exactly");
        }
        const char *p = json_string_value(v);
        bool usual = p != NULL;
        for (size_t k = 0; usual && k < json_string_length(v); k++) {
            usual = (unsigned char)p[k] >= 0x20 && p[k] != '"' && p[k] != '\\';
        }
        if (usual) { /* many of them are told apart best by how they begin */
            text[texts++] = (struct node_text){p, json_string_length(v)};
        } else {
            all = nodes_alt(x, all, syntax_literal(&c->s, v));
        }
    }
    const node quote = nodes_byte(x, '"');
    all = nodes_alt(x, all, nodes_seq3(x, quote, nodes_texts(x, text, texts), quote));
    free(text);
    return all;
}

/* v without some keys; kept. */
static json_t *without(struct schema *c, const json_t *v, const char *const *keys, size_t n)
{
    json_t *o = json_copy((json_t *)(uintptr_t)v);
    for (size_t i = 0; i < n; i++) {
        json_object_del(o, keys[i]);
    }
    json_array_append_new(c->kept, o);
    return o;
}

static node any_of(struct schema *c, const json_t *v, const char *key)
{
    const json_t *list = json_object_get(v, key);
    if (!json_is_array(list) || json_array_size(list) == 0) {
        return schema_wrong(c, QE_FORMAT, "alternatives are no array of schemas");
    }
    const json_t *base = without(c, v, &key, 1);
    node all = NODE_FAIL;
    for (size_t i = 0; i < json_array_size(list) && c->rc == 0; i++) {
        char name[24];
        snprintf(name, sizeof name, "%zu", i);
        const size_t before = schema_enter(c, key, name);
        const json_t *one = json_array_get(list, i);
        const json_t *both = only_told(base) ? one : schema_merge(c, base, one);
        const node n = both == one ? schema_node(c, one) : both ? by_rule(c, both) : NODE_FAIL;
        all = nodes_alt(c->s.x, all, n);
        schema_leave(c, before);
    }
    return all;
}

static node all_of(struct schema *c, const json_t *v)
{
    static const char *const keys[] = {"allOf"};
    const json_t *list = json_object_get(v, "allOf");
    const json_t *all = without(c, v, keys, 1);
    if (!json_is_array(list)) {
        return schema_wrong(c, QE_FORMAT, "allOf is no array");
    }
    for (size_t i = 0; i < json_array_size(list) && all && c->rc == 0; i++) {
        all = schema_merge(c, all, json_array_get(list, i));
    }
    return all && c->rc == 0 ? by_rule(c, all) : NODE_FAIL;
}

static node reference(struct schema *c, const json_t *v)
{
    const size_t before = schema_enter(c, "$ref", NULL);
    const json_t *target = schema_target(c, v);
    node n = NODE_FAIL;
    if (target) {
        static const char *const keys[] = {"$ref"};
        const json_t *both = only_told(v) ? NULL : schema_merge(c, target, without(c, v, keys, 1));
        n = only_told(v) ? by_rule(c, target) : both ? by_rule(c, both) : NODE_FAIL;
    }
    schema_leave(c, before);
    return n;
}

/* ---- one schema ---- */

static void note_left_out(struct schema *c, const json_t *v)
{
    static const char *const keys[] = {
        "not",      "if",          "dependentRequired",     "dependentSchemas", "dependencies",
        "contains", "uniqueItems", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *k = json_object_get(v, keys[i]);
        if (k && !json_is_false(k)) {
            schema_left_out(c, keys[i]);
        }
    }
}

static node compile(struct schema *c, const json_t *v)
{
    if (json_is_boolean(v)) {
        c->open = c->open || json_is_true(v);
        return json_is_true(v) ? c->s.value : NODE_FAIL;
    }
    if (!json_is_object(v)) {
        return schema_wrong(c, QE_FORMAT, "this is neither an object nor true or false");
    }
    if (json_object_get(v, "$ref")) {
        return reference(c, v);
    }
    if (json_object_get(v, "allOf")) {
        return all_of(c, v);
    }
    if (json_object_get(v, "anyOf")) {
        return any_of(c, v, "anyOf");
    }
    if (json_object_get(v, "oneOf")) {
        return any_of(c, v, "oneOf");
    }
    const int types = types_of(c, v);
    const json_t *list = json_object_get(v, "enum"), *one = json_object_get(v, "const");
    if (c->rc < 0) {
        return NODE_FAIL;
    }
    note_left_out(c, v);
    if (one) {
        json_t *only = json_array();
        json_array_append(only, (json_t *)(uintptr_t)one);
        json_array_append_new(c->kept, only);
        list = only;
    }
    if (list && !json_is_array(list)) {
        return schema_wrong(c, QE_FORMAT, "enum is no array");
    }
    return list ? literals(c, list, json_object_get(v, "type") ? types : T_ALL)
                : by_types(c, v, types);
}

node schema_node(struct schema *c, const json_t *v)
{
    if (c->rc < 0) {
        return NODE_FAIL;
    }
    if (++c->depth > DEPTH_MOST || ++c->made > MADE_MOST || nodes_full(c->s.x)) {
        c->depth--;
        return schema_wrong(c, QE_USAGE,
                            c->made > MADE_MOST ? "it is too large, with all that it refers to,"
                                                : "it is too deep");
    }
    const node n = compile(c, v);
    c->depth--;
    return c->rc < 0 ? NODE_FAIL : n;
}
