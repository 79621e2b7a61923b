#ifndef QUASAR_TUI_LAYOUT_H
#define QUASAR_TUI_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "tui/tiles.h"

/*
 * Which part of the screen is where, at every size: what gives way on a small one goes in a
 * fixed order. Plain arithmetic, so that it can be tried at every size.
 */
#define LAYOUT_MIN_ROWS   10
#define LAYOUT_MIN_COLS   40
#define LAYOUT_PANEL_FROM 110 /* columns */
#define LAYOUT_LIST_FROM  180
#define LAYOUT_LIST_COLS  30
#define LAYOUT_HINTS_FROM 20 /* rows */
#define LAYOUT_SIDE_ROWS  20 /* panel and list need so many */

struct layout_wants {
    int rows, cols;
    const struct tiles *tiles;
    size_t cur;        /* the pane that has the keys */
    int composer_rows; /* of its draft */
    int queued;        /* rows of messages that wait */
    int panel;         /* columns of the side panel, its border included; 0: not wanted */
    bool list;         /* the docked list of conversations */
};

struct layout {
    bool tiny;   /* only the line that says so */
    bool merged; /* no rule of its own: what the engine does stands in the composer's row */
    /* rows; -1: left out */
    int title, rule, composer, composer_rows, queued, queued_rows, status, hints;
    int edge;                    /* the first row below the panes */
    struct rect list, panel;     /* cols 0: none; the border is inside */
    struct rect body;            /* all panes */
    bool titles;                 /* panes have a row for their title, the first of theirs */
    bool alone;                  /* no room for all: only the one that has the keys is shown */
    struct rect pane[TILES_MAX]; /* rows 0: not shown */
};

void layout_make(const struct layout_wants *w, struct layout *out);

#endif
