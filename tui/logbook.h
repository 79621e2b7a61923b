#ifndef QUASAR_TUI_LOGBOOK_H
#define QUASAR_TUI_LOGBOOK_H

#include <stddef.h>
#include <stdint.h>

#include "tui/text.h"

/*
 * What went wrong, and all that libraries printed while the screen was up: a bounded
 * list of lines with their time. Any thread, except where said.
 */
#define LOGBOOK_LINES 1000
#define LOGBOOK_BYTES (256 << 10)
#define LOGBOOK_LINE  2048 /* bytes; longer ones are cut into several */

enum log_kind {
    LK_NOTE, /* said to the user */
    LK_WARN,
    LK_BAD,    /* an error */
    LK_OUTPUT, /* printed by some library */
    LK_COUNT
};

struct logbook;
struct logbook *logbook_create(void);
void logbook_free(struct logbook *b);

/* Adds each line of a text; wall: seconds since 1970. */
void logbook_add(struct logbook *b, enum log_kind kind, int64_t wall, const char *p, size_t n);
/* Adds what was printed: whole lines; the rest of it waits for its end. */
void logbook_output(struct logbook *b, int64_t wall, const char *p, size_t n);

/* Changes with every line. */
unsigned logbook_version(struct logbook *b);
/* Errors and printed lines that came since logbook_seen. */
int logbook_unseen(struct logbook *b);
void logbook_seen(struct logbook *b);

/* The rows of all lines, oldest first; out is emptied. The screen's thread. */
void logbook_layout(struct logbook *b, const struct theme *th, int width, struct text_rows *out);

#endif
