/*
 * A decode list as kernels. The residual stream's norm state (ss, power) is
 * double-buffered: a product reads one and its residual addition writes the other.
 * act holds the stream prepared for the norm of the operation that comes next, so
 * each operation looks one ahead.
 */
#include "config.h"

#include "kernels/cuda/host.h"
#include "kernels/cuda/move.h"

/* A pass over a list under way. */
struct pass {
    struct backend *b;
    const struct cuda_list *l;
    struct cu_batch batch[CUDA_BATCHES];
    int cur;       /* which norm state is current */
    bool gathered; /* act_head holds what the next head call wants */
    /* Products and DeltaNet steps over one batch that have not been launched yet: */
    struct cu_link link[CU_LINKS];
    const struct cu_batch *linked;
    int links;
};

/* Launches what is pending; whatever else is launched comes behind it. */
static int flush(struct pass *p)
{
    const int n = p->links;
    p->links = 0;
    return n > 0 ? cu_chain(&p->b->cu, p->linked, p->link, n, &p->b->edges) : 0;
}

/* The next place in the chain over a batch; *rc is of what had to be launched before. */
static struct cu_link *link_on(struct pass *p, const struct cu_batch *t, int *rc)
{
    *rc = p->links == CU_LINKS || (p->links > 0 && p->linked != t) ? flush(p) : 0;
    p->linked = t;
    p->link[p->links] = (struct cu_link){.gdn = false};
    return &p->link[p->links++];
}

static int product(struct pass *p, const struct cu_batch *t, const struct cu_mm *m)
{
    int rc;
    link_on(p, t, &rc)->mm = *m;
    return rc;
}

struct cu_gdn cuda_gdn_args(const struct backend *b, const struct cuda_layer *l)
{
    const size_t s_layer = (size_t)b->shape.v_heads * BE_DN_DIM * BE_DN_DIM;
    const size_t conv_layer = 2 * (size_t)(BE_CONV - 1) * (size_t)b->channels;
    return (struct cu_gdn){
        .k_heads = b->shape.k_heads,
        .v_heads = b->shape.v_heads,
        .eps = b->shape.eps,
        .proj = b->proj,
        .ld = l->ld,
        .col_qkv = l->col[0],
        .col_z = l->col[1],
        .col_b = l->col[2],
        .col_a = l->col[3],
        .conv_w = l->conv_w,
        .a_log = l->a_log,
        .dt_bias = l->dt_bias,
        .gnorm = l->gnorm,
        .state = {.s = b->state + (size_t)l->index * s_layer,
                  .conv = b->state + b->s_floats + (size_t)l->index * conv_layer,
                  .s_stride = b->slot_floats,
                  .conv_stride = b->slot_floats},
        .act = b->act_mid,
        .xt = b->xt_mid,
        .work = b->gdn_work,
    };
}

struct cu_attn cuda_attn_args(const struct backend *b, const struct cuda_layer *l, bool kv_only)
{
    /* Keys and values alone begin where the queries were. */
    const int first = kv_only ? l->col[1] : 0;
    return (struct cu_attn){
        .q_heads = b->shape.q_heads,
        .kv_heads = b->shape.kv_heads,
        .eps = b->shape.eps,
        .proj = b->proj,
        .ld = l->ld,
        .col_q = 0,
        .col_k = l->col[1] - first,
        .col_v = l->col[2] - first,
        .q_norm = l->q_norm,
        .k_norm = l->k_norm,
        .kv = b->kv,
        .cache = b->cache + (size_t)l->index * b->layer_bytes,
        .page_stride = b->page_bytes,
        .kv_only = kv_only,
        .act = b->act_mid,
        .xt = b->xt_mid,
        .work = b->attn_work,
        .max_ctx = b->ctx,
    };
}

/* The norm that operation i + 1 of the list wants act to be prepared for; past the
 * end, what a pass in order does next. */
