/* Byte-pair merging of one piece. Short pieces: an array that shrinks. Long
 * ones: symbols in a doubly linked list, candidate merges in a binary heap whose
 * entries are checked when they come up instead of being removed. */
#include "config.h"
#include "tokenizer/bpe.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define END UINT32_MAX

struct bpe_symbol {
    int32_t id; /* -1: merged into its left neighbour */
    uint32_t prev, next;
};

void bpe_scratch_free(struct bpe_scratch *s)
{
    free(s->sym);
    free(s->heap);
}

void bpe_short(const struct tokenizer *t, const char *p, size_t n, struct tok_ids *out)
{
    int32_t id[BPE_SHORT];
    uint32_t rank[BPE_SHORT]; /* of (id[i], id[i + 1]) */
    assert(n > 0 && n <= BPE_SHORT);
    for (size_t i = 0; i < n; i++) {
        id[i] = t->byte_id[(unsigned char)p[i]];
    }
    for (size_t i = 0; i + 1 < n; i++) {
        rank[i] = vocab_rank(t, id[i], id[i + 1]);
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++) {
            if (rank[i] < rank[best]) {
                best = i;
            }
        }
        if (rank[best] == VOCAB_NO_RANK) {
            break;
        }
        id[best] = t->merge[rank[best]].merged;
        n--;
        memmove(id + best + 1, id + best + 2, (n - best - 1) * sizeof *id);
        memmove(rank + best, rank + best + 1, (n - best - 1) * sizeof *rank);
        if (best > 0) {
            rank[best - 1] = vocab_rank(t, id[best - 1], id[best]);
        }
        if (best + 1 < n) {
            rank[best] = vocab_rank(t, id[best], id[best + 1]);
        }
    }
    for (size_t i = 0; i < n; i++) {
        tok_ids_add(out, id[i]);
    }
}

/* Heap entries order by rank, then by place: rank in the upper half. */
static void sift_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t x = h[i];
    for (;;) {
        size_t c = 2 * i + 1;
        if (c >= n) {
            break;
        }
        if (c + 1 < n && h[c + 1] < h[c]) {
            c++;
        }
        if (h[c] >= x) {
            break;
        }
        h[i] = h[c];
        i = c;
    }
    h[i] = x;
}

static void push(struct bpe_scratch *s, uint64_t x)
{
    size_t i = s->heap_n++;
    while (i > 0 && s->heap[(i - 1) / 2] > x) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = x;
}

static uint64_t pop(struct bpe_scratch *s)
{
    uint64_t top = s->heap[0];
    s->heap[0] = s->heap[--s->heap_n];
    if (s->heap_n > 0) {
        sift_down(s->heap, s->heap_n, 0);
    }
    return top;
}

/* Candidate (sym[at], its right neighbour), if the two merge. */
static bool candidate(const struct tokenizer *t, const struct bpe_scratch *s, uint32_t at,
                      uint64_t *out)
{
    uint32_t next = s->sym[at].next;
    if (next == END) {
        return false;
    }
    uint32_t rank = vocab_rank(t, s->sym[at].id, s->sym[next].id);
    *out = (uint64_t)rank << 32 | at;
    return rank != VOCAB_NO_RANK;
}

static void merge_all(const struct tokenizer *t, struct bpe_scratch *s)
{
    while (s->heap_n > 0) {
        uint64_t top = pop(s);
        uint32_t at = (uint32_t)top;
        const struct vocab_merge *m = &t->merge[top >> 32];
        struct bpe_symbol *a = &s->sym[at];
        if (a->id != m->left || a->next == END || s->sym[a->next].id != m->right) {
            continue; /* a neighbour has merged meanwhile */
        }
        struct bpe_symbol *b = &s->sym[a->next];
        a->id = m->merged;
        b->id = -1;
        a->next = b->next;
        if (a->next != END) {
            s->sym[a->next].prev = at;
        }
        /* One entry leaves per merge and two come: the room is 2 n. */
        uint64_t x = 0;
        if (candidate(t, s, at, &x)) {
            push(s, x);
        }
        if (a->prev != END && candidate(t, s, a->prev, &x)) {
            push(s, x);
        }
    }
}

void bpe_long(const struct tokenizer *t, const char *p, size_t n, struct bpe_scratch *s,
              struct tok_ids *out)
{
    assert(n > 0 && n < UINT32_MAX);
    if (s->sym_cap < n) {
        free(s->sym);
        free(s->heap);
        s->sym_cap = n + n / 2;
        s->heap_cap = 2 * s->sym_cap;
        s->sym = mem_array(s->sym_cap, sizeof *s->sym);
        s->heap = mem_array(s->heap_cap, sizeof *s->heap);
    }
    for (size_t i = 0; i < n; i++) {
        s->sym[i] = (struct bpe_symbol){t->byte_id[(unsigned char)p[i]], (uint32_t)i - 1,
                                        i + 1 < n ? (uint32_t)i + 1 : END};
    }
    s->sym[0].prev = END;
    s->heap_n = 0;
    for (size_t i = 0; i < n; i++) {
        if (candidate(t, s, (uint32_t)i, &s->heap[s->heap_n])) {
            s->heap_n++;
        }
    }
    for (size_t i = s->heap_n / 2; i-- > 0;) {
        sift_down(s->heap, s->heap_n, i);
    }
    merge_all(t, s);
    for (uint32_t i = 0; i != END; i = s->sym[i].next) {
        tok_ids_add(out, s->sym[i].id);
    }
}

void bpe_piece(const struct tokenizer *t, const char *p, size_t n, struct bpe_scratch *s,
               struct tok_ids *out)
{
    if (n <= BPE_SHORT) {
        bpe_short(t, p, n, out);
    } else {
        bpe_long(t, p, n, s, out);
    }
}
