/* The rules of a request against a reading of its whole history, and against the
 * engine: rows of a verified draft draw what plain steps draw. */
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
#include "engine/load.h"
#include "engine/rules.h"
#include "kernels/sample.h"

enum { V = 90, LEN = 60 };

static uint32_t drawn;

static uint32_t rnd(uint32_t below)
{
    return philox_word(21, drawn++, PHILOX_TARGET, 0) % below;
}

/* ---- against the whole history ---- */

struct history {
    int32_t ids[2 * LEN];
    int n, prompt;
};

static bool ends_with(const struct history *h, const int32_t *w, int n)
{
    for (int i = 0; i < n; i++) {
        if (h->n < n || h->ids[h->n - n + i] != w[i]) {
            return false;
        }
    }
    return true;
}

/* One logit, read off the definition. */
static float by_definition(float l, int32_t id, const struct engine_rules *r,
                           const struct history *h)
{
    for (size_t i = 0; i < r->n_allowed; i++) {
        if (r->allowed[i] == id) {
            break;
        }
        if (i + 1 == r->n_allowed) {
            return -INFINITY;
        }
    }
    for (size_t i = 0; i < r->n_bias; i++) {
        l += r->bias[i].id == id ? r->bias[i].value : 0;
    }
    for (size_t i = 0; i < r->n_stop && h->n - h->prompt < r->min_tokens; i++) {
        l = r->stop[i] == id ? -INFINITY : l;
    }
    int out = 0;
    bool seen = false;
    for (int i = 0; i < h->n; i++) {
        seen = seen || h->ids[i] == id;
        out += i >= h->prompt && h->ids[i] == id;
    }
    if (seen && r->repetition != 0) {
        l = l > 0 ? l / r->repetition : l * r->repetition;
    }
    const float f = r->frequency * (float)out;
    l -= f;
    l -= out > 0 ? r->presence : 0;
    const int32_t *w = r->bad;
    for (size_t i = 0; i < r->n_bad; w += r->bad_len[i++]) {
        const int last = r->bad_len[i] - 1;
        if (w[last] == id && ends_with(h, w, last)) {
            l = -INFINITY;
        }
    }
    return l;
}

static void check_row(const struct rules *r, const struct engine_rules *spec,
                      const struct history *h, const int32_t *draft, int n_draft)
{
    float l[V], work[512];
    for (int i = 0; i < V; i++) {
        l[i] = (float)rnd(2000) / 100 - 10;
    }
    struct be_sample s = {.temp = 1, .top_p = 1};
    rules_row(r, draft, n_draft, &s);
    struct sample_kept k;
    sample_filter(l, V, &s, work, &k);
    struct history all = *h;
    for (int i = 0; i < n_draft; i++) {
        all.ids[all.n++] = draft[i];
    }
    for (int i = 0; i < V; i++) {
        const float want = by_definition(l[i], i, spec, &all);
        assert_true(k.x[i] == want);
    }
}

static void whole_history(void **state)
{
    (void)state;
    static const float reps[] = {0, 1, 1.3F, 0.7F}, pens[] = {0, 0.5F, -1.5F};
    static const struct engine_bias bias[] = {{3, 2.5F}, {17, -100}, {V - 1, 100}};
    static const int32_t bad[] = {5, 1, 2, 1, 2, 3, 7, 7, 7, 2}, bad_len[] = {1, 2, 3, 4};
    static const int32_t stop[] = {3, 9, 1000};
    for (int c = 0; c < 300; c++) {
        struct engine_rules spec = {.repetition = reps[rnd(4)],
                                    .frequency = pens[rnd(3)],
                                    .presence = pens[rnd(3)],
                                    .bias = bias,
                                    .n_bias = rnd(4),
                                    .bad = bad,
                                    .bad_len = bad_len,
                                    .n_bad = rnd(5),
                                    .min_tokens = (int)rnd(2) * (int)rnd(20),
                                    .stop = stop,
                                    .n_stop = 2 + rnd(2)};
        int32_t allowed[V];
        if (c % 4 == 0) {
            for (int i = 0; i < V; i += 1 + (int)rnd(3)) {
                allowed[spec.n_allowed++] = i;
            }
            spec.allowed = allowed;
        }
        struct history h = {.prompt = 1 + (int)rnd(20)};
        const uint32_t used = 4 + rnd(V - 4); /* few ids repeat often */
        while (h.n < h.prompt) {
            h.ids[h.n++] = (int32_t)rnd(used);
        }
        struct rules *r = NULL;
        assert_int_equal(rules_create(&spec, h.ids, (size_t)h.n, V, &r, NULL), 0);
        for (int i = 0; i < LEN; i++) {
            int32_t draft[ENGINE_MAX_DRAFT];
            const int n_draft = (int)rnd(ENGINE_MAX_DRAFT + 1);
            for (int j = 0; j < n_draft; j++) {
                draft[j] = (int32_t)rnd(used);
            }
            /* Rows of one verify, in any order; the fullest and the first last. */
            check_row(r, &spec, &h, draft, n_draft / 2);
            check_row(r, &spec, &h, draft, n_draft);
            check_row(r, &spec, &h, draft, 0);
            const int32_t id = (int32_t)rnd(used);
            rules_take(r, id);
            h.ids[h.n++] = id;
        }
        rules_free(r);
    }
}

