#ifndef QUASAR_BASE_CRASH_H
#define QUASAR_BASE_CRASH_H

/*
 * Fatal signals (SEGV, BUS, ABRT, FPE, ILL): one line on standard error says which, and where it
 * can be known what happened; then the signal's default action follows. A file that became
 * shorter while it is mapped is named. Safe to call again with another function.
 */

/* before is called first, in the signal handler, so it must be async-signal-safe; NULL: nothing
 * is. Sanitizers keep their own handlers unless force is set. */
void crash_watch(void (*before)(void), int force);

#endif
