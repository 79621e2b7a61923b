/* What is printed while the screen is up: nothing is lost, nobody waits, and what came last
 * is on standard error afterwards, also after a crash. */
#include "config.h"
#include "tui/capture.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"

struct got {
    pthread_mutex_t lock;
    struct buf text;
};

static void take(void *ctx, const char *p, size_t n)
{
    struct got *g = ctx;
    pthread_mutex_lock(&g->lock);
    buf_add(&g->text, p, n);
    pthread_mutex_unlock(&g->lock);
}

/* Runs fn in a child whose output and error are the returned file; the child's status. */
static int in_child(void (*fn)(struct got *g), struct buf *out, struct buf *err)
{
    char o[] = "/tmp/quasar-capture-XXXXXX";
    char e[] = "/tmp/quasar-capture-XXXXXX";
    const int fo = mkstemp(o);
    const int fe = mkstemp(e);
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        struct got g = {PTHREAD_MUTEX_INITIALIZER, BUF_INIT};
        dup2(fo, STDOUT_FILENO);
        dup2(fe, STDERR_FILENO);
        capture_begin(take, &g);
        fn(&g);
        _exit(99);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    char block[4096];
    ssize_t n = 0;
    for (off_t at = 0; (n = pread(fo, block, sizeof block, at)) > 0; at += n) {
        buf_add(out, block, (size_t)n);
    }
    for (off_t at = 0; (n = pread(fe, block, sizeof block, at)) > 0; at += n) {
        buf_add(err, block, (size_t)n);
    }
    close(fo);
    close(fe);
    unlink(o);
    unlink(e);
    return status;
}

/* A megabyte by a library, with nobody at the screen. */
static void print_much(struct got *g)
{
    for (int i = 0; i < 20000; i++) {
        fprintf(i % 2 ? stdout : stderr, "line %d of a library that says far too much\n", i);
        if (i % 2) {
            fflush(stdout);
        }
    }
    struct pollfd p = {capture_fd(), POLLIN, 0};
    const bool told = poll(&p, 1, 5000) == 1;
    capture_look();
    capture_end();
    size_t lines = 0;
    for (size_t i = 0; i < g->text.len; i++) {
        lines += g->text.data[i] == '\n';
    }
    printf("told %d lines %zu\n", told, lines);
    fflush(stdout);
    _exit(capture_fd() == -1 ? 0 : 1);
}

static void test_much(void **state)
{
    (void)state;
    struct buf out = BUF_INIT;
    struct buf err = BUF_INIT;
    assert_int_equal(in_child(print_much, &out, &err), 0);
    assert_string_equal(out.data, "told 1 lines 20000\n");
    assert_true(err.len > CAPTURE_KEPT && err.len < CAPTURE_KEPT + 100);
    static const char last[] = "line 19999 of a library that says far too much\n";
    assert_string_equal(err.data + err.len - (sizeof last - 1), last);
    assert_non_null(strstr(err.data, "is in no log"));
    buf_free(&out);
    buf_free(&err);
}

static void on_crash(int sig)
{
    capture_crash();
    signal(sig, SIG_DFL);
    raise(sig);
}

static void crash(struct got *g)
{
    (void)g;
    signal(SIGSEGV, on_crash);
    printf("on the way down, "); /* waits in a buffer of a library: is lost */
    fprintf(stderr, "the last words\n");
    raise(SIGSEGV);
}

static void test_crash(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        struct buf out = BUF_INIT;
        struct buf err = BUF_INIT;
        const int status = in_child(crash, &out, &err);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        assert_non_null(strstr(err.data ? err.data : "", "the last words\n"));
        assert_int_equal(out.len, 0);
        buf_free(&out);
        buf_free(&err);
    }
}

static void child_prints(struct got *g)
{
    (void)g;
    const pid_t pid = fork();
    if (pid == 0) {
        capture_child();
        execl("/bin/sh", "sh", "-c", "echo real; echo wrong >&2", (char *)NULL);
        _exit(1);
    }
    waitpid(pid, NULL, 0);
    capture_end();
    _exit((int)g->text.len);
}

static void test_child(void **state)
{
    (void)state;
    struct buf out = BUF_INIT;
    struct buf err = BUF_INIT;
    assert_int_equal(in_child(child_prints, &out, &err), 0);
    assert_string_equal(out.data, "real\n");
    assert_string_equal(err.data, "wrong\n");
    buf_free(&out);
    buf_free(&err);
}

/* A process that outlives us and holds our standard output does not hold us up. */
static void left_behind(struct got *g)
{
    (void)g;
    const pid_t pid = fork();
    if (pid == 0) {
        for (;;) {
            pause();
        }
    }
    fprintf(stderr, "x\x1b[2J\xc2\x9b\xc3\xa9\n");
    capture_end();
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    _exit(g->text.len == 10 ? 0 : 1);
}

static void test_left_behind(void **state)
{
    (void)state;
    struct buf out = BUF_INIT;
    struct buf err = BUF_INIT;
    assert_int_equal(in_child(left_behind, &out, &err), 0);
    assert_string_equal(err.data, "x?[2J\xc2?\xc3\xa9\n");
    buf_free(&out);
    buf_free(&err);
}

static void test_unused(void **state)
{
    (void)state;
    assert_int_equal(capture_fd(), -1);
    capture_look();
    capture_end();
    capture_crash();
    capture_child();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unused),      cmocka_unit_test(test_much),
        cmocka_unit_test(test_crash),       cmocka_unit_test(test_child),
        cmocka_unit_test(test_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
