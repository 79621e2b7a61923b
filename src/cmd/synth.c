/* Random weights with the shapes of the family. Codes and scales are drawn
 * directly, without encoding anything, so that making 16 GB takes seconds. Every
 * tensor's bytes depend on its name only. */
#include "config.h"
#include "cmd/synth.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "format/container_write.h"
#include "format/tier.h"

struct dims {
    const char *name;
    int hidden, layers, ffn, vocab, q_heads, kv_heads, k_heads, v_heads, ctx;
    bool tied;
};

static const struct dims known[] = {
    {"demo", 384, 8, 1152, 8192, 6, 1, 2, 6, 32768, false},
    {"qwen3.5-0.8b", 1024, 24, 3584, 248320, 8, 2, 16, 16, 262144, true},
    {"qwen3.6-27b", 5120, 64, 17408, 248320, 24, 4, 16, 48, 262144, false},
    {"qwen3.6-27b-slice", 5120, 8, 17408, 32768, 24, 4, 16, 48, 32768, false},
};

struct item {
    struct tensor t;
    char name[96];
    double mid, spread;      /* values are mid +- spread, uniform */
    const struct item *same; /* whose data these are; NULL: its own */
};

struct synth {
    const struct dims *d;
    const struct tier *tier;
    char model_name[64];
    struct item *items;
    size_t n, cap;
    json_t *config;
    uint64_t bytes;
};

const char *synth_names(void)
{
    return "demo, qwen3.5-0.8b, qwen3.6-27b, qwen3.6-27b-slice";
}

static void add(struct synth *s, const char *prefix, const char *leaf, int rows, int cols,
                double mid, double spread)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->items = mem_realloc(s->items, s->cap * sizeof *s->items);
    }
    struct item *it = &s->items[s->n++];
    *it = (struct item){.mid = mid, .spread = spread};
    snprintf(it->name, sizeof it->name, "%s%s", prefix, leaf);
    it->t.n_dims = rows ? 2 : 1;
    it->t.shape[0] = (uint64_t)(rows ? rows : cols);
    it->t.shape[1] = (uint64_t)(rows ? cols : 0);
    bool fell_back = false; /* never: the rows of these models are whole groups */
    it->t.dtype = tier_dtype(s->tier, it->name, it->t.n_dims, it->t.shape, &fell_back);
    size_t data = 0, scales = 0;
    dtype_sizes(it->t.dtype, rows ? (uint64_t)rows : 1, (uint64_t)cols, &data, &scales);
    it->t.size = data;
    it->t.scale_size = scales;
    s->bytes += data + scales;
}

/* A matrix whose outputs have about the size of its inputs. */
static void matrix(struct synth *s, const char *prefix, const char *leaf, int rows, int cols)
{
    add(s, prefix, leaf, rows, cols, 0, sqrt(3.0 / cols));
}

static void add_layer(struct synth *s, const char *prefix, bool attention)
{
    const struct dims *d = s->d;
    const int h = d->hidden, qd = d->q_heads * 256, kvd = d->kv_heads * 256;
    const int kd = d->k_heads * 128, vd = d->v_heads * 128;
    add(s, prefix, "input_layernorm.weight", 0, h, 0, 0.1);
    add(s, prefix, "post_attention_layernorm.weight", 0, h, 0, 0.1);
    matrix(s, prefix, "mlp.gate_proj.weight", d->ffn, h);
    matrix(s, prefix, "mlp.up_proj.weight", d->ffn, h);
    matrix(s, prefix, "mlp.down_proj.weight", h, d->ffn);
    if (attention) {
        matrix(s, prefix, "self_attn.q_proj.weight", 2 * qd, h);
        matrix(s, prefix, "self_attn.k_proj.weight", kvd, h);
        matrix(s, prefix, "self_attn.v_proj.weight", kvd, h);
        matrix(s, prefix, "self_attn.o_proj.weight", h, qd);
        add(s, prefix, "self_attn.q_norm.weight", 0, 256, 0, 0.1);
        add(s, prefix, "self_attn.k_norm.weight", 0, 256, 0, 0.1);
        return;
    }
    matrix(s, prefix, "linear_attn.in_proj_qkv.weight", 2 * kd + vd, h);
    matrix(s, prefix, "linear_attn.in_proj_z.weight", vd, h);
    matrix(s, prefix, "linear_attn.in_proj_b.weight", d->v_heads, h);
    matrix(s, prefix, "linear_attn.in_proj_a.weight", d->v_heads, h);
    matrix(s, prefix, "linear_attn.out_proj.weight", h, vd);
    add(s, prefix, "linear_attn.conv1d.weight", 2 * kd + vd, 4, 0, 0.8);
    add(s, prefix, "linear_attn.A_log", 0, d->v_heads, 1, 1);
    add(s, prefix, "linear_attn.dt_bias", 0, d->v_heads, -3, 2);
    add(s, prefix, "linear_attn.norm.weight", 0, 128, 1, 0.1);
}

