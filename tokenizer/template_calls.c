/* A message's tool calls, in the function style that all templates share. */
#include "config.h"
#include "tokenizer/template_int.h"

#include <string.h>

#include "base/jsonio.h"

/* The function object of tool_calls[k]: its name and its arguments (an object,
 * owned; NULL when there are none). */
struct call {
    const json_t *name;
    json_t *args;
};

static void call_free(struct call *c)
{
    json_decref(c->args);
    c->args = NULL;
}

static int parse_arguments(const json_t *text, json_t **out, struct err *e)
{
    json_t *v = NULL;
    int rc = json_parse(json_string_value(text), json_string_length(text),
                        "the \"arguments\" string", &v, e);
    if (rc < 0) {
        return rc;
    }
    if (!json_is_object(v)) {
        json_decref(v);
        return err_set(e, QE_FORMAT, "the \"arguments\" string is not a JSON object");
    }
    *out = v;
    return 0;
}

static int call_read(const json_t *tool_call, bool lenient, struct call *out, struct err *e)
{
    const json_t *fn = json_object_get(tool_call, "function");
    fn = fn ? fn : tool_call;
    if (!json_is_object(fn)) {
        return err_set(e, QE_FORMAT, "not an object with \"function\": {\"name\", \"arguments\"}");
    }
    const json_t *name = json_object_get(fn, "name");
    if (!json_is_string(name)) {
        return err_set(e, QE_FORMAT, "\"name\" is missing or is not a string");
    }
    json_t *args = json_object_get(fn, "arguments");
    json_t *own = NULL;
    if (json_is_string(args) && json_string_length(args) > 0) {
        int rc = parse_arguments(args, &own, e);
        if (rc < 0) {
            return rc;
        }
    } else if (json_is_object(args)) {
        own = json_incref(args);
    } else if (args && !json_is_string(args) && !lenient) {
        return err_set(e, QE_FORMAT, "\"arguments\" is neither an object nor its JSON text");
    }
    out->name = name;
    out->args = own;
    return 0;
}

/* The message's list of calls, or NULL when it has none. */
static int message_calls(const json_t *m, const json_t **out, struct err *e)
{
    const json_t *calls = json_object_get(m, "tool_calls");
    if (calls && !json_is_null(calls) && !json_is_array(calls)) {
        return err_set(e, QE_FORMAT, "\"tool_calls\" is not a list");
    }
    *out = json_array_size(calls) > 0 ? calls : NULL;
    return 0;
}

/* One argument's value. 3.5 writes scalars as Python's str does. */
static void out_argument(struct rendered *r, enum template_kind kind, const json_t *v)
{
    bool python = kind == TPL_QWEN35 || kind == TPL_QWEN35_OFF;
    if (json_is_string(v)) {
        out_text(r, json_string_value(v), json_string_length(v));
    } else if (python && json_is_null(v)) {
        out_literal(r, "None");
    } else if (python && json_is_boolean(v)) {
        out_literal(r, json_is_true(v) ? "True" : "False");
    } else {
        out_json(r, v);
    }
}

int render_calls(const json_t *m, enum template_kind kind, bool after_text, struct rendered *r,
                 struct err *e)
{
    const json_t *calls = NULL;
    int rc = message_calls(m, &calls, e);
    if (rc < 0) {
        return rc;
    }
    for (size_t k = 0; k < json_array_size(calls); k++) {
        struct call c = {0};
        rc = call_read(json_array_get(calls, k), kind == TPL_DEMO, &c, e);
        if (rc < 0) {
            return err_wrap(e, rc, "tool_calls[%zu]", k);
        }
        out_literal(r, k > 0 ? "\n" : after_text ? "\n\n" : "");
        out_literal(r, "<tool_call>\n<function=");
        out_text(r, json_string_value(c.name), json_string_length(c.name));
        out_literal(r, ">\n");
        const char *key = NULL;
        json_t *v = NULL;
        json_object_foreach(c.args, key, v)
        {
            out_literal(r, "<parameter=");
            out_text(r, key, strlen(key));
            out_literal(r, ">\n");
            out_argument(r, kind, v);
            out_literal(r, "\n</parameter>\n");
        }
        out_literal(r, "</function>\n</tool_call>");
        call_free(&c);
    }
    return 0;
}
