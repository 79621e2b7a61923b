#ifndef QUASAR_BASE_CLOCK_H
#define QUASAR_BASE_CLOCK_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Monotonic nanoseconds. */
struct clk {
    int64_t (*now)(void *ctx);
    void *ctx;
};

const struct clk *clock_real(void);
/* The program's clock: the real one, unless vclock_start has put a virtual one in its
 * place, which moves only while everybody waits. */
const struct clk *clock_main(void);
int64_t clock_now(const struct clk *c);
double clock_seconds(int64_t ns);
/* Seconds since 1970 by the program's clock. */
int64_t clock_wall(void);

/* ---- waiting, so that a virtual clock knows of it. Any thread that clock_enter
 * announced, and the main one. */

/* As ppoll; ns: at most so long, negative: without a limit. settled: nothing that was
 * asked of the world outside is still to come. */
int clock_poll(struct pollfd *fds, nfds_t n, int64_t ns, bool settled);
void clock_sleep(int64_t ns);
/* Until whoever controls a virtual clock lets it go on; without one not at all. name is
 * borrowed meanwhile. */
void clock_hold(const char *name);
/* As their namesakes; signal must be called with the mutex of the waiter held. */
void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
void clock_cond_signal(pthread_cond_t *c);
/* A thread is about to be made; one ends. Around a join: leave before, enter after. */
void clock_enter(void);
void clock_leave(void);
/* The program ends: nobody waits for the virtual clock any more. */
void clock_let_go(void);

#endif
