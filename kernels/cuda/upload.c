/*
 * Bringing the weights to the device. They are cut into pieces of a few megabytes.
 * Reader threads take the pieces in order and fill pinned buffers with raw rows, from
 * the model file where they lie in it; the driver, the team's thread 0, sends every
 * filled buffer to its twin on the device, where a kernel writes the tiles. Pieces go
 * by turns to two streams, so that one's tiles are written while the next is copied.
 */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "kernels/cuda/host.h"
#include "kernels/cuda/repack.h"

/* BEHIND: how many copies are under way before the oldest is waited for. */
enum { ALIGN = 256, PIECE_BYTES = 8 << 20, BUFFERS = 12, STREAMS = 2, BEHIND = 2 };

/* Tiles first..first+n-1 of a matrix; or, without one, bytes as they are. */
struct piece {
    const struct cuda_mat_src *mat;
    int first, n;
    const uint8_t *host;
    uint8_t *device;
    size_t bytes; /* also of a matrix's tiles, for progress */
};

struct upload {
    struct backend *b;
    const struct io_map *file;
    struct piece *piece;
    size_t n, cap;
    struct {
        uint8_t *host, *device;
        struct rt_event *sent;
    } buffer[BUFFERS]; /* piece i goes through buffer i % BUFFERS */
    size_t size;       /* of one */
    struct rt *stream[STREAMS];
    void (*progress)(void *ctx, double done);
    void *ctx;
    size_t done;
    int status; /* the driver's */

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t filled, freed;
    size_t next;  /* piece to be filled */
    size_t limit; /* pieces from here on have no free buffer yet */
    bool full[BUFFERS], stop, unread;
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

static void add(struct upload *u, struct piece p)
{
    if (u->n == u->cap) {
        u->cap = u->cap ? 2 * u->cap : 256;
        u->piece = mem_realloc(u->piece, u->cap * sizeof *u->piece);
    }
    u->piece[u->n++] = p;
}

static void add_bytes(struct upload *u, const void *device, const void *host, size_t n)
{
    for (size_t at = 0; at < n; at += u->size) {
        add(u, (struct piece){.host = (const uint8_t *)host + at,
                              .device = (uint8_t *)(uintptr_t)device + at,
                              .bytes = n - at < u->size ? n - at : u->size});
    }
}

static void add_mat(struct upload *u, const struct cuda_mat_src *s)
{
    const int most = (int)(u->size / raw_bytes(s, 1));
    for (int at = 0; at < s->mat->tiles; at += most) {
        const int n = s->mat->tiles - at < most ? s->mat->tiles - at : most;
        add(u, (struct piece){
                   .mat = s, .first = at, .n = n, .bytes = (size_t)n * cuda_tile_bytes(s->mat)});
    }
}

static void add_all(struct upload *u)
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

/* ---- filling ---- */

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

/* False when the file cannot be read. */
static bool fill(const struct upload *u, size_t index)
{
    const struct piece *p = &u->piece[index];
    uint8_t *to = u->buffer[index % BUFFERS].host;
    if (!p->mat) {
        return io_map_copy(u->file, to, p->host, p->bytes);
    }
    bool good = true;
    size_t begin = 0;
    for (int i = 0; i < p->mat->n_src && good; i++) {
        const struct tensor *t = p->mat->src[i];
        const struct rows r = rows_of(p, i, begin);
        good = io_map_copy(u->file, to + r.at, (const uint8_t *)t->data + r.from * r.data,
                           r.n * r.data);
        if (good && r.scales > 0) {
            good = io_map_copy(u->file, to + r.scales_at,
                               (const uint8_t *)t->scales + r.from * r.scales, r.n * r.scales);
        }
        begin = r.end;
    }
    return good;
}

/* Takes the next piece and fills its buffer; called and returning with the lock. */
static void fill_next(struct upload *u)
{
    const size_t i = u->next++;
    pthread_mutex_unlock(&u->lock);
    const bool good = fill(u, i);
    pthread_mutex_lock(&u->lock);
    u->full[i % BUFFERS] = true;
    u->unread = u->unread || !good;
    pthread_cond_signal(&u->filled);
}

static void read_pieces(struct upload *u)
{
    pthread_mutex_lock(&u->lock);
    while (!u->stop && u->next < u->n) {
        if (u->next < u->limit) {
            fill_next(u);
        } else {
            pthread_cond_wait(&u->freed, &u->lock);
        }
    }
    pthread_mutex_unlock(&u->lock);
}

/* ---- sending ---- */

static int send_tiles(struct upload *u, struct rt *stream, const struct piece *p, uint8_t *device)
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
    c.stream = rt_stream(stream);
    int rc = cu_repack(&c, &r);
    u->b->cu.kernel = c.kernel;
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

static int send(struct upload *u, size_t index)
{
    const struct piece *p = &u->piece[index];
    const size_t at = index % BUFFERS;
    struct rt *stream = u->stream[index % STREAMS];
    uint8_t *to = p->mat ? u->buffer[at].device : p->device;
    int rc = rt_upload(stream, to, u->buffer[at].host, used_bytes(p));
    rc = rc ? rc : rt_record(stream, u->buffer[at].sent);
    return rc || !p->mat ? rc : send_tiles(u, stream, p, to);
}

/* Waits until piece `index` lies in its buffer; meanwhile fills others. */
static bool await(struct upload *u, size_t index)
{
    pthread_mutex_lock(&u->lock);
    while (!u->full[index % BUFFERS]) {
        if (u->next < u->limit && u->next < u->n) {
            fill_next(u);
        } else {
            pthread_cond_wait(&u->filled, &u->lock);
        }
    }
    u->full[index % BUFFERS] = false;
    const bool good = !u->unread;
    pthread_mutex_unlock(&u->lock);
    return good;
}

/* Piece `index` has left its buffer: the readers may have it. */
static void release(struct upload *u, size_t index)
{
    pthread_mutex_lock(&u->lock);
    u->limit = index + 1 + BUFFERS;
    pthread_cond_broadcast(&u->freed);
    pthread_mutex_unlock(&u->lock);
}

static void drive(struct upload *u)
{
    for (size_t i = 0; i < u->n && u->status == 0 && await(u, i); i++) {
        u->status = send(u, i);
        if (i >= BEHIND && u->status == 0) {
            u->status = rt_wait(u->buffer[(i - BEHIND) % BUFFERS].sent);
            release(u, i - BEHIND);
        }
        u->done += u->piece[i].bytes;
        if (u->progress) {
            const double all = (double)u->b->weight_bytes;
            u->progress(u->ctx, (double)u->done < all ? (double)u->done / all : 1);
        }
    }
    pthread_mutex_lock(&u->lock);
    u->stop = true;
    pthread_cond_broadcast(&u->freed);
    pthread_mutex_unlock(&u->lock);
}

static void share(void *arg, int tid, int nt)
{
    (void)nt;
    if (tid == 0) {
        drive(arg);
    } else {
        read_pieces(arg);
    }
}

/* ---- the whole ---- */

static int open_buffers(struct upload *u)
{
    struct rt *rt = u->b->rt;
    int rc = 0;
    for (int i = 0; i < STREAMS && rc == 0; i++) {
        rc = rt_open(rt_device(rt), &u->stream[i]);
    }
    for (int i = 0; i < BUFFERS && rc == 0; i++) {
        void *host = NULL, *device = NULL;
        rc = rt_pin(rt, u->size, &host);
        u->buffer[i].host = host;
        rc = rc ? rc : rt_alloc(rt, u->size, &device);
        u->buffer[i].device = device;
        rc = rc ? rc : rt_event_create(rt, &u->buffer[i].sent);
    }
    return rc;
}

static void close_buffers(struct upload *u)
{
    struct rt *rt = u->b->rt;
    for (int i = 0; i < BUFFERS; i++) {
        rt_event_free(u->buffer[i].sent);
        rt_unpin(rt, u->buffer[i].host);
        rt_free(rt, u->buffer[i].device);
    }
    for (int i = 0; i < STREAMS; i++) {
        rt_close(u->stream[i]);
    }
}

int cuda_weights_upload(struct backend *b, const struct io_map *file,
                        void (*progress)(void *ctx, double done), void *ctx, struct err *e)
{
    const int64_t start = clock_now(clock_real());
    struct upload u = {.b = b, .file = file, .progress = progress, .ctx = ctx, .limit = BUFFERS};
    /* a small model goes in several pieces too, a matrix in whole tiles */
    u.size = aligned(b->weight_bytes / 64 + 1);
    u.size = u.size < PIECE_BYTES ? u.size : PIECE_BYTES;
    for (int i = 0; i < b->n_mats; i++) {
        const size_t need = raw_bytes(&b->mats[i], 1);
        u.size = need > u.size ? need : u.size;
    }
    add_all(&u);
    pthread_mutex_init(&u.lock, NULL);
    pthread_cond_init(&u.filled, NULL);
    pthread_cond_init(&u.freed, NULL);
    b->doing = "uploading the weights";
    u.status = open_buffers(&u);
    if (u.status == 0) {
        team_run(b->team, share, &u);
    }
    for (int i = 0; i < STREAMS && u.stream[i]; i++) {
        const int rc = rt_sync(u.stream[i]);
        u.status = u.status ? u.status : rc;
    }
    close_buffers(&u);
    pthread_cond_destroy(&u.freed);
    pthread_cond_destroy(&u.filled);
    pthread_mutex_destroy(&u.lock);
    free(u.piece);
    b->count.upload_s = clock_seconds(clock_now(clock_real()) - start);
    if (u.unread) {
        return err_set(e, QE_IO, "the model file was cut off or cannot be read any more");
    }
    return u.status ? cuda_fail(b, u.status, e) : 0;
}

/* ---- how fast it could be ---- */

static int copy_often(struct upload *u, uint64_t bytes)
{
    int rc = 0;
    for (uint64_t done = 0; done < bytes && rc == 0; done += u->size) {
        const int at = (int)(done / u->size % BUFFERS);
        const uint64_t n = bytes - done < u->size ? bytes - done : u->size;
        rc = rt_upload(u->b->rt, u->buffer[at].device, u->buffer[at].host, n);
    }
    return rc ? rc : rt_sync(u->b->rt);
}

int cuda_upload_time(struct backend *b, uint64_t bytes, double *seconds)
{
    struct upload u = {.b = b, .size = PIECE_BYTES};
    int rc = open_buffers(&u);
    for (int i = 0; i < BUFFERS && rc == 0; i++) {
        memset(u.buffer[i].host, 1, u.size);
    }
    rc = rc ? rc : copy_often(&u, (uint64_t)BUFFERS * u.size); /* warms up */
    const int64_t start = clock_now(clock_real());
    rc = rc ? rc : copy_often(&u, bytes);
    *seconds = clock_seconds(clock_now(clock_real()) - start);
    close_buffers(&u);
    return rc;
}
