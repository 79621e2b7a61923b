/* src/format/gguf: write and read back with every kind of value, split files,
 * every refusal. */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/mem.h"
#include "format/gguf.h"

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/t_gguf-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    return rmdir(dir); /* fails when a test or a writer left something */
}

/* ---- files made by hand ---- */

static void u32(struct buf *b, uint32_t v)
{
    buf_add(b, &v, 4);
}

static void u64(struct buf *b, uint64_t v)
{
    buf_add(b, &v, 8);
}

static void str(struct buf *b, const char *s)
{
    u64(b, strlen(s));
    buf_adds(b, s);
}

static void header(struct buf *b, uint32_t version, uint64_t tensors, uint64_t keys)
{
    buf_adds(b, "GGUF");
    u32(b, version);
    u64(b, tensors);
    u64(b, keys);
}

static void key(struct buf *b, const char *name, uint32_t type)
{
    str(b, name);
    u32(b, type);
}

static void tensor(struct buf *b, const char *name, uint64_t ne0, uint64_t ne1, uint32_t type,
                   uint64_t offset)
{
    str(b, name);
    u32(b, 2);
    u64(b, ne0);
    u64(b, ne1);
    u32(b, type);
    u64(b, offset);
}

static void pad(struct buf *b, size_t align)
{
    while (b->len % align != 0) {
        buf_addc(b, 0);
    }
}

static void zeros(struct buf *b, size_t n)
{
    while (n--) {
        buf_addc(b, 0);
    }
}

/* Opens an exact-size copy, so that a read past the end is caught. */
static int open_copy(const struct buf *b, uint8_t **copy, struct gguf **g, struct err *e)
{
    *copy = mem_alloc(b->len);
    memcpy(*copy, b->data, b->len);
    return gguf_open_mem(*copy, b->len, "F", g, e);
}

static void refused(struct buf *b, int code, const char *why)
{
    struct gguf *g = NULL;
    struct err e = ERR_INIT;
    uint8_t *copy = NULL;
    int rc = open_copy(b, &copy, &g, &e);
    if (rc != code || !strstr(e.msg, why)) {
        fail_msg("%d \"%s\", expected %d \"%s\"", rc, e.msg, code, why);
    }
    assert_null(g);
    free(copy);
    buf_free(b);
}

/* ---- tests ---- */

static void put_everything(struct gguf_writer *w)
{
    gguf_put_u8(w, "t.u8", 200);
    gguf_put_u16(w, "t.u16", 60000);
    gguf_put_u32(w, "t.u32", 4000000000U);
    gguf_put_i32(w, "t.i32", -5);
    gguf_put_u64(w, "t.u64", UINT64_MAX);
    gguf_put_i64(w, "t.i64", INT64_MIN);
    gguf_put_f32(w, "t.f32", 1e-6F);
    gguf_put_f64(w, "t.f64", 0.1);
    gguf_put_bool(w, "t.yes", true);
    gguf_put_bool(w, "t.no", false);
    gguf_put_str(w, "t.str", "a\0b", 3);
    gguf_put_str(w, "t.empty", "", 0);
    const uint8_t bytes[] = {1, 2, 255};
    const int32_t ints[] = {-1, 0, 7, 1 << 30};
    const float floats[] = {0.5F, -3.0F};
    const uint8_t bools[] = {1, 0};
    const struct gguf_str strs[] = {{"one", 3}, {"", 0}, {"dr\xC3\xBC", 4}};
    gguf_put_arr(w, "t.bytes", GGUF_KV_U8, bytes, 3);
    gguf_put_arr(w, "t.ints", GGUF_KV_I32, ints, 4);
    gguf_put_arr(w, "t.floats", GGUF_KV_F32, floats, 2);
    gguf_put_arr(w, "t.bools", GGUF_KV_BOOL, bools, 2);
    gguf_put_arr(w, "t.none", GGUF_KV_F64, NULL, 0);
    gguf_put_strs(w, "t.strs", strs, 3);
}

