/* Model files: opening either version, and what both share. The file stays
 * mapped as long as the container is open; tensors point into it, except those
 * of version 1 whose heads had to be put in order. */
#include "config.h"
#include "format/container.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/container_priv.h"
#include "format/modelconf.h"

uint64_t rd_uint(struct rd *r, size_t width)
{
    const uint8_t *p = rd_bytes(r, width);
    uint64_t v = 0;
    for (size_t i = 0; p && i < width; i++) {
        v |= (uint64_t)p[i] << (8 * i);
    }
    return v;
}

const uint8_t *rd_bytes(struct rd *r, size_t n)
{
    if (r->bad || n > r->n) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *p = r->p;
    r->p += n;
    r->n -= n;
    return p;
}

const char *rd_name(struct rd *r, size_t n, struct container *c)
{
    const uint8_t *p = rd_bytes(r, n);
    if (!p) {
        return "";
    }
    for (size_t i = 0; i < n; i++) {
        if (p[i] <= ' ' || p[i] >= 127) {
            r->bad = true;
            return "";
        }
    }
    char *s = c->pool + c->pool_len;
    memcpy(s, p, n);
    s[n] = 0;
    c->pool_len += n + 1;
    return s;
}

int container_check_tensor(const struct container *c, const struct tensor *t, struct err *e)
{
    uint64_t rows = 1;
    bool bad = t->n_dims < 1 || t->n_dims > TENSOR_MAX_DIMS;
    for (int i = 0; !bad && i < t->n_dims; i++) {
        bad = t->shape[i] == 0 || (i + 1 < t->n_dims && !arr_size(rows, t->shape[i], &rows));
    }
    size_t data = 0;
    size_t scales = 0;
    if (bad || dtype_sizes(t->dtype, rows, t->shape[t->n_dims - 1], &data, &scales) < 0) {
        return err_set(e, QE_FORMAT, "%s: the shape of tensor %s is not possible for type %s",
                       c->what, t->name, dtype_name(t->dtype));
    }
    if (data != t->size || scales != t->scale_size) {
        return err_set(e, QE_FORMAT,
                       "%s: tensor %s has %zu + %zu bytes, its shape and type need %zu + %zu",
                       c->what, t->name, t->size, t->scale_size, data, scales);
    }
    return 0;
}

static int by_name(const void *a, const void *b, void *ctx)
{
    const struct tensor *t = ctx;
    return strcmp(t[*(const size_t *)a].name, t[*(const size_t *)b].name);
}

int container_index(struct container *c, struct err *e)
{
    c->by_name = mem_array(c->n_tensors + 1, sizeof *c->by_name);
    for (size_t i = 0; i < c->n_tensors; i++) {
        c->by_name[i] = i;
    }
    qsort_r(c->by_name, c->n_tensors, sizeof *c->by_name, by_name, c->tensors);
    for (size_t i = 1; i < c->n_tensors; i++) {
        const char *name = c->tensors[c->by_name[i]].name;
        if (strcmp(c->tensors[c->by_name[i - 1]].name, name) == 0) {
            return err_set(e, QE_FORMAT, "%s: tensor %s occurs twice", c->what, name);
        }
    }
    const struct tensor *embed = container_find(c, "embed_tokens.weight");
    if (embed && !container_find(c, "lm_head.weight")) {
        c->tied_head = *embed;
        c->tied_head.name = "lm_head.weight";
    }
    return 0;
}

static int not_ours(const struct container *c, struct err *e)
{
    if (c->size == 0) {
        return err_set(e, QE_FORMAT, "%s is empty, not a model", c->what);
    }
    if (c->size >= 4 && memcmp(c->p, "GGUF", 4) == 0) {
        return err_set(e, QE_UNSUPPORTED,
                       "%s is a GGUF file: convert it first (quasar convert %s model.qsr)", c->what,
                       c->what);
    }
    if (c->size > 8 && c->p[8] == '{') {
        return err_set(e, QE_UNSUPPORTED,
                       "%s is a safetensors file: convert its folder first (quasar convert FOLDER "
                       "model.qsr)",
                       c->what);
    }
    return err_set(e, QE_FORMAT, "%s is not a model file (it starts neither as .qsr nor as .q27)",
                   c->what);
}

