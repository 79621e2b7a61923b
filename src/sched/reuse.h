#ifndef QUASAR_SCHED_REUSE_H
#define QUASAR_SCHED_REUSE_H

#include "sched/live.h"
#include "sched/prefix.h"
#include "sched/slot.h"
#include "sched/tier.h"

/* When states are kept and what jobs start from. Engine thread only. */
struct reuse {
    struct engine *g;
    struct prefix prefix;
    bool on, generated;
    int every;                        /* 0: none in between */
    const struct tier *tier;          /* NULL: none */
    struct {                          /* a state on its way there */
        struct engine_outlet *outlet; /* NULL: none */
        struct prefix_entry *entry;   /* pinned; NULL: it was given up */
    } out;
};

void reuse_open(struct reuse *k, const struct sched_keep *o, struct engine *g);
void reuse_close(struct reuse *k);

/* A job waits: asks the tier for what memory does not have. Once. */
void reuse_ask(struct reuse *k, struct job *j);
/* Whether the answer is there, or was never asked for. */
bool reuse_answered(const struct reuse *k, const struct job *j);
/* What came, if it is more than memory has: its tokens, else 0 and it is let go. */
int reuse_fetched(struct reuse *k, struct job *j);
/* Goes on with bringing it into the job's sequence, waiting at most so many milliseconds;
 * true when it is over: the sequence then has *cached tokens, of whatever source. */
bool reuse_fill(struct reuse *k, struct slot *slot, int ms, int *cached);
/* Ends that: the sequence is empty. */
void reuse_unfill(struct slot *slot);
/* Lets go of what was asked for. */
void reuse_unasked(struct reuse *k, struct job *j);

/* Puts the longest state that serves the job's prompt into the fresh sequence, and writes
 * into the job's figures where it came from and why it is not longer. Returns its
 * tokens. */
int reuse_resume(struct reuse *k, struct job *j, int seq);
/* The same for a job that has begun and gave its state away: only prefill's own states, which
 * are what computing its prompt gives; its figures stay. */
int reuse_again(struct reuse *k, const struct job *j, int seq);
/* Where the chunk after slot->done must end, because a state is kept there; 0: nowhere. */
int reuse_cut(const struct reuse *k, const struct slot *slot);
/* A chunk was computed. */
void reuse_chunk(struct reuse *k, struct slot *slot);
/* A job without a live ends; its sequence has held tokens. */
void reuse_end(struct reuse *k, struct slot *slot, int held);
/* Whether there is something to do for states on their way to the tier. */
bool reuse_moving(const struct reuse *k);
/* Does it: lets go of one that is there, and sends the next. */
void reuse_move(struct reuse *k);
/* Gives the one on its way up, for its pages; false when there is none. */
bool reuse_give_up(struct reuse *k);
/* Nothing runs: prepares for what comes. True: it did something, and may have more. */
bool reuse_idle(struct reuse *k);
/* A sequence was closed. */
void reuse_closed(struct reuse *k);
/* The sequence of an idle live is needed: keeps its state, if there is room, and closes
 * it. */
void reuse_park(struct reuse *k, struct live *l);
/* The live's conversation is over. */
void reuse_forget(struct reuse *k, const struct live *l);

#endif