static const uint64_t shape_a[] = {3, 64};
static const uint64_t shape_b[] = {5};
static const uint64_t shape_c[] = {2, 2, 256};
enum { SIZE_A = 3 * 2 * 34, SIZE_B = 20, SIZE_C = 4 * 144, ALL = SIZE_A + SIZE_B + SIZE_C };

static void declare_tensors(struct gguf_writer *w)
{
    assert_int_equal(gguf_writer_declare(w, "a.weight", GGUF_Q8_0, 2, shape_a, NULL), 0);
    assert_int_equal(gguf_writer_declare(w, "b", GGUF_F32, 1, shape_b, NULL), 0);
    assert_int_equal(gguf_writer_declare(w, "c.weight", GGUF_Q4_K, 3, shape_c, NULL), 0);
}

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 37 % 59);
}

static int write_data(struct gguf_writer *w, size_t piece, struct err *e)
{
    uint8_t data[ALL];
    for (size_t i = 0; i < ALL; i++) {
        data[i] = byte_at(i);
    }
    for (size_t at = 0; at < ALL; at += piece) {
        int rc = gguf_writer_data(w, data + at, piece < ALL - at ? piece : ALL - at, e);
        if (rc < 0) {
            return rc;
        }
    }
    return gguf_writer_commit(w, e);
}

static void check_numbers(const struct gguf *g)
{
    static const struct {
        const char *key;
        int64_t want;
    } ints[] = {{"t.u8", 200},       {"t.u16", 60000},     {"t.u32", 4000000000},
                {"t.i32", -5},       {"t.u64", INT64_MAX}, /* saturates */
                {"t.i64", INT64_MIN}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        int64_t x = 0;
        assert_int_equal(gguf_get_int(g, ints[i].key, true, INT64_MIN, INT64_MAX, &x, NULL), 0);
        assert_true(x == ints[i].want);
        double d = 0;
        assert_int_equal(gguf_get_num(g, ints[i].key, true, &d, NULL), 0);
        assert_true(d == (double)ints[i].want);
    }
    double d = 0;
    assert_int_equal(gguf_get_num(g, "t.f32", true, &d, NULL), 0);
    assert_true(d == (double)1e-6F);
    assert_int_equal(gguf_get_num(g, "t.f64", true, &d, NULL), 0);
    assert_true(d == 0.1);
    bool b = false;
    assert_int_equal(gguf_get_bool(g, "t.yes", true, &b, NULL), 0);
    assert_true(b);
    assert_int_equal(gguf_get_bool(g, "t.no", true, &b, NULL), 0);
    assert_false(b);
}

static void check_arrays(const struct gguf *g)
{
    const char *p = NULL;
    size_t n = 9;
    assert_int_equal(gguf_get_str(g, "t.str", true, &p, &n, NULL), 0);
    assert_int_equal(n, 3);
    assert_memory_equal(p, "a\0b", 3);
    assert_int_equal(gguf_get_str(g, "t.empty", true, &p, &n, NULL), 0);
    assert_int_equal(n, 0);
    struct gguf_array a;
    int64_t x = 0;
    double d = 0;
    assert_int_equal(gguf_get_arr(g, "t.bytes", true, GGUF_KV_U8, &a, NULL), 0);
    assert_int_equal(a.n, 3);
    assert_true(gguf_next_int(&a, &x) && x == 1);
    assert_true(gguf_next_int(&a, &x) && x == 2);
    assert_true(gguf_next_num(&a, &d) && d == 255);
    assert_false(gguf_next_int(&a, &x));
    assert_int_equal(gguf_get_arr(g, "t.ints", true, GGUF_KV_I32, &a, NULL), 0);
    assert_false(gguf_next_str(&a, &p, &n));
    assert_true(gguf_next_int(&a, &x) && x == -1);
    assert_int_equal(a.n, 3);
    assert_int_equal(gguf_get_arr(g, "t.floats", true, -1, &a, NULL), 0);
    assert_false(gguf_next_int(&a, &x));
    assert_true(gguf_next_num(&a, &d) && d == 0.5);
    assert_true(gguf_next_num(&a, &d) && d == -3);
    assert_int_equal(gguf_get_arr(g, "t.bools", true, GGUF_KV_BOOL, &a, NULL), 0);
    assert_true(gguf_next_int(&a, &x) && x == 1);
    assert_true(gguf_next_int(&a, &x) && x == 0);
    assert_int_equal(gguf_get_arr(g, "t.none", true, GGUF_KV_F64, &a, NULL), 0);
    assert_false(gguf_next_num(&a, &d));
    assert_int_equal(gguf_get_arr(g, "t.strs", true, GGUF_KV_STR, &a, NULL), 0);
    const char *const want[] = {"one", "", "dr\xC3\xBC"};
    for (int i = 0; i < 3; i++) {
        assert_true(gguf_next_str(&a, &p, &n));
        assert_int_equal(n, strlen(want[i]));
        assert_memory_equal(p, want[i], n);
    }
    assert_false(gguf_next_str(&a, &p, &n));
}

