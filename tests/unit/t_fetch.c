/* src/base/fetch, base/phases: every range arrives once and whole, whatever the ring; a
 * file that ends early is noticed; leaving early is possible. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fetch.h"
#include "base/mem.h"
#include "base/phases.h"

enum { SIZE = 3 << 20, JOBS = 97, SLOT = 70000 };

static char path[64];
static struct io_map map;
static uint8_t *text, other[5000];

static int open_file(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    snprintf(path, sizeof path, "/tmp/t_fetch-XXXXXX");
    const int fd = mkstemp(path);
    text = mem_alloc(SIZE);
    srand(7);
    for (int i = 0; i < SIZE; i++) {
        text[i] = (uint8_t)(rand() >> 7);
    }
    for (size_t i = 0; i < sizeof other; i++) {
        other[i] = (uint8_t)(rand() >> 7);
    }
    assert_int_equal(io_write_all(fd, text, SIZE, path, &e), 0);
    close(fd);
    return io_map_open(&map, path, &e);
}

static int close_file(void **state)
{
    (void)state;
    io_map_close(&map);
    unlink(path);
    free(text);
    return 0;
}

/* Two or three ranges each, one of them of memory that is not the file's. */
static void make_jobs(struct fetch_job *jobs)
{
    memset(jobs, 0, JOBS * sizeof *jobs);
    for (int i = 0; i < JOBS; i++) {
        const size_t n = 1 + (size_t)rand() % 30000, m = (size_t)rand() % 20000;
        const size_t from = (size_t)rand() % (SIZE - 30000);
        jobs[i].part[0].from = map.data + from;
        jobs[i].part[0].n = n;
        jobs[i].part[0].at = 0;
        jobs[i].part[1].from = map.data + SIZE - m;
        jobs[i].part[1].n = m;
        jobs[i].part[1].at = n + 3;
        jobs[i].parts = 2;
        if (i % 3 == 0) {
            jobs[i].part[2].from = other + i;
            jobs[i].part[2].n = 4000;
            jobs[i].part[2].at = n + 3 + m;
            jobs[i].parts = 3;
        }
    }
}

static void fresh(void *ctx, int buffer, void *p, size_t n)
{
    int *seen = ctx;
    assert_true(p != NULL && n >= SLOT);
    __atomic_add_fetch(&seen[buffer], 1, __ATOMIC_RELAXED);
}

static void check(const struct fetch_job *j, const uint8_t *got)
{
    for (int i = 0; i < j->parts; i++) {
        const uint8_t *from = j->part[i].from;
        const uint8_t *want =
            from >= other && from < other + sizeof other ? from : text + (from - map.data);
        assert_memory_equal(got + j->part[i].at, want, j->part[i].n);
    }
}

static void all_arrive(void **state)
{
    (void)state;
    static const struct {
        int buffers, threads, held;
    } t[] = {{1, 1, 0}, {1, 3, 0}, {3, 1, 1}, {5, 4, 3}, {120, 4, 40}};
    struct fetch_job jobs[JOBS];
    for (size_t k = 0; k < sizeof t / sizeof *t; k++) {
        struct err e = ERR_INIT;
        struct fetch *f = NULL;
        int seen[JOBS] = {0}, first[128] = {0}, held[64], n_held = 0, n = 0, rc = 0, buffer = 0;
        size_t job = 0;
        make_jobs(jobs);
        const struct fetch_plan p = {.file = &map,
                                     .jobs = jobs,
                                     .n = JOBS,
                                     .size = SLOT,
                                     .buffers = t[k].buffers,
                                     .threads = t[k].threads,
                                     .fresh = fresh,
                                     .ctx = first};
        assert_int_equal(fetch_start(&p, &f, &e), 0);
        while ((rc = fetch_take(f, n_held < t[k].held || n % 2 == 0, &job, &buffer)) >= 0) {
            if (rc == 0) {
                continue;
            }
            check(&jobs[job], fetch_buffer(f, buffer));
            seen[job]++;
            n++;
            held[n_held++] = buffer;
            if (n_held > t[k].held) { /* the one taken first goes back */
                fetch_give(f, held[0]);
                memmove(held, held + 1, (size_t)--n_held * sizeof *held);
            }
        }
        assert_int_equal(n, JOBS);
        assert_false(fetch_failed(f));
        fetch_stop(f);
        assert_true(fetch_idle(f) >= 0);
        for (int i = 0; i < JOBS; i++) {
            assert_int_equal(seen[i], 1);
        }
        for (int i = 0; i < 128; i++) {
            assert_true(first[i] <= (i < t[k].buffers));
        }
        fetch_free(f);
    }
}

static void leaving_early(void **state)
{
    (void)state;
    struct fetch_job jobs[JOBS];
    make_jobs(jobs);
    for (int taken = 0; taken < 5; taken++) {
        struct err e = ERR_INIT;
        struct fetch *f = NULL;
        size_t job = 0;
        int buffer = 0;
        const struct fetch_plan p = {
            .file = &map, .jobs = jobs, .n = JOBS, .size = SLOT, .buffers = 4, .threads = 3};
        assert_int_equal(fetch_start(&p, &f, &e), 0);
        for (int i = 0; i < taken && i < 4; i++) {
            assert_int_equal(fetch_take(f, true, &job, &buffer), 1);
        }
        fetch_stop(f);
        fetch_free(f);
    }
    fetch_free(NULL);
}

static void a_file_that_ends(void **state)
{
    (void)state;
    struct fetch_job jobs[JOBS];
    struct err e = ERR_INIT;
    struct fetch *f = NULL;
    size_t job = 0;
    int buffer = 0, n = 0;
    make_jobs(jobs);
    assert_int_equal(truncate(path, SIZE / 2), 0);
    const struct fetch_plan p = {
        .file = &map, .jobs = jobs, .n = JOBS, .size = SLOT, .buffers = 4, .threads = 3};
    assert_int_equal(fetch_start(&p, &f, &e), 0);
    while (fetch_take(f, true, &job, &buffer) > 0) {
        fetch_give(f, buffer);
        n++;
    }
    assert_true(n < JOBS);
    assert_true(fetch_failed(f));
    fetch_free(f);
}

static void phases_are_kept_in_order(void **state)
{
    (void)state;
    struct phases a = {.n = 0}, b = {.n = 0};
    phases_add(&a, "one", 1, false);
    phases_add(&b, "two", 2, true);
    phases_lap(&b, "three", 0);
    phases_append(&a, &b);
    assert_int_equal(a.n, 3);
    assert_string_equal(a.v[1].name, "two");
    assert_true(a.v[1].beside && !a.v[2].beside && a.v[2].seconds > 0);
    for (int i = 0; i < 2 * PHASES_MOST; i++) {
        phases_add(&a, "more", 0, false);
    }
    assert_int_equal(a.n, PHASES_MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_arrive), cmocka_unit_test(leaving_early),
        cmocka_unit_test(phases_are_kept_in_order),
        cmocka_unit_test(a_file_that_ends), /* the last: the file is shorter afterwards */
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
