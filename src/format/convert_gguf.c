/* GGUF as a target, as llama.cpp reads it: architecture qwen35, heads tiled,
 * norms with the 1 added, the MTP layer as the last block. What GGUF has no
 * place for goes under quasar.*, so that the way back is exact. */
#include "config.h"
#include "format/convert_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "format/gguf.h"
#include "format/tokjson.h"

/* One tensor of the file. */
struct item {
    const struct plan_item *from;
    char name[NAME_MAX_LEN];
    unsigned change;
    enum gguf_type type;
};

struct out {
    struct plan *p;
    struct gguf_writer *w;
    struct item *items;
    size_t n;
    char *tmp; /* one row of codes and one of scales */
};

static int64_t conf_int64(const struct source *s, const char *key)
{
    return json_integer_value(json_object_get(s->config, key));
}

/* GGUF knows one interval, not a list of layer types. */
static int attention_interval(const struct source *s, uint32_t *out, struct err *e)
{
    const json_t *types = json_object_get(s->config, "layer_types");
    size_t n = json_array_size(types);
    size_t every = n + 1;
    for (size_t i = n; i-- > 0;) {
        if (strcmp(json_string_value(json_array_get(types, i)), "full_attention") == 0) {
            every = i + 1;
        }
    }
    for (size_t i = 0; i < n; i++) {
        bool full = strcmp(json_string_value(json_array_get(types, i)), "full_attention") == 0;
        if (full != ((i + 1) % every == 0)) {
            return err_set(e, QE_UNSUPPORTED,
                           "%s: its attention layers do not come at one interval, which GGUF "
                           "cannot express",
                           s->path);
        }
    }
    *out = (uint32_t)every;
    return 0;
}

static void put_u32(struct out *o, const char *key, int64_t v)
{
    char full[128];
    snprintf(full, sizeof full, "qwen35.%s", key);
    gguf_put_u32(o->w, full, (uint32_t)v);
}

static int put_model(struct out *o, struct err *e)
{
    const struct source *s = o->p->s;
    uint32_t every = 4;
    int rc = attention_interval(s, &every, e);
    if (rc < 0) {
        return rc;
    }
    gguf_put_str(o->w, "general.architecture", "qwen35", 6);
    gguf_put_str(o->w, "general.type", "model", 5);
    gguf_put_str(o->w, "general.name", s->model_name, strlen(s->model_name));
    gguf_put_u32(o->w, "general.quantization_version", 2);
    put_u32(o, "block_count", s->m.layers + s->m.mtp);
    if (s->m.mtp) {
        put_u32(o, "nextn_predict_layers", 1);
    }
    put_u32(o, "context_length", conf_int64(s, "max_position_embeddings"));
    put_u32(o, "embedding_length", s->m.hidden);
    put_u32(o, "feed_forward_length", conf_int64(s, "intermediate_size"));
    put_u32(o, "attention.head_count", conf_int64(s, "num_attention_heads"));
    put_u32(o, "attention.head_count_kv", conf_int64(s, "num_key_value_heads"));
    put_u32(o, "attention.key_length", conf_int64(s, "head_dim"));
    put_u32(o, "attention.value_length", conf_int64(s, "head_dim"));
    double eps = json_number_value(json_object_get(s->config, "rms_norm_eps"));
    gguf_put_f32(o->w, "qwen35.attention.layer_norm_rms_epsilon", (float)eps);
    double part = json_number_value(json_object_get(s->config, "partial_rotary_factor"));
    put_u32(o, "rope.dimension_count", (int64_t)((double)conf_int64(s, "head_dim") * part + 0.5));
    int32_t sections[4] = {0, 0, 0, 0};
    const json_t *list = json_object_get(s->config, "mrope_section");
    for (size_t i = 0; i < 3; i++) {
        sections[i] = (int32_t)json_integer_value(json_array_get(list, i));
    }
    gguf_put_arr(o->w, "qwen35.rope.dimension_sections", GGUF_KV_I32, sections, 4);
    double theta = json_number_value(json_object_get(s->config, "rope_theta"));
    gguf_put_f32(o->w, "qwen35.rope.freq_base", (float)theta);
    put_u32(o, "ssm.conv_kernel", conf_int64(s, "linear_conv_kernel_dim"));
    put_u32(o, "ssm.state_size", s->m.k_dim);
    put_u32(o, "ssm.group_count", s->m.k_heads);
    put_u32(o, "ssm.time_step_rank", s->m.v_heads);
    put_u32(o, "ssm.inner_size", (int64_t)s->m.v_heads * s->m.v_dim);
    put_u32(o, "full_attention_interval", every);
    return 0;
}

