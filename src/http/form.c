/* Forms of answers in the words of several APIs. */
#include "config.h"
#include "http/form.h"

#include <string.h>

#include "base/jsonio.h"

static void set(struct ask *a, struct fields *f, const char *key, enum conv_form_kind kind)
{
    if (a->q.form.kind != CF_NONE) {
        fields_wrong(f, key, "is a second form for one answer");
        return;
    }
    a->q.form = (struct conv_form){.kind = kind};
    a->form_field = key;
}

/* A text as it is, all else as JSON. */
static void set_text(struct ask *a, struct fields *f, const char *key, enum conv_form_kind kind,
                     const json_t *v)
{
    set(a, f, key, kind);
    if (json_is_string(v)) {
        buf_add(&a->form, json_string_value(v), json_string_length(v));
    } else {
        json_write_exact(v, &a->form);
    }
    a->q.form.text = a->form.data;
    a->q.form.n = a->form.len;
}

static void set_schema(struct ask *a, struct fields *f, const char *key, const json_t *schema,
                       const json_t *strict)
{
    if (!json_is_object(schema) && !json_is_boolean(schema)) {
        fields_wrong(f, key, "has no schema; it must be a JSON schema, an object");
    } else if (strict && !json_is_boolean(strict) && !json_is_null(strict)) {
        fields_wrong(f, key, "has a strict that is neither true nor false");
    } else {
        set_text(a, f, key, CF_SCHEMA, schema);
        a->q.form.strict = json_is_true(strict);
    }
}

/* A value of the kind that is a text. */
static void set_string(struct ask *a, struct fields *f, const char *key, enum conv_form_kind kind,
                       const json_t *v)
{
    if (json_is_string(v) && json_string_length(v) > 0) {
        set_text(a, f, key, kind, v);
    } else {
        fields_wrong(f, key, "must be a string that is not empty");
    }
}

static void set_choice(struct ask *a, struct fields *f, const char *key, const json_t *v)
{
    if (json_is_array(v) && json_array_size(v) > 0) {
        set_text(a, f, key, CF_CHOICE, v);
    } else {
        fields_wrong(f, key, "must be an array of strings that is not empty");
    }
}

void form_take(struct ask *a, struct fields *f, const char *key, const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!v || json_is_null(v)) {
        return;
    }
    if (!type) {
        fields_wrong(f, key, "has no type; it must be text, json_object or json_schema");
    } else if (strcmp(type, "json_object") == 0) {
        set(a, f, key, CF_OBJECT);
    } else if (strcmp(type, "json_schema") == 0) {
        const json_t *inner = json_object_get(v, "json_schema");
        const json_t *o = json_is_object(inner) ? inner : v;
        set_schema(a, f, key, json_object_get(o, "schema"), json_object_get(o, "strict"));
    } else if (strcmp(type, "regex") == 0) {
        const json_t *regex = json_object_get(v, "regex");
        set_string(a, f, key, CF_REGEX, regex ? regex : json_object_get(v, "pattern"));
    } else if (strcmp(type, "grammar") == 0) {
        set_string(a, f, key, CF_GRAMMAR, json_object_get(v, "grammar"));
    } else if (strcmp(type, "choice") == 0) {
        set_choice(a, f, key, json_object_get(v, "choice"));
    } else if (strcmp(type, "text") != 0) {
        fields_wrong(f, key, "has the type \"%.40s\"; it must be text, json_object or json_schema",
                     type);
    }
}

/* A schema, also one that was written into a string. */
static void take_json(struct ask *a, struct fields *f, const char *key, const json_t *v)
{
    json_t *parsed = NULL;
    if (json_is_string(v)) {
        struct err e = ERR_INIT;
        if (json_parse(json_string_value(v), json_string_length(v), "the schema", &parsed, &e) <
            0) {
            fields_wrong(f, key, "%.200s", e.msg);
            return;
        }
        v = parsed;
    }
    set_schema(a, f, key, v, NULL);
    json_decref(parsed);
}

void form_take_guided(struct ask *a, struct fields *f)
{
    const json_t *o = fields_object(f, "structured_outputs");
    static const struct {
        const char *inner, *outer;
    } keys[] = {{"json", "guided_json"},
                {"regex", "guided_regex"},
                {"choice", "guided_choice"},
                {"grammar", "guided_grammar"}};
    for (int i = 0; i < 4 && fields_ok(f); i++) {
        const json_t *v = json_object_get(o, keys[i].inner);
        const char *key = v && !json_is_null(v) ? "structured_outputs" : keys[i].outer;
        v = v && !json_is_null(v) ? v : json_object_get(f->o, keys[i].outer);
        if (!v || json_is_null(v)) {
            continue;
        }
        if (i == 0) {
            take_json(a, f, key, v);
        } else if (i == 2) {
            set_choice(a, f, key, v);
        } else {
            set_string(a, f, key, i == 1 ? CF_REGEX : CF_GRAMMAR, v);
        }
    }
    if (json_is_true(json_object_get(o, "json_object")) && fields_ok(f)) {
        set(a, f, "structured_outputs", CF_OBJECT);
    }
}
