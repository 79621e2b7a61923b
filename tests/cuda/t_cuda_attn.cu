/* Gated attention on CUDA against double precision: head groups, scattered pages,
 * fp16 and fp8 caches, spans of 1 to 16 rows and prefill; and bit equality of rows in
 * any company, on any pages and however a prompt is cut; keys and values planted at known
 * depths come back. --time on a GPU: speeds (attn_time.h); --needles: depths of 131,072
 * and 262,144 in every format. */
#include "cutest.h"

#include "kernels/cuda/attn_units.cuh"
#include "kernels/cuda/kvlayout.h"
#include "kernels/kvq.h"

enum {
    D = BE_HEAD_DIM,
    PAGES = 56,
    DEEP_PAGES = 1032,
    MAX_SEQ = 16,
    PAD = 128 /* bytes behind a page */
};

/* Heads, format and device memory of one layer. */
struct layer {
    int q_heads, kv_heads;
    enum be_kv kv;
    enum cu_path path;
    size_t ld, pages, page_bytes; /* page_bytes: with the pad */
    int col_q, col_k, col_v;
    float q_norm[D], k_norm[D];
    float *d_q_norm, *d_k_norm;
    uint8_t *image, *cache; /* what the cache holds before a run; device */
    void *work;
    int max_ctx;
};

/* One sequence: inputs of positions base .. base + n - 1; older ones are in the cache. */
struct seq {
    int base, n;
    float *proj, *rot;
    int32_t pages[DEEP_PAGES];
};

static double f8[256]; /* values of the codes */

static void make_f8(void)
{
    uint8_t codes[D];
    float values[D];
    for (int i = 0; i < 256; i++) {
        codes[i] = (uint8_t)i;
    }
    kvq_read(KVQ_F8, codes, values);
    for (int i = 0; i < 256; i++) {
        f8[i] = values[i];
    }
}

/* Where a head's part of a page begins. */
static size_t head_at(const struct layer *l, int page, int which, int head)
{
    const size_t keys = kvq_row_bytes(kvq_of(l->kv, 0)), values = kvq_row_bytes(kvq_of(l->kv, 1));
    const size_t rows =
        which ? (size_t)l->kv_heads * keys + (size_t)head * values : (size_t)head * keys;
    return (size_t)page * l->page_bytes + BE_PAGE * rows;
}

static size_t place(const struct layer *l, int page, int which, int head, int row, int d)
{
    return head_at(l, page, which, head) + cu_kv_offset(l->kv, row, d);
}

/* A row as it is stored, in the order of kvq.h; and as numbers. */
static void stored_bytes(const struct layer *l, const uint8_t *cache, const struct seq *s, int pos,
                         int which, int head, uint8_t *row)
{
    cu_kv_get(l->kv, which, cache + head_at(l, s->pages[pos / BE_PAGE], which, head), pos % BE_PAGE,
              row);
}

static void stored(const struct layer *l, const uint8_t *cache, const struct seq *s, int pos,
                   int which, int head, float *out)
{
    uint8_t row[D * sizeof(float)];
    stored_bytes(l, cache, s, pos, which, head, row);
    kvq_read(kvq_of(l->kv, which), row, out);
}

static void layer_init(struct layer *l, int q_heads, int kv_heads, enum be_kv kv, enum cu_path path,
                       int max_ctx)
{
    l->q_heads = q_heads;
    l->kv_heads = kv_heads;
    l->pages = max_ctx > PAGES * BE_PAGE ? max_ctx / BE_PAGE + 7 : PAGES;
    l->kv = kv;
    l->path = path;
    l->col_k = 4;
    l->col_q = l->col_k + kv_heads * D;
    l->col_v = l->col_q + q_heads * 2 * D + 8;
    l->ld = (size_t)(l->col_v + kv_heads * D + 4);
    l->page_bytes = BE_PAGE * be_kv_bytes(kv, kv_heads) + PAD;
    for (int i = 0; i < D; i++) {
        l->q_norm[i] = 1 + 0.5f * cut_normal();
        l->k_norm[i] = 1 + 0.5f * cut_normal();
    }
    l->d_q_norm = cut_upload(l->q_norm, D);
    l->d_k_norm = cut_upload(l->k_norm, D);
    l->image = cut_host<uint8_t>(l->pages * l->page_bytes);
    /* NaNs where nothing was written; infinite steps, whose bytes are multiples of 4. */
    memset(l->image, kv == BE_KV_K8V4 ? 0xfc : 0xff, l->pages * l->page_bytes);
    l->cache = cut_new<uint8_t>(l->pages * l->page_bytes);
    l->max_ctx = max_ctx;
    const size_t work = cu_attn_work(q_heads, kv_heads, max_ctx, 2048);
    l->work = cut_alloc(work);
    cut_must(cudaMemset(l->work, 0, work), "cudaMemset");
}