static void refusals(void **state)
{
    (void)state;
    static const struct engine_bias far[] = {{V, 1}}, big[] = {{1, 101}};
    static const int32_t out[] = {-1}, one[] = {1}, none[] = {0};
    const struct {
        struct engine_rules r;
        const char *says;
    } t[] = {
        {{.repetition = -1}, "repetition"},
        {{.repetition = NAN}, "repetition"},
        {{.frequency = 2.5F}, "frequency"},
        {{.presence = -3}, "presence"},
        {{.bias = far, .n_bias = 1}, "token id 90"},
        {{.bias = big, .n_bias = 1}, "101"},
        {{.allowed = out, .n_allowed = 1}, "allowed"},
        {{.allowed = one, .n_allowed = 0}, "empty"},
        {{.bad = one, .bad_len = none, .n_bad = 1}, "bad words"},
        {{.bad = out, .bad_len = one, .n_bad = 1}, "bad words"},
        {{.min_tokens = -1}, "min tokens"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct rules *r = (struct rules *)&drawn;
        struct err e = ERR_INIT;
        assert_int_equal(rules_create(&t[i].r, one, 1, V, &r, &e), QE_USAGE);
        assert_non_null(strstr(e.msg, t[i].says));
        assert_ptr_equal(r, &drawn);
    }
    /* What does nothing is nothing. */
    const struct engine_rules idle = {.repetition = 1, .min_tokens = 5};
    struct rules *r = (struct rules *)&drawn;
    assert_int_equal(rules_create(&idle, one, 1, V, &r, NULL), 0);
    assert_null(r);
    struct be_sample s = {.top_p = 1};
    rules_take(r, 1);
    rules_row(r, NULL, 0, &s);
    assert_true(sample_is_plain(&s));
    assert_int_equal(rules_taken(r), 0);
    rules_free(r);
}

/* ---- with the engine ---- */

enum { TEXT = 48, WIDTH = 6 };

static struct engine_model *demo;

static int open_demo(void **state)
{
    (void)state;
    char path[4096];
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(path, sizeof path, "%s/models/demo.qsr", src ? src : ".");
    struct err e = ERR_INIT;
    const struct engine_opts o = {.backend = EB_CPU, .threads = 1, .ctx = 512, .slots = 1};
    int rc = engine_load(path, false, &o, &demo, &e);
    if (rc < 0) {
        fprintf(stderr, "%s\n", e.msg);
    }
    return rc;
}

static int close_demo(void **state)
{
    (void)state;
    engine_unload(demo);
    return 0;
}

static int start(struct engine *g, const int32_t *prompt, int n)
{
    int seq = -1;
    const int32_t last = n - 1;
    const struct engine_prefill p = {
        .tokens = prompt, .n = n, .want = &last, .n_want = 1, .seq = 0};
    assert_int_equal(engine_seq_open(g, &seq, NULL), 0);
    assert_int_equal(seq, 0);
    assert_int_equal(engine_prefill(g, &p, NULL), 0);
    return seq;
}

/* TEXT tokens, one step each. */
static void plain_text(struct engine *g, const struct engine_rules *spec, struct engine_draw d,
                       const int32_t *prompt, int n, int32_t *out)
{
    struct rules *r = NULL;
    assert_int_equal(rules_create(spec, prompt, (size_t)n, engine_info(g)->vocab_used, &r, NULL),
                     0);
    const int seq = start(g, prompt, n);
    d.rules = r;
    const int output = 0;
    for (int i = 0; i < TEXT; i++) {
        assert_int_equal(engine_sample(g, &output, &d, 1, &out[i], NULL), 0);
        rules_take(r, out[i]);
        assert_int_equal(engine_decode(g, &seq, &out[i], 1, NULL), 0);
    }
    engine_seq_close(g, seq);
    rules_free(r);
}

/* The same by verifying guesses that are right for a while, and wrong. */
static void verified_text(struct engine *g, const struct engine_rules *spec, struct engine_draw d,
                          const int32_t *prompt, int n, const int32_t *truth, int32_t *out)
{
    struct rules *r = NULL;
    assert_int_equal(rules_create(spec, prompt, (size_t)n, engine_info(g)->vocab_used, &r, NULL),
                     0);
    const int seq = start(g, prompt, n);
    const int first = 0;
    d.rules = r;
    assert_int_equal(engine_sample(g, &first, &d, 1, out, NULL), 0);
    rules_take(r, out[0]);
    int have = 1;
    while (have < TEXT) {
        int seqs[WIDTH] = {0}, outputs[WIDTH], rows = 1 + (int)rnd(WIDTH);
        rows = rows < TEXT - have + 1 ? rows : TEXT - have + 1;
        int32_t tokens[WIDTH], ids[WIDTH];
        struct engine_draw draws[WIDTH];
        const int right = (int)rnd(WIDTH);
        for (int j = 0; j < rows; j++) {
            tokens[j] = j == 0 ? out[have - 1] : truth[have + j - 1];
            tokens[j] = j > right ? (tokens[j] + 1) % 4000 : tokens[j];
            outputs[j] = j;
            draws[j] = d;
            draws[j].draft = tokens + 1;
            draws[j].n_draft = j;
        }
        assert_int_equal(engine_verify(g, seqs, tokens, rows, NULL), 0);
        assert_int_equal(engine_sample(g, outputs, draws, rows, ids, NULL), 0);
        int keep = 1;
        while (keep < rows && ids[keep - 1] == tokens[keep]) {
            keep++;
        }
        assert_int_equal(engine_commit(g, &seq, &keep, 1, NULL), 0);
        for (int j = 0; j < keep && have < TEXT; j++) {
            out[have++] = ids[j];
            rules_take(r, ids[j]);
        }
    }
    engine_seq_close(g, seq);
    rules_free(r);
}

static void verified_rows(void **state)
{
    (void)state;
    struct engine *g = engine_of(demo);
    static const struct engine_bias bias[] = {{100, 3}, {200, -5}};
    static const int32_t bad[] = {11, 12, 13}, bad_len[] = {1, 2}, eos[] = {0, 1, 2};
    const struct engine_rules specs[] = {
        {.presence = 1.5F},
        {.repetition = 1.3F, .frequency = 0.4F},
        {.repetition = 1.1F,
         .bias = bias,
         .n_bias = 2,
         .bad = bad,
         .bad_len = bad_len,
         .n_bad = 2,
         .min_tokens = 20,
         .stop = eos,
         .n_stop = 3},
    };
    const int32_t prompt[] = {50, 60, 70, 80, 50, 60, 70};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            const struct engine_draw d = {
                .temp = seed ? 0.9F : 0, .top_p = 0.95F, .top_k = 40, .seed = seed};
            int32_t want[TEXT], got[TEXT];
            plain_text(g, &specs[i], d, prompt, 7, want);
            verified_text(g, &specs[i], d, prompt, 7, want, got);
            assert_memory_equal(want, got, sizeof want);
        }
    }
}

