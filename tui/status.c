/* Formats figures and draws the rows that hold them. */
#include "config.h"
#include "tui/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/text.h"

void status_count(double n, char out[16])
{
    if (n < 1000) {
        snprintf(out, 16, "%.0f", n);
    } else if (n < 999950) {
        snprintf(out, 16, "%.1fK", n / 1000);
    } else {
        snprintf(out, 16, "%.1fM", n / 1e6);
    }
}

static void speed(double v, char out[24])
{
    if (!(v > 0) || !isfinite(v)) {
        snprintf(out, 24, "- t/s");
    } else if (v < 10) {
        snprintf(out, 24, "%.1f t/s", v);
    } else if (v < 10000) {
        snprintf(out, 24, "%.0f t/s", v);
    } else {
        snprintf(out, 24, "%.1fK t/s", v / 1000);
    }
}

static void duration(double s, char out[24])
{
    int t = s > 0 ? (int)s : 0;
    snprintf(out, 24, "%d:%02d", t / 60, t % 60);
}

void status_activity(const struct status *s, char out[96])
{
    char a[24];
    char b[24];
    char c[24];
    switch (s->phase) {
    case P_LOADING:
        snprintf(out, 96, "loading %.0f%%", s->progress * 100);
        break;
    case P_IDLE:
        snprintf(out, 96, "idle");
        break;
    case P_WAITING:
        snprintf(out, 96, "waiting for the engine");
        break;
    case P_PREFILL:
        status_count(s->done, a);
        status_count(s->total, b);
        if (s->prefill_s > 0.2 && s->done > 0) {
            double rate = s->done / s->prefill_s;
            speed(rate, c);
            snprintf(out, 96, "prefill %s/%s  %s, %.0f s left", a, b, c,
                     ceil((s->total - s->done) / rate));
        } else {
            snprintf(out, 96, "prefill %s/%s", a, b);
        }
        break;
    case P_THINKING:
    case P_ANSWERING:
        speed(s->chat.tok_s, a);
        duration(s->elapsed_s, b);
        snprintf(out, 96, "%s %s  %d tokens  %s", s->phase == P_THINKING ? "thinking" : "decode", a,
                 s->chat.output_tokens, b);
        break;
    case P_STOPPING:
        snprintf(out, 96, "stopping");
        break;
    }
}

static int cells(const char *s)
{
    return text_cells(s, strlen(s));
}

/* "demo q8", or a dash. */
static void model_name(const struct view_model *m, char out[96])
{
    snprintf(out, 96, "%s%s%s", m->name[0] ? m->name : "-", m->tier[0] ? " " : "", m->tier);
}

static void backend_name(const struct view_model *m, char out[96])
{
    snprintf(out, 96, "%s%s%s", m->backend[0] ? m->backend : "-", m->device[0] ? " " : "",
             m->device);
}

void status_draw_title(const struct status *s, const struct theme *th, int y, int width)
{
    text_blank(th, y, 0, width);
    int left = text_put(th, y, 0, width, R_STRONG, " quasar");
    char parts[3][96];
    enum role roles[3] = {R_TEXT, R_DIM, R_DIM};
    model_name(&s->model, parts[0]);
    backend_name(&s->model, parts[1]);
    snprintf(parts[2], sizeof parts[2], "F1 help");
    int n = 3;
    int need = 0;
    for (; n > 0; n--) {
        need = 1;
        for (int i = 0; i < n; i++) {
            need += cells(parts[i]) + (i ? 2 : 0);
        }
        if (left + 2 + need <= width) {
            break;
        }
    }
    int x = width - need;
    for (int i = 0; i < n; i++) {
        x += text_put(th, y, x, width - x, (uint16_t)roles[i], parts[i]) + 2;
    }
}

void status_draw_rule(const struct status *s, const struct theme *th, int y, int width)
{
    char act[96];
    status_activity(s, act);
    const char *stop = s->phase == P_LOADING || s->phase == P_IDLE ? "" : "Esc stop";
    for (int x = 0; x < width; x++) {
        (void)text_put(th, y, x, 1, R_BORDER, theme_glyph(th, G_HLINE));
    }
    uint16_t style = s->phase == P_IDLE ? R_DIM : R_MODEL;
    char label[100];
    snprintf(label, sizeof label, " %s ", act);
    int used = 0;
    if (cells(label) + 3 <= width) {
        used = 2 + text_put(th, y, 2, width - 2, style, label);
    }
    if (stop[0] && used + 14 <= width) {
        snprintf(label, sizeof label, " %s ", stop);
        (void)text_put(th, y, width - 12, 10, R_TEXT, label);
    }
}

/* Draws a meter of n cells for a share of 0..1. */
static int meter(const struct theme *th, int y, int x, int n, double share, uint16_t style)
{
    int full = (int)lround(share * n);
    int at = x;
    at += text_put(th, y, at, 1, R_DIM, theme_glyph(th, G_METER_L));
    for (int i = 0; i < n; i++) {
        bool on = i < full;
        at += text_put(th, y, at, 1, on ? style : R_METER_LOW,
                       theme_glyph(th, on ? G_FULL : G_EMPTY));
    }
    at += text_put(th, y, at, 1, R_DIM, theme_glyph(th, G_METER_R));
    return at - x;
}

