/* Messages that wait until the model is done, in the order in which they are to be sent: a
 * list for the place in a conversation that they were written at, replaced as a whole. */
#include "config.h"
#include "sessions/catalog.h"

#include <sqlite3.h>

#include "sessions/catalog_sql.h"

static int drop(struct catalog *c, int64_t conv, int64_t was, int64_t turn, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc =
        cat_prepare(c, "DELETE FROM queued WHERE conversation = ?1 AND turn IN (?2, ?3)", &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    sqlite3_bind_int64(st, 2, was);
    sqlite3_bind_int64(st, 3, turn);
    return cat_run_take(c, st, "forget a message that waited", e);
}

static int put(struct catalog *c, int64_t conv, int64_t turn, const struct catalog_queued *q,
               struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "INSERT INTO queued(conversation, turn, shown, message)"
                         " VALUES (?1, ?2, ?3, ?4)",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    sqlite3_bind_int64(st, 2, turn);
    cat_bind_text(st, 3, q->shown ? q->shown : "", q->shown_n);
    cat_bind_text(st, 4, q->message ? q->message : "", q->message_n);
    return cat_run_take(c, st, "keep a message that waits", e);
}

int catalog_queue_put(struct catalog *c, int64_t conv, int64_t was, int64_t turn,
                      const struct catalog_queued *q, size_t n, struct err *e)
{
    int rc = cat_begin_write(c, e);
    if (rc < 0) {
        return rc;
    }
    rc = drop(c, conv, was, turn, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = put(c, conv, turn, &q[i], e);
    }
    return cat_end_write(c, rc, e);
}

int catalog_queue_get(struct catalog *c, int64_t conv, int64_t turn, int64_t *after,
                      bool (*fn)(void *ctx, const struct catalog_queued *q), void *ctx,
                      struct err *e)
{
    /* the turn itself has depth 0, the first one the largest, and what is before it one more */
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(
        c,
        UP_FROM("?2") ", place(turn, depth) AS (SELECT id, depth FROM up UNION ALL"
                      " SELECT 0, 1 + coalesce((SELECT max(depth) FROM up), 0))"
                      "SELECT turn, shown, message FROM queued WHERE conversation = ?1 AND turn ="
                      " (SELECT place.turn FROM place JOIN queued ON queued.turn = place.turn AND"
                      " queued.conversation = ?1 ORDER BY place.depth LIMIT 1) ORDER BY id",
        &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    sqlite3_bind_int64(st, 2, turn);
    int step = 0;
    bool more = true;
    while (more && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct catalog_queued q = {0};
        *after = sqlite3_column_int64(st, 0);
        q.shown = cat_text_at(st, 1, &q.shown_n);
        q.message = cat_text_at(st, 2, &q.message_n);
        more = fn(ctx, &q);
    }
    rc = !more || step == SQLITE_DONE ? 0 : cat_fail(c, "read what waits", e);
    sqlite3_finalize(st);
    return rc;
}
