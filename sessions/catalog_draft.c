/* What was being written: one draft for the place in a conversation that it would follow, and
 * those of conversations that do not exist yet, which belong to whoever writes them. */
#include "config.h"
#include "sessions/catalog.h"

#include <sqlite3.h>
#include <time.h>

#include "sessions/catalog_sql.h"

int catalog_draft_put(struct catalog *c, int64_t conv, int64_t turn, int64_t owner, const char *p,
                      size_t n, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_begin_write(c, e);
    if (rc < 0) {
        return rc;
    }
    rc = cat_prepare(c,
                     "DELETE FROM drafts WHERE coalesce(conversation, 0) = ?1 AND turn = ?2"
                     " AND (?1 > 0 OR owner = ?3)",
                     &st, e);
    if (rc == 0) {
        sqlite3_bind_int64(st, 1, conv);
        sqlite3_bind_int64(st, 2, turn);
        sqlite3_bind_int64(st, 3, owner);
        rc = cat_run_take(c, st, "forget a draft", e);
    }
    if (rc == 0 && n > 0) {
        rc = cat_prepare(c,
                         "INSERT INTO drafts(conversation, turn, owner, updated, draft)"
                         " VALUES (nullif(?1, 0), ?2, ?3, ?4, ?5)",
                         &st, e);
        if (rc == 0) {
            sqlite3_bind_int64(st, 1, conv);
            sqlite3_bind_int64(st, 2, turn);
            sqlite3_bind_int64(st, 3, owner);
            sqlite3_bind_int64(st, 4, (int64_t)time(NULL));
            sqlite3_bind_blob64(st, 5, p, n, SQLITE_STATIC);
            rc = cat_run_take(c, st, "keep a draft", e);
        }
    }
    return cat_end_write(c, rc, e);
}

int catalog_draft_get(struct catalog *c, int64_t conv, int64_t turn, int64_t *after,
                      struct buf *out, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "SELECT draft, turn FROM drafts WHERE conversation = ?1 AND (turn = ?2 OR"
                         " turn = (SELECT parent FROM turns WHERE id = ?2 AND role = 'assistant'))"
                         " ORDER BY turn = ?2 DESC, id DESC LIMIT 1",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    sqlite3_bind_int64(st, 2, turn);
    const int step = sqlite3_step(st);
    if (step == SQLITE_ROW) {
        const void *p = sqlite3_column_blob(st, 0);
        const int n = sqlite3_column_bytes(st, 0);
        if (p && n > 0) {
            buf_add(out, p, (size_t)n);
        }
        *after = sqlite3_column_int64(st, 1);
    }
    rc = step == SQLITE_ROW || step == SQLITE_DONE ? 0 : cat_fail(c, "read a draft", e);
    sqlite3_finalize(st);
    return rc;
}

int catalog_draft_adopt(struct catalog *c, bool (*gone)(void *ctx, int64_t owner), void *ctx,
                        struct buf *out, struct err *e)
{
    int rc = cat_begin_write(c, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_stmt *st = NULL;
    int64_t owner = 0;
    rc = cat_prepare(
        c, "SELECT owner, draft FROM drafts WHERE conversation IS NULL ORDER BY updated DESC", &st,
        e);
    if (rc == 0) {
        int step = 0;
        while (out->len == 0 && (step = sqlite3_step(st)) == SQLITE_ROW) {
            const void *p = sqlite3_column_blob(st, 1);
            const int n = sqlite3_column_bytes(st, 1);
            if (p && n > 0 && gone(ctx, sqlite3_column_int64(st, 0))) {
                owner = sqlite3_column_int64(st, 0);
                buf_add(out, p, (size_t)n);
            }
        }
        rc = step == SQLITE_ROW || step == SQLITE_DONE ? 0 : cat_fail(c, "read a draft", e);
        sqlite3_finalize(st);
    }
    if (rc == 0 && out->len > 0) {
        rc = cat_prepare(c, "DELETE FROM drafts WHERE conversation IS NULL AND owner = ?1", &st, e);
        if (rc == 0) {
            sqlite3_bind_int64(st, 1, owner);
            rc = cat_run_take(c, st, "take a draft", e);
        }
    }
    return cat_end_write(c, rc, e);
}
