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
#include <zstd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
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

static int64_t begin(struct catalog *c, const char *system)
{
    const struct catalog_new n = {.model = "demo", .system = system, .directory = "/home/me"};
    int64_t id = 0;
    struct err e = ERR_INIT;
    int rc = catalog_begin(c, &n, &id, &e);
    if (rc != 0) {
        fail_msg("%s", e.msg);
    }
    return id;
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
    const int64_t a = begin(c, "Be kind."), b = begin(c, NULL);
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
    begin(c, NULL);
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

/* Turns as "id:text " in the order they come. */
static bool see_text(void *ctx, const struct catalog_turn *t)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%d:%s ", (int)t->id, t->text);
    return true;
}

static void path_is(struct catalog *c, int64_t conv, int64_t turn, const char *want)
{
    struct seen s = {0};
    assert_int_equal(catalog_path(c, conv, turn, see_text, &s, NULL), 0);
    assert_string_equal(s.all.data ? s.all.data : "", want);
    buf_free(&s.all);
}

static bool see_all(void *ctx, const struct catalog_conv *v)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%d %s%s%s leaf %d dir %s tags %s\n", (int)v->id, v->title,
               v->named ? " named" : "", v->pinned ? " pinned" : "", (int)v->leaf,
               v->directory ? v->directory : "-", v->tags ? v->tags : "-");
    return true;
}

static void conv_is(struct catalog *c, int64_t conv, const char *want)
{
    struct seen s = {0};
    assert_int_equal(catalog_get(c, conv, see_all, &s, NULL), 0);
    assert_string_equal(s.all.data, want);
    buf_free(&s.all);
}

static void branches(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct err e = ERR_INIT;
    const int64_t a = begin(c, NULL), b = begin(c, NULL);
    const int64_t q1 = add(c, a, 0, CAT_USER, "one"), r1 = add(c, a, q1, CAT_ASSISTANT, "two");
    const int64_t q2 = add(c, a, r1, CAT_USER, "three"), r2 = add(c, a, q2, CAT_ASSISTANT, "four");
    const int64_t q3 = add(c, a, r1, CAT_USER, "five"), r3 = add(c, a, q3, CAT_ASSISTANT, "six");
    const int64_t other = add(c, b, 0, CAT_USER, "elsewhere");
    path_is(c, a, 0, ""); /* no leaf yet */
    assert_int_equal(catalog_set_leaf(c, a, r3, &e), 0);
    path_is(c, a, 0, "1:one 2:two 5:five 6:six ");
    path_is(c, a, r2, "1:one 2:two 3:three 4:four ");
    path_is(c, a, q1, "1:one ");
    path_is(c, a, other, ""); /* another conversation's */
    assert_int_equal(catalog_set_leaf(c, a, other, &e), QE_NOTFOUND);
    assert_int_equal(catalog_set_leaf(c, 99, r3, &e), QE_NOTFOUND);
    /* a copy of a branch goes its own way */
    int64_t f = 0;
    assert_int_equal(catalog_fork(c, a, r2, "branch two", &f, &e), 0);
    path_is(c, f, 0, "8:one 9:two 10:three 11:four ");
    add(c, f, 11, CAT_USER, "only here");
    path_is(c, a, 0, "1:one 2:two 5:five 6:six ");
    conv_is(c, f, "3 branch two named leaf 11 dir /home/me tags -\n");
    assert_int_equal(catalog_fork(c, a, other, NULL, &f, &e), QE_NOTFOUND);
    assert_int_equal(catalog_fork(c, 99, 0, NULL, &f, &e), QE_NOTFOUND);
    assert_int_equal(catalog_fork(c, a, 0, NULL, &f, &e), 0);
    conv_is(c, f, "4 one (2) leaf 16 dir /home/me tags -\n");
    struct seen s = {0};
    assert_int_equal(catalog_list(c, 10, see_conv, &s, NULL), 0);
    assert_int_equal(s.n, 4); /* what failed left nothing */
    buf_free(&s.all);
    /* names, pins, tags */
    assert_int_equal(catalog_rename(c, a, "The plan", &e), 0);
    assert_int_equal(catalog_pin(c, a, true, &e), 0);
    assert_int_equal(catalog_tag(c, a, "work", true, &e), 0);
    assert_int_equal(catalog_tag(c, a, "work", true, &e), 0);
    assert_int_equal(catalog_tag(c, a, "c", true, &e), 0);
    conv_is(c, a, "1 The plan named pinned leaf 6 dir /home/me tags c, work\n");
    assert_int_equal(catalog_tag(c, a, "work", false, &e), 0);
    assert_int_equal(catalog_pin(c, a, false, &e), 0);
    conv_is(c, a, "1 The plan named leaf 6 dir /home/me tags c\n");
    assert_int_equal(catalog_rename(c, 99, "x", &e), QE_NOTFOUND);
    /* a name is given once; a copy's is told from the other's */
    assert_int_equal(catalog_rename(c, b, "The plan", &e), QE_USAGE);
    assert_string_equal(e.msg, "conversation 1 has the name \"The plan\" already: give another");
    assert_int_equal(catalog_fork(c, b, 0, "The plan", &f, &e), QE_USAGE);
    assert_int_equal(catalog_rename(c, a, "The plan", &e), 0);
    for (int i = 2; i < 5; i++) {
        char want[32];
        int64_t by_name = 0;
        assert_int_equal(catalog_fork(c, i == 4 ? f : a, 0, NULL, &f, &e), 0);
        snprintf(want, sizeof want, "The plan (%d)", i);
        assert_int_equal(catalog_named(c, want, &by_name, &e), 0);
        assert_int_equal(by_name, f);
    }
    assert_int_equal(catalog_pin(c, 99, true, &e), QE_NOTFOUND);
    assert_int_equal(catalog_tag(c, 99, "x", true, &e), QE_NOTFOUND);
    assert_int_equal(catalog_tag(c, a, "x", false, &e), QE_NOTFOUND);
    assert_string_equal(e.msg, "conversation 1 has no tag \"x\"");
    assert_int_equal(catalog_retarget(c, 99, "m", NULL, &e), QE_NOTFOUND);
    assert_int_equal(catalog_retarget(c, a, "m", "be brief", &e), 0);
    add(c, a, r3, CAT_USER, "a title is kept");
    conv_is(c, a, "1 The plan named leaf 6 dir /home/me tags c\n");
    /* removing takes what hangs on it */
    assert_int_equal(catalog_remove(c, a, &e), 0);
    path_is(c, a, 0, "");
    assert_int_equal(catalog_verify(c, NULL), 0);
    catalog_close(c);
}

