/* sessions/salvage, pages, lock: what can be read of a damaged catalogue is saved,
 * nothing else is made up, and a conversation has one writer. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/mem.h"
#include "sessions/lock.h"
#include "sessions/salvage.h"

static char dir[] = "/tmp/quasar-salvage-XXXXXX";
static char path[256];

static void must(int rc, const struct err *e)
{
    if (rc != 0) {
        fail_msg("%s", e->msg);
    }
}

static void fresh(void)
{
    static int n;
    snprintf(path, sizeof path, "%s/%d/catalog.db", dir, n++);
}

/* 12 conversations with branches, long texts, states, tags and removed rows. */
static void fill(struct catalog *c)
{
    struct err e = ERR_INIT;
    unsigned seed = 3;
    char *text = mem_alloc(30000);
    for (int k = 0; k < 12; k++) {
        const struct catalog_new n = {.name = k % 3 ? NULL : "named",
                                      .model = "demo",
                                      .system = k % 2 ? "Be kind." : NULL,
                                      .directory = "/home/me"};
        int64_t conv = 0, last = 0, id = 0;
        must(catalog_begin(c, &n, &conv, &e), &e);
        for (int i = 0; i < 25; i++) {
            const size_t len =
                i % 9 == 5 ? 20000 + (size_t)rand_r(&seed) % 9000 : 1 + (size_t)rand_r(&seed) % 700;
            for (size_t b = 0; b < len; b++) {
                text[b] = (char)('a' + rand_r(&seed) % 26);
            }
            int32_t ids[100];
            for (int b = 0; b < 100; b++) {
                ids[b] = rand_r(&seed) % 1000;
            }
            const struct catalog_turn t = {.role = i % 2 ? CAT_ASSISTANT : CAT_USER,
                                           .text = text,
                                           .text_n = len,
                                           .thought = i % 2 ? "hm" : NULL,
                                           .thought_n = i % 2 ? 2 : 0,
                                           .ids = ids,
                                           .n_ids = i % 2 ? 100 : 0,
                                           .finish = i % 2 ? "stop" : NULL,
                                           .settings = "{\"temp\":0.5}"};
            must(catalog_add(c, conv, i % 7 == 6 ? last / 2 * 2 : last, &t, &id, &e), &e);
            last = id;
        }
        must(catalog_set_leaf(c, conv, last - k, &e), &e);
        const struct catalog_state s = {
            .turn = last, .file = "a.state", .compat = "ff", .bytes = 9, .tokens = 8};
        must(catalog_state_add(c, &s, &e), &e);
        must(catalog_tag(c, conv, k % 2 ? "odd" : "even", true, &e), &e);
    }
    must(catalog_remove(c, 5, &e), &e); /* it must not come back */
    free(text);
}

static struct catalog *made(void)
{
    struct catalog *c = NULL;
    struct err e = ERR_INIT;
    fresh();
    must(catalog_open(path, &c, &e), &e);
    fill(c);
    return c;
}

struct all {
    struct buf *b;
    struct catalog *c;
};

static bool dump_turn(void *ctx, const struct catalog_turn *t)
{
    struct buf *b = ctx;
    buf_printf(b, " %d<%d %d %s %s %s", (int)t->id, (int)t->parent, (int)t->role,
               t->finish ? t->finish : "-", t->settings ? t->settings : "-",
               t->thought ? t->thought : "-");
    for (size_t i = 0; i < t->n_ids; i++) {
        buf_printf(b, ",%d", (int)t->ids[i]);
    }
    buf_printf(b, " %s\n", t->text);
    return true;
}

static bool dump_state(void *ctx, const struct catalog_state *s)
{
    buf_printf(ctx, " state %s %s %d %d\n", s->file, s->compat, (int)s->turn, (int)s->bytes);
    return true;
}

static bool dump_conv(void *ctx, const struct catalog_conv *v)
{
    struct all *a = ctx;
    buf_printf(a->b, "%d %s %d %d %s %s %s %s %d\n", (int)v->id, v->title, v->named, v->pinned,
               v->model, v->system ? v->system : "-", v->directory ? v->directory : "-",
               v->tags ? v->tags : "-", (int)v->leaf);
    assert_int_equal(catalog_turns(a->c, v->id, dump_turn, a->b, NULL), 0);
    assert_int_equal(catalog_states_for(a->c, v->id, v->leaf + 30, dump_state, a->b, NULL), 0);
    return true;
}

