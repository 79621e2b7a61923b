#ifndef QUASAR_CMD_RUNOUT_H
#define QUASAR_CMD_RUNOUT_H

#include <stdbool.h>

#include "conv/conv.h"

/* What quasar run prints, in its three forms. */
enum runout_form { OUT_TEXT, OUT_JSON, OUT_STREAM };

struct runout {
    enum runout_form form;
    bool tools;    /* calls were offered: list them even when there are none */
    bool thoughts; /* OUT_TEXT: thoughts go to standard error */
    bool stats;    /* figures go to standard error */
    bool tty, err_tty;
    int64_t conversation; /* the stored one that the answer belongs to; 0: none */
    /* state */
    bool in_line, in_thought, thought_line, in_progress, started;
    int64_t began;
};

void runout_start(struct runout *o);
/* Prints one event; model for CE_READY. */
void runout_event(struct runout *o, const struct conv *c, const struct conv_event *ev);
/* Prints lines for the user to standard error; NULL is none. */
void runout_notice(struct runout *o, const char *lines);
/* Prints the end of an answer that was not refused. */
void runout_end(struct runout *o, const struct chat_result *r);

#endif
