/*
 * Gated DeltaNet on CUDA against a recurrence in double: steps, blocks, folds; and
 * which bits may not change. With --time on a GPU: speeds at the 27B's widths.
 */
#include "tests/emu/cutest.h"

#include "kernels/cuda/gdn_stages.h"

enum { D = BE_DN_DIM, B = BE_BLOCK, SLOTS = 18 };

/* ---- a layer and its sequences ---- */

struct layer {
    int k_heads, v_heads, ch, ld, col_qkv, col_z, col_b, col_a;
    float *conv_w, *a_log, *dt_bias, *gnorm; /* host */
    struct cu_gdn g;                         /* device */
    float *s, *conv;                         /* device, SLOTS of them */
    size_t s_n, conv_n;                      /* floats in use of a slot */
};

/* One sequence: rows of projections, and the double recurrence over them. */
struct seq {
    float *proj;       /* [n][ld] */
    float *s0, *conv0; /* the state before row 0 */
    double *s, *y;     /* after the last row; [n][v_heads * 128] */
    int n, pos;
};

static void layer_init(struct layer *l, int k_heads, int v_heads, int max_rows)
{
    memset(l, 0, sizeof *l);
    l->k_heads = k_heads;
    l->v_heads = v_heads;
    l->ch = (2 * k_heads + v_heads) * D;
    l->col_z = 4;
    l->col_qkv = l->col_z + v_heads * D;
    l->col_a = l->col_qkv + l->ch;
    l->col_b = l->col_a + v_heads + 1;
    l->ld = (l->col_b + v_heads + 3) / 4 * 4;
    l->conv_w = cut_normals(4 * (size_t)l->ch, 0.5f);
    l->gnorm = cut_normals(D, 1);
    l->a_log = cut_host<float>((size_t)v_heads);
    l->dt_bias = cut_normals((size_t)v_heads, 1);
    for (int i = 0; i < v_heads; i++) {
        /* one head forgets at once, one hardly ever */
        l->a_log[i] = i == 0 ? -9.0f : i == 1 ? -1e-3f : -0.05f * (float)(1 + cut_below(8));
    }
    l->s_n = (size_t)v_heads * D * D;
    l->conv_n = 6 * (size_t)l->ch;
    struct cu_gdn *g = &l->g;
    g->k_heads = k_heads;
    g->v_heads = v_heads;
    g->eps = 1e-6f;
    g->ld = (size_t)l->ld;
    g->col_qkv = l->col_qkv;
    g->col_z = l->col_z;
    g->col_b = l->col_b;
    g->col_a = l->col_a;
    g->conv_w = cut_upload(l->conv_w, 4 * (size_t)l->ch);
    g->a_log = cut_upload(l->a_log, (size_t)v_heads);
    g->dt_bias = cut_upload(l->dt_bias, (size_t)v_heads);
    g->gnorm = cut_upload(l->gnorm, D);
    g->state.s_stride = l->s_n + 8;
    g->state.conv_stride = l->conv_n + 4;
    l->s = g->state.s = cut_new<float>(g->state.s_stride * SLOTS);
    l->conv = g->state.conv = cut_new<float>(g->state.conv_stride * SLOTS);
    const size_t work = cu_gdn_work(k_heads, v_heads, max_rows);
    g->work = cut_alloc(work);
    cut_must(cudaMemset(g->work, 0, work), "cudaMemset");
}

