/* What the model thinks of tokens: the raw log-softmax of an output's row, before
 * anything a request does to it. Summed in double in id order, so that a row's figures
 * do not depend on its company. */
#include "config.h"

#include <math.h>

#include "engine/impl.h"

static bool likelier(const float *l, int32_t a, int32_t b)
{
    return l[a] > l[b] || (l[a] == l[b] && a < b);
}

/* The n likeliest ids in order. */
static void likeliest(const float *l, int vocab, int n, struct engine_logprob *out)
{
    int have = 0;
    for (int32_t id = 0; id < vocab && n > 0; id++) {
        if (have == n && !likelier(l, id, out[n - 1].id)) {
            continue;
        }
        int i = have < n ? have++ : n - 1;
        for (; i > 0 && likelier(l, id, out[i - 1].id); i--) {
            out[i].id = out[i - 1].id;
        }
        out[i].id = id;
    }
}

int engine_logprobs(struct engine *g, int output, int32_t id, int n_top, struct engine_logprob *out,
                    struct err *e)
{
    const int vocab = g->m.shape.vocab_used;
    if (id < 0 || id >= vocab || n_top < 0 || n_top > ENGINE_MAX_LOGPROBS || n_top > vocab) {
        return err_set(e, QE_USAGE,
                       "log probabilities of token id %d and %d likeliest ones: ids are 0..%d, "
                       "at most %d are listed",
                       (int)id, n_top, vocab - 1, ENGINE_MAX_LOGPROBS);
    }
    int rc = engine_logits(g, output, g->row, e);
    if (rc < 0) {
        return rc;
    }
    out[0].id = id;
    likeliest(g->row, vocab, n_top, out + 1);
    float max = -INFINITY;
    for (int i = 0; i < vocab; i++) {
        max = g->row[i] > max ? g->row[i] : max;
    }
    double total = 0;
    for (int i = 0; i < vocab; i++) {
        total += exp((double)g->row[i] - (double)max);
    }
    out[0].rank = 1;
    for (int i = 0; i < vocab; i++) {
        out[0].rank += g->row[i] > g->row[id];
    }
    for (int i = 0; i <= n_top; i++) {
        const float l = g->row[out[i].id];
        out[i].logprob = (float)((double)l - (double)max - log(total));
        if (i > 0) {
            out[i].rank = i > 1 && g->row[out[i - 1].id] == l ? out[i - 1].rank : i;
        }
    }
    return 0;
}
