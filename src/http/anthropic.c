/* The shape of /v1/messages. Content blocks become messages as the template reads them, in
 * their order: a tool's result is a message of its own. */
#include "config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "http/api.h"
#include "http/choice.h"
#include "http/fields.h"
#include "http/form.h"

/* ---- content ---- */

static void wrong_image(struct fields *f, size_t i)
{
    fields_wrong_item(f, "messages", i, "has an image or a document: this model reads text only");
}

/* A tool as the template shows it. */
static json_t *definition(const json_t *t)
{
    return json_pack("{s:s, s:{s:s, s:s, s:O}}", "type", "function", "function", "name",
                     field_str(t, "name"), "description", field_str(t, "description"), "parameters",
                     json_object_get(t, "input_schema"));
}

/* A tool that was held back is told where the conversation comes to it, so that the tools at its
 * start stay the same. */
static void add_reference(const struct fields *f, const char *name, struct buf *out)
{
    size_t i = 0;
    const json_t *t = NULL;
    buf_printf(out, "%sThe tool %s can be called now.", out->len ? "\n" : "", name);
    json_array_foreach((json_t *)(uintptr_t)json_object_get(f->o, "tools"), i, t)
    {
        if (strcmp(field_str(t, "name"), name) == 0 && json_object_get(t, "input_schema")) {
            json_t *def = definition(t);
            buf_addc(out, '\n');
            json_write(def, out);
            json_decref(def);
            return;
        }
    }
}

/* The text of a string or of the text blocks of an array. result: of a tool, whose pictures the
 * user may not even know of: the model is told that there was one. */
static void add_text(const json_t *content, size_t i, bool result, struct fields *f,
                     struct buf *out)
{
    if (json_is_string(content)) {
        buf_add(out, json_string_value(content), json_string_length(content));
        return;
    }
    size_t k = 0;
    const json_t *b = NULL;
    if (content && !json_is_array(content) && !json_is_null(content)) {
        fields_wrong_item(f, "messages", i, "the content is neither a string nor an array");
    }
    json_array_foreach((json_t *)(uintptr_t)content, k, b)
    {
        const json_t *text = json_object_get(b, "text");
        if (json_is_string(text)) {
            buf_add(out, json_string_value(text), json_string_length(text));
        } else if (field_is(b, "tool_reference")) {
            add_reference(f, field_str(b, "tool_name"), out);
        } else if (result && (field_is(b, "image") || field_is(b, "document"))) {
            buf_printf(out, "%s[The tool gave %s %s, which you cannot see: you read text only.]",
                       out->len ? "\n" : "", field_is(b, "image") ? "an" : "a",
                       field_str(b, "type"));
        } else if (field_is(b, "image") || field_is(b, "document")) {
            wrong_image(f, i);
        }
    }
}

static json_t *text_message(const char *role, const struct buf *text)
{
    return json_pack("{s:s, s:o}", "role", role, "content",
                     json_str_lossy(text->data ? text->data : "", text->len));
}

/* A new message of what has been gathered, if anything has. */
static void flush_text(json_t *list, const char *role, struct buf *text)
{
    if (text->len > 0) {
        json_array_append_new(list, text_message(role, text));
        buf_truncate(text, 0);
    }
}

static void add_user(json_t *list, const char *role, const json_t *content, size_t i,
                     struct fields *f)
{
    struct buf text = BUF_INIT;
    size_t k = 0;
    const json_t *b = NULL;
    if (!json_is_array(content)) {
        add_text(content, i, false, f, &text);
        json_array_append_new(list, text_message(role, &text));
        buf_free(&text);
        return;
    }
    json_array_foreach((json_t *)(uintptr_t)content, k, b)
    {
        if (field_is(b, "tool_result")) {
            flush_text(list, role, &text);
            struct buf result = BUF_INIT;
            add_text(json_object_get(b, "content"), i, true, f, &result);
            json_t *m = text_message("tool", &result);
            json_object_set_new(m, "tool_call_id", json_string(field_str(b, "tool_use_id")));
            json_array_append_new(list, m);
            buf_free(&result);
        } else if (field_is(b, "text")) {
            const json_t *t = json_object_get(b, "text");
            if (text.len > 0) {
                buf_addc(&text, '\n');
            }
            buf_add(&text, field_str(b, "text"), json_string_length(t));
        } else if (field_is(b, "image") || field_is(b, "document")) {
            wrong_image(f, i);
        }
    }
    flush_text(list, role, &text);
    buf_free(&text);
}

