/* The table of requests. Whatever names a client sent is foreign text: it goes through the
 * filter before it is measured, cut or shown. */
#include "config.h"
#include "tui/view_listen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tui/figures.h"

#define MOST       (REQUESTS_LIVE + REQUESTS_ENDED)
#define BODY_SHOWN (1 << 20) /* bytes */

enum column {
    C_ID,
    C_CLIENT,
    C_STATE,
    C_OUT,
    C_SPEED,
    C_CACHED,
    C_AGE,
    C_ENDPOINT,
    C_ROUND,
    C_WHY
};
#define COLUMNS 10

/* In the order of the screen; those of the largest `least` give way first. */
static const struct {
    enum column what;
    const char *head;
    int cells;
    int least; /* columns of the screen */
} table[COLUMNS] = {
    {C_ID, "id", 5, 0},        {C_CLIENT, "client", 14, 0},     {C_ENDPOINT, "endpoint", 20, 100},
    {C_STATE, "state", 8, 0},  {C_CACHED, "in/cached", 13, 60}, {C_OUT, "out", 6, 0},
    {C_SPEED, "t/s", 6, 50},   {C_ROUND, "tok/rnd", 7, 110},    {C_AGE, "age", 7, 70},
    {C_WHY, "result", 30, 80},
};

static bool is_right(enum column c)
{
    return c == C_ID || c == C_CACHED || c == C_OUT || c == C_SPEED || c == C_ROUND || c == C_AGE;
}

static void count_or_dash(int n, char out[FIGURE_SIZE])
{
    figure_count(n < 0 ? NAN : n, out);
}

static void cell_text(const struct view_request *q, enum column c, int64_t now, char *out,
                      size_t size)
{
    char a[FIGURE_SIZE];
    char b[FIGURE_SIZE];
    switch (c) {
    case C_ID:
        snprintf(out, size, "%llu", (unsigned long long)q->id);
        return;
    case C_CLIENT:
        snprintf(out, size, "%s", q->client);
        return;
    case C_ENDPOINT:
        snprintf(out, size, "%s", q->endpoint);
        return;
    case C_STATE:
        snprintf(out, size, "%s", view_request_word(q->state));
        return;
    case C_CACHED:
        count_or_dash(q->input, a);
        count_or_dash(q->cached, b);
        snprintf(out, size, "%s/%s", a, b);
        return;
    case C_OUT:
        count_or_dash(q->output, a);
        break;
    case C_SPEED:
        figure_count(q->tok_s, a);
        break;
    case C_ROUND:
        figure_one(q->tok_round, a);
        break;
    case C_AGE:
        figure_seconds(clock_seconds((q->ended ? q->ended : now) - q->begun), a);
        break;
    case C_WHY:
        snprintf(out, size, "%s", q->result);
        return;
    }
    snprintf(out, size, "%s", a);
}

/* Appends foreign text, made harmless, in so many cells. */
static void add_cell(struct buf *out, const struct theme *th, const char *s, int cells, bool right)
{
    struct buf b = BUF_INIT;
    text_filter(s, strlen(s), th->ascii || !th->utf8, NULL, &b);
    char *nl = b.len ? memchr(b.data, '\n', b.len) : NULL;
    buf_truncate(&b, nl ? (size_t)(nl - b.data) : b.len);
    buf_truncate(&b, b.len ? text_fit(b.data, b.len, cells) : 0);
    const int pad = cells - (b.len ? text_cells(b.data, b.len) : 0);
    buf_printf(out, "%*s", right ? pad : 0, "");
    buf_add(out, b.data ? b.data : "", b.len);
    buf_printf(out, "%*s", right ? 0 : pad, "");
    buf_free(&b);
}

/* A row of the table; q NULL: its head. */
static void table_row(const struct view_request *q, int64_t now, const struct theme *th, int width,
                      struct buf *out)
{
    for (int i = 0; i < COLUMNS; i++) {
        char s[128];
        if (width < table[i].least) {
            continue;
        }
        if (q) {
            cell_text(q, table[i].what, now, s, sizeof s);
        } else {
            snprintf(s, sizeof s, "%s", table[i].head);
        }
        add_cell(out, th, s, table[i].cells, is_right(table[i].what));
        buf_addc(out, ' ');
    }
}

static void put(struct text_rows *out, uint16_t style, const char *s, int width)
{
    text_rows_span(out, style, s, text_fit(s, strlen(s), width));
    text_rows_end(out, true);
}

static void title(const struct view_listener *l, bool there, char out[160])
{
    if (!there) {
        snprintf(out, 160, " LISTENER  off");
    } else if (!l->on) {
        snprintf(out, 160, " LISTENER  off  %.63s", l->address);
    } else {
        snprintf(out, 160, " LISTENER  %.63s  on%s  %s  %d live  %d queued", l->address,
                 l->paused ? ", paused" : "", l->token ? "token required" : "no token", l->live,
                 l->queued);
    }
}

