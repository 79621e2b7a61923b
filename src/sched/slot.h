#ifndef QUASAR_SCHED_SLOT_H
#define QUASAR_SCHED_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/spec.h"
#include "sched/job.h"

/* One running sequence, or one that gave way. Engine thread only. */
struct slot {
    struct job *job; /* NULL: free */
    int seq;         /* -1: it gave way */
    int32_t *ids;    /* prompt, then every token drawn */
    int n, cap;
    int done;                     /* prompt tokens computed */
    bool filling;                 /* a state from the tier is being put into the sequence */
    struct engine_intake *intake; /* … by this; NULL: it has not begun */
    bool decoding;                /* the prompt is computed; ids[n - 1] is to be computed next */
    int limit;                    /* most tokens to draw */
    struct spec_seq *q;           /* what drafts are made from; NULL: none are */
    bool begun;                   /* JE_STARTED was sent */
    bool exact;                   /* prefill and decode steps of its tokens make this state again */
    /* making room for others */
    int gave_way;             /* how often */
    struct engine_swap *swap; /* it gave way: its state; NULL: it has to be made again */
    int again;                /* tokens that must stand computed before it goes on; 0: it does */
    int64_t since;            /* when it gave way */
    /* picking of prompts: chunks that other prompts had since it came, and that it had in a row */
    int passed, in_a_row;
};

/* ctx: the window; cached: tokens the sequence already holds. */
void slot_start(struct slot *s, struct job *j, int seq, int cached, int ctx);
/* Tokens that the sequence holds at the end, at most. */
int slot_most(const struct slot *s);
/* Prompt tokens, or such as were drawn before it gave way, that are still to be computed. */
int slot_left(const struct slot *s);

/* Where a call of slot_prefill of so many rows ends. */
int slot_end(const struct slot *s, int rows);
/* Computes at most rows more tokens of the prompt, ending on the 64-token grid
 * unless the prompt ends. The last one draws the first token: *got is then true
 * and *id is it. */
int slot_prefill(struct slot *s, struct engine *g, int rows, bool *got, int32_t *id, struct err *e);

/* After it gave way without its state, once the prompt is computed: computes at most rows of the
 * tokens that were drawn, as decode steps did. *n: how many. */
int slot_repeat(struct slot *s, struct engine *g, int rows, int *n, struct err *e);

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
