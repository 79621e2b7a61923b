/* The reader of version 1 (.q27). Its tensors carry GGUF names and GGUF's order
 * of value heads; here they get our names, and the tensors whose heads stand in
 * another order are copied into ours, codes and scales alike. Version 1 has no
 * digests: damage inside weights cannot be seen. */
#include "config.h"
#include "format/container_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "format/modelconf.h"
#include "format/names.h"

#define MAX_TOK (256U << 20)

/* One entry of the table, before it is known what it means. */
struct entry {
    const char *name;
    uint64_t data_off, scale_off;
    struct tensor t;
};

static const char *v1_type_name(unsigned code)
{
    static const char *const names[] = {"F32",     "F16",     "Q8_G128", "Q4_G64",
                                        "T2_G128", "T3_G128", "B1_G128", "FP4_G16"};
    return code < sizeof names / sizeof *names ? names[code] : "unknown";
}

static bool is_side_tensor(const char *name)
{
    size_t n = strlen(name);
    return n > 4 && strcmp(name + n - 4, ".pf4") == 0;
}

static int read_entry(struct container *c, struct rd *r, struct entry *en, struct err *e)
{
    struct tensor *t = &en->t;
    en->name = rd_name(r, (size_t)rd_uint(r, 2), c);
    unsigned dtype = (unsigned)rd_uint(r, 1);
    uint64_t n_dims = rd_uint(r, 1);
    if (r->bad || !en->name[0] || n_dims < 1 || n_dims > TENSOR_MAX_DIMS) {
        return err_set(e, QE_FORMAT, "%s: the table of tensors is damaged or cut off", c->what);
    }
    t->name = en->name;
    t->n_dims = (int)n_dims;
    for (int i = 0; i < t->n_dims; i++) {
        t->shape[i] = rd_uint(r, 8);
    }
    en->data_off = rd_uint(r, 8);
    t->size = (size_t)rd_uint(r, 8);
    en->scale_off = rd_uint(r, 8);
    t->scale_size = (size_t)rd_uint(r, 8);
    if (r->bad) {
        return err_set(e, QE_FORMAT, "%s: the table of tensors is damaged or cut off", c->what);
    }
    if (dtype > DT_Q4_G64) {
        if (is_side_tensor(en->name)) {
            en->name = NULL; /* a second form of a tensor that is there too */
            return 0;
        }
        return err_set(e, QE_UNSUPPORTED,
                       "%s: tensor %s has type %u (%s), which is not supported: use a file with "
                       "Q4_G64 and Q8_G128 weights",
                       c->what, en->name, dtype, v1_type_name(dtype));
    }
    t->dtype = (enum dtype)dtype;
    return container_check_tensor(c, t, e);
}

static int place(const struct container *c, uint64_t start, uint64_t off, size_t size,
                 const char *name, const void **p, struct err *e)
{
    uint64_t room = c->size - start;
    if (off % CONTAINER_ALIGN != 0 || off > room || size > room - off) {
        return err_set(e, QE_FORMAT,
                       "%s: tensor %s lies at %llu + %zu of a data section of %llu bytes (is the "
                       "file cut off?)",
                       c->what, name, (unsigned long long)off, size, (unsigned long long)room);
    }
    *p = c->p + start + off;
    return 0;
}

/* Copies n bytes per row with rows or heads in our order. */
static void reorder(const struct modelconf *m, unsigned change, const void *src, void *dst,
                    uint64_t rows, size_t row_bytes)
{
    for (uint64_t i = 0; i < rows; i++) {
        char *to = (char *)dst + i * row_bytes;
        uint64_t from = heads_source_row(m, change, false, i);
        const char *s = (const char *)src + from * row_bytes;
        if (change & NC_COLS) {
            heads_permute_row(m, false, s, to, row_bytes);
        } else {
            memcpy(to, s, row_bytes);
        }
    }
}

