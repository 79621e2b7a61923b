/* One exchange, from text to text: conversation, prompt, job, tokens, thought
 * and answer, transcript, events. Worker thread only. The surprising part: a turn
 * works on a copy of the conversation, which becomes the conversation only if
 * something was answered. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "base/log.h"
#include "conv/answerrule.h"
#include "conv/chat.h"
#include "conv/request.h"

#define SAVE_NS 2000000000 /* between two commits of an answer that streams, as a whole */
#define PART_NS 50000000   /* between two writes of what is new in it */

static int64_t now(void)
{
    return clock_now(clock_main());
}

/* ---- events ---- */

static void post_event(struct chat *t, enum conv_event_kind kind, const char *text, size_t n)
{
    struct post_item it = {.ev = {.kind = kind, .chat = t}};
    buf_add(&it.ev.text, text ? text : "", n);
    post_put(t->reader->post, &it);
}

/* A piece of the thought or the answer, with what is to be told of the tokens drawn meanwhile. */
static void post_piece(struct chat *t, enum conv_event_kind kind, const char *text, size_t n)
{
    struct turn *u = &t->turn;
    struct post_item it = {.ev = {.kind = kind, .chat = t, .done = (int)u->ids.n}};
    const size_t per = (size_t)u->n_logprobs;
    if (per > 0 && u->logprobs && u->ids.n > u->posted_logprobs) {
        buf_add(&it.ev.logprobs, u->logprobs + u->posted_logprobs * per,
                (u->ids.n - u->posted_logprobs) * per * sizeof *u->logprobs);
        u->posted_logprobs = u->ids.n;
    }
    buf_add(&it.ev.text, text, n);
    post_put(t->reader->post, &it);
}

static void post_prefill(struct chat *t, int done, int total)
{
    struct post_item it = {.ev = {.kind = CE_PREFILL,
                                  .chat = t,
                                  .done = done,
                                  .total = total,
                                  .progress = total > 0 ? (double)done / total : 1}};
    post_put(t->reader->post, &it);
}

/* Posts what was said since the last time. */
static void post_said(struct chat *t)
{
    struct turn *u = &t->turn;
    if (u->said.thought.len > u->posted_thought) {
        post_piece(t, CE_THOUGHT, u->said.thought.data + u->posted_thought,
                   u->said.thought.len - u->posted_thought);
        u->posted_thought = u->said.thought.len;
    }
    if (u->said.text.len > u->posted_text) {
        post_piece(t, CE_TEXT, u->said.text.data + u->posted_text,
                   u->said.text.len - u->posted_text);
        u->posted_text = u->said.text.len;
    }
    for (; u->posted_calls < json_array_size(u->said.calls); u->posted_calls++) {
        struct buf b = BUF_INIT;
        json_write_exact(json_array_get(u->said.calls, u->posted_calls), &b);
        post_event(t, CE_TOOL, b.data, b.len);
        buf_free(&b);
    }
}

void chat_publish(struct chat *t)
{
    struct view_chat *v = &t->figures;
    const struct turn *u = &t->turn;
    v->busy = u->in != NULL || t->inputs != NULL;
    v->saved = t->record.saved;
    v->stuck = record_stuck(&t->conv->record, &t->record);
    v->saved_at = t->record.saved_at;
    v->conversation = t->record.conv;
    v->turn = record_place(&t->record);
    v->thought_tokens = u->splitting ? u->split.thought_tokens : v->thought_tokens;
    v->ahead = u->job && !u->started ? sched_ahead(t->conv->sched, u->job) : 0;
    if (u->job) {
        v->output_tokens = (int)u->ids.n;
        v->context_used = v->prompt_tokens + v->output_tokens;
        v->decode_s = u->first ? clock_seconds(now() - u->first) : 0;
        v->tok_s = v->decode_s > 0 && u->ids.n > 1 ? (double)(u->ids.n - 1) / v->decode_s : 0;
        v->tok_round = job_pace(u->job);
        v->prefill_s = clock_seconds((u->first ? u->first : now()) - u->began);
    }
    if (t->live) {
        live_tag(t->live, v->conversation);
    }
    snap_put(&t->view, v, sizeof *v);
}

/* ---- transcript ---- */

const char *conv_reason_word(enum conv_reason r)
{
    switch (r) {
    case CE_R_STOP:
        return "stop";
    case CE_R_LENGTH:
        return "length";
    case CE_R_CANCELLED:
        return "cancelled";
    case CE_R_TOOL:
        return "tool_calls";
    case CE_R_ERROR:
        break;
    }
    return "error";
}

