/*
 * Opening the CUDA backend: checks, the memory plan, room for the weights; then the
 * upload, and all the rest (ready.c) beside it. No call after it allocates device memory
 * but for graphs.
 */
#include "config.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/plan.h"
#include "kernels/geometry.h"

/* ---- what follows from the shape, without a device ---- */

/* Inputs come in steps of 64, outputs that add up in rows of the stream too. */
static int check_widths(const struct be_shape *s, struct err *e)
{
    const struct {
        const char *name;
        int value;
    } t[] = {{"hidden size", s->hidden}, {"FFN size", s->ffn}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        if (t[i].value % 64 != 0) {
            return err_set(e, QE_UNSUPPORTED,
                           "the CUDA backend wants multiples of 64; the model's %s is %d: use "
                           "--backend cpu",
                           t[i].name, t[i].value);
        }
    }
    return 0;
}

static int check(const struct be_shape *shape, const struct be_weights *weights,
                 const struct be_opts *opts, struct err *e)
{
    int rc = be_check_shape(shape, opts, e);
    if (rc == 0 && opts->kv == BE_KV_F32) {
        rc = err_set(e, QE_UNSUPPORTED,
                     "the CUDA backend keeps keys and values as fp16 at most: give --kv fp16, or "
                     "--backend cpu");
    }
    rc = rc < 0 ? rc : check_widths(shape, e);
    return rc < 0 ? rc : be_check_weights(shape, weights, e);
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void state_sizes(struct backend *b)
{
    const struct be_shape *s = &b->shape;
    b->channels = (2 * s->k_heads + s->v_heads) * BE_DN_DIM;
    b->s_floats = (size_t)b->n_gdn * (size_t)s->v_heads * BE_DN_DIM * BE_DN_DIM;
    b->conv_floats = (size_t)b->n_gdn * 2 * (size_t)(BE_CONV - 1) * (size_t)b->channels;
    b->slot_floats = (b->s_floats + b->conv_floats + (size_t)s->hidden + 63) / 64 * 64;
    b->layer_bytes = BE_PAGE * be_kv_bytes(b->kv, s->kv_heads);
    b->page_bytes = b->layer_bytes * most(1, (size_t)b->n_attention + (s->mtp ? 1 : 0));
}

/* A backend with all sizes and lists and no device. */
static struct backend *outline(const struct be_shape *shape, const struct be_weights *weights,
                               const struct be_opts *opts)
{
    struct backend *b = mem_zalloc(sizeof *b);
    const size_t layers = (size_t)shape->layers;
    b->shape = *shape;
    b->weights = *weights;
    b->attention = mem_alloc(layers);
    memcpy(b->attention, shape->attention, layers);
    b->shape.attention = b->attention;
    b->src_layers = mem_array(layers, sizeof *b->src_layers);
    memcpy(b->src_layers, weights->layers, layers * sizeof *b->src_layers);
    b->weights.layers = b->src_layers;
    b->layers = mem_array(layers + 1, sizeof *b->layers);
    for (size_t i = 0; i < layers; i++) {
        b->layers[i].attention = b->attention[i] != 0;
        b->layers[i].index = b->attention[i] ? b->n_attention++ : b->n_gdn++;
    }
    b->layers[layers].attention = true;
    b->layers[layers].index = b->n_attention;
    b->kv = opts->kv;
    b->slots = opts->slots;
    b->pages = opts->pages;
    const int row = opts->max_prefill > BE_MAX_ROWS ? opts->max_prefill : BE_MAX_ROWS;
    b->max_rows = (row + 127) / 128 * 128;
    b->width = opts->width > 0 && opts->width < BE_MAX_ROWS ? opts->width : BE_MAX_ROWS;
    b->step_rows = 1;
    while (b->step_rows < BE_MAX_ROWS && b->step_rows < b->slots * b->width) {
        b->step_rows *= 2;
    }
    b->max_out = b->width < BE_MAX_ROWS ? b->step_rows : CUDA_MAX_OUT;
    const int64_t all = (int64_t)opts->pages * BE_PAGE;
    b->ctx = opts->ctx > 0 ? opts->ctx : all < (1 << 20) ? (int)all : 1 << 20;
    b->ctx = (b->ctx + BE_PAGE - 1) / BE_PAGE * BE_PAGE;
    b->row_pages = b->ctx / BE_PAGE;
    state_sizes(b);
    cuda_weights_list(b);
    b->weight_bytes = cuda_weights_place(b, NULL);
    return b;
}

/* How the device is driven, and the work memory that this takes. */
static void drive(struct backend *b, const struct be_opts *opts)
{
    const int cc = b->info.cc;
    b->cu.n_sm = b->info.n_sm;
    b->cu.path = cc == 90 && opts->cuda_path != BE_PATH_SM80 ? CU_SM90 : CU_SM80;
    b->cu.pdl = cc >= 90 && opts->cuda_path != BE_PATH_SM80;
    b->work_bytes = cuda_work_place(b, NULL);
}

static void outline_free(struct backend *b)
{
    free(b->attention);
    free(b->src_layers);
    free(b->layers);
    free(b->mats);
    free(b->vecs);
    free(b);
}

static void plan_inputs(const struct backend *b, const struct be_opts *opts, struct cuda_needs *n)
{
    *n = (struct cuda_needs){.cc = b->info.cc,
                             .free = b->info.mem_free,
                             .weights = b->weight_bytes,
                             .slot = b->slot_floats * sizeof(float),
                             .slots = b->slots,
                             .page = b->page_bytes,
                             .work = b->work_bytes,
                             .layers = b->shape.layers,
                             .graphs = opts->graphs};
}

/* ---- with a device ---- */

static int no_device(int device, int status, struct err *e)
{
    return err_set(e, QE_DEVICE, "the CUDA device %d cannot be used: %s", device,
                   rt_reason(status));
}

int cuda_plan(const struct be_shape *shape, const struct be_weights *weights,
              const struct be_opts *opts, struct be_plan *out, struct err *e)
{
    struct be_opts o = *opts;
    o.pages = o.pages > 0 ? o.pages : 1;
    int rc = check(shape, weights, &o, e);
    if (rc < 0) {
        return rc;
    }
    struct rt_info info = {.cc = 0};
    int status = rt_look(opts->device, &info);
    if (status) {
        return no_device(opts->device, status, e);
    }
    struct backend *b = outline(shape, weights, &o);
    struct cuda_needs n;
    b->info = info;
    drive(b, &o);
    plan_inputs(b, opts, &n);
    cuda_plan_make(&n, out);
    out->fp8 = info.cc >= 89;
    memcpy(out->device, info.name, sizeof out->device);
    outline_free(b);
    return 0;
}

static int open_device(struct backend *b, const struct be_opts *opts, struct err *e)
{
    int status = rt_open(opts->device, &b->rt);
    status = status ? status : rt_info(b->rt, &b->info);
    if (status) {
        return no_device(opts->device, status, e);
    }
    const int cc = b->info.cc;
    b->cu.stream = rt_stream(b->rt);
    drive(b, opts);
    if (opts->cuda_path == BE_PATH_SM90 && cc != 90) {
        return err_set(e, QE_UNSUPPORTED,
                       "--cuda-path sm90 is for compute capability 9.0; %s has %d.%d", b->info.name,
                       cc / 10, cc % 10);
    }
    snprintf(b->describe, sizeof b->describe, "%s, sm_%d%s", b->info.name, cc,
             cc == 90 && b->cu.path == CU_SM80 ? " by the sm_80 path" : "");
    return 0;
}

/* Room for the weights, if everything fits. */
static int open_weights(struct backend *b, const struct be_opts *opts, struct err *e)
{
    struct cuda_needs n;
    plan_inputs(b, opts, &n);
    cuda_plan_make(&n, &b->plan);
    memcpy(b->plan.device, b->info.name, sizeof b->plan.device);
    if (b->plan.pages < b->pages) {
        return cuda_plan_refuse(&b->plan, b->pages, NULL, e);
    }
    b->doing = "taking device memory";
    int status = rt_alloc(b->rt, b->weight_bytes, &b->weight_mem);
    if (status) {
        return cuda_fail(b, status, e);
    }
    cuda_weights_place(b, b->weight_mem);
    return 0;
}

static int all_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

/* Weights, and beside their upload all the rest. */
static int open_on(struct backend *b, const struct be_opts *opts,
                   void (*progress)(void *ctx, double done), void *ctx, struct err *e)
{
    const int threads = opts->threads > 0 ? opts->threads : all_cores();
    int64_t now = clock_now(clock_real());
    int rc = open_device(b, opts, e);
    now = phases_lap(&b->start, "device", now);
    rc = rc < 0 ? rc : open_weights(b, opts, e);
    now = phases_lap(&b->start, "weight_memory", now);
    if (rc < 0) {
        return rc;
    }
    b->doing = "uploading the weights";
    b->upload = cuda_upload_create(b, threads);
    rc = cuda_ready_begin(b, opts->graphs, e);
    if (rc < 0) {
        return rc;
    }
    rc = cuda_upload_run(b->upload, opts->file, progress, ctx, e);
    now = clock_now(clock_real());
    cuda_ready_wait(b);
    rc = cuda_upload_end(b, rc, e);
    phases_lap(&b->start, "waiting", now);
    rc = cuda_ready_end(b, rc, e);
    if (rc == 0 && opts->verify) {
        rc = team_create(threads, &b->team, e);
        rc = rc < 0 ? rc : cuda_weights_verify(b, e);
    }
    return rc < 0 ? rc : cuda_tidy_begin(b, e);
}

int cuda_open(const struct be_shape *shape, const struct be_weights *weights,
              const struct be_opts *opts, void (*progress)(void *ctx, double done), void *ctx,
              struct backend **out, struct err *e)
{
    int rc = check(shape, weights, opts, e);
    if (rc < 0) {
        return rc;
    }
    struct backend *b = outline(shape, weights, opts);
    rc = open_on(b, opts, progress, ctx, e);
    if (rc < 0) {
        cuda_close(b);
        return rc;
    }
    b->doing = NULL;
    *out = b;
    return 0;
}

void cuda_close(struct backend *b)
{
    if (!b) {
        return;
    }
    team_free(b->team);
    cuda_tidy_end(b);
    if (b->rt) {
        (void)rt_sync(b->rt);
        cuda_graphs_close(b);
        cuda_ready_close(b);
        cuda_draw_close(b);
        rt_free(b->rt, b->weight_mem);
        rt_free(b->rt, b->state_mem);
        rt_free(b->rt, b->cache_mem);
        rt_free(b->rt, b->work_mem);
        rt_free(b->rt, b->mm_mem);
        rt_close(b->rt);
    }
    free(b->parity);
    free(b->span);
    free(b->list.op);
    free(b->last.op);
    outline_free(b);
}
