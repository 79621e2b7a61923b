/* quasar bench --what restore: how long it takes until the first token of a prompt whose
 * beginning is kept, in memory or in a file, beside computing all of it; and what copying
 * so many bytes takes by itself. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "cmd/bench.h"
#include "sessions/state.h"

#define MORE  64 /* tokens after the kept ones */
#define TIMES 3  /* the whole prompt is computed so often at most */
#define TAG   1

struct restore {
    struct bench *b;
    int32_t *ids; /* depth kept ones, MORE others */
    int depth, seq;
    struct engine_snap *snap;
    size_t size; /* of the state's blob */
    void *blob;
    char path[512];
    double cold, take, memory, export, file, read, import, upload; /* ms; upload < 0: none */
};

/* The rest of the prompt after `from` tokens, and the first token drawn. */
static int finish(struct restore *r, int from, int32_t *id, struct err *e)
{
    const int n = r->depth + MORE - from;
    const int32_t last = n - 1;
    const int output = 0;
    const struct engine_draw greedy = {.top_p = 1};
    const struct engine_prefill p = {
        .seq = r->seq, .tokens = r->ids + from, .n = n, .want = &last, .n_want = 1};
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
        rc = finish(r, 0, id, e);
        t[n] = 1e3 * bench_since(start);
    }
    r->cold = rc == 0 ? bench_median(t, n) : 0;
    return rc;
}

/* Computes the kept part again, keeps it, copies it out and writes it. */
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
        r->take = 1e3 * bench_since(start);
    }
    if (rc < 0) {
        return rc;
    }
    r->size = engine_snap_state_size(g, r->snap);
    r->blob = mem_alloc(r->size);
    memset(r->blob, 0, r->size);
    const int64_t start = clock_now(clock_real());
    for (size_t at = 0; at < r->size && rc == 0;) {
        rc = engine_snap_export_piece(g, r->snap, r->blob, &at, r->size, e);
    }
    r->export = 1e3 * bench_since(start);
    const char *dir = getenv("TMPDIR");
    snprintf(r->path, sizeof r->path, "%.400s/quasar-bench-%ld", dir ? dir : "/tmp",
             (long)getpid());
    const struct state_meta m = {
        .kind = STATE_PREFIX, .label = "bench", .ids = r->ids, .n_ids = (size_t)r->depth};
    const struct state_part part = {.tag = TAG, .size = r->size, .data = r->blob};
    return rc < 0 ? rc : state_write(r->path, &m, &part, 1, e);
}

static int plain_read(struct restore *r, struct err *e)
{
    const int fd = open(r->path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? err_set(e, QE_IO, "%s cannot be read back", r->path) : 0;
    const int64_t start = clock_now(clock_real());
    ssize_t k = 1;
    for (size_t at = 0; at < r->size && k > 0 && rc == 0; at += (size_t)k) {
        k = read(fd, (char *)r->blob + at, r->size - at);
    }
    r->read = 1e3 * bench_since(start);
    if (fd >= 0) {
        close(fd);
    }
    return rc;
}

static int from_memory(struct restore *r, int32_t *id, struct err *e)
{
    const int64_t start = clock_now(clock_real());
    int rc = engine_snap_restore(r->b->g, r->seq, r->snap, e);
    rc = rc < 0 ? rc : finish(r, r->depth, id, e);
    r->memory = 1e3 * bench_since(start);
    return rc;
}

static int from_file(struct restore *r, int32_t *id, struct err *e)
{
    struct state_file *f = NULL;
    const int64_t start = clock_now(clock_real());
    int rc = state_open(r->path, &f, e);
    rc = rc < 0 ? rc : state_read(f, TAG, r->blob, r->size, e);
    state_close(f);
    const int64_t mid = clock_now(clock_real());
    rc = rc < 0 ? rc : engine_seq_import(r->b->g, r->seq, r->blob, r->size, e);
    r->import = 1e3 * bench_since(mid);
    rc = rc < 0 ? rc : finish(r, r->depth, id, e);
    r->file = 1e3 * bench_since(start);
    return rc;
}

static int measure(struct restore *r, struct err *e)
{
    double memory[BENCH_REPS], file[BENCH_REPS], read[BENCH_REPS], import[BENCH_REPS];
    int32_t want = 0, got[2] = {0, 0};
    int rc = cold(r, &want, e);
    rc = rc < 0 ? rc : keep(r, e);
    for (int rep = -1; rep < r->b->reps && rc == 0; rep++) { /* the first warms up */
        rc = from_memory(r, &got[0], e);
        rc = rc < 0 ? rc : from_file(r, &got[1], e);
        rc = rc < 0 ? rc : plain_read(r, e);
        if (rc == 0 && (got[0] != want || got[1] != want)) {
            rc = err_set(e, QE_INTERNAL, "the resumed prompt drew token %d and %d, not %d", got[0],
                         got[1], want);
        }
        if (rep >= 0) {
            memory[rep] = r->memory;
            file[rep] = r->file;
            read[rep] = r->read;
            import[rep] = r->import;
        }
    }
    if (rc < 0) {
        return rc;
    }
    r->memory = bench_median(memory, r->b->reps);
    r->file = bench_median(file, r->b->reps);
    r->read = bench_median(read, r->b->reps);
    r->import = bench_median(import, r->b->reps);
    double seconds = 0;
    rc = engine_upload_time(r->b->g, r->size, &seconds, e);
    r->upload = rc == 0 ? 1e3 * seconds : -1;
    return rc == QE_UNSUPPORTED ? 0 : rc;
}

static void report(const struct restore *r)
{
    bench_add(r->b, json_pack("{s:s, s:i, s:i, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}",
                              "what", "restore", "depth", r->depth, "prompt_tokens",
                              r->depth + MORE, "bytes", (json_int_t)r->size, "cold_ms", r->cold,
                              "memory_ms", r->memory, "file_ms", r->file, "take_ms", r->take,
                              "export_ms", r->export, "import_ms", r->import, "read_ms", r->read,
                              "upload_ms", r->upload < 0 ? json_null() : json_real(r->upload)));
    if (r->b->json) {
        return;
    }
    printf("restore  depth %6d  %9.2f ms cold  %9.2f ms from memory (%.1f %%)  %9.2f ms from a "
           "file (%.1f %%)  %.1f MB: kept in %.2f ms, copied out in %.2f, in %.2f, read in %.2f",
           r->depth, r->cold, r->memory, 100 * r->memory / r->cold, r->file,
           100 * r->file / r->cold, (double)r->size / 1e6, r->take, r->export, r->import, r->read);
    if (r->upload >= 0) {
        printf(", uploaded in %.2f", r->upload);
    }
    putchar('\n');
    fflush(stdout);
}

int bench_restore(struct bench *b, int depth, struct err *e)
{
    struct restore r = {.b = b, .depth = depth > MORE ? depth / MORE * MORE : MORE, .seq = -1};
    r.ids = mem_array((size_t)(r.depth + MORE), sizeof *r.ids);
    for (int i = 0; i < r.depth + MORE; i++) {
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
    free(r.blob);
    free(r.ids);
    return rc;
}