static void layer_free(struct layer *l)
{
    cut_free(l->d_q_norm);
    cut_free(l->d_k_norm);
    cut_free(l->cache);
    cut_free(l->work);
    free(l->image);
}

/* Pages for n sequences of up to `most` pages, all different, in random order. */
static void shuffle_pages(const struct layer *l, struct seq *s, int n, int most)
{
    int32_t p[DEEP_PAGES];
    for (int i = 0; i < (int)l->pages; i++) {
        const int j = cut_below(i + 1);
        p[i] = p[j];
        p[j] = i;
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < most; j++) {
            s[i].pages[j] = p[i * most + j];
        }
    }
}

/* Inputs of n positions from base, and a cache of random rows before them. */
static void seq_init(const struct layer *l, struct seq *s, int base, int n)
{
    s->base = base;
    s->n = n;
    s->proj = cut_normals((size_t)n * l->ld, 1.5f);
    s->rot = cut_host<float>((size_t)n * BE_ROT_DIM);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < BE_ROT_DIM / 2; j++) {
            const double angle = (base + i) * pow(1e7, -j / 32.0);
            s->rot[i * BE_ROT_DIM + j] = (float)cos(angle);
            s->rot[i * BE_ROT_DIM + 32 + j] = (float)sin(angle);
        }
    }
}

static void seq_fill(const struct layer *l, const struct seq *s, uint8_t *image)
{
    for (int pos = 0; pos < s->base; pos++) {
        for (int h = 0; h < 2 * l->kv_heads; h++) {
            const int which = h / l->kv_heads;
            float x[D];
            uint8_t row[D * sizeof(float)];
            for (int d = 0; d < D; d++) {
                x[d] = (float)(cut_random() >> 40) * 0x1p-22f - 2;
            }
            kvq_store(kvq_of(l->kv, which), x, row);
            cu_kv_put(l->kv, which,
                      image + head_at(l, s->pages[pos / BE_PAGE], which, h % l->kv_heads),
                      pos % BE_PAGE, row);
        }
    }
}

static void seq_free(struct seq *s)
{
    free(s->proj);
    free(s->rot);
}

/* ---- running ---- */

struct want {
    const struct seq *s;
    int pos, n;
};

/* Output of one call, by rows. */
struct result {
    uint16_t *x; /* [rows][q_heads * 256] */
    float *sum;  /* decode: [q_heads * 8][16] */
    uint8_t *cache;
};

static void result_free(struct result *r)
{
    free(r->x);
    free(r->sum);
    free(r->cache);
}

/* What tests ask for, when per_sm is not 0. */
static struct attn_tune forced;

/* How a step is divided, which must change no bit; mostly as it is by itself. */
static struct attn_tune any_tune(enum cu_path path)
{
    if (forced.per_sm) {
        return forced;
    }
    static const int tiles[] = {0, 0, 1, 3, 6, 12};
    struct attn_tune t = {};
    if (cut_below(3) == 0) {
        t.per_sm = path == CU_SM90 ? 1 + cut_below(2) : 1; /* two want room */
        t.slots = cut_below(2) ? 2 + cut_below(4) : 0;
        t.grid = cut_below(2) ? 1 + cut_below(40) : 0;
        t.tiles = tiles[cut_below(6)];
        t.flight = cut_below(2) ? 1 + cut_below(400) : 0;
    }
    return t;
}

/* The spans as one batch; the cache afterwards with `keep`. The device's cache goes on
 * from the call before unless `image` is given. */
