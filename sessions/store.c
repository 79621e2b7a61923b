/* The folder of sessions as it is opened: sound, salvaged, or only to be read. State
 * files are in store_state.c, what deletes them in store_gc.c. */
#include "config.h"
#include "sessions/store_inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "sessions/lock.h"

#define BUDGET_MAX (UINT64_C(200) << 30)

/* ---- opening ---- */

static uint64_t budget_of(const char *dir, uint64_t asked)
{
    if (asked != STORE_AUTO) {
        return asked;
    }
    struct statvfs v;
    if (statvfs(dir, &v) < 0) {
        return BUDGET_MAX;
    }
    const uint64_t tenth = (uint64_t)v.f_blocks * v.f_frsize / 10;
    return tenth < BUDGET_MAX ? tenth : BUDGET_MAX;
}

/* "1 conversation", "2 conversations". */
static void add_count(struct buf *b, int n, const char *what)
{
    buf_printf(b, "%d %s%s", n, what, n == 1 ? "" : "s");
}

static void add_salvaged(struct buf *b, const struct salvage *s, const char *path)
{
    buf_printf(b, "%s was %s: ", path,
               s->empty ? "empty (a torn copy, or a disk that was full)" : "damaged");
    add_count(b, s->conversations, "conversation");
    buf_adds(b, " with ");
    add_count(b, s->turns, "turn");
    buf_printf(b, " could be read%s and %s saved", s->empty ? " in its log" : "",
               s->conversations == 1 ? "is" : "are");
    if (s->no_turn > 0) {
        buf_adds(b, ", at least ");
        add_count(b, s->no_turn, "turn");
        buf_adds(b, s->no_turn == 1 ? " is lost" : " are lost");
    }
    if (s->no_head > 0) {
        buf_adds(b, ", ");
        add_count(b, s->no_head, "title");
        buf_adds(b, s->no_head == 1 ? " is lost" : " are lost");
    }
    buf_printf(b, "; the %s file is kept as %s\n", s->empty ? "empty" : "damaged", s->kept);
}

/* Saved states that the new catalogue does not name hold what a lost conversation said, as
 * tokens: they go where nothing deletes them. */
static void set_aside(struct store *s, struct buf *notice)
{
    struct files known = {0};
    char *stamp = strstr(s->salvaged.kept, ".damaged-");
    struct buf to = BUF_INIT;
    buf_printf(&to, "%s%s", s->states, stamp ? stamp : ".damaged");
    DIR *d = catalog_states(s->c, files_add, &known, NULL) == 0 ? opendir(s->states) : NULL;
    int moved = 0;
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d)) {
        if (!store_is_state_name(f->d_name) || files_has(&known, f->d_name) ||
            io_mkdirs(to.data, 0700, NULL) < 0) {
            continue;
        }
        char *old = io_join(s->states, f->d_name), *new = io_join(to.data, f->d_name);
        moved += rename(old, new) == 0;
        free(old);
        free(new);
    }
    if (d) {
        closedir(d);
    }
    if (moved > 0 && notice) {
        add_count(notice, moved, "saved state");
        buf_printf(notice,
                   " of lost conversations %s kept in %s; quasar tokenize --decode -f FILE prints "
                   "what one of them says\n",
                   moved == 1 ? "is" : "are", to.data);
    }
    buf_free(&to);
    files_free(&known);
}

static int salvage_and_open(struct store *s, struct buf *notice, struct err *e)
{
    struct salvage done;
    int rc = catalog_salvage(s->path, &done, e);
    if (rc == 0) {
        if (done.kept) {
            free(s->salvaged.kept);
            s->salvaged = done;
            done.kept = NULL;
            if (notice) {
                add_salvaged(notice, &s->salvaged, s->path);
            }
        }
        rc = catalog_open(s->path, &s->c, e);
        if (rc == 0 && s->salvaged.kept) {
            set_aside(s, notice);
        }
    }
    free(done.kept);
    return rc;
}

/* Why nothing can be written in the folder: what the system says of a file of the size
 * that SQLite needs for a start. 0: it can be. */
static int why_not(const struct store *s)
{
    static const char some[65536];
    struct tmp_out t = TMP_OUT_INIT;
    errno = 0;
    if (io_mkdirs(s->dir, 0700, NULL) < 0 || (access(s->path, W_OK) < 0 && errno != ENOENT)) {
        return errno;
    }
    char *probe = io_join(s->dir, "probe");
    errno = 0;
    const bool good = tmp_out_create(&t, probe, 0600, NULL) == 0 &&
                      io_write_all(t.fd, some, sizeof some, probe, NULL) == 0 && fsync(t.fd) == 0;
    const int n = good ? 0 : errno;
    tmp_out_fini(&t);
    free(probe);
    return n;
}

