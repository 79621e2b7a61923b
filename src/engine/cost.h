#ifndef QUASAR_ENGINE_COST_H
#define QUASAR_ENGINE_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

/*
 * What rounds cost, measured: seconds of a step by its rows, seconds of a draft step by
 * its sequences, both as running figures of what they take without any context; what was
 * not measured yet lies between or beyond its neighbours. Context adds so much for each of
 * its tokens and each row that reads it, learnt from plain steps at several depths.
 */
#define COST_ROWS 16

struct cost_mean {
    double s;
    uint32_t n;
    uint64_t when; /* round of the last measurement */
};

/* Running means over plain steps of one row, of its context and its seconds. */
struct cost_line {
    double n, x, t, xx, xt;
    double deepest; /* context up to which it was measured */
};

struct cost {
    struct cost_mean step[COST_ROWS + 1], draft[COST_ROWS + 1];
    double draft_share; /* of a step's weights that a draft step reads */
    struct engine_guess guess;
    struct cost_line line;
    uint64_t round;
};

void cost_init(struct cost *c, const struct engine *g);
void cost_add(struct cost_mean *m, double s, uint64_t round);
/* Expected seconds; rows may be a fraction, 1 .. COST_ROWS. 0 while nothing is known. */
double cost_step(const struct cost *c, double rows);
double cost_draft(const struct cost *c, int seqs);

/* Seconds that `tokens` tokens of context add to a step, each counted for every row that
 * reads it. */
double cost_context(const struct cost *c, double tokens);
/* A plain step of n rows took so long, all of their contexts together being so long. */
void cost_plain(struct cost *c, int n, double context, double s);
/* Whether plain steps were measured at such a depth, or nearly. */
bool cost_knows_depth(const struct cost *c, double context);
/* s less what the context added, for cost_add. */
double cost_bare(const struct cost *c, double s, double added);

#endif
