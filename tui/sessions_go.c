/* Going on with a conversation of the list, on one of its branches, or at a place that was found
 * in it. The screen leaves its own conversation only when the other one could be had. */
#include "config.h"

#include <stdio.h>

#include "tui/sessions.h"

void sessions_go_on(struct pane *p, int64_t id, int64_t tip)
{
    struct err e = ERR_INIT;
    struct transcript *was = p->transcript;
    const size_t n = p->n_messages;
    pane_draft_keep(p); /* it stays with what is left */
    find_close(p);
    p->transcript = transcript_create();
    p->n_messages = 0;
    if (pane_resume(p, id, tip, &e) < 0) {
        transcript_free(p->transcript);
        p->transcript = was;
        p->n_messages = n;
        app_error(p->app, &e);
        return;
    }
    transcript_free(was);
    branch_forget(p);
    p->fresh = false;
    p->focus = false;
    composer_clear(p->composer);
    pane_draft_restore(p);
    char s[96];
    snprintf(s, sizeof s, "resumed; %s goes to another conversation",
             keymap_way(p->app->keys, ACT_SESSIONS, CTX_COMPOSER));
    transcript_notice(p->transcript, R_DIM, s);
    pane_tell_cut(p);
    queue_restore(p);
    pane_sought(p, id);
    sessions_stale(p->app);
}

/* The pane that shows what a row stands for; 0: none. */
static size_t row_pane(const struct app *a, const struct stored_row *row)
{
    const struct stored *k = &a->sessions->stored[row->stored];
    int number = row->branch >= 0 ? k->branch[row->branch].number : 0;
    for (size_t i = 0; number == 0 && i < k->n_branches; i++) {
        number = k->branch[i].current ? k->branch[i].number : 0;
    }
    const size_t pane = stored_branch_pane(a, k->id, number);
    return pane > 0 || row->branch >= 0 ? pane : stored_pane(a, k->id);
}

static bool may_leave(struct app *a)
{
    const struct pane *p = a->cur;
    if (p->in_turn || p->n_queue > 0) {
        app_note(a, R_WARN,
                 p->in_turn ? "the model is at work; stop it first (%s)"
                            : "messages are queued; take them back first (%s)",
                 app_way(a, p->in_turn ? ACT_STOP_OR_QUIT : ACT_UNQUEUE));
    }
    return !p->in_turn && p->n_queue == 0;
}

/* Where the user wants to go. */
struct goal {
    int64_t id, tip; /* as pane_leave */
    size_t pane;     /* that shows it; 0: none */
    bool place;      /* to a place in it … */
    long before;     /* … in the message with so many before it; -1: not known */
    struct buf pattern;
};

/* Where a place that was found is: in a pane, else after which turn its conversation is gone on
 * with so that it is there. */
static int find_place(struct app *a, const struct found *at, struct goal *g, struct err *e)
{
    int before = 0;
    int rc = 0;
    g->place = true;
    found_pattern(&a->sessions->found.answer, at, &g->pattern);
    for (size_t i = 0; i < a->n_panes && rc == 0 && g->pane == 0; i++) {
        struct view_chat v;
        int64_t to = 0;
        chat_view(a->panes[i]->chat, &v);
        if (!a->panes[i]->fresh && v.conversation == g->id && v.turn > 0) {
            rc = conv_leads_to(a->conv, g->id, at->turn, v.turn, &to, &before, e);
            g->pane = rc == 0 && to == v.turn ? i + 1 : 0;
        }
    }
    if (rc == 0 && g->pane == 0) {
        rc = conv_leads_to(a->conv, g->id, at->turn, 0, &g->tip, &before, e);
    }
    g->before = before;
    return rc;
}

static void go_to_pane(struct app *a, const struct goal *g)
{
    struct pane *p = a->panes[g->pane - 1];
    if (p != a->cur) {
        panes_focus(a, p);
    } else if (!g->place) {
        app_note(a, R_TEXT, "that is the conversation on the screen");
    }
    if (g->place) {
        pane_seek(p, g->id, g->before, &g->pattern);
        pane_sought(p, g->id);
    }
}

static void leave_for(struct app *a, const struct goal *g, bool beside)
{
    sessions_close(a);
    if (!beside || panes_split(a, true)) {
        pane_seek(a->cur, g->place ? g->id : 0, g->before, &g->pattern);
        pane_leave(a->cur, g->id, g->tip);
    }
}

/* One that another process has open may be copied, which has to be asked for twice. */
static bool copy_instead(struct app *a, struct stored *k, const struct goal *g, bool beside)
{
    struct sessions *s = a->sessions;
    struct err e = ERR_INIT;
    struct goal copy = *g; /* its turns have other numbers */
    char who[40] = "";
    k->elsewhere = conv_elsewhere(a->conv, k->id);
    if (k->elsewhere == 0) {
        return false;
    }
    if (k->elsewhere > 0) {
        snprintf(who, sizeof who, " (process %d)", k->elsewhere);
    }
    if (s->copying != k->id) {
        s->copying = k->id;
        app_note(a, R_WARN,
                 "conversation %lld is open in another quasar%s: the same key again goes on with "
                 "a copy of it",
                 (long long)k->id, who);
    } else if (conv_fork(a->conv, k->id, &copy.id, &e) < 0) {
        app_error(a, &e);
    } else {
        copy.before = g->tip == 0 ? g->before : -1; /* the copy has one branch */
        copy.tip = 0;
        leave_for(a, &copy, beside);
    }
    return true;
}

/* row: a copy, what it is of stays. */
static void go_to_row(struct app *a, const struct stored_row *row, struct goal *g, bool beside)
{
    struct sessions *s = a->sessions;
    struct stored *k = &s->stored[row->stored];
    struct err e = ERR_INIT;
    g->id = k->id;
    if (row->found >= 0) {
        if (find_place(a, &s->found.answer.v[row->found], g, &e) < 0) {
            app_error(a, &e);
            return;
        }
    } else {
        g->tip = row->branch >= 0 ? k->branch[row->branch].tip : 0;
        g->pane = row_pane(a, row);
    }
    if (g->pane > 0) {
        sessions_close(a);
        go_to_pane(a, g);
    } else if (!beside && !may_leave(a)) {
        sessions_close(a);
    } else if (!copy_instead(a, k, g, beside)) {
        leave_for(a, g, beside);
    }
}

void sessions_go(struct app *a, bool beside)
{
    struct sessions *s = a->sessions;
    struct goal g = {.pattern = BUF_INIT};
    if (s->pick >= s->n_rows) {
        sessions_close(a);
        return;
    }
    const struct stored_row row = s->row[s->pick];
    go_to_row(a, &row, &g, beside);
    buf_free(&g.pattern);
}

void sessions_choose(struct app *a, int64_t id)
{
    const size_t shown = stored_pane(a, id);
    if (shown == 0) {
        pane_leave(a->cur, id, 0);
    } else if (a->panes[shown - 1] == a->cur) {
        app_note(a, R_TEXT, "that is the conversation on the screen");
    } else {
        panes_focus(a, a->panes[shown - 1]);
    }
}
