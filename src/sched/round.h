#ifndef QUASAR_SCHED_ROUND_H
#define QUASAR_SCHED_ROUND_H

#include "engine/spec.h"
#include "sched/slot.h"

/* One round of several running sequences: drafts, one step of the model, a draw from
 * every row, tokens delivered as long as drafts are right and nothing ends the job, and
 * the rows of delivered tokens kept. */
struct round_end {
    bool over; /* this job ended */
    enum job_reason reason;
};

struct round_cost {
    int rows;
    bool failed;           /* and gave nothing */
    struct view_spec spec; /* of all sequences */
};

/* slots: n of them, 1 .. COST_ROWS, decoding; ends[i] is filled, also on failure: then
 * every job ends with JR_ERROR, the reason in its err. The caller closes sequences. */
void round_run(struct engine *g, struct spec *spec, struct slot *const *slots, int n,
               struct round_end *ends, struct round_cost *cost);

#endif
