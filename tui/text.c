/* The hostile-text filter, cell counting and wrapping. Everything drawn passes
 * through text_filter; cells are counted per code point by utf8_cells. */
#include "config.h"
#include "tui/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

#define TAB_STOP 8

bool text_undrawn(uint32_t cp)
{
    return (cp >= 0x200B && cp <= 0x200F) || (cp >= 0x2060 && cp <= 0x2064) || cp == 0xFEFF ||
           (cp >= 0xFE00 && cp <= 0xFE0F) || (cp >= 0xE0100 && cp <= 0xE01EF) || cp == 0x061C ||
           cp == 0x180E;
}

/* The visible form of one code point that may not be written as it is. */
static bool replaced(uint32_t cp, bool ascii, char out[24])
{
    if (cp < 0x20 || cp == 0x7F) {
        if (ascii) {
            snprintf(out, 24, "^%c", cp == 0x7F ? '?' : (char)(cp + 0x40));
        } else {
            out[utf8_put(cp == 0x7F ? 0x2421 : 0x2400 + cp, out)] = 0;
        }
        return true;
    }
    if (cp >= 0x80 && cp < 0xA0) {
        snprintf(out, 24, "<%02X>", (unsigned)cp);
        return true;
    }
    return utf8_hidden_form(cp, out);
}

bool text_joins(uint32_t cp)
{
    return cp == 0x200C || cp == 0x200D || (cp >= 0xFE00 && cp <= 0xFE0F) ||
           (cp >= 0xE0100 && cp <= 0xE01EF);
}

void text_filter(const char *p, size_t n, bool ascii, int *col, struct buf *out)
{
    int at = col ? *col : 0;
    size_t i = 0;
    while (i < n) {
        size_t plain = i;
        while (plain < n && p[plain] >= 0x20 && p[plain] < 0x7F) {
            plain++;
        }
        if (plain > i) {
            buf_add(out, p + i, plain - i);
            at += (int)(plain - i);
            i = plain;
            continue;
        }
        uint32_t cp = (unsigned char)p[i];
        int k = 1;
        if (cp >= 0x80) {
            k = utf8_decode(p + i, n - i, &cp);
            if (k <= 0) {
                buf_adds(out, ascii ? "?" : "\xEF\xBF\xBD");
                at++;
                i++;
                continue;
            }
        }
        char pic[24];
        if (cp == '\n') {
            buf_addc(out, '\n');
            at = 0;
        } else if (cp == '\t') {
            int to = at / TAB_STOP * TAB_STOP + TAB_STOP;
            for (; at < to; at++) {
                buf_addc(out, ' ');
            }
        } else if (cp == '\r' && i + 1 < n && p[i + 1] == '\n') {
            /* CR LF is one line end */
        } else if (replaced(cp, ascii, pic)) {
            buf_adds(out, pic);
            at += text_cells(pic, strlen(pic));
        } else {
            int w = cp < 0x7F ? 1 : utf8_cells(cp);
            if (w == 0 && at == 0 && !text_undrawn(cp)) {
                buf_adds(out, ascii ? " " : "\xE2\x97\x8C"); /* a mark needs a base */
                at = ascii ? 1 : utf8_cells(0x25CC);
            }
            buf_add(out, p + i, (size_t)k);
            at += w;
        }
        i += (size_t)k;
    }
    if (col) {
        *col = at;
    }
}

int text_cells(const char *p, size_t n)
{
    int cells = 0;
    size_t i = 0;
    while (i < n) {
        uint32_t cp = 0;
        size_t k = utf8_next(p + i, n - i, &cp);
        int w = cp < 0x7F ? 1 : utf8_cells(cp);
        cells += w > 0 ? w : 0;
        i += k;
    }
    return cells;
}

/* Bytes of the cluster at p. Plain ASCII followed by plain ASCII needs no table. */
static size_t cluster_at(const char *p, size_t n)
{
    if ((unsigned char)p[0] < 0x80 && (n == 1 || (unsigned char)p[1] < 0x80)) {
        return 1;
    }
    return utf8_cluster_len(p, n);
}

