/* From the keys of config.json to the geometry of the forward pass. Everything
 * that the kernels take for granted about the family is checked here, by the
 * key's own name, before a single weight is touched. */
#include "config.h"
#include "engine/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"

#define MAX_DIM (1 << 20)

static int want_int(const json_t *o, const char *key, int64_t want, struct err *e)
{
    int64_t v = want;
    int rc = json_get_int(o, key, false, INT64_MIN, INT64_MAX, &v, e);
    if (rc == 0 && v != want) {
        rc = err_set(e, QE_UNSUPPORTED,
                     "the model's %s is %" PRId64 "; this family has %" PRId64 " (not run here)",
                     key, v, want);
    }
    return rc;
}

static int want_bool(const json_t *o, const char *key, bool want, struct err *e)
{
    bool v = want;
    int rc = json_get_bool(o, key, false, &v, e);
    if (rc == 0 && v != want) {
        rc = err_set(e, QE_UNSUPPORTED, "the model's %s is %s; this family has %s (not run here)",
                     key, v ? "true" : "false", want ? "true" : "false");
    }
    return rc;
}

static int want_str(const json_t *o, const char *key, const char *want, struct err *e)
{
    const char *v = want;
    int rc = json_get_str(o, key, false, &v, e);
    if (rc == 0 && strcmp(v, want) != 0) {
        rc = err_set(e, QE_UNSUPPORTED, "the model's %s is \"%.40s\", not \"%s\" (not run here)",
                     key, v, want);
    }
    return rc;
}

static int want_num(const json_t *o, const char *key, double want, struct err *e)
{
    double v = want;
    int rc = json_get_num(o, key, false, &v, e);
    if (rc == 0 && fabs(v - want) > 1e-9) {
        rc = err_set(e, QE_UNSUPPORTED, "the model's %s is %g; this family has %g (not run here)",
                     key, v, want);
    }
    return rc;
}

static int dim(const json_t *o, const char *key, int64_t lo, int64_t hi, int *out, struct err *e)
{
    int64_t v = 0;
    int rc = json_get_int(o, key, true, lo, hi, &v, e);
    if (rc == 0) {
        *out = (int)v;
    }
    return rc;
}

static int check_type(const json_t *c, struct err *e)
{
    const char *t = NULL;
    int rc = json_get_str(c, "model_type", true, &t, e);
    if (rc == 0 && strcmp(t, "qwen3_5") != 0 && strcmp(t, "qwen3_5_text") != 0) {
        rc = err_set(e, QE_UNSUPPORTED,
                     "the model_type is \"%.40s\"; only the dense Qwen3.5 family (qwen3_5, "
                     "qwen3_5_text) is run here",
                     t);
    }
    return rc;
}

static int read_layers(const json_t *c, struct model_config *m, struct err *e)
{
    int n = m->shape.layers;
    m->attention = mem_array((size_t)n, 1);
    m->shape.attention = m->attention;
    const json_t *types = json_object_get(c, "layer_types");
    if (types && !json_is_null(types)) {
        if (!json_is_array(types) || json_array_size(types) != (size_t)n) {
            return err_set(e, QE_FORMAT, "layer_types must list num_hidden_layers = %d names", n);
        }
        for (int i = 0; i < n; i++) {
            const char *t = json_string_value(json_array_get(types, (size_t)i));
            if (t && strcmp(t, "full_attention") == 0) {
                m->attention[i] = 1;
            } else if (!t || strcmp(t, "linear_attention") != 0) {
                return err_set(e, QE_UNSUPPORTED,
                               "layer_types[%d] is \"%.40s\", neither linear_attention nor "
                               "full_attention",
                               i, t ? t : "?");
            }
        }
        return 0;
    }
    int64_t every = 4;
    int rc = json_get_int(c, "full_attention_interval", false, 1, n, &every, e);
    for (int i = 0; rc == 0 && i < n; i++) {
        m->attention[i] = (i + 1) % every == 0;
    }
    return rc;
}

