/* What the sources of a conversion share, and the choice among them. */
#include "config.h"
#include "format/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "format/quant.h"

struct source_tensor *source_add(struct source *s, const char *name, const char *full_name)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 256;
        s->tensors = mem_realloc(s->tensors, s->cap * sizeof *s->tensors);
    }
    struct source_tensor *t = &s->tensors[s->n++];
    memset(t, 0, sizeof *t);
    t->name = mem_strdup(name);
    t->full_name = mem_strdup(full_name);
    t->type = "";
    return t;
}

void source_add_doc(struct source *s, const char *name, const void *p, size_t n)
{
    s->docs = mem_realloc(s->docs, (s->n_docs + 1) * sizeof *s->docs);
    struct source_doc *d = &s->docs[s->n_docs++];
    d->name = mem_strdup(name);
    d->data = mem_alloc(n + 1);
    memcpy(d->data, p, n);
    d->data[n] = 0;
    d->size = n;
}

const struct source_doc *source_doc(const struct source *s, const char *name)
{
    for (size_t i = 0; i < s->n_docs; i++) {
        if (strcmp(s->docs[i].name, name) == 0) {
            return &s->docs[i];
        }
    }
    return NULL;
}

const struct source_tensor *source_find(const struct source *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++) {
        if (strcmp(s->tensors[i].name, name) == 0) {
            return &s->tensors[i];
        }
    }
    return NULL;
}

uint64_t source_rows(const struct source_tensor *t)
{
    uint64_t n = 1;
    for (int i = 0; i + 1 < t->n_dims; i++) {
        n *= t->shape[i];
    }
    return n;
}

uint64_t source_cols(const struct source_tensor *t)
{
    return t->shape[t->n_dims - 1];
}

int source_encode(struct source *s, const struct source_tensor *t, enum dtype want, uint64_t row,
                  uint64_t rows, float *scratch, void *data, void *scales, struct err *e)
{
    bool have = false;
    int rc = s->codes ? s->codes(s, t, want, row, rows, data, scales, &have, e) : 0;
    if (rc < 0 || have) {
        return rc;
    }
    rc = s->decode(s, t, row, rows, scratch, e);
    if (rc == 0) {
        rc = quant_encode(want, scratch, rows, source_cols(t), data, scales, e);
        if (rc < 0) {
            return err_wrap(e, rc, "tensor %s (from row %llu)", t->full_name,
                            (unsigned long long)row);
        }
    }
    return rc;
}

/* True when one of layer i's tensors is not there; name is then its name. */
static bool first_missing(const struct source *s, int i, const char *const *leaves, size_t n,
                          char name[NAME_MAX_LEN])
{
    for (size_t k = 0; k < n; k++) {
        snprintf(name, NAME_MAX_LEN, "layers.%d.%s", i, leaves[k]);
        if (!source_find(s, name)) {
            return true;
        }
    }
    return false;
}

/* Every tensor that a forward pass needs, before anything is written. */
static int check_complete(const struct source *s, struct err *e)
{
    static const char *const both[] = {"input_layernorm.weight", "post_attention_layernorm.weight",
                                       "mlp.gate_proj.weight", "mlp.up_proj.weight",
                                       "mlp.down_proj.weight"};
    static const char *const attention[] = {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                            "self_attn.v_proj.weight", "self_attn.o_proj.weight",
                                            "self_attn.q_norm.weight", "self_attn.k_norm.weight"};
    static const char *const delta[] = {"linear_attn.in_proj_qkv.weight",
                                        "linear_attn.in_proj_z.weight",
                                        "linear_attn.in_proj_b.weight",
                                        "linear_attn.in_proj_a.weight",
                                        "linear_attn.A_log",
                                        "linear_attn.dt_bias",
                                        "linear_attn.conv1d.weight",
                                        "linear_attn.norm.weight",
                                        "linear_attn.out_proj.weight"};
    const char *lost = !source_find(s, "embed_tokens.weight")            ? "embed_tokens.weight"
                       : !source_find(s, "norm.weight")                  ? "norm.weight"
                       : !s->m.tied && !source_find(s, "lm_head.weight") ? "lm_head.weight"
                                                                         : NULL;
    const json_t *types = json_object_get(s->config, "layer_types");
    char name[NAME_MAX_LEN];
    for (int i = 0; !lost && i < s->m.layers; i++) {
        bool full =
            strcmp(json_string_value(json_array_get(types, (size_t)i)), "full_attention") == 0;
        if (first_missing(s, i, both, 5, name) || (full ? first_missing(s, i, attention, 6, name)
                                                        : first_missing(s, i, delta, 9, name))) {
            lost = name;
        }
    }
    return lost ? err_set(e, QE_FORMAT, "%s: tensor %s is missing", s->path, lost) : 0;
}

/* What the tensors say overrules what config.json says about optional parts. */
static void adjust_config(struct source *s)
{
    bool mtp = source_find(s, "mtp.fc.weight") != NULL;
    json_object_set_new(s->config, "mtp_num_hidden_layers", json_integer(mtp));
    if (source_find(s, "lm_head.weight")) {
        json_object_set_new(s->config, "tie_word_embeddings", json_false());
    }
    if (!s->model_name) {
        size_t n = strlen(s->path);
        while (n > 1 && s->path[n - 1] == '/') {
            n--;
        }
        size_t start = n;
        while (start > 0 && s->path[start - 1] != '/') {
            start--;
        }
        s->model_name = mem_strndup(s->path + start, n - start);
    }
}

int source_open(const char *path, struct source **out, struct err *e)
{
    struct source *s = mem_zalloc(sizeof *s);
    s->path = mem_strdup(path);
    s->shapes = json_object();
    struct stat st;
    int rc = 0;
    if (stat(path, &st) < 0) {
        rc = err_sys(e, errno == ENOENT ? QE_NOTFOUND : QE_IO, errno, "cannot open %s", path);
    } else if (S_ISDIR(st.st_mode)) {
        rc = source_open_hf(path, s, e);
    } else {
        struct io_map m = {NULL, 0, -1};
        rc = io_map_open(&m, path, e);
        bool gguf = rc == 0 && m.size >= 4 && memcmp(m.data, "GGUF", 4) == 0;
        io_map_close(&m);
        if (rc == 0) {
            rc = gguf ? source_open_gguf(path, s, e) : source_open_container(path, s, e);
        }
    }
    if (rc == 0) {
        adjust_config(s);
        s->m = modelconf_get(s->config);
        rc = check_complete(s, e);
    }
    if (rc < 0) {
        source_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void source_free(struct source *s)
{
    if (!s) {
        return;
    }
    if (s->ctx) {
        s->close(s->ctx);
    }
    for (size_t i = 0; i < s->n; i++) {
        free(s->tensors[i].name);
        free(s->tensors[i].full_name);
    }
    for (size_t i = 0; i < s->n_docs; i++) {
        free(s->docs[i].name);
        free(s->docs[i].data);
    }
    free(s->tensors);
    free(s->docs);
    free(s->path);
    free(s->model_name);
    free(s->tier);
    json_decref(s->config);
    json_decref(s->provenance);
    json_decref(s->shapes);
    free(s);
}
