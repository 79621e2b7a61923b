/* src/conv on the stand-in engine with the demo model's tokenizer and template:
 * the way from chat_send to events. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "conv/conv.h"
#include "conv/settings.h"
#include "tests/fake/engine.h"
#include "tests/unit/conv_help.h"
#include "tokenizer/tokenizer.h"

static void thought_and_answer(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=2048");
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    say("They greet me.\n</think>\n\nHello, w\xC3\xB6rld \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91"
        "\xA7!<|im_end|>");
    ask(c, t, "Hi", &h);
    assert_int_equal(h.ready, 1);
    assert_int_equal(h.queued, 1);
    assert_true(h.prefill >= 1);
    assert_string_equal(TEXT(h.thought), "They greet me.\n");
    assert_string_equal(TEXT(h.text), "Hello, w\xC3\xB6rld \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F"
                                      "\x91\xA7!");
    const struct chat_result *r = chat_last(t);
    assert_string_equal(TEXT(r->thought), "They greet me.");
    assert_string_equal(TEXT(r->text), TEXT(h.text));
    assert_int_equal(r->reason, CE_R_STOP);
    assert_int_equal(r->rounds, r->n_ids);
    assert_false(chat_busy(t));
    struct view_chat v;
    chat_view(t, &v);
    assert_int_equal(v.prompt_tokens, r->prompt_tokens);
    assert_int_equal(v.output_tokens, r->n_ids);
    assert_false(v.saved);
    struct view_model m;
    conv_view_model(c, &m);
    assert_true(m.ready);
    assert_int_equal(m.ctx, 2048);
    heard_fini(&h);
    /* Without thinking the whole text is the answer. */
    assert_int_equal(chat_set(t, "think", "off", NULL), 0);
    say("Plain.<|im_end|>");
    ask(c, t, "Again", &h);
    assert_int_equal(h.thought.len, 0);
    assert_string_equal(TEXT(h.text), "Plain.");
    heard_fini(&h);
    conv_close(c);
}

static void stop_strings(void **state)
{
    (void)state;
    const char *stops[] = {"STOP here", "\n\nUser:"};
    struct conv_opts o = opts("ctx=2048");
    o.stop = stops;
    o.n_stop = 2;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    say("One two STOP there, STO, and then STOP here and more that nobody reads.<|im_end|>");
    ask(c, t, "x", &h);
    assert_string_equal(TEXT(h.text), "One two STOP there, STO, and then ");
    assert_int_equal(h.reason, CE_R_STOP);
    /* What came after the match is not counted. */
    struct tok_ids all = {0};
    tokenizer_encode(tok, "One two STOP there, STO, and then STOP here", 43, true, &all);
    assert_true(chat_last(t)->n_ids <= all.n + 1);
    tok_ids_free(&all);
    heard_fini(&h);
    say("Answer\n\nUser: no<|im_end|>");
    ask(c, t, "x", &h);
    assert_string_equal(TEXT(h.text), "Answer");
    heard_fini(&h);
    /* An unfinished match comes out at the end. */
    say("Ends with STOP<|im_end|>");
    ask(c, t, "x", &h);
    assert_string_equal(TEXT(h.text), "Ends with STOP");
    heard_fini(&h);
    conv_close(c);
}

static void tool_calls(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=4096");
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    const char *messages = "[{\"role\":\"user\",\"content\":\"read a.c\"}]";
    const char *tools = "[{\"type\":\"function\",\"function\":{\"name\":\"read\",\"parameters\":{"
                        "\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"}}}}}]";
    say("I read it.\n\n<tool_call>\n<function=read>\n<parameter=path>\na.c\n</parameter>\n"
        "</function>\n</tool_call><|im_end|>");
    assert_int_equal(chat_messages(t, messages, strlen(messages), tools, strlen(tools), NULL), 0);
    hear(c, t, &h);
    assert_int_equal(h.reason, CE_R_TOOL);
    assert_string_equal(TEXT(h.calls), "{\"name\":\"read\",\"arguments\":{\"path\":\"a.c\"}}");
    assert_string_equal(TEXT(chat_last(t)->text), "I read it.");
    assert_string_equal(TEXT(chat_last(t)->calls),
                        "[{\"name\":\"read\",\"arguments\":{\"path\":\"a.c\"}}]");
    heard_fini(&h);
    const char *bad[] = {"{}", "[]", "[{\"role\":\"user\"", "[{\"role\":17}]"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(chat_messages(t, bad[i], strlen(bad[i]), NULL, 0, NULL), 0);
        hear(c, t, &h);
        assert_int_equal(h.reason, CE_R_ERROR);
        assert_true(h.why.len > 10);
        heard_fini(&h);
    }
    conv_close(c);
}

