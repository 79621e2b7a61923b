/* sessions/catalog: what goes in comes out, nothing committed is ever lost, and
 * files that are not ours are left alone. */
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
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/io.h"
#include "sessions/catalog.h"

static char dir[] = "/tmp/quasar-catalog-XXXXXX";
static char path[256];

static void fresh(void)
{
    static int n;
    snprintf(path, sizeof path, "%s/%d/deep/catalog.db", dir, n++);
}

static struct catalog *open_ok(void)
{
    struct catalog *c = NULL;
    struct err e = ERR_INIT;
    int rc = catalog_open(path, &c, &e);
    if (rc != 0) {
        fail_msg("%s", e.msg);
    }
    return c;
}

static int64_t add(struct catalog *c, int64_t conv, int64_t parent, enum catalog_role role,
                   const char *text)
{
    struct catalog_turn t = {.role = role, .text = text, .text_n = strlen(text)};
    int64_t id = 0;
    struct err e = ERR_INIT;
    int rc = catalog_add(c, conv, parent, &t, &id, &e);
    if (rc != 0) {
        fail_msg("%s", e.msg);
    }
    return id;
}

struct seen {
    struct buf all;
    int n;
};

static bool see_turn(void *ctx, const struct catalog_turn *t)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%d<%d %d %.*s|%.*s|%s|%s|%s|", (int)t->id, (int)t->parent, (int)t->role,
               (int)t->text_n, t->text, (int)t->thought_n, t->thought ? t->thought : "",
               t->calls ? t->calls : "", t->finish ? t->finish : "", t->stats ? t->stats : "");
    for (size_t i = 0; i < t->n_ids; i++) {
        buf_printf(&s->all, "%d,", (int)t->ids[i]);
    }
    buf_adds(&s->all, "\n");
    return true;
}

static bool see_hit(void *ctx, int64_t conv, const struct catalog_turn *t)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%d/%d ", (int)conv, (int)t->id);
    return true;
}

static bool see_conv(void *ctx, const struct catalog_conv *v)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%d %s|%s|%s|%d\n", (int)v->id, v->title, v->model,
               v->system ? v->system : "-", v->turns);
    return true;
}

static void round_trip(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    int64_t a = 0, b = 0;
    assert_int_equal(catalog_begin(c, "demo", "Be kind.", &a, NULL), 0);
    assert_int_equal(catalog_begin(c, "demo", NULL, &b, NULL), 0);
    int64_t q = add(c, a, 0, CAT_USER, "Gr\xC3\xBC\xC3\x9F Gott\nsecond line");
    int64_t r = add(c, a, q, CAT_ASSISTANT, "");
    int32_t ids[] = {1, 70000, 0, -1, INT32_MAX};
    const char text[] = "with a \0 inside";
    struct catalog_turn t = {.text = text,
                             .text_n = sizeof text - 1,
                             .thought = "hm",
                             .thought_n = 2,
                             .calls = "[]",
                             .ids = ids,
                             .n_ids = 5,
                             .finish = "stop",
                             .stats = "{\"seed\":1}"};
    assert_int_equal(catalog_update(c, r, &t, NULL), 0);
    assert_int_equal(catalog_update(c, 999, &t, NULL), QE_NOTFOUND);
    int64_t q2 = add(c, b, 0, CAT_USER, "other");
    catalog_close(c);
    c = open_ok();
    struct seen s = {0};
    assert_int_equal(catalog_turns(c, a, see_turn, &s, NULL), 0);
    assert_int_equal(s.n, 2);
    assert_non_null(strstr(s.all.data, "hm|[]|stop|{\"seed\":1}|1,70000,0,-1,2147483647,"));
    buf_free(&s.all);
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_list(c, 10, see_conv, &s, NULL), 0);
    char want[200];
    snprintf(want, sizeof want, "%d other|demo|-|1\n%d Gr\xC3\xBC\xC3\x9F Gott|demo|Be kind.|2\n",
             (int)b, (int)a);
    assert_string_equal(s.all.data, want);
    buf_free(&s.all);
    /* Search folds case and accents, follows updates, and fears no operator. */
    const struct {
        const char *words;
        int hits;
    } find[] = {{"gruss", 0},  {"gru\xC3\x9F GOTT", 1},
                {"inside", 1}, {"other", 1},
                {"", 0},       {"\"", 0},
                {"NOT", 0},    {"a*", 1},
                {"(line", 1},  {"line second", 1}};
    for (size_t i = 0; i < sizeof find / sizeof *find; i++) {
        memset(&s, 0, sizeof s);
        assert_int_equal(catalog_search(c, find[i].words, 10, see_hit, &s, NULL), 0);
        if (s.n != find[i].hits) {
            fail_msg("\"%s\": %d hits", find[i].words, s.n);
        }
        buf_free(&s.all);
    }
    /* Removing takes the turns and their words along. */
    assert_int_equal(catalog_remove(c, b, NULL), 0);
    assert_int_equal(catalog_remove(c, b, NULL), QE_NOTFOUND);
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_search(c, "other", 10, see_hit, &s, NULL), 0);
    assert_int_equal(s.n, 0);
    assert_int_equal(catalog_verify(c, NULL), 0);
    (void)q2;
    catalog_close(c);
}

