/* Calls of tools as a grammar: what templates write, with arguments by the tools' schemas. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/chars.h"
#include "grammar/grammar.h"
#include "grammar/inside.h"
#include "grammar/schema.h"

#define CALLS_MOST  32 /* of one answer */
#define VALUE_DEPTH 16 /* references and alternatives around a value */

static const char value_end[] = "\n</parameter>";

struct calls {
    struct nodes *x;
    struct buf *notes;
    struct err *e;
    node text; /* of a value that is a string, with value_end */
};

/* ---- values of the XML dialect ---- */

/* Any text up to the first value_end, and that. A rule for each number of its characters that
 * are there; it has its first one only once. */
static node free_text(struct nodes *x)
{
    enum { N = sizeof value_end - 1 };
    int32_t rule[N];
    for (int i = 0; i < N; i++) {
        rule[i] = nodes_rule(x);
    }
    for (int i = 0; i < N; i++) {
        const node next = i + 1 < N ? nodes_ref(x, rule[i + 1]) : NODE_EMPTY;
        struct char_set rest = {0};
        char_set_add(&rest, '\n', '\n');
        char_set_add(&rest, value_end[i], value_end[i]);
        char_set_close(&rest);
        char_set_invert(&rest);
        node n = nodes_seq(x, nodes_byte(x, value_end[i]), next);
        n = nodes_alt(x, n, nodes_seq(x, chars_of(x, &rest, CHARS_RAW), nodes_ref(x, rule[0])));
        if (i > 0) {
            n = nodes_alt(x, n, nodes_seq(x, nodes_byte(x, '\n'), nodes_ref(x, rule[1])));
        }
        nodes_rule_set(x, rule[i], n);
        char_set_free(&rest);
    }
    return nodes_ref(x, rule[0]);
}

/* Whether a schema is of strings, or may be: those are written as they are. */
static bool is_text(const json_t *v)
{
    const json_t *type = json_object_get(v, "type");
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *one = json_string_value(json_array_get(type, i));
        if (one && strcmp(one, "string") == 0) {
            return true;
        }
    }
    const char *word = json_string_value(type);
    return word && strcmp(word, "string") == 0;
}

/* What bounds a text; only the model keeps it where texts are written as they are. */
static node free_value(struct calls *k, struct schema *c, const json_t *v)
{
    static const char *const bounds[] = {"pattern", "format", "minLength", "maxLength"};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        if (json_object_get(v, bounds[i])) {
            schema_left_out(c, bounds[i]);
        }
    }
    return k->text;
}

static node json_value(struct calls *k, struct schema *c, const json_t *v)
{
    const node json = schema_node(c, v);
    const bool any = json == c->s.value; /* of which nobody knows how it is written */
    return any ? k->text : nodes_seq(k->x, json, nodes_str(k->x, value_end));
}

/* One of a list, of the type of v. */
static node choices(struct calls *k, struct schema *c, const json_t *v, const json_t *list)
{
    const size_t n = json_array_size(list);
    json_t *type = json_object_get(v, "type");
    struct node_text *t = mem_array(n + 1, sizeof *t);
    size_t some = 0;
    node all = NODE_FAIL;
    for (size_t i = 0; i < n; i++) {
        json_t *one = json_array_get(list, i);
        if (!json_is_string(one)) {
            json_t *only = json_pack("{s:[O], s:O*}", "enum", one, "type", type);
            json_array_append_new(c->kept, only);
            all = nodes_alt(k->x, all, json_value(k, c, only));
        } else if (!type || is_text(v)) {
            t[some++] = (struct node_text){json_string_value(one), json_string_length(one)};
        }
    }
    const node texts = nodes_seq(k->x, nodes_texts(k->x, t, some), nodes_str(k->x, value_end));
    free(t);
    return nodes_alt(k->x, all, texts);
}

/* A value with value_end: texts as they are, all else as JSON. */
static node value(struct calls *k, struct schema *c, const json_t *v, int depth)
{
    static const char *const parts[] = {"anyOf", "oneOf", "allOf"};
    const json_t *list = json_object_get(v, "enum");
    json_t *one = json_object_get(v, "const");
    if (depth > VALUE_DEPTH) {
        return k->text;
    }
    if (json_object_get(v, "$ref")) {
        const json_t *target = schema_target(c, v);
        return target ? value(k, c, target, depth + 1) : NODE_FAIL;
    }
    if (one) {
        json_t *only = json_pack("[O]", one);
        json_array_append_new(c->kept, only);
        list = only;
    }
    if (json_is_array(list)) {
        return choices(k, c, v, list);
    }
    const bool bare = !json_object_get(v, "type") && !json_object_get(v, "properties");
    for (size_t p = 0; p < 3 && bare; p++) {
        const json_t *all = json_object_get(v, parts[p]);
        node any = NODE_FAIL;
        for (size_t i = 0; i < json_array_size(all) && (p < 2 || json_array_size(all) == 1); i++) {
            any = nodes_alt(k->x, any, value(k, c, json_array_get(all, i), depth + 1));
        }
        if (any != NODE_FAIL) {
            return any;
        }
    }
    return is_text(v) ? free_value(k, c, v) : json_value(k, c, v);
}

