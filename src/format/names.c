/* The name tables, and the order of value heads: Hugging Face keeps those of
 * one key head together, GGUF interleaves them. */
#include "config.h"
#include "format/names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    const char *hf, *gguf;
    unsigned change;
};

static const struct row top[] = {
    {"embed_tokens.weight", "token_embd.weight", 0},
    {"norm.weight", "output_norm.weight", NC_PLUS_ONE},
    {"lm_head.weight", "output.weight", 0},
    {"lm_head.q4.weight", "output_q4.weight", 0},
};

static const struct row block[] = {
    {"input_layernorm.weight", "attn_norm.weight", NC_PLUS_ONE},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", NC_PLUS_ONE},
    {"mlp.gate_proj.weight", "ffn_gate.weight", 0},
    {"mlp.up_proj.weight", "ffn_up.weight", 0},
    {"mlp.down_proj.weight", "ffn_down.weight", 0},
    {"self_attn.q_proj.weight", "attn_q.weight", 0},
    {"self_attn.k_proj.weight", "attn_k.weight", 0},
    {"self_attn.v_proj.weight", "attn_v.weight", 0},
    {"self_attn.o_proj.weight", "attn_output.weight", 0},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", NC_PLUS_ONE},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", NC_PLUS_ONE},
    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", NC_V_ROWS},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight", NC_Z_ROWS},
    {"linear_attn.in_proj_b.weight", "ssm_beta.weight", NC_HEADS},
    {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", NC_HEADS},
    {"linear_attn.A_log", "ssm_a", NC_NEG_EXP | NC_COLS},
    {"linear_attn.dt_bias", "ssm_dt.bias", NC_COLS},
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight", NC_V_ROWS | NC_CONV},
    {"linear_attn.norm.weight", "ssm_norm.weight", 0},
    {"linear_attn.out_proj.weight", "ssm_out.weight", NC_COLS},
};

/* after "mtp." and after "blk.N." */
static const struct row mtp[] = {
    {"fc.weight", "nextn.eh_proj.weight", 0},
    {"pre_fc_norm_embedding.weight", "nextn.enorm.weight", NC_PLUS_ONE},
    {"pre_fc_norm_hidden.weight", "nextn.hnorm.weight", NC_PLUS_ONE},
    {"norm.weight", "nextn.shared_head_norm.weight", NC_PLUS_ONE},
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const struct row *find(const struct row *t, size_t n, const char *name, bool by_gguf)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(by_gguf ? t[i].gguf : t[i].hf, name) == 0) {
            return &t[i];
        }
    }
    return NULL;
}

/* "12.rest" gives 12 and "rest"; NULL when that is not its form. */
static const char *number(const char *s, int *n)
{
    int v = 0;
    int digits = 0;
    while (*s >= '0' && *s <= '9' && digits < 5) {
        v = v * 10 + (*s++ - '0');
        digits++;
    }
    if (digits == 0 || *s != '.') {
        return NULL;
    }
    *n = v;
    return s + 1;
}

bool names_from_gguf(const char *gguf, int layers, char hf[NAME_MAX_LEN], unsigned *change)
{
    const struct row *r = find(top, COUNT(top), gguf, true);
    if (r) {
        snprintf(hf, NAME_MAX_LEN, "%s", r->hf);
        *change = r->change;
        return true;
    }
    int n = 0;
    const char *leaf = strncmp(gguf, "blk.", 4) == 0 ? number(gguf + 4, &n) : NULL;
    if (!leaf || n > layers) {
        return false;
    }
    r = find(block, COUNT(block), leaf, true);
    if (r && n < layers) {
        snprintf(hf, NAME_MAX_LEN, "layers.%d.%s", n, r->hf);
    } else if (r) {
        snprintf(hf, NAME_MAX_LEN, "mtp.layers.0.%s", r->hf);
    } else if (n == layers && (r = find(mtp, COUNT(mtp), leaf, true))) {
        snprintf(hf, NAME_MAX_LEN, "mtp.%s", r->hf);
    } else {
        return false;
    }
    *change = r->change;
    return true;
}

bool names_to_gguf(const char *hf, int layers, char gguf[NAME_MAX_LEN], unsigned *change)
{
    const struct row *r = find(top, COUNT(top), hf, false);
    if (r) {
        snprintf(gguf, NAME_MAX_LEN, "%s", r->gguf);
        *change = r->change;
        return true;
    }
    int n = layers;
    if (strncmp(hf, "mtp.layers.0.", 13) == 0) {
        r = find(block, COUNT(block), hf + 13, false);
    } else if (strncmp(hf, "mtp.", 4) == 0) {
        r = find(mtp, COUNT(mtp), hf + 4, false);
    } else if (strncmp(hf, "layers.", 7) == 0) {
        const char *leaf = number(hf + 7, &n);
        r = leaf && n < layers ? find(block, COUNT(block), leaf, false) : NULL;
    }
    if (!r) {
        return false;
    }
    snprintf(gguf, NAME_MAX_LEN, "blk.%d.%s", n, r->gguf);
    *change = r->change;
    return true;
}