/* Answers without an end, and questions without an answer. */
static void unfinished_ends(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct err e = ERR_INIT;
    int64_t tip = -1, f = 0;
    const int64_t a = begin(c, NULL);
    const int64_t q1 = add(c, a, 0, CAT_USER, "one");
    struct catalog_turn t = {.role = CAT_ASSISTANT, .text = "two", .text_n = 3, .finish = "stop"};
    int64_t r1 = 0, r2 = 0;
    assert_int_equal(catalog_add(c, a, q1, &t, &r1, &e), 0);
    assert_int_equal(catalog_set_leaf(c, a, r1, &e), 0);
    assert_int_equal(catalog_tip(c, a, false, &tip, &e), 0);
    assert_int_equal(tip, 0);
    const int64_t q2 = add(c, a, r1, CAT_USER, "three");
    assert_int_equal(catalog_tip(c, a, false, &tip, &e), 0);
    assert_int_equal(tip, q2);
    assert_int_equal(catalog_tip(c, a, true, &tip, &e), 0);
    assert_int_equal(tip, 0);
    t = (struct catalog_turn){.role = CAT_ASSISTANT};
    assert_int_equal(catalog_add(c, a, q2, &t, &r2, &e), 0);
    assert_int_equal(catalog_tip(c, a, false, &tip, &e), 0);
    assert_int_equal(tip, r2);
    assert_int_equal(catalog_tip(c, a, true, &tip, &e), 0);
    assert_int_equal(tip, 0);
    assert_int_equal(catalog_fork(c, a, 0, NULL, &f, &e), 0);
    path_is(c, f, 0, "5:one 6:two ");
    t.thought = "hm";
    t.thought_n = 2;
    assert_int_equal(catalog_update(c, r2, &t, &e), 0);
    assert_int_equal(catalog_tip(c, a, true, &tip, &e), 0);
    assert_int_equal(tip, r2);
    path_is(c, a, 0, "1:one 2:two ");
    assert_int_equal(catalog_fork(c, a, 0, NULL, &f, &e), 0);
    path_is(c, f, 0, "7:one 8:two 9:three 10: ");
    assert_int_equal(catalog_tip(c, f, false, &tip, &e), 0);
    assert_int_equal(tip, 0); /* the copy has no writer */
    t.finish = "stop";
    assert_int_equal(catalog_update(c, r2, &t, &e), 0);
    assert_int_equal(catalog_tip(c, a, false, &tip, &e), 0);
    assert_int_equal(tip, 0);
    catalog_close(c);
}