size_t text_fit(const char *p, size_t n, int max)
{
    size_t i = 0;
    int cells = 0;
    while (i < n) {
        size_t k = cluster_at(p + i, n - i);
        cells += text_cells(p + i, k);
        if (cells > max) {
            break;
        }
        i += k;
    }
    return i;
}

static void run_add(struct text_run **runs, size_t *n, size_t *cap, struct text_run run)
{
    if (*n == *cap) {
        size_t want = *cap ? *cap * 2 : 16;
        size_t bytes = 0;
        if (!arr_size(want, sizeof **runs, &bytes)) {
            return;
        }
        *runs = mem_realloc(*runs, bytes);
        *cap = want;
    }
    (*runs)[(*n)++] = run;
}

void text_flow_add(struct text_flow *f, uint16_t style, const char *p, size_t n, bool ascii)
{
    if (n == 0) {
        return;
    }
    size_t at = f->text.len;
    /* the column matters only to tabs; other text asks whether there is a base */
    int col = at > 0 && f->text.data[at - 1] != '\n';
    if (col && memchr(p, '\t', n)) {
        const char *nl = memrchr(f->text.data, '\n', at);
        size_t from = nl ? (size_t)(nl - f->text.data) + 1 : 0;
        col = text_cells(f->text.data + from, at - from);
    }
    text_filter(p, n, ascii, &col, &f->text);
    if (f->text.len > at && (f->n_runs == 0 || f->runs[f->n_runs - 1].style != style)) {
        run_add(&f->runs, &f->n_runs, &f->cap_runs, (struct text_run){at, (uint32_t)at, style});
    }
}

void text_flow_clear(struct text_flow *f)
{
    buf_truncate(&f->text, 0);
    f->n_runs = 0;
}

void text_flow_free(struct text_flow *f)
{
    buf_free(&f->text);
    free(f->runs);
    memset(f, 0, sizeof *f);
}

/* ---- rows ---------------------------------------------------------------- */

static void row_open(struct text_rows *r)
{
    if (r->open) {
        return;
    }
    if (r->n_rows == r->cap_rows) {
        size_t want = r->cap_rows ? r->cap_rows * 2 : 16;
        size_t bytes = 0;
        if (!arr_size(want, sizeof *r->rows, &bytes)) {
            return;
        }
        r->rows = mem_realloc(r->rows, bytes);
        r->cap_rows = want;
    }
    struct text_row *row = &r->rows[r->n_rows++];
    row->at = r->text.len;
    row->run = r->n_runs;
    row->hard = false;
    r->open = true;
    r->cells = 0;
}

/* Whether bytes from `from` on go on with the open row's last run. */
static bool goes_on(const struct text_rows *r, uint16_t style, uint32_t from)
{
    if (r->n_runs == r->rows[r->n_rows - 1].run) {
        return false;
    }
    const struct text_run *k = &r->runs[r->n_runs - 1];
    return k->style == style &&
           ((style & TEXT_DECOR) || k->from + (uint32_t)(r->text.len - k->at) == from);
}

void text_rows_said(struct text_rows *r, uint16_t style, const char *p, size_t n, uint32_t from)
{
    row_open(r);
    if (n == 0) {
        return;
    }
    if (!goes_on(r, style, from)) {
        run_add(&r->runs, &r->n_runs, &r->cap_runs, (struct text_run){r->text.len, from, style});
    }
    buf_add(&r->text, p, n);
    r->cells += text_cells(p, n);
}

void text_rows_span(struct text_rows *r, uint16_t style, const char *p, size_t n)
{
    text_rows_said(r, style, p, n, 0);
}

void text_rows_puts(struct text_rows *r, uint16_t style, const char *s)
{
    text_rows_span(r, style, s, strlen(s));
}

void text_rows_fill(struct text_rows *r, uint16_t style, const char *s, int count)
{
    for (int i = 0; i < count; i++) {
        text_rows_puts(r, style, s);
    }
}

