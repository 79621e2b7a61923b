#ifndef QUASAR_TUI_KEYS_H
#define QUASAR_TUI_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/buf.h"
#include "tui/input.h"

/*
 * The one table of actions: each has a key, a command, or both, and a line of
 * help. The help screen, /help, `quasar --keys` and the dispatch all read it.
 */
enum action {
    ACT_NONE,
    /* both places */
    ACT_STOP_OR_QUIT, /* ^C */
    ACT_HELP,
    ACT_REDRAW,
    ACT_SUSPEND,
    ACT_PAGE_UP,
    ACT_PAGE_DOWN,
    ACT_TOP,
    ACT_BOTTOM,
    ACT_FOCUS,
    ACT_FIND,
    ACT_STATS,
    ACT_SESSIONS,
    /* composer */
    ACT_SEND,
    ACT_NEWLINE,
    ACT_ESCAPE,
    ACT_EOF,
    ACT_EDITOR,
    ACT_UNQUEUE,
    ACT_HISTORY,
    ACT_UNDO_EDIT,
    ACT_LIBEDIT, /* a key that the line editor handles; listed only */
    /* transcript */
    ACT_PREV_BLOCK,
    ACT_NEXT_BLOCK,
    ACT_FOLD,
    ACT_FOLD_ALL,
    ACT_COPY_BLOCK,
    ACT_BACK,
    ACT_RETRY,
    ACT_EDIT,
    ACT_BRANCH,
    ACT_FIND_OLDER,
    ACT_FIND_NEWER,
    /* commands without a key */
    ACT_ATTACH,
    ACT_NEW,
    ACT_THINK,
    ACT_SYSTEM,
    ACT_COPY,
    ACT_EXPORT,
    ACT_SET,
    ACT_EMACS,
    ACT_VI,
    ACT_KEYS,
    ACT_QUIT
};

/* CTX_HELP: while the help is shown; its keys are told by the help's last line. */
enum key_ctx { CTX_COMPOSER = 1, CTX_TRANSCRIPT = 2, CTX_BOTH = 3, CTX_HELP = 4 };

struct key_action {
    enum action act;
    unsigned ctx;        /* 0: command only */
    const char *keys[4]; /* names like ^C, Alt-Enter, PgUp, "^X ^E" */
    const char *command; /* with the slash, or NULL */
    const char *args;    /* of the command, or NULL */
    const char *help;
};

const struct key_action *keys_table(size_t *n);

/* The action of a key in a context, or ACT_NONE. prefix is a key pressed
 * before (type K_NONE: none); *is_prefix tells that the key begins a chord. */
enum action keys_lookup(enum key_ctx ctx, const struct key *prefix, const struct key *k,
                        bool *is_prefix);

/* The action of a command word (with the slash); on ACT_NONE *nearest is the
 * most similar command, or NULL. */
const struct key_action *keys_command(const char *word, size_t n, const char **nearest);

/* The name of a key as the table spells it. */
void keys_name(const struct key *k, char out[32]);

/* Lines of help: the keys of the contexts and every command. */
void keys_help(unsigned ctx, struct buf *out);
/* The whole table, one line a row. */
void keys_print(FILE *f);

#endif
