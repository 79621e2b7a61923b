/* The terminal of tests and measurements. */
#define _GNU_SOURCE
#include "config.h"
#include "tests/ptyterm.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <vterm.h>

#include "base/buf.h"
#include "base/mem.h"

struct ptyterm {
    int fd;
    pid_t pid;
    int cols, rows;
    VTerm *vt;
    VTermScreen *screen;
    struct buf row, log;
    struct ptyterm_frame *frames;
    size_t n_frames, cap_frames;
    size_t in_frame; /* bytes since the last frame's end */
    int64_t cpu;
    bool alternate, cursor, paste; /* modes */
    char tail[16];                 /* the last bytes, for marks that are cut */
    size_t n_tail;
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

int64_t ptyterm_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int on_mode(VTermProp prop, VTermValue *val, void *user)
{
    struct ptyterm *t = user;
    if (prop == VTERM_PROP_ALTSCREEN) {
        t->alternate = val->boolean;
    } else if (prop == VTERM_PROP_CURSORVISIBLE) {
        t->cursor = val->boolean;
    }
    return 1;
}

static void on_output(const char *s, size_t n, void *user)
{
    const struct ptyterm *t = user;
    const ssize_t rc = write(t->fd, s, n);
    (void)rc; /* the program may have gone */
}

/* What libvterm answers, but that it does not know a mode, which we do. */
static void on_answer(const char *s, size_t n, void *user)
{
    if (!memmem(s, n, "$y", 2)) {
        on_output(s, n, user);
    }
}

struct ptyterm *ptyterm_start(const char *const *argv, int cols, int rows)
{
    struct ptyterm *t = mem_zalloc(sizeof *t);
    struct winsize ws = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
    t->cols = cols;
    t->rows = rows;
    t->vt = vterm_new(rows, cols);
    vterm_set_utf8(t->vt, 1);
    t->screen = vterm_obtain_screen(t->vt);
    vterm_screen_enable_altscreen(t->screen, 1);
    vterm_screen_reset(t->screen, 1);
    static const VTermScreenCallbacks calls = {.settermprop = on_mode};
    t->cursor = true;
    vterm_screen_set_callbacks(t->screen, &calls, t);
    vterm_output_set_callback(t->vt, on_answer, t);
    t->pid = forkpty(&t->fd, NULL, NULL, &ws);
    if (t->pid < 0) {
        die("forkpty");
    }
    if (t->pid == 0) {
        setenv("TERM", "xterm-256color", 1);
        setenv("LC_ALL", "C.UTF-8", 1);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return t;
}

/* Kills what is left of a session; true while any thread of it runs. */
static bool session_lives(pid_t leader)
{
    bool lives = false;
    DIR *d = opendir("/proc");
    if (!d) {
        die("/proc");
    }
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        char path[300], line[512], state = 0;
        int sid = 0;
        long threads = 0;
        const long pid = strtol(e->d_name, NULL, 10);
        snprintf(path, sizeof path, "/proc/%ld/stat", pid);
        FILE *f = pid > 0 ? fopen(path, "r") : NULL;
        if (!f) {
            continue;
        }
        /* after the name, which may hold anything: state, parent, group, session ... threads */
        const char *at = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
        fclose(f);
        if (at &&
            sscanf(at + 1, " %c %*d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %ld",
                   &state, &sid, &threads) == 3 &&
            sid == leader && (state != 'Z' || threads > 1)) {
            kill((pid_t)pid, SIGKILL);
            lives = true;
        }
    }
    closedir(d);
    return lives;
}

void ptyterm_free(struct ptyterm *t)
{
    if (t) {
        /* the program, and under a shell the jobs, which else save to the disk after this */
        while (session_lives(t->pid)) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
        waitpid(t->pid, NULL, 0);
        close(t->fd);
        vterm_free(t->vt);
        buf_free(&t->row);
        buf_free(&t->log);
        free(t->frames);
        free(t);
    }
}

pid_t ptyterm_pid(const struct ptyterm *t)
{
    return t->pid;
}

void ptyterm_send(struct ptyterm *t, const void *p, size_t n)
{
    const char *s = p;
    while (n > 0) {
        struct pollfd f = {t->fd, POLLOUT | POLLIN, 0};
        if (poll(&f, 1, -1) < 0) {
            die("poll");
        }
        if (f.revents & POLLIN) { /* else both sides may wait for each other */
            (void)ptyterm_read(t, 0);
        }
        if (f.revents & POLLOUT) {
            const ssize_t k = write(t->fd, s, n < 512 ? n : 512);
            if (k < 0 && errno != EAGAIN && errno != EINTR) {
                die("write to the terminal");
            }
            s += k > 0 ? k : 0;
            n -= k > 0 ? (size_t)k : 0;
        } else if (f.revents & (POLLHUP | POLLERR)) {
            return;
        }
    }
}

int64_t ptyterm_cpu(const struct ptyterm *t, bool whole)
{
    char path[64];
    unsigned long long ns = 0;
    if (whole) {
        clockid_t id;
        struct timespec c = {0};
        return clock_getcpuclockid(t->pid, &id) == 0 && clock_gettime(id, &c) == 0
                   ? (int64_t)c.tv_sec * 1000000000 + c.tv_nsec
                   : 0;
    }
    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", (int)t->pid, (int)t->pid);
    FILE *f = fopen(path, "r");
    if (f) {
        (void)!fscanf(f, "%llu", &ns);
        fclose(f);
    }
    return (int64_t)ns;
}

uint64_t ptyterm_switches(const struct ptyterm *t)
{
    char path[300], line[128];
    uint64_t sum = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)t->pid);
    DIR *d = opendir(path);
    if (!d) {
        return 0;
    }
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        unsigned long long n = 0;
        snprintf(path, sizeof path, "/proc/%d/task/%s/status", (int)t->pid, e->d_name);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f)) {
            if (sscanf(line, "voluntary_ctxt_switches: %llu", &n) == 1) {
                sum += n;
            }
        }
        if (f) {
            fclose(f);
        }
    }
    closedir(d);
    return sum;
}

