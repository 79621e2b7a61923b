#ifndef QUASAR_TUI_CLIP_H
#define QUASAR_TUI_CLIP_H

#include <stddef.h>

#include "base/err.h"

/* Sends text to the clipboard by OSC 52, through tmux and screen when inside.
 * QE_NOMEM when it is too long for that. */
int clip_terminal(const char *p, size_t n, struct err *e);
/* The program that sets the desktop's clipboard, where the session is on one: wl-copy, xclip or
 * pbcopy; NULL: there is none. */
const char *clip_program(void);
/* Starts it with a text as its input, and does not wait. */
int clip_give(const char *program, const char *p, size_t n, struct err *e);

#endif
