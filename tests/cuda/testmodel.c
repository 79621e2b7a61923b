/* A random model in memory for tests of whole backends. */
#include "config.h"
#include "tests/cuda/testmodel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { H = TM_HIDDEN, FFN = 384, QKV = 1280, VALUES = 768, HEADS = 6, MAX = 96 };

struct item {
    char name[64];
    struct tensor t;
};

struct testmodel {
    struct item item[MAX];
    int n;
    uint64_t rng;
    json_t *config;
    struct engine_source source;
};

static uint64_t word(struct testmodel *m)
{
    uint64_t z = m->rng += 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

static float uniform(struct testmodel *m)
{
    return (float)(word(m) >> 40) * 0x1p-23F - 1;
}

/* rows 0: a vector. Values mid +- amp. */
static void add(struct testmodel *m, const char *prefix, const char *leaf, enum dtype t, int rows,
                int cols, float mid, float amp)
{
    struct item *it = &m->item[m->n++];
    if (m->n > MAX) {
        abort();
    }
    snprintf(it->name, sizeof it->name, "%s%s", prefix, leaf);
    it->t = (struct tensor){.name = it->name, .dtype = t, .n_dims = rows ? 2 : 1};
    it->t.shape[0] = (uint64_t)(rows ? rows : cols);
    it->t.shape[1] = (uint64_t)(rows ? cols : 0);
    const size_t n = (size_t)(rows ? rows : 1) * (size_t)cols;
    if (dtype_sizes(t, rows ? (uint64_t)rows : 1, (uint64_t)cols, &it->t.size, &it->t.scale_size) <
        0) {
        abort();
    }
    uint8_t *data = mem_aligned(it->t.size);
    uint16_t *scales = it->t.scale_size ? mem_aligned(it->t.scale_size) : NULL;
    for (size_t i = 0; i < n; i++) {
        const float v = mid + amp * uniform(m);
        const uint16_t h = t == DT_F16 ? f32_to_f16(v) : f32_to_bf16(v);
        switch (t) {
        case DT_F32:
            memcpy(data + 4 * i, &v, 4);
            break;
        case DT_F16:
        case DT_BF16:
            memcpy(data + 2 * i, &h, 2);
            break;
        case DT_Q8_G128:
            data[i] = (uint8_t)(int8_t)(int)(127 * uniform(m));
            break;
        case DT_Q4_G64:
            data[i / 2] = (uint8_t)word(m);
            break;
        }
    }
    for (size_t i = 0; i < it->t.scale_size / 2; i++) {
        scales[i] = f32_to_f16(amp / (t == DT_Q8_G128 ? 127 : 8) * (1.2F + 0.4F * uniform(m)));
    }
    it->t.data = data;
    it->t.scales = scales;
}

static void matrix(struct testmodel *m, const char *prefix, const char *leaf, enum dtype t,
                   int rows, int cols)
{
    add(m, prefix, leaf, t, rows, cols, 0, 1.7F / sqrtf((float)cols));
}

static void layer(struct testmodel *m, const char *p, bool attention, enum dtype t, enum dtype up)
{
    add(m, p, "input_layernorm.weight", DT_F32, 0, H, 0, 0.3F);
    add(m, p, "post_attention_layernorm.weight", DT_BF16, 0, H, 0, 0.3F);
    matrix(m, p, "mlp.gate_proj.weight", t, FFN, H);
    matrix(m, p, "mlp.up_proj.weight", up, FFN, H);
    matrix(m, p, "mlp.down_proj.weight", t, H, FFN);
    if (attention) {
        matrix(m, p, "self_attn.q_proj.weight", t, 1024, H);
        matrix(m, p, "self_attn.k_proj.weight", t, 256, H);
        matrix(m, p, "self_attn.v_proj.weight", up, 256, H);
        matrix(m, p, "self_attn.o_proj.weight", t, H, 512);
        add(m, p, "self_attn.q_norm.weight", DT_F32, 0, 256, 0, 0.3F);
        add(m, p, "self_attn.k_norm.weight", DT_F32, 0, 256, 0, 0.3F);
        return;
    }
    matrix(m, p, "linear_attn.in_proj_qkv.weight", t, QKV, H);
    matrix(m, p, "linear_attn.in_proj_z.weight", t, VALUES, H);
    matrix(m, p, "linear_attn.in_proj_b.weight", DT_F16, HEADS, H);
    matrix(m, p, "linear_attn.in_proj_a.weight", DT_F32, HEADS, H);
    matrix(m, p, "linear_attn.out_proj.weight", t, H, VALUES);
    add(m, p, "linear_attn.conv1d.weight", DT_F32, QKV, 4, 0, 0.8F);
    add(m, p, "linear_attn.A_log", DT_F32, 0, HEADS, 0.3F, 0.6F);
    add(m, p, "linear_attn.dt_bias", DT_F32, 0, HEADS, -1, 1);
    add(m, p, "linear_attn.norm.weight", DT_F32, 0, 128, 1, 0.3F);
}

static json_t *config(void)
{
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, "
        "s:i, s:i, s:b, s:{s:s, s:f, s:f, s:b, s:[iii]}}",
        "model_type", "qwen3_5_text", "hidden_size", H, "num_hidden_layers", 4, "intermediate_size",
        FFN, "vocab_size", TM_VOCAB, "num_attention_heads", 2, "num_key_value_heads", 1, "head_dim",
        256, "linear_num_key_heads", 2, "linear_num_value_heads", HEADS, "linear_key_head_dim", 128,
        "linear_value_head_dim", 128, "linear_conv_kernel_dim", 4, "max_position_embeddings", 4096,
        "rms_norm_eps", 1e-6, "full_attention_interval", 4, "mtp_num_hidden_layers", 1,
        "tie_word_embeddings", 0, "rope_parameters", "rope_type", "default", "rope_theta", 1e7,
        "partial_rotary_factor", 0.25, "mrope_interleaved", 1, "mrope_section", 11, 11, 10);
}

