/* Drawing tokens against a plain double-precision reading of docs/sampling.md, and
 * the arithmetic under it against the C library's. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kcommon.h"
#include "kernels/sample.h"
#include "kernels/sample_math.h"

enum { MAX_V = 700, MAX_EDITS = 64 };

/* ---- the reference ---- */

struct entry {
    float x;
    int id;
};

static int by_rank(const void *a, const void *b)
{
    const struct entry *x = a;
    const struct entry *y = b;
    if (x->x != y->x) {
        return x->x > y->x ? -1 : 1;
    }
    return (x->id > y->id) - (x->id < y->id);
}

static const struct be_edit *edit_for(const struct be_sample *s, int id)
{
    for (int i = 0; i < s->n_over; i++) {
        if (s->over[i].id == id) {
            return &s->over[i];
        }
    }
    for (int i = 0; i < s->n_edit; i++) {
        if (s->edit[i].id == id) {
            return &s->edit[i];
        }
    }
    return NULL;
}

/* Steps 1 to 6 in fp32 (exact: in double). */
static double adjusted(float logit, const struct be_sample *s, int id, bool exact)
{
    const struct be_edit *x = edit_for(s, id);
    if (s->allow && !(s->allow[id / 32] & 1U << id % 32)) {
        return -INFINITY;
    }
    double d = (double)logit;
    float l = logit;
    if (x) {
        if (x->flags & BE_BAN) {
            return -INFINITY;
        }
        d += (double)x->bias;
        l += x->bias;
        if (x->flags & BE_SEEN) {
            d = d > 0 ? d / (double)s->repetition : d * (double)s->repetition;
            l = l > 0 ? l / s->repetition : l * s->repetition;
        }
        d -= (double)s->frequency * x->count;
        float f = s->frequency * (float)x->count;
        l -= f;
        if (x->count > 0) {
            d -= (double)s->presence;
            l -= s->presence;
        }
    }
    if (s->temp < 1e-5F) {
        return exact ? d : (double)l;
    }
    const float t = s->temp < 0.01F ? 0.01F : s->temp;
    l /= t;
    return exact ? d / (double)t : (double)l;
}

/* The survivors and their chances. False: the cut is too close to tell. */
static bool reference(const float *logits, int v, const struct be_sample *s, double *p)
{
    struct entry e[MAX_V];
    for (int i = 0; i < v; i++) {
        e[i] = (struct entry){(float)adjusted(logits[i], s, i, false), i};
        p[i] = 0;
    }
    qsort(e, (size_t)v, sizeof *e, by_rank);
    if (e[0].x == -INFINITY) {
        return true;
    }
    int n = 0;
    while (n < v && e[n].x > -INFINITY) {
        n++;
    }
    if (s->temp < 1e-5F) {
        p[e[0].id] = 1;
        return true;
    }
    if (s->min_p > 0) {
        int k = 1;
        while (k < n && e[k].x >= e[0].x + (float)log((double)s->min_p)) {
            k++;
        }
        n = k;
    }
    if (s->top_k > 0 && s->top_k < n) {
        int k = s->top_k;
        while (k < n && e[k].x == e[s->top_k - 1].x) {
            k++;
        }
        n = k;
    }
    bool sure = true;
    if (s->top_p < 1) {
        double total = 0, above = 0;
        for (int i = 0; i < n; i++) {
            total += exp((double)e[i].x - (double)e[0].x);
        }
        int k = 0;
        while (k < n && (k == 0 || above / total < (double)s->top_p)) {
            above += exp((double)e[k++].x - (double)e[0].x);
            const double off = fabs(above / total - (double)s->top_p);
            sure = sure && (off > 1e-8 || off == 0);
        }
        n = k;
    }
    double total = 0;
    /* Dividing by a hundredth leaves no room in fp32 for 1e-6: there from what it gives. */
    const bool exact = s->temp > 0.1F;
    const double top = adjusted(logits[e[0].id], s, e[0].id, exact);
    for (int i = 0; i < n; i++) {
        p[e[i].id] = exp(adjusted(logits[e[i].id], s, e[i].id, exact) - top);
        total += p[e[i].id];
    }
    for (int i = 0; i < n; i++) {
        p[e[i].id] /= total;
    }
    return sure;
}

