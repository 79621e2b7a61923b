/* Markdown: how blocks look, and that nothing is hidden at any width. */
#include "config.h"
#include "tui/md.h"

#include <ctype.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct theme theme = {.ascii = false, .utf8 = true};

static void dump(const struct text_rows *r, struct buf *out)
{
    buf_truncate(out, 0);
    buf_adds(out, "");
    for (size_t i = 0; i < r->n_rows; i++) {
        size_t from = r->rows[i].at;
        size_t end = text_row_end(r, i);
        while (end > from && r->text.data[end - 1] == ' ') {
            end--;
        }
        buf_add(out, r->text.data + from, end - from);
        buf_addc(out, '\n');
    }
}

static void looks(const char *src, int width, const char *want)
{
    struct md *m = md_create();
    struct buf b = BUF_INIT;
    md_add(m, src, strlen(src));
    dump(md_layout(m, &theme, width), &b);
    assert_string_equal(b.data, want);
    buf_free(&b);
    md_free(m);
}

static void test_blocks(void **state)
{
    (void)state;
    looks("# Title\n\nA *b* **c** `d`.\n", 40, "Title\n\nA b c d.\n");
    looks("Text:\n- a\n- b\n  - c\n\nEnd\n", 40, "Text:\n• a\n• b\n  • c\n\nEnd\n");
    looks("3. x\n4. y\n", 40, "3. x\n4. y\n");
    looks("1. a\n\n2. b\n", 40, "1. a\n\n2. b\n");
    looks("- [x] done\n- [ ] open\n", 40, "☑ done\n☐ open\n");
    looks("> q\n> r\n", 40, "▎ q\n▎ r\n");
    looks("one\ntwo\n", 40, "one\ntwo\n");
    looks("---\n", 5, "─────\n");
    looks("[a](http://x/y) <http://z/>", 40, "a (http://x/y) http://z/\n");
    looks("a &lt; b &amp; c &copy;", 40, "a < b & c &copy;\n");
    looks("<b>raw</b>\n", 40, "<b>raw</b>\n");
    looks("~~gone~~\n", 40, "~~gone~~\n");
}

static void test_code(void **state)
{
    (void)state;
    looks("```c\nint x;\n  y\n```\n", 30,
          "┌ c ─────────────────────────┐\n"
          "│ int x;                     │\n"
          "│   y                        │\n"
          "└────────────────────────────┘\n");
    /* open: as far as it goes */
    looks("```\nint", 30,
          "┌────────────────────────────┐\n"
          "│ int                        │\n"
          "└────────────────────────────┘\n");
    looks("```\n0123456789012345678901234567\n```\n", 24,
          "┌──────────────────────┐\n"
          "│ 01234567890123456789 │\n"
          "│ ↪ 01234567           │\n"
          "└──────────────────────┘\n");
    looks("```py\nx = 1\n```\n", 10, "py\nx = 1\n");
    looks("    indented\n      more\n", 30, "    indented\n      more\n");
}

static void test_tables(void **state)
{
    (void)state;
    static const char t[] = "| a | bb |\n|--:|:--|\n| 1 | x |\n| 22 | yy |\n";
    looks(t, 30, " a │ bb\n───┼───\n 1 │ x\n22 │ yy\n");
    static const char wide[] = "| name | what |\n|---|---|\n"
                               "| alpha | one two three four five |\n";
    looks(wide, 24,
          "name  │ what\n──────┼─────────────────\nalpha │ one two three\n      │ four five\n");
    looks(wide, 8, "name:\nalpha\nwhat:\none two\nthree\nfour\nfive\n");
    /* an unfinished table */
    looks("| a | b |\n|---", 20, "| a | b |\n|---\n");
}

/* What markup would swallow is shown as it is. */
static void test_hides_nothing(void **state)
{
    (void)state;
    looks("[ref]: http://hidden/\n", 40, "[ref]: http://hidden/\n");
    looks("| a |\n|---|\n| b | lost |\n", 40, "| a |\n|---|\n| b | lost |\n");
    looks("![alt](pic.png \"title\")", 60, "alt (pic.png) \"title\"\n");
}

static size_t letters(const char *p, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        k += isalpha((unsigned char)p[i]) != 0;
    }
    return k;
}

