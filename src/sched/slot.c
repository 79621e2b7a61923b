/* What one running sequence does next and when it is over. The order in which
 * ends are looked for is docs/sampling.md's: stop ids before limits. */
#include "config.h"
#include "sched/slot.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/rules.h"

#define GRID       64
#define CHUNK_MAX  2048
#define CHUNK_INIT 256

void slot_start(struct slot *s, struct job *j, int seq, int cached, int ctx, uint64_t order)
{
    memset(s, 0, sizeof *s);
    s->job = j;
    s->seq = seq;
    s->cap = j->n_prompt + 64;
    s->ids = mem_array((size_t)s->cap, sizeof *s->ids);
    memcpy(s->ids, j->prompt, (size_t)j->n_prompt * sizeof *s->ids);
    s->n = j->n_prompt;
    s->done = cached;
    s->order = order;
    /* The last token drawn need not be computed, but takes a position. */
    int room = ctx - j->n_prompt;
    s->limit = j->max_tokens >= 0 && j->max_tokens < room ? j->max_tokens : room;
}

int slot_chunk(double tok_s, double seconds)
{
    double want = tok_s > 0 ? tok_s * seconds : CHUNK_INIT;
    if (want > CHUNK_MAX) {
        want = CHUNK_MAX;
    }
    int rows = (int)want / GRID * GRID;
    return rows < GRID ? GRID : rows;
}

int slot_prefill(struct slot *s, struct engine *g, int rows, bool *got, int32_t *id, struct err *e)
{
    struct job *j = s->job;
    int end = (s->done + rows) / GRID * GRID;
    if (end <= s->done || end > j->n_prompt) {
        end = j->n_prompt;
    }
    bool last = end == j->n_prompt;
    int32_t want = end - s->done - 1;
    struct engine_prefill p = {
        .seq = s->seq,
        .tokens = j->prompt + s->done,
        .n = end - s->done,
        .want = &want,
        .n_want = last ? 1 : 0,
    };
    int rc = engine_prefill(g, &p, e);
    if (rc < 0) {
        return rc;
    }
    s->done = end;
    *got = last;
    if (!last) {
        return 0;
    }
    j->stats.rounds++;
    const int output = 0;
    const struct engine_draw draw = slot_draw(s, NULL, 0);
    rc = engine_sample(g, &output, &draw, 1, id, e);
    return rc < 0 ? rc : slot_drawn(s, g, output, *id, e);
}

struct engine_draw slot_draw(const struct slot *s, const int32_t *draft, int n)
{
    struct engine_draw d = s->job->draw;
    d.rules = s->job->rules;
    d.draft = draft;
    d.n_draft = n;
    return d;
}

int slot_drawn(struct slot *s, struct engine *g, int output, int32_t id, struct err *e)
{
    struct job *j = s->job;
    if (id < 0) {
        return err_set(e, QE_USAGE,
                       "no token is left to draw: bias, allowed ids, bad words and the form of "
                       "the answer exclude all of them");
    }
    return j->logprobs ? engine_logprobs(g, output, id, j->logprobs - 1, job_note(j), e) : 0;
}

bool slot_accept(struct slot *s, int32_t id, enum job_reason *reason)
{
    struct job *j = s->job;
    if (s->n == s->cap) {
        s->cap *= 2;
        s->ids = mem_realloc(s->ids, (size_t)s->cap * sizeof *s->ids);
    }
    s->ids[s->n++] = id;
    s->decoding = true;
    job_token(j, id);
    rules_take(j->rules, id);
    if (s->q) {
        spec_seq_push(s->q, &id, 1);
    }
    for (size_t i = 0; i < j->n_stop && j->stats.output_tokens >= j->min_tokens; i++) {
        if (j->stop[i] == id) {
            *reason = JR_STOP;
            return true;
        }
    }
    if (j->stats.output_tokens >= s->limit) {
        *reason = JR_LENGTH;
        return true;
    }
    return false;
}
