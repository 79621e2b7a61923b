#ifndef QUASAR_SCHED_INSIDE_H
#define QUASAR_SCHED_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "sched/live.h"
#include "sched/queue.h"
#include "sched/reuse.h"
#include "sched/share.h"
#include "sched/slot.h"
#include "sched/transfer.h"
#include "view/snap.h"

/* The scheduler inside, shared by sched.c (loading, the loop, the public face), admit.c, room.c,
 * lives.c, moves.c, work.c and figures.c. All of it belongs to the engine thread unless it says
 * otherwise. */

#define ROWS       16   /* of one decode step */
#define ALONE_S    0.10 /* longest prompt chunk while nobody decodes */
#define TOGETHER_S 0.04 /* … while somebody does; and how long one waits before others give way */
#define PATIENCE   5    /* milliseconds for a state that comes, with nothing else to do */

struct sched {
    pthread_t thread;
    char *path, *isa;
    struct sched_opts opts;

    pthread_mutex_t lock; /* queue, share.come, asked, quit, full, arrivals */
    pthread_cond_t work;
    struct queue queue;
    struct transfer *asked; /* latest first */
    bool quit;
    bool full; /* no more jobs can run, whichever they are */
    uint64_t arrivals;

    /* loading: written by the engine thread before state's release */
    atomic_int state;
    atomic_int permille;
    pthread_mutex_t load_lock; /* only for sched_wait */
    pthread_cond_t loaded;
    struct err load_err;
    struct engine_model *model;
    struct engine *engine;

    /* engine thread */
    struct slot slots[ROWS];
    int n_run;            /* jobs that may run at once */
    struct slot *waiting; /* jobs that gave way, by arrival */
    size_t n_waiting, cap_waiting;
    uint64_t swap_most, swapped; /* bytes */
    struct share share;
    struct spec spec;
    struct reuse reuse;
    struct live **lives;
    size_t n_lives, cap_lives;
    struct transfer *moving;  /* oldest first */
    struct transfer *leaving; /* done, and read by who asked */
    uint64_t tick;
    double tok_s; /* of prefill, smoothed */
    struct sched_counters count;
    struct snap snap;
    struct snap kv; /* struct view_kv */
};

/* ---- figures.c ---- */
void figures_publish(struct sched *s);

/* ---- lives.c: sequences of conversations, and pages at their cost ---- */
void lives_list(struct sched *s, struct live *l);
/* Lets go of lives whose conversations are gone; all: of all. */
void lives_sweep(struct sched *s);
void lives_drop_all(struct sched *s);
/* A fresh sequence, at the cost of idle lives when there is none. QE_BUSY: none at all. */
int lives_open_seq(struct sched *s, int *seq, struct err *e);
/* Pages that idle lives hold. */
int lives_idle_pages(const struct sched *s);
/* For engine_on_full: something that nobody needs now goes. */
bool lives_make_pages(void *ctx);

/* ---- moves.c: states that leave and enter ---- */
/* With the lock: those that were asked for queue up. */
void moves_take(struct sched *s);
/* Goes on with the oldest one. */
void moves_step(struct sched *s);
/* Lets go of states that were read; all: also of those that still are. */
bool moves_clear(struct sched *s, bool all);
void moves_drop_all(struct sched *s);
/* Whether a live is to be filled: it is waited for. */
bool moves_awaits(const struct sched *s, const struct live *l);

/* ---- room.c: pages for those that run, and who gives way for them ---- */
/* Gets room for n more tokens of a slot. False: not now; it has given way itself, or ended with
 * an error. */
bool room_for(struct sched *s, struct slot *slot, int n);
/* Whether so many pages are there for one more, besides what those that run still need for
 * their prompts and a page each. */
bool room_admits(const struct sched *s, int pages);
int room_pages(const struct sched *s, int tokens);
/* A running job of the owner that gives way first; NULL: none can. */
struct slot *room_victim(struct sched *s, const uint64_t *owner);
/* Takes sequence and slot from it, its state goes to memory, or is to be computed again. */
bool room_give_way(struct sched *s, struct slot *slot);
/* Whether the i-th of those that wait may come back now; brings it: false when it could not. */
bool room_may_return(const struct sched *s, size_t i);
bool room_return(struct sched *s, size_t i);
/* Ends the i-th. */
void room_end(struct sched *s, size_t i, enum job_reason reason);

/* ---- admit.c: who starts, who ends ---- */
bool admit_is_cancelled(void *ctx, const struct job *j);
/* With the lock, which it lets go meanwhile: ends what waits and is over, starts what may
 * start. */
void admit_end_waiting(struct sched *s);
void admit_start(struct sched *s);
/* When no place is free for somebody who is due one: one who has more than is due gives way. */
void admit_make_way(struct sched *s);
/* The first tokens are there. */
void admit_begin(struct sched *s, struct slot *slot, int cached);
void admit_finish(struct sched *s, struct slot *slot, enum job_reason reason);
/* Ends what was cancelled or is late. */
void admit_end_late(struct sched *s);
int admit_running(const struct sched *s);

/* ---- work.c: computing ---- */
/* Whether some job could use the engine now. */
bool work_waits(const struct sched *s);
/* Whether a prompt is not computed yet. */
bool work_prompts(const struct sched *s);
/* About one chunk of prompts. */
void work_prefill(struct sched *s);
/* One round of every sequence whose prompt is computed. */
void work_decode(struct sched *s);

#endif
