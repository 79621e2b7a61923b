/* The frames. Every region that the layout gives writes all of its cells; curses
 * finds what changed and sends only that. */
#include "config.h"

#include <curses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/app.h"
#include "tui/bars.h"
#include "tui/layout.h"
#include "tui/term.h"

#define LIST_MAX 14

static bool side_panel(const struct app *a)
{
    return COLS >= LAYOUT_PANEL_FROM && !a->no_panel && a->overlay != OV_HELP && !views_ctx(a);
}

static void make_layout(const struct app *a, int composer_rows, struct layout *l)
{
    const struct pane *p = a->cur;
    const struct layout_wants w = {
        .rows = LINES,
        .cols = COLS,
        .tiles = &a->tiles,
        .cur = panes_number(a, p) - 1,
        .composer_rows = composer_rows,
        .queued = (int)(p->n_queue < 100 ? p->n_queue : 100),
        .panel = side_panel(a) ? PANEL_WIDTH : 0,
        .list = a->sessions && !a->no_list && a->overlay != OV_HELP,
    };
    layout_make(&w, l);
}

/* The row that says what is typed for, over the activity rule. */
static int bar_row(const struct layout *l)
{
    return l->rule >= 0 ? l->rule : l->edge - 1;
}

int screen_page(const struct app *a)
{
    struct layout l;
    make_layout(a, 1, &l);
    const int rows = l.pane[panes_number(a, a->cur) - 1].rows - l.titles;
    return rows > 2 ? rows - 1 : 1;
}

static void draw_composer(struct app *a, const struct layout *l, const struct text_rows *rows,
                          int cur_row, int *cy)
{
    int top = 0;
    a->composer_top = 0;
    if (cur_row >= l->composer_rows) {
        top = cur_row - l->composer_rows + 1;
        a->composer_top = top;
    }
    for (int i = 0; i < l->composer_rows; i++) {
        int y = l->composer + i;
        (void)text_put(&a->theme, y, 0, 3, a->cur->focus ? R_DIM : R_USER,
                       top + i == 0 ? " > " : "   ");
        text_draw_row(&a->theme, y, 3, COLS - 3, rows, (size_t)(top + i), 0);
    }
    *cy = l->composer + cur_row - top;
}

/* One line of a message: its first line, in quotes. The last row tells what can be done. */
static void draw_queued(const struct app *a, const struct layout *l, int row)
{
    const struct pane *p = a->cur;
    const size_t n = p->n_queue;
    const size_t i = n - (size_t)l->queued_rows + (size_t)row; /* the latest are shown */
    const struct message *m = &p->queue[i];
    const int y = l->queued + row;
    const bool last = row + 1 == l->queued_rows;
    const struct key_hint sends = {ACT_SEND, ACT_NONE, "sends"};
    const struct key_hint edits = {ACT_UNQUEUE, ACT_NONE, p->held ? "edits" : "edits it"};
    const struct key_hint all = {ACT_QUEUE, ACT_NONE, "all"};
    const struct key_hint two[2] = {p->held ? sends : edits, p->held ? edits : all};
    char hint[160] = "";
    if (last) {
        keymap_hints(a->keys, two, p->held || n > 1 ? 2 : 1, CTX_COMPOSER, hint, sizeof hint);
    }
    struct buf b = BUF_INIT;
    const char *nl = memchr(m->shown.data, '\n', m->shown.len);
    size_t len = nl ? (size_t)(nl - m->shown.data) : m->shown.len;
    buf_printf(&b, " %s %zu: \"", p->held ? "held" : "queued", i + 1);
    struct buf line = BUF_INIT;
    text_filter(m->shown.data, len, a->theme.ascii || !a->theme.utf8, NULL, &line);
    int room = COLS - (int)b.len - (int)strlen(hint) - 6;
    size_t fit = text_fit(line.data ? line.data : "", line.len, room > 8 ? room : 8);
    buf_add(&b, line.data ? line.data : "", fit);
    buf_adds(&b, fit < line.len || nl ? "...\"" : "\"");
    text_blank(&a->theme, y, 0, COLS);
    (void)text_put(&a->theme, y, 0, COLS, R_WARN, b.data);
    if (text_cells(b.data, b.len) + (int)strlen(hint) + 3 <= COLS) {
        (void)text_put(&a->theme, y, COLS - (int)strlen(hint) - 1, COLS, R_DIM, hint);
    }
    buf_free(&b);
    buf_free(&line);
}

