/* Matrix products and embedding rows against double precision: dtypes, shapes,
 * tails, gathers, norms, threads; and bit equality over row counts and paths. */
#include "config.h"

#include <math.h>

#include "kcommon.h"

static const struct cpu_isa *isas[3];
static int n_isas;

static const enum dtype dtypes[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_G128, DT_Q4_G64};
enum { MAX_ROWS = 45, LD = 70 };

static void run(const struct cpu_isa *isa, const struct mm_in *in, const struct mm_out *out, int n,
                int nt)
{
    float *scratch = calloc(cpu_scratch_floats(in->k), sizeof *scratch);
    assert_non_null(scratch);
    for (int tid = 0; tid < nt; tid++) {
        isa->matmul(in, out, n, scratch, tid, nt);
    }
    free(scratch);
}

/* Row r of the input as the product sees it. */
static void input_row(const struct mm_in *in, int r, double *x)
{
    const float *src = in->x + (size_t)(in->index ? in->index[r] : r) * in->ldx;
    double sum = 0;
    for (int i = 0; i < in->k; i++) {
        sum += (double)src[i] * (double)src[i];
    }
    double scale = 1 / sqrt(sum / in->k + (double)in->eps);
    for (int i = 0; i < in->k; i++) {
        x[i] = (double)src[i] * (in->norm ? scale * (double)in->norm[i] : 1);
    }
}

static void check(const struct mm_in *in, const struct mm_out *m, const float *before)
{
    double *x = calloc((size_t)in->k, sizeof *x);
    assert_non_null(x);
    for (int r = 0; r < in->rows; r++) {
        input_row(in, r, x);
        for (int o = 0; o < LD; o++) {
            size_t at = (size_t)r * LD + (size_t)o;
            if (o >= m->n_out) {
                assert_true(m->y[at] == before[at]); /* nothing written beyond */
                continue;
            }
            double sum = m->add ? (double)before[at] : 0;
            double size = 0;
            for (int i = 0; i < in->k; i++) {
                double p = x[i] * ktensor_at(m->w, o, i);
                sum += p;
                size += fabs(p);
            }
            assert_close(m->y[at], sum, 1e-6 * (1 + size));
        }
    }
    free(x);
}

static void shapes(void **state)
{
    (void)state;
    const int rows[] = {1, 2, 5, 6, 7, 13, 16, MAX_ROWS};
    const int outs[] = {1, 3, 4, 6, 16, 17, 63};
    uint64_t seed = 1;
    for (size_t d = 0; d < 5; d++) {
        const bool plain = dtype_group(dtypes[d]) == 1;
        const int ks[] = {dtypes[d] == DT_Q4_G64 ? 64 : 128, 384, plain ? 201 : 1152,
                          plain ? 7 : 256};
        for (int i = 0; i < 4; i++) {
            struct kmodel m = {0};
            const int k = ks[i];
            struct tensor w = kmodel_tensor(&m, &seed, dtypes[d], 63, k, 1);
            float *x = krand_floats(&seed, (size_t)MAX_ROWS * (size_t)(k + 3), 1);
            float *nw = krand_floats(&seed, (size_t)k, 2);
            float *before = krand_floats(&seed, MAX_ROWS * LD, 1);
            int32_t index[MAX_ROWS];
            for (int j = 0; j < MAX_ROWS; j++) {
                index[j] = (int32_t)(krand(&seed) % MAX_ROWS);
            }
            for (int c = 0; c < 8; c++) {
                struct mm_in in = {x, (size_t)k + 3, NULL, rows[c], k, NULL, 1e-6F};
                in.norm = c % 2 ? nw : NULL;
                in.index = c % 3 == 1 ? index : NULL;
                w.shape[0] = (uint64_t)outs[c % 7];
                float *first = NULL;
                for (int s = 0; s < n_isas; s++) {
                    float *y = malloc(MAX_ROWS * LD * sizeof *y);
                    assert_non_null(y);
                    memcpy(y, before, MAX_ROWS * LD * sizeof *y);
                    struct mm_out out = {&w, y, LD, outs[c % 7], c % 4 > 1};
                    run(isas[s], &in, &out, 1, 1 + (c + s) % 3);
                    check(&in, &out, before);
                    if (first && exact_isa(isas[s])) {
                        assert_memory_equal(y, first, MAX_ROWS * LD * sizeof *y);
                    }
                    if (first) {
                        free(y);
                    } else {
                        first = y;
                    }
                }
                free(first);
            }
            free(x);
            free(nw);
            free(before);
            kmodel_free(&m);
        }
    }
}

