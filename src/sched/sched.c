/* The engine thread: admit, compute one chunk of one prompt, take one step with
 * every running sequence, deliver, and again. It owns the engine; the mutex
 * guards only what comes in (queue, quit) and is never held across computing.
 * How prompts are cut and who runs beside whom never changes a result, so the
 * chunk size may follow the clock. */
#include "config.h"
#include "sched/sched.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "sched/reuse.h"
#include "sched/live.h"
#include "sched/queue.h"
#include "sched/round.h"
#include "sched/slot.h"
#include "sched/transfer.h"
#include "view/snap.h"

#define ROWS       16   /* of one decode step */
#define ALONE_S    0.10 /* longest prompt chunk while nobody decodes */
#define TOGETHER_S 0.04 /* … while somebody does */
#define PATIENCE   5    /* milliseconds for a state that comes, with nothing else to do */

struct sched {
    pthread_t thread;
    char *path, *isa;
    struct sched_opts opts;

    pthread_mutex_t lock; /* queue, asked, quit, full */
    pthread_cond_t work;
    struct queue queue;
    struct transfer *asked; /* latest first */
    bool quit;
    bool full; /* no more jobs can run, whichever they are */

    /* loading: written by the engine thread before state's release */
    atomic_int state;
    atomic_int permille;
    pthread_mutex_t load_lock; /* only for sched_wait */
    pthread_cond_t loaded;
    struct err load_err;
    struct engine_model *model;
    struct engine *engine;

    /* engine thread */
    struct slot slots[ROWS];
    int n_run; /* jobs that may run at once */
    struct spec spec;
    struct reuse reuse;
    struct live **lives;
    size_t n_lives, cap_lives;
    struct transfer *moving;  /* oldest first */
    struct transfer *leaving; /* done, and read by who asked */
    uint64_t tick;
    double tok_s; /* of prefill, smoothed */
    struct sched_counters count;
    struct snap snap;
    struct snap kv; /* struct view_kv */
};

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

/* ---- sequences ---- */

static void add_seq(const struct sched *s, struct view_kv *v, int seq, int64_t tag, bool busy)
{
    if (v->n == VIEW_KV_SEQS) {
        v->more++;
        return;
    }
    v->seq[v->n++] = (struct view_kv_seq){.tag = tag,
                                          .tokens = engine_seq_len(s->engine, seq),
                                          .pages = engine_seq_pages(s->engine, seq),
                                          .busy = busy};
}

static int64_t tag_of(const struct live *l)
{
    return atomic_load_explicit(&l->tag, memory_order_relaxed);
}

static void publish_kv(struct sched *s, const struct engine_kept *kept)
{
    struct view_kv v;
    memset(&v, 0, sizeof v);
    v.pages = kept->pages;
    v.pages_free = kept->pages_free;
    v.pages_kept = kept->pages_kept;
    v.page_tokens = kept->page_tokens;
    v.page_bytes = kept->page_bytes;
    for (int i = 0; i < ROWS; i++) {
        const struct job *j = s->slots[i].job;
        if (j && !s->slots[i].filling) {
            add_seq(s, &v, s->slots[i].seq, j->live ? tag_of(j->live) : j->tag, true);
        }
    }
    for (size_t i = 0; i < s->n_lives; i++) {
        const struct live *l = s->lives[i];
        if (!l->busy && l->seq >= 0) {
            add_seq(s, &v, l->seq, tag_of(l), false);
        }
    }
    snap_put(&s->kv, &v, sizeof v);
}

static void publish(struct sched *s)
{
    int running = 0, idle = 0;
    for (int i = 0; i < ROWS; i++) {
        running += s->slots[i].job != NULL;
    }
    for (size_t i = 0; i < s->n_lives; i++) {
        idle += !s->lives[i]->busy && s->lives[i]->seq >= 0;
    }
    const struct engine_kept kept = engine_kept(s->engine);
    s->count.running = running;
    s->count.idle_lives = idle;
    s->count.kept = kept.n;
    s->count.kept_bytes = kept.bytes;
    s->count.pages = kept.pages;
    s->count.pages_free = kept.pages_free;
    s->count.pages_kept = kept.pages_kept;
    snap_put(&s->snap, &s->count, sizeof s->count);
    publish_kv(s, &kept);
}

