/* Fuzz target: any text through the recogniser of tool calls, the thought splitter and
 * the stop strings, whole and in pieces; the results must be the same and no
 * byte may be lost. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer/stop.h"
#include "tokenizer/think.h"
#include "tools/recogniser.h"

static const char tools_text[] =
    "[{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},"
    "\"i\":{\"type\":\"integer\"},\"a\":{\"type\":\"array\"}},\"required\":[\"s\"]}},"
    "{\"name\":\"run\",\"parameters\":{\"properties\":{\"cmd\":{\"type\":\"string\"}},"
    "\"required\":[\"cmd\"]}},{\"name\":\"put\",\"parameters\":{\"properties\":{\"path\":{},"
    "\"body\":{}},\"required\":[\"path\",\"body\"]}}]";

static void take(struct recogniser *r, struct buf *out, struct buf *whole)
{
    struct tool_item it;
    while (recogniser_next(r, &it)) {
        buf_add(whole, it.text.data, it.text.len);
        if (it.kind == TOOL_CALL) {
            if (!json_is_object(it.arguments) || !it.name || !it.mode) {
                abort();
            }
            buf_printf(out, "\x01%s %s ", it.name, it.mode);
            json_write(it.arguments, out);
            buf_addc(out, '\x02');
        } else if (it.kind == TOOL_TEXT) {
            buf_add(out, it.text.data, it.text.len);
        }
        tool_item_fini(&it);
    }
}

/* step 0: everything at once. What comes out is all that went in. */
static void read_calls(const char *p, size_t n, size_t step, unsigned how, struct buf *out)
{
    static json_t *tools; /* the same for every input */
    if (!tools && json_parse(tools_text, strlen(tools_text), "tools", &tools, NULL) < 0) {
        abort();
    }
    const struct recogniser_opts o = {
        .tools = tools, .strict = how & 1, .declared = how & 2, .thought = how & 4};
    struct recogniser *r = recogniser_create(&o);
    struct buf whole = BUF_INIT;
    for (size_t i = 0; i < n;) {
        size_t k = step && step < n - i ? step : n - i;
        recogniser_feed(r, p + i, k);
        take(r, out, &whole);
        i += k;
    }
    recogniser_finish(r, how & 8);
    take(r, out, &whole);
    recogniser_free(r);
    if (whole.len != n || (n > 0 && memcmp(whole.data, p, n) != 0)) {
        abort();
    }
    buf_free(&whole);
}

static void calls(const char *p, size_t n, size_t step, struct buf *out)
{
    read_calls(p, n, step, 0, out);
}

/* The other ways to read; which of them depends on the input alone. */
static void calls_otherwise(const char *p, size_t n, size_t step, struct buf *out)
{
    read_calls(p, n, step, (unsigned)(n % 15) + 1, out);
}

static void thoughts(const char *p, size_t n, size_t step, struct buf *out)
{
    struct think t;
    struct buf answer = BUF_INIT;
    think_init(&t, n % 2);
    for (size_t i = 0; i < n;) {
        size_t k = step && step < n - i ? step : n - i;
        think_feed(&t, p + i, k, out, &answer);
        i += k;
    }
    think_finish(&t, out, &answer);
    think_fini(&t);
    buf_addc(out, '\x01');
    buf_add(out, answer.data, answer.len);
    buf_free(&answer);
}

static void stops(const char *p, size_t n, size_t step, struct buf *out)
{
    static const char *const strings[] = {"</parameter>", "\n\n", "meter>\n<", "é"};
    struct stop s;
    if (stop_init(&s, strings, 4, NULL) < 0) {
        abort();
    }
    for (size_t i = 0; i < n;) {
        size_t k = step && step < n - i ? step : n - i;
        stop_feed(&s, p + i, k, out);
        i += k;
    }
    stop_finish(&s, out);
    buf_printf(out, "%d %zu", s.hit, s.hit ? s.which : 0);
    stop_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    void (*const parts[])(const char *, size_t, size_t, struct buf *) = {calls, calls_otherwise,
                                                                         thoughts, stops};
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
        struct buf want = BUF_INIT;
        parts[k]((const char *)p, n, 0, &want);
        static const size_t steps[] = {1, 2, 7, 33};
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            struct buf got = BUF_INIT;
            parts[k]((const char *)p, n, steps[i], &got);
            if (got.len != want.len || (got.len && memcmp(got.data, want.data, got.len) != 0)) {
                abort();
            }
            buf_free(&got);
        }
        buf_free(&want);
    }
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const texts[] = {
        "hm\n</think>\n\nok\n\n<tool_call>\n<function=f>\n<parameter=s>\na b\n</parameter>\n"
        "<parameter=i>\n12\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=f>\n"
        "</function>\n</tool_call> bye",
        "<think>x</think><tool_call>{\"name\": \"f\", \"arguments\": {\"a\": [1, "
        "\"}\"]}}</tool_call>",
        "<function=f>\n<parameter=s>\n<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n"
        "</function>\n</tool_call>\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=\"f\">\n<parameter=i>\n1\n<parameter=a>\n[1, 2]\n</parameter>\n"
        "</function>\n<tool_call>\n<function=f>{\"i\": 2}</function>\n</tool_call>é\n\n",
        "So:\n{\"name\": run\", arguments\":{\"cmd\":\"a \"b\" c\nd\"}}\n</parameter>\n</function>",
        "{\"name\":\n{\"cmd\":\"x\"}{\"name\":{\"function\":{\"s\":\"y\"}}}{\"tool_call\":{"
        "\"name\":\"run\"",
        "run\", \"arguments\": {\"cmd\":<content>x "
        "\"y\"</content>}}\n{\"tool\":\"f\",\"s\":\"\\u00e9\\",
        "<tool_calls>\n<tool_name>\n<parameter=cmd>\na\n</parameter>\n</"
        "function>\n<tool>\n<name>run, "
        "\"arguments\":{\"cmd\":\"w\"}}<function name='run>\n<parameter name=\"cmd\">w</parameter>",
        "{\"name\":\"put\",\n<parameter=path>\na\n</parameter>\n</parameter>\nok\n</function>\n>\n"
        "<parameter=function=run>\n<parameter=cmd>\nw</tool_call>\n<tool_call>\n{\"function=put>\n",
        "```\n<tool_call>\n```\n> <function=f>\n- `{\"name\"` \"<invoke name=\"f\">\n<result>\n"
        "</result><parameter=run>\n<parameter=cmd>\nw\n</parameter>\n</function>{\"cmd\":\"q\"}"
        "</parameter>",
    };
    *n = sizeof texts / sizeof *texts;
    struct fuzz_seed *s = mem_array(*n, sizeof *s);
    for (size_t i = 0; i < *n; i++) {
        s[i].size = strlen(texts[i]);
        s[i].data = (uint8_t *)mem_strdup(texts[i]);
    }
    return s;
}
