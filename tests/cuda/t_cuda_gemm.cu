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
    cut_must(gemm_run(c, &g, j->shape), "cu_gemm");
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
    cut_must(gemm_run(c, &g, j->shape), "cu_gemm");
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
    struct job j = {&m, xt, MOST, ldy, col, 0, NULL};
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
        for (int i = 0; i < (thorough ? 6 : 3); i++) {
            j.shape = i % 3;
            j.rows = MOST - 64 * (i / 3);
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

static void test_silu(struct cu_ctx *c, enum dtype type, int ffn, int k)
{
    struct matrix m = make(type, 2 * ffn, k, 2);
    uint16_t *x = random_tokens(MOST, k), *xt = tile_tokens(x, MOST, k);
    const size_t n = (size_t)MOST * (size_t)ffn;
    float *got = cut_host<float>(n);
    double *want = cut_host<double>(n);
    struct job j = {&m, xt, MOST, 0, 0, 0, NULL};
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

/* Several matrices over the same tokens, in as many launches as they have kinds. */
static void test_group(struct cu_ctx *c, int k)
{
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
        g.rows = MOST;
        g.y = y;
        g.ldy = (size_t)ldy;
        g.col = 4;
        c->launches = 0;
        cut_must(gemm_run(c, &g, s), "cu_gemm");
        cut_download(h, y, n);
        cut_free(y);
        bool same = c->launches == 2;
        for (int i = 0, col = 4; i < 4; col += m[i++].rows) {
            struct job j = {&m[i], xt, MOST, m[i].rows, 0, 0, NULL};
            float *one = run_y(c, &j, CU_GEMM_STORE, NULL);
            for (int t = 0; t < MOST; t++) {
                same =
                    same && memcmp(one + (size_t)t * (size_t)m[i].rows,
                                   h + (size_t)t * (size_t)ldy + col, (size_t)m[i].rows * 4) == 0;
            }
            free(one);
        }
        cut_ok(same, "%s: four matrices at once, shape %d", cut_path_name(c->path), s);
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
    const bool odd = cu_gemm(c, &g) != cudaSuccess;
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
    struct job j = {&m, xt, tokens, rows, 0, 0, NULL};
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
        for (int w = 0; w < 2; w++) {
            j.shape = s;
            j.work = w ? work : NULL;
            float *y = run_y(c, &j, CU_GEMM_STORE, NULL);
            cut_same(y, all, (size_t)tokens * (size_t)rows, "shape %d%s", s,
                     w ? ", handed on" : "");
            free(y);
        }
    }
    free(all);
    free(x);
    cut_free(xt);
    cut_free(work);
    drop(&m);
}

/* ---- --time ---- */

/* One packed tile repeated: real codes and scales at the size of the 27B's. */
static struct cu_mat time_mat(enum cu_kind kind, int rows, int k)
{
    const enum dtype type = kind == CU_W4 ? DT_Q4_G64 : kind == CU_W8 ? DT_Q8_G128 : DT_F16;
    struct matrix m = make(type, 256, k, 1);
    struct cu_mat r = m.m;
    const size_t bytes = cu_mat_bytes(kind, rows, k), unit = cu_mat_bytes(kind, 256, k);
    uint8_t *p = cut_new<uint8_t>(bytes);
    for (size_t at = 0; at < bytes; at += unit) {
        const size_t n = bytes - at < unit ? bytes - at : unit;
        cut_must(cudaMemcpy(p + at, m.m.data, n, cudaMemcpyDeviceToDevice), "cudaMemcpy");
    }
    r.data = p;
    r.rows = rows;
    r.tiles = (rows + 63) / 64;
    if (kind == CU_W16) {
        float *one = cut_normals((size_t)r.tiles * 64, 1);
        r.row_scale = cut_upload(one, (size_t)r.tiles * 64);
        free(one);
    }
    cut_free((void *)m.m.data);
    cut_free((void *)m.m.row_scale);
    free(m.w);
    return r;
}

struct clock {
    cudaEvent_t a, b;
};

static int by_size(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Median of 5 rounds of `per` calls each, in us a call. */
template <typename F> static float time_us(struct cu_ctx *c, F call, int per)
{
    struct clock k;
    float t[5];
    cut_must(cudaEventCreate(&k.a), "event");
    cut_must(cudaEventCreate(&k.b), "event");
    for (int i = -1; i < 5; i++) {
        cut_must(cudaEventRecord(k.a, (cudaStream_t)c->stream), "event");
        for (int n = 0; n < (i < 0 ? 2 : per); n++) {
            cut_must(call(n), "cu_gemm");
        }
        cut_must(cudaEventRecord(k.b, (cudaStream_t)c->stream), "event");
        cut_must(cudaEventSynchronize(k.b), "a kernel");
        if (i >= 0) {
            cut_must(cudaEventElapsedTime(&t[i], k.a, k.b), "event");
            t[i] *= 1000.0f / (float)per;
        }
    }
    cudaEventDestroy(k.a);
    cudaEventDestroy(k.b);
    qsort(t, 5, sizeof t[0], by_size);
    return t[2];
}

static const struct wide {
    const char *name;
    int rows, k;
    enum cu_gemm_out out;
} wides[] = {{"gate_up", 34816, 5120, CU_GEMM_SILU},
             {"down", 5120, 17408, CU_GEMM_ADD},
             {"qkv_z", 16384, 5120, CU_GEMM_STORE},
             {"out", 5120, 6144, CU_GEMM_ADD},
             {"qkv_attn", 14336, 5120, CU_GEMM_STORE}};
enum { WIDES = sizeof wides / sizeof wides[0], COPIES = 4, TOKENS = 2048 };

static void measure(struct cu_ctx *c, enum cu_kind kind)
{
    static const int tokens[] = {64, 128, 256, 512, 2048};
    static const char *const kinds[] = {"w4", "w8", "w16"};
    const size_t xt_bytes = cu_xt_bytes(TOKENS, 17408);
    uint16_t *xt = cut_new<uint16_t>(xt_bytes / 2), *xo = cut_new<uint16_t>(xt_bytes / 2);
    uint16_t *some = random_tokens(128, 5120);
    for (size_t at = 0; at + 128 * 5120 <= xt_bytes / 2; at += 128 * 5120) {
        cut_put(xt + at, some, 128 * 5120);
    }
    free(some);
    float *y = cut_new<float>((size_t)TOKENS * 16512);
    cut_must(cudaMemset(y, 0, (size_t)TOKENS * 16512 * 4), "cudaMemset");
    void *work = cut_alloc(cu_gemm_work(c));
    cut_must(cudaMemset(work, 0, cu_gemm_work(c)), "cudaMemset");
    struct cu_mat m[WIDES][COPIES];
    for (int i = 0; i < WIDES; i++) {
        for (int n = 0; n < COPIES; n++) {
            m[i][n] = time_mat(kind, wides[i].rows, wides[i].k);
        }
    }
    struct cu_mat ba = time_mat(CU_W16, 48, 5120);
    printf("# path kind product tokens shape: us, TFLOP/s, GB/s of weights\n");
    for (int q = 0; q < 5; q++) {
        for (int i = 0; i < WIDES; i++) {
            for (int s = -1; s < shapes(c->path); s++) {
                struct cu_gemm g;
                memset(&g, 0, sizeof g);
                g.xt = xt;
                g.rows = tokens[q];
                g.out = wides[i].out;
                g.y = y;
                g.ldy = 16512;
                g.xt_out = xo;
                g.work = work;
                const float us = time_us(
                    c,
                    [&](int n) {
                        g.w = &m[i][n % COPIES];
                        return gemm_run(c, &g, s);
                    },
                    12);
                const double flop = 2.0 * wides[i].rows * wides[i].k * tokens[q];
                printf("# %s %s %-8s %4d %2d: %8.1f us %6.1f TFLOP/s %6.0f GB/s\n",
                       cut_path_name(c->path), kinds[kind], wides[i].name, tokens[q], s, us,
                       flop / us / 1e6,
                       cu_mat_bytes(kind, wides[i].rows, wides[i].k) / (double)us / 1e3);
                fflush(stdout);
            }
        }
        /* the products and norms of four DeltaNet layers in a row, as prefill makes them */
        float *norm = cut_normals(17408, 1);
        float *dn = cut_upload(norm, 17408);
        free(norm);
        for (int pdl = 0; pdl < (c->path == CU_SM90 ? 2 : 1); pdl++) {
            c->pdl = pdl;
            const float us = time_us(
                c,
                [&](int n) {
                    struct cu_gemm g;
                    memset(&g, 0, sizeof g);
                    g.rows = tokens[q];
                    g.work = work;
                    g.y = y;
                    g.ldy = 16512;
                    g.xt = xt;
                    g.w = &m[2][n % COPIES];
                    g.more[0] = &ba;
                    g.more[1] = &ba;
                    int rc = cu_pre_norm(c, y, tokens[q], 5120, dn, 1e-6f, xo, NULL);
                    rc = rc ? rc : cu_gemm(c, &g);
                    g.more[0] = g.more[1] = NULL;
                    g.w = &m[3][n % COPIES];
                    g.out = CU_GEMM_ADD;
                    rc = rc ? rc : cu_gemm(c, &g);
                    rc = rc ? rc : cu_pre_norm(c, y, tokens[q], 5120, dn, 1e-6f, xo, NULL);
                    g.w = &m[0][n % COPIES];
                    g.out = CU_GEMM_SILU;
                    g.xt_out = xo;
                    rc = rc ? rc : cu_gemm(c, &g);
                    g.w = &m[1][n % COPIES];
                    g.out = CU_GEMM_ADD;
                    return rc ? rc : cu_gemm(c, &g);
                },
                8);
            const double flop = 2.0 * tokens[q] *
                                (34816.0 * 5120 + 5120.0 * 17408 + 16480.0 * 5120 + 5120.0 * 6144);
            printf("# %s %s layer    %4d pdl %d: %8.1f us %6.1f TFLOP/s; 64 layers: %.0f t/s\n",
                   cut_path_name(c->path), kinds[kind], tokens[q], pdl, us, flop / us / 1e6,
                   tokens[q] / (us * 64e-6));
            fflush(stdout);
            c->pdl = false;
        }
        cut_free(dn);
    }
    for (int i = 0; i < WIDES; i++) {
        for (int n = 0; n < COPIES; n++) {
            cut_free((void *)m[i][n].data);
            cut_free((void *)m[i][n].row_scale);
        }
    }
    cut_free((void *)ba.data);
    cut_free((void *)ba.row_scale);
    cut_free(xt);
    cut_free(xo);
    cut_free(y);
    cut_free(work);
}

#endif

int main(int argc, char **argv)
{
    cut_begin();
    enum cu_path paths[2];
    const int n = cut_paths(paths);
    for (int i = 0; i < n; i++) {
        struct cu_ctx *c = cut_ctx(paths[i], true);
#ifndef QUASAR_EMULATE
        if (argc > 1 && strcmp(argv[1], "--time") == 0) {
            measure(c, CU_W4);
            if (argc > 2) {
                measure(c, CU_W8);
                measure(c, CU_W16);
            }
            continue;
        }
        test_wide(c, DT_Q4_G64, 5120, 5120, 300);
        test_wide(c, DT_Q4_G64, 2176, 17408, 1100);
        test_wide(c, DT_Q8_G128, 5120, 6144, 200);
        test_wide(c, DT_BF16, 1024, 5120, 700);
#endif
        test_sums(c, DT_Q4_G64, 308, 192, 320, 8, true);
        test_sums(c, DT_Q8_G128, 256, 128, 256, 0, false);
        test_sums(c, DT_BF16, 77, 320, 83, 3, false);
        test_sums(c, DT_F32, 192, 64, 192, 0, false);
        test_silu(c, DT_Q4_G64, 192, 128);
        test_silu(c, DT_F16, 64, 192);
        test_silu(c, DT_Q8_G128, 128, 128);
        test_group(c, 128);
        test_refusals(c);
    }
    (void)argc, (void)argv;
    return cut_end();
}