/* Later turns compute only what is new, where the template lets the prompt extend
 * the old one; and the answer equals that of a conversation that never had a
 * live state. */
static void later_turns_reuse(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=4096");
    o.think = 0;
    o.preserve = 1;
    o.temp = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    const char *answers[] = {"First answer.<|im_end|>", "Second.<|im_end|>", "Third.<|im_end|>"};
    for (int i = 0; i < 3; i++) {
        say(answers[i]);
        ask(c, t, "Tell me more about it.", &h);
        const struct chat_result *r = chat_last(t);
        if (i > 0) {
            assert_true(r->cached_tokens > 0 && r->cached_tokens < r->prompt_tokens);
        } else {
            assert_int_equal(r->cached_tokens, 0);
        }
        heard_fini(&h);
    }
    fake_script(NULL, 0); /* from here on tokens depend on all that came before */
    ask(c, t, "And now?", &h);
    assert_true(chat_last(t)->cached_tokens > 0);
    const char *messages = "[{\"role\":\"user\",\"content\":\"Tell me more about it.\"},"
                           "{\"role\":\"assistant\",\"content\":\"First answer.\"},"
                           "{\"role\":\"user\",\"content\":\"Tell me more about it.\"},"
                           "{\"role\":\"assistant\",\"content\":\"Second.\"},"
                           "{\"role\":\"user\",\"content\":\"Tell me more about it.\"},"
                           "{\"role\":\"assistant\",\"content\":\"Third.\"},"
                           "{\"role\":\"user\",\"content\":\"And now?\"}]";
    struct chat *cold = chat_create(c);
    struct heard h2;
    assert_int_equal(chat_messages(cold, messages, strlen(messages), NULL, 0, NULL), 0);
    hear(c, cold, &h2);
    const struct chat_result *a = chat_last(t), *b = chat_last(cold);
    assert_int_equal(b->cached_tokens, 0);
    assert_int_equal(a->prompt_tokens, b->prompt_tokens);
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, a->n_ids * sizeof *a->ids);
    heard_fini(&h);
    heard_fini(&h2);
    conv_close(c);
}

static void seeds_are_told_and_repeat(void **state)
{
    (void)state;
    fake_script(NULL, 0);
    struct conv_opts o = opts("ctx=2048");
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    ask(c, t, "x", &h);
    heard_fini(&h);
    uint64_t seed = chat_last(t)->seed;
    size_t n = chat_last(t)->n_ids;
    int32_t *ids = malloc(n * sizeof *ids);
    memcpy(ids, chat_last(t)->ids, n * sizeof *ids);
    chat_clear(t);
    ask(c, t, "x", &h);
    heard_fini(&h);
    assert_true(chat_last(t)->seed != seed);
    assert_memory_not_equal(chat_last(t)->ids, ids, n * sizeof *ids);
    chat_clear(t);
    char word[32];
    snprintf(word, sizeof word, "%llu", (unsigned long long)seed);
    assert_int_equal(chat_set(t, "seed", word, NULL), 0);
    ask(c, t, "x", &h);
    heard_fini(&h);
    assert_int_equal(chat_last(t)->n_ids, n);
    assert_memory_equal(chat_last(t)->ids, ids, n * sizeof *ids);
    free(ids);
    conv_close(c);
}