static void frame_over(struct ptyterm *t)
{
    const int64_t cpu = ptyterm_cpu(t, false);
    if (t->n_frames == t->cap_frames) {
        t->cap_frames = t->cap_frames ? 2 * t->cap_frames : 256;
        t->frames = mem_realloc(t->frames, t->cap_frames * sizeof *t->frames);
    }
    t->frames[t->n_frames++] = (struct ptyterm_frame){t->in_frame, cpu - t->cpu, ptyterm_now()};
    t->in_frame = 0;
    t->cpu = cpu;
}

/* Looks for marks that the terminal's library does not know, one byte at a time. */
static void watch(struct ptyterm *t, char c)
{
    static const char end[] = "\x1b[?2026l", ask[] = "\x1b[?2026$p";
    t->in_frame++;
    if (t->n_tail == sizeof t->tail) {
        memmove(t->tail, t->tail + 1, --t->n_tail);
    }
    t->tail[t->n_tail++] = c;
    if (c == 'l' && t->n_tail >= sizeof end - 1 &&
        memcmp(t->tail + t->n_tail - (sizeof end - 1), end, sizeof end - 1) == 0) {
        frame_over(t);
    } else if ((c == 'h' || c == 'l') && t->n_tail >= sizeof end - 1 &&
               memcmp(t->tail + t->n_tail - (sizeof end - 1), "\x1b[?2004", 7) == 0) {
        t->paste = c == 'h';
    } else if (c == 'p' && t->n_tail >= sizeof ask - 1 &&
               memcmp(t->tail + t->n_tail - (sizeof ask - 1), ask, sizeof ask - 1) == 0) {
        on_output("\x1b[?2026;2$y", 11, t);
    }
}

bool ptyterm_read(struct ptyterm *t, int ms)
{
    char block[65536];
    struct pollfd f = {t->fd, POLLIN, 0};
    if (poll(&f, 1, ms) <= 0) {
        return true;
    }
    const ssize_t n = read(t->fd, block, sizeof block);
    if (n <= 0) {
        return n < 0 && (errno == EINTR || errno == EAGAIN);
    }
    for (ssize_t i = 0; i < n; i++) {
        watch(t, block[i]);
    }
    buf_add(&t->log, block, (size_t)n);
    vterm_input_write(t->vt, block, (size_t)n);
    return true;
}

const char *ptyterm_row(struct ptyterm *t, int row)
{
    char text[4096];
    const VTermRect r = {.start_row = row, .end_row = row + 1, .start_col = 0, .end_col = t->cols};
    size_t n = vterm_screen_get_text(t->screen, text, sizeof text, r);
    while (n > 0 && text[n - 1] == ' ') {
        n--;
    }
    buf_truncate(&t->row, 0);
    buf_add(&t->row, text, n);
    buf_adds(&t->row, "");
    return t->row.data;
}

int ptyterm_find(struct ptyterm *t, const char *text)
{
    for (int i = t->rows - 1; i >= 0; i--) {
        if (strstr(ptyterm_row(t, i), text)) {
            return i;
        }
    }
    return -1;
}

bool ptyterm_until(struct ptyterm *t, const char *text, int ms)
{
    const int64_t end = ptyterm_now() + (int64_t)ms * 1000000;
    while (ptyterm_find(t, text) < 0) {
        if (ptyterm_now() > end || !ptyterm_read(t, 5)) {
            return false;
        }
    }
    return true;
}

const struct ptyterm_frame *ptyterm_frames(const struct ptyterm *t, size_t *n)
{
    *n = t->n_frames;
    return t->frames;
}

const struct buf *ptyterm_log(const struct ptyterm *t)
{
    return &t->log;
}

void ptyterm_resize(struct ptyterm *t, int cols, int rows)
{
    const struct winsize ws = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
    t->cols = cols;
    t->rows = rows;
    vterm_set_size(t->vt, rows, cols);
    if (ioctl(t->fd, TIOCSWINSZ, &ws) < 0) {
        die("TIOCSWINSZ");
    }
}

bool ptyterm_alternate(const struct ptyterm *t)
{
    return t->alternate;
}

bool ptyterm_is_sane(const struct ptyterm *t)
{
    struct termios m;
    return tcgetattr(t->fd, &m) == 0 && (m.c_lflag & ICANON) && (m.c_lflag & ECHO) &&
           (m.c_lflag & ISIG) && (m.c_oflag & OPOST) && t->cursor && !t->paste;
}

void ptyterm_forget(struct ptyterm *t)
{
    t->n_frames = 0;
    t->in_frame = 0;
    t->cpu = ptyterm_cpu(t, false);
}
