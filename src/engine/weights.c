/* From named tensors to struct be_weights. Matrices stay where they are, in
 * whatever format; norms, A, dt_bias, the convolution and the gated norm become
 * fp32 in the form the formulas use them (1 + w, -exp(A_log), [channels, 4]).
 * Two passes over one list: the first sizes the block of vectors. */
#include "config.h"
#include "engine/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define COPY_NAME "lm_head.q4.weight"

enum form { F_MATRIX, F_NORM, F_PLAIN, F_A_LOG };

struct reader {
    const struct engine_source *src;
    struct model_weights *out;
    bool fill;   /* second pass */
    size_t used; /* floats of out->vectors */
};

static const char *shape_text(const struct tensor *t, char *s, size_t n)
{
    size_t len = 0;
    s[0] = 0;
    for (int i = 0; i < t->n_dims && len + 1 < n; i++) {
        int k = snprintf(s + len, n - len, "%s%" PRIu64, i ? ", " : "", t->shape[i]);
        len += k > 0 ? (size_t)k : 0;
    }
    return s;
}

static int convert(const struct tensor *t, enum form form, bool folded, float *out, struct err *e)
{
    size_t n = (size_t)(tensor_rows(t) * tensor_cols(t));
    if (t->dtype != DT_F32 && t->dtype != DT_F16 && t->dtype != DT_BF16) {
        return err_set(e, QE_UNSUPPORTED, "the tensor %s is %s; f32, f16 or bf16 is needed",
                       t->name, dtype_name(t->dtype));
    }
    for (size_t i = 0; i < n; i++) {
        float x = 0;
        uint16_t h = 0;
        if (t->dtype == DT_F32) {
            memcpy(&x, (const char *)t->data + 4 * i, 4);
        } else {
            memcpy(&h, (const char *)t->data + 2 * i, 2);
            x = t->dtype == DT_F16 ? f16_to_f32(h) : bf16_to_f32(h);
        }
        if (form == F_NORM && !folded) {
            x = 1 + x;
        } else if (form == F_A_LOG && !folded) {
            x = -expf(x);
        }
        if (!isfinite(x)) {
            return err_set(e, QE_FORMAT, "the tensor %s holds a value that is not finite", t->name);
        }
        out[i] = x;
    }
    return 0;
}

/* rows 0: a vector of cols. A vector of [n, 1, k] may come as [n, k]. */
static int take(struct reader *r, const char *name, enum form form, int rows, int cols,
                struct tensor *out, struct err *e)
{
    const struct tensor *t = r->src->find(r->src->ctx, name);
    if (!t) {
        return err_set(e, QE_FORMAT, "the model file has no tensor %s", name);
    }
    uint64_t want_rows = rows ? (uint64_t)rows : 1;
    char s[100];
    if (t->n_dims < 1 || tensor_rows(t) != want_rows || tensor_cols(t) != (uint64_t)cols) {
        if (rows) {
            return err_set(e, QE_FORMAT, "the tensor %s is [%s]; the configuration wants [%d, %d]",
                           name, shape_text(t, s, sizeof s), rows, cols);
        }
        return err_set(e, QE_FORMAT, "the tensor %s is [%s]; the configuration wants [%d]", name,
                       shape_text(t, s, sizeof s), cols);
    }
    size_t data = 0, scales = 0;
    if (dtype_sizes(t->dtype, want_rows, (uint64_t)cols, &data, &scales) < 0 || t->size != data ||
        t->scale_size != scales) {
        return err_set(e, QE_FORMAT, "the tensor %s has the wrong size for [%s] in %s", name,
                       shape_text(t, s, sizeof s), dtype_name(t->dtype));
    }
    size_t n = (size_t)want_rows * (size_t)cols;
    if (form == F_MATRIX) {
        *out = *t;
        return 0;
    }
    if (r->fill) {
        float *p = r->out->vectors + r->used;
        int rc = convert(t, form, r->src->norms_folded, p, e);
        if (rc < 0) {
            return rc;
        }
        *out = (struct tensor){.name = t->name,
                               .dtype = DT_F32,
                               .n_dims = rows ? 2 : 1,
                               .shape = {rows ? (uint64_t)rows : (uint64_t)cols, (uint64_t)cols},
                               .data = p,
                               .size = n * sizeof *p};
    }
    r->used += (n + 15) & ~(size_t)15; /* each on its own cache line */
    return 0;
}

