#ifndef QUASAR_CMD_CONVOPTS_H
#define QUASAR_CMD_CONVOPTS_H

#include "base/conf.h"
#include "base/err.h"
#include "conv/conv.h"

/* The options of a conversation as the command line has them. What o points to is
 * borrowed from cf and from s, which convopts_free releases. */
struct convopts {
    char *path;       /* of the model file */
    char *prefix_dir; /* of states of prompts */
    const char **stops;
    struct conv_bias *bias;
    struct script *script; /* of --engine; NULL: none */
    char gpu_note[256];
};

int convopts_from(const struct conf *cf, struct conv_opts *o, struct convopts *s, struct err *e);
void convopts_free(struct convopts *s);
/* The folder of --prefix-cache (caller frees); NULL: none. */
int convopts_prefix_dir(const struct conf *cf, char **out, struct err *e);

#endif