static void finding(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct err e = ERR_INIT;
    const char *const names[] = {"parser", "parser rewrite", "notes", "3", "100% sure", "_"};
    for (size_t i = 0; i < 6; i++) {
        const struct catalog_new n = {.name = names[i], .directory = i < 2 ? "/a" : "/b"};
        int64_t id = 0;
        assert_int_equal(catalog_begin(c, &n, &id, NULL), 0);
        assert_int_equal(id, (int64_t)i + 1);
    }
    const struct {
        const char *what;
        int rc, id;
    } cases[] = {
        {"2", 0, 2}, {"parser", 0, 1},     {"parser r", 0, 2},     {"p", QE_USAGE, 0},
        {"n", 0, 3}, {"3", 0, 3},          {"100", 0, 5},          {"%", QE_NOTFOUND, 0},
        {"_", 0, 6}, {"", QE_NOTFOUND, 0}, {"99", QE_NOTFOUND, 0}, {"1x", QE_NOTFOUND, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t id = 0;
        const int rc = catalog_find(c, cases[i].what, &id, &e);
        if (rc != cases[i].rc || id != cases[i].id) {
            fail_msg("\"%s\": %d, %d: %s", cases[i].what, rc, (int)id, e.msg);
        }
    }
    int64_t id = 0;
    assert_int_equal(catalog_check_name("", &e), QE_USAGE);
    assert_int_equal(catalog_check_name("12", &e), QE_USAGE);
    assert_non_null(strstr(e.msg, "a number means"));
    const char *const controls[] = {"a\nb", "\x1B[31m", "a\x7F", "a\xC2\x9B"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(catalog_check_name(controls[i], &e), QE_USAGE);
        assert_non_null(strstr(e.msg, "control character"));
    }
    assert_int_equal(catalog_check_name("gr\xC3\xBC\xC3\x9F \xC2\xA0", &e), 0);
    assert_int_equal(catalog_check_name("12 ", &e), 0);
    assert_int_equal(catalog_check_name("-1", &e), 0);
    assert_int_equal(catalog_find(c, "pars", &id, &e), QE_USAGE);
    assert_non_null(strstr(e.msg, "1 \"parser\""));
    assert_int_equal(catalog_named(c, "notes", &id, &e), 0);
    assert_int_equal(id, 3);
    assert_int_equal(catalog_named(c, "note", &id, &e), 0);
    assert_int_equal(id, 0);
    assert_int_equal(catalog_numbered(c, "3", &id, &e), 0);
    assert_int_equal(id, 3);
    assert_int_equal(catalog_numbered(c, "100", &id, &e), QE_NOTFOUND); /* a title begins so */
    assert_int_equal(catalog_last(c, "/a", &id, &e), 0);
    assert_int_equal(id, 2);
    assert_int_equal(catalog_last(c, NULL, &id, &e), 0);
    assert_int_equal(id, 6);
    assert_int_equal(catalog_last(c, "/c", &id, &e), 0);
    assert_int_equal(id, 0);
    /* a given name goes before the same title; two of one name are told from each other */
    const struct catalog_new n = {.name = NULL}, twin = {.name = "notes"};
    assert_int_equal(catalog_begin(c, &n, &id, NULL), 0);
    add(c, id, 0, CAT_USER, "notes");
    assert_int_equal(catalog_find(c, "notes", &id, &e), 0);
    assert_int_equal(id, 3);
    assert_int_equal(catalog_begin(c, &twin, &id, NULL), 0); /* as older ones left them */
    assert_int_equal(catalog_find(c, "notes", &id, &e), QE_USAGE);
    assert_int_equal(catalog_named(c, "notes", &id, &e), QE_USAGE);
    assert_int_equal(catalog_named_or_new(c, &twin, &id, &e), QE_USAGE);
    assert_non_null(strstr(e.msg, "3 \"notes\" (0 turns)"));
    assert_non_null(strstr(e.msg, "8 \"notes\""));
    catalog_close(c);
}

static bool see_state(void *ctx, const struct catalog_state *t)
{
    struct seen *s = ctx;
    s->n++;
    buf_printf(&s->all, "%s@%d%s%s ", t->file, (int)t->turn, t->pinned ? " pinned" : "",
               t->superseded ? " old" : "");
    return true;
}

static void states_are(struct catalog *c, const char *want)
{
    struct seen s = {0};
    assert_int_equal(catalog_states(c, see_state, &s, NULL), 0);
    assert_string_equal(s.all.data ? s.all.data : "", want);
    buf_free(&s.all);
}

static void state_files(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct err e = ERR_INIT;
    const int64_t a = begin(c, NULL), b = begin(c, NULL);
    int64_t last = 0;
    for (int i = 0; i < 6; i++) {
        last = add(c, a, last, i % 2 ? CAT_ASSISTANT : CAT_USER, "x");
    }
    assert_int_equal(catalog_set_leaf(c, a, 6, &e), 0);
    const int64_t q = add(c, b, 0, CAT_USER, "y");
    const struct {
        const char *file;
        int64_t turn;
    } files[] = {{"f2", 2}, {"f4", 4}, {"g", q}, {"f4b", 4}};
    for (size_t i = 0; i < 4; i++) {
        const struct catalog_state s = {
            .file = files[i].file, .turn = files[i].turn, .compat = "ab", .bytes = 100};
        assert_int_equal(catalog_state_add(c, &s, &e), 0);
        assert_int_equal(catalog_state_add(c, &s, &e), 0); /* once more is the same */
    }
    const struct catalog_state bad = {.file = "h", .turn = 77, .compat = "ab"};
    assert_int_equal(catalog_state_add(c, &bad, &e), QE_NOTFOUND);
    states_are(c, "f2@2 old f4@4 g@7 f4b@4 ");
    assert_int_equal(catalog_pin(c, a, true, &e), 0);
    states_are(c, "g@7 f2@2 pinned old f4@4 pinned f4b@4 pinned ");
    struct seen s = {0};
    assert_int_equal(catalog_states_for(c, a, 0, see_state, &s, &e), 0);
    assert_string_equal(s.all.data, "f4b@4 f4@4 f2@2 ");
    buf_free(&s.all);
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_states_for(c, a, 3, see_state, &s, &e), 0);
    assert_string_equal(s.all.data, "f2@2 ");
    buf_free(&s.all);
    /* a copy of the branch may use the same files, which then belong to both */
    int64_t f = 0;
    assert_int_equal(catalog_fork(c, a, 4, NULL, &f, &e), 0);
    assert_int_equal(catalog_remove(c, a, &e), 0);
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_states_for(c, f, 0, see_state, &s, &e), 0);
    assert_int_equal(s.n, 3);
    buf_free(&s.all);
    assert_int_equal(catalog_state_remove(c, "f2", &e), 0);
    assert_int_equal(catalog_state_used(c, "f4", &e), 0);
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_states(c, see_state, &s, &e), 0);
    assert_int_equal(s.n, 3);
    assert_non_null(strstr(s.all.data, "f4b@11 "));
    buf_free(&s.all);
    catalog_close(c);
}

