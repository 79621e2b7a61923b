/* Computing: prefill, decode and verify steps, drawing. Only here do
 * sequences grow. Outputs are rows of the backend's last main pass; whatever runs the
 * backend again invalidates them first. */
#include "config.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"
#include "engine/impl.h"
#include "engine/rules.h"

#define ASK_EVERY 16 /* steps, with the fast head: then the head itself is asked too */

int engine_check_tokens(const struct engine *g, const int32_t *tokens, int n, struct err *e)
{
    for (int i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= g->m.shape.vocab) {
            return err_set(e, QE_USAGE, "the token id %d is outside 0 to %d", tokens[i],
                           g->m.shape.vocab - 1);
        }
    }
    return 0;
}

int engine_ready_for(struct engine *g, int seq, int n, struct seq **out, struct err *e)
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
    if (p->n_want > g->max_out || p->want[0] < last) {
        return err_set(e, QE_USAGE,
                       "%d wanted rows from row %d: without a sink at most %d, all in the last "
                       "block of %d tokens",
                       p->n_want, p->want[0], g->max_out, BE_BLOCK);
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
        while (k < g->max_out && *next_want < p->n_want && p->want[*next_want] < from + n) {
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
    s->ahead = -1;
    s->pure = s->pure && s->len % BE_BLOCK == 0;
    rc = graph_main(&g->graph, &batch, e);
    if (rc == 0 && g->mtp) {
        rc = graph_mtp_follow(&g->graph, &batch, NULL, NULL, &g->scratch, e);
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
    int rc = engine_ready_for(g, p->seq, p->n, &s, e);
    if (rc == 0) {
        rc = check_prefill(g, p, s->len + p->n, e);
    }
    if (rc == 0) {
        rc = engine_check_tokens(g, p->tokens, p->n, e);
    }
    if (rc < 0) {
        return rc;
    }
    int max_rows = p->max_rows && p->max_rows < g->chunk ? p->max_rows : g->chunk;
    int64_t start = clock_now(clock_main());
    int next_want = 0, done = 0;
    engine_forget(g);
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
    g->count.prefill_s += clock_seconds(clock_now(clock_main()) - start);
    if (rc < 0 || p->sink) {
        g->n_out = 0;
    }
    return rc;
}

int engine_max_outputs(const struct engine *g)
{
    return g->max_out;
}

/* ---- decode ---- */

void engine_forget(struct engine *g)
{
    g->n_out = 0;
    g->held.n_spans = 0;
}

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
        if (span->n > g->width) {
            return err_set(e, QE_USAGE,
                           "a step with %d rows of one sequence; the verify width is %d", span->n,
                           g->width);
        }
        struct seq *s = NULL;
        int rc = engine_ready_for(g, seqs[i], span->n, &s, e);
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

/* Now and then the head itself is asked for the rows of a step before its copy is. */
static int ask_both(struct engine *g, int n, struct err *e)
{
    int32_t ids[2][BE_MAX_ROWS];
    float margins[BE_MAX_ROWS];
    int rc = 0;
    for (int fast = 0; fast < 2 && rc == 0; fast++) {
        g->ops->fast_head(g->b, fast);
        rc = g->ops->head(g->b, g->head_rows, n, e);
        rc = rc < 0 ? rc : engine_choose(g, n, ids[fast], margins, e);
    }
    g->ops->fast_head(g->b, true);
    for (int i = 0; i < n && rc == 0; i++) {
        g->count.compared++;
        g->count.differ += ids[0][i] != ids[1][i];
    }
    return rc;
}

/* Outputs of a batch, in the order of the caller's rows. */
static int batch_outputs(struct engine *g, const int *seqs, const int *row_of, int n, struct err *e)
{
    for (int i = 0; i < n; i++) {
        int k = 0; /* rows of the same sequence before this one */
        for (int j = 0; j < i; j++) {
            k += seqs[j] == seqs[i];
        }
        g->head_rows[i] = row_of[i];
        g->out[i] =
            (struct output){.row = row_of[i], .seq = seqs[i], .pos = g->seqs[seqs[i]].len + k};
    }
    if (g->fast && ++g->unasked >= ASK_EVERY) {
        g->unasked = 0;
        return ask_both(g, n, e);
    }
    return g->ops->head(g->b, g->head_rows, n, e);
}

/* The rows of a step as a batch; spans and tokens have room for BE_MAX_ROWS. */
static int step_batch(struct engine *g, const int *seqs, const int32_t *tokens, int n,
                      enum be_mode mode, struct be_span *spans, int32_t *sorted, int *row_of,
                      struct be_batch *out, struct err *e)
{
    if (n < 1 || n > BE_MAX_ROWS) {
        return err_set(e, QE_USAGE, "a decode step has 1 to %d rows, not %d", BE_MAX_ROWS, n);
    }
    int rc = engine_check_tokens(g, tokens, n, e);
    if (rc < 0) {
        return rc;
    }
    const int n_spans = group_rows(g, seqs, n, spans, row_of, e);
    if (n_spans < 0) {
        return n_spans;
    }
    for (int i = 0; i < n; i++) {
        sorted[row_of[i]] = tokens[i];
    }
    *out = (struct be_batch){
        .mode = mode, .n_rows = n, .n_spans = n_spans, .spans = spans, .tokens = sorted};
    return 0;
}

static void count_step(struct engine *g, int rows, int64_t start)
{
    g->count.decode_rows += (uint64_t)rows;
    g->count.decode_steps++;
    g->count.decode_s += clock_seconds(clock_now(clock_main()) - start);
}

int engine_decode(struct engine *g, const int *seqs, const int32_t *tokens, int n, struct err *e)
{
    struct be_span spans[BE_MAX_ROWS];
    int32_t sorted[BE_MAX_ROWS];
    int row_of[BE_MAX_ROWS];
    bool ahead[BE_MAX_ROWS];
    struct be_batch batch;
    int rc = step_batch(g, seqs, tokens, n, BE_DECODE, spans, sorted, row_of, &batch, e);
    if (rc < 0) {
        return rc;
    }
    int64_t start = clock_now(clock_main());
    engine_forget(g);
    for (int i = 0, row = 0; i < batch.n_spans; row += spans[i++].n) {
        struct seq *s = &g->seqs[spans[i].slot];
        s->broken = true;
        s->pure = false;
        ahead[i] = s->ahead == sorted[row];
        s->ahead = -1;
    }
    rc = graph_main(&g->graph, &batch, e);
    if (rc == 0) {
        rc = batch_outputs(g, seqs, row_of, n, e);
    }
    if (rc == 0 && g->mtp) {
        rc = graph_mtp_follow(&g->graph, &batch, NULL, ahead, &g->scratch, e);
    }
    if (rc < 0) {
        return rc;
    }
    for (int i = 0; i < batch.n_spans; i++) {
        g->seqs[spans[i].slot].len += spans[i].n;
        g->seqs[spans[i].slot].broken = false;
    }
    g->n_out = n;
    count_step(g, n, start);
    return 0;
}

int engine_verify(struct engine *g, const int *seqs, const int32_t *tokens, int n, struct err *e)
{
    if (!g->ops->fold) {
        return err_set(e, QE_UNSUPPORTED, "%s", g->info.no_verify);
    }
    struct held *h = &g->held;
    int row_of[BE_MAX_ROWS];
    struct be_batch batch;
    engine_forget(g);
    int rc = step_batch(g, seqs, tokens, n, BE_VERIFY, h->spans, h->tokens, row_of, &batch, e);
    if (rc < 0) {
        return rc;
    }
    int64_t start = clock_now(clock_main());
    rc = graph_main(&g->graph, &batch, e);
    if (rc == 0) {
        rc = batch_outputs(g, seqs, row_of, n, e);
    }
    if (rc < 0) {
        return rc;
    }
    h->n_spans = batch.n_spans;
    h->n_rows = n;
    g->n_out = n;
    count_step(g, n, start);
    return 0;
}

/* What each held span keeps, from the caller's order. */
static int kept_rows(const struct engine *g, const int *seqs, const int *keep, int n, int *out,
                     struct err *e)
{
    const struct held *h = &g->held;
    if (h->n_spans == 0) {
        return err_set(e, QE_USAGE, "there is no verified step to commit");
    }
    if (n != h->n_spans) {
        return err_set(e, QE_USAGE, "the verified step had %d sequences, not %d", h->n_spans, n);
    }
    for (int i = 0; i < n; i++) {
        out[i] = -1;
    }
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < n && h->spans[k].slot != seqs[i]) {
            k++;
        }
        if (k == n || out[k] >= 0 || keep[i] < 0 || keep[i] > h->spans[k].n) {
            return err_set(e, QE_USAGE, "%d rows of sequence %d are not what was verified, once",
                           keep[i], seqs[i]);
        }
        out[k] = keep[i];
    }
    return 0;
}

