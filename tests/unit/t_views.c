/* What the views of statistics, log and listener lay out: figures in words and bars, every
 * size, both sets of glyphs, foreign text. */
#include "config.h"
#include "tui/figures.h"

#include <locale.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tui/view_listen.h"
#include "tui/view_log.h"
#include "tui/view_stats.h"

#define SEC HIST_SEC_NS

static const struct theme utf8 = {.ascii = false, .utf8 = true};
static const struct theme ascii = {.ascii = true, .utf8 = true};

/* All rows, a line each; none is wider than width, and no byte could do harm. */
static void take(const struct text_rows *r, int width, struct buf *out)
{
    buf_truncate(out, 0);
    for (size_t i = 0; i < r->n_rows; i++) {
        const size_t from = r->rows[i].at;
        size_t n = text_row_end(r, i) - from;
        while (n > 0 && r->text.data[from + n - 1] == ' ') {
            n--; /* blanks may hang over the edge */
        }
        assert_true(text_cells(r->text.data + from, n) <= width);
        for (size_t k = 0; k < n; k++) {
            assert_true((unsigned char)r->text.data[from + k] >= 0x20);
        }
        buf_add(out, r->text.data + from, n);
        buf_addc(out, '\n');
    }
}

static void has(const struct buf *b, const char *what)
{
    if (!strstr(b->data ? b->data : "", what)) {
        print_error("%s\nhas no: %s\n", b->data ? b->data : "", what);
        fail();
    }
}

static void has_not(const struct buf *b, const char *what)
{
    if (strstr(b->data ? b->data : "", what)) {
        print_error("%s\nhas: %s\n", b->data, what);
        fail();
    }
}

static void test_figures(void **state)
{
    (void)state;
    char s[FIGURE_SIZE];
    struct buf b = BUF_INIT;
    figure_bytes(NAN, s);
    assert_string_equal(s, "-");
    figure_bytes(999, s);
    assert_string_equal(s, "999 B");
    figure_bytes(18 * 1024, s);
    assert_string_equal(s, "18 KB");
    figure_bytes(999.6 * 1024, s);
    assert_string_equal(s, "1.0 MB");
    figure_bytes(1.4 * 1073741824, s);
    assert_string_equal(s, "1.4 G");
    figure_seconds(0.354, s);
    assert_string_equal(s, "0.35 s");
    figure_seconds(9.06, s);
    assert_string_equal(s, "9.1 s");
    figure_seconds(119, s);
    assert_string_equal(s, "119 s");
    figure_seconds(180, s);
    assert_string_equal(s, "3 min");
    figure_row(HR_SPEED, 4.25, s);
    assert_string_equal(s, "4.2");
    figure_row(HR_ACCEPT, 0.6, s);
    assert_string_equal(s, "60%");
    figure_row(HR_KV, NAN, s);
    assert_string_equal(s, "-");
    /* a known zero is seen, what is not known is blank */
    figure_spark(&utf8, 0, 1, &b);
    figure_spark(&utf8, NAN, 1, &b);
    figure_spark(&utf8, 1, 1, &b);
    figure_spark(&utf8, 9, 1, &b);
    figure_spark(&ascii, 0.5, 1, &b);
    figure_spark(&utf8, 0, 0, &b);
    assert_string_equal(b.data, "▁ ██-▁");
    buf_truncate(&b, 0);
    figure_meter(&ascii, 8, 0.5, &b);
    assert_string_equal(b.data, "[####----]");
    buf_truncate(&b, 0);
    figure_meter(&ascii, 4, 7, &b);
    figure_meter(&ascii, 4, NAN, &b);
    assert_string_equal(b.data, "[####][----]");
    buf_free(&b);
}

static struct view_kv cache(void)
{
    struct view_kv v = {.pages = 100,
                        .pages_free = 60,
                        .pages_kept = 10,
                        .page_tokens = 64,
                        .page_bytes = 20 << 20,
                        .n = 2};
    v.seq[0] = (struct view_kv_seq){7, 1000, 20, true};
    v.seq[1] = (struct view_kv_seq){8, 320, 5, false};
    return v;
}

static void test_cache(void **state)
{
    (void)state;
    struct view_kv v = cache();
    struct view_kv none = {.pages = 0};
    struct buf b = BUF_INIT;
    char s[PART_SIZE];
    figure_kv_meter(&ascii, 20, &v, &b);
    assert_string_equal(b.data, "[AAAABkk?------------]");
    buf_truncate(&b, 0);
    figure_kv_meter(&ascii, 4, &none, &b);
    assert_string_equal(b.data, "[----]");
    part_kv(&v, s);
    assert_string_equal(s, "kv 0.8/2.0G 40%");
    part_kv(&none, s);
    assert_string_equal(s, "");
    v.page_bytes = 4096;
    part_kv(&v, s);
    assert_string_equal(s, "kv 0.2/0.4MB 40%");
    buf_free(&b);
}

