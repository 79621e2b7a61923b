/* What may befall the program while it is on the screen: killed at any moment, a terminal
 * that does not read, one that changes its size all the time, a crash in each view, another
 * process on the same conversation, a disk that fails. On the scripted engine, in a terminal of
 * our own. Counts as long as the with QUASAR_LONG. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "tests/ptyterm.h"

static const char *quasar;
static char home[] = "/tmp/t_faults.XXXXXX";
static char script[64];

static bool is_long(void)
{
    return getenv("QUASAR_LONG") != NULL;
}

static unsigned random_of(unsigned n)
{
    static uint64_t s = 88172645463325252ULL;
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return (unsigned)(s >> 33) % n;
}

static void write_script(const char *text)
{
    FILE *f = fopen(script, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void new_home(void)
{
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf %s/*  %s/.[a-z]*", home, home);
    assert_int_equal(system(cmd), 0);
}

/* with: "last", or "new" for a new conversation. */
static struct ptyterm *start_with(const char *with, int cols, int rows)
{
    char engine[80];
    snprintf(engine, sizeof engine, "script:%s", script);
    const char *const argv[] = {quasar, "--engine", engine, "--start", with, NULL};
    struct ptyterm *t = ptyterm_start(argv, cols, rows);
    if (!ptyterm_until(t, "idle", 20000)) {
        for (int i = 0; i < rows; i++) {
            print_error("%s\n", ptyterm_row(t, i));
        }
        fail_msg("the program does not come up");
    }
    return t;
}

static struct ptyterm *start(int cols, int rows)
{
    return start_with("last", cols, rows);
}

static void press(struct ptyterm *t, const char *keys)
{
    ptyterm_send(t, keys, strlen(keys));
}

static void must_show(struct ptyterm *t, const char *what)
{
    if (!ptyterm_until(t, what, 20000)) {
        for (int i = 0; ptyterm_row(t, i) && i < 24; i++) {
            print_error("%s\n", ptyterm_row(t, i));
        }
        fail_msg("never on the screen: %s", what);
    }
}

static void say(struct ptyterm *t, const char *what)
{
    press(t, what);
    must_show(t, what);
    press(t, "\r");
}

static void drain(struct ptyterm *t, int ms)
{
    const int64_t end = ptyterm_now() + (int64_t)ms * 1000000;
    while (ptyterm_now() < end) {
        (void)ptyterm_read(t, 2);
    }
}

/* Everything that is stored. */
static void stored(struct buf *out)
{
    char cmd[300], part[4096];
    buf_truncate(out, 0);
    buf_adds(out, "");
    snprintf(
        cmd, sizeof cmd,
        "for i in $(%s sessions list | awk '$1 ~ /^[0-9]+$/ { print $1 }'); do %s sessions export "
        "$i --format md; done 2>&1",
        quasar, quasar);
    FILE *f = popen(cmd, "r");
    assert_non_null(f);
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;) {
        buf_add(out, part, n);
    }
    pclose(f);
}

/* ---- kill -9 at any moment ---- */

static void test_kill(void **state)
{
    (void)state;
    const int runs = is_long() ? 200 : 12;
    struct buf all = BUF_INIT;
    int cut = 0;
    new_home();
    write_script("round 1ms\nanswer\nrepeat 30 said%d\\x20\ntext the end of it.\n");
    bool *asked = mem_array((size_t)runs, sizeof *asked),
         *ended = mem_array((size_t)runs, sizeof *ended);
    for (int i = 0; i < runs; i++) {
        char q[32], end[40];
        struct ptyterm *t = start_with("new", 100, 30);
        if (i > 0 && asked[i - 1] && !ended[i - 1]) {
            /* it was said what is left of the answer that was cut off */
            if (ptyterm_find(t, "recovered 1 conversation") >= 0) {
                cut++;
            }
        }
        snprintf(q, sizeof q, "question number %d.", i);
        snprintf(end, sizeof end, "the end of it.");
        say(t, q);
        const int64_t last = ptyterm_now() + (int64_t)random_of(250) * 1000000;
        asked[i] = ended[i] = false;
        while (ptyterm_now() < last) {
            (void)ptyterm_read(t, 1);
            /* it decodes, so the question is on disk; and an answer that is over is, too */
            asked[i] = asked[i] || ptyterm_find(t, "said1") >= 0;
            ended[i] = ended[i] ||
                       (ptyterm_find(t, end) >= 0 && ptyterm_find(t, "\xe2\x94\x80 idle") >= 0 &&
                        ptyterm_find(t, " saved") >= 0);
        }
        ptyterm_free(t); /* by SIGKILL */
    }
    stored(&all);
    for (int i = 0; i < runs; i++) {
        char q[48];
        /* a question without a word of an answer may be the title only */
        snprintf(q, sizeof q, "question number %d.", i);
        if (asked[i] && !strstr(all.data, q)) {
            fail_msg("\"%s\" was being answered and is lost", q);
        }
        snprintf(q, sizeof q, "## You\n\nquestion number %d.", i);
        const char *at = strstr(all.data, q);
        if (ended[i] && !at) {
            fail_msg("question %d was answered, and is lost", i);
        }
        if (ended[i]) {
            const char *next = strstr(at + 1, "## You\n\nquestion");
            const char *end = strstr(at, "the end of it.");
            if (!end || (next && end > next)) {
                fail_msg("the answer to \"%s\" was saved and is lost", q);
            }
        }
    }
    print_message("%d runs, %d of them told of a recovered answer\n", runs, cut);
    buf_free(&all);
    free(asked);
    free(ended);
}