static void add_assistant(json_t *list, const json_t *content, size_t i, struct fields *f)
{
    struct buf text = BUF_INIT, thought = BUF_INIT;
    json_t *calls = json_array();
    size_t k = 0;
    const json_t *b = NULL;
    if (!json_is_array(content)) {
        add_text(content, i, false, f, &text);
    }
    json_array_foreach((json_t *)(uintptr_t)content, k, b)
    {
        if (field_is(b, "thinking")) {
            buf_adds(&thought, field_str(b, "thinking"));
        } else if (field_is(b, "text")) {
            buf_add(&text, field_str(b, "text"), json_string_length(json_object_get(b, "text")));
        } else if (field_is(b, "tool_use")) {
            json_t *in = json_object_get(b, "input");
            in = json_is_object(in) ? json_incref(in) : json_object();
            json_array_append_new(calls,
                                  json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", field_str(b, "id"),
                                            "type", "function", "function", "name",
                                            field_str(b, "name"), "arguments", in));
        }
    }
    json_t *m = text_message("assistant", &text);
    if (thought.len > 0) {
        json_object_set_new(m, "reasoning_content", json_str_lossy(thought.data, thought.len));
    }
    if (json_array_size(calls) > 0) {
        json_object_set(m, "tool_calls", calls);
    }
    json_decref(calls);
    json_array_append_new(list, m);
    buf_free(&text);
    buf_free(&thought);
}

/* The system prompt, its blocks joined; a client's accounting line is not part of it. */
static void add_system(json_t *list, const json_t *system, struct fields *f)
{
    static const char billing[] = "x-anthropic-billing-header:";
    struct buf text = BUF_INIT;
    size_t k = 0;
    const json_t *b = NULL;
    if (json_is_string(system)) {
        buf_add(&text, json_string_value(system), json_string_length(system));
    } else if (system && !json_is_array(system) && !json_is_null(system)) {
        fields_wrong(f, "system", "must be a string or an array of text blocks");
    }
    json_array_foreach((json_t *)(uintptr_t)system, k, b)
    {
        const char *s = field_str(b, "text");
        if (!s[0] || strncmp(s, billing, sizeof billing - 1) == 0) {
            continue;
        }
        buf_adds(&text, text.len ? "\n\n" : "");
        buf_add(&text, s, json_string_length(json_object_get(b, "text")));
    }
    flush_text(list, "system", &text);
    buf_free(&text);
}

static void take_messages(struct ask *a, struct fields *f)
{
    json_t *in = fields_array(f, "messages");
    if (!in || json_array_size(in) == 0) {
        fields_wrong(f, "messages", "must be an array of at least one message");
        return;
    }
    json_t *list = json_array();
    size_t i = 0;
    const json_t *m = NULL;
    add_system(list, json_object_get(a->body, "system"), f);
    json_array_foreach(in, i, m)
    {
        const char *role = field_str(m, "role");
        const json_t *content = json_object_get(m, "content");
        if (!json_is_object(m)) {
            fields_wrong_item(f, "messages", i, "is %s; it must be an object", field_type(m));
        } else if (strcmp(role, "assistant") == 0) {
            add_assistant(list, content, i, f);
        } else if (strcmp(role, "user") == 0) {
            add_user(list, "user", content, i, f);
        } else if (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0) {
            add_user(list, "system", content, i, f);
        } else {
            fields_wrong_item(f, "messages", i,
                              "the role \"%.40s\" is none of user, assistant, system", role);
        }
    }
    ask_messages(a, list);
    json_decref(list);
}

/* Tools that the model can call: those with a schema. Some are held back for later. */
static void take_tools(struct ask *a, struct fields *f)
{
    const json_t *in = fields_tools(f, NULL, "input_schema");
    fields_choice(f, false);
    json_t *list = json_array();
    size_t i = 0;
    const json_t *t = NULL;
    json_array_foreach((json_t *)(uintptr_t)in, i, t)
    {
        json_t *schema = json_object_get(t, "input_schema");
        if (!schema) {
            continue;
        }
        json_t *def = definition(t);
        if (json_is_true(json_object_get(t, "defer_loading"))) {
            json_object_set_new(def, "defer_loading", json_true());
        }
        json_array_append_new(list, def);
    }
    choice_take(a, f, list);
    json_decref(list);
}

