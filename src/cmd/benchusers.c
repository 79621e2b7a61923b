/* quasar bench --what users: a step of many conversations at once beside that of one, what each
 * more costs by part, rounds with drafts accepted by chance, and the longest wait for a token
 * while another's prompt is computed. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/philox.h"
#include "cmd/bench.h"
#include "engine/cost.h"
#include "kernels/backend.h"

#define STEPS   16   /* of one repetition */
#define ROUNDS  12   /* likewise, with drafts */
#define MOST    12   /* repetitions: the window has room for no more */
#define CHUNK_S 0.04 /* of a prompt between two steps, as the scheduler has it */
#define GRID    64   /* a prompt is cut at multiples of it */

/* What is measured of n users. */
struct users {
    int n, reps;
    int seqs[BE_MAX_ROWS];
};

static int users_open(struct bench *b, int depth, int n, struct users *u, struct err *e)
{
    int rc = 0;
    *u = (struct users){.reps = b->reps < MOST ? b->reps : MOST};
    while (u->n < n && rc == 0) { /* each its own pages */
        u->seqs[u->n] = -1;
        rc = bench_fill(b, depth, &u->seqs[u->n], e);
        u->n += u->seqs[u->n] >= 0;
    }
    return rc;
}

static void users_close(struct bench *b, struct users *u)
{
    for (int i = 0; i < u->n; i++) {
        engine_seq_close(b->g, u->seqs[i]);
    }
    u->n = 0;
}

/* One token of each. */
static int step(struct bench *b, struct users *u, struct err *e)
{
    int32_t ids[BE_MAX_ROWS];
    for (int i = 0; i < u->n; i++) {
        ids[i] = bench_random_id(b);
    }
    return bench_step(b, u->seqs, ids, u->n, e);
}

static int time_steps(struct bench *b, struct users *u, double *ms, struct err *e)
{
    double t[MOST];
    int rc = 0;
    for (int rep = -1; rep < u->reps && rc == 0; rep++) { /* the first warms up */
        const int64_t start = clock_now(clock_real());
        for (int k = 0; k < STEPS && rc == 0; k++) {
            rc = step(b, u, e);
        }
        if (rep >= 0) {
            t[rep] = 1e3 * bench_since(start) / STEPS;
        }
    }
    *ms = rc == 0 ? bench_median(t, u->reps) : 0;
    return rc;
}

/* ---- parts ---- */

static json_t *parts_json(const struct engine_profile *p, const struct engine_profile *one, int n)
{
    json_t *a = json_array();
    for (int i = 0; i < EP_COUNT; i++) {
        const double more = n > 1 ? (p->part[i].ms - one->part[i].ms) / (n - 1) : 0;
        json_array_append_new(a, json_pack("{s:s, s:f, s:f}", "part",
                                           engine_part_name((enum engine_part)i), "ms",
                                           p->part[i].ms, "ms_per_more_user", more));
    }
    return a;
}

static void print_parts(const struct engine_profile *p, const struct engine_profile *one, int n)
{
    for (int i = 0; i < EP_COUNT; i++) {
        printf("  %-12s %9.3f ms", engine_part_name((enum engine_part)i), p->part[i].ms);
        if (n > 1) {
            printf("  %8.4f for each more user", (p->part[i].ms - one->part[i].ms) / (n - 1));
        }
        printf("\n");
    }
}

/* ---- with drafts ---- */

/* A round of all: drafts in one pass, one verified step, each keeps what chance leaves him.
 * Returns tokens, or an error. */
