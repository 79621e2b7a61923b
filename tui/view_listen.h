#ifndef QUASAR_TUI_VIEW_LISTEN_H
#define QUASAR_TUI_VIEW_LISTEN_H

#include <stdbool.h>
#include <stdint.h>

#include "tui/text.h"
#include "tui/theme.h"
#include "view/requests.h"

/* The listener on a whole screen: its requests as a table, and what one of them is. UI
 * thread. */
struct listen_view {
    uint64_t picked; /* id; 0: the first */
    bool detail;     /* its shape and times are shown … */
    bool body;       /* … and its text */
    int body_top;
};

/* Exactly `rows` rows of at most width cells. r NULL: this program has no listener. keys: the
 * line at the foot. now: the real clock. */
void listen_layout(struct requests *r, struct listen_view *v, int64_t now, const char *keys,
                   const struct theme *th, int width, int rows, struct text_rows *out);
/* Picks the next or previous one; scrolls the text when that is shown. */
void listen_move(struct requests *r, struct listen_view *v, int by);
/* The one that is picked; false: there is none. */
bool listen_picked(struct requests *r, const struct listen_view *v, struct view_request *out);

/* The rows of the panel: a line for the listener, and so many of its live requests as there is
 * room for. */
void listen_summary(struct requests *r, int64_t now, const char *key, const struct theme *th,
                    int width, int rows, struct text_rows *out);

#endif