static void is_private(void **state)
{
    (void)state;
    fresh();
    umask(0);
    struct catalog *c = open_ok();
    int64_t a = 0;
    assert_int_equal(catalog_begin(c, "demo", NULL, &a, NULL), 0);
    struct stat st;
    char p[300];
    const char *const ends[] = {"", "-wal", "-shm"};
    for (int i = 0; i < 3; i++) {
        snprintf(p, sizeof p, "%s%s", path, ends[i]);
        assert_int_equal(stat(p, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    *strrchr(p, '/') = 0;
    assert_int_equal(stat(p, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    catalog_close(c);
}

/* Bytes of the file, to see that it is left alone. */
static void slurp(struct buf *b)
{
    assert_int_equal(io_read_file(path, 1 << 26, b, NULL), 0);
}

static void foreign_files_are_left_alone(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct catalog *c = NULL;
    /* a newer schema */
    fresh();
    catalog_close(open_ok());
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    struct buf before = BUF_INIT, after = BUF_INIT;
    slurp(&before);
    assert_int_equal(catalog_open(path, &c, &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "newer"));
    slurp(&after);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, before.len);
    buf_free(&before);
    buf_free(&after);
    /* not a database */
    FILE *f = fopen(path, "w");
    for (int i = 0; i < 5000; i++) {
        fputs("noise ", f);
    }
    fclose(f);
    assert_int_equal(catalog_open(path, &c, &e), QE_FORMAT);
    slurp(&after);
    assert_int_equal(after.len, 30000);
    buf_free(&after);
    /* another program's database */
    unlink(path);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE turns(x)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(catalog_open(path, &c, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "turns"));
}

/* Flipped bytes anywhere: an error or an answer, never a crash. */
static void damage_is_an_error(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    int64_t a = 0;
    assert_int_equal(catalog_begin(c, "demo", NULL, &a, NULL), 0);
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
    if (catalog_open(path, &c, NULL) < 0 || catalog_begin(c, "demo", NULL, &conv, NULL) < 0) {
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
    int rounds = getenv("QUASAR_LONG") ? 500 : 25;
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
        if (catalog_open(path, &c, NULL) < 0 || catalog_begin(c, "demo", NULL, &conv, NULL) < 0) {
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

static int prepare(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int clean(void **state)
{
    (void)state;
    char cmd[300];
    snprintf(cmd, sizeof cmd, "chmod -R u+w %s; rm -rf %s", dir, dir);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(is_private),
        cmocka_unit_test(foreign_files_are_left_alone),
        cmocka_unit_test(damage_is_an_error),
        cmocka_unit_test(killed_at_any_moment),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(unwritable_folder),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
