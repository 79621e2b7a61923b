#ifndef QUASAR_TUI_COMPOSER_H
#define QUASAR_TUI_COMPOSER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "tui/history.h"
#include "tui/input.h"
#include "tui/text.h"

/*
 * The draft: libedit on a private pseudo-terminal does the editing, this file
 * shows it. Big pastes are chips: one character in the draft that stands for
 * all of their bytes. UI thread only.
 */
struct composer;

/* wait runs one turn of the main loop; it is called while a command of several
 * keys waits for the next one, and returns false to give the command up. Must
 * be created before curses is started. h is borrowed. */
struct composer *composer_create(bool vi, struct history *h, bool (*wait)(void *), void *ctx,
                                 struct err *e);
void composer_free(struct composer *c);
void composer_set_editor(struct composer *c, bool vi);
bool composer_is_vi(const struct composer *c);

/* Feeds a key. QE_NOMEM: the draft is full. */
int composer_key(struct composer *c, const struct key *k, struct err *e);
/* Inserts pasted bytes, as text or as a chip. */
int composer_paste(struct composer *c, const char *p, size_t n, struct err *e);
/* A command at the beginning of a line of the draft, where chips and spaces do not count. */
struct line_command {
    size_t at, end;  /* its place in the draft */
    bool last;       /* only white space follows */
    struct buf text; /* with the slash, to the end of the line or the next chip */
};
/* The first one from a place on that is a line's beginning or the end of another; text is
 * replaced and stays the caller's. False: there is none. */
bool composer_command(const struct composer *c, size_t from, struct line_command *out);
/* What a file's text begins with in a message; its name and a line's end follow. Its chip shows
 * the size of what comes after that line. */
#define COMPOSER_FILE_HEAD "File "
/* Puts a file in the place of a command, as a chip that shows its name and size; p may begin with
 * COMPOSER_FILE_HEAD. QE_NOMEM: there is no room. */
int composer_attach(struct composer *c, const struct line_command *in, const char *name,
                    const char *p, size_t n, struct err *e);
/* The word before the cursor that begins with an @ at its beginning; it may have blanks in quotes.
 * end is the cursor. False: there is none. */
bool composer_at_word(const struct composer *c, struct line_command *out);
/* Where the cursor is in the draft, in characters. */
size_t composer_cursor(const struct composer *c);
/* Puts text, which may be a few words, in the place of [at, end); the cursor goes behind it. */
void composer_replace(struct composer *c, size_t at, size_t end, const char *text);
/* The paste or file at the cursor, or right before it: its place, name (NULL: a paste) and bytes,
 * borrowed. False: there is none. */
bool composer_chip(const struct composer *c, size_t *at, const char **name,
                   const struct buf **bytes);
/* Gives the one at a place other bytes. */
int composer_chip_set(struct composer *c, size_t at, const char *p, size_t n, struct err *e);
/* Replaces the draft by a text in which labels of its pastes and files, as composer_display
 * shows them, stand for those. */
void composer_set_shown(struct composer *c, const char *p, size_t n);
/* Puts a paste of a draft before into this one: the last is 1. QE_NOTFOUND. */
int composer_paste_again(struct composer *c, size_t back, struct err *e);
/* Puts a file before the whole draft, as a chip; the cursor goes to the end. */
int composer_put_file(struct composer *c, const char *name, const char *p, size_t n, struct err *e);
/* Whether a file of that name is in what is shown, or (shown false) in the draft that comes back
 * when an earlier prompt is shown. */
bool composer_has_file(const struct composer *c, const char *name, bool shown);
/* Enter: turns a backslash before the cursor into a new line and returns
 * false; true means send. */
bool composer_enter(struct composer *c);
void composer_newline(struct composer *c);
/* Puts the cursor where it stands nearest to a cell of the rows as last laid out. */
void composer_point(struct composer *c, int row, int col);
void composer_undo(struct composer *c);

/* A command of several keys waits for its next key. */
bool composer_pending(const struct composer *c);
/* Gives it up; takes effect when the wait callback returns. */
void composer_give_up(struct composer *c);

bool composer_empty(const struct composer *c);
/* Appends the whole draft, chips replaced by their bytes; a file's end with a line's end. */
void composer_text(const struct composer *c, struct buf *out);
/* Appends the draft as it is shown, chips as their labels. */
void composer_display(const struct composer *c, struct buf *out);
/* Replaces the draft. */
void composer_set(struct composer *c, const char *p, size_t n);
void composer_clear(struct composer *c);

/* A copy of the draft, its chips and the cursor's place. */
struct draft;
struct draft *composer_copy(const struct composer *c);
void draft_free(struct draft *d);
/* Replaces the draft by a copy that was taken before. */
void composer_restore(struct composer *c, const struct draft *d);

/* Rows at a width, at least one; where the cursor is in them. */
const struct text_rows *composer_layout(struct composer *c, const struct theme *th, int width,
                                        int *cur_row, int *cur_col);

#define COMPOSER_DRAFT_MAX 32768 /* bytes, chips not counted */
#define COMPOSER_CHIP_SIZE 2048
#define COMPOSER_CHIP_ROWS 20
#define COMPOSER_CHIPS     64
#define COMPOSER_KEPT      ((size_t)64 << 20) /* bytes of pastes of before */

#endif