/* What the turn was asked with, as the model's defaults and the settings make it. */
static void write_settings(const struct turn *u, struct buf *out)
{
    const struct settings *set = &u->in->settings;
    json_t *o = json_pack("{s:I, s:f, s:f, s:f, s:i, s:f, s:f, s:f, s:i, s:i}", "seed",
                          (json_int_t)u->draw.seed, "temp", (double)u->draw.temp, "top_p",
                          (double)u->draw.top_p, "min_p", (double)u->draw.min_p, "top_k",
                          u->draw.top_k, "presence", (double)u->rules.presence, "frequency",
                          (double)u->rules.frequency, "repetition", (double)u->rules.repetition,
                          "min_tokens", u->rules.min_tokens, "max_tokens", set->max_tokens);
    if (set->think >= 0) {
        json_object_set_new(o, "think", json_boolean(set->think));
    }
    if (set->effort) {
        json_object_set_new(o, "effort", json_string(set->effort));
    }
    json_write(o, out);
    json_decref(o);
}

static void save(struct chat *t, const char *finish, const struct job_stats *st)
{
    struct turn *u = &t->turn;
    if (u->in->kind != IN_SEND) {
        return;
    }
    struct buf calls = BUF_INIT, stats = BUF_INIT, settings = BUF_INIT;
    if (json_array_size(u->said.calls) > 0) {
        json_write_exact(u->said.calls, &calls);
    }
    json_t *o = json_pack("{s:i}", "output_tokens", (int)u->ids.n);
    if (u->splitting) {
        json_object_set_new(o, "thought_tokens", json_integer(u->split.thought_tokens));
        json_object_set_new(o, "thought_s",
                            json_real(clock_seconds(u->thought_to - u->thought_from)));
    }
    if (st) {
        json_t *all =
            json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f}", "prompt_tokens",
                      st->prompt_tokens, "cached_tokens", st->cached_tokens, "output_tokens",
                      (int)u->ids.n, "rounds", st->rounds, "drafted", st->drafted, "accepted",
                      st->accepted, "prefill_s", st->prefill_s, "decode_s", st->decode_s);
        json_object_update(o, all);
        json_decref(all);
    }
    json_write(o, &stats);
    json_decref(o);
    write_settings(u, &settings);
    struct catalog_turn row = {
        .role = CAT_ASSISTANT,
        .text = u->said.text.data,
        .text_n = u->said.text.len,
        .thought = u->said.thought.data,
        .thought_n = u->said.thought.len,
        .calls = calls.data,
        .ids = u->ids.v,
        .n_ids = u->ids.n,
        .finish = finish,
        .stats = stats.data,
        .settings = settings.data,
    };
    record_answer(&t->conv->record, &t->record, &row);
    conv_record_news(t->conv, t);
    u->saved_at = u->part_at = now();
    u->saved_calls = json_array_size(u->said.calls);
    buf_free(&calls);
    buf_free(&stats);
    buf_free(&settings);
}

/* Stores what is new in the answer, before anybody sees it; with what comes next where something
 * was stored just before. So what is not stored was drawn within PART_NS. */
static void save_new(struct chat *t)
{
    struct turn *u = &t->turn;
    if (u->in->kind != IN_SEND || u->ids.n == 0) {
        return;
    }
    const int64_t at = now();
    const bool first = u->part_at == u->saved_at;
    if (at - u->saved_at > SAVE_NS || json_array_size(u->said.calls) > u->saved_calls) {
        save(t, NULL, NULL);
    } else if (first || at - u->part_at >= PART_NS) {
        const struct catalog_turn row = {.text = u->said.text.data,
                                         .text_n = u->said.text.len,
                                         .thought = u->said.thought.data,
                                         .thought_n = u->said.thought.len,
                                         .ids = u->ids.v,
                                         .n_ids = u->ids.n};
        (void)record_more(&t->conv->record, &t->record, &row);
        u->part_at = at; /* not when it ended: what came meanwhile is not to wait longer for it */
    }
}

/* ---- the end ---- */

