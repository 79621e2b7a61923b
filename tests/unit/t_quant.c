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

/* Published codes of a sine; dividing by the unrounded scale gives the same here. */
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

/* Codes are made with the scale that is stored: compared one by one with the
 * formula, on weights where the scale before rounding would give others. */
static void rounded_scale_first(void **state)
{
    (void)state;
    enum { N = 128 * 500 };
    float *w = mem_array(N, sizeof *w);
    int8_t *q8 = mem_alloc(N);
    uint8_t *q4 = mem_alloc(N / 2);
    uint16_t *s8 = mem_array(N / 128, 2);
    uint16_t *s4 = mem_array(N / 64, 2);
    for (uint32_t i = 0; i < N; i++) {
        w[i] = uniform(i) * 3.0F;
    }
    assert_int_equal(quant_encode(DT_Q8_G128, w, 1, N, q8, s8, NULL), 0);
    assert_int_equal(quant_encode(DT_Q4_G64, w, 500, 128, q4, s4, NULL), 0);
    int other = 0;
    for (size_t g = 0; g < N / 64; g++) {
        float m4 = 0;
        float m8 = 0;
        for (size_t i = 0; i < 128; i++) {
            m8 = fmaxf(m8, fabsf(w[g / 2 * 128 + i]));
        }
        for (size_t i = 0; i < 64; i++) {
            m4 = fmaxf(m4, fabsf(w[g * 64 + i]));
        }
        assert_int_equal(s4[g], f32_to_f16(m4 / 7));
        assert_int_equal(s8[g / 2], f32_to_f16(m8 / 127));
        for (size_t i = g * 64; i < g * 64 + 64; i++) {
            float r8 = nearbyintf(w[i] / f16_to_f32(s8[g / 2]));
            float r4 = nearbyintf(w[i] / f16_to_f32(s4[g]));
            assert_int_equal(q8[i], (int)fmaxf(fminf(r8, 127), -127));
            assert_int_equal((q4[i / 2] >> (i % 2 * 4) & 15) - 8, (int)fmaxf(fminf(r4, 7), -8));
            other += r8 != nearbyintf(w[i] / (m8 / 127));
        }
    }
    assert_true(other > 100);
    free(w);
    free(q8);
    free(q4);
    free(s8);
    free(s4);
}

/* Where the scale rounds to a subnormal half or to zero, codes are clipped. */
static void tiny_groups(void **state)
{
    (void)state;
    float w[128] = {0};
    uint8_t data[128];
    uint16_t scale[2] = {1, 1};
    float back[128];
    assert_int_equal(quant_encode(DT_Q8_G128, w, 1, 128, data, scale, NULL), 0);
    assert_int_equal(scale[0], 0);
    for (int i = 0; i < 128; i++) {
        assert_int_equal(data[i], 0);
    }
    assert_int_equal(quant_encode(DT_Q4_G64, w, 2, 64, data, scale, NULL), 0);
    assert_int_equal(scale[0] | scale[1], 0);
    for (int i = 0; i < 64; i++) {
        assert_int_equal(data[i], 0x88);
    }
    /* below half of the smallest subnormal scale; fp32 denormals too */
    w[3] = -0x1p-23F;
    w[4] = 0x1p-140F;
    assert_int_equal(quant_encode(DT_Q4_G64, w, 2, 64, data, scale, NULL), 0);
    assert_int_equal(scale[0], 0);
    quant_decode(DT_Q4_G64, data, scale, 2, 64, back);
    for (int i = 0; i < 128; i++) {
        assert_true(back[i] == 0.0F);
    }
    /* 7 * 1.4 * 2^-24: the scale rounds down to 2^-24, the negative code reaches
     * -8 and the positive one stays at 7 */
    w[3] = -9.8F * 0x1p-24F;
    w[5] = 9.8F * 0x1p-24F;
    assert_int_equal(quant_encode(DT_Q4_G64, w, 2, 64, data, scale, NULL), 0);
    assert_int_equal(scale[0], 1);
    quant_decode(DT_Q4_G64, data, scale, 2, 64, back);
    assert_true(back[3] == -8 * 0x1p-24F);
    assert_true(back[5] == 7 * 0x1p-24F);
    assert_true(back[4] == 0);
}

/* Ties go to the even code, the largest weight to +-127 exactly. */
static void rounding(void **state)
{
    (void)state;
    float w[128] = {127.0F, -127.0F, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -2.5F, 2.49F, -126.6F};
    const int8_t want[] = {127, -127, 0, 2, 2, 0, -2, -2, 2, -127};
    int8_t q[128];
    uint16_t scale = 0;
    assert_int_equal(quant_encode(DT_Q8_G128, w, 1, 128, q, &scale, NULL), 0);
    assert_int_equal(scale, 0x3C00);
    assert_memory_equal(q, want, sizeof want);
}

