/* The last words of the process. Everything here is done with open, read and write, since it
 * runs inside a signal handler on a stack of its own; the mapped file is looked up in
 * /proc/self/maps. */
#include "config.h"
#include "base/crash.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

static const int watched[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
#define N_WATCHED (sizeof watched / sizeof *watched)

static void (*volatile first)(void);

struct line {
    char text[1024];
    size_t n;
};

static void add(struct line *l, const char *s)
{
    for (; *s && l->n + 1 < sizeof l->text; s++) {
        l->text[l->n++] = (unsigned char)*s < 0x20 || *s == 0x7F ? '?' : *s;
    }
}

static uintptr_t hex(const char **s)
{
    uintptr_t v = 0;
    for (;; (*s)++) {
        const char c = **s;
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) {
            return v;
        }
        v = v << 4 | (uintptr_t)digit;
    }
}

/* The file of a line of /proc/self/maps if the address is in it. */
static bool in_range(const char *s, uintptr_t addr, struct line *out)
{
    const uintptr_t from = hex(&s);
    const uintptr_t to = *s == '-' ? (s++, hex(&s)) : 0;
    const char *path = strchr(s, '/');
    if (addr < from || addr >= to || !path) {
        return false;
    }
    add(out, path);
    return true;
}

static bool mapped_file(uintptr_t addr, struct line *out)
{
    static char line[1024]; /* one handler at a time gets here */
    size_t n = 0;
    bool found = false;
    char chunk[512];
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t k; fd >= 0 && !found && (k = read(fd, chunk, sizeof chunk)) > 0;) {
        for (ssize_t i = 0; i < k && !found; i++) {
            if (chunk[i] == '\n') {
                line[n] = 0;
                found = in_range(line, addr, out);
                n = 0;
            } else if (n + 1 < sizeof line) {
                line[n++] = chunk[i];
            }
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return found;
}

static void say(int sig, const siginfo_t *info)
{
    static struct line l;
    struct line file = {.n = 0};
    const bool sent = info->si_code <= 0; /* by kill, not by the processor */
    l.n = 0;
    add(&l, "quasar: ");
    if (sig == SIGBUS && !sent && mapped_file((uintptr_t)info->si_addr, &file)) {
        file.text[file.n] = 0;
        add(&l, file.text);
        add(&l, " became shorter while it was in use, or its disk failed (bus error); put the "
                "whole file back and start again");
    } else if (sig == SIGBUS) {
        add(&l, "memory could not be read (bus error)");
    } else if (sig == SIGSEGV) {
        add(&l, "a fault of the program: memory that is not there (segmentation fault)");
    } else if (sig == SIGABRT) {
        add(&l, "a fault of the program: a check of its own failed (abort)");
    } else if (sig == SIGFPE) {
        add(&l, "a fault of the program: arithmetic (floating-point exception)");
    } else {
        add(&l, "an instruction that this processor does not have (illegal instruction)");
    }
    l.text[l.n++] = '\n';
    (void)!write(STDERR_FILENO, l.text, l.n);
}

static void on_fatal(int sig, siginfo_t *info, void *context)
{
    void (*before)(void) = first;
    (void)context;
    if (before) {
        before();
    }
    say(sig, info);
    raise(sig); /* the action is the default one by now */
}

void crash_watch(void (*before)(void), int force)
{
    static char stack[65536];
    const stack_t st = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction sa;
    first = before;
#ifdef __SANITIZE_ADDRESS__
    if (!force) {
        return;
    }
#endif
    (void)force;
    sigaltstack(&st, NULL); /* for this thread; the others have room on their own */
    memset(&sa, 0, sizeof sa);
    sa.sa_sigaction = on_fatal;
    sa.sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < N_WATCHED; i++) {
        sigaction(watched[i], &sa, NULL);
    }
}