json_t *answer_as_message(const char *text, size_t text_n, const char *thought, size_t thought_n,
                          json_t *calls)
{
    json_t *m = json_object();
    json_object_set_new(m, "role", json_string("assistant"));
    json_object_set_new(m, "content", json_str_lossy(text ? text : "", text_n));
    if (thought_n > 0) {
        json_object_set_new(m, "reasoning_content", json_str_lossy(thought, thought_n));
    }
    if (json_array_size(calls) > 0) {
        json_t *all = json_array();
        size_t i = 0;
        json_t *c = NULL;
        json_array_foreach(calls, i, c)
        {
            json_t *o = json_object();
            json_object_set_new(o, "type", json_string("function"));
            json_object_set(o, "function", c);
            json_array_append_new(all, o);
        }
        json_object_set_new(m, "tool_calls", all);
    }
    return m;
}

static void turn_fini(struct turn *u)
{
    input_free(u->in);
    job_free(u->job);
    json_decref(u->messages);
    json_decref(u->tools);
    if (u->splitting) {
        split_fini(&u->split);
    }
    buf_free(&u->said.thought);
    buf_free(&u->said.text);
    json_decref(u->said.calls);
    tok_ids_free(&u->ids);
    free(u->logprobs);
    memset(u, 0, sizeof *u);
}

static void turn_end(struct chat *t, enum conv_reason reason, const char *why)
{
    struct turn *u = &t->turn;
    struct job_stats st = {0};
    if (u->job) {
        st = job_stats_until(u->job, (int)u->ids.n);
    }
    if (u->splitting && !u->stopped) {
        split_finish(&u->split, reason != CE_R_STOP, &u->said);
    }
    chat_publish(t); /* what comes is of the thought until then */
    post_said(t);
    if (u->splitting && u->split.calls) {
        landed_turn(t->conv->landed, u->split.modes, split_missed(&u->split), u->said.text.data,
                    u->said.text.len, u->tools);
    }
    buf_truncate(&u->said.thought, buf_trimmed(&u->said.thought));
    if (json_array_size(u->said.calls) > 0) {
        buf_truncate(&u->said.text, buf_trimmed(&u->said.text));
    }
    if (reason == CE_R_STOP && json_array_size(u->said.calls) > 0) {
        reason = CE_R_TOOL;
    }
    bool said =
        u->said.text.len > 0 || u->said.thought.len > 0 || json_array_size(u->said.calls) > 0;
    bool kept = said && (u->in->kind == IN_SEND || u->in->kind == IN_MESSAGES);
    save(t, conv_reason_word(reason), u->job ? &st : NULL);
    const int64_t stored = record_done(&t->conv->record, &t->record, kept);
    t->waiting.changed = true;
    conv_record_news(t->conv, t);
    saving_turn_over(t, u->job && kept ? stored : 0);
    if (kept && u->messages) {
        json_array_append_new(u->messages, answer_as_message(u->said.text.data, u->said.text.len,
                                                             u->said.thought.data,
                                                             u->said.thought.len, u->said.calls));
        json_decref(t->messages);
        t->messages = json_incref(u->messages);
    }
    struct chat_result *res = mem_zalloc(sizeof *res);
    *res = (struct chat_result){
        .reason = reason,
        .stop = u->stopped ? (int)u->split.stop.which : -1,
        .text = u->said.text,
        .thought = u->said.thought,
        .ids = u->ids.v,
        .n_ids = u->ids.n,
        .logprobs = u->logprobs,
        .n_logprobs = u->n_logprobs,
        .prompt_tokens = u->total,
        .cached_tokens = u->cached,
        .thought_tokens = u->splitting ? u->split.thought_tokens : 0,
        .reuse = job_reuse_name(st.reuse),
        .reuse_short = job_short_name(st.why),
        .reuse_at = st.why_at,
        .gave_way = st.gave_way,
        .rounds = st.rounds,
        .drafted = st.drafted,
        .accepted = st.accepted,
        .spec = st.spec,
        .prefill_s = st.prefill_s,
        .decode_s = st.decode_s,
        .seed = u->draw.seed,
    };
    job_short_words(st.why, st.why_at, res->reuse_words);
    if (json_array_size(u->said.calls) > 0) {
        json_write_exact(u->said.calls, &res->calls);
    }
    chat_publish(t);
    memset(&u->said.text, 0, sizeof u->said.text);
    memset(&u->said.thought, 0, sizeof u->said.thought);
    memset(&u->ids, 0, sizeof u->ids);
    u->logprobs = NULL;
    if (!kept && t->reader == &t->conv->screen) {
        chat_work_recount(t, &u->in->settings);
    }
    t->uncounted = t->uncounted && !kept;
    struct post_item it = {.ev = {.kind = CE_END, .chat = t, .reason = reason, .code = u->code},
                           .result = res};
    buf_adds(&it.ev.text, why ? why : "");
    turn_fini(u);
    chat_publish(t);
    post_put(t->reader->post, &it);
}

