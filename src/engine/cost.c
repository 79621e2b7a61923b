/* A figure falls quickly and rises slowly: what a round costs when nothing else wants
 * the machine, since other work must not look like a property of a width. But the last
 * few measurements bound it, so that it follows a machine that has become slower, and one
 * odd measurement says nothing. */
#include "config.h"
#include "engine/cost.h"

#include <string.h>

#define FALL  12 /* one part in so many */
#define RISE  24
#define YOUNG 4   /* measurements until a figure is believed against a better guess */
#define STALE 512 /* rounds until it is doubted again */
#define WIDE  512 /* tokens of context by which plain steps must differ to tell its price */
#define OFF   4   /* the price is at most so many times the guess, and at least one part */

void cost_init(struct cost *c, const struct engine *g)
{
    *c = (struct cost){.draft_share = 0.05, .guess = engine_guess_costs(g)};
    const uint64_t step = engine_bytes_per_step(g);
    if (step > 0) {
        c->draft_share = (double)engine_bytes_per_draft(g) / (double)step;
    }
}

/* ---- context ---- */

static double price_guess(const struct cost *c)
{
    for (int i = 1; i <= COST_ROWS; i++) {
        const struct cost_mean *m = &c->step[i];
        if (m->n > 0) {
            return c->guess.context * m->s /
                   (1 + c->guess.row * (i - 1) + c->guess.context * m->at);
        }
    }
    return 0;
}

static double price(const struct cost *c)
{
    const double guess = price_guess(c);
    if (c->each <= 0 || guess <= 0) {
        return guess;
    }
    const double most = c->hope ? guess : OFF * guess;
    return c->each > most ? most : c->each < guess / OFF ? guess / OFF : c->each;
}

double cost_context(const struct cost *c, double tokens)
{
    return price(c) * tokens;
}

static void sort(double *v, int n)
{
    for (int i = 1; i < n; i++) {
        const double x = v[i];
        int k = i;
        for (; k > 0 && v[k - 1] > x; k--) {
            v[k] = v[k - 1];
        }
        v[k] = x;
    }
}

static double median(const double *v, uint32_t n)
{
    double s[COST_SAMPLE];
    const int k = n < COST_SAMPLE ? (int)n : COST_SAMPLE;
    memcpy(s, v, (size_t)k * sizeof *s);
    sort(s, k);
    return k % 2 ? s[k / 2] : (s[k / 2 - 1] + s[k / 2]) / 2;
}

/* The median over pairs of depths of what a token between them takes. */
static double slope(const struct cost *c)
{
    double each[COST_BINS * (COST_BINS - 1) / 2], x[COST_BINS], s[COST_BINS];
    int bins = 0, n = 0;
    for (int i = 0; i < COST_BINS; i++) {
        if (c->bins[i].n >= YOUNG) {
            x[bins] = median(c->bins[i].context, c->bins[i].n);
            s[bins++] = median(c->bins[i].s, c->bins[i].n);
        }
    }
    for (int a = 0; a < bins; a++) {
        for (int b = a + 1; b < bins; b++) {
            if (x[b] - x[a] > WIDE) {
                each[n++] = (s[b] - s[a]) / (x[b] - x[a]);
            }
        }
    }
    if (n == 0) {
        return 0;
    }
    sort(each, n);
    /* Not even a little: the least that is believed. */
    return each[n / 2] > 0 ? each[n / 2] : 1e-30;
}

void cost_plain(struct cost *c, int n, double context, double s)
{
    c->deepest = context / n > c->deepest ? context / n : c->deepest;
    if (n > 1) {
        return;
    }
    int bin = 0;
    for (double top = 256; context >= top && bin < COST_BINS - 1; top *= 2) {
        bin++;
    }
    struct cost_bin *b = &c->bins[bin];
    b->context[b->n % COST_SAMPLE] = context;
    b->s[b->n % COST_SAMPLE] = s;
    b->n++;
    if (b->n >= YOUNG) {
        c->each = slope(c);
    }
}

bool cost_knows_depth(const struct cost *c, double context)
{
    return context < 2 * c->deepest + 2 * WIDE;
}

/* ---- figures ---- */

/* What m would have measured with so much context. */
static double carried(const struct cost *c, const struct cost_mean *m, double context)
{
    const double s = m->s + price(c) * (context - m->at);
    return s > m->s / 8 ? s : m->s / 8;
}

