/* Cuts the engine's counters into slices of a second and lays out what they say.
 * Speed is of decoding alone: tokens by the time that rounds took. */
#include "config.h"
#include "tui/panel.h"

#include <stdio.h>
#include <string.h>

#include "tui/status.h"

#define SPARKS 12 /* of GAUGE_SLICES / SPARKS slices each */

static struct view_spec difference(const struct view_spec *a, const struct view_spec *b)
{
    struct view_spec d = *a;
    for (int s = 0; s < VS_COUNT; s++) {
        d.rounds[s] -= b->rounds[s];
        d.tokens[s] -= b->tokens[s];
        for (int i = 0; i < VIEW_DRAFTS; i++) {
            d.drafted[s][i] -= b->drafted[s][i];
            d.accepted[s][i] -= b->accepted[s][i];
        }
    }
    d.draft_s -= b->draft_s;
    d.verify_s -= b->verify_s;
    d.host_s -= b->host_s;
    return d;
}

static uint64_t rounds_of(const struct view_spec *v)
{
    uint64_t n = 0;
    for (int s = 0; s < VS_COUNT; s++) {
        n += v->rounds[s];
    }
    return n;
}

static uint64_t tokens_of(const struct view_spec *v)
{
    uint64_t n = 0;
    for (int s = 0; s < VS_COUNT; s++) {
        n += v->tokens[s];
    }
    return n;
}

void gauges_take(struct gauges *g, int64_t now, const struct view_spec *total, bool over)
{
    const struct view_spec d = difference(total, &g->total);
    if (rounds_of(&d) > 0 && (over || (g->since && now - g->since >= GAUGE_SLICE_NS))) {
        g->slice[g->next] = d;
        g->next = (g->next + 1) % GAUGE_SLICES;
        g->n += g->n < GAUGE_SLICES;
        g->total = *total;
        g->since = over ? 0 : now;
        return;
    }
    if (over) {
        g->since = 0;
    } else if (g->since == 0 || rounds_of(&d) == 0) {
        g->since = now;
    }
}

/* The slices from..to of the minute, 0 the oldest of GAUGE_SLICES, added up. */
static struct view_spec sum_of(const struct gauges *g, int from, int to)
{
    struct view_spec v;
    memset(&v, 0, sizeof v);
    for (int i = from; i < to; i++) {
        const int age = GAUGE_SLICES - i; /* 1: the latest */
        if (age <= g->n) {
            view_spec_add(&v, &g->slice[(g->next - age + GAUGE_SLICES) % GAUGE_SLICES]);
        }
    }
    return v;
}

/* ---- figures: negative is unknown ---- */

static double speed_of(const struct view_spec *v)
{
    const double s = v->draft_s + v->verify_s + v->host_s;
    return s > 0 ? (double)tokens_of(v) / s : -1;
}

static double round_of(const struct view_spec *v)
{
    return rounds_of(v) ? view_spec_per_round(v) : -1;
}

static double accept_of(const struct view_spec *v)
{
    const uint64_t n = view_spec_drafted(v);
    return n ? (double)view_spec_accepted(v) / (double)n : -1;
}

static void one_place(double x, char out[16])
{
    if (x < 0) {
        snprintf(out, 16, "-");
    } else {
        snprintf(out, 16, "%.1f", x);
    }
}

static void percent(double x, char out[16])
{
    if (x < 0) {
        snprintf(out, 16, "-");
    } else {
        snprintf(out, 16, "%.0f%%", x * 100);
    }
}

static void count(double x, char out[16])
{
    if (x < 0) {
        snprintf(out, 16, "-");
    } else {
        status_count(x, out);
    }
}

/* ---- rows ---- */

static void line(struct text_rows *out, uint16_t style, const char *s, int width)
{
    text_rows_puts(out, R_TEXT, " ");
    text_rows_span(out, style, s, text_fit(s, strlen(s), width > 1 ? width - 1 : 0));
    text_rows_end(out, true);
}

struct gauge {
    const char *name;
    double (*of)(const struct view_spec *v);
    void (*write)(double x, char out[16]);
    double full; /* the highest spark; 0: the highest value that there is */
};

