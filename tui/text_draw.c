/* The only writer of text to the screen. It never asks the terminal for more or fewer cells than
 * were counted. */
#include "config.h"

#include <curses.h>
#include <string.h>
#include <wchar.h>

#include "base/utf8.h"
#include "tui/text.h"

/* Curses asks the C library how wide a character is; here it gets the same answer as everybody
 * else, so that the two cannot differ. */
int wcwidth(wchar_t c)
{
    return utf8_cells((uint32_t)c);
}

/* Cells are gathered, since curses takes many at once for little more than one. */
#define PEN_CELLS 64

struct pen {
    const struct theme *th;
    int y, x, limit;
    attr_t attrs;
    short pair;
    cchar_t cell[PEN_CELLS];
    int n, from; /* gathered, and the column of the first */
};

static void pen_flush(struct pen *pen)
{
    if (pen->n) {
        (void)mvadd_wchnstr(pen->y, pen->from, pen->cell, pen->n);
        pen->n = 0;
    }
}

static void pen_cell(struct pen *pen, const wchar_t *chars, int w)
{
    if (pen->x + w > pen->limit) {
        pen->x = pen->limit;
        return;
    }
    if (pen->n == PEN_CELLS) {
        pen_flush(pen);
    }
    pen->from = pen->n ? pen->from : pen->x;
    setcchar(&pen->cell[pen->n++], chars, pen->attrs, pen->pair, NULL);
    pen->x += w;
}

/* The same cell again and again, up to a column. */
static void pen_fill(struct pen *pen, const wchar_t *chars, int to)
{
    cchar_t cc;
    pen_flush(pen);
    to = to < pen->limit ? to : pen->limit;
    if (pen->x < to) {
        setcchar(&cc, chars, pen->attrs, pen->pair, NULL);
        (void)mvhline_set(pen->y, pen->x, &cc, to - pen->x);
        pen->x = to;
    }
}

/* Draws filtered text. One base character and up to four marks go into a cell;
 * what the locale cannot write becomes a question mark of the same width. */
static void draw_span(struct pen *pen, const char *p, size_t n)
{
    size_t i = 0;
    wchar_t cell[6] = {0};
    int len = 0;
    int width = 0;
    while (i < n) {
        uint32_t cp = 0;
        size_t k = utf8_next(p + i, n - i, &cp);
        i += k;
        if (cp < 0x20) {
            continue; /* the filter lets none through */
        }
        int w = cp < 0x7F ? 1 : utf8_cells(cp);
        if (w == 0) {
            const bool drawn = !text_undrawn(cp) || (pen->th->raw && text_joins(cp));
            if (len > 0 && len < 5 && drawn && pen->th->utf8) {
                cell[len++] = (wchar_t)cp;
                cell[len] = 0;
            }
            continue;
        }
        if (len) {
            pen_cell(pen, cell, width);
        }
        if (pen->x >= pen->limit) {
            return;
        }
        if (cp >= 0x7F && !pen->th->utf8) {
            for (int j = 1; j < w; j++) {
                pen_cell(pen, L"?", 1);
            }
            cp = '?';
            w = 1;
        }
        cell[0] = (wchar_t)cp;
        cell[1] = 0;
        len = 1;
        width = w;
    }
    if (len) {
        pen_cell(pen, cell, width);
    }
}

static void pen_at(struct pen *pen, const struct theme *th, int y, int x, int width)
{
    pen->th = th;
    pen->y = y;
    pen->x = x;
    pen->limit = x + width < COLS ? x + width : COLS;
    pen->n = 0;
    if (y < 0 || y >= LINES || x < 0) {
        pen->limit = 0;
        pen->x = 0;
    }
}

static void pen_style(struct pen *pen, uint16_t style)
{
    unsigned long a = 0;
    theme_attrs(pen->th, style, &a, &pen->pair);
    pen->attrs = (attr_t)a;
}

static void pen_blank_rest(struct pen *pen)
{
    pen_style(pen, R_TEXT);
    pen_fill(pen, L" ", pen->limit);
}

void text_draw_row(const struct theme *th, int y, int x, int width, const struct text_rows *r,
                   size_t i, uint16_t bits)
{
    struct pen pen;
    pen_at(&pen, th, y, x, width);
    if (i < r->n_rows) {
        size_t end = 0;
        for (const struct text_run *k = text_row_run(r, i, NULL, &end); k;
             k = text_row_run(r, i, k, &end)) {
            pen_style(&pen, (uint16_t)(k->style | bits));
            draw_span(&pen, r->text.data + k->at, end - k->at);
        }
    }
    pen_blank_rest(&pen);
}

int text_put(const struct theme *th, int y, int x, int width, uint16_t style, const char *s)
{
    struct buf b = BUF_INIT;
    text_filter(s, strlen(s), th->ascii || !th->utf8, NULL, &b);
    struct pen pen;
    pen_at(&pen, th, y, x, width);
    pen_style(&pen, style);
    int from = pen.x;
    if (b.len) {
        draw_span(&pen, b.data, b.len);
        pen_flush(&pen);
    }
    buf_free(&b);
    return pen.x - from;
}

void text_blank(const struct theme *th, int y, int x, int width)
{
    struct pen pen;
    pen_at(&pen, th, y, x, width);
    pen_blank_rest(&pen);
}

void text_repeat(const struct theme *th, int y, int x, int width, uint16_t style, const char *s)
{
    struct pen pen;
    uint32_t cp = 0;
    (void)utf8_next(s, strlen(s), &cp);
    const wchar_t chars[2] = {(wchar_t)(th->utf8 || cp < 0x80 ? cp : '?'), 0};
    pen_at(&pen, th, y, x, width);
    pen_style(&pen, style);
    pen_fill(&pen, chars, pen.limit);
}
