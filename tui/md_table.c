/* Tables as aligned text. Column widths start at what the cells need; when the
 * sum is too wide the widest columns give way first, down to MIN_COL cells;
 * below that each cell becomes a row of its own. */
#include "config.h"
#include "tui/md_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MIN_COL 6
#define GAP     3 /* " | " between columns */

static const struct text_flow *cell(const struct md_table *t, size_t row, size_t col)
{
    return &t->cells[row * t->cols + col];
}

static int natural_width(const struct md_table *t, size_t col)
{
    int most = 1;
    for (size_t r = 0; r < t->rows; r++) {
        const struct buf *b = &cell(t, r, col)->text;
        int w = text_cells(b->data, b->len);
        most = w > most ? w : most;
    }
    return most;
}

/* Narrows the widest columns until the sum fits; false when it cannot. */
static bool fit_widths(int *w, size_t cols, int room)
{
    int sum = 0;
    for (size_t c = 0; c < cols; c++) {
        sum += w[c];
    }
    while (sum > room) {
        size_t widest = 0;
        int second = MIN_COL;
        for (size_t c = 1; c < cols; c++) {
            widest = w[c] > w[widest] ? c : widest;
        }
        for (size_t c = 0; c < cols; c++) {
            if (c != widest && w[c] > second && w[c] < w[widest]) {
                second = w[c];
            }
        }
        if (w[widest] <= MIN_COL) {
            return false;
        }
        int give = w[widest] - second;
        give = give > sum - room ? sum - room : give;
        give = give < 1 ? 1 : give;
        w[widest] -= give;
        sum -= give;
    }
    return true;
}

static void rule(const struct md_table *t, const struct theme *th, const int *w,
                 const struct text_prefix *next, struct text_rows *out)
{
    text_prefix_write(out, next);
    for (size_t c = 0; c < t->cols; c++) {
        if (c) {
            text_rows_puts(out, R_BORDER | TEXT_DECOR, theme_glyph(th, G_HLINE));
            text_rows_puts(out, R_BORDER | TEXT_DECOR, theme_glyph(th, G_CROSS));
            text_rows_puts(out, R_BORDER | TEXT_DECOR, theme_glyph(th, G_HLINE));
        }
        text_rows_fill(out, R_BORDER | TEXT_DECOR, theme_glyph(th, G_HLINE), w[c]);
    }
    text_rows_end(out, true);
}

static int row_cells(const struct text_rows *r, size_t i)
{
    size_t at = r->rows[i].at;
    size_t end = text_row_end(r, i);
    while (end > at && r->text.data[end - 1] == ' ') {
        end--; /* spaces that hang over the wrap */
    }
    return text_cells(r->text.data + at, end - at);
}

/* Appends one table row, as many screen rows as its tallest cell needs. */
static void aligned_row(const struct md_table *t, const struct theme *th, size_t row, const int *w,
                        const struct text_prefix *first, const struct text_prefix *next,
                        struct text_rows *out)
{
    struct text_rows *cells = mem_array(t->cols, sizeof *cells);
    size_t height = 1;
    for (size_t c = 0; c < t->cols; c++) {
        struct text_wrap wrap = {.width = w[c], .mode = WRAP_WORD};
        text_wrap(&cells[c], cell(t, row, c), &wrap);
        height = cells[c].n_rows > height ? cells[c].n_rows : height;
    }
    for (size_t line = 0; line < height; line++) {
        text_prefix_write(out, line == 0 ? first : next);
        int at = text_prefix_cells(line == 0 ? first : next);
        for (size_t c = 0; c < t->cols; c++) {
            if (c) {
                text_rows_puts(out, R_BORDER | TEXT_DECOR, " ");
                text_rows_puts(out, R_BORDER | TEXT_DECOR, theme_glyph(th, G_VLINE));
                text_rows_puts(out, R_BORDER | TEXT_DECOR, " ");
                at += GAP;
            }
            if (line < cells[c].n_rows) {
                int spare = w[c] - row_cells(&cells[c], line);
                int lead = t->align[c] == ALIGN_RIGHT    ? spare
                           : t->align[c] == ALIGN_CENTER ? spare / 2
                                                         : 0;
                text_rows_pad(out, at + lead);
                text_rows_copy(out, &cells[c], line);
            }
            at += w[c];
            if (c + 1 < t->cols) {
                text_rows_pad(out, at);
            }
        }
        text_rows_end(out, true);
    }
    for (size_t c = 0; c < t->cols; c++) {
        text_rows_free(&cells[c]);
    }
    free(cells);
}

/* Where the run that was added last stands in all that is said. */
static void set_from(struct text_flow *f, uint32_t from)
{
    if (f->n_runs) {
        f->runs[f->n_runs - 1].from = from;
    }
}

static void as_pairs(const struct md_table *t, int width, const struct text_prefix *first,
                     const struct text_prefix *next, struct text_rows *out)
{
    for (size_t r = t->rows > 1 ? 1 : 0; r < t->rows; r++) {
        for (size_t c = 0; c < t->cols; c++) {
            struct text_flow f = {0};
            const struct text_flow *name = cell(t, 0, c);
            /* the names are the header's text the first time, ornament after */
            uint16_t style = (uint16_t)(R_STRONG | (r > 1 ? TEXT_DECOR : 0));
            if (t->rows > 1) {
                text_flow_add(&f, style, name->text.data, name->text.len, false);
                set_from(&f, name->from);
                text_flow_add(&f, R_TEXT | TEXT_DECOR, ": ", 2, false);
            }
            const struct text_flow *v = cell(t, r, c);
            for (size_t k = 0; k < v->n_runs; k++) {
                size_t end = k + 1 < v->n_runs ? v->runs[k + 1].at : v->text.len;
                text_flow_add(&f, v->runs[k].style, v->text.data + v->runs[k].at,
                              end - v->runs[k].at, false);
                set_from(&f, v->from + v->runs[k].from);
            }
            bool lead = r <= 1 && c == 0;
            struct text_wrap wrap = {
                .width = width, .mode = WRAP_WORD, .first = lead ? first : next, .next = next};
            text_wrap(out, &f, &wrap);
            text_flow_free(&f);
        }
    }
}

void md_table_layout(const struct md_table *t, const struct theme *th, int width,
                     const struct text_prefix *first, const struct text_prefix *next,
                     struct text_rows *out)
{
    if (t->cols == 0 || t->rows == 0) {
        return;
    }
    int *w = mem_array(t->cols, sizeof *w);
    for (size_t c = 0; c < t->cols; c++) {
        w[c] = natural_width(t, c);
    }
    int room = width - text_prefix_cells(first);
    room = t->cols > (size_t)(room > 0 ? room : 0) ? 0 : room - GAP * (int)(t->cols - 1);
    if (fit_widths(w, t->cols, room)) {
        for (size_t r = 0; r < t->rows; r++) {
            aligned_row(t, th, r, w, r == 0 ? first : next, next, out);
            if (r == 0) {
                rule(t, th, w, next, out);
            }
        }
    } else {
        as_pairs(t, width, first, next, out);
    }
    free(w);
}
