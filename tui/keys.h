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
    ACT_LISTENER,
    ACT_SESSIONS,
    ACT_PANE_BELOW,
    ACT_PANE_BESIDE,
    ACT_PANE_CLOSE,
    ACT_PANE_ONLY,
    ACT_PANE_OTHER,
    ACT_LOG,
    /* composer */
    ACT_SEND,
    ACT_NEWLINE,
    ACT_ESCAPE,
    ACT_EOF,
    ACT_EDITOR,
    ACT_UNQUEUE,
    ACT_QUEUE,
    ACT_HISTORY,
    ACT_UNDO_EDIT,
    ACT_LIBEDIT, /* a key that the line editor handles; listed only */
    /* transcript */
    ACT_PREV_BLOCK,
    ACT_NEXT_BLOCK,
    ACT_FOLD,
    ACT_FOLD_ALL,
    ACT_COPY_BLOCK,
    ACT_CODE,
    ACT_BACK,
    ACT_RETRY,
    ACT_EDIT,
    ACT_BRANCH,
    ACT_FIND_OLDER,
    ACT_FIND_NEWER,
    /* views */
    ACT_EARLIER,
    ACT_LATER,
    ACT_SPAN,
    ACT_CSV,
    ACT_MARK,
    ACT_BODY,
    ACT_CANCEL,
    ACT_PAUSE,
    /* lists */
    ACT_CHOOSE,
    ACT_CHOOSE_BESIDE,
    ACT_RENAME_IT,
    ACT_PIN_IT,
    ACT_FORGET_IT,
    ACT_EMPTY,
    ACT_MOVE_UP,
    ACT_MOVE_DOWN,
    ACT_DROP,
    /* commands without a key */
    ACT_STATS_VIEW,
    ACT_KV,
    ACT_LISTEN,
    ACT_REQUESTS,
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
    ACT_QUIT,
    ACT_PALETTE,
    ACT_PAGER,
    ACT_COPY_TURN,
    ACT_EXPORT_HERE,
    ACT_UNDO,
    ACT_COMPACT,
    ACT_PASTE,
    ACT_RENAME,
    ACT_PIN,
    ACT_FORGET,
    ACT_RESUME,
    ACT_SAMPLING,
    ACT_THEME,
    ACT_STATUS
};

/* CTX_HELP: while the help is shown; its keys are told by the help's last line. CTX_SESSIONS: the
 * list of conversations; CTX_QUEUE: that of messages that wait; CTX_FIND: while a search is typed;
 * CTX_LIST: lists of actions, files and earlier prompts. */
enum key_ctx {
    CTX_COMPOSER = 1,
    CTX_TRANSCRIPT = 2,
    CTX_BOTH = 3,
    CTX_HELP = 4,
    CTX_STATS = 8,
    CTX_LOG = 16,
    CTX_LISTEN = 32,
    CTX_SESSIONS = 64,
    CTX_QUEUE = 128,
    CTX_FIND = 256,
    CTX_LIST = 512
};
#define CTX_VIEWS (CTX_STATS | CTX_LOG | CTX_LISTEN)
#define CTX_ALL   (CTX_BOTH | CTX_HELP | CTX_VIEWS)
#define CTX_LISTS (CTX_SESSIONS | CTX_QUEUE | CTX_FIND | CTX_LIST)
/* Where characters are text. */
#define CTX_TYPED (CTX_COMPOSER | CTX_SESSIONS | CTX_FIND | CTX_LIST)

#define KEYS_MOST 6 /* of one row */

struct key_action {
    enum action act;
    const char *name;            /* for `bind.NAME = KEYS`; NULL: the line editor's, listed only */
    unsigned ctx;                /* 0: no key */
    const char *keys[KEYS_MOST]; /* names like ^C, Alt-Enter, PgUp, "^X ^E" */
    const char *command;         /* with the slash, or NULL */
    const char *args;            /* of the command, or NULL */
    const char *help;
};

/* The table as it is without any binding of the user's. */
const struct key_action *keys_table(size_t *n);

/* The action of a command word (with the slash); on ACT_NONE *nearest is the
 * most similar command, or NULL. */
const struct key_action *keys_command(const char *word, size_t n, const char **nearest);

/* The name of a key as the table spells it. */
#define KEYS_NAME 32
void keys_name(const struct key *k, char out[KEYS_NAME]);
/* The key of a name: as the table spells it, or with Ctrl-, C-, M-, S- and names in any case;
 * false: there is no such key, or no terminal sends it. */
bool keys_parse(const char *name, size_t n, struct key *out);

/*
 * The table in force: the one above with the user's bindings in it.
 */
struct keymap;
struct keymap *keymap_create(void);
void keymap_free(struct keymap *m);
const struct key_action *keymap_rows(const struct keymap *m, size_t *n);

/* One line of the settings: what is "find", or "transcript.find" for one context (composer,
 * transcript, help, stats, log, listener, list, …); without one it is not about lists, unless the
 * action is of lists alone; keys are names with ", " between them (a key named Comma
 * is one), a chord has a blank between two, and "none" takes all away. They take the place of those
 * the action has there. where ("file:12") begins what is appended to complaints, a line each, when
 * this cannot be; then nothing is changed. */
void keymap_bind(struct keymap *m, const char *what, const char *keys, const char *where,
                 struct buf *complaints);
/* After the last line: a key that two actions have belongs to the one that was bound last. That
 * is complained of, unless the other one's keys were given in a line too. */
void keymap_settle(struct keymap *m, struct buf *complaints);

/* The action of a key in a context, or ACT_NONE. prefix is a key pressed
 * before (type K_NONE: none); *is_prefix tells that the key begins a chord. */
enum action keymap_lookup(const struct keymap *m, enum key_ctx ctx, const struct key *prefix,
                          const struct key *k, bool *is_prefix);
/* The first key that an action has in one of the contexts, "" for none; one that it has just there
 * goes before one that it has everywhere. */
const char *keymap_key(const struct keymap *m, enum action act, unsigned ctx);
/* How one gets to it: the key, or else the command, or else its name in the list of actions. */
const char *keymap_way(const struct keymap *m, enum action act, unsigned ctx);
/* "Up Down choose": keys of one or two actions and what they do; "" when there is no key. */
struct key_hint {
    enum action act, other; /* ACT_NONE: there is no other */
    const char *text;
};
#define KEY_HINT 96
void keymap_hint(const struct keymap *m, const struct key_hint *h, unsigned ctx,
                 char out[KEY_HINT]);
/* Several, with two blanks between. */
void keymap_hints(const struct keymap *m, const struct key_hint *h, size_t n, unsigned ctx,
                  char *out, size_t size);

/* What an action is called; "nothing" for ACT_NONE. */
const char *keymap_name(enum action act);

/* Lines of help: the keys of the contexts and every command. */
void keymap_help(const struct keymap *m, unsigned ctx, struct buf *out);
/* The names of all actions, in lines that begin with a blank. */
void keymap_names(const struct keymap *m, struct buf *out);

#endif
