/* States that come from elsewhere. Several threads take the blob's pieces one after the
 * other: each reads a piece into a buffer of its own (or to its very place, where that is
 * host memory), where it is checked, and sends it on to its place while it reads the next.
 * Nobody knows of the places before all is there: the sequence is empty until then. */
#include "config.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/impl.h"

#define MOST 15 /* threads; more do not read faster */

struct hand {
    struct engine_intake *k;
    pthread_t thread;
    struct be_lane *lane; /* NULL: the places are host memory */
    uint8_t *buffer;      /* without a lane: for pieces that lie in several places */
    int64_t reading, waiting;
};

struct engine_intake {
    /* constant */
    struct engine *g;
    struct engine_saved blob;
    int seq, len;
    int32_t *pages;
    size_t piece; /* bytes */
    uint64_t n;   /* pieces */
    double opening;

    struct hand hands[MOST];
    int n_hands;
    atomic_ullong next; /* piece */
    atomic_bool stop;
    uint8_t header[STATE_HEADER]; /* written by who has the first piece */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t over;
    int running;
    struct err err; /* the first; code 0: none */
};

int intake_readers(int threads)
{
    if (threads <= 0) {
        threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    }
    return threads < 3 ? 2 : threads > MOST ? MOST : threads - 1; /* they wait for the disk too */
}

/* ---- the threads ---- */

/* Takes the n bytes at p, from `at` of the blob on, to their places. */
static int deliver(struct hand *h, uint64_t at, const uint8_t *p, size_t n, struct err *e)
{
    const struct engine_intake *k = h->k;
    const struct be_ops *ops = k->g->ops;
    int rc = 0;
    while (n > 0 && rc == 0) {
        size_t run = 0;
        void *to = lane_place(k->g, k->seq, k->pages, (size_t)at - STATE_HEADER, &run);
        run = run < n ? run : n;
        if (h->lane) {
            rc = ops->lane_put(h->lane, to, p, run, e);
        } else {
            memcpy(to, p, run);
        }
        at += run;
        p += run;
        n -= run;
    }
    return rc;
}

/* The one place of a piece in host memory; NULL: it has none. */
static void *direct(const struct hand *h, uint64_t at, size_t n)
{
    size_t run = 0;
    if (h->lane || at < STATE_HEADER) {
        return NULL;
    }
    void *to = lane_place(h->k->g, h->k->seq, h->k->pages, (size_t)at - STATE_HEADER, &run);
    return run < n ? NULL : to;
}

static int buffer_of(struct hand *h, void **out, struct err *e)
{
    const int64_t from = clock_now(clock_real());
    int rc = 0;
    *out = h->buffer;
    if (h->lane) {
        rc = h->k->g->ops->lane_buffer(h->lane, out, e);
    }
    h->waiting += clock_now(clock_real()) - from;
    return rc;
}

static int bring(struct hand *h, uint64_t index, struct err *e)
{
    struct engine_intake *k = h->k;
    const uint64_t at = index * k->piece, left = k->blob.size - at;
    const size_t n = left < k->piece ? (size_t)left : k->piece;
    void *place = direct(h, at, n), *to = place;
    int rc = place ? 0 : buffer_of(h, &to, e);
    const int64_t from = clock_now(clock_real());
    rc = rc < 0 ? rc : k->blob.read(k->blob.ctx, at, to, n, e);
    h->reading += clock_now(clock_real()) - from;
    if (rc < 0 || place) {
        return rc;
    }
    const size_t skip = index == 0 ? STATE_HEADER : 0;
    if (skip > 0) {
        memcpy(k->header, to, skip);
    }
    return deliver(h, at + skip, (const uint8_t *)to + skip, n - skip, e);
}

