/* The schema of the catalogue, and its turns; conversations and saved states are in
 * files of their own. Owns the connection. Turns form a tree by their parent, so
 * that branches need no other schema; the word index follows by triggers.
 * Statements are prepared per call: a commit's sync costs a thousand times more. */
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

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "sessions/catalog_sql.h"

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
    "ALTER TABLE conversations ADD COLUMN named INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE conversations ADD COLUMN pinned INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE conversations ADD COLUMN directory TEXT;"
    "ALTER TABLE conversations ADD COLUMN leaf INTEGER REFERENCES turns(id) ON DELETE SET NULL;"
    "ALTER TABLE turns ADD COLUMN settings TEXT;"
    "CREATE INDEX conversations_leaf ON conversations(leaf);"
    "CREATE INDEX conversations_title ON conversations(title);"
    "CREATE INDEX conversations_directory ON conversations(directory, updated);"
    "CREATE INDEX turns_unfinished ON turns(conversation)"
    " WHERE finish IS NULL AND role = 'assistant';"
    "UPDATE conversations SET leaf = (SELECT max(id) FROM turns"
    " WHERE conversation = conversations.id AND role = 'assistant' AND text <> '');"
    "CREATE TABLE tags("
    " id INTEGER PRIMARY KEY,"
    " conversation INTEGER NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,"
    " tag TEXT NOT NULL,"
    " UNIQUE (conversation, tag));"
    "CREATE TABLE states("
    " id INTEGER PRIMARY KEY,"
    " conversation INTEGER NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,"
    " turn INTEGER NOT NULL REFERENCES turns(id) ON DELETE CASCADE,"
    " file TEXT NOT NULL,"
    " compat TEXT NOT NULL,"
    " tokens INTEGER NOT NULL,"
    " bytes INTEGER NOT NULL,"
    " used INTEGER NOT NULL,"
    " UNIQUE (turn, file));"
    "CREATE INDEX states_conversation ON states(conversation);"
    "CREATE INDEX states_file ON states(file);",
    "CREATE TABLE drafts("
    " id INTEGER PRIMARY KEY,"
    " conversation INTEGER REFERENCES conversations(id) ON DELETE CASCADE," /* NULL: none yet */
    " turn INTEGER NOT NULL,"  /* it follows this one; 0: the first */
    " owner INTEGER NOT NULL," /* who writes it, where there is no conversation */
    " updated INTEGER NOT NULL,"
    " draft BLOB NOT NULL);"
    "CREATE INDEX drafts_conversation ON drafts(conversation, turn);",
    "CREATE TABLE queued("
    " id INTEGER PRIMARY KEY," /* in the order in which they are to be sent */
    " conversation INTEGER NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,"
    " turn INTEGER NOT NULL," /* as drafts.turn */
    " shown TEXT NOT NULL,"
    " message TEXT NOT NULL);"
    "CREATE INDEX queued_conversation ON queued(conversation, turn);"
    "CREATE TABLE recovered("
    " conversation INTEGER PRIMARY KEY REFERENCES conversations(id) ON DELETE CASCADE,"
    " tokens INTEGER NOT NULL);",
    "CREATE TABLE parts("
    " id INTEGER PRIMARY KEY," /* in the order in which they were said */
    " turn INTEGER NOT NULL REFERENCES turns(id) ON DELETE CASCADE,"
    " text BLOB,"
    " thought BLOB,"
    " ids BLOB);"
    "CREATE INDEX parts_turn ON parts(turn);"
    /* a turn that is written as a whole has them in it */
    "CREATE TRIGGER parts_over AFTER UPDATE OF text ON turns BEGIN"
    " DELETE FROM parts WHERE turn = new.id; END;",
};
_Static_assert(sizeof migrations / sizeof *migrations == CATALOG_SCHEMA, "a step for each version");

/* ---- opening ---- */

static int version_of(struct catalog *c, int64_t *version, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c, "PRAGMA user_version", &st, e);
    return rc < 0 ? rc : cat_int_take(c, st, version, e);
}

