/* The search of a transcript: at every width it finds the same, and what is marked on the screen is
 * what was found. */
#include "config.h"

#include <curses.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tui/transcript.h"

#define ROWS 60

static const struct theme theme = {.ascii = false, .utf8 = true, .kind = THEME_MONO};

static const char answer[] =
    "The *col*umn drifts, because a tab is one column of many columns.\n"
    "\n- a column in a list\n- none here\n\n```c\nint column = 1;\n```\n\n"
    "| name | the column of it all |\n|---|---|\n"
    "| column | a cell that is so long that its column wraps somewhere |\n";

static struct transcript *make(void)
{
    struct transcript *t = transcript_create();
    struct buf q = BUF_INIT;
    buf_adds(&q, "What is a column?");
    transcript_user(t, "14:02", &q, &q);
    transcript_model(t, "14:03");
    transcript_thought(t, "a column, I think", 17);
    transcript_thought_facts(t, true, 1, 5);
    transcript_text(t, answer, sizeof answer - 1);
    transcript_end(t, R_DIM, "column");
    buf_free(&q);
    return t;
}

/* The letters on the screen that are marked. */
static size_t marked(char *out, size_t size)
{
    size_t n = 0;
    for (int y = 0; y < ROWS; y++) {
        for (int x = 0; x < COLS; x++) {
            cchar_t c;
            wchar_t w[8];
            attr_t attrs = 0;
            short pair = 0;
            (void)mvin_wch(y, x, &c);
            (void)getcchar(&c, w, &attrs, &pair, NULL);
            if ((attrs & A_REVERSE) && n + 1 < size) {
                out[n++] = (char)w[0];
            }
        }
    }
    out[n] = 0;
    return n;
}

static void at_every_width(void **state)
{
    (void)state;
    struct transcript *t = make();
    struct search *s = search_create("column", 6);
    char text[512];
    transcript_search(t, s);
    for (int width = 200; width >= 12; width--) {
        erase();
        (void)transcript_draw(t, &theme, 0, 0, ROWS, width);
        size_t shown = 0;
        assert_int_equal(transcript_search_count(t, &shown), 9);
        assert_true(shown >= 1);
        (void)marked(text, sizeof text);
        if (width >= 30 && transcript_following(t)) { /* all of it can be seen */
            size_t n = 0;
            for (const char *p = strstr(text, "column"); p; p = strstr(p + 6, "column")) {
                n++;
            }
            assert_int_equal(strlen(text), 9 * 6);
            assert_true(n >= 7); /* a word in a cell may be cut */
        }
    }
    transcript_search(t, NULL);
    search_free(s);
    transcript_free(t);
}

/* What is folded is not found; what opens is. */
static void folds(void **state)
{
    (void)state;
    struct transcript *t = make();
    struct search *s = search_create("I think", 7);
    size_t shown = 0;
    transcript_search(t, s);
    (void)transcript_draw(t, &theme, 0, 0, ROWS, 80);
    assert_int_equal(transcript_search_count(t, &shown), 0);
    transcript_fold(t);
    (void)transcript_draw(t, &theme, 0, 0, ROWS, 80);
    assert_int_equal(transcript_search_count(t, &shown), 1);
    assert_int_equal(shown, 0); /* nothing was gone to */
    transcript_fold(t);
    (void)transcript_draw(t, &theme, 0, 0, ROWS, 80);
    assert_int_equal(transcript_search_count(t, &shown), 0);
    transcript_search(t, NULL);
    search_free(s);
    transcript_free(t);
}

/* Steps go through all matches, in blocks that were never on the screen too. */
static void steps(void **state)
{
    (void)state;
    struct transcript *t = transcript_create();
    struct buf q = BUF_INIT;
    for (int i = 0; i < 300; i++) {
        buf_truncate(&q, 0);
        buf_printf(&q, "Question %d%s", i, i % 7 == 0 ? " with a mark" : "");
        transcript_user(t, "14:02", &q, &q);
        transcript_model(t, "14:03");
        transcript_text(t, "mark: **m**ark\n\n    mark\n", 25);
        transcript_end(t, R_DIM, "");
    }
    struct search *s = search_create("mark", 4);
    size_t shown = 0;
    const size_t all = 43 + 3 * 300;
    char text[512];
    transcript_search(t, s);
    (void)transcript_draw(t, &theme, 0, 0, 20, 40);
    assert_int_equal(transcript_search_count(t, &shown), all);
    assert_int_equal(shown, all);
    for (size_t i = 1; i <= all; i++) {
        transcript_search_step(t, -1);
        erase();
        (void)transcript_draw(t, &theme, 0, 0, 20, 40);
        (void)transcript_search_count(t, &shown);
        assert_int_equal(shown, i < all ? all - i : all);
        assert_true(marked(text, sizeof text) > 0);
        assert_non_null(strstr(text, "mark"));
    }
    transcript_search(t, NULL);
    search_free(s);
    transcript_free(t);
    buf_free(&q);
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    FILE *null = fopen("/dev/null", "w+");
    setenv("LINES", "60", 1);
    setenv("COLUMNS", "200", 1);
    SCREEN *screen = null ? newterm("xterm", null, null) : NULL;
    if (!screen) {
        printf("1..1\nok 1 # SKIP there is no description of xterm\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(at_every_width),
        cmocka_unit_test(folds),
        cmocka_unit_test(steps),
    };
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    endwin();
    delscreen(screen);
    fclose(null);
    return rc;
}