/* The first id in a value that is an id or a list of ids; -1 for neither. */
static int64_t first_id(const json_t *v)
{
    if (json_is_array(v)) {
        v = json_array_get(v, 0);
    }
    return json_is_integer(v) ? json_integer_value(v) : -1;
}

static void put_ids(struct out *o)
{
    const struct source *s = o->p->s;
    const struct source_doc *d = source_doc(s, "generation_config.json");
    json_t *g = NULL;
    if (d && json_parse(d->data, d->size, "generation_config.json", &g, NULL) < 0) {
        g = NULL;
    }
    int64_t eos = first_id(json_object_get(g, "eos_token_id"));
    int64_t pad = first_id(json_object_get(s->config, "pad_token_id"));
    if (eos < 0) {
        eos = first_id(json_object_get(s->config, "eos_token_id"));
    }
    if (pad < 0) {
        pad = first_id(json_object_get(g, "pad_token_id"));
    }
    if (eos >= 0) {
        gguf_put_u32(o->w, "tokenizer.ggml.eos_token_id", (uint32_t)eos);
    }
    if (pad >= 0) {
        gguf_put_u32(o->w, "tokenizer.ggml.padding_token_id", (uint32_t)pad);
    }
    gguf_put_bool(o->w, "tokenizer.ggml.add_bos_token", false);
    json_decref(g);
}

