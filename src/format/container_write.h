#ifndef QUASAR_FORMAT_CONTAINER_WRITE_H
#define QUASAR_FORMAT_CONTAINER_WRITE_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "base/dtype.h"
#include "base/err.h"

/*
 * Writes a version 2 container: declare documents and tensors, set the
 * metadata, begin, then the bytes of each tensor in the order of declaration in
 * pieces of any size, then commit. Nothing appears under the final name before
 * commit; free without commit removes what was written. Memory does not grow
 * with the weights. One thread.
 */
struct container_writer;

struct container_writer *container_writer_create(void);
void container_writer_free(struct container_writer *w);

/* A file to embed; name and bytes are copied. */
void container_writer_doc(struct container_writer *w, const char *name, const void *p, size_t n);
/* Our name, the tensor's full name in the source ("" when the same), its type
 * there ("" when unknown). Names are printable ASCII without blanks. */
int container_writer_declare(struct container_writer *w, const char *name, const char *source_name,
                             const char *source_type, enum dtype t, int n_dims,
                             const uint64_t *shape, struct err *e);
/* The metadata object, with its "config"; takes the reference. */
void container_writer_meta_take(struct container_writer *w, json_t *meta);
/* Bytes of the whole file, once everything is declared. */
uint64_t container_writer_size(struct container_writer *w);

int container_writer_begin(struct container_writer *w, const char *path, struct err *e);
/* The next bytes of the current tensor's data and of its scales; QE_INTERNAL
 * when more come than were declared. A tensor is over when both are complete. */
int container_writer_data(struct container_writer *w, const void *data, size_t n,
                          const void *scales, size_t n_scales, struct err *e);
/* QE_INTERNAL when bytes are missing. */
int container_writer_commit(struct container_writer *w, struct err *e);

#endif