static void spark_row(const struct gauges *g, const struct gauge *k, const struct theme *th,
                      int width, struct text_rows *out)
{
    static const char *const utf8[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const ascii[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    const int each = GAUGE_SLICES / SPARKS;
    double v[SPARKS];
    double top = k->full;
    for (int i = 0; i < SPARKS; i++) {
        const struct view_spec s = sum_of(g, i * each, (i + 1) * each);
        v[i] = k->of(&s);
        top = v[i] > top ? v[i] : top;
    }
    struct buf b = BUF_INIT;
    buf_printf(&b, "%-8s ", k->name);
    for (int i = 0; i < SPARKS; i++) {
        int level = v[i] >= 0 && top > 0 ? (int)(v[i] / top * 7.999) : -1;
        level = level > 7 ? 7 : level;
        buf_adds(&b, level < 0 ? " " : (th->ascii || !th->utf8 ? ascii : utf8)[level]);
    }
    char now[16];
    char minute[16];
    const struct view_spec last = sum_of(g, GAUGE_SLICES - 1, GAUGE_SLICES);
    const struct view_spec all = sum_of(g, 0, GAUGE_SLICES);
    k->write(k->of(&last), now);
    k->write(k->of(&all), minute);
    buf_printf(&b, " %6s %7s", now, minute);
    line(out, R_TEXT, b.data, width);
    buf_free(&b);
}

static void drafts(const struct view_spec *v, int width, struct text_rows *out)
{
    static const char *const names[VS_COUNT] = {"plain", "mtp", "suffix"};
    char s[160];
    char a[16];
    char b[16];
    int n = snprintf(s, sizeof s, "place 1-_ %%");
    int places = 0;
    for (int i = 0; i < 6; i++) {
        uint64_t drafted = 0;
        uint64_t accepted = 0;
        for (int k = 0; k < VS_COUNT; k++) {
            drafted += v->drafted[k][i];
            accepted += v->accepted[k][i];
        }
        if (drafted == 0) {
            break;
        }
        places++;
        n += snprintf(s + n, sizeof s - (size_t)n, " %.0f",
                      100 * (double)accepted / (double)drafted);
    }
    if (places) {
        s[8] = (char)('0' + places);
    } else {
        snprintf(s, sizeof s, "places   -");
    }
    line(out, R_TEXT, s, width);
    for (int k = 0; k < VS_COUNT; k++) {
        if (v->rounds[k] == 0) {
            continue;
        }
        uint64_t drafted = 0;
        uint64_t accepted = 0;
        for (int i = 0; i < VIEW_DRAFTS; i++) {
            drafted += v->drafted[k][i];
            accepted += v->accepted[k][i];
        }
        count((double)v->rounds[k], a);
        percent(drafted ? (double)accepted / (double)drafted : -1, b);
        snprintf(s, sizeof s, "%-8s %s round%s  %.1f each  %s", names[k], a,
                 v->rounds[k] == 1 ? "" : "s", (double)v->tokens[k] / (double)v->rounds[k], b);
        line(out, R_TEXT, s, width);
    }
    const double rounds = (double)rounds_of(v);
    if (rounds > 0) {
        snprintf(s, sizeof s, "ms draft %.1f model %.1f host %.1f", v->draft_s / rounds * 1e3,
                 v->verify_s / rounds * 1e3, v->host_s / rounds * 1e3);
        line(out, R_TEXT, s, width);
    }
}

static void prompt_rows(const struct view_chat *c, const struct view_model *m, int width,
                        struct text_rows *out)
{
    char s[96];
    char a[16];
    char b[16];
    const int fresh = c->prompt_tokens - c->cached_tokens;
    line(out, R_STRONG, "PROMPT", width);
    if (fresh > 0 && c->prefill_s > 0) {
        count(fresh / c->prefill_s, a);
        snprintf(s, sizeof s, "prefill  %s t/s in %.2f s", a, c->prefill_s);
    } else {
        snprintf(s, sizeof s, "prefill  -");
    }
    line(out, R_TEXT, s, width);
    if (c->prompt_tokens > 0) {
        count(c->cached_tokens, a);
        count(c->prompt_tokens, b);
        snprintf(s, sizeof s, "reused   %s of %s (%.0f%%)", a, b,
                 100.0 * c->cached_tokens / c->prompt_tokens);
    } else {
        snprintf(s, sizeof s, "reused   -");
    }
    line(out, R_TEXT, s, width);
    if (c->ttft_s > 0) {
        snprintf(s, sizeof s, "first    %.2f s after Enter", c->ttft_s);
    } else {
        snprintf(s, sizeof s, "first    -");
    }
    line(out, R_TEXT, s, width);
    text_rows_end(out, true);
    line(out, R_STRONG, "MEMORY OF THIS CONVERSATION", width);
    count(c->context_used, a);
    count(m->ctx > 0 ? m->ctx : -1, b);
    snprintf(s, sizeof s, "window   %s of %s tokens", a, b);
    line(out, R_TEXT, s, width);
    snprintf(s, sizeof s, "on disk  %s",
             !c->saved        ? "-"
             : c->state_saved ? "text and state"
                              : "text");
    line(out, R_TEXT, s, width);
}

void panel_layout(const struct gauges *g, const struct view_chat *chat,
                  const struct view_model *model, const struct theme *th, int width,
                  struct text_rows *out)
{
    static const struct gauge list[] = {{"tok/s", speed_of, count, 0},
                                        {"tok/rnd", round_of, one_place, 0},
                                        {"accept", accept_of, percent, 1}};
    line(out, R_STRONG, "DECODING (1 min of it)   now     all", width);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        spark_row(g, &list[i], th, width, out);
    }
    const struct view_spec minute = sum_of(g, 0, GAUGE_SLICES);
    drafts(&minute, width, out);
    text_rows_end(out, true);
    prompt_rows(chat, model, width, out);
}
