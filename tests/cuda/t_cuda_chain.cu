/* Chains of products and DeltaNet steps: the same bits as launch by launch, for any rows,
 * blocks and order, again and again. */
#include "mm_help.h"

#include "kernels/cuda/mm_plan.h"

enum {
    HIDDEN = 384,
    FFN = 1152,
    K_HEADS = 2,
    V_HEADS = 6,
    D = BE_DN_DIM,
    CHANNELS = (2 * K_HEADS + V_HEADS) * D,
    INNER = V_HEADS * D,
    LD = CHANNELS + INNER + 2 * V_HEADS + 4,
    SLOTS = 4,
    LAYERS = 2
};

struct layer {
    struct test_mat in[4], out, gate_up, down;
    struct cu_mm_plan *p_in, *p_out, *p_gate_up, *p_down;
    float *conv_w, *a_log, *dt_bias, *gnorm, *norm, *post_norm; /* device */
};

/* All that a pass writes. */
struct buffers {
    float *x, *proj, *ss[2], *power[2], *s[LAYERS], *conv[LAYERS];
    struct cu_act act, mid, ffn;
    void *work;
    size_t work_bytes;
    struct cu_edges edges;
};

static const size_t s_floats = (size_t)V_HEADS * D * D, conv_floats = (size_t)2 * 3 * CHANNELS;

static struct cu_mm_plan *plan_of(struct cu_ctx *c, const struct test_mat *m, int n)
{
    const struct cu_mat *list[4] = {};
    struct cu_mm_plan *p = NULL;
    for (int i = 0; i < n; i++) {
        list[i] = &m[i].mat;
    }
    cut_must(cu_mm_plan_create(c, list, n, &p), "a plan");
    return p;
}

static float *up_normals(size_t n, float scale)
{
    float *h = cut_normals(n, scale), *d = cut_upload(h, n);
    free(h);
    return d;
}

static void layer_make(struct cu_ctx *c, struct layer *l)
{
    const int rows[4] = {CHANNELS, INNER, V_HEADS, V_HEADS};
    for (int i = 0; i < 4; i++) {
        l->in[i] = mat_random(i < 2 ? DT_Q4_G64 : DT_BF16, rows[i], HIDDEN, false);
    }
    l->out = mat_random(DT_Q8_G128, HIDDEN, INNER, false);
    l->gate_up = mat_random(DT_Q4_G64, 2 * FFN, HIDDEN, true);
    l->down = mat_random(DT_Q4_G64, HIDDEN, FFN, false);
    l->p_in = plan_of(c, l->in, 4);
    l->p_out = plan_of(c, &l->out, 1);
    l->p_gate_up = plan_of(c, &l->gate_up, 1);
    l->p_down = plan_of(c, &l->down, 1);
    l->conv_w = up_normals(4 * (size_t)CHANNELS, 0.5f);
    l->gnorm = up_normals(D, 1);
    l->dt_bias = up_normals(V_HEADS, 1);
    l->norm = up_normals(HIDDEN, 1);
    l->post_norm = up_normals(HIDDEN, 1);
    float a[V_HEADS];
    for (int i = 0; i < V_HEADS; i++) {
        a[i] = -0.05f * (float)(1 + cut_below(8));
    }
    l->a_log = cut_upload(a, V_HEADS);
}

static void layer_free(struct layer *l)
{
    for (int i = 0; i < 4; i++) {
        mat_free(&l->in[i]);
    }
    mat_free(&l->out);
    mat_free(&l->gate_up);
    mat_free(&l->down);
    cu_mm_plan_free(l->p_in);
    cu_mm_plan_free(l->p_out);
    cu_mm_plan_free(l->p_gate_up);
    cu_mm_plan_free(l->p_down);
    void *all[] = {l->conv_w, l->gnorm, l->dt_bias, l->norm, l->post_norm, l->a_log};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cut_free(all[i]);
    }
}

static struct cu_act act_new(int k)
{
    return (struct cu_act){cut_new<uint16_t>((size_t)CU_ROWS * (size_t)k),
                           cut_new<float>((size_t)CU_ROWS * (size_t)k / 32)};
}