/* ---- the beginning ---- */

int input_messages(const char *messages, size_t messages_n, const char *tools, size_t tools_n,
                   json_t **messages_out, json_t **tools_out, struct err *e)
{
    int rc = json_parse(messages ? messages : "", messages_n, "the messages", messages_out, e);
    if (rc == 0 && (!json_is_array(*messages_out) || json_array_size(*messages_out) == 0)) {
        rc = err_set(e, QE_FORMAT, "the messages are not a JSON array of at least one message");
    }
    if (rc == 0 && tools && tools_n > 0) {
        rc = json_parse(tools, tools_n, "the tools", tools_out, e);
        if (rc == 0 && !json_is_array(*tools_out)) {
            rc = err_set(e, QE_FORMAT, "the tools are not a JSON array");
        }
    }
    return rc;
}

/* What the turn asks the model: its ids. */
static int make_prompt(struct chat *t, struct tok_ids *ids, struct prompt_shape *shape,
                       struct err *e)
{
    struct turn *u = &t->turn;
    const struct input *in = u->in;
    const struct prompt *p = &t->conv->prompt;
    int rc = 0;
    if (in->prepared) {
        for (size_t i = 0; i < in->prepared->ids.n; i++) {
            tok_ids_add(ids, in->prepared->ids.v[i]);
        }
        *shape = in->prepared->shape;
        u->tools = json_incref(in->prepared->tools);
        return 0;
    }
    switch (in->kind) {
    case IN_IDS:
        for (size_t i = 0; i < in->ids.n; i++) {
            tok_ids_add(ids, in->ids.v[i]);
        }
        shape->ends.input = ids->n;
        return 0;
    case IN_TEXT:
        tokenizer_encode(p->tok, in->text.data ? in->text.data : "", in->text.len, true, ids);
        shape->ends.input = ids->n;
        return 0;
    case IN_MESSAGES:
        rc = input_messages(in->text.data, in->text.len, in->tools.data, in->tools.len,
                            &u->messages, &u->tools, e);
        break;
    case IN_SEND:
    case IN_ASIDE: {
        u->messages = json_copy(t->messages);
        json_t *m = json_object();
        json_object_set_new(m, "role", json_string("user"));
        json_object_set_new(m, "content",
                            json_str_lossy(in->text.data ? in->text.data : "", in->text.len));
        json_array_append_new(u->messages, m);
        break;
    }
    }
    return rc < 0 ? rc : prompt_messages(p, u->messages, u->tools, &in->settings, ids, shape, e);
}

static int submit(struct chat *t, const struct tok_ids *ids, const struct prompt_shape *shape,
                  struct err *e)
{
    const struct rendered_ends *ends = &shape->ends;
    struct turn *u = &t->turn;
    const struct conv *c = t->conv;
    const struct engine_info *info = sched_info(c->sched);
    const struct settings *set = &u->in->settings;
    u->draw = settings_draw(set, sched_defaults(c->sched));
    u->rules = settings_rules(set, sched_defaults(c->sched));
    const struct answer_ask ask = {.set = set,
                                   .tools = u->tools,
                                   .tok = c->prompt.tok,
                                   .end = info->eos,
                                   .n_end = info->n_eos,
                                   .room = info->ctx - u->total,
                                   .opens_thought = shape->opens_thought,
                                   .opens_call = shape->opens_call};
    int rc = answer_rule(c->forms, &ask, &u->rules.form, e);
    if (rc < 0) {
        return rc;
    }
    struct engine_bias *bias = mem_array(set->n_bias + 1, sizeof *bias);
    for (size_t i = 0; i < set->n_bias; i++) {
        bias[i] = (struct engine_bias){set->bias[i].id, set->bias[i].value};
    }
    u->rules.bias = bias;
    u->rules.n_bias = set->n_bias;
    u->n_logprobs = set->logprobs < 0 ? 0 : 1 + set->logprobs;
    struct job_spec spec = {
        .prompt = ids->v,
        .n_prompt = ids->n,
        .max_tokens = set->max_tokens,
        .draw = u->draw,
        .rules = u->rules,
        .logprobs = u->n_logprobs > 0,
        .top_logprobs = u->n_logprobs > 0 ? u->n_logprobs - 1 : 0,
        .stop = info->eos,
        .n_stop = set->ignore_eos ? 0 : (size_t)info->n_eos,
        .live = t->live,
        .head_end = (int)ends->head,
        .query_end = (int)ends->query,
        .input_end = (int)ends->input,
        .store = u->in->kind == IN_SEND || u->in->kind == IN_ASIDE || u->in->kind == IN_MESSAGES,
        .screen = t->reader == &c->screen,
        .wake_fd = c->wake_fd,
        .owner = set->owner,
        .weight = set->weight,
        .owner_slots = set->owner_slots,
        .priority = set->priority,
        .wait_ms = set->wait_ms,
        .deadline_ms = set->limit_ms,
    };
    rc = sched_submit(c->sched, &spec, &u->job, e);
    u->rules.bias = NULL; /* the job has its own */
    u->rules.n_bias = 0;
    u->rules.form = (struct engine_form){.ctx = NULL};
    free(bias);
    return rc;
}

