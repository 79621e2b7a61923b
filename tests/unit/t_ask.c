/* What requests of the shapes become: the same conversation is the same prompt, byte for byte,
 * in every dialect, whichever client tells it and in whichever of its forms. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/jsonio.h"
#include "conv/prompt.h"
#include "http/api.h"
#include "tests/unit/conv_help.h"

static struct ask *take(const struct api *api, const char *body)
{
    const struct conv_request defaults = {.max_tokens = 100, .seed = -1, .think = -1};
    const char *field = NULL;
    struct err e = ERR_INIT;
    struct ask *a = NULL;
    json_t *v = NULL;
    assert_int_equal(json_parse(body, strlen(body), "the body", &v, &e), 0);
    if (ask_create(api, v, false, &defaults, &a, &field, &e) < 0) {
        fail_msg("%s (%s): %s", e.msg, field ? field : "-", body);
    }
    buf_adds(&a->messages, ""); /* ended by a zero */
    buf_adds(&a->tools, "");
    return a;
}

static void same(const char *what, const char *got, const char *want)
{
    if (strcmp(got, want) != 0) {
        fail_msg("%s:\n  %s\nnot\n  %s", what, got, want);
    }
}

/* Each body of a set means the same. */
struct shape {
    const struct api *api;
    const char *body;
};

static const struct shape set0[] = {
    {&api_chat,
     "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\""
     "content\":\"go\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
     "\"c1\",\"type\":\"function\",\"function\":{\"name\":\"run\",\"arguments\":\"{\\\"z\\"
     "\":1,\\\"a\\\":[true,null],\\\"m\\\":\\\"x\\\"}\"}}]},{\"role\":\"tool\",\"tool_call"
     "_id\":\"c1\",\"content\":\"done\"}],\"tools\":[{\"type\":\"function\",\"function\":{"
     "\"name\":\"run\",\"description\":\"Runs it.\",\"parameters\":{\"type\":\"object\",\""
     "required\":[\"z\"],\"properties\":{\"z\":{\"type\":\"integer\"},\"a\":{\"type\":\"ar"
     "ray\"}}}}}]}"},
    {&api_chat,
     "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"Be"
     " brief.\"}]},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"go\"}]},{"
     "\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"fu"
     "nction\",\"function\":{\"name\":\"run\",\"arguments\":\"{\\n \\\"z\\\": 1,\\n \\\"a"
     "\\\": [\\n  true,\\n  null\\n ],\\n \\\"m\\\": \\\"x\\\"\\n}\"}}]},{\"role\":\"tool"
     "\",\"tool_call_id\":\"c1\",\"content\":[{\"type\":\"text\",\"text\":\"done\"}]}],\"t"
     "ools\":[{\"type\":\"function\",\"function\":{\"name\":\"run\",\"description\":\"Runs"
     " it.\",\"parameters\":{\"type\":\"object\",\"required\":[\"z\"],\"properties\":{\"z"
     "\":{\"type\":\"integer\"},\"a\":{\"type\":\"array\"}}}}}]}"},
    {&api_messages,
     "{\"max_tokens\":9,\"system\":\"Be brief.\",\"messages\":[{\"role\":\"user\",\"conten"
     "t\":\"go\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"c1"
     "\",\"name\":\"run\",\"input\":{\"z\":1,\"a\":[true,null],\"m\":\"x\"}}]},{\"role\":"
     "\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c1\",\"content\":"
     "\"done\"}]}],\"tools\":[{\"name\":\"run\",\"description\":\"Runs it.\",\"input_schem"
     "a\":{\"type\":\"object\",\"required\":[\"z\"],\"properties\":{\"z\":{\"type\":\"inte"
     "ger\"},\"a\":{\"type\":\"array\"}}},\"cache_control\":{\"type\":\"ephemeral\"}}]}"},
    {&api_messages,
     "{\"max_tokens\":9,\"system\":[{\"type\":\"text\",\"text\":\"x-anthropic-billing-head"
     "er: cc_version=1.2.3.abc; cc_entrypoint=cli;\"},{\"type\":\"text\",\"text\":\"Be bri"
     "ef.\",\"cache_control\":{\"type\":\"ephemeral\"}}],\"messages\":[{\"role\":\"user\","
     "\"content\":[{\"type\":\"text\",\"text\":\"go\",\"cache_control\":{\"type\":\"epheme"
     "ral\"}}]},{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"other"
     "\",\"name\":\"run\",\"input\":{\"z\":1,\"a\":[true,null],\"m\":\"x\"}}]},{\"role\":"
     "\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"other\",\"content"
     "\":[{\"type\":\"text\",\"text\":\"done\"}],\"cache_control\":{\"type\":\"ephemeral\""
     "}}]}],\"tools\":[{\"name\":\"run\",\"description\":\"Runs it.\",\"input_schema\":{\""
     "type\":\"object\",\"required\":[\"z\"],\"properties\":{\"z\":{\"type\":\"integer\"},"
     "\"a\":{\"type\":\"array\"}}},\"cache_control\":{\"type\":\"ephemeral\"}}]}"},
    {&api_responses,
     "{\"instructions\":\"Be brief.\",\"input\":[{\"type\":\"message\",\"role\":\"user\","
     "\"content\":[{\"type\":\"input_text\",\"text\":\"go\"}]},{\"type\":\"function_call\""
     ",\"call_id\":\"c1\",\"name\":\"run\",\"arguments\":\"{\\\"z\\\": 1, \\\"a\\\": [true"
     ", null], \\\"m\\\": \\\"x\\\"}\"},{\"type\":\"function_call_output\",\"call_id\":\"c"
     "1\",\"output\":\"done\"}],\"tools\":[{\"type\":\"function\",\"name\":\"run\",\"descr"
     "iption\":\"Runs it.\",\"parameters\":{\"type\":\"object\",\"required\":[\"z\"],\"pro"
     "perties\":{\"z\":{\"type\":\"integer\"},\"a\":{\"type\":\"array\"}}},\"strict\":fals"
     "e}]}"},
};

