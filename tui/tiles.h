#ifndef QUASAR_TUI_TILES_H
#define QUASAR_TUI_TILES_H

#include <stdbool.h>
#include <stddef.h>

/*
 * How up to four panes share a rectangle: each split puts two parts side by side or one below
 * the other. Panes are numbered as they are read: left before right, upper before lower. Plain
 * data; any thread.
 */
#define TILES_MAX 4

struct rect {
    int y, x, rows, cols;
};

struct tiles {
    char code[2 * TILES_MAX]; /* the tree, an operator before its two parts, and a NUL */
};

/* One pane. */
void tiles_init(struct tiles *t);
size_t tiles_count(const struct tiles *t);
/* Splits a pane: the new one is the next by number, beside it or below it. False: there are
 * as many as there can be. */
bool tiles_split(struct tiles *t, size_t pane, bool beside);
/* Takes a pane away; its neighbour gets the room. Not the only one. */
void tiles_remove(struct tiles *t, size_t pane);
/* Where each pane goes. Between two that are side by side one column stays free. False: a pane
 * would have fewer rows or columns than least. */
bool tiles_place(const struct tiles *t, const struct rect *area, int least_rows, int least_cols,
                 struct rect out[TILES_MAX]);

#endif
