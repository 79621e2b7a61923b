#ifndef QUASAR_CMD_NOTIFY_H
#define QUASAR_CMD_NOTIFY_H

#include <stdbool.h>

/* Whether a service manager wants to be told how this process stands (NOTIFY_SOCKET). */
bool notify_wanted(void);
/* Tells it: lines such as "READY=1" and "STATUS=…". One that does not listen costs nothing; without
 * one nothing is sent. */
void notify_send(const char *state);

#endif
