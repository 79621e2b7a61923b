/* The prefill products: every kind of weights, way out, launch shape and path against
 * double; the same bits whatever the launch shape, the number of tokens and the cut.
 * On a GPU, --time measures the 27B's shapes. */
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "base/dtype.h"
}
#include "cutest.h"
#include "kernels/cuda/gemm.cuh"

/* ---- matrices ---- */

struct matrix {
    struct cu_mat m; /* on the device */
    double *w;       /* [rows][k] as the MMA has it but for its one rounding */
    int rows, k;
};

static void fill(struct tensor *t, enum dtype type, int rows, int k, double *w, int stride, int at)
{
    const size_t n = (size_t)rows * (size_t)k;
    const int group = dtype_group(type);
    const float width = 1 / sqrtf((float)k);
    memset(t, 0, sizeof *t);
    t->dtype = type;
    t->n_dims = 2;
    t->shape[0] = (uint64_t)rows;
    t->shape[1] = (uint64_t)k;
    cut_must(dtype_sizes(type, (uint64_t)rows, (uint64_t)k, &t->size, &t->scale_size), "sizes");
    uint8_t *data = cut_host<uint8_t>(t->size);
    uint16_t *scales = cut_host<uint16_t>(t->scale_size / 2);
    for (size_t i = 0; i < t->scale_size / 2; i++) {
        scales[i] = cut_half((0.5f + fabsf(cut_uniform())) * width / (type == DT_Q4_G64 ? 4 : 64));
    }
    for (size_t i = 0; i < n; i++) {
        double v = 0;
        if (type == DT_Q4_G64) {
            const int c = cut_below(16);
            data[i / 2] = (uint8_t)(data[i / 2] | c << (i % 2 * 4));
            v = (c - 8) * (double)f16_to_f32(scales[i / (size_t)group]);
        } else if (type == DT_Q8_G128) {
            const int c = cut_below(255) - 127;
            ((int8_t *)data)[i] = (int8_t)c;
            v = c * (double)f16_to_f32(scales[i / (size_t)group]);
        } else if (type == DT_F32) {
            ((float *)data)[i] = cut_normal() * width;
            v = ((float *)data)[i];
        } else {
            const float x = cut_normal() * width;
            const uint16_t u = type == DT_F16 ? f32_to_f16(x) : f32_to_bf16(x);
            memcpy(data + 2 * i, &u, 2);
            v = type == DT_F16 ? f16_to_f32(u) : bf16_to_f32(u);
        }
        const size_t row = i / (size_t)k;
        w[(row * (size_t)stride + (size_t)at) * (size_t)k + i % (size_t)k] = v;
    }
    t->data = data;
    t->scales = scales;
}

/* Random values of a dtype; n_src 2: gate and up of rows / 2 each, w alternating. */
static struct matrix make(enum dtype type, int rows, int k, int n_src)
{
    struct matrix x;
    memset(&x, 0, sizeof x);
    x.rows = rows;
    x.k = k;
    x.w = cut_host<double>((size_t)rows * (size_t)k);
    struct tensor t[2];
    const struct tensor *src[2] = {&t[0], &t[1]};
    for (int i = 0; i < n_src; i++) {
        fill(&t[i], type, rows / n_src, k, x.w, n_src, i);
    }
    const enum cu_kind kind = cu_kind_of(type);
    const int tiles = (rows + 63) / 64;
    const size_t bytes = cu_mat_bytes(kind, rows, k), tile = bytes / (size_t)tiles;
    uint8_t *p = cut_host<uint8_t>(bytes);
    float *scale = cut_host<float>((size_t)tiles * 64);
    for (int b = 0; b < tiles * 4; b++) {
        cu_pack_block(kind, src, n_src, rows, k, b, p + (size_t)(b / 4) * tile, scale + b * 16);
    }
    x.m.data = cut_upload(p, bytes);
    x.m.row_scale = kind == CU_W16 ? cut_upload(scale, (size_t)tiles * 64) : NULL;
    x.m.kind = kind;
    x.m.rows = rows;
    x.m.tiles = tiles;
    x.m.kg = k / 64;
    x.m.name = "test";
    for (int i = 0; i < n_src; i++) {
        free((void *)t[i].data);
        free((void *)t[i].scales);
    }
    free(p);
    free(scale);
    return x;
}

