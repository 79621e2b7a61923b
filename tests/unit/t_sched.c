/* src/sched on the stand-in engine: company, order and cutting never change a
 * job's tokens; cancelling, limits, the reserved slot, slow readers, failures. */
#include "config.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "sched_help.h"

/* 40 jobs over 16 rows, arriving in bursts, greedy and seeded, prompts of many
 * lengths: each equals its lonely run. */
static void company_changes_nothing(void **state)
{
    (void)state;
    struct sched *s = open_ready("ctx=2048,eos=90,step_us=100,prefill_us=1", 64);
    enum { N = 40 };
    static struct result got[N], want;
    struct job *jobs[N];
    struct job_spec specs[N];
    memset(got, 0, sizeof got);
    for (int i = 0; i < N; i++) {
        int n = 1 + (i * 37) % 700;
        specs[i] = (struct job_spec){
            .prompt = prompt_of(n, i),
            .n_prompt = (size_t)n,
            .max_tokens = i % 5 ? 20 + i * 5 : -1,
            .draw = {.temp = i % 2 ? 0.8F : 0, .seed = (uint64_t)i},
            .stop = &eos_id,
            .n_stop = 1,
            .screen = i % 7 == 0,
            .wake_fd = -1,
        };
        assert_int_equal(sched_submit(s, &specs[i], &jobs[i], NULL), 0);
        if (i % 4 == 3) {
            usleep(2000);
        }
    }
    int left = N;
    bool over[N] = {false};
    while (left > 0) {
        for (int i = 0; i < N; i++) {
            bool was = over[i];
            take(jobs[i], &got[i], &over[i]);
            left -= over[i] && !was;
        }
        usleep(100);
    }
    for (int i = 0; i < N; i++) {
        expect(&specs[i], 90, 2048, &want);
        same(&got[i], &want);
        struct job_stats st = job_stats(jobs[i]);
        assert_int_equal(st.output_tokens, want.n);
        assert_int_equal(st.rounds, want.n);
        assert_int_equal(got[i].started, 1);
        job_free(jobs[i]);
        free((void *)(uintptr_t)specs[i].prompt);
    }
    assert_true(fake_log.max_rows > 8);
    assert_int_equal(fake_log.open_seqs, 0);
    sched_close(s);
}

/* A reader who sleeps through the whole answer still gets every token, and the
 * engine did not wait for him. */
static void slow_reader_loses_nothing(void **state)
{
    (void)state;
    struct sched *s = open_ready("ctx=8192", 4);
    int32_t *p = prompt_of(100, 1);
    struct job_spec spec = {.prompt = p, .n_prompt = 100, .max_tokens = 6000, .wake_fd = -1};
    struct job *j = NULL;
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    while (fake_log.decode_calls < 5999) {
        usleep(1000);
    }
    usleep(20000);
    assert_int_equal(sched_counters(s).running, 0);
    static struct result got, want;
    memset(&got, 0, sizeof got);
    finish(j, &got);
    expect(&spec, 0, 8192, &want);
    same(&got, &want);
    job_free(j);
    free(p);
    sched_close(s);
}

static void cancel_takes_one_step(void **state)
{
    (void)state;
    struct sched *s = open_ready("ctx=8192,step_us=2000,prefill_us=100", 4);
    int32_t *p = prompt_of(4000, 1);
    struct job_spec spec = {.prompt = p, .n_prompt = 10, .max_tokens = -1, .wake_fd = -1};
    struct job *j = NULL;
    static struct result got;
    memset(&got, 0, sizeof got);
    bool over = false;
    /* in mid-decode */
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    while (got.n < 5) {
        take(j, &got, &over);
    }
    int before = fake_log.decode_calls;
    job_cancel(j);
    finish(j, &got);
    assert_int_equal(got.reason, JR_CANCELLED);
    assert_true(fake_log.decode_calls - before <= 2);
    job_free(j);
    /* in mid-prefill: 4,000 tokens would take 0.4 s */
    memset(&got, 0, sizeof got);
    spec.n_prompt = 4000;
    fake_log_reset();
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    while (fake_log.prefill_calls == 0) {
        usleep(100);
    }
    job_cancel(j);
    finish(j, &got);
    assert_int_equal(got.reason, JR_CANCELLED);
    assert_int_equal(got.n, 0);
    assert_true(fake_log.prefill_tokens < 2000);
    job_free(j);
    free(p);
    sched_close(s);
}