static const char *const pieces[] = {"word ",  "\n",          "\n\n",        "# ",
                                     "- ",     "  - ",        "1. ",         "```\n",
                                     "```c\n", "`",           "**",          "*",
                                     "_",      "| a | b |\n", "|---|---|\n", "| c | d | e |\n",
                                     "> ",     "[x](y)",      "[r]: u\n",    "<b>",
                                     "&copy;", "    ",        "\t",          "漢字 ",
                                     "~~",     "![i](j)",     "---\n",       "- [ ] ",
                                     "\\",     "e\xcc\x81",   "\x1b[0m",     "1) "};

/* The rows' runs are what is said, byte for byte, and all that is said is in them. */
static void agree(const struct text_rows *r, const struct buf *said)
{
    char *seen = calloc(said->len + 1, 1);
    assert_non_null(seen);
    for (size_t i = 0; i < r->n_rows; i++) {
        size_t end = 0;
        for (const struct text_run *k = text_row_run(r, i, NULL, &end); k;
             k = text_row_run(r, i, k, &end)) {
            if (!(k->style & TEXT_DECOR)) {
                assert_true(k->from + (end - k->at) <= said->len);
                assert_memory_equal(r->text.data + k->at, said->data + k->from, end - k->at);
                memset(seen + k->from, 1, end - k->at);
            }
        }
    }
    for (size_t i = 0; i < said->len; i++) {
        assert_true(seen[i] || said->data[i] == '\n');
    }
    free(seen);
}

static void says(const char *src, const char *want)
{
    struct md *m = md_create();
    md_add(m, src, strlen(src));
    assert_string_equal(md_said(m, &theme)->data, want);
    agree(md_layout(m, &theme, 30), md_said(m, &theme));
    md_end(m);
    assert_string_equal(md_said(m, &theme)->data, want);
    md_free(m);
}

static void test_said(void **state)
{
    (void)state;
    says("# A *b*\n\ntext `c` [l](u)\nsecond\n", "A b\ntext c l (u)\nsecond\n");
    says("- one\n- two\n\n---\n\n```c\nint x;\n```\n", "one\ntwo\nc\nint x;\n");
    says("| a | bb |\n|---|---|\n| a long one | *y* |\n", "a\nbb\na long one\ny\n");
    says("| a |\n|---|\n| b | lost |\n", "| a |\n|---|\n| b | lost |\n");
}

/* Every letter is shown, fed at once or in pieces, at any width. */
static void test_property(void **state)
{
    (void)state;
    uint32_t rng = 3;
    int texts = getenv("QUASAR_LONG") ? 2000 : 150;
    for (int t = 0; t < texts; t++) {
        struct buf src = BUF_INIT;
        struct md *whole = md_create();
        struct md *grown = md_create();
        struct buf a = BUF_INIT;
        struct buf b = BUF_INIT;
        for (int k = 0; k < 40; k++) {
            rng = rng * 1664525U + 1013904223U;
            const char *p = pieces[(rng >> 8) % (sizeof pieces / sizeof *pieces)];
            buf_adds(&src, p);
            md_add(grown, p, strlen(p));
            (void)md_layout(grown, &theme, 60);
            (void)md_said(grown, &theme);
        }
        md_add(whole, src.data, src.len);
        dump(md_layout(whole, &theme, 60), &a);
        dump(md_layout(grown, &theme, 60), &b);
        assert_string_equal(a.data, b.data);
        for (int width = 1; width <= 120; width += width < 12 ? 1 : 17) {
            const struct text_rows *r = md_layout(whole, &theme, width);
            agree(r, md_said(whole, &theme));
            agree(r, md_said(grown, &theme));
            buf_truncate(&b, 0);
            for (size_t i = 0; i < r->n_rows; i++) {
                text_row_text(r, i, &b);
            }
            if (letters(b.data, b.len) < letters(src.data, src.len)) {
                fail_msg("letters lost at width %d:\n%s\nshown:\n%s", width, src.data, b.data);
            }
        }
        md_free(whole);
        md_free(grown);
        buf_free(&a);
        buf_free(&b);
        buf_free(&src);
    }
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks), cmocka_unit_test(test_code),
        cmocka_unit_test(test_tables), cmocka_unit_test(test_hides_nothing),
        cmocka_unit_test(test_said),   cmocka_unit_test(test_property),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
