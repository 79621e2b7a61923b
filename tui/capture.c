/* The thread reads into a ring that stays after a line was handed on, so that a handler
 * of SIGSEGV can still write it. A handler cannot be given a context: the state is global.
 * The one surprising thing: the handler first lets a read under way come to its end, which
 * it does at once, since the pipe's end does not wait. */
#include "config.h"
#include "tui/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define PIPE_BYTES (1 << 20) /* as far as the system gives it */

static struct {
    bool on;
    void (*fn)(void *ctx, const char *p, size_t n);
    void *ctx;
    int out, err; /* the real ones */
    int end;      /* of the pipe, to read */
    int quit;     /* an eventfd: the thread ends once the pipe is empty */
    int news;     /* an eventfd for the screen */
    pthread_t thread;
    char kept[CAPTURE_KEPT]; /* byte k of all that came is at k % CAPTURE_KEPT */
    _Atomic uint64_t came;
    atomic_bool reading, crashed;
} cap;

/* Reads once; bytes, 0 when there are none now. */
static size_t take(void)
{
    const uint64_t came = atomic_load(&cap.came);
    const size_t at = (size_t)(came % CAPTURE_KEPT);
    /* a part at a time: what was printed before stays in the ring */
    const size_t room = CAPTURE_KEPT - at < CAPTURE_KEPT / 4 ? CAPTURE_KEPT - at : CAPTURE_KEPT / 4;
    const ssize_t n = read(cap.end, cap.kept + at, room);
    if (n <= 0) {
        return 0;
    }
    atomic_store(&cap.came, came + (uint64_t)n);
    return (size_t)n;
}

static void *drain(void *arg)
{
    (void)arg;
    struct pollfd fds[2] = {{cap.end, POLLIN, 0}, {cap.quit, POLLIN, 0}};
    for (;;) {
        (void)poll(fds, 2, -1);
        atomic_store(&cap.reading, true);
        const size_t n = atomic_load(&cap.crashed) ? 0 : take();
        const uint64_t came = atomic_load(&cap.came);
        atomic_store(&cap.reading, false);
        if (n > 0) {
            const uint64_t one = 1;
            cap.fn(cap.ctx, cap.kept + (came - n) % CAPTURE_KEPT, n);
            (void)!write(cap.news, &one, sizeof one);
        } else if (fds[1].revents || atomic_load(&cap.crashed)) {
            return NULL;
        }
    }
}

static void close_all(const int *fd, int n)
{
    for (int i = 0; i < n; i++) {
        if (fd[i] >= 0) {
            close(fd[i]);
        }
    }
}

static bool start_thread(void)
{
    /* signals belong to the main thread; threads inherit the mask */
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool ok = pthread_create(&cap.thread, NULL, drain, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return ok;
}

void capture_begin(void (*fn)(void *ctx, const char *p, size_t n), void *ctx)
{
    int ends[2] = {-1, -1};
    if (cap.on || pipe2(ends, O_CLOEXEC) < 0) {
        return;
    }
    cap.fn = fn;
    cap.ctx = ctx;
    cap.end = ends[0];
    cap.out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    cap.err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    cap.quit = eventfd(0, EFD_CLOEXEC);
    cap.news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    atomic_store(&cap.came, 0);
    atomic_store(&cap.crashed, false);
    (void)fcntl(ends[0], F_SETPIPE_SZ, PIPE_BYTES);
    const int flags = fcntl(ends[0], F_GETFL);
    if (cap.out < 0 || cap.err < 0 || cap.quit < 0 || cap.news < 0 ||
        fcntl(ends[0], F_SETFL, flags | O_NONBLOCK) < 0 || !start_thread()) {
        const int all[] = {ends[0], ends[1], cap.out, cap.err, cap.quit, cap.news};
        close_all(all, 6);
        return;
    }
    fflush(stdout);
    fflush(stderr);
    setvbuf(stdout, NULL, _IOLBF, 0); /* a library's last line must not wait in a buffer */
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    cap.on = true;
}

/* The next byte of what came, with control characters made harmless: it goes to a terminal. */
static char harmless(unsigned char before, unsigned char c)
{
    const bool c1 = before == 0xC2 && c >= 0x80 && c < 0xA0;
    return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || c1 ? '?' : (char)c;
}

/* Writes what came last to the real standard error. Async-signal-safe. */
static void write_kept(void)
{
    const uint64_t came = atomic_load(&cap.came);
    uint64_t at = came > CAPTURE_KEPT ? came - CAPTURE_KEPT : 0;
    unsigned char before = 0;
    if (at > 0) {
        static const char cut[] = "(what was printed before is in no log)\n";
        (void)!write(cap.err, cut, sizeof cut - 1);
    }
    while (at < came) {
        char block[512];
        size_t n = 0;
        for (; n < sizeof block && at < came; at++) {
            const unsigned char c = (unsigned char)cap.kept[at % CAPTURE_KEPT];
            block[n++] = harmless(before, c);
            before = c;
        }
        for (size_t done = 0; done < n;) {
            const ssize_t k = write(cap.err, block + done, n - done);
            if (k < 0 && errno == EINTR) {
                continue;
            }
            if (k <= 0) {
                return;
            }
            done += (size_t)k;
        }
    }
}

static void give_back(void)
{
    dup2(cap.out, STDOUT_FILENO);
    dup2(cap.err, STDERR_FILENO);
}

void capture_end(void)
{
    if (!cap.on) {
        return;
    }
    const uint64_t one = 1;
    cap.on = false;
    fflush(stdout);
    fflush(stderr);
    give_back();
    (void)!write(cap.quit, &one, sizeof one);
    pthread_join(cap.thread, NULL);
    write_kept();
    const int all[] = {cap.end, cap.out, cap.err, cap.quit, cap.news};
    close_all(all, 5);
}

int capture_fd(void)
{
    return cap.on ? cap.news : -1;
}

void capture_look(void)
{
    uint64_t count = 0;
    if (cap.on) {
        (void)!read(cap.news, &count, sizeof count);
    }
}

void capture_crash(void)
{
    if (!cap.on) {
        return;
    }
    cap.on = false;
    give_back();
    atomic_store(&cap.crashed, true);
    for (int i = 0; i < 50 && atomic_load(&cap.reading); i++) {
        const struct timespec moment = {0, 1000000};
        nanosleep(&moment, NULL);
    }
    while (take() > 0) {
    }
    write_kept();
}

void capture_child(void)
{
    if (cap.on) {
        give_back();
    }
}
