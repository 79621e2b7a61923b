/* sessions/catalog: nothing committed is ever lost, whatever becomes of the process, the
 * disk or the file. */
#include "config.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "sessions/catalog.h"
#include "tests/unit/catalog_help.h"

/* Flipped bytes anywhere: an error or an answer, never a crash. */
static void damage_is_an_error(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    const int64_t a = begin(c, NULL);
    int64_t last = 0;
    for (int i = 0; i < 60; i++) {
        char text[400];
        memset(text, 'a' + i % 26, sizeof text - 1);
        text[sizeof text - 1] = 0;
        last = add(c, a, last, i % 2 ? CAT_ASSISTANT : CAT_USER, text);
    }
    catalog_close(c);
    struct buf good = BUF_INIT;
    slurp(&good);
    unsigned seed = 7;
    int errors = 0;
    for (int round = 0; round < 150; round++) {
        struct buf bad = BUF_INIT;
        buf_add(&bad, good.data, good.len);
        for (int k = 0; k < 40; k++) {
            bad.data[(size_t)rand_r(&seed) % bad.len] = (char)rand_r(&seed);
        }
        FILE *f = fopen(path, "w");
        fwrite(bad.data, 1, round % 3 ? bad.len : bad.len / 2, f);
        fclose(f);
        buf_free(&bad);
        struct err e = ERR_INIT;
        int rc = catalog_open(path, &c, &e);
        if (rc == 0) {
            struct seen s = {0};
            struct catalog_turn t = {.role = CAT_USER, .text = "x", .text_n = 1};
            int64_t id = 0;
            rc = catalog_turns(c, a, see_turn, &s, &e);
            rc |= catalog_search(c, "aaa", 5, see_hit, &s, &e);
            rc |= catalog_list(c, 5, see_conv, &s, &e);
            rc |= catalog_add(c, a, 0, &t, &id, &e);
            rc |= catalog_verify(c, &e);
            buf_free(&s.all);
            catalog_close(c);
        }
        errors += rc != 0;
        assert_true(rc == 0 || e.msg[0]);
        char side[300];
        snprintf(side, sizeof side, "%s-wal", path);
        unlink(side);
        snprintf(side, sizeof side, "%s-shm", path);
        unlink(side);
    }
    assert_true(errors > 75);
    buf_free(&good);
}

/* Appends turns for ever, telling each committed one on fd. */
static _Noreturn void append_for_ever(int fd)
{
    struct catalog *c = NULL;
    int64_t conv = 0, last = 0;
    const struct catalog_new new = {.model = "demo"};
    if (catalog_open(path, &c, NULL) < 0 || catalog_begin(c, &new, &conv, NULL) < 0) {
        _exit(3);
    }
    for (int i = 0;; i++) {
        char text[64];
        snprintf(text, sizeof text, "turn %d", i);
        struct catalog_turn t = {
            .role = i % 2 ? CAT_ASSISTANT : CAT_USER, .text = text, .text_n = strlen(text)};
        int64_t id = 0;
        if (catalog_add(c, conv, last, &t, &id, NULL) < 0) {
            _exit(4);
        }
        last = id;
        int64_t told[2] = {conv, i + 1};
        if (write(fd, told, sizeof told) != (ssize_t)sizeof told) {
            _exit(5);
        }
    }
}

static void killed_at_any_moment(void **state)
{
    (void)state;
    fresh();
    catalog_close(open_ok());
    unsigned seed = 11;
    int rounds = getenv("QUASAR_LONG") ? 500 : 20;
    int64_t total = 0;
    for (int round = 0; round < rounds; round++) {
        int p[2];
        assert_int_equal(pipe(p), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(p[0]);
            append_for_ever(p[1]);
        }
        close(p[1]);
        int64_t told[2] = {0, 0};
        /* Not before the first commit; then at a random moment. */
        assert_int_equal(read(p[0], told, sizeof told), sizeof told);
        usleep((useconds_t)rand_r(&seed) % 20000);
        kill(pid, SIGKILL);
        while (read(p[0], told, sizeof told) == (ssize_t)sizeof told) {
        }
        close(p[0]);
        int status = 0;
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status));
        struct catalog *c = open_ok();
        assert_int_equal(catalog_verify(c, NULL), 0);
        struct seen s = {0};
        assert_int_equal(catalog_turns(c, told[0], see_turn, &s, NULL), 0);
        assert_true(s.n >= told[1] && s.n <= told[1] + 1);
        total += s.n;
        buf_free(&s.all);
        catalog_close(c);
    }
    assert_true(total > rounds);
}