static const struct shape set1[] = {
    {&api_chat,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"go\"},{\"role\":\"assistant\",\"cont"
     "ent\":\"Both.\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{"
     "\"name\":\"run\",\"arguments\":\"{\\\"z\\\":1}\"}},{\"id\":\"c2\",\"type\":\"functio"
     "n\",\"function\":{\"name\":\"run\",\"arguments\":\"{\\\"z\\\":2}\"}}]},{\"role\":\"t"
     "ool\",\"tool_call_id\":\"c1\",\"content\":\"one\"},{\"role\":\"tool\",\"tool_call_id"
     "\":\"c2\",\"content\":\"two\"},{\"role\":\"user\",\"content\":\"and now\"}]}"},
    {&api_messages,
     "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"go\"},{\"role\":\"a"
     "ssistant\",\"content\":[{\"type\":\"text\",\"text\":\"Both.\"},{\"type\":\"tool_use"
     "\",\"id\":\"c1\",\"name\":\"run\",\"input\":{\"z\":1}},{\"type\":\"tool_use\",\"id\""
     ":\"c2\",\"name\":\"run\",\"input\":{\"z\":2}}]},{\"role\":\"user\",\"content\":[{\"t"
     "ype\":\"tool_result\",\"tool_use_id\":\"c1\",\"content\":\"one\"},{\"type\":\"tool_r"
     "esult\",\"tool_use_id\":\"c2\",\"content\":\"two\"},{\"type\":\"text\",\"text\":\"an"
     "d now\"}]}]}"},
    {&api_messages,
     "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"go\"},{\"role\":\"a"
     "ssistant\",\"content\":[{\"type\":\"text\",\"text\":\"Both.\"},{\"type\":\"tool_use"
     "\",\"id\":\"c1\",\"name\":\"run\",\"input\":{\"z\":1}},{\"type\":\"tool_use\",\"id\""
     ":\"c2\",\"name\":\"run\",\"input\":{\"z\":2}}]},{\"role\":\"user\",\"content\":[{\"t"
     "ype\":\"tool_result\",\"tool_use_id\":\"c1\",\"content\":\"one\"}]},{\"role\":\"user"
     "\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c2\",\"content\":\"two\""
     "}]},{\"role\":\"user\",\"content\":\"and now\"}]}"},
    {&api_responses,
     "{\"input\":[{\"role\":\"user\",\"content\":\"go\"},{\"type\":\"message\",\"role\":\""
     "assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"Both.\"}]},{\"type\":"
     "\"function_call\",\"call_id\":\"c1\",\"name\":\"run\",\"arguments\":\"{\\\"z\\\":1}"
     "\"},{\"type\":\"function_call\",\"call_id\":\"c2\",\"name\":\"run\",\"arguments\":\""
     "{\\\"z\\\":2}\"},{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\""
     "one\"},{\"type\":\"function_call_output\",\"call_id\":\"c2\",\"output\":\"two\"},{\""
     "role\":\"user\",\"content\":\"and now\"}]}"},
};

