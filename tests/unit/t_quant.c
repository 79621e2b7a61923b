/* src/format/quant: golden codes, exact round trips, error bounds, refusals. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/philox.h"
#include "format/quant.h"

static float uniform(uint32_t i)
{
    const uint32_t ctr[4] = {i, 0, 0, 0};
    const uint32_t key[2] = {7, 11};
    uint32_t r[4];
    philox4x32(ctr, key, r);
    return (float)(int32_t)r[0] * 0x1p-31F;
}

static void from_hex(const char *hex, uint8_t *out)
{
    for (size_t i = 0; hex[2 * i]; i++) {
        const char two[3] = {hex[2 * i], hex[2 * i + 1], 0};
        out[i] = (uint8_t)strtoul(two, NULL, 16);
    }
}

static void q4_golden(void **state)
{
    (void)state;
    float w[64];
    for (int i = 0; i < 64; i++) {
        w[i] = (float)sin(0.37 * i + 0.1);
    }
    uint8_t want[32];
    from_hex("b9fdffbd6924114296dbffde9b46122164b9fdefbd6824114296dbffde8b4612", want);
    uint8_t data[32];
    uint8_t scale[2];
    assert_int_equal(quant_encode(DT_Q4_G64, w, 1, 64, data, scale, NULL), 0);
    assert_int_equal(scale[0], 0x92);
    assert_int_equal(scale[1], 0x30);
    assert_memory_equal(data, want, sizeof want);
}

/* 1000 rows of many magnitudes: no element is further than half a step from its
 * source, or, where the scale is a subnormal half, than the clipping that its
 * rounding by up to 2^-25 causes. */
static void error_bound(void **state)
{
    (void)state;
    const enum dtype t[] = {DT_Q8_G128, DT_Q4_G64};
    enum { ROWS = 1000, COLS = 384 };
    float *w = mem_array(ROWS * COLS, sizeof *w);
    float *back = mem_array(ROWS * COLS, sizeof *back);
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        w[i] = ldexpf(uniform(i), (int)(i / COLS % 20) - 14);
    }
    for (size_t k = 0; k < 2; k++) {
        size_t nd = 0;
        size_t ns = 0;
        assert_int_equal(dtype_sizes(t[k], ROWS, COLS, &nd, &ns), 0);
        uint8_t *data = mem_alloc(nd);
        uint16_t *scales = mem_alloc(ns);
        assert_int_equal(quant_encode(t[k], w, ROWS, COLS, data, scales, NULL), 0);
        quant_decode(t[k], data, scales, ROWS, COLS, back);
        for (size_t i = 0; i < ROWS * COLS; i++) {
            float s = f16_to_f32(scales[i / (size_t)dtype_group(t[k])]);
            float clip = (t[k] == DT_Q8_G128 ? 127.0F : 7.0F) * 0x1p-25F;
            if (!(fabsf(w[i] - back[i]) <= fmaxf(s * 0.5F, clip))) {
                fail_msg("%s element %zu: %g became %g, scale %g", dtype_name(t[k]), i, w[i],
                         back[i], s);
            }
        }
        /* a range of rows decodes as it does in the whole */
        float part[2 * COLS];
        size_t od = 0;
        size_t os = 0;
        quant_at(t[k], 77, COLS, &od, &os);
        quant_decode(t[k], data + od, (uint8_t *)scales + os, 2, COLS, part);
        assert_memory_equal(part, back + 77 * COLS, sizeof part);
        free(data);
        free(scales);
    }
    free(w);
    free(back);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q4_golden),
        cmocka_unit_test(error_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
