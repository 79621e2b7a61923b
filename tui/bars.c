/* Draws the rows of figures. They say which pane is meant as soon as there are several. */
#include "config.h"
#include "tui/bars.h"

#include <curses.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/text.h"

static int cells(const char *s)
{
    return text_cells(s, strlen(s));
}

/* Right-aligned, two blanks between; what does not fit is left out from the right. */
static void right_parts(const struct theme *th, int y, int x, int width, int left,
                        const char *const *part, const enum role *role, int n)
{
    int need = 0;
    for (; n > 0; n--) {
        need = 1;
        for (int i = 0; i < n; i++) {
            need += cells(part[i]) + (i ? 2 : 0);
        }
        if (left + 2 + need <= width) {
            break;
        }
    }
    int at = x + width - need;
    for (int i = 0; i < n; i++) {
        at += text_put(th, y, at, x + width - at, (uint16_t)role[i], part[i]) + 2;
    }
}

/* What the conversation is called, and its branch; returns the cells. */
static int put_name(const struct theme *th, const struct pane *p, int y, int x, int width,
                    uint16_t style)
{
    const char *name = p->name ? p->name : "new conversation";
    const bool branch = p->branch && p->branch[0];
    const int room = width - (branch && width >= 30 ? cells(p->branch) + 2 : 0);
    char shown[256];
    struct buf b = BUF_INIT;
    text_filter(name, strlen(name), th->ascii || !th->utf8, NULL, &b);
    snprintf(shown, sizeof shown, "%.*s",
             (int)text_fit(b.data ? b.data : "", b.len, room > 8 ? room : 8), b.data ? b.data : "");
    buf_free(&b);
    int used = text_put(th, y, x, width, style, shown);
    if (branch && used + 2 + cells(p->branch) <= width) {
        used += 2;
        used += text_put(th, y, x + used, width - used, R_DIM, p->branch);
    }
    return used;
}

void bars_title(const struct app *a, int y, int width)
{
    const struct theme *th = &a->theme;
    const struct pane *p = a->cur;
    char name[96];
    char backend[96];
    status_model(&p->status.model, name, backend);
    const char *const part[] = {name, backend, "F1 help"};
    const enum role role[] = {R_TEXT, R_DIM, R_DIM};
    text_blank(th, y, 0, width);
    int left = 1;
    if (a->n_panes > 1) {
        char s[48];
        snprintf(s, sizeof s, "quasar   %zu panes", a->n_panes);
        left += text_put(th, y, 1, width - 1, R_STRONG, s);
    } else if (!p->name) {
        left += text_put(th, y, 1, width - 1, R_STRONG, "quasar");
    } else {
        const int most = width - 4 - cells(name) - cells("F1 help");
        left += put_name(th, p, y, 1, most > 20 ? most : 20, R_STRONG);
    }
    right_parts(th, y, 0, width, left, part, role, 3);
}

void bars_pane(const struct app *a, size_t pane, const struct rect *r)
{
    const struct theme *th = &a->theme;
    const struct pane *p = a->panes[pane];
    const bool keys = p == a->cur;
    char s[24];
    char used[40];
    char share[24];
    char count[16];
    text_blank(th, r->y, r->x, r->cols);
    snprintf(s, sizeof s, "%s[%zu] ", keys ? theme_glyph(th, G_FOLDED) : " ", pane + 1);
    int x = text_put(th, r->y, r->x, r->cols, keys ? R_STRONG : R_DIM, s);
    const int most = r->cols - x - (r->cols >= 50 ? 16 : 0);
    x += put_name(th, p, r->y, r->x + x, most > 8 ? most : r->cols - x, keys ? R_STRONG : R_TEXT);
    if (!p->fresh && status_context(&p->status, used, share) >= 0) {
        status_count(p->status.chat.context_used, count);
        const char *const part[] = {count, share};
        const enum role role[] = {R_TEXT, R_DIM};
        right_parts(th, r->y, r->x, r->cols, x, part, role, 2);
    }
}

