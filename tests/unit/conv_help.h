#ifndef QUASAR_TESTS_CONV_HELP_H
#define QUASAR_TESTS_CONV_HELP_H

#include "base/buf.h"
#include "conv/conv.h"

/* Conversations with the stand-in engine and the demo model's tokenizer, stored in a folder
 * of the program's own. */

extern char model[4096]; /* the demo's path */

extern struct tokenizer *tok;
struct conv_opts opts(const char *setup);
struct conv *open_conv(const struct conv_opts *o);

/* The engine will say this (special tokens count). */
void say(const char *text);

struct heard {
    struct buf text, thought, calls, why, notice;
    enum conv_reason reason;
    int queued, prefill, ready, notices;
};
void heard_fini(struct heard *h);

/* Listens until the chat's turn ends. Pieces must be whole characters. */
void hear(struct conv *c, const struct chat *t, struct heard *h);
void ask(struct conv *c, struct chat *t, const char *text, struct heard *h);

#define TEXT(b) ((b).data ? (b).data : "")

extern char state_home[];
int conv_prepare(void **state);
int conv_clean(void **state);

#endif
