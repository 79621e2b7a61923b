/* src/conv on the stand-in engine with the demo model's tokenizer and template:
 * the whole way from chat_send to events, transcript and back. */
#include "config.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/io.h"
#include "base/mem.h"
#include "conv/conv.h"
#include "conv/settings.h"
#include "format/container.h"
#include "sessions/catalog.h"
#include "tests/fake/engine.h"
#include "tokenizer/tokenizer.h"

static char model[4096]; /* the demo's path */
static struct tokenizer *tok;

static struct conv_opts opts(const char *setup)
{
    static char path[8192];
    snprintf(path, sizeof path, "%s,vocab=%d,eos_id=%d,model=%s", setup, tokenizer_size(tok),
             tokenizer_added_id(tok, "<|im_end|>", 10), model);
    struct conv_opts o = conv_opts_default();
    o.model = path;
    o.max_tokens = 64;
    return o;
}

static struct conv *open_conv(const struct conv_opts *o)
{
    struct conv *c = NULL;
    struct err e = ERR_INIT;
    fake_log_reset();
    assert_int_equal(conv_open(o, &c, &e), 0);
    return c;
}

/* The engine will say this (special tokens count). */
static void say(const char *text)
{
    struct tok_ids ids = {0};
    tokenizer_encode(tok, text, strlen(text), true, &ids);
    fake_script(ids.v, (int)ids.n);
    tok_ids_free(&ids);
}

struct heard {
    struct buf text, thought, calls, why, notice;
    enum conv_reason reason;
    int queued, prefill, ready, notices;
};

static void heard_fini(struct heard *h)
{
    buf_free(&h->text);
    buf_free(&h->thought);
    buf_free(&h->calls);
    buf_free(&h->why);
    buf_free(&h->notice);
    memset(h, 0, sizeof *h);
}

/* Listens until the chat's turn ends. Pieces must be whole characters. */
static void listen(struct conv *c, const struct chat *t, struct heard *h)
{
    memset(h, 0, sizeof *h);
    struct conv_event ev;
    for (bool over = false; !over;) {
        assert_true(conv_wait(c, &ev, 20000));
        struct buf *into = NULL;
        switch (ev.kind) {
        case CE_LOADING:
            break;
        case CE_READY:
            h->ready++;
            break;
        case CE_FAILED:
            fail_msg("%s", ev.text.data);
            break;
        case CE_QUEUED:
            h->queued++;
            break;
        case CE_PREFILL:
            assert_int_equal(h->text.len + h->thought.len, 0);
            h->prefill++;
            break;
        case CE_THOUGHT:
            into = &h->thought;
            break;
        case CE_TEXT:
            into = &h->text;
            break;
        case CE_TOOL:
            into = &h->calls;
            break;
        case CE_NOTICE:
            h->notices++;
            buf_add(&h->notice, ev.text.data, ev.text.len);
            buf_addc(&h->notice, '\n');
            break;
        case CE_SAVED:
            break;
        case CE_END:
            assert_ptr_equal(ev.chat, t);
            h->reason = ev.reason;
            into = &h->why;
            over = true;
            break;
        }
        if (into) {
            buf_add(into, ev.text.data ? ev.text.data : "", ev.text.len);
        }
        conv_event_fini(&ev);
    }
}

static void ask(struct conv *c, struct chat *t, const char *text, struct heard *h)
{
    assert_int_equal(chat_send(t, text, strlen(text), NULL), 0);
    listen(c, t, h);
}

