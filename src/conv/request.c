/* Clients' requests: a reader of their own, chats that keep nothing, and what can be told of a
 * request without the engine. */
#include "config.h"
#include "conv/request.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "conv/chat.h"

/* ---- readers ---- */

static void send_reader(struct conv_reader *r, enum cmd_kind kind)
{
    struct cmd *cmd = mem_zalloc(sizeof *cmd);
    cmd->kind = kind;
    cmd->reader = r;
    conv_command(r->conv, cmd);
}

int conv_reader_create(struct conv *c, struct conv_reader **out, struct err *e)
{
    struct conv_reader *r = mem_zalloc(sizeof *r);
    r->conv = c;
    r->post = post_create(c->wake_fd);
    if (post_fd(r->post) < 0) {
        post_free(r->post);
        free(r);
        return err_sys(e, QE_IO, errno, "cannot make an event descriptor");
    }
    sem_init(&r->dropped, 0, 0);
    send_reader(r, CMD_READER);
    *out = r;
    return 0;
}

void conv_reader_free(struct conv_reader *r)
{
    if (!r) {
        return;
    }
    for (struct chat *t = r->first; t; t = t->next) {
        chat_free(t);
    }
    struct conv_event ev;
    memset(&ev, 0, sizeof ev);
    while (r->first) {
        while (conv_reader_next(r, &ev)) {
            conv_event_fini(&ev);
        }
        if (r->first) {
            struct pollfd p = {.fd = post_fd(r->post), .events = POLLIN};
            (void)poll(&p, 1, -1);
        }
    }
    send_reader(r, CMD_READER_GONE);
    while (sem_wait(&r->dropped) < 0 && errno == EINTR) {
    }
    sem_destroy(&r->dropped);
    post_free(r->post);
    free(r);
}

int conv_reader_fd(const struct conv_reader *r)
{
    return post_fd(r->post);
}

/* ---- requests ---- */

struct conv_request conv_request_default(const struct conv *c)
{
    const struct settings *s = &c->settings;
    return (struct conv_request){
        .temp = s->temp,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .top_k = s->top_k,
        .presence = s->presence,
        .frequency = s->frequency,
        .repetition = s->repetition,
        .seed = s->seed,
        .max_tokens = s->max_tokens,
        .min_tokens = s->min_tokens,
        .bias = s->bias,
        .n_bias = s->n_bias,
        .logprobs = s->logprobs,
        .stop = (const char *const *)s->stop,
        .n_stop = s->n_stop,
        .form = s->form,
        .ignore_eos = s->ignore_eos,
        .think = s->think,
        .think_budget = s->think_budget,
        .preserve = s->preserve,
        .effort = s->effort,
        .system = s->system,
    };
}

static void take_settings(struct settings *s, const struct conv_request *q)
{
    *s = (struct settings){
        .temp = q->temp,
        .top_p = q->top_p,
        .min_p = q->min_p,
        .top_k = q->top_k,
        .presence = q->presence,
        .frequency = q->frequency,
        .repetition = q->repetition,
        .seed = q->seed,
        .max_tokens = q->max_tokens,
        .min_tokens = q->min_tokens,
        .logprobs = q->logprobs,
        .ignore_eos = q->ignore_eos,
        .think = q->think,
        .think_budget = q->think_budget,
        .preserve = q->preserve,
        .owner = q->share.owner,
        .weight = q->share.weight,
        .owner_slots = q->share.slots,
        .priority = q->share.priority,
        .wait_ms = q->share.wait_ms,
        .limit_ms = q->share.limit_ms,
        .effort = q->effort ? mem_strdup(q->effort) : NULL,
        .system = q->system ? mem_strdup(q->system) : NULL,
    };
    settings_stop(s, q->stop, q->n_stop);
    settings_bias(s, q->bias, q->n_bias);
    settings_form(s, &q->form);
    settings_calls(s, &q->calls);
}

static int check(const struct conv *c, const struct conv_request *q, struct err *e)
{
    const size_t longest = q->messages_n > q->tools_n ? q->messages_n : q->tools_n;
    if ((q->messages != NULL) + (q->text != NULL) + (q->ids != NULL) != 1) {
        return err_set(e, QE_USAGE, "a request has messages, or a text, or token ids");
    }
    if (longest > CHAT_TEXT_MAX || q->text_n > CHAT_TEXT_MAX ||
        q->n_ids > CHAT_TEXT_MAX / sizeof *q->ids) {
        return err_set(e, QE_NOMEM, "the request is too long; at most %d bytes can be sent at once",
                       CHAT_TEXT_MAX);
    }
    struct settings s;
    take_settings(&s, q);
    int rc = settings_check(&s, e);
    settings_fini(&s);
    if (rc == 0 && q->form.kind != CF_NONE) {
        struct grammar *g = NULL;
        rc = forms_grammar(c->forms, &q->form, &g, e);
        grammar_free(g);
    }
    return rc;
}