void status_draw_line(const struct status *s, const struct theme *th, int y, int width)
{
    char a[24];
    char b[24];
    char part[96];
    text_blank(th, y, 0, width);
    bool known = s->model.ready && s->model.ctx > 0;
    double share = known ? (double)s->chat.context_used / s->model.ctx : 0;
    share = share > 1 ? 1 : share;
    int x = 1;
    if (known) {
        status_count(s->chat.context_used, a);
        status_count(s->model.ctx, b);
        snprintf(part, sizeof part, "ctx %s/%s ", a, b);
    } else {
        snprintf(part, sizeof part, "ctx - ");
    }
    x += text_put(th, y, x, width - x, R_TEXT, part);
    if (known) {
        uint16_t style = share >= 0.95 ? R_BAD : share >= 0.75 ? R_WARN : R_METER;
        int n = width >= 100 ? 20 : width >= 60 ? 12 : 0;
        if (n) {
            x += meter(th, y, x, n, share, style);
            x += text_put(th, y, x, width - x, R_TEXT, " ");
        }
        snprintf(part, sizeof part, "%.0f%%%s", share * 100,
                 share >= 0.95   ? " full"
                 : share >= 0.75 ? " high"
                                 : "");
        x += text_put(th, y, x, width - x, share >= 0.75 ? style : R_TEXT, part);
    }
    /* what else is known, most wanted first */
    char parts[5][64];
    int n = 0;
    speed(s->chat.tok_s, a);
    snprintf(parts[n++], sizeof parts[0], "%s", a);
    if (s->chat.output_tokens > 0 || s->chat.prompt_tokens > 0) {
        status_count(s->chat.prompt_tokens, a);
        status_count(s->chat.output_tokens, b);
        snprintf(parts[n++], sizeof parts[0], "in %s  out %s", a, b);
    }
    if (s->chat.cached_tokens > 0) {
        status_count(s->chat.cached_tokens, a);
        snprintf(parts[n++], sizeof parts[0], "reused %s", a);
    }
    if (s->chat.saved) {
        snprintf(parts[n++], sizeof parts[0], "saved");
    } else if (s->phase == P_IDLE && s->chat.output_tokens > 0) {
        snprintf(parts[n++], sizeof parts[0], "not saved");
    }
    if (s->chat.ttft_s > 0 && width >= 100) {
        snprintf(parts[n++], sizeof parts[0], "first token %.2f s", s->chat.ttft_s);
    }
    for (int i = 0; i < n; i++) {
        int need = cells(parts[i]) + 3;
        if (x + need > width) {
            break;
        }
        x += 3;
        x += text_put(th, y, x, width - x, R_TEXT, parts[i]);
    }
}

void status_draw_hints(const struct status *s, const struct theme *th, int y, int width)
{
    static const char *const idle[] = {
        "Enter send", "Alt-Enter new line", "/ commands", "^R history", "^S find",
        "^D quit",    "Tab transcript",     "^G editor",  NULL};
    static const char *const busy[] = {"Esc stop",    "Enter queue", "Tab transcript",
                                       "PgUp scroll", "F1 help",     NULL};
    static const char *const focus[] = {"Up Down message", "/ find",   "e edit",   "r again",
                                        "b branch",        "y copy",   "Esc back", "? keys",
                                        "z thought",       "g G ends", NULL};
    const char *const *h = s->focus_transcript                           ? focus
                           : s->phase == P_IDLE || s->phase == P_LOADING ? idle
                                                                         : busy;
    text_blank(th, y, 0, width);
    int x = 1;
    for (; *h && x + cells(*h) <= width; h++) {
        x += text_put(th, y, x, width - x, R_DIM, *h) + 2;
    }
}

void status_draw_welcome(const struct status *s, const struct theme *th, int y, int height,
                         int width)
{
    char name[96];
    char backend[96];
    char facts[256];
    model_name(&s->model, name);
    backend_name(&s->model, backend);
    if (s->model.ready) {
        char ctx[16];
        status_count(s->model.ctx, ctx);
        snprintf(facts, sizeof facts, "%s, on %s, context %s tokens", name, backend, ctx);
    } else {
        snprintf(facts, sizeof facts, "loading the model; you can type already");
    }
    const struct {
        uint16_t style;
        const char *key, *text;
    } rows[] = {
        {R_STRONG, NULL, "A conversation with a language model on this machine."},
        {R_TEXT, NULL, facts},
        {R_TEXT, NULL, ""},
        {R_TEXT, "Enter", "send the message"},
        {R_TEXT, "Alt-Enter", "new line (or a backslash, then Enter)"},
        {R_TEXT, "Esc", "stop the answer"},
        {R_TEXT, "/", "commands: /attach /edit /find /new /set ..."},
        {R_TEXT, "F1", "every key"},
        {R_TEXT, "F4", "go on with an earlier conversation"},
        {R_TEXT, "^D", "quit"},
    };
    int n = (int)(sizeof rows / sizeof *rows);
    int top = height > n + 2 ? 1 : 0;
    for (int i = 0; i < height; i++) {
        text_blank(th, y + i, 0, width);
        int k = i - top;
        if (k < 0 || k >= n) {
            continue;
        }
        if (rows[k].key) {
            (void)text_put(th, y + i, 3, width - 3, R_USER, rows[k].key);
            (void)text_put(th, y + i, 14, width - 14, rows[k].style, rows[k].text);
        } else {
            (void)text_put(th, y + i, 3, width - 3, rows[k].style, rows[k].text);
        }
    }
}