static json_t *config_of(const struct dims *d)
{
    json_t *types = json_array();
    for (int i = 0; i < d->layers; i++) {
        json_array_append_new(
            types, json_string((i + 1) % 4 == 0 ? "full_attention" : "linear_attention"));
    }
    return json_pack(
        "{s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:i, s:b, "
        "s:f, s:f, s:b, s:[iii], s:o, s:{s:s, s:f, s:f, s:b, s:[iii]}}",
        "model_type", "qwen3_5_text", "hidden_size", d->hidden, "num_hidden_layers", d->layers,
        "intermediate_size", d->ffn, "vocab_size", d->vocab, "num_attention_heads", d->q_heads,
        "num_key_value_heads", d->kv_heads, "head_dim", 256, "linear_num_key_heads", d->k_heads,
        "linear_num_value_heads", d->v_heads, "linear_key_head_dim", 128, "linear_value_head_dim",
        128, "linear_conv_kernel_dim", 4, "max_position_embeddings", d->ctx, "rms_norm_eps", 1e-6,
        "mtp_num_hidden_layers", 1, "tie_word_embeddings", d->tied, "rope_theta", 1e7,
        "partial_rotary_factor", 0.25, "mrope_interleaved", 1, "mrope_section", 11, 11, 10,
        "layer_types", types, "rope_parameters", "rope_type", "default", "rope_theta", 1e7,
        "partial_rotary_factor", 0.25, "mrope_interleaved", 1, "mrope_section", 11, 11, 10);
}

int synth_create(const char *name, const char *tier, struct synth **out, struct err *e)
{
    const struct dims *d = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        d = strcmp(known[i].name, name) == 0 ? &known[i] : d;
    }
    if (!d) {
        return err_set(e, QE_USAGE, "there is no synthetic model \"%s\" (%s)", name, synth_names());
    }
    const struct tier *t = tier_find(tier, false);
    if (!t) {
        return err_set(e, QE_USAGE, "there is no tier \"%s\" (%s)", tier, tier_names());
    }
    struct synth *s = mem_zalloc(sizeof *s);
    s->d = d;
    s->tier = t;
    snprintf(s->model_name, sizeof s->model_name, "synthetic %s", d->name);
    s->config = config_of(d);
    add(s, "", "embed_tokens.weight", d->vocab, d->hidden, 0, 1);
    add(s, "", "norm.weight", 0, d->hidden, 0, 0.1);
    if (!d->tied) {
        matrix(s, "", "lm_head.weight", d->vocab, d->hidden);
    }
    if (tier_has_draft_head(t)) { /* as convert would */
        matrix(s, "", "lm_head.q4.weight", d->vocab, d->hidden);
    }
    for (int i = 0; i < d->layers; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%d.", i);
        add_layer(s, prefix, (i + 1) % 4 == 0);
    }
    matrix(s, "mtp.", "fc.weight", d->hidden, 2 * d->hidden);
    add(s, "mtp.", "pre_fc_norm_embedding.weight", 0, d->hidden, 0, 0.1);
    add(s, "mtp.", "pre_fc_norm_hidden.weight", 0, d->hidden, 0, 0.1);
    add(s, "mtp.", "norm.weight", 0, d->hidden, 0, 0.1);
    add_layer(s, "mtp.layers.0.", true);
    *out = s;
    return 0;
}

void synth_free(struct synth *s)
{
    if (!s) {
        return;
    }
    for (size_t i = 0; i < s->n; i++) {
        if (!s->items[i].same) {
            free((void *)(uintptr_t)s->items[i].t.data);
            free((void *)(uintptr_t)s->items[i].t.scales);
        }
    }
    free(s->items);
    json_decref(s->config);
    free(s);
}

uint64_t synth_bytes(const struct synth *s)
{
    return s->bytes;
}

/* xorshift64* */
static uint64_t draw(uint64_t *x)
{
    *x ^= *x >> 12;
    *x ^= *x << 25;
    *x ^= *x >> 27;
    return *x * UINT64_C(2685821657736338717);
}

static void fill_words(uint64_t *x, uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i += 8) {
        uint64_t w = draw(x);
        memcpy(p + i, &w, n - i < 8 ? n - i : 8);
    }
}

