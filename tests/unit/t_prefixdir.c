/* sessions/prefixdir: files of prompts' states in a shared folder. What is found has
 * exactly the tokens; names lie, bytes rot, files vanish, disks fill up: then nothing is
 * found, or what was written. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
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

#include "base/buf.h"
#include "base/io.h"
#include "base/log.h"
#include "sessions/prefixdir.h"

static char root[256];
static int notices;
static const uint8_t engine[STATE_COMPAT] = {1, 2, 3}, other[STATE_COMPAT] = {1, 2, 4};

static void count(void *ctx, enum log_level level, const char *line)
{
    (void)ctx;
    (void)line;
    notices += level <= LOG_WARN;
}

static void empty(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *f = NULL;
    while (d && (f = readdir(d))) {
        char name[1024];
        snprintf(name, sizeof name, "%s/%s", path, f->d_name);
        (void)unlink(name);
    }
    if (d) {
        closedir(d);
    }
}

static int fresh(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s/quasar-prefixes-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    notices = 0;
    log_set_sink(count, NULL);
    return mkdtemp(root) ? 0 : -1;
}

static int clear(void **state)
{
    (void)state;
    log_set_sink(NULL, NULL);
    empty(root);
    return rmdir(root);
}

static struct prefixdir *open_dir(const uint8_t *compat)
{
    return prefixdir_create(root, 1 << 20, compat, "an engine");
}

static void tokens(int32_t *p, size_t n, size_t from, int salt)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (int32_t)(i * 31 % 977) + (i >= from ? salt : 0);
    }
}

static void write_state(struct prefixdir *d, const int32_t *ids, size_t len, bool head,
                        const void *state, size_t size)
{
    struct err e = ERR_INIT;
    const struct state_part part = {.data = state, .size = size};
    if (prefixdir_write(d, ids, len, head, &part, &e) < 0) {
        fail_msg("%s", e.msg);
    }
}

/* Tokens of what is found, its bytes compared; 0: nothing. */
static size_t found(struct prefixdir *d, const int32_t *ids, size_t n, size_t least,
                    const void *want, size_t size)
{
    struct state_file *f = prefixdir_find(d, ids, n, least);
    if (!f) {
        return 0;
    }
    struct err e = ERR_INIT;
    char got[8192];
    const size_t len = state_meta(f)->n_ids;
    assert_memory_equal(state_meta(f)->ids, ids, len * sizeof *ids);
    if (state_read(f, PREFIXDIR_TAG, got, size, &e) < 0) {
        prefixdir_damaged(d, f, &e);
        state_close(f);
        return 0;
    }
    assert_memory_equal(got, want, size);
    state_close(f);
    return len;
}

static size_t files(void)
{
    size_t n = 0;
    DIR *d = opendir(root);
    struct dirent *f = NULL;
    while (d && (f = readdir(d))) {
        n += strstr(f->d_name, ".prefix") != NULL;
    }
    if (d) {
        closedir(d);
    }
    return n;
}

/* The one file's path. */
static void only_file(char *out, size_t size)
{
    DIR *d = opendir(root);
    struct dirent *f = NULL;
    while ((f = readdir(d))) {
        if (strstr(f->d_name, ".prefix")) {
            snprintf(out, size, "%s/%s", root, f->d_name);
        }
    }
    closedir(d);
}