/* Every half decodes and encodes as the scalar conversions of base do; so do
 * floats around every half's rounding boundary. */
static void halves(void **state)
{
    (void)state;
    uint16_t *h = mem_array(65536, 2);
    uint16_t *back = mem_array(65536, 2);
    float *w = mem_array(65536, sizeof *w);
    for (uint32_t i = 0; i < 65536; i++) {
        h[i] = (uint16_t)i;
    }
    quant_decode(DT_F16, h, NULL, 1, 65536, w);
    for (uint32_t i = 0; i < 65536; i++) {
        float f = f16_to_f32((uint16_t)i);
        assert_memory_equal(&w[i], &f, 4);
    }
    quant_decode(DT_BF16, h, NULL, 1, 65536, w);
    for (uint32_t i = 0; i < 65536; i++) {
        float f = bf16_to_f32((uint16_t)i);
        assert_memory_equal(&w[i], &f, 4);
    }
    for (int step = -1; step <= 1; step++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < 65536; i++) {
            float a = f16_to_f32((uint16_t)i);
            float b = f16_to_f32((uint16_t)(i + 1));
            float mid = (a + b) / 2;
            float x = step ? nextafterf(mid, (float)step * INFINITY) : mid;
            w[n] = x;
            n += isfinite(x) && fabsf(x) < 65520.0F;
        }
        assert_int_equal(quant_encode(DT_F16, w, 1, n, back, NULL, NULL), 0);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(back[i], f32_to_f16(w[i]));
        }
        assert_int_equal(quant_encode(DT_BF16, w, 1, n, back, NULL, NULL), 0);
        for (uint32_t i = 0; i < n; i++) {
            assert_int_equal(back[i], f32_to_bf16(w[i]));
        }
    }
    free(h);
    free(back);
    free(w);
}

static void refusals(void **state)
{
    (void)state;
    const enum dtype all[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_G128, DT_Q4_G64};
    enum { ROWS = 600, COLS = 128 };
    float *w = mem_array(ROWS * COLS, sizeof *w);
    uint8_t *data = mem_alloc(ROWS * COLS * 4);
    uint8_t *scales = mem_alloc(ROWS * 4);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        for (size_t b = 0; b < 3; b++) {
            struct err e = ERR_INIT;
            w[500 * COLS + 77] = bad[b];
            w[501 * COLS + 3] = NAN;
            assert_int_equal(quant_encode(all[k], w, ROWS, COLS, data, scales, &e), QE_FORMAT);
            assert_non_null(strstr(e.msg, "row 500, column 77"));
            w[500 * COLS + 77] = 0;
            w[501 * COLS + 3] = 0;
        }
        assert_int_equal(quant_encode(all[k], w, ROWS, COLS, data, scales, NULL), 0);
    }
    struct err e = ERR_INIT;
    w[9] = 65520.0F;
    assert_int_equal(quant_encode(DT_F16, w, 1, COLS, data, NULL, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "column 9 is too large for f16"));
    w[9] = 65519.0F;
    assert_int_equal(quant_encode(DT_F16, w, 1, COLS, data, NULL, &e), 0);
    w[9] = 3.4e38F;
    assert_int_equal(quant_encode(DT_BF16, w, 1, COLS, data, NULL, &e), QE_FORMAT);
    assert_int_equal(quant_encode(DT_F32, w, 1, COLS, data, NULL, &e), 0);
    w[9] = 9e6F;
    assert_int_equal(quant_encode(DT_Q8_G128, w, 1, COLS, data, scales, &e), QE_FORMAT);
    assert_int_equal(quant_encode(DT_Q4_G64, w, 1, COLS, data, scales, &e), QE_FORMAT);
    assert_int_equal(quant_encode(DT_Q8_G128, w, 1, 64, data, scales, &e), QE_USAGE);
    assert_int_equal(quant_encode(DT_Q4_G64, w, 1, 65, data, scales, &e), QE_USAGE);
    free(w);
    free(data);
    free(scales);
}

