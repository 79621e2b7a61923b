/* The engine's face: opening a model on a backend, and its sequences. A
 * sequence's number is the number of its recurrent-state slot. Computing is in
 * compute.c, whole states in state.c, the memory plan in plan.c. */
#include "config.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/impl.h"
#include "format/container.h"

#define DEFAULT_SLOTS  16
#define DEFAULT_CHUNK  2048
#define MAX_SLOTS      1024
#define DEFAULT_GRAPHS 16

#define NO_VERIFY                                                                                  \
    "this backend cannot verify drafts: the model speaks one token a step (--spec off)"

static int check_opts(const struct engine_opts *o, struct err *e)
{
    if (o->backend == EB_CUDA && !backend_cuda()) {
        return err_set(e, QE_UNSUPPORTED,
                       "this build has no CUDA backend: use --backend cpu, or configure it where "
                       "there is nvcc");
    }
    if (o->slots < 0 || o->slots > MAX_SLOTS) {
        return err_set(e, QE_USAGE, "%d sequences at once were asked for; the limit is %d",
                       o->slots, MAX_SLOTS);
    }
    if (o->max_draft > ENGINE_MAX_DRAFT) {
        return err_set(e, QE_USAGE, "chains of %d drafts were asked for; the limit is %d",
                       o->max_draft, ENGINE_MAX_DRAFT);
    }
    if (o->verify_width < 0 || o->verify_width > BE_MAX_ROWS) {
        return err_set(e, QE_USAGE,
                       "%d rows of one sequence in a step were asked for; the limit is %d",
                       o->verify_width, BE_MAX_ROWS);
    }
    if (o->chunk < 0 || o->chunk % BE_BLOCK != 0) {
        return err_set(e, QE_USAGE, "a prefill chunk of %d rows is not a multiple of %d", o->chunk,
                       BE_BLOCK);
    }
    return 0;
}

static void fill_info(struct engine *g, const struct engine_source *s, const struct engine_opts *o)
{
    g->name = mem_strdup(s->name ? s->name : "model");
    g->tier = mem_strdup(s->tier ? s->tier : "");
    g->fallback = o->fallback ? mem_strdup(o->fallback) : NULL;
    g->info = (struct engine_info){.model_name = g->name,
                                   .tier = g->tier,
                                   .backend = g->ops->name,
                                   .device = g->ops->describe(g->b),
                                   .fallback = g->fallback,
                                   .digest = g->digest,
                                   .plan = g->plan,
                                   .ctx = g->ctx,
                                   .vocab = g->m.shape.vocab,
                                   .vocab_used = g->m.shape.vocab_used,
                                   .slots = g->slots.n,
                                   .hidden = g->m.shape.hidden,
                                   .layers = g->m.shape.layers,
                                   .max_draft = g->max_draft,
                                   .verify_width = g->width,
                                   .mtp = g->mtp,
                                   .head_copy = g->w.w.head_copy.data != NULL,
                                   .fast_head = g->fast,
                                   .own_drafts = g->ops->own_drafts != NULL,
                                   .no_verify = g->ops->fold ? NULL : NO_VERIFY,
                                   .eos = g->m.eos,
                                   .n_eos = g->m.n_eos};
}

/* What lies behind the sequences' numbers. */
static void open_tables(struct engine *g, int slots, int pages)
{
    g->graph = (struct graph){g->ops, g->b, &g->m.shape};
    kv_pool_init(&g->pool, g->ops, g->b, pages);
    rstate_init(&g->slots, slots);
    g->seqs = mem_array((size_t)slots, sizeof *g->seqs);
    g->max_out = g->ops->outputs ? g->ops->outputs(g->b) : g->ops->max_out;
    const size_t max_out = (size_t)g->max_out;
    g->out = mem_array(max_out, sizeof *g->out);
    g->head_rows = mem_array(max_out, sizeof *g->head_rows);
    g->draws = mem_array(max_out, sizeof *g->draws);
    g->ids = mem_array(max_out, sizeof *g->ids);
    g->row = mem_array((size_t)g->m.shape.vocab, sizeof *g->row);
    size_t rows = (size_t)(g->chunk > BE_MAX_ROWS ? g->chunk : BE_MAX_ROWS);
    g->scratch.pairs = mem_array(rows, sizeof *g->scratch.pairs);
    g->scratch.source = mem_array(rows, sizeof *g->scratch.source);
    g->scratch.spans = mem_array(BE_MAX_ROWS, sizeof *g->scratch.spans);
}

