/* Output of quasar run. Standard output gets nothing but the answer or JSON;
 * thoughts, progress and figures go to standard error. */
#include "config.h"
#include "cmd/runout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/jsonio.h"
#include "cmd/printsafe.h"

#define QUIET_NS 400000000 /* progress is shown only of what takes longer */

void runout_start(struct runout *o)
{
    o->tty = isatty(STDOUT_FILENO);
    o->err_tty = isatty(STDERR_FILENO);
    o->began = clock_now(clock_main());
}

/* ---- text ---- */

static void clear_progress(struct runout *o)
{
    if (o->in_progress) {
        fputs("\r\033[K", stderr);
        o->in_progress = false;
    }
}

static void show_progress(struct runout *o, const char *what, double done)
{
    if (o->err_tty && clock_now(clock_main()) - o->began > QUIET_NS) {
        fprintf(stderr, "\r%s %d%%\033[K", what, (int)(done * 100));
        o->in_progress = true;
    }
}

static void end_thought(struct runout *o)
{
    if (o->in_thought) {
        fputs(o->thought_line ? "\n\n" : "\n", stderr);
        o->in_thought = false;
    }
}

static void print_text(struct runout *o, const struct buf *b)
{
    end_thought(o);
    print_safe(stdout, b->data, b->len, o->tty);
    o->in_line = b->data[b->len - 1] != '\n';
    if (o->tty || memchr(b->data, '\n', b->len)) {
        fflush(stdout);
    }
}

static void print_thought(struct runout *o, const struct buf *b)
{
    if (o->thoughts) {
        print_safe(stderr, b->data, b->len, o->err_tty);
        o->in_thought = true;
        o->thought_line = b->data[b->len - 1] != '\n';
    }
}

static void print_call(struct runout *o, const struct buf *b)
{
    end_thought(o);
    if (o->in_line) {
        putchar('\n');
    }
    puts(b->data);
    fflush(stdout);
    o->in_line = false;
}

/* ---- JSON ---- */

static json_t *str_of(const struct buf *b)
{
    return json_str_lossy(b->data ? b->data : "", b->len);
}

static json_t *calls_of(const struct chat_result *r)
{
    json_t *calls = NULL;
    if (r->calls.len == 0 || json_parse(r->calls.data, r->calls.len, "calls", &calls, NULL) < 0) {
        calls = json_array();
    }
    return calls;
}

static json_t *counts_of(const uint32_t *v)
{
    json_t *a = json_array();
    for (int i = 0; i < VIEW_DRAFTS && v[i] > 0; i++) {
        json_array_append_new(a, json_integer(v[i]));
    }
    return a;
}

/* Accepted ones are as many numbers as were drafted. */
static json_t *accepted_of(const struct view_spec *v, int source)
{
    json_t *a = json_array();
    for (int i = 0; i < VIEW_DRAFTS && v->drafted[source][i] > 0; i++) {
        json_array_append_new(a, json_integer(v->accepted[source][i]));
    }
    return a;
}

static const char *const source_names[VS_COUNT] = {"none", "mtp", "suffix"};

static json_t *speculation_of(const struct view_spec *v)
{
    json_t *o = json_object();
    for (int s = 0; s < VS_COUNT; s++) {
        json_t *of = json_pack("{s:I, s:I}", "rounds", (json_int_t)v->rounds[s], "tokens",
                               (json_int_t)v->tokens[s]);
        if (s != VS_NONE) {
            json_object_set_new(of, "drafted", counts_of(v->drafted[s]));
            json_object_set_new(of, "accepted", accepted_of(v, s));
        }
        json_object_set_new(o, source_names[s], of);
    }
    json_object_set_new(o, "draft_s", json_real(v->draft_s));
    json_object_set_new(o, "verify_s", json_real(v->verify_s));
    json_object_set_new(o, "host_s", json_real(v->host_s));
    if (v->compared > 0) {
        json_object_set_new(o, "heads_compared", json_integer((json_int_t)v->compared));
        json_object_set_new(o, "heads_differ", json_integer((json_int_t)v->differ));
    }
    return o;
}

static void add_figures(json_t *o, const struct chat_result *r)
{
    json_object_set_new(o, "prompt_tokens", json_integer(r->prompt_tokens));
    json_object_set_new(o, "cached_tokens", json_integer(r->cached_tokens));
    json_object_set_new(o, "reuse",
                        json_pack("{s:s, s:s, s:i, s:s}", "from", r->reuse, "short", r->reuse_short,
                                  "at", r->reuse_at, "words", r->reuse_words));
    json_object_set_new(o, "rounds", json_integer(r->rounds));
    json_object_set_new(o, "drafted", json_integer(r->drafted));
    json_object_set_new(o, "accepted", json_integer(r->accepted));
    json_object_set_new(o, "tokens_per_round",
                        json_real(r->rounds > 0 ? (double)r->n_ids / r->rounds : 0));
    json_object_set_new(o, "speculation", speculation_of(&r->spec));
    json_object_set_new(o, "prefill_s", json_real(r->prefill_s));
    json_object_set_new(o, "decode_s", json_real(r->decode_s));
    json_object_set_new(o, "seed", json_integer((json_int_t)r->seed));
}

