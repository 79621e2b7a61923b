/* States leave the engine and come back a piece at a time, between two steps, so
 * that a stream beside them waits for no more than a piece. A state goes out as
 * it was when the transfer began, or not at all: the live counts its changes. */
#include "config.h"
#include "sched/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sched/job.h"

struct transfer *transfer_create(struct live *l, bool in, int wake_fd)
{
    struct transfer *t = mem_zalloc(sizeof *t);
    t->in = in;
    t->wake_fd = wake_fd;
    t->live = l;
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
        free(t->ids);
        free(t->blob);
        free(t);
    }
}

/* ---- engine thread ---- */

static void end(struct transfer *t)
{
    atomic_store_explicit(&t->done, 1, memory_order_release);
    wake(t->wake_fd);
    transfer_unref(t);
}

static bool fail(struct transfer *t, struct engine *g)
{
    if (t->seq >= 0) {
        engine_seq_close(g, t->seq);
        t->seq = -1;
    }
    if (t->in && t->begun) {
        t->live->busy = false;
    }
    end(t);
    return true;
}

static int gone_on(struct transfer *t)
{
    return err_set(&t->err, QE_CANCELLED, "the conversation went on before its state was copied");
}

static int begin_out(struct transfer *t, struct engine *g)
{
    const struct live *l = t->live;
    if (l->busy) {
        return gone_on(t);
    }
    if (l->seq < 0) {
        return err_set(&t->err, QE_NOTFOUND, "there is no state of this conversation");
    }
    t->version = l->version;
    t->size = engine_seq_state_size(g, l->seq);
    t->blob = malloc(t->size);
    t->n_ids = l->n;
    t->ids = malloc((size_t)l->n * sizeof *t->ids);
    if (!t->blob || !t->ids) {
        return err_set(&t->err, QE_NOMEM, "there is no memory for a copy of %zu bytes", t->size);
    }
    memcpy(t->ids, l->ids, (size_t)l->n * sizeof *t->ids);
    return 0;
}

static bool step_out(struct transfer *t, struct engine *g, size_t budget)
{
    int rc = t->begun ? 0 : begin_out(t, g);
    t->begun = true;
    if (rc == 0 && (t->live->seq < 0 || t->live->version != t->version)) {
        rc = gone_on(t);
    }
    if (rc == 0) {
        rc = engine_seq_export_piece(g, t->live->seq, t->blob, &t->at, budget, &t->err);
    }
    if (rc < 0) {
        return fail(t, g);
    }
    if (t->at == t->size) {
        end(t);
        return true;
    }
    return false;
}

static bool step_in(struct transfer *t, struct engine *g, size_t budget,
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
    }
    if (rc == 0) {
        rc = engine_seq_import_piece(g, t->seq, t->blob, t->size, &t->at, budget, &t->err);
    }
    if (rc == 0 && t->at == t->size && engine_seq_len(g, t->seq) != t->n_ids) {
        rc = err_set(&t->err, QE_FORMAT, "the saved state stands after %d tokens, not %d",
                     engine_seq_len(g, t->seq), t->n_ids);
    }
    if (rc < 0) {
        return fail(t, g);
    }
    if (t->at < t->size) {
        return false;
    }
    live_keep(l, t->seq, t->ids, t->n_ids);
    l->busy = false;
    t->ids = NULL;
    t->seq = -1;
    end(t);
    return true;
}

bool transfer_step(struct transfer *t, struct engine *g, size_t budget,
                   int (*open_seq)(void *ctx, int *seq, struct err *e), void *ctx)
{
    if (atomic_load_explicit(&t->cancel, memory_order_relaxed)) {
        err_set(&t->err, QE_CANCELLED, "nobody waits for it any more");
        return fail(t, g);
    }
    return t->in ? step_in(t, g, budget, open_seq, ctx) : step_out(t, g, budget);
}

void transfer_drop(struct transfer *t, struct engine *g)
{
    err_set(&t->err, QE_CANCELLED, "the engine is closing");
    (void)fail(t, g);
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

const void *transfer_blob(const struct transfer *t, size_t *n)
{
    *n = t->size;
    return t->blob;
}

void transfer_free(struct transfer *t)
{
    if (t) {
        atomic_store_explicit(&t->cancel, 1, memory_order_relaxed);
        transfer_unref(t);
    }
}
