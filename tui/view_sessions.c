/* Draws the list of stored conversations: a column at the left of a wide screen, else all of
 * it. What does not fit is left out whole, from the right. */
#include "config.h"
#include "tui/sessions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "tui/text.h"

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

/* In the units of every other size: K is 1024 bytes. */
static void size_text(double bytes, char out[24])
{
    static const char units[] = "BKMGTP";
    int u = 0;
    while (bytes >= 1000 && u < 5) {
        bytes /= 1024;
        u++;
    }
    snprintf(out, 24, u && bytes < 10 ? "%.1f %c" : "%.0f %c", bytes, units[u]);
}

/* Filtered and cut to so many cells; caller frees. */
static char *fitted(const struct theme *th, const char *s, int width)
{
    struct buf b = BUF_INIT;
    text_filter(s, strcspn(s, "\n"), th->ascii || !th->utf8, NULL, &b);
    buf_truncate(&b, b.len ? text_fit(b.data, b.len, width > 0 ? width : 0) : 0);
    buf_adds(&b, "");
    return b.data ? buf_take(&b) : mem_strdup("");
}

static int cells(const char *s)
{
    return text_cells(s, strlen(s));
}

static void marks(const struct app *a, const struct stored *k, char out[32])
{
    const size_t pane = stored_pane(a, k->id);
    if (pane > 0 && a->n_panes > 1) {
        snprintf(out, 32, "  [%zu]", pane);
    } else if (pane > 0) {
        snprintf(out, 32, "  *");
    } else {
        snprintf(out, 32, "%s", k->elsewhere ? "  elsewhere" : "");
    }
}

/* Of one whose last answer was cut off, until it is opened. */
static bool recovered_text(const struct stored *k, bool brief, char out[64])
{
    if (k->recovered < 0) {
        return false;
    }
    if (brief) {
        snprintf(out, 64, "recovered");
    } else if (k->recovered == 0) {
        snprintf(out, 64, "recovered, the last question without an answer");
    } else {
        snprintf(out, 64, "recovered, the last answer cut at %d token%s", k->recovered,
                 k->recovered == 1 ? "" : "s");
    }
    return true;
}

/* What the right side says of a conversation. */
static void facts(const struct app *a, const struct stored *k, bool brief, char out[128])
{
    char age[24];
    char size[24] = "text only";
    char mark[32];
    size_t n = 0;
    marks(a, k, mark);
    if (recovered_text(k, brief, out)) {
        n = strlen(out);
        snprintf(out + n, 128 - n, "%s", mark);
        return;
    }
    if (k->state_bytes > 0) {
        size_text((double)k->state_bytes, size);
    }
    if (brief) {
        snprintf(out, 128, "%s%s", size, mark);
        return;
    }
    age_text(a->sessions->read_at - k->updated, age);
    if (k->turns >= 0) {
        n = (size_t)snprintf(out, 128, "%d turn%s  ", k->turns, k->turns == 1 ? "" : "s");
    }
    if (k->state_bytes > 0) {
        snprintf(out + n, 128 - n, "%s  state saved, %s%s%s", age, size,
                 k->pinned ? "  pinned" : "", mark);
    } else {
        snprintf(out + n, 128 - n, "%s  text only%s%s", age, k->pinned ? "  pinned" : "", mark);
    }
}

static void branch_facts(const struct app *a, const struct stored *k, const struct stored_branch *b,
                         bool brief, char out[128])
{
    const size_t pane = a->n_panes > 1 ? stored_branch_pane(a, k->id, b->number) : 0;
    char mark[32] = "";
    if (pane > 0) {
        snprintf(mark, sizeof mark, "%s[%zu]", brief ? "" : "  ", pane);
    }
    if (brief && pane > 0) {
        snprintf(out, 128, "%s", mark);
    } else {
        snprintf(out, 128, "%d turn%s%s%s", b->turns, b->turns == 1 ? "" : "s",
                 b->current ? " *" : "", mark);
    }
}

/* A place in its text: who said it, and what is around the words. */
static void draw_place(const struct app *a, const struct stored_row *row, int y,
                       const struct rect *r, bool picked)
{
    const struct theme *th = &a->theme;
    const struct found *at = &a->sessions->found.answer.v[row->found];
    const bool plain = th->ascii || !th->utf8;
    const uint16_t style = picked ? R_SELECT : R_TEXT;
    const int end = r->x + r->cols - 1;
    char more[48] = "";
    int x = r->x + 3;
    if (row->last && at->more > 0) {
        snprintf(more, sizeof more, "  and %d more", at->more);
    }
    x += text_put(th, y, x, end - x, R_BORDER,
                  plain       ? (row->last ? "`- " : "|- ")
                  : row->last ? "└ "
                              : "├ ");
    x += text_put(th, y, x, end - x, R_DIM, at->user ? "you: " : "model: ");
    const int room = end - x - cells(more);
    found_draw(th, y, x, room > 30 ? room : end - x, style, at);
    if (more[0] && room > 30) {
        (void)text_put(th, y, end - cells(more), cells(more), R_DIM, more);
    }
}

