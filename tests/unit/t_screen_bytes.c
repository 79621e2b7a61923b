/* What the program writes to its terminal, byte by byte: however it is cut, the screen is the
 * same; frames are closed; nothing is cleared that is drawn again. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vterm.h>

#include "base/buf.h"
#include "base/mem.h"
#include "tests/ptyterm.h"

#define COLS 100
#define ROWS 30

static const char open_frame[] = "\x1b[?2026h", close_frame[] = "\x1b[?2026l";
static struct buf bytes;       /* of a whole visit, up to the last drawn frame */
static size_t streaming, ends; /* what lies between them came while an answer streamed */

struct term {
    VTerm *vt;
    VTermScreen *screen;
};

static struct term term_new(void)
{
    struct term t = {.vt = vterm_new(ROWS, COLS)};
    vterm_set_utf8(t.vt, 1);
    t.screen = vterm_obtain_screen(t.vt);
    vterm_screen_enable_altscreen(t.screen, 1);
    vterm_screen_reset(t.screen, 1);
    return t;
}

/* Text and attributes of every cell, and the cursor. */
static void dump(const struct term *t, struct buf *out)
{
    buf_truncate(out, 0);
    for (int row = 0; row < ROWS; row++) {
        for (int col = 0; col < COLS; col++) {
            VTermScreenCell c;
            vterm_screen_get_cell(t->screen, (VTermPos){.row = row, .col = col}, &c);
            buf_printf(out, "%x,%d,%x%x%x%x,%x.%x.%x ", (unsigned)c.chars[0], c.width, c.attrs.bold,
                       c.attrs.underline, c.attrs.reverse, c.attrs.italic, (unsigned)c.fg.type,
                       (unsigned)c.fg.indexed.idx, (unsigned)c.bg.type);
        }
        buf_addc(out, '\n');
    }
    VTermPos p;
    vterm_state_get_cursorpos(vterm_obtain_state(t->vt), &p);
    buf_printf(out, "%d,%d\n", p.row, p.col);
}

static int visit(void **state)
{
    (void)state;
    char home[] = "/tmp/t_bytes.XXXXXX", script[64], engine[80], cmd[100];
    if (!getenv("QUASAR_BIN") || !mkdtemp(home)) {
        return 0;
    }
    snprintf(script, sizeof script, "%s/s.qs", home);
    snprintf(engine, sizeof engine, "script:%s", script);
    FILE *f = fopen(script, "w");
    fputs("round 2ms\nanswer\ntext # A title\\n\\n\nrepeat 200 *word%d* \xe6\xbc\xa2\\x20\n"
          "text \\n\\n```c\\nint x;\\n```\\n| a | b |\\n|--|--|\\n| 1 | 2 |\\n",
          f);
    fclose(f);
    setenv("HOME", home, 1);
    unsetenv("NO_COLOR");
    const char *const argv[] = {getenv("QUASAR_BIN"), "--engine", engine, "--no-save", NULL};
    struct ptyterm *t = ptyterm_start(argv, COLS, ROWS);
    bool ok = ptyterm_until(t, "idle", 20000);
    ptyterm_send(t, "tell me\r", 8);
    ok = ok && ptyterm_until(t, "word3", 20000);
    streaming = ptyterm_log(t)->len;
    ok = ok && ptyterm_until(t, "word150", 20000);
    ends = ptyterm_log(t)->len;
    ok = ok && ptyterm_until(t, "idle", 20000);
    static const char *const keys[] = {"\x1bOP",   "\x1b[27u", "\x1bOQ", "\x1bOQ", "\x18p",
                                       "\x1b[27u", "\t",       "\x1b[A", "z",      "\x1b[27u"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        ptyterm_send(t, keys[i], strlen(keys[i]));
        for (int k = 0; k < 10; k++) {
            (void)ptyterm_read(t, 10);
        }
    }
    const struct buf *log = ptyterm_log(t);
    size_t n = log->len;
    const size_t mark = sizeof close_frame - 1;
    while (n >= mark && memcmp(log->data + n - mark, close_frame, mark) != 0) {
        n--;
    }
    buf_add(&bytes, log->data, n);
    ptyterm_free(t);
    snprintf(cmd, sizeof cmd, "rm -rf %s", home);
    ok = system(cmd) == 0 && ok;
    return ok ? 0 : -1;
}

static void test_cuts(void **state)
{
    (void)state;
    struct buf whole = BUF_INIT, cut = BUF_INIT;
    struct term a = term_new();
    vterm_input_write(a.vt, bytes.data, bytes.len);
    dump(&a, &whole);
    for (size_t step = 1; step <= 7; step += 2) {
        struct term b = term_new();
        for (size_t i = 0; i < bytes.len; i += step) {
            const size_t n = bytes.len - i < step ? bytes.len - i : step;
            vterm_input_write(b.vt, bytes.data + i, n);
        }
        dump(&b, &cut);
        assert_string_equal(whole.data, cut.data);
        vterm_free(b.vt);
    }
    vterm_free(a.vt);
    buf_free(&whole);
    buf_free(&cut);
}

