/* Embedding, final norm, inputs of the head and the MTP layer, argmax, rotary
 * angles: against double, and nothing past the rows that there are. */
#include "mm_help.h"

enum { VOCAB = 37 };
static const float eps = 1e-6f;

template <typename T> static std::vector<T> down(const T *dev, size_t n)
{
    std::vector<T> v(n);
    cut_download(v.data(), dev, n);
    return v;
}

static bool is_poison(const void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (((const uint8_t *)p)[i] != 0xff) {
            return false;
        }
    }
    return true;
}

/* A table on the device as the container lays it out. */
struct table {
    struct tensor t;
    std::vector<double> v; /* [VOCAB][hidden] */
};

static struct table table_make(enum dtype type, int hidden)
{
    struct table e;
    e.v.resize((size_t)VOCAB * (size_t)hidden);
    e.t = random_tensor(type, VOCAB, hidden, e.v.data());
    void *data = (void *)e.t.data, *scales = (void *)e.t.scales;
    e.t.data = cut_upload((uint8_t *)data, e.t.size);
    e.t.scales = scales ? cut_upload((uint8_t *)scales, e.t.scale_size) : NULL;
    free(data);
    free(scales);
    return e;
}

static void table_free(struct table *e)
{
    cut_free((void *)e->t.data);
    cut_free((void *)e->t.scales);
}

static std::vector<float> weights(int n)
{
    std::vector<float> w;
    for (int i = 0; i < n; i++) {
        w.push_back(1 + 0.4f * cut_uniform());
    }
    return w;
}

/* fp16 rows and their sums of 32: near want, the sums of what was rounded, and poison
 * in the rows from count on. */
static void check_act(const struct cu_act *a, const std::vector<double> &want, int k, int count,
                      const char *what)
{
    const std::vector<uint16_t> x = down(a->x, (size_t)CU_ROWS * (size_t)k);
    const std::vector<float> sum = down(a->sum, (size_t)CU_ROWS * (size_t)(k / 32));
    std::vector<float> got;
    bool sums = true, rest = true;
    for (int r = 0; r < CU_ROWS; r++) {
        for (int i = 0; i < k && r < count; i++) {
            got.push_back(cut_float(x[(size_t)(r * k + i)]));
        }
        for (int i = 0; i < k / 32; i++) {
            const float s = sum[(size_t)(i * CU_ROWS + r)];
            if (r >= count) {
                rest = rest && is_poison(&s, 4);
            } else {
                sums = sums && fabsf(s - sum32(&x[(size_t)(r * k + 32 * i)])) <= 1e-4f;
            }
        }
    }
    rest = rest && is_poison(&x[(size_t)(count * k)], (size_t)((CU_ROWS - count) * k) * 2);
    cut_rms(got.data(), want.data(), got.size(), 5e-4, "%s: fp16", what);
    cut_ok(sums, "%s: sums", what);
    cut_ok(rest, "%s: rows past the count", what);
}

static struct cu_act act_new(int k)
{
    struct cu_act a = {cut_new<uint16_t>((size_t)CU_ROWS * (size_t)k),
                       cut_new<float>((size_t)CU_ROWS * (size_t)(k / 32))};
    return a;
}

static void act_free(struct cu_act *a)
{
    cut_free(a->x);
    cut_free(a->sum);
}

struct rows {
    struct cu_batch b;
    std::vector<int32_t> token;
};

static struct rows rows_make(int count, int most)
{
    struct rows r = {};
    const int32_t counts[2] = {count, 1};
    for (int i = 0; i < most; i++) {
        r.token.push_back(i < count ? cut_below(VOCAB) : 1 << 30); /* never to be read */
    }
    r.b.count = cut_upload(counts, 2);
    r.b.token = cut_upload(r.token.data(), r.token.size());
    r.b.rows = most;
    return r;
}

static void rows_free(struct rows *r)
{
    cut_free((void *)r->b.count);
    cut_free((void *)r->b.token);
}

static float near_power(double x)
{
    int e = 0;
    const double m = frexp(x, &e);
    return (float)ldexp(1, m >= 0.75 ? e : e - 1);
}

static double rstd_of(const double *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) {
        s += x[i] * x[i];
    }
    return 1 / sqrt(s / n + eps);
}

