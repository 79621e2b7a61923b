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
#define REPEAT     16

void slot_start(struct slot *s, struct job *j, int seq, int cached, int ctx)
{
    memset(s, 0, sizeof *s);
    s->job = j;
    s->seq = seq;
    s->cap = j->n_prompt + 64;
    s->ids = mem_array((size_t)s->cap, sizeof *s->ids);
    memcpy(s->ids, j->prompt, (size_t)j->n_prompt * sizeof *s->ids);
    s->n = j->n_prompt;
    s->done = cached;
    /* The last token drawn need not be computed, but takes a position. */
    int room = ctx - j->n_prompt;
    s->limit = j->max_tokens >= 0 && j->max_tokens < room ? j->max_tokens : room;
}

int slot_most(const struct slot *s)
{
    return s->job->n_prompt + s->limit;
}

int slot_left(const struct slot *s)
{
    return (s->again > s->job->n_prompt ? s->again : s->job->n_prompt) - s->done;
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

int slot_end(const struct slot *s, int rows)
{
    const int end = (s->done + rows) / GRID * GRID;
    return end <= s->done || end > s->job->n_prompt ? s->job->n_prompt : end;
}

int slot_prefill(struct slot *s, struct engine *g, int rows, bool *got, int32_t *id, struct err *e)
{
    struct job *j = s->job;
    const int end = slot_end(s, rows);
    bool last = end == j->n_prompt;
    int32_t want = end - s->done - 1;
    struct engine_prefill p = {
        .seq = s->seq,
        .tokens = j->prompt + s->done,
        .n = end - s->done,
        .want = &want,
        .n_want = last && s->again == 0 ? 1 : 0,
    };
    int rc = engine_prefill(g, &p, e);
    if (rc < 0) {
        return rc;
    }
    s->done = end;
    *got = last && s->again == 0;
    if (!*got) {
        return 0;
    }
    j->stats.rounds++;
    const int output = 0;
    const struct engine_draw draw = slot_draw(s, NULL, 0);
    rc = engine_sample(g, &output, &draw, 1, id, e);
    return rc < 0 ? rc : slot_drawn(s, g, output, *id, e);
}

int slot_repeat(struct slot *s, struct engine *g, int rows, int *n, struct err *e)
{
    int seqs[REPEAT];
    rows = rows < REPEAT ? rows : REPEAT;
    *n = s->again - s->done < rows ? s->again - s->done : rows;
    for (int i = 0; i < *n; i++) {
        seqs[i] = s->seq;
    }
    const int rc = engine_decode(g, seqs, s->ids + s->done, *n, e);
    if (rc == 0) {
        s->done += *n;
    }
    return rc;
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
