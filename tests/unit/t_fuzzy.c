/* tui/fuzzy: what fits, what fits better, and that equal ones keep their order. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tui/fuzzy.h"

static void better(const char *query, const char *a, const char *b)
{
    const int x = fuzzy_score(query, a), y = fuzzy_score(query, b);
    if (x <= y) {
        fail_msg("\"%s\": \"%s\" %d is not above \"%s\" %d", query, a, x, b, y);
    }
}

static void what_fits(void **state)
{
    (void)state;
    assert_int_equal(fuzzy_score("", "anything"), 0);
    assert_int_equal(fuzzy_score("  ", "anything"), 0);
    assert_int_equal(fuzzy_score("x", ""), -1);
    assert_int_equal(fuzzy_score("ba", "abc"), -1); /* not in order */
    assert_true(fuzzy_score("ac", "abc") > 0);
    assert_true(fuzzy_score("dis all", "all of it on disk") > 0); /* words in any order */
    assert_int_equal(fuzzy_score("dis none", "all of it on disk"), -1);
    /* smart case */
    assert_true(fuzzy_score("find", "Find TEXT") > 0);
    assert_int_equal(fuzzy_score("FIND", "find text"), -1);
    assert_true(fuzzy_score("T", "find TEXT") > 0);
    assert_true(fuzzy_score("gr\xc3\xbc", "Gr\xc3\xbc\xc3\x9f") > 0);
}

static void what_fits_better(void **state)
{
    (void)state;
    better("ex", "/export write the conversation", "the next message");
    better("nc", "new conversation", "once");              /* word starts */
    better("find", "find", "a fine indication");           /* together */
    better("copy", "copy the message", "copyright notes"); /* a whole word */
    better("set", "/set", "/sessions list");
    better("on", "on", "on and on and on it goes"); /* the shorter */
    better("ft", "findText", "shift");              /* camel case */
    better("abc", "abcx", "xabc");
}

static void order_is_stable(void **state)
{
    (void)state;
    struct fuzzy_hit h[100];
    for (size_t i = 0; i < 100; i++) {
        h[i] = (struct fuzzy_hit){i, (int)(i * 7 % 5)};
    }
    fuzzy_sort(h, 100);
    for (size_t i = 1; i < 100; i++) {
        assert_true(h[i - 1].score > h[i].score ||
                    (h[i - 1].score == h[i].score && h[i - 1].index < h[i].index));
    }
    fuzzy_sort(h, 0);
}

/* Long texts and queries are cut, not overrun. */
static void long_ones(void **state)
{
    (void)state;
    char text[2001], query[301];
    memset(text, 'a', 2000);
    text[2000] = 0;
    memset(query, 'a', 300);
    query[300] = 0;
    assert_true(fuzzy_score(query, text) > 0);
    text[1999] = 'z';
    assert_int_equal(fuzzy_score("z", text), -1); /* beyond what is looked at */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits),
        cmocka_unit_test(what_fits_better),
        cmocka_unit_test(order_is_stable),
        cmocka_unit_test(long_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
