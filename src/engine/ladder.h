#ifndef QUASAR_ENGINE_LADDER_H
#define QUASAR_ENGINE_LADDER_H

/*
 * How deep one sequence's MTP drafts may go. A ceiling that climbs while whole chains
 * are accepted and sinks when its top lane no longer pays, with separate bars for the
 * two; and the two rates that say what a depth is worth: how often a chain goes on
 * (its margin is large enough) and how often a draft that was made is right.
 */
#define LADDER_LEAST 4
#define LADDER_MOST  12

struct ladder {
    int level;
    float full;  /* share of rounds that were accepted to the ceiling */
    float fired; /* … that drafted up to it */
    float yield; /* of those, how often the top draft was right */
    float go_on, right;
    int seen; /* drafts behind these two, as far as it matters */
};

void ladder_init(struct ladder *l);
/* A round with at most `ceiling` drafts: steps made, drafts verified, accepted. Only
 * rounds that were granted the whole level move it. */
void ladder_observe(struct ladder *l, int ceiling, int steps, int drafted, int accepted);

#endif
