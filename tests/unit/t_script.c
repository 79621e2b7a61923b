/* Scripts as they are written, and the virtual clock. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/vclock.h"
#include "cmd/scriptfile.h"

static int parse(const char *text, struct scriptfile *s, struct err *e)
{
    *e = (struct err)ERR_INIT;
    return scriptfile_parse(text, strlen(text), "s", s, e);
}

static void refused(const char *text, const char *why)
{
    struct scriptfile s;
    struct err e;
    assert_int_equal(parse(text, &s, &e), QE_USAGE);
    if (!strstr(e.msg, why)) {
        fail_msg("\"%s\" is not about \"%s\"", e.msg, why);
    }
}

static void test_statements(void **state)
{
    (void)state;
    struct scriptfile s;
    struct err e;
    assert_int_equal(parse("# a comment\nclock virtual\nload 400ms 4\nprefill 1000\n"
                           "round 21ms mtp 6 4 3ms\nround 1.5s\nanswer /split|^x/\n"
                           "  thought a\\nb\\x41\n  pause 300us\n  text <<END\n one\n\ntwo\nEND\n"
                           "  hold here\n  repeat 2 <%d>\n  fail memory all gone\n"
                           "answer\ntool f {\"a\": 1}\nround 5ms suffix 8 0\nforever\n",
                           &s, &e),
                     0);
    assert_true(s.is_virtual);
    assert_int_equal(s.load_ns, 400000000);
    assert_int_equal(s.load_steps, 4);
    assert_int_equal(s.prefill_ns, 1000000);
    assert_int_equal(s.n_rounds, 2);
    assert_int_equal(s.rounds[0].verify_ns, 21000000);
    assert_int_equal(s.rounds[0].draft_ns, 3000000);
    assert_int_equal(s.rounds[0].drafted, 6);
    assert_int_equal(s.rounds[0].accepted, 4);
    assert_int_equal(s.rounds[1].drafted, 0);
    assert_int_equal(s.n_answers, 2);
    const struct scriptfile_answer *a = &s.answers[0];
    assert_true(a->has_pattern);
    assert_int_equal(a->n_parts, 6);
    assert_string_equal(a->parts[0].text.data, "a\nbA");
    assert_int_equal(a->parts[1].ns, 300000);
    assert_string_equal(a->parts[2].text.data, " one\n\ntwo\n");
    assert_int_equal(a->parts[3].what, SCRIPT_HOLD);
    assert_string_equal(a->parts[3].text.data, "here");
    assert_string_equal(a->parts[4].text.data, "<1><2>");
    assert_int_equal(a->parts[5].what, SCRIPT_MEMORY);
    assert_string_equal(a->parts[5].text.data, "all gone");
    assert_false(s.answers[1].has_pattern);
    assert_true(s.answers[1].forever);
    assert_int_equal(s.answers[1].n_rounds, 1);
    scriptfile_free(&s);
}

static void test_refused(void **state)
{
    (void)state;
    refused("", "s:0: the script has no answer");
    refused("answer\ntext a\nround 3\n", "s:3: \"3\" is no time");
    refused("\n\nanser\n", "s:3: there is no statement \"anser\"");
    refused("text a\n", "s:1: text stands behind an answer");
    refused("answer /(/\n", "s:1: \"(\" is no pattern");
    refused("answer x\n", "between two slashes");
    refused("answer\ntext <<END\nx\n", "s:2: the text is not ended by a line \"END\"");
    refused("answer\ntext \\q\n", "s:2: a backslash");
    refused("round 1ms mtp 16 1\nanswer\n", "from 1 to 15");
    refused("round 1ms mtp 4 5\nanswer\n", "from 0 to 4");
    refused("round 1ms model 4 5\nanswer\n", "mtp or suffix");
    refused("answer\ntext a\nthought b\n", "s:3: a thought comes before");
    refused("answer\nforever now\n", "forever takes nothing");
    refused("clock virtual yesterday\nanswer\n", "no beginning");
    refused("clock virtual\ncontrol c\nanswer\n", "belong together");
    refused("control c\nreport r\nanswer\n", "needs a virtual clock");
    refused("disk 0 kill\nanswer\n", "from 1 to");
    refused("disk 1 burn\nanswer\n", "kill, full or error");
    refused("catalogue 0 kill\nanswer\n", "from 1 to");
    refused("catalogue 1 burn\nanswer\n", "kill, full, error or readonly");
    refused("catalogue 1 full of\nanswer\n", "how many writes fail");
    refused("answer\nfail badly\n", "device, memory or nan");
    refused(
        "answer\nrepeat 1000000 0123456789012345678901234567890123456789012345678901234567890\n",
        "more than 64 MB");
    struct scriptfile s;
    struct err e = ERR_INIT;
    assert_int_equal(scriptfile_parse("answer\0x", 8, "s", &s, &e), QE_USAGE);
}

static void test_times(void **state)
{
    (void)state;
    int64_t ns = 0;
    assert_true(vclock_parse_time("20ms", &ns) && ns == 20000000);
    assert_true(vclock_parse_time("1.5s", &ns) && ns == 1500000000);
    assert_true(vclock_parse_time("300us", &ns) && ns == 300000);
    static const char *const bad[] = {"", "20", "ms", "-1s", " 1s", "1h", "1e30s", "nans", "1s "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (vclock_parse_time(bad[i], &ns)) {
            fail_msg("\"%s\" is taken for a time", bad[i]);
        }
    }
}

/* ---- the clock: two threads, a control ---- */