/* Who has how many pages, by the owners' tags; counters of prompts and failed rounds. */
static void figures_of_the_cache(void **state)
{
    (void)state;
    struct sched *s = open_ready("ctx=2048,step_us=1000,fail_decode=40", 4);
    int32_t *p = prompt_of(300, 1);
    struct live *l = live_create();
    struct view_kv v;
    live_tag(l, 77);
    struct job_spec spec = {
        .prompt = p, .n_prompt = 300, .max_tokens = 5, .live = l, .tag = 9, .wake_fd = -1};
    struct job *j = NULL;
    static struct result got;
    memset(&got, 0, sizeof got);
    sched_kv(s, &v);
    assert_int_equal(v.n, 0);
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    finish(j, &got);
    job_free(j);
    sched_kv(s, &v);
    assert_int_equal(v.n, 1);
    assert_int_equal(v.more, 0);
    assert_int_equal(v.seq[0].tag, 77);
    assert_false(v.seq[0].busy);
    assert_int_equal(v.seq[0].tokens, 304);
    assert_int_equal(v.seq[0].pages, 5);
    assert_int_equal(v.page_tokens, FAKE_PAGE);
    assert_int_equal(v.pages - v.pages_free, 5);
    assert_true(v.page_bytes > 0);
    struct sched_counters c = sched_counters(s);
    assert_int_equal(c.prefilled, 300);
    assert_int_equal(c.failed, 0);
    assert_true(c.prefill_s > 0);
    /* a job without a live has its own tag, and comes first */
    spec.live = NULL;
    spec.max_tokens = -1;
    assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
    do {
        sched_kv(s, &v);
    } while (v.n < 2);
    assert_int_equal(v.seq[0].tag, 9);
    assert_true(v.seq[0].busy);
    assert_int_equal(v.seq[1].tag, 77);
    memset(&got, 0, sizeof got);
    finish(j, &got);
    assert_int_equal(got.reason, JR_ERROR);
    job_free(j);
    assert_int_equal(sched_counters(s).failed, 1);
    sched_kv(s, &v);
    assert_int_equal(v.n, 1);
    live_free(l);
    free(p);
    sched_close(s);
}

static void queue_overflow_is_busy(void **state)
{
    (void)state;
    struct sched *s = open_ready("slots=1,step_us=500", 3);
    int32_t *p = prompt_of(8, 1);
    struct job_spec spec = {.prompt = p, .n_prompt = 8, .max_tokens = 1000, .wake_fd = -1};
    struct job *jobs[8] = {NULL};
    struct err e = ERR_INIT;
    assert_int_equal(sched_submit(s, &spec, &jobs[0], &e), 0);
    while (sched_counters(s).running == 0) {
        usleep(100);
    }
    int rc = 0;
    int n = 1;
    while (n < 8 && (rc = sched_submit(s, &spec, &jobs[n], &e)) == 0) {
        n++;
    }
    assert_int_equal(rc, QE_BUSY);
    assert_int_equal(n, 4); /* one runs, three wait */
    for (int i = 0; i < n; i++) {
        assert_int_equal(sched_ahead(s, jobs[i]), i);
    }
    assert_non_null(strstr(e.msg, "3 requests already wait"));
    /* A waiting one that is cancelled makes room and ends. */
    job_cancel(jobs[2]);
    static struct result got;
    memset(&got, 0, sizeof got);
    job_cancel(jobs[0]);
    finish(jobs[2], &got);
    assert_int_equal(got.reason, JR_CANCELLED);
    assert_int_equal(got.started, 0);
    for (int i = 0; i < n; i++) {
        job_free(jobs[i]);
    }
    free(p);
    sched_close(s);
}

static void refuses_what_does_not_fit(void **state)
{
    (void)state;
    struct sched *s = open_ready("ctx=256", 4);
    int32_t *p = prompt_of(256, 1);
    struct job_spec spec = {.prompt = p, .n_prompt = 256, .max_tokens = -1, .wake_fd = -1};
    struct job *j = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(sched_submit(s, &spec, &j, &e), QE_NOMEM);
    assert_non_null(strstr(e.msg, "256 tokens"));
    spec.n_prompt = 0;
    assert_int_equal(sched_submit(s, &spec, &j, &e), QE_USAGE);
    spec.n_prompt = 255;
    p[7] = VOCAB;
    assert_int_equal(sched_submit(s, &spec, &j, &e), QE_USAGE);
    p[7] = 5;
    /* One token of room: one token, by length. */
    assert_int_equal(sched_submit(s, &spec, &j, &e), 0);
    static struct result got;
    memset(&got, 0, sizeof got);
    finish(j, &got);
    assert_int_equal(got.n, 1);
    assert_int_equal(got.reason, JR_LENGTH);
    job_free(j);
    free(p);
    sched_close(s);
}

