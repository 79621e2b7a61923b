#ifndef QUASAR_TUI_TERM_H
#define QUASAR_TUI_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * The terminal: which modes are set on it, and how every one of them is undone
 * on every way out. One terminal per process. UI thread only, but for
 * term_restore, which is async-signal-safe.
 */

/* Opens the screen: signal handlers, captured standard output and error, curses
 * on the terminal, raw mode, alternate screen, bracketed paste. Standard input
 * and output must be terminals. What is printed goes to `printed`, as
 * capture_begin says. */
int term_open(void (*printed)(void *ctx, const char *p, size_t n), void *ctx, struct err *e);
/* Leaves the screen and releases everything; what was printed last is then
 * written to standard error. Harmless when not open. */
void term_close(void);

/* Leaves and re-enters the screen (for suspension and for $EDITOR). */
void term_leave(void);
void term_enter(void);

/* Undoes every mode that is set. Async-signal-safe; also called by atexit and
 * by the handlers of fatal signals. */
void term_restore(void);

/* Runs `command file` by the shell on the normal screen and comes back; the
 * exit status, or 127 when it could not run. */
int term_run(const char *command, const char *file);

/* Stops this process group with SIGTSTP, between term_leave and term_enter. */
void term_suspend(void);

/* Descriptor that is readable when a signal came; the next one, 0 when none.
 * Signals seen: WINCH, CONT, TSTP, TERM, HUP, INT, QUIT. */
int term_signal_fd(void);
int term_signal_next(void);
/* Ends the process by the default action of sig (after term_close). */
_Noreturn void term_die(int sig);

/* Terminal input. */
int term_fd(void);

/* One curses doupdate, inside synchronized output when the terminal has it;
 * returns the nanoseconds it took. */
int64_t term_update(void);
/* Whether the terminal has drawn all that it was sent; when it has not said so within two
 * seconds, it is not waited for. Known on a virtual clock that somebody watches; else true. */
bool term_settled(void);
/* The terminal knows (2026: synchronized output). */
void term_mode_known(unsigned mode, bool known);
/* Wheel and buttons of the mouse come as keys, or not; also before the screen is opened. */
void term_mouse(bool on);
/* Asks for the background; the answer comes as a key. */
void term_ask_background(void);
/* The kernel's size of the terminal, 80x24 when it does not say. */
void term_size(int *rows, int *cols);

/* Writes a control sequence, past curses. */
void term_write(const char *p, size_t n);

/* What `quasar --reset-terminal` does: every mode off, sane line discipline. */
void term_reset_by_hand(void);

#endif