/* A writer died in the middle of two answers, one without a word yet. */
static void unfinished_answers(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    struct err e = ERR_INIT;
    const int64_t a = begin(c, NULL), b = begin(c, NULL);
    const int64_t q = add(c, a, 0, CAT_USER, "q"), r = add(c, a, q, CAT_ASSISTANT, "");
    const int32_t ids[] = {4, 5, 6};
    struct catalog_turn t = {.text = "half an ans", .text_n = 11, .ids = ids, .n_ids = 3};
    assert_int_equal(catalog_update(c, r, &t, &e), 0);
    const int64_t q2 = add(c, b, 0, CAT_USER, "q");
    add(c, b, q2, CAT_ASSISTANT, "");
    struct seen s = {0};
    assert_int_equal(catalog_unfinished(c, see_all, &s, &e), 0);
    assert_int_equal(s.n, 2);
    buf_free(&s.all);
    int n = 0, tokens = 0;
    assert_int_equal(catalog_recover(c, a, &n, &tokens, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(tokens, 3);
    path_is(c, a, 0, "1:q 2:half an ans ");
    assert_int_equal(catalog_recover(c, a, &n, &tokens, &e), 0);
    assert_int_equal(n, 0);
    assert_int_equal(catalog_recover(c, b, &n, &tokens, &e), 0);
    assert_int_equal(n, 1);
    assert_int_equal(tokens, 0);
    path_is(c, b, 0, "");
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_unfinished(c, see_all, &s, &e), 0);
    assert_int_equal(s.n, 0);
    catalog_close(c);
}

static int count_elsewhere(int64_t conv)
{
    int p[2];
    assert_int_equal(pipe(p), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        struct catalog *c = NULL;
        struct seen s = {0};
        if (catalog_open(path, &c, NULL) < 0 || catalog_turns(c, conv, see_turn, &s, NULL) < 0) {
            _exit(1);
        }
        catalog_close(c); /* which would take the log along if nobody else had it open */
        _exit(write(p[1], &s.n, sizeof s.n) == (ssize_t)sizeof s.n ? 0 : 2);
    }
    int n = -1, status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(read(p[0], &n, sizeof n), sizeof n);
    close(p[0]);
    close(p[1]);
    return n;
}

/* Closing one handle takes nothing from another of the same process: what that writes,
 * other processes see. */
static void two_handles_in_one_process(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    const int64_t conv = begin(c, NULL);
    for (int i = 0; i < 5; i++) {
        catalog_close(open_ok());
        assert_int_equal(count_elsewhere(conv), i);
        add(c, conv, 0, CAT_USER, "x");
        assert_int_equal(count_elsewhere(conv), i + 1);
    }
    catalog_close(c);
    assert_int_equal(count_elsewhere(conv), 5);
}

/* Many processes find no file, and all of them make it. */
static void opened_by_many(void **state)
{
    (void)state;
    for (int round = 0; round < 5; round++) {
        fresh();
        pid_t pids[8];
        for (int i = 0; i < 8; i++) {
            pids[i] = fork();
            if (pids[i] == 0) {
                struct catalog *c = NULL;
                struct err e = ERR_INIT;
                int64_t conv = 0, id = 0;
                const struct catalog_new n = {.model = "demo"};
                const struct catalog_turn t = {.role = CAT_USER, .text = "x", .text_n = 1};
                int rc = catalog_open(path, &c, &e);
                rc = rc < 0 ? rc : catalog_begin(c, &n, &conv, &e);
                for (int k = 0; k < 5 && rc == 0; k++) {
                    rc = catalog_add(c, conv, 0, &t, &id, &e);
                }
                catalog_close(c);
                if (rc < 0) {
                    printf("# %s\n", e.msg);
                    fflush(stdout);
                }
                _exit(rc == 0 ? 0 : 1);
            }
        }
        for (int i = 0; i < 8; i++) {
            int status = 0;
            waitpid(pids[i], &status, 0);
            assert_int_equal(status, 0);
        }
        struct catalog *c = open_ok();
        struct seen s = {0};
        assert_int_equal(catalog_list(c, 100, see_conv, &s, NULL), 0);
        assert_int_equal(s.n, 8);
        buf_free(&s.all);
        assert_int_equal(catalog_verify(c, NULL), 0);
        catalog_close(c);
    }
}

/* A database as version 1 of the schema left it. */
static void an_old_one_is_brought_up(void **state)
{
    (void)state;
    fresh();
    const char *src = getenv("QUASAR_SRCDIR");
    char from[500];
    snprintf(from, sizeof from, "%s/tests/data/catalog-v1.db.zst", src ? src : ".");
    struct buf z = BUF_INIT;
    struct err e = ERR_INIT;
    if (io_read_file(from, 1 << 20, &z, &e) != 0) {
        fail_msg("%s", e.msg);
    }
    char *db = mem_alloc(1 << 20);
    const size_t n = ZSTD_decompress(db, 1 << 20, z.data, z.len);
    assert_false(ZSTD_isError(n));
    buf_free(&z);
    char *slash = strrchr(path, '/');
    *slash = 0;
    assert_int_equal(io_mkdirs(path, 0700, NULL), 0);
    *slash = '/';
    FILE *f = fopen(path, "w");
    assert_int_equal(fwrite(db, 1, n, f), n);
    fclose(f);
    free(db);
    /* two at once: one of them does it */
    const pid_t pid = fork();
    if (pid == 0) {
        struct catalog *c = NULL;
        _exit(catalog_open(path, &c, NULL) == 0 ? 0 : 1);
    }
    struct catalog *c = open_ok();
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(catalog_verify(c, NULL), 0);
    conv_is(c, 1, "1 Which river is the longest? leaf 6 dir - tags -\n");
    conv_is(c, 2, "2 Gr\xC3\xBC\xC3\x9F Gott leaf 8 dir - tags -\n");
    conv_is(c, 3, "3  leaf 0 dir - tags -\n");
    path_is(c, 1, 0,
            "1:Which river is the longest?\nIn Europe. 2:The Volga. 5:And in Africa? 6:The Nile. ");
    struct seen s = {0};
    assert_int_equal(catalog_turns(c, 1, see_turn, &s, NULL), 0);
    assert_int_equal(s.n, 6);
    assert_non_null(strstr(s.all.data, "Let me think.||stop|{\"seed\":2}|5,6,7,2,"));
    buf_free(&s.all);
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_search(c, "volga", 5, see_hit, &s, NULL), 0);
    assert_string_equal(s.all.data, "1/2 ");
    buf_free(&s.all);
    memset(&s, 0, sizeof s);
    assert_int_equal(catalog_unfinished(c, see_all, &s, NULL), 0);
    assert_int_equal(s.n, 1);
    buf_free(&s.all);
    add(c, 1, 6, CAT_USER, "new");
    catalog_close(c);
}