static node parameter(struct calls *k, node name, node val)
{
    struct nodes *x = k->x;
    const node head = nodes_seq3(x, nodes_str(x, "<parameter="), name, nodes_str(x, ">\n"));
    return nodes_seq3(x, head, val, nodes_str(x, "\n"));
}

static bool required(const json_t *schema, const char *key)
{
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(name, key) == 0) {
            return true;
        }
    }
    return false;
}

/* Any parameters: of a tool that names none. */
static node unnamed(struct calls *k, const json_t *schema)
{
    struct nodes *x = k->x;
    if (json_is_false(json_object_get(schema, "additionalProperties"))) {
        return NODE_EMPTY;
    }
    struct char_set s = {0};
    char_set_add(&s, '-', '.');
    char_set_add(&s, '0', '9');
    char_set_add(&s, 'A', 'Z');
    char_set_add(&s, '_', '_');
    char_set_add(&s, 'a', 'z');
    char_set_close(&s);
    const node name = nodes_rep(x, chars_of(x, &s, CHARS_RAW), 1, 64);
    char_set_free(&s);
    return nodes_rep(x, parameter(k, name, k->text), 0, 32);
}

static node xml_arguments(struct calls *k, struct schema *c, const json_t *schema)
{
    const json_t *properties = json_object_get(schema, "properties");
    const size_t n = json_object_size(properties);
    if (n == 0) {
        return unnamed(k, schema);
    }
    node *part = mem_array(n, sizeof *part), all = NODE_EMPTY;
    size_t i = 0;
    const char *key = NULL;
    json_t *v = NULL;
    json_object_foreach((json_t *)(uintptr_t)properties, key, v)
    {
        const node p = parameter(k, nodes_str(k->x, key), value(k, c, v, 0));
        part[i++] = required(schema, key) ? p : nodes_opt(k->x, p);
    }
    while (i > 0) {
        all = nodes_seq(k->x, part[--i], all);
    }
    free(part);
    return all;
}

/* ---- calls ---- */

/* One call of a tool, behind "<tool_call>\n" and up to its end. */
static int one_call(struct calls *k, const json_t *f, const struct grammar_tools *t, node *out)
{
    struct nodes *x = k->x;
    const char *name = json_string_value(json_object_get(f, "name"));
    json_t *given = json_object_get(f, "parameters");
    const bool loose = t->loose && !json_is_true(json_object_get(f, "strict"));
    json_t *schema = !loose && json_is_object(given) && json_object_size(given) > 0
                         ? json_incref(given)
                         : json_pack("{s:s}", "type", "object");
    struct schema c;
    schema_init(&c, x, schema, false, k->notes, k->e);
    if (t->dialect == GD_XML) {
        const node head =
            nodes_seq3(x, nodes_str(x, "<function="), nodes_str(x, name), nodes_str(x, ">\n"));
        *out = nodes_seq3(x, head, xml_arguments(k, &c, schema),
                          nodes_str(x, "</function>\n</tool_call>"));
    } else {
        const node head =
            nodes_seq3(x, nodes_str(x, "{\"name\": "), syntax_string(&c.s, name, strlen(name)),
                       nodes_str(x, ", \"arguments\": "));
        *out = nodes_seq3(x, head, schema_node(&c, schema), nodes_str(x, "}\n</tool_call>"));
    }
    const int rc = c.rc;
    schema_fini(&c);
    json_decref(schema);
    return rc;
}

static int all_tools(struct calls *k, const struct grammar_tools *t, node *out)
{
    int rc = 0;
    *out = NODE_FAIL;
    for (size_t i = 0; i < json_array_size(t->tools) && rc == 0; i++) {
        const json_t *tool = json_array_get(t->tools, i), *f = json_object_get(tool, "function");
        f = f ? f : tool;
        const char *name = json_string_value(json_object_get(f, "name"));
        node one = NODE_FAIL;
        if (!name || (t->only && strcmp(name, t->only) != 0)) {
            continue;
        }
        rc = one_call(k, f, t, &one);
        *out = nodes_alt(k->x, *out, one);
    }
    if (rc == 0 && *out == NODE_FAIL) {
        rc = t->only ? err_set(k->e, QE_USAGE, "there is no tool \"%.80s\" to be called", t->only)
                     : err_set(k->e, QE_USAGE, "there is no tool to be called");
    }
    return rc;
}

int grammar_calls(const struct grammar_tools *t, struct grammar **out, struct buf *notes,
                  struct err *e)
{
    struct nodes *x = nodes_create();
    struct calls k = {.x = x, .notes = notes, .e = e};
    k.text = free_text(x);
    node call = NODE_FAIL;
    const int rc = all_tools(&k, t, &call);
    if (rc < 0) {
        nodes_free(x);
        return rc;
    }
    static const char *const before[] = {
        [GF_START] = "<tool_call>\n", [GF_TAG] = "\n", [GF_LINE] = ""};
    const node open = nodes_str(x, before[GF_START]);
    node all = nodes_seq(x, nodes_str(x, before[t->from]), call);
    if (t->several) {
        const node next = nodes_seq3(x, nodes_byte(x, '\n'), open, call);
        all = nodes_seq(x, all, nodes_rep(x, next, 0, CALLS_MOST - 1));
    }
    struct err why = ERR_INIT;
    const int end = grammar_of(x, all, true, out, &why);
    return end < 0 ? err_set(e, end, "the tools: %s", why.msg) : 0;
}
