/* A transcript of a million tokens: how long it takes to open, to scroll and to search, and what
 * it takes of memory. Times are printed; what is checked is that the same rows come back, and how
 * much memory is kept. */
#include "config.h"

#include <curses.h>
#include <locale.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "tui/transcript.h"

#define TOKENS (getenv("QUASAR_LONG") ? 1000000 : 250000)
#define ROWS   58
#define COLS_  158

static const struct theme theme = {.ascii = false, .utf8 = true};

static double ms_since(int64_t t)
{
    return (double)(clock_now(clock_real()) - t) / 1e6;
}

/* Answers of about a thousand tokens: prose, a list, some code. Returns the bytes. */
static size_t fill(struct transcript *t, int tokens)
{
    struct buf text = BUF_INIT;
    struct buf q = BUF_INIT;
    size_t bytes = 0;
    for (int i = 0; i * 1000 < tokens; i++) {
        buf_truncate(&text, 0);
        buf_truncate(&q, 0);
        buf_printf(&q, "Question number %d about the column of a tab?", i);
        for (int k = 0; k < 30; k++) {
            buf_printf(&text, "The column of line %d drifts because a *tab* is one byte in ", k);
            buf_adds(&text, "`the lexer` and several cells on the screen. ");
        }
        buf_adds(&text, "\n\n1. keep offsets\n2. compute columns\n\n```c\n");
        for (int k = 0; k < 20; k++) {
            buf_printf(&text, "    size_t column_%d = column_of(line, byte + %d);\n", k, i);
        }
        buf_adds(&text, "```\n");
        transcript_user(t, "14:02", &q, &q);
        transcript_model(t, "14:03");
        transcript_text(t, text.data, text.len);
        transcript_end(t, R_DIM, "");
        bytes += q.len + text.len;
    }
    buf_free(&text);
    buf_free(&q);
    return bytes;
}

static void row_at(int y, char *out, size_t n)
{
    chtype line[COLS_ + 1];
    size_t k = 0;
    (void)mvinchnstr(y, 0, line, COLS_);
    for (; k + 1 < n && k < COLS_ && line[k]; k++) {
        out[k] = (char)(line[k] & A_CHARTEXT);
    }
    out[k] = 0;
}

static void a_million_tokens(void **state)
{
    (void)state;
    const size_t before = mallinfo2().uordblks;
    struct transcript *t = transcript_create();
    const int64_t began = clock_now(clock_real());
    const size_t bytes = fill(t, TOKENS);
    (void)transcript_draw(t, &theme, 0, 0, ROWS, COLS_);
    printf("# %d tokens, %.1f MB: opened and drawn in %.1f ms\n", TOKENS, (double)bytes / 1e6,
           ms_since(began));
    char last[COLS_ + 1];
    char again[COLS_ + 1];
    row_at(ROWS - 2, last, sizeof last);
    double worst = 0;
    double all = 0;
    for (int i = 0; i < 200; i++) {
        const int64_t at = clock_now(clock_real());
        transcript_scroll(t, -(ROWS - 1));
        (void)transcript_draw(t, &theme, 0, 0, ROWS, COLS_);
        const double took = ms_since(at);
        worst = took > worst ? took : worst;
        all += took;
    }
    printf("# a page up: %.2f ms, the slowest %.2f ms\n", all / 200, worst);
    transcript_top(t); /* all of it is on the screen once */
    while (transcript_draw(t, &theme, 0, 0, ROWS, COLS_) != 0) {
        transcript_scroll(t, ROWS - 1);
    }
    transcript_top(t);
    int64_t at = clock_now(clock_real());
    (void)transcript_draw(t, &theme, 0, 0, ROWS, COLS_);
    printf("# to the top: %.1f ms\n", ms_since(at));
    at = clock_now(clock_real());
    transcript_scroll(t, ROWS);
    (void)transcript_draw(t, &theme, 0, 0, ROWS, COLS_);
    printf("# a page down from there: %.1f ms\n", ms_since(at));
    struct search *s = search_create("column of a tab", 15);
    at = clock_now(clock_real());
    transcript_search(t, s);
    (void)transcript_draw(t, &theme, 0, 0, ROWS, COLS_);
    size_t shown = 0;
    const size_t n = transcript_search_count(t, &shown);
    printf("# a search with %zu matches: %.1f ms\n", n, ms_since(at));
    assert_int_equal(n, TOKENS / 1000);
    const size_t searched = mallinfo2().uordblks;
    printf("# memory while it is searched: %.1f of its bytes\n",
           (double)(searched - before) / (double)bytes);
    assert_true(searched - before < 3 * bytes);
    transcript_search(t, NULL);
    search_free(s);
    transcript_follow(t);
    (void)transcript_draw(t, &theme, 0, 0, ROWS, COLS_);
    row_at(ROWS - 2, again, sizeof again);
    assert_string_equal(last, again);
    assert_true(last[0] != 0);
    const size_t after = mallinfo2().uordblks;
    printf("# memory: %.1f of its bytes\n", (double)(after - before) / (double)bytes);
    assert_true(after - before < 2 * bytes);
    transcript_free(t);
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    FILE *null = fopen("/dev/null", "w+");
    setenv("LINES", "60", 1);
    setenv("COLUMNS", "160", 1);
    SCREEN *screen = null ? newterm("xterm", null, null) : NULL;
    if (!screen) {
        printf("1..1\nok 1 # SKIP there is no description of xterm\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_million_tokens)};
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    endwin();
    delscreen(screen);
    fclose(null);
    return rc;
}
