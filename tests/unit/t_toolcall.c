/* Tool calls in model output: well formed, drifted, hostile; cut anywhere. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/jsonio.h"
#include "tokenizer/toolcall.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},"
    "\"n\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},"
    "\"a\":{\"type\":\"array\"},\"z\":{\"type\":[\"string\",\"null\"]},"
    "\"u\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]},\"e\":{\"enum\":[1,2]},"
    "\"x\":{}}}}},{\"name\":\"g\",\"input_schema\":{\"properties\":{\"i\":{\"type\":\"integer\"}}}}"
    "]";

static json_t *tools(void)
{
    json_t *t = NULL;
    assert_int_equal(json_parse(tools_text, strlen(tools_text), "tools", &t, NULL), 0);
    return t;
}

/* Texts as they are, calls as [[name arguments]]; checks that nothing is lost. */
static void take(struct toolcall *t, struct buf *out, struct buf *whole)
{
    struct toolcall_item it;
    while (toolcall_next(t, &it)) {
        buf_add(whole, it.text.data, it.text.len);
        if (it.is_call) {
            assert_true(json_is_object(it.arguments));
            buf_printf(out, "[[%s ", it.name);
            json_write(it.arguments, out);
            buf_adds(out, "]]");
        } else {
            buf_add(out, it.text.data, it.text.len);
        }
        toolcall_item_fini(&it);
    }
}

static void run(const char *s, size_t n, size_t step, size_t cut, struct buf *out)
{
    json_t *defs = tools();
    struct toolcall *t = toolcall_create(defs);
    json_decref(defs);
    struct buf whole = BUF_INIT;
    for (size_t i = 0; i < n;) {
        size_t k = step ? step : i == 0 && cut ? cut : n - i;
        k = k < n - i ? k : n - i;
        toolcall_feed(t, s + i, k);
        take(t, out, &whole);
        i += k;
    }
    toolcall_finish(t);
    take(t, out, &whole);
    assert_int_equal(whole.len, n);
    assert_true(n == 0 || memcmp(whole.data, s, n) == 0);
    buf_free(&whole);
    toolcall_free(t);
}

static void expect(const char *s, const char *want)
{
    size_t n = strlen(s);
    for (size_t cut = 0; cut < n; cut++) {
        struct buf out = BUF_INIT;
        run(s, n, 0, cut, &out);
        if (strcmp(out.data ? out.data : "", want) != 0) {
            fail_msg("cut at %zu:\n%s\ngives\n%s\nnot\n%s", cut, s, out.data, want);
        }
        buf_free(&out);
    }
    for (size_t step = 1; step < 20; step++) {
        struct buf out = BUF_INIT;
        run(s, n, step, 0, &out);
        assert_string_equal(out.data ? out.data : "", want);
        buf_free(&out);
    }
}

#define CALL(params) "<tool_call>\n<function=f>\n" params "</function>\n</tool_call>"
#define PAR(k, v)    "<parameter=" k ">\n" v "\n</parameter>\n"

static void well_formed(void **state)
{
    (void)state;
    expect("plain < text <tool", "plain < text <tool");
    expect("ok\n\n" CALL(PAR("s", "hello")), "ok\n\n[[f {\"s\":\"hello\"}]]");
    expect(CALL(""), "[[f {}]]");
    expect(CALL(PAR("s", "a")) "\n" CALL(PAR("i", "2")) " bye",
           "[[f {\"s\":\"a\"}]]\n[[f {\"i\":2}]] bye");
    expect(CALL(PAR("s", "\n two\nlines \n")), "[[f {\"s\":\"\\n two\\nlines \\n\"}]]");
    expect(CALL(PAR("s", "")), "[[f {\"s\":\"\"}]]");
    expect(CALL("<parameter=s>\n</parameter>\n"), "[[f {\"s\":\"\"}]]");
    expect(CALL("<parameter=s>x</parameter>"), "[[f {\"s\":\"x\"}]]");
    expect(CALL("<parameter=s>\r\nx\r\n</parameter>\r\n"), "[[f {\"s\":\"x\"}]]");
    expect(CALL(PAR("s", "日本") PAR("unknown", "1")), "[[f {\"s\":\"日本\",\"unknown\":\"1\"}]]");
}

