/* The layout of the screen and its frames. Every region writes all of its
 * cells; curses finds what changed and sends only that. What gives way on a
 * small screen: hints, status line, title, and below 40x10 everything but one
 * line that says so. */
#include "config.h"

#include <curses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/app.h"
#include "tui/term.h"

#define MIN_ROWS   10
#define MIN_COLS   40
#define LIST_MAX   14
#define PANEL_FROM 110 /* columns */

struct layout {
    int title, body, body_rows, rule, composer, composer_rows, queued, status, hints;
};

/* Row numbers, -1 for what is left out. */
static struct layout layout_of(const struct app *a, int composer_rows)
{
    struct layout l = {-1, 0, 0, -1, 0, 1, -1, -1, -1};
    int bottom = LINES;
    if (LINES >= 20) {
        l.hints = --bottom;
    }
    if (LINES >= 12) {
        l.status = --bottom;
    }
    if (a->cur->n_queue > 0) {
        l.queued = --bottom;
    }
    int most = LINES / 3 < 8 ? LINES / 3 : 8;
    l.composer_rows = composer_rows < most ? composer_rows : most;
    bottom -= l.composer_rows;
    l.composer = bottom;
    l.rule = --bottom;
    if (LINES >= 12) {
        l.title = 0;
        l.body = 1;
    }
    l.body_rows = bottom - l.body;
    return l;
}

int screen_page(const struct app *a)
{
    struct layout l = layout_of(a, 1);
    return l.body_rows > 2 ? l.body_rows - 1 : 1;
}

static void draw_composer(struct app *a, const struct layout *l, const struct text_rows *rows,
                          int cur_row, int *cy)
{
    int top = 0;
    if (cur_row >= l->composer_rows) {
        top = cur_row - l->composer_rows + 1;
    }
    for (int i = 0; i < l->composer_rows; i++) {
        int y = l->composer + i;
        (void)text_put(&a->theme, y, 0, 3, a->cur->focus ? R_DIM : R_USER,
                       top + i == 0 ? " > " : "   ");
        text_draw_row(&a->theme, y, 3, COLS - 3, rows, (size_t)(top + i), 0);
    }
    *cy = l->composer + cur_row - top;
}

/* One line of a message: its first line, in quotes. */
static void draw_queued(const struct app *a, int y)
{
    const struct message *m = &a->cur->queue[a->cur->n_queue - 1];
    const char *hint = a->cur->held ? "Enter sends  Alt-Up edits" : "Alt-Up edits it";
    struct buf b = BUF_INIT;
    const char *nl = memchr(m->shown.data, '\n', m->shown.len);
    size_t n = nl ? (size_t)(nl - m->shown.data) : m->shown.len;
    buf_printf(&b, " %s %zu: \"", a->cur->held ? "held" : "queued", a->cur->n_queue);
    struct buf line = BUF_INIT;
    text_filter(m->shown.data, n, a->theme.ascii || !a->theme.utf8, NULL, &line);
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
        palette_draw(a, l->body, l->rule);
        return;
    }
    const char *entry[LIST_MAX];
    const char *help[LIST_MAX];
    int most = l->body_rows - 1 < LIST_MAX ? l->body_rows - 1 : LIST_MAX;
    size_t n = most > 0 ? overlay_list(a, entry, help, (size_t)most) : 0;
    const bool asks = a->overlay == OV_HISTORY || a->overlay == OV_SESSIONS;
    if (n == 0 && !asks) {
        return;
    }
    int y = l->rule - (int)n;
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
        snprintf(label, sizeof label, " %s: %.100s ",
                 a->overlay == OV_HISTORY ? "history" : "conversations",
                 a->query.data ? a->query.data : "");
        text_blank(&a->theme, l->rule, 0, COLS);
        int x = text_put(&a->theme, l->rule, 0, COLS, R_STRONG, label);
        if (n == 0) {
            (void)text_put(&a->theme, l->rule, x + 1, COLS, R_WARN, "nothing found");
        } else if (x + 40 < COLS) {
            (void)text_put(&a->theme, l->rule, x + 1, COLS, R_DIM,
                           "Up Down choose  Enter takes  Esc closes");
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
    int last = (int)a->help.n_rows - (l->body_rows - 1);
    last = last > 0 ? last : 0;
    a->help_top = a->help_top > last ? last : a->help_top < 0 ? 0 : a->help_top;
    for (int i = 0; i < l->body_rows - 1; i++) {
        text_draw_row(&a->theme, l->body + i, 0, COLS, &a->help, (size_t)(a->help_top + i), 0);
    }
    text_blank(&a->theme, l->rule - 1, 0, COLS);
    (void)text_put(&a->theme, l->rule - 1, 1, COLS - 1, R_STRONG,
                   last > 0 ? "Up Down scroll, Esc closes" : "Esc closes");
}

