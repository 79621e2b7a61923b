/* The 4-bit copy of a head equals one made in one go, from every weight type. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/philox.h"
#include "engine/head.h"
#include "format/quant.h"

#define ROWS 9001 /* more than are made at a time, and no multiple of them */
#define COLS 128

struct copy {
    void *data, *scales;
    size_t size, scale_size;
};

static struct copy encode(enum dtype t, const float *x)
{
    struct copy c = {NULL, NULL, 0, 0};
    struct err e = ERR_INIT;
    assert_int_equal(dtype_sizes(t, ROWS, COLS, &c.size, &c.scale_size), 0);
    c.data = mem_alloc(c.size);
    c.scales = c.scale_size > 0 ? mem_alloc(c.scale_size) : NULL;
    if (quant_encode(t, x, ROWS, COLS, c.data, c.scales, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    return c;
}

static void as_in_one_go(void **state)
{
    (void)state;
    static const enum dtype types[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_G128};
    float *x = mem_array((size_t)ROWS * COLS, sizeof *x);
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        x[i] = (float)philox_word(11, i, PHILOX_TARGET, 0) * 0x1p-32F - 0.5F;
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct copy src = encode(types[i], x);
        const struct tensor head = {.name = "lm_head.weight",
                                    .dtype = types[i],
                                    .n_dims = 2,
                                    .shape = {ROWS, COLS},
                                    .data = src.data,
                                    .size = src.size,
                                    .scales = src.scales,
                                    .scale_size = src.scale_size};
        float *y = mem_array((size_t)ROWS * COLS, sizeof *y);
        quant_decode(types[i], src.data, src.scales, ROWS, COLS, y);
        struct copy want = encode(DT_Q4_G64, y);
        struct head_copy got;
        struct err e = ERR_INIT;
        assert_int_equal(head_copy_make(&head, &got, &e), 0);
        assert_int_equal(got.t.dtype, DT_Q4_G64);
        assert_int_equal(tensor_rows(&got.t), ROWS);
        assert_int_equal(tensor_cols(&got.t), COLS);
        assert_int_equal(got.t.size, want.size);
        assert_int_equal(got.t.scale_size, want.scale_size);
        assert_memory_equal(got.t.data, want.data, want.size);
        assert_memory_equal(got.t.scales, want.scales, want.scale_size);
        head_copy_free(&got);
        free(y);
        free(src.data);
        free(src.scales);
        free(want.data);
        free(want.scales);
    }
    free(x);
}

static void refused(void **state)
{
    (void)state;
    float x[2 * 96] = {0};
    const struct tensor head = {
        .dtype = DT_F32, .n_dims = 2, .shape = {2, 96}, .data = x, .size = sizeof x};
    struct head_copy got;
    struct err e = ERR_INIT;
    assert_int_equal(head_copy_make(&head, &got, &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "96"));
    x[5] = (float)(1e30 * 1e30);
    const struct tensor bad = {
        .dtype = DT_F32, .n_dims = 2, .shape = {3, 64}, .data = x, .size = sizeof x};
    assert_int_equal(head_copy_make(&bad, &got, &e), QE_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_in_one_go),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
