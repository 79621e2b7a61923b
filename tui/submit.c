/* From the draft to a message, a command, or the queue, and back. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tui/app.h"

void submit_remember(struct app *a, const struct buf *text)
{
    struct err e = ERR_INIT;
    if (history_add(a->history, text->data, text->len, &e) < 0) {
        app_note(a, R_WARN, "%s", e.msg);
    }
}

void submit_keep_draft(struct pane *p)
{
    if (!composer_empty(p->composer)) {
        struct buf b = BUF_INIT;
        composer_text(p->composer, &b);
        submit_remember(p->app, &b);
        buf_free(&b);
        composer_clear(p->composer);
    }
}

/* Files that the draft names, and commands that do not work where they stand; false: the draft
 * is not to be sent now. */
static bool settle_commands(struct app *a)
{
    struct buf shown = BUF_INIT;
    composer_display(a->cur->composer, &shown);
    const char *s = shown.data ? shown.data : "";
    const bool command = s[0] == '/' && s[1] != '/';
    const size_t word = strcspn(s, " \t\n");
    bool send = true;
    if (!command || (word == 7 && memcmp(s, "/attach", 7) == 0)) {
        const enum attached got = command_attach(a, !command);
        send = got == ATTACH_NONE || (got == ATTACH_FAILED && !command && a->asked);
        if (got == ATTACH_DONE && command && !strchr(s, '\n')) {
            submit_remember(a, &shown);
        }
        if (got != ATTACH_DONE && !command && !a->asked) {
            a->asking = got == ATTACH_FAILED || command_misplaced(a, s);
            send = send && !a->asking;
        }
    }
    buf_free(&shown);
    return send;
}

/* Nothing is taken while what was said before cannot be written: that is tried first, and the
 * answer decides (submit_settled). */
static bool is_stuck(struct pane *p)
{
    struct view_chat v;
    chat_view(p->chat, &v);
    if (!v.stuck || p->in_turn) {
        return false;
    }
    p->leave_to = 0;
    p->sending = true;
    chat_flush(p->chat);
    return true;
}

void submit_settled(struct pane *p)
{
    struct app *a = p->app;
    p->sending = false;
    if (p->stored.len > 0) {
        app_note(a, R_BAD, "not sent: %s; what was said is kept in memory until it can be written",
                 p->stored.data);
    } else if (p == a->cur) {
        submit_draft(a);
    }
}

void submit_draft(struct app *a)
{
    if (!settle_commands(a)) {
        return;
    }
    struct message m = {BUF_INIT, BUF_INIT};
    composer_text(a->cur->composer, &m.full);
    composer_display(a->cur->composer, &m.shown);
    size_t i = 0;
    while (i < m.full.len && (m.full.data[i] == ' ' || m.full.data[i] == '\n')) {
        i++;
    }
    if (i == m.full.len) {
        message_free(&m);
        if (a->cur->held && !a->cur->in_turn && !is_stuck(a->cur)) {
            a->cur->held = false;
            turn_send_queued(a->cur);
        }
        return;
    }
    if (m.shown.data[0] == '/' && m.shown.len > 1 && m.shown.data[1] == '/') {
        memmove(m.full.data, m.full.data + 1, m.full.len);
        m.full.len--;
        memmove(m.shown.data, m.shown.data + 1, m.shown.len);
        m.shown.len--;
    } else if (m.shown.data[0] == '/') {
        composer_clear(a->cur->composer); /* a command may fill it */
        pane_draft_keep(a->cur);          /* it is no draft, wherever it leads */
        a->recalled = false;
        if (!command_run(a, m.full.data, m.full.len)) {
            composer_set(a->cur->composer, m.full.data, m.full.len);
        } else if (!a->recalled) {
            submit_remember(a, &m.full);
        }
        message_free(&m);
        return;
    }
    if (is_stuck(a->cur)) {
        message_free(&m);
        return;
    }
    compact_settle(a->cur, true);
    submit_remember(a, &m.full);
    composer_clear(a->cur->composer);
    if (a->cur->in_turn || a->cur->n_queue > 0) {
        turn_enqueue(a->cur, &m);
        queue_keep(a->cur);
        a->cur->held = a->cur->held && a->cur->in_turn;
        turn_send_queued(a->cur);
    } else {
        turn_begin(a->cur, &m);
        message_free(&m);
    }
}

void submit_take_back(struct app *a)
{
    if (a->cur->n_queue == 0) {
        app_note(a, R_WARN, "no message is queued");
        return;
    }
    queue_edit(a, a->cur->n_queue - 1);
}
