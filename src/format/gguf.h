#ifndef QUASAR_FORMAT_GGUF_H
#define QUASAR_FORMAT_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "format/quant.h"

/*
 * GGUF versions 2 and 3: a mapped reader (split files too) and a streaming
 * writer. Everything the reader hands out is borrowed from it and lies inside
 * the file.
 */
enum gguf_kv_type {
    GGUF_KV_U8 = 0,
    GGUF_KV_I8 = 1,
    GGUF_KV_U16 = 2,
    GGUF_KV_I16 = 3,
    GGUF_KV_U32 = 4,
    GGUF_KV_I32 = 5,
    GGUF_KV_F32 = 6,
    GGUF_KV_BOOL = 7,
    GGUF_KV_STR = 8,
    GGUF_KV_ARR = 9,
    GGUF_KV_U64 = 10,
    GGUF_KV_I64 = 11,
    GGUF_KV_F64 = 12
};
const char *gguf_kv_type_name(enum gguf_kv_type t); /* "u32" */

#define GGUF_MAX_DIMS 4

struct gguf_tensor {
    const char *name;
    uint32_t type; /* enum gguf_type, or another number that gguf_type_info knows */
    int n_dims;
    uint64_t shape[GGUF_MAX_DIMS]; /* outer first, the reverse of the file */
    const uint8_t *data;
    size_t size;
};

/* A cursor over an array: type of the elements, how many are left. Copy it to
 * walk twice. */
struct gguf_array {
    enum gguf_kv_type type;
    uint64_t n;
    const uint8_t *p;
};

struct gguf_kv {
    const char *key;
    enum gguf_kv_type type;
    const uint8_t *value; /* the bytes of the value in the file */
};

struct gguf;

/* Opens a file, or all parts of a split one (any part's path will do: they are
 * named PREFIX-00001-of-0000N.gguf). *out is owned by the caller. */
int gguf_open(const char *path, struct gguf **out, struct err *e);
/* The same over bytes that stay valid and unchanged until gguf_close; a part of
 * a split file is refused. */
int gguf_open_mem(const void *p, size_t n, const char *name, struct gguf **out, struct err *e);
void gguf_close(struct gguf *g);

const char *gguf_name(const struct gguf *g); /* the (first) file's, for messages */
uint32_t gguf_version(const struct gguf *g);
uint64_t gguf_file_size(const struct gguf *g); /* all parts */

size_t gguf_count(const struct gguf *g);
const struct gguf_tensor *gguf_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name); /* or NULL */
/* A row is the last axis. */
uint64_t gguf_rows(const struct gguf_tensor *t);
uint64_t gguf_cols(const struct gguf_tensor *t);
/* Bytes of one row. */
size_t gguf_row_size(const struct gguf_tensor *t);
/* Rows [row, row + rows) as fp32. QE_UNSUPPORTED names tensor, type and remedy;
 * QE_USAGE for rows outside the tensor. */
int gguf_decode(const struct gguf_tensor *t, uint64_t row, uint64_t rows, float *dst,
                struct err *e);

/* Metadata of the (first) file, in its order. */
size_t gguf_kv_count(const struct gguf *g);
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
const struct gguf_kv *gguf_kv_find(const struct gguf *g, const char *key); /* or NULL */

/* Typed getters. A missing key is QE_FORMAT when required; else 0 and *out is
 * unchanged. A wrong type or a number outside [lo, hi] is QE_FORMAT with key,
 * value and limit. get_int takes every integer type, get_num also the floats;
 * strings are not NUL terminated. */
int gguf_get_int(const struct gguf *g, const char *key, bool required, int64_t lo, int64_t hi,
                 int64_t *out, struct err *e);
int gguf_get_num(const struct gguf *g, const char *key, bool required, double *out, struct err *e);
int gguf_get_bool(const struct gguf *g, const char *key, bool required, bool *out, struct err *e);
int gguf_get_str(const struct gguf *g, const char *key, bool required, const char **p, size_t *n,
                 struct err *e);
/* elem is the required type of the elements, or -1 for any. */
int gguf_get_arr(const struct gguf *g, const char *key, bool required, int elem,
                 struct gguf_array *out, struct err *e);

/* The next element, which must be of that kind (integers of every width and
 * bools: next_int; numbers: next_num); false when none is left or the elements
 * are of another kind. */
bool gguf_next_int(struct gguf_array *a, int64_t *out); /* u64 above INT64_MAX saturates */
bool gguf_next_num(struct gguf_array *a, double *out);
bool gguf_next_str(struct gguf_array *a, const char **p, size_t *n);
bool gguf_next_arr(struct gguf_array *a, struct gguf_array *out);

/*
 * Writer, version 3: create, put metadata, declare every tensor, then the bytes
 * of each in the order of declaration in pieces of any size, then commit.
 * Nothing appears under the final name before commit; free without commit
 * removes what was written. Keys and values are copied.
 */
struct gguf_writer;
struct gguf_str {
    const char *p;
    size_t n;
};

int gguf_writer_create(const char *path, struct gguf_writer **out, struct err *e);
void gguf_put_u8(struct gguf_writer *w, const char *key, uint8_t v);
void gguf_put_u16(struct gguf_writer *w, const char *key, uint16_t v);
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t v);
void gguf_put_u64(struct gguf_writer *w, const char *key, uint64_t v);
void gguf_put_i64(struct gguf_writer *w, const char *key, int64_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_f64(struct gguf_writer *w, const char *key, double v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_put_str(struct gguf_writer *w, const char *key, const char *p, size_t n);
/* n elements of a fixed-width type, as C holds them (bool: one byte, 0 or 1). */
void gguf_put_arr(struct gguf_writer *w, const char *key, enum gguf_kv_type elem, const void *p,
                  uint64_t n);
void gguf_put_strs(struct gguf_writer *w, const char *key, const struct gguf_str *s, uint64_t n);
/* shape outer first; its last axis must be whole blocks of the type. */
int gguf_writer_declare(struct gguf_writer *w, const char *name, uint32_t type, int n_dims,
                        const uint64_t *shape, struct err *e);
/* The first call writes the header: after it, no put and no declare.
 * QE_INTERNAL when more bytes come than were declared. */
int gguf_writer_data(struct gguf_writer *w, const void *p, size_t n, struct err *e);
/* QE_INTERNAL when bytes are missing, or a key or tensor was given twice. */
int gguf_writer_commit(struct gguf_writer *w, struct err *e);
void gguf_writer_free(struct gguf_writer *w);

#endif
