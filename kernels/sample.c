/*
 * Drawing a token (docs/sampling.md): edits, temperature, min-p, top-k, top-p, then
 * the largest logit plus Gumbel noise. No sort of the vocabulary: the largest of
 * every run of 64 logits say where a cut can be, and only what lies there is
 * ranked. What is decided depends on order and on integer masses alone, so that
 * other ways of finding it (kernels/cuda/sample.cu) find the same.
 */
#include "config.h"
#include "kernels/sample.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "kernels/sample_math.h"

#define RUN  SAMPLE_RUN
#define MANY 16 /* of so many tokens more than one survivor: no list of them */

static int runs_of(int n)
{
    return (n + RUN - 1) / RUN;
}

size_t sample_work(int n)
{
    /* x in whole runs, ids or values of candidates, the runs' largest twice. */
    return (size_t)runs_of(n) * (2 * RUN + 2);
}

bool sample_is_greedy(const struct be_sample *s)
{
    return s->temp < SM_GREEDY_BELOW;
}

bool sample_is_plain(const struct be_sample *s)
{
    return s->n_edit == 0 && s->n_over == 0 && !s->allow;
}

float sample_log_min_p(float min_p)
{
    return (float)log((double)min_p);
}

/* ---- the row ---- */

static void edit_all(const float *logits, int n, const struct be_sample *s, float temp,
                     const struct be_edit *edit, int n_edit, float *x)
{
    for (int i = 0; i < n_edit; i++) {
        const int32_t id = edit[i].id;
        if (id < n && (!s->allow || s->allow[id / 32] >> id % 32 & 1)) {
            x[id] = sm_scale(
                sm_edit(logits[id], &edit[i], s->repetition, s->frequency, s->presence), temp);
        }
    }
}

static void adjust(const float *logits, int n, const struct be_sample *s, float *x)
{
    const float temp = sm_temp(s->temp);
    if (s->allow) {
        for (int i = 0; i < n; i++) {
            x[i] = s->allow[i / 32] >> i % 32 & 1 ? sm_scale(logits[i], temp) : -INFINITY;
        }
    } else {
        for (int i = 0; i < n; i++) {
            x[i] = sm_scale(logits[i], temp);
        }
    }
    edit_all(logits, n, s, temp, s->edit, s->n_edit, x);
    edit_all(logits, n, s, temp, s->over, s->n_over, x);
    for (int i = n; i < runs_of(n) * RUN; i++) {
        x[i] = -INFINITY;
    }
}

/* The largest of every run; returns the first run with the largest of all. */
static int find_highest(const float *x, int runs, float *highest)
{
    int best = 0;
    for (int r = 0; r < runs; r++) {
        float m[8];
        memcpy(m, x + r * RUN, sizeof m);
        for (int i = 8; i < RUN; i += 8) {
            for (int j = 0; j < 8; j++) {
                const float v = x[r * RUN + i + j];
                m[j] = v > m[j] ? v : m[j];
            }
        }
        for (int j = 1; j < 8; j++) {
            m[0] = m[j] > m[0] ? m[j] : m[0];
        }
        highest[r] = m[0];
        best = m[0] > highest[best] ? r : best;
    }
    return best;
}

static int32_t first_equal(const float *x, float v)
{
    int32_t i = 0;
    while (x[i] != v) {
        i++;
    }
    return i;
}

/* ---- top-k ---- */

/* The k-th largest of v (k from 1); reorders v. */
static float kth_largest(float *v, int n, int k)
{
    int lo = 0, hi = n - 1;
    while (lo < hi) {
        const float pivot = v[lo + (hi - lo) / 2];
        int i = lo, j = hi;
        while (i <= j) {
            while (v[i] > pivot) {
                i++;
            }
            while (v[j] < pivot) {
                j--;
            }
            if (i <= j) {
                const float t = v[i];
                v[i++] = v[j];
                v[j--] = t;
            }
        }
        if (k - 1 <= j) {
            hi = j;
        } else if (k - 1 >= i) {
            lo = i;
        } else {
            break;
        }
    }
    return v[k - 1];
}

