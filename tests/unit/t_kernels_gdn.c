/* Gated DeltaNet against double precision: single steps and blocks of 64, state
 * carried across calls; and which bits may not change. */
#include "config.h"

#include <math.h>

#include "kcommon.h"

static const struct cpu_isa *isas[3];
static int n_isas;

enum { D = BE_DN_DIM, MAX_T = 130 };

struct layer {
    int k_heads, v_heads, ch;
    float *qkv, *z, *b, *a, *conv_w, *a_log, *dt_bias, *gnorm;
};

struct run {
    float *s, *conv, *c, *y;
};

static void layer_init(struct layer *l, int k_heads, int v_heads, uint64_t seed)
{
    l->k_heads = k_heads;
    l->v_heads = v_heads;
    l->ch = (2 * k_heads + v_heads) * D;
    const size_t v = (size_t)v_heads;
    l->qkv = krand_floats(&seed, MAX_T * (size_t)l->ch, 2);
    l->z = krand_floats(&seed, MAX_T * v * D, 2);
    l->b = krand_floats(&seed, MAX_T * v, 3);
    l->a = krand_floats(&seed, MAX_T * v, 3);
    l->conv_w = krand_floats(&seed, 4 * (size_t)l->ch, 1);
    l->a_log = krand_floats(&seed, v, 0.1F);
    l->dt_bias = krand_floats(&seed, v, 1);
    l->gnorm = krand_floats(&seed, D, 2);
    for (int i = 0; i < v_heads; i++) {
        l->a_log[i] -= i == 0 ? 8 : 0.2F; /* one head forgets at once */
    }
    l->a[0] = 25; /* softplus beyond its linear bound */
}

static void layer_free(struct layer *l)
{
    free(l->qkv);
    free(l->z);
    free(l->b);
    free(l->a);
    free(l->conv_w);
    free(l->a_log);
    free(l->dt_bias);
    free(l->gnorm);
}

static void run_init(struct run *r, const struct layer *l)
{
    r->s = calloc((size_t)(l->v_heads * D * D), sizeof(float));
    r->conv = calloc((size_t)(3 * l->ch), sizeof(float));
    r->c = calloc((size_t)((MAX_T + 4) * l->ch), sizeof(float));
    r->y = calloc((size_t)(MAX_T * l->v_heads * D), sizeof(float));
    assert_true(r->s && r->conv && r->c && r->y);
}

static void run_free(struct run *r)
{
    free(r->s);
    free(r->conv);
    free(r->c);
    free(r->y);
}

/* Rows from .. to in one call. */
static void advance(const struct cpu_isa *isa, const struct layer *l, struct run *r, int from,
                    int to, bool steps, int nt)
{
    float *scratch = calloc(cpu_scratch_floats(D), sizeof *scratch);
    assert_non_null(scratch);
    const struct gdn_span span = {0, to - from, from, r->s, r->conv};
    const struct gdn_args a = {
        .n_spans = 1,
        .k_heads = l->k_heads,
        .v_heads = l->v_heads,
        .span = &span,
        .qkv = l->qkv + from * l->ch,
        .z = l->z + from * l->v_heads * D,
        .b = l->b + from * l->v_heads,
        .a = l->a + from * l->v_heads,
        .c = r->c + from * l->ch,
        .y = r->y + from * l->v_heads * D,
        .conv_w = l->conv_w,
        .a_log = l->a_log,
        .dt_bias = l->dt_bias,
        .gnorm = l->gnorm,
        .eps = 1e-6F,
        .steps = steps,
    };
    for (int tid = 0; tid < nt; tid++) {
        isa->gdn_conv(&a, tid, nt);
    }
    for (int tid = 0; tid < nt; tid++) {
        isa->gdn(&a, scratch, tid, nt);
    }
    free(scratch);
}

struct expected {
    double *s, *y;
};

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static void expect_head(const struct layer *l, int t, int h, const double *c, struct expected *e)
{
    const int kh = h / (l->v_heads / l->k_heads);
    const double *q = c + kh * D;
    const double *k = c + (l->k_heads + kh) * D;
    const double *v = c + (2 * l->k_heads + h) * D;
    const int at = t * l->v_heads + h;
    double *s = e->s + h * D * D;
    double *y = e->y + at * D;
    double qq = 1e-6;
    double kk = 1e-6;
    double sum = 0;
    for (int i = 0; i < D; i++) {
        qq += q[i] * q[i];
        kk += k[i] * k[i];
    }
    const double decay =
        exp((double)l->a_log[h] * log1p(exp((double)l->a[at] + (double)l->dt_bias[h])));
    const double beta = 1 / (1 + exp(-(double)l->b[at]));
    for (int j = 0; j < D; j++) {
        double u = v[j];
        y[j] = 0;
        for (int i = 0; i < D; i++) {
            s[i * D + j] *= decay;
            u -= s[i * D + j] * k[i] / sqrt(kk);
        }
        for (int i = 0; i < D; i++) {
            s[i * D + j] += k[i] / sqrt(kk) * beta * u;
            y[j] += s[i * D + j] * q[i] / sqrt(qq) / sqrt(128);
        }
        sum += y[j] * y[j];
    }
    for (int j = 0; j < D; j++) {
        y[j] *= (double)l->gnorm[j] / sqrt(sum / D + 1e-6) * silu((double)l->z[at * D + j]);
    }
}

