/* Embedding rows, norms into tiled activations and the MTP layer's input, of every
 * dtype of table, against double; rows alone and together. */
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include "base/dtype.h"
}
#include "cutest.h"

enum { VOCAB = 40, ROWS = 150 };

/* A table on the device, its values and the tensor that names it. */
struct embed {
    struct tensor t;
    float *v; /* [VOCAB][hidden] */
};

static struct embed make(enum dtype type, int hidden)
{
    struct embed e;
    memset(&e, 0, sizeof e);
    const size_t n = (size_t)VOCAB * (size_t)hidden;
    size_t size = 0, scale_size = 0;
    cut_must(dtype_sizes(type, VOCAB, (uint64_t)hidden, &size, &scale_size), "sizes");
    uint8_t *data = cut_host<uint8_t>(size);
    uint16_t *scales = cut_host<uint16_t>(scale_size / 2);
    e.v = cut_host<float>(n);
    for (size_t i = 0; i < scale_size / 2; i++) {
        scales[i] = cut_half(0.01f + 0.01f * fabsf(cut_uniform()));
    }
    for (size_t i = 0; i < n; i++) {
        const float x = cut_normal();
        if (type == DT_F32) {
            memcpy(data + 4 * i, &x, 4);
            e.v[i] = x;
        } else if (type == DT_F16 || type == DT_BF16) {
            const uint16_t u = type == DT_F16 ? f32_to_f16(x) : f32_to_bf16(x);
            memcpy(data + 2 * i, &u, 2);
            e.v[i] = type == DT_F16 ? f16_to_f32(u) : bf16_to_f32(u);
        } else if (type == DT_Q8_G128) {
            const int c = cut_below(255) - 127;
            data[i] = (uint8_t)c;
            e.v[i] = (float)c * f16_to_f32(scales[i / 128]);
        } else {
            const int c = cut_below(16);
            data[i / 2] = (uint8_t)(data[i / 2] | c << (i % 2 * 4));
            e.v[i] = (float)(c - 8) * f16_to_f32(scales[i / 64]);
        }
    }
    e.t.dtype = type;
    e.t.data = cut_upload(data, size);
    e.t.scales = scale_size > 0 ? cut_upload(scales, scale_size / 2) : NULL;
    free(data);
    free(scales);
    return e;
}

static void drop(struct embed *e)
{
    cut_free((void *)e->t.data);
    cut_free((void *)e->t.scales);
    free(e->v);
}

static void norm(const float *x, const float *w, int n, double eps, double *out)
{
    double s = 0;
    for (int i = 0; i < n; i++) {
        s += (double)x[i] * x[i];
    }
    s = 1 / sqrt(s / n + eps);
    for (int i = 0; i < n; i++) {
        out[i] = x[i] * s * w[i];
    }
}

static struct cu_batch batch(const int32_t *count, const int32_t *token, int rows)
{
    struct cu_batch b;
    memset(&b, 0, sizeof b);
    b.count = count;
    b.token = token;
    b.rows = rows;
    b.mode = BE_PREFILL;
    return b;
}

/* Values of an xt's rows; whether all other rows are still the poison. */
static bool untile(const uint16_t *xt, int rows, int k, float *out)
{
    bool clean = true;
    for (int r = 0; r < (rows + 127) / 128 * 128; r++) {
        for (int c = 0; c < k; c++) {
            const uint16_t u = xt[cu_xt_index(r, c, k)];
            if (r < rows) {
                out[(size_t)r * (size_t)k + (size_t)c] = f16_to_f32(u);
            } else {
                clean = clean && u == 0xffff;
            }
        }
    }
    return clean;
}

static void test_norm(struct cu_ctx *c, int hidden, bool with_h)
{
    const size_t n = (size_t)ROWS * (size_t)hidden, nx = cu_xt_bytes(ROWS, hidden) / 2;
    float *x = cut_normals(n, 3), *w = cut_normals((size_t)hidden, 0.3f);
    memset(x, 0, (size_t)hidden * 4); /* a row of zeros */
    for (int i = 0; i < hidden; i++) {
        w[i] += 1;
    }
    x[hidden + 5] = 3e8f; /* and one that no half holds */
    w[5] = 3e5f;
    double *want = cut_host<double>(n);
    for (int r = 0; r < ROWS; r++) {
        norm(x + (size_t)r * (size_t)hidden, w, hidden, 1e-6, want + (size_t)r * (size_t)hidden);
    }
    float *dx = cut_upload(x, n), *dw = cut_upload(w, (size_t)hidden);
    float *dh = with_h ? cut_new<float>(n) : NULL, *h = cut_host<float>(n);
    uint16_t *dt = cut_new<uint16_t>(nx), *t = cut_host<uint16_t>(nx);
    cut_must(cu_pre_norm(c, dx, ROWS, hidden, dw, 1e-6f, dt, dh), "cu_pre_norm");
    cut_download(t, dt, nx);
    float *got = cut_host<float>(n);
    bool good = untile(t, ROWS, hidden, got);
    if (with_h) {
        cut_download(h, dh, n);
        cut_rms(h + 2 * hidden, want + 2 * hidden, n - 2 * (size_t)hidden, 3e-7, "%s norm of %d",
                cut_path_name(c->path), hidden);
        for (size_t i = 2 * (size_t)hidden; i < n; i++) {
            const float v = fminf(fmaxf(h[i], -65504), 65504);
            good = good &&
                   t[cu_xt_index((int)(i / (size_t)hidden), (int)(i % (size_t)hidden), hidden)] ==
                       cut_half(v);
        }
    }
    for (size_t i = 0; i < n; i++) {
        const double v = want[i] > 65504 ? 65504 : want[i] < -65504 ? -65504 : want[i];
        good = good && fabs(got[i] - v) <= 6e-4 * fabs(v) + 6e-8;
    }
    cut_ok(good, "%s norm of %d as fp16, saturated, other rows untouched", cut_path_name(c->path),
           hidden);
    cut_poison(dt, nx * 2);
    cut_must(cu_pre_norm(c, dx + 64 * hidden, 3, hidden, dw, 1e-6f, dt, NULL), "cu_pre_norm");
    uint16_t *few = cut_host<uint16_t>(nx);
    cut_download(few, dt, nx);
    bool same = true;
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < hidden; i++) {
            same = same && few[cu_xt_index(r, i, hidden)] == t[cu_xt_index(64 + r, i, hidden)];
        }
    }
    cut_ok(same, "%s norm of %d: cut at 64: same bits", cut_path_name(c->path), hidden);
    free(x), free(w), free(want), free(h), free(t), free(got), free(few);
    cut_free(dx), cut_free(dw), cut_free(dh), cut_free(dt);
}

