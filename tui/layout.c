/* The order in which things go when the screen gets small: side panel and list, hints, title and
 * status line, the rule, and below 40x10 everything but one line. */
#include "config.h"
#include "tui/layout.h"

#include <string.h>

#define STATUS_FROM 12
#define RULE_FROM   11
#define QUEUE_MOST  4
#define PANE_ROWS   4 /* the least that a pane is shown with */
#define PANE_COLS   24

static int at_most(int x, int most)
{
    return x < most ? x : most > 0 ? most : 0;
}

/* The rows below the panes, from the last one up; returns the first of them. */
static int place_rows(const struct layout_wants *w, struct layout *l)
{
    int bottom = w->rows;
    if (w->rows >= LAYOUT_HINTS_FROM) {
        l->hints = --bottom;
    }
    if (w->rows >= STATUS_FROM) {
        l->status = --bottom;
    }
    l->queued_rows = at_most(w->queued, w->rows >= LAYOUT_HINTS_FROM ? QUEUE_MOST : 1);
    if (l->queued_rows > 0) {
        bottom -= l->queued_rows;
        l->queued = bottom;
    }
    const int most = w->rows / 3 < 8 ? w->rows / 3 : 8;
    l->composer_rows = w->composer_rows < most ? w->composer_rows : most;
    l->composer_rows = l->composer_rows > 0 ? l->composer_rows : 1;
    bottom -= l->composer_rows;
    l->composer = bottom;
    l->merged = w->rows < RULE_FROM;
    if (!l->merged) {
        l->rule = --bottom;
    }
    return bottom;
}

static void place_panes(const struct layout_wants *w, struct layout *l)
{
    const size_t n = tiles_count(w->tiles);
    if (n > 1 && tiles_place(w->tiles, &l->body, PANE_ROWS, PANE_COLS, l->pane)) {
        l->titles = true;
        return;
    }
    memset(l->pane, 0, sizeof l->pane);
    l->alone = n > 1;
    l->titles = n > 1 && l->body.rows >= PANE_ROWS;
    l->pane[w->cur] = l->body;
}

void layout_make(const struct layout_wants *w, struct layout *out)
{
    struct layout *l = out;
    *l = (struct layout){.title = -1, .rule = -1, .queued = -1, .status = -1, .hints = -1};
    l->tiny = w->rows < LAYOUT_MIN_ROWS || w->cols < LAYOUT_MIN_COLS;
    if (l->tiny) {
        return;
    }
    const int edge = place_rows(w, l);
    l->edge = edge;
    const int top = w->rows >= STATUS_FROM ? 1 : 0;
    l->title = top ? 0 : -1;
    l->body = (struct rect){top, 0, edge - top, w->cols};
    if (w->rows >= LAYOUT_SIDE_ROWS && w->list && w->cols >= LAYOUT_LIST_FROM) {
        l->list = (struct rect){top, 0, edge - top, LAYOUT_LIST_COLS};
        l->body.x += LAYOUT_LIST_COLS;
        l->body.cols -= LAYOUT_LIST_COLS;
    }
    if (w->panel > 0 && w->cols >= LAYOUT_PANEL_FROM) {
        l->panel = (struct rect){top, w->cols - w->panel, edge - top, w->panel};
        l->body.cols -= w->panel;
    }
    place_panes(w, l);
}