/* The likeliest with noise, from the definition of the noise. */
static int32_t reference_draw(const struct sample_kept *k, const double *p,
                              const struct be_sample *s)
{
    int32_t best = -1;
    float most = 0;
    for (int32_t i = 0; i < k->n; i++) {
        if (p[i] > 0) {
            float x = k->x[i];
            if (s->temp >= 1e-5F) {
                x += sm_gumbel(philox_word(s->seed, s->pos, PHILOX_TARGET, (uint32_t)i));
            }
            if (best < 0 || x > most) {
                best = i;
                most = x;
            }
        }
    }
    return best;
}

/* ---- random rows and parameters ---- */

struct fixture {
    float l[MAX_V];
    int v;
    struct be_edit edit[MAX_EDITS], over[MAX_EDITS];
    uint32_t allow[(MAX_V + 31) / 32];
    struct be_sample s;
    float work[2 * (MAX_V + 64) + 32];
};

static void make_row(struct fixture *f, uint64_t *seed, int kind)
{
    f->v = 1 + (int)(krand(seed) % (kind % 16 ? 60 : MAX_V));
    /* Coarse values make ties at every cut. */
    const float grain = kind % 3 ? 0 : 0.5F;
    for (int j = 0; j < f->v; j++) {
        float x = krandf(seed) * 6;
        f->l[j] = grain > 0 ? floorf(x / grain) * grain : x;
        if (kind % 5 == 0 && krand(seed) % 3 == 0) {
            f->l[j] = -INFINITY;
        }
    }
    f->l[krand(seed) % (uint32_t)f->v] = 1;
}

static int make_edits(struct be_edit *e, int v, uint64_t *seed)
{
    int n = 0;
    const int step = 1 + (int)(krand(seed) % 7);
    for (int id = (int)(krand(seed) % 3); id < v && n < MAX_EDITS; id += step) {
        const uint32_t r = krand(seed);
        e[n++] = (struct be_edit){.id = id,
                                  .bias = r & 1 ? 0 : krandf(seed) * 3,
                                  .count = r & 2 ? 0 : r >> 8 & 3,
                                  .flags = (r & 4 ? BE_SEEN : 0U) | (r % 11 == 0 ? BE_BAN : 0U)};
    }
    return n;
}

static void make_rules(struct fixture *f, uint64_t *seed, int kind)
{
    static const float reps[] = {1, 1.1F, 0.8F, 2}, pens[] = {0, 0.5F, -1, 2};
    f->s.repetition = reps[kind % 4];
    f->s.frequency = pens[kind / 4 % 4];
    f->s.presence = pens[kind / 16 % 4];
    f->s.edit = f->edit;
    f->s.over = f->over;
    f->s.n_edit = kind % 2 ? make_edits(f->edit, f->v, seed) : 0;
    f->s.n_over = kind % 3 == 0 ? make_edits(f->over, f->v, seed) : 0;
    if (kind % 7 == 3) {
        for (size_t i = 0; i < sizeof f->allow / sizeof *f->allow; i++) {
            f->allow[i] = kind % 14 == 3 ? krand(seed) : 0;
        }
        const uint32_t one = krand(seed) % (uint32_t)f->v; /* or all but one are masked */
        f->allow[one / 32] |= 1U << one % 32;
        f->s.allow = f->allow;
    }
}

/* ---- tests ---- */

/* Every combination of the filters' settings, with and without rules: the survivors
 * are the same, their chances within 1e-6, and the draw follows. */
