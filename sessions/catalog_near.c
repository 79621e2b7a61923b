/* Conversations with a name like a word that means none: the word is laid over each title where
 * it fits best, letters of another case, with other marks or of another width being the same, and
 * the differing ones are counted. */
#include "config.h"
#include "sessions/catalog.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "sessions/catalog_sql.h"

#define WORD_MOST  64 /* letters that are compared */
#define TITLE_MOST 256
#define NAMED      3 /* that are told */
#define LOOKED_AT  5000

/* The letters of a text, alike ones made the same; returns how many. */
static size_t letters(const char *s, size_t bytes, int32_t *out, size_t most)
{
    const utf8proc_option_t o = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT | UTF8PROC_CASEFOLD |
                                UTF8PROC_STRIPMARK | UTF8PROC_IGNORE | UTF8PROC_STABLE;
    const utf8proc_ssize_t n = utf8proc_decompose(
        (const utf8proc_uint8_t *)s, (utf8proc_ssize_t)bytes, out, (utf8proc_ssize_t)most, o);
    return n < 0 ? 0 : (size_t)n < most ? (size_t)n : most;
}

/* In how many letters the word differs from the part of the text that it is most like. */
static size_t differs(const int32_t *word, size_t m, const int32_t *text, size_t n)
{
    size_t row[WORD_MOST + 1]; /* of the word's beginnings, where the text stands */
    for (size_t i = 0; i <= m; i++) {
        row[i] = i;
    }
    size_t best = row[m];
    for (size_t k = 0; k < n; k++) {
        size_t diagonal = row[0]; /* 0: it may begin anywhere */
        for (size_t i = 1; i <= m; i++) {
            const size_t swap = diagonal + (word[i - 1] != text[k]);
            const size_t skip = 1 + (row[i] < row[i - 1] ? row[i] : row[i - 1]);
            diagonal = row[i];
            row[i] = swap < skip ? swap : skip;
        }
        best = row[m] < best ? row[m] : best;
    }
    return best;
}

struct hit {
    int64_t id;
    char *title;
    size_t cost;
};

struct nearest {
    int32_t word[WORD_MOST];
    size_t n_word;
    struct hit hit[NAMED]; /* best first */
    size_t n;
};

static bool consider(void *ctx, const struct catalog_conv *v)
{
    struct nearest *k = ctx;
    int32_t text[TITLE_MOST];
    const size_t n = letters(v->title, strlen(v->title), text, TITLE_MOST);
    const size_t d = n > 0 ? differs(k->word, k->n_word, text, n) : k->n_word;
    if (d > k->n_word / 3) {
        return true;
    }
    /* of equally many differences the shorter title, of these the latest */
    const size_t cost = 1000 * d + n;
    size_t at = k->n;
    while (at > 0 && k->hit[at - 1].cost > cost) {
        at--;
    }
    if (at == NAMED) {
        return true;
    }
    if (k->n == NAMED) {
        free(k->hit[--k->n].title);
    }
    memmove(k->hit + at + 1, k->hit + at, (k->n - at) * sizeof *k->hit);
    k->hit[at] = (struct hit){v->id, mem_strdup(v->title), cost};
    k->n++;
    return true;
}

void cat_near(struct catalog *c, const char *what, struct buf *out)
{
    struct nearest k = {.n = 0};
    k.n_word = letters(what, strlen(what), k.word, WORD_MOST);
    if (k.n_word > 0) {
        (void)catalog_list(c, LOOKED_AT, consider, &k, NULL);
    }
    for (size_t i = 0; i < k.n; i++) {
        buf_printf(out, "%s%lld \"%.40s\"", i ? ", " : "", (long long)k.hit[i].id, k.hit[i].title);
        free(k.hit[i].title);
    }
}