static void put_lists(struct out *o, const struct tok_list *l)
{
    size_t n = (size_t)o->p->s->m.vocab;
    struct gguf_str *s = mem_array(n + 1, sizeof *s);
    int32_t *types = mem_array(n + 1, sizeof *types);
    struct buf pad = BUF_INIT;
    for (size_t i = 0; i < n; i++) {
        types[i] = TOK_UNUSED;
        if (i < l->n && l->tokens[i]) {
            types[i] = l->types[i];
        } else {
            buf_printf(&pad, "[PAD%zu]", i); /* a name of its own for every row */
            buf_addc(&pad, 0);
        }
    }
    const char *next = pad.data;
    for (size_t i = 0; i < n; i++) {
        bool known = i < l->n && l->tokens[i];
        s[i].p = known ? l->tokens[i] : next;
        s[i].n = strlen(s[i].p);
        next = known ? next : next + s[i].n + 1;
    }
    gguf_put_str(o->w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_put_str(o->w, "tokenizer.ggml.pre", l->marks_in_words ? "qwen35" : "qwen2",
                 l->marks_in_words ? 6 : 5);
    gguf_put_strs(o->w, "tokenizer.ggml.tokens", s, n);
    gguf_put_arr(o->w, "tokenizer.ggml.token_type", GGUF_KV_I32, types, n);
    free(s);
    s = mem_array(l->n_merges + 1, sizeof *s);
    for (size_t i = 0; i < l->n_merges; i++) {
        s[i].p = l->merges[i];
        s[i].n = strlen(l->merges[i]);
    }
    gguf_put_strs(o->w, "tokenizer.ggml.merges", s, l->n_merges);
    free(s);
    free(types);
    buf_free(&pad);
}

static int put_tokenizer(struct out *o, struct err *e)
{
    const struct source *s = o->p->s;
    const struct source_doc *tok = source_doc(s, "tokenizer.json");
    const struct source_doc *conf = source_doc(s, "tokenizer_config.json");
    const struct source_doc *tmpl = source_doc(s, "chat_template.jinja");
    struct tok_list l = {0};
    int rc = 0;
    if (tok) {
        rc = tok_list_parse(&l, tok->data, tok->size, conf ? conf->data : NULL,
                            conf ? conf->size : 0, e);
        if (rc == 0) {
            put_lists(o, &l);
            put_ids(o);
        }
    } else {
        plan_note(o->p, "%s has no tokenizer.json: the GGUF will have no tokenizer", s->path);
    }
    if (tmpl) {
        gguf_put_str(o->w, "tokenizer.chat_template", tmpl->data, tmpl->size);
    }
    tok_list_fini(&l);
    return rc < 0 ? err_wrap(e, rc, "%s", s->path) : 0;
}

/* What only we read. */
static void put_ours(struct out *o)
{
    const struct source *s = o->p->s;
    for (size_t i = 0; i < s->n_docs; i++) {
        char key[NAME_MAX_LEN];
        if (strcmp(s->docs[i].name, "chat_template.jinja") != 0) {
            snprintf(key, sizeof key, "quasar.document.%s", s->docs[i].name);
            gguf_put_str(o->w, key, s->docs[i].data, s->docs[i].size);
        }
    }
    struct gguf_str *col[3];
    static const char *const keys[] = {"quasar.source.names", "quasar.source.full_names",
                                       "quasar.source.types"};
    for (int c = 0; c < 3; c++) {
        col[c] = mem_array(o->n + 1, sizeof *col[c]);
        for (size_t i = 0; i < o->n; i++) {
            const struct source_tensor *t = o->items[i].from->t;
            const char *v = c == 0 ? t->name : c == 1 ? t->full_name : t->type;
            col[c][i] = (struct gguf_str){v, strlen(v)};
        }
        gguf_put_strs(o->w, keys[c], col[c], o->n);
        free(col[c]);
    }
}

/* ---- tensors ---- */

/* Values of a small tensor that GGUF changes; kept exactly beside it when the
 * change cannot be undone in fp32. */
static int put_exact(struct out *o, const struct item *it, struct err *e)
{
    const struct source_tensor *t = it->from->t;
    uint64_t n = source_cols(t);
    if (source_rows(t) != 1) {
        return err_set(e, QE_FORMAT, "%s: tensor %s is not a vector", o->p->s->path, t->full_name);
    }
    float *w = mem_array((size_t)n, sizeof *w);
    float *back = mem_array((size_t)n, sizeof *w);
    int rc = o->p->s->decode(o->p->s, t, 0, 1, w, e);
    if (rc == 0) {
        memcpy(back, w, (size_t)n * sizeof *w);
        names_change(it->change, back, n);
        names_unchange(it->change, back, n);
        if (memcmp(w, back, (size_t)n * sizeof *w) != 0) {
            char key[NAME_MAX_LEN + 32];
            snprintf(key, sizeof key, "quasar.source.%s", t->name);
            gguf_put_arr(o->w, key, GGUF_KV_F32, w, n);
        }
    }
    free(w);
    free(back);
    return rc;
}

/* Rows [row, row + n) of the GGUF's order, encoded into p->data and p->scales. */
static int encode_rows(struct out *o, const struct item *it, uint64_t row, uint64_t n,
                       struct err *e)
{
    struct plan *p = o->p;
    const struct source_tensor *t = it->from->t;
    enum dtype type = it->from->dtype;
    const struct modelconf *m = &p->s->m;
    size_t row_data = 0;
    size_t row_scales = 0;
    quant_at(type, 1, source_cols(t), &row_data, &row_scales);
    uint64_t i = 0;
    while (i < n) {
        uint64_t from = heads_source_row(m, it->change, true, row + i);
        uint64_t run = 1;
        while (i + run < n && heads_source_row(m, it->change, true, row + i + run) == from + run) {
            run++;
        }
        int rc = source_encode(p->s, t, type, from, run, p->scratch, (char *)p->data + i * row_data,
                               (char *)p->scales + i * row_scales, e);
        if (rc < 0) {
            return rc;
        }
        i += run;
    }
    if (!(it->change & NC_COLS)) {
        return 0;
    }
    for (i = 0; i < n; i++) {
        char *d = (char *)p->data + i * row_data;
        char *s = (char *)p->scales + i * row_scales;
        memcpy(o->tmp, d, row_data);
        heads_permute_row(m, true, o->tmp, d, row_data);
        if (row_scales > 0) {
            memcpy(o->tmp, s, row_scales);
            heads_permute_row(m, true, o->tmp, s, row_scales);
        }
    }
    return 0;
}

static int write_tensor(struct out *o, const struct item *it, struct err *e)
{
    struct plan *p = o->p;
    const struct source_tensor *t = it->from->t;
    uint64_t rows = source_rows(t);
    uint64_t cols = source_cols(t);
    uint64_t chunk = plan_chunk_rows(t);
    bool moved = heads_moved(&p->s->m, it->change);
    uint32_t elems = 1;
    uint32_t bytes = 1;
    gguf_type_info(it->type, NULL, &elems, &bytes);
    for (uint64_t r = 0; r < rows; r += chunk) {
        uint64_t n = rows - r < chunk ? rows - r : chunk;
        int rc = moved ? encode_rows(o, it, r, n, e)
                       : source_encode(p->s, t, it->from->dtype, r, n, p->scratch, p->data,
                                       p->scales, e);
        if (rc < 0) {
            return rc;
        }
        if (it->change & (NC_PLUS_ONE | NC_NEG_EXP)) {
            names_change(it->change, p->data, n * cols);
        }
        /* blocks are never larger than the fp32 values in scratch, now unused */
        quant_to_gguf(it->from->dtype, p->data, p->scales, n, cols, p->scratch);
        size_t size = (size_t)(n * cols / elems * bytes);
        rc = gguf_writer_data(o->w, p->scratch, size, e);
        if (rc == 0) {
            rc = plan_progress(p, size, e);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int declare(struct out *o, struct item *it, struct err *e)
{
    const struct source *s = o->p->s;
    const struct source_tensor *t = it->from->t;
    uint64_t shape[TENSOR_MAX_DIMS];
    int n = t->n_dims;
    memcpy(shape, t->shape, sizeof shape);
    if ((it->change & NC_CONV) && n == 3 && shape[1] == 1) {
        shape[1] = shape[2];
        n = 2;
    }
    bool vector = n == 1;
    if (heads_moved(&s->m, it->change)) {
        if (!heads_fit(&s->m, it->change, t->n_dims, source_rows(t), source_cols(t))) {
            return err_set(e, QE_FORMAT, "%s: tensor %s does not fit %d value heads of %d", s->path,
                           t->full_name, s->m.v_heads, s->m.v_dim);
        }
        if ((it->change & NC_COLS) && !vector && s->m.v_dim % dtype_group(it->from->dtype) != 0) {
            return err_set(e, QE_UNSUPPORTED,
                           "%s: value heads of %d cannot be reordered in %s: choose tier bf16",
                           s->path, s->m.v_dim, dtype_name(it->from->dtype));
        }
    }
    it->type = quant_gguf_type(it->from->dtype);
    uint32_t elems = 1;
    uint32_t bytes = 1;
    gguf_type_info(it->type, NULL, &elems, &bytes);
    o->p->total += source_rows(t) * source_cols(t) / elems * bytes;
    return gguf_writer_declare(o->w, it->name, it->type, n, shape, e);
}

static int choose(struct out *o, struct err *e)
{
    struct plan *p = o->p;
    bool left_out = false;
    size_t row = 64;
    for (size_t i = 0; i < p->n; i++) {
        struct item *it = &o->items[o->n];
        if (!names_to_gguf(p->items[i].name, p->s->m.layers, it->name, &it->change)) {
            left_out = true;
            continue;
        }
        /* what GGUF changes, or llama.cpp computes with, must be fp32 */
        if (it->change & (NC_PLUS_ONE | NC_NEG_EXP | NC_CONV)) {
            p->items[i].dtype = DT_F32;
        }
        it->from = &p->items[i];
        size_t bytes = (size_t)source_cols(it->from->t) * 4;
        row = bytes > row ? bytes : row;
        o->n++;
        int rc = it->change & (NC_PLUS_ONE | NC_NEG_EXP) ? put_exact(o, it, e) : 0;
        if (rc < 0) {
            return rc;
        }
    }
    if (left_out) {
        plan_note(p, "the vision tower is left out: GGUF keeps it in a file of its own");
    }
    o->tmp = mem_alloc(row);
    return 0;
}

int convert_write_gguf(struct plan *p, const char *dst, struct err *e)
{
    struct out o = {.p = p, .items = mem_array(p->n + 1, sizeof *o.items)};
    int rc = gguf_writer_create(dst, &o.w, e);
    if (rc == 0) {
        rc = put_model(&o, e);
    }
    if (rc == 0) {
        rc = put_tokenizer(&o, e);
    }
    if (rc == 0) {
        rc = choose(&o, e);
    }
    if (rc == 0) {
        put_ours(&o);
    }
    for (size_t i = 0; rc == 0 && i < o.n; i++) {
        rc = declare(&o, &o.items[i], e);
    }
    if (rc == 0) {
        rc = plan_check_space(dst, p->total, e);
    }
    for (size_t i = 0; rc == 0 && i < o.n; i++) {
        rc = write_tensor(&o, &o.items[i], e);
    }
    if (rc == 0) {
        rc = gguf_writer_commit(o.w, e);
    }
    gguf_writer_free(o.w);
    free(o.items);
    free(o.tmp);
    return rc;
}
