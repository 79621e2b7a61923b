#ifndef QUASAR_SCHED_TIER_H
#define QUASAR_SCHED_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

/*
 * A larger and slower place for states of prompts, such as a disk, which the
 * scheduler's owner provides as functions. The engine thread calls them; none may
 * wait, unless it says so. Only states that prefill alone wrote, on the 64-token grid, go
 * there. A state is one block of bytes whose meaning the tier does not know, and its
 * tokens; its bytes are read where they are (struct engine_saved), on the way there by a
 * thread of the tier's, on the way back by the engine's.
 */
struct tier_fetch; /* the tier's own */

struct tier {
    void *ctx;
    /* The engine is there: only states of one with the same 32 bytes may be given. Before
     * all others, once. */
    void (*engine)(void *ctx, const uint8_t compat[32], const char *label);

    /* Begins to look for the longest state of a beginning of ids with more than `least`
     * tokens and less than n. NULL: not worth it. ids are copied. */
    struct tier_fetch *(*fetch)(void *ctx, const int32_t *ids, int n, int least);
    /* Whether that is over; sched_nudge is to be called when it becomes so. */
    bool (*ready)(void *ctx, const struct tier_fetch *f);
    /* What was found, once ready, its tokens compared one by one with those that were asked
     * for: it may be read until done. False when there is none. */
    bool (*result)(void *ctx, const struct tier_fetch *f, struct engine_saved *state, int *len);
    /* bad: why the state's bytes turned out to be of no use; else NULL. */
    void (*done)(void *ctx, struct tier_fetch *f, const struct err *bad);

    /* Whether it would take a state of these tokens. */
    bool (*wants)(void *ctx, const int32_t *ids, int len);
    /* Takes one, to be read until `stored` is true of it, which sched_nudge is to tell; ids
     * are copied. head: many conversations begin so. False: it does not fit. One at a
     * time. */
    bool (*store)(void *ctx, const int32_t *ids, int len, bool head,
                  const struct engine_saved *state);
    /* Whether it is over, one way or the other; wait: not before that. */
    bool (*stored)(void *ctx, bool wait);
};

#endif
