#ifndef QUASAR_CMD_INTERRUPT_H
#define QUASAR_CMD_INTERRUPT_H

#include <stdbool.h>

/* From now on an interrupt, a termination or a hangup only raises the flag; with
 * second_ends the next one ends the program. A hangup that is ignored (nohup)
 * stays ignored. */
void interrupt_catch(bool second_ends);

/* Whether one came. */
bool interrupt_came(void);

#endif