static void check_errors(const struct gguf *g)
{
    struct err e = ERR_INIT;
    int64_t x = 42;
    double d = 42;
    bool b = true;
    const char *p = "old";
    size_t n = 3;
    struct gguf_array a = {GGUF_KV_U8, 77, NULL};
    assert_int_equal(gguf_get_int(g, "none", false, 0, 9, &x, &e), 0);
    assert_int_equal(gguf_get_num(g, "none", false, &d, &e), 0);
    assert_int_equal(gguf_get_bool(g, "none", false, &b, &e), 0);
    assert_int_equal(gguf_get_str(g, "none", false, &p, &n, &e), 0);
    assert_int_equal(gguf_get_arr(g, "none", false, -1, &a, &e), 0);
    assert_true(x == 42 && d == 42 && b && n == 3 && a.n == 77 && e.code == 0);
    assert_int_equal(gguf_get_int(g, "none", true, 0, 9, &x, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "none is missing"));
    assert_int_equal(gguf_get_int(g, "t.u8", true, 0, 199, &x, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "t.u8 is 200, outside 0 to 199"));
    assert_int_equal(gguf_get_int(g, "t.f32", true, 0, 9, &x, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "type f32, not an integer"));
    assert_int_equal(gguf_get_int(g, "t.yes", true, 0, 9, &x, &e), QE_FORMAT);
    assert_int_equal(gguf_get_int(g, "t.ints", true, 0, 9, &x, &e), QE_FORMAT);
    assert_int_equal(gguf_get_num(g, "t.str", true, &d, &e), QE_FORMAT);
    assert_int_equal(gguf_get_bool(g, "t.u8", true, &b, &e), QE_FORMAT);
    assert_int_equal(gguf_get_str(g, "t.strs", true, &p, &n, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "type array, not string"));
    assert_int_equal(gguf_get_arr(g, "t.str", true, -1, &a, &e), QE_FORMAT);
    assert_int_equal(gguf_get_arr(g, "t.ints", true, GGUF_KV_STR, &a, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "array of i32, not of string"));
    assert_true(x == 42 && d == 42 && b && n == 3 && a.n == 77);
}

