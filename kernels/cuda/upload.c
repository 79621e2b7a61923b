/*
 * Bringing the weights to the device. They are cut into pieces of a few megabytes.
 * Threads fill a ring of buffers with raw rows (base/fetch.h), from the model file where
 * they lie in it. The opening thread sends every full buffer, in whatever order they
 * become so, to its twin on the device, by turns on two streams that do nothing else, so
 * that copies follow each other closely; on a third a kernel writes the tiles. It never
 * reads anything itself: a copy that is not asked for in time is time lost.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fetch.h"
#include "base/mem.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/repack.h"

/* SPARE: buffers beyond those that are being filled, full or on their way. */
enum { ALIGN = 256, PIECE_BYTES = 4 << 20, SPARE = 12, STREAMS = 2, MOST_READERS = 48 };

/* Tiles first..first+n-1 of a matrix; or, without one, bytes as they are. */
struct piece {
    const struct cuda_mat_src *mat;
    int first, n;
    const uint8_t *host;
    uint8_t *device;
    size_t bytes; /* also of a matrix's tiles, for progress */
};

struct cuda_upload {
    struct backend *b;
    struct piece *piece;
    struct fetch_job *job; /* [n] */
    size_t n, cap;
    size_t size; /* of a buffer */
    int readers, buffers;
    struct fetch *fetch;
    struct {
        struct rt_event *sent, *done;
        bool pinned; /* by its reader, before anything is sent from it */
    } * buffer;
    uint8_t *stage; /* on the device: a twin for each buffer */
    struct rt *copies[STREAMS], *tiles;
    int *flying; /* circle of buffers: sent, in this order, and not given back */
    int first_flying, n_flying;
    size_t sent;
    void (*progress)(void *ctx, double done);
    void *ctx;
    size_t bytes;            /* done */
    double seconds, starved; /* all; those in which nothing was on its way */
    int status;              /* CUDA's */
    const char *kernel;      /* last launched */
};

/* ---- pieces ---- */

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* Bytes of one row of a source: codes or values; its scales. */
static size_t row_bytes(const struct tensor *t, int k, size_t *scales)
{
    size_t data = 0;
    *scales = 0;
    dtype_sizes(t->dtype, 1, (uint64_t)k, &data, scales);
    return data;
}

/* Bytes that the raw rows of n tiles take in a buffer. */
static size_t raw_bytes(const struct cuda_mat_src *s, int n)
{
    const size_t rows = (size_t)n * 64 / (size_t)s->n_src;
    size_t bytes = 0;
    for (int i = 0; i < s->n_src; i++) {
        size_t scales = 0;
        const size_t data = row_bytes(s->src[i], s->k, &scales);
        bytes += aligned(rows * data) + aligned(rows * scales);
    }
    return bytes;
}

static void add(struct cuda_upload *u, struct piece p)
{
    if (u->n == u->cap) {
        u->cap = u->cap ? 2 * u->cap : 256;
        u->piece = mem_realloc(u->piece, u->cap * sizeof *u->piece);
    }
    u->piece[u->n++] = p;
}

static void add_bytes(struct cuda_upload *u, const void *device, const void *host, size_t n)
{
    for (size_t at = 0; at < n; at += u->size) {
        add(u, (struct piece){.host = (const uint8_t *)host + at,
                              .device = (uint8_t *)(uintptr_t)device + at,
                              .bytes = n - at < u->size ? n - at : u->size});
    }
}

static void add_mat(struct cuda_upload *u, const struct cuda_mat_src *s)
{
    const int most = (int)(u->size / raw_bytes(s, 1));
    for (int at = 0; at < s->mat->tiles; at += most) {
        const int n = s->mat->tiles - at < most ? s->mat->tiles - at : most;
        add(u, (struct piece){
                   .mat = s, .first = at, .n = n, .bytes = (size_t)n * cuda_tile_bytes(s->mat)});
    }
}

static void add_all(struct cuda_upload *u)
{
    const struct backend *b = u->b;
    const struct tensor *t = &b->weights.embed;
    for (int i = 0; i < b->n_vecs; i++) {
        add_bytes(u, *b->vecs[i].to, b->vecs[i].t->data, b->vecs[i].t->size);
    }
    add_bytes(u, b->embed.data, t->data, t->size);
    add_bytes(u, b->embed.scales, t->scales, t->scale_size);
    for (int i = 0; i < b->n_mats; i++) {
        add_mat(u, &b->mats[i]);
    }
}