static void test_embed(struct cu_ctx *c, enum dtype type, int hidden, int count, int most)
{
    char what[160];
    snprintf(what, sizeof what, "embedding, %s, %d wide, %d of %d rows", dtype_name(type), hidden,
             count, most);
    struct table e = table_make(type, hidden);
    struct rows r = rows_make(count, most);
    const std::vector<float> w = weights(hidden);
    float *dw = cut_upload(w.data(), w.size()), *h = cut_new<float>((size_t)(CU_ROWS * hidden));
    struct cu_resid s = {cut_new<float>((size_t)(CU_ROWS * hidden)),
                         cut_new<float>((size_t)(CU_ROWS * hidden / 64)), cut_new<float>(CU_ROWS),
                         act_new(hidden)};
    cut_must(cu_embed(c, &r.b, &e.t, hidden, dw, eps, &s), "cu_embed");
    cut_must(cu_final_norm(c, &r.b, &s, hidden, dw, eps, h, NULL, NULL), "cu_final_norm");
    const std::vector<float> x = down(s.x, (size_t)(CU_ROWS * hidden));
    const std::vector<float> ss = down(s.ss, (size_t)(CU_ROWS * hidden / 64));
    const std::vector<float> power = down(s.power, CU_ROWS);
    const std::vector<float> norm = down(h, (size_t)(CU_ROWS * hidden));
    std::vector<double> act, want_h;
    bool same = true, squares = true, powers = true;
    for (int i = 0; i < count; i++) {
        const double *v = &e.v[(size_t)r.token[(size_t)i] * (size_t)hidden];
        const double rstd = rstd_of(v, hidden);
        powers = powers && power[(size_t)i] == near_power(rstd);
        for (int j = 0; j < hidden; j++) {
            same = same && x[(size_t)(i * hidden + j)] == (float)v[j];
            act.push_back(v[j] * w[(size_t)j] * near_power(rstd));
            want_h.push_back(v[j] * w[(size_t)j] * rstd);
        }
        for (int g = 0; g < hidden / 64; g++) {
            double sum = 0;
            for (int j = 0; j < 64; j++) {
                sum += v[g * 64 + j] * v[g * 64 + j];
            }
            squares = squares && fabs(ss[(size_t)(g * CU_ROWS + i)] - sum) <= 1e-6 * sum;
        }
    }
    cut_ok(same, "%s: the table's values", what);
    cut_ok(squares, "%s: sums of squares", what);
    cut_ok(powers, "%s: powers", what);
    cut_ok(is_poison(&x[(size_t)(count * hidden)], (size_t)((CU_ROWS - count) * hidden) * 4) &&
               is_poison(&norm[(size_t)(count * hidden)], (size_t)((CU_ROWS - count) * hidden) * 4),
           "%s: rows past the count are not written", what);
    check_act(&s.act, act, hidden, count, what);
    cut_rms(norm.data(), want_h.data(), want_h.size(), 1e-6, "%s: final norm", what);

    /* the MTP layer's input from rows of h in any order */
    std::vector<const float *> src;
    std::vector<double> want;
    for (int i = 0; i < most; i++) {
        src.push_back(i < count ? h + (size_t)((i * 5 + 3) % count * hidden) : NULL);
    }
    const float **dsrc = cut_upload(src.data(), src.size());
    const std::vector<float> hw = weights(hidden);
    float *dhw = cut_upload(hw.data(), hw.size());
    struct cu_act in = act_new(2 * hidden);
    cut_must(cu_mtp_input(c, &r.b, &e.t, hidden, dsrc, dw, dhw, eps, &in), "cu_mtp_input");
    for (int i = 0; i < count; i++) {
        const double *v = &e.v[(size_t)r.token[(size_t)i] * (size_t)hidden];
        std::vector<double> from(norm.begin() + (i * 5 + 3) % count * hidden,
                                 norm.begin() + ((i * 5 + 3) % count + 1) * hidden);
        const double re = rstd_of(v, hidden), rh = rstd_of(from.data(), hidden);
        for (int j = 0; j < hidden; j++) {
            want.push_back(v[j] * re * w[(size_t)j]);
        }
        for (int j = 0; j < hidden; j++) {
            want.push_back(from[(size_t)j] * rh * hw[(size_t)j]);
        }
    }
    snprintf(what, sizeof what, "MTP input, %s, %d wide, %d of %d rows", dtype_name(type), hidden,
             count, most);
    check_act(&in, want, 2 * hidden, count, what);

    /* the head's input */
    std::vector<int32_t> rows;
    want.clear();
    for (int i = 0; i < most; i++) {
        rows.push_back(i < count ? cut_below(count) : 1 << 30);
    }
    int32_t *drows = cut_upload(rows.data(), rows.size());
    struct cu_act head = act_new(hidden);
    cut_must(cu_gather(c, h, drows, r.b.count, most, hidden, &head), "cu_gather");
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < hidden; j++) {
            want.push_back(norm[(size_t)(rows[(size_t)i] * hidden + j)]);
        }
    }
    snprintf(what, sizeof what, "head input, %d wide, %d of %d rows", hidden, count, most);
    check_act(&head, want, hidden, count, what);

    void *all[] = {dw, h, s.x, s.ss, s.power, dsrc, dhw, drows};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cut_free(all[i]);
    }
    act_free(&s.act);
    act_free(&in);
    act_free(&head);
    rows_free(&r);
    table_free(&e);
}