/* The list above the composer, over the transcript's last rows. */
static void draw_list(struct app *a, const struct layout *l)
{
    if (palette_shown(a)) {
        palette_draw(a, l->body.y, bar_row(l));
        return;
    }
    const char *entry[LIST_MAX];
    const char *help[LIST_MAX];
    const int bar = bar_row(l);
    int most = l->body.rows - 1 < LIST_MAX ? l->body.rows - 1 : LIST_MAX;
    size_t n = most > 0 ? overlay_list(a, entry, help, (size_t)most) : 0;
    a->list_rows = n;
    const bool queue = a->overlay == OV_QUEUE;
    const bool asks = a->overlay == OV_HISTORY || queue;
    if (n == 0 && !asks) {
        return;
    }
    int y = bar - (int)n;
    for (size_t i = 0; i < n; i++) {
        struct buf b = BUF_INIT;
        const char *nl = strchr(entry[i], '\n');
        size_t len = nl ? (size_t)(nl - entry[i]) : strlen(entry[i]);
        text_filter(entry[i], len, a->theme.ascii || !a->theme.utf8, NULL, &b);
        size_t fit = text_fit(b.data ? b.data : "", b.len, COLS - 6);
        buf_truncate(&b, fit);
        bool picked = asks && n - 1 - i == a->pick;
        text_blank(&a->theme, y, 0, COLS);
        (void)text_put(&a->theme, y, 1, 2, R_USER, picked ? ">" : " ");
        int used =
            text_put(&a->theme, y, 3, COLS - 3, picked ? R_SELECT : R_TEXT, b.data ? b.data : "");
        if (nl) {
            used += text_put(&a->theme, y, 3 + used, COLS - 3 - used, R_DIM, " ...");
        }
        if (help[i]) {
            int x = used + 5 > 28 ? used + 5 : 28;
            if (x + 8 < COLS) {
                (void)text_put(&a->theme, y, x, COLS - x, R_DIM, help[i]);
            }
        }
        buf_free(&b);
        y++;
    }
    if (asks) {
        char label[160];
        static const struct key_hint queued[] = {{ACT_CHOOSE, ACT_NONE, "edits"},
                                                 {ACT_DROP, ACT_NONE, "drops"},
                                                 {ACT_MOVE_UP, ACT_MOVE_DOWN, "move"},
                                                 {ACT_BACK, ACT_NONE, "closes"}};
        char hint[200];
        keymap_hints(a->keys, queue ? queued : overlay_hints, queue ? 4 : 3,
                     queue ? CTX_QUEUE : CTX_LIST, hint, sizeof hint);
        snprintf(label, sizeof label, " %s%.100s ",
                 queue ? "queue" : "history: ", queue || !a->query.data ? "" : a->query.data);
        text_blank(&a->theme, bar, 0, COLS);
        int x = text_put(&a->theme, bar, 0, COLS, R_STRONG, label);
        if (n == 0) {
            (void)text_put(&a->theme, bar, x + 1, COLS, R_WARN,
                           queue ? "all were sent" : "nothing found");
        } else if (x + 1 + text_cells(hint, strlen(hint)) < COLS) {
            (void)text_put(&a->theme, bar, x + 1, COLS, R_DIM, hint);
        }
    }
}

