/*
 * The CPU backend: the blocks of the model as phases that a team of threads
 * walks through together, with a barrier wherever a phase reads what others
 * wrote. All arithmetic is behind struct cpu_isa.
 */
#include "config.h"
#include "kernels/cpu/cpu.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "kernels/geometry.h"

static float *scratch_of(const struct backend *b, int tid)
{
    return b->scratch + (size_t)tid * b->scratch_floats;
}

static const float *floats(const struct tensor *t)
{
    return t->data;
}

/* ---- clocks ---- */

enum { BEFORE = -1 }; /* what came before belongs to no part */

/* Thread 0 tells that a part has ended, which for it is when the last of all ends. */
static void lap(struct backend *b, int tid, int part)
{
    if (tid == 0 && b->clocks) {
        const int64_t now = clock_now(clock_real());
        if (part != BEFORE) {
            b->clocks[part] += clock_seconds(now - b->lap);
        }
        b->lap = now;
    }
}

static void op_clocks(struct backend *b, double *part)
{
    b->clocks = part;
}

/* ---- the batch ---- */

/* Cosines and sines of row i, angles in double. */
static void turn_row(struct backend *b, int i, const int32_t pos[3])
{
    float *rot = b->rot + (size_t)i * BE_ROT_DIM;
    for (int f = 0; f < BE_ROT_DIM / 2; f++) {
        double angle = (double)pos[b->axis[f]] * b->inv_freq[f];
        rot[f] = (float)cos(angle);
        rot[BE_ROT_DIM / 2 + f] = (float)sin(angle);
    }
}

struct turn_job {
    struct backend *b;
    const int32_t (*rope)[3];
};

static void turn_share(void *arg, int tid, int nt)
{
    const struct turn_job *j = arg;
    for (int i = tid; i < j->b->n_rows; i += nt) {
        const int32_t pos = j->b->row[i].pos;
        const int32_t same[3] = {pos, pos, pos};
        turn_row(j->b, i, j->rope ? j->rope[i] : same);
    }
}

static int op_begin(struct backend *b, const struct be_batch *t, struct err *e)
{
    b->begun = false;
    lap(b, 0, BEFORE);
    int rc = be_check_batch(&b->shape, t, b->slots, b->pages, b->max_rows, e);
    if (rc < 0) {
        return rc;
    }
    b->mode = t->mode;
    b->held = false;
    b->n_rows = t->n_rows;
    b->n_spans = t->n_spans;
    memcpy(b->span, t->spans, (size_t)t->n_spans * sizeof *b->span);
    memcpy(b->tokens, t->tokens, (size_t)t->n_rows * sizeof *b->tokens);
    int row = 0;
    for (int i = 0; i < t->n_spans; i++) {
        const struct be_span *sp = &b->span[i];
        for (int j = 0; j < sp->n; j++, row++) {
            b->row[row] = (struct cpu_row){sp->pages, sp->pos + j};
            b->row_span[row] = i;
        }
    }
    struct turn_job job = {b, t->rope};
    if (t->n_rows > 32) {
        team_run(b->team, turn_share, &job);
    } else {
        turn_share(&job, 0, 1);
    }
    lap(b, 0, BE_PART_SMALL);
    b->begun = true;
    return 0;
}

static int check_begun(const struct backend *b, const char *op, struct err *e)
{
    return b->begun ? 0 : err_set(e, QE_INTERNAL, "%s without a batch", op);
}

static int op_embed(struct backend *b, struct err *e)
{
    int rc = check_begun(b, "embed", e);
    if (rc == 0) {
        lap(b, 0, BEFORE);
        b->isa->embed(&b->weights.embed, b->tokens, b->n_rows, b->x, (size_t)b->shape.hidden, 0, 1);
        lap(b, 0, BE_PART_SMALL);
    }
    return rc;
}

/* ---- blocks ---- */

/* The residual stream through a norm, as the input of a product. */
static struct mm_in normed(const struct backend *b, const struct tensor *norm)
{
    return (struct mm_in){
        .x = b->x,
        .ldx = (size_t)b->shape.hidden,
        .rows = b->n_rows,
        .k = b->shape.hidden,
        .norm = floats(norm),
        .eps = b->shape.eps,
    };
}

static struct mm_in plain(const float *x, int rows, int k)
{
    return (struct mm_in){.x = x, .ldx = (size_t)k, .rows = rows, .k = k};
}

