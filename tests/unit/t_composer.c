/* The draft: editing by clusters, chips, undo, history, vi. */
#include "config.h"
#include "tui/composer.h"
#include "tui/draft.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/utf8.h"

/* The terminal description that libedit loads stays with the library. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libtinfo\n";
}

static const struct theme theme = {.ascii = false, .utf8 = true};

struct world {
    struct history *h;
    struct composer *c;
    const char *later; /* keys that arrive while a command waits */
    int waits;
};

static void type(struct world *w, const char *s);

static bool wait_more(void *ctx)
{
    struct world *w = ctx;
    w->waits++;
    if (!w->later) {
        return false;
    }
    const char *s = w->later;
    w->later = NULL;
    type(w, s);
    return true;
}

static void begin(struct world *w, bool vi)
{
    struct err e = ERR_INIT;
    memset(w, 0, sizeof *w);
    w->h = history_create(NULL, &e);
    w->c = composer_create(vi, w->h, wait_more, w, &e);
    assert_non_null(w->c);
}

static void end(struct world *w)
{
    composer_free(w->c);
    history_free(w->h);
}

/* Keys as text, "\x01".. as control keys, \x1b as Esc. */
static void type(struct world *w, const char *s)
{
    struct input *in = keyin_create();
    struct key k;
    for (size_t i = 0; s[i];) {
        size_t n = s[i] == 0x1B && s[i + 1] == '[' ? strcspn(s + i + 2, "ABCDFH~") + 3 : 1;
        while (((unsigned char)s[i + n] & 0xC0) == 0x80) {
            n++;
        }
        keyin_feed(in, s + i, n, 0);
        while (keyin_next(in, 1000000000, &k)) {
            assert_int_equal(composer_key(w->c, &k, NULL), 0);
        }
        i += n;
    }
    keyin_free(in);
}

static void text_is(const struct world *w, const char *want)
{
    struct buf b = BUF_INIT;
    buf_adds(&b, "");
    composer_text(w->c, &b);
    assert_string_equal(b.data, want);
    buf_free(&b);
}

static void test_editing(void **state)
{
    struct world w;
    (void)state;
    begin(&w, false);
    assert_true(composer_empty(w.c));
    type(&w, "hello world");
    text_is(&w, "hello world");
    type(&w, "\x01X\x05Y"); /* ^A, ^E */
    text_is(&w, "Xhello worldY");
    type(&w, "\x17"); /* ^W */
    text_is(&w, "Xhello ");
    type(&w, "\x19\x19"); /* ^Y */
    text_is(&w, "Xhello worldYworldY");
    type(&w, "\x1b[D\x1b[D\x7f");
    text_is(&w, "Xhello worldYwordY");
    type(&w, "\x15"); /* ^U */
    text_is(&w, "dY");
    type(&w, "\x01\x0b"); /* ^A ^K */
    text_is(&w, "");
    type(&w, "äöü ñ");
    text_is(&w, "äöü ñ");
    end(&w);
}

static void test_clusters(void **state)
{
    struct world w;
    (void)state;
    begin(&w, false);
    type(&w, "a👨\xe2\x80\x8d👩\xe2\x80\x8d👧e\xcc\x81");
    type(&w, "\x7f");
    text_is(&w, "a👨\xe2\x80\x8d👩\xe2\x80\x8d👧");
    type(&w, "\x1b[D");
    type(&w, "x");
    text_is(&w, "ax👨\xe2\x80\x8d👩\xe2\x80\x8d👧");
    type(&w, "\x1b[3~");
    text_is(&w, "ax");
    end(&w);
}

