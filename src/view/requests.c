/* The table of requests: live ones in an array in order of arrival, ended ones in a ring.
 * The descriptor is written once for any number of changes until somebody looks. */
#include "config.h"
#include "view/requests.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"

struct requests {
    struct requests_control control; /* constant */
    int fd;
    pthread_mutex_t lock; /* everything below */
    bool news;            /* the descriptor is readable */
    uint64_t last_id;
    struct view_listener listener;
    struct view_request live[REQUESTS_LIVE];
    size_t n_live;
    struct view_request ended[REQUESTS_ENDED];
    size_t n_ended, next_ended;
};

const char *view_request_word(enum view_request_state s)
{
    static const char *const words[] = {"queued", "prefill", "decode", "tool", "done", "failed"};
    return words[s];
}

struct view_request view_request_unknown(void)
{
    return (struct view_request){.input = -1,
                                 .cached = -1,
                                 .output = -1,
                                 .tok_s = NAN,
                                 .tok_round = NAN,
                                 .max_tokens = -1,
                                 .temp = NAN,
                                 .top_p = NAN,
                                 .top_k = -1,
                                 .queue_s = NAN,
                                 .prefill_s = NAN,
                                 .decode_s = NAN,
                                 .first_s = NAN};
}

struct requests *requests_create(const struct requests_control *control)
{
    struct requests *r = mem_zalloc(sizeof *r);
    r->control = *control;
    r->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    pthread_mutex_init(&r->lock, NULL);
    return r;
}

void requests_free(struct requests *r)
{
    if (r) {
        if (r->fd >= 0) {
            close(r->fd);
        }
        pthread_mutex_destroy(&r->lock);
        free(r);
    }
}

/* With the lock. */
static void tell(struct requests *r)
{
    if (!r->news && r->fd >= 0) {
        const uint64_t one = 1;
        r->news = write(r->fd, &one, sizeof one) == (ssize_t)sizeof one;
    }
}

/* ---- who serves ---- */

void requests_set_listener(struct requests *r, const struct view_listener *l)
{
    pthread_mutex_lock(&r->lock);
    r->listener = *l;
    tell(r);
    pthread_mutex_unlock(&r->lock);
}

/* Foreign text may come cut anywhere; it ends here in any case. */
static void end_texts(struct view_request *q)
{
    q->client[sizeof q->client - 1] = 0;
    q->endpoint[sizeof q->endpoint - 1] = 0;
    q->result[sizeof q->result - 1] = 0;
}

uint64_t requests_begin(struct requests *r, const struct view_request *q, int64_t now)
{
    uint64_t id = 0;
    pthread_mutex_lock(&r->lock);
    if (r->n_live < REQUESTS_LIVE) {
        struct view_request *to = &r->live[r->n_live++];
        *to = *q;
        end_texts(to);
        to->id = id = ++r->last_id;
        to->begun = now;
        to->ended = 0;
        tell(r);
    }
    pthread_mutex_unlock(&r->lock);
    return id;
}

static struct view_request *find_live(struct requests *r, uint64_t id)
{
    for (size_t i = 0; i < r->n_live; i++) {
        if (r->live[i].id == id) {
            return &r->live[i];
        }
    }
    return NULL;
}

void requests_update(struct requests *r, const struct view_request *q, int64_t now)
{
    pthread_mutex_lock(&r->lock);
    struct view_request *to = find_live(r, q->id);
    if (to) {
        const int64_t begun = to->begun;
        if (to->state != q->state) {
            tell(r);
        }
        *to = *q;
        end_texts(to);
        to->begun = begun;
        to->ended = 0;
        if (to->state == RQ_DONE || to->state == RQ_FAILED) {
            to->ended = now;
            r->ended[r->next_ended] = *to;
            r->next_ended = (r->next_ended + 1) % REQUESTS_ENDED;
            r->n_ended += r->n_ended < REQUESTS_ENDED;
            const size_t behind = r->n_live - 1 - (size_t)(to - r->live);
            memmove(to, to + 1, behind * sizeof *to);
            r->n_live--;
        }
    }
    pthread_mutex_unlock(&r->lock);
}

/* ---- who shows ---- */

void requests_listener(struct requests *r, struct view_listener *out)
{
    pthread_mutex_lock(&r->lock);
    *out = r->listener;
    out->live = (int)r->n_live;
    out->queued = 0;
    for (size_t i = 0; i < r->n_live; i++) {
        out->queued += r->live[i].state == RQ_QUEUED;
    }
    out->live -= out->queued;
    pthread_mutex_unlock(&r->lock);
}

/* The i-th that ended, from the latest. */
static const struct view_request *ended_at(const struct requests *r, size_t i)
{
    return &r->ended[(r->next_ended + REQUESTS_ENDED - 1 - i) % REQUESTS_ENDED];
}

size_t requests_list(struct requests *r, struct view_request *out, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&r->lock);
    for (; n < r->n_live && n < max; n++) {
        out[n] = r->live[n];
    }
    for (size_t i = 0; i < r->n_ended && n < max; i++) {
        out[n++] = *ended_at(r, i);
    }
    pthread_mutex_unlock(&r->lock);
    return n;
}

bool requests_get(struct requests *r, uint64_t id, struct view_request *out)
{
    pthread_mutex_lock(&r->lock);
    const struct view_request *q = find_live(r, id);
    for (size_t i = 0; !q && i < r->n_ended; i++) {
        q = ended_at(r, i)->id == id ? ended_at(r, i) : NULL;
    }
    if (q) {
        *out = *q;
    }
    pthread_mutex_unlock(&r->lock);
    return q != NULL;
}

int requests_fd(const struct requests *r)
{
    return r->fd;
}

void requests_look(struct requests *r)
{
    uint64_t count = 0;
    pthread_mutex_lock(&r->lock);
    if (r->news) {
        (void)!read(r->fd, &count, sizeof count);
        r->news = false;
    }
    pthread_mutex_unlock(&r->lock);
}

void requests_cancel(struct requests *r, uint64_t id)
{
    if (r->control.cancel) {
        r->control.cancel(r->control.ctx, id);
    }
}

void requests_pause(struct requests *r, bool on)
{
    if (r->control.pause) {
        r->control.pause(r->control.ctx, on);
    }
}

bool requests_body(struct requests *r, uint64_t id, struct buf *out)
{
    return r->control.body && r->control.body(r->control.ctx, id, out);
}