/* The k-th largest logit of the row. As many runs reach the k-th largest of what the
 * runs have largest, so that nothing below it counts. */
static float top_k_value(const float *x, int n, int k, const float *highest, float *copy,
                         float *some)
{
    const int runs = runs_of(n);
    float bound = -INFINITY;
    if (k <= runs) {
        memcpy(copy, highest, (size_t)runs * sizeof *copy);
        bound = kth_largest(copy, runs, k);
    }
    int m = 0;
    for (int r = 0; r < runs; r++) {
        if (highest[r] < bound) {
            continue;
        }
        const int end = r * RUN + RUN < n ? r * RUN + RUN : n;
        for (int i = r * RUN; i < end; i++) {
            some[m] = x[i];
            m += x[i] >= bound;
        }
    }
    return kth_largest(some, m, k);
}

/* ---- candidates ---- */

/* The survivors, ascending; no more than one beyond n / MANY of them. */
static int gather(const struct sample_kept *k, int32_t *ids)
{
    int m = 0;
    for (int r = 0; r < runs_of(k->n) && m <= k->n / MANY; r++) {
        for (int32_t i = r * RUN; i < r * RUN + RUN && k->highest[r] >= k->least; i++) {
            ids[m] = i;
            m += sample_keeps(k, i);
        }
    }
    return m;
}

static bool ranks_before(const float *x, int32_t a, int32_t b)
{
    return x[a] > x[b] || (x[a] == x[b] && a < b);
}

/* ---- top-p ---- */

/* Masses by octave below the likeliest token's. */
static void sum_octaves(const struct sample_kept *k, int32_t anchor, uint64_t *sum)
{
    memset(sum, 0, SM_OCTAVES * sizeof *sum);
    int64_t power[RUN];
    uint64_t mass[RUN];
    for (int r = 0; r < runs_of(k->n); r++) {
        if (k->highest[r] < k->least || anchor - sm_octave(sm_power(k->highest[r])) >= SM_OCTAVES) {
            continue;
        }
        const float *x = k->x + r * RUN;
        for (int i = 0; i < RUN; i++) {
            power[i] = sm_power(x[i]);
            mass[i] = sm_mass(power[i]);
        }
        for (int i = 0; i < RUN; i++) {
            const int32_t below = anchor - sm_octave(power[i]);
            if (x[i] >= k->least && x[i] > -INFINITY && below < SM_OCTAVES) {
                sum[below] += mass[i];
            }
        }
    }
}

/* Moves the first in rank of ids[0..n) that rank before ids[n - 1] to the front, that
 * one behind them; returns its place, and the mass before it in *mass. */
static int split_octave(const float *x, int32_t *ids, int n, uint64_t *mass)
{
    const int32_t pivot = ids[n - 1];
    int at = 0;
    *mass = 0;
    for (int i = 0; i < n - 1; i++) {
        const int32_t id = ids[i];
        if (ranks_before(x, id, pivot)) {
            *mass += sm_mass(sm_power(x[id]));
            ids[i] = ids[at];
            ids[at++] = id;
        }
    }
    ids[n - 1] = ids[at];
    ids[at] = pivot;
    return at;
}

/* The cut inside an octave, whose tokens are ids[0..n): as quickselect, but by mass.
 * A token stays with all that rank before it while the mass above it is too little. */
static void cut_octave(struct sample_kept *k, int32_t *ids, int n, uint64_t above, int octave,
                       uint64_t limit)
{
    uint64_t part = 0; /* of those that stay for certain */
    while (n > 0) {
        const int mid = n / 2;
        const int32_t t = ids[mid];
        ids[mid] = ids[n - 1];
        ids[n - 1] = t;
        uint64_t mass = 0;
        const int at = split_octave(k->x, ids, n, &mass);
        if (above + sm_shift(part + mass, octave) < limit) {
            k->last = ids[at];
            k->least = k->x[ids[at]];
            part += mass + sm_mass(sm_power(k->least));
            ids += at + 1;
            n -= at + 1;
        } else {
            n = at;
        }
    }
}

