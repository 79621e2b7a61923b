/* Packed keys and values: sizes, codes against a reference in double precision, the
 * published block, both backends' orders, and rows that nothing good comes of. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "base/dtype.h"
#include "kcommon.h"
#include "kernels/cuda/kvlayout.h"
#include "kernels/kvq.h"

enum { D = BE_HEAD_DIM, H = KVQ_HALF };

static const enum kvq_kind packed[] = {KVQ_B8, KVQ_T5, KVQ_T3, KVQ_B4};

/* ---- the reference, from the definition ---- */

static const uint8_t s1[16] = {0x59, 0x03, 0x6a, 0xe4, 0x49, 0x59, 0xf8, 0x42,
                               0xbb, 0x3b, 0xc6, 0xa4, 0xa9, 0x50, 0xf2, 0x49};
static const uint8_t s2[16] = {0x90, 0xee, 0xac, 0x16, 0xdc, 0x8f, 0x62, 0x3f,
                               0x7a, 0x35, 0xa5, 0xb7, 0x62, 0x65, 0xa5, 0xbe};
static const double c3[8] = {-0.190207, -0.118786, -0.066822, -0.021663,
                             0.021663,  0.066822,  0.118786,  0.190207};
static const double t3[7] = {-0.154496, -0.092804, -0.044243, 0, 0.044243, 0.092804, 0.154496};
static const double c5[16] = {
    0.00582388, 0.01750547, 0.02928998, 0.04125080, 0.05346908, 0.06603809, 0.07906913, 0.09270022,
    0.10710939, 0.12253633, 0.13932019, 0.15797059, 0.17931595, 0.20486116, 0.23786362, 0.28821075};

static double sign(const uint8_t *s, int i)
{
    return s[i / 8] >> i % 8 & 1 ? -1 : 1;
}

/* Row i of the transform has the sign (-1)^popcount(i & j). */
static void turned(const double *x, bool second, double *y)
{
    for (int i = 0; i < H; i++) {
        y[i] = 0;
        for (int j = 0; j < H; j++) {
            y[i] += (__builtin_popcount((unsigned)(i & j)) % 2 ? -1 : 1) * sign(s1, j) * x[j];
        }
        y[i] *= (second ? sign(s2, i) : 1) / sqrt(H);
    }
}

static double level(enum kvq_kind k, int i)
{
    return k == KVQ_T3 ? c3[i] : i < 16 ? -c5[15 - i] : c5[i - 16];
}

static double threshold(enum kvq_kind k, int i)
{
    return k == KVQ_T3 ? t3[i] : (level(k, i) + level(k, i + 1)) / 2;
}

static double length(const double *x, int n)
{
    double s = 0;
    for (int i = 0; i < n; i++) {
        s += x[i] * x[i];
    }
    return sqrt(s);
}

/* Codes equal those of the definition but where fp32 cannot tell. */
static void check_levels(enum kvq_kind k, const float *row, const struct kvq_codes *c)
{
    for (int h = 0; h < 2; h++) {
        double x[H], y[H], stored[H];
        for (int i = 0; i < H; i++) {
            x[i] = (double)row[h * H + i];
        }
        const double n = length(x, H);
        turned(x, true, y);
        for (int i = 0; i < H; i++) {
            const int code = c->code[h * H + i], most = k == KVQ_T3 ? 7 : 31;
            assert_in_range(code, 0, most);
            if (code > 0) {
                assert_true(y[i] / n >= threshold(k, code - 1) - 2e-6);
            }
            if (code < most) {
                assert_true(y[i] / n <= threshold(k, code) + 2e-6);
            }
            stored[i] = level(k, code);
        }
        const double want = n / length(stored, H);
        assert_true(fabs((double)f16_to_f32(c->scale[h]) - want) <= want * 0x1.01p-11 + 0x1p-25);
    }
}

static void check_steps(enum kvq_kind k, const float *row, const struct kvq_codes *c)
{
    const int bits = k == KVQ_B8 ? 6 : 2, most = k == KVQ_B8 ? 127 : 7;
    double y[D];
    for (int h = 0; h < 2; h++) {
        double x[H];
        for (int i = 0; i < H; i++) {
            x[i] = y[h * H + i] = (double)row[h * H + i];
        }
        if (k == KVQ_B4) {
            turned(x, false, y + h * H);
        }
    }
    for (int g = 0; g < 16; g++) {
        double amax = 0;
        for (int i = 0; i < 16; i++) {
            amax = fmax(amax, fabs(y[16 * g + i]));
        }
        const int e = c->scale[g] - 127, lowest = bits - 14;
        assert_true(amax < ldexp(1, e + 1) * (1 + 1e-6));
        assert_true(e == lowest || amax >= ldexp(1, e) * (1 - 1e-6));
        for (int i = 0; i < 16; i++) {
            const double steps = ldexp(y[16 * g + i], bits - e);
            const double want = fmin(fmax(rint(steps), -most), most);
            const double off = fabs(c->code[16 * g + i] - want);
            assert_true(off == 0 || (off == 1 && fabs(fabs(steps - trunc(steps)) - 0.5) < 1e-4));
        }
    }
}