/* What is stored of an answer is as much as was shown, but for what the engine says in the time
 * between two writes. */
static void test_lost(void **state)
{
    (void)state;
    static const struct {
        const char *pace;
        int most; /* words, each of a token at least, in the 50 ms between two writes, and one */
    } ways[] = {{"round 2ms\n", 26}, {"round 60ms\n", 1}};
    const int runs = is_long() ? 40 : 3;
    struct buf all = BUF_INIT, want = BUF_INIT;
    int worst = 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        for (int i = 0; i < runs; i++) {
            char text[128], word[16];
            snprintf(text, sizeof text, "%sanswer\nrepeat 2000 said%%d\\x20\n", ways[w].pace);
            new_home();
            write_script(text);
            struct ptyterm *t = start(100, 30);
            say(t, "tell me");
            must_show(t, "said3");
            drain(t, (int)random_of(w == 0 ? 700 : 300));
            int shown = 2000;
            for (; shown > 0; shown--) {
                snprintf(word, sizeof word, "said%d", shown);
                if (ptyterm_find(t, word) >= 0) {
                    break;
                }
            }
            ptyterm_free(t);
            ptyterm_free(start(100, 30)); /* puts it together */
            stored(&all);
            buf_truncate(&want, 0);
            buf_adds(&want, "");
            int have = 0;
            for (int k = 1; k <= 2000; k++) {
                buf_printf(&want, "said%d ", k);
                if (!strstr(all.data, want.data)) {
                    break;
                }
                have = k;
            }
            snprintf(word, sizeof word, "said%d ", have + 2);
            if (strstr(all.data, word)) {
                fail_msg("what is stored is not the beginning: there is %s", word);
            }
            worst = shown - have > worst ? shown - have : worst;
            if (have < shown - ways[w].most) {
                fail_msg("said%d was shown, and what is stored ends with said%d", shown, have);
            }
        }
    }
    print_message("at most %d words that were shown are lost\n", worst);
    buf_free(&all);
    buf_free(&want);
}

/* The text that is cut off is said on the next start. */
static void test_recovered(void **state)
{
    (void)state;
    new_home();
    write_script("round 5ms\nanswer\nforever\nrepeat 30 said%d\\x20\n");
    struct ptyterm *t = start(100, 30);
    say(t, "tell me");
    must_show(t, "said20");
    ptyterm_free(t);
    t = start(100, 30);
    must_show(t, "recovered 1 conversation, the last answer cut at");
    must_show(t, "the last answer was cut off; /retry asks it again");
    must_show(t, "said8"); /* the end is what test_lost looks at */
    ptyterm_free(t);
}

/* A question that was not answered at all is there too. */
static void test_unanswered(void **state)
{
    (void)state;
    new_home();
    write_script("answer\npause 60s\ntext late\n");
    struct ptyterm *t = start(100, 30);
    say(t, "where is it then");
    drain(t, 1000);
    ptyterm_free(t);
    write_script("answer\ntext in the drawer\n");
    t = start(100, 30);
    must_show(t, "the last question has no answer; /retry asks it again");
    must_show(t, "where is it then");
    press(t, "/retry\r");
    must_show(t, "in the drawer");
    ptyterm_free(t);
}

/* ---- a terminal that does not read ---- */

static void test_stalled(void **state)
{
    (void)state;
    new_home();
    write_script("round 1ms\nanswer\nrepeat 600 said%d\\n\n");
    struct ptyterm *t = start(100, 30);
    say(t, "tell me");
    must_show(t, "said5");
    sleep(is_long() ? 60 : 3);
    /* nothing was read, and still all is said by now: it is stored */
    struct buf all = BUF_INIT;
    stored(&all);
    if (!is_long()) {
        must_show(t, "said600");
    } else {
        assert_non_null(strstr(all.data, "said600"));
        must_show(t, "said600");
    }
    must_show(t, "idle");
    stored(&all);
    for (int i = 1; i <= 600; i++) {
        char line[16];
        snprintf(line, sizeof line, "said%d\n", i);
        if (!strstr(all.data, line)) {
            fail_msg("%s is missing", line);
        }
    }
    buf_free(&all);
    ptyterm_free(t);
}

