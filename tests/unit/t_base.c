/* src/base: errors, buffers, files, UTF-8, JSON text, hashes, Philox, options. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/conf.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "base/philox.h"
#include "base/utf8.h"

static void philox_known_answers(void **state)
{
    (void)state;
    const struct {
        uint32_t ctr[4], key[2], want[4];
    } t[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        uint32_t out[4];
        philox4x32(t[i].ctr, t[i].key, out);
        assert_memory_equal(out, t[i].want, sizeof out);
    }
}

static void sha256_known_answer(void **state)
{
    (void)state;
    uint8_t d[SHA256_BYTES];
    char hex[SHA256_HEX];
    sha256_of("abc", 3, d);
    hex_of(d, sizeof d, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void utf8_boundaries(void **state)
{
    (void)state;
    const struct {
        const char *s;
        int want;
        uint32_t cp;
    } t[] = {
        {"A", 1, 'A'},
        {"\xC3\xA9", 2, 0xE9},
        {"\xE2\x82\xAC", 3, 0x20AC},
        {"\xF0\x9F\x98\x80", 4, 0x1F600},
        {"\xC0\x80", 0, 0},
        {"\xE0\x80\x80", 0, 0},
        {"\xED\xA0\x80", 0, 0},
        {"\xF4\x90\x80\x80", 0, 0},
        {"\xE2\x82", -1, 0},
        {"\xF0\x9F", -1, 0},
        {"\x80", 0, 0},
        {"\xFF", 0, 0},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        uint32_t cp = 0;
        assert_int_equal(utf8_decode(t[i].s, strlen(t[i].s), &cp), t[i].want);
        if (t[i].want > 0) {
            assert_int_equal(cp, t[i].cp);
            char out[4];
            assert_int_equal(utf8_put(cp, out), t[i].want);
            assert_memory_equal(out, t[i].s, (size_t)t[i].want);
        }
    }
    assert_int_equal(utf8_complete_prefix("ab\xE2\x82", 4), 2);
    assert_int_equal(utf8_complete_prefix("ab\xE2\x82\xAC", 5), 5);
    assert_int_equal(utf8_complete_prefix("\xFF\xFF", 2), 2);
    struct buf b = BUF_INIT;
    utf8_sanitize("a\xE2\x82z\xFF\xF0\x9F\x98", 8, &b);
    assert_string_equal(b.data, "a\xEF\xBF\xBDz\xEF\xBF\xBD\xEF\xBF\xBD");
    buf_free(&b);
}

static void utf8_clusters(void **state)
{
    (void)state;
    /* a family of three joined by zero-width joiners is one cluster */
    const char *fam = "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7";
    assert_int_equal(utf8_cluster_len(fam, strlen(fam)), strlen(fam));
    assert_int_equal(utf8_cluster_len_back(fam, strlen(fam)), strlen(fam));
    assert_int_equal(utf8_cluster_len("e\xCC\x81x", 4), 3);
    assert_int_equal(utf8_cluster_len_back("xe\xCC\x81", 4), 3);
    assert_int_equal(utf8_cells(0x4E00), 2);
    assert_int_equal(utf8_cells(0x301), 0);
    assert_int_equal(utf8_cells('a'), 1);
    assert_int_equal(utf8_cells(7), -1);
}

static void json_numbers_like_python(void **state)
{
    (void)state;
    const struct {
        double x;
        const char *want;
    } t[] = {{1.0, "1.0"},
             {0.1, "0.1"},
             {1e16, "1e+16"},
             {1e-5, "1e-05"},
             {123456.789, "123456.789"},
             {-2.5, "-2.5"},
             {1e15, "1000000000000000.0"},
             {0.0001, "0.0001"},
             {0.0, "0.0"},
             {1.5e300, "1.5e+300"}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct buf b = BUF_INIT;
        json_t *v = json_real(t[i].x);
        json_write_spaced(v, &b);
        assert_string_equal(b.data, t[i].want);
        json_decref(v);
        buf_free(&b);
    }
}

