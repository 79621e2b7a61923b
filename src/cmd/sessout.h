#ifndef QUASAR_CMD_SESSOUT_H
#define QUASAR_CMD_SESSOUT_H

#include <jansson.h>

#include "base/buf.h"
#include "sessions/catalog.h"

/* Stored conversations as JSON, Markdown and lines; the keys are in the manual. */

/* open_by: the process that has it open, 0: none. New reference. */
json_t *sessout_conv(const struct catalog_conv *v, long open_by);
json_t *sessout_turn(const struct catalog_turn *t);
/* One message as quasar run --messages reads it. */
json_t *sessout_message(const struct catalog_turn *t);

/* Appends a conversation's heading, a turn, as Markdown. */
void sessout_md_head(const struct catalog_conv *v, struct buf *out);
void sessout_md_turn(const struct catalog_turn *t, struct buf *out);

/* "2026-11-30 06:10", local time. */
void sessout_time(int64_t at, char out[20]);
/* "1.4 G", "812 K". */
void sessout_size(uint64_t bytes, char out[16]);

#endif
