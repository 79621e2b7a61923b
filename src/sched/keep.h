#ifndef QUASAR_SCHED_KEEP_H
#define QUASAR_SCHED_KEEP_H

#include "sched/live.h"
#include "sched/prefix.h"
#include "sched/slot.h"
#include "sched/tier.h"

/* When states are kept and what jobs start from. Engine thread only. */
struct keep {
    struct engine *g;
    struct prefix prefix;
    bool on, generated;
    int every;                      /* 0: none in between */
    const struct tier *tier;        /* NULL: none */
    struct {                        /* a state on its way there */
        struct prefix_entry *entry; /* NULL: none; pinned */
        void *memory;
        size_t size, at;
    } out;
};

void keep_open(struct keep *k, const struct sched_keep *o, struct engine *g);
void keep_close(struct keep *k);

/* A job waits: asks the tier for what memory does not have. Once. */
void keep_ask(struct keep *k, struct job *j);
/* Whether the answer is there, or was never asked for. */
bool keep_answered(const struct keep *k, const struct job *j);
/* What came, if it is more than memory has: its tokens, else 0 and it is let go. */
int keep_fetched(struct keep *k, struct job *j);
/* Puts a piece of what came into the job's sequence; true when it is over: the sequence
 * then has *cached tokens, of whatever source. */
bool keep_fill(struct keep *k, struct slot *slot, size_t budget, int *cached);
/* Lets go of what was asked for. */
void keep_unasked(struct keep *k, struct job *j);

/* Puts the longest state that serves the job's prompt into the fresh sequence, and writes
 * into the job's figures where it came from and why it is not longer. Returns its
 * tokens. */
int keep_resume(struct keep *k, struct job *j, int seq);
/* Where the chunk after slot->done must end, because a state is kept there; 0: nowhere. */
int keep_cut(const struct keep *k, const struct slot *slot);
/* A chunk was computed. */
void keep_chunk(struct keep *k, struct slot *slot);
/* A job without a live ends; its sequence has held tokens. */
void keep_end(struct keep *k, struct slot *slot, int held);
/* Whether states wait for their way to the tier; a piece of one of them. */
bool keep_moving(const struct keep *k);
void keep_move(struct keep *k, size_t budget);
/* A sequence was closed. */
void keep_closed(struct keep *k);
/* The sequence of an idle live is needed: keeps its state, if there is room, and closes
 * it. */
void keep_park(struct keep *k, struct live *l);
/* The live's conversation is over. */
void keep_forget(struct keep *k, const struct live *l);

#endif
