#ifndef QUASAR_CMD_SYNTH_H
#define QUASAR_CMD_SYNTH_H

#include <stdbool.h>

#include "base/err.h"
#include "engine/engine.h"

/* A model of a known shape with random weights of sane scale, for measuring
 * speed. The same name and tier always give the same weights. */
struct synth;

/* "demo|qwen3.5-0.8b|…" for messages. */
const char *synth_names(void);

/* Plans the tensors; nothing large yet. QE_USAGE for an unknown name or tier. */
int synth_create(const char *name, const char *tier, struct synth **out, struct err *e);
void synth_free(struct synth *s);

/* Bytes of all weights. */
uint64_t synth_bytes(const struct synth *s);

/* Makes the weights in memory; QE_NOMEM, with the size, when they do not fit.
 * Then *out describes them (borrowed from s). share: matrices of one shape, format
 * and scale are one in memory, for a backend that copies each of them anyway. */
int synth_fill(struct synth *s, bool share, struct engine_source *out, struct err *e);

/* Writes them to a model file instead, one tensor at a time. */
int synth_write(const struct synth *s, const char *path, struct err *e);

#endif
