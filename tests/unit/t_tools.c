/* The recogniser: every shape of a call that models make, alone, in a wrapper and in batches,
 * whole and in pieces; and everything that must not become one. */
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
#include "tools/recogniser.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"run\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"cmd\":{\"type\":\"string\"},\"note\":{\"type\":\"string\"}},"
    "\"required\":[\"cmd\"]}}},"
    "{\"name\":\"open_file\",\"input_schema\":{\"properties\":{\"path\":{\"type\":\"string\"}},"
    "\"required\":[\"path\"]}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"put_file\",\"parameters\":{\"properties\":"
    "{\"path\":{\"type\":\"string\"},\"body\":{\"type\":\"string\"}},"
    "\"required\":[\"path\",\"body\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"swap_text\",\"parameters\":{\"properties\":"
    "{\"path\":{\"type\":\"string\"},\"old\":{\"type\":\"string\"},\"new\":{\"type\":\"string\"}},"
    "\"required\":[\"path\",\"old\",\"new\"]}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"set\",\"parameters\":{\"properties\":"
    "{\"i\":{\"type\":\"integer\"},\"n\":{\"type\":\"number\"},\"b\":{\"type\":\"boolean\"},"
    "\"o\":{\"type\":\"object\"},\"a\":{\"type\":\"array\"},\"z\":{\"type\":[\"string\",\"null\"]},"
    "\"u\":{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]},\"e\":{\"enum\":[1,2]},"
    "\"r\":{\"$ref\":\"#/$defs/k\"},\"x\":{},\"w\":true},\"$defs\":{\"k\":{\"type\":\"integer\"}}"
    "}}},{\"name\":\"bare\"},{\"name\":\"odd\",\"parameters\":{\"properties\":7,\"required\":{}}},"
    "{\"noname\":1},5]";

struct how {
    bool strict, declared, thought, cut;
};

static bool is_blank_text(const struct buf *b)
{
    for (size_t i = 0; i < b->len; i++) {
        if (!strchr(" \t\r\n", b->data[i])) {
            return false;
        }
    }
    return true;
}

static void put_text(struct buf *text, struct buf *out)
{
    if (!is_blank_text(text)) {
        size_t from = 0, to = text->len;
        while (strchr(" \t\r\n", text->data[from])) {
            from++;
        }
        while (strchr(" \t\r\n", text->data[to - 1])) {
            to--;
        }
        buf_add(out, text->data + from, to - from);
    }
    buf_truncate(text, 0);
}

/* Texts without white space around them, calls as [[name arguments]]; every byte must come back.
 * modes: of the calls, with a blank between. */
static void take(struct recogniser *r, struct buf *text, struct buf *out, struct buf *whole,
                 struct buf *modes)
{
    struct tool_item it;
    while (recogniser_next(r, &it)) {
        buf_add(whole, it.text.data, it.text.len);
        if (it.kind == TOOL_CALL) {
            put_text(text, out);
            assert_true(json_is_object(it.arguments));
            buf_printf(out, "[[%s ", it.name);
            json_write(it.arguments, out);
            buf_adds(out, "]]");
            buf_printf(modes, "%s%s", modes->len ? " " : "", it.mode);
        } else if (it.kind == TOOL_TEXT) {
            buf_add(text, it.text.data, it.text.len);
        }
        tool_item_fini(&it);
    }
}

static void run(const struct how *how, const char *s, size_t n, size_t step, struct buf *out,
                struct buf *modes)
{
    json_t *defs = NULL;
    assert_int_equal(json_parse(tools_text, strlen(tools_text), "tools", &defs, NULL), 0);
    const struct recogniser_opts o = {
        .tools = defs, .strict = how->strict, .declared = how->declared, .thought = how->thought};
    struct recogniser *r = recogniser_create(&o);
    json_decref(defs);
    struct buf whole = BUF_INIT, text = BUF_INIT;
    buf_adds(out, "");
    buf_adds(modes, "");
    for (size_t i = 0; i < n;) {
        const size_t k = step && step < n - i ? step : n - i;
        recogniser_feed(r, s + i, k);
        take(r, &text, out, &whole, modes);
        i += k;
    }
    recogniser_finish(r, how->cut);
    take(r, &text, out, &whole, modes);
    put_text(&text, out);
    assert_int_equal(whole.len, n);
    assert_true(n == 0 || memcmp(whole.data, s, n) == 0);
    buf_free(&whole);
    buf_free(&text);
    recogniser_free(r);
}

