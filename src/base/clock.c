/* Clocks. */
#include "config.h"
#include "base/clock.h"

#include <time.h>

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

int64_t clock_now(const struct clk *c)
{
    return c->now(c->ctx);
}

double clock_seconds(int64_t ns)
{
    return (double)ns / 1e9;
}
