/* Conversations of the catalogue as wholes: changes, branches, copies, and what a
 * dead writer left unfinished. Their names are in catalog_name.c. */
#include "config.h"
#include "sessions/catalog.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sessions/catalog_sql.h"

int catalog_remove(struct catalog *c, int64_t conv, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c, "DELETE FROM conversations WHERE id = ?1", &st, e);
    return rc < 0 ? rc : cat_change_take(c, st, conv, e);
}

int catalog_pin(struct catalog *c, int64_t conv, bool pinned, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c, "UPDATE conversations SET pinned = ?2 WHERE id = ?1", &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int(st, 2, pinned);
    return cat_change_take(c, st, conv, e);
}

static bool is_there(void *ctx, const struct catalog_conv *v)
{
    (void)ctx;
    (void)v;
    return true;
}

int catalog_tag(struct catalog *c, int64_t conv, const char *tag, bool on, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = catalog_get(c, conv, is_there, NULL, e);
    if (rc == 0) {
        rc = cat_prepare(c,
                         on ? "INSERT OR IGNORE INTO tags(conversation, tag) VALUES (?1, ?2)"
                            : "DELETE FROM tags WHERE conversation = ?1 AND tag = ?2",
                         &st, e);
    }
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    cat_bind_str(st, 2, tag);
    rc = cat_run_take(c, st, "change a conversation", e);
    if (rc == 0 && !on && sqlite3_changes(c->db) == 0) {
        rc =
            err_set(e, QE_NOTFOUND, "conversation %lld has no tag \"%.40s\"", (long long)conv, tag);
    }
    return rc;
}

int catalog_retarget(struct catalog *c, int64_t conv, const char *model, const char *system,
                     struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc =
        cat_prepare(c, "UPDATE conversations SET model = ?2, system = ?3 WHERE id = ?1", &st, e);
    if (rc < 0) {
        return rc;
    }
    cat_bind_str(st, 2, model);
    cat_bind_str(st, 3, system);
    return cat_change_take(c, st, conv, e);
}

int catalog_set_leaf(struct catalog *c, int64_t conv, int64_t turn, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "UPDATE conversations SET leaf = ?2 WHERE id = ?1 AND (?2 IS NULL OR"
                         " EXISTS (SELECT 1 FROM turns WHERE id = ?2 AND conversation = ?1))",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    if (turn > 0) {
        sqlite3_bind_int64(st, 2, turn);
    }
    rc = cat_run_take(c, st, "change a conversation", e);
    if (rc == 0 && sqlite3_changes(c->db) != 1) {
        rc = err_set(e, QE_NOTFOUND, "%s has no turn %lld in conversation %lld", c->path,
                     (long long)turn, (long long)conv);
    }
    return rc;
}

/* ---- reading ---- */

int catalog_get(struct catalog *c, int64_t conv, catalog_conv_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int64_t found = 0;
    int rc = cat_prepare(c, "SELECT count(*) FROM conversations WHERE id = ?1", &st, e);
    if (rc == 0) {
        sqlite3_bind_int64(st, 1, conv);
        rc = cat_int_take(c, st, &found, e);
    }
    if (rc == 0 && found == 0) {
        rc = cat_not_there(c, conv, e);
    }
    if (rc == 0) {
        rc = cat_prepare(c, "SELECT " CONV_COLUMNS " FROM conversations WHERE id = ?1", &st, e);
    }
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    return cat_convs_take(c, st, fn, ctx, e);
}

int catalog_last(struct catalog *c, const char *directory, bool (*will)(void *ctx, int64_t conv),
                 void *ctx, int64_t *conv, struct err *e)
{
    *conv = 0;
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         directory ? "SELECT id FROM conversations WHERE directory = ?1"
                                     " ORDER BY updated DESC, id DESC"
                                   : "SELECT id FROM conversations"
                                     " ORDER BY updated DESC, id DESC",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    cat_bind_str(st, 1, directory);
    int step = 0;
    while (*conv == 0 && (step = sqlite3_step(st)) == SQLITE_ROW) {
        const int64_t id = sqlite3_column_int64(st, 0);
        *conv = !will || will(ctx, id) ? id : 0;
    }
    rc = step == SQLITE_ROW || step == SQLITE_DONE ? 0 : cat_fail(c, "find a conversation", e);
    sqlite3_finalize(st);
    return rc;
}