static void turn_begin(struct chat *t)
{
    struct turn *u = &t->turn;
    struct conv *c = t->conv;
    u->in = t->inputs;
    t->inputs = u->in->next;
    u->in->next = NULL;
    u->began = now();
    const struct settings *set = &u->in->settings;
    t->figures = (struct view_chat){.context_used = t->figures.context_used};
    struct tok_ids ids = {0};
    struct err e = ERR_INIT;
    struct prompt_shape shape = {.opens_thought = false};
    bool plain = u->in->kind == IN_TEXT || u->in->kind == IN_IDS;
    int rc = make_prompt(t, &ids, &shape, &e);
    rc = rc < 0 ? rc : sched_check_length(c->sched, ids.n, &e);
    if (rc == 0 && u->in->kind == IN_SEND) {
        /* On disk before anything is computed for it; not what cannot be computed at all. */
        record_user(&c->record, &t->record, sched_info(c->sched)->model_name, set->system,
                    u->in->text.data, u->in->text.len);
        conv_record_news(c, t);
    }
    u->total = (int)ids.n;
    t->figures.prompt_tokens = u->total;
    /* What has a form has a thought where the prompt opens one. */
    plain = plain || (set->form.kind != CF_NONE && !shape.opens_thought);
    if (rc == 0) {
        const bool call = shape.opens_call;
        json_t *some = u->tools ? answer_tools(u->tools, set->calls.allowed) : NULL;
        const struct split_opts o = {.plain = plain,
                                     .opens_thought = shape.opens_thought,
                                     .stops = (const char *const *)set->stop,
                                     .n_stops = set->n_stop,
                                     .tools = some,
                                     .strict = c->opts.strict_calls,
                                     .declared = call || set->calls.allowed,
                                     .single = set->calls.single,
                                     .prefill = call ? "<tool_call>\n" : NULL};
        rc = split_init(&u->split, c->prompt.tok, &o, &e);
        json_decref(some);
        u->splitting = rc == 0;
    }
    if (rc == 0) {
        u->said.calls = json_array();
        rc = submit(t, &ids, &shape, &e);
    }
    tok_ids_free(&ids);
    if (rc < 0) {
        u->code = rc;
        turn_end(t, CE_R_ERROR, e.msg);
        return;
    }
    if (t->reader != &c->screen) {
        post_prefill(t, 0, u->total); /* it is accepted */
    }
    save(t, NULL, NULL);
    chat_publish(t);
}

/* ---- the middle ---- */

/* Of the token just added. */
static void take_logprobs(struct turn *u)
{
    int n = 0;
    const struct engine_logprob *p = job_logprobs(u->job, (int)u->ids.n - 1, &n);
    if (!p) {
        return;
    }
    if (u->ids.n > u->logprobs_cap) {
        u->logprobs_cap = u->logprobs_cap ? 2 * u->logprobs_cap : 64;
        u->logprobs = mem_realloc(u->logprobs, u->logprobs_cap * (size_t)n * sizeof *u->logprobs);
    }
    struct conv_logprob *to = u->logprobs + (u->ids.n - 1) * (size_t)n;
    for (int i = 0; i < n; i++) {
        to[i] = (struct conv_logprob){p[i].id, p[i].logprob, p[i].rank};
    }
}