static void draw_row(const struct app *a, const struct stored_row *row, int y, const struct rect *r,
                     bool picked, bool brief)
{
    const struct theme *th = &a->theme;
    const struct stored *k = &a->sessions->stored[row->stored];
    char right[128] = "";
    char name[64];
    const char *text = k->title[0] ? k->title : "(nothing was said)";
    int x = r->x + 3;
    text_blank(th, y, r->x, r->cols);
    (void)text_put(th, y, r->x + 1, 2, R_USER, picked ? ">" : " ");
    if (row->place) {
        draw_place(a, row, y, r, picked);
        return;
    }
    if (row->branch < 0 && k->recovered >= 0) {
        (void)text_put(th, y, r->x + (picked ? 2 : 1), 1, R_WARN, "!");
    }
    if (row->branch >= 0) {
        const struct stored_branch *b = &k->branch[row->branch];
        const bool last = (size_t)row->branch + 1 == k->n_branches;
        const char *tree = th->ascii || !th->utf8 ? (last ? "`- " : "|- ") : last ? "└ " : "├ ";
        x += text_put(th, y, x, r->cols - 3, R_BORDER, tree);
        stored_branch_name(b, name);
        text = brief && b->number > 1 ? b->head : name;
        branch_facts(a, k, b, brief, right);
    } else {
        facts(a, k, brief, right);
    }
    const int end = r->x + r->cols - 1;
    const int room = end - x - cells(right) - 2;
    char *s = fitted(th, text, room > 10 ? room : end - x);
    const int used = text_put(th, y, x, end - x, picked ? R_SELECT : R_TEXT, s);
    free(s);
    if (room > 10) {
        const int at = brief                      ? end - cells(right)
                       : x + used + 5 > r->x + 30 ? x + used + 3
                                                  : r->x + 30;
        if (at + cells(right) <= end) {
            (void)text_put(th, y, at, end - at, R_DIM, right);
        }
    }
}

/* What the head says of the search, the longest first. */
static size_t head_hints(const struct app *a, char hint[3][96])
{
    const struct sessions *s = a->sessions;
    const struct finding *f = &s->found.answer;
    if (a->query.len == 0) {
        snprintf(hint[0], 96, "type to find titles, and words in the texts");
        snprintf(hint[1], 96, "type to find");
        return 2;
    }
    if (s->found.asked) { /* what it was before stays, and this comes in a moment */
        snprintf(hint[0], 96, s->n_rows ? "" : "looking in the texts");
        return 1;
    }
    if (f->n > 0) {
        snprintf(hint[0], 96, "%zu%s place%s in texts", f->n, f->cut ? " and more" : "",
                 f->n == 1 && !f->cut ? "" : "s");
        snprintf(hint[1], 96, "%zu%s", f->n, f->cut ? "+" : "");
        return 2;
    }
    if (s->n_rows > 0) {
        return 0;
    }
    if (f->err.code) {
        snprintf(hint[0], 96, "no such title; the texts cannot be searched");
    } else {
        snprintf(hint[0], 96, "no title and no text of %zu conversation%s has it", s->n_stored,
                 s->n_stored == 1 ? "" : "s");
    }
    snprintf(hint[1], 96, "in no title, in no text");
    snprintf(hint[2], 96, "nothing found");
    return 3;
}

static void draw_head(const struct app *a, const struct rect *r, bool docked)
{
    const struct theme *th = &a->theme;
    const struct sessions *s = a->sessions;
    const bool keys = a->overlay == OV_SESSIONS;
    char label[160];
    text_blank(th, r->y, r->x, r->cols);
    if (docked && !keys) {
        const int x = text_put(th, r->y, r->x, r->cols, R_STRONG, " SESSIONS");
        if (x + 12 < r->cols) {
            char hint[KEY_HINT];
            const struct key_hint h = {ACT_SESSIONS, ACT_NONE, "chooses"};
            keymap_hint(a->keys, &h, CTX_COMPOSER, hint);
            (void)text_put(th, r->y, r->x + x + 2, r->cols - x - 2, R_DIM, hint);
        }
        return;
    }
    snprintf(label, sizeof label, " %s: ", s->naming ? "new name" : "conversations");
    int x = text_put(th, r->y, r->x, r->cols, R_STRONG, label);
    struct buf query = BUF_INIT;
    text_filter(a->query.data ? a->query.data : "", a->query.len, th->ascii || !th->utf8, NULL,
                &query);
    const char *q = query.data ? query.data : "";
    size_t from = 0; /* what is written last is seen */
    while (from < query.len && text_cells(q + from, query.len - from) + x + 2 > r->cols) {
        from++;
        while (from < query.len && ((unsigned char)q[from] & 0xC0) == 0x80) {
            from++;
        }
    }
    buf_addc(&query, 0);
    x += text_put(th, r->y, r->x + x, r->cols - x, R_STRONG, query.data + from);
    buf_free(&query);
    char hint[3][96];
    const size_t n = s->naming ? 0 : head_hints(a, hint);
    x += a->query.len > 0;
    for (size_t i = 0; i < n; i++) { /* the longest that fits */
        if (x + 1 + cells(hint[i]) <= r->cols) {
            (void)text_put(th, r->y, r->x + x + 1, r->cols - x - 1,
                           s->n_rows || s->found.asked ? R_DIM : R_WARN, hint[i]);
            break;
        }
    }
}

