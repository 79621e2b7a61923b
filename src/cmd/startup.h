#ifndef QUASAR_CMD_STARTUP_H
#define QUASAR_CMD_STARTUP_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/err.h"
#include "base/io.h"
#include "base/phases.h"
#include "engine/engine.h"

/* Seconds since this process started, up to 10 ms too many; 0 where the system does
 * not say. */
double startup_age(void);

/* GB per second at which so many threads (0: one less than there are cores) bring a file
 * into buffers when nothing else is done with it; 0 where it cannot be said. */
double startup_reading(const struct io_map *file, int threads);

/* A start up to the moment in which the engine is there. */
struct startup {
    double began, opened; /* startup_age when the command began, and before the engine */
    struct engine *g;
    const struct phases *before; /* between began and the engine's own */
    const struct io_map *file;   /* or NULL */
    uint64_t file_bytes;
    int threads; /* that read the file; 0: one less than there are cores */
};

/* Computes a short prompt and its first token, first thing on a new engine, and holds
 * the time since the process started beside that of copying the file's bytes to the
 * device, and of reading them into buffers. *out is a new reference. */
int startup_measure(const struct startup *s, json_t **out, struct err *e);
/* The same in words, on standard output. */
void startup_print(const json_t *result);

#endif
