/* The reader of version 2 (docs/container.md). Strict: blobs lie in the order
 * of the tables without gaps but zero padding, so that no two can overlap and
 * every byte of the file belongs to something that is checked. */
#include "config.h"
#include "format/container_priv.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "format/modelconf.h"

/* A blob whose digest is to be compared. */
struct check {
    const void *p;
    size_t n;
    const uint8_t *want;
    const char *kind, *name;
};

struct checks {
    struct check *list;
    size_t n;
    atomic_size_t next;
    atomic_size_t bad; /* the lowest index that does not match */
};

/* The next blob's bytes; *pos moves past it. */
struct walk {
    const struct container *c;
    uint64_t pos;
    bool check; /* padding and the digests of tensors */
    struct checks checks;
};

static int all_zero(const uint8_t *p, size_t n)
{
    uint8_t any = 0;
    for (size_t i = 0; i < n; i++) {
        any |= p[i];
    }
    return any == 0;
}

static int take_blob(struct walk *w, uint64_t off, uint64_t size, const char *name,
                     const uint8_t **p, struct err *e)
{
    const struct container *c = w->c;
    if (size == 0) {
        *p = c->p;
        return off == 0
                   ? 0
                   : err_set(e, QE_FORMAT, "%s: the empty blob of %s has an offset", c->what, name);
    }
    uint64_t want = (w->pos + CONTAINER_ALIGN - 1) / CONTAINER_ALIGN * CONTAINER_ALIGN;
    if (off != want || off > c->size || size > c->size - off) {
        return err_set(e, QE_FORMAT,
                       "%s: %s lies at %llu + %llu, where %llu was expected in a file of %zu bytes "
                       "(is it cut off?)",
                       c->what, name, (unsigned long long)off, (unsigned long long)size,
                       (unsigned long long)want, c->size);
    }
    if (w->check && !all_zero(c->p + w->pos, (size_t)(off - w->pos))) {
        return err_set(e, QE_FORMAT, "%s is damaged: the padding before %s is not zero", c->what,
                       name);
    }
    w->pos = off + size;
    *p = c->p + off;
    return 0;
}

static void *run_checks(void *ctx)
{
    struct checks *k = ctx;
    for (;;) {
        size_t i = atomic_fetch_add(&k->next, 1);
        if (i >= atomic_load(&k->bad) || i >= k->n) {
            return NULL;
        }
        uint8_t got[SHA256_BYTES];
        sha256_of(k->list[i].p, k->list[i].n, got);
        if (memcmp(got, k->list[i].want, sizeof got) != 0) {
            size_t bad = atomic_load(&k->bad);
            while (i < bad && !atomic_compare_exchange_weak(&k->bad, &bad, i)) {
            }
        }
    }
}

/* Every digest in the list, by a few threads; the message names the first that
 * does not match. */
static int check_digests(const struct container *c, struct checks *k, struct err *e)
{
    enum { MAX_HELPERS = 7 };
    pthread_t helpers[MAX_HELPERS];
    int n = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < k->n; i++) {
        bytes += k->list[i].n;
    }
    atomic_init(&k->next, 0);
    atomic_init(&k->bad, SIZE_MAX);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    while (bytes > CHECK_ALONE_BELOW && n < MAX_HELPERS && n + 1 < cpus &&
           pthread_create(&helpers[n], NULL, run_checks, k) == 0) {
        n++;
    }
    run_checks(k);
    while (n > 0) {
        pthread_join(helpers[--n], NULL);
    }
    size_t bad = atomic_load(&k->bad);
    if (bad == SIZE_MAX) {
        return 0;
    }
    return err_set(e, QE_FORMAT,
                   "%s is damaged: the SHA-256 of %s %s does not match (fetch or convert it again)",
                   c->what, k->list[bad].kind, k->list[bad].name);
}

static void add_check(struct walk *w, const void *p, size_t n, const uint8_t *want,
                      const char *kind, const char *name)
{
    w->checks.list[w->checks.n++] = (struct check){p, n, want, kind, name};
}

static int read_doc(struct container *c, struct rd *r, struct container_doc *d, struct walk *w,
                    struct err *e)
{
    d->name = rd_name(r, (size_t)rd_uint(r, 2), c);
    uint64_t off = rd_uint(r, 8);
    uint64_t size = rd_uint(r, 8);
    d->digest = rd_bytes(r, SHA256_BYTES);
    if (r->bad || !d->name[0]) {
        return err_set(e, QE_FORMAT, "%s: the table of documents is damaged", c->what);
    }
    const uint8_t *p = NULL;
    int rc = take_blob(w, off, size, d->name, &p, e);
    if (rc < 0) {
        return rc;
    }
    d->data = (const char *)p;
    d->size = (size_t)size;
    add_check(w, p, d->size, d->digest, "document", d->name);
    return 0;
}

