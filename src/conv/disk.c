/* Two threads between the engine and a folder, so that a state on its way out never
 * holds up one that is waited for. The engine's side only moves list entries under a
 * mutex that is not held across any input or output. */
#include "config.h"
#include "conv/disk.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "sessions/prefixdir.h"

#define GAIN       256            /* fewer tokens are computed as fast as they are fetched */
#define ON_ITS_WAY (1ULL << 30)   /* bytes that wait to be written, unless it is one state */
#define WARM       (512ULL << 20) /* bytes read ahead at the start */

struct tier_fetch {
    int32_t *ids;
    int n, least;
    atomic_int ready; /* release after what follows is final */
    bool abandoned;   /* with the lock */
    void *blob;       /* NULL: there is none */
    size_t size;
    int len;
    struct tier_fetch *next;
};

struct outgoing {
    int32_t *ids;
    int len;
    bool head;
    void *memory;
    size_t size;
    struct outgoing *next;
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
    struct outgoing *outs, **outs_end;
    uint64_t on_its_way;
    bool quit;
    bool broken; /* nothing is written any more */
};

/* ---- reading ---- */

static void free_fetch(struct tier_fetch *f)
{
    free(f->ids);
    free(f->blob);
    free(f);
}

static void look(struct disk *d, struct tier_fetch *f)
{
    /* A damaged one is gone when the next is looked for. */
    for (bool again = true; again && !f->blob;) {
        struct state_file *s = prefixdir_find(d->dir, f->ids, (size_t)f->n, (size_t)f->least);
        struct err e = ERR_INIT;
        uint64_t size = 0;
        again = false;
        if (s && state_has(s, PREFIXDIR_TAG, &size) && (f->blob = malloc(size))) {
            if (state_read(s, PREFIXDIR_TAG, f->blob, size, &e) == 0) {
                f->size = size;
                f->len = (int)state_meta(s)->n_ids;
            } else {
                prefixdir_damaged(d->dir, s, &e);
                free(f->blob);
                f->blob = NULL;
                again = true;
            }
        }
        state_close(s);
    }
}

