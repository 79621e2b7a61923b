#ifndef QUASAR_TUI_VIEW_LOG_H
#define QUASAR_TUI_VIEW_LOG_H

#include "tui/logbook.h"

/* The log on a whole screen, latest line lowest. UI thread. */
struct log_view {
    struct text_rows rows; /* of all lines, as last laid out … */
    unsigned version;      /* … of these */
    int width;
    int up; /* rows between the view's end and the log's */
};
void log_view_fini(struct log_view *v);

/* Lays the lines out when they changed and says how many rows the view shows and which is the
 * first; room: rows there are. */
int log_view_update(struct log_view *v, struct logbook *b, const struct theme *th, int width,
                    int room, size_t *first);

#endif
