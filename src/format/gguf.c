/* GGUF reader: one mapped file or all parts of a split one. Every count and
 * length is compared with the bytes that are left before anything is allocated
 * or skipped; what the public functions hand out was walked through here. */
#include "config.h"
#include "format/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/utf8.h"

#define MAX_KEYS    1000000
#define MAX_TENSORS 1000000
#define MAX_NAME    65535
#define MAX_NESTING 4

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are mapped as they are");

struct part {
    char *name; /* for messages */
    struct io_map map;
};

struct gguf {
    struct part *parts;
    size_t n_parts;
    bool borrowed; /* the bytes are the caller's */
    uint32_t version;
    struct gguf_kv *kv;
    size_t n_kv;
    struct gguf_tensor *tensors; /* owns the names */
    size_t n_tensors;
    const struct gguf_tensor **by_name; /* sorted */
};

/* What is left of a file while it is read from front to back. */
struct cursor {
    const uint8_t *p;
    size_t left;
    const char *file;
};

static int cut_off(const struct cursor *c, const char *what, struct err *e)
{
    return err_set(e, QE_FORMAT, "%s is cut off or damaged: %.200s runs past its end", c->file,
                   what);
}

static bool take(struct cursor *c, void *out, size_t n)
{
    if (n > c->left) {
        return false;
    }
    memcpy(out, c->p, n);
    c->p += n;
    c->left -= n;
    return true;
}

static bool skip(struct cursor *c, uint64_t n)
{
    if (n > c->left) {
        return false;
    }
    c->p += n;
    c->left -= n;
    return true;
}

/* Bytes of a fixed-width value; 0 for strings, arrays and unknown numbers. */
static size_t width_of(uint32_t type)
{
    switch (type) {
    case GGUF_KV_U8:
    case GGUF_KV_I8:
    case GGUF_KV_BOOL:
        return 1;
    case GGUF_KV_U16:
    case GGUF_KV_I16:
        return 2;
    case GGUF_KV_U32:
    case GGUF_KV_I32:
    case GGUF_KV_F32:
        return 4;
    case GGUF_KV_U64:
    case GGUF_KV_I64:
    case GGUF_KV_F64:
        return 8;
    default:
        return 0;
    }
}

const char *gguf_kv_type_name(enum gguf_kv_type t)
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    return (unsigned)t < sizeof names / sizeof *names ? names[t] : "unknown";
}

/* A string of the file as a C string (caller frees). */
static int take_name(struct cursor *c, const char *what, char **out, struct err *e)
{
    uint64_t n = 0;
    if (!take(c, &n, 8) || n > c->left) {
        return cut_off(c, what, e);
    }
    const char *s = (const char *)c->p;
    bool ok = n > 0 && n <= MAX_NAME && utf8_valid(s, (size_t)n);
    for (size_t i = 0; ok && i < n; i++) {
        ok = (unsigned char)s[i] >= 0x20 && s[i] != 0x7F;
    }
    if (!ok) {
        return err_set(e, QE_FORMAT, "%s: %s is not printable text of 1 to %d bytes", c->file, what,
                       MAX_NAME);
    }
    *out = mem_strndup(s, (size_t)n);
    skip(c, n);
    return 0;
}

/* Walks over a value, checking all of it. */
static int skip_value(struct cursor *c, uint32_t type, int depth, const char *key, struct err *e);

static int skip_array(struct cursor *c, int depth, const char *key, struct err *e)
{
    uint32_t elem = 0;
    uint64_t n = 0;
    if (!take(c, &elem, 4) || !take(c, &n, 8)) {
        return cut_off(c, key, e);
    }
    size_t width = width_of(elem);
    if (width == 0 && elem != GGUF_KV_STR && elem != GGUF_KV_ARR) {
        return err_set(e, QE_FORMAT, "%s: %.200s is an array of the unknown type %" PRIu32, c->file,
                       key, elem);
    }
    if (elem == GGUF_KV_ARR && depth >= MAX_NESTING) {
        return err_set(e, QE_UNSUPPORTED, "%s: %.200s nests arrays deeper than %d", c->file, key,
                       MAX_NESTING);
    }
    if (width > 0 && elem != GGUF_KV_BOOL) {
        if (n > c->left / width) {
            return cut_off(c, key, e);
        }
        skip(c, n * width);
        return 0;
    }
    /* each element takes at least a byte, so that this ends with the file */
    for (uint64_t i = 0; i < n; i++) {
        int rc = skip_value(c, elem, depth + 1, key, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int skip_value(struct cursor *c, uint32_t type, int depth, const char *key, struct err *e)
{
    size_t width = width_of(type);
    if (type == GGUF_KV_STR) {
        uint64_t n = 0;
        return take(c, &n, 8) && skip(c, n) ? 0 : cut_off(c, key, e);
    }
    if (type == GGUF_KV_ARR) {
        return skip_array(c, depth, key, e);
    }
    if (width == 0) {
        return err_set(e, QE_FORMAT, "%s: %.200s has the unknown type %" PRIu32, c->file, key,
                       type);
    }
    if (width > c->left) {
        return cut_off(c, key, e);
    }
    if (type == GGUF_KV_BOOL && c->p[0] > 1) {
        return err_set(e, QE_FORMAT, "%s: %.200s is a bool of value %d", c->file, key, c->p[0]);
    }
    skip(c, width);
    return 0;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct gguf_kv *)a)->key, ((const struct gguf_kv *)b)->key);
}

