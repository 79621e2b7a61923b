/* Everything that needs no answer of the model: what it is, how it goes, and its tokens. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "http/fields.h"
#include "http/server.h"

static void put(json_t *o, struct buf *out)
{
    json_write_exact(o, out);
    json_decref(o);
}

static void wrong(bool anthropic, const char *field, const char *why, int code, int *status,
                  struct buf *out)
{
    *status = code;
    (anthropic ? &api_messages : &api_chat)->error(code, why, field, out);
}

static bool is_ready(const struct http *h)
{
    struct view_model m;
    conv_view_model(h->conv, &m);
    return m.ready;
}

/* Both APIs' fields in one object. */
static json_t *model_object(const struct http *h)
{
    struct view_model m;
    conv_view_model(h->conv, &m);
    return json_pack("{s:s, s:s, s:s, s:i, s:s, s:s, s:s, s:i}", "id", m.name, "object", "model",
                     "type", "model", "created", 0, "created_at", "1970-01-01T00:00:00Z",
                     "owned_by", "quasar", "display_name", m.name, "max_model_len", m.ctx);
}

static void models(const struct http *h, struct buf *out)
{
    struct view_model m;
    conv_view_model(h->conv, &m);
    json_t *list = m.ready ? json_pack("[o]", model_object(h)) : json_array();
    put(json_pack("{s:s, s:o, s:b, s:s, s:s}", "object", "list", "data", list, "has_more", 0,
                  "first_id", m.name, "last_id", m.name),
        out);
}

static void status_of(struct http *h, struct buf *out)
{
    struct view_model m;
    struct view_load l;
    conv_view_model(h->conv, &m);
    conv_view_load(h->conv, &l);
    put(json_pack("{s:s, s:b, s:b, s:i, s:i, s:i, s:I, s:I, s:f}", "model", m.name, "ready",
                  m.ready, "draining", atomic_load(&h->draining), "requests", http_live(h),
                  "running", l.running, "waiting", l.waiting, "prompt_tokens",
                  (json_int_t)l.prompt_tokens, "cached_tokens", (json_int_t)l.cached_tokens,
                  "tokens_per_round", view_spec_per_round(&l.spec)),
        out);
}

static void metric(struct buf *out, const char *name, const char *type, const char *model,
                   double value)
{
    buf_printf(out, "# TYPE %s %s\n%s{model_name=\"%s\"} %.17g\n", name, type, name, model, value);
}

static void metrics(struct http *h, struct buf *out)
{
    struct view_model m;
    struct view_load l;
    struct view_kv kv;
    conv_view_model(h->conv, &m);
    conv_view_load(h->conv, &l);
    conv_view_kv(h->conv, &kv);
    uint64_t tokens = 0, drafts = 0;
    for (int s = 0; s < VS_COUNT; s++) {
        tokens += l.spec.tokens[s];
        drafts += s == VS_NONE ? 0 : l.spec.rounds[s];
    }
    metric(out, "vllm:num_requests_running", "gauge", m.name, l.running);
    metric(out, "vllm:num_requests_waiting", "gauge", m.name, l.waiting);
    metric(out, "vllm:kv_cache_usage_perc", "gauge", m.name,
           kv.pages > 0 ? 1 - (double)kv.pages_free / kv.pages : 0);
    metric(out, "vllm:prompt_tokens_total", "counter", m.name, (double)l.prompt_tokens);
    metric(out, "vllm:generation_tokens_total", "counter", m.name, (double)tokens);
    metric(out, "vllm:prefix_cache_queries_total", "counter", m.name, (double)l.prompt_tokens);
    metric(out, "vllm:prefix_cache_hits_total", "counter", m.name, (double)l.cached_tokens);
    metric(out, "vllm:spec_decode_num_drafts_total", "counter", m.name, (double)drafts);
    metric(out, "vllm:spec_decode_num_draft_tokens_total", "counter", m.name,
           (double)view_spec_drafted(&l.spec));
    metric(out, "vllm:spec_decode_num_accepted_tokens_total", "counter", m.name,
           (double)view_spec_accepted(&l.spec));
}

/* ---- tokens ---- */

static void count_tokens(struct http *h, json_t *body, int *status, struct buf *out)
{
    struct ask *a = NULL;
    struct err e = ERR_INIT;
    const char *field = NULL;
    int n = 0;
    int rc = ask_create(&api_messages, body, true, &h->defaults, &a, &field, &e);
    if (rc == 0) {
        const struct conv_request q = ask_request(a, 0);
        rc = conv_count_tokens(h->conv, &q, &n, &e);
    }
    ask_free(a);
    if (rc < 0) {
        wrong(true, field, e.msg, rc == QE_BUSY ? 503 : 400, status, out);
        return;
    }
    put(json_pack("{s:i}", "input_tokens", n), out);
}

