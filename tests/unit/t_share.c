/* Who is served next: owners' accounts, the queue, and both in a running scheduler. */
#include "config.h"

#include "sched_help.h"

#include "sched/share.h"

static void accounts(void **state)
{
    (void)state;
    struct share s;
    share_init(&s);
    share_come(&s, 1, 1);
    share_charge(&s, 1, 10000, 0);
    share_charge(&s, 1, 0, 100);
    const double had = share_of(&s, 1)->had;
    assert_true(had == 10000 + 100 * SHARE_DECODE - SHARE_CREDIT);
    /* who comes now is ahead, by so much and no more */
    share_come(&s, 2, 4);
    assert_true(share_of(&s, 2)->had == had - SHARE_CREDIT);
    /* weight 4 pays a quarter */
    share_charge(&s, 2, 400, 0);
    assert_true(share_of(&s, 2)->had == had - SHARE_CREDIT + 100);
    /* staying away saves nothing up; what one has had stays */
    share_gone(&s, 2);
    share_charge(&s, 1, 50000, 0);
    share_come(&s, 2, 4);
    assert_true(share_of(&s, 2)->had == share_of(&s, 1)->had - SHARE_CREDIT);
    share_charge(&s, 2, 400000, 0);
    const double more = share_of(&s, 2)->had;
    share_gone(&s, 2);
    share_come(&s, 2, 4);
    assert_true(share_of(&s, 2)->had == more);
    /* many who come and go are not all remembered, those with jobs are */
    for (uint64_t id = 10; id < 500; id++) {
        share_come(&s, id, 1);
        share_gone(&s, id);
    }
    assert_true(s.n < 100);
    assert_non_null(share_of(&s, 1));
    assert_non_null(share_of(&s, 2));
    assert_null(share_of(&s, 10));
    share_fini(&s);
}

static void who_owes(void **state)
{
    (void)state;
    const struct share_owner a = {.id = 1, .weight = 1, .running = 5};
    const struct share_owner b = {.id = 2, .weight = 1, .running = 4};
    const struct share_owner c = {.id = 3, .weight = 1, .running = 3};
    const struct share_owner d = {.id = 4, .weight = 2, .running = 8};
    assert_false(share_owes(&a, &b)); /* 5 and 4 would be 4 and 5 */
    assert_true(share_owes(&a, &c));
    assert_false(share_owes(&a, &a));
    assert_true(share_owes(&a, &(struct share_owner){.id = 9, .weight = 1}));
    assert_false(share_owes(&d, &c)); /* 4 for each weight, and so would be 4 */
    assert_true(share_owes(&d, &(struct share_owner){.id = 9, .weight = 1, .running = 2}));
}

static bool over_now(const struct sched *s, struct job **jobs, struct result *r, bool *over, int n)
{
    (void)s;
    bool all = true;
    for (int i = 0; i < n; i++) {
        if (!over[i]) {
            take(jobs[i], &r[i], &over[i]);
        }
        all = all && over[i];
    }
    return all;
}

/* One owner has all slots and a hundred jobs more: another one's starts all the same, and both
 * say what they say alone. */
static void a_flood(void **state)
{
    (void)state;
    enum { FLOOD = 60, OTHERS = 3 };
    static struct result got[FLOOD + OTHERS], want;
    struct sched *s = open_ready("ctx=4096,slots=4,step_us=500", 64);
    struct job *jobs[FLOOD + OTHERS];
    struct job_spec specs[FLOOD + OTHERS];
    bool over[FLOOD + OTHERS] = {false};
    int32_t *p = prompt_of(300, 1);
    memset(got, 0, sizeof got);
    for (int i = 0; i < FLOOD + OTHERS; i++) {
        specs[i] = (struct job_spec){.prompt = p,
                                     .n_prompt = (size_t)(40 + i),
                                     .max_tokens = i < FLOOD ? 200 : 20,
                                     .owner = i < FLOOD ? 7 : 8,
                                     .wake_fd = -1};
        if (i == FLOOD) { /* the flood has the slots */
            while (sched_counters(s).steps < 50) {
                usleep(200);
            }
        }
        assert_int_equal(sched_submit(s, &specs[i], &jobs[i], NULL), 0);
    }
    bool before = true;
    while (!over_now(s, jobs, got, over, FLOOD + OTHERS)) {
        if (over[FLOOD] && over[FLOOD + 1] && over[FLOOD + 2] && before) {
            before = false;
            int ended = 0;
            for (int i = 0; i < FLOOD; i++) {
                ended += over[i];
            }
            assert_true(ended < FLOOD / 2); /* the others did not wait for the flood */
        }
        usleep(50);
    }
    assert_true(sched_counters(s).preemptions > 0);
    for (int i = 0; i < FLOOD + OTHERS; i++) {
        expect(&specs[i], 0, 4096, &want);
        same(&got[i], &want);
        if (i >= FLOOD) {
            assert_int_equal(job_stats(jobs[i]).gave_way, 0);
        }
        job_free(jobs[i]);
    }
    assert_int_equal(fake_log.swaps, 0);
    assert_int_equal(fake_log.open_seqs, 0);
    free(p);
    sched_close(s);
}