static void layer_free(struct layer *l)
{
    cut_free((void *)l->g.conv_w);
    cut_free((void *)l->g.a_log);
    cut_free((void *)l->g.dt_bias);
    cut_free((void *)l->g.gnorm);
    cut_free(l->s);
    cut_free(l->conv);
    cut_free(l->g.work);
    free(l->conv_w);
    free(l->a_log);
    free(l->dt_bias);
    free(l->gnorm);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* Raw input of a channel, t >= -3. */
static double raw(const struct layer *l, const struct seq *q, int t, int c)
{
    return (double)(t < 0 ? q->conv0[(3 + t) * l->ch + c]
                          : q->proj[(size_t)t * (size_t)l->ld + (size_t)(l->col_qkv + c)]);
}

static void normed(const double *x, double *out)
{
    double sum = 1e-6;
    for (int i = 0; i < D; i++) {
        sum += x[i] * x[i];
    }
    for (int i = 0; i < D; i++) {
        out[i] = x[i] / sqrt(sum);
    }
}

static void ref_head(const struct layer *l, const struct seq *seq, int t, int h, const double *c)
{
    const int kh = h / (l->v_heads / l->k_heads);
    const double *v = c + (2 * l->k_heads + h) * D;
    const float *row = seq->proj + (size_t)t * (size_t)l->ld;
    double *s = seq->s + h * D * D;
    double *y = seq->y + ((size_t)t * (size_t)l->v_heads + (size_t)h) * D;
    double q[D], k[D], d[D], ss = 0;
    normed(c + kh * D, q);
    normed(c + (l->k_heads + kh) * D, k);
    const double u = (double)row[l->col_a + h] + (double)l->dt_bias[h];
    const double decay = exp((double)l->a_log[h] * (u > 20 ? u : log1p(exp(u))));
    const double beta = 1 / (1 + exp(-(double)row[l->col_b + h]));
    for (int j = 0; j < D; j++) {
        d[j] = v[j];
        y[j] = 0;
    }
    for (int i = 0; i < D; i++) {
        for (int j = 0; j < D; j++) {
            s[i * D + j] *= decay;
            d[j] -= s[i * D + j] * k[i];
        }
    }
    for (int i = 0; i < D; i++) {
        for (int j = 0; j < D; j++) {
            s[i * D + j] += k[i] * beta * d[j];
            y[j] += s[i * D + j] * q[i] / sqrt(128);
        }
    }
    for (int j = 0; j < D; j++) {
        ss += y[j] * y[j];
    }
    for (int j = 0; j < D; j++) {
        y[j] *= (double)l->gnorm[j] / sqrt(ss / D + 1e-6) * silu((double)row[l->col_z + h * D + j]);
    }
}

static void seq_init(struct seq *q, const struct layer *l, int n, int pos, float scale)
{
    q->n = n;
    q->pos = pos;
    q->proj = cut_normals((size_t)n * (size_t)l->ld, scale);
    for (int t = 0; t < n; t++) {
        float *row = q->proj + (size_t)t * (size_t)l->ld;
        for (int h = 0; h < l->v_heads; h++) {
            row[l->col_a + h] *= 2 / scale;
            row[l->col_b + h] *= 2 / scale;
        }
        for (int j = 0; j < l->v_heads * D; j++) {
            row[l->col_z + j] /= scale;
        }
    }
    q->proj[l->col_a] = 25; /* softplus beyond its linear bound */
    q->s0 = cut_normals(l->s_n, 0.1f * scale);
    q->conv0 = cut_normals(3 * (size_t)l->ch, scale);
    q->s = cut_host<double>(l->s_n);
    q->y = cut_host<double>((size_t)(n * l->v_heads * D));
    for (size_t i = 0; i < l->s_n; i++) {
        q->s[i] = (double)q->s0[i];
    }
    double *c = cut_host<double>((size_t)l->ch);
    for (int t = 0; t < n; t++) {
        for (int i = 0; i < l->ch; i++) {
            double sum = 0;
            for (int j = 0; j < 4; j++) {
                sum += (double)l->conv_w[i * 4 + j] * raw(l, q, t - 3 + j, i);
            }
            c[i] = silu(sum);
        }
        for (int h = 0; h < l->v_heads; h++) {
            ref_head(l, q, t, h, c);
        }
    }
    free(c);
}

static void seq_free(struct seq *q)
{
    free(q->proj);
    free(q->s0);
    free(q->conv0);
    free(q->s);
    free(q->y);
}

/* ---- slots ---- */

static void slot_set(const struct layer *l, const struct seq *q, int slot, int parity)
{
    float *conv = l->conv + (size_t)slot * l->g.state.conv_stride;
    cut_poison(conv, l->conv_n * sizeof(float));
    cut_put(conv + parity * 3 * l->ch, q->conv0, 3 * (size_t)l->ch);
    cut_put(l->s + (size_t)slot * l->g.state.s_stride, q->s0, l->s_n);
}

/* The recurrent state and the convolution state of this parity, one after the other. */
static float *slot_get(const struct layer *l, int slot, int parity)
{
    float *p = cut_host<float>(l->s_n + 3 * (size_t)l->ch);
    cut_download(p, l->s + (size_t)slot * l->g.state.s_stride, l->s_n);
    cut_download(p + l->s_n,
                 l->conv + (size_t)slot * l->g.state.conv_stride + (size_t)(parity * 3 * l->ch),
                 3 * (size_t)l->ch);
    return p;
}

/* The slot after n rows against the recurrence over all of q's rows. */
static void check_slot(const struct layer *l, const struct seq *q, int slot, int parity,
                       const char *what)
{
    float *p = slot_get(l, slot, parity);
    double worst = 0;
    for (int h = 0; h < l->v_heads; h++) {
        double err = 0, ref = 0;
        for (int i = h * D * D; i < (h + 1) * D * D; i++) {
            const double d = (double)p[i] - q->s[i];
            err += d * d;
            ref += q->s[i] * q->s[i];
        }
        const double rel = sqrt(err / ref);
        worst = rel > worst || rel != rel ? rel : worst;
    }
    cut_ok(worst <= 1e-5, "%s: state, worst head %.3g (at most 1e-5)", what, worst);
    bool same = true;
    for (int j = 0; j < 3; j++) {
        for (int c = 0; c < l->ch; c++) {
            same &= (double)p[l->s_n + (size_t)(j * l->ch + c)] == raw(l, q, q->n - 3 + j, c);
        }
    }
    cut_ok(same, "%s: convolution state", what);
    free(p);
}

/* ---- batches ---- */

struct part {
    const struct seq *q;
    int t, n, slot, parity;
};

/* Device memory of a batch. */
struct run {
    struct cu_batch b;
    struct cu_gdn g;
    int rows, spans;
    float *y, *sum; /* host: [rows][v_heads * 128]; decode's sums */
    float *proj, *record;
    int32_t *count;
    struct cu_span *span;
};

static void run_init(struct run *r, const struct layer *l, const struct part *part, int n,
                     bool decode)
{
    memset(r, 0, sizeof *r);
    struct cu_span *span = cut_host<struct cu_span>((size_t)n);
    for (int i = 0; i < n; i++) {
        span[i] = {r->rows, part[i].n, part[i].q->pos + part[i].t, part[i].slot, part[i].parity, 0};
        r->rows += part[i].n;
    }
    r->spans = n;
    const size_t rows = (size_t)r->rows, ld = (size_t)l->ld, width = (size_t)(l->v_heads * D);
    float *proj = cut_host<float>(rows * ld);
    for (int i = 0; i < n; i++) {
        memcpy(proj + (size_t)span[i].first * ld, part[i].q->proj + (size_t)part[i].t * ld,
               (size_t)part[i].n * ld * sizeof *proj);
    }
    const int32_t count[2] = {r->rows, n};
    r->proj = cut_upload(proj, rows * ld);
    r->count = cut_upload(count, 2);
    r->span = cut_upload(span, (size_t)n);
    r->b.count = r->count;
    r->b.span = r->span;
    /* bounds, not counts */
    r->b.rows = decode && r->rows < CU_ROWS ? r->rows + cut_below(CU_ROWS - r->rows + 1) : r->rows;
    r->b.spans = n < r->b.rows ? n + cut_below(2) : n;
    r->b.mode = decode ? BE_DECODE : BE_PREFILL;
    r->g = l->g;
    r->g.proj = r->proj;
    if (decode) {
        r->g.act.x = cut_new<uint16_t>(CU_ROWS * width);
        r->g.act.sum = cut_new<float>(CU_ROWS * width / 32);
    } else {
        r->g.xt = (uint16_t *)cut_alloc(cu_xt_bytes(r->rows, (int)width));
    }
    free(span);
    free(proj);
}

static void run_free(struct run *r)
{
    cut_free(r->proj);
    cut_free(r->count);
    cut_free(r->span);
    cut_free(r->g.act.x);
    cut_free(r->g.act.sum);
    cut_free(r->g.xt);
    cut_free(r->record);
    free(r->y);
    free(r->sum);
}

static void run_fetch(struct run *r, const struct layer *l)
{
    const size_t rows = (size_t)r->rows, width = (size_t)(l->v_heads * D);
    r->y = cut_host<float>(rows * width);
    if (r->g.xt) {
        const size_t n = cu_xt_bytes(r->rows, (int)width) / 2;
        uint16_t *x = cut_host<uint16_t>(n);
        cut_download(x, r->g.xt, n);
        for (size_t i = 0; i < rows * width; i++) {
            r->y[i] = cut_float(x[cu_xt_index((int)(i / width), (int)(i % width), (int)width)]);
        }
        free(x);
        return;
    }
    uint16_t *x = cut_host<uint16_t>(rows * width);
    float *sum = cut_host<float>(CU_ROWS * width / 32);
    cut_download(x, r->g.act.x, rows * width);
    cut_download(sum, r->g.act.sum, CU_ROWS * width / 32);
    r->sum = cut_host<float>(rows * width / 32);
    bool good = true;
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < width; j++) {
            r->y[i * width + j] = cut_float(x[i * width + j]);
        }
        for (size_t j = 0; j < width / 32; j++) {
            double s = 0, size = 0;
            for (size_t k = 0; k < 32; k++) {
                s += (double)r->y[i * width + j * 32 + k];
                size += fabs((double)r->y[i * width + j * 32 + k]);
            }
            r->sum[i * (width / 32) + j] = sum[j * CU_ROWS + i];
            if (!(fabs((double)sum[j * CU_ROWS + i] - s) <= 1e-6 * size)) {
                printf("# row %d, sum %d: %g, not %g\n", (int)i, (int)j,
                       (double)sum[j * CU_ROWS + i], s);
                good = false;
            }
        }
    }
    if (!good) {
        cut_ok(false, "sums of 32 activations");
    }
    free(x);
    free(sum);
}