/* A row's bits do not depend on the others. */
static void test_embed_rows(struct cu_ctx *c, int hidden)
{
    struct table e = table_make(DT_Q8_G128, hidden);
    const std::vector<float> w = weights(hidden);
    float *dw = cut_upload(w.data(), w.size());
    struct rows all = rows_make(CU_ROWS, CU_ROWS);
    bool same = true;
    std::vector<uint16_t> first;
    std::vector<float> first_ss;
    for (int i = -1; i < CU_ROWS; i++) {
        struct cu_resid s = {cut_new<float>((size_t)(CU_ROWS * hidden)),
                             cut_new<float>((size_t)(CU_ROWS * hidden / 64)),
                             cut_new<float>(CU_ROWS), act_new(hidden)};
        struct rows one = rows_make(1, 1);
        if (i >= 0) {
            cut_put((int32_t *)one.b.token, &all.token[(size_t)i], 1);
        }
        cut_must(cu_embed(c, i < 0 ? &all.b : &one.b, &e.t, hidden, dw, eps, &s), "cu_embed");
        const std::vector<uint16_t> x = down(s.act.x, (size_t)(CU_ROWS * hidden));
        const std::vector<float> ss = down(s.ss, (size_t)(CU_ROWS * hidden / 64));
        if (i < 0) {
            first = x;
            first_ss = ss;
        } else {
            same = same && memcmp(&x[0], &first[(size_t)(i * hidden)], (size_t)hidden * 2) == 0;
            for (int g = 0; g < hidden / 64; g++) {
                same = same && ss[(size_t)(g * CU_ROWS)] == first_ss[(size_t)(g * CU_ROWS + i)];
            }
        }
        cut_free(s.x);
        cut_free(s.ss);
        cut_free(s.power);
        act_free(&s.act);
        rows_free(&one);
    }
    cut_ok(same, "embedding, %d wide: a row alone and among 16", hidden);
    rows_free(&all);
    cut_free(dw);
    table_free(&e);
}