/* The decode of one block whose bytes follow the formulas of the golden table. */
static void k_golden(void **state)
{
    (void)state;
    static const int at[9] = {0, 1, 31, 32, 64, 100, 160, 200, 255};
    static const struct {
        uint32_t type;
        float want[9];
    } t[] = {
        {GGUF_Q4_K, {-0.07F, -0.6201F, 0.4801F, -0.08F, 0.23F, 7.2616F, -0.1F, 2.6706F, 0.16F}},
        {GGUF_Q5_K, {1.6904F, -0.6201F, 0.4801F, 7.6016F, 0.23F, 7.2616F, -0.1F, 2.6706F, 0.16F}},
        {GGUF_Q6_K,
         {-12.6027F, 19.2041F, -3.1007F, 0.5401F, -17.9238F, 33.0671F, 7.0215F, -7.3616F,
          -35.7076F}},
    };
    const uint16_t d = f32_to_f16(0.01F);
    const uint16_t dmin = f32_to_f16(0.02F);
    for (size_t k = 0; k < 3; k++) {
        uint8_t block[3 * 210];
        uint32_t bytes = 0;
        uint32_t elems = 0;
        assert_true(gguf_type_info(t[k].type, NULL, &elems, &bytes));
        assert_int_equal(elems, 256);
        if (t[k].type == GGUF_Q6_K) {
            for (int i = 0; i < 128; i++) {
                block[i] = (uint8_t)(91 * i + 5);
            }
            for (int i = 0; i < 64; i++) {
                block[128 + i] = (uint8_t)(53 * i + 3);
            }
            for (int i = 0; i < 16; i++) {
                block[192 + i] = (uint8_t)(29 * i - 60);
            }
            memcpy(block + 208, &d, 2);
        } else {
            size_t q = t[k].type == GGUF_Q4_K ? 16 : 48;
            memcpy(block, &d, 2);
            memcpy(block + 2, &dmin, 2);
            for (int i = 0; i < 12; i++) {
                block[4 + i] = (uint8_t)(37 * i + 11);
            }
            for (int i = 0; i < 32 && q == 48; i++) {
                block[16 + i] = (uint8_t)(53 * i + 3);
            }
            for (int i = 0; i < 128; i++) {
                block[q + (size_t)i] = (uint8_t)(91 * i + 5);
            }
        }
        memcpy(block + bytes, block, bytes);
        memcpy(block + 2 * bytes, block, bytes);
        float y[3 * 256];
        assert_int_equal(quant_decode_gguf(t[k].type, block, 768, y, NULL), 0);
        for (int i = 0; i < 9; i++) {
            assert_true(fabsf(y[at[i]] - t[k].want[i]) < 6e-5F);
        }
        assert_memory_equal(y, y + 256, 1024);
        assert_memory_equal(y, y + 512, 1024);
        struct err e = ERR_INIT;
        assert_int_equal(quant_decode_gguf(t[k].type, block, 100, y, &e), QE_FORMAT);
    }
    struct err e = ERR_INIT;
    float y[256];
    assert_int_equal(quant_decode_gguf(10, "", 256, y, &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "Q2_K"));
    assert_int_equal(quant_decode_gguf(5, "", 256, y, &e), QE_UNSUPPORTED);
}

/* Our codes to blocks and back: the blocks decode to the same floats, the way
 * back restores every byte, and a touched block is no longer taken. */
static void blocks_and_back(void **state)
{
    (void)state;
    const enum dtype t[] = {DT_Q8_G128, DT_Q4_G64};
    enum { ROWS = 200, COLS = 384 };
    float *w = mem_array(ROWS * COLS, sizeof *w);
    float *a = mem_array(ROWS * COLS, sizeof *a);
    float *b = mem_array(ROWS * COLS, sizeof *b);
    for (uint32_t i = 0; i < ROWS * COLS; i++) {
        w[i] = i / 128 % 7 == 3 ? 0 : uniform(i) * 0.1F;
    }
    for (size_t k = 0; k < 2; k++) {
        size_t nd = 0;
        size_t ns = 0;
        assert_int_equal(dtype_sizes(t[k], ROWS, COLS, &nd, &ns), 0);
        uint8_t *data = mem_alloc(nd);
        uint8_t *scales = mem_alloc(ns);
        uint8_t *data2 = mem_alloc(nd);
        uint8_t *scales2 = mem_alloc(ns);
        uint32_t type = quant_gguf_type(t[k]);
        uint32_t elems = 0;
        uint32_t bytes = 0;
        assert_true(gguf_type_info(type, NULL, &elems, &bytes));
        uint8_t *blocks = mem_alloc(ROWS * COLS / elems * bytes);
        assert_int_equal(quant_encode(t[k], w, ROWS, COLS, data, scales, NULL), 0);
        quant_to_gguf(t[k], data, scales, ROWS, COLS, blocks);
        quant_decode(t[k], data, scales, ROWS, COLS, a);
        assert_int_equal(quant_decode_gguf(type, blocks, ROWS * COLS, b, NULL), 0);
        for (size_t i = 0; i < ROWS * COLS; i++) {
            assert_true(a[i] == b[i]);
        }
        enum dtype back = DT_F32;
        assert_true(quant_gguf_shared(type, blocks, ROWS, COLS, &back));
        assert_int_equal(back, t[k]);
        quant_from_gguf(type, blocks, ROWS, COLS, data2, scales2);
        assert_memory_equal(data, data2, nd);
        assert_memory_equal(scales, scales2, ns);
        /* the last block's scale differs by one bit */
        blocks[(ROWS * COLS / elems - 1) * bytes] ^= 1;
        assert_false(quant_gguf_shared(type, blocks, ROWS, COLS, &back));
        /* a row that is no whole group */
        assert_false(quant_gguf_shared(type, blocks, ROWS, 32, &back));
        free(data);
        free(scales);
        free(data2);
        free(scales2);
        free(blocks);
    }
    enum dtype back = DT_F32;
    assert_false(quant_gguf_shared(GGUF_Q4_K, "", 0, 256, &back));
    assert_true(quant_gguf_shared(GGUF_BF16, "", 0, 256, &back));
    assert_int_equal(back, DT_BF16);
    /* a code of -128 or a negative scale is not of our range */
    uint8_t block[4 * 34] = {0};
    assert_true(quant_gguf_shared(GGUF_Q8_0, block, 1, 128, &back));
    block[70] = 0x80;
    assert_false(quant_gguf_shared(GGUF_Q8_0, block, 1, 128, &back));
    block[70] = 0;
    block[1] = block[35] = block[69] = block[103] = 0x80;
    assert_false(quant_gguf_shared(GGUF_Q8_0, block, 1, 128, &back));
    free(w);
    free(a);
    free(b);
}

