#ifndef QUASAR_TUI_COMPACT_H
#define QUASAR_TUI_COMPACT_H

#include "base/buf.h"

/* What a summary begins with where it goes before a message. */
#define COMPACT_HEAD "Summary of the conversation so far:\n\n"
/* Appends what asks the model for one; hint may be empty. */
void compact_request(const char *hint, struct buf *out);

#endif
