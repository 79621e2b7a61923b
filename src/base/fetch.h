#ifndef QUASAR_BASE_FETCH_H
#define QUASAR_BASE_FETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/io.h"

/*
 * Brings blocks of a file into a ring of buffers by several threads, as fast as the
 * page cache gives them. One consumer takes the buffers as they become full, in any
 * order, and gives them back when it is done with what they hold. The consumer's calls
 * are made by one thread.
 */
struct fetch;

enum { FETCH_PARTS = 4 };

/* What goes into one buffer: some ranges, each to a place of its own. They are read
 * from the file where they lie in its mapping, else copied from memory. */
struct fetch_job {
    struct {
        const void *from;
        size_t n, at;
    } part[FETCH_PARTS];
    int parts;
};

struct fetch_plan {
    const struct io_map *file;    /* or NULL */
    const struct fetch_job *jobs; /* n of them; they stay until fetch_stop */
    size_t n;
    size_t size; /* of a buffer */
    int buffers, threads;
    /* Called once for each buffer, by the thread that has filled it for the first time;
     * NULL: nothing is to be done. */
    void (*fresh)(void *ctx, int buffer, void *p, size_t n);
    void *ctx;
};

/* Starts reading. The buffers' memory is taken page by page, by the threads. */
int fetch_start(const struct fetch_plan *p, struct fetch **out, struct err *e);

/* A full buffer and the job that it holds: 1. None is full now: 0, only without wait.
 * None will come any more: -1. */
int fetch_take(struct fetch *f, bool wait, size_t *job, int *buffer);
void fetch_give(struct fetch *f, int buffer);

uint8_t *fetch_buffer(const struct fetch *f, int buffer);
/* Whether something could not be read; then fetch_take ends early. */
bool fetch_failed(struct fetch *f);
/* Seconds that the threads, in the mean, waited for a free buffer. Once all ended. */
double fetch_idle(struct fetch *f);

/* Ends the threads; the buffers stay. */
void fetch_stop(struct fetch *f);
void fetch_free(struct fetch *f);

#endif