void text_rows_pad(struct text_rows *r, int column)
{
    row_open(r);
    text_rows_fill(r, R_TEXT | TEXT_DECOR, " ", column - r->cells);
}

void text_rows_end(struct text_rows *r, bool hard)
{
    row_open(r);
    r->rows[r->n_rows - 1].hard = hard;
    r->open = false;
}

size_t text_row_end(const struct text_rows *r, size_t i)
{
    return i + 1 < r->n_rows ? r->rows[i + 1].at : r->text.len;
}

static size_t row_run_end(const struct text_rows *r, size_t i)
{
    return i + 1 < r->n_rows ? r->rows[i + 1].run : r->n_runs;
}

/* Calls for each run of a row: from, to, style. */
#define EACH_RUN(r, i, k, from, to)                                                                \
    for (size_t k = (r)->rows[i].run, from = 0, to = 0;                                            \
         k < row_run_end(r, i) &&                                                                  \
         (from = (r)->runs[k].at,                                                                  \
         to = k + 1 < row_run_end(r, i) ? (r)->runs[k + 1].at : text_row_end(r, i), true);         \
         k++)

void text_rows_copy(struct text_rows *r, const struct text_rows *src, size_t i)
{
    row_open(r);
    EACH_RUN(src, i, k, from, to)
    {
        text_rows_said(r, src->runs[k].style, src->text.data + from, to - from, src->runs[k].from);
    }
}

const struct text_run *text_row_run(const struct text_rows *r, size_t i, const struct text_run *k,
                                    size_t *end)
{
    const size_t at = k ? (size_t)(k - r->runs) + 1 : r->rows[i].run;
    const size_t stop = row_run_end(r, i);
    if (at >= stop) {
        return NULL;
    }
    *end = at + 1 < stop ? r->runs[at + 1].at : text_row_end(r, i);
    return &r->runs[at];
}

void text_row_text(const struct text_rows *r, size_t i, struct buf *out)
{
    EACH_RUN(r, i, k, from, to)
    {
        if (!(r->runs[k].style & TEXT_DECOR)) {
            buf_add(out, r->text.data + from, to - from);
        }
    }
}

void text_rows_truncate(struct text_rows *r, size_t n)
{
    if (n < r->n_rows) {
        r->n_runs = r->rows[n].run;
        buf_truncate(&r->text, r->rows[n].at);
        r->n_rows = n;
    }
    r->open = false;
}

void text_rows_free(struct text_rows *r)
{
    buf_free(&r->text);
    free(r->runs);
    free(r->rows);
    memset(r, 0, sizeof *r);
}

/* ---- wrapping ------------------------------------------------------------ */

void text_prefix_push(struct text_prefix *p, uint16_t style, const char *s)
{
    if (p->n < (int)(sizeof p->part / sizeof *p->part)) {
        p->part[p->n].style = (uint16_t)(style | TEXT_DECOR);
        snprintf(p->part[p->n].s, sizeof p->part[p->n].s, "%s", s);
        p->n++;
    }
}

int text_prefix_cells(const struct text_prefix *p)
{
    int cells = 0;
    for (int i = 0; p && i < p->n; i++) {
        cells += text_cells(p->part[i].s, strlen(p->part[i].s));
    }
    return cells;
}

void text_prefix_write(struct text_rows *r, const struct text_prefix *p)
{
    for (int i = 0; p && i < p->n; i++) {
        text_rows_puts(r, p->part[i].style, p->part[i].s);
    }
}

/* Copies flow bytes [a, b) with their styles into the open row. */
static void flow_slice(struct text_rows *out, const struct text_flow *f, size_t a, size_t b)
{
    size_t lo = 0;
    size_t hi = f->n_runs;
    while (lo + 1 < hi) { /* the last run that starts at or before a */
        size_t mid = (lo + hi) / 2;
        if (f->runs[mid].at <= a) {
            lo = mid;
        } else {
            hi = mid;
        }
    }
    for (size_t k = lo; k < f->n_runs && a < b; k++) {
        size_t end = k + 1 < f->n_runs ? f->runs[k + 1].at : f->text.len;
        end = end < b ? end : b;
        if (end > a) {
            const struct text_run *run = &f->runs[k];
            text_rows_said(out, run->style, f->text.data + a, end - a,
                           f->from + run->from + (uint32_t)(a - run->at));
            a = end;
        }
    }
}