/* The whole catalogue as text. */
static void dump(struct buf *b)
{
    struct catalog *c = NULL;
    struct err e = ERR_INIT;
    must(catalog_open(path, &c, &e), &e);
    must(catalog_verify(c, &e), &e);
    struct all a = {b, c};
    must(catalog_list(c, 1000, dump_conv, &a, &e), &e);
    catalog_close(c);
}

static void slurp(const char *name, struct buf *b)
{
    assert_int_equal(io_read_file(name, 1 << 28, b, NULL), 0);
}

static void put_file(const char *name, const char *p, size_t n)
{
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(p ? p : "", 1, n, f), n);
    fclose(f);
}

static void remove_sides(void)
{
    static const char *const ends[] = {"-wal", "-shm", ".salvaged", ".salvaged-wal",
                                       ".salvaged-shm"};
    char p[300];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(p, sizeof p, "%s%s", path, ends[i]);
        unlink(p);
    }
}

/* Nothing at all is lost with the header, the schema and every inner page. */
static void the_way_in_is_gone(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    catalog_close(made());
    struct buf want = BUF_INIT, db = BUF_INIT, got = BUF_INIT;
    dump(&want);
    slurp(path, &db);
    for (int how = 0; how < 3; how++) {
        struct buf bad = BUF_INIT;
        buf_add(&bad, db.data, db.len);
        for (size_t at = 0; at < bad.len; at += 4096) {
            const size_t head = at == 0 ? 100 : 0;
            const bool leaf = bad.data[at + head] == 0x0D;
            if (at == 0 || (how == 1 && !leaf)) {
                memset(bad.data + at, how == 2 ? 0x55 : 0, at == 0 ? 4096 : 1);
            }
        }
        put_file(path, bad.data, bad.len);
        buf_free(&bad);
        remove_sides();
        struct catalog *c = NULL;
        assert_int_equal(catalog_open(path, &c, &e), QE_FORMAT);
        struct salvage s;
        must(catalog_salvage(path, &s, &e), &e);
        assert_non_null(s.kept);
        assert_int_equal(s.conversations, 11);
        assert_int_equal(s.turns, 275);
        buf_truncate(&got, 0);
        dump(&got);
        assert_int_equal(got.len, want.len);
        assert_memory_equal(got.data, want.data, want.len);
        struct stat st;
        assert_int_equal(stat(s.kept, &st), 0);
        assert_int_equal(st.st_size, db.len);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        free(s.kept);
        /* once more there is nothing to do */
        must(catalog_salvage(path, &s, &e), &e);
        assert_null(s.kept);
    }
    buf_free(&want);
    buf_free(&db);
    buf_free(&got);
}

/* What was committed last is still in the log when the process dies. */
static void the_log_counts(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    catalog_close(made());
    struct catalog *c = NULL;
    must(catalog_open(path, &c, &e), &e);
    int64_t last = 1;
    for (int i = 0; i < 9; i++) {
        struct catalog_turn t = {.role = CAT_USER, .text = "in the log", .text_n = 10};
        must(catalog_add(c, 1, last, &t, &last, &e), &e);
    }
    struct buf db = BUF_INIT, wal = BUF_INIT, want = BUF_INIT, got = BUF_INIT;
    char name[300];
    snprintf(name, sizeof name, "%s-wal", path);
    slurp(path, &db);
    slurp(name, &wal);
    assert_true(wal.len > 50000);
    catalog_close(c);
    dump(&want);
    assert_non_null(strstr(want.data, "in the log"));
    remove_sides();
    for (size_t at = 4096; at < db.len; at += 4096) {
        if (db.data[at] == 0x05) {
            memset(db.data + at, 0, 4096); /* the inner pages of tables */
        }
    }
    put_file(path, db.data, db.len);
    put_file(name, wal.data, wal.len);
    struct salvage s;
    must(catalog_salvage(path, &s, &e), &e);
    assert_non_null(s.kept);
    dump(&got);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.data, want.data, want.len);
    free(s.kept);
    /* a log that is damaged in the middle counts up to there */
    remove_sides();
    put_file(path, db.data, db.len);
    memset(wal.data + wal.len / 2, 0x33, 5000);
    put_file(name, wal.data, wal.len);
    must(catalog_salvage(path, &s, &e), &e);
    assert_non_null(s.kept);
    free(s.kept);
    buf_truncate(&got, 0);
    dump(&got);
    assert_true(got.len <= want.len);
    buf_free(&db);
    buf_free(&wal);
    buf_free(&want);
    buf_free(&got);
}

