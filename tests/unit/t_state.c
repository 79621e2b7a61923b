/* sessions/state: what was written comes back or is refused; no damage, no full
 * disk and no kill leaves anything between the two. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
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

#include "base/hash.h"
#include "base/io.h"
#include "base/mem.h"
#include "sessions/state.h"

static char dir[] = "/tmp/quasar-state-XXXXXX";
static char path[256];

#define BIG (2 * STATE_CHUNK + 12345)

static int32_t ids[] = {0, 1, 248319, 7, INT32_MAX};
static uint8_t small[700];
static uint8_t *big;

static struct state_meta meta_of(enum state_kind kind)
{
    struct state_meta m = {.kind = kind, .label = "demo q8 on cpu", .ids = ids, .n_ids = 5};
    for (int i = 0; i < STATE_COMPAT; i++) {
        m.compat[i] = (uint8_t)(3 * i);
    }
    return m;
}

static int give_big(void *ctx, void *dst, size_t n, struct err *e)
{
    size_t *at = ctx;
    (void)e;
    memcpy(dst, big + *at, n);
    *at += n;
    return 0;
}

static int write_one(bool with_big, struct err *e)
{
    const struct state_meta m = meta_of(STATE_PREFIX);
    size_t at = 0;
    const struct state_part parts[] = {
        {.tag = 1, .size = sizeof small, .data = small},
        {.tag = 2, .size = 0, .data = small},
        {.tag = 77, .size = with_big ? BIG : 3, .give = give_big, .ctx = &at},
    };
    return state_write(path, &m, parts, 3, e);
}

/* Opens and reads everything; 0 only when all of it is what was written. */
static int read_all(bool with_big, struct err *e)
{
    struct state_file *f = NULL;
    int rc = state_open(path, &f, e);
    if (rc < 0) {
        return rc;
    }
    const struct state_meta want = meta_of(STATE_PREFIX);
    uint8_t *got = mem_alloc(BIG);
    rc = state_check(f, want.compat, "this", e);
    rc = rc < 0 ? rc : state_read(f, 1, got, sizeof small, e);
    if (rc == 0) {
        assert_memory_equal(got, small, sizeof small);
        rc = state_read(f, 77, got, with_big ? BIG : 3, e);
    }
    if (rc == 0) {
        assert_memory_equal(got, big, with_big ? BIG : 3);
        const struct state_meta *m = state_meta(f);
        assert_int_equal(m->kind, STATE_PREFIX);
        assert_int_equal(m->n_ids, 5);
        assert_memory_equal(m->ids, ids, sizeof ids);
        assert_string_equal(m->label, "demo q8 on cpu");
        assert_true(m->created > 1000000000);
    }
    free(got);
    state_close(f);
    return rc;
}

static void must(int rc, const struct err *e)
{
    if (rc != 0) {
        fail_msg("%s", e->msg);
    }
}

struct pieces {
    size_t n, calls;
};

static int take_piece(void *ctx, const void *p, size_t n, struct err *e)
{
    struct pieces *s = ctx;
    assert_memory_equal(p, big + s->n, n);
    s->n += n;
    s->calls++;
    return s->calls == 9 ? err_set(e, QE_CANCELLED, "enough") : 0;
}

static void round_trip(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    umask(0);
    must(write_one(true, &e), &e);
    must(read_all(true, &e), &e);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    struct state_file *f = NULL;
    must(state_open(path, &f, &e), &e);
    assert_int_equal(state_bytes(f), st.st_size);
    uint64_t size = 0;
    assert_true(state_has(f, 77, &size) && size == BIG);
    assert_true(state_has(f, 2, &size) && size == 0);
    assert_true(state_has(f, 2, NULL) && !state_has(f, 3, &size));
    must(state_verify(f, &e), &e);
    struct pieces seen = {0};
    must(state_stream(f, 77, take_piece, &seen, &e), &e);
    assert_true(seen.n == BIG && seen.calls == 3);
    seen = (struct pieces){.calls = 8};
    assert_int_equal(state_stream(f, 77, take_piece, &seen, &e), QE_CANCELLED);
    /* a part that is not there, and one of another size */
    uint8_t buf[8];
    assert_int_equal(state_read(f, 3, buf, 8, &e), QE_FORMAT);
    assert_int_equal(state_read(f, 1, buf, 8, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "700"));
    /* another engine's */
    uint8_t other[STATE_COMPAT] = {0};
    assert_int_equal(state_check(f, other, "demo q8 on cuda", &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "demo q8 on cpu"));
    assert_non_null(strstr(e.msg, "demo q8 on cuda"));
    state_close(f);
    /* what cannot be written is not begun */
    struct state_meta m = meta_of(STATE_LIVE);
    const struct state_part twice[] = {{.tag = 4, .data = buf, .size = 8},
                                       {.tag = 4, .data = buf, .size = 8}};
    assert_int_equal(state_write(path, &m, twice, 2, &e), QE_INTERNAL);
    m.n_ids = STATE_IDS_MAX + 1;
    assert_int_equal(state_write(path, &m, twice, 1, &e), QE_NOMEM);
    must(read_all(true, &e), &e);
    /* nothing at all in it */
    m = (struct state_meta){.kind = STATE_LIVE};
    must(state_write(path, &m, NULL, 0, &e), &e);
    must(state_open(path, &f, &e), &e);
    assert_int_equal(state_meta(f)->n_ids, 0);
    assert_string_equal(state_meta(f)->label, "");
    must(state_verify(f, &e), &e);
    state_close(f);
}

