/* One answer: what the model says becomes events of a stream or one body. Called by the loop with
 * the server's lock held, but for answer_create. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/server.h"

#define SHOW_NS 250000000 /* between two looks at the figures of one answer */

static int64_t now_ns(void)
{
    return clock_now(clock_main());
}

static void token_text(void *ctx, int32_t id, struct buf *out)
{
    (void)conv_detokenize(ctx, &id, 1, out, NULL);
}

struct answer *answer_create(struct http *h, struct ask *ask, const struct exchange *x)
{
    struct answer *a = mem_zalloc(sizeof *a);
    a->h = h;
    a->ask = ask;
    a->conn = x->conn;
    a->suspended = true;
    a->asked = x->begun;
    a->last = now_ns();
    a->view = view_request_unknown();
    memcpy(a->view.client, x->client, sizeof a->view.client);
    memcpy(a->trace, x->trace, sizeof a->trace);
    ask->token = token_text;
    ask->token_ctx = h->conv;
    for (int i = 0; i < API_CHOICES; i++) {
        a->choice[i].out = (struct choice_out){.index = i, .block = -1};
    }
    a->key = x->key;
    a->fd = x->peer ? x->peer->fd : -1;
    return a;
}

void answer_free(struct answer *a)
{
    if (!a) {
        return;
    }
    for (int i = 0; i < API_CHOICES; i++) {
        buf_free(&a->choice[i].text);
        buf_free(&a->choice[i].thought);
        choice_free(&a->choice[i].out);
        conv_prepared_free(a->prepared[i]);
    }
    buf_free(&a->out);
    ask_free(a->ask);
    free(a);
}

bool answer_over(const struct answer *a)
{
    for (int i = 0; i < a->ask->n; i++) {
        if (a->choice[i].chat) {
            return false;
        }
    }
    return true;
}

static void publish(struct answer *a, enum view_request_state state)
{
    a->view.state = state;
    if (a->h->opts.requests && a->view.id) {
        requests_update(a->h->opts.requests, &a->view, now_ns());
    }
}

/* The connection may go on: there is something to send, or the end is known. */
static void go_on(struct answer *a)
{
    a->last = now_ns();
    listen_resume(a);
}

static void head(struct answer *a, int status)
{
    a->headed = true;
    a->status = status;
}

/* Ends an answer of which nothing has gone out yet. */
static void refuse(struct answer *a, int status, const char *why)
{
    ask_error(a->ask->api, status, why, NULL, &a->out);
    metrics_refuse(a->h->metrics, status);
    head(a, status);
    a->done = true;
    go_on(a);
}

static void log_line(struct answer *a, const char *result)
{
    char line[400];
    const struct view_request *v = &a->view;
    if (!a->h->opts.log) {
        return;
    }
    snprintf(
        line, sizeof line,
        "%s %s %s prompt %d reused %d output %d prefill %.3f s %.1f tok/s %.2f tok/round %s%s%s",
        a->ask->id, v->client, a->ask->api->path, v->input, v->cached, v->output,
        isnan(v->prefill_s) ? 0 : v->prefill_s, isnan(v->tok_s) ? 0 : v->tok_s,
        isnan(v->tok_round) ? 0 : v->tok_round, result, a->trace[0] ? ", x-request-id " : "",
        a->trace);
    a->h->opts.log(a->h->opts.log_ctx, line);
}

static void ended(struct answer *a, enum view_request_state state, const char *result)
{
    if (a->told) {
        return;
    }
    a->told = true;
    snprintf(a->view.result, sizeof a->view.result, "%.95s", result);
    log_line(a, result);
    publish(a, state);
}

/* Puts it into the table. */
static void show(struct answer *a)
{
    const struct ask *q = a->ask;
    struct view_request *v = &a->view;
    v->input = v->cached = v->output = -1;
    v->max_tokens = q->q.max_tokens;
    v->temp = q->q.temp;
    v->top_p = q->q.top_p;
    v->top_k = q->q.top_k;
    v->tools = q->n_tools;
    v->stream = q->stream;
    v->bytes = q->messages.len;
    memcpy(v->messages, q->roles, sizeof v->messages);
    snprintf(v->endpoint, sizeof v->endpoint, "%s", q->api->path);
    if (a->h->opts.requests) {
        v->id = requests_begin(a->h->opts.requests, v, now_ns());
    }
}

