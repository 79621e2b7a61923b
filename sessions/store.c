/* The catalogue and the state files as one. The order of steps decides what a kill
 * leaves: a file is complete before the catalogue names it, and forgotten by the
 * catalogue before it is deleted, so a file nobody names is the worst there is. */
#include "config.h"
#include "sessions/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "sessions/lock.h"

#define BUDGET_MAX (UINT64_C(200) << 30)
#define YOUNG_S    600 /* a file that nobody names may be on its way for so long */

struct store {
    char *dir, *states, *path;
    char *fixed; /* why it can only be read; NULL: it can be written */
    bool full;   /* because there is no room */
    uint64_t budget;
    struct catalog *c;
    struct salvage salvaged; /* kept NULL: nothing was */
};

/* ---- lists of files ---- */

/* Files in the order they go in, each once. */
struct files {
    char **v;
    uint64_t *bytes;
    size_t n;
    uint64_t total;
};

static bool is_known(const struct files *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->v[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static bool add_file(void *ctx, const struct catalog_state *st)
{
    struct files *l = ctx;
    if (is_known(l, st->file)) {
        return true;
    }
    l->v = mem_realloc(l->v, (l->n + 1) * sizeof *l->v);
    l->bytes = mem_realloc(l->bytes, (l->n + 1) * sizeof *l->bytes);
    l->v[l->n] = mem_strdup(st->file);
    l->bytes[l->n++] = (uint64_t)st->bytes;
    l->total += (uint64_t)st->bytes;
    return true;
}

static void files_free(struct files *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i]);
    }
    free(l->v);
    free(l->bytes);
}

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

static bool is_state_name(const char *name)
{
    const size_t n = strlen(name);
    return strncmp(name, "live-", 5) == 0 && n > 6 && strcmp(name + n - 6, ".state") == 0;
}

/* Saved states that the new catalogue does not name hold what a lost conversation said, as
 * tokens: they go where nothing deletes them. */
static void set_aside(struct store *s, struct buf *notice)
{
    struct files known = {0};
    char *stamp = strstr(s->salvaged.kept, ".damaged-");
    struct buf to = BUF_INIT;
    buf_printf(&to, "%s%s", s->states, stamp ? stamp : ".damaged");
    DIR *d = catalog_states(s->c, add_file, &known, NULL) == 0 ? opendir(s->states) : NULL;
    int moved = 0;
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d)) {
        if (!is_state_name(f->d_name) || is_known(&known, f->d_name) ||
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
    if (access(s->path, W_OK) < 0) {
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
                   "this user has no permission to write in %s: give it, or name another folder "
                   "in XDG_STATE_HOME",
                   s->dir);
        break;
    default:
        buf_printf(out, "%s cannot be written: %s", s->dir, strerror(n));
    }
}

/* What is there can be read still. rc: why it was not opened for writing. */
static int open_fixed(struct store *s, struct buf *notice, int rc, struct err *e)
{
    struct stat st;
    const int n = stat(s->path, &st) == 0 && st.st_size > 0 ? why_not(s) : 0;
    if (n == 0) {
        return rc;
    }
    struct buf why = BUF_INIT;
    struct err first = ERR_INIT;
    say_why(s, n, &why);
    s->full = n == ENOSPC || n == EDQUOT;
    s->fixed = buf_take(&why);
    if (catalog_open_fixed(s->path, s->fixed, &s->c, &first) < 0) {
        return err_set(e, first.code, "%s; it cannot be mended, because %s", first.msg, s->fixed);
    }
    if (notice) {
        buf_printf(notice, "stored conversations can only be read, nothing is stored: %s\n",
                   s->fixed);
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
        rc = open_fixed(s, notice, rc, e);
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
        buf_printf(notice, "recovered %d conversation%s, the last answer cut at %d token%s\n",
                   recovered, recovered == 1 ? "" : "s", last, last == 1 ? "" : "s");
    }
    free(l.v);
    return rc;
}

/* ---- state files ---- */

static char *file_path(const struct store *s, const char *file)
{
    return io_join(s->states, file);
}

/* A name is only ever a name. */
static bool is_file_name(const char *file)
{
    return file[0] && file[0] != '.' && !strchr(file, '/');
}

