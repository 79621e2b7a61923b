#ifndef QUASAR_SCHED_TIER_H
#define QUASAR_SCHED_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A larger and slower place for states of prompts, such as a disk, which the
 * scheduler's owner provides as functions. The engine thread calls them; none may
 * wait. Only states that prefill alone wrote, on the 64-token grid, go there. A state is
 * one block of bytes whose meaning the tier does not know, and its tokens.
 */
struct tier_fetch; /* the tier's own */

struct tier {
    void *ctx;
    /* The engine is there: only states of one with the same 32 bytes may be given. Before
     * all others, once. */
    void (*engine)(void *ctx, const uint8_t compat[32], const char *label);

    /* Begins to look for, and to read, the longest state of a beginning of ids with more
     * than `least` tokens and less than n. NULL: not worth it. ids are copied. */
    struct tier_fetch *(*fetch)(void *ctx, const int32_t *ids, int n, int least);
    /* Whether that is over; sched_nudge is to be called when it becomes so. */
    bool (*ready)(void *ctx, const struct tier_fetch *f);
    /* What came, once ready: the state's bytes, its tokens compared one by one with those
     * that were asked for; NULL when there is none. Until done. */
    const void *(*result)(void *ctx, const struct tier_fetch *f, size_t *size, int *len);
    void (*done)(void *ctx, struct tier_fetch *f);

    /* Whether it would take a state of these tokens. */
    bool (*wants)(void *ctx, const int32_t *ids, int len);
    /* Memory for a state on its way there; NULL: too much is on its way already. */
    void *(*begin)(void *ctx, size_t size);
    /* The memory is filled; it and a copy of ids are the tier's. head: many conversations
     * begin so. */
    void (*store)(void *ctx, const int32_t *ids, int len, bool head, void *memory, size_t size);
    /* It will not be filled. */
    void (*drop)(void *ctx, void *memory, size_t size);
};

#endif