/* What can be said of the reason, and done. */
static void say_why(const struct store *s, int n, struct buf *out)
{
    switch (n) {
    case ENOSPC:
        buf_printf(out, "there is no space left on the disk of %s: make room", s->dir);
        break;
    case EDQUOT:
        buf_printf(out, "the disk quota in %s is used up: make room", s->dir);
        break;
    case EFBIG:
        buf_adds(out, "the limit on the size of files is reached (ulimit -f): raise it");
        break;
    case EROFS:
        buf_printf(out,
                   "%s is on a read-only file system: mount it for writing, or name another "
                   "folder in XDG_STATE_HOME",
                   s->dir);
        break;
    case EACCES:
    case EPERM:
        buf_printf(out,
                   "this user has no permission to write %s%s: give it, or name another folder "
                   "in XDG_STATE_HOME",
                   access(s->dir, W_OK) == 0 ? "" : "in ",
                   access(s->dir, W_OK) == 0 ? s->path : s->dir);
        break;
    default:
        buf_printf(out, "%s cannot be written: %s; name another folder in XDG_STATE_HOME", s->dir,
                   strerror(n));
    }
}

int store_open_fixed(struct store *s, struct buf *notice, int rc, struct err *e)
{
    struct stat st;
    const bool none = lstat(s->path, &st) < 0; /* not a conversation yet */
    const bool some = !none && stat(s->path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0;
    const int n = none || some ? why_not(s) : 0;
    if (n == 0) {
        return rc;
    }
    struct buf why = BUF_INIT;
    struct err first = ERR_INIT;
    say_why(s, n, &why);
    free(s->fixed);
    s->full = n == ENOSPC || n == EDQUOT;
    s->fixed = buf_take(&why);
    rc = none ? catalog_open_none(s->path, s->fixed, &s->c, e)
              : catalog_open_fixed(s->path, s->fixed, &s->c, &first);
    if (rc < 0) {
        return none ? rc
                    : err_set(e, first.code, "%s; it cannot be mended, because %s", first.msg,
                              s->fixed);
    }
    if (notice) {
        buf_printf(notice, "%snothing is stored: %s\n",
                   none ? "" : "stored conversations can only be read, ", s->fixed);
    }
    return 0;
}

int store_open(const char *dir, uint64_t budget, struct store **out, struct buf *notice,
               struct err *e)
{
    struct store *s = mem_zalloc(sizeof *s);
    s->dir = mem_strdup(dir);
    s->states = io_join(dir, "states");
    s->path = io_join(dir, "catalog.db");
    int rc = io_mkdirs(dir, 0700, e);
    if (rc == 0 && !catalog_half_salvaged(s->path)) {
        rc = catalog_open(s->path, &s->c, e);
    }
    if (rc == QE_FORMAT || (rc == 0 && !s->c)) {
        rc = salvage_and_open(s, notice, e);
    }
    if (rc == QE_IO) {
        rc = store_open_fixed(s, notice, rc, e);
    }
    if (rc < 0) {
        store_close(s);
        return rc;
    }
    s->budget = budget_of(dir, budget);
    *out = s;
    return 0;
}

const char *store_fixed(const struct store *s)
{
    return s->fixed;
}

const struct salvage *store_salvaged(const struct store *s)
{
    return s->salvaged.kept ? &s->salvaged : NULL;
}

void store_close(struct store *s)
{
    if (s) {
        catalog_close(s->c);
        free(s->dir);
        free(s->states);
        free(s->path);
        free(s->fixed);
        free(s->salvaged.kept);
        free(s);
    }
}

struct catalog *store_catalog(struct store *s)
{
    return s->c;
}

const char *store_dir(const struct store *s)
{
    return s->dir;
}

uint64_t store_budget(const struct store *s)
{
    return s->budget;
}

void store_set_budget(struct store *s, uint64_t budget)
{
    s->budget = budget_of(s->dir, budget);
}

int store_trim(struct store *s, uint64_t *bytes, struct err *e)
{
    struct store_gc done = {0};
    const int rc = store_make_room(s, 0, &done, e);
    *bytes = done.bytes;
    return rc;
}

int store_repair(struct store *s, struct buf *notice, struct err *e)
{
    catalog_close(s->c);
    s->c = NULL;
    return salvage_and_open(s, notice, e);
}

/* ---- dead writers ---- */

struct ids {
    int64_t *v;
    size_t n;
};

static bool add_id(void *ctx, const struct catalog_conv *v)
{
    struct ids *l = ctx;
    l->v = mem_realloc(l->v, (l->n + 1) * sizeof *l->v);
    l->v[l->n++] = v->id;
    return true;
}

int store_recover(struct store *s, struct buf *notice, struct err *e)
{
    struct ids l = {0};
    int rc = catalog_unfinished(s->c, add_id, &l, e);
    int recovered = 0, last = 0;
    for (size_t i = 0; i < l.n && rc == 0; i++) {
        struct session_lock *lock = NULL;
        if (lock_take(s->dir, l.v[i], &lock, NULL) < 0) {
            continue; /* its writer lives */
        }
        int n = 0, tokens = 0;
        rc = catalog_recover(s->c, l.v[i], &n, &tokens, e);
        lock_release(lock);
        if (rc == 0 && n > 0) {
            recovered++;
            last = tokens;
        }
    }
    if (recovered > 0 && notice) {
        buf_printf(notice, "recovered %d conversation%s, ", recovered, recovered == 1 ? "" : "s");
        if (last > 0) {
            buf_printf(notice, "the last answer cut at %d token%s\n", last, last == 1 ? "" : "s");
        } else {
            buf_adds(notice, "the last question without an answer\n");
        }
    }
    free(l.v);
    return rc;
}
