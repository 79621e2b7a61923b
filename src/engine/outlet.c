/* Kept states on their way elsewhere. What is kept does not change, so another thread may
 * read it beside whatever the engine computes: values from host memory, pages from where
 * they lie. */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/impl.h"

enum { COPY = LANE_BYTES / 2 };

struct engine_outlet {
    /* constant; of no use once it is closed */
    struct engine *g;
    uint64_t size;
    const uint8_t *values; /* borrowed, of the kept state */
    size_t n_values;
    int32_t *pages;
    size_t n_pages;
    int len;
    struct be_lane *lane; /* NULL: pages lie in host memory */
    uint8_t header[STATE_HEADER];

    /* who reads */
    void *buffer;        /* the lane's */
    size_t held, n_held; /* which bytes of the pages it has */
    uint8_t *last; /* a copy of the last page without what others left in it; NULL: none yet */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t idle;
    bool reading, closed;
};

int engine_outlet_open(struct engine *g, const struct engine_snap *s, struct engine_outlet **out,
                       struct err *e)
{
    struct be_lane *lane = NULL;
    int rc = g->ops->settle ? g->ops->settle(g->b, e) : 0;
    rc = rc < 0 ? rc : lane_take(g, &lane, e);
    void *buffer = NULL;
    if (rc == 0 && lane) {
        rc = g->ops->lane_buffer(lane, &buffer, e);
    }
    if (rc < 0) {
        lane_give(g, lane);
        return rc;
    }
    struct engine_outlet *o = mem_zalloc(sizeof *o);
    int n = 0;
    const int32_t *pages = NULL;
    o->g = g;
    o->lane = lane;
    o->buffer = buffer;
    o->values = snap_parts(s, &pages, &n);
    o->n_values = g->ops->state_size(g->b);
    o->size = engine_snap_state_size(g, s);
    o->pages = mem_array((size_t)n + 1, sizeof *o->pages);
    memcpy(o->pages, pages, (size_t)n * sizeof *o->pages);
    o->n_pages = (size_t)n;
    o->len = engine_snap_len(s);
    state_header(g, o->len, engine_snap_pure(s), o->header);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->idle, NULL);
    *out = o;
    return 0;
}

/* Bytes of the pages from `in` on into the lane's buffer, as many as lie behind each other,
 * up to COPY: copies of twice that cost a stream of tokens beside them more. */
static int fetch(struct engine_outlet *o, size_t in, struct err *e)
{
    const struct be_ops *ops = o->g->ops;
    size_t run = 0;
    const void *from = lane_place(o->g, -1, o->pages, in, &run);
    run = run < COPY ? run : COPY;
    o->n_held = 0;
    int rc = ops->lane_get(o->lane, o->buffer, from, run, e);
    rc = rc < 0 ? rc : ops->lane_wait(o->lane, e);
    if (rc == 0) {
        o->held = in;
        o->n_held = run;
    }
    return rc;
}

/* Up to n bytes of the pages from `in` on: *run of them. */
static int fetch_pages(struct engine_outlet *o, size_t in, void *dst, size_t n, size_t *run,
                       struct err *e)
{
    const void *from = NULL;
    if (!o->lane) {
        from = lane_place(o->g, -1, o->pages, in, run);
    } else {
        const bool there = in >= o->held && in - o->held < o->n_held;
        const int rc = there ? 0 : fetch(o, in, e);
        if (rc < 0) {
            return rc;
        }
        from = (const uint8_t *)o->buffer + (in - o->held);
        *run = o->n_held - (in - o->held);
    }
    *run = *run < n ? *run : n;
    memcpy(dst, from, *run);
    return 0;
}

static int copy_last(struct engine_outlet *o, size_t in, struct err *e)
{
    const size_t page = o->g->ops->page_size(o->g->b);
    uint8_t *p = mem_alloc(page);
    int rc = 0;
    for (size_t at = 0, run = 0; at < page && rc == 0; at += run) {
        rc = fetch_pages(o, in + at, p + at, page - at, &run, e);
    }
    if (rc < 0) {
        free(p);
        return rc;
    }
    o->g->ops->page_trim(o->g->b, o->len - (int)(o->n_pages - 1) * BE_PAGE, p);
    o->last = p;
    return 0;
}

static int read_pages(struct engine_outlet *o, size_t in, void *dst, size_t n, size_t *run,
                      struct err *e)
{
    const size_t last = o->n_values + (o->n_pages - 1) * o->g->ops->page_size(o->g->b);
    if (in < last) {
        return fetch_pages(o, in, dst, n, run, e);
    }
    const int rc = o->last ? 0 : copy_last(o, last, e);
    if (rc == 0) {
        *run = n;
        memcpy(dst, o->last + (in - last), n);
    }
    return rc;
}

static int read_bytes(struct engine_outlet *o, uint64_t at, uint8_t *p, size_t n, struct err *e)
{
    int rc = 0;
    while (n > 0 && rc == 0) {
        size_t run = 0;
        const size_t in = (size_t)at - STATE_HEADER;
        if (at < STATE_HEADER) {
            run = STATE_HEADER - (size_t)at < n ? STATE_HEADER - (size_t)at : n;
            memcpy(p, o->header + at, run);
        } else if (in < o->n_values) {
            run = o->n_values - in < n ? o->n_values - in : n;
            memcpy(p, o->values + in, run);
        } else {
            rc = read_pages(o, in, p, n, &run, e);
        }
        at += run;
        p += run;
        n -= run;
    }
    return rc;
}

/* engine_saved.read */
static int read_outlet(void *ctx, uint64_t at, void *dst, size_t n, struct err *e)
{
    struct engine_outlet *o = ctx;
    pthread_mutex_lock(&o->lock);
    const bool closed = o->closed;
    o->reading = !closed;
    pthread_mutex_unlock(&o->lock);
    if (closed) {
        return err_set(e, QE_CANCELLED, "the state was given up: its memory was needed");
    }
    const int rc =
        at > o->size || n > o->size - at
            ? err_set(e, QE_INTERNAL, "a kept state has no byte %llu", (unsigned long long)(at + n))
            : read_bytes(o, at, dst, n, e);
    pthread_mutex_lock(&o->lock);
    o->reading = false;
    pthread_cond_signal(&o->idle);
    pthread_mutex_unlock(&o->lock);
    return rc;
}

struct engine_saved engine_outlet_blob(struct engine_outlet *o)
{
    return (struct engine_saved){.size = o->size, .unit = 1, .read = read_outlet, .ctx = o};
}

void engine_outlet_close(struct engine_outlet *o)
{
    pthread_mutex_lock(&o->lock);
    const bool before = o->closed;
    o->closed = true;
    while (o->reading) {
        pthread_cond_wait(&o->idle, &o->lock);
    }
    pthread_mutex_unlock(&o->lock);
    if (!before) {
        lane_give(o->g, o->lane);
    }
}

void engine_outlet_free(struct engine_outlet *o)
{
    if (o) {
        pthread_mutex_destroy(&o->lock);
        pthread_cond_destroy(&o->idle);
        free(o->pages);
        free(o->last);
        free(o);
    }
}
