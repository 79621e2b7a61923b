/* Weights on the device: one list of all matrices and vectors, their places in one
 * block of memory, and the comparison of what is there with what the host packs.
 * upload.c brings them there. */
#include "config.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/host.h"

enum { ALIGN = 256, STAGE_BYTES = 64 << 20, BLOCKS = 4 /* row blocks of a tile */ };

/* ---- the list ---- */

static void add_mat(struct backend *b, struct cu_mat *m, const struct tensor *t,
                    const struct tensor *pair)
{
    struct cuda_mat_src *s = &b->mats[b->n_mats++];
    *s = (struct cuda_mat_src){.mat = m, .src = {t, pair}, .n_src = pair ? 2 : 1};
    s->k = (int)tensor_cols(t);
    enum cu_kind kind = cu_kind_of(t->dtype);
    if (pair && cu_kind_of(pair->dtype) > kind) {
        kind = cu_kind_of(pair->dtype);
    }
    const int rows = (int)tensor_rows(t) * s->n_src;
    *m = (struct cu_mat){.kind = kind,
                         .rows = rows,
                         .tiles = (rows + 63) / 64,
                         .kg = s->k / 64,
                         .name = t->name ? t->name : "matrix"};
}

static void add_head(struct backend *b, struct cu_mat *m, const struct tensor *t)
{
    add_mat(b, m, t, NULL);
    m->rows = b->shape.vocab_used; /* padding ids are not computed */
    m->tiles = (m->rows + 63) / 64;
}

static void add_vec(struct backend *b, const float **to, const struct tensor *t)
{
    b->vecs[b->n_vecs++] = (struct cuda_vec_src){t, to};
}

static void add_layer(struct backend *b, struct cuda_layer *d, const struct be_layer *l)
{
    const struct tensor *gdn[] = {&l->qkv, &l->z, &l->b, &l->a};
    const struct tensor *att[] = {&l->q, &l->k, &l->v};
    const struct tensor **in = d->attention ? att : gdn;
    d->n_in = d->attention ? 3 : 4;
    int col = 0;
    for (int i = 0; i < d->n_in; i++) {
        add_mat(b, &d->in[i], in[i], NULL);
        d->col[i] = col;
        col += d->in[i].rows;
    }
    d->ld = ((size_t)col + 15) / 16 * 16;
    add_mat(b, &d->out, d->attention ? &l->o : &l->out, NULL);
    add_mat(b, &d->gate_up, &l->gate, &l->up);
    add_mat(b, &d->down, &l->down, NULL);
    add_vec(b, &d->norm, &l->norm);
    add_vec(b, &d->post_norm, &l->post_norm);
    if (d->attention) {
        add_vec(b, &d->q_norm, &l->q_norm);
        add_vec(b, &d->k_norm, &l->k_norm);
    } else {
        add_vec(b, &d->conv_w, &l->conv);
        add_vec(b, &d->a_log, &l->a_log);
        add_vec(b, &d->dt_bias, &l->dt_bias);
        add_vec(b, &d->gnorm, &l->gnorm);
    }
}

void cuda_weights_list(struct backend *b)
{
    const struct be_weights *w = &b->weights;
    const size_t layers = (size_t)b->shape.layers + 1;
    b->mats = mem_array(layers * 7 + 3, sizeof *b->mats);
    b->vecs = mem_array(layers * 6 + 4, sizeof *b->vecs);
    for (int i = 0; i < b->shape.layers; i++) {
        add_layer(b, &b->layers[i], &w->layers[i]);
    }
    add_head(b, &b->head, &w->head);
    if (w->head_copy.data) {
        add_head(b, &b->copy, &w->head_copy);
    }
    add_vec(b, &b->norm, &w->norm);
    if (b->shape.mtp) {
        add_layer(b, &b->layers[b->shape.layers], &w->mtp_layer);
        add_mat(b, &b->fc, &w->mtp_fc, NULL);
        add_vec(b, &b->enorm, &w->mtp_enorm);
        add_vec(b, &b->hnorm, &w->mtp_hnorm);
        add_vec(b, &b->mtp_norm, &w->mtp_norm);
    }
}

/* ---- places ---- */

static uint8_t *place(uint8_t *base, size_t *used, size_t bytes)
{
    uint8_t *p = base ? base + *used : NULL;
    *used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    return p;
}

size_t cuda_weights_place(struct backend *b, uint8_t *base)
{
    size_t used = 0;
    for (int i = 0; i < b->n_mats; i++) {
        struct cu_mat *m = b->mats[i].mat;
        m->data = place(base, &used, cu_mat_bytes(m->kind, m->rows, b->mats[i].k));
        if (m->kind == CU_W16) {
            m->row_scale = (const float *)place(base, &used, (size_t)m->tiles * 64 * 4);
        }
    }
    for (int i = 0; i < b->n_vecs; i++) {
        *b->vecs[i].to = (const float *)place(base, &used, b->vecs[i].t->size);
    }
    b->embed = b->weights.embed;
    b->embed.data = place(base, &used, b->embed.size);
    if (b->embed.scale_size > 0) {
        b->embed.scales = place(base, &used, b->embed.scale_size);
    }
    return used;
}

