/* A sequence's whole state as one block of bytes: a header that says for which
 * model and geometry it holds, the backend's recurrent state, the pages. Exact:
 * what is put back computes on with the same bits. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "engine/bits.h"
#include "engine/impl.h"

#define STATE_MAGIC   0x54535351U /* "QSST" */
#define STATE_VERSION 3U

struct header {
    uint32_t magic, version;
    uint64_t model; /* hash of digest, geometry, cache format, backend */
    uint64_t state_size, page_size;
    int32_t len, pages;
    int32_t pure, zero;
};
_Static_assert(sizeof(struct header) == STATE_HEADER, "the header's size");

static uint64_t model_hash(const struct engine *g)
{
    const struct be_shape *s = &g->m.shape;
    const int32_t v[] = {s->hidden,   s->layers,  s->ffn,     s->vocab,          s->q_heads,
                         s->kv_heads, s->k_heads, s->v_heads, (int)g->kv_format, g->mtp};
    uint64_t h = hash64(g->digest, sizeof g->digest, STATE_VERSION);
    h = hash64(s->attention, (size_t)s->layers, h);
    h = hash64(g->ops->name, strlen(g->ops->name), h);
    return hash64(v, sizeof v, h);
}

void state_header(const struct engine *g, int len, bool pure, void *out)
{
    const struct header h = {.magic = STATE_MAGIC,
                             .version = STATE_VERSION,
                             .model = model_hash(g),
                             .state_size = g->ops->state_size(g->b),
                             .page_size = g->ops->page_size(g->b),
                             .len = len,
                             .pages = kv_pages_for(len),
                             .pure = pure};
    memcpy(out, &h, sizeof h);
}

size_t state_blob_size(const struct engine *g, int len)
{
    return sizeof(struct header) + g->ops->state_size(g->b) +
           (size_t)kv_pages_for(len) * g->ops->page_size(g->b);
}

size_t engine_seq_state_size(const struct engine *g, int seq)
{
    return state_blob_size(g, engine_seq_len(g, seq));
}

/* The device without what does not change a bit: its threads. */
static size_t path_len(const char *device)
{
    const char *comma = strrchr(device, ',');
    return comma && strstr(comma, "thread") ? (size_t)(comma - device) : strlen(device);
}

void engine_state_compat(const struct engine *g, uint8_t compat[SHA256_BYTES], char *label,
                         size_t label_size)
{
    const char *device = g->ops->describe(g->b);
    const int n = (int)path_len(device);
    /* what kernels compute, to any bit: their sources, and what compiled them */
    static const char bits[] = ENGINE_BITS " " __VERSION__;
    const uint64_t figures[] = {STATE_VERSION, model_hash(g), g->ops->state_size(g->b),
                                g->ops->page_size(g->b)};
    struct sha256 *h = sha256_create();
    sha256_add(h, bits, sizeof bits);
    sha256_add(h, figures, sizeof figures);
    sha256_add(h, g->digest, strlen(g->digest));
    sha256_add(h, device, (size_t)n);
    sha256_done(h, compat);
    sha256_free(h);
    snprintf(label, label_size, "%s%s%s on %s %.*s, cache %zu bytes a token, kernels %.8s", g->name,
             g->tier[0] ? " " : "", g->tier, g->ops->name, n, device,
             g->ops->page_size(g->b) / BE_PAGE, ENGINE_BITS);
}

int engine_seq_export(struct engine *g, int seq, void *out, struct err *e)
{
    struct seq *s = NULL;
    int rc = engine_seq_whole(g, seq, &s, e);
    if (rc < 0) {
        return rc;
    }
    char *p = out;
    state_header(g, s->len, s->pure, p);
    rc = g->ops->state_export(g->b, seq, p + STATE_HEADER, e);
    p += state_blob_size(g, 0);
    for (int i = 0; i < kv_pages_for(s->len) && rc == 0; i++) {
        rc = g->ops->page_export(g->b, s->kv.pages[i], s->len - i * BE_PAGE, p, e);
        p += g->ops->page_size(g->b);
    }
    return rc;
}

