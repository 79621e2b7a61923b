#ifndef QUASAR_ENGINE_LOAD_H
#define QUASAR_ENGINE_LOAD_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/engine.h"

/*
 * A model file and the engine on it, opened and closed together, for owners who
 * know nothing of file formats. The same thread rule as struct engine; the
 * blobs may be read by any thread.
 */
struct engine_model;

enum engine_blob { MB_TOKENIZER, MB_TOKENIZER_CONFIG, MB_TEMPLATE, MB_GENERATION, MB_COUNT };

/* path is the model file. verify: check every weight's digest first. */
int engine_load(const char *path, bool verify, const struct engine_opts *o,
                struct engine_model **out, struct err *e);
void engine_unload(struct engine_model *m);
/* Reads the file and compares every weight with its digest, beside all engines; any thread.
 * QE_FORMAT: one differs. QE_IO: it cannot be read. */
int engine_check_file(const char *path, struct err *e);

struct engine *engine_of(const struct engine_model *m);
/* A blob of the file; false when it has none. Borrowed until engine_unload. */
bool engine_model_blob(const struct engine_model *m, enum engine_blob which, const char **p,
                       size_t *n);

#endif
