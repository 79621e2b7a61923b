/* Needles: keys and values planted among random ones come back, at every depth, in every
 * cache format. A query asks for its needle by the key's direction; the sum of values is
 * then the needle's, and no other needle's. */
#include "config.h"

#include <math.h>

#include "kcommon.h"
#include "kernels/kvq.h"

enum { D = BE_HEAD_DIM, HEADS = 8, NEEDLES = 64, STEP = 64 };

static const struct cpu_isa *isas[3];
static int n_isas;

struct field {
    int n; /* rows, the last of which asks */
    enum be_kv kv;
    int32_t *pages;
    uint8_t *cache;
    float *rot, *ones;
    int depth[NEEDLES];
    float key[NEEDLES][D], value[NEEDLES][D];
};

static void random_row(uint64_t *seed, float *x)
{
    for (int i = 0; i < D; i++) {
        x[i] = krandf(seed) + krandf(seed) + krandf(seed);
    }
}

/* Rows at .. at + n of one key head; queries of 8 heads come with the last one. */
static void call(const struct cpu_isa *isa, struct field *f, int at, int n, const float *k,
                 const float *v, float *q, float *o)
{
    struct cpu_row row[STEP];
    float *scratch = calloc(cpu_scratch_floats(D), sizeof *scratch);
    assert_non_null(scratch);
    for (int i = 0; i < n; i++) {
        row[i] = (struct cpu_row){f->pages, at + i};
    }
    const struct attn_args a = {.rows = n,
                                .q_heads = HEADS,
                                .kv_heads = 1,
                                .row = row,
                                .q = q,
                                .k = k,
                                .v = v,
                                .o = o,
                                .rot = f->rot,
                                .q_norm = f->ones,
                                .k_norm = f->ones,
                                .eps = 1e-6F,
                                .kv = f->kv,
                                .kv_only = q == NULL,
                                .cache = f->cache,
                                .page_size = BE_PAGE * be_kv_bytes(f->kv, 1)};
    isa->attn_append(&a, 0, 1);
    if (q) {
        isa->attn(&a, scratch, 0, 1);
    }
    free(scratch);
}

/* Depths from both ends, at edges of pages, and everywhere else. */
static void plant(struct field *f, uint64_t *seed)
{
    static const int edges[] = {0, 1, 63, 64, 255, 256, 257, 511, 512};
    for (int i = 0; i < NEEDLES; i++) {
        const int from_end = i - 9;
        f->depth[i] = i < 9          ? edges[i]
                      : from_end < 5 ? f->n - 2 - from_end * from_end
                                     : 600 + (int)((int64_t)(i - 14) * (f->n - 700) / 50);
        random_row(seed, f->key[i]);
        random_row(seed, f->value[i]);
    }
}

static void grow(const struct cpu_isa *isa, struct field *f, uint64_t *seed)
{
    float k[STEP][D], v[STEP][D];
    for (int at = 0; at < f->n - 1; at += STEP) {
        const int n = f->n - 1 - at < STEP ? f->n - 1 - at : STEP;
        for (int i = 0; i < n; i++) {
            random_row(seed, k[i]);
            random_row(seed, v[i]);
            for (int j = 0; j < NEEDLES; j++) {
                if (f->depth[j] == at + i) {
                    memcpy(k[i], f->key[j], sizeof k[i]);
                    memcpy(v[i], f->value[j], sizeof v[i]);
                }
            }
        }
        call(isa, f, at, n, k[0], v[0], NULL, NULL);
    }
}

static double cosine(const float *a, const float *b)
{
    double ab = 0, aa = 0, bb = 0;
    for (int i = 0; i < D; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

static void ask(const struct cpu_isa *isa, struct field *f, uint64_t *seed)
{
    /* Of 3 bits on both sides the cosine of one row is 0.983. */
    const double least = f->kv == BE_KV_K3V3 || f->kv == BE_KV_K5V3 ? 0.95 : 0.97;
    for (int from = 0; from < NEEDLES; from += HEADS) {
        float q[HEADS][2 * D], o[HEADS][D], k[D], v[D];
        random_row(seed, k);
        random_row(seed, v);
        for (int h = 0; h < HEADS; h++) {
            memcpy(q[h], f->key[from + h], D * sizeof(float));
            for (int i = 0; i < D; i++) {
                q[h][D + i] = 20; /* an open gate */
            }
        }
        call(isa, f, f->n - 1, 1, k, v, q[0], o[0]);
        for (int h = 0; h < HEADS; h++) {
            for (int j = 0; j < NEEDLES; j++) {
                const double c = cosine(o[h], f->value[j]);
                if (j == from + h ? !(c > least) : !(fabs(c) < 0.5)) {
                    fail_msg("%s, %s: asked for depth %d, depth %d has a cosine of %.4f",
                             be_kv_name(f->kv), isa->name, f->depth[from + h], f->depth[j], c);
                }
            }
        }
    }
}

static void every_depth(void **state)
{
    (void)state;
    const int n = getenv("QUASAR_LONG") ? 131072 + 77 : 8192 + 77;
    for (int kv = BE_KV_F32; kv <= BE_KV_K3V3; kv++) {
        struct field f = {.n = n, .kv = (enum be_kv)kv};
        const int pages = (n + BE_PAGE - 1) / BE_PAGE;
        uint64_t seed = 31;
        f.pages = calloc((size_t)pages, sizeof *f.pages);
        f.cache = malloc((size_t)pages * BE_PAGE * be_kv_bytes(f.kv, 1));
        f.rot = calloc(STEP * BE_ROT_DIM, sizeof *f.rot);
        f.ones = calloc(D, sizeof *f.ones);
        assert_true(f.pages && f.cache && f.rot && f.ones);
        for (int i = 0; i < pages; i++) {
            f.pages[i] = pages - 1 - i;
        }
        for (int i = 0; i < STEP * BE_ROT_DIM; i++) {
            f.rot[i] = i % BE_ROT_DIM < BE_ROT_DIM / 2; /* turned by nothing */
        }
        for (int i = 0; i < D; i++) {
            f.ones[i] = 1;
        }
        plant(&f, &seed);
        grow(isas[0], &f, &seed);
        for (int i = 0; i < n_isas; i++) { /* all read what one stored */
            ask(isas[i], &f, &seed);
        }
        free(f.pages);
        free(f.cache);
        free(f.rot);
        free(f.ones);
    }
}

int main(void)
{
    n_isas = kernel_isas(isas);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_depth)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