static const struct shape set2[] = {
    {&api_chat,
     "{\"messages\":[{\"role\":\"user\",\"content\":\"go\"},{\"role\":\"assistant\",\"reas"
     "oning_content\":\"Hm.\",\"content\":\"Yes.\"},{\"role\":\"user\",\"content\":\"why\""
     "}]}"},
    {&api_messages,
     "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"go\"},{\"role\":\"a"
     "ssistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"Hm.\",\"signature\":\""
     "s\"},{\"type\":\"text\",\"text\":\"Yes.\"}]},{\"role\":\"user\",\"content\":\"why\"}"
     "]}"},
    {&api_responses,
     "{\"input\":[{\"role\":\"user\",\"content\":\"go\"},{\"type\":\"reasoning\",\"id\":\""
     "r\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"Hm.\"}]},{\"type\":\"message"
     "\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"Yes.\"}]"
     "},{\"role\":\"user\",\"content\":\"why\"}]}"},
};

static const enum template_kind kinds[] = {TPL_DEMO, TPL_QWEN35, TPL_QWEN36, TPL_QWEN38};

/* The prompt of a request, as the listener makes it, as text with its control tokens. */
static void prompt(const struct shape *s, enum template_kind kind, struct buf *out)
{
    struct ask *a = take(s->api, s->body);
    struct err e = ERR_INIT;
    json_t *messages = NULL, *tools = NULL;
    assert_int_equal(json_parse(a->messages.data, a->messages.len, "messages", &messages, &e), 0);
    if (a->tools.len > 0) {
        assert_int_equal(json_parse(a->tools.data, a->tools.len, "tools", &tools, &e), 0);
    }
    const struct prompt p = {.tok = tok, .has_template = true, .kind = kind};
    const struct settings set = {.think = -1, .preserve = 1};
    struct tok_ids ids = {0};
    struct prompt_shape shape;
    if (prompt_messages(&p, messages, tools, &set, &ids, &shape, &e) < 0) {
        fail_msg("%s: %s", e.msg, s->body);
    }
    struct detok d = {0};
    buf_truncate(out, 0);
    for (size_t i = 0; i < ids.n; i++) {
        detok_add(&d, tok, ids.v[i], true, out);
    }
    detok_flush(&d, out);
    buf_adds(out, "");
    tok_ids_free(&ids);
    json_decref(messages);
    json_decref(tools);
    ask_free(a);
}

static void one_prompt(const char *what, const struct shape *s, size_t n, const char *const *holds)
{
    struct buf first = BUF_INIT, other = BUF_INIT;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        prompt(&s[0], kinds[k], &first);
        for (size_t i = 1; i < n; i++) {
            char name[100];
            snprintf(name, sizeof name, "%s, %s, body %zu", what, template_name(kinds[k]), i);
            prompt(&s[i], kinds[k], &other);
            same(name, other.data, first.data);
        }
        for (size_t i = 0; holds[i]; i++) {
            if (!strstr(first.data, holds[i])) {
                fail_msg("%s, %s: no %s in\n%s", what, template_name(kinds[k]), holds[i],
                         first.data);
            }
        }
    }
    buf_free(&first);
    buf_free(&other);
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

/* Arguments are a text in one shape and an object in another; ids, marks of caches, the line that
 * a client changes from one start to the next, and the forms of content are no part of it. Keys
 * stay in their order. */
static void a_call(void **state)
{
    (void)state;
    static const char *const holds[] = {
        "Be brief.",
        "\"required\": [\"z\"], \"properties\": {\"z\": {\"type\": \"integer\"}, \"a\":", "done",
        NULL};
    one_prompt("a call", set0, COUNT(set0), holds);
}

