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
 * was said. Several processes may have it open; one thread per handle.
 */
struct catalog;

/* Opens or creates path (0600, its folder 0700) and brings an older schema up to
 * date. A newer schema, a damaged file, an unwritable folder: refused, and the
 * file is left as it is. */
int catalog_open(const char *path, struct catalog **out, struct err *e);
void catalog_close(struct catalog *c);

struct catalog_conv {
    int64_t id;
    int64_t created, updated; /* seconds since 1970 */
    const char *title;        /* of the first user turn */
    const char *model;
    const char *system; /* NULL: none */
    int turns;
};

enum catalog_role { CAT_USER, CAT_ASSISTANT, CAT_TOOL, CAT_SYSTEM };

/* One message. In catalog_add and catalog_update, id and parent are ignored. */
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
    const char *finish; /* stop, length, cancelled, tool, error; NULL: unfinished */
    const char *stats;  /* JSON object of counts, times and the seed; NULL: none */
    int64_t created;
};

/* A new, empty conversation. */
int catalog_begin(struct catalog *c, const char *model, const char *system, int64_t *conv,
                  struct err *e);
/* Appends a turn to a conversation, after parent (0: as its first). */
int catalog_add(struct catalog *c, int64_t conv, int64_t parent, const struct catalog_turn *t,
                int64_t *id, struct err *e);
/* Replaces what is recorded of a turn, except its role and place. */
int catalog_update(struct catalog *c, int64_t id, const struct catalog_turn *t, struct err *e);
int catalog_remove(struct catalog *c, int64_t conv, struct err *e);

/* Latest first, at most limit; what is pointed to lives during the call of fn.
 * fn returns false to end early. */
int catalog_list(struct catalog *c, int limit, bool (*fn)(void *ctx, const struct catalog_conv *v),
                 void *ctx, struct err *e);
/* The turns of a conversation in the order they were added. */
int catalog_turns(struct catalog *c, int64_t conv,
                  bool (*fn)(void *ctx, const struct catalog_turn *t), void *ctx, struct err *e);
/* Turns whose text holds all the words, best first. */
int catalog_search(struct catalog *c, const char *words, int limit,
                   bool (*fn)(void *ctx, int64_t conv, const struct catalog_turn *t), void *ctx,
                   struct err *e);

/* SQLite's own check of the whole file: 0 or QE_FORMAT with its first finding. */
int catalog_verify(struct catalog *c, struct err *e);

#endif
