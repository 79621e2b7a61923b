/* The weight-streaming product: its plans (host), and every kind, mixture and
 * epilogue against double; a row's bits alone and among others. On a GPU, --time
 * measures the 27B's products. */
#include "mm_help.h"

#include "kernels/cuda/bandwidth.h"
#include "kernels/cuda/mm_plan.h"

/* ---- plans ---- */

struct shape {
    const char *name;
    int k, n;
    int rows[4];
    enum cu_kind kind[4];
};

static const struct shape shapes[] = {
    {"gdn in", 5120, 4, {10240, 6144, 48, 48}, {CU_W4, CU_W4, CU_W16, CU_W16}},
    {"out", 6144, 1, {5120}, {CU_W4}},
    {"out, 8 bits", 6144, 1, {5120}, {CU_W8}},
    {"gate/up", 5120, 1, {34816}, {CU_W4}},
    {"down", 17408, 1, {5120}, {CU_W4}},
    {"qkv", 5120, 3, {12288, 1024, 1024}, {CU_W4, CU_W8, CU_W8}},
    {"kv", 5120, 2, {1024, 1024}, {CU_W8, CU_W8}},
    {"fc", 10240, 1, {5120}, {CU_W8}},
    {"head", 5120, 1, {248320}, {CU_W4}}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

/* A matrix whose data is only an address. */
static struct cu_mat fake_mat(const struct shape *s, int i, uintptr_t base)
{
    struct cu_mat m = {};
    m.data = (const uint8_t *)base;
    m.kind = s->kind[i];
    m.rows = s->rows[i];
    m.tiles = (s->rows[i] + 63) / 64;
    m.kg = s->k / 64;
    m.name = s->name;
    return m;
}

/* The first thing wrong with a plan, or NULL. */
static const char *plan_fault(const struct cu_mm_plan *p, double *balance, int *most_parts)
{
    std::vector<uint8_t> seen((size_t)p->tiles * (size_t)p->kg);
    std::vector<int> open((size_t)p->n_slots, -1), parts((size_t)p->tiles);
    std::vector<int> slot0((size_t)p->tiles);
    std::vector<uint8_t> closed((size_t)p->n_slots);
    double most = 0, total = 0;
    for (int b = 0; b < p->n_blocks; b++) {
        const struct mm_block *blk = &p->block[b];
        double bytes = 0;
        int steps = 0, ph = blk->phase, before = -1;
        for (int r = 0; r < blk->n_runs; r++) {
            if (r == p->phase[ph].run_end) {
                ph++;
                before = -1;
            }
            const struct mm_run *run = &p->run[blk->run + r];
            const int mat = MM_META_MAT(run->meta), k = MM_META_K(run->meta);
            const struct cu_mat *m = &p->mat[mat];
            const int tile = run->tile - p->tile0[mat], a = p->phase[ph].k0 + k;
            /* tiles that are shared come first */
            const int order = run->tile + (MM_META_PARTS(run->meta) == 1 ? p->tiles : 0);
            if (order <= before || run->n < 1 || k + run->n > p->phase[ph].n) {
                return "a run outside its phase, or out of order";
            }
            before = order;
            if (tile < 0 || tile >= m->tiles || run->kind != (int)m->kind ||
                run->src != (uint64_t)(uintptr_t)m->data +
                                (uint64_t)(tile * p->kg + a) * cu_step_bytes(m->kind)) {
                return "a run's bytes";
            }
            for (int i = 0; i < run->n; i++) {
                if (seen[(size_t)run->tile * (size_t)p->kg + (size_t)(a + i)]++) {
                    return "a step done twice";
                }
            }
            const int n = MM_META_PARTS(run->meta);
            if (run->slot < run->slot0 || run->slot >= run->slot0 + n ||
                run->slot0 + n > p->n_slots) {
                return "a slot";
            }
            parts[(size_t)run->tile] = n;
            slot0[(size_t)run->tile] = run->slot0;
            if (MM_META_FIRST(run->meta) ? open[(size_t)run->slot] != -1
                                         : open[(size_t)run->slot] != b) {
                return "a contribution's beginning";
            }
            if (closed[(size_t)run->slot]) {
                return "a run after its contribution's last";
            }
            open[(size_t)run->slot] = b;
            closed[(size_t)run->slot] = MM_META_LAST(run->meta) != 0;
            steps += run->n;
            bytes += (double)run->n * (double)cu_step_bytes(m->kind);
        }
        if (steps != blk->steps) {
            return "a block's steps";
        }
        most = bytes > most ? bytes : most;
        total += bytes;
    }
    *most_parts = 0;
    int slots = 0;
    for (int t = 0; t < p->tiles; t++) {
        *most_parts = parts[(size_t)t] > *most_parts ? parts[(size_t)t] : *most_parts;
        slots += parts[(size_t)t];
    }
    for (size_t i = 0; i < seen.size(); i++) {
        if (!seen[i]) {
            return "a step not done";
        }
    }
    for (size_t i = 0; i < closed.size(); i++) {
        if (!closed[i]) {
            return "a contribution without its last run";
        }
    }
    if (slots != p->n_slots) {
        return "slots";
    }
    int shared = 0;
    for (int t = 0; t < p->tiles; t++) {
        if (parts[(size_t)t] > 1) {
            const struct mm_finish *f = &p->finish[shared++];
            const struct cu_mat *m = &p->mat[f->mat];
            if (shared > p->n_finish || f->tile != t || f->parts != parts[(size_t)t] ||
                f->slot0 != slot0[(size_t)t] || t < p->tile0[f->mat] ||
                t >= p->tile0[f->mat] + m->tiles) {
                return "who finishes a tile";
            }
        }
    }
    if (shared != p->n_finish) {
        return "tiles to finish";
    }
    *balance = most * p->n_blocks / total;
    return NULL;
}

static void test_plan(const struct shape *s, enum cu_path path, int n_sm,
                      const struct mm_tune *tune, double limit)
{
    struct cu_mat m[4] = {};
    const struct cu_mat *list[4] = {};
    for (int i = 0; i < s->n; i++) {
        m[i] = fake_mat(s, i, 0x100000000u * (uintptr_t)(i + 1));
        list[i] = &m[i];
    }
    struct cu_mm_plan *p = NULL;
    if (mm_plan_make(path, n_sm, list, s->n, tune, &p) < 0) {
        cut_ok(false, "%s on %d SMs: a plan", s->name, n_sm);
        return;
    }
    double balance = 0;
    int parts = 0;
    const char *fault = plan_fault(p, &balance, &parts);
    const size_t one = mm_smem_of(p, 1).bytes, two = mm_smem_of(p, 2).bytes;
    const bool fits = path == CU_SM90 || (one <= 99 << 10 && two <= 99 << 10);
    cut_ok(!fault && balance <= limit && fits &&
               p->slice <= (tune && tune->slice ? tune->slice
                            : path == CU_SM80   ? 24
                                                : 48),
           "%s on %d SMs, %s: %s; balance %.4f, slices of %d, %d parts, %d slots, work %.2f MB",
           s->name, n_sm, cut_path_name(path), fault ? fault : "every step once", balance, p->slice,
           parts, p->n_slots, (double)cu_mm_work(p) / 1e6);
    mm_plan_free(p);
}

static void test_plans(void)
{
    static const int sms[] = {1, 2, 68, 82, 108, 114, 128, 144, 170};
    for (int i = 0; i < N_SHAPES; i++) {
        /* fewer bytes than steps to share out evenly: the MTP's own */
        const bool small = strcmp(shapes[i].name, "kv") == 0;
        test_plan(&shapes[i], CU_SM90, 132, NULL, small ? 1.1 : 1.04);
        test_plan(&shapes[i], CU_SM80, 132, NULL, small ? 1.1 : 1.04);
        for (size_t j = 0; j < sizeof sms / sizeof *sms; j++) {
            test_plan(&shapes[i], j % 2 ? CU_SM80 : CU_SM90, sms[j], NULL, small ? 1.2 : 1.04);
        }
        struct mm_tune t = {};
        t.slice = 7;
        t.per_sm = 2;
        t.order = MM_BY_TILE;
        test_plan(&shapes[i], CU_SM90, 132, &t, small ? 1.3 : 1.06);
        t.order = MM_BY_SLICE;
        test_plan(&shapes[i], CU_SM90, 132, &t, small ? 1.3 : 1.06);
    }
    const struct shape *s = &shapes[0];
    struct cu_mat a = fake_mat(s, 0, 4096), b = fake_mat(s, 1, 8192);
    b.kg++;
    const struct cu_mat *two[2] = {&a, &b};
    struct cu_mm_plan *p = NULL;
    cut_ok(mm_plan_make(CU_SM90, 132, two, 2, NULL, &p) < 0 && !p, "unequal inputs are refused");
}

/* ---- products ---- */

struct product {
    int k, n;
    struct test_mat m[4];
    enum cu_mm_out out;
    bool normed;
    int ld; /* output columns */
    struct cu_mm_plan *plan;
    /* host: what rows 0..15 bring */
    std::vector<uint16_t> x;        /* [16][k] */
    std::vector<float> sum;         /* [16][k / 32] */
    std::vector<float> ss, power;   /* of the input's norm: [16][k / 64], [16] */
    std::vector<float> old, old_ss; /* residual: [16][ld], [16][ld / 64] */
    std::vector<float> norm;        /* [ld] */
};

/* Results of a launch, by batch row. */
struct results {
    std::vector<float> y; /* STORE: rows; else the residual stream */
    std::vector<uint16_t> act;
    std::vector<float> act_sum, ss, power;
};

static const float eps = 1e-6f;

static struct product product_make(struct cu_ctx *c, enum cu_mm_out out, bool normed, int k, int n,
                                   const enum dtype *type, const int *rows,
                                   const struct mm_tune *tune)
{
    struct product p = {};
    p.k = k;
    p.n = n;
    p.out = out;
    p.normed = normed;
    const struct cu_mat *list[4] = {};
    for (int i = 0; i < n; i++) {
        p.m[i] = mat_random(type[i], rows[i], k, out == CU_MM_SILU);
        list[i] = &p.m[i].mat;
        p.ld += rows[i];
    }
    if (out == CU_MM_SILU) {
        p.ld /= 2;
    }
    cut_must(cu_mm_plan_create_tuned(c, list, n, tune, &p.plan), "a plan");
    for (int r = 0; r < CU_ROWS; r++) {
        /* rows differ in size and have a mean, so that offsets matter */
        const float size = ldexpf(1, cut_below(8) - 4), mean = cut_uniform();
        for (int i = 0; i < k; i++) {
            p.x.push_back(cut_half(size * (cut_normal() + mean)));
        }
        for (int i = 0; i < k; i += 32) {
            p.sum.push_back(sum32(&p.x[(size_t)r * (size_t)k + (size_t)i]));
        }
        for (int i = 0; i < k; i += 64) {
            p.ss.push_back(64 * size * size * (0.5f + fabsf(cut_uniform())));
        }
        p.power.push_back(ldexpf(1, cut_below(6) - 3));
        for (int i = 0; i < p.ld; i++) {
            p.old.push_back(cut_normal() * 4);
        }
        for (int i = 0; i < p.ld; i += 64) {
            p.old_ss.push_back(64 * (float)(r + 1) * (0.5f + fabsf(cut_uniform())));
        }
    }
    for (int i = 0; i < p.ld; i++) {
        p.norm.push_back(1 + 0.3f * cut_uniform());
    }
    return p;
}

static void product_free(struct product *p)
{
    for (int i = 0; i < p->n; i++) {
        mat_free(&p->m[i]);
    }
    cu_mm_plan_free(p->plan);
}

/* [16][n] of the chosen rows, transposed to [n][16]; rows past the count are NaN. */
static float *up_transposed(const std::vector<float> &v, int n, const int *row, int count)
{
    std::vector<float> t((size_t)n * CU_ROWS, NAN);
    for (int j = 0; j < count; j++) {
        for (int i = 0; i < n; i++) {
            t[(size_t)i * CU_ROWS + (size_t)j] = v[(size_t)row[j] * (size_t)n + (size_t)i];
        }
    }
    return cut_upload(t.data(), t.size());
}

template <typename T>
static T *up_rows(const std::vector<T> &v, int n, const int *row, int count, T fill)
{
    std::vector<T> t((size_t)n * CU_ROWS, fill);
    for (int j = 0; j < count; j++) {
        for (int i = 0; i < n; i++) {
            t[(size_t)j * (size_t)n + (size_t)i] = v[(size_t)row[j] * (size_t)n + (size_t)i];
        }
    }
    return cut_upload(t.data(), t.size());
}

template <typename T> static std::vector<T> down(const T *dev, size_t n)
{
    std::vector<T> v(n);
    cut_download(v.data(), dev, n);
    return v;
}

/* Runs the rows row[0..count) as one batch; rows (host) may be more. */
static struct results product_run(struct cu_ctx *c, const struct product *p, const int *row,
                                  int count, int rows, void *work)
{
    const int32_t counts[2] = {count, 1};
    const size_t out = (size_t)CU_ROWS * (size_t)p->ld;
    const bool resid = p->out == CU_MM_RESIDUAL || p->out == CU_MM_START;
    struct cu_batch b = {};
    b.count = cut_upload(counts, 2);
    b.rows = rows;
    struct cu_mm m = {};
    m.plan = p->plan;
    m.in.x = up_rows<uint16_t>(p->x, p->k, row, count, 0xffff);
    m.in.sum = up_transposed(p->sum, p->k / 32, row, count);
    float *ss = p->normed ? up_transposed(p->ss, p->k / 64, row, count) : NULL;
    float *power = p->normed ? up_transposed(p->power, 1, row, count) : NULL;
    m.ss = ss;
    m.power = power;
    m.norm_k = p->k;
    m.eps = eps;
    m.out = p->out;
    m.y = resid || p->out == CU_MM_SILU ? NULL : cut_new<float>(out + 5 * CU_ROWS);
    m.ldy = (size_t)p->ld + 5; /* not the width: columns behind it stay as they are */
    m.work = work;
    uint16_t *act = p->out == CU_MM_STORE ? NULL : cut_new<uint16_t>(out);
    float *act_sum = p->out == CU_MM_STORE ? NULL : cut_new<float>(out / 32);
    m.act.x = m.resid.act.x = act;
    m.act.sum = m.resid.act.sum = act_sum;
    float *old_ss = NULL, *norm = NULL;
    if (resid) {
        m.resid.x = up_rows<float>(p->old, p->ld, row, count, NAN);
        m.resid.ss = cut_new<float>(out / 64);
        m.resid.power = cut_new<float>(CU_ROWS);
        if (p->out == CU_MM_RESIDUAL) {
            old_ss = up_transposed(p->old_ss, p->ld / 64, row, count);
        }
        norm = cut_upload(p->norm.data(), p->norm.size());
        m.resid_ss = old_ss;
        m.next_norm = norm;
    }
    cut_must(cu_mm(c, &b, &m), "cu_mm");
    struct results r;
    if (m.y) {
        r.y = down(m.y, out + 5 * CU_ROWS);
    }
    if (act) {
        r.act = down(act, out);
        r.act_sum = down(act_sum, out / 32);
    }
    if (resid) {
        r.y = down(m.resid.x, out);
        r.ss = down(m.resid.ss, out / 64);
        r.power = down(m.resid.power, CU_ROWS);
    }
    void *all[] = {(void *)b.count, m.in.x, m.in.sum, ss,        power,      m.y,          act,
                   act_sum,         old_ss, norm,     m.resid.x, m.resid.ss, m.resid.power};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        cut_free(all[i]);
    }
    return r;
}

