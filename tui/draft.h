#ifndef QUASAR_TUI_DRAFT_H
#define QUASAR_TUI_DRAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

#include "base/buf.h"
#include "tui/composer.h"

/* A draft that is not in a composer: its line, in which a chip is one character, and the chips.
 * composer.h has what makes and frees one. */
struct draft {
    wchar_t *text;
    size_t n, cursor;
    struct buf chips[COMPOSER_CHIPS];
    char *chip_name[COMPOSER_CHIPS]; /* of a file; NULL: a paste */
    size_t n_chips;
};

/* Appends it as bytes that another process can read; nothing for an empty one. */
void draft_write(const struct draft *d, struct buf *out);
/* NULL: the bytes are not such. */
struct draft *draft_read(const char *p, size_t n);

#endif
