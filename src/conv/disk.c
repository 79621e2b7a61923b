/* Two threads between the engine and a folder, so that a state on its way out never
 * holds up one that is waited for. One looks for files, whose bytes the engine's threads
 * then read; one writes, and reads the engine's bytes for that. The engine's side only moves
 * list entries under a mutex that is not held across any input or output. */
#include "config.h"
#include "conv/disk.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "conv/giving.h"
#include "sessions/prefixdir.h"

#define GAIN 256            /* fewer tokens are computed as fast as they are fetched */
#define WARM (512ULL << 20) /* bytes read ahead at the start */

struct tier_fetch {
    int32_t *ids;
    int n, least;
    atomic_int ready;        /* release after what follows is final */
    bool abandoned;          /* with the lock */
    struct state_file *file; /* NULL: there is none */
    uint64_t size;
    struct err bad; /* code < 0: the file turned out to be damaged */
    struct tier_fetch *next;
};

struct outgoing {
    int32_t *ids;
    int len;
    bool head;
    struct giving state;
};

struct disk {
    struct tier tier;
    char *path;
    uint64_t limit;
    int least, gain;
    pthread_t reader, writer;
    bool started;

    pthread_mutex_t nudge; /* sched: held while it is nudged */
    struct sched *sched;

    pthread_mutex_t lock; /* all below */
    pthread_cond_t to_read, to_write;
    struct prefixdir *dir; /* set once, before the threads begin */
    struct tier_fetch *fetches, **fetches_end;
    struct outgoing *out; /* NULL: none, or it is over */
    pthread_cond_t stored;
    bool quit;
    bool broken; /* nothing is written any more */
};

/* Tells the scheduler that there is news. */
static void nudge(struct disk *d)
{
    pthread_mutex_lock(&d->nudge);
    if (d->sched) {
        sched_nudge(d->sched);
    }
    pthread_mutex_unlock(&d->nudge);
}

/* ---- reading ---- */

static void free_fetch(struct tier_fetch *f)
{
    free(f->ids);
    state_close(f->file);
    free(f);
}

/* Finds a file, or removes the one that turned out to be damaged. */
static void look(struct disk *d, struct tier_fetch *f)
{
    if (f->bad.code < 0) {
        prefixdir_damaged(d->dir, f->file, &f->bad);
        return;
    }
    f->file = prefixdir_find(d->dir, f->ids, (size_t)f->n, (size_t)f->least);
    if (f->file && !state_has(f->file, PREFIXDIR_TAG, &f->size)) {
        state_close(f->file);
        f->file = NULL;
    }
}

static void queue_fetch(struct disk *d, struct tier_fetch *f)
{
    f->next = NULL;
    *d->fetches_end = f;
    d->fetches_end = &f->next;
    pthread_cond_signal(&d->to_read);
}

