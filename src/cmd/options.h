#ifndef QUASAR_CMD_OPTIONS_H
#define QUASAR_CMD_OPTIONS_H

#include "base/conf.h"

/* One bit per command, for the option table. */
enum cmd_bit {
    C_CHAT = 1 << 0,
    C_RUN = 1 << 1,
    C_SCORE = 1 << 2,
    C_TOKENIZE = 1 << 3,
    C_TEMPLATE = 1 << 4,
    C_CONVERT = 1 << 5,
    C_INSPECT = 1 << 6,
    C_BENCH = 1 << 7,
    C_CONFIG = 1 << 8,
    C_SESSIONS = 1 << 9,
    C_SERVE = 1 << 10,
    C_ENGINE = C_CHAT | C_RUN | C_SCORE | C_BENCH | C_CONFIG | C_SERVE, /* open or plan an engine */
    C_GENERATE = C_CHAT | C_RUN | C_SERVE,                              /* sample from it */
    C_ALL = (1 << 11) - 1
};

/* The one table of options, ending with a NULL name. */
extern const struct conf_opt options_table[];

#endif
