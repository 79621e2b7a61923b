/*
 * What opening does beside the upload, on a thread of its own, because none of it needs
 * the weights: the other allocations, the decode plans, tables, and making the device
 * load the kernels of the first steps, which otherwise happens when each first runs.
 * Afterwards a thread gives back what only the upload needed.
 */
#include "config.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cuda/host.h"
#include "kernels/geometry.h"

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* ---- memory ---- */

/* One zeroed block of device memory. */
static int block(struct backend *b, size_t bytes, void **out)
{
    int status = rt_alloc(b->rt, bytes, out);
    return status ? status : rt_fill(b->rt, *out, 0, bytes);
}

static int open_memory(struct backend *b)
{
    const size_t state = (size_t)b->slots * b->slot_floats * sizeof(float);
    int status = block(b, state, &b->state_mem);
    status = status ? status : block(b, (size_t)b->pages * b->page_bytes, &b->cache_mem);
    status = status ? status : block(b, b->work_bytes, &b->work_mem);
    if (status == 0) {
        b->state = b->state_mem;
        b->cache = b->cache_mem;
        cuda_work_place(b, b->work_mem);
    }
    return status;
}

/* ---- decode plans ---- */

struct plan_maker {
    struct backend *b;
    size_t work;
    int status;
};

static void make(struct plan_maker *m, const struct cu_mat *mats, int n, struct cu_mm_plan **out)
{
    const struct cu_mat *list[4];
    for (int i = 0; i < n; i++) {
        list[i] = &mats[i];
    }
    if (m->status == 0) {
        m->status = cu_mm_plan_create(&m->b->cu, list, n, out);
    }
    if (m->status == 0) {
        m->work = most(m->work, cu_mm_work(*out));
    }
}

static void make_layer(struct plan_maker *m, struct cuda_layer *l, bool mtp)
{
    make(m, l->in, l->n_in, &l->p_in);
    if (mtp) {
        make(m, l->in + 1, 2, &l->p_kv);
    }
    make(m, &l->out, 1, &l->p_out);
    make(m, &l->gate_up, 1, &l->p_gate_up);
    make(m, &l->down, 1, &l->p_down);
}

static int open_plans(struct backend *b)
{
    struct plan_maker m = {.b = b};
    for (int i = 0; i < b->shape.layers; i++) {
        make_layer(&m, &b->layers[i], false);
    }
    make(&m, &b->head, 1, &b->p_head);
    if (b->weights.head_copy.data) {
        make(&m, &b->copy, 1, &b->p_copy);
    }
    if (b->shape.mtp) {
        make_layer(&m, &b->layers[b->shape.layers], true);
        make(&m, &b->fc, 1, &b->p_fc);
    }
    return m.status ? m.status : block(b, most(m.work, 256), &b->mm_mem);
}

static void close_plans(struct backend *b)
{
    for (int i = 0; i <= b->shape.layers; i++) {
        struct cuda_layer *l = &b->layers[i];
        cu_mm_plan_free(l->p_in);
        cu_mm_plan_free(l->p_kv);
        cu_mm_plan_free(l->p_out);
        cu_mm_plan_free(l->p_gate_up);
        cu_mm_plan_free(l->p_down);
    }
    cu_mm_plan_free(b->p_head);
    cu_mm_plan_free(b->p_copy);
    cu_mm_plan_free(b->p_fc);
}

/* ---- tables ---- */

static int open_pass(struct backend *b, int graphs)
{
    uint8_t axis[BE_ROT_DIM / 2];
    double inv_freq[BE_ROT_DIM / 2];
    void *ids = NULL;
    be_rope(&b->shape, axis, inv_freq);
    b->parity = mem_array((size_t)b->slots, sizeof *b->parity);
    b->span = mem_array((size_t)b->max_rows, sizeof *b->span);
    b->list_cap = 2 * b->shape.layers + 64;
    b->list.op = mem_array((size_t)b->list_cap, sizeof *b->list.op);
    b->last.op = mem_array((size_t)b->list_cap, sizeof *b->last.op);
    cuda_graphs_open(b, graphs);
    int status = cuda_block_open(b, &b->dec, CUDA_STAGES);
    status = status ? status : cuda_block_open(b, &b->pre, 2);
    status = status ? status : rt_pin(b->rt, 2 * CUDA_MAX_OUT * sizeof(int32_t), &ids);
    b->host_ids = ids;
    status = status ? status : rt_upload(b->rt, b->axis, axis, sizeof axis);
    status = status ? status : rt_upload(b->rt, b->inv_freq, inv_freq, sizeof inv_freq);
    return status ? status : rt_sync(b->rt);
}

/* ---- kernels ---- */

/* Every operation of a prefill of so many rows, dry. */
static int load_prefill(struct backend *dry, int rows)
{
    const struct be_shape *s = &dry->shape;
    struct cuda_op op = {.kind = OP_EMBED};
    dry->mode = BE_PREFILL;
    dry->n_rows = rows;
    dry->n_spans = 1;
    int status = cuda_prefill_op(dry, op);
    for (int i = 0; i < s->layers && status == 0; i++) {
        op = (struct cuda_op){.kind = s->attention[i] ? OP_ATTENTION : OP_GDN, .layer = (int16_t)i};
        status = cuda_prefill_op(dry, op);
        op.kind = OP_FFN;
        status = status ? status : cuda_prefill_op(dry, op);
    }
    op = (struct cuda_op){.kind = OP_FINAL};
    status = status ? status : cuda_prefill_op(dry, op);
    const enum cuda_op_kind mtp[] = {OP_MTP_EMBED, OP_MTP_KV};
    for (int i = 0; i < 2 && s->mtp && status == 0; i++) {
        op = (struct cuda_op){.kind = (uint8_t)mtp[i], .layer = (int16_t)s->layers};
        status = cuda_prefill_op(dry, op);
    }
    return status;
}