static void limits_are_named(void **state)
{
    (void)state;
    say("ok<|im_end|>");
    struct conv_opts o = opts("ctx=512");
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    ask(c, t, "", &h); /* nothing said is something */
    assert_int_equal(h.reason, CE_R_STOP);
    heard_fini(&h);
    size_t n = 1 << 20;
    char *big = mem_alloc(n + 1);
    for (size_t i = 0; i < n; i++) {
        big[i] = "lorem ipsum "[i % 12];
    }
    big[n] = 0;
    ask(c, t, big, &h);
    assert_int_equal(h.reason, CE_R_ERROR);
    assert_non_null(strstr(h.why.data, "512"));
    heard_fini(&h);
    struct err e = ERR_INIT;
    assert_int_equal(chat_send(t, big, CHAT_TEXT_MAX + 1, &e), QE_NOMEM);
    assert_non_null(strstr(e.msg, "16777217"));
    assert_non_null(strstr(e.msg, "16777216"));
    free(big);
    /* The conversation is as it was: the next turn fits. */
    ask(c, t, "short", &h);
    assert_int_equal(h.reason, CE_R_STOP);
    assert_true(chat_last(t)->prompt_tokens < 100);
    heard_fini(&h);
    conv_close(c);
}

static void bare_continuations(void **state)
{
    (void)state;
    say("<think> stays</think> in it<|im_end|>");
    struct conv_opts o = opts("ctx=512");
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    const char *text = "Once upon<|im_end|>";
    assert_int_equal(chat_complete(t, text, strlen(text), NULL), 0);
    hear(c, t, &h);
    assert_string_equal(TEXT(h.text), "<think> stays</think> in it");
    struct tok_ids ids = {0};
    tokenizer_encode(tok, text, strlen(text), true, &ids);
    assert_int_equal(chat_last(t)->prompt_tokens, ids.n);
    heard_fini(&h);
    assert_int_equal(chat_complete_ids(t, ids.v, ids.n, NULL), 0);
    hear(c, t, &h);
    assert_string_equal(TEXT(h.text), "<think> stays</think> in it");
    heard_fini(&h);
    assert_int_equal(chat_complete_ids(t, ids.v, 0, NULL), 0);
    hear(c, t, &h);
    assert_int_equal(h.reason, CE_R_ERROR);
    assert_string_equal(TEXT(h.why), "the prompt is empty");
    heard_fini(&h);
    tok_ids_free(&ids);
    conv_close(c);
}

static void wait_for(struct conv *c, enum conv_event_kind kind)
{
    struct conv_event ev;
    enum conv_event_kind got = CE_END;
    do {
        assert_true(conv_wait(c, &ev, 20000));
        got = ev.kind;
        conv_event_fini(&ev);
    } while (got != kind);
}

/* Stop texts count from the min-tokens-th token on; log probabilities come with every
 * token that was said, an ending one too. */
static void few_tokens_and_log_probabilities(void **state)
{
    (void)state;
    const char *stops[] = {"two"};
    struct conv_opts o = opts("ctx=2048");
    o.stop = stops;
    o.n_stop = 1;
    o.think = 0;
    o.min_tokens = 4;
    o.logprobs = 2;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    say("two two two two two two two two<|im_end|>");
    ask(c, t, "x", &h);
    assert_int_equal(h.reason, CE_R_STOP);
    assert_true(h.text.len > 7 && h.text.len < 31);
    const struct chat_result *r = chat_last(t);
    assert_true(r->n_ids >= 4 && r->n_ids < 8);
    assert_int_equal(r->n_logprobs, 3);
    for (size_t i = 0; i < r->n_ids; i++) {
        assert_int_equal(r->logprobs[3 * i].id, r->ids[i]);
        assert_int_equal(r->logprobs[3 * i + 2].id, 2);
        assert_true(r->logprobs[3 * i + 2].logprob == -0.75F);
    }
    heard_fini(&h);
    conv_close(c);
}