int chat_request(struct chat *t, const struct conv_request *q, struct err *e)
{
    const int rc = check(t->conv, q, e);
    if (rc < 0) {
        return rc;
    }
    struct input *in = mem_zalloc(sizeof *in);
    in->asked = clock_now(clock_main());
    take_settings(&in->settings, q);
    if (q->prepared) {
        in->kind = q->prepared->kind;
        in->prepared = q->prepared;
        atomic_fetch_add(&q->prepared->holders, 1);
    } else if (q->messages) {
        in->kind = IN_MESSAGES;
        buf_add(&in->text, q->messages, q->messages_n);
        buf_add(&in->tools, q->tools ? q->tools : "", q->tools ? q->tools_n : 0);
    } else if (q->text) {
        in->kind = IN_TEXT;
        buf_add(&in->text, q->text, q->text_n);
    } else {
        in->kind = IN_IDS;
        for (size_t i = 0; i < q->n_ids; i++) {
            tok_ids_add(&in->ids, q->ids[i]);
        }
    }
    return chat_ask(t, in, e);
}

/* ---- without the engine ---- */

static int ready(const struct conv *c, struct err *e)
{
    struct view_model v;
    conv_view_model(c, &v);
    return v.ready ? 0 : err_set(e, QE_BUSY, "the model is still being loaded");
}

/* Renders and tokenizes. */
static int prepare(const struct conv *c, const struct conv_request *q, struct conv_prepared *p,
                   struct err *e)
{
    p->kind = q->messages ? IN_MESSAGES : q->text ? IN_TEXT : IN_IDS;
    int rc = 0;
    if (q->messages) {
        json_t *messages = NULL;
        struct settings s;
        take_settings(&s, q);
        rc = input_messages(q->messages, q->messages_n, q->tools, q->tools_n, &messages, &p->tools,
                            e);
        rc = rc < 0 ? rc
                    : prompt_messages(&c->prompt, messages, p->tools, &s, &p->ids, &p->shape, e);
        settings_fini(&s);
        json_decref(messages);
        return rc;
    }
    if (q->text) {
        tokenizer_encode(c->prompt.tok, q->text, q->text_n, true, &p->ids);
    }
    for (size_t i = 0; i < q->n_ids; i++) {
        tok_ids_add(&p->ids, q->ids[i]);
    }
    p->shape.ends.input = p->ids.n;
    return rc;
}

int conv_make_prompt(struct conv *c, const struct conv_request *q, struct conv_prepared **out,
                     int *tokens, struct err *e)
{
    int rc = ready(c, e);
    rc = rc < 0 ? rc : check(c, q, e);
    if (rc < 0) {
        return rc;
    }
    struct conv_prepared *p = mem_zalloc(sizeof *p);
    atomic_init(&p->holders, 1);
    rc = prepare(c, q, p, e);
    *tokens = (int)p->ids.n;
    rc = rc < 0 ? rc : sched_check_length(c->sched, p->ids.n, e);
    if (rc < 0) {
        conv_prepared_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

void conv_prepared_free(struct conv_prepared *p)
{
    if (p && atomic_fetch_sub(&p->holders, 1) == 1) {
        json_decref(p->tools);
        tok_ids_free(&p->ids);
        free(p);
    }
}

int conv_count_tokens(struct conv *c, const struct conv_request *q, int *out, struct err *e)
{
    struct conv_prepared p = {.tools = NULL};
    int rc = ready(c, e);
    rc = rc < 0 ? rc : check(c, q, e);
    rc = rc < 0 ? rc : prepare(c, q, &p, e);
    *out = rc == 0 ? (int)p.ids.n : 0;
    json_decref(p.tools);
    tok_ids_free(&p.ids);
    return rc;
}

int conv_check_weights(const struct conv *c, struct err *e)
{
    return c->opts.script ? 0 : sched_check_file(c->opts.model, e);
}

int conv_tokenize(struct conv *c, const char *text, size_t n, bool special, int32_t **ids,
                  size_t *n_ids, struct err *e)
{
    const int rc = ready(c, e);
    if (rc < 0) {
        return rc;
    }
    struct tok_ids out = {0};
    tokenizer_encode(c->prompt.tok, text, n, special, &out);
    *ids = out.v;
    *n_ids = out.n;
    return 0;
}

int conv_detokenize(struct conv *c, const int32_t *ids, size_t n, struct buf *out, struct err *e)
{
    const int rc = ready(c, e);
    if (rc < 0) {
        return rc;
    }
    struct detok d = {.n = 0};
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        if (!tokenizer_bytes(c->prompt.tok, ids[i], &len)) {
            return err_set(e, QE_USAGE, "token %zu is %d; the model has those from 0 to %d", i,
                           (int)ids[i], (int)tokenizer_size(c->prompt.tok) - 1);
        }
        detok_add(&d, c->prompt.tok, ids[i], true, out);
    }
    detok_flush(&d, out);
    return 0;
}
