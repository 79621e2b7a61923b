/* Bytes to keys: names of keys for sequences, split anywhere. */
#include "config.h"
#include "tui/input.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tui/keys.h"

#define MS 1000000LL

static void take(struct input *in, int64_t now, struct buf *out)
{
    struct key k;
    while (keyin_next(in, now, &k)) {
        char name[32];
        keys_name(&k, name);
        if (k.type == K_PASTE) {
            const struct buf *p = keyin_paste(in);
            buf_printf(out, "<paste %s>", p->data ? p->data : "");
        } else if (k.type == K_MODE) {
            buf_printf(out, "<mode %u %d>", (unsigned)k.code, k.value);
        } else if (k.type == K_COLOR) {
            buf_printf(out, "<background %d>", k.value);
        } else if (k.type == K_MOUSE) {
            buf_printf(out, "<mouse %u %d,%d>", (unsigned)k.code, k.value, k.row);
        } else {
            buf_printf(out, "<%s>", name);
        }
    }
}

static void check(const char *bytes, size_t n, const char *want)
{
    /* whole, then cut at every place, then byte by byte */
    for (size_t cut = 0; cut <= n; cut++) {
        struct input *in = keyin_create();
        struct buf got = BUF_INIT;
        buf_adds(&got, "");
        if (cut == n) {
            for (size_t i = 0; i < n; i++) {
                keyin_feed(in, bytes + i, 1, (int64_t)i * MS / 10);
                take(in, (int64_t)i * MS / 10, &got);
            }
        } else {
            if (cut) {
                keyin_feed(in, bytes, cut, 0);
                take(in, 0, &got);
            }
            keyin_feed(in, bytes + cut, n - cut, MS);
            take(in, MS, &got);
        }
        take(in, 2000 * MS, &got);
        assert_string_equal(got.data, want);
        assert_true(keyin_deadline(in) < 0);
        buf_free(&got);
        keyin_free(in);
    }
}

static void test_sequences(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *want;
    } rows[] = {
        {"a", "<a>"},
        {"é漢", "<é><漢>"},
        {"\r", "<Enter>"},
        {"\n", "<^J>"},
        {"\t", "<Tab>"},
        {"\x7f\x08", "<Backspace><Backspace>"},
        {"\x01\x1a", "<^A><^Z>"},
        {"\x1f", "<^_>"},
        {"\x1b", "<Esc>"},
        {"\x1b\x1b", "<Esc><Esc>"},
        {"\x1b[A\x1b[B\x1b[C\x1b[D", "<Up><Down><Right><Left>"},
        {"\x1bOA\x1bOH", "<Up><Home>"},
        {"\x1b[1;5C", "<^Right>"},
        {"\x1b[1;3A", "<Alt-Up>"},
        {"\x1b\x1b[A", "<Alt-Up>"},
        {"\x1b\r", "<Alt-Enter>"},
        {"\x1b[13;2u", "<Shift-Enter>"},
        {"\x1b[27;2;13~", "<Shift-Enter>"},
        {"\x1b[97;5u", "<^A>"},
        {"\x1b[5~\x1b[6~\x1b[3~\x1b[1~", "<PgUp><PgDn><Delete><Home>"},
        {"\x1b[1;5H\x1b[1;5F", "<^Home><^End>"},
        {"\x1bOP\x1b[11~\x1b[[A", "<F1><F1><F1>"},
        {"\x1b[24~", "<F12>"},
        {"\x1b[Z", "<Shift-Tab>"},
        {"\x1b"
         "b\x1b"
         "f",
         "<Alt-b><Alt-f>"},
        {"\x1b[?2026;2$y", "<mode 2026 1>"},
        {"\x1b[?2026;0$y", "<mode 2026 0>"},
        {"\x1b]11;rgb:0000/0000/0000\x07x", "<background 0><x>"},
        {"\x1b]11;rgb:ffff/ffff/ffff\x1b\\", "<background 1000>"},
        {"\x1b]11;rgba:1e/1e/1e/ff\x07", "<background 117>"},
        {"\x1b]11;rgb:ff/ff\x07\x1b]10;rgb:0/0/0\x07\x1b]11;rgb:g/0/0\x07", ""},
        {"\x1b[<64;10;5M\x1b[<65;1;1M\x1b[<0;3;4M\x1b[<0;3;4m",
         "<mouse 64 9,4><mouse 65 0,0><mouse 0 2,3>"},
        {"\x1b[<68;10;5M", "<mouse 64 9,4>"}, /* with Shift */
        /* screen, tmux, rxvt, the console, and keys that are told by their code */
        {"\x1b[1~\x1b[4~\x1b[7~\x1b[8~\x1bOF", "<Home><End><Home><End><End>"},
        {"\x1b[5^\x1b[7^\x1bOa\x1bOd\x1b[a", "<^PgUp><^Home><^Up><^Left><Shift-Up>"},
        {"\x1bOQ\x1bOR\x1bOS\x1b[15~\x1b[17~\x1b[18~\x1b[19~\x1b[20~",
         "<F2><F3><F4><F5><F6><F7><F8><F9>"},
        {"\x1b[[B\x1b[[C\x1b[[D\x1b[[E", "<F2><F3><F4><F5>"},
        {"\x1b[12~\x1b[13~\x1b[14~\x1b[1;2R\x1b[1;5P", "<F2><F3><F4><Shift-F3><^F1>"},
        {"\x1b[27u\x1b[13;3u\x1b[9;2u\x1b[120;3u\x1b[127;5u",
         "<Esc><Alt-Enter><Shift-Tab><Alt-x><^Backspace>"},
        {"\x1bP1$r0m\x1b\\x", "<x>"},
        {"\x1b[200~one\rtwo\x1b[A\x1b[201~z", "<paste one\ntwo\x1b[A><z>"},
        {"\x1b[200~a\r\nb\x1b[201~", "<paste a\nb>"},
        {"\x1b[200~never ended", "<paste never ended>"},
        {"\xff", "<\xef\xbf\xbd>"},
        {"\x1b[99999999999999999999;1~q", "<q>"},
        {"\x1b[1;2;3;4;5;6;7A", "<Shift-Up>"},
        {"\x1b[I\x1b[O", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check(rows[i].bytes, strlen(rows[i].bytes), rows[i].want);
    }
    check("\0", 1, "<^Space>");
}

