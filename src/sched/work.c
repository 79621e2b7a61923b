/* Computing: one chunk of prompts, then one round of all that decode. Which prompt is next is a
 * matter of fairness and of short ones first; how prompts are cut and who computes beside whom
 * never changes a result, so both may follow the clock. */
#include "config.h"
#include "sched/inside.h"

#include "base/clock.h"
#include "sched/job.h"
#include "sched/round.h"

#define IN_A_ROW 4 /* chunks of one prompt while others wait, before the shortest gets one */

static double elapsed(int64_t since)
{
    return clock_seconds(clock_now(clock_main()) - since);
}

bool work_waits(const struct sched *s)
{
    bool works = false;
    for (int i = 0; i < ROWS; i++) {
        works = works || (s->slots[i].job && !s->slots[i].filling);
    }
    return works;
}

bool work_prompts(const struct sched *s)
{
    bool waits = false;
    for (int i = 0; i < ROWS; i++) {
        waits = waits || (s->slots[i].job && !s->slots[i].decoding);
    }
    return waits;
}

/* ---- which prompt ---- */

static bool is_prompt(const struct slot *c)
{
    return c->job && !c->decoding && !c->filling;
}

/* Chunks that it still needs, less what it has waited for: so that a long one's turn comes
 * however many short ones there are. */
static double score(const struct slot *c, int rows)
{
    return (double)slot_left(c) / rows - c->passed / 2.0;
}

/* Of the owner who has had least, the one with the least score; but after some chunks in a row
 * the shortest of the others, whoever's. NULL: there is none. */
static struct slot *next_prompt(struct sched *s, int rows)
{
    struct slot *best = NULL, *shortest = NULL;
    for (int i = 0; i < ROWS; i++) {
        struct slot *c = &s->slots[i];
        if (!is_prompt(c)) {
            continue;
        }
        const double had = share_of(&s->share, c->job->owner)->had;
        const double least = best ? share_of(&s->share, best->job->owner)->had : 0;
        const bool same = best && best->job->owner == c->job->owner;
        if (!best || (!same && had < least) || (same && score(c, rows) < score(best, rows))) {
            best = c;
        }
    }
    for (int i = 0; i < ROWS && best && best->in_a_row >= IN_A_ROW; i++) {
        struct slot *c = &s->slots[i];
        if (is_prompt(c) && c != best && (!shortest || slot_left(c) < slot_left(shortest))) {
            shortest = c;
        }
    }
    return shortest ? shortest : best;
}

static void note_turn(struct sched *s, const struct slot *chosen)
{
    for (int i = 0; i < ROWS; i++) {
        struct slot *c = &s->slots[i];
        if (is_prompt(c)) {
            c->passed += c != chosen;
            c->in_a_row = c == chosen ? c->in_a_row + 1 : 0;
        }
    }
}

/* ---- prompts ---- */

/* States from the tier go on into their sequences. */
static void fill(struct sched *s)
{
    for (int i = 0; i < ROWS; i++) {
        struct slot *c = &s->slots[i];
        if (c->job && c->filling) {
            int64_t t0 = clock_now(clock_main());
            int cached = 0;
            const bool more = work_waits(s) || s->moving;
            c->filling = !reuse_fill(&s->reuse, c, more ? 0 : PATIENCE, &cached);
            c->job->stats.prefill_s += elapsed(t0);
            if (!c->filling) {
                admit_begin(s, c, cached);
            }
        }
    }
}

static void take_token(struct sched *s, struct slot *slot, int32_t id)
{
    enum job_reason reason = JR_STOP;
    share_charge(&s->share, slot->job->owner, 0, 1);
    if (slot_accept(slot, id, &reason)) {
        admit_finish(s, slot, reason);
    }
}

/* Its state was given away and is made again: it goes on where it was. */
static void repeat(struct sched *s, struct slot *slot, int rows)
{
    int n = 0;
    if (!room_for(s, slot, rows)) {
        return;
    }
    int64_t t0 = clock_now(clock_main());
    const int rc = slot_repeat(slot, s->engine, rows, &n, &slot->job->err);
    slot->job->stats.decode_s += elapsed(t0);
    if (rc < 0) {
        admit_finish(s, slot, JR_ERROR);
    }
}