/* How the answer is stopped now; empty: it is not, or something else comes first. */
static void stop_hint(const struct app *a, char out[32])
{
    const struct pane *p = a->cur;
    out[0] = 0;
    if (!p->in_turn || p->status.phase == P_STOPPING || a->overlay != OV_NONE) {
        return;
    }
    const bool esc = !p->focus && !p->forking && !composer_is_vi(p->composer);
    const char *key = esc ? "Esc" : "^C";
    if (a->n_panes > 1) {
        snprintf(out, 32, "%s stops [%zu]", key, panes_number(a, p));
    } else {
        snprintf(out, 32, "%s stop", key);
    }
}

static uint16_t phase_style(const struct pane *p)
{
    return p->status.phase == P_IDLE ? R_DIM : R_MODEL;
}

/* What the rule says of a pane. */
static void activity(const struct app *a, size_t i, bool full, char out[112])
{
    const struct pane *p = a->panes[i];
    char act[96];
    char brief[48];
    char number[16] = "";
    if (a->n_panes > 1) {
        snprintf(number, sizeof number, "[%zu] ", i + 1);
    }
    if (full) {
        status_activity(&p->status, act);
    } else {
        status_activity_short(&p->status, brief);
        snprintf(act, sizeof act, "%s%s", brief, p->held ? ", held" : "");
    }
    snprintf(out, 112, "%s%s", number, act);
}

/* Whether all panes, or only the one that has the keys, fit into so many cells. */
static bool activities_fit(const struct app *a, bool full, bool all, int width)
{
    int need = 0;
    char label[112];
    for (size_t i = 0; i < a->n_panes; i++) {
        if (all || a->panes[i] == a->cur) {
            activity(a, i, full && a->panes[i] == a->cur, label);
            need += cells(label) + (need ? 3 : 0);
        }
    }
    return need <= width;
}

void bars_rule(const struct app *a, int y, int width)
{
    const struct theme *th = &a->theme;
    char label[112];
    char stop[32];
    text_repeat(th, y, 0, width, R_BORDER, theme_glyph(th, G_HLINE));
    stop_hint(a, stop);
    const int room = width - 4 - (stop[0] ? cells(stop) + 4 : 0);
    const bool all = activities_fit(a, false, true, room);
    const bool full = activities_fit(a, true, all, room);
    int x = 2;
    bool any = false;
    for (size_t i = 0; i < a->n_panes; i++) {
        const struct pane *p = a->panes[i];
        if (all || p == a->cur) {
            x += text_put(th, y, x, width - x, R_TEXT, any ? "   " : " ");
            activity(a, i, full && p == a->cur, label);
            x += text_put(th, y, x, width - x, phase_style(p), label);
            any = true;
        }
    }
    x += text_put(th, y, x, width - x, R_TEXT, " ");
    const bool small = LINES < LAYOUT_HINTS_FROM && a->cur->status.phase == P_IDLE;
    const char *right = stop[0] ? stop : small ? "F1 help" : "";
    if (right[0] && x + cells(right) + 4 <= width) {
        snprintf(label, sizeof label, " %s ", right);
        (void)text_put(th, y, width - cells(label) - 2, cells(label), R_TEXT, label);
    }
}

static void merged(const struct app *a, char out[96])
{
    char brief[48];
    char stop[32];
    stop_hint(a, stop);
    status_activity_short(&a->cur->status, brief);
    snprintf(out, 96, "  %s  %s ", brief, stop[0] ? stop : "F1 help");
}

int bars_merged_cells(const struct app *a, int width)
{
    char label[96];
    merged(a, label);
    return cells(label) > width / 2 + 8 ? 0 : cells(label);
}

void bars_merged(const struct app *a, int y, int width)
{
    char label[96];
    const int n = bars_merged_cells(a, width);
    merged(a, label);
    (void)text_put(&a->theme, y, width - n, n, phase_style(a->cur), label);
}

