/* A Hugging Face folder as a target: safetensors with the names, shapes and
 * types of the original checkpoint, and its documents. Made under another name
 * and renamed, so that an interrupted export leaves no half folder; what a killed
 * one leaves, the next to the same place removes. */
#include "config.h"
#include "format/convert_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "format/quant.h"
#include "format/safetensors.h"

#define MAX_SHARD (UINT64_C(5) << 30)

/* Calls f on every file of a folder until it fails. */
static int each_file(const char *dir, int (*f)(const char *dir, const char *name, void *ctx),
                     void *ctx)
{
    DIR *d = opendir(dir);
    int rc = 0;
    for (struct dirent *x; d && rc == 0 && (x = readdir(d));) {
        if (strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0) {
            rc = f(dir, x->d_name, ctx);
        }
    }
    if (d) {
        closedir(d);
    }
    return rc;
}

static int remove_one(const char *dir, const char *name, void *ctx)
{
    const char *pattern = ctx;
    if (!pattern || fnmatch(pattern, name, 0) == 0) {
        char *path = io_join(dir, name);
        unlink(path);
        free(path);
    }
    return 0;
}

static int move_one(const char *dir, const char *name, void *ctx)
{
    char *from = io_join(dir, name);
    char *to = io_join(ctx, name);
    int rc = rename(from, to) < 0 ? -1 : 0;
    free(from);
    free(to);
    return rc;
}

/* The type a tensor had in its checkpoint, or a tier's. */
static enum dtype target_type(const struct plan *p, const struct plan_item *it)
{
    if (p->tier && !p->keep) {
        return it->dtype;
    }
    static const struct {
        const char *name;
        enum dtype type;
    } types[] = {{"F32", DT_F32}, {"F16", DT_F16}, {"BF16", DT_BF16}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(it->t->type, types[i].name) == 0) {
            return types[i].type;
        }
    }
    return name_is_f32(it->name) ? DT_F32 : DT_BF16;
}

static int declare(const struct plan *p, struct st_writer *w, const struct plan_item *it,
                   struct err *e)
{
    uint64_t shape[ST_MAX_DIMS];
    int n = it->t->n_dims;
    memcpy(shape, it->t->shape, (size_t)n * sizeof *shape);
    const json_t *was = json_object_get(p->s->shapes, it->name);
    if (json_is_array(was) && json_array_size(was) <= ST_MAX_DIMS) {
        uint64_t values = 1;
        uint64_t all = source_rows(it->t) * source_cols(it->t);
        for (size_t i = 0; i < json_array_size(was); i++) {
            json_int_t d = json_integer_value(json_array_get(was, i));
            if (d < 1 || !arr_size(values, (size_t)d, &values)) {
                values = 0;
            }
            shape[i] = (uint64_t)d;
        }
        n = (int)json_array_size(was);
        if (values != all) {
            return err_set(e, QE_FORMAT, "%s: the original shape of %s does not fit its values",
                           p->s->path, it->name);
        }
    }
    return st_writer_declare(w, it->t->full_name, target_type(p, it), n, shape, e);
}

static int write_tensor(struct plan *p, struct st_writer *w, const struct plan_item *it,
                        struct err *e)
{
    enum dtype type = target_type(p, it);
    uint64_t rows = source_rows(it->t);
    uint64_t cols = source_cols(it->t);
    uint64_t chunk = plan_chunk_rows(it->t);
    for (uint64_t r = 0; r < rows; r += chunk) {
        uint64_t n = rows - r < chunk ? rows - r : chunk;
        size_t size = 0;
        size_t none = 0;
        quant_at(type, n, cols, &size, &none);
        int rc = source_encode(p->s, it->t, type, r, n, p->scratch, p->data, p->scales, e);
        if (rc == 0) {
            rc = st_writer_data(w, p->data, size, e);
        }
        if (rc == 0) {
            rc = plan_progress(p, size, e);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int write_doc(const char *dir, const char *name, const char *data, size_t n, struct err *e)
{
    if (strchr(name, '/') || name[0] == '.') {
        return err_set(e, QE_FORMAT, "the document \"%s\" has no file name", name);
    }
    char *path = io_join(dir, name);
    struct tmp_out t = TMP_OUT_INIT;
    int rc = tmp_out_create(&t, path, 0644, e);
    if (rc == 0) {
        rc = io_write_all(t.fd, data, n, path, e);
    }
    if (rc == 0) {
        rc = tmp_out_commit(&t, path, e);
    }
    tmp_out_fini(&t);
    free(path);
    return rc;
}

static int write_docs(const struct plan *p, const char *dir, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < p->s->n_docs; i++) {
        const struct source_doc *d = &p->s->docs[i];
        rc = write_doc(dir, d->name, d->data, d->size, e);
    }
    if (rc == 0 && !source_doc(p->s, "config.json")) {
        char *text = json_dumps(p->s->config, JSON_INDENT(2));
        rc = write_doc(dir, "config.json", text, strlen(text), e);
        free(text);
    }
    return rc;
}

static int write_all(struct plan *p, const char *dir, struct err *e)
{
    struct st_writer *w = NULL;
    int rc = st_writer_create(dir, MAX_SHARD, &w, e);
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        rc = declare(p, w, &p->items[i], e);
    }
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        rc = write_tensor(p, w, &p->items[i], e);
    }
    if (rc == 0) {
        rc = st_writer_commit(w, e);
    }
    st_writer_free(w);
    return rc == 0 ? write_docs(p, dir, e) : rc;
}

