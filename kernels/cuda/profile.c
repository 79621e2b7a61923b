/*
 * A pass by part. Kernels of different parts overlap, and products share launches with
 * DeltaNet steps, so a part has no beginning and no end in a pass. Instead its operations
 * are run by themselves on what the pass left behind: the same launches with all others
 * left out, by name, or by operation where the name does not tell (the head's product).
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/cuda/host.h"

enum { WARM = 2 };

#define BIT(part) (1U << (part))
#define ALL       (BIT(BE_PARTS) - 1)

/* Beginnings of the kernels' names; what has none of them is small. */
static enum be_part part_of(const char *name)
{
    static const struct {
        const char *begin;
        enum be_part part;
    } t[] = {{"chain", BE_PART_WEIGHTS},       {"mm", BE_PART_WEIGHTS},
             {"gemm", BE_PART_WEIGHTS},        {"gdn", BE_PART_DELTANET},
             {"attention", BE_PART_ATTENTION}, {"prefill attention", BE_PART_ATTENTION},
             {"append", BE_PART_ATTENTION},    {"argmax", BE_PART_HEAD},
             {"sample", BE_PART_HEAD}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        if (strncmp(name, t[i].begin, strlen(t[i].begin)) == 0) {
            return t[i].part;
        }
    }
    return BE_PART_SMALL;
}

static bool left_out(const struct cu_ctx *c, const char *name)
{
    return (c->parts & BIT(part_of(name))) == 0;
}

/* In a list of the head alone: everything is the head's, but what a pass does with the
 * final norm. */
static bool not_of_head(const struct cu_ctx *c, const char *name)
{
    (void)c;
    return strcmp(name, "gather") == 0;
}

static bool of_head(const struct cuda_op *op)
{
    return op->kind == OP_HEAD || op->kind == OP_FAST_HEAD || op->kind == OP_MTP_HEAD ||
           op->kind == OP_ARGMAX;
}

/* The operations of a list that are the head's, or the others. */
static struct cuda_list some(const struct cuda_list *l, bool head)
{
    struct cuda_list s = *l;
    s.op = mem_array((size_t)l->n + 1, sizeof *s.op);
    s.n = 0;
    for (int i = 0; i < l->n; i++) {
        if (of_head(&l->op[i]) == head) {
            s.op[s.n++] = l->op[i];
        }
    }
    return s;
}

/* The DeltaNet steps of a list, each by itself, though the list may have them in chains. */
static int run_deltanet(struct backend *b, const struct cuda_list *l)
{
    int status = 0;
    for (int i = 0; i < l->n && status == 0; i++) {
        const int k = l->op[i].batch;
        if (l->op[i].kind == OP_GDN) {
            const struct cu_batch t = cuda_block_view(b, &b->dec, k, l->batch[k]);
            const struct cu_gdn g = cuda_gdn_args(b, &b->layers[l->op[i].layer]);
            status = cu_gdn_decode(&b->cu, &t, &g);
        }
    }
    return status;
}

/* Some of a list's launches, in order. */
static int run_parts(struct backend *b, const struct cuda_list *l, unsigned parts)
{
    bool (*const before)(const struct cu_ctx *c, const char *name) = b->cu.leave_out;
    const unsigned parts_before = b->cu.parts;
    int status = 0;
    b->cu.parts = parts;
    b->cu.leave_out = NULL;
    if (parts == ALL) {
        status = cuda_pass_run(b, l);
    } else if (parts == BIT(BE_PART_DELTANET)) {
        status = run_deltanet(b, l);
    } else {
        struct cuda_list body = some(l, false), head = some(l, true);
        head.n_batches = 0; /* no angles */
        b->cu.leave_out = left_out;
        status = (parts & ~BIT(BE_PART_HEAD)) ? cuda_pass_run(b, &body) : 0;
        b->cu.leave_out = not_of_head;
        status = status || !(parts & BIT(BE_PART_HEAD)) ? status : cuda_pass_run(b, &head);
        free(body.op);
        free(head.op);
    }
    b->cu.leave_out = before;
    b->cu.parts = parts_before;
    return status;
}

void cuda_only(struct backend *b, unsigned parts)
{
    b->cu.parts = parts;
    b->cu.leave_out = parts ? left_out : NULL;
}

int cuda_run_only(struct backend *b, const struct cuda_list *l)
{
    return run_parts(b, l, b->cu.parts);
}

/* ---- the last decode pass again ---- */

struct again {
    struct backend *b;
    const struct cuda_list *list;
    unsigned parts;
    struct rt_graph *graph; /* NULL: launch by launch */
};

static int once(const struct again *a)
{
    return a->graph ? rt_graph_launch(a->b->rt, a->graph) : run_parts(a->b, a->list, a->parts);
}

static int often(const struct again *a, int n)
{
    int status = 0;
    for (int i = 0; i < n && status == 0; i++) {
        status = once(a);
    }
    return status;
}

/* As a graph, unless there are to be none or one cannot be had. */
static int make_graph(struct again *a)
{
    if (a->b->graphs.cap == 0 || rt_capture_begin(a->b->rt)) {
        return 0;
    }
    const int status = run_parts(a->b, a->list, a->parts);
    (void)rt_capture_end(a->b->rt, &a->graph);
    return status;
}

static int timed(const struct again *a, int reps, double *ms)
{
    struct rt *rt = a->b->rt;
    struct rt_event *from = NULL, *to = NULL;
    float all = 0;
    int status = rt_event_create(rt, &from);
    status = status ? status : rt_event_create(rt, &to);
    status = status ? status : often(a, WARM);
    status = status ? status : rt_record(rt, from);
    status = status ? status : often(a, reps);
    status = status ? status : rt_record(rt, to);
    status = status ? status : rt_wait(to);
    status = status ? status : rt_elapsed(from, to, &all);
    rt_event_free(from);
    rt_event_free(to);
    *ms = (double)all / reps;
    return status;
}

int cuda_again(struct backend *b, unsigned parts, int reps, double *ms, struct err *e)
{
    int rc = cuda_finish(b, e);
    if (rc < 0) {
        return rc;
    }
    if (b->last.n == 0) {
        return err_set(e, QE_INTERNAL, "there was no decode pass to run again");
    }
    struct again a = {.b = b, .list = &b->last, .parts = parts};
    b->doing = "running parts of a step again";
    /* the first time by itself: what a kernel needs once is not for a graph */
    int status = run_parts(b, a.list, parts);
    status = status ? status : make_graph(&a);
    status = status ? status : timed(&a, reps, ms);
    if (a.graph) {
        rt_graph_free(b->rt, a.graph);
    }
    return status ? cuda_fail(b, status, e) : 0;
}

double cuda_peak(const struct backend *b)
{
    /* fp16 inputs, fp32 sums, dense, per multiprocessor and clock */
    const int cc = b->info.cc, flops = cc == 90 ? 4096 : cc == 80 ? 2048 : 1024;
    return (double)flops * (double)b->info.n_sm * rt_mhz(b->rt) * 1e6;
}