static size_t index_of(const struct view_request *list, size_t n, uint64_t id)
{
    for (size_t i = 0; i < n; i++) {
        if (list[i].id == id) {
            return i;
        }
    }
    return 0;
}

void listen_move(struct requests *r, struct listen_view *v, int by)
{
    if (v->body) {
        v->body_top += by;
        return;
    }
    struct view_request *list = mem_array(MOST, sizeof *list);
    const size_t n = r ? requests_list(r, list, MOST) : 0;
    if (n > 0) {
        const int64_t to = (int64_t)index_of(list, n, v->picked) + by;
        v->picked = list[to < 0 ? 0 : to >= (int64_t)n ? n - 1 : (size_t)to].id;
    }
    free(list);
}

bool listen_picked(struct requests *r, const struct listen_view *v, struct view_request *out)
{
    if (!r) {
        return false;
    }
    if (v->picked && requests_get(r, v->picked, out)) {
        return true;
    }
    return requests_list(r, out, 1) == 1;
}

/* ---- one request ---- */

static void sampling(const struct view_request *q, char out[160])
{
    char t[16] = "own";
    char p[16] = "own";
    char k[16] = "own";
    char m[16] = "the window";
    if (!isnan(q->temp)) {
        snprintf(t, sizeof t, "%.2f", q->temp);
    }
    if (!isnan(q->top_p)) {
        snprintf(p, sizeof p, "%.2f", q->top_p);
    }
    if (q->top_k >= 0) {
        snprintf(k, sizeof k, "%d", q->top_k);
    }
    if (q->max_tokens >= 0) {
        snprintf(m, sizeof m, "%d", q->max_tokens);
    }
    snprintf(out, 160, "  sampling  temp %s, top-p %s, top-k %s, at most %s tokens%s", t, p, k, m,
             q->stream ? ", streamed" : "");
}

static void detail_rows(const struct view_request *q, const struct theme *th, int width,
                        struct text_rows *out)
{
    char s[256];
    char a[4][FIGURE_SIZE];
    struct buf b = BUF_INIT;
    snprintf(s, sizeof s, " request %llu", (unsigned long long)q->id);
    put(out, R_STRONG, s, width);
    figure_bytes((double)q->bytes, a[0]);
    snprintf(s, sizeof s, "  messages  %d system, %d user, %d model, %d tool, %s; %d tools offered",
             q->messages[VR_SYSTEM], q->messages[VR_USER], q->messages[VR_MODEL],
             q->messages[VR_TOOL], a[0], q->tools);
    put(out, R_TEXT, s, width);
    sampling(q, s);
    put(out, R_TEXT, s, width);
    figure_seconds(q->queue_s, a[0]);
    figure_seconds(q->prefill_s, a[1]);
    figure_seconds(q->first_s, a[2]);
    figure_seconds(q->decode_s, a[3]);
    snprintf(s, sizeof s, "  engine    queued %s, prefill %s, first token after %s, decode %s",
             a[0], a[1], a[2], a[3]);
    put(out, R_TEXT, s, width);
    buf_adds(&b, "  result    ");
    add_cell(&b, th, q->result[0] ? q->result : "-", width > 13 ? width - 13 : 1, false);
    put(out, q->state == RQ_FAILED ? R_BAD : R_TEXT, b.data, width);
    buf_free(&b);
}

/* The text of a request from a row on; *top is kept within it. */
static void body_rows(struct requests *r, uint64_t id, const struct theme *th, int width, int rows,
                      int *top, struct text_rows *out)
{
    struct buf b = BUF_INIT;
    struct text_flow f = {0};
    struct text_rows all = {0};
    struct text_prefix pre = {0};
    const bool kept = requests_body(r, id, &b);
    const bool cut = b.len > BODY_SHOWN;
    text_prefix_push(&pre, R_DIM, "  ");
    text_flow_add(&f, kept ? R_TEXT : R_WARN,
                  kept ? (b.data ? b.data : "") : "its text is not kept",
                  kept ? (cut ? BODY_SHOWN : b.len) : 20, th->ascii || !th->utf8);
    if (cut) {
        text_flow_add(&f, R_WARN, "\n(the rest is longer than is shown)", 35, false);
    }
    const struct text_wrap w = {.width = width, .mode = WRAP_WORD, .first = &pre, .next = &pre};
    text_wrap(&all, &f, &w);
    const int last = (int)all.n_rows - rows > 0 ? (int)all.n_rows - rows : 0;
    *top = *top < 0 ? 0 : *top > last ? last : *top;
    for (int i = 0; i < rows; i++) {
        if (*top + i < (int)all.n_rows) {
            text_rows_copy(out, &all, (size_t)(*top + i));
        }
        text_rows_end(out, true);
    }
    text_rows_free(&all);
    text_flow_free(&f);
    buf_free(&b);
}