static void take_tokens(struct chat *t, const struct job_event *ev)
{
    struct turn *u = &t->turn;
    if (u->first == 0 && ev->n > 0) {
        u->first = now();
        t->figures.ttft_s = clock_seconds(u->first - u->in->asked);
    }
    for (int i = 0; i < ev->n && !u->stopped; i++) {
        tok_ids_add(&u->ids, ev->ids[i]);
        take_logprobs(u);
        split_listen(&u->split, (int)u->ids.n >= u->rules.min_tokens);
        const int thought = u->split.thought_tokens;
        const bool stop = split_token(&u->split, ev->ids[i], &u->said);
        if (u->split.thought_tokens > thought) {
            u->thought_to = now();
            u->thought_from = thought > 0 ? u->thought_from : u->thought_to;
        }
        if (stop) {
            u->stopped = true;
            job_cancel(u->job);
        }
    }
}

static void turn_over(struct chat *t, enum job_reason reason)
{
    struct turn *u = &t->turn;
    if (u->stopped) {
        turn_end(t, CE_R_STOP, NULL);
        return;
    }
    switch (reason) {
    case JR_STOP:
        turn_end(t, CE_R_STOP, NULL);
        break;
    case JR_LENGTH:
        turn_end(t, CE_R_LENGTH, NULL);
        break;
    case JR_CANCELLED:
        turn_end(t, CE_R_CANCELLED, NULL);
        break;
    case JR_DEADLINE: {
        char why[ERR_MSG_MAX];
        snprintf(why, sizeof why, "%s", job_error(u->job));
        turn_end(t, CE_R_CANCELLED, why);
        break;
    }
    case JR_WAITED:
    case JR_ERROR: {
        u->code = reason == JR_WAITED ? QE_CANCELLED : u->code;
        char why[ERR_MSG_MAX];
        strncpy(why, job_error(u->job), sizeof why - 1);
        why[sizeof why - 1] = 0;
        turn_end(t, CE_R_ERROR, why);
        break;
    }
    }
}

static void turn_step(struct chat *t)
{
    struct turn *u = &t->turn;
    struct job_event ev;
    bool news = false;
    while (job_next(u->job, &ev)) {
        news = true;
        switch (ev.kind) {
        case JE_STARTED:
            u->started = true;
            u->cached = ev.done;
            t->figures.cached_tokens = ev.done;
            post_prefill(t, ev.done, ev.total);
            break;
        case JE_PREFILL:
            post_prefill(t, ev.done, ev.total);
            break;
        case JE_TOKENS:
            take_tokens(t, &ev);
            break;
        case JE_END:
            turn_over(t, ev.reason);
            return;
        }
    }
    if (!news) {
        return;
    }
    save_new(t);
    chat_publish(t);
    post_said(t);
}

/* ---- what conv.c calls ---- */

bool chat_working(const struct chat *t)
{
    return t->turn.in != NULL;
}

static void announce(struct chat *t)
{
    for (struct input *in = t->inputs; in; in = in->next) {
        if (!in->announced) {
            in->announced = true;
            post_event(t, CE_QUEUED, NULL, 0);
        }
    }
}

static bool may_begin(const struct chat *t)
{
    return !chat_working(t) && t->inputs && t->conv->state == SCHED_READY && !saving_loading(t);
}

void chat_work_recount(struct chat *t, const struct settings *set)
{
    settings_fini(&t->counting);
    settings_copy(&t->counting, set);
    t->uncounted = true;
    t->figures.context_used = -1;
}

/* How much of the context the conversation takes, where no turn has told. */
static void count_context(struct chat *t)
{
    struct tok_ids ids = {0};
    struct prompt_shape shape = {.opens_thought = false};
    struct err e = ERR_INIT; /* the turn that asks it will say so */
    if (!t->uncounted || chat_working(t) || t->inputs || t->conv->state != SCHED_READY) {
        return;
    }
    t->uncounted = false;
    if (json_array_size(t->messages) == 0) {
        t->figures.context_used = 0;
    } else if (prompt_messages(&t->conv->prompt, t->messages, NULL, &t->counting, &ids, &shape,
                               &e) == 0) {
        t->figures.context_used = (int)shape.ends.input;
    }
    tok_ids_free(&ids);
    chat_publish(t); /* before it is told of */
    post_event(t, CE_COUNTED, NULL, 0);
}

