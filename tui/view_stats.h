#ifndef QUASAR_TUI_VIEW_STATS_H
#define QUASAR_TUI_VIEW_STATS_H

#include <stdbool.h>
#include <stdint.h>

#include "tui/text.h"
#include "tui/theme.h"
#include "view/hist.h"

/* The history on a whole screen: a row of sparks for every figure, marks and a cursor in
 * time. UI thread. */
struct stats_view {
    enum hist_span span;
    bool has_cursor;
    int64_t cursor; /* a time in the column that it points at */
    int top;        /* rows scrolled away */
};

/* When it is: the history's clock, seconds since 1970, and whether the engine works. */
struct stats_now {
    int64_t now, wall;
    bool busy;
};

/* Exactly `rows` rows of at most width cells. keys: the line at the foot. */
void stats_layout(const struct hist *h, struct stats_view *v, const struct stats_now *t,
                  const char *keys, const struct theme *th, int width, int rows,
                  struct text_rows *out);
/* Moves the cursor by so many columns of the layout of that width; beyond now there is none. */
void stats_move(struct stats_view *v, const struct stats_now *t, int width, int columns);

#endif
