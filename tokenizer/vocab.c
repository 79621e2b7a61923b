/* The tables of a tokenizer. Entries lie in one block of bytes; two
 * open-addressing tables find a base entry by its bytes and a merge by its pair.
 * Everything foreign is checked here, whichever loader it came through. */
#include "config.h"
#include "tokenizer/vocab.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

/* Code points of the byte alphabet end before this. */
#define ALPHABET_END 0x144

/* The byte behind a character of the byte alphabet, or -1. Printable Latin-1
 * stands for itself; the other 68 bytes, ascending, follow from U+0100. */
static int alphabet_byte(uint32_t cp)
{
    if ((cp >= 33 && cp <= 126) || (cp >= 161 && cp <= 172) || (cp >= 174 && cp <= 255)) {
        return (int)cp;
    }
    if (cp < 0x100 || cp >= ALPHABET_END) {
        return -1;
    }
    uint32_t k = cp - 0x100;
    if (k < 33) {
        return (int)k;
    }
    if (k < 67) {
        return (int)(k - 33 + 127);
    }
    return 173;
}

const char *vocab_quote(const char *p, size_t n, char out[QUOTED_MAX])
{
    size_t o = 0;
    size_t i = 0;
    while (i < n) {
        uint32_t cp = 0;
        int k = utf8_decode(p + i, n - i, &cp);
        if (o > QUOTED_MAX - 10) {
            memcpy(out + o, "...", 3);
            o += 3;
            break;
        }
        if (k > 0 && utf8_cells(cp) > 0) {
            memcpy(out + o, p + i, (size_t)k);
            o += (size_t)k;
        } else {
            out[o++] = '?';
        }
        i += k > 0 ? (size_t)k : 1;
    }
    out[o] = 0;
    return out;
}

static void reserve_bytes(struct tokenizer *t, size_t extra)
{
    if (t->bytes_cap - t->bytes_n >= extra) {
        return;
    }
    size_t cap = t->bytes_cap ? t->bytes_cap : 4096;
    while (cap - t->bytes_n < extra) {
        cap *= 2;
    }
    t->bytes = mem_realloc(t->bytes, cap);
    t->bytes_cap = cap;
}

/* Makes entry[id] exist; checks the range. */
static int claim_id(struct tokenizer *t, int64_t id, struct err *e)
{
    if (id < 0 || id >= VOCAB_MAX_IDS) {
        return err_set(e, QE_FORMAT, "the id %" PRId64 " is outside 0 to %d", id,
                       VOCAB_MAX_IDS - 1);
    }
    size_t need = (size_t)id + 1;
    if (need > t->entry_cap) {
        size_t cap = t->entry_cap ? t->entry_cap : 1024;
        while (cap < need) {
            cap *= 2;
        }
        t->entry = mem_realloc(t->entry, cap * sizeof *t->entry);
        memset(t->entry + t->entry_cap, 0, (cap - t->entry_cap) * sizeof *t->entry);
        t->entry_cap = cap;
    }
    if ((int32_t)need > t->n_ids) {
        t->n_ids = (int32_t)need;
    }
    return 0;
}

/* Appends the bytes that text in the byte alphabet stands for to t->bytes,
 * without keeping them; false when a character is not in the alphabet. */
static bool decode_alphabet(struct tokenizer *t, const char *p, size_t n, size_t *len)
{
    reserve_bytes(t, n + 1);
    char *out = t->bytes + t->bytes_n;
    size_t o = 0;
    size_t i = 0;
    while (i < n) {
        uint32_t cp = (unsigned char)p[i];
        int k = cp < 0x80 ? 1 : utf8_decode(p + i, n - i, &cp);
        int b = k > 0 ? alphabet_byte(cp) : -1;
        if (b < 0) {
            return false;
        }
        out[o++] = (char)b;
        i += (size_t)k;
    }
    *len = o;
    return true;
}

int vocab_add_base(struct tokenizer *t, int64_t id, const char *p, size_t n, struct err *e)
{
    char q[QUOTED_MAX];
    if (n == 0) {
        return err_set(e, QE_FORMAT, "the vocabulary entry %" PRId64 " is empty", id);
    }
    int rc = claim_id(t, id, e);
    if (rc < 0) {
        return rc;
    }
    struct vocab_entry *v = &t->entry[id];
    if (v->kind != VOCAB_NONE) {
        return err_set(e, QE_FORMAT, "the id %" PRId64 " is given twice, the second time to \"%s\"",
                       id, vocab_quote(p, n, q));
    }
    size_t len = n;
    v->kind = VOCAB_BASE;
    if (!decode_alphabet(t, p, n, &len)) {
        if (!utf8_valid(p, n)) {
            return err_set(e, QE_FORMAT, "the vocabulary entry %" PRId64 " is not UTF-8", id);
        }
        memcpy(t->bytes + t->bytes_n, p, n);
        v->kind = VOCAB_RAW;
    }
    v->off = (uint32_t)t->bytes_n;
    v->len = (uint32_t)len;
    t->bytes_n += len;
    return 0;
}

