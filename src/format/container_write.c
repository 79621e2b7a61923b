/* The writer of version 2 containers. Tables have a size that depends on names
 * and shapes only, so data goes to its final place at once; header and tables,
 * with the digests, are written last. */
#include "config.h"
#include "format/container_write.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "format/container_priv.h"

struct blob {
    uint64_t off, size, done;
    struct sha256 *sha;
    uint8_t digest[SHA256_BYTES];
};

struct out_doc {
    char *name;
    char *data;
    struct blob blob;
};

struct out_tensor {
    char *name, *source_name, *source_type;
    enum dtype dtype;
    int n_dims;
    uint64_t shape[TENSOR_MAX_DIMS];
    struct blob data, scales;
};

struct container_writer {
    struct out_doc *docs;
    size_t n_docs;
    struct out_tensor *tensors;
    size_t n_tensors, cap_tensors;
    size_t current;
    char *meta;
    char *path;
    uint64_t table_len, data_start, file_size;
    struct tmp_out tmp;
};

struct container_writer *container_writer_create(void)
{
    struct container_writer *w = mem_zalloc(sizeof *w);
    w->tmp.fd = -1;
    return w;
}

void container_writer_free(struct container_writer *w)
{
    if (!w) {
        return;
    }
    tmp_out_fini(&w->tmp);
    for (size_t i = 0; i < w->n_docs; i++) {
        free(w->docs[i].name);
        free(w->docs[i].data);
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        struct out_tensor *t = &w->tensors[i];
        free(t->name);
        free(t->source_name);
        free(t->source_type);
        sha256_free(t->data.sha);
        sha256_free(t->scales.sha);
    }
    free(w->docs);
    free(w->tensors);
    free(w->meta);
    free(w->path);
    free(w);
}

void container_writer_doc(struct container_writer *w, const char *name, const void *p, size_t n)
{
    w->docs = mem_realloc(w->docs, (w->n_docs + 1) * sizeof *w->docs);
    struct out_doc *d = &w->docs[w->n_docs++];
    memset(d, 0, sizeof *d);
    d->name = mem_strdup(name);
    d->data = mem_alloc(n + 1);
    memcpy(d->data, p, n);
    d->blob.size = n;
    sha256_of(d->data, n, d->blob.digest);
}

static bool good_name(const char *s)
{
    size_t n = 0;
    for (; s[n]; n++) {
        if (s[n] <= ' ' || s[n] >= 127) {
            return false;
        }
    }
    return n < 4096;
}

int container_writer_declare(struct container_writer *w, const char *name, const char *source_name,
                             const char *source_type, enum dtype t, int n_dims,
                             const uint64_t *shape, struct err *e)
{
    if (!name[0] || !good_name(name) || !good_name(source_name) || !good_name(source_type) ||
        strlen(source_type) > 255) {
        return err_set(e, QE_FORMAT, "a tensor's name has blanks, control or non-ASCII characters");
    }
    if (n_dims < 1 || n_dims > TENSOR_MAX_DIMS) {
        return err_set(e, QE_UNSUPPORTED, "tensor %s has %d dimensions; 1 to %d are possible", name,
                       n_dims, TENSOR_MAX_DIMS);
    }
    if (w->n_tensors == MAX_TENSORS) {
        return err_set(e, QE_UNSUPPORTED, "more than %u tensors", MAX_TENSORS);
    }
    if (w->n_tensors == w->cap_tensors) {
        w->cap_tensors = w->cap_tensors ? 2 * w->cap_tensors : 256;
        w->tensors = mem_realloc(w->tensors, w->cap_tensors * sizeof *w->tensors);
    }
    struct out_tensor *o = &w->tensors[w->n_tensors];
    memset(o, 0, sizeof *o);
    uint64_t rows = 1;
    bool fits = true;
    for (int i = 0; i < n_dims; i++) {
        o->shape[i] = shape[i];
        fits = fits && shape[i] > 0;
        if (fits && i + 1 < n_dims) {
            fits = arr_size(rows, shape[i], &rows);
        }
    }
    if (!fits || dtype_sizes(t, rows, shape[n_dims - 1], &o->data.size, &o->scales.size) < 0) {
        return err_set(e, QE_FORMAT, "the shape of tensor %s is not possible for type %s", name,
                       dtype_name(t));
    }
    o->name = mem_strdup(name);
    o->source_name = mem_strdup(source_name);
    o->source_type = mem_strdup(source_type);
    o->dtype = t;
    o->n_dims = n_dims;
    w->n_tensors++;
    return 0;
}

void container_writer_meta_take(struct container_writer *w, json_t *meta)
{
    free(w->meta);
    w->meta = json_dumps(meta, JSON_COMPACT);
    json_decref(meta);
}

static uint64_t aligned(uint64_t n)
{
    return (n + CONTAINER_ALIGN - 1) / CONTAINER_ALIGN * CONTAINER_ALIGN;
}

static void lay(struct blob *b, uint64_t *pos)
{
    if (b->size > 0) {
        b->off = aligned(*pos);
        *pos = b->off + b->size;
    }
}