static int forget(struct store *s, const char *file, struct err *e)
{
    const int rc = catalog_state_remove(s->c, file, e);
    if (rc == 0 && is_file_name(file)) {
        char *path = file_path(s, file);
        unlink(path);
        free(path);
    }
    return rc;
}

/* What is wrong with a file: 0, QE_FORMAT (it is damaged), QE_NOTFOUND, or why it cannot
 * be told. whole: every byte is read, else what leads to the parts. */
static int file_fault(const struct store *s, const char *file, bool whole)
{
    struct state_file *f = NULL;
    if (!is_file_name(file)) {
        return QE_FORMAT;
    }
    char *path = file_path(s, file);
    int rc = state_open(path, &f, NULL);
    if (rc == 0 && whole) {
        rc = state_verify(f, NULL);
    }
    state_close(f);
    free(path);
    return rc;
}

/* Deletes file i of a list. */
static int drop_file(struct store *s, struct files *l, size_t i, struct store_gc *done,
                     struct err *e)
{
    const int rc = forget(s, l->v[i], e);
    l->total -= l->bytes[i];
    done->bytes += l->bytes[i];
    l->bytes[i] = 0;
    l->v[i][0] = 0;
    return rc;
}

/* Deletes states until there is room for so many bytes more: first what nobody can use. */
static int make_room(struct store *s, uint64_t bytes, struct store_gc *done, struct err *e)
{
    struct files l = {0};
    int rc = catalog_states(s->c, add_file, &l, e);
    const bool full = rc == 0 && l.total + bytes > s->budget;
    for (size_t i = 0; i < l.n && rc == 0 && full; i++) {
        if (file_fault(s, l.v[i], false) == QE_FORMAT) {
            rc = drop_file(s, &l, i, done, e);
            done->damaged++;
        }
    }
    for (size_t i = 0; i < l.n && rc == 0 && l.total + bytes > s->budget; i++) {
        if (l.v[i][0]) {
            rc = drop_file(s, &l, i, done, e);
            done->states++;
        }
    }
    files_free(&l);
    return rc;
}

bool store_shed(struct store *s)
{
    struct files l = {0};
    bool gone = false;
    (void)catalog_states(s->c, add_file, &l, NULL);
    for (size_t i = 0; i < l.n && !gone && s->full; i++) {
        char *path = file_path(s, is_file_name(l.v[i]) ? l.v[i] : "?");
        gone = unlink(path) == 0; /* gc finds what the catalogue has of it */
        free(path);
    }
    files_free(&l);
    return gone;
}

/* The new file's own name: the turn, and a hash of what it stands after. */
static char *name_for(int64_t turn, const struct state_meta *m)
{
    uint64_t h = hash64(m->compat, sizeof m->compat, 0);
    h = m->n_ids ? hash64(m->ids, m->n_ids * sizeof *m->ids, h) : h;
    struct buf b = BUF_INIT;
    buf_printf(&b, "live-%" PRId64 "-%016" PRIx64 ".state", turn, h);
    return buf_take(&b);
}

static int fits(const struct store *s, uint64_t bytes, struct err *e)
{
    struct statvfs v;
    if (bytes > s->budget) {
        return err_set(e, QE_NOMEM,
                       "the state has %.1f MB, and saved states may take %.1f MB in all "
                       "(--state-budget)",
                       (double)bytes / 1e6, (double)s->budget / 1e6);
    }
    if (statvfs(s->states, &v) == 0 && bytes > (uint64_t)v.f_bavail * v.f_frsize) {
        return err_set(e, QE_NOMEM, "the state has %.1f MB, and %s has %.1f MB free",
                       (double)bytes / 1e6, s->states,
                       (double)((uint64_t)v.f_bavail * v.f_frsize) / 1e6);
    }
    return 0;
}