int cat_migrate(struct catalog *c, struct err *e)
{
    /* Taking the write lock first: of two processes one migrates, the other waits
     * and finds nothing to do. */
    int rc = cat_begin_write(c, e);
    if (rc < 0) {
        return rc;
    }
    int64_t have = 0;
    rc = version_of(c, &have, e);
    if (rc == 0 && have > CATALOG_SCHEMA) {
        rc = err_set(e, QE_UNSUPPORTED,
                     "%s was written by a newer quasar (schema %d, this one knows %d); it is left "
                     "as it is",
                     c->path, (int)have, CATALOG_SCHEMA);
    } else if (rc == 0 && have < 0) {
        rc = err_set(e, QE_FORMAT, "%s is damaged: its schema is %d", c->path, (int)have);
    }
    for (int64_t v = have; rc == 0 && v < CATALOG_SCHEMA; v++) {
        rc = cat_exec(c, migrations[v], "bring its schema up to date", e);
    }
    if (rc == 0 && have < CATALOG_SCHEMA) {
        char *sql = sqlite3_mprintf("PRAGMA user_version = %d", CATALOG_SCHEMA);
        rc = cat_exec(c, sql, "bring its schema up to date", e);
        sqlite3_free(sql);
    }
    return cat_end_write(c, rc, e);
}

/* SQLite gives its side files the database's mode, so ours is made first. */
static int make_folder(const char *path, struct err *e)
{
    char *dir = mem_strdup(path);
    char *slash = strrchr(dir, '/');
    int rc = 0;
    if (slash && slash != dir) {
        *slash = 0;
        rc = io_mkdirs(dir, 0700, e);
    }
    free(dir);
    return rc;
}

/* Puts a file of this content-free schema at name, which mkostemp has made for path. */
static int fill(const char *name, const char *path, struct err *e)
{
    struct catalog c = {.path = mem_strdup(path)};
    int rc =
        sqlite3_open_v2(name, &c.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK
            ? 0
            : cat_fail(&c, "make it", e);
    rc = rc < 0 ? rc : cat_migrate(&c, e);
    sqlite3_close(c.db);
    free(c.path);
    return rc;
}

/* A new file appears whole: one without a byte is damage, not a beginning. It is made
 * under another name, for that and because closing a descriptor of the file itself would
 * take away the locks that other connections of this process have on it. */
static int make_new(const char *path, bool empty, struct err *e)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s.new-XXXXXX", path);
    const int fd = mkostemp(b.data, O_CLOEXEC); /* 0600 */
    int rc = 0;
    if (fd < 0) {
        rc = err_sys(e, QE_IO, errno, "cannot make %s", path);
        buf_free(&b);
        return rc;
    }
    close(fd);
    rc = empty ? 0 : fill(b.data, path, e);
    if (rc == 0 && link(b.data, path) < 0 && errno != EEXIST) {
        rc = err_sys(e, QE_IO, errno, "cannot make %s", path);
    }
    unlink(b.data);
    buf_adds(&b, "-journal");
    unlink(b.data);
    buf_free(&b);
    return rc;
}

static bool has_log(const char *path)
{
    struct buf b = BUF_INIT;
    struct stat st;
    buf_printf(&b, "%s-wal", path);
    const bool has = stat(b.data, &st) == 0 && st.st_size > 0;
    buf_free(&b);
    return has;
}

/* The database, its log and the like are files, or are not there. */
static int check_kinds(const char *path, struct err *e)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    int rc = 0;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && rc == 0; i++) {
        struct stat st;
        struct buf b = BUF_INIT;
        buf_printf(&b, "%s%s", path, ends[i]);
        if (lstat(b.data, &st) == 0 && stat(b.data, &st) < 0) {
            rc = err_sys(e, QE_IO, errno, "%s is a link that leads nowhere (take it away)", b.data);
        } else if (stat(b.data, &st) == 0 && !S_ISREG(st.st_mode)) {
            rc = err_set(e, QE_IO, "%s is %s, not a catalogue: move it away", b.data,
                         S_ISDIR(st.st_mode)    ? "a folder"
                         : S_ISFIFO(st.st_mode) ? "a named pipe"
                                                : "a device or a socket");
        }
        buf_free(&b);
    }
    return rc;
}

/* A file that is there and has its first byte. SQLite would take one without for new, and
 * throw its log away, which may be all that is left of it. */
static int make_private(const char *path, struct err *e)
{
    struct stat st;
    int rc = make_folder(path, e);
    rc = rc < 0 ? rc : check_kinds(path, e);
    const bool log = has_log(path); /* before: whoever makes the file makes it first */
    if (rc == 0 && access(path, F_OK) < 0 && errno == ENOENT) {
        rc = make_new(path, log, e);
    }
    if (rc == 0 && stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0) {
        rc = err_set(e, QE_FORMAT, "%s is empty: a torn copy, or a disk that was full", path);
    }
    return rc;
}