static struct mm_out product(const struct tensor *w, float *y, int n)
{
    return (struct mm_out){.w = w, .y = y, .ldy = (size_t)n, .n_out = n};
}

static struct mm_out residual(const struct backend *b, const struct tensor *w)
{
    struct mm_out m = product(w, b->x, b->shape.hidden);
    m.add = true;
    return m;
}

/* A single group of products. */
struct product_job {
    struct backend *b;
    const struct mm_in *in;
    const struct mm_out *out;
    int n_out;
};

static void product_share(void *arg, int tid, int nt)
{
    const struct product_job *j = arg;
    j->b->isa->matmul(j->in, j->out, j->n_out, scratch_of(j->b, tid), tid, nt);
}

struct gdn_job {
    struct backend *b;
    struct gdn_args a;
    struct mm_in in, mid;
    struct mm_out proj[4], out;
};

static void gdn_share(void *arg, int tid, int nt)
{
    const struct gdn_job *j = arg;
    struct backend *b = j->b;
    float *scratch = scratch_of(b, tid);
    b->isa->matmul(&j->in, j->proj, 4, scratch, tid, nt);
    team_barrier(b->team);
    lap(b, tid, BE_PART_WEIGHTS);
    b->isa->gdn_conv(&j->a, tid, nt);
    team_barrier(b->team);
    b->isa->gdn(&j->a, scratch, tid, nt);
    team_barrier(b->team);
    lap(b, tid, BE_PART_DELTANET);
    b->isa->matmul(&j->mid, &j->out, 1, scratch, tid, nt);
}

static float *record_of(const struct backend *b, int index)
{
    return b->record + (size_t)index * b->record_layer;
}

static int op_gdn(struct backend *b, int layer, struct err *e)
{
    int rc = check_begun(b, "gdn", e);
    if (rc < 0) {
        return rc;
    }
    if (layer < 0 || layer >= b->shape.layers || b->attention[layer]) {
        return err_set(e, QE_INTERNAL, "layer %d is not a DeltaNet layer", layer);
    }
    const struct be_layer *l = &b->layers[layer];
    const struct be_shape *s = &b->shape;
    const size_t rows = (size_t)b->n_rows;
    const size_t ch = (size_t)b->channels;
    const int vd = s->v_heads * BE_DN_DIM;
    int first = 0;
    for (int i = 0; i < b->n_spans; i++) {
        const struct be_span *sp = &b->span[i];
        float *state = cpu_slot_gdn(b, sp->slot, b->index[layer]);
        b->gdn_span[i] = (struct gdn_span){
            first, sp->n, sp->pos, state, state + (size_t)vd * BE_DN_DIM,
        };
        first += sp->n;
    }
    const bool hold = b->mode == BE_VERIFY;
    float *z = b->arena;
    float *y = z + rows * (size_t)vd;
    float *qkv = hold ? record_of(b, b->index[layer]) : y + rows * (size_t)vd;
    float *c = qkv + rows * ch;
    float *bb = c + rows * ch;
    float *aa = bb + rows * (size_t)s->v_heads;
    struct gdn_job job = {
        .b = b,
        .a =
            {
                .n_spans = b->n_spans,
                .k_heads = s->k_heads,
                .v_heads = s->v_heads,
                .span = b->gdn_span,
                .qkv = qkv,
                .z = z,
                .b = bb,
                .a = aa,
                .c = c,
                .y = y,
                .conv_w = floats(&l->conv),
                .a_log = floats(&l->a_log),
                .dt_bias = floats(&l->dt_bias),
                .gnorm = floats(&l->gnorm),
                .eps = s->eps,
                .steps = b->mode != BE_PREFILL,
                .hold = hold,
            },
        .in = normed(b, &l->norm),
        .mid = plain(y, b->n_rows, vd),
        .proj =
            {
                product(&l->qkv, qkv, b->channels),
                product(&l->z, z, vd),
                product(&l->b, bb, s->v_heads),
                product(&l->a, aa, s->v_heads),
            },
        .out = residual(b, &l->out),
    };
    lap(b, 0, BEFORE);
    team_run(b->team, gdn_share, &job);
    lap(b, 0, BE_PART_WEIGHTS);
    return 0;
}

struct attention_job {
    struct backend *b;
    struct attn_args a;
    struct mm_in in, mid;
    struct mm_out proj[3], out;
};

