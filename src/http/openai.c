/* The shapes of /v1/chat/completions and /v1/completions. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "http/api.h"
#include "http/choice.h"
#include "http/fields.h"
#include "http/form.h"

#define LIKELIEST_MOST 20 /* tokens whose log probabilities are told beside one */

/* ---- what both have ---- */

static void take_common(struct ask *a, struct fields *f)
{
    ask_sampling(a, f);
    int64_t n = a->n;
    fields_int(f, "n", 1, API_CHOICES, &n);
    a->n = (int)n;
    json_t *so = fields_object(f, "stream_options");
    if (so) {
        struct fields g = {.o = so};
        fields_bool(&g, "include_usage", &a->usage);
        if (!fields_ok(&g)) {
            fields_wrong(f, "stream_options", "%s", g.e.msg);
        }
    }
}

static json_t *usage(const struct ask *a, int input, int cached, int output)
{
    return json_pack("{s:i, s:i, s:i, s:{s:i}, s:{s:i}}", "prompt_tokens", input,
                     "completion_tokens", output, "total_tokens", input + output,
                     "prompt_tokens_details", "cached_tokens", cached, "completion_tokens_details",
                     "reasoning_tokens", a->reasoning);
}

static const char *finish(const struct chat_result *r)
{
    switch (r->reason) {
    case CE_R_LENGTH:
        return "length";
    case CE_R_TOOL:
        return "tool_calls";
    case CE_R_CANCELLED:
        return "abort";
    case CE_R_STOP:
    case CE_R_ERROR:
        break;
    }
    return "stop";
}

static json_t *chunk(const struct ask *a, const char *object, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", a->id, "object", object, "created",
                     (json_int_t)a->created, "model", a->model, "choices", choices);
}

static void openai_error(int status, const char *why, const char *field, struct buf *out)
{
    const char *type = status == 401   ? "authentication_error"
                       : status == 404 ? "not_found_error"
                       : status == 429 ? "rate_limit_error"
                       : status >= 500 ? "server_error"
                                       : "invalid_request_error";
    const bool too_long = status == 400 && strncmp(why, "This model's maximum context", 28) == 0;
    json_t *o = json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", why, "type", type,
                          "param", field, "code",
                          too_long        ? "context_length_exceeded"
                          : status == 401 ? "invalid_api_key"
                                          : NULL);
    json_write_exact(o, out);
    json_decref(o);
}

static void openai_fail(const struct ask *a, struct choice_out *c, const char *why, struct buf *out)
{
    (void)a, (void)c;
    sse_event(NULL,
              json_pack("{s:{s:s, s:s, s:n, s:n}}", "error", "message", why, "type", "server_error",
                        "param", "code"),
              out);
}

static void comment(const struct ask *a, struct choice_out *c, struct buf *out)
{
    (void)a, (void)c;
    buf_adds(out, ": still working\n\n");
}

static void done(const struct ask *a, const char *object, int input, int cached, int output,
                 struct buf *out)
{
    if (a->usage) {
        json_t *o = chunk(a, object, json_array());
        json_object_set_new(o, "usage", usage(a, input, cached, output));
        sse_event(NULL, o, out);
    }
    buf_adds(out, "data: [DONE]\n\n");
}

/* ---- chat completions ---- */

/* Arguments that an earlier answer got wrong, and that are no object, as one with a text. */
static void mend_calls(json_t *m)
{
    size_t i = 0;
    json_t *call = NULL;
    json_array_foreach(json_object_get(m, "tool_calls"), i, call)
    {
        json_t *fn = json_object_get(call, "function");
        const json_t *args = json_object_get(fn, "arguments");
        if (!json_is_string(args) || json_string_length(args) == 0) {
            continue;
        }
        json_t *o =
            json_loadb(json_string_value(args), json_string_length(args), JSON_ALLOW_NUL, NULL);
        if (!json_is_object(o)) {
            json_object_set_new(fn, "arguments", json_pack("{s:O}", "arguments", args));
        }
        json_decref(o);
    }
}