struct want {
    const char *name;
    enum form form;
    int rows, cols;
    struct tensor *out;
};

static int take_all(struct reader *r, const char *prefix, const struct want *w, size_t n,
                    struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", prefix, w[i].name);
        rc = take(r, name, w[i].form, w[i].rows, w[i].cols, w[i].out, e);
    }
    return rc;
}

static int take_layer(struct reader *r, const char *prefix, bool attention,
                      const struct be_shape *s, struct be_layer *l, struct err *e)
{
    const int h = s->hidden, kd = s->k_heads * BE_DN_DIM, vd = s->v_heads * BE_DN_DIM;
    const int qd = s->q_heads * BE_HEAD_DIM, kvd = s->kv_heads * BE_HEAD_DIM;
    const struct want common[] = {
        {"input_layernorm.weight", F_NORM, 0, h, &l->norm},
        {"post_attention_layernorm.weight", F_NORM, 0, h, &l->post_norm},
        {"mlp.gate_proj.weight", F_MATRIX, s->ffn, h, &l->gate},
        {"mlp.up_proj.weight", F_MATRIX, s->ffn, h, &l->up},
        {"mlp.down_proj.weight", F_MATRIX, h, s->ffn, &l->down},
    };
    const struct want attn[] = {
        {"self_attn.q_proj.weight", F_MATRIX, 2 * qd, h, &l->q},
        {"self_attn.k_proj.weight", F_MATRIX, kvd, h, &l->k},
        {"self_attn.v_proj.weight", F_MATRIX, kvd, h, &l->v},
        {"self_attn.o_proj.weight", F_MATRIX, h, qd, &l->o},
        {"self_attn.q_norm.weight", F_NORM, 0, BE_HEAD_DIM, &l->q_norm},
        {"self_attn.k_norm.weight", F_NORM, 0, BE_HEAD_DIM, &l->k_norm},
    };
    const struct want gdn[] = {
        {"linear_attn.in_proj_qkv.weight", F_MATRIX, 2 * kd + vd, h, &l->qkv},
        {"linear_attn.in_proj_z.weight", F_MATRIX, vd, h, &l->z},
        {"linear_attn.in_proj_b.weight", F_MATRIX, s->v_heads, h, &l->b},
        {"linear_attn.in_proj_a.weight", F_MATRIX, s->v_heads, h, &l->a},
        {"linear_attn.out_proj.weight", F_MATRIX, h, vd, &l->out},
        {"linear_attn.conv1d.weight", F_PLAIN, 2 * kd + vd, BE_CONV, &l->conv},
        {"linear_attn.A_log", F_A_LOG, 0, s->v_heads, &l->a_log},
        {"linear_attn.dt_bias", F_PLAIN, 0, s->v_heads, &l->dt_bias},
        {"linear_attn.norm.weight", F_PLAIN, 0, BE_DN_DIM, &l->gnorm},
    };
    int rc = take_all(r, prefix, common, sizeof common / sizeof *common, e);
    if (rc == 0 && attention) {
        rc = take_all(r, prefix, attn, sizeof attn / sizeof *attn, e);
    } else if (rc == 0) {
        rc = take_all(r, prefix, gdn, sizeof gdn / sizeof *gdn, e);
    }
    return rc;
}

