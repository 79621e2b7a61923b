#ifndef QUASAR_TOKENIZER_STOP_H
#define QUASAR_TOKENIZER_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * Stop strings over a stream of text. The stream ends before the stop string
 * that is completed first (the longest of those completed by the same byte).
 * What could still become one is held back, and so is an unfinished UTF-8
 * sequence; how the text is cut into pieces makes no difference.
 */
struct stop {
    char **strings;
    size_t *sizes;
    size_t n;
    size_t longest;
    struct buf held;
    bool hit;
    size_t which; /* index of the string, once hit */
};

/* Copies the strings. QE_USAGE when one is empty or not UTF-8. */
int stop_init(struct stop *s, const char *const *strings, size_t n, struct err *e);
void stop_fini(struct stop *s);
/* Appends the text that is certain; true once a stop string was found, after
 * which nothing more comes out. */
bool stop_feed(struct stop *s, const char *p, size_t n, struct buf *out);
/* The stream is over without a stop string: releases what was held back. */
void stop_finish(struct stop *s, struct buf *out);
/* Forgets the stream, keeps the strings. */
void stop_reset(struct stop *s);

#endif
