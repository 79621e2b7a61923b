/* Rounds of drafts in the scheduler, on the stand-in engine: with every drafter and
 * depth a job's tokens and its end are those of one token a step, alone or in company,
 * greedy or seeded, with stops, limits and cancels in the middle of a round; live
 * states hold exactly what was kept; the figures add up. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sched/sched.h"
#include "tests/fake/engine.h"

#define VOCAB 1000
#define CTX   2048

static const int32_t eos_id = 2;

static struct sched *open_ready(const char *path, enum spec_mode mode, int draft)
{
    struct sched_opts o = {.path = path, .wake_fd = -1, .spec = {.mode = mode, .draft = draft}};
    struct sched *s = NULL;
    struct err e = ERR_INIT;
    fake_log_reset();
    if (sched_open(&o, &s, &e) < 0 || sched_wait(s, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return s;
}

struct result {
    int32_t ids[CTX];
    int n;
    enum job_reason reason;
    bool over;
};

static void take(struct job *j, struct result *r)
{
    struct job_event ev;
    while (job_next(j, &ev)) {
        if (ev.kind == JE_TOKENS) {
            memcpy(r->ids + r->n, ev.ids, (size_t)ev.n * sizeof *ev.ids);
            r->n += ev.n;
        } else if (ev.kind == JE_END) {
            r->reason = ev.reason;
            r->over = true;
        }
    }
}

static void finish(struct job *j, struct result *r)
{
    memset(r, 0, sizeof *r);
    while (!r->over) {
        take(j, r);
        usleep(50);
    }
}

static void prompt_of(int32_t *p, int n, int salt)
{
    for (int i = 0; i < n; i++) {
        p[i] = 3 + (i * 7 + salt * 13 + i / 5) % (VOCAB - 3);
    }
}

/* One token at a time by the stand-in's own arithmetic. */
static void expect(const struct job_spec *s, int eos, struct result *want)
{
    static int32_t ids[2 * CTX];
    int n = (int)s->n_prompt;
    memcpy(ids, s->prompt, s->n_prompt * sizeof *ids);
    const int room = CTX - n;
    const int limit = s->max_tokens >= 0 && s->max_tokens < room ? s->max_tokens : room;
    want->n = 0;
    want->reason = JR_LENGTH;
    while (want->n < limit) {
        const int32_t id = fake_next(ids, n, VOCAB, eos, s->draw.temp, s->draw.seed);
        ids[n++] = id;
        want->ids[want->n++] = id;
        if (s->n_stop > 0 && id == s->stop[0]) {
            want->reason = JR_STOP;
            return;
        }
    }
}

static void same(const struct result *got, const struct result *want)
{
    assert_int_equal(got->n, want->n);
    assert_memory_equal(got->ids, want->ids, (size_t)want->n * sizeof *want->ids);
    assert_int_equal(got->reason, want->reason);
}

static void adds_up(const struct job_stats *st)
{
    uint64_t n = 1, rounds = 1; /* the prompt's last pass gave the first token */
    for (int s = 0; s < VS_COUNT; s++) {
        n += st->spec.tokens[s];
        rounds += st->spec.rounds[s];
        for (int i = 1; i < VIEW_DRAFTS; i++) {
            assert_true(st->spec.accepted[s][i] <= st->spec.accepted[s][i - 1]);
            assert_true(st->spec.accepted[s][i] <= st->spec.drafted[s][i]);
        }
    }
    assert_int_equal(n, st->output_tokens);
    assert_int_equal(rounds, st->rounds);
    assert_int_equal(view_spec_drafted(&st->spec), st->drafted);
    assert_int_equal(view_spec_accepted(&st->spec), st->accepted);
    assert_int_equal(st->rounds + st->accepted, st->output_tokens);
}

enum { JOBS = 12 };

