/* A figure falls quickly and rises slowly: what a round costs when nothing else wants
 * the machine, since other work must not look like a property of a width. */
#include "config.h"
#include "engine/cost.h"

#define FALL  12 /* one part in so many */
#define RISE  24
#define YOUNG 4    /* measurements until a figure is believed against a better guess */
#define STALE 512  /* rounds until it is doubted again */
#define SLOPE 0.06 /* of a further row beyond what was measured, in one row's cost */

void cost_init(struct cost *c, const struct engine *g)
{
    *c = (struct cost){.draft_share = 0.05};
    const uint64_t step = engine_bytes_per_step(g);
    if (step > 0) {
        c->draft_share = (double)engine_bytes_per_draft(g) / (double)step;
    }
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
        const double guess = s + SLOPE * one;
        double here = hopeful(c, &c->step[i], guess);
        if (c->step[i].n == 0) {
            int next = i;
            while (next < COST_ROWS && c->step[next].n == 0) {
                next++;
            }
            const struct cost_mean *m = &c->step[next];
            const double there = hopeful(c, m, s + SLOPE * one * (next - i + 1));
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
            return hopeful(c, &c->draft[i], guess) * (1 + SLOPE * (seqs - i));
        }
    }
    return guess;
}
