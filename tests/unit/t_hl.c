/* tui/hl: each line's pieces together are the line, in every language and state; and what the
 * common ones are coloured as. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "tui/hl.h"

/* A line's roles, a letter a byte. */
struct marks {
    struct buf out;
    const char *next;
};

static void mark(void *ctx, enum role role, const char *p, size_t n)
{
    static const char letters[R_COUNT] = {[R_CODE] = '.',    [R_KEYWORD] = 'k', [R_STRING] = 's',
                                          [R_COMMENT] = 'c', [R_GOOD] = '+',    [R_BAD] = '-'};
    struct marks *m = ctx;
    assert_ptr_equal(p, m->next);
    assert_true(n > 0);
    assert_true(letters[role] != 0);
    m->next = p + n;
    for (size_t i = 0; i < n; i++) {
        buf_addc(&m->out, letters[role]);
    }
}

static hl_state line(unsigned lang, hl_state s, const char *p, size_t n, struct buf *out)
{
    struct marks m = {BUF_INIT, p};
    s = hl_line(lang, s, p, n, mark, &m);
    assert_ptr_equal(m.next, p + n);
    buf_truncate(out, 0);
    buf_add(out, m.out.data ? m.out.data : "", m.out.len);
    buf_free(&m.out);
    return s;
}

/* Lines of code and their roles, alternating. */
static void check(const char *name, const char *const *rows)
{
    const unsigned lang = hl_language(name, strlen(name));
    hl_state s = 0;
    struct buf got = BUF_INIT;
    assert_true(lang > 0);
    for (; rows[0]; rows += 2) {
        s = line(lang, s, rows[0], strlen(rows[0]), &got);
        if (strcmp(got.data ? got.data : "", rows[1]) != 0) {
            fail_msg("%s:\n  %s\n  %s\n  %s (wanted)", name, rows[0], got.data, rows[1]);
        }
    }
    assert_int_equal(s, 0); /* nothing is left open */
    buf_free(&got);
}

#define CHECK(name, ...) check(name, (const char *const[]){__VA_ARGS__, NULL})

static void c_like(void **state)
{
    (void)state;
    CHECK("c", "static int x = 'a'; // z", "kkkkkk.kkk.....sss..cccc", /**/
          "#include <x.h>", "kkkkkkkk......",                          /**/
          "/* open", "ccccccc",                                        /**/
          "", "",                                                      /**/
          "still */ return", "cccccccc.kkkkkk",                        /**/
          "s = \"a\\\"b\" + \"open", "....ssssss...sssss",             /**/
          "int y;", "kkk...",                                          /**/
          "s = \"goes\\", "....ssssss",                                /**/
          "on\";", "sss.");
    CHECK("rust", "fn f<'a>(x: &'a str) { r#\"a\"b\"#; /* /* */ n */ 'c' }",
          "kk..............kkk....ssssssss..ccccccccccccc.sss..");
    CHECK("go", "s := `a", ".....ss", "b\\` + \"c\"", "sss...sss");
    CHECK("java", "@Override public int f() {}", "kkkkkkkkk.kkkkkk.kkk.......");
    CHECK("ts", "const s: string = `a ${b}", "kkkkk....kkkkkk...sssssss", "c`;", "ss.");
    CHECK("js", "async () => null // x", "kkkkk.......kkkk.cccc");
}

static void others(void **state)
{
    (void)state;
    CHECK("python", "@wraps", "kkkkkk", "def f(a):  # note", "kkk........cccccc", "    \"\"\"Doc",
          "....ssssss", "more 'it' \\\"\"\" x", "ssssssssssssssss", "\"\"\" + 'a'", "sss...sss");
    CHECK("sh", "for f in *; do echo \"$f\" # x", "kkk...kk....kk.kkkk.ssss.ccc", "a#b 'x",
          "....ss", "y'", "ss");
    CHECK("json", "  \"a\": [1, \"b\", true],", "kkkkk......sss..kkkk..");
    CHECK("yaml", "key: 'v' # c", "kkk..sss.ccc", "  - name: yes", "kkkkkkkk..kkk");
    CHECK("toml", "[a.b]", "kkkkk", "x = \"y\" # z", "kk..sss.ccc");
    CHECK("SQL", "SELECT a FROM t -- x", "kkkkkk...kkkk...cccc");
    CHECK("html", "<a href=\"x\">t</a> <!-- c", "kkkkkkkksssk.kkkk.cccccc", "d --> a < b",
          "ccccc......");
    CHECK("diff", "+a", "++", "-b", "--", " c", "..", "@@ -1 +1 @@", "kkkkkkkkkkk", "+++ b/x",
          "ccccccc");
    CHECK("make", "all: x $(Y)", "kkk........", "ifeq", "kkkk");
}

static void names(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        {"C", "c"},          {"cpp", "c++"},        {"py title=x", "python"},
        {"{.rust}", "rust"}, {"tsx", "typescript"}, {"bash", "sh"},
        {"yml", "yaml"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const unsigned a = hl_language(same[i][0], strlen(same[i][0]));
        assert_true(a > 0);
        assert_int_equal(a, hl_language(same[i][1], strlen(same[i][1])));
    }
    static const char *const none[] = {"", "text", "plain", "  ", "a-very-long-name-of-a-language"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(hl_language(none[i], strlen(none[i])), 0);
    }
    assert_int_equal(hl_language("c\0d", 3), hl_language("c", 1));
    struct buf got = BUF_INIT;
    assert_int_equal(line(0, 77, "if (x) /*", 9, &got), 0);
    assert_string_equal(got.data, ".........");
    assert_int_equal(line(9999, 1, "x", 1, &got), 0);
    buf_free(&got);
}

/* Any bytes, in any state: pieces that are the line; and the state of a cut text is the same as
 * the whole's, line by line. */
static void any_bytes(void **state)
{
    (void)state;
    static const char alphabet[] = "\"'`/*#-<>!r[]=: \\abif\n(){}@+\t\xc3\xa9\xff";
    uint64_t seed = 12345;
    struct buf got = BUF_INIT;
    for (int round = 0; round < 20000; round++) {
        char text[48];
        size_t n = 0;
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        for (uint64_t v = seed; n < (seed >> 60) * 3; n++) {
            v = v * 6364136223846793005U + 1;
            text[n] = alphabet[(v >> 33) % (sizeof alphabet - 1)];
        }
        const unsigned lang = (unsigned)(seed >> 20) % (HL_LANGUAGES + 2);
        const hl_state s = line(lang, (hl_state)(seed >> 8), text, n, &got);
        assert_int_equal(line(lang, s, "", 0, &got), line(lang, s, "", 0, &got));
    }
    buf_free(&got);
}

/* A hundred thousand lines, one after the other: the work does not grow with what came before. */
static void long_text(void **state)
{
    (void)state;
    struct buf got = BUF_INIT;
    hl_state s = 0;
    char *wide = mem_alloc(200000);
    memset(wide, '(', 200000);
    for (int i = 0; i < 100000; i++) {
        s = line(1, s, "    x = f(\"a\", 'b'); /* c", 25, &got);
        s = line(1, s, "*/", 2, &got);
    }
    assert_int_equal(s, 0);
    for (unsigned lang = 1; lang <= HL_LANGUAGES; lang++) {
        (void)line(lang, 0, wide, 200000, &got);
    }
    free(wide);
    buf_free(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c_like),    cmocka_unit_test(others),    cmocka_unit_test(names),
        cmocka_unit_test(any_bytes), cmocka_unit_test(long_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
