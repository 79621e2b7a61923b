#ifndef QUASAR_TUI_PLAIN_H
#define QUASAR_TUI_PLAIN_H

#include <stdbool.h>
#include <stdio.h>

#include "base/buf.h"
#include "conv/conv.h"
#include "tui/transcript.h"

/* The state of line mode, shared by plain.c (lines, events) and plain_commands.c. */
struct plain {
    size_t typed; /* bytes that came in */
    struct conv *conv;
    struct chat *chat;
    FILE *talk; /* for all but the answers: standard output when it is a terminal */
    bool ascii; /* the locale cannot write every character */
    struct buf line, in;
    bool eof;
    bool thinking;
    bool spoke; /* "Model:" is out for this answer */
    int column; /* … and so much of its last line: tabs do not depend on how it comes */
    bool begun; /* the answer has a place in the log */
    bool whole; /* the last answer came to its end */
    bool failed;
    struct err error;
    bool asked;         /* the user was told that the conversation is not saved */
    struct buf unsaved; /* why */
    struct transcript *log;
    size_t n_messages;   /* of the conversation */
    struct buf attached; /* goes before the next message */
    bool aside;          /* what is sent now is no part of the conversation */
};

/* Writes text from outside, made harmless. */
void plain_say(const struct plain *p, FILE *to, const char *s, size_t n);
/* Takes one line (without its end) into p->line; returns 0 at the end of input, -1 on an
 * interrupt. */
int plain_read_line(struct plain *p);
/* Sends a message, with what is attached, and follows the answer. False: leave. */
bool plain_send(struct plain *p, const char *text, size_t n);
/* Goes on with a stored conversation and says so. */
int plain_resume(struct plain *p, int64_t id, struct err *e);
/* Tries to write what could not be written, and then forgets the conversation; a second time
 * also if that fails. True: it is a new one. */
bool plain_leave(struct plain *p, const char *again);

/* A line that starts with a slash; false: leave. */
bool plain_command(struct plain *p, char *line);

#endif
