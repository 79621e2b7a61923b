#ifndef QUASAR_TUI_TRANSCRIPT_H
#define QUASAR_TUI_TRANSCRIPT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "tui/search.h"
#include "tui/text.h"
#include "tui/theme.h"

/*
 * The conversation as blocks that fold, and a view on them that is anchored to
 * a row: what is being read does not move when text arrives below. UI thread
 * only.
 */
struct transcript;

struct transcript *transcript_create(void);
void transcript_free(struct transcript *t);
void transcript_clear(struct transcript *t);
bool transcript_is_empty(const struct transcript *t);

/* clock is "14:02" and is copied. shown is what the screen shows (chips as
 * labels), full what was sent. */
void transcript_user(struct transcript *t, const char *clock, const struct buf *shown,
                     const struct buf *full);
/* Opens a model block; text goes to it until transcript_end. */
void transcript_model(struct transcript *t, const char *clock);
/* When the message that was added last was said, in seconds since 1970. */
void transcript_at(struct transcript *t, int64_t seconds);
/* An answer that has not begun says so under its clock: how many others must end before it.
 * 0: it waits no more. */
void transcript_wait(struct transcript *t, const char *clock, int ahead);
void transcript_thought(struct transcript *t, const char *p, size_t n);
/* The thought is over (or, live: still growing): what its one line says.
 * Negative figures are not known. */
void transcript_thought_facts(struct transcript *t, bool over, double seconds, int tokens);
void transcript_text(struct transcript *t, const char *p, size_t n);
/* Closes the block; note (may be empty) is shown below it in the given role. */
void transcript_end(struct transcript *t, enum role role, const char *note);
void transcript_notice(struct transcript *t, enum role role, const char *text);

/* Thoughts that are over stay open (show) or fold to one line (the default). */
void transcript_show_thoughts(struct transcript *t, bool show);

/* The newest blocks, from the last question on, are messages of the conversation, numbered
 * from n. Returns the number after them. A block that is not one of them has no number. */
size_t transcript_kept(struct transcript *t, size_t n);
/* A question: of the selected block (turn 0; the last one without a selection), or the one of
 * that number from 1. *keep: how many messages are before it; *text: what was sent, borrowed. */
bool transcript_question(const struct transcript *t, size_t turn, size_t *keep,
                         const struct buf **text);
/* As the screen shows it; text is what transcript_question gave. */
const struct buf *transcript_question_shown(const struct transcript *t, const struct buf *text);
/* How many messages there are up to the answer of the question that has `keep` before it;
 * keep itself when it has no answer. */
size_t transcript_answered(const struct transcript *t, size_t keep);
/* Takes away everything after the first `keep` messages. */
void transcript_cut(struct transcript *t, size_t keep);
/* A place that can be gone back to: all that was shown since is taken away. */
size_t transcript_mark(const struct transcript *t);
void transcript_back_to(struct transcript *t, size_t mark);

/* Scrolling, in rows; positive is down. */
void transcript_scroll(struct transcript *t, int rows);
void transcript_top(struct transcript *t);
void transcript_follow(struct transcript *t);

/* What is looked for is marked from the next drawing on, which goes to the match
 * nearest above the end of the view. s is borrowed until the next call; NULL ends it. */
void transcript_search(struct transcript *t, const struct search *s);
/* The same; the next drawing goes to the first match in the message that has so many before it,
 * or to that message, when it shows none. */
void transcript_search_in(struct transcript *t, const struct search *s, long message);
/* The next drawing goes on to the match before (-1) or after (+1), around the ends. */
void transcript_search_step(struct transcript *t, int dir);
/* As last drawn: how many there are, and which one is shown, from 1 (0: none). */
size_t transcript_search_count(const struct transcript *t, size_t *shown);
bool transcript_following(const struct transcript *t);

/* The selected block (none: -1 … by select 0). dir -1, +1 moves, 0 ends it. */
void transcript_select(struct transcript *t, int dir);
/* The first (-1) or last (+1) one; the view stays. */
void transcript_select_end(struct transcript *t, int dir);
bool transcript_fold(struct transcript *t);
/* The next block of code of the selected message is selected in it, after the last one none; false:
 * there is none. hint is shown at its edge. */
bool transcript_next_code(struct transcript *t, const char *hint);
/* Its number, from 1, of how many; 0: none is selected. */
size_t transcript_code(const struct transcript *t, size_t *of);
/* A click on a row as it was last drawn: selects the block there, and on its first row folds or
 * opens its thought too. False: there is none. */
bool transcript_click(struct transcript *t, int row);
/* Widths of characters changed. */
void transcript_relayout(struct transcript *t);
void transcript_fold_all(struct transcript *t);
/* The raw text of the selected block, of the last answer; NULL when none. */
const struct buf *transcript_selected_text(const struct transcript *t);
const struct buf *transcript_last_answer(const struct transcript *t);

/* Draws height rows from (y, x) on; returns how many rows are hidden below the view, -1:
 * not known. */
int transcript_draw(struct transcript *t, const struct theme *th, int y, int x, int height,
                    int width);

/* How many rows came below since the view left the end, as last drawn. */
int transcript_fresh_rows(const struct transcript *t);

/* A message of the conversation; what is pointed to is borrowed. */
struct transcript_message {
    bool user;
    const char *clock;         /* when, "14:02" */
    int64_t at;                /* … in seconds since 1970; 0: not known */
    const struct buf *text;    /* as it was sent, or came */
    const struct buf *thought; /* of the model's; may be empty */
    const char *note;          /* what stands below it ("stopped"); may be empty */
    bool selected;
};
/* Tells of every message, from the first on. */
void transcript_each(const struct transcript *t,
                     void (*fn)(void *ctx, const struct transcript_message *m), void *ctx);

#endif