static void live_states_are_reused(void **state)
{
    (void)state;
    struct sched *s = open_ready("ctx=4096,eos=40", 4);
    struct live *l = live_create();
    int32_t *p = prompt_of(4000, 3);
    static struct result got, want;
    int n = 300;
    for (int turn = 0; turn < 4; turn++) {
        struct job_spec spec = {.prompt = p,
                                .n_prompt = (size_t)n,
                                .max_tokens = 100,
                                .stop = &eos_id,
                                .n_stop = 1,
                                .live = l,
                                .wake_fd = -1};
        struct job *j = NULL;
        memset(&got, 0, sizeof got);
        int before = fake_log.prefill_tokens;
        assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
        finish(j, &got);
        expect(&spec, 40, 4096, &want);
        same(&got, &want);
        int cached = job_stats(j).cached_tokens;
        assert_int_equal(got.cached, cached);
        assert_int_equal(fake_log.prefill_tokens - before, n - cached);
        job_free(j);
        if (turn > 0) {
            assert_true(cached > 0);
        }
        /* the answer, then what the user says next */
        memcpy(p + n, got.ids, (size_t)got.n * sizeof *p);
        n += got.n + 40;
    }
    /* A prompt that does not extend it starts afresh; so does an equal one. */
    int32_t *q = prompt_of(200, 9);
    for (int i = 0; i < 2; i++) {
        struct job_spec spec = {
            .prompt = q, .n_prompt = 200, .max_tokens = 1, .live = l, .wake_fd = -1};
        struct job *j = NULL;
        memset(&got, 0, sizeof got);
        assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
        finish(j, &got);
        expect(&spec, 40, 4096, &want);
        same(&got, &want);
        assert_int_equal(job_stats(j).cached_tokens, 0);
        job_free(j);
    }
    assert_int_equal(sched_counters(s).idle_lives, 1);
    assert_int_equal(fake_log.open_seqs, 1);
    live_free(l);
    free(p);
    free(q);
    sched_close(s);
}

/* More conversations than sequences: the longest idle one loses its sequence, and finds
 * its state again where states are kept. */
static void idle_lives(bool keep)
{
    struct sched *s = open_keeping("slots=2", 4, (struct sched_keep){.off = !keep});
    struct live *l[3] = {live_create(), live_create(), live_create()};
    int32_t *p = prompt_of(500, 1);
    static struct result got;
    /* 0 1 0 2 0 1: at the end only 1 has lost its sequence. */
    const int order[] = {0, 1, 0, 2, 0, 1}, reused[] = {0, 0, 1, 0, 1, keep};
    for (int i = 0; i < 6; i++) {
        struct job_spec spec = {.prompt = p,
                                .n_prompt = (size_t)(100 + 20 * i),
                                .max_tokens = 1,
                                .live = l[order[i]],
                                .wake_fd = -1};
        struct job *j = NULL;
        memset(&got, 0, sizeof got);
        assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
        finish(j, &got);
        assert_int_equal(job_stats(j).cached_tokens > 0, reused[i]);
        assert_int_equal(job_stats(j).reuse, !reused[i] ? JU_NONE : i < 5 ? JU_LIVE : JU_MEMORY);
        job_free(j);
    }
    for (int i = 0; i < 3; i++) {
        live_free(l[i]);
    }
    free(p);
    sched_close(s);
    assert_int_equal(fake_log.snaps, 0);
}

static void idle_lives_make_room(void **state)
{
    (void)state;
    idle_lives(false);
    idle_lives(true);
}

static void screen_has_a_slot(void **state)
{
    (void)state;
    struct sched *s = open_ready("slots=3,step_us=300", 16);
    int32_t *p = prompt_of(8, 1);
    struct job_spec spec = {.prompt = p, .n_prompt = 8, .max_tokens = -1, .wake_fd = -1};
    struct job *jobs[6] = {NULL};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(sched_submit(s, &spec, &jobs[i], NULL), 0);
    }
    usleep(20000);
    assert_int_equal(sched_counters(s).running, 2);
    assert_int_equal(sched_counters(s).waiting, 3);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(sched_ahead(s, jobs[i]), 0); /* not for others: the slot is kept */
    }
    spec.screen = true;
    spec.max_tokens = 5;
    assert_int_equal(sched_submit(s, &spec, &jobs[5], NULL), 0);
    static struct result got;
    memset(&got, 0, sizeof got);
    finish(jobs[5], &got); /* in front of three that came earlier */
    assert_int_equal(got.n, 5);
    for (int i = 0; i < 6; i++) {
        job_free(jobs[i]);
    }
    free(p);
    sched_close(s);
}

