/* The prefill product: checks, and the choice of the path. */
#include "kernels/cuda/gemm.cuh"

#include <string.h>

extern "C" size_t cu_gemm_work(const struct cu_ctx *c)
{
    return c->path == CU_SM90 ? gemm_sm90_work(c->n_sm) : 16;
}

static bool aligned(const struct cu_gemm *g, int col)
{
    return g->ldy % 4 == 0 && col % 4 == 0 && (uintptr_t)g->y % 16 == 0;
}

/* log2 of the chains of a matrix, by its shape alone. One with fewer tiles than there are
 * multiprocessors takes as long as its inputs are many: parts of them go side by side. */
static int log_of(const struct cu_mat *m)
{
    if (m->tiles > 128 || m->kg % GEMM_PARTS != 0) {
        return 0;
    }
    return m->kg >= 96 ? GEMM_LOG : 0;
}

int gemm_run(struct cu_ctx *c, const struct cu_gemm *g, int shape, int log)
{
    const struct cu_mat *mats[4] = {g->w};
    int n = 1, col = g->col;
    while (n < 4 && g->more[n - 1]) {
        mats[n] = g->more[n - 1];
        n++;
    }
    const bool silu = g->out == CU_GEMM_SILU;
    for (int i = 0; i < n; i++) {
        if (mats[i]->kg != g->w->kg || (silu && (n > 1 || mats[i]->rows % 128 != 0))) {
            return (int)cudaErrorInvalidValue;
        }
    }
    if (c->path != CU_SM90 || n > 1) {
        log = 0;
    } else if (log < 0) {
        log = log_of(g->w);
    }
    if (log > 0 && (!g->work || log > GEMM_LOG || g->w->kg % (1 << log) != 0)) {
        return (int)cudaErrorInvalidValue;
    }
    if (g->rows <= 0) {
        return (int)cudaSuccess;
    }
    /* Matrices of one kind make one launch; on sm_90 small ones of 16 bits go with others. */
    struct gemm_args a[3];
    memset(a, 0, sizeof a);
    for (int i = 0; i < n; i++) {
        const struct cu_mat *w = mats[i];
        struct gemm_args *k = &a[w->kind];
        k->m[k->n++] = {w->data, w->row_scale, w->tiles, w->rows, col, 0, aligned(g, col)};
        col += w->rows;
    }
    for (int kind = 0; kind < 3; kind++) {
        struct gemm_args *k = &a[kind];
        k->kg = g->w->kg;
        k->log = log;
        k->steps = g->w->kg >> log;
        k->rows = g->rows;
        k->out = g->out;
        k->xt = g->xt;
        k->y = g->y;
        k->ldy = g->ldy;
        k->xt_out = g->xt_out;
    }
    if (c->path == CU_SM90) {
        return gemm_sm90(c, a, g->work, shape);
    }
    int rc = (int)cudaSuccess;
    for (int kind = 0; kind < 3 && rc == (int)cudaSuccess; kind++) {
        rc = a[kind].n > 0 ? gemm_sm80(c, (enum cu_kind)kind, &a[kind], shape) : rc;
    }
    return rc;
}

extern "C" int cu_gemm(struct cu_ctx *c, const struct cu_gemm *g)
{
    return gemm_run(c, g, -1, -1);
}