static void *read_thread(void *arg)
{
    struct disk *d = arg;
    pthread_mutex_lock(&d->lock);
    while (d->fetches || !d->quit) {
        struct tier_fetch *f = d->fetches;
        if (!f) {
            pthread_cond_wait(&d->to_read, &d->lock);
            continue;
        }
        d->fetches = f->next;
        d->fetches_end = d->fetches ? d->fetches_end : &d->fetches;
        const bool wanted = !f->abandoned || f->bad.code < 0;
        pthread_mutex_unlock(&d->lock);
        if (wanted) {
            look(d, f);
        }
        pthread_mutex_lock(&d->lock);
        if (f->abandoned) {
            free_fetch(f);
            continue;
        }
        atomic_store_explicit(&f->ready, 1, memory_order_release);
        pthread_mutex_unlock(&d->lock);
        nudge(d);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static struct tier_fetch *op_fetch(void *ctx, const int32_t *ids, int n, int least)
{
    struct disk *d = ctx;
    const int most = (n - 1) / PREFIXDIR_BLOCK * PREFIXDIR_BLOCK;
    if (!d->started || most < d->least || most < least + d->gain) {
        return NULL;
    }
    struct tier_fetch *f = mem_zalloc(sizeof *f);
    f->ids = mem_array((size_t)n, sizeof *f->ids);
    memcpy(f->ids, ids, (size_t)n * sizeof *ids);
    f->n = n;
    f->least = least + d->gain - PREFIXDIR_BLOCK;
    atomic_init(&f->ready, 0);
    pthread_mutex_lock(&d->lock);
    queue_fetch(d, f);
    pthread_mutex_unlock(&d->lock);
    return f;
}

static bool op_ready(void *ctx, const struct tier_fetch *f)
{
    (void)ctx;
    return atomic_load_explicit(&f->ready, memory_order_acquire);
}

static int read_state(void *ctx, uint64_t at, void *dst, size_t n, struct err *e)
{
    return state_read_at(ctx, PREFIXDIR_TAG, at, dst, n, e);
}

static bool op_result(void *ctx, const struct tier_fetch *f, struct engine_saved *state, int *len)
{
    (void)ctx;
    if (f->file) {
        *state = (struct engine_saved){
            .size = f->size, .unit = STATE_CHUNK, .read = read_state, .ctx = f->file};
        *len = (int)state_meta(f->file)->n_ids;
    }
    return f->file != NULL;
}

static void op_done(void *ctx, struct tier_fetch *f, const struct err *bad)
{
    struct disk *d = ctx;
    pthread_mutex_lock(&d->lock);
    f->abandoned = true;
    const bool over = atomic_load_explicit(&f->ready, memory_order_relaxed);
    if (over && bad) {
        f->bad = *bad;
        queue_fetch(d, f);
    }
    pthread_mutex_unlock(&d->lock);
    if (over && !bad) {
        free_fetch(f);
    }
}

/* ---- writing ---- */

static bool keep_warming(void *ctx)
{
    struct disk *d = ctx;
    pthread_mutex_lock(&d->lock);
    const bool on = !d->quit && !d->out;
    pthread_mutex_unlock(&d->lock);
    return on;
}

static void write_out(struct disk *d, struct outgoing *o)
{
    struct err e = ERR_INIT;
    const struct state_part part = {
        .size = o->state.state.size, .give = giving_next, .ctx = &o->state};
    const int rc = prefixdir_write(d->dir, o->ids, (size_t)o->len, o->head, &part, &e);
    if (rc < 0 && rc != QE_CANCELLED) {
        log_line(LOG_WARN, "prompts are not kept on disk any more (--prefix-cache): %s", e.msg);
        pthread_mutex_lock(&d->lock);
        d->broken = true;
        pthread_mutex_unlock(&d->lock);
    }
}

static void *write_thread(void *arg)
{
    struct disk *d = arg;
    prefixdir_warm(d->dir, WARM, keep_warming, d);
    pthread_mutex_lock(&d->lock);
    while (d->out || !d->quit) {
        struct outgoing *o = d->out;
        if (!o) {
            pthread_cond_wait(&d->to_write, &d->lock);
            continue;
        }
        pthread_mutex_unlock(&d->lock);
        write_out(d, o);
        free(o->ids);
        free(o);
        pthread_mutex_lock(&d->lock);
        d->out = NULL;
        pthread_cond_signal(&d->stored);
        pthread_mutex_unlock(&d->lock);
        nudge(d);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static bool op_wants(void *ctx, const int32_t *ids, int len)
{
    struct disk *d = ctx;
    pthread_mutex_lock(&d->lock);
    const bool wants = d->started && !d->broken && len >= d->least;
    pthread_mutex_unlock(&d->lock);
    return wants && !prefixdir_has(d->dir, ids, (size_t)len);
}

static bool op_store(void *ctx, const int32_t *ids, int len, bool head,
                     const struct engine_saved *state)
{
    struct disk *d = ctx;
    if (state->size > d->limit) {
        return false;
    }
    struct outgoing *o = mem_zalloc(sizeof *o);
    *o = (struct outgoing){.len = len, .head = head, .state.state = *state};
    o->ids = mem_array((size_t)len, sizeof *o->ids);
    memcpy(o->ids, ids, (size_t)len * sizeof *ids);
    pthread_mutex_lock(&d->lock);
    d->out = o;
    pthread_cond_signal(&d->to_write);
    pthread_mutex_unlock(&d->lock);
    return true;
}

static bool op_stored(void *ctx, bool wait)
{
    struct disk *d = ctx;
    pthread_mutex_lock(&d->lock);
    while (wait && d->out) {
        pthread_cond_wait(&d->stored, &d->lock);
    }
    const bool over = !d->out;
    pthread_mutex_unlock(&d->lock);
    return over;
}

/* ---- beginning and end ---- */

static void op_engine(void *ctx, const uint8_t compat[32], const char *label)
{
    struct disk *d = ctx;
    d->dir = prefixdir_create(d->path, d->limit, compat, label);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool reads = pthread_create(&d->reader, NULL, read_thread, d) == 0;
    const bool writes = reads && pthread_create(&d->writer, NULL, write_thread, d) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (reads && !writes) {
        pthread_mutex_lock(&d->lock);
        d->quit = true;
        pthread_cond_signal(&d->to_read);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->reader, NULL);
    }
    d->started = writes;
}

struct disk *disk_open(const struct disk_opts *o)
{
    struct disk *d = mem_zalloc(sizeof *d);
    d->tier = (struct tier){.ctx = d,
                            .engine = op_engine,
                            .fetch = op_fetch,
                            .ready = op_ready,
                            .result = op_result,
                            .done = op_done,
                            .wants = op_wants,
                            .store = op_store,
                            .stored = op_stored};
    d->path = mem_strdup(o->dir);
    d->limit = o->limit;
    d->least = o->least > PREFIXDIR_BLOCK ? o->least : PREFIXDIR_BLOCK;
    d->gain = o->gain > 0 ? o->gain : GAIN;
    d->fetches_end = &d->fetches;
    pthread_mutex_init(&d->nudge, NULL);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->to_read, NULL);
    pthread_cond_init(&d->to_write, NULL);
    pthread_cond_init(&d->stored, NULL);
    return d;
}

const struct tier *disk_tier(const struct disk *d)
{
    return &d->tier;
}

void disk_attach(struct disk *d, struct sched *s)
{
    if (d) {
        pthread_mutex_lock(&d->nudge);
        d->sched = s;
        pthread_mutex_unlock(&d->nudge);
    }
}

void disk_close(struct disk *d)
{
    if (!d) {
        return;
    }
    if (d->started) {
        pthread_mutex_lock(&d->lock);
        d->quit = true;
        pthread_cond_signal(&d->to_read);
        pthread_cond_signal(&d->to_write);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->reader, NULL);
        pthread_join(d->writer, NULL);
    }
    prefixdir_free(d->dir);
    pthread_mutex_destroy(&d->nudge);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->to_read);
    pthread_cond_destroy(&d->to_write);
    pthread_cond_destroy(&d->stored);
    free(d->path);
    free(d);
}
