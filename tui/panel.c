/* Lays out the figures beside the transcript. After the engine has come to rest they stay
 * as they were: the minute is the last one in which it worked. */
#include "config.h"
#include "tui/panel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tui/figures.h"
#include "tui/view_listen.h"

#define MOST_SPARKS 60
#define MOST_NAMES  6 /* sequences that are named one by one */

static void line(struct text_rows *out, uint16_t style, const char *s, int width)
{
    text_rows_puts(out, R_TEXT, " ");
    text_rows_span(out, style, s, text_fit(s, strlen(s), width > 1 ? width - 1 : 0));
    text_rows_end(out, true);
}

static void rule(struct text_rows *out, const struct theme *th, int width)
{
    text_rows_fill(out, R_BORDER | TEXT_DECOR, theme_glyph(th, G_HLINE), width);
    text_rows_end(out, true);
}

/* What the columns of sparks stand for. */
struct span {
    int64_t end; /* of the last one */
    int sparks;
    int each; /* seconds of one */
};

static struct span span_of(const struct panel *p, int width)
{
    struct span s = {.end = p->busy ? p->now : hist_latest(p->hist)};
    const int room = width - 1 - 8 - 7 - 6;
    s.sparks = room < 4 ? 4 : room > MOST_SPARKS ? MOST_SPARKS : room;
    /* a minute; five where they have room */
    const int seconds = width >= 50 ? 300 : 60;
    s.each = (seconds + s.sparks - 1) / s.sparks;
    s.sparks = seconds / s.each;
    return s;
}

static bool sum(const struct panel *p, const struct span *s, int i, struct hist_slice *out)
{
    return hist_sum(p->hist, HS_SECONDS, s->end, i * s->each, (i + 1) * s->each, 0, out);
}

static void spark_row(const struct panel *p, const struct span *span, enum hist_row row,
                      const struct theme *th, int width, struct text_rows *out)
{
    double v[MOST_SPARKS];
    double top = figure_full(row);
    struct hist_slice s;
    for (int i = 0; i < span->sparks; i++) {
        v[i] = sum(p, span, i, &s) ? hist_value(&s, row) : NAN;
        top = v[i] > top ? v[i] : top;
    }
    struct buf b = BUF_INIT;
    char number[FIGURE_SIZE];
    struct hist_stats st;
    buf_printf(&b, "%-7s ", hist_row_name(row));
    for (int i = span->sparks - 1; i >= 0; i--) {
        figure_spark(th, v[i], top, &b);
    }
    hist_stats(p->hist, HS_SECONDS, span->end, span->sparks * span->each, -1, row, &st);
    figure_row(row, st.now, number);
    buf_printf(&b, "%7s", number);
    figure_row(row, st.average, number);
    buf_printf(&b, "%6s", number);
    line(out, R_TEXT, b.data, width);
    buf_free(&b);
}

static void places(const struct hist_slice *s, int width, struct text_rows *out)
{
    char text[96];
    char x[FIGURE_SIZE];
    int n = 0;
    while (n < HIST_PLACES && s->place_drafted[n] > 0) {
        n++;
    }
    if (n == 0) {
        line(out, R_TEXT, "pos     -", width);
        return;
    }
    int at = n == 1 ? snprintf(text, sizeof text, "pos 1 %%")
                    : snprintf(text, sizeof text, "pos 1-%d %%", n);
    for (int i = 0; i < n; i++) {
        figure_count(100 * hist_value(s, (enum hist_row)(HR_PLACE1 + i)), x);
        at += snprintf(text + at, sizeof text - (size_t)at, " %s", x);
    }
    line(out, R_TEXT, text, width);
}

static void drafters(const struct hist_slice *s, int width, struct text_rows *out)
{
    static const char *const names[VS_COUNT] = {"plain", "mtp", "suffix"};
    char text[96];
    char rounds[FIGURE_SIZE];
    char share[FIGURE_SIZE];
    for (int k = 0; k < VS_COUNT; k++) {
        if (s->rounds[k] == 0) {
            continue;
        }
        figure_count(s->rounds[k], rounds);
        snprintf(text, sizeof text, "%-7s %s round%s  %.1f each", names[k], rounds,
                 s->rounds[k] == 1 ? "" : "s", (double)s->tokens[k] / s->rounds[k]);
        if (s->drafted[k] > 0) {
            figure_percent((double)s->accepted[k] / s->drafted[k], share);
            const size_t n = strlen(text);
            snprintf(text + n, sizeof text - n, "  %s", share);
        }
        line(out, R_TEXT, text, width);
    }
}

