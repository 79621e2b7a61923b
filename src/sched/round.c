/* A round is what a decode step of one token is without drafts, and says the same
 * text: every token is drawn from the row after the tokens before it, with the noise
 * of its position, and ends are looked for one token at a time. */
#include "config.h"
#include "sched/round.h"

#include <string.h>

#include "base/clock.h"
#include "engine/rules.h"

/* Everything a round works on; rows of slot i start at first[i]. */
struct work {
    struct spec_part part[COST_ROWS];
    int seqs[COST_ROWS], outputs[COST_ROWS], first[COST_ROWS];
    int32_t tokens[COST_ROWS], ids[COST_ROWS];
    struct engine_draw draws[COST_ROWS];
    int rows;
};

static double elapsed(int64_t since)
{
    return clock_seconds(clock_now(clock_main()) - since);
}

/* What the form of an answer all but says need not be guessed: these are drafts too, in the place
 * of all others. Returns how many there are of slot i. */
static int given(const struct spec *spec, const struct slot *s, int left, int32_t *ids)
{
    int most = s->limit - s->job->stats.output_tokens - 1;
    most = most < spec->most ? most : spec->most;
    most = most < left ? most : left;
    most = most < VIEW_DRAFTS ? most : VIEW_DRAFTS;
    const int n = rules_forced(s->job->rules, ids, most);
    return rules_legal(s->job->rules, ids, n);
}

/* Leaves the drafts that the form of the answer lets come. */
static void cut(const struct slot *s, struct spec_part *p)
{
    const int n = rules_legal(s->job->rules, p->ids, p->n);
    if (n < p->n) {
        p->n = p->steps = p->ceiling = n;
        p->source = n > 0 ? p->source : VS_NONE;
    }
}

static int plan(struct engine *g, struct spec *spec, struct slot *const *slots, int n,
                struct work *w, struct err *e)
{
    int32_t ids[COST_ROWS][VIEW_DRAFTS];
    int forced[COST_ROWS] = {0}, left = COST_ROWS - n;
    for (int i = 0; i < n; i++) {
        const struct slot *s = slots[i];
        if (spec_on(spec) && !spec->own) {
            forced[i] = given(spec, s, left, ids[i]);
            left -= forced[i];
        }
        /* The round gives one token more than it uses drafts. */
        const int room = s->limit - s->job->stats.output_tokens - 1;
        w->part[i] = (struct spec_part){.q = s->q,
                                        .seq = s->seq,
                                        .pending = s->ids[s->n - 1],
                                        .room = forced[i] > 0 ? 0
                                                : room < left ? room
                                                              : left};
    }
    const int rc = spec_on(spec) ? spec_draft(spec, g, w->part, n, e) : 0;
    int rows = n;
    for (int i = 0; i < n && rc == 0; i++) {
        struct spec_part *p = &w->part[i];
        cut(slots[i], p);
        rows += p->n;
    }
    for (int i = 0; i < n && rc == 0; i++) {
        struct spec_part *p = &w->part[i];
        p->given = forced[i] > 0;
        if (p->given) {
            p->n = forced[i] < COST_ROWS - rows ? forced[i] : COST_ROWS - rows;
            p->source = p->n > 0 ? VS_SUFFIX : VS_NONE;
            p->steps = p->ceiling = p->n;
            memcpy(p->ids, ids[i], (size_t)p->n * sizeof *p->ids);
            rows += p->n;
        }
    }
    return rc;
}

static void lay_rows(struct slot *const *slots, int n, struct work *w)
{
    for (int i = 0; i < n; i++) {
        const struct spec_part *p = &w->part[i];
        w->first[i] = w->rows;
        for (int k = 0; k <= p->n; k++) {
            w->seqs[w->rows] = p->seq;
            w->outputs[w->rows] = w->rows;
            w->tokens[w->rows] = k == 0 ? p->pending : p->ids[k - 1];
            w->draws[w->rows++] = slot_draw(slots[i], p->ids, k);
        }
    }
}

/* Delivers what slot i has drawn; returns how many tokens. */
static int deliver(struct engine *g, struct slot *s, const struct work *w, int i,
                   struct round_end *end)
{
    const struct spec_part *p = &w->part[i];
    for (int k = 0;; k++) {
        const int row = w->first[i] + k;
        const int32_t id = w->ids[row];
        if (slot_drawn(s, g, row, id, &s->job->err) < 0) {
            *end = (struct round_end){true, JR_ERROR};
            return k;
        }
        end->over = slot_accept(s, id, &end->reason);
        if (end->over || k == p->n || p->ids[k] != id) {
            return k + 1;
        }
    }
}