/* Draws a meter of n cells for a share of 0..1. */
static int meter(const struct theme *th, int y, int x, int n, double share, uint16_t style)
{
    int full = (int)lround(share * n);
    int at = x;
    at += text_put(th, y, at, 1, R_DIM, theme_glyph(th, G_METER_L));
    text_repeat(th, y, at, full, style, theme_glyph(th, G_FULL));
    text_repeat(th, y, at + full, n - full, R_METER_LOW, theme_glyph(th, G_EMPTY));
    at += n;
    at += text_put(th, y, at, 1, R_DIM, theme_glyph(th, G_METER_R));
    return at - x;
}

static uint16_t share_style(double share, uint16_t low)
{
    return share >= STATUS_FULL ? R_BAD : share >= STATUS_HIGH ? R_WARN : low;
}

/* The context of every pane; returns the cells. */
static int put_contexts(const struct app *a, int y, int x, int width)
{
    const struct theme *th = &a->theme;
    const int from = x;
    const bool many = a->n_panes > 1;
    x += text_put(th, y, x, width - x, R_TEXT, "ctx ");
    for (size_t i = 0; i < a->n_panes; i++) {
        const struct pane *p = a->panes[i];
        char used[40];
        char share[24];
        char label[48] = "";
        const double part = status_context(&p->status, used, share);
        if (many) {
            snprintf(label, sizeof label, "[%zu] ", i + 1);
        }
        if (x + cells(label) + cells(used) + cells(share) + 4 > width && p != a->cur) {
            continue;
        }
        x += i > 0 ? 3 : 0;
        x += text_put(th, y, x, width - x, p == a->cur ? R_TEXT : R_DIM, label);
        x += text_put(th, y, x, width - x, R_TEXT, used) + 1;
        if (part >= 0) {
            const int n = many ? 0 : width >= 100 ? 20 : width >= 60 ? 12 : 0;
            if (n) {
                x += meter(th, y, x, n, part, share_style(part, R_METER)) + 1;
            }
            x += text_put(th, y, x, width - x, share_style(part, R_TEXT), share);
        }
    }
    return x - from;
}

/* A part of the line; false: it does not fit, and nothing does that follows. */
static bool put_part(const struct theme *th, int y, int *x, int width, enum role role,
                     const char *part)
{
    if (*x + cells(part) + 3 > width) {
        return false;
    }
    *x += 3;
    *x += text_put(th, y, *x, width - *x, (uint16_t)role, part);
    return true;
}

void bars_line(const struct app *a, int y, int width)
{
    const struct theme *th = &a->theme;
    char mine[VIEWS_PARTS][PART_SIZE];
    char part[STATUS_PARTS][64];
    enum role role[VIEWS_PARTS];
    bool fits = true;
    text_blank(th, y, 0, width);
    int x = 1 + put_contexts(a, y, 1, width);
    const int n_mine = views_parts(a, width, role, mine);
    for (int i = 0; i < n_mine && fits; i++) {
        fits = !mine[i][0] || put_part(th, y, &x, width, role[i], mine[i]);
    }
    const int n = status_parts(&a->cur->status, width, part);
    for (int i = 0; i < n && fits; i++) {
        fits = put_part(th, y, &x, width, R_TEXT, part[i]);
    }
}

/* What Esc does now; empty: nothing. */
static const char *escape_hint(const struct app *a)
{
    const struct pane *p = a->cur;
    if (a->overlay != OV_NONE) {
        return "Esc closes";
    }
    if (p->focus) {
        return "Esc back";
    }
    if (composer_is_vi(p->composer)) {
        return p->in_turn ? "Esc command mode  ^C stop" : "Esc command mode";
    }
    if (p->forking) {
        return "Esc cancels";
    }
    if (p->in_turn) {
        return p->status.phase == P_STOPPING ? "" : "Esc stop";
    }
    if (composer_empty(p->composer) && !transcript_is_empty(p->transcript)) {
        return "Esc Esc earlier messages";
    }
    return "";
}

