/* quasar bench --what restore: how long it takes until the first token of a prompt whose
 * beginning is kept, in memory or in a file, beside computing all of it; what reading and
 * copying so many bytes takes by itself; the next turn of a conversation that is there;
 * and what keeping a state and writing it to a file costs a stream of tokens. */
#include "config.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "cmd/bench.h"
#include "cmd/startup.h"
#include "sessions/state.h"

#define MORE   64   /* tokens after the kept ones */
#define FOLLOW 100  /* tokens of a next turn */
#define TIMES  3    /* the whole prompt is computed so often at most */
#define MOST   1024 /* steps while a state is written */
#define TAG    1

/* Milliseconds of one restoring from a file: opening it, readying buffers and threads,
 * until all is in its place, the rest of the prompt; all. And in parts of the threads'
 * time: reading, waiting for buffers. */
struct parts {
    double open, begin, bring, rest, all, reading, waiting;
};

struct restore {
    struct bench *b;
    int32_t *ids; /* depth kept ones, FOLLOW others */
    int depth, seq, threads;
    struct engine_snap *snap;
    uint64_t size; /* of the state's blob */
    char path[512];
    /* ms; upload < 0: none */
    double cold, take, memory, follow, write, read, read_one, upload;
    struct parts first, file;
    struct {
        double step, take, worst, worst_alone, extra; /* ms; extra: what all of it cost */
        int steps;                                    /* while it was written */
    } stream;
};

static double ms_since(int64_t start)
{
    return 1e3 * bench_since(start);
}

/* The prompt from token `from` up to `to`, and the first token drawn. */
static int finish(struct restore *r, int from, int to, int32_t *id, struct err *e)
{
    const int32_t last = to - from - 1;
    const int output = 0;
    const struct engine_draw greedy = {.top_p = 1};
    const struct engine_prefill p = {
        .seq = r->seq, .tokens = r->ids + from, .n = to - from, .want = &last, .n_want = 1};
    int rc = engine_prefill(r->b->g, &p, e);
    return rc < 0 ? rc : engine_sample(r->b->g, &output, &greedy, 1, id, e);
}

static int cold(struct restore *r, int32_t *id, struct err *e)
{
    double t[TIMES];
    int n = 0, rc = 0;
    for (; n < TIMES && n < r->b->reps && rc == 0; n++) {
        engine_seq_reset(r->b->g, r->seq);
        const int64_t start = clock_now(clock_real());
        rc = finish(r, 0, r->depth + MORE, id, e);
        t[n] = ms_since(start);
    }
    r->cold = rc == 0 ? bench_median(t, n) : 0;
    return rc;
}

/* ---- to a file ---- */

/* A kept state that is written by a thread of its own. */
struct writing {
    struct restore *r;
    struct engine_outlet *out;
    struct engine_saved blob;
    uint64_t at;
    pthread_t thread;
    atomic_bool over;
    int rc;
    struct err e;
};

static int give(void *ctx, void *dst, size_t n, struct err *e)
{
    struct writing *w = ctx;
    const int rc = w->blob.read(w->blob.ctx, w->at, dst, n, e);
    w->at += n;
    return rc;
}

static void *write_file(void *arg)
{
    struct writing *w = arg;
    const struct state_meta m = {
        .kind = STATE_PREFIX, .label = "bench", .ids = w->r->ids, .n_ids = (size_t)w->r->depth};
    const struct state_part part = {.tag = TAG, .size = w->blob.size, .give = give, .ctx = w};
    w->rc = state_write(w->r->path, &m, &part, 1, &w->e);
    atomic_store_explicit(&w->over, true, memory_order_release);
    return NULL;
}

static int write_begin(struct restore *r, struct writing *w, struct err *e)
{
    *w = (struct writing){.r = r};
    atomic_init(&w->over, false);
    int rc = engine_outlet_open(r->b->g, r->snap, &w->out, e);
    if (rc < 0) {
        return rc;
    }
    w->blob = engine_outlet_blob(w->out);
    if (pthread_create(&w->thread, NULL, write_file, w) != 0) {
        engine_outlet_close(w->out);
        engine_outlet_free(w->out);
        rc = err_set(e, QE_NOMEM, "cannot start a thread");
    }
    return rc;
}

static int write_end(struct writing *w, struct err *e)
{
    pthread_join(w->thread, NULL);
    engine_outlet_close(w->out);
    engine_outlet_free(w->out);
    if (w->rc < 0 && e) {
        *e = w->e;
    }
    return w->rc;
}

