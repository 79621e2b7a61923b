/* The container as a target. */
#include "config.h"
#include "format/convert_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "format/container_write.h"
#include "format/quant.h"
#include "format/tokjson.h"

/* Token ids beyond the tokenizer's own are padding rows of the matrices. */
static int count_used(const struct source *s, json_int_t *used, struct err *e)
{
    const struct source_doc *tok = source_doc(s, "tokenizer.json");
    const struct source_doc *conf = source_doc(s, "tokenizer_config.json");
    if (!tok) {
        return 0;
    }
    struct tok_list l = {0};
    int rc = tok_list_parse(&l, tok->data, tok->size, conf ? conf->data : NULL,
                            conf ? conf->size : 0, e);
    if (rc == 0 && l.n > (size_t)s->m.vocab) {
        rc = err_set(e, QE_FORMAT, "%s: the tokenizer has %zu tokens, the model only %d rows",
                     s->path, l.n, s->m.vocab);
    }
    *used = (json_int_t)l.n;
    tok_list_fini(&l);
    return rc;
}

static int make_meta(const struct plan *p, json_t **out, struct err *e)
{
    const struct source *s = p->s;
    json_int_t used = 0;
    int rc = count_used(s, &used, e);
    if (rc < 0) {
        return rc;
    }
    json_t *m = json_object();
    json_object_set_new(m, "writer", json_string("quasar " PACKAGE_VERSION));
    json_object_set_new(m, "name", json_str_lossy(s->model_name, strlen(s->model_name)));
    const char *tier = p->tier ? tier_name(p->tier) : s->tier;
    json_object_set_new(m, "tier", json_str_lossy(tier, strlen(tier)));
    if (used > 0) {
        json_object_set_new(m, "vocab_used", json_integer(used));
    }
    json_object_set_new(m, "source",
                        s->provenance ? json_incref(s->provenance)
                                      : json_pack("{s:s}", "format", s->format));
    json_object_set_new(m, "config", json_incref(s->config));
    if (json_object_size(s->shapes) > 0) {
        json_object_set_new(m, "shapes", json_incref(s->shapes));
    }
    *out = m;
    return 0;
}

static int write_tensor(struct plan *p, struct container_writer *w, const struct plan_item *it,
                        struct err *e)
{
    uint64_t rows = source_rows(it->t);
    uint64_t cols = source_cols(it->t);
    uint64_t chunk = plan_chunk_rows(it->t);
    for (uint64_t r = 0; r < rows; r += chunk) {
        uint64_t n = rows - r < chunk ? rows - r : chunk;
        size_t data = 0;
        size_t scales = 0;
        quant_at(it->dtype, n, cols, &data, &scales);
        int rc = source_encode(p->s, it->t, it->dtype, r, n, p->scratch, p->data, p->scales, e);
        if (rc == 0) {
            rc = container_writer_data(w, p->data, data, p->scales, scales, e);
        }
        if (rc == 0) {
            rc = plan_progress(p, data + scales, e);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int convert_write_qsr(struct plan *p, const char *dst, struct err *e)
{
    struct source *s = p->s;
    if (!source_doc(s, "tokenizer.json")) {
        plan_note(p, "%s has no tokenizer.json: of the model only score --tokens will work",
                  s->path);
    }
    json_t *meta = NULL;
    int rc = make_meta(p, &meta, e);
    if (rc < 0) {
        return rc;
    }
    struct container_writer *w = container_writer_create();
    container_writer_meta_take(w, meta);
    for (size_t i = 0; i < s->n_docs; i++) {
        container_writer_doc(w, s->docs[i].name, s->docs[i].data, s->docs[i].size);
    }
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        const struct plan_item *it = &p->items[i];
        bool same = strcmp(it->t->full_name, it->name) == 0;
        rc = container_writer_declare(w, it->name, same ? "" : it->t->full_name, it->t->type,
                                      it->dtype, it->t->n_dims, it->t->shape, e);
        if (rc < 0) {
            rc = err_wrap(e, rc, "%s", s->path);
        }
    }
    if (rc == 0) {
        p->total = container_writer_size(w);
        rc = plan_check_space(dst, p->total, e);
    }
    if (rc == 0) {
        rc = container_writer_begin(w, dst, e);
    }
    for (size_t i = 0; rc == 0 && i < p->n; i++) {
        rc = write_tensor(p, w, &p->items[i], e);
    }
    if (rc == 0) {
        rc = container_writer_commit(w, e);
    }
    container_writer_free(w);
    return rc;
}