static void longest_of_the_same(void **state)
{
    (void)state;
    static int32_t a[9000], b[9000];
    struct prefixdir *d = open_dir(engine), *same = open_dir(engine), *alien = open_dir(other);
    tokens(a, 9000, 9000, 0);
    tokens(b, 9000, 5000, 1);
    assert_int_equal(found(d, a, 9000, 0, "", 0), 0);
    assert_false(prefixdir_has(d, a, 64));
    write_state(d, a, 64, true, "head", 4);
    write_state(d, a, 4160, false, "long", 4);
    write_state(d, a, 8960, false, "last", 4);
    assert_true(prefixdir_has(d, a, 4160));
    assert_false(prefixdir_has(d, b, 8960));
    assert_int_equal(found(d, a, 9000, 0, "last", 4), 8960);
    assert_int_equal(found(d, a, 8961, 0, "last", 4), 8960);
    assert_int_equal(found(d, a, 8960, 0, "long", 4), 4160); /* one token stays to compute */
    assert_int_equal(found(d, b, 9000, 0, "long", 4), 4160);
    assert_int_equal(found(d, b, 9000, 4160, "", 0), 0);
    assert_int_equal(found(d, a, 4000, 0, "head", 4), 64);
    /* another process with the same engine, and one with another */
    assert_int_equal(found(same, a, 9000, 0, "last", 4), 8960);
    assert_int_equal(found(alien, a, 9000, 0, "", 0), 0);
    /* what it writes is seen too */
    write_state(same, b, 8960, false, "b...", 4);
    assert_int_equal(found(d, b, 9000, 0, "b...", 4), 8960);
    struct stat st;
    char path[1024];
    only_file(path, sizeof path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    prefixdir_free(d);
    prefixdir_free(same);
    prefixdir_free(alien);
    assert_int_equal(notices, 0);
}

/* A file under the name of other tokens, or of another engine. */
static void names_that_lie(void **state)
{
    (void)state;
    static int32_t a[300], b[300];
    char from[1024], to[1024];
    struct prefixdir *d = open_dir(engine), *alien = open_dir(other);
    tokens(a, 300, 300, 0);
    tokens(b, 300, 10, 1);
    write_state(d, a, 256, false, "aaaa", 4);
    only_file(from, sizeof from);
    write_state(d, b, 256, false, "bbbb", 4);
    DIR *dir = opendir(root);
    struct dirent *f = NULL;
    while ((f = readdir(dir))) {
        snprintf(to, sizeof to, "%s/%.200s", root, f->d_name);
        if (strstr(f->d_name, ".prefix") && strcmp(to, from) != 0) {
            break;
        }
    }
    closedir(dir);
    assert_int_equal(rename(from, to), 0); /* a's state where b's is looked for */
    assert_int_equal(found(d, b, 300, 0, "bbbb", 4), 0);
    assert_int_equal(found(d, a, 300, 0, "aaaa", 4), 0);
    empty(root);
    write_state(d, a, 256, false, "aaaa", 4);
    only_file(from, sizeof from);
    /* the engine's part of a name is the first eight of its bytes, and not trusted */
    memcpy(to, from, sizeof to);
    char *name = strrchr(to, '/') + 1;
    assert_memory_equal(name, "0000000000030201", 16);
    name[11] = '4';
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(found(alien, a, 300, 0, "aaaa", 4), 0);
    prefixdir_free(d);
    prefixdir_free(alien);
}

/* Every byte flipped, every length cut: nothing is found, or what was written. */
static void damage(void **state)
{
    (void)state;
    static int32_t a[100];
    static char data[700];
    struct buf whole = BUF_INIT;
    char path[1024];
    struct err e = ERR_INIT;
    tokens(a, 100, 100, 0);
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (char)(i * 7);
    }
    struct prefixdir *d = open_dir(engine);
    write_state(d, a, 64, false, data, sizeof data);
    only_file(path, sizeof path);
    assert_int_equal(io_read_file(path, 1 << 20, &whole, &e), 0);
    const size_t n = whole.len;
    size_t lost = 0;
    for (size_t i = 0; i < 2 * n; i++) {
        FILE *f = fopen(path, "wb");
        char *p = whole.data;
        if (i < n) {
            p[i] ^= (char)(1 << i % 8);
        }
        assert_int_equal(fwrite(p, 1, i < n ? n : i - n, f), i < n ? n : i - n);
        fclose(f);
        if (i < n) {
            p[i] ^= (char)(1 << i % 8);
        }
        lost += found(d, a, 100, 0, data, sizeof data) == 0;
    }
    assert_true(lost > 2 * n - 40); /* only what nobody reads may differ: the time, a label */
    assert_int_equal(notices, 1);   /* said once */
    /* what is damaged went; what is written again is found */
    empty(root);
    write_state(d, a, 64, false, data, sizeof data);
    assert_int_equal(found(d, a, 100, 0, data, sizeof data), 64);
    buf_free(&whole);
    prefixdir_free(d);
}

/* A file that nobody can use is not in the way of the same state, and goes first when
 * there is too much, or when the folder is swept. */