/* Messages as the template reads them: a call's result whatever its role is called. */
static void take_messages(struct ask *a, struct fields *f)
{
    json_t *list = fields_array(f, "messages");
    if (!list || json_array_size(list) == 0) {
        fields_wrong(f, "messages", "must be an array of at least one message");
        return;
    }
    size_t i = 0;
    json_t *m = NULL;
    json_array_foreach(list, i, m)
    {
        const char *role = json_string_value(json_object_get(m, "role"));
        if (role && strcmp(role, "function") == 0) {
            json_object_set_new(m, "role", json_string("tool"));
        }
        mend_calls(m);
    }
    ask_messages(a, list);
}

static void take_tools(struct ask *a, struct fields *f)
{
    json_t *tools = fields_tools(f, "function", "parameters");
    fields_choice(f, true);
    choice_take(a, f, tools);
}

static void take_thinking(struct ask *a, struct fields *f)
{
    const char *effort = NULL;
    fields_str(f, "reasoning_effort", &effort);
    const char *nested = fields_word(f, "reasoning", "effort", "reasoning.effort");
    choice_effort(a, f, "reasoning_effort", effort ? effort : nested, true, true);
    choice_thinking(a, f);
}

static int chat_parse(struct ask *a, const char **field, struct err *e)
{
    struct fields f = {.o = a->body};
    int64_t top = 0;
    take_common(a, &f);
    take_messages(a, &f);
    take_tools(a, &f);
    form_take(a, &f, "response_format", fields_object(&f, "response_format"));
    form_take_guided(a, &f);
    take_thinking(a, &f);
    fields_bool(&f, "logprobs", &a->logprobs);
    fields_int(&f, "top_logprobs", 0, LIKELIEST_MOST, &top);
    if (top > 0 && !a->logprobs) {
        fields_wrong(&f, "top_logprobs", "is %d without logprobs; it needs logprobs true",
                     (int)top);
    }
    a->top = a->logprobs ? (int)top : 0;
    a->q.logprobs = a->logprobs ? a->top : -1;
    a->per = a->n;
    *field = f.field;
    return fields_ok(&f) ? 0 : err_set(e, f.e.code, "%s", f.e.msg);
}

static json_t *chat_logprobs(const struct ask *a, const struct conv_logprob *l, size_t n)
{
    json_t *all = json_array();
    const size_t per = (size_t)a->top + 1;
    for (size_t i = 0; i < n; i++, l += per) {
        json_t *top = json_array();
        for (size_t k = 1; k < per; k++) {
            json_array_append_new(top, ask_logprob(a, &l[k]));
        }
        json_t *o = ask_logprob(a, l);
        json_object_set_new(o, "top_logprobs", top);
        json_array_append_new(all, o);
    }
    return json_pack("{s:o}", "content", all);
}

/* r: the answer ends with it. */
static void chat_delta(const struct ask *a, struct choice_out *c, json_t *delta,
                       const struct chat_result *r, bool told, struct buf *out)
{
    json_t *choice = json_pack("{s:i, s:o, s:s?}", "index", c->index, "delta", delta,
                               "finish_reason", r ? finish(r) : NULL);
    size_t n = 0;
    const struct conv_logprob *l = told ? ask_untold(a, c, r, &n) : NULL;
    if (l) {
        json_object_set_new(choice, "logprobs", chat_logprobs(a, l, n));
    }
    sse_event(NULL, chunk(a, "chat.completion.chunk", json_pack("[o]", choice)), out);
}

static void chat_begin(const struct ask *a, struct choice_out *c, int input, int cached,
                       struct buf *out)
{
    (void)input, (void)cached;
    chat_delta(a, c, json_pack("{s:s, s:s}", "role", "assistant", "content", ""), NULL, false, out);
}

static void chat_thought(const struct ask *a, struct choice_out *c, const char *p, size_t n,
                         struct buf *out)
{
    chat_delta(a, c, json_pack("{s:o}", "reasoning_content", json_str_lossy(p, n)), NULL, true,
               out);
}