/* Lets go of lives whose conversations are gone. */
static void sweep_lives(struct sched *s)
{
    for (size_t i = 0; i < s->n_lives;) {
        struct live *l = s->lives[i];
        if (l->busy || !atomic_load_explicit(&l->doomed, memory_order_relaxed)) {
            i++;
            continue;
        }
        live_drop(l, s->engine);
        reuse_forget(&s->reuse, l);
        live_unref(l);
        s->lives[i] = s->lives[--s->n_lives];
    }
}

static void list_live(struct sched *s, struct live *l)
{
    if (l->listed) {
        return;
    }
    if (s->n_lives == s->cap_lives) {
        s->cap_lives = s->cap_lives ? s->cap_lives * 2 : 16;
        s->lives = mem_realloc(s->lives, s->cap_lives * sizeof *s->lives);
    }
    live_ref(l);
    s->lives[s->n_lives++] = l;
    l->listed = true;
}

static struct live *longest_idle(struct sched *s)
{
    struct live *best = NULL;
    for (size_t i = 0; i < s->n_lives; i++) {
        struct live *l = s->lives[i];
        if (!l->busy && l->seq >= 0 && (!best || l->used < best->used)) {
            best = l;
        }
    }
    return best;
}

/* Lets go of states that were read; all: also of those that still are. */
static bool clear_left(struct sched *s, bool all)
{
    bool any = false;
    for (struct transfer **at = &s->leaving; *at;) {
        struct transfer *t = *at;
        if (!all && !transfer_left(t)) {
            at = &t->next;
            continue;
        }
        any = true;
        *at = t->next;
        transfer_clear(t, s->engine);
        transfer_unref(t);
    }
    return any;
}

/* Pages have run out: kept states go first, also one that is being written, then what idle
 * conversations hold, then what is being read of them. */
static bool make_pages(void *ctx)
{
    struct sched *s = ctx;
    if (prefix_reclaim(&s->reuse.prefix) || reuse_give_up(&s->reuse)) {
        return true;
    }
    struct live *l = longest_idle(s);
    if (l) {
        live_drop(l, s->engine);
    }
    return l != NULL || clear_left(s, true);
}

/* A fresh sequence, at the cost of idle lives when there is none. */
static int open_seq(struct sched *s, int *seq, struct err *e)
{
    for (;;) {
        int rc = engine_seq_open(s->engine, seq, e);
        if (rc != QE_BUSY) {
            return rc;
        }
        struct live *l = longest_idle(s);
        if (!l) {
            return rc;
        }
        reuse_park(&s->reuse, l);
    }
}

/* ---- admission ---- */

/* A live that is to be filled is waited for. */
static bool is_awaited(const struct sched *s, const struct live *l)
{
    for (const struct transfer *t = s->moving; t; t = t->next) {
        if (t->in && t->live == l) {
            return true;
        }
    }
    return false;
}

static bool may_start(void *ctx, const struct job *j)
{
    struct sched *s = ctx;
    int running = 0, screen = 0;
    for (int i = 0; i < ROWS; i++) {
        if (s->slots[i].job) {
            running++;
            screen += s->slots[i].job->screen;
        }
    }
    if (running >= s->n_run || (j->live && (j->live->busy || is_awaited(s, j->live))) ||
        !reuse_answered(&s->reuse, j)) {
        return false;
    }
    /* One slot is the screen's, unless there is only one. */
    return j->screen || screen > 0 || s->n_run == 1 || running < s->n_run - 1;
}

static bool is_cancelled(void *ctx, const struct job *j)
{
    (void)ctx;
    return atomic_load_explicit(&j->cancel, memory_order_relaxed);
}

/* Whether a job that waits is not to start any more; ctx: the time. */
static bool is_over(void *ctx, const struct job *j)
{
    const int64_t *now = ctx;
    return is_cancelled(NULL, j) || job_late(j, *now, true) != JR_STOP;
}

/* Its first tokens are there. */
static void begin(struct sched *s, struct slot *slot, int cached)
{
    struct job *j = slot->job;
    slot->done = cached;
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
        int rc = open_seq(s, &seq, &j->err);
        if (rc < 0) {
            reuse_unasked(&s->reuse, j);
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
    slot_start(slot, j, seq, cached, sched_info(s)->ctx, ++s->tick);
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
        begin(s, slot, cached);
    }
}

