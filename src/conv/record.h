#ifndef QUASAR_CONV_RECORD_H
#define QUASAR_CONV_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "sessions/lock.h"
#include "sessions/store.h"

/*
 * The transcript's way to disk. What cannot be written stays in memory and is
 * written as soon as that is possible again; the trouble is told once. A damaged
 * catalogue is salvaged and gone on with. Worker thread only.
 */
struct record {
    struct store *store;    /* NULL: it could not be opened yet, or given_up */
    const char *directory;  /* where new conversations are begun; borrowed; may be NULL */
    struct lock_set *locks; /* of the process; borrowed */
    bool given_up;          /* it is beyond help: nothing more is kept */
    bool wanted;            /* what is said is to be kept, even if that is not possible */
    struct err why;         /* the last time that something could not be written */
    char *dir;              /* of the store */
    uint64_t budget;        /* … as it was opened with */
    unsigned generation;    /* how often another catalogue took the place of the one before */
    bool failing;           /* told already; what was said waits in memory */
    struct buf notice;      /* lines for the user; whoever posts them empties it */
};

/* A turn that is not on disk as it is here. */
struct record_row;

/* Where one chat stands in the catalogue. Zero initialised: nowhere yet. */
struct record_chat {
    struct session_lock *lock;
    int64_t conv, last; /* last stored turn of the conversation that goes on */
    char *model, *system;
    bool retarget;           /* the catalogue is yet to be told of these two */
    struct record_row *rows; /* oldest first: what waits, and the turn under way */
    struct record_row *user, *answer;
    struct record_row *leaf; /* the conversation stands after it, once it is stored */
    unsigned generation;     /* of the catalogue that conv and last are of */
    bool saved;              /* everything said so far is on disk */
    int64_t saved_at;        /* when something was written last; 0: never */
    bool lost;               /* something was said that was to be kept and is not even waiting */
};

/* dir: the folder of sessions; NULL: nothing is kept. */
void record_open(struct record *r, const char *dir, uint64_t budget, const char *directory,
                 struct lock_set *locks);
void record_close(struct record *r);

/* Stores what the user said; true when it is on disk. */
bool record_user(struct record *r, struct record_chat *c, const char *model, const char *system,
                 const char *text, size_t n);
/* Stores the answer as far as it goes; the first call adds it. */
void record_answer(struct record *r, struct record_chat *c, const struct catalog_turn *t);
/* Adds what the answer says beyond what is stored of it, at the cost of what is new; true when it
 * is handed over. t: as for record_answer, of which it needs text, thought and ids. */
bool record_more(struct record *r, struct record_chat *c, const struct catalog_turn *t);
/* The turn is over. kept: it stays part of the conversation that follows. Returns the
 * answer's id, 0 when it is not on disk. */
int64_t record_done(struct record *r, struct record_chat *c, bool kept);
/* Goes back by so many turns: what is said next follows the one before them. */
void record_rewind(struct record *r, struct record_chat *c, size_t back);
/* What was said waits in memory because it cannot be written. */
bool record_stuck(const struct record *r, const struct record_chat *c);
/* Tries again what could not be written; true when nothing is left. */
bool record_flush(struct record *r, struct record_chat *c);
/* Begins the conversation where there is none, so that something can be kept with it. */
int record_begin(struct record *r, struct record_chat *c, struct err *e);
/* The stored turn that what waits is to follow: the question under way, else the last one. */
int64_t record_place(const struct record_chat *c);
/* Forgets the chat's place, and lets go of the conversation. */
void record_leave(struct record_chat *c);

#endif
