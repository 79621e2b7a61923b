/* Drawing tokens against a plain double-precision reading of docs/sampling.md. */
#include "config.h"

#include <math.h>

#include "base/philox.h"
#include "kcommon.h"
#include "kernels/sample.h"

enum { MAX_V = 700 };

struct entry {
    float l;
    int id;
};

static int by_rank(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    if (x->l != y->l) {
        return x->l > y->l ? -1 : 1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

static int32_t reference(const float *logits, int v, const struct be_sample *s)
{
    struct entry e[MAX_V];
    const float temp = s->temp < 0.01F ? 0.01F : s->temp;
    for (int i = 0; i < v; i++) {
        e[i] = (struct entry){s->temp < 1e-5F ? logits[i] : logits[i] / temp, i};
    }
    qsort(e, (size_t)v, sizeof *e, by_rank);
    if (s->temp < 1e-5F) {
        return e[0].id;
    }
    int n = 0;
    while (n < v && e[n].l > -INFINITY &&
           (s->min_p <= 0 || n == 0 || e[n].l >= e[0].l + logf(s->min_p))) {
        n++;
    }
    if (s->top_k > 0 && s->top_k < n) {
        int k = s->top_k;
        while (k < n && e[k].l == e[s->top_k - 1].l) {
            k++;
        }
        n = k;
    }
    if (s->top_p < 1) {
        double total = 0;
        double above = 0;
        for (int i = 0; i < n; i++) {
            total += exp((double)e[i].l - (double)e[0].l);
        }
        int k = 0;
        while (k < n && (k == 0 || above / total < (double)s->top_p)) {
            above += exp((double)e[k++].l - (double)e[0].l);
        }
        n = k;
    }
    int best = -1;
    float most = 0;
    for (int i = 0; i < n; i++) {
        uint32_t w = philox_word(s->seed, s->pos, PHILOX_TARGET, (uint32_t)e[i].id);
        float x = e[i].l + philox_gumbel(w);
        if (best < 0 || x > most || (x == most && e[i].id < best)) {
            best = e[i].id;
            most = x;
        }
    }
    return best;
}

static void filters(void **state)
{
    (void)state;
    const float temps[] = {0, 1e-6F, 0.005F, 0.7F, 1, 1.5F};
    const int top_ks[] = {0, 1, 5, 20, MAX_V};
    const float top_ps[] = {1, 0.95F, 0.5F, 0.01F};
    const float min_ps[] = {0, 0.05F, 1};
    struct sample_entry heap[MAX_V];
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        float l[MAX_V];
        const int v = 1 + (int)(krand(&seed) % (i % 16 ? 60 : MAX_V));
        /* Coarse values make ties at every cut. */
        const float grain = i % 3 ? 0 : 0.5F;
        for (int j = 0; j < v; j++) {
            float x = krandf(&seed) * 6;
            l[j] = grain > 0 ? floorf(x / grain) * grain : x;
            if (i % 5 == 0 && krand(&seed) % 3 == 0) {
                l[j] = -INFINITY;
            }
        }
        l[krand(&seed) % (uint32_t)v] = 1;
        const struct be_sample s = {
            .temp = temps[krand(&seed) % 6],
            .top_k = top_ks[krand(&seed) % 5],
            .top_p = top_ps[krand(&seed) % 4],
            .min_p = min_ps[krand(&seed) % 3],
            .seed = (uint64_t)krand(&seed) << 32 | krand(&seed),
            .pos = krand(&seed),
        };
        assert_int_equal(sample_row(l, v, &s, heap), reference(l, v, &s));
    }
}

/* Neutral filters leave the plain draw untouched. */
static void neutral(void **state)
{
    (void)state;
    struct sample_entry heap[200];
    uint64_t seed = 2;
    for (int i = 0; i < 500; i++) {
        float l[200];
        for (int j = 0; j < 200; j++) {
            l[j] = krandf(&seed) * 3;
        }
        struct be_sample s = {.temp = 1, .top_p = 1, .seed = 5, .pos = (uint32_t)i};
        int32_t id = sample_row(l, 200, &s, heap);
        s.top_k = 200;
        assert_int_equal(sample_row(l, 200, &s, heap), id);
    }
}

/* The law: counts of 40,000 draws from softmax(l / T) against their chance. */
static void law(void **state)
{
    (void)state;
    enum { V = 8, N = 40000 };
    const float l[V] = {0, 1, 2, -1, 0.5F, 1.5F, -3, -INFINITY};
    struct sample_entry heap[V];
    int count[V] = {0};
    double p[V];
    double total = 0;
    for (int i = 0; i < V; i++) {
        p[i] = exp((double)l[i] / 0.8);
        total += p[i];
    }
    for (uint32_t i = 0; i < N; i++) {
        const struct be_sample s = {.temp = 0.8F, .top_p = 1, .seed = 42, .pos = i};
        count[sample_row(l, V, &s, heap)]++;
    }
    double chi = 0;
    for (int i = 0; i < V - 1; i++) {
        double want = N * p[i] / total;
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    assert_int_equal(count[V - 1], 0);
    assert_true(chi < 22.5); /* 6 degrees of freedom, p = 0.001 */
}

static void ties_and_masks(void **state)
{
    (void)state;
    struct sample_entry heap[4];
    const float same[] = {2, 3, 3, 3};
    const struct be_sample greedy = {.top_p = 1};
    assert_int_equal(sample_row(same, 4, &greedy, heap), 1);
    const float one[] = {-INFINITY, -INFINITY, -5, -INFINITY};
    for (uint32_t i = 0; i < 100; i++) {
        const struct be_sample s = {.temp = 1, .top_p = 0.9F, .top_k = 2, .pos = i};
        assert_int_equal(sample_row(one, 4, &s, heap), 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters),
        cmocka_unit_test(neutral),
        cmocka_unit_test(law),
        cmocka_unit_test(ties_and_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