static void draw_help(struct app *a, const struct layout *l)
{
    if (a->help_width != COLS) {
        struct buf text = BUF_INIT;
        struct text_flow f = {0};
        struct text_prefix pre = {0};
        keymap_help(a->keys, a->help_ctx, &text);
        text_prefix_push(&pre, R_TEXT, " ");
        text_flow_add(&f, R_TEXT, text.data, text.len, false);
        text_rows_truncate(&a->help, 0);
        struct text_wrap w = {.width = COLS, .mode = WRAP_WORD, .first = &pre, .next = &pre};
        text_wrap(&a->help, &f, &w);
        text_flow_free(&f);
        buf_free(&text);
        a->help_width = COLS;
    }
    int last = (int)a->help.n_rows - (l->body.rows - 1);
    last = last > 0 ? last : 0;
    a->help_top = a->help_top > last ? last : a->help_top < 0 ? 0 : a->help_top;
    for (int i = 0; i < l->body.rows - 1; i++) {
        text_draw_row(&a->theme, l->body.y + i, 0, COLS, &a->help, (size_t)(a->help_top + i), 0);
    }
    static const struct key_hint keys[] = {{ACT_PREV_BLOCK, ACT_NEXT_BLOCK, "scroll"},
                                           {ACT_BACK, ACT_NONE, "closes"}};
    char hint[160];
    keymap_hints(a->keys, last > 0 ? keys : keys + 1, last > 0 ? 2 : 1, CTX_HELP, hint,
                 sizeof hint);
    text_blank(&a->theme, l->edge - 1, 0, COLS);
    (void)text_put(&a->theme, l->edge - 1, 1, COLS - 1, R_STRONG, hint);
}

static void draw_panel(struct app *a, const struct rect *r, bool side)
{
    const struct theme *th = &a->theme;
    text_rows_truncate(&a->panel, 0);
    const struct panel p = views_panel(a);
    panel_layout(&p, th, r->cols - side, r->rows - !side, &a->panel);
    for (int i = 0; i < r->rows; i++) {
        if (side) {
            (void)text_put(th, r->y + i, r->x, 1, R_BORDER, theme_glyph(th, G_VLINE));
        }
        text_draw_row(th, r->y + i, r->x + side, r->cols - side, &a->panel, (size_t)i, 0);
    }
    if (!side) {
        const bool focus = a->cur->focus;
        const struct key_hint h = {focus ? ACT_BACK : ACT_ESCAPE, ACT_NONE, "closes"};
        char hint[KEY_HINT];
        keymap_hint(a->keys, &h, focus ? CTX_TRANSCRIPT : CTX_COMPOSER, hint);
        text_blank(th, r->y + r->rows - 1, 0, COLS);
        (void)text_put(th, r->y + r->rows - 1, 1, COLS - 1, R_STRONG, hint);
    }
}

void screen_panel(struct app *a)
{
    const bool wide = COLS >= LAYOUT_PANEL_FROM;
    const bool shown = views_cycle(a, wide ? !a->no_panel : a->overlay == OV_STATS);
    a->no_panel = wide && !shown;
    a->overlay = !wide && shown && !views_ctx(a) ? OV_STATS : OV_NONE;
}

static void draw_too_small(const struct app *a)
{
    char s[64];
    int n = snprintf(s, sizeof s, "%dx%d needed, now %dx%d", LAYOUT_MIN_COLS, LAYOUT_MIN_ROWS, COLS,
                     LINES);
    if (n > COLS) {
        snprintf(s, sizeof s, "%dx%d!", LAYOUT_MIN_COLS, LAYOUT_MIN_ROWS);
    }
    for (int y = 0; y < LINES; y++) {
        text_blank(&a->theme, y, 0, COLS);
    }
    if (COLS > 1) { /* not even a letter can stand in the last cell of all everywhere */
        (void)text_put(&a->theme, 0, 0, COLS, R_TEXT, s);
    }
    move(0, 0);
}

