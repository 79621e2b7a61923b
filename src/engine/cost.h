#ifndef QUASAR_ENGINE_COST_H
#define QUASAR_ENGINE_COST_H

#include <stdint.h>

#include "engine/engine.h"

/*
 * What rounds cost, measured: seconds of a step by its rows, seconds of a draft step by
 * its sequences, both as running figures; what was not measured yet lies between or beyond its
 * neighbours.
 */
#define COST_ROWS 16

struct cost_mean {
    double s;
    uint32_t n;
    uint64_t when; /* round of the last measurement */
};

struct cost {
    struct cost_mean step[COST_ROWS + 1], draft[COST_ROWS + 1];
    double draft_share; /* of a step's weights that a draft step reads */
    uint64_t round;
};

void cost_init(struct cost *c, const struct engine *g);
void cost_add(struct cost_mean *m, double s, uint64_t round);
/* Expected seconds; rows may be a fraction, 1 .. COST_ROWS. 0 while nothing is known. */
double cost_step(const struct cost *c, double rows);
double cost_draft(const struct cost *c, int seqs);

#endif
