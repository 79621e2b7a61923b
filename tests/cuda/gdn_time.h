#ifndef QUASAR_TESTS_CUDA_GDN_TIME_H
#define QUASAR_TESTS_CUDA_GDN_TIME_H

/*
 * t_cuda_gdn --time: Gated DeltaNet at the 27B's widths on a GPU. Decode: a graph of 48
 * layers, each with a state of its own, so that every state comes from memory; bytes are
 * those of the state, read once and (unless held) written once. Prefill: microseconds of
 * each stage, and of all of them in turn.
 */

#include <algorithm>
#include <vector>

#include "kernels/cuda/bandwidth.h"
#include "kernels/cuda/gdn_stages.h"

enum { T_LAYERS = 48, T_KH = 16, T_VH = 48, T_ROWS = 2048, T_REPLAYS = 11 };

struct time_state {
    struct cu_ctx *c;
    struct cu_gdn g;
    struct cu_span *span;
    int32_t *count, *accepted;
    float *record, *s[T_LAYERS], *conv[T_LAYERS];
    double read; /* GB/s */
};

static void *time_alloc(size_t bytes)
{
    void *p = NULL;
    cut_must(cudaMalloc(&p, bytes), "cudaMalloc");
    cut_must(cudaMemset(p, 0, bytes), "cudaMemset");
    return p;
}

template <typename T> static T *time_put(const T *host, size_t n)
{
    T *p = (T *)time_alloc(n * sizeof(T));
    cut_put(p, host, n);
    return p;
}