static int drafts_of(const struct engine_opts *o)
{
    return o->max_draft < 0 ? 0 : o->max_draft ? o->max_draft : ENGINE_MAX_DRAFT;
}

int engine_width_of(const struct engine_opts *o)
{
    const int width = o->verify_width ? o->verify_width : drafts_of(o) + 1;
    return width < BE_MAX_ROWS ? width : BE_MAX_ROWS;
}

/* Reads and checks all that needs no backend. */
static int prepare(struct engine *g, const struct engine_source *s, const struct engine_opts *o,
                   struct be_opts *bo, struct err *e)
{
    int rc = check_opts(o, e);
    if (rc == 0) {
        rc = model_config_read(s->config, &g->m, e);
    }
    if (rc == 0 && s->generation) {
        rc = model_config_generation(&g->m, s->generation, s->generation_size, e);
    }
    /* a script's drafts are the backend's own */
    if (rc == 0 && (o->no_mtp || o->max_draft < 0 || o->backend == EB_SCRIPT)) {
        g->m.shape.mtp = false;
    }
    if (rc == 0) {
        rc = model_weights_read(s, &g->m, o->draft_head, o->fast_head, &g->w, e);
    }
    if (rc < 0) {
        return rc;
    }
    if (o->vocab_used > 0 && o->vocab_used < g->m.shape.vocab_used) {
        g->m.shape.vocab_used = o->vocab_used;
    }
    g->mtp = g->m.shape.mtp;
    g->fast = o->fast_head && g->w.w.head_copy.data;
    g->max_draft = g->mtp ? drafts_of(o) : 0;
    g->width = o->backend == EB_SCRIPT ? BE_MAX_ROWS : engine_width_of(o);
    g->chunk = o->chunk ? o->chunk : DEFAULT_CHUNK;
    g->readers = intake_readers(o->threads);
    strncpy(g->digest, s->digest ? s->digest : "", sizeof g->digest - 1);
    *bo = (struct be_opts){.threads = o->threads,
                           .isa = o->isa,
                           .device = o->device,
                           .slots = o->slots ? o->slots : DEFAULT_SLOTS,
                           .max_prefill = g->chunk,
                           .width = g->width,
                           .cuda_path = (enum be_cuda_path)o->cuda_path,
                           .graphs = o->graphs < 0 ? 0
                                     : o->graphs   ? o->graphs
                                                   : DEFAULT_GRAPHS,
                           .script = o->script,
                           .verify = o->verify,
                           .file = s->file};
    return 0;
}

int engine_open_source(const struct engine_source *s, const struct engine_opts *o,
                       struct engine **out, struct err *e)
{
    struct engine *g = mem_zalloc(sizeof *g);
    struct be_opts bo;
    struct engine_plan plan;
    int64_t now = clock_now(clock_real());
    int rc = prepare(g, s, o, &bo, e);
    now = phases_lap(&g->phases, "model", now);
    rc = rc < 0 ? rc : plan_make(g, o, &bo, &plan, e);
    now = phases_lap(&g->phases, "plan", now);
    if (rc == 0) {
        rc = g->ops->open(&g->m.shape, &g->w.w, &bo, o->progress, o->progress_ctx, &g->b, e);
    }
    if (rc < 0) {
        engine_close(g);
        return rc;
    }
    if (g->ops->phases) {
        g->ops->phases(g->b, &g->phases);
        now = clock_now(clock_real());
    } else {
        now = phases_lap(&g->phases, "backend", now);
    }
    g->ops->fast_head(g->b, g->fast);
    g->plan = g->ops->plan ? plan_line(&plan) : NULL;
    open_tables(g, bo.slots, bo.pages);
    fill_info(g, s, o);
    g->info.memory = plan;
    phases_lap(&g->phases, "sequences", now);
    *out = g;
    return 0;
}

static const struct tensor *find_in_container(void *ctx, const char *name)
{
    return container_find(ctx, name);
}

