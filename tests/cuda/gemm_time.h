#ifndef QUASAR_TESTS_CUDA_GEMM_TIME_H
#define QUASAR_TESTS_CUDA_GEMM_TIME_H

/*
 * t_cuda_gemm --time [key=value ...]: speed of the 27B's prefill products on a GPU, a
 * graph of each over weights that are several times the L2 cache, as part of the read
 * bandwidth measured in the same run; then what a layer has between its mixers. Keys:
 * tokens (only this count), shape (of launch; -1 the launcher's, -2 each), kind (4, 8,
 * 16 bits), pdl, path (80, 90), reps, ba (0: without the 16-bit matrices), what (1 single
 * products, 2 layers), log (2 to this power chains; -1 the matrix's).
 */

#include <algorithm>
#include <vector>

#include "kernels/cuda/bandwidth.h"

struct time_opts {
    int tokens, shape, kind, pdl, path, reps, ba, what, log;
};

static struct time_opts time_opts_of(int n, char **arg)
{
    struct time_opts o = {0, -1, 4, 1, 90, 7, 1, 3, -1};
    const struct cut_key keys[] = {{"tokens", &o.tokens}, {"shape", &o.shape}, {"kind", &o.kind},
                                   {"pdl", &o.pdl},       {"path", &o.path},   {"reps", &o.reps},
                                   {"ba", &o.ba},         {"what", &o.what},   {"log", &o.log}};
    cut_keys(keys, sizeof keys / sizeof *keys, n, arg);
    return o;
}

enum { T_TOKENS = 2048, T_WIDE = 17408, T_LD = 16512, T_MOST = 4 };

static const struct time_product {
    const char *name;
    int n, rows[T_MOST], k;
    enum cu_gemm_out out;
} time_products[] = {{"in", 4, {10240, 6144, 48, 48}, 5120, CU_GEMM_STORE},
                     {"in_attn", 3, {12288, 1024, 1024}, 5120, CU_GEMM_STORE},
                     {"out", 1, {5120}, 6144, CU_GEMM_ADD},
                     {"gate_up", 1, {34816}, 5120, CU_GEMM_SILU},
                     {"down", 1, {5120}, 17408, CU_GEMM_ADD}};
enum { T_PRODUCTS = sizeof time_products / sizeof time_products[0] };

struct time_all {
    struct time_opts o;
    struct cu_ctx *c;
    double read; /* GB/s */
    uint16_t *xt[2];
    float *y, *norm;
    void *work;
};

struct time_set {
    struct cu_mat m[T_MOST];
    int n;
    double bytes;
};

/* A matrix of repeated real codes and scales. */
static struct cu_mat time_mat(enum cu_kind kind, int rows, int k)
{
    const enum dtype type = kind == CU_W4 ? DT_Q4_G64 : kind == CU_W8 ? DT_Q8_G128 : DT_F16;
    static struct cu_mat unit[3][2];
    struct cu_mat *const u = &unit[kind][k > 6144];
    const int most = k > 6144 ? T_WIDE : 6144;
    if (!u->data) {
        struct matrix m = make(type, 64, most, 1);
        free(m.w);
        *u = m.m;
    }
    const size_t size = cu_mat_bytes(kind, 64, most), bytes = cu_mat_bytes(kind, rows, k);
    struct cu_mat r = *u;
    uint8_t *p = NULL;
    cut_must(cudaMalloc((void **)&p, bytes), "cudaMalloc of weights");
    for (size_t at = 0; at < bytes; at += size) {
        cut_must(cudaMemcpyAsync(p + at, u->data, bytes - at < size ? bytes - at : size,
                                 cudaMemcpyDeviceToDevice, (cudaStream_t)cut.ctx.stream),
                 "cudaMemcpy of weights");
    }
    r.data = p;
    r.rows = rows;
    r.tiles = (rows + 63) / 64;
    r.kg = k / 64;
    if (kind == CU_W16) {
        std::vector<float> one((size_t)r.tiles * 64, 1);
        r.row_scale = cut_upload(one.data(), one.size());
    }
    return r;
}

