/* src/format/safetensors: write and read back, shards, every refusal. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/mem.h"
#include "format/quant.h"
#include "format/safetensors.h"

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/t_safetensors-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    (void)state;
    DIR *d = opendir(dir);
    for (struct dirent *x = NULL; d && (x = readdir(d));) {
        char *p = io_join(dir, x->d_name);
        unlink(p);
        free(p);
    }
    if (d) {
        closedir(d);
    }
    return rmdir(dir);
}

static size_t files_in_dir(void)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *x = NULL; (x = readdir(d));) {
        n += x->d_name[0] != '.';
    }
    closedir(d);
    return n;
}

static void write_file(const char *name, const void *p, size_t n)
{
    char *path = io_join(dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(path);
}

static const struct {
    const char *name;
    enum dtype t;
    int n_dims;
    uint64_t shape[ST_MAX_DIMS];
    size_t size;
} set[] = {
    {"odd", DT_BF16, 1, {3}, 6}, /* leaves the next one unaligned */
    {"a.weight", DT_F32, 2, {4, 5}, 80},
    {"scalar", DT_F16, 0, {0}, 2},
    {"empty", DT_F32, 2, {0, 7}, 0},
    {"conv\xC3\xA9", DT_BF16, 5, {2, 3, 1, 2, 2}, 48},
    {"last \"quoted\"", DT_F16, 3, {2, 1, 4}, 16},
};
enum { N_SET = sizeof set / sizeof *set, ALL_BYTES = 6 + 80 + 2 + 48 + 16 };

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 37 % 61); /* no NaN in any type */
}

static struct st_writer *new_writer(const char *target, uint64_t max_shard)
{
    struct st_writer *w = NULL;
    assert_int_equal(st_writer_create(target, max_shard, &w, NULL), 0);
    for (size_t i = 0; i < N_SET; i++) {
        assert_int_equal(
            st_writer_declare(w, set[i].name, set[i].t, set[i].n_dims, set[i].shape, NULL), 0);
    }
    return w;
}

static int write_data(struct st_writer *w, size_t piece, struct err *e)
{
    uint8_t data[ALL_BYTES];
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = byte_at(i);
    }
    for (size_t at = 0; at < sizeof data; at += piece) {
        size_t k = piece < sizeof data - at ? piece : sizeof data - at;
        int rc = st_writer_data(w, data + at, k, e);
        if (rc < 0) {
            return rc;
        }
    }
    return st_writer_commit(w, e);
}