static void attention_share(void *arg, int tid, int nt)
{
    const struct attention_job *j = arg;
    struct backend *b = j->b;
    float *scratch = scratch_of(b, tid);
    b->isa->matmul(&j->in, j->proj, j->a.kv_only ? 2 : 3, scratch, tid, nt);
    team_barrier(b->team);
    lap(b, tid, BE_PART_WEIGHTS);
    b->isa->attn_append(&j->a, tid, nt);
    if (!j->a.kv_only) {
        team_barrier(b->team);
        b->isa->attn(&j->a, scratch, tid, nt);
        team_barrier(b->team);
        lap(b, tid, BE_PART_ATTENTION);
        b->isa->matmul(&j->mid, &j->out, 1, scratch, tid, nt);
    }
}

static void attention(struct backend *b, const struct be_layer *l, int index, bool kv_only)
{
    const struct be_shape *s = &b->shape;
    const size_t rows = (size_t)b->n_rows;
    const int qd = s->q_heads * BE_HEAD_DIM;
    const int kd = s->kv_heads * BE_HEAD_DIM;
    float *q = b->arena;
    float *k = q + rows * 2 * (size_t)qd;
    float *v = k + rows * (size_t)kd;
    float *o = v + rows * (size_t)kd;
    struct attention_job job = {
        .b = b,
        .a =
            {
                .rows = b->n_rows,
                .q_heads = s->q_heads,
                .kv_heads = s->kv_heads,
                .row = b->row,
                .q = q,
                .k = k,
                .v = v,
                .o = o,
                .rot = b->rot,
                .q_norm = floats(&l->q_norm),
                .k_norm = floats(&l->k_norm),
                .eps = s->eps,
                .kv = b->kv,
                .kv_only = kv_only,
                .cache = b->cache.p,
                .page_size = b->page_bytes,
                .offset = (size_t)index * b->layer_bytes,
            },
        .in = normed(b, &l->norm),
        .mid = plain(o, b->n_rows, qd),
        .proj = {product(&l->k, k, kd), product(&l->v, v, kd), product(&l->q, q, 2 * qd)},
        .out = residual(b, &l->o),
    };
    lap(b, 0, BEFORE);
    team_run(b->team, attention_share, &job);
    lap(b, 0, kv_only ? BE_PART_ATTENTION : BE_PART_WEIGHTS);
}

static int op_attention(struct backend *b, int layer, struct err *e)
{
    int rc = check_begun(b, "attention", e);
    if (rc < 0) {
        return rc;
    }
    if (layer < 0 || layer >= b->shape.layers || !b->attention[layer]) {
        return err_set(e, QE_INTERNAL, "layer %d is not an attention layer", layer);
    }
    attention(b, &b->layers[layer], b->index[layer], false);
    return 0;
}

struct ffn_job {
    struct backend *b;
    struct mm_in in, mid;
    struct mm_out proj[2], out;
};

static void ffn_share(void *arg, int tid, int nt)
{
    const struct ffn_job *j = arg;
    struct backend *b = j->b;
    float *scratch = scratch_of(b, tid);
    const int n = b->shape.ffn;
    b->isa->matmul(&j->in, j->proj, 2, scratch, tid, nt);
    b->isa->silu_mul(j->proj[0].y, j->proj[1].y, (size_t)n, b->n_rows, n, tid, nt);
    team_barrier(b->team);
    b->isa->matmul(&j->mid, &j->out, 1, scratch, tid, nt);
}

static void ffn(struct backend *b, const struct be_layer *l)
{
    const int n = b->shape.ffn;
    float *g = b->arena;
    float *u = g + (size_t)b->n_rows * (size_t)n;
    struct ffn_job job = {
        .b = b,
        .in = normed(b, &l->post_norm),
        .mid = plain(g, b->n_rows, n),
        .proj = {product(&l->gate, g, n), product(&l->up, u, n)},
        .out = residual(b, &l->down),
    };
    lap(b, 0, BEFORE);
    team_run(b->team, ffn_share, &job);
    lap(b, 0, BE_PART_WEIGHTS);
}

static int op_ffn(struct backend *b, int layer, struct err *e)
{
    int rc = check_begun(b, "ffn", e);
    if (rc < 0) {
        return rc;
    }
    if (layer < 0 || layer >= b->shape.layers) {
        return err_set(e, QE_INTERNAL, "no layer %d", layer);
    }
    ffn(b, &b->layers[layer]);
    return 0;
}