void bars_hints(const struct app *a, int y, int width)
{
    static const char *const idle[] = {
        "Enter send", "Alt-Enter new line", "/ commands", "^R history", "^S find",
        "^D quit",    "Tab transcript",     "^G editor",  NULL};
    static const char *const busy[] = {"Enter queue", "Tab transcript", "PgUp scroll", "F1 help",
                                       NULL};
    static const char *const focus[] = {"Up Down message", "/ find", "e edit", "r again",
                                        "b branch",        "y copy", "? keys", "z thought",
                                        "g G ends",        NULL};
    static const char *const many[] = {"^X o other pane", "^X 0 close", NULL};
    const struct pane *p = a->cur;
    const struct theme *th = &a->theme;
    const bool rest = p->status.phase == P_IDLE || p->status.phase == P_LOADING;
    const char *const *h = p->focus ? focus : rest ? idle : busy;
    const char *esc = escape_hint(a);
    if (a->overlay == OV_SESSIONS && width >= LAYOUT_LIST_FROM) {
        sessions_hints(a, y, 0, width);
        return;
    }
    text_blank(th, y, 0, width);
    int x = 1;
    if (esc[0] && !rest) {
        x += text_put(th, y, x, width - x, R_DIM, esc) + 2;
    }
    if (p->held && p->n_queue > 0 && !p->focus) {
        x += text_put(th, y, x, width - x, R_DIM, "Enter sends what is held") + 2;
    } else if (*h && x + cells(*h) <= width) {
        x += text_put(th, y, x, width - x, R_DIM, *h++) + 2;
    }
    if (esc[0] && rest && x + cells(esc) <= width) {
        x += text_put(th, y, x, width - x, R_DIM, esc) + 2;
    }
    for (int i = 0; a->n_panes > 1 && many[i] && x + cells(many[i]) <= width; i++) {
        x += text_put(th, y, x, width - x, R_DIM, many[i]) + 2;
    }
    for (; *h && x + cells(*h) <= width; h++) {
        x += text_put(th, y, x, width - x, R_DIM, *h) + 2;
    }
}

void bars_welcome(const struct app *a, const struct rect *r)
{
    const struct theme *th = &a->theme;
    const struct view_model *m = &a->cur->status.model;
    char name[96];
    char backend[96];
    char facts[256];
    status_model(m, name, backend);
    if (m->ready) {
        char ctx[16];
        status_count(m->ctx, ctx);
        snprintf(facts, sizeof facts, "%s, on %s, context %s tokens", name, backend, ctx);
    } else {
        snprintf(facts, sizeof facts, "loading the model; you can type already");
    }
    const struct {
        uint16_t style;
        const char *key, *text;
    } rows[] = {
        {R_STRONG, NULL, "A conversation with a language model on this machine."},
        {R_TEXT, NULL, facts},
        {R_TEXT, NULL, ""},
        {R_TEXT, "Enter", "send the message"},
        {R_TEXT, "Alt-Enter", "new line (or a backslash, then Enter)"},
        {R_TEXT, "Esc", "stop the answer"},
        {R_TEXT, "/", "commands: /attach /edit /find /new /set ..."},
        {R_TEXT, "F1", "every key"},
        {R_TEXT, "F4", "go on with an earlier conversation"},
        {R_TEXT, "^X 3", "another conversation beside this one"},
        {R_TEXT, "^D", "quit"},
    };
    int n = (int)(sizeof rows / sizeof *rows);
    int top = r->rows > n + 2 ? 1 : 0;
    for (int i = 0; i < r->rows; i++) {
        const int y = r->y + i;
        text_blank(th, y, r->x, r->cols);
        int k = i - top;
        if (k < 0 || k >= n) {
            continue;
        }
        if (rows[k].key) {
            (void)text_put(th, y, r->x + 3, r->cols - 3, R_USER, rows[k].key);
            (void)text_put(th, y, r->x + 14, r->cols - 14, rows[k].style, rows[k].text);
        } else {
            (void)text_put(th, y, r->x + 3, r->cols - 3, rows[k].style, rows[k].text);
        }
    }
}