static void test_table(struct cu_ctx *c, enum dtype type, int hidden)
{
    struct embed e = make(type, hidden);
    const int rows = 131;
    int32_t token[ROWS], count[2] = {rows, 1};
    for (int i = 0; i < ROWS; i++) {
        token[i] = cut_below(VOCAB);
    }
    int32_t *dtok = cut_upload(token, ROWS), *dcount = cut_upload(count, 2);
    const struct cu_batch b = batch(dcount, dtok, ROWS);
    const size_t n = (size_t)ROWS * (size_t)hidden;
    float *dx = cut_new<float>(n), *x = cut_host<float>(n);
    cut_must(cu_pre_embed(c, &b, &e.t, hidden, dx), "cu_pre_embed");
    cut_download(x, dx, n);
    bool same = true;
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < hidden; i++) {
            const float v = x[(size_t)r * (size_t)hidden + (size_t)i];
            same = same &&
                   (r < rows ? v == e.v[(size_t)token[r] * (size_t)hidden + (size_t)i] : v != v);
        }
    }
    cut_ok(same, "%s embed %s %d: exact, rows past the count untouched", cut_path_name(c->path),
           dtype_name(type), hidden);

    /* MTP: the hidden states lie about */
    float *pool = cut_normals(n, 2), *dpool = cut_upload(pool, n);
    float *we = cut_normals((size_t)hidden, 1), *wh = cut_normals((size_t)hidden, 1);
    float *dwe = cut_upload(we, (size_t)hidden), *dwh = cut_upload(wh, (size_t)hidden);
    const float *src[ROWS];
    int from[ROWS];
    for (int i = 0; i < ROWS; i++) {
        from[i] = cut_below(ROWS);
        src[i] = dpool + (size_t)from[i] * (size_t)hidden;
    }
    const float **dsrc = cut_upload(src, ROWS);
    const size_t nx = cu_xt_bytes(ROWS, 2 * hidden) / 2;
    uint16_t *dt = cut_new<uint16_t>(nx), *t = cut_host<uint16_t>(nx);
    cut_must(cu_pre_mtp_input(c, &b, &e.t, hidden, dsrc, dwe, dwh, 1e-6f, dt), "cu_pre_mtp_input");
    cut_download(t, dt, nx);
    float *got = cut_host<float>(2 * n);
    double *want = cut_host<double>(2 * n);
    const bool clean = untile(t, rows, 2 * hidden, got);
    for (int r = 0; r < rows; r++) {
        double *o = want + (size_t)r * 2 * (size_t)hidden;
        norm(e.v + (size_t)token[r] * (size_t)hidden, we, hidden, 1e-6, o);
        norm(pool + (size_t)from[r] * (size_t)hidden, wh, hidden, 1e-6, o + hidden);
    }
    cut_rms(got, want, (size_t)rows * 2 * (size_t)hidden, 3e-4, "%s MTP input %s %d",
            cut_path_name(c->path), dtype_name(type), hidden);
    cut_ok(clean, "%s MTP input: rows past the count untouched", cut_path_name(c->path));
    drop(&e);
    free(x), free(pool), free(we), free(wh), free(t), free(got), free(want);
    cut_free(dtok), cut_free(dcount), cut_free(dx), cut_free(dpool), cut_free(dwe), cut_free(dwh);
    cut_free(dsrc), cut_free(dt);
}

int main(void)
{
    cut_begin();
    enum cu_path paths[2];
    const int n = cut_paths(paths);
    for (int i = 0; i < n; i++) {
        struct cu_ctx *c = cut_ctx(paths[i], true);
        test_norm(c, 384, true);
        test_norm(c, 64, false);
        test_norm(c, 2112, true);
        test_table(c, DT_F32, 128);
        test_table(c, DT_F16, 192);
        test_table(c, DT_BF16, 384);
        test_table(c, DT_Q8_G128, 256);
        test_table(c, DT_Q4_G64, 384);
#ifndef QUASAR_EMULATE
        if (!cut_small()) {
            test_norm(c, 5120, true);
            test_table(c, DT_Q4_G64, 5120);
        }
#endif
    }
    return cut_end();
}
