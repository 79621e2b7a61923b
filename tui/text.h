#ifndef QUASAR_TUI_TEXT_H
#define QUASAR_TUI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "tui/theme.h"

/*
 * Between stored text and the screen: one filter that makes every byte from
 * outside harmless and visible, one way to count cells, one way to wrap, one
 * writer. UI thread only.
 */

/* Appends the visible form of p[0..n): well-formed UTF-8 in which the only
 * control character is '\n'. Controls show as pictures (ascii: as ^[), C1 as
 * <9B>, bidirectional overrides as <RLO>, ill-formed bytes as U+FFFD, tabs as
 * spaces up to the next multiple of eight; CR LF becomes LF. *col (may be
 * NULL) is the column at which the text starts, and then the one where it
 * ends. */
void text_filter(const char *p, size_t n, bool ascii, int *col, struct buf *out);

/* Zero-width code points that are kept in the text and not drawn: joiners, variation selectors,
 * direction marks. */
bool text_undrawn(uint32_t cp);
/* Of these, the ones that join or vary the characters beside them. */
bool text_joins(uint32_t cp);
/* Cells of filtered text without newlines. */
int text_cells(const char *p, size_t n);
/* Bytes of the longest prefix, in whole clusters, of at most max cells. */
size_t text_fit(const char *p, size_t n, int max);

/* Text with styles, lines separated by '\n'. */
struct text_run {
    size_t at;     /* first byte */
    uint32_t from; /* where that stands in all that is said; of no meaning in an ornament */
    uint16_t style;
};
struct text_flow {
    struct buf text;
    uint32_t from; /* where it stands in all that is said; its runs count from there */
    struct text_run *runs;
    size_t n_runs, cap_runs;
};
/* Appends through the filter. */
void text_flow_add(struct text_flow *f, uint16_t style, const char *p, size_t n, bool ascii);
/* Empties it and keeps the memory. */
void text_flow_clear(struct text_flow *f);
void text_flow_free(struct text_flow *f);

/* Laid-out rows. Row i is text[rows[i].at .. end of row i) with its runs. */
struct text_row {
    size_t at, run;
    bool hard; /* the text's own line ends here */
};
struct text_rows {
    struct buf text;
    struct text_run *runs;
    size_t n_runs, cap_runs;
    struct text_row *rows;
    size_t n_rows, cap_rows;
    bool open; /* a row was begun and not ended */
    int cells; /* of the open row */
};
/* Appends filtered text to the open row (begins one when none is open). */
void text_rows_span(struct text_rows *r, uint16_t style, const char *p, size_t n);
/* The same, of text that stands at `from` in all that is said. */
void text_rows_said(struct text_rows *r, uint16_t style, const char *p, size_t n, uint32_t from);
void text_rows_puts(struct text_rows *r, uint16_t style, const char *s);
/* Appends count copies of s, or spaces up to the cell column. */
void text_rows_fill(struct text_rows *r, uint16_t style, const char *s, int count);
void text_rows_pad(struct text_rows *r, int column);
/* Ends the open row (an empty one when none is open). */
void text_rows_end(struct text_rows *r, bool hard);
/* Appends row i of src to the open row. */
void text_rows_copy(struct text_rows *r, const struct text_rows *src, size_t i);
/* Forgets the rows from n on. */
void text_rows_truncate(struct text_rows *r, size_t n);
void text_rows_free(struct text_rows *r);
size_t text_row_end(const struct text_rows *r, size_t i);
/* The run of row i after k, or its first one (k NULL); NULL after the last. *end is the end of its
 * bytes in the rows' text. */
const struct text_run *text_row_run(const struct text_rows *r, size_t i, const struct text_run *k,
                                    size_t *end);
/* Appends row i's own text, without ornaments. */
void text_row_text(const struct text_rows *r, size_t i, struct buf *out);

/* What stands before each row of a wrapped text. */
struct text_prefix {
    int n;
    struct {
        uint16_t style;
        char s[24];
    } part[20];
};
void text_prefix_push(struct text_prefix *p, uint16_t style, const char *s);
int text_prefix_cells(const struct text_prefix *p);
void text_prefix_write(struct text_rows *r, const struct text_prefix *p);

enum text_wrap_mode {
    WRAP_WORD, /* at spaces, which hang over the edge; long words are cut */
    WRAP_CHAR  /* at any character; continued rows begin with mark */
};

struct text_wrap {
    int width; /* cells, prefix included; at least one is used for the text */
    enum text_wrap_mode mode;
    const struct text_prefix *first, *next; /* NULL: none */
    const char *mark;                       /* NULL: none */
    const char *right;                      /* right edge, after padding; NULL: none */
};
/* Appends the rows of f, at least one. */
void text_wrap(struct text_rows *out, const struct text_flow *f, const struct text_wrap *w);

/* The writers. Both clip at width cells and at the screen's edge. */
/* Draws row i at (y, x), with bits or-ed into every style, and blanks the rest
 * of the width. */
void text_draw_row(const struct theme *th, int y, int x, int width, const struct text_rows *r,
                   size_t i, uint16_t bits);
/* Draws one line of raw text (filtered here); returns the cells used. */
int text_put(const struct theme *th, int y, int x, int width, uint16_t style, const char *s);
/* Draws a glyph of one cell again and again over width cells. */
void text_repeat(const struct theme *th, int y, int x, int width, uint16_t style, const char *s);
/* Blanks width cells. */
void text_blank(const struct theme *th, int y, int x, int width);

#endif
