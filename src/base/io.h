#ifndef QUASAR_BASE_IO_H
#define QUASAR_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * File access that retries, names what failed, and writes atomically.  Every
 * system call that can lose data goes through io_fault first, so that tests
 * can make the n-th one fail or end the process (see io_fault_set).
 */

/* A whole file mapped read-only. data is NULL for an empty file, else fd reads the
 * same bytes: for large blocks several times as fast as through the mapping. */
struct io_map {
    const uint8_t *data;
    size_t size;
    int fd;
};

int io_map_open(struct io_map *m, const char *path, struct err *e);
void io_map_close(struct io_map *m);

/* Copies n bytes at p, read from the file where they lie in the mapping (m may be
 * NULL: they do not). False when the file cannot be read there any more. Any thread. */
bool io_map_copy(const struct io_map *m, void *dst, const void *p, size_t n);

/* Puts /dev/null in the place of a closed standard descriptor. Else the next file
 * that is opened would take its number, and the answer be written into it. */
void io_hold_standard_fds(void);

/* Flushes standard output; false, with the reason, when anything written to it
 * since the start was lost. */
bool io_flush_stdout(struct err *e);

/* Appends the whole file (or descriptor) to out; refuses more than max bytes. The
 * file is a regular one or /dev/null, anything else is refused: it never waits. */
int io_read_file(const char *path, size_t max, struct buf *out, struct err *e);
/* The same of what the user named on the command line, which may be a pipe or a
 * terminal: waits for all that comes. */
int io_read_stream(const char *path, size_t max, struct buf *out, struct err *e);
int io_read_fd(int fd, const char *name, size_t max, struct buf *out, struct err *e);

/* Writes all of n bytes, retrying short writes and EINTR. */
int io_write_all(int fd, const void *p, size_t n, const char *name, struct err *e);
int io_pwrite_all(int fd, const void *p, size_t n, uint64_t off, const char *name, struct err *e);

/* mkdir -p with the given mode for each directory made. */
int io_mkdirs(const char *path, mode_t mode, struct err *e);

/* dir + "/" + name into a fresh string (caller frees). */
char *io_join(const char *dir, const char *name);

/* The three base directories with "/quasar" appended (caller frees); they fall
 * back on $HOME as the XDG specification says, then on the home in the password
 * database, then on one that holds nothing. */
char *io_xdg_config(void);
char *io_xdg_data(void);
char *io_xdg_state(void);

/*
 * A file that appears whole or not at all: written without a name in the
 * target's directory (under a temporary one where the file system has no such
 * files), synced, renamed, directory synced.  fini removes it unless it was
 * committed; a killed process leaves nothing behind.
 */
struct tmp_out {
    int fd;
    char *tmp_path; /* NULL while the file has no name */
    bool committed;
};

#define TMP_OUT_INIT                                                                               \
    {                                                                                              \
        -1, NULL, false                                                                            \
    }

int tmp_out_create(struct tmp_out *t, const char *path, mode_t mode, struct err *e);
int tmp_out_commit(struct tmp_out *t, const char *path, struct err *e);
void tmp_out_fini(struct tmp_out *t);

/* Fault injection for tests, process-wide: the n-th (from 1) faultable call
 * from now on fails with errnum, or ends the process at once when errnum is 0.
 * n = 0 turns it off. */
void io_fault_set(unsigned n, int errnum);

#endif
