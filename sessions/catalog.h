#ifndef QUASAR_SESSIONS_CATALOG_H
#define QUASAR_SESSIONS_CATALOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * The catalogue of conversations: one SQLite database, write-ahead log, every
 * commit synced before the call returns. What is in it is the truth about what
 * was said. A conversation is a tree of turns; its leaf is the turn it stands
 * after. Several processes may have it open; one thread per handle. QE_FORMAT from
 * any function: the database is damaged (sessions/salvage.h).
 *
 * Strings given to a callback live during the call; it returns false to end early.
 */
struct catalog;

/* Opens or creates path (0600, its folder 0700) and brings an older schema up to
 * date. A newer schema, a damaged file, an unwritable folder: refused, and the
 * file is left as it is. */
int catalog_open(const char *path, struct catalog **out, struct err *e);
void catalog_close(struct catalog *c);
/* Whether the file that is open is still the one at its path: what is written to one that was
 * deleted is lost without a word. QE_IO: nothing is there; QE_NOTFOUND: another one is. */
int catalog_in_place(const struct catalog *c, struct err *e);
/* A copy of it in memory, its log included, that can only be read: for a disk that is full
 * or cannot be written. why goes into messages of what would write. */
int catalog_open_fixed(const char *path, const char *why, struct catalog **out, struct err *e);
/* One without a conversation, where none could be made. */
int catalog_open_none(const char *path, const char *why, struct catalog **out, struct err *e);
#define CATALOG_SCHEMA 5

struct catalog_conv {
    int64_t id;
    int64_t created, updated; /* seconds since 1970 */
    const char *title;        /* its name, or the beginning of the first user turn */
    bool named;               /* the title was given */
    bool pinned;              /* its states go last when there is no room */
    const char *model;
    const char *system;    /* NULL: none */
    const char *directory; /* where it was begun; NULL: unknown */
    const char *tags;      /* with ", " between them; NULL: none */
    int64_t leaf;          /* 0: nothing was said */
    int turns;             /* questions, of every branch; -1: they could not be counted */
    int64_t state_bytes;   /* of its saved states */
    int recovered;         /* tokens of its last answer, which was cut off and not seen since; 0: a
                              question without an answer; -1: nothing was cut off */
};

enum catalog_role { CAT_USER, CAT_ASSISTANT, CAT_TOOL, CAT_SYSTEM };
/* "user", "assistant", … */
extern const char *const cat_roles[4];

/* One message. In catalog_add and catalog_update, id, parent and created are ignored. */
struct catalog_turn {
    int64_t id, parent; /* parent 0: the first */
    enum catalog_role role;
    const char *text;
    size_t text_n;
    const char *thought; /* NULL: none */
    size_t thought_n;
    const char *calls;  /* tool calls as JSON; NULL: none */
    const int32_t *ids; /* tokens drawn */
    size_t n_ids;
    const char
        *finish; /* stop, length, cancelled, tool_calls, error, interrupted; NULL: unfinished */
    const char *stats;    /* JSON object of counts and times; NULL: none */
    const char *settings; /* JSON object of what it was asked with; NULL: none */
    int64_t created;
};

typedef bool (*catalog_conv_fn)(void *ctx, const struct catalog_conv *v);
typedef bool (*catalog_turn_fn)(void *ctx, const struct catalog_turn *t);

/* ---- conversations ---- */

struct catalog_new {
    const char *name;      /* NULL: the title comes from the first user turn */
    const char *model;     /* NULL: unknown */
    const char *system;    /* NULL: none */
    const char *directory; /* NULL: unknown */
};
/* A new, empty conversation. */
int catalog_begin(struct catalog *c, const struct catalog_new *n, int64_t *conv, struct err *e);
/* All its turns go too; not the files of its states (store_gc). QE_NOTFOUND. */
int catalog_remove(struct catalog *c, int64_t conv, struct err *e);
/* QE_USAGE: another one has this name. */
int catalog_rename(struct catalog *c, int64_t conv, const char *name, struct err *e);
int catalog_pin(struct catalog *c, int64_t conv, bool pinned, struct err *e);
/* Adds or takes away a tag. QE_NOTFOUND: no such conversation, or no such tag to take away. */
int catalog_tag(struct catalog *c, int64_t conv, const char *tag, bool on, struct err *e);
/* The system prompt and the model that the turns from now on have. */
int catalog_retarget(struct catalog *c, int64_t conv, const char *model, const char *system,
                     struct err *e);
/* The turn that the conversation stands after: one of its own, or 0. */
int catalog_set_leaf(struct catalog *c, int64_t conv, int64_t turn, struct err *e);
/* A new conversation that begins with what the other one says up to a turn (0: up to its
 * leaf, and what is said of an unfinished answer, which is "interrupted" there), and may use
 * the same states. name NULL: the other's title with a number behind it ("notes (2)"). QE_USAGE:
 * another one has this name. */
int catalog_fork(struct catalog *c, int64_t conv, int64_t turn, const char *name, int64_t *fork,
                 struct err *e);

