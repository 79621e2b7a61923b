#ifndef QUASAR_CONV_BOTHRULES_H
#define QUASAR_CONV_BOTHRULES_H

#include "sched/sched.h"

/* One rule of two: a token may come where both let it. `more` (with ctx) is taken; *form becomes
 * the rule of both, or more alone where *form had none. */
void both_rules(const struct engine_form *more, struct engine_form *form);

#endif
