/* Paged attention against double precision: head groups, page edges, scattered
 * pages, every cache format; and bit equality of rows in any company. What a packed
 * format keeps of a row is tested in t_kvq.c; here sums are compared over what it kept. */
#include "config.h"

#include <math.h>

#include "kcommon.h"
#include "kernels/kvq.h"

static const struct cpu_isa *isas[3];
static int n_isas;

enum { D = BE_HEAD_DIM, PAGES = 4 };

struct sequence {
    int rows, q_heads, kv_heads;
    enum be_kv kv;
    int32_t pages[3];
    float *q, *k, *v, *rot, *q_norm, *k_norm;
    double *keys, *values; /* as the cache holds them; by stored_rows */
};

/* As the cache holds a row. */
static void rounded(enum be_kv kv, int which, double *x)
{
    float row[D];
    uint8_t stored[D * sizeof(float)];
    for (int i = 0; i < D; i++) {
        row[i] = (float)x[i];
    }
    kvq_store(kvq_of(kv, which), row, stored);
    kvq_read(kvq_of(kv, which), stored, row);
    for (int i = 0; i < D && kv != BE_KV_F32; i++) {
        x[i] = (double)row[i];
    }
}

static void sequence_init(struct sequence *s, uint64_t seed)
{
    const size_t n = (size_t)s->rows;
    s->q = krand_floats(&seed, n * (size_t)s->q_heads * 2 * D, 2);
    s->k = krand_floats(&seed, n * (size_t)s->kv_heads * D, 2);
    s->v = krand_floats(&seed, n * (size_t)s->kv_heads * D, 2);
    s->rot = krand_floats(&seed, n * BE_ROT_DIM, 0);
    s->q_norm = krand_floats(&seed, D, 2);
    s->k_norm = krand_floats(&seed, D, 2);
    for (int i = 0; i < s->rows * BE_ROT_DIM / 2; i++) {
        int r = i / 32;
        s->rot[r * 64 + i % 32] = cosf((float)i);
        s->rot[r * 64 + 32 + i % 32] = sinf((float)i);
    }
}

static void sequence_free(struct sequence *s)
{
    free(s->q);
    free(s->k);
    free(s->v);
    free(s->rot);
    free(s->q_norm);
    free(s->k_norm);
    free(s->keys);
    free(s->values);
}

/* Rows from .. to of the sequence in calls of at most step rows. */
static void run(const struct cpu_isa *isa, const struct sequence *s, uint8_t *cache, int from,
                int to, int step, int nt, float *o)
{
    float *scratch = calloc(cpu_scratch_floats(D), sizeof *scratch);
    struct cpu_row *row = calloc((size_t)s->rows, sizeof *row);
    float *q = malloc((size_t)(s->rows * s->q_heads * 2 * D) * sizeof *q);
    assert_true(scratch && row && q);
    memcpy(q, s->q, (size_t)(s->rows * s->q_heads * 2 * D) * sizeof *q);
    for (int i = 0; i < s->rows; i++) {
        row[i] = (struct cpu_row){s->pages, i};
    }
    for (int at = from; at < to; at += step) {
        struct attn_args a = {
            .rows = to - at < step ? to - at : step,
            .q_heads = s->q_heads,
            .kv_heads = s->kv_heads,
            .row = row + at,
            .q = q + at * s->q_heads * 2 * D,
            .k = s->k + at * s->kv_heads * D,
            .v = s->v + at * s->kv_heads * D,
            .o = o + at * s->q_heads * D,
            .rot = s->rot + at * BE_ROT_DIM,
            .q_norm = s->q_norm,
            .k_norm = s->k_norm,
            .eps = 1e-6F,
            .kv = s->kv,
            .cache = cache,
            .page_size = BE_PAGE * be_kv_bytes(s->kv, s->kv_heads) + 64,
            .offset = 64,
        };
        for (int tid = 0; tid < nt; tid++) {
            isa->attn_append(&a, tid, nt);
        }
        for (int tid = 0; tid < nt; tid++) {
            isa->attn(&a, scratch, tid, nt);
        }
    }
    free(scratch);
    free(row);
    free(q);
}

static uint8_t *new_cache(const struct sequence *s)
{
    size_t n = PAGES * (BE_PAGE * be_kv_bytes(s->kv, s->kv_heads) + 64);
    uint8_t *p = malloc(n);
    assert_non_null(p);
    memset(p, 0xFF, n); /* what was never written is NaN */
    return p;
}

