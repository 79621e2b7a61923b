/* Answers in the form of a schema, by the demo model: all that end by themselves are values of
 * their schema, nearly all end, and what is said is the same alone without speculation as with it
 * among others. QUASAR_LONG: a thousand of them. */
#include "config.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "conv/request.h"
#include "tests/unit/schemacheck.h"

#define ALONE 9 /* every so manieth is also asked for alone */

static char home[] = "/tmp/quasar-form-XXXXXX";
static char model[4096], schemas[4096];

struct answer {
    struct chat *chat;
    const json_t *schema;
    enum conv_reason reason;
    struct buf text, thought;
    bool over;
};

static struct conv *open_conv(const char *spec, int slots)
{
    struct conv_opts o = conv_opts_default();
    o.model = model;
    o.backend = "cpu";
    o.spec = spec;
    o.threads = 2;
    o.slots = slots;
    o.queue = 128; /* all of a round are asked at once */
    o.ctx = 2048 * slots < 8192 ? 2048 * slots : 8192;
    o.prefix_memory = -1;
    struct conv *c = NULL;
    struct err e = ERR_INIT;
    if (conv_open(&o, &c, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    struct conv_event ev = {0};
    for (bool ready = false; !ready;) {
        assert_true(conv_wait(c, &ev, 60000));
        ready = ev.kind == CE_READY;
        conv_event_fini(&ev);
    }
    return c;
}

/* The n-th question: about one of the schemas, greedy or drawn, with a thought now and then. */
static void ask(struct conv *c, struct conv_reader *r, const json_t *all, size_t n,
                struct answer *a)
{
    static const char *const about[] = {"Describe a person.", "Make a plan for a day.",
                                        "Tell me about the sea.", "What is in this list?"};
    const json_t *one = json_array_get(all, n % json_array_size(all));
    struct buf text = BUF_INIT, messages = BUF_INIT;
    struct err e = ERR_INIT;
    a->schema = json_object_get(one, "schema");
    json_write_exact(a->schema, &text);
    buf_printf(&messages, "[{\"role\":\"user\",\"content\":\"%s\"}]", about[n % 4]);
    struct conv_request q = conv_request_default(c);
    q.messages = messages.data;
    q.messages_n = messages.len;
    q.form = (struct conv_form){.kind = CF_SCHEMA, .text = text.data, .n = text.len};
    q.temp = n % 3 == 0 ? 0 : 0.8;
    q.seed = (int64_t)n;
    q.think = n % 5 == 0;
    q.max_tokens = 400;
    a->chat = conv_reader_chat(r);
    if (chat_request(a->chat, &q, &e) < 0) {
        fail_msg("%s: %s", json_string_value(json_object_get(one, "name")), e.msg);
    }
    buf_free(&text);
    buf_free(&messages);
}

static void hear(struct conv_reader *r, struct answer *a, size_t n)
{
    for (size_t left = n; left > 0;) {
        struct conv_event ev = {0};
        while (!conv_reader_next(r, &ev)) {
            struct pollfd p = {.fd = conv_reader_fd(r), .events = POLLIN};
            assert_int_equal(poll(&p, 1, 120000), 1);
        }
        for (size_t i = 0; i < n; i++) {
            if (a[i].chat != ev.chat || a[i].over) {
                continue;
            }
            struct buf *to = ev.kind == CE_TEXT      ? &a[i].text
                             : ev.kind == CE_THOUGHT ? &a[i].thought
                                                     : NULL;
            if (to) {
                buf_add(to, ev.text.data, ev.text.len);
            }
            if (ev.kind == CE_END) {
                a[i].over = true;
                a[i].reason = ev.reason;
                left--;
                if (ev.reason == CE_R_ERROR) {
                    fail_msg("%s", ev.text.data);
                }
            }
        }
        conv_event_fini(&ev);
    }
}

static void forget(struct answer *a)
{
    chat_free(a->chat);
    buf_free(&a->text);
    buf_free(&a->thought);
    *a = (struct answer){.over = false};
}

static const char *text_of(const struct buf *b)
{
    return b->data ? b->data : "";
}

/* Only those with bounds end for sure. */
static json_t *bounded(void)
{
    json_t *all = NULL, *out = json_array();
    assert_int_equal(json_parse_file(schemas, 1 << 20, &all, NULL), 0);
    for (size_t i = 0; i < json_array_size(all); i++) {
        json_t *one = json_array_get(all, i);
        if (json_is_true(json_object_get(one, "bounded"))) {
            json_array_append(out, one);
        }
    }
    json_decref(all);
    return out;
}

static void answers(void **state)
{
    (void)state;
    json_t *all = bounded();
    const size_t per = json_array_size(all), rounds = getenv("QUASAR_LONG") ? 1000 / per + 1 : 1;
    struct conv *c = open_conv("auto", 4), *plain = open_conv("off", 1);
    struct conv_reader *r = NULL, *alone = NULL;
    assert_int_equal(conv_reader_create(c, &r, NULL), 0);
    assert_int_equal(conv_reader_create(plain, &alone, NULL), 0);
    struct answer *a = mem_array(per, sizeof *a);
    memset(a, 0, per * sizeof *a);
    size_t ended = 0, thoughts = 0;
    for (size_t k = 0; k < rounds; k++) {
        for (size_t i = 0; i < per; i++) {
            ask(c, r, all, k * per + i, &a[i]);
        }
        hear(r, a, per);
        for (size_t i = 0; i < per; i++) {
            const size_t n = k * per + i;
            ended += a[i].reason == CE_R_STOP;
            thoughts += a[i].thought.len > 0;
            if (a[i].reason == CE_R_STOP &&
                !schema_accepts_text(a[i].schema, text_of(&a[i].text), a[i].text.len)) {
                fail_msg("answer %zu: %s", n, text_of(&a[i].text));
            }
            if (n % ALONE == 0) {
                struct answer same = {.over = false};
                ask(plain, alone, all, n, &same);
                hear(alone, &same, 1);
                assert_string_equal(text_of(&same.text), text_of(&a[i].text));
                assert_string_equal(text_of(&same.thought), text_of(&a[i].thought));
                assert_int_equal(same.reason, a[i].reason);
                forget(&same);
            }
            forget(&a[i]);
        }
    }
    print_message("# %zu of %zu answers ended by themselves, %zu after a thought\n", ended,
                  rounds * per, thoughts);
    assert_true(ended * 100 >= rounds * per * 95);
    assert_true(thoughts > 0);
    free(a);
    conv_reader_free(r);
    conv_reader_free(alone);
    conv_close(c);
    conv_close(plain);
    json_decref(all);
}

/* ---- calls of strict tools ---- */

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get_weather\",\"description\":\"the "
    "weather\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"unit\":{"
    "\"enum\":[\"kelvin\",\"rankine\"]},\"days\":{\"type\":\"integer\",\"minimum\":31,\"maximum\":"
    "39}},"
    "\"required\":[\"city\",\"unit\",\"days\"],\"additionalProperties\":false}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"add\",\"description\":\"adds two numbers\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{"
    "\"type\":\"integer\"}},\"required\":[\"a\",\"b\"],\"additionalProperties\":false}}}]";

static void ask_to_call(struct conv *c, struct conv_reader *r, size_t n, bool strict,
                        struct answer *a)
{
    static const char *const wants[] = {"What is the weather in Oslo?",
                                        "Use the tool to add 12 and 7.",
                                        "Get the weather of Rome, please."};
    struct buf messages = BUF_INIT;
    struct err e = ERR_INIT;
    buf_printf(&messages, "[{\"role\":\"user\",\"content\":\"%s\"}]", wants[n % 3]);
    struct conv_request q = conv_request_default(c);
    q.messages = messages.data;
    q.messages_n = messages.len;
    q.tools = tools;
    q.tools_n = sizeof tools - 1;
    q.calls.strict = strict ? "get_weather\nadd\n" : NULL;
    q.temp = n % 3 == 0 ? 0 : 0.8;
    q.seed = (int64_t)n;
    q.think = n % 2 == 0;
    q.think_budget = n % 4 == 0 ? 8 : -1;
    q.max_tokens = 300;
    a->chat = conv_reader_chat(r);
    if (chat_request(a->chat, &q, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    buf_free(&messages);
}

/* How many calls there are, and how many of them keep to their schema. */
static size_t count_calls(const struct answer *a, size_t *kept)
{
    const struct chat_result *r = chat_last(a->chat);
    json_t *calls = NULL, *all = json_loads(tools, 0, NULL), *call = NULL;
    size_t i = 0, n = 0;
    if (r->calls.len > 0) {
        assert_int_equal(json_parse(r->calls.data, r->calls.len, "calls", &calls, NULL), 0);
    }
    json_array_foreach(calls, i, call)
    {
        const char *name = json_string_value(json_object_get(call, "name"));
        const json_t *f = json_object_get(
            json_array_get(all, name && strcmp(name, "add") == 0 ? 1 : 0), "function");
        const json_t *schema = json_object_get(f, "parameters");
        n++;
        *kept += name && schema_accepts(schema, schema, json_object_get(call, "arguments"));
    }
    json_decref(calls);
    json_decref(all);
    return n;
}

/* Calls that come as the model likes keep to the schemas of strict tools, and only those do. */
static void strict_calls(void **state)
{
    (void)state;
    enum { ASKED = 24 };
    struct conv *c = open_conv("auto", 4), *plain = open_conv("off", 1);
    struct conv_reader *r = NULL, *alone = NULL;
    assert_int_equal(conv_reader_create(c, &r, NULL), 0);
    assert_int_equal(conv_reader_create(plain, &alone, NULL), 0);
    size_t called[2] = {0}, kept[2] = {0};
    for (int strict = 0; strict < 2; strict++) {
        static struct answer a[ASKED];
        for (size_t i = 0; i < ASKED; i++) {
            ask_to_call(c, r, i, strict, &a[i]);
        }
        hear(r, a, ASKED);
        for (size_t i = 0; i < ASKED; i++) {
            called[strict] += count_calls(&a[i], &kept[strict]);
            if (strict && i % 6 == 0) {
                struct answer same = {.over = false};
                ask_to_call(plain, alone, i, true, &same);
                hear(alone, &same, 1);
                assert_string_equal(text_of(&chat_last(same.chat)->calls),
                                    text_of(&chat_last(a[i].chat)->calls));
                forget(&same);
            }
            forget(&a[i]);
        }
    }
    print_message("# %zu calls, %zu by their schemas; strict: %zu, %zu\n", called[0], kept[0],
                  called[1], kept[1]);
    assert_true(called[1] >= 4);
    assert_int_equal(kept[1], called[1]);
    assert_true(kept[0] < called[0]); /* or nothing was asked of the rule */
    conv_reader_free(r);
    conv_reader_free(alone);
    conv_close(c);
    conv_close(plain);
}

int main(void)
{
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(model, sizeof model, "%s/models/demo.qsr", src ? src : "..");
    snprintf(schemas, sizeof schemas, "%s/tests/data/schemas.json", src ? src : "..");
    if (!mkdtemp(home)) {
        return 1;
    }
    setenv("XDG_STATE_HOME", home, 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers), cmocka_unit_test(strict_calls)};
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    char cmd[256];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", home);
    return system(cmd) == 0 ? rc : 1;
}