static void draw_disk(const struct app *a, const struct rect *r, int y, int rows)
{
    const struct theme *th = &a->theme;
    const struct conv_disk *d = &a->sessions->disk;
    char text[24];
    char state[24];
    char all[24];
    char budget[24];
    char line[96];
    size_text((double)d->text, text);
    size_text((double)d->state, state);
    size_text((double)(d->text + d->state), all);
    size_text((double)d->budget, budget);
    snprintf(line, sizeof line, " disk %s of %s", all, budget);
    for (int i = 0; i < rows; i++) {
        text_blank(th, y + i, r->x, r->cols);
        if (a->sessions->disk_known) {
            (void)text_put(th, y + i, r->x, r->cols - 1, R_DIM, line);
        }
        snprintf(line, sizeof line, " text %s  state %s", text, state);
    }
}

void sessions_hints(const struct app *a, int y, int x, int width)
{
    static const struct key_hint hints[] = {
        {ACT_CHOOSE, ACT_NONE, "goes on"},       {ACT_CHOOSE_BESIDE, ACT_NONE, "beside"},
        {ACT_RENAME_IT, ACT_NONE, "rename"},     {ACT_PIN_IT, ACT_NONE, "pin"},
        {ACT_FORGET_IT, ACT_NONE, "drop state"}, {ACT_BACK, ACT_NONE, "closes"}};
    static const struct key_hint naming[] = {
        {ACT_CHOOSE, ACT_NONE, "gives the name"},
        {ACT_BACK, ACT_NONE, "leaves it as it is"},
        {ACT_EMPTY, ACT_NONE, "empties it"},
    };
    const bool name = a->sessions && a->sessions->naming;
    const struct key_hint *h = name ? naming : hints;
    const size_t n = name ? sizeof naming / sizeof *naming : sizeof hints / sizeof *hints;
    int at = x + 1;
    text_blank(&a->theme, y, x, width);
    for (size_t i = 0; i < n; i++) {
        char hint[KEY_HINT];
        keymap_hint(a->keys, &h[i], CTX_SESSIONS, hint);
        if (at + cells(hint) >= x + width) {
            break;
        }
        at += hint[0] ? text_put(&a->theme, y, at, width, R_STRONG, hint) + 2 : 0;
    }
}

void sessions_draw(struct app *a, const struct rect *whole, bool docked)
{
    struct sessions *s = a->sessions;
    const struct theme *th = &a->theme;
    struct rect r = *whole;
    if (docked) { /* the border */
        r.cols--;
        for (int y = r.y; y < r.y + r.rows; y++) {
            (void)text_put(th, y, r.x + r.cols, 1, R_BORDER, theme_glyph(th, G_VLINE));
        }
    }
    const int disk = r.rows >= 8 ? 2 : 0;
    const int hints = docked ? 0 : 1;
    const int page = r.rows - 1 - disk - hints;
    if (!s || page < 1) {
        return;
    }
    s->page = page;
    s->top = s->pick < s->top ? s->pick : s->top;
    s->top = s->pick >= s->top + (size_t)page ? s->pick + 1 - (size_t)page : s->top;
    s->top = s->top < s->n_rows ? s->top : 0;
    draw_head(a, &r, docked);
    for (int i = 0; i < page; i++) {
        const size_t at = s->top + (size_t)i;
        if (at < s->n_rows) {
            draw_row(a, &s->row[at], r.y + 1 + i, &r, a->overlay == OV_SESSIONS && at == s->pick,
                     docked);
        } else {
            text_blank(th, r.y + 1 + i, r.x, r.cols);
        }
    }
    draw_disk(a, &r, r.y + 1 + page, disk);
    if (hints) {
        sessions_hints(a, r.y + r.rows - 1, r.x, r.cols);
    }
}
