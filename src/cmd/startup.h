#ifndef QUASAR_CMD_STARTUP_H
#define QUASAR_CMD_STARTUP_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/err.h"
#include "engine/engine.h"

/* Seconds since this process started, up to 10 ms too many; 0 where the system does
 * not say. */
double startup_age(void);

/* Computes a short prompt and its first token, first thing on a new engine, and holds
 * the time since the process started beside that of copying file_bytes to the device.
 * opened: startup_age just before the engine was opened. *out is a new reference. */
int startup_measure(struct engine *g, double opened, uint64_t file_bytes, json_t **out,
                    struct err *e);
/* The same in words, on standard output. */
void startup_print(const json_t *result);

#endif
