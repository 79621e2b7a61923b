/* The shape of /v1/responses. The conversation comes as items: a thought, a text and calls that
 * follow one another are one message of the model. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "http/api.h"
#include "http/choice.h"
#include "http/fields.h"
#include "http/form.h"

/* ---- input ---- */

/* What the model said in one go, until something else comes. */
struct said {
    struct buf thought, text;
    json_t *calls;
    bool any;
};

static void flush_said(json_t *list, struct said *s)
{
    if (!s->any) {
        return;
    }
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                          json_str_lossy(s->text.data ? s->text.data : "", s->text.len));
    if (s->thought.len > 0) {
        json_object_set_new(m, "reasoning_content",
                            json_str_lossy(s->thought.data, s->thought.len));
    }
    if (json_array_size(s->calls) > 0) {
        json_object_set(m, "tool_calls", s->calls);
    }
    json_array_append_new(list, m);
    json_decref(s->calls);
    buf_free(&s->thought);
    buf_free(&s->text);
    memset(s, 0, sizeof *s);
}

/* The text of a string, or of an array of parts that have one. result: of a tool, whose pictures
 * the user may not even know of: the model is told that there was one. */
static void add_text(const json_t *content, bool result, struct fields *f, struct buf *out)
{
    size_t k = 0;
    const json_t *p = NULL;
    if (json_is_string(content)) {
        buf_add(out, json_string_value(content), json_string_length(content));
    }
    json_array_foreach((json_t *)(uintptr_t)content, k, p)
    {
        const json_t *t = json_object_get(p, "text");
        if (json_is_string(t)) {
            buf_add(out, json_string_value(t), json_string_length(t));
        } else if (result && field_is(p, "input_image")) {
            buf_adds(out, "[The tool gave an image, which you cannot see: you read text only.]");
        } else if (field_is(p, "input_image") || field_is(p, "input_file")) {
            fields_wrong(f, "input", "has an image or a file: this model reads text only");
        }
    }
}

static void add_message(json_t *list, const char *role, const json_t *content, struct fields *f)
{
    struct buf text = BUF_INIT;
    add_text(content, strcmp(role, "tool") == 0, f, &text);
    json_array_append_new(list, json_pack("{s:s, s:o}", "role", role, "content",
                                          json_str_lossy(text.data ? text.data : "", text.len)));
    buf_free(&text);
}

static void add_call(struct said *s, const json_t *it, json_t *arguments)
{
    s->any = true;
    s->calls = s->calls ? s->calls : json_array();
    json_array_append_new(s->calls,
                          json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", field_str(it, "call_id"),
                                    "type", "function", "function", "name", field_str(it, "name"),
                                    "arguments", arguments));
}

/* An item; those that are not known tell the model nothing. */
static void add_item(json_t *list, struct said *s, const json_t *it, struct fields *f)
{
    const char *role = field_str(it, "role");
    if (field_is(it, "message") || (!field_str(it, "type")[0] && role[0])) {
        if (strcmp(role, "assistant") == 0) {
            s->any = true;
            add_text(json_object_get(it, "content"), false, f, &s->text);
        } else {
            flush_said(list, s);
            add_message(list, role, json_object_get(it, "content"), f);
        }
    } else if (field_is(it, "reasoning")) {
        if (s->text.len > 0 || s->calls) {
            flush_said(list, s);
        }
        const json_t *content = json_object_get(it, "content");
        s->any = true;
        add_text(json_array_size(content) > 0 ? content : json_object_get(it, "summary"), false, f,
                 &s->thought);
    } else if (field_is(it, "function_call")) {
        const char *text = field_str(it, "arguments");
        json_t *args = json_loads(text, 0, NULL);
        if (!json_is_object(args)) {
            json_decref(args);
            args = json_pack("{s:s}", "arguments", text);
        }
        add_call(s, it, args);
    } else if (field_is(it, "custom_tool_call")) {
        add_call(s, it, json_pack("{s:s}", "input", field_str(it, "input")));
    } else if (field_is(it, "function_call_output") || field_is(it, "custom_tool_call_output")) {
        flush_said(list, s);
        add_message(list, "tool", json_object_get(it, "output"), f);
        json_object_set_new(json_array_get(list, json_array_size(list) - 1), "tool_call_id",
                            json_string(field_str(it, "call_id")));
    }
}

