/* The schema and every statement of the catalogue. Owns the connection. Turns
 * form a tree by their parent, so that branches need no other schema; the word
 * index follows by triggers. Statements are prepared per call: a commit's sync
 * costs a thousand times more. */
#include "config.h"
#include "sessions/catalog.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"

struct catalog {
    sqlite3 *db;
    char *path;
};

/* Step i takes the schema from version i to i + 1. Never edit one that was
 * released: append. */
static const char *const migrations[] = {
    "CREATE TABLE conversations("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " created INTEGER NOT NULL,"
    " updated INTEGER NOT NULL,"
    " title TEXT NOT NULL DEFAULT '',"
    " model TEXT NOT NULL,"
    " system TEXT);"
    "CREATE INDEX conversations_updated ON conversations(updated);"
    "CREATE TABLE turns("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " conversation INTEGER NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,"
    " parent INTEGER REFERENCES turns(id) ON DELETE CASCADE,"
    " role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool', 'system')),"
    " text TEXT NOT NULL,"
    " thought TEXT,"
    " calls TEXT,"
    " ids BLOB," /* little-endian int32 */
    " finish TEXT,"
    " stats TEXT,"
    " created INTEGER NOT NULL);"
    "CREATE INDEX turns_conversation ON turns(conversation, id);"
    "CREATE INDEX turns_parent ON turns(parent);"
    "CREATE VIRTUAL TABLE words USING fts5(text, content='turns', content_rowid='id',"
    " tokenize='unicode61 remove_diacritics 2');"
    "CREATE TRIGGER turns_insert AFTER INSERT ON turns BEGIN"
    " INSERT INTO words(rowid, text) VALUES (new.id, new.text); END;"
    "CREATE TRIGGER turns_delete AFTER DELETE ON turns BEGIN"
    " INSERT INTO words(words, rowid, text) VALUES ('delete', old.id, old.text); END;"
    "CREATE TRIGGER turns_update AFTER UPDATE OF text ON turns BEGIN"
    " INSERT INTO words(words, rowid, text) VALUES ('delete', old.id, old.text);"
    " INSERT INTO words(rowid, text) VALUES (new.id, new.text); END;",
};
#define SCHEMA_VERSION ((int)(sizeof migrations / sizeof *migrations))

static const char *const roles[] = {
    [CAT_USER] = "user",
    [CAT_ASSISTANT] = "assistant",
    [CAT_TOOL] = "tool",
    [CAT_SYSTEM] = "system",
};

/* ---- SQLite in our terms ---- */

static int fail(struct catalog *c, const char *doing, struct err *e)
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
    return err_set(e, code, "%s: cannot %s: %s", c->path, doing, sqlite3_errmsg(c->db));
}

