/* Everything that needs no answer of the model: what it is, how it goes, and its tokens. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "http/fields.h"
#include "http/server.h"

static void put(json_t *o, struct buf *out)
{
    json_write_exact(o, out);
    json_decref(o);
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

void info_models(const struct http *h, struct buf *out)
{
    struct view_model m;
    conv_view_model(h->conv, &m);
    json_t *list = m.ready ? json_pack("[o]", model_object(h)) : json_array();
    put(json_pack("{s:s, s:o, s:b, s:s, s:s}", "object", "list", "data", list, "has_more", 0,
                  "first_id", m.name, "last_id", m.name),
        out);
}

/* The last part of a path, with its %XX resolved; false: it is not one text. */
static bool decode(const char *s, struct buf *out)
{
    for (; *s; s++) {
        if (*s != '%') {
            buf_addc(out, *s);
            continue;
        }
        char hex[3] = {s[1], s[1] ? s[2] : 0, 0};
        if (strspn(hex, "0123456789abcdefABCDEF") != 2 || strcmp(hex, "00") == 0) {
            return false;
        }
        buf_addc(out, (char)strtol(hex, NULL, 16));
        s += 2;
    }
    return out->len > 0;
}

static void model_of(struct exchange *x, const char *path)
{
    struct view_model m;
    struct buf name = BUF_INIT;
    conv_view_model(x->h->conv, &m);
    if (m.ready && decode(path, &name) && strcmp(name.data, m.name) == 0) {
        put(model_object(x->h), &x->out);
    } else {
        take_refuse(x, 404, "model", "there is no such model");
    }
    buf_free(&name);
}

static struct metrics_key key_figures(const struct key_count *k)
{
    return (struct metrics_key){.name = k->name,
                                .live = atomic_load(&k->live),
                                .requests = atomic_load(&k->requests),
                                .refused = atomic_load(&k->refused),
                                .prompt = atomic_load(&k->prompt),
                                .output = atomic_load(&k->output),
                                .preemptions = atomic_load(&k->preemptions)};
}

static json_t *keys_of(const struct http *h)
{
    json_t *list = json_array();
    for (size_t i = 0; i < h->opts.n_keys; i++) {
        const struct metrics_key k = key_figures(&h->keys[i]);
        json_array_append_new(
            list, json_pack("{s:s, s:i, s:I, s:I, s:I, s:I, s:I}", "name", k.name, "live", k.live,
                            "requests", (json_int_t)k.requests, "refused", (json_int_t)k.refused,
                            "prompt_tokens", (json_int_t)k.prompt, "generation_tokens",
                            (json_int_t)k.output, "preemptions", (json_int_t)k.preemptions));
    }
    return list;
}

static void status_of(struct http *h, struct buf *out)
{
    struct view_model m;
    struct view_load l;
    conv_view_model(h->conv, &m);
    conv_view_load(h->conv, &l);
    put(json_pack("{s:s, s:b, s:b, s:i, s:i, s:i, s:i, s:i, s:i, s:I, s:I, s:I, s:f, s:o}", "model",
                  m.name, "ready", m.ready, "draining", atomic_load(&h->draining), "requests",
                  http_live(h), "running", l.running, "waiting", l.waiting, "slots", h->opts.slots,
                  "queue", h->opts.queue, "preempted", l.gave_way, "preemptions",
                  (json_int_t)l.preemptions, "prompt_tokens", (json_int_t)l.prompt_tokens,
                  "cached_tokens", (json_int_t)l.cached_tokens, "tokens_per_round",
                  view_spec_per_round(&l.spec), "keys", keys_of(h)),
        out);
}

/* ---- tokens ---- */

static void count_tokens(struct exchange *x, json_t *body)
{
    struct ask *a = NULL;
    struct err e = ERR_INIT;
    const char *field = NULL;
    int n = 0;
    int rc = ask_create(&api_messages, body, true, &x->h->defaults, &a, &field, &e);
    if (rc == 0) {
        const struct conv_request q = ask_request(a, 0);
        rc = conv_count_tokens(x->h->conv, &q, &n, &e);
    }
    ask_free(a);
    if (rc < 0) {
        take_refuse(x, rc == QE_BUSY ? 503 : 400, field, e.msg);
    } else {
        put(json_pack("{s:i}", "input_tokens", n), &x->out);
    }
}

/* The text that is asked about; NULL: there is none, or it is none. */
static const json_t *text_field(struct fields *f)
{
    const char *s = NULL;
    fields_str(f, "content", &s);
    fields_str(f, "prompt", &s);
    const json_t *prompt = json_object_get(f->o, "prompt");
    if (fields_ok(f) && !s) {
        fields_wrong(f, "prompt", "is missing; it is the text");
    }
    return json_is_string(prompt) ? prompt : json_object_get(f->o, "content");
}

