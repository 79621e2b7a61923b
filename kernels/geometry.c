/* What every backend checks before it opens a model (the geometry, and each
 * tensor's shape, dtype and size, by name), and what all derive from it. */
#include "config.h"
#include "kernels/geometry.h"

#include <math.h>
#include <stdio.h>

enum { MAX_DIM = 1 << 24, MAX_LAYERS = 4096 };

static int check_tensor(const struct tensor *t, const char *what, int layer, int rows, int cols,
                        bool vector, struct err *e)
{
    char where[64] = "";
    if (layer >= 0) {
        snprintf(where, sizeof where, " of layer %d", layer);
    }
    const char *name = t->name ? t->name : what;
    if (!t->data || !dtype_name(t->dtype)) {
        return err_set(e, QE_FORMAT, "the model has no %s%s", what, where);
    }
    if (vector && t->dtype != DT_F32) {
        return err_set(e, QE_FORMAT, "%s%s is %s, not f32", name, where, dtype_name(t->dtype));
    }
    if (t->n_dims < 1 || t->n_dims > TENSOR_MAX_DIMS) {
        return err_set(e, QE_FORMAT, "%s%s has %d dimensions", name, where, t->n_dims);
    }
    uint64_t r = tensor_rows(t);
    uint64_t c = tensor_cols(t);
    if (r != (uint64_t)rows || c != (uint64_t)cols) {
        return err_set(e, QE_FORMAT, "%s%s is %llu x %llu, not %d x %d", name, where,
                       (unsigned long long)r, (unsigned long long)c, rows, cols);
    }
    size_t size = 0;
    size_t scales = 0;
    if (dtype_sizes(t->dtype, r, c, &size, &scales) < 0) {
        return err_set(e, QE_FORMAT, "%s%s: %d columns are not whole groups of %d (%s)", name,
                       where, cols, dtype_group(t->dtype), dtype_name(t->dtype));
    }
    if (t->size < size || (scales > 0 && (!t->scales || t->scale_size < scales))) {
        return err_set(e, QE_FORMAT, "%s%s is cut short: %zu of %zu bytes, %zu of %zu of scales",
                       name, where, t->size, size, t->scale_size, scales);
    }
    return 0;
}

struct wanted {
    const struct tensor *t;
    const char *what;
    int rows, cols;
    bool vector;
};

static int check_all(const struct wanted *w, size_t n, int layer, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = check_tensor(w[i].t, w[i].what, layer, w[i].rows, w[i].cols, w[i].vector, e);
    }
    return rc;
}

#define COUNT(a) (sizeof(a) / sizeof *(a))

static int check_layer(const struct be_shape *s, const struct be_layer *l, int i, bool attention,
                       struct err *e)
{
    const int dn = BE_DN_DIM;
    const int hd = BE_HEAD_DIM;
    const int ch = (2 * s->k_heads + s->v_heads) * dn;
    const struct wanted common[] = {
        {&l->norm, "input norm", 1, s->hidden, true},
        {&l->post_norm, "FFN norm", 1, s->hidden, true},
        {&l->gate, "FFN gate", s->ffn, s->hidden, false},
        {&l->up, "FFN up", s->ffn, s->hidden, false},
        {&l->down, "FFN down", s->hidden, s->ffn, false},
    };
    const struct wanted att[] = {
        {&l->q, "q projection", s->q_heads * 2 * hd, s->hidden, false},
        {&l->k, "k projection", s->kv_heads * hd, s->hidden, false},
        {&l->v, "v projection", s->kv_heads * hd, s->hidden, false},
        {&l->o, "output projection", s->hidden, s->q_heads * hd, false},
        {&l->q_norm, "q norm", 1, hd, true},
        {&l->k_norm, "k norm", 1, hd, true},
    };
    const struct wanted gdn[] = {
        {&l->qkv, "qkv projection", ch, s->hidden, false},
        {&l->z, "z projection", s->v_heads * dn, s->hidden, false},
        {&l->b, "b projection", s->v_heads, s->hidden, false},
        {&l->a, "a projection", s->v_heads, s->hidden, false},
        {&l->out, "output projection", s->hidden, s->v_heads * dn, false},
        {&l->conv, "convolution", ch, BE_CONV, true},
        {&l->a_log, "A", 1, s->v_heads, true},
        {&l->dt_bias, "dt bias", 1, s->v_heads, true},
        {&l->gnorm, "gated norm", 1, dn, true},
    };
    int rc = check_all(common, COUNT(common), i, e);
    if (rc < 0) {
        return rc;
    }
    return attention ? check_all(att, COUNT(att), i, e) : check_all(gdn, COUNT(gdn), i, e);
}