static void json_refuses(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    json_t *v = NULL;
    assert_int_equal(json_parse("{\"a\":1,\"a\":2}", 13, "x", &v, &e), QE_FORMAT);
    assert_int_equal(json_parse("{", 1, "x", &v, &e), QE_FORMAT);
    assert_null(strchr(e.msg, '\n'));
    assert_int_equal(json_parse("{\"n\": 70000}", 12, "x", &v, &e), 0);
    int64_t n = 0;
    assert_int_equal(json_get_int(v, "n", true, 0, 65535, &n, &e), QE_FORMAT);
    assert_non_null(strstr(e.msg, "65535"));
    assert_int_equal(json_get_int(v, "m", true, 0, 1, &n, &e), QE_FORMAT);
    assert_int_equal(json_get_int(v, "m", false, 0, 1, &n, &e), 0);
    json_decref(v);
}

static char *temp_dir(void)
{
    char *d = mem_strdup("/tmp/quasar-test-XXXXXX");
    assert_non_null(mkdtemp(d));
    return d;
}

static void atomic_write_survives_faults(void **state)
{
    (void)state;
    char *dir = temp_dir();
    char *path = io_join(dir, "f");
    for (unsigned n = 0; n < 9; n++) {
        struct err e = ERR_INIT;
        struct tmp_out t = TMP_OUT_INIT;
        io_fault_set(n, ENOSPC);
        int rc = tmp_out_create(&t, path, 0600, &e);
        if (rc == 0) {
            rc = io_write_all(t.fd, "hello", 5, path, &e);
        }
        if (rc == 0) {
            rc = tmp_out_commit(&t, path, &e);
        }
        tmp_out_fini(&t);
        io_fault_set(0, 0);
        struct buf b = BUF_INIT;
        int got = io_read_file(path, 100, &b, &e);
        if (rc == 0) {
            assert_int_equal(got, 0);
        }
        if (got == 0) {
            assert_string_equal(b.data, "hello"); /* whole, or not there */
        }
        buf_free(&b);
        unlink(path);
    }
    assert_int_equal(rmdir(dir), 0); /* no temporary file is left */
    free(path);
    free(dir);
}

static const struct conf_opt table[] = {
    {"alpha", 'a', CONF_INT, "5", 1, 9, "auto", 1, "N", "a number", false},
    {"beta", 0, CONF_FLAG, "no", 1, 0, NULL, 1, NULL, "a switch", false},
    {"gamma", 0, CONF_LIST, NULL, 1, 0, NULL, 1, "S", "words", false},
    {"delta", 0, CONF_ENUM, "x", 1, 0, "x|y", 3, "E", "a choice", false},
    {"epsilon", 0, CONF_INT, NULL, 0, 0x1p63, NULL, 1, "N", "any number", false},
    {"zeta", 0, CONF_INT, NULL, 0, 0x1p53, NULL, 1, "N", "a large one", false},
    {"eta", 0, CONF_SIZE, "auto", 1, 0, "auto", 1, "SIZE", "bytes", false},
    {NULL, 0, CONF_FLAG, NULL, 1, 0, NULL, 0, NULL, NULL, false},
};

