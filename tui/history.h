#ifndef QUASAR_TUI_HISTORY_H
#define QUASAR_TUI_HISTORY_H

#include <stddef.h>

#include "base/err.h"

/*
 * Prompts sent before, oldest first. One record a line in a file of our own,
 * newlines and backslashes escaped; appended at once, so that several programs
 * may share the file. UI thread only.
 */
struct history;

/* path NULL: kept in memory only. A file that cannot be read is reported in e
 * and the history starts empty; it is never NULL. */
struct history *history_create(const char *path, struct err *e);
void history_free(struct history *h);

/* Adds a prompt unless it repeats the last one or is empty. One of over 64 KB
 * lasts as long as h and does not go into the file. */
int history_add(struct history *h, const char *p, size_t n, struct err *e);
size_t history_count(const struct history *h);
/* Borrowed until the next add; NUL terminated. */
const char *history_at(const struct history *h, size_t i);

#endif