static const float *next_norm(const struct pass *p, int i)
{
    const struct backend *b = p->b;
    const struct cuda_op *next = i + 1 < p->l->n ? &p->l->op[i + 1] : NULL;
    if (next && (next->kind == OP_GDN || next->kind == OP_ATTENTION)) {
        return b->layers[next->layer].norm;
    }
    if (next && next->kind == OP_FFN) {
        return b->layers[next->layer].post_norm;
    }
    const struct cuda_op *op = &p->l->op[i];
    switch ((enum cuda_op_kind)op->kind) {
    case OP_EMBED:
        return b->layers[0].norm;
    case OP_GDN:
    case OP_ATTENTION:
        return b->layers[op->layer].post_norm;
    case OP_FFN:
        return op->layer + 1 < b->shape.layers ? b->layers[op->layer + 1].norm : b->norm;
    case OP_MTP_EMBED:
        return b->layers[b->shape.layers].norm;
    case OP_FINAL:
    case OP_MTP_LAYER:
    case OP_MTP_KV:
    case OP_HEAD:
    case OP_FAST_HEAD:
    case OP_MTP_HEAD:
    case OP_SAVE:
    case OP_ARGMAX:
    case OP_FOLD:
        break;
    }
    return NULL;
}

static struct cu_resid resid(const struct backend *b, int which)
{
    return (struct cu_resid){
        .x = b->x, .ss = b->ss[which], .power = b->power[which], .act = b->act};
}

/* A product of the stream as act holds it, normed. */
static struct cu_mm normed(const struct pass *p, const struct cu_mm_plan *plan)
{
    const struct backend *b = p->b;
    return (struct cu_mm){.plan = plan,
                          .in = b->act,
                          .ss = b->ss[p->cur],
                          .power = b->power[p->cur],
                          .norm_k = b->shape.hidden,
                          .eps = b->shape.eps,
                          .work = b->mm_mem};
}

static int store(struct pass *p, const struct cu_batch *t, const struct cu_mm_plan *plan, size_t ld)
{
    struct cu_mm m = normed(p, plan);
    m.out = CU_MM_STORE;
    m.y = p->b->proj;
    m.ldy = ld;
    return product(p, t, &m);
}

/* x += plan(in), prepared for the next norm. */
static int residual(struct pass *p, const struct cu_batch *t, const struct cu_mm_plan *plan,
                    struct cu_act in, const float *next)
{
    struct backend *b = p->b;
    struct cu_mm m = {.plan = plan,
                      .in = in,
                      .norm_k = b->shape.hidden,
                      .eps = b->shape.eps,
                      .out = CU_MM_RESIDUAL,
                      .resid = resid(b, 1 - p->cur),
                      .resid_ss = b->ss[p->cur],
                      .next_norm = next,
                      .work = b->mm_mem};
    p->cur ^= 1;
    return product(p, t, &m);
}

static float *record_of(const struct backend *b, const struct cuda_layer *l)
{
    return b->record + (size_t)l->index * (size_t)b->step_rows * b->record_ld;
}

static int gdn(struct pass *p, const struct cu_batch *t, const struct cuda_layer *l,
               const float *next)
{
    struct backend *b = p->b;
    int rc = store(p, t, l->p_in, l->ld);
    if (rc == 0) {
        struct cu_link *k = link_on(p, t, &rc);
        k->gdn = true;
        k->step = cuda_gdn_args(b, l);
        k->step.record = t->mode == BE_VERIFY ? record_of(b, l) : NULL;
        k->step.hold = t->mode == BE_VERIFY;
    }
    return rc ? rc : residual(p, t, l->p_out, b->act_mid, next);
}

static int attention(struct pass *p, const struct cu_batch *t, const struct cuda_layer *l,
                     bool kv_only, const float *next)
{
    struct backend *b = p->b;
    int rc = store(p, t, kv_only ? l->p_kv : l->p_in, l->ld);
    rc = rc ? rc : flush(p);
    if (rc == 0) {
        struct cu_attn a = cuda_attn_args(b, l, kv_only);
        a.max_ctx = p->l->depth;
        rc = cu_attn_decode(&b->cu, t, &a);
    }
    return rc || kv_only ? rc : residual(p, t, l->p_out, b->act_mid, next);
}

