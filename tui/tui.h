#ifndef QUASAR_TUI_TUI_H
#define QUASAR_TUI_TUI_H

#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "conv/conv.h"

/*
 * The terminal's side of a conversation: the screen, the line mode. Both run
 * until the user leaves, on the calling thread, which is the one that reads
 * the conversation's events.
 */
struct tui_bind {
    const char *what, *keys; /* as keymap_bind */
    const char *where;       /* for what is wrong with it */
};

/* Called by the screen's thread. open: address NULL is the one of the options; it says in note
 * what the user should know. */
struct tui_listener {
    void *ctx;
    int (*open)(void *ctx, const char *address, char note[256], struct err *e);
    void (*close)(void *ctx);
};

struct tui_opts {
    bool ascii;          /* ornaments from the ASCII set */
    const char *theme;   /* a name of tui/theme.h; NULL: default */
    const char *mouse;   /* "off", "wheel", "on"; NULL: off */
    bool unicode_full;   /* joiners and variation selectors are drawn */
    bool ambiguous_wide; /* characters whose width is open take two cells */
    const struct tui_bind *binds;
    size_t n_binds;
    bool vi;                   /* vi keys in the composer */
    const char *history;       /* file of earlier prompts; NULL: none */
    int64_t resume;            /* the stored conversation to go on with; 0: a new one */
    bool must_resume;          /* if that cannot be, it is an error instead of a new one */
    const char *notice;        /* lines to show at first; NULL: none */
    struct requests *requests; /* what other programs ask; NULL: there is no listener */
    const struct tui_listener *listener; /* how it is opened and closed; NULL: it cannot be */
    const char *nvml;                    /* library that knows the GPU; NULL: the driver's */
};

/* The screen on standard input and output. *signal is the signal that asked
 * for the end (0: none): the caller closes the conversation, then calls
 * tui_die. On return the terminal is as it was. */
int tui_chat(struct conv *c, const struct tui_opts *o, int *signal, struct err *e);
/* Ends the process by a signal's default action. */
_Noreturn void tui_die(int signal);

/* Line mode: prompts and answers one below the other, nothing redrawn. */
int tui_plain(struct conv *c, const struct tui_opts *o, struct err *e);

/* Takes leftover modes off the terminal. */
void tui_reset_terminal(void);
/* The table of keys and commands with the bindings of o; what is wrong with those goes to
 * complaints, a line each. */
void tui_print_keys(const struct tui_opts *o, FILE *f, FILE *complaints);

#endif
