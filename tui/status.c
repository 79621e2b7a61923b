/* The figures of the title, the activity rule and the status line, as words. */
#include "config.h"
#include "tui/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    char c[48];
    switch (s->phase) {
    case P_LOADING:
        snprintf(out, 96, "loading %.0f%%", s->progress * 100);
        break;
    case P_IDLE:
        snprintf(out, 96, "idle");
        break;
    case P_WAITING:
        if (s->chat.ahead > 0) {
            snprintf(out, 96, "waiting, %d ahead", s->chat.ahead);
        } else {
            snprintf(out, 96, "waiting for the engine");
        }
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
        c[0] = 0;
        if (s->tok_round > 0) {
            snprintf(c, sizeof c, "%.1f tok/round  ", s->tok_round);
        }
        if (s->accept > 0) {
            const size_t n = strlen(c);
            snprintf(c + n, sizeof c - n, "acc %.0f%%  ", s->accept * 100);
        }
        snprintf(out, 96, "%s %s  %s%d tokens  %s", s->phase == P_THINKING ? "thinking" : "decode",
                 a, c, s->chat.output_tokens, b);
        break;
    case P_STOPPING:
        snprintf(out, 96, "stopping");
        break;
    }
}

void status_activity_short(const struct status *s, char out[48])
{
    char a[24];
    switch (s->phase) {
    case P_LOADING:
        snprintf(out, 48, "loading");
        break;
    case P_IDLE:
        snprintf(out, 48, "idle");
        break;
    case P_WAITING:
        if (s->chat.ahead > 0) {
            snprintf(out, 48, "waiting, %d ahead", s->chat.ahead);
        } else {
            snprintf(out, 48, "waiting");
        }
        break;
    case P_PREFILL:
        snprintf(out, 48, "prefill %.0f%%", s->total > 0 ? 100.0 * s->done / s->total : 0);
        break;
    case P_THINKING:
    case P_ANSWERING:
        speed(s->chat.tok_s, a);
        snprintf(out, 48, "%s %s", s->phase == P_THINKING ? "thinking" : "decode", a);
        break;
    case P_STOPPING:
        snprintf(out, 48, "stopping");
        break;
    }
}

void status_model(const struct view_model *m, char name[96], char backend[96])
{
    snprintf(name, 96, "%s%s%s", m->name[0] ? m->name : "-", m->tier[0] ? " " : "", m->tier);
    snprintf(backend, 96, "%s%s%s", m->backend[0] ? m->backend : "-", m->device[0] ? " " : "",
             m->device);
}

double status_context(const struct status *s, char used[40], char share[24])
{
    char a[16];
    char b[16];
    if (!s->model.ready || s->model.ctx <= 0) {
        snprintf(used, 40, "-");
        share[0] = 0;
        return -1;
    }
    if (s->chat.context_used < 0) {
        status_count(s->model.ctx, b);
        snprintf(used, 40, "-/%s", b);
        share[0] = 0;
        return -1;
    }
    double part = (double)s->chat.context_used / s->model.ctx;
    part = part > 1 ? 1 : part;
    status_count(s->chat.context_used, a);
    status_count(s->model.ctx, b);
    snprintf(used, 40, "%s/%s", a, b);
    snprintf(share, 24, "%.0f%%%s", part * 100,
             part >= STATUS_FULL   ? " full"
             : part >= STATUS_HIGH ? " high"
                                   : "");
    return part;
}

int status_parts(const struct status *s, int width, char out[STATUS_PARTS][64])
{
    char a[24];
    char b[24];
    int n = 0;
    speed(s->chat.tok_s, a); /* of the whole answer; the panel's is of the last moments */
    snprintf(out[n++], 64, "answer %s", a);
    if (s->chat.output_tokens > 0 || s->chat.prompt_tokens > 0) {
        status_count(s->chat.prompt_tokens, a);
        status_count(s->chat.output_tokens, b);
        snprintf(out[n++], 64, "in %s  out %s", a, b);
    }
    if (s->chat.cached_tokens > 0) {
        status_count(s->chat.cached_tokens, a);
        snprintf(out[n++], 64, "reused %s", a);
    }
    if (s->chat.ttft_s > 0 && width >= 100) {
        snprintf(out[n++], 64, "first token %.2f s", s->chat.ttft_s);
    }
    return n;
}