/* The conversation that is meant by an id, else a name that was given, else a whole title,
 * else the beginning of just one title. QE_NOTFOUND (the message lists some with a similar
 * title); QE_USAGE when several are meant (the message lists some). */
int catalog_find(struct catalog *c, const char *what, int64_t *conv, struct err *e);
/* The name that is meant, without blanks around it (caller frees). QE_USAGE: it cannot be
 * one, since it is blank, over CATALOG_NAME_MOST characters, has one that controls or is not
 * seen, or is a number, which would be an id. */
#define CATALOG_NAME_MOST 200
int catalog_take_name(const char *given, char **name, struct err *e);
/* The same by an id only; QE_NOTFOUND. */
int catalog_numbered(struct catalog *c, const char *number, int64_t *conv, struct err *e);
/* The same by a name that was given only; *conv 0: none. */
int catalog_named(struct catalog *c, const char *name, int64_t *conv, struct err *e);
/* The same, or a new one of this name (n->name), in one step. */
int catalog_named_or_new(struct catalog *c, const struct catalog_new *n, int64_t *conv,
                         struct err *e);
/* The latest that was begun in a directory (NULL: anywhere) and that will do (NULL: each will);
 * *conv 0: none. */
int catalog_last(struct catalog *c, const char *directory, bool (*will)(void *ctx, int64_t conv),
                 void *ctx, int64_t *conv, struct err *e);
/* QE_NOTFOUND. */
int catalog_get(struct catalog *c, int64_t conv, catalog_conv_fn fn, void *ctx, struct err *e);
/* Latest first, at most limit. QE_FORMAT: those that could be read were given. */
int catalog_list(struct catalog *c, int limit, catalog_conv_fn fn, void *ctx, struct err *e);

/* ---- turns ---- */

/* Appends a turn to a conversation, after parent (0: as its first). The leaf stays. */
int catalog_add(struct catalog *c, int64_t conv, int64_t parent, const struct catalog_turn *t,
                int64_t *id, struct err *e);
/* Replaces what is recorded of a turn, except its role and place. */
int catalog_update(struct catalog *c, int64_t id, const struct catalog_turn *t, struct err *e);
/* What an answer under way said since it was written last. */
struct catalog_part {
    const char *text;
    size_t text_n;
    const char *thought;
    size_t thought_n;
    const int32_t *ids;
    size_t n_ids;
};
/* Adds it to a turn, for catalog_recover; the next catalog_update takes its place. Waits neither
 * for the disk nor for another writer (QE_BUSY): it outlives the process, not the machine. */
int catalog_part_add(struct catalog *c, int64_t turn, const struct catalog_part *p, struct err *e);
/* The turns of a conversation in the order they were added, every branch. */
int catalog_turns(struct catalog *c, int64_t conv, catalog_turn_fn fn, void *ctx, struct err *e);
/* Those from the first to a turn (0: to the leaf). */
int catalog_path(struct catalog *c, int64_t conv, int64_t turn, catalog_turn_fn fn, void *ctx,
                 struct err *e);
/* A branch: what is said after some turn that more than one other follows. */
struct catalog_branch {
    int number;       /* from 1, in the order they were begun; 1 is the one from the first turn */
    size_t from;      /* the number of the one that it leaves; 0: none */
    int64_t tip;      /* its last answer */
    int turns;        /* questions of its own */
    const char *head; /* the beginning of the first of them */
    bool current;     /* the conversation stands on it */
};
#define CATALOG_HEAD_MOST 80
/* Those with an answer, oldest first. */
int catalog_branches(struct catalog *c, int64_t conv,
                     bool (*fn)(void *ctx, const struct catalog_branch *b), void *ctx,
                     struct err *e);
/* Bytes of the catalogue itself, and of all saved states. */
int catalog_sizes(struct catalog *c, uint64_t *text, uint64_t *state, struct err *e);
/* Turns whose text holds all the words, best first. */
int catalog_search(struct catalog *c, const char *words, int limit,
                   bool (*fn)(void *ctx, int64_t conv, const struct catalog_turn *t), void *ctx,
                   struct err *e);
/* A place in a turn where words were found. */
struct catalog_hit {
    int64_t conv, turn;
    enum catalog_role role;
    const char *around; /* some words of the text, each found one between the two marks */
    int more;           /* turns of this conversation that were found and are not told */
};
/* Characters that Unicode keeps for programs: none is written with them. */
#define CATALOG_FOUND_ON    "\xEF\xB7\x90"
#define CATALOG_FOUND_OFF   "\xEF\xB7\x91"
#define CATALOG_HITS_LOOKED 20000 /* turns at most that are looked at for it */
/* The same as it is typed, newest turn first: the last word may go on, unless a blank follows it;
 * whatever is no letter or digit parts words. At most `each` turns of a conversation and `most` in
 * all are told, conversation after conversation, the one with the newest first; *cut: there may be
 * others. stop (may be NULL) is asked now and then: true ends it early, which is no failure. */