static void tokenize(struct exchange *x, json_t *body)
{
    struct fields f = {.o = body};
    struct err e = ERR_INIT;
    bool special = true;
    int32_t *ids = NULL;
    size_t n = 0;
    const json_t *text = text_field(&f);
    fields_bool(&f, "parse_special", &special);
    fields_bool(&f, "add_special_tokens", &special);
    if (!fields_ok(&f)) {
        take_refuse(x, 400, f.field, f.e.msg);
    } else if (conv_tokenize(x->h->conv, json_string_value(text), json_string_length(text), special,
                             &ids, &n, &e) < 0) {
        take_refuse(x, 503, NULL, e.msg);
    } else {
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++) {
            json_array_append_new(list, json_integer(ids[i]));
        }
        put(json_pack("{s:o, s:i}", "tokens", list, "count", (int)n), &x->out);
    }
    free(ids);
    json_decref(body);
}

static void detokenize(struct exchange *x, json_t *body)
{
    struct fields f = {.o = body};
    struct err e = ERR_INIT;
    struct buf text = BUF_INIT;
    const json_t *list = fields_array(&f, "tokens");
    if (fields_ok(&f) && !list) {
        fields_wrong(&f, "tokens", "is missing; it is an array of token ids");
    }
    const size_t n = json_array_size(list);
    int32_t *ids = mem_array(n + 1, sizeof *ids);
    for (size_t i = 0; i < n && fields_ok(&f); i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (id < 0 || id > INT32_MAX) {
            fields_wrong(&f, "tokens", "item %zu is no token of the model", i);
        }
        ids[i] = (int32_t)id;
    }
    if (fields_ok(&f) && conv_detokenize(x->h->conv, ids, n, &text, &e) < 0) {
        fields_wrong(&f, "tokens", "%s", e.msg);
    }
    if (!fields_ok(&f)) {
        take_refuse(x, is_ready(x->h) ? 400 : 503, f.field, f.e.msg);
    } else {
        json_t *s = json_str_lossy(text.data ? text.data : "", text.len);
        put(json_pack("{s:O, s:o}", "content", s, "prompt", s), &x->out);
    }
    free(ids);
    buf_free(&text);
    json_decref(body);
}

void info_post(struct exchange *x, json_t *body)
{
    static const struct {
        const char *path;
        void (*fn)(struct exchange *x, json_t *body);
    } table[] = {{"/v1/messages/count_tokens", count_tokens},
                 {"/tokenize", tokenize},
                 {"/detokenize", detokenize}};
    x->status = 200;
    x->ready = true;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(x->route->path, table[i].path) == 0) {
            table[i].fn(x, body);
            return;
        }
    }
    json_decref(body);
    take_refuse(x, 404, NULL, "there is nothing here");
}

/* ---- how it goes ---- */

static void health(struct exchange *x)
{
    const bool ready = is_ready(x->h);
    x->status = ready ? 200 : 503;
    put(json_pack("{s:s}", "status", ready ? "ok" : "loading model"), &x->out);
}

void info_verify(struct exchange *x)
{
    struct http *h = x->h;
    struct err e = ERR_INIT;
    x->ready = true;
    if (!is_ready(h)) {
        health(x);
        return;
    }
    if (atomic_exchange(&h->checking, true)) {
        take_refuse(x, 429, "verify", "the weights are being checked already");
        return;
    }
    const int rc = conv_check_weights(h->conv, &e);
    atomic_store(&h->checking, false);
    x->status = rc == 0 ? 200 : 500;
    put(rc == 0 ? json_pack("{s:s, s:s}", "status", "ok", "weights", "verified")
                : json_pack("{s:s, s:s}", "status", "damaged", "weights", e.msg),
        &x->out);
}

void info_get(struct exchange *x, const char **type)
{
    struct http *h = x->h;
    const char *path = x->route->path;
    struct view_model m;
    x->status = 200;
    x->ready = true;
    conv_view_model(h->conv, &m);
    if (strcmp(path, "/health") == 0) {
        health(x);
    } else if (strcmp(path, "/ready") == 0) {
        const bool open = m.ready && !atomic_load(&h->draining) && !atomic_load(&h->paused) &&
                          http_live(h) < h->opts.queue;
        x->status = open ? 200 : 503;
        put(json_pack("{s:b}", "ready", open), &x->out);
    } else if (strcmp(path, "/v1/models") == 0) {
        info_models(h, &x->out);
    } else if (strcmp(path, "/v1/models/") == 0) {
        model_of(x, x->path + strlen(path));
    } else if (strcmp(path, "/v1/status") == 0) {
        status_of(h, &x->out);
    } else if (strcmp(path, "/version") == 0) {
        put(json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i}", "version",
                      h->opts.version ? h->opts.version : "", "model", m.name, "tier", m.tier,
                      "checkpoint", m.digest, "compat", m.compat, "backend", m.backend, "device",
                      m.device, "ctx", m.ctx),
            &x->out);
    } else {
        *type = "text/plain; version=0.0.4; charset=utf-8";
        struct metrics_key *keys = mem_array(h->opts.n_keys + 1, sizeof *keys);
        for (size_t i = 0; i < h->opts.n_keys; i++) {
            keys[i] = key_figures(&h->keys[i]);
        }
        metrics_write(h->metrics, h->conv, keys, h->opts.n_keys, &x->out);
        free(keys);
    }
}