/* ---- packing on the host, for the comparison ---- */

size_t cuda_tile_bytes(const struct cu_mat *m)
{
    return (size_t)m->kg * cu_step_bytes(m->kind);
}

/* Tiles first..first+n-1 of a matrix into a buffer, by all threads. */
struct pack_job {
    const struct cuda_mat_src *s;
    int first, n;
    uint8_t *out;
    float *scales; /* [n * 64] */
    atomic_int next;
};

static void pack_share(void *arg, int tid, int nt)
{
    (void)tid;
    (void)nt;
    struct pack_job *j = arg;
    const struct cu_mat *m = j->s->mat;
    const size_t tile = cuda_tile_bytes(m);
    for (;;) {
        int i = atomic_fetch_add(&j->next, 1);
        if (i >= j->n) {
            return;
        }
        for (int r = 0; r < BLOCKS; r++) {
            cu_pack_block(m->kind, j->s->src, j->s->n_src, m->rows, j->s->k,
                          (j->first + i) * BLOCKS + r, j->out + (size_t)i * tile,
                          j->scales + i * 64 + r * 16);
        }
    }
}

static void pack(struct backend *b, const struct cuda_mat_src *s, int first, int n, uint8_t *out,
                 float *scales)
{
    struct pack_job j = {.s = s, .first = first, .n = n, .out = out, .scales = scales};
    team_run(b->team, pack_share, &j);
}

/* ---- comparison ---- */

static int differs(const void *a, const void *b, size_t n, const char *name, struct err *e)
{
    return memcmp(a, b, n) == 0
               ? 0
               : err_set(e, QE_DEVICE,
                         "the device's copy of %s differs from the model file: the memory of the "
                         "device or the way to it is damaged",
                         name);
}

static int verify_bytes(struct backend *b, const void *device, const void *host, size_t n,
                        uint8_t *buf, size_t size, const char *name, struct err *e)
{
    int rc = 0;
    for (size_t at = 0; at < n && rc == 0; at += size) {
        const size_t k = n - at < size ? n - at : size;
        int st = rt_download(b->rt, buf, (const uint8_t *)device + at, k);
        st = st ? st : rt_sync(b->rt);
        rc = st ? cuda_fail(b, st, e) : differs(buf, (const uint8_t *)host + at, k, name, e);
    }
    return rc;
}

static int verify_mat(struct backend *b, const struct cuda_mat_src *s, uint8_t *want, uint8_t *got,
                      size_t size, struct err *e)
{
    const struct cu_mat *m = s->mat;
    const size_t tile = cuda_tile_bytes(m), scales = 64 * sizeof(float);
    const int most = (int)(size / (tile + scales));
    int rc = 0;
    for (int at = 0; at < m->tiles && rc == 0; at += most) {
        const int n = m->tiles - at < most ? m->tiles - at : most;
        float *row_scale = (float *)(want + (size_t)most * tile);
        pack(b, s, at, n, want, row_scale);
        rc = verify_bytes(b, m->data + (size_t)at * tile, want, (size_t)n * tile, got, size,
                          m->name, e);
        if (rc == 0 && m->row_scale) {
            rc = verify_bytes(b, m->row_scale + at * 64, row_scale, (size_t)n * scales, got, size,
                              m->name, e);
        }
    }
    return rc;
}

int cuda_weights_verify(struct backend *b, struct err *e)
{
    size_t size = STAGE_BYTES;
    for (int i = 0; i < b->n_mats; i++) {
        const size_t need = cuda_tile_bytes(b->mats[i].mat) + 64 * sizeof(float);
        size = need > size ? need : size;
    }
    uint8_t *want = mem_aligned(size);
    uint8_t *got = mem_aligned(size);
    b->doing = "reading the weights back";
    int rc = 0;
    for (int i = 0; i < b->n_vecs && rc == 0; i++) {
        const struct tensor *t = b->vecs[i].t;
        rc = verify_bytes(b, *b->vecs[i].to, t->data, t->size, got, size,
                          t->name ? t->name : "a vector", e);
    }
    const struct tensor *t = &b->weights.embed;
    const char *name = t->name ? t->name : "the embedding";
    rc = rc ? rc : verify_bytes(b, b->embed.data, t->data, t->size, got, size, name, e);
    if (t->scale_size > 0) {
        rc = rc ? rc
                : verify_bytes(b, b->embed.scales, t->scales, t->scale_size, got, size, name, e);
    }
    for (int i = 0; i < b->n_mats && rc == 0; i++) {
        rc = verify_mat(b, &b->mats[i], want, got, size, e);
    }
    free(want);
    free(got);
    return rc;
}
