/* Jobs that give their room to others, on the stand-in engine with few pages: states that were
 * swapped or computed again go on with the same tokens, whoever gave way, whatever was cancelled
 * meanwhile; nobody gives way more than three times; at the end everything is free. */
#include "config.h"

#include "sched_help.h"

#define N 24

/* A scheduler whose engine has so many pages of 64 tokens; swap: bytes for states, 1: none. */
static struct sched *open_small(const char *path, uint64_t swap)
{
    struct sched_opts o = {.path = path, .queue = 64, .swap = swap, .wake_fd = -1};
    struct sched *s = NULL;
    fake_log_reset();
    assert_int_equal(sched_open(&o, &s, NULL), 0);
    assert_int_equal(sched_wait(s, NULL), 0);
    return s;
}

/* When nothing runs: every page and sequence is free again. */
static void all_free(struct sched *s)
{
    struct sched_counters c = sched_counters(s);
    for (int i = 0; i < 2000 && c.running + c.waiting + c.idle_lives > 0; i++) {
        usleep(500);
        c = sched_counters(s);
    }
    assert_int_equal(c.running + c.waiting + c.gave_way + c.idle_lives, 0);
    assert_int_equal(c.pages_free, c.pages);
    assert_int_equal(c.gave_way_bytes, 0);
    assert_int_equal(fake_log.open_seqs, 0);
    assert_int_equal(fake_log.swaps, 0);
}

static struct result got[N], want;

/* Jobs of many lengths, greedy and seeded, some of them cancelled at some token. */
static void crowd(struct sched *s, int ctx, bool cancels)
{
    struct job *jobs[N];
    struct job_spec specs[N];
    bool over[N] = {false}, cancelled[N] = {false};
    memset(got, 0, sizeof got);
    for (int i = 0; i < N; i++) {
        const int n = 1 + (i * 97) % 200;
        specs[i] = (struct job_spec){.prompt = prompt_of(n, i),
                                     .n_prompt = (size_t)n,
                                     .max_tokens = 100 + i * 83 % 600,
                                     .draw = {.temp = i % 2 ? 0.8F : 0, .seed = (uint64_t)i},
                                     .priority = i % 5 == 0,
                                     .screen = i % 7 == 0,
                                     .wake_fd = -1};
        assert_int_equal(sched_submit(s, &specs[i], &jobs[i], NULL), 0);
    }
    for (int left = N; left > 0; usleep(50)) {
        for (int i = 0; i < N; i++) {
            if (!over[i]) {
                take(jobs[i], &got[i], &over[i]);
                left -= over[i];
            }
            if (cancels && i % 4 == 1 && !cancelled[i] && got[i].n > i * 3) {
                cancelled[i] = true;
                job_cancel(jobs[i]);
            }
        }
    }
    for (int i = 0; i < N; i++) {
        expect(&specs[i], 0, ctx, &want);
        if (cancelled[i] && got[i].reason == JR_CANCELLED) {
            assert_true(got[i].n <= want.n);
            assert_memory_equal(got[i].ids, want.ids, (size_t)got[i].n * sizeof *want.ids);
        } else {
            same(&got[i], &want);
        }
        assert_true(job_stats(jobs[i]).gave_way <= 3);
        assert_int_equal(got[i].started, 1);
        job_free(jobs[i]);
        free((void *)(uintptr_t)specs[i].prompt);
    }
}

static void few_pages(void **state)
{
    (void)state;
    static const char *const paths[] = {"ctx=1024,pages=16", "ctx=1024,pages=40,mtp=1,slots=8",
                                        "ctx=1024,pages=30,no_verify=1"};
    for (int i = 0; i < 3; i++) {
        for (int swap = 0; swap < 2; swap++) {
            for (int cancels = 0; cancels < 2; cancels++) {
                struct sched *s = open_small(paths[i], swap ? (uint64_t)1 << 30 : 1);
                crowd(s, 1024, cancels);
                all_free(s);
                const struct sched_counters c = sched_counters(s);
                assert_true(c.preemptions > 0);
                assert_int_equal(c.swapped_bytes > 0, swap);
                assert_true(swap || c.repeated > 0);
                sched_close(s);
            }
        }
    }
}

/* Memory for a few states only: some are swapped, others are computed again. */
static void little_memory(void **state)
{
    (void)state;
    struct sched *s = open_small("ctx=1024,pages=20", 3000);
    crowd(s, 1024, false);
    all_free(s);
    const struct sched_counters c = sched_counters(s);
    assert_true(c.swapped_bytes > 0 && c.repeated > 0);
    sched_close(s);
}

/* More than the whole cache holds ends with a line that says so, and leaves nothing behind. */
static void too_small_alone(void **state)
{
    (void)state;
    struct sched *s = open_small("ctx=1024,pages=4", 0);
    int32_t *p = prompt_of(200, 1);
    struct job_spec spec = {.prompt = p, .n_prompt = 200, .max_tokens = 500, .wake_fd = -1};
    struct job *j = NULL;
    memset(got, 0, sizeof got);
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    finish(j, &got[0]);
    assert_int_equal(got[0].reason, JR_ERROR);
    assert_non_null(strstr(job_error(j), "4 pages of 64 tokens"));
    assert_true(got[0].n > 0);
    job_free(j);
    all_free(s);
    free(p);
    sched_close(s);
}