#define TEXT(b) ((b).data ? (b).data : "")

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
    listen(c, t, &h);
    assert_int_equal(h.reason, CE_R_TOOL);
    assert_string_equal(TEXT(h.calls), "{\"name\":\"read\",\"arguments\":{\"path\":\"a.c\"}}");
    assert_string_equal(TEXT(chat_last(t)->text), "I read it.");
    assert_string_equal(TEXT(chat_last(t)->calls),
                        "[{\"name\":\"read\",\"arguments\":{\"path\":\"a.c\"}}]");
    heard_fini(&h);
    const char *bad[] = {"{}", "[]", "[{\"role\":\"user\"", "[{\"role\":17}]"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(chat_messages(t, bad[i], strlen(bad[i]), NULL, 0, NULL), 0);
        listen(c, t, &h);
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
    listen(c, cold, &h2);
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
    listen(c, t, &h);
    assert_string_equal(TEXT(h.text), "<think> stays</think> in it");
    struct tok_ids ids = {0};
    tokenizer_encode(tok, text, strlen(text), true, &ids);
    assert_int_equal(chat_last(t)->prompt_tokens, ids.n);
    heard_fini(&h);
    assert_int_equal(chat_complete_ids(t, ids.v, ids.n, NULL), 0);
    listen(c, t, &h);
    assert_string_equal(TEXT(h.text), "<think> stays</think> in it");
    heard_fini(&h);
    assert_int_equal(chat_complete_ids(t, ids.v, 0, NULL), 0);
    listen(c, t, &h);
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
    listen(c, t, &h);
    assert_int_equal(h.reason, CE_R_CANCELLED);
    assert_true(chat_last(t)->text.len > 0);
    int first = chat_last(t)->prompt_tokens + (int)chat_last(t)->n_ids;
    heard_fini(&h);
    /* the second was not dropped, and knows what the first said */
    wait_for(c, CE_TEXT);
    chat_stop(t);
    listen(c, t, &h);
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
    listen(c, t, &h);
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
    listen(c, t, &h);
    assert_int_equal(h.reason, CE_R_CANCELLED);
    assert_int_equal(h.ready, 0);
    heard_fini(&h);
    listen(c, t, &h);
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
    listen(c, t, &h);
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

/* ---- the transcript on disk ---- */

static char state_home[] = "/tmp/quasar-conv-XXXXXX";

struct rows {
    struct buf all;
};

static bool add_row(void *ctx, const struct catalog_turn *t)
{
    struct rows *r = ctx;
    buf_printf(&r->all, "%s|%.*s|%.*s|%s|%zu\n", t->role == CAT_USER ? "user" : "assistant",
               (int)t->text_n, t->text, (int)t->thought_n, t->thought ? t->thought : "",
               t->finish ? t->finish : "-", t->n_ids);
    return true;
}

static int64_t latest;
static bool first_conv(void *ctx, const struct catalog_conv *v)
{
    (void)ctx;
    latest = v->id;
    return false;
}

static void transcript_is_kept(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    o.system = "Be brief.";
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    say("Easy.\n</think>\n\nFour.<|im_end|>");
    ask(c, t, "2 + 2?", &h);
    heard_fini(&h);
    struct view_chat v;
    chat_view(t, &v);
    assert_true(v.saved);
    size_t n1 = chat_last(t)->n_ids;
    ask(c, t, "Again?", &h);
    heard_fini(&h);
    conv_close(c);
    char path[256];
    snprintf(path, sizeof path, "%s/quasar/catalog.db", state_home);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    struct catalog *cat = NULL;
    assert_int_equal(catalog_open(path, &cat, NULL), 0);
    assert_int_equal(catalog_list(cat, 1, first_conv, NULL, NULL), 0);
    struct rows rows = {0};
    assert_int_equal(catalog_turns(cat, latest, add_row, &rows, NULL), 0);
    char want[256];
    snprintf(want, sizeof want,
             "user|2 + 2?||-|0\nassistant|Four.|Easy.|stop|%zu\n"
             "user|Again?||-|0\nassistant|Four.|Easy.|stop|%zu\n",
             n1, n1);
    assert_string_equal(rows.all.data, want);
    buf_free(&rows.all);
    catalog_close(cat);
}

/* Rows of the latest conversation, as text; the caller frees it. */
static char *latest_rows(void)
{
    char path[256];
    snprintf(path, sizeof path, "%s/quasar/catalog.db", state_home);
    struct catalog *cat = NULL;
    struct rows rows = {0};
    assert_int_equal(catalog_open(path, &cat, NULL), 0);
    assert_int_equal(catalog_verify(cat, NULL), 0);
    assert_int_equal(catalog_list(cat, 1, first_conv, NULL, NULL), 0);
    assert_int_equal(catalog_turns(cat, latest, add_row, &rows, NULL), 0);
    catalog_close(cat);
    return buf_take(&rows.all);
}

static int count_of(const char *text, const char *what)
{
    int n = 0;
    for (const char *p = strstr(text, what); p; p = strstr(p + 1, what)) {
        n++;
    }
    return n;
}

/* What can be read of it is saved, one line says so, and the conversation is kept. */
static void a_bad_catalogue_is_salvaged(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/quasar/catalog.db", state_home);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    for (int i = 0; i < 4096; i++) {
        fputc('x', f);
    }
    fclose(f);
    struct conv_opts o = opts("ctx=512");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    int told = 0;
    say("Still here.<|im_end|>");
    for (int i = 0; i < 3; i++) {
        ask(c, t, "?", &h);
        assert_string_equal(TEXT(h.text), "Still here.");
        told += h.notices;
        assert_true(h.notices == 0 || strstr(h.notice.data, "was damaged: 1 conversation"));
        heard_fini(&h);
    }
    struct view_chat v;
    chat_view(t, &v);
    assert_true(v.saved);
    conv_close(c);
    assert_int_equal(told, 1);
    char *rows = latest_rows();
    assert_int_equal(count_of(rows, "Still here."), 3);
    free(rows);
}

