/* Safetensors reader: one mapped file or the shards of a directory. The header
 * is JSON from outside: every number in it is checked against the file before
 * it becomes a pointer. */
#include "config.h"
#include "format/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "format/quant.h"

/* The format's own limit. */
#define HEADER_MAX 100000000

struct shard {
    char *name; /* for messages */
    struct io_map map;
    json_t *header;
};

struct safetensors {
    struct shard *shards;
    size_t n_shards;
    struct st_tensor *tensors; /* names and types are borrowed from the headers */
    size_t n_tensors;
    const struct st_tensor **by_name; /* sorted */
    bool borrowed;                    /* the bytes are the caller's */
};

/* Bits per element of the types the format knows. */
static const struct {
    const char *name;
    int bits;
    bool usable;
    enum dtype dtype;
} types[] = {
    {"F32", 32, true, DT_F32},     {"BF16", 16, true, DT_BF16},   {"F16", 16, true, DT_F16},
    {"F64", 64, false, DT_F32},    {"I64", 64, false, DT_F32},    {"U64", 64, false, DT_F32},
    {"I32", 32, false, DT_F32},    {"U32", 32, false, DT_F32},    {"I16", 16, false, DT_F32},
    {"U16", 16, false, DT_F32},    {"I8", 8, false, DT_F32},      {"U8", 8, false, DT_F32},
    {"BOOL", 8, false, DT_F32},    {"F8_E4M3", 8, false, DT_F32}, {"F8_E5M2", 8, false, DT_F32},
    {"F8_E8M0", 8, false, DT_F32}, {"F6_E2M3", 6, false, DT_F32}, {"F6_E3M2", 6, false, DT_F32},
    {"F4", 4, false, DT_F32},      {"C64", 64, false, DT_F32},
};

/* One entry of the header; on success *begin is its offset in the data. */
static int read_entry(const struct shard *s, const char *name, const json_t *v, size_t data_size,
                      struct st_tensor *out, uint64_t *begin, struct err *e)
{
    const json_t *shape = json_object_get(v, "shape");
    const json_t *offsets = json_object_get(v, "data_offsets");
    const char *type = json_string_value(json_object_get(v, "dtype"));
    if (!type || !json_is_array(shape) || !json_is_array(offsets) ||
        json_array_size(offsets) != 2) {
        return err_set(e, QE_FORMAT, "%s: tensor \"%.200s\" lacks dtype, shape or data_offsets",
                       s->name, name);
    }
    int bits = 0;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, type) == 0) {
            bits = types[i].bits;
            out->usable = types[i].usable;
            out->dtype = types[i].dtype;
        }
    }
    if (bits == 0) {
        return err_set(e, QE_UNSUPPORTED, "%s: tensor \"%.200s\" has the unknown dtype \"%.40s\"",
                       s->name, name, type);
    }
    if (json_array_size(shape) > ST_MAX_DIMS) {
        return err_set(e, QE_UNSUPPORTED, "%s: tensor \"%.200s\" has %zu dimensions, more than %d",
                       s->name, name, json_array_size(shape), ST_MAX_DIMS);
    }
    size_t n = 1;
    out->n_dims = (int)json_array_size(shape);
    for (int i = 0; i < out->n_dims; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        int64_t x = json_is_integer(d) ? json_integer_value(d) : -1;
        if (x < 0 || !arr_size(n, (size_t)x, &n)) {
            return err_set(e, QE_FORMAT, "%s: tensor \"%.200s\" has a bad shape (dimension %d)",
                           s->name, name, i);
        }
        out->shape[i] = (uint64_t)x;
    }
    size_t total = 0;
    if (!arr_size(n, (size_t)bits, &total) || total % 8 != 0) {
        return err_set(e, QE_FORMAT, "%s: tensor \"%.200s\" has an impossible size", s->name, name);
    }
    total /= 8;
    const json_t *b = json_array_get(offsets, 0);
    const json_t *f = json_array_get(offsets, 1);
    int64_t from = json_is_integer(b) ? json_integer_value(b) : -1;
    int64_t to = json_is_integer(f) ? json_integer_value(f) : -1;
    if (from < 0 || to < from) {
        return err_set(e, QE_FORMAT, "%s: tensor \"%.200s\" has bad data_offsets", s->name, name);
    }
    if ((uint64_t)to > data_size) {
        return err_set(e, QE_FORMAT,
                       "%s: tensor \"%.200s\" ends at byte %" PRId64
                       " of the data, the file has %zu: it is cut off or damaged",
                       s->name, name, to, data_size);
    }
    if ((uint64_t)(to - from) != total) {
        return err_set(e, QE_FORMAT,
                       "%s: tensor \"%.200s\" has %" PRId64 " bytes, its shape and %s need %zu",
                       s->name, name, to - from, type, total);
    }
    out->name = name;
    out->type = type;
    out->size = total;
    *begin = (uint64_t)from;
    return 0;
}