int be_check_shape(const struct be_shape *s, const struct be_opts *o, struct err *e)
{
    const struct {
        const char *name;
        int value, max;
    } t[] = {
        {"hidden size", s->hidden, MAX_DIM / 2},
        {"layer count", s->layers, MAX_LAYERS},
        {"FFN size", s->ffn, MAX_DIM},
        {"vocabulary", s->vocab, MAX_DIM},
        {"query heads", s->q_heads, 4096},
        {"key heads", s->kv_heads, 4096},
        {"DeltaNet key heads", s->k_heads, 4096},
        {"DeltaNet value heads", s->v_heads, 4096},
        {"state slots", o->slots, 1 << 16},
        {"cache pages", o->pages, 1 << 24},
        {"prefill rows", o->max_prefill, 1 << 20},
        {"threads", o->threads > 0 ? o->threads : 1, 1024},
    };
    for (size_t i = 0; i < COUNT(t); i++) {
        if (t[i].value < 1 || t[i].value > t[i].max) {
            return err_set(e, QE_UNSUPPORTED, "%s %d is outside 1..%d", t[i].name, t[i].value,
                           t[i].max);
        }
    }
    if (s->q_heads % s->kv_heads != 0 || s->v_heads % s->k_heads != 0) {
        return err_set(e, QE_UNSUPPORTED,
                       "%d query heads on %d key heads, %d value heads on %d: "
                       "not a multiple",
                       s->q_heads, s->kv_heads, s->v_heads, s->k_heads);
    }
    if (s->vocab_used > BE_MAX_IDS) {
        return err_set(e, QE_UNSUPPORTED, "%d ids to draw from; the limit is %d", s->vocab_used,
                       BE_MAX_IDS);
    }
    if (s->vocab_used < 1 || s->vocab_used > s->vocab) {
        return err_set(e, QE_UNSUPPORTED, "%d used ids of a vocabulary of %d", s->vocab_used,
                       s->vocab);
    }
    const int *r = s->rope_sections;
    if (r[0] < 0 || r[1] < 0 || r[2] < 0 || r[0] + r[1] + r[2] != BE_ROT_DIM / 2) {
        return err_set(e, QE_UNSUPPORTED, "rotary sections %d, %d, %d do not add up to %d", r[0],
                       r[1], r[2], BE_ROT_DIM / 2);
    }
    return 0;
}

int be_check_weights(const struct be_shape *s, const struct be_weights *w, struct err *e)
{
    const struct wanted top[] = {
        {&w->embed, "token embedding", s->vocab, s->hidden, false},
        {&w->head, "output head", s->vocab, s->hidden, false},
        {&w->norm, "final norm", 1, s->hidden, true},
    };
    const struct wanted copy = {&w->head_copy, "copy of the output head", s->vocab, s->hidden,
                                false};
    const struct wanted mtp[] = {
        {&w->mtp_fc, "MTP projection", s->hidden, 2 * s->hidden, false},
        {&w->mtp_enorm, "MTP embedding norm", 1, s->hidden, true},
        {&w->mtp_hnorm, "MTP hidden norm", 1, s->hidden, true},
        {&w->mtp_norm, "MTP norm", 1, s->hidden, true},
    };
    int rc = check_all(top, COUNT(top), -1, e);
    rc = rc < 0 || !w->head_copy.data ? rc : check_all(&copy, 1, -1, e);
    for (int i = 0; rc == 0 && i < s->layers; i++) {
        rc = check_layer(s, &w->layers[i], i, s->attention[i] != 0, e);
    }
    if (rc == 0 && s->mtp) {
        rc = check_all(mtp, COUNT(mtp), -1, e);
        rc = rc < 0 ? rc : check_layer(s, &w->mtp_layer, s->layers, true, e);
    }
    return rc;
}