static void take_input(struct ask *a, struct fields *f)
{
    const json_t *in = json_object_get(a->body, "input");
    const char *instructions = NULL;
    json_t *list = json_array();
    struct said s = {.any = false};
    size_t i = 0;
    const json_t *it = NULL;
    fields_str(f, "instructions", &instructions);
    if (instructions && instructions[0]) {
        json_array_append_new(list,
                              json_pack("{s:s, s:s}", "role", "system", "content", instructions));
    }
    if (json_is_string(in)) {
        add_message(list, "user", in, f);
    } else if (!json_is_array(in) || json_array_size(in) == 0) {
        fields_wrong(f, "input", "must be a text or an array of at least one item");
    }
    json_array_foreach((json_t *)(uintptr_t)in, i, it)
    {
        if (!json_is_object(it)) {
            fields_wrong_item(f, "input", i, "is %s; it must be an object", field_type(it));
        }
        add_item(list, &s, it, f);
    }
    flush_said(list, &s);
    if (json_array_size(list) == 0) {
        fields_wrong(f, "input", "has no item that the model could be told");
    }
    ask_messages(a, list);
    json_decref(list);
}

static json_t *function_of(const json_t *t, json_t *parameters)
{
    return json_pack("{s:s, s:{s:s, s:s, s:o}}", "type", "function", "function", "name",
                     field_str(t, "name"), "description", field_str(t, "description"), "parameters",
                     parameters);
}

/* Functions; those of a namespace beside the others; a tool of free text as one with a text. */
static void add_tools(json_t *list, const json_t *in)
{
    size_t i = 0;
    const json_t *t = NULL;
    json_array_foreach((json_t *)(uintptr_t)in, i, t)
    {
        json_t *schema = json_object_get(t, "parameters");
        if (field_is(t, "function")) {
            json_array_append_new(list,
                                  function_of(t, schema ? json_incref(schema) : json_object()));
        } else if (field_is(t, "namespace")) {
            add_tools(list, json_object_get(t, "tools"));
        } else if (field_is(t, "custom")) {
            json_array_append_new(list,
                                  function_of(t, json_pack("{s:s, s:{s:{s:s}}, s:[s]}", "type",
                                                           "object", "properties", "input", "type",
                                                           "string", "required", "input")));
        }
    }
}

/* Of a name that the model called: the namespace it is in (NULL: none), and whether it is a tool
 * of free text. */
static const char *namespace_of(const json_t *in, const char *name, bool *custom)
{
    size_t i = 0;
    const json_t *t = NULL;
    *custom = false;
    json_array_foreach((json_t *)(uintptr_t)in, i, t)
    {
        size_t k = 0;
        const json_t *u = NULL;
        if (strcmp(field_str(t, "name"), name) == 0 && !field_is(t, "namespace")) {
            *custom = field_is(t, "custom");
            return NULL;
        }
        json_array_foreach((json_t *)(uintptr_t)json_object_get(t, "tools"), k, u)
        {
            if (field_is(t, "namespace") && strcmp(field_str(u, "name"), name) == 0) {
                return field_str(t, "name");
            }
        }
    }
    return NULL;
}

static void take_tools(struct ask *a, struct fields *f)
{
    const json_t *in = fields_tools(f, NULL, "parameters");
    fields_choice(f, true);
    json_t *list = json_array();
    add_tools(list, in);
    choice_take(a, f, list);
    json_decref(list);
}

static int responses_parse(struct ask *a, const char **field, struct err *e)
{
    struct fields f = {.o = a->body};
    const char *previous = NULL;
    ask_sampling(a, &f);
    fields_str(&f, "previous_response_id", &previous);
    a->q.logprobs = -1;
    if (previous) {
        fields_wrong(&f, "previous_response_id", "answers are not kept; send the whole input");
    }
    take_input(a, &f);
    take_tools(a, &f);
    form_take(a, &f, "text.format", json_object_get(fields_object(&f, "text"), "format"));
    const char *effort = fields_word(&f, "reasoning", "effort", "reasoning.effort");
    choice_effort(a, &f, "reasoning.effort", effort, false, false);
    choice_thinking(a, &f);
    *field = f.field;
    return fields_ok(&f) ? 0 : err_set(e, f.e.code, "%s", f.e.msg);
}

/* ---- output ---- */

static json_t *response(const struct ask *a, const char *status, json_t *output)
{
    json_t *o = json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:o, s:n, s:n, s:b, s:[], s:s, s:{s:{s:s}}, s:{}}", "id", a->id,
        "object", "response", "created_at", (json_int_t)a->created, "status", status, "model",
        a->model, "output", output, "error", "incomplete_details", "parallel_tool_calls", 1,
        "tools", "tool_choice", "auto", "text", "format", "type", "text", "metadata");
    json_t *format = json_object_get(json_object_get(a->body, "text"), "format");
    if (json_is_object(format)) {
        json_object_set(json_object_get(o, "text"), "format", format);
    }
    return o;
}

static void event(struct choice_out *c, json_t *v, struct buf *out)
{
    json_object_set_new(v, "sequence_number", json_integer(c->sequence++));
    sse_event(field_str(v, "type"), v, out);
}