static int refuse_twice(const struct gguf_kv *kv, size_t n, const char *file, struct err *e)
{
    if (n < 2) {
        return 0;
    }
    struct gguf_kv *sorted = mem_array(n, sizeof *sorted);
    memcpy(sorted, kv, n * sizeof *kv);
    qsort(sorted, n, sizeof *sorted, by_key);
    int rc = 0;
    for (size_t i = 1; i < n && rc == 0; i++) {
        if (strcmp(sorted[i - 1].key, sorted[i].key) == 0) {
            rc = err_set(e, QE_FORMAT, "%s: the key %.200s is there twice", file, sorted[i].key);
        }
    }
    free(sorted);
    return rc;
}

static void free_kv(struct gguf_kv *kv, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)kv[i].key);
    }
    free(kv);
}

/* *kv and *n hold what was read even on failure. */
static int read_kv(struct cursor *c, uint64_t count, struct gguf_kv **kv, size_t *n, struct err *e)
{
    size_t cap = 0;
    for (uint64_t i = 0; i < count; i++) {
        char *key = NULL;
        uint32_t type = 0;
        int rc = take_name(c, "a metadata key", &key, e);
        if (rc < 0) {
            return rc;
        }
        if (*n == cap) {
            cap = cap ? cap * 2 : 64;
            *kv = mem_realloc(*kv, cap * sizeof **kv);
        }
        struct gguf_kv *v = &(*kv)[(*n)++];
        v->key = key;
        if (!take(c, &type, 4)) {
            return cut_off(c, key, e);
        }
        v->type = (enum gguf_kv_type)type;
        v->value = c->p;
        rc = skip_value(c, type, 0, key, e);
        if (rc < 0) {
            return rc;
        }
    }
    return refuse_twice(*kv, *n, c->file, e);
}

/* One tensor description; data holds the offset for now. */
static int read_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t *offset, struct err *e)
{
    uint32_t n_dims = 0;
    int rc = take_name(c, "a tensor name", (char **)(uintptr_t)&t->name, e);
    if (rc < 0) {
        return rc;
    }
    if (!take(c, &n_dims, 4)) {
        return cut_off(c, t->name, e);
    }
    if (n_dims < 1 || n_dims > GGUF_MAX_DIMS) {
        return err_set(e, QE_FORMAT, "%s: tensor %.200s has %" PRIu32 " dimensions (1 to %d)",
                       c->file, t->name, n_dims, GGUF_MAX_DIMS);
    }
    t->n_dims = (int)n_dims;
    for (int i = t->n_dims - 1; i >= 0; i--) {
        if (!take(c, &t->shape[i], 8)) {
            return cut_off(c, t->name, e);
        }
    }
    if (!take(c, &t->type, 4) || !take(c, offset, 8)) {
        return cut_off(c, t->name, e);
    }
    uint32_t elems = 1;
    uint32_t bytes = 1;
    if (!gguf_type_info(t->type, NULL, &elems, &bytes)) {
        return err_set(e, QE_UNSUPPORTED, "%s: tensor %.200s has the unknown type %" PRIu32,
                       c->file, t->name, t->type);
    }
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++) {
        if (t->shape[i] == 0 || t->shape[i] > INT64_MAX || !arr_size(n, t->shape[i], &n)) {
            return err_set(e, QE_FORMAT, "%s: tensor %.200s has an impossible shape", c->file,
                           t->name);
        }
    }
    if (gguf_cols(t) % elems != 0) {
        return err_set(e, QE_FORMAT,
                       "%s: tensor %.200s has rows of %" PRIu64 ", not whole blocks of %" PRIu32,
                       c->file, t->name, gguf_cols(t), elems);
    }
    if (!arr_size(n / elems, bytes, &t->size)) {
        return err_set(e, QE_FORMAT, "%s: tensor %.200s has an impossible shape", c->file, t->name);
    }
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct gguf_tensor *x = a;
    const struct gguf_tensor *y = b;
    return x->data < y->data ? -1 : x->data > y->data;
}

