#ifndef QUASAR_TUI_PANEL_H
#define QUASAR_TUI_PANEL_H

#include <stdint.h>

#include "tui/text.h"
#include "tui/theme.h"
#include "view/spec.h"
#include "view/view.h"

/*
 * How the engine works: speed, tokens of a round, acceptance of drafts, over the last
 * minute in which it decoded, and the figures of the last prompt. UI thread only.
 */
#define GAUGE_SLICES   60
#define GAUGE_SLICE_NS 1000000000LL
#define PANEL_WIDTH    40

struct gauges {
    struct view_spec total;               /* at the end of the last slice */
    struct view_spec slice[GAUGE_SLICES]; /* what happened in each, a ring */
    int n, next;
    int64_t since; /* when the slice that grows began; 0: none does */
};

/* The counters as they are now, at a time of any clock. Ends a slice when it lasted a second,
 * or (over) the engine is done; one without a decode round is none. */
void gauges_take(struct gauges *g, int64_t now, const struct view_spec *total, bool over);

/* The rows of the panel. What is not known is a dash. */
void panel_layout(const struct gauges *g, const struct view_chat *chat,
                  const struct view_model *model, const struct theme *th, int width,
                  struct text_rows *out);

#endif
