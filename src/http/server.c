/* The loop: sleeps until the model has said something, a request came, or a stream has been
 * silent for long; looks meanwhile whether clients are still there. */
#include "config.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "http/server.h"

static void write_fd(int fd)
{
    const uint64_t one = 1;
    const ssize_t rc = write(fd, &one, sizeof one);
    (void)rc;
}

void server_wake(const struct http *h)
{
    write_fd(h->wake_fd);
}

/* One more, unless there are as many as may be. */
static bool take_one(atomic_int *n, int most)
{
    int v = atomic_load(n);
    while (v < most) {
        if (atomic_compare_exchange_weak(n, &v, v + 1)) {
            return true;
        }
    }
    return false;
}

static int key_most(const struct http *h, int key)
{
    const int own = h->opts.keys[key].queue, all = h->opts.queue;
    return own > 0 ? own : h->opts.n_keys > 1 ? all - all / 4 : all;
}

const char *server_reserve(struct http *h, int key)
{
    const char *why = NULL;
    if (key >= 0 && !take_one(&h->keys[key].live, key_most(h, key))) {
        why = "too many requests of this key run or wait already; try again";
    } else if (!take_one(&h->live, h->opts.queue)) {
        why = "too many requests wait already; try again";
        if (key >= 0) {
            atomic_fetch_sub(&h->keys[key].live, 1);
        }
    }
    if (key >= 0) {
        atomic_fetch_add(why ? &h->keys[key].refused : &h->keys[key].requests, 1);
    }
    return why;
}

static void give_back(struct http *h, int key)
{
    if (key >= 0) {
        atomic_fetch_sub(&h->keys[key].live, 1);
    }
    atomic_fetch_sub(&h->live, 1);
}

void server_release(struct http *h, int key)
{
    give_back(h, key);
    server_wake(h); /* it may have been the last one */
}

void server_submit(struct answer *a)
{
    struct http *h = a->h;
    pthread_mutex_lock(&h->lock);
    a->next = h->answers;
    h->answers = a;
    pthread_mutex_unlock(&h->lock);
    server_wake(h);
}

/* The answer and its choice that a chat belongs to. */
static struct answer *find(struct http *h, const struct chat *t, int *choice)
{
    for (struct answer *a = h->answers; a; a = a->next) {
        for (int i = 0; i < a->ask->n; i++) {
            if (a->choice[i].chat == t) {
                *choice = i;
                return a;
            }
        }
    }
    return NULL;
}

static void take_events(struct http *h)
{
    struct conv_event ev;
    memset(&ev, 0, sizeof ev);
    while (conv_reader_next(h->reader, &ev)) {
        int i = 0;
        pthread_mutex_lock(&h->lock);
        struct answer *a = find(h, ev.chat, &i);
        if (a) {
            answer_event(a, i, &ev);
        }
        pthread_mutex_unlock(&h->lock);
        conv_event_fini(&ev);
        memset(&ev, 0, sizeof ev);
    }
}

/* Begins what is new, ends what is over. With the lock held. */
static void tend_all(struct http *h)
{
    const int64_t now = clock_now(clock_main());
    struct answer **p = &h->answers;
    while (*p) {
        struct answer *a = *p;
        if (a->n_begun == 0 && !a->gone) {
            answer_begin(a);
        }
        if (atomic_load(&h->cutting) && !a->gone) {
            answer_cut(a);
        }
        if (a->gone || a->cancelled) {
            answer_drop(a);
        } else {
            answer_tend(a, now);
        }
        if (!a->gone || !answer_over(a)) {
            p = &a->next;
            continue;
        }
        *p = a->next;
        give_back(h, a->key);
        answer_free(a);
    }
    if (atomic_load(&h->live) == 0 && atomic_load(&h->draining)) {
        write_fd(h->drained_fd);
    }
}

/* Sleeps. A client that closed its side is gone: while its connection is suspended nobody else
 * would notice. */
static void wait_for_news(struct http *h)
{
    size_t n = 2;
    pthread_mutex_lock(&h->lock);
    for (const struct answer *a = h->answers; a; a = a->next) {
        n++;
    }
    struct pollfd *p = mem_array(n, sizeof *p);
    p[0] = (struct pollfd){.fd = h->wake_fd, .events = POLLIN};
    p[1] = (struct pollfd){.fd = conv_reader_fd(h->reader), .events = POLLIN};
    n = 2;
    for (const struct answer *a = h->answers; a; a = a->next) {
        if (!a->gone && !a->done) {
            p[n++] = (struct pollfd){.fd = a->fd, .events = POLLRDHUP};
        }
    }
    pthread_mutex_unlock(&h->lock);
    const bool watching = n > 2 || !guard_empty(h);
    if (clock_poll(p, n, watching ? PING_NS / 5 : -1, true) > 0) {
        uint64_t seen = 0;
        const ssize_t rc = p[0].revents ? read(h->wake_fd, &seen, sizeof seen) : 0;
        (void)rc;
        pthread_mutex_lock(&h->lock);
        for (size_t i = 2; i < n; i++) {
            for (struct answer *a = p[i].revents ? h->answers : NULL; a; a = a->next) {
                if (a->fd == p[i].fd && !a->gone && !a->done) {
                    a->broken = true;
                    a->headed = true;
                    a->done = true;
                    listen_resume(a);
                    answer_drop(a);
                }
            }
        }
        pthread_mutex_unlock(&h->lock);
    }
    free(p);
}

static void *loop_thread(void *arg)
{
    struct http *h = arg;
    clock_enter();
    while (!atomic_load(&h->quit)) {
        pthread_mutex_lock(&h->lock);
        tend_all(h);
        pthread_mutex_unlock(&h->lock);
        wait_for_news(h);
        take_events(h);
        guard_sweep(h, clock_now(clock_main()));
    }
    clock_leave();
    return NULL;
}

int server_start(struct http *h, struct err *e)
{
    h->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    h->drained_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (h->wake_fd < 0 || h->drained_fd < 0) {
        return err_sys(e, QE_IO, errno, "cannot make an event descriptor");
    }
    int rc = conv_reader_create(h->conv, &h->reader, e);
    if (rc < 0) {
        return rc;
    }
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&h->loop, NULL, loop_thread, h);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        conv_reader_free(h->reader);
        h->reader = NULL;
        return err_sys(e, QE_NOMEM, rc, "cannot start the listener's thread");
    }
    return 0;
}

void server_stop(struct http *h)
{
    if (h->reader) {
        atomic_store(&h->quit, true);
        server_wake(h);
        pthread_join(h->loop, NULL);
        while (h->answers) {
            struct answer *a = h->answers;
            h->answers = a->next;
            answer_drop(a);
            answer_free(a);
        }
        conv_reader_free(h->reader);
    }
    if (h->wake_fd >= 0) {
        close(h->wake_fd);
    }
    if (h->drained_fd >= 0) {
        close(h->drained_fd);
    }
}
