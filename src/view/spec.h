#ifndef QUASAR_VIEW_SPEC_H
#define QUASAR_VIEW_SPEC_H

#include <stdint.h>

/* What speculation did, of one job or of everything. */
enum view_source { VS_NONE, VS_MTP, VS_SUFFIX, VS_COUNT };

#define VIEW_DRAFTS 15 /* most in one round */

struct view_spec {
    uint64_t rounds[VS_COUNT]; /* decode rounds by what drafted in them */
    uint64_t tokens[VS_COUNT]; /* that came out of them */
    /* by source and place in the draft, first 0; NONE's stay 0 */
    uint32_t drafted[VS_COUNT][VIEW_DRAFTS], accepted[VS_COUNT][VIEW_DRAFTS];
    uint64_t compared, differ; /* --fast-head: rows for which the head itself was asked too, and
                                  found another token likeliest */
    double draft_s, verify_s, host_s; /* a round's time: making drafts, the model and the draw,
                                         everything between */
};

/* A decode round: so many drafts of the source (0: it counts as NONE's), so many right. */
void view_spec_round(struct view_spec *v, enum view_source source, int drafts, int accepted);
/* Adds what `more` has to `to`. */
void view_spec_add(struct view_spec *to, const struct view_spec *more);
uint64_t view_spec_drafted(const struct view_spec *v);
uint64_t view_spec_accepted(const struct view_spec *v);
/* Tokens of one decode round on average; 0 before the first. */
double view_spec_per_round(const struct view_spec *v);

#endif
