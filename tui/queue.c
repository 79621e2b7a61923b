/* The list of messages that wait until the model is done: the first to be sent stands at the
 * top. One can be edited, moved and dropped. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tui/app.h"

void queue_keep(struct pane *p)
{
    struct conv_queued *q = mem_array(p->n_queue + 1, sizeof *q);
    for (size_t i = 0; i < p->n_queue; i++) {
        const struct message *m = &p->queue[i];
        q[i] = (struct conv_queued){m->shown.data, m->full.data, m->shown.len, m->full.len};
    }
    chat_queue(p->chat, q, p->n_queue);
    p->held = p->held && p->n_queue > 0; /* nothing is held where nothing waits */
    free(q);
}

void queue_restore(struct pane *p)
{
    struct conv_queued q;
    char line[160];
    for (size_t i = 0; chat_queued(p->chat, i, &q); i++) {
        struct message m = {BUF_INIT, BUF_INIT};
        buf_add(&m.shown, q.shown, q.shown_n);
        buf_add(&m.full, q.message, q.message_n);
        turn_enqueue(p, &m);
    }
    if (p->n_queue == 0) {
        return;
    }
    p->held = true;
    snprintf(line, sizeof line,
             "%zu queued message%s here and %s not sent: Enter sends, %s edits, moves or drops",
             p->n_queue, p->n_queue == 1 ? " was kept" : "s were kept",
             p->n_queue == 1 ? "was" : "were", keymap_key(p->app->keys, ACT_QUEUE, CTX_COMPOSER));
    transcript_notice(p->transcript, R_WARN, line);
}

void queue_open(struct app *a)
{
    if (a->overlay == OV_QUEUE) {
        a->overlay = OV_NONE;
    } else if (a->cur->n_queue == 0) {
        app_note(a, R_WARN, "no message is queued");
    } else {
        a->overlay = OV_QUEUE;
        a->pick = 0;
    }
}

size_t queue_list(const struct app *a, const char **entry, const char **help, size_t max)
{
    const struct pane *p = a->cur;
    const size_t n = p->n_queue < max ? p->n_queue : max;
    for (size_t i = 0; i < n; i++) { /* the latest, when not all fit */
        entry[i] = p->queue[p->n_queue - n + i].shown.data;
        help[i] = NULL;
    }
    return n;
}

/* Takes a message out of the queue. */
static struct message take(struct pane *p, size_t i)
{
    struct message m = p->queue[i];
    p->n_queue--;
    memmove(p->queue + i, p->queue + i + 1, (p->n_queue - i) * sizeof *p->queue);
    p->held = p->held && p->n_queue > 0;
    return m;
}

void queue_edit(struct app *a, size_t i)
{
    struct pane *p = a->cur;
    struct message m = take(p, i);
    struct buf draft = BUF_INIT;
    composer_text(p->composer, &draft);
    if (draft.len) { /* nothing typed is lost */
        buf_addc(&m.full, '\n');
        buf_add(&m.full, draft.data, draft.len);
    }
    composer_set(p->composer, m.full.data, m.full.len);
    pane_draft_changed(p);
    queue_keep(p);
    buf_free(&draft);
    message_free(&m);
}

static void swap(struct pane *p, size_t i, size_t k)
{
    const struct message m = p->queue[i];
    p->queue[i] = p->queue[k];
    p->queue[k] = m;
    queue_keep(p);
}

bool queue_key(struct app *a, const struct key *k)
{
    struct pane *p = a->cur;
    if (p->n_queue == 0) {
        a->overlay = OV_NONE; /* all were sent meanwhile */
        return false;
    }
    a->pick = a->pick < p->n_queue ? a->pick : p->n_queue - 1;
    const size_t at = p->n_queue - 1 - a->pick;
    const enum action act = overlay_action(a, k);
    if (act == ACT_MOVE_UP) {
        if (at > 0) {
            swap(p, at, at - 1);
            a->pick++;
        }
    } else if (act == ACT_MOVE_DOWN) {
        if (a->pick > 0) {
            swap(p, at, at + 1);
            a->pick--;
        }
    } else if (act == ACT_PREV_BLOCK) {
        a->pick += at > 0;
    } else if (act == ACT_NEXT_BLOCK) {
        a->pick -= a->pick > 0;
    } else if (act == ACT_CHOOSE) {
        a->overlay = OV_NONE;
        p->focus = false;
        queue_edit(a, at);
    } else if (act == ACT_DROP) {
        struct message m = take(p, at);
        message_free(&m);
        queue_keep(p);
        app_note(a, R_TEXT, "dropped; it is in the history of prompts");
        a->pick -= a->pick > 0;
        a->overlay = p->n_queue > 0 ? OV_QUEUE : OV_NONE;
    } else if (act == ACT_BACK) {
        a->overlay = OV_NONE;
    } else {
        return k->type == K_CHAR && k->mods == 0; /* nothing is typed here */
    }
    return true;
}
