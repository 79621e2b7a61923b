/* Slices of time: what falls into which, gaps, marks, sums, CSV. The clock is given. */
#include "config.h"
#include "view/hist.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SEC HIST_SEC_NS

static struct hist_sample unknown(void)
{
    struct hist_sample s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < HG_COUNT; i++) {
        s.gauge[i] = NAN;
    }
    return s;
}

/* Rounds with two drafts each, of which so many first and second ones were used. */
static void rounds(struct hist_sample *s, unsigned n, unsigned first, unsigned next)
{
    struct view_spec *v = &s->load.spec;
    v->rounds[VS_MTP] += n;
    v->tokens[VS_MTP] += n + first + next;
    v->drafted[VS_MTP][0] += n;
    v->drafted[VS_MTP][1] += n;
    v->accepted[VS_MTP][0] += first;
    v->accepted[VS_MTP][1] += next;
    v->draft_s += 0.01 * n;
    v->verify_s += 0.03 * n;
    v->host_s += 0.01 * n;
}

static void plain(struct hist_sample *s, unsigned n)
{
    s->load.spec.rounds[VS_NONE] += n;
    s->load.spec.tokens[VS_NONE] += n;
    s->load.spec.verify_s += 0.02 * n;
}

static double value(const struct hist *h, enum hist_span span, int64_t now, int age,
                    enum hist_row row)
{
    const struct hist_slice *s = hist_at(h, span, now, age);
    return s ? hist_value(s, row) : NAN;
}

static void near(double is, double should)
{
    if (!(fabs(is - should) < 1e-4 * (1 + fabs(should)))) {
        print_error("%g is not %g\n", is, should);
        fail();
    }
}

static void test_gaps(void **state)
{
    (void)state;
    struct hist *h = hist_create();
    struct hist_sample s = unknown();
    int64_t now = 1000 * SEC;
    s.load.prompt_tokens = 500; /* before anybody looked */
    hist_take(h, now, &s);
    assert_null(hist_at(h, HS_SECONDS, now, 0));
    rounds(&s, 10, 8, 4);
    hist_take(h, now + SEC / 2, &s);
    now += 5 * SEC;
    hist_take(h, now, &s); /* nothing came, nobody works */
    assert_null(hist_at(h, HS_SECONDS, now, 0));
    assert_non_null(hist_at(h, HS_SECONDS, now, 5));
    near(value(h, HS_SECONDS, now, 5, HR_SPEED), 44);
    near(value(h, HS_SECONDS, now, 5, HR_ROUND), 2.2);
    near(value(h, HS_SECONDS, now, 5, HR_ACCEPT), 0.6);
    near(value(h, HS_SECONDS, now, 5, HR_PLACE1), 0.8);
    near(value(h, HS_SECONDS, now, 5, HR_PLACE2), 0.4);
    near(value(h, HS_SECONDS, now, 5, HR_MTP), 0.6);
    near(value(h, HS_SECONDS, now, 5, HR_DRAFT_MS), 10);
    near(value(h, HS_SECONDS, now, 5, HR_VERIFY_MS), 30);
    near(value(h, HS_SECONDS, now, 5, HR_HOST_MS), 10);
    assert_true(isnan(value(h, HS_SECONDS, now, 5, HR_PLACE3)));
    assert_true(isnan(value(h, HS_SECONDS, now, 5, HR_SUFFIX)));
    assert_true(isnan(value(h, HS_SECONDS, now, 5, HR_PREFILL)));
    assert_true(isnan(value(h, HS_SECONDS, now, 5, HR_REUSE)));
    assert_true(isnan(value(h, HS_SECONDS, now, 5, HR_GPU_TEMP)));
    assert_null(hist_at(h, HS_SECONDS, now, -1));
    assert_null(hist_at(h, HS_SECONDS, now, HIST_SECONDS));
    /* waiting alone is work */
    s.load.waiting = 3;
    s.gauge[HG_QUEUE] = 3;
    s.gauge[HG_KV] = 0.25;
    hist_take(h, now, &s);
    near(value(h, HS_SECONDS, now, 0, HR_QUEUE), 3);
    near(value(h, HS_SECONDS, now, 0, HR_KV), 0.25);
    s.load.waiting = 1;
    s.gauge[HG_QUEUE] = 1;
    hist_take(h, now, &s);
    near(value(h, HS_SECONDS, now, 0, HR_QUEUE), 2); /* the mean of what was read */
    hist_free(h);
}