int catalog_hits(struct catalog *c, const char *words, size_t n, int most, int each,
                 bool (*stop)(void *ctx), bool (*fn)(void *ctx, const struct catalog_hit *h),
                 void *ctx, bool *cut, struct err *e);
/* Where a turn can be read: *tip is `at` (a turn, 0: the leaf) when the turn is on the way to
 * that, else the last answer of the branch that it is on, or, where none follows it there, the
 * turn itself; *before: how many turns come before it. QE_NOTFOUND: the conversation has no such
 * turn. */
int catalog_leads_to(struct catalog *c, int64_t conv, int64_t turn, int64_t at, int64_t *tip,
                     int *before, struct err *e);
/* The newest turn, where it is unfinished: an answer without an end, whose writer is at it or
 * died, or a question without any. said: only an answer that has a word. Else *turn is 0. */
int catalog_tip(struct catalog *c, int64_t conv, bool said, int64_t *turn, struct err *e);
/* Conversations with an answer that was never finished: a writer is at work, or died. */
int catalog_unfinished(struct catalog *c, catalog_conv_fn fn, void *ctx, struct err *e);
/* Ends such answers of a conversation that has no writer as "interrupted"; the last that
 * said something becomes the leaf, or, if none did, the question it was to answer. *tokens: how
 * many it has; *n: how many there were. */
int catalog_recover(struct catalog *c, int64_t conv, int *n, int *tokens, struct err *e);
/* The user has seen what catalog_recover found: catalog_conv.recovered is -1 again. */
int catalog_seen(struct catalog *c, int64_t conv, struct err *e);

/* ---- drafts ---- */

/* What is being written, to follow a turn (0: as the first) of a conversation, or (conv 0) of one
 * that is not there yet, of this owner. It takes the place of the one before; n 0: there is none
 * any more. The bytes are the caller's. */
int catalog_draft_put(struct catalog *c, int64_t conv, int64_t turn, int64_t owner, const char *p,
                      size_t n, struct err *e);
/* Appends it; nothing where there is none. Behind an answer that was under way it is stored after
 * the question: *after is the turn that it is stored after. */
int catalog_draft_get(struct catalog *c, int64_t conv, int64_t turn, int64_t *after,
                      struct buf *out, struct err *e);
/* Takes the latest that has no conversation and whose owner is gone, so that nobody else does. */
int catalog_draft_adopt(struct catalog *c, bool (*gone)(void *ctx, int64_t owner), void *ctx,
                        struct buf *out, struct err *e);

/* ---- messages that wait ---- */

/* One that is to be sent when the answers before it are over. */
struct catalog_queued {
    const char *shown; /* as the screen shows it */
    size_t shown_n;
    const char *message; /* as it is sent */
    size_t message_n;
};
/* Those that wait after a turn (0: before the first) of a conversation, in their order. They
 * take the place of what waited after the turn `was`, and after this one; n 0: nothing waits. */
int catalog_queue_put(struct catalog *c, int64_t conv, int64_t was, int64_t turn,
                      const struct catalog_queued *q, size_t n, struct err *e);
/* Those that wait after a turn, or else after the nearest one before it; *after: which that is,
 * where there are any. */
int catalog_queue_get(struct catalog *c, int64_t conv, int64_t turn, int64_t *after,
                      bool (*fn)(void *ctx, const struct catalog_queued *q), void *ctx,
                      struct err *e);

/* ---- saved states ---- */

struct catalog_state {
    const char *file;   /* a name in the folder of states */
    const char *compat; /* hexadecimal */
    int64_t turn, conv; /* the turn it stands after; several may share a file */
    int64_t tokens, bytes;
    int64_t used;    /* when, in seconds */
    bool pinned;     /* of its conversation */
    bool superseded; /* a later turn on the same branch has one too */
};
typedef bool (*catalog_state_fn)(void *ctx, const struct catalog_state *s);

int catalog_state_add(struct catalog *c, const struct catalog_state *s, struct err *e);
/* Forgets a file, whichever turns it belonged to. */
int catalog_state_remove(struct catalog *c, const char *file, struct err *e);
int catalog_state_used(struct catalog *c, const char *file, struct err *e);
/* Those of a turn (0: the leaf) and the turns before it, nearest first. */
int catalog_states_for(struct catalog *c, int64_t conv, int64_t turn, catalog_state_fn fn,
                       void *ctx, struct err *e);
/* All of them, in the order they should go in: superseded ones first, pinned ones last,
 * else the longest unused. */
int catalog_states(struct catalog *c, catalog_state_fn fn, void *ctx, struct err *e);

/* SQLite's own check of the whole file, and the index of words against the texts: 0 or
 * QE_FORMAT with the first finding. */
int catalog_verify(struct catalog *c, struct err *e);
/* Makes the index of words anew. QE_FORMAT: the damage is elsewhere, nothing was changed. */
int catalog_reindex(struct catalog *c, struct err *e);

#endif