/* Every row alone, and any run of rows, equals its place in a large call. */
static void row_counts(void **state)
{
    (void)state;
    enum { K = 512, N = 37, R = 41 };
    uint64_t seed = 2;
    for (size_t d = 0; d < 5; d++) {
        struct kmodel m = {0};
        struct tensor w = kmodel_tensor(&m, &seed, dtypes[d], N, K, 1);
        float *x = krand_floats(&seed, R * K, 1);
        for (int s = 0; s < n_isas; s++) {
            float all[R * N];
            float some[R * N];
            struct mm_in in = {x, K, NULL, R, K, NULL, 0};
            struct mm_out out = {&w, all, N, N, false};
            run(isas[s], &in, &out, 1, 1);
            for (int first = 0; first < R; first++) {
                int n = first < R / 2 ? 1 : 1 + (int)(krand(&seed) % (uint32_t)(R - first));
                in.x = x + first * K;
                in.rows = n;
                out.y = some;
                run(isas[s], &in, &out, 1, 1 + first % 4);
                assert_memory_equal(some, all + first * N, (size_t)(n * N) * sizeof(float));
            }
        }
        free(x);
        kmodel_free(&m);
    }
}

/* Several products of one input, of mixed types, in one call. */
static void groups(void **state)
{
    (void)state;
    enum { K = 256, R = 9 };
    uint64_t seed = 3;
    struct kmodel m = {0};
    struct tensor w[5];
    float *x = krand_floats(&seed, R * K, 1);
    for (int d = 0; d < 5; d++) {
        w[d] = kmodel_tensor(&m, &seed, dtypes[4 - d], 20 + d, K, 1);
    }
    for (int s = 0; s < n_isas; s++) {
        for (int rows = 1; rows <= R; rows += 4) {
            float together[5][R * 24];
            float alone[R * 24];
            struct mm_out out[5];
            struct mm_in in = {x, K, NULL, rows, K, NULL, 0};
            for (int d = 0; d < 5; d++) {
                out[d] = (struct mm_out){&w[d], together[d], 24, 20 + d, false};
            }
            run(isas[s], &in, out, 5, 2);
            for (int d = 0; d < 5; d++) {
                struct mm_out one = out[d];
                one.y = alone;
                run(isas[s], &in, &one, 1, 1);
                for (int r = 0; r < rows; r++) {
                    assert_memory_equal(alone + r * 24, together[d] + r * 24,
                                        (size_t)(20 + d) * sizeof(float));
                }
            }
        }
    }
    free(x);
    kmodel_free(&m);
}

static void embedding(void **state)
{
    (void)state;
    uint64_t seed = 4;
    const int32_t ids[] = {0, 18, 7, 7};
    for (size_t d = 0; d < 5; d++) {
        const int k = dtype_group(dtypes[d]) == 1 ? 57 : 256;
        struct kmodel m = {0};
        struct tensor w = kmodel_tensor(&m, &seed, dtypes[d], 19, k, 1);
        for (int s = 0; s < n_isas; s++) {
            float out[4 * 260];
            for (int tid = 0; tid < 3; tid++) {
                isas[s]->embed(&w, ids, 4, out, 260, tid, 3);
            }
            for (int i = 0; i < 4; i++) {
                for (int c = 0; c < k; c++) {
                    assert_true((double)out[i * 260 + c] == ktensor_at(&w, ids[i], c));
                }
            }
        }
        kmodel_free(&m);
    }
}

int main(void)
{
    n_isas = kernel_isas(isas);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(row_counts),
        cmocka_unit_test(groups),
        cmocka_unit_test(embedding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
