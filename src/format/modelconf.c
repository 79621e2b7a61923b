/* The model description in one shape. Every number is checked here once, with
 * limits far above any member of the family, so that later products fit. */
#include "config.h"
#include "format/modelconf.h"

#include <stdio.h>
#include <string.h>

#include "base/jsonio.h"

struct key {
    const char *name;
    const char *gguf; /* after "qwen35.", NULL: not taken from there */
    int64_t lo, hi;
};

static const struct key int_keys[] = {
    {"hidden_size", "embedding_length", 64, 1 << 20},
    {"num_hidden_layers", NULL, 1, 1024},
    {"intermediate_size", "feed_forward_length", 1, 1 << 22},
    {"num_attention_heads", "attention.head_count", 1, 4096},
    {"num_key_value_heads", "attention.head_count_kv", 1, 4096},
    {"head_dim", "attention.key_length", 1, 4096},
    {"linear_num_key_heads", "ssm.group_count", 1, 4096},
    {"linear_num_value_heads", "ssm.time_step_rank", 1, 4096},
    {"linear_key_head_dim", "ssm.state_size", 1, 4096},
    {"linear_value_head_dim", NULL, 1, 4096},
    {"linear_conv_kernel_dim", "ssm.conv_kernel", 1, 64},
    {"vocab_size", NULL, 1, 1 << 26},
    {"max_position_embeddings", "context_length", 1, INT64_C(1) << 40},
};

#define N_INT_KEYS (sizeof int_keys / sizeof *int_keys)

static int refuse(struct err *e, const char *what, const char *key, const char *type)
{
    return err_set(e, QE_UNSUPPORTED,
                   "%s: %s \"%s\" is not supported (only the dense Qwen3.5, 3.6 and 3.8 "
                   "models are: qwen3_5, in GGUF qwen35)",
                   what, key, type);
}

static bool is_family(const char *type)
{
    return strcmp(type, "qwen3_5") == 0 || strcmp(type, "qwen3_5_text") == 0;
}

static int check_type(const json_t *o, const char *what, struct err *e)
{
    const char *type = NULL;
    int rc = json_get_str(o, "model_type", true, &type, e);
    if (rc < 0) {
        return err_wrap(e, rc, "%s", what);
    }
    return is_family(type) ? 0 : refuse(e, what, "the model type", type);
}

int modelconf_check(const json_t *c, const char *what, struct err *e)
{
    if (!json_is_object(c)) {
        return err_set(e, QE_FORMAT, "%s: the model description is not an object", what);
    }
    int rc = check_type(c, what, e);
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < N_INT_KEYS; i++) {
        const struct key *k = &int_keys[i];
        int64_t v = 0;
        rc = json_get_int(c, k->name, true, k->lo, k->hi, &v, e);
        if (rc < 0) {
            return err_wrap(e, rc, "%s", what);
        }
    }
    int64_t n = json_integer_value(json_object_get(c, "num_hidden_layers"));
    const json_t *types = json_object_get(c, "layer_types");
    if (!json_is_array(types) || (int64_t)json_array_size(types) != n) {
        return err_set(e, QE_FORMAT, "%s: layer_types must list all %d layers", what, (int)n);
    }
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *t = json_string_value(json_array_get(types, i));
        if (!t || (strcmp(t, "linear_attention") != 0 && strcmp(t, "full_attention") != 0)) {
            return err_set(e, QE_UNSUPPORTED,
                           "%s: layer_types[%zu] is \"%s\", neither linear_attention nor "
                           "full_attention",
                           what, i, t ? t : "no string");
        }
    }
    int64_t hk = json_integer_value(json_object_get(c, "linear_num_key_heads"));
    int64_t hv = json_integer_value(json_object_get(c, "linear_num_value_heads"));
    if (hv % hk != 0) {
        return err_set(e, QE_FORMAT, "%s: linear_num_value_heads %d is no multiple of %d key heads",
                       what, (int)hv, (int)hk);
    }
    double eps = 0;
    rc = json_get_num(c, "rms_norm_eps", true, &eps, e);
    if (rc == 0) {
        double theta = 0;
        rc = json_get_num(c, "rope_theta", true, &theta, e);
    }
    return rc < 0 ? err_wrap(e, rc, "%s", what) : 0;
}

struct modelconf modelconf_get(const json_t *c)
{
    struct modelconf m = {
        .layers = (int)json_integer_value(json_object_get(c, "num_hidden_layers")),
        .hidden = (int)json_integer_value(json_object_get(c, "hidden_size")),
        .vocab = (int)json_integer_value(json_object_get(c, "vocab_size")),
        .k_heads = (int)json_integer_value(json_object_get(c, "linear_num_key_heads")),
        .v_heads = (int)json_integer_value(json_object_get(c, "linear_num_value_heads")),
        .k_dim = (int)json_integer_value(json_object_get(c, "linear_key_head_dim")),
        .v_dim = (int)json_integer_value(json_object_get(c, "linear_value_head_dim")),
        .tied = json_is_true(json_object_get(c, "tie_word_embeddings")),
        .mtp = json_integer_value(json_object_get(c, "mtp_num_hidden_layers")) > 0,
    };
    return m;
}

