#ifndef QUASAR_CMD_SCRIPT_H
#define QUASAR_CMD_SCRIPT_H

#include "base/conf.h"
#include "base/err.h"
#include "kernels/script.h"

/* The script that --engine names, in the tokens of a model. */
struct script;

/* *out stays NULL where --engine is the model itself. Else the script's clock has begun,
 * and its fault of the disk is set. model is the model file's path. QE_USAGE: the script
 * is wrong, by file and line. */
int script_open(const struct conf *cf, const char *model, struct script **out, struct err *e);
/* After the engine is closed. NULL is allowed. */
void script_free(struct script *s);
/* What the engine reads. */
const struct be_script *script_be(const struct script *s);

#endif