static int reorder_tensor(struct container *c, const struct modelconf *m, unsigned change,
                          struct tensor *t, struct err *e)
{
    uint64_t rows = tensor_rows(t);
    uint64_t cols = tensor_cols(t);
    bool fits = heads_fit(m, change, t->n_dims, rows, cols);
    if ((change & NC_COLS) && t->n_dims > 1) {
        fits = fits && m->v_dim % dtype_group(t->dtype) == 0;
    }
    if (!fits) {
        return err_set(
            e, QE_FORMAT, "%s: tensor %s of %llu x %llu does not fit %d value heads of %d", c->what,
            t->name, (unsigned long long)rows, (unsigned long long)cols, m->v_heads, m->v_dim);
    }
    const void *parts[2] = {t->data, t->scales};
    size_t sizes[2] = {t->size, t->scale_size};
    for (int i = 0; i < 2; i++) {
        if (sizes[i] == 0) {
            continue;
        }
        void *copy = mem_aligned(sizes[i]);
        reorder(m, change, parts[i], copy, rows, sizes[i] / (size_t)rows);
        c->owned[c->n_owned++] = copy;
        parts[i] = copy;
    }
    t->data = parts[0];
    t->scales = parts[1];
    return 0;
}

/* Everything after the table: our names, places, order of heads. */
static int adopt(struct container *c, const struct entry *en, size_t n, uint64_t start,
                 struct err *e)
{
    struct modelconf m = modelconf_get(c->config);
    char *names = mem_array(n + 1, NAME_MAX_LEN);
    c->owned = mem_array(2 * n + 1, sizeof *c->owned);
    c->owned[c->n_owned++] = names;
    for (size_t i = 0; i < n; i++) {
        if (!en[i].name) {
            continue;
        }
        unsigned change = 0;
        char *hf = names + i * NAME_MAX_LEN;
        if (!names_from_gguf(en[i].name, m.layers, hf, &change)) {
            return err_set(e, QE_UNSUPPORTED, "%s: tensor %s is not part of a model of this family",
                           c->what, en[i].name);
        }
        struct tensor *t = &c->tensors[c->n_tensors];
        *t = en[i].t;
        t->name = hf;
        c->origins[c->n_tensors].name = en[i].name;
        c->origins[c->n_tensors].type = v1_type_name((unsigned)t->dtype);
        c->n_tensors++;
        int rc = place(c, start, en[i].data_off, t->size, en[i].name, &t->data, e);
        if (rc == 0 && t->scale_size > 0) {
            rc = place(c, start, en[i].scale_off, t->scale_size, en[i].name, &t->scales, e);
        }
        if (rc == 0 && heads_moved(&m, change)) {
            rc = reorder_tensor(c, &m, change, t, e);
        }
        if (rc < 0) {
            return rc;
        }
        if ((change & NC_CONV) && t->n_dims == 2) {
            t->shape[2] = t->shape[1];
            t->shape[1] = 1;
            t->n_dims = 3;
        }
    }
    return 0;
}

/* There are no digests to build on, and hashing all weights at each start would
 * cost minutes: the head of the file and the beginning of every blob. */
static void model_digest(struct container *c, uint64_t start)
{
    struct sha256 *h = sha256_create();
    sha256_add(h, c->p, (size_t)start);
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct tensor *t = &c->tensors[i];
        sha256_add(h, t->data, t->size < 4096 ? t->size : 4096);
        sha256_add(h, t->scales, t->scale_size < 1024 ? t->scale_size : 1024);
    }
    uint8_t d[SHA256_BYTES];
    sha256_done(h, d);
    sha256_free(h);
    hex_of(d, sizeof d, c->digest);
}

/* model.q27 has its tokenizer in model.tok, or in model.q27.tok; it may be
 * missing (then only text cannot be made). */
