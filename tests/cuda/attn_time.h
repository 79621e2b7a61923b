#ifndef QUASAR_TESTS_CUDA_ATTN_TIME_H
#define QUASAR_TESTS_CUDA_ATTN_TIME_H

/*
 * t_cuda_attn --time [key=value ...]: speed of the 27B's attention on a GPU, 16 layers in
 * one graph, each with a cache of its own, on scattered pages; bytes are the cache's, read
 * once. Keys: per_sm, slots, grid, tiles, flight (struct attn_tune), pdl, path (80, 90), kv (16, 8,
 * 84, 53, 33: only this; otherwise 16 and 8), rows, depth (only these), spans (sequences of so many
 * rows each), what (1 decode, 2 prefill, 3 both).
 */

#include "kernels/cuda/attn.cuh"
#include "kernels/cuda/bandwidth.h"

struct time_opts {
    struct attn_tune tune;
    int pdl, path, kv, rows, depth, spans, what;
};

static struct time_opts time_opts_of(int n, char **arg)
{
    struct time_opts o = {};
    o.pdl = o.spans = o.what = 1;
    o.path = 90;
    o.depth = -1;
    const struct cut_key keys[] = {{"per_sm", &o.tune.per_sm}, {"slots", &o.tune.slots},
                                   {"grid", &o.tune.grid},     {"tiles", &o.tune.tiles},
                                   {"flight", &o.tune.flight}, {"pdl", &o.pdl},
                                   {"path", &o.path},          {"kv", &o.kv},
                                   {"rows", &o.rows},          {"depth", &o.depth},
                                   {"spans", &o.spans},        {"what", &o.what}};
    cut_keys(keys, sizeof keys / sizeof *keys, n, arg);
    return o;
}

enum { LAYERS = 16 };

