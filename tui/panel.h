#ifndef QUASAR_TUI_PANEL_H
#define QUASAR_TUI_PANEL_H

#include <stdbool.h>
#include <stdint.h>

#include "tui/text.h"
#include "tui/theme.h"
#include "view/hist.h"
#include "view/load.h"
#include "view/requests.h"
#include "view/view.h"

/*
 * How the engine works, beside the transcript: speed, tokens of a round, acceptance of
 * drafts over the last minutes in which it did something; the prompt; who has the cache; the
 * listener. UI thread only.
 */
#define PANEL_WIDTH 40

/* The name of a stored conversation, by its number; NULL: not known. */
typedef const char *(*panel_name_fn)(void *ctx, int64_t conversation);

struct panel {
    const struct hist *hist;
    int64_t now; /* of the history's clock */
    bool busy;
    const struct view_chat *chat;
    const struct view_model *model;
    bool prefilling;  /* a prompt is being computed … */
    int done, total;  /* … so many of its tokens */
    double prefill_s; /* for so long */
    const struct view_kv *kv;
    int64_t mine; /* conversation in view, 0: it has no number yet */
    panel_name_fn name;
    void *name_ctx;
    struct requests *requests; /* NULL: there is no listener */
    const char *listener_key;  /* what opens its view */
};

/* At most `rows` rows of at most width cells. What is not known is a dash. */
void panel_layout(const struct panel *p, const struct theme *th, int width, int rows,
                  struct text_rows *out);
/* The cache's part of it, as words: "A parser rewrite 41.2K tokens, 1.4 G, running". */
void panel_kv_words(const struct panel *p, const struct theme *th, struct buf *out);

#endif
