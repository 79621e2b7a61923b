/*
 * Drawing a token (docs/sampling.md): temperature, min-p, top-k, top-p, then
 * the largest logit plus Gumbel noise. No sort of the vocabulary: a heap gives
 * up the candidates in rank order (larger logit, then lower id) only as far as
 * the filters ask. Masses are summed in fp64 in a fixed order.
 */
#include "config.h"
#include "kernels/sample.h"

#include <math.h>
#include <stdbool.h>

#include "base/philox.h"

#define GREEDY_BELOW 1e-5F
#define COLDEST      0.01F
#define GUMBEL_MAX   23.0F /* a little above the largest value of philox_gumbel */

static int32_t largest(const float *logits, int n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return best;
}

static bool before(struct sample_entry a, struct sample_entry b)
{
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

static void sift(struct sample_entry *h, int n, int i)
{
    struct sample_entry x = h[i];
    for (;;) {
        int c = 2 * i + 1;
        if (c >= n) {
            break;
        }
        if (c + 1 < n && before(h[c + 1], h[c])) {
            c++;
        }
        if (!before(h[c], x)) {
            break;
        }
        h[i] = h[c];
        i = c;
    }
    h[i] = x;
}

/* Takes the first entry out; it lands behind the shortened heap. */
static void take(struct sample_entry *h, int *n)
{
    struct sample_entry first = h[0];
    h[0] = h[--*n];
    sift(h, *n, 0);
    h[*n] = first;
}

/* The first k entries in rank order and all ties of the last, at the end of the
 * array in reverse; returns how many. */
static int take_top(struct sample_entry *h, int n, int k)
{
    int left = n;
    while (left > 0 && (n - left < k || h[0].value == h[left].value)) {
        take(h, &left);
    }
    return n - left;
}

/* Applies min-p, top-k and top-p to the entries (temperature is in already, max
 * is their largest value). The survivors are *out, their number is returned. */
static int filter(struct sample_entry *h, int n, const struct be_sample *s, float max,
                  struct sample_entry **out)
{
    *out = h;
    if (s->min_p > 0) {
        const float limit = max + logf(s->min_p);
        int kept = 0;
        for (int i = 0; i < n; i++) {
            if (h[i].value >= limit || h[i].value == max) {
                h[kept++] = h[i];
            }
        }
        n = kept;
    }
    const bool by_k = s->top_k > 0 && s->top_k < n;
    const bool by_p = s->top_p < 1;
    if (!by_k && !by_p) {
        return n;
    }
    double total = 0;
    if (!by_k) {
        for (int i = 0; i < n; i++) {
            total += exp((double)h[i].value - (double)max);
        }
    }
    for (int i = n / 2 - 1; i >= 0; i--) {
        sift(h, n, i);
    }
    if (by_k) {
        int k = take_top(h, n, s->top_k);
        *out = h + n - k;
        if (!by_p) {
            return k;
        }
        for (int i = n - 1; i >= n - k; i--) {
            total += exp((double)h[i].value - (double)max);
        }
        double mass = 0;
        int kept = 0;
        while (kept < k && (kept == 0 || mass < (double)s->top_p * total)) {
            kept++;
            mass += exp((double)h[n - kept].value - (double)max);
        }
        *out = h + n - kept;
        return kept;
    }
    double mass = 0;
    int left = n;
    while (left > 0 && (left == n || mass < (double)s->top_p * total)) {
        take(h, &left);
        mass += exp((double)h[left].value - (double)max);
    }
    *out = h + left;
    return n - left;
}

bool sample_is_greedy(const struct be_sample *s)
{
    return s->temp < GREEDY_BELOW;
}

int32_t sample_row(const float *logits, int n, const struct be_sample *s, struct sample_entry *heap)
{
    const int32_t top = largest(logits, n);
    if (sample_is_greedy(s)) {
        return top;
    }
    const float temp = s->temp < COLDEST ? COLDEST : s->temp;
    int m = 0;
    for (int32_t i = 0; i < n; i++) {
        if (logits[i] > -INFINITY) {
            heap[m++] = (struct sample_entry){logits[i] / temp, i};
        }
    }
    if (m == 0) {
        return top;
    }
    struct sample_entry *left = NULL;
    int kept = filter(heap, m, s, logits[top] / temp, &left);
    /* The likeliest token's draw first: what cannot beat it needs no noise. */
    int32_t best = top;
    float most = logits[top] / temp +
                 philox_gumbel(philox_word(s->seed, s->pos, PHILOX_TARGET, (uint32_t)top));
    for (int i = 0; i < kept; i++) {
        if (left[i].value + GUMBEL_MAX < most) {
            continue;
        }
        uint32_t w = philox_word(s->seed, s->pos, PHILOX_TARGET, (uint32_t)left[i].id);
        float x = left[i].value + philox_gumbel(w);
        if (x > most || (x == most && left[i].id < best)) {
            most = x;
            best = left[i].id;
        }
    }
    return best;
}
