/* Fuzz target: any body in every shape of the listener. Same input, same request; what is refused
 * is told in valid JSON that names something; what is taken gives events and a whole answer that
 * are valid JSON too, whatever the model says. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "http/api.h"
#include "tests/fuzz/fuzz.h"

static const struct api *const shapes[] = {&api_chat, &api_completions, &api_messages,
                                           &api_responses};

static void must(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void must_json(const char *p, size_t n)
{
    json_t *v = json_loadb(p, n, JSON_ALLOW_NUL, NULL);
    must(v != NULL);
    json_decref(v);
}

/* Every line is empty, a comment, an event's name, or data in JSON. */
static void must_events(const struct buf *b)
{
    const char *p = b->data ? b->data : "", *end = p + b->len;
    must(b->len == 0 || (b->len > 2 && memcmp(end - 2, "\n\n", 2) == 0));
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        must(stop != NULL);
        const size_t n = (size_t)(stop - p);
        if (n > 6 && memcmp(p, "data: ", 6) == 0) {
            if (n != 12 || memcmp(p + 6, "[DONE]", 6) != 0) {
                must_json(p + 6, n - 6);
            }
        } else {
            must(n == 0 || p[0] == ':' || (n > 7 && memcmp(p, "event: ", 7) == 0));
        }
        p = stop + 1;
    }
}

static void said(struct buf *b, const char *s)
{
    buf_adds(b, s);
}

/* An answer of everything there can be, to a request that was taken. */
static void answer(const struct ask *a)
{
    static const char bytes[] = "caf\xC3\xA9 \xFF \"quoted\"\n";
    static int32_t ids[] = {1, 2, 3};
    static struct conv_logprob logprobs[3 * 21];
    struct chat_result r = {.reason = CE_R_TOOL,
                            .stop = -1,
                            .ids = ids,
                            .n_ids = 3,
                            .prompt_tokens = 10,
                            .cached_tokens = 4,
                            .logprobs = logprobs,
                            .n_logprobs = a->logprobs ? 1 + a->top : 0};
    must(a->n >= 1 && a->n <= API_CHOICES && a->top <= 20);
    said(&r.text, bytes);
    said(&r.thought, "so \xC3");
    said(&r.calls, "[{\"name\":\"f\",\"arguments\":{\"a\":[1,\"\\u0000\"]}}]");
    json_t *calls = json_loadb(r.calls.data, r.calls.len, JSON_ALLOW_NUL, NULL);
    const struct chat_result *all[API_CHOICES];
    struct buf out = BUF_INIT;
    for (int i = 0; i < a->n; i++) {
        struct choice_out c = {.index = i, .block = -1};
        all[i] = &r;
        a->api->begin(a, &c, 10, 4, &out);
        a->api->ping(a, &c, &out);
        a->api->thought(a, &c, r.thought.data, r.thought.len, &out);
        if (a->logprobs) {
            buf_add(&c.logprobs, logprobs, (size_t)(1 + a->top) * sizeof *logprobs);
        }
        a->api->text(a, &c, bytes, sizeof bytes - 1, &out);
        a->api->call(a, &c, json_array_get(calls, 0), &out);
        if (i == 0) {
            struct buf cut = BUF_INIT;
            struct choice_out d = {.index = 0, .block = -1};
            a->api->fail(a, &d, "it \"failed\"\n", &cut);
            must_events(&cut);
            choice_free(&d);
            buf_free(&cut);
        }
        a->api->end(a, &c, &r, &out);
        choice_free(&c);
    }
    a->api->close(a, 10, 4, 3, &out);
    must_events(&out);
    buf_truncate(&out, 0);
    a->api->whole(a, all, a->n, &out);
    must_json(out.data, out.len);
    buf_free(&out);
    json_decref(calls);
    buf_free(&r.text);
    buf_free(&r.thought);
    buf_free(&r.calls);
}

static void must_same(const struct ask *a, const struct ask *b)
{
    must(a->messages.len == b->messages.len && a->tools.len == b->tools.len);
    must(a->messages.len == 0 || memcmp(a->messages.data, b->messages.data, a->messages.len) == 0);
    must(a->tools.len == 0 || memcmp(a->tools.data, b->tools.data, a->tools.len) == 0);
    if (a->messages.len > 0) {
        must_json(a->messages.data, a->messages.len);
    }
    if (a->tools.len > 0) {
        must_json(a->tools.data, a->tools.len);
    }
}

