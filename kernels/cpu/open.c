/* Opening the CPU backend: checks every shape, sizes caches and workspace once
 * so that no call after it allocates. Weights stay where they are mapped. */
#include "config.h"
#include "kernels/cpu/cpu.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/mem.h"

enum { MAX_DIM = 1 << 24, MAX_LAYERS = 4096 };

static int check_tensor(const struct tensor *t, const char *what, int layer, int rows, int cols,
                        bool vector, struct err *e)
{
    char where[64] = "";
    if (layer >= 0) {
        snprintf(where, sizeof where, " of layer %d", layer);
    }
    const char *name = t->name ? t->name : what;
    if (!t->data || !dtype_name(t->dtype)) {
        return err_set(e, QE_FORMAT, "the model has no %s%s", what, where);
    }
    if (vector && t->dtype != DT_F32) {
        return err_set(e, QE_FORMAT, "%s%s is %s, not f32", name, where, dtype_name(t->dtype));
    }
    if (t->n_dims < 1 || t->n_dims > TENSOR_MAX_DIMS) {
        return err_set(e, QE_FORMAT, "%s%s has %d dimensions", name, where, t->n_dims);
    }
    uint64_t r = tensor_rows(t);
    uint64_t c = tensor_cols(t);
    if (r != (uint64_t)rows || c != (uint64_t)cols) {
        return err_set(e, QE_FORMAT, "%s%s is %llu x %llu, not %d x %d", name, where,
                       (unsigned long long)r, (unsigned long long)c, rows, cols);
    }
    size_t size = 0;
    size_t scales = 0;
    if (dtype_sizes(t->dtype, r, c, &size, &scales) < 0) {
        return err_set(e, QE_FORMAT, "%s%s: %d columns are not whole groups of %d (%s)", name,
                       where, cols, dtype_group(t->dtype), dtype_name(t->dtype));
    }
    if (t->size < size || (scales > 0 && (!t->scales || t->scale_size < scales))) {
        return err_set(e, QE_FORMAT, "%s%s is cut short: %zu of %zu bytes, %zu of %zu of scales",
                       name, where, t->size, size, t->scale_size, scales);
    }
    return 0;
}

struct wanted {
    const struct tensor *t;
    const char *what;
    int rows, cols;
    bool vector;
};

static int check_all(const struct wanted *w, size_t n, int layer, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = check_tensor(w[i].t, w[i].what, layer, w[i].rows, w[i].cols, w[i].vector, e);
    }
    return rc;
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

static int check_layer(const struct be_shape *s, const struct be_layer *l, int i, bool attention,
                       struct err *e)
{
    const int dn = BE_DN_DIM;
    const int hd = BE_HEAD_DIM;
    const int ch = (2 * s->k_heads + s->v_heads) * dn;
    const struct wanted common[] = {
        {&l->norm, "input norm", 1, s->hidden, true},
        {&l->post_norm, "FFN norm", 1, s->hidden, true},
        {&l->gate, "FFN gate", s->ffn, s->hidden, false},
        {&l->up, "FFN up", s->ffn, s->hidden, false},
        {&l->down, "FFN down", s->hidden, s->ffn, false},
    };
    const struct wanted att[] = {
        {&l->q, "q projection", s->q_heads * 2 * hd, s->hidden, false},
        {&l->k, "k projection", s->kv_heads * hd, s->hidden, false},
        {&l->v, "v projection", s->kv_heads * hd, s->hidden, false},
        {&l->o, "output projection", s->hidden, s->q_heads * hd, false},
        {&l->q_norm, "q norm", 1, hd, true},
        {&l->k_norm, "k norm", 1, hd, true},
    };
    const struct wanted gdn[] = {
        {&l->qkv, "qkv projection", ch, s->hidden, false},
        {&l->z, "z projection", s->v_heads * dn, s->hidden, false},
        {&l->b, "b projection", s->v_heads, s->hidden, false},
        {&l->a, "a projection", s->v_heads, s->hidden, false},
        {&l->out, "output projection", s->hidden, s->v_heads * dn, false},
        {&l->conv, "convolution", ch, BE_CONV, true},
        {&l->a_log, "A", 1, s->v_heads, true},
        {&l->dt_bias, "dt bias", 1, s->v_heads, true},
        {&l->gnorm, "gated norm", 1, dn, true},
    };
    int rc = check_all(common, COUNT(common), i, e);
    if (rc < 0) {
        return rc;
    }
    return attention ? check_all(att, COUNT(att), i, e) : check_all(gdn, COUNT(gdn), i, e);
}

