#ifndef QUASAR_SCHED_LIVE_H
#define QUASAR_SCHED_LIVE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "sched/sched.h"

/* The sequence of one conversation between its jobs. Owned by the conversation,
 * by each of its jobs, and by the scheduler once it met it. */
struct live {
    atomic_int refs;
    atomic_int doomed; /* the conversation let go */
    _Atomic int64_t tag;
    /* engine thread */
    bool listed; /* the scheduler holds a reference */
    bool busy;   /* a running job has the sequence */
    int seq;     /* -1: none */
    int32_t *ids;
    int n;              /* tokens the sequence holds */
    struct spec_seq *q; /* what is known for drafting; NULL: nothing */
    uint64_t used;
};

void live_ref(struct live *l);
void live_unref(struct live *l);
/* Engine thread: how many tokens of the prompt the state already holds; 0 when
 * the prompt does not extend it. */
int live_match(const struct live *l, const int32_t *prompt, int n);
/* Engine thread: gives the sequence's tokens to the live; ids is taken. */
void live_keep(struct live *l, int seq, int32_t *ids, int n);
/* Engine thread: forgets the state and closes the sequence. */
void live_drop(struct live *l, struct engine *g);

#endif