static void test_parts(void **state)
{
    (void)state;
    char s[PART_SIZE];
    struct view_listener l = {.on = true, .live = 2};
    part_http(NULL, true, s);
    assert_string_equal(s, "http off");
    part_http(&l, true, s);
    assert_string_equal(s, "http 2 live");
    l.queued = 1;
    part_http(&l, true, s);
    assert_string_equal(s, "http 2 live 1 queued");
    part_http(&l, false, s);
    assert_string_equal(s, "http 3");
    l.paused = true;
    part_http(&l, true, s);
    assert_string_equal(s, "http 2 live 1 queued paused");
    struct view_chat c = {.saved = true};
    part_saved(&c, true, 3.7, true, s);
    assert_string_equal(s, "saved 3.0 s ago");
    part_saved(&c, true, 0.2, true, s);
    assert_string_equal(s, "saved now");
    part_saved(&c, false, 3.7, true, s); /* nobody would draw 4 */
    assert_string_equal(s, "saved");
    c.state_saved = true;
    part_saved(&c, false, -1, true, s);
    assert_string_equal(s, "saved with state");
    part_saved(&c, true, 3.7, false, s); /* on a narrow screen */
    assert_string_equal(s, "saved");
    c.saved = false;
    part_saved(&c, false, -1, true, s);
    assert_string_equal(s, "");
    c.output_tokens = 4;
    part_saved(&c, false, -1, true, s);
    assert_string_equal(s, "not saved");
    part_gpu(71, 340.4, s);
    assert_string_equal(s, "gpu 71C 340W");
    part_gpu(NAN, 340.4, s);
    assert_string_equal(s, "gpu 340W");
    part_gpu(NAN, NAN, s);
    assert_string_equal(s, "");
    part_log(0, "F9", s);
    assert_string_equal(s, "");
    part_log(2, "F9", s);
    assert_string_equal(s, "! 2 errors F9");
    part_log(1, "", s);
    assert_string_equal(s, "! 1 error");
}

/* ---- statistics ---- */

static struct hist *full_history(int64_t *now)
{
    struct hist *h = hist_create();
    struct hist_sample s;
    memset(&s, 0, sizeof s);
    for (int i = 0; i < HG_COUNT; i++) {
        s.gauge[i] = 10 * i;
    }
    *now = 1000000 * SEC;
    hist_take(h, *now, &s);
    for (int i = 0; i < HIST_SECONDS; i++) {
        *now += SEC;
        struct view_spec *v = &s.load.spec;
        v->rounds[VS_MTP] += 10;
        v->tokens[VS_MTP] += 25;
        v->drafted[VS_MTP][0] += 10;
        v->accepted[VS_MTP][0] += (uint32_t)(i % 10);
        v->verify_s += 0.5;
        hist_take(h, *now, &s);
    }
    return h;
}

static void test_stats_sizes(void **state)
{
    (void)state;
    struct stats_now t = {.wall = 1000000000, .busy = true};
    struct hist *h = full_history(&t.now);
    struct hist *empty = hist_create();
    struct buf b = BUF_INIT;
    hist_reset(h, t.now - 5 * SEC);
    for (int width = 1; width <= 300; width += width < 130 ? 1 : 17) {
        for (int rows = 1; rows <= 60; rows += rows < 40 ? 1 : 20) {
            for (int k = 0; k < 4; k++) {
                struct text_rows r = {0};
                struct stats_view v = {.span = k & 1 ? HS_MINUTES : HS_SECONDS, .top = 999};
                stats_move(&v, &t, width, k & 2 ? -3 : 0);
                stats_layout(k == 3 ? empty : h, &v, &t, "keys", k ? &utf8 : &ascii, width, rows,
                             &r);
                assert_int_equal(r.n_rows, rows);
                take(&r, width, &b);
                for (size_t i = 0; k == 0 && i < b.len; i++) {
                    assert_true((unsigned char)b.data[i] < 0x80);
                }
                text_rows_free(&r);
            }
        }
    }
    buf_free(&b);
    hist_free(h);
    hist_free(empty);
}

