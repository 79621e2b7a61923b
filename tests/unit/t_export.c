/* tui/export: a conversation in three forms, and the code of an answer, byte for byte. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tui/export.h"

static void say(struct transcript *t, const char *asked, const char *answer)
{
    struct buf b = BUF_INIT;
    buf_adds(&b, asked);
    transcript_user(t, "14:02", &b, &b);
    transcript_model(t, "14:03");
    transcript_at(t, 1772373780); /* its day too */
    transcript_text(t, answer, strlen(answer));
    transcript_end(t, R_DIM, "");
    buf_free(&b);
}

static void check(const struct transcript *t, enum export_form f, size_t last, const char *want)
{
    struct buf b = BUF_INIT;
    export_text(t, f, last, false, &b);
    buf_addc(&b, 0);
    assert_string_equal(b.data, want);
    buf_free(&b);
}

static void forms(void **state)
{
    (void)state;
    struct transcript *t = transcript_create();
    enum export_form f = EXPORT_MD;
    check(t, EXPORT_JSON, 0, "[]\n");
    check(t, EXPORT_MD, 0, "");
    say(t, "One?", "Yes.");
    transcript_notice(t, R_DIM, "not part of it");
    say(t, "Say \"\\\"\n\x01\xff", "No\n");
    check(t, EXPORT_MD, 1, "## You\n\nSay \"\\\"\n\x01\xff\n\n## Model\n\nNo\n\n");
    check(t, EXPORT_TXT, 9,
          "You:\nOne?\n\nModel:\nYes.\n\nYou:\nSay \"\\\"\n\x01\xff\n\nModel:\nNo\n\n");
    check(
        t, EXPORT_JSON, 1,
        "[{\"role\": \"user\", \"at\": \"14:02\", \"content\": \"Say \\\"\\\\\\\"\\n\\u0001\xEF\xBF"
        "\xBD\"},\n {\"role\": \"assistant\", \"at\": \"2026-03-01T14:03:00Z\", \"content\": "
        "\"No\\n\"}]\n");
    struct buf b = BUF_INIT;
    assert_int_equal(export_text(t, EXPORT_TXT, 0, false, &b), 4);
    transcript_select(t, -1);
    assert_int_equal(export_text(t, EXPORT_TXT, 0, true, &b), 1); /* the last message */
    buf_free(&b);
    assert_true(export_form_named("json", &f));
    assert_int_equal(f, EXPORT_JSON);
    assert_false(export_form_named("doc", &f));
    transcript_free(t);
}

static void code(const char *text, size_t number, const char *want)
{
    struct buf in = BUF_INIT, out = BUF_INIT;
    buf_adds(&in, text);
    const bool got = export_code(&in, number, &out);
    buf_addc(&out, 0);
    assert_int_equal(got, want != NULL);
    if (want) {
        assert_string_equal(out.data, want);
    }
    buf_free(&in);
    buf_free(&out);
}

static void code_of_an_answer(void **state)
{
    (void)state;
    static const char two[] = "a\n```c\nint x;\n\tif\n```\nb\n~~~~ sh\n```\n~~~\nls\n~~~~\nend\n";
    code(two, 0, "```\n~~~\nls\n");
    code(two, 1, "int x;\n\tif\n");
    code(two, 2, "```\n~~~\nls\n");
    code(two, 3, NULL);
    code("no code", 0, NULL);
    code("", 0, NULL);
    code("```\nopen", 0, "open\n");
    code("- x\n  ```\n  a\n    b\n  ```\n", 0, "a\n  b\n");
    code("> ```\n> q\n> ```\n", 0, "q\n");
    code("```a`` b ```\n", 0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms),
        cmocka_unit_test(code_of_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