static void test_prompt(void **state)
{
    (void)state;
    struct hist *h = hist_create();
    struct hist_sample s = unknown();
    hist_take(h, SEC, &s);
    s.load.prompt_tokens = 400;
    s.load.cached_tokens = 300;
    s.load.prefilled = 100;
    s.load.prefill_s = 0.5;
    s.load.restored = 1;
    hist_take(h, 2 * SEC, &s);
    near(value(h, HS_SECONDS, 2 * SEC, 0, HR_PREFILL), 200);
    near(value(h, HS_SECONDS, 2 * SEC, 0, HR_REUSE), 0.75);
    assert_int_equal(hist_marks(hist_at(h, HS_SECONDS, 2 * SEC, 0)), HM_RESTORE);
    hist_free(h);
}

/* A lap of the ring: what is older is gone, and never shows as new. */
static void test_lap(void **state)
{
    (void)state;
    struct hist *h = hist_create();
    struct hist_sample s = unknown();
    int64_t now = 7 * SEC;
    hist_take(h, now, &s);
    for (int i = 0; i < 3 * HIST_SECONDS; i++) {
        now += SEC;
        rounds(&s, 1 + (unsigned)(i >= 2 * HIST_SECONDS), 1, 0);
        hist_take(h, now, &s);
    }
    struct hist_slice all;
    assert_true(hist_sum(h, HS_SECONDS, now, 0, HIST_SECONDS, 0, &all));
    assert_int_equal(all.rounds[VS_MTP], 2 * HIST_SECONDS);
    assert_true(hist_sum(h, HS_MINUTES, now, 0, HIST_MINUTES, 0, &all));
    assert_int_equal(all.rounds[VS_MTP], 4 * HIST_SECONDS);
    assert_int_equal(hist_at(h, HS_MINUTES, now, 5)->rounds[VS_MTP], 120);
    now += 2 * HIST_SECONDS * SEC; /* idle */
    assert_false(hist_sum(h, HS_SECONDS, now, 0, HIST_SECONDS, 0, &all));
    for (int age = 0; age < HIST_SECONDS; age++) {
        assert_null(hist_at(h, HS_SECONDS, now, age));
    }
    now += 24 * 3600 * SEC;
    assert_false(hist_sum(h, HS_MINUTES, now, 0, HIST_MINUTES, 0, &all));
    hist_free(h);
}

static void test_marks(void **state)
{
    (void)state;
    struct hist *h = hist_create();
    struct hist_sample s = unknown();
    int64_t now = 0;
    hist_take(h, now, &s);
    plain(&s, 3); /* drafts never were there: nothing took over */
    hist_take(h, now += SEC, &s);
    assert_int_equal(hist_marks(hist_at(h, HS_SECONDS, now, 0)), 0);
    rounds(&s, 5, 0, 0);
    hist_take(h, now += SEC, &s);
    assert_int_equal(hist_marks(hist_at(h, HS_SECONDS, now, 0)), HM_DISCARD);
    rounds(&s, 5, 1, 0); /* one was used after all */
    hist_take(h, now, &s);
    assert_int_equal(hist_marks(hist_at(h, HS_SECONDS, now, 0)), 0);
    now += 9 * SEC; /* a gap does not end it */
    plain(&s, 3);
    hist_take(h, now, &s);
    assert_int_equal(hist_marks(hist_at(h, HS_SECONDS, now, 0)), HM_PLAIN);
    plain(&s, 3);
    hist_take(h, now += SEC, &s); /* it took over before */
    assert_int_equal(hist_marks(hist_at(h, HS_SECONDS, now, 0)), 0);
    s.load.failed++;
    hist_take(h, now += SEC, &s);
    assert_int_equal(hist_marks(hist_at(h, HS_SECONDS, now, 0)), HM_DISCARD);
    hist_reset(h, now);
    assert_int_equal(hist_marks(hist_at(h, HS_SECONDS, now, 0)), HM_DISCARD | HM_RESET);
    hist_free(h);
}

