#ifndef QUASAR_CMD_BENCH_H
#define QUASAR_CMD_BENCH_H

#include <jansson.h>

#include "base/conf.h"
#include "cmd/bandwidth.h"
#include "engine/engine.h"

/* What every measurement of quasar bench needs. */
struct bench {
    struct engine *g;
    struct bandwidth bw;
    int reps;
    bool json, one_seq; /* the rows of a step are one sequence's */
    json_t *results;
    uint32_t drawn;
};

#define BENCH_REPS 1000

int32_t bench_random_id(struct bench *b);
double bench_median(double *v, int n);
double bench_since(int64_t start);
/* A sequence of depth random tokens, or of as many made-up states. */
int bench_fill(struct bench *b, int depth, int *seq, struct err *e);
/* One decode step of rows with greedy drawing, at most BE_MAX_ROWS: ids in, and those drawn out. */
int bench_step(struct bench *b, const int *seqs, int32_t *ids, int rows, struct err *e);
/* Takes o into the results. */
void bench_add(struct bench *b, json_t *o);

/* benchspec.c: steps of rows that may be taken back; rounds with acceptance by chance
 * (--accept); whole answers to prompts, with and without drafts. */
int bench_verify(struct bench *b, int depth, int rows, struct err *e);
int bench_scripted(struct bench *b, const struct conf *cf, int depth, struct err *e);
int bench_prompts(struct bench *b, const struct conf *cf, struct err *e);

/* benchrestore.c: a prompt that goes on from a kept state of depth tokens; it needs so
 * many more. */
enum { BENCH_RESTORE_CTX = 2048 };
int bench_restore(struct bench *b, int depth, struct err *e);

/* benchpool.c: n sequences of depth tokens of their own at once. */
int bench_pool(struct bench *b, int depth, int n, struct err *e);

/* benchusers.c: n sequences of depth tokens that all take a step, beside the first measured at
 * this depth (ms 0: this is it); by part; with drafts accepted by chance; and while prompts of
 * some lengths are computed. It needs so many tokens of window more, and one sequence. */
enum { BENCH_USERS_CTX = 4096 };
struct bench_users {
    /* what is asked for */
    double accept; /* negative: no drafts */
    const int *prompts;
    int n_prompts;
    /* of the first */
    double ms;
    struct engine_profile profile;
};
int bench_users(struct bench *b, const struct bench_users *o, int depth, int n,
                struct bench_users *first, struct err *e);

/* benchprof.c: where the time of a step at a depth goes, and of a prompt of n tokens. */
int bench_profile_step(struct bench *b, int depth, struct err *e);
int bench_profile_prompt(struct bench *b, int n, struct err *e);

#endif