static void item_event(struct choice_out *c, const char *type, const json_t *item, struct buf *out)
{
    event(c,
          json_pack("{s:s, s:i, s:o}", "type", type, "output_index", c->block, "item",
                    json_deep_copy(item)),
          out);
}

/* An event inside the open item. key: what its text is called; NULL: none. */
static void part_event(struct choice_out *c, const char *type, const char *index, const char *key,
                       json_t *value, struct buf *out)
{
    json_t *v = json_pack("{s:s, s:s, s:i}", "type", type, "item_id", field_str(c->item, "id"),
                          "output_index", c->block);
    if (index) {
        json_object_set_new(v, index, json_integer(0));
    }
    if (key) {
        json_object_set_new(v, key, value);
    }
    event(c, v, out);
}

static json_t *text_part(const struct buf *text)
{
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text",
                     json_str_lossy(text->data ? text->data : "", text->len), "annotations",
                     "logprobs");
}

static json_t *summary_part(const struct buf *text)
{
    return json_pack("{s:s, s:o}", "type", "summary_text", "text",
                     json_str_lossy(text->data ? text->data : "", text->len));
}

static void item_close(struct choice_out *c, struct buf *out)
{
    if (!c->item) {
        return;
    }
    json_t *text = json_str_lossy(c->text.data ? c->text.data : "", c->text.len);
    if (c->kind == 't') {
        part_event(c, "response.output_text.done", "content_index", "text", json_incref(text), out);
        part_event(c, "response.content_part.done", "content_index", "part", text_part(&c->text),
                   out);
        json_object_set_new(c->item, "content", json_pack("[o]", text_part(&c->text)));
    } else if (c->kind == 'h') {
        part_event(c, "response.reasoning_summary_text.done", "summary_index", "text",
                   json_incref(text), out);
        part_event(c, "response.reasoning_summary_part.done", "summary_index", "part",
                   summary_part(&c->text), out);
        json_object_set_new(c->item, "summary", json_pack("[o]", summary_part(&c->text)));
    }
    json_decref(text);
    if (c->kind != 'h') {
        json_object_set_new(c->item, "status", json_string("completed"));
    }
    item_event(c, "response.output_item.done", c->item, out);
    c->items = c->items ? c->items : json_array();
    json_array_append_new(c->items, c->item);
    c->item = NULL;
    buf_truncate(&c->text, 0);
}

/* Takes item. */
static void item_open(const struct ask *a, struct choice_out *c, char kind, json_t *item,
                      struct buf *out)
{
    char id[80];
    item_close(c, out);
    c->block = c->blocks++;
    c->kind = kind;
    snprintf(id, sizeof id, "%s_%s_%d",
             kind == 't'   ? "msg"
             : kind == 'h' ? "rs"
                           : "fc",
             a->id, c->block);
    json_object_set_new(item, "id", json_string(id));
    c->item = item;
    item_event(c, "response.output_item.added", item, out);
}

static void responses_begin(const struct ask *a, struct choice_out *c, int input, int cached,
                            struct buf *out)
{
    (void)input, (void)cached;
    event(c,
          json_pack("{s:s, s:o}", "type", "response.created", "response",
                    response(a, "in_progress", json_array())),
          out);
    event(c,
          json_pack("{s:s, s:o}", "type", "response.in_progress", "response",
                    response(a, "in_progress", json_array())),
          out);
}

static void responses_thought(const struct ask *a, struct choice_out *c, const char *p, size_t n,
                              struct buf *out)
{
    if (!c->item || c->kind != 'h') {
        const struct buf none = BUF_INIT;
        item_open(a, c, 'h', json_pack("{s:s, s:[]}", "type", "reasoning", "summary"), out);
        part_event(c, "response.reasoning_summary_part.added", "summary_index", "part",
                   summary_part(&none), out);
    }
    buf_add(&c->text, p, n);
    part_event(c, "response.reasoning_summary_text.delta", "summary_index", "delta",
               json_str_lossy(p, n), out);
}

static void responses_text(const struct ask *a, struct choice_out *c, const char *p, size_t n,
                           struct buf *out)
{
    if (!c->item || c->kind != 't') {
        const struct buf none = BUF_INIT;
        item_open(a, c, 't',
                  json_pack("{s:s, s:s, s:s, s:[]}", "type", "message", "role", "assistant",
                            "status", "in_progress", "content"),
                  out);
        part_event(c, "response.content_part.added", "content_index", "part", text_part(&none),
                   out);
    }
    buf_add(&c->text, p, n);
    part_event(c, "response.output_text.delta", "content_index", "delta", json_str_lossy(p, n),
               out);
}