/* Milliseconds of one replay of LAYERS launches, each on its own cache. */
static double replay(struct cu_ctx *c, const struct cu_batch *b, struct cu_attn *a, uint8_t *cache,
                     size_t layer_bytes, bool decode, const struct attn_tune *tune)
{
    cudaStream_t st = (cudaStream_t)c->stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cut_must(cudaStreamBeginCapture(st, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < LAYERS; i++) {
        a->cache = cache + (size_t)i * layer_bytes;
        cut_must(decode ? attn_decode_tuned(c, b, a, tune) : (cudaError_t)cu_attn_prefill(c, b, a),
                 "attention");
    }
    cut_must(cudaStreamEndCapture(st, &graph), "capture");
    cut_must(cudaGraphInstantiate(&exec, graph, 0), "graph");
    cudaEvent_t from, to;
    cut_must(cudaEventCreate(&from), "event");
    cut_must(cudaEventCreate(&to), "event");
    double best = 1e30;
    for (int i = 0; i < 7; i++) {
        float ms = 0;
        cut_must(cudaEventRecord(from, st), "event");
        cut_must(cudaGraphLaunch(exec, st), "graph");
        cut_must(cudaEventRecord(to, st), "event");
        cut_sync();
        cut_must(cudaEventElapsedTime(&ms, from, to), "event");
        best = i > 1 && ms < best ? ms : best;
    }
    cut_must(cudaGraphExecDestroy(exec), "graph");
    cut_must(cudaGraphDestroy(graph), "graph");
    cut_must(cudaEventDestroy(from), "event");
    cut_must(cudaEventDestroy(to), "event");
    return best;
}

struct speed {
    int spans, rows, depth; /* rows of each span */
};

static double time_one(struct cu_ctx *c, enum be_kv kv, struct speed t,
                       const struct attn_tune *tune, uint8_t *cache, size_t cache_bytes,
                       double read, double one)
{
    enum { QH = 24, KVH = 4 };
    const bool decode = t.rows <= CU_ROWS;
    const int rows = t.spans * t.rows, pages = (t.depth + t.rows - 1) / BE_PAGE + 1;
    const size_t stride = BE_PAGE * be_kv_bytes(kv, KVH);
    const size_t layer = stride * (size_t)(pages * t.spans);
    if (layer * LAYERS > cache_bytes) {
        printf("# no memory for %d x %d at %d\n", t.spans, t.rows, t.depth);
        return one;
    }
    struct cu_span span[MAX_SEQ];
    int32_t *page = cut_host<int32_t>((size_t)(pages * t.spans));
    int32_t *pos = cut_host<int32_t>((size_t)rows), *of = cut_host<int32_t>((size_t)rows);
    for (int i = 0; i < pages * t.spans; i++) { /* scattered */
        const int j = cut_below(i + 1);
        page[i] = page[j];
        page[j] = i;
    }
    for (int i = 0; i < t.spans; i++) {
        span[i] = {i * t.rows, t.rows, t.depth, i, 0, i * pages};
        for (int j = 0; j < t.rows; j++) {
            pos[i * t.rows + j] = t.depth + j;
            of[i * t.rows + j] = i;
        }
    }
    const int32_t count[2] = {rows, t.spans};
    struct cu_attn a = {};
    a.q_heads = QH;
    a.kv_heads = KVH;
    a.eps = 1e-6f;
    a.ld = (QH * 2 + 2 * KVH) * D;
    a.col_k = QH * 2 * D;
    a.col_v = a.col_k + KVH * D;
    float *proj = cut_normals((size_t)rows * a.ld, 1), *ones = cut_host<float>(D);
    float *rot = cut_host<float>((size_t)rows * 64);
    for (int i = 0; i < D; i++) {
        ones[i] = 1;
    }
    for (int i = 0; i < rows * 64; i++) {
        rot[i] = i / 32 % 2 ? 0 : 1;
    }
    a.proj = cut_upload(proj, (size_t)rows * a.ld);
    a.q_norm = cut_upload(ones, D);
    a.k_norm = a.q_norm;
    a.kv = kv;
    a.page_stride = stride;
    a.max_ctx = 1; /* as the host does */
    while (a.max_ctx < t.depth + t.rows) {
        a.max_ctx *= 2;
    }
    const size_t xs = decode ? (size_t)CU_ROWS * QH * D : cu_xt_bytes(rows, QH * D) / 2;
    a.act.x = cut_new<uint16_t>(xs);
    a.act.sum = cut_new<float>((size_t)QH * 8 * CU_ROWS);
    a.xt = a.act.x;
    const size_t work = cu_attn_work(QH, KVH, a.max_ctx, rows);
    a.work = cut_alloc(work);
    cut_must(cudaMemset(a.work, 0, work), "cudaMemset");
    struct cu_batch b = {};
    b.count = cut_upload(count, 2);
    b.pos = cut_upload(pos, (size_t)rows);
    b.span_of = cut_upload(of, (size_t)rows);
    b.span = cut_upload(span, (size_t)t.spans);
    b.page = cut_upload(page, (size_t)(pages * t.spans));
    b.rot = cut_upload(rot, (size_t)rows * 64);
    b.rows = rows;
    b.spans = t.spans;
    b.mode = decode ? BE_DECODE : BE_PREFILL;
    const double us = replay(c, &b, &a, cache, layer, decode, tune) * 1e3 / LAYERS;
    if (decode) {
        const double bytes = (double)t.spans * t.depth * (double)be_kv_bytes(kv, KVH);
        printf("# %s %s decode %2d x %2d rows, depth %6d: %8.2f us a layer, %6.0f GB/s, "
               "%3.0f %% of reading, %.2f of 1 row\n",
               cut_path_name(c->path), be_kv_name(kv), t.spans, t.rows, t.depth, us,
               bytes / us * 1e-3, bytes / us * 1e-3 / read * 100, one > 0 ? us / one : 1.0);
    } else {
        const double keys = (double)t.rows * t.depth + (double)t.rows * (t.rows + 1) / 2;
        printf("# %s %s prefill %d rows, context %6d: %8.1f us a layer, %6.1f TFLOP/s\n",
               cut_path_name(c->path), be_kv_name(kv), t.rows, t.depth + t.rows, us,
               keys * 4 * D * QH / us * 1e-6);
    }
    fflush(stdout);
    cut_free((void *)a.proj);
    cut_free((void *)a.q_norm);
    cut_free(a.act.x);
    cut_free(a.act.sum);
    cut_free(a.work);
    cut_free((void *)b.count);
    cut_free((void *)b.pos);
    cut_free((void *)b.span_of);
    cut_free((void *)b.span);
    cut_free((void *)b.page);
    cut_free(b.rot);
    free(page);
    free(pos);
    free(of);
    free(proj);
    free(rot);
    free(ones);
    return us;
}

/* GB/s of one pass over memory. */
static double read_speed(struct cu_ctx *c, const void *p, size_t bytes)
{
    cudaStream_t st = (cudaStream_t)c->stream;
    float best = 1e30f, *sink = cut_new<float>(1);
    cudaEvent_t from, to;
    cut_must(cudaEventCreate(&from), "event");
    cut_must(cudaEventCreate(&to), "event");
    for (int i = 0; i < 5; i++) {
        float ms = 0;
        cut_must(cudaEventRecord(from, st), "event");
        cut_must(cu_bw_read(c, p, bytes, sink), "reading");
        cut_must(cudaEventRecord(to, st), "event");
        cut_sync();
        cut_must(cudaEventElapsedTime(&ms, from, to), "event");
        best = ms < best ? ms : best;
    }
    cut_must(cudaEventDestroy(from), "event");
    cut_must(cudaEventDestroy(to), "event");
    cut_free(sink);
    return (double)bytes / best * 1e-6;
}

static int time_all(int n, char **arg)
{
    const struct time_opts o = time_opts_of(n, arg);
    size_t left = 0, total = 0;
    cut_must(cudaMemGetInfo(&left, &total), "memory");
    const size_t most = (size_t)10 << 30, bytes = left / 2 < most ? left / 2 : most;
    uint8_t *cache = cut_new<uint8_t>(bytes);
    cut_must(cudaMemset(cache, 0x11, bytes), "cudaMemset"); /* small numbers in both formats */
    struct cu_ctx *c = cut_ctx(o.path == 80 ? CU_SM80 : CU_SM90, false);
    const double read = read_speed(c, cache, bytes / 2);
    printf("# reading %.0f GB/s, %d SMs, %s, pdl %d, per_sm %d, slots %d, grid %d, tiles %d\n",
           read, c->n_sm, cut_path_name(c->path), o.pdl, o.tune.per_sm, o.tune.slots, o.tune.grid,
           o.tune.tiles);
    static const int rows[] = {1, 2, 4, 8, 16}, depth[] = {0, 2048, 8192, 32768, 131072};
    static const struct {
        enum be_kv kv;
        int key;
    } kinds[] = {
        {BE_KV_F16, 16}, {BE_KV_F8, 8}, {BE_KV_K8V4, 84}, {BE_KV_K5V3, 53}, {BE_KV_K3V3, 33}};
    for (int k = 0; k < 5; k++) {
        const enum be_kv kv = kinds[k].kv;
        if (o.kv ? o.kv != kinds[k].key : k > 1) {
            continue;
        }
        for (int d = 0; d < 5 && o.what & 1; d++) {
            double one = 0;
            for (int r = 0; r < 5; r++) {
                const struct speed t = {o.spans, rows[r], o.depth < 0 ? depth[d] : o.depth};
                if ((o.rows ? o.rows != rows[r] : rows[r] == 2 || rows[r] == 4) ||
                    o.spans * rows[r] > CU_ROWS || (o.depth >= 0 && d > 0)) {
                    continue;
                }
                const double us =
                    time_one(cut_ctx(c->path, o.pdl != 0), kv, t, &o.tune, cache, bytes, read, one);
                one = one > 0 ? one : us;
            }
        }
        for (int d = 0; d < 4 && o.what & 2; d++) {
            static const int before[] = {0, 6144, 30720, 129024};
            const struct speed t = {1, 2048, before[d]};
            time_one(cut_ctx(c->path, false), kv, t, &o.tune, cache, bytes, read, 0);
        }
    }
    cut_free(cache);
    return 0;
}

#endif