static struct result run(const struct layer *l, const struct want *w, int spans, enum be_mode mode,
                         const uint8_t *image, bool keep, bool kv_only)
{
    struct result r = {};
    int rows = 0, tables = 0;
    struct cu_span span[MAX_SEQ];
    int32_t *pages = cut_host<int32_t>(MAX_SEQ * DEEP_PAGES);
    for (int i = 0; i < spans; i++) {
        span[i] = {rows, w[i].n, w[i].pos, i, 0, tables};
        const int n = (w[i].pos + w[i].n - 1) / BE_PAGE + 1;
        memcpy(pages + tables, w[i].s->pages, (size_t)n * sizeof *pages);
        tables += n;
        rows += w[i].n;
    }
    float *proj = cut_host<float>((size_t)rows * l->ld), *rot = cut_host<float>((size_t)rows * 64);
    int32_t *pos = cut_host<int32_t>(rows), *of = cut_host<int32_t>(rows);
    for (int i = 0; i < spans; i++) {
        for (int j = 0; j < w[i].n; j++) {
            const int row = span[i].first + j;
            const size_t at = (size_t)(w[i].pos + j - w[i].s->base);
            memcpy(proj + (size_t)row * l->ld, w[i].s->proj + at * l->ld, l->ld * sizeof(float));
            memcpy(rot + row * 64, w[i].s->rot + at * 64, 64 * sizeof(float));
            pos[row] = w[i].pos + j;
            of[row] = i;
        }
    }
    const int32_t count[2] = {rows, spans};
    const bool decode = mode == BE_DECODE;
    const size_t width = (size_t)l->q_heads * D;
    const size_t xs = decode ? CU_ROWS * width : cu_xt_bytes(rows, (int)width) / 2;
    const size_t sums = decode ? width / 32 * CU_ROWS : 1;
    struct cu_batch b = {};
    b.count = cut_upload(count, 2);
    b.pos = cut_upload(pos, (size_t)rows);
    b.span_of = cut_upload(of, (size_t)rows);
    b.span = cut_upload(span, (size_t)spans);
    b.page = cut_upload(pages, (size_t)tables);
    b.rot = cut_upload(rot, (size_t)rows * 64);
    b.mode = mode;
    /* The grid is made for more. */
    b.rows = decode ? rows + cut_below(CU_ROWS - rows + 1) : rows + cut_below(100);
    b.spans = decode ? spans + cut_below(b.rows - spans + 1) : spans;
    struct cu_attn a = {};
    a.q_heads = l->q_heads;
    a.kv_heads = l->kv_heads;
    a.eps = 1e-6f;
    a.proj = cut_upload(proj, (size_t)rows * l->ld);
    a.ld = l->ld;
    a.col_q = l->col_q;
    a.col_k = l->col_k;
    a.col_v = l->col_v;
    a.q_norm = l->d_q_norm;
    a.k_norm = l->d_k_norm;
    a.kv = l->kv;
    a.cache = l->cache;
    a.page_stride = l->page_bytes;
    a.kv_only = kv_only;
    a.act.x = cut_new<uint16_t>(xs);
    a.act.sum = cut_new<float>(sums);
    a.xt = a.act.x;
    a.work = l->work;
    a.max_ctx = l->max_ctx - cut_below(l->max_ctx / 4 < 200 ? l->max_ctx / 4 : 200);
    for (int i = 0; i < rows; i++) {
        a.max_ctx = a.max_ctx > pos[i] ? a.max_ctx : pos[i] + 1;
    }
    if (image) {
        cut_put(l->cache, image, l->pages * l->page_bytes);
    }
    if (decode && !kv_only) { /* a partial result that was not stored is seen */
        const struct attn_layout w = attn_layout_of(l->kv_heads, a.max_ctx, b.rows);
        cut_poison((uint8_t *)l->work + w.part, w.size - w.part);
    }
    struct cu_ctx *c = cut_ctx(l->path, decode);
    static int order;
    cut_order(order++);
    const struct attn_tune tune = any_tune(l->path);
    cut_must(decode ? attn_decode_tuned(c, &b, &a, &tune) : (cudaError_t)cu_attn_prefill(c, &b, &a),
             "attention");
    uint16_t *x = cut_host<uint16_t>(xs);
    r.x = cut_host<uint16_t>((size_t)rows * width);
    r.sum = cut_host<float>(sums);
    cut_download(x, a.act.x, xs);
    cut_download(r.sum, a.act.sum, sums);
    for (int i = 0; i < rows && !kv_only; i++) {
        for (size_t d = 0; d < width; d++) {
            r.x[(size_t)i * width + d] =
                x[decode ? (size_t)i * width + d : cu_xt_index(i, (int)d, (int)width)];
        }
    }
    if (keep) {
        r.cache = cut_host<uint8_t>(l->pages * l->page_bytes);
        cut_download(r.cache, l->cache, l->pages * l->page_bytes);
    }
    cut_free((void *)b.count);
    cut_free((void *)b.pos);
    cut_free((void *)b.span_of);
    cut_free((void *)b.span);
    cut_free((void *)b.page);
    cut_free(b.rot);
    cut_free((void *)a.proj);
    cut_free(a.act.x);
    cut_free(a.act.sum);
    free(x);
    free(proj);
    free(rot);
    free(pos);
    free(of);
    free(pages);
    return r;
}

/* ---- the reference ---- */

static void turned(const float *x, const float *w, const float *rot, double *out)
{
    double sum = 0;
    for (int i = 0; i < D; i++) {
        sum += (double)x[i] * x[i];
    }
    for (int i = 0; i < D; i++) {
        out[i] = x[i] / sqrt(sum / D + 1e-6) * w[i];
    }
    for (int i = 0; i < 32; i++) {
        const double a = out[i], b = out[i + 32];
        out[i] = a * rot[i] - b * rot[i + 32];
        out[i + 32] = b * rot[i] + a * rot[i + 32];
    }
}