static void test_lines(void **state)
{
    struct world w;
    int row = 0;
    int col = 0;
    (void)state;
    begin(&w, false);
    type(&w, "one");
    composer_newline(w.c);
    type(&w, "two\\");
    assert_false(composer_enter(w.c));
    text_is(&w, "one\ntwo\n");
    type(&w, "x");
    assert_true(composer_enter(w.c));
    const struct text_rows *r = composer_layout(w.c, &theme, 40, &row, &col);
    assert_int_equal(r->n_rows, 3);
    assert_int_equal(row, 2);
    assert_int_equal(col, 1);
    type(&w, "\x1b[A\x1b[A");
    type(&w, "Z");
    text_is(&w, "oZne\ntwo\nx");
    type(&w, "\x0b");
    text_is(&w, "oZ\ntwo\nx");
    composer_clear(w.c);
    type(&w, "0123456789");
    r = composer_layout(w.c, &theme, 5, &row, &col);
    assert_int_equal(row, 2); /* the cursor wraps with the text */
    assert_int_equal(col, 0);
    assert_int_equal(r->n_rows, 3);
    end(&w);
}

static void test_chips(void **state)
{
    struct world w;
    struct buf big = BUF_INIT;
    struct buf b = BUF_INIT;
    (void)state;
    begin(&w, false);
    for (int i = 0; i < 412; i++) {
        buf_printf(&big, "line %d \xff\n", i);
    }
    type(&w, "see ");
    assert_int_equal(composer_paste(w.c, big.data, big.len, NULL), 0);
    type(&w, " ok");
    composer_display(w.c, &b);
    assert_string_equal(b.data, "see [paste 1: 412 lines, 4.3 KB] ok");
    buf_truncate(&b, 0);
    composer_text(w.c, &b);
    assert_int_equal(b.len, big.len + 7);
    assert_memory_equal(b.data + 4, big.data, big.len);
    /* it edits like one character */
    type(&w, "\x7f\x7f\x7f\x7f");
    text_is(&w, "see ");
    composer_undo(w.c);
    buf_truncate(&b, 0);
    composer_text(w.c, &b);
    assert_int_equal(b.len, big.len + 4);
    /* a code point that looks like a chip is text, or a chip of its own */
    composer_clear(w.c);
    assert_int_equal(composer_paste(w.c, "\xf3\xb0\x80\x80", 4, NULL), 0);
    text_is(&w, "\xf3\xb0\x80\x80");
    /* small pastes are text; what a line cannot hold is a chip */
    composer_clear(w.c);
    assert_int_equal(composer_paste(w.c, "small\n\tpaste", 12, NULL), 0);
    text_is(&w, "small\n\tpaste");
    assert_int_equal(composer_paste(w.c, "\x1b[2J\0x", 6, NULL), 0);
    buf_truncate(&b, 0);
    composer_text(w.c, &b);
    assert_int_equal(b.len, 18);
    buf_free(&b);
    buf_free(&big);
    end(&w);
}

static void test_limit(void **state)
{
    struct world w;
    struct err e = ERR_INIT;
    struct key k = {.type = K_CHAR, .code = 'x'};
    char part[2000];
    (void)state;
    begin(&w, false);
    memset(part, 'a', sizeof part);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(composer_paste(w.c, part, sizeof part, &e), 0);
    }
    int rc = 0;
    for (int i = 0; i < 2000 && rc == 0; i++) {
        rc = composer_key(w.c, &k, &e);
    }
    assert_int_equal(rc, QE_NOMEM);
    end(&w);
}

static void test_undo(void **state)
{
    struct world w;
    (void)state;
    begin(&w, false);
    type(&w, "one two");
    type(&w, "\x15");
    text_is(&w, "");
    composer_undo(w.c);
    text_is(&w, "one two");
    for (int i = 0; i < 20; i++) {
        composer_undo(w.c);
    }
    text_is(&w, "");
    end(&w);
}

static void test_history(void **state)
{
    struct world w;
    (void)state;
    begin(&w, false);
    history_add(w.h, "first", 5, NULL);
    history_add(w.h, "second\nline", 11, NULL);
    composer_clear(w.c);
    type(&w, "draft");
    type(&w, "\x1b[A");
    text_is(&w, "second\nline");
    type(&w, "\x1b[A"); /* to the upper line, then to the earlier entry */
    type(&w, "\x1b[A");
    text_is(&w, "first");
    type(&w, "\x1b[A");
    text_is(&w, "first");
    type(&w, "\x1b[B");
    text_is(&w, "second\nline");
    type(&w, "\x1b[B");
    text_is(&w, "draft");
    end(&w);
}