static void take_thinking(struct ask *a, struct fields *f)
{
    const char *effort = fields_word(f, "output_config", "effort", "output_config.effort");
    choice_effort(a, f, "output_config.effort", effort, false, false);
    choice_thinking(a, f);
}

static int messages_parse(struct ask *a, const char **field, struct err *e)
{
    struct fields f = {.o = a->body};
    ask_sampling(a, &f);
    a->q.logprobs = -1;
    take_messages(a, &f);
    take_tools(a, &f);
    take_thinking(a, &f);
    const json_t *format = json_object_get(json_object_get(a->body, "output_config"), "format");
    form_take(a, &f, "output_config.format", format);
    if (!format) {
        form_take(a, &f, "output_format", fields_object(&f, "output_format"));
    }
    if (!a->counting && !json_object_get(a->body, "max_tokens")) {
        fields_wrong(&f, "max_tokens", "is missing; it is the most tokens to answer with");
    }
    *field = f.field;
    return fields_ok(&f) ? 0 : err_set(e, f.e.code, "%s", f.e.msg);
}

/* ---- answers ---- */

static json_t *usage(int input, int cached, int output)
{
    return json_pack("{s:i, s:i, s:i, s:i}", "input_tokens", input - cached,
                     "cache_creation_input_tokens", 0, "cache_read_input_tokens", cached,
                     "output_tokens", output);
}

static const char *stop_reason(const struct chat_result *r)
{
    switch (r->reason) {
    case CE_R_LENGTH:
        return "max_tokens";
    case CE_R_TOOL:
        return "tool_use";
    case CE_R_STOP:
    case CE_R_CANCELLED:
    case CE_R_ERROR:
        break;
    }
    return r->stop >= 0 ? "stop_sequence" : "end_turn";
}

static json_t *stop_sequence(const struct ask *a, const struct chat_result *r)
{
    return r->stop >= 0 && (size_t)r->stop < a->q.n_stop ? json_string(a->q.stop[r->stop])
                                                         : json_null();
}

static void block_close(struct choice_out *c, struct buf *out)
{
    if (c->block < 0) {
        return;
    }
    if (c->kind == 'h') {
        sse_event("content_block_delta",
                  json_pack("{s:s, s:i, s:{s:s, s:s}}", "type", "content_block_delta", "index",
                            c->block, "delta", "type", "signature_delta", "signature", ""),
                  out);
    }
    sse_event("content_block_stop",
              json_pack("{s:s, s:i}", "type", "content_block_stop", "index", c->block), out);
    c->block = -1;
}

static void block_open(struct choice_out *c, char kind, json_t *block, struct buf *out)
{
    block_close(c, out);
    c->block = c->blocks++;
    c->kind = kind;
    sse_event("content_block_start",
              json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", c->block,
                        "content_block", block),
              out);
}

static void delta(const struct choice_out *c, const char *type, const char *key, json_t *text,
                  struct buf *out)
{
    sse_event("content_block_delta",
              json_pack("{s:s, s:i, s:{s:s, s:o}}", "type", "content_block_delta", "index",
                        c->block, "delta", "type", type, key, text),
              out);
}

static void messages_begin(const struct ask *a, struct choice_out *c, int input, int cached,
                           struct buf *out)
{
    (void)c;
    sse_event("message_start",
              json_pack("{s:s, s:{s:s, s:s, s:s, s:s, s:[], s:n, s:n, s:o}}", "type",
                        "message_start", "message", "id", a->id, "type", "message", "role",
                        "assistant", "model", a->model, "content", "stop_reason", "stop_sequence",
                        "usage", usage(input, cached, 0)),
              out);
}

static void messages_thought(const struct ask *a, struct choice_out *c, const char *p, size_t n,
                             struct buf *out)
{
    (void)a;
    if (c->block < 0 || c->kind != 'h') {
        block_open(
            c, 'h',
            json_pack("{s:s, s:s, s:s}", "type", "thinking", "thinking", "", "signature", ""), out);
    }
    delta(c, "thinking_delta", "thinking", json_str_lossy(p, n), out);
}

static void messages_text(const struct ask *a, struct choice_out *c, const char *p, size_t n,
                          struct buf *out)
{
    (void)a;
    if (c->block < 0 || c->kind != 't') {
        block_open(c, 't', json_pack("{s:s, s:s}", "type", "text", "text", ""), out);
    }
    delta(c, "text_delta", "text", json_str_lossy(p, n), out);
}