/* One row and head over the keys and values in the cache. */
static void reference(const struct layer *l, const uint8_t *cache, const struct seq *s, int pos,
                      int head, double *out)
{
    const int kv = head / (l->q_heads / l->kv_heads);
    const float *in = s->proj + (size_t)(pos - s->base) * l->ld + l->col_q + head * 2 * D;
    double q[D], *p = cut_host<double>((size_t)pos + 1), top = -INFINITY, sum = 0;
    turned(in, l->q_norm, s->rot + (pos - s->base) * 64, q);
    float row[D];
    for (int t = 0; t <= pos; t++) {
        stored(l, cache, s, t, 0, kv, row);
        for (int d = 0; d < D; d++) {
            p[t] += q[d] * row[d] / 16;
        }
        top = p[t] > top ? p[t] : top;
    }
    for (int d = 0; d < D; d++) {
        out[d] = 0;
    }
    for (int t = 0; t <= pos; t++) {
        const double e = exp(p[t] - top);
        sum += e;
        stored(l, cache, s, t, 1, kv, row);
        for (int d = 0; d < D; d++) {
            out[d] += e * row[d];
        }
    }
    for (int d = 0; d < D; d++) {
        out[d] = out[d] / sum / (1 + exp(-(double)in[D + d]));
    }
    free(p);
}

/* How many elements of a row are not what they should be: x as fp16 or fp8; packed, the
 * row that the host makes of x, but for what a last bit of x decides. */
static int far_off(const struct layer *l, int which, const double *x, const uint8_t *bytes)
{
    const enum kvq_kind k = kvq_of(l->kv, which);
    float got[D], want[D], row[D];
    int far = 0;
    kvq_read(k, bytes, got);
    if (kvq_packed(k)) {
        uint8_t host[D * sizeof(float)];
        double off = 0, all = 0;
        for (int d = 0; d < D; d++) {
            row[d] = (float)x[d];
        }
        kvq_store(k, row, host);
        kvq_read(k, host, want);
        for (int d = 0; d < D; d++) {
            off += (double)(got[d] - want[d]) * (got[d] - want[d]);
            all += (double)want[d] * want[d];
        }
        /* Values come as they are: the same codes. */
        return which ? memcmp(bytes, host, kvq_row_bytes(k)) != 0 : !(off <= 4e-4 * all);
    }
    for (int d = 0; d < D; d++) {
        const double step =
            k == KVQ_F8 ? fmax(fabs(x[d]) / 16, 0x1p-10) : fmax(fabs(x[d]) / 2048, 0x1p-25);
        far += !(fabs(got[d] - x[d]) <= step * 1.001 + 2e-6);
    }
    return far;
}

/* The appended rows are what they should be, all else is as it was. */
static void check_cache(const struct layer *l, const struct want *w, int spans,
                        const uint8_t *before, const uint8_t *after, const char *what)
{
    uint8_t *rest = cut_host<uint8_t>(l->pages * l->page_bytes);
    memcpy(rest, after, l->pages * l->page_bytes);
    int far = 0;
    for (int i = 0; i < spans; i++) {
        const struct seq *s = w[i].s;
        for (int pos = w[i].pos; pos < w[i].pos + w[i].n; pos++) {
            for (int h = 0; h < 2 * l->kv_heads; h++) {
                const int which = h / l->kv_heads, head = h % l->kv_heads;
                const float *in = s->proj + (size_t)(pos - s->base) * l->ld +
                                  (which ? l->col_v : l->col_k) + head * D;
                double x[D];
                uint8_t row[D * sizeof(float)];
                turned(in, l->k_norm, s->rot + (pos - s->base) * 64, x);
                for (int d = 0; d < D && which; d++) {
                    x[d] = in[d];
                }
                stored_bytes(l, after, s, pos, which, head, row);
                far += far_off(l, which, x, row);
                stored_bytes(l, before, s, pos, which, head, row);
                cu_kv_put(l->kv, which, rest + head_at(l, s->pages[pos / BE_PAGE], which, head),
                          pos % BE_PAGE, row);
            }
        }
    }
    cut_ok(far == 0, "%s: appended rows (%d elements too far off)", what, far);
    cut_same(rest, before, l->pages * l->page_bytes, "%s: the rest of the cache", what);
    free(rest);
}

static void check_sums(const struct layer *l, const struct result *r, int rows, const char *what)
{
    int far = 0;
    for (int row = 0; row < rows; row++) {
        for (int i = 0; i < l->q_heads * D / 32; i++) {
            double sum = 0, most = 0;
            for (int j = 0; j < 32; j++) {
                const double v = cut_float(r->x[(size_t)(row * l->q_heads * D + 32 * i + j)]);
                sum += v;
                most += fabs(v);
            }
            far += !(fabs(r->sum[i * CU_ROWS + row] - sum) <= most * 1e-6 + 1e-12);
        }
    }
    cut_ok(far == 0, "%s: sums of every 32 (%d too far off)", what, far);
}