static void stopping(void **state)
{
    (void)state;
    fake_script(NULL, 0);
    struct conv_opts o = opts("ctx=8192,step_us=3000,prefill_us=200");
    o.max_tokens = -1;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    /* in mid-decode: what was said stays */
    assert_int_equal(chat_send(t, "go", 2, NULL), 0);
    assert_int_equal(chat_send(t, "and on", 6, NULL), 0);
    wait_for(c, CE_TEXT);
    chat_stop(t);
    hear(c, t, &h);
    assert_int_equal(h.reason, CE_R_CANCELLED);
    assert_true(chat_last(t)->text.len > 0);
    int first = chat_last(t)->prompt_tokens + (int)chat_last(t)->n_ids;
    heard_fini(&h);
    /* the second was not dropped, and knows what the first said */
    wait_for(c, CE_TEXT);
    chat_stop(t);
    hear(c, t, &h);
    assert_true(chat_last(t)->prompt_tokens > first);
    heard_fini(&h);
    /* in mid-prefill: 4,000 tokens would take 0.8 s */
    chat_clear(t);
    struct buf big = BUF_INIT;
    for (int i = 0; i < 4000; i++) {
        buf_adds(&big, " a");
    }
    assert_int_equal(chat_send(t, big.data, big.len, NULL), 0);
    wait_for(c, CE_PREFILL);
    chat_stop(t);
    hear(c, t, &h);
    assert_int_equal(h.reason, CE_R_CANCELLED);
    assert_int_equal(h.text.len, 0);
    assert_false(chat_busy(t));
    heard_fini(&h);
    /* closing in the midst of things */
    assert_int_equal(chat_send(t, "go", 2, NULL), 0);
    struct chat *u = chat_create(c);
    assert_int_equal(chat_send(u, big.data, big.len, NULL), 0);
    wait_for(c, CE_TEXT);
    chat_free(u);
    buf_free(&big);
    conv_close(c);
}

static void stop_before_the_model_is_there(void **state)
{
    (void)state;
    say("late<|im_end|>");
    struct conv_opts o = opts("load_us=200000");
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    assert_int_equal(chat_send(t, "one", 3, NULL), 0);
    assert_int_equal(chat_send(t, "two", 3, NULL), 0);
    chat_stop(t);
    hear(c, t, &h);
    assert_int_equal(h.reason, CE_R_CANCELLED);
    assert_int_equal(h.ready, 0);
    heard_fini(&h);
    hear(c, t, &h);
    assert_int_equal(h.reason, CE_R_STOP);
    assert_string_equal(TEXT(h.text), "late");
    heard_fini(&h);
    conv_close(c);
}

static void two_chats_at_once(void **state)
{
    (void)state;
    fake_script(NULL, 0);
    struct conv_opts o = opts("ctx=4096,step_us=200");
    o.temp = 0;
    o.max_tokens = 300;
    o.think = 0;
    o.spec = "off"; /* one row to a chat, though the second round could be drafted from the first */
    struct conv *c = open_conv(&o);
    struct chat *t[2] = {chat_create(c), chat_create(c)};
    int32_t ids[2][300];
    struct buf text[2] = {BUF_INIT, BUF_INIT};
    for (int together = 0; together < 2; together++) {
        for (int i = 0; i < 2; i++) {
            chat_clear(t[i]);
            buf_truncate(&text[i], 0);
        }
        int left = 0;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(chat_send(t[i], i ? "left" : "right", i ? 4 : 5, NULL), 0);
            left++;
            while (left > (together && i == 0)) {
                struct conv_event ev;
                assert_true(conv_wait(c, &ev, 20000));
                if (ev.kind == CE_TEXT) {
                    buf_add(&text[ev.chat == t[1]], ev.text.data, ev.text.len);
                }
                left -= ev.kind == CE_END;
                conv_event_fini(&ev);
            }
        }
        for (int i = 0; i < 2; i++) {
            const struct chat_result *r = chat_last(t[i]);
            assert_int_equal(r->n_ids, 300);
            assert_string_equal(TEXT(r->text), TEXT(text[i]));
            if (together) {
                assert_memory_equal(r->ids, ids[i], sizeof ids[i]);
            }
            memcpy(ids[i], r->ids, sizeof ids[i]);
        }
    }
    assert_int_equal(fake_log.max_rows, 2);
    buf_free(&text[0]);
    buf_free(&text[1]);
    conv_close(c);
}