static void fill(const struct item *it, uint8_t *data, uint8_t *scales)
{
    uint64_t x = hash64(it->name, strlen(it->name), 1) | 1;
    const struct tensor *t = &it->t;
    if (dtype_group(t->dtype) > 1) {
        fill_words(&x, data, t->size);
        double top = 8;
        if (t->dtype == DT_Q8_G128) {
            top = 127;
            for (size_t i = 0; i < t->size; i++) {
                data[i] += data[i] == 0x80; /* -128 is no code */
            }
        }
        uint16_t scale = f32_to_f16((float)(it->spread / top));
        for (size_t i = 0; i + 2 <= t->scale_size; i += 2) {
            memcpy(scales + i, &scale, 2);
        }
        return;
    }
    size_t width = t->dtype == DT_F32 ? 4 : 2;
    for (size_t i = 0; i + width <= t->size; i += width) {
        double u = (double)(draw(&x) >> 11) * 0x1p-52 - 1;
        float v = (float)(it->mid + it->spread * u);
        uint16_t h = t->dtype == DT_F16 ? f32_to_f16(v) : f32_to_bf16(v);
        memcpy(data + i, width == 4 ? (const void *)&v : (const void *)&h, width);
    }
}

static const struct tensor *find_item(void *ctx, const char *name)
{
    const struct synth *s = ctx;
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->items[i].name, name) == 0) {
            return &s->items[i].t;
        }
    }
    return NULL;
}

/* The first item before i that could be the same matrix. */
static const struct item *like(const struct synth *s, size_t i)
{
    const struct item *it = &s->items[i];
    for (size_t j = 0; j < i && it->t.n_dims == 2; j++) {
        const struct item *o = &s->items[j];
        if (!o->same && o->t.dtype == it->t.dtype && o->t.n_dims == 2 &&
            o->t.shape[0] == it->t.shape[0] && o->t.shape[1] == it->t.shape[1] &&
            o->spread == it->spread && o->mid == it->mid) {
            return o;
        }
    }
    return NULL;
}

int synth_fill(struct synth *s, bool share, struct engine_source *out, struct err *e)
{
    uint64_t free_bytes = mem_available(), need = 0;
    for (size_t i = 0; i < s->n; i++) {
        s->items[i].same = share ? like(s, i) : NULL;
        need += s->items[i].same ? 0 : s->items[i].t.size + s->items[i].t.scale_size;
    }
    /* The caches and the system want their share. */
    if (need + need / 8 + ((uint64_t)256 << 20) > free_bytes) {
        return err_set(e, QE_NOMEM,
                       "%s in tier %s has %.1f GB of weights; %.1f GB of memory are free: choose a "
                       "smaller tier or model",
                       s->d->name, tier_name(s->tier), (double)need / 1e9,
                       (double)free_bytes / 1e9);
    }
    const int n = (int)s->n;
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < n; i++) {
        struct item *it = &s->items[i];
        it->t.name = it->name;
        if (!it->same) {
            uint8_t *data = mem_aligned(it->t.size);
            uint8_t *scales = it->t.scale_size ? mem_aligned(it->t.scale_size) : NULL;
            fill(it, data, scales);
            it->t.data = data;
            it->t.scales = scales;
        }
    }
    for (size_t i = 0; i < s->n; i++) {
        struct item *it = &s->items[i];
        if (it->same) {
            it->t.data = it->same->t.data;
            it->t.scales = it->same->t.scales;
        }
    }
    *out = (struct engine_source){.find = find_item,
                                  .ctx = s,
                                  .config = s->config,
                                  .name = s->model_name,
                                  .tier = tier_name(s->tier)};
    return 0;
}

int synth_write(const struct synth *s, const char *path, struct err *e)
{
    struct container_writer *w = container_writer_create();
    int rc = 0;
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        const struct tensor *t = &s->items[i].t;
        rc =
            container_writer_declare(w, s->items[i].name, "", "", t->dtype, t->n_dims, t->shape, e);
    }
    container_writer_meta_take(w, json_pack("{s:s, s:s, s:s, s:O}", "writer",
                                            "quasar " PACKAGE_VERSION, "name", s->model_name,
                                            "tier", tier_name(s->tier), "config", s->config));
    if (rc == 0) {
        rc = container_writer_begin(w, path, e);
    }
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        const struct tensor *t = &s->items[i].t;
        uint8_t *data = mem_aligned(t->size);
        uint8_t *scales = mem_aligned(t->scale_size);
        fill(&s->items[i], data, scales);
        rc = container_writer_data(w, data, t->size, scales, t->scale_size, e);
        free(data);
        free(scales);
    }
    if (rc == 0) {
        rc = container_writer_commit(w, e);
    }
    container_writer_free(w);
    return rc;
}
