/* Patterns, and where they are found in text. */
#include "config.h"
#include "tui/search.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool finds(const char *pattern, const char *text)
{
    struct search *s = search_create(pattern, strlen(pattern));
    size_t at = 0;
    size_t len = 0;
    assert_non_null(s);
    bool found = search_next(s, text, strlen(text), 0, &at, &len);
    search_free(s);
    return found;
}

static void test_patterns(void **state)
{
    (void)state;
    assert_null(search_create("", 0));
    assert_true(finds("lexer", "The LEXER"));
    assert_false(finds("Lexer", "The lexer"));
    assert_true(finds("Lexer", "The Lexer"));
    assert_true(finds("\\Wlex", "The LEXER")); /* no letter in \W */
    assert_true(finds("ärger", "ÄRGER"));
    assert_false(finds("Ärger", "ärger"));
    assert_true(finds("f(o+)", "fooo"));
    assert_true(finds("call(", "a call(x)")); /* not valid: as it stands */
    assert_true(finds("[", "a[0]"));
    assert_false(finds("x*", "yyy")); /* nothing is no match */
    assert_true(finds("b", "\xff\xfe b"));
}

/* A pattern that explodes gives up. */
static void test_limit(void **state)
{
    (void)state;
    char text[4001];
    memset(text, 'a', 4000);
    text[4000] = 0;
    assert_false(finds("(a|aa)+b\\1?c", text));
}

static void test_lines(void **state)
{
    (void)state;
    static const char text[] = "one two three\ntwo | x\n\nthree";
    struct search_hits h = {0};
    struct search *s = search_create("two", 3);
    assert_int_equal(search_text(s, text, sizeof text - 1, &h), 2);
    assert_int_equal(h.n, 2);
    assert_int_equal(h.v[0].at, 4);
    assert_int_equal(h.v[1].at, 14);
    assert_int_equal(h.v[1].len, 3);
    assert_int_equal(search_text(s, text, sizeof text - 1, NULL), 2);
    search_free(s);
    s = search_create("^three$", 7); /* ends of lines */
    h.n = 0;
    assert_int_equal(search_text(s, text, sizeof text - 1, &h), 1);
    assert_int_equal(h.v[0].at, 23);
    search_free(s);
    s = search_create("three\\s+two", 11); /* not over them */
    assert_int_equal(search_text(s, text, sizeof text - 1, NULL), 0);
    search_free(s);
    search_hits_free(&h);
    assert_null(h.v);
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
