#ifndef QUASAR_SESSIONS_CATALOG_SQL_H
#define QUASAR_SESSIONS_CATALOG_SQL_H

#include <sqlite3.h>
#include <sys/types.h>

#include "sessions/catalog.h"

/* Inside of the catalogue. */
struct catalog {
    sqlite3 *db;
    char *path;
    char *fixed; /* why it can only be read; NULL: it can be written */
    dev_t dev;   /* of the file that is open … */
    ino_t ino;
};

/* The last failure of the connection as a status and a message. */
int cat_fail(struct catalog *c, const char *doing, struct err *e);
int cat_exec(struct catalog *c, const char *sql, const char *doing, struct err *e);
int cat_prepare(struct catalog *c, const char *sql, sqlite3_stmt **st, struct err *e);
/* Runs a statement that gives no rows, and frees it. */
int cat_run_take(struct catalog *c, sqlite3_stmt *st, const char *doing, struct err *e);
/* QE_NOTFOUND. */
int cat_not_there(struct catalog *c, int64_t conv, struct err *e);
/* Runs a change of the conversation ?1; no row changed means that there is none. */
int cat_change_take(struct catalog *c, sqlite3_stmt *st, int64_t conv, struct err *e);
/* The first column of the first row, 0 when there is none; frees the statement. */
int cat_int_take(struct catalog *c, sqlite3_stmt *st, int64_t *out, struct err *e);
/* A writing transaction; end commits when rc is 0, else takes it all back, and returns
 * the status of both. */
int cat_begin_write(struct catalog *c, struct err *e);
int cat_end_write(struct catalog *c, int rc, struct err *e);

/* Puts what was added to the unfinished answers of a conversation (catalog_part_add) into their
 * turns. In a transaction of the caller's. */
int cat_join_parts(struct catalog *c, int64_t conv, struct err *e);
/* Brings the schema up to date; QE_UNSUPPORTED: it is a newer one. */
int cat_migrate(struct catalog *c, struct err *e);

/* NULL binds NULL. Texts are borrowed until the statement is done. */
void cat_bind_text(sqlite3_stmt *st, int i, const char *p, size_t n);
void cat_bind_str(sqlite3_stmt *st, int i, const char *s);
void cat_bind_ids(sqlite3_stmt *st, int i, const int32_t *ids, size_t n);
const char *cat_text_at(sqlite3_stmt *st, int i, size_t *n);
enum catalog_role cat_role_at(sqlite3_stmt *st, int i);

#define CONV_COLUMNS                                                                               \
    "conversations.id, conversations.created, conversations.updated, conversations.title,"         \
    " conversations.named, conversations.pinned, conversations.model, conversations.system,"       \
    " conversations.directory, conversations.leaf,"                                                \
    " (SELECT group_concat(tag, ', ') FROM tags WHERE tags.conversation = conversations.id),"      \
    " (SELECT count(*) FROM turns WHERE turns.conversation = conversations.id AND"                 \
    " turns.role = 'user'),"                                                                       \
    " (SELECT coalesce(sum(bytes), 0) FROM states WHERE states.conversation = conversations.id),"  \
    " coalesce((SELECT tokens FROM recovered WHERE recovered.conversation = conversations.id), "   \
    "-1)"
#define CONV_COLUMNS_BARE                                                                          \
    "id, created, updated, title, named, pinned, model, system, directory, leaf, NULL, -1, 0, -1"
#define TURN_COLUMNS                                                                               \
    "turns.id, turns.parent, turns.role, turns.text, turns.thought, turns.calls, turns.ids,"       \
    " turns.finish, turns.stats, turns.settings, turns.created, turns.conversation"
#define TURN_CONVERSATION 11

/* Everything on the way from a turn up to the first one, nearest first. */
#define UP_FROM(turn)                                                                              \
    "WITH RECURSIVE up(id, parent, depth) AS ("                                                    \
    " SELECT id, parent, 0 FROM turns WHERE id = " turn " AND conversation = ?1"                   \
    " UNION ALL SELECT turns.id, turns.parent, depth + 1 FROM turns JOIN up ON"                    \
    " turns.id = up.parent) "
#define LEAF_OR_2                                                                                  \
    "(CASE WHEN ?2 > 0 THEN ?2 ELSE (SELECT leaf FROM conversations WHERE id = ?1) END)"

/* Give the rows of a statement with these columns to fn, and free it. */
int cat_convs_take(struct catalog *c, sqlite3_stmt *st, catalog_conv_fn fn, void *ctx,
                   struct err *e);
int cat_turns_take(struct catalog *c, sqlite3_stmt *st, catalog_turn_fn fn, void *ctx,
                   struct err *e);
/* Fills t from a row of TURN_COLUMNS; ids is scratch that t borrows. */
void cat_read_turn(sqlite3_stmt *st, struct catalog_turn *t, int32_t **ids);

/* The first line of a text, at most 80 bytes, cut between characters: of it a title is made. */
size_t cat_title_len(const char *p, size_t n);

/* Appends up to three conversations with a title like what, best first; nothing: none is. */
void cat_near(struct catalog *c, const char *what, struct buf *out);
/* QE_USAGE: another conversation than `but` was given this name. */
int cat_name_free(struct catalog *c, const char *name, int64_t but, struct err *e);
/* The title that a copy gets: the other's, with the first number behind it that no title has
 * yet (caller frees). */
int cat_title_of_copy(struct catalog *c, int64_t conv, char **out, struct err *e);

/* Puts a turn in, with this id (0: a new one). */
int cat_insert_turn(struct catalog *c, int64_t id, int64_t conv, int64_t parent,
                    const struct catalog_turn *t, int64_t *out, struct err *e);

#endif