/* ---- sizes ---- */

static void test_resizes(void **state)
{
    (void)state;
    const int n = is_long() ? 10000 : 300;
    new_home();
    write_script(is_long() ? "round 20ms\nanswer\nforever\nrepeat 40 said%d |\\x20\n"
                           : "round 2ms\nanswer\nforever\nrepeat 40 said%d |\\x20\n");
    struct ptyterm *t = start(160, 50);
    press(t, "\x18"
             "3"); /* beside, below: four panes */
    press(t, "\x18"
             "2");
    press(t, "\x18"
             "o\x18"
             "2");
    drain(t, 200);
    for (int i = 0; i < 4; i++) { /* all four stream */
        say(t, "tell me");
        press(t, "\x18o");
    }
    for (int i = 0; i < n; i++) {
        ptyterm_resize(t, 1 + (int)random_of(300), 1 + (int)random_of(100));
        drain(t, i % 10 == 0 ? 60 : 1); /* now and then the size is drawn */
        if (kill(ptyterm_pid(t), 0) < 0 || !ptyterm_read(t, 0)) {
            fail_msg("gone after %d sizes", i + 1);
        }
    }
    ptyterm_resize(t, 120, 40);
    drain(t, 500);
    for (int i = 0; i < 4; i++) {
        press(t, "\x1b");
        drain(t, 300);
        press(t, "\x18o");
    }
    must_show(t, "idle");
    drain(t, 500);
    /* what is there now is what drawing from nothing gives */
    struct buf now = BUF_INIT;
    for (int i = 0; i < 40; i++) {
        buf_printf(&now, "%s\n", ptyterm_row(t, i));
    }
    press(t, "\x0c");
    drain(t, 500);
    struct buf anew = BUF_INIT;
    for (int i = 0; i < 40; i++) {
        buf_printf(&anew, "%s\n", ptyterm_row(t, i));
    }
    assert_string_equal(now.data, anew.data);
    buf_free(&now);
    buf_free(&anew);
    ptyterm_free(t);
}

/* ---- a crash in each view ---- */

static void test_crash(void **state)
{
    (void)state;
    static const struct {
        const char *name, *keys;
    } views[] = {{"composer", "some text"},
                 {"help", "\x1bOP"},
                 {"figures", "\x1bOQ"},
                 {"listener", "\x1bOR"},
                 {"sessions", "\x1bOS"},
                 {"palette", "\x18p"},
                 {"history", "\x12"},
                 {"find", "\x13"},
                 {"log", "\x1b[20~"},
                 {"commands", "/"},
                 {"panes", "\x18"
                           "3"},
                 {"transcript", "\t"}};
    new_home();
    write_script("round 1ms\nanswer\ntext A short answer.\n");
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        struct ptyterm *t = start(100, 30);
        say(t, "tell me");
        must_show(t, "A short answer.");
        must_show(t, "idle");
        press(t, views[i].keys);
        drain(t, 150);
        assert_true(ptyterm_alternate(t));
        kill(ptyterm_pid(t), SIGSEGV);
        for (int k = 0; k < 200 && ptyterm_read(t, 10); k++) {
        }
        if (ptyterm_alternate(t) || !ptyterm_is_sane(t)) {
            fail_msg("after a crash in %s the terminal is not as it was: %s", views[i].name,
                     ptyterm_alternate(t) ? "the alternate screen" : "its modes");
        }
        ptyterm_free(t);
    }
}

/* ---- suspend and resume in each view ---- */

static void test_suspend(void **state)
{
    (void)state;
    static const char *const views[] = {"some text", "\x1bOP", "\x1bOQ", "\x1bOS", "\x12", "\t"};
    new_home();
    write_script("round 1ms\nanswer\ntext A short answer.\n");
    char engine[80];
    snprintf(engine, sizeof engine, "script:%s", script);
    /* a shell with jobs: alone in its session a program cannot be stopped */
    const char *const argv[] = {
        "/bin/bash", "--noprofile", "--norc",   "-c",   "set -m; \"$@\"; read -r x; fg >/dev/null",
        "sh",        quasar,        "--engine", engine, NULL};
    for (size_t i = 0; i < sizeof views / sizeof *views; i++) {
        struct ptyterm *t = ptyterm_start(argv, 100, 30);
        must_show(t, "idle");
        say(t, "tell me");
        must_show(t, "A short answer.");
        must_show(t, "idle");
        press(t, views[i]);
        drain(t, 150);
        struct buf was = BUF_INIT, now = BUF_INIT;
        for (int k = 0; k < 26; k++) { /* below it ages are told */
            buf_printf(&was, "%s\n", ptyterm_row(t, k));
        }
        press(t, "\x1a");
        for (int k = 0; k < 200 && ptyterm_alternate(t); k++) {
            (void)ptyterm_read(t, 10);
        }
        drain(t, 100);
        assert_false(ptyterm_alternate(t));
        assert_true(ptyterm_is_sane(t));
        press(t, "\n");
        for (int k = 0; k < 200 && !ptyterm_alternate(t); k++) {
            (void)ptyterm_read(t, 10);
        }
        drain(t, 300);
        for (int k = 0; k < 26; k++) {
            buf_printf(&now, "%s\n", ptyterm_row(t, k));
        }
        assert_string_equal(was.data, now.data);
        buf_free(&was);
        buf_free(&now);
        ptyterm_free(t);
    }
}

