/* The arithmetic of the screen: at every size and with every way to split, nothing overlaps,
 * nothing is outside, and what gives way goes in its order. */
#include "config.h"

#include <stdarg.h>
#include <stdlib.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "tui/layout.h"

static struct tiles tiles_of(const char *splits)
{
    struct tiles t;
    tiles_init(&t);
    for (const char *p = splits; *p; p += 2) {
        assert_true(tiles_split(&t, (size_t)(p[0] - '0'), p[1] == '|'));
    }
    return t;
}

static void splits_are_numbered_as_read(void **state)
{
    (void)state;
    struct tiles t = tiles_of("0|1-");
    struct rect r[TILES_MAX];
    const struct rect area = {1, 0, 20, 81};
    assert_int_equal(tiles_count(&t), 3);
    assert_true(tiles_place(&t, &area, 1, 1, r));
    assert_int_equal(r[0].cols, 40);
    assert_int_equal(r[0].rows, 20);
    assert_int_equal(r[1].x, 41);
    assert_int_equal(r[1].rows, 10);
    assert_int_equal(r[2].y, 11);
    assert_int_equal(r[2].x, 41);
    assert_true(tiles_split(&t, 0, true));
    assert_false(tiles_split(&t, 0, true));
    assert_int_equal(tiles_count(&t), 4);
}

static void equal_splits_share_equally(void **state)
{
    (void)state;
    struct tiles t = tiles_of("0|0|0|");
    struct rect r[TILES_MAX];
    const struct rect area = {0, 0, 10, 83};
    assert_true(tiles_place(&t, &area, 1, 1, r));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(r[i].cols, 20);
        assert_int_equal(r[i].x, (int)i * 21);
    }
}

static void removing_gives_the_room_back(void **state)
{
    (void)state;
    static const char *const ways[] = {"0|", "0-", "0|0-", "0|1-", "0|1|", "0|0-2-", "0-1|1|"};
    const struct rect area = {0, 0, 40, 120};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const struct tiles whole = tiles_of(ways[i]);
        const size_t n = tiles_count(&whole);
        for (size_t k = 0; k < n; k++) {
            struct tiles t = whole;
            struct rect r[TILES_MAX];
            tiles_remove(&t, k);
            assert_int_equal(tiles_count(&t), n - 1);
            assert_true(tiles_place(&t, &area, 1, 1, r));
            while (tiles_count(&t) > 1) {
                tiles_remove(&t, tiles_count(&t) - 1);
            }
            assert_string_equal(t.code, ".");
            tiles_remove(&t, 0);
            assert_int_equal(tiles_count(&t), 1);
        }
    }
}

/* Marks a rectangle's cells; each may be marked once. */
static void mark(unsigned char *map, int cols, int rows, const struct rect *r)
{
    for (int y = r->y; y < r->y + r->rows; y++) {
        for (int x = r->x; x < r->x + r->cols; x++) {
            assert_in_range(y, 0, rows - 1);
            assert_in_range(x, 0, cols - 1);
            assert_int_equal(map[y * cols + x], 0);
            map[y * cols + x] = 1;
        }
    }
}

static void mark_row(unsigned char *map, int cols, int rows, int y, int n)
{
    const struct rect r = {y, 0, n, cols};
    if (y >= 0) {
        mark(map, cols, rows, &r);
    }
}

