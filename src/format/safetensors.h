#ifndef QUASAR_FORMAT_SAFETENSORS_H
#define QUASAR_FORMAT_SAFETENSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/dtype.h"
#include "base/err.h"

/*
 * Safetensors: a reader that maps one file, or all shards of a directory, and a
 * writer that streams. Everything the reader hands out is borrowed from it and
 * has been checked against the file's size: offsets in order, without holes or
 * overlap, size = product of the shape times the width.
 */
#define ST_MAX_DIMS 8

struct st_tensor {
    const char *name;
    const char *type; /* as the file says: "BF16" */
    bool usable;      /* F32, F16 or BF16: dtype is set; others are only listed */
    enum dtype dtype;
    int n_dims;
    uint64_t shape[ST_MAX_DIMS]; /* outer first */
    const uint8_t *data;         /* not necessarily aligned to its elements */
    size_t size;
};

struct safetensors;

/* path is a .safetensors file, or a directory with model.safetensors.index.json
 * or model.safetensors in it. *out is owned by the caller. QE_NOTFOUND, QE_IO,
 * QE_FORMAT, QE_UNSUPPORTED with one line that names file, field and limit. */
int st_open(const char *path, struct safetensors **out, struct err *e);
/* The same over bytes that stay valid and unchanged until st_close; name stands
 * in messages. */
int st_open_mem(const void *p, size_t n, const char *name, struct safetensors **out, struct err *e);
void st_close(struct safetensors *s);

/* Tensors in the order of their data, shard after shard. */
size_t st_count(const struct safetensors *s);
const struct st_tensor *st_at(const struct safetensors *s, size_t i);
const struct st_tensor *st_find(const struct safetensors *s, const char *name); /* or NULL */
/* A string of the (first) file's __metadata__, or NULL. */
const char *st_meta(const struct safetensors *s, const char *key);
/* Bytes of all files together. */
uint64_t st_file_size(const struct safetensors *s);

/* Rows [row, row + rows) as fp32, where a row is the last axis (a scalar is one
 * row of one). QE_UNSUPPORTED for a type that is not usable, QE_USAGE for rows
 * outside the tensor. */
int st_decode(const struct st_tensor *t, uint64_t row, uint64_t rows, float *dst, struct err *e);
uint64_t st_rows(const struct st_tensor *t);
uint64_t st_cols(const struct st_tensor *t);

/*
 * Writer: create, declare every tensor, then the bytes of each in the order of
 * declaration in pieces of any size, then commit. Nothing appears under its
 * final name before commit; free without commit removes what was written. The
 * format has no padding: a caller that wants every tensor aligned to its element
 * declares the wide types first.
 */
struct st_writer;

/* target is a file when max_shard is 0, else an existing directory that gets
 * model.safetensors, or, when the data exceed max_shard bytes,
 * model-00001-of-0000N.safetensors and so on with the index. QE_USAGE when the
 * directory already holds the other of these two layouts. */
int st_writer_create(const char *target, uint64_t max_shard, struct st_writer **out, struct err *e);
/* F32, F16 or BF16; the name is copied. */
int st_writer_declare(struct st_writer *w, const char *name, enum dtype t, int n_dims,
                      const uint64_t *shape, struct err *e);
/* QE_INTERNAL when more bytes come than were declared. */
int st_writer_data(struct st_writer *w, const void *p, size_t n, struct err *e);
/* QE_INTERNAL when bytes are missing. */
int st_writer_commit(struct st_writer *w, struct err *e);
void st_writer_free(struct st_writer *w);

#endif