/* The new folder takes the target's name; an existing one gets the new files
 * in place of its old weights. */
static int put_in_place(const char *tmp, const char *dst, struct err *e)
{
    if (rename(tmp, dst) == 0) {
        return 0;
    }
    if (errno != EEXIST && errno != ENOTEMPTY) {
        return err_sys(e, QE_IO, errno, "cannot rename a temporary folder to %s", dst);
    }
    char weights[] = "model*.safetensors";
    char index[] = "model.safetensors.index.json";
    each_file(dst, remove_one, weights);
    each_file(dst, remove_one, index);
    if (each_file(tmp, move_one, (void *)(uintptr_t)dst) < 0) {
        return err_sys(e, QE_IO, errno, "cannot move the new files to %s", dst);
    }
    rmdir(tmp);
    return 0;
}

/* ---- the folder on its way ---- */

#define ON_ITS_WAY ".quasar-tmp-" /* between the target's name and six characters */

/* The name of the target, without slashes behind it, and then what comes behind. */
static char *beside(const char *dst, const char *end)
{
    size_t n = strlen(dst);
    while (n > 1 && dst[n - 1] == '/') {
        n--;
    }
    struct buf b = BUF_INIT;
    buf_add(&b, dst, n);
    buf_adds(&b, end);
    return buf_take(&b);
}

/* The folder, locked; -1: another has the lock, or it is not there any more. Whoever writes
 * into one has it locked, so that one that can be locked is a dead process's. own: where
 * nothing can be locked it is taken as it is. */
static int lock_folder(const char *dir, bool own)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    struct stat mine, now;
    const bool locked =
        flock(fd, LOCK_EX | LOCK_NB) == 0 || (own && errno != EWOULDBLOCK && errno != EINTR);
    if (locked && fstat(fd, &mine) == 0 && stat(dir, &now) == 0 && mine.st_ino == now.st_ino) {
        return fd;
    }
    close(fd);
    return -1;
}

/* Makes an empty folder and locks it (*fd). */
static char *make_folder(const char *dst, int *fd, struct err *e)
{
    for (int tries = 0; tries < 20; tries++) {
        char *tmp = beside(dst, ON_ITS_WAY "XXXXXX");
        if (!mkdtemp(tmp)) {
            err_sys(e, QE_IO, errno, "cannot create %s", dst);
            free(tmp);
            return NULL;
        }
        *fd = lock_folder(tmp, true);
        if (*fd >= 0) {
            chmod(tmp, 0755);
            return tmp;
        }
        rmdir(tmp); /* another took it for a dead one's */
        free(tmp);
    }
    err_set(e, QE_IO, "cannot lock a folder beside %s", dst);
    return NULL;
}

/* Removes what conversions to the same place left that were killed. */
static int remove_if_dead(const char *dir, const char *name, void *ctx)
{
    const char *start = ctx;
    const size_t n = strlen(start);
    if (strncmp(name, start, n) != 0 || strlen(name) != n + 6) {
        return 0;
    }
    char *path = io_join(dir, name);
    const int fd = lock_folder(path, false);
    if (fd >= 0) {
        each_file(path, remove_one, NULL);
        rmdir(path);
        close(fd);
    }
    free(path);
    return 0;
}

static void remove_dead(const char *dst)
{
    char *start = beside(dst, ON_ITS_WAY);
    char *slash = strrchr(start, '/');
    if (slash) {
        *slash = 0;
    }
    each_file(!slash           ? "."
              : slash == start ? "/"
                               : start,
              remove_if_dead, slash ? slash + 1 : start);
    free(start);
}

int convert_write_hf(struct plan *p, const char *dst, struct err *e)
{
    for (size_t i = 0; i < p->n; i++) {
        size_t size = 0;
        size_t none = 0;
        enum dtype type = target_type(p, &p->items[i]);
        if (dtype_group(type) > 1) {
            return err_set(e, QE_USAGE,
                           "a Hugging Face folder holds no %s weights: choose --tier f32 or bf16, "
                           "or none for the original types",
                           dtype_name(type));
        }
        quant_at(type, source_rows(p->items[i].t), source_cols(p->items[i].t), &size, &none);
        p->total += size;
    }
    remove_dead(dst);
    int rc = plan_check_space(dst, p->total, e);
    if (rc < 0) {
        return rc;
    }
    int lock = -1;
    char *tmp = make_folder(dst, &lock, e);
    if (!tmp) {
        return QE_IO;
    }
    rc = write_all(p, tmp, e);
    if (rc == 0) {
        rc = put_in_place(tmp, dst, e);
    }
    if (rc < 0) {
        each_file(tmp, remove_one, NULL);
        rmdir(tmp);
    }
    close(lock);
    free(tmp);
    return rc;
}