static int op_final_norm(struct backend *b, struct err *e)
{
    int rc = check_begun(b, "final_norm", e);
    if (rc < 0) {
        return rc;
    }
    const size_t ld = (size_t)b->shape.hidden;
    lap(b, 0, BEFORE);
    b->isa->norm(b->x, ld, floats(&b->weights.norm), b->shape.eps, b->n_rows, b->shape.hidden, b->h,
                 ld, 0, 1);
    lap(b, 0, BE_PART_SMALL);
    b->h_rows = b->n_rows;
    b->held = b->mode == BE_VERIFY;
    return 0;
}

/* ---- accepting rows of a held batch ---- */

struct fold_job {
    struct backend *b;
    const int32_t *accepted;
};

/* The last three inputs after n more. */
static void fold_conv(float *state, const float *qkv, int n, size_t ch)
{
    if (n < BE_CONV - 1) {
        memmove(state, state + (size_t)n * ch, (size_t)(BE_CONV - 1 - n) * ch * sizeof *state);
    }
    const int keep = n < BE_CONV - 1 ? n : BE_CONV - 1;
    memcpy(state + (size_t)(BE_CONV - 1 - keep) * ch, qkv + (size_t)(n - keep) * ch,
           (size_t)keep * ch * sizeof *state);
}

static void fold_share(void *arg, int tid, int nt)
{
    const struct fold_job *j = arg;
    struct backend *b = j->b;
    const size_t rows = (size_t)b->n_rows;
    const size_t ch = (size_t)b->channels;
    const size_t heads = (size_t)b->shape.v_heads;
    for (int l = 0; l < b->shape.layers; l++) {
        if (b->attention[l]) {
            continue;
        }
        const float *qkv = record_of(b, b->index[l]);
        struct gdn_span span[BE_MAX_ROWS];
        struct gdn_args a = {
            .n_spans = b->n_spans,
            .k_heads = b->shape.k_heads,
            .v_heads = b->shape.v_heads,
            .span = span,
            .c = (float *)(uintptr_t)(qkv + rows * ch), /* only read */
            .b = qkv + 2 * rows * ch,
            .a = qkv + 2 * rows * ch + rows * heads,
            .a_log = floats(&b->layers[l].a_log),
            .dt_bias = floats(&b->layers[l].dt_bias),
        };
        int first = 0;
        for (int i = 0; i < b->n_spans; i++) {
            float *s = cpu_slot_gdn(b, b->span[i].slot, b->index[l]);
            span[i] = (struct gdn_span){.first = first, .n = j->accepted[i], .s = s};
            if ((l + i) % nt == tid) {
                fold_conv(s + heads * BE_DN_DIM * BE_DN_DIM, qkv + (size_t)first * ch,
                          j->accepted[i], ch);
            }
            first += b->span[i].n;
        }
        b->isa->gdn_fold(&a, tid, nt);
    }
}

static int op_fold(struct backend *b, const int32_t *accepted, struct err *e)
{
    if (!b->held) {
        return err_set(e, QE_INTERNAL, "there is no batch whose rows could be accepted");
    }
    for (int i = 0; i < b->n_spans; i++) {
        if (accepted[i] < 0 || accepted[i] > b->span[i].n) {
            return err_set(e, QE_INTERNAL, "%d rows accepted of %d", accepted[i], b->span[i].n);
        }
    }
    struct fold_job job = {b, accepted};
    team_run(b->team, fold_share, &job);
    b->held = false;
    return 0;
}

static int head(struct backend *b, const struct tensor *w, const float *x, int have,
                const int32_t *rows, int n, struct err *e)
{
    int rc = be_check_rows(rows, n, have, CPU_MAX_OUT, e);
    if (rc < 0) {
        return rc;
    }
    b->n_out = n;
    if (n == 0) {
        return 0;
    }
    struct mm_in in = plain(x, n, b->shape.hidden);
    in.index = rows;
    /* Padding ids are not computed. */
    struct mm_out out = product(w, b->logits, b->shape.vocab_used);
    out.ldy = (size_t)b->shape.vocab;
    struct product_job job = {b, &in, &out, 1};
    lap(b, 0, BEFORE);
    team_run(b->team, product_share, &job);
    for (int i = 0; i < n; i++) {
        float *row = b->logits + (size_t)i * out.ldy;
        for (int id = b->shape.vocab_used; id < b->shape.vocab; id++) {
            row[id] = -INFINITY;
        }
    }
    lap(b, 0, BE_PART_HEAD);
    return 0;
}

