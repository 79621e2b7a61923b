/* The text filter and the wrapping. */
#include "config.h"
#include "tui/text.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cmocka.h>

#include "base/utf8.h"

static void check_filter(const char *in, size_t n, bool ascii, const char *want)
{
    struct buf b = BUF_INIT;
    text_filter(in, n, ascii, NULL, &b);
    assert_string_equal(b.data ? b.data : "", want);
    buf_free(&b);
}

static void test_filter(void **state)
{
    (void)state;
    static const struct {
        const char *in, *want;
    } rows[] = {
        {"plain é 漢 ok", "plain é 漢 ok"},
        {"\x1b[2J", "␛[2J"},
        {"a\x07"
         "b\x7f",
         "a␇b␡"},
        {"c1 \xc2\x9b"
         "31m",
         "c1 <9B>31m"},
        {"one\r\ntwo\rthree", "one\ntwo␍three"},
        {"\tx\n\ty", "        x\n        y"},
        {"abc\tx", "abc     x"},
        {"漢\tx", "漢      x"},
        {"\xe2\x80\xae"
         "evil",
         "<RLO>evil"},
        {"\xe2\x81\xa6x\xe2\x81\xa9", "<LRI>x<PDI>"},
        {"bad \xff\xc0", "bad \xef\xbf\xbd\xef\xbf\xbd"},
        {"cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf3\xa0\x81\x81", "<U+E0041>"},
        {"\xcc\x81x", "\xe2\x97\x8c\xcc\x81x"},
        {"e\xcc\x81", "e\xcc\x81"},
        {"a\xe2\x80\xa8"
         "b",
         "a<LS>b"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check_filter(rows[i].in, strlen(rows[i].in), false, rows[i].want);
    }
    check_filter("a\0b", 3, false, "a␀b");
    check_filter("\x1b[m\x7f\xff", 5, true, "^[[m^??");
}

static void test_cells(void **state)
{
    (void)state;
    static const struct {
        const char *s;
        int cells;
    } rows[] = {{"", 0},
                {"abc", 3},
                {"漢字", 4},
                {"e\xcc\x81", 1},
                {"👨\xe2\x80\x8d👩\xe2\x80\x8d👧", 6},
                {"👍🏽", 4},
                {"❤\xef\xb8\x8f", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(text_cells(rows[i].s, strlen(rows[i].s)), rows[i].cells);
    }
    assert_int_equal(text_fit("漢字", 6, 3), 3);
    assert_int_equal(text_fit("👨\xe2\x80\x8d👩x", 12, 3), 0);
}

static uint32_t next(uint32_t *s)
{
    *s = *s * 1664525U + 1013904223U;
    return *s >> 8;
}

static const char *const pieces[] = {"word",
                                     " ",
                                     "  ",
                                     "\n",
                                     "a",
                                     "longer-word",
                                     "漢字",
                                     "é",
                                     "e\xcc\x81",
                                     "\t",
                                     "\x1b[31m",
                                     "👨\xe2\x80\x8d👩\xe2\x80\x8d👧",
                                     "\xff",
                                     "\xe2\x80\xae",
                                     "0123456789012345678901234567890123456789",
                                     "한국어",
                                     "\r\n",
                                     "\xe2\x80\x8b",
                                     "      ",
                                     "。",
                                     "\xc2\x9b"};

static void random_text(uint32_t *rng, size_t count, struct buf *out)
{
    for (size_t i = 0; i < count; i++) {
        buf_adds(out, pieces[next(rng) % (sizeof pieces / sizeof *pieces)]);
    }
}

/* Widest cluster of a row, for rows that hold one cluster only. */
static bool one_cluster(const char *p, size_t n)
{
    return utf8_cluster_len(p, n) >= n;
}

static void check_wrap(const struct text_flow *f, const struct buf *filtered, int width,
                       enum text_wrap_mode mode, bool ornaments)
{
    struct text_rows rows = {0};
    struct text_prefix pre = {0};
    text_prefix_push(&pre, R_BORDER, "| ");
    struct text_wrap w = {.width = width,
                          .mode = mode,
                          .first = ornaments ? &pre : NULL,
                          .next = ornaments ? &pre : NULL,
                          .mark = ornaments && mode == WRAP_CHAR ? "> " : NULL,
                          .right = ornaments && mode == WRAP_CHAR ? " |" : NULL};
    text_wrap(&rows, f, &w);
    struct buf all = BUF_INIT;
    for (size_t i = 0; i < rows.n_rows; i++) {
        size_t at = all.len;
        text_row_text(&rows, i, &all);
        size_t n = all.len - at;
        size_t from = rows.rows[i].at;
        size_t end = text_row_end(&rows, i);
        if (mode == WRAP_WORD) { /* spaces hang over the edge */
            while (end > from && rows.text.data[end - 1] == ' ') {
                end--;
            }
            while (n && all.data[at + n - 1] == ' ') {
                n--;
            }
        }
        int cells = text_cells(rows.text.data ? rows.text.data + from : "", end - from);
        if (cells > width && !(n == 0 || one_cluster(all.data + at, n))) {
            fail_msg("row %zu has %d cells at width %d", i, cells, width);
        }
        if (rows.rows[i].hard && i + 1 < rows.n_rows) {
            buf_addc(&all, '\n');
        }
    }
    assert_int_equal(all.len, filtered->len);
    if (all.len) {
        assert_memory_equal(all.data, filtered->data, all.len);
    }
    buf_free(&all);
    text_rows_free(&rows);
}

/* At every width, the rows together are the filtered text. */
static void test_wrap_property(void **state)
{
    (void)state;
    uint32_t rng = 7;
    int texts = getenv("QUASAR_LONG") ? 200 : 12;
    for (int t = 0; t < texts; t++) {
        struct buf raw = BUF_INIT;
        random_text(&rng, t == 0 ? 0 : 1 + next(&rng) % 200, &raw);
        struct text_flow f = {0};
        size_t half = raw.len / 2; /* two styles, cut at a character */
        while (half < raw.len && ((unsigned char)raw.data[half] & 0xC0) == 0x80) {
            half++;
        }
        text_flow_add(&f, R_TEXT, raw.data, half, false);
        text_flow_add(&f, R_CODE, raw.data + half, raw.len - half, false);
        for (int width = 1; width <= 300; width++) {
            check_wrap(&f, &f.text, width, WRAP_WORD, false);
            check_wrap(&f, &f.text, width, WRAP_CHAR, false);
            check_wrap(&f, &f.text, width, WRAP_WORD, true);
            check_wrap(&f, &f.text, width, WRAP_CHAR, true);
        }
        text_flow_free(&f);
        buf_free(&raw);
    }
}

/* The flow is the filtered text: cutting it into pieces changes nothing. */
static void test_flow_is_filter(void **state)
{
    (void)state;
    uint32_t rng = 99;
    for (int t = 0; t < 200; t++) {
        struct buf raw = BUF_INIT;
        struct buf want = BUF_INIT;
        struct text_flow f = {0};
        for (int k = 0; k < 20; k++) {
            const char *p = pieces[next(&rng) % (sizeof pieces / sizeof *pieces)];
            text_flow_add(&f, (uint16_t)(next(&rng) % 3), p, strlen(p), false);
            buf_adds(&raw, p);
        }
        text_filter(raw.data, raw.len, false, NULL, &want);
        assert_string_equal(f.text.data, want.data);
        text_flow_free(&f);
        buf_free(&raw);
        buf_free(&want);
    }
}

static void rows_are(const char *text, int width, enum text_wrap_mode mode, const char *want)
{
    struct text_flow f = {0};
    struct text_rows rows = {0};
    struct buf all = BUF_INIT;
    text_flow_add(&f, R_TEXT, text, strlen(text), false);
    struct text_wrap w = {.width = width, .mode = mode, .mark = mode == WRAP_CHAR ? ">" : NULL};
    text_wrap(&rows, &f, &w);
    for (size_t i = 0; i < rows.n_rows; i++) {
        size_t from = rows.rows[i].at;
        buf_add(&all, rows.text.data + from, text_row_end(&rows, i) - from);
        buf_addc(&all, '/');
    }
    assert_string_equal(all.data, want);
    buf_free(&all);
    text_rows_free(&rows);
    text_flow_free(&f);
}

static void test_wrap_rows(void **state)
{
    (void)state;
    rows_are("the quick brown fox", 10, WRAP_WORD, "the quick /brown fox/");
    rows_are("the quick  brown", 9, WRAP_WORD, "the quick  /brown/");
    rows_are("abcdefghij", 4, WRAP_WORD, "abcd/efgh/ij/");
    rows_are("x abcdefghij", 4, WRAP_WORD, "x /abcd/efgh/ij/");
    rows_are("漢字漢字", 5, WRAP_WORD, "漢字/漢字/");
    rows_are("a漢", 2, WRAP_WORD, "a/漢/");
    rows_are("漢", 1, WRAP_WORD, "漢/");
    rows_are("one\n\ntwo", 10, WRAP_WORD, "one//two/");
    rows_are("", 10, WRAP_WORD, "/");
    rows_are("0123456789", 6, WRAP_CHAR, "012345/>6789/");
}

/* Widths that the font decides, and characters that join. */
static void test_widths(void **state)
{
    (void)state;
    static const char open[] = "a\xc2\xa7\xe2\x94\x80\xe2\x80\xa6z"; /* section, line, ellipsis */
    assert_int_equal(text_cells(open, sizeof open - 1), 5);
    assert_int_equal(utf8_cells(0xA7), 1);
    utf8_set_ambiguous(2);
    assert_int_equal(text_cells(open, sizeof open - 1), 8);
    assert_int_equal(utf8_cells(0xA7), 2);
    assert_int_equal(wcwidth(0xA7), 2); /* what curses is told */
    assert_int_equal(utf8_cells('a'), 1);
    assert_int_equal(utf8_cells(0x301), 0);
    assert_int_equal(utf8_cells(0xFE0F), 0);
    assert_int_equal(utf8_cells(0x6F22), 2);
    assert_int_equal(text_fit(open, sizeof open - 1, 4), 3);
    utf8_set_ambiguous(1);
    assert_int_equal(wcwidth(0xA7), 1);
    assert_true(text_joins(0x200D) && text_undrawn(0x200D));
    assert_true(text_joins(0xFE0F) && text_undrawn(0xFE0F));
    assert_true(!text_joins(0x200E) && text_undrawn(0x200E));
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widths),    cmocka_unit_test(test_filter),
        cmocka_unit_test(test_cells),     cmocka_unit_test(test_flow_is_filter),
        cmocka_unit_test(test_wrap_rows), cmocka_unit_test(test_wrap_property),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