static void check_set(const char *path)
{
    struct safetensors *s = NULL;
    struct err e = ERR_INIT;
    if (st_open(path, &s, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    assert_int_equal(st_count(s), N_SET);
    assert_string_equal(st_meta(s, "format"), "pt");
    assert_null(st_meta(s, "other"));
    assert_null(st_find(s, "absent"));
    size_t at = 0;
    for (size_t i = 0; i < N_SET; i++) {
        const struct st_tensor *t = st_find(s, set[i].name);
        assert_non_null(t);
        assert_true(t->usable);
        assert_int_equal(t->dtype, set[i].t);
        assert_int_equal(t->n_dims, set[i].n_dims);
        assert_memory_equal(t->shape, set[i].shape, (size_t)t->n_dims * 8);
        assert_int_equal(t->size, set[i].size);
        for (size_t k = 0; k < t->size; k++) {
            assert_int_equal(t->data[k], byte_at(at + k));
        }
        at += t->size;
    }
    /* the second row of [2, 3, 1, 2, 2] seen as twelve rows of two */
    const struct st_tensor *t = st_find(s, set[4].name);
    assert_int_equal(st_rows(t), 12);
    assert_int_equal(st_cols(t), 2);
    float w[4];
    assert_int_equal(st_decode(t, 10, 2, w, NULL), 0);
    for (int i = 0; i < 4; i++) {
        uint16_t h = 0;
        memcpy(&h, t->data + 40 + 2 * i, 2);
        assert_true(w[i] == bf16_to_f32(h));
    }
    assert_int_equal(st_decode(t, 11, 2, w, &e), QE_USAGE);
    assert_int_equal(st_decode(st_find(s, "scalar"), 0, 1, w, NULL), 0);
    assert_int_equal(st_decode(st_find(s, "empty"), 0, 0, w, NULL), 0);
    st_close(s);
}

static void one_file(void **state)
{
    (void)state;
    const size_t pieces[] = {1, 7, 1000};
    char *path = io_join(dir, "one.safetensors");
    for (size_t i = 0; i < 3; i++) {
        struct st_writer *w = new_writer(path, 0);
        assert_int_equal(write_data(w, pieces[i], NULL), 0);
        st_writer_free(w);
        check_set(path);
        assert_int_equal(files_in_dir(), 1);
    }
    free(path);
}

static void shards(void **state)
{
    (void)state;
    /* everything fits: the plain name */
    struct st_writer *w = new_writer(dir, 4096);
    assert_int_equal(write_data(w, 5, NULL), 0);
    st_writer_free(w);
    assert_int_equal(files_in_dir(), 1);
    check_set(dir);
    /* the other layout would be hidden */
    struct err e = ERR_INIT;
    w = new_writer(dir, 60);
    assert_int_equal(write_data(w, 5, &e), QE_USAGE);
    assert_non_null(strstr(e.msg, "model.safetensors"));
    st_writer_free(w);
    assert_int_equal(files_in_dir(), 1);
    char *single = io_join(dir, "model.safetensors");
    unlink(single);
    free(single);
    w = new_writer(dir, 60);
    assert_int_equal(write_data(w, 5, NULL), 0);
    st_writer_free(w);
    check_set(dir);
    /* 6 | 80 | 2 + 0 + 48 | 16, and the index */
    assert_int_equal(files_in_dir(), 5);
    w = new_writer(dir, 4096);
    assert_int_equal(write_data(w, 5, &e), QE_USAGE);
    st_writer_free(w);

    /* a shard that is gone, and one under another's name */
    char *a = io_join(dir, "model-00001-of-00004.safetensors");
    char *b = io_join(dir, "model-00002-of-00004.safetensors");
    char *c = io_join(dir, "keep");
    struct safetensors *s = NULL;
    assert_int_equal(rename(a, c), 0);
    assert_int_equal(st_open(dir, &s, &e), QE_NOTFOUND);
    assert_non_null(strstr(e.msg, "model-00001-of-00004"));
    struct io_map m = {NULL, 0, -1};
    assert_int_equal(io_map_open(&m, b, NULL), 0);
    write_file("model-00001-of-00004.safetensors", m.data, m.size);
    io_map_close(&m);
    assert_int_equal(st_open(dir, &s, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "is in two shards"));
    assert_int_equal(rename(c, a), 0);
    assert_int_equal(st_open(dir, &s, &e), 0);
    st_close(s);
    free(a);
    free(b);
    free(c);

    const struct {
        const char *index;
        int code;
        const char *why;
    } bad[] = {
        {"{\"weight_map\":{\"odd\":\"../x.safetensors\"}}", QE_FORMAT, "bad name"},
        {"{\"weight_map\":{\"odd\":\"a\\u0000b\"}}", QE_FORMAT, "bad name"},
        {"{\"weight_map\":{\"odd\":7}}", QE_FORMAT, "bad name"},
        {"{\"weight_map\":{}}", QE_FORMAT, "no weight_map"},
        {"[]", QE_FORMAT, "no weight_map"},
        {"{\"weight_map\":{\"odd\":", QE_FORMAT, "not valid JSON"},
        {"{\"weight_map\":{\"odd\":\"model-00001-of-00004.safetensors\","
         "\"none\":\"model-00001-of-00004.safetensors\"}}",
         QE_FORMAT, "\"none\" is not in model-00001"},
        {"{\"weight_map\":{\"odd\":\"model-00002-of-00004.safetensors\","
         "\"a.weight\":\"model-00001-of-00004.safetensors\"}}",
         QE_FORMAT, "\"odd\" is not in model-00002"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file("model.safetensors.index.json", bad[i].index, strlen(bad[i].index));
        struct err x = ERR_INIT;
        assert_int_equal(st_open(dir, &s, &x), bad[i].code);
        if (!strstr(x.msg, bad[i].why)) {
            fail_msg("\"%s\" lacks \"%s\"", x.msg, bad[i].why);
        }
    }
}

static void nothing_there(void **state)
{
    (void)state;
    struct safetensors *s = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(st_open(dir, &s, &e), QE_NOTFOUND);
    assert_non_null(strstr(e.msg, "holds neither"));
    char *p = io_join(dir, "absent.safetensors");
    assert_int_equal(st_open(p, &s, &e), QE_NOTFOUND);
    free(p);
    write_file("model.safetensors", "", 0);
    assert_int_equal(st_open(dir, &s, &e), QE_FORMAT);
}

/* Whichever system call fails, no file appears and no temporary one stays. */
static void writes_are_atomic(void **state)
{
    (void)state;
    char *path = io_join(dir, "one.safetensors");
    struct st_writer *w = new_writer(path, 0);
    assert_int_equal(st_writer_data(w, "abc", 3, NULL), 0);
    struct err e = ERR_INIT;
    assert_int_equal(st_writer_commit(w, &e), QE_INTERNAL);
    assert_non_null(strstr(e.msg, "\"odd\" are missing"));
    st_writer_free(w);
    assert_int_equal(files_in_dir(), 0);
    unsigned failures = 0;
    for (int sharded = 0; sharded < 2; sharded++) {
        for (unsigned n = 1;; n++) {
            w = new_writer(sharded ? dir : path, sharded ? 60 : 0);
            io_fault_set(n, ENOSPC);
            int rc = write_data(w, 100, &e);
            io_fault_set(0, 0);
            st_writer_free(w);
            if (rc == 0) {
                check_set(sharded ? dir : path);
                unlink(path);
                break;
            }
            assert_int_equal(rc, QE_IO);
            /* a single file whose directory cannot be synced is there, whole */
            if (!sharded && files_in_dir() == 1) {
                check_set(path);
            } else {
                assert_int_equal(files_in_dir(), 0);
            }
            failures++;
            assert_true(n < 100);
            remove_dir(NULL);
            assert_int_equal(mkdir(dir, 0700), 0);
        }
    }
    assert_true(failures > 15);
    free(path);
}

static void misuse_of_the_writer(void **state)
{
    (void)state;
    char *path = io_join(dir, "one.safetensors");
    struct st_writer *w = new_writer(path, 0);
    const uint64_t shape[ST_MAX_DIMS] = {1ULL << 40, 1ULL << 40};
    struct err e = ERR_INIT;
    assert_int_equal(st_writer_declare(w, "odd", DT_F32, 1, shape, &e), QE_INTERNAL);
    assert_int_equal(st_writer_declare(w, "x", DT_F32, 2, shape, &e), QE_INTERNAL);
    assert_int_equal(st_writer_declare(w, "x", DT_Q4_G64, 1, shape, &e), QE_INTERNAL);
    assert_int_equal(st_writer_declare(w, "x", DT_F32, 9, shape, &e), QE_INTERNAL);
    assert_int_equal(st_writer_declare(w, "x\xFF", DT_F32, 1, shape, &e), QE_INTERNAL);
    assert_int_equal(st_writer_declare(w, "__metadata__", DT_F32, 1, shape, &e), QE_INTERNAL);
    assert_int_equal(write_data(w, 64, NULL), 0);
    assert_int_equal(st_writer_data(w, "x", 1, &e), QE_INTERNAL);
    assert_int_equal(st_writer_declare(w, "late", DT_F32, 1, shape, &e), QE_INTERNAL);
    st_writer_free(w);
    check_set(path);
    assert_int_equal(st_writer_create(path, 100, &w, &e), QE_USAGE);
    free(path);
}

/* A file of this header and so many bytes of data. */
static int open_text(const char *header, size_t data, struct safetensors **s, struct err *e)
{
    static uint8_t file[4096]; /* st_open_mem borrows it */
    uint64_t n = strlen(header);
    memset(file, 0, sizeof file);
    memcpy(file, &n, 8);
    memcpy(file + 8, header, (size_t)n);
    return st_open_mem(file, 8 + (size_t)n + data, "F", s, e);
}

static void malformed(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        int code;
        const char *why;
    } t[] = {
        {"", 0, QE_FORMAT, "not valid JSON"},
        {"[]", 0, QE_FORMAT, "not an object"},
        {"{\"a\":1}", 0, QE_FORMAT, "\"a\" lacks"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, QE_FORMAT, "lacks"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4, QE_FORMAT, "lacks"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, QE_FORMAT, "lacks"},
        {"{\"a\":{\"dtype\":\"Q9\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, QE_UNSUPPORTED,
         "unknown dtype \"Q9\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, QE_FORMAT,
         "bad shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, QE_FORMAT,
         "bad shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
         QE_FORMAT, "bad shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,4]}}", 4,
         QE_FORMAT, "impossible size"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}}", 4,
         QE_FORMAT, "bad shape"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, QE_FORMAT,
         "impossible size"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
         QE_UNSUPPORTED, "9 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, QE_FORMAT,
         "bad data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 4, QE_FORMAT,
         "bad data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}", 4, QE_FORMAT,
         "bad data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, QE_FORMAT,
         "cut off"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, QE_FORMAT,
         "need 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         8, QE_FORMAT, "duplicate"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
         6, QE_FORMAT, "\"b\" overlaps"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[5,9]}}",
         9, QE_FORMAT, "hole"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, QE_FORMAT, "hole"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, QE_FORMAT,
         "belong to no tensor"},
        {"{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, QE_FORMAT,
         "not printable"},
        {"{\"a\\u001b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, QE_FORMAT,
         "not printable"},
        {"{\"__metadata__\":[]}", 0, QE_FORMAT, "__metadata__"},
        {"{\"__metadata__\":{\"k\":1}}", 0, QE_FORMAT, "\"k\" is not a string"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct safetensors *s = NULL;
        struct err e = ERR_INIT;
        int rc = open_text(t[i].header, t[i].data, &s, &e);
        if (rc != t[i].code || !strstr(e.msg, t[i].why)) {
            fail_msg("%s: %d \"%s\", expected %d \"%s\"", t[i].header, rc, e.msg, t[i].code,
                     t[i].why);
        }
        assert_null(s);
    }
    /* header lengths that the file does not have */
    const uint64_t lengths[] = {9, 100000001, 1ULL << 60, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint8_t file[16] = "????????{}      ";
        memcpy(file, &lengths[i], 8);
        struct safetensors *s = NULL;
        struct err e = ERR_INIT;
        assert_int_equal(st_open_mem(file, 16, "F", &s, &e), QE_FORMAT);
        assert_non_null(strstr(e.msg, "claims"));
        for (size_t n = 0; n < 8; n++) {
            assert_int_equal(st_open_mem(file, n, "F", &s, &e), QE_FORMAT);
        }
    }
}

/* Types we only list, the order of the data, spaces behind the header. */
static void listed_types(void **state)
{
    (void)state;
    struct safetensors *s = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(
        open_text("{\"z\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,3],\"data_offsets\":[4,10]},"
                  "\"e\":{\"dtype\":\"I64\",\"shape\":[0],\"data_offsets\":[4,4]},"
                  "\"y\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}    ",
                  6 + 4, &s, &e),
        0);
    assert_int_equal(st_count(s), 3);
    assert_string_equal(st_at(s, 0)->name, "y");
    assert_string_equal(st_at(s, 1)->name, "e");
    assert_string_equal(st_at(s, 2)->name, "z");
    assert_false(st_at(s, 2)->usable);
    float w[6];
    assert_int_equal(st_decode(st_at(s, 2), 0, 2, w, &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "F8_E4M3"));
    st_close(s);
    assert_int_equal(open_text("{}", 0, &s, &e), 0);
    assert_int_equal(st_count(s), 0);
    st_close(s);
    st_close(NULL);
    st_writer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_file, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(shards, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(nothing_there, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(writes_are_atomic, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(misuse_of_the_writer, make_dir, remove_dir),
        cmocka_unit_test(malformed),
        cmocka_unit_test(listed_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