/* `every`: only some of the rows and heads, in long runs. */
static void check_result(const struct layer *l, const struct want *w, int spans,
                         const struct result *r, int every, const char *what)
{
    size_t n = 0;
    int row = 0, turn = 0;
    float *got = cut_host<float>((size_t)2048 * D);
    double *want = cut_host<double>((size_t)2048 * D);
    for (int i = 0; i < spans; i++) {
        for (int j = 0; j < w[i].n; j++, row++) {
            for (int h = 0; h < l->q_heads; h++) {
                const bool edge = j == w[i].n - 1 && h == l->q_heads - 1;
                if ((turn++ % every && !edge) || n + D > (size_t)2048 * D) {
                    continue;
                }
                reference(l, r->cache, w[i].s, w[i].pos + j, h, want + n);
                for (int d = 0; d < D; d++) {
                    got[n + (size_t)d] = cut_float(r->x[((size_t)row * l->q_heads + h) * D + d]);
                }
                n += D;
            }
        }
    }
    cut_rms(got, want, n, 1.5e-3, "%s", what);
    free(got);
    free(want);
}

static const char *name_of(const struct layer *l)
{
    static char s[64];
    snprintf(s, sizeof s, "%s, %d/%d heads, %s", cut_path_name(l->path), l->q_heads, l->kv_heads,
             be_kv_name(l->kv));
    return s;
}

/* ---- tests ---- */

/* Rings of two and three slots, where units have several splits: warps that have less to
 * do with a slot than others must not go on without them. */
static void few_slots(enum be_kv kv, enum cu_path path)
{
    enum { BASE = 4400, ROWS = 3 };
    struct layer l;
    struct seq s;
    layer_init(&l, 6, 1, kv, path, PAGES * BE_PAGE);
    shuffle_pages(&l, &s, 1, PAGES);
    seq_init(&l, &s, BASE, ROWS);
    seq_fill(&l, &s, l.image);
    const struct want w = {&s, BASE, ROWS};
    struct result first = {};
    bool same = true;
    for (int i = 0; i < 6; i++) {
        forced = {1, 2 + i / 3, 7, 1, 0};
        struct result r = run(&l, &w, 1, BE_DECODE, l.image, i == 0, false);
        if (i == 0) {
            char what[128];
            snprintf(what, sizeof what, "%s, two slots", name_of(&l));
            check_result(&l, &w, 1, &r, 5, what);
            first = r;
            continue;
        }
        same &= memcmp(r.x, first.x, (size_t)ROWS * 6 * D * sizeof *r.x) == 0;
        result_free(&r);
    }
    forced = {};
    cut_ok(same, "%s, two and three slots: same bits", name_of(&l));
    result_free(&first);
    seq_free(&s);
    layer_free(&l);
}

/* Spans of many lengths and depths in one step; alone and together; other pages. */
static void decode(int q_heads, int kv_heads, enum be_kv kv, enum cu_path path)
{
    struct layer l;
    char what[128];
    layer_init(&l, q_heads, kv_heads, kv, path, 700);
    enum { N = 5 };
    struct seq s[N];
    const int base[N] = {0, 100, 251, 120, 593};
    const int rows[N] = {1, 5, 6, 3, 1};
    shuffle_pages(&l, s, N, 4);
    for (int i = 0; i < N; i++) {
        seq_init(&l, &s[i], base[i], 16);
        seq_fill(&l, &s[i], l.image);
    }
    struct want w[N];
    for (int i = 0; i < N; i++) {
        w[i] = {&s[i], base[i], rows[i]};
    }
    snprintf(what, sizeof what, "%s, 5 spans", name_of(&l));
    struct result r = run(&l, w, N, BE_DECODE, l.image, true, false);
    check_cache(&l, w, N, l.image, r.cache, what);
    check_sums(&l, &r, 16, what);
    check_result(&l, w, N, &r, q_heads > 8 ? 5 : 2, what);

    /* Each row by itself, in order. */
    const size_t width = (size_t)q_heads * D;
    uint16_t *x = cut_host<uint16_t>(16 * width);
    float *sum = cut_host<float>(width / 32 * CU_ROWS);
    const uint8_t *image = l.image;
    for (int i = 0, row = 0; i < N; i++) {
        for (int j = 0; j < rows[i]; j++, row++) {
            const struct want one = {&s[i], base[i] + j, 1};
            struct result q = run(&l, &one, 1, BE_DECODE, image, false, false);
            image = NULL;
            memcpy(x + (size_t)row * width, q.x, width * sizeof *x);
            for (size_t k = 0; k < width / 32; k++) {
                sum[k * CU_ROWS + (size_t)row] = q.sum[k * CU_ROWS];
            }
            result_free(&q);
        }
    }
    cut_same(x, r.x, 16 * width, "%s: alone", what);
    cut_same(sum, r.sum, width / 32 * CU_ROWS, "%s: alone, sums", what);

    /* Other pages, spans in another order. */
    struct seq moved[N];
    memcpy(moved, s, sizeof s);
    shuffle_pages(&l, moved, N, 4);
    uint8_t *other = cut_host<uint8_t>(l.pages * l.page_bytes);
    memset(other, 0xff, l.pages * l.page_bytes);
    for (int i = 0; i < N; i++) {
        for (int p = 0; p < 4; p++) {
            memcpy(other + (size_t)moved[i].pages[p] * l.page_bytes,
                   l.image + (size_t)s[i].pages[p] * l.page_bytes, l.page_bytes);
        }
        w[N - 1 - i] = {&moved[i], base[i], rows[i]};
    }
    struct result q = run(&l, w, N, BE_DECODE, other, false, false);
    bool same = true;
    for (int i = 0, row = 0, to = 16; i < N; i++, row += rows[i - 1]) {
        to -= rows[i];
        same &= memcmp(q.x + (size_t)to * width, r.x + (size_t)row * width,
                       (size_t)rows[i] * width * sizeof *q.x) == 0;
    }
    cut_ok(same, "%s: other pages and places: same bits", what);
    result_free(&q);
    result_free(&r);

    /* 16 rows over the edge of a page against every cut of them. */
    const struct want all = {&s[2], base[2], 16};
    r = run(&l, &all, 1, BE_DECODE, l.image, true, false);
    snprintf(what, sizeof what, "%s, 16 rows", name_of(&l));
    check_cache(&l, &all, 1, l.image, r.cache, what);
    check_result(&l, &all, 1, &r, q_heads > 8 ? 11 : 3, what);
    const int cut[] = {1, 2, 7, 4, 2};
    image = l.image;
    for (int i = 0, row = 0; i < 5; row += cut[i++]) {
        const struct want part = {&s[2], base[2] + row, cut[i]};
        q = run(&l, &part, 1, BE_DECODE, image, false, false);
        image = NULL;
        memcpy(x + (size_t)row * width, q.x, (size_t)cut[i] * width * sizeof *x);
        result_free(&q);
    }
    cut_same(x, r.x, 16 * width, "%s: cut", what);

    /* Only keys and values. */
    q = run(&l, &all, 1, BE_DECODE, l.image, true, true);
    cut_same(q.cache, r.cache, l.pages * l.page_bytes, "%s: append alone", what);
    result_free(&q);
    result_free(&r);
    free(other);
    free(x);
    free(sum);
    for (int i = 0; i < N; i++) {
        seq_free(&s[i]);
    }
    layer_free(&l);
}