static void conversion(void **state)
{
    (void)state;
    expect(CALL(PAR("s", "5") PAR("i", " 7 ") PAR("n", "2.5") PAR("b", "True")),
           "[[f {\"s\":\"5\",\"i\":7,\"n\":2.5,\"b\":true}]]");
    expect(CALL(PAR("i", "seven") PAR("n", "1e3") PAR("b", "yes")),
           "[[f {\"i\":\"seven\",\"n\":1000.0,\"b\":\"yes\"}]]");
    expect(CALL(PAR("i", "3.0") PAR("u", "null") PAR("e", "2")),
           "[[f {\"i\":3,\"u\":null,\"e\":2}]]");
    expect(CALL(PAR("i", "3.5") PAR("n", "4")), "[[f {\"i\":\"3.5\",\"n\":4}]]");
    expect(CALL(PAR("o", "{\"k\": [1, null]}") PAR("a", "[]")),
           "[[f {\"o\":{\"k\":[1,null]},\"a\":[]}]]");
    expect(CALL(PAR("o", "[1]") PAR("a", "{\"x\": ")),
           "[[f {\"o\":\"[1]\",\"a\":\"{\\\"x\\\": \"}]]");
    expect(CALL(PAR("s", "{\"k\": 1}") PAR("z", "null") PAR("x", "{\"k\": 1}")),
           "[[f {\"s\":\"{\\\"k\\\": 1}\",\"z\":null,\"x\":{\"k\":1}}]]");
    expect(CALL(PAR("x", "12") PAR("s", "null")), "[[f {\"x\":\"12\",\"s\":\"null\"}]]");
    expect("<tool_call>\n<function=g>\n" PAR("i", "12") "</function>\n</tool_call>",
           "[[g {\"i\":12}]]");
}

static void tags_in_values(void **state)
{
    (void)state;
    expect(CALL(PAR("s", "a </parameter> b")), "[[f {\"s\":\"a </parameter> b\"}]]");
    expect(CALL(PAR("s", "a\n</parameter>\nb") PAR("i", "1")),
           "[[f {\"s\":\"a\\n</parameter>\\nb\",\"i\":1}]]");
    expect(CALL(PAR("s", "x </function> y </tool_call> z")),
           "[[f {\"s\":\"x </function> y </tool_call> z\"}]]");
    expect(CALL(PAR("s", "x\n</parameter>\n</function>\nstill text")),
           "[[f {\"s\":\"x\\n</parameter>\\n</function>\\nstill text\"}]]");
    /* a whole call quoted in a value */
    expect(CALL(PAR("s", "see:\n" CALL(PAR("i", "1")) "\nend") PAR("i", "2")),
           "[[f {\"s\":\"see:\\n<tool_call>\\n<function=f>\\n<parameter=i>\\n1\\n</parameter>\\n"
           "</function>\\n</tool_call>\\nend\",\"i\":2}]]");
    expect(CALL(PAR("s", "say <parameter=k> inline")),
           "[[f {\"s\":\"say <parameter=k> inline\"}]]");
    /* one opened in a value and never closed there: decided at the end */
    expect(CALL(PAR("s", "\n<parameter=q>\nopen")) "\n" CALL(PAR("i", "3")),
           "[[f {\"s\":\"\\n<parameter=q>\\nopen\"}]]\n[[f {\"i\":3}]]");
}

