#ifndef QUASAR_SESSIONS_CATALOG_FAULT_H
#define QUASAR_SESSIONS_CATALOG_FAULT_H

/*
 * Fault injection for tests, process-wide, as io_fault_set is for other files: whatever SQLite
 * writes, syncs, cuts off or deletes from now on is counted, and the n-th (from 1) and the times -
 * 1 that follow it (times 0: all) fail with errnum, or end the process at once when errnum is 0. Of
 * catalogues that are opened after the first call; n 0 turns it off. Any thread.
 */
void catalog_fault_set(unsigned n, int errnum, unsigned times);
/* How many there were since it was set. */
unsigned catalog_fault_count(void);

#endif
