#ifndef QUASAR_TUI_MD_TABLE_H
#define QUASAR_TUI_MD_TABLE_H

#include <stddef.h>

#include "tui/text.h"
#include "tui/theme.h"

/* One table: the cells row by row, the first row being the header. */
enum md_align { ALIGN_LEFT, ALIGN_CENTER, ALIGN_RIGHT };
struct md_table {
    size_t cols, rows;
    struct text_flow *cells; /* rows x cols */
    enum md_align *align;    /* cols */
};

/* Appends the table: aligned columns, narrowed with wrapped cells when they do
 * not fit, and one "name: value" row per cell when even that is too wide. */
void md_table_layout(const struct md_table *t, const struct theme *th, int width,
                     const struct text_prefix *first, const struct text_prefix *next,
                     struct text_rows *out);

#endif