void answer_begin(struct answer *a)
{
    struct err e = ERR_INIT;
    show(a);
    for (int i = 0; i < a->ask->n; i++) {
        struct conv_request q = ask_request(a->ask, i);
        q.prepared = a->prepared[i / a->ask->per];
        a->choice[i].chat = conv_reader_chat(a->h->reader);
        a->n_begun++;
        if (chat_request(a->choice[i].chat, &q, &e) < 0) {
            refuse(a, e.code == QE_NOMEM ? 413 : 400, e.msg);
            answer_drop(a);
            return;
        }
    }
}

void answer_drop(struct answer *a)
{
    const bool running = !answer_over(a);
    for (int i = 0; i < a->ask->n; i++) {
        chat_free(a->choice[i].chat);
        a->choice[i].chat = NULL;
    }
    if (running && !a->told) {
        const bool refused = a->done && !a->broken;
        if (!refused) {
            metrics_finish(a->h->metrics, "abort");
        }
        ended(a, RQ_FAILED,
              a->cancelled ? "cancelled"
              : refused    ? "refused"
                           : "the client went away");
    }
}

void answer_cut(struct answer *a)
{
    if (a->cut || a->done) {
        return;
    }
    a->cut = true;
    for (int i = 0; i < a->ask->n; i++) {
        if (a->choice[i].chat) {
            chat_stop(a->choice[i].chat);
        }
    }
}

/* The first event of a choice, once it is known what is cached. */
static void open_choice(struct answer *a, struct choice *c)
{
    struct view_chat v;
    if (!c->out.begun) {
        c->out.begun = true;
        chat_view(c->chat, &v);
        a->ask->api->begin(a->ask, &c->out, v.prompt_tokens, v.cached_tokens, &a->out);
    }
}

/* Held text as events, if the reader keeps up or (all) it must go now. */
static bool let_out(struct answer *a, struct choice *c, bool all)
{
    const struct api *api = a->ask->api;
    if (!all && a->out.len - a->sent > UNSENT_MOST) {
        a->held = true;
        return false;
    }
    if (buf_trimmed(&c->thought) > 0 || c->text.len > 0) {
        open_choice(a, c);
    }
    /* white space that ends a thought is no part of it */
    const size_t said = buf_trimmed(&c->thought);
    if (said > 0) {
        api->thought(a->ask, &c->out, c->thought.data, said, &a->out);
        memmove(c->thought.data, c->thought.data + said, c->thought.len - said);
        buf_truncate(&c->thought, c->thought.len - said);
    }
    if (c->text.len > 0) {
        buf_truncate(&c->thought, 0);
    }
    if (c->text.len > 0) {
        api->text(a->ask, &c->out, c->text.data, c->text.len, &a->out);
        buf_truncate(&c->text, 0);
    }
    return true;
}

static int status_of(int code)
{
    switch (code) {
    case QE_USAGE:
    case QE_FORMAT:
    case QE_UNSUPPORTED:
    case QE_NOMEM:
        return 400;
    case QE_BUSY:
        return 429;
    case QE_CANCELLED: /* it waited too long */
        return 503;
    default:
        return 500;
    }
}

/* A choice that could not be answered. reason: for the counts, if anything of it was told; else it
 * is a request that was refused, and not one of those that ended, unless the engine failed. */
static void fail(struct answer *a, int status, const char *why, const char *reason)
{
    ended(a, RQ_FAILED, why);
    if (a->headed || status == 500) {
        metrics_finish(a->h->metrics, reason);
    }
    if (!a->headed) {
        refuse(a, status, why);
    } else if (a->ask->stream) {
        a->ask->api->fail(a->ask, &a->choice[0].out, why, &a->out);
        a->done = true;
        go_on(a);
    } else {
        a->broken = true;
        a->done = true;
        go_on(a);
    }
    answer_drop(a);
}