/* ---- the whole ---- */

static void list_rows(const struct view_request *list, size_t n, const struct listen_view *v,
                      int64_t now, const struct theme *th, int width, int rows,
                      struct text_rows *out)
{
    const int at = (int)index_of(list, n, v->picked);
    int top = at - rows / 2;
    top = top + rows > (int)n ? (int)n - rows : top;
    top = top < 0 ? 0 : top;
    for (int i = 0; i < rows; i++) {
        if (top + i < (int)n) {
            const struct view_request *q = &list[top + i];
            struct buf b = BUF_INIT;
            const bool picked = top + i == at;
            buf_adds(&b, picked ? ">" : " ");
            table_row(q, now, th, width, &b);
            put(out,
                picked                  ? R_SELECT
                : q->state == RQ_FAILED ? R_BAD
                : q->ended              ? R_DIM
                                        : R_TEXT,
                b.data, width);
            buf_free(&b);
        } else {
            text_rows_end(out, true);
        }
    }
}

static void empty_rows(bool there, bool on, int width, int rows, struct text_rows *out)
{
    const char *say =
        !there ? " Nothing is served beside a conversation; quasar serve answers other programs."
        : on   ? " No request has come yet."
               : " Nothing is served.";
    for (int i = 0; i < rows; i++) {
        put(out, R_TEXT, i == 0 ? say : "", width);
    }
}

void listen_layout(struct requests *r, struct listen_view *v, int64_t now, const char *keys,
                   const struct theme *th, int width, int rows, struct text_rows *out)
{
    struct view_listener l = {.on = false};
    struct view_request *list = mem_array(MOST, sizeof *list);
    size_t n = 0;
    char s[256];
    if (r) {
        requests_look(r);
        requests_listener(r, &l);
        n = requests_list(r, list, MOST);
    }
    const bool has_foot = rows >= 4;
    const bool has_head = rows >= 3 && n > 0;
    const bool has_title = rows >= 2;
    int room = rows - has_foot - has_head - has_title;
    if (has_title) {
        title(&l, r != NULL, s);
        put(out, R_STRONG, s, width);
    }
    const struct view_request *q = n > 0 ? &list[index_of(list, n, v->picked)] : NULL;
    /* the details take what the list can spare */
    const int detail = q && v->detail && room >= 8 ? (v->body ? room - 3 : 5) : 0;
    if (has_head) {
        struct buf b = BUF_INIT;
        buf_adds(&b, " ");
        table_row(NULL, now, th, width, &b);
        put(out, R_DIM, b.data, width);
        buf_free(&b);
    }
    room -= detail;
    if (q) {
        list_rows(list, n, v, now, th, width, room, out);
    } else {
        empty_rows(r != NULL, l.on, width, room, out);
    }
    if (detail > 0) {
        detail_rows(q, th, width, out);
        if (v->body && detail > 5) {
            body_rows(r, q->id, th, width, detail - 5, &v->body_top, out);
        }
    }
    if (has_foot) {
        snprintf(s, sizeof s, " %s", keys);
        put(out, R_STRONG, s, width);
    }
    free(list);
}

void listen_summary(struct requests *r, int64_t now, const char *key, const struct theme *th,
                    int width, int rows, struct text_rows *out)
{
    struct view_listener l = {.on = false};
    char s[160];
    if (r) {
        requests_listener(r, &l);
    }
    if (rows < 1) {
        return;
    }
    if (!l.on) {
        snprintf(s, sizeof s, " LISTENER off%s%s%s", key[0] ? "   " : "", key,
                 key[0] ? " opens" : "");
        put(out, R_STRONG, s, width);
        return;
    }
    snprintf(s, sizeof s, " LISTENER %.63s  %d live%s", l.address, l.live + l.queued,
             l.paused ? ", paused" : "");
    put(out, R_STRONG, s, width);
    struct view_request *list = mem_array(MOST, sizeof *list);
    const size_t n = requests_list(r, list, MOST);
    for (size_t i = 0; i < n && (int)i < rows - 1 && !list[i].ended; i++) {
        struct buf b = BUF_INIT;
        char age[FIGURE_SIZE];
        char tokens[FIGURE_SIZE];
        count_or_dash(list[i].output, tokens);
        figure_seconds(clock_seconds(now - list[i].begun), age);
        buf_printf(&b, " %llu ", (unsigned long long)list[i].id);
        add_cell(&b, th, list[i].client, 11, false);
        buf_printf(&b, " %-7s %5s t %s", view_request_word(list[i].state), tokens, age);
        put(out, R_TEXT, b.data, width);
        buf_free(&b);
    }
    free(list);
}
