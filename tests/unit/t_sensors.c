/* Figures of the machine: asking never waits, nothing is read unasked, a driver that hangs
 * holds nobody up. */
#include "config.h"
#include "tui/sensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

static char path[4096];
static char count[64];

static double now(void)
{
    return clock_seconds(clock_now(clock_real()));
}

static long readings(void)
{
    struct stat st;
    return stat(count, &st) == 0 ? (long)st.st_size : 0;
}

static void wait_for(struct sensors *s, struct sensors_view *v)
{
    for (int i = 0; i < 2000; i++) {
        sensors_get(s, v);
        if (!isnan(v->resident)) {
            return;
        }
        usleep(1000);
    }
    fail();
}

static void test_read(void **state)
{
    (void)state;
    struct sensors *s = sensors_create(path);
    struct sensors_view v;
    sensors_get(s, &v);
    assert_true(isnan(v.temp_c) && isnan(v.resident));
    usleep(20000);
    assert_int_equal(readings(), 0); /* nobody asked */
    sensors_ask(s, "NVIDIA Fake, sm_90", 0);
    wait_for(s, &v);
    assert_true(v.temp_c == 71 && v.power_w == 340.4 && v.gpu_total > v.gpu_used);
    assert_true(v.resident > 100 << 10);
    usleep(50000);
    assert_int_equal(readings(), 1); /* and nobody asked again */
    sensors_free(s);
    sensors_free(NULL);
}

static void test_none(void **state)
{
    (void)state;
    struct sensors *s = sensors_create("/nowhere/libnvidia-ml.so.1");
    struct sensors_view v;
    sensors_ask(s, "NVIDIA Fake", 0);
    wait_for(s, &v);
    assert_true(isnan(v.temp_c) && isnan(v.gpu_used));
    sensors_free(s);
    s = sensors_create(path); /* the CPU computes: no library is looked at */
    const long before = readings();
    sensors_ask(s, NULL, 0);
    wait_for(s, &v);
    assert_true(isnan(v.temp_c));
    assert_int_equal(readings(), before);
    sensors_free(s);
    sensors_free(sensors_create(NULL));
}

static void test_slow(void **state)
{
    (void)state;
    struct sensors *s = sensors_create(path);
    struct sensors_view v;
    setenv("FAKE_NVML_MS", "3000", 1);
    const double begun = now();
    for (int i = 0; i < 1000; i++) {
        sensors_ask(s, "NVIDIA Fake", 0);
        sensors_get(s, &v);
    }
    assert_true(now() - begun < 1);
    sensors_free(s); /* the thread is in the driver */
    assert_true(now() - begun < 2);
    unsetenv("FAKE_NVML_MS");
    usleep(100000);
}

int main(void)
{
    const char *dir = getenv("QUASAR_BUILDDIR");
    snprintf(path, sizeof path, "%s/tests/fake/libnvml.so", dir ? dir : ".");
    snprintf(count, sizeof count, "/tmp/quasar-nvml-%d", (int)getpid());
    setenv("FAKE_NVML_COUNT", count, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_slow),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(count);
    return rc;
}
