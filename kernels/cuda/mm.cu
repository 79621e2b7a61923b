/* The weight-streaming product of 1 to 16 rows: plans, and what a launch of either kernel
 * (mm_sm80.cuh, mm_sm90.cuh) is given. */
#include "kernels/cuda/mm_sm80.cuh"
#include "kernels/cuda/mm_sm90.cuh"

enum { SMEM_SM90 = 227 << 10, FLYING = 3, FLYING_MANY = 2, FEW_ROWS = 2 };
static const uint32_t STEPS_AT_ONCE = 10; /* of a streaming warp: 5,120 inputs of a row */
static const uint32_t stages_least = 2, stages_most = 12;

extern "C" int cu_mm_plan_create_tuned(struct cu_ctx *c, const struct cu_mat *const *mats, int n,
                                       const struct mm_tune *tune, struct cu_mm_plan **out)
{
    struct cu_mm_plan *p = NULL;
    if (mm_plan_make(c->path, c->n_sm, mats, n, tune, &p) < 0) {
        return cudaErrorInvalidValue;
    }
    const struct table {
        const void *from;
        size_t bytes;
    } table[] = {{p->run, (size_t)p->n_runs * sizeof *p->run},
                 {p->phase, (size_t)p->n_phases * sizeof *p->phase},
                 {p->block, (size_t)p->n_blocks * sizeof *p->block},
                 {p->finish, (size_t)p->n_finish * sizeof *p->finish}};
    enum { TABLES = sizeof table / sizeof *table };
    size_t at[TABLES + 1] = {};
    for (int i = 0; i < TABLES; i++) {
        at[i + 1] = at[i] + table[i].bytes;
    }
    cudaError_t rc = cudaMalloc(&p->device, at[TABLES]);
    if (rc != cudaSuccess) {
        mm_plan_free(p);
        return rc;
    }
    uint8_t *d = (uint8_t *)p->device;
    p->d_run = (const struct mm_run *)d;
    p->d_phase = (const struct mm_phase *)(d + at[1]);
    p->d_block = (const struct mm_block *)(d + at[2]);
    p->d_finish = (const struct mm_finish *)(d + at[3]);
    for (int i = 0; i < TABLES && rc == cudaSuccess; i++) {
        rc = table[i].bytes
                 ? cudaMemcpy(d + at[i], table[i].from, table[i].bytes, cudaMemcpyHostToDevice)
                 : cudaSuccess;
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
    return counter_bytes() + slots * MM_SLOT * sizeof(float) * (tickets ? 4 : 1);
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
    a.finish = p->d_finish;
    a.n_finish = p->n_finish;
    a.n_blocks = p->n_blocks;
    a.x = m->in.x;
    a.sum = m->in.sum;
    a.ss = m->ss;
    a.in_power = m->power;
    a.resid_ss = m->resid_ss;
    a.k = p->kg * 64;
    a.x_row = mm_x_row(p);
    a.w.plain = true;
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
    const uint32_t nt = b->rows > 8 ? 2 : 1, rows = (uint32_t)b->rows;
    uint32_t gdn = 0, steps = 0; /* of a streaming warp */
    for (int i = 0; i < n; i++) {
        if (link[i].gdn) {
            gdn = most(gdn, (uint32_t)gdn_room_bytes(b->rows));
        } else {
            const uint32_t slice = (uint32_t)link[i].mm.plan->slice;
            steps = most(steps, (slice + MM90_STREAM - 1) / MM90_STREAM);
        }
    }
    const uint32_t exchange = (uint32_t)mm90_exchange((int)nt) * 4;
    const uint32_t blocks = CU_LINKS * sizeof(int4) + 16;
    const uint32_t ready = b->rows > FEW_ROWS ? mm90_ready_bytes((int)nt) : 0;
    struct mm90_smem s;
    s.steps = most(steps, STEPS_AT_ONCE);
    s.step_rows = most(steps * rows, STEPS_AT_ONCE);
    s.x_warp = s.step_rows * MM90_X_ROW;
    s.offset_warp = s.steps * nt * 64;
    const uint32_t x = (most(MM90_STREAM * s.x_warp, gdn) + 15) / 16 * 16;
    const uint32_t offset = MM90_STREAM * s.offset_warp;
    const uint32_t rest = x + offset + exchange + ready + blocks + MM90_EXCHANGE_BARS * 8;
    s.stages = (SMEM_SM90 - rest) / (MM90_STAGE + 16);
    s.stages = s.stages < stages_most ? s.stages : stages_most;
    s.x = s.stages * MM90_STAGE;
    s.offset = s.x + x;
    s.exchange = s.offset + offset;
    s.ready = s.exchange + exchange;
    s.blocks = s.ready + ready;
    s.bars = s.blocks + blocks;
    s.bytes = s.bars + (2 * s.stages + MM90_EXCHANGE_BARS) * 8;
    return s;
}

/* ---- what links hand to each other ---- */

enum { EDGES = 3, STATES = 2 };

/* In words of 8 bytes. */
struct edge_places {
    size_t edge, resid, ss, power, halves, words;
};

static struct edge_places edge_places_of(int width)
{
    const size_t w = ((size_t)width + 63) / 64 * 64;
    struct edge_places p;
    p.edge = CU_ROWS * w; /* each */
    p.resid = EDGES * p.edge;
    p.ss = p.resid + p.edge;
    p.power = p.ss + STATES * (w / 64) * CU_ROWS;
    p.halves = p.power + STATES * CU_ROWS;
    p.words = p.halves + CU_ROWS * (w / BE_DN_DIM) * 2;
    return p;
}

extern "C" size_t cu_edges_bytes(int width)
{
    return edge_places_of(width).words * sizeof(uint2);
}

static bool residual(const struct cu_link *l)
{
    return !l->gdn && (l->mm.out == CU_MM_RESIDUAL || l->mm.out == CU_MM_START);
}

/* The activations that a link writes; NULL: values. */
static const uint16_t *act_of(const struct cu_link *l)
{
    return l->gdn ? l->step.act.x : residual(l) ? l->mm.resid.act.x : l->mm.act.x;
}

/* Whether link l reads what the one before it writes. */
static bool follows(const struct cu_link *l, const struct cu_link *before)
{
    const bool values = !before->gdn && before->mm.out == CU_MM_STORE;
    if (l->gdn) {
        return values && l->step.proj == before->mm.y;
    }
    return !values && l->mm.in.x == act_of(before);
}

/* Columns that link l writes. */
static int columns_of(const struct cu_link *l)
{
    if (l->gdn) {
        return l->step.v_heads * BE_DN_DIM;
    }
    const struct cu_mm_plan *p = l->mm.plan;
    return (p->col0[p->n - 1] + p->mat[p->n - 1].rows) / (l->mm.out == CU_MM_SILU ? 2 : 1);
}

/* The last link before i that writes the residual stream's sums ss, or -1. */
static int state_before(const struct cu_link *link, int i, const float *ss)
{
    while (--i >= 0 && !(ss && residual(&link[i]) && link[i].mm.resid.ss == ss)) {
    }
    return i;
}

static void edges_set(struct mm90_link *to, const struct cu_link *link, int n,
                      const struct cu_edges *edges)
{
    const struct edge_places at = edge_places_of(edges->width);
    uint2 *const mem = (uint2 *)edges->mem;
    const size_t ss_size = (at.power - at.ss) / STATES;
    int state[CU_LINKS] = {}, states = 0; /* which of the areas a link's new state has */
    for (int i = 0; i < n; i++) {
        struct mm_words w = {};
        w.ld = (int)(at.edge / CU_ROWS);
        if (i > 0) {
            w.x = mem + (size_t)((i - 1) % EDGES) * at.edge;
            w.x_at = (uint32_t)(i - 1);
        }
        if (i + 1 < n) {
            w.out = mem + (size_t)(i % EDGES) * at.edge;
        }
        if (link[i].gdn) {
            to[i].step.w = w;
            to[i].step.halves = mem + at.halves;
            continue;
        }
        const struct cu_mm *m = &link[i].mm;
        const int ss = state_before(link, i, m->ss);
        if (ss >= 0) {
            w.ss = mem + at.ss + (size_t)state[ss] * ss_size;
            w.power = mem + at.power + state[ss] * CU_ROWS;
            w.ss_at = (uint32_t)ss;
        }
        const int old = m->out == CU_MM_RESIDUAL ? state_before(link, i, m->resid_ss) : -1;
        if (old >= 0) {
            w.old = mem + at.resid;
            w.resid_ss = mem + at.ss + (size_t)state[old] * ss_size;
            w.old_at = (uint32_t)old;
        }
        w.plain = true;
        for (int j = i + 1; j < n; j++) {
            w.plain = w.plain && !residual(&link[j]);
        }
        if (residual(&link[i])) {
            state[i] = states++ % STATES;
            w.resid = mem + at.resid;
            w.ss_out = mem + at.ss + (size_t)state[i] * ss_size;
            w.power_out = mem + at.power + state[i] * CU_ROWS;
        }
        to[i].mm.w = w;
        if (w.out) {
            to[i].mm.act_sum = NULL;
        }
    }
}

static int launch_sm90(struct cu_ctx *c, const struct cu_batch *b, const struct cu_link *link,
                       int n, const struct cu_edges *edges)
{
    struct mm90_args a = {};
    unsigned blocks = 1;
    int products = 0;
    a.b = *b;
    a.n = n;
    a.flying = n > 1 && b->rows > FEW_ROWS ? FLYING_MANY : FLYING;
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
            l->odd = products++ % 2;
            a.left = l->mm.counter + 2 * MM_MAX_TILES;
            a.ticket = a.left + CU_LINKS;
            blocks = most(blocks, (unsigned)link[i].mm.plan->n_blocks);
        }
    }
    if (n > 1) {
        edges_set(a.link, link, n, edges);
    }
    const dim3 grid(blocks);
    const bool many = b->rows > FEW_ROWS;
    const dim3 block(b->rows > 8 ? mm90_warps<2, true>::threads
                     : many      ? mm90_warps<1, true>::threads
                                 : mm90_warps<1, false>::threads);
    if (b->rows > 8) {
        return cu_launch_together(c, n > 1 ? "chain16" : "mm16", mm90_kernel<2, true>, grid, block,
                                  a.at.bytes, a);
    }
    return many ? cu_launch_together(c, n > 1 ? "chain8" : "mm8", mm90_kernel<1, true>, grid, block,
                                     a.at.bytes, a)
                : cu_launch_together(c, n > 1 ? "chain" : "mm", mm90_kernel<1, false>, grid, block,
                                     a.at.bytes, a);
}

