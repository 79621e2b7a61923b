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

#define BRANCH_LEAST 10 /* cells; fewer say nothing */

/* What the conversation is called, and its branch; returns the cells. */
static int put_name(const struct theme *th, const struct pane *p, int y, int x, int width,
                    uint16_t style)
{
    const char *name = p->name ? p->name : "new conversation";
    const char *branch = p->branch ? p->branch : "";
    struct buf b = BUF_INIT, n = BUF_INIT;
    text_filter(name, strcspn(name, "\n"), th->ascii || !th->utf8, NULL, &n);
    text_filter(branch, strlen(branch), th->ascii || !th->utf8, NULL, &b);
    const int named = n.len ? text_cells(n.data, n.len) : 0;
    const int whole = b.len ? text_cells(b.data, b.len) : 0;
    /* the branch has what the name leaves, a third at least; too little for a word is left out */
    int with = whole + 2 <= width - named ? whole : width - named - 2;
    with = with < width / 3 ? width / 3 : with;
    with = with < whole ? with : whole;
    with = with >= BRANCH_LEAST || with == whole ? with : 0;
    const int room = width - (with > 0 ? with + 2 : 0);
    buf_truncate(&n, n.len ? text_fit(n.data, n.len, room > 0 ? room : 0) : 0);
    buf_addc(&n, 0);
    int used = text_put(th, y, x, width, style, n.data);
    if (with > 0 && used + 2 + with <= width) {
        const bool cut = with < whole;
        buf_truncate(&b, text_fit(b.data, b.len, cut ? with - 4 : with));
        buf_adds(&b, cut ? "...]" : "");
        buf_addc(&b, 0);
        used += 2;
        used += text_put(th, y, x + used, width - used, R_DIM, b.data);
    }
    buf_free(&b);
    buf_free(&n);
    return used;
}

static void help_hint(const struct app *a, char out[KEY_HINT])
{
    const struct key_hint h = {ACT_HELP, ACT_NONE, "help"};
    keymap_hint(a->keys, &h, CTX_BOTH, out);
}