static void turned(const float *x, const float *w, const float *rot, enum be_kv kv, double *out)
{
    double sum = 0;
    for (int i = 0; i < D; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    for (int i = 0; i < D; i++) {
        out[i] = (double)x[i] / sqrt(sum / D + 1e-6) * (double)w[i];
    }
    for (int i = 0; i < 32; i++) {
        double a = out[i];
        double b = out[i + 32];
        out[i] = a * (double)rot[i] - b * (double)rot[i + 32];
        out[i + 32] = b * (double)rot[i] + a * (double)rot[i + 32];
    }
    rounded(kv, 0, out);
}

static void stored_rows(struct sequence *s)
{
    const int n = s->rows * s->kv_heads;
    s->keys = calloc((size_t)(n * D), sizeof *s->keys);
    s->values = calloc((size_t)(n * D), sizeof *s->values);
    assert_true(s->keys && s->values);
    for (int i = 0; i < n; i++) {
        turned(s->k + i * D, s->k_norm, s->rot + i / s->kv_heads * BE_ROT_DIM, s->kv,
               s->keys + i * D);
        for (int j = 0; j < D; j++) {
            s->values[i * D + j] = (double)s->v[i * D + j];
        }
        rounded(s->kv, 1, s->values + i * D);
    }
}

static void check_row(const struct sequence *s, int r, const float *o)
{
    double q[D];
    double *p = calloc((size_t)r + 1, sizeof *p);
    assert_non_null(p);
    for (int h = 0; h < s->q_heads; h++) {
        const int kv = h / (s->q_heads / s->kv_heads);
        const float *src = s->q + (r * s->q_heads + h) * 2 * D;
        double want[D] = {0};
        double sum = 0;
        turned(src, s->q_norm, s->rot + r * BE_ROT_DIM, BE_KV_F32, q);
        for (int t = 0; t <= r; t++) {
            const double *k = s->keys + (t * s->kv_heads + kv) * D;
            p[t] = 0;
            for (int i = 0; i < D; i++) {
                p[t] += q[i] * k[i] / 16;
            }
        }
        for (int t = 0; t <= r; t++) {
            double e = exp(p[t] - p[r]); /* any reference point will do in double */
            const double *v = s->values + (t * s->kv_heads + kv) * D;
            sum += e;
            for (int i = 0; i < D; i++) {
                want[i] += e * v[i];
            }
        }
        for (int i = 0; i < D; i++) {
            double gate = 1 / (1 + exp(-(double)src[D + i]));
            /* A key that falls on the other side of a rounding moves a score. */
            assert_close(o[(r * s->q_heads + h) * D + i], want[i] / sum * gate,
                         s->kv == BE_KV_F32    ? 5e-6
                         : s->kv == BE_KV_F16  ? 5e-4
                         : s->kv == BE_KV_K8V4 ? 2e-3
                                               : 2e-2);
        }
    }
    free(p);
}

static void reference(void **state)
{
    (void)state;
    const struct sequence kinds[] = {
        {.rows = 70, .q_heads = 6, .kv_heads = 1, .pages = {2, 0, 3}},
        {.rows = 70, .q_heads = 8, .kv_heads = 2, .kv = BE_KV_F16, .pages = {1, 3, 0}},
        {.rows = 9, .q_heads = 14, .kv_heads = 2, .pages = {3, 1, 2}},
        {.rows = 530, .q_heads = 2, .kv_heads = 1, .kv = BE_KV_F16, .pages = {2, 0, 1}},
        {.rows = 70, .q_heads = 6, .kv_heads = 1, .kv = BE_KV_F8, .pages = {2, 3, 1}},
        {.rows = 300, .q_heads = 4, .kv_heads = 2, .kv = BE_KV_F8, .pages = {0, 3, 1}},
        {.rows = 70, .q_heads = 6, .kv_heads = 1, .kv = BE_KV_K8V4, .pages = {1, 0, 2}},
        {.rows = 300, .q_heads = 4, .kv_heads = 2, .kv = BE_KV_K8V4, .pages = {3, 1, 0}},
        {.rows = 70, .q_heads = 14, .kv_heads = 2, .kv = BE_KV_K5V3, .pages = {2, 1, 0}},
        {.rows = 290, .q_heads = 8, .kv_heads = 1, .kv = BE_KV_K5V3, .pages = {0, 2, 1}},
        {.rows = 70, .q_heads = 12, .kv_heads = 1, .kv = BE_KV_K3V3, .pages = {3, 0, 2}},
        {.rows = 530, .q_heads = 2, .kv_heads = 2, .kv = BE_KV_K3V3, .pages = {1, 3, 2}},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct sequence s = kinds[i];
        sequence_init(&s, i);
        stored_rows(&s);
        const size_t n = (size_t)(s.rows * s.q_heads * D);
        float *first = calloc(n, sizeof *first);
        float *o = calloc(n, sizeof *o);
        assert_true(first && o);
        for (int j = 0; j < n_isas; j++) {
            uint8_t *cache = new_cache(&s);
            run(isas[j], &s, cache, 0, s.rows, 64, 2, o);
            for (int r = 0; r<s.rows; r += s.rows> 100 ? 33 : 1) {
                check_row(&s, r, o);
            }
            check_row(&s, s.rows - 1, o);
            if (j > 0 && exact_isa(isas[j])) {
                assert_memory_equal(o, first, n * sizeof *o);
            }
            memcpy(first, o, n * sizeof *o);
            free(cache);
        }
        free(first);
        free(o);
        sequence_free(&s);
    }
}

/* One by one, in verify spans, in prefill tiles, for any number of threads and
 * any pages. */
static void company(void **state)
{
    (void)state;
    for (int kv = BE_KV_F32; kv <= BE_KV_K3V3; kv++) {
        struct sequence s = {.rows = 290,
                             .q_heads = kv == BE_KV_F16 ? 6 : 2,
                             .kv_heads = 1,
                             .kv = (enum be_kv)kv,
                             .pages = {0, 1, 2}};
        sequence_init(&s, 77);
        const size_t n = (size_t)(s.rows * s.q_heads * D);
        float *want = calloc(n, sizeof *want);
        float *o = calloc(n, sizeof *o);
        assert_true(want && o);
        for (int j = 0; j < n_isas; j++) {
            uint8_t *cache = new_cache(&s);
            run(isas[j], &s, cache, 0, s.rows, s.rows, 1, want);
            free(cache);
            const int steps[] = {1, 4, 16, 64};
            for (int i = 0; i<4; i += kv> BE_KV_F8 ? 2 : 1) {
                cache = new_cache(&s);
                s.pages[0] = (int32_t)(i + 1) % PAGES;
                s.pages[1] = (int32_t)(i + 3) % PAGES;
                run(isas[j], &s, cache, 0, s.rows, steps[i], 1 + i, o);
                assert_memory_equal(o, want, n * sizeof *o);
                free(cache);
            }
        }
        free(want);
        free(o);
        sequence_free(&s);
    }
}

/* Every code there and back, ties to even, saturation. */
static void codes(void **state)
{
    (void)state;
    for (int i = 0; i < 0x7F; i++) {
        float x = f8_to_f32((uint8_t)i);
        float next = i < 0x7E ? f8_to_f32((uint8_t)(i + 1)) : 480;
        int even = i % 2 == 0 || i == 0x7E ? i : i + 1;
        assert_int_equal(f32_to_f8(x), i);
        assert_int_equal(f32_to_f8(-x), i | 0x80);
        assert_int_equal(f32_to_f8((x + next) / 2), even);
        assert_int_equal(f32_to_f8(nextafterf((x + next) / 2, 0)), i);
        assert_int_equal(f32_to_f8(nextafterf((x + next) / 2, 1000)), i < 0x7E ? i + 1 : i);
    }
    assert_true(f8_to_f32(0x08) == 0x1p-6F && f8_to_f32(0x7E) == 448 && f8_to_f32(0x01) == 0x1p-9F);
    assert_int_equal(f32_to_f8(INFINITY), 0x7E);
    assert_int_equal(f32_to_f8(-1e9F), 0xFE);
    assert_int_equal(f32_to_f8(NAN), 0x7F);
    assert_true(isnan(f8_to_f32(0x7F)) && isnan(f8_to_f32(0xFF)));
}

int main(void)
{
    n_isas = kernel_isas(isas);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes),
        cmocka_unit_test(reference),
        cmocka_unit_test(company),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