static void filters(void **state)
{
    (void)state;
    static const float temps[] = {0, 1e-6F, 0.005F, 0.7F, 1, 1.5F};
    static const int top_ks[] = {0, -1, 1, 5, 20, MAX_V};
    static const float top_ps[] = {1, 0.95F, 0.5F, 0.01F, 0.99999994F};
    static const float min_ps[] = {0, 0.05F, 1};
    enum { COMBOS = 6 * 6 * 5 * 3 };
    struct fixture f;
    double p[MAX_V], want[MAX_V];
    uint64_t seed = 1;
    const int rounds = getenv("QUASAR_LONG") ? 400 : 40;
    int unsure = 0, cut = 0;
    double worst = 0;
    for (int i = 0; i < COMBOS * rounds; i++) {
        const int c = i % COMBOS;
        make_row(&f, &seed, i / COMBOS);
        f.s = (struct be_sample){
            .temp = temps[c % 6],
            .top_k = top_ks[c / 6 % 6],
            .top_p = top_ps[c / 36 % 5],
            .min_p = min_ps[c / 180],
            .seed = (uint64_t)krand(&seed) << 32 | krand(&seed),
            .pos = krand(&seed),
            .repetition = 1,
        };
        if (i / COMBOS % 2) {
            make_rules(&f, &seed, (int)(krand(&seed) % 4096));
        }
        struct sample_kept k;
        sample_filter(f.l, f.v, &f.s, f.work, &k);
        const int32_t drawn = sample_draw(&k, &f.s, PHILOX_TARGET, -1);
        sample_probs(&k, &f.s, p);
        if (!reference(f.l, f.v, &f.s, want)) {
            unsure++;
            continue;
        }
        for (int j = 0; j < f.v; j++) {
            assert_int_equal(p[j] > 0, want[j] > 0);
            worst = fabs(p[j] - want[j]) > worst ? fabs(p[j] - want[j]) : worst;
            cut += want[j] == 0;
        }
        assert_int_equal(drawn, reference_draw(&k, want, &f.s));
        assert_int_equal(sample_row(f.l, f.v, &f.s, f.work), drawn);
    }
    printf("# %d rows of %d combinations, %d too close to tell, largest difference %.2g\n",
           COMBOS * rounds, COMBOS, unsure, worst);
    assert_true(worst < 1e-6);
    assert_true(unsure < COMBOS * rounds / 400 && cut > 1000);
}

/* Wide rows reach what short ones do not: many runs, whole octaves of candidates. */
static void wide_rows(void **state)
{
    (void)state;
    enum { V = 5000 };
    static float l[V], work[2 * (V + 64) + 400];
    static struct entry e[V];
    uint64_t seed = 9;
    for (int i = 0; i < 60; i++) {
        const float spread = i % 3 == 0 ? 0.1F : i % 3 == 1 ? 2 : 8;
        for (int j = 0; j < V; j++) {
            l[j] = krandf(&seed) * spread;
            e[j] = (struct entry){l[j], j};
        }
        qsort(e, V, sizeof *e, by_rank);
        const int tk = i % 4 == 0 ? 0 : 1 + (int)(krand(&seed) % V);
        struct be_sample s = {.temp = 1, .top_p = 0.3F + 0.07F * (float)(i % 10), .top_k = tk};
        struct sample_kept k;
        sample_filter(l, V, &s, work, &k);
        const int n = tk ? tk : V;
        double total = 0, above = 0;
        for (int j = 0; j < n; j++) {
            total += exp((double)e[j].x);
        }
        for (int j = 0; j < V; j++) {
            const bool in = j < n && (j == 0 || above / total < (double)s.top_p);
            assert_int_equal(sample_keeps(&k, e[j].id), in);
            above += exp((double)e[j].x);
        }
    }
}

/* Neutral settings change no bit of x, and leave the plain draw untouched. */
static void neutral(void **state)
{
    (void)state;
    struct fixture f;
    uint64_t seed = 2;
    for (int i = 0; i < 500; i++) {
        make_row(&f, &seed, 1);
        f.s = (struct be_sample){.temp = 1, .top_p = 1, .seed = 5, .pos = (uint32_t)i};
        const int32_t id = sample_row(f.l, f.v, &f.s, f.work);
        f.s.top_k = f.v;
        f.s.repetition = 1;
        memset(f.allow, 0xff, sizeof f.allow);
        f.s.allow = f.allow;
        for (int j = 0; j < f.v && j < MAX_EDITS; j++) {
            f.edit[j] = (struct be_edit){.id = j, .count = 3, .flags = BE_SEEN};
        }
        f.s.edit = f.edit;
        f.s.n_edit = f.v < MAX_EDITS ? f.v : MAX_EDITS;
        struct sample_kept k;
        sample_filter(f.l, f.v, &f.s, f.work, &k);
        for (int j = 0; j < f.v; j++) {
            assert_true(memcmp(&k.x[j], &f.l[j], sizeof f.l[j]) == 0 || f.l[j] == 0);
        }
        assert_int_equal(sample_draw(&k, &f.s, PHILOX_TARGET, -1), id);
    }
}

