/* State files and their rows in the catalogue. The order of steps decides what a kill
 * leaves: a file is complete before the catalogue names it, and forgotten by the
 * catalogue before it is deleted, so a file nobody names is the worst there is. */
#include "config.h"
#include "sessions/store_inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"

/* ---- lists of files ---- */

bool files_has(const struct files *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->v[i], name) == 0) {
            return true;
        }
    }
    return false;
}

bool files_add(void *ctx, const struct catalog_state *st)
{
    struct files *l = ctx;
    if (files_has(l, st->file)) {
        return true;
    }
    l->v = mem_realloc(l->v, (l->n + 1) * sizeof *l->v);
    l->bytes = mem_realloc(l->bytes, (l->n + 1) * sizeof *l->bytes);
    l->v[l->n] = mem_strdup(st->file);
    l->bytes[l->n++] = (uint64_t)st->bytes;
    l->total += (uint64_t)st->bytes;
    return true;
}

void files_free(struct files *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i]);
    }
    free(l->v);
    free(l->bytes);
}

/* ---- single files ---- */

char *store_file_path(const struct store *s, const char *file)
{
    return io_join(s->states, file);
}

bool store_is_state_name(const char *name)
{
    const size_t n = strlen(name);
    return strncmp(name, "live-", 5) == 0 && n > 6 && strcmp(name + n - 6, ".state") == 0;
}

bool store_is_file_name(const char *file)
{
    return file[0] && file[0] != '.' && !strchr(file, '/');
}

int store_take_away(const char *path)
{
    if (unlink(path) == 0 || errno == ENOENT) {
        return 0;
    }
    return (errno == EISDIR || errno == EPERM) && rmdir(path) == 0 ? 0 : errno;
}

int store_forget(struct store *s, const char *file, int *left, struct err *e)
{
    const int rc = catalog_state_remove(s->c, file, e);
    int n = 0;
    if (rc == 0 && store_is_file_name(file)) {
        char *path = store_file_path(s, file);
        n = store_take_away(path);
        free(path);
    }
    if (left) {
        *left = n;
    }
    return rc;
}

int store_file_fault(const struct store *s, const char *file, bool whole, struct err *e)
{
    struct state_file *f = NULL;
    if (!store_is_file_name(file)) {
        return err_set(e, QE_FORMAT, "the catalogue names a state \"%.60s\"", file);
    }
    char *path = store_file_path(s, file);
    int rc = state_open(path, &f, e);
    if (rc == 0 && whole) {
        rc = state_verify(f, e);
    }
    state_close(f);
    free(path);
    return rc;
}

void store_note_left(struct store_gc *done, const char *path, const char *why)
{
    if (done->left++ == 0) {
        err_set(&done->first, QE_IO, "%s: %s", path, why);
    }
}

int store_drop_file(struct store *s, struct files *l, size_t i, struct store_gc *done,
                    struct err *e)
{
    int left = 0;
    const int rc = store_forget(s, l->v[i], &left, e);
    l->total -= l->bytes[i];
    if (left) {
        char *path = store_file_path(s, l->v[i]);
        store_note_left(done, path, strerror(left));
        free(path);
    } else {
        done->bytes += l->bytes[i];
    }
    l->bytes[i] = 0;
    l->v[i][0] = 0;
    return rc;
}

int store_make_room(struct store *s, uint64_t bytes, struct store_gc *done, struct err *e)
{
    struct files l = {0};
    int rc = catalog_states(s->c, files_add, &l, e);
    const bool full = rc == 0 && l.total + bytes > s->budget;
    for (size_t i = 0; i < l.n && rc == 0 && full; i++) {
        if (store_file_fault(s, l.v[i], false, NULL) == QE_FORMAT) {
            rc = store_drop_file(s, &l, i, done, e);
            done->damaged++;
        }
    }
    for (size_t i = 0; i < l.n && rc == 0 && l.total + bytes > s->budget; i++) {
        if (l.v[i][0]) {
            rc = store_drop_file(s, &l, i, done, e);
            done->states++;
        }
    }
    files_free(&l);
    return rc;
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
    rc = rc < 0 ? rc : store_make_room(s, bytes, &done, e);
    if (rc < 0) {
        return rc;
    }
    char compat[2 * STATE_COMPAT + 1];
    hex_of(m->compat, STATE_COMPAT, compat);
    char *file = name_for(turn, m), *path = store_file_path(s, file);
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
    return files_add(st->conv == o->conv ? &o->mine : &o->others, st);
}

/* Forgets the files that only this conversation had. */
static int forget_owned(struct store *s, const struct owned *o, uint64_t *bytes, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < o->mine.n && rc == 0; i++) {
        if (!files_has(&o->others, o->mine.v[i])) {
            rc = store_forget(s, o->mine.v[i], NULL, e);
            *bytes += rc == 0 ? o->mine.bytes[i] : 0;
        }
    }
    return rc;
}

int store_remove(struct store *s, int64_t conv, struct err *e)
{
    struct owned o = {.conv = conv};
    uint64_t bytes = 0;
    int rc = catalog_states(s->c, add_owned, &o, e);
    rc = rc < 0 ? rc : catalog_remove(s->c, conv, e);
    rc = rc < 0 ? rc : forget_owned(s, &o, &bytes, e);
    files_free(&o.mine);
    files_free(&o.others);
    return rc;
}

int store_forget_states(struct store *s, int64_t conv, uint64_t *bytes, struct err *e)
{
    struct owned o = {.conv = conv};
    *bytes = 0;
    int rc = catalog_states(s->c, add_owned, &o, e);
    rc = rc < 0 ? rc : forget_owned(s, &o, bytes, e);
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
    if (!store_is_file_name(file)) {
        return err_set(e, QE_FORMAT, "the catalogue names a state \"%.60s\"", file);
    }
    char *path = store_file_path(s, file);
    struct state_file *f = NULL;
    int rc = state_open(path, &f, e);
    free(path);
    if (rc == 0) {
        rc = state_check(f, compat, label, e);
    }
    if (rc < 0) {
        state_close(f);
        if (rc == QE_FORMAT || rc == QE_NOTFOUND) {
            (void)store_forget(s, file, NULL, NULL);
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
    (void)store_forget(s, slash ? slash + 1 : path, NULL, NULL);
}