static void write_and_read(void **state)
{
    (void)state;
    char *path = io_join(dir, "m.gguf");
    const size_t pieces[] = {1, 100, ALL};
    for (int i = 0; i < 3; i++) {
        struct gguf_writer *w = NULL;
        assert_int_equal(gguf_writer_create(path, &w, NULL), 0);
        put_everything(w);
        declare_tensors(w);
        assert_int_equal(write_data(w, pieces[i], NULL), 0);
        gguf_writer_free(w);
        struct gguf *g = NULL;
        struct err e = ERR_INIT;
        if (gguf_open(path, &g, &e) < 0) {
            fail_msg("%s", e.msg);
        }
        assert_int_equal(gguf_version(g), 3);
        assert_int_equal(gguf_file_size(g) % 32, 0);
        assert_int_equal(gguf_kv_count(g), 18);
        assert_string_equal(gguf_kv_at(g, 1)->key, "t.u16");
        assert_int_equal(gguf_kv_at(g, 1)->type, GGUF_KV_U16);
        check_numbers(g);
        check_arrays(g);
        check_errors(g);
        assert_int_equal(gguf_count(g), 3);
        assert_null(gguf_find(g, "b.weight"));
        const struct gguf_tensor *a = gguf_find(g, "a.weight");
        const struct gguf_tensor *b = gguf_find(g, "b");
        const struct gguf_tensor *c = gguf_find(g, "c.weight");
        assert_true(a == gguf_at(g, 0) && b == gguf_at(g, 1) && c == gguf_at(g, 2));
        assert_int_equal(a->size, SIZE_A);
        assert_int_equal(b->size, SIZE_B);
        assert_int_equal(c->size, SIZE_C);
        assert_int_equal(c->n_dims, 3);
        assert_memory_equal(c->shape, shape_c, sizeof shape_c);
        assert_int_equal(gguf_rows(c), 4);
        assert_int_equal(gguf_cols(c), 256);
        assert_int_equal(gguf_row_size(c), 144);
        for (size_t k = 0; k < SIZE_A; k++) {
            assert_int_equal(a->data[k], byte_at(k));
        }
        for (size_t k = 0; k < SIZE_C; k++) {
            assert_int_equal(c->data[k], byte_at(SIZE_A + SIZE_B + k));
        }
        float all[4 * 256];
        float two[2 * 256];
        assert_int_equal(gguf_decode(c, 0, 4, all, NULL), 0);
        assert_int_equal(gguf_decode(c, 1, 2, two, NULL), 0);
        assert_memory_equal(two, all + 256, sizeof two);
        assert_int_equal(gguf_decode(c, 3, 2, two, &e), QE_USAGE);
        assert_int_equal(gguf_decode(c, UINT64_MAX, 2, two, &e), QE_USAGE);
        gguf_close(g);
    }
    unlink(path);
    free(path);
}

static void writes_are_atomic(void **state)
{
    (void)state;
    char *path = io_join(dir, "m.gguf");
    struct err e = ERR_INIT;
    unsigned failures = 0;
    for (unsigned n = 1; n < 100; n++) {
        struct gguf_writer *w = NULL;
        io_fault_set(n, ENOSPC);
        int rc = gguf_writer_create(path, &w, &e);
        if (rc == 0) {
            gguf_put_u8(w, "k", 1);
            declare_tensors(w);
            rc = write_data(w, 300, &e);
        }
        io_fault_set(0, 0);
        gguf_writer_free(w);
        struct gguf *g = NULL;
        /* there or not, never half */
        if (gguf_open(path, &g, &e) == 0) {
            assert_int_equal(gguf_count(g), 3);
            gguf_close(g);
            unlink(path);
        } else {
            assert_int_equal(e.code, QE_NOTFOUND);
            assert_int_equal(rc, QE_IO);
            failures++;
        }
        if (rc == 0) {
            break;
        }
        assert_int_equal(rc, QE_IO);
    }
    assert_true(failures > 8);
    free(path);
}

