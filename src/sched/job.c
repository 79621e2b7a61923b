/* A job's two ends. Tokens go through a small ring; when the reader is slow they
 * gather in pending, and the reader takes what is still there after the end
 * straight from it: the engine thread neither waits nor drops. */
#include "config.h"
#include "sched/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/rules.h"
#include "sched/live.h"

#define RING_SLOTS 64

void wake(int fd)
{
    if (fd >= 0) {
        uint64_t one = 1;
        /* A full counter (EAGAIN) is as good as a write: the reader is awake. */
        ssize_t rc = write(fd, &one, sizeof one);
        (void)rc;
    }
}

static int32_t *copy_ids(const int32_t *v, size_t n)
{
    int32_t *p = mem_array(n ? n : 1, sizeof *p);
    if (n > 0) {
        memcpy(p, v, n * sizeof *p);
    }
    return p;
}

int job_create(const struct job_spec *spec, int vocab, int ctx, struct job **out, struct err *e)
{
    struct engine_rules r = spec->rules;
    r.stop = spec->stop;
    r.n_stop = spec->n_stop;
    struct rules *rules = NULL;
    int rc = rules_create(&r, spec->prompt, spec->n_prompt, vocab, &rules, e);
    if (rc < 0) {
        return rc;
    }
    struct job *j = mem_zalloc(sizeof *j);
    j->rules = rules;
    j->prompt = copy_ids(spec->prompt, spec->n_prompt);
    j->n_prompt = (int)spec->n_prompt;
    j->max_tokens = spec->max_tokens;
    j->draw = spec->draw;
    j->stop = copy_ids(spec->stop, spec->n_stop);
    j->n_stop = spec->n_stop;
    j->min_tokens = spec->rules.min_tokens;
    if (spec->logprobs) {
        j->logprobs = 1 + spec->top_logprobs;
        j->noted = mem_array((size_t)ctx / JOB_NOTED + 1, sizeof *j->noted);
        memset(j->noted, 0, ((size_t)ctx / JOB_NOTED + 1) * sizeof *j->noted);
        j->n_noted = ctx / JOB_NOTED + 1;
    }
    j->live = spec->live;
    j->tag = spec->tag;
    if (j->live) {
        live_ref(j->live);
    }
    j->head_end = spec->head_end;
    j->query_end = spec->query_end;
    j->input_end = spec->input_end;
    j->screen = spec->screen;
    j->store = spec->store;
    j->wake_fd = spec->wake_fd;
    j->owner = spec->owner;
    j->weight = spec->weight > 0 ? spec->weight : 1;
    j->owner_slots = spec->owner_slots;
    j->priority = spec->priority;
    j->wait_ms = spec->wait_ms;
    j->deadline_ms = spec->deadline_ms;
    j->came = clock_now(clock_main());
    j->ring = ring_create(RING_SLOTS, sizeof(struct job_event));
    j->stats.prompt_tokens = j->n_prompt;
    atomic_init(&j->refs, 1);
    atomic_init(&j->cancel, 0);
    atomic_init(&j->ended, 0);
    *out = j;
    return 0;
}

void job_ref(struct job *j)
{
    atomic_fetch_add_explicit(&j->refs, 1, memory_order_relaxed);
}