/* The first of two places that has the key; borrowed. */
static json_t *either(const json_t *a, const json_t *b, const char *key)
{
    json_t *v = json_object_get(a, key);
    return v && !json_is_null(v) ? v : json_object_get(b, key);
}

/* rope_parameters, or rope_scaling beside rope_theta, or nothing at all. */
static void normalise_rope(json_t *o)
{
    json_t *from = json_object_get(o, "rope_parameters");
    if (!json_is_object(from)) {
        from = json_object_get(o, "rope_scaling");
    }
    json_t *rope = json_is_object(from) ? json_deep_copy(from) : json_object();
    if (!json_object_get(rope, "rope_type")) {
        json_t *t = json_object_get(rope, "type");
        json_object_set_new(rope, "rope_type", t ? json_incref(t) : json_string("default"));
    }
    json_object_del(rope, "type");
    static const char *const keys[] = {"rope_theta", "partial_rotary_factor", "mrope_section",
                                       "mrope_interleaved"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *v = either(rope, o, keys[i]);
        if (v && !json_is_null(v)) {
            json_incref(v);
        } else if (i == 0) {
            v = json_real(1e7);
        } else if (i == 1) {
            v = json_real(0.25);
        } else if (i == 2) {
            v = json_pack("[i,i,i]", 11, 11, 10);
        } else {
            v = json_true();
        }
        json_object_set(rope, keys[i], v);
        json_object_set_new(o, keys[i], v);
    }
    json_object_del(o, "rope_scaling");
    json_object_set_new(o, "rope_parameters", rope);
}

static void set_default(json_t *o, const char *key, json_t *value)
{
    const json_t *v = json_object_get(o, key);
    if (v && !json_is_null(v)) {
        json_decref(value);
    } else {
        json_object_set_new(o, key, value);
    }
}

static int fill_layer_types(json_t *o, const char *what, struct err *e)
{
    if (json_is_array(json_object_get(o, "layer_types"))) {
        return 0;
    }
    int64_t n = 0;
    int64_t every = 4;
    int rc = json_get_int(o, "num_hidden_layers", true, 1, 1024, &n, e);
    if (rc == 0) {
        rc = json_get_int(o, "full_attention_interval", false, 1, 1024, &every, e);
    }
    if (rc < 0) {
        return err_wrap(e, rc, "%s", what);
    }
    json_t *types = json_array();
    for (int64_t i = 0; i < n; i++) {
        json_array_append_new(
            types, json_string((i + 1) % every == 0 ? "full_attention" : "linear_attention"));
    }
    json_object_set_new(o, "layer_types", types);
    return 0;
}

static int finish(json_t *o, const char *what, json_t **out, struct err *e)
{
    int rc = fill_layer_types(o, what, e);
    if (rc == 0) {
        normalise_rope(o);
        set_default(o, "rms_norm_eps", json_real(1e-6));
        set_default(o, "tie_word_embeddings", json_false());
        set_default(o, "mtp_num_hidden_layers", json_integer(0));
        set_default(o, "max_position_embeddings", json_integer(262144));
        set_default(o, "linear_conv_kernel_dim", json_integer(4));
        json_object_set_new(o, "model_type", json_string("qwen3_5_text"));
        rc = modelconf_check(o, what, e);
    }
    if (rc < 0) {
        json_decref(o);
        return rc;
    }
    *out = o;
    return 0;
}

int modelconf_from_hf(const json_t *config, const char *what, json_t **out, struct err *e)
{
    if (!json_is_object(config)) {
        return err_set(e, QE_FORMAT, "%s is not a JSON object", what);
    }
    int rc = check_type(config, what, e);
    if (rc < 0) {
        return rc;
    }
    const json_t *text = json_object_get(config, "text_config");
    if (text && !json_is_object(text)) {
        return err_set(e, QE_FORMAT, "%s: text_config is not an object", what);
    }
    json_t *o = json_deep_copy(text ? text : config);
    if (text) {
        set_default(o, "model_type", json_string("qwen3_5_text"));
        rc = check_type(o, what, e);
        if (rc < 0) {
            json_decref(o);
            return rc;
        }
        static const char *const outer[] = {
            "tie_word_embeddings", "eos_token_id",          "pad_token_id",       "image_token_id",
            "video_token_id",      "vision_start_token_id", "vision_end_token_id"};
        for (size_t i = 0; i < sizeof outer / sizeof *outer; i++) {
            json_t *v = json_object_get(config, outer[i]);
            if (v) {
                set_default(o, outer[i], json_incref(v));
            }
        }
    }
    return finish(o, what, out, e);
}