static void damaged_ones_go(void **state)
{
    (void)state;
    static int32_t a[100], b[100], c[100];
    static char data[700];
    char path[1024];
    tokens(a, 100, 0, 1);
    tokens(b, 100, 0, 2);
    tokens(c, 100, 0, 3);
    struct prefixdir *d = open_dir(engine);
    write_state(d, a, 64, false, data, sizeof data);
    only_file(path, sizeof path);
    static const long places[] = {0, 20, 60, 200, 250, 300, -10, -36};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        FILE *f = fopen(path, "r+b");
        assert_int_equal(fseek(f, places[i], places[i] < 0 ? SEEK_END : SEEK_SET), 0);
        const int was = fgetc(f);
        assert_int_equal(fseek(f, -1, SEEK_CUR), 0);
        fputc(was ^ 1, f);
        fclose(f);
        write_state(d, a, 64, false, data, sizeof data);
        assert_int_equal(found(d, a, 100, 0, data, sizeof data), 64);
    }
    assert_int_equal(truncate(path, 100), 0);
    write_state(d, a, 64, false, data, sizeof data);
    assert_int_equal(found(d, a, 100, 0, data, sizeof data), 64);
    /* too much: the damaged one goes, though it was used last */
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    struct prefixdir *small = prefixdir_create(root, 2 * (uint64_t)st.st_size, engine, "an engine");
    write_state(small, b, 64, false, data, sizeof data);
    FILE *f = fopen(path, "r+b");
    fputc('x', f);
    fclose(f);
    write_state(small, c, 64, false, data, sizeof data);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(found(small, b, 100, 0, data, sizeof data), 64);
    assert_int_equal(found(small, c, 100, 0, data, sizeof data), 64);
    /* swept: to the last byte, and only what is damaged */
    int gone = -1;
    uint64_t bytes = 0;
    assert_int_equal(prefixdir_sweep(root, &gone, &bytes, NULL), 0);
    assert_int_equal(gone, 0);
    only_file(path, sizeof path);
    f = fopen(path, "r+b");
    assert_int_equal(fseek(f, 256 + 16 + 4 * 64 + 300, SEEK_SET), 0);
    fputc('x', f);
    fclose(f);
    assert_int_equal(prefixdir_sweep(root, &gone, &bytes, NULL), 0);
    assert_int_equal(gone, 1);
    assert_int_equal(bytes, st.st_size);
    assert_int_equal(files(), 1);
    prefixdir_free(small);
    prefixdir_free(d);
}

static bool always(void *ctx)
{
    (void)ctx;
    return true;
}

/* A pipe under the name of a state is passed over: nobody waits for its other end. */
static void pipes_are_not_waited_for(void **state)
{
    (void)state;
    static int32_t a[100];
    char path[1024];
    tokens(a, 100, 100, 0);
    struct prefixdir *d = open_dir(engine);
    write_state(d, a, 64, false, "aaaa", 4);
    only_file(path, sizeof path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    prefixdir_warm(d, 1 << 20, always, NULL);
    assert_int_equal(found(d, a, 100, 0, "aaaa", 4), 0);
    alarm(0);
    prefixdir_free(d);
}

static void the_limit_holds(void **state)
{
    (void)state;
    static int32_t a[2048];
    static char data[100000];
    struct prefixdir *d = prefixdir_create(root, 450000, engine, "an engine");
    size_t n = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < 12; i++) {
        tokens(a, 2048, 0, i);
        write_state(d, a, 1984, i == 0, data, sizeof data);
        usleep(20000); /* the file system's clock */
        tokens(a, 2048, 0, 0);
        struct state_file *f = prefixdir_find(d, a, 2048, 0);
        assert_non_null(f); /* used every time */
        state_close(f);
        prefixdir_size(d, &n, &bytes);
        assert_true(bytes <= 450000);
    }
    assert_int_equal(n, 4);
    tokens(a, 2048, 0, 11);
    assert_true(prefixdir_has(d, a, 1984));
    tokens(a, 2048, 0, 5);
    assert_false(prefixdir_has(d, a, 1984));
    prefixdir_free(d);
}

/* A conversation's earlier states close before the last one go, the head stays. */
static void needless_ones_go(void **state)
{
    (void)state;
    static int32_t a[20000];
    struct prefixdir *d = open_dir(engine);
    tokens(a, 20000, 20000, 0);
    write_state(d, a, 640, true, "h", 1);
    for (size_t len = 1024; len <= 12800; len += 512) {
        write_state(d, a, len, false, "t", 1);
    }
    assert_int_equal(files(), 1 + 4); /* 3584, 7680, 11776, 12800 */
    assert_true(prefixdir_has(d, a, 640));
    assert_true(prefixdir_has(d, a, 3584));
    assert_true(prefixdir_has(d, a, 12800));
    assert_false(prefixdir_has(d, a, 12288));
    prefixdir_free(d);
}