/* Moves the cut up to where the mass ranked above reaches top_p of all. */
static void cut_mass(struct sample_kept *k, float top_p, int32_t *ids)
{
    const int32_t anchor = sm_octave(sm_power(k->x[k->top]));
    uint64_t sum[SM_OCTAVES];
    sum_octaves(k, anchor, sum);
    uint64_t total = 0;
    for (int o = 0; o < SM_OCTAVES; o++) {
        total += sm_shift(sum[o], o);
    }
    const uint64_t limit = sm_limit(total, top_p);
    int o = 0;
    uint64_t above = 0;
    while (above + sm_shift(sum[o], o) < limit) {
        above += sm_shift(sum[o], o);
        o++;
    }
    /* The cut is in octave o: rank its tokens as far as it takes. */
    int n = 0;
    for (int r = 0; r < runs_of(k->n); r++) {
        if (k->highest[r] < k->least || anchor - sm_octave(sm_power(k->highest[r])) > o) {
            continue;
        }
        for (int32_t i = r * RUN; i < r * RUN + RUN; i++) {
            if (k->x[i] >= k->least && k->x[i] > -INFINITY &&
                anchor - sm_octave(sm_power(k->x[i])) == o) {
                ids[n++] = i;
            }
        }
    }
    cut_octave(k, ids, n, above, o, limit);
}

/* ---- all of it ---- */

void sample_filter(const float *logits, int n, const struct be_sample *s, float *work,
                   struct sample_kept *out)
{
    assert(n > 0 && n <= BE_MAX_IDS);
    const size_t whole = (size_t)runs_of(n) * RUN;
    float *x = work, *highest = work + 2 * whole, *copy = highest + runs_of(n);
    int32_t *ids = (int32_t *)(work + whole);
    adjust(logits, n, s, x);
    const int run = find_highest(x, runs_of(n), highest);
    *out = (struct sample_kept){
        .x = x, .n = n, .top = -1, .least = -INFINITY, .last = INT32_MAX, .highest = highest};
    const float max = highest[run];
    if (!(max > -INFINITY)) {
        return;
    }
    out->top = run * RUN + first_equal(x + run * RUN, max);
    if (sample_is_greedy(s)) {
        return;
    }
    if (s->min_p > 0) {
        out->least = SM_ADD(max, sample_log_min_p(s->min_p));
        out->least = out->least < max ? out->least : max;
    }
    if (s->top_k > 0 && s->top_k < n) {
        const float kth = top_k_value(x, n, s->top_k, highest, copy, (float *)ids);
        out->least = kth > out->least ? kth : out->least;
    }
    if (s->top_p < 1) {
        cut_mass(out, s->top_p, ids);
    }
    if (out->least > -INFINITY) {
        out->n_ids = gather(out, ids);
        out->ids = out->n_ids <= n / MANY ? ids : NULL;
        out->n_ids = out->ids ? out->n_ids : 0;
    }
}

/* ---- drawing ---- */

struct best {
    int32_t id;
    float score;
};

static void offer(struct best *b, int32_t id, float score)
{
    if (b->id < 0 || score > b->score || (score == b->score && id < b->id)) {
        b->id = id;
        b->score = score;
    }
}

static void offer_word(struct best *b, int32_t id, float x, uint32_t word)
{
    if (b->id < 0 || SM_ADD(x, sm_gumbel_bound(word)) >= b->score) {
        offer(b, id, SM_ADD(x, sm_gumbel(word)));
    }
}

