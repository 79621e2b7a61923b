/* Safetensors writer: one file, or shards of a limited size with their index.
 * The declared tensors are cut into shards when the first byte comes; each
 * shard is written under a temporary name and all are renamed by commit, the
 * index last, so that a reader never finds half a model. */
#include "config.h"
#include "format/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"

struct entry {
    char *name;
    enum dtype dtype;
    int n_dims;
    uint64_t shape[ST_MAX_DIMS];
    size_t size;
    size_t shard;
};

struct shard {
    char *path;
    struct tmp_out out;
};

struct st_writer {
    char *target;
    uint64_t max_shard; /* 0: target is a file */
    struct entry *tensors;
    size_t n_tensors;
    json_t *names; /* those declared */
    struct shard *shards;
    size_t n_shards;
    bool begun;
    size_t current; /* tensor that takes the next byte */
    size_t done;    /* bytes it has */
};

int st_writer_create(const char *target, uint64_t max_shard, struct st_writer **out, struct err *e)
{
    if (max_shard > 0) {
        struct stat sb;
        if (stat(target, &sb) < 0 || !S_ISDIR(sb.st_mode)) {
            return err_set(e, QE_USAGE, "%s is not a directory", target);
        }
    }
    struct st_writer *w = mem_zalloc(sizeof *w);
    w->target = mem_strdup(target);
    w->max_shard = max_shard;
    w->names = json_object();
    *out = w;
    return 0;
}

void st_writer_free(struct st_writer *w)
{
    if (!w) {
        return;
    }
    for (size_t i = 0; i < w->n_shards; i++) {
        tmp_out_fini(&w->shards[i].out);
        free(w->shards[i].path);
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        free(w->tensors[i].name);
    }
    json_decref(w->names);
    free(w->shards);
    free(w->tensors);
    free(w->target);
    free(w);
}

static const char *type_text(enum dtype t)
{
    switch (t) {
    case DT_F32:
        return "F32";
    case DT_F16:
        return "F16";
    case DT_BF16:
        return "BF16";
    case DT_Q8_G128:
    case DT_Q4_G64:
        break;
    }
    return NULL;
}

int st_writer_declare(struct st_writer *w, const char *name, enum dtype t, int n_dims,
                      const uint64_t *shape, struct err *e)
{
    size_t n = 1;
    size_t size = 0;
    bool ok = !w->begun && type_text(t) && n_dims >= 0 && n_dims <= ST_MAX_DIMS;
    for (int i = 0; ok && i < n_dims; i++) {
        ok = shape[i] <= INT64_MAX && arr_size(n, shape[i], &n);
    }
    if (!ok || !arr_size(n, t == DT_F32 ? 4 : 2, &size)) {
        return err_set(e, QE_INTERNAL, "%s: the tensor \"%.200s\" cannot be written as %s",
                       w->target, name, dtype_name(t));
    }
    if (strcmp(name, "__metadata__") == 0 || json_object_get(w->names, name) ||
        json_object_set_new(w->names, name, json_true()) < 0) {
        return err_set(e, QE_INTERNAL, "%s: the tensor name \"%.200s\" is taken or no UTF-8",
                       w->target, name);
    }
    w->tensors = mem_realloc(w->tensors, (w->n_tensors + 1) * sizeof *w->tensors);
    struct entry *x = &w->tensors[w->n_tensors++];
    memset(x, 0, sizeof *x);
    x->name = mem_strdup(name);
    x->dtype = t;
    x->n_dims = n_dims;
    x->size = size;
    for (int i = 0; i < n_dims; i++) {
        x->shape[i] = shape[i];
    }
    return 0;
}

/* A new shard whenever the next tensor would make the current one too large. */
static size_t cut_into_shards(struct st_writer *w)
{
    size_t n = 0;
    uint64_t fill = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        uint64_t size = w->tensors[i].size;
        if (w->max_shard > 0 && fill > 0 && (fill > w->max_shard || size > w->max_shard - fill)) {
            n++;
            fill = 0;
        }
        w->tensors[i].shard = n;
        fill += size;
    }
    return n + 1;
}

/* The other of the two layouts would hide what is written, or be hidden. */
static int refuse_other_layout(const struct st_writer *w, size_t shards, struct err *e)
{
    const char *other = shards > 1 ? "model.safetensors" : "model.safetensors.index.json";
    char *path = io_join(w->target, other);
    struct stat sb;
    int rc = 0;
    if (stat(path, &sb) == 0) {
        rc = err_set(e, QE_USAGE, "%s already holds %s: remove it or choose another folder",
                     w->target, other);
    }
    free(path);
    return rc;
}

static char *shard_path(const struct st_writer *w, size_t i, size_t n)
{
    struct buf b = BUF_INIT;
    if (w->max_shard == 0) {
        return mem_strdup(w->target);
    }
    if (n == 1) {
        return io_join(w->target, "model.safetensors");
    }
    buf_printf(&b, "%s/model-%05zu-of-%05zu.safetensors", w->target, i + 1, n);
    return buf_take(&b);
}