/* The list of 5,000 conversations is there at once. */
static void long_lists_are_quick(void **state)
{
    (void)state;
    fresh();
    catalog_close(open_ok());
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    const char *sql =
        "PRAGMA foreign_keys = ON; BEGIN; WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL"
        " SELECT i + 1 FROM n WHERE i < 5000) INSERT INTO conversations(created, updated, title,"
        " model) SELECT i, i, 'conversation ' || i, 'demo' FROM n;"
        "INSERT INTO turns(conversation, role, text, created) SELECT id, 'user', 'text ' || id, 1"
        " FROM conversations; COMMIT";
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    struct catalog *c = open_ok();
    const int64_t t0 = clock_now(clock_real());
    struct seen s = {0};
    assert_int_equal(catalog_list(c, 5000, see_conv, &s, NULL), 0);
    const double ms = 1000 * clock_seconds(clock_now(clock_real()) - t0);
    assert_int_equal(s.n, 5000);
    assert_int_equal(strncmp(s.all.data, "5000 conversation 5000|demo|-|1\n", 32), 0);
    buf_free(&s.all);
    printf("# 5,000 conversations listed in %.1f ms\n", ms);
    assert_true(ms < 1000); /* a busy machine, or sanitizers; the aim is 50 */
    catalog_close(c);
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
        cmocka_unit_test(read_only_copies),
        cmocka_unit_test(a_page_is_gone),
        cmocka_unit_test(branches),
        cmocka_unit_test(unfinished_ends),
        cmocka_unit_test(finding),
        cmocka_unit_test(state_files),
        cmocka_unit_test(unfinished_answers),
        cmocka_unit_test(two_handles_in_one_process),
        cmocka_unit_test(opened_by_many),
        cmocka_unit_test(an_old_one_is_brought_up),
        cmocka_unit_test(long_lists_are_quick),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