static void drift(void **state)
{
    (void)state;
    expect("<function=f>\n" PAR("i", "1") "</function>", "[[f {\"i\":1}]]");
    expect("<function=f>\n" PAR("i", "1") "</function>\n</tool_call> x", "[[f {\"i\":1}]] x");
    expect("<function=f>\n" PAR("i", "1") "</function>\n\nbye", "[[f {\"i\":1}]]\n\nbye");
    expect("<tool_call>\n<function=\"f\">\n<parameter='i'>\n1\n</parameter>\n</function>\n</"
           "tool_call>",
           "[[f {\"i\":1}]]");
    expect("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"}\\\"\"}}\n</tool_call>.",
           "[[f {\"s\":\"}\\\"\"}]].");
    expect("<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"i\\\": 1}\"}</tool_call>",
           "[[f {\"i\":1}]]");
    expect("<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"two\nlines\"}}</tool_call>",
           "[[f {\"s\":\"two\\nlines\"}]]");
    expect("<tool_call>{\"name\": \"f\"} and on", "[[f {}]] and on");
    expect("<tool_call>\n<function=f>\n" PAR("i", "1") "</tool_call>", "[[f {\"i\":1}]]");
    expect("<tool_call>\n<function=f>\n" PAR("i", "1") "</function>\n" CALL(PAR("i", "2")),
           "[[f {\"i\":1}]]\n[[f {\"i\":2}]]");
    expect("<tool_call>\n<function=f>\n" PAR("i", "1") "</function>\n<function=g>\n" PAR(
               "i", "2") "</function>\n</tool_call>",
           "[[f {\"i\":1}]]\n[[g {\"i\":2}]]");
    expect("<tool_call>\n<function=f>\n" PAR("i", "1") "</function>", "[[f {\"i\":1}]]");
    expect("<tool_call>\n<function=f>\n<parameter=i>\n1\n<parameter=s>\nx\n</parameter>\n"
           "</function>\n</tool_call>",
           "[[f {\"i\":1,\"s\":\"x\"}]]");
    expect("<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>\n</tool_call>",
           "[[f {\"s\":\"x\"}]]");
    expect("<function=f>{\"i\": 4}</function>", "[[f {\"i\":4}]]");
}

static void not_calls(void **state)
{
    (void)state;
    static const char *const same[] = {
        "<tool_call> is a tag",
        "<tool_call>",
        "use <function=NAME> like so",
        "<function=>\n</function>",
        "<function=a\nb></function>",
        "<tool_call>{\"name\": 5}</tool_call>",
        "<tool_call>{\"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{broken}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arg",
        "<tool_call>\n<function=f>\n<parameter=s>\ncut off",
        "<tool_call>\n<function=f>\n" PAR("s", "cut off"),
        "</tool_call></function>",
        "<<<tool_call",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        expect(same[i], same[i]);
    }
    expect("<tool_call>no " CALL(PAR("i", "1")), "<tool_call>no [[f {\"i\":1}]]");
}

/* What is certain comes out at once. */
static void prompt_text(void **state)
{
    (void)state;
    struct toolcall *t = toolcall_create(NULL);
    struct buf out = BUF_INIT, whole = BUF_INIT;
    toolcall_feed(t, "hello <to", 9);
    take(t, &out, &whole);
    assert_string_equal(out.data, "hello ");
    toolcall_feed(t, "ast>", 4);
    take(t, &out, &whole);
    assert_string_equal(out.data, "hello <toast>");
    static const char call[] = CALL(PAR("k", "v"));
    toolcall_feed(t, call, strlen(call));
    take(t, &out, &whole);
    assert_string_equal(out.data, "hello <toast>[[f {\"k\":\"v\"}]]");
    buf_free(&out);
    buf_free(&whole);
    toolcall_free(t);
}

/* A megabyte of value, fed in small pieces, stays near linear. */
static void long_value(void **state)
{
    (void)state;
    static const char *const filler[] = {"<b>}</b> text\n", "</parameter>", "<function", "}}}}"};
    for (size_t f = 0; f < sizeof filler / sizeof *filler; f++) {
        struct buf in = BUF_INIT, out = BUF_INIT;
        buf_adds(&in, "<tool_call>\n<function=f>\n<parameter=s>\n");
        while (in.len < 300000) {
            buf_adds(&in, filler[f]);
        }
        buf_adds(&in, "\n</parameter>\n</function>\n</tool_call>");
        run(in.data, in.len, 4, 0, &out);
        assert_memory_equal(out.data, "[[f {\"s\":", 9);
        assert_true(out.len > 299000);
        buf_free(&in);
        buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(well_formed),    cmocka_unit_test(conversion),
        cmocka_unit_test(tags_in_values), cmocka_unit_test(drift),
        cmocka_unit_test(not_calls),      cmocka_unit_test(prompt_text),
        cmocka_unit_test(long_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
