/* The weight-streaming product of 1 to 16 rows: plans, and what a launch of either kernel
 * (mm_sm80.cuh, mm_sm90.cuh) is given. */
#include "kernels/cuda/mm_sm80.cuh"
#include "kernels/cuda/mm_sm90.cuh"

enum { SMEM_SM90 = 227 << 10, FLYING = 2, FLYING_ALONE = 3 };
static const uint32_t stages_least = 2, stages_most = 12;

extern "C" int cu_mm_plan_create_tuned(struct cu_ctx *c, const struct cu_mat *const *mats, int n,
                                       const struct mm_tune *tune, struct cu_mm_plan **out)
{
    struct cu_mm_plan *p = NULL;
    if (mm_plan_make(c->path, c->n_sm, mats, n, tune, &p) < 0) {
        return cudaErrorInvalidValue;
    }
    const size_t runs = (size_t)p->n_runs * sizeof *p->run;
    const size_t phases = (size_t)p->n_phases * sizeof *p->phase;
    const size_t blocks = (size_t)p->n_blocks * sizeof *p->block;
    cudaError_t rc = cudaMalloc(&p->device, runs + phases + blocks);
    if (rc != cudaSuccess) {
        mm_plan_free(p);
        return rc;
    }
    uint8_t *d = (uint8_t *)p->device;
    p->d_run = (const struct mm_run *)d;
    p->d_phase = (const struct mm_phase *)(d + runs);
    p->d_block = (const struct mm_block *)(d + runs + phases);
    rc = cudaMemcpy(d, p->run, runs, cudaMemcpyHostToDevice);
    if (rc == cudaSuccess) {
        rc = cudaMemcpy(d + runs, p->phase, phases, cudaMemcpyHostToDevice);
    }
    if (rc == cudaSuccess) {
        rc = cudaMemcpy(d + runs + phases, p->block, blocks, cudaMemcpyHostToDevice);
    }
    if (rc != cudaSuccess) {
        cu_mm_plan_free(p);
        return rc;
    }
    *out = p;
    return cudaSuccess;
}

extern "C" int cu_mm_plan_create(struct cu_ctx *c, const struct cu_mat *const *mats, int n,
                                 struct cu_mm_plan **out)
{
    return cu_mm_plan_create_tuned(c, mats, n, NULL, out);
}

extern "C" void cu_mm_plan_free(struct cu_mm_plan *p)
{
    if (p) {
        cudaFree(p->device);
        mm_plan_free(p);
    }
}

/* In front of the partial sums: counters of tiles, which have one place whatever the plan,
 * and of links; the ticket. */
static size_t counter_bytes(void)
{
    return (size_t)(2 * MM_MAX_TILES + CU_LINKS + 12) * sizeof(uint32_t);
}

extern "C" size_t cu_mm_work(const struct cu_mm_plan *p)
{
    const bool tickets = p->path == CU_SM90;
    const size_t slots = (size_t)(tickets && !p->keeps ? p->n_shared : p->n_slots);
    return counter_bytes() + slots * MM_SLOT * sizeof(float) * (tickets ? 2 : 1);
}

/* Whether it fits the plan. */
static bool usable(const struct cu_batch *b, const struct cu_mm *m)
{
    const struct cu_mm_plan *p = m->plan;
    const bool whole = p->n == 1 && p->mat[0].rows % 64 == 0;
    return b->rows >= 1 && b->rows <= CU_ROWS && (m->out == CU_MM_STORE || whole) &&
           (!m->ss || m->norm_k % 64 == 0);
}

static struct mm_op op_of(const struct cu_mm *m)
{
    const struct cu_mm_plan *p = m->plan;
    const int rows = p->mat[0].rows;
    struct mm_op a = {};
    a.run = p->d_run;
    a.phase = p->d_phase;
    a.block = p->d_block;
    a.n_blocks = p->n_blocks;
    a.tiles = p->tiles;
    a.x = m->in.x;
    a.sum = m->in.sum;
    a.ss = m->ss;
    a.in_power = m->power;
    a.resid_ss = m->resid_ss;
    a.k = p->kg * 64;
    a.x_row = mm_x_row(p);
    a.ss_groups = m->ss ? m->norm_k / 64 : 0;
    a.inv_norm_k = m->ss ? 1.0f / (float)m->norm_k : 0;
    a.resid_groups = rows / 64;
    a.inv_hidden = 1.0f / (float)rows;
    a.eps = m->eps;
    a.out = m->out;
    switch (m->out) {
    case CU_MM_STORE:
        a.y = m->y;
        a.ld = (int)m->ldy;
        break;
    case CU_MM_SILU:
        a.act_x = m->act.x;
        a.act_sum = m->act.sum;
        a.ld = rows / 2;
        break;
    case CU_MM_RESIDUAL:
    case CU_MM_START:
        a.act_x = m->resid.act.x;
        a.act_sum = m->resid.act.sum;
        a.resid_x = m->resid.x;
        a.resid_ss_out = m->resid.ss;
        a.power = m->resid.power;
        a.next_norm = m->next_norm;
        a.ld = rows;
        break;
    }
    a.counter = (uint32_t *)m->work;
    a.part = (uint8_t *)m->work + counter_bytes();
    for (int i = 0; i < p->n; i++) {
        a.mat[i].row_scale = p->mat[i].row_scale;
        a.mat[i].tile0 = p->tile0[i];
        a.mat[i].rows = p->mat[i].rows;
        a.mat[i].col0 = p->col0[i];
    }
    return a;
}

