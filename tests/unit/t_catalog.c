/* sessions/catalog: what goes in comes out, several may have it open, older ones are
 * brought up to date, and files that are not ours are left alone. */
#include "config.h"

#include <setjmp.h>
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
#include <sqlite3.h>
#include <zstd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/mem.h"
#include "sessions/catalog.h"
#include "tests/unit/catalog_help.h"

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
    snprintf(want, sizeof want, "%d other|demo|-|1\n%d Gr\xC3\xBC\xC3\x9F Gott|demo|Be kind.|1\n",
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
    assert_int_equal(catalog_draft_put(c, 1, 6, 1, "a draft", 7, NULL), 0);
    const struct catalog_queued q = {"later", 5, "later", 5};
    assert_int_equal(catalog_queue_put(c, 1, 6, 6, &q, 1, NULL), 0);
    int ended = 0, tokens = 0;
    assert_int_equal(catalog_recover(c, 2, &ended, &tokens, NULL), 0);
    catalog_close(c);
}

static void more(struct catalog *c, int64_t turn, const char *text, const char *thought, int32_t id)
{
    const struct catalog_part p = {.text = text,
                                   .text_n = strlen(text),
                                   .thought = thought,
                                   .thought_n = strlen(thought),
                                   .ids = &id,
                                   .n_ids = 1};
    assert_int_equal(catalog_part_add(c, turn, &p, NULL), 0);
}

/* What was added to an answer is put together when its writer is gone, and is over with the next
 * whole one. */
static void answers_in_pieces(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    const int64_t conv = begin(c, NULL), q = add(c, conv, 0, CAT_USER, "one");
    const int64_t done = add(c, conv, q, CAT_ASSISTANT, "");
    const struct catalog_turn whole = {.text = "whole", .text_n = 5, .finish = "stop"};
    more(c, done, "gone", "", 1);
    assert_int_equal(catalog_update(c, done, &whole, NULL), 0);
    const int64_t cut = add(c, conv, q, CAT_ASSISTANT, "");
    const int32_t ids[] = {7, 8};
    const struct catalog_turn some = {
        .text = "so", .text_n = 2, .thought = "h", .thought_n = 1, .ids = ids, .n_ids = 2};
    assert_int_equal(catalog_update(c, cut, &some, NULL), 0);
    more(c, cut, " far\xC3", "m", 70000);
    more(c, cut, "\xBC", "", 0);
    more(c, cut, "", "!", -1);
    const struct catalog_part none = {.text = "x", .text_n = 1};
    assert_true(catalog_part_add(c, 999, &none, NULL) < 0);
    catalog_close(c);
    c = open_ok();
    int n = 0, tokens = 0;
    assert_int_equal(catalog_recover(c, conv, &n, &tokens, NULL), 0);
    assert_int_equal(n, 1);
    assert_int_equal(tokens, 5);
    struct seen s = {0};
    assert_int_equal(catalog_turns(c, conv, see_turn, &s, NULL), 0);
    assert_non_null(strstr(s.all.data, "so far\xC3\xBC"));
    assert_non_null(strstr(s.all.data, "hm!||interrupted||7,8,70000,0,-1,"));
    assert_non_null(strstr(s.all.data, "whole"));
    assert_null(strstr(s.all.data, "gone"));
    buf_free(&s.all);
    assert_int_equal(catalog_recover(c, conv, &n, &tokens, NULL), 0);
    assert_int_equal(n, 0);
    assert_int_equal(catalog_verify(c, NULL), 0);
    /* and none of it is left */
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT count(*) FROM parts", -1, &st, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(st, 0), 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    catalog_close(c);
}

/* One of version 3, with a draft in it, gets what version 4 adds. */
static void one_without_a_queue_is_brought_up(void **state)
{
    (void)state;
    fresh();
    struct catalog *c = open_ok();
    const int64_t a = begin(c, NULL), q = add(c, a, 0, CAT_USER, "one");
    assert_int_equal(catalog_draft_put(c, a, q, 1, "a draft", 7, NULL), 0);
    catalog_close(c);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    const char *sql = "DROP TABLE queued; DROP TABLE recovered; DROP TRIGGER parts_over;"
                      "DROP TABLE parts; PRAGMA user_version = 3";
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    c = open_ok();
    struct buf b = BUF_INIT;
    int64_t at = 0;
    const struct catalog_queued later = {"later", 5, "later", 5};
    assert_int_equal(catalog_draft_get(c, a, q, &at, &b, NULL), 0);
    assert_int_equal(b.len, 7);
    buf_free(&b);
    path_is(c, a, q, "1:one ");
    assert_int_equal(catalog_queue_put(c, a, q, q, &later, 1, NULL), 0);
    assert_int_equal(catalog_verify(c, NULL), 0);
    catalog_close(c);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_stmt *st = NULL;
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(st, 0), CATALOG_SCHEMA);
    sqlite3_finalize(st);
    sqlite3_close(db);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(is_private),
        cmocka_unit_test(foreign_files_are_left_alone),
        cmocka_unit_test(two_handles_in_one_process),
        cmocka_unit_test(opened_by_many),
        cmocka_unit_test(an_old_one_is_brought_up),
        cmocka_unit_test(one_without_a_queue_is_brought_up),
        cmocka_unit_test(answers_in_pieces),
        cmocka_unit_test(long_lists_are_quick),
    };
    return cmocka_run_group_tests(tests, catalog_prepare, catalog_clean);
}