static struct run run_decode(struct cu_ctx *c, const struct layer *l, const struct part *part,
                             int n)
{
    struct run r;
    run_init(&r, l, part, n, true);
    cut_must(cu_gdn_decode(c, &r.b, &r.g), "cu_gdn_decode");
    run_fetch(&r, l);
    return r;
}

static struct run run_prefill(struct cu_ctx *c, const struct layer *l, const struct part *part,
                              int n)
{
    struct run r;
    run_init(&r, l, part, n, false);
    cut_must(cu_gdn_prefill(c, &r.b, &r.g), "cu_gdn_prefill");
    run_fetch(&r, l);
    return r;
}

static void check_rows(const struct layer *l, const struct run *r, const struct part *part, int n,
                       const char *what)
{
    const size_t width = (size_t)(l->v_heads * D);
    double *want = cut_host<double>((size_t)r->rows * width);
    size_t row = 0;
    for (int i = 0; i < n; i++) {
        memcpy(want + row * width, part[i].q->y + (size_t)part[i].t * width,
               (size_t)part[i].n * width * sizeof *want);
        row += (size_t)part[i].n;
    }
    cut_rms(r->y, want, row * width, 1e-3, "%s, %d rows", what, (int)row);
    free(want);
}

/* ---- decode ---- */

