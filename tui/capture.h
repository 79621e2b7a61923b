#ifndef QUASAR_TUI_CAPTURE_H
#define QUASAR_TUI_CAPTURE_H

#include <stddef.h>

/*
 * Standard output and error while the screen is up: whatever a library prints there
 * goes through a pipe to a thread that never lets the pipe fill. At the end, also that of a
 * crash, what was printed last is written to the real standard error.
 */
#define CAPTURE_KEPT (64 << 10) /* bytes of what was printed last */

/* Begins. fn gets what is printed, from the thread; it must neither print nor wait. When it cannot
 * begin (no descriptors, no thread) everything stays as it is. The main thread. */
void capture_begin(void (*fn)(void *ctx, const char *p, size_t n), void *ctx);
/* Ends, after fn got everything, and writes the end of it to standard error. The main thread. */
void capture_end(void);
/* Readable when something was printed; -1 when not capturing. capture_look makes it quiet. */
int capture_fd(void);
void capture_look(void);
/* In a signal handler that ends the program: gives the descriptors back and writes what was
 * printed last. Async-signal-safe. */
void capture_crash(void);
/* In a child process: the real descriptors. Async-signal-safe. */
void capture_child(void);

#endif
