#ifndef QUASAR_KERNELS_SAMPLE_H
#define QUASAR_KERNELS_SAMPLE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/philox.h"
#include "kernels/backend.h"

/* Drawing tokens on the host, by docs/sampling.md. */

/* Whether a temperature means the likeliest token, without any noise. */
bool sample_is_greedy(const struct be_sample *s);

/* Whether nothing changes the row's logits before temperature. */
bool sample_is_plain(const struct be_sample *s);

/* ln of min_p, as every backend takes it. */
float sample_log_min_p(float min_p);

/* Floats of scratch for rows of n logits, n <= BE_MAX_IDS. */
size_t sample_work(int n);

/* Draws one token from logits[0..n); -1 when every one is -inf. */
int32_t sample_row(const float *logits, int n, const struct be_sample *s, float *work);

/* ---- the steps of it, for those who need the distribution itself ---- */

/* A row after edits, mask and temperature, and which of it survives the filters:
 * what is above least, and of what equals it the ids up to last. */
struct sample_kept {
    const float *x; /* in work */
    int n;
    int32_t top; /* the likeliest; -1: none, and nothing else holds */
    float least;
    int32_t last;
    const int32_t *ids; /* the survivors in any order when they are few, else NULL */
    int n_ids;
    const float *highest; /* of every SAMPLE_RUN of x */
};
enum { SAMPLE_RUN = 64 };

void sample_filter(const float *logits, int n, const struct be_sample *s, float *work,
                   struct sample_kept *out);

/* Whether an id survives. */
static inline bool sample_keeps(const struct sample_kept *k, int32_t id)
{
    const float x = k->x[id];
    return x > k->least || (x == k->least && id <= k->last && x > -INFINITY);
}

/* The survivor with the largest sum of logit and noise of that kind, `without` (-1:
 * none) left out; -1 when it is the only one. The greedy draw has no noise. */
int32_t sample_draw(const struct sample_kept *k, const struct be_sample *s, enum philox_kind kind,
                    int32_t without);

/* p[0..n) = the served distribution: what is drawn from. */
void sample_probs(const struct sample_kept *k, const struct be_sample *s, double *p);

#endif