/* ---- branches ---- */

int catalog_path(struct catalog *c, int64_t conv, int64_t turn, catalog_turn_fn fn, void *ctx,
                 struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         UP_FROM(LEAF_OR_2) "SELECT " TURN_COLUMNS " FROM up JOIN turns ON"
                                            " turns.id = up.id ORDER BY depth DESC",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    sqlite3_bind_int64(st, 2, turn);
    return cat_turns_take(c, st, fn, ctx, e);
}

int catalog_tip(struct catalog *c, int64_t conv, bool said, int64_t *turn, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "SELECT id FROM turns WHERE id = (SELECT max(id) FROM turns WHERE"
                         " conversation = ?1) AND ((role = 'assistant' AND finish IS NULL AND"
                         " (NOT ?2 OR text <> '' OR coalesce(thought, '') <> ''))"
                         " OR (role = 'user' AND NOT ?2))",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    sqlite3_bind_int(st, 2, said);
    return cat_int_take(c, st, turn, e);
}

struct copy {
    struct catalog *c;
    int64_t conv, last;
    int rc;
    struct err *e;
};

static int copy_states(struct catalog *c, int64_t from, int64_t conv, int64_t to, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "INSERT INTO states(conversation, turn, file, compat, tokens, bytes, used)"
                         " SELECT ?2, ?3, file, compat, tokens, bytes, used FROM states"
                         " WHERE turn = ?1",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, from);
    sqlite3_bind_int64(st, 2, conv);
    sqlite3_bind_int64(st, 3, to);
    return cat_run_take(c, st, "add a state", e);
}

static bool copy_turn(void *ctx, const struct catalog_turn *t)
{
    struct copy *k = ctx;
    int64_t id = 0;
    struct catalog_turn row = *t;
    if (row.role == CAT_ASSISTANT && !row.finish) {
        row.finish = "interrupted"; /* a copy has no writer */
    }
    k->rc = cat_insert_turn(k->c, 0, k->conv, k->last, &row, &id, k->e);
    if (k->rc == 0) {
        k->rc = copy_states(k->c, t->id, k->conv, id, k->e);
    }
    k->last = id;
    return k->rc == 0;
}

/* The new row, like the old one but for its name, leaf and times. */
static int copy_conv(struct catalog *c, int64_t conv, const char *name, int64_t *fork,
                     struct err *e)
{
    sqlite3_stmt *st = NULL;
    char *title = NULL;
    int rc = name ? cat_name_free(c, name, 0, e) : cat_title_of_copy(c, conv, &title, e);
    rc = rc < 0
             ? rc
             : cat_prepare(c,
                           "INSERT INTO conversations(created, updated, title, named, model,"
                           " system, directory) SELECT ?2, ?2, coalesce(?3, ?4), ?3 IS NOT NULL"
                           " OR named, model, system, directory FROM conversations WHERE id = ?1",
                           &st, e);
    if (rc == 0) {
        sqlite3_bind_int64(st, 2, clock_wall());
        cat_bind_str(st, 3, name);
        cat_bind_str(st, 4, title);
        rc = cat_change_take(c, st, conv, e);
        *fork = sqlite3_last_insert_rowid(c->db);
    }
    free(title);
    return rc;
}

static int fork_rows(struct catalog *c, int64_t conv, int64_t turn, const char *name, int64_t *fork,
                     struct err *e)
{
    int rc = copy_conv(c, conv, name, fork, e);
    struct copy k = {.c = c, .conv = *fork, .e = e};
    if (rc == 0 && turn == 0) {
        rc = catalog_tip(c, conv, true, &turn, e);
    }
    if (rc == 0) {
        rc = catalog_path(c, conv, turn, copy_turn, &k, e);
        rc = rc < 0 ? rc : k.rc;
    }
    if (rc == 0 && turn > 0 && k.last == 0) {
        rc = err_set(e, QE_NOTFOUND, "conversation %lld has no turn %lld", (long long)conv,
                     (long long)turn);
    }
    return rc < 0 ? rc : catalog_set_leaf(c, *fork, k.last, e);
}

