/* Random texts from a fixed stream; the twin of the generator in
 * tests/oracle/tokenizer.mjs. Every call of below() must come in the same order
 * there. */
#include "config.h"
#include "tests/unit/tokgen.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tests/unit/tokdata.h"

#define MAX_ALPHABETS 256
#define MAX_LIST      128
#define N_NAMED       6 /* mark number blank emoji compose punct; then the scripts */
#define N_KINDS       14

struct range {
    uint32_t lo, hi;
};
struct alphabet {
    struct range *r;
    size_t n;
    uint32_t size;
};
struct tokgen {
    uint32_t x;
    struct buf file, corpus;
    const char *words[MAX_LIST], *tokens[MAX_LIST];
    uint32_t n_words, n_tokens, n_alphabets;
    struct alphabet exclude, alphabet[MAX_ALPHABETS];
    struct buf *out;
};

static uint32_t split_list(char *line, const char **list)
{
    uint32_t n = 0;
    char *save = NULL;
    for (char *w = strtok_r(line, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        assert(n < MAX_LIST);
        list[n++] = w;
    }
    return n;
}

static void parse_ranges(char *line, struct alphabet *a)
{
    char *p = line;
    size_t cap = 0;
    while (*p) {
        if (a->n == cap) {
            cap = cap ? 2 * cap : 16;
            a->r = mem_realloc(a->r, cap * sizeof *a->r);
        }
        uint32_t lo = (uint32_t)strtoul(p, &p, 16);
        uint32_t hi = *p == '-' ? (uint32_t)strtoul(p + 1, &p, 16) : lo;
        a->r[a->n++] = (struct range){lo, hi};
        a->size += hi - lo + 1;
        p += *p == ' ';
    }
}

struct tokgen *tokgen_create(void)
{
    struct tokgen *g = mem_zalloc(sizeof *g);
    tokdata_read("tokenizer_alphabet.txt", &g->file);
    tokdata_read("tokenizer_corpus.txt", &g->corpus);
    char *save = NULL;
    for (char *line = strtok_r(g->file.data, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        char *rest = strchr(line, ' ');
        assert(rest);
        *rest++ = 0;
        if (strcmp(line, "words") == 0) {
            g->n_words = split_list(rest, g->words);
        } else if (strcmp(line, "tokens") == 0) {
            g->n_tokens = split_list(rest, g->tokens);
        } else if (strcmp(line, "exclude") == 0) {
            parse_ranges(rest, &g->exclude);
        } else {
            assert(g->n_alphabets < MAX_ALPHABETS);
            parse_ranges(rest, &g->alphabet[g->n_alphabets++]);
        }
    }
    assert(g->n_words > 0 && g->n_tokens > 0 && g->n_alphabets > 100);
    return g;
}

void tokgen_free(struct tokgen *g)
{
    for (uint32_t i = 0; i < g->n_alphabets; i++) {
        free(g->alphabet[i].r);
    }
    free(g->exclude.r);
    buf_free(&g->file);
    buf_free(&g->corpus);
    free(g);
}

bool tokgen_excluded(const struct tokgen *g, const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        i += (size_t)utf8_decode(p + i, n - i, &cp);
        size_t lo = 0;
        size_t hi = g->exclude.n;
        while (lo < hi) {
            size_t mid = (lo + hi) / 2;
            if (g->exclude.r[mid].hi < cp) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        if (lo < g->exclude.n && g->exclude.r[lo].lo <= cp) {
            return true;
        }
    }
    return false;
}

static uint32_t below(struct tokgen *g, uint32_t n)
{
    g->x ^= g->x << 13;
    g->x ^= g->x >> 17;
    g->x ^= g->x << 5;
    return g->x * 0x9E3779B1U % n;
}

static void raw(struct tokgen *g, uint32_t b)
{
    buf_addc(g->out, (char)b);
}

static void add_cp(struct tokgen *g, uint32_t c)
{
    char b[4];
    buf_add(g->out, b, (size_t)utf8_put(c, b));
}

static uint32_t pick(struct tokgen *g, uint32_t a)
{
    uint32_t k = below(g, g->alphabet[a].size);
    const struct range *r = g->alphabet[a].r;
    while (k > r->hi - r->lo) {
        k -= r->hi - r->lo + 1;
        r++;
    }
    return r->lo + k;
}

static uint32_t script(struct tokgen *g)
{
    return N_NAMED + below(g, g->n_alphabets - N_NAMED);
}

static void slice(struct tokgen *g, bool damage)
{
    uint32_t len = (uint32_t)g->corpus.len;
    uint32_t at = below(g, len);
    uint32_t n = 1 + below(g, 160);
    n = n < len - at ? n : len - at;
    size_t from = g->out->len;
    buf_add(g->out, g->corpus.data + at, n);
    for (uint32_t k = damage ? 1 + (n >> 4) : 0; k > 0; k--) {
        size_t i = from + below(g, n);
        g->out->data[i] = (char)below(g, 256);
    }
}

static void run_of_one(struct tokgen *g)
{
    uint32_t c = pick(g, below(g, g->n_alphabets));
    uint32_t n = 1 + below(g, 200);
    if (below(g, 64) == 0) {
        n = 2000 + below(g, 3000);
    }
    for (; n > 0; n--) {
        add_cp(g, c);
    }
}

static void blanks(struct tokgen *g)
{
    static const char *const list[] = {"\r\n", "\t", "a", "x", "\r", "."};
    for (uint32_t n = 1 + below(g, 24); n > 0; n--) {
        uint32_t k = below(g, 4);
        if (k == 0) {
            raw(g, '\n');
        } else if (k == 1) {
            raw(g, ' ');
        } else if (k == 2) {
            add_cp(g, pick(g, 2));
        } else {
            buf_adds(g->out, list[below(g, sizeof list / sizeof *list)]);
        }
    }
}

static void emoji(struct tokgen *g)
{
    for (uint32_t n = 1 + below(g, 8); n > 0; n--) {
        add_cp(g, pick(g, 3));
        if (below(g, 3) == 0) {
            add_cp(g, 0xFE0F);
        }
        if (below(g, 3) == 0) {
            add_cp(g, 0x200D);
        }
        if (below(g, 5) == 0) {
            add_cp(g, 0x1F3FB + below(g, 5));
        }
    }
}

static void special_tokens(struct tokgen *g)
{
    for (uint32_t n = 1 + below(g, 5); n > 0; n--) {
        const char *t = g->tokens[below(g, g->n_tokens)];
        size_t len = strlen(t);
        if (below(g, 3) == 0) {
            len = below(g, (uint32_t)len);
        }
        buf_add(g->out, t, len);
        if (below(g, 3) == 0) {
            buf_adds(g->out, g->words[below(g, g->n_words)]);
        }
        if (below(g, 3) == 0) {
            raw(g, below(g, 2) ? ' ' : '\n');
        }
    }
}

static void composing(struct tokgen *g)
{
    for (uint32_t n = 1 + below(g, 5); n > 0; n--) {
        if (below(g, 3) == 0) {
            raw(g, 'a' + below(g, 26));
        } else {
            add_cp(g, pick(g, 4));
        }
        for (uint32_t k = below(g, 6); k > 0; k--) {
            add_cp(g, pick(g, 0));
        }
    }
}

static void numbers(struct tokgen *g)
{
    for (uint32_t n = 1 + below(g, 12); n > 0; n--) {
        uint32_t k = below(g, 4);
        if (k < 2) {
            raw(g, '0' + below(g, 10));
        } else if (k == 2) {
            add_cp(g, pick(g, 1));
        } else {
            raw(g, below(g, 2) ? '.' : ',');
        }
    }
}

static void contractions(struct tokgen *g)
{
    static const char *const list[] = {"s", "t", "re", "ve", "m", "ll", "d", "x", ""};
    for (uint32_t n = 1 + below(g, 6); n > 0; n--) {
        if (below(g, 2)) {
            buf_adds(g->out, g->words[below(g, g->n_words)]);
        }
        raw(g, '\'');
        for (const char *c = list[below(g, sizeof list / sizeof *list)]; *c; c++) {
            raw(g, (uint32_t)*c - (below(g, 2) ? 32 : 0));
        }
        if (below(g, 3) == 0) {
            raw(g, ' ');
        }
    }
}

static void code(struct tokgen *g)
{
    static const char *const joins[] = {" ", "_", ".", "(", "\n    ", "->", "::", "  ", "\t", ""};
    for (uint32_t n = 1 + below(g, 12); n > 0; n--) {
        buf_adds(g->out, g->words[below(g, g->n_words)]);
        buf_adds(g->out, joins[below(g, sizeof joins / sizeof *joins)]);
    }
}

static void segment(struct tokgen *g, uint32_t kind)
{
    uint32_t n = 0;
    uint32_t a = 0;
    switch (kind) {
    case 0:
        a = script(g);
        for (n = 1 + below(g, 20); n > 0; n--) {
            add_cp(g, below(g, 6) == 0 ? ' ' : pick(g, a));
        }
        break;
    case 1:
        for (n = 1 + below(g, 16); n > 0; n--) {
            add_cp(g, pick(g, script(g)));
            if (below(g, 4) == 0) {
                add_cp(g, pick(g, 0));
            }
        }
        break;
    case 2:
    case 3:
        slice(g, kind == 3);
        break;
    case 4:
        run_of_one(g);
        break;
    case 5:
        blanks(g);
        break;
    case 6:
        emoji(g);
        break;
    case 7:
        special_tokens(g);
        break;
    case 8:
        composing(g);
        break;
    case 9:
        for (n = 1 + below(g, 60); n > 0; n--) {
            raw(g, 32 + below(g, 95));
        }
        break;
    case 10:
        numbers(g);
        break;
    case 11:
        contractions(g);
        break;
    case 12:
        for (n = 1 + below(g, 24); n > 0; n--) {
            raw(g, below(g, 2) ? below(g, 256) : 0x80 + below(g, 128));
        }
        break;
    default:
        code(g);
        break;
    }
}

void tokgen_text(struct tokgen *g, uint32_t i, struct buf *out)
{
    g->x = (i + 1) * 0x9E3779B1U | 1;
    g->out = out;
    buf_truncate(out, 0);
    below(g, 1);
    below(g, 1);
    for (uint32_t n = 1 + below(g, 3); n > 0; n--) {
        segment(g, below(g, N_KINDS));
    }
}
