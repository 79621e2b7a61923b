#ifndef QUASAR_ENGINE_COST_H
#define QUASAR_ENGINE_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

/*
 * What rounds cost, measured: seconds of a step by its rows, each with the context that
 * it was measured at; seconds of a draft step by its sequences, without context. What was
 * not measured yet lies between or beyond its neighbours. Context adds so much for each of
 * its tokens and each row that reads it, learnt from plain steps at several depths; it
 * only carries a figure from the depth where it was measured to another, so that a wrong
 * price cannot outlast a measurement.
 */
#define COST_ROWS 16
#define COST_LAST 4 /* a figure is no more and no less than all of the last so many */

struct cost_mean {
    double s;
    double at;              /* tokens of context that s includes */
    double last[COST_LAST]; /* measurements less s's context and more `at`, the latest first */
    uint32_t n;
    uint64_t when; /* round of the last measurement */
};

/* Plain steps of one row at depths of one power of two, the latest few. */
#define COST_BINS   20
#define COST_SAMPLE 7
struct cost_bin {
    double context[COST_SAMPLE], s[COST_SAMPLE];
    uint32_t n;
};

struct cost {
    struct cost_mean step[COST_ROWS + 1], draft[COST_ROWS + 1];
    double draft_share; /* of a step's weights that a draft step reads */
    struct engine_guess guess;
    struct cost_bin bins[COST_BINS];
    double each;    /* seconds of a token of context, by these; 0: not known */
    double deepest; /* context up to which plain steps were measured */
    uint64_t round;
    bool hope; /* figures of widths and of context do not count where guesses are better */
};

void cost_init(struct cost *c, const struct engine *g);
/* A step of so many rows that read `context` tokens in all took s seconds. */
void cost_add_step(struct cost *c, int rows, double context, double s);
/* A draft step for so many sequences, which read `context` tokens in all. */
void cost_add_draft(struct cost *c, int seqs, double context, double s);
/* Expected seconds of a step whose rows, 1 .. COST_ROWS and maybe a fraction, read
 * `context` tokens in all. 0 while nothing is known. */
double cost_step(const struct cost *c, double rows, double context);
double cost_draft(const struct cost *c, int seqs, double context);

/* Seconds that `tokens` tokens of context add to a step, each counted for every row that
 * reads it. */
double cost_context(const struct cost *c, double tokens);
/* A plain step of n rows took so long, all of their contexts together being so long. */
void cost_plain(struct cost *c, int n, double context, double s);
/* Whether plain steps were measured at such a depth, or nearly. */
bool cost_knows_depth(const struct cost *c, double context);

#endif