/* The disk takes no more in the middle of a conversation: one notice, and on; once
 * there is room again, all of it is there. */
static void a_full_disk_loses_nothing(void **state)
{
    (void)state;
    char path[256];
    snprintf(path, sizeof path, "%s/quasar/catalog.db", state_home);
    unlink(path);
    struct conv_opts o = opts("ctx=2048");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    struct view_chat v;
    say("Noted.<|im_end|>");
    ask(c, t, "one", &h);
    heard_fini(&h);
    chat_view(t, &v);
    assert_true(v.saved);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit old, tight;
    getrlimit(RLIMIT_FSIZE, &old);
    tight = old;
    tight.rlim_cur = 1024;
    setrlimit(RLIMIT_FSIZE, &tight);
    int told = 0;
    for (int i = 0; i < 3; i++) {
        ask(c, t, "more", &h);
        assert_string_equal(TEXT(h.text), "Noted.");
        told += h.notices;
        heard_fini(&h);
    }
    setrlimit(RLIMIT_FSIZE, &old);
    chat_view(t, &v);
    assert_false(v.saved);
    assert_int_equal(told, 1);
    conv_close(c);
    char *rows = latest_rows();
    const char *want = "user|one||-|0\nassistant|Noted.||stop|";
    assert_memory_equal(rows, want, strlen(want));
    assert_int_equal(count_of(rows, "user|more"), 3);
    assert_int_equal(count_of(rows, "assistant|Noted.||stop|"), 4);
    free(rows);
}

/* ---- stored conversations ---- */

struct told {
    struct buf all;
};

static void hear_turn(void *ctx, const struct conv_turn *turn)
{
    struct told *s = ctx;
    buf_printf(&s->all, "%s:%.*s/%s ", turn->user ? "user" : "model", (int)turn->text_n, turn->text,
               turn->finish ? turn->finish : "-");
}

static struct conv_opts stored_opts(const char *setup)
{
    struct conv_opts o = opts(setup);
    o.save = true;
    o.save_state = true;
    o.directory = "/home/me";
    o.think = 0;
    o.preserve = 1;
    o.temp = 0;
    o.max_tokens = 9;
    return o;
}

/* Saves the state now; what it said about that. */
static void save_now(struct conv *c, struct chat *t, struct heard *h)
{
    memset(h, 0, sizeof *h);
    chat_save(t);
    struct conv_event ev;
    for (bool over = false; !over; conv_event_fini(&ev)) {
        assert_true(conv_wait(c, &ev, 20000));
        over = ev.kind == CE_SAVED;
        if (ev.kind == CE_NOTICE) {
            h->notices++;
            buf_adds(&h->notice, ev.text.data);
        }
    }
}

/* Texts that the tokenizer gives back as they were; in the end tokens that depend on all
 * that came before. */