static void test_stats(void **state)
{
    (void)state;
    struct hist *h = hist_create();
    struct hist_sample s = unknown();
    struct hist_stats st;
    int64_t now = 100 * SEC;
    hist_take(h, now, &s);
    hist_stats(h, HS_SECONDS, now, HIST_SECONDS, -1, HR_ACCEPT, &st);
    assert_true(st.n == 0 && isnan(st.now) && isnan(st.average) && isnan(st.p5) && isnan(st.p95));
    for (unsigned i = 0; i <= 100; i++) {
        rounds(&s, 100, i, i); /* i % */
        hist_take(h, now += SEC, &s);
    }
    now += 3 * SEC;
    hist_stats(h, HS_SECONDS, now, HIST_SECONDS, -1, HR_ACCEPT, &st);
    assert_int_equal(st.n, 101);
    near(st.now, 1);
    near(st.average, 0.5);
    near(st.p5, 0.05);
    near(st.p95, 0.95);
    hist_stats(h, HS_SECONDS, now, HIST_SECONDS, 13, HR_ACCEPT, &st);
    near(st.now, 0.9);
    hist_stats(h, HS_SECONDS, now, HIST_SECONDS, 1, HR_ACCEPT, &st); /* a gap is not filled in */
    assert_true(isnan(st.now));
    hist_stats(h, HS_SECONDS, now, 5, -1, HR_ACCEPT, &st);
    assert_int_equal(st.n, 2);
    /* few tokens in a slow second weigh what they are worth */
    struct hist *w = hist_create();
    s = unknown();
    hist_take(w, SEC, &s);
    plain(&s, 50);
    hist_take(w, 2 * SEC, &s);
    s.load.spec.rounds[VS_NONE]++;
    s.load.spec.tokens[VS_NONE]++;
    s.load.spec.verify_s += 1;
    hist_take(w, 3 * SEC, &s);
    hist_stats(w, HS_SECONDS, 3 * SEC, 60, -1, HR_SPEED, &st);
    near(st.now, 1);
    near(st.average, 51 / 2.0);
    hist_free(w);
    /* from the user's mark on */
    hist_reset(h, now);
    hist_stats(h, HS_SECONDS, now, HIST_SECONDS, -1, HR_ACCEPT, &st);
    assert_int_equal(st.n, 0);
    near(st.now, 1);
    rounds(&s, 0, 0, 0);
    hist_free(h);
}

static void test_csv(void **state)
{
    (void)state;
    struct hist *h = hist_create();
    struct hist_sample s = unknown();
    struct buf b = BUF_INIT;
    hist_take(h, 0, &s);
    hist_csv(h, HS_SECONDS, 0, 0, &b);
    assert_string_equal(b.data,
                        "time,seconds,rounds,tokens,drafted,accepted,prompt,cached,tok_s,tok_round,"
                        "accept,accept_1,accept_2,accept_3,accept_4,accept_5,accept_6,accept_mtp,"
                        "accept_suffix,draft_ms,verify_ms,host_ms,prefill_tok_s,reuse,kv_used,"
                        "queue,gpu_c,gpu_w,gpu_bytes,host_bytes,marks\n");
    rounds(&s, 10, 8, 4);
    s.gauge[HG_GPU_TEMP] = 71;
    s.load.restored++;
    hist_take(h, 3 * SEC, &s);
    hist_reset(h, 3 * SEC);
    hist_take(h, 5 * SEC, &s);
    buf_truncate(&b, 0);
    hist_csv(h, HS_SECONDS, 5 * SEC, 1000000002, &b);
    const char *line = strchr(b.data, '\n') + 1;
    assert_string_equal(line, "2001-09-09T01:46:40Z,1,10,22,20,12,0,0,44,2.2,0.6,0.8,0.4,,,,,0.6,,"
                              "10,30,10,,,,,71,,,,restore+reset\n");
    buf_free(&b);
    hist_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gaps),  cmocka_unit_test(test_prompt), cmocka_unit_test(test_lap),
        cmocka_unit_test(test_marks), cmocka_unit_test(test_stats),  cmocka_unit_test(test_csv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