/* Where a piece's rows of source i lie: in a buffer, and in the source. */
struct rows {
    size_t data, scales; /* bytes of a row */
    size_t from, n;
    size_t at, scales_at; /* offsets in the buffer; the end of the latter is `end` */
    size_t end;
};

static struct rows rows_of(const struct piece *p, int i, size_t begin)
{
    const struct cuda_mat_src *s = p->mat;
    const size_t per = 64 / (size_t)s->n_src, all = (size_t)s->mat->rows / (size_t)s->n_src;
    struct rows r = {.from = (size_t)p->first * per, .at = begin};
    r.data = row_bytes(s->src[i], s->k, &r.scales);
    r.n = all - r.from < (size_t)p->n * per ? all - r.from : (size_t)p->n * per;
    r.scales_at = r.at + aligned(r.n * r.data);
    r.end = r.scales_at + aligned(r.n * r.scales);
    return r;
}

static void part(struct fetch_job *j, const void *from, size_t n, size_t at)
{
    if (n > 0) {
        j->part[j->parts].from = from;
        j->part[j->parts].n = n;
        j->part[j->parts++].at = at;
    }
}

/* What a reader has to bring for a piece. */
static struct fetch_job job_of(const struct piece *p)
{
    struct fetch_job j = {.parts = 0};
    size_t begin = 0;
    if (!p->mat) {
        part(&j, p->host, p->bytes, 0);
        return j;
    }
    for (int i = 0; i < p->mat->n_src; i++) {
        const struct tensor *t = p->mat->src[i];
        const struct rows r = rows_of(p, i, begin);
        part(&j, (const uint8_t *)t->data + r.from * r.data, r.n * r.data, r.at);
        part(&j, (const uint8_t *)t->scales + r.from * r.scales, r.n * r.scales, r.scales_at);
        begin = r.end;
    }
    return j;
}

/* ---- sending ---- */

static int send_tiles(struct cuda_upload *u, const struct piece *p, uint8_t *device)
{
    const struct cu_mat *m = p->mat->mat;
    struct cu_repack r = {.kind = m->kind,
                          .n_src = p->mat->n_src,
                          .rows = m->rows,
                          .k = p->mat->k,
                          .first = p->first,
                          .n = p->n,
                          .out = (uint8_t *)(uintptr_t)m->data +
                                 (size_t)p->first * cuda_tile_bytes(m)};
    if (m->row_scale) {
        r.row_scale = (float *)(uintptr_t)m->row_scale + (size_t)p->first * 64;
    }
    size_t begin = 0;
    for (int i = 0; i < p->mat->n_src; i++) {
        const struct rows w = rows_of(p, i, begin);
        r.src[i].dtype = p->mat->src[i]->dtype;
        r.src[i].data = device + w.at;
        r.src[i].scales = device + w.scales_at;
        begin = w.end;
    }
    struct cu_ctx c = u->b->cu;
    c.pdl = false;
    c.stream = rt_stream(u->tiles);
    int rc = cu_repack(&c, &r);
    u->kernel = c.kernel;
    return rc;
}

/* Bytes that a piece takes in its buffer. */
static size_t used_bytes(const struct piece *p)
{
    size_t end = p->mat ? 0 : p->bytes;
    for (int i = 0; p->mat && i < p->mat->n_src; i++) {
        end = rows_of(p, i, end).end;
    }
    return end;
}

static int send(struct cuda_upload *u, size_t index, int buffer)
{
    const struct piece *p = &u->piece[index];
    struct rt *stream = u->copies[u->sent++ % STREAMS];
    struct rt_event *sent = u->buffer[buffer].sent, *done = u->buffer[buffer].done;
    uint8_t *to = p->mat ? u->stage + (size_t)buffer * u->size : p->device;
    int rc = rt_upload(stream, to, fetch_buffer(u->fetch, buffer), used_bytes(p));
    if (!p->mat) {
        return rc ? rc : rt_record(stream, done);
    }
    rc = rc ? rc : rt_record(stream, sent);
    rc = rc ? rc : rt_follow(u->tiles, sent);
    rc = rc ? rc : send_tiles(u, p, to);
    return rc ? rc : rt_record(u->tiles, done);
}

