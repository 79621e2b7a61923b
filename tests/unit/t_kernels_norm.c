/* Norms and the SiLU gate against double precision; one result per value,
 * wherever it lies. */
#include "config.h"

#include <math.h>

#include "kcommon.h"

static const struct cpu_isa *isas[3];
static int n_isas;

static void norms(void **state)
{
    (void)state;
    const int ks[] = {1, 15, 16, 17, 128, 384, 1001};
    uint64_t seed = 1;
    for (int i = 0; i < 7; i++) {
        const int k = ks[i];
        float *x = krand_floats(&seed, 3 * (size_t)(k + 1), 3);
        float *w = krand_floats(&seed, (size_t)k, 2);
        for (int s = 0; s < n_isas; s++) {
            float *y = calloc(3 * (size_t)k, sizeof *y);
            assert_non_null(y);
            for (int tid = 0; tid < 2; tid++) {
                isas[s]->norm(x, (size_t)k + 1, w, 1e-6F, 3, k, y, (size_t)k, tid, 2);
            }
            for (int r = 0; r < 3; r++) {
                double sum = 0;
                for (int j = 0; j < k; j++) {
                    sum += pow((double)x[r * (k + 1) + j], 2);
                }
                for (int j = 0; j < k; j++) {
                    double want = (double)x[r * (k + 1) + j] / sqrt(sum / k + 1e-6) * (double)w[j];
                    assert_close(y[r * k + j], want, 1e-6);
                }
            }
            free(y);
        }
        free(x);
        free(w);
    }
}

/* SiLU over the whole range of an exponential: relative error, and the limits. */
static void silu_range(void **state)
{
    (void)state;
    enum { N = 40016 };
    float *x = malloc(N * sizeof *x);
    float *one = malloc(N * sizeof *one);
    float *first = malloc(N * sizeof *first);
    float *g = malloc(N * sizeof *g);
    assert_true(x && one && first && g);
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i - N / 2) * 0.005F;
        one[i] = 1;
    }
    for (int s = 0; s < n_isas; s++) {
        memcpy(g, x, N * sizeof *g);
        for (int tid = 0; tid < 3; tid++) {
            isas[s]->silu_mul(g, one, N, 1, N, tid, 3);
        }
        for (int i = 0; i < N; i++) {
            double v = (double)x[i];
            double want = v / (1 + exp(-v));
            if (v > -87) {
                assert_true(fabs((double)g[i] - want) <= 4e-7 * fabs(want));
            } else {
                assert_true(g[i] <= 0 && g[i] > -1e-34F);
            }
        }
        if (s > 0 && exact_isa(isas[s])) {
            assert_memory_equal(g, first, N * sizeof *g);
        }
        if (s == 0) {
            memcpy(first, g, N * sizeof *g);
        }
        /* Any start and length give the same values. */
        for (int i = 0; i < 40; i++) {
            float part[40];
            int from = N / 2 - 100 + 7 * i;
            memcpy(part, x + from, sizeof part);
            isas[s]->silu_mul(part, one, 40, 1, i, 0, 1);
            assert_memory_equal(part, g + from, (size_t)i * sizeof *g);
            assert_memory_equal(part + i, x + from + i, (size_t)(40 - i) * sizeof *g);
        }
    }
    free(x);
    free(one);
    free(first);
    free(g);
}

static void silu_rows(void **state)
{
    (void)state;
    enum { R = 3, N = 83, LD = 90 };
    uint64_t seed = 5;
    float *g = krand_floats(&seed, R * LD, 4);
    float *u = krand_floats(&seed, R * LD, 4);
    for (int s = 0; s < n_isas; s++) {
        for (int nt = 1; nt < 8; nt++) {
            float y[R * LD];
            memcpy(y, g, sizeof y);
            for (int tid = 0; tid < nt; tid++) {
                isas[s]->silu_mul(y, u, LD, R, N, tid, nt);
            }
            for (int i = 0; i < R * LD; i++) {
                double v = (double)g[i];
                double want = i % LD < N ? v / (1 + exp(-v)) * (double)u[i] : v;
                assert_close(y[i], want, 1e-6);
            }
        }
    }
    free(g);
    free(u);
}

int main(void)
{
    n_isas = kernel_isas(isas);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(silu_range),
        cmocka_unit_test(silu_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
