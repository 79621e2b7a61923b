/* A GGUF as a source: names, head order and values turned into ours, the
 * tokenizer rebuilt from its lists. A GGUF that quasar wrote carries what GGUF
 * itself cannot hold (documents, types and exact small tensors of the source)
 * under quasar.*; it is used where it still agrees with the rest of the file. */
#include "config.h"
#include "format/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "format/tokjson.h"

enum { SHARED_UNKNOWN, SHARED_NO, SHARED_YES };

struct gguf_source {
    struct gguf *g;
    char *shared; /* per tensor: one scale per group of ours? */
    enum dtype *shared_type;
    float **exact; /* per tensor: the original values, or NULL */
    size_t n;
};

static const struct gguf_tensor *tensor_of(const struct source *s, const struct source_tensor *t)
{
    const struct gguf_source *x = s->ctx;
    return gguf_at(x->g, t->index);
}

static int src_decode(struct source *s, const struct source_tensor *t, uint64_t row, uint64_t rows,
                      float *dst, struct err *e)
{
    const struct gguf_source *x = s->ctx;
    const struct gguf_tensor *g = tensor_of(s, t);
    uint64_t cols = gguf_cols(g);
    if (x->exact[t->index]) {
        memcpy(dst, x->exact[t->index] + row * cols, (size_t)(rows * cols) * sizeof *dst);
        return 0;
    }
    bool moved = heads_moved(&s->m, t->change);
    if (!moved) {
        int rc = gguf_decode(g, row, rows, dst, e);
        names_unchange(t->change, dst, rows * cols);
        return rc;
    }
    float *tmp = t->change & NC_COLS ? mem_array((size_t)cols, sizeof *tmp) : NULL;
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < rows; i++) {
        float *to = dst + i * cols;
        uint64_t from = heads_source_row(&s->m, t->change, false, row + i);
        rc = gguf_decode(g, from, 1, tmp ? tmp : to, e);
        if (rc == 0 && tmp) {
            heads_permute_row(&s->m, false, tmp, to, (size_t)cols * sizeof *to);
        }
    }
    free(tmp);
    names_unchange(t->change, dst, rows * cols);
    return rc;
}

static int src_codes(struct source *s, const struct source_tensor *t, enum dtype want, uint64_t row,
                     uint64_t rows, void *data, void *scales, bool *have, struct err *e)
{
    (void)e;
    struct gguf_source *x = s->ctx;
    const struct gguf_tensor *g = tensor_of(s, t);
    uint64_t cols = gguf_cols(g);
    bool moved = heads_moved(&s->m, t->change);
    bool by_head = moved && (t->change & NC_COLS);
    *have = false;
    if (t->change & (NC_PLUS_ONE | NC_NEG_EXP) ||
        (by_head && s->m.v_dim % dtype_group(want) != 0 && g->n_dims > 1)) {
        return 0;
    }
    char *state = &x->shared[t->index];
    if (*state == SHARED_UNKNOWN) {
        bool yes =
            quant_gguf_shared(g->type, g->data, gguf_rows(g), cols, &x->shared_type[t->index]);
        *state = yes ? SHARED_YES : SHARED_NO;
    }
    if (*state == SHARED_NO || x->shared_type[t->index] != want) {
        return 0;
    }
    *have = true;
    size_t width = gguf_row_size(g);
    if (!moved) {
        quant_from_gguf(g->type, g->data + row * width, rows, cols, data, scales);
        return 0;
    }
    size_t row_data = 0;
    size_t row_scales = 0;
    quant_at(want, 1, cols, &row_data, &row_scales);
    char *tmp = mem_alloc(row_data + row_scales);
    for (uint64_t i = 0; i < rows; i++) {
        char *d = (char *)data + i * row_data;
        char *sc = (char *)scales + i * row_scales;
        const uint8_t *from = g->data + heads_source_row(&s->m, t->change, false, row + i) * width;
        if (by_head) {
            quant_from_gguf(g->type, from, 1, cols, tmp, tmp + row_data);
            heads_permute_row(&s->m, false, tmp, d, row_data);
            if (row_scales > 0) {
                heads_permute_row(&s->m, false, tmp + row_data, sc, row_scales);
            }
        } else {
            quant_from_gguf(g->type, from, 1, cols, d, sc);
        }
    }
    free(tmp);
    return 0;
}