static void add(struct cost_mean *m, double s, uint64_t round)
{
    memmove(m->last + 1, m->last, sizeof m->last - sizeof *m->last);
    m->last[0] = s;
    m->when = round;
    const int known = m->n < COST_LAST ? (int)++m->n : COST_LAST;
    double v[COST_LAST];
    memcpy(v, m->last, sizeof v);
    sort(v, known);
    if (known < COST_LAST) { /* of two the less, of three the one between */
        m->s = v[(known - 1) / 2];
        return;
    }
    if (s < m->s) {
        m->s += (s - m->s) / FALL;
    } else {
        m->s += ((s < 2 * m->s ? s : 2 * m->s) - m->s) / RISE;
    }
    m->s = m->s < v[0] ? v[0] : m->s > v[COST_LAST - 1] ? v[COST_LAST - 1] : m->s;
}

void cost_add_step(struct cost *c, int rows, double context, double s)
{
    struct cost_mean *m = &c->step[rows];
    if (m->n > 0) {
        const double now = carried(c, m, context), by = now - m->s;
        for (int i = 0; i < COST_LAST; i++) {
            m->last[i] += by;
        }
        m->s = now;
    }
    m->at = context;
    add(m, s, c->round);
}

void cost_add_draft(struct cost *c, int seqs, double context, double s)
{
    const double less = cost_context(c, context);
    add(&c->draft[seqs], s - less > s / 8 ? s - less : s / 8, c->round);
}

/* A figure beside a guess: what was measured seldom or long ago must not keep what looks
 * better from being tried. */
static double hopeful(const struct cost *c, const struct cost_mean *m, double s, double guess)
{
    const bool sure = m->n >= YOUNG && c->round - m->when <= STALE && !c->hope;
    return m->n == 0 || (!sure && guess < s) ? guess : s;
}

/* What one more row is guessed to add: no less than with the width that was measured to
 * be the best. at: by width, 0 for not measured. */
static double row_guess(const struct cost *c, const double *at, double one, double each)
{
    const double bare = one - cost_context(c, each);
    const double guess = c->guess.row * (bare > one / 8 ? bare : one / 8) +
                         (c->guess.shared ? 0 : cost_context(c, each));
    double least = 0;
    for (int i = 2; i <= COST_ROWS && !c->hope; i++) {
        if (c->step[i].n >= YOUNG) {
            const double row = (at[i] - one) / (i - 1);
            least = least == 0 || row < least ? row : least;
        }
    }
    return least > guess ? least : guess;
}

/* A whole number of rows, each reading so much. Fewer rows do not take longer, they were
 * measured in a worse moment: a width takes no longer than any wider one, and where it is
 * guessed no less than the one before. Rows of a shared context read all of it together. */
static double whole(const struct cost *c, int rows, double each)
{
    const bool shared = c->guess.shared;
    double at[COST_ROWS + 1] = {0}, least = 0;
    for (int i = COST_ROWS; i > 0; i--) {
        if (c->step[i].n > 0) {
            const double s = carried(c, &c->step[i], shared ? each : i * each);
            least = least == 0 || s < least ? s : least;
            at[i] = least;
        }
    }
    const double one = least;
    const double more = row_guess(c, at, one, each);
    double s = one;
    for (int i = 2; i <= rows; i++) {
        const double guess = s + more;
        double here = hopeful(c, &c->step[i], at[i], guess);
        if (c->step[i].n == 0) {
            int next = i;
            while (next < COST_ROWS && c->step[next].n == 0) {
                next++;
            }
            const struct cost_mean *m = &c->step[next];
            const double there = hopeful(c, m, at[next], s + more * (next - i + 1));
            here = m->n > 0 && there > s ? s + (there - s) / (next - i + 1) : guess;
        }
        s = here > s ? here : s;
    }
    return s;
}

double cost_step(const struct cost *c, double rows, double context)
{
    const double each = c->guess.shared ? context : context / rows;
    const int lo = (int)rows;
    if (lo >= COST_ROWS) {
        return whole(c, COST_ROWS, each);
    }
    const double a = whole(c, lo, each);
    return rows > lo ? a + (rows - lo) * (whole(c, lo + 1, each) - a) : a;
}

double cost_draft(const struct cost *c, int seqs, double context)
{
    const double guess = c->draft_share * cost_step(c, seqs, 0);
    double s = guess;
    for (int i = seqs; i > 0; i--) {
        if (c->draft[i].n > 0) {
            s = hopeful(c, &c->draft[i], c->draft[i].s, guess) * (1 + c->guess.row * (seqs - i));
            break;
        }
    }
    return s + cost_context(c, context);
}