/* The linear product of a row in double, [columns]. */
static std::vector<double> want_linear(const struct product *p, int r)
{
    std::vector<double> y;
    double f = 1;
    if (p->normed) {
        double s = 0;
        for (int i = 0; i < p->k / 64; i++) {
            s += p->ss[(size_t)r * (size_t)(p->k / 64) + (size_t)i];
        }
        f = 1 / sqrt(s / p->k + eps) / p->power[(size_t)r];
    }
    std::vector<double> x;
    for (int c = 0; c < p->k; c++) {
        x.push_back(cut_float(p->x[(size_t)r * (size_t)p->k + (size_t)c]));
    }
    for (int m = 0; m < p->n; m++) {
        for (int i = 0; i < p->m[m].rows; i++) {
            const double *w = p->m[m].w + (size_t)i * (size_t)p->k;
            double s = 0;
            for (int c = 0; c < p->k; c++) {
                s += w[c] * x[(size_t)c];
            }
            y.push_back(s * f);
        }
    }
    return y;
}

static float near_power(double x)
{
    int e = 0;
    const double m = frexp(x, &e); /* [0.5, 1) */
    return (float)ldexp(1, m >= 0.75 ? e : e - 1);
}

/* Whether sums of 32 and squares of 64 follow from what was written. */
static bool sums_agree(const struct product *p, const struct results *g, int count)
{
    for (int j = 0; j < count; j++) {
        for (int i = 0; i < p->ld / 32; i++) {
            const float want = sum32(&g->act[(size_t)j * (size_t)p->ld + (size_t)i * 32]);
            double size = 0;
            for (int q = 0; q < 32; q++) {
                size += fabs(cut_float(g->act[(size_t)j * (size_t)p->ld + (size_t)(i * 32 + q)]));
            }
            if (!(fabs(g->act_sum[(size_t)i * CU_ROWS + (size_t)j] - want) <= 1e-6 * size)) {
                return false;
            }
        }
        for (int i = 0; !g->ss.empty() && i < p->ld / 64; i++) {
            double s = 0;
            for (int q = 0; q < 64; q++) {
                const double v = g->y[(size_t)j * (size_t)p->ld + (size_t)(i * 64 + q)];
                s += v * v;
            }
            if (!(fabs(g->ss[(size_t)i * CU_ROWS + (size_t)j] - s) <= 1e-6 * s)) {
                return false;
            }
        }
    }
    return true;
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

/* Nothing is written past the last row, nor beside the columns. */
static bool rest_untouched(const struct product *p, const struct results *g, int count)
{
    const size_t from = (size_t)count * (size_t)p->ld;
    if (p->out == CU_MM_STORE) {
        const size_t ld = (size_t)p->ld + 5;
        for (int j = 0; j < CU_ROWS; j++) {
            const size_t at = (size_t)j * ld + (j < count ? (size_t)p->ld : 0);
            if (!is_poison(&g->y[at], ((size_t)(j + 1) * ld - at) * 4)) {
                return false;
            }
        }
        return true;
    }
    if (count < CU_ROWS && !is_poison(&g->act[from], (g->act.size() - from) * 2)) {
        return false;
    }
    for (size_t i = 0; i < g->act_sum.size(); i++) {
        if ((int)(i % CU_ROWS) >= count && !is_poison(&g->act_sum[i], 4)) {
            return false;
        }
    }
    for (size_t i = 0; i < g->ss.size(); i++) {
        if ((int)(i % CU_ROWS) >= count && !is_poison(&g->ss[i], 4)) {
            return false;
        }
    }
    for (size_t i = (size_t)count; i < g->power.size(); i++) {
        if (!is_poison(&g->power[i], 4)) {
            return false;
        }
    }
    return true;
}

static void check_values(const struct product *p, const struct results *g, int count,
                         const char *what)
{
    double tol = 1e-4;
    for (int i = 0; i < p->n; i++) {
        tol = p->m[i].type == DT_F32 ? 5e-4 : tol; /* rounded to fp16 on the way in */
    }
    std::vector<float> got;
    std::vector<double> want;
    bool power_ok = true, act_ok = true;
    for (int j = 0; j < count; j++) {
        const std::vector<double> y = want_linear(p, j);
        /* each row by its own size */
        double size = 0;
        for (size_t i = 0; i < y.size(); i++) {
            size += y[i] * y[i];
        }
        const double inv = 1 / sqrt(size / (double)y.size());
        if (p->out == CU_MM_SILU) {
            for (int i = 0; i < p->ld; i++) {
                const size_t at = (size_t)(i / 8 * 16 + i % 8);
                const double v = y[at] / (1 + exp(-y[at])) * y[at + 8];
                want.push_back(v > 65504 ? 65504 : v < -65504 ? -65504 : v);
                got.push_back(cut_float(g->act[(size_t)j * (size_t)p->ld + (size_t)i]));
            }
            continue;
        }
        float power = 1;
        if (p->out == CU_MM_RESIDUAL) {
            double s = 0;
            for (int i = 0; i < p->ld / 64; i++) {
                s += p->old_ss[(size_t)(j * (p->ld / 64) + i)];
            }
            power = near_power(1 / sqrt(s / p->ld + eps));
        }
        const size_t ld = (size_t)p->ld + (p->out == CU_MM_STORE ? 5 : 0);
        for (int i = 0; i < p->ld; i++) {
            const float v = g->y[(size_t)j * ld + (size_t)i];
            const double old = p->out == CU_MM_RESIDUAL ? p->old[(size_t)(j * p->ld + i)] : 0;
            want.push_back(y[(size_t)i] * inv);
            got.push_back((float)(((double)v - old) * inv));
            if (p->out != CU_MM_STORE) {
                float a = v * p->norm[(size_t)i] * power;
                a = a > 65504 ? 65504 : a < -65504 ? -65504 : a;
                act_ok = act_ok && cut_half(a) == g->act[(size_t)(j * p->ld + i)];
            }
        }
        power_ok = power_ok && (p->out == CU_MM_STORE || g->power[(size_t)j] == power);
    }
    cut_rms(got.data(), want.data(), got.size(), p->out == CU_MM_SILU ? 1e-3 : tol, "%s", what);
    if (p->out != CU_MM_STORE) {
        cut_ok(sums_agree(p, g, count), "%s: sums", what);
        cut_ok(power_ok && act_ok, "%s: powers and fp16 of the next norm", what);
    }
    cut_ok(rest_untouched(p, g, count), "%s: nothing else is written", what);
}

/* The bits of batch row j of g and row i of h. */
static bool row_equal(const struct product *p, const struct results *g, int j,
                      const struct results *h, int i)
{
    const size_t ld = (size_t)p->ld + (p->out == CU_MM_STORE ? 5 : 0);
    if (!g->y.empty() && memcmp(&g->y[(size_t)j * ld], &h->y[(size_t)i * ld], (size_t)p->ld * 4)) {
        return false;
    }
    if (!g->act.empty() &&
        memcmp(&g->act[(size_t)(j * p->ld)], &h->act[(size_t)(i * p->ld)], (size_t)p->ld * 2)) {
        return false;
    }
    for (size_t q = 0; q < g->act_sum.size(); q += CU_ROWS) {
        if (memcmp(&g->act_sum[q + (size_t)j], &h->act_sum[q + (size_t)i], 4)) {
            return false;
        }
    }
    for (size_t q = 0; q < g->ss.size(); q += CU_ROWS) {
        if (memcmp(&g->ss[q + (size_t)j], &h->ss[q + (size_t)i], 4)) {
            return false;
        }
    }
    return g->power.empty() || memcmp(&g->power[(size_t)j], &h->power[(size_t)i], 4) == 0;
}

struct product_case {
    const char *name;
    enum cu_mm_out out;
    bool normed;
    int k, n;
    enum dtype type[4];
    int rows[4];
    struct mm_tune tune;
    int n_sm; /* 0: the device's */
};

static struct mm_tune tune_of(int slice, int per_sm, enum mm_order order)
{
    struct mm_tune t = {};
    t.slice = slice;
    t.per_sm = per_sm;
    t.order = order;
    return t;
}

static void test_product(struct cu_ctx *c, const struct product_case *t)
{
    const int n_sm = c->n_sm;
    c->n_sm = t->n_sm ? t->n_sm : n_sm;
    struct product p = product_make(c, t->out, t->normed, t->k, t->n, t->type, t->rows, &t->tune);
    c->n_sm = n_sm;
    char what[160];
    snprintf(what, sizeof what, "%s, %s", cut_path_name(c->path), t->name);
    void *work = cut_alloc(cu_mm_work(p.plan));
    cut_must(cudaMemset(work, 0, cu_mm_work(p.plan)), "cudaMemset");
    int row[CU_ROWS];
    for (int i = 0; i < CU_ROWS; i++) {
        row[i] = i;
    }
    cut_order(cut_below(3));
    struct results all = product_run(c, &p, row, CU_ROWS, CU_ROWS, work);
    check_values(&p, &all, CU_ROWS, what);

    static const int counts[] = {1, 1, 2, 3, 5, 8, 9, 12, 16, 7};
    bool same = true, rest = true;
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        for (int i = 0; i < CU_ROWS; i++) { /* a random order */
            const int j = i + cut_below(CU_ROWS - i), v = row[i];
            row[i] = row[j];
            row[j] = v;
        }
        cut_order((int)n);
        const int count = counts[n];
        /* the graph is made for more rows than there are */
        const int most = n == 3 ? 9 : n == 9 ? 16 : count;
        struct results g = product_run(c, &p, row, count, most, work);
        for (int j = 0; j < count; j++) {
            if (same && !row_equal(&p, &g, j, &all, row[j])) {
                printf("# row %d as %d of %d differs\n", row[j], j, count);
                same = false;
            }
        }
        rest = rest && rest_untouched(&p, &g, count);
    }
    cut_ok(same, "%s: a row's bits are the same in every batch", what);
    cut_ok(rest, "%s: rows past the count are not written", what);
    std::vector<uint8_t> w = down((uint8_t *)work, (size_t)MM_MAX_TILES * 4);
    bool zero = true;
    for (size_t i = 0; i < w.size(); i++) {
        zero = zero && w[i] == 0;
    }
    cut_ok(zero, "%s: counters are zero again", what);
    cut_free(work);
    product_free(&p);
}

