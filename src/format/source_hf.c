/* A Hugging Face folder: config.json, safetensors in one file or in shards, and
 * the documents. Values are already in our convention. */
#include "config.h"
#include "format/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "format/quant.h"
#include "format/safetensors.h"

#define MAX_DOC (256U << 20)

static int hf_decode(struct source *s, const struct source_tensor *t, uint64_t row, uint64_t rows,
                     float *dst, struct err *e)
{
    const struct st_tensor *st = st_at(s->ctx, t->index);
    uint64_t k = st_rows(st) / source_rows(t); /* flattened: several rows each */
    return st_decode(st, row * k, rows * k, dst, e);
}

static int hf_codes(struct source *s, const struct source_tensor *t, enum dtype want, uint64_t row,
                    uint64_t rows, void *data, void *scales, bool *have, struct err *e)
{
    (void)scales;
    (void)e;
    const struct st_tensor *st = st_at(s->ctx, t->index);
    *have = st->dtype == want;
    if (*have) {
        size_t width = st->size / (size_t)source_rows(t);
        memcpy(data, st->data + row * width, (size_t)rows * width);
    }
    return 0;
}

static void hf_close(void *ctx)
{
    st_close(ctx);
}

static int read_doc(struct source *s, const char *file, const char *name, struct err *e)
{
    char *path = io_join(s->path, file);
    struct buf b = BUF_INIT;
    int rc = access(path, F_OK) == 0 ? io_read_file(path, MAX_DOC, &b, e) : 0;
    if (rc == 0 && b.data) {
        source_add_doc(s, name, b.data, b.len);
    }
    buf_free(&b);
    free(path);
    return rc;
}

static int read_docs(struct source *s, struct err *e)
{
    static const char *const files[][2] = {
        {"config.json", "config.json"},
        {"tokenizer.json", "tokenizer.json"},
        {"tokenizer_config.json", "tokenizer_config.json"},
        {"chat_template.jinja", "chat_template.jinja"},
        {"generation_config.json", "generation_config.json"},
        {"special_tokens_map.json", "special_tokens_map.json"},
        {"preprocessor_config.json", "preprocessor_config.json"},
        {"video_preprocessor_config.json", "video_preprocessor_config.json"},
        {"MODEL_CARD.md", "MODEL_CARD.md"},
        {"README.md", "MODEL_CARD.md"},
        {"LICENSE", "LICENSE"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (source_doc(s, files[i][1])) {
            continue;
        }
        int rc = read_doc(s, files[i][0], files[i][1], e);
        if (rc < 0) {
            return rc;
        }
    }
    /* older folders have the template only inside tokenizer_config.json */
    const struct source_doc *tc = source_doc(s, "tokenizer_config.json");
    if (tc && !source_doc(s, "chat_template.jinja")) {
        json_t *v = NULL;
        int rc = json_parse(tc->data, tc->size, "tokenizer_config.json", &v, e);
        if (rc < 0) {
            return rc;
        }
        const json_t *t = json_object_get(v, "chat_template");
        if (json_is_string(t)) {
            source_add_doc(s, "chat_template.jinja", json_string_value(t), json_string_length(t));
        }
        json_decref(v);
    }
    return 0;
}

static int add_tensor(struct source *s, const struct st_tensor *st, size_t index, struct err *e)
{
    const char *name = names_strip(st->name);
    if (!name) {
        return err_set(e, QE_UNSUPPORTED, "%s: tensor %s is not part of a model of this family",
                       s->path, st->name);
    }
    if (!st->usable) {
        return err_set(e, QE_UNSUPPORTED,
                       "%s: tensor %s has type %s; F32, F16 and BF16 can be converted", s->path,
                       st->name, st->type);
    }
    struct source_tensor *t = source_add(s, name, st->name);
    t->type = st->type;
    t->native = st->dtype;
    t->index = index;
    t->n_dims = st->n_dims;
    t->shape[0] = 1;
    if (st->n_dims == 0) { /* a scalar is a vector of one */
        t->n_dims = 1;
    } else if (st->n_dims <= TENSOR_MAX_DIMS) {
        memcpy(t->shape, st->shape, (size_t)st->n_dims * sizeof *t->shape);
    } else if (strncmp(name, "visual.", 7) == 0) {
        /* the patch embedding: [out, channels, time, height, width] */
        json_t *shape = json_array();
        t->n_dims = 2;
        t->shape[0] = st->shape[0];
        t->shape[1] = 1;
        for (int d = 0; d < st->n_dims; d++) {
            t->shape[1] *= d > 0 ? st->shape[d] : 1;
            json_array_append_new(shape, json_integer((json_int_t)st->shape[d]));
        }
        json_object_set_new(s->shapes, name, shape);
    } else {
        return err_set(e, QE_UNSUPPORTED, "%s: tensor %s has %d dimensions", s->path, st->name,
                       st->n_dims);
    }
    return 0;
}

int source_open_hf(const char *path, struct source *s, struct err *e)
{
    s->format = "hf";
    s->decode = hf_decode;
    s->codes = hf_codes;
    s->close = hf_close;
    int rc = read_docs(s, e);
    if (rc < 0) {
        return rc;
    }
    const struct source_doc *doc = source_doc(s, "config.json");
    if (!doc) {
        return err_set(e, QE_NOTFOUND,
                       "%s has no config.json: it is not the folder of a Hugging Face checkpoint",
                       path);
    }
    json_t *config = NULL;
    rc = json_parse(doc->data, doc->size, "config.json", &config, e);
    if (rc == 0) {
        rc = modelconf_from_hf(config, "config.json", &s->config, e);
    }
    const char *name = json_string_value(json_object_get(config, "_name_or_path"));
    if (rc == 0 && name && name[0]) {
        s->model_name = mem_strdup(name);
    }
    json_decref(config);
    if (rc < 0) {
        return err_wrap(e, rc, "%s", path);
    }
    struct safetensors *st = NULL;
    rc = st_open(path, &st, e);
    if (rc < 0) {
        return rc;
    }
    s->ctx = st;
    for (size_t i = 0; rc == 0 && i < st_count(st); i++) {
        rc = add_tensor(s, st_at(st, i), i, e);
    }
    return rc;
}