static int ffn(struct pass *p, const struct cu_batch *t, const struct cuda_layer *l,
               const float *next)
{
    struct cu_mm m = normed(p, l->p_gate_up);
    m.out = CU_MM_SILU;
    m.act = p->b->act_ffn;
    int rc = product(p, t, &m);
    return rc ? rc : residual(p, t, l->p_down, p->b->act_ffn, next);
}

static int embed(struct pass *p, const struct cu_batch *t, const float *next)
{
    struct backend *b = p->b;
    struct cu_resid r = resid(b, 0);
    p->cur = 0;
    return cu_embed(&b->cu, t, &b->embed, b->shape.hidden, next, b->shape.eps, &r);
}

static const int32_t *table(const struct backend *b, size_t at)
{
    return (const int32_t *)(b->dec.device + at);
}

static int mtp_embed(struct pass *p, const struct cu_batch *t, int batch, const float *next)
{
    struct backend *b = p->b;
    const float *const *src = (const float *const *)(b->dec.device + b->dec.batch[batch].src);
    p->cur = 0;
    int rc = cu_mtp_input(&b->cu, t, &b->embed, b->shape.hidden, src, b->enorm, b->hnorm,
                          b->shape.eps, &b->act_mtp);
    struct cu_mm m = {.plan = b->p_fc,
                      .in = b->act_mtp,
                      .norm_k = b->shape.hidden,
                      .eps = b->shape.eps,
                      .out = CU_MM_START,
                      .resid = resid(b, 0),
                      .next_norm = next,
                      .work = b->mm_mem};
    return rc ? rc : product(p, t, &m);
}

static int mtp_layer(struct pass *p, const struct cu_batch *t, bool kv_only)
{
    struct backend *b = p->b;
    const struct cuda_layer *l = &b->layers[b->shape.layers];
    int rc = attention(p, t, l, kv_only, l->post_norm);
    if (rc || kv_only) {
        return rc;
    }
    rc = ffn(p, t, l, b->mtp_norm);
    rc = rc ? rc : flush(p);
    if (rc) {
        return rc;
    }
    struct cu_resid r = resid(b, p->cur);
    return cu_final_norm(&b->cu, t, &r, b->shape.hidden, b->mtp_norm, b->shape.eps, b->m,
                         p->gathered ? table(b, b->dec.out_of) : NULL, &b->act_head);
}

/* Logits of group number `group` of the wanted rows of x. */
static int head(struct pass *p, struct cu_mm_plan *plan, const float *x, int group)
{
    struct backend *b = p->b;
    const int left = p->l->outs - group * CU_ROWS;
    const struct cu_batch t = {.count = table(b, b->dec.out_count) + 2 * group,
                               .rows = left < CU_ROWS ? left : CU_ROWS,
                               .spans = 0,
                               .mode = BE_DECODE};
    int rc = 0;
    if (!p->gathered) {
        rc = cu_gather(&b->cu, x, table(b, b->dec.out_rows) + group * CU_ROWS, t.count, t.rows,
                       b->shape.hidden, &b->act_head);
    }
    p->gathered = false;
    struct cu_mm m = {.plan = plan,
                      .in = b->act_head,
                      .eps = b->shape.eps,
                      .out = CU_MM_STORE,
                      .y = b->logits + (size_t)group * CU_ROWS * b->logits_ld,
                      .ldy = b->logits_ld,
                      .work = b->mm_mem};
    return rc ? rc : cu_mm(&b->cu, &t, &m);
}

static int argmax(struct pass *p)
{
    struct backend *b = p->b;
    int rc = 0;
    for (int at = 0; at < p->l->outs && rc == 0; at += CU_ROWS) {
        const int left = p->l->outs - at;
        rc =
            cu_argmax(&b->cu, b->logits + (size_t)at * b->logits_ld, b->logits_ld,
                      b->shape.vocab_used, table(b, b->dec.out_count) + 2 * (at / CU_ROWS),
                      left < CU_ROWS ? left : CU_ROWS, b->argmax_work, b->ids + at, b->margin + at);
    }
    return rc;
}

/* Whether the norm at the end of operation i may hand its rows to the head directly:
 * the head comes right behind it. */
static bool head_follows(const struct cuda_list *l, int i, enum cuda_op_kind head)
{
    return l->spread && i + 1 < l->n && l->op[i + 1].kind == head;
}