static void buffers_make(struct buffers *b, const struct layer *l)
{
    b->x = cut_new<float>(CU_ROWS * HIDDEN);
    b->proj = cut_new<float>(CU_ROWS * LD);
    for (int i = 0; i < 2; i++) {
        b->ss[i] = cut_new<float>(CU_ROWS * HIDDEN / 64);
        b->power[i] = cut_new<float>(CU_ROWS);
    }
    for (int i = 0; i < LAYERS; i++) {
        b->s[i] = cut_new<float>(SLOTS * s_floats);
        b->conv[i] = cut_new<float>(SLOTS * conv_floats);
    }
    b->act = act_new(HIDDEN);
    b->mid = act_new(INNER);
    b->ffn = act_new(FFN);
    for (int i = 0; i < LAYERS; i++) {
        const struct cu_mm_plan *p[] = {l[i].p_in, l[i].p_out, l[i].p_gate_up, l[i].p_down};
        for (int j = 0; j < 4; j++) {
            b->work_bytes = b->work_bytes > cu_mm_work(p[j]) ? b->work_bytes : cu_mm_work(p[j]);
        }
    }
    b->work = cut_alloc(b->work_bytes);
    cut_must(cudaMemset(b->work, 0, b->work_bytes), "cudaMemset");
    b->edges.width = LD;
    b->edges.mem = cut_alloc(cu_edges_bytes(LD));
    cut_must(cudaMemset(b->edges.mem, 0, cu_edges_bytes(LD)), "cudaMemset");
}

static void buffers_free(struct buffers *b)
{
    void *all[] = {b->x,        b->proj,    b->ss[0],   b->ss[1],    b->power[0],
                   b->power[1], b->act.x,   b->act.sum, b->mid.x,    b->mid.sum,
                   b->ffn.x,    b->ffn.sum, b->work,    b->edges.mem};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cut_free(all[i]);
    }
    for (int i = 0; i < LAYERS; i++) {
        cut_free(b->s[i]);
        cut_free(b->conv[i]);
    }
}

/* What a pass starts from: of rows 0 .. 15 and of all slots. */
struct start {
    float *x, *ss, *s[LAYERS], *conv[LAYERS];
    uint16_t *act;
    float *sum;
};

static void start_make(struct start *s)
{
    s->x = cut_normals(CU_ROWS * HIDDEN, 1);
    s->ss = cut_host<float>(CU_ROWS * HIDDEN / 64);
    s->act = cut_host<uint16_t>(CU_ROWS * HIDDEN);
    s->sum = cut_host<float>(CU_ROWS * HIDDEN / 32);
    for (int r = 0; r < CU_ROWS; r++) {
        for (int i = 0; i < HIDDEN; i++) {
            const float v = s->x[r * HIDDEN + i];
            s->act[r * HIDDEN + i] = cut_half(v);
            s->ss[i / 64 * CU_ROWS + r] += v * v;
        }
        for (int i = 0; i < HIDDEN / 32; i++) {
            s->sum[i * CU_ROWS + r] = sum32(&s->act[r * HIDDEN + i * 32]);
        }
    }
    for (int i = 0; i < LAYERS; i++) {
        s->s[i] = cut_normals(SLOTS * s_floats, 0.1f);
        s->conv[i] = cut_normals(SLOTS * conv_floats, 1);
    }
}

static void start_free(struct start *s)
{
    free(s->x);
    free(s->ss);
    free(s->act);
    free(s->sum);
    for (int i = 0; i < LAYERS; i++) {
        free(s->s[i]);
        free(s->conv[i]);
    }
}