static void pairs_of_settings(void **state)
{
    (void)state;
    static const struct conf_opt rows[] = {
        {"bind", 0, CONF_PAIRS, NULL, 1, 0, NULL, 1, "A=B", "pairs", false},
        {NULL, 0, CONF_FLAG, NULL, 1, 0, NULL, 0, NULL, NULL, false},
    };
    char path[] = "/tmp/quasar-pairs-XXXXXX";
    const int fd = mkstemp(path);
    static const char text[] = "# c\nbind.find = ^F, / # c\nbind.a.b = \"#\"\nbind.find=x\n";
    assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
    struct conf *c = conf_create(rows);
    struct err e = ERR_INIT;
    char *args[4];
    char words[3][16] = {"--bind", "find = =", "--bind=a=1"};
    char *argv[3] = {words[0], words[1], words[2]};
    int n = 0;
    assert_int_equal(conf_parse_args(c, 1, 3, argv, &n, args, &e), 0);
    assert_int_equal(conf_load_file(c, path, false, &e), 0);
    const char *const want[5][2] = {
        {"find", "^F, /"}, {"a.b", "#"}, {"find", "x"}, {"find", "="}, {"a", "1"}};
    assert_int_equal(conf_pairs_len(c, "bind"), 5);
    for (size_t i = 0; i < 5; i++) {
        const struct conf_pair p = conf_pair_at(c, "bind", i);
        char where[80];
        snprintf(where, sizeof where, "%s:%d", path, (int)i + 2);
        assert_string_equal(p.key, want[i][0]);
        assert_string_equal(p.value, want[i][1]);
        assert_string_equal(p.where, i < 3 ? where : "--bind");
    }
    char bad[] = "--bind=x";
    argv[0] = bad;
    assert_int_equal(conf_parse_args(c, 1, 1, argv, &n, args, &e), QE_USAGE);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, "bind = x\n", 9, 0), 9);
    assert_int_equal(conf_load_file(c, path, false, &e), QE_USAGE);
    close(fd);
    unlink(path);
    conf_free(c);
}

static void options_precedence(void **state)
{
    (void)state;
    struct conf *c = conf_create(table);
    struct err e = ERR_INIT;
    char *args[8];
    int n = 0;
    char words[7][10] = {"--alpha=7", "word", "--beta", "--gamma", "p", "--gamma", "q"};
    char *argv[7];
    for (int i = 0; i < 7; i++) {
        argv[i] = words[i];
    }
    assert_int_equal(conf_parse_args(c, 1, 7, argv, &n, args, &e), 0);
    assert_int_equal(n, 1);
    setenv("QUASAR_ALPHA", "3", 1);
    setenv("QUASAR_DELTA", "y", 1);
    assert_int_equal(conf_load_env(c, &e), 0);
    unsetenv("QUASAR_ALPHA");
    unsetenv("QUASAR_DELTA");
    assert_int_equal(conf_int(c, "alpha", 0), 7);
    assert_string_equal(conf_str(c, "delta"), "y");
    assert_string_equal(conf_origin_text(c, "delta"), "environment");
    assert_true(conf_flag(c, "beta"));
    assert_int_equal(conf_list_len(c, "gamma"), 2);
    assert_string_equal(conf_list_at(c, "gamma", 1), "q");
    conf_free(c);
}

static void options_refuse(void **state)
{
    (void)state;
    const struct {
        const char *arg, *want;
    } t[] = {{"--alpha=12", "outside 1 to 9"},
             {"--alpha=x", "whole number"},
             {"--epsilon=9223372036854775808", "is more than 9223372036854775807"},
             {"--epsilon=-1", "-1 is less than 0"},
             {"--epsilon=-99999999999999999999", "is less than 0"},
             {"--zeta=9007199254740993000", "is more than 9007199254740992"},
             {"--alpha=99999999999999999999", "outside 1 to 9"},
             {"--alpa=1", "--alpha"},
             {"--delta=z", "x|y"},
             {"--alpha", "needs a value"},
             {"--eta=20X", "\"20X\" is no size such as 800M or 20G, nor auto"},
             {"--eta=-1", "is no size"},
             {"--eta=", "is no size"},
             {"--eta=1GG", "is no size"},
             {"--eta=1e18", "is no size"},
             {"--eta=nan", "is no size"},
             {"-z", "no option"},
             {"--beta=maybe", "neither"},
             {"--zzzzzzz", "no option"},
             {"-\xC3\xA9x", "-\xC3\xA9 here"},
             {"--lph", "--help lists"}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct conf *c = conf_create(table);
        struct err e = ERR_INIT;
        char *argv[1] = {(char *)(uintptr_t)t[i].arg};
        char *args[1];
        int n = 0;
        assert_int_equal(conf_parse_args(c, 1, 1, argv, &n, args, &e), QE_USAGE);
        assert_non_null(strstr(e.msg, t[i].want));
        conf_free(c);
    }
}