/* A container's parts; opts gets what the file says about the vocabulary. */
static struct engine_source source_of(const struct container *c, struct engine_opts *opts)
{
    const json_t *meta = container_meta(c);
    if (opts->vocab_used == 0) {
        opts->vocab_used = (int)json_integer_value(json_object_get(meta, "vocab_used"));
    }
    struct engine_source s = {.find = find_in_container,
                              .ctx = (void *)(uintptr_t)c, /* only read through */
                              .config = container_config(c),
                              .name = json_string_value(json_object_get(meta, "name")),
                              .tier = json_string_value(json_object_get(meta, "tier")),
                              .digest = container_digest(c),
                              .norms_folded = container_norms_folded(c),
                              .file = container_map(c)};
    if (!container_get(c, CB_GENERATION, &s.generation, &s.generation_size)) {
        s.generation = NULL;
    }
    return s;
}

int engine_open(const struct container *c, const struct engine_opts *o, struct engine **out,
                struct err *e)
{
    struct engine_opts opts = *o;
    const struct engine_source s = source_of(c, &opts);
    return engine_open_source(&s, &opts, out, e);
}

int engine_plan(const struct container *c, const struct engine_opts *o, struct engine_plan *out,
                char **line, struct err *e)
{
    struct engine_opts opts = *o;
    const struct engine_source s = source_of(c, &opts);
    struct engine *g = mem_zalloc(sizeof *g);
    struct be_opts bo;
    int rc = prepare(g, &s, &opts, &bo, e);
    rc = rc < 0 ? rc : plan_make(g, &opts, &bo, out, e);
    if (rc == 0 && line) {
        *line = plan_line(out);
    }
    engine_close(g);
    return rc;
}

void engine_close(struct engine *g)
{
    if (!g) {
        return;
    }
    if (g->b) {
        for (int i = 0; i < g->slots.n; i++) {
            kv_table_fini(&g->pool, &g->seqs[i].kv);
        }
        kv_pool_fini(&g->pool);
        snaps_fini(g);
        swaps_fini(g);
        lanes_fini(g);
        rstate_fini(&g->slots);
        g->ops->close(g->b);
    }
    free(g->seqs);
    free(g->out);
    free(g->head_rows);
    free(g->draws);
    free(g->ids);
    free(g->row);
    free(g->scratch.pairs);
    free(g->scratch.source);
    free(g->scratch.spans);
    free(g->name);
    free(g->tier);
    free(g->fallback);
    free(g->plan);
    model_weights_fini(&g->w);
    model_config_fini(&g->m);
    free(g);
}

const struct engine_info *engine_info(const struct engine *g)
{
    return &g->info;
}

struct engine_sampling engine_defaults(const struct engine *g)
{
    return g->m.sampling;
}

int engine_seq_of(struct engine *g, int seq, struct seq **out, struct err *e)
{
    if (!rstate_has(&g->slots, seq)) {
        return err_set(e, QE_USAGE, "there is no open sequence %d", seq);
    }
    *out = &g->seqs[seq];
    return 0;
}

int engine_seq_whole(struct engine *g, int seq, struct seq **out, struct err *e)
{
    const int rc = engine_seq_of(g, seq, out, e);
    return rc == 0 && (*out)->broken
               ? err_set(e, QE_INTERNAL, "sequence %d failed in the middle of a step", seq)
               : rc;
}

int engine_seq_open(struct engine *g, int *seq, struct err *e)
{
    int slot = rstate_take(&g->slots);
    if (slot < 0) {
        return err_set(e, QE_BUSY, "all %d sequences are in use", g->slots.n);
    }
    int rc = g->ops->state_reset(g->b, slot, e);
    if (rc < 0) {
        rstate_give(&g->slots, slot);
        return rc;
    }
    g->seqs[slot].len = 0;
    g->seqs[slot].pure = true;
    g->seqs[slot].broken = false;
    g->seqs[slot].ahead = -1;
    *seq = slot;
    return 0;
}

void engine_seq_close(struct engine *g, int seq)
{
    if (rstate_has(&g->slots, seq)) {
        g->held.n_spans = 0;
        kv_trim(&g->pool, &g->seqs[seq].kv, 0);
        rstate_give(&g->slots, seq);
    }
}