static int read_rope(const json_t *c, struct be_shape *s, struct err *e)
{
    const json_t *r = json_object_get(c, "rope_parameters");
    if (!json_is_object(r)) {
        r = json_object_get(c, "rope_scaling");
    }
    static const int sections[3] = {11, 11, 10};
    memcpy(s->rope_sections, sections, sizeof sections);
    s->rope_base = 1e7;
    int rc = json_get_num(c, "rope_theta", false, &s->rope_base, e);
    if (rc == 0) {
        rc = want_num(c, "partial_rotary_factor", 0.25, e);
    }
    if (rc == 0 && json_is_object(r)) {
        rc = json_get_num(r, "rope_theta", false, &s->rope_base, e);
        if (rc == 0) {
            rc = want_num(r, "partial_rotary_factor", 0.25, e);
        }
        if (rc == 0) {
            rc = want_str(r, "rope_type", "default", e);
        }
        if (rc == 0) {
            rc = want_bool(r, "mrope_interleaved", true, e);
        }
        const json_t *sec = json_object_get(r, "mrope_section");
        for (size_t i = 0; rc == 0 && sec && i < 3; i++) {
            if (json_array_size(sec) != 3 ||
                json_integer_value(json_array_get(sec, i)) != sections[i]) {
                rc = err_set(e, QE_UNSUPPORTED,
                             "the model's mrope_section is not [11, 11, 10] (not run here)");
            }
        }
    }
    if (rc == 0 && !(s->rope_base >= 1 && s->rope_base <= 1e12)) {
        rc = err_set(e, QE_FORMAT, "the model's rope_theta is %g, outside 1 to 1e12", s->rope_base);
    }
    return rc;
}

static int read_heads(const json_t *c, struct be_shape *s, struct err *e)
{
    int rc = dim(c, "num_attention_heads", 1, 4096, &s->q_heads, e);
    if (rc == 0) {
        rc = dim(c, "num_key_value_heads", 1, 4096, &s->kv_heads, e);
    }
    if (rc == 0) {
        rc = dim(c, "linear_num_key_heads", 1, 4096, &s->k_heads, e);
    }
    if (rc == 0) {
        rc = dim(c, "linear_num_value_heads", 1, 4096, &s->v_heads, e);
    }
    if (rc == 0 && s->q_heads % s->kv_heads != 0) {
        rc = err_set(e, QE_FORMAT,
                     "num_attention_heads = %d is not a multiple of num_key_value_heads = %d",
                     s->q_heads, s->kv_heads);
    }
    if (rc == 0 && s->v_heads % s->k_heads != 0) {
        rc = err_set(e, QE_FORMAT,
                     "linear_num_value_heads = %d is not a multiple of linear_num_key_heads = %d",
                     s->v_heads, s->k_heads);
    }
    return rc;
}

/* What the kernels have built in, and what other families switch. */
static int check_fixed(const json_t *c, struct err *e)
{
    int rc = want_int(c, "head_dim", BE_HEAD_DIM, e);
    if (rc == 0) {
        rc = want_int(c, "linear_key_head_dim", BE_DN_DIM, e);
    }
    if (rc == 0) {
        rc = want_int(c, "linear_value_head_dim", BE_DN_DIM, e);
    }
    if (rc == 0) {
        rc = want_int(c, "linear_conv_kernel_dim", BE_CONV, e);
    }
    if (rc == 0) {
        rc = want_bool(c, "attention_bias", false, e);
    }
    if (rc == 0) {
        rc = want_bool(c, "attn_output_gate", true, e);
    }
    if (rc == 0) {
        rc = want_bool(c, "mtp_use_dedicated_embeddings", false, e);
    }
    return rc == 0 ? want_str(c, "hidden_act", "silu", e) : rc;
}

bool model_config_ends(const struct model_config *m, int64_t id)
{
    for (int i = 0; i < m->n_eos; i++) {
        if (m->eos[i] == id) {
            return true;
        }
    }
    return false;
}

static void add_eos(struct model_config *m, int64_t id)
{
    if (id >= 0 && id < m->shape.vocab && m->n_eos < 64 && !model_config_ends(m, id)) {
        m->eos = mem_realloc(m->eos, (size_t)(m->n_eos + 1) * sizeof *m->eos);
        m->eos[m->n_eos++] = (int32_t)id;
    }
}

static void add_eos_value(struct model_config *m, const json_t *v)
{
    if (json_is_integer(v)) {
        add_eos(m, json_integer_value(v));
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        add_eos(m, json_integer_value(json_array_get(v, i)));
    }
}

