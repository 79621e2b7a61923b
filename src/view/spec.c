/* Sums over the figures of speculation. */
#include "config.h"
#include "view/spec.h"

void view_spec_round(struct view_spec *v, enum view_source source, int drafts, int accepted)
{
    const enum view_source from = drafts > 0 ? source : VS_NONE;
    v->rounds[from]++;
    v->tokens[from] += 1 + (uint64_t)accepted;
    for (int k = 0; k < drafts; k++) {
        v->drafted[from][k]++;
        v->accepted[from][k] += k < accepted;
    }
}

void view_spec_add(struct view_spec *to, const struct view_spec *more)
{
    for (int s = 0; s < VS_COUNT; s++) {
        to->rounds[s] += more->rounds[s];
        to->tokens[s] += more->tokens[s];
        for (int i = 0; i < VIEW_DRAFTS; i++) {
            to->drafted[s][i] += more->drafted[s][i];
            to->accepted[s][i] += more->accepted[s][i];
        }
    }
    to->compared += more->compared;
    to->differ += more->differ;
    to->draft_s += more->draft_s;
    to->verify_s += more->verify_s;
    to->host_s += more->host_s;
}

static uint64_t sum(const uint32_t (*v)[VIEW_DRAFTS])
{
    uint64_t n = 0;
    for (int s = 0; s < VS_COUNT; s++) {
        for (int i = 0; i < VIEW_DRAFTS; i++) {
            n += v[s][i];
        }
    }
    return n;
}

uint64_t view_spec_drafted(const struct view_spec *v)
{
    return sum(v->drafted);
}

uint64_t view_spec_accepted(const struct view_spec *v)
{
    return sum(v->accepted);
}

double view_spec_per_round(const struct view_spec *v)
{
    uint64_t rounds = 0, tokens = 0;
    for (int s = 0; s < VS_COUNT; s++) {
        rounds += v->rounds[s];
        tokens += v->tokens[s];
    }
    return rounds > 0 ? (double)tokens / (double)rounds : 0;
}