struct wrap_state {
    struct text_rows *out;
    const struct text_flow *f;
    const struct text_wrap *w;
    const struct text_prefix *first, *next;
    const char *right;
    bool begun;     /* the first row of all is out */
    int mark_cells; /* of the mark, 0 when there is no room for it */
};

static void wrap_row(struct wrap_state *s, size_t a, size_t b, bool continued, bool hard)
{
    text_prefix_write(s->out, s->begun ? s->next : s->first);
    s->begun = true;
    if (continued && s->mark_cells) {
        text_rows_puts(s->out, R_BORDER | TEXT_DECOR, s->w->mark);
    }
    row_open(s->out);
    flow_slice(s->out, s->f, a, b);
    if (s->right) {
        text_rows_pad(s->out, s->w->width - text_cells(s->right, strlen(s->right)));
        text_rows_puts(s->out, R_BORDER | TEXT_DECOR, s->right);
    }
    text_rows_end(s->out, hard);
}

/* Wraps the line [a, b); avail cells per row, less for continued rows. */
static void wrap_line(struct wrap_state *s, size_t a, size_t b, int avail, bool hard)
{
    const char *p = s->f->text.data;
    size_t start = a;  /* of the row */
    size_t brk = a;    /* the last place where a row may end */
    int col = 0;       /* cells in the row */
    int col_brk = 0;   /* of those, before brk */
    bool cont = false; /* the row continues the line */
    size_t pos = a;
    while (pos < b) {
        size_t k = cluster_at(p + pos, b - pos);
        int w = text_cells(p + pos, k);
        bool space = k == 1 && p[pos] == ' ';
        int room = cont ? avail - s->mark_cells : avail;
        bool hangs = space && s->w->mode == WRAP_WORD;
        while (!hangs && col + w > room && pos > start) {
            if (s->w->mode == WRAP_WORD && brk > start) {
                wrap_row(s, start, brk, cont, false);
                start = brk;
                col -= col_brk;
            } else {
                wrap_row(s, start, pos, cont, false);
                start = pos;
                col = 0;
            }
            brk = start;
            col_brk = 0;
            cont = true;
            room = avail - s->mark_cells;
        }
        pos += k;
        col += w;
        if (space || (w == 2 && k >= 3)) {
            brk = pos;
            col_brk = col;
        }
    }
    wrap_row(s, start, b, cont, hard);
}

void text_wrap(struct text_rows *out, const struct text_flow *f, const struct text_wrap *w)
{
    struct wrap_state s = {
        .out = out, .f = f, .w = w, .first = w->first, .next = w->next, .right = w->right};
    int right = w->right ? text_cells(w->right, strlen(w->right)) : 0;
    int lead = text_prefix_cells(w->first);
    int lead_next = text_prefix_cells(w->next);
    lead = lead > lead_next ? lead : lead_next;
    int avail = w->width - lead - right;
    if (avail < 1) { /* no room for ornaments */
        s.first = NULL;
        s.next = NULL;
        s.right = NULL;
        avail = w->width > 1 ? w->width : 1;
    }
    s.mark_cells = w->mark && avail > 4 ? text_cells(w->mark, strlen(w->mark)) : 0;
    size_t a = 0;
    size_t n = f->text.len;
    for (;;) {
        const char *nl = n > a ? memchr(f->text.data + a, '\n', n - a) : NULL;
        size_t b = nl ? (size_t)(nl - f->text.data) : n;
        wrap_line(&s, a, b, avail, true);
        if (!nl) {
            break;
        }
        a = b + 1;
    }
}