static void chat_text(const struct ask *a, struct choice_out *c, const char *p, size_t n,
                      struct buf *out)
{
    chat_delta(a, c, json_pack("{s:o}", "content", json_str_lossy(p, n)), NULL, true, out);
}

static json_t *arguments(const json_t *call)
{
    struct buf b = BUF_INIT;
    json_write_exact(json_object_get(call, "arguments"), &b);
    json_t *s = json_str_lossy(b.data, b.len);
    buf_free(&b);
    return s;
}

static json_t *call_head(const struct ask *a, int choice, int k, const json_t *call, json_t *args)
{
    char id[96];
    snprintf(id, sizeof id, "call_%s_%d_%d", a->id, choice, k);
    return json_pack("{s:s, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function", "name",
                     json_object_get(call, "name"), "arguments", args);
}

static void chat_call(const struct ask *a, struct choice_out *c, const json_t *call,
                      struct buf *out)
{
    json_t *head = call_head(a, c->index, c->calls, call, json_string(""));
    json_object_set_new(head, "index", json_integer(c->calls));
    chat_delta(a, c, json_pack("{s:[o]}", "tool_calls", head), NULL, false, out);
    json_t *more =
        json_pack("{s:i, s:{s:o}}", "index", c->calls, "function", "arguments", arguments(call));
    chat_delta(a, c, json_pack("{s:[o]}", "tool_calls", more), NULL, false, out);
    c->calls++;
}

static void chat_end(const struct ask *a, struct choice_out *c, const struct chat_result *r,
                     struct buf *out)
{
    chat_delta(a, c, json_object(), r, true, out);
}

static void chat_close(const struct ask *a, int input, int cached, int output, struct buf *out)
{
    done(a, "chat.completion.chunk", input, cached, output, out);
}

static json_t *text_or_null(const struct buf *b, bool null)
{
    return null && b->len == 0 ? json_null() : json_str_lossy(b->data ? b->data : "", b->len);
}

static void chat_whole(const struct ask *a, const struct chat_result *const *r, int n,
                       struct buf *out)
{
    json_t *choices = json_array();
    int input = 0, cached = 0, output = 0;
    ask_totals(a, r, n, &input, &cached, &output);
    for (int i = 0; i < n; i++) {
        json_t *calls = NULL;
        if (r[i]->calls.len > 0) {
            calls = json_loadb(r[i]->calls.data, r[i]->calls.len, JSON_ALLOW_NUL, NULL);
        }
        json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                              text_or_null(&r[i]->text, json_array_size(calls) > 0));
        if (r[i]->thought.len > 0) {
            json_object_set_new(m, "reasoning_content", text_or_null(&r[i]->thought, false));
        }
        if (json_array_size(calls) > 0) {
            json_t *list = json_array();
            for (size_t k = 0; k < json_array_size(calls); k++) {
                const json_t *call = json_array_get(calls, k);
                json_array_append_new(list, call_head(a, i, (int)k, call, arguments(call)));
            }
            json_object_set_new(m, "tool_calls", list);
        }
        json_decref(calls);
        json_t *c =
            json_pack("{s:i, s:o, s:s}", "index", i, "message", m, "finish_reason", finish(r[i]));
        struct choice_out none = {.index = i};
        size_t n_told = 0;
        const struct conv_logprob *l = ask_untold(a, &none, r[i], &n_told);
        json_object_set_new(c, "logprobs", l ? chat_logprobs(a, l, n_told) : json_null());
        json_array_append_new(choices, c);
    }
    json_t *o = chunk(a, "chat.completion", choices);
    json_object_set_new(o, "usage", usage(a, input, cached, output));
    json_write_exact(o, out);
    json_decref(o);
}

