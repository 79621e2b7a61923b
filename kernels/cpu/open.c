/* Opening the CPU backend: checks every shape, sizes caches and workspace once
 * so that no call after it allocates. Weights stay where they are mapped. */
#include "config.h"
#include "kernels/cpu/cpu.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"
#include "kernels/geometry.h"

static int map(struct cpu_map *m, size_t n, size_t size, const char *what, struct err *e)
{
    size_t bytes = 0;
    if (!arr_size(n, size, &bytes) || bytes == 0) {
        return err_set(e, QE_NOMEM, "the %s is too large to address", what);
    }
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
        return err_sys(e, QE_NOMEM, errno, "no %zu MiB for the %s; lower the window or the slots",
                       bytes >> 20, what);
    }
    m->p = p;
    m->size = bytes;
    return 0;
}

static void unmap(struct cpu_map *m)
{
    if (m->p) {
        munmap(m->p, m->size);
    }
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Floats that one row needs inside a block. */
static size_t arena_row(const struct be_shape *s, int channels)
{
    size_t att = (size_t)s->q_heads * 3 * BE_HEAD_DIM + (size_t)s->kv_heads * 2 * BE_HEAD_DIM;
    size_t gdn = 2 * (size_t)channels + (size_t)s->v_heads * (2 * BE_DN_DIM + 2);
    return most(most(att, gdn), most(2 * (size_t)s->ffn, 2 * (size_t)s->hidden));
}

static int open_memory(struct backend *b, struct err *e)
{
    const struct be_shape *s = &b->shape;
    const size_t layer =
        (size_t)s->v_heads * BE_DN_DIM * BE_DN_DIM + (size_t)(BE_CONV - 1) * (size_t)b->channels;
    b->slot_floats = ((size_t)b->n_gdn * layer + (size_t)s->hidden + 15) / 16 * 16;
    b->layer_bytes = BE_PAGE * be_kv_bytes(b->kv, s->kv_heads);
    b->page_bytes = b->layer_bytes * most(1, (size_t)b->n_attention + (s->mtp ? 1 : 0));
    int rc =
        map(&b->state, (size_t)b->slots, b->slot_floats * sizeof(float), "recurrent states", e);
    rc = rc < 0 ? rc : map(&b->cache, (size_t)b->pages, b->page_bytes, "key and value cache", e);
    if (rc < 0) {
        return rc;
    }
    const size_t rows = (size_t)b->max_rows;
    const size_t hidden = ((size_t)s->hidden + 15) / 16 * 16;
    const int max_k =
        (int)most(most((size_t)s->ffn, 2 * (size_t)s->hidden),
                  most((size_t)s->q_heads * BE_HEAD_DIM, (size_t)s->v_heads * BE_DN_DIM));
    b->scratch_floats = cpu_scratch_floats(max_k);
    const size_t logits = ((size_t)s->vocab + 15) / 16 * 16 * CPU_MAX_OUT;
    /* Tiles of four rows may read, and ignore, up to three rows past the last. */
    const size_t arena = (arena_row(s, b->channels) * (rows + 4) + 15) / 16 * 16;
    b->draw_floats = sample_work(s->vocab);
    b->record_layer = BE_MAX_ROWS * 2 * ((size_t)b->channels + (size_t)s->v_heads);
    const size_t record = ((size_t)b->n_gdn * b->record_layer + 15) / 16 * 16;
    const size_t total = rows * (3 * hidden + BE_ROT_DIM) + arena + logits + record +
                         b->scratch_floats * (size_t)b->threads + b->draw_floats * CPU_MAX_OUT;
    rc = map(&b->work, total * sizeof(float), 1, "workspace", e);
    if (rc < 0) {
        return rc;
    }
    b->x = b->work.p;
    b->h = b->x + rows * hidden;
    b->m = b->h + rows * hidden;
    b->rot = b->m + rows * hidden;
    b->arena = b->rot + rows * BE_ROT_DIM;
    b->logits = b->arena + arena;
    b->record = b->logits + logits;
    b->scratch = b->record + record;
    b->draw = b->scratch + b->scratch_floats * (size_t)b->threads;
    b->span = mem_array(rows, sizeof *b->span);
    b->gdn_span = mem_array(rows, sizeof *b->gdn_span);
    b->tokens = mem_array(rows, sizeof *b->tokens);
    b->row = mem_array(rows, sizeof *b->row);
    b->row_span = mem_array(rows, sizeof *b->row_span);
    return 0;
}

static int all_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0 ? CPU_COUNT(&set) : 1;
}

int cpu_open(const struct be_shape *shape, const struct be_weights *weights,
             const struct be_opts *opts, void (*progress)(void *ctx, double done), void *ctx,
             struct backend **out, struct err *e)
{
    const struct cpu_isa *isa = cpu_isa_find(opts->isa, e);
    if (!isa) {
        return e ? e->code : QE_UNSUPPORTED;
    }
    int rc = be_check_shape(shape, opts, e);
    rc = rc < 0 ? rc : be_check_weights(shape, weights, e);
    if (rc < 0) {
        return rc;
    }
    struct backend *b = mem_zalloc(sizeof *b);
    const size_t layers = (size_t)shape->layers;
    b->shape = *shape;
    b->weights = *weights;
    b->attention = mem_alloc(layers);
    memcpy(b->attention, shape->attention, layers);
    b->shape.attention = b->attention;
    b->layers = mem_array(layers, sizeof *b->layers);
    memcpy(b->layers, weights->layers, layers * sizeof *b->layers);
    b->weights.layers = b->layers;
    b->index = mem_array(layers, sizeof *b->index);
    for (size_t i = 0; i < layers; i++) {
        b->index[i] = b->attention[i] ? b->n_attention++ : b->n_gdn++;
    }
    b->isa = isa;
    b->threads = opts->threads > 0 ? opts->threads : all_cores();
    b->kv = opts->kv;
    b->slots = opts->slots;
    b->pages = opts->pages;
    b->max_rows = opts->max_prefill > BE_MAX_ROWS ? opts->max_prefill : BE_MAX_ROWS;
    b->channels = (2 * shape->k_heads + shape->v_heads) * BE_DN_DIM;
    snprintf(b->describe, sizeof b->describe, "%s, %d thread%s", isa->title, b->threads,
             b->threads == 1 ? "" : "s");
    be_rope(shape, b->axis, b->inv_freq);
    rc = open_memory(b, e);
    rc = rc < 0 ? rc : team_create(b->threads, &b->team, e);
    if (rc < 0) {
        cpu_close(b);
        return rc;
    }
    if (progress) {
        progress(ctx, 1);
    }
    *out = b;
    return 0;
}

void cpu_close(struct backend *b)
{
    if (!b) {
        return;
    }
    team_free(b->team);
    unmap(&b->state);
    unmap(&b->cache);
    unmap(&b->work);
    free(b->attention);
    free(b->layers);
    free(b->index);
    free(b->span);
    free(b->gdn_span);
    free(b->tokens);
    free(b->row);
    free(b->row_span);
    free(b);
}