static void round_row(const struct hist_slice *s, int width, struct text_rows *out)
{
    char text[96];
    const double draft = hist_value(s, HR_DRAFT_MS);
    const double verify = hist_value(s, HR_VERIFY_MS);
    const double host = hist_value(s, HR_HOST_MS);
    if (isnan(verify)) {
        line(out, R_TEXT, "round   -", width);
        return;
    }
    const double ms[] = {draft, verify, host};
    static const char *const names[] = {"draft", "verify", "host"};
    int n = snprintf(text, sizeof text, "round   %.1f ms", draft + verify + host);
    for (int i = 0; i < 3; i++) { /* as many as there is room for */
        char part[32];
        const int k = snprintf(part, sizeof part, " %s %.1f", names[i], ms[i]);
        if (n + k + 1 <= width && n + k < (int)sizeof text) {
            memcpy(text + n, part, (size_t)k + 1);
            n += k;
        }
    }
    line(out, R_TEXT, text, width);
}

static void prefill_row(const struct panel *p, const struct theme *th, int width,
                        struct text_rows *out)
{
    struct buf b = BUF_INIT;
    char rate[FIGURE_SIZE];
    char left[FIGURE_SIZE];
    const int fresh = p->chat->prompt_tokens - p->chat->cached_tokens;
    buf_adds(&b, "prefill ");
    if (p->prefilling && p->total > 0) {
        const double share = (double)p->done / p->total;
        figure_meter(th, 8, share, &b);
        buf_printf(&b, " %.0f%%", share * 100);
        if (p->prefill_s > 0.2 && p->done > 0) {
            const double speed = p->done / p->prefill_s;
            figure_count(speed, rate);
            figure_seconds((p->total - p->done) / speed, left);
            buf_printf(&b, " %s left", left);
            if (text_cells(b.data, b.len) + (int)strlen(rate) + 8 <= width) {
                buf_printf(&b, ", %s t/s", rate);
            }
        }
    } else if (fresh > 0 && p->chat->prefill_s > 0) {
        /* what this prompt took, waits between its parts with it; the statistics have the speed */
        figure_count(fresh, rate);
        figure_seconds(p->chat->prefill_s, left);
        figure_meter(th, 8, 1, &b);
        buf_printf(&b, " %s in %s", rate, left);
    } else {
        buf_adds(&b, "-");
    }
    line(out, R_TEXT, b.data, width);
    buf_free(&b);
}

static void reused_row(const struct view_chat *c, int width, struct text_rows *out)
{
    char text[96] = "reused  -";
    char a[FIGURE_SIZE];
    char b[FIGURE_SIZE];
    if (c->prompt_tokens > 0) {
        figure_count(c->cached_tokens, a);
        figure_count(c->prompt_tokens, b);
        snprintf(text, sizeof text, "reused  %s of %s (%.0f%%)", a, b,
                 100.0 * c->cached_tokens / c->prompt_tokens);
    }
    line(out, R_TEXT, text, width);
    if (c->ttft_s > 0) {
        figure_seconds(c->ttft_s, a);
        snprintf(text, sizeof text, "first   after %s", a);
        line(out, R_TEXT, text, width);
    }
}

/* ---- the cache ---- */

/* Who has a sequence, made harmless. */
static void add_owner(const struct panel *p, const struct view_kv_seq *s, const struct theme *th,
                      int cells, struct buf *out)
{
    char number[40];
    const char *name = s->tag != 0 && p->name ? p->name(p->name_ctx, s->tag) : NULL;
    struct buf b = BUF_INIT;
    if (!name) {
        snprintf(number, sizeof number, "conversation %lld", (long long)s->tag);
        name = s->tag > 0 ? number : s->busy ? "a request" : "a new conversation";
    }
    const size_t n = strcspn(name, "\n");
    text_filter(name, n, th->ascii || !th->utf8, NULL, &b);
    if (b.len) {
        const size_t fit = text_fit(b.data, b.len, cells);
        buf_add(out, b.data, fit);
        buf_printf(out, "%*s", cells - text_cells(b.data, fit), "");
    }
    buf_free(&b);
}