/* Median milliseconds of a replay of what `run` launches. */
template <typename F> static double time_graph(struct cu_ctx *c, F run)
{
    cudaStream_t s = (cudaStream_t)c->stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    cut_must(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "capture");
    run();
    cut_must(cudaStreamEndCapture(s, &graph), "capture");
    cut_must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    cut_must(cudaEventCreate(&from), "an event");
    cut_must(cudaEventCreate(&to), "an event");
    std::vector<float> ms(T_REPLAYS);
    for (int i = -2; i < T_REPLAYS; i++) {
        float t = 0;
        cut_must(cudaEventRecord(from, s), "an event");
        cut_must(cudaGraphLaunch(exec, s), "cudaGraphLaunch");
        cut_must(cudaEventRecord(to, s), "an event");
        cut_must(cudaEventSynchronize(to), "the kernels");
        cut_must(cudaEventElapsedTime(&t, from, to), "an event");
        if (i >= 0) {
            ms[(size_t)i] = t;
        }
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    std::sort(ms.begin(), ms.end());
    return (double)ms[T_REPLAYS / 2];
}

static double time_read(struct cu_ctx *c)
{
    const size_t bytes = (size_t)4 << 30;
    void *p = time_alloc(bytes), *sink = time_alloc(256);
    const double ms = time_graph(c, [&] { cut_must(cu_bw_read(c, p, bytes, sink), "cu_bw_read"); });
    cudaFree(p);
    cudaFree(sink);
    return (double)bytes / ms / 1e6;
}

static void time_spans(const struct time_state *t, int spans, int n)
{
    struct cu_span span[CU_ROWS];
    int32_t count[2] = {spans * n, spans}, accepted[CU_ROWS];
    for (int i = 0; i < spans; i++) {
        span[i] = {i * n, n, 0, i, 0, 0};
        accepted[i] = (n + 1) / 2;
    }
    cut_put(t->span, span, (size_t)spans);
    cut_put(t->count, count, 2);
    cut_put(t->accepted, accepted, (size_t)spans);
}

enum time_kind { T_PLAIN, T_HOLD, T_FOLD };

static void time_decode(const struct time_state *t, int spans, int n, enum time_kind kind)
{
    static const char *const name[] = {"decode", "held", "fold half"};
    time_spans(t, spans, n);
    struct cu_batch b = {};
    b.count = t->count;
    b.span = t->span;
    b.rows = spans * n;
    b.spans = spans;
    b.mode = BE_DECODE;
    const double ms = time_graph(t->c, [&] {
        for (int i = 0; i < T_LAYERS; i++) {
            struct cu_gdn g = t->g;
            g.state.s = t->s[i];
            g.state.conv = t->conv[i];
            g.hold = kind == T_HOLD;
            g.record = kind == T_HOLD || kind == T_FOLD ? t->record : NULL;
            cut_must(kind == T_FOLD ? cu_gdn_fold(t->c, &b, &g, t->accepted)
                                    : cu_gdn_decode(t->c, &b, &g),
                     "a step");
        }
    });
    const double bytes = (kind == T_HOLD ? 1.0 : 2.0) * spans * T_VH * D * D * 4;
    const double us = ms * 1e3 / T_LAYERS, gb = bytes / us / 1e3;
    printf(
        "  %-20s %2d x %2d rows, pdl %d: %8.2f us a layer, %8.1f us in all, %6.0f GB/s, %5.1f %%\n",
        name[kind], spans, n, t->c->pdl, us, ms * 1e3, gb, 100 * gb / t->read);
    fflush(stdout);
}

static void time_prefill(const struct time_state *t, int rows)
{
    static const char *const name[] = {"conv", "inner", "walk", "norm", "all"};
    static const unsigned stage[] = {GDN_CONV, GDN_INNER, GDN_WALK, GDN_NORM, GDN_ALL};
    const struct cu_span span = {0, rows, 0, 0, 0, 0};
    const int32_t count[2] = {rows, 1};
    cut_put(t->span, &span, 1);
    cut_put(t->count, count, 2);
    struct cu_batch b = {};
    b.count = t->count;
    b.span = t->span;
    b.rows = rows;
    b.spans = 1;
    b.mode = BE_PREFILL;
    cut_must(cu_gdn_prefill(t->c, &b, &t->g), "cu_gdn_prefill");
    printf("  prefill %4d rows, us a layer:", rows);
    for (int i = 0; i < 5; i++) {
        const double ms = time_graph(t->c, [&] {
            for (int j = 0; j < 10; j++) {
                cut_must(gdn_prefill_stages(t->c, &b, &t->g, stage[i]), "prefill");
            }
        });
        printf(" %s %.1f", name[i], ms * 100);
    }
    printf("\n");
    fflush(stdout);
}

static int timing(void)
{
    struct time_state t = {};
    enum cu_path paths[2];
    const int n_paths = cut_paths(paths);
    t.c = cut_ctx(paths[n_paths - 1], true);
    const size_t ch = (2 * T_KH + T_VH) * D, width = T_VH * D, ld = ch + width + 2 * T_VH;
    std::vector<float> proj(ld * T_ROWS), small(4 * ch);
    for (float &x : proj) {
        x = cut_uniform();
    }
    for (float &x : small) {
        x = 0.3f * cut_uniform();
    }
    struct cu_gdn *g = &t.g;
    g->k_heads = T_KH;
    g->v_heads = T_VH;
    g->eps = 1e-6f;
    g->proj = time_put(proj.data(), proj.size());
    g->ld = ld;
    g->col_z = (int)ch;
    g->col_b = (int)(ch + width);
    g->col_a = g->col_b + T_VH;
    g->conv_w = time_put(small.data(), small.size());
    for (float &x : small) {
        x = -0.1f;
    }
    g->a_log = g->dt_bias = g->gnorm = time_put(small.data(), small.size());
    g->state.s_stride = width * D;
    g->state.conv_stride = 6 * ch;
    for (int i = 0; i < T_LAYERS; i++) {
        t.s[i] = (float *)time_alloc(CU_ROWS * g->state.s_stride * 4);
        t.conv[i] = (float *)time_alloc(CU_ROWS * g->state.conv_stride * 4);
    }
    g->state.s = t.s[0];
    g->state.conv = t.conv[0];
    g->act.x = (uint16_t *)time_alloc(CU_ROWS * width * 2);
    g->act.sum = (float *)time_alloc(CU_ROWS * width / 32 * 4);
    g->xt = (uint16_t *)time_alloc(cu_xt_bytes(T_ROWS, (int)width));
    g->work = time_alloc(cu_gdn_work(T_KH, T_VH, T_ROWS));
    t.record = (float *)time_alloc(CU_ROWS * (ch + 2 * T_VH) * 4);
    t.span = (struct cu_span *)time_alloc(CU_ROWS * sizeof *t.span);
    t.count = (int32_t *)time_alloc(2 * sizeof *t.count);
    t.accepted = (int32_t *)time_alloc(CU_ROWS * sizeof *t.accepted);
    t.read = time_read(t.c);
    printf("%s, %d SMs, read %.0f GB/s; prefill work %.0f MB\n", cut_path_name(t.c->path),
           t.c->n_sm, t.read, (double)cu_gdn_work(T_KH, T_VH, T_ROWS) / 1e6);

    static const int shape[][2] = {{1, 1}, {1, 2},  {1, 3}, {1, 4},
                                   {1, 8}, {1, 16}, {4, 1}, {16, 1}};
    for (const int *s : shape) {
        time_decode(&t, s[0], s[1], T_PLAIN);
    }
    time_decode(&t, 1, 8, T_HOLD);
    time_decode(&t, 1, 8, T_FOLD);
    t.c = cut_ctx(t.c->path, false);
    time_decode(&t, 1, 1, T_PLAIN);
    for (int i = 0; i < n_paths; i++) {
        t.c = cut_ctx(paths[i], false);
        printf(" %s\n", cut_path_name(paths[i]));
        time_prefill(&t, 64);
        time_prefill(&t, 512);
        time_prefill(&t, T_ROWS);
    }
    return 0;
}

#endif