const char *names_strip(const char *full)
{
    static const char *const prefixes[] = {"model.language_model.", "model."};
    if (strcmp(full, "lm_head.weight") == 0 || strncmp(full, "mtp.", 4) == 0 ||
        strncmp(full, "visual.", 7) == 0) {
        return full;
    }
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(full, prefixes[i], n) == 0) {
            const char *s = full + n;
            bool known = strcmp(s, "embed_tokens.weight") == 0 || strcmp(s, "norm.weight") == 0 ||
                         strncmp(s, "layers.", 7) == 0 || strncmp(s, "visual.", 7) == 0;
            return known ? s : NULL;
        }
    }
    return NULL;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s);
    size_t k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

bool name_is_norm(const char *hf)
{
    return ends_with(hf, "norm.weight") ||
           (strncmp(hf, "mtp.pre_fc_norm_", 16) == 0 && ends_with(hf, ".weight"));
}

bool name_has_leaf(const char *hf, const char *leaf)
{
    size_t n = strlen(hf);
    size_t k = strlen(leaf);
    return ends_with(hf, ".weight") && n >= k + 8 && strncmp(hf + n - k - 7, leaf, k) == 0 &&
           hf[n - k - 8] == '.';
}

bool name_is_f32(const char *hf)
{
    return ends_with(hf, "linear_attn.A_log") || ends_with(hf, "linear_attn.norm.weight");
}

void names_change(unsigned change, float *w, uint64_t n)
{
    for (uint64_t i = 0; (change & NC_PLUS_ONE) && i < n; i++) {
        w[i] = 1.0F + w[i];
    }
    for (uint64_t i = 0; (change & NC_NEG_EXP) && i < n; i++) {
        w[i] = (float)-exp((double)w[i]);
    }
}

void names_unchange(unsigned change, float *w, uint64_t n)
{
    for (uint64_t i = 0; (change & NC_PLUS_ONE) && i < n; i++) {
        w[i] = w[i] - 1.0F;
    }
    for (uint64_t i = 0; (change & NC_NEG_EXP) && i < n; i++) {
        w[i] = (float)log(-(double)w[i]);
    }
}

int heads_ours(const struct modelconf *m, int gguf_head)
{
    return gguf_head % m->k_heads * (m->v_heads / m->k_heads) + gguf_head / m->k_heads;
}

int heads_gguf(const struct modelconf *m, int our_head)
{
    int r = m->v_heads / m->k_heads;
    return our_head % r * m->k_heads + our_head / r;
}

bool heads_fit(const struct modelconf *m, unsigned change, int n_dims, uint64_t rows, uint64_t cols)
{
    uint64_t values = (uint64_t)m->v_heads * (uint64_t)m->v_dim;
    uint64_t keys = 2 * (uint64_t)m->k_heads * (uint64_t)m->k_dim;
    if (change & NC_COLS) {
        return cols == (n_dims == 1 ? (uint64_t)m->v_heads : values);
    }
    if (change & NC_V_ROWS) {
        return rows == keys + values;
    }
    return rows == (change & NC_HEADS ? (uint64_t)m->v_heads : values);
}

bool heads_moved(const struct modelconf *m, unsigned change)
{
    return (change & (NC_V_ROWS | NC_Z_ROWS | NC_HEADS | NC_COLS)) && m->v_heads > m->k_heads &&
           m->k_heads > 1;
}

/* The source's number of the head that becomes number h of the result. */
static int source_head(const struct modelconf *m, bool to_gguf, int h)
{
    return to_gguf ? heads_ours(m, h) : heads_gguf(m, h);
}

uint64_t heads_source_row(const struct modelconf *m, unsigned change, bool to_gguf, uint64_t row)
{
    if (!(change & (NC_V_ROWS | NC_Z_ROWS | NC_HEADS))) {
        return row;
    }
    uint64_t skip = change & NC_V_ROWS ? 2 * (uint64_t)m->k_heads * (uint64_t)m->k_dim : 0;
    uint64_t unit = change & NC_HEADS ? 1 : (uint64_t)m->v_dim;
    if (row < skip) {
        return row;
    }
    uint64_t h = (row - skip) / unit;
    return skip + (uint64_t)source_head(m, to_gguf, (int)h) * unit + (row - skip) % unit;
}

void heads_permute_row(const struct modelconf *m, bool to_gguf, const void *src, void *dst,
                       size_t n)
{
    size_t unit = n / (size_t)m->v_heads;
    for (int h = 0; h < m->v_heads; h++) {
        memcpy((char *)dst + (size_t)h * unit,
               (const char *)src + (size_t)source_head(m, to_gguf, h) * unit, unit);
    }
}