static void drop(struct matrix *x)
{
    cut_free((void *)x->m.data);
    cut_free((void *)x->m.row_scale);
    free(x->w);
}

/* ---- tokens ---- */

/* fp16 values x, [rows][k]; rows past them are NaNs on the device. */
static uint16_t *tile_tokens(const uint16_t *x, int rows, int k)
{
    const size_t n = cu_xt_bytes(rows, k) / 2;
    uint16_t *t = cut_host<uint16_t>(n);
    memset(t, 0xff, n * 2);
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < k; c++) {
            t[cu_xt_index(r, c, k)] = x[(size_t)r * (size_t)k + (size_t)c];
        }
    }
    uint16_t *d = cut_upload(t, n);
    free(t);
    return d;
}

static uint16_t *random_tokens(int rows, int k)
{
    uint16_t *x = cut_host<uint16_t>((size_t)rows * (size_t)k);
    for (size_t i = 0; i < (size_t)rows * (size_t)k; i++) {
        x[i] = cut_half(cut_normal());
    }
    return x;
}

static double dot(const struct matrix *m, int row, const uint16_t *x, int token)
{
    const double *w = m->w + (size_t)row * (size_t)m->k;
    const uint16_t *v = x + (size_t)token * (size_t)m->k;
    double s = 0;
    for (int c = 0; c < m->k; c++) {
        s += w[c] * (double)f16_to_f32(v[c]);
    }
    return s;
}

/* ---- one product ---- */

struct job {
    const struct matrix *m;
    const uint16_t *xt; /* device */
    int rows, ldy, col;
    int shape; /* launch shape, -1: the launcher's choice */
    void *work;
    int log; /* of the chains; -1: the launcher's choice */
};

/* y [rows][ldy], host, from `before` (NaNs if NULL). Ends with guards checked. */
static float *run_y(struct cu_ctx *c, const struct job *j, enum cu_gemm_out out,
                    const float *before)
{
    const size_t n = (size_t)j->rows * (size_t)j->ldy;
    float *y = cut_new<float>(n), *h = cut_host<float>(n);
    if (before) {
        cut_put(y, before, n);
    }
    struct cu_gemm g;
    memset(&g, 0, sizeof g);
    g.w = &j->m->m;
    g.xt = j->xt;
    g.rows = j->rows;
    g.out = out;
    g.y = y;
    g.ldy = (size_t)j->ldy;
    g.col = j->col;
    g.work = j->work;
    cut_must(gemm_run(c, &g, j->shape, j->log), "cu_gemm");
    cut_download(h, y, n);
    cut_free(y);
    return h;
}

static uint16_t *run_silu(struct cu_ctx *c, const struct job *j)
{
    const size_t n = cu_xt_bytes(j->rows, j->m->rows / 2) / 2;
    uint16_t *o = cut_new<uint16_t>(n), *h = cut_host<uint16_t>(n);
    struct cu_gemm g;
    memset(&g, 0, sizeof g);
    g.w = &j->m->m;
    g.xt = j->xt;
    g.rows = j->rows;
    g.out = CU_GEMM_SILU;
    g.xt_out = o;
    g.work = j->work;
    cut_must(gemm_run(c, &g, j->shape, j->log), "cu_gemm");
    cut_download(h, o, n);
    cut_free(o);
    return h;
}

/* Elements outside of the matrix's columns are still the poison. */
static bool untouched(const float *y, int rows, int ldy, int col, int width)
{
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < ldy; c++) {
            uint32_t u;
            memcpy(&u, y + (size_t)r * (size_t)ldy + c, 4);
            if ((c < col || c >= col + width) && u != 0xffffffff) {
                return false;
            }
        }
    }
    return true;
}

static int shapes(enum cu_path p)
{
    return p == CU_SM90 ? 4 : 2;
}

static const int counts[] = {1, 64, 65, 130, 200};
enum { COUNTS = sizeof counts / sizeof counts[0], MOST = 200, CUT = 64 };