/* The tensors' places in the data, which begins at data. */
static int place_tensors(struct gguf_tensor *t, const uint64_t *offset, size_t n, uint64_t align,
                         const uint8_t *data, size_t size, const char *file, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (offset[i] % align != 0) {
            return err_set(e, QE_FORMAT,
                           "%s: tensor %.200s lies at %" PRIu64 ", no multiple of %" PRIu64, file,
                           t[i].name, offset[i], align);
        }
        if (offset[i] > size || t[i].size > size - offset[i]) {
            return err_set(e, QE_FORMAT,
                           "%s is cut off or damaged: tensor %.200s (%zu bytes at %" PRIu64
                           ") runs past its %zu bytes of data",
                           file, t[i].name, t[i].size, offset[i], size);
        }
        t[i].data = data + offset[i];
    }
    if (n > 1) {
        qsort(t, n, sizeof *t, by_place);
    }
    for (size_t i = 1; i < n; i++) {
        if (t[i].data < t[i - 1].data + t[i - 1].size) {
            return err_set(e, QE_FORMAT, "%s: the tensors %.200s and %.200s overlap", file,
                           t[i - 1].name, t[i].name);
        }
    }
    return 0;
}

static const struct gguf_kv *find_kv(const struct gguf_kv *kv, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(kv[i].key, key) == 0) {
            return &kv[i];
        }
    }
    return NULL;
}

static int read_alignment(const struct gguf_kv *kv, size_t n, const char *file, uint64_t *out,
                          struct err *e)
{
    const struct gguf_kv *v = find_kv(kv, n, "general.alignment");
    uint32_t a = 32;
    if (v) {
        a = 0;
        if (v->type == GGUF_KV_U32) {
            memcpy(&a, v->value, 4);
        }
        if (a == 0 || (a & (a - 1)) != 0 || a > 1U << 24) {
            return err_set(e, QE_FORMAT,
                           "%s: general.alignment is not a power of two up to 2^24 (u32)", file);
        }
    }
    *out = a;
    return 0;
}

/* Reads part s: its tensors are appended, its metadata goes to *kv and *n_kv
 * (the caller's to free, also on failure). */
static int read_part(struct gguf *g, const struct part *s, struct gguf_kv **kv, size_t *n_kv,
                     struct err *e)
{
    struct cursor c = {s->map.data, s->map.size, s->name};
    char magic[4] = {0};
    uint32_t version = 0;
    uint64_t tensors = 0;
    uint64_t keys = 0;
    if (!take(&c, magic, 4) || memcmp(magic, "GGUF", 4) != 0) {
        return err_set(e, QE_FORMAT, "%s is no GGUF file", s->name);
    }
    if (!take(&c, &version, 4)) {
        return cut_off(&c, "the header", e);
    }
    if (version != 2 && version != 3) {
        return err_set(e, QE_UNSUPPORTED, "%s is GGUF version %" PRIu32 "%s, only 2 and 3 are read",
                       s->name, version,
                       version && (version & 0xFFFF) == 0 ? " (or big-endian)" : "");
    }
    g->version = version;
    if (!take(&c, &tensors, 8) || !take(&c, &keys, 8)) {
        return cut_off(&c, "the header", e);
    }
    if (tensors > MAX_TENSORS || keys > MAX_KEYS) {
        return err_set(e, QE_FORMAT,
                       "%s claims %" PRIu64 " tensors and %" PRIu64 " keys, more than a million",
                       s->name, tensors, keys);
    }
    int rc = read_kv(&c, keys, kv, n_kv, e);
    if (rc < 0) {
        return rc;
    }
    uint64_t align = 0;
    rc = read_alignment(*kv, *n_kv, s->name, &align, e);
    if (rc < 0) {
        return rc;
    }
    /* a description takes at least 32 bytes */
    if (tensors > c.left / 32) {
        return cut_off(&c, "the list of tensors", e);
    }
    size_t n = (size_t)tensors;
    uint64_t *offset = mem_array(n, sizeof *offset);
    g->tensors = mem_realloc(g->tensors, (g->n_tensors + n + 1) * sizeof *g->tensors);
    struct gguf_tensor *first = g->tensors + g->n_tensors;
    memset(first, 0, n * sizeof *first);
    g->n_tensors += n;
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = read_tensor(&c, &first[i], &offset[i], e);
    }
    if (rc == 0 && n > 0) {
        uint64_t at = (uint64_t)(c.p - s->map.data);
        uint64_t pad = (align - at % align) % align;
        rc = skip(&c, pad) ? place_tensors(first, offset, n, align, c.p, c.left, s->name, e)
                           : cut_off(&c, "the data", e);
    }
    free(offset);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    const struct gguf_tensor *const *x = a;
    const struct gguf_tensor *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static int index_names(struct gguf *g, struct err *e)
{
    g->by_name = mem_array(g->n_tensors, sizeof *g->by_name);
    for (size_t i = 0; i < g->n_tensors; i++) {
        g->by_name[i] = &g->tensors[i];
    }
    qsort(g->by_name, g->n_tensors, sizeof *g->by_name, by_name);
    for (size_t i = 1; i < g->n_tensors; i++) {
        if (strcmp(g->by_name[i - 1]->name, g->by_name[i]->name) == 0) {
            return err_set(e, QE_FORMAT, "%s: the tensor %.200s is there twice", g->parts[0].name,
                           g->by_name[i]->name);
        }
    }
    return 0;
}

