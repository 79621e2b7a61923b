/* States leave the engine and come back beside its steps: one that leaves is kept as it is
 * and read by somebody else while the live may go on; one that comes is brought by the
 * engine's own threads. The engine thread only begins and ends that. */
#include "config.h"
#include "sched/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sched/job.h"

struct transfer *transfer_create(struct sched *s, struct live *l, bool in, int wake_fd)
{
    struct transfer *t = mem_zalloc(sizeof *t);
    t->in = in;
    t->wake_fd = wake_fd;
    t->live = l;
    t->sched = s;
    live_ref(l);
    t->seq = -1;
    atomic_init(&t->refs, 2);
    atomic_init(&t->cancel, 0);
    atomic_init(&t->done, 0);
    return t;
}

void transfer_unref(struct transfer *t)
{
    if (atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1) {
        live_unref(t->live);
        engine_outlet_free(t->outlet);
        free(t->ids);
        free(t);
    }
}

/* ---- engine thread ---- */

static bool end(struct transfer *t)
{
    atomic_store_explicit(&t->done, 1, memory_order_release);
    wake(t->wake_fd);
    return true;
}

static bool fail(struct transfer *t, struct engine *g)
{
    if (t->intake) {
        (void)engine_intake_close(t->intake, NULL);
        t->intake = NULL;
    }
    if (t->seq >= 0) {
        engine_seq_close(g, t->seq);
        t->seq = -1;
    }
    if (t->in && t->begun) {
        t->live->busy = false;
    }
    return end(t);
}

static int gone_on(struct transfer *t)
{
    return err_set(&t->err, QE_CANCELLED, "the conversation went on before its state was copied");
}

static int step_out(struct transfer *t, struct engine *g)
{
    const struct live *l = t->live;
    if (l->busy) {
        return gone_on(t);
    }
    if (l->seq < 0) {
        return err_set(&t->err, QE_NOTFOUND, "there is no state of this conversation");
    }
    int rc = engine_snap_take(g, l->seq, &t->snap, &t->err);
    rc = rc < 0 ? rc : engine_outlet_open(g, t->snap, &t->outlet, &t->err);
    if (rc < 0) {
        engine_snap_free(g, t->snap);
        t->snap = NULL;
        return rc;
    }
    t->n_ids = l->n;
    t->ids = mem_array((size_t)l->n + 1, sizeof *t->ids);
    memcpy(t->ids, l->ids, (size_t)l->n * sizeof *t->ids);
    return 0;
}

static bool step_in(struct transfer *t, struct engine *g, int ms,
                    int (*open_seq)(void *ctx, int *seq, struct err *e), void *ctx)
{
    struct live *l = t->live;
    int rc = 0;
    if (!t->begun) {
        if (l->busy) {
            gone_on(t);
            return fail(t, g);
        }
        t->begun = true;
        l->busy = true;
        live_drop(l, g);
        rc = open_seq(ctx, &t->seq, &t->err);
        rc = rc < 0 ? rc : engine_intake_open(g, t->seq, t->n_ids, &t->saved, &t->intake, &t->err);
    }
    if (rc == 0) {
        if (!engine_intake_wait(t->intake, ms)) {
            return false;
        }
        rc = engine_intake_close(t->intake, &t->err);
        t->intake = NULL;
    }
    if (rc < 0) {
        return fail(t, g);
    }
    live_keep(l, t->seq, t->ids, t->n_ids);
    l->busy = false;
    t->ids = NULL;
    t->seq = -1;
    return end(t);
}

bool transfer_step(struct transfer *t, struct engine *g, int ms,
                   int (*open_seq)(void *ctx, int *seq, struct err *e), void *ctx)
{
    if (transfer_left(t)) {
        err_set(&t->err, QE_CANCELLED, "nobody waits for it any more");
        return fail(t, g);
    }
    if (t->in) {
        return step_in(t, g, ms, open_seq, ctx);
    }
    return step_out(t, g) < 0 ? fail(t, g) : end(t);
}

void transfer_drop(struct transfer *t, struct engine *g)
{
    err_set(&t->err, QE_CANCELLED, "the engine is closing");
    (void)fail(t, g);
}

bool transfer_holds(const struct transfer *t)
{
    return t->snap != NULL;
}

void transfer_clear(struct transfer *t, struct engine *g)
{
    if (t->snap) {
        engine_outlet_close(t->outlet);
        engine_snap_free(g, t->snap);
        t->snap = NULL;
    }
}

bool transfer_left(const struct transfer *t)
{
    return atomic_load_explicit(&t->cancel, memory_order_relaxed);
}

/* ---- who asked ---- */

bool transfer_done(const struct transfer *t)
{
    return atomic_load_explicit(&t->done, memory_order_acquire);
}

int transfer_result(const struct transfer *t, struct err *e)
{
    if (t->err.code < 0 && e) {
        *e = t->err;
    }
    return t->err.code;
}

const int32_t *transfer_ids(const struct transfer *t, size_t *n)
{
    *n = (size_t)t->n_ids;
    return t->ids;
}

struct engine_saved transfer_blob(const struct transfer *t)
{
    return engine_outlet_blob(t->outlet);
}

void transfer_free(struct transfer *t)
{
    if (t) {
        atomic_store_explicit(&t->cancel, 1, memory_order_relaxed);
        if (atomic_load_explicit(&t->refs, memory_order_relaxed) > 1) {
            sched_nudge(t->sched); /* the engine thread has something of it */
        }
        transfer_unref(t);
    }
}
