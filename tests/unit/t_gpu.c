/* Figures of a GPU through a library made for the test, and what there is without one. */
#include "config.h"
#include "base/gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"

static char path[4096];

static void test_none(void **state)
{
    (void)state;
    struct gpu *g = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(gpu_open("/nowhere/libnvidia-ml.so.1", &g, &e), QE_UNSUPPORTED);
    assert_null(g);
    assert_non_null(strstr(e.msg, "/nowhere/libnvidia-ml.so.1"));
    /* a library that is another one */
    assert_int_equal(gpu_open("libm.so.6", &g, &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "too old"));
    setenv("FAKE_NVML_FAIL", "init", 1);
    assert_int_equal(gpu_open(path, &g, &e), QE_DEVICE);
    assert_non_null(strstr(e.msg, "status 9"));
    unsetenv("FAKE_NVML_FAIL");
    assert_null(g);
    gpu_close(NULL);
}

static void test_read(void **state)
{
    (void)state;
    struct gpu *g = NULL;
    struct gpu_reading r;
    assert_int_equal(gpu_open(path, &g, NULL), 0);
    gpu_read(g, 0, &r);
    assert_true(r.temp_c == 71 && r.power_w == 340.4);
    assert_true(r.used == (double)(30ULL << 30) && r.total == (double)(80ULL << 30));
    gpu_read(g, 2, &r);
    assert_true(r.temp_c == 73);
    gpu_read(g, 3, &r);
    assert_true(isnan(r.temp_c) && isnan(r.power_w) && isnan(r.used) && isnan(r.total));
    gpu_read(g, -1, &r);
    assert_true(isnan(r.temp_c));
    setenv("FAKE_NVML_FAIL", "power", 1);
    gpu_read(g, 0, &r);
    assert_true(r.temp_c == 71 && isnan(r.power_w));
    unsetenv("FAKE_NVML_FAIL");
    gpu_close(g);
}

/* Which of several devices is the one that computes. */
static void test_find(void **state)
{
    (void)state;
    static const char fake[] = "NVIDIA Fake, sm_90, 80 GB";
    static const char other[] = "NVIDIA Other, sm_80";
    struct gpu *g = NULL;
    assert_int_equal(gpu_open(path, &g, NULL), 0);
    assert_int_equal(gpu_find(g, fake, 0, NULL), 0);
    assert_int_equal(gpu_find(g, fake, 2, NULL), 2);
    assert_int_equal(gpu_find(g, other, 1, NULL), 1);
    assert_int_equal(gpu_find(g, other, 0, NULL), 1); /* CUDA counts the fastest first */
    assert_int_equal(gpu_find(g, fake, 1, NULL), -1); /* either of two */
    assert_int_equal(gpu_find(g, fake, 7, NULL), -1);
    assert_int_equal(gpu_find(g, fake, -1, NULL), -1);
    assert_int_equal(gpu_find(g, fake, 0, "2,0"), 2);
    assert_int_equal(gpu_find(g, fake, 1, "2,0"), 0);
    assert_int_equal(gpu_find(g, fake, 0, "GPU-2"), 2);
    assert_int_equal(gpu_find(g, fake, 0, "MIG-1"), -1);
    assert_int_equal(gpu_find(g, fake, 0, ""), -1);
    assert_int_equal(gpu_find(g, fake, 5, "2,0"), -1);
    assert_int_equal(gpu_find(g, fake, 0, "99999999999999999999"), -1);
    assert_int_equal(gpu_find(g, "NVIDIA Faker", 0, NULL), -1);
    assert_int_equal(gpu_find(g, "", 0, NULL), -1);
    gpu_close(g);
}

static void test_resident(void **state)
{
    (void)state;
    const uint64_t before = mem_resident();
    assert_true(before > 100 << 10);
    char *p = mem_alloc(64 << 20);
    memset(p, 1, 64 << 20);
    assert_true(mem_resident() > before + (60 << 20));
    free(p);
}

int main(void)
{
    const char *dir = getenv("QUASAR_BUILDDIR");
    snprintf(path, sizeof path, "%s/tests/fake/libnvml.so", dir ? dir : ".");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_resident),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