struct check {
    const char *want;
    int n;
};

static bool is_one_of(void *ctx, const struct catalog_turn *t)
{
    struct check *k = ctx;
    k->n++;
    assert_non_null(strstr(k->want, t->text));
    return true;
}

static bool check_conv(void *ctx, const struct catalog_conv *v)
{
    struct all *a = ctx;
    struct check k = {.want = a->b->data};
    assert_int_equal(catalog_turns(a->c, v->id, is_one_of, &k, NULL), 0);
    return true;
}

/* Pages that are gone take their own rows along, and those only; flipped bytes
 * anywhere give a sound catalogue all the same. */
static void pages_are_gone(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    catalog_close(made());
    struct buf want = BUF_INIT, db = BUF_INIT;
    dump(&want);
    slurp(path, &db);
    unsigned seed = 9;
    int turns = 0;
    const int rounds = getenv("QUASAR_LONG") ? 300 : 24;
    for (int round = 0; round < rounds; round++) {
        struct buf bad = BUF_INIT;
        buf_add(&bad, db.data, db.len);
        memset(bad.data, 0, 16);
        const bool flips = round % 2;
        for (int k = 0; k < 8; k++) {
            const size_t at = (size_t)rand_r(&seed) % bad.len;
            if (flips) {
                bad.data[at] = (char)rand_r(&seed);
            } else {
                memset(bad.data + at / 4096 * 4096, 0, 4096);
            }
        }
        put_file(path, bad.data, round % 5 == 4 ? bad.len * 2 / 3 + 100 : bad.len);
        buf_free(&bad);
        remove_sides();
        struct salvage s;
        must(catalog_salvage(path, &s, &e), &e);
        assert_non_null(s.kept);
        unlink(s.kept);
        free(s.kept);
        turns += s.turns;
        struct catalog *c = NULL;
        must(catalog_open(path, &c, &e), &e);
        must(catalog_verify(c, &e), &e);
        struct all a = {&want, c};
        if (!flips) {
            must(catalog_list(c, 1000, check_conv, &a, &e), &e);
        }
        const struct catalog_new n = {.name = "next"};
        int64_t id = 0;
        must(catalog_begin(c, &n, &id, &e), &e);
        catalog_close(c);
    }
    assert_true(turns > rounds * 150);
    printf("# %d of %d turns saved\n", turns, rounds * 275);
    buf_free(&want);
    buf_free(&db);
}

static bool see_title(void *ctx, const struct catalog_conv *v)
{
    buf_printf(ctx, "%d %s%s\n", (int)v->id, v->title, v->named ? " named" : "");
    return true;
}

/* A conversation without its row gets the title that it would have had without a name. */
static void rows_of_conversations_are_gone(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct catalog *c = NULL;
    fresh();
    must(catalog_open(path, &c, &e), &e);
    for (int i = 0; i < 3; i++) {
        const struct catalog_new n = {.name = "the name in the row", .model = "demo"};
        struct catalog_turn t = {.role = CAT_USER};
        int64_t conv = 0, id = 0;
        t.text = i == 0 ? "hi" : i == 1 ? "first line\nsecond line" : "";
        t.text_n = strlen(t.text);
        must(catalog_begin(c, &n, &conv, &e), &e);
        must(catalog_add(c, conv, 0, &t, &id, &e), &e);
    }
    catalog_close(c);
    struct buf db = BUF_INIT, got = BUF_INIT;
    slurp(path, &db);
    memset(db.data, 0, 16);
    for (size_t at = 4096; at < db.len; at += 4096) {
        if (memmem(db.data + at, 4096, "the name in the row", 19)) {
            memset(db.data + at, 0, 4096);
        }
    }
    put_file(path, db.data, db.len);
    struct salvage s;
    must(catalog_salvage(path, &s, &e), &e);
    assert_int_equal(s.conversations, 3);
    assert_int_equal(s.no_head, 3);
    assert_int_equal(s.turns, 3);
    assert_int_equal(s.no_turn, 0);
    must(catalog_open(path, &c, &e), &e);
    must(catalog_list(c, 9, see_title, &got, &e), &e);
    catalog_close(c);
    assert_non_null(strstr(got.data, "1 hi\n"));
    assert_non_null(strstr(got.data, "2 first line\n"));
    assert_non_null(strstr(got.data, "3 \n"));
    assert_null(strstr(got.data, "second"));
    free(s.kept);
    buf_free(&db);
    buf_free(&got);
}

