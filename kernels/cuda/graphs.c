/*
 * CUDA graphs of decode lists. A list that comes for the first time runs kernel by
 * kernel; the second time it is captured, and from then on replayed. The least
 * recently used graphs go when they are too large together or memory runs out; a list
 * that cannot be a graph goes on running kernel by kernel.
 *
 * How much room there is is told in whole steps, but most lists are much shorter (a draft
 * step, accepted rows), and there are many of them: they count by their kernels.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/plan.h"

enum { SEEN_PER_GRAPH = 16 }; /* lists remembered for each whole step */

struct cuda_graph {
    struct cuda_list list; /* owns its operations */
    struct rt_graph *exec; /* NULL: seen once */
    bool refused;          /* it cannot be captured */
    int kernels;
    uint64_t used;
};

static bool same(const struct cuda_list *a, const struct cuda_list *b)
{
    return a->n == b->n && a->n_batches == b->n_batches && a->outs == b->outs &&
           a->saves == b->saves && a->spread == b->spread && a->depth == b->depth &&
           memcmp(a->batch, b->batch, sizeof a->batch) == 0 &&
           memcmp(&a->fold, &b->fold, sizeof a->fold) == 0 &&
           memcmp(a->op, b->op, (size_t)a->n * sizeof *a->op) == 0;
}

static void drop_exec(struct backend *b, struct cuda_graph *g)
{
    rt_graph_free(b->rt, g->exec);
    g->exec = NULL;
}

static void drop(struct backend *b, struct cuda_graph *g)
{
    drop_exec(b, g);
    free(g->list.op);
    *g = b->graphs.v[--b->graphs.n];
}

/* The one used longest ago, of those that are graphs or of all; NULL: none. */
static struct cuda_graph *oldest(struct backend *b, bool exec)
{
    struct cuda_graph *found = NULL;
    for (int i = 0; i < b->graphs.n; i++) {
        struct cuda_graph *g = &b->graphs.v[i];
        if ((!exec || g->exec) && (!found || g->used < found->used)) {
            found = g;
        }
    }
    return found;
}

static struct cuda_graph *find(struct backend *b, const struct cuda_list *l)
{
    for (int i = 0; i < b->graphs.n; i++) {
        if (same(&b->graphs.v[i].list, l)) {
            return &b->graphs.v[i];
        }
    }
    return NULL;
}

static void remember(struct backend *b, const struct cuda_list *l, int kernels)
{
    struct cuda_graphs *s = &b->graphs;
    if (s->n == s->cap * SEEN_PER_GRAPH) {
        drop(b, oldest(b, false));
    }
    struct cuda_graph *g = &s->v[s->n++];
    *g = (struct cuda_graph){.list = *l, .used = s->tick, .kernels = kernels};
    g->list.op = mem_array((size_t)l->n, sizeof *l->op);
    memcpy(g->list.op, l->op, (size_t)l->n * sizeof *l->op);
}

/* Sets how many kernels it has, when it ran. */
static int run_eagerly(struct backend *b, const struct cuda_list *l, int *kernels)
{
    const int before = b->cu.launches;
    int rc = cuda_pass_run(b, l);
    *kernels = b->cu.launches - before;
    b->count.kernels += (uint64_t)*kernels;
    return rc;
}

static int kernels_kept(const struct backend *b)
{
    int n = 0;
    for (int i = 0; i < b->graphs.n; i++) {
        n += b->graphs.v[i].exec ? b->graphs.v[i].kernels : 0;
    }
    return n;
}

/* Makes g a graph, for which others may have to go; leaves it as it is when that
 * cannot be. Returns an error only of the kernels' own launches. */
static int capture(struct backend *b, struct cuda_graph *g)
{
    int kept = kernels_kept(b);
    while (kept > 0 && kept + g->kernels > b->graphs.cap * b->graphs.step_kernels) {
        drop_exec(b, oldest(b, true));
        kept = kernels_kept(b);
    }
    for (;;) {
        const int before = b->cu.launches;
        int rc = rt_capture_begin(b->rt);
        if (rc) {
            g->refused = true;
            return 0;
        }
        int run = cuda_pass_run(b, &g->list);
        rc = rt_capture_end(b->rt, &g->exec);
        if (run) {
            drop_exec(b, g);
            return run;
        }
        if (rc == 0) {
            g->kernels = b->cu.launches - before;
            b->count.captured++;
            return 0;
        }
        struct cuda_graph *old = rt_is_nomem(rc) ? oldest(b, true) : NULL;
        if (!old) {
            g->refused = true;
            return 0;
        }
        drop_exec(b, old);
    }
}

int cuda_graphs_run(struct backend *b, const struct cuda_list *l)
{
    int kernels = 0;
    b->graphs.tick++;
    if (b->graphs.cap == 0) {
        return run_eagerly(b, l, &kernels);
    }
    struct cuda_graph *g = find(b, l);
    if (!g) {
        const int rc = run_eagerly(b, l, &kernels);
        if (rc == 0) {
            remember(b, l, kernels);
        }
        return rc;
    }
    g->used = b->graphs.tick;
    if (!g->exec && !g->refused) {
        int rc = capture(b, g);
        if (rc) {
            return rc;
        }
    }
    if (!g->exec) {
        return run_eagerly(b, l, &kernels);
    }
    b->count.kernels += (uint64_t)g->kernels;
    b->count.graphs++;
    b->cu.kernel = "(a graph of kernels; --cuda-graphs 0 names the one)";
    return rt_graph_launch(b->rt, g->exec);
}

void cuda_graphs_open(struct backend *b, int n)
{
    b->graphs.cap = n;
    b->graphs.step_kernels = cuda_plan_step_kernels(b->shape.layers);
    b->graphs.v = mem_array((size_t)(n * SEEN_PER_GRAPH + 1), sizeof *b->graphs.v);
}

void cuda_graphs_close(struct backend *b)
{
    while (b->graphs.n > 0) {
        drop(b, &b->graphs.v[0]);
    }
    free(b->graphs.v);
}
