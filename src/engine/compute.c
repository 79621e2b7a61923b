/* Computing: prefill, decode steps, drawing and drafting. Only here do sequences
 * grow. Outputs are rows of the backend's last main pass; whatever runs the
 * backend again invalidates them first. */
#include "config.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "engine/impl.h"

static int check_tokens(const struct engine *g, const int32_t *tokens, int n, struct err *e)
{
    for (int i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= g->m.shape.vocab) {
            return err_set(e, QE_USAGE, "the token id %d is outside 0 to %d", tokens[i],
                           g->m.shape.vocab - 1);
        }
    }
    return 0;
}

/* The sequence, ready for n more tokens. */
static int ready_for(struct engine *g, int seq, int n, struct seq **out, struct err *e)
{
    struct seq *s = NULL;
    int rc = engine_seq_of(g, seq, &s, e);
    if (rc < 0) {
        return rc;
    }
    if (s->broken) {
        return err_set(e, QE_INTERNAL, "sequence %d failed in the middle of a step: reset it", seq);
    }
    if (n > g->ctx - s->len) {
        return err_set(e, QE_NOMEM,
                       "%d more tokens after %d do not fit the context window of %d tokens", n,
                       s->len, g->ctx);
    }
    *out = s;
    return 0;
}

/* ---- prefill ---- */

static int check_prefill(const struct engine *g, const struct engine_prefill *p, int end,
                         struct err *e)
{
    if (p->n < 1) {
        return err_set(e, QE_USAGE, "there is no token to compute");
    }
    if (p->max_rows < 0 || p->max_rows % BE_BLOCK != 0) {
        return err_set(e, QE_USAGE, "a prefill chunk of %d rows is not a multiple of %d",
                       p->max_rows, BE_BLOCK);
    }
    for (int i = 0; i < p->n_want; i++) {
        if (p->want[i] < 0 || p->want[i] >= p->n || (i > 0 && p->want[i] <= p->want[i - 1])) {
            return err_set(e, QE_USAGE, "wanted row %d is not ascending within the %d tokens",
                           p->want[i], p->n);
        }
    }
    if (p->sink || p->n_want == 0) {
        return 0;
    }
    /* The last chunk holds at least the tokens from the last multiple of 64. */
    int last = end - p->n < (end - 1) / BE_BLOCK * BE_BLOCK
                   ? (end - 1) / BE_BLOCK * BE_BLOCK - (end - p->n)
                   : 0;
    if (p->n_want > g->ops->max_out || p->want[0] < last) {
        return err_set(e, QE_USAGE,
                       "%d wanted rows from row %d: without a sink at most %d, all in the last "
                       "block of %d tokens",
                       p->n_want, p->want[0], g->ops->max_out, BE_BLOCK);
    }
    return 0;
}

/* Head over the wanted rows of a chunk (rows from..from+n-1 of p->tokens), in
 * groups of max_out; each group goes to the sink before the next. */
static int chunk_outputs(struct engine *g, const struct engine_prefill *p, int from, int n, int pos,
                         int *next_want, struct err *e)
{
    int rc = 0;
    while (rc == 0 && *next_want < p->n_want && p->want[*next_want] < from + n) {
        int first = *next_want, k = 0;
        while (k < g->ops->max_out && *next_want < p->n_want && p->want[*next_want] < from + n) {
            int row = p->want[(*next_want)++] - from;
            g->head_rows[k] = row;
            g->out[k++] = (struct output){.row = row, .seq = p->seq, .pos = pos + row};
        }
        rc = g->ops->head(g->b, g->head_rows, k, e);
        if (rc == 0) {
            g->n_out = k;
        }
        for (int i = 0; p->sink && i < k && rc == 0; i++) {
            rc = p->sink(p->sink_ctx, p->want[first + i], i, e);
        }
    }
    return rc;
}

static int prefill_chunk(struct engine *g, struct seq *s, const struct engine_prefill *p, int from,
                         int n, int *next_want, struct err *e)
{
    int rc =
        kv_writable(&g->pool, &s->kv, g->mtp && s->len > 0 ? s->len - 1 : s->len, s->len + n, e);
    if (rc < 0) {
        return rc;
    }
    struct be_span span = {.slot = p->seq, .pos = s->len, .n = n, .pages = s->kv.pages};
    struct be_batch batch = {
        .mode = BE_PREFILL, .n_rows = n, .n_spans = 1, .spans = &span, .tokens = p->tokens + from};
    s->broken = true;
    rc = graph_main(&g->graph, &batch, e);
    if (rc == 0 && g->mtp) {
        rc = graph_mtp_follow(&g->graph, &batch, &g->scratch, e);
    }
    if (rc < 0) {
        return rc;
    }
    s->broken = false;
    s->len += n;
    return chunk_outputs(g, p, from, n, span.pos, next_want, e);
}