/* Deep enough for units of several splits and groups of units; by every kernel, with the
 * last group's end first and last. */
static void deep(enum be_kv kv, enum cu_path path, int base)
{
    struct layer l;
    struct seq s;
    char what[128];
    layer_init(&l, 6, 1, kv, path, base < PAGES * BE_PAGE - 16 ? PAGES * BE_PAGE : base + 16);
    shuffle_pages(&l, &s, 1, (int)l.pages);
    seq_init(&l, &s, base, 6);
    seq_fill(&l, &s, l.image);
    const struct want w = {&s, base, 6};
    struct result r = run(&l, &w, 1, BE_DECODE, l.image, true, false);
    snprintf(what, sizeof what, "%s, depth %d", name_of(&l), base);
    check_cache(&l, &w, 1, l.image, r.cache, what);
    check_result(&l, &w, 1, &r, 17, what);
    const uint8_t *image = l.image;
    bool same = true;
    for (int i = 0; i < 6; i += 5) {
        const struct want part = {&s, base + i, i ? 1 : 5};
        struct result q = run(&l, &part, 1, BE_DECODE, image, false, false);
        image = NULL;
        same &= memcmp(q.x, r.x + i * 6 * D, (size_t)(i ? 1 : 5) * 6 * D * sizeof *q.x) == 0;
        result_free(&q);
    }
    cut_ok(same, "%s: cut: same bits", what);
    static const int tiles[] = {1, 3, 6, 12};
    for (int i = 0; i < 8; i += cut_small() ? 3 : 1) {
        forced = {1, i % 3 ? 0 : 2, i / 4 ? 1 : 0, tiles[i % 4], 0};
        const struct want one = {&s, base + 3, 3};
        struct result q = run(&l, &one, 1, BE_DECODE, NULL, false, false);
        cut_same(q.x, r.x + (size_t)3 * 6 * D, (size_t)3 * 6 * D, "%s, %d tiles, %s", what,
                 tiles[i % 4], i / 4 ? "one block" : "all blocks");
        result_free(&q);
    }
    forced = {};
    result_free(&r);
    seq_free(&s);
    layer_free(&l);
}