static void draw_panel(struct app *a, const struct layout *l, int x, int width)
{
    const bool side = x > 0;
    text_rows_truncate(&a->panel, 0);
    panel_layout(&a->gauges, &a->cur->status.chat, &a->cur->status.model, &a->theme, width - side,
                 &a->panel);
    for (int i = 0; i < l->body_rows; i++) {
        if (side) {
            (void)text_put(&a->theme, l->body + i, x, 1, R_BORDER, theme_glyph(&a->theme, G_VLINE));
        }
        text_draw_row(&a->theme, l->body + i, x + side, width - side, &a->panel, (size_t)i, 0);
    }
    if (!side) {
        text_blank(&a->theme, l->rule - 1, 0, COLS);
        (void)text_put(&a->theme, l->rule - 1, 1, COLS - 1, R_STRONG, "Esc closes");
    }
}

void screen_panel(struct app *a)
{
    if (COLS >= PANEL_FROM) {
        a->no_panel = !a->no_panel;
        a->overlay = a->overlay == OV_STATS ? OV_NONE : a->overlay;
    } else {
        a->overlay = a->overlay == OV_STATS ? OV_NONE : OV_STATS;
    }
}

static void draw_too_small(const struct app *a)
{
    char s[64];
    int n = snprintf(s, sizeof s, "%dx%d needed, now %dx%d", MIN_COLS, MIN_ROWS, COLS, LINES);
    if (n > COLS) {
        snprintf(s, sizeof s, "%dx%d!", MIN_COLS, MIN_ROWS);
    }
    for (int y = 0; y < LINES; y++) {
        text_blank(&a->theme, y, 0, COLS);
    }
    (void)text_put(&a->theme, 0, 0, COLS, R_TEXT, s);
    move(0, 0);
}

static void draw_note(const struct app *a, const struct layout *l)
{
    int last = l->hints >= 0 ? l->hints : l->status >= 0 ? l->status : l->rule;
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
    if (from < l->composer + l->composer_rows && from < last) {
        from = l->rule - n > l->body ? l->rule - n : l->body;
    }
    for (int i = 0; i < n && from + i < LINES; i++) {
        text_draw_row(&a->theme, from + i, 0, COLS, &rows, (size_t)i, 0);
    }
    text_rows_free(&rows);
    text_flow_free(&f);
}

static void draw_all(struct app *a)
{
    if (LINES < MIN_ROWS || COLS < MIN_COLS) {
        draw_too_small(a);
        return;
    }
    int cur_row = 0;
    int cur_col = 0;
    const struct text_rows *rows =
        composer_layout(a->cur->composer, &a->theme, COLS - 4, &cur_row, &cur_col);
    struct layout l = layout_of(a, (int)(rows->n_rows < 100 ? rows->n_rows : 100));
    int cy = l.composer;
    const bool panel = COLS >= PANEL_FROM && !a->no_panel && a->overlay != OV_HELP;
    const int body_cols = panel ? COLS - PANEL_WIDTH : COLS;
    a->cur->status.focus_transcript = a->cur->focus;
    if (l.title >= 0) {
        status_draw_title(&a->cur->status, &a->theme, l.title, COLS);
    }
    if (a->overlay == OV_HELP) {
        draw_help(a, &l);
    } else if (a->overlay == OV_STATS && !panel) {
        draw_panel(a, &l, 0, COLS);
    } else if (transcript_is_empty(a->cur->transcript)) {
        status_draw_welcome(&a->cur->status, &a->theme, l.body, l.body_rows, body_cols);
        a->cur->below = 0;
    } else {
        a->cur->below =
            transcript_draw(a->cur->transcript, &a->theme, l.body, l.body_rows, body_cols);
        if (a->cur->below > 0) {
            char s[64];
            snprintf(s, sizeof s, " %s %d more row%s, ^End follows ",
                     theme_glyph(&a->theme, G_DOWN), a->cur->below, a->cur->below == 1 ? "" : "s");
            int w = text_cells(s, strlen(s));
            (void)text_put(&a->theme, l.rule - 1, body_cols - w, w, R_STRONG | STYLE_REVERSE, s);
        }
    }
    if (panel) {
        draw_panel(a, &l, body_cols, PANEL_WIDTH);
    }
    status_draw_rule(&a->cur->status, &a->theme, l.rule, COLS);
    draw_composer(a, &l, rows, cur_row, &cy);
    if (l.queued >= 0) {
        draw_queued(a, l.queued);
    }
    if (l.status >= 0) {
        status_draw_line(&a->cur->status, &a->theme, l.status, COLS);
    }
    if (l.hints >= 0) {
        status_draw_hints(&a->cur->status, &a->theme, l.hints, COLS);
    }
    if (a->overlay != OV_HELP) {
        draw_list(a, &l);
    }
    if (a->cur->forking) {
        branch_draw(a, l.rule);
    }
    if (a->overlay == OV_FIND || a->cur->search) {
        find_draw(a, l.rule);
    }
    if (a->note.len) {
        draw_note(a, &l);
    }
    int cx = 3 + cur_col;
    move(cy, cx < COLS ? cx : COLS - 1);
    curs_set(a->cur->focus || a->overlay == OV_HELP ? 0 : 1);
}

void screen_draw(struct app *a)
{
    if (a->redraw) {
        clearok(curscr, TRUE);
        a->redraw = false;
    }
    conv_view_model(a->conv, &a->cur->status.model);
    if (a->cur->fresh) {
        memset(&a->cur->status.chat, 0, sizeof a->cur->status.chat);
    } else {
        chat_view(a->cur->chat, &a->cur->status.chat);
    }
    turn_gauges(a, false);
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