static void figures(struct answer *a, const struct chat_result *const *all)
{
    struct view_request *v = &a->view;
    struct view_chat c;
    ask_totals(a->ask, all, a->ask->n, &v->input, &v->cached, &v->output);
    for (int i = 0; i < a->ask->n; i++) {
        a->ask->reasoning += all[i]->thought_tokens;
    }
    chat_view(a->choice[0].chat, &c);
    v->prefill_s = all[0]->prefill_s;
    v->decode_s = all[0]->decode_s;
    v->first_s = c.ttft_s;
    v->tok_s = c.tok_s;
    v->tok_round = all[0]->rounds > 0 ? (double)all[0]->n_ids / all[0]->rounds : NAN;
}

/* A piece of a choice came, which stands at so many tokens. */
static void count_piece(struct answer *a, struct choice *c, int tokens)
{
    const int64_t now = now_ns();
    const int more = tokens - c->tokens;
    if (c->heard == 0) {
        metrics_add(a->h->metrics, MK_FIRST, clock_seconds(now - a->asked), 1);
    } else if (more > 0) {
        metrics_add(a->h->metrics, MK_BETWEEN, clock_seconds(now - c->heard) / more, more);
    }
    c->heard = now;
    c->tokens = tokens > c->tokens ? tokens : c->tokens;
}

/* One choice is whole. */
static void count_choice(const struct answer *a, const struct chat_result *r)
{
    struct metrics *m = a->h->metrics;
    metrics_add(m, MK_PREFILL, r->prefill_s, 1);
    metrics_add(m, MK_DECODE, r->decode_s, 1);
    metrics_add(m, MK_INFERENCE, r->prefill_s + r->decode_s, 1);
    metrics_add(m, MK_OUTPUT, (double)r->n_ids, 1);
    if (r->n_ids > 1) {
        metrics_add(m, MK_EACH, r->decode_s / (double)(r->n_ids - 1), 1);
    }
    if (a->key >= 0) {
        atomic_fetch_add(&a->h->keys[a->key].preemptions, (uint64_t)r->gave_way);
    }
    metrics_finish(m, r->reason == CE_R_CANCELLED ? "abort" : conv_reason_word(r->reason));
}

/* All of an answer is there. */
static void count_answer(const struct answer *a)
{
    struct metrics *m = a->h->metrics;
    if (a->key >= 0) {
        struct key_count *k = &a->h->keys[a->key];
        atomic_fetch_add(&k->prompt, (uint64_t)a->view.input);
        atomic_fetch_add(&k->output, (uint64_t)a->view.output);
    }
    metrics_add(m, MK_WHOLE, clock_seconds(now_ns() - a->asked), 1);
    metrics_add(m, MK_PROMPT, a->view.input, 1);
    metrics_add(m, MK_MOST, a->ask->q.max_tokens, 1);
    metrics_add(m, MK_N, a->ask->n, 1);
}

static void end_choice(struct answer *a, struct choice *c, const struct conv_event *ev)
{
    const struct chat_result *all[API_CHOICES];
    const struct chat_result *r = chat_last(c->chat);
    if (ev->reason == CE_R_ERROR) {
        fail(a, status_of(ev->code), ev->text.data ? ev->text.data : "the answer failed", "error");
        return;
    }
    if (ev->reason == CE_R_CANCELLED && (!a->ask->api->aborts || (!a->headed && r->n_ids == 0))) {
        fail(a, a->cut ? 503 : 504, a->cut || !ev->text.data ? GOING_DOWN : ev->text.data, "abort");
        return;
    }
    a->n_ended++;
    count_choice(a, r);
    if (a->ask->stream) {
        open_choice(a, c);
        (void)let_out(a, c, true);
        a->ask->api->end(a->ask, &c->out, r, &a->out);
    }
    if (a->n_ended == a->ask->n) {
        for (int i = 0; i < a->ask->n; i++) {
            all[i] = chat_last(a->choice[i].chat);
        }
        figures(a, all);
        count_answer(a);
        if (a->ask->stream) {
            a->ask->api->close(a->ask, a->view.input, a->view.cached, a->view.output, &a->out);
        } else {
            a->ask->api->whole(a->ask, all, a->ask->n, &a->out);
            head(a, 200);
        }
        a->done = true;
        ended(a, RQ_DONE, conv_reason_word(ev->reason));
        answer_drop(a);
    }
    go_on(a);
}