/* Killed at a random moment, a salvage can be done again or gone on with. */
static void killed_salvage(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    catalog_close(made());
    struct buf want = BUF_INIT, db = BUF_INIT, got = BUF_INIT;
    dump(&want);
    slurp(path, &db);
    memset(db.data, 0, 200);
    unsigned seed = 4;
    int finished = 0;
    const int rounds = getenv("QUASAR_LONG") ? 200 : 12;
    for (int round = 0; round < rounds; round++) {
        put_file(path, db.data, db.len);
        remove_sides();
        const pid_t pid = fork();
        if (pid == 0) {
            struct salvage s;
            _exit(catalog_salvage(path, &s, NULL) == 0 ? 0 : 1);
        }
        usleep((useconds_t)rand_r(&seed) % 150000);
        kill(pid, SIGKILL);
        int status = 0;
        waitpid(pid, &status, 0);
        struct salvage s;
        must(catalog_salvage(path, &s, &e), &e);
        finished += s.kept == NULL;
        free(s.kept);
        assert_false(catalog_half_salvaged(path));
        buf_truncate(&got, 0);
        dump(&got);
        assert_int_equal(got.len, want.len);
        assert_memory_equal(got.data, want.data, want.len);
    }
    printf("# %d of %d had finished\n", finished, rounds);
    buf_free(&want);
    buf_free(&db);
    buf_free(&got);
}

/* A file without a byte, or none, beside its log: not a beginning. What is in the log is
 * saved, and what it names and is not there is counted. */
static void only_the_log(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    catalog_close(made());
    struct catalog *c = NULL;
    must(catalog_open(path, &c, &e), &e);
    const struct catalog_new n = {.name = "last", .model = "demo"};
    int64_t conv = 0, last = 0, said[4];
    must(catalog_begin(c, &n, &conv, &e), &e);
    for (int i = 0; i < 4; i++) {
        struct catalog_turn t = {.role = CAT_USER, .text = "in the log", .text_n = 10};
        must(catalog_add(c, conv, last, &t, &last, &e), &e);
        said[i] = last;
    }
    struct buf wal = BUF_INIT;
    char name[300];
    snprintf(name, sizeof name, "%s-wal", path);
    slurp(name, &wal);
    catalog_close(c);
    for (int how = 0; how < 2; how++) {
        struct salvage s;
        struct stat st;
        remove_sides();
        unlink(path);
        if (how == 0) {
            put_file(path, NULL, 0);
        }
        put_file(name, wal.data, wal.len);
        assert_int_equal(catalog_open(path, &c, &e), QE_FORMAT);
        assert_non_null(strstr(e.msg, "is empty"));
        assert_true(stat(name, &st) == 0 && st.st_size == (off_t)wal.len);
        must(catalog_salvage(path, &s, &e), &e);
        assert_true(s.empty && s.kept && s.turns >= 4);
        assert_true(s.no_turn > 0); /* leaves of conversations whose pages are not in the log */
        must(catalog_open(path, &c, &e), &e);
        int64_t found = 0;
        must(catalog_named(c, "last", &found, &e), &e);
        assert_int_equal(found, conv);
        struct buf got = BUF_INIT;
        must(catalog_path(c, conv, said[3], dump_turn, &got, &e), &e);
        char *at = got.data;
        for (int i = 0; i < 4; i++) {
            at = at ? strstr(at, "in the log") : NULL;
            assert_non_null(at);
            at++;
        }
        catalog_close(c);
        buf_free(&got);
        free(s.kept);
    }
    buf_free(&wal);
}