static int wrong; /* shapes that gave something else */

static void expect_how(const struct how *how, const char *mode, const char *s, const char *want)
{
    static const size_t steps[] = {0, 1, 5, 7};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct buf out = BUF_INIT, modes = BUF_INIT;
        run(how, s, strlen(s), steps[i], &out, &modes);
        const bool mode_good = !mode || strcmp(modes.data, mode) == 0;
        if (strcmp(out.data, want) != 0 || !mode_good) {
            print_error("pieces of %zu:\n%s\n gives\n%s\n not\n%s\n modes %s, not %s\n\n", steps[i],
                        s, out.data, want, modes.data, mode ? mode : "-");
            wrong++;
            i = sizeof steps / sizeof *steps;
        }
        buf_free(&out);
        buf_free(&modes);
    }
}

static void expect(const char *s, const char *want)
{
    expect_how(&(struct how){.strict = false}, NULL, s, want);
}

/* All of it is text. */
static void expect_same(const char *s)
{
    struct buf want = BUF_INIT;
    buf_adds(&want, s + strspn(s, " "));
    buf_truncate(&want, buf_trimmed(&want));
    buf_adds(&want, "");
    expect(s, want.data);
    buf_free(&want);
}

static void done(void)
{
    const int n = wrong;
    wrong = 0;
    assert_int_equal(n, 0);
}

/* ---- drift ---- */

#define LAST 1 /* only at the end, and not in a wrapper */
#define OPEN 2 /* has its wrapper */

