/* tui/files: names for completion, in folders of every kind, and how they are quoted. */
#include "config.h"

#include <fcntl.h>
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

#include "tui/files.h"

static char dir[64];

static void make(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    const int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
}

/* The names that a path in the folder leads to, with blanks between. */
static void match(const char *path, const char *want)
{
    char whole[512];
    struct file_names f;
    struct err e = ERR_INIT;
    struct buf got = BUF_INIT;
    snprintf(whole, sizeof whole, "%s/%s", dir, path);
    assert_int_equal(files_match(whole, &f, &e), 0);
    for (size_t i = 0; i < f.n; i++) {
        buf_printf(&got, "%s%s", i ? "|" : "", f.v[i]);
    }
    buf_addc(&got, 0);
    assert_string_equal(got.data, want);
    buf_free(&got);
    file_names_free(&f);
}

/* Names that do not come out of a line as they went in are counted, not offered. */
static void names_that_cannot_be_typed(void **state)
{
    (void)state;
    static const char *const odd[] = {"odd\x1b[31m", "odd\nline", "odd\xC3", "odd\x7F"};
    char path[512];
    struct file_names f;
    for (size_t i = 0; i < 4; i++) {
        make(odd[i]);
    }
    make("odd \xC3\xBC");
    snprintf(path, sizeof path, "%s/odd", dir);
    assert_int_equal(files_match(path, &f, NULL), 0);
    assert_int_equal(f.left_out, 4);
    assert_int_equal(f.n, 1);
    assert_string_equal(f.v[0], "odd \xC3\xBC");
    file_names_free(&f);
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, odd[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/odd \xC3\xBC", dir);
    unlink(path);
}

static int prepare(void **state)
{
    (void)state;
    char path[512];
    snprintf(dir, sizeof dir, "/tmp/quasar-files-XXXXXX");
    if (!mkdtemp(dir)) {
        return -1;
    }
    snprintf(path, sizeof path, "%s/sub", dir);
    mkdir(path, 0700);
    make("lexer.c");
    make("lexer.h");
    make("two words.txt");
    make(".hidden");
    make("sub/inner");
    snprintf(path, sizeof path, "%s/loop", dir);
    assert_int_equal(symlink("loop", path), 0);
    snprintf(path, sizeof path, "%s/link", dir);
    assert_int_equal(symlink("sub", path), 0);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    char command[256];
    snprintf(command, sizeof command, "chmod -R u+rwx %s && rm -rf %s", dir, dir);
    return system(command);
}

static void names_in_a_folder(void **state)
{
    (void)state;
    match("lex", "lexer.c|lexer.h");
    match("", "lexer.c|lexer.h|link/|loop|sub/|two words.txt");
    match(".", ".hidden");
    match("lo", "loop"); /* a link that leads to itself is no folder, and no trouble */
    match("link/", "inner");
    match("nothing", "");
    setenv("HOME", dir, 1);
    struct file_names f;
    assert_int_equal(files_match("~/lexer.", &f, NULL), 0);
    assert_int_equal(f.n, 2);
    assert_int_equal(files_common(&f), 6);
    file_names_free(&f);
    char *path = files_expand("~/x y");
    assert_int_equal(strncmp(path, dir, strlen(dir)), 0);
    free(path);
}

static void folders_that_cannot_be_read(void **state)
{
    (void)state;
    struct file_names f;
    struct err e = ERR_INIT;
    char path[512];
    snprintf(path, sizeof path, "%s/none/x", dir);
    assert_int_equal(files_match(path, &f, &e), QE_NOTFOUND);
    assert_non_null(strstr(e.msg, "/none/"));
    snprintf(path, sizeof path, "%s/loop/x", dir);
    assert_int_equal(files_match(path, &f, &e), QE_IO);
    assert_int_equal(f.n, 0);
    snprintf(path, sizeof path, "%s/lexer.c/x", dir);
    assert_int_equal(files_match(path, &f, &e), QE_IO);
    if (geteuid() != 0) {
        snprintf(path, sizeof path, "%s/sub", dir);
        assert_int_equal(chmod(path, 0), 0);
        snprintf(path, sizeof path, "%s/sub/", dir);
        assert_int_equal(files_match(path, &f, &e), QE_IO);
        assert_non_null(strstr(e.msg, "Permission denied"));
    }
}

static void a_large_folder(void **state)
{
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s/many", dir);
    mkdir(path, 0700);
    const int n = getenv("QUASAR_LONG") ? 100000 : 3000;
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "many/file%06d", i);
        make(path);
    }
    struct file_names f;
    snprintf(path, sizeof path, "%s/many/", dir);
    assert_int_equal(files_match(path, &f, NULL), 0);
    assert_int_equal(f.n, FILES_MOST);
    assert_true(f.cut);
    file_names_free(&f);
    match("many/file00299", "file002990|file002991|file002992|file002993|file002994|file002995|"
                            "file002996|file002997|file002998|file002999");
}

static void quotes(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"a.c", "a.c"}, {"two words", "\"two words\""}, {"a\"b\\c", "\"a\\\"b\\\\c\""}, {"", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf word = BUF_INIT, back = BUF_INIT;
        buf_addc(&word, '@');
        files_quote(rows[i][0], false, &word);
        assert_int_equal(word.len, strlen(rows[i][1]) + 1);
        assert_memory_equal(word.data + 1, rows[i][1], word.len - 1);
        files_unquote(word.data, word.len, &back);
        assert_int_equal(back.len, strlen(rows[i][0]));
        assert_true(back.len == 0 || memcmp(back.data, rows[i][0], back.len) == 0);
        buf_free(&word);
        buf_free(&back);
    }
    struct buf b = BUF_INIT;
    files_unquote("@\"half an", 9, &b); /* while it is typed */
    assert_int_equal(b.len, 7);
    buf_free(&b);
    char *both[] = {(char *)"caf\xc3\xa9", (char *)"caf\xc3\xa8"};
    const struct file_names f = {.v = both, .n = 2};
    assert_int_equal(files_common(&f), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_cannot_be_typed),
        cmocka_unit_test(names_in_a_folder),
        cmocka_unit_test(folders_that_cannot_be_read),
        cmocka_unit_test(a_large_folder),
        cmocka_unit_test(quotes),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
