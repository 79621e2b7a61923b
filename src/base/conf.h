#ifndef QUASAR_BASE_CONF_H
#define QUASAR_BASE_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/*
 * The option table: every tunable is one row. A row's name gives the flag
 * (--top-p), the environment variable (QUASAR_TOP_P) and the key in the file
 * (top-p = 0.9). Precedence: flag, environment, file, default.
 */
enum conf_type {
    CONF_FLAG, /* boolean; --name, --no-name, or name = yes|no */
    CONF_STR,
    CONF_INT,
    CONF_NUM,
    CONF_ENUM,  /* one of help text's choices, "a|b|c" */
    CONF_LIST,  /* strings; each --name adds one */
    CONF_PAIRS, /* lines `name.KEY = VALUE`; each --name KEY=VALUE adds one; not in the environment
                 */
    CONF_SIZE,  /* bytes, or with K, M, G or T, as 1.5G */
    CONF_MAYBE  /* a string that --name may leave out: then it is empty */
};

enum conf_origin { CONF_DEFAULT, CONF_FILE, CONF_ENV, CONF_ARG };

struct conf_opt {
    const char *name;
    char short_name; /* 0 for none */
    enum conf_type type;
    const char *def;     /* as in the file; NULL: unset */
    double lo, hi;       /* CONF_INT and CONF_NUM; lo > hi: unbounded */
    const char *choices; /* CONF_ENUM: allowed; CONF_INT, _NUM and _SIZE: words allowed besides */
    unsigned cmds;       /* bit per command that takes it */
    const char *arg;     /* name of the argument in help; NULL for CONF_FLAG */
    const char *help;    /* one line */
    bool cli_only;       /* not from the file or the environment (prompts, files) */
};

struct conf;

/* The table must outlive the conf and end with a row whose name is NULL. */
struct conf *conf_create(const struct conf_opt *table);
void conf_free(struct conf *c);

/* Reads key = value lines; '#' starts a comment; errors name file and line.
 * A missing file is not an error when optional. */
int conf_load_file(struct conf *c, const char *path, bool optional, struct err *e);

/* Reads QUASAR_* variables of the table. */
int conf_load_env(struct conf *c, struct err *e);

/* Parses flags that the command (bit mask cmd) takes, from argv[0..argc).
 * Words that are no options go to args (room for argc pointers, borrowed from
 * argv); "--" ends the options; "-" is a word. Errors name the nearest option. */
int conf_parse_args(struct conf *c, unsigned cmd, int argc, char **argv, int *nargs, char **args,
                    struct err *e);

/* Whether values of the type are texts, which may hold any character: a comment stands behind
 * one in the file only if it has quotes. */
bool conf_is_text(enum conf_type type);

/* Values. Asking for a name that is not in the table is a bug (assert). */
bool conf_is_set(const struct conf *c, const char *name);     /* anything but the default */
const char *conf_str(const struct conf *c, const char *name); /* NULL when unset */
bool conf_flag(const struct conf *c, const char *name);
int64_t conf_int(const struct conf *c, const char *name, int64_t when_word_or_unset);
double conf_num(const struct conf *c, const char *name, double when_word_or_unset);
/* Bytes as an option has them, "20G"; false: it is no size. */
bool conf_read_size(const char *text, uint64_t *out);
uint64_t conf_size(const struct conf *c, const char *name, uint64_t when_word_or_unset);
bool conf_is_word(const struct conf *c, const char *name, const char *word);
size_t conf_list_len(const struct conf *c, const char *name);
const char *conf_list_at(const struct conf *c, const char *name, size_t i);

/* Those of CONF_PAIRS, in the order they were given: the file's, then the command line's. What
 * is in one points into the conf. */
struct conf_pair {
    const char *key, *value;
    const char *where; /* "FILE:LINE", or "--NAME" */
};
size_t conf_pairs_len(const struct conf *c, const char *name);
struct conf_pair conf_pair_at(const struct conf *c, const char *name, size_t i);

/* Sets as if given on the command line (the workbench's /set). */
int conf_set(struct conf *c, const char *name, const char *value, enum conf_origin from,
             struct err *e);

enum conf_origin conf_origin_of(const struct conf *c, const char *name);
/* "default", "environment", "command line", or the file's path. Borrowed. */
const char *conf_origin_text(const struct conf *c, const char *name);
const struct conf_opt *conf_table(const struct conf *c);

/* Appends "  --name ARG   help" lines of the options that cmd takes. */
void conf_help(const struct conf *c, unsigned cmd, struct buf *out);

#endif