/* Who gives way: the lowest priority, then who came last. */
static void the_last_gives_way(void **state)
{
    (void)state;
    struct sched *s = open_small("ctx=1024,pages=24,slots=4,step_us=100", 0);
    int32_t *p = prompt_of(100, 1);
    struct job *jobs[4];
    const int priority[4] = {0, 3, 3, 9};
    memset(got, 0, sizeof got);
    for (int i = 0; i < 4; i++) {
        struct job_spec spec = {.prompt = p,
                                .n_prompt = 100,
                                .max_tokens = 600,
                                .screen = true,
                                .priority = priority[i],
                                .wake_fd = -1};
        spec.screen = i == 3; /* or one slot would be kept */
        assert_int_equal(sched_submit(s, &spec, &jobs[i], NULL), 0);
    }
    for (int i = 0; i < 4; i++) {
        finish(jobs[i], &got[i]);
        assert_int_equal(got[i].n, 600);
        assert_memory_equal(got[i].ids, got[0].ids, 600 * sizeof(int32_t));
    }
    assert_true(job_stats(jobs[0]).gave_way > 0); /* came first, but has the lowest */
    assert_int_equal(job_stats(jobs[1]).gave_way, 0);
    assert_int_equal(job_stats(jobs[3]).gave_way, 0);
    for (int i = 0; i < 4; i++) {
        job_free(jobs[i]);
    }
    all_free(s);
    free(p);
    sched_close(s);
}

/* A conversation's job that gave way leaves its live as if it had not. */
static void lives_come_back(void **state)
{
    (void)state;
    enum { L = 5, TURNS = 3 };
    struct sched *s = open_small("ctx=2048,pages=34,slots=6,step_us=30", 0);
    struct live *lives[L];
    int32_t *ids[L];
    int n[L];
    for (int i = 0; i < L; i++) {
        lives[i] = live_create();
        ids[i] = realloc(prompt_of(120 + i, i), 2048 * sizeof(int32_t));
        n[i] = 120 + i;
    }
    for (int turn = 0; turn < TURNS; turn++) {
        struct job *jobs[L];
        struct job_spec specs[L];
        for (int i = 0; i < L; i++) {
            specs[i] = (struct job_spec){.prompt = ids[i],
                                         .n_prompt = (size_t)n[i],
                                         .max_tokens = 300,
                                         .live = lives[i],
                                         .wake_fd = -1};
            assert_int_equal(sched_submit(s, &specs[i], &jobs[i], NULL), 0);
        }
        for (int i = 0; i < L; i++) {
            memset(&got[i], 0, sizeof got[i]);
            finish(jobs[i], &got[i]);
            expect(&specs[i], 0, 2048, &want);
            same(&got[i], &want);
            job_free(jobs[i]);
            memcpy(ids[i] + n[i], got[i].ids, (size_t)got[i].n * sizeof(int32_t));
            n[i] += got[i].n + 7;
            for (int k = n[i] - 7; k < n[i]; k++) {
                ids[i][k] = 11 + k % 50;
            }
        }
    }
    assert_true(sched_counters(s).preemptions > 0);
    for (int i = 0; i < L; i++) {
        live_free(lives[i]);
        free(ids[i]);
    }
    sched_close(s);
    assert_int_equal(fake_log.open_seqs, 0);
    assert_int_equal(fake_log.swaps, 0);
}

/* Time is up, or somebody cancels, while a job has given way; closing finds some, too. */
static void ends_while_away(void **state)
{
    (void)state;
    struct sched *s = open_small("ctx=1024,pages=16,slots=4,step_us=300", 0);
    int32_t *p = prompt_of(300, 1);
    struct job_spec spec = {.prompt = p, .n_prompt = 300, .max_tokens = 700, .wake_fd = -1};
    struct job *jobs[3];
    memset(got, 0, sizeof got);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            spec.deadline_ms = i == 1 && round == 0 ? 120 : 0;
            assert_int_equal(sched_submit(s, &spec, &jobs[i], NULL), 0);
        }
        while (sched_counters(s).gave_way < 1) {
            usleep(100);
        }
        if (round == 0) {
            job_cancel(jobs[2]);
            finish(jobs[1], &got[1]);
            finish(jobs[2], &got[2]);
            assert_int_equal(got[1].reason, JR_DEADLINE);
            assert_int_equal(got[2].reason, JR_CANCELLED);
            finish(jobs[0], &got[0]);
            assert_int_equal(got[0].reason, JR_LENGTH);
            all_free(s);
        } else {
            sched_close(s);
        }
        for (int i = 0; i < 3; i++) {
            job_free(jobs[i]);
        }
    }
    assert_int_equal(fake_log.swaps, 0);
    assert_int_equal(fake_log.open_seqs, 0);
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_pages),       cmocka_unit_test(little_memory),
        cmocka_unit_test(too_small_alone), cmocka_unit_test(the_last_gives_way),
        cmocka_unit_test(lives_come_back), cmocka_unit_test(ends_while_away),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
