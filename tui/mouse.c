/* The mouse, where the user asked for it: the wheel scrolls the pane under it, a click goes where
 * it points. What is where is what the last frame drew. */
#include "config.h"

#include <string.h>

#include "tui/app.h"
#include "tui/term.h"

#define WHEEL_ROWS 3
#define PROMPT     3 /* cells before the draft */

bool mouse_set(struct app *a, const char *what)
{
    const bool wheel = strcmp(what, "wheel") == 0, on = strcmp(what, "on") == 0;
    if (!wheel && !on && strcmp(what, "off") != 0) {
        return false;
    }
    a->clicks = on;
    term_mouse(wheel || on);
    return true;
}

static bool inside(const struct rect *r, int y, int x)
{
    return y >= r->y && y < r->y + r->rows && x >= r->x && x < r->x + r->cols;
}

static struct pane *pane_at(const struct app *a, int y, int x)
{
    for (size_t i = 0; i < a->n_panes; i++) {
        if (inside(&a->layout.pane[i], y, x)) {
            return a->panes[i];
        }
    }
    return NULL;
}

/* The list above the activity rule; false: the click is on none. */
static bool click_list(struct app *a, int y)
{
    const struct layout *l = &a->layout;
    const int up = (l->rule >= 0 ? l->rule : l->edge - 1) - 1 - y;
    if (up < 0 || (size_t)up >= a->list_rows) {
        return false;
    }
    if (palette_shown(a)) {
        return palette_click(a, (size_t)up);
    }
    if (a->overlay != OV_HISTORY && a->overlay != OV_QUEUE) {
        return false;
    }
    overlay_click(a, (size_t)up);
    return true;
}

static void click_pane(struct app *a, struct pane *p, int y)
{
    const struct rect *r = &a->layout.pane[panes_number(a, p) - 1];
    const int row = y - r->y - a->layout.titles;
    const bool again = p == a->cur && p->focus;
    if (p != a->cur) {
        panes_focus(a, p);
    }
    if (row >= 0 && transcript_click(p->transcript, row)) {
        p->focus = true;
    } else if (again) {
        dispatch_action(a, ACT_BACK);
    }
}

static void click(struct app *a, int y, int x)
{
    const struct layout *l = &a->layout;
    const bool whole = l->list.cols == 0 && a->overlay == OV_SESSIONS;
    struct pane *p = pane_at(a, y, x);
    if (l->tiny || a->overlay == OV_HELP || composer_pending(a->cur->composer)) {
        return;
    }
    if (click_list(a, y)) {
        return;
    }
    if (whole ? y >= l->body.y && y < l->edge : inside(&l->list, y, x)) {
        sessions_click(a, y - (whole ? l->body.y : l->list.y) - 1);
    } else if (y >= l->composer && y < l->composer + l->composer_rows) {
        if (a->cur->focus) {
            dispatch_action(a, ACT_BACK);
        }
        composer_point(a->cur->composer, y - l->composer + a->composer_top, x - PROMPT);
    } else if (p && !views_ctx(a) && a->overlay == OV_NONE) {
        click_pane(a, p, y);
    }
}

void mouse_key(struct app *a, const struct key *k)
{
    if (k->code == 64 || k->code == 65) {
        struct pane *p = pane_at(a, k->row, k->value);
        transcript_scroll((p ? p : a->cur)->transcript, k->code == 64 ? -WHEEL_ROWS : WHEEL_ROWS);
    } else if (k->code == 0 && a->clicks && !(k->mods & KM_SHIFT)) {
        click(a, k->row, k->value);
    }
}
