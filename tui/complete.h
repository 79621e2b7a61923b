#ifndef QUASAR_TUI_COMPLETE_H
#define QUASAR_TUI_COMPLETE_H

#include <stdbool.h>
#include <stddef.h>

#include "tui/keys.h"

/*
 * Words that may stand behind a command. Pure.
 */
#define COMPLETE_MOST 32

/* The candidates for the last word of what is written behind a command so far (args: from behind
 * the blank), those that begin with it; *from: where in args that word begins. */
size_t complete_words(const struct key_action *c, const char *args, const char **words,
                      size_t *from);
/* What a candidate means, a few words; NULL where it says so itself. */
const char *complete_meaning(const struct key_action *c, const char *word);
/* Whether what is written there is the name of a file, from *from on. */
bool complete_takes_file(const struct key_action *c, const char *args, size_t *from);

#endif