static void answer_or_hash(int turn)
{
    if (turn < 2) {
        say(turn == 0 ? "First answer.<|im_end|>" : "Second.<|im_end|>");
    } else {
        fake_script(NULL, 0);
    }
}

/* Three turns, uninterrupted; then the same with the program ended and started in
 * between, in several ways: the same tokens, and so much reused. */
static void gone_on_with(void **state)
{
    (void)state;
    struct conv_opts o = stored_opts("ctx=2048");
    struct err e = ERR_INIT;
    struct heard h;
    int32_t want[3][16];
    size_t want_n[3];
    int cached[3];
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    for (int i = 0; i < 3; i++) {
        answer_or_hash(i);
        ask(c, t, "Tell me more.", &h);
        const struct chat_result *r = chat_last(t);
        want_n[i] = r->n_ids;
        memcpy(want[i], r->ids, r->n_ids * sizeof *r->ids);
        cached[i] = r->cached_tokens;
        heard_fini(&h);
    }
    assert_true(cached[1] > 0 && cached[2] > cached[1]);
    conv_close(c);
    /* by name, and a process for each turn; the last finds the state of before */
    for (int i = 0; i < 3; i++) {
        answer_or_hash(i);
        c = open_conv(&o);
        t = chat_create(c);
        assert_int_equal(chat_session(t, "my talk", &e), 0);
        ask(c, t, "Tell me more.", &h);
        const struct chat_result *r = chat_last(t);
        assert_int_equal(r->n_ids, want_n[i]);
        assert_memory_equal(r->ids, want[i], want_n[i] * sizeof *r->ids);
        assert_int_equal(r->cached_tokens, cached[i]);
        assert_int_equal(h.notices, 0);
        heard_fini(&h);
        conv_close(c); /* which saves the state */
    }
    struct view_chat v;
    c = open_conv(&o);
    t = chat_create(c);
    assert_int_equal(chat_session(t, "my talk", &e), 0);
    ask(c, t, "And?", &h);
    heard_fini(&h);
    chat_view(t, &v);
    const int64_t id = v.conversation;
    assert_true(id > 0);
    save_now(c, t, &h);
    assert_int_equal(h.notices, 0);
    heard_fini(&h);
    chat_view(t, &v);
    assert_true(v.state_saved);
    save_now(c, t, &h); /* there is nothing more to save */
    heard_fini(&h);
    /* while it is open, nobody else goes on with it, here or elsewhere */
    struct chat *other = chat_create(c);
    assert_int_equal(chat_resume(other, id, NULL, NULL, &e), QE_BUSY);
    assert_non_null(strstr(e.msg, "is open in another quasar"));
    assert_int_equal(chat_session(other, "my talk", &e), QE_BUSY);
    assert_int_equal(chat_resume(other, 99999, NULL, NULL, &e), QE_NOTFOUND);
    assert_int_equal(chat_session(other, "", &e), QE_USAGE);
    /* /new lets go of it */
    chat_clear(t);
    for (int i = 0; i < 1000 && (chat_view(t, &v), v.conversation != 0); i++) {
        usleep(1000);
    }
    struct told told = {0};
    assert_int_equal(chat_resume(other, id, hear_turn, &told, &e), 0);
    assert_int_equal(count_of(told.all.data, "user:Tell me more./- "), 3);
    assert_int_equal(count_of(told.all.data, "model:"), 4);
    buf_free(&told.all);
    conv_close(c);
}

static void the_states(char *path, size_t n, int *count)
{
    char folder[256];
    snprintf(folder, sizeof folder, "%s/quasar/states", state_home);
    DIR *d = opendir(folder);
    *count = 0;
    for (struct dirent *f = d ? readdir(d) : NULL; f; f = readdir(d)) {
        if (f->d_name[0] != '.') {
            snprintf(path, n, "%s/%s", folder, f->d_name);
            (*count)++;
        }
    }
    closedir(d);
}