/* The table's figures while it is answered, some times a second. */
static void live_figures(struct answer *a, const struct choice *c)
{
    struct view_chat v;
    const int64_t now = now_ns();
    if (a->view.state == RQ_DECODE && now - a->shown < SHOW_NS) {
        return;
    }
    a->shown = now;
    chat_view(c->chat, &v);
    a->view.cached = v.cached_tokens;
    a->view.output = v.output_tokens;
    a->view.tok_s = v.tok_s;
    a->view.tok_round = v.tok_round > 0 ? v.tok_round : NAN;
    if (v.ttft_s > 0) { /* the first token is there: what came before it is known */
        a->view.first_s = v.ttft_s;
        a->view.prefill_s = v.prefill_s;
        a->view.decode_s = v.decode_s;
    }
    publish(a, RQ_DECODE);
}

void answer_event(struct answer *a, int i, const struct conv_event *ev)
{
    struct choice *c = &a->choice[i];
    json_t *call = NULL;
    switch (ev->kind) {
    case CE_PREFILL:
        c->prefills++;
        if (c->prefills == 1 && a->ask->stream && !a->headed) {
            head(a, 200);
            if (a->ask->api->early) {
                open_choice(a, c);
            } else {
                a->ask->api->ping(a->ask, &a->choice[0].out, &a->out);
            }
            go_on(a);
        }
        if (c->prefills == 2) {
            a->view.queue_s = clock_seconds(now_ns() - a->asked);
            metrics_add(a->h->metrics, MK_QUEUE, a->view.queue_s, 1);
        }
        if (c->prefills == 2 && a->ask->stream) {
            open_choice(a, c);
            go_on(a);
        }
        a->view.input = ev->total;
        publish(a, RQ_PREFILL);
        break;
    case CE_THOUGHT:
    case CE_TEXT:
        count_piece(a, c, ev->done);
        live_figures(a, c);
        if (a->ask->stream) {
            buf_add(&c->out.logprobs, ev->logprobs.data, ev->logprobs.len);
            /* the order of thought and answer stays: no thought follows an answer */
            buf_add(ev->kind == CE_TEXT ? &c->text : &c->thought, ev->text.data, ev->text.len);
            if (let_out(a, c, false)) {
                go_on(a);
            }
        }
        break;
    case CE_TOOL:
        count_piece(a, c, c->tokens);
        if (a->ask->stream) {
            call = json_loadb(ev->text.data, ev->text.len, JSON_ALLOW_NUL, NULL);
            open_choice(a, c);
            (void)let_out(a, c, true);
            a->ask->api->call(a->ask, &c->out, call, &a->out);
            json_decref(call);
            go_on(a);
        }
        publish(a, RQ_TOOL);
        break;
    case CE_END:
        end_choice(a, c, ev);
        break;
    case CE_QUEUED:
    case CE_LOADING:
    case CE_READY:
    case CE_FAILED:
    case CE_NOTICE:
    case CE_SAVED:
    case CE_STORED:
    case CE_COUNTED:
        break;
    }
}

void answer_tend(struct answer *a, int64_t now)
{
    if (a->held && !a->done) {
        a->held = false;
        for (int i = 0; i < a->ask->n; i++) {
            (void)let_out(a, &a->choice[i], false);
        }
        go_on(a);
    }
    if (a->headed && !a->done && a->ask->stream && now - a->last >= PING_NS) {
        a->ask->api->ping(a->ask, &a->choice[0].out, &a->out);
        go_on(a);
    }
}
