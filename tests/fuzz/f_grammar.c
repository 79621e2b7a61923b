/* Fuzz target: the first byte names the language, the rest up to a zero byte is its text, what
 * follows is an answer. A grammar that is made lets some token come wherever an answer can go
 * on, and a text that it matches is one that it lets begin. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "grammar/grammar.h"
#include "grammar/walk.h"
#include "tests/fuzz/fuzz.h"

#define VOCAB 257 /* bytes, and the end */
#define END   256

static const char *bytes_of(void *ctx, int32_t id, size_t *n)
{
    char *all = ctx;
    *n = 1;
    all[id & 255] = (char)id;
    return &all[id & 255];
}

static int added(void *ctx, int32_t id)
{
    (void)ctx;
    return id == END ? 2 : 0;
}

static int encode(void *ctx, const char *p, size_t n, int32_t *ids, int most)
{
    (void)ctx;
    int k = 0;
    for (; (size_t)k < n && k < most; k++) {
        ids[k] = (unsigned char)p[k];
    }
    return k;
}

/* A walk that is led by bytes of the input. */
static void go(struct grammar *g, const uint8_t *p, size_t n)
{
    char all[256];
    const struct words_source s = {
        .n = VOCAB, .bytes = bytes_of, .added = added, .encode = encode, .ctx = all};
    struct words *words = words_create(&s);
    const int32_t end = END;
    const struct walk_opts o = {
        .grammar = g, .words = words, .end = &end, .n_end = 1, .call_opener = -1};
    struct walk *w = walk_create(&o);
    struct buf text = BUF_INIT;
    for (int k = 0; k < 40; k++) {
        uint32_t m[(VOCAB + 31) / 32];
        int32_t may[VOCAB], many = 0, ids[8];
        walk_row(w, NULL, 0, m, sizeof m / sizeof *m);
        for (int32_t id = 0; id < VOCAB; id++) {
            if (m[id / 32] >> (id % 32) & 1) {
                may[many++] = id;
            }
        }
        const int forced = walk_forced(w, ids, 8);
        if (many == 0 || walk_legal(w, ids, forced) != forced) {
            abort(); /* nothing can come, or what must cannot */
        }
        const int32_t id = may[n > 0 ? p[(size_t)k % n] % many : k % many];
        const bool whole = grammar_matches(g, text.data ? text.data : "", text.len);
        if (whole != (m[END / 32] >> (END % 32) & 1) ||
            !grammar_begins(g, text.data ? text.data : "", text.len)) {
            abort();
        }
        walk_take(w, id);
        if (id == END) {
            break;
        }
        buf_addc(&text, (char)id);
    }
    buf_free(&text);
    walk_free(w);
    words_free(words);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (n < 1 || n > 4096) {
        return 0;
    }
    const uint8_t *zero = memchr(p + 1, 0, n - 1);
    const size_t text = zero ? (size_t)(zero - p) - 1 : n - 1;
    const size_t rest = n - 1 - text;
    char *copy = mem_strndup((const char *)p + 1, text);
    struct grammar *g = NULL;
    struct buf notes = BUF_INIT;
    const enum grammar_kind kind = (enum grammar_kind)(p[0] % 5);
    struct err e = ERR_INIT;
    const int rc = grammar_compile(kind, copy, text, p[0] & 64, &g, &notes, &e);
    if (rc < 0 && (e.code != rc || e.msg[0] == 0)) {
        abort();
    }
    if (rc == 0) {
        go(g, zero ? zero : p, rest);
        grammar_free(g);
    }
    buf_free(&notes);
    free(copy);
    return 0;
}

struct fuzz_seed *fuzz_seeds(size_t *n)
{
    static const char *const texts[] = {
        "\x01{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":-5,"
        "\"maximum\":120},\"b\":{\"enum\":[\"x\",null,[1]]},\"c\":{\"$ref\":\"#/$defs/d\"}},"
        "\"required\":[\"a\"],\"$defs\":{\"d\":{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"array\","
        "\"items\":{\"$ref\":\"#/$defs/d\"},\"maxItems\":2}]}}}",
        "\x01{\"allOf\":[{\"type\":\"object\",\"additionalProperties\":{\"type\":\"number\","
        "\"minimum\":0.25,\"exclusiveMaximum\":1e3}},{\"properties\":{\"k\":{\"minimum\":0.5}}}],"
        "\"minProperties\":1}",
        "\x01{\"type\":[\"string\",\"boolean\"],\"pattern\":\"^a{2,3}(b|[^c-e])*$\",\"maxLength\":"
        "9}",
        "\x01{\"type\":\"array\",\"prefixItems\":[{\"const\":1.5},{\"format\":\"date\"}],\"items\":"
        "false,"
        "\"patternProperties\":{\"^x\":true}}",
        "\x02(a|b*)+[^x-z\\d]{2,5}\\u00e4?(?:.|\\s)$",
        "\x03[\"yes\",\"no\",\"yesterday\",\"\\u65e5\"]",
        "\x04root ::= \"a\" b* # c\nb ::= [0-9]{1,3} | \"(\" root \")\" | /x+y?/ | . 'q'",
        "\x00",
    };
    *n = sizeof texts / sizeof *texts;
    struct fuzz_seed *s = mem_array(*n, sizeof *s);
    for (size_t i = 0; i < *n; i++) {
        s[i].size = strlen(texts[i] + 1) + 1;
        s[i].data = mem_alloc(s[i].size + 1);
        memcpy(s[i].data, texts[i], s[i].size + 1);
    }
    return s;
}