int vocab_add_added(struct tokenizer *t, int64_t id, const char *p, size_t n, bool special,
                    struct err *e)
{
    char q[QUOTED_MAX];
    if (n == 0 || !utf8_valid(p, n)) {
        return err_set(e, QE_FORMAT, "the added token %" PRId64 " is %s", id,
                       n == 0 ? "empty" : "not UTF-8");
    }
    int32_t same = tokenizer_added_id(t, p, n);
    if (same >= 0 && same == id) {
        return 0;
    }
    if (same >= 0) {
        return err_set(e, QE_FORMAT,
                       "the added token \"%s\" is given twice, as %" PRId32 " and %" PRId64,
                       vocab_quote(p, n, q), same, id);
    }
    if (t->n_added >= VOCAB_MAX_ADDED) {
        return err_set(e, QE_FORMAT, "there are more than %d added tokens", VOCAB_MAX_ADDED);
    }
    int rc = claim_id(t, id, e);
    if (rc < 0) {
        return rc;
    }
    struct vocab_entry *v = &t->entry[id];
    if (v->kind == VOCAB_ADDED || v->kind == VOCAB_SPECIAL ||
        (v->kind != VOCAB_NONE && (v->len != n || memcmp(t->bytes + v->off, p, n) != 0))) {
        return err_set(e, QE_FORMAT,
                       "the added token \"%s\" has the id %" PRId64 ", which is another token's",
                       vocab_quote(p, n, q), id);
    }
    if (v->kind == VOCAB_NONE) {
        reserve_bytes(t, n);
        memcpy(t->bytes + t->bytes_n, p, n);
        v->off = (uint32_t)t->bytes_n;
        v->len = (uint32_t)n;
        t->bytes_n += n;
    }
    v->kind = special ? VOCAB_SPECIAL : VOCAB_ADDED;
    if (!t->added) {
        t->added = mem_array(VOCAB_MAX_ADDED, sizeof *t->added);
    }
    t->added[t->n_added++] = (int32_t)id;
    return 0;
}

/* Slot of the base entry with these bytes, or the empty slot where it belongs. */
static size_t find_slot(const struct tokenizer *t, const char *p, size_t n)
{
    size_t i = (size_t)hash64(p, n, 0) & t->slot_mask;
    while (t->slot[i] >= 0) {
        const struct vocab_entry *v = &t->entry[t->slot[i]];
        if (v->len == n && memcmp(t->bytes + v->off, p, n) == 0) {
            break;
        }
        i = (i + 1) & t->slot_mask;
    }
    return i;
}

static size_t table_size(size_t n)
{
    size_t size = 16;
    while (size < 2 * n) {
        size *= 2;
    }
    return size;
}

int vocab_index(struct tokenizer *t, struct err *e)
{
    size_t size = table_size((size_t)t->n_ids);
    t->slot = mem_array(size, sizeof *t->slot);
    memset(t->slot, 0xFF, size * sizeof *t->slot);
    t->slot_mask = size - 1;
    for (int32_t id = 0; id < t->n_ids; id++) {
        const struct vocab_entry *v = &t->entry[id];
        if (v->kind != VOCAB_BASE) {
            continue;
        }
        size_t i = find_slot(t, t->bytes + v->off, v->len);
        if (t->slot[i] >= 0) {
            char q[QUOTED_MAX];
            return err_set(e, QE_FORMAT,
                           "the vocabulary has \"%s\" twice, as %" PRId32 " and %" PRId32,
                           vocab_quote(t->bytes + v->off, v->len, q), t->slot[i], id);
        }
        t->slot[i] = id;
    }
    for (int b = 0; b < 256; b++) {
        char c = (char)b;
        t->byte_id[b] = t->slot[find_slot(t, &c, 1)];
        if (t->byte_id[b] < 0) {
            return err_set(e, QE_FORMAT, "the vocabulary has no entry for the byte 0x%02X", b);
        }
    }
    return 0;
}