static void test_argmax(struct cu_ctx *c, int vocab, int used, int count, int most, int ties)
{
    const size_t ld = (size_t)vocab + 3;
    std::vector<float> logits(ld * (size_t)most, NAN);
    std::vector<int32_t> want;
    std::vector<float> want_margin;
    for (int r = 0; r < count; r++) {
        float *p = &logits[(size_t)r * ld];
        for (int i = 0; i < vocab; i++) {
            p[i] = cut_normal();
        }
        for (int i = 0; i < ties; i++) {
            p[cut_below(used)] = 9;
        }
        if (used < vocab) {
            p[used] = 100; /* not to be found */
        }
        if (ties < 0) {
            for (int i = 0; i < used; i++) {
                p[i] = -INFINITY;
            }
        }
        int best = 0;
        float second = -INFINITY;
        for (int i = 1; i < used; i++) {
            best = p[i] > p[best] ? i : best;
        }
        for (int i = 0; i < used; i++) {
            second = i != best && p[i] > second ? p[i] : second;
        }
        want.push_back(best);
        want_margin.push_back(p[best] - second);
    }
    const int32_t n = count;
    float *d = cut_upload(logits.data(), logits.size()), *margin = cut_new<float>((size_t)most);
    int32_t *dn = cut_upload(&n, 1), *ids = cut_new<int32_t>((size_t)most);
    void *work = cut_alloc(cu_argmax_work(vocab));
    cut_must(cudaMemset(work, 0, cu_argmax_work(vocab)), "cudaMemset");
    cut_must(cu_argmax(c, d, ld, used, dn, most, work, ids, margin), "cu_argmax");
    const std::vector<int32_t> got = down(ids, (size_t)most);
    const std::vector<float> got_margin = down(margin, (size_t)most);
    bool good = true;
    for (int r = 0; r < count; r++) {
        good = good && got[(size_t)r] == want[(size_t)r] &&
               (ties < 0 || got_margin[(size_t)r] == want_margin[(size_t)r]);
    }
    cut_ok(good && is_poison(&got[(size_t)count], (size_t)(most - count) * 4),
           "argmax of %d (%d used), %d of %d rows, %d ties", vocab, used, count, most, ties);
    void *all[] = {d, margin, dn, ids, work};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cut_free(all[i]);
    }
}

static void test_rot(struct cu_ctx *c, int count, int most)
{
    uint8_t axis[32];
    double inv[32];
    std::vector<int32_t> rope;
    for (int i = 0; i < 32; i++) {
        axis[i] = (uint8_t)(i % 3 == 1 ? 1 : i % 3 == 2 && i < 30 ? 2 : 0);
        inv[i] = pow(1e7, -2.0 * i / 64);
    }
    for (int i = 0; i < 3 * most; i++) {
        rope.push_back(cut_below(262144));
    }
    const int32_t n[2] = {count, 1};
    struct cu_batch b = {};
    b.count = cut_upload(n, 2);
    b.rope = cut_upload(rope.data(), rope.size());
    b.rot = cut_new<float>((size_t)most * 64);
    b.rows = most;
    uint8_t *da = cut_upload(axis, 32);
    double *di = cut_upload(inv, 32);
    cut_must(cu_rot(c, &b, da, di), "cu_rot");
    const std::vector<float> got = down(b.rot, (size_t)most * 64);
    double worst = 0;
    for (int r = 0; r < count; r++) {
        for (int i = 0; i < 32; i++) {
            const double a = rope[(size_t)(3 * r + axis[i])] * inv[i];
            worst = fmax(worst, fabs(got[(size_t)(r * 64 + i)] - cos(a)));
            worst = fmax(worst, fabs(got[(size_t)(r * 64 + 32 + i)] - sin(a)));
        }
    }
    cut_ok(worst <= 1e-7 && is_poison(&got[(size_t)count * 64], (size_t)(most - count) * 256),
           "rotary angles of %d of %d rows: error %.2g", count, most, worst);
    cut_free((void *)b.count);
    cut_free((void *)b.rope);
    cut_free(b.rot);
    cut_free(da);
    cut_free(di);
}

int main(void)
{
    static const enum dtype types[] = {DT_Q4_G64, DT_Q8_G128, DT_F16, DT_BF16, DT_F32};
    cut_begin();
    enum cu_path path[2];
    const int n = cut_paths(path);
    for (int i = 0; i < n; i++) {
        struct cu_ctx *c = cut_ctx(path[i], true);
        for (int t = 0; t < 5; t++) {
            cut_order(t);
            test_embed(c, types[t], 384, t == 0 ? 1 : 1 + cut_below(CU_ROWS), CU_ROWS);
        }
        test_embed(c, DT_Q4_G64, 64, 3, 3);
        test_embed(c, DT_Q8_G128, 1152, 7, 9);
        test_embed(c, DT_Q8_G128, 5120, 2, 2);
        test_embed_rows(c, 384);
        test_argmax(c, 600, 577, 3, 5, 0);
        test_argmax(c, 600, 600, 16, 16, 4);
        test_argmax(c, 20000, 19000, 2, 2, 3);
        test_argmax(c, 300, 1, 1, 1, 0);
        test_argmax(c, 300, 290, 1, 1, -1);
        test_rot(c, 1, 1);
        test_rot(c, 13, 16);
        test_rot(c, 100, 129);
    }
    return cut_end();
}