/* The figures up to every token: they are of so many tokens, and grow with them. */
static void cuts_add_up(const struct job *j, int tokens)
{
    struct job_stats before = job_stats_until(j, 0);
    assert_int_equal(before.rounds + before.drafted + before.accepted, 0);
    for (int n = 1; n <= tokens + 1; n++) {
        const struct job_stats st = job_stats_until(j, n);
        assert_int_equal(st.output_tokens, n < tokens ? n : tokens);
        adds_up(&st);
        assert_true(st.rounds == before.rounds || st.rounds == before.rounds + 1);
        assert_int_equal(st.accepted, st.output_tokens - st.rounds);
        before = st;
    }
    const struct job_stats all = job_stats(j);
    assert_memory_equal(&all, &before, sizeof all);
}

static void run_jobs(enum spec_mode mode, int draft, int together)
{
    static struct result got[JOBS], want;
    static int32_t prompt[JOBS][300];
    struct job_spec specs[JOBS];
    struct job *jobs[JOBS];
    struct sched *s = open_ready("ctx=2048,eos=120,mtp=1,wrong=4", mode, draft);
    memset(got, 0, sizeof got);
    for (int i = 0; i < JOBS; i += together) {
        for (int k = i; k < i + together; k++) {
            const int n = 1 + (k * 37) % 290;
            prompt_of(prompt[k], n, k);
            specs[k] = (struct job_spec){
                .prompt = prompt[k],
                .n_prompt = (size_t)n,
                .max_tokens = k % 4 ? 10 + k * 9 : -1,
                .draw = {.temp = k % 3 == 2 ? 0.8F : 0, .seed = (uint64_t)k},
                .stop = &eos_id,
                .n_stop = 1,
                .screen = true,
                .wake_fd = -1,
            };
            assert_int_equal(sched_submit(s, &specs[k], &jobs[k], NULL), 0);
        }
        for (int k = i; k < i + together; k++) {
            finish(jobs[k], &got[k]);
        }
    }
    for (int i = 0; i < JOBS; i++) {
        expect(&specs[i], 120, &want);
        same(&got[i], &want);
        const struct job_stats st = job_stats(jobs[i]);
        adds_up(&st);
        job_free(jobs[i]);
    }
    if (mode == SPEC_OFF) {
        assert_int_equal(fake_log.verify_calls, 0);
    } else if (draft > 0 && mode != SPEC_SUFFIX) {
        const struct sched_counters c = sched_counters(s);
        assert_true(fake_log.verify_calls > 0);
        assert_true(view_spec_accepted(&c.spec) > 0);
        assert_true(view_spec_accepted(&c.spec) < view_spec_drafted(&c.spec));
        assert_true(view_spec_per_round(&c.spec) > 1);
    }
    assert_int_equal(fake_log.open_seqs, 0);
    sched_close(s);
}

static void every_drafter_and_depth(void **state)
{
    (void)state;
    const enum spec_mode modes[] = {SPEC_AUTO, SPEC_OFF, SPEC_MTP, SPEC_SUFFIX, SPEC_MTP_SUFFIX};
    for (int m = 0; m < 5; m++) {
        for (int draft = 0; draft <= 15; draft += draft < 4 ? 1 : 3) {
            run_jobs(modes[m], draft, 1);
            run_jobs(modes[m], draft, 1 + (m + draft) % 2 * 3);
            run_jobs(modes[m], draft, JOBS);
        }
    }
}

/* A scripted text that repeats itself, ended by stop id, limit or window at every place
 * of a round. */