/* A prompt in one call, cut on the grid, beside another, from an odd start. */
static void prefill(int q_heads, int kv_heads, enum be_kv kv, enum cu_path path, int n)
{
    struct layer l;
    struct seq s[2];
    char what[128];
    layer_init(&l, q_heads, kv_heads, kv, path, 2048);
    shuffle_pages(&l, s, 2, PAGES / 2);
    seq_init(&l, &s[0], 64, n);
    seq_init(&l, &s[1], 37, 91);
    for (int i = 0; i < 2; i++) {
        seq_fill(&l, &s[i], l.image);
    }
    const size_t width = (size_t)q_heads * D;
    const struct want w[2] = {{&s[0], 64, n}, {&s[1], 37, 91}};
    struct result r = run(&l, w, 2, BE_PREFILL, l.image, true, false);
    snprintf(what, sizeof what, "%s, prefill of %d + 91", name_of(&l), n);
    check_cache(&l, w, 2, l.image, r.cache, what);
    check_result(&l, w, 2, &r, n * q_heads / 60 + 1, what);

    uint16_t *x = cut_host<uint16_t>((size_t)(n + 91) * width);
    struct result q = run(&l, &w[1], 1, BE_PREFILL, l.image, false, false);
    memcpy(x + (size_t)n * width, q.x, 91 * width * sizeof *x);
    result_free(&q);
    int row = 0;
    while (row < n) {
        int part = (1 + cut_below(3)) * 64;
        part = part < n - row ? part : n - row;
        const struct want one = {&s[0], 64 + row, part};
        q = run(&l, &one, 1, BE_PREFILL, NULL, false, false);
        memcpy(x + (size_t)row * width, q.x, (size_t)part * width * sizeof *x);
        result_free(&q);
        row += part;
    }
    cut_same(x, r.x, (size_t)(n + 91) * width, "%s: cut on the grid", what);

    q = run(&l, w, 2, BE_PREFILL, l.image, true, true);
    cut_same(q.cache, r.cache, l.pages * l.page_bytes, "%s: append alone", what);
    result_free(&q);
    result_free(&r);
    free(x);
    seq_free(&s[0]);
    seq_free(&s[1]);
    layer_free(&l);
}

/* A cache of random rows that is quickly made: the same four pages again and again. */
static void seq_repeat(const struct layer *l, struct seq *s, uint8_t *image)
{
    const int base = s->base, pages = (base + BE_PAGE - 1) / BE_PAGE;
    s->base = base < 4 * BE_PAGE ? base : 4 * BE_PAGE;
    seq_fill(l, s, image);
    s->base = base;
    for (int i = 4; i < pages; i++) {
        memcpy(image + (size_t)s->pages[i] * l->page_bytes,
               image + (size_t)s->pages[i % 4] * l->page_bytes, l->page_bytes);
    }
}

static double cosine_with(const struct layer *l, const struct seq *s, const uint16_t *x, int row,
                          int head, const float *value)
{
    const float *gate = s->proj + (size_t)row * l->ld + l->col_q + head * 2 * D + D;
    double ab = 0, aa = 0, bb = 0;
    for (int d = 0; d < D; d++) {
        const double got = cut_float(x[((size_t)row * l->q_heads + head) * D + d]);
        const double want = value[d] / (1 + exp(-(double)gate[d]));
        ab += got * want;
        aa += got * got;
        bb += want * want;
    }
    return ab / sqrt(aa * bb);
}

/* Keys planted in the directions of the rows' queries, each at a depth of its own, bring back
 * the values beside them, when the rows are decoded and as the end of a prompt. */
static void needles(enum be_kv kv, enum cu_path path, int base)
{
    enum { HEADS = 6, ROWS = 3, N = HEADS * ROWS };
    const int depth[N] = {0,   1,   63,  64,  65,       127,      128, 255,      256,
                          257, 511, 512, 513, base / 3, base / 2, 600, base - 2, base - 1};
    struct layer l;
    struct seq s;
    layer_init(&l, HEADS, 1, kv, path, base + 64);
    shuffle_pages(&l, &s, 1, (int)l.pages);
    seq_init(&l, &s, base, ROWS);
    seq_repeat(&l, &s, l.image);
    float *value = cut_normals(N * D, 1);
    for (int i = 0; i < N; i++) {
        double q[D];
        float key[D];
        uint8_t row[D * sizeof(float)];
        const int32_t number = s.pages[depth[i] / BE_PAGE];
        turned(s.proj + (size_t)(i / HEADS) * l.ld + l.col_q + i % HEADS * 2 * D, l.q_norm,
               s.rot + (size_t)(i / HEADS) * BE_ROT_DIM, q);
        for (int d = 0; d < D; d++) {
            key[d] = (float)q[d] * 1.5f;
        }
        kvq_store(kvq_of(kv, 0), key, row);
        cu_kv_put(kv, 0, l.image + head_at(&l, number, 0, 0), depth[i] % BE_PAGE, row);
        kvq_store(kvq_of(kv, 1), value + i * D, row);
        cu_kv_put(kv, 1, l.image + head_at(&l, number, 1, 0), depth[i] % BE_PAGE, row);
    }
    const double error = kv == BE_KV_F16    ? 1e-3
                         : kv == BE_KV_F8   ? 2e-3
                         : kv == BE_KV_K8V4 ? 0.02
                                            : 0.05;
    const struct want w = {&s, base, ROWS};
    for (int mode = 0; mode < 2; mode++) {
        struct result r = run(&l, &w, 1, mode ? BE_PREFILL : BE_DECODE, l.image, false, false);
        double least = 1;
        int where = 0;
        for (int i = 0; i < N; i++) {
            const double c = cosine_with(&l, &s, r.x, i / HEADS, i % HEADS, value + i * D);
            where = c < least ? depth[i] : where;
            least = c < least ? c : least;
        }
        cut_ok(least > 1 - error,
               "%s, %d tokens, %s: %d needles (the least like itself at %d: %.4f)", name_of(&l),
               base, mode ? "prefill" : "decode", N, where, least);
        result_free(&r);
    }
    free(value);
    seq_free(&s);
    layer_free(&l);
}

