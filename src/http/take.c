/* Bodies become prompts: what takes long about a request before the model has it, done beside the
 * sockets and the answers that are under way. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "http/server.h"

void take_refuse(struct exchange *x, int status, const char *field, const char *why)
{
    const struct api *api = x->route && x->route->api            ? x->route->api
                            : listen_anthropic(x->conn, x->path) ? &api_messages
                                                                 : &api_chat;
    x->status = status;
    x->ready = true;
    ask_error(api, status, why, field, &x->out);
}

/* A prompt that does not fit, in the words that make a client shorten it. */
static void refuse_long(struct exchange *x, int tokens)
{
    struct view_model m;
    char why[200];
    conv_view_model(x->h->conv, &m);
    if (x->route->api == &api_messages) {
        snprintf(why, sizeof why, "prompt is too long: %d tokens > %d maximum", tokens, m.ctx - 1);
    } else {
        snprintf(why, sizeof why,
                 "This model's maximum context length is %d tokens. However, your messages "
                 "resulted in %d tokens. Please reduce the length of the messages.",
                 m.ctx - 1, tokens);
    }
    take_refuse(x, 400, NULL, why);
}

/* The field that what could not be made a prompt of came in; NULL: none alone. */
static const char *at_fault(const struct ask *a, const char *why)
{
    static const char *const forms[] = {"the schema",  "the regular expression",
                                        "the grammar", "the choices",
                                        "choice ",     "the form of the answer"};
    static const char *const messages[] = {"messages[", "the messages "};
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        if (strncmp(why, messages[i], strlen(messages[i])) == 0) {
            return a->api == &api_responses ? "input" : "messages";
        }
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strncmp(why, forms[i], strlen(forms[i])) == 0) {
            return a->form_field;
        }
    }
    return strncmp(why, "the tools", 9) == 0 ? "tools" : NULL;
}

/* The prompts of all choices. */
static int prepare(struct exchange *x, struct answer *a)
{
    struct err e = ERR_INIT;
    for (int i = 0; i < a->ask->n; i += a->ask->per) {
        const struct conv_request q = ask_request(a->ask, i);
        int tokens = 0;
        const int rc = conv_make_prompt(x->h->conv, &q, &a->prepared[i / a->ask->per], &tokens, &e);
        if (rc == QE_NOMEM && tokens > 0) {
            refuse_long(x, tokens);
        } else if (rc < 0) {
            take_refuse(x,
                        rc == QE_BUSY    ? 503
                        : rc == QE_NOMEM ? 413
                                         : 400,
                        at_fault(a->ask, e.msg), e.msg);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* What the request gets beside others: its key's share; without keys, its session's. */
static void share(const struct exchange *x, struct conv_share *s)
{
    const struct http *h = x->h;
    const char *session = MHD_lookup_connection_value(x->conn, MHD_HEADER_KIND, "x-session-id");
    if (x->key >= 0) {
        const struct http_key *k = &h->opts.keys[x->key];
        *s = (struct conv_share){.owner = (uint64_t)x->key + 1,
                                 .weight = k->weight,
                                 .slots = k->slots,
                                 .priority = k->priority};
    } else if (session) {
        s->owner = hash64(session, strlen(session), 0) | 1;
    }
    s->wait_ms = h->opts.wait_s * 1000;
    s->limit_ms = x->limit_ms;
}

/* Gives the answer to the loop, or refuses. */
static void ask_model(struct exchange *x, json_t *body)
{
    struct http *h = x->h;
    struct err e = ERR_INIT;
    struct ask *ask = NULL;
    const char *field = NULL;
    if (ask_create(x->route->api, body, false, &h->defaults, &ask, &field, &e) < 0) {
        take_refuse(x, 400, field, e.msg);
        return;
    }
    if (!ask->model[0]) {
        struct view_model m;
        conv_view_model(h->conv, &m);
        memcpy(ask->own_model, m.name, sizeof m.name);
        ask->model = ask->own_model;
    }
    snprintf(ask->id, sizeof ask->id, "%s%012llx%04x", x->route->api->prefix,
             (unsigned long long)ask->created, (unsigned)atomic_fetch_add(&h->serial, 1) & 0xffffU);
    share(x, &ask->q.share);
    struct answer *a = answer_create(h, ask, x);
    if (prepare(x, a) < 0) {
        answer_free(a);
        return;
    }
    x->answer = a;
}

void take_task(void *ctx, void *exchange)
{
    struct http *h = ctx;
    struct exchange *x = exchange;
    struct err e = ERR_INIT;
    json_t *body = NULL;
    const bool asks = x->route->api != NULL;
    if (!x->route->post) {
        info_verify(x);
    } else if (json_parse(x->body.data ? x->body.data : "", x->body.len, "the body", &body, &e) <
               0) {
        take_refuse(x, 400, NULL, e.msg);
    } else if (!json_is_object(body)) {
        json_decref(body);
        take_refuse(x, 400, NULL, "the body is not a JSON object");
    } else {
        buf_free(&x->body);
        if (asks) {
            ask_model(x, body);
        } else {
            info_post(x, body);
        }
    }
    if (x->answer) {
        server_submit(x->answer); /* it has the connection now */
        return;
    }
    if (asks) {
        server_release(h, x->key);
    }
    MHD_resume_connection(x->conn);
}
