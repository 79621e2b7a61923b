/* The program's entry: chooses the command, gathers its options, runs it, and
 * turns the status into one line on standard error and an exit status. */
#include "config.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crash.h"
#include "base/io.h"
#include "base/mem.h"
#include "cmd/cmd.h"
#include "cmd/options.h"

struct command {
    const char *name;
    unsigned bit;
    cmd_fn run;
    const char *args;
    const char *help;
};

static const struct command commands[] = {
    {"bench", C_BENCH, cmd_bench, "", "measure the engine"},
    {"config", C_CONFIG, cmd_config, "", "show every setting and where it came from"},
    {"convert", C_CONVERT, cmd_convert, "SRC DST", "make a model file from a checkpoint or a GGUF"},
    {"inspect", C_INSPECT, cmd_inspect, "FILE", "what a model file holds, and whether it is whole"},
    {"run", C_RUN, cmd_run, "", "answer one prompt and exit"},
    {"score", C_SCORE, cmd_score, "", "log probabilities of a text"},
    {"serve", C_SERVE, cmd_serve, "", "answer HTTP clients"},
    {"sessions", C_SESSIONS, cmd_sessions, "VERB …",
     "stored conversations: list, show, search, export, fork, rm and others"},
    {"template", C_TEMPLATE, cmd_template, "", "show the prompt that a conversation becomes"},
    {"tokenize", C_TOKENIZE, cmd_tokenize, "", "text to token ids and back"},
    {NULL, 0, NULL, NULL, NULL},
};

static const struct command *find_command(const char *name)
{
    for (const struct command *c = commands; c->name; c++) {
        if (strcmp(c->name, name) == 0) {
            return c;
        }
    }
    return NULL;
}

static void print_help(void)
{
    printf("usage: quasar [MODEL] [options]            chat\n"
           "       quasar COMMAND [arguments] [options]\n\ncommands:\n");
    for (const struct command *c = commands; c->name; c++) {
        printf("  %-10s %-16s %s\n", c->name, c->args, c->help);
    }
    printf(
        "\nquasar COMMAND --help lists the options of one, quasar --help-chat those of the chat.\n"
        "man quasar has everything.\n");
}

static void print_command_help(const struct command *c, const struct conf *cf)
{
    struct buf b = BUF_INIT;
    conf_help(cf, c->bit, &b);
    const char *name = strcmp(c->name, "chat") == 0 ? "" : c->name;
    printf("usage: quasar %s%s%s%s[options]\n%s.\n\n%s", name, name[0] ? " " : "", c->args,
           c->args[0] ? " " : "", c->help, b.data ? b.data : "");
    buf_free(&b);
}

/* What runs when no command is named. */
static const struct command chat = {"chat", C_CHAT, cmd_chat, "[MODEL]",
                                    "a conversation in the terminal"};

/* The chat was asked for with what it does not know; a command among the words says why. */
static int command_late(int argc, char **argv, int rc, struct err *e)
{
    for (int i = 0; i < argc; i++) {
        if (find_command(argv[i])) {
            return err_set(e, QE_USAGE, "the command goes first: quasar %s, and then its options",
                           argv[i]);
        }
    }
    return rc;
}

static int run_command(const struct command *c, int argc, char **argv, struct err *e)
{
    struct conf *cf = conf_create(options_table);
    char **args = mem_array((size_t)argc + 1, sizeof *args);
    int nargs = 0;
    int rc = conf_parse_args(cf, c->bit, argc, argv, &nargs, args, e);
    if (rc == 0 && conf_flag(cf, "help")) {
        print_command_help(c, cf);
        goto out;
    }
    if (rc == 0) {
        rc = conf_load_env(cf, e);
    }
    if (rc == 0) {
        char *dir = io_xdg_config();
        char *path = io_join(dir, "config");
        rc = conf_load_file(cf, path, true, e);
        free(path);
        free(dir);
    }
    if (rc == 0 && c == &chat && nargs > 0) {
        rc = chat_is_model(args[0])
                 ? conf_set(cf, "model", args[0], CONF_ARG, e)
                 : err_set(e, QE_USAGE,
                           "there is no command and no model \"%s\" (quasar --help lists the "
                           "commands)",
                           args[0]);
    }
    if (rc == QE_USAGE && c == &chat) {
        rc = command_late(argc, argv, rc, e);
    }
    if (rc == 0) {
        rc = c->run(cf, nargs, args, e);
    }
out:
    free(args);
    conf_free(cf);
    return rc;
}

/* The command line's first word decides. */
static int dispatch(int argc, char **argv, struct err *e)
{
    const char *word = argc >= 2 ? argv[1] : "";
    if (strcmp(word, "--version") == 0) {
        puts("quasar " PACKAGE_VERSION);
        return 0;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_help();
        return 0;
    }
    if (strcmp(word, "--help-chat") == 0) {
        char help[] = "--help";
        char *args[] = {help, NULL};
        return run_command(&chat, 1, args, e);
    }
    const struct command *c = find_command(word);
    if (c) {
        return run_command(c, argc - 2, argv + 2, e);
    }
    return run_command(&chat, argc > 0 ? argc - 1 : 0, argv + (argc > 0), e);
}

int main(int argc, char **argv)
{
    io_hold_standard_fds();
    crash_watch(NULL, 0);
    signal(SIGXFSZ, SIG_IGN); /* a write beyond ulimit -f fails, and one line says so */
    setlocale(LC_ALL, "");
    setlocale(LC_NUMERIC, "C");
    struct err e = ERR_INIT;
    int rc = dispatch(argc, argv, &e);
    struct err out = ERR_INIT;
    if (!io_flush_stdout(&out) && rc == 0) {
        rc = out.code;
        e = out;
    }
    if (rc < 0 && e.msg[0]) {
        fprintf(stderr, "quasar: %s\n", e.msg);
    }
    return err_exit_status(rc);
}
