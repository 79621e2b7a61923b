#ifndef QUASAR_SESSIONS_PREFIXDIR_H
#define QUASAR_SESSIONS_PREFIXDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sessions/state.h"

/*
 * A folder of saved states of prompts, each in a file of its own (state.h) whose name
 * says what it is of: an engine, a chain of hashes over blocks of 64 tokens, how many
 * tokens. A name only leads to a file: its engine and every token are compared before it
 * is used. Any number of processes may share the folder: files appear whole, and one that
 * vanishes is no error. Any thread, several at once.
 */
#define PREFIXDIR_BLOCK 64
#define PREFIXDIR_TAG   1 /* the state's part in a file */

struct prefixdir;

/* Nothing is looked at yet. limit: bytes of all files. */
struct prefixdir *prefixdir_create(const char *dir, uint64_t limit,
                                   const uint8_t compat[STATE_COMPAT], const char *label);
void prefixdir_free(struct prefixdir *d); /* NULL is allowed */

/* Reads the names, if the folder has changed since the last time. A folder that does not
 * exist is empty. */
void prefixdir_scan(struct prefixdir *d);
/* Whether a state of these tokens is there, as far as is known. Never waits. */
bool prefixdir_has(struct prefixdir *d, const int32_t *ids, size_t len);

/* Opens the longest state of a beginning of ids with more than `least` and less than n
 * tokens, and marks it as used. Damaged files are removed, with a line in the log the
 * first time. NULL: there is none. */
struct state_file *prefixdir_find(struct prefixdir *d, const int32_t *ids, size_t n, size_t least);
/* A file that was found turned out to be damaged (e says how). */
void prefixdir_damaged(struct prefixdir *d, struct state_file *f, const struct err *e);

/* Writes a state of whole blocks of tokens, unless a sound one is there, then removes what it makes
 * needless and what was used longest ago, until the rest is within the limit. state: its tag is of
 * no account. head: the beginning of many conversations. QE_IO: the disk is full, the folder cannot
 * be written, … */
int prefixdir_write(struct prefixdir *d, const int32_t *ids, size_t len, bool head,
                    const struct state_part *state, struct err *e);

/* Reads the files that were used last, up to so many bytes, so that they are in memory
 * when they are needed. go_on is asked in between. */
void prefixdir_warm(struct prefixdir *d, uint64_t bytes, bool (*go_on)(void *ctx), void *ctx);

/* Reads every file of a folder to its end and removes the damaged ones: how many, and their
 * bytes. QE_IO: the folder cannot be read, or a damaged one is still there. */
int prefixdir_sweep(const char *dir, int *files, uint64_t *bytes, struct err *e);

/* Files and their bytes, as last read. */
void prefixdir_size(struct prefixdir *d, size_t *files, uint64_t *bytes);

#endif