int catalog_fork(struct catalog *c, int64_t conv, int64_t turn, const char *name, int64_t *fork,
                 struct err *e)
{
    int64_t id = 0;
    int rc = cat_begin_write(c, e);
    if (rc < 0) {
        return rc;
    }
    rc = cat_end_write(c, fork_rows(c, conv, turn, name, &id, e), e);
    if (rc == 0) {
        *fork = id;
    }
    return rc;
}

/* ---- what a dead writer left ---- */

int catalog_unfinished(struct catalog *c, catalog_conv_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "SELECT " CONV_COLUMNS
                         " FROM conversations WHERE id IN (SELECT conversation FROM turns"
                         " WHERE finish IS NULL AND role = 'assistant') ORDER BY id",
                         &st, e);
    return rc < 0 ? rc : cat_convs_take(c, st, fn, ctx, e);
}

/* The last unfinished answer that says something, and its tokens; else the question that the last
 * one was to answer, which was said all the same. */
static int last_said(struct catalog *c, int64_t conv, int64_t *turn, int *tokens, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "SELECT iif(said, id, coalesce(parent, 0)), iif(said, tokens, 0) FROM"
                         " (SELECT id, parent, coalesce(length(ids), 0) / 4 AS tokens,"
                         " text <> '' OR coalesce(thought, '') <> '' AS said FROM turns"
                         " WHERE conversation = ?1 AND finish IS NULL AND role = 'assistant')"
                         " ORDER BY said DESC, id DESC LIMIT 1",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    const int step = sqlite3_step(st);
    *turn = step == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    *tokens = step == SQLITE_ROW ? sqlite3_column_int(st, 1) : 0;
    if (step != SQLITE_ROW && step != SQLITE_DONE) {
        rc = cat_fail(c, "read a conversation", e);
    }
    sqlite3_finalize(st);
    return rc;
}

/* Until somebody has looked at it. */
static int mark_recovered(struct catalog *c, int64_t conv, int tokens, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(
        c, "INSERT OR REPLACE INTO recovered(conversation, tokens) VALUES (?1, ?2)", &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    sqlite3_bind_int(st, 2, tokens);
    return cat_run_take(c, st, "end an answer", e);
}

static int end_unfinished(struct catalog *c, int64_t conv, int *n, int *tokens, struct err *e)
{
    int64_t turn = 0;
    int rc = cat_join_parts(c, conv, e);
    rc = rc < 0 ? rc : last_said(c, conv, &turn, tokens, e);
    if (rc == 0 && turn > 0) {
        rc = catalog_set_leaf(c, conv, turn, e);
    }
    sqlite3_stmt *st = NULL;
    if (rc == 0) {
        rc = cat_prepare(c,
                         "UPDATE turns SET finish = 'interrupted' WHERE conversation = ?1"
                         " AND finish IS NULL AND role = 'assistant'",
                         &st, e);
    }
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    rc = cat_run_take(c, st, "end an answer", e);
    *n = sqlite3_changes(c->db);
    return rc < 0 || *n == 0 ? rc : mark_recovered(c, conv, *tokens, e);
}

int catalog_seen(struct catalog *c, int64_t conv, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c, "DELETE FROM recovered WHERE conversation = ?1", &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    return cat_run_take(c, st, "change a conversation", e);
}

int catalog_recover(struct catalog *c, int64_t conv, int *n, int *tokens, struct err *e)
{
    *n = *tokens = 0;
    int rc = cat_begin_write(c, e);
    return rc < 0 ? rc : cat_end_write(c, end_unfinished(c, conv, n, tokens, e), e);
}