static int check_shape(const struct be_shape *s, const struct be_opts *o, struct err *e)
{
    const struct {
        const char *name;
        int value, max;
    } t[] = {
        {"hidden size", s->hidden, MAX_DIM / 2},
        {"layer count", s->layers, MAX_LAYERS},
        {"FFN size", s->ffn, MAX_DIM},
        {"vocabulary", s->vocab, MAX_DIM},
        {"query heads", s->q_heads, 4096},
        {"key heads", s->kv_heads, 4096},
        {"DeltaNet key heads", s->k_heads, 4096},
        {"DeltaNet value heads", s->v_heads, 4096},
        {"state slots", o->slots, 1 << 16},
        {"cache pages", o->pages, 1 << 24},
        {"prefill rows", o->max_prefill, 1 << 20},
        {"threads", o->threads > 0 ? o->threads : 1, 1024},
    };
    for (size_t i = 0; i < COUNT(t); i++) {
        if (t[i].value < 1 || t[i].value > t[i].max) {
            return err_set(e, QE_UNSUPPORTED, "%s %d is outside 1..%d", t[i].name, t[i].value,
                           t[i].max);
        }
    }
    if (s->q_heads % s->kv_heads != 0 || s->v_heads % s->k_heads != 0) {
        return err_set(e, QE_UNSUPPORTED,
                       "%d query heads on %d key heads, %d value heads on %d: "
                       "not a multiple",
                       s->q_heads, s->kv_heads, s->v_heads, s->k_heads);
    }
    if (s->vocab_used < 1 || s->vocab_used > s->vocab) {
        return err_set(e, QE_UNSUPPORTED, "%d used ids of a vocabulary of %d", s->vocab_used,
                       s->vocab);
    }
    const int *r = s->rope_sections;
    if (r[0] < 0 || r[1] < 0 || r[2] < 0 || r[0] + r[1] + r[2] != BE_ROT_DIM / 2) {
        return err_set(e, QE_UNSUPPORTED, "rotary sections %d, %d, %d do not add up to %d", r[0],
                       r[1], r[2], BE_ROT_DIM / 2);
    }
    return 0;
}

static int check_weights(const struct be_shape *s, const struct be_weights *w, struct err *e)
{
    const struct wanted top[] = {
        {&w->embed, "token embedding", s->vocab, s->hidden, false},
        {&w->head, "output head", s->vocab, s->hidden, false},
        {&w->norm, "final norm", 1, s->hidden, true},
    };
    const struct wanted mtp[] = {
        {&w->mtp_fc, "MTP projection", s->hidden, 2 * s->hidden, false},
        {&w->mtp_enorm, "MTP embedding norm", 1, s->hidden, true},
        {&w->mtp_hnorm, "MTP hidden norm", 1, s->hidden, true},
        {&w->mtp_norm, "MTP norm", 1, s->hidden, true},
    };
    int rc = check_all(top, COUNT(top), -1, e);
    for (int i = 0; rc == 0 && i < s->layers; i++) {
        rc = check_layer(s, &w->layers[i], i, s->attention[i] != 0, e);
    }
    if (rc == 0 && s->mtp) {
        rc = check_all(mtp, COUNT(mtp), -1, e);
        rc = rc < 0 ? rc : check_layer(s, &w->mtp_layer, s->layers, true, e);
    }
    return rc;
}

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
    const size_t element = b->half ? 2 : 4;
    const size_t layer =
        (size_t)s->v_heads * BE_DN_DIM * BE_DN_DIM + (size_t)(BE_CONV - 1) * (size_t)b->channels;
    b->slot_floats = ((size_t)b->n_gdn * layer + (size_t)s->hidden + 15) / 16 * 16;
    b->layer_bytes = 2 * (size_t)s->kv_heads * BE_PAGE * BE_HEAD_DIM * element;
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
    const size_t heap = (size_t)s->vocab * CPU_MAX_OUT;
    const size_t total =
        rows * (3 * hidden + BE_ROT_DIM) + arena + logits + b->scratch_floats * (size_t)b->threads;
    rc = map(&b->work, total * sizeof(float) + heap * sizeof *b->heap, 1, "workspace", e);
    if (rc < 0) {
        return rc;
    }
    b->x = b->work.p;
    b->h = b->x + rows * hidden;
    b->m = b->h + rows * hidden;
    b->rot = b->m + rows * hidden;
    b->arena = b->rot + rows * BE_ROT_DIM;
    b->logits = b->arena + arena;
    b->scratch = b->logits + logits;
    b->heap = (struct sample_entry *)(b->scratch + b->scratch_floats * (size_t)b->threads);
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

/* Which position turns frequency i: T, H, W in turn as long as the section of H
 * or W lasts, T for the rest. */
static void rope_axes(struct backend *b)
{
    const int *n = b->shape.rope_sections;
    for (int i = 0; i < BE_ROT_DIM / 2; i++) {
        int axis = i % 3;
        b->axis[i] = (uint8_t)(axis > 0 && i < 3 * n[axis] ? axis : 0);
        b->inv_freq[i] = pow(b->shape.rope_base, -2.0 * i / BE_ROT_DIM);
    }
}

int cpu_open(const struct be_shape *shape, const struct be_weights *weights,
             const struct be_opts *opts, void (*progress)(void *ctx, double done), void *ctx,
             struct backend **out, struct err *e)
{
    const struct cpu_isa *isa = cpu_isa_find(opts->isa, e);
    if (!isa) {
        return e ? e->code : QE_UNSUPPORTED;
    }
    int rc = check_shape(shape, opts, e);
    rc = rc < 0 ? rc : check_weights(shape, weights, e);
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
    b->half = opts->kv == BE_KV_F16;
    b->slots = opts->slots;
    b->pages = opts->pages;
    b->max_rows = opts->max_prefill > BE_MAX_ROWS ? opts->max_prefill : BE_MAX_ROWS;
    b->channels = (2 * shape->k_heads + shape->v_heads) * BE_DN_DIM;
    snprintf(b->describe, sizeof b->describe, "%s, %d thread%s", isa->title, b->threads,
             b->threads == 1 ? "" : "s");
    rope_axes(b);
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