static void *hand_thread(void *arg)
{
    struct hand *h = arg;
    struct engine_intake *k = h->k;
    struct err e = ERR_INIT;
    int rc = 0;
    while (rc == 0 && !atomic_load_explicit(&k->stop, memory_order_relaxed)) {
        const uint64_t i = atomic_fetch_add_explicit(&k->next, 1, memory_order_relaxed);
        if (i >= k->n) {
            break;
        }
        rc = bring(h, i, &e);
    }
    if (h->lane) { /* also after a failure: what is on its way must not arrive later */
        const int64_t from = clock_now(clock_real());
        const int end = k->g->ops->lane_wait(h->lane, rc < 0 ? NULL : &e);
        rc = rc < 0 ? rc : end;
        h->waiting += clock_now(clock_real()) - from;
    }
    if (rc < 0) {
        atomic_store_explicit(&k->stop, true, memory_order_relaxed);
    }
    pthread_mutex_lock(&k->lock);
    if (rc < 0 && k->err.code == 0) {
        k->err = e;
        k->err.code = rc;
    }
    if (--k->running == 0) {
        pthread_cond_signal(&k->over);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* ---- the engine's thread ---- */

static int start(struct engine_intake *k, struct err *e)
{
    sigset_t all, before; /* signals are the program's, not ours */
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&k->lock);
    const int n = (uint64_t)k->g->readers < k->n ? k->g->readers : (int)k->n;
    while (k->n_hands < n && rc == 0) {
        struct hand *h = &k->hands[k->n_hands];
        h->k = k;
        struct err *tell = k->n_hands == 0 ? e : NULL; /* fewer will do */
        rc = lane_take(k->g, &h->lane, tell);
        if (rc == 0 && !h->lane) {
            h->buffer = mem_alloc(k->piece);
        }
        if (rc == 0 && pthread_create(&h->thread, NULL, hand_thread, h) != 0) {
            lane_give(k->g, h->lane);
            free(h->buffer);
            rc = err_set(tell, QE_NOMEM, "cannot start a thread that reads a saved state");
        }
        k->n_hands += rc == 0;
    }
    k->running = k->n_hands;
    pthread_mutex_unlock(&k->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return k->n_hands > 0 ? 0 : rc;
}

static void intake_free(struct engine_intake *k)
{
    for (int i = 0; i < k->n_hands; i++) {
        lane_give(k->g, k->hands[i].lane);
        free(k->hands[i].buffer);
    }
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->over);
    free(k->pages);
    free(k);
}

static int check_saved(const struct engine *g, int len, const struct engine_saved *b, struct err *e)
{
    if (len < 0 || len > g->ctx) {
        return err_set(e, QE_NOMEM, "the saved state has %d tokens; the window holds %d", len,
                       g->ctx);
    }
    const size_t want = state_blob_size(g, len);
    return b->size == want ? 0
                           : err_set(e, QE_FORMAT, "the saved state has %llu bytes instead of %zu",
                                     (unsigned long long)b->size, want);
}

/* A lane's buffer, or less, so that a small state has some pieces for every thread; the
 * header in one. */
static size_t piece_size(const struct engine *g, const struct engine_saved *b)
{
    const uint64_t least = STATE_HEADER / b->unit + 1, most = LANE_BYTES / b->unit;
    uint64_t units = b->size / b->unit / (uint64_t)(4 * g->readers) + 1;
    units = units > least ? units : least;
    return (size_t)(units < most ? units : most) * b->unit;
}

int engine_intake_open(struct engine *g, int seq, int len, const struct engine_saved *b,
                       struct engine_intake **out, struct err *e)
{
    const int64_t from = clock_now(clock_real());
    struct seq *s = NULL;
    int rc = engine_seq_of(g, seq, &s, e);
    assert(b->unit > 0 && b->unit <= LANE_BYTES);
    rc = rc < 0 ? rc : check_saved(g, len, b, e);
    if (rc < 0) {
        return rc;
    }
    engine_seq_reset(g, seq);
    rc = kv_writable(&g->pool, &s->kv, 0, len, e);
    if (rc == 0 && g->ops->settle) {
        rc = g->ops->settle(g->b, e);
    }
    if (rc < 0) {
        engine_seq_reset(g, seq);
        return rc;
    }
    struct engine_intake *k = mem_zalloc(sizeof *k);
    k->g = g;
    k->blob = *b;
    k->seq = seq;
    k->len = len;
    k->piece = piece_size(g, b);
    k->n = (b->size + k->piece - 1) / k->piece;
    k->pages = mem_array((size_t)s->kv.n + 1, sizeof *k->pages);
    memcpy(k->pages, s->kv.pages, (size_t)s->kv.n * sizeof *k->pages);
    atomic_init(&k->next, 0);
    atomic_init(&k->stop, false);
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&k->over, &attr);
    pthread_condattr_destroy(&attr);
    rc = start(k, e);
    k->opening = clock_seconds(clock_now(clock_real()) - from);
    if (rc < 0) {
        engine_seq_reset(g, seq);
        intake_free(k);
        return rc;
    }
    *out = k;
    return 0;
}

bool engine_intake_wait(struct engine_intake *k, int ms)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += ms / 1000;
    end.tv_nsec += ms % 1000 * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    int rc = 0;
    pthread_mutex_lock(&k->lock);
    while (k->running > 0 && rc == 0 && ms > 0) {
        rc = pthread_cond_timedwait(&k->over, &k->lock, &end);
    }
    const bool over = k->running == 0;
    pthread_mutex_unlock(&k->lock);
    return over;
}

int engine_intake_close(struct engine_intake *k, struct err *e)
{
    struct engine *g = k->g;
    int len = 0, rc = 0;
    bool pure = false;
    if (!engine_intake_wait(k, 0)) {
        rc = err_set(e, QE_CANCELLED, "nobody waits for the saved state any more");
    }
    atomic_store_explicit(&k->stop, true, memory_order_relaxed);
    for (int i = 0; i < k->n_hands; i++) {
        pthread_join(k->hands[i].thread, NULL);
    }
    if (rc == 0 && k->err.code < 0) {
        rc = k->err.code;
        if (e) {
            *e = k->err;
        }
    }
    rc = rc < 0 ? rc : state_check_header(g, k->header, (size_t)k->blob.size, &len, &pure, e);
    if (rc == 0 && len != k->len) {
        rc = err_set(e, QE_FORMAT, "the saved state stands after %d tokens, not %d", len, k->len);
    }
    if (rc < 0) {
        engine_seq_reset(g, k->seq);
    } else {
        g->seqs[k->seq].len = len;
        g->seqs[k->seq].pure = pure;
    }
    intake_free(k);
    return rc;
}

struct engine_intake_times engine_intake_times(const struct engine_intake *k)
{
    struct engine_intake_times t = {.threads = k->n_hands, .open = k->opening};
    for (int i = 0; i < k->n_hands; i++) {
        t.read += clock_seconds(k->hands[i].reading);
        t.sent += clock_seconds(k->hands[i].waiting);
    }
    return t;
}