/* By place in the data; an empty tensor before the one that starts there. */
static int by_place(const void *a, const void *b)
{
    const struct st_tensor *x = a;
    const struct st_tensor *y = b;
    if (x->data != y->data) {
        return x->data < y->data ? -1 : 1;
    }
    return x->size < y->size ? -1 : x->size > y->size;
}

static int read_metadata(const struct shard *s, const json_t *meta, struct err *e)
{
    const char *key = NULL;
    json_t *v = NULL;
    if (!json_is_object(meta)) {
        return err_set(e, QE_FORMAT, "%s: __metadata__ is not an object", s->name);
    }
    json_object_foreach((json_t *)(uintptr_t)meta, key, v)
    {
        if (!json_is_string(v)) {
            return err_set(e, QE_FORMAT, "%s: __metadata__ field \"%.200s\" is not a string",
                           s->name, key);
        }
    }
    return 0;
}

/* Names go into messages: no control characters. */
static bool printable(const char *s)
{
    while ((unsigned char)*s >= 0x20 && *s != 0x7F) {
        s++;
    }
    return *s == 0;
}

/* Parses the shard's header and appends its tensors. */
static int read_shard(struct safetensors *st, struct shard *s, struct err *e)
{
    uint64_t n = 0;
    if (s->map.size < 8) {
        return err_set(e, QE_FORMAT, "%s is no safetensors file: it has only %zu bytes", s->name,
                       s->map.size);
    }
    memcpy(&n, s->map.data, 8);
    if (n > HEADER_MAX || n > s->map.size - 8) {
        return err_set(e, QE_FORMAT,
                       "%s is no safetensors file or is cut off: its header claims %" PRIu64
                       " bytes, the file has %zu (limit %d)",
                       s->name, n, s->map.size, HEADER_MAX);
    }
    const char *text = (const char *)s->map.data + 8;
    const uint8_t *data = s->map.data + 8 + n;
    size_t data_size = s->map.size - 8 - (size_t)n;
    int rc = json_parse(text, (size_t)n, s->name, &s->header, e);
    if (rc < 0) {
        return rc;
    }
    if (!json_is_object(s->header)) {
        return err_set(e, QE_FORMAT, "%s: the header is not an object", s->name);
    }
    size_t count = json_object_size(s->header);
    st->tensors = mem_realloc(st->tensors, (st->n_tensors + count + 1) * sizeof *st->tensors);
    struct st_tensor *first = st->tensors + st->n_tensors;
    size_t k = 0;
    const char *name = NULL;
    json_t *v = NULL;
    json_object_foreach(s->header, name, v)
    {
        if (strcmp(name, "__metadata__") == 0) {
            rc = read_metadata(s, v, e);
            if (rc < 0) {
                return rc;
            }
            continue;
        }
        if (!name[0] || !printable(name)) {
            return err_set(e, QE_FORMAT, "%s: the name of a tensor is empty or not printable",
                           s->name);
        }
        uint64_t begin = 0;
        memset(&first[k], 0, sizeof first[k]);
        rc = read_entry(s, name, v, data_size, &first[k], &begin, e);
        if (rc < 0) {
            return rc;
        }
        first[k].data = data + begin;
        k++;
    }
    qsort(first, k, sizeof *first, by_place);
    const uint8_t *at = data;
    for (size_t i = 0; i < k; i++) {
        if (first[i].data != at) {
            return err_set(e, QE_FORMAT, "%s: tensor \"%.200s\" %s", s->name, first[i].name,
                           first[i].data < at ? "overlaps another one"
                                              : "follows a hole in the data");
        }
        at += first[i].size;
    }
    if (at != data + data_size) {
        return err_set(e, QE_FORMAT, "%s: %zu bytes at the end belong to no tensor", s->name,
                       (size_t)(data + data_size - at));
    }
    st->n_tensors += k;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct st_tensor *const *x = a;
    const struct st_tensor *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int index_names(struct safetensors *st, const char *what, struct err *e)
{
    st->by_name = mem_array(st->n_tensors, sizeof *st->by_name);
    for (size_t i = 0; i < st->n_tensors; i++) {
        st->by_name[i] = &st->tensors[i];
    }
    qsort(st->by_name, st->n_tensors, sizeof *st->by_name, by_name);
    for (size_t i = 1; i < st->n_tensors; i++) {
        if (strcmp(st->by_name[i - 1]->name, st->by_name[i]->name) == 0) {
            return err_set(e, QE_FORMAT, "%s: tensor \"%.200s\" is in two shards", what,
                           st->by_name[i]->name);
        }
    }
    return 0;
}

static struct shard *add_shard(struct safetensors *st, const char *name)
{
    st->shards = mem_realloc(st->shards, (st->n_shards + 1) * sizeof *st->shards);
    struct shard *s = &st->shards[st->n_shards++];
    memset(s, 0, sizeof *s);
    s->name = mem_strdup(name);
    return s;
}

static int open_shard(struct safetensors *st, const char *path, struct err *e)
{
    struct shard *s = add_shard(st, path);
    int rc = io_map_open(&s->map, path, e);
    return rc < 0 ? rc : read_shard(st, s, e);
}

/* Opens the files an index names and checks that each tensor is where it says. */
static int open_index(struct safetensors *st, const char *dir, const char *index, struct err *e)
{
    json_t *root = NULL;
    int rc = json_parse_file(index, HEADER_MAX, &root, e);
    if (rc < 0) {
        return rc;
    }
    json_t *map = json_object_get(root, "weight_map");
    json_t *seen = json_object(); /* file name -> shard number */
    const char *name = NULL;
    json_t *v = NULL;
    if (!json_is_object(map) || json_object_size(map) == 0) {
        rc = err_set(e, QE_FORMAT, "%s has no weight_map", index);
        goto out;
    }
    json_object_foreach(map, name, v)
    {
        const char *f = json_string_value(v);
        if (!f || !f[0] || f[0] == '.' || strchr(f, '/') || strlen(f) != json_string_length(v)) {
            rc = err_set(e, QE_FORMAT, "%s: tensor \"%.200s\" lies in a file with a bad name",
                         index, name);
            goto out;
        }
        if (json_object_get(seen, f)) {
            continue;
        }
        json_object_set_new(seen, f, json_integer((json_int_t)st->n_shards));
        char *path = io_join(dir, f);
        rc = open_shard(st, path, e);
        free(path);
        if (rc < 0) {
            goto out;
        }
    }
    rc = index_names(st, index, e);
    if (rc < 0) {
        goto out;
    }
    json_object_foreach(map, name, v)
    {
        const char *f = json_string_value(v);
        const struct shard *s = &st->shards[json_integer_value(json_object_get(seen, f))];
        const struct st_tensor *t = st_find(st, name);
        if (!t || t->data < s->map.data || t->data > s->map.data + s->map.size) {
            rc = err_set(e, QE_FORMAT, "%s: tensor \"%.200s\" is not in %s", index, name, f);
            goto out;
        }
    }
out:
    json_decref(seen);
    json_decref(root);
    return rc;
}

static int open_directory(struct safetensors *st, const char *dir, struct err *e)
{
    char *index = io_join(dir, "model.safetensors.index.json");
    char *single = io_join(dir, "model.safetensors");
    struct stat sb;
    int rc = 0;
    if (stat(index, &sb) == 0) {
        rc = open_index(st, dir, index, e);
    } else if (stat(single, &sb) == 0) {
        rc = open_shard(st, single, e);
        rc = rc < 0 ? rc : index_names(st, single, e);
    } else {
        rc = err_set(e, QE_NOTFOUND,
                     "%s holds neither model.safetensors nor model.safetensors.index.json", dir);
    }
    free(index);
    free(single);
    return rc;
}

int st_open(const char *path, struct safetensors **out, struct err *e)
{
    struct stat sb;
    if (stat(path, &sb) < 0) {
        return err_sys(e, errno == ENOENT ? QE_NOTFOUND : QE_IO, errno, "cannot open %s", path);
    }
    struct safetensors *st = mem_zalloc(sizeof *st);
    int rc = 0;
    if (S_ISDIR(sb.st_mode)) {
        rc = open_directory(st, path, e);
    } else {
        rc = open_shard(st, path, e);
        rc = rc < 0 ? rc : index_names(st, path, e);
    }
    if (rc < 0) {
        st_close(st);
        return rc;
    }
    *out = st;
    return 0;
}

int st_open_mem(const void *p, size_t n, const char *name, struct safetensors **out, struct err *e)
{
    struct safetensors *st = mem_zalloc(sizeof *st);
    st->borrowed = true;
    struct shard *s = add_shard(st, name);
    s->map.data = p;
    s->map.size = n;
    int rc = read_shard(st, s, e);
    rc = rc < 0 ? rc : index_names(st, name, e);
    if (rc < 0) {
        st_close(st);
        return rc;
    }
    *out = st;
    return 0;
}

void st_close(struct safetensors *st)
{
    if (!st) {
        return;
    }
    for (size_t i = 0; i < st->n_shards; i++) {
        if (!st->borrowed) {
            io_map_close(&st->shards[i].map);
        }
        json_decref(st->shards[i].header);
        free(st->shards[i].name);
    }
    free(st->shards);
    free(st->tensors);
    free(st->by_name);
    free(st);
}

size_t st_count(const struct safetensors *st)
{
    return st->n_tensors;
}

const struct st_tensor *st_at(const struct safetensors *st, size_t i)
{
    return &st->tensors[i];
}

const struct st_tensor *st_find(const struct safetensors *st, const char *name)
{
    size_t lo = 0;
    size_t hi = st->n_tensors;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(name, st->by_name[mid]->name);
        if (c == 0) {
            return st->by_name[mid];
        }
        if (c < 0) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return NULL;
}

const char *st_meta(const struct safetensors *st, const char *key)
{
    return json_string_value(
        json_object_get(json_object_get(st->shards[0].header, "__metadata__"), key));
}

uint64_t st_file_size(const struct safetensors *st)
{
    uint64_t n = 0;
    for (size_t i = 0; i < st->n_shards; i++) {
        n += st->shards[i].map.size;
    }
    return n;
}

uint64_t st_cols(const struct st_tensor *t)
{
    return t->n_dims > 0 ? t->shape[t->n_dims - 1] : 1;
}

uint64_t st_rows(const struct st_tensor *t)
{
    uint64_t n = 1;
    for (int i = 0; i + 1 < t->n_dims; i++) {
        n *= t->shape[i];
    }
    return n;
}

int st_decode(const struct st_tensor *t, uint64_t row, uint64_t rows, float *dst, struct err *e)
{
    if (!t->usable) {
        return err_set(e, QE_UNSUPPORTED,
                       "tensor \"%.200s\" has dtype %s, only F32, F16 and BF16 are read: "
                       "use an unquantised checkpoint",
                       t->name, t->type);
    }
    if (row > st_rows(t) || rows > st_rows(t) - row) {
        return err_set(e, QE_USAGE,
                       "tensor \"%.200s\" has %" PRIu64 " rows, not %" PRIu64 " + %" PRIu64,
                       t->name, st_rows(t), row, rows);
    }
    size_t at = 0;
    size_t unused = 0;
    quant_at(t->dtype, row, st_cols(t), &at, &unused);
    quant_decode(t->dtype, t->data + at, NULL, rows, st_cols(t), dst);
    return 0;
}
