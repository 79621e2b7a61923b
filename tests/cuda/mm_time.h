#ifndef QUASAR_TESTS_CUDA_MM_TIME_H
#define QUASAR_TESTS_CUDA_MM_TIME_H

/*
 * t_cuda_mm --time [key=value ...]: speed of the 27B's products on a GPU, as part of
 * the read bandwidth measured in the same run. Keys: slice, per_sm, order (1 by slice, 2
 * by tile), pdl, path (80, 90), layers, rows (only this count), what (1 single products, 2
 * all of a step's launch by launch, 4 chained with the DeltaNet steps between as far as
 * attention lets).
 */

struct time_opts {
    struct mm_tune tune;
    int pdl, path, layers, rows, what;
};

static struct time_opts time_opts_of(int n, char **arg)
{
    struct time_opts o = {};
    o.pdl = 1;
    o.path = 90;
    o.layers = 64;
    o.what = 7;
    const struct cut_key keys[] = {
        {"slice", &o.tune.slice}, {"per_sm", &o.tune.per_sm}, {"order", (int *)&o.tune.order},
        {"pdl", &o.pdl},          {"path", &o.path},          {"layers", &o.layers},
        {"rows", &o.rows},        {"what", &o.what}};
    cut_keys(keys, sizeof keys / sizeof *keys, n, arg);
    return o;
}

/* Sane random steps of every kind, copied over and over. */
struct time_pool {
    void *dev[3];
    size_t bytes[3];
};

static void pool_make(struct time_pool *p)
{
    enum { STEPS = 1024 };
    for (int kind = 0; kind < 3; kind++) {
        const size_t step = cu_step_bytes((enum cu_kind)kind);
        p->bytes[kind] = step * STEPS;
        uint8_t *h = cut_host<uint8_t>(p->bytes[kind]);
        for (size_t i = 0; i < p->bytes[kind]; i += 8) {
            const uint64_t r = cut_random();
            memcpy(h + i, &r, 8);
        }
        for (size_t s = 0; s < STEPS; s++) {
            uint8_t *at = h + s * step;
            for (size_t i = 0; kind == CU_W16 && i < step; i += 2) {
                const uint16_t v = cut_half(cut_uniform() * 30000);
                memcpy(at + i, &v, 2);
            }
            for (int half = 0; half < kind + 1 && kind < 2; half++) {
                uint8_t *scale = at + half * 2112 + 2048;
                for (int i = 0; i < (kind == 0 ? 64 : 32); i++) {
                    const uint16_t v = cut_half(0.003f + 0.001f * cut_uniform());
                    memcpy(scale + 2 * i, &v, 2);
                }
            }
        }
        p->dev[kind] = cut_upload(h, p->bytes[kind]);
        free(h);
    }
}