static struct time_set time_set_of(const struct time_all *t, const struct time_product *p)
{
    const enum cu_kind kind = t->o.kind == 4 ? CU_W4 : t->o.kind == 8 ? CU_W8 : CU_W16;
    struct time_set s = {};
    for (int i = 0; i < p->n && (t->o.ba || p->rows[i] > 48); i++) {
        const enum cu_kind of = p->rows[i] == 48 ? CU_W16 : kind;
        s.m[s.n++] = time_mat(of, p->rows[i], p->k);
        s.bytes += (double)cu_mat_bytes(of, p->rows[i], p->k);
    }
    return s;
}

static void time_set_free(struct time_set *s)
{
    for (int i = 0; i < s->n; i++) {
        cudaFree((void *)s->m[i].data);
        cut_free((void *)s->m[i].row_scale);
    }
}

/* Best milliseconds of a replay of what `call` launches. */
template <typename F> static double time_graph(const struct time_all *t, F call)
{
    cudaStream_t s = (cudaStream_t)t->c->stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    cut_must(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "capture");
    call();
    cut_must(cudaStreamEndCapture(s, &graph), "capture");
    cut_must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    cut_must(cudaEventCreate(&from), "an event");
    cut_must(cudaEventCreate(&to), "an event");
    double best = 0;
    for (int i = -1; i < t->o.reps; i++) {
        float ms = 0;
        cut_must(cudaEventRecord(from, s), "an event");
        cut_must(cudaGraphLaunch(exec, s), "cudaGraphLaunch");
        cut_must(cudaEventRecord(to, s), "an event");
        cut_must(cudaEventSynchronize(to), "the kernels");
        cut_must(cudaEventElapsedTime(&ms, from, to), "an event");
        if (i >= 0) {
            best = best > 0 && best < (double)ms ? best : (double)ms;
        }
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return best;
}

static void time_call(const struct time_all *t, const struct time_product *p,
                      const struct time_set *s, int tokens, int shape)
{
    struct cu_gemm g = {};
    g.w = &s->m[0];
    for (int i = 1; i < s->n; i++) {
        g.more[i - 1] = &s->m[i];
    }
    g.xt = t->xt[0];
    g.rows = tokens;
    g.out = p->out;
    g.y = t->y;
    g.ldy = T_LD;
    g.xt_out = t->xt[1];
    g.work = t->work;
    cut_must(gemm_run(t->c, &g, shape, t->o.log), "a product");
}

static void time_line(const struct time_all *t, const char *name, int tokens, int shape, double us,
                      double bytes, double rows_k)
{
    printf("%-8s %4d tokens, shape %2d: %8.1f us, %5.0f GB/s, %5.1f %% of reading, %6.1f TFLOP/s\n",
           name, tokens, shape, us, bytes / us / 1e3, 100 * bytes / us / 1e3 / t->read,
           2 * rows_k * tokens / us / 1e6);
    fflush(stdout);
}

static void time_single(const struct time_all *t, const int *tokens, int n)
{
    for (int i = 0; i < T_PRODUCTS; i++) {
        const struct time_product *p = &time_products[i];
        std::vector<struct time_set> sets;
        double bytes = 0, rows = 0;
        while (bytes < 3e8) {
            sets.push_back(time_set_of(t, p));
            bytes += sets.back().bytes;
        }
        for (int q = 0; q < p->n; q++) {
            rows += p->rows[q];
        }
        const int first = t->o.shape == -2 ? 0 : t->o.shape;
        const int last = t->o.shape == -2 ? shapes(t->c->path) - 1 : t->o.shape;
        for (int q = 0; q < n; q++) {
            for (int shape = first; shape <= last; shape++) {
                const double ms = time_graph(t, [&] {
                    for (const struct time_set &s : sets) {
                        time_call(t, p, &s, tokens[q], shape);
                    }
                });
                time_line(t, p->name, tokens[q], shape, ms * 1e3 / (double)sets.size(),
                          sets[0].bytes, rows * p->k);
            }
        }
        for (struct time_set &s : sets) {
            time_set_free(&s);
        }
    }
}

/* Norms and products of eight DeltaNet layers in a row, without their mixers. */
static void time_layers(const struct time_all *t, const int *tokens, int n)
{
    static const int list[] = {0, 2, 3, 4};
    enum { LAYERS = 8 };
    std::vector<struct time_set> sets;
    double bytes = 0, rows_k = 0;
    for (int i = 0; i < LAYERS; i++) {
        for (int j : list) {
            sets.push_back(time_set_of(t, &time_products[j]));
            bytes += sets.back().bytes / LAYERS;
            for (int q = 0; i == 0 && q < time_products[j].n; q++) {
                rows_k += (double)time_products[j].rows[q] * time_products[j].k;
            }
        }
    }
    for (int q = 0; q < n; q++) {
        const double ms = time_graph(t, [&] {
            for (int i = 0; i < LAYERS; i++) {
                for (int j = 0; j < 4; j++) {
                    if (j % 2 == 0) {
                        cut_must(cu_pre_norm(t->c, t->y, tokens[q], 5120, t->norm, 1e-6f, t->xt[0],
                                             NULL),
                                 "a norm");
                    }
                    time_call(t, &time_products[list[j]], &sets[(size_t)(4 * i + j)], tokens[q],
                              t->o.shape);
                }
            }
        });
        time_line(t, "a layer", tokens[q], t->o.shape, ms * 1e3 / LAYERS, bytes, rows_k);
    }
    for (struct time_set &s : sets) {
        time_set_free(&s);
    }
}

static int time_run(int argc, char **argv)
{
    struct time_all t = {};
    t.o = time_opts_of(argc, argv);
    t.c = cut_ctx(t.o.path == 80 ? CU_SM80 : CU_SM90, t.o.pdl != 0);
    const size_t bytes = (size_t)4 << 30, wide = cu_xt_bytes(T_TOKENS, T_WIDE) / 2;
    void *p = NULL, *sink = cut_alloc(256);
    cut_must(cudaMalloc(&p, bytes), "cudaMalloc");
    const double ms = time_graph(&t, [&] { cut_must(cu_bw_read(t.c, p, bytes, sink), "reading"); });
    t.read = (double)bytes / ms / 1e6;
    cudaFree(p);
    cut_free(sink);

    std::vector<uint16_t> some((size_t)128 * T_WIDE);
    for (uint16_t &x : some) {
        x = cut_half(cut_normal());
    }
    for (int i = 0; i < 2; i++) {
        t.xt[i] = cut_new<uint16_t>(wide);
        for (size_t at = 0; at < wide; at += some.size()) {
            cut_put(t.xt[i] + at, some.data(), some.size());
        }
    }
    t.y = cut_new<float>((size_t)T_TOKENS * T_LD);
    cut_must(cudaMemset(t.y, 0, (size_t)T_TOKENS * T_LD * 4), "cudaMemset");
    std::vector<float> ones(T_WIDE, 1);
    t.norm = cut_upload(ones.data(), ones.size());
    t.work = cut_alloc(cu_gemm_work(t.c));
    cut_must(cudaMemset(t.work, 0, cu_gemm_work(t.c)), "cudaMemset");

    printf("# %s, %d SMs, read %.0f GB/s, pdl %d, %d bits, best of %d; us a launch, a layer\n",
           cut_path_name(t.c->path), t.c->n_sm, t.read, (int)t.c->pdl, t.o.kind, t.o.reps);
    static const int each[] = {16, 64, 128, 2048};
    const int *const tokens = t.o.tokens ? &t.o.tokens : each;
    const int n = t.o.tokens ? 1 : 4;
    if (t.o.what & 1) {
        time_single(&t, tokens, n);
    }
    if (t.o.what & 2) {
        time_layers(&t, tokens, n);
    }
    return 0;
}

#endif