static void calls_at_once(void **state)
{
    (void)state;
    static const char *const holds[] = {"Both.", "one", "two", "and now", NULL};
    one_prompt("two calls", set1, COUNT(set1), holds);
}

static void thoughts(void **state)
{
    (void)state;
    static const char *const holds[] = {"Yes.", "why", NULL};
    one_prompt("a thought", set2, COUNT(set2), holds);
}

/* Which calls must or may come, in the words of each shape. */
static void choices(void **state)
{
    (void)state;
#define CHAT(choice)                                                                               \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"go\"}],\"tools\":[{\"type\":\"function\","    \
    "\"function\":{\"name\":\"run\"}}]" choice "}"
#define MESSAGES(choice)                                                                           \
    "{\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":\"go\"}],\"tools\":[{"         \
    "\"name\":\"run\",\"input_schema\":{\"type\":\"object\"}}]" choice "}"
#define RESPONSES(choice)                                                                          \
    "{\"input\":\"go\",\"tools\":[{\"type\":\"function\",\"name\":\"run\",\"parameters\":{}},{"    \
    "\"type\":\"custom\",\"name\":\"apply_patch\"}]" choice "}"
    static const struct {
        struct shape of;
        enum conv_call_kind kind;
        const char *only;
        bool single;
    } rows[] = {
        {{&api_chat, CHAT("")}, CK_AUTO, NULL, false},
        {{&api_chat, CHAT(",\"tool_choice\":null")}, CK_AUTO, NULL, false},
        {{&api_chat, CHAT(",\"tool_choice\":\"auto\",\"parallel_tool_calls\":false")},
         CK_AUTO,
         NULL,
         true},
        {{&api_chat, CHAT(",\"tool_choice\":\"required\"")}, CK_ANY, NULL, false},
        {{&api_chat,
          CHAT(",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"run\"}}")},
         CK_NAMED,
         "run",
         false},
        {{&api_messages, MESSAGES("")}, CK_AUTO, NULL, false},
        {{&api_messages,
          MESSAGES(",\"tool_choice\":{\"type\":\"auto\",\"disable_parallel_tool_use\":true}")},
         CK_AUTO,
         NULL,
         true},
        {{&api_messages, MESSAGES(",\"tool_choice\":{\"type\":\"any\"}")}, CK_ANY, NULL, false},
        {{&api_messages, MESSAGES(",\"tool_choice\":{\"type\":\"tool\",\"name\":\"run\"}")},
         CK_NAMED,
         "run",
         false},
        {{&api_responses, RESPONSES("")}, CK_AUTO, NULL, false},
        {{&api_responses, RESPONSES(",\"tool_choice\":\"required\"")}, CK_ANY, NULL, false},
        {{&api_responses, RESPONSES(",\"tool_choice\":{\"type\":\"function\",\"name\":\"run\"}")},
         CK_NAMED,
         "run",
         false},
        {{&api_responses,
          RESPONSES(",\"tool_choice\":{\"type\":\"custom\",\"name\":\"apply_patch\"}")},
         CK_NAMED,
         "apply_patch",
         false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct ask *a = take(rows[i].of.api, rows[i].of.body);
        const struct conv_calls *c = &a->q.calls;
        if (c->kind != rows[i].kind ||
            (c->only ? !rows[i].only || strcmp(c->only, rows[i].only) != 0
                     : rows[i].only != NULL) ||
            (c->single && c->kind == CK_AUTO) != rows[i].single) {
            fail_msg("kind %d, only %s, single %d of %s", (int)c->kind, c->only ? c->only : "-",
                     c->single, rows[i].of.body);
        }
        ask_free(a);
    }
    struct ask *a = take(&api_chat, CHAT(",\"tool_choice\":\"none\""));
    assert_int_equal(a->tools.len, 0); /* none is shown, so none is called */
    ask_free(a);
#undef CHAT
#undef MESSAGES
#undef RESPONSES
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call),
        cmocka_unit_test(calls_at_once),
        cmocka_unit_test(thoughts),
        cmocka_unit_test(choices),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, conv_prepare, conv_clean);
}
