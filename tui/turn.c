/* A pane's turns: what the user said goes to the conversation, and what comes
 * back as events grows the transcript. Messages of a pane that is at work wait
 * in its queue; a stop holds them. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tui/app.h"

void turn_clock(char out[8], int64_t seconds)
{
    const time_t t = (time_t)seconds;
    struct tm tm;
    localtime_r(&t, &tm);
    snprintf(out, 8, "%02d:%02d", tm.tm_hour % 100, tm.tm_min % 100);
}

void turn_begin(struct pane *p, const struct message *m)
{
    struct err e = ERR_INIT;
    char at[8];
    turn_clock(at, clock_wall());
    branch_take(p);
    pane_draft_keep(p); /* what is sent is none any more */
    p->leave_to = 0;
    p->leave_asked = 0;
    const int rc = p->compacting ? chat_aside(p->chat, m->full.data, m->full.len, &e)
                                 : chat_send(p->chat, m->full.data, m->full.len, &e);
    if (rc < 0) {
        struct err why = ERR_INIT;
        (void)err_set(&why, e.code, "not sent: %s", e.msg);
        app_error(p->app, &why);
        composer_set(p->composer, m->full.data, m->full.len);
        return;
    }
    transcript_user(p->transcript, at, &m->shown, &m->full);
    transcript_at(p->transcript, clock_wall());
    transcript_follow(p->transcript);
    p->fresh = false;
    p->in_turn = true;
    p->held = false;
    p->thinking = false;
    p->begun = false;
    p->said = false;
    p->turn_start = app_now();
    if (p->status.phase != P_LOADING) {
        p->status.phase = P_WAITING;
    }
}

void message_free(struct message *m)
{
    buf_free(&m->shown);
    buf_free(&m->full);
}

void turn_send_queued(struct pane *p)
{
    if (p->n_queue == 0 || p->in_turn || p->held) {
        return;
    }
    struct view_chat v;
    chat_view(p->chat, &v);
    if (v.stuck) {
        p->held = true;
        transcript_notice(p->transcript, R_WARN,
                          "nothing more is sent until what was said can be written to the disk; "
                          "Enter tries again");
        return;
    }
    struct message m = p->queue[0];
    p->n_queue--;
    memmove(p->queue, p->queue + 1, p->n_queue * sizeof *p->queue);
    turn_begin(p, &m);
    message_free(&m);
    queue_keep(p);
}

void turn_enqueue(struct pane *p, struct message *m)
{
    if (p->n_queue == p->cap_queue) {
        p->cap_queue = p->cap_queue ? p->cap_queue * 2 : 8;
        p->queue = mem_realloc(p->queue, p->cap_queue * sizeof *p->queue);
    }
    p->queue[p->n_queue++] = *m;
    *m = (struct message){BUF_INIT, BUF_INIT};
}

void turn_stop(struct pane *p)
{
    if (p->in_turn && p->status.phase != P_STOPPING) {
        chat_stop(p->chat);
        p->status.phase = P_STOPPING;
        p->held = p->n_queue > 0;
    }
}

void turn_wait(struct pane *p)
{
    char at[8];
    const bool waits = p->in_turn && !p->begun && p->status.phase == P_WAITING;
    turn_clock(at, clock_wall());
    transcript_wait(p->transcript, at, waits ? p->status.chat.ahead : 0);
}

static double since(int64_t t)
{
    return clock_seconds(app_now() - t);
}

/* Makes the model's block when the first piece of an answer comes. */
static void open_block(struct pane *p)
{
    if (!p->begun) {
        char at[8];
        p->begun = true;
        transcript_wait(p->transcript, "", 0);
        turn_clock(at, clock_wall());
        transcript_model(p->transcript, at);
        transcript_at(p->transcript, clock_wall());
    }
}

static void thought_facts(struct pane *p, bool over)
{
    struct view_chat v;
    chat_view(p->chat, &v);
    transcript_thought_facts(p->transcript, over, since(p->thought_start), v.thought_tokens);
}

static void end_turn(struct pane *p, const struct conv_event *ev)
{
    static const char anew[] = "/new starts a new conversation";
    char what[256] = "";
    enum role role = R_DIM;
    struct view_chat v;
    chat_view(p->chat, &v);
    bool full = p->status.model.ctx > 0 && v.context_used >= p->status.model.ctx;
    switch (ev->reason) {
    case CE_R_STOP:
    case CE_R_TOOL:
        break;
    case CE_R_LENGTH:
        role = R_WARN;
        snprintf(what, sizeof what, "cut off: %s%s",
                 full ? "the context is full; " : "the token limit is reached", full ? anew : "");
        break;
    case CE_R_CANCELLED:
        role = R_WARN;
        snprintf(what, sizeof what, "stopped");
        break;
    case CE_R_ERROR:
        role = R_BAD;
        snprintf(what, sizeof what, "failed: %.180s%s%s", ev->text.data ? ev->text.data : "",
                 full ? "; " : "", full ? anew : "");
        break;
    }
    if (p->thinking) {
        thought_facts(p, true);
        p->thinking = false;
    }
    transcript_wait(p->transcript, "", 0);
    if (p->begun) {
        transcript_end(p->transcript, role, what);
    } else if (what[0]) {
        transcript_notice(p->transcript, role, what);
    }
    if (role == R_BAD) {
        views_log(p->app, role, what);
    }
    if (p->said && !p->compacting) {
        p->n_messages = transcript_kept(p->transcript, p->n_messages);
    }
    views_sample(p->app);
    p->in_turn = false;
    p->status.phase = P_IDLE;
    if (p->renamed || !p->name) {
        pane_names(p);
    }
    sessions_stale(p->app);
    if (p->compacting) {
        p->held = p->n_queue > 0; /* they were not meant for what is left behind */
        compact_end(p, ev->reason == CE_R_STOP && p->begun && p->said);
        if (role == R_BAD) {
            transcript_notice(p->transcript, role, what);
        }
    }
    buf_truncate(&p->draft_kept, 0); /* it follows another turn now */
    if (p->composer && !composer_empty(p->composer)) {
        pane_draft_changed(p);
    }
    turn_send_queued(p);
}

