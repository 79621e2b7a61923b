/* What an answer under way has said since its turn was written: each piece is a row, so that a
 * write costs what the piece is long and not what the answer is. It is handed to the kernel and
 * not waited for on the disk: a killed process loses none of it. */
#include "config.h"
#include "sessions/catalog.h"

#include <sqlite3.h>

#include "sessions/catalog_sql.h"

#define BUSY_MS   5000 /* as catalog_open sets it */
#define LOG_PAGES 1000

static int insert(struct catalog *c, int64_t turn, const struct catalog_part *p, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c, "INSERT INTO parts(turn, text, thought, ids) VALUES (?1, ?2, ?3, ?4)",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, turn);
    if (p->text_n > 0) {
        sqlite3_bind_blob64(st, 2, p->text, p->text_n, SQLITE_STATIC);
    }
    if (p->thought_n > 0) {
        sqlite3_bind_blob64(st, 3, p->thought, p->thought_n, SQLITE_STATIC);
    }
    cat_bind_ids(st, 4, p->ids, p->n_ids);
    return cat_run_take(c, st, "add to an answer", e);
}

int catalog_part_add(struct catalog *c, int64_t turn, const struct catalog_part *p, struct err *e)
{
    int rc = cat_exec(c, "PRAGMA synchronous = NORMAL", "add to an answer", e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_busy_timeout(c->db, 0);
    sqlite3_wal_autocheckpoint(c->db, 0); /* the next write of the whole turn does it */
    rc = insert(c, turn, p, e);
    sqlite3_wal_autocheckpoint(c->db, LOG_PAGES);
    sqlite3_busy_timeout(c->db, BUSY_MS);
    const int back = cat_exec(c, "PRAGMA synchronous = FULL", "add to an answer", e);
    return rc < 0 ? rc : back;
}

/* All that is said of a turn, with its pieces. */
struct whole {
    struct buf text, thought, ids;
};

static void add_blob(struct buf *b, sqlite3_stmt *st, int column)
{
    const void *p = sqlite3_column_blob(st, column);
    const int n = sqlite3_column_bytes(st, column);
    if (p && n > 0) {
        buf_add(b, p, (size_t)n);
    }
}

static int gather(struct catalog *c, int64_t turn, struct whole *w, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "SELECT text, thought, ids FROM (SELECT 0 AS n, text, thought, ids FROM"
                         " turns WHERE id = ?1 UNION ALL"
                         " SELECT id, text, thought, ids FROM parts WHERE turn = ?1) ORDER BY n",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, turn);
    int step = 0;
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        add_blob(&w->text, st, 0);
        add_blob(&w->thought, st, 1);
        add_blob(&w->ids, st, 2);
    }
    rc = step == SQLITE_DONE ? 0 : cat_fail(c, "read an answer", e);
    sqlite3_finalize(st);
    return rc;
}

/* The pieces go with the old text (the trigger parts_over). */
static int write_whole(struct catalog *c, int64_t turn, const struct whole *w, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc =
        cat_prepare(c, "UPDATE turns SET text = ?2, thought = ?3, ids = ?4 WHERE id = ?1", &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, turn);
    cat_bind_text(st, 2, w->text.len ? w->text.data : "", w->text.len);
    if (w->thought.len > 0) {
        cat_bind_text(st, 3, w->thought.data, w->thought.len);
    }
    if (w->ids.len > 0) {
        sqlite3_bind_blob64(st, 4, w->ids.data, w->ids.len, SQLITE_STATIC);
    }
    return cat_run_take(c, st, "put an answer together", e);
}

/* The first turn of a conversation that has pieces; 0: none. */
static int first_with_parts(struct catalog *c, int64_t conv, int64_t *turn, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "SELECT coalesce(min(id), 0) FROM turns WHERE conversation = ?1"
                         " AND finish IS NULL AND role = 'assistant'"
                         " AND id IN (SELECT turn FROM parts)",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    return cat_int_take(c, st, turn, e);
}

int cat_join_parts(struct catalog *c, int64_t conv, struct err *e)
{
    int64_t turn = 0;
    int64_t done = 0;
    int rc = 0;
    while ((rc = first_with_parts(c, conv, &turn, e)) == 0 && turn > done) {
        struct whole w = {BUF_INIT, BUF_INIT, BUF_INIT};
        rc = gather(c, turn, &w, e);
        rc = rc < 0 ? rc : write_whole(c, turn, &w, e);
        buf_free(&w.text);
        buf_free(&w.thought);
        buf_free(&w.ids);
        if (rc < 0) {
            break;
        }
        done = turn;
    }
    return rc;
}