static void src_close(void *ctx)
{
    struct gguf_source *x = ctx;
    for (size_t i = 0; i < x->n; i++) {
        free(x->exact[i]);
    }
    free(x->exact);
    free(x->shared);
    free(x->shared_type);
    gguf_close(x->g);
    free(x);
}

/* ---- metadata ---- */

static json_t *kv_value(const struct gguf *g, const struct gguf_kv *kv)
{
    int64_t i = 0;
    double d = 0;
    bool b = false;
    const char *p = NULL;
    size_t n = 0;
    struct gguf_array a;
    switch (kv->type) {
    case GGUF_KV_STR:
        gguf_get_str(g, kv->key, true, &p, &n, NULL);
        return json_str_lossy(p, n);
    case GGUF_KV_BOOL:
        gguf_get_bool(g, kv->key, true, &b, NULL);
        return json_boolean(b);
    case GGUF_KV_F32:
    case GGUF_KV_F64:
        gguf_get_num(g, kv->key, true, &d, NULL);
        return json_real(d);
    case GGUF_KV_ARR: {
        json_t *list = json_array();
        gguf_get_arr(g, kv->key, true, -1, &a, NULL);
        while (json_array_size(list) < 4096 && gguf_next_int(&a, &i)) {
            json_array_append_new(list, json_integer(i));
        }
        return list;
    }
    case GGUF_KV_U8:
    case GGUF_KV_I8:
    case GGUF_KV_U16:
    case GGUF_KV_I16:
    case GGUF_KV_U32:
    case GGUF_KV_I32:
    case GGUF_KV_U64:
    case GGUF_KV_I64:
        gguf_get_int(g, kv->key, true, INT64_MIN, INT64_MAX, &i, NULL);
        return json_integer(i);
    }
    return NULL;
}

/* general.* and qwen35.* as one object */
static json_t *model_kv(const struct gguf *g)
{
    json_t *o = json_object();
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (strncmp(kv->key, "general.", 8) == 0 || strncmp(kv->key, "qwen35.", 7) == 0) {
            json_t *v = kv_value(g, kv);
            if (v && json_object_set_new(o, kv->key, v) < 0) {
                continue; /* a key that is no text names nothing we look for */
            }
        }
    }
    return o;
}

static bool same_numbers(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {
        "hidden_size",          "num_hidden_layers",      "intermediate_size",
        "num_attention_heads",  "num_key_value_heads",    "head_dim",
        "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
        "vocab_size",           "linear_value_head_dim",  "linear_conv_kernel_dim"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i]))) {
            return false;
        }
    }
    return true;
}

/* The config.json that travelled along, when it describes this very model. */
static void adopt_config(struct source *s)
{
    const struct source_doc *d = source_doc(s, "config.json");
    json_t *raw = NULL;
    json_t *config = NULL;
    if (d && json_parse(d->data, d->size, "config.json", &raw, NULL) == 0 &&
        modelconf_from_hf(raw, "config.json", &config, NULL) == 0 &&
        same_numbers(config, s->config)) {
        json_decref(s->config);
        s->config = json_incref(config);
    }
    json_decref(raw);
    json_decref(config);
}

/* ---- documents ---- */

static int read_lists(const struct gguf *g, struct tok_list *l, struct err *e)
{
    struct gguf_array tokens;
    struct gguf_array types = {GGUF_KV_I32, 0, NULL};
    struct gguf_array merges;
    int rc = gguf_get_arr(g, "tokenizer.ggml.tokens", true, GGUF_KV_STR, &tokens, e);
    if (rc == 0) {
        rc = gguf_get_arr(g, "tokenizer.ggml.merges", true, GGUF_KV_STR, &merges, e);
    }
    if (rc == 0) {
        rc = gguf_get_arr(g, "tokenizer.ggml.token_type", false, -1, &types, e);
    }
    const char *p = NULL;
    size_t n = 0;
    for (int64_t id = 0; rc == 0 && gguf_next_str(&tokens, &p, &n); id++) {
        int64_t type = TOK_NORMAL;
        gguf_next_int(&types, &type);
        rc = tok_list_token(l, id, p, n,
                            type == TOK_CONTROL || type == TOK_USER || type == TOK_UNUSED
                                ? (enum tok_type)type
                                : TOK_NORMAL,
                            e);
    }
    while (rc == 0 && gguf_next_str(&merges, &p, &n)) {
        rc = tok_list_merge(l, p, n, e);
    }
    return rc;
}