static void show(const struct hist *h, struct stats_view *v, const struct stats_now *t, int width,
                 int rows, struct buf *b)
{
    struct text_rows r = {0};
    stats_layout(h, v, t, "keys", &utf8, width, rows, &r);
    take(&r, width, b);
    text_rows_free(&r);
}

static void test_stats(void **state)
{
    (void)state;
    struct stats_now t = {.wall = 1000000000, .busy = true};
    struct hist *h = full_history(&t.now);
    struct stats_view v = {.span = HS_SECONDS};
    struct buf b = BUF_INIT;
    setenv("TZ", "UTC", 1);
    show(h, &v, &t, 120, 40, &b);
    has(&b, " STATS  10 min\n");
    has(&b, "now  average       p5      p95");
    has(&b, "       50       50       50       50\n");
    has(&b, "90%      45%       0%      90%\n"); /* now, average, p5, p95 of accept */
    has(&b, "-10 min");
    for (int row = 0; row < HR_COUNT; row++) {
        has(&b, hist_row_name((enum hist_row)row));
    }
    has(&b, " keys\n");
    t.busy = false;
    show(h, &v, &t, 120, 40, &b);
    has(&b, "last  average");
    /* the cursor: a column of 8 s; its value and its time */
    stats_move(&v, &t, 120, -1);
    show(h, &v, &t, 120, 40, &b);
    has(&b, "then  average");
    has(&b, "  at 01:4");
    has(&b, "^\n");
    const int64_t before = v.cursor;
    stats_move(&v, &t, 120, -1);
    assert_true(v.cursor < before);
    stats_move(&v, &t, 120, 5);
    assert_false(v.has_cursor);
    stats_move(&v, &t, 120, -10000); /* as far as the history goes */
    assert_true(v.has_cursor);
    show(h, &v, &t, 120, 40, &b);
    has(&b, "          ^\n");
    /* what time has left behind is no cursor any more */
    t.now += 3600 * SEC;
    show(h, &v, &t, 120, 40, &b);
    has(&b, "last  average");
    t.now -= 3600 * SEC;
    v.has_cursor = false;
    hist_reset(h, t.now - 9 * SEC);
    show(h, &v, &t, 120, 40, &b);
    has(&b, "averages since 01:46:31");
    has(&b, "|");
    /* 80x24: the rows that find no room can be scrolled to */
    show(h, &v, &t, 80, 18, &b);
    has(&b, " 12 of 22  ");
    has_not(&b, "host mem");
    v.top = 99;
    show(h, &v, &t, 80, 18, &b);
    has(&b, "host mem");
    has_not(&b, "tok/rnd");
    v.span = HS_MINUTES;
    v.top = 0;
    show(h, &v, &t, 40, 20, &b);
    has(&b, " STATS  24 h");
    has(&b, "-24 h");
    buf_free(&b);
    hist_free(h);
}

static void test_stats_marks(void **state)
{
    (void)state;
    struct hist *h = hist_create();
    struct hist_sample s;
    struct stats_now t = {.now = 60000 * SEC, .wall = 1000000000};
    struct stats_view v = {.span = HS_SECONDS};
    struct buf b = BUF_INIT;
    memset(&s, 0, sizeof s);
    hist_take(h, t.now, &s);
    s.load.spec.rounds[VS_MTP] = 3;
    s.load.spec.drafted[VS_MTP][0] = 3;
    hist_take(h, t.now - 100 * SEC, &s);
    s.load.restored = 1;
    hist_take(h, t.now, &s);
    show(h, &v, &t, 200, 40, &b);
    const char *marks = strstr(b.data, " marks");
    assert_non_null(marks);
    const char *end = strchr(marks, '\n');
    assert_int_equal(end[-1], 'r');
    const char *x = strchr(marks, 'x');
    assert_true(x && x < end);
    buf_free(&b);
    hist_free(h);
}

/* ---- log ---- */

static void log_text(struct logbook *l, const struct theme *th, int width, struct buf *b)
{
    struct text_rows r = {0};
    logbook_layout(l, th, width, &r);
    take(&r, width, b);
    text_rows_free(&r);
}