static void codes_follow_the_definition(void **state)
{
    (void)state;
    uint64_t seed = 11;
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        for (int n = 0; n < 60; n++) {
            float *x = krand_floats(&seed, D, n % 3 == 0 ? 20.0F : n % 3 == 1 ? 1.0F : 0.01F);
            x[n] *= n % 4 == 0 ? 30 : 1; /* one sticks out */
            struct kvq_codes c;
            kvq_quantise(packed[i], x, &c);
            if (packed[i] == KVQ_T3 || packed[i] == KVQ_T5) {
                check_levels(packed[i], x, &c);
            } else {
                check_steps(packed[i], x, &c);
            }
            free(x);
        }
    }
}

static void published_block(void **state)
{
    (void)state;
    static const char want[] =
        "0a486242a64ecf7e73e90b6795ba48c3756bd9b47a1397c201e185a684061a4fe219"
        "e6c214fbac9c64ea1008e01607ef5d9e";
    float x[D];
    uint8_t row[100];
    char hex[101] = "";
    for (int j = 0; j < D; j++) {
        x[j] = sinf(0.37F * (float)(j % H) + 0.1F);
    }
    kvq_store(KVQ_T3, x, row);
    for (int h = 0; h < 2; h++) {
        for (size_t i = 0; i < 50; i++) {
            snprintf(hex + 2 * i, 3, "%02x", row[h * 50 + (int)i]);
        }
        assert_string_equal(hex, want);
    }
}

/* Of the 27B: 16 attention layers and the MTP layer, 4 heads. */
static void bytes_per_token(void **state)
{
    (void)state;
    const struct {
        enum be_kv kv;
        const char *name;
        size_t bytes;
    } t[] = {{BE_KV_F32, "f32", 139264},  {BE_KV_F16, "fp16", 69632},  {BE_KV_F8, "fp8", 34816},
             {BE_KV_K8V4, "k8v4", 28288}, {BE_KV_K5V3, "k5v3", 17952}, {BE_KV_K3V3, "k3v3", 13600}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_int_equal(17 * be_kv_bytes(t[i].kv, 4), t[i].bytes);
        assert_string_equal(be_kv_name(t[i].kv), t[i].name);
    }
}

/* How close what is read is to what was stored: mean cosine of Gaussian rows. */
static void what_is_kept(void **state)
{
    (void)state;
    const struct {
        enum kvq_kind k;
        double least, most;
    } t[] = {{KVQ_F16, 1 - 1e-6, 1},   {KVQ_F8, 0.9993, 0.9999}, {KVQ_B8, 0.9999, 1},
             {KVQ_T5, 0.9985, 0.9995}, {KVQ_T3, 0.9825, 0.9835}, {KVQ_B4, 0.993, 0.999}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        double sum = 0;
        enum { N = 400 };
        uint64_t seed = 5;
        for (int n = 0; n < N; n++) {
            float x[D], y[D];
            uint8_t row[1024];
            double xy = 0, xx = 0, yy = 0;
            for (int j = 0; j < D; j++) {
                double g = 0; /* about normal */
                for (int l = 0; l < 12; l++) {
                    g += (double)krandf(&seed) * sqrt(3.0 / 12);
                }
                x[j] = (float)g;
            }
            kvq_store(t[i].k, x, row);
            kvq_read(t[i].k, row, y);
            for (int j = 0; j < D; j++) {
                xy += (double)x[j] * (double)y[j];
                xx += (double)x[j] * (double)x[j];
                yy += (double)y[j] * (double)y[j];
            }
            if (t[i].k == KVQ_T3 || t[i].k == KVQ_T5) { /* the length is kept */
                assert_true(fabs(yy / xx - 1) < 1.1e-3);
            }
            sum += xy / sqrt(xx * yy);
        }
        if (sum / N < t[i].least || sum / N > t[i].most) {
            fail_msg("kind %d: cosine %.6f", (int)t[i].k, sum / N);
        }
    }
}

