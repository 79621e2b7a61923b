/* The scheduler on the demo model with a cache far too small for all: jobs come at random, of
 * many owners, are cancelled, run out of time, give way to each other, speculate. Every answer
 * is, token for token, that of the job alone without speculation; at the end every page and
 * sequence is free. A few seconds; half an hour with QUASAR_LONG. */
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
#include "base/philox.h"
#include "sched/sched.h"

#define SLOTS   5
#define AT_ONCE 24 /* jobs that were not taken yet */
#ifdef SANITIZED   /* some thirty times slower */
#define KINDS   3
#define LONGEST 30
#define OUT     6
#define JOBS    10
#else
#define KINDS   4
#define LONGEST 150
#define OUT     160
#define JOBS    30
#endif

/* What is asked for, and what must come. */
struct kind {
    int32_t prompt[LONGEST], want[OUT];
    int n, out;
    float temp;
    uint64_t seed;
};
static struct kind kinds[KINDS];
static uint32_t drawn;

static uint32_t draw(uint32_t below)
{
    return philox_word(31, drawn++, PHILOX_TARGET, 0) % below;
}

static struct sched *open_demo(int cache, uint64_t swap, enum spec_mode spec)
{
    char path[4096];
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(path, sizeof path, "%s/models/demo.qsr", src ? src : ".");
    struct sched_opts o = {
        .path = path,
        .wake_fd = -1,
        .swap = swap,
        .spec = {.mode = spec},
        .engine = {.ctx = 1024, .threads = 1, .slots = cache ? SLOTS : 0, .cache = cache}};
    struct sched *s = NULL;
    struct err e = ERR_INIT;
    if (sched_open(&o, &s, &e) < 0 || sched_wait(s, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return s;
}

static struct job_spec spec_of(const struct kind *k)
{
    return (struct job_spec){
        .prompt = k->prompt,
        .n_prompt = (size_t)k->n,
        .max_tokens = k->out,
        .draw = {.temp = k->temp, .top_p = 0.95F, .top_k = 40, .seed = k->seed},
        .wake_fd = -1};
}

static struct job *submit(struct sched *s, const struct job_spec *spec)
{
    struct job *j = NULL;
    struct err e = ERR_INIT;
    if (sched_submit(s, spec, &j, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return j;
}

/* Prompts that say things twice, so that drafts come true; alone, one after the other. */
static int prepare(void **state)
{
    (void)state;
    struct sched *s = open_demo(0, 0, SPEC_OFF);
    for (int i = 0; i < KINDS; i++) {
        struct kind *k = &kinds[i];
        /* many come to need a page more than they begin with */
        k->n = LONGEST - (int)draw(i % 3 ? 9 : LONGEST);
        k->out = i % 3 ? OUT - (int)draw(OUT > 5 ? 5 : 1) : 1 + (int)draw(OUT / 2);
        k->temp = i % 2 ? 0.8F : 0;
        k->seed = 500 + (uint64_t)i;
        const int again = 5 + (int)draw(30);
        for (int t = 0; t < k->n; t++) {
            k->prompt[t] = t < again ? (int32_t)(300 + draw(6000)) : k->prompt[t - again];
        }
        const struct job_spec spec = spec_of(k);
        struct job *j = submit(s, &spec);
        int n = 0;
        for (struct job_event ev = {.kind = JE_STARTED}; ev.kind != JE_END;) {
            if (!job_next(j, &ev)) {
                usleep(100);
            } else if (ev.kind == JE_TOKENS) {
                memcpy(k->want + n, ev.ids, (size_t)ev.n * sizeof *ev.ids);
                n += ev.n;
            }
        }
        assert_int_equal(n, k->out);
        job_free(j);
    }
    sched_close(s);
    return 0;
}

/* One that runs. */
struct run {
    struct job *job; /* NULL: free */
    const struct kind *kind;
    int n, out, cancel_at;
    bool may_be_late;
};

/* wild: with all that can happen to it. */
static void begin(struct sched *s, struct run *r, int kind, uint64_t owner, bool wild)
{
    *r = (struct run){.kind = &kinds[kind % KINDS], .cancel_at = -1};
    struct job_spec spec = spec_of(r->kind);
    spec.owner = owner;
    r->out = r->kind->out;
    if (wild) {
        /* mostly short ones */
        r->out = draw(6) ? 1 + (int)draw((uint32_t)r->out) / 4 : r->out;
        spec.max_tokens = r->out;
        spec.weight = 1 + (int)draw(3);
        spec.priority = draw(5) == 0 ? 3 : 0;
        spec.owner_slots = draw(6) == 0 ? 2 : 0;
        spec.screen = draw(8) == 0;
        spec.deadline_ms = draw(12) == 0 ? 20 + (int)draw(400) : 0;
        spec.wait_ms = draw(12) == 0 ? 1 + (int)draw(200) : 0;
        r->cancel_at = draw(6) == 0 ? (int)draw((uint32_t)r->out + 1) : -1;
        r->may_be_late = spec.deadline_ms > 0 || spec.wait_ms > 0;
    }
    r->job = submit(s, &spec);
}

/* Takes what came; true: it is over and was right. */
static bool follow(struct run *r)
{
    struct job_event ev;
    while (job_next(r->job, &ev)) {
        if (ev.kind == JE_TOKENS) {
            assert_true(r->n + ev.n <= r->out);
            assert_memory_equal(ev.ids, r->kind->want + r->n, (size_t)ev.n * sizeof *ev.ids);
            r->n += ev.n;
        } else if (ev.kind == JE_END) {
            if (ev.reason == JR_LENGTH) {
                assert_int_equal(r->n, r->out);
            } else if (ev.reason == JR_WAITED || ev.reason == JR_DEADLINE) {
                assert_true(r->may_be_late);
            } else if (ev.reason != JR_CANCELLED || r->cancel_at < 0) {
                fail_msg("ended by %d: %s", (int)ev.reason, job_error(r->job));
            }
            assert_true(job_stats(r->job).gave_way <= 3);
            job_free(r->job);
            r->job = NULL;
            return true;
        }
    }
    if (r->cancel_at >= 0 && r->n >= r->cancel_at) {
        job_cancel(r->job);
    }
    return false;
}

static void all_free(struct sched *s)
{
    struct sched_counters c = sched_counters(s);
    for (int i = 0; i < 20000 && c.running + c.waiting > 0; i++) {
        usleep(100);
        c = sched_counters(s);
    }
    assert_int_equal(c.running + c.waiting + c.gave_way + c.idle_lives, 0);
    assert_int_equal(c.pages_free + c.pages_kept, c.pages);
    assert_int_equal(c.gave_way_bytes, 0);
}

/* Sixteen at once, sixteen one after the other: no job's end is left open. */
static void sixteen(struct sched *s, bool staggered)
{
    struct run runs[16];
    int left = 16;
    for (int i = 0; i < 16; i++) {
        begin(s, &runs[i], i, i < 8 ? 1 : 2, false);
        /* the first owner has the slots before the second one comes */
        while (i == 7 && sched_counters(s).steps == 0) {
            usleep(100);
        }
        if (staggered) {
            usleep(2000 * draw(4));
        }
    }
    for (; left > 0; usleep(100)) {
        for (int i = 0; i < 16; i++) {
            left -= runs[i].job && follow(&runs[i]);
        }
    }
}

static void little_room(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        struct sched *s = open_demo(6 * 256, again ? 1 : 0, again ? SPEC_MTP_SUFFIX : SPEC_AUTO);
        sixteen(s, again);
        all_free(s);
        const struct sched_counters c = sched_counters(s);
        assert_true(again ? c.swapped_bytes == 0 : c.repeated == 0);
#ifndef SANITIZED
        assert_true(again ? c.repeated > 0 : c.swapped_bytes > 0);
#endif
        print_message("%d gave way\n", (int)c.preemptions);
        sched_close(s);
    }
}

static void soak(void **state)
{
    (void)state;
    const bool whole = getenv("QUASAR_LONG") != NULL;
    const int64_t start = clock_now(clock_real());
    int ended = 0;
    uint64_t gave_way = 0;
    for (int turn = 0; turn < 2 || whole; turn++) {
        struct sched *s = open_demo(9 * 256, turn % 2 ? 4 << 20 : 0, SPEC_AUTO);
        struct run runs[AT_ONCE] = {{NULL}};
        int begun = 0, open = 0;
        const int jobs = whole ? 20 * JOBS : JOBS / 2;
        while (begun < jobs || open > 0) {
            for (int i = 0; i < AT_ONCE; i++) {
                if (runs[i].job) {
                    const bool over = follow(&runs[i]);
                    open -= over;
                    ended += over;
                } else if (begun < jobs && draw(10) == 0) {
                    begin(s, &runs[i], (int)draw(KINDS), begun < 8 ? 0 : draw(4), true);
                    begun++;
                    open++;
                }
            }
            usleep(100);
        }
        all_free(s);
        gave_way += sched_counters(s).preemptions;
        sched_close(s);
        if (whole && clock_seconds(clock_now(clock_real()) - start) > 1800) {
            break;
        }
    }
    print_message("%d jobs, %d gave way\n", ended, (int)gave_way);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(little_room), cmocka_unit_test(soak)};
    return cmocka_run_group_tests(tests, prepare, NULL);
}
