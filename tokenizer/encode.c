/* Text to ids: repair, added tokens, normalisation, pieces, merging. Pieces
 * repeat, so one call remembers where in its own output the ids of a piece
 * stand; nothing outlives the call, which keeps the tokenizer immutable. */
#include "config.h"
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/nfc.h"
#include "tokenizer/pretok.h"
#include "tokenizer/vocab.h"

/* Slots of the memory of pieces: one per 16 bytes of text within these. */
#define SEEN_MIN 64
#define SEEN_MAX 32768
/* A longer piece hardly repeats. */
#define SEEN_PIECE 64

/* A piece that was encoded before: where it stood, where its ids are. */
struct seen {
    uint64_t hash;
    size_t text, ids;
    uint32_t len, n_ids; /* len 0: empty */
};

struct run {
    const struct tokenizer *t;
    struct tok_ids *out;
    const char *text; /* of all sections */
    struct seen *seen;
    size_t seen_mask;
    struct pretok_run pretok;
    struct bpe_scratch scratch;
};

/* A part of the text between added tokens, or an added token (id >= 0). */
struct section {
    size_t off, len;
    int32_t id;
};
struct sections {
    struct section *v;
    size_t n, cap;
};

static void section_add(struct sections *s, size_t off, size_t len, int32_t id)
{
    if (id < 0 && len == 0) {
        return;
    }
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 8;
        s->v = mem_realloc(s->v, s->cap * sizeof *s->v);
    }
    s->v[s->n++] = (struct section){off, len, id};
}

static void cut_sections(const struct tokenizer *t, const char *p, size_t n, bool specials,
                         struct sections *s)
{
    size_t from = 0;
    size_t i = 0;
    while (specials && i < n) {
        size_t len = 0;
        int32_t id = vocab_match_added(t, p + i, n - i, &len);
        if (id < 0) {
            i++;
            continue;
        }
        section_add(s, from, i - from, -1);
        section_add(s, i, len, id);
        i += len;
        from = i;
    }
    section_add(s, from, n - from, -1);
}

/* Normalises each section by itself into out, and moves the sections there. */
static void normalise(struct sections *s, const char *p, struct buf *out)
{
    for (size_t i = 0; i < s->n; i++) {
        struct section *x = &s->v[i];
        size_t at = out->len;
        if (x->id < 0) {
            nfc_add(p + x->off, x->len, out);
        }
        x->off = at;
        x->len = out->len - at;
    }
}

static void encode_piece(struct run *r, const char *p, size_t n)
{
    if (n == 1) {
        tok_ids_add(r->out, r->t->byte_id[(unsigned char)*p]);
        return;
    }
    if (n > SEEN_PIECE) {
        bpe_piece(r->t, p, n, &r->scratch, r->out);
        return;
    }
    uint64_t h = hash64(p, n, 0);
    struct seen *s = &r->seen[(size_t)h & r->seen_mask];
    size_t at = r->out->n;
    if (s->hash == h && s->len == n && memcmp(r->text + s->text, p, n) == 0) {
        for (size_t i = 0; i < s->n_ids; i++) {
            tok_ids_add(r->out, r->out->v[s->ids + i]);
        }
        return;
    }
    bpe_piece(r->t, p, n, &r->scratch, r->out);
    *s = (struct seen){h, (size_t)(p - r->text), at, (uint32_t)n, (uint32_t)(r->out->n - at)};
}

static void encode_section(struct run *r, const char *p, size_t n)
{
    while (n > 0) {
        size_t k = pretok_next(&r->pretok, p, n);
        encode_piece(r, p, k);
        p += k;
        n -= k;
    }
}

void tokenizer_encode(const struct tokenizer *t, const char *p, size_t n, bool specials,
                      struct tok_ids *out)
{
    struct buf clean = BUF_INIT;
    struct buf normal = BUF_INIT;
    struct sections s = {NULL, 0, 0};
    if (!utf8_valid(p, n)) {
        utf8_sanitize(p, n, &clean);
        p = clean.data;
        n = clean.len;
    }
    cut_sections(t, p, n, specials && t->n_added > 0, &s);
    struct run r = {.t = t, .out = out, .text = p, .seen_mask = SEEN_MIN - 1};
    if (t->nfc && nfc_may_change(p, n)) {
        normalise(&s, p, &normal);
        r.text = normal.data;
    }
    while (r.seen_mask + 1 < n / 16 && r.seen_mask + 1 < SEEN_MAX) {
        r.seen_mask = 2 * r.seen_mask + 1;
    }
    r.seen = mem_array(r.seen_mask + 1, sizeof *r.seen);
    pretok_run_init(&r.pretok, t->pretok);
    for (size_t i = 0; i < s.n; i++) {
        if (s.v[i].id >= 0) {
            tok_ids_add(out, s.v[i].id);
        } else {
            encode_section(&r, r.text + s.v[i].off, s.v[i].len);
        }
    }
    pretok_run_fini(&r.pretok);
    bpe_scratch_free(&r.scratch);
    free(r.seen);
    free(s.v);
    buf_free(&normal);
    buf_free(&clean);
}
