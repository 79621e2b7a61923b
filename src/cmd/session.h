#ifndef QUASAR_CMD_SESSION_H
#define QUASAR_CMD_SESSION_H

#include "base/buf.h"
#include "base/conf.h"
#include "conv/conv.h"
#include "sessions/store.h"

/* How the options of stored conversations are understood, in one place. */

/* Opens the store that the options mean. */
int session_store(const struct conf *cf, struct store **out, struct buf *notice, struct err *e);

/* Into o: whether and where conversations and states are saved. directory is the present
 * one, owned by the caller; NULL when it has no name any more. */
void session_options(const struct conf *cf, struct conv_opts *o, char **directory);

struct session_pick {
    int64_t conversation; /* 0: a new one */
    bool must;            /* it was asked for by name: no other will do */
    struct buf notice;    /* lines about what was recovered */
};
/* QE_USAGE: nothing is saved, so option (its name) has nothing to go on with. */
int session_must_save(const struct conf *cf, const char *option, struct err *e);
/* What the chat goes on with: --resume ID, -c, or --start last. Ends what dead writers left
 * first. Only with --save. */
int session_pick(const struct conf *cf, const char *directory, struct session_pick *out,
                 struct err *e);

/* Prints the latest conversations, for --resume without an ID. */
int session_print_latest(const struct conf *cf, struct err *e);

#endif
