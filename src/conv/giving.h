#ifndef QUASAR_CONV_GIVING_H
#define QUASAR_CONV_GIVING_H

#include "sched/tier.h"

/* A state of the engine's as the bytes of a file's part, first to last. */
struct giving {
    struct engine_saved state;
    uint64_t at; /* bytes that were given; zero before */
};

/* state_part.give; ctx: struct giving. */
int giving_next(void *ctx, void *dst, size_t n, struct err *e);

#endif
