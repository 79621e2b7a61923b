/* Edit, answer again, go on from an earlier place: three ways to a new branch.
 * Nothing happens to the conversation before the message is sent. */
#include "config.h"

#include <curses.h>
#include <stdlib.h>
#include <string.h>

#include "tui/app.h"

/* Whether a branch can begin now; says why not. */
static bool can_branch(struct app *a)
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

/* The question that is meant: 0 the one at the selection, or the last; else by its number. */
static bool find_question(struct app *a, size_t turn, size_t *keep, const struct buf **text)
{
    if (transcript_question(a->cur->transcript, turn, keep, text)) {
        return true;
    }
    if (turn > 0) {
        app_note(a, R_WARN, "there is no question %zu in this conversation", turn);
    } else {
        app_note(a, R_WARN, "nothing was asked yet");
    }
    return false;
}

static void to_composer(struct app *a)
{
    a->cur->focus = false;
    a->overlay = OV_NONE;
    transcript_select(a->cur->transcript, 0);
}

/* What was being written, once: not the question that is edited now. */
static void put_aside(struct app *a)
{
    if (!a->cur->aside) {
        a->cur->aside = composer_copy(a->cur->composer);
    }
}

static void begin(struct app *a, size_t keep, const char *what)
{
    a->cur->forking = true;
    a->cur->fork_keep = keep;
    a->cur->fork_what = what;
    to_composer(a);
}

void branch_edit(struct app *a, size_t turn)
{
    size_t keep = 0;
    const struct buf *text = NULL;
    if (!can_branch(a) || !find_question(a, turn, &keep, &text)) {
        return;
    }
    put_aside(a);
    submit_keep_draft(a->cur);
    composer_set(a->cur->composer, text->data ? text->data : "", text->len);
    begin(a, keep, "editing an earlier message");
}

void branch_here(struct app *a, size_t turn)
{
    size_t keep = 0;
    const struct buf *text = NULL;
    if (!can_branch(a) || !find_question(a, turn, &keep, &text)) {
        return;
    }
    const size_t after = transcript_answered(a->cur->transcript, keep);
    if (after == keep) {
        app_note(a, R_WARN, "that question has no answer to go on from; e edits it");
        return;
    }
    put_aside(a);
    begin(a, after, "going on from an earlier answer");
}

void branch_retry(struct app *a)
{
    size_t keep = 0;
    const struct buf *text = NULL;
    if (!can_branch(a) || !find_question(a, 0, &keep, &text)) {
        return;
    }
    struct message m = {BUF_INIT, BUF_INIT};
    buf_add(&m.full, text->data, text->len);
    const struct buf *shown = transcript_question_shown(a->cur->transcript, text);
    buf_add(&m.shown, shown->data, shown->len);
    begin(a, keep, "");
    turn_begin(a->cur, &m);
    message_free(&m);
}

void branch_forget(struct pane *p)
{
    p->forking = false;
    p->summed = false;
    draft_free(p->aside);
    p->aside = NULL;
}

void branch_cancel(struct app *a)
{
    submit_keep_draft(a->cur);
    composer_restore(a->cur->composer, a->cur->aside);
    if (a->cur->summed) {
        transcript_back_to(a->cur->transcript, a->cur->before_summary);
    }
    branch_forget(a->cur);
    app_note(a, R_TEXT, "nothing was changed");
}

void branch_take(struct pane *p)
{
    if (!p->forking) {
        return;
    }
    branch_forget(p);
    chat_rewind(p->chat, p->fork_keep);
    p->renamed = true;
    transcript_cut(p->transcript, p->fork_keep);
    if (p->n_messages > p->fork_keep) {
        struct view_chat v;
        chat_view(p->chat, &v);
        transcript_notice(p->transcript, R_DIM,
                          v.conversation > 0 ? "a new branch; what followed here stays stored"
                                             : "what followed here is gone: nothing is stored");
        p->n_messages = p->fork_keep;
    }
}

void branch_from_start(struct pane *p, struct draft *before, const char *what)
{
    branch_forget(p);
    p->aside = before;
    p->forking = true;
    p->summed = true;
    p->fork_keep = 0;
    p->fork_what = what;
}

void branch_draw(const struct app *a, int y)
{
    const struct theme *th = &a->theme;
    text_blank(th, y, 0, COLS);
    int x = text_put(th, y, 1, COLS - 1, R_STRONG, a->cur->fork_what);
    static const struct key_hint keys[] = {{ACT_SEND, ACT_NONE, "sends it as a new branch"},
                                           {ACT_ESCAPE, ACT_NONE, "cancels"}};
    char hint[160];
    keymap_hints(a->keys, keys, 2, CTX_COMPOSER, hint, sizeof hint);
    if (x + 3 + (int)strlen(hint) >= COLS) {
        keymap_hint(a->keys, &keys[1], CTX_COMPOSER, hint);
    }
    (void)text_put(th, y, x + 3, COLS - x - 3, R_DIM, hint);
}