static void ends_in_mid_round(void **state)
{
    (void)state;
    static int32_t text[60], prompt[1024];
    static struct result r;
    for (int i = 0; i < 60; i++) {
        text[i] = 10 + i % 7;
    }
    text[45] = 500;
    fake_script(text, 60);
    prompt_of(prompt, 1024, 1);
    for (int draft = 1; draft <= 15; draft += 7) {
        struct sched *s = open_ready("ctx=64,mtp=1,wrong=1000000", SPEC_MTP_SUFFIX, draft);
        for (int end = 1; end <= 45; end++) {
            const int32_t stop = 500;
            const bool by_window = end % 3 == 0;
            struct job_spec spec = {.prompt = prompt,
                                    .n_prompt = by_window ? (size_t)(64 - end) : 5,
                                    .max_tokens = by_window ? -1 : end,
                                    .stop = &stop,
                                    .n_stop = 1,
                                    .wake_fd = -1};
            struct job *j = NULL;
            assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
            finish(j, &r);
            assert_int_equal(r.n, end);
            assert_memory_equal(r.ids, text, (size_t)end * sizeof *text);
            assert_int_equal(r.reason, JR_LENGTH);
            const struct job_stats st = job_stats(j);
            adds_up(&st);
            job_free(j);
        }
        struct live *l = live_create();
        struct job_spec spec = {.prompt = prompt,
                                .n_prompt = 5,
                                .max_tokens = -1,
                                .stop = (const int32_t[]){500},
                                .n_stop = 1,
                                .live = l,
                                .wake_fd = -1};
        struct job *j = NULL;
        assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
        finish(j, &r);
        assert_int_equal(r.n, 46);
        assert_int_equal(r.reason, JR_STOP);
        cuts_add_up(j, r.n);
        job_free(j);
        /* All but the ending token is in the state, drafts after it are not. */
        static int32_t more[53];
        memcpy(more, prompt, 5 * sizeof *more);
        memcpy(more + 5, r.ids, 46 * sizeof *more);
        more[51] = 77;
        more[52] = 78;
        spec.prompt = more;
        spec.n_prompt = 53;
        spec.max_tokens = 3;
        assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
        finish(j, &r);
        assert_int_equal(job_stats(j).cached_tokens, 50);
        assert_int_equal(r.n, 3);
        assert_memory_equal(r.ids, text, 3 * sizeof *text);
        job_free(j);
        live_free(l);
        sched_close(s);
    }
    fake_script(NULL, 0);
}

/* With drafts always right and cheap, rounds are long; with the costs of the stand-in
 * (a step takes as long whatever its width) they are as long as the ladder lets them. */
static void good_drafts_are_used(void **state)
{
    (void)state;
    static int32_t prompt[20];
    static struct result r;
    struct sched *s = open_ready("ctx=2048,mtp=1,wrong=1000000,step_us=400", SPEC_AUTO, 0);
    prompt_of(prompt, 20, 3);
    struct job_spec spec = {.prompt = prompt, .n_prompt = 20, .max_tokens = 1000, .wake_fd = -1};
    struct job *j = NULL;
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    finish(j, &r);
    const struct job_stats st = job_stats(j);
    assert_true(view_spec_per_round(&st.spec) > 5);
    assert_true(st.spec.rounds[VS_NONE] < 8);
    job_free(j);
    sched_close(s);
    /* Never right, yet as cheap as nothing: soon nobody drafts, but for a look now and
     * then. */
    s = open_ready("ctx=2048,mtp=1,wrong=1,step_us=100", SPEC_AUTO, 0);
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    finish(j, &r);
    const struct job_stats bad = job_stats(j);
    assert_int_equal(bad.output_tokens, 1000);
    assert_true(bad.spec.rounds[VS_MTP] < 150);
    job_free(j);
    sched_close(s);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct sched_opts o = {.path = "ctx=64", .wake_fd = -1, .spec = {.mode = SPEC_MTP}};
    struct sched *s = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(sched_open(&o, &s, &e), 0);
    assert_int_equal(sched_wait(s, &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "MTP"));
    sched_close(s);
    o.path = "ctx=64,mtp=1,no_verify=1";
    assert_int_equal(sched_open(&o, &s, &e), 0);
    assert_int_equal(sched_wait(s, &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "cannot verify"));
    sched_close(s);
    o.spec.mode = SPEC_AUTO; /* does without */
    assert_int_equal(sched_open(&o, &s, &e), 0);
    assert_int_equal(sched_wait(s, &e), 0);
    sched_close(s);
}