static void put_file(const uint8_t *p, size_t n)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

/* Every byte of a small file: flipped in one bit, then cut off there. All of it is
 * noticed, with a message, before a byte is given out. */
static void every_byte_damaged(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    must(write_one(false, &e), &e);
    struct buf good = BUF_INIT;
    must(io_read_file(path, 1 << 20, &good, &e), &e);
    uint8_t *bad = mem_alloc(good.len + 9);
    for (size_t i = 0; i < good.len; i++) {
        memcpy(bad, good.data, good.len);
        bad[i] = (uint8_t)(bad[i] ^ 1U << i % 8);
        put_file(bad, good.len);
        e.msg[0] = 0;
        const int rc = read_all(false, &e);
        if (rc != QE_FORMAT && rc != QE_UNSUPPORTED) {
            fail_msg("bit %zu of byte %zu flipped: %d %s", i % 8, i, rc, e.msg);
        }
        assert_non_null(strstr(e.msg, path));
        put_file((const uint8_t *)good.data, i);
        if (read_all(false, &e) != QE_FORMAT) {
            fail_msg("cut at %zu: %s", i, e.msg);
        }
    }
    memcpy(bad, good.data, good.len);
    memset(bad + good.len, 0, 9);
    put_file(bad, good.len + 9);
    assert_int_equal(read_all(false, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "too long"));
    free(bad);
    buf_free(&good);
}

/* Many bytes of a large one at random, parts of it swapped or left at zero. */
static void blocks_damaged(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    must(write_one(true, &e), &e);
    struct buf good = BUF_INIT;
    must(io_read_file(path, 1 << 26, &good, &e), &e);
    uint8_t *bad = mem_alloc(good.len);
    unsigned seed = 5;
    const int rounds = getenv("QUASAR_LONG") ? 2000 : 60;
    for (int round = 0; round < rounds; round++) {
        memcpy(bad, good.data, good.len);
        const size_t at = ((size_t)rand_r(&seed) << 8 ^ (size_t)rand_r(&seed)) % good.len;
        const size_t n = round % 3 == 0 ? 4096 : 1 + (size_t)rand_r(&seed) % 8;
        for (size_t i = at; i < at + n && i < good.len; i++) {
            bad[i] = round % 3 == 0 ? 0 : (uint8_t)(bad[i] + 1 + rand_r(&seed) % 255);
        }
        if (memcmp(bad, good.data, good.len) == 0) {
            continue;
        }
        put_file(bad, good.len);
        const int rc = read_all(true, &e);
        assert_true(rc == QE_FORMAT || rc == QE_UNSUPPORTED);
    }
    /* two chunks in each other's place */
    memcpy(bad, good.data, good.len);
    uint8_t *first = bad + good.len - 32 - 8 * 4 - BIG;
    assert_memory_equal(first, big, 100);
    memcpy(first, big + STATE_CHUNK, STATE_CHUNK);
    memcpy(first + STATE_CHUNK, big, STATE_CHUNK);
    put_file(bad, good.len);
    assert_int_equal(read_all(true, &e), QE_FORMAT);
    free(bad);
    buf_free(&good);
}