int engine_commit(struct engine *g, const int *seqs, const int *keep, int n, struct err *e)
{
    struct held *h = &g->held;
    int rows[BE_MAX_ROWS];
    bool ahead[BE_MAX_ROWS];
    int rc = kept_rows(g, seqs, keep, n, rows, e);
    if (rc < 0) {
        return rc;
    }
    int64_t start = clock_now(clock_main());
    const struct be_batch batch = {.mode = BE_VERIFY,
                                   .n_rows = h->n_rows,
                                   .n_spans = h->n_spans,
                                   .spans = h->spans,
                                   .tokens = h->tokens};
    h->n_spans = 0;
    for (int i = 0, row = 0; i < n; row += h->spans[i++].n) {
        struct seq *s = &g->seqs[h->spans[i].slot];
        ahead[i] = s->ahead == h->tokens[row];
        s->broken = rows[i] > 0;
        s->pure = s->pure && rows[i] == 0;
        s->ahead = rows[i] > 0 ? -1 : s->ahead;
    }
    rc = g->ops->fold(g->b, rows, e);
    if (rc == 0 && g->mtp) {
        rc = graph_mtp_follow(&g->graph, &batch, rows, ahead, &g->scratch, e);
    }
    if (rc < 0) {
        return rc;
    }
    for (int i = 0; i < n; i++) {
        g->seqs[h->spans[i].slot].len += rows[i];
        g->seqs[h->spans[i].slot].broken = false;
    }
    g->count.decode_s += clock_seconds(clock_now(clock_main()) - start);
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
        if (rc == 0 && (d[i].n_draft < 0 || d[i].n_draft > ENGINE_MAX_DRAFT)) {
            rc = err_set(e, QE_USAGE, "%d drafts before a row; the limit is %d", d[i].n_draft,
                         ENGINE_MAX_DRAFT);
        }
        if (rc < 0) {
            return rc;
        }
        struct be_sample *s = &g->draws[outputs[i]];
        *s = (struct be_sample){.temp = d[i].temp,
                                .top_p = d[i].top_p,
                                .min_p = d[i].min_p,
                                .top_k = d[i].top_k,
                                .seed = d[i].seed,
                                .pos = (uint32_t)o.pos + 1};
        rules_row(d[i].rules, d[i].draft, d[i].n_draft, s);
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
