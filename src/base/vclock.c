/* The virtual clock: discrete events. Waiters are listed under one lock; the last thread
 * that begins to wait moves the time, as does the thread that reads the control file.
 * A descriptor that became readable counts as work although its waiter has not woken yet:
 * that is looked for before every step. Those whose wait is over go on one at a time, so
 * that what one sees of another does not depend on the machine. */
#include "config.h"
#include "base/vclock.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/mem.h"

#define NEVER INT64_MAX

/* Somebody who waits; lives on the waiter's stack. */
struct waiter {
    struct waiter *next;
    int64_t due;
    bool woken;
    struct waiter *after; /* of those that are woken, in the order in which they were */
    bool settled;
    const char *hold;
    const struct pollfd *fds; /* a poll, with the wake-up descriptor last */
    nfds_t n;
    pthread_cond_t *cond; /* a wait for a condition; else a sleep, with `wake` */
    pthread_cond_t wake;
};

static struct {
    pthread_mutex_t lock; /* all below but `now`'s readers */
    _Atomic int64_t now;
    int64_t wall, granted;
    struct waiter *waiters;
    int busy;             /* do not wait … */
    int active;           /* … and have their turn */
    struct waiter *ready; /* the others */
    pthread_cond_t rest;  /* one less is active */
    bool let_go;

    bool watched;
    int control, report;
    bool asked; /* a command waits for its answer */
    bool grant_at_size;
    size_t input, want_input;
    int cols, rows, want_cols, want_rows;
} v = {.lock = PTHREAD_MUTEX_INITIALIZER,
       .rest = PTHREAD_COND_INITIALIZER,
       .control = -1,
       .report = -1};
static atomic_bool is_on;

static int64_t virtual_now(void *ctx)
{
    (void)ctx;
    return atomic_load(&v.now);
}

const struct clk *vclock_clk(void)
{
    static const struct clk c = {virtual_now, NULL};
    return atomic_load_explicit(&is_on, memory_order_relaxed) ? &c : NULL;
}

int64_t vclock_wall(void)
{
    return v.wall + atomic_load(&v.now) / 1000000000;
}

bool vclock_parse_time(const char *s, int64_t *ns)
{
    char *end = NULL;
    errno = 0;
    const double x = isdigit((unsigned char)*s) ? strtod(s, &end) : -1;
    if (!end || errno != 0) {
        return false;
    }
    const double unit = strcmp(end, "s") == 0    ? 1e9
                        : strcmp(end, "ms") == 0 ? 1e6
                        : strcmp(end, "us") == 0 ? 1e3
                                                 : 0;
    if (unit <= 0 || !(x * unit <= 1e18)) {
        return false;
    }
    *ns = (int64_t)(x * unit + 0.5);
    return true;
}

/* ---- moving the time, all with the lock held ---- */

static void get_ready(struct waiter *w)
{
    struct waiter **at = &v.ready;
    while (*at) {
        at = &(*at)->after;
    }
    *at = w;
    w->after = NULL;
    w->woken = true;
    v.busy++;
}

static void wake(struct waiter *w)
{
    if (w->woken) {
        return;
    }
    get_ready(w);
    if (w->fds) {
        const uint64_t one = 1;
        const ssize_t rc = write(w->fds[w->n - 1].fd, &one, sizeof one);
        (void)rc; /* readable anyway */
    } else if (!w->cond) {
        pthread_cond_signal(&w->wake);
    }
}

/* Whether one of them has work that it has not noticed, or waits for the world outside. */
static bool has_work(const struct waiter *w)
{
    struct pollfd copy[16];
    if (w->woken || !w->settled) {
        return true;
    }
    const nfds_t n = w->fds ? w->n - 1 : 0;
    if (n == 0) {
        return false;
    }
    memcpy(copy, w->fds, n * sizeof *copy);
    return poll(copy, n, 0) > 0;
}

static void answer(void)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, "quiet %lld", (long long)(atomic_load(&v.now) / 1000000));
    for (const struct waiter *w = v.waiters; w; w = w->next) {
        if (w->hold) {
            buf_printf(&b, " hold %s", w->hold);
        }
    }
    buf_addc(&b, '\n');
    const ssize_t rc = write(v.report, b.data, b.len);
    (void)rc; /* a test that does not read has no use for it */
    buf_free(&b);
    v.asked = false;
    v.granted = atomic_load(&v.now); /* what comes next waits for the next command */
}

static bool outside_done(void)
{
    return v.input >= v.want_input &&
           (v.want_cols == 0 || (v.cols == v.want_cols && v.rows == v.want_rows));
}

