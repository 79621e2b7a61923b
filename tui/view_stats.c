/* Columns stand for groups of slices that begin at fixed times, so that a column does not
 * change any more once its time is over and the picture only moves by whole columns. */
#include "config.h"
#include "tui/view_stats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "tui/figures.h"

#define NAME_CELLS   11 /* of a row, with the edge */
#define NUMBER_CELLS 9
#define NUMBERS      4
#define LEAST_SPARKS 12

/* How a screen of some width is divided. */
struct grid {
    int numbers; /* of now, average, p5, p95 */
    int columns;
    int each;       /* slices of a column */
    int64_t newest; /* number of the group that now is in */
};

static struct grid grid_of(const struct stats_view *v, const struct stats_now *t, int width)
{
    struct grid g = {.numbers = NUMBERS};
    const int slices = hist_slices(v->span);
    int room = 0;
    for (; g.numbers >= 0; g.numbers--) {
        room = width - NAME_CELLS - NUMBER_CELLS * g.numbers - 1;
        if (room >= LEAST_SPARKS) {
            break;
        }
    }
    g.numbers = g.numbers < 0 ? 0 : g.numbers;
    room = room < 1 ? 1 : room;
    g.each = (slices + room - 1) / room;
    g.columns = (slices + g.each - 1) / g.each;
    g.columns = g.columns < room ? g.columns : room;
    g.newest = t->now / hist_length(v->span) / g.each;
    return g;
}

/* How many columns from the right the cursor is; -1: none. */
static int cursor_column(const struct stats_view *v, const struct grid *g)
{
    if (!v->has_cursor) {
        return -1;
    }
    const int64_t c = g->newest - v->cursor / hist_length(v->span) / g->each;
    return c < 0 || c >= g->columns ? -1 : (int)c;
}

void stats_move(struct stats_view *v, const struct stats_now *t, int width, int columns)
{
    const struct grid g = grid_of(v, t, width);
    int c = cursor_column(v, &g) - columns;
    v->has_cursor = c >= 0;
    c = c >= g.columns ? g.columns - 1 : c;
    v->cursor = (g.newest - c) * g.each * hist_length(v->span);
}

/* What happened in each column, 0 the newest; owned by the caller. */
static struct hist_slice *columns_of(const struct hist *h, const struct stats_view *v,
                                     const struct stats_now *t, const struct grid *g)
{
    struct hist_slice *c = mem_array((size_t)g->columns, sizeof *c);
    const int64_t now = t->now / hist_length(v->span);
    for (int i = 0; i < g->columns; i++) {
        const int64_t first = (g->newest - i) * g->each;
        const int64_t young = now - (first + g->each - 1);
        (void)hist_sum(h, v->span, t->now, young < 0 ? 0 : (int)young, (int)(now - first) + 1, 0,
                       &c[i]);
    }
    return c;
}

static void put(struct text_rows *out, uint16_t style, const char *s, int width)
{
    text_rows_span(out, style, s, text_fit(s, strlen(s), width));
    text_rows_end(out, true);
}

static void clock_of(int64_t wall, char out[16])
{
    struct tm tm;
    const time_t t = (time_t)wall;
    localtime_r(&t, &tm);
    snprintf(out, 16, "%02d:%02d:%02d", tm.tm_hour % 100, tm.tm_min % 100, tm.tm_sec % 100);
}

static int64_t wall_of(const struct stats_now *t, int64_t at)
{
    return t->wall - (t->now - at) / HIST_SEC_NS;
}

static void title_row(const struct hist *h, const struct stats_view *v, const struct stats_now *t,
                      const struct grid *g, int width, struct text_rows *out)
{
    char s[160];
    char at[16];
    int n = snprintf(s, sizeof s, " STATS  %s", v->span == HS_SECONDS ? "10 min" : "24 h");
    const int c = cursor_column(v, g);
    if (c >= 0) {
        const int64_t length = hist_length(v->span) * g->each;
        clock_of(wall_of(t, (g->newest - c) * length), at);
        n += snprintf(s + n, sizeof s - (size_t)n, "  at %s for %d s", at,
                      (int)(length / HIST_SEC_NS));
    }
    if (hist_reset_at(h) > 0) {
        clock_of(wall_of(t, hist_reset_at(h)), at);
        snprintf(s + n, sizeof s - (size_t)n, "  averages since %s", at);
    }
    put(out, R_STRONG, s, width);
}

static void head_row(const struct stats_view *v, const struct stats_now *t, const struct grid *g,
                     int width, struct text_rows *out)
{
    const char *const heads[NUMBERS] = {cursor_column(v, g) >= 0 ? "then"
                                        : t->busy                ? "now"
                                                                 : "last",
                                        "average", "p5", "p95"};
    struct buf b = BUF_INIT;
    buf_printf(&b, "%*s", NAME_CELLS + g->columns, "");
    for (int i = 0; i < g->numbers; i++) {
        buf_printf(&b, "%*s", NUMBER_CELLS, heads[i]);
    }
    put(out, R_DIM, b.data, width);
    buf_free(&b);
}