static int make(const struct api *api, const json_t *body, bool counting, struct ask **out)
{
    const struct conv_request defaults = {.max_tokens = 100, .seed = -1, .think = -1};
    const char *field = NULL;
    struct err e = ERR_INIT;
    const int rc = ask_create(api, json_deep_copy(body), counting, &defaults, out, &field, &e);
    if (rc < 0) {
        struct buf b = BUF_INIT;
        must(e.msg[0] != 0);
        ask_error(api, 400, e.msg, field, &b);
        must_json(b.data, b.len);
        buf_free(&b);
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    json_t *body = NULL;
    if (json_parse((const char *)p, n, "the body", &body, NULL) < 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct ask *a = NULL, *b = NULL;
        const int rc = make(shapes[i], body, false, &a);
        must(rc == make(shapes[i], body, false, &b));
        if (rc == 0) {
            must_same(a, b);
            answer(a);
        }
        ask_free(a);
        ask_free(b);
    }
    struct ask *a = NULL;
    if (make(&api_messages, body, true, &a) == 0) {
        ask_free(a);
    }
    json_decref(body);
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const texts[] = {
        "{\"model\":\"m\",\"stream\":true,\"n\":2,\"logprobs\":true,\"top_logprobs\":2,"
        "\"messages\":"
        "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{\"type\":"
        "\"text\","
        "\"text\":\"t\"}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c\","
        "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":"
        "\"tool\",\"tool_call_id\":\"c\",\"content\":\"r\"}],\"tools\":[{\"type\":\"function\","
        "\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"maximum\":"
        "18446744073709551615}}}],\"tool_choice\":\"auto\",\"stop\":[\"x\"],\"logit_bias\":{\"5\":"
        "-1},\"reasoning_effort\":\"low\",\"stream_options\":{\"include_usage\":true}}",
        "{\"model\":\"m\",\"max_tokens\":5,\"system\":[{\"type\":\"text\",\"text\":"
        "\"x-anthropic-billing-header: a\"},{\"type\":\"text\",\"text\":\"s\",\"cache_control\":{"
        "\"type\":\"ephemeral\"}}],\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":"
        "\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":\"\"},{"
        "\"type\":\"tool_use\",\"id\":\"t\",\"name\":\"f\",\"input\":{\"a\":1}}]},{\"role\":"
        "\"user\","
        "\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"t\",\"content\":[{\"type\":"
        "\"image\"},{\"type\":\"tool_reference\",\"tool_name\":\"g\"}]}]}],\"tools\":[{\"name\":"
        "\"f\",\"input_schema\":{\"type\":\"object\"}}],\"thinking\":{\"type\":\"adaptive\"},"
        "\"output_config\":{\"effort\":\"high\"},\"stop_sequences\":[\"z\"]}",
        "{\"model\":\"m\",\"stream\":true,\"instructions\":\"i\",\"input\":[{\"type\":\"message\","
        "\"role\":\"developer\",\"content\":[{\"type\":\"input_text\",\"text\":\"d\"}]},{\"type\":"
        "\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"r\"}],\"content\":null},{"
        "\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{"
        "\"type\":"
        "\"function_call_output\",\"call_id\":\"c\",\"output\":\"o\"},{\"type\":\"custom_tool_"
        "call\","
        "\"call_id\":\"k\",\"name\":\"p\",\"input\":\"x\"}],\"tools\":[{\"type\":\"custom\","
        "\"name\":"
        "\"f\"},{\"type\":\"namespace\",\"name\":\"n\",\"tools\":[{\"type\":\"function\",\"name\":"
        "\"f\",\"parameters\":{}}]},{\"type\":\"web_search\"}],\"reasoning\":{\"effort\":\"low\"}}",
        "{\"prompt\":[\"one\",[1,2,3]],\"n\":2,\"logprobs\":1,\"max_tokens\":3,\"seed\":-5,\"top_"
        "p\":"
        "0.5,\"echo\":false}",
    };
    *n = sizeof texts / sizeof *texts;
    struct fuzz_seed *s = mem_array(*n, sizeof *s);
    for (size_t i = 0; i < *n; i++) {
        s[i].size = strlen(texts[i]);
        s[i].data = (uint8_t *)mem_strdup(texts[i]);
    }
    return s;
}
