#ifndef QUASAR_BASE_VCLOCK_H
#define QUASAR_BASE_VCLOCK_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"

/*
 * The virtual clock of scripted runs. Time stands still while any thread that it knows
 * works; when all of them wait it jumps to the nearest moment somebody waits for, and not
 * beyond what was granted. So the order of events is always the same, however fast the
 * machine is.
 *
 * With a control file (a FIFO) another program grants time, one command a line, and gets
 * one line into the report file (a FIFO too) when all that follows from it has been done
 * and drawn, "quiet MS", or "quiet MS hold NAME" while a sleeper waits for `go`:
 *   advance TIME   so much more (500ms, 2s)
 *   run            until nothing is due any more, or 100 ms after a hold began
 *   go             ends the hold, then as run
 *   input N        until N bytes in all have come from the terminal
 *   size CxR       until the terminal has that size and the screen follows
 * Without one all time is granted.
 */

/* wall: seconds since 1970 at its beginning. control and report: NULL for none. The
 * caller's thread is the first that it knows. Once in a program's life. */
int vclock_start(int64_t wall, const char *control, const char *report, struct err *e);

/* What the terminal's owner has seen: so many bytes in all, and a size. Both may be called
 * without a virtual clock. */
void vclock_saw_input(size_t bytes);
void vclock_saw_size(int cols, int rows);
/* Somebody is told when all is drawn. */
bool vclock_is_watched(void);

/* A time in a script: 20ms, 1.5s, 300us. False: it is none. */
bool vclock_parse_time(const char *s, int64_t *ns);

/* For clock.c. NULL: there is no virtual clock. */
const struct clk *vclock_clk(void);
int64_t vclock_wall(void);
int vclock_poll(struct pollfd *fds, nfds_t n, int64_t ns, bool settled);
/* name: a hold of that name, until `go`; without a control file none. */
void vclock_sleep(int64_t ns, const char *name);
void vclock_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
void vclock_cond_signal(pthread_cond_t *c);
void vclock_enter(void);
void vclock_leave(void);
void vclock_let_go(void);

#endif