/* Whether it is a chain that one launch can do. */
static bool linked(const struct cu_link *link, int n, const struct cu_edges *edges)
{
    for (int i = 0; i < n; i++) {
        if (n > 1 && (!edges || !edges->mem || columns_of(&link[i]) > edges->width)) {
            return false;
        }
        if (i > 0 && !follows(&link[i], &link[i - 1])) {
            return false;
        }
    }
    return true;
}

extern "C" int cu_chain(struct cu_ctx *c, const struct cu_batch *b, const struct cu_link *link,
                        int n, const struct cu_edges *edges)
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
    if (n < 1 || n > CU_LINKS || !linked(link, n, edges)) {
        return cudaErrorInvalidValue;
    }
    int rc = 0;
    if (c->path == CU_SM90) {
        /* a DeltaNet step is in a chain only between products */
        const bool first = link[0].gdn, last = n > 1 && link[n - 1].gdn;
        rc = first ? cu_gdn_decode(c, b, &link[0].step) : 0;
        if (rc == 0 && n - first - last > 0) {
            rc = launch_sm90(c, b, link + first, n - first - last, edges);
        }
        return rc == 0 && last ? cu_gdn_decode(c, b, &link[n - 1].step) : rc;
    }
    for (int i = 0; i < n && rc == 0; i++) {
        rc = link[i].gdn ? cu_gdn_decode(c, b, &link[i].step) : launch_sm80(c, b, &link[i].mm);
    }
    return rc;
}

extern "C" int cu_mm(struct cu_ctx *c, const struct cu_batch *b, const struct cu_mm *m)
{
    struct cu_link link = {};
    link.mm = *m;
    return cu_chain(c, b, &link, 1, NULL);
}