static struct cu_mat pool_mat(const struct time_pool *p, enum cu_kind kind, int rows, int k)
{
    const size_t bytes = cu_mat_bytes(kind, rows, k);
    uint8_t *d = NULL;
    cut_must(cudaMalloc((void **)&d, bytes), "cudaMalloc of weights");
    for (size_t at = 0; at < bytes; at += p->bytes[kind]) {
        const size_t left = bytes - at;
        cut_must(cudaMemcpyAsync(d + at, p->dev[kind],
                                 left < p->bytes[kind] ? left : p->bytes[kind],
                                 cudaMemcpyDeviceToDevice, (cudaStream_t)cut.ctx.stream),
                 "cudaMemcpy of weights");
    }
    struct cu_mat m = {};
    m.data = d;
    m.kind = kind;
    m.rows = rows;
    m.tiles = (rows + 63) / 64;
    m.kg = k / 64;
    m.name = "timed";
    if (kind == CU_W16) {
        std::vector<float> s((size_t)m.tiles * 64, 1e-6f);
        float *scale = NULL;
        cut_must(cudaMalloc((void **)&scale, s.size() * 4), "cudaMalloc");
        cut_must(cudaMemcpy(scale, s.data(), s.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
        m.row_scale = scale;
    }
    return m;
}

/* Every buffer that any product here reads or writes. */
struct time_buffers {
    struct cu_act in[2]; /* 17,408 wide */
    struct cu_resid resid[2];
    float *norm, *y;
    int32_t *count;
    struct cu_span *span;
    float *state, *vectors; /* DeltaNet's */
    void *work;
    size_t work_bytes;
    struct cu_edges edges;
};

static void buffers_make(struct time_buffers *b, size_t work)
{
    enum { WIDE = 17408, HIDDEN = 5120, Y = 248320 };
    std::vector<uint16_t> x((size_t)CU_ROWS * WIDE);
    std::vector<float> sum((size_t)CU_ROWS * WIDE / 32, 0), ones((size_t)CU_ROWS * HIDDEN, 1);
    for (size_t i = 0; i < x.size(); i++) {
        x[i] = cut_half(cut_normal());
    }
    for (int i = 0; i < 2; i++) {
        b->in[i].x = cut_upload(x.data(), x.size());
        b->in[i].sum = cut_upload(sum.data(), sum.size());
        b->resid[i].x = cut_upload(ones.data(), ones.size());
        b->resid[i].ss = cut_upload(ones.data(), (size_t)CU_ROWS * HIDDEN / 64);
        b->resid[i].power = cut_upload(ones.data(), CU_ROWS);
        b->resid[i].act.x = cut_upload(x.data(), (size_t)CU_ROWS * HIDDEN);
        b->resid[i].act.sum = cut_upload(sum.data(), (size_t)CU_ROWS * HIDDEN / 32);
    }
    b->norm = cut_upload(ones.data(), HIDDEN);
    b->y = cut_new<float>((size_t)CU_ROWS * Y);
    b->count = cut_new<int32_t>(2);
    b->span = cut_new<struct cu_span>(1);
    b->vectors = cut_upload(ones.data(), 4 * 10240);
    const size_t state = (size_t)48 * (48 * 128 * 128 + 6 * 10240) * sizeof(float);
    cut_must(cudaMalloc((void **)&b->state, state), "cudaMalloc");
    cut_must(cudaMemset(b->state, 0, state), "cudaMemset");
    b->work_bytes = work;
    cut_must(cudaMalloc(&b->work, work), "cudaMalloc");
    cut_must(cudaMemset(b->work, 0, work), "cudaMemset");
    b->edges.width = WIDE;
    cut_must(cudaMalloc(&b->edges.mem, cu_edges_bytes(WIDE)), "cudaMalloc");
    cut_must(cudaMemset(b->edges.mem, 0, cu_edges_bytes(WIDE)), "cudaMemset");
}

enum time_what { T_IN, T_QKV, T_OUT, T_GATE_UP, T_DOWN, T_HEAD };

struct timed {
    enum time_what what;
    struct cu_mm_plan *plan;
    struct cu_mat mat[4];
    int n;
    double bytes;
};

static struct timed timed_make(struct cu_ctx *c, const struct time_pool *pool, enum time_what what,
                               const struct mm_tune *tune)
{
    /* of shapes[]: the 27B, tier q4s */
    static const int shape[] = {0, 5, 1, 3, 4, 8};
    const struct shape *s = &shapes[shape[what]];
    struct timed t = {};
    t.what = what;
    t.n = s->n;
    const struct cu_mat *list[4] = {};
    for (int i = 0; i < s->n; i++) {
        t.mat[i] = pool_mat(pool, s->kind[i], s->rows[i], s->k);
        t.bytes += (double)cu_mat_bytes(s->kind[i], s->rows[i], s->k);
        list[i] = &t.mat[i];
    }
    cut_must(cu_mm_plan_create_tuned(c, list, s->n, tune, &t.plan), "a plan");
    return t;
}

static void timed_free(struct timed *t)
{
    for (int i = 0; i < t->n; i++) {
        cudaFree((void *)t->mat[i].data);
        cudaFree((void *)t->mat[i].row_scale);
    }
    cu_mm_plan_free(t->plan);
}

/* flip: which of the two residual states is read. */
static struct cu_mm timed_mm(const struct time_buffers *b, const struct timed *t, int *flip)
{
    struct cu_mm m = {};
    m.plan = t->plan;
    m.eps = 1e-6f;
    m.work = b->work;
    const struct cu_resid *now = &b->resid[*flip], *then = &b->resid[!*flip];
    if (t->what == T_OUT || t->what == T_DOWN) {
        m.in = b->in[t->what == T_DOWN];
        m.out = CU_MM_RESIDUAL;
        m.resid = *then;
        m.resid.x = now->x; /* one stream, two states */
        m.resid_ss = now->ss;
        m.next_norm = b->norm;
        *flip = !*flip;
    } else {
        m.in = now->act;
        m.ss = now->ss;
        m.power = now->power;
        m.norm_k = 5120;
        m.out = t->what == T_GATE_UP ? CU_MM_SILU : CU_MM_STORE;
        m.act = b->in[1];
        m.y = b->y;
        m.ldy = 248320;
    }
    return m;
}

/* A layer's step, the 27B's; every layer has its state. */
static struct cu_gdn timed_gdn(const struct time_buffers *b, int layer)
{
    struct cu_gdn g = {};
    g.k_heads = 16;
    g.v_heads = 48;
    g.eps = 1e-6f;
    g.proj = b->y;
    g.ld = 248320;
    g.col_z = 10240;
    g.col_b = 16384;
    g.col_a = 16432;
    g.conv_w = g.a_log = g.dt_bias = g.gnorm = b->vectors;
    g.state.s = b->state + (size_t)layer * (48 * 128 * 128 + 6 * 10240);
    g.state.conv = g.state.s + 48 * 128 * 128;
    g.act = b->in[0];
    return g;
}

/* The links of list, step by step: `at_once` as in a decode step, else one by one. After
 * qkv a chain ends. */
static void timed_run(struct cu_ctx *c, const struct time_buffers *b,
                      const std::vector<const struct timed *> &list, int rows, bool at_once,
                      bool steps)
{
    struct cu_batch batch = {};
    batch.count = b->count;
    batch.span = b->span;
    batch.rows = rows;
    batch.spans = 1;
    int flip = 0, layer = 0;
    std::vector<struct cu_link> chain;
    for (size_t i = 0; i < list.size(); i++) {
        struct cu_link k = {};
        k.mm = timed_mm(b, list[i], &flip);
        chain.push_back(k);
        if (list[i]->what == T_IN && steps) {
            k = (struct cu_link){};
            k.gdn = true;
            k.step = timed_gdn(b, layer++);
            chain.push_back(k);
        }
        if (!at_once || list[i]->what == T_QKV || i + 1 == list.size()) {
            cut_must(cu_chain(c, &batch, chain.data(), (int)chain.size(), &b->edges), "cu_chain");
            chain.clear();
        }
    }
}

/* Milliseconds of one replay of the launches list[0..n) in one graph, the best of some. */
static double time_graph(struct cu_ctx *c, const struct time_buffers *b,
                         const std::vector<const struct timed *> &list, int rows, bool at_once,
                         bool steps)
{
    cudaStream_t s = (cudaStream_t)c->stream;
    const int32_t count[2] = {rows, 1};
    cut_put(b->count, count, 2);
    struct cu_span span = {};
    span.n = rows;
    cut_put(b->span, &span, 1);
    cut_must(cudaMemset(b->work, 0, b->work_bytes), "cudaMemset");
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cut_must(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal), "capture");
    timed_run(c, b, list, rows, at_once, steps);
    cut_must(cudaStreamEndCapture(s, &graph), "capture");
    cut_must(cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    cudaEvent_t from, to;
    cut_must(cudaEventCreate(&from), "an event");
    cut_must(cudaEventCreate(&to), "an event");
    double best = 1e30;
    for (int i = 0; i < 8; i++) {
        cut_must(cudaEventRecord(from, s), "an event");
        cut_must(cudaGraphLaunch(exec, s), "cudaGraphLaunch");
        cut_must(cudaEventRecord(to, s), "an event");
        cut_must(cudaEventSynchronize(to), "the products");
        float ms = 0;
        cut_must(cudaEventElapsedTime(&ms, from, to), "an event");
        best = i > 1 && ms < best ? ms : best;
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return best;
}

static double time_read(struct cu_ctx *c)
{
    const size_t bytes = (size_t)4 << 30;
    void *p = NULL, *sink = NULL;
    cut_must(cudaMalloc(&p, bytes), "cudaMalloc");
    cut_must(cudaMalloc(&sink, 256), "cudaMalloc");
    cut_must(cudaMemset(p, 0x5a, bytes), "cudaMemset");
    cudaEvent_t from, to;
    cut_must(cudaEventCreate(&from), "an event");
    cut_must(cudaEventCreate(&to), "an event");
    double best = 0;
    for (int i = 0; i < 6; i++) {
        cut_must(cudaEventRecord(from, (cudaStream_t)c->stream), "an event");
        cut_must(cu_bw_read(c, p, bytes, sink), "cu_bw_read");
        cut_must(cudaEventRecord(to, (cudaStream_t)c->stream), "an event");
        cut_must(cudaEventSynchronize(to), "reading");
        float ms = 0;
        cut_must(cudaEventElapsedTime(&ms, from, to), "an event");
        const double gb = (double)bytes / ms / 1e6;
        best = gb > best ? gb : best;
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    cudaFree(p);
    cudaFree(sink);
    return best;
}

static void time_line(const char *name, double bytes, double ms, double read, double one)
{
    const double gb = bytes / ms / 1e6;
    printf("  %-11s %8.2f MB %9.2f us %8.0f GB/s %5.1f %%  %.3f of 1 row\n", name, bytes / 1e6,
           ms * 1e3, gb, 100 * gb / read, ms / one);
    fflush(stdout);
}

static const int time_rows[] = {1, 8, 16};

static void time_single(struct cu_ctx *c, const struct time_opts *o, const struct time_pool *pool,
                        const struct time_buffers *b, double read)
{
    static const char *const name[] = {"gdn in", "qkv", "out", "gate/up", "down", "head"};
    for (int what = T_IN; what <= T_HEAD; what++) {
        std::vector<struct timed> copies;
        double bytes = 0;
        while (bytes < 400e6) { /* several times L2 */
            copies.push_back(timed_make(c, pool, (enum time_what)what, &o->tune));
            bytes += copies.back().bytes;
        }
        std::vector<const struct timed *> list;
        for (size_t i = 0; i < 32; i++) {
            list.push_back(&copies[i % copies.size()]);
        }
        double one = 0;
        for (int i = 0; i < 3; i++) {
            if (o->rows && o->rows != time_rows[i]) {
                continue;
            }
            const double ms =
                time_graph(c, b, list, time_rows[i], false, false) / (double)list.size();
            one = one > 0 ? one : ms;
            char label[32];
            snprintf(label, sizeof label, "%s %d", name[what], time_rows[i]);
            time_line(label, copies[0].bytes, ms, read, one);
        }
        for (size_t i = 0; i < copies.size(); i++) {
            timed_free(&copies[i]);
        }
    }
}

static void time_chain(struct cu_ctx *c, const struct time_opts *o, const struct time_pool *pool,
                       const struct time_buffers *b, double read)
{
    std::vector<struct timed> all;
    double bytes = 0;
    for (int i = 0; i < o->layers; i++) {
        const enum time_what w[] = {i % 4 == 3 ? T_QKV : T_IN, T_OUT, T_GATE_UP, T_DOWN};
        for (int j = 0; j < 4; j++) {
            all.push_back(timed_make(c, pool, w[j], &o->tune));
            bytes += all.back().bytes;
        }
    }
    std::vector<const struct timed *> list;
    for (size_t i = 0; i < all.size(); i++) {
        list.push_back(&all[i]);
    }
    static const char *const name[] = {"singly", "chained"};
    for (int how = 0; how < 2; how++) {
        double one = 0;
        for (int i = 0; i < 3; i++) {
            if ((o->what >> how & 2) && (!o->rows || o->rows == time_rows[i])) {
                const double ms = time_graph(c, b, list, time_rows[i], how > 0, how > 0);
                one = one > 0 ? one : ms;
                char label[32];
                snprintf(label, sizeof label, "%s %d", name[how], time_rows[i]);
                time_line(label, bytes, ms, read, one);
            }
        }
    }
    for (size_t i = 0; i < all.size(); i++) {
        timed_free(&all[i]);
    }
}

static int time_all(int n, char **arg)
{
    const struct time_opts o = time_opts_of(n, arg);
    struct cu_ctx *c = cut_ctx(o.path == 80 ? CU_SM80 : CU_SM90, o.pdl != 0);
    const double read = time_read(c);
    printf(
        "# read bandwidth %.0f GB/s, %d SMs, path sm_%d, pdl %d, slice %d, per_sm %d, order %d\n",
        read, c->n_sm, o.path, (int)c->pdl, o.tune.slice, o.tune.per_sm, (int)o.tune.order);
    struct time_pool pool = {};
    pool_make(&pool);
    struct time_buffers b = {};
    buffers_make(&b, (size_t)512 << 20);
    if (o.what & 1) {
        time_single(c, &o, &pool, &b, read);
    }
    if (o.what & 6) {
        time_chain(c, &o, &pool, &b, read);
    }
    return 0;
}

#endif