static void tokenize(struct http *h, json_t *body, int *status, struct buf *out)
{
    struct fields f = {.o = body};
    struct err e = ERR_INIT;
    const char *text = NULL;
    bool special = true;
    int32_t *ids = NULL;
    size_t n = 0;
    fields_str(&f, "content", &text);
    fields_str(&f, "prompt", &text);
    fields_bool(&f, "parse_special", &special);
    fields_bool(&f, "add_special_tokens", &special);
    if (fields_ok(&f) && !text) {
        fields_wrong(&f, "prompt", "is missing; it is the text");
    }
    if (!fields_ok(&f)) {
        wrong(false, f.field, f.e.msg, 400, status, out);
    } else if (conv_tokenize(h->conv, text, strlen(text), special, &ids, &n, &e) < 0) {
        wrong(false, NULL, e.msg, 503, status, out);
    } else {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++) {
            json_array_append_new(list, json_integer(ids[i]));
        }
        put(json_pack("{s:o, s:i}", "tokens", list, "count", (int)n), out);
    }
    free(ids);
    json_decref(body);
}

static void detokenize(struct http *h, json_t *body, int *status, struct buf *out)
{
    struct fields f = {.o = body};
    struct err e = ERR_INIT;
    struct buf text = BUF_INIT;
    const json_t *list = fields_array(&f, "tokens");
    if (fields_ok(&f) && !list) {
        fields_wrong(&f, "tokens", "is missing; it is an array of token ids");
    }
    for (size_t i = 0; i < json_array_size(list) && fields_ok(&f); i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        const int32_t one = id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
        if (conv_detokenize(h->conv, &one, 1, &text, &e) < 0) {
            fields_wrong(&f, "tokens", "item %zu is no token of the model", i);
        }
    }
    if (!fields_ok(&f)) {
        wrong(false, f.field, f.e.msg, is_ready(h) ? 400 : 503, status, out);
    } else {
        json_t *s = json_str_lossy(text.data ? text.data : "", text.len);
        put(json_pack("{s:O, s:o}", "content", s, "prompt", s), out);
    }
    buf_free(&text);
    json_decref(body);
}

static bool post(struct http *h, const char *path, const struct buf *body, int *status,
                 struct buf *out)
{
    static const struct {
        const char *path;
        void (*fn)(struct http *h, json_t *body, int *status, struct buf *out);
    } table[] = {{"/v1/messages/count_tokens", count_tokens},
                 {"/tokenize", tokenize},
                 {"/detokenize", detokenize}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(path, table[i].path) == 0) {
            struct err e = ERR_INIT;
            json_t *v = NULL;
            int rc = json_parse(body->data ? body->data : "", body->len, "the body", &v, &e);
            if (rc == 0 && !json_is_object(v)) {
                rc = err_set(&e, QE_FORMAT, "the body is not a JSON object");
            }
            if (rc < 0) {
                json_decref(v);
                wrong(i == 0, NULL, e.msg, 400, status, out);
            } else {
                table[i].fn(h, v, status, out);
            }
            return true;
        }
    }
    return false;
}

/* A path of a GET. */
static bool is_known(const char *path)
{
    static const char *const paths[] = {"/health",    "/ready",   "/v1/models",
                                        "/v1/status", "/version", "/metrics"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (strcmp(path, paths[i]) == 0) {
            return true;
        }
    }
    return strncmp(path, "/v1/models/", 11) == 0;
}

bool info_answer(struct http *h, const char *method, const char *path, bool anthropic,
                 const struct buf *body, int *status, const char **type, struct buf *out)
{
    struct view_model m;
    if (strcmp(method, "POST") == 0 && post(h, path, body, status, out)) {
        return true;
    }
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        *status = is_known(path) ? 405 : 404;
        return false;
    }
    conv_view_model(h->conv, &m);
    if (strcmp(path, "/health") == 0) {
        *status = m.ready ? 200 : 503;
        put(json_pack("{s:s}", "status", m.ready ? "ok" : "loading model"), out);
    } else if (strcmp(path, "/ready") == 0) {
        const bool open = m.ready && !atomic_load(&h->draining) && !atomic_load(&h->paused) &&
                          http_live(h) < h->opts.queue;
        *status = open ? 200 : 503;
        put(json_pack("{s:b}", "ready", open), out);
    } else if (strcmp(path, "/v1/models") == 0) {
        models(h, out);
    } else if (strncmp(path, "/v1/models/", 11) == 0) {
        if (!m.ready || strcmp(path + 11, m.name) != 0) {
            wrong(anthropic, "model", "there is no such model", 404, status, out);
        } else {
            put(model_object(h), out);
        }
    } else if (strcmp(path, "/v1/status") == 0) {
        status_of(h, out);
    } else if (strcmp(path, "/version") == 0) {
        put(json_pack("{s:s, s:s}", "version", h->opts.version ? h->opts.version : "", "model",
                      m.name),
            out);
    } else if (strcmp(path, "/metrics") == 0) {
        *type = "text/plain; version=0.0.4";
        metrics(h, out);
    } else {
        return false;
    }
    return true;
}
