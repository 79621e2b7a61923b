/* The CUDA backend's weight tiles and tiled activations, read back the way a
 * warp's lanes read them. */
#include "config.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "base/philox.h"
#include "kernels/cuda/cu.h"

static uint32_t drawn;

static uint32_t word(void)
{
    return philox_word(77, drawn++, PHILOX_TARGET, 0);
}

static struct tensor random_matrix(enum dtype t, int rows, int k)
{
    struct tensor m = {.name = "m", .dtype = t, .n_dims = 2};
    m.shape[0] = (uint64_t)rows;
    m.shape[1] = (uint64_t)k;
    assert_int_equal(dtype_sizes(t, (uint64_t)rows, (uint64_t)k, &m.size, &m.scale_size), 0);
    uint8_t *data = malloc(m.size);
    for (size_t i = 0; i < m.size; i++) {
        data[i] = (uint8_t)word();
    }
    const size_t n = (size_t)rows * (size_t)k;
    for (size_t i = 0; i < n && t != DT_Q4_G64 && t != DT_Q8_G128; i++) {
        const float v = ((float)(word() % 4001) - 2000) / 2000;
        const uint16_t h = t == DT_F16 ? f32_to_f16(v) : f32_to_bf16(v);
        memcpy(data + i * (t == DT_F32 ? 4 : 2), t == DT_F32 ? (const void *)&v : (const void *)&h,
               t == DT_F32 ? 4 : 2);
    }
    for (size_t i = 0; i < m.size && t == DT_Q8_G128; i++) {
        data[i] = data[i] == 128 ? 0 : data[i]; /* codes are -127..127 */
    }
    uint16_t *scales = malloc(m.scale_size + 2);
    for (size_t i = 0; i < m.scale_size / 2; i++) {
        scales[i] = f32_to_f16((float)(word() % 1000 + 1) / 1e5F);
    }
    m.data = data;
    m.scales = scales;
    return m;
}

static void matrix_free(struct tensor *m)
{
    free((void *)m->data);
    free((void *)m->scales);
}

static float value(const struct tensor *m, int row, int col)
{
    const int k = (int)m->shape[1];
    const size_t at = (size_t)row * (size_t)k + (size_t)col;
    const uint8_t *d = m->data;
    uint16_t h;
    float f;
    switch (m->dtype) {
    case DT_Q4_G64:
    case DT_Q8_G128:
        memcpy(&h, (const uint8_t *)m->scales + at / (size_t)dtype_group(m->dtype) * 2, 2);
        return f16_to_f32(h) * (m->dtype == DT_Q8_G128 ? (float)(int8_t)d[at]
                                                       : (float)(d[at / 2] >> at % 2 * 4 & 15) - 8);
    case DT_F32:
        memcpy(&f, d + 4 * at, 4);
        return f;
    case DT_F16:
        memcpy(&h, d + 2 * at, 2);
        return f16_to_f32(h);
    default:
        memcpy(&h, d + 2 * at, 2);
        return bf16_to_f32(h);
    }
}

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, 2);
    return f16_to_f32(h);
}

/* Element c of A register reg of a lane, MMA j of row block rb of a step. */
static float fragment(enum cu_kind kind, const uint8_t *step, int rb, int lane, int j, int reg,
                      int c)
{
    const int up = reg % 2, high = reg / 2, g = lane / 4;
    if (kind == CU_W4) {
        uint32_t w;
        memcpy(&w, step + rb * 512 + lane * 16 + j * 4, 4);
        const uint32_t pair = (high ? w >> 8 : w) & (up ? 0x00F000F0U : 0x000F000FU);
        const uint32_t n = (c ? pair >> 16 : pair & 0xFFFF) / (up ? 16 : 1);
        return ((float)n - 8) * half_at(step + 2048 + 16 * g + 4 * rb + 2 * up);
    }
    if (kind == CU_W8) {
        const uint8_t *half = step + rb / 2 * 2112;
        const uint8_t *unit = half + rb % 2 * 1024 + j / 2 * 512 + lane * 16 + j % 2 * 8;
        return ((float)unit[up * 4 + high * 2 + c] - 128) *
               half_at(half + 2048 + 8 * g + 4 * (rb % 2) + 2 * up);
    }
    return half_at(step + rb * 2048 + j * 512 + lane * 16 + reg * 4 + c * 2);
}

