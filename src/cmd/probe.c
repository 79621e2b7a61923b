/* Checksums of the engine's state and figures of one row of logits. */
#include "config.h"
#include "cmd/probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/config.h"

json_t *probe_checksum(const float *v, const int64_t *shape, int n_dims)
{
    json_t *dims = json_array();
    int64_t n = 1;
    for (int i = 0; i < n_dims; i++) {
        json_array_append_new(dims, json_integer(shape[i]));
        n *= shape[i];
    }
    double sum = 0, abs_sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)v[i];
        abs_sum += fabs((double)v[i]);
        square += (double)v[i] * (double)v[i];
    }
    json_t *head = json_array();
    for (int64_t i = 0; i < n && i < 8; i++) {
        json_array_append_new(head, json_real((double)v[i]));
    }
    json_t *o = json_object();
    json_object_set_new(o, "shape", dims);
    json_object_set_new(o, "sum", json_real(sum));
    json_object_set_new(o, "abs_sum", json_real(abs_sum));
    json_object_set_new(o, "l2", json_real(sqrt(square)));
    json_object_set_new(o, "head", head);
    return o;
}

static int gdn_state(struct engine *g, const struct be_shape *s, int seq, int before, int layer,
                     json_t *o, struct err *e)
{
    const int ch = (2 * s->k_heads + s->v_heads) * BE_DN_DIM;
    const size_t n_state = (size_t)s->v_heads * BE_DN_DIM * BE_DN_DIM;
    float *now = mem_array((size_t)ch * 3, sizeof *now);
    float *old = mem_array((size_t)ch * 3, sizeof *old);
    float *conv = mem_array((size_t)ch * 4, sizeof *conv);
    float *state = mem_array(n_state, sizeof *state);
    int rc = engine_read_gdn(g, seq, layer, now, state, e);
    if (rc == 0 && before >= 0) {
        rc = engine_read_gdn(g, before, layer, old, NULL, e);
    }
    if (rc == 0) {
        for (int i = 0; i < ch; i++) {
            conv[4 * i] = old[3 * i];
            memcpy(&conv[4 * i + 1], &now[3 * i], 3 * sizeof *conv);
        }
        const int64_t cs[] = {1, ch, 4}, ss[] = {1, s->v_heads, BE_DN_DIM, BE_DN_DIM};
        json_object_set_new(o, "conv_states", probe_checksum(conv, cs, 3));
        json_object_set_new(o, "recurrent_states", probe_checksum(state, ss, 4));
    }
    free(now);
    free(old);
    free(conv);
    free(state);
    return rc;
}

/* [n, heads, 256] to [heads, n, 256] */
static json_t *by_head(const float *v, int n, int heads, float *tmp)
{
    for (int t = 0; t < n; t++) {
        for (int h = 0; h < heads; h++) {
            memcpy(tmp + ((size_t)h * (size_t)n + (size_t)t) * BE_HEAD_DIM,
                   v + ((size_t)t * (size_t)heads + (size_t)h) * BE_HEAD_DIM,
                   BE_HEAD_DIM * sizeof *tmp);
        }
    }
    const int64_t shape[] = {1, heads, n, BE_HEAD_DIM};
    return probe_checksum(tmp, shape, 4);
}

static int kv_state(struct engine *g, const struct be_shape *s, int seq, int layer, json_t *o,
                    struct err *e)
{
    const int n = engine_seq_len(g, seq);
    const size_t size = (size_t)n * (size_t)s->kv_heads * BE_HEAD_DIM;
    float *k = mem_array(size, sizeof *k);
    float *v = mem_array(size, sizeof *v);
    float *tmp = mem_array(size, sizeof *tmp);
    int rc = engine_read_kv(g, seq, layer, k, v, e);
    if (rc == 0) {
        json_object_set_new(o, "keys", by_head(k, n, s->kv_heads, tmp));
        json_object_set_new(o, "values", by_head(v, n, s->kv_heads, tmp));
    }
    free(k);
    free(v);
    free(tmp);
    return rc;
}

int probe_states(struct engine *g, const json_t *config, int seq, int before, json_t **out,
                 struct err *e)
{
    struct model_config m = {0};
    int rc = model_config_read(config, &m, e);
    if (rc < 0) {
        return rc;
    }
    json_t *all = json_array();
    for (int i = 0; i < m.shape.layers && rc == 0; i++) {
        json_t *o = json_object();
        json_object_set_new(o, "layer", json_integer(i));
        rc = m.attention[i] ? kv_state(g, &m.shape, seq, i, o, e)
                            : gdn_state(g, &m.shape, seq, before, i, o, e);
        json_array_append_new(all, o);
    }
    model_config_fini(&m);
    if (rc < 0) {
        json_decref(all);
        return rc;
    }
    *out = all;
    return 0;
}

double probe_logsumexp(const float *logits, int n)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        max = fmax(max, (double)logits[i]);
    }
    for (int i = 0; i < n; i++) {
        sum += exp((double)logits[i] - max);
    }
    return max + log(sum);
}

void probe_top(const float *logits, int n, int k, int32_t *ids)
{
    int have = 0;
    for (int i = 0; i < n; i++) {
        if (have == k && !(logits[i] > logits[ids[k - 1]])) {
            continue;
        }
        int at = have < k ? have++ : k - 1;
        for (; at > 0 && logits[i] > logits[ids[at - 1]]; at--) {
            ids[at] = ids[at - 1];
        }
        ids[at] = i;
    }
}

int32_t probe_argmax(const float *logits, int n)
{
    int32_t id = 0;
    probe_top(logits, n, 1, &id);
    return id;
}
