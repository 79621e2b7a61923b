/* The demo model, damaged in every way: always one line that names the file,
 * never a crash. In memory, so that thousands of cases are quick. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/mem.h"
#include "format/container.h"

static struct buf demo;

static int setup(void **state)
{
    (void)state;
    const char *src = getenv("QUASAR_SRCDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/models/demo.qsr", src ? src : ".");
    return io_read_file(path, 40000000, &demo, NULL); /* it is to stay below 40 MB */
}

static int teardown(void **state)
{
    (void)state;
    buf_free(&demo);
    return 0;
}

static size_t cases(size_t few, size_t many)
{
    return getenv("QUASAR_LONG") ? many : few;
}

static uint64_t rng = 0x243F6A8885A308D3ULL;

static uint64_t any(uint64_t below)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return rng % below;
}

static void refuse(const void *p, size_t n, const char *what, size_t at)
{
    struct container *c = NULL;
    struct err e = ERR_INIT;
    if (container_open_mem(p, n, "demo.qsr", false, &c, &e) >= 0) {
        fail_msg("%s at %zu went unseen", what, at);
    }
    assert_null(c);
    assert_non_null(strstr(e.msg, "demo.qsr"));
    assert_null(strchr(e.msg, '\n'));
}

static void whole(void **state)
{
    (void)state;
    struct container *c = NULL;
    struct err e = ERR_INIT;
    if (container_open_mem(demo.data, demo.len, "demo.qsr", true, &c, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(container_count(c), 125);
    container_close(c);
}

static void flipped_bits(void **state)
{
    (void)state;
    size_t runs = cases(150, 1500);
    for (size_t i = 0; i < runs; i++) {
        size_t at = any(i % 3 == 0 ? 65536 : demo.len);
        char bit = (char)(1 << any(8));
        demo.data[at] ^= bit;
        refuse(demo.data, demo.len, "a flipped bit", at);
        demo.data[at] ^= bit;
    }
}

static void cut_off(void **state)
{
    (void)state;
    size_t runs = cases(100, 600);
    for (size_t i = 0; i < runs; i++) {
        size_t n = i < 16 ? i : i % 2 ? any(65536) : any(demo.len);
        /* an exact copy, so that a read past the end is seen */
        char *p = mem_alloc(n + 1);
        memcpy(p, demo.data, n);
        refuse(p, n, "a cut", n);
        free(p);
    }
    refuse(demo.data, demo.len - 1, "a cut", demo.len - 1);
}

static void bytes_added_or_swapped(void **state)
{
    (void)state;
    char *p = mem_alloc(demo.len + 4096);
    memcpy(p, demo.data, demo.len);
    memset(p + demo.len, 0, 4096);
    refuse(p, demo.len + 1, "a byte more", demo.len);
    refuse(p, demo.len + 4096, "bytes more", demo.len);
    size_t runs = cases(50, 400);
    for (size_t i = 0; i < runs; i++) {
        size_t at = any(demo.len - 64);
        size_t from = any(demo.len - 64);
        memcpy(p + at, demo.data + from, 64);
        if (memcmp(p + at, demo.data + at, 64) != 0) {
            refuse(p, demo.len, "a strange piece", at);
        }
        memcpy(p + at, demo.data + at, 64);
    }
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole),
        cmocka_unit_test(flipped_bits),
        cmocka_unit_test(cut_off),
        cmocka_unit_test(bytes_added_or_swapped),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