void engine_seq_reset(struct engine *g, int seq)
{
    if (rstate_has(&g->slots, seq)) {
        struct seq *s = &g->seqs[seq];
        g->held.n_spans = 0;
        kv_trim(&g->pool, &s->kv, 0);
        s->len = 0;
        s->pure = true;
        s->ahead = -1;
        s->broken = g->ops->state_reset(g->b, seq, NULL) < 0;
    }
}

int engine_seq_len(const struct engine *g, int seq)
{
    return rstate_has(&g->slots, seq) ? g->seqs[seq].len : 0;
}

int engine_seq_pages(const struct engine *g, int seq)
{
    return rstate_has(&g->slots, seq) ? g->seqs[seq].kv.n : 0;
}

bool engine_seq_pure(const struct engine *g, int seq)
{
    return rstate_has(&g->slots, seq) && g->seqs[seq].pure && !g->seqs[seq].broken;
}

int engine_mtp_len(const struct engine *g, int seq)
{
    int len = engine_seq_len(g, seq);
    return g->mtp && len > 0 ? len - 1 : 0;
}

int engine_seq_fork(struct engine *g, int dst, int src, struct err *e)
{
    struct seq *d = NULL, *s = NULL;
    int rc = engine_seq_of(g, dst, &d, e);
    if (rc == 0) {
        rc = engine_seq_whole(g, src, &s, e);
    }
    if (rc < 0 || d == s) {
        return rc;
    }
    g->held.n_spans = 0;
    rc = g->ops->state_copy(g->b, dst, src, e);
    if (rc < 0) {
        d->broken = true;
        return rc;
    }
    kv_share(&g->pool, &d->kv, &s->kv, s->len);
    d->len = s->len;
    d->pure = s->pure;
    d->ahead = -1;
    d->broken = false;
    return 0;
}

struct engine_counters engine_counters(const struct engine *g)
{
    struct engine_counters c = g->count;
    if (g->ops->counters) {
        struct be_counters b = {0};
        g->ops->counters(g->b, &b);
        c.kernels = b.kernels;
        c.graphs = b.graphs;
        c.captured = b.captured;
        c.upload_s = b.upload_s;
    }
    return c;
}

const struct phases *engine_phases(const struct engine *g)
{
    return &g->phases;
}

uint64_t engine_bytes_per_draft(const struct engine *g)
{
    return g->mtp ? g->w.draft_bytes : 0;
}

int engine_bandwidth(struct engine *g, size_t bytes, double *read, double *copy, struct err *e)
{
    return g->ops->bandwidth ? g->ops->bandwidth(g->b, bytes, read, copy, e)
                             : err_set(e, QE_UNSUPPORTED, "the backend computes in host memory");
}

int engine_upload_time(struct engine *g, uint64_t bytes, double *seconds, struct err *e)
{
    return g->ops->upload_time ? g->ops->upload_time(g->b, bytes, seconds, e)
                               : err_set(e, QE_UNSUPPORTED, "the backend computes in host memory");
}

uint64_t engine_bytes_per_step(const struct engine *g)
{
    uint64_t n = g->w.step_bytes;
    if (g->mtp) {
        const struct be_weights *w = &g->w.w; /* the MTP layer's keys and values follow */
        const struct tensor *const t[] = {&w->mtp_fc, &w->mtp_layer.k, &w->mtp_layer.v};
        for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
            n += t[i]->size + t[i]->scale_size;
        }
    }
    return n;
}

struct engine_guess engine_guess_costs(const struct engine *g)
{
    const double token = (double)(engine_bytes_per_row(g, 1) - engine_bytes_per_row(g, 0));
    int attention = 0;
    for (int i = 0; i < g->m.shape.layers; i++) {
        attention += g->m.shape.attention[i] != 0;
    }
    const bool device = g->ops->plan != NULL; /* reads weights and cache once for all rows */
    return (struct engine_guess){.context = token / (double)g->w.step_bytes,
                                 .draft = attention > 0 ? 1.0 / attention : 0,
                                 .row = device ? 0.06 : 0.25,
                                 .shared = device};
}

uint64_t engine_bytes_per_row(const struct engine *g, int depth)
{
    struct be_shape main_only = g->m.shape;
    main_only.mtp = false;
    return plan_token_bytes(&main_only, g->kv_format) * (uint64_t)(depth > 0 ? depth : 0) +
           g->ops->state_size(g->b);
}