static void test_products(struct cu_ctx *c)
{
    const enum dtype q4 = DT_Q4_G64, q8 = DT_Q8_G128, f16 = DT_F16, bf = DT_BF16, f32 = DT_F32;
    const struct mm_tune none = {};
    const struct product_case cases[] = {
        {"4 bits", CU_MM_STORE, false, 384, 1, {q4}, {192}, none, 0},
        {"4 bits, one block", CU_MM_STORE, true, 384, 1, {q4}, {192}, none, 1},
        {"4 bits, long", CU_MM_STORE, true, 1152, 1, {q4}, {384}, tune_of(5, 1, MM_BY_SLICE), 3},
        {"4 bits, tiles", CU_MM_STORE, false, 1152, 1, {q4}, {448}, tune_of(4, 1, MM_BY_TILE), 3},
        {"4 bits, tail", CU_MM_STORE, false, 128, 1, {q4}, {100}, none, 2},
        {"8 bits", CU_MM_STORE, false, 384, 1, {q8}, {192}, none, 2},
        {"8 bits, long", CU_MM_STORE, true, 1152, 1, {q8}, {70}, tune_of(7, 2, MM_BY_SLICE), 3},
        {"fp16", CU_MM_STORE, true, 128, 1, {f16}, {6}, none, 2},
        {"bf16", CU_MM_STORE, false, 384, 1, {bf}, {130}, none, 3},
        {"fp32", CU_MM_STORE, false, 448, 1, {f32}, {64}, tune_of(3, 1, MM_BY_TILE), 2},
        {"DeltaNet's four", CU_MM_STORE, true, 384, 4, {q4, q4, bf, bf}, {128, 192, 6, 6}, none, 3},
        {"attention's three", CU_MM_STORE, true, 384, 3, {q4, q8, q8}, {512, 64, 64}, none, 0},
        {"all kinds, tiles",
         CU_MM_STORE,
         true,
         640,
         3,
         {q8, f16, q4},
         {100, 6, 200},
         tune_of(4, 1, MM_BY_TILE),
         2},
        {"all kinds, 19 blocks",
         CU_MM_STORE,
         true,
         640,
         3,
         {f32, q4, q8},
         {100, 200, 60},
         tune_of(4, 1, MM_BY_SLICE),
         19},
        {"silu", CU_MM_SILU, true, 384, 1, {q4}, {256}, none, 3},
        {"silu, 8 bits", CU_MM_SILU, false, 256, 1, {q8}, {128}, tune_of(2, 1, MM_BY_TILE), 2},
        {"silu, bf16", CU_MM_SILU, true, 192, 1, {bf}, {192}, none, 2},
        {"residual", CU_MM_RESIDUAL, false, 1152, 1, {q4}, {384}, tune_of(8, 1, MM_AUTO), 3},
        {"residual, 8 bits", CU_MM_RESIDUAL, false, 256, 1, {q8}, {384}, none, 0},
        {"residual, fp16", CU_MM_RESIDUAL, false, 256, 1, {f16}, {128}, none, 2},
        {"start", CU_MM_START, false, 768, 1, {q8}, {384}, tune_of(5, 1, MM_BY_SLICE), 2},
        {"start, bf16", CU_MM_START, false, 256, 1, {bf}, {128}, none, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        test_product(c, &cases[i]);
    }
#ifndef QUASAR_EMULATE
    /* the 27B's inner widths, fewer rows */
    const struct product_case wide[] = {
        {"k 5120, DeltaNet's four",
         CU_MM_STORE,
         true,
         5120,
         4,
         {q4, q4, bf, bf},
         {2048, 1024, 48, 48},
         none,
         0},
        {"k 5120, qkv", CU_MM_STORE, true, 5120, 3, {q4, q8, q8}, {2048, 128, 128}, none, 0},
        {"k 6144, out", CU_MM_RESIDUAL, false, 6144, 1, {q4}, {1280}, none, 0},
        {"k 5120, gate and up",
         CU_MM_SILU,
         true,
         5120,
         1,
         {q4},
         {4096},
         tune_of(24, 1, MM_BY_TILE),
         16},
        {"k 17408, down", CU_MM_RESIDUAL, false, 17408, 1, {q4}, {640}, none, 0},
        {"k 10240, fc", CU_MM_START, false, 10240, 1, {q8}, {640}, none, 0}};
    for (size_t i = 0; i < sizeof wide / sizeof *wide && !cut_small(); i++) {
        test_product(c, &wide[i]);
    }
#endif
}

static void test_refused(struct cu_ctx *c)
{
    const enum dtype type[2] = {DT_Q4_G64, DT_Q4_G64};
    const int rows[2] = {64, 64};
    struct product p = product_make(c, CU_MM_STORE, false, 128, 2, type, rows, NULL);
    struct cu_batch b = {};
    struct cu_mm m = {};
    m.plan = p.plan;
    m.out = CU_MM_RESIDUAL;
    b.rows = 1;
    const int before = c->launches;
    cut_ok(cu_mm(c, &b, &m) != 0, "a residual of two matrices is refused");
    m.out = CU_MM_STORE;
    b.rows = 17;
    cut_ok(cu_mm(c, &b, &m) != 0 && c->launches == before, "17 rows are refused");
    product_free(&p);
}

#ifndef QUASAR_EMULATE
#include "mm_time.h"
#endif

int main(int argc, char **argv)
{
    cut_begin();
#ifndef QUASAR_EMULATE
    if (argc > 1 && strcmp(argv[1], "--time") == 0) {
        return time_all(argc - 2, argv + 2);
    }
#else
    (void)argc;
    (void)argv;
#endif
    test_plans();
    enum cu_path path[2];
    const int n = cut_paths(path);
    for (int i = 0; i < n; i++) {
        struct cu_ctx *c = cut_ctx(path[i], true);
        test_refused(c);
        test_products(c);
    }
    return cut_end();
}