static int draft_round(struct bench *b, struct users *u, int drafts, double accept, struct err *e)
{
    struct engine_draft d[BE_MAX_ROWS];
    struct engine_draw draw[BE_MAX_ROWS];
    int seqs[BE_MAX_ROWS], out[BE_MAX_ROWS], keep[BE_MAX_ROWS], rows = 0, tokens = 0;
    int32_t ids[BE_MAX_ROWS];
    for (int i = 0; i < u->n; i++) {
        d[i] =
            (struct engine_draft){.seq = u->seqs[i], .next = bench_random_id(b), .depth = drafts};
    }
    int rc = engine_draft(b->g, d, u->n, e);
    for (int i = 0; i < u->n && rc == 0; i++) {
        keep[i] = 1;
        while (keep[i] <= drafts &&
               philox_word(6, b->drawn++, PHILOX_TARGET, 0) < accept * 0x1p32) {
            keep[i]++;
        }
        tokens += keep[i];
        for (int k = 0; k <= drafts; k++) {
            seqs[rows] = u->seqs[i];
            out[rows] = rows;
            ids[rows] = k == 0 ? d[i].next : d[i].ids[k - 1];
            draw[rows++] = (struct engine_draw){.top_p = 1};
        }
    }
    rc = rc < 0 ? rc : engine_verify(b->g, seqs, ids, rows, e);
    rc = rc < 0 ? rc : engine_sample(b->g, out, draw, rows, ids, e);
    rc = rc < 0 ? rc : engine_commit(b->g, u->seqs, keep, u->n, e);
    return rc < 0 ? rc : tokens;
}

static int time_drafts(struct bench *b, int depth, int n, int drafts, double accept, double plain,
                       struct err *e)
{
    struct users u;
    double t[MOST], tok_s[MOST];
    int rc = users_open(b, depth > 0 ? depth : 1, n, &u, e);
    for (int rep = -1; rep < u.reps && rc >= 0; rep++) {
        int tokens = 0;
        const int64_t start = clock_now(clock_real());
        for (int k = 0; k < ROUNDS && rc >= 0; k++) {
            rc = draft_round(b, &u, drafts, accept, e);
            tokens += rc;
        }
        if (rep >= 0) {
            const double s = bench_since(start);
            t[rep] = 1e3 * s / ROUNDS;
            tok_s[rep] = tokens / s;
        }
    }
    const int reps = u.reps;
    users_close(b, &u);
    if (rc < 0) {
        return rc;
    }
    const double ms = bench_median(t, reps), all = bench_median(tok_s, reps);
    bench_add(b, json_pack("{s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:f}", "what", "users-spec",
                           "depth", depth, "users", n, "drafts", drafts, "accept", accept,
                           "ms_per_round", ms, "tok_s", all, "times_plain", all * plain / 1e3 / n));
    if (!b->json) {
        printf("users    depth %6d  users %2d  %2d drafts accepted at %.2f  %9.1f tok/s of all  "
               "%9.3f ms/round  %.2f times plain\n",
               depth, n, drafts, accept, all, ms, all * plain / 1e3 / n);
        fflush(stdout);
    }
    return 0;
}

/* ---- a prompt comes ---- */

/* Tokens of a prompt that take about CHUNK_S, by how long a chunk takes here; the prompt's
 * sequence is of no use afterwards. */
static int chunk_of(struct bench *b, int seq, const int32_t *ids, int n, int *rows, struct err *e)
{
    enum { TRY = 512 };
    int rc = 0;
    double s = 1;
    const int most = n < TRY ? n : TRY;
    for (int i = 0; i < 2 && rc == 0; i++) { /* the first warms up */
        engine_seq_reset(b->g, seq);
        const int64_t start = clock_now(clock_real());
        rc =
            engine_prefill(b->g, &(struct engine_prefill){.seq = seq, .tokens = ids, .n = most}, e);
        s = bench_since(start);
    }
    const double want = most * CHUNK_S / (s > 1e-9 ? s : 1e-9);
    *rows = want > 2048 ? 2048 : (int)want / GRID * GRID;
    *rows = *rows < GRID ? GRID : *rows;
    engine_seq_reset(b->g, seq);
    return rc;
}