/* One turn of a stored conversation in a conv of its own. */
static void one_turn(struct conv_opts *o, const char *name, struct heard *h, int *cached,
                     int32_t *ids, size_t *n_ids)
{
    struct err e = ERR_INIT;
    struct conv *c = open_conv(o);
    struct chat *t = chat_create(c);
    assert_int_equal(chat_session(t, name, &e), 0);
    ask(c, t, "Tell me more.", h);
    *cached = chat_last(t)->cached_tokens;
    *n_ids = chat_last(t)->n_ids;
    memcpy(ids, chat_last(t)->ids, *n_ids * sizeof *ids);
    conv_close(c);
}

/* Whatever became of the state: one line, the same answer, nothing lost. */
static void states_that_cannot_be_used(void **state)
{
    (void)state;
    char path[600], folder[256], cmd[700];
    snprintf(folder, sizeof folder, "%s/quasar", state_home);
    const char *const ways[] = {"none", "missing", "flipped", "cut", "empty", "newer", "model"};
    int32_t ids[16], want[16];
    size_t n = 0, want_n = 0;
    say("An answer.<|im_end|>");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        snprintf(cmd, sizeof cmd, "rm -rf %s", folder);
        assert_int_equal(system(cmd), 0);
        struct conv_opts o = stored_opts("ctx=2048");
        struct heard h;
        int cached = 0, count = 0;
        o.save_state = i > 0;
        one_turn(&o, "talk", &h, &cached, ids, &n);
        heard_fini(&h);
        o.save_state = true;
        if (i > 0) {
            the_states(path, sizeof path, &count);
            assert_int_equal(count, 1);
            FILE *f = fopen(path, "r+");
            struct stat st;
            assert_int_equal(fstat(fileno(f), &st), 0);
            if (i == 2) {
                fseek(f, st.st_size / 2, SEEK_SET);
                const int ch = fgetc(f);
                fseek(f, st.st_size / 2, SEEK_SET);
                fputc(ch ^ 1, f);
            }
            if (i == 5) {
                fseek(f, 8, SEEK_SET);
                fputc(9, f);
            }
            fclose(f);
            assert_int_equal(i == 1   ? unlink(path)
                             : i == 3 ? truncate(path, st.st_size - 1)
                             : i == 4 ? truncate(path, 0)
                                      : 0,
                             0);
        }
        if (i == 6) {
            o = stored_opts("ctx=2048,compat=9");
        }
        one_turn(&o, "talk", &h, &cached, ids, &n);
        assert_int_equal(cached, 0);
        if (h.notices != 1 || !strstr(h.notice.data, "read again")) {
            fail_msg("%s: %d notices: %s", ways[i], h.notices, h.notices ? h.notice.data : "");
        }
        if (i == 0) {
            want_n = n;
            memcpy(want, ids, n * sizeof *ids);
        }
        assert_int_equal(n, want_n);
        assert_memory_equal(ids, want, n * sizeof *ids);
        /* damaged files are gone, foreign ones stay */
        the_states(path, sizeof path, &count);
        if (count != (i == 5 || i == 6 ? 2 : 1)) {
            fail_msg("%s: %d files; %s", ways[i], count, h.notice.data ? h.notice.data : "");
        }
        char *rows = latest_rows();
        assert_int_equal(count_of(rows, "user|Tell me more."), 2);
        assert_int_equal(count_of(rows, "assistant|"), 2);
        free(rows);
        heard_fini(&h);
        /* the turn after that has a state again */
        one_turn(&o, "talk", &h, &cached, ids, &n);
        assert_int_equal(h.notices, 0);
        assert_true(cached > 0);
        heard_fini(&h);
    }
}

