/* src/engine/config: what is read from a configuration, and that whatever the
 * kernels take for granted is refused by its key's name. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/jsonio.h"
#include "engine/config.h"

static const char good[] =
    "{\"model_type\":\"qwen3_5_text\",\"hidden_size\":384,\"num_hidden_layers\":8,"
    "\"intermediate_size\":1152,\"vocab_size\":8192,\"num_attention_heads\":6,"
    "\"num_key_value_heads\":1,\"head_dim\":256,\"linear_num_key_heads\":2,"
    "\"linear_num_value_heads\":6,\"linear_key_head_dim\":128,\"linear_value_head_dim\":128,"
    "\"linear_conv_kernel_dim\":4,\"rms_norm_eps\":1e-6,\"max_position_embeddings\":32768,"
    "\"mtp_num_hidden_layers\":1,\"eos_token_id\":8142,\"rope_parameters\":{\"rope_theta\":1e7,"
    "\"rope_type\":\"default\",\"mrope_section\":[11,11,10],\"partial_rotary_factor\":0.25}}";

/* The good configuration with one key replaced (value NULL: removed). */
static json_t *with(const char *key, const char *value)
{
    json_t *o = NULL;
    assert_int_equal(json_parse(good, sizeof good - 1, "test", &o, NULL), 0);
    if (key && !value) {
        json_object_del(o, key);
    } else if (key) {
        json_object_set_new(o, key, json_loads(value, JSON_DECODE_ANY, NULL));
    }
    return o;
}

static void reads_the_family(void **state)
{
    (void)state;
    json_t *o = with(NULL, NULL);
    struct model_config m = {0};
    struct err e = ERR_INIT;
    assert_int_equal(model_config_read(o, &m, &e), 0);
    assert_int_equal(m.shape.hidden, 384);
    assert_int_equal(m.shape.layers, 8);
    assert_int_equal(m.shape.v_heads, 6);
    assert_true(m.shape.mtp);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(m.attention[i], i == 3 || i == 7);
    }
    assert_int_equal(m.ctx_max, 32768);
    assert_int_equal(m.n_eos, 1);
    const char gen[] = "{\"temperature\":0.7,\"top_p\":0.9,\"top_k\":20,"
                       "\"eos_token_id\":[8142,8140]}";
    assert_int_equal(model_config_generation(&m, gen, sizeof gen - 1, &e), 0);
    assert_int_equal(m.n_eos, 2);
    assert_int_equal(m.eos[0], 8142);
    assert_int_equal(m.eos[1], 8140);
    assert_float_equal(m.sampling.temp, 0.7, 1e-6);
    assert_int_equal(m.sampling.top_k, 20);
    model_config_fini(&m);
    json_decref(o);
}

static void refuses_by_name(void **state)
{
    (void)state;
    const char *const bad[][3] = {
        {"model_type", "\"llama\"", "model_type"},
        {"model_type", NULL, "model_type"},
        {"model_type", "\"qwen3_5_moe\"", "qwen3_5_moe"},
        {"hidden_size", "0", "hidden_size"},
        {"hidden_size", "\"big\"", "hidden_size"},
        {"hidden_size", "384.5", "hidden_size"},
        {"num_hidden_layers", "-3", "num_hidden_layers"},
        {"num_hidden_layers", "99999999999", "num_hidden_layers"},
        {"head_dim", "128", "head_dim"},
        {"linear_key_head_dim", "64", "linear_key_head_dim"},
        {"linear_conv_kernel_dim", "3", "linear_conv_kernel_dim"},
        {"num_key_value_heads", "4", "num_key_value_heads"},
        {"linear_num_key_heads", "4", "linear_num_value_heads"},
        {"attention_bias", "true", "attention_bias"},
        {"attn_output_gate", "false", "attn_output_gate"},
        {"hidden_act", "\"gelu\"", "hidden_act"},
        {"layer_types", "[\"full_attention\"]", "layer_types"},
        {"layer_types", "[1,2,3,4,5,6,7,8]", "layer_types"},
        {"rope_parameters", "{\"rope_type\":\"yarn\"}", "rope_type"},
        {"rope_parameters", "{\"mrope_section\":[16,8,8]}", "mrope_section"},
        {"rope_parameters", "{\"partial_rotary_factor\":0.5}", "partial_rotary_factor"},
        {"rope_parameters", "{\"rope_theta\":-1}", "rope_theta"},
        {"rms_norm_eps", "2", "rms_norm_eps"},
        {"mtp_num_hidden_layers", "2", "mtp_num_hidden_layers"},
        {"mtp_use_dedicated_embeddings", "true", "mtp_use_dedicated_embeddings"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *o = with(bad[i][0], bad[i][1]);
        struct model_config m = {0};
        struct err e = ERR_INIT;
        if (model_config_read(o, &m, &e) == 0 || !strstr(e.msg, bad[i][2])) {
            fail_msg("%s = %s gave \"%s\"", bad[i][0], bad[i][1] ? bad[i][1] : "(none)", e.msg);
        }
        json_decref(o);
    }
    struct model_config m = {0};
    assert_int_equal(model_config_read(NULL, &m, NULL), QE_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_the_family),
        cmocka_unit_test(refuses_by_name),
    };
    return cmocka_run_group_tests_name("model_config", tests, NULL, NULL);
}
