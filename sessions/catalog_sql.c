/* What the catalogue's files share: statements, and rows in our terms. */
#include "config.h"
#include "sessions/catalog_sql.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

int cat_fail(struct catalog *c, const char *doing, struct err *e)
{
    int code = QE_IO;
    switch (sqlite3_errcode(c->db)) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_ERROR: /* a table or column that should be there is not */
        code = QE_FORMAT;
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        code = QE_BUSY;
        break;
    }
    if (c->fixed && sqlite3_errcode(c->db) == SQLITE_READONLY) {
        return err_set(e, code, "%s: cannot %s: it can only be read, because %s", c->path, doing,
                       c->fixed);
    }
    const int why = code == QE_IO ? sqlite3_system_errno(c->db) : 0;
    return err_set(e, code, "%s: cannot %s: %s%s%s%s", c->path, doing, sqlite3_errmsg(c->db),
                   why ? ": " : "", why ? strerror(why) : "",
                   code == QE_FORMAT ? " (quasar sessions verify --repair saves what can be read)"
                                     : "");
}

int cat_exec(struct catalog *c, const char *sql, const char *doing, struct err *e)
{
    return sqlite3_exec(c->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : cat_fail(c, doing, e);
}

int cat_prepare(struct catalog *c, const char *sql, sqlite3_stmt **st, struct err *e)
{
    return sqlite3_prepare_v2(c->db, sql, -1, st, NULL) == SQLITE_OK ? 0
                                                                     : cat_fail(c, "read it", e);
}

int cat_run_take(struct catalog *c, sqlite3_stmt *st, const char *doing, struct err *e)
{
    int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : cat_fail(c, doing, e);
    sqlite3_finalize(st);
    return rc;
}

int cat_not_there(struct catalog *c, int64_t conv, struct err *e)
{
    return err_set(e, QE_NOTFOUND, "%s has no conversation %lld", c->path, (long long)conv);
}

int cat_change_take(struct catalog *c, sqlite3_stmt *st, int64_t conv, struct err *e)
{
    sqlite3_bind_int64(st, 1, conv);
    int rc = cat_run_take(c, st, "change a conversation", e);
    return rc == 0 && sqlite3_changes(c->db) != 1 ? cat_not_there(c, conv, e) : rc;
}

void cat_bind_text(sqlite3_stmt *st, int i, const char *p, size_t n)
{
    if (p) {
        sqlite3_bind_text64(st, i, p, n, SQLITE_STATIC, SQLITE_UTF8);
    }
}

void cat_bind_str(sqlite3_stmt *st, int i, const char *s)
{
    cat_bind_text(st, i, s, s ? strlen(s) : 0);
}

void cat_bind_ids(sqlite3_stmt *st, int i, const int32_t *ids, size_t n)
{
    if (n == 0) {
        return;
    }
    uint8_t *p = mem_array(n, 4);
    for (size_t k = 0; k < n; k++) {
        uint32_t v = (uint32_t)ids[k];
        for (unsigned b = 0; b < 4; b++) {
            p[4 * k + b] = (uint8_t)(v >> (8 * b));
        }
    }
    sqlite3_bind_blob64(st, i, p, 4 * n, free);
}

int cat_int_take(struct catalog *c, sqlite3_stmt *st, int64_t *out, struct err *e)
{
    const int step = sqlite3_step(st);
    int rc = 0;
    if (step == SQLITE_ROW) {
        *out = sqlite3_column_int64(st, 0);
    } else if (step == SQLITE_DONE) {
        *out = 0;
    } else {
        rc = cat_fail(c, "read it", e);
    }
    sqlite3_finalize(st);
    return rc;
}

int cat_begin_write(struct catalog *c, struct err *e)
{
    return cat_exec(c, "BEGIN IMMEDIATE", "write it", e);
}

int cat_end_write(struct catalog *c, int rc, struct err *e)
{
    if (rc == 0) {
        rc = cat_exec(c, "COMMIT", "write it", e);
    }
    if (rc < 0) {
        sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return rc;
}

const char *cat_text_at(sqlite3_stmt *st, int i, size_t *n)
{
    const char *p = (const char *)sqlite3_column_text(st, i);
    if (n) {
        *n = p ? (size_t)sqlite3_column_bytes(st, i) : 0;
    }
    return p;
}

const char *const cat_roles[4] = {
    [CAT_USER] = "user",
    [CAT_ASSISTANT] = "assistant",
    [CAT_TOOL] = "tool",
    [CAT_SYSTEM] = "system",
};

enum catalog_role cat_role_at(sqlite3_stmt *st, int i)
{
    const char *role = cat_text_at(st, i, NULL);
    for (int r = CAT_USER; role && r <= CAT_SYSTEM; r++) {
        if (strcmp(role, cat_roles[r]) == 0) {
            return (enum catalog_role)r;
        }
    }
    return CAT_USER;
}

void cat_read_turn(sqlite3_stmt *st, struct catalog_turn *t, int32_t **ids)
{
    *t = (struct catalog_turn){
        .id = sqlite3_column_int64(st, 0),
        .parent = sqlite3_column_int64(st, 1),
        .calls = cat_text_at(st, 5, NULL),
        .finish = cat_text_at(st, 7, NULL),
        .stats = cat_text_at(st, 8, NULL),
        .settings = cat_text_at(st, 9, NULL),
        .created = sqlite3_column_int64(st, 10),
    };
    t->role = cat_role_at(st, 2);
    t->text = cat_text_at(st, 3, &t->text_n);
    t->text = t->text ? t->text : "";
    t->thought = cat_text_at(st, 4, &t->thought_n);
    const uint8_t *p = sqlite3_column_blob(st, 6);
    size_t n = (size_t)sqlite3_column_bytes(st, 6) / 4;
    if (n > 0) {
        *ids = mem_realloc(*ids, n * sizeof **ids);
        for (size_t k = 0; k < n; k++) {
            uint32_t v = 0;
            for (unsigned b = 0; b < 4; b++) {
                v |= (uint32_t)p[4 * k + b] << (8 * b);
            }
            (*ids)[k] = (int32_t)v;
        }
        t->ids = *ids;
        t->n_ids = n;
    }
}

/* A column that is never NULL but in a damaged file. */
static const char *text_or_empty(sqlite3_stmt *st, int i)
{
    const char *p = cat_text_at(st, i, NULL);
    return p ? p : "";
}

int cat_convs_take(struct catalog *c, sqlite3_stmt *st, catalog_conv_fn fn, void *ctx,
                   struct err *e)
{
    int step = 0;
    bool more = true;
    while (more && (step = sqlite3_step(st)) == SQLITE_ROW) {
        const struct catalog_conv v = {
            .id = sqlite3_column_int64(st, 0),
            .created = sqlite3_column_int64(st, 1),
            .updated = sqlite3_column_int64(st, 2),
            .title = text_or_empty(st, 3),
            .named = sqlite3_column_int(st, 4) != 0,
            .pinned = sqlite3_column_int(st, 5) != 0,
            .model = text_or_empty(st, 6),
            .system = cat_text_at(st, 7, NULL),
            .directory = cat_text_at(st, 8, NULL),
            .leaf = sqlite3_column_int64(st, 9),
            .tags = cat_text_at(st, 10, NULL),
            .turns = sqlite3_column_int(st, 11),
            .state_bytes = sqlite3_column_int64(st, 12),
            .recovered = sqlite3_column_int(st, 13),
        };
        more = fn(ctx, &v);
    }
    const int rc = !more || step == SQLITE_DONE ? 0 : cat_fail(c, "list it", e);
    sqlite3_finalize(st);
    return rc;
}

int cat_turns_take(struct catalog *c, sqlite3_stmt *st, catalog_turn_fn fn, void *ctx,
                   struct err *e)
{
    int step = 0;
    bool more = true;
    int32_t *ids = NULL;
    while (more && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct catalog_turn t;
        cat_read_turn(st, &t, &ids);
        more = fn(ctx, &t);
    }
    const int rc = !more || step == SQLITE_DONE ? 0 : cat_fail(c, "read a conversation", e);
    free(ids);
    sqlite3_finalize(st);
    return rc;
}

int cat_insert_turn(struct catalog *c, int64_t id, int64_t conv, int64_t parent,
                    const struct catalog_turn *t, int64_t *out, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "INSERT INTO turns(id, conversation, parent, role, text, thought, calls,"
                         " ids, finish, stats, settings, created)"
                         " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    if (id > 0) {
        sqlite3_bind_int64(st, 1, id);
    }
    sqlite3_bind_int64(st, 2, conv);
    if (parent > 0) {
        sqlite3_bind_int64(st, 3, parent);
    }
    cat_bind_str(st, 4, cat_roles[t->role]);
    cat_bind_text(st, 5, t->text ? t->text : "", t->text_n);
    cat_bind_text(st, 6, t->thought, t->thought_n);
    cat_bind_str(st, 7, t->calls);
    cat_bind_ids(st, 8, t->ids, t->n_ids);
    cat_bind_str(st, 9, t->finish);
    cat_bind_str(st, 10, t->stats);
    cat_bind_str(st, 11, t->settings);
    sqlite3_bind_int64(st, 12, t->created ? t->created : clock_wall());
    rc = cat_run_take(c, st, "add a turn", e);
    if (rc == 0) {
        *out = sqlite3_last_insert_rowid(c->db);
    }
    return rc;
}