/* A header that claims something else, with its checksum made right. */
static void versions(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    must(write_one(false, &e), &e);
    struct buf good = BUF_INIT;
    must(io_read_file(path, 1 << 20, &good, &e), &e);
    uint8_t *p = mem_alloc(good.len);
    memcpy(p, good.data, good.len);
    const struct {
        size_t at;
        uint8_t value;
        int rc;
        const char *says;
    } cases[] = {
        {8, STATE_MAJOR + 1, QE_UNSUPPORTED, "newer"},
        {8, 0, QE_UNSUPPORTED, "older"},
        {12, 9, QE_FORMAT, "cannot be"},
        {35, 0xFF, QE_FORMAT, "cannot be"}, /* four thousand million ids */
        {37, 0xFF, QE_FORMAT, "cannot be"}, /* as many parts */
        {22, 0xFF, QE_FORMAT, "cut off"},
        {32, 4, QE_FORMAT, "damaged"}, /* the table then lies elsewhere */
        {48, 99, QE_FORMAT, "damaged"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(p, good.data, good.len);
        p[cases[i].at] = cases[i].value;
        const uint64_t sum = hash64(p, 248, 0);
        for (unsigned b = 0; b < 8; b++) {
            p[248 + b] = (uint8_t)(sum >> (8 * b));
        }
        put_file(p, good.len);
        const int rc = read_all(false, &e);
        if (rc != cases[i].rc || !strstr(e.msg, cases[i].says)) {
            fail_msg("byte %zu: %d, %s", cases[i].at, rc, e.msg);
        }
    }
    free(p);
    buf_free(&good);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(read_all(false, &e), QE_NOTFOUND);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(read_all(false, &e), QE_FORMAT);
    assert_int_equal(write_one(false, &e), QE_IO);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(read_all(false, &e), QE_FORMAT);
    assert_int_equal(unlink(path), 0);
}

/* How many; sweep removes those with a temporary name. */
static int files_in_folder(bool sweep)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *f = readdir(d); f; f = readdir(d)) {
        n += f->d_name[0] != '.';
        if (sweep && strstr(f->d_name, ".tmp-")) {
            assert_int_equal(unlinkat(dirfd(d), f->d_name, 0), 0);
        }
    }
    closedir(d);
    return n;
}

static int give_nothing(void *ctx, void *dst, size_t n, struct err *e)
{
    (void)ctx;
    (void)dst;
    (void)n;
    return err_set(e, QE_DEVICE, "the device is gone");
}

/* Every call that can fail does, once with an error and once with the end of the
 * process: the old file is there, or the new one, and nothing else. */
static void interrupted_writes(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    must(write_one(false, &e), &e);
    int failed = 0, killed = 0;
    for (unsigned n = 1; n < 40; n++) {
        io_fault_set(n, ENOSPC);
        e.msg[0] = 0;
        const int rc = write_one(false, &e);
        io_fault_set(0, 0);
        if (rc < 0) {
            failed++;
            assert_int_equal(rc, QE_IO);
            assert_non_null(strstr(e.msg, "No space left"));
        }
        must(read_all(false, &e), &e);
        assert_int_equal(files_in_folder(false), 1);
        const pid_t pid = fork();
        if (pid == 0) {
            io_fault_set(n, 0);
            (void)write_one(false, NULL);
            _exit(0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        killed += WIFEXITED(status) && WEXITSTATUS(status) == 99;
        must(read_all(false, &e), &e);
        assert_true(files_in_folder(true) <= 2); /* one that was killed just before its rename */
    }
    assert_true(failed >= 6 && killed >= 6);
    const struct state_meta m = meta_of(STATE_LIVE);
    const struct state_part part = {.tag = 1, .size = 10, .give = give_nothing};
    assert_int_equal(state_write(path, &m, &part, 1, &e), QE_DEVICE);
    must(read_all(false, &e), &e);
}

/* A disk that is full and a folder that is not ours, as another user's process. */
static void no_room(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    must(write_one(false, &e), &e);
    const int before = files_in_folder(false);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const struct rlimit lim = {1 << 20, 1 << 20};
        setrlimit(RLIMIT_FSIZE, &lim);
        const int rc = write_one(true, &e);
        _exit(rc == QE_IO && strstr(e.msg, path) ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    must(read_all(false, &e), &e);
    assert_int_equal(files_in_folder(false), before);
    assert_int_equal(chmod(dir, 0555), 0);
    pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && setuid(65534) < 0) {
            _exit(9);
        }
        const int rc = write_one(false, &e);
        _exit(rc == QE_IO && strstr(e.msg, path) ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    assert_int_equal(chmod(dir, 0700), 0);
    assert_int_equal(status, 0);
    must(read_all(false, &e), &e);
}

static int prepare(void **state)
{
    (void)state;
    if (!mkdtemp(dir)) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/one.state", dir);
    big = mem_alloc(BIG);
    uint32_t x = 1;
    for (size_t i = 0; i < BIG; i++) {
        x = x * 1664525U + 1013904223U;
        big[i] = (uint8_t)(x >> 24);
    }
    memcpy(small, big + 1000, sizeof small);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    free(big);
    char cmd[300];
    snprintf(cmd, sizeof cmd, "chmod -R u+w %s; rm -rf %s", dir, dir);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),         cmocka_unit_test(every_byte_damaged),
        cmocka_unit_test(blocks_damaged),     cmocka_unit_test(versions),
        cmocka_unit_test(interrupted_writes), cmocka_unit_test(no_room),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
