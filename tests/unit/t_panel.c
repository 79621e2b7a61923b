/* Slices of the engine's counters, and what the panel says of them. */
#include "config.h"
#include "tui/panel.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct theme theme = {.ascii = false, .utf8 = true};

static void shows(const struct gauges *g, const struct view_chat *chat, const char *what, bool yes)
{
    struct view_model m = {.ctx = 4096};
    struct text_rows r = {0};
    struct buf all = BUF_INIT;
    panel_layout(g, chat, &m, &theme, PANEL_WIDTH, &r);
    for (size_t i = 0; i < r.n_rows; i++) {
        const size_t from = r.rows[i].at;
        const size_t n = text_row_end(&r, i) - from;
        assert_true(text_cells(r.text.data + from, n) <= PANEL_WIDTH);
        buf_add(&all, r.text.data + from, n);
        buf_addc(&all, '\n');
    }
    if ((strstr(all.data, what) != NULL) != yes) {
        print_error("%s%s\n", all.data, what);
        fail();
    }
    buf_free(&all);
    text_rows_free(&r);
}

/* A second of mtp rounds with two drafts each, of which so many first and second ones
 * were accepted. */
static void second(struct view_spec *v, unsigned rounds, unsigned first, unsigned next)
{
    v->rounds[VS_MTP] += rounds;
    v->tokens[VS_MTP] += rounds + first + next;
    v->drafted[VS_MTP][0] += rounds;
    v->drafted[VS_MTP][1] += rounds;
    v->accepted[VS_MTP][0] += first;
    v->accepted[VS_MTP][1] += next;
    v->draft_s += 0.2;
    v->verify_s += 0.5;
    v->host_s += 0.1;
}

static void test_unknown(void **state)
{
    (void)state;
    struct gauges g = {.n = 0};
    struct view_chat c = {.busy = false};
    shows(&g, &c, "accept                     -       -", true);
    shows(&g, &c, "places   -", true);
    shows(&g, &c, "reused   -", true);
    shows(&g, &c, "0%", false);
}

static void test_slices(void **state)
{
    (void)state;
    struct gauges g = {.n = 0};
    struct view_chat c = {.prompt_tokens = 200, .cached_tokens = 150, .prefill_s = 0.5};
    struct view_spec v;
    memset(&v, 0, sizeof v);
    int64_t now = 5;
    gauges_take(&g, now, &v, false);
    gauges_take(&g, now += 9 * GAUGE_SLICE_NS, &v, false); /* a prompt: no round */
    assert_int_equal(g.n, 0);
    second(&v, 10, 8, 4);
    gauges_take(&g, now + GAUGE_SLICE_NS / 2, &v, false); /* not a second yet */
    assert_int_equal(g.n, 0);
    gauges_take(&g, now += GAUGE_SLICE_NS, &v, false);
    assert_int_equal(g.n, 1);
    shows(&g, &c, "60%     60%", true);
    shows(&g, &c, "2.2     2.2", true);
    shows(&g, &c, "28      28", true); /* 22 tokens in 0.8 s */
    shows(&g, &c, "place 1-2 % 80 40", true);
    shows(&g, &c, "mtp      10 rounds  2.2 each  60%", true);
    shows(&g, &c, "ms draft 20.0 model 50.0 host 10.0", true);
    shows(&g, &c, "prefill  100 t/s in 0.50 s", true);
    shows(&g, &c, "reused   150 of 200 (75%)", true);
    second(&v, 10, 2, 0);
    gauges_take(&g, now + 1, &v, true); /* the end of the answer */
    assert_int_equal(g.n, 2);
    shows(&g, &c, "10%     35%", true);
    gauges_take(&g, now + 99 * GAUGE_SLICE_NS, &v, true);
    assert_int_equal(g.n, 2);
}

/* What is older than a minute of decoding is gone. */
static void test_minute(void **state)
{
    (void)state;
    struct gauges g = {.n = 0};
    struct view_chat c = {.busy = true};
    struct view_spec v;
    memset(&v, 0, sizeof v);
    int64_t now = 1;
    gauges_take(&g, now, &v, false);
    for (int i = 0; i < 2 * GAUGE_SLICES; i++) {
        second(&v, 10, i < GAUGE_SLICES ? 0 : 10, i < GAUGE_SLICES ? 0 : 10);
        gauges_take(&g, now += GAUGE_SLICE_NS, &v, false);
    }
    assert_int_equal(g.n, GAUGE_SLICES);
    shows(&g, &c, "100%    100%", true);
    shows(&g, &c, "████████████", true);
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_slices),
        cmocka_unit_test(test_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
