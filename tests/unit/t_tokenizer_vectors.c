/* The tokenizer against an independent implementation: the ids of more than
 * 200,000 texts with three tokenizers, by committed hashes; some hundred of them
 * in full. A sanitizer build samples the blocks. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tests/unit/tokdata.h"
#include "tests/unit/tokgen.h"
#include "tokenizer/tokenizer.h"

#define BLOCK 512 /* texts per hash */

static const struct {
    const char *name, *vocabulary, *split;
} sets[] = {{"qwen3", "qwen3", "qwen3"}, {"qwen35", "qwen3", "demo"}, {"demo", "demo", "demo"}};
#define N_SETS (sizeof sets / sizeof *sets)

static struct tokenizer *tok[N_SETS];
static json_t **line; /* of the vectors */
static size_t n_lines;

struct hash {
    uint32_t a, b;
};
static const struct hash hash_start = {0x811C9DC5, 0x1234567};

static void hash_add(struct hash *h, uint32_t v)
{
    h->a = (h->a ^ v) * 0x01000193;
    h->b = (h->b ^ v) * 0x85EBCA6B;
    h->b ^= h->b >> 13;
}

static void hash_is(const struct hash *h, const json_t *o, const char *key)
{
    char text[20];
    snprintf(text, sizeof text, "%08x%08x", h->a, h->b);
    if (strcmp(text, json_string_value(json_object_get(o, key))) != 0) {
        fail_msg("block %d: %s differs", (int)json_integer_value(json_object_get(o, "block")), key);
    }
}

static void check_block(struct tokgen *g, const json_t *o, size_t *count)
{
    struct hash h[N_SETS];
    struct hash texts = hash_start;
    struct buf b = BUF_INIT;
    struct buf clean = BUF_INIT;
    for (size_t s = 0; s < N_SETS; s++) {
        h[s] = hash_start;
    }
    uint32_t first = (uint32_t)json_integer_value(json_object_get(o, "block")) * BLOCK;
    for (uint32_t i = first; i < first + BLOCK; i++) {
        tokgen_text(g, i, &b);
        for (size_t k = 0; k < b.len; k++) {
            hash_add(&texts, (unsigned char)b.data[k]);
        }
        hash_add(&texts, UINT32_MAX);
        buf_truncate(&clean, 0);
        utf8_sanitize(b.data, b.len, &clean);
        if (tokgen_excluded(g, clean.data, clean.len)) {
            continue;
        }
        ++*count;
        for (size_t s = 0; s < N_SETS; s++) {
            struct tok_ids ids = {NULL, 0, 0};
            tokenizer_encode(tok[s], b.data, b.len, i & 1, &ids);
            for (size_t k = 0; k < ids.n; k++) {
                hash_add(&h[s], (uint32_t)ids.v[k]);
            }
            hash_add(&h[s], UINT32_MAX);
            tok_ids_free(&ids);
        }
    }
    hash_is(&texts, o, "texts");
    for (size_t s = 0; s < N_SETS; s++) {
        hash_is(&h[s], o, sets[s].name);
    }
    buf_free(&b);
    buf_free(&clean);
}

static void blocks_agree(void **state)
{
    (void)state;
    struct tokgen *g = tokgen_create();
    size_t count = 0;
    size_t blocks = 0;
    size_t step = 1;
#ifdef SANITIZED
    step = getenv("QUASAR_LONG") ? 1 : 20;
#endif
    for (size_t i = 0; i < n_lines; i++) {
        if (json_object_get(line[i], "block") && blocks++ % step == 0) {
            check_block(g, line[i], &count);
        }
    }
    print_message("# %zu texts with %zu tokenizers\n", count, N_SETS);
    assert_true(count >= 200000 / step);
    tokgen_free(g);
}

static void explicit_texts_agree(void **state)
{
    (void)state;
    size_t count = 0;
    for (size_t i = 0; i < n_lines; i++) {
        const json_t *text = json_object_get(line[i], "text");
        if (!text) {
            continue;
        }
        count++;
        for (size_t s = 0; s < N_SETS; s++) {
            struct tok_ids ids = {NULL, 0, 0};
            tokenizer_encode(tok[s], json_string_value(text), json_string_length(text),
                             json_is_true(json_object_get(line[i], "specials")), &ids);
            const json_t *want = json_object_get(line[i], sets[s].name);
            for (size_t k = 0; k < ids.n || k < json_array_size(want); k++) {
                if (k >= ids.n || json_integer_value(json_array_get(want, k)) != ids.v[k]) {
                    fail_msg("%s: id %zu of \"%s\" differs", sets[s].name, k,
                             json_string_value(text));
                }
            }
            tok_ids_free(&ids);
        }
    }
    assert_true(count >= 300);
}

/* The .tok form of a vocabulary gives the same ids (with the 3.5 split). */
static void tok_file_agrees(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    struct tokenizer *t = NULL;
    tokdata_tok("qwen3", &b);
    assert_int_equal(tokenizer_open(b.data, b.len, NULL, 0, "qwen3.tok", &t, &e), 0);
    assert_int_equal(tokenizer_size(t), tokenizer_size(tok[1]));
    for (int32_t id = 0; id < tokenizer_size(t); id++) {
        assert_int_equal(tokenizer_is_special(t, id), tokenizer_is_special(tok[1], id));
        assert_int_equal(tokenizer_is_added(t, id), tokenizer_is_added(tok[1], id));
    }
    struct tokgen *g = tokgen_create();
    struct buf text = BUF_INIT;
    for (uint32_t i = 0; i < 2000; i++) {
        struct tok_ids x = {NULL, 0, 0};
        struct tok_ids y = {NULL, 0, 0};
        tokgen_text(g, i, &text);
        tokenizer_encode(t, text.data, text.len, true, &x);
        tokenizer_encode(tok[1], text.data, text.len, true, &y);
        assert_int_equal(x.n, y.n);
        assert_memory_equal(x.v, y.v, x.n * sizeof *x.v);
        tok_ids_free(&x);
        tok_ids_free(&y);
    }
    buf_free(&text);
    tokgen_free(g);
    tokenizer_free(t);
    buf_free(&b);
}

static int setup(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct buf b = BUF_INIT;
    for (size_t s = 0; s < N_SETS; s++) {
        buf_truncate(&b, 0);
        tokdata_json(sets[s].vocabulary, sets[s].split, &b);
        if (tokenizer_open(b.data, b.len, NULL, 0, sets[s].name, &tok[s], &e) < 0) {
            print_message("# %s\n", e.msg);
            return -1;
        }
    }
    buf_truncate(&b, 0);
    tokdata_read("tokenizer_vectors.jsonl.zst", &b);
    line = mem_array(b.len / 16 + 1, sizeof *line);
    for (size_t at = 0; at < b.len;) {
        size_t n = (size_t)((const char *)memchr(b.data + at, '\n', b.len - at) - b.data) - at;
        if (json_parse(b.data + at, n, "vectors", &line[n_lines++], &e) < 0) {
            return -1;
        }
        at += n + 1;
    }
    buf_free(&b);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SETS; s++) {
        tokenizer_free(tok[s]);
    }
    for (size_t i = 0; i < n_lines; i++) {
        json_decref(line[i]);
    }
    free(line);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explicit_texts_agree),
        cmocka_unit_test(blocks_agree),
        cmocka_unit_test(tok_file_agrees),
    };

    return cmocka_run_group_tests_name("tokenizer vectors", tests, setup, teardown);
}
