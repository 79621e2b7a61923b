/* A prefill batch, operation by operation: norms into tiled activations, tensor-core
 * products, the mixers' prefill forms. */
#include "config.h"

#include "kernels/cuda/host.h"

static struct cu_gemm product(struct backend *b, const struct cu_mat *w, const uint16_t *xt,
                              enum cu_gemm_out out, float *y, size_t ldy)
{
    return (struct cu_gemm){
        .w = w, .xt = xt, .rows = b->n_rows, .out = out, .y = y, .ldy = ldy, .work = b->gemm_work};
}

static int norm(struct backend *b, const float *w, float *h)
{
    return cu_pre_norm(&b->cu, b->x, b->n_rows, b->shape.hidden, w, b->shape.eps, b->xt, h);
}

/* The input products from..n_in-1 of a layer, side by side in proj. */
static int inputs(struct backend *b, const struct cuda_layer *l, int from)
{
    struct cu_gemm g = product(b, &l->in[from], b->xt, CU_GEMM_STORE, b->proj, l->ld);
    for (int i = from + 1; i < l->n_in; i++) {
        g.more[i - from - 1] = &l->in[i];
    }
    int rc = norm(b, l->norm, NULL);
    return rc ? rc : cu_gemm(&b->cu, &g);
}

/* x += w(xt_mid) */
static int add(struct backend *b, const struct cu_mat *w)
{
    const struct cu_gemm g = product(b, w, b->xt_mid, CU_GEMM_ADD, b->x, (size_t)b->shape.hidden);
    return cu_gemm(&b->cu, &g);
}

static int gdn(struct backend *b, const struct cu_batch *t, const struct cuda_layer *l)
{
    int rc = inputs(b, l, 0);
    if (rc == 0) {
        struct cu_gdn a = cuda_gdn_args(b, l);
        rc = cu_gdn_prefill(&b->cu, t, &a);
    }
    return rc ? rc : add(b, &l->out);
}

static int attention(struct backend *b, const struct cu_batch *t, const struct cuda_layer *l,
                     bool kv_only)
{
    int rc = inputs(b, l, kv_only ? 1 : 0);
    if (rc == 0) {
        struct cu_attn a = cuda_attn_args(b, l, kv_only);
        rc = cu_attn_prefill(&b->cu, t, &a);
    }
    return rc || kv_only ? rc : add(b, &l->out);
}

static int ffn(struct backend *b, const struct cuda_layer *l)
{
    struct cu_gemm g = product(b, &l->gate_up, b->xt, CU_GEMM_SILU, NULL, 0);
    g.xt_out = b->xt_mid;
    int rc = norm(b, l->post_norm, NULL);
    rc = rc ? rc : cu_gemm(&b->cu, &g);
    return rc ? rc : add(b, &l->down);
}

static int mtp_embed(struct backend *b, const struct cu_batch *t)
{
    const float *const *src = (const float *const *)(b->pre.device + b->pre.batch[0].src);
    int rc = cu_rot(&b->cu, t, b->axis, b->inv_freq);
    rc = rc ? rc
            : cu_pre_mtp_input(&b->cu, t, &b->embed, b->shape.hidden, src, b->enorm, b->hnorm,
                               b->shape.eps, b->xt);
    const struct cu_gemm g =
        product(b, &b->fc, b->xt, CU_GEMM_STORE, b->x, (size_t)b->shape.hidden);
    return rc ? rc : cu_gemm(&b->cu, &g);
}

int cuda_prefill_op(struct backend *b, struct cuda_op op)
{
    const struct cuda_bounds bounds = {b->n_rows, b->n_spans, (int32_t)BE_PREFILL};
    const struct cu_batch t = cuda_block_view(b, &b->pre, 0, bounds);
    const struct cuda_layer *mtp = &b->layers[b->shape.layers];
    int rc = 0;
    switch ((enum cuda_op_kind)op.kind) {
    case OP_EMBED:
        rc = cu_rot(&b->cu, &t, b->axis, b->inv_freq);
        return rc ? rc : cu_pre_embed(&b->cu, &t, &b->embed, b->shape.hidden, b->x);
    case OP_GDN:
        return gdn(b, &t, &b->layers[op.layer]);
    case OP_ATTENTION:
        return attention(b, &t, &b->layers[op.layer], false);
    case OP_FFN:
        return ffn(b, &b->layers[op.layer]);
    case OP_FINAL:
        return norm(b, b->norm, b->h);
    case OP_MTP_EMBED:
        return mtp_embed(b, &t);
    case OP_MTP_KV:
        return attention(b, &t, mtp, true);
    case OP_MTP_LAYER:
        rc = attention(b, &t, mtp, false);
        rc = rc ? rc : ffn(b, mtp);
        return rc ? rc : norm(b, b->mtp_norm, b->m);
    case OP_HEAD:
    case OP_FAST_HEAD:
    case OP_MTP_HEAD:
    case OP_SAVE:
    case OP_ARGMAX:
    case OP_FOLD:
        break; /* of the decode list */
    }
    return 0;
}