int vocab_add_merge(struct tokenizer *t, const char *left, size_t left_n, const char *right,
                    size_t right_n, struct err *e)
{
    char q[QUOTED_MAX];
    char q2[QUOTED_MAX];
    size_t rank = t->n_merges;
    if (rank >= VOCAB_MAX_IDS) {
        return err_set(e, QE_FORMAT, "there are more than %d merges", VOCAB_MAX_IDS);
    }
    /* Both sides one behind the other in the free room: the product as well. */
    size_t start = t->bytes_n;
    size_t a = 0;
    size_t b = 0;
    bool ok = decode_alphabet(t, left, left_n, &a);
    t->bytes_n = start + a;
    ok = ok && decode_alphabet(t, right, right_n, &b);
    t->bytes_n = start;
    struct vocab_merge m = {-1, -1, -1};
    if (ok && a > 0 && b > 0) {
        m.left = t->slot[find_slot(t, t->bytes + start, a)];
        m.right = t->slot[find_slot(t, t->bytes + start + a, b)];
        m.merged = t->slot[find_slot(t, t->bytes + start, a + b)];
    }
    if (m.left < 0 || m.right < 0 || m.merged < 0) {
        return err_set(e, QE_FORMAT,
                       "merge %zu joins \"%s\" and \"%s\", but the vocabulary lacks %s", rank,
                       vocab_quote(left, left_n, q), vocab_quote(right, right_n, q2),
                       m.left < 0 || m.right < 0 ? "one of them" : "the result");
    }
    if (t->n_merges == t->merge_cap) {
        t->merge_cap = t->merge_cap ? 2 * t->merge_cap : 4096;
        t->merge = mem_realloc(t->merge, t->merge_cap * sizeof *t->merge);
    }
    t->merge[t->n_merges++] = m;
    return 0;
}

static int build_pairs(struct tokenizer *t, struct err *e)
{
    size_t size = table_size(t->n_merges);
    t->pair = mem_array(size, sizeof *t->pair);
    t->pair_mask = size - 1;
    for (size_t i = 0; i < size; i++) {
        t->pair[i].rank = VOCAB_NO_RANK;
    }
    for (size_t r = 0; r < t->n_merges; r++) {
        const struct vocab_merge *m = &t->merge[r];
        uint64_t key = (uint64_t)(uint32_t)m->left << 32 | (uint32_t)m->right;
        size_t i = (size_t)(key * 0x9E3779B97F4A7C15ULL >> 32) & t->pair_mask;
        while (t->pair[i].rank != VOCAB_NO_RANK) {
            if (t->pair[i].left == m->left && t->pair[i].right == m->right) {
                return err_set(e, QE_FORMAT, "merge %zu repeats merge %" PRIu32, r,
                               t->pair[i].rank);
            }
            i = (i + 1) & t->pair_mask;
        }
        t->pair[i] = (struct vocab_pair){m->left, m->right, (uint32_t)r};
    }
    return 0;
}

/* Order of added[]: first byte, then longest first. */
static bool added_before(const struct tokenizer *t, int32_t a, int32_t b)
{
    const struct vocab_entry *x = &t->entry[a];
    const struct vocab_entry *y = &t->entry[b];
    unsigned char cx = (unsigned char)t->bytes[x->off];
    unsigned char cy = (unsigned char)t->bytes[y->off];
    return cx != cy ? cx < cy : x->len > y->len;
}

static void sort_added(struct tokenizer *t)
{
    for (size_t i = 1; i < t->n_added; i++) {
        int32_t id = t->added[i];
        size_t k = i;
        for (; k > 0 && added_before(t, id, t->added[k - 1]); k--) {
            t->added[k] = t->added[k - 1];
        }
        t->added[k] = id;
    }
    size_t i = 0;
    for (int b = 0; b <= 256; b++) {
        while (i < t->n_added && (unsigned char)t->bytes[t->entry[t->added[i]].off] < b) {
            i++;
        }
        t->added_at[b] = (uint16_t)i;
    }
}

int vocab_finish(struct tokenizer *t, struct err *e)
{
    sort_added(t);
    return build_pairs(t, e);
}

int32_t vocab_match_added(const struct tokenizer *t, const char *p, size_t n, size_t *len)
{
    unsigned char c = (unsigned char)p[0];
    for (size_t i = t->added_at[c]; i < t->added_at[c + 1]; i++) {
        const struct vocab_entry *v = &t->entry[t->added[i]];
        if (v->len <= n && memcmp(t->bytes + v->off, p, v->len) == 0) {
            *len = v->len;
            return t->added[i];
        }
    }
    return -1;
}
