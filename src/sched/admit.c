/* Who starts and who ends. Of the owners that have something to start, the one that has had
 * least is served first; of his jobs the one of the highest priority, those that gave way
 * before others, and then the earliest. Nothing here changes what a job says. */
#include "config.h"
#include "sched/inside.h"

#include <stdlib.h>

#include "base/clock.h"
#include "sched/job.h"

int admit_running(const struct sched *s)
{
    int n = 0;
    for (int i = 0; i < ROWS; i++) {
        n += s->slots[i].job != NULL;
    }
    return n;
}

bool admit_is_cancelled(void *ctx, const struct job *j)
{
    (void)ctx;
    return atomic_load_explicit(&j->cancel, memory_order_relaxed);
}

/* ---- what may start ---- */

/* A slot for it. One is the screen's, unless there is only one. */
static bool has_slot(const struct sched *s, const struct job *j)
{
    int running = 0, screen = 0;
    for (int i = 0; i < ROWS; i++) {
        if (s->slots[i].job) {
            running++;
            screen += s->slots[i].job->screen;
        }
    }
    return running < s->n_run &&
           (j->screen || screen > 0 || s->n_run == 1 || running < s->n_run - 1);
}

/* Whether it waits for nothing but a place. */
static bool is_ready(void *ctx, const struct job *j)
{
    const struct sched *s = ctx;
    const struct share_owner *o = share_of(&s->share, j->owner);
    return o && (j->owner_slots == 0 || o->running < j->owner_slots) &&
           !(j->live && (j->live->busy || moves_awaits(s, j->live))) &&
           reuse_answered(&s->reuse, j);
}

static bool may_start(void *ctx, const struct job *j)
{
    return is_ready(ctx, j) && has_slot(ctx, j);
}

/* What an owner would start next. */
struct next {
    struct job *job;
    size_t at; /* of those that gave way; else n_waiting */
    double due;
};

static struct next head_of(struct sched *s, const struct share_owner *o,
                           bool (*ok)(void *ctx, const struct job *j))
{
    struct next h = {.at = s->n_waiting};
    for (size_t i = 0; i < s->n_waiting; i++) {
        struct job *j = s->waiting[i].job;
        if (j->owner == o->id && (!h.job || j->priority > h.job->priority) &&
            (ok == is_ready || has_slot(s, j))) {
            h.job = j;
            h.at = i;
        }
    }
    struct job *q = queue_first(&s->queue, o->id, ok, s);
    if (q && (!h.job || q->priority > h.job->priority)) {
        h.job = q;
        h.at = s->n_waiting;
    }
    h.due = o->had;
    for (int i = 0; i < ROWS; i++) { /* what was promised counts as had */
        const struct slot *r = &s->slots[i];
        if (r->job && r->job->owner == o->id && !r->decoding) {
            h.due += (double)slot_left(r) / o->weight;
        }
    }
    return h;
}

static bool fits(const struct sched *s, const struct next *h)
{
    return h->at < s->n_waiting ? room_may_return(s, h->at)
                                : room_admits(s, room_pages(s, h->job->n_prompt + 1));
}

/* ---- starting ---- */

void admit_begin(struct sched *s, struct slot *slot, int cached)
{
    struct job *j = slot->job;
    slot->done = cached;
    slot->begun = true;
    slot->exact = cached == 0 || (engine_seq_pure(s->engine, slot->seq) && cached % 64 == 0);
    s->count.prompt_tokens += (uint64_t)j->n_prompt;
    s->count.cached_tokens += (uint64_t)cached;
    s->count.restored += cached > 0 && j->stats.reuse != JU_LIVE;
    if (slot->q && cached == 0) {
        spec_seq_reset(slot->q);
    }
    job_started(j, cached);
}

static void start(struct sched *s, struct job *j)
{
    struct live *l = j->live;
    int seq = -1, fetched = 0;
    int cached = l ? live_match(l, j->prompt, j->n_prompt) : 0;
    if (cached > 0) {
        seq = l->seq;
        l->seq = -1; /* the slot has it now */
        j->stats.reuse = JU_LIVE;
        j->stats.why = cached == j->n_prompt - 1 ? JS_ALL : JS_NEW;
        j->stats.why_at = cached;
    } else {
        if (l) {
            reuse_park(&s->reuse, l); /* somebody may come back to it */
        }
        int rc = lives_open_seq(s, &seq, &j->err);
        if (rc < 0) {
            reuse_unasked(&s->reuse, j);
            share_gone(&s->share, j->owner);
            job_end(j, JR_ERROR);
            return;
        }
        fetched = reuse_fetched(&s->reuse, j);
        cached = fetched > 0 ? 0 : reuse_resume(&s->reuse, j, seq);
    }
    struct slot *slot = s->slots;
    while (slot->job) {
        slot++;
    }
    if (l) {
        l->busy = true;
        l->used = ++s->tick;
    }
    slot_start(slot, j, seq, cached, sched_info(s)->ctx);
    share_run(&s->share, j->owner, 1);
    if (spec_on(&s->spec)) {
        slot->q = l && l->q ? l->q : spec_seq_create();
        if (l) {
            l->q = NULL;
        }
        spec_seq_prompt(slot->q, j->prompt, j->n_prompt);
    }
    slot->filling = fetched > 0;
    if (!slot->filling) {
        reuse_unasked(&s->reuse, j);
        admit_begin(s, slot, cached);
    }
}