static void t_decode(struct cu_ctx *c, int k_heads, int v_heads)
{
    static const int mixes[][SLOTS] = {
        {1},  {1, 1},       {2, 1, 3},
        {16}, {5, 3, 1, 7}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}};
    struct layer l;
    layer_init(&l, k_heads, v_heads, CU_ROWS);
    for (size_t m = 0; m < sizeof mixes / sizeof *mixes; m++) {
        struct seq q[SLOTS];
        struct part part[SLOTS];
        int n = 0;
        /* two steps: all rows of a mix, then one more of each */
        for (; mixes[m][n]; n++) {
            seq_init(&q[n], &l, mixes[m][n] + 1, cut_below(1000), 1);
            part[n] = {&q[n], 0, mixes[m][n], SLOTS - 1 - n, cut_below(2)};
            slot_set(&l, &q[n], part[n].slot, part[n].parity);
        }
        char what[64];
        snprintf(what, sizeof what, "decode %d/%d %s, mix %d", k_heads, v_heads,
                 cut_path_name(c->path), (int)m);
        struct run r = run_decode(c, &l, part, n);
        check_rows(&l, &r, part, n, what);
        run_free(&r);
        for (int i = 0; i < n; i++) {
            part[i].t = part[i].n;
            part[i].n = 1;
            part[i].parity = 1 - part[i].parity;
        }
        r = run_decode(c, &l, part, n);
        check_rows(&l, &r, part, n, what);
        run_free(&r);
        for (int i = 0; i < n; i++) {
            check_slot(&l, &q[i], part[i].slot, 1 - part[i].parity, what);
            seq_free(&q[i]);
        }
    }
    layer_free(&l);
}