/* A reader who sleeps finds all of the text, in few events. */
static void slow_reader(void **state)
{
    (void)state;
    fake_script(NULL, 0);
    struct conv_opts o = opts("ctx=8192");
    o.max_tokens = 6000;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    assert_int_equal(chat_send(t, "go", 2, NULL), 0);
    while (fake_log.decode_calls < 5999) {
        usleep(2000);
    }
    usleep(100000);
    struct heard h;
    hear(c, t, &h);
    assert_int_equal(chat_last(t)->n_ids, 6000);
    assert_int_equal(h.text.len, chat_last(t)->text.len);
    assert_memory_equal(h.text.data, chat_last(t)->text.data, h.text.len);
    heard_fini(&h);
    conv_close(c);
}

static void engine_failures_are_told(void **state)
{
    (void)state;
    fake_script(NULL, 0);
    struct conv_opts o = opts("fail_decode=5");
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    ask(c, t, "x", &h);
    assert_int_equal(h.reason, CE_R_ERROR);
    assert_non_null(strstr(h.why.data, "decode made to fail"));
    heard_fini(&h);
    ask(c, t, "x", &h);
    assert_int_equal(h.reason, CE_R_LENGTH);
    heard_fini(&h);
    conv_close(c);

    o = opts("fail_load=1");
    c = open_conv(&o);
    t = chat_create(c);
    assert_int_equal(chat_send(t, "x", 1, NULL), 0);
    wait_for(c, CE_FAILED);
    assert_false(chat_busy(t));
    struct err e = ERR_INIT;
    assert_int_equal(chat_send(t, "x", 1, &e), QE_INTERNAL);
    conv_close(c);
}

static void settings_are_checked(void **state)
{
    (void)state;
    struct conv_opts o = conv_opts_default();
    struct settings s;
    settings_from(&s, &o);
    const struct {
        const char *key, *good, *bad;
    } t[] = {{"temp", "0.5", "-1"},     {"top-p", "1", "1.5"},      {"min-p", "0", "x"},
             {"top-k", "-1", "-2"},     {"seed", "7", "-7"},        {"max-tokens", "5", "0"},
             {"presence", "-2", "2.1"}, {"frequency", "0.5", "-3"}, {"repetition", "1.1", "0"},
             {"min-tokens", "0", "-1"}, {"think", "on", "maybe"},   {"effort", "high", "huge"}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct err e = ERR_INIT;
        assert_int_equal(settings_set(&s, t[i].key, t[i].good, &e), 0);
        assert_int_equal(settings_set(&s, t[i].key, "default", &e), 0);
        assert_int_equal(settings_set(&s, t[i].key, t[i].bad, &e), QE_USAGE);
        assert_non_null(strstr(e.msg, t[i].key));
        assert_non_null(strstr(e.msg, t[i].bad));
    }
    struct err e = ERR_INIT;
    assert_int_equal(settings_set(&s, "tmep", "1", &e), QE_USAGE);
    assert_int_equal(settings_set(&s, "system", "be kind", &e), 0);
    assert_string_equal(s.system, "be kind");
    assert_int_equal(settings_set(&s, "top-k", "12", &e), 0);
    struct engine_sampling m = {.temp = 0.7F, .top_p = 0.9F, .top_k = 20};
    struct engine_draw d = settings_draw(&s, m);
    assert_true(d.temp == 0.7F && d.top_p == 0.9F && d.top_k == 12);
    assert_int_equal(settings_set(&s, "presence", "1.5", &e), 0);
    m.repetition = 1.1F;
    const struct engine_rules r = settings_rules(&s, m);
    assert_true(r.presence == 1.5F && r.repetition == 1.1F && r.frequency == 0);
    settings_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thought_and_answer),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(tool_calls),
        cmocka_unit_test(later_turns_reuse),
        cmocka_unit_test(seeds_are_told_and_repeat),
        cmocka_unit_test(limits_are_named),
        cmocka_unit_test(bare_continuations),
        cmocka_unit_test(few_tokens_and_log_probabilities),
        cmocka_unit_test(stopping),
        cmocka_unit_test(stop_before_the_model_is_there),
        cmocka_unit_test(two_chats_at_once),
        cmocka_unit_test(slow_reader),
        cmocka_unit_test(engine_failures_are_told),
        cmocka_unit_test(settings_are_checked),
    };
    return cmocka_run_group_tests(tests, conv_prepare, conv_clean);
}