/* Whatever drafts, the engine is not asked for more than it was opened for. */
static void caps_are_kept(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum spec_mode mode;
        int draft, most; /* the longest draft */
    } cases[] = {
        {"ctx=2048,mtp=1,wrong=1000000,step_us=50,max_draft=3,width=4", SPEC_AUTO, 0, 3},
        {"ctx=2048,mtp=1,wrong=1000000,step_us=50,max_draft=3,width=4", SPEC_MTP, 0, 3},
        {"ctx=2048,mtp=1,wrong=1000000,step_us=50,max_draft=1,width=16", SPEC_MTP, 0, 1},
        {"ctx=2048,mtp=1,wrong=1000000,step_us=50,max_draft=16,width=2", SPEC_MTP_SUFFIX, 0, 1},
        {"ctx=2048,mtp=1,wrong=1000000,step_us=50,max_draft=3,width=4", SPEC_MTP_SUFFIX, 3, 3},
        {"ctx=2048,width=3,step_us=50", SPEC_SUFFIX, 0, 2},
        {"ctx=2048,mtp=1,width=1", SPEC_AUTO, 0, 0},
    };
    static int32_t prompt[400];
    static struct result r, want;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sched *s = open_ready(cases[i].path, cases[i].mode, cases[i].draft);
        prompt_of(prompt, 400, 3);
        struct job_spec spec = {
            .prompt = prompt, .n_prompt = 400, .max_tokens = 300, .wake_fd = -1};
        struct job *j = NULL;
        assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
        finish(j, &r);
        expect(&spec, 0, &want);
        same(&r, &want);
        const struct job_stats st = job_stats(j);
        for (int src = 0; src < VS_COUNT; src++) {
            for (int k = cases[i].most; k < VIEW_DRAFTS; k++) {
                assert_int_equal(st.spec.drafted[src][k], 0);
            }
        }
        job_free(j);
        sched_close(s);
    }
}

static void beyond_the_caps_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path, *word;
        enum spec_mode mode;
        int draft;
    } cases[] = {
        {"ctx=64,mtp=1,max_draft=3,width=16", "--max-draft 3", SPEC_MTP, 4},
        {"ctx=64,mtp=1,max_draft=3,width=4", "--max-draft 3", SPEC_AUTO, 7},
        {"ctx=64,mtp=1,width=4", "--verify-width 5", SPEC_MTP_SUFFIX, 4},
        {"ctx=64,width=4", "--verify-width 8", SPEC_SUFFIX, 7},
        {"ctx=64,mtp=1,width=1", "--verify-width 2", SPEC_MTP, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sched_opts o = {.path = cases[i].path,
                               .wake_fd = -1,
                               .spec = {.mode = cases[i].mode, .draft = cases[i].draft}};
        struct sched *s = NULL;
        struct err e = ERR_INIT;
        assert_int_equal(sched_open(&o, &s, &e), 0);
        assert_int_equal(sched_wait(s, &e), QE_USAGE);
        assert_non_null(strstr(e.msg, cases[i].word));
        sched_close(s);
    }
}

/* The step fails in the middle: its jobs end with the reason, nothing is left open. */
static void failures_end_rounds(void **state)
{
    (void)state;
    static int32_t prompt[20];
    static struct result r;
    struct sched *s = open_ready("ctx=2048,mtp=1,fail_decode=7", SPEC_MTP, 3);
    prompt_of(prompt, 20, 3);
    struct job_spec spec = {.prompt = prompt, .n_prompt = 20, .max_tokens = 200, .wake_fd = -1};
    struct job *j = NULL;
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    finish(j, &r);
    assert_int_equal(r.reason, JR_ERROR);
    assert_non_null(strstr(job_error(j), "made to fail"));
    job_free(j);
    assert_int_equal(fake_log.open_seqs, 0);
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    finish(j, &r);
    assert_int_equal(r.n, 200);
    job_free(j);
    sched_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_drafter_and_depth),    cmocka_unit_test(ends_in_mid_round),
        cmocka_unit_test(good_drafts_are_used),       cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(failures_end_rounds),        cmocka_unit_test(caps_are_kept),
        cmocka_unit_test(beyond_the_caps_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