/* Gives back the buffers that have been read and whose tiles are written; waits for the
 * first of them where there is nothing better to do. */
static int collect(struct cuda_upload *u, bool wait)
{
    int rc = 0;
    while (u->n_flying > 0 && rc == 0) {
        const int buffer = u->flying[u->first_flying];
        if (!wait && !rt_done(u->buffer[buffer].done)) {
            return 0;
        }
        rc = rt_wait(u->buffer[buffer].done); /* says what failed */
        fetch_give(u->fetch, buffer);
        u->first_flying = (u->first_flying + 1) % u->buffers;
        u->n_flying--;
        wait = false;
    }
    return rc;
}

static void advance(struct cuda_upload *u, size_t bytes)
{
    const double all = (double)u->b->weight_bytes;
    u->bytes += bytes;
    if (u->progress) {
        u->progress(u->ctx, (double)u->bytes < all ? (double)u->bytes / all : 1);
    }
}

static int drive(struct cuda_upload *u)
{
    int rc = 0;
    while (rc == 0 && !atomic_load(&u->b->given_up)) {
        size_t index = 0;
        int buffer = 0;
        const bool idle = u->n_flying == 0;
        const int64_t from = clock_now(clock_real());
        const int got = fetch_take(u->fetch, idle, &index, &buffer);
        u->starved += idle ? clock_seconds(clock_now(clock_real()) - from) : 0;
        if (got < 0) {
            break;
        }
        if (got > 0) {
            rc = send(u, index, buffer);
            u->flying[(u->first_flying + u->n_flying++) % u->buffers] = buffer;
            advance(u, u->piece[index].bytes);
        }
        rc = rc ? rc : collect(u, got == 0);
    }
    return rc;
}

/* ---- the whole ---- */

/* A reader pins the buffer that it has just filled: the threads do so side by side. Where
 * that is refused the copies are slower. */
static void pin(void *ctx, int buffer, void *p, size_t n)
{
    struct cuda_upload *u = ctx;
    u->buffer[buffer].pinned = rt_enter(u->b->rt) == 0 && rt_register(u->b->rt, p, n) == 0;
}

static int open_device_side(struct cuda_upload *u)
{
    struct rt *rt = u->b->rt;
    void *stage = NULL;
    int rc = rt_alloc(rt, (size_t)u->buffers * u->size, &stage);
    u->stage = stage;
    for (int i = 0; i < STREAMS && rc == 0; i++) {
        rc = rt_open(rt_device(rt), &u->copies[i]);
    }
    rc = rc ? rc : rt_open_first(rt_device(rt), &u->tiles);
    for (int i = 0; i < u->buffers && rc == 0; i++) {
        rc = rt_event_create(rt, &u->buffer[i].sent);
        rc = rc ? rc : rt_event_create(rt, &u->buffer[i].done);
    }
    return rc;
}

static int sync(struct rt *stream, int before)
{
    const int rc = stream ? rt_sync(stream) : 0;
    return before ? before : rc;
}

struct cuda_upload *cuda_upload_create(struct backend *b, int threads)
{
    struct cuda_upload *u = mem_zalloc(sizeof *u);
    u->b = b;
    u->readers = threads < 2 ? 1 : threads > MOST_READERS ? MOST_READERS : threads - 1;
    /* a small model goes in several pieces too, a matrix in whole tiles */
    u->size = aligned(b->weight_bytes / 64 + 1);
    u->size = u->size < PIECE_BYTES ? u->size : PIECE_BYTES;
    for (int i = 0; i < b->n_mats; i++) {
        const size_t need = raw_bytes(&b->mats[i], 1);
        u->size = need > u->size ? need : u->size;
    }
    add_all(u);
    u->job = mem_array(u->n, sizeof *u->job);
    for (size_t i = 0; i < u->n; i++) {
        u->job[i] = job_of(&u->piece[i]);
    }
    u->buffers = u->readers + SPARE;
    u->buffer = mem_array((size_t)u->buffers, sizeof *u->buffer);
    u->flying = mem_array((size_t)u->buffers, sizeof *u->flying);
    return u;
}