static void draw_note(const struct app *a, const struct layout *l)
{
    int last = l->hints >= 0 ? l->hints : l->status >= 0 ? l->status : bar_row(l);
    struct text_flow f = {0};
    struct text_rows rows = {0};
    struct text_prefix pre = {0};
    text_prefix_push(&pre, R_TEXT, " ");
    text_flow_add(&f, (uint16_t)a->note_role, a->note.data, a->note.len,
                  a->theme.ascii || !a->theme.utf8);
    struct text_wrap w = {.width = COLS - 1, .mode = WRAP_WORD, .first = &pre, .next = &pre};
    text_wrap(&rows, &f, &w);
    /* a long one covers what stands below the composer, or the transcript's end */
    int n = (int)rows.n_rows;
    int from = last - n + 1;
    const bool covers = from <= l->status && n > 1; /* the figures stay in sight */
    if (covers || (from < l->composer + l->composer_rows && from < last)) {
        const int bar = bar_row(l);
        from = bar - n > l->body.y ? bar - n : l->body.y;
    }
    for (int i = 0; i < n && from + i < LINES; i++) {
        text_draw_row(&a->theme, from + i, 0, COLS, &rows, (size_t)i, 0);
    }
    text_rows_free(&rows);
    text_flow_free(&f);
}

/* What follows below the view of a pane. */
static void draw_below(const struct app *a, const struct pane *p, const struct rect *r)
{
    char s[160];
    const int fresh = transcript_fresh_rows(p->transcript);
    const int n = fresh > 0 ? fresh : p->below;
    char follows[KEY_HINT];
    const struct key_hint h = {ACT_BOTTOM, ACT_NONE, "follows"};
    keymap_hint(a->keys, &h, p->focus ? CTX_TRANSCRIPT : CTX_COMPOSER, follows);
    const char *const down = theme_glyph(&a->theme, G_DOWN), *const comma = follows[0] ? ", " : "";
    snprintf(s, sizeof s, " %s %d %s row%s%s%s%s ", down, n, fresh > 0 ? "new" : "more",
             n == 1 ? "" : "s", fresh > 0 ? " below" : "", comma, follows);
    if (n < 0) {
        snprintf(s, sizeof s, " %s more below%s%s ", down, comma, follows);
    }
    int w = text_cells(s, strlen(s));
    if (w > r->cols && n > 0) {
        snprintf(s, sizeof s, " %s %d ", theme_glyph(&a->theme, G_DOWN), n);
        w = text_cells(s, strlen(s));
    }
    w = w < r->cols ? w : r->cols;
    (void)text_put(&a->theme, r->y + r->rows - 1, r->x + r->cols - w, w, R_STRONG | STYLE_REVERSE,
                   s);
}

static void draw_pane(struct app *a, const struct layout *l, size_t i)
{
    struct pane *p = a->panes[i];
    struct rect r = l->pane[i];
    if (r.x > l->body.x) {
        for (int y = r.y; y < r.y + r.rows; y++) {
            (void)text_put(&a->theme, y, r.x - 1, 1, R_BORDER, theme_glyph(&a->theme, G_VLINE));
        }
    }
    if (l->titles) {
        bars_pane(a, i, &r);
        r.y++;
        r.rows--;
    }
    if (transcript_is_empty(p->transcript)) {
        bars_welcome(a, &r);
        p->below = 0;
        return;
    }
    p->below = transcript_draw(p->transcript, &a->theme, r.y, r.x, r.rows, r.cols);
    if (p->below != 0) {
        draw_below(a, p, &r);
    }
}