static int write_header(const struct st_writer *w, size_t shard, struct err *e)
{
    const struct shard *s = &w->shards[shard];
    json_t *root = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint64_t at = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct entry *t = &w->tensors[i];
        if (t->shard != shard) {
            continue;
        }
        json_t *shape = json_array();
        for (int d = 0; d < t->n_dims; d++) {
            json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
        }
        json_object_set_new(root, t->name,
                            json_pack("{s:s,s:o,s:[I,I]}", "dtype", type_text(t->dtype), "shape",
                                      shape, "data_offsets", (json_int_t)at,
                                      (json_int_t)(at + t->size)));
        at += t->size;
    }
    struct buf b = BUF_INIT;
    json_write(root, &b);
    json_decref(root);
    while (b.len % 8 != 0) {
        buf_addc(&b, ' ');
    }
    uint64_t n = b.len;
    int rc = io_write_all(s->out.fd, &n, sizeof n, s->path, e);
    if (rc == 0) {
        rc = io_write_all(s->out.fd, b.data, b.len, s->path, e);
    }
    buf_free(&b);
    return rc;
}

static int begin(struct st_writer *w, struct err *e)
{
    w->begun = true;
    size_t n = cut_into_shards(w);
    if (w->max_shard > 0) {
        int rc = refuse_other_layout(w, n, e);
        if (rc < 0) {
            return rc;
        }
    }
    w->shards = mem_array(n, sizeof *w->shards);
    w->n_shards = n;
    for (size_t i = 0; i < n; i++) {
        w->shards[i].path = shard_path(w, i, n);
        w->shards[i].out.fd = -1;
    }
    for (size_t i = 0; i < n; i++) {
        int rc = tmp_out_create(&w->shards[i].out, w->shards[i].path, 0644, e);
        rc = rc < 0 ? rc : write_header(w, i, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Past tensors that have all their bytes (at once for empty ones). */
static void advance(struct st_writer *w)
{
    while (w->current < w->n_tensors && w->done == w->tensors[w->current].size) {
        w->current++;
        w->done = 0;
    }
}

int st_writer_data(struct st_writer *w, const void *p, size_t n, struct err *e)
{
    const uint8_t *s = p;
    int rc = w->begun ? 0 : begin(w, e);
    while (n > 0 && rc == 0) {
        advance(w);
        if (w->current == w->n_tensors) {
            return err_set(e, QE_INTERNAL, "%s: more data than was declared", w->target);
        }
        const struct entry *t = &w->tensors[w->current];
        const struct shard *f = &w->shards[t->shard];
        size_t k = n < t->size - w->done ? n : t->size - w->done;
        rc = io_write_all(f->out.fd, s, k, f->path, e);
        s += k;
        n -= k;
        w->done += k;
    }
    return rc;
}

static int write_index(const struct st_writer *w, struct err *e)
{
    json_t *map = json_object();
    uint64_t total = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct entry *t = &w->tensors[i];
        const char *path = w->shards[t->shard].path;
        json_object_set_new(map, t->name, json_string(strrchr(path, '/') + 1));
        total += t->size;
    }
    json_t *root =
        json_pack("{s:{s:I},s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    struct buf b = BUF_INIT;
    json_write(root, &b);
    buf_addc(&b, '\n');
    json_decref(root);
    char *path = io_join(w->target, "model.safetensors.index.json");
    struct tmp_out out = TMP_OUT_INIT;
    int rc = tmp_out_create(&out, path, 0644, e);
    rc = rc < 0 ? rc : io_write_all(out.fd, b.data, b.len, path, e);
    rc = rc < 0 ? rc : tmp_out_commit(&out, path, e);
    if (rc < 0 && out.committed) {
        unlink(path); /* its shards go too */
    }
    tmp_out_fini(&out);
    free(path);
    buf_free(&b);
    return rc;
}

int st_writer_commit(struct st_writer *w, struct err *e)
{
    int rc = w->begun ? 0 : begin(w, e);
    if (rc < 0) {
        return rc;
    }
    advance(w);
    if (w->current < w->n_tensors) {
        return err_set(e, QE_INTERNAL, "%s: the data of tensor \"%.200s\" are missing", w->target,
                       w->tensors[w->current].name);
    }
    size_t i = 0;
    for (; i < w->n_shards && rc == 0; i++) {
        rc = tmp_out_commit(&w->shards[i].out, w->shards[i].path, e);
    }
    if (rc == 0 && w->n_shards > 1) {
        rc = write_index(w, e);
    }
    if (rc < 0 && w->n_shards > 1) {
        /* shards without an index are of no use to anybody */
        for (size_t k = 0; k < i; k++) {
            if (w->shards[k].out.committed) {
                unlink(w->shards[k].path);
            }
        }
    }
    return rc;
}
