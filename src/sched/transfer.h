#ifndef QUASAR_SCHED_TRANSFER_H
#define QUASAR_SCHED_TRANSFER_H

#include <stdatomic.h>

#include "sched/live.h"

/* One state on its way between the engine and elsewhere. Two owners: who asked and
 * the engine thread; the last to let go frees it. One that leaves is done when it may be
 * read; the engine thread has it until who asked lets go. */
struct transfer {
    /* constant */
    bool in;
    int wake_fd;
    struct live *live; /* a reference */
    struct sched *sched;
    struct engine_saved saved; /* in: what comes */

    /* both threads */
    atomic_int refs;
    atomic_int cancel; /* who asked has let go */
    atomic_int done;   /* release after everything below is final */

    /* engine thread until done, then who asked */
    int seq; /* in: the sequence that is filled; -1: none */
    bool begun;
    int32_t *ids;
    int n_ids;
    struct err err;

    /* engine thread */
    struct engine_intake *intake;
    struct engine_snap *snap;     /* out: what is read … */
    struct engine_outlet *outlet; /* … by this; its blob may be read once it is done */
    struct transfer *next;
};

struct transfer *transfer_create(struct sched *s, struct live *l, bool in, int wake_fd);
void transfer_unref(struct transfer *t);

/* Engine thread: begins or goes on with it, waiting at most so many milliseconds; true when
 * it is done, one way or the other. An idle live's state goes out as it is then. A live
 * that takes one in is busy until it is over. open_seq: finds a free sequence. */
bool transfer_step(struct transfer *t, struct engine *g, int ms,
                   int (*open_seq)(void *ctx, int *seq, struct err *e), void *ctx);
/* Engine thread: ends one that is not done. */
void transfer_drop(struct transfer *t, struct engine *g);
/* Engine thread: whether one that is done still has something of the engine's; takes that
 * from it; whether who asked has let go. */
bool transfer_holds(const struct transfer *t);
void transfer_clear(struct transfer *t, struct engine *g);
bool transfer_left(const struct transfer *t);

#endif