/* ---- two writers ---- */

static void test_two(void **state)
{
    (void)state;
    new_home();
    write_script("round 1ms\nanswer\ntext A short answer.\n");
    struct ptyterm *a = start(100, 30);
    say(a, "tell me");
    must_show(a, "A short answer.");
    must_show(a, "saved");
    char engine[80];
    snprintf(engine, sizeof engine, "script:%s", script);
    const char *const argv[] = {quasar, "--engine", engine, "--resume", "1", NULL};
    struct ptyterm *b = ptyterm_start(argv, 100, 30);
    char who[64];
    snprintf(who, sizeof who, "process %d", (int)ptyterm_pid(a));
    if (!ptyterm_until(b, who, 10000)) {
        fail_msg("the second one is not told who has the conversation");
    }
    ptyterm_free(b);
    say(a, "and then");
    drain(a, 200);
    must_show(a, "idle");
    struct buf all = BUF_INIT;
    stored(&all);
    assert_non_null(strstr(all.data, "and then"));
    buf_free(&all);
    ptyterm_free(a);
}

/* ---- a disk that fails or ends the program ---- */

static void test_disk(void **state)
{
    (void)state;
    static const char *const ways[] = {"kill", "full", "error"};
    const int most = is_long() ? 40 : 4;
    for (int i = 1; i <= most; i++) {
        for (size_t w = 0; w < 3; w++) {
            char text[200], q[32];
            snprintf(text, sizeof text,
                     "round 1ms\ndisk %d %s\nanswer\ntext A short answer, the end.\n", i, ways[w]);
            new_home();
            write_script(text);
            char engine[80];
            snprintf(engine, sizeof engine, "script:%s", script);
            const char *const argv[] = {quasar, "--engine", engine, NULL};
            struct ptyterm *t = ptyterm_start(argv, 100, 30);
            bool told = false;
            if (ptyterm_until(t, "idle", 3000)) {
                snprintf(q, sizeof q, "tell me %d", i);
                press(t, q);
                drain(t, 100);
                press(t, "\r");
                told = ptyterm_until(t, "the end.", 3000);
                press(t, "\x04");
                for (int k = 0; k < 300 && ptyterm_read(t, 10); k++) {
                }
            }
            ptyterm_free(t);
            /* without the fault it goes on, with what had been said where it was saved */
            write_script("round 1ms\nanswer\ntext Another answer.\n");
            t = start(100, 30);
            say(t, "and now");
            must_show(t, "Another answer.");
            ptyterm_free(t);
            (void)told;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill),      cmocka_unit_test(test_lost),
        cmocka_unit_test(test_recovered), cmocka_unit_test(test_unanswered),
        cmocka_unit_test(test_stalled),   cmocka_unit_test(test_resizes),
        cmocka_unit_test(test_crash),     cmocka_unit_test(test_suspend),
        cmocka_unit_test(test_two),       cmocka_unit_test(test_disk),
    };
    quasar = getenv("QUASAR_BIN");
    if (!quasar || !mkdtemp(home)) {
        puts("1..1\nok 1 # SKIP QUASAR_BIN is not set");
        return 0;
    }
    snprintf(script, sizeof script, "%s.qs", home);
    setenv("HOME", home, 1);
    setenv("TZ", "UTC", 1);
    static const char *const foreign[] = {"XDG_STATE_HOME",
                                          "XDG_DATA_HOME",
                                          "XDG_CONFIG_HOME",
                                          "NO_COLOR",
                                          "ACCESSIBLE",
                                          "TMUX",
                                          "STY"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        unsetenv(foreign[i]);
    }
    signal(SIGPIPE, SIG_IGN);
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const char *only = getenv("QUASAR_ONLY");
    if (only) {
        cmocka_set_test_filter(only);
    }
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    new_home();
    unlink(script);
    rmdir(home);
    return rc;
}
