#ifndef QUASAR_CMD_SCRIPTFILE_H
#define QUASAR_CMD_SCRIPTFILE_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "kernels/script.h"

/* A script of the scripted engine as it is written (docs/script.md): texts, not yet
 * tokens. Everything in it is owned by it. */
enum scriptfile_kind { SF_TEXT, SF_THOUGHT, SF_TOOL, SF_EVENT };

struct scriptfile_part {
    enum scriptfile_kind kind;
    struct buf text; /* of an event: its name or reason */
    struct buf name; /* of a tool */
    enum script_what what;
    int64_t ns;
};

struct scriptfile_answer {
    bool has_pattern;
    regex_t pattern; /* of the last question */
    struct scriptfile_part *parts;
    size_t n_parts, cap_parts;
    struct script_round *rounds; /* none: the script's */
    size_t n_rounds, cap_rounds;
    bool forever;
};

struct scriptfile {
    bool is_virtual;
    int64_t wall; /* 0: the time of day */
    char *control, *report;
    int64_t load_ns;
    int load_steps;
    char *load_fails;
    int64_t prefill_ns;                 /* a token */
    unsigned disk_at;                   /* this disk call from the start fails, 0: none … */
    int disk_errno;                     /* … with this error; 0: the program is killed there */
    unsigned catalog_at, catalog_times; /* the same of the catalogue's writes, so many; 0: all */
    int catalog_errno;
    struct script_round *rounds;
    size_t n_rounds, cap_rounds;
    struct scriptfile_answer *answers; /* at least one */
    size_t n_answers, cap_answers;
};

/* name is for messages: "name:LINE: what". QE_USAGE: the script is wrong. On failure out
 * holds nothing. */
int scriptfile_parse(const char *text, size_t n, const char *name, struct scriptfile *out,
                     struct err *e);
void scriptfile_free(struct scriptfile *s);

#endif
