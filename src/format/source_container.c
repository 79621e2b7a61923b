/* A container as a source: to export it, or to write it again in another tier. */
#include "config.h"
#include "format/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/container.h"
#include "format/quant.h"
#include "format/tokjson.h"

static int box_decode(struct source *s, const struct source_tensor *t, uint64_t row, uint64_t rows,
                      float *dst, struct err *e)
{
    (void)e;
    const struct tensor *x = container_at(s->ctx, t->index);
    uint64_t cols = tensor_cols(x);
    size_t data = 0;
    size_t scales = 0;
    quant_at(x->dtype, row, cols, &data, &scales);
    quant_decode(x->dtype, (const char *)x->data + data,
                 x->scales ? (const char *)x->scales + scales : NULL, rows, cols, dst);
    names_unchange(t->change, dst, rows * cols);
    return 0;
}

static int box_codes(struct source *s, const struct source_tensor *t, enum dtype want, uint64_t row,
                     uint64_t rows, void *data, void *scales, bool *have, struct err *e)
{
    (void)e;
    const struct tensor *x = container_at(s->ctx, t->index);
    *have = x->dtype == want && t->change == 0;
    if (*have) {
        uint64_t cols = tensor_cols(x);
        size_t from[2];
        size_t size[2];
        quant_at(want, row, cols, &from[0], &from[1]);
        quant_at(want, rows, cols, &size[0], &size[1]);
        memcpy(data, (const char *)x->data + from[0], size[0]);
        if (x->scales) {
            memcpy(scales, (const char *)x->scales + from[1], size[1]);
        }
    }
    return 0;
}

static void box_close(void *ctx)
{
    container_close(ctx);
}

static int add_docs(struct source *s, const struct container *c, struct err *e)
{
    for (size_t i = 0; i < container_doc_count(c); i++) {
        struct container_doc d = container_doc_at(c, i);
        source_add_doc(s, d.name, d.data, d.size);
    }
    const char *p = NULL;
    size_t n = 0;
    if (container_version(c) != 1 || !container_get(c, CB_TOKENIZER, &p, &n)) {
        return 0;
    }
    char *text = NULL;
    int rc = tokjson_from_tok(p, n, s->path, &text, e);
    if (rc == 0) {
        source_add_doc(s, "tokenizer.json", text, strlen(text));
        free(text);
    }
    return rc;
}

int source_open_container(const char *path, struct source *s, struct err *e)
{
    struct container *c = NULL;
    int rc = container_open(path, false, &c, e);
    if (rc < 0) {
        return rc;
    }
    s->ctx = c;
    s->close = box_close;
    s->decode = box_decode;
    s->codes = box_codes;
    s->format = container_version(c) == 1 ? "q27" : "qsr";
    s->config = json_deep_copy(container_config(c));
    const json_t *meta = container_meta(c);
    const char *tier = json_string_value(json_object_get(meta, "tier"));
    const char *name = json_string_value(json_object_get(meta, "name"));
    const json_t *shapes = json_object_get(meta, "shapes");
    s->tier = tier ? mem_strdup(tier) : NULL;
    s->model_name = name ? mem_strdup(name) : NULL;
    s->provenance = json_deep_copy(json_object_get(meta, "source"));
    if (json_is_object(shapes)) {
        json_object_update(s->shapes, (json_t *)(uintptr_t)shapes);
    }
    struct modelconf m = modelconf_get(s->config);
    for (size_t i = 0; i < container_count(c); i++) {
        const struct tensor *x = container_at(c, i);
        struct container_origin o = container_origin(c, i);
        struct source_tensor *t = source_add(s, x->name, o.name[0] ? o.name : x->name);
        t->type = o.type;
        t->native = x->dtype;
        t->n_dims = x->n_dims;
        memcpy(t->shape, x->shape, sizeof t->shape);
        t->index = i;
        char gguf[NAME_MAX_LEN];
        if (container_norms_folded(c) && names_to_gguf(x->name, m.layers, gguf, &t->change)) {
            t->change &= NC_PLUS_ONE | NC_NEG_EXP;
        }
    }
    return add_docs(s, c, e);
}
