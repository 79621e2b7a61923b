#ifndef QUASAR_CMD_MEMPLAN_H
#define QUASAR_CMD_MEMPLAN_H

#include <jansson.h>

#include "base/conf.h"
#include "base/err.h"
#include "engine/engine.h"

/* The memory plan as a JSON object; new reference. */
json_t *memplan_json(const struct engine_plan *p);

/* The plan of what the settings mean, without loading the model. The caller frees
 * *line. */
int memplan_of(const struct conf *cf, struct engine_plan *out, char **line, struct err *e);

#endif
