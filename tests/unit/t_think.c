/* The thought's boundary and stop strings: the same for every way to cut. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/utf8.h"
#include "tokenizer/stop.h"
#include "tokenizer/think.h"

/* Feeds the text in pieces of step bytes, or cut once at -step. */
static void think_run(const char *s, size_t n, bool in_thought, int step, struct buf *thought,
                      struct buf *answer)
{
    struct think t;
    think_init(&t, in_thought);
    if (step <= 0) {
        size_t cut = (size_t)-step;
        think_feed(&t, s, cut, thought, answer);
        think_feed(&t, s + cut, n - cut, thought, answer);
    }
    for (size_t i = 0; step > 0 && i < n; i += (size_t)step) {
        size_t k = n - i < (size_t)step ? n - i : (size_t)step;
        think_feed(&t, s + i, k, thought, answer);
    }
    think_finish(&t, thought, answer);
    think_fini(&t);
}

static void think_cases(void **state)
{
    (void)state;
    static const struct {
        bool in_thought;
        const char *text, *thought, *answer;
    } c[] = {
        {true, "hm\n</think>\n\nYes", "hm\n", "Yes"},
        {true, "never closed", "never closed", ""},
        {true, "a</thi", "a</thi", ""},
        {true, "</think>", "", ""},
        {true, "a</think>\r\n\n  b\n</think>", "a", "  b\n</think>"},
        {true, "a < b </ </t </think >x</think>y", "a < b </ </t </think >x", "y"},
        {true, "<</think>z", "<", "z"},
        {false, "plain", "", "plain"},
        {false, "<think>\nr</think>\nout", "\nr", "out"},
        {false, " \n<think>r</think>out", "r", "out"},
        {false, " \n x", "", " \n x"},
        {false, "<thin", "", "<thin"},
        {false, "<thinking>", "", "<thinking>"},
        {false, "a<think>b</think>", "", "a<think>b</think>"},
        {false, "", "", ""},
        {false, "  ", "", "  "},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        size_t n = strlen(c[i].text);
        for (int step = -(int)n; step <= (int)n; step++) {
            struct buf th = BUF_INIT, an = BUF_INIT;
            think_run(c[i].text, n, c[i].in_thought, step, &th, &an);
            assert_string_equal(th.data ? th.data : "", c[i].thought);
            assert_string_equal(an.data ? an.data : "", c[i].answer);
            buf_free(&th);
            buf_free(&an);
        }
    }
}

static void think_prompt(void **state)
{
    (void)state;
    struct think t;
    struct buf th = BUF_INIT, an = BUF_INIT;
    think_init(&t, true);
    think_feed(&t, "abc</th", 7, &th, &an);
    assert_string_equal(th.data, "abc"); /* what is certain is out already */
    assert_true(think_inside(&t));
    think_feed(&t, "ink>", 4, &th, &an);
    assert_false(think_inside(&t));
    think_feed(&t, "\nok", 3, &th, &an);
    assert_string_equal(an.data, "ok");
    think_fini(&t);
    buf_free(&th);
    buf_free(&an);
}

struct stop_case {
    const char *stops[4];
    const char *text, *out;
    int which; /* -1: none */
};

static const struct stop_case stop_cases[] = {
    {{"STOP"}, "go STOP more", "go ", 0},
    {{"STOP"}, "go STO", "go STO", -1},
    {{"aab"}, "aaab", "a", 0},
    {{"abcX", "bc"}, "abcX", "a", 1},
    {{"c", "abc"}, "xabc", "x", 1},
    {{"\n\n", "###"}, "a\nb\n##c\n\nd", "a\nb\n##c", 0},
    {{"é"}, "caf\xC3\xA9 x", "caf", 0},
    {{"end"}, "日本語 end", "日本語 ", 0},
    {{"語"}, "日本語", "日本", 0},
    {{"x"}, "x", "", 0},
    {{"<|im_end|>", "</s>"}, "a<|im_</s>", "a<|im_", 1},
    {{NULL}, "nothing", "nothing", -1},
};

static void stop_splits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof stop_cases / sizeof *stop_cases; i++) {
        const struct stop_case *c = &stop_cases[i];
        size_t n_stops = 0, n = strlen(c->text);
        while (n_stops < 4 && c->stops[n_stops]) {
            n_stops++;
        }
        struct stop s;
        assert_int_equal(stop_init(&s, c->stops, n_stops, NULL), 0);
        for (size_t a = 0; a <= n; a++) {
            for (size_t b = a; b <= n; b++) {
                struct buf out = BUF_INIT;
                const size_t cut[4] = {0, a, b, n};
                for (size_t k = 0; k < 3; k++) {
                    stop_feed(&s, c->text + cut[k], cut[k + 1] - cut[k], &out);
                    assert_true(out.len == 0 || utf8_valid(out.data, out.len));
                }
                stop_finish(&s, &out);
                assert_string_equal(out.data ? out.data : "", c->out);
                assert_int_equal(s.hit, c->which >= 0);
                if (s.hit) {
                    assert_int_equal(s.which, c->which);
                }
                buf_free(&out);
                stop_reset(&s);
            }
        }
        stop_fini(&s);
    }
}

static void stop_holds_little(void **state)
{
    (void)state;
    const char *strings[] = {"STOP"};
    struct stop s;
    assert_int_equal(stop_init(&s, strings, 1, NULL), 0);
    struct buf out = BUF_INIT;
    assert_false(stop_feed(&s, "abcST", 5, &out));
    assert_string_equal(out.data, "abc");
    assert_false(stop_feed(&s, "x\xE6\x97", 3, &out));
    assert_string_equal(out.data, "abcSTx");
    assert_true(stop_feed(&s, "\xA5STOPs", 6, &out));
    assert_string_equal(out.data, "abcSTx日");
    assert_true(stop_feed(&s, "more", 4, &out));
    assert_string_equal(out.data, "abcSTx日");
    stop_fini(&s);
    buf_free(&out);
}

static void stop_refuses(void **state)
{
    (void)state;
    const char *bad[] = {"ok", ""}, *ill[] = {"\xff"};
    struct stop s;
    struct err e = ERR_INIT;
    assert_int_equal(stop_init(&s, bad, 2, &e), QE_USAGE);
    assert_non_null(strstr(e.msg, "empty"));
    assert_int_equal(stop_init(&s, ill, 1, &e), QE_USAGE);
    assert_non_null(strstr(e.msg, "UTF-8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(think_cases),  cmocka_unit_test(think_prompt),
        cmocka_unit_test(stop_splits),  cmocka_unit_test(stop_holds_little),
        cmocka_unit_test(stop_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
