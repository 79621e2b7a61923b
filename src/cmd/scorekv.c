/* quasar score --against: how far a cache format is from another one. Two engines over
 * the same weights walk through the text side by side, 64 tokens at a time, so that no
 * more than so many rows of logits are ever held. */
#include "config.h"
#include "cmd/score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "cmd/probe.h"

enum { STRIDE = 64, BUCKETS = 32 };

/* Of the positions from 64 << (i - 1) on (the first: from 0) to 64 << i. */
struct bucket {
    int n, flips, scored; /* scored: those that a token follows */
    double nll, ref_nll, kl;
};

struct walk {
    struct engine *g, *ref;
    const int32_t *ids; /* of the piece, at `base` of the text */
    int n, vocab;
    float *rows; /* [STRIDE][vocab], the reference's */
    float *row;
    int first; /* position of the first row held */
    struct bucket bucket[BUCKETS];
    double *moved; /* |difference of the log probability| of every token scored */
    size_t n_moved;
    int wrong; /* tokens that the reference gave a half and this one less than 1/20 */
};

static int keep_row(void *ctx, int index, int output, struct err *e)
{
    struct walk *w = ctx;
    return engine_logits(w->ref, output, w->rows + (size_t)index * (size_t)w->vocab, e);
}

static int likeliest(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) {
        best = x[i] > x[best] ? i : best;
    }
    return best;
}

static int bucket_of(int pos)
{
    int i = 0;
    while (pos >> (i + 6) > 0) {
        i++;
    }
    return i;
}

static int compare_row(void *ctx, int index, int output, struct err *e)
{
    struct walk *w = ctx;
    const int used = engine_info(w->g)->vocab_used, pos = w->first + index;
    const float *want = w->rows + (size_t)index * (size_t)w->vocab;
    int rc = engine_logits(w->g, output, w->row, e);
    if (rc < 0) {
        return rc;
    }
    const double a = probe_logsumexp(want, used), b = probe_logsumexp(w->row, used);
    struct bucket *t = &w->bucket[bucket_of(pos)];
    for (int i = 0; i < used; i++) {
        const double p = (double)want[i] - a, q = (double)w->row[i] - b;
        t->kl += exp(p) * (p - q);
    }
    t->flips += likeliest(want, used) != likeliest(w->row, used);
    t->n++;
    if (pos + 1 < w->n && w->ids[pos + 1] < used) {
        const double p = (double)want[w->ids[pos + 1]] - a;
        const double q = (double)w->row[w->ids[pos + 1]] - b;
        t->ref_nll -= p;
        t->nll -= q;
        t->scored++;
        w->moved[w->n_moved++] = fabs(p - q);
        w->wrong += p > log(0.5) && q < log(0.05);
    }
    return 0;
}

/* Both engines through STRIDE tokens. */
static int step(struct walk *w, const int seq[2], int n, struct err *e)
{
    int32_t want[STRIDE];
    for (int i = 0; i < n; i++) {
        want[i] = i;
    }
    struct engine_prefill p = {.seq = seq[0],
                               .tokens = w->ids + w->first,
                               .n = n,
                               .want = want,
                               .n_want = n,
                               .sink = keep_row,
                               .sink_ctx = w};
    int rc = engine_prefill(w->ref, &p, e);
    p.seq = seq[1];
    p.sink = compare_row;
    return rc < 0 ? rc : engine_prefill(w->g, &p, e);
}

static int piece(struct walk *w, struct err *e)
{
    int seq[2] = {-1, -1};
    int rc = engine_seq_open(w->ref, &seq[0], e);
    rc = rc < 0 ? rc : engine_seq_open(w->g, &seq[1], e);
    for (w->first = 0; w->first < w->n && rc == 0; w->first += STRIDE) {
        rc = step(w, seq, w->n - w->first < STRIDE ? w->n - w->first : STRIDE, e);
    }
    engine_seq_close(w->ref, seq[0]);
    engine_seq_close(w->g, seq[1]);
    return rc;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static json_t *bucket_json(const struct bucket *t, int from, int to)
{
    const int scored = t->scored ? t->scored : 1;
    return json_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:i, s:f}", "from", from, "to", to, "tokens",
                     t->n, "nll", t->nll / scored, "ref_nll", t->ref_nll / scored, "kl",
                     t->kl / t->n, "flips", t->flips, "flip_rate", (double)t->flips / t->n);
}

