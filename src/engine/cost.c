/* A figure falls quickly and rises slowly: what a round costs when nothing else wants
 * the machine, since other work must not look like a property of a width. */
#include "config.h"
#include "engine/cost.h"

#define FALL  4 /* one part in so many */
#define RISE  32
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
    if (m->n == 0) {
        m->s = s;
    } else if (s < m->s) {
        m->s += (s - m->s) / FALL;
    } else {
        m->s += ((s < 2 * m->s ? s : 2 * m->s) - m->s) / RISE;
    }
    m->n++;
    m->when = round;
}

/* What a width cost, or what one beyond it cost if that was less: fewer rows do not
 * take longer, they were measured in a worse moment. 0: nothing is known. */
static double at_most(const struct cost *c, int rows)
{
    double s = c->step[rows].s;
    for (int i = rows + 1; i <= COST_ROWS; i++) {
        if (c->step[i].n > 0 && c->step[i].s < s) {
            s = c->step[i].s;
        }
    }
    return s;
}

/* A whole number of rows. */
static double whole(const struct cost *c, int rows)
{
    if (c->step[rows].n > 0) {
        return at_most(c, rows);
    }
    int lo = rows, hi = rows;
    while (lo > 0 && c->step[lo].n == 0) {
        lo--;
    }
    while (hi <= COST_ROWS && c->step[hi].n == 0) {
        hi++;
    }
    if (lo > 0 && hi <= COST_ROWS) {
        const double part = (double)(rows - lo) / (hi - lo);
        return at_most(c, lo) + part * (at_most(c, hi) - at_most(c, lo));
    }
    if (lo > 0) {
        return at_most(c, lo) * (1 + SLOPE * (rows - lo));
    }
    return hi <= COST_ROWS ? at_most(c, hi) / (1 + SLOPE * (hi - rows)) : 0;
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
    for (int i = seqs; i > 0; i--) {
        if (c->draft[i].n > 0) {
            return c->draft[i].s * (1 + SLOPE * (seqs - i));
        }
    }
    return c->draft_share * cost_step(c, seqs);
}