/* What waits too long ends without a token, what takes too long keeps what it said; each with
 * a reason and words of its own. Limits that cannot be are refused. */
static void time_is_up(void **state)
{
    (void)state;
    struct sched *s = open_ready("slots=1,step_us=500", 4);
    int32_t *p = prompt_of(8, 1);
    struct job_spec spec = {
        .prompt = p, .n_prompt = 8, .max_tokens = -1, .deadline_ms = 150, .wake_fd = -1};
    struct job *runs = NULL, *waits = NULL, *late = NULL;
    static struct result got, want;
    struct err e = ERR_INIT;
    assert_int_equal(sched_submit(s, &spec, &runs, &e), 0);
    spec.deadline_ms = 0;
    spec.wait_ms = 5;
    assert_int_equal(sched_submit(s, &spec, &waits, &e), 0);
    spec.wait_ms = 0;
    spec.deadline_ms = 10; /* over while it waits */
    assert_int_equal(sched_submit(s, &spec, &late, &e), 0);
    memset(&got, 0, sizeof got);
    finish(waits, &got);
    assert_int_equal(got.reason, JR_WAITED);
    assert_int_equal(got.started + got.n, 0);
    assert_non_null(strstr(job_error(waits), "within 5 ms"));
    memset(&got, 0, sizeof got);
    finish(late, &got);
    assert_int_equal(got.reason, JR_DEADLINE);
    assert_int_equal(got.started + got.n, 0);
    memset(&got, 0, sizeof got);
    finish(runs, &got);
    assert_int_equal(got.reason, JR_DEADLINE);
    assert_non_null(strstr(job_error(runs), "150 ms"));
    assert_true(got.n > 0);
    spec.max_tokens = got.n;
    expect(&spec, 0, 4096, &want);
    want.reason = JR_DEADLINE;
    same(&got, &want);
    /* a limit of waiting is none for what runs */
    spec.max_tokens = 40;
    spec.deadline_ms = 0;
    spec.wait_ms = 5;
    job_free(waits);
    assert_int_equal(sched_submit(s, &spec, &waits, &e), 0);
    memset(&got, 0, sizeof got);
    finish(waits, &got);
    assert_int_equal(got.reason, JR_LENGTH);
    struct job *none = NULL;
    for (int i = 0; i < 6; i++) {
        struct job_spec bad = spec;
        int *const field[] = {&bad.weight,      &bad.weight,  &bad.priority,
                              &bad.owner_slots, &bad.wait_ms, &bad.deadline_ms};
        *field[i] = i == 0 ? JOB_WEIGHT_MAX + 1 : i == 2 ? JOB_PRIORITY_MAX + 1 : -1;
        assert_int_equal(sched_submit(s, &bad, &none, &e), QE_USAGE);
    }
    job_free(runs);
    job_free(waits);
    job_free(late);
    free(p);
    sched_close(s);
}

static void failures_end_only_their_jobs(void **state)
{
    (void)state;
    struct sched *s = open_ready("fail_prefill=2,fail_decode=40", 4);
    int32_t *p = prompt_of(8, 1);
    struct job_spec spec = {.prompt = p, .n_prompt = 8, .max_tokens = 20, .wake_fd = -1};
    static struct result got;
    const int reasons[] = {JR_LENGTH, JR_ERROR, JR_LENGTH, JR_ERROR, JR_LENGTH};
    for (int i = 0; i < 5; i++) {
        struct job *j = NULL;
        memset(&got, 0, sizeof got);
        assert_int_equal(sched_submit(s, &spec, &j, NULL), 0);
        finish(j, &got);
        assert_int_equal(got.reason, reasons[i]);
        if (reasons[i] == JR_ERROR) {
            assert_non_null(strstr(job_error(j), "made to fail"));
        }
        job_free(j);
    }
    assert_int_equal(fake_log.open_seqs, 0);
    free(p);
    sched_close(s);
}

