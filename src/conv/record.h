#ifndef QUASAR_CONV_RECORD_H
#define QUASAR_CONV_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "sessions/catalog.h"

/*
 * The transcript's way to disk. A catalogue that cannot be opened or written is
 * reported once and then left alone: the conversation goes on in memory. Worker
 * thread only.
 */
struct record {
    struct catalog *catalog; /* NULL: not kept (any more) */
};

/* Where one chat stands in the catalogue. Zero initialised: nowhere yet. */
struct record_chat {
    int64_t conv, last; /* last stored turn */
    int64_t user, answer;
    bool saved; /* everything said so far is on disk */
};

void record_open(struct record *r, bool wanted);
void record_close(struct record *r);

/* Stores what the user said; true when it is on disk. */
bool record_user(struct record *r, struct record_chat *c, const char *model, const char *system,
                 const char *text, size_t n);
/* Stores the answer as far as it goes; the first call adds it. */
void record_answer(struct record *r, struct record_chat *c, const struct catalog_turn *t);
/* The turn is over. kept: it stays part of the conversation that follows. */
void record_done(struct record_chat *c, bool kept);

#endif
