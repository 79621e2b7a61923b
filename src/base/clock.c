/* Clocks, and waiting by the program's own. Without a virtual clock every wait is the
 * system's, with nothing around it. */
#include "config.h"
#include "base/clock.h"

#include <errno.h>
#include <time.h>

#include "base/vclock.h"

static int64_t real_now(void *ctx)
{
    (void)ctx;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

const struct clk *clock_real(void)
{
    static const struct clk c = {real_now, 0};
    return &c;
}

const struct clk *clock_main(void)
{
    const struct clk *c = vclock_clk();
    return c ? c : clock_real();
}

int64_t clock_now(const struct clk *c)
{
    return c->now(c->ctx);
}

double clock_seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

int64_t clock_wall(void)
{
    return vclock_clk() ? vclock_wall() : (int64_t)time(NULL);
}

int clock_poll(struct pollfd *fds, nfds_t n, int64_t ns, bool settled)
{
    if (vclock_clk()) {
        return vclock_poll(fds, n, ns, settled);
    }
    const struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return ppoll(fds, n, ns < 0 ? NULL : &t, NULL);
}

void clock_sleep(int64_t ns)
{
    if (vclock_clk()) {
        vclock_sleep(ns, NULL);
        return;
    }
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    while (ns > 0 && nanosleep(&t, &t) < 0 && errno == EINTR) {
    }
}

void clock_hold(const char *name)
{
    if (vclock_clk()) {
        vclock_sleep(0, name);
    }
}

void clock_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    if (vclock_clk()) {
        vclock_cond_wait(c, m);
    } else {
        pthread_cond_wait(c, m);
    }
}

void clock_cond_signal(pthread_cond_t *c)
{
    if (vclock_clk()) {
        vclock_cond_signal(c);
    }
    pthread_cond_signal(c);
}

void clock_enter(void)
{
    if (vclock_clk()) {
        vclock_enter();
    }
}

void clock_leave(void)
{
    if (vclock_clk()) {
        vclock_leave();
    }
}

void clock_let_go(void)
{
    if (vclock_clk()) {
        vclock_let_go();
    }
}
