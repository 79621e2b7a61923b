/*
 * Gated DeltaNet, step by step: up to CU_ROWS rows, one launch. Bound by the state,
 * which is read once and written once per span however many rows the span has.
 * The same kernel folds: it repeats the step for recorded rows without outputs.
 */
#include "kernels/cuda/gdn_step.cuh"

enum { WARPS = 16, THREADS = 32 * WARPS };

struct gdn_wait {
    __device__ __forceinline__ void operator()() const
    {
        pdl_wait();
        pdl_launch(); /* the next product's weights can come meanwhile */
    }
};

struct gdn_block_sync {
    __device__ __forceinline__ void operator()() const
    {
        __syncthreads();
    }
};

/*
 * A block has a span's head. Before pdl_wait it reads weights, the span table, S and the
 * convolution state: S and the states were written by this layer's launch of an earlier
 * step, the table by a copy before the step. The kernel just before this one must write
 * none of them; that one let this start only after its own pdl_wait, so that everything
 * before it is done. sm_80 and up.
 */
__global__ void __launch_bounds__(THREADS, 2)
    gdn_step(const struct cu_batch b, const struct cu_gdn g, const struct gdn_step_args p)
{
    if ((int)blockIdx.y >= b.count[1]) {
        pdl_wait();
        return;
    }
    const struct gdn_plain ports = {g.proj, g.ld, g.act, g.v_heads};
    gdn_item<WARPS, 1>(b, g, p, (int)blockIdx.x, 0, (int)blockIdx.y, (int)threadIdx.x,
                       gdn_room_at(cu_smem(), b.rows), gdn_wait(), gdn_block_sync(), ports);
}

static int step(struct cu_ctx *c, const char *name, const struct cu_batch *b,
                const struct cu_gdn *g, const struct gdn_step_args &p)
{
    if (b->spans < 1 || b->rows < 1 || b->rows > CU_ROWS || g->v_heads % g->k_heads) {
        return cudaErrorInvalidValue;
    }
    /* one span may have all rows */
    const size_t smem = gdn_room_bytes(b->rows);
    return cu_launch(c, name, gdn_step, dim3((unsigned)g->v_heads, (unsigned)b->spans),
                     dim3(THREADS), smem, *b, *g, p);
}

extern "C" int cu_gdn_decode(struct cu_ctx *c, const struct cu_batch *b, const struct cu_gdn *g)
{
    struct gdn_step_args p = {};
    p.record = g->record;
    p.hold = g->hold;
    return step(c, "gdn_decode", b, g, p);
}

extern "C" int cu_gdn_fold(struct cu_ctx *c, const struct cu_batch *b, const struct cu_gdn *g,
                           const int32_t *accepted)
{
    struct cu_gdn from = *g;
    struct gdn_step_args p = {};
    const int channels = (2 * g->k_heads + g->v_heads) * GDN_D;
    from.proj = g->record;
    from.ld = (size_t)(channels + 2 * g->v_heads);
    from.col_qkv = 0;
    from.col_b = channels;
    from.col_a = channels + g->v_heads;
    from.act.x = NULL;
    p.accepted = accepted;
    return step(c, "gdn_fold", b, &from, p);
}
