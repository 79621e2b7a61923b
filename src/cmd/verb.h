#ifndef QUASAR_CMD_VERB_H
#define QUASAR_CMD_VERB_H

#include "base/buf.h"
#include "base/conf.h"
#include "sessions/store.h"

/* The verbs of quasar sessions. Each returns a status of base/err.h. */

/* What a verb works with. */
struct verb_in {
    const struct conf *cf;
    struct store *store;
    struct catalog *c;
    int n; /* words after the verb */
    char **words;
    bool json, tty;
};

/* The conversation that word i means. */
int verb_find(const struct verb_in *in, int i, int64_t *conv, struct err *e);
/* Prints a part of a line of ours: no control character goes out, wherever it goes. */
void verb_safe(const char *s);
/* Prints the lines of a notice, each as one of ours, to standard error. */
void verb_notice(const struct buf *notice);

/* verb_read.c */
int verb_list(struct verb_in *in, struct err *e);
int verb_search(struct verb_in *in, struct err *e);
int verb_show(struct verb_in *in, struct err *e);
int verb_export(struct verb_in *in, struct err *e);
/* verb_order.c */
int verb_gc(struct verb_in *in, struct err *e);
int verb_verify(struct verb_in *in, struct err *e);

#endif