void chat_work(struct chat *t)
{
    announce(t);
    saving_work(t, t->closing);
    /* The end of one turn is the beginning of the next. */
    do {
        if (may_begin(t)) {
            turn_begin(t);
        }
        if (t->turn.job) {
            turn_step(t);
        }
    } while (may_begin(t));
    waiting_work(t);
    drafting_work(t);
    count_context(t);
    saving_work(t, t->closing);
    chat_publish(t);
}

void chat_work_stop(struct chat *t, uint64_t serial)
{
    if (chat_working(t)) {
        if (t->turn.in->serial == serial && t->turn.job) {
            job_cancel(t->turn.job);
        }
        return;
    }
    if (t->inputs && t->inputs->serial == serial) {
        t->turn.in = t->inputs;
        t->inputs = t->inputs->next;
        t->turn.in->next = NULL;
        turn_end(t, CE_R_CANCELLED, NULL);
    }
}

void chat_work_close(struct chat *t)
{
    waiting_close(t);
    while (t->inputs) {
        struct input *in = t->inputs;
        t->inputs = in->next;
        input_free(in);
    }
    if (t->turn.job) {
        job_cancel(t->turn.job);
    }
    t->closing = true;
}

void chat_work_flush(struct chat *t)
{
    struct conv *c = t->conv;
    const bool stored = record_flush(&c->record, &t->record);
    conv_record_news(c, t);
    chat_publish(t);
    const char *why = stored ? "" : c->record.why.msg;
    post_event(t, CE_STORED, why, strlen(why));
}

/* The chat leaves its conversation; what could not be written until now is lost. */
static void leave_record(struct chat *t)
{
    struct conv *c = t->conv;
    if (!record_flush(&c->record, &t->record) && c->lost.code == 0) {
        char name[48] = "the conversation";
        if (t->record.conv > 0) {
            snprintf(name, sizeof name, "the end of conversation %lld", (long long)t->record.conv);
        }
        err_set(&c->lost, QE_IO, "%s is not saved: %s", name, c->record.why.msg);
    }
    record_leave(&t->record);
}

void chat_work_clear(struct chat *t)
{
    drafting_leave(t);
    waiting_leave(t);
    json_array_clear(t->messages);
    saving_leave(t);
    leave_record(t);
    saving_restart(t, false);
    memset(&t->figures, 0, sizeof t->figures);
    t->uncounted = false;
    chat_publish(t);
}

void chat_work_rewind(struct chat *t, size_t keep)
{
    const size_t n = json_array_size(t->messages);
    if (keep >= n) {
        return;
    }
    record_rewind(&t->conv->record, &t->record, n - keep);
    conv_record_news(t->conv, t);
    json_t *kept = json_array();
    for (size_t i = 0; i < keep; i++) {
        json_array_append(kept, json_array_get(t->messages, i));
    }
    json_decref(t->messages);
    t->messages = kept;
}

void chat_work_resume(struct chat *t, struct resume *r)
{
    chat_work_clear(t);
    json_decref(t->messages);
    t->messages = json_incref(r->messages);
    t->record = (struct record_chat){.lock = r->lock,
                                     .conv = r->conv,
                                     .last = r->last,
                                     .generation = t->conv->record.generation,
                                     .model = r->model,
                                     .system = r->system,
                                     .saved = true};
    r->lock = NULL;
    r->model = r->system = NULL;
    buf_adds(&t->conv->record.notice, r->notice.data ? r->notice.data : "");
    conv_record_news(t->conv, t);
    saving_restart(t, r->last > 0);
    waiting_found(t, r->conv, r->queue_after, &r->queue);
    drafting_found(t, r->conv, r->draft_after, &r->draft);
    chat_publish(t);
}

void chat_work_free(struct chat *t)
{
    turn_fini(&t->turn);
    while (t->inputs) {
        struct input *in = t->inputs;
        t->inputs = in->next;
        input_free(in);
    }
    json_decref(t->messages);
    t->messages = NULL;
    settings_fini(&t->counting);
    drafting_leave(t);
    waiting_leave(t);
    leave_record(t);
    saving_free(t);
    live_free(t->live);
    t->live = NULL;
}

void input_free(struct input *in)
{
    if (in) {
        buf_free(&in->text);
        buf_free(&in->tools);
        conv_prepared_free(in->prepared);
        tok_ids_free(&in->ids);
        settings_fini(&in->settings);
        free(in);
    }
}