/* Every split is in one unit, and units follow each other. */
static void units(void)
{
    bool fine = unit_first(0) == 0;
    for (int i = 0; i < 20000; i++) {
        const int u = unit_of(i);
        fine &= unit_first(u) <= i && i < unit_first(u + 1) && unit_of(unit_first(u)) == u;
    }
    cut_ok(fine, "units of splits");
}

static void refusals(void)
{
    struct cu_ctx *c = cut_ctx(CU_SM80, false);
    struct cu_batch b = {};
    struct cu_attn a = {};
    b.rows = b.spans = 1;
    a.q_heads = 6;
    a.kv_heads = 1;
    a.max_ctx = 256;
    a.kv = BE_KV_F32;
    cut_ok(cu_attn_decode(c, &b, &a) == cudaErrorNotSupported &&
               cu_attn_prefill(c, &b, &a) == cudaErrorNotSupported,
           "an fp32 cache is refused");
    a.kv = BE_KV_F16;
    a.q_heads = 9;
    cut_ok(cu_attn_decode(c, &b, &a) == cudaErrorInvalidValue, "more than 8 heads per key head");
}

static void deep_needles(enum cu_path path)
{
    static const enum be_kv kv[] = {BE_KV_F16, BE_KV_F8, BE_KV_K8V4, BE_KV_K5V3, BE_KV_K3V3};
    for (int i = 0; i < 10; i++) {
        needles(kv[i % 5], path, i < 5 ? 131072 : 262144);
    }
}

#include "attn_probe.h"
#ifndef QUASAR_EMULATE
#include "attn_time.h"
#endif

int main(int argc, char **argv)
{
    cut_begin();
    make_f8();
    if (argc > 1 && strcmp(argv[1], "--probe") == 0) {
        return probe_all(argc - 2, argv + 2);
    }
#ifndef QUASAR_EMULATE
    if (argc > 1 && strcmp(argv[1], "--time") == 0) {
        return time_all(argc - 2, argv + 2);
    }
    const bool big = !cut_small();
#else
    const bool big = getenv("QUASAR_LONG") != NULL;
#endif
    enum cu_path path[2] = {CU_SM80, CU_SM80};
    const int paths = cut_paths(path);
    if (argc > 1 && strcmp(argv[1], "--needles") == 0) {
        deep_needles(path[paths - 1]);
        return cut_end();
    }
    for (int i = 0; i < paths; i++) {
        for (int j = 0; j < 2; j++) {
            const enum be_kv kv = j ? BE_KV_F8 : BE_KV_F16;
            decode(6, 1, kv, path[i]);
            needles(kv, path[i], 704);
            if (big || (i + j) % 2) {
                decode(8, 2, kv, path[i]);
            }
            prefill(6, 1, kv, path[i], 200);
            if (big) {
                decode(24, 4, kv, path[i]);
                decode(7, 7, kv, path[i]);
                deep(kv, path[i], 8190);
                deep(kv, path[i], 14050);
                deep(kv, path[i], 17003);
                deep(kv, path[i], 67700);
                prefill(8, 2, kv, path[i], 64);
                prefill(24, 4, kv, path[i], 700);
            }
        }
    }
    for (int i = 0; i < 3 * paths; i++) {
        static const enum be_kv packed[] = {BE_KV_K3V3, BE_KV_K5V3, BE_KV_K8V4};
        const enum be_kv kv = packed[i % 3];
        needles(kv, path[i / 3], 704);
        if (big || (i % 3 + i / 3) % 2 == 0) {
            decode(6, 1, kv, path[i / 3]);
        }
        if (big || i % 3 == 0 || (i % 3 + i / 3) % 2) {
            prefill(6, 1, kv, path[i / 3], 200);
        }
        if (i == 4) { /* sm90 */
            decode(8, 2, kv, path[i / 3]);
            few_slots(kv, path[i / 3]);
        }
        if (big) {
            decode(24, 4, kv, path[i / 3]);
            deep(kv, path[i / 3], 8190);
            deep(kv, path[i / 3], 17003);
            deep(kv, path[i / 3], 67700);
            prefill(24, 4, kv, path[i / 3], 700);
        }
    }
#ifndef QUASAR_EMULATE
    if (big) {
        deep_needles(path[paths - 1]);
    }
#endif
    deep(BE_KV_F16, path[0], 8190);
    for (int i = 0; i < paths; i++) {
        few_slots(BE_KV_F8, path[i]);
    }
    units();
    refusals();
    return cut_end();
}
