/* Work memory: activations, logits, tables and scratch, in one block whose size
 * follows from the shape and the options. */
#include "config.h"

#include "kernels/cuda/host.h"

enum { ALIGN = 256 };

struct places {
    uint8_t *base;
    size_t used;
};

static void *take(struct places *p, size_t n, size_t size)
{
    void *at = p->base ? p->base + p->used : NULL;
    p->used += (n * size + ALIGN - 1) / ALIGN * ALIGN;
    return at;
}

static struct cu_act take_act(struct places *p, size_t k)
{
    struct cu_act a = {.x = take(p, CU_ROWS * k, sizeof *a.x)};
    a.sum = take(p, k / 32 * CU_ROWS, sizeof *a.sum);
    return a;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t cuda_work_place(struct backend *b, uint8_t *base)
{
    const struct be_shape *s = &b->shape;
    const size_t hidden = (size_t)s->hidden, rows = (size_t)b->max_rows;
    const size_t mid = most((size_t)s->v_heads * BE_DN_DIM, (size_t)s->q_heads * BE_HEAD_DIM);
    struct places p = {.base = base};
    size_t ld = 0;
    for (int i = 0; i < s->layers + (s->mtp ? 1 : 0); i++) {
        ld = most(ld, b->layers[i].ld);
    }
    b->x = take(&p, rows * hidden, sizeof(float));
    b->h = take(&p, rows * hidden, sizeof(float));
    b->m = take(&p, (s->mtp ? rows : 0) * hidden, sizeof(float));
    b->proj = take(&p, rows * ld, sizeof(float));
    b->logits_ld = ((size_t)s->vocab + 15) / 16 * 16;
    b->logits = take(&p, (size_t)b->max_out * b->logits_ld, sizeof(float));
    for (int i = 0; i < CUDA_BATCHES; i++) { /* one behind the other */
        b->rot[i] = take(&p, CU_ROWS * BE_ROT_DIM, sizeof(float));
    }
    for (int i = 0; i < 2; i++) {
        b->ss[i] = take(&p, hidden / 64 * CU_ROWS, sizeof(float));
        b->power[i] = take(&p, CU_ROWS, sizeof(float));
    }
    b->pre_rot = take(&p, rows * BE_ROT_DIM, sizeof(float));
    b->act = take_act(&p, hidden);
    b->act_mid = take_act(&p, mid);
    b->act_ffn = take_act(&p, (size_t)s->ffn);
    b->act_mtp = take_act(&p, s->mtp ? 2 * hidden : 0);
    b->act_head = take_act(&p, hidden);
    b->edges.width = (int)most(most(ld, hidden), most(mid, (size_t)s->ffn));
    b->edges.mem = take(&p, cu_edges_bytes(b->edges.width), 1);
    b->xt = take(&p, cu_xt_bytes(b->max_rows, s->hidden * (s->mtp ? 2 : 1)), 1);
    b->xt_mid = take(&p, cu_xt_bytes(b->max_rows, (int)most((size_t)s->ffn, mid)), 1);
    b->gdn_work = take(&p, cu_gdn_work(s->k_heads, s->v_heads, b->max_rows), 1);
    b->attn_work = take(&p, cu_attn_work(s->q_heads, s->kv_heads, b->ctx, b->step_rows), 1);
    b->gemm_work = take(&p, cu_gemm_work(&b->cu), 1);
    b->sample_work = take(&p, cu_sample_work(s->vocab_used), 1);
    b->argmax_work = take(&p, cu_argmax_work(s->vocab), 1);
    b->ids = take(&p, 2 * CUDA_MAX_OUT, sizeof(int32_t));
    b->margin = b->ids ? (float *)(b->ids + CUDA_MAX_OUT) : NULL;
    b->record_ld = (size_t)b->channels + 2 * (size_t)s->v_heads;
    b->record = take(&p, (size_t)b->n_gdn * (size_t)b->step_rows * b->record_ld, sizeof(float));
    b->axis = take(&p, BE_ROT_DIM / 2, 1);
    b->inv_freq = take(&p, BE_ROT_DIM / 2, sizeof(double));
    const size_t row_pages = (size_t)b->row_pages;
    const size_t spans = (size_t)(b->slots < CU_ROWS ? b->slots : CU_ROWS);
    const size_t pre_spans = most((size_t)b->slots, 1);
    b->dec.device =
        take(&p, cuda_block_layout(&b->dec, CU_ROWS, CU_ROWS, CUDA_BATCHES * spans * row_pages), 1);
    b->pre.device = take(&p, cuda_block_layout(&b->pre, b->max_rows, 0, pre_spans * row_pages), 1);
    return p.used;
}