static int read_any(struct container *c, const char *path, bool verify, struct err *e)
{
    struct rd r = {c->p, c->size, false};
    uint64_t magic = rd_uint(&r, 4);
    uint64_t version = rd_uint(&r, 4);
    if (r.bad || (magic != V1_MAGIC && magic != V2_MAGIC)) {
        return not_ours(c, e);
    }
    uint64_t known = magic == V1_MAGIC ? 1 : 2;
    if (version != known) {
        return err_set(e, QE_UNSUPPORTED,
                       "%s has format version %llu; this program reads version %llu", c->what,
                       (unsigned long long)version, (unsigned long long)known);
    }
    c->version = (int)version;
    return c->version == 1 ? container_read_v1(c, path, e) : container_read_v2(c, verify, e);
}

int container_open_mem(const void *p, size_t n, const char *name, bool verify,
                       struct container **out, struct err *e)
{
    struct container *c = mem_zalloc(sizeof *c);
    c->p = p;
    c->size = n;
    c->what = name;
    int rc = read_any(c, NULL, verify, e);
    if (rc < 0) {
        container_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

int container_open(const char *path, bool verify, struct container **out, struct err *e)
{
    struct container *c = mem_zalloc(sizeof *c);
    c->what = path;
    int rc = io_map_open(&c->map, path, e);
    if (rc == 0) {
        c->p = c->map.data;
        c->size = c->map.size;
        rc = read_any(c, path, verify, e);
    }
    if (rc < 0) {
        container_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void container_close(struct container *c)
{
    if (!c) {
        return;
    }
    for (size_t i = 0; i < c->n_owned; i++) {
        free(c->owned[i]);
    }
    free(c->owned);
    free(c->tensors);
    free(c->origins);
    free(c->by_name);
    free(c->docs);
    free(c->pool);
    buf_free(&c->tok);
    if (c->version == 1) {
        json_decref(c->config);
    }
    json_decref(c->meta);
    io_map_close(&c->map);
    free(c);
}

size_t container_count(const struct container *c)
{
    return c->n_tensors;
}

const struct tensor *container_at(const struct container *c, size_t i)
{
    return i < c->n_tensors ? &c->tensors[i] : NULL;
}

const struct tensor *container_find(const struct container *c, const char *name)
{
    size_t lo = 0;
    size_t hi = c->n_tensors;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct tensor *t = &c->tensors[c->by_name[mid]];
        int d = strcmp(name, t->name);
        if (d == 0) {
            return t;
        }
        if (d < 0) {
            hi = mid;
        } else {
            lo = mid + 1;
        }
    }
    return c->tied_head.name && strcmp(name, c->tied_head.name) == 0 ? &c->tied_head : NULL;
}

bool container_get(const struct container *c, enum container_blob which, const char **p, size_t *n)
{
    static const char *const names[] = {"tokenizer.json",      "tokenizer_config.json",
                                        "chat_template.jinja", "generation_config.json",
                                        "config.json",         "MODEL_CARD.md"};
    for (size_t i = 0; i < c->n_docs; i++) {
        if (strcmp(c->docs[i].name, names[which]) == 0) {
            *p = c->docs[i].data;
            *n = c->docs[i].size;
            return true;
        }
    }
    if (which == CB_TOKENIZER && c->tok.len > 0) {
        *p = c->tok.data;
        *n = c->tok.len;
        return true;
    }
    return false;
}

const json_t *container_config(const struct container *c)
{
    return c->config;
}

const json_t *container_meta(const struct container *c)
{
    return c->meta;
}

bool container_norms_folded(const struct container *c)
{
    return c->folded;
}

int container_version(const struct container *c)
{
    return c->version;
}

uint64_t container_file_size(const struct container *c)
{
    return c->size;
}

const struct io_map *container_map(const struct container *c)
{
    return c->map.data ? &c->map : NULL;
}

const char *container_digest(const struct container *c)
{
    return c->digest;
}

struct container_origin container_origin(const struct container *c, size_t i)
{
    const struct origin *o = &c->origins[i];
    struct container_origin r = {o->name, o->type, o->data_digest, o->scale_digest};
    return r;
}

size_t container_doc_count(const struct container *c)
{
    return c->n_docs;
}

struct container_doc container_doc_at(const struct container *c, size_t i)
{
    return c->docs[i];
}