int store_save(struct store *s, int64_t turn, const struct state_meta *m,
               const struct state_part *parts, size_t n_parts, struct err *e)
{
    uint64_t bytes = 4096 + 4 * (uint64_t)m->n_ids;
    for (size_t i = 0; i < n_parts; i++) {
        bytes += parts[i].size;
    }
    int rc = io_mkdirs(s->states, 0700, e);
    rc = rc < 0 ? rc : fits(s, bytes, e);
    struct store_gc done = {0};
    rc = rc < 0 ? rc : make_room(s, bytes, &done, e);
    if (rc < 0) {
        return rc;
    }
    char compat[2 * STATE_COMPAT + 1];
    hex_of(m->compat, STATE_COMPAT, compat);
    char *file = name_for(turn, m), *path = file_path(s, file);
    rc = state_write(path, m, parts, n_parts, e);
    struct stat st;
    if (rc == 0) {
        const struct catalog_state row = {.file = file,
                                          .compat = compat,
                                          .turn = turn,
                                          .tokens = (int64_t)m->n_ids,
                                          .bytes = stat(path, &st) == 0 ? (int64_t)st.st_size
                                                                        : (int64_t)bytes};
        rc = catalog_state_add(s->c, &row, e);
        if (rc < 0) {
            unlink(path);
        }
    }
    free(path);
    free(file);
    return rc;
}

/* Files of one conversation, and those that others have too. */
struct owned {
    int64_t conv;
    struct files mine, others;
};

static bool add_owned(void *ctx, const struct catalog_state *st)
{
    struct owned *o = ctx;
    return add_file(st->conv == o->conv ? &o->mine : &o->others, st);
}

int store_remove(struct store *s, int64_t conv, struct err *e)
{
    struct owned o = {.conv = conv};
    int rc = catalog_states(s->c, add_owned, &o, e);
    rc = rc < 0 ? rc : catalog_remove(s->c, conv, e);
    for (size_t i = 0; i < o.mine.n && rc == 0; i++) {
        if (!is_known(&o.others, o.mine.v[i])) {
            rc = forget(s, o.mine.v[i], e);
        }
    }
    files_free(&o.mine);
    files_free(&o.others);
    return rc;
}

/* ---- loading ---- */

/* What turns have, nearest first. */
struct near {
    char *file[16];
    bool fits[16];
    size_t n;
    const char *compat;
};

static bool add_near(void *ctx, const struct catalog_state *st)
{
    struct near *l = ctx;
    l->file[l->n] = mem_strdup(st->file);
    l->fits[l->n++] = strcmp(st->compat, l->compat) == 0;
    return l->n < sizeof l->file / sizeof *l->file;
}

static int open_one(struct store *s, const char *file, const uint8_t compat[STATE_COMPAT],
                    const char *label, struct state_file **out, struct err *e)
{
    if (!is_file_name(file)) {
        return err_set(e, QE_FORMAT, "the catalogue names a state \"%.60s\"", file);
    }
    char *path = file_path(s, file);
    struct state_file *f = NULL;
    int rc = state_open(path, &f, e);
    free(path);
    if (rc == 0) {
        rc = state_check(f, compat, label, e);
    }
    if (rc < 0) {
        state_close(f);
        if (rc == QE_FORMAT || rc == QE_NOTFOUND) {
            (void)forget(s, file, NULL);
        }
        return rc;
    }
    (void)catalog_state_used(s->c, file, NULL);
    *out = f;
    return 0;
}

int store_load(struct store *s, int64_t conv, int64_t turn, const uint8_t compat[STATE_COMPAT],
               const char *label, struct state_file **out, struct err *e)
{
    char hex[2 * STATE_COMPAT + 1];
    hex_of(compat, STATE_COMPAT, hex);
    struct near l = {.n = 0, .compat = hex};
    struct err first = ERR_INIT;
    int rc = catalog_states_for(s->c, conv, turn, add_near, &l, e);
    int found = QE_NOTFOUND;
    /* those of this engine, then the others, for what there is to say about them */
    for (int pass = 0; pass < 2 && rc == 0; pass++) {
        for (size_t i = 0; i < l.n && found < 0; i++) {
            struct err why = ERR_INIT;
            if (l.fits[i] == (pass == 0) && (pass == 0 || !first.code)) {
                found = open_one(s, l.file[i], compat, label, out, &why);
                first = first.code ? first : why;
            }
        }
    }
    for (size_t i = 0; i < l.n; i++) {
        free(l.file[i]);
    }
    if (rc == 0 && found < 0) {
        rc = QE_NOTFOUND;
        if (e) {
            *e = first;
            e->code = rc;
        }
    }
    return rc;
}