static void turning(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        float *x = krand_floats(&seed, D, 3), y[D];
        double z[D];
        memcpy(y, x, sizeof y);
        kvq_turn(packed[i], y);
        for (int h = 0; h < 2 && kvq_turned(packed[i]); h++) {
            double in[H];
            for (int j = 0; j < H; j++) {
                in[j] = (double)x[h * H + j];
            }
            turned(in, packed[i] != KVQ_B4, z + h * H);
            for (int j = 0; j < H; j++) {
                assert_close(y[h * H + j], z[h * H + j], 1e-6);
            }
        }
        kvq_turn_back(packed[i], y);
        for (int j = 0; j < D; j++) {
            assert_close(y[j], (double)x[j], 1e-6);
        }
        free(x);
    }
}

static void orders(void **state)
{
    (void)state;
    const enum be_kv kvs[] = {BE_KV_F16, BE_KV_F8, BE_KV_K8V4, BE_KV_K5V3, BE_KV_K3V3};
    uint64_t seed = 17;
    for (size_t i = 0; i < sizeof kvs / sizeof *kvs; i++) {
        for (int which = 0; which < 2; which++) {
            const enum kvq_kind k = kvq_of(kvs[i], which);
            const size_t bytes = kvq_row_bytes(k), size = BE_PAGE * bytes;
            uint8_t *page = malloc(size + 64), *rows = malloc(size), *covered = malloc(size);
            assert_true(page && rows && covered);
            memset(page, 0xA5, size + 64);
            memset(covered, 0, size);
            for (int r = 0; r < BE_PAGE; r++) {
                float *x = krand_floats(&seed, D, 2);
                kvq_store(k, x, rows + (size_t)r * bytes);
                if (kvq_packed(k)) { /* the CPU's bytes and the codes are one thing */
                    struct kvq_codes a, b;
                    uint8_t again[1024];
                    kvq_quantise(k, x, &a);
                    kvq_unpack(k, rows + (size_t)r * bytes, &b);
                    assert_memory_equal(&a, &b, sizeof a);
                    kvq_pack(k, &b, again);
                    assert_memory_equal(again, rows + (size_t)r * bytes, bytes);
                }
                cu_kv_put(kvs[i], which, page, r, rows + (size_t)r * bytes);
                free(x);
            }
            for (int r = 0; r < BE_PAGE; r++) { /* no row has another's place */
                uint8_t got[1024];
                cu_kv_get(kvs[i], which, page, r, got);
                assert_memory_equal(got, rows + (size_t)r * bytes, bytes);
            }
            for (int j = 0; j < 64; j++) {
                assert_int_equal(page[size + (size_t)j], 0xA5);
            }
            /* the bits of a tile's first rows are these rows', to the last and no other */
            for (int kept = 0; kept <= KVL_ROWS; kept += kept < 3 ? 1 : 61) {
                uint8_t mask[KVL_ROWS * 1024], got[1024], none[1024], zeroes[1024] = {0};
                cu_kv_mask(kvs[i], which, kept, mask);
                for (size_t j = 0; j < KVL_ROWS * bytes; j++) {
                    mask[j] &= page[j];
                    covered[j] = 0;
                }
                cu_kv_get(kvs[i], which, covered, 0, none);
                for (int r = 0; r < KVL_ROWS; r++) {
                    cu_kv_get(kvs[i], which, mask, r, got);
                    assert_memory_equal(got, r < kept ? rows + (size_t)r * bytes : none, bytes);
                    cu_kv_put(kvs[i], which, mask, r, zeroes);
                    cu_kv_put(kvs[i], which, covered, r, zeroes);
                }
                assert_memory_equal(mask, covered, KVL_ROWS * bytes);
            }
            free(page);
            free(rows);
            free(covered);
        }
    }
}

static void odd_rows(void **state)
{
    (void)state;
    const float values[] = {0, -0.0F, 1e-30F, -1e-12F, 1e-4F, 448, 65504, -7e4F, 1e18F, NAN};
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            for (int one = 0; one < 2; one++) {
                float x[D] = {0}, y[D];
                uint8_t row[1024];
                for (int j = 0; j < (one ? 1 : D); j++) {
                    x[j] = values[v];
                }
                kvq_store(packed[i], x, row);
                kvq_read(packed[i], row, y);
                for (int j = 0; j < D && values[v] == values[v]; j++) {
                    assert_true(isfinite(y[j]));
                    if (values[v] == 0) {
                        assert_true(y[j] == 0);
                    }
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_block), cmocka_unit_test(bytes_per_token),
        cmocka_unit_test(turning),         cmocka_unit_test(codes_follow_the_definition),
        cmocka_unit_test(what_is_kept),    cmocka_unit_test(orders),
        cmocka_unit_test(odd_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