/* What drafts read. */
static const struct tensor *copy_of(const struct backend *b)
{
    return b->weights.head_copy.data ? &b->weights.head_copy : &b->weights.head;
}

static int op_head(struct backend *b, const int32_t *rows, int n, struct err *e)
{
    return head(b, b->fast ? copy_of(b) : &b->weights.head, b->h, b->h_rows, rows, n, e);
}

static void op_fast_head(struct backend *b, bool on)
{
    b->fast = on;
}

struct sample_job {
    struct backend *b;
    const struct be_sample *s;
    int n;
    int32_t *ids;
};

static void sample_share(void *arg, int tid, int nt)
{
    const struct sample_job *j = arg;
    const size_t ld = (size_t)j->b->shape.vocab;
    for (int i = tid; i < j->n; i += nt) {
        j->ids[i] = sample_row(j->b->logits + (size_t)i * ld, j->b->shape.vocab_used, &j->s[i],
                               j->b->draw + (size_t)i * j->b->draw_floats);
    }
}

static int op_sample(struct backend *b, const struct be_sample *s, int n, int32_t *ids,
                     struct err *e)
{
    if (n < 0 || n > b->n_out) {
        return err_set(e, QE_INTERNAL, "%d draws from %d rows of logits", n, b->n_out);
    }
    struct sample_job job = {b, s, n, ids};
    lap(b, 0, BEFORE);
    if (n > 1) {
        team_run(b->team, sample_share, &job);
    } else {
        sample_share(&job, 0, 1);
    }
    lap(b, 0, BE_PART_HEAD);
    return 0;
}

struct best_job {
    struct backend *b;
    int n;
    int32_t *ids;
    float *margins;
};

static void best_share(void *arg, int tid, int nt)
{
    const struct best_job *j = arg;
    for (int i = tid; i < j->n; i += nt) {
        j->b->isa->best(j->b->logits + (size_t)i * (size_t)j->b->shape.vocab,
                        j->b->shape.vocab_used, &j->ids[i], &j->margins[i]);
    }
}

static int op_best(struct backend *b, int n, int32_t *ids, float *margins, struct err *e)
{
    if (n < 0 || n > b->n_out) {
        return err_set(e, QE_INTERNAL, "%d choices from %d rows of logits", n, b->n_out);
    }
    struct best_job job = {b, n, ids, margins};
    if (n > 1) {
        team_run(b->team, best_share, &job);
    } else {
        best_share(&job, 0, 1);
    }
    return 0;
}

/* ---- MTP ---- */

static int op_hidden_save(struct backend *b, int row, int slot, struct err *e)
{
    int rc = be_check_slot(b->slots, slot, e);
    int32_t r = row;
    rc = rc < 0 ? rc : be_check_rows(&r, 1, b->h_rows, CPU_MAX_OUT, e);
    if (rc == 0) {
        memcpy(cpu_slot_hidden(b, slot), b->h + (size_t)row * (size_t)b->shape.hidden,
               (size_t)b->shape.hidden * sizeof(float));
    }
    return rc;
}

/* The hidden state that row i of an MTP batch starts from, or NULL. */
static const float *source_of(const struct backend *b, int i, int32_t source)
{
    const size_t ld = (size_t)b->shape.hidden;
    if (source == BE_H_SLOT) {
        return cpu_slot_hidden(b, b->span[b->row_span[i]].slot);
    }
    if (source <= BE_H_CHAIN) {
        const int32_t r = source == BE_H_CHAIN ? i : BE_H_CHAIN - 1 - source;
        return r < b->m_rows ? b->m + (size_t)r * ld : NULL;
    }
    return source >= 0 && source < b->h_rows ? b->h + (size_t)source * ld : NULL;
}