static const struct shape {
    const char *mode, *text, *want;
    int how;
} shapes[] = {
    {"0a",
     "<tool_call>\n<function=run>\n<parameter=cmd>\npwd\n</parameter>\n</function>\n"
     "</tool_call>",
     "[[run {\"cmd\":\"pwd\"}]]", OPEN},
    {"0b", "<tool_call>\n{\"name\":\"run\",\"arguments\":{\"cmd\":\"pwd\"}}\n</tool_call>",
     "[[run {\"cmd\":\"pwd\"}]]", OPEN},
    {"0b",
     "<tool_call>{\"name\": \"run\", \"arguments\": \"{\\\"cmd\\\": \\\"w\\\"}\"}</tool_call>",
     "[[run {\"cmd\":\"w\"}]]", OPEN},
    {"1", "{\"name\":\"run\",\"arguments\":{\"cmd\":\"ls\"}}", "[[run {\"cmd\":\"ls\"}]]", 0},
    {"2", "{\"name\":\"run\",\"arguments\":{\"cmd\":\"du -s", "[[run {\"cmd\":\"du -s\"}]]", LAST},
    {"2", "{\"name\":\"put_file\",\"arguments\":{\"path\":\"a\",\"body\":\"x y\n</file>",
     "[[put_file {\"path\":\"a\",\"body\":\"x y\"}]]", LAST},
    {"3",
     "{\"name\":\"put_file\",\"arguments\":{\"path\":\"a\",\"body\":<content>x \"y\"</content>}}",
     "[[put_file {\"path\":\"a\",\"body\":\"x \\\"y\\\"\"}]]", 0},
    {"3", "{\"name\":\"put_file\",\"arguments\":{\"path\":\"a\",\"content\":\"x \"y\"</content>}}",
     "[[put_file {\"path\":\"a\",\"content\":\"x \\\"y\\\"\"}]]", 0},
    {"4", "{\"tool_call\":{\"name\":\"run\",\"arguments\":{\"cmd\":\"id\"}}}",
     "[[run {\"cmd\":\"id\"}]]", 0},
    {NULL, "{\"name\":\"run\",\"arguments\":{\"cmd\":\"a\nb\tc\"}}",
     "[[run {\"cmd\":\"a\\nb\\tc\"}]]", 0},
    {"6", "{\"name\":{\"path\":\"m.c\"}}", "[[open_file {\"path\":\"m.c\"}]]", 0},
    {"6", "{\"name\":\n{\"path\":\"m.c\"}", "[[open_file {\"path\":\"m.c\"}]]", 0},
    {"7", "{\"name\":{\"function\":{\"path\":\"m.c\"}}}", "[[open_file {\"path\":\"m.c\"}]]", 0},
    {"8", "{\"tool\":\"run\",\"parameters\":{\"cmd\":\"w\"}}", "[[run {\"cmd\":\"w\"}]]", 0},
    {"8", "{\"function\":\"run\",\"input\":{\"cmd\":\"w\"}}", "[[run {\"cmd\":\"w\"}]]", 0},
    {"8", "{\"tool_name\":\"run\",\"arguments\":{\"cmd\":\"w\"}}", "[[run {\"cmd\":\"w\"}]]", 0},
    {"9", "{\"name\":\"run\", arguments\":{\"cmd\":\"w\"}}", "[[run {\"cmd\":\"w\"}]]", 0},
    {"10", "open_file\", \"arguments\": {\"path\":\"q\"}}", "[[open_file {\"path\":\"q\"}]]", 0},
    {"10", "{\"name\":\"run\",\"cmd\":\"w\"}", "[[run {\"cmd\":\"w\"}]]", 0},
    {"11", "{\"name\":\"put_file\",\"arguments\":{\"path\":\"h.c\",\"body\":\"puts(\"hi\");\n\"}}",
     "[[put_file {\"path\":\"h.c\",\"body\":\"puts(\\\"hi\\\");\\n\"}]]", 0},
    {"11",
     "{\"name\":\"put_file\",\"arguments\":{\"path\":\"h.c\",\"body\":\"a\\tb \"q\" \\d\\n\"}}",
     "[[put_file {\"path\":\"h.c\",\"body\":\"a\\tb \\\"q\\\" \\\\d\\n\"}]]", 0},
    {"12", "{\"name\": run, \"arguments\":{\"cmd\":\"w\"}}", "[[run {\"cmd\":\"w\"}]]", 0},
    {"12", "{\"name\": run\", \"arguments\":{\"cmd\":\"w\"}}", "[[run {\"cmd\":\"w\"}]]", 0},
    {"13", "{\"name\":\"put_file\",\"arguments\":{\"path\":\"a\",\"body\":\"say \\\"hi\\",
     "[[put_file {\"path\":\"a\",\"body\":\"say \\\"hi\"}]]", LAST},
    {"14",
     "<tool_name>run</tool_name>\n<parameter=arguments>\n{\"cmd\":\"w\"}}\n</parameter>\n"
     "</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"14", "<tool_name>run</tool_name>\n<parameter=arguments>\n{\"cmd\":\"w\"}}",
     "[[run {\"cmd\":\"w\"}]]", LAST},
    {"15", "<name>run, \"arguments\":{\"cmd\":\"w\"}}", "[[run {\"cmd\":\"w\"}]]", 0},
    {"15", "<name=\"run\", \"arguments\":{\"cmd\":\"w\"}}", "[[run {\"cmd\":\"w\"}]]", 0},
    {"16", "<function>\n{\"name\":\"run\",\"arguments\":{\"cmd\":\"w\"}}\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"17",
     "{\"name\":\"put_file\",\n<parameter=path>\na\n</parameter>\n<parameter=body>\nz\n"
     "</parameter>\n</function>",
     "[[put_file {\"path\":\"a\",\"body\":\"z\"}]]", 0},
    {"17",
     "{\"name\":\"put_file\",\n<parameter=path>\na\n</parameter>\n<parameter=body>\nz\n"
     "</parameter>",
     "[[put_file {\"path\":\"a\",\"body\":\"z\"}]]", LAST},
    {"18", "<name>run\n</parameter>\n<parameter=cmd>\nw\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"18", "<name>\nrun\n<parameter=cmd>\nw\n</parameter>\n</function>", "[[run {\"cmd\":\"w\"}]]",
     0},
    {"19", "<function name=\"run\">\n<parameter=cmd>\nw\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"19", "<function name='run'>\n<parameter=cmd>\nw\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"19", "<function name=\"run>\n<parameter=cmd>\nw\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"20 20",
     "<tool_calls>\n<tool_name>\n<parameter=path>\na\n</parameter>\n</function>\n<tool>\n"
     "<tool_name>\n<parameter=path>\nb\n</parameter>\n</function>\n</tool_calls>",
     "[[open_file {\"path\":\"a\"}]][[open_file {\"path\":\"b\"}]]", 0},
    {"21", "<parameter=path>\na\n</parameter>\n<parameter=body>\nz\n</parameter>\n</function>",
     "[[put_file {\"path\":\"a\",\"body\":\"z\"}]]", 0},
    {"22", "<parameter=run>\n<parameter=cmd>\nw\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"23", "{\"cmd\":\"say \\\"hi\"\"}\n</parameter>\n</function>",
     "[[run {\"cmd\":\"say \\\"hi\\\"\"}]]", 0},
    {"u1", "<function=\"run\">\n<parameter=cmd>\nw\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"u1", "<function=Run>\n<parameter=cmd>\nw\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"u2", "<function=name>\nrun\n<parameter=cmd>\nw\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"u3", "<function=run>\n<parameter name=\"cmd\">\nw\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"20", "<tool_name>\n<parameter name=\"path\">\na\n</parameter>\n</function>",
     "[[open_file {\"path\":\"a\"}]]", 0},
    {NULL,
     "<function=run>\n<parameter=cmd>\nw\n</parameter>\n</function>\n<function=run>\n"
     "<parameter=cmd>\nv\n</parameter>\n</function>\n</tool_call>\n<function=run>\n"
     "<parameter=cmd>\nu\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]][[run {\"cmd\":\"v\"}]][[run {\"cmd\":\"u\"}]]", 0},
    {"u5", "<function=run>\n<parameter=cmd>\nw</tool_call>", "[[run {\"cmd\":\"w\"}]]", 0},
    {"u5", "<function=run>\n<parameter=cmd>\nw\n</parameter>\n</tool_call>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"u6", "<function=run>\n<parameter=cmd>\nw\n", "[[run {\"cmd\":\"w\"}]]", LAST},
    {"u7", "{\"name\":\"run\",\"arguments\":{\"cmd\":\"w\"}\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"u8", "{\"name\":\"run\",\"arguments>\n{\"cmd\":\"w\"}}", "[[run {\"cmd\":\"w\"}]]", 0},
    {"u9", "{\"function=open_file>\n<parameter=path>\na\n</parameter>\n</function>",
     "[[open_file {\"path\":\"a\"}]]", 0},
    {"u12",
     "<function>\n<parameter=name>\nrun\n</parameter>\n<parameter=cmd>\nw\n</parameter>\n"
     "</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"u13", "<parameter=function=run>\n<parameter=cmd>\nw\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"u14",
     "<function_calls>\n<invoke name=\"run\">\n<parameter name=\"cmd\">w</parameter>\n"
     "</invoke>\n</function_calls>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"20", "<tool_use>\n<invoke>\n<parameter name=\"path\">a</parameter>\n</invoke>\n</tool_use>",
     "[[open_file {\"path\":\"a\"}]]", 0},
    {"u14", "<tool_use name=\"run\">\n<parameter=cmd>\nw\n</parameter>\n</function>\n</tool_use>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"u15", "<parameter_name>open_file\n<parameter=path>\na\n</parameter>\n</function>",
     "[[open_file {\"path\":\"a\"}]]", 0},
    {"u16", ">\n<parameter name=\"cmd\">\nw\n</parameter>\n</function>", "[[run {\"cmd\":\"w\"}]]",
     0},
    {"0a 19 21",
     "<function=run>\n<parameter=cmd>\nw\n</parameter>\n</function>\n"
     "<function name=\"run\">\n<parameter=cmd>\nv\n</parameter>\n</function>\n"
     "<parameter=path>\na\n</parameter>\n<parameter=body>\nz\n</parameter>\n</function>",
     "[[run {\"cmd\":\"w\"}]][[run {\"cmd\":\"v\"}]][[put_file {\"path\":\"a\",\"body\":\"z\"}]]",
     0},
    {"u18",
     "<function=run>\n<parameter=cmd>\nw\n</parameter>\n</parameter>\nok then\n</function>\n"
     "</function>",
     "[[run {\"cmd\":\"w\"}]]", 0},
    {"u20", "<function=list_dir>\n<parameter=path>\na\n</parameter>\n</function>",
     "[[list_dir {\"path\":\"a\"}]]", 0},
};

static void repeat(struct buf *b, const char *s, int times)
{
    for (int i = 0; i < times; i++) {
        buf_printf(b, "%s%s", i ? "\n" : "", s);
    }
}

static void all_drift(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        struct buf in = BUF_INIT, want = BUF_INIT;
        expect_how(&(struct how){.strict = false}, s->mode, s->text, s->want);
        if (!(s->how & LAST)) {
            /* prose around it survives, and two are two */
            buf_printf(&in, "I look.\n\n%s\n\nDone <b>so</b>.", s->text);
            buf_printf(&want, "I look.%sDone <b>so</b>.", s->want);
            if (!(s->mode && (s->mode[0] == 'u' && strchr("5", s->mode[1])))) {
                expect(in.data, want.data);
            }
            for (int wrapped = 0; wrapped < 2; wrapped++) {
                buf_truncate(&in, 0);
                buf_truncate(&want, 0);
                buf_adds(&in, wrapped ? "<tool_call>\n" : "");
                repeat(&in, s->text, 2);
                buf_adds(&in, wrapped ? "\n</tool_call>" : "");
                buf_printf(&want, "%s%s", s->want, s->want);
                expect(in.data, want.data);
            }
            buf_truncate(&in, 0);
            buf_printf(&in, "<tool_call>\n%s\n</tool_call>", s->text);
            expect(in.data, s->want);
        } else {
            buf_printf(&in, "{\"name\":\"run\",\"arguments\":{\"cmd\":\"a\"}}\n%s", s->text);
            buf_printf(&want, "[[run {\"cmd\":\"a\"}]]%s", s->want);
            expect(in.data, want.data);
        }
        buf_free(&in);
        buf_free(&want);
    }
    done();
}

/* The same shapes as something that is shown. */
static void all_displayed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct buf in = BUF_INIT;
        buf_printf(&in, "So:\n```\n%s\n```\nEnd.", shapes[i].text);
        expect_same(in.data);
        buf_truncate(&in, 0);
        buf_printf(&in, "So:\n\n~~~xml\n%s\n~~~~\nEnd.", shapes[i].text);
        expect_same(in.data);
        buf_truncate(&in, 0);
        buf_printf(&in, "<result>\n%s", shapes[i].text);
        expect_same(in.data);
        if (!strchr(shapes[i].text, '\n')) {
            buf_truncate(&in, 0);
            buf_printf(&in, "Write `%s` so.", shapes[i].text);
            expect_same(in.data);
            buf_truncate(&in, 0);
            buf_printf(&in, "> %s", shapes[i].text);
            expect_same(in.data);
            buf_truncate(&in, 0);
            buf_printf(&in, "1. %s", shapes[i].text);
            expect_same(in.data);
        }
        buf_free(&in);
    }
    done();
}

/* ---- what is no call ---- */

static void refused(void **state)
{
    (void)state;
    static const char *const same[] = {
        "plain < text <tool and {braces} and {\"a\": 1}",
        "{\"name\": \"Bob\", \"age\": 3}",
        "[{\"name\": \"Bob\"}, {\"path\": \"x\"}]",
        "{\"path\": \"x\"}",
        "{\"path\": \"x\"} and so on",
        "He said \"<tool_call>\" and \"{\"name\":\"run\",\"arguments\":{\"cmd\":\"w\"}}\" aloud.",
        "The tag '<function=run>' begins one.",
        "The tag <function=run> begins one.",
        "<tool_call> is a tag.",
        "use <function=NAME> like so",
        "<function=>\n</function>x",
        "<function=a\nb></function>x",
        "    not\n\n    {\"name\":\"run\",\"arguments\":{\"cmd\":\"w\"}}",
        "- <tool_call>\n  <function=run>\n  <parameter=cmd>\n  w\n  </parameter>\n  </function>",
        "{\"text\": \"<tool_call>{\\\"name\\\":\\\"run\\\",\\\"arguments\\\":{}}</tool_call>\"}",
        "<tool_call>{\"name\": 5}",
        "<tool_call>{\"arguments\": {}}.",
        "<tool_call>{\"name\": \"run\", \"arguments\": [1]}.",
        "<tool_call>{broken}.",
        "<tool_call>{\"name\": \"run\", \"arguments\": {\"cmd\": \"w", /* cut in a wrapper */
        "<tool_call>\n<function=put_file>\n<parameter=path>\na\n</parameter>\n<parameter=body>\n"
        "one\ntwo\nthr",
        "<tool_call>\n<function=run>\n<parameter=cmd>\ncut off",
        "<tool_call>\n<function=put_file>\n<parameter=path>\na\n</parameter>",
        /* not declared, and only nearly a call */
        "{\"name\":\"list_dir\",\"arguments\":{\"path\":\"w\"}}",
        "{\"tool\":\"list_dir\",\"parameters\":{\"path\":\"w\"}}",
        "{\"name\": list_dir, \"arguments\":{\"path\":\"w\"}}",
        "<function name=\"list_dir\">\n<parameter=path>\na\n</parameter>\n</function>.",
        "<tool_name>list_dir</tool_name>\n<parameter=path>\na\n</parameter>",
        "<name>Bob</name>",
        "<name>run</name> is short",
        "<function=list_dir>\n<parameter=path>\na",
        /* whose arguments nobody can tell */
        "{\"name\":{\"zzz\":\"m.c\"}}",
        "{\"name\":{\"cmd\":\"a\",\"path\":\"b\"}}",
        "{\"zzz\":1}\n</parameter>",
        "<parameter>\nw\n</parameter>",
        "<parameter=path>\na\n</parameter> is one",
        /* one call in another */
        "<function=run>\n<parameter=cmd>\nw\n<function=open_file>\n<parameter=path>\na",
        /* what the model imagines */
        "<output>\n<tool_call>\n<function=run>\n<parameter=cmd>\nw\n</parameter>\n</function>\n"
        "</tool_call>",
        "<function=run>\n<parameter=cmd>\nls\n<result>\na.c b.c",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        struct buf out = BUF_INIT, modes = BUF_INIT;
        run(&(struct how){.strict = false}, same[i], strlen(same[i]), 1, &out, &modes);
        if (strstr(out.data, "[[")) {
            print_error("%s\n gives\n%s (%s)\n\n", same[i], out.data, modes.data);
            wrong++;
        }
        buf_free(&out);
        buf_free(&modes);
        if (!strstr(same[i], "</")) { /* closing tags may vanish */
            expect_same(same[i]);
        }
    }
    /* closed, it is what was before */
    expect("<result>\nok\n</result>\n{\"name\":\"run\",\"arguments\":{\"cmd\":\"w\"}}",
           "<result>\nok\n</result>[[run {\"cmd\":\"w\"}]]");
    /* an unbalanced quote or backtick counts to the end of its line */
    expect("The 5\" and ` one:\n{\"name\":\"run\",\"arguments\":{\"cmd\":\"w\"}}",
           "The 5\" and ` one:[[run {\"cmd\":\"w\"}]]");
    /* residue is for nobody to see */
    expect("Hm.\n<tool_call>\n<tool_call>", "Hm.");
    expect("Hm.\n<tool_cal", "Hm.");
    expect("Hm.</tool_call></function>", "Hm.");
    done();
}

/* ---- as taught ---- */

#define CALL(params) "<tool_call>\n<function=set>\n" params "</function>\n</tool_call>"
#define PUT(v)                                                                                     \
    "<tool_call>\n<function=run>\n<parameter=cmd>\n" v "\n</parameter>\n</function>\n</tool_call>"
#define PAR(k, v) "<parameter=" k ">\n" v "\n</parameter>\n"

static void values(void **state)
{
    (void)state;
    expect(CALL(PAR("i", " 7 ") PAR("n", "2.5") PAR("b", "True") PAR("z", "null")),
           "[[set {\"i\":7,\"n\":2.5,\"b\":true,\"z\":null}]]");
    expect(CALL(PAR("i", "seven") PAR("n", "1e3") PAR("b", "yes") PAR("u", "null") PAR("e", "2")),
           "[[set {\"i\":\"seven\",\"n\":1000.0,\"b\":\"yes\",\"u\":null,\"e\":2}]]");
    expect(CALL(PAR("o", "{\"k\": [1, null]}") PAR("a", "[]") PAR("r", "4") PAR("w", "5")),
           "[[set {\"o\":{\"k\":[1,null]},\"a\":[],\"r\":4,\"w\":\"5\"}]]");
    expect(CALL(PAR("o", "[1]") PAR("a", "{\"x\": ") PAR("x", "{\"k\": 1}")),
           "[[set {\"o\":\"[1]\",\"a\":\"{\\\"x\\\": \",\"x\":{\"k\":1}}]]");
    expect(
        "<tool_call>{\"name\":\"set\",\"arguments\":{\"i\":\"3\",\"b\":\"false\",\"z\":\"null\"}}"
        "</tool_call>",
        "[[set {\"i\":3,\"b\":false,\"z\":\"null\"}]]");
    expect("<tool_call>\n<function=bare>\n</function>\n</tool_call>", "[[bare {}]]");
    expect("<tool_call>\n<function=odd>\n" PAR("q", "1") "</function>\n</tool_call>",
           "[[odd {\"q\":\"1\"}]]");
    expect(PUT("\n two\nlines \n"), "[[run {\"cmd\":\"\\n two\\nlines \\n\"}]]");
    expect(PUT(""), "[[run {\"cmd\":\"\"}]]");
    expect(PUT("\r\nx\r"), "[[run {\"cmd\":\"\\r\\nx\"}]]");
    expect(PUT("a </parameter> b"), "[[run {\"cmd\":\"a </parameter> b\"}]]");
    expect(PUT("a\n</parameter>\nb"), "[[run {\"cmd\":\"a\\n</parameter>\\nb\"}]]");
    expect(PUT("x </function> y </tool_call> z"),
           "[[run {\"cmd\":\"x </function> y </tool_call> z\"}]]");
    expect(PUT("x\n</parameter>\n</function>\nstill text"),
           "[[run {\"cmd\":\"x\\n</parameter>\\n</function>\\nstill text\"}]]");
    expect(
        PUT("see:\n" CALL(PAR("i", "1")) "\nend"),
        "[[run {\"cmd\":\"see:\\n<tool_call>\\n<function=set>\\n<parameter=i>\\n1\\n</parameter>\\n"
        "</function>\\n</tool_call>\\nend\"}]]");
    expect(PUT("<output>\nunclosed"), "[[run {\"cmd\":\"<output>\\nunclosed\"}]]");
    expect(PUT("\n<parameter=q>\nopen") "\n" CALL(PAR("i", "3")),
           "[[run {\"cmd\":\"\\n<parameter=q>\\nopen\"}]][[set {\"i\":3}]]");
    expect("<function=run>{\"cmd\": \"4\"}</function>", "[[run {\"cmd\":\"4\"}]]");
    expect("<tool_call>\n<function=put_file>\n<parameter=path>\n1\n<parameter=body>\nx\n"
           "</parameter>\n</function>\n</tool_call>",
           "[[put_file {\"path\":\"1\",\"body\":\"x\"}]]");
    struct buf many = BUF_INIT, want = BUF_INIT;
    buf_adds(&many, "<tool_call>\n");
    for (int i = 0; i < 14; i++) {
        buf_printf(&many, "<function=run>\n<parameter=cmd>\n%d\n</parameter>\n</function>\n", i);
        buf_printf(&want, "[[run {\"cmd\":\"%d\"}]]", i);
    }
    expect(many.data, want.data);
    buf_free(&many);
    buf_free(&want);
    done();
}

static void strict_and_cut(void **state)
{
    (void)state;
    const struct how strict = {.strict = true}, cut = {.cut = true}, own = {.declared = true};
    expect_how(&strict, NULL, PUT("w") "\n" PUT("v"),
               "[[run {\"cmd\":\"w\"}]][[run {\"cmd\":\"v\"}]]");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct buf out = BUF_INIT, modes = BUF_INIT;
        if (!shapes[i].mode || strncmp(shapes[i].mode, "0a", 2) != 0) {
            run(&strict, shapes[i].text, strlen(shapes[i].text), 0, &out, &modes);
            wrong += modes.len > 0;
            buf_truncate(&out, 0);
        }
        if (shapes[i].how & LAST) { /* a limit ended it: nobody knows what would have come */
            run(&cut, shapes[i].text, strlen(shapes[i].text), 0, &out, &modes);
            wrong += modes.len > 0;
            if (modes.len > 0) {
                print_error("cut: %s\n", shapes[i].text);
            }
        }
        buf_free(&out);
        buf_free(&modes);
    }
    expect_how(&own, NULL, "<function=list_dir>\n</function>", "<function=list_dir>");
    done();
}

/* In a thought only what is in a wrapper counts. */
static void thoughts(void **state)
{
    (void)state;
    const struct how how = {.thought = true};
    expect_how(&how, NULL,
               "I could {\"name\":\"run\",\"arguments\":{\"cmd\":\"w\"}} or <function=run>",
               "I could {\"name\":\"run\",\"arguments\":{\"cmd\":\"w\"}} or <function=run>");
    expect_how(&how, "0a", "So be it.\n" PUT("w"), "So be it.[[run {\"cmd\":\"w\"}]]");
    done();
}

/* What is certain comes out at once. */
static void at_once(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } parts[] = {{"hello <to", "hello "},
                 {"ast> {", "<toast> "},
                 {" x", "{ x"},
                 {"\nrun", "\n"},
                 {"ning", "running"},
                 {"{\"na", ""},
                 {"me\": \"Z", "{\"name\": \"Z"},
                 {" <parameter=zzz>", " <parameter=zzz>"}};
    json_t *defs = NULL;
    assert_int_equal(json_parse(tools_text, strlen(tools_text), "tools", &defs, NULL), 0);
    const struct recogniser_opts o = {.tools = defs};
    struct recogniser *r = recogniser_create(&o);
    json_decref(defs);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        struct buf out = BUF_INIT;
        struct tool_item it;
        buf_adds(&out, "");
        recogniser_feed(r, parts[i].in, strlen(parts[i].in));
        while (recogniser_next(r, &it)) {
            buf_add(&out, it.text.data, it.text.len);
            tool_item_fini(&it);
        }
        assert_string_equal(out.data, parts[i].out);
        buf_free(&out);
    }
    recogniser_finish(r, false);
    assert_int_equal(recogniser_missed(r), 1);
    recogniser_free(r);
}

/* A megabyte of value, in small pieces, stays near linear. */
static void long_value(void **state)
{
    (void)state;
    static const char *const filler[] = {"<b>}</b> text\n", "</parameter>", "<function",  "}}}}",
                                         "</function>",     "\"{\"",        "<tool_call>"};
    for (size_t f = 0; f < sizeof filler / sizeof *filler; f++) {
        struct buf in = BUF_INIT, out = BUF_INIT, modes = BUF_INIT;
        buf_adds(&in, "<tool_call>\n<function=run>\n<parameter=cmd>\n");
        while (in.len < 200000) {
            buf_adds(&in, filler[f]);
        }
        buf_adds(&in, "\n</parameter>\n</function>\n</tool_call>");
        run(&(struct how){.strict = false}, in.data, in.len, 4, &out, &modes);
        assert_memory_equal(out.data, "[[run {\"cmd\":", 13);
        assert_true(out.len > 199000);
        buf_free(&in);
        buf_free(&out);
        buf_free(&modes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_drift), cmocka_unit_test(all_displayed),  cmocka_unit_test(refused),
        cmocka_unit_test(values),    cmocka_unit_test(strict_and_cut), cmocka_unit_test(thoughts),
        cmocka_unit_test(at_once),   cmocka_unit_test(long_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