/* Raw log-softmax, whatever the rules; ranks; order. */
static void log_probabilities(void **state)
{
    (void)state;
    struct engine *g = engine_of(demo);
    const int vocab = engine_info(g)->vocab_used;
    const int32_t prompt[] = {50, 60, 70, 80};
    const int seq = start(g, prompt, 4);
    float *l = malloc((size_t)engine_info(g)->vocab * sizeof *l);
    assert_int_equal(engine_logits(g, 0, l, NULL), 0);
    double total = 0;
    for (int i = 0; i < vocab; i++) {
        total += exp((double)l[i]);
    }
    struct engine_logprob p[21];
    for (int32_t id = 0; id < vocab; id += 411) {
        assert_int_equal(engine_logprobs(g, 0, id, 20, p, NULL), 0);
        int above = 0;
        for (int i = 0; i < vocab; i++) {
            above += l[i] > l[id];
        }
        assert_int_equal(p[0].id, id);
        assert_int_equal(p[0].rank, 1 + above);
        for (int i = 0; i <= 20; i++) {
            assert_true(fabs((double)p[i].logprob - ((double)l[p[i].id] - log(total))) < 1e-5);
            if (i > 0) {
                above = 0;
                for (int j = 0; j < vocab; j++) {
                    above += l[j] > l[p[i].id];
                }
                assert_int_equal(p[i].rank, 1 + above);
                assert_true(i == 1 || l[p[i].id] < l[p[i - 1].id] ||
                            (l[p[i].id] == l[p[i - 1].id] && p[i].id > p[i - 1].id));
            }
        }
    }
    struct err e = ERR_INIT;
    assert_int_equal(engine_logprobs(g, 0, vocab, 0, p, &e), QE_USAGE);
    assert_int_equal(engine_logprobs(g, 0, 1, 21, p, &e), QE_USAGE);
    assert_int_equal(engine_logprobs(g, 1, 1, 1, p, &e), QE_USAGE);
    free(l);
    engine_seq_close(g, seq);
}

/* Rules that leave nothing: -1 for that row, the others draw. */
static void nothing_left(void **state)
{
    (void)state;
    struct engine *g = engine_of(demo);
    static const int32_t one[] = {7}, len[] = {1};
    const struct engine_rules spec = {
        .allowed = one, .n_allowed = 1, .bad = one, .bad_len = len, .n_bad = 1};
    const int32_t prompt[] = {50, 60};
    struct rules *r = NULL;
    assert_int_equal(rules_create(&spec, prompt, 2, engine_info(g)->vocab_used, &r, NULL), 0);
    const int seq = start(g, prompt, 2);
    const int output = 0;
    const struct engine_draw d = {.temp = 1, .top_p = 1, .rules = r};
    int32_t id = 0;
    assert_int_equal(engine_sample(g, &output, &d, 1, &id, NULL), 0);
    assert_int_equal(id, -1);
    engine_seq_close(g, seq);
    rules_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_history), cmocka_unit_test(refusals),
        cmocka_unit_test(verified_rows), cmocka_unit_test(log_probabilities),
        cmocka_unit_test(nothing_left),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}