static int launch_sm80(struct cu_ctx *c, const struct cu_batch *b, const struct cu_mm *m)
{
    const int nt = b->rows > 8 ? 2 : 1;
    struct mm80_args a = {};
    a.op = op_of(m);
    a.count = b->count;
    a.at = mm_smem_of(m->plan, nt);
    const dim3 grid((unsigned)m->plan->n_blocks), block(MM80_THREADS);
    return nt == 1 ? cu_launch(c, "mm", mm80_kernel<1>, grid, block, a.at.bytes, a)
                   : cu_launch(c, "mm16", mm80_kernel<2>, grid, block, a.at.bytes, a);
}

static uint32_t most(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Room for the widest of the links, and all that is left for the ring. */
static struct mm90_smem smem_of(const struct cu_batch *b, const struct cu_link *link, int n)
{
    const uint32_t nt = b->rows > 8 ? 2 : 1;
    uint32_t x = 0, slice = 0;
    for (int i = 0; i < n; i++) {
        if (link[i].gdn) {
            x = most(x, (uint32_t)gdn_room_bytes(b->rows));
        } else {
            x = most(x, 8 * nt * mm_x_row(link[i].mm.plan));
            slice = most(slice, (uint32_t)link[i].mm.plan->slice);
        }
    }
    x = (x + 15) / 16 * 16;
    const uint32_t offset = slice * nt * 64, exchange = MM90_STREAM * nt * 8 * MM_COL * 4;
    const uint32_t sums = 2 * MM90_STREAM * CU_ROWS * 4;
    const uint32_t blocks = CU_LINKS * sizeof(int4);
    const uint32_t rest = x + offset + exchange + sums + blocks + (1 + MM90_PUT) * 8;
    struct mm90_smem s;
    s.stages = (SMEM_SM90 - rest) / (MM90_STAGE + 16);
    s.stages = s.stages < stages_most ? s.stages : stages_most;
    s.x = s.stages * MM90_STAGE;
    s.offset = s.x + x;
    s.exchange = s.offset + offset;
    s.sums = s.exchange + exchange;
    s.blocks = s.sums + sums;
    s.bars = s.blocks + blocks;
    s.bytes = s.bars + (2 * s.stages + 1 + MM90_PUT) * 8;
    return s;
}

static int launch_sm90(struct cu_ctx *c, const struct cu_batch *b, const struct cu_link *link,
                       int n)
{
    struct mm90_args a = {};
    unsigned blocks = 1;
    a.b = *b;
    a.n = n;
    a.flying = n > 1 ? FLYING : FLYING_ALONE;
    a.at = smem_of(b, link, n);
    if (a.at.stages < stages_least) {
        return cudaErrorInvalidValue;
    }
    for (int i = 0; i < n; i++) {
        struct mm90_link *l = &a.link[i];
        l->gdn = link[i].gdn;
        if (l->gdn) {
            l->step.g = link[i].step;
            l->step.p.record = link[i].step.record;
            l->step.p.hold = link[i].step.hold;
            blocks = most(blocks, (unsigned)c->n_sm);
        } else {
            l->mm = op_of(&link[i].mm);
            a.done = l->mm.counter + 2 * MM_MAX_TILES;
            a.ticket = a.done + CU_LINKS;
            blocks = most(blocks, (unsigned)link[i].mm.plan->n_blocks);
        }
    }
    const dim3 grid(blocks);
    const dim3 block(b->rows > 8 ? mm90_warps<2>::threads : mm90_warps<1>::threads);
    return b->rows > 8 ? cu_launch_together(c, n > 1 ? "chain16" : "mm16", mm90_kernel<2>, grid,
                                            block, a.at.bytes, a)
                       : cu_launch_together(c, n > 1 ? "chain" : "mm", mm90_kernel<1>, grid, block,
                                            a.at.bytes, a);
}

extern "C" int cu_chain(struct cu_ctx *c, const struct cu_batch *b, const struct cu_link *link,
                        int n)
{
    const void *work = NULL; /* of the products */
    for (int i = 0; i < n; i++) {
        const struct cu_link *l = &link[i];
        const bool fits =
            l->gdn ? b->spans >= 1 && b->rows <= CU_ROWS && l->step.v_heads % l->step.k_heads == 0
                   : usable(b, &l->mm) && (!work || l->mm.work == work);
        if (!fits) {
            return cudaErrorInvalidValue;
        }
        work = l->gdn ? work : l->mm.work;
    }
    if (n < 1 || n > CU_LINKS) {
        return cudaErrorInvalidValue;
    }
    if (c->path == CU_SM90 && work) {
        return launch_sm90(c, b, link, n);
    }
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = link[i].gdn ? cu_gdn_decode(c, b, &link[i].step) : launch_sm80(c, b, &link[i].mm);
    }
    return rc;
}

extern "C" int cu_mm(struct cu_ctx *c, const struct cu_batch *b, const struct cu_mm *m)
{
    struct cu_link link = {};
    link.mm = *m;
    return cu_chain(c, b, &link, 1);
}