static void responses_call(const struct ask *a, struct choice_out *c, const json_t *call,
                           struct buf *out)
{
    char id[80];
    bool custom = false;
    const char *name = field_str(call, "name");
    const char *space = namespace_of(json_object_get(a->body, "tools"), name, &custom);
    const json_t *args = json_object_get(call, "arguments");
    struct buf b = BUF_INIT;
    if (custom && json_is_string(json_object_get(args, "input"))) {
        buf_adds(&b, field_str(args, "input"));
    } else {
        json_write_exact(args, &b);
    }
    const char *key = custom ? "input" : "arguments";
    snprintf(id, sizeof id, "call_%s_%d", a->id, c->calls++);
    json_t *item = json_pack("{s:s, s:s, s:s, s:s, s:s}", "type",
                             custom ? "custom_tool_call" : "function_call", "status", "in_progress",
                             "call_id", id, "name", name, key, "");
    if (space) {
        json_object_set_new(item, "namespace", json_string(space));
    }
    item_open(a, c, 'c', item, out);
    json_t *text = json_str_lossy(b.data ? b.data : "", b.len);
    part_event(c,
               custom ? "response.custom_tool_call_input.delta"
                      : "response.function_call_arguments.delta",
               NULL, "delta", json_incref(text), out);
    part_event(c,
               custom ? "response.custom_tool_call_input.done"
                      : "response.function_call_arguments.done",
               NULL, key, json_incref(text), out);
    json_object_set_new(c->item, key, text);
    item_close(c, out);
    buf_free(&b);
}

static json_t *finished(const struct ask *a, const struct chat_result *r, json_t *items)
{
    const bool cut = r->reason == CE_R_LENGTH;
    const int output = (int)r->n_ids;
    json_t *o = response(a, cut ? "incomplete" : "completed", items ? items : json_array());
    if (cut) {
        json_object_set_new(o, "incomplete_details",
                            json_pack("{s:s}", "reason", "max_output_tokens"));
    }
    json_object_set_new(o, "usage",
                        json_pack("{s:i, s:{s:i}, s:i, s:{s:i}, s:i}", "input_tokens",
                                  r->prompt_tokens, "input_tokens_details", "cached_tokens",
                                  r->cached_tokens, "output_tokens", output,
                                  "output_tokens_details", "reasoning_tokens", r->thought_tokens,
                                  "total_tokens", r->prompt_tokens + output));
    return o;
}

static void responses_end(const struct ask *a, struct choice_out *c, const struct chat_result *r,
                          struct buf *out)
{
    item_close(c, out);
    json_t *items = c->items;
    c->items = NULL;
    event(c,
          json_pack("{s:s, s:o}", "type",
                    r->reason == CE_R_LENGTH ? "response.incomplete" : "response.completed",
                    "response", finished(a, r, items)),
          out);
}

static void responses_close(const struct ask *a, int input, int cached, int output, struct buf *out)
{
    (void)a, (void)input, (void)cached, (void)output, (void)out;
}

static void responses_fail(const struct ask *a, struct choice_out *c, const char *why,
                           struct buf *out)
{
    json_t *o = response(a, "failed", json_array());
    json_object_set_new(o, "error",
                        json_pack("{s:s, s:s}", "code", "server_error", "message", why));
    event(c, json_pack("{s:s, s:o}", "type", "response.failed", "response", o), out);
}

static void responses_ping(const struct ask *a, struct choice_out *c, struct buf *out)
{
    (void)a;
    event(c, json_pack("{s:s}", "type", "keepalive"), out);
}

/* The items of a whole answer are those that a stream of it would have had. */
static void responses_whole(const struct ask *a, const struct chat_result *const *rs, int n,
                            struct buf *out)
{
    const struct chat_result *r = rs[0];
    struct choice_out c = {.block = -1};
    struct buf unused = BUF_INIT;
    (void)n;
    if (r->thought.len > 0) {
        responses_thought(a, &c, r->thought.data, r->thought.len, &unused);
    }
    if (r->text.len > 0) {
        responses_text(a, &c, r->text.data, r->text.len, &unused);
    }
    json_t *calls =
        r->calls.len > 0 ? json_loadb(r->calls.data, r->calls.len, JSON_ALLOW_NUL, NULL) : NULL;
    for (size_t k = 0; k < json_array_size(calls); k++) {
        responses_call(a, &c, json_array_get(calls, k), &unused);
    }
    json_decref(calls);
    item_close(&c, &unused);
    json_t *o = finished(a, r, c.items);
    json_write_exact(o, out);
    json_decref(o);
    buf_free(&c.text);
    buf_free(&unused);
}

const struct api api_responses = {
    .path = "/v1/responses",
    .prefix = "resp_",
    .early = true,
    .parse = responses_parse,
    .begin = responses_begin,
    .thought = responses_thought,
    .text = responses_text,
    .call = responses_call,
    .end = responses_end,
    .close = responses_close,
    .fail = responses_fail,
    .ping = responses_ping,
    .whole = responses_whole,
};