static const struct tensor *find(void *ctx, const char *name)
{
    const struct testmodel *m = ctx;
    for (int i = 0; i < m->n; i++) {
        if (strcmp(m->item[i].name, name) == 0) {
            return &m->item[i].t;
        }
    }
    return NULL;
}

struct testmodel *testmodel_create(uint64_t seed)
{
    static const enum dtype types[] = {DT_Q4_G64, DT_Q8_G128, DT_BF16, DT_Q4_G64};
    static const enum dtype ups[] = {DT_Q4_G64, DT_Q4_G64, DT_F16, DT_Q8_G128};
    struct testmodel *m = mem_zalloc(sizeof *m);
    m->rng = seed;
    add(m, "", "embed_tokens.weight", DT_Q8_G128, TM_VOCAB, H, 0, 1);
    matrix(m, "", "lm_head.weight", DT_Q8_G128, TM_VOCAB, H);
    add(m, "", "norm.weight", DT_F32, 0, H, 0, 0.3F);
    for (int i = 0; i < 4; i++) {
        char p[32];
        snprintf(p, sizeof p, "layers.%d.", i);
        layer(m, p, i == 3, types[i], ups[i]);
    }
    matrix(m, "mtp.", "fc.weight", DT_Q8_G128, H, 2 * H);
    add(m, "mtp.", "pre_fc_norm_embedding.weight", DT_F32, 0, H, 0, 0.3F);
    add(m, "mtp.", "pre_fc_norm_hidden.weight", DT_F32, 0, H, 0, 0.3F);
    add(m, "mtp.", "norm.weight", DT_F32, 0, H, 0, 0.3F);
    layer(m, "mtp.layers.0.", true, DT_Q8_G128, DT_Q8_G128);
    m->config = config();
    m->source = (struct engine_source){
        .find = find, .ctx = m, .config = m->config, .name = "test", .tier = "mixed", .digest = ""};
    return m;
}

void testmodel_free(struct testmodel *m)
{
    for (int i = 0; i < m->n; i++) {
        free((void *)(uintptr_t)m->item[i].t.data);
        free((void *)(uintptr_t)m->item[i].t.scales);
    }
    json_decref(m->config);
    free(m);
}

const struct engine_source *testmodel_source(const struct testmodel *m)
{
    return &m->source;
}