static struct part *add_part(struct gguf *g, const char *name)
{
    g->parts = mem_realloc(g->parts, (g->n_parts + 1) * sizeof *g->parts);
    struct part *s = &g->parts[g->n_parts++];
    memset(s, 0, sizeof *s);
    s->name = mem_strdup(name);
    return s;
}

static int64_t int_of(const struct gguf_kv *v, int64_t otherwise)
{
    int64_t x = otherwise;
    if (v && v->type != GGUF_KV_STR && v->type != GGUF_KV_ARR) {
        struct gguf_array one = {v->type, 1, v->value};
        (void)gguf_next_int(&one, &x);
    }
    return x;
}

/* The prefix of PREFIX-00002-of-00005.gguf in bytes, when path is of that form
 * with this count; else 0. */
static size_t split_prefix(const char *path, int64_t count)
{
    char tail[48];
    int n = snprintf(tail, sizeof tail, "-of-%05" PRId64 ".gguf", count);
    size_t len = strlen(path);
    if (n < 0 || len < (size_t)n + 6 || strcmp(path + len - n, tail) != 0) {
        return 0;
    }
    const char *number = path + len - n - 6;
    return number[0] == '-' && strspn(number + 1, "0123456789") == 5 ? (size_t)(number - path) : 0;
}

static char *split_path(const char *path, size_t prefix, int64_t no, int64_t count)
{
    struct buf b = BUF_INIT;
    buf_add(&b, path, prefix);
    buf_printf(&b, "-%05" PRId64 "-of-%05" PRId64 ".gguf", no + 1, count);
    return buf_take(&b);
}

/* Part no of count; its metadata become the model's when it is the first. */
static int open_part(struct gguf *g, const char *path, int64_t no, int64_t count, struct err *e)
{
    struct part *s = add_part(g, path);
    struct gguf_kv *kv = NULL;
    size_t n_kv = 0;
    int rc = io_map_open(&s->map, path, e);
    if (rc == 0) {
        rc = read_part(g, s, &kv, &n_kv, e);
    }
    if (rc == 0 && (int_of(find_kv(kv, n_kv, "split.no"), 0) != no ||
                    int_of(find_kv(kv, n_kv, "split.count"), 1) != count)) {
        rc = err_set(e, QE_FORMAT, "%s is not part %" PRId64 " of %" PRId64, path, no + 1, count);
    }
    if (no == 0) {
        g->kv = kv;
        g->n_kv = n_kv;
    } else {
        free_kv(kv, n_kv);
    }
    return rc;
}

/* Reads the metadata of one file alone, to learn whether it is a part. */
static int peek_split(const char *path, int64_t *count, struct err *e)
{
    struct gguf *g = mem_zalloc(sizeof *g);
    struct part *s = add_part(g, path);
    int rc = io_map_open(&s->map, path, e);
    if (rc == 0) {
        rc = read_part(g, s, &g->kv, &g->n_kv, e);
    }
    if (rc == 0) {
        *count = int_of(find_kv(g->kv, g->n_kv, "split.count"), 1);
    }
    gguf_close(g);
    return rc;
}

