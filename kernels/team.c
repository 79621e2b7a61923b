/*
 * A team of threads around one barrier: workers wait at it between two pieces
 * of work as they do inside one. OpenMP's runtime waits at least as well on an
 * idle machine, but spins for milliseconds on a busy one: with eight other jobs
 * on two cores, decoding with two threads ran 20 times slower than this.
 */
#include "config.h"
#include "kernels/team.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"

/* Spins between two looks at the phase are some ten nanoseconds each. */
enum { SPIN_LEAST = 16, SPIN_MOST = 4096 };

struct worker {
    struct team *team;
    int tid;
    pthread_t thread;
};

struct team {
    int n, started;
    struct worker *worker;
    void (*fn)(void *arg, int tid, int nt); /* published by the barrier; NULL: leave */
    void *arg;
    atomic_uint phase;   /* number of barriers passed, modulo 2^32 */
    atomic_int missing;  /* threads still expected at this one */
    atomic_int sleepers; /* threads that need a wake-up call */
    atomic_int spin;     /* how long waiting has lately been worth it */
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void wait_phase(struct team *t, unsigned old)
{
    const int limit = atomic_load_explicit(&t->spin, memory_order_relaxed);
    for (int i = 0; i < limit; i++) {
        if (atomic_load_explicit(&t->phase, memory_order_acquire) != old) {
            int longer = limit * 2 < SPIN_MOST ? limit * 2 : SPIN_MOST;
            atomic_store_explicit(&t->spin, longer, memory_order_relaxed);
            return;
        }
        relax();
    }
    int shorter = limit / 2 > SPIN_LEAST ? limit / 2 : SPIN_LEAST;
    atomic_store_explicit(&t->spin, shorter, memory_order_relaxed);
    /* Sequentially consistent with team_barrier: either the last thread sees a
     * sleeper, or the sleeper sees the new phase (the kernel compares again). */
    atomic_fetch_add(&t->sleepers, 1);
    while (atomic_load(&t->phase) == old) {
        syscall(SYS_futex, (void *)&t->phase, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    }
    atomic_fetch_sub(&t->sleepers, 1);
}

void team_barrier(struct team *t)
{
    if (t->n == 1) {
        return;
    }
    const unsigned phase = atomic_load_explicit(&t->phase, memory_order_relaxed);
    if (atomic_fetch_sub_explicit(&t->missing, 1, memory_order_acq_rel) > 1) {
        wait_phase(t, phase);
        return;
    }
    atomic_store_explicit(&t->missing, t->n, memory_order_relaxed);
    atomic_store(&t->phase, phase + 1);
    if (atomic_load(&t->sleepers) > 0) {
        syscall(SYS_futex, (void *)&t->phase, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
}

static void *work(void *arg)
{
    const struct worker *w = arg;
    struct team *t = w->team;
    for (;;) {
        team_barrier(t);
        if (!t->fn) {
            return NULL;
        }
        t->fn(t->arg, w->tid, t->n);
        team_barrier(t);
    }
}

void team_run(struct team *t, void (*fn)(void *arg, int tid, int nt), void *arg)
{
    t->fn = fn;
    t->arg = arg;
    team_barrier(t);
    fn(arg, 0, t->n);
    team_barrier(t);
}

int team_create(int n, struct team **out, struct err *e)
{
    struct team *t = mem_zalloc(sizeof *t);
    t->n = n;
    t->worker = mem_array((size_t)n, sizeof *t->worker);
    atomic_init(&t->phase, 0);
    atomic_init(&t->missing, n);
    atomic_init(&t->sleepers, 0);
    atomic_init(&t->spin, SPIN_MOST);
    /* Signals are the program's, not ours. */
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = 0;
    for (int i = 1; rc == 0 && i < n; i++) {
        t->worker[i] = (struct worker){.team = t, .tid = i};
        rc = pthread_create(&t->worker[i].thread, NULL, work, &t->worker[i]);
        t->started += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        /* Those that did start wait for the missing ones: stand in for them. */
        atomic_fetch_sub(&t->missing, n - 1 - t->started);
        team_free(t);
        return err_sys(e, QE_NOMEM, rc, "cannot start %d threads; lower --threads", n);
    }
    *out = t;
    return 0;
}

void team_free(struct team *t)
{
    if (!t) {
        return;
    }
    t->fn = NULL;
    if (t->started > 0) {
        team_barrier(t);
    }
    for (int i = 1; i <= t->started; i++) {
        pthread_join(t->worker[i].thread, NULL);
    }
    free(t->worker);
    free(t);
}
