/* The table of requests: order, bounds, news, two threads. */
#include "config.h"
#include "view/requests.h"

#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct requests_control nobody;

static bool readable(const struct requests *r)
{
    struct pollfd p = {requests_fd(r), POLLIN, 0};
    return poll(&p, 1, 0) == 1;
}

static uint64_t begin(struct requests *r, const char *client, int64_t now)
{
    struct view_request q = view_request_unknown();
    snprintf(q.client, sizeof q.client, "%s", client);
    q.state = RQ_QUEUED;
    return requests_begin(r, &q, now);
}

static void end(struct requests *r, uint64_t id, const char *why, int64_t now)
{
    struct view_request q;
    assert_true(requests_get(r, id, &q));
    q.state = RQ_DONE;
    snprintf(q.result, sizeof q.result, "%s", why);
    requests_update(r, &q, now);
}

static void test_order(void **state)
{
    (void)state;
    struct requests *r = requests_create(&nobody);
    struct view_request list[8];
    struct view_listener l;
    const uint64_t a = begin(r, "a", 10);
    const uint64_t b = begin(r, "b", 20);
    const uint64_t c = begin(r, "c", 30);
    assert_int_equal(a, 1);
    struct view_request q;
    assert_true(requests_get(r, b, &q));
    q.state = RQ_DECODE;
    q.begun = 999; /* is the table's */
    requests_update(r, &q, 40);
    end(r, a, "stop", 50);
    end(r, c, "length", 60);
    assert_int_equal(requests_list(r, list, 8), 3);
    assert_int_equal(list[0].id, b);
    assert_int_equal(list[0].begun, 20);
    assert_int_equal(list[0].ended, 0);
    assert_int_equal(list[1].id, c); /* the latest */
    assert_int_equal(list[1].ended, 60);
    assert_string_equal(list[2].result, "stop");
    assert_int_equal(requests_list(r, list, 2), 2);
    requests_listener(r, &l);
    assert_int_equal(l.live, 1);
    assert_int_equal(l.queued, 0);
    begin(r, "d", 70);
    requests_listener(r, &l);
    assert_int_equal(l.live, 1);
    assert_int_equal(l.queued, 1);
    /* one that ended does not come back */
    q.id = a;
    q.state = RQ_DECODE;
    requests_update(r, &q, 80);
    assert_true(requests_get(r, a, &q));
    assert_int_equal(q.state, RQ_DONE);
    assert_false(requests_get(r, 99, &q));
    requests_free(r);
}

static void test_bounds(void **state)
{
    (void)state;
    struct requests *r = requests_create(&nobody);
    static struct view_request list[REQUESTS_LIVE + REQUESTS_ENDED + 5];
    uint64_t id[REQUESTS_LIVE];
    for (int lap = 0; lap < 5; lap++) {
        for (int i = 0; i < REQUESTS_LIVE; i++) {
            id[i] = begin(r, "x", lap);
            assert_true(id[i] > 0);
        }
        assert_int_equal(begin(r, "y", lap), 0);
        for (int i = 0; i < REQUESTS_LIVE && lap < 4; i++) {
            end(r, id[(i * 7) % REQUESTS_LIVE], "stop", lap);
        }
    }
    assert_int_equal(requests_list(r, list, sizeof list / sizeof *list),
                     REQUESTS_LIVE + REQUESTS_ENDED);
    struct view_request wild = view_request_unknown();
    memset(wild.client, 'x', sizeof wild.client); /* no end of its own */
    wild.id = id[0];
    wild.state = RQ_TOOL;
    requests_update(r, &wild, 9);
    assert_true(requests_get(r, id[0], &wild));
    assert_int_equal(strlen(wild.client), sizeof wild.client - 1);
    requests_free(r);
}

static void test_news(void **state)
{
    (void)state;
    struct requests *r = requests_create(&nobody);
    assert_false(readable(r));
    const uint64_t id = begin(r, "a", 1);
    assert_true(readable(r));
    requests_look(r);
    assert_false(readable(r));
    struct view_request q;
    requests_get(r, id, &q);
    q.output = 5; /* a figure is no news */
    requests_update(r, &q, 2);
    assert_false(readable(r));
    q.state = RQ_PREFILL;
    requests_update(r, &q, 3);
    end(r, id, "stop", 4);
    assert_true(readable(r));
    requests_look(r);
    requests_set_listener(r, &(struct view_listener){.on = true, .address = "127.0.0.1:8080"});
    assert_true(readable(r));
    requests_free(r);
}

struct calls {
    uint64_t cancelled;
    bool paused;
};

static void on_cancel(void *ctx, uint64_t id)
{
    ((struct calls *)ctx)->cancelled = id;
}

static void on_pause(void *ctx, bool on)
{
    ((struct calls *)ctx)->paused = on;
}

static bool on_body(void *ctx, uint64_t id, struct buf *out)
{
    (void)ctx;
    buf_adds(out, "body");
    return id == 1;
}

static void test_control(void **state)
{
    (void)state;
    struct calls calls = {0};
    struct buf b = BUF_INIT;
    const struct requests_control control = {&calls, on_cancel, on_pause, on_body};
    struct requests *r = requests_create(&control);
    requests_cancel(r, 7);
    requests_pause(r, true);
    assert_int_equal(calls.cancelled, 7);
    assert_true(calls.paused);
    assert_true(requests_body(r, 1, &b));
    assert_string_equal(b.data, "body");
    assert_false(requests_body(r, 2, &b));
    requests_free(r);
    r = requests_create(&nobody);
    requests_cancel(r, 7);
    requests_pause(r, true);
    assert_false(requests_body(r, 1, &b));
    requests_free(r);
    buf_free(&b);
}

static void *serve(void *arg)
{
    struct requests *r = arg;
    for (int i = 0; i < 3000; i++) {
        const uint64_t id = begin(r, "thread", i);
        if (id) {
            end(r, id, "stop", i);
        }
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct requests *r = requests_create(&nobody);
    static struct view_request list[REQUESTS_LIVE + REQUESTS_ENDED];
    pthread_t t[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&t[i], NULL, serve, r), 0);
    }
    for (int k = 0; k < 500; k++) {
        const size_t n = requests_list(r, list, sizeof list / sizeof *list);
        for (size_t i = 0; i < n; i++) {
            assert_string_equal(list[i].client, "thread");
        }
        requests_look(r);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], NULL);
    }
    assert_int_equal(requests_list(r, list, sizeof list / sizeof *list), REQUESTS_ENDED);
    requests_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),   cmocka_unit_test(test_bounds),  cmocka_unit_test(test_news),
        cmocka_unit_test(test_control), cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