static void check(const struct layout_wants *w, unsigned char *map)
{
    struct layout l;
    layout_make(w, &l);
    if (w->rows < LAYOUT_MIN_ROWS || w->cols < LAYOUT_MIN_COLS) {
        assert_true(l.tiny);
        return;
    }
    assert_false(l.tiny);
    memset(map, 0, (size_t)w->rows * (size_t)w->cols);
    mark_row(map, w->cols, w->rows, l.title, 1);
    mark_row(map, w->cols, w->rows, l.rule, 1);
    mark_row(map, w->cols, w->rows, l.status, 1);
    mark_row(map, w->cols, w->rows, l.hints, 1);
    mark_row(map, w->cols, w->rows, l.queued, l.queued_rows);
    mark_row(map, w->cols, w->rows, l.composer, l.composer_rows);
    mark(map, w->cols, w->rows, &l.list);
    mark(map, w->cols, w->rows, &l.panel);
    for (size_t i = 0; i < TILES_MAX; i++) {
        mark(map, w->cols, w->rows, &l.pane[i]);
    }
    assert_true(l.pane[w->cur].rows >= 3);
    assert_true(l.pane[w->cur].cols >= 24);
    assert_true(l.composer_rows >= 1);
    assert_int_equal(l.merged, l.rule < 0);
    assert_true(l.rule >= 0 || l.status < 0);
    assert_true(l.status >= 0 || l.hints < 0);
    if (l.panel.cols > 0 || l.list.cols > 0) {
        assert_true(w->cols >= LAYOUT_PANEL_FROM);
    }
}

static void every_size(void **state)
{
    (void)state;
    static const char *const ways[] = {"", "0|", "0-", "0|1-", "0|0|0|", "0|0-2-"};
    unsigned char *map = malloc((size_t)110 * 310);
    for (size_t k = 0; k < sizeof ways / sizeof *ways; k++) {
        const struct tiles t = tiles_of(ways[k]);
        const size_t n = tiles_count(&t);
        for (int rows = 1; rows <= 100; rows += rows < 30 ? 1 : 7) {
            for (int cols = 1; cols <= 300; cols += cols < 45 ? 1 : 5) {
                struct layout_wants w = {.rows = rows,
                                         .cols = cols,
                                         .tiles = &t,
                                         .cur = n - 1,
                                         .composer_rows = 1 + (rows + cols) % 12,
                                         .queued = (rows * cols) % 7,
                                         .panel = cols % 2 ? 40 : 0,
                                         .list = cols % 3 > 0};
                check(&w, map);
            }
        }
    }
    free(map);
}

static void what_gives_way(void **state)
{
    (void)state;
    const struct tiles one = tiles_of("");
    const struct tiles two = tiles_of("0|");
    struct layout l;
    struct layout_wants w = {
        .rows = 60, .cols = 200, .tiles = &two, .composer_rows = 1, .panel = 40, .list = true};
    layout_make(&w, &l);
    assert_int_equal(l.list.cols, 30);
    assert_int_equal(l.panel.cols, 40);
    assert_true(l.titles);
    assert_false(l.alone);
    w.cols = 179;
    layout_make(&w, &l);
    assert_int_equal(l.list.cols, 0);
    assert_int_equal(l.panel.cols, 40);
    w.cols = 109;
    layout_make(&w, &l);
    assert_int_equal(l.panel.cols, 0);
    assert_false(l.alone);
    w.cols = 40;
    w.cur = 1;
    layout_make(&w, &l);
    assert_true(l.alone);
    assert_int_equal(l.pane[0].rows, 0);
    assert_int_equal(l.pane[1].cols, 40);
    w = (struct layout_wants){.rows = 24, .cols = 80, .tiles = &one, .composer_rows = 1};
    layout_make(&w, &l);
    assert_int_equal(l.hints, 23);
    assert_int_equal(l.status, 22);
    assert_int_equal(l.title, 0);
    assert_false(l.titles);
    w.rows = 19;
    layout_make(&w, &l);
    assert_int_equal(l.hints, -1);
    assert_int_equal(l.status, 18);
    w.rows = 11;
    layout_make(&w, &l);
    assert_int_equal(l.status, -1);
    assert_int_equal(l.rule, 9);
    w.rows = 10;
    layout_make(&w, &l);
    assert_true(l.merged);
    assert_int_equal(l.composer, 9);
    assert_int_equal(l.body.rows, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_are_numbered_as_read),
        cmocka_unit_test(equal_splits_share_equally),
        cmocka_unit_test(removing_gives_the_room_back),
        cmocka_unit_test(every_size),
        cmocka_unit_test(what_gives_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