static int check(const struct engine *g, const void *in, size_t n, struct header *h, struct err *e)
{
    if (n < sizeof *h) {
        return err_set(e, QE_FORMAT, "the saved state is cut off (%zu bytes)", n);
    }
    memcpy(h, in, sizeof *h);
    if (h->magic != STATE_MAGIC || h->version != STATE_VERSION) {
        return err_set(e, QE_FORMAT, "this is not a saved state of this version");
    }
    if (h->model != model_hash(g) || h->state_size != g->ops->state_size(g->b) ||
        h->page_size != g->ops->page_size(g->b)) {
        return err_set(e, QE_UNSUPPORTED,
                       "the saved state belongs to another model, backend or cache format");
    }
    if (h->len < 0 || h->len > g->ctx) {
        return err_set(e, QE_NOMEM, "the saved state has %d tokens; the window holds %d", h->len,
                       g->ctx);
    }
    if (h->pages != kv_pages_for(h->len) || (h->pure & ~1) || h->zero ||
        n != state_blob_size(g, h->len)) {
        return err_set(e, QE_FORMAT, "the saved state has %zu bytes instead of %zu", n,
                       state_blob_size(g, h->len));
    }
    return 0;
}

int state_check_header(const struct engine *g, const void *in, size_t n, int *len, bool *pure,
                       struct err *e)
{
    struct header h = {0};
    const int rc = check(g, in, n, &h, e);
    if (rc == 0) {
        *len = h.len;
        *pure = h.pure;
    }
    return rc;
}

int engine_seq_import(struct engine *g, int seq, const void *in, size_t n, struct err *e)
{
    struct header h = {0};
    struct seq *s = NULL;
    int rc = engine_seq_of(g, seq, &s, e);
    rc = rc < 0 ? rc : check(g, in, n, &h, e);
    if (rc < 0) {
        return rc;
    }
    const char *p = in;
    engine_seq_reset(g, seq);
    rc = kv_writable(&g->pool, &s->kv, 0, h.len, e);
    rc = rc < 0 ? rc : g->ops->state_import(g->b, seq, p + sizeof h, e);
    p += state_blob_size(g, 0);
    for (int i = 0; i < h.pages && rc == 0; i++, p += h.page_size) {
        rc = g->ops->page_import(g->b, s->kv.pages[i], p, e);
    }
    if (rc < 0) {
        engine_seq_reset(g, seq);
        return rc;
    }
    s->len = h.len;
    s->pure = h.pure;
    return 0;
}

/* ---- made-up sequences ---- */

int engine_seq_fill(struct engine *g, int seq, int len, struct err *e)
{
    struct seq *s = NULL;
    int rc = engine_seq_of(g, seq, &s, e);
    if (rc == 0 && (len < 0 || len > g->ctx)) {
        rc = err_set(e, QE_NOMEM, "%d tokens do not fit the context window of %d", len, g->ctx);
    }
    if (rc < 0) {
        return rc;
    }
    engine_seq_reset(g, seq);
    if (len == 0) {
        return 0;
    }
    const size_t state = g->ops->state_size(g->b);
    float *made = mem_alloc(state);
    for (size_t i = 0; i < state / sizeof *made; i++) {
        made[i] = (float)((i * 2654435761U >> 8) % 2001) * 1e-4F - 0.1F;
    }
    rc = kv_writable(&g->pool, &s->kv, 0, len, e);
    rc = rc < 0 ? rc : g->ops->state_import(g->b, seq, made, e);
    rc = rc < 0 ? rc : g->ops->page_fill(g->b, s->kv.pages[0], e);
    for (int i = 1; i < kv_pages_for(len) && rc == 0; i++) {
        rc = g->ops->page_copy(g->b, s->kv.pages[i], s->kv.pages[0], e);
    }
    free(made);
    if (rc < 0) {
        engine_seq_reset(g, seq);
        return rc;
    }
    s->len = len;
    s->pure = false;
    return 0;
}

int engine_read_gdn(struct engine *g, int seq, int layer, float *conv, float *s, struct err *e)
{
    struct seq *q = NULL;
    int rc = engine_seq_of(g, seq, &q, e);
    if (rc == 0 && (layer < 0 || layer >= g->m.shape.layers || g->m.attention[layer])) {
        rc = err_set(e, QE_USAGE, "layer %d is not a DeltaNet layer", layer);
    }
    return rc == 0 ? g->ops->read_gdn(g->b, layer, seq, conv, s, e) : rc;
}

int engine_read_kv(struct engine *g, int seq, int layer, float *k, float *v, struct err *e)
{
    struct seq *q = NULL;
    int rc = engine_seq_of(g, seq, &q, e);
    if (rc == 0 && (layer < 0 || layer >= g->m.shape.layers || !g->m.attention[layer])) {
        rc = err_set(e, QE_USAGE, "layer %d is not an attention layer", layer);
    }
    return rc == 0 ? g->ops->read_kv(g->b, layer, q->kv.pages, q->len, k, v, e) : rc;
}