/* Computes the kept part again, keeps it and writes it. */
static int keep(struct restore *r, struct err *e)
{
    struct engine *g = r->b->g;
    const struct engine_prefill p = {.seq = r->seq, .tokens = r->ids, .n = r->depth};
    engine_seq_reset(g, r->seq);
    int rc = engine_prefill(g, &p, e);
    for (int i = 0; i < 2 && rc == 0; i++) { /* the first finds memory for it */
        engine_snap_free(g, r->snap);
        r->snap = NULL;
        const int64_t start = clock_now(clock_real());
        rc = engine_snap_take(g, r->seq, &r->snap, e);
        r->take = ms_since(start);
    }
    if (rc < 0) {
        return rc;
    }
    const char *dir = getenv("TMPDIR");
    snprintf(r->path, sizeof r->path, "%.400s/quasar-bench-%ld", dir ? dir : "/tmp",
             (long)getpid());
    r->size = engine_snap_state_size(g, r->snap);
    struct writing w;
    const int64_t start = clock_now(clock_real());
    rc = write_begin(r, &w, e);
    rc = rc < 0 ? rc : write_end(&w, e);
    r->write = ms_since(start);
    return rc;
}

/* ---- back from it ---- */

/* Reads the file by one thread into memory that is there. */
static int plain_read(struct restore *r, double *ms, struct err *e)
{
    const int fd = open(r->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return err_set(e, QE_IO, "%s cannot be read back", r->path);
    }
    char *buffer = mem_zalloc((size_t)4 << 20);
    const int64_t start = clock_now(clock_real());
    while (read(fd, buffer, (size_t)4 << 20) > 0) {
    }
    *ms = ms_since(start);
    free(buffer);
    close(fd);
    return 0;
}

/* By several. */
static int plain_reads(struct restore *r, double *ms, struct err *e)
{
    struct io_map map;
    int rc = io_map_open(&map, r->path, e);
    if (rc == 0) {
        const double gb_s = startup_reading(&map, r->threads);
        *ms = gb_s > 0 ? (double)map.size / 1e6 / gb_s : 0;
        io_map_close(&map);
    }
    return rc;
}

static int from_memory(struct restore *r, int32_t *id, double *ms, struct err *e)
{
    const int64_t start = clock_now(clock_real());
    int rc = engine_snap_restore(r->b->g, r->seq, r->snap, e);
    rc = rc < 0 ? rc : finish(r, r->depth, r->depth + MORE, id, e);
    *ms = ms_since(start);
    return rc;
}

static int read_part(void *ctx, uint64_t at, void *dst, size_t n, struct err *e)
{
    return state_read_at(ctx, TAG, at, dst, n, e);
}

static int from_file(struct restore *r, int32_t *id, struct parts *t, struct err *e)
{
    struct state_file *f = NULL;
    struct engine_intake *k = NULL;
    struct engine_saved blob = {.size = r->size, .unit = STATE_CHUNK, .read = read_part};
    const int64_t start = clock_now(clock_real());
    int rc = state_open(r->path, &f, e);
    t->open = ms_since(start);
    blob.ctx = f;
    rc = rc < 0 ? rc : engine_intake_open(r->b->g, r->seq, r->depth, &blob, &k, e);
    if (rc == 0) {
        while (!engine_intake_wait(k, 1000)) {
        }
        const struct engine_intake_times times = engine_intake_times(k);
        r->threads = times.threads;
        t->begin = 1e3 * times.open;
        t->reading = 1e3 * times.read / times.threads;
        t->waiting = 1e3 * times.sent / times.threads;
        rc = engine_intake_close(k, e);
    }
    state_close(f);
    t->bring = ms_since(start) - t->open - t->begin;
    rc = rc < 0 ? rc : finish(r, r->depth, r->depth + MORE, id, e);
    t->all = ms_since(start);
    t->rest = t->all - t->open - t->begin - t->bring;
    return rc;
}

/* The next turn of a conversation that stands after depth tokens. */
static int follow(struct restore *r, double *ms, struct err *e)
{
    int32_t id = 0;
    int rc = engine_snap_restore(r->b->g, r->seq, r->snap, e);
    const int64_t start = clock_now(clock_real());
    rc = rc < 0 ? rc : finish(r, r->depth, r->depth + FOLLOW, &id, e);
    *ms = ms_since(start);
    return rc;
}

static int by_time(const void *a, const void *b)
{
    const double x = ((const struct parts *)a)->all, y = ((const struct parts *)b)->all;
    return (x > y) - (x < y);
}