/* in, step, out, gate and up, down of every layer, and the first one's in again. */
static std::vector<struct cu_link> links_of(const struct layer *l, const struct buffers *b)
{
    std::vector<struct cu_link> all;
    int cur = 0;
    struct cu_link k = {};
    for (int i = 0; i <= LAYERS; i++) {
        const struct layer *m = &l[i % LAYERS];
        const float *norm[2] = {m->post_norm, l[(i + 1) % LAYERS].norm};
        k = (struct cu_link){};
        k.mm.plan = m->p_in;
        k.mm.in = b->act;
        k.mm.ss = b->ss[cur];
        k.mm.power = b->power[cur];
        k.mm.norm_k = HIDDEN;
        k.mm.eps = 1e-6f;
        k.mm.out = CU_MM_STORE;
        k.mm.y = b->proj;
        k.mm.ldy = LD;
        k.mm.work = b->work;
        all.push_back(k);
        if (i == LAYERS) {
            break;
        }
        k = (struct cu_link){};
        k.gdn = true;
        struct cu_gdn *g = &k.step;
        g->k_heads = K_HEADS;
        g->v_heads = V_HEADS;
        g->eps = 1e-6f;
        g->proj = b->proj;
        g->ld = LD;
        g->col_z = CHANNELS;
        g->col_b = CHANNELS + INNER;
        g->col_a = g->col_b + V_HEADS;
        g->conv_w = m->conv_w;
        g->a_log = m->a_log;
        g->dt_bias = m->dt_bias;
        g->gnorm = m->gnorm;
        g->state.s = b->s[i];
        g->state.s_stride = s_floats;
        g->state.conv = b->conv[i];
        g->state.conv_stride = conv_floats;
        g->act = b->mid;
        all.push_back(k);
        for (int half = 0; half < 2; half++) {
            if (half) {
                k = (struct cu_link){};
                k.mm.plan = m->p_gate_up;
                k.mm.in = b->act;
                k.mm.ss = b->ss[cur];
                k.mm.power = b->power[cur];
                k.mm.norm_k = HIDDEN;
                k.mm.eps = 1e-6f;
                k.mm.out = CU_MM_SILU;
                k.mm.act = b->ffn;
                k.mm.work = b->work;
                all.push_back(k);
            }
            k = (struct cu_link){};
            k.mm.plan = half ? m->p_down : m->p_out;
            k.mm.in = half ? b->ffn : b->mid;
            k.mm.norm_k = HIDDEN;
            k.mm.eps = 1e-6f;
            k.mm.out = CU_MM_RESIDUAL;
            k.mm.resid.x = b->x;
            k.mm.resid.ss = b->ss[1 - cur];
            k.mm.resid.power = b->power[1 - cur];
            k.mm.resid.act = b->act;
            k.mm.resid_ss = b->ss[cur];
            k.mm.next_norm = norm[half];
            k.mm.work = b->work;
            cur = 1 - cur;
            all.push_back(k);
        }
    }
    return all;
}

/* Rows in spans of the given lengths, each of its slot; links at a time. */
static void run(struct cu_ctx *c, const struct layer *l, const struct buffers *b,
                const struct start *s, const std::vector<int> &spans, int at_a_time,
                struct cu_batch batch)
{
    const float ones[CU_ROWS] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    cut_poison(b->proj, CU_ROWS * LD * sizeof(float));
    for (int i = 0; i < 2; i++) {
        cut_poison(b->ss[i], CU_ROWS * HIDDEN / 64 * sizeof(float));
        cut_poison(b->power[i], CU_ROWS * sizeof(float));
    }
    cut_put(b->x, s->x, CU_ROWS * HIDDEN);
    cut_put(b->ss[0], s->ss, CU_ROWS * HIDDEN / 64);
    cut_put(b->power[0], ones, CU_ROWS);
    cut_put(b->act.x, s->act, CU_ROWS * HIDDEN);
    cut_put(b->act.sum, s->sum, CU_ROWS * HIDDEN / 32);
    for (int i = 0; i < LAYERS; i++) {
        cut_put(b->s[i], s->s[i], SLOTS * s_floats);
        cut_put(b->conv[i], s->conv[i], SLOTS * conv_floats);
    }
    struct cu_span span[SLOTS] = {};
    int32_t count[2] = {0, (int32_t)spans.size()};
    for (size_t i = 0; i < spans.size(); i++) {
        span[i].first = count[0];
        span[i].n = spans[i];
        span[i].pos = 100;
        span[i].slot = (int32_t)(SLOTS - 1 - i);
        span[i].parity = (int32_t)(i % 2);
        count[0] += spans[i];
    }
    cut_put((int32_t *)batch.count, count, 2);
    cut_put((struct cu_span *)batch.span, span, SLOTS);
    batch.rows = count[0] > 12 ? 16 : count[0] + 1;
    batch.spans = count[1];
    const std::vector<struct cu_link> all = links_of(l, b);
    for (size_t i = 0; i < all.size(); i += (size_t)at_a_time) {
        const size_t left = all.size() - i;
        cut_must(cu_chain(c, &batch, &all[i],
                          (int)(left < (size_t)at_a_time ? left : (size_t)at_a_time), &b->edges),
                 "cu_chain");
    }
    cut_sync();
}

