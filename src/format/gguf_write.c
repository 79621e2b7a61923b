/* GGUF writer, version 3. Metadata and the list of tensors are collected in
 * memory; the first byte of data fixes them and writes the header. Every tensor
 * begins at, and the file ends on, a multiple of the alignment. */
#include "config.h"
#include "format/gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"

#define ALIGN 32

struct entry {
    char *name;
    uint32_t type;
    int n_dims;
    uint64_t shape[GGUF_MAX_DIMS];
    size_t size;
};

struct gguf_writer {
    char *path;
    struct tmp_out out;
    struct buf kv; /* encoded key-value pairs */
    char **keys;
    size_t n_keys;
    struct entry *tensors;
    size_t n_tensors;
    bool begun;     /* the header is written */
    size_t current; /* tensor that takes the next byte */
    size_t done;    /* bytes it has */
};

int gguf_writer_create(const char *path, struct gguf_writer **out, struct err *e)
{
    struct gguf_writer *w = mem_zalloc(sizeof *w);
    w->out.fd = -1;
    int rc = tmp_out_create(&w->out, path, 0644, e);
    if (rc < 0) {
        free(w);
        return rc;
    }
    w->path = mem_strdup(path);
    *out = w;
    return 0;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w) {
        return;
    }
    tmp_out_fini(&w->out);
    for (size_t i = 0; i < w->n_keys; i++) {
        free(w->keys[i]);
    }
    for (size_t i = 0; i < w->n_tensors; i++) {
        free(w->tensors[i].name);
    }
    free(w->keys);
    free(w->tensors);
    buf_free(&w->kv);
    free(w->path);
    free(w);
}

static void add_u32(struct buf *b, uint32_t v)
{
    buf_add(b, &v, sizeof v);
}

static void add_u64(struct buf *b, uint64_t v)
{
    buf_add(b, &v, sizeof v);
}

static void add_str(struct buf *b, const char *p, size_t n)
{
    add_u64(b, n);
    buf_add(b, p, n);
}

static void add_key(struct gguf_writer *w, const char *key, enum gguf_kv_type type)
{
    w->keys = mem_realloc(w->keys, (w->n_keys + 1) * sizeof *w->keys);
    w->keys[w->n_keys++] = mem_strdup(key);
    add_str(&w->kv, key, strlen(key));
    add_u32(&w->kv, (uint32_t)type);
}

static void put(struct gguf_writer *w, const char *key, enum gguf_kv_type type, const void *v,
                size_t n)
{
    add_key(w, key, type);
    buf_add(&w->kv, v, n);
}

void gguf_put_u8(struct gguf_writer *w, const char *key, uint8_t v)
{
    put(w, key, GGUF_KV_U8, &v, sizeof v);
}

void gguf_put_u16(struct gguf_writer *w, const char *key, uint16_t v)
{
    put(w, key, GGUF_KV_U16, &v, sizeof v);
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    put(w, key, GGUF_KV_U32, &v, sizeof v);
}

void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t v)
{
    put(w, key, GGUF_KV_I32, &v, sizeof v);
}

void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t v)
{
    put(w, key, GGUF_KV_U64, &v, sizeof v);
}

void gguf_put_i64(struct gguf_writer *w, const char *key, int64_t v)
{
    put(w, key, GGUF_KV_I64, &v, sizeof v);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float v)
{
    put(w, key, GGUF_KV_F32, &v, sizeof v);
}

void gguf_put_f64(struct gguf_writer *w, const char *key, double v)
{
    put(w, key, GGUF_KV_F64, &v, sizeof v);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool v)
{
    const uint8_t b = v ? 1 : 0;
    put(w, key, GGUF_KV_BOOL, &b, sizeof b);
}

void gguf_put_str(struct gguf_writer *w, const char *key, const char *p, size_t n)
{
    add_key(w, key, GGUF_KV_STR);
    add_str(&w->kv, p, n);
}