static int rebuild_tokenizer(struct source *s, const struct gguf *g, struct tok_list *l,
                             struct err *e)
{
    const char *model = NULL;
    const char *pre = NULL;
    size_t n = 0;
    size_t k = 0;
    int rc = gguf_get_str(g, "tokenizer.ggml.model", false, &model, &n, e);
    if (rc < 0 || !model) {
        return rc;
    }
    rc = gguf_get_str(g, "tokenizer.ggml.pre", true, &pre, &k, e);
    if (rc < 0) {
        return rc;
    }
    bool marks = k == 6 && memcmp(pre, "qwen35", 6) == 0;
    bool plain = k == 5 && memcmp(pre, "qwen2", 5) == 0;
    if (n != 4 || memcmp(model, "gpt2", 4) != 0 || !(marks || plain)) {
        return err_set(e, QE_UNSUPPORTED,
                       "the tokenizer %.*s with the split pattern %.*s is not supported (gpt2 "
                       "with qwen35 or qwen2 is)",
                       (int)(n < 40 ? n : 40), model, (int)(k < 40 ? k : 40), pre);
    }
    l->marks_in_words = marks;
    rc = read_lists(g, l, e);
    char *text = NULL;
    if (rc == 0 && !source_doc(s, "tokenizer.json")) {
        rc = tok_list_json(l, &text, e);
    }
    if (text) {
        source_add_doc(s, "tokenizer.json", text, strlen(text));
        free(text);
    }
    return rc;
}

static int64_t find_token(const struct tok_list *l, const char *text)
{
    for (size_t i = 0; i < l->n; i++) {
        if (l->tokens[i] && strcmp(l->tokens[i], text) == 0) {
            return (int64_t)i;
        }
    }
    return -1;
}

/* A generation_config.json of the ids that end a turn. */
static void rebuild_generation(struct source *s, const struct gguf *g, const struct tok_list *l)
{
    int64_t ids[4] = {-1, -1, find_token(l, "<|im_end|>"), find_token(l, "<|endoftext|>")};
    gguf_get_int(g, "tokenizer.ggml.eos_token_id", false, 0, INT32_MAX, &ids[0], NULL);
    gguf_get_int(g, "tokenizer.ggml.eot_token_id", false, 0, INT32_MAX, &ids[1], NULL);
    if (ids[0] >= 0 && !json_object_get(s->config, "eos_token_id")) {
        json_object_set_new(s->config, "eos_token_id", json_integer(ids[0]));
    }
    json_t *list = json_array();
    for (int i = 0; i < 4; i++) {
        bool known = ids[i] < 0;
        for (int k = 0; k < i; k++) {
            known = known || ids[k] == ids[i];
        }
        if (!known) {
            json_array_append_new(list, json_integer(ids[i]));
        }
    }
    if (json_array_size(list) > 0 && !source_doc(s, "generation_config.json")) {
        json_t *o = json_pack("{s:O}", "eos_token_id", list);
        char *text = json_dumps(o, JSON_INDENT(2));
        source_add_doc(s, "generation_config.json", text, strlen(text));
        free(text);
        json_decref(o);
    }
    json_decref(list);
}