static void check(enum cu_kind kind, enum dtype t, enum dtype t2, int rows, int k)
{
    struct tensor a = random_matrix(t, t2 ? rows / 2 : rows, k);
    struct tensor b = random_matrix(t2 ? t2 : t, t2 ? rows / 2 : 1, k);
    const struct tensor *src[2] = {&a, &b};
    const int tiles = (rows + 63) / 64, steps = k / 64;
    const size_t size = cu_mat_bytes(kind, rows, k);
    assert_int_equal(size, (size_t)(tiles * steps) * cu_step_bytes(kind));
    uint8_t *out = malloc(size);
    memset(out, 0x5A, size);
    float *power = malloc((size_t)tiles * 64 * sizeof *power);
    for (int i = 0; i < tiles * 4; i++) {
        cu_pack_block(kind, src, t2 ? 2 : 1, rows, k, i,
                      out + (size_t)(i / 4 * steps) * cu_step_bytes(kind), power + i * 16);
    }
    for (int row = 0; row < tiles * 64; row++) {
        for (int col = 0; col < k; col++) {
            const uint8_t *step = out + (size_t)(row / 64 * steps + col / 64) * cu_step_bytes(kind);
            const int in = col % 64, t4 = in / 16, j = in % 16 / 4, high = in % 4 / 2;
            const int r = row % 16;
            float got =
                fragment(kind, step, row % 64 / 16, r % 8 * 4 + t4, j, high * 2 + r / 8, in % 2);
            got *= kind == CU_W16 ? power[row] : 1;
            float want = 0;
            if (row < rows) {
                const struct tensor *m = t2 && r >= 8 ? &b : &a;
                want = value(m, t2 ? row / 16 * 8 + r % 8 : row, col);
            }
            if (t == DT_F32) {
                assert_true(fabsf(got - want) <= fabsf(want) / 2048 + 1e-9F);
            } else {
                assert_true(got == want);
            }
        }
    }
    free(out);
    free(power);
    matrix_free(&a);
    matrix_free(&b);
}

static void test_tiles(void **state)
{
    (void)state;
    check(CU_W4, DT_Q4_G64, 0, 128, 192);
    check(CU_W4, DT_Q4_G64, 0, 70, 64);
    check(CU_W4, DT_Q4_G64, DT_Q4_G64, 96, 128);
    check(CU_W8, DT_Q8_G128, 0, 6, 384);
    check(CU_W8, DT_Q4_G64, DT_Q8_G128, 128, 128);
    check(CU_W16, DT_F16, 0, 80, 64);
    check(CU_W16, DT_BF16, DT_BF16, 64, 128);
    check(CU_W16, DT_F32, 0, 6, 128);
}

/* Every element has its own place inside the blocks of 128 rows. */
static void test_activations(void **state)
{
    (void)state;
    enum { ROWS = 200, K = 192 };
    const size_t n = cu_xt_bytes(ROWS, K) / 2;
    assert_int_equal(n, 256 * K);
    uint8_t *seen = calloc(n, 1);
    for (int r = 0; r < 256; r++) {
        for (int c = 0; c < K; c++) {
            const size_t at = cu_xt_index(r, c, K);
            assert_true(at < n && !seen[at]);
            seen[at] = 1;
            /* the row's 128 bytes of a block are the row's own */
            assert_int_equal(at / 64 % 128, r % 128);
        }
    }
    /* logical input 0, 1 of MMA 1 are inputs 4, 5; swizzled by the row */
    assert_int_equal(cu_xt_index(0, 4, K), 16);
    assert_int_equal(cu_xt_index(1, 5, K), 64 + (2 ^ 1) * 8 + 1);
    assert_int_equal(cu_xt_index(0, 2, K), 8);
    assert_int_equal(cu_xt_index(0, 16, K), 2);
    free(seen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_activations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