const struct api api_chat = {
    .path = "/v1/chat/completions",
    .prefix = "chatcmpl-",
    .aborts = true,
    .parse = chat_parse,
    .begin = chat_begin,
    .thought = chat_thought,
    .text = chat_text,
    .call = chat_call,
    .end = chat_end,
    .close = chat_close,
    .fail = openai_fail,
    .ping = comment,
    .whole = chat_whole,
    .error = openai_error,
};

/* ---- completions ---- */

static bool take_ids(const json_t *list, struct ask_prompt *p, struct fields *f)
{
    p->ids = mem_array(json_array_size(list) + 1, sizeof *p->ids);
    p->n_ids = json_array_size(list);
    for (size_t i = 0; i < p->n_ids; i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > INT32_MAX) {
            fields_wrong(f, "prompt", "item %zu is no token's number", i);
            return false;
        }
        p->ids[i] = (int32_t)id;
    }
    return true;
}

/* A text, token ids, or several of either. */
static void take_prompts(struct ask *a, struct fields *f)
{
    const json_t *v = json_object_get(a->body, "prompt");
    const json_t *first = json_array_get(v, 0);
    const bool one = json_is_string(v) || json_is_integer(first);
    const size_t n = one ? 1 : json_array_size(v);
    if (n == 0) {
        fields_wrong(f, "prompt", "must be a text, an array of token ids, or an array of these");
        return;
    }
    if (n > API_CHOICES) {
        fields_wrong(f, "prompt", "has %zu texts; at most %d can be asked about at once", n,
                     API_CHOICES);
        return;
    }
    a->prompts = mem_array(n, sizeof *a->prompts);
    memset(a->prompts, 0, n * sizeof *a->prompts);
    a->n_prompts = n;
    for (size_t i = 0; i < n && fields_ok(f); i++) {
        const json_t *p = one ? v : json_array_get(v, i);
        if (json_is_string(p)) {
            a->prompts[i].text = json_string_value(p);
            a->prompts[i].text_n = json_string_length(p);
        } else if (json_is_array(p) && json_array_size(p) > 0) {
            (void)take_ids(p, &a->prompts[i], f);
        } else {
            fields_wrong(f, "prompt", "item %zu is neither a text nor token ids", i);
        }
    }
}

static int completions_parse(struct ask *a, const char **field, struct err *e)
{
    struct fields f = {.o = a->body};
    int64_t top = -1;
    take_common(a, &f);
    take_prompts(a, &f);
    form_take(a, &f, "response_format", fields_object(&f, "response_format"));
    form_take_guided(a, &f);
    fields_bool(&f, "echo", &a->echo);
    fields_int(&f, "logprobs", 0, LIKELIEST_MOST, &top);
    a->logprobs = top >= 0;
    a->top = top < 0 ? 0 : (int)top;
    a->q.logprobs = (int)top;
    if (fields_ok(&f) && (size_t)a->n > API_CHOICES / a->n_prompts) {
        fields_wrong(&f, "n", "is %d for %zu prompts; at most %d answers can be asked for", a->n,
                     a->n_prompts, API_CHOICES);
    }
    if (a->echo && a->logprobs) {
        fields_wrong(&f, "echo",
                     "is true beside logprobs; those of a prompt are not computed here (quasar "
                     "score does it)");
    }
    a->per = a->n;
    a->n *= (int)a->n_prompts;
    *field = f.field;
    return fields_ok(&f) ? 0 : err_set(e, f.e.code, "%s", f.e.msg);
}

static json_t *completion_logprobs(const struct ask *a, struct choice_out *c,
                                   const struct conv_logprob *l, size_t n)
{
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array();
    json_t *offsets = json_array();
    const size_t per = (size_t)a->top + 1;
    for (size_t i = 0; i < n; i++, l += per) {
        json_t *top = json_object();
        for (size_t k = 1; k < per; k++) {
            json_t *t = ask_token(a, l[k].id);
            json_object_set_new_nocheck(top, json_string_value(t), json_real(l[k].logprob));
            json_decref(t);
        }
        json_t *t = ask_token(a, l->id);
        json_array_append_new(offsets, json_integer((json_int_t)c->told_bytes));
        c->told_bytes += json_string_length(t);
        json_array_append_new(tokens, t);
        json_array_append_new(values, json_real(l->logprob));
        json_array_append_new(tops, top);
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values,
                     "top_logprobs", tops, "text_offset", offsets);
}