static void on_ready(struct app *a)
{
    struct view_model m;
    for (size_t i = 0; i < a->n_panes; i++) {
        a->panes[i]->status.phase = a->panes[i]->in_turn ? P_WAITING : P_IDLE;
    }
    conv_view_model(a->conv, &m);
    if (m.fallback[0]) {
        app_note(a, R_WARN, "%s", m.fallback);
    }
}

static bool has_words(const struct buf *b)
{
    for (size_t i = 0; i < b->len; i++) {
        if (!strchr(" \t\r\n", b->data[i])) {
            return true;
        }
    }
    return false;
}

static void on_model_event(struct app *a, const struct conv_event *ev)
{
    if (ev->kind == CE_LOADING) {
        for (size_t i = 0; i < a->n_panes; i++) {
            a->panes[i]->status.phase = P_LOADING;
            a->panes[i]->status.progress = ev->progress;
        }
    } else if (ev->kind == CE_READY) {
        on_ready(a);
    } else {
        err_set(&a->failed, ev->code < 0 ? ev->code : QE_IO, "%s",
                ev->text.data ? ev->text.data : "the model cannot be used");
        a->quit = true;
    }
}

static void on_pane_event(struct pane *p, const struct conv_event *ev)
{
    switch (ev->kind) {
    case CE_LOADING:
    case CE_READY:
    case CE_FAILED:
        break; /* the model's */
    case CE_QUEUED:
        if (p->status.phase != P_STOPPING) {
            p->status.phase = P_WAITING;
        }
        break;
    case CE_PREFILL:
        if (p->status.phase == P_STOPPING) {
            break;
        }
        if (p->status.phase != P_PREFILL) {
            p->prefill_start = app_now();
        }
        p->status.phase = P_PREFILL;
        p->status.done = ev->done;
        p->status.total = ev->total;
        break;
    case CE_THOUGHT:
        p->said = p->said || has_words(&ev->text);
        open_block(p);
        if (!p->thinking) {
            p->thinking = true;
            p->thought_start = app_now();
        }
        transcript_thought(p->transcript, ev->text.data, ev->text.len);
        thought_facts(p, false);
        if (p->status.phase != P_STOPPING) {
            p->status.phase = P_THINKING;
        }
        break;
    case CE_TEXT:
    case CE_TOOL:
        p->said = p->said || ev->text.len > 0;
        open_block(p);
        if (p->thinking) {
            thought_facts(p, true);
            p->thinking = false;
        }
        if (ev->kind == CE_TOOL) {
            transcript_text(p->transcript, "\n\n```json\n", 10);
            transcript_text(p->transcript, ev->text.data, ev->text.len);
            transcript_text(p->transcript, "\n```\n", 5);
        } else {
            transcript_text(p->transcript, ev->text.data, ev->text.len);
        }
        if (p->status.phase != P_STOPPING) {
            p->status.phase = P_ANSWERING;
        }
        break;
    case CE_END:
        end_turn(p, ev);
        break;
    case CE_NOTICE:
        transcript_notice(p->transcript, R_WARN, ev->text.data ? ev->text.data : "");
        views_log(p->app, R_WARN, ev->text.data ? ev->text.data : "");
        break;
    case CE_STORED:
        buf_truncate(&p->stored, 0);
        buf_add(&p->stored, ev->text.data ? ev->text.data : "", ev->text.len);
        p->stored_known = true;
        break;
    case CE_SAVED:
    case CE_COUNTED: /* it is drawn with the frame that every event brings */
        break;
    }
}

void turn_event(struct app *a, const struct conv_event *ev)
{
    a->dirty = true;
    if (ev->kind == CE_LOADING || ev->kind == CE_READY || ev->kind == CE_FAILED) {
        on_model_event(a, ev);
        return;
    }
    struct pane *p = ev->chat ? NULL : a->cur;
    for (size_t i = 0; i < a->n_panes && !p; i++) {
        p = a->panes[i]->chat == ev->chat ? a->panes[i] : NULL;
    }
    if (p) {
        on_pane_event(p, ev);
    }
}