static json_t *logprob_of(const struct conv_logprob *p)
{
    json_t *o = json_object();
    json_object_set_new(o, "id", json_integer(p->id));
    json_object_set_new(o, "logprob", json_real((double)p->logprob));
    json_object_set_new(o, "rank", json_integer(p->rank));
    return o;
}

/* One object for every token, the likeliest ones in its top. */
static json_t *logprobs_of(const struct chat_result *r)
{
    json_t *all = json_array();
    for (size_t i = 0; i < r->n_ids; i++) {
        const struct conv_logprob *p = r->logprobs + i * (size_t)r->n_logprobs;
        json_t *o = logprob_of(p);
        json_t *top = json_array();
        for (int k = 1; k < r->n_logprobs; k++) {
            json_array_append_new(top, logprob_of(&p[k]));
        }
        json_object_set_new(o, "top", top);
        json_array_append_new(all, o);
    }
    return all;
}

static void print_object(const struct runout *o, const struct chat_result *r)
{
    json_t *v = json_object();
    json_t *ids = json_array();
    for (size_t i = 0; i < r->n_ids; i++) {
        json_array_append_new(ids, json_integer(r->ids[i]));
    }
    json_object_set_new(v, "tokens", ids);
    json_object_set_new(v, "text", str_of(&r->text));
    json_object_set_new(v, "finish_reason", json_string(conv_reason_word(r->reason)));
    add_figures(v, r);
    if (r->n_logprobs > 0) {
        json_object_set_new(v, "logprobs", logprobs_of(r));
    }
    if (r->thought.len > 0) {
        json_object_set_new(v, "thought", str_of(&r->thought));
    }
    if (o->tools) {
        json_object_set_new(v, "tool_calls", calls_of(r));
    }
    if (o->conversation > 0) {
        json_object_set_new(v, "conversation", json_integer((json_int_t)o->conversation));
    }
    json_print_take(v);
}

static json_t *stream_event(const char *kind)
{
    json_t *v = json_object();
    json_object_set_new(v, "event", json_string(kind));
    return v;
}

static void stream(json_t *v)
{
    json_print_take(v);
    fflush(stdout);
}

static void stream_text(const char *kind, const struct buf *b)
{
    json_t *v = stream_event(kind);
    json_object_set_new(v, "text", str_of(b));
    stream(v);
}

static void stream_start(struct runout *o, const struct conv *c, const struct conv_event *ev)
{
    if (o->started) {
        return;
    }
    o->started = true;
    struct view_model m;
    conv_view_model(c, &m);
    json_t *v = stream_event("start");
    json_object_set_new(v, "model", json_string(m.name));
    json_object_set_new(v, "backend", json_string(m.backend));
    json_object_set_new(v, "prompt_tokens", json_integer(ev->total));
    json_object_set_new(v, "cached_tokens", json_integer(ev->done));
    stream(v);
}

static void stream_call(const struct buf *b)
{
    json_t *v = stream_event("tool");
    json_t *call = NULL;
    if (json_parse(b->data, b->len, "a call", &call, NULL) == 0) {
        json_object_update(v, call);
        json_decref(call);
    }
    stream(v);
}

static void stream_end(const struct runout *o, const struct chat_result *r)
{
    json_t *v = stream_event("stats");
    add_figures(v, r);
    stream(v);
    if (r->n_logprobs > 0) {
        v = stream_event("logprobs");
        json_object_set_new(v, "logprobs", logprobs_of(r));
        stream(v);
    }
    v = stream_event("end");
    json_object_set_new(v, "finish_reason", json_string(conv_reason_word(r->reason)));
    json_object_set_new(v, "output_tokens", json_integer((json_int_t)r->n_ids));
    if (o->conversation > 0) {
        json_object_set_new(v, "conversation", json_integer((json_int_t)o->conversation));
    }
    stream(v);
}

/* ---- both ---- */

static void told_once(struct runout *o, const struct conv *c)
{
    struct view_model m;
    conv_view_model(c, &m);
    if (o->err_tty && m.fallback[0]) {
        fprintf(stderr, "quasar: %s\n", m.fallback);
    }
}

void runout_notice(struct runout *o, const char *lines)
{
    clear_progress(o);
    for (const char *p = lines; p && *p;) {
        const size_t n = strcspn(p, "\n");
        end_thought(o);
        fputs("quasar: ", stderr);
        print_safe(stderr, p, n, o->err_tty);
        fputc('\n', stderr);
        p += n + (p[n] != 0);
    }
}

