#ifndef QUASAR_TUI_FOUND_H
#define QUASAR_TUI_FOUND_H

#include "conv/finder.h"
#include "tui/app.h"

/* Places in the texts of stored conversations that the list's words are in. They come a moment
 * after the words are typed, from a thread of their own. UI thread only. */
struct found_list {
    struct finder *finder; /* NULL: nothing was asked yet */
    struct finding answer; /* what is shown: of the words, or still of those before */
    bool asked;            /* the answer to the words has not come */
};

/* The words changed; none: nothing is asked for, and nothing shown. */
void found_ask(struct app *a, struct found_list *f, const char *words, size_t n);
/* Takes an answer; false: none came. What failed is told. */
bool found_take(struct app *a, struct found_list *f);
void found_free(struct found_list *f);

/* What the search of a transcript looks for, once a place is opened: each of the words, or, where
 * it was found in another form, that. */
void found_pattern(const struct finding *f, const struct found *at, struct buf *out);

/* Draws the place in one line, so that its first found word can be seen. */
void found_draw(const struct theme *th, int y, int x, int width, uint16_t style,
                const struct found *at);

#endif
