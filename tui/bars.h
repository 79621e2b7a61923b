#ifndef QUASAR_TUI_BARS_H
#define QUASAR_TUI_BARS_H

#include "tui/app.h"
#include "tui/layout.h"

/*
 * The rows around the panes: title, titles of panes, activity rule, status line, hints, and
 * what an empty pane shows. A part that does not fit is left out whole, from the right. UI
 * thread only.
 */
void bars_title(const struct app *a, int y, int width);
/* The title of a pane by its number, at the head of its rectangle. */
void bars_pane(const struct app *a, size_t pane, const struct rect *r);
void bars_rule(const struct app *a, int y, int width);
/* What the rule says, at the right end of a row that is something else, and in how many cells. */
void bars_merged(const struct app *a, int y, int width);
int bars_merged_cells(const struct app *a, int width);
void bars_line(const struct app *a, int y, int width);
void bars_hints(struct app *a, int y, int width);
void bars_welcome(const struct app *a, const struct rect *r);

#endif
