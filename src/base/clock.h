#ifndef QUASAR_BASE_CLOCK_H
#define QUASAR_BASE_CLOCK_H

#include <stdint.h>

/* Monotonic nanoseconds. A virtual clock, for scripted runs, starts at 0 and
 * moves only when told. */
struct clk {
    int64_t (*now)(void *ctx);
    void *ctx;
};

const struct clk *clock_real(void);
int64_t clock_now(const struct clk *c);
double clock_seconds(int64_t ns);

#endif
