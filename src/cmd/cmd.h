#ifndef QUASAR_CMD_CMD_H
#define QUASAR_CMD_CMD_H

#include <stdbool.h>

#include "base/conf.h"
#include "base/err.h"

/*
 * One subcommand. The options (src/cmd/options.c) are parsed before it runs;
 * args are the words left over. Returns a status code; on failure the message
 * in e becomes the one line on standard error, and err_exit_status(code) the
 * exit status.
 */
typedef int (*cmd_fn)(const struct conf *cf, int nargs, char **args, struct err *e);

int cmd_bench(const struct conf *cf, int nargs, char **args, struct err *e);
/* Without a command; the model, if one was named, is already in cf. */
int cmd_chat(const struct conf *cf, int nargs, char **args, struct err *e);
/* The same where standard input is no terminal: it is one question. */
int cmd_ask(const struct conf *cf, struct err *e);
/* A word that can only be meant as a model: a file, NAME.qsr, NAME.q27, or the
 * name of one that is installed. */
bool chat_is_model(const char *word);
int cmd_config(const struct conf *cf, int nargs, char **args, struct err *e);
int cmd_inspect(const struct conf *cf, int nargs, char **args, struct err *e);
int cmd_convert(const struct conf *cf, int nargs, char **args, struct err *e);
int cmd_score(const struct conf *cf, int nargs, char **args, struct err *e);
int cmd_template(const struct conf *cf, int nargs, char **args, struct err *e);
int cmd_run(const struct conf *cf, int nargs, char **args, struct err *e);
int cmd_serve(const struct conf *cf, int nargs, char **args, struct err *e);
int cmd_sessions(const struct conf *cf, int nargs, char **args, struct err *e);
int cmd_tokenize(const struct conf *cf, int nargs, char **args, struct err *e);

#endif
