/* The list of stored conversations, latest first, narrowed by what is typed: Enter
 * goes on with the chosen one. The screen leaves its own only when that worked. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tui/app.h"

#define LISTED 1000

static void age_text(int64_t seconds, char out[24])
{
    if (seconds < 3600) {
        snprintf(out, 24, "%d min ago", seconds > 0 ? (int)(seconds / 60) : 0);
    } else if (seconds < 2 * 86400) {
        snprintf(out, 24, "%d h ago", (int)(seconds / 3600));
    } else {
        snprintf(out, 24, "%d days ago", (int)(seconds / 86400 % 100000));
    }
}

static bool take(void *ctx, const struct conv_stored *s)
{
    struct app *a = ctx;
    a->stored = mem_realloc(a->stored, (a->n_stored + 1) * sizeof *a->stored);
    struct stored *k = &a->stored[a->n_stored++];
    char age[24];
    age_text(clock_wall() - s->updated, age);
    *k = (struct stored){.id = s->id, .title = mem_strdup(s->title ? s->title : "")};
    int n = 0;
    if (s->turns >= 0) {
        n = snprintf(k->facts, sizeof k->facts, "%d turn%s  ", s->turns, s->turns == 1 ? "" : "s");
    }
    snprintf(k->facts + n, sizeof k->facts - (size_t)n, "%s  %s%s", age,
             s->state_bytes > 0 ? "state saved" : "text only", s->pinned ? "  pinned" : "");
    return true;
}

void sessions_free(struct app *a)
{
    for (size_t i = 0; i < a->n_stored; i++) {
        free(a->stored[i].title);
    }
    free(a->stored);
    a->stored = NULL;
    a->n_stored = 0;
}

void sessions_open(struct app *a)
{
    struct err e = ERR_INIT;
    sessions_free(a);
    const int rc = conv_list(a->conv, LISTED, take, a, &e);
    if (rc < 0) {
        app_note(a, R_BAD, "%s", e.msg);
    } else if (a->n_stored == 0) {
        app_note(a, R_TEXT, "no conversation is stored yet");
    } else {
        a->overlay = OV_SESSIONS;
        a->pick = 0;
        buf_truncate(&a->query, 0);
    }
}

/* The i-th of those that match, or NULL. */
static const struct stored *match(const struct app *a, size_t i)
{
    const char *query = a->query.data ? a->query.data : "";
    for (size_t k = 0; k < a->n_stored; k++) {
        if (strcasestr(a->stored[k].title, query) && i-- == 0) {
            return &a->stored[k];
        }
    }
    return NULL;
}

size_t sessions_list(const struct app *a, const char **entry, const char **help, size_t max)
{
    size_t n = 0;
    while (n < max && match(a, n)) {
        n++;
    }
    for (size_t i = 0; i < n; i++) { /* the latest stands lowest */
        const struct stored *k = match(a, n - 1 - i);
        entry[i] = k->title[0] ? k->title : "(nothing was said)";
        help[i] = k->facts;
    }
    return n;
}

void sessions_go_on(struct pane *p, int64_t id)
{
    struct err e = ERR_INIT;
    struct transcript *was = p->transcript;
    const size_t n = p->n_messages;
    find_close(p);
    p->transcript = transcript_create();
    p->n_messages = 0;
    if (pane_resume(p, id, &e) < 0) {
        transcript_free(p->transcript);
        p->transcript = was;
        p->n_messages = n;
        app_note(p->app, R_BAD, "%s", e.msg);
        return;
    }
    transcript_free(was);
    branch_forget(p);
    p->fresh = false;
    p->focus = false;
    transcript_notice(p->transcript, R_DIM, "resumed; F4 goes to another conversation");
}

void sessions_pick(struct app *a, size_t i)
{
    const struct stored *k = match(a, i);
    a->overlay = OV_NONE;
    if (!k) {
        return;
    }
    if (a->cur->in_turn || a->cur->n_queue > 0) {
        app_note(a, R_WARN,
                 a->cur->in_turn ? "the model is at work; stop it first (Esc)"
                                 : "messages are queued; take them back first (Alt-Up)");
        return;
    }
    struct view_chat v;
    chat_view(a->cur->chat, &v);
    if (!a->cur->fresh && v.conversation == k->id) {
        app_note(a, R_TEXT, "that is the conversation on the screen");
        return;
    }
    pane_leave(a->cur, k->id);
}