static void data_row(const struct hist *h, const struct stats_view *v, const struct stats_now *t,
                     const struct grid *g, const struct hist_slice *column, enum hist_row row,
                     const struct theme *th, int width, struct text_rows *out)
{
    struct buf b = BUF_INIT;
    struct hist_stats st;
    char number[FIGURE_SIZE];
    double top = figure_full(row);
    for (int i = 0; i < g->columns; i++) {
        const double x = column[i].filled ? hist_value(&column[i], row) : NAN;
        top = x > top ? x : top;
    }
    buf_printf(&b, " %-*s", NAME_CELLS - 1, hist_row_name(row));
    for (int i = g->columns - 1; i >= 0; i--) {
        figure_spark(th, column[i].filled ? hist_value(&column[i], row) : NAN, top, &b);
    }
    hist_stats(h, v->span, t->now, hist_slices(v->span), -1, row, &st);
    const int c = cursor_column(v, g);
    if (c >= 0) {
        st.now = column[c].filled ? hist_value(&column[c], row) : NAN;
    }
    const double numbers[NUMBERS] = {st.now, st.average, st.p5, st.p95};
    for (int i = 0; i < g->numbers; i++) {
        figure_row(row, numbers[i], number);
        buf_printf(&b, "%*s", NUMBER_CELLS, number);
    }
    put(out, R_TEXT, b.data, width);
    buf_free(&b);
}

static char mark_of(unsigned marks)
{
    return marks & HM_RESET     ? '|'
           : marks & HM_DISCARD ? 'x'
           : marks & HM_RESTORE ? 'r'
           : marks & HM_PLAIN   ? 'p'
                                : ' ';
}

static void mark_row(const struct grid *g, const struct hist_slice *column, int width,
                     struct text_rows *out)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, " %-*s", NAME_CELLS - 1, "marks");
    for (int i = g->columns - 1; i >= 0; i--) {
        buf_addc(&b, column[i].filled ? mark_of(hist_marks(&column[i])) : ' ');
    }
    put(out, R_WARN, b.data, width);
    buf_free(&b);
}

/* The cursor, or where time begins and ends. */
static void axis_row(const struct stats_view *v, const struct grid *g, int width,
                     struct text_rows *out)
{
    struct buf b = BUF_INIT;
    const int c = cursor_column(v, g);
    if (c >= 0) {
        buf_printf(&b, "%*s^", NAME_CELLS + g->columns - 1 - c, "");
        put(out, R_STRONG, b.data, width);
    } else {
        const char *from = v->span == HS_SECONDS ? "-10 min" : "-24 h";
        buf_printf(&b, "%*s%s%*s", NAME_CELLS, "", from, g->columns - (int)strlen(from), "now");
        put(out, R_DIM, b.data, width);
    }
    buf_free(&b);
}

void stats_layout(const struct hist *h, struct stats_view *v, const struct stats_now *t,
                  const char *keys, const struct theme *th, int width, int rows,
                  struct text_rows *out)
{
    static const char legend[] = " x drafts of no use, or a failure  p plain decoding began  "
                                 "r state restored  | averages begin";
    static const char brief[] =
        " x drafts of no use, or a failure  p plain  r state restored  | averages begin";
    const struct grid g = grid_of(v, t, width);
    struct hist_slice *column = columns_of(h, v, t, &g);
    /* what gives way on a small screen, first: legend, foot, axis, head, marks, title */
    const bool has_legend = rows >= 12;
    const bool has_foot = rows >= 6;
    const bool has_axis = rows >= 5;
    const bool has_head = rows >= 4;
    const bool has_marks = rows >= 3;
    const bool has_title = rows >= 2;
    const int fixed = has_legend + has_foot + has_axis + has_head + has_marks + has_title;
    const int room = rows - fixed > 0 ? rows - fixed : 0;
    const int last = HR_COUNT - room > 0 ? HR_COUNT - room : 0;
    v->top = v->top < 0 ? 0 : v->top > last ? last : v->top;
    if (has_title) {
        title_row(h, v, t, &g, width, out);
    }
    if (has_head) {
        head_row(v, t, &g, width, out);
    }
    for (int i = 0; i < room; i++) {
        if (v->top + i < HR_COUNT) {
            data_row(h, v, t, &g, column, (enum hist_row)(v->top + i), th, width, out);
        } else {
            text_rows_end(out, true);
        }
    }
    if (has_marks) {
        mark_row(&g, column, width, out);
    }
    if (has_axis) {
        axis_row(v, &g, width, out);
    }
    if (has_legend) {
        put(out, R_DIM, (int)sizeof legend - 1 <= width ? legend : brief, width);
    }
    if (has_foot) {
        char s[256];
        if (last > 0) {
            snprintf(s, sizeof s, " %d of %d  %s", room, (int)HR_COUNT, keys);
        } else {
            snprintf(s, sizeof s, " %s", keys);
        }
        for (char *end = s + strlen(s); (int)strlen(s) > width && end > s; end--) {
            if (end[0] == ' ' && end[1] == ' ') { /* a key that does not fit is left out whole */
                *end = 0;
            }
        }
        put(out, R_STRONG, s, width);
    }
    free(column);
}