void gguf_put_arr(struct gguf_writer *w, const char *key, enum gguf_kv_type elem, const void *p,
                  uint64_t n)
{
    static const uint8_t width[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    add_key(w, key, GGUF_KV_ARR);
    add_u32(&w->kv, (uint32_t)elem);
    add_u64(&w->kv, n);
    buf_add(&w->kv, p, (size_t)n * width[elem]);
}

void gguf_put_strs(struct gguf_writer *w, const char *key, const struct gguf_str *s, uint64_t n)
{
    add_key(w, key, GGUF_KV_ARR);
    add_u32(&w->kv, GGUF_KV_STR);
    add_u64(&w->kv, n);
    for (uint64_t i = 0; i < n; i++) {
        add_str(&w->kv, s[i].p, s[i].n);
    }
}

int gguf_writer_declare(struct gguf_writer *w, const char *name, uint32_t type, int n_dims,
                        const uint64_t *shape, struct err *e)
{
    uint32_t elems = 1;
    uint32_t bytes = 1;
    size_t n = 1;
    size_t size = 0;
    bool ok = !w->begun && n_dims >= 1 && n_dims <= GGUF_MAX_DIMS &&
              gguf_type_info(type, NULL, &elems, &bytes);
    for (int i = 0; ok && i < n_dims; i++) {
        ok = shape[i] > 0 && arr_size(n, shape[i], &n);
    }
    if (!ok || shape[n_dims - 1] % elems != 0 || !arr_size(n / elems, bytes, &size)) {
        return err_set(e, QE_INTERNAL, "%s: the tensor %.200s cannot be written as type %" PRIu32,
                       w->path, name, type);
    }
    w->tensors = mem_realloc(w->tensors, (w->n_tensors + 1) * sizeof *w->tensors);
    struct entry *t = &w->tensors[w->n_tensors++];
    t->name = mem_strdup(name);
    t->type = type;
    t->n_dims = n_dims;
    t->size = size;
    memcpy(t->shape, shape, (size_t)n_dims * sizeof *shape);
    return 0;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two equal texts, or NULL. The order of the texts is lost. */
static const char *find_twice(const char **s, size_t n)
{
    qsort(s, n, sizeof *s, by_text);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(s[i - 1], s[i]) == 0) {
            return s[i];
        }
    }
    return NULL;
}

static int check_names(const struct gguf_writer *w, struct err *e)
{
    size_t most = w->n_keys > w->n_tensors ? w->n_keys : w->n_tensors;
    const char **s = mem_array(most + 1, sizeof *s);
    for (size_t i = 0; i < w->n_keys; i++) {
        s[i] = w->keys[i];
    }
    const char *twice = find_twice(s, w->n_keys);
    if (!twice) {
        for (size_t i = 0; i < w->n_tensors; i++) {
            s[i] = w->tensors[i].name;
        }
        twice = find_twice(s, w->n_tensors);
    }
    free(s);
    if (twice) {
        return err_set(e, QE_INTERNAL, "%s: %.200s is given twice", w->path, twice);
    }
    for (size_t i = 0; i < w->n_keys; i++) {
        if (strcmp(w->keys[i], "general.alignment") == 0) {
            return err_set(e, QE_INTERNAL, "%s: the alignment is always %d", w->path, ALIGN);
        }
    }
    return 0;
}

static int write_padding(struct gguf_writer *w, uint64_t at, struct err *e)
{
    static const uint8_t zero[ALIGN];
    return io_write_all(w->out.fd, zero, (size_t)((ALIGN - at % ALIGN) % ALIGN), w->path, e);
}

static int write_header(struct gguf_writer *w, struct err *e)
{
    int rc = check_names(w, e);
    if (rc < 0) {
        return rc;
    }
    struct buf b = BUF_INIT;
    buf_add(&b, "GGUF", 4);
    add_u32(&b, 3);
    add_u64(&b, w->n_tensors);
    add_u64(&b, w->n_keys);
    buf_add(&b, w->kv.data, w->kv.len);
    uint64_t offset = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct entry *t = &w->tensors[i];
        add_str(&b, t->name, strlen(t->name));
        add_u32(&b, (uint32_t)t->n_dims);
        for (int d = t->n_dims - 1; d >= 0; d--) {
            add_u64(&b, t->shape[d]);
        }
        add_u32(&b, t->type);
        add_u64(&b, offset);
        offset += (t->size + ALIGN - 1) / ALIGN * ALIGN;
    }
    rc = io_write_all(w->out.fd, b.data, b.len, w->path, e);
    if (rc == 0) {
        rc = write_padding(w, b.len, e);
    }
    buf_free(&b);
    w->begun = true;
    return rc;
}

int gguf_writer_data(struct gguf_writer *w, const void *p, size_t n, struct err *e)
{
    const uint8_t *s = p;
    int rc = w->begun ? 0 : write_header(w, e);
    while (n > 0 && rc == 0) {
        if (w->current == w->n_tensors) {
            return err_set(e, QE_INTERNAL, "%s: more data than was declared", w->path);
        }
        size_t left = w->tensors[w->current].size - w->done;
        size_t k = n < left ? n : left;
        rc = io_write_all(w->out.fd, s, k, w->path, e);
        s += k;
        n -= k;
        w->done += k;
        if (rc == 0 && k == left) {
            rc = write_padding(w, w->done, e);
            w->current++;
            w->done = 0;
        }
    }
    return rc;
}

int gguf_writer_commit(struct gguf_writer *w, struct err *e)
{
    int rc = w->begun ? 0 : write_header(w, e);
    if (rc < 0) {
        return rc;
    }
    if (w->current < w->n_tensors) {
        return err_set(e, QE_INTERNAL, "%s: the data of tensor %.200s are missing", w->path,
                       w->tensors[w->current].name);
    }
    return tmp_out_commit(&w->out, w->path, e);
}