void be_rope(const struct be_shape *s, uint8_t *axis, double *inv_freq)
{
    const int *n = s->rope_sections;
    for (int i = 0; i < BE_ROT_DIM / 2; i++) {
        int a = i % 3;
        axis[i] = (uint8_t)(a > 0 && i < 3 * n[a] ? a : 0);
        inv_freq[i] = pow(s->rope_base, -2.0 * i / BE_ROT_DIM);
    }
}

static int check_span(const struct be_span *sp, int i, int slots, int pages, struct err *e)
{
    if (sp->slot < 0 || sp->slot >= slots) {
        return err_set(e, QE_INTERNAL, "state slot %d is outside 0..%d", sp->slot, slots - 1);
    }
    if (sp->n < 1 || sp->pos < 0 || sp->pos > INT32_MAX - sp->n) {
        return err_set(e, QE_INTERNAL, "span %d: %d rows from position %d", i, sp->n, sp->pos);
    }
    for (int p = 0; p <= (sp->pos + sp->n - 1) / BE_PAGE; p++) {
        if (sp->pages[p] < 0 || sp->pages[p] >= pages) {
            return err_set(e, QE_INTERNAL, "span %d: cache page %d is outside 0..%d", i,
                           sp->pages[p], pages - 1);
        }
    }
    return 0;
}

int be_check_batch(const struct be_shape *s, const struct be_batch *t, int slots, int pages,
                   int max_rows, struct err *e)
{
    const int limit = t->mode == BE_PREFILL ? max_rows : BE_MAX_ROWS;
    if (t->n_rows < 1 || t->n_rows > limit || t->n_spans < 1 || t->n_spans > t->n_rows) {
        return err_set(e, QE_INTERNAL, "a batch of %d rows in %d spans; at most %d rows", t->n_rows,
                       t->n_spans, limit);
    }
    int rows = 0;
    for (int i = 0; i < t->n_spans; i++) {
        int rc = check_span(&t->spans[i], i, slots, pages, e);
        if (rc < 0) {
            return rc;
        }
        for (int j = 0; j < i; j++) {
            if (t->spans[j].slot == t->spans[i].slot) {
                return err_set(e, QE_INTERNAL, "slot %d is in two spans", t->spans[i].slot);
            }
        }
        if (t->spans[i].n > t->n_rows - rows) {
            return err_set(e, QE_INTERNAL, "the spans hold more than %d rows", t->n_rows);
        }
        rows += t->spans[i].n;
    }
    if (rows != t->n_rows) {
        return err_set(e, QE_INTERNAL, "the spans hold %d rows, not %d", rows, t->n_rows);
    }
    for (int i = 0; i < rows; i++) {
        if (t->tokens[i] < 0 || t->tokens[i] >= s->vocab) {
            return err_set(e, QE_INTERNAL, "token %d is outside 0..%d", t->tokens[i], s->vocab - 1);
        }
    }
    return 0;
}

int be_check_slot(int slots, int slot, struct err *e)
{
    if (slot < 0 || slot >= slots) {
        return err_set(e, QE_INTERNAL, "state slot %d is outside 0..%d", slot, slots - 1);
    }
    return 0;
}

int be_check_page(int pages, int page, struct err *e)
{
    if (page < 0 || page >= pages) {
        return err_set(e, QE_INTERNAL, "cache page %d is outside 0..%d", page, pages - 1);
    }
    return 0;
}

int be_check_rows(const int32_t *rows, int n, int have, int most, struct err *e)
{
    if (n < 0 || n > most) {
        return err_set(e, QE_INTERNAL, "%d output rows; at most %d", n, most);
    }
    for (int i = 0; i < n; i++) {
        if (rows[i] < 0 || rows[i] >= have) {
            return err_set(e, QE_INTERNAL, "output row %d of a batch of %d", rows[i], have);
        }
    }
    return 0;
}
