/* Threads that fill a ring of buffers from a file. pread into memory of our own costs
 * several times less than reading through the mapping, whose page faults are one every
 * few pages; and memory that a reader touches first is cleared by that reader. */
#include "config.h"
#include "base/fetch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"

enum { PAGE = 4096, LARGE = 2 << 20 };

struct fetch {
    struct fetch_plan plan;
    uint8_t *ring;
    size_t stride; /* from buffer to buffer */
    pthread_t *thread;
    int started;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t filled, freed;
    size_t next;    /* job */
    size_t running; /* jobs being read */
    int *free;      /* stack of buffers */
    int n_free;
    struct {
        size_t job;
        int buffer;
    } * full; /* circle of buffers */
    int first_full, n_full;
    bool *used; /* buffers that have been filled before */
    bool stop, failed;
    int64_t idle; /* nanoseconds, of all threads */
};

/* False when the file cannot be read. */
static bool read_job(const struct fetch *f, size_t job, uint8_t *to)
{
    const struct fetch_job *j = &f->plan.jobs[job];
    bool good = true;
    for (int i = 0; i < j->parts && good; i++) {
        good = io_map_copy(f->plan.file, to + j->part[i].at, j->part[i].from, j->part[i].n);
    }
    return good;
}

/* Takes the next job and a free buffer for it; called and returning with the lock. */
static void run_job(struct fetch *f)
{
    const size_t job = f->next++;
    const int buffer = f->free[--f->n_free];
    const bool fresh = !f->used[buffer];
    f->used[buffer] = true;
    f->running++;
    pthread_mutex_unlock(&f->lock);
    uint8_t *to = fetch_buffer(f, buffer);
    const bool good = read_job(f, job, to);
    if (fresh && f->plan.fresh) {
        f->plan.fresh(f->plan.ctx, buffer, to, f->stride);
    }
    pthread_mutex_lock(&f->lock);
    const int at = (f->first_full + f->n_full++) % f->plan.buffers;
    f->full[at].job = job;
    f->full[at].buffer = buffer;
    f->running--;
    f->failed = f->failed || !good;
    pthread_cond_signal(&f->filled);
}

static void *read_jobs(void *arg)
{
    struct fetch *f = arg;
    pthread_mutex_lock(&f->lock);
    while (!f->stop && !f->failed && f->next < f->plan.n) {
        if (f->n_free > 0) {
            run_job(f);
            continue;
        }
        const int64_t from = clock_now(clock_real());
        pthread_cond_wait(&f->freed, &f->lock);
        f->idle += clock_now(clock_real()) - from;
    }
    pthread_cond_signal(&f->filled); /* nothing may come any more */
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

static int take_ring(struct fetch *f, struct err *e)
{
    const size_t unit = f->plan.size >= LARGE ? LARGE : PAGE;
    f->stride = (f->plan.size + unit - 1) / unit * unit;
    const size_t bytes = f->stride * (size_t)f->plan.buffers;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return err_sys(e, QE_NOMEM, errno, "cannot take %zu bytes for reading the model", bytes);
    }
    (void)madvise(p, bytes, MADV_HUGEPAGE); /* only a wish */
    f->ring = p;
    return 0;
}

static int start_threads(struct fetch *f, struct err *e)
{
    sigset_t all, before; /* signals are the program's, not ours */
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (rc == 0 && f->started < f->plan.threads) {
        rc = pthread_create(&f->thread[f->started], NULL, read_jobs, f);
        f->started += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 || f->started > 0
               ? 0
               : err_sys(e, QE_NOMEM, rc, "cannot start a thread that reads the model");
}

int fetch_start(const struct fetch_plan *p, struct fetch **out, struct err *e)
{
    struct fetch *f = mem_zalloc(sizeof *f);
    f->plan = *p;
    f->thread = mem_array((size_t)p->threads, sizeof *f->thread);
    f->free = mem_array((size_t)p->buffers, sizeof *f->free);
    f->full = mem_array((size_t)p->buffers, sizeof *f->full);
    f->used = mem_zalloc((size_t)p->buffers * sizeof *f->used);
    for (int i = p->buffers - 1; i >= 0; i--) {
        f->free[f->n_free++] = i;
    }
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->filled, NULL);
    pthread_cond_init(&f->freed, NULL);
    int rc = take_ring(f, e);
    rc = rc < 0 ? rc : start_threads(f, e);
    if (rc < 0) {
        fetch_free(f);
        return rc;
    }
    *out = f;
    return 0;
}

/* Whether another buffer will become full. */
static bool more(const struct fetch *f)
{
    return f->running > 0 || (f->next < f->plan.n && !f->stop && !f->failed);
}

int fetch_take(struct fetch *f, bool wait, size_t *job, int *buffer)
{
    int rc = 1;
    pthread_mutex_lock(&f->lock);
    while (wait && f->n_full == 0 && !f->failed && more(f)) {
        pthread_cond_wait(&f->filled, &f->lock);
    }
    if (f->failed || (f->n_full == 0 && !more(f))) {
        rc = -1;
    } else if (f->n_full == 0) {
        rc = 0;
    } else {
        *job = f->full[f->first_full].job;
        *buffer = f->full[f->first_full].buffer;
        f->first_full = (f->first_full + 1) % f->plan.buffers;
        f->n_full--;
    }
    pthread_mutex_unlock(&f->lock);
    return rc;
}

void fetch_give(struct fetch *f, int buffer)
{
    pthread_mutex_lock(&f->lock);
    f->free[f->n_free++] = buffer;
    pthread_cond_signal(&f->freed);
    pthread_mutex_unlock(&f->lock);
}

uint8_t *fetch_buffer(const struct fetch *f, int buffer)
{
    return f->ring + f->stride * (size_t)buffer;
}

bool fetch_failed(struct fetch *f)
{
    pthread_mutex_lock(&f->lock);
    const bool failed = f->failed;
    pthread_mutex_unlock(&f->lock);
    return failed;
}

double fetch_idle(struct fetch *f)
{
    pthread_mutex_lock(&f->lock);
    const double idle = clock_seconds(f->idle);
    pthread_mutex_unlock(&f->lock);
    return idle / f->plan.threads;
}

void fetch_stop(struct fetch *f)
{
    pthread_mutex_lock(&f->lock);
    f->stop = true;
    pthread_cond_broadcast(&f->freed);
    pthread_mutex_unlock(&f->lock);
    while (f->started > 0) {
        pthread_join(f->thread[--f->started], NULL);
    }
}

void fetch_free(struct fetch *f)
{
    if (!f) {
        return;
    }
    fetch_stop(f);
    if (f->ring) {
        munmap(f->ring, f->stride * (size_t)f->plan.buffers);
    }
    pthread_cond_destroy(&f->freed);
    pthread_cond_destroy(&f->filled);
    pthread_mutex_destroy(&f->lock);
    free(f->thread);
    free(f->free);
    free(f->full);
    free(f->used);
    free(f);
}