void bars_title(const struct app *a, int y, int width)
{
    const struct theme *th = &a->theme;
    const struct pane *p = a->cur;
    char name[96];
    char backend[96];
    status_model(&p->status.model, name, backend);
    char help[KEY_HINT];
    help_hint(a, help);
    const char *const part[] = {name, backend, help};
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
        const int most = width - 4 - cells(name) - cells(help);
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
static void stop_hint(const struct app *a, char out[KEY_HINT])
{
    const struct pane *p = a->cur;
    out[0] = 0;
    if (!p->in_turn || p->status.phase == P_STOPPING || a->overlay != OV_NONE) {
        return;
    }
    const bool esc = !p->focus && !p->forking && !composer_is_vi(p->composer);
    char text[24];
    snprintf(text, sizeof text, a->n_panes > 1 ? "stops [%zu]" : "stop", panes_number(a, p));
    const struct key_hint h = {esc ? ACT_ESCAPE : ACT_STOP_OR_QUIT, ACT_NONE, text};
    keymap_hint(a->keys, &h, p->focus ? CTX_TRANSCRIPT : CTX_COMPOSER, out);
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
    char stop[KEY_HINT];
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
    char help[KEY_HINT];
    help_hint(a, help);
    const char *right = stop[0] ? stop : small ? help : "";
    if (right[0] && x + cells(right) + 4 <= width) {
        snprintf(label, sizeof label, " %s ", right);
        (void)text_put(th, y, width - cells(label) - 2, cells(label), R_TEXT, label);
    }
}

#define MERGED (56 + KEY_HINT)

static void merged(const struct app *a, char out[MERGED])
{
    char brief[48];
    char stop[KEY_HINT];
    stop_hint(a, stop);
    status_activity_short(&a->cur->status, brief);
    char help[KEY_HINT];
    help_hint(a, help);
    snprintf(out, MERGED, "  %s  %s ", brief, stop[0] ? stop : help);
}

int bars_merged_cells(const struct app *a, int width)
{
    char label[MERGED];
    merged(a, label);
    return cells(label) > width / 2 + 8 ? 0 : cells(label);
}

void bars_merged(const struct app *a, int y, int width)
{
    char label[MERGED];
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

/* How one leaves what is on the screen now; empty: there is nothing to leave. */
static void escape_hint(const struct app *a, char out[KEY_HINT])
{
    const struct pane *p = a->cur;
    const bool rest = p->status.phase == P_IDLE || p->status.phase == P_LOADING;
    struct key_hint h = {ACT_ESCAPE, ACT_NONE, ""};
    unsigned ctx = CTX_COMPOSER;
    out[0] = 0;
    const bool view = views_ctx(a) && a->overlay == OV_NONE;
    if (view || a->overlay == OV_HELP || overlay_ctx(a)) {
        ctx = view ? views_ctx(a) : overlay_ctx(a) ? overlay_ctx(a) : CTX_HELP;
        h = (struct key_hint){ACT_BACK, ACT_NONE, "closes"};
    } else if (p->focus) {
        ctx = CTX_TRANSCRIPT;
        h = (struct key_hint){ACT_BACK, ACT_NONE, a->overlay ? "closes" : "types"};
    } else if (a->overlay != OV_NONE) {
        h.text = "closes";
    } else if (composer_is_vi(p->composer)) {
        const struct key_hint two[2] = {{ACT_ESCAPE, ACT_NONE, "command mode"},
                                        {ACT_STOP_OR_QUIT, ACT_NONE, "stop"}};
        keymap_hints(a->keys, two, p->in_turn ? 2 : 1, ctx, out, KEY_HINT);
        return;
    } else if (p->forking) {
        h.text = "cancels";
    } else if (p->in_turn && p->status.phase != P_STOPPING) {
        h.text = "stop";
    } else if (rest && composer_empty(p->composer) && !transcript_is_empty(p->transcript)) {
        h = (struct key_hint){ACT_ESCAPE, ACT_ESCAPE, "earlier messages"};
    } else {
        return;
    }
    keymap_hint(a->keys, &h, ctx, out);
}

/* Puts a hint where there is room; false: there is none. */
static bool put_hint(const struct app *a, int y, int *x, int width, const char *hint)
{
    if (*x + cells(hint) > width) {
        return false;
    }
    *x += hint[0] ? text_put(&a->theme, y, *x, width - *x, R_DIM, hint) + 2 : 0;
    return true;
}

/* The first n of several, as far as there is room. */
static bool put_hints(const struct app *a, int y, int *x, int width, const struct key_hint *h,
                      size_t n, unsigned ctx)
{
    bool fits = true;
    for (size_t i = 0; i < n && fits; i++) {
        char hint[KEY_HINT];
        if (h[i].act == ACT_NONE) { /* a character, not a key */
            snprintf(hint, sizeof hint, "%s", h[i].text);
        } else {
            keymap_hint(a->keys, &h[i], ctx, hint);
        }
        fits = put_hint(a, y, x, width, hint);
    }
    return fits;
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

void bars_hints(struct app *a, int y, int width)
{
    static const struct key_hint idle[] = {
        {ACT_SEND, ACT_NONE, "send"},       {ACT_NEWLINE, ACT_NONE, "new line"},
        {ACT_NONE, ACT_NONE, "/ commands"}, {ACT_EOF, ACT_NONE, "quit"},
        {ACT_FIND, ACT_NONE, "find"},       {ACT_FOCUS, ACT_NONE, "transcript"},
        {ACT_HISTORY, ACT_NONE, "history"}, {ACT_EDITOR, ACT_NONE, "editor"}};
    static const struct key_hint busy[] = {{ACT_SEND, ACT_NONE, "queue"},
                                           {ACT_FOCUS, ACT_NONE, "transcript"},
                                           {ACT_PAGE_UP, ACT_NONE, "scroll"},
                                           {ACT_HELP, ACT_NONE, "help"}};
    static const struct key_hint focus[] = {{ACT_PREV_BLOCK, ACT_NEXT_BLOCK, "message"},
                                            {ACT_FIND, ACT_NONE, "find"},
                                            {ACT_EDIT, ACT_NONE, "edit"},
                                            {ACT_RETRY, ACT_NONE, "again"},
                                            {ACT_BRANCH, ACT_NONE, "branch"},
                                            {ACT_COPY_BLOCK, ACT_NONE, "copy"},
                                            {ACT_HELP, ACT_NONE, "keys"},
                                            {ACT_FOLD, ACT_NONE, "thought"},
                                            {ACT_TOP, ACT_BOTTOM, "ends"}};
    static const struct key_hint many[] = {{ACT_PANE_OTHER, ACT_NONE, "other pane"},
                                           {ACT_PANE_CLOSE, ACT_NONE, "close"}};
    static const struct key_hint held = {ACT_SEND, ACT_NONE, "sends what is held"};
    const struct pane *p = a->cur;
    const bool rest = p->status.phase == P_IDLE || p->status.phase == P_LOADING;
    const struct key_hint *h = p->focus ? focus : rest ? idle : busy;
    const size_t n = p->focus ? COUNT(focus) : rest ? COUNT(idle) : COUNT(busy);
    const unsigned ctx = p->focus ? CTX_TRANSCRIPT : CTX_COMPOSER;
    const bool holds =
        p->held && p->n_queue > 0 && !p->focus && rest && composer_empty(p->composer);
    const size_t n_many = COUNT(many) - (p->in_turn || p->n_queue > 0); /* it can be closed */
    char esc[KEY_HINT];
    if (a->overlay == OV_SESSIONS && width >= LAYOUT_LIST_FROM) {
        sessions_hints(a, y, 0, width);
        return;
    }
    text_blank(&a->theme, y, 0, width);
    int x = 1;
    escape_hint(a, esc);
    const bool view = views_ctx(a) && a->overlay == OV_NONE;
    if (view || a->overlay == OV_HELP || overlay_ctx(a)) { /* its own keys stand above */
        static const struct key_hint keys = {ACT_HELP, ACT_NONE, "keys"};
        (void)put_hint(a, y, &x, width, esc);
        (void)put_hints(a, y, &x, width, &keys, a->overlay != OV_HELP, ctx);
        return;
    }
    const char *tab = palette_tab(a);
    if (tab) { /* a list stands above, or Tab makes one */
        const struct key_hint keys[] = {{ACT_FOCUS, ACT_NONE, tab}};
        const struct key_hint into[] = {{ACT_PREV_BLOCK, ACT_NONE, "chooses"}};
        const struct key_hint enter[] = {{ACT_SEND, ACT_NONE, rest ? "send" : "queue"}};
        (void)put_hints(a, y, &x, width, keys, 1, ctx);
        (void)put_hints(a, y, &x, width, into, palette_shown(a), CTX_LIST);
        if (palette_shown(a) && a->picked) {
            const struct key_hint takes[] = {{ACT_CHOOSE, ACT_NONE, "takes"}};
            (void)put_hints(a, y, &x, width, takes, 1, CTX_LIST);
        } else {
            (void)put_hints(a, y, &x, width, enter, 1, ctx);
        }
        return;
    }
    if (!rest) {
        (void)put_hint(a, y, &x, width, esc);
    }
    (void)put_hints(a, y, &x, width, holds ? &held : h, 1, ctx);
    if (rest && p->focus) {
        (void)put_hint(a, y, &x, width, esc);
    }
    if (a->n_panes < 2 || put_hints(a, y, &x, width, many, n_many, ctx)) {
        (void)put_hints(a, y, &x, width, h + 1, n - 1, ctx);
    }
    if (rest && !p->focus) { /* after what is wanted more often */
        (void)put_hint(a, y, &x, width, esc);
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
    const struct keymap *keys = a->keys;
    const unsigned here = CTX_COMPOSER;
    const struct {
        uint16_t style;
        const char *key, *text;
    } rows[] = {
        {R_STRONG, NULL, "A conversation with a language model on this machine."},
        {R_TEXT, NULL, facts},
        {R_TEXT, NULL, ""},
        {R_TEXT, keymap_way(keys, ACT_SEND, here), "send the message"},
        {R_TEXT, keymap_way(keys, ACT_NEWLINE, here), "new line (or a backslash, then Enter)"},
        {R_TEXT, keymap_way(keys, ACT_ESCAPE, here), "stop the answer"},
        {R_TEXT, "/", "commands: /attach /edit /find /new /set ..."},
        {R_TEXT, keymap_way(keys, ACT_HELP, here), "every key"},
        {R_TEXT, keymap_way(keys, ACT_SESSIONS, here), "go on with an earlier conversation"},
        {R_TEXT, keymap_way(keys, ACT_PANE_BESIDE, here), "another conversation beside this one"},
        {R_TEXT, keymap_way(keys, ACT_EOF, here), "quit"},
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