static void kv_rows(const struct panel *p, const struct theme *th, int width, int rows,
                    struct text_rows *out)
{
    const struct view_kv *v = p->kv;
    struct buf b = BUF_INIT;
    char tokens[FIGURE_SIZE];
    char bytes[FIGURE_SIZE];
    char both[32];
    if (v->pages <= 0) {
        line(out, R_STRONG, "KV BUDGET  -", width);
        return;
    }
    figure_kv_both(v, " ", both);
    buf_printf(&b, "KV BUDGET%*s", width - 1 - 9, both);
    line(out, R_STRONG, b.data, width);
    buf_truncate(&b, 0);
    const double share = (double)(v->pages - v->pages_free) / v->pages;
    figure_kv_meter(th, width - 10 > 4 ? width - 10 : 4, v, &b);
    buf_printf(&b, "%.0f%%", share * 100);
    line(out, share >= 0.95 ? R_BAD : share >= 0.75 ? R_WARN : R_TEXT, b.data, width);
    const int room = rows - 2 - (v->pages_kept > 0);
    const bool all = v->more == 0 && v->n <= room && v->n <= MOST_NAMES; /* no row for the rest */
    const int shown = all ? v->n : room - 1 < MOST_NAMES ? room - 1 : MOST_NAMES;
    for (int i = 0; i < shown && i < v->n; i++) {
        buf_truncate(&b, 0);
        buf_printf(&b, "%c ", figure_kv_letter(i));
        add_owner(p, &v->seq[i], th, width - 21 > 6 ? width - 21 : 6, &b);
        figure_count(v->seq[i].tokens, tokens);
        figure_bytes((double)v->page_bytes * v->seq[i].pages, bytes);
        buf_printf(&b, " %6s %7s%s", tokens, bytes, v->seq[i].busy ? " *" : "");
        line(out, R_TEXT, b.data, width);
    }
    const int more = v->n + v->more - (shown > 0 ? shown : 0);
    if (more > 0 && room > 0) {
        snprintf(both, sizeof both, "and %d more", more);
        line(out, R_DIM, both, width);
    }
    if (v->pages_kept > 0) {
        figure_bytes((double)v->page_bytes * v->pages_kept, bytes);
        buf_truncate(&b, 0);
        buf_printf(&b, "k kept to be reused%*s", width - 23 > 0 ? width - 23 : 0, bytes);
        line(out, R_TEXT, b.data, width);
    }
    buf_free(&b);
}

void panel_kv_words(const struct panel *p, const struct theme *th, struct buf *out)
{
    const struct view_kv *v = p->kv;
    char bytes[FIGURE_SIZE];
    char tokens[FIGURE_SIZE];
    char both[32];
    if (v->pages <= 0) {
        buf_adds(out, "the cache is not there before the model is loaded");
        return;
    }
    figure_kv_both(v, "", both);
    buf_printf(out, "cache %s, %.0f%% in use", both, 100.0 * (v->pages - v->pages_free) / v->pages);
    for (int i = 0; i < v->n && i < MOST_NAMES; i++) {
        struct buf name = BUF_INIT;
        add_owner(p, &v->seq[i], th, 24, &name);
        while (name.len > 0 && name.data[name.len - 1] == ' ') {
            buf_truncate(&name, name.len - 1);
        }
        figure_count(v->seq[i].tokens, tokens);
        figure_bytes((double)v->page_bytes * v->seq[i].pages, bytes);
        buf_printf(out, "; %c %s: %s tokens, %s%s", figure_kv_letter(i),
                   name.data ? name.data : "-", tokens, bytes, v->seq[i].busy ? ", running" : "");
        buf_free(&name);
    }
    const int more = v->more + (v->n > MOST_NAMES ? v->n - MOST_NAMES : 0);
    if (more > 0) {
        buf_printf(out, "; %d more", more);
    }
    if (v->pages_kept > 0) {
        figure_bytes((double)v->page_bytes * v->pages_kept, bytes);
        buf_printf(out, "; kept to be reused: %s", bytes);
    }
}

void panel_layout(const struct panel *p, const struct theme *th, int width, int rows,
                  struct text_rows *out)
{
    const struct span span = span_of(p, width);
    const size_t begun = out->n_rows;
    struct hist_slice all;
    char s[96];
    snprintf(s, sizeof s, "SPEED  %s", span.sparks * span.each > 60 ? "5 min" : "1 min");
    const int head = (int)strlen(s);
    const int blank = 8 + span.sparks + 7 - head;
    snprintf(s + head, sizeof s - (size_t)head, "%*s%6s", blank > 0 && blank < 80 ? blank : 0,
             p->busy ? "now" : "last", "avg");
    line(out, R_STRONG, s, width);
    spark_row(p, &span, HR_SPEED, th, width, out);
    spark_row(p, &span, HR_ROUND, th, width, out);
    spark_row(p, &span, HR_ACCEPT, th, width, out);
    (void)hist_sum(p->hist, HS_SECONDS, span.end, 0, span.sparks * span.each, 0, &all);
    places(&all, width, out);
    drafters(&all, width, out);
    round_row(&all, width, out);
    prefill_row(p, th, width, out);
    reused_row(p->chat, width, out);
    rule(out, th, width);
    const int used = (int)(out->n_rows - begun);
    kv_rows(p, th, width, rows - used - 3, out);
    rule(out, th, width);
    listen_summary(p->requests, p->now, p->listener_key, th, width,
                   rows - (int)(out->n_rows - begun), out);
    if (out->n_rows - begun > (size_t)(rows > 0 ? rows : 0)) {
        text_rows_truncate(out, begun + (size_t)(rows > 0 ? rows : 0));
    }
}
