/* src/sched on the real engine and the demo model: sixteen at once say token for
 * token what each says alone, greedy or seeded, however they arrive; a live state
 * goes on, and is exact where its turns end in prefill. */
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

#include "base/clock.h"
#include "sched/sched.h"

#define USERS 16
#ifdef SANITIZED /* some thirty times slower */
#define OUT     4
#define LONGEST 40
#define FIRST   70
#define SECOND  150
#else
#define OUT     24
#define LONGEST 290
#define FIRST   200
#define SECOND  700
#endif

static struct sched *sched;

static int prepare(void **state)
{
    (void)state;
    char path[4096];
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(path, sizeof path, "%s/models/demo.qsr", src ? src : ".");
    struct sched_opts o = {.path = path, .wake_fd = -1, .engine = {.ctx = 2048, .threads = 1}};
    struct err e = ERR_INIT;
    if (sched_open(&o, &sched, &e) < 0 || sched_wait(sched, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return -1;
    }
    return 0;
}

static int clean(void **state)
{
    (void)state;
    sched_close(sched);
    return 0;
}

struct result {
    int32_t ids[512];
    int n;
    enum job_reason reason;
};

static bool take(struct job *j, struct result *r)
{
    struct job_event ev;
    while (job_next(j, &ev)) {
        if (ev.kind == JE_TOKENS) {
            memcpy(r->ids + r->n, ev.ids, (size_t)ev.n * sizeof *ev.ids);
            r->n += ev.n;
        } else if (ev.kind == JE_END) {
            r->reason = ev.reason;
            if (ev.reason == JR_ERROR) {
                fail_msg("%s", job_error(j));
            }
            return true;
        }
    }
    return false;
}

static void finish(struct job *j, struct result *r)
{
    memset(r, 0, sizeof *r);
    while (!take(j, r)) {
        usleep(200);
    }
}

/* Ordinary ids in an order that depends on the salt. */
static void prompt_of(int32_t *p, int n, int salt)
{
    uint32_t x = (uint32_t)salt * 2654435761U + 1;
    for (int i = 0; i < n; i++) {
        x = x * 1664525U + 1013904223U;
        p[i] = (int32_t)(300 + (x >> 8) % 6000);
    }
}

static struct job *submit(const int32_t *p, int n, int who, int out, struct live *l)
{
    struct job_spec s = {
        .prompt = p,
        .n_prompt = (size_t)n,
        .max_tokens = out,
        .draw = {.temp = who % 2 ? 0.9F : 0,
                 .top_p = 0.95F,
                 .top_k = 40,
                 .seed = 1000 + (uint64_t)who},
        .live = l,
        .screen = who % 3 == 0,
        .wake_fd = -1,
    };
    struct job *j = NULL;
    struct err e = ERR_INIT;
    if (sched_submit(sched, &s, &j, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return j;
}

static void sixteen_equal_one(void **state)
{
    (void)state;
    static int32_t prompts[USERS][300];
    static struct result alone[USERS], together[USERS];
    int n[USERS];
    for (int i = 0; i < USERS; i++) {
        n[i] = 3 + (i * 53) % LONGEST;
        prompt_of(prompts[i], n[i], i);
        struct job *j = submit(prompts[i], n[i], i, OUT, NULL);
        finish(j, &alone[i]);
        assert_int_equal(alone[i].n, OUT);
        job_free(j);
    }
    for (int arrival = 0; arrival < 2; arrival++) {
        struct job *jobs[USERS];
        bool over[USERS] = {false};
        uint64_t steps = sched_counters(sched).steps;
        memset(together, 0, sizeof together);
        for (int i = 0; i < USERS; i++) {
            jobs[i] = submit(prompts[i], n[i], i, OUT, NULL);
            if (arrival == 1) {
                usleep(3000 * (unsigned)(i % 3));
            }
        }
        for (int left = USERS; left > 0; usleep(200)) {
            for (int i = 0; i < USERS; i++) {
                if (!over[i] && take(jobs[i], &together[i])) {
                    over[i] = true;
                    left--;
                }
            }
        }
        for (int i = 0; i < USERS; i++) {
            assert_int_equal(together[i].n, OUT);
            assert_memory_equal(together[i].ids, alone[i].ids, OUT * sizeof(int32_t));
            job_free(jobs[i]);
        }
        /* They did share their steps. */
        assert_true(sched_counters(sched).steps - steps < (uint64_t)USERS * (OUT - 1) * 2 / 3);
    }
}

static void live_state_goes_on(void **state)
{
    (void)state;
    static int32_t p[1200];
    static struct result a, b;
    prompt_of(p, 1200, 77);
    struct live *l = live_create();
    /* One token drawn and not computed: the state is prefill's own, on any
     * position, and so the next turn is exactly a cold one. */
    struct job *j = submit(p, FIRST, 0, 1, l);
    finish(j, &a);
    job_free(j);
    j = submit(p, SECOND, 0, OUT, l);
    finish(j, &a);
    assert_int_equal(job_stats(j).cached_tokens, FIRST);
    job_free(j);
    j = submit(p, SECOND, 0, OUT, NULL);
    finish(j, &b);
    assert_int_equal(job_stats(j).cached_tokens, 0);
    job_free(j);
    assert_int_equal(a.n, b.n);
    /* After decoding, the state goes on from where it stands. */
    memcpy(p + SECOND, a.ids, OUT * sizeof *p);
    j = submit(p, SECOND + OUT + 60, 0, OUT, l);
    finish(j, &a);
    assert_int_equal(job_stats(j).cached_tokens, SECOND + OUT - 1);
    assert_int_equal(a.n, OUT);
    job_free(j);
    live_free(l);
}

/* How long a cancelled prompt keeps the engine: one chunk. */
static void cancel_in_mid_prefill(void **state)
{
    (void)state;
    static int32_t p[2000];
    static struct result r;
    prompt_of(p, 2000, 5);
    struct job *j = submit(p, 2000, 0, 5, NULL);
    uint64_t chunks = sched_counters(sched).chunks;
    while (sched_counters(sched).chunks == chunks) {
        usleep(100);
    }
    job_cancel(j);
    finish(j, &r);
    assert_int_equal(r.reason, JR_CANCELLED);
    assert_int_equal(r.n, 0);
    assert_true(sched_counters(sched).chunks - chunks <= 3);
    job_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_equal_one),
        cmocka_unit_test(live_state_goes_on),
        cmocka_unit_test(cancel_in_mid_prefill),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
