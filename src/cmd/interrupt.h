#ifndef QUASAR_CMD_INTERRUPT_H
#define QUASAR_CMD_INTERRUPT_H

#include <stdbool.h>

/* From now on an interrupt, a termination, a hangup or writing to a pipe that nobody reads only
 * raises the flag; with second_ends the next one ends the program, but not for a pipe. What is
 * ignored (by nohup) stays ignored. */
void interrupt_catch(bool second_ends);

/* Whether one came. */
bool interrupt_came(void);
/* How many. */
int interrupt_count(void);
/* The next interrupt or termination ends the program. */
void interrupt_last(void);

/* At a command's end, when all is stored: ends the program by SIGPIPE if that came. */
void interrupt_end(void);

#endif