static int read_tensor(struct container *c, struct rd *r, struct tensor *t, struct origin *o,
                       struct walk *w, struct err *e)
{
    t->name = rd_name(r, (size_t)rd_uint(r, 2), c);
    o->name = rd_name(r, (size_t)rd_uint(r, 2), c);
    o->type = rd_name(r, (size_t)rd_uint(r, 1), c);
    uint64_t dtype = rd_uint(r, 1);
    uint64_t n_dims = rd_uint(r, 1);
    if (r->bad || !t->name[0] || n_dims < 1 || n_dims > TENSOR_MAX_DIMS) {
        return err_set(e, QE_FORMAT, "%s: the table of tensors is damaged", c->what);
    }
    if (!dtype_name((enum dtype)dtype)) {
        return err_set(e, QE_UNSUPPORTED, "%s: tensor %s has the unknown type %u", c->what, t->name,
                       (unsigned)dtype);
    }
    t->dtype = (enum dtype)dtype;
    t->n_dims = (int)n_dims;
    for (int i = 0; i < t->n_dims; i++) {
        t->shape[i] = rd_uint(r, 8);
    }
    uint64_t off = rd_uint(r, 8);
    uint64_t size = rd_uint(r, 8);
    o->data_digest = rd_bytes(r, SHA256_BYTES);
    uint64_t scale_off = rd_uint(r, 8);
    uint64_t scale_size = rd_uint(r, 8);
    o->scale_digest = rd_bytes(r, SHA256_BYTES);
    if (r->bad) {
        return err_set(e, QE_FORMAT, "%s: the table of tensors is damaged", c->what);
    }
    t->size = (size_t)size;
    t->scale_size = (size_t)scale_size;
    int rc = container_check_tensor(c, t, e);
    const uint8_t *p = NULL;
    if (rc == 0) {
        rc = take_blob(w, off, size, t->name, &p, e);
        t->data = p;
    }
    if (rc == 0) {
        rc = take_blob(w, scale_off, scale_size, t->name, &p, e);
        t->scales = scale_size ? p : NULL;
    }
    if (!scale_size) {
        o->scale_digest = NULL;
    }
    if (rc == 0 && w->check) {
        add_check(w, t->data, t->size, o->data_digest, "tensor", t->name);
        if (scale_size) {
            add_check(w, t->scales, t->scale_size, o->scale_digest, "the scales of tensor",
                      t->name);
        }
    }
    return rc;
}

static void model_digest(struct container *c)
{
    struct sha256 *h = sha256_create();
    char *config = json_dumps(c->config, JSON_SORT_KEYS | JSON_COMPACT);
    sha256_add(h, config, strlen(config));
    free(config);
    for (size_t i = 0; i < c->n_tensors; i++) {
        const struct tensor *t = &c->tensors[c->by_name[i]];
        const struct origin *o = &c->origins[c->by_name[i]];
        uint8_t kind[2] = {(uint8_t)t->dtype, (uint8_t)t->n_dims};
        sha256_add(h, t->name, strlen(t->name) + 1);
        sha256_add(h, kind, sizeof kind);
        for (int d = 0; d < t->n_dims; d++) {
            uint8_t le[8];
            for (int b = 0; b < 8; b++) {
                le[b] = (uint8_t)(t->shape[d] >> (8 * b));
            }
            sha256_add(h, le, sizeof le);
        }
        sha256_add(h, o->data_digest, SHA256_BYTES);
        if (o->scale_digest) {
            sha256_add(h, o->scale_digest, SHA256_BYTES);
        }
    }
    uint8_t d[SHA256_BYTES];
    sha256_done(h, d);
    sha256_free(h);
    hex_of(d, sizeof d, c->digest);
}

struct head {
    uint64_t n_tensors, n_docs, meta_len, table_len, data_start, file_size;
};

