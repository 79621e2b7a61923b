/*
 * What is drawn follows the law it should: by plain draws, by rejection of drafts
 * that are fixed or drawn, and by drawing with the target's noise and comparing. On
 * one pair of rows against the exact law, and on a small made-up language model with
 * rules, speculating against not. The same tests must notice four known mistakes.
 * Seeds are fixed; QUASAR_LONG draws more often.
 */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "chi2.h"
#include "engine/rules.h"
#include "kernels/accept.h"
#include "kernels/sample.h"

enum { MAX_V = 64, DEPTH = 3, WORK = 4 * MAX_V + 8 };
enum mode { PLAIN, FIXED, DRAWN, SAME };
enum fault { NONE, UNFILTERED, SHARED_NOISE, NO_SUBTRACTION, PENALTY_BLIND };

static bool is_long(void)
{
    return getenv("QUASAR_LONG") != NULL;
}

/* A standard normal number from a hash of what it stands for. */
static float normal(uint64_t key, uint32_t a, uint32_t b)
{
    const double u = ((double)philox_word(key, a, PHILOX_TARGET, b) + 0.5) * 0x1p-32;
    const double v = ((double)philox_word(key, a, PHILOX_ACCEPT, b) + 0.5) * 0x1p-32;
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

/* One row, filtered, with its distribution. */
struct row {
    float work[WORK];
    struct be_sample s;
    struct sample_kept kept;
    double p[MAX_V];
};

static void make_row(struct row *r, const float *logits, int v, const struct be_sample *s)
{
    r->s = *s;
    sample_filter(logits, v, &r->s, r->work, &r->kept);
    sample_probs(&r->kept, &r->s, r->p);
}

/* As accept_chain, with a mistake in it. */
static int faulty_chain(const struct accept_row *row, const int32_t *draft, int n, int32_t *next,
                        const double (*raw)[MAX_V], enum fault fault)
{
    for (int i = 0; i < n; i++) {
        const struct accept_row *r = &row[i];
        const uint32_t w = philox_word(r->s->seed, r->s->pos, PHILOX_ACCEPT, 0);
        const double u = ((double)w + 0.5) * 0x1p-32;
        const double p =
            fault == UNFILTERED ? (r->p[draft[i]] > 0 ? raw[i][draft[i]] : 0) : r->p[draft[i]];
        if (u * (r->q ? r->q[draft[i]] : 1) <= p) {
            continue;
        }
        *next = sample_draw(r->kept, r->s, PHILOX_TARGET,
                            r->q || fault == NO_SUBTRACTION ? -1 : draft[i]);
        *next = *next < 0 ? draft[i] : *next; /* it was the only one */
        return i;
    }
    *next = sample_draw(row[n].kept, row[n].s, PHILOX_TARGET, -1);
    return n;
}

/* ---- one row ---- */

static void exact_law(void **state)
{
    (void)state;
    const int n = is_long() ? 1000000 : 20000;
    double worst = 1;
    int tests = 0;
    for (int c = 0; c < 6; c++) {
        const int v = 16 + 9 * c;
        float l[MAX_V], lq[MAX_V];
        for (int i = 0; i < v; i++) {
            l[i] = 1.5F * normal(77, (uint32_t)c, (uint32_t)i);
            lq[i] = 0.7F * l[i] + normal(78, (uint32_t)c, (uint32_t)i);
        }
        struct be_sample s = {.temp = 0.6F + 0.2F * (float)c,
                              .top_p = c % 2 ? 0.9F : 1,
                              .top_k = c % 3 == 2 ? 12 : 0,
                              .min_p = c == 3 ? 0.02F : 0};
        struct be_sample sq = {.temp = 1, .top_p = 1, .top_k = c % 2 ? 10 : 0};
        for (enum mode m = PLAIN; m <= SAME; m++) {
            int count[MAX_V] = {0};
            struct row t = {0}, q = {0}, bonus = {0};
            for (int i = 0; i < n; i++) {
                s.seed = sq.seed = (uint64_t)i * 4 + (uint64_t)m;
                s.pos = sq.pos = 40 + (uint32_t)c;
                if (i == 0) {
                    make_row(&t, l, v, &s);
                    make_row(&q, lq, v, &sq);
                    make_row(&bonus, l, v, &s);
                }
                t.s.seed = q.s.seed = bonus.s.seed = s.seed;
                bonus.s.pos = s.pos + 1;
                int32_t draft = 3, id = -1;
                const int32_t plain = sample_draw(&t.kept, &t.s, PHILOX_TARGET, -1);
                if (m == DRAWN) {
                    draft = sample_draw(&q.kept, &q.s, PHILOX_DRAFT, -1);
                }
                const struct accept_row rows[2] = {
                    {&t.kept, &t.s, t.p, m == DRAWN ? q.p : NULL},
                    {&bonus.kept, &bonus.s, bonus.p, NULL},
                };
                if (m == PLAIN || m == SAME) {
                    id = plain; /* accepted or not, this is what comes */
                } else {
                    int32_t next = -1;
                    id = accept_chain(rows, &draft, 1, &next) == 1 ? draft : next;
                }
                count[id]++;
            }
            const double p = chi2_law(count, t.p, v, n);
            worst = p < worst ? p : worst;
            tests++;
        }
    }
    printf("# %d laws, smallest p %.3g\n", tests, worst);
    assert_true(worst > 0.05 / tests);
}

/* ---- a made-up language model ---- */

struct preset {
    const char *name;
    float temp, top_p, min_p;
    int top_k;
    struct engine_rules rules;
};

static const struct engine_bias biases[] = {{5, 1.5F}, {9, -2}};
static const int32_t bad_ids[] = {4, 7, 8}, bad_lens[] = {2, 1}, eos[] = {0};

static const struct preset presets[] = {
    {"thinking", 1, 0.95F, 0, 20, {.presence = 1.5F}},
    {"coding", 0.6F, 0.95F, 0, 20, {.presence = 0}},
    {"plain", 0.7F, 0.8F, 0, 20, {.presence = 1.5F}},
    {"hot", 1.3F, 1, 0.05F, 0, {.repetition = 1.4F, .frequency = 0.7F}},
    {"rules",
     1,
     0.9F,
     0,
     0,
     {.bias = biases,
      .n_bias = 2,
      .bad = bad_ids,
      .bad_len = bad_lens,
      .n_bad = 2,
      .min_tokens = 2,
      .stop = eos,
      .n_stop = 1,
      .repetition = 1.2F}},
};
enum { PRESETS = sizeof presets / sizeof *presets, PROMPTS = 2, V = 24, TOKENS = 5 };

/* Logits after the last two tokens; drafting: those of a worse model. */
static void model(const int32_t *ids, int n, bool drafting, float *l)
{
    static float table[2][V * V][V];
    static bool made[V * V];
    const uint32_t ctx = (uint32_t)(ids[n - 1] * V + ids[n - 2]);
    for (uint32_t i = 0; i < V && !made[ctx]; i++) {
        table[0][ctx][i] = 2 * normal(5, ctx, i) - (i == 0);
        table[1][ctx][i] = table[0][ctx][i] + 0.7F * normal(6, ctx, i);
    }
    made[ctx] = true;
    memcpy(l, table[drafting][ctx], sizeof table[0][0]);
}

struct text {
    int32_t ids[2 + TOKENS + DEPTH + 1];
    int n; /* the prompt's two too */
    int drafted, accepted;
};

static struct be_sample sample_of(const struct preset *p, uint64_t seed, int pos)
{
    return (struct be_sample){.temp = p->temp,
                              .top_p = p->top_p,
                              .min_p = p->min_p,
                              .top_k = p->top_k,
                              .seed = seed,
                              .pos = (uint32_t)pos};
}

/* False: the text is over. */
static bool put(struct text *t, struct rules *r, int32_t id)
{
    t->ids[t->n++] = id;
    rules_take(r, id);
    return id != 0 && t->n < 2 + TOKENS;
}

/* One round: DEPTH drafts, their rows, what is accepted and the token after it. */
static bool speculate(struct text *t, struct rules *r, const struct preset *p, uint64_t seed,
                      enum mode mode, enum fault fault)
{
    int32_t ids[2 + TOKENS + 2 * DEPTH];
    memcpy(ids, t->ids, (size_t)t->n * sizeof *ids);
    struct row q[DEPTH], rows[DEPTH + 1];
    double raw[DEPTH + 1][MAX_V];
    struct accept_row judge[DEPTH + 1];
    int32_t draws[DEPTH + 1];
    float l[V];
    int32_t *draft = ids + t->n;
    for (int j = 0; j < DEPTH; j++) {
        model(ids, t->n + j, true, l);
        struct be_sample s = sample_of(p, seed, t->n + j);
        s.top_p = 1;
        s.top_k = 8;
        s.temp = mode == DRAWN ? s.temp : 0;
        make_row(&q[j], l, V, &s);
        draft[j] = sample_draw(&q[j].kept, &q[j].s,
                               fault == SHARED_NOISE ? PHILOX_TARGET : PHILOX_DRAFT, -1);
    }
    for (int j = 0; j <= DEPTH; j++) {
        model(ids, t->n + j, false, l);
        struct be_sample s = sample_of(p, seed, t->n + j);
        rules_row(r, draft, fault == PENALTY_BLIND ? 0 : j, &s);
        make_row(&rows[j], l, V, &s);
        draws[j] = sample_draw(&rows[j].kept, &rows[j].s, PHILOX_TARGET, -1);
        judge[j] = (struct accept_row){&rows[j].kept, &rows[j].s, rows[j].p,
                                       mode == DRAWN && j < DEPTH ? q[j].p : NULL};
        if (fault == UNFILTERED) {
            struct row all;
            s.top_k = 0;
            s.top_p = 1;
            s.min_p = 0;
            make_row(&all, l, V, &s);
            memcpy(raw[j], all.p, sizeof all.p);
        }
    }
    int32_t next = -1;
    int n = 0;
    if (mode == SAME) {
        while (n < DEPTH && draws[n] == draft[n]) {
            n++;
        }
        next = draws[n];
    } else if (fault == UNFILTERED || fault == NO_SUBTRACTION) {
        n = faulty_chain(judge, draft, DEPTH, &next, (const double(*)[MAX_V])raw, fault);
    } else {
        n = accept_chain(judge, draft, DEPTH, &next);
    }
    t->drafted += DEPTH;
    t->accepted += n;
    for (int j = 0; j < n; j++) {
        if (!put(t, r, draft[j])) {
            return false;
        }
    }
    return put(t, r, next);
}

static void write_text(struct text *t, const struct preset *p, int prompt, uint64_t seed,
                       enum mode mode, enum fault fault)
{
    *t = (struct text){.ids = {3 + prompt, 11 - prompt}, .n = 2};
    struct rules *r = NULL;
    assert_int_equal(rules_create(&p->rules, t->ids, 2, V, &r, NULL), 0);
    bool on = true;
    while (on && mode == PLAIN) {
        float l[V], work[WORK];
        model(t->ids, t->n, false, l);
        struct be_sample s = sample_of(p, seed, t->n);
        rules_row(r, NULL, 0, &s);
        on = put(t, r, sample_row(l, V, &s, work));
    }
    while (on) {
        on = speculate(t, r, p, seed, mode, fault);
    }
    rules_free(r);
}

/* Counts of token 1 .. 4 (V: none any more) and of the length. */
struct counts {
    int token[4][V + 1], length[TOKENS + 1];
    int drafted, accepted;
};

static void count_texts(struct counts *c, const struct preset *p, int prompt, uint64_t seed, int n,
                        enum mode mode, enum fault fault)
{
    memset(c, 0, sizeof *c);
    for (int i = 0; i < n; i++) {
        struct text t;
        write_text(&t, p, prompt, seed + (uint64_t)i, mode, fault);
        for (int k = 0; k < 4; k++) {
            c->token[k][k + 2 < t.n ? t.ids[k + 2] : V]++;
        }
        c->length[t.n - 2]++;
        c->drafted += t.drafted;
        c->accepted += t.accepted;
    }
}

/* The distribution of the next token of a text. */
static void next_law(const struct text *t, const struct rules *r, const struct preset *p,
                     double *law)
{
    float l[V];
    struct row row;
    model(t->ids, t->n, false, l);
    struct be_sample s = sample_of(p, 0, t->n);
    rules_row(r, NULL, 0, &s);
    make_row(&row, l, V, &s);
    memcpy(law, row.p, V * sizeof *law);
}

/* The first two tokens together, against their law token by token. A text that ends
 * with its first has V as its second. */
static void joint_law(void **state)
{
    (void)state;
    const int n = is_long() ? 1000000 : 20000;
    double worst = 1;
    for (int i = 0; i < PRESETS; i++) {
        const struct preset *p = &presets[i];
        static double law[V][V + 1];
        memset(law, 0, sizeof law);
        double first[V];
        for (int32_t x = 0; x < V; x++) {
            struct text t = {.ids = {3, 11}, .n = 2};
            struct rules *r = NULL;
            assert_int_equal(rules_create(&p->rules, t.ids, 2, V, &r, NULL), 0);
            next_law(&t, r, p, first);
            if (put(&t, r, x)) {
                next_law(&t, r, p, law[x]);
            } else {
                law[x][V] = 1;
            }
            for (int y = 0; y <= V; y++) {
                law[x][y] *= first[x];
            }
            rules_free(r);
        }
        for (enum mode m = PLAIN; m <= SAME; m++) {
            static int count[V][V + 1];
            memset(count, 0, sizeof count);
            for (int k = 0; k < n; k++) {
                struct text t;
                write_text(&t, p, 0, (uint64_t)k << 8 | (uint64_t)m, m, NONE);
                count[t.ids[2]][t.n > 3 ? t.ids[3] : V]++;
            }
            const double tail = chi2_law(count[0], law[0], V * (V + 1), n);
            worst = tail < worst ? tail : worst;
        }
    }
    printf("# two tokens together: smallest p %.3g of %d\n", worst, PRESETS * 4);
    assert_true(worst > 0.05 / (PRESETS * 4));
}

/* The smallest p of speculating against not, over presets, prompts, tokens and length. */
static double smallest_p(int n, enum mode mode, enum fault fault, int *tests)
{
    double worst = 1;
    *tests = 0;
    for (int i = 0; i < PRESETS; i++) {
        int drafted = 0, accepted = 0;
        for (int prompt = 0; prompt < PROMPTS; prompt++) {
            static struct counts a, b;
            const uint64_t seed = (uint64_t)(i * PROMPTS + prompt) << 32;
            count_texts(&a, &presets[i], prompt, seed, n, PLAIN, NONE);
            count_texts(&b, &presets[i], prompt, seed + (1U << 30), n, mode, fault);
            for (int k = 0; k < 4; k++) {
                const double p = chi2_two(a.token[k], b.token[k], V + 1);
                worst = p < worst ? p : worst;
            }
            const double p = chi2_two(a.length, b.length, TOKENS + 1);
            worst = p < worst ? p : worst;
            *tests += 5;
            drafted += b.drafted;
            accepted += b.accepted;
        }
        if (fault == NONE) {
            printf("# mode %d, %s: %d of %d drafts accepted\n", mode, presets[i].name, accepted,
                   drafted);
        }
    }
    return worst;
}

static void speculation_keeps_the_law(void **state)
{
    (void)state;
    for (enum mode m = FIXED; m <= SAME; m++) {
        int tests = 0;
        const double p = smallest_p(is_long() ? 20000 : 1500, m, NONE, &tests);
        printf("# mode %d: %d tests, smallest p %.3g\n", m, tests, p);
        assert_true(tests >= 30 && p > 0.05 / tests);
    }
}

static void faults_are_noticed(void **state)
{
    (void)state;
    const struct {
        const char *what;
        enum mode mode;
        enum fault fault;
        int n;
    } t[] = {
        {"acceptance by the unfiltered chance", FIXED, UNFILTERED, 1200},
        {"acceptance by the unfiltered chance, drawn drafts", DRAWN, UNFILTERED, 1200},
        {"draft and residual share their noise", DRAWN, SHARED_NOISE, 5000},
        {"the residual still has the draft", FIXED, NO_SUBTRACTION, 1200},
        {"the residual still has the proposal", DRAWN, NO_SUBTRACTION, 1200},
        {"penalties do not see the drafts", SAME, PENALTY_BLIND, 1200},
        {"penalties do not see the drafts, by rejection", FIXED, PENALTY_BLIND, 1200},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        int tests = 0;
        const double p = smallest_p(t[i].n, t[i].mode, t[i].fault, &tests);
        printf("# %s: p %.3g\n", t[i].what, p);
        assert_true(p < 0.05 / tests);
    }
}

/* With the target's own noise the text of a seed is the text without speculation. */
static void same_text(void **state)
{
    (void)state;
    for (int i = 0; i < PRESETS; i++) {
        for (uint64_t seed = 0; seed < 400; seed++) {
            struct text a, b;
            write_text(&a, &presets[i], 0, seed, PLAIN, NONE);
            write_text(&b, &presets[i], 0, seed, SAME, NONE);
            assert_int_equal(a.n, b.n);
            assert_memory_equal(a.ids, b.ids, (size_t)a.n * sizeof *a.ids);
        }
    }
}

/* Known values of the tail, so that a p is a p. */
static void chi_square(void **state)
{
    (void)state;
    const struct {
        double x, p;
        int df;
    } t[] = {{3.841459, 0.05, 1}, {11.0705, 0.05, 5},   {16.9190, 0.05, 9},
             {6.6349, 0.01, 1},   {59.7031, 0.001, 30}, {20, 0.4579297, 20}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_true(fabs(chi2_tail(t[i].x, t[i].df) / t[i].p - 1) < 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chi_square),
        cmocka_unit_test(exact_law),
        cmocka_unit_test(joint_law),
        cmocka_unit_test(same_text),
        cmocka_unit_test(speculation_keeps_the_law),
        cmocka_unit_test(faults_are_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
