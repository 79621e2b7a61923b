/* What the panel says of the engine, the prompt, the cache and the listener, at every
 * size. */
#include "config.h"
#include "tui/panel.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SEC HIST_SEC_NS

static const struct theme theme = {.ascii = false, .utf8 = true};
static const struct theme ascii = {.ascii = true, .utf8 = true};

static struct hist_sample nothing(void)
{
    struct hist_sample s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < HG_COUNT; i++) {
        s.gauge[i] = NAN;
    }
    return s;
}

/* A second of mtp rounds with two drafts each, of which so many first and second ones
 * were used. */
static void second(struct hist_sample *s, unsigned rounds, unsigned first, unsigned next)
{
    struct view_spec *v = &s->load.spec;
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

static void layout(const struct panel *p, const struct theme *th, int width, int rows,
                   struct buf *out)
{
    struct text_rows r = {0};
    panel_layout(p, th, width, rows, &r);
    assert_true(r.n_rows <= (size_t)rows);
    buf_truncate(out, 0);
    buf_adds(out, "");
    for (size_t i = 0; i < r.n_rows; i++) {
        const size_t from = r.rows[i].at;
        const size_t n = text_row_end(&r, i) - from;
        assert_true(text_cells(r.text.data + from, n) <= width);
        buf_add(out, r.text.data + from, n);
        buf_addc(out, '\n');
    }
    text_rows_free(&r);
}

static void shows(const struct panel *p, const char *what, bool yes)
{
    struct buf all = BUF_INIT;
    layout(p, &theme, PANEL_WIDTH, 40, &all);
    if ((strstr(all.data, what) != NULL) != yes) {
        print_error("%s%s\n", all.data, what);
        fail();
    }
    buf_free(&all);
}

static const struct view_model model = {.ctx = 4096, .ready = true};

static void test_unknown(void **state)
{
    (void)state;
    struct view_chat c = {.busy = false};
    struct view_kv kv = {.pages = 0};
    struct hist *h = hist_create();
    const struct panel p = {
        .hist = h, .now = 5 * SEC, .chat = &c, .model = &model, .kv = &kv, .listener_key = "F3"};
    shows(&p, " SPEED  1 min              last   avg\n", true);
    shows(&p, "accept                       -     -\n", true);
    shows(&p, "pos     -\n", true);
    shows(&p, "round   -\n", true);
    shows(&p, "prefill -\n", true);
    shows(&p, "reused  -\n", true);
    shows(&p, "KV BUDGET  -\n", true);
    shows(&p, "LISTENER off   F3 opens\n", true);
    shows(&p, "0%", false);
    hist_free(h);
}

static void test_speed(void **state)
{
    (void)state;
    struct hist *h = hist_create();
    struct hist_sample s = nothing();
    struct view_chat c = {
        .prompt_tokens = 200, .cached_tokens = 150, .prefill_s = 0.5, .ttft_s = 0.35};
    struct view_kv kv = {.pages = 0};
    struct panel p = {.hist = h,
                      .now = 1000 * SEC,
                      .busy = true,
                      .chat = &c,
                      .model = &model,
                      .kv = &kv,
                      .listener_key = ""};
    hist_take(h, p.now, &s);
    second(&s, 10, 8, 4);
    hist_take(h, p.now += SEC, &s);
    shows(&p, " SPEED  1 min               now   avg\n", true);
    shows(&p, "60%   60%\n", true);
    shows(&p, "2.2   2.2\n", true);
    shows(&p, "27    27\n", true); /* 22 tokens in 0.8 s: 27.5 */
    shows(&p, "pos 1-2 % 80 40\n", true);
    shows(&p, "mtp     10 rounds  2.2 each  60%\n", true);
    shows(&p, "round   80.0 ms draft 20.0 verify 50.0\n", true);
    shows(&p, " 50 in 0.50 s\n", true);
    shows(&p, "reused  150 of 200 (75%)\n", true);
    shows(&p, "first   after 0.35 s\n", true);
    second(&s, 10, 2, 0);
    hist_take(h, p.now += SEC, &s);
    shows(&p, "10%   35%\n", true);
    /* at rest the last minute stays; at work time goes on */
    p.busy = false;
    p.now += 3600 * SEC;
    shows(&p, "10%   35%\n", true);
    shows(&p, "last   avg\n", true);
    p.busy = true;
    shows(&p, "accept                       -     -\n", true);
    /* a prompt on its way */
    p.prefilling = true;
    p.done = 300;
    p.total = 1200;
    p.prefill_s = 3;
    shows(&p, "25% 9.0 s left\n", true);
    p.prefill_s = 0.1; /* too early to say */
    shows(&p, "25%\n", true);
    hist_free(h);
}

/* What is older than a minute does not count. */
static void test_minute(void **state)
{
    (void)state;
    struct hist *h = hist_create();
    struct hist_sample s = nothing();
    struct view_chat c = {.busy = true};
    struct view_kv kv = {.pages = 0};
    struct panel p = {.hist = h,
                      .now = 1000 * SEC,
                      .busy = true,
                      .chat = &c,
                      .model = &model,
                      .kv = &kv,
                      .listener_key = ""};
    hist_take(h, p.now, &s);
    for (int i = 0; i < 120; i++) {
        second(&s, 10, i < 60 ? 0 : 10, i < 60 ? 0 : 10);
        hist_take(h, p.now += SEC, &s);
    }
    shows(&p, "100%  100%\n", true);
    shows(&p, "accept  ████████", true);
    hist_free(h);
}

static const char *name(void *ctx, int64_t conversation)
{
    (void)ctx;
    return conversation == 7 ? "parser\x1b[2J rewrite, the second try of it" : NULL;
}

static struct view_kv cache(void)
{
    struct view_kv v = {.pages = 100,
                        .pages_free = 60,
                        .pages_kept = 10,
                        .page_tokens = 64,
                        .page_bytes = 20 << 20,
                        .n = 3};
    v.seq[0] = (struct view_kv_seq){7, 41200, 20, true};
    v.seq[1] = (struct view_kv_seq){8, 320, 5, false};
    v.seq[2] = (struct view_kv_seq){0, 10, 1, true};
    return v;
}

static void test_cache(void **state)
{
    (void)state;
    struct hist *h = hist_create();
    struct view_chat c = {.busy = false};
    struct view_kv kv = cache();
    struct buf b = BUF_INIT;
    const struct panel p = {
        .hist = h, .chat = &c, .model = &model, .kv = &kv, .name = name, .listener_key = "F3"};
    shows(&p, "KV BUDGET                   0.8 / 2.0 G\n", true);
    shows(&p, "▕AAAAAABCkkk", true);
    shows(&p, "▏40%\n", true);
    shows(&p, "A parser␛[2J rewrite,", true);
    shows(&p, "41.2K  400 MB *\n", true);
    shows(&p, "B conversation 8", true);
    shows(&p, "C a request", true);
    shows(&p, "k kept to be reused", true);
    panel_kv_words(&p, &theme, &b);
    assert_non_null(strstr(b.data, "cache 0.8/2.0G, 40% in use; A parser␛[2J rewrite, the"));
    assert_non_null(strstr(b.data, "; B conversation 8: 320 tokens, 100 MB; C a request: 10 "
                                   "tokens, 20 MB, running; kept to be reused: 200 MB"));
    buf_truncate(&b, 0);
    /* one conversation takes the row that there is, not words about it */
    kv.n = 1;
    kv.pages_kept = 0;
    for (int rows = 6; rows < 30; rows++) {
        struct text_rows r = {0};
        panel_layout(&p, &theme, 40, rows, &r);
        buf_truncate(&b, 0);
        buf_add(&b, r.text.data, r.text.len);
        buf_addc(&b, 0);
        assert_null(strstr(b.data, "and 1 more"));
        text_rows_free(&r);
    }
    buf_truncate(&b, 0);
    kv = cache();
    kv.n = VIEW_KV_SEQS;
    kv.more = 3;
    panel_kv_words(&p, &theme, &b);
    assert_non_null(strstr(b.data, "; 21 more"));
    shows(&p, "and 21 more\n", true);
    buf_free(&b);
    hist_free(h);
}

static void test_sizes(void **state)
{
    (void)state;
    struct hist *h = hist_create();
    struct hist_sample s = nothing();
    struct view_chat c = {.prompt_tokens = 200, .cached_tokens = 150, .prefill_s = 0.5};
    struct view_kv kv = cache();
    struct buf b = BUF_INIT;
    struct panel p = {.hist = h,
                      .now = 1000 * SEC,
                      .busy = true,
                      .chat = &c,
                      .model = &model,
                      .kv = &kv,
                      .name = name,
                      .listener_key = "F3"};
    hist_take(h, p.now, &s);
    second(&s, 10, 8, 4);
    hist_take(h, p.now += SEC, &s);
    kv.n = VIEW_KV_SEQS;
    for (int width = 2; width < 150; width++) {
        for (int rows = 0; rows < 45; rows++) {
            layout(&p, rows % 2 ? &theme : &ascii, width, rows, &b);
        }
    }
    layout(&p, &ascii, 60, 40, &b);
    assert_non_null(strstr(b.data, "SPEED  5 min"));
    for (size_t i = 0; i < b.len; i++) {
        assert_true((unsigned char)b.data[i] < 0x80);
    }
    buf_free(&b);
    hist_free(h);
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown), cmocka_unit_test(test_speed), cmocka_unit_test(test_minute),
        cmocka_unit_test(test_cache),   cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