static void finish(struct sched *s, struct slot *slot, enum job_reason reason)
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
    publish(s);
    job_end(j, reason);
}

/* ---- states that leave and enter ---- */

/* Behind those that wait already, in the order they were asked for. With the lock. */
static void take_transfers(struct sched *s)
{
    struct transfer *in_order = NULL;
    while (s->asked) {
        struct transfer *t = s->asked;
        s->asked = t->next;
        t->next = in_order;
        in_order = t;
    }
    struct transfer **end = &s->moving;
    while (*end) {
        end = &(*end)->next;
    }
    *end = in_order;
}

static int seq_for_state(void *ctx, int *seq, struct err *e)
{
    return open_seq(ctx, seq, e);
}

/* Whether some job could use the engine now. */
static bool is_working(const struct sched *s)
{
    bool works = false;
    for (int i = 0; i < ROWS; i++) {
        works = works || (s->slots[i].job && !s->slots[i].filling);
    }
    return works;
}

/* Goes on with the oldest one. */
static void move_step(struct sched *s)
{
    struct transfer *t = s->moving;
    if (!t) {
        return;
    }
    struct transfer *next = t->next;
    if (t->in) {
        list_live(s, t->live);
    }
    if (!transfer_step(t, s->engine, is_working(s) ? 0 : PATIENCE, seq_for_state, s)) {
        return;
    }
    s->moving = next;
    s->count.restored += t->in && t->err.code == 0;
    if (transfer_holds(t)) {
        t->next = s->leaving;
        s->leaving = t;
    } else {
        transfer_unref(t);
    }
}

/* Takes what came in; false when it is time to quit. Waits while there is
 * nothing to do. */
