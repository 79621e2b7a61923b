/*
 * Where the time of a pass goes, part by part, beside what each must move and compute.
 * On a backend with clocks inside the parts are what they say. On one whose parts overlap
 * they are runs of their operations alone (docs/cuda.md), and the gaps what the whole takes
 * beyond their sum.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/impl.h"

enum { WARM = 3, AGAIN = 20, MOST_REPS = 1000 };

#define BIT(part) (1U << (part))
#define ALL       (BIT(BE_PARTS) - 1)

const char *engine_part_name(enum engine_part p)
{
    static const char *const names[EP_COUNT] = {"weights", "deltanet",    "attention", "norms",
                                                "head",    "launch gaps", "host gaps"};
    return names[p];
}

/* ---- what must be done ---- */

static double matrix(const struct tensor *t)
{
    return t->data ? (double)tensor_rows(t) * (double)tensor_cols(t) : 0;
}

/* Weights of a layer's matrices. */
static double layer_weights(const struct be_layer *l)
{
    const struct tensor *const all[] = {&l->gate, &l->up,  &l->down, &l->q, &l->k, &l->v,
                                        &l->o,    &l->qkv, &l->z,    &l->b, &l->a, &l->out};
    double n = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        n += matrix(all[i]);
    }
    return n;
}

/* Bytes and operations of a pass behind depth tokens: over n rows of a prompt, or one row of
 * each of n sequences. */
static void bounds(const struct engine *g, int depth, int n, bool prefill, struct engine_profile *p)
{
    const struct be_shape *s = &g->m.shape;
    const struct be_weights *w = &g->w.w;
    const struct tensor *head = g->fast ? &w->head_copy : &w->head;
    const double rows = n, hidden = s->hidden;
    const double pairs = rows * depth + rows * (rows + 1) / 2;
    double weights =
        g->mtp ? matrix(&w->mtp_fc) + matrix(&w->mtp_layer.k) + matrix(&w->mtp_layer.v) : 0;
    int n_attention = 0;
    for (int i = 0; i < s->layers; i++) {
        weights += layer_weights(&w->layers[i]);
        n_attention += s->attention[i] != 0;
    }
    const double head_bytes = (double)(head->size + head->scale_size);
    const double token = (double)(engine_bytes_per_row(g, 1) - engine_bytes_per_row(g, 0));
    const double state = (double)(s->layers - n_attention) *
                         (s->v_heads * BE_DN_DIM * BE_DN_DIM +
                          (BE_CONV - 1) * (2 * s->k_heads + s->v_heads) * BE_DN_DIM) *
                         (double)sizeof(float);
    const double step = (double)(s->layers - n_attention) * (2.0 * s->k_heads + 3.0 * s->v_heads) *
                        BE_DN_DIM * (double)sizeof(float);
    p->part[EP_WEIGHTS].bytes = (double)engine_bytes_per_step(g) - head_bytes;
    p->part[EP_DELTANET].bytes = 2 * state * (prefill ? 1 : rows);
    p->part[EP_DELTANET].both = true;
    p->part[EP_ATTENTION].bytes = prefill ? token * (depth + rows) : token * (depth + 1) * rows;
    p->part[EP_NORMS].bytes = (2.0 * s->layers + 2) * hidden * (double)sizeof(float);
    p->part[EP_HEAD].bytes = head_bytes;
    if (prefill) {
        p->part[EP_WEIGHTS].flops = 2 * rows * weights;
        p->part[EP_DELTANET].bytes += rows * step; /* its inputs and outputs */
        p->part[EP_DELTANET].flops =
            6.0 * BE_DN_DIM * BE_DN_DIM * s->v_heads * (s->layers - n_attention) * rows;
        p->part[EP_ATTENTION].flops = 4.0 * BE_HEAD_DIM * s->q_heads * n_attention * pairs;
        p->part[EP_NORMS].bytes *= 1.5 * rows; /* the stream read, half as much written */
        p->part[EP_NORMS].both = true;
    }
    p->peak = g->ops->peak ? g->ops->peak(g->b) : 0;
}

/* ---- passes ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct runner {
    struct engine *g;
    const int *seqs; /* steps of one row of each of these; NULL: a prompt in seq, behind base */
    int base, seq;
    const int32_t *tokens;
    int n;
    int32_t id; /* the token that follows */
};

static int step(struct runner *r, double *ms, struct err *e)
{
    struct engine_draw draw[BE_MAX_ROWS];
    int32_t ids[BE_MAX_ROWS];
    int out[BE_MAX_ROWS];
    for (int i = 0; i < r->n; i++) {
        draw[i] = (struct engine_draw){.top_p = 1};
        ids[i] = (r->id + i) % r->g->m.shape.vocab_used;
        out[i] = i;
    }
    const int64_t from = clock_now(clock_real());
    int rc = engine_decode(r->g, r->seqs, ids, r->n, e);
    rc = rc < 0 ? rc : engine_sample(r->g, out, draw, r->n, ids, e);
    *ms = 1e3 * clock_seconds(clock_now(clock_real()) - from);
    r->id = (r->id * 7919 + 13) % r->g->m.shape.vocab_used;
    return rc;
}