/* Limits of one owner; priorities; one owner's full queue keeps nobody else out. */
static void limits_of_an_owner(void **state)
{
    (void)state;
    static struct result r;
    struct sched *s = open_ready("slots=4,step_us=300", 3);
    int32_t *p = prompt_of(50, 1);
    struct job_spec spec = {
        .prompt = p, .n_prompt = 50, .max_tokens = -1, .owner = 1, .owner_slots = 2, .wake_fd = -1};
    struct job *jobs[8] = {NULL};
    struct err e = ERR_INIT;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sched_submit(s, &spec, &jobs[i], NULL), 0);
    }
    while (sched_counters(s).running < 2) {
        usleep(100);
    }
    for (int i = 2; i < 5; i++) {
        spec.priority = i == 4 ? 5 : 0;
        spec.max_tokens = i == 4 ? 5 : -1;
        assert_int_equal(sched_submit(s, &spec, &jobs[i], NULL), 0);
    }
    while (sched_counters(s).waiting < 3) {
        usleep(100);
    }
    assert_int_equal(sched_counters(s).running, 2);
    assert_int_equal(sched_submit(s, &spec, &jobs[5], &e), QE_BUSY);
    assert_non_null(strstr(e.msg, "3 requests already wait"));
    spec.owner = 2; /* has a place, and a slot */
    spec.owner_slots = 0;
    spec.max_tokens = 5;
    assert_int_equal(sched_submit(s, &spec, &jobs[5], &e), 0);
    memset(&r, 0, sizeof r);
    finish(jobs[5], &r);
    assert_int_equal(r.n, 5);
    /* of those that wait the one of the highest priority starts, though it came last */
    job_cancel(jobs[0]);
    memset(&r, 0, sizeof r);
    finish(jobs[4], &r);
    assert_int_equal(r.n, 5);
    for (int i = 0; i < 6; i++) {
        job_free(jobs[i]);
    }
    free(p);
    sched_close(s);
}

/* A short prompt that comes while a long one is computed does not wait for its end; short ones
 * that come on and on do not keep the long one from its end. */
static void short_prompts_first(void **state)
{
    (void)state;
    static struct result r, want;
    struct sched *s = open_ready("ctx=50000,slots=4,prefill_us=10,step_us=50", 8);
    int32_t *p = prompt_of(40000, 1), *q = prompt_of(100, 2);
    struct job_spec big = {.prompt = p, .n_prompt = 40000, .max_tokens = 3, .wake_fd = -1};
    struct job_spec small = {.prompt = q, .n_prompt = 100, .max_tokens = 3, .wake_fd = -1};
    struct job *b = NULL, *j = NULL;
    static struct result long_one;
    memset(&long_one, 0, sizeof long_one);
    bool over = false;
    assert_int_equal(sched_submit(s, &big, &b, NULL), 0);
    while (sched_counters(s).chunks == 0) {
        usleep(100);
    }
    int ran = 0;
    while (!over) {
        small.n_prompt = (size_t)(70 + ran % 20);
        assert_int_equal(sched_submit(s, &small, &j, NULL), 0);
        memset(&r, 0, sizeof r);
        finish(j, &r);
        expect(&small, 0, 50000, &want);
        same(&r, &want);
        job_free(j);
        take(b, &long_one, &over);
        ran++;
        assert_true(ran < 2000); /* it ends */
    }
    assert_true(ran > 3);
    expect(&big, 0, 50000, &want);
    same(&long_one, &want);
    job_free(b);
    free(p);
    free(q);
    sched_close(s);
}

/* Between two tokens of somebody's answer lies one chunk of another's long prompt, not more. */
static void a_reader_waits_for_one_chunk(void **state)
{
    (void)state;
    static struct result r, want;
    struct sched *s = open_ready("ctx=50000,slots=4,prefill_us=5,step_us=50", 8);
    int32_t *p = prompt_of(40000, 1), *q = prompt_of(100, 2);
    struct job_spec reads = {.prompt = q, .n_prompt = 100, .max_tokens = -1, .wake_fd = -1};
    struct job_spec big = {.prompt = p, .n_prompt = 40000, .max_tokens = 1, .wake_fd = -1};
    struct job *a = NULL, *b = NULL;
    assert_int_equal(sched_submit(s, &reads, &a, NULL), 0);
    while (sched_counters(s).steps < 3) {
        usleep(100);
    }
    const struct sched_counters before = sched_counters(s);
    assert_int_equal(sched_submit(s, &big, &b, NULL), 0);
    memset(&r, 0, sizeof r);
    finish(b, &r);
    const struct sched_counters after = sched_counters(s);
    expect(&big, 0, 50000, &want);
    same(&r, &want);
    assert_true(after.chunks - before.chunks >= 40000 / 2048);
    /* the last chunk may share its time with what is left */
    assert_true(after.chunks - before.chunks <= after.steps - before.steps + 2);
    job_free(b);
    job_free(a);
    free(p);
    free(q);
    sched_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accounts),
        cmocka_unit_test(who_owes),
        cmocka_unit_test(a_flood),
        cmocka_unit_test(limits_of_an_owner),
        cmocka_unit_test(short_prompts_first),
        cmocka_unit_test(a_reader_waits_for_one_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
