#ifndef QUASAR_FORMAT_SOURCE_H
#define QUASAR_FORMAT_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/dtype.h"
#include "base/err.h"
#include "format/modelconf.h"
#include "format/names.h"

/*
 * A model to convert, whatever its form: a list of tensors with our names and
 * conventions, read by ranges of rows, and the documents beside them. Each form
 * has one opener; all are read by one thread.
 */
struct source_tensor {
    char *name;        /* ours */
    char *full_name;   /* in the original checkpoint */
    const char *type;  /* there: "BF16"; "" when unknown */
    enum dtype native; /* what keeps its values without loss here */
    int n_dims;
    uint64_t shape[TENSOR_MAX_DIMS];
    size_t index; /* the opener's own */
    unsigned change;
};

struct source_doc {
    char *name;
    char *data;
    size_t size;
};

struct source {
    const char *format; /* "hf", "gguf", "qsr", "q27" */
    char *path, *model_name;
    char *tier;         /* of a container; NULL otherwise */
    json_t *config;     /* normalised */
    json_t *provenance; /* what a container says about its own source, or NULL */
    json_t *shapes;     /* name -> original shape, of tensors stored with fewer dimensions */
    struct modelconf m;
    struct source_tensor *tensors;
    size_t n, cap;
    struct source_doc *docs;
    size_t n_docs;
    void *ctx;
    /* fp32 values of rows [row, row + rows) */
    int (*decode)(struct source *s, const struct source_tensor *t, uint64_t row, uint64_t rows,
                  float *dst, struct err *e);
    /* The same rows as codes of type want, when the source holds exactly those;
     * *have says so. NULL: never. */
    int (*codes)(struct source *s, const struct source_tensor *t, enum dtype want, uint64_t row,
                 uint64_t rows, void *data, void *scales, bool *have, struct err *e);
    void (*close)(void *ctx);
};

int source_open(const char *path, struct source **out, struct err *e);
void source_free(struct source *s);

int source_open_hf(const char *path, struct source *s, struct err *e);
int source_open_gguf(const char *path, struct source *s, struct err *e);
int source_open_container(const char *path, struct source *s, struct err *e);

/* For openers. */
struct source_tensor *source_add(struct source *s, const char *name, const char *full_name);
void source_add_doc(struct source *s, const char *name, const void *p, size_t n);
const struct source_doc *source_doc(const struct source *s, const char *name); /* or NULL */
const struct source_tensor *source_find(const struct source *s, const char *name);

uint64_t source_rows(const struct source_tensor *t);
uint64_t source_cols(const struct source_tensor *t);

/* Rows as codes of type want: copied when the source has them, else encoded
 * from fp32 (scratch holds rows x cols floats). */
int source_encode(struct source *s, const struct source_tensor *t, enum dtype want, uint64_t row,
                  uint64_t rows, float *scratch, void *data, void *scales, struct err *e);

#endif