static int again(struct restore *r, int32_t want, struct err *e)
{
    const int reps = r->b->reps;
    double memory[BENCH_REPS], next[BENCH_REPS], read[BENCH_REPS], one[BENCH_REPS];
    struct parts *file = mem_array((size_t)reps, sizeof *file), t;
    int32_t got[2] = {0, 0};
    int rc = 0;
    for (int rep = -1; rep < reps && rc == 0; rep++) { /* the first warms up */
        const int i = rep < 0 ? 0 : rep;
        rc = from_file(r, &got[1], &t, e);
        rc = rc < 0 ? rc : from_memory(r, &got[0], &memory[i], e);
        rc = rc < 0 ? rc : plain_read(r, &one[i], e);
        rc = rc < 0 ? rc : plain_reads(r, &read[i], e);
        rc = rc < 0 ? rc : follow(r, &next[i], e);
        if (rc == 0 && (got[0] != want || got[1] != want)) {
            rc = err_set(e, QE_INTERNAL, "the resumed prompt drew token %d and %d, not %d", got[0],
                         got[1], want);
        }
        if (rep < 0) {
            r->first = t;
        }
        file[i] = t;
    }
    if (rc == 0) {
        qsort(file, (size_t)reps, sizeof *file, by_time);
        r->file = file[reps / 2];
        r->memory = bench_median(memory, reps);
        r->follow = bench_median(next, reps);
        r->read = bench_median(read, reps);
        r->read_one = bench_median(one, reps);
    }
    free(file);
    return rc;
}

/* ---- beside a stream ---- */

static int step(struct restore *r, int32_t *id, double *ms, struct err *e)
{
    const int output = 0;
    const struct engine_draw greedy = {.top_p = 1};
    const int64_t start = clock_now(clock_real());
    int rc = engine_decode(r->b->g, &r->seq, id, 1, e);
    rc = rc < 0 ? rc : engine_sample(r->b->g, &output, &greedy, 1, id, e);
    *ms = ms_since(start);
    return rc;
}

/* Steps from a kept state on: n of them (0: until it is written, MOST at most), while that
 * state is kept again and written, or alone. */
static int stream(struct restore *r, const struct engine_snap *from, int32_t id, bool alone,
                  double *times, int *n, double *take, struct err *e)
{
    struct writing w;
    const int most = alone ? *n : MOST;
    int rc = engine_snap_restore(r->b->g, r->seq, from, e), done = 0;
    const int64_t start = clock_now(clock_real());
    if (rc == 0 && !alone) {
        rc = engine_snap_take(r->b->g, r->seq, &r->snap, e);
        rc = rc < 0 ? rc : write_begin(r, &w, e);
        *take = ms_since(start);
    }
    if (rc < 0) {
        return rc;
    }
    while (done < most && rc == 0 &&
           (alone || !atomic_load_explicit(&w.over, memory_order_acquire))) {
        rc = step(r, &id, &times[done], e);
        done += rc == 0;
    }
    *n = done;
    if (!alone) {
        const int end = write_end(&w, rc < 0 ? NULL : e);
        rc = rc < 0 ? rc : end;
        engine_snap_free(r->b->g, r->snap);
        r->snap = NULL;
    }
    return rc;
}

static double sum_of(const double *v, int n, double *largest)
{
    double sum = 0;
    *largest = 0;
    for (int i = 0; i < n; i++) {
        sum += v[i];
        *largest = v[i] > *largest ? v[i] : *largest;
    }
    return sum;
}

/* What a stream loses when its state is kept and written while it goes on: beside the same
 * steps alone, both for the second time. */
static int beside(struct restore *r, int32_t id, struct err *e)
{
    double *times = mem_array(MOST, sizeof *times), *alone = mem_array(MOST, sizeof *alone);
    struct engine_snap *from = r->snap;
    r->snap = NULL;
    int rc = 0;
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = stream(r, from, id, false, times, &r->stream.steps, &r->stream.take, e);
        rc = rc < 0 ? rc : stream(r, from, id, true, alone, &r->stream.steps, NULL, e);
    }
    if (rc == 0) {
        const int n = r->stream.steps;
        r->stream.extra = r->stream.take + sum_of(times, n, &r->stream.worst);
        r->stream.extra -= sum_of(alone, n, &r->stream.worst_alone);
        r->stream.step = bench_median(alone, n);
    }
    engine_snap_free(r->b->g, from);
    free(times);
    free(alone);
    return rc;
}