int engine_prefill(struct engine *g, const struct engine_prefill *p, struct err *e)
{
    struct seq *s = NULL;
    int rc = ready_for(g, p->seq, p->n, &s, e);
    if (rc == 0) {
        rc = check_prefill(g, p, s->len + p->n, e);
    }
    if (rc == 0) {
        rc = check_tokens(g, p->tokens, p->n, e);
    }
    if (rc < 0) {
        return rc;
    }
    int max_rows = p->max_rows && p->max_rows < g->chunk ? p->max_rows : g->chunk;
    int64_t start = clock_now(clock_real());
    int next_want = 0, done = 0;
    g->n_out = 0;
    while (done < p->n && rc == 0) {
        if (p->cancel && *p->cancel) {
            rc = err_set(e, QE_CANCELLED, "cancelled");
            break;
        }
        int n = p->n - done;
        if (n > max_rows) {
            n = (s->len + max_rows) / BE_BLOCK * BE_BLOCK - s->len;
        }
        rc = prefill_chunk(g, s, p, done, n, &next_want, e);
        if (rc == 0) {
            done += n;
            g->count.prefill_tokens += (uint64_t)n;
            if (p->progress) {
                p->progress(p->progress_ctx, done, p->n);
            }
        }
    }
    g->count.prefill_s += clock_seconds(clock_now(clock_real()) - start);
    if (rc < 0 || p->sink) {
        g->n_out = 0;
    }
    return rc;
}

int engine_max_outputs(const struct engine *g)
{
    return g->ops->max_out;
}

/* ---- decode ---- */

/* Sorts the rows by sequence, in order of first appearance: row_of[i] is where
 * row i goes. Returns the number of spans, or an error. */
static int group_rows(struct engine *g, const int *seqs, int n, struct be_span *spans, int *row_of,
                      struct err *e)
{
    int n_spans = 0, row = 0;
    for (int i = 0; i < n; i++) {
        row_of[i] = -1;
    }
    for (int i = 0; i < n; i++) {
        if (row_of[i] >= 0) {
            continue;
        }
        struct be_span *span = &spans[n_spans++];
        *span = (struct be_span){.slot = seqs[i]};
        for (int j = i; j < n; j++) {
            if (seqs[j] == seqs[i]) {
                row_of[j] = row++;
                span->n++;
            }
        }
        struct seq *s = NULL;
        int rc = ready_for(g, seqs[i], span->n, &s, e);
        if (rc == 0) {
            int from = g->mtp && s->len > 0 ? s->len - 1 : s->len;
            rc = kv_writable(&g->pool, &s->kv, from, s->len + span->n, e);
        }
        if (rc < 0) {
            return rc;
        }
        span->pos = s->len;
        span->pages = s->kv.pages;
    }
    return n_spans;
}

int engine_decode(struct engine *g, const int *seqs, const int32_t *tokens, int n, struct err *e)
{
    if (n < 1 || n > BE_MAX_ROWS) {
        return err_set(e, QE_USAGE, "a decode step has 1 to %d rows, not %d", BE_MAX_ROWS, n);
    }
    int rc = check_tokens(g, tokens, n, e);
    if (rc < 0) {
        return rc;
    }
    struct be_span spans[BE_MAX_ROWS];
    int row_of[BE_MAX_ROWS];
    int n_spans = group_rows(g, seqs, n, spans, row_of, e);
    if (n_spans < 0) {
        return n_spans;
    }
    int64_t start = clock_now(clock_real());
    int32_t sorted[BE_MAX_ROWS];
    for (int i = 0; i < n; i++) {
        sorted[row_of[i]] = tokens[i];
    }
    struct be_batch batch = {
        .mode = BE_DECODE, .n_rows = n, .n_spans = n_spans, .spans = spans, .tokens = sorted};
    g->n_out = 0;
    for (int i = 0; i < n_spans; i++) {
        g->seqs[spans[i].slot].broken = true;
    }
    rc = graph_main(&g->graph, &batch, e);
    for (int i = 0; i < n; i++) {
        g->head_rows[i] = row_of[i];
    }
    if (rc == 0) {
        rc = g->ops->head(g->b, g->head_rows, n, e);
    }
    if (rc == 0 && g->mtp) {
        rc = graph_mtp_follow(&g->graph, &batch, &g->scratch, e);
    }
    if (rc < 0) {
        return rc;
    }
    int filled[BE_MAX_ROWS] = {0};
    for (int i = 0; i < n; i++) {
        int k = 0; /* rows of the same sequence before this one */
        for (int j = 0; j < i; j++) {
            k += seqs[j] == seqs[i];
        }
        filled[i] = g->seqs[seqs[i]].len + k;
    }
    for (int i = 0; i < n; i++) {
        g->out[i] = (struct output){.row = row_of[i], .seq = seqs[i], .pos = filled[i]};
    }
    for (int i = 0; i < n_spans; i++) {
        g->seqs[spans[i].slot].len += spans[i].n;
        g->seqs[spans[i].slot].broken = false;
    }
    g->n_out = n;
    g->count.decode_rows += (uint64_t)n;
    g->count.decode_steps++;
    g->count.decode_s += clock_seconds(clock_now(clock_real()) - start);
    return 0;
}

