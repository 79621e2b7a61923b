/* The event queue. The descriptor is an eventfd: written after every push, read
 * when the ring was found empty; the ring is looked at once more after that, so
 * no event is left without a readable descriptor. */
#include "config.h"
#include "conv/post.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/ring.h"

#define SLOTS 256

struct post {
    struct ring *ring;
    int fd, worker_fd;
    atomic_bool behind; /* the backlog is not empty */
    /* worker */
    struct post_item *back;
    size_t n, cap;
};

static void write_fd(int fd)
{
    uint64_t one = 1;
    ssize_t rc = write(fd, &one, sizeof one);
    (void)rc; /* EAGAIN: it is readable anyway */
}

struct post *post_create(int worker_fd)
{
    struct post *p = mem_zalloc(sizeof *p);
    p->ring = ring_create(SLOTS, sizeof(struct post_item));
    p->worker_fd = worker_fd;
    p->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    return p;
}

static void item_fini(struct post_item *it)
{
    conv_event_fini(&it->ev);
    chat_result_free(it->result);
}

void post_free(struct post *p)
{
    if (!p) {
        return;
    }
    struct post_item it;
    while (ring_pop(p->ring, &it)) {
        item_fini(&it);
    }
    for (size_t i = 0; i < p->n; i++) {
        item_fini(&p->back[i]);
    }
    free(p->back);
    ring_free(p->ring);
    if (p->fd >= 0) {
        close(p->fd);
    }
    free(p);
}

int post_fd(const struct post *p)
{
    return p->fd;
}

/* Joins the item to the latest of its chat in the backlog where that loses
 * nothing. */
static bool merge(struct post *p, struct post_item *it)
{
    struct post_item *last = NULL;
    for (size_t i = p->n; i > 0 && !last; i--) {
        if (p->back[i - 1].ev.chat == it->ev.chat) {
            last = &p->back[i - 1];
        }
    }
    if (!last || last->gone || it->gone || last->ev.kind != it->ev.kind) {
        return false;
    }
    switch (it->ev.kind) {
    case CE_TEXT:
    case CE_THOUGHT:
        buf_add(&last->ev.text, it->ev.text.data, it->ev.text.len);
        buf_add(&last->ev.logprobs, it->ev.logprobs.data, it->ev.logprobs.len);
        last->ev.done = it->ev.done;
        break;
    case CE_LOADING:
    case CE_PREFILL:
        last->ev.progress = it->ev.progress;
        last->ev.done = it->ev.done;
        last->ev.total = it->ev.total;
        break;
    case CE_READY:
    case CE_FAILED:
    case CE_QUEUED:
    case CE_TOOL:
    case CE_END:
    case CE_NOTICE:
    case CE_SAVED:
    case CE_STORED:
    case CE_COUNTED:
        return false;
    }
    item_fini(it);
    return true;
}

void post_flush(struct post *p)
{
    size_t off = 0;
    while (off < p->n && ring_push(p->ring, &p->back[off])) {
        off++;
    }
    if (off > 0) {
        p->n -= off;
        memmove(p->back, p->back + off, p->n * sizeof *p->back);
        atomic_store_explicit(&p->behind, p->n > 0, memory_order_release);
        write_fd(p->fd);
    }
}

void post_put(struct post *p, struct post_item *item)
{
    post_flush(p);
    if (p->n == 0 && ring_push(p->ring, item)) {
        write_fd(p->fd);
        return;
    }
    if (merge(p, item)) {
        return;
    }
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 16;
        p->back = mem_realloc(p->back, p->cap * sizeof *p->back);
    }
    p->back[p->n++] = *item;
    atomic_store_explicit(&p->behind, true, memory_order_release);
    /* The reader may have emptied the ring just before. */
    post_flush(p);
}

bool post_waiting(const struct post *p)
{
    return p->n > 0;
}

bool post_take(struct post *p, struct post_item *item)
{
    bool got = ring_pop(p->ring, item);
    if (!got) {
        uint64_t n = 0;
        ssize_t rc = read(p->fd, &n, sizeof n);
        (void)rc;
        got = ring_pop(p->ring, item);
        if (got) {
            write_fd(p->fd); /* there may be more */
        }
    }
    if (atomic_load_explicit(&p->behind, memory_order_acquire) && ring_len(p->ring) < SLOTS / 2) {
        write_fd(p->worker_fd);
    }
    return got;
}

void chat_result_free(struct chat_result *r)
{
    if (r) {
        free(r->logprobs);
        buf_free(&r->text);
        buf_free(&r->thought);
        buf_free(&r->calls);
        free(r->ids);
        free(r);
    }
}

void conv_event_fini(struct conv_event *ev)
{
    buf_free(&ev->text);
    buf_free(&ev->logprobs);
}
