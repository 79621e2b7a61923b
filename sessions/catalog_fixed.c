/* A catalogue that cannot be written, as a copy in memory: SQLite itself needs to write
 * even to read one with a log. The file is read through SQLite's own descriptors, since
 * closing one of ours would take away the locks of other connections of this process. */
#include "config.h"
#include "sessions/catalog.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "sessions/catalog_sql.h"
#include "sessions/pages.h"

#define TRIES 20

/* When the file and its log were last written, and how long they are. */
struct stamp {
    struct timespec at[2];
    off_t size[2];
};

static void stamp_of(const char *path, struct stamp *out)
{
    struct buf wal = BUF_INIT;
    struct stat st[2];
    memset(st, 0, sizeof st);
    memset(out, 0, sizeof *out);
    buf_printf(&wal, "%s-wal", path);
    (void)stat(path, &st[0]);
    (void)stat(wal.data, &st[1]); /* there may be none */
    buf_free(&wal);
    for (int i = 0; i < 2; i++) {
        out->at[i].tv_sec = st[i].st_mtim.tv_sec;
        out->at[i].tv_nsec = st[i].st_mtim.tv_nsec;
        out->size[i] = st[i].st_size;
    }
}

static int cannot_read(const char *path, struct err *e)
{
    return err_set(e, QE_IO, "cannot read %s", path);
}

/* The file without its log; the caller frees it. */
static int read_file(sqlite3_file *f, const char *path, uint8_t **out, size_t *n, struct err *e)
{
    sqlite3_int64 size = 0;
    if (f->pMethods->xFileSize(f, &size) != SQLITE_OK || size < 0) {
        return cannot_read(path, e);
    }
    uint8_t *p = mem_zalloc((size_t)size + 1);
    for (sqlite3_int64 at = 0; at < size; at += 1 << 20) {
        const sqlite3_int64 left = size - at;
        const int k = left < 1 << 20 ? (int)left : 1 << 20;
        const int code = f->pMethods->xRead(f, p + at, k, at);
        if (code != SQLITE_OK && code != SQLITE_IOERR_SHORT_READ) {
            free(p);
            return cannot_read(path, e);
        }
    }
    *out = p;
    *n = (size_t)size;
    return 0;
}

static int read_database(const char *path, uint8_t **out, size_t *n, struct err *e)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    sqlite3_filename name = sqlite3_create_filename(path, "", "", 0, NULL);
    sqlite3_file *f = mem_zalloc((size_t)vfs->szOsFile);
    int rc = 0;
    if (!name ||
        vfs->xOpen(vfs, name, f, SQLITE_OPEN_READONLY | SQLITE_OPEN_MAIN_DB, NULL) != SQLITE_OK) {
        rc = cannot_read(path, e);
    } else {
        rc = read_file(f, path, out, n, e);
    }
    if (f->pMethods) {
        f->pMethods->xClose(f);
    }
    free(f);
    sqlite3_free_filename(name);
    return rc;
}

/* File and log as one; read again while somebody writes them. */
static int read_image(const char *path, uint8_t **out, size_t *n, struct err *e)
{
    for (int tries = 0;; tries++) {
        struct stamp before, after;
        uint8_t *db = NULL;
        size_t db_n = 0;
        stamp_of(path, &before);
        const int rc = read_database(path, &db, &db_n, e);
        if (rc < 0) {
            return rc;
        }
        *out = pages_image(db, db_n, path, n);
        free(db);
        stamp_of(path, &after);
        if (memcmp(&before, &after, sizeof before) == 0 || tries == TRIES) {
            return 0;
        }
        free(*out);
        usleep(20000);
    }
}

/* SQLite takes p over. */
static int take_image(struct catalog *c, const uint8_t *image, size_t n, struct err *e)
{
    uint8_t *own = sqlite3_malloc64(n + 1);
    if (!own || sqlite3_open_v2(":memory:", &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                                NULL) != SQLITE_OK) {
        sqlite3_free(own);
        return err_set(e, QE_NOMEM, "there is no memory for the %zu bytes of %s", n, c->path);
    }
    memcpy(own, image, n);
    const unsigned flags = SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE;
    return sqlite3_deserialize(c->db, "main", own, (sqlite3_int64)n, (sqlite3_int64)n, flags) ==
                   SQLITE_OK
               ? 0
               : cat_fail(c, "read it", e);
}

/* Of a database in memory; frees it on failure. */
static int make_fixed(struct catalog *c, int rc, const char *why, struct catalog **out,
                      struct err *e)
{
    rc = rc < 0 ? rc : cat_migrate(c, e);
    rc = rc < 0 ? rc : cat_exec(c, "PRAGMA query_only = ON", "read it", e);
    if (rc < 0) {
        catalog_close(c);
        return rc;
    }
    c->fixed = mem_strdup(why);
    *out = c;
    return 0;
}

int catalog_open_fixed(const char *path, const char *why, struct catalog **out, struct err *e)
{
    uint8_t *image = NULL;
    size_t n = 0;
    int rc = read_image(path, &image, &n, e);
    if (rc < 0) {
        return rc;
    }
    struct catalog *c = mem_zalloc(sizeof *c);
    c->path = mem_strdup(path);
    rc = take_image(c, image, n, e);
    free(image);
    return make_fixed(c, rc, why, out, e);
}

int catalog_open_none(const char *path, const char *why, struct catalog **out, struct err *e)
{
    struct catalog *c = mem_zalloc(sizeof *c);
    c->path = mem_strdup(path);
    const int rc = sqlite3_open_v2(":memory:", &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX,
                                   NULL) == SQLITE_OK
                       ? 0
                       : err_set(e, QE_NOMEM, "there is no memory for a catalogue");
    return make_fixed(c, rc, why, out, e);
}
