#ifndef QUASAR_FORMAT_CONVERT_H
#define QUASAR_FORMAT_CONVERT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/*
 * From a Hugging Face folder, a GGUF or a container to a container, a GGUF or a
 * Hugging Face folder. Streams in memory that does not grow with the model; the
 * target appears whole or not at all.
 */
enum convert_to { CONVERT_QSR, CONVERT_GGUF, CONVERT_HF };

struct convert_opts {
    const char *tier; /* NULL: "default", or what a container has */
    enum convert_to to;
    bool force; /* replace an existing target */
    /* bytes written so far of all; true cancels (QE_CANCELLED). May be NULL. */
    bool (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
    /* One line about something the user should know. May be NULL. */
    void (*note)(void *ctx, const char *line);
    void *note_ctx;
};

int convert(const char *src, const char *dst, const struct convert_opts *o, struct err *e);

#endif
