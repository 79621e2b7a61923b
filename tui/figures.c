/* How figures are written. The bars are text too, so that they wrap, clip and are tested
 * like any other. */
#include "config.h"
#include "tui/figures.h"

#include <math.h>
#include <stdio.h>

#include "tui/status.h"

static bool unknown(double x, char out[FIGURE_SIZE])
{
    if (isfinite(x)) {
        return false;
    }
    snprintf(out, FIGURE_SIZE, "-");
    return true;
}

void figure_count(double x, char out[FIGURE_SIZE])
{
    if (!unknown(x, out)) {
        status_count(x, out);
    }
}

void figure_one(double x, char out[FIGURE_SIZE])
{
    if (!unknown(x, out)) {
        snprintf(out, FIGURE_SIZE, "%.1f", x);
    }
}

void figure_percent(double x, char out[FIGURE_SIZE])
{
    if (!unknown(x, out)) {
        snprintf(out, FIGURE_SIZE, "%.0f%%", x * 100);
    }
}

void figure_bytes(double x, char out[FIGURE_SIZE])
{
    if (unknown(x, out)) {
        return;
    }
    if (x < 1000) {
        snprintf(out, FIGURE_SIZE, "%.0f B", x);
    } else if (x < 999.5 * 1024) {
        snprintf(out, FIGURE_SIZE, "%.0f KB", x / 1024);
    } else if (x < 999.5 * 1048576) {
        snprintf(out, FIGURE_SIZE, x < 9.95 * 1048576 ? "%.1f MB" : "%.0f MB", x / 1048576);
    } else {
        snprintf(out, FIGURE_SIZE, "%.1f G", x / 1073741824);
    }
}

void figure_seconds(double x, char out[FIGURE_SIZE])
{
    if (unknown(x, out)) {
        return;
    }
    if (x < 1) {
        snprintf(out, FIGURE_SIZE, "%.2f s", x);
    } else if (x < 10) {
        snprintf(out, FIGURE_SIZE, "%.1f s", x);
    } else if (x < 120) {
        snprintf(out, FIGURE_SIZE, "%.0f s", x);
    } else if (x < 7200) {
        snprintf(out, FIGURE_SIZE, "%.0f min", x / 60);
    } else {
        snprintf(out, FIGURE_SIZE, "%.0f h", x / 3600);
    }
}

void figure_row(enum hist_row row, double x, char out[FIGURE_SIZE])
{
    switch (row) {
    case HR_SPEED:
    case HR_PREFILL:
        if (x < 10) {
            figure_one(x, out);
        } else {
            figure_count(x, out);
        }
        break;
    case HR_ROUND:
    case HR_DRAFT_MS:
    case HR_VERIFY_MS:
    case HR_HOST_MS:
    case HR_QUEUE:
        figure_one(x, out);
        break;
    case HR_ACCEPT:
    case HR_PLACE1:
    case HR_PLACE2:
    case HR_PLACE3:
    case HR_PLACE4:
    case HR_PLACE5:
    case HR_PLACE6:
    case HR_MTP:
    case HR_SUFFIX:
    case HR_REUSE:
    case HR_KV:
        figure_percent(x, out);
        break;
    case HR_GPU_TEMP:
    case HR_GPU_POWER:
        figure_count(x, out);
        break;
    case HR_GPU_MEM:
    case HR_HOST_MEM:
        figure_bytes(x, out);
        break;
    case HR_COUNT:
        break;
    }
}

double figure_full(enum hist_row row)
{
    const bool share = (row >= HR_ACCEPT && row <= HR_SUFFIX) || row == HR_REUSE || row == HR_KV;
    return share ? 1 : 0;
}

static bool plain(const struct theme *th)
{
    return th->ascii || !th->utf8;
}

