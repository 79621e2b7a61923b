/* The catalogue's table of saved states: which file belongs to which turn, and in
 * what order files go when there is no room. */
#include "config.h"
#include "sessions/catalog.h"

#include <time.h>

#include "base/clock.h"
#include "sessions/catalog_sql.h"

int catalog_state_add(struct catalog *c, const struct catalog_state *s, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "INSERT OR REPLACE INTO states(conversation, turn, file, compat, tokens,"
                         " bytes, used) SELECT conversation, id, ?2, ?3, ?4, ?5, ?6 FROM turns"
                         " WHERE id = ?1",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, s->turn);
    cat_bind_str(st, 2, s->file);
    cat_bind_str(st, 3, s->compat);
    sqlite3_bind_int64(st, 4, s->tokens);
    sqlite3_bind_int64(st, 5, s->bytes);
    sqlite3_bind_int64(st, 6, clock_wall());
    rc = cat_run_take(c, st, "add a state", e);
    if (rc == 0 && sqlite3_changes(c->db) == 0) {
        rc = err_set(e, QE_NOTFOUND, "%s has no turn %lld", c->path, (long long)s->turn);
    }
    return rc;
}

int catalog_state_remove(struct catalog *c, const char *file, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c, "DELETE FROM states WHERE file = ?1", &st, e);
    if (rc < 0) {
        return rc;
    }
    cat_bind_str(st, 1, file);
    return cat_run_take(c, st, "remove a state", e);
}

int catalog_state_used(struct catalog *c, const char *file, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c, "UPDATE states SET used = ?2 WHERE file = ?1", &st, e);
    if (rc < 0) {
        return rc;
    }
    cat_bind_str(st, 1, file);
    sqlite3_bind_int64(st, 2, clock_wall());
    return cat_run_take(c, st, "change a state", e);
}

#define STATE_COLUMNS                                                                              \
    "states.file, states.compat, states.turn, states.conversation, states.tokens, states.bytes,"   \
    " states.used"

static int states_take(struct catalog *c, sqlite3_stmt *st, catalog_state_fn fn, void *ctx,
                       struct err *e)
{
    int step = 0;
    bool more = true;
    while (more && (step = sqlite3_step(st)) == SQLITE_ROW) {
        const char *file = cat_text_at(st, 0, NULL), *compat = cat_text_at(st, 1, NULL);
        const struct catalog_state s = {
            .file = file ? file : "", /* NULL only in a damaged file */
            .compat = compat ? compat : "",
            .turn = sqlite3_column_int64(st, 2),
            .conv = sqlite3_column_int64(st, 3),
            .tokens = sqlite3_column_int64(st, 4),
            .bytes = sqlite3_column_int64(st, 5),
            .used = sqlite3_column_int64(st, 6),
            .pinned = sqlite3_column_int(st, 7) != 0,
            .superseded = sqlite3_column_int(st, 8) != 0,
        };
        more = fn(ctx, &s);
    }
    const int rc = !more || step == SQLITE_DONE ? 0 : cat_fail(c, "list the states", e);
    sqlite3_finalize(st);
    return rc;
}

int catalog_states_for(struct catalog *c, int64_t conv, int64_t turn, catalog_state_fn fn,
                       void *ctx, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         UP_FROM(LEAF_OR_2) "SELECT " STATE_COLUMNS ", 0, 0 FROM up JOIN states ON"
                                            " states.turn = up.id ORDER BY depth, states.id DESC",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    sqlite3_bind_int64(st, 2, turn);
    return states_take(c, st, fn, ctx, e);
}

/* above: the turns that come before one with a state. */
int catalog_states(struct catalog *c, catalog_state_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(
        c,
        "WITH RECURSIVE above(id) AS (SELECT parent FROM turns WHERE id IN (SELECT turn FROM"
        " states) UNION SELECT parent FROM turns JOIN above USING (id)) "
        "SELECT " STATE_COLUMNS ", pinned, states.turn IN (SELECT id FROM above) AS old"
        " FROM states JOIN conversations ON conversations.id = states.conversation"
        " ORDER BY pinned, old DESC, states.used, states.id",
        &st, e);
    return rc < 0 ? rc : states_take(c, st, fn, ctx, e);
}