static int read_all(const json_t *c, struct model_config *m, struct err *e)
{
    struct be_shape *s = &m->shape;
    int rc = check_type(c, e);
    if (rc == 0) {
        rc = check_fixed(c, e);
    }
    if (rc == 0) {
        rc = dim(c, "hidden_size", 64, MAX_DIM, &s->hidden, e);
    }
    if (rc == 0) {
        rc = dim(c, "num_hidden_layers", 1, 1024, &s->layers, e);
    }
    if (rc == 0) {
        rc = dim(c, "intermediate_size", 64, MAX_DIM, &s->ffn, e);
    }
    if (rc == 0) {
        rc = dim(c, "vocab_size", 1, 1 << 22, &s->vocab, e);
    }
    if (rc == 0) {
        rc = read_heads(c, s, e);
    }
    double eps = 1e-6;
    if (rc == 0) {
        rc = json_get_num(c, "rms_norm_eps", false, &eps, e);
    }
    if (rc == 0 && !(eps > 0 && eps < 1)) {
        rc = err_set(e, QE_FORMAT, "the model's rms_norm_eps is %g, outside 0 to 1", eps);
    }
    s->eps = (float)eps;
    if (rc == 0) {
        rc = read_layers(c, m, e);
    }
    if (rc == 0) {
        rc = read_rope(c, s, e);
    }
    m->ctx_max = 262144;
    int64_t v = m->ctx_max;
    if (rc == 0) {
        rc = json_get_int(c, "max_position_embeddings", false, BE_BLOCK, 1 << 24, &v, e);
    }
    m->ctx_max = (int)v;
    v = 0;
    if (rc == 0) {
        rc = json_get_int(c, "mtp_num_hidden_layers", false, 0, 1, &v, e);
    }
    s->mtp = v == 1;
    if (rc == 0) {
        rc = json_get_bool(c, "tie_word_embeddings", false, &m->tied, e);
    }
    /* The published vocabularies are padded to 248,320 rows. */
    s->vocab_used = s->vocab == 248320 ? 248077 : s->vocab;
    add_eos_value(m, json_object_get(c, "eos_token_id"));
    m->sampling = (struct engine_sampling){.temp = 1, .top_p = 1, .repetition = 1};
    return rc;
}

int model_config_read(const json_t *config, struct model_config *out, struct err *e)
{
    struct model_config m = {0};
    int rc = 0;
    if (!json_is_object(config)) {
        rc = err_set(e, QE_FORMAT, "the model file has no configuration");
    } else {
        rc = read_all(config, &m, e);
    }
    if (rc < 0) {
        model_config_fini(&m);
        return rc;
    }
    *out = m;
    return 0;
}

int model_config_generation(struct model_config *m, const char *p, size_t n, struct err *e)
{
    json_t *o = NULL;
    int rc = json_parse(p, n, "generation_config.json", &o, e);
    if (rc < 0) {
        return rc;
    }
    double temp = m->sampling.temp, top_p = m->sampling.top_p, min_p = 0;
    double repetition = 1, frequency = 0, presence = 0;
    int64_t top_k = 0;
    bool sample = true;
    rc = json_get_num(o, "temperature", false, &temp, e);
    if (rc == 0) {
        rc = json_get_num(o, "top_p", false, &top_p, e);
    }
    if (rc == 0) {
        rc = json_get_num(o, "min_p", false, &min_p, e);
    }
    if (rc == 0) {
        rc = json_get_int(o, "top_k", false, 0, 1 << 20, &top_k, e);
    }
    if (rc == 0) {
        rc = json_get_bool(o, "do_sample", false, &sample, e);
    }
    if (rc == 0) {
        rc = json_get_num(o, "repetition_penalty", false, &repetition, e);
    }
    if (rc == 0) {
        rc = json_get_num(o, "frequency_penalty", false, &frequency, e);
    }
    if (rc == 0) {
        rc = json_get_num(o, "presence_penalty", false, &presence, e);
    }
    if (rc == 0 &&
        !(repetition > 0 && repetition <= 100 && fabs(frequency) <= 2 && fabs(presence) <= 2)) {
        rc = err_set(e, QE_FORMAT,
                     "generation_config.json: repetition_penalty %g, frequency_penalty %g or "
                     "presence_penalty %g is out of range",
                     repetition, frequency, presence);
    }
    if (rc == 0 &&
        !(temp >= 0 && temp <= 100 && top_p > 0 && top_p <= 1 && min_p >= 0 && min_p <= 1)) {
        rc = err_set(e, QE_FORMAT,
                     "generation_config.json: temperature %g, top_p %g or min_p %g is out of range",
                     temp, top_p, min_p);
    }
    if (rc == 0) {
        add_eos_value(m, json_object_get(o, "eos_token_id"));
        m->sampling = (struct engine_sampling){.temp = sample ? (float)temp : 0,
                                               .top_p = (float)top_p,
                                               .min_p = (float)min_p,
                                               .top_k = (int)top_k,
                                               .repetition = (float)repetition,
                                               .frequency = (float)frequency,
                                               .presence = (float)presence};
    }
    json_decref(o);
    return rc;
}

void model_config_fini(struct model_config *m)
{
    free(m->attention);
    free(m->eos);
    *m = (struct model_config){0};
}