/* States that cannot be written are told once; those over the budget go. */
static void no_room_for_states(void **state)
{
    (void)state;
    char cmd[300], path[600];
    snprintf(cmd, sizeof cmd, "rm -rf %s/quasar", state_home);
    assert_int_equal(system(cmd), 0);
    struct conv_opts o = stored_opts("ctx=2048");
    struct heard h;
    say("An answer.<|im_end|>");
    o.state_budget = 100;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    int told = 0;
    for (int i = 0; i < 3; i++) {
        ask(c, t, "Tell me more.", &h);
        heard_fini(&h);
        save_now(c, t, &h);
        told += h.notices;
        assert_true(h.notices == 0 || strstr(h.notice.data, "--state-budget"));
        heard_fini(&h);
    }
    assert_int_equal(told, 1);
    conv_close(c);
    /* room for two of them */
    int count = 0, cached = 0;
    int32_t ids[16];
    size_t n = 0;
    o.state_budget = 20000;
    for (int i = 0; i < 5; i++) {
        one_turn(&o, "talk", &h, &cached, ids, &n);
        assert_true(i == 0 || cached > 0);
        heard_fini(&h);
        the_states(path, sizeof path, &count);
        assert_true(count >= 1 && count <= 4);
    }
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size * count <= 20000 + st.st_size);
}

/* A prompt that a conversation left on disk serves another run's; a bare continuation
 * leaves none. */
static void prompts_on_disk(void **state)
{
    (void)state;
    struct buf text = BUF_INIT;
    for (int i = 0; i < 500; i++) {
        buf_printf(&text, "%d and ", i);
    }
    char dir[] = "/tmp/quasar-conv-prefixes-XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (int run = 0; run < 4; run++) {
        struct conv_opts o = opts("ctx=16384");
        o.prefix_dir = dir;
        o.prefix_least = 64;
        struct conv *c = open_conv(&o);
        struct chat *t = chat_create(c);
        struct heard h;
        say("Yes.<|im_end|>");
        if (run < 2) { /* never written */
            struct err e = ERR_INIT;
            assert_int_equal(chat_complete(t, text.data, text.len, &e), 0);
            listen(c, t, &h);
        } else {
            ask(c, t, text.data, &h);
        }
        const struct chat_result *r = chat_last(t);
        assert_string_equal(r->reuse, run < 3 ? "none" : "disk");
        assert_string_equal(r->reuse_short, run < 3 ? "cold" : "all");
        if (run == 3) {
            assert_true(r->cached_tokens > 1000 && r->cached_tokens % 64 == 0);
            assert_true(r->prompt_tokens - r->cached_tokens < 80);
        }
        heard_fini(&h);
        conv_close(c);
    }
    buf_free(&text);
    DIR *d = opendir(dir);
    struct dirent *f = NULL;
    int files = 0;
    while ((f = readdir(d))) {
        char path[512];
        snprintf(path, sizeof path, "%s/%.255s", dir, f->d_name);
        files += strstr(f->d_name, ".prefix") != NULL;
        if (f->d_name[0] != '.') {
            unlink(path);
        }
    }
    closedir(d);
    assert_int_equal(files, 1);
    assert_int_equal(rmdir(dir), 0);
}

static int prepare(void **state)
{
    (void)state;
    const char *src = getenv("QUASAR_SRCDIR");
    snprintf(model, sizeof model, "%s/models/demo.qsr", src ? src : ".");
    struct container *c = NULL;
    struct err e = ERR_INIT;
    if (container_open(model, false, &c, &e) < 0) {
        fprintf(stderr, "%s\n", e.msg);
        return -1;
    }
    const char *p = NULL;
    size_t n = 0;
    container_get(c, CB_TOKENIZER, &p, &n);
    int rc = tokenizer_open(p, n, NULL, 0, "demo", &tok, &e);
    container_close(c);
    if (rc < 0 || !mkdtemp(state_home)) {
        return -1;
    }
    setenv("XDG_STATE_HOME", state_home, 1);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    tokenizer_free(tok);
    char cmd[256];
    snprintf(cmd, sizeof cmd, "rm -rf %s", state_home);
    return system(cmd);
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
        cmocka_unit_test(transcript_is_kept),
        cmocka_unit_test(prompts_on_disk),
        cmocka_unit_test(a_bad_catalogue_is_salvaged),
        cmocka_unit_test(a_full_disk_loses_nothing),
        cmocka_unit_test(gone_on_with),
        cmocka_unit_test(states_that_cannot_be_used),
        cmocka_unit_test(no_room_for_states),
    };
    return cmocka_run_group_tests(tests, prepare, clean);
}