static void *read_thread(void *arg)
{
    struct disk *d = arg;
    pthread_mutex_lock(&d->lock);
    while (!d->quit) {
        struct tier_fetch *f = d->fetches;
        if (!f) {
            pthread_cond_wait(&d->to_read, &d->lock);
            continue;
        }
        d->fetches = f->next;
        d->fetches_end = d->fetches ? d->fetches_end : &d->fetches;
        const bool wanted = !f->abandoned;
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
        pthread_mutex_lock(&d->nudge);
        if (d->sched) {
            sched_nudge(d->sched);
        }
        pthread_mutex_unlock(&d->nudge);
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
    *d->fetches_end = f;
    d->fetches_end = &f->next;
    pthread_cond_signal(&d->to_read);
    pthread_mutex_unlock(&d->lock);
    return f;
}

static bool op_ready(void *ctx, const struct tier_fetch *f)
{
    (void)ctx;
    return atomic_load_explicit(&f->ready, memory_order_acquire);
}

static const void *op_result(void *ctx, const struct tier_fetch *f, size_t *size, int *len)
{
    (void)ctx;
    *size = f->size;
    *len = f->len;
    return f->blob;
}

static void op_done(void *ctx, struct tier_fetch *f)
{
    struct disk *d = ctx;
    pthread_mutex_lock(&d->lock);
    f->abandoned = true;
    const bool over = atomic_load_explicit(&f->ready, memory_order_relaxed);
    pthread_mutex_unlock(&d->lock);
    if (over) {
        free_fetch(f);
    }
}

/* ---- writing ---- */

static bool keep_warming(void *ctx)
{
    struct disk *d = ctx;
    pthread_mutex_lock(&d->lock);
    const bool on = !d->quit && !d->outs;
    pthread_mutex_unlock(&d->lock);
    return on;
}

static void write_out(struct disk *d, struct outgoing *o)
{
    struct err e = ERR_INIT;
    pthread_mutex_lock(&d->lock);
    const bool broken = d->broken;
    pthread_mutex_unlock(&d->lock);
    if (!broken &&
        prefixdir_write(d->dir, o->ids, (size_t)o->len, o->head, o->memory, o->size, &e) < 0) {
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
    for (;;) {
        struct outgoing *o = d->outs;
        if (!o && d->quit) {
            break;
        }
        if (!o) {
            pthread_cond_wait(&d->to_write, &d->lock);
            continue;
        }
        pthread_mutex_unlock(&d->lock);
        write_out(d, o);
        pthread_mutex_lock(&d->lock);
        d->outs = o->next;
        d->outs_end = d->outs ? d->outs_end : &d->outs;
        d->on_its_way -= o->size;
        free(o->ids);
        free(o->memory);
        free(o);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static bool op_wants(void *ctx, const int32_t *ids, int len)
{
    struct disk *d = ctx;
    pthread_mutex_lock(&d->lock);
    bool wants = d->started && !d->broken && len >= d->least;
    for (const struct outgoing *o = d->outs; o && wants; o = o->next) {
        wants = o->len != len || memcmp(o->ids, ids, (size_t)len * sizeof *ids) != 0;
    }
    pthread_mutex_unlock(&d->lock);
    return wants && !prefixdir_has(d->dir, ids, (size_t)len);
}

static void *op_begin(void *ctx, size_t size)
{
    struct disk *d = ctx;
    pthread_mutex_lock(&d->lock);
    const bool fits =
        size <= d->limit && (d->on_its_way == 0 || d->on_its_way + size <= ON_ITS_WAY);
    d->on_its_way += fits ? size : 0;
    pthread_mutex_unlock(&d->lock);
    void *memory = fits ? malloc(size) : NULL;
    if (fits && !memory) {
        pthread_mutex_lock(&d->lock);
        d->on_its_way -= size;
        pthread_mutex_unlock(&d->lock);
    }
    return memory;
}

static void op_drop(void *ctx, void *memory, size_t size)
{
    struct disk *d = ctx;
    pthread_mutex_lock(&d->lock);
    d->on_its_way -= size;
    pthread_mutex_unlock(&d->lock);
    free(memory);
}

static void op_store(void *ctx, const int32_t *ids, int len, bool head, void *memory, size_t size)
{
    struct disk *d = ctx;
    struct outgoing *o = mem_zalloc(sizeof *o);
    *o = (struct outgoing){.len = len, .head = head, .memory = memory, .size = size};
    o->ids = mem_array((size_t)len, sizeof *o->ids);
    memcpy(o->ids, ids, (size_t)len * sizeof *ids);
    pthread_mutex_lock(&d->lock);
    *d->outs_end = o;
    d->outs_end = &o->next;
    pthread_cond_signal(&d->to_write);
    pthread_mutex_unlock(&d->lock);
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
                            .begin = op_begin,
                            .store = op_store,
                            .drop = op_drop};
    d->path = mem_strdup(o->dir);
    d->limit = o->limit;
    d->least = o->least > PREFIXDIR_BLOCK ? o->least : PREFIXDIR_BLOCK;
    d->gain = o->gain > 0 ? o->gain : GAIN;
    d->fetches_end = &d->fetches;
    d->outs_end = &d->outs;
    pthread_mutex_init(&d->nudge, NULL);
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->to_read, NULL);
    pthread_cond_init(&d->to_write, NULL);
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
    while (d->fetches) { /* abandoned ones that nobody came to */
        struct tier_fetch *f = d->fetches;
        d->fetches = f->next;
        free_fetch(f);
    }
    prefixdir_free(d->dir);
    pthread_mutex_destroy(&d->nudge);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->to_read);
    pthread_cond_destroy(&d->to_write);
    free(d->path);
    free(d);
}
