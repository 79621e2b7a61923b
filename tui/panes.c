/* Opening, closing and choosing among the panes. All line editors exist from the start, since
 * libedit may not be started once curses runs; a pane has one of them while it is there. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tui/app.h"

size_t panes_number(const struct app *a, const struct pane *p)
{
    size_t i = 0;
    while (i + 1 < a->n_panes && a->panes[i] != p) {
        i++;
    }
    return i + 1;
}

void panes_focus(struct app *a, struct pane *p)
{
    if (a->cur == p) {
        return;
    }
    if (a->overlay == OV_FIND) {
        find_close(a->cur);
    }
    a->overlay = OV_NONE;
    a->cur = p;
    a->dirty = true;
}

static struct composer *free_composer(const struct app *a)
{
    for (size_t i = 0; i < PANES_MAX; i++) {
        bool used = false;
        for (size_t k = 0; k < a->n_panes; k++) {
            used = used || a->panes[k]->composer == a->composers[i];
        }
        if (!used) {
            return a->composers[i];
        }
    }
    return NULL;
}

struct pane *panes_split(struct app *a, bool beside)
{
    const size_t at = panes_number(a, a->cur); /* of the new one, from 0 */
    if (!tiles_split(&a->tiles, at - 1, beside)) {
        app_note(a, R_WARN, "there are %d panes already; %s closes one", PANES_MAX,
                 app_way(a, ACT_PANE_CLOSE));
        return NULL;
    }
    struct pane *p = pane_create(a);
    p->fresh = true;
    p->composer = free_composer(a);
    composer_clear(p->composer);
    p->renamed = true;
    p->status = a->cur->status;
    p->status.phase = p->status.phase == P_LOADING ? P_LOADING : P_IDLE;
    memmove(a->panes + at + 1, a->panes + at, (a->n_panes - at) * sizeof(struct pane *));
    a->panes[at] = p;
    a->n_panes++;
    panes_focus(a, p);
    return p;
}

void panes_remove(struct pane *p)
{
    struct app *a = p->app;
    const size_t at = panes_number(a, p) - 1;
    if (a->n_panes < 2) {
        return;
    }
    if (a->cur == p) {
        panes_focus(a, a->panes[at > 0 ? at - 1 : 1]);
    }
    tiles_remove(&a->tiles, at);
    memmove(a->panes + at, a->panes + at + 1, (a->n_panes - at - 1) * sizeof(struct pane *));
    a->panes[--a->n_panes] = NULL;
    struct view_chat v;
    chat_view(p->chat, &v);
    if (!p->fresh && v.conversation > 0) { /* else it would have no place */
        pane_draft_keep(p);
        submit_keep_draft(p);
    } else {
        submit_keep_draft(p);
        pane_draft_keep(p);
    }
    pane_free(p);
    a->dirty = true;
}

/* Whether a pane can be closed now; says why not. */
static bool may_close(struct pane *p)
{
    struct app *a = p->app;
    const size_t n = panes_number(a, p);
    if (p->in_turn) {
        app_note(a, R_WARN, "the model is at work in pane %zu; stop it first (%s)", n,
                 app_way(a, ACT_STOP_OR_QUIT));
        return false;
    }
    if (p->n_queue > 0) {
        app_note(a, R_WARN, "messages are queued in pane %zu; take them back first (%s)", n,
                 app_way(a, ACT_UNQUEUE));
        return false;
    }
    return true;
}

void panes_close(struct app *a)
{
    if (a->n_panes < 2) {
        app_note(a, R_WARN, "this is the only pane; %s quits",
                 keymap_way(a->keys, ACT_EOF, CTX_COMPOSER));
    } else if (may_close(a->cur)) {
        pane_leave(a->cur, LEAVE_CLOSE, 0);
    }
}

void panes_only(struct app *a)
{
    struct pane *others[PANES_MAX];
    size_t n = 0;
    for (size_t i = 0; i < a->n_panes; i++) {
        if (a->panes[i] != a->cur) {
            others[n++] = a->panes[i];
        }
    }
    if (n == 0) {
        app_note(a, R_TEXT, "there is one pane only");
    }
    for (size_t i = 0; i < n; i++) {
        if (may_close(others[i])) {
            pane_leave(others[i], LEAVE_CLOSE, 0);
        }
    }
}

void panes_other(struct app *a)
{
    if (a->n_panes < 2) {
        app_note(a, R_TEXT, "there is one pane only; %s opens another beside it",
                 app_way(a, ACT_PANE_BESIDE));
        return;
    }
    panes_focus(a, a->panes[panes_number(a, a->cur) % a->n_panes]);
}