/* Rows one by one, in spans of every length, with neighbours. */
static void t_decode_bits(struct cu_ctx *c)
{
    enum { N = 16 };
    struct layer l;
    layer_init(&l, 2, 6, CU_ROWS);
    struct seq q, other;
    seq_init(&q, &l, N, 7, 1);
    seq_init(&other, &l, N, 100, 3);
    const size_t width = (size_t)(l.v_heads * D), state = l.s_n + 3 * (size_t)l.ch;
    float *y = cut_host<float>(N * width), *sum = cut_host<float>(N * width / 32);
    slot_set(&l, &q, 3, 0);
    int parity = 0;
    for (int t = 0; t < N; t++) {
        const struct part part = {&q, t, 1, 3, parity};
        struct run r = run_decode(c, &l, &part, 1);
        memcpy(y + (size_t)t * width, r.y, width * sizeof *y);
        memcpy(sum + (size_t)t * width / 32, r.sum, width / 32 * sizeof *sum);
        run_free(&r);
        parity = 1 - parity;
    }
    float *want = slot_get(&l, 3, parity);
    for (int n = 2; n <= N; n = n < 4 ? n + 1 : n + 6) {
        for (int alone = 0; alone < 2; alone++) {
            slot_set(&l, &q, 5, 1);
            int p = 1;
            bool same = true;
            for (int t = 0; t < N; t += n) {
                const int m = n < N - t ? n : N - t, extra = N - m > 3 ? 3 : N - m;
                slot_set(&l, &other, 0, 0);
                struct part part[2] = {{&other, 0, extra, 0, 0}, {&q, t, m, 5, p}};
                const int skip = extra && !alone ? 0 : 1; /* a neighbour before it, or none */
                struct run r = run_decode(c, &l, part + skip, 2 - skip);
                const size_t at = skip ? 0 : (size_t)extra;
                same &= memcmp(r.y + at * width, y + (size_t)t * width,
                               (size_t)m * width * sizeof *y) == 0;
                same &= memcmp(r.sum + at * width / 32, sum + (size_t)t * width / 32,
                               (size_t)m * width / 32 * sizeof *sum) == 0;
                run_free(&r);
                p = 1 - p;
            }
            float *got = slot_get(&l, 5, p);
            cut_ok(same, "decode in spans of %d: same bits", n);
            cut_same(got, want, state, "decode in spans of %d: state", n);
            free(got);
        }
    }
    free(y);
    free(sum);
    free(want);
    seq_free(&q);
    seq_free(&other);
    layer_free(&l);
}