/* Everything about one matrix stored as sums; thorough: every count and sum. */
static void test_sums(struct cu_ctx *c, enum dtype type, int rows, int k, int ldy, int col,
                      bool thorough)
{
    struct matrix m = make(type, rows, k, 1);
    uint16_t *x = random_tokens(MOST, k), *xt = tile_tokens(x, MOST, k);
    uint16_t *tail = tile_tokens(x + (size_t)CUT * (size_t)k, MOST - CUT, k);
    char what[128];
    snprintf(what, sizeof what, "%s %s %d x %d", cut_path_name(c->path), dtype_name(type), rows, k);

    const size_t n = (size_t)MOST * (size_t)ldy;
    float *before = cut_normals(n, 1), *got = cut_host<float>((size_t)MOST * (size_t)rows);
    double *want = cut_host<double>((size_t)MOST * (size_t)rows);
    for (int t = 0; t < MOST; t++) {
        for (int r = 0; r < rows; r++) {
            want[(size_t)t * (size_t)rows + (size_t)r] = dot(&m, r, x, t);
        }
    }
    struct job j = {&m, xt, MOST, ldy, col, 0, NULL, 0};
    float *all = run_y(c, &j, CU_GEMM_STORE, NULL);
    for (int t = 0; t < MOST; t++) {
        memcpy(got + (size_t)t * (size_t)rows, all + (size_t)t * (size_t)ldy + col,
               (size_t)rows * 4);
    }
    cut_rms(got, want, (size_t)MOST * (size_t)rows, 5e-4, "%s", what);
    cut_ok(untouched(all, MOST, ldy, col, rows), "%s: nothing beside the columns", what);

    for (int s = 0; s < shapes(c->path); s++) {
        bool same = true;
        for (int i = thorough ? 0 : 1 + cut_below(2); i < COUNTS; i += thorough ? 1 : 4) {
            j.shape = s;
            j.rows = counts[i];
            float *y = run_y(c, &j, CU_GEMM_STORE, NULL);
            same = same && memcmp(y, all, (size_t)j.rows * (size_t)ldy * 4) == 0;
            free(y);
        }
        j.rows = MOST - CUT;
        j.xt = tail;
        float *y = run_y(c, &j, CU_GEMM_STORE, NULL);
        same = same &&
               memcmp(y, all + (size_t)CUT * (size_t)ldy, (size_t)j.rows * (size_t)ldy * 4) == 0;
        free(y);
        j.xt = xt;
        cut_ok(same, "%s: shape %d, 1 to %d tokens, cut at %d: same bits", what, s, MOST, CUT);
    }

    /* added to what is there: the sum of two floats, one rounding */
    j.rows = 130;
    for (int s = thorough ? 0 : shapes(c->path) - 1; s < shapes(c->path); s++) {
        j.shape = s;
        float *y = run_y(c, &j, CU_GEMM_ADD, before);
        bool same = true;
        for (int t = 0; t < j.rows; t++) {
            for (int i = 0; i < ldy; i++) {
                const size_t at = (size_t)t * (size_t)ldy + (size_t)i;
                const bool in = i >= col && i < col + rows;
                const float sum = in ? before[at] + all[at] : before[at];
                same = same && memcmp(&y[at], &sum, 4) == 0;
            }
        }
        cut_ok(same, "%s: shape %d adds", what, s);
        free(y);
    }

    /* tiles handed from block to block: more blocks than one, few multiprocessors */
    if (c->path == CU_SM90) {
        const int n_sm = c->n_sm;
        c->n_sm = 3;
        void *work = cut_alloc(cu_gemm_work(c));
        cut_must(cudaMemset(work, 0, cu_gemm_work(c)), "cudaMemset");
        j.work = work;
        bool same = true;
        for (int i = 0; i < (thorough ? 8 : 4); i++) {
            j.shape = i % 4;
            j.rows = MOST - 64 * (i / 4);
            c->n_sm = 3 - i % 2;
            float *y = run_y(c, &j, CU_GEMM_STORE, NULL);
            same = same && memcmp(y, all, (size_t)j.rows * (size_t)ldy * 4) == 0;
            free(y);
        }
        cut_ok(same, "%s: tiles handed on: same bits", what);
        uint32_t sum = 0;
        cut_download(&sum, (uint32_t *)work, 1);
        cut_ok(sum != 0 || !thorough, "%s: sums were handed on", what);
        c->n_sm = n_sm;
        cut_free(work);
    }
    free(all);
    free(before);
    free(got);
    free(want);
    free(x);
    cut_free(xt);
    cut_free(tail);
    drop(&m);
}