/* What comes after a prefill, and with `step` a decode step before it, dry. */
static int load_decode(struct backend *dry, bool step)
{
    const struct be_shape *s = &dry->shape;
    struct cuda_list l = {.outs = 1, .saves = 1, .spread = step, .depth = 1};
    l.op = mem_array((size_t)dry->list_cap, sizeof *l.op);
    if (step) {
        l.batch[0] = l.batch[1] = (struct cuda_bounds){1, 1, (int32_t)BE_DECODE};
        l.n_batches = s->mtp ? 2 : 1;
        l.op[l.n++] = (struct cuda_op){.kind = OP_EMBED};
        for (int i = 0; i < s->layers; i++) {
            l.op[l.n++] = (struct cuda_op){.kind = s->attention[i] ? OP_ATTENTION : OP_GDN,
                                           .layer = (int16_t)i};
            l.op[l.n++] = (struct cuda_op){.kind = OP_FFN, .layer = (int16_t)i};
        }
        l.op[l.n++] = (struct cuda_op){.kind = OP_FINAL};
    }
    l.op[l.n++] = (struct cuda_op){.kind = OP_HEAD};
    if (step && s->mtp) {
        l.op[l.n++] = (struct cuda_op){.kind = OP_MTP_EMBED, .batch = 1};
        l.op[l.n++] = (struct cuda_op){.kind = OP_MTP_KV, .batch = 1, .layer = (int16_t)s->layers};
    }
    l.op[l.n++] = (struct cuda_op){.kind = OP_SAVE};
    l.op[l.n++] = (struct cuda_op){.kind = OP_ARGMAX};
    const int status = cuda_pass_run(dry, &l);
    free(l.op);
    return status;
}

/* On a copy of the backend, whose launches launch nothing. */
static int load_kernels(const struct backend *b)
{
    struct backend *dry = mem_alloc(sizeof *dry);
    memcpy(dry, b, sizeof *dry);
    dry->cu.dry = true;
    int status = load_prefill(dry, BE_BLOCK);
    status = status ? status : load_decode(dry, false);
    status = status ? status : load_decode(dry, true);
    status = status ? status : load_prefill(dry, b->max_rows);
    free(dry);
    return status;
}

/* ---- the thread ---- */

struct cuda_ready {
    struct backend *b;
    pthread_t thread;
    int graphs, status;
    const char *doing;
    struct phases phases;
};

static int make_ready(struct cuda_ready *r)
{
    struct backend *b = r->b;
    const struct {
        const char *doing, *phase;
    } t[] = {{"taking device memory", "memory"},
             {"planning the products", "plans"},
             {"making tables", "tables"},
             {"loading the kernels", "kernels"}};
    int status = rt_enter(b->rt);
    for (size_t i = 0; i < sizeof t / sizeof *t && status == 0; i++) {
        const int64_t from = clock_now(clock_real());
        r->doing = t[i].doing;
        status = i == 0   ? open_memory(b)
                 : i == 1 ? open_plans(b)
                 : i == 2 ? open_pass(b, r->graphs)
                          : load_kernels(b);
        phases_add(&r->phases, t[i].phase, clock_seconds(clock_now(clock_real()) - from), true);
    }
    return status;
}

static void *ready_thread(void *arg)
{
    struct cuda_ready *r = arg;
    r->status = make_ready(r);
    atomic_store(&r->b->given_up, r->status != 0);
    return NULL;
}

/* Signals are the program's, not ours. */
static int start(pthread_t *t, void *(*fn)(void *), void *arg, struct err *e)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int rc = pthread_create(t, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? 0 : err_sys(e, QE_NOMEM, rc, "cannot start a thread");
}

int cuda_ready_begin(struct backend *b, int graphs, struct err *e)
{
    struct cuda_ready *r = mem_zalloc(sizeof *r);
    r->b = b;
    r->graphs = graphs;
    int rc = start(&r->thread, ready_thread, r, e);
    if (rc < 0) {
        free(r);
        return rc;
    }
    b->ready = r;
    return 0;
}

void cuda_ready_wait(struct backend *b)
{
    pthread_join(b->ready->thread, NULL);
}

int cuda_ready_end(struct backend *b, int rc, struct err *e)
{
    struct cuda_ready *r = b->ready;
    phases_append(&b->start, &r->phases);
    if (rc == 0 && r->status) {
        b->doing = r->doing;
        rc = cuda_fail(b, r->status, e);
    }
    free(r);
    b->ready = NULL;
    return rc;
}

void cuda_ready_close(struct backend *b)
{
    close_plans(b);
    cuda_block_close(b, &b->dec);
    cuda_block_close(b, &b->pre);
    rt_unpin(b->rt, b->host_ids);
}

/* ---- afterwards ---- */

static void *tidy_thread(void *arg)
{
    struct backend *b = arg;
    if (rt_enter(b->rt) == 0) {
        cuda_upload_free(b->upload);
        b->upload = NULL;
    }
    return NULL;
}

int cuda_tidy_begin(struct backend *b, struct err *e)
{
    int rc = start(&b->tidy, tidy_thread, b, e);
    b->tidying = rc == 0;
    return rc;
}

void cuda_tidy_end(struct backend *b)
{
    if (b->tidying) {
        pthread_join(b->tidy, NULL);
        b->tidying = false;
    }
    cuda_upload_free(b->upload);
    b->upload = NULL;
}