static int read_tok(struct container *c, const char *path, struct err *e)
{
    size_t n = strlen(path);
    size_t stem = n > 4 && strcmp(path + n - 4, ".q27") == 0 ? n - 4 : n;
    for (int i = 0; i < 2; i++) {
        struct buf name = BUF_INIT;
        buf_add(&name, path, i == 0 ? stem : n);
        buf_adds(&name, ".tok");
        struct err why = ERR_INIT;
        int rc = io_read_file(name.data, MAX_TOK, &c->tok, &why);
        struct rd r = {(const uint8_t *)c->tok.data, c->tok.len, false};
        if (rc == 0 && rd_uint(&r, 4) != TOK_MAGIC) {
            rc = err_set(&why, QE_FORMAT, "%s is not a tokenizer of a version 1 model", name.data);
        }
        buf_free(&name);
        if (rc == 0) {
            return 0;
        }
        if (rc != QE_NOTFOUND) {
            return err_set(e, rc, "%s", why.msg);
        }
    }
    return 0;
}

static uint64_t vocab_of(const struct entry *en, size_t n, bool *tied)
{
    uint64_t vocab = 0;
    *tied = true;
    for (size_t i = 0; i < n; i++) {
        if (en[i].name && strcmp(en[i].name, "token_embd.weight") == 0) {
            vocab = en[i].t.shape[0];
        }
        if (en[i].name && strcmp(en[i].name, "output.weight") == 0) {
            *tied = false;
        }
    }
    return vocab;
}

int container_read_v1(struct container *c, const char *path, struct err *e)
{
    struct rd r = {c->p, c->size, false};
    rd_bytes(&r, 8);
    uint64_t n = rd_uint(&r, 4);
    uint64_t meta_len = rd_uint(&r, 4);
    if (r.bad || n > MAX_TENSORS || meta_len > MAX_META || meta_len > r.n) {
        return err_set(e, QE_FORMAT,
                       "%s: a header with %llu tensors and %llu bytes of metadata in a file of "
                       "%zu bytes",
                       c->what, (unsigned long long)n, (unsigned long long)meta_len, c->size);
    }
    const uint8_t *meta = rd_bytes(&r, (size_t)meta_len);
    int rc = json_parse((const char *)meta, (size_t)meta_len, "its metadata", &c->meta, e);
    if (rc < 0) {
        return err_wrap(e, rc, "%s", c->what);
    }
    /* an entry takes at least 38 bytes, so n of them cannot need more memory
     * than a multiple of what is there */
    if (n > r.n / 38) {
        return err_set(e, QE_FORMAT, "%s is too short for %llu tensors", c->what,
                       (unsigned long long)n);
    }
    struct entry *en = mem_array((size_t)n + 1, sizeof *en);
    c->pool = mem_zalloc((size_t)(r.n < MAX_TABLE ? r.n : MAX_TABLE) + (size_t)n + 1);
    if (r.n > MAX_TABLE) {
        r.n = MAX_TABLE;
    }
    c->tensors = mem_array((size_t)n + 1, sizeof *c->tensors);
    c->origins = mem_array((size_t)n + 1, sizeof *c->origins);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = read_entry(c, &r, &en[i], e);
    }
    if (rc == 0) {
        bool tied = false;
        uint64_t vocab = vocab_of(en, (size_t)n, &tied);
        rc = modelconf_from_gguf(c->meta, c->what, vocab, tied, &c->config, e);
    }
    uint64_t end = (uint64_t)(r.p - c->p);
    uint64_t start = (end + CONTAINER_ALIGN - 1) / CONTAINER_ALIGN * CONTAINER_ALIGN;
    if (rc == 0 && start > c->size) {
        rc = err_set(e, QE_FORMAT, "%s is cut off behind its table of tensors", c->what);
    }
    if (rc == 0) {
        rc = adopt(c, en, (size_t)n, start, e);
    }
    free(en);
    if (rc == 0) {
        rc = container_index(c, e);
    }
    if (rc == 0) {
        /* under the keys that version 2 has */
        json_t *name = json_object_get(c->meta, "general.name");
        json_t *tier = json_object_get(c->meta, "quant_policy");
        json_object_set(c->meta, "name", name ? name : json_null());
        json_object_set(c->meta, "tier", tier ? tier : json_null());
        c->folded = true;
        model_digest(c, start);
    }
    return rc == 0 && path ? read_tok(c, path, e) : rc;
}
