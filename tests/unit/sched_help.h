#ifndef QUASAR_TESTS_SCHED_HELP_H
#define QUASAR_TESTS_SCHED_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "sched/sched.h"
#include "tests/fake/engine.h"

/* For tests of src/sched on the stand-in engine: jobs, what they say, what they must say. */

#define VOCAB 1000

static inline struct sched *open_keeping(const char *path, int queue, struct sched_keep keep)
{
    struct sched_opts o = {.path = path, .queue = queue, .keep = keep, .wake_fd = -1};
    struct sched *s = NULL;
    struct err e = ERR_INIT;
    fake_log_reset();
    assert_int_equal(sched_open(&o, &s, &e), 0);
    assert_int_equal(sched_wait(s, &e), 0);
    return s;
}

static inline struct sched *open_ready(const char *path, int queue)
{
    return open_keeping(path, queue, (struct sched_keep){.off = false});
}

/* A prompt of n tokens that depends on the salt. */
static inline int32_t *prompt_of(int n, int salt)
{
    int32_t *p = malloc((size_t)n * sizeof *p);
    for (int i = 0; i < n; i++) {
        p[i] = 3 + (i * 7 + salt * 13 + i / 5) % (VOCAB - 3);
    }
    return p;
}

struct result {
    int32_t ids[8192];
    int n;
    enum job_reason reason;
    int started, cached;
};

static inline void take(struct job *j, struct result *r, bool *over)
{
    struct job_event ev;
    while (job_next(j, &ev)) {
        switch (ev.kind) {
        case JE_STARTED:
            r->started++;
            r->cached = ev.done;
            break;
        case JE_PREFILL:
            assert_true(ev.done <= ev.total);
            break;
        case JE_TOKENS:
            assert_true(ev.n >= 1 && ev.n <= JOB_BATCH);
            memcpy(r->ids + r->n, ev.ids, (size_t)ev.n * sizeof *ev.ids);
            r->n += ev.n;
            break;
        case JE_END:
            r->reason = ev.reason;
            *over = true;
            break;
        }
    }
}

static inline void finish(struct job *j, struct result *r)
{
    bool over = false;
    while (!over) {
        take(j, r, &over);
        usleep(50);
    }
}

/* What the job must yield: the stand-in's own arithmetic, one token at a time. */
static inline void expect(const struct job_spec *s, int eos, int ctx, struct result *want)
{
    int n = (int)s->n_prompt;
    int32_t *ids = malloc(sizeof *ids * (s->n_prompt + 16384));
    memcpy(ids, s->prompt, s->n_prompt * sizeof *ids);
    int limit = s->max_tokens >= 0 && s->max_tokens < ctx - n ? s->max_tokens : ctx - n;
    want->n = 0;
    want->reason = JR_LENGTH;
    while (want->n < limit) {
        int32_t id = fake_next(ids, n, VOCAB, eos, s->draw.temp, s->draw.seed);
        ids[n++] = id;
        want->ids[want->n++] = id;
        if (s->n_stop > 0 && id == s->stop[0]) {
            want->reason = JR_STOP;
            break;
        }
    }
    free(ids);
}

static inline void same(const struct result *got, const struct result *want)
{
    assert_int_equal(got->n, want->n);
    assert_memory_equal(got->ids, want->ids, (size_t)want->n * sizeof *want->ids);
    assert_int_equal(got->reason, want->reason);
}

static const int32_t eos_id = 2;

#endif