static json_t *gguf_get(const json_t *kv, const char *key)
{
    char full[128];
    snprintf(full, sizeof full, "qwen35.%s", key);
    return json_object_get(kv, full);
}

/* per-layer arrays (head counts) are given as their largest entry */
static bool gguf_int(const json_t *kv, const char *key, int64_t *out)
{
    const json_t *v = gguf_get(kv, key);
    if (json_is_array(v)) {
        int64_t best = 0;
        for (size_t i = 0; i < json_array_size(v); i++) {
            int64_t x = json_integer_value(json_array_get(v, i));
            best = x > best ? x : best;
        }
        *out = best;
        return best > 0;
    }
    if (!json_is_integer(v)) {
        return false;
    }
    *out = json_integer_value(v);
    return true;
}

int modelconf_from_gguf(const json_t *kv, const char *what, uint64_t vocab, bool tied, json_t **out,
                        struct err *e)
{
    const char *arch = json_string_value(json_object_get(kv, "general.architecture"));
    if (!arch) {
        return err_set(e, QE_FORMAT, "%s: general.architecture is missing", what);
    }
    if (strcmp(arch, "qwen35") != 0) {
        return refuse(e, what, "the architecture", arch);
    }
    int64_t blocks = 0;
    int64_t nextn = 0;
    int64_t inner = 0;
    if (!gguf_int(kv, "block_count", &blocks)) {
        return err_set(e, QE_FORMAT, "%s: qwen35.block_count is missing", what);
    }
    gguf_int(kv, "nextn_predict_layers", &nextn);
    if (blocks < 1 || blocks > 1024 || nextn < 0 || nextn > 1 || nextn >= blocks) {
        return err_set(e, QE_FORMAT, "%s: block_count %lld with nextn_predict_layers %lld", what,
                       (long long)blocks, (long long)nextn);
    }
    json_t *o = json_object();
    json_object_set_new(o, "model_type", json_string("qwen3_5_text"));
    json_object_set_new(o, "architectures", json_pack("[s]", "Qwen3_5ForCausalLM"));
    for (size_t i = 0; i < N_INT_KEYS; i++) {
        int64_t v = 0;
        if (int_keys[i].gguf && gguf_int(kv, int_keys[i].gguf, &v)) {
            json_object_set_new(o, int_keys[i].name, json_integer(v));
        }
    }
    json_object_set_new(o, "num_hidden_layers", json_integer(blocks - nextn));
    json_object_set_new(o, "mtp_num_hidden_layers", json_integer(nextn));
    json_object_set_new(o, "mtp_use_dedicated_embeddings", json_false());
    json_object_set_new(o, "vocab_size", json_integer((json_int_t)(vocab & INT64_MAX)));
    json_object_set_new(o, "tie_word_embeddings", json_boolean(tied));
    int64_t hv = json_integer_value(json_object_get(o, "linear_num_value_heads"));
    if (gguf_int(kv, "ssm.inner_size", &inner) && hv > 0 && inner % hv == 0) {
        json_object_set_new(o, "linear_value_head_dim", json_integer(inner / hv));
    }
    int64_t every = 4;
    gguf_int(kv, "full_attention_interval", &every);
    json_object_set_new(o, "full_attention_interval", json_integer(every));
    const json_t *v = gguf_get(kv, "attention.layer_norm_rms_epsilon");
    if (json_is_number(v)) {
        json_object_set_new(o, "rms_norm_eps", json_real(json_number_value(v)));
    }
    v = gguf_get(kv, "rope.freq_base");
    if (json_is_number(v)) {
        json_object_set_new(o, "rope_theta", json_real(json_number_value(v)));
    }
    int64_t rot = 0;
    int64_t head = json_integer_value(json_object_get(o, "head_dim"));
    if (gguf_int(kv, "rope.dimension_count", &rot) && head > 0) {
        json_object_set_new(o, "partial_rotary_factor", json_real((double)rot / (double)head));
    }
    v = gguf_get(kv, "rope.dimension_sections");
    if (json_is_array(v) && json_array_size(v) >= 3) {
        json_t *s = json_array();
        for (size_t i = 0; i < 3; i++) {
            json_array_append(s, json_array_get(v, i));
        }
        json_object_set_new(o, "mrope_section", s);
    }
    static const char *const fixed_true[] = {"attn_output_gate", "mrope_interleaved"};
    for (size_t i = 0; i < 2; i++) {
        json_object_set_new(o, fixed_true[i], json_true());
    }
    json_object_set_new(o, "attention_bias", json_false());
    json_object_set_new(o, "hidden_act", json_string("silu"));
    return finish(o, what, out, e);
}

bool modelconf_is_38(const char *name)
{
    return name && (strstr(name, "wen3.8") || strstr(name, "wen-3.8") || strstr(name, "wen3_8"));
}