/* Everything that was written, of the rows there are, but what links of a launch hand on. */
static std::vector<uint32_t> results(const struct buffers *b, int rows)
{
    std::vector<uint32_t> all;
    const struct {
        const void *p;
        size_t n;
    } part[] = {{b->x, (size_t)rows * HIDDEN},     {b->proj, (size_t)rows * LD},
                {b->s[0], SLOTS * s_floats},       {b->s[1], SLOTS * s_floats},
                {b->conv[0], SLOTS * conv_floats}, {b->conv[1], SLOTS * conv_floats}};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        const size_t at = all.size();
        all.resize(at + part[i].n);
        cut_download(&all[at], (const uint32_t *)part[i].p, part[i].n);
    }
    std::vector<uint32_t> ss(CU_ROWS * HIDDEN / 64); /* of the last state */
    cut_download(ss.data(), (const uint32_t *)b->ss[0], ss.size());
    for (size_t j = 0; j < ss.size(); j++) {
        if ((int)(j % CU_ROWS) < rows) {
            all.push_back(ss[j]);
        }
    }
    return all;
}

static bool counters_zero(const struct buffers *b)
{
    std::vector<uint32_t> n(2 * MM_MAX_TILES + CU_LINKS);
    cut_download(n.data(), (const uint32_t *)b->work, n.size());
    for (size_t i = 0; i < n.size(); i++) {
        if (n[i] != 0) {
            return false;
        }
    }
    return true;
}

static bool finite(const std::vector<uint32_t> &v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if ((v[i] & 0x7f800000) == 0x7f800000) {
            return false;
        }
    }
    return true;
}

static void test_chain(struct cu_ctx *c, int n_sm)
{
    const int device_sm = c->n_sm;
    c->n_sm = n_sm ? n_sm : device_sm;
    struct layer l[LAYERS] = {};
    struct buffers b = {};
    struct start s = {};
    for (int i = 0; i < LAYERS; i++) {
        layer_make(c, &l[i]);
    }
    buffers_make(&b, l);
    start_make(&s);
    struct cu_batch batch = {};
    batch.count = cut_new<int32_t>(2);
    batch.span = cut_new<struct cu_span>(SLOTS);
    const std::vector<int> cases[] = {{1}, {4, 1, 2, 1}, {16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rows = 0;
        for (size_t j = 0; j < cases[i].size(); j++) {
            rows += cases[i][j];
        }
        run(c, l, &b, &s, cases[i], 1, batch);
        const std::vector<uint32_t> want = results(&b, rows);
        cut_ok(finite(want, (size_t)rows * HIDDEN), "%s, %d blocks, %d rows: numbers",
               cut_path_name(c->path), c->n_sm, rows);
        const int pieces[] = {11, 3, 4};
        for (size_t j = 0; j < sizeof pieces / sizeof *pieces; j++) {
            if (i > 0 && j > 0) {
                break;
            }
            if (j == 2) { /* tickets begin again on the way */
                const uint32_t late = UINT32_MAX / CU_LINKS - 3;
                cut_put((uint32_t *)b.work + 2 * MM_MAX_TILES + CU_LINKS, &late, 1);
            }
            cut_order((int)j);
            run(c, l, &b, &s, cases[i], pieces[j], batch);
            const std::vector<uint32_t> got = results(&b, rows);
            cut_same(got.data(), want.data(), want.size(), "%s, %d blocks, %d rows, chains of %d",
                     cut_path_name(c->path), c->n_sm, rows, pieces[j]);
        }
    }
    cut_ok(counters_zero(&b), "%s, %d blocks: counters are zero again", cut_path_name(c->path),
           c->n_sm);
    cut_free((void *)batch.count);
    cut_free((void *)batch.span);
    start_free(&s);
    buffers_free(&b);
    for (int i = 0; i < LAYERS; i++) {
        layer_free(&l[i]);
    }
    c->n_sm = device_sm;
}

static void test_refused(struct cu_ctx *c)
{
    struct cu_batch b = {};
    struct cu_link l[CU_LINKS + 1] = {};
    for (int i = 0; i <= CU_LINKS; i++) {
        l[i].gdn = true;
        l[i].step.k_heads = l[i].step.v_heads = 1;
    }
    b.rows = b.spans = 1;
    const int before = c->launches;
    cut_ok(cu_chain(c, &b, l, CU_LINKS + 1, NULL) != 0 && cu_chain(c, &b, l, 0, NULL) != 0 &&
               c->launches == before,
           "no link and too many are refused");
}

int main(void)
{
    cut_begin();
    enum cu_path path[2];
    const int n = cut_paths(path);
    for (int i = 0; i < n; i++) {
        struct cu_ctx *c = cut_ctx(path[i], true);
        test_refused(c);
        test_chain(c, 0);
        test_chain(c, 1);
        test_chain(c, 2 * V_HEADS + 1); /* enough for two blocks to a head of DeltaNet */
    }
    return cut_end();
}