static void test_log_lines(void **state)
{
    (void)state;
    struct logbook *l = logbook_create();
    struct buf b = BUF_INIT;
    setenv("TZ", "UTC", 1);
    logbook_add(l, LK_NOTE, 3661, "a note", 6);
    assert_int_equal(logbook_unseen(l), 0);
    logbook_add(l, LK_BAD, 3662, "first\nsecond\n\n", 14);
    assert_int_equal(logbook_unseen(l), 2);
    logbook_output(l, 3663, "lib", 3);
    logbook_output(l, 3664, "rary says\r\nand", 14);
    logbook_output(l, 3665, " goes on\nx", 10);
    log_text(l, &utf8, 80, &b);
    assert_string_equal(b.data, " 01:01:01 note    a note\n"
                                " 01:01:02 error   first\n"
                                " 01:01:02 error   second\n"
                                " 01:01:03 output  library says\n"
                                " 01:01:04 output  and goes on\n"
                                " 01:01:05 output  x\n");
    assert_int_equal(logbook_unseen(l), 4);
    logbook_seen(l);
    assert_int_equal(logbook_unseen(l), 0);
    logbook_output(l, 3666, "\n", 1);
    log_text(l, &utf8, 80, &b);
    has(&b, "01:01:05 output  x\n");
    /* hostile bytes, in a narrow window */
    logbook_output(l, 3667, "\x1b[2J\x9b\xe2\x80\xae\tend\n", 12);
    for (int width = 2; width < 90; width++) {
        log_text(l, &utf8, width, &b);
        log_text(l, &ascii, width, &b);
    }
    log_text(l, &utf8, 80, &b);
    has(&b, "␛[2J");
    has(&b, "<RLO>");
    buf_free(&b);
    logbook_free(l);
}

static void test_log_bounds(void **state)
{
    (void)state;
    struct logbook *l = logbook_create();
    struct buf b = BUF_INIT;
    char s[40];
    for (int i = 0; i < 3 * LOGBOOK_LINES; i++) {
        logbook_add(l, LK_WARN, 0, s, (size_t)snprintf(s, sizeof s, "line %d", i));
    }
    log_text(l, &utf8, 80, &b);
    has(&b, " 2000 earlier lines are gone\n");
    has(&b, "warning line 2000\n");
    has(&b, "warning line 2999\n");
    has_not(&b, "line 1999\n");
    /* a megabyte without an end, in pieces of every size */
    char *big = malloc(1 << 20);
    memset(big, 'x', 1 << 20);
    for (size_t at = 0, n = 1; at < 1 << 20; at += n, n = n % 5000 + 1) {
        logbook_output(l, 0, big + at, at + n < 1 << 20 ? n : (1 << 20) - at);
    }
    struct text_rows r = {0};
    logbook_layout(l, &utf8, 200, &r);
    assert_true(r.text.len < 2 * LOGBOOK_BYTES);
    text_rows_free(&r);
    free(big);
    buf_free(&b);
    logbook_free(l);
}

static void test_log_view(void **state)
{
    (void)state;
    struct logbook *l = logbook_create();
    struct log_view v = {.width = 0};
    size_t first = 9;
    assert_int_equal(log_view_update(&v, l, &utf8, 80, 10, &first), 0);
    assert_int_equal(first, 0);
    for (int i = 0; i < 50; i++) {
        logbook_add(l, LK_WARN, 0, "x", 1);
    }
    assert_int_equal(log_view_update(&v, l, &utf8, 80, 10, &first), 10);
    assert_int_equal(first, 40);
    v.up = 15;
    assert_int_equal(log_view_update(&v, l, &utf8, 80, 10, &first), 10);
    assert_int_equal(first, 25);
    logbook_add(l, LK_WARN, 0, "x", 1); /* does not move what is read */
    (void)log_view_update(&v, l, &utf8, 80, 10, &first);
    assert_int_equal(first, 25);
    v.up = 1000;
    (void)log_view_update(&v, l, &utf8, 80, 10, &first);
    assert_int_equal(first, 0);
    v.up = -5;
    (void)log_view_update(&v, l, &utf8, 80, 10, &first);
    assert_int_equal(first, 41);
    (void)log_view_update(&v, l, &utf8, 80, 0, &first);
    log_view_fini(&v);
    logbook_free(l);
}

/* ---- listener ---- */

static bool body(void *ctx, uint64_t id, struct buf *out)
{
    (void)ctx;
    for (int i = 0; i < 40 && id == 1; i++) {
        buf_printf(out, "user: row %d \x1b[2J\n", i);
    }
    return id == 1;
}

