#ifndef QUASAR_KERNELS_TEAM_H
#define QUASAR_KERNELS_TEAM_H

#include "base/err.h"

/*
 * Threads that walk through a piece of work together. The caller of team_run
 * is thread 0. A waiting thread spins as long as that has lately been enough,
 * then sleeps: on an idle machine a barrier costs well under a microsecond, on
 * a busy one the processor goes to whoever has work.
 */
struct team;

/* n threads, counting the caller of team_run. */
int team_create(int n, struct team **out, struct err *e);
void team_free(struct team *t);

/* Runs fn(arg, tid, n) on every thread; returns when all are done. One caller
 * at a time. */
void team_run(struct team *t, void (*fn)(void *arg, int tid, int nt), void *arg);

/* Inside fn: waits until all threads are here. */
void team_barrier(struct team *t);

#endif