/* Types a command and puts a file in its place. */
static int attach(struct world *w, const char *name, const char *p, size_t n)
{
    struct line_command in = {.text = BUF_INIT};
    type(w, "/x y");
    assert_true(composer_command(w->c, 0, &in));
    assert_string_equal(in.text.data, "/x y");
    assert_true(in.last);
    buf_free(&in.text);
    return composer_attach(w->c, &in, name, p, n, NULL);
}

/* Commands begin a line; a file takes the place of one, and the cursor stays where it was. */
static void test_commands(void **state)
{
    (void)state;
    struct world w;
    struct line_command in = {.text = BUF_INIT};
    begin(&w, false);
    composer_paste(w.c, "a /no\n  /one 1\nb\n/two\n \n", 24, NULL);
    assert_true(composer_command(w.c, 0, &in));
    assert_string_equal(in.text.data, "/one 1");
    assert_false(in.last);
    struct line_command next = {.text = BUF_INIT};
    assert_true(composer_command(w.c, in.end, &next));
    assert_string_equal(next.text.data, "/two");
    assert_true(next.last);
    assert_false(composer_command(w.c, next.end, &next));
    assert_int_equal(composer_attach(w.c, &in, "f", "x\n", 2, NULL), 0);
    type(&w, "z");
    text_is(&w, "a /no\n  x\n\nb\n/two\n \nz");
    composer_undo(w.c);
    text_is(&w, "a /no\n  /one 1\nb\n/two\n \n");
    composer_clear(w.c);
    composer_paste(w.c, "/one\nend", 8, NULL);
    type(&w, "\x1b[H\x1b[A\x1b[C");
    assert_true(composer_command(w.c, 0, &in));
    assert_int_equal(composer_attach(w.c, &in, "f", "x", 1, NULL), 0);
    type(&w, "z");
    text_is(&w, "x\nz\nend"); /* a file ends its line */
    buf_free(&in.text);
    buf_free(&next.text);
    end(&w);
}

/* A file's chip has its name, made harmless. */
static void test_files(void **state)
{
    (void)state;
    struct world w;
    struct buf shown = BUF_INIT;
    struct buf text = BUF_INIT;
    begin(&w, false);
    assert_int_equal(attach(&w, "a\x1b[2J.c", "File\n", 5), 0);
    assert_int_equal(attach(&w,
                            "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
                            "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4"
                            "\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4xx\xc3\xa4.txt",
                            "2\n", 2),
                     0);
    composer_display(w.c, &shown);
    composer_text(w.c, &text);
    assert_memory_equal(text.data, "File\n2\n", 7);
    assert_non_null(strstr(shown.data, "[file a␛[2J.c, 5 bytes]"));
    assert_true(utf8_valid(shown.data, shown.len));
    composer_clear(w.c);
    /* the size is the file's, without the line of its name; pastes have numbers of their own */
    assert_int_equal(attach(&w, "n", "File n:\nab\ncd", 13), 0);
    char big[3000];
    memset(big, 'x', sizeof big);
    composer_paste(w.c, big, sizeof big, NULL);
    buf_truncate(&shown, 0);
    composer_display(w.c, &shown);
    buf_addc(&shown, 0);
    assert_non_null(strstr(shown.data, "[file n, 5 bytes]"));
    assert_non_null(strstr(shown.data, "[paste 1: 1 line, 2.9 KB]"));
    composer_clear(w.c);
    composer_paste(w.c, "1\n2\n3\n", 6, NULL);
    for (int i = 0; i < COMPOSER_CHIPS; i++) {
        assert_int_equal(attach(&w, "f", "x", 1), 0);
    }
    assert_int_equal(attach(&w, "f", "x", 1), QE_NOMEM);
    buf_free(&shown);
    buf_free(&text);
    end(&w);
}

