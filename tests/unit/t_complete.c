/* tui/complete: words behind commands, and where a file's name is expected. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "tui/complete.h"

static const struct key_action *command(const char *name)
{
    const char *near = NULL;
    const struct key_action *c = keys_command(name, strlen(name), &near);
    assert_non_null(c);
    return c;
}

static void offers(const char *name, const char *args, size_t at, const char *want)
{
    const char *words[COMPLETE_MOST];
    struct buf got = BUF_INIT;
    size_t from = 99;
    const size_t n = complete_words(command(name), args, words, &from);
    for (size_t i = 0; i < n; i++) {
        buf_printf(&got, "%s%s", i ? " " : "", words[i]);
    }
    buf_addc(&got, 0);
    assert_string_equal(got.data, want);
    if (n > 0) {
        assert_int_equal(from, at);
    }
    buf_free(&got);
}

static void words_behind_commands(void **state)
{
    (void)state;
    offers("/think", "", 0, "on off default budget show hide");
    offers("/think", "o", 0, "on off");
    offers("/think", "  s", 2, "show");
    offers("/think", "on ", 3, "");
    offers("/set", "t", 0, "temp top-k top-p think think-budget theme");
    offers("/set", "editor ", 7, "emacs vi");
    offers("/set", "editor v", 7, "vi");
    offers("/set", "editor vi x", 10, "");
    offers("/set", "temp ", 5, "");
    offers("/export", "md", 0, "md");
    offers("/export", "md -", 3, "--last");
    offers("/listen", "", 0, "on off");
    offers("/quit", "", 0, "");
}

/* Every key of /set says what it is. */
static void meanings(void **state)
{
    const char *words[COMPLETE_MOST];
    size_t from = 0;
    (void)state;
    const size_t n = complete_words(command("/set"), "", words, &from);
    assert_true(n > 15);
    for (size_t i = 0; i < n; i++) {
        assert_non_null(complete_meaning(command("/set"), words[i]));
    }
    assert_null(complete_meaning(command("/set"), "nothing"));
    assert_null(complete_meaning(command("/think"), "on"));
}

static void files_behind_commands(void **state)
{
    (void)state;
    size_t from = 0;
    assert_true(complete_takes_file(command("/attach"), " a b", &from));
    assert_int_equal(from, 1);
    assert_true(complete_takes_file(command("/system"), "@x", &from));
    assert_int_equal(from, 1);
    assert_false(complete_takes_file(command("/system"), "You are", &from));
    assert_true(complete_takes_file(command("/export"), "md  out", &from));
    assert_int_equal(from, 4);
    assert_false(complete_takes_file(command("/export"), "md", &from));
    assert_false(complete_takes_file(command("/export"), "md --last", &from));
    assert_false(complete_takes_file(command("/new"), "x", &from));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_behind_commands),
        cmocka_unit_test(meanings),
        cmocka_unit_test(files_behind_commands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