/* u's users decode while a prompt is computed between their steps. */
static int gap(struct bench *b, struct users *u, int depth, int n, double step_ms, struct err *e)
{
    int seq = -1, rows = 0, chunks = 0;
    double most = 0, slowest = 0;
    int32_t *ids = mem_array((size_t)n, sizeof *ids);
    for (int i = 0; i < n; i++) {
        ids[i] = bench_random_id(b);
    }
    int rc = engine_seq_open(b->g, &seq, e);
    rc = rc < 0 ? rc : chunk_of(b, seq, ids, n, &rows, e);
    rc = rc < 0 ? rc : step(b, u, e);
    const int64_t began = clock_now(clock_real());
    int64_t last = began;
    for (int at = 0; at < n && rc == 0; at += rows, chunks++) {
        const int m = n - at < rows ? n - at : rows;
        const int64_t from = clock_now(clock_real());
        rc = engine_prefill(b->g, &(struct engine_prefill){.seq = seq, .tokens = ids + at, .n = m},
                            e);
        const double chunk = 1e3 * bench_since(from);
        rc = rc < 0 ? rc : step(b, u, e); /* its draw waits for the chunk */
        const double g = 1e3 * bench_since(last);
        last = clock_now(clock_real());
        most = g > most ? g : most;
        slowest = chunk > slowest ? chunk : slowest;
    }
    const double all = 1e3 * bench_since(began);
    engine_seq_close(b->g, seq);
    free(ids);
    if (rc < 0) {
        return rc;
    }
    bench_add(b, json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:f, s:f}", "what",
                           "users-gap", "depth", depth, "users", u->n, "prompt_tokens", n,
                           "chunk_tokens", rows, "chunks", chunks, "largest_gap_ms", most,
                           "step_ms", step_ms, "slowest_chunk_ms", slowest, "prompt_ms", all));
    if (!b->json) {
        printf("users    depth %6d  users %2d  a prompt of %d tokens in %d chunks of %d: %.1f ms, "
               "largest gap between tokens %.1f ms (a step alone %.2f)\n",
               depth, u->n, n, chunks, rows, all, most, step_ms);
        fflush(stdout);
    }
    return 0;
}

/* ---- all of it ---- */

static void report(struct bench *b, int depth, int n, double ms, const struct engine_profile *p,
                   const struct bench_users *first)
{
    const uint64_t bytes =
        engine_bytes_per_step(b->g) + (uint64_t)n * engine_bytes_per_row(b->g, depth);
    const uint64_t one = engine_bytes_per_step(b->g) + engine_bytes_per_row(b->g, depth);
    const double gb_s = (double)bytes / 1e6 / ms;
    bench_add(b, json_pack("{s:s, s:i, s:i, s:f, s:f, s:f, s:f, s:I, s:f, s:f, s:o}", "what",
                           "users", "depth", depth, "users", n, "ms_per_step", ms, "tok_s",
                           1e3 * n / ms, "times_one", ms / first->ms, "times_one_by_bytes",
                           (double)bytes / (double)one, "bytes_per_step", (json_int_t)bytes, "gb_s",
                           gb_s, "fraction_of_read_bandwidth", gb_s / b->bw.read, "parts",
                           parts_json(p, &first->profile, n)));
    if (!b->json) {
        printf("users    depth %6d  users %2d  %9.1f tok/s of all  %9.3f ms/step  %.2f times one "
               "(by bytes %.2f)  %6.1f GB/s\n",
               depth, n, 1e3 * n / ms, ms, ms / first->ms, (double)bytes / (double)one, gb_s);
        print_parts(p, &first->profile, n);
        fflush(stdout);
    }
}

int bench_users(struct bench *b, const struct bench_users *o, int depth, int n,
                struct bench_users *first, struct err *e)
{
    struct users u;
    struct engine_profile p = {0};
    double ms = 0;
    int rc = users_open(b, depth, n, &u, e);
    rc = rc < 0 ? rc : time_steps(b, &u, &ms, e);
    for (int i = 0; i < o->n_prompts && rc == 0; i++) {
        rc = gap(b, &u, depth, o->prompts[i], ms, e);
    }
    rc = rc < 0 ? rc : engine_profile_step(b->g, u.seqs, n, STEPS, &p, e);
    users_close(b, &u);
    if (rc < 0) {
        return rc;
    }
    if (first->ms <= 0) {
        first->ms = ms;
        first->profile = p;
    }
    report(b, depth, n, ms, &p, first);
    const int cap = engine_info(b->g)->max_draft, room = BE_MAX_ROWS / n - 1;
    for (int d = 1; o->accept >= 0 && d <= room && d <= cap && rc == 0; d += d < 4 ? 1 : 2) {
        rc = time_drafts(b, depth, n, d, o->accept, ms, e);
    }
    return rc;
}