static void loading_fails_clearly(void **state)
{
    (void)state;
    struct sched_opts o = {.path = "fail_load=1", .wake_fd = eventfd(0, EFD_NONBLOCK)};
    struct sched *s = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(sched_open(&o, &s, &e), 0);
    struct pollfd pf = {.fd = o.wake_fd, .events = POLLIN};
    assert_int_equal(poll(&pf, 1, 5000), 1);
    assert_int_equal(sched_wait(s, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "made to fail"));
    int32_t one = 5;
    struct job_spec spec = {.prompt = &one, .n_prompt = 1, .max_tokens = 1, .wake_fd = -1};
    struct job *j = NULL;
    assert_int_equal(sched_submit(s, &spec, &j, &e), QE_FORMAT);
    sched_close(s);
    close(o.wake_fd);
}

/* Closing with everything under way ends every job; owners free afterwards. */
static void closing_ends_all(void **state)
{
    (void)state;
    struct sched *s = open_ready("slots=2,step_us=500", 16);
    int32_t *p = prompt_of(64, 1);
    struct live *l = live_create();
    struct job *jobs[6];
    for (int i = 0; i < 6; i++) {
        struct job_spec spec = {.prompt = p,
                                .n_prompt = 64,
                                .max_tokens = -1,
                                .live = i == 0 ? l : NULL,
                                .wake_fd = -1};
        assert_int_equal(sched_submit(s, &spec, &jobs[i], NULL), 0);
    }
    usleep(5000);
    sched_close(s);
    static struct result got;
    for (int i = 0; i < 6; i++) {
        memset(&got, 0, sizeof got);
        finish(jobs[i], &got);
        assert_int_equal(got.reason, JR_CANCELLED);
        job_free(jobs[i]);
    }
    live_free(l);
    free(p);
    assert_int_equal(fake_log.open_seqs, 0);
}

/* ---- states that leave and enter ---- */

static void wait_for(struct transfer *t)
{
    for (int i = 0; i < 100000 && !transfer_done(t); i++) {
        usleep(50);
    }
    assert_true(transfer_done(t));
}

/* One more turn of a live: its ids so far, and extra behind them. */
static void extend(struct sched *s, struct live *l, int32_t *ids, int *n, struct result *r)
{
    struct err e = ERR_INIT;
    ids[(*n)++] = 17;
    ids[(*n)++] = 18;
    struct job_spec spec = {
        .prompt = ids, .n_prompt = (size_t)*n, .max_tokens = 9, .live = l, .wake_fd = -1};
    struct job *j = NULL;
    assert_int_equal(sched_submit(s, &spec, &j, &e), 0);
    memset(r, 0, sizeof *r);
    finish(j, r);
    memcpy(ids + *n, r->ids, (size_t)r->n * sizeof *ids);
    *n += r->n;
    job_free(j);
}

/* A copy of a state in memory, and reading it. */
struct copy {
    uint8_t *p;
    uint64_t n;
};

static int read_copy(void *ctx, uint64_t at, void *dst, size_t n, struct err *e)
{
    const struct copy *c = ctx;
    (void)e;
    assert_true(at + n <= c->n);
    memcpy(dst, c->p + at, n);
    return 0;
}

static struct engine_saved saved_of(struct copy *c)
{
    return (struct engine_saved){.size = c->n, .unit = 1, .read = read_copy, .ctx = c};
}