static struct requests *some_requests(void)
{
    const struct requests_control control = {.body = body};
    struct requests *r = requests_create(&control);
    struct view_request q = view_request_unknown();
    requests_set_listener(
        r, &(struct view_listener){.on = true, .token = true, .address = "127.0.0.1:8080"});
    snprintf(q.client, sizeof q.client, "%s", "claude\x1b[2J-code");
    snprintf(q.endpoint, sizeof q.endpoint, "/v1/messages");
    q.input = 98400;
    q.cached = 98100;
    q.output = 212;
    q.tok_s = 96;
    q.tok_round = 4.6;
    q.state = RQ_DECODE;
    q.messages[VR_USER] = 12;
    q.bytes = 100000;
    q.tools = 14;
    q.temp = 0.6;
    q.stream = true;
    q.prefill_s = 1.2;
    requests_begin(r, &q, SEC);
    q = view_request_unknown();
    snprintf(q.client, sizeof q.client, "curl");
    q.state = RQ_QUEUED;
    requests_begin(r, &q, 3 * SEC);
    q.id = 2;
    q.state = RQ_FAILED;
    snprintf(q.result, sizeof q.result, "the client went away");
    requests_update(r, &q, 5 * SEC);
    return r;
}

static void listener(struct requests *r, struct listen_view *v, int width, int rows, struct buf *b)
{
    struct text_rows out = {0};
    listen_layout(r, v, 11 * SEC, "keys", &utf8, width, rows, &out);
    assert_int_equal(out.n_rows, rows);
    take(&out, width, b);
    text_rows_free(&out);
}

static void test_listener(void **state)
{
    (void)state;
    struct requests *r = some_requests();
    struct listen_view v = {.picked = 0};
    struct view_request q;
    struct buf b = BUF_INIT;
    listener(NULL, &v, 80, 18, &b);
    has(&b, " LISTENER  off\n");
    has(&b, "Nothing is served beside a conversation");
    listener(r, &v, 160, 18, &b);
    has(&b, "127.0.0.1:8080  on  token required  1 live  0 queued");
    has(&b,
        ">    1 claude␛[2J-cod /v1/messages         decode     98.4K/98.1K    212     96     4.6"
        "    10 s");
    has(&b, "     2 curl");
    has(&b, "failed             -/-      -      -       -   2.0 s the client went away");
    assert_true(listen_picked(r, &v, &q) && q.id == 1);
    listen_move(r, &v, 1);
    assert_true(listen_picked(r, &v, &q) && q.id == 2);
    listen_move(r, &v, 1);
    assert_true(listen_picked(r, &v, &q) && q.id == 2);
    listen_move(r, &v, -7);
    assert_true(listen_picked(r, &v, &q) && q.id == 1);
    v.detail = true;
    listener(r, &v, 100, 18, &b);
    has(&b, "0 system, 12 user, 0 model, 0 tool, 98 KB; 14 tools offered");
    has(&b, "temp 0.60, top-p own, top-k own, at most the window tokens, streamed");
    has(&b, "queued -, prefill 1.2 s, first token after -, decode -");
    has_not(&b, "row 0");
    v.body = true;
    listener(r, &v, 100, 24, &b);
    has(&b, "user: row 0 ␛[2J");
    listen_move(r, &v, 3);
    listener(r, &v, 100, 24, &b);
    has_not(&b, "row 0 ");
    has(&b, "row 3 ");
    v.picked = 2;
    listener(r, &v, 100, 24, &b);
    has(&b, "its text is not kept");
    for (int width = 1; width < 200; width++) {
        for (int rows = 1; rows < 30; rows++) {
            v.body = rows & 1;
            listener(r, &v, width, rows, &b);
            listener(NULL, &v, width, rows, &b);
        }
    }
    requests_free(r);
    buf_free(&b);
}

static void test_summary(void **state)
{
    (void)state;
    struct requests *r = some_requests();
    struct text_rows out = {0};
    struct buf b = BUF_INIT;
    listen_summary(r, 2 * SEC, "F3", &utf8, 36, 9, &out);
    take(&out, 36, &b);
    has(&b, " LISTENER 127.0.0.1:8080  1 live\n");
    has(&b, " 1 claude␛[2J- decode    212 t 1.0 s\n");
    has_not(&b, "curl");
    text_rows_truncate(&out, 0);
    listen_summary(NULL, 2 * SEC, "F3", &utf8, 36, 9, &out);
    take(&out, 36, &b);
    assert_string_equal(b.data, " LISTENER off   F3 opens\n");
    text_rows_free(&out);
    buf_free(&b);
    requests_free(r);
}

int main(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures),   cmocka_unit_test(test_cache),
        cmocka_unit_test(test_parts),     cmocka_unit_test(test_stats_sizes),
        cmocka_unit_test(test_stats),     cmocka_unit_test(test_stats_marks),
        cmocka_unit_test(test_log_lines), cmocka_unit_test(test_log_bounds),
        cmocka_unit_test(test_log_view),  cmocka_unit_test(test_listener),
        cmocka_unit_test(test_summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