/* Those that came since: the tier is asked, their owners are known. */
static void meet(struct sched *s)
{
    for (size_t i = 0; i < s->queue.n; i++) {
        struct job *j = s->queue.v[i];
        reuse_ask(&s->reuse, j);
        if (!j->known) {
            j->known = true;
            share_come(&s->share, j->owner, j->weight);
        }
    }
}

void admit_start(struct sched *s)
{
    for (;;) {
        meet(s);
        struct next best = {.job = NULL};
        for (size_t i = 0; i < s->share.n; i++) {
            const struct share_owner *o = &s->share.v[i];
            if (o->jobs == o->running) {
                continue;
            }
            const struct next h = head_of(s, o, may_start);
            if (!h.job || !fits(s, &h)) {
                continue;
            }
            if (!best.job || h.due < best.due ||
                (!(best.due < h.due) && h.job->rank < best.job->rank)) {
                best = h;
            }
        }
        if (!best.job) {
            return;
        }
        const bool back = best.at < s->n_waiting;
        if (!back) {
            queue_remove(&s->queue, best.job);
        }
        pthread_mutex_unlock(&s->lock);
        bool done = true;
        if (back) {
            done = room_return(s, best.at);
        } else {
            if (best.job->live) {
                lives_list(s, best.job->live);
            }
            start(s, best.job);
        }
        pthread_mutex_lock(&s->lock);
        if (!done) {
            return; /* not now after all */
        }
    }
}

/* ---- giving way ---- */

static int64_t waits_since(const struct sched *s, const struct next *h)
{
    return h->at < s->n_waiting ? s->waiting[h->at].since : h->job->came;
}

/* The owner who has most of what is not his due beside one more of o's; NULL: nobody has. */
static const struct share_owner *debtor(struct sched *s, const struct share_owner *o, double due)
{
    const struct share_owner *most = NULL;
    for (size_t i = 0; i < s->share.n; i++) {
        const struct share_owner *c = &s->share.v[i];
        if (!share_owes(c, o) || !(due < head_of(s, c, is_ready).due) || !room_victim(s, &c->id)) {
            continue;
        }
        if (!most || (int64_t)c->running * most->weight > (int64_t)most->running * c->weight) {
            most = c;
        }
    }
    return most;
}

void admit_make_way(struct sched *s)
{
    const int64_t now = clock_now(clock_main());
    for (size_t i = 0; i < s->share.n; i++) {
        const struct share_owner *o = &s->share.v[i];
        if (o->jobs == o->running) {
            continue;
        }
        const struct next h = head_of(s, o, is_ready);
        if (!h.job || clock_seconds(now - waits_since(s, &h)) < TOGETHER_S) {
            continue;
        }
        const struct share_owner *from = debtor(s, o, h.due);
        if (from) {
            (void)room_give_way(s, room_victim(s, &from->id));
            return;
        }
    }
}

/* ---- ending ---- */

/* Whether a job that waits is not to start any more; ctx: the time. */
static bool is_over(void *ctx, const struct job *j)
{
    const int64_t *now = ctx;
    return admit_is_cancelled(NULL, j) || job_late(j, *now, true) != JR_STOP;
}

void admit_end_waiting(struct sched *s)
{
    int64_t now = clock_now(clock_main());
    struct job *j = NULL;
    while ((j = queue_take(&s->queue, is_over, &now))) {
        pthread_mutex_unlock(&s->lock);
        reuse_unasked(&s->reuse, j);
        if (j->known) {
            share_gone(&s->share, j->owner);
        }
        job_end(j, admit_is_cancelled(NULL, j) ? JR_CANCELLED : job_late(j, now, true));
        pthread_mutex_lock(&s->lock);
    }
}

void admit_finish(struct sched *s, struct slot *slot, enum job_reason reason)
{
    struct job *j = slot->job;
    struct live *l = j->live;
    reuse_unfill(slot);
    int held = engine_seq_len(s->engine, slot->seq);
    reuse_unasked(&s->reuse, j);
    if (l) {
        l->busy = false;
        l->used = ++s->tick;
    }
    const bool good = reason != JR_ERROR && held > 0 && held <= slot->n;
    if (good && !l) {
        reuse_end(&s->reuse, slot, held);
    }
    if (l && good) {
        live_keep(l, slot->seq, slot->ids, held);
    } else {
        engine_seq_close(s->engine, slot->seq);
        free(slot->ids);
        reuse_closed(&s->reuse);
    }
    if (l) {
        spec_seq_free(l->q);
        l->q = slot->q;
    } else {
        spec_seq_free(slot->q);
    }
    slot->job = NULL;
    share_run(&s->share, j->owner, -1);
    share_gone(&s->share, j->owner);
    figures_publish(s);
    job_end(j, reason);
}

/* Why a job that has started must end now; JR_STOP: it need not. */
static enum job_reason ending(const struct job *j, int64_t now)
{
    return admit_is_cancelled(NULL, j) ? JR_CANCELLED : job_late(j, now, false);
}

void admit_end_late(struct sched *s)
{
    const int64_t now = clock_now(clock_main());
    for (int i = 0; i < ROWS; i++) {
        if (s->slots[i].job && ending(s->slots[i].job, now) != JR_STOP) {
            admit_finish(s, &s->slots[i], ending(s->slots[i].job, now));
        }
    }
    for (size_t i = 0; i < s->n_waiting;) {
        const enum job_reason why = ending(s->waiting[i].job, now);
        if (why != JR_STOP) {
            room_end(s, i, why);
        } else {
            i++;
        }
    }
}
