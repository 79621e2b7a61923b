#ifndef QUASAR_SCHED_TRANSFER_H
#define QUASAR_SCHED_TRANSFER_H

#include <stdatomic.h>

#include "sched/live.h"

/* One state on its way between the engine and memory. Two owners: who asked and
 * the engine thread; the last to let go frees it. */
struct transfer {
    /* constant */
    bool in;
    int wake_fd;
    struct live *live; /* a reference */

    /* both threads */
    atomic_int refs;
    atomic_int cancel;
    atomic_int done; /* release after everything below is final */

    /* engine thread until done, then who asked */
    int seq; /* in: the sequence that is filled; -1: none */
    bool begun;
    uint64_t version; /* of the live, when begun */
    int32_t *ids;
    int n_ids;
    char *blob;
    size_t size, at;
    struct err err;
    struct transfer *next;
};

struct transfer *transfer_create(struct live *l, bool in, int wake_fd);
void transfer_unref(struct transfer *t);

/* Engine thread: moves about budget bytes; true when it is over, one way or the
 * other. An idle live's state goes out; one that went on meanwhile ends it. A live
 * that takes one in is busy until it is over. open_seq: finds a free sequence. */
bool transfer_step(struct transfer *t, struct engine *g, size_t budget,
                   int (*open_seq)(void *ctx, int *seq, struct err *e), void *ctx);
/* Engine thread: ends one that is not over, and lets go of it. */
void transfer_drop(struct transfer *t, struct engine *g);

#endif