/* Sums in several chains: the same bits whatever the launch shape, the number of tokens, the
 * cut, the multiprocessors that share the chains; and added in order. */
static void test_chains(struct cu_ctx *c, enum dtype type, int rows, int k, int log)
{
    struct matrix m = make(type, rows, k, 1);
    uint16_t *x = random_tokens(MOST, k), *xt = tile_tokens(x, MOST, k);
    uint16_t *tail = tile_tokens(x + (size_t)CUT * (size_t)k, MOST - CUT, k);
    const int n_sm = c->n_sm;
    void *work = cut_alloc(cu_gemm_work(c));
    cut_must(cudaMemset(work, 0, cu_gemm_work(c)), "cudaMemset");
    struct job j = {&m, xt, MOST, rows, 0, 3, work, log};
    float *all = run_y(c, &j, CU_GEMM_STORE, NULL);
    double *want = cut_host<double>((size_t)MOST * (size_t)rows);
    for (int t = 0; t < MOST; t++) {
        for (int r = 0; r < rows; r++) {
            want[(size_t)t * (size_t)rows + (size_t)r] = dot(&m, r, x, t);
        }
    }
    cut_rms(all, want, (size_t)MOST * (size_t)rows, 5e-4, "%s %d x %d in %d chains",
            dtype_name(type), rows, k, 1 << log);
    j.log = 0;
    float *one = run_y(c, &j, CU_GEMM_STORE, NULL);
    cut_ok(memcmp(one, all, (size_t)MOST * (size_t)rows * 4) != 0, "not those of one chain");
    j.log = log;
    static const int few[] = {1, 2, 3, 7, 132};
    for (int s = 0; s < 4; s++) {
        bool same = true;
        j.shape = s;
        for (int i = 0; i < 5; i++) {
            c->n_sm = few[i] < n_sm ? few[i] : n_sm;
            j.rows = counts[cut_below(COUNTS)];
            j.rows = i == 0 || i == 3 ? MOST : j.rows;
            cut_must(cudaMemset(work, 0, cu_gemm_work(c)), "cudaMemset");
            for (int again = 0; again < 2; again++) {
                float *y = run_y(c, &j, CU_GEMM_STORE, NULL);
                same = same && memcmp(y, all, (size_t)j.rows * (size_t)rows * 4) == 0;
                free(y);
            }
        }
        j.rows = MOST - CUT;
        j.xt = tail;
        c->n_sm = 1 + cut_below(9);
        c->n_sm = c->n_sm < n_sm ? c->n_sm : n_sm;
        cut_must(cudaMemset(work, 0, cu_gemm_work(c)), "cudaMemset");
        float *y = run_y(c, &j, CU_GEMM_STORE, NULL);
        same = same &&
               memcmp(y, all + (size_t)CUT * (size_t)rows, (size_t)j.rows * (size_t)rows * 4) == 0;
        free(y);
        j.xt = xt;
        cut_ok(same, "%s %d x %d in %d chains: shape %d: same bits", dtype_name(type), rows, k,
               1 << log, s);
    }
    c->n_sm = n_sm;
    free(all);
    free(one);
    free(want);
    free(x);
    cut_free(xt);
    cut_free(tail);
    cut_free(work);
    drop(&m);
}