static json_t *tool_use(const struct ask *a, int k, const json_t *call, json_t *input)
{
    char id[96];
    snprintf(id, sizeof id, "toolu_%s_%d", a->id, k);
    return json_pack("{s:s, s:s, s:O, s:o}", "type", "tool_use", "id", id, "name",
                     json_object_get(call, "name"), "input", input);
}

static void messages_call(const struct ask *a, struct choice_out *c, const json_t *call,
                          struct buf *out)
{
    struct buf b = BUF_INIT;
    block_open(c, 'c', tool_use(a, c->calls++, call, json_object()), out);
    json_write_exact(json_object_get(call, "arguments"), &b);
    delta(c, "input_json_delta", "partial_json", json_str_lossy(b.data, b.len), out);
    buf_free(&b);
}

static void messages_end(const struct ask *a, struct choice_out *c, const struct chat_result *r,
                         struct buf *out)
{
    block_close(c, out);
    json_t *u = usage(r->prompt_tokens, r->cached_tokens, (int)r->n_ids);
    sse_event("message_delta",
              json_pack("{s:s, s:{s:s, s:o}, s:o}", "type", "message_delta", "delta", "stop_reason",
                        stop_reason(r), "stop_sequence", stop_sequence(a, r), "usage", u),
              out);
    sse_event("message_stop", json_pack("{s:s}", "type", "message_stop"), out);
}

static void messages_close(const struct ask *a, int input, int cached, int output, struct buf *out)
{
    (void)a, (void)input, (void)cached, (void)output, (void)out;
}

static json_t *error_of(const char *type, const char *why)
{
    return json_pack("{s:s, s:{s:s, s:s}}", "type", "error", "error", "type", type, "message", why);
}

static void messages_fail(const struct ask *a, struct choice_out *c, const char *why,
                          struct buf *out)
{
    (void)a, (void)c;
    sse_event("error", error_of("api_error", why), out);
}

static void messages_ping(const struct ask *a, struct choice_out *c, struct buf *out)
{
    (void)a, (void)c;
    sse_event("ping", json_pack("{s:s}", "type", "ping"), out);
}

static void messages_whole(const struct ask *a, const struct chat_result *const *rs, int n,
                           struct buf *out)
{
    const struct chat_result *r = rs[0];
    json_t *content = json_array();
    (void)n;
    if (r->thought.len > 0) {
        json_array_append_new(content, json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking",
                                                 json_str_lossy(r->thought.data, r->thought.len),
                                                 "signature", ""));
    }
    json_t *calls = r->calls.len > 0 ? json_loadb(r->calls.data, r->calls.len, JSON_ALLOW_NUL, NULL)
                                     : json_array();
    if (r->text.len > 0) {
        json_array_append_new(content, json_pack("{s:s, s:o}", "type", "text", "text",
                                                 json_str_lossy(r->text.data, r->text.len)));
    }
    for (size_t k = 0; k < json_array_size(calls); k++) {
        const json_t *call = json_array_get(calls, k);
        json_array_append_new(
            content, tool_use(a, (int)k, call, json_incref(json_object_get(call, "arguments"))));
    }
    json_decref(calls);
    json_t *o = json_pack("{s:s, s:s, s:s, s:s, s:o, s:s, s:o, s:o}", "id", a->id, "type",
                          "message", "role", "assistant", "model", a->model, "content", content,
                          "stop_reason", stop_reason(r), "stop_sequence", stop_sequence(a, r),
                          "usage", usage(r->prompt_tokens, r->cached_tokens, (int)r->n_ids));
    json_write_exact(o, out);
    json_decref(o);
}

static void messages_error(int status, const char *why, const char *field, struct buf *out)
{
    const char *type = status == 401   ? "authentication_error"
                       : status == 404 ? "not_found_error"
                       : status == 413 ? "request_too_large"
                       : status == 429 ? "rate_limit_error"
                       : status == 503 ? "overloaded_error"
                       : status >= 500 ? "api_error"
                                       : "invalid_request_error";
    (void)field;
    json_t *o = error_of(type, why);
    json_write_exact(o, out);
    json_decref(o);
}

const struct api api_messages = {
    .path = "/v1/messages",
    .prefix = "msg_",
    .parse = messages_parse,
    .begin = messages_begin,
    .thought = messages_thought,
    .text = messages_text,
    .call = messages_call,
    .end = messages_end,
    .close = messages_close,
    .fail = messages_fail,
    .ping = messages_ping,
    .whole = messages_whole,
    .error = messages_error,
};