/* A draft of any length can be got back, as a chip. */
static void test_history_long(void **state)
{
    struct world w;
    size_t n = 3 << 20;
    char *big = malloc(n);
    struct buf b = BUF_INIT;
    (void)state;
    assert_non_null(big);
    memset(big, 'x', n);
    begin(&w, false);
    assert_int_equal(history_add(w.h, big, n, NULL), 0);
    assert_int_equal(history_count(w.h), 1);
    composer_clear(w.c);
    for (int i = 0; i < COMPOSER_CHIPS + 6; i++) { /* more often than there are chips */
        type(&w, "\x1b[A");
        type(&w, "\x1b[B");
    }
    type(&w, "\x1b[A");
    composer_display(w.c, &b);
    assert_int_equal(b.len, strlen("[paste 1: 1 line, 3072 KB]"));
    assert_memory_equal(b.data, "[paste 1: 1 line, 3072 KB]", b.len);
    buf_truncate(&b, 0);
    composer_text(w.c, &b);
    assert_int_equal(b.len, n);
    assert_memory_equal(b.data, big, n);
    buf_free(&b);
    free(big);
    end(&w);
}

static void test_history_file(void **state)
{
    char path[] = "/tmp/quasar-history-XXXXXX";
    struct err e = ERR_INIT;
    (void)state;
    close(mkstemp(path));
    struct history *h = history_create(path, &e);
    assert_int_equal(history_add(h, "a\\n\nb", 5, &e), 0);
    assert_int_equal(history_add(h, "a\\n\nb", 5, &e), 0);
    assert_int_equal(history_add(h, "zwei", 4, &e), 0);
    assert_int_equal(history_count(h), 2);
    char *big = calloc(1, 70000);
    assert_non_null(big);
    memset(big, 'x', 69999);
    assert_int_equal(history_add(h, big, 69999, &e), 0); /* not for the file */
    assert_int_equal(history_count(h), 3);
    free(big);
    history_free(h);
    h = history_create(path, &e);
    assert_int_equal(history_count(h), 2);
    assert_string_equal(history_at(h, 0), "a\\n\nb");
    assert_string_equal(history_at(h, 1), "zwei");
    for (int i = 0; i < 2100; i++) {
        char s[16];
        snprintf(s, sizeof s, "n%d", i);
        assert_int_equal(history_add(h, s, strlen(s), &e), 0);
    }
    history_free(h);
    h = history_create(path, &e);
    assert_int_equal(history_count(h), 1000);
    assert_string_equal(history_at(h, 999), "n2099");
    history_free(h);
    unlink(path);
    /* a pipe that nobody writes or reads is not waited for, neither now nor later */
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(10);
    h = history_create(path, &e);
    assert_non_null(strstr(e.msg, "is not a regular file"));
    assert_int_equal(history_add(h, "one", 3, NULL), 0);
    assert_int_equal(history_count(h), 1);
    alarm(0);
    history_free(h);
    unlink(path);
}

static void test_vi(void **state)
{
    struct world w;
    (void)state;
    begin(&w, true);
    type(&w, "one two three\x1b");
    type(&w, "0");
    w.later = "w"; /* d, then w in a later read */
    type(&w, "d");
    assert_true(w.waits > 0);
    text_is(&w, "two three");
    w.later = "h";
    type(&w, "f"); /* f h: to the h of three */
    type(&w, "x");
    text_is(&w, "two tree");
    type(&w, "A!");
    text_is(&w, "two tree!");
    /* giving up in the middle leaves the line alone */
    type(&w, "\x1b");
    type(&w, "d");
    text_is(&w, "two tree!");
    type(&w, "x");
    text_is(&w, "two tree");
    /* keys with names work in both modes */
    type(&w, "\x1b[D\x1b[D");
    type(&w, "i_");
    text_is(&w, "two t_ree");
    composer_set_editor(w.c, false);
    composer_clear(w.c);
    type(&w, "emacs\x01>");
    text_is(&w, ">emacs");
    end(&w);
}

static void test_quoted(void **state)
{
    struct world w;
    (void)state;
    begin(&w, false);
    w.later = "q";
    type(&w, "ab\x16"); /* ^V and a later key */
    text_is(&w, "abq");
    type(&w, "\x16"); /* ^V and nothing: given up */
    text_is(&w, "abq");
    assert_false(composer_pending(w.c));
    end(&w);
}

