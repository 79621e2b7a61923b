#ifndef QUASAR_TUI_MD_H
#define QUASAR_TUI_MD_H

#include <stddef.h>

#include "base/buf.h"
#include "tui/text.h"
#include "tui/theme.h"

/*
 * Markdown that grows. Text is appended as it streams; layout gives the rows
 * at a width and lays out again only what is still open. No letter of the
 * source is ever hidden: what the markup would swallow is shown as plain text.
 * UI thread only.
 */
struct md;

struct md *md_create(void);
void md_free(struct md *m);
void md_add(struct md *m, const char *p, size_t n);
/* Nothing more comes: no memory is kept for it. */
void md_end(struct md *m);
/* The text as it came. */
const struct buf *md_source(const struct md *m);
/* Rows at a width; valid until the next call. No row for an empty text. */
const struct text_rows *md_layout(struct md *m, const struct theme *th, int width);
/* The fenced blocks of code in the rows as last laid out: how many, and which rows the i-th has,
 * its edges too. */
size_t md_codes(const struct md *m);
void md_code_rows(const struct md *m, size_t i, size_t *row, size_t *rows);
/* Gives the memory of the rows back; the next layout makes them anew. */
void md_forget(struct md *m);
/* What the rows say at whatever width, without ornaments, a line for each line of a paragraph, of
 * code, and for each cell of a table; .from of the rows' runs are places in it. Valid until the
 * next call. It costs about a fifth of a layout. */
const struct buf *md_said(struct md *m, const struct theme *th);
/* Gives the memory of that back. */
void md_forget_said(struct md *m);

#endif