static int take_model(struct reader *r, const struct model_config *m, struct err *e)
{
    const struct be_shape *s = &m->shape;
    struct be_weights *w = &r->out->w;
    bool own_head = r->src->find(r->src->ctx, "lm_head.weight") != NULL;
    const struct want top[] = {
        {"embed_tokens.weight", F_MATRIX, s->vocab, s->hidden, &w->embed},
        {"norm.weight", F_NORM, 0, s->hidden, &w->norm},
        {own_head || !m->tied ? "lm_head.weight" : "embed_tokens.weight", F_MATRIX, s->vocab,
         s->hidden, &w->head},
    };
    const struct want mtp[] = {
        {"fc.weight", F_MATRIX, s->hidden, 2 * s->hidden, &w->mtp_fc},
        {"pre_fc_norm_embedding.weight", F_NORM, 0, s->hidden, &w->mtp_enorm},
        {"pre_fc_norm_hidden.weight", F_NORM, 0, s->hidden, &w->mtp_hnorm},
        {"norm.weight", F_NORM, 0, s->hidden, &w->mtp_norm},
    };
    r->used = 0;
    int rc = take_all(r, "", top, sizeof top / sizeof *top, e);
    for (int i = 0; rc == 0 && i < s->layers; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%d.", i);
        rc = take_layer(r, prefix, s->attention[i], s, &r->out->layers[i], e);
    }
    if (rc == 0 && s->mtp) {
        rc = take_all(r, "mtp.", mtp, sizeof mtp / sizeof *mtp, e);
    }
    if (rc == 0 && s->mtp) {
        rc = take_layer(r, "mtp.layers.0.", true, s, &w->mtp_layer, e);
    }
    return rc;
}

static uint64_t bytes(const struct tensor *t)
{
    return t->size + t->scale_size;
}

static uint64_t layer_bytes(const struct be_layer *l)
{
    const struct tensor *const all[] = {&l->gate, &l->up,  &l->down, &l->q, &l->k, &l->v,
                                        &l->o,    &l->qkv, &l->z,    &l->b, &l->a, &l->out};
    uint64_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        n += bytes(all[i]); /* absent ones are zero */
    }
    return n;
}

/* The 4-bit copy of the head, if it is to be had and is smaller than the head: the
 * file's, else, where it was asked for, one made here. */
static int take_copy(const struct engine_source *src, const struct be_shape *s,
                     enum engine_draft_head drafts, bool fast, struct model_weights *w,
                     struct err *e)
{
    const bool asked = fast || (s->mtp && drafts == EDH_Q4);
    const bool wanted = asked || (s->mtp && drafts == EDH_AUTO);
    if (!wanted || w->w.head.dtype == DT_Q4_G64) {
        return 0;
    }
    if (src->find(src->ctx, COPY_NAME)) {
        struct reader r = {.src = src, .out = w};
        return take(&r, COPY_NAME, F_MATRIX, s->vocab, s->hidden, &w->w.head_copy, e);
    }
    int rc = asked ? head_copy_make(&w->w.head, &w->copy, e) : 0;
    w->w.head_copy = w->copy.t;
    return rc;
}

int model_weights_read(const struct engine_source *src, struct model_config *m,
                       enum engine_draft_head drafts, bool fast, struct model_weights *out,
                       struct err *e)
{
    struct model_weights w = {0};
    if (!src->find(src->ctx, "mtp.fc.weight")) {
        m->shape.mtp = false;
    }
    w.layers = mem_array((size_t)m->shape.layers, sizeof *w.layers);
    struct reader r = {.src = src, .out = &w};
    int rc = take_model(&r, m, e);
    if (rc == 0) {
        w.vectors = mem_aligned(r.used * sizeof *w.vectors);
        r.fill = true;
        rc = take_model(&r, m, e);
    }
    rc = rc < 0 ? rc : take_copy(src, &m->shape, drafts, fast, &w, e);
    if (rc < 0) {
        model_weights_fini(&w);
        return rc;
    }
    w.w.layers = w.layers;
    const bool copy = w.w.head_copy.data != NULL;
    w.step_bytes = bytes(fast && copy ? &w.w.head_copy : &w.w.head);
    for (int i = 0; i < m->shape.layers; i++) {
        w.step_bytes += layer_bytes(&w.layers[i]);
    }
    if (m->shape.mtp) {
        w.draft_bytes = bytes(&w.w.mtp_fc) + layer_bytes(&w.w.mtp_layer) +
                        bytes(copy ? &w.w.head_copy : &w.w.head);
    }
    *out = w;
    return 0;
}

void model_weights_fini(struct model_weights *w)
{
    free(w->layers);
    free(w->vectors);
    head_copy_free(&w->copy);
    *w = (struct model_weights){0};
}