static void not_ours(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    fresh();
    struct salvage s;
    char folder[300];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    assert_int_equal(io_mkdirs(folder, 0700, NULL), 0);
    char *noise = mem_alloc(50000);
    unsigned seed = 1;
    for (int i = 0; i < 50000; i++) {
        noise[i] = (char)rand_r(&seed);
    }
    for (size_t at = 4096; at < 50000; at += 4096) {
        noise[at] = 0x0D;
    }
    put_file(path, noise, 50000);
    free(noise);
    must(catalog_salvage(path, &s, &e), &e);
    assert_int_equal(s.turns, 0);
    free(s.kept);
    put_file(path, NULL, 0);
    must(catalog_salvage(path, &s, &e), &e);
    assert_true(s.empty && s.kept && s.turns == 0);
    free(s.kept);
    snprintf(path, sizeof path, "%s/none/catalog.db", dir);
    assert_int_equal(catalog_salvage(path, &s, &e), QE_IO);
}

/* ---- locks ---- */

static void one_writer(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct session_lock *l = NULL, *again = NULL;
    assert_int_equal(lock_holder(dir, 7), 0);
    must(lock_take(dir, 7, &l, &e), &e);
    assert_int_equal(lock_take(dir, 7, &again, &e), QE_BUSY);
    assert_int_equal(lock_holder(dir, 7), getpid());
    must(lock_take(dir, 8, &again, &e), &e);
    lock_release(again);
    /* another process is told who has it */
    int p[2];
    assert_int_equal(pipe(p), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct session_lock *mine = NULL;
        char want[80];
        snprintf(want, sizeof want, "conversation 7 is open in another quasar (process %d)",
                 (int)getppid());
        _exit(lock_take(dir, 7, &mine, &e) == QE_BUSY && strstr(e.msg, want) ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    lock_release(l);
    /* a holder that was killed holds nothing */
    pid = fork();
    if (pid == 0) {
        if (lock_take(dir, 7, &l, NULL) == 0 && write(p[1], "x", 1) == 1) {
            pause();
        }
        _exit(1);
    }
    char x = 0;
    assert_int_equal(read(p[0], &x, 1), 1);
    assert_int_equal(lock_take(dir, 7, &again, &e), QE_BUSY);
    assert_int_equal(lock_holder(dir, 7), pid);
    lock_forget(dir, 7); /* held: it stays */
    assert_int_equal(lock_holder(dir, 7), pid);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    assert_int_equal(lock_holder(dir, 7), 0);
    must(lock_take(dir, 7, &l, &e), &e);
    assert_int_equal(lock_holder(dir, 7), getpid());
    lock_release(l);
    lock_forget(dir, 7);
    char name[300];
    snprintf(name, sizeof name, "%s/locks/7.lock", dir);
    assert_int_equal(access(name, F_OK), -1);
    close(p[0]);
    close(p[1]);
}

/* Many processes, and the file is removed under them all the time: never two at once. */
static void never_two(void **state)
{
    (void)state;
    int counter[2];
    assert_int_equal(pipe(counter), 0); /* one byte in it: the conversation */
    assert_int_equal(write(counter[1], "x", 1), 1);
    fcntl(counter[0], F_SETFL, O_NONBLOCK);
    pid_t pids[4];
    for (int i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            int had = 0;
            for (int k = 0; k < 3000; k++) {
                struct session_lock *l = NULL;
                char x = 0;
                if (lock_take(dir, 9, &l, NULL) < 0) {
                    lock_forget(dir, 9);
                    continue;
                }
                if (read(counter[0], &x, 1) != 1 || write(counter[1], "x", 1) != 1) {
                    _exit(2);
                }
                had++;
                lock_release(l);
                lock_forget(dir, 9);
            }
            _exit(had > 0 ? 0 : 1);
        }
    }
    for (int i = 0; i < 4; i++) {
        int status = 0;
        waitpid(pids[i], &status, 0);
        assert_int_equal(status, 0);
    }
    close(counter[0]);
    close(counter[1]);
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
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_way_in_is_gone), cmocka_unit_test(the_log_counts),
        cmocka_unit_test(pages_are_gone),     cmocka_unit_test(rows_of_conversations_are_gone),
        cmocka_unit_test(killed_salvage),     cmocka_unit_test(only_the_log),
        cmocka_unit_test(not_ours),           cmocka_unit_test(one_writer),
        cmocka_unit_test(never_two),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