void figure_spark(const struct theme *th, double x, double top, struct buf *out)
{
    static const char *const utf8[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const ascii[] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    if (!isfinite(x)) {
        buf_addc(out, ' ');
        return;
    }
    int level = top > 0 ? (int)(x / top * 7.999) : 0;
    level = level < 0 ? 0 : level > 7 ? 7 : level;
    buf_adds(out, (plain(th) ? ascii : utf8)[level]);
}

/* ---- meters ---- */

void figure_meter(const struct theme *th, int n, double share, struct buf *out)
{
    const double part = share < 0 || !isfinite(share) ? 0 : share > 1 ? 1 : share;
    const int full = (int)lround(part * n);
    buf_adds(out, theme_glyph(th, G_METER_L));
    for (int i = 0; i < n; i++) {
        buf_adds(out, theme_glyph(th, i < full ? G_FULL : G_EMPTY));
    }
    buf_adds(out, theme_glyph(th, G_METER_R));
}

char figure_kv_letter(int i)
{
    return (char)('A' + i % 26);
}

/* Whose the cell is whose middle is at that page; 0: nobody's. */
static char owner_of(const struct view_kv *v, double page)
{
    double at = 0;
    for (int i = 0; i < v->n; i++) {
        at += v->seq[i].pages;
        if (page < at) {
            return figure_kv_letter(i);
        }
    }
    at += v->pages_kept;
    if (page < at) {
        return 'k';
    }
    return page < v->pages - v->pages_free ? '?' : 0;
}

void figure_kv_meter(const struct theme *th, int n, const struct view_kv *v, struct buf *out)
{
    buf_adds(out, theme_glyph(th, G_METER_L));
    for (int i = 0; i < n; i++) {
        const char c = v->pages > 0 ? owner_of(v, (i + 0.5) / n * v->pages) : 0;
        if (c) {
            buf_addc(out, c);
        } else {
            buf_adds(out, theme_glyph(th, G_EMPTY));
        }
    }
    buf_adds(out, theme_glyph(th, G_METER_R));
}

double figure_kv_used(const struct view_kv *v)
{
    return (double)v->page_bytes * (v->pages - v->pages_free);
}

double figure_kv_all(const struct view_kv *v)
{
    return (double)v->page_bytes * v->pages;
}

void figure_kv_both(const struct view_kv *v, const char *blank, char out[PART_SIZE / 2])
{
    const double all = figure_kv_all(v);
    const bool giga = all >= 999.5 * 1048576;
    const double unit = giga ? 1073741824 : 1048576;
    snprintf(out, PART_SIZE / 2, "%.1f%s/%s%.1f%s%s", figure_kv_used(v) / unit, blank, blank,
             all / unit, blank, giga ? "G" : "MB");
}

/* ---- parts of the status line ---- */

void part_kv(const struct view_kv *v, char out[PART_SIZE])
{
    char both[PART_SIZE / 2];
    out[0] = 0;
    if (v->pages > 0) {
        figure_kv_both(v, "", both);
        snprintf(out, PART_SIZE, "kv %s %.0f%%", both,
                 100.0 * (v->pages - v->pages_free) / v->pages);
    }
}

void part_http(const struct view_listener *l, bool wide, char out[PART_SIZE])
{
    if (!l || !l->on) {
        snprintf(out, PART_SIZE, "http off");
    } else if (!wide) {
        snprintf(out, PART_SIZE, "http %d", l->live + l->queued);
    } else if (l->queued > 0) {
        snprintf(out, PART_SIZE, "http %d live %d queued%s", l->live, l->queued,
                 l->paused ? " paused" : "");
    } else {
        snprintf(out, PART_SIZE, "http %d live%s", l->live, l->paused ? " paused" : "");
    }
}

void part_saved(const struct view_chat *c, bool busy, double age_s, bool wide, char out[PART_SIZE])
{
    char age[FIGURE_SIZE];
    out[0] = 0;
    if (c->saved && !wide) { /* the word has its place on any screen */
        snprintf(out, PART_SIZE, "saved");
    } else if (c->saved && busy && age_s >= 0) {
        figure_seconds(floor(age_s) < 1 ? 0 : floor(age_s), age);
        snprintf(out, PART_SIZE, age_s < 1 ? "saved now" : "saved %s ago", age);
    } else if (c->saved) {
        snprintf(out, PART_SIZE, c->state_saved ? "saved with state" : "saved");
    } else if (!busy && c->output_tokens > 0) {
        snprintf(out, PART_SIZE, "not saved");
    }
}

void part_gpu(double temp_c, double power_w, char out[PART_SIZE])
{
    out[0] = 0;
    if (isfinite(temp_c) && isfinite(power_w)) {
        snprintf(out, PART_SIZE, "gpu %.0fC %.0fW", temp_c, power_w);
    } else if (isfinite(temp_c)) {
        snprintf(out, PART_SIZE, "gpu %.0fC", temp_c);
    } else if (isfinite(power_w)) {
        snprintf(out, PART_SIZE, "gpu %.0fW", power_w);
    }
}

void part_log(int unseen, const char *key, char out[PART_SIZE])
{
    out[0] = 0;
    if (unseen > 0) {
        snprintf(out, PART_SIZE, "! %d error%s%s%s", unseen, unseen == 1 ? "" : "s",
                 key[0] ? " " : "", key);
    }
}
