/* How far a quantised model's distributions are from the unquantised model's:
 * tierdiff REFERENCE.qsr MODEL.qsr TEXT.json…, where each text has "ids" and
 * maybe "greedy": {"ids"}. Prints one row of a Markdown table: tokens, mean and
 * 99th percentile of the Kullback-Leibler divergence in nats, share of positions
 * with the same likeliest token, nats per token of both, size. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "cmd/probe.h"
#include "engine/engine.h"
#include "format/container.h"

#define MAX_TOKENS (1 << 16)

struct side {
    struct container *file;
    struct engine *g;
    float *rows; /* of one text */
    double nll;
};

static int open_side(const char *path, struct side *s, struct err *e)
{
    struct engine_opts o = {.backend = EB_CPU, .slots = 1, .ctx = 8192};
    int rc = container_open(path, false, &s->file, e);
    return rc == 0 ? engine_open(s->file, &o, &s->g, e) : rc;
}

static int keep(void *ctx, int index, int output, struct err *e)
{
    struct side *s = ctx;
    return engine_logits(s->g, output, s->rows + (size_t)index * (size_t)engine_info(s->g)->vocab,
                         e);
}

static int run(struct side *s, const int32_t *ids, int n, struct err *e)
{
    int32_t *want = mem_array((size_t)n, sizeof *want);
    for (int i = 0; i < n; i++) {
        want[i] = i;
    }
    s->rows = mem_realloc(s->rows, (size_t)n * (size_t)engine_info(s->g)->vocab * sizeof *s->rows);
    struct engine_prefill p = {
        .tokens = ids, .n = n, .want = want, .n_want = n, .sink = keep, .sink_ctx = s};
    int rc = engine_seq_open(s->g, &p.seq, e);
    if (rc == 0) {
        rc = engine_prefill(s->g, &p, e);
        engine_seq_close(s->g, p.seq);
    }
    free(want);
    return rc;
}

static int append_ids(const json_t *list, int32_t *ids, int n)
{
    for (size_t i = 0; i < json_array_size(list) && n < MAX_TOKENS; i++) {
        ids[n++] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    return n;
}

struct totals {
    double *kl;
    int n, same, scored;
};

static void compare(struct side *ref, struct side *other, const int32_t *ids, int n,
                    struct totals *t)
{
    const int vocab = engine_info(ref->g)->vocab, used = engine_info(ref->g)->vocab_used;
    for (int i = 0; i < n; i++) {
        const float *p = ref->rows + (size_t)i * (size_t)vocab;
        const float *q = other->rows + (size_t)i * (size_t)vocab;
        double lp = probe_logsumexp(p, used), lq = probe_logsumexp(q, used), kl = 0;
        for (int k = 0; k < used; k++) {
            double a = (double)p[k] - lp, b = (double)q[k] - lq;
            kl += exp(a) * (a - b);
        }
        t->kl = mem_realloc(t->kl, (size_t)(t->n + 1) * sizeof *t->kl);
        t->kl[t->n++] = kl;
        t->same += probe_argmax(p, used) == probe_argmax(q, used);
        if (i + 1 < n) {
            ref->nll -= (double)p[ids[i + 1]] - lp;
            other->nll -= (double)q[ids[i + 1]] - lq;
            t->scored++;
        }
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int all_texts(struct side *ref, struct side *other, char **texts, int n_texts,
                     struct totals *t, struct err *e)
{
    int32_t *ids = mem_array(MAX_TOKENS, sizeof *ids);
    int rc = 0;
    for (int i = 0; i < n_texts && rc == 0; i++) {
        json_t *o = NULL;
        rc = json_parse_file(texts[i], (size_t)64 << 20, &o, e);
        if (rc == 0) {
            int n = append_ids(json_object_get(o, "ids"), ids, 0);
            n = append_ids(json_object_get(json_object_get(o, "greedy"), "ids"), ids, n);
            rc = run(ref, ids, n, e);
            if (rc == 0) {
                rc = run(other, ids, n, e);
            }
            if (rc == 0) {
                compare(ref, other, ids, n, t);
            }
        }
        json_decref(o);
    }
    free(ids);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: tierdiff REFERENCE.qsr MODEL.qsr TEXT.json…\n");
        return 2;
    }
    struct err e = ERR_INIT;
    struct side ref = {0}, other = {0};
    struct totals t = {0};
    int rc = open_side(argv[1], &ref, &e);
    if (rc == 0) {
        rc = open_side(argv[2], &other, &e);
    }
    if (rc == 0) {
        rc = all_texts(&ref, &other, argv + 3, argc - 3, &t, &e);
    }
    if (rc == 0 && t.n > 0) {
        double sum = 0;
        for (int i = 0; i < t.n; i++) {
            sum += t.kl[i];
        }
        qsort(t.kl, (size_t)t.n, sizeof *t.kl, by_value);
        printf("| %s | %.1f | %d | %.5f | %.4f | %.2f %% | %.4f | %.4f |\n",
               engine_info(other.g)->tier, (double)container_file_size(other.file) / 1e6, t.n,
               sum / t.n, t.kl[t.n * 99 / 100], 100.0 * t.same / t.n, ref.nll / t.scored,
               other.nll / t.scored);
    } else {
        fprintf(stderr, "tierdiff: %s\n", e.msg);
    }
    free(t.kl);
    free(ref.rows);
    free(other.rows);
    engine_close(ref.g);
    engine_close(other.g);
    container_close(ref.file);
    container_close(other.file);
    return rc < 0;
}