/* The fixed header, and the digest over everything before the data. */
static int read_head(struct container *c, struct head *h, struct err *e)
{
    struct rd r = {c->p, c->size, false};
    rd_bytes(&r, 8);
    h->n_tensors = rd_uint(&r, 4);
    h->n_docs = rd_uint(&r, 4);
    h->meta_len = rd_uint(&r, 8);
    h->table_len = rd_uint(&r, 8);
    h->data_start = rd_uint(&r, 8);
    h->file_size = rd_uint(&r, 8);
    rd_bytes(&r, 16);
    const uint8_t *want = rd_bytes(&r, SHA256_BYTES);
    if (r.bad) {
        return err_set(e, QE_FORMAT, "%s is cut off inside its header (%zu bytes)", c->what,
                       c->size);
    }
    if (h->n_tensors > MAX_TENSORS || h->n_docs > MAX_DOCS || h->meta_len > MAX_META ||
        h->table_len > MAX_TABLE) {
        return err_set(e, QE_FORMAT,
                       "%s: %llu tensors, %llu documents, a table of %llu and metadata of %llu "
                       "bytes are beyond the limits",
                       c->what, (unsigned long long)h->n_tensors, (unsigned long long)h->n_docs,
                       (unsigned long long)h->table_len, (unsigned long long)h->meta_len);
    }
    uint64_t end = V2_HEADER + h->table_len + h->meta_len;
    if (h->data_start != (end + CONTAINER_ALIGN - 1) / CONTAINER_ALIGN * CONTAINER_ALIGN) {
        return err_set(e, QE_FORMAT, "%s: the data section begins at %llu, not behind the metadata",
                       c->what, (unsigned long long)h->data_start);
    }
    if (h->file_size != c->size || h->data_start > c->size) {
        return err_set(e, QE_FORMAT, "%s has %zu bytes, its header says %llu (is it cut off?)",
                       c->what, c->size, (unsigned long long)h->file_size);
    }
    struct sha256 *s = sha256_create();
    uint8_t got[SHA256_BYTES];
    sha256_add(s, c->p, V2_DIGEST_AT);
    sha256_add(s, c->p + V2_HEADER, (size_t)h->data_start - V2_HEADER);
    sha256_done(s, got);
    sha256_free(s);
    if (memcmp(got, want, sizeof got) != 0) {
        return err_set(e, QE_FORMAT,
                       "%s is damaged: the SHA-256 of its header and metadata does not match "
                       "(fetch or convert it again)",
                       c->what);
    }
    return 0;
}

int container_read_v2(struct container *c, bool verify, struct err *e)
{
    struct head h;
    int rc = read_head(c, &h, e);
    if (rc < 0) {
        return rc;
    }
    const uint8_t *meta = c->p + V2_HEADER + h.table_len;
    rc = json_parse((const char *)meta, (size_t)h.meta_len, "its metadata", &c->meta, e);
    if (rc < 0) {
        return err_wrap(e, rc, "%s", c->what);
    }
    c->config = json_object_get(c->meta, "config");
    rc = modelconf_check(c->config, c->what, e);
    if (rc < 0) {
        return rc;
    }
    c->n_tensors = (size_t)h.n_tensors;
    c->n_docs = (size_t)h.n_docs;
    c->tensors = mem_array(c->n_tensors + 1, sizeof *c->tensors);
    c->origins = mem_array(c->n_tensors + 1, sizeof *c->origins);
    c->docs = mem_array(c->n_docs + 1, sizeof *c->docs);
    c->pool = mem_zalloc((size_t)h.table_len + 3 * c->n_tensors + c->n_docs + 1);
    struct rd r = {c->p + V2_HEADER, (size_t)h.table_len, false};
    struct walk w = {.c = c, .pos = h.data_start, .check = verify || c->size <= CHECK_ALL_BELOW};
    w.checks.list = mem_array(c->n_docs + 2 * c->n_tensors + 1, sizeof *w.checks.list);
    for (size_t i = 0; rc == 0 && i < c->n_docs; i++) {
        rc = read_doc(c, &r, &c->docs[i], &w, e);
    }
    for (size_t i = 0; rc == 0 && i < c->n_tensors; i++) {
        rc = read_tensor(c, &r, &c->tensors[i], &c->origins[i], &w, e);
    }
    if (rc == 0 && (r.n > 0 || w.pos != c->size)) {
        rc = err_set(e, QE_FORMAT, "%s: bytes behind the last tensor that belong to nothing",
                     c->what);
    }
    if (rc == 0) {
        rc = check_digests(c, &w.checks, e);
    }
    free(w.checks.list);
    if (rc == 0) {
        rc = container_index(c, e);
    }
    if (rc == 0) {
        model_digest(c);
    }
    return rc;
}