static int exec(struct catalog *c, const char *sql, const char *doing, struct err *e)
{
    return sqlite3_exec(c->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : fail(c, doing, e);
}

static int prepare(struct catalog *c, const char *sql, sqlite3_stmt **st, struct err *e)
{
    return sqlite3_prepare_v2(c->db, sql, -1, st, NULL) == SQLITE_OK ? 0 : fail(c, "read it", e);
}

/* Runs a statement that gives no rows, and frees it. */
static int run_take(struct catalog *c, sqlite3_stmt *st, const char *doing, struct err *e)
{
    int rc = sqlite3_step(st) == SQLITE_DONE ? 0 : fail(c, doing, e);
    sqlite3_finalize(st);
    return rc;
}

static void bind_text(sqlite3_stmt *st, int i, const char *p, size_t n)
{
    if (p) {
        sqlite3_bind_text64(st, i, p, n, SQLITE_STATIC, SQLITE_UTF8);
    }
}

static void bind_str(sqlite3_stmt *st, int i, const char *s)
{
    bind_text(st, i, s, s ? strlen(s) : 0);
}

static void bind_ids(sqlite3_stmt *st, int i, const int32_t *ids, size_t n)
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

static int int_of(struct catalog *c, const char *sql, int64_t *out, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(c, sql, &st, e);
    if (rc == 0) {
        rc = sqlite3_step(st) == SQLITE_ROW ? 0 : fail(c, "read it", e);
    }
    if (rc == 0) {
        *out = sqlite3_column_int64(st, 0);
    }
    sqlite3_finalize(st);
    return rc;
}

/* ---- opening ---- */

static int migrate(struct catalog *c, struct err *e)
{
    /* Taking the write lock first: of two processes one migrates, the other waits
     * and finds nothing to do. */
    int rc = exec(c, "BEGIN IMMEDIATE", "write it", e);
    if (rc < 0) {
        return rc;
    }
    int64_t have = 0;
    rc = int_of(c, "PRAGMA user_version", &have, e);
    if (rc == 0 && have > SCHEMA_VERSION) {
        rc = err_set(e, QE_UNSUPPORTED,
                     "%s was written by a newer quasar (schema %d, this one knows %d); it is left "
                     "as it is",
                     c->path, (int)have, SCHEMA_VERSION);
    }
    for (int64_t v = have; rc == 0 && v < SCHEMA_VERSION; v++) {
        rc = exec(c, migrations[v], "bring its schema up to date", e);
    }
    if (rc == 0 && have < SCHEMA_VERSION) {
        char *sql = sqlite3_mprintf("PRAGMA user_version = %d", SCHEMA_VERSION);
        rc = exec(c, sql, "bring its schema up to date", e);
        sqlite3_free(sql);
    }
    if (rc == 0) {
        rc = exec(c, "COMMIT", "write it", e);
    }
    if (rc < 0) {
        sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
    }
    return rc;
}

/* SQLite gives its side files the database's mode, so ours is made first. */
static int make_private(const char *path, struct err *e)
{
    char *dir = mem_strdup(path);
    char *slash = strrchr(dir, '/');
    int rc = 0;
    if (slash && slash != dir) {
        *slash = 0;
        rc = io_mkdirs(dir, 0700, e);
    }
    free(dir);
    if (rc < 0) {
        return rc;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return err_sys(e, QE_IO, errno, "cannot open %s", path);
    }
    close(fd);
    return 0;
}

int catalog_open(const char *path, struct catalog **out, struct err *e)
{
    int rc = make_private(path, e);
    if (rc < 0) {
        return rc;
    }
    struct catalog *c = mem_zalloc(sizeof *c);
    c->path = mem_strdup(path);
    if (sqlite3_open_v2(path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) !=
        SQLITE_OK) {
        rc = err_set(e, QE_IO, "cannot open %s: %s", path,
                     c->db ? sqlite3_errmsg(c->db) : "out of memory");
        goto fail;
    }
    sqlite3_busy_timeout(c->db, 5000);
    rc = exec(c, "PRAGMA journal_mode = WAL", "switch on its write-ahead log", e);
    if (rc == 0) {
        rc = exec(c, "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON", "read it", e);
    }
    if (rc == 0) {
        rc = migrate(c, e);
    }
    if (rc < 0) {
        goto fail;
    }
    *out = c;
    return 0;
fail:
    catalog_close(c);
    return rc;
}

void catalog_close(struct catalog *c)
{
    if (c) {
        sqlite3_close(c->db);
        free(c->path);
        free(c);
    }
}

/* ---- writing ---- */

int catalog_begin(struct catalog *c, const char *model, const char *system, int64_t *conv,
                  struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(c,
                     "INSERT INTO conversations(created, updated, model, system) "
                     "VALUES (?1, ?1, ?2, ?3)",
                     &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, (int64_t)time(NULL));
    bind_str(st, 2, model ? model : "");
    bind_str(st, 3, system);
    rc = run_take(c, st, "add a conversation", e);
    if (rc == 0) {
        *conv = sqlite3_last_insert_rowid(c->db);
    }
    return rc;
}

/* The first line of a text, at most 80 bytes, cut between characters. */
static size_t title_len(const char *p, size_t n)
{
    size_t len = 0;
    while (len < n && p[len] != '\n' && p[len] != '\r' && p[len] != 0) {
        len++;
    }
    if (len > 80) {
        len = 80;
        while (len > 0 && ((unsigned char)p[len] & 0xC0) == 0x80) {
            len--;
        }
    }
    return len;
}

static int touch(struct catalog *c, int64_t conv, const struct catalog_turn *t, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(c,
                     "UPDATE conversations SET updated = ?2,"
                     " title = CASE WHEN title = '' THEN ?3 ELSE title END WHERE id = ?1",
                     &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    sqlite3_bind_int64(st, 2, (int64_t)time(NULL));
    bind_text(st, 3, t->text ? t->text : "",
              t->role == CAT_USER ? title_len(t->text, t->text_n) : 0);
    return run_take(c, st, "update a conversation", e);
}

static int insert_turn(struct catalog *c, int64_t conv, int64_t parent,
                       const struct catalog_turn *t, int64_t *id, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(c,
                     "INSERT INTO turns(conversation, parent, role, text, thought, calls, ids,"
                     " finish, stats, created) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                     &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    if (parent > 0) {
        sqlite3_bind_int64(st, 2, parent);
    }
    bind_str(st, 3, roles[t->role]);
    bind_text(st, 4, t->text ? t->text : "", t->text_n);
    bind_text(st, 5, t->thought, t->thought_n);
    bind_str(st, 6, t->calls);
    bind_ids(st, 7, t->ids, t->n_ids);
    bind_str(st, 8, t->finish);
    bind_str(st, 9, t->stats);
    sqlite3_bind_int64(st, 10, (int64_t)time(NULL));
    rc = run_take(c, st, "add a turn", e);
    if (rc == 0) {
        *id = sqlite3_last_insert_rowid(c->db);
    }
    return rc;
}

int catalog_add(struct catalog *c, int64_t conv, int64_t parent, const struct catalog_turn *t,
                int64_t *id, struct err *e)
{
    int rc = exec(c, "BEGIN IMMEDIATE", "write it", e);
    if (rc < 0) {
        return rc;
    }
    int64_t row = 0;
    rc = insert_turn(c, conv, parent, t, &row, e);
    if (rc == 0) {
        rc = touch(c, conv, t, e);
    }
    if (rc == 0) {
        rc = exec(c, "COMMIT", "write it", e);
    }
    if (rc < 0) {
        sqlite3_exec(c->db, "ROLLBACK", NULL, NULL, NULL);
        return rc;
    }
    *id = row;
    return 0;
}

int catalog_update(struct catalog *c, int64_t id, const struct catalog_turn *t, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(c,
                     "UPDATE turns SET text = ?2, thought = ?3, calls = ?4, ids = ?5, finish = ?6,"
                     " stats = ?7 WHERE id = ?1",
                     &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, id);
    bind_text(st, 2, t->text ? t->text : "", t->text_n);
    bind_text(st, 3, t->thought, t->thought_n);
    bind_str(st, 4, t->calls);
    bind_ids(st, 5, t->ids, t->n_ids);
    bind_str(st, 6, t->finish);
    bind_str(st, 7, t->stats);
    rc = run_take(c, st, "update a turn", e);
    if (rc == 0 && sqlite3_changes(c->db) != 1) {
        return err_set(e, QE_NOTFOUND, "%s has no turn %lld", c->path, (long long)id);
    }
    return rc;
}

int catalog_remove(struct catalog *c, int64_t conv, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(c, "DELETE FROM conversations WHERE id = ?1", &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    rc = run_take(c, st, "remove a conversation", e);
    if (rc == 0 && sqlite3_changes(c->db) != 1) {
        return err_set(e, QE_NOTFOUND, "%s has no conversation %lld", c->path, (long long)conv);
    }
    return rc;
}

/* ---- reading ---- */

static const char *text_at(sqlite3_stmt *st, int i, size_t *n)
{
    const char *p = (const char *)sqlite3_column_text(st, i);
    if (n) {
        *n = p ? (size_t)sqlite3_column_bytes(st, i) : 0;
    }
    return p;
}

int catalog_list(struct catalog *c, int limit, bool (*fn)(void *ctx, const struct catalog_conv *v),
                 void *ctx, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(c,
                     "SELECT id, created, updated, title, model, system,"
                     " (SELECT count(*) FROM turns WHERE conversation = conversations.id)"
                     " FROM conversations ORDER BY updated DESC, id DESC LIMIT ?1",
                     &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int(st, 1, limit);
    int step = 0;
    bool more = true;
    while (more && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct catalog_conv v = {
            .id = sqlite3_column_int64(st, 0),
            .created = sqlite3_column_int64(st, 1),
            .updated = sqlite3_column_int64(st, 2),
            .title = text_at(st, 3, NULL),
            .model = text_at(st, 4, NULL),
            .system = text_at(st, 5, NULL),
            .turns = sqlite3_column_int(st, 6),
        };
        more = fn(ctx, &v);
    }
    rc = !more || step == SQLITE_DONE ? 0 : fail(c, "list it", e);
    sqlite3_finalize(st);
    return rc;
}

#define TURN_COLUMNS                                                                               \
    "turns.id, turns.parent, turns.role, turns.text, turns.thought, turns.calls, turns.ids,"       \
    " turns.finish, turns.stats, turns.created, turns.conversation"

/* Fills t from a row of TURN_COLUMNS; ids is scratch that t borrows. */
static void read_turn(sqlite3_stmt *st, struct catalog_turn *t, int32_t **ids)
{
    *t = (struct catalog_turn){
        .id = sqlite3_column_int64(st, 0),
        .parent = sqlite3_column_int64(st, 1),
        .calls = text_at(st, 5, NULL),
        .finish = text_at(st, 7, NULL),
        .stats = text_at(st, 8, NULL),
        .created = sqlite3_column_int64(st, 9),
    };
    const char *role = text_at(st, 2, NULL);
    for (int r = CAT_USER; role && r <= CAT_SYSTEM; r++) {
        if (strcmp(role, roles[r]) == 0) {
            t->role = (enum catalog_role)r;
        }
    }
    t->text = text_at(st, 3, &t->text_n);
    t->thought = text_at(st, 4, &t->thought_n);
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

int catalog_turns(struct catalog *c, int64_t conv,
                  bool (*fn)(void *ctx, const struct catalog_turn *t), void *ctx, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(c, "SELECT " TURN_COLUMNS " FROM turns WHERE conversation = ?1 ORDER BY id",
                     &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    int step = 0;
    bool more = true;
    int32_t *ids = NULL;
    while (more && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct catalog_turn t;
        read_turn(st, &t, &ids);
        more = fn(ctx, &t);
    }
    rc = !more || step == SQLITE_DONE ? 0 : fail(c, "read a conversation", e);
    free(ids);
    sqlite3_finalize(st);
    return rc;
}

/* The words as FTS5 strings, so that no character of theirs is an operator. */
static void quote_words(const char *words, struct buf *out)
{
    const char *sep = "";
    while (*words) {
        words += strspn(words, " \t\r\n");
        size_t n = strcspn(words, " \t\r\n");
        if (n == 0) {
            break;
        }
        buf_adds(out, sep);
        buf_addc(out, '"');
        for (size_t i = 0; i < n; i++) {
            if (words[i] == '"') {
                buf_addc(out, '"');
            }
            buf_addc(out, words[i]);
        }
        buf_addc(out, '"');
        sep = " ";
        words += n;
    }
}

int catalog_search(struct catalog *c, const char *words, int limit,
                   bool (*fn)(void *ctx, int64_t conv, const struct catalog_turn *t), void *ctx,
                   struct err *e)
{
    struct buf match = BUF_INIT;
    quote_words(words, &match);
    if (match.len == 0) {
        buf_free(&match);
        return 0;
    }
    sqlite3_stmt *st = NULL;
    int rc = prepare(c,
                     "SELECT " TURN_COLUMNS " FROM words JOIN turns ON turns.id = words.rowid"
                     " WHERE words MATCH ?1 ORDER BY rank LIMIT ?2",
                     &st, e);
    if (rc < 0) {
        goto out;
    }
    bind_text(st, 1, match.data, match.len);
    sqlite3_bind_int(st, 2, limit);
    int step = 0;
    bool more = true;
    int32_t *ids = NULL;
    while (more && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct catalog_turn t;
        read_turn(st, &t, &ids);
        more = fn(ctx, sqlite3_column_int64(st, 10), &t);
    }
    rc = !more || step == SQLITE_DONE ? 0 : fail(c, "search it", e);
    free(ids);
    sqlite3_finalize(st);
out:
    buf_free(&match);
    return rc;
}

int catalog_verify(struct catalog *c, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = prepare(c, "PRAGMA integrity_check(1)", &st, e);
    if (rc < 0) {
        return rc;
    }
    if (sqlite3_step(st) != SQLITE_ROW) {
        rc = fail(c, "check it", e);
    } else if (strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0) {
        rc = err_set(e, QE_FORMAT, "%s is damaged: %s", c->path, sqlite3_column_text(st, 0));
    }
    sqlite3_finalize(st);
    return rc;
}
