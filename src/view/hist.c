/* Rings of slices. A slice is found by its number modulo the ring's size and counts only
 * if it carries that number, so that gaps need neither a timer nor clearing: what an
 * earlier lap left in the place is seen to be old. */
#include "config.h"
#include "view/hist.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"

struct ring {
    int n;
    int64_t length;
    struct hist_slice *slice;
    /* of the slice with rounds that grows: its number, and whether drafts were made in the one
     * before it */
    int64_t growing;
    bool drafted_before;
};

struct hist {
    struct ring ring[HS_COUNT];
    struct view_load total; /* at the last call */
    bool known;
    int64_t reset_at, latest;
};

struct hist *hist_create(void)
{
    struct hist *h = mem_zalloc(sizeof *h);
    for (int i = 0; i < HS_COUNT; i++) {
        struct ring *r = &h->ring[i];
        r->n = hist_slices((enum hist_span)i);
        r->length = hist_length((enum hist_span)i);
        r->growing = -1;
        r->slice = mem_array((size_t)r->n, sizeof *r->slice);
        memset(r->slice, 0, (size_t)r->n * sizeof *r->slice);
    }
    return h;
}

void hist_free(struct hist *h)
{
    if (h) {
        for (int i = 0; i < HS_COUNT; i++) {
            free(h->ring[i].slice);
        }
        free(h);
    }
}

int hist_slices(enum hist_span span)
{
    return span == HS_SECONDS ? HIST_SECONDS : HIST_MINUTES;
}

int64_t hist_length(enum hist_span span)
{
    return span == HS_SECONDS ? HIST_SEC_NS : 60 * HIST_SEC_NS;
}

int64_t hist_reset_at(const struct hist *h)
{
    return h->reset_at;
}

int64_t hist_latest(const struct hist *h)
{
    return h->latest;
}

/* ---- filling ---- */

/* The slice of a time, made when it is a gap. */
static struct hist_slice *slice_of(struct ring *r, int64_t now)
{
    const int64_t at = now / r->length;
    struct hist_slice *s = &r->slice[at % r->n];
    if (!s->filled || s->at != at) {
        memset(s, 0, sizeof *s);
        s->at = at;
        s->filled = true;
    }
    return s;
}

static uint32_t sum_of(const uint32_t *v, int n)
{
    uint32_t all = 0;
    for (int i = 0; i < n; i++) {
        all += v[i];
    }
    return all;
}

static void add_rounds(struct hist_slice *s, const struct view_spec *now,
                       const struct view_spec *then)
{
    for (int k = 0; k < VS_COUNT; k++) {
        s->rounds[k] += (uint32_t)(now->rounds[k] - then->rounds[k]);
        s->tokens[k] += (uint32_t)(now->tokens[k] - then->tokens[k]);
        for (int i = 0; i < VIEW_DRAFTS; i++) {
            const uint32_t drafted = now->drafted[k][i] - then->drafted[k][i];
            const uint32_t accepted = now->accepted[k][i] - then->accepted[k][i];
            s->drafted[k] += drafted;
            s->accepted[k] += accepted;
            if (i < HIST_PLACES) {
                s->place_drafted[i] += drafted;
                s->place_accepted[i] += accepted;
            }
        }
    }
    s->draft_s += (float)(now->draft_s - then->draft_s);
    s->verify_s += (float)(now->verify_s - then->verify_s);
    s->host_s += (float)(now->host_s - then->host_s);
}

/* Whether plain decoding took over in this slice: it has rounds, none with drafts, and the one
 * with rounds before it had some. */
static void note_plain(struct ring *r, struct hist_slice *s)
{
    if (sum_of(s->rounds, VS_COUNT) == 0) {
        return;
    }
    if (r->growing != s->at) {
        const struct hist_slice *last = r->growing >= 0 ? &r->slice[r->growing % r->n] : NULL;
        r->drafted_before = last && last->at == r->growing && sum_of(last->drafted, VS_COUNT) > 0;
        r->growing = s->at;
    }
    const bool plain = sum_of(s->drafted, VS_COUNT) == 0;
    s->noted = (uint8_t)((s->noted & ~HM_PLAIN) | (plain && r->drafted_before ? HM_PLAIN : 0));
}