/* The disk takes no more: an error each time, nothing committed is lost, and the
 * next writer goes on. */
static void full_disk(void **state)
{
    (void)state;
    fresh();
    catalog_close(open_ok());
    int p[2];
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit lim = {200000, 200000};
        setrlimit(RLIMIT_FSIZE, &lim);
        struct catalog *c = NULL;
        int64_t conv = 0, id = 0;
        int good = 0, bad = 0;
        const struct catalog_new new = {.model = "demo"};
        if (catalog_open(path, &c, NULL) < 0 || catalog_begin(c, &new, &conv, NULL) < 0) {
            _exit(3);
        }
        static char text[8192];
        memset(text, 'x', sizeof text);
        for (int i = 0; i < 100; i++) {
            struct catalog_turn t = {.role = CAT_USER, .text = text, .text_n = sizeof text};
            struct err e = ERR_INIT;
            if (catalog_add(c, conv, 0, &t, &id, &e) == 0) {
                good++;
            } else if (e.msg[0]) {
                bad++;
            }
        }
        int64_t told[3] = {conv, good, bad};
        ssize_t n = write(p[1], told, sizeof told);
        _exit(n == (ssize_t)sizeof told ? 0 : 5);
    }
    int64_t told[3] = {0};
    assert_int_equal(read(p[0], told, sizeof told), sizeof told);
    close(p[0]);
    close(p[1]);
    waitpid(pid, NULL, 0);
    assert_true(told[1] > 0 && told[2] > 0);
    assert_int_equal(told[1] + told[2], 100);
    struct catalog *c = open_ok();
    struct seen s = {0};
    assert_int_equal(catalog_turns(c, told[0], see_turn, &s, NULL), 0);
    assert_int_equal(s.n, told[1]);
    buf_free(&s.all);
    add(c, told[0], 0, CAT_USER, "room again");
    assert_int_equal(catalog_verify(c, NULL), 0);
    catalog_close(c);
}

