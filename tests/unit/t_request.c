/* Clients' requests beside the conversation on the screen: events go to whom they belong,
 * a request brings all its settings, keeps nothing, and is gone when its reader is. */
#include "config.h"

#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "conv/request.h"
#include "tests/fake/engine.h"
#include "tests/unit/conv_help.h"
#include "tokenizer/tokenizer.h"

static const char hello[] = "[{\"role\":\"user\",\"content\":\"Hello\"}]";

static struct conv_reader *open_reader(struct conv *c)
{
    struct conv_reader *r = NULL;
    assert_int_equal(conv_reader_create(c, &r, NULL), 0);
    return r;
}

static void wait_ready(struct conv *c)
{
    struct conv_event ev = {0};
    for (bool ready = false; !ready;) {
        assert_true(conv_wait(c, &ev, 20000));
        ready = ev.kind == CE_READY;
        conv_event_fini(&ev);
    }
}

static void next(struct conv_reader *r, struct conv_event *ev)
{
    while (!conv_reader_next(r, ev)) {
        struct pollfd p = {.fd = conv_reader_fd(r), .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
    }
}

/* Until the end of this chat's turn; every event must be of it. */
static void hear_request(struct conv_reader *r, const struct chat *t, struct heard *h)
{
    memset(h, 0, sizeof *h);
    struct conv_event ev = {0};
    for (bool over = false; !over;) {
        next(r, &ev);
        assert_ptr_equal(ev.chat, t);
        over = ev.kind == CE_END;
        struct buf *into = ev.kind == CE_TEXT      ? &h->text
                           : ev.kind == CE_THOUGHT ? &h->thought
                           : ev.kind == CE_TOOL    ? &h->calls
                           : over                  ? &h->why
                                                   : NULL;
        h->reason = ev.reason;
        if (into) {
            buf_add(into, ev.text.data ? ev.text.data : "", ev.text.len);
        }
        conv_event_fini(&ev);
    }
}

static void beside_the_screen(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=2048");
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct conv_reader *r = open_reader(c);
    struct chat *mine = chat_create(c), *other = conv_reader_chat(r);
    struct conv_request q = conv_request_default(c);
    assert_int_equal(q.max_tokens, 64);
    assert_true(isnan(q.temp));
    q.messages = hello;
    q.messages_n = strlen(hello);
    say("The same for both.<|im_end|>");
    assert_int_equal(chat_request(other, &q, NULL), 0);
    assert_int_equal(chat_send(mine, "Hello", 5, NULL), 0);
    struct heard h, k;
    hear_request(r, other, &h);
    hear(c, mine, &k);
    assert_string_equal(TEXT(h.text), "The same for both.");
    assert_string_equal(TEXT(k.text), TEXT(h.text));
    assert_int_equal(chat_last(other)->prompt_tokens, chat_last(mine)->prompt_tokens);
    int n = 0;
    assert_int_equal(conv_count_tokens(c, &q, &n, NULL), 0);
    assert_int_equal(n, chat_last(other)->prompt_tokens);
    heard_fini(&h);
    heard_fini(&k);
    /* Nothing of a request is part of the next one. */
    say("Again.<|im_end|>");
    assert_int_equal(chat_request(other, &q, NULL), 0);
    hear_request(r, other, &h);
    assert_int_equal(chat_last(other)->prompt_tokens, n);
    heard_fini(&h);
    chat_free(other);
    conv_reader_free(r);
    conv_close(c);
}

static void settings_of_one_request(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=2048");
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct conv_reader *r = open_reader(c);
    struct chat *t = conv_reader_chat(r);
    const char *stops[] = {"two"};
    struct conv_request q = conv_request_default(c);
    struct heard h;
    q.text = "count: ";
    q.text_n = 7;
    q.stop = stops;
    q.n_stop = 1;
    q.logprobs = 0;
    say("one two three<|im_end|>");
    assert_int_equal(chat_request(t, &q, NULL), 0);
    hear_request(r, t, &h);
    assert_string_equal(TEXT(h.text), "one ");
    assert_int_equal(chat_last(t)->n_logprobs, 1);
    heard_fini(&h);
    q.n_stop = 0;
    q.logprobs = -1;
    q.max_tokens = 1;
    say("one two three<|im_end|>");
    assert_int_equal(chat_request(t, &q, NULL), 0);
    hear_request(r, t, &h);
    assert_int_equal(h.reason, CE_R_LENGTH);
    assert_int_equal(chat_last(t)->n_ids, 1);
    assert_int_equal(chat_last(t)->n_logprobs, 0);
    heard_fini(&h);
    conv_reader_free(r);
    conv_close(c);
}

static void wrong_requests(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=2048");
    struct conv *c = open_conv(&o);
    struct conv_reader *r = open_reader(c);
    struct chat *t = conv_reader_chat(r);
    struct err e = ERR_INIT;
    struct conv_request q = conv_request_default(c);
    int n = -1;
    assert_int_equal(chat_request(t, &q, &e), QE_USAGE);
    q.messages = hello;
    q.messages_n = strlen(hello);
    q.temp = 101;
    assert_int_equal(chat_request(t, &q, &e), QE_USAGE);
    assert_string_equal(e.msg, "temp is 101; it must be a number from 0 to 100");
    q.temp = INFINITY;
    assert_int_equal(chat_request(t, &q, &e), QE_USAGE);
    q.temp = 1;
    q.max_tokens = 0;
    assert_int_equal(chat_request(t, &q, &e), QE_USAGE);
    assert_string_equal(e.msg, "max-tokens is 0; it must be a whole number from 1 to 1048576");
    q.max_tokens = 1;
    q.text = "both";
    q.text_n = 4;
    assert_int_equal(chat_request(t, &q, &e), QE_USAGE);
    q.text = NULL;
    wait_ready(c);
    q.messages = "[{\"role\":\"nobody\",\"content\":\"x\"}]";
    q.messages_n = strlen(q.messages);
    assert_int_equal(conv_count_tokens(c, &q, &n, &e), QE_FORMAT);
    q.messages_n = 5;
    assert_int_equal(conv_count_tokens(c, &q, &n, &e), QE_FORMAT);
    conv_reader_free(r);
    conv_close(c);
}

static void tokens_and_back(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=2048");
    struct conv *c = open_conv(&o);
    struct err e = ERR_INIT;
    int32_t *ids = NULL;
    size_t n = 0;
    wait_ready(c);
    static const char text[] = "w\xC3\xB6rld <|im_end|>";
    assert_int_equal(conv_tokenize(c, text, strlen(text), true, &ids, &n, &e), 0);
    const size_t with = n;
    struct buf back = BUF_INIT;
    assert_int_equal(conv_detokenize(c, ids, n, &back, &e), 0);
    buf_addc(&back, 0);
    assert_string_equal(back.data, text);
    free(ids);
    assert_int_equal(conv_tokenize(c, text, strlen(text), false, &ids, &n, &e), 0);
    assert_true(n > with);
    free(ids);
    const int32_t wrong[] = {1, -1};
    assert_int_equal(conv_detokenize(c, wrong, 2, &back, &e), QE_USAGE);
    assert_non_null(strstr(e.msg, "token 1 is -1"));
    buf_free(&back);
    conv_close(c);
}

/* Readers that go while their requests run or wait, many times; the screen goes on. */
static void readers_come_and_go(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=2048,step_us=200");
    o.think = 0;
    o.max_tokens = 400;
    struct conv *c = open_conv(&o);
    struct chat *mine = chat_create(c);
    struct heard h;
    for (int i = 0; i < 20; i++) {
        struct conv_reader *r = open_reader(c);
        struct conv_request q = conv_request_default(c);
        q.messages = hello;
        q.messages_n = strlen(hello);
        for (int k = 0; k < 3; k++) {
            struct chat *t = conv_reader_chat(r);
            assert_int_equal(chat_request(t, &q, NULL), 0);
            if (k == i % 3) {
                chat_free(t);
            } else if (i % 2) {
                struct conv_event ev = {0};
                next(r, &ev);
                conv_event_fini(&ev);
            }
        }
        conv_reader_free(r);
    }
    say("Still there.<|im_end|>");
    ask(c, mine, "Hello", &h);
    assert_string_equal(TEXT(h.text), "Still there.");
    heard_fini(&h);
    conv_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_the_screen),   cmocka_unit_test(settings_of_one_request),
        cmocka_unit_test(wrong_requests),      cmocka_unit_test(tokens_and_back),
        cmocka_unit_test(readers_come_and_go),
    };
    return cmocka_run_group_tests(tests, conv_prepare, conv_clean);
}