static void misuse_of_the_writer(void **state)
{
    (void)state;
    char *path = io_join(dir, "m.gguf");
    struct gguf_writer *w = NULL;
    struct err e = ERR_INIT;
    const uint64_t bad[][2] = {{1, 33}, {0, 32}, {1ULL << 40, 1ULL << 40}};
    assert_int_equal(gguf_writer_create(path, &w, NULL), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gguf_writer_declare(w, "x", GGUF_Q8_0, 2, bad[i], &e), QE_INTERNAL);
    }
    assert_int_equal(gguf_writer_declare(w, "x", 5, 2, shape_a, &e), QE_INTERNAL);
    assert_int_equal(gguf_writer_declare(w, "x", GGUF_F32, 0, shape_a, &e), QE_INTERNAL);
    declare_tensors(w);
    assert_int_equal(gguf_writer_data(w, "abc", 3, NULL), 0);
    assert_int_equal(gguf_writer_declare(w, "x", GGUF_F32, 1, shape_b, &e), QE_INTERNAL);
    assert_int_equal(gguf_writer_commit(w, &e), QE_INTERNAL);
    assert_non_null(strstr(e.msg, "a.weight are missing"));
    gguf_writer_free(w);
    for (int keys = 0; keys < 2; keys++) {
        assert_int_equal(gguf_writer_create(path, &w, NULL), 0);
        gguf_put_u8(w, "k", 1);
        if (keys) {
            gguf_put_u8(w, "k", 1);
        } else {
            declare_tensors(w);
            declare_tensors(w);
        }
        assert_int_equal(gguf_writer_commit(w, &e), QE_INTERNAL);
        assert_non_null(strstr(e.msg, "given twice"));
        gguf_writer_free(w);
    }
    assert_int_equal(gguf_writer_create(path, &w, NULL), 0);
    gguf_put_u32(w, "general.alignment", 64);
    assert_int_equal(gguf_writer_commit(w, &e), QE_INTERNAL);
    gguf_writer_free(w);
    /* no tensors at all, then one byte too many */
    assert_int_equal(gguf_writer_create(path, &w, NULL), 0);
    assert_int_equal(gguf_writer_data(w, "x", 1, &e), QE_INTERNAL);
    assert_int_equal(gguf_writer_commit(w, NULL), 0);
    gguf_writer_free(w);
    struct gguf *g = NULL;
    assert_int_equal(gguf_open(path, &g, NULL), 0);
    assert_int_equal(gguf_count(g), 0);
    gguf_close(g);
    gguf_close(NULL);
    gguf_writer_free(NULL);
    unlink(path);
    free(path);
}

