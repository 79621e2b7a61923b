/* The search of all conversations: its answers come to who asked last, and nobody waits. */
#include "config.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "conv/finder.h"
#include "tests/unit/conv_help.h"

static void wait_for(struct finder *f, struct finding *out)
{
    struct pollfd p = {.fd = finder_fd(f), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 60000), 1);
    assert_true(finder_take(f, out));
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_false(finder_take(f, out)); /* once */
}

static void what_was_said_is_found(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=4096");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    say("Marmots whistle.<|im_end|>");
    ask(c, t, "What do marmots do?", &h);
    heard_fini(&h);
    say("Nothing of that kind.<|im_end|>");
    ask(c, t, "And \x1b[2J voles?", &h);
    heard_fini(&h);
    struct view_chat v;
    chat_view(t, &v);

    struct finder *f = finder_create(c);
    struct finding got;
    finder_ask(f, "marmot", 6);
    wait_for(f, &got);
    assert_int_equal(got.err.code, 0);
    assert_string_equal(got.words.data, "marmot");
    assert_int_equal(got.n, 2);
    assert_false(got.cut);
    assert_true(got.v[0].conversation == v.conversation && !got.v[0].user);
    assert_string_equal(got.v[0].around, FOUND_ON "Marmots" FOUND_OFF " whistle.");
    assert_true(got.v[1].user);
    assert_string_equal(got.v[1].around, "What do " FOUND_ON "marmots" FOUND_OFF " do?");
    int64_t tip = -1;
    int before = -1;
    assert_int_equal(conv_leads_to(c, v.conversation, got.v[0].turn, v.turn, &tip, &before, NULL),
                     0);
    assert_true(tip == v.turn && before == 1);
    finding_fini(&got);
    /* who asks again gets that answer, however quick the first one was */
    for (int i = 0; i < 50; i++) {
        finder_ask(f, "nothing", 7);
        finder_ask(f, "voles", 5);
        wait_for(f, &got);
        assert_string_equal(got.words.data, "voles");
        assert_int_equal(got.n, 1);
        assert_true(got.v[0].user);
        assert_string_equal(got.v[0].around, "And \x1b[2J " FOUND_ON "voles" FOUND_OFF "?");
        finding_fini(&got);
    }
    finder_ask(f, "gnu", 3);
    wait_for(f, &got);
    assert_int_equal(got.n, 0);
    finding_fini(&got);
    /* given up: by a word of its own, and by the end of it all */
    finder_ask(f, "marmot", 6);
    finder_drop(f);
    struct pollfd p = {.fd = finder_fd(f), .events = POLLIN};
    assert_int_equal(poll(&p, 1, 50), 0);
    assert_false(finder_take(f, &got));
    finder_ask(f, "marmot", 6);
    finder_free(f);
    conv_close(c);
}

/* A "word" of a million letters does not come whole, its beginning does. */
static void a_place_is_short(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=4096");
    o.save = true;
    o.think = 0;
    struct conv *c = open_conv(&o);
    struct chat *t = chat_create(c);
    struct heard h;
    struct buf b = BUF_INIT;
    for (int i = 0; i < 300; i++) {
        buf_adds(&b, "\xC3\xBC");
    }
    buf_adds(&b, " needle ");
    for (int i = 0; i < 300; i++) {
        buf_adds(&b, "\xE2\x82\xAC");
    }
    buf_addc(&b, 0);
    say("Well.<|im_end|>");
    ask(c, t, b.data, &h);
    heard_fini(&h);
    buf_free(&b);
    struct finder *f = finder_create(c);
    struct finding got;
    finder_ask(f, "needle", 6);
    wait_for(f, &got);
    assert_int_equal(got.n, 1);
    assert_non_null(strstr(got.v[0].around, FOUND_ON "needle" FOUND_OFF));
    assert_in_range(strlen(got.v[0].around), 300, 600);
    finding_fini(&got);
    finder_free(f);
    conv_close(c);
}

static void without_a_store(void **state)
{
    (void)state;
    struct conv_opts o = opts("ctx=512");
    struct conv *c = open_conv(&o);
    struct finder *f = finder_create(c);
    struct finding got;
    finder_ask(f, "marmot", 6);
    wait_for(f, &got);
    assert_int_equal(got.err.code, QE_USAGE);
    assert_int_equal(got.n, 0);
    finding_fini(&got);
    finder_free(f);
    finder_free(NULL);
    conv_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_said_is_found),
        cmocka_unit_test(a_place_is_short),
        cmocka_unit_test(without_a_store),
    };
    return cmocka_run_group_tests(tests, conv_prepare, conv_clean);
}
