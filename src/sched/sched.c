/* The engine thread: admit, compute a chunk of prompts, take one step with every running
 * sequence, deliver, and again. It owns the engine; the mutex guards only what comes in (queue,
 * quit) and is never held across computing. Here are loading, the loop and the public face. */
#include "config.h"
#include "sched/sched.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sched/inside.h"
#include "sched/job.h"

/* ---- loading ---- */

static void set_state(struct sched *s, enum sched_state st)
{
    pthread_mutex_lock(&s->load_lock);
    atomic_store_explicit(&s->state, st, memory_order_release);
    pthread_cond_broadcast(&s->loaded);
    pthread_mutex_unlock(&s->load_lock);
    wake(s->opts.wake_fd);
}

static void on_progress(void *ctx, double done)
{
    struct sched *s = ctx;
    int permille = (int)(done * 1000);
    if (permille != atomic_exchange_explicit(&s->permille, permille, memory_order_relaxed)) {
        wake(s->opts.wake_fd);
    }
}

/* ---- the loop ---- */

/* Takes what came in; false when it is time to quit. Waits while there is
 * nothing to do. */
static bool take_in(struct sched *s)
{
    bool more = true;
    pthread_mutex_lock(&s->lock);
    while (more) {
        admit_end_waiting(s);
        if (s->quit) {
            break;
        }
        lives_sweep(s);
        (void)moves_clear(s, false);
        moves_take(s);
        admit_start(s);
        admit_make_way(s);
        admit_start(s);
        s->count.waiting = (int)(s->queue.n + s->n_waiting);
        figures_publish(s);
        s->full = s->count.running >= s->n_run;
        more = s->count.running == 0 && s->n_waiting == 0 && !s->moving && !reuse_moving(&s->reuse);
        if (more && s->queue.n == 0 && !s->asked && !s->quit) {
            pthread_mutex_unlock(&s->lock);
            const bool again = reuse_idle(&s->reuse);
            pthread_mutex_lock(&s->lock);
            if (again || s->queue.n > 0 || s->asked) {
                continue;
            }
        }
        if (more && !s->quit) { /* who is still queued waits for the tier, which nudges */
            clock_cond_wait(&s->work, &s->lock);
        }
    }
    bool go_on = !s->quit;
    pthread_mutex_unlock(&s->lock);
    return go_on;
}

static void wind_up(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    moves_take(s);
    pthread_mutex_unlock(&s->lock);
    moves_drop_all(s);
    for (int i = 0; i < ROWS; i++) {
        if (s->slots[i].job) {
            admit_finish(s, &s->slots[i], JR_CANCELLED);
        }
    }
    while (s->n_waiting > 0) {
        room_end(s, 0, JR_CANCELLED);
    }
    free(s->waiting);
    lives_drop_all(s);
    reuse_close(&s->reuse);
    share_fini(&s->share);
}

static void run_engine(struct sched *s)
{
    int rc = engine_load(s->path, s->opts.verify, &s->opts.engine, &s->model, &s->load_err);
    if (rc < 0) {
        set_state(s, SCHED_FAILED);
        return;
    }
    s->engine = engine_of(s->model);
    rc = spec_init(&s->spec, &s->opts.spec, s->engine, &s->load_err);
    if (rc < 0) {
        set_state(s, SCHED_FAILED);
        return;
    }
    reuse_open(&s->reuse, &s->opts.keep, s->engine);
    engine_on_full(s->engine, lives_make_pages, s);
    int slots = engine_info(s->engine)->slots;
    s->n_run = slots < ROWS ? slots : ROWS;
    s->swap_most = s->opts.swap ? s->opts.swap : mem_available() / 2;
    share_init(&s->share);
    queue_init(&s->queue, s->opts.queue > 0 ? (size_t)s->opts.queue : 4 * (size_t)slots);
    set_state(s, SCHED_READY);
    while (take_in(s)) {
        admit_end_late(s);
        work_prefill(s);
        admit_end_late(s);
        work_decode(s);
        moves_step(s);
        if (!work_prompts(s)) {
            reuse_move(&s->reuse);
        }
    }
    wind_up(s);
}

static void *engine_thread(void *arg)
{
    run_engine(arg);
    clock_leave();
    return NULL;
}

/* ---- the public face ---- */