static bool take_in(struct sched *s)
{
    bool more = true;
    pthread_mutex_lock(&s->lock);
    while (more) {
        struct job *j = NULL;
        int64_t now = clock_now(clock_main());
        while ((j = queue_take(&s->queue, is_over, &now))) {
            pthread_mutex_unlock(&s->lock);
            reuse_unasked(&s->reuse, j);
            job_end(j, is_cancelled(NULL, j) ? JR_CANCELLED : job_late(j, now, true));
            pthread_mutex_lock(&s->lock);
        }
        if (s->quit) {
            break;
        }
        sweep_lives(s);
        (void)clear_left(s, false);
        take_transfers(s);
        for (size_t i = 0; i < s->queue.n; i++) {
            reuse_ask(&s->reuse, s->queue.v[i]);
        }
        while ((j = queue_take(&s->queue, may_start, s))) {
            pthread_mutex_unlock(&s->lock);
            if (j->live) {
                list_live(s, j->live);
            }
            start(s, j);
            pthread_mutex_lock(&s->lock);
        }
        s->count.waiting = (int)s->queue.n;
        publish(s);
        s->full = s->count.running >= s->n_run;
        more = s->count.running == 0 && !s->moving && !reuse_moving(&s->reuse);
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

/* ---- computing ---- */

static double elapsed(int64_t since)
{
    return clock_seconds(clock_now(clock_main()) - since);
}

static void end_cancelled(struct sched *s)
{
    const int64_t now = clock_now(clock_main());
    for (int i = 0; i < ROWS; i++) {
        const struct job *j = s->slots[i].job;
        if (j && is_cancelled(NULL, j)) {
            finish(s, &s->slots[i], JR_CANCELLED);
        } else if (j && job_late(j, now, false) != JR_STOP) {
            finish(s, &s->slots[i], JR_DEADLINE);
        }
    }
}

static void take_token(struct sched *s, struct slot *slot, int32_t id)
{
    enum job_reason reason = JR_STOP;
    if (slot_accept(slot, id, &reason)) {
        finish(s, slot, reason);
    }
}

/* One chunk of the oldest unfinished prompt. */
static void prefill_step(struct sched *s)
{
    struct slot *slot = NULL;
    bool decoding = false;
    for (int i = 0; i < ROWS; i++) {
        struct slot *c = &s->slots[i];
        if (c->job && c->decoding) {
            decoding = true;
        } else if (c->job && (!slot || c->order < slot->order)) {
            slot = c;
        }
    }
    if (!slot) {
        return;
    }
    if (slot->filling) {
        int64_t t0 = clock_now(clock_main());
        int cached = 0;
        const bool more = is_working(s) || s->moving;
        slot->filling = !reuse_fill(&s->reuse, slot, more ? 0 : PATIENCE, &cached);
        slot->job->stats.prefill_s += elapsed(t0);
        if (!slot->filling) {
            begin(s, slot, cached);
        }
        return;
    }
    int before = slot->done;
    int rows = slot_chunk(s->tok_s, decoding ? TOGETHER_S : ALONE_S);
    const int cut = reuse_cut(&s->reuse, slot);
    rows = cut > 0 && cut - slot->done < rows ? cut - slot->done : rows;
    int64_t t0 = clock_now(clock_main());
    bool got = false;
    int32_t id = 0;
    int rc = slot_prefill(slot, s->engine, rows, &got, &id, &slot->job->err);
    if (rc < 0) {
        finish(s, slot, JR_ERROR);
        return;
    }
    double took = elapsed(t0);
    reuse_chunk(&s->reuse, slot);
    int n = slot->done - before;
    slot->job->stats.prefill_s += elapsed(t0);
    s->count.prefilled += (uint64_t)n;
    s->count.prefill_s += took;
    if (n >= 64 && took > 0) {
        s->tok_s = s->tok_s > 0 ? 0.7 * s->tok_s + 0.3 * (n / took) : n / took;
    }
    s->count.chunks++;
    job_progress(slot->job, slot->done);
    if (got) {
        take_token(s, slot, id);
    }
}

/* One round of every sequence whose prompt is computed. */
static void decode_step(struct sched *s)
{
    struct slot *who[ROWS];
    struct round_end ends[ROWS];
    struct round_cost cost;
    int n = 0;
    for (int i = 0; i < ROWS; i++) {
        if (s->slots[i].job && s->slots[i].decoding) {
            who[n++] = &s->slots[i];
        }
    }
    if (n == 0) {
        return;
    }
    round_run(s->engine, &s->spec, who, n, ends, &cost);
    s->count.steps++;
    s->count.rows += (uint64_t)cost.rows;
    s->count.failed += cost.failed;
    view_spec_add(&s->count.spec, &cost.spec);
    for (int i = 0; i < n; i++) {
        if (ends[i].over) {
            finish(s, who[i], ends[i].reason);
        }
    }
}

/* Some prompt is not computed yet. */
static bool prompt_waits(const struct sched *s)
{
    bool waits = false;
    for (int i = 0; i < ROWS; i++) {
        waits = waits || (s->slots[i].job && !s->slots[i].decoding);
    }
    return waits;
}

static void wind_up(struct sched *s)
{
    pthread_mutex_lock(&s->lock);
    take_transfers(s);
    pthread_mutex_unlock(&s->lock);
    while (s->moving) {
        struct transfer *t = s->moving;
        s->moving = t->next;
        transfer_drop(t, s->engine);
        transfer_unref(t);
    }
    (void)clear_left(s, true);
    for (int i = 0; i < ROWS; i++) {
        if (s->slots[i].job) {
            finish(s, &s->slots[i], JR_CANCELLED);
        }
    }
    for (size_t i = 0; i < s->n_lives; i++) {
        live_drop(s->lives[i], s->engine);
        live_unref(s->lives[i]);
    }
    free(s->lives);
    s->lives = NULL;
    s->n_lives = 0;
    reuse_close(&s->reuse);
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
    engine_on_full(s->engine, make_pages, s);
    int slots = engine_info(s->engine)->slots;
    s->n_run = slots < ROWS ? slots : ROWS;
    set_state(s, SCHED_READY);
    while (take_in(s)) {
        end_cancelled(s);
        prefill_step(s);
        end_cancelled(s);
        decode_step(s);
        move_step(s);
        if (!prompt_waits(s)) {
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
    queue_init(&s->queue, o->queue > 0 ? (size_t)o->queue : 64);
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
        queue_fini(&s->queue);
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
    bool found = false;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->queue.n && !found; i++) {
        found = s->queue.v[i] == j;
        before += !found && !is_cancelled(NULL, s->queue.v[i]);
    }
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
    bool in = !s->quit && queue_put(&s->queue, j);
    size_t waiting = s->queue.n;
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
