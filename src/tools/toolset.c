/* Declared tools, and which of them is meant. */
#include "config.h"
#include "tools/toolset.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

static const json_t *object_or_null(const json_t *v)
{
    return json_is_object(v) ? v : NULL;
}

static bool read_tool(const json_t *def, struct tool *out)
{
    const json_t *fn = object_or_null(json_object_get(def, "function"));
    fn = fn ? fn : def;
    const json_t *schema = json_object_get(fn, "parameters");
    schema = object_or_null(schema ? schema : json_object_get(fn, "input_schema"));
    const json_t *required = json_object_get(schema, "required");
    out->name = json_string_value(json_object_get(fn, "name"));
    out->schema = schema;
    out->props = object_or_null(json_object_get(schema, "properties"));
    out->required = json_array_size(required) > 0 ? required : NULL;
    return out->name && out->name[0];
}

struct toolset *toolset_create(const json_t *tools)
{
    struct toolset *s = mem_zalloc(sizeof *s);
    const size_t n = json_array_size(tools);
    s->defs = json_is_array(tools) ? json_deep_copy(tools) : NULL;
    s->v = mem_array(n + 1, sizeof *s->v);
    for (size_t i = 0; i < n; i++) {
        s->n += read_tool(json_array_get(s->defs, i), &s->v[s->n]);
    }
    return s;
}

void toolset_free(struct toolset *s)
{
    if (s) {
        json_decref(s->defs);
        free(s->v);
        free(s);
    }
}

const struct tool *toolset_find(const struct toolset *s, const char *name, size_t n)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strlen(s->v[i].name) == n && memcmp(s->v[i].name, name, n) == 0) {
            return &s->v[i];
        }
    }
    return NULL;
}

static bool is_wrapping(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == '"' || c == '\'' || c == '`';
}

const struct tool *toolset_resolve(const struct toolset *s, const char *name, size_t n)
{
    while (n > 0 && is_wrapping(name[0])) {
        name++;
        n--;
    }
    while (n > 0 && is_wrapping(name[n - 1])) {
        n--;
    }
    const struct tool *t = toolset_find(s, name, n);
    if (t || n == 0) {
        return t;
    }
    for (size_t i = 0; i < s->n; i++) {
        if (strlen(s->v[i].name) == n && strncasecmp(s->v[i].name, name, n) == 0) {
            if (t) {
                return NULL;
            }
            t = &s->v[i];
        }
    }
    return t;
}

bool toolset_may_name(const struct toolset *s, const char *p, size_t n)
{
    for (size_t i = 0; i < s->n; i++) {
        const size_t k = strlen(s->v[i].name);
        if (n <= k && strncasecmp(s->v[i].name, p, n) == 0) {
            return true;
        }
    }
    return false;
}

const json_t *tool_param(const struct tool *t, const char *key, size_t n)
{
    if (!t || !t->props) {
        return NULL;
    }
    char *k = mem_strndup(key, n);
    const json_t *v = json_object_get(t->props, k);
    free(k);
    return v;
}

bool toolset_has_key(const struct toolset *s, const char *key, size_t n)
{
    for (size_t i = 0; i < s->n; i++) {
        if (tool_param(&s->v[i], key, n)) {
            return true;
        }
    }
    return false;
}

bool tool_satisfied(const struct tool *t, const json_t *args)
{
    for (size_t i = 0; i < json_array_size(t->required); i++) {
        const char *key = json_string_value(json_array_get(t->required, i));
        if (key && !json_object_get(args, key)) {
            return false;
        }
    }
    return true;
}

/* Twice the keys it knows, less those it does not. */
static int score(const struct tool *t, const json_t *args)
{
    int sum = 0;
    const char *key = NULL;
    json_t *v = NULL;
    json_object_foreach((json_t *)(uintptr_t)args, key, v)
    {
        sum += json_object_get(t->props, key) ? 2 : -1;
    }
    return sum;
}

const struct tool *toolset_infer(const struct toolset *s, const json_t *args, bool all)
{
    const struct tool *exact = NULL, *best = NULL;
    int n_exact = 0, most = 0;
    bool tied = false;
    for (size_t i = 0; i < s->n; i++) {
        const struct tool *t = &s->v[i];
        if (!t->required || json_object_size(args) == 0) {
            continue;
        }
        const bool has_all = tool_satisfied(t, args);
        if (has_all && json_array_size(t->required) == json_object_size(args)) {
            exact = t;
            n_exact++;
        }
        const int k = score(t, args);
        if (k <= 0 || (all && !has_all)) {
            continue;
        }
        if (k > most) {
            most = k;
            best = t;
            tied = false;
        } else if (k == most) {
            const bool had_all = best && tool_satisfied(best, args);
            if (has_all && !had_all && !tied) {
                best = t;
            } else if (has_all == had_all) {
                tied = true;
            }
        }
    }
    if (n_exact > 0) {
        return n_exact == 1 ? exact : NULL;
    }
    return tied ? NULL : best;
}