static void sizes(void **state)
{
    (void)state;
    const struct {
        const char *text;
        uint64_t want;
    } t[] = {{"auto", 77},
             {"0", 0},
             {"1048576", 1048576},
             {"4K", 4096},
             {"1.5M", 1572864},
             {"20G", UINT64_C(20) << 30},
             {"2T", UINT64_C(2) << 40}};
    struct conf *c = conf_create(table);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_int_equal(conf_set(c, "eta", t[i].text, CONF_ARG, NULL), 0);
        assert_int_equal(conf_size(c, "eta", 77), t[i].want);
    }
    conf_free(c);
}

/* Whatever is formatted in, a message stays one line without control codes. */
static void errors_are_one_line(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_int_equal(err_set(&e, QE_FORMAT, "name %s", "a\n\x1B[2J\x7F\xC2\x9B\xC3\xA9\t"),
                     QE_FORMAT);
    assert_string_equal(e.msg, "name a??[2J???\xC3\xA9?");
    assert_int_equal(err_wrap(&e, QE_IO, "file\r"), QE_IO);
    assert_string_equal(e.msg, "file?: name a??[2J???\xC3\xA9?");
    /* bytes that are no UTF-8, also at the end */
    err_set(&e, QE_IO, "%s", "\xFF\xC3\xA9\xED\xA0\x80\xC3");
    assert_string_equal(e.msg, "?\xC3\xA9????");
    /* a character that the limit cuts in two goes */
    char name[ERR_MSG_MAX + 8];
    memset(name, 'x', sizeof name);
    memcpy(name + ERR_MSG_MAX - 3, "\xE2\x82\xAC", 4);
    err_set(&e, QE_IO, "%s", name);
    assert_int_equal(strlen(e.msg), ERR_MSG_MAX - 3);
    assert_int_equal(e.msg[ERR_MSG_MAX - 4], 'x');
}

/* Without a home, settings are not looked for where anyone could put them. */
static void folders_without_home(void **state)
{
    (void)state;
    char *home = getenv("HOME") ? strdup(getenv("HOME")) : NULL;
    char *xdg = getenv("XDG_CONFIG_HOME") ? strdup(getenv("XDG_CONFIG_HOME")) : NULL;
    setenv("XDG_CONFIG_HOME", "relative", 1);
    setenv("HOME", "/some/home", 1);
    char *dir = io_xdg_config();
    assert_string_equal(dir, "/some/home/.config/quasar");
    free(dir);
    setenv("XDG_CONFIG_HOME", "/conf", 1);
    dir = io_xdg_config();
    assert_string_equal(dir, "/conf/quasar");
    free(dir);
    unsetenv("XDG_CONFIG_HOME");
    unsetenv("HOME");
    const struct passwd *pw = getpwuid(getuid());
    struct buf want = BUF_INIT;
    buf_printf(&want, "%s/.config/quasar", pw ? pw->pw_dir : "/dev/null");
    dir = io_xdg_config();
    assert_string_equal(dir, want.data);
    free(dir);
    buf_free(&want);
    if (home) {
        setenv("HOME", home, 1);
    }
    if (xdg) {
        setenv("XDG_CONFIG_HOME", xdg, 1);
    }
    free(home);
    free(xdg);
}

/* A pipe without a writer is refused, not waited for. */
static void mapped_bytes_are_read_from_the_file(void **state)
{
    (void)state;
    char path[] = "/tmp/quasar-base-XXXXXX";
    char out[3000], outside[10] = "outside";
    struct err e = ERR_INIT;
    struct io_map m;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (int i = 0; i < 10000; i++) {
        const char c = (char)(i * 7 % 251);
        assert_int_equal(write(fd, &c, 1), 1);
    }
    assert_int_equal(io_map_open(&m, path, &e), 0);
    for (size_t at = 0; at + sizeof out <= m.size; at += 1750) {
        assert_true(io_map_copy(&m, out, m.data + at, sizeof out));
        assert_memory_equal(out, m.data + at, sizeof out);
    }
    assert_true(io_map_copy(&m, out, outside, sizeof outside));
    assert_string_equal(out, "outside");
    assert_true(io_map_copy(NULL, out, outside, sizeof outside));
    assert_int_equal(ftruncate(fd, 5000), 0);
    assert_true(io_map_copy(&m, out, m.data + 2000, 3000));
    assert_false(io_map_copy(&m, out, m.data + 2001, 3000));
    io_map_close(&m);
    close(fd);
    unlink(path);
}