static void fill(struct ring *r, int64_t now, const struct hist_sample *s,
                 const struct view_load *then)
{
    const struct view_load *l = &s->load;
    struct hist_slice *to = slice_of(r, now);
    add_rounds(to, &l->spec, &then->spec);
    to->prompt += (uint32_t)(l->prompt_tokens - then->prompt_tokens);
    to->cached += (uint32_t)(l->cached_tokens - then->cached_tokens);
    to->prefilled += (uint32_t)(l->prefilled - then->prefilled);
    to->prefill_s += (float)(l->prefill_s - then->prefill_s);
    to->failed += (uint32_t)(l->failed - then->failed);
    for (int i = 0; i < HG_COUNT; i++) {
        if (!isnan(s->gauge[i])) {
            to->sum[i] += s->gauge[i];
            to->n[i]++;
        }
    }
    to->noted |= l->restored != then->restored ? HM_RESTORE : 0;
    note_plain(r, to);
}

static uint64_t rounds_of(const struct view_load *l)
{
    uint64_t n = 0;
    for (int k = 0; k < VS_COUNT; k++) {
        n += l->spec.rounds[k];
    }
    return n;
}

void hist_take(struct hist *h, int64_t now, const struct hist_sample *s)
{
    const struct view_load *l = &s->load;
    const struct view_load *t = &h->total;
    const bool news = rounds_of(l) != rounds_of(t) || l->prompt_tokens != t->prompt_tokens ||
                      l->prefilled != t->prefilled || l->restored != t->restored ||
                      l->failed != t->failed;
    if (h->known && (news || l->running > 0 || l->waiting > 0)) {
        for (int i = 0; i < HS_COUNT; i++) {
            fill(&h->ring[i], now, s, t);
        }
        h->latest = now;
    }
    h->total = *l;
    h->known = true;
}

void hist_reset(struct hist *h, int64_t now)
{
    for (int i = 0; i < HS_COUNT; i++) {
        slice_of(&h->ring[i], now)->noted |= HM_RESET;
    }
    h->reset_at = now;
}

/* ---- reading ---- */

const struct hist_slice *hist_at(const struct hist *h, enum hist_span span, int64_t now, int age)
{
    const struct ring *r = &h->ring[span];
    const int64_t at = now / r->length - age;
    if (age < 0 || age >= r->n || at < 0) {
        return NULL;
    }
    const struct hist_slice *s = &r->slice[at % r->n];
    return s->filled && s->at == at ? s : NULL;
}

static void add_slice(struct hist_slice *to, const struct hist_slice *s)
{
    for (int k = 0; k < VS_COUNT; k++) {
        to->rounds[k] += s->rounds[k];
        to->tokens[k] += s->tokens[k];
        to->drafted[k] += s->drafted[k];
        to->accepted[k] += s->accepted[k];
    }
    for (int i = 0; i < HIST_PLACES; i++) {
        to->place_drafted[i] += s->place_drafted[i];
        to->place_accepted[i] += s->place_accepted[i];
    }
    to->draft_s += s->draft_s;
    to->verify_s += s->verify_s;
    to->host_s += s->host_s;
    to->prompt += s->prompt;
    to->cached += s->cached;
    to->prefilled += s->prefilled;
    to->prefill_s += s->prefill_s;
    to->failed += s->failed;
    for (int i = 0; i < HG_COUNT; i++) {
        to->sum[i] += s->sum[i];
        to->n[i] += s->n[i];
    }
    to->noted |= s->noted;
}

bool hist_sum(const struct hist *h, enum hist_span span, int64_t now, int from, int up,
              int64_t since, struct hist_slice *out)
{
    memset(out, 0, sizeof *out);
    for (int age = from; age < up; age++) {
        const struct hist_slice *s = hist_at(h, span, now, age);
        if (s && s->at >= since / h->ring[span].length) {
            add_slice(out, s);
            out->at = s->at; /* the oldest comes last */
            out->filled = true;
        }
    }
    return out->filled;
}

