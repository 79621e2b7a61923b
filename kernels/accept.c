/* Rejection sampling of drafts. What is left of p without the proposal is drawn like
 * everything else, by the largest sum of logarithm and noise. */
#include "config.h"
#include "kernels/accept.h"

#include <math.h>

#include "kernels/sample_math.h"

static bool accepts(const struct accept_row *r, int32_t d)
{
    const uint32_t w = philox_word(r->s->seed, r->s->pos, PHILOX_ACCEPT, 0);
    const double u = ((double)w + 0.5) * 0x1p-32;
    return u * (r->q ? r->q[d] : 1) <= r->p[d];
}

/* From max(p - q, 0); from p where rounding leaves nothing of that. */
static int32_t residual(const struct accept_row *r)
{
    int32_t best = -1;
    double most = 0;
    for (int32_t i = 0; i < r->kept->n; i++) {
        const double left = r->p[i] - r->q[i];
        if (left > 0) {
            const uint32_t w = philox_word(r->s->seed, r->s->pos, PHILOX_TARGET, (uint32_t)i);
            const double score = log(left) + (double)sm_gumbel(w);
            if (best < 0 || score > most) {
                best = i;
                most = score;
            }
        }
    }
    return best < 0 ? sample_draw(r->kept, r->s, PHILOX_TARGET, -1) : best;
}

int accept_chain(const struct accept_row *row, const int32_t *draft, int n, int32_t *next)
{
    for (int i = 0; i < n; i++) {
        if (!accepts(&row[i], draft[i])) {
            *next = row[i].q ? residual(&row[i])
                             : sample_draw(row[i].kept, row[i].s, PHILOX_TARGET, draft[i]);
            return i;
        }
    }
    *next = sample_draw(row[n].kept, row[n].s, PHILOX_TARGET, -1);
    return n;
}