/* Any keys in any order: the line stays well formed. */
static void test_random_keys(void **state)
{
    struct world w;
    uint32_t rng = 11;
    (void)state;
    for (int vi = 0; vi < 2; vi++) {
        begin(&w, vi);
        history_add(w.h, "old entry", 9, NULL);
        for (int i = 0; i < 6000; i++) {
            rng = rng * 1664525U + 1013904223U;
            uint32_t r = rng >> 8;
            struct key k = {.type = (enum key_type)(1 + r % K_DELETE)};
            if (r % 3) {
                static const uint32_t codes[] = {'a',  ' ',    0x1F469, 0x200D, 0x301,
                                                 0xE9, 0x6F22, 'd',     'w',    'f'};
                k.type = K_CHAR;
                k.code = codes[(r >> 4) % 10];
                if (r % 7 == 0) {
                    k.code = 'a' + (r >> 5) % 26;
                    k.mods = r & 64 ? KM_CTRL : KM_ALT;
                }
            }
            if (k.type == K_ESC && !vi) {
                continue;
            }
            if (r % 211 == 0) {
                (void)composer_paste(w.c, "p\nq", 3, NULL);
            } else if (r % 97 == 0) {
                composer_undo(w.c);
            } else {
                (void)composer_key(w.c, &k, NULL);
            }
            if (i % 50 == 0) {
                struct buf b = BUF_INIT;
                int row = 0;
                int col = 0;
                composer_text(w.c, &b);
                assert_true(utf8_valid(b.data ? b.data : "", b.len));
                (void)composer_layout(w.c, &theme, 1 + (int)(r % 90), &row, &col);
                buf_free(&b);
            }
        }
        end(&w);
    }
}

/* A draft as bytes: what was written is read, whatever is cut or changed is refused. */
static void drafts_as_bytes(void **state)
{
    (void)state;
    struct world w;
    begin(&w, false);
    struct composer *c = w.c;
    struct err e = ERR_INIT;
    char big[5000];
    memset(big, 'x', sizeof big);
    composer_set(c, "a\xC3\xA4\n", 4);
    assert_int_equal(composer_paste(c, big, sizeof big, &e), 0);
    struct draft *d = composer_copy(c);
    struct buf b = BUF_INIT;
    draft_write(d, &b);
    draft_free(d);
    composer_clear(c);
    d = draft_read(b.data, b.len);
    assert_non_null(d);
    composer_restore(c, d);
    draft_free(d);
    struct buf text = BUF_INIT;
    composer_text(c, &text);
    assert_int_equal(text.len, 4 + sizeof big);
    assert_memory_equal(text.data, "a\xC3\xA4\nxx", 6);
    for (size_t n = 0; n < b.len; n += n < 64 ? 1 : 97) {
        assert_null(draft_read(b.data, n));
    }
    assert_null(draft_read("QD1 0 1 0 a.", 12));
    assert_null(draft_read("QD1 0 1 99999 a", 15));
    assert_null(draft_read("QD1 0 2 0 \xC3(", 12));
    assert_null(draft_read("QD1 0 1 1 a9 9 ", 15));
    d = draft_read("QD1 77 1 0 a", 12);
    assert_non_null(d);
    assert_int_equal(d->cursor, 1);
    draft_free(d);
    buf_free(&text);
    buf_free(&b);
    composer_clear(c);
    d = composer_copy(c);
    draft_write(d, &b);
    assert_int_equal(b.len, 0);
    draft_free(d);
    end(&w);
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    setenv("TERM", "xterm", 1);
    setenv("HOME", "/nonexistent", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_as_bytes),   cmocka_unit_test(test_editing),
        cmocka_unit_test(test_clusters),     cmocka_unit_test(test_lines),
        cmocka_unit_test(test_chips),        cmocka_unit_test(test_files),
        cmocka_unit_test(test_commands),     cmocka_unit_test(test_limit),
        cmocka_unit_test(test_undo),         cmocka_unit_test(test_history),
        cmocka_unit_test(test_history_long), cmocka_unit_test(test_history_file),
        cmocka_unit_test(test_vi),           cmocka_unit_test(test_quoted),
        cmocka_unit_test(test_random_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
