/* A value that does not fit its schema stays the text it is. Schemas may be anything:
 * lists of types, unions, references, or nothing at all. */
#include "config.h"
#include "tools/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonio.h"
#include "base/mem.h"

enum {
    T_STRING = 1,
    T_INTEGER = 2,
    T_NUMBER = 4,
    T_BOOLEAN = 8,
    T_NULL = 16,
    T_OBJECT = 32,
    T_ARRAY = 64
};

static unsigned type_bit(const json_t *t)
{
    static const struct {
        const char *name;
        unsigned bit;
    } names[] = {{"string", T_STRING},   {"integer", T_INTEGER}, {"number", T_NUMBER},
                 {"boolean", T_BOOLEAN}, {"null", T_NULL},       {"object", T_OBJECT},
                 {"array", T_ARRAY}};
    const char *s = json_string_value(t);
    for (size_t i = 0; s && i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i].name, s) == 0) {
            return names[i].bit;
        }
    }
    return 0;
}

static unsigned type_of_value(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return T_OBJECT;
    case JSON_ARRAY:
        return T_ARRAY;
    case JSON_STRING:
        return T_STRING;
    case JSON_INTEGER:
        return T_INTEGER;
    case JSON_REAL:
        return T_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE:
        return T_BOOLEAN;
    case JSON_NULL:
        return T_NULL;
    }
    return 0;
}

/* What a "#/…" reference inside the tool's own schema points at; NULL: nothing. */
static const json_t *deref(const json_t *root, const char *ref)
{
    const json_t *at = root;
    if (!ref || strncmp(ref, "#/", 2) != 0) {
        return NULL;
    }
    for (const char *p = ref + 2; at && *p;) {
        const size_t k = strcspn(p, "/");
        char *key = mem_strndup(p, k);
        at = json_object_get(at, key);
        free(key);
        p += k + (p[k] == '/');
    }
    return at;
}

/* The types a schema allows; 0 when it does not say. */
static unsigned allowed(const json_t *root, const json_t *schema, int depth)
{
    const json_t *type = json_object_get(schema, "type");
    unsigned bits = type_bit(type);
    for (size_t i = 0; i < json_array_size(type); i++) {
        bits |= type_bit(json_array_get(type, i));
    }
    if (depth >= 4) {
        return bits;
    }
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    for (size_t u = 0; u < sizeof unions / sizeof *unions; u++) {
        const json_t *list = json_object_get(schema, unions[u]);
        for (size_t i = 0; i < json_array_size(list); i++) {
            bits |= allowed(root, json_array_get(list, i), depth + 1);
        }
    }
    const json_t *other = deref(root, json_string_value(json_object_get(schema, "$ref")));
    bits |= other ? allowed(root, other, depth + 1) : 0;
    const json_t *values = json_object_get(schema, "enum");
    for (size_t i = 0; bits == 0 && i < json_array_size(values); i++) {
        bits |= type_of_value(json_array_get(values, i));
    }
    const json_t *only = json_object_get(schema, "const");
    return bits == 0 && only ? type_of_value(only) : bits;
}

json_t *value_json(const char *p, size_t n)
{
    struct buf b = BUF_INIT;
    bool in_string = false, escaped = false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (in_string && c < 0x20) {
            buf_printf(&b, "\\u%04x", c);
            escaped = false;
            continue;
        }
        if (c == '"' && !escaped) {
            in_string = !in_string;
        }
        escaped = in_string && c == '\\' && !escaped;
        buf_addc(&b, (char)c);
    }
    json_error_t je;
    json_t *v = b.len ? json_loadb(b.data, b.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je) : NULL;
    buf_free(&b);
    return v;
}

static bool is_word(const char *p, size_t n, const char *a, const char *b)
{
    return (n == strlen(a) && memcmp(p, a, n) == 0) || (n == strlen(b) && memcmp(p, b, n) == 0);
}

/* As one of the wanted types, or NULL. */
static json_t *as_scalar(unsigned want, const char *p, size_t n)
{
    if ((want & T_BOOLEAN) && is_word(p, n, "true", "True")) {
        return json_true();
    }
    if ((want & T_BOOLEAN) && is_word(p, n, "false", "False")) {
        return json_false();
    }
    if (!(want & (T_INTEGER | T_NUMBER)) || n == 0 || !strchr("-0123456789", p[0])) {
        return NULL;
    }
    json_t *v = value_json(p, n);
    if (json_is_integer(v) || (json_is_real(v) && (want & T_NUMBER))) {
        return v;
    }
    double x = json_number_value(v);
    bool whole = json_is_real(v) && floor(x) == x && fabs(x) < 9e15;
    json_decref(v);
    return whole ? json_integer((json_int_t)x) : NULL;
}

static json_t *convert(unsigned want, const char *p, size_t n)
{
    const char *q = p;
    size_t k = n;
    while (k > 0 && strchr(" \t\r\n", q[0])) {
        q++;
        k--;
    }
    while (k > 0 && strchr(" \t\r\n", q[k - 1])) {
        k--;
    }
    json_t *v = NULL;
    if ((want & T_NULL || (want && !(want & T_STRING))) && is_word(q, k, "null", "None")) {
        return json_null();
    }
    if (want && !(want & T_STRING)) {
        v = as_scalar(want, q, k);
    }
    unsigned open = k == 0 ? 0 : q[0] == '{' ? T_OBJECT : q[0] == '[' ? T_ARRAY : 0;
    if (!v && open && (want == 0 || (want & open))) {
        v = value_json(q, k);
    }
    return v ? v : json_str_lossy(p, n);
}

static unsigned wanted(const struct tool *tool, const char *key)
{
    return tool ? allowed(tool->schema, tool_param(tool, key, strlen(key)), 0) : 0;
}

json_t *value_convert(const struct tool *tool, const char *key, const char *p, size_t n)
{
    return convert(wanted(tool, key), p, n);
}

void value_fit(const struct tool *tool, json_t *args)
{
    const char *key = NULL;
    json_t *v = NULL;
    void *next = NULL;
    json_object_foreach_safe(args, next, key, v)
    {
        const unsigned want = wanted(tool, key);
        if (json_is_string(v) && want && !(want & T_STRING)) {
            json_object_set_new(args, key,
                                convert(want, json_string_value(v), json_string_length(v)));
        }
    }
}