static int read_docs(struct source *s, const struct gguf *g, struct err *e)
{
    static const char prefix[] = "quasar.document.";
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (strncmp(kv->key, prefix, sizeof prefix - 1) == 0 && kv->type == GGUF_KV_STR) {
            const char *p = NULL;
            size_t n = 0;
            gguf_get_str(g, kv->key, true, &p, &n, NULL);
            source_add_doc(s, kv->key + sizeof prefix - 1, p, n);
        }
    }
    const char *p = NULL;
    size_t n = 0;
    int rc = gguf_get_str(g, "tokenizer.chat_template", false, &p, &n, e);
    if (rc == 0 && p) {
        source_add_doc(s, "chat_template.jinja", p, n);
    }
    struct tok_list l = {0};
    if (rc == 0) {
        rc = rebuild_tokenizer(s, g, &l, e);
    }
    if (rc == 0) {
        rebuild_generation(s, g, &l);
    }
    tok_list_fini(&l);
    return rc;
}

/* ---- tensors ---- */

static int add_tensor(struct source *s, const struct gguf_tensor *g, size_t index, struct err *e)
{
    char name[NAME_MAX_LEN];
    unsigned change = 0;
    if (!names_from_gguf(g->name, s->m.layers, name, &change)) {
        return err_set(e, QE_UNSUPPORTED, "tensor %s is not part of a model of this family",
                       g->name);
    }
    if (!gguf_type_decodable(g->type)) {
        const char *type = "an unknown type";
        gguf_type_info(g->type, &type, NULL, NULL);
        return err_set(e, QE_UNSUPPORTED,
                       "tensor %s is %s, which cannot be converted (F32, F16, BF16, Q8_0, Q4_0, "
                       "Q4_K, Q5_K and Q6_K can)",
                       g->name, type);
    }
    if (heads_moved(&s->m, change) &&
        !heads_fit(&s->m, change, g->n_dims, gguf_rows(g), gguf_cols(g))) {
        return err_set(e, QE_FORMAT,
                       "tensor %s of %" PRIu64 " x %" PRIu64 " does not fit %d value heads of %d",
                       g->name, gguf_rows(g), gguf_cols(g), s->m.v_heads, s->m.v_dim);
    }
    bool bare = strncmp(name, "mtp.", 4) == 0 || strcmp(name, "lm_head.weight") == 0;
    char full[NAME_MAX_LEN + 8];
    snprintf(full, sizeof full, "%s%s", bare ? "" : "model.", name);
    struct source_tensor *t = source_add(s, name, full);
    gguf_type_info(g->type, &t->type, NULL, NULL);
    t->native = g->type == GGUF_F32 ? DT_F32 : g->type == GGUF_F16 ? DT_F16 : DT_BF16;
    t->n_dims = g->n_dims;
    memcpy(t->shape, g->shape, sizeof t->shape);
    if ((change & NC_CONV) && t->n_dims == 2) {
        t->shape[2] = t->shape[1];
        t->shape[1] = 1;
        t->n_dims = 3;
    }
    t->index = index;
    t->change = change;
    return 0;
}

/* The values before GGUF's change, when changing them gives what is stored. */
static void adopt_exact(struct source *s, struct source_tensor *t)
{
    struct gguf_source *x = s->ctx;
    const struct gguf_tensor *g = gguf_at(x->g, t->index);
    char key[NAME_MAX_LEN + 32];
    struct gguf_array a = {GGUF_KV_F32, 0, NULL};
    snprintf(key, sizeof key, "quasar.source.%s", t->name);
    uint64_t n = gguf_cols(g);
    if (gguf_get_arr(x->g, key, false, GGUF_KV_F32, &a, NULL) < 0 || a.n != n || n == 0 ||
        gguf_rows(g) != 1) {
        return;
    }
    float *w = mem_array((size_t)n, sizeof *w);
    float *changed = mem_array((size_t)n, sizeof *w);
    float *stored = mem_array((size_t)n, sizeof *w);
    double v = 0;
    for (uint64_t i = 0; i < n && gguf_next_num(&a, &v); i++) {
        w[i] = (float)v;
    }
    memcpy(changed, w, (size_t)n * sizeof *w);
    names_change(t->change, changed, n);
    bool same = gguf_decode(g, 0, 1, stored, NULL) == 0;
    if (same && heads_moved(&s->m, t->change)) {
        float *ours = mem_array((size_t)n, sizeof *w);
        heads_permute_row(&s->m, false, stored, ours, (size_t)n * sizeof *w);
        free(stored);
        stored = ours;
    }
    same = same && memcmp(stored, changed, (size_t)n * sizeof *w) == 0;
    free(changed);
    free(stored);
    if (same) {
        x->exact[t->index] = w;
    } else {
        free(w);
    }
}