static void test_lone_escape(void **state)
{
    (void)state;
    struct input *in = keyin_create();
    struct key k;
    keyin_feed(in, "\x1b", 1, 100 * MS);
    assert_false(keyin_next(in, 110 * MS, &k));
    assert_int_equal(keyin_deadline(in), 125 * MS);
    assert_false(keyin_next(in, 124 * MS, &k));
    assert_true(keyin_next(in, 125 * MS, &k));
    assert_int_equal(k.type, K_ESC);
    /* "Esc", a pause, then a letter: two keys; without the pause: one */
    keyin_feed(in, "b", 1, 126 * MS);
    assert_true(keyin_next(in, 126 * MS, &k));
    assert_int_equal(k.mods, 0);
    keyin_feed(in, "\x1b", 1, 200 * MS);
    keyin_feed(in, "b", 1, 210 * MS);
    assert_true(keyin_next(in, 210 * MS, &k));
    assert_int_equal(k.mods, KM_ALT);
    keyin_free(in);
}

/* Terminals without bracketed paste: a burst with a line end inside. */
static void test_burst(void **state)
{
    (void)state;
    struct input *in = keyin_create();
    struct buf got = BUF_INIT;
    keyin_feed(in, "first line\rsecond", 17, 0);
    take(in, 0, &got);
    assert_string_equal(got.data, "<paste first line\nsecond>");
    buf_truncate(&got, 0);
    keyin_feed(in, "typed ahead\r", 12, 0); /* ends with Enter: typing */
    take(in, 0, &got);
    assert_string_equal(got.data, "<t><y><p><e><d><Space><a><h><e><a><d><Enter>");
    buf_free(&got);
    keyin_free(in);
}

static void test_big_paste(void **state)
{
    (void)state;
    struct input *in = keyin_create();
    size_t n = 1 << 20;
    char *p = malloc(n);
    for (size_t i = 0; i < n; i++) {
        p[i] = i % 61 == 60 ? '\r' : (char)('a' + i % 26);
    }
    struct key k;
    keyin_feed(in, "\x1b[200~", 6, 0);
    for (size_t i = 0; i < n; i += 4096) {
        keyin_feed(in, p + i, n - i < 4096 ? n - i : 4096, MS);
        assert_false(keyin_next(in, MS, &k));
    }
    keyin_feed(in, "\x1b[201~", 6, MS);
    assert_true(keyin_next(in, MS, &k));
    assert_int_equal(k.type, K_PASTE);
    assert_int_equal(keyin_paste(in)->len, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(keyin_paste(in)->data[i], p[i] == '\r' ? '\n' : p[i]);
    }
    free(p);
    keyin_free(in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_lone_escape),
        cmocka_unit_test(test_burst),
        cmocka_unit_test(test_big_paste),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