static void disks_that_do_not_write(void **state)
{
    (void)state;
    static int32_t a[200];
    const struct state_part more = {.data = "more", .size = 4};
    struct err e = ERR_INIT;
    struct prefixdir *d = open_dir(engine);
    tokens(a, 200, 200, 0);
    write_state(d, a, 64, false, "kept", 4);
    /* every call on the way fails once, as on a full disk */
    unsigned failed = 0;
    size_t whole = 0;
    for (unsigned i = 1; i < 40; i++) {
        a[100] = (int32_t)i;
        io_fault_set(i, ENOSPC);
        const int rc = prefixdir_write(d, a, 128, false, &more, &e);
        io_fault_set(0, 0);
        if (rc == 0) {
            break;
        }
        failed++;
        assert_int_equal(rc, QE_IO);
        /* whole, where only the last sync of the folder failed, or not at all */
        const size_t got = found(d, a, 200, 64, "more", 4);
        assert_true(got == 0 || got == 128);
        whole += got == 128;
        assert_int_equal(files(), 1 + whole);
    }
    assert_true(failed >= 3 && whole <= 1);
    assert_int_equal(found(d, a, 200, 0, "more", 4), 128);
    prefixdir_free(d);
    char nowhere[300];
    snprintf(nowhere, sizeof nowhere, "%s/lock/below", root); /* lock is a file */
    d = prefixdir_create(nowhere, 1 << 20, engine, "an engine");
    assert_int_equal(prefixdir_write(d, a, 128, false, &more, &e), QE_IO);
    assert_int_equal(found(d, a, 200, 0, "", 0), 0);
    prefixdir_free(d);
}

/* Several processes write, read and trim at once; nobody fails or reads anything else. */
static void processes(void **state)
{
    (void)state;
    enum { WHO = 4, ROUNDS = 60 };
    static char data[20000];
    pid_t child[WHO];
    for (int who = 0; who < WHO; who++) {
        child[who] = fork();
        if (child[who] != 0) {
            continue;
        }
        static int32_t a[300];
        static char got[sizeof data];
        const struct state_part part = {.data = data, .size = sizeof data};
        struct prefixdir *d = prefixdir_create(root, 200000, engine, "an engine");
        struct err e = ERR_INIT;
        for (int i = 0; i < ROUNDS; i++) {
            const int salt = (i * 7 + who * 3) % 20;
            tokens(a, 300, 0, salt);
            memset(data, salt, sizeof data);
            if (prefixdir_write(d, a, 256, i % 2, &part, &e) < 0) {
                _exit(1);
            }
            tokens(a, 300, 0, (i * 5 + who) % 20);
            memset(data, (i * 5 + who) % 20, sizeof data);
            struct state_file *f = prefixdir_find(d, a, 300, 0);
            if (f && (state_read(f, PREFIXDIR_TAG, got, sizeof got, &e) < 0 ||
                      memcmp(got, data, sizeof got) != 0)) {
                _exit(2);
            }
            state_close(f);
        }
        prefixdir_free(d);
        _exit(0);
    }
    for (int who = 0; who < WHO; who++) {
        int status = 0;
        assert_int_equal(waitpid(child[who], &status, 0), child[who]);
        assert_int_equal(status, 0);
    }
    assert_true(files() > 0 && files() <= 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(longest_of_the_same, fresh, clear),
        cmocka_unit_test_setup_teardown(names_that_lie, fresh, clear),
        cmocka_unit_test_setup_teardown(damage, fresh, clear),
        cmocka_unit_test_setup_teardown(damaged_ones_go, fresh, clear),
        cmocka_unit_test_setup_teardown(pipes_are_not_waited_for, fresh, clear),
        cmocka_unit_test_setup_teardown(the_limit_holds, fresh, clear),
        cmocka_unit_test_setup_teardown(needless_ones_go, fresh, clear),
        cmocka_unit_test_setup_teardown(disks_that_do_not_write, fresh, clear),
        cmocka_unit_test_setup_teardown(processes, fresh, clear),
    };
    return cmocka_run_group_tests_name("folder of prompts", tests, NULL, NULL);
}