static void draw_body(struct app *a, const struct layout *l)
{
    const struct rect whole = {l->body.y, 0, l->body.rows, COLS};
    if (a->overlay == OV_HELP) {
        draw_help(a, l);
        return;
    }
    if (views_ctx(a) && a->overlay != OV_SESSIONS) {
        views_draw(a, whole.y, whole.rows, whole.cols);
        return;
    }
    if (a->overlay == OV_STATS && l->panel.cols == 0) {
        draw_panel(a, &whole, false);
        return;
    }
    if (a->overlay == OV_SESSIONS && l->list.cols == 0) {
        sessions_draw(a, &whole, false);
        return;
    }
    if (l->list.cols > 0) {
        sessions_draw(a, &l->list, true);
    }
    for (size_t i = 0; i < a->n_panes; i++) {
        if (l->pane[i].rows > 0) {
            draw_pane(a, l, i);
        }
    }
    if (l->panel.cols > 0) {
        draw_panel(a, &l->panel, true);
    }
}

/* What stands over other things. */
static void draw_over(struct app *a, const struct layout *l)
{
    const int bar = bar_row(l);
    if (a->overlay != OV_HELP) {
        draw_list(a, l);
    }
    if (a->cur->forking) {
        branch_draw(a, bar);
    }
    if (a->overlay == OV_FIND || a->cur->search) {
        find_draw(a, bar);
    }
    if (a->note.len) {
        draw_note(a, l);
    }
}

static void draw_all(struct app *a)
{
    int cur_row = 0;
    int cur_col = 0;
    struct layout l;
    make_layout(a, 1, &l);
    if (l.tiny) {
        a->layout = l;
        draw_too_small(a);
        return;
    }
    const int edge = l.merged ? bars_merged_cells(a, COLS) : 0;
    const struct text_rows *rows =
        composer_layout(a->cur->composer, &a->theme, COLS - 4 - edge, &cur_row, &cur_col);
    make_layout(a, (int)(rows->n_rows < 100 ? rows->n_rows : 100), &l);
    int cy = l.composer;
    a->layout = l;
    if (l.title >= 0) {
        bars_title(a, l.title, COLS);
    }
    draw_body(a, &l);
    if (l.rule >= 0) {
        bars_rule(a, l.rule, COLS);
    }
    draw_composer(a, &l, rows, cur_row, &cy);
    if (l.merged) {
        bars_merged(a, l.composer, COLS);
    }
    for (int i = 0; i < l.queued_rows; i++) {
        draw_queued(a, &l, i);
    }
    if (l.status >= 0) {
        bars_line(a, l.status, COLS);
    }
    if (l.hints >= 0) {
        bars_hints(a, l.hints, COLS);
    }
    draw_over(a, &l);
    int cx = 3 + cur_col;
    move(cy, cx < COLS ? cx : COLS - 1);
    const bool covered = a->overlay == OV_HELP || a->overlay == OV_SESSIONS || views_ctx(a);
    curs_set(a->cur->focus || covered ? 0 : 1);
}

void screen_draw(struct app *a)
{
    if (a->redraw) {
        clearok(curscr, TRUE);
        a->redraw = false;
    }
    for (size_t i = 0; i < a->n_panes; i++) {
        struct pane *p = a->panes[i];
        conv_view_model(a->conv, &p->status.model);
        if (p->fresh) {
            memset(&p->status.chat, 0, sizeof p->status.chat);
        } else {
            chat_view(p->chat, &p->status.chat);
            turn_wait(p);
        }
    }
    views_sample(a);
    double tok_round = 0, accept = 0;
    views_pace(a, &tok_round, &accept);
    for (size_t i = 0; i < a->n_panes; i++) {
        a->panes[i]->status.tok_round = a->panes[i]->in_turn ? tok_round : 0;
        a->panes[i]->status.accept = a->panes[i]->in_turn ? accept : 0;
    }
    draw_all(a);
    wnoutrefresh(stdscr);
    int64_t took = term_update();
    /* a slow link gets fewer frames, down to four a second */
    if (took > 50000000) {
        a->frame_gap = a->frame_gap * 2 < 250000000 ? a->frame_gap * 2 : 250000000;
        a->quick_frames = 0;
    } else if (++a->quick_frames >= 3) {
        a->frame_gap = 33000000;
    }
    a->dirty = false;
    a->urgent = false;
}