/* Names and types of the checkpoint that the GGUF was made from. */
static void adopt_origins(struct source *s, const struct gguf *g)
{
    struct gguf_array a[3];
    static const char *const keys[] = {"quasar.source.names", "quasar.source.full_names",
                                       "quasar.source.types"};
    static const char *const known[] = {"F32", "BF16", "F16"};
    for (int i = 0; i < 3; i++) {
        a[i] = (struct gguf_array){GGUF_KV_STR, 0, NULL};
        if (gguf_get_arr(g, keys[i], false, GGUF_KV_STR, &a[i], NULL) < 0) {
            return;
        }
    }
    const char *p[3];
    size_t n[3];
    for (size_t at = 0; gguf_next_str(&a[0], &p[0], &n[0]) && gguf_next_str(&a[1], &p[1], &n[1]) &&
                        gguf_next_str(&a[2], &p[2], &n[2]);
         at++) {
        /* both lists are in the order of the tensors */
        struct source_tensor *t = at < s->n ? &s->tensors[at] : NULL;
        if (!t || strlen(t->name) != n[0] || memcmp(t->name, p[0], n[0]) != 0) {
            return;
        }
        char *full = mem_strndup(p[1], n[1]);
        const char *ours = names_strip(full);
        if (ours && strcmp(ours, t->name) == 0) {
            free(t->full_name);
            t->full_name = full;
        } else {
            free(full);
        }
        t->type = "";
        for (size_t k = 0; k < 3; k++) {
            if (strlen(known[k]) == n[2] && memcmp(known[k], p[2], n[2]) == 0) {
                t->type = known[k];
            }
        }
    }
}

static int read_model(struct source *s, struct gguf_source *x, struct err *e)
{
    const struct gguf_tensor *embed = gguf_find(x->g, "token_embd.weight");
    bool tied = gguf_find(x->g, "output.weight") == NULL;
    json_t *kv = model_kv(x->g);
    int rc = modelconf_from_gguf(kv, s->path, embed ? embed->shape[0] : 0, tied, &s->config, e);
    const char *name = json_string_value(json_object_get(kv, "general.name"));
    if (rc == 0 && name && name[0]) {
        s->model_name = mem_strdup(name);
    }
    json_decref(kv);
    if (rc < 0) {
        return rc;
    }
    s->m = modelconf_get(s->config);
    rc = read_docs(s, x->g, e);
    for (size_t i = 0; rc == 0 && i < x->n; i++) {
        if (strcmp(gguf_at(x->g, i)->name, "output_q4.weight") != 0) {
            rc = add_tensor(s, gguf_at(x->g, i), i, e);
        }
    }
    if (rc < 0) {
        return err_wrap(e, rc, "%s", s->path);
    }
    adopt_config(s);
    adopt_origins(s, x->g);
    for (size_t i = 0; i < s->n; i++) {
        if (s->tensors[i].change & (NC_PLUS_ONE | NC_NEG_EXP)) {
            adopt_exact(s, &s->tensors[i]);
        }
    }
    return 0;
}

int source_open_gguf(const char *path, struct source *s, struct err *e)
{
    struct gguf_source *x = mem_zalloc(sizeof *x);
    int rc = gguf_open(path, &x->g, e);
    if (rc < 0) {
        free(x);
        return rc;
    }
    s->format = "gguf";
    s->ctx = x;
    s->close = src_close;
    s->decode = src_decode;
    s->codes = src_codes;
    x->n = gguf_count(x->g);
    x->shared = mem_array(x->n + 1, 1);
    x->shared_type = mem_array(x->n + 1, sizeof *x->shared_type);
    x->exact = mem_array(x->n + 1, sizeof *x->exact);
    return read_model(s, x, e);
}
