/* Drafting with the MTP layer. The first step pairs the pending token with the
 * saved hidden state: a true pair if that token is taken. The others stand on drafts;
 * the true pairs that come later overwrite them. */
#include "config.h"

#include <math.h>

#include "base/clock.h"
#include "engine/impl.h"

static int check(struct engine *g, const struct engine_draft *d, struct err *e)
{
    struct seq *s = NULL;
    int rc = engine_ready_for(g, d->seq, 0, &s, e);
    if (rc == 0) {
        rc = engine_check_tokens(g, &d->next, 1, e);
    }
    if (rc < 0) {
        return rc;
    }
    if (!g->mtp) {
        return err_set(e, QE_UNSUPPORTED, "the model has no MTP layer, or it is switched off");
    }
    if (d->depth < 1 || d->depth > g->max_draft || s->len < 1) {
        return err_set(e, QE_USAGE, "%d drafts after %d tokens: 1 to %d after at least one token",
                       d->depth, s->len, g->max_draft);
    }
    return kv_writable(&g->pool, &s->kv, s->len - 1, s->len - 1 + d->depth, e);
}

int engine_choose(struct engine *g, int n, int32_t *ids, float *margins, struct err *e)
{
    if (g->ops->best) {
        return g->ops->best(g->b, n, ids, margins, e);
    }
    for (int i = 0; i < n; i++) {
        g->draws[i] = (struct be_sample){.top_p = 1};
        margins[i] = INFINITY;
    }
    return g->ops->sample(g->b, g->draws, n, ids, e);
}

bool engine_ends(const struct engine *g, int32_t id)
{
    return model_config_ends(&g->m, id);
}

/* One step of the drafts who[0..n): each has d->steps behind it. */
static int draft_step(struct engine *g, struct engine_draft *const *who, const int32_t *source,
                      int n, struct err *e)
{
    struct be_span spans[BE_MAX_ROWS];
    int32_t tokens[BE_MAX_ROWS], rows[BE_MAX_ROWS], ids[BE_MAX_ROWS];
    float margins[BE_MAX_ROWS];
    for (int i = 0; i < n; i++) {
        const struct engine_draft *d = who[i];
        struct seq *s = &g->seqs[d->seq];
        spans[i] = (struct be_span){
            .slot = d->seq, .pos = s->len - 1 + d->steps, .n = 1, .pages = s->kv.pages};
        tokens[i] = d->steps == 0 ? d->next : d->ids[d->steps - 1];
        rows[i] = i;
    }
    const struct be_batch batch = {
        .mode = BE_DECODE, .n_rows = n, .n_spans = n, .spans = spans, .tokens = tokens};
    int rc = graph_mtp(&g->graph, &batch, source, false, e);
    if (rc == 0) {
        rc = g->ops->mtp_head(g->b, rows, n, e);
    }
    if (rc == 0) {
        rc = engine_choose(g, n, ids, margins, e);
    }
    for (int i = 0; i < n && rc == 0; i++) {
        who[i]->ids[who[i]->steps] = ids[i];
        who[i]->margins[who[i]->steps++] = margins[i];
    }
    return rc;
}

int engine_draft(struct engine *g, struct engine_draft *d, int n, struct err *e)
{
    struct engine_draft *who[BE_MAX_ROWS];
    int32_t source[BE_MAX_ROWS];
    if (n < 1 || n > BE_MAX_ROWS) {
        return err_set(e, QE_USAGE, "drafts for 1 to %d sequences, not %d", BE_MAX_ROWS, n);
    }
    for (int i = 0; i < n; i++) {
        int rc = check(g, &d[i], e);
        for (int j = 0; j < i && rc == 0; j++) {
            rc = d[j].seq == d[i].seq
                     ? err_set(e, QE_USAGE, "sequence %d is to be drafted twice", d[i].seq)
                     : 0;
        }
        if (rc < 0) {
            return rc;
        }
        d[i].n = d[i].steps = 0;
        who[i] = &d[i];
        source[i] = BE_H_SLOT;
    }
    int64_t start = clock_now(clock_main());
    engine_forget(g);
    int rc = 0;
    for (int left = n; left > 0 && rc == 0;) {
        for (int i = 0; i < left; i++) {
            if (who[i]->steps == 0) {
                g->seqs[who[i]->seq].ahead = -1; /* until the step is made */
            }
        }
        rc = draft_step(g, who, source, left, e);
        g->count.draft_steps++;
        g->count.draft_rows += (uint64_t)left;
        int on = 0;
        for (int i = 0; i < left && rc == 0; i++) {
            struct engine_draft *k = who[i];
            g->seqs[k->seq].ahead = k->next;
            k->n += k->margins[k->steps - 1] >= k->least;
            const bool over = k->to_end && engine_ends(g, k->ids[k->steps - 1]);
            if (k->n == k->steps && k->n < k->depth && !over) {
                source[on] = on == i ? (int32_t)BE_H_CHAIN : BE_H_CHAIN - 1 - i;
                who[on++] = k;
            }
        }
        left = on;
    }
    g->count.draft_s += clock_seconds(clock_now(clock_main()) - start);
    return rc;
}

int engine_own_drafts(struct engine *g, int seq, int most, int32_t *ids, int *source)
{
    return g->ops->own_drafts ? g->ops->own_drafts(g->b, seq, most, ids, source) : -1;
}

int engine_mtp_draft(struct engine *g, int seq, int32_t next, int depth, int32_t *ids,
                     struct err *e)
{
    struct engine_draft d = {.seq = seq, .next = next, .depth = depth};
    int rc = engine_draft(g, &d, 1, e);
    for (int i = 0; i < depth && rc == 0; i++) {
        ids[i] = d.ids[i];
    }
    return rc;
}
