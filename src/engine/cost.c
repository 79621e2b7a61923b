/* A figure falls quickly and rises slowly: what a round costs when nothing else wants
 * the machine, since other work must not look like a property of a width. */
#include "config.h"
#include "engine/cost.h"

#define FALL  12 /* one part in so many */
#define RISE  24
#define YOUNG 4   /* measurements until a figure is believed against a better guess */
#define STALE 512 /* rounds until it is doubted again */

void cost_init(struct cost *c, const struct engine *g)
{
    *c = (struct cost){.draft_share = 0.05, .guess = engine_guess_costs(g)};
    const uint64_t step = engine_bytes_per_step(g);
    if (step > 0) {
        c->draft_share = (double)engine_bytes_per_draft(g) / (double)step;
    }
}

#define FORGET (1 / 64.0)
#define WIDE   512 /* tokens of context by which plain steps must differ to tell its price */

double cost_context(const struct cost *c, double tokens)
{
    const struct cost_line *l = &c->line;
    const double guess = c->guess.context * (l->n > 0 ? l->t : c->step[1].s);
    const double var = l->xx - l->x * l->x;
    double each = guess;
    if (var > WIDE * WIDE) {
        each = (l->xt - l->x * l->t) / var;
        each = each < 0 ? 0 : each > 16 * guess ? 16 * guess : each;
    }
    return each * tokens;
}

void cost_plain(struct cost *c, int n, double context, double s)
{
    struct cost_line *l = &c->line;
    l->deepest = context / n > l->deepest ? context / n : l->deepest;
    if (n > 1) {
        return;
    }
    /* Other work on the machine must not look like the price of context. */
    const double most = 2 * (l->t + cost_context(c, context > l->x ? context - l->x : 0));
    const double t = l->n >= YOUNG && s > most ? most : s;
    l->n++;
    const double w = 1 / l->n > FORGET ? 1 / l->n : FORGET;
    l->x += w * (context - l->x);
    l->t += w * (t - l->t);
    l->xx += w * (context * context - l->xx);
    l->xt += w * (context * t - l->xt);
}

bool cost_knows_depth(const struct cost *c, double context)
{
    return context < 2 * c->line.deepest + 2 * WIDE;
}

double cost_bare(const struct cost *c, double s, double added)
{
    const double less = cost_context(c, added);
    return s - less > s / 8 ? s - less : s / 8;
}

void cost_add(struct cost_mean *m, double s, uint64_t round)
{
    if (m->n == 0 || (m->n < YOUNG && s < m->s)) {
        m->s = s;
    } else if (s < m->s) {
        m->s += (s - m->s) / FALL;
    } else if (m->n >= YOUNG) {
        m->s += ((s < 2 * m->s ? s : 2 * m->s) - m->s) / RISE;
    }
    m->n++;
    m->when = round;
}

/* A figure beside a guess: what was measured seldom or long ago must not keep what looks
 * better from being tried. */
static double hopeful(const struct cost *c, const struct cost_mean *m, double guess)
{
    const bool sure = m->n >= YOUNG && c->round - m->when <= STALE;
    return m->n == 0 || (!sure && guess < m->s) ? guess : m->s;
}

/* A whole number of rows: from the narrowest width on, each no less than the one before,
 * since fewer rows do not take longer, they were measured in a worse moment. */
static double whole(const struct cost *c, int rows)
{
    double least = 0;
    for (int i = COST_ROWS; i > 0; i--) { /* one row is at most what any width took */
        if (c->step[i].n > 0 && (least == 0 || c->step[i].s < least)) {
            least = c->step[i].s;
        }
    }
    const double one = c->step[1].n > 0 && c->step[1].s < least ? c->step[1].s : least;
    double s = one;
    for (int i = 2; i <= rows; i++) {
        const double guess = s + c->guess.row * one;
        double here = hopeful(c, &c->step[i], guess);
        if (c->step[i].n == 0) {
            int next = i;
            while (next < COST_ROWS && c->step[next].n == 0) {
                next++;
            }
            const struct cost_mean *m = &c->step[next];
            const double there = hopeful(c, m, s + c->guess.row * one * (next - i + 1));
            here = m->n > 0 && there > s ? s + (there - s) / (next - i + 1) : guess;
        }
        s = here > s ? here : s;
    }
    return s;
}

double cost_step(const struct cost *c, double rows)
{
    const int lo = (int)rows;
    if (lo >= COST_ROWS) {
        return whole(c, COST_ROWS);
    }
    const double a = whole(c, lo);
    return a + (rows - lo) * (whole(c, lo + 1) - a);
}

double cost_draft(const struct cost *c, int seqs)
{
    const double guess = c->draft_share * cost_step(c, seqs);
    for (int i = seqs; i > 0; i--) {
        if (c->draft[i].n > 0) {
            return hopeful(c, &c->draft[i], guess) * (1 + c->guess.row * (seqs - i));
        }
    }
    return guess;
}
