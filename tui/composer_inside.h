#ifndef QUASAR_TUI_COMPOSER_INSIDE_H
#define QUASAR_TUI_COMPOSER_INSIDE_H

#include <histedit.h>
#include <stdio.h>
#include <wchar.h>

#include "tui/composer.h"

/* Inside of the composer: shared by composer.c (libedit, keys, layout) and composer_parts.c (what
 * is in a draft besides letters, and drafts as a whole). */

#define CHIP_FIRST 0xF0000 /* the character of the first paste or file */
#define HIST_DRAFT SIZE_MAX
#define QUEUE_MAX  64
#define UNDO_MAX   64

struct undo {
    wchar_t *text;
    size_t n, cursor;
};

struct composer {
    EditLine *el;
    HistoryW *hist_w;
    FILE *slave_in, *slave_out, *devnull;
    int master, slave;
    struct history *hist;
    size_t hist_at;   /* entry shown; HIST_DRAFT: the draft itself */
    struct buf stash; /* the draft while an entry is shown */
    bool vi;
    bool (*wait)(void *);
    void *wait_ctx;
    wchar_t queue[QUEUE_MAX];
    size_t q_head, q_len;
    bool inside;  /* in el_wgets */
    bool pending; /* … waiting for a key */
    bool give_up;
    struct buf chips[COMPOSER_CHIPS];
    char *chip_name[COMPOSER_CHIPS]; /* of a file, harmless to show; NULL: a paste */
    size_t n_chips;
    struct buf *kept; /* pastes of drafts that are gone, oldest first */
    size_t n_kept;
    struct undo undo[UNDO_MAX];
    size_t n_undo;
    wchar_t *killed; /* what was cut last */
    size_t n_killed;
    int width; /* of the last layout */
    struct text_rows rows;
};

struct line {
    const wchar_t *text;
    size_t n, cursor;
};

/* The line as it is; valid until the next change. */
struct line line_of(const struct composer *c);
/* A copy of its characters; the caller frees it. */
wchar_t *line_copy(const struct line *l);
/* Where the text's line at i begins. */
size_t line_start(const struct line *l, size_t i);
bool line_is_chip(const struct composer *c, wchar_t w);
/* The label that a chip is shown as. */
void line_chip_label(const struct composer *c, size_t i, char out[64]);
/* Appends a character as UTF-8. */
void line_add_wchar(struct buf *out, wchar_t w);
/* Well-formed text as wide characters, without NUL; the caller frees them. */
wchar_t *line_widen(const char *p, size_t n, size_t *out_n);
/* Text that the line can hold and give back byte for byte; *rows counts its lines. */
bool line_holds(const char *p, size_t n, size_t *rows);
/* Makes another chip, of a file if it has a name; *out is its character. */
int line_make_chip(struct composer *c, const char *name, const char *p, size_t n, wchar_t *out,
                   struct err *e);
/* Remembers the line as it was before a change. */
void line_mark(struct composer *c);
void line_replace(struct composer *c, const wchar_t *text, size_t n, size_t cursor);
void line_move(struct composer *c, size_t i);

#endif