uint64_t container_writer_size(struct container_writer *w)
{
    uint64_t n = 0;
    for (size_t i = 0; i < w->n_docs; i++) {
        n += 2 + strlen(w->docs[i].name) + 16 + SHA256_BYTES;
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct out_tensor *t = &w->tensors[i];
        n += 2 + strlen(t->name) + 2 + strlen(t->source_name) + 1 + strlen(t->source_type) + 2 +
             8 * (uint64_t)t->n_dims + 2 * (16 + SHA256_BYTES);
    }
    w->table_len = n;
    w->data_start = aligned(V2_HEADER + n + strlen(w->meta));
    uint64_t pos = w->data_start;
    for (size_t i = 0; i < w->n_docs; i++) {
        lay(&w->docs[i].blob, &pos);
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        lay(&w->tensors[i].data, &pos);
        lay(&w->tensors[i].scales, &pos);
    }
    w->file_size = pos;
    return pos;
}

int container_writer_begin(struct container_writer *w, const char *path, struct err *e)
{
    container_writer_size(w);
    w->path = mem_strdup(path);
    int rc = tmp_out_create(&w->tmp, path, 0644, e);
    for (size_t i = 0; rc == 0 && i < w->n_docs; i++) {
        struct out_doc *d = &w->docs[i];
        rc = io_pwrite_all(w->tmp.fd, d->data, (size_t)d->blob.size, d->blob.off, path, e);
    }
    return rc;
}

static int blob_add(struct container_writer *w, struct blob *b, const void *p, size_t n,
                    const char *name, struct err *e)
{
    if (n > b->size - b->done) {
        return err_set(e, QE_INTERNAL, "%s: more bytes for tensor %s than its shape has", w->path,
                       name);
    }
    if (n == 0) {
        return 0;
    }
    if (!b->sha) {
        b->sha = sha256_create();
    }
    int rc = io_pwrite_all(w->tmp.fd, p, n, b->off + b->done, w->path, e);
    if (rc < 0) {
        return rc;
    }
    sha256_add(b->sha, p, n);
    b->done += n;
    if (b->done == b->size) {
        sha256_done(b->sha, b->digest);
        sha256_free(b->sha);
        b->sha = NULL;
    }
    return 0;
}

int container_writer_data(struct container_writer *w, const void *data, size_t n,
                          const void *scales, size_t n_scales, struct err *e)
{
    if (w->current == w->n_tensors) {
        return err_set(e, QE_INTERNAL, "%s: bytes behind the last tensor", w->path);
    }
    struct out_tensor *t = &w->tensors[w->current];
    int rc = blob_add(w, &t->data, data, n, t->name, e);
    if (rc == 0) {
        rc = blob_add(w, &t->scales, scales, n_scales, t->name, e);
    }
    if (rc == 0 && t->data.done == t->data.size && t->scales.done == t->scales.size) {
        w->current++;
    }
    return rc;
}

static void put_uint(struct buf *b, uint64_t v, size_t width)
{
    for (size_t i = 0; i < width; i++) {
        buf_addc(b, (char)(v >> (8 * i) & 255));
    }
}

static void put_str(struct buf *b, const char *s, size_t width)
{
    put_uint(b, strlen(s), width);
    buf_adds(b, s);
}

static void put_blob(struct buf *b, const struct blob *x)
{
    put_uint(b, x->off, 8);
    put_uint(b, x->size, 8);
    buf_add(b, x->digest, SHA256_BYTES);
}

static void put_head(struct container_writer *w, struct buf *b)
{
    static const uint8_t zeros[SHA256_BYTES];
    put_uint(b, V2_MAGIC, 4);
    put_uint(b, 2, 4);
    put_uint(b, w->n_tensors, 4);
    put_uint(b, w->n_docs, 4);
    put_uint(b, strlen(w->meta), 8);
    put_uint(b, w->table_len, 8);
    put_uint(b, w->data_start, 8);
    put_uint(b, w->file_size, 8);
    buf_add(b, zeros, 16);
    buf_add(b, zeros, SHA256_BYTES);
    for (size_t i = 0; i < w->n_docs; i++) {
        put_str(b, w->docs[i].name, 2);
        put_blob(b, &w->docs[i].blob);
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct out_tensor *t = &w->tensors[i];
        put_str(b, t->name, 2);
        put_str(b, t->source_name, 2);
        put_str(b, t->source_type, 1);
        put_uint(b, t->dtype, 1);
        put_uint(b, (uint64_t)t->n_dims, 1);
        for (int d = 0; d < t->n_dims; d++) {
            put_uint(b, t->shape[d], 8);
        }
        put_blob(b, &t->data);
        put_blob(b, &t->scales);
    }
    buf_adds(b, w->meta);
    while (b->len < w->data_start) {
        buf_addc(b, 0);
    }
}

int container_writer_commit(struct container_writer *w, struct err *e)
{
    if (w->current != w->n_tensors) {
        return err_set(e, QE_INTERNAL, "%s: bytes of tensor %s are missing", w->path,
                       w->tensors[w->current].name);
    }
    struct buf b = BUF_INIT;
    put_head(w, &b);
    struct sha256 *h = sha256_create();
    sha256_add(h, b.data, V2_DIGEST_AT);
    sha256_add(h, b.data + V2_HEADER, b.len - V2_HEADER);
    sha256_done(h, (uint8_t *)b.data + V2_DIGEST_AT);
    sha256_free(h);
    int rc = io_pwrite_all(w->tmp.fd, b.data, b.len, 0, w->path, e);
    buf_free(&b);
    return rc < 0 ? rc : tmp_out_commit(&w->tmp, w->path, e);
}