/* While another process makes the file or brings it back after a kill, SQLite may say
 * that it is busy without having waited. */
static int switch_on_wal(struct catalog *c, struct err *e)
{
    int rc = QE_BUSY;
    for (int i = 0; i < 250 && rc == QE_BUSY; i++) {
        if (i > 0) {
            usleep(20000);
        }
        rc = cat_exec(c, "PRAGMA journal_mode = WAL", "switch on its write-ahead log", e);
    }
    return rc;
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
    if (sqlite3_db_readonly(c->db, "main") == 1) {
        /* SQLite opens it nevertheless, and would refuse the first thing written */
        rc = err_set(e, QE_IO, "%s cannot be written", path);
        goto fail;
    }
    rc = switch_on_wal(c, e);
    if (rc == 0) {
        /* what is removed is overwritten: neither a reader of the file nor a salvage
         * finds it again */
        rc = cat_exec(c,
                      "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;"
                      "PRAGMA secure_delete = ON",
                      "read it", e);
    }
    int64_t have = 0;
    if (rc == 0) {
        rc = version_of(c, &have, e);
    }
    if (rc == 0 && have != CATALOG_SCHEMA) {
        rc = cat_migrate(c, e);
    }
    if (rc < 0) {
        goto fail;
    }
    struct stat st;
    if (stat(path, &st) == 0) {
        c->dev = st.st_dev;
        c->ino = st.st_ino;
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
        free(c->fixed);
        free(c);
    }
}

int catalog_in_place(const struct catalog *c, struct err *e)
{
    struct stat st;
    if (stat(c->path, &st) < 0) {
        return err_sys(e, QE_IO, errno, "%s is gone (bring its folder back)", c->path);
    }
    if (st.st_dev != c->dev || st.st_ino != c->ino) {
        return err_set(e, QE_NOTFOUND, "%s is not the file any more that was opened", c->path);
    }
    return 0;
}

/* ---- writing ---- */

int catalog_begin(struct catalog *c, const struct catalog_new *n, int64_t *conv, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "INSERT INTO conversations(created, updated, title, named, model, system,"
                         " directory) VALUES (?1, ?1, ?2, ?3, ?4, ?5, ?6)",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, clock_wall());
    cat_bind_str(st, 2, n->name ? n->name : "");
    sqlite3_bind_int(st, 3, n->name != NULL);
    cat_bind_str(st, 4, n->model ? n->model : "");
    cat_bind_str(st, 5, n->system);
    cat_bind_str(st, 6, n->directory);
    rc = cat_run_take(c, st, "add a conversation", e);
    if (rc == 0) {
        *conv = sqlite3_last_insert_rowid(c->db);
    }
    return rc;
}

size_t cat_title_len(const char *p, size_t n)
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
    int rc = cat_prepare(c,
                         "UPDATE conversations SET updated = ?2,"
                         " title = CASE WHEN title = '' THEN ?3 ELSE title END WHERE id = ?1",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    sqlite3_bind_int64(st, 2, clock_wall());
    cat_bind_text(st, 3, t->text ? t->text : "",
                  t->role == CAT_USER ? cat_title_len(t->text, t->text_n) : 0);
    return cat_run_take(c, st, "update a conversation", e);
}

int catalog_add(struct catalog *c, int64_t conv, int64_t parent, const struct catalog_turn *t,
                int64_t *id, struct err *e)
{
    int rc = cat_begin_write(c, e);
    if (rc < 0) {
        return rc;
    }
    int64_t row = 0;
    struct catalog_turn now = *t;
    now.created = 0;
    rc = cat_insert_turn(c, 0, conv, parent, &now, &row, e);
    if (rc == 0) {
        rc = touch(c, conv, t, e);
    }
    rc = cat_end_write(c, rc, e);
    if (rc == 0) {
        *id = row;
    }
    return rc;
}

