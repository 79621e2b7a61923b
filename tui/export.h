#ifndef QUASAR_TUI_EXPORT_H
#define QUASAR_TUI_EXPORT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "tui/transcript.h"

/* The conversation as a text for elsewhere. */
enum export_form { EXPORT_MD, EXPORT_TXT, EXPORT_JSON };

/* "md", "txt", "json"; false: there is no such form. */
bool export_form_named(const char *word, enum export_form *out);
const char *export_form_name(enum export_form f);

/* Appends the last `last` questions and what was answered to them (0: all); from_selected: those
 * from the selected message on. How many messages that are. */
size_t export_text(const struct transcript *t, enum export_form f, size_t last, bool from_selected,
                   struct buf *out);

/* The code blocks of a Markdown text: appends the one of a number, from 1, as it was written;
 * 0: the last. False: there is none. */
bool export_code(const struct buf *text, size_t number, struct buf *out);

#endif
