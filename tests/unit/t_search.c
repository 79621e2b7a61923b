/* Patterns, and where they are found in wrapped and ornamented rows. */
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

static void lay(struct text_rows *r, const char *text, int width)
{
    struct text_flow f = {0};
    struct text_prefix pre = {0};
    text_prefix_push(&pre, R_BORDER, "| ");
    text_flow_add(&f, R_TEXT, text, strlen(text), false);
    struct text_wrap w = {.width = width, .mode = WRAP_WORD, .first = &pre, .next = &pre};
    text_wrap(r, &f, &w);
    text_flow_free(&f);
}

static void test_rows(void **state)
{
    (void)state;
    struct text_rows r = {0};
    struct search_hits h = {0};
    lay(&r, "one two three\ntwo | x", 9);
    struct search *s = search_create("two", 3);
    search_rows(s, &r, &h);
    assert_int_equal(h.matches, 2);
    assert_int_equal(h.n, 2);
    for (size_t i = 0; i < h.n; i++) {
        assert_memory_equal(r.text.data + h.v[i].at, "two", 3);
    }
    search_free(s);
    search_hits_clear(&h);
    s = search_create("two three", 9); /* over the edge of a row */
    search_rows(s, &r, &h);
    assert_int_equal(h.matches, 1);
    assert_int_equal(h.n, 2);
    assert_true(h.v[0].first && !h.v[1].first);
    assert_int_equal(h.v[1].row, h.v[0].row + 1);
    assert_memory_equal(r.text.data + h.v[1].at, "three", 5);
    search_free(s);
    search_hits_clear(&h);
    s = search_create("\\|", 2); /* the edge itself is not text */
    search_rows(s, &r, &h);
    assert_int_equal(h.matches, 1);
    search_free(s);
    search_hits_free(&h);
    text_rows_free(&r);
}

/* At every width the same matches are found. */
static void test_widths(void **state)
{
    (void)state;
    static const char text[] = "The column drifts, because a tab is one column of 漢字 columns.\n"
                               "Another column\tafter a tab; nocolumnhere";
    struct search *s = search_create("column", 6);
    for (int width = 3; width <= 300; width++) {
        struct text_rows r = {0};
        struct search_hits h = {0};
        lay(&r, text, width);
        search_rows(s, &r, &h);
        assert_int_equal(h.matches, 5);
        size_t bytes = 0;
        for (size_t i = 0; i < h.n; i++) {
            assert_true(h.v[i].at >= r.rows[h.v[i].row].at);
            assert_true(h.v[i].at + h.v[i].len <= text_row_end(&r, h.v[i].row));
            bytes += h.v[i].len;
        }
        assert_int_equal(bytes, 30);
        search_hits_free(&h);
        text_rows_free(&r);
    }
    search_free(s);
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