int catalog_update(struct catalog *c, int64_t id, const struct catalog_turn *t, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc =
        cat_prepare(c,
                    "UPDATE turns SET text = ?2, thought = ?3, calls = ?4, ids = ?5, finish = ?6,"
                    " stats = ?7, settings = ?8 WHERE id = ?1",
                    &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, id);
    cat_bind_text(st, 2, t->text ? t->text : "", t->text_n);
    cat_bind_text(st, 3, t->thought, t->thought_n);
    cat_bind_str(st, 4, t->calls);
    cat_bind_ids(st, 5, t->ids, t->n_ids);
    cat_bind_str(st, 6, t->finish);
    cat_bind_str(st, 7, t->stats);
    cat_bind_str(st, 8, t->settings);
    rc = cat_run_take(c, st, "update a turn", e);
    if (rc == 0 && sqlite3_changes(c->db) != 1) {
        return err_set(e, QE_NOTFOUND, "%s has no turn %lld", c->path, (long long)id);
    }
    return rc;
}

/* ---- reading ---- */

struct counting {
    catalog_conv_fn fn;
    void *ctx;
    int n;
    bool ended;
};

static bool count_conv(void *ctx, const struct catalog_conv *v)
{
    struct counting *k = ctx;
    k->n++;
    k->ended = !k->fn(k->ctx, v);
    return !k->ended;
}

int catalog_list(struct catalog *c, int limit, catalog_conv_fn fn, void *ctx, struct err *e)
{
    static const char *const ways[] = {
        "SELECT " CONV_COLUMNS " FROM conversations ORDER BY updated DESC, id DESC LIMIT ?1",
        /* of a damaged file: without what is counted in other tables, from where it broke off */
        "SELECT " CONV_COLUMNS_BARE " FROM conversations ORDER BY updated DESC, id DESC"
        " LIMIT ?1 OFFSET ?2",
        "SELECT " CONV_COLUMNS_BARE " FROM conversations NOT INDEXED ORDER BY updated DESC, id DESC"
        " LIMIT ?1 OFFSET ?2",
    };
    struct counting k = {fn, ctx, 0, false};
    int rc = QE_FORMAT;
    struct err first = ERR_INIT;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && rc == QE_FORMAT && !k.ended; i++) {
        sqlite3_stmt *st = NULL;
        struct err why = ERR_INIT;
        rc = cat_prepare(c, ways[i], &st, &why);
        if (rc == 0) {
            sqlite3_bind_int(st, 1, limit - k.n);
            if (i > 0) {
                sqlite3_bind_int(st, 2, k.n);
            }
            rc = cat_convs_take(c, st, count_conv, &k, &why);
        }
        first = first.code ? first : why;
    }
    if (first.code && e) {
        *e = first;
    }
    return first.code;
}

int catalog_turns(struct catalog *c, int64_t conv, catalog_turn_fn fn, void *ctx, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(
        c, "SELECT " TURN_COLUMNS " FROM turns WHERE conversation = ?1 ORDER BY id", &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    return cat_turns_take(c, st, fn, ctx, e);
}

static int verify_file(struct catalog *c, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c, "PRAGMA integrity_check(1)", &st, e);
    if (rc < 0) {
        return rc;
    }
    if (sqlite3_step(st) != SQLITE_ROW) {
        rc = cat_fail(c, "check it", e);
    } else if (strcmp((const char *)sqlite3_column_text(st, 0), "ok") != 0) {
        rc = err_set(e, QE_FORMAT,
                     "%s is damaged: %s (quasar sessions verify --repair saves what can be read)",
                     c->path, sqlite3_column_text(st, 0));
    }
    sqlite3_finalize(st);
    return rc;
}

/* The check has the form of a write, and writes nothing. */
static int verify_index(struct catalog *c, struct err *e)
{
    if (c->fixed) {
        sqlite3_exec(c->db, "PRAGMA query_only = OFF", NULL, NULL, NULL);
    }
    int rc = cat_exec(c, "INSERT INTO words(words, rank) VALUES ('integrity-check', 1)",
                      "check its index of words", e);
    if (c->fixed) {
        sqlite3_exec(c->db, "PRAGMA query_only = ON", NULL, NULL, NULL);
    }
    if (rc == QE_FORMAT) {
        rc = err_set(e, rc,
                     "the index of words in %s is not that of the texts: search may not find what "
                     "was said (quasar sessions verify --repair makes it anew)",
                     c->path);
    }
    return rc;
}

int catalog_verify(struct catalog *c, struct err *e)
{
    const int rc = verify_file(c, e);
    return rc < 0 ? rc : verify_index(c, e);
}

int catalog_reindex(struct catalog *c, struct err *e)
{
    const int rc = verify_file(c, e);
    return rc < 0 ? rc
                  : cat_exec(c, "INSERT INTO words(words) VALUES ('rebuild')",
                             "make its index of words anew", e);
}