/* The angles of all rows of the list at once. */
static int angles(struct pass *p)
{
    const struct backend *b = p->b;
    struct cu_batch t = p->batch[0];
    const int last = p->l->n_batches - 1;
    t.count = table(b, b->dec.rot_count);
    t.rows = last * CU_ROWS + p->batch[last].rows;
    return cu_rot(&p->b->cu, &t, b->axis, b->inv_freq);
}

static int save(struct pass *p)
{
    struct backend *b = p->b;
    return cu_hidden_save(&b->cu, b->h, b->shape.hidden, table(b, b->dec.save_count),
                          table(b, b->dec.save_row), table(b, b->dec.save_slot), p->l->saves,
                          cuda_slot_hidden(b, 0), b->slot_floats);
}

/* The states go on by the rows that are kept. */
static int fold(struct pass *p)
{
    struct backend *b = p->b;
    const struct cu_batch t = cuda_block_folded(&b->dec, p->l->fold);
    int rc = 0;
    for (int i = 0; i < b->shape.layers && rc == 0; i++) {
        const struct cuda_layer *l = &b->layers[i];
        if (!l->attention) {
            struct cu_gdn g = cuda_gdn_args(b, l);
            g.record = record_of(b, l);
            rc = cu_gdn_fold(&b->cu, &t, &g, table(b, b->dec.fold_accepted));
        }
    }
    return rc;
}

static int run_op(struct pass *p, int i)
{
    struct backend *b = p->b;
    const struct cuda_op op = p->l->op[i];
    const struct cu_batch *t = &p->batch[op.batch];
    const struct cuda_layer *l = &b->layers[op.layer];
    const float *next = next_norm(p, i);
    /* only these add to a chain; everything else comes behind it */
    const bool joins = op.kind == OP_GDN || op.kind == OP_ATTENTION || op.kind == OP_FFN ||
                       op.kind == OP_MTP_LAYER || op.kind == OP_MTP_KV;
    const int rc = joins ? 0 : flush(p);
    if (rc) {
        return rc;
    }
    switch ((enum cuda_op_kind)op.kind) {
    case OP_EMBED:
        return embed(p, t, next);
    case OP_GDN:
        return gdn(p, t, l, next);
    case OP_ATTENTION:
        return attention(p, t, l, false, next);
    case OP_FFN:
        return ffn(p, t, l, next);
    case OP_FINAL: {
        const struct cu_resid r = resid(b, p->cur);
        p->gathered = head_follows(p->l, i, OP_HEAD) || head_follows(p->l, i, OP_FAST_HEAD);
        return cu_final_norm(&b->cu, t, &r, b->shape.hidden, b->norm, b->shape.eps, b->h,
                             p->gathered ? table(b, b->dec.out_of) : NULL, &b->act_head);
    }
    case OP_MTP_EMBED:
        return mtp_embed(p, t, op.batch, next);
    case OP_MTP_LAYER:
        p->gathered = head_follows(p->l, i, OP_MTP_HEAD);
        return mtp_layer(p, t, false);
    case OP_MTP_KV:
        return mtp_layer(p, t, true);
    case OP_HEAD:
        return head(p, b->p_head, b->h, op.layer);
    case OP_FAST_HEAD:
        return head(p, b->p_copy, b->h, op.layer);
    case OP_MTP_HEAD:
        return head(p, b->p_copy ? b->p_copy : b->p_head, b->m, op.layer);
    case OP_SAVE:
        return save(p);
    case OP_ARGMAX:
        return argmax(p);
    case OP_FOLD:
        return fold(p);
    }
    return 0;
}

int cuda_pass_run(struct backend *b, const struct cuda_list *l)
{
    struct pass p = {.b = b, .l = l};
    for (int i = 0; i < l->n_batches; i++) {
        p.batch[i] = cuda_block_view(b, &b->dec, i, l->batch[i]);
    }
    int rc = l->n_batches > 0 ? angles(&p) : 0;
    for (int i = 0; i < l->n && rc == 0; i++) {
        rc = run_op(&p, i);
    }
    return rc ? rc : flush(&p);
}