static int op_mtp_embed(struct backend *b, const struct be_batch *batch, const int32_t *source,
                        struct err *e)
{
    if (!b->shape.mtp) {
        return err_set(e, QE_UNSUPPORTED, "the model has no MTP layer");
    }
    int rc = op_begin(b, batch, e);
    if (rc < 0) {
        return rc;
    }
    const size_t ld = (size_t)b->shape.hidden;
    float *cat = b->arena;
    for (int i = 0; i < b->n_rows; i++) {
        const float *hidden = source_of(b, i, source[i]);
        if (!hidden) {
            b->begun = false;
            return err_set(e, QE_INTERNAL, "row %d has no hidden state %d", i, source[i]);
        }
        float *row = cat + (size_t)i * 2 * ld;
        b->isa->embed(&b->weights.embed, &b->tokens[i], 1, row, ld, 0, 1);
        b->isa->norm(row, ld, floats(&b->weights.mtp_enorm), b->shape.eps, 1, b->shape.hidden, row,
                     ld, 0, 1);
        b->isa->norm(hidden, ld, floats(&b->weights.mtp_hnorm), b->shape.eps, 1, b->shape.hidden,
                     row + ld, ld, 0, 1);
    }
    const struct mm_in in = plain(cat, b->n_rows, 2 * b->shape.hidden);
    const struct mm_out out = product(&b->weights.mtp_fc, b->x, b->shape.hidden);
    struct product_job job = {b, &in, &out, 1};
    lap(b, 0, BE_PART_SMALL);
    team_run(b->team, product_share, &job);
    lap(b, 0, BE_PART_WEIGHTS);
    return 0;
}

static int op_mtp_layer(struct backend *b, bool kv_only, struct err *e)
{
    int rc = check_begun(b, "mtp_layer", e);
    if (rc < 0) {
        return rc;
    }
    if (!b->shape.mtp) {
        return err_set(e, QE_UNSUPPORTED, "the model has no MTP layer");
    }
    attention(b, &b->weights.mtp_layer, b->n_attention, kv_only);
    b->m_rows = 0;
    if (!kv_only) {
        const size_t ld = (size_t)b->shape.hidden;
        ffn(b, &b->weights.mtp_layer);
        b->isa->norm(b->x, ld, floats(&b->weights.mtp_norm), b->shape.eps, b->n_rows,
                     b->shape.hidden, b->m, ld, 0, 1);
        b->m_rows = b->n_rows;
    }
    return 0;
}

static int op_mtp_head(struct backend *b, const int32_t *rows, int n, struct err *e)
{
    return head(b, copy_of(b), b->m, b->m_rows, rows, n, e);
}

/* ---- results ---- */

static int op_read_logits(struct backend *b, int i, float *out, struct err *e)
{
    if (i < 0 || i >= b->n_out) {
        return err_set(e, QE_INTERNAL, "logits row %d of %d", i, b->n_out);
    }
    memcpy(out, b->logits + (size_t)i * (size_t)b->shape.vocab,
           (size_t)b->shape.vocab * sizeof *out);
    return 0;
}

static int op_read_hidden(struct backend *b, int row, float *out, struct err *e)
{
    int32_t r = row;
    int rc = be_check_rows(&r, 1, b->h_rows, CPU_MAX_OUT, e);
    if (rc == 0) {
        memcpy(out, b->h + (size_t)row * (size_t)b->shape.hidden,
               (size_t)b->shape.hidden * sizeof *out);
    }
    return rc;
}

static const char *op_describe(const struct backend *b)
{
    return b->describe;
}

const struct be_ops *backend_cpu(void)
{
    static const struct be_ops ops = {
        .name = "cpu",
        .open = cpu_open,
        .close = cpu_close,
        .clocks = op_clocks,
        .describe = op_describe,
        .begin = op_begin,
        .embed = op_embed,
        .gdn = op_gdn,
        .attention = op_attention,
        .ffn = op_ffn,
        .final_norm = op_final_norm,
        .head = op_head,
        .fast_head = op_fast_head,
        .sample = op_sample,
        .max_out = CPU_MAX_OUT,
        .best = op_best,
        .fold = op_fold,
        .hidden_save = op_hidden_save,
        .mtp_embed = op_mtp_embed,
        .mtp_layer = op_mtp_layer,
        .mtp_head = op_mtp_head,
        .read_logits = op_read_logits,
        .read_hidden = op_read_hidden,
        .state_size = cpu_state_size,
        .page_size = cpu_page_size,
        .state_reset = cpu_state_reset,
        .state_copy = cpu_state_copy,
        .state_export = cpu_state_export,
        .state_import = cpu_state_import,
        .page_copy = cpu_page_copy,
        .page_export = cpu_page_export,
        .page_trim = cpu_page_trim,
        .page_import = cpu_page_import,
        .state_at = cpu_state_at,
        .page_at = cpu_page_at,
        .page_fill = cpu_page_fill,
        .read_gdn = cpu_read_gdn,
        .read_kv = cpu_read_kv,
    };
    return &ops;
}
