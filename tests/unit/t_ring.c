/* src/base/ring, src/view/snap: order, limits, and both under two threads. */
#include "config.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/ring.h"
#include "view/snap.h"

static void fills_and_empties(void **state)
{
    (void)state;
    struct ring *r = ring_create(5, sizeof(int));
    assert_int_equal(ring_cap(r), 8);
    int v = 0;
    assert_false(ring_pop(r, &v));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 8; i++) {
            v = round * 8 + i;
            assert_true(ring_push(r, &v));
            assert_int_equal(ring_len(r), i + 1);
        }
        v = -1;
        assert_false(ring_push(r, &v));
        for (int i = 0; i < 8; i++) {
            assert_true(ring_pop(r, &v));
            assert_int_equal(v, round * 8 + i);
        }
        assert_false(ring_pop(r, &v));
    }
    ring_free(r);
    ring_free(NULL);
}

struct wide {
    uint64_t n, twice, thrice;
};

#define MANY 50000

static void *produce(void *arg)
{
    struct ring *r = arg;
    for (uint64_t i = 0; i < MANY;) {
        struct wide w = {i, 2 * i, 3 * i};
        if (ring_push(r, &w)) {
            i++;
        } else {
            sched_yield();
        }
    }
    return NULL;
}

static void two_threads_lose_nothing(void **state)
{
    (void)state;
    struct ring *r = ring_create(16, sizeof(struct wide));
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, produce, r), 0);
    for (uint64_t i = 0; i < MANY;) {
        struct wide w = {0};
        if (ring_pop(r, &w)) {
            assert_true(w.n == i && w.twice == 2 * i && w.thrice == 3 * i);
            i++;
        } else {
            sched_yield();
        }
        assert_true(ring_len(r) <= 16);
    }
    assert_int_equal(ring_len(r), 0);
    pthread_join(t, NULL);
    ring_free(r);
}

static void *publish(void *arg)
{
    struct snap *s = arg;
    for (uint64_t i = 1; i <= MANY; i++) {
        struct wide w = {i, 2 * i, 3 * i};
        snap_put(s, &w, sizeof w);
    }
    return NULL;
}

static void snapshots_are_whole(void **state)
{
    (void)state;
    static struct snap s;
    struct wide w = {1, 1, 1};
    snap_get(&s, &w, sizeof w);
    assert_true(w.n == 0 && w.thrice == 0);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, publish, &s), 0);
    uint64_t last = 0;
    while (last < MANY) {
        snap_get(&s, &w, sizeof w);
        assert_true(w.twice == 2 * w.n && w.thrice == 3 * w.n && w.n >= last);
        last = w.n;
    }
    pthread_join(t, NULL);
    /* A size that is no multiple of the word. */
    char odd[13] = "twelve bytes";
    char back[13] = {0};
    snap_put(&s, odd, sizeof odd);
    snap_get(&s, back, sizeof back);
    assert_string_equal(back, odd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fills_and_empties),
        cmocka_unit_test(two_threads_lose_nothing),
        cmocka_unit_test(snapshots_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