unsigned hist_marks(const struct hist_slice *s)
{
    const bool wasted = sum_of(s->drafted, VS_COUNT) > 0 && sum_of(s->accepted, VS_COUNT) == 0;
    return s->noted | (wasted || s->failed > 0 ? HM_DISCARD : 0U);
}

/* ---- figures ---- */

static double part(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

static double mean(const struct hist_slice *s, enum hist_gauge g)
{
    return part(s->sum[g], s->n[g]);
}

double hist_value(const struct hist_slice *s, enum hist_row row)
{
    const double rounds = sum_of(s->rounds, VS_COUNT);
    const double tokens = sum_of(s->tokens, VS_COUNT);
    const double took = (double)s->draft_s + (double)s->verify_s + (double)s->host_s;
    const int place = (int)row - (int)HR_PLACE1;
    switch (row) {
    case HR_SPEED:
        return rounds > 0 ? part(tokens, took) : NAN;
    case HR_ROUND:
        return part(tokens, rounds);
    case HR_ACCEPT:
        return part(sum_of(s->accepted, VS_COUNT), sum_of(s->drafted, VS_COUNT));
    case HR_PLACE1:
    case HR_PLACE2:
    case HR_PLACE3:
    case HR_PLACE4:
    case HR_PLACE5:
    case HR_PLACE6:
        return part(s->place_accepted[place], s->place_drafted[place]);
    case HR_MTP:
        return part(s->accepted[VS_MTP], s->drafted[VS_MTP]);
    case HR_SUFFIX:
        return part(s->accepted[VS_SUFFIX], s->drafted[VS_SUFFIX]);
    case HR_DRAFT_MS:
        return part((double)s->draft_s * 1e3, rounds);
    case HR_VERIFY_MS:
        return part((double)s->verify_s * 1e3, rounds);
    case HR_HOST_MS:
        return part((double)s->host_s * 1e3, rounds);
    case HR_PREFILL:
        return s->prefilled > 0 ? part(s->prefilled, (double)s->prefill_s) : NAN;
    case HR_REUSE:
        return part(s->cached, s->prompt);
    case HR_KV:
        return mean(s, HG_KV);
    case HR_QUEUE:
        return mean(s, HG_QUEUE);
    case HR_GPU_TEMP:
        return mean(s, HG_GPU_TEMP);
    case HR_GPU_POWER:
        return mean(s, HG_GPU_POWER);
    case HR_GPU_MEM:
        return mean(s, HG_GPU_MEM);
    case HR_HOST_MEM:
        return mean(s, HG_HOST_MEM);
    case HR_COUNT:
        break;
    }
    return NAN;
}

static const char *const row_name[HR_COUNT][2] = {
    [HR_SPEED] = {"tok/s", "tok_s"},
    [HR_ROUND] = {"tok/rnd", "tok_round"},
    [HR_ACCEPT] = {"accept", "accept"},
    [HR_PLACE1] = {" pos 1", "accept_1"},
    [HR_PLACE2] = {" pos 2", "accept_2"},
    [HR_PLACE3] = {" pos 3", "accept_3"},
    [HR_PLACE4] = {" pos 4", "accept_4"},
    [HR_PLACE5] = {" pos 5", "accept_5"},
    [HR_PLACE6] = {" pos 6", "accept_6"},
    [HR_MTP] = {" mtp", "accept_mtp"},
    [HR_SUFFIX] = {" suffix", "accept_suffix"},
    [HR_DRAFT_MS] = {"draft ms", "draft_ms"},
    [HR_VERIFY_MS] = {"verify ms", "verify_ms"},
    [HR_HOST_MS] = {"host ms", "host_ms"},
    [HR_PREFILL] = {"prefill", "prefill_tok_s"},
    [HR_REUSE] = {"reused", "reuse"},
    [HR_KV] = {"kv", "kv_used"},
    [HR_QUEUE] = {"queue", "queue"},
    [HR_GPU_TEMP] = {"gpu C", "gpu_c"},
    [HR_GPU_POWER] = {"gpu W", "gpu_w"},
    [HR_GPU_MEM] = {"gpu mem", "gpu_bytes"},
    [HR_HOST_MEM] = {"host mem", "host_bytes"},
};

const char *hist_row_name(enum hist_row row)
{
    return row_name[row][0];
}

const char *hist_row_column(enum hist_row row)
{
    return row_name[row][1];
}

/* The k-th smallest of v (0 the least), which is reordered. */
static double select_kth(double *v, int n, int k)
{
    int lo = 0, hi = n - 1;
    while (lo < hi) {
        const double pivot = v[lo + (hi - lo) / 2];
        int i = lo, j = hi;
        while (i <= j) {
            while (v[i] < pivot) {
                i++;
            }
            while (v[j] > pivot) {
                j--;
            }
            if (i <= j) {
                const double x = v[i];
                v[i++] = v[j];
                v[j--] = x;
            }
        }
        if (k <= j) {
            hi = j;
        } else if (k >= i) {
            lo = i;
        } else {
            break;
        }
    }
    return v[k];
}

void hist_stats(const struct hist *h, enum hist_span span, int64_t now, int ages, int at,
                enum hist_row row, struct hist_stats *out)
{
    double v[HIST_MINUTES];
    struct hist_slice all;
    *out = (struct hist_stats){.now = NAN, .average = NAN, .p5 = NAN, .p95 = NAN};
    ages = ages < h->ring[span].n ? ages : h->ring[span].n;
    for (int age = 0; age < ages; age++) {
        const struct hist_slice *s = hist_at(h, span, now, age);
        const double x = s ? hist_value(s, row) : NAN;
        if (age == at || (at < 0 && isnan(out->now))) {
            out->now = x;
        }
        if (!isnan(x) && s->at >= h->reset_at / h->ring[span].length) {
            v[out->n++] = x;
        }
    }
    if (out->n == 0) {
        return;
    }
    (void)hist_sum(h, span, now, 0, ages, h->reset_at, &all);
    out->average = hist_value(&all, row);
    out->p5 = select_kth(v, out->n, (out->n - 1) * 5 / 100);
    out->p95 = select_kth(v, out->n, ((out->n - 1) * 95 + 99) / 100);
}

/* ---- CSV ---- */

static void put_marks(unsigned marks, struct buf *out)
{
    static const char *const names[] = {"discard", "plain", "restore", "reset"};
    const char *between = "";
    for (unsigned i = 0; i < 4; i++) {
        if (marks & 1U << i) {
            buf_printf(out, "%s%s", between, names[i]);
            between = "+";
        }
    }
}

void hist_csv(const struct hist *h, enum hist_span span, int64_t now, int64_t wall, struct buf *out)
{
    const struct ring *r = &h->ring[span];
    buf_adds(out, "time,seconds,rounds,tokens,drafted,accepted,prompt,cached");
    for (int row = 0; row < HR_COUNT; row++) {
        buf_printf(out, ",%s", hist_row_column((enum hist_row)row));
    }
    buf_adds(out, ",marks\n");
    for (int age = r->n - 1; age >= 0; age--) {
        const struct hist_slice *s = hist_at(h, span, now, age);
        if (!s) {
            continue;
        }
        char when[32];
        struct tm tm;
        const time_t t = (time_t)(wall - (now - s->at * r->length) / HIST_SEC_NS);
        gmtime_r(&t, &tm);
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
        buf_printf(out, "%s,%d,%u,%u,%u,%u,%u,%u", when, (int)(r->length / HIST_SEC_NS),
                   sum_of(s->rounds, VS_COUNT), sum_of(s->tokens, VS_COUNT),
                   sum_of(s->drafted, VS_COUNT), sum_of(s->accepted, VS_COUNT), s->prompt,
                   s->cached);
        for (int row = 0; row < HR_COUNT; row++) {
            const double x = hist_value(s, (enum hist_row)row);
            if (isnan(x)) {
                buf_addc(out, ',');
            } else {
                buf_printf(out, ",%.6g", x);
            }
        }
        buf_addc(out, ',');
        put_marks(hist_marks(s), out);
        buf_addc(out, '\n');
    }
}