/* Steps as far as may be while nobody works. */
static void step(void)
{
    while (v.busy == 0) {
        int64_t first = NEVER;
        for (const struct waiter *w = v.waiters; w; w = w->next) {
            if (has_work(w)) {
                return;
            }
            first = w->due < first ? w->due : first;
        }
        if (v.asked && !outside_done()) {
            return;
        }
        if (v.grant_at_size) {
            v.grant_at_size = false;
            v.granted = atomic_load(&v.now) + 100000000; /* a resize is drawn when it is over */
        }
        if (first == NEVER || (first > v.granted && !v.let_go)) {
            if (v.granted != NEVER && v.granted > atomic_load(&v.now)) {
                atomic_store(&v.now, v.granted);
            }
            if (v.asked) {
                answer();
            }
            return;
        }
        if (first > atomic_load(&v.now)) {
            atomic_store(&v.now, first);
        }
        for (struct waiter *w = v.waiters; w; w = w->next) {
            if (w->due <= first) {
                wake(w);
            }
        }
    }
}

static void begin_wait(struct waiter *w)
{
    w->next = v.waiters;
    v.waiters = w;
    v.busy--;
    v.active--;
    step();
    pthread_cond_broadcast(&v.rest);
}

/* The first that was woken, but those that poll last of all: what others are about to say comes
 * to them at once, not in part. */
static struct waiter *next_ready(void)
{
    for (struct waiter *w = v.ready; w; w = w->after) {
        if (!w->fds) {
            return w;
        }
    }
    return v.ready;
}

/* Waits for its turn. */
static void end_wait(struct waiter *w)
{
    struct waiter **at = &v.waiters;
    struct waiter **r = &v.ready;
    if (!w->woken) {
        get_ready(w);
    }
    while (v.active > 0 || next_ready() != w) {
        pthread_cond_wait(&v.rest, &v.lock);
    }
    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
    while (*r != w) {
        r = &(*r)->after;
    }
    *r = w->after;
    v.active++;
}

/* ---- waiting ---- */

static int64_t due_in(int64_t ns)
{
    const int64_t now = atomic_load(&v.now);
    return ns < 0 || ns > NEVER - now ? NEVER : now + ns;
}

int vclock_poll(struct pollfd *fds, nfds_t n, int64_t ns, bool settled)
{
    struct pollfd all[16];
    if (ns == 0 || n > 15) {
        return poll(fds, n, 0);
    }
    const int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0) {
        return -1;
    }
    if (n > 0) {
        memcpy(all, fds, n * sizeof *all);
    }
    all[n] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
    struct waiter w = {.due = due_in(ns), .settled = settled, .fds = all, .n = n + 1};
    pthread_mutex_lock(&v.lock);
    begin_wait(&w);
    pthread_mutex_unlock(&v.lock);
    struct pollfd live[16];
    memcpy(live, all, (n + 1) * sizeof *live);
    /* what is asked of the outside may stay out: then it is no reason to stand still */
    int rc = poll(live, n + 1, settled ? -1 : 2000);
    const int why = errno;
    pthread_mutex_lock(&v.lock);
    end_wait(&w);
    pthread_mutex_unlock(&v.lock);
    close(wake_fd);
    if (rc < 0) {
        errno = why;
        return rc;
    }
    rc = 0;
    for (nfds_t i = 0; i < n; i++) {
        fds[i].revents = live[i].revents;
        rc += live[i].revents != 0;
    }
    return rc;
}

void vclock_sleep(int64_t ns, const char *name)
{
    if ((ns <= 0 && !name) || (name && !v.watched)) {
        return;
    }
    struct waiter w = {.due = name ? NEVER : due_in(ns), .settled = true, .hold = name};
    pthread_cond_init(&w.wake, NULL);
    pthread_mutex_lock(&v.lock);
    if (!v.let_go) {
        if (name && v.granted == NEVER) {
            v.granted = atomic_load(&v.now) + 100000000; /* others have timers for ever */
        }
        begin_wait(&w);
        while (!w.woken) {
            pthread_cond_wait(&w.wake, &v.lock);
        }
        end_wait(&w);
    }
    pthread_mutex_unlock(&v.lock);
    pthread_cond_destroy(&w.wake);
}

void vclock_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    struct waiter w = {.due = NEVER, .settled = true, .cond = c};
    pthread_mutex_lock(&v.lock);
    begin_wait(&w);
    pthread_mutex_unlock(&v.lock);
    pthread_cond_wait(c, m);
    pthread_mutex_unlock(m); /* whose turn it is may need it */
    pthread_mutex_lock(&v.lock);
    end_wait(&w);
    pthread_mutex_unlock(&v.lock);
    pthread_mutex_lock(m);
}