int gguf_open(const char *path, struct gguf **out, struct err *e)
{
    int64_t count = 1;
    int rc = peek_split(path, &count, e);
    if (rc < 0) {
        return rc;
    }
    if (count < 0 || count > 99999) {
        return err_set(e, QE_FORMAT, "%s: split.count is %" PRId64, path, count);
    }
    count = count == 0 ? 1 : count;
    size_t prefix = count > 1 ? split_prefix(path, count) : 0;
    if (count > 1 && prefix == 0) {
        return err_set(e, QE_UNSUPPORTED,
                       "%s is one of %" PRId64 " parts, but not named PREFIX-00001-of-%05" PRId64
                       ".gguf: give the parts their names back",
                       path, count, count);
    }
    struct gguf *g = mem_zalloc(sizeof *g);
    for (int64_t i = 0; i < count && rc == 0; i++) {
        char *p = count > 1 ? split_path(path, prefix, i, count) : mem_strdup(path);
        rc = open_part(g, p, i, count, e);
        free(p);
    }
    int64_t want = int_of(find_kv(g->kv, g->n_kv, "split.tensors.count"), (int64_t)g->n_tensors);
    if (rc == 0 && want != (int64_t)g->n_tensors) {
        rc = err_set(e, QE_FORMAT, "%s: the parts hold %zu tensors, not the %" PRId64 " announced",
                     path, g->n_tensors, want);
    }
    if (rc == 0) {
        rc = index_names(g, e);
    }
    if (rc < 0) {
        gguf_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

int gguf_open_mem(const void *p, size_t n, const char *name, struct gguf **out, struct err *e)
{
    struct gguf *g = mem_zalloc(sizeof *g);
    g->borrowed = true;
    struct part *s = add_part(g, name);
    s->map.data = p;
    s->map.size = n;
    int rc = read_part(g, s, &g->kv, &g->n_kv, e);
    if (rc == 0 && int_of(find_kv(g->kv, g->n_kv, "split.count"), 1) > 1) {
        rc = err_set(e, QE_UNSUPPORTED, "%s is one part of a split model", name);
    }
    if (rc == 0) {
        rc = index_names(g, e);
    }
    if (rc < 0) {
        gguf_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

void gguf_close(struct gguf *g)
{
    if (!g) {
        return;
    }
    for (size_t i = 0; i < g->n_parts; i++) {
        if (!g->borrowed) {
            io_map_close(&g->parts[i].map);
        }
        free(g->parts[i].name);
    }
    for (size_t i = 0; i < g->n_tensors; i++) {
        free((void *)(uintptr_t)g->tensors[i].name);
    }
    free_kv(g->kv, g->n_kv);
    free(g->parts);
    free(g->tensors);
    free(g->by_name);
    free(g);
}

const char *gguf_name(const struct gguf *g)
{
    return g->parts[0].name;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->version;
}

uint64_t gguf_file_size(const struct gguf *g)
{
    uint64_t n = 0;
    for (size_t i = 0; i < g->n_parts; i++) {
        n += g->parts[i].map.size;
    }
    return n;
}

size_t gguf_count(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_at(const struct gguf *g, size_t i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name)
{
    size_t lo = 0;
    size_t hi = g->n_tensors;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = strcmp(name, g->by_name[mid]->name);
        if (c == 0) {
            return g->by_name[mid];
        }
        if (c < 0) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return NULL;
}

uint64_t gguf_cols(const struct gguf_tensor *t)
{
    return t->shape[t->n_dims - 1];
}

uint64_t gguf_rows(const struct gguf_tensor *t)
{
    uint64_t n = 1;
    for (int i = 0; i + 1 < t->n_dims; i++) {
        n *= t->shape[i];
    }
    return n;
}

size_t gguf_row_size(const struct gguf_tensor *t)
{
    return t->size / gguf_rows(t);
}

int gguf_decode(const struct gguf_tensor *t, uint64_t row, uint64_t rows, float *dst, struct err *e)
{
    const char *type = "";
    (void)gguf_type_info(t->type, &type, NULL, NULL);
    if (!gguf_type_decodable(t->type)) {
        return err_set(e, QE_UNSUPPORTED,
                       "tensor %.200s is of type %s, which is not read: use a file of F32, F16, "
                       "BF16, Q8_0, Q4_0, Q4_K, Q5_K and Q6_K",
                       t->name, type);
    }
    if (row > gguf_rows(t) || rows > gguf_rows(t) - row) {
        return err_set(e, QE_USAGE,
                       "tensor %.200s has %" PRIu64 " rows, not %" PRIu64 " + %" PRIu64, t->name,
                       gguf_rows(t), row, rows);
    }
    return quant_decode_gguf(t->type, t->data + row * gguf_row_size(t), rows * gguf_cols(t), dst,
                             e);
}

size_t gguf_kv_count(const struct gguf *g)
{
    return g->n_kv;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i)
{
    return &g->kv[i];
}

const struct gguf_kv *gguf_kv_find(const struct gguf *g, const char *key)
{
    return find_kv(g->kv, g->n_kv, key);
}