static int prompt(struct runner *r, double *ms, struct err *e)
{
    const struct engine_draw greedy = {.top_p = 1};
    const struct engine_prefill p = {
        .seq = r->seq, .tokens = r->tokens, .n = r->n, .want = &(int32_t){r->n - 1}, .n_want = 1};
    const int out = 0;
    int32_t id = 0;
    int rc = engine_seq_fork(r->g, r->seq, r->base, e);
    const int64_t from = clock_now(clock_real());
    rc = rc < 0 ? rc : engine_prefill(r->g, &p, e);
    rc = rc < 0 ? rc : engine_sample(r->g, &out, &greedy, 1, &id, e);
    *ms = 1e3 * clock_seconds(clock_now(clock_real()) - from);
    return rc;
}

/* One pass with its draw; *ms is its time. */
static int pass(struct runner *r, double *ms, struct err *e)
{
    return r->seqs ? step(r, ms, e) : prompt(r, ms, e);
}

static int median(struct runner *r, int reps, double *ms, struct err *e)
{
    double t[MOST_REPS];
    const int n = reps < 1 ? 1 : reps < MOST_REPS ? reps : MOST_REPS;
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        rc = pass(r, &t[i], e);
    }
    if (rc == 0) {
        qsort(t, (size_t)n, sizeof *t, by_value);
        *ms = n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
    }
    return rc;
}

/* By the backend's clocks: means, since only they add up. */
static int clocked(struct runner *r, int reps, struct engine_profile *out, struct err *e)
{
    double seconds[BE_PARTS] = {0};
    int rc = 0;
    r->g->ops->clocks(r->g->b, seconds);
    for (int i = 0; i < reps && rc == 0; i++) {
        double ms = 0;
        rc = pass(r, &ms, e);
        out->ms += ms / reps;
    }
    r->g->ops->clocks(r->g->b, NULL);
    for (int i = 0; i < BE_PARTS; i++) {
        out->part[i].ms = 1e3 * seconds[i] / reps;
    }
    return rc;
}

/* The last step again, in parts. */
static int step_parts(struct runner *r, int reps, struct engine_profile *out, double *device,
                      struct err *e)
{
    struct engine *g = r->g;
    const int n = reps < AGAIN ? reps : AGAIN;
    double both = 0;
    int rc = g->ops->again(g->b, ALL, n, device, e);
    rc = rc < 0 ? rc
                : g->ops->again(g->b, BIT(BE_PART_WEIGHTS) | BIT(BE_PART_DELTANET), n, &both, e);
    for (int i = BE_PART_DELTANET; i < BE_PARTS && rc == 0; i++) {
        rc = g->ops->again(g->b, BIT(i), n, &out->part[i].ms, e);
    }
    out->part[EP_WEIGHTS].ms = both - out->part[EP_DELTANET].ms;
    return rc;
}

/* Prompts with one part at a time. */
static int prompt_parts(struct runner *r, int reps, struct engine_profile *out, double *device,
                        struct err *e)
{
    struct engine *g = r->g;
    int rc = 0;
    for (int i = 0; i < BE_PARTS && rc == 0; i++) {
        g->ops->only(g->b, BIT(i));
        rc = median(r, reps, &out->part[i].ms, e);
    }
    g->ops->only(g->b, 0);
    *device = out->ms; /* the host is ahead of the device */
    return rc;
}

static int profile(struct runner *r, int reps, struct engine_profile *out, struct err *e)
{
    struct engine *g = r->g;
    const bool prefill = !r->seqs;
    const int depth = engine_seq_len(g, prefill ? r->base : r->seqs[0]);
    double device = 0, ms = 0;
    int rc = 0;
    memset(out, 0, sizeof *out);
    for (int i = 0; i < (prefill ? 1 : WARM) && rc == 0; i++) {
        rc = pass(r, &ms, e);
    }
    if (rc == 0 && g->ops->clocks) {
        rc = clocked(r, reps, out, e);
        device = out->ms;
    } else if (rc == 0) {
        rc = median(r, reps, &out->ms, e);
        rc = rc < 0    ? rc
             : prefill ? prompt_parts(r, reps, out, &device, e)
                       : step_parts(r, reps, out, &device, e);
    }
    bounds(g, depth, r->n, prefill, out);
    double sum = 0;
    for (int i = 0; i < EP_LAUNCH_GAPS; i++) {
        sum += out->part[i].ms;
    }
    if (g->ops->clocks) {
        out->part[EP_HOST_GAPS].ms = out->ms - sum;
    } else {
        out->part[EP_LAUNCH_GAPS].ms = device - sum;
        out->part[EP_HOST_GAPS].ms = out->ms - device;
    }
    return rc;
}

int engine_profile_step(struct engine *g, const int *seqs, int n, int reps,
                        struct engine_profile *out, struct err *e)
{
    struct runner r = {.g = g, .seqs = seqs, .n = n, .id = 1};
    return profile(&r, reps, out, e);
}

int engine_profile_prompt(struct engine *g, int base, int seq, const int32_t *tokens, int n,
                          int reps, struct engine_profile *out, struct err *e)
{
    struct runner r = {.g = g, .base = base, .seq = seq, .tokens = tokens, .n = n};
    return profile(&r, reps, out, e);
}
