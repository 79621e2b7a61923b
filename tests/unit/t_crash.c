/* base/crash: a child dies of each signal; its line says why, and it died of that signal. */
#include "config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/crash.h"

static char path[] = "/tmp/quasar-crash-XXXXXX";

static void before(void)
{
    (void)!write(STDERR_FILENO, "(before) ", 9);
}

static void die_of_a_short_file(void)
{
    const int fd = open(path, O_RDWR);
    if (fd < 0 || ftruncate(fd, 65536) < 0) {
        _exit(9);
    }
    volatile char *p = mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED || ftruncate(fd, 0) < 0) {
        _exit(9);
    }
    _exit(p[40000]);
}

/* What a child that dies writes; *sig: of what it died. */
static void child(void (*how)(void), int raised, char out[512], int *sig)
{
    int fds[2];
    int status = 0;
    size_t n = 0;
    assert_int_equal(pipe(fds), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(fds[1], STDERR_FILENO);
        crash_watch(before, 1);
        if (how) {
            how();
        }
        raise(raised);
        _exit(9);
    }
    close(fds[1]);
    for (ssize_t k; n < 511 && (k = read(fds[0], out + n, 511 - n)) > 0;) {
        n += (size_t)k;
    }
    out[n] = 0;
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    *sig = WTERMSIG(status);
}

static void last_words(void **state)
{
    (void)state;
    static const struct {
        int sig;
        const char *words;
    } rows[] = {{SIGSEGV, "(segmentation fault)\n"},
                {SIGBUS, "(bus error)\n"},
                {SIGABRT, "(abort)\n"},
                {SIGFPE, "(floating-point exception)\n"},
                {SIGILL, "(illegal instruction)\n"}};
    char out[512];
    int sig = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        child(NULL, rows[i].sig, out, &sig);
        assert_int_equal(sig, rows[i].sig);
        assert_memory_equal(out, "(before) quasar: ", 17);
        assert_non_null(strstr(out, rows[i].words));
        assert_ptr_equal(strchr(out, '\n'), out + strlen(out) - 1);
    }
}

static void a_file_that_became_shorter(void **state)
{
    (void)state;
    char out[512], want[128];
    int sig = 0;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    child(die_of_a_short_file, SIGTERM, out, &sig);
    unlink(path);
    assert_int_equal(sig, SIGBUS);
    snprintf(want, sizeof want, "(before) quasar: %s became shorter while it was in use", path);
    assert_memory_equal(out, want, strlen(want));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_words),
        cmocka_unit_test(a_file_that_became_shorter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
