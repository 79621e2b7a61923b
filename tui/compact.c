/* /undo and /compact: two ways to go on from an earlier place with less. Neither loses what is
 * stored: the branch that is left stays where it is. */
#include "config.h"
#include "tui/compact.h"

#include <stdlib.h>
#include <string.h>

#include "tui/app.h"

#define SUMMARY "summary" /* the name of its part of the draft */

static const char request[] =
    "Sum up our conversation so far, so that it can be gone on with from your summary alone: what "
    "was asked, found out and decided, names, numbers and code as they stand, and what is still "
    "open. Write nothing but the summary.";

void compact_request(const char *hint, struct buf *out)
{
    buf_adds(out, request);
    if (hint[0]) {
        buf_printf(out, " Keep above all: %s", hint);
    }
}

/* Whether the pane is at rest; says why not. */
static bool at_rest(struct app *a)
{
    if (a->cur->in_turn) {
        app_note(a, R_WARN, "the model is at work; stop it first (%s)",
                 app_way(a, ACT_STOP_OR_QUIT));
        return false;
    }
    if (a->cur->n_queue > 0) {
        app_note(a, R_WARN, "messages are queued; send them or take them back first (%s)",
                 app_way(a, ACT_UNQUEUE));
        return false;
    }
    return true;
}

void compact_undo(struct app *a)
{
    struct pane *p = a->cur;
    const struct buf *text = NULL;
    size_t keep = 0;
    struct view_chat v;
    if (!at_rest(a)) {
        return;
    }
    if (!transcript_question(p->transcript, 0, &keep, &text)) {
        app_note(a, R_WARN, "nothing was asked yet");
        return;
    }
    chat_view(p->chat, &v);
    submit_remember(a, text);
    a->recalled = true;
    branch_forget(p);
    chat_rewind(p->chat, keep);
    transcript_cut(p->transcript, keep);
    p->n_messages = keep;
    p->focus = false;
    transcript_select(p->transcript, 0);
    transcript_notice(
        p->transcript, R_DIM,
        v.conversation > 0
            ? "undone: what you send next follows on what is above. What stood here "
              "stays stored, and the question is in the history (Up)"
            : "undone: what stood here is gone, since nothing is stored; the question "
              "is in the history (Up)");
}

void compact_begin(struct app *a, const char *hint)
{
    struct pane *p = a->cur;
    struct message m = {BUF_INIT, BUF_INIT};
    if (!at_rest(a)) {
        return;
    }
    if (p->n_messages == 0) {
        app_note(a, R_WARN, "nothing was said yet that could be summed up");
        return;
    }
    branch_forget(p);
    compact_request(hint, &m.full);
    buf_printf(&m.shown, "/compact%s%s", hint[0] ? " " : "", hint);
    p->compacting = true;
    p->before_summary = transcript_mark(p->transcript);
    turn_begin(p, &m);
    p->compacting = p->compacting && p->in_turn;
    message_free(&m);
}

void compact_end(struct pane *p, bool whole)
{
    struct app *a = p->app;
    const struct buf *answer = transcript_last_answer(p->transcript);
    struct err e = ERR_INIT;
    struct buf summary = BUF_INIT;
    p->compacting = false;
    if (!whole || !answer || answer->len == 0) {
        transcript_back_to(p->transcript, p->before_summary);
        app_note(a, R_WARN, "nothing was summed up; the conversation goes on as it was");
        return;
    }
    struct draft *before = composer_copy(p->composer);
    buf_adds(&summary, COMPACT_HEAD);
    buf_add(&summary, answer->data, answer->len);
    buf_adds(&summary, "\n\n");
    if (composer_put_file(p->composer, SUMMARY, summary.data, summary.len, &e) < 0) {
        transcript_back_to(p->transcript, p->before_summary);
        app_error(a, &e);
        draft_free(before);
    } else {
        branch_from_start(p, before, "going on from a summary");
        struct view_chat v;
        chat_view(p->chat, &v);
        app_note(a, R_GOOD,
                 "what you send now goes on from the summary alone%s; Esc goes on with the whole "
                 "conversation instead",
                 v.conversation > 0 ? ", as a new branch: what was said stays stored" : "");
    }
    buf_free(&summary);
}

void compact_settle(struct pane *p, bool sending)
{
    if (!p->summed || composer_has_file(p->composer, SUMMARY, sending)) {
        return;
    }
    transcript_back_to(p->transcript, p->before_summary);
    branch_forget(p);
    app_note(p->app, R_WARN, "the summary was taken out: the conversation goes on as it was");
}
