#ifndef QUASAR_SCHED_SLOT_H
#define QUASAR_SCHED_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/spec.h"
#include "sched/job.h"

/* One running sequence. Engine thread only. */
struct slot {
    struct job *job; /* NULL: free */
    int seq;
    int32_t *ids; /* prompt, then every token drawn */
    int n, cap;
    int done;                     /* prompt tokens computed */
    bool filling;                 /* a state from the tier is being put into the sequence */
    struct engine_intake *intake; /* … by this; NULL: it has not begun */
    bool decoding;                /* the prompt is computed; ids[n - 1] is to be computed next */
    int limit;                    /* most tokens to draw */
    struct spec_seq *q;           /* what drafts are made from; NULL: none are */
    uint64_t order;               /* of admission */
};

/* ctx: the window; cached: tokens the sequence already holds. */
void slot_start(struct slot *s, struct job *j, int seq, int cached, int ctx, uint64_t order);

/* Computes at most rows more tokens of the prompt, ending on the 64-token grid
 * unless the prompt ends. The last one draws the first token: *got is then true
 * and *id is it. */
int slot_prefill(struct slot *s, struct engine *g, int rows, bool *got, int32_t *id, struct err *e);

/* How to draw the row that n drafts precede (0: the next token). */
struct engine_draw slot_draw(const struct slot *s, const int32_t *draft, int n);

/* For every drawn token, just before slot_accept: refuses -1 and notes the log
 * probabilities that the job asked for. */
int slot_drawn(struct slot *s, struct engine *g, int output, int32_t id, struct err *e);

/* Delivers a drawn token. True when it ends the job; *reason says why. */
bool slot_accept(struct slot *s, int32_t id, enum job_reason *reason);

/* Most tokens a prefill call may take so that it lasts about seconds, at tok_s
 * (0: unknown); a multiple of 64. */
int slot_chunk(double tok_s, double seconds);

#endif
