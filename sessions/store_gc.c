/* What keeps folder, catalogue and budget in line. On a full disk the catalogue cannot be
 * written before something is deleted: then files go first, those that no conversation
 * loses anything by, and the catalogue hears of it when it has been opened again. */
#include "config.h"
#include "sessions/store_inside.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "sessions/lock.h"

#define YOUNG_S 600 /* a file that nobody names may be on its way for so long */

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
        st.st_mtime > time(NULL) - YOUNG_S || files_has(&w->known, name)) {
        return;
    }
    char *path = store_file_path(w->s, name);
    const int left = store_take_away(path);
    if (left) {
        store_note_left(w->out, path, strerror(left));
    } else {
        if (store_is_state_name(name)) {
            w->out->states++;
        } else {
            w->out->leftovers++;
        }
        w->out->bytes += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    }
    free(path);
}

/* QE_IO: the folder cannot be read; *d is NULL when there is none. */
static int open_folder(const struct store *s, DIR **d, struct err *e)
{
    *d = opendir(s->states);
    return *d || errno == ENOENT ? 0 : err_sys(e, QE_IO, errno, "cannot read %s", s->states);
}

static int sweep_folder(struct sweep *w, struct err *e)
{
    DIR *d = NULL;
    const int rc = open_folder(w->s, &d, e);
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d)) {
        sweep_file(w, dirfd(d), f->d_name);
    }
    if (d) {
        closedir(d);
    }
    return rc;
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

/* ---- a full disk ---- */

/* Deletes file i of a list whose catalogue cannot be written yet. */
static bool shed_file(struct store *s, struct files *l, size_t i, struct files *shed)
{
    char *path = store_file_path(s, store_is_file_name(l->v[i]) ? l->v[i] : "?");
    const bool gone = unlink(path) == 0;
    if (gone) {
        files_add(shed, &(struct catalog_state){.file = l->v[i], .bytes = (int64_t)l->bytes[i]});
        l->total -= l->bytes[i];
        l->bytes[i] = 0;
        l->v[i][0] = 0;
    }
    free(path);
    return gone;
}

/* Deletes what nobody has, else a damaged state, else the one over the budget that goes
 * first; false: there is nothing of the kind. */
static bool shed_some(struct store *s, struct files *shed, struct store_gc *out)
{
    struct sweep w = {.s = s, .out = out};
    const uint64_t before = out->bytes;
    if (catalog_states(s->c, files_add, &w.known, NULL) == 0) {
        (void)sweep_folder(&w, NULL);
    }
    struct files *l = &w.known;
    for (size_t i = 0; i < l->n; i++) {
        if (files_has(shed, l->v[i])) {
            l->total -= l->bytes[i];
            l->v[i][0] = 0;
        }
    }
    bool gone = out->bytes > before;
    for (size_t i = 0; i < l->n && !gone; i++) {
        if (l->v[i][0] && store_file_fault(s, l->v[i], true, NULL) == QE_FORMAT) {
            gone = shed_file(s, l, i, shed);
            out->damaged += gone;
        }
    }
    for (size_t i = 0; i < l->n && !gone && l->total > s->budget; i++) {
        if (l->v[i][0]) {
            gone = shed_file(s, l, i, shed);
            out->states += gone;
        }
    }
    files_free(l);
    return gone;
}

static bool any_state(const struct store *s)
{
    struct files l = {0};
    (void)catalog_states(s->c, files_add, &l, NULL);
    const bool any = l.n > 0;
    files_free(&l);
    return any;
}

/* Deletes until the catalogue can be written. */
static int make_writable(struct store *s, struct files *shed, struct store_gc *out, struct err *e)
{
    while (s->fixed) {
        if (!s->full || !shed_some(s, shed, out)) {
            return err_set(
                e, QE_IO, "nothing can be stored: %s%s", s->fixed,
                s->full && any_state(s) ? ", or let states go with a smaller --state-budget" : "");
        }
        catalog_close(s->c);
        s->c = NULL;
        int rc = catalog_open(s->path, &s->c, e);
        if (rc == QE_IO) {
            rc = store_open_fixed(s, NULL, rc, e);
        } else if (rc == 0) {
            free(s->fixed);
            s->fixed = NULL;
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* ---- order ---- */

/* A state that the catalogue names. */
static int check_known(struct sweep *w, size_t i, const struct files *shed, struct err *e)
{
    struct err why = ERR_INIT;
    const char *file = w->known.v[i];
    int rc = 0;
    switch (store_file_fault(w->s, file, true, &why)) {
    case 0:
        break;
    case QE_NOTFOUND:
        rc = catalog_state_remove(w->s->c, file, e);
        w->out->lost += !files_has(shed, file);
        break;
    case QE_FORMAT:
        rc = store_drop_file(w->s, &w->known, i, w->out, e);
        w->out->damaged++;
        break;
    default:
        store_note_left(w->out, "a state that cannot be read", why.msg);
    }
    return rc;
}

int store_gc(struct store *s, struct store_gc *out, struct err *e)
{
    *out = (struct store_gc){0};
    struct sweep w = {.s = s, .out = out};
    struct files shed = {0};
    int rc = make_writable(s, &shed, out, e);
    rc = rc < 0 ? rc : catalog_states(s->c, files_add, &w.known, e);
    rc = rc < 0 ? rc : sweep_folder(&w, e);
    if (rc == 0) {
        sweep_locks(&w);
    }
    for (size_t i = 0; i < w.known.n && rc == 0; i++) {
        rc = check_known(&w, i, &shed, e);
    }
    rc = rc < 0 ? rc : store_make_room(s, 0, out, e);
    out->bytes += shed.total;
    files_free(&shed);
    files_free(&w.known);
    return rc;
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
    const int rc = store_file_fault(v->s, st->file, true, &why);
    v->fn(v->ctx, st, rc < 0 ? why.msg : NULL);
    return true;
}

int store_verify_states(struct store *s,
                        void (*fn)(void *ctx, const struct catalog_state *st, const char *fault),
                        void *ctx, struct err *e)
{
    struct verify v = {s, fn, ctx};
    DIR *d = NULL;
    const int rc = open_folder(s, &d, e);
    if (d) {
        closedir(d);
    }
    return rc < 0 ? rc : catalog_states(s->c, verify_one, &v, e);
}