static void test_silu(struct cu_ctx *c, enum dtype type, int ffn, int k)
{
    struct matrix m = make(type, 2 * ffn, k, 2);
    uint16_t *x = random_tokens(MOST, k), *xt = tile_tokens(x, MOST, k);
    const size_t n = (size_t)MOST * (size_t)ffn;
    float *got = cut_host<float>(n);
    double *want = cut_host<double>(n);
    struct job j = {&m, xt, MOST, 0, 0, 0, NULL, 0};
    uint16_t *all = run_silu(c, &j);
    for (int t = 0; t < MOST; t++) {
        for (int o = 0; o < ffn; o++) {
            const double gate = dot(&m, 2 * o, x, t), up = dot(&m, 2 * o + 1, x, t);
            want[(size_t)t * (size_t)ffn + (size_t)o] = gate / (1 + exp(-gate)) * up;
            got[(size_t)t * (size_t)ffn + (size_t)o] = f16_to_f32(all[cu_xt_index(t, o, ffn)]);
        }
    }
    cut_rms(got, want, n, 1e-3, "%s %s silu %d x %d", cut_path_name(c->path), dtype_name(type), ffn,
            k);
    for (int s = 0; s < shapes(c->path); s++) {
        bool same = true;
        for (int i = s == 0 ? 0 : 1; i < COUNTS; i += s == 0 ? 2 : 3) {
            j.shape = s;
            j.rows = counts[i];
            uint16_t *o = run_silu(c, &j);
            for (int t = 0; t < (j.rows + 127) / 128 * 128; t++) {
                for (int r = 0; r < ffn; r++) {
                    const size_t at = cu_xt_index(t, r, ffn);
                    same = same && o[at] == (t < j.rows ? all[at] : 0xffff);
                }
            }
            free(o);
        }
        cut_ok(same, "%s %s silu shape %d: same bits, rows past the last untouched",
               cut_path_name(c->path), dtype_name(type), s);
    }
    free(all);
    free(got);
    free(want);
    free(x);
    cut_free(xt);
    drop(&m);
}

/* Several matrices over the same tokens: a launch for every kind, or, where blocks of 16
 * bits fit beside the others, one. */
static void test_group(struct cu_ctx *c, int k, int tokens)
{
    const int n_sm = c->n_sm;
    struct matrix m[4] = {make(DT_Q4_G64, 192, k, 1), make(DT_Q4_G64, 320, k, 1),
                          make(DT_BF16, 48, k, 1), make(DT_F32, 48, k, 1)};
    uint16_t *x = random_tokens(MOST, k), *xt = tile_tokens(x, MOST, k);
    const int ldy = 4 + 192 + 320 + 48 + 48;
    for (int s = -1; s < shapes(c->path); s++) {
        const size_t n = (size_t)MOST * (size_t)ldy;
        float *y = cut_new<float>(n), *h = cut_host<float>(n);
        struct cu_gemm g;
        memset(&g, 0, sizeof g);
        g.w = &m[0].m;
        for (int i = 0; i < 3; i++) {
            g.more[i] = &m[i + 1].m;
        }
        g.xt = xt;
        g.rows = tokens;
        g.y = y;
        g.ldy = (size_t)ldy;
        g.col = 4;
        c->launches = 0;
        const bool room = s > 0 && c->path == CU_SM90 && cut_below(2);
        c->n_sm = room ? 132 : 2;
        cut_must(gemm_run(c, &g, s, -1), "cu_gemm");
        cut_download(h, y, n);
        cut_free(y);
        bool same = c->launches == (room ? 1 : 2);
        c->n_sm = n_sm;
        for (int i = 0, col = 4; i < 4; col += m[i++].rows) {
            struct job j = {&m[i], xt, tokens, m[i].rows, 0, 0, NULL, 0};
            float *one = run_y(c, &j, CU_GEMM_STORE, NULL);
            for (int t = 0; t < tokens; t++) {
                same =
                    same && memcmp(one + (size_t)t * (size_t)m[i].rows,
                                   h + (size_t)t * (size_t)ldy + col, (size_t)m[i].rows * 4) == 0;
            }
            free(one);
        }
        cut_ok(same, "%s: four matrices at once, shape %d, %d tokens%s", cut_path_name(c->path), s,
               tokens, room ? ", one launch" : "");
        free(h);
    }
    free(x);
    cut_free(xt);
    for (int i = 0; i < 4; i++) {
        drop(&m[i]);
    }
}

