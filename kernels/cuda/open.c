/*
 * Opening the CUDA backend: checks, the memory plan, three large allocations
 * (weights, cache with states, work), the upload, the decode plans. No call after
 * it allocates device memory but for graphs.
 */
#include "config.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    if (rc == 0 && opts->kv != BE_KV_F16 && opts->kv != BE_KV_F8) {
        rc = err_set(e, QE_UNSUPPORTED,
                     "the CUDA backend keeps keys and values as fp16 or fp8, not %s: give --kv "
                     "fp16, or --backend cpu",
                     be_kv_name(opts->kv));
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
    struct rt *rt = NULL;
    struct rt_info info = {.cc = 0};
    int status = rt_open(opts->device, &rt);
    status = status ? status : rt_info(rt, &info);
    rt_close(rt);
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

/* One zeroed block of device memory. */
static int block(struct backend *b, size_t bytes, void **out)
{
    int status = rt_alloc(b->rt, bytes, out);
    return status ? status : rt_fill(b->rt, *out, 0, bytes);
}

static int open_memory(struct backend *b, const struct be_opts *opts, struct err *e)
{
    struct cuda_needs n;
    plan_inputs(b, opts, &n);
    cuda_plan_make(&n, &b->plan);
    memcpy(b->plan.device, b->info.name, sizeof b->plan.device);
    if (b->plan.pages < b->pages) {
        return cuda_plan_refuse(&b->plan, b->pages, NULL, e);
    }
    const size_t state = (size_t)b->slots * b->slot_floats * sizeof(float);
    b->doing = "taking device memory";
    int status = rt_alloc(b->rt, b->weight_bytes, &b->weight_mem);
    status = status ? status : block(b, state, &b->state_mem);
    status = status ? status : block(b, (size_t)b->pages * b->page_bytes, &b->cache_mem);
    status = status ? status : block(b, b->work_bytes, &b->work_mem);
    if (status) {
        return cuda_fail(b, status, e);
    }
    b->state = b->state_mem;
    b->cache = b->cache_mem;
    cuda_weights_place(b, b->weight_mem);
    cuda_work_place(b, b->work_mem);
    return 0;
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

static int open_plans(struct backend *b, struct err *e)
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
    b->doing = "planning the products";
    m.status = m.status ? m.status : block(b, most(m.work, 256), &b->mm_mem);
    return m.status ? cuda_fail(b, m.status, e) : 0;
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

/* ---- the rest ---- */

static int open_pass(struct backend *b, const struct be_opts *opts, struct err *e)
{
    uint8_t axis[BE_ROT_DIM / 2];
    double inv_freq[BE_ROT_DIM / 2];
    void *ids = NULL;
    be_rope(&b->shape, axis, inv_freq);
    b->parity = mem_array((size_t)b->slots, sizeof *b->parity);
    b->span = mem_array((size_t)b->max_rows, sizeof *b->span);
    b->list_cap = 2 * b->shape.layers + 64;
    b->list.op = mem_array((size_t)b->list_cap, sizeof *b->list.op);
    cuda_graphs_open(b, opts->graphs);
    int rc = cuda_block_open(b, &b->dec, CUDA_STAGES, e);
    rc = rc < 0 ? rc : cuda_block_open(b, &b->pre, 2, e);
    if (rc < 0) {
        return rc;
    }
    int status = rt_pin(b->rt, 2 * CUDA_MAX_OUT * sizeof(int32_t), &ids);
    b->host_ids = ids;
    status = status ? status : rt_upload(b->rt, b->axis, axis, sizeof axis);
    status = status ? status : rt_upload(b->rt, b->inv_freq, inv_freq, sizeof inv_freq);
    status = status ? status : rt_sync(b->rt);
    return status ? cuda_fail(b, status, e) : 0;
}

static int all_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
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
    rc = open_device(b, opts, e);
    rc = rc < 0 ? rc : open_memory(b, opts, e);
    rc = rc < 0 ? rc : team_create(opts->threads > 0 ? opts->threads : all_cores(), &b->team, e);
    rc = rc < 0 ? rc : cuda_weights_upload(b, opts->file, progress, ctx, e);
    rc = rc < 0 ? rc : open_plans(b, e);
    rc = rc < 0 ? rc : open_pass(b, opts, e);
    if (rc == 0 && opts->verify) {
        rc = cuda_weights_verify(b, e);
    }
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
    if (b->rt) {
        (void)rt_sync(b->rt);
        cuda_graphs_close(b);
        close_plans(b);
        cuda_block_close(b, &b->dec);
        cuda_block_close(b, &b->pre);
        rt_unpin(b->rt, b->host_ids);
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
    outline_free(b);
}