/* Sixteen calls of philox_quad side by side, for a compiler with vectors. */
static void words_of_run(uint64_t seed, uint32_t pos, enum philox_kind kind, uint32_t quad,
                         uint32_t *w)
{
    enum { N = RUN / 4 };
    uint32_t c0[N], c1[N], c2[N], c3[N];
    for (uint32_t i = 0; i < N; i++) {
        c0[i] = quad + i;
        c1[i] = pos;
        c2[i] = (uint32_t)kind;
        c3[i] = 0;
    }
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int r = 0; r < 10; r++) {
        for (int i = 0; i < N; i++) {
            philox_round(&c0[i], &c1[i], &c2[i], &c3[i], k0, k1);
        }
        k0 += PHILOX_STEP0;
        k1 += PHILOX_STEP1;
    }
    for (int i = 0; i < N; i++) {
        w[4 * i] = c0[i];
        w[4 * i + 1] = c1[i];
        w[4 * i + 2] = c2[i];
        w[4 * i + 3] = c3[i];
    }
}

static void draw_run(struct best *b, const struct sample_kept *k, const struct be_sample *s,
                     enum philox_kind kind, int32_t without, int r)
{
    uint32_t w[RUN];
    float bound[RUN];
    words_of_run(s->seed, s->pos, kind, (uint32_t)(r * RUN / 4), w);
    const float *x = k->x + r * RUN;
    for (int i = 0; i < RUN; i++) {
        bound[i] = SM_ADD(x[i], sm_gumbel_bound(w[i]));
    }
    for (int i = 0; i < RUN; i++) {
        const int32_t id = r * RUN + i;
        if ((b->id < 0 || bound[i] >= b->score) && sample_keeps(k, id) && id != without) {
            offer(b, id, SM_ADD(x[i], sm_gumbel(w[i])));
        }
    }
}

int32_t sample_draw(const struct sample_kept *k, const struct be_sample *s, enum philox_kind kind,
                    int32_t without)
{
    if (k->top < 0 || sample_is_greedy(s)) {
        return k->top == without ? -1 : k->top;
    }
    struct best b = {.id = -1};
    if (k->top != without) {
        /* The likeliest first: what cannot beat it needs no noise. */
        offer(
            &b, k->top,
            SM_ADD(k->x[k->top], sm_gumbel(philox_word(s->seed, s->pos, kind, (uint32_t)k->top))));
    }
    for (int i = 0; i < k->n_ids; i++) {
        const int32_t id = k->ids[i];
        if (id != without && (b.id < 0 || SM_ADD(k->x[id], SM_GUMBEL_MAX) >= b.score)) {
            offer_word(&b, id, k->x[id], philox_word(s->seed, s->pos, kind, (uint32_t)id));
        }
    }
    for (int r = 0; !k->ids && r < runs_of(k->n); r++) {
        if (k->highest[r] >= k->least &&
            (b.id < 0 || SM_ADD(k->highest[r], SM_GUMBEL_MAX) >= b.score)) {
            draw_run(&b, k, s, kind, without, r);
        }
    }
    return b.id;
}

static int32_t largest(const float *logits, int n)
{
    int32_t best = -1;
    float most = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        if (logits[i] > most) {
            most = logits[i];
            best = i;
        }
    }
    return best;
}

int32_t sample_row(const float *logits, int n, const struct be_sample *s, float *work)
{
    if (sample_is_greedy(s) && sample_is_plain(s)) {
        return largest(logits, n);
    }
    struct sample_kept k;
    sample_filter(logits, n, s, work, &k);
    return sample_draw(&k, s, PHILOX_TARGET, -1);
}

void sample_probs(const struct sample_kept *k, const struct be_sample *s, double *p)
{
    double total = 0;
    for (int32_t i = 0; i < k->n; i++) {
        const bool in = sample_is_greedy(s) ? i == k->top : sample_keeps(k, i);
        p[i] = k->top >= 0 && in ? exp((double)k->x[i] - (double)k->x[k->top]) : 0;
        total += p[i];
    }
    for (int32_t i = 0; i < k->n && total > 0; i++) {
        p[i] /= total;
    }
}