int sched_open(const struct sched_opts *o, struct sched **out, struct err *e)
{
    struct sched *s = mem_zalloc(sizeof *s);
    s->opts = *o;
    s->path = mem_strdup(o->path);
    s->isa = o->engine.isa ? mem_strdup(o->engine.isa) : NULL;
    s->opts.path = s->path;
    s->opts.engine.isa = s->isa;
    s->opts.engine.progress = on_progress;
    s->opts.engine.progress_ctx = s;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    pthread_mutex_init(&s->load_lock, NULL);
    pthread_cond_init(&s->loaded, NULL);
    atomic_init(&s->state, SCHED_LOADING);
    atomic_init(&s->permille, 0);
    /* Signals belong to the main thread; threads inherit the mask. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    clock_enter();
    int rc = pthread_create(&s->thread, NULL, engine_thread, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        clock_leave();
        free(s->path);
        free(s->isa);
        free(s);
        return err_sys(e, QE_NOMEM, rc, "cannot start the engine thread");
    }
    *out = s;
    return 0;
}

void sched_close(struct sched *s)
{
    if (!s) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->quit = true;
    clock_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    clock_leave();
    pthread_join(s->thread, NULL);
    clock_enter();
    for (size_t i = 0; i < s->queue.n; i++) {
        reuse_unasked(&s->reuse, s->queue.v[i]);
        job_end(s->queue.v[i], JR_CANCELLED);
    }
    queue_fini(&s->queue);
    engine_unload(s->model);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->load_lock);
    pthread_cond_destroy(&s->loaded);
    free(s->path);
    free(s->isa);
    free(s);
}

void sched_nudge(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    clock_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

enum sched_state sched_poll(const struct sched *s, double *progress, struct err *e)
{
    enum sched_state st = (enum sched_state)atomic_load_explicit(&s->state, memory_order_acquire);
    if (progress) {
        int permille = atomic_load_explicit(&s->permille, memory_order_relaxed);
        *progress = st == SCHED_READY ? 1 : permille / 1000.0;
    }
    if (st == SCHED_FAILED && e) {
        *e = s->load_err;
    }
    return st;
}

int sched_wait(struct sched *s, struct err *e)
{
    pthread_mutex_lock(&s->load_lock);
    while (atomic_load_explicit(&s->state, memory_order_relaxed) == SCHED_LOADING) {
        pthread_cond_wait(&s->loaded, &s->load_lock);
    }
    pthread_mutex_unlock(&s->load_lock);
    return sched_poll(s, NULL, e) == SCHED_READY ? 0 : s->load_err.code;
}

const struct engine_info *sched_info(const struct sched *s)
{
    return engine_info(s->engine);
}

struct engine_sampling sched_defaults(const struct sched *s)
{
    return engine_defaults(s->engine);
}

bool sched_blob(const struct sched *s, enum engine_blob which, const char **p, size_t *n)
{
    return engine_model_blob(s->model, which, p, n);
}

void sched_compat(const struct sched *s, uint8_t compat[32], char *label, size_t label_size)
{
    engine_state_compat(s->engine, compat, label, label_size);
}

static int ask_transfer(struct sched *s, struct transfer *t, struct transfer **out, struct err *e)
{
    int rc = sched_poll(s, NULL, e) == SCHED_READY ? 0 : QE_BUSY;
    pthread_mutex_lock(&s->lock);
    if (rc == 0 && !s->quit) {
        t->next = s->asked;
        s->asked = t;
        clock_cond_signal(&s->work);
    } else {
        rc = QE_BUSY;
    }
    pthread_mutex_unlock(&s->lock);
    if (rc < 0) {
        transfer_unref(t);
        transfer_unref(t);
        return err_set(e, rc, "the engine is not ready for a saved state");
    }
    *out = t;
    return 0;
}

int sched_export(struct sched *s, struct live *l, int wake_fd, struct transfer **out, struct err *e)
{
    return ask_transfer(s, transfer_create(s, l, false, wake_fd), out, e);
}

int sched_import(struct sched *s, struct live *l, const int32_t *ids, size_t n_ids,
                 const struct engine_saved *state, int wake_fd, struct transfer **out,
                 struct err *e)
{
    struct transfer *t = transfer_create(s, l, true, wake_fd);
    t->saved = *state;
    t->n_ids = (int)n_ids;
    t->ids = mem_array(n_ids + 1, sizeof *t->ids);
    if (n_ids > 0) {
        memcpy(t->ids, ids, n_ids * sizeof *t->ids);
    }
    return ask_transfer(s, t, out, e);
}

int sched_ahead(struct sched *s, const struct job *j)
{
    int before = 0;
    pthread_mutex_lock(&s->lock);
    const bool found = queue_before(&s->queue, j, &before);
    const bool full = s->full;
    pthread_mutex_unlock(&s->lock);
    return found && full ? before + 1 : 0;
}

struct sched_counters sched_counters(const struct sched *s)
{
    struct sched_counters c;
    snap_get(&s->snap, &c, sizeof c);
    return c;
}

void sched_kv(const struct sched *s, struct view_kv *out)
{
    snap_get(&s->kv, out, sizeof *out);
}

int sched_check_file(const char *path, struct err *e)
{
    return engine_check_file(path, e);
}

int sched_check_length(const struct sched *s, size_t n_prompt, struct err *e)
{
    const int ctx = sched_info(s)->ctx;
    return n_prompt < (size_t)ctx
               ? 0
               : err_set(e, QE_NOMEM,
                         "the prompt has %zu tokens; the window holds %d, one of them for the "
                         "answer (shorten it, or raise --ctx)",
                         n_prompt, ctx);
}

/* What a job says of its place among others. */
static int check_sharing(const struct job_spec *spec, struct err *e)
{
    if (spec->weight < 0 || spec->weight > JOB_WEIGHT_MAX) {
        return err_set(e, QE_USAGE, "a weight of %d was asked for; it is 1 to %d", spec->weight,
                       JOB_WEIGHT_MAX);
    }
    if (spec->priority < 0 || spec->priority > JOB_PRIORITY_MAX) {
        return err_set(e, QE_USAGE, "priority %d was asked for; it is 0 to %d", spec->priority,
                       JOB_PRIORITY_MAX);
    }
    if (spec->owner_slots < 0 || spec->wait_ms < 0 || spec->deadline_ms < 0) {
        return err_set(
            e, QE_USAGE,
            "a limit of %d jobs at once, %d ms of waiting and %d ms in all: none of them "
            "can be negative",
            spec->owner_slots, spec->wait_ms, spec->deadline_ms);
    }
    return 0;
}

static int check_job(const struct sched *s, const struct job_spec *spec, struct err *e)
{
    switch (sched_poll(s, NULL, e)) {
    case SCHED_LOADING:
        return err_set(e, QE_BUSY, "the model is still loading");
    case SCHED_FAILED:
        return s->load_err.code;
    case SCHED_READY:
        break;
    }
    const struct engine_info *info = sched_info(s);
    if (spec->n_prompt == 0) {
        return err_set(e, QE_USAGE, "the prompt is empty");
    }
    const int fits = sched_check_length(s, spec->n_prompt, e);
    if (fits < 0) {
        return fits;
    }
    for (size_t i = 0; i < spec->n_prompt; i++) {
        if (spec->prompt[i] < 0 || spec->prompt[i] >= info->vocab_used) {
            return err_set(e, QE_USAGE, "token id %d is outside 0..%d", (int)spec->prompt[i],
                           info->vocab_used - 1);
        }
    }
    if (spec->max_tokens == 0) {
        return err_set(e, QE_USAGE, "a job must be allowed at least one token");
    }
    if (spec->max_tokens > 0 && spec->rules.min_tokens > spec->max_tokens) {
        return err_set(e, QE_USAGE, "min tokens is %d, more than the %d tokens that are allowed",
                       spec->rules.min_tokens, spec->max_tokens);
    }
    const int shared = check_sharing(spec, e);
    if (shared < 0) {
        return shared;
    }
    const int room = info->ctx - (int)spec->n_prompt;
    if (spec->rules.min_tokens > room) {
        return err_set(e, QE_USAGE,
                       "min tokens is %d, more than the %d tokens that fit after the prompt (lower "
                       "--min-tokens, or raise --ctx)",
                       spec->rules.min_tokens, room);
    }
    if (spec->top_logprobs < 0 || spec->top_logprobs > ENGINE_MAX_LOGPROBS) {
        return err_set(e, QE_USAGE, "%d log probabilities a token were asked for; the limit is %d",
                       spec->top_logprobs, ENGINE_MAX_LOGPROBS);
    }
    return 0;
}

int sched_submit(struct sched *s, const struct job_spec *spec, struct job **out, struct err *e)
{
    struct job *j = NULL;
    int rc = check_job(s, spec, e);
    if (rc == 0) {
        const struct engine_info *info = sched_info(s);
        rc = job_create(spec, info->vocab_used, info->ctx, &j, e);
    }
    if (rc < 0) {
        if (spec->rules.form.ctx) {
            spec->rules.form.ops->free(spec->rules.form.ctx);
        }
        return rc;
    }
    job_ref(j); /* the engine thread's; job_end gives it back */
    pthread_mutex_lock(&s->lock);
    size_t waiting = 0;
    j->rank = ++s->arrivals;
    bool in = !s->quit && queue_put(&s->queue, j, &waiting);
    clock_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    if (!in) {
        job_unref(j);
        job_unref(j);
        return err_set(e, QE_BUSY, "%zu requests already wait: try again later", waiting);
    }
    *out = j;
    return 0;
}