/* ---- in words ---- */

static json_t *parts_json(const struct parts *t)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "all_ms", t->all, "open_ms", t->open,
                     "begin_ms", t->begin, "bring_ms", t->bring, "rest_ms", t->rest, "reading_ms",
                     t->reading, "waiting_ms", t->waiting);
}

static void print_parts(const char *what, const struct parts *t)
{
    printf(
        "         %s %9.2f ms: file opened %.2f, buffers %.2f, brought %.2f (a thread reads %.2f "
        "and waits %.2f), rest of the prompt %.2f\n",
        what, t->all, t->open, t->begin, t->bring, t->reading, t->waiting, t->rest);
}

static void report(const struct restore *r)
{
    const double slower = r->upload > r->read ? r->upload : r->read;
    json_t *o = json_pack(
        "{s:s, s:i, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:i, s:o, s:o, s:o}", "what",
        "restore", "depth", r->depth, "prompt_tokens", r->depth + MORE, "bytes",
        (json_int_t)r->size, "cold_ms", r->cold, "memory_ms", r->memory, "file_ms", r->file.all,
        "take_ms", r->take, "write_ms", r->write, "follow_ms", r->follow, "read_ms", r->read,
        "read_one_ms", r->read_one, "threads", r->threads, "first", parts_json(&r->first), "file",
        parts_json(&r->file), "upload_ms", r->upload < 0 ? json_null() : json_real(r->upload));
    json_object_set_new(o, "stream",
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:i}", "step_ms", r->stream.step,
                                  "take_ms", r->stream.take, "worst_ms", r->stream.worst,
                                  "worst_alone_ms", r->stream.worst_alone, "extra_ms",
                                  r->stream.extra, "steps", r->stream.steps));
    bench_add(r->b, o);
    if (r->b->json) {
        return;
    }
    printf("restore  depth %6d  %9.2f ms cold  %9.2f ms from memory (%.1f %%)  %9.2f ms from a "
           "file (%.1f %%)  %.1f MB: kept in %.2f ms, written in %.2f\n",
           r->depth, r->cold, r->memory, 100 * r->memory / r->cold, r->file.all,
           100 * r->file.all / r->cold, (double)r->size / 1e6, r->take, r->write);
    print_parts("first", &r->first);
    print_parts("then ", &r->file);
    printf("         reading alone %.2f ms by %d threads, %.2f by one", r->read, r->threads,
           r->read_one);
    if (r->upload >= 0) {
        printf("; uploading alone %.2f", r->upload);
    }
    printf("; brought in %.2f of the slower\n"
           "         %d tokens more: first token after %.2f ms\n"
           "         a stream of %.3f ms a step: keeping its state takes %.2f ms, writing it %d "
           "steps of at most %.3f (alone %.3f); %.2f steps lost in all\n",
           r->file.bring / slower, FOLLOW, r->follow, r->stream.step, r->stream.take,
           r->stream.steps, r->stream.worst, r->stream.worst_alone,
           r->stream.extra / r->stream.step);
    fflush(stdout);
}

static int measure(struct restore *r, struct err *e)
{
    int32_t want = 0;
    double seconds = 0;
    int rc = cold(r, &want, e);
    rc = rc < 0 ? rc : keep(r, e);
    rc = rc < 0 ? rc : again(r, want, e);
    rc = rc < 0 ? rc : beside(r, want, e);
    if (rc < 0) {
        return rc;
    }
    rc = engine_upload_time(r->b->g, r->size, &seconds, e);
    r->upload = rc == 0 ? 1e3 * seconds : -1;
    return rc == QE_UNSUPPORTED ? 0 : rc;
}

int bench_restore(struct bench *b, int depth, struct err *e)
{
    struct restore r = {.b = b, .depth = depth > MORE ? depth / MORE * MORE : MORE, .seq = -1};
    r.ids = mem_array((size_t)(r.depth + FOLLOW), sizeof *r.ids);
    for (int i = 0; i < r.depth + FOLLOW; i++) {
        r.ids[i] = bench_random_id(b);
    }
    int rc = engine_seq_open(b->g, &r.seq, e);
    rc = rc < 0 ? rc : measure(&r, e);
    if (rc == 0) {
        report(&r);
    }
    if (r.path[0]) {
        (void)unlink(r.path);
    }
    engine_snap_free(b->g, r.snap);
    if (r.seq >= 0) {
        engine_seq_close(b->g, r.seq);
    }
    free(r.ids);
    return rc;
}