static void compute_chunk(struct sched *s, struct slot *slot, int rows)
{
    int before = slot->done;
    const int cut = reuse_cut(&s->reuse, slot);
    rows = cut > 0 && cut - slot->done < rows ? cut - slot->done : rows;
    if (!room_for(s, slot, slot_end(slot, rows) - before)) {
        return;
    }
    int64_t t0 = clock_now(clock_main());
    bool got = false;
    int32_t id = 0;
    int rc = slot_prefill(slot, s->engine, rows, &got, &id, &slot->job->err);
    if (rc < 0) {
        admit_finish(s, slot, JR_ERROR);
        return;
    }
    double took = elapsed(t0);
    reuse_chunk(&s->reuse, slot);
    int n = slot->done - before;
    slot->job->stats.prefill_s += elapsed(t0);
    s->count.prefilled += (uint64_t)n;
    s->count.prefill_s += took;
    if (n >= 64 && took > 0) {
        s->tok_s = s->tok_s > 0 ? 0.7 * s->tok_s + 0.3 * (n / took) : n / took;
    }
    s->count.chunks++;
    if (slot->again == 0) {
        share_charge(&s->share, slot->job->owner, n, 0);
        job_progress(slot->job, slot->done);
    }
    if (got) {
        take_token(s, slot, id);
    }
}

/* One chunk of one prompt; false: there is none. */
static bool one_chunk(struct sched *s, int rows)
{
    struct slot *slot = next_prompt(s, rows);
    if (!slot) {
        return false;
    }
    note_turn(s, slot);
    if (slot->again > 0 && slot->done >= slot->job->n_prompt) {
        repeat(s, slot, engine_info(s->engine)->verify_width);
    } else {
        compute_chunk(s, slot, rows);
    }
    if (slot->job && slot->again > 0 && slot->done == slot->again) {
        slot->again = 0;
        slot->decoding = true;
    }
    return true;
}

void work_prefill(struct sched *s)
{
    bool decoding = false;
    fill(s);
    for (int i = 0; i < ROWS; i++) {
        decoding = decoding || (s->slots[i].job && s->slots[i].decoding);
    }
    const double most = decoding ? TOGETHER_S : ALONE_S;
    const int64_t t0 = clock_now(clock_main());
    const int rows = slot_chunk(s->tok_s, most);
    /* What is left of a chunk's time is another short prompt's. */
    while (one_chunk(s, rows) && decoding) {
        const struct slot *next = next_prompt(s, rows);
        if (!next || s->tok_s <= 0 || slot_left(next) > rows ||
            elapsed(t0) + slot_left(next) / s->tok_s > most) {
            return;
        }
    }
}

/* ---- rounds ---- */

/* Tokens of the round that slot may want to compute, drafts included. */
static int width(const struct sched *s, const struct slot *slot)
{
    const int room = slot->limit - slot->job->stats.output_tokens - 1;
    const int most = !spec_on(&s->spec) ? 0 : s->spec.most;
    return 1 + (room < most ? (room > 0 ? room : 0) : most);
}

void work_decode(struct sched *s)
{
    struct slot *who[ROWS];
    struct round_end ends[ROWS];
    struct round_cost cost;
    bool asked[ROWS] = {false}, has[ROWS] = {false};
    /* Pages first, for those who came first first: others may give way for them. */
    for (;;) {
        int first = -1;
        for (int i = 0; i < ROWS; i++) {
            const struct slot *c = &s->slots[i];
            if (c->job && c->decoding && !asked[i] &&
                (first < 0 || c->job->rank < s->slots[first].job->rank)) {
                first = i;
            }
        }
        if (first < 0) {
            break;
        }
        asked[first] = true;
        has[first] = room_for(s, &s->slots[first], width(s, &s->slots[first]));
    }
    int n = 0, said[ROWS];
    for (int i = 0; i < ROWS; i++) {
        if (s->slots[i].job && s->slots[i].decoding && has[i]) {
            said[n] = s->slots[i].job->stats.output_tokens;
            who[n++] = &s->slots[i];
        }
    }
    if (n == 0) {
        return;
    }
    round_run(s->engine, &s->spec, who, n, ends, &cost);
    s->count.steps++;
    s->count.rows += (uint64_t)cost.rows;
    s->count.failed += cost.failed;
    view_spec_add(&s->count.spec, &cost.spec);
    for (int i = 0; i < n; i++) {
        const struct job *j = who[i]->job;
        share_charge(&s->share, j->owner, 0, j->stats.output_tokens - said[i]);
        if (ends[i].over) {
            admit_finish(s, who[i], ends[i].reason);
        }
    }
}