/* Version 2, another alignment, data out of order, nested arrays. */
static void made_by_hand(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    header(&b, 2, 2, 4);
    key(&b, "general.alignment", GGUF_KV_U32);
    u32(&b, 64);
    key(&b, "nested", GGUF_KV_ARR);
    u32(&b, GGUF_KV_ARR);
    u64(&b, 3);
    u32(&b, GGUF_KV_U16); /* [1, 2] */
    u64(&b, 2);
    buf_add(&b, "\1\0\2\0", 4);
    u32(&b, GGUF_KV_STR); /* ["x"] */
    u64(&b, 1);
    str(&b, "x");
    u32(&b, GGUF_KV_ARR); /* [[true]] */
    u64(&b, 1);
    u32(&b, GGUF_KV_BOOL);
    u64(&b, 1);
    buf_addc(&b, 1);
    key(&b, "i8", GGUF_KV_I8);
    buf_addc(&b, (char)-3);
    key(&b, "i16", GGUF_KV_I16);
    buf_add(&b, "\xFE\xFF", 2);
    tensor(&b, "later", 2, 3, GGUF_F32, 64);
    tensor(&b, "sooner", 256, 1, 10, 128);
    pad(&b, 64);
    zeros(&b, 64);
    for (int i = 0; i < 6; i++) {
        float f = (float)i;
        buf_add(&b, &f, 4);
    }
    pad(&b, 64);
    zeros(&b, 84);
    struct gguf *g = NULL;
    struct err e = ERR_INIT;
    uint8_t *copy = NULL;
    if (open_copy(&b, &copy, &g, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(gguf_version(g), 2);
    float w[256];
    assert_int_equal(gguf_decode(gguf_find(g, "later"), 1, 2, w, NULL), 0);
    assert_true(w[0] == 2 && w[3] == 5);
    assert_int_equal(gguf_decode(gguf_find(g, "sooner"), 0, 1, w, &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "Q2_K"));
    int64_t x = 0;
    assert_int_equal(gguf_get_int(g, "i8", true, -9, 9, &x, NULL), 0);
    assert_int_equal(x, -3);
    assert_int_equal(gguf_get_int(g, "i16", true, -9, 9, &x, NULL), 0);
    assert_int_equal(x, -2);
    struct gguf_array outer;
    struct gguf_array in;
    struct gguf_array in2;
    const char *p = NULL;
    size_t n = 0;
    assert_int_equal(gguf_get_arr(g, "nested", true, GGUF_KV_ARR, &outer, NULL), 0);
    assert_true(gguf_next_arr(&outer, &in));
    assert_true(gguf_next_int(&in, &x) && x == 1);
    assert_true(gguf_next_int(&in, &x) && x == 2);
    assert_false(gguf_next_int(&in, &x));
    assert_true(gguf_next_arr(&outer, &in));
    assert_true(gguf_next_str(&in, &p, &n));
    assert_memory_equal(p, "x", 1);
    assert_true(gguf_next_arr(&outer, &in));
    assert_true(gguf_next_arr(&in, &in2));
    assert_true(gguf_next_int(&in2, &x) && x == 1);
    assert_false(gguf_next_arr(&outer, &in));
    gguf_close(g);
    free(copy);

    /* every shorter file is refused in one line, and nothing is read outside */
    for (size_t len = 0; len < b.len; len++) {
        struct buf cut = {b.data, len, b.len};
        e.code = 0;
        assert_int_equal(open_copy(&cut, &copy, &g, &e), QE_FORMAT);
        assert_true(len < 4 || strstr(e.msg, "cut off"));
        free(copy);
    }
    buf_free(&b);
}

static void malformed(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    buf_adds(&b, "GGML1234");
    refused(&b, QE_FORMAT, "no GGUF file");
    header(&b, 1, 0, 0);
    refused(&b, QE_UNSUPPORTED, "version 1");
    header(&b, 0x03000000, 0, 0);
    refused(&b, QE_UNSUPPORTED, "big-endian");
    header(&b, 3, 1ULL << 60, 0);
    refused(&b, QE_FORMAT, "more than a million");
    header(&b, 3, 0, 1ULL << 60);
    refused(&b, QE_FORMAT, "more than a million");
    header(&b, 3, 999999, 0);
    refused(&b, QE_FORMAT, "list of tensors");
    header(&b, 3, 0, 999999);
    refused(&b, QE_FORMAT, "a metadata key runs past");

    header(&b, 3, 0, 1);
    u64(&b, UINT64_MAX);
    refused(&b, QE_FORMAT, "runs past its end");
    header(&b, 3, 0, 1);
    key(&b, "", GGUF_KV_U8);
    refused(&b, QE_FORMAT, "not printable");
    header(&b, 3, 0, 1);
    key(&b, "a\nb", GGUF_KV_U8);
    refused(&b, QE_FORMAT, "not printable");
    header(&b, 3, 0, 1);
    key(&b, "a\xFF", GGUF_KV_U8);
    refused(&b, QE_FORMAT, "not printable");
    header(&b, 3, 0, 1);
    u64(&b, 1);
    buf_addc(&b, 0);
    u32(&b, 0);
    refused(&b, QE_FORMAT, "not printable");

    header(&b, 3, 0, 1);
    key(&b, "k", 13);
    u64(&b, 0);
    refused(&b, QE_FORMAT, "unknown type 13");
    header(&b, 3, 0, 1);
    key(&b, "k", GGUF_KV_BOOL);
    buf_addc(&b, 2);
    refused(&b, QE_FORMAT, "bool of value 2");
    header(&b, 3, 0, 1);
    key(&b, "k", GGUF_KV_STR);
    u64(&b, 1ULL << 60);
    refused(&b, QE_FORMAT, "k runs past");
    header(&b, 3, 0, 1);
    key(&b, "k", GGUF_KV_ARR);
    u32(&b, 99);
    u64(&b, 1);
    refused(&b, QE_FORMAT, "array of the unknown type 99");
    for (uint32_t type = 0; type <= GGUF_KV_F64; type++) {
        header(&b, 3, 0, 1);
        key(&b, "k", GGUF_KV_ARR);
        u32(&b, type);
        u64(&b, 1ULL << 61);
        refused(&b, QE_FORMAT, "k runs past");
    }
    header(&b, 3, 0, 1);
    key(&b, "k", GGUF_KV_ARR);
    for (int i = 0; i < 6; i++) {
        u32(&b, GGUF_KV_ARR);
        u64(&b, 1);
    }
    refused(&b, QE_UNSUPPORTED, "nests arrays deeper");
    header(&b, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        key(&b, "k", GGUF_KV_U8);
        buf_addc(&b, 1);
    }
    refused(&b, QE_FORMAT, "k is there twice");

    for (int i = 0; i < 3; i++) {
        const uint32_t align[] = {0, 24, 1U << 25};
        header(&b, 3, 0, 1);
        key(&b, "general.alignment", GGUF_KV_U32);
        u32(&b, align[i]);
        refused(&b, QE_FORMAT, "general.alignment");
    }
    header(&b, 3, 0, 1);
    key(&b, "general.alignment", GGUF_KV_STR);
    str(&b, "32");
    refused(&b, QE_FORMAT, "general.alignment");
    header(&b, 3, 0, 1);
    key(&b, "split.count", GGUF_KV_U16);
    buf_add(&b, "\2\0", 2);
    refused(&b, QE_UNSUPPORTED, "split");
}

static void malformed_tensors(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    static const struct {
        uint64_t ne0, ne1;
        uint32_t type;
        uint64_t offset;
        int code;
        const char *why;
    } t[] = {
        {0, 1, GGUF_F32, 0, QE_FORMAT, "impossible shape"},
        {1, UINT64_MAX, GGUF_F32, 0, QE_FORMAT, "impossible shape"},
        {1ULL << 32, 1ULL << 32, GGUF_F32, 0, QE_FORMAT, "impossible shape"},
        {1ULL << 31, 1ULL << 31, GGUF_F32, 0, QE_FORMAT, "impossible shape"},
        {1ULL << 31, 1ULL << 30, GGUF_F32, 0, QE_FORMAT, "runs past"},
        {1ULL << 62, 1, GGUF_F32, 0, QE_FORMAT, "impossible shape"},
        {33, 1, GGUF_Q8_0, 0, QE_FORMAT, "whole blocks of 32"},
        {1, 1, 77, 0, QE_UNSUPPORTED, "unknown type 77"},
        {1, 1, 4, 0, QE_UNSUPPORTED, "unknown type 4"},
        {1, 1, GGUF_F32, 1, QE_FORMAT, "no multiple of 32"},
        {1, 1, GGUF_F32, 256, QE_FORMAT, "runs past"},
        {65, 1, GGUF_F32, 0, QE_FORMAT, "runs past"},
        {1, 1, GGUF_F32, UINT64_MAX - 31, QE_FORMAT, "runs past"},
        {9, 1, GGUF_F32, 32, QE_FORMAT, "overlap"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        header(&b, 3, 2, 0);
        tensor(&b, "bad", t[i].ne0, t[i].ne1, t[i].type, t[i].offset);
        tensor(&b, "good", 8, 1, GGUF_F32, 64);
        pad(&b, 32);
        zeros(&b, 256);
        refused(&b, t[i].code, t[i].why);
    }
    for (uint32_t dims = 0; dims < 6; dims += 5) {
        header(&b, 3, 1, 0);
        str(&b, "x");
        u32(&b, dims);
        zeros(&b, 64);
        refused(&b, QE_FORMAT, "dimensions (1 to 4)");
    }
    header(&b, 3, 2, 0);
    tensor(&b, "same", 8, 1, GGUF_F32, 0);
    tensor(&b, "same", 8, 1, GGUF_F32, 32);
    pad(&b, 32);
    zeros(&b, 64);
    refused(&b, QE_FORMAT, "same is there twice");
}

static char *write_part(const char *name, uint16_t no, uint16_t count, int32_t total,
                        const char *tensor_name)
{
    struct buf p = BUF_INIT;
    buf_printf(&p, "%s/%s", dir, name);
    struct gguf_writer *w = NULL;
    assert_int_equal(gguf_writer_create(p.data, &w, NULL), 0);
    if (no == 0) {
        gguf_put_str(w, "general.name", "whole", 5);
    }
    gguf_put_u16(w, "split.no", no);
    gguf_put_u16(w, "split.count", count);
    gguf_put_i32(w, "split.tensors.count", total);
    const uint64_t shape[] = {1};
    float f = no;
    assert_int_equal(gguf_writer_declare(w, tensor_name, GGUF_F32, 1, shape, NULL), 0);
    assert_int_equal(gguf_writer_data(w, &f, 4, NULL), 0);
    assert_int_equal(gguf_writer_commit(w, NULL), 0);
    gguf_writer_free(w);
    return buf_take(&p);
}

static void split_files(void **state)
{
    (void)state;
    char *part[3];
    struct gguf *g = NULL;
    struct err e = ERR_INIT;
    part[0] = write_part("m-00001-of-00003.gguf", 0, 3, 3, "zero");
    part[1] = write_part("m-00002-of-00003.gguf", 1, 3, 3, "one");
    assert_int_equal(gguf_open(part[0], &g, &e), QE_NOTFOUND);
    assert_non_null(strstr(e.msg, "m-00003-of-00003"));
    part[2] = write_part("m-00003-of-00003.gguf", 2, 3, 3, "two");
    for (int i = 0; i < 3; i++) {
        if (gguf_open(part[i], &g, &e) < 0) {
            fail_msg("%s", e.msg);
        }
        assert_int_equal(gguf_count(g), 3);
        const char *s = NULL;
        size_t n = 0;
        assert_int_equal(gguf_get_str(g, "general.name", true, &s, &n, NULL), 0);
        float f = 0;
        assert_int_equal(gguf_decode(gguf_find(g, "two"), 0, 1, &f, NULL), 0);
        assert_true(f == 2);
        gguf_close(g);
    }
    g = NULL;
    free(write_part("m-00002-of-00003.gguf", 2, 3, 3, "one"));
    assert_int_equal(gguf_open(part[0], &g, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "is not part 2 of 3"));
    free(write_part("m-00002-of-00003.gguf", 1, 4, 3, "one"));
    assert_int_equal(gguf_open(part[0], &g, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "is not part 2 of 3"));
    free(write_part("m-00002-of-00003.gguf", 1, 3, 3, "zero"));
    assert_int_equal(gguf_open(part[0], &g, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "zero is there twice"));
    free(write_part("m-00001-of-00003.gguf", 0, 3, 4, "zero"));
    free(write_part("m-00002-of-00003.gguf", 1, 3, 3, "one"));
    assert_int_equal(gguf_open(part[0], &g, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "3 tensors, not the 4"));
    char *renamed = write_part("other.gguf", 0, 3, 3, "zero");
    assert_int_equal(gguf_open(renamed, &g, &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "give the parts their names back"));
    unlink(renamed);
    free(renamed);
    for (int i = 0; i < 3; i++) {
        unlink(part[i]);
        free(part[i]);
    }
    /* one part of one is an ordinary file, whatever its name */
    char *one = write_part("one.gguf", 0, 1, 1, "zero");
    assert_int_equal(gguf_open(one, &g, &e), 0);
    gguf_close(g);
    unlink(one);
    free(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(write_and_read, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(writes_are_atomic, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(misuse_of_the_writer, make_dir, remove_dir),
        cmocka_unit_test(made_by_hand),
        cmocka_unit_test(malformed),
        cmocka_unit_test(malformed_tensors),
        cmocka_unit_test_setup_teardown(split_files, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
