/* quasar bench --what pool: several sequences of their own side by side in the cache, what
 * each part of memory takes, and a step that all of them make at once. */
#include "config.h"

#include <stdio.h>

#include "base/clock.h"
#include "cmd/bench.h"
#include "kernels/backend.h"

#define STEPS 16

static int together(struct bench *b, const int *seqs, int n, double *ms, struct err *e)
{
    double t[STEPS];
    int32_t ids[BE_MAX_ROWS];
    int rc = 0;
    for (int i = 0; i < n; i++) {
        ids[i] = bench_random_id(b);
    }
    for (int k = -2; k < STEPS && rc == 0; k++) { /* two warm up */
        const int64_t start = clock_now(clock_real());
        rc = bench_step(b, seqs, ids, n, e);
        if (k >= 0) {
            t[k] = 1e3 * bench_since(start);
        }
    }
    *ms = rc == 0 ? bench_median(t, STEPS) : 0;
    return rc;
}

static void report(struct bench *b, int depth, int n, double ms)
{
    const struct engine_plan *m = &engine_info(b->g)->memory;
    const struct engine_kept k = engine_kept(b->g);
    const int64_t used = (int64_t)(k.pages - k.pages_free) * BE_PAGE;
    const uint64_t token = m->page / BE_PAGE;
    bench_add(b, json_pack("{s:s, s:s, s:i, s:i, s:I, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:f}",
                           "what", "pool", "kv_format", m->kv_format, "depth", depth, "rows", n,
                           "token_bytes", (json_int_t)token, "kv_tokens", m->tokens, "kv_bytes",
                           (json_int_t)m->kv, "used_tokens", (json_int_t)used, "used_bytes",
                           (json_int_t)((uint64_t)used * token), "weights_bytes",
                           (json_int_t)m->weights, "states_bytes", (json_int_t)m->states,
                           "left_bytes", (json_int_t)m->left, "ms_per_step", ms));
    if (!b->json) {
        printf("pool     %s: %d bytes a token; %d tokens in %.2f GB beside %.2f GB of weights and "
               "%.2f of states, %.2f left; %d of %d tokens at once take %.2f GB; %.3f ms a step of "
               "all\n",
               m->kv_format, (int)token, m->tokens, (double)m->kv / 1e9, (double)m->weights / 1e9,
               (double)m->states / 1e9, (double)m->left / 1e9, n, depth,
               (double)used * (double)token / 1e9, ms);
        fflush(stdout);
    }
}

int bench_pool(struct bench *b, int depth, int n, struct err *e)
{
    int seqs[BE_MAX_ROWS], opened = 0, rc = 0;
    double ms = 0;
    while (opened < n && rc == 0) {
        seqs[opened] = -1;
        rc = bench_fill(b, depth, &seqs[opened], e);
        opened += seqs[opened] >= 0;
    }
    rc = rc < 0 ? rc : together(b, seqs, n, &ms, e);
    if (rc == 0) {
        report(b, depth, n, ms);
    }
    for (int i = 0; i < opened; i++) {
        engine_seq_close(b->g, seqs[i]);
    }
    return rc;
}