static void test_frames(void **state)
{
    (void)state;
    int open = 0, frames = 0;
    for (size_t i = 0; i + 8 <= bytes.len; i++) {
        if (memcmp(bytes.data + i, open_frame, 8) == 0) {
            assert_int_equal(open++, 0);
        } else if (memcmp(bytes.data + i, close_frame, 8) == 0) {
            assert_int_equal(open--, 1);
            frames++;
        }
    }
    assert_int_equal(open, 0);
    if (frames <= 10) {
        fail_msg("%d frames only, of %zu bytes", frames, bytes.len);
    }
}

/* While it streams nothing is erased but ends of rows. */
static void test_no_clearing(void **state)
{
    (void)state;
    assert_true(streaming > 0 && ends > streaming);
    for (size_t i = streaming; i + 4 < ends; i++) {
        const char *p = bytes.data + i;
        if (p[0] == '\x1b' && p[1] == '[' &&
            (p[2] == 'J' || (strchr("0123", p[2]) && p[3] == 'J'))) {
            fail_msg("the screen is erased while an answer streams");
        }
    }
}

/* ---- cell by cell ---- */

/* A terminal that is fed byte by byte, and what its frame is to become. */
struct watch {
    struct term now, after;
    uint32_t before[ROWS][COLS];
    bool scrolled;
    size_t touched, twice; /* cells that were written; that were something else in between */
};

static uint32_t cell_of(const struct term *t, int row, int col)
{
    VTermScreenCell c;
    vterm_screen_get_cell(t->screen, (VTermPos){.row = row, .col = col}, &c);
    return c.chars[0] ? c.chars[0] : ' ';
}

static int on_damage(VTermRect r, void *ctx)
{
    struct watch *w = ctx;
    for (int row = r.start_row; row < r.end_row; row++) {
        for (int col = r.start_col; col < r.end_col; col++) {
            const uint32_t was = w->before[row][col], is = cell_of(&w->now, row, col);
            w->touched++;
            w->twice += is != was && cell_of(&w->after, row, col) == was;
        }
    }
    return 1;
}

static int on_move(VTermRect to, VTermRect from, void *ctx)
{
    (void)to;
    (void)from;
    ((struct watch *)ctx)->scrolled = true;
    return 1;
}

static void watch_new(struct watch *w)
{
    static const VTermScreenCallbacks calls = {.damage = on_damage, .moverect = on_move};
    *w = (struct watch){.now = term_new(), .after = term_new()};
    vterm_screen_set_callbacks(w->now.screen, &calls, w);
    vterm_screen_set_damage_merge(w->now.screen, VTERM_DAMAGE_CELL);
}

static void watch_free(struct watch *w)
{
    vterm_free(w->now.vt);
    vterm_free(w->after.vt);
}

/* Fills touched, twice and scrolled for one frame. */
static void watch_frame(struct watch *w, const char *p, size_t n)
{
    vterm_input_write(w->after.vt, p, n);
    w->scrolled = false;
    w->twice = w->touched = 0;
    for (int row = 0; row < ROWS; row++) {
        for (int col = 0; col < COLS; col++) {
            w->before[row][col] = cell_of(&w->now, row, col);
        }
    }
    for (size_t i = 0; i < n; i++) {
        vterm_input_write(w->now.vt, p + i, 1);
    }
}

/* No cell that a frame leaves as it was is anything else in between; where rows move, the one
 * that comes in is empty at first. */
static void test_no_cell_twice(void **state)
{
    (void)state;
    struct watch w;
    size_t at = 0, still = 0;
    watch_new(&w);
    while (at < ends) {
        size_t end = at + 1;
        while (end < ends && memcmp(bytes.data + end, open_frame, sizeof open_frame - 1) != 0) {
            end++;
        }
        watch_frame(&w, bytes.data + at, end - at);
        if (at >= streaming && !w.scrolled) {
            still += w.touched > 0;
            if (w.twice > 0) {
                fail_msg("%zu cells were cleared and drawn again the same, of a frame of %zu bytes",
                         w.twice, end - at);
            }
        }
        at = end;
    }
    if (still < 5) {
        fail_msg("%zu frames only were looked at", still);
    }
    watch_free(&w);
}

/* The watch itself: it sees what it is for. */
static void test_watch(void **state)
{
    (void)state;
    static const char first[] = "\x1b[1;1Habc", again[] = "\x1b[1;1H\x1b[Kabc",
                      other[] = "\x1b[1;1Habd";
    struct watch w;
    watch_new(&w);
    watch_frame(&w, first, sizeof first - 1);
    assert_int_equal(w.twice, 0);
    watch_frame(&w, again, sizeof again - 1);
    assert_int_equal(w.twice, 3);
    watch_frame(&w, other, sizeof other - 1);
    assert_int_equal(w.twice, 0);
    watch_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_no_clearing), cmocka_unit_test(test_no_cell_twice),
        cmocka_unit_test(test_watch),
    };
    if (!getenv("QUASAR_BIN")) {
        puts("1..1\nok 1 # SKIP QUASAR_BIN is not set");
        return 0;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    const int rc = cmocka_run_group_tests(tests, visit, NULL);
    buf_free(&bytes);
    return rc;
}
