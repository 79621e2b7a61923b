#ifndef QUASAR_TUI_HL_H
#define QUASAR_TUI_HL_H

#include <stddef.h>
#include <stdint.h>

#include "tui/theme.h"

/*
 * Colours of code: a small lexer that goes line by line, so that a block which grows is never
 * read from its beginning again. Pure and total: any bytes in any state are some pieces that
 * together are the line. It knows comments, texts and key words, not grammars.
 */

/* The language that the words behind a fence name ("c", "python title=x"); 0: not known, all of
 * it is plain. */
unsigned hl_language(const char *info, size_t n);
#define HL_LANGUAGES 22 /* known ones, numbered from 1 */

/* What is open at the end of a line, to begin the next with; 0 before the first. Opaque. */
typedef uint32_t hl_state;

/* One line without its end; fn is told of its pieces from left to right, none of them empty. */
typedef void (*hl_fn)(void *ctx, enum role role, const char *p, size_t n);
hl_state hl_line(unsigned language, hl_state from, const char *p, size_t n, hl_fn fn, void *ctx);

#endif