/* Held rows give the same outputs and change nothing; then any number is folded. */
static void t_fold(struct cu_ctx *c, int rows)
{
    struct layer l;
    layer_init(&l, 2, 6, CU_ROWS);
    struct seq q, other;
    seq_init(&q, &l, rows, 9, 1);
    seq_init(&other, &l, 2, 5, 1);
    const size_t state = l.s_n + 3 * (size_t)l.ch;
    for (int accept = 0; accept <= rows; accept++) {
        const int parity = accept % 2;
        slot_set(&l, &q, 1, parity);
        slot_set(&l, &other, 4, 0);
        const struct part part[2] = {{&q, 0, rows, 1, parity}, {&other, 0, 2, 4, 0}};
        struct run r;
        run_init(&r, &l, part, 2, true);
        r.record = r.g.record = cut_new<float>((size_t)(CU_ROWS * (l.ch + 2 * l.v_heads)));
        r.g.hold = true;
        float *before = slot_get(&l, 1, parity);
        cut_must(cu_gdn_decode(c, &r.b, &r.g), "cu_gdn_decode");
        run_fetch(&r, &l);
        float *after = slot_get(&l, 1, parity);
        bool good = memcmp(before, after, state * sizeof *before) == 0;
        cut_poison(r.proj, (size_t)(r.rows * l.ld) * sizeof(float));
        const int32_t accepted[2] = {accept, 1};
        int32_t *dev = cut_upload(accepted, 2);
        cut_must(cu_gdn_fold(c, &r.b, &r.g, dev), "cu_gdn_fold");
        float *got = slot_get(&l, 1, 1 - parity), *got2 = slot_get(&l, 4, 1);

        /* the same by plain decoding */
        slot_set(&l, &q, 1, parity);
        slot_set(&l, &other, 4, 0);
        struct part plain[2] = {{&other, 0, 1, 4, 0}, {&q, 0, accept, 1, parity}};
        struct run s = run_decode(c, &l, plain, accept > 0 ? 2 : 1);
        float *want = slot_get(&l, 1, accept > 0 ? 1 - parity : parity);
        float *want2 = slot_get(&l, 4, 1);
        const size_t width = (size_t)(l.v_heads * D);
        good &= memcmp(s.y + width, r.y, (size_t)accept * width * sizeof *r.y) == 0;
        good &= memcmp(got, want, state * sizeof *got) == 0;
        good &= memcmp(got2, want2, state * sizeof *got) == 0;
        cut_ok(good, "%d of %d held rows folded: outputs and states as decoded", accept, rows);
        if (accept == rows) {
            check_rows(&l, &r, part, 2, "held rows");
        }
        run_free(&s);
        run_free(&r);
        cut_free(dev);
        free(before);
        free(after);
        free(got);
        free(got2);
        free(want);
        free(want2);
    }
    seq_free(&q);
    seq_free(&other);
    layer_free(&l);
}

/* ---- prefill ---- */

struct shape {
    int n, pos;
};

static void t_prefill(struct cu_ctx *c, int k_heads, int v_heads, const struct shape *shape, int n,
                      float scale)
{
    struct layer l;
    int rows = 0;
    for (int i = 0; i < n; i++) {
        rows += shape[i].n;
    }
    layer_init(&l, k_heads, v_heads, rows);
    struct seq q[SLOTS];
    struct part part[SLOTS];
    for (int i = 0; i < n; i++) {
        seq_init(&q[i], &l, shape[i].n, shape[i].pos, scale);
        part[i] = {&q[i], 0, shape[i].n, (5 * i + 2) % SLOTS, i % 2};
        slot_set(&l, &q[i], part[i].slot, part[i].parity);
    }
    char what[96];
    snprintf(what, sizeof what, "prefill %d/%d %s, %d spans from %d at %d, scale %g", k_heads,
             v_heads, cut_path_name(c->path), n, shape[0].n, shape[0].pos, (double)scale);
    struct run r = run_prefill(c, &l, part, n);
    check_rows(&l, &r, part, n, what);
    for (int i = 0; i < n; i++) {
        check_slot(&l, &q[i], part[i].slot, 1 - part[i].parity, what);
        seq_free(&q[i]);
    }
    run_free(&r);
    layer_free(&l);
}