static int news; /* eventfd */
static char order[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static bool flag;

static void note(const char *what)
{
    strncat(order, what, sizeof order - strlen(order) - 1);
}

static void *other(void *arg)
{
    (void)arg;
    clock_sleep(30000000);
    note("a");
    const uint64_t one = 1;
    assert_int_equal(write(news, &one, sizeof one), sizeof one);
    clock_hold("stop");
    note("c");
    pthread_mutex_lock(&lock);
    flag = true;
    clock_cond_signal(&cond);
    pthread_mutex_unlock(&lock);
    clock_leave();
    return NULL;
}

static int control, report;

static void tell(const char *what)
{
    assert_int_equal(write(control, what, strlen(what)), strlen(what));
}

static void *tester(void *arg)
{
    char *said = arg;
    size_t n = 0;
    static const char *const commands[] = {"advance 10ms\n", "advance 25ms\n", "sing\n", "go\n"};
    for (size_t i = 0; i < 4; i++) {
        tell(commands[i]);
        do {
            assert_int_equal(read(report, said + n, 1), 1);
        } while (said[n++] != '\n');
    }
    said[n] = 0;
    return NULL;
}

static void test_clock(void **state)
{
    (void)state;
    char dir[] = "/tmp/t_script.XXXXXX";
    assert_non_null(mkdtemp(dir));
    char c[64], r[64];
    snprintf(c, sizeof c, "%s/c", dir);
    snprintf(r, sizeof r, "%s/r", dir);
    struct err e = ERR_INIT;
    assert_int_equal(mkfifo(c, 0600), 0);
    assert_int_equal(mkfifo(r, 0600), 0);
    assert_int_equal(vclock_start(1000, c, r, &e), 0);
    control = open(c, O_RDWR);
    report = open(r, O_RDWR);
    news = eventfd(0, EFD_NONBLOCK);
    assert_int_equal(clock_wall(), 1000);
    assert_int_equal(clock_now(clock_main()), 0);
    char said[512] = "";
    pthread_t t, test;
    clock_enter();
    assert_int_equal(pthread_create(&t, NULL, other, NULL), 0);
    assert_int_equal(pthread_create(&test, NULL, tester, said), 0);
    struct pollfd p = {.fd = news, .events = POLLIN};
    assert_int_equal(clock_poll(&p, 1, 20000000, true), 0); /* 20 ms come first */
    assert_int_equal(clock_now(clock_main()), 20000000);
    note("0");
    assert_int_equal(clock_poll(&p, 1, -1, true), 1);
    assert_int_equal(clock_now(clock_main()), 30000000);
    note("b");
    pthread_mutex_lock(&lock);
    while (!flag) {
        clock_cond_wait(&cond, &lock);
    }
    pthread_mutex_unlock(&lock);
    note("d");
    assert_int_equal(clock_poll(NULL, 0, 2000000000, true), 0);
    assert_int_equal(clock_now(clock_main()), 2035000000);
    assert_int_equal(clock_wall(), 1002);
    clock_leave();
    pthread_join(test, NULL);
    clock_enter();
    pthread_join(t, NULL);
    assert_string_equal(order, "0abcd");
    assert_string_equal(said, "quiet 10\nquiet 35 hold stop\n"
                              "what? advance TIME, run, go, input N or size CxR\nquiet 2035\n");
    clock_let_go();
    clock_sleep(1000000000); /* nobody waits any more */
    close(control);
    close(report);
    unlink(c);
    unlink(r);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statements),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_clock),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
