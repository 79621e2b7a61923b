#ifndef QUASAR_SESSIONS_SALVAGE_H
#define QUASAR_SESSIONS_SALVAGE_H

#include "sessions/catalog.h"

struct salvage {
    int conversations, turns; /* saved */
    int no_turn;              /* turns that others name, and that could not be read */
    int no_head;              /* conversations whose turns could be read, not their title */
    bool empty;               /* the file had no byte; what was saved was in its log */
    char *kept;               /* where the damaged file now is (caller frees); NULL: there was
                                 nothing to do, another process did it */
};

/* Puts a new catalogue in the place of a damaged one, with every row that can be read.
 * The damaged file stays beside it under another name, with its write-ahead log. One
 * process does it, others wait. On failure the damaged file is where it was. */
int catalog_salvage(const char *path, struct salvage *out, struct err *e);

/* A salvage was cut off just before its end; catalog_salvage finishes it. */
bool catalog_half_salvaged(const char *path);

#endif