/* Unquantised types cross unchanged, and decode the same from both sides. */
static void plain_types_are_copied(void **state)
{
    (void)state;
    const enum dtype t[] = {DT_F32, DT_F16, DT_BF16};
    float w[4 * 33];
    for (uint32_t i = 0; i < 4 * 33; i++) {
        w[i] = uniform(i);
    }
    for (size_t k = 0; k < 3; k++) {
        uint8_t data[sizeof w];
        uint8_t blocks[sizeof w];
        uint8_t back[sizeof w];
        float a[4 * 33];
        float b[4 * 33];
        size_t nd = 0;
        size_t ns = 0;
        enum dtype got = DT_Q4_G64;
        uint32_t type = quant_gguf_type(t[k]);
        assert_int_equal(dtype_sizes(t[k], 4, 33, &nd, &ns), 0);
        assert_int_equal(quant_encode(t[k], w, 4, 33, data, NULL, NULL), 0);
        quant_to_gguf(t[k], data, NULL, 4, 33, blocks);
        assert_memory_equal(data, blocks, nd);
        assert_true(quant_gguf_shared(type, blocks, 4, 33, &got));
        assert_int_equal(got, t[k]);
        quant_from_gguf(type, blocks, 4, 33, back, NULL);
        assert_memory_equal(data, back, nd);
        quant_decode(t[k], data, NULL, 4, 33, a);
        assert_int_equal(quant_decode_gguf(type, blocks, 4 * 33, b, NULL), 0);
        assert_memory_equal(a, b, sizeof a);
    }
}

/* Blobs at odd addresses give the same bytes. */
static void unaligned(void **state)
{
    (void)state;
    const enum dtype all[] = {DT_F32, DT_F16, DT_BF16, DT_Q8_G128, DT_Q4_G64};
    float w[256];
    for (uint32_t i = 0; i < 256; i++) {
        w[i] = uniform(i);
    }
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        uint8_t data[1024];
        uint8_t odd[1025];
        uint8_t scales[8];
        uint8_t odd_scales[9];
        float a[256];
        float b[256];
        size_t nd = 0;
        size_t ns = 0;
        assert_int_equal(dtype_sizes(all[k], 2, 128, &nd, &ns), 0);
        assert_int_equal(quant_encode(all[k], w, 2, 128, data, scales, NULL), 0);
        assert_int_equal(quant_encode(all[k], w, 2, 128, odd + 1, odd_scales + 1, NULL), 0);
        assert_memory_equal(data, odd + 1, nd);
        if (ns > 0) {
            assert_memory_equal(scales, odd_scales + 1, ns);
        }
        quant_decode(all[k], data, scales, 2, 128, a);
        quant_decode(all[k], odd + 1, odd_scales + 1, 2, 128, b);
        assert_memory_equal(a, b, sizeof a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q4_golden),
        cmocka_unit_test(error_bound),
        cmocka_unit_test(rounded_scale_first),
        cmocka_unit_test(tiny_groups),
        cmocka_unit_test(rounding),
        cmocka_unit_test(halves),
        cmocka_unit_test(refusals),
        cmocka_unit_test(k_golden),
        cmocka_unit_test(blocks_and_back),
        cmocka_unit_test(plain_types_are_copied),
        cmocka_unit_test(unaligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