/* r: the answer ends with it. */
static json_t *piece(const struct ask *a, struct choice_out *c, const char *p, size_t n,
                     const struct chat_result *r)
{
    size_t told = 0;
    const struct conv_logprob *l = ask_untold(a, c, r, &told);
    return json_pack("{s:i, s:o, s:o, s:s?}", "index", c->index, "text", json_str_lossy(p, n),
                     "logprobs", l ? completion_logprobs(a, c, l, told) : json_null(),
                     "finish_reason", r ? finish(r) : NULL);
}

/* The prompt of a choice, given back before what follows it. */
static void add_prompt(const struct ask *a, int choice, struct buf *out)
{
    const struct ask_prompt *p = &a->prompts[choice / a->per];
    buf_add(out, p->text ? p->text : "", p->text_n);
    for (size_t i = 0; i < p->n_ids && a->token; i++) {
        a->token(a->token_ctx, p->ids[i], out);
    }
}

static void completion_begin(const struct ask *a, struct choice_out *c, int input, int cached,
                             struct buf *out)
{
    (void)input, (void)cached;
    if (a->echo) {
        struct buf b = BUF_INIT;
        add_prompt(a, c->index, &b);
        json_t *o = piece(a, c, b.data ? b.data : "", b.len, NULL);
        sse_event(NULL, chunk(a, "text_completion", json_pack("[o]", o)), out);
        buf_free(&b);
    }
}

static void completion_text(const struct ask *a, struct choice_out *c, const char *p, size_t n,
                            struct buf *out)
{
    sse_event(NULL, chunk(a, "text_completion", json_pack("[o]", piece(a, c, p, n, NULL))), out);
}

/* Nothing is looked for in a bare continuation. */
static void completion_call(const struct ask *a, struct choice_out *c, const json_t *call,
                            struct buf *out)
{
    struct buf b = BUF_INIT;
    json_write_exact(call, &b);
    completion_text(a, c, b.data, b.len, out);
    buf_free(&b);
}

static void completion_end(const struct ask *a, struct choice_out *c, const struct chat_result *r,
                           struct buf *out)
{
    json_t *o = piece(a, c, "", 0, r);
    sse_event(NULL, chunk(a, "text_completion", json_pack("[o]", o)), out);
}

static void completion_close(const struct ask *a, int input, int cached, int output,
                             struct buf *out)
{
    done(a, "text_completion", input, cached, output, out);
}

static void completion_whole(const struct ask *a, const struct chat_result *const *r, int n,
                             struct buf *out)
{
    json_t *choices = json_array();
    int input = 0, cached = 0, output = 0;
    ask_totals(a, r, n, &input, &cached, &output);
    for (int i = 0; i < n; i++) {
        struct choice_out c = {.index = i};
        struct buf b = BUF_INIT;
        if (a->echo) {
            add_prompt(a, i, &b);
        }
        buf_add(&b, r[i]->text.data ? r[i]->text.data : "", r[i]->text.len);
        json_array_append_new(choices, piece(a, &c, b.data ? b.data : "", b.len, r[i]));
        buf_free(&b);
    }
    json_t *o = chunk(a, "text_completion", choices);
    json_object_set_new(o, "usage", usage(a, input, cached, output));
    json_write_exact(o, out);
    json_decref(o);
}

const struct api api_completions = {
    .path = "/v1/completions",
    .prefix = "cmpl-",
    .aborts = true,
    .parse = completions_parse,
    .begin = completion_begin,
    .thought = completion_text,
    .text = completion_text,
    .call = completion_call,
    .end = completion_end,
    .close = completion_close,
    .fail = openai_fail,
    .ping = comment,
    .whole = completion_whole,
    .error = openai_error,
};