/* ---- reading ---- */

static int output_of(const struct engine *g, int output, struct output *out, struct err *e)
{
    if (output < 0 || output >= g->n_out) {
        return err_set(e, QE_USAGE, "there is no output %d (%d are readable)", output, g->n_out);
    }
    *out = g->out[output];
    return 0;
}

int engine_sample(struct engine *g, const int *outputs, const struct engine_draw *d, int n,
                  int32_t *ids, struct err *e)
{
    for (int i = 0; i < g->n_out; i++) {
        g->draws[i] = (struct be_sample){.top_p = 1}; /* nobody's: greedy, the cheapest */
    }
    for (int i = 0; i < n; i++) {
        struct output o = {0};
        int rc = output_of(g, outputs[i], &o, e);
        if (rc < 0) {
            return rc;
        }
        g->draws[outputs[i]] = (struct be_sample){.temp = d[i].temp,
                                                  .top_p = d[i].top_p,
                                                  .min_p = d[i].min_p,
                                                  .top_k = d[i].top_k,
                                                  .seed = d[i].seed,
                                                  .pos = (uint32_t)o.pos + 1};
    }
    if (n == 0) {
        return 0;
    }
    int rc = g->ops->sample(g->b, g->draws, g->n_out, g->ids, e);
    for (int i = 0; i < n && rc == 0; i++) {
        ids[i] = g->ids[outputs[i]];
    }
    return rc;
}

int engine_logits(struct engine *g, int output, float *out, struct err *e)
{
    struct output o = {0};
    int rc = output_of(g, output, &o, e);
    return rc == 0 ? g->ops->read_logits(g->b, output, out, e) : rc;
}

int engine_hidden(struct engine *g, int output, float *out, struct err *e)
{
    struct output o = {0};
    int rc = output_of(g, output, &o, e);
    return rc == 0 ? g->ops->read_hidden(g->b, o.row, out, e) : rc;
}

/* ---- drafting ---- */

/* The first step pairs next with the saved hidden state at the last position: a
 * true pair if next is taken. The others stand on drafts; the true pairs that
 * come later overwrite them. */
int engine_mtp_draft(struct engine *g, int seq, int32_t next, int depth, int32_t *ids,
                     struct err *e)
{
    struct seq *s = NULL;
    int rc = ready_for(g, seq, 0, &s, e);
    if (rc == 0) {
        rc = check_tokens(g, &next, 1, e);
    }
    if (rc < 0) {
        return rc;
    }
    if (!g->mtp) {
        return err_set(e, QE_UNSUPPORTED, "the model has no MTP layer, or it is switched off");
    }
    if (depth < 1 || depth > ENGINE_MAX_DRAFT || s->len < 1) {
        return err_set(e, QE_USAGE, "%d drafts after %d tokens: 1 to %d after at least one token",
                       depth, s->len, ENGINE_MAX_DRAFT);
    }
    int pos = s->len - 1;
    rc = kv_writable(&g->pool, &s->kv, pos, pos + depth, e);
    g->n_out = 0;
    int32_t token = next, source = BE_H_SLOT;
    const int32_t row = 0;
    for (int i = 0; i < depth && rc == 0; i++) {
        struct be_span span = {.slot = seq, .pos = pos + i, .n = 1, .pages = s->kv.pages};
        struct be_batch batch = {
            .mode = BE_DECODE, .n_rows = 1, .n_spans = 1, .spans = &span, .tokens = &token};
        struct be_sample greedy = {.top_p = 1};
        rc = graph_mtp(&g->graph, &batch, &source, false, e);
        if (rc == 0) {
            rc = g->ops->mtp_head(g->b, &row, 1, e);
        }
        if (rc == 0) {
            rc = g->ops->sample(g->b, &greedy, 1, &ids[i], e);
        }
        token = rc == 0 ? ids[i] : 0;
        source = BE_H_CHAIN;
    }
    return rc;
}