static json_t *report(struct walk *w)
{
    struct bucket all = {0};
    json_t *list = json_array();
    for (int i = 0; i < BUCKETS; i++) {
        const struct bucket *t = &w->bucket[i];
        all.n += t->n;
        all.flips += t->flips;
        all.scored += t->scored;
        all.nll += t->nll;
        all.ref_nll += t->ref_nll;
        all.kl += t->kl;
        if (t->n > 0) {
            json_array_append_new(list, bucket_json(t, i ? STRIDE << (i - 1) : 0, STRIDE << i));
        }
    }
    qsort(w->moved, w->n_moved, sizeof *w->moved, by_value);
    double sum = 0;
    for (size_t i = 0; i < w->n_moved; i++) {
        sum += w->moved[i];
    }
    const size_t n = w->n_moved;
    json_t *o = bucket_json(&all, 0, w->n);
    json_object_set_new(o, "mean_moved", json_real(n ? sum / (double)n : 0));
    json_object_set_new(o, "p999_moved", json_real(n ? w->moved[n - 1 - n / 1000] : 0));
    json_object_set_new(o, "confident_and_wrong", json_integer(w->wrong));
    json_object_set_new(o, "buckets", list);
    return o;
}

int score_against(struct engine *g, struct engine *ref, const int32_t *ids, int n, json_t **out,
                  struct err *e)
{
    const struct engine_info *info = engine_info(g);
    const int window = info->ctx;
    struct walk w = {.g = g, .ref = ref, .vocab = info->vocab};
    w.rows = mem_array((size_t)STRIDE * (size_t)w.vocab, sizeof *w.rows);
    w.row = mem_array((size_t)w.vocab, sizeof *w.row);
    w.moved = mem_array((size_t)n, sizeof *w.moved);
    int rc = 0;
    for (int at = 0; at < n && rc == 0; at += window) {
        w.ids = ids + at;
        w.n = n - at < window ? n - at : window;
        rc = piece(&w, e);
    }
    if (rc == 0) {
        w.n = n < window ? n : window;
        *out = report(&w);
        json_object_set_new(*out, "kv", json_string(info->memory.kv_format));
        json_object_set_new(*out, "against", json_string(engine_info(ref)->memory.kv_format));
    }
    free(w.rows);
    free(w.row);
    free(w.moved);
    return rc;
}

static void print_bucket(const json_t *b, const char *name)
{
    printf("%-12s %8d  %9.5f  %9.5f  %10.6f  %6d  %7.3f %%\n", name,
           (int)json_integer_value(json_object_get(b, "tokens")),
           json_real_value(json_object_get(b, "nll")),
           json_real_value(json_object_get(b, "ref_nll")),
           json_real_value(json_object_get(b, "kl")),
           (int)json_integer_value(json_object_get(b, "flips")),
           100 * json_real_value(json_object_get(b, "flip_rate")));
}

void score_against_print(const json_t *o)
{
    size_t i = 0;
    const json_t *b = NULL;
    printf("%s against %s\n%-12s %8s  %9s  %9s  %10s  %6s\n",
           json_string_value(json_object_get(o, "kv")),
           json_string_value(json_object_get(o, "against")), "positions", "tokens", "nll", "ref",
           "KL", "flips");
    json_array_foreach(json_object_get(o, "buckets"), i, b)
    {
        char name[32];
        snprintf(name, sizeof name, "%d-%d", (int)json_integer_value(json_object_get(b, "from")),
                 (int)json_integer_value(json_object_get(b, "to")) - 1);
        print_bucket(b, name);
    }
    print_bucket(o, "all");
    printf("a token's log probability moves by %.5f on average, by %.4f in one of 1000; %d "
           "confident and wrong\n",
           json_real_value(json_object_get(o, "mean_moved")),
           json_real_value(json_object_get(o, "p999_moved")),
           (int)json_integer_value(json_object_get(o, "confident_and_wrong")));
}