static void ties_and_masks(void **state)
{
    (void)state;
    float work[256];
    const float same[] = {2, 3, 3, 3};
    const struct be_sample greedy = {.top_p = 1};
    assert_int_equal(sample_row(same, 4, &greedy, work), 1);
    const float one[] = {-INFINITY, -INFINITY, -5, -INFINITY};
    for (uint32_t i = 0; i < 100; i++) {
        const struct be_sample s = {.temp = 1, .top_p = 0.9F, .top_k = 2, .pos = i};
        assert_int_equal(sample_row(one, 4, &s, work), 2);
    }
    /* Half of four equals: the two lowest ids. */
    const float equal[] = {1, 1, 1, 1};
    struct be_sample half = {.temp = 1, .top_p = 0.5F};
    struct sample_kept k;
    sample_filter(equal, 4, &half, work, &k);
    assert_true(sample_keeps(&k, 0) && sample_keeps(&k, 1));
    assert_false(sample_keeps(&k, 2) || sample_keeps(&k, 3));
    /* Nothing left, nothing drawn; what is no number is never drawn. */
    const float none[] = {-INFINITY, NAN, -INFINITY, NAN};
    assert_int_equal(sample_row(none, 4, &half, work), -1);
    assert_int_equal(sample_row(none + 2, 1, &greedy, work), -1);
    const float some[] = {NAN, 0, -1, NAN};
    assert_int_equal(sample_row(some, 4, &greedy, work), 1);
    for (half.pos = 0; half.pos < 50; half.pos++) {
        assert_in_range(sample_row(some, 4, &half, work), 1, 2);
    }
    /* Extremes stay in order. */
    const float far[] = {-3e38F, 3e38F, 0, 1e6F};
    const struct be_sample cold = {.temp = 0.02F, .top_p = 0.9F, .min_p = 0.1F};
    assert_int_equal(sample_row(far, 4, &cold, work), 1);
}

static void arithmetic(void **state)
{
    (void)state;
    uint64_t seed = 3;
    double log_err = 0, gumbel_err = 0, mass_err = 0;
    for (int i = 0; i < 400000; i++) {
        const uint32_t w = i < 1000   ? (uint32_t)i
                           : i < 2000 ? ~(uint32_t)(i - 1000)
                                      : krand(&seed) >> krand(&seed) % 31;
        const float x = sm_float(0x2F000000U + w % 0x13000000U);
        const double l = log((double)x);
        const double ulp = fabs(l) * 0x1p-23 + 1e-45;
        const double off = fabs((double)sm_log(x) - l) / ulp;
        log_err = off > log_err ? off : log_err;

        double v = ((double)w + 0.5) * 0x1p-32;
        v = v > 1 - 0x1p-24 ? 1 - 0x1p-24 : v;
        const double g = -log(-log1p(-v));
        const float got = sm_gumbel(w);
        /* An ulp of v is all that the losing end resolves. */
        const double slack = 1e-6 + 0x1p-24 / ((1 - v) * -log1p(-v));
        gumbel_err =
            fabs((double)got - g) / slack > gumbel_err ? fabs((double)got - g) / slack : gumbel_err;
        assert_true(got <= sm_gumbel_bound(w) && got <= SM_GUMBEL_MAX);

        const float t = krandf(&seed) * 40;
        const int64_t y = sm_power(t);
        const double want = exp((double)t);
        const double have = ldexp((double)sm_mass(y), sm_octave(y) - 32);
        mass_err = fabs(have / want - 1) > mass_err ? fabs(have / want - 1) : mass_err;
    }
    printf("# ln: %.2f ulp; noise: %.2f of its bound; masses: %.2g\n", log_err, gumbel_err,
           mass_err);
    assert_true(log_err < 2 && gumbel_err < 1 && mass_err < 2e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters),        cmocka_unit_test(wide_rows),  cmocka_unit_test(neutral),
        cmocka_unit_test(ties_and_masks), cmocka_unit_test(arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