/* As a user who may not write there. */
static void unwritable_folder(void **state)
{
    (void)state;
    fresh();
    catalog_close(open_ok());
    char folder[300];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    char parent[300];
    snprintf(parent, sizeof parent, "%s", folder);
    *strrchr(parent, '/') = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (chmod(path, 0444) < 0 || chmod(folder, 0555) < 0 || chmod(parent, 0755) < 0 ||
            chmod(dir, 0755) < 0 || (geteuid() == 0 && setuid(65534) < 0)) {
            _exit(9);
        }
        struct catalog *c = NULL;
        struct err e = ERR_INIT;
        int rc = catalog_open(path, &c, &e);
        _exit(rc == QE_IO && strstr(e.msg, path) ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    /* A file where the folder should be. */
    struct catalog *c = NULL;
    struct err e = ERR_INIT;
    char below[300];
    snprintf(below, sizeof below, "%s/x.db", path);
    assert_int_equal(catalog_open(below, &c, &e), QE_IO);
    assert_true(e.msg[0] != 0);
}

/* What cannot be written can be read as a copy: with what is in the log only, by a user who
 * may only read, of an older schema; and nothing goes into it. */
static void read_only_copies(void **state)
{
    (void)state;
    fresh();
    struct err e = ERR_INIT;
    struct catalog *c = open_ok(), *r = NULL;
    const int64_t a = begin(c, NULL);
    add(c, a, 0, CAT_USER, "in the log");
    assert_int_equal(catalog_open_fixed(path, "of a test", &r, &e), 0);
    struct seen s = {0};
    assert_int_equal(catalog_turns(r, a, see_turn, &s, &e), 0);
    assert_non_null(strstr(s.all.data, "in the log"));
    buf_free(&s.all);
    assert_int_equal(catalog_verify(r, &e), 0);
    struct seen hits = {0};
    assert_int_equal(catalog_search(r, "log", 9, see_hit, &hits, &e), 0);
    assert_int_equal(hits.n, 1);
    buf_free(&hits.all);
    assert_int_equal(catalog_rename(r, a, "x", &e), QE_IO);
    assert_non_null(strstr(e.msg, "because of a test"));
    const struct catalog_new n = {.name = "x"};
    int64_t id = 0;
    assert_true(catalog_named_or_new(r, &n, &id, &e) < 0);
    /* the other connection has its locks still: nobody takes its log away */
    pid_t pid = fork();
    if (pid == 0) {
        struct catalog *k = NULL;
        const int rc = catalog_open(path, &k, NULL);
        catalog_close(k);
        _exit(rc == 0 ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    add(c, a, 0, CAT_USER, "and after");
    catalog_close(r);
    catalog_close(c);
    c = open_ok();
    s = (struct seen){0};
    assert_int_equal(catalog_turns(c, a, see_turn, &s, &e), 0);
    assert_int_equal(s.n, 2);
    buf_free(&s.all);
    catalog_close(c);
    FILE *f = fopen(path, "r+");
    assert_int_equal(fseek(f, 5000, SEEK_SET), 0);
    for (int i = 0; i < 4000; i++) {
        fputc('x', f);
    }
    fclose(f);
    if (catalog_open_fixed(path, "of a test", &r, &e) == 0) {
        assert_int_equal(catalog_verify(r, &e), QE_FORMAT);
        catalog_close(r);
    }
    fresh();
    assert_true(catalog_open_fixed(path, "of a test", &r, &e) < 0);
}

/* A page in the middle is damaged: every message says what mends it, and what does not
 * need that page can be read. */
static void a_page_is_gone(void **state)
{
    (void)state;
    fresh();
    struct err e = ERR_INIT;
    struct catalog *c = open_ok();
    static char text[3000];
    memset(text, 'x', sizeof text - 1);
    int64_t conv[20];
    for (int i = 0; i < 20; i++) {
        conv[i] = begin(c, NULL);
        const int64_t q = add(c, conv[i], 0, CAT_USER, text);
        const int64_t r = add(c, conv[i], q, CAT_ASSISTANT, text);
        assert_int_equal(catalog_set_leaf(c, conv[i], r, &e), 0);
    }
    catalog_close(c);
    struct buf whole = BUF_INIT;
    assert_int_equal(io_read_file(path, 1 << 24, &whole, &e), 0);
    int some = 0, lists = 0;
    for (size_t page = 1; page < whole.len / 4096; page++) {
        FILE *f = fopen(path, "w");
        assert_int_equal(fwrite(whole.data, 1, whole.len, f), whole.len);
        assert_int_equal(fseek(f, (long)page * 4096, SEEK_SET), 0);
        for (int i = 0; i < 4096; i++) {
            fputc(0xEE, f);
        }
        fclose(f);
        if (catalog_open(path, &c, &e) < 0) {
            continue; /* salvaged at once */
        }
        int read = 0;
        for (int i = 0; i < 20; i++) {
            struct seen s = {0};
            e = (struct err)ERR_INIT;
            const int rc = catalog_path(c, conv[i], 0, see_turn, &s, &e);
            assert_true(rc == 0 || (rc == QE_FORMAT && strstr(e.msg, "verify --repair")));
            read += rc == 0 && s.n == 2;
            buf_free(&s.all);
        }
        some += read > 0 && read < 20;
        struct seen s = {0};
        e = (struct err)ERR_INIT;
        const int rc = catalog_list(c, 100, see_conv, &s, &e);
        assert_true(rc == 0 || strstr(e.msg, "verify --repair"));
        lists += rc < 0 && s.n == 20;
        buf_free(&s.all);
        if (catalog_verify(c, &e) < 0) {
            assert_non_null(strstr(e.msg, "verify --repair"));
        }
        catalog_close(c);
    }
    assert_true(some >= 10); /* a leaf of turns: the others are read */
    assert_true(lists > 0);  /* a page of counts: every conversation is listed */
    buf_free(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_an_error), cmocka_unit_test(killed_at_any_moment),
        cmocka_unit_test(full_disk),          cmocka_unit_test(unwritable_folder),
        cmocka_unit_test(read_only_copies),   cmocka_unit_test(a_page_is_gone),
    };
    return cmocka_run_group_tests(tests, catalog_prepare, catalog_clean);
}
