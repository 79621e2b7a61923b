#ifndef QUASAR_HTTP_WORK_H
#define QUASAR_HTTP_WORK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/*
 * Threads that do what would keep the sockets waiting: parsing, rendering and tokenizing of
 * requests. The line before them is bounded.
 */
struct work;

/* fn is called with each task, by one of the threads. */
int work_create(int threads, size_t most, void (*fn)(void *ctx, void *task), void *ctx,
                struct work **out, struct err *e);
/* False: the line is full, or work_close was called; the task stays the caller's. */
bool work_put(struct work *w, void *task);
/* Does what waits, and ends the threads; nothing is taken from now on. NULL is allowed. */
void work_close(struct work *w);
/* Closes it first. */
void work_free(struct work *w);

#endif