static void pipes_are_not_mapped(void **state)
{
    (void)state;
    char dir[] = "/tmp/quasar-base-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *path = io_join(dir, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    struct io_map m;
    struct err e = ERR_INIT;
    alarm(10);
    assert_int_equal(io_map_open(&m, path, &e), QE_IO);
    alarm(0);
    assert_non_null(strstr(e.msg, "not a regular file"));
    /* nor read, unless the user may have meant it */
    struct buf b = BUF_INIT;
    e.msg[0] = 0;
    alarm(10);
    assert_int_equal(io_read_file(path, 100, &b, &e), QE_IO);
    assert_non_null(strstr(e.msg, "pipe is not a regular file"));
    const int both = open(path, O_RDWR);
    assert_int_equal(io_read_file(path, 100, &b, NULL), QE_IO);
    assert_int_equal(io_read_file(dir, 100, &b, &e), QE_IO);
    assert_non_null(strstr(e.msg, " is a folder"));
    assert_int_equal(io_map_open(&m, dir, &e), QE_IO);
    assert_non_null(strstr(e.msg, " is a folder"));
    assert_int_equal(io_read_file("/dev/null", 100, &b, NULL), 0);
    assert_int_equal(b.len, 0);
    char name[40];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "piped", 5), 5);
    close(ends[1]);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    assert_int_equal(io_read_stream(name, 100, &b, NULL), 0);
    alarm(0);
    assert_string_equal(b.data, "piped");
    buf_free(&b);
    close(ends[0]);
    close(both);
    /* nor is one replaced by a file */
    struct tmp_out t = TMP_OUT_INIT;
    assert_int_equal(tmp_out_create(&t, path, 0600, &e), QE_IO);
    assert_non_null(strstr(e.msg, "a device or a pipe"));
    tmp_out_fini(&t);
    unlink(path);
    rmdir(dir);
    free(path);
}

/* Every E4M3 value comes back, what lies between two goes to the nearer one (a tie
 * to the even code), and what is too large becomes the largest. */
static void fp8_rounds_to_nearest(void **state)
{
    (void)state;
    for (int c = 0; c < 0x7F; c++) {
        const float v = f8_to_f32((uint8_t)c);
        assert_int_equal(f32_to_f8(v), c);
        assert_int_equal(f32_to_f8(-v), c | 0x80);
        if (c < 0x7E) {
            const float next = f8_to_f32((uint8_t)(c + 1)), mid = (v + next) / 2;
            assert_true(v < next);
            assert_int_equal(f32_to_f8(mid), c + c % 2);
            assert_int_equal(f32_to_f8(nextafterf(mid, 0)), c);
            assert_int_equal(f32_to_f8(nextafterf(mid, 1000)), c + 1);
        }
    }
    assert_true(f8_to_f32(0x7E) == 448 && f8_to_f32(0x01) == 0x1p-9F);
    assert_int_equal(f32_to_f8(464), 0x7E);
    assert_int_equal(f32_to_f8(-INFINITY), 0xFE);
    assert_true(isnan(f8_to_f32(f32_to_f8(NAN))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_one_line),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(sha256_known_answer),
        cmocka_unit_test(utf8_boundaries),
        cmocka_unit_test(utf8_clusters),
        cmocka_unit_test(json_numbers_like_python),
        cmocka_unit_test(json_refuses),
        cmocka_unit_test(atomic_write_survives_faults),
        cmocka_unit_test(pairs_of_settings),
        cmocka_unit_test(options_precedence),
        cmocka_unit_test(options_refuse),
        cmocka_unit_test(sizes),
        cmocka_unit_test(folders_without_home),
        cmocka_unit_test(pipes_are_not_mapped),
        cmocka_unit_test(mapped_bytes_are_read_from_the_file),
        cmocka_unit_test(fp8_rounds_to_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