void vclock_cond_signal(pthread_cond_t *c)
{
    pthread_mutex_lock(&v.lock);
    for (struct waiter *w = v.waiters; w; w = w->next) {
        if (w->cond == c) {
            wake(w);
        }
    }
    pthread_mutex_unlock(&v.lock);
}

void vclock_enter(void)
{
    pthread_mutex_lock(&v.lock);
    v.busy++;
    v.active++;
    pthread_mutex_unlock(&v.lock);
}

void vclock_leave(void)
{
    pthread_mutex_lock(&v.lock);
    v.busy--;
    v.active--;
    step();
    pthread_cond_broadcast(&v.rest);
    pthread_mutex_unlock(&v.lock);
}

void vclock_let_go(void)
{
    pthread_mutex_lock(&v.lock);
    v.let_go = true;
    for (struct waiter *w = v.waiters; w; w = w->next) {
        if (w->hold) {
            wake(w);
        }
    }
    step();
    pthread_cond_broadcast(&v.rest);
    pthread_mutex_unlock(&v.lock);
}

/* ---- the other side ---- */

void vclock_saw_input(size_t bytes)
{
    pthread_mutex_lock(&v.lock);
    v.input = bytes;
    pthread_mutex_unlock(&v.lock);
}

void vclock_saw_size(int cols, int rows)
{
    pthread_mutex_lock(&v.lock);
    v.cols = cols;
    v.rows = rows;
    pthread_mutex_unlock(&v.lock);
}

bool vclock_is_watched(void)
{
    return vclock_clk() && v.watched;
}

static void obey(const char *line)
{
    int64_t ns = 0;
    unsigned long bytes = 0;
    int cols = 0, rows = 0;
    bool known = true;
    const int64_t now = atomic_load(&v.now);
    v.granted = now;
    if (strncmp(line, "advance ", 8) == 0 && vclock_parse_time(line + 8, &ns)) {
        v.granted = now + ns;
    } else if (strcmp(line, "run") == 0) {
        v.granted = NEVER;
    } else if (strcmp(line, "go") == 0) {
        v.granted = NEVER;
        for (struct waiter *w = v.waiters; w; w = w->next) {
            if (w->hold) {
                wake(w);
            }
        }
    } else if (sscanf(line, "input %lu", &bytes) == 1) {
        v.want_input = bytes;
    } else if (sscanf(line, "size %dx%d", &cols, &rows) == 2) {
        v.want_cols = cols;
        v.want_rows = rows;
        v.grant_at_size = true;
    } else {
        known = false;
    }
    if (!known) {
        static const char what[] = "what? advance TIME, run, go, input N or size CxR\n";
        const ssize_t rc = write(v.report, what, sizeof what - 1);
        (void)rc;
        return;
    }
    v.asked = true;
    step();
}

static void *control_thread(void *arg)
{
    char line[128];
    size_t n = 0;
    (void)arg;
    for (;;) {
        char c = 0;
        const ssize_t rc = read(v.control, &c, 1);
        if (rc < 0 && errno == EINTR) {
            continue;
        }
        if (rc <= 0) {
            return NULL;
        }
        if (c == '\n' || n + 1 == sizeof line) {
            line[n] = 0;
            n = 0;
            pthread_mutex_lock(&v.lock);
            obey(line);
            pthread_mutex_unlock(&v.lock);
        } else {
            line[n++] = c;
        }
    }
}

static int open_fifo(const char *path, int *out, struct err *e)
{
    /* for both ways, so that neither side waits for the other nor sees an end */
    *out = open(path, O_RDWR | O_CLOEXEC);
    return *out < 0 ? err_sys(e, QE_IO, errno, "%s", path) : 0;
}

int vclock_start(int64_t wall, const char *control, const char *report, struct err *e)
{
    v.wall = wall;
    v.busy = v.active = 1;
    v.watched = control != NULL;
    v.granted = control ? 0 : NEVER;
    if (control) {
        int rc = open_fifo(control, &v.control, e);
        rc = rc < 0 ? rc : open_fifo(report, &v.report, e);
        if (rc < 0) {
            return rc;
        }
    }
    atomic_store(&is_on, true);
    if (control) {
        pthread_t thread;
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        const int err = pthread_create(&thread, NULL, control_thread, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (err != 0) {
            return err_sys(e, QE_NOMEM, err, "cannot start a thread for %s", control);
        }
        pthread_detach(thread);
    }
    return 0;
}
