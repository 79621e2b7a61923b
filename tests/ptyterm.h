#ifndef QUASAR_TESTS_PTYTERM_H
#define QUASAR_TESTS_PTYTERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"

/*
 * A program in a terminal of our own: a pseudo-terminal whose output libvterm draws. It
 * answers as a terminal with synchronized output does, and counts frames by its marks.
 * A failure of the system ends the process, with a line that says so.
 */
struct ptyterm;

/* What is told of every frame, when its end has been read. */
struct ptyterm_frame {
    size_t bytes;
    int64_t cpu_ns; /* of the program's main thread since the frame before */
    int64_t at;     /* ns of the monotonic clock */
};

/* argv[0] is the path. TERM and LC_ALL are set; the rest of the environment is ours. */
struct ptyterm *ptyterm_start(const char *const *argv, int cols, int rows);
/* Ends the program with SIGKILL if it still runs, and all else of its terminal; returns when none
 * does. */
void ptyterm_free(struct ptyterm *t);
pid_t ptyterm_pid(const struct ptyterm *t);
void ptyterm_send(struct ptyterm *t, const void *p, size_t n);
/* Reads and draws what comes until so many ms have passed without anything, at most 64 KB. False:
 * the program has closed the terminal. */
bool ptyterm_read(struct ptyterm *t, int ms);
/* Reads until a row contains the text; false: not within ms. */
bool ptyterm_until(struct ptyterm *t, const char *text, int ms);
/* A row's text without blanks at its end; valid until the next call. */
const char *ptyterm_row(struct ptyterm *t, int row);
/* The row that contains the text, from the last one up; -1: none. */
int ptyterm_find(struct ptyterm *t, const char *text);
/* Frames since the start, or since the last ptyterm_forget. */
const struct ptyterm_frame *ptyterm_frames(const struct ptyterm *t, size_t *n);
void ptyterm_forget(struct ptyterm *t);
/* CPU time of a thread, and of the whole process; voluntary context switches of all threads. */
int64_t ptyterm_cpu(const struct ptyterm *t, bool whole);
uint64_t ptyterm_switches(const struct ptyterm *t);
/* All bytes that the program wrote. */
const struct buf *ptyterm_log(const struct ptyterm *t);
void ptyterm_resize(struct ptyterm *t, int cols, int rows);
/* Whether the program is on the alternate screen; whether the line discipline edits and
 * echoes, the cursor is shown and no mode of ours is left. */
bool ptyterm_alternate(const struct ptyterm *t);
bool ptyterm_is_sane(const struct ptyterm *t);
int64_t ptyterm_now(void);

#endif