void job_unref(struct job *j)
{
    /* Release what this owner did; acquire what the other did before freeing. */
    if (atomic_fetch_sub_explicit(&j->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (j->live) {
        live_unref(j->live);
    }
    ring_free(j->ring);
    rules_free(j->rules);
    for (int i = 0; i < j->n_noted; i++) {
        free(j->noted[i]);
    }
    free(j->noted);
    free(j->prompt);
    free(j->stop);
    free(j->pending);
    free(j->rounds);
    free(j);
}

/* Moves waiting tokens into the ring, a whole event at a time. */
static void flush(struct job *j)
{
    size_t off = 0;
    while (off < j->n_pending) {
        struct job_event ev = {.kind = JE_TOKENS};
        size_t n = j->n_pending - off < JOB_BATCH ? j->n_pending - off : JOB_BATCH;
        memcpy(ev.ids, j->pending + off, n * sizeof *ev.ids);
        ev.n = (int)n;
        if (!ring_push(j->ring, &ev)) {
            break;
        }
        off += n;
    }
    j->n_pending -= off;
    if (off > 0 && j->n_pending > 0) {
        memmove(j->pending, j->pending + off, j->n_pending * sizeof *j->pending);
    }
}

void job_started(struct job *j, int cached)
{
    j->stats.cached_tokens = cached;
    struct job_event ev = {.kind = JE_STARTED, .done = cached, .total = j->n_prompt};
    ring_push(j->ring, &ev); /* the first event: there is room */
    wake(j->wake_fd);
}

void job_progress(struct job *j, int done)
{
    /* Progress is only news; half of the ring stays free for tokens. */
    if (ring_len(j->ring) < RING_SLOTS / 2) {
        struct job_event ev = {.kind = JE_PREFILL, .done = done, .total = j->n_prompt};
        ring_push(j->ring, &ev);
        wake(j->wake_fd);
    }
}

struct engine_logprob *job_note(struct job *j)
{
    const int i = j->stats.output_tokens;
    struct engine_logprob **block = &j->noted[i / JOB_NOTED];
    if (!*block) {
        *block = mem_array((size_t)j->logprobs * JOB_NOTED, sizeof **block);
    }
    return *block + (size_t)(i % JOB_NOTED) * (size_t)j->logprobs;
}

const struct engine_logprob *job_logprobs(const struct job *j, int i, int *n)
{
    *n = j->logprobs;
    return j->logprobs ? j->noted[i / JOB_NOTED] + (size_t)(i % JOB_NOTED) * (size_t)j->logprobs
                       : NULL;
}

void job_token(struct job *j, int32_t id)
{
    if (j->n_pending == j->cap_pending) {
        j->cap_pending = j->cap_pending ? j->cap_pending * 2 : 2 * JOB_BATCH;
        j->pending = mem_realloc(j->pending, j->cap_pending * sizeof *j->pending);
    }
    j->pending[j->n_pending++] = id;
    j->stats.output_tokens++;
    flush(j);
    wake(j->wake_fd);
}

enum job_reason job_late(const struct job *j, int64_t now, bool waits)
{
    const double ms = clock_seconds(now - j->came) * 1e3;
    if (j->deadline_ms > 0 && ms >= j->deadline_ms) {
        return JR_DEADLINE;
    }
    return waits && j->wait_ms > 0 && ms >= j->wait_ms ? JR_WAITED : JR_STOP;
}

/* The words of an end that is not the job's own. */
static void explain(struct job *j, enum job_reason reason)
{
    if (reason == JR_DEADLINE) {
        err_set(&j->err, QE_CANCELLED,
                "the answer was not complete within the %d ms that it had (give it a later "
                "deadline, or fewer tokens)",
                j->deadline_ms);
    } else if (reason == JR_WAITED) {
        err_set(&j->err, QE_BUSY, "nothing became free within %d ms: try again later", j->wait_ms);
    }
}

void job_end(struct job *j, enum job_reason reason)
{
    explain(j, reason);
    flush(j);
    j->reason = reason;
    atomic_store_explicit(&j->ended, 1, memory_order_release);
    wake(j->wake_fd);
    job_unref(j);
}

bool job_next(struct job *j, struct job_event *ev)
{
    /* Read before the ring: all events of an ended job are then in sight. */
    bool ended = atomic_load_explicit(&j->ended, memory_order_acquire);
    if (ring_pop(j->ring, ev)) {
        return true;
    }
    if (!ended || j->end_taken) {
        return false;
    }
    memset(ev, 0, sizeof *ev);
    size_t left = j->n_pending - j->taken;
    if (left > 0) {
        size_t n = left < JOB_BATCH ? left : JOB_BATCH;
        ev->kind = JE_TOKENS;
        ev->n = (int)n;
        memcpy(ev->ids, j->pending + j->taken, n * sizeof *ev->ids);
        j->taken += n;
        return true;
    }
    ev->kind = JE_END;
    ev->reason = j->reason;
    j->end_taken = true;
    return true;
}

void job_cancel(struct job *j)
{
    atomic_store_explicit(&j->cancel, 1, memory_order_relaxed);
}

struct job_stats job_stats(const struct job *j)
{
    return j->stats;
}

void job_paced(struct job *j)
{
    atomic_store_explicit(&j->pace,
                          (uint64_t)j->stats.output_tokens << 32 | (uint32_t)j->stats.rounds,
                          memory_order_relaxed);
}

double job_pace(const struct job *j)
{
    const uint64_t now = atomic_load_explicit(&j->pace, memory_order_relaxed);
    const uint32_t rounds = (uint32_t)now;
    return rounds > 0 ? (double)(now >> 32) / rounds : NAN;
}

void job_round(struct job *j, const struct job_round *r)
{
    if (j->n_rounds == j->cap_rounds) {
        j->cap_rounds = j->cap_rounds ? 2 * j->cap_rounds : 64;
        j->rounds = mem_realloc(j->rounds, j->cap_rounds * sizeof *j->rounds);
    }
    j->rounds[j->n_rounds++] = *r;
}

struct job_stats job_stats_until(const struct job *j, int tokens)
{
    struct job_stats st = j->stats;
    if (tokens >= st.output_tokens) {
        return st;
    }
    st.output_tokens = tokens;
    st.rounds = tokens > 0; /* the prompt's, which gave the first */
    st.drafted = st.accepted = 0;
    st.decode_s = 0;
    st.spec = (struct view_spec){.draft_s = 0};
    int have = st.rounds;
    for (size_t i = 0; i < j->n_rounds && have < tokens; i++) {
        const struct job_round *r = &j->rounds[i];
        const int kept = r->tokens < tokens - have ? r->tokens : tokens - have;
        view_spec_round(&st.spec, (enum view_source)r->source, r->drafts, kept - 1);
        st.rounds++;
        st.drafted += r->drafts;
        st.accepted += kept - 1;
        st.spec.compared += r->compared;
        st.spec.differ += r->differ;
        st.spec.draft_s += (double)r->draft_s;
        st.spec.verify_s += (double)r->verify_s;
        st.spec.host_s += (double)r->host_s;
        st.decode_s += (double)r->draft_s + (double)r->verify_s + (double)r->host_s;
        have += kept;
    }
    return st;
}

const char *job_error(const struct job *j)
{
    return j->err.msg;
}

void job_free(struct job *j)
{
    if (j) {
        job_cancel(j);
        job_unref(j);
    }
}
