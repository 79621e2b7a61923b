/* The table of tiers and the rule of each kind of tensor. */
#include "config.h"
#include "format/tier.h"

#include <string.h>

#include "format/names.h"

enum base { B_F32, B_BF16, B_QUANT, B_Q8 };

/* promote: leaves of matrices that become Q8, each followed by a blank */
struct tier {
    const char *name;
    enum base base;
    const char *promote;
    bool q4_head;
};

#define OUT  "linear_attn.out_proj "
#define O    "self_attn.o_proj "
#define DOWN "mlp.down_proj "
#define GATE "mlp.gate_proj "
#define UP   "mlp.up_proj "

static const struct tier tiers[] = {
    {"f32", B_F32, "", false},
    {"bf16", B_BF16, "", false},
    {"q8", B_Q8, "", false},
    {"default", B_QUANT, OUT O, false},
    {"q4s", B_QUANT, "", true},
    {"q5f", B_QUANT, DOWN, true},
    {"q6", B_QUANT, OUT O DOWN, false},
    {"q6f", B_QUANT, DOWN GATE, true},
    {"q6k", B_QUANT, OUT O DOWN GATE, false},
};

/* Qwen3.8 loses by promoted DeltaNet outputs; its sets take precedence. */
static const struct tier tiers_38[] = {
    {"default", B_QUANT, O, false},
    {"q4s", B_QUANT, O, true},
    {"q6", B_QUANT, O DOWN, false},
    {"q6k", B_QUANT, O DOWN UP, false},
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const struct tier *find(const struct tier *t, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(t[i].name, name) == 0) {
            return &t[i];
        }
    }
    return NULL;
}

const struct tier *tier_find(const char *name, bool is_38)
{
    const struct tier *t = is_38 ? find(tiers_38, COUNT(tiers_38), name) : NULL;
    return t ? t : find(tiers, COUNT(tiers), name);
}

const char *tier_name(const struct tier *t)
{
    return t->name;
}

const char *tier_names(void)
{
    return "f32|bf16|q8|default|q4s|q5f|q6|q6f|q6k";
}

bool tier_has_draft_head(const struct tier *t)
{
    return (t->base == B_QUANT || t->base == B_Q8) && !t->q4_head;
}

/* fp32 in every tier: small, and the recurrence is sensitive to them */
static bool is_small(const char *name, int n_dims)
{
    return n_dims == 1 || name_is_norm(name) || name_has_leaf(name, "linear_attn.conv1d");
}

static bool promoted(const struct tier *t, const char *name)
{
    for (const char *p = t->promote; *p;) {
        size_t n = strcspn(p, " ");
        char leaf[64];
        memcpy(leaf, p, n);
        leaf[n] = 0;
        if (name_has_leaf(name, leaf)) {
            return true;
        }
        p += n + 1;
    }
    return false;
}

static enum dtype quantised(const struct tier *t, const char *name)
{
    if (strcmp(name, "lm_head.q4.weight") == 0) {
        return DT_Q4_G64;
    }
    if (strcmp(name, "lm_head.weight") == 0) {
        return t->q4_head ? DT_Q4_G64 : DT_Q8_G128;
    }
    if (t->base == B_Q8 || strcmp(name, "embed_tokens.weight") == 0 ||
        strncmp(name, "mtp.", 4) == 0 || name_has_leaf(name, "self_attn.k_proj") ||
        name_has_leaf(name, "self_attn.v_proj") || promoted(t, name)) {
        return DT_Q8_G128;
    }
    return DT_Q4_G64;
}

enum dtype tier_dtype(const struct tier *t, const char *name, int n_dims, const uint64_t *shape,
                      bool *fell_back)
{
    *fell_back = false;
    if (t->base == B_F32) {
        return DT_F32;
    }
    if (strncmp(name, "visual.", 7) == 0) { /* never quantised */
        return n_dims == 1 ? DT_F32 : DT_BF16;
    }
    if (is_small(name, n_dims)) {
        return DT_F32;
    }
    if (t->base == B_BF16) {
        return DT_BF16;
    }
    if (name_has_leaf(name, "linear_attn.in_proj_a") ||
        name_has_leaf(name, "linear_attn.in_proj_b")) {
        return DT_F16;
    }
    enum dtype d = quantised(t, name);
    if (shape[n_dims - 1] % (uint64_t)dtype_group(d) != 0) {
        *fell_back = true;
        return DT_F16;
    }
    return d;
}