static void expect(const struct layer *l, int n, struct expected *e)
{
    e->s = calloc((size_t)(l->v_heads * D * D), sizeof(double));
    e->y = calloc((size_t)(MAX_T * l->v_heads * D), sizeof(double));
    double *c = calloc((size_t)l->ch, sizeof *c);
    assert_true(e->s && e->y && c);
    for (int t = 0; t < n; t++) {
        for (int i = 0; i < l->ch; i++) {
            double sum = 0;
            for (int j = 0; j < 4; j++) {
                sum += t + j >= 3
                           ? (double)l->conv_w[i * 4 + j] * (double)l->qkv[(t + j - 3) * l->ch + i]
                           : 0;
            }
            c[i] = silu(sum);
        }
        for (int h = 0; h < l->v_heads; h++) {
            expect_head(l, t, h, c, e);
        }
    }
    free(c);
}

static void compare(const struct layer *l, const struct run *r, const struct expected *e, int n)
{
    for (int i = 0; i < n * l->v_heads * D; i++) {
        assert_close(r->y[i], e->y[i], 3e-5);
    }
    for (int i = 0; i < l->v_heads * D * D; i++) {
        assert_close(r->s[i], e->s[i], 3e-6);
    }
    for (int j = 0; j < 3; j++) {
        for (int i = 0; i < l->ch; i++) {
            int t = n - 3 + j;
            assert_true(r->conv[j * l->ch + i] == (t < 0 ? 0 : l->qkv[t * l->ch + i]));
        }
    }
}

static void lengths(void **state)
{
    (void)state;
    const int heads[][2] = {{2, 6}, {3, 3}, {1, 2}};
    const int n[] = {1, 2, 63, 64, 65, 130};
    for (int k = 0; k < 3; k++) {
        struct layer l;
        layer_init(&l, heads[k][0], heads[k][1], (uint64_t)k);
        for (int i = 0; i < 6; i++) {
            struct expected e;
            expect(&l, n[i], &e);
            for (int j = 0; j < n_isas; j++) {
                for (int steps = 0; steps < 2; steps++) {
                    struct run r;
                    run_init(&r, &l);
                    advance(isas[j], &l, &r, 0, n[i], steps, 1 + j);
                    compare(&l, &r, &e, n[i]);
                    run_free(&r);
                }
            }
            free(e.s);
            free(e.y);
        }
        layer_free(&l);
    }
}

static void assert_same(const struct layer *l, const struct run *a, const struct run *b, int n,
                        bool state)
{
    assert_memory_equal(a->y, b->y, (size_t)(n * l->v_heads * D) * sizeof(float));
    if (state) {
        assert_memory_equal(a->s, b->s, (size_t)(l->v_heads * D * D) * sizeof(float));
        assert_memory_equal(a->conv, b->conv, (size_t)(3 * l->ch) * sizeof(float));
    }
}

/* Cuts on the grid, threads, SIMD paths; steps in spans and one by one; and a
 * block that ends early has the same rows. */
static void bits(void **state)
{
    (void)state;
    struct layer l;
    layer_init(&l, 2, 6, 9);
    struct run simd[2] = {{0}, {0}};
    for (int j = 0; j < n_isas; j++) {
        for (int steps = 0; steps < 2; steps++) {
            struct run whole;
            struct run cut;
            run_init(&whole, &l);
            advance(isas[j], &l, &whole, 0, MAX_T, steps, 1);
            run_init(&cut, &l);
            if (steps) {
                for (int t = 0, n = 1; t < MAX_T; t += n, n = 1 + (n + 3) % 7) {
                    n = n < MAX_T - t ? n : MAX_T - t;
                    advance(isas[j], &l, &cut, t, t + n, true, 1 + t % 3);
                }
            } else {
                advance(isas[j], &l, &cut, 0, 64, false, 3);
                advance(isas[j], &l, &cut, 64, 128, false, 2);
                advance(isas[j], &l, &cut, 128, MAX_T, false, 5);
            }
            assert_same(&l, &whole, &cut, MAX_T, true);
            run_free(&cut);
            for (int n = 65; n < 128; n += 7) {
                run_init(&cut, &l);
                advance(isas[j], &l, &cut, 0, n, steps, 1);
                assert_same(&l, &whole, &cut, n, false);
                run_free(&cut);
            }
            if (j == 0) {
                simd[steps] = whole;
                continue;
            }
            if (exact_isa(isas[j])) {
                assert_same(&l, &whole, &simd[steps], MAX_T, true);
            }
            run_free(&whole);
        }
    }
    run_free(&simd[0]);
    run_free(&simd[1]);
    layer_free(&l);
}

/* A span that starts off the grid runs a short block first and then lies on it. */
static void off_grid(void **state)
{
    (void)state;
    struct layer l;
    layer_init(&l, 2, 4, 10);
    struct expected e;
    expect(&l, MAX_T, &e);
    for (int j = 0; j < n_isas; j++) {
        struct run r;
        struct run other;
        run_init(&r, &l);
        run_init(&other, &l);
        advance(isas[j], &l, &r, 0, 21, true, 1);
        advance(isas[j], &l, &r, 21, MAX_T, false, 1);
        compare(&l, &r, &e, MAX_T);
        advance(isas[j], &l, &other, 0, 21, true, 1);
        advance(isas[j], &l, &other, 21, 64, false, 1);
        advance(isas[j], &l, &other, 64, MAX_T, false, 1);
        assert_same(&l, &r, &other, MAX_T, true);
        run_free(&r);
        run_free(&other);
    }
    free(e.s);
    free(e.y);
    layer_free(&l);
}

int main(void)
{
    n_isas = kernel_isas(isas);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths),
        cmocka_unit_test(bits),
        cmocka_unit_test(off_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