static int run(struct cuda_upload *u, const struct io_map *file, struct err *e)
{
    const struct fetch_plan plan = {.file = file,
                                    .jobs = u->job,
                                    .n = u->n,
                                    .size = u->size,
                                    .buffers = u->buffers,
                                    .threads = u->readers,
                                    .fresh = pin,
                                    .ctx = u};
    int rc = fetch_start(&plan, &u->fetch, e);
    if (rc < 0) {
        return rc;
    }
    u->status = open_device_side(u);
    u->status = u->status ? u->status : drive(u);
    for (int i = 0; i < STREAMS; i++) {
        u->status = sync(u->copies[i], u->status);
    }
    u->status = sync(u->tiles, u->status);
    const bool unread = fetch_failed(u->fetch);
    fetch_stop(u->fetch);
    return unread ? err_set(e, QE_IO, "the model file was cut off or cannot be read any more") : 0;
}

int cuda_upload_run(struct cuda_upload *u, const struct io_map *file,
                    void (*progress)(void *ctx, double done), void *ctx, struct err *e)
{
    const int64_t start = clock_now(clock_real());
    u->progress = progress;
    u->ctx = ctx;
    const int rc = run(u, file, e);
    u->seconds = clock_seconds(clock_now(clock_real()) - start);
    return rc;
}

int cuda_upload_end(struct backend *b, int rc, struct err *e)
{
    const struct cuda_upload *u = b->upload;
    b->count.upload_s = u->seconds;
    phases_add(&b->start, "upload", u->seconds, false);
    phases_add(&b->start, "upload_starved", u->starved, true);
    phases_add(&b->start, "readers_idle", u->fetch ? fetch_idle(u->fetch) : 0, true);
    b->cu.kernel = u->kernel;
    return rc == 0 && u->status ? cuda_fail(b, u->status, e) : rc;
}

void cuda_upload_free(struct cuda_upload *u)
{
    if (!u) {
        return;
    }
    struct rt *rt = u->b->rt;
    if (u->fetch) {
        fetch_stop(u->fetch);
    }
    for (int i = 0; i < u->buffers; i++) {
        rt_event_free(u->buffer[i].sent);
        rt_event_free(u->buffer[i].done);
        if (u->buffer[i].pinned) {
            rt_unregister(rt, fetch_buffer(u->fetch, i));
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        rt_close(u->copies[i]);
    }
    rt_close(u->tiles);
    rt_free(rt, u->stage);
    fetch_free(u->fetch);
    free(u->piece);
    free(u->job);
    free(u->buffer);
    free(u->flying);
    free(u);
}

/* ---- how fast it could be ---- */

/* As large as copies are quickest. */
enum { TRY_BYTES = 8 << 20, TRY_BUFFERS = 12 };

struct trial {
    struct rt *rt;
    void *host[TRY_BUFFERS], *device[TRY_BUFFERS];
};

static int copy_often(struct trial *t, uint64_t bytes)
{
    int rc = 0;
    for (uint64_t done = 0; done < bytes && rc == 0; done += TRY_BYTES) {
        const int at = (int)(done / TRY_BYTES % TRY_BUFFERS);
        const uint64_t n = bytes - done < TRY_BYTES ? bytes - done : TRY_BYTES;
        rc = rt_upload(t->rt, t->device[at], t->host[at], n);
    }
    return rc ? rc : rt_sync(t->rt);
}

int cuda_upload_time(struct backend *b, uint64_t bytes, double *seconds)
{
    struct trial t = {.rt = b->rt};
    int rc = 0;
    for (int i = 0; i < TRY_BUFFERS && rc == 0; i++) {
        rc = rt_pin(t.rt, TRY_BYTES, &t.host[i]);
        rc = rc ? rc : rt_alloc(t.rt, TRY_BYTES, &t.device[i]);
        if (rc == 0) {
            memset(t.host[i], 1, TRY_BYTES);
        }
    }
    rc = rc ? rc : copy_often(&t, (uint64_t)TRY_BUFFERS * TRY_BYTES); /* warms up */
    const int64_t start = clock_now(clock_real());
    rc = rc ? rc : copy_often(&t, bytes);
    *seconds = clock_seconds(clock_now(clock_real()) - start);
    for (int i = 0; i < TRY_BUFFERS; i++) {
        rt_unpin(t.rt, t.host[i]);
        rt_free(t.rt, t.device[i]);
    }
    return rc;
}