/* Cuts on the grid, ends inside a block, neighbours, both ways of driving the chip. */
static void t_prefill_bits(struct cu_ctx *c, int pos, float **first, uint64_t seed)
{
    enum { N = 140, OTHER = 30 };
    cut.rng = seed;
    struct layer l;
    layer_init(&l, 1, 2, N + OTHER);
    struct seq q, other;
    seq_init(&q, &l, N, pos, 1);
    seq_init(&other, &l, OTHER, 5, 20);
    const size_t width = (size_t)(l.v_heads * D), state = l.s_n + 3 * (size_t)l.ch;
    struct part part[2] = {{&q, 0, N, 2, 0}, {&other, 0, OTHER, 0, 1}};
    slot_set(&l, &q, 2, 0);
    struct run whole = run_prefill(c, &l, part, 1);
    float *want = slot_get(&l, 2, 1);
    const char *path = cut_path_name(c->path);
    if (*first) {
        cut_same(want, *first, state, "prefill at %d, the two paths: state", pos);
        cut_same(whole.y, *first + state, N * width, "prefill at %d, the two paths", pos);
    } else {
        *first = cut_host<float>(state + N * width);
        memcpy(*first, want, state * sizeof *want);
        memcpy(*first + state, whole.y, N * width * sizeof *want);
    }

    slot_set(&l, &q, 4, 1);
    int parity = 1;
    bool same = true;
    for (int t = 0, i = 0; t < N; i++) {
        int n = B - (pos + t) % B + (i % 2) * B;
        n = n < N - t ? n : N - t;
        struct part cut_part[2] = {{&other, 0, OTHER, 0, 0}, {&q, t, n, 4, parity}};
        slot_set(&l, &other, 0, 0);
        const int skip = i % 2;
        struct run r = run_prefill(c, &l, cut_part + skip, 2 - skip);
        same &= memcmp(r.y + (skip ? 0 : OTHER * width), whole.y + (size_t)t * width,
                       (size_t)n * width * sizeof *want) == 0;
        run_free(&r);
        t += n;
        parity = 1 - parity;
    }
    cut_ok(same, "prefill at %d %s, cut on the grid beside others: same bits", pos, path);
    float *got = slot_get(&l, 4, parity);
    cut_same(got, want, state, "prefill at %d %s, cut on the grid: state", pos, path);
    free(got);

    const int rows[] = {1, 2 + cut_below(40), 64 + cut_below(N - 64)};
    for (int i = 0; i < 3; i++) {
        part[0].n = rows[i];
        part[0].slot = 6;
        slot_set(&l, &q, 6, 0);
        slot_set(&l, &other, 0, 1);
        struct run r = run_prefill(c, &l, part, 2);
        cut_same(r.y, whole.y, (size_t)rows[i] * width, "prefill at %d %s, only %d rows", pos, path,
                 rows[i]);
        run_free(&r);
    }
    free(want);
    run_free(&whole);
    seq_free(&q);
    seq_free(&other);
    layer_free(&l);
}

/* The first path runs everything, the second what differs. */
static void t_all(enum cu_path path, bool all, float *first[2], uint64_t seed)
{
    struct cu_ctx *c = cut_ctx(path, true);
    t_decode(c, 2, 6);
    t_decode_bits(c);
    t_fold(c, 5);
    if (all) {
        t_decode(c, 2, 2);
        t_fold(c, 1);
        c->n_sm = 1000; /* a head among blocks when there are rows enough */
        t_fold(c, 6);
    }
    c = cut_ctx(path, false);
    static const int lengths[] = {1, 63, 64, 65, 130, 200};
    for (int i = all ? 0 : 5; i < 6; i++) {
        const struct shape s = {lengths[i], 0};
        t_prefill(c, 2, i % 3 ? 2 : 6, &s, 1, 1);
    }
    const struct shape off = {150, 21}, mixed[] = {{64, 64}, {1, 63}, {70, 40}, {2, 127}, {65, 7}};
    t_prefill(c, 1, 2, mixed, 5, 1);
    if (all) {
        t_prefill(c, 1, 3, &off, 1, 1);
        struct shape many[SLOTS];
        for (int i = 0; i < SLOTS; i++) {
            many[i] = {1 + cut_below(2), cut_below(99)};
        }
        t_prefill(c, 1, 1, many, SLOTS, 1);
        /* very small and very large values */
        t_prefill(c, 1, 1, &off, 1, 0.03f);
        t_prefill(c, 1, 1, &off, 1, 60);
        t_prefill_bits(c, 0, &first[0], seed);
    }
    t_prefill_bits(c, 85, &first[1], seed + 1);
}

#ifndef QUASAR_EMULATE
#include "tests/cuda/gdn_time.h"
#endif

int main(int argc, char **argv)
{
    cut_begin();
    if (argc > 1 && strcmp(argv[1], "--time") == 0) {
#ifndef QUASAR_EMULATE
        return timing();
#endif
    }
    enum cu_path path[2];
    const int n = cut_paths(path);
    float *first[2] = {NULL, NULL};
    const uint64_t seed = cut_random();
    for (int i = 0; i < n; i++) {
        t_all(path[i], i == 0, first, seed);
    }
    free(first[0]);
    free(first[1]);
    return cut_end();
}