static void test_refusals(struct cu_ctx *c)
{
    struct matrix a = make(DT_Q4_G64, 64, 128, 1), b = make(DT_Q4_G64, 64, 192, 1);
    struct cu_gemm g;
    memset(&g, 0, sizeof g);
    g.w = &a.m;
    g.rows = 1;
    g.out = CU_GEMM_SILU;
    bool odd = cu_gemm(c, &g) != cudaSuccess;
    if (c->path == CU_SM90) {
        g.out = CU_GEMM_STORE;
        odd = odd && gemm_run(c, &g, 3, 1) != cudaSuccess;
    }
    g.out = CU_GEMM_STORE;
    g.more[0] = &b.m;
    cut_ok(odd && cu_gemm(c, &g) != cudaSuccess, "%s: refuses what it cannot do",
           cut_path_name(c->path));
    drop(&a);
    drop(&b);
}

#ifndef QUASAR_EMULATE

/* The 27B's widths: sampled elements against double; bits of every shape. */
static void test_wide(struct cu_ctx *c, enum dtype type, int rows, int k, int tokens)
{
    struct matrix m = make(type, rows, k, 1);
    uint16_t *x = random_tokens(tokens, k), *xt = tile_tokens(x, tokens, k);
    void *work = cut_alloc(cu_gemm_work(c));
    cut_must(cudaMemset(work, 0, cu_gemm_work(c)), "cudaMemset");
    struct job j = {&m, xt, tokens, rows, 0, 0, work, -1};
    float *all = run_y(c, &j, CU_GEMM_STORE, NULL), got[4000];
    static double want[4000];
    for (int i = 0; i < 4000; i++) {
        const int t = cut_below(tokens), r = cut_below(rows);
        want[i] = dot(&m, r, x, t);
        got[i] = all[(size_t)t * (size_t)rows + (size_t)r];
    }
    cut_rms(got, want, 4000, 5e-4, "%s %s %d x %d, %d tokens", cut_path_name(c->path),
            dtype_name(type), rows, k, tokens);
    for (int s = 0; s < shapes(c->path); s++) {
        for (int w = 0; w < 3; w++) {
            j.shape = s;
            j.rows = w == 2 && tokens > 64 ? 64 : tokens;
            float *y = run_y(c, &j, CU_GEMM_STORE, NULL);
            cut_same(y, all, (size_t)j.rows * (size_t)rows, "shape %d, %d tokens", s, j.rows);
            free(y);
        }
    }
    free(all);
    free(x);
    cut_free(xt);
    cut_free(work);
    drop(&m);
}

#include "gemm_time.h"

#endif

int main(int argc, char **argv)
{
    cut_begin();
    enum cu_path paths[2];
    const int n = cut_paths(paths);
#ifndef QUASAR_EMULATE
    if (argc > 1 && strcmp(argv[1], "--time") == 0) {
        return time_run(argc - 2, argv + 2);
    }
#endif
    for (int i = 0; i < n; i++) {
        struct cu_ctx *c = cut_ctx(paths[i], true);
#ifndef QUASAR_EMULATE
        if (!cut_small()) {
            test_wide(c, DT_Q4_G64, 5120, 5120, 300);
            test_wide(c, DT_Q4_G64, 2176, 17408, 1100);
            test_wide(c, DT_Q8_G128, 5120, 6144, 200);
            test_wide(c, DT_Q4_G64, 5120, 6144, 2048);
            test_wide(c, DT_Q4_G64, 5120, 17408, 2048);
            test_wide(c, DT_BF16, 1024, 5120, 700);
        }
#endif
        test_sums(c, DT_Q4_G64, 308, 192, 320, 8, true);
        test_sums(c, DT_Q8_G128, 256, 128, 256, 0, false);
        test_sums(c, DT_BF16, 77, 320, 83, 3, false);
        test_sums(c, DT_F32, 192, 64, 192, 0, false);
        if (paths[i] == CU_SM90) {
            test_chains(c, DT_Q4_G64, 300, 256, 2);
            test_chains(c, DT_Q4_G64, 136, 512, 2);
            test_chains(c, DT_Q8_G128, 136, 256, 1);
            test_chains(c, DT_BF16, 72, 384, 1);
        }
        test_silu(c, DT_Q4_G64, 192, 128);
        test_silu(c, DT_F16, 64, 192);
        test_silu(c, DT_Q8_G128, 128, 128);
        test_group(c, 128, MOST);
        test_group(c, 192, 64);
        test_refusals(c);
    }
    (void)argc, (void)argv;
    return cut_end();
}