static int compute(struct engine *g, struct slot *const *slots, int n, struct work *w,
                   struct round_end *ends, int *kept, struct err *e)
{
    const bool verify = w->rows > n;
    int seqs[COST_ROWS];
    int rc = verify ? engine_verify(g, w->seqs, w->tokens, w->rows, e)
                    : engine_decode(g, w->seqs, w->tokens, w->rows, e);
    if (rc == 0) {
        rc = engine_sample(g, w->outputs, w->draws, w->rows, w->ids, e);
    }
    for (int i = 0; i < n && rc == 0; i++) {
        kept[i] = deliver(g, slots[i], w, i, &ends[i]);
        seqs[i] = slots[i]->seq;
    }
    return rc == 0 && verify ? engine_commit(g, seqs, kept, n, e) : rc;
}

static void account(struct spec *spec, struct slot *const *slots, int n, const struct work *w,
                    const int *kept, const struct view_spec *round, struct round_cost *cost)
{
    struct view_spec one[COST_ROWS] = {0};
    struct view_spec *stats[COST_ROWS];
    int accepted[COST_ROWS];
    for (int i = 0; i < n; i++) {
        one[i] = *round;
        stats[i] = &one[i];
        accepted[i] = kept[i] > 0 ? kept[i] - 1 : 0;
    }
    spec_learn(spec, w->part, n, accepted, round->verify_s, stats);
    for (int i = 0; i < n; i++) {
        struct job_stats *st = &slots[i]->job->stats;
        st->rounds++;
        st->drafted += w->part[i].n;
        st->accepted += accepted[i];
        job_paced(slots[i]->job);
        view_spec_add(&st->spec, &one[i]);
        one[i].draft_s = one[i].verify_s = 0; /* the sequences share these */
        one[i].compared = one[i].differ = 0;
        view_spec_add(&cost->spec, &one[i]);
    }
    view_spec_add(&cost->spec, round);
}

void round_run(struct engine *g, struct spec *spec, struct slot *const *slots, int n,
               struct round_end *ends, struct round_cost *cost)
{
    struct work w = {.rows = 0};
    struct err e = ERR_INIT;
    int kept[COST_ROWS] = {0};
    const struct engine_counters before = engine_counters(g);
    const int64_t start = clock_now(clock_main());
    *cost = (struct round_cost){.rows = 0};
    for (int i = 0; i < n; i++) {
        ends[i] = (struct round_end){false, JR_ERROR};
    }
    int rc = plan(g, spec, slots, n, &w, &e);
    const double draft_s = elapsed(start);
    lay_rows(slots, n, &w);
    const int64_t mid = clock_now(clock_main());
    if (rc == 0) {
        rc = compute(g, slots, n, &w, ends, kept, &e);
    }
    const double step_s = elapsed(mid);
    cost->rows = w.rows;
    cost->failed = rc < 0;
    if (rc == 0) {
        const struct engine_counters after = engine_counters(g);
        const struct view_spec round = {.draft_s = draft_s,
                                        .verify_s = step_s,
                                        .compared = after.compared - before.compared,
                                        .differ = after.differ - before.differ};
        account(spec, slots, n, &w, kept, &round, cost);
    }
    const double took = elapsed(start), host_s = took - draft_s - step_s;
    cost->spec.host_s += host_s;
    for (int i = 0; i < n; i++) {
        struct job *j = slots[i]->job;
        const struct job_round round = {.source = (uint8_t)w.part[i].source,
                                        .drafts = (uint8_t)w.part[i].n,
                                        .tokens = (uint8_t)kept[i],
                                        .compared = (uint16_t)cost->spec.compared,
                                        .differ = (uint16_t)cost->spec.differ,
                                        .draft_s = (float)draft_s,
                                        .verify_s = (float)step_s,
                                        .host_s = (float)host_s};
        if (kept[i] > 0) {
            job_round(j, &round);
        }
        j->stats.decode_s += took;
        j->stats.spec.host_s += host_s;
        if (rc < 0) {
            j->err = e;
            ends[i] = (struct round_end){true, JR_ERROR};
        }
    }
}