static void a_state_moves(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct sched *a = open_ready("vocab=1000,slots=2", 0);
    struct live *l = live_create();
    struct transfer *t = NULL;
    /* nothing to save yet */
    assert_int_equal(sched_export(a, l, -1, &t, &e), 0);
    wait_for(t);
    assert_int_equal(transfer_result(t, &e), QE_NOTFOUND);
    transfer_free(t);
    int32_t *ids = prompt_of(400, 3);
    ids = realloc(ids, 4096 * sizeof *ids);
    int n = 300;
    struct result r;
    extend(a, l, ids, &n, &r);
    const int fd = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(sched_export(a, l, fd, &t, &e), 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 5000), 1);
    wait_for(t);
    assert_int_equal(transfer_result(t, &e), 0);
    size_t n_ids = 0;
    const int32_t *saved = transfer_ids(t, &n_ids);
    const struct engine_saved blob = transfer_blob(t);
    struct copy copy = {malloc(blob.size), blob.size};
    assert_true(n_ids >= 300 && n_ids < (size_t)n); /* the last token is not computed yet */
    assert_memory_equal(saved, ids, n_ids * sizeof *ids);
    /* uninterrupted, and in another engine from the copy */
    int32_t *again = malloc(4096 * sizeof *again);
    memcpy(again, ids, (size_t)n * sizeof *ids);
    int n2 = n;
    struct result on, back;
    extend(a, l, ids, &n, &on);
    assert_int_equal(on.cached, (int)n_ids);
    assert_int_equal(blob.read(blob.ctx, 0, copy.p, blob.size, &e), 0); /* it is as it was */
    struct sched *b = open_ready("vocab=1000,slots=2", 0);
    struct live *k = live_create();
    struct transfer *u = NULL;
    struct engine_saved back_in = saved_of(&copy);
    assert_int_equal(sched_import(b, k, saved, n_ids, &back_in, -1, &u, &e), 0);
    extend(b, k, again, &n2, &back); /* the job waits for the state by itself */
    wait_for(u);
    assert_int_equal(transfer_result(u, &e), 0);
    assert_int_equal(back.cached, (int)n_ids);
    same(&back, &on);
    transfer_free(u);
    /* what does not fit leaves the live empty, and the next job starts afresh */
    back_in.size--;
    assert_int_equal(sched_import(b, k, saved, n_ids, &back_in, -1, &u, &e), 0);
    wait_for(u);
    assert_int_equal(transfer_result(u, &e), QE_FORMAT);
    transfer_free(u);
    back_in.size++;
    assert_int_equal(sched_import(b, k, saved, n_ids - 1, &back_in, -1, &u, &e), 0);
    wait_for(u);
    assert_int_equal(transfer_result(u, &e), QE_FORMAT);
    transfer_free(u);
    extend(b, k, again, &n2, &back);
    assert_int_equal(back.cached, 0);
    assert_int_equal(fake_log.open_seqs, 1); /* of the second engine */
    live_free(k);
    sched_close(b);
    live_free(l);
    sched_close(a);
    assert_int_equal(blob.read(blob.ctx, 0, copy.p, 1, &e), QE_CANCELLED);
    transfer_free(t);
    close(fd);
    free(copy.p);
    free(ids);
    free(again);
}

/* A live that works gives no copy; a copy that nobody waits for, or that closing
 * overtakes, leaves nothing behind. */
static void transfers_end(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct sched *s = open_ready("vocab=1000,slots=3,step_us=2000", 0);
    struct live *l = live_create();
    int32_t *ids = prompt_of(100, 1);
    struct job_spec spec = {
        .prompt = ids, .n_prompt = 100, .max_tokens = 60, .live = l, .wake_fd = -1};
    struct job *j = NULL;
    assert_int_equal(sched_submit(s, &spec, &j, &e), 0);
    struct transfer *t = NULL;
    while (sched_counters(s).running == 0) {
        usleep(100);
    }
    assert_int_equal(sched_export(s, l, -1, &t, &e), 0);
    wait_for(t);
    assert_int_equal(transfer_result(t, &e), QE_CANCELLED);
    transfer_free(t);
    assert_int_equal(sched_export(s, l, -1, &t, &e), 0);
    transfer_free(t);
    assert_int_equal(sched_export(s, l, -1, &t, &e), 0);
    struct transfer *in = NULL;
    struct copy eight = {(uint8_t *)ids, 8};
    const struct engine_saved small = saved_of(&eight);
    assert_int_equal(sched_import(s, l, ids, 3, &small, -1, &in, &e), 0);
    sched_close(s);
    assert_true(transfer_done(t) && transfer_done(in));
    assert_true(transfer_result(in, &e) < 0);
    transfer_free(t);
    transfer_free(in);
    job_free(j);
    live_free(l);
    free(ids);
    assert_int_equal(fake_log.open_seqs, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(company_changes_nothing),
        cmocka_unit_test(slow_reader_loses_nothing),
        cmocka_unit_test(cancel_takes_one_step),
        cmocka_unit_test(queue_overflow_is_busy),
        cmocka_unit_test(figures_of_the_cache),
        cmocka_unit_test(refuses_what_does_not_fit),
        cmocka_unit_test(live_states_are_reused),
        cmocka_unit_test(idle_lives_make_room),
        cmocka_unit_test(screen_has_a_slot),
        cmocka_unit_test(time_is_up),
        cmocka_unit_test(failures_end_only_their_jobs),
        cmocka_unit_test(loading_fails_clearly),
        cmocka_unit_test(closing_ends_all),
        cmocka_unit_test(a_state_moves),
        cmocka_unit_test(transfers_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