void store_damaged(struct store *s, const struct state_file *f)
{
    const char *path = state_path(f), *slash = strrchr(path, '/');
    (void)forget(s, slash ? slash + 1 : path, NULL);
}

/* ---- keeping order ---- */

/* Deletes files that no turn has, and remembers nothing of files that are gone. */
struct sweep {
    struct store *s;
    struct files known;
    struct store_gc *out;
};

static void sweep_file(struct sweep *w, int folder, const char *name)
{
    struct stat st;
    const bool ours = strncmp(name, "live-", 5) == 0;
    if (!ours || fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        st.st_mtime > time(NULL) - YOUNG_S || is_known(&w->known, name) ||
        unlinkat(folder, name, 0) < 0) {
        return;
    }
    if (is_state_name(name)) {
        w->out->states++;
    } else {
        w->out->leftovers++;
    }
    w->out->bytes += (uint64_t)st.st_size;
}

static void sweep_folder(struct sweep *w)
{
    DIR *d = opendir(w->s->states);
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d)) {
        sweep_file(w, dirfd(d), f->d_name);
    }
    if (d) {
        closedir(d);
    }
}

static bool exists(void *ctx, const struct catalog_conv *v)
{
    (void)ctx;
    (void)v;
    return false;
}

static void sweep_locks(struct sweep *w)
{
    char *locks = io_join(w->s->dir, "locks");
    DIR *d = opendir(locks);
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d)) {
        char *end = NULL;
        const long long id = strtoll(f->d_name, &end, 10);
        if (end != f->d_name && strcmp(end, ".lock") == 0 &&
            catalog_get(w->s->c, id, exists, NULL, NULL) == QE_NOTFOUND) {
            lock_forget(w->s->dir, id);
            w->out->leftovers++;
        }
    }
    if (d) {
        closedir(d);
    }
    free(locks);
}

int store_gc(struct store *s, struct store_gc *out, struct err *e)
{
    *out = (struct store_gc){0};
    struct sweep w = {.s = s, .out = out};
    int rc = catalog_states(s->c, add_file, &w.known, e);
    if (rc == 0) {
        sweep_folder(&w);
        sweep_locks(&w);
    }
    for (size_t i = 0; i < w.known.n && rc == 0; i++) {
        const int fault = file_fault(s, w.known.v[i], true);
        if (fault == QE_NOTFOUND) {
            rc = catalog_state_remove(s->c, w.known.v[i], e);
            out->lost++;
        } else if (fault == QE_FORMAT) {
            rc = drop_file(s, &w.known, i, out, e);
            out->damaged++;
        }
    }
    files_free(&w.known);
    return rc < 0 ? rc : make_room(s, 0, out, e);
}

struct verify {
    struct store *s;
    void (*fn)(void *ctx, const struct catalog_state *st, const char *fault);
    void *ctx;
};

static bool verify_one(void *ctx, const struct catalog_state *st)
{
    const struct verify *v = ctx;
    struct err why = ERR_INIT;
    struct state_file *f = NULL;
    char *path = file_path(v->s, is_file_name(st->file) ? st->file : "?");
    int rc = state_open(path, &f, &why);
    if (rc == 0) {
        rc = state_verify(f, &why);
    }
    state_close(f);
    free(path);
    v->fn(v->ctx, st, rc < 0 ? why.msg : NULL);
    return true;
}

int store_verify_states(struct store *s,
                        void (*fn)(void *ctx, const struct catalog_state *st, const char *fault),
                        void *ctx, struct err *e)
{
    struct verify v = {s, fn, ctx};
    return catalog_states(s->c, verify_one, &v, e);
}

bool store_parse_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || !(v >= 0) || errno) {
        return false;
    }
    const char *u = *end ? strchr(units, *end) : NULL;
    if (*end && (!u || end[1])) {
        return false;
    }
    for (ptrdiff_t i = u ? u - units : -1; i >= 0; i--) {
        v *= 1024;
    }
    if (!(v < 1e18)) {
        return false;
    }
    *out = (uint64_t)v;
    return true;
}