void runout_event(struct runout *o, const struct conv *c, const struct conv_event *ev)
{
    bool text = o->form == OUT_TEXT;
    bool lines = o->form == OUT_STREAM;
    switch (ev->kind) {
    case CE_LOADING:
        show_progress(o, "loading", ev->progress);
        return;
    case CE_PREFILL:
        if (lines) {
            stream_start(o, c, ev);
        }
        show_progress(o, "reading the prompt", ev->progress);
        return;
    case CE_READY:
        clear_progress(o);
        told_once(o, c);
        return;
    case CE_THOUGHT:
    case CE_TEXT:
    case CE_TOOL:
        break;
    case CE_NOTICE:
        runout_notice(o, ev->text.data);
        return;
    case CE_FAILED:
    case CE_QUEUED:
    case CE_END:
    case CE_SAVED:
    case CE_STORED:
    case CE_COUNTED:
        clear_progress(o);
        return;
    }
    clear_progress(o);
    if (ev->kind == CE_TEXT && text) {
        print_text(o, &ev->text);
    } else if (ev->kind == CE_TEXT && lines) {
        stream_text("delta", &ev->text);
    } else if (ev->kind == CE_THOUGHT && text) {
        print_thought(o, &ev->text);
    } else if (ev->kind == CE_THOUGHT && lines) {
        stream_text("thought", &ev->text);
    } else if (ev->kind == CE_TOOL && text) {
        print_call(o, &ev->text);
    } else if (ev->kind == CE_TOOL && lines) {
        stream_call(&ev->text);
    }
}

static double rate(double n, double s)
{
    return s > 0 ? n / s : 0;
}

/* "drafts  mtp: 12 rounds, 5.10 tokens each, 88 % of 54 drafts right; …" */
static void print_drafts(const struct view_spec *v)
{
    const char *lead = "drafts  ";
    for (int s = 0; s < VS_COUNT; s++) {
        unsigned drafted = 0, accepted = 0;
        for (int i = 0; i < VIEW_DRAFTS; i++) {
            drafted += v->drafted[s][i];
            accepted += v->accepted[s][i];
        }
        if (v->rounds[s] == 0) {
            continue;
        }
        fprintf(stderr, "%s%s: %" PRIu64 " rounds, %.2f tokens each", lead, source_names[s],
                v->rounds[s], (double)v->tokens[s] / (double)v->rounds[s]);
        if (drafted > 0) {
            fprintf(stderr, ", %.0f %% of %u drafts right", 100.0 * accepted / drafted, drafted);
        }
        lead = "; ";
    }
    if (lead[0] == ';') {
        fprintf(stderr, "\nrounds  %.3f s drafting, %.3f s verifying, %.3f s between\n", v->draft_s,
                v->verify_s, v->host_s);
    }
}

static void print_stats(const struct chat_result *r)
{
    int computed = r->prompt_tokens - r->cached_tokens;
    fprintf(stderr,
            "prompt  %d tokens, %d of them reused, %.3f s, %.0f tokens/s\n"
            "answer  %zu tokens, %.3f s, %.1f tokens/s, %.2f tokens a round\n",
            r->prompt_tokens, r->cached_tokens, r->prefill_s, rate(computed, r->prefill_s),
            r->n_ids, r->decode_s, rate((double)r->n_ids - 1, r->decode_s),
            r->rounds > 0 ? (double)r->n_ids / r->rounds : 0);
    fprintf(stderr, "reuse   %s: %s\n", r->reuse, r->reuse_words);
    print_drafts(&r->spec);
    if (r->spec.compared > 0) {
        fprintf(stderr,
                "head    the fast one differs in %" PRIu64 " of %" PRIu64
                " rows asked of both, %.1f %%\n",
                r->spec.differ, r->spec.compared,
                100.0 * (double)r->spec.differ / (double)r->spec.compared);
    }
    fprintf(stderr, "seed    %" PRIu64 "\n", r->seed);
}

/* The thought counts too; without this line an answer that -n cut off before its
 * first word would look like none. */
static void print_unsaid(const struct chat_result *r)
{
    if (r->reason == CE_R_LENGTH && r->text.len == 0 && r->thought.len > 0) {
        fprintf(stderr,
                "quasar: the %zu tokens ended in the thought: give a larger -n, or --think off\n",
                r->n_ids);
    }
}

void runout_end(struct runout *o, const struct chat_result *r)
{
    switch (o->form) {
    case OUT_TEXT:
        end_thought(o);
        print_unsaid(r);
        if (o->in_line) {
            putchar('\n');
        }
        break;
    case OUT_JSON:
        print_object(o, r);
        break;
    case OUT_STREAM:
        stream_end(o, r);
        break;
    }
    fflush(stdout);
    if (o->stats) {
        print_stats(r);
    }
}
