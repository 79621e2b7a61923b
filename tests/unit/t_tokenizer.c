/* The tokenizer's own rules: splits, known ids, normalisation, merging of long
 * pieces, decoding, hostile texts, broken files. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "base/utf8.h"
#include "tests/unit/tokdata.h"
#include "tests/unit/tokgen.h"
#include "tokenizer/bpe.h"
#include "tokenizer/nfc.h"
#include "tokenizer/pretok.h"
#include "tokenizer/tokenizer.h"

#define QWEN3_SPLIT                                                                                \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"      \
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static struct tokenizer *demo;
static struct tokenizer *qwen3;

/* Pieces joined by '|'. */
static void check_split(const struct pretok *p, const char *text, const char *want)
{
    struct pretok_run r;
    struct buf b = BUF_INIT;
    size_t n = strlen(text);
    pretok_run_init(&r, p);
    for (size_t i = 0; i < n;) {
        size_t k = pretok_next(&r, text + i, n - i);
        buf_adds(&b, i ? "|" : "");
        buf_add(&b, text + i, k);
        i += k;
    }
    pretok_run_fini(&r);
    assert_string_equal(b.data, want);
    buf_free(&b);
}

static void splits(void **state)
{
    (void)state;
    static const struct {
        const char *text, *qwen35, *qwen3;
    } t[] = {
        {"I'LL don't  stop\n\n x=12345;", "I|'LL| don|'t| | stop|\n\n| x|=|1|2|3|4|5|;", NULL},
        {" a\t\tb  \n \n  c", " a|\t|\tb|  \n \n| | c", NULL},
        {"\r\n\r\n  if(x){\r\n", "\r\n\r\n| | if|(x|){\r\n", NULL},
        {"'sup 'S'", "'s|up| '|S|'", NULL},
        {"_x __y", "_x| __|y", NULL},
        {"x\u0302y", "x\u0302y", "x|\u0302y"},
        {"\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
         "\u0928\u092e\u0938\u094d\u0924\u0947| \u0926\u0941\u0928\u093f\u092f\u093e",
         "\u0928\u092e\u0938|\u094d\u0924|\u0947| \u0926|\u0941\u0928|\u093f\u092f|\u093e"},
        {"1\u0301 \u0301a", "1|\u0301| \u0301a", "1|\u0301| \u0301|a"},
        /* White_Space and not: NEL, the Mongolian vowel separator, the BOM */
        {"a\xC2\x85"
         "b",
         "a|\xC2\x85"
         "b",
         NULL},
        {"\xC2\x85\xC2\x85", "\xC2\x85\xC2\x85", NULL},
        {"!\xC2\x85!", "!|\xC2\x85|!", NULL},
        {"!\u180e!", "!\u180e!", NULL},
        {"!\ufeff!", "!\ufeff!", NULL},
        /* without regard to case, the long s is an s */
        {"x'\u017fy", "x|'\u017f|y", NULL},
        {"\u2167\u00bd\u00b2", "\u2167|\u00bd|\u00b2", NULL},
    };
    struct pretok *p35 = NULL;
    struct pretok *p3 = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(pretok_create(NULL, 0, &p35, &e), 0);
    assert_int_equal(pretok_create(QWEN3_SPLIT, strlen(QWEN3_SPLIT), &p3, &e), 0);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        check_split(p35, t[i].text, t[i].qwen35);
        check_split(p3, t[i].text, t[i].qwen3 ? t[i].qwen3 : t[i].qwen35);
    }
    pretok_free(p35);
    pretok_free(p3);
    struct pretok *none = NULL;
    assert_int_equal(pretok_create("\\w+", 3, &none, &e), QE_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "\\w+"));
}

static void check_ids(const struct tokenizer *t, const char *p, size_t n, bool specials,
                      const int32_t *want, size_t n_want)
{
    struct tok_ids ids = {NULL, 0, 0};
    tokenizer_encode(t, p, n, specials, &ids);
    assert_int_equal(ids.n, n_want);
    if (n_want) {
        assert_memory_equal(ids.v, want, n_want * sizeof *want);
    }
    tok_ids_free(&ids);
}
#define IDS(t, text, specials, ...)                                                                \
    check_ids(t, text, sizeof(text) - 1, specials, (const int32_t[]){__VA_ARGS__},                 \
              sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

static void known_ids(void **state)
{
    (void)state;
    assert_int_equal(tokenizer_size(qwen3), 151669);
    assert_int_equal(tokenizer_added_id(qwen3, "<|im_end|>", 10), 151645);
    assert_int_equal(tokenizer_added_id(qwen3, "<|im_end|", 9), -1);
    assert_true(tokenizer_is_special(qwen3, 151645));
    assert_true(tokenizer_is_added(qwen3, 151667));
    assert_false(tokenizer_is_special(qwen3, 151667)); /* <think> */
    IDS(qwen3, "user", true, 872);
    IDS(qwen3, "assistant", true, 77091);
    IDS(qwen3, "transformers", true, 4701, 388);
    IDS(qwen3, "2026", true, 17, 15, 17, 21);
    IDS(qwen3, "Hello, world!", true, 9707, 11, 1879, 0);
    IDS(qwen3, "x\u0302y", true, 87, 136, 224, 88);
    IDS(qwen3, "\n", true, 198);
    IDS(qwen3, "<|im_start|>user\n", true, 151644, 872, 198);
    IDS(qwen3, "<<|im_start|>>", true, 27, 151644, 29);
    IDS(demo, "<|im_start|>", true, 8141);
    check_ids(qwen3, "", 0, true, NULL, 0);
    struct tok_ids ids = {NULL, 0, 0};
    tokenizer_encode(qwen3, "<|im_start|>", 12, false, &ids);
    for (size_t i = 0; i < ids.n; i++) {
        assert_false(tokenizer_is_added(qwen3, ids.v[i]));
    }
    tok_ids_free(&ids);
}

static void ill_formed_text_is_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *bad, *good;
    } t[] = {
        {"a\xF0\x9F\x98z", "a\uFFFDz"},
        {"\xE0\x80\x80", "\uFFFD\uFFFD\uFFFD"},
        {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},
        {"\xC3", "\uFFFD"},
        {"\xFF<|im_end|>\x80", "\uFFFD<|im_end|>\uFFFD"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct tok_ids a = {NULL, 0, 0};
        struct tok_ids b = {NULL, 0, 0};
        tokenizer_encode(qwen3, t[i].bad, strlen(t[i].bad), true, &a);
        tokenizer_encode(qwen3, t[i].good, strlen(t[i].good), true, &b);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.v, b.v, a.n * sizeof *a.v);
        tok_ids_free(&a);
        tok_ids_free(&b);
    }
}

static void check_nfc(const char *text, const char *want)
{
    struct buf b = BUF_INIT;
    nfc_add(text, strlen(text), &b);
    assert_string_equal(b.data, want);
    assert_true(nfc_may_change(text, strlen(text)) || strcmp(text, want) == 0);
    buf_free(&b);
}

static void normalisation(void **state)
{
    (void)state;
    check_nfc("abc \u00e9 \u4eba", "abc \u00e9 \u4eba");
    check_nfc("e\u0301", "\u00e9");
    check_nfc("e\u0323\u0302x", "\u1ec7x");
    check_nfc("e\u0302\u0323x", "\u1ec7x");
    check_nfc("\u212b\u2126\u212a", "\u00c5\u03a9K");
    check_nfc("\u1100\u1161\u11a8\u1100", "\uac01\u1100");
    check_nfc("\uac00\u11a8", "\uac01");
    check_nfc("\u0958", "\u0915\u093c"); /* excluded from composition */
    check_nfc("a\u0315\u0300\u05aeb", "\u00e0\u05ae\u0315b");
    check_nfc("\u0344", "\u0308\u0301");
    check_nfc("\ufb01\u00bd", "\ufb01\u00bd"); /* compatibility stays */
    check_nfc("\u09c7\u09be", "\u09cb");       /* a mark of class 0 joins */
    check_nfc("\u0301", "\u0301");
    /* added tokens cut the text before it is normalised */
    struct tok_ids a = {NULL, 0, 0};
    tokenizer_encode(qwen3, "e<|im_end|>\u0301", 13, true, &a);
    assert_int_equal(a.v[0], 68);
    assert_int_equal(a.v[1], 151645);
    tok_ids_free(&a);
}

/* Both ways of merging give the same ids, whatever the bytes. */
static void long_pieces_like_short_ones(void **state)
{
    (void)state;
    uint32_t x = 7;
    struct bpe_scratch s = {0};
    for (int round = 0; round < 20000; round++) {
        char p[BPE_SHORT];
        uint32_t range = round % 3 == 0 ? 2 : round % 3 == 1 ? 26 : 256;
        size_t n = 1 + (size_t)round % BPE_SHORT;
        for (size_t i = 0; i < n; i++) {
            x = x * 1664525 + 1013904223;
            p[i] = (char)((range == 256 ? 0 : 'a') + (x >> 16) % range);
        }
        struct tok_ids a = {NULL, 0, 0};
        struct tok_ids b = {NULL, 0, 0};
        const struct tokenizer *t = round & 1 ? demo : qwen3;
        bpe_short(t, p, n, &a);
        bpe_long(t, p, n, &s, &b);
        assert_int_equal(a.n, b.n);
        assert_memory_equal(a.v, b.v, a.n * sizeof *a.v);
        tok_ids_free(&a);
        tok_ids_free(&b);
    }
    bpe_scratch_free(&s);
}

/* Every id by itself, at a random place in a stream, hidden or shown. */
static void decoding(void **state)
{
    (void)state;
    struct detok d = {0};
    struct buf b = BUF_INIT;
    static const int32_t hello[] = {9707, 11, 151645, 1879, 0, 151667};
    for (size_t i = 0; i < 6; i++) {
        detok_add(&d, qwen3, hello[i], false, &b);
    }
    assert_string_equal(b.data, "Hello, world!<think>");
    detok_add(&d, qwen3, 151645, true, &b);
    assert_string_equal(b.data, "Hello, world!<think><|im_end|>");
    /* a character in three tokens comes out once, whole */
    buf_truncate(&b, 0);
    struct tok_ids ids = {NULL, 0, 0};
    for (const char *p = "\U0001F389"; *p; p++) {
        tok_ids_add(&ids, qwen3->byte_id[(unsigned char)*p]);
        assert_int_equal(b.len, 0);
        detok_add(&d, qwen3, ids.v[ids.n - 1], false, &b);
    }
    assert_string_equal(b.data, "\U0001F389");
    /* the same, broken off by a letter; then dangling at the end */
    buf_truncate(&b, 0);
    detok_add(&d, qwen3, ids.v[0], false, &b);
    detok_add(&d, qwen3, ids.v[1], false, &b);
    detok_add(&d, qwen3, 151645, false, &b); /* hidden: nothing in between */
    detok_add(&d, qwen3, 32, false, &b);
    assert_string_equal(b.data, "\uFFFDA");
    detok_add(&d, qwen3, ids.v[0], false, &b);
    detok_flush(&d, &b);
    detok_flush(&d, &b);
    assert_string_equal(b.data, "\uFFFDA\uFFFD");
    /* no such id: nothing */
    buf_truncate(&b, 0);
    detok_add(&d, qwen3, -1, true, &b);
    detok_add(&d, qwen3, 151669, true, &b);
    detok_add(&d, qwen3, INT32_MAX, true, &b);
    assert_int_equal(b.len, 0);
    size_t n = 0;
    assert_null(tokenizer_bytes(qwen3, 151669, &n));
    buf_free(&b);
    tok_ids_free(&ids);
}

static void round_trips(void **state)
{
    (void)state;
    struct tokgen *g = tokgen_create();
    struct buf text = BUF_INIT;
    for (uint32_t i = 0; i < 3000; i++) {
        struct buf clean = BUF_INIT;
        struct buf want = BUF_INIT;
        struct buf got = BUF_INIT;
        struct tok_ids ids = {NULL, 0, 0};
        struct detok d = {0};
        tokgen_text(g, i, &text);
        utf8_sanitize(text.data, text.len, &clean);
        nfc_add(clean.data, clean.len, &want);
        tokenizer_encode(demo, text.data, text.len, false, &ids);
        for (size_t k = 0; k < ids.n; k++) {
            detok_add(&d, demo, ids.v[k], false, &got);
            assert_true(utf8_valid(got.data, got.len));
        }
        detok_flush(&d, &got);
        assert_int_equal(got.len, want.len);
        assert_memory_equal(got.data, want.data, want.len);
        tok_ids_free(&ids);
        buf_free(&clean);
        buf_free(&want);
        buf_free(&got);
    }
    buf_free(&text);
    tokgen_free(g);
}

/* A megabyte of what merges, matches or normalises worst comes back whole. With
 * anything worse than linear work per text this never ends, and the suite's
 * limit catches it. */
static void hostile_texts_come_back(void **state)
{
    (void)state;
    static const char *const unit[] = {
        "a",
        " ",
        "\n",
        "\r\n",
        "\u0301",
        "\u0301\u0316",
        "\U0001F600",
        "\u1100\u1161\u11a8",
        "!",
        "<|im_end|",
        "'",
        "\t ",
        "\xF0\x9F\x98",
        "\u4eba\u5de5",
        "abcdefghijklm",
    };
    size_t size = 1000000;
#ifdef SANITIZED
    size = 100000;
#endif
    for (size_t i = 0; i <= sizeof unit / sizeof *unit; i++) {
        struct buf b = BUF_INIT;
        struct tok_ids ids = {NULL, 0, 0};
        uint32_t x = 1;
        while (b.len < size) {
            if (i < sizeof unit / sizeof *unit) {
                buf_adds(&b, unit[i]);
            } else { /* one word without repeats */
                char c[4];
                x = x * 1664525 + 1013904223;
                buf_add(&b, c, (size_t)utf8_put(0x4E00 + (x >> 16) % 20000, c));
            }
        }
        struct buf clean = BUF_INIT;
        struct buf want = BUF_INIT;
        struct buf got = BUF_INIT;
        tokenizer_encode(qwen3, b.data, b.len, false, &ids);
        for (size_t k = 0; k < ids.n; k++) {
            size_t n = 0;
            const char *p = tokenizer_bytes(qwen3, ids.v[k], &n);
            assert_non_null(p);
            buf_add(&got, p, n);
        }
        utf8_sanitize(b.data, b.len, &clean);
        nfc_add(clean.data, clean.len, &want);
        assert_int_equal(got.len, want.len);
        assert_memory_equal(got.data, want.data, want.len);
        buf_free(&clean);
        buf_free(&want);
        buf_free(&got);
        buf_free(&b);
        tok_ids_free(&ids);
    }
}

#define HEAD "{\"model\":{\"type\":\"BPE\",\"vocab\":{"
/* Every fault gives one line that names what is wrong. */
static void broken_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } t[] = {
        {"", "empty"},
        {"PK\x03\x04", "neither"},
        {"{", "ends too early"},
        {"{}", "no \"model\""},
        {"{\"model\":{}}", "lacks its vocabulary"},
        {"{\"model\":3}", "expected '{'"},
        {HEAD "\"a\":0", "ends too early"},
        {HEAD "\"a\":\"b\"", "whole number"},
        {HEAD "\"a\":1.5", "whole number"},
        {HEAD "\"a\":-1", "outside"},
        {HEAD "\"a\":99999999", "outside"},
        {HEAD "\"a\":99999999999999999999", "whole number"},
        {HEAD "\"a\":0,\"b\":0", "given twice"},
        {HEAD "\"a\":0,\"a\":1}", "twice"},
        {HEAD "\"\":0}", "empty"},
        {HEAD "\"a\":0}", "no entry for the byte 0x00"},
        {HEAD "\"\\ud800\":0}", "surrogate"},
        {HEAD "\"\\x\":0}", "escape"},
        {HEAD "\"a\":0,}", "comma"},
        {"{\"model\":{\"type\":\"WordPiece\"}}", "type is \"WordPiece\""},
        {"{\"model\":{\"ignore_merges\":true}}", "ignore_merges"},
        {"{\"model\":{\"byte_fallback\":true}}", "byte_fallback"},
        {"{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1", "deep"},
        {"Q27", "neither"},
        {"\x51\x32\x37\x54", "ends inside its header"},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct tokenizer *x = NULL;
        struct err e = ERR_INIT;
        assert_true(tokenizer_open(t[i].text, strlen(t[i].text), NULL, 0, "FILE", &x, &e) < 0);
        if (!strstr(e.msg, t[i].says) || strncmp(e.msg, "FILE: ", 6) != 0 || strchr(e.msg, '\n')) {
            fail_msg("case %zu says: %s", i, e.msg);
        }
    }
}

/* One change of a whole file; what is said about it. */
static void changed_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *says;
    } t[] = {
        {"\"NFC\"", "\"NFD\"", "the normalizer \"NFD\""},
        {"\"Isolated\"", "\"Removed\"", "Removed"},
        {"\"Split\"", "\"Digits\"", "Digits"},
        {"\"Sequence\"", "\"Metaspace\"", "Metaspace"},
        {"(?i:'s", "(?i:'z", "split pattern"},
        {"\"use_regex\":false", "\"use_regex\":true", "use_regex"},
        {"\"merges\":[[", "\"merges\":[[\"\xE4\xBA\xBA\",\"a\"],[", "lacks one of them"},
        {"\"merges\":[[", "\"merges\":[[\"q\",\"\\u0100\"],[", "lacks the result"},
        {"\"merges\":[[", "\"merges\":[[\"i\",\"n\"],[", "repeats merge 0"},
        {"\"merges\":[[", "\"merges\":[\"in\",[", "space between"},
        {"\"merges\":[[", "\"merges\":[7,[", "expected '['"},
        {"\"id\":8141", "\"id\":8140", "another token's"},
        {"\"id\":8141", "\"id\":-5", "outside"},
        {"\"id\":8141", "\"id\":1e300", "whole number"},
        {"\"id\":8141", "\"id\":12", "another token's"},
        {"\"content\":\"<|im_start|>\"", "\"content\":7", "no text"},
        {"\"content\":\"<|im_start|>\"", "\"content\":\"\"", "empty"},
        {"\"content\":\"<|im_start|>\"", "\"content\":\"<|im_end|>\"", "twice"},
        {"\"lstrip\":false", "\"lstrip\":true", "lstrip"},
        {"\"normalized\":false", "\"normalized\":true", "normalized"},
    };
    struct buf good = BUF_INIT;
    tokdata_json("demo", "demo", &good);
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct buf b = BUF_INIT;
        const char *at = strstr(good.data, t[i].from);
        assert_non_null(at);
        buf_add(&b, good.data, (size_t)(at - good.data));
        buf_adds(&b, t[i].to);
        buf_adds(&b, at + strlen(t[i].from));
        struct tokenizer *x = NULL;
        struct err e = ERR_INIT;
        int rc = tokenizer_open(b.data, b.len, NULL, 0, "FILE", &x, &e);
        if (rc >= 0 || !strstr(e.msg, t[i].says)) {
            fail_msg("change %zu to %s says: %s", i, t[i].to, rc < 0 ? e.msg : "nothing");
        }
        buf_free(&b);
    }
    buf_free(&good);
}

static void config_adds_tokens(void **state)
{
    (void)state;
    static const char *const good =
        "{\"added_tokens_decoder\":{\"8140\":{\"content\":\"<|endoftext|>\",\"special\":true},"
        "\"9000\":{\"content\":\"<new>\",\"special\":true}}}";
    static const char *const bad[] = {"[", "{\"added_tokens_decoder\":[]}",
                                      "{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}",
                                      "{\"added_tokens_decoder\":{\"8140\":{\"content\":\"y\"}}}",
                                      "{\"added_tokens_decoder\":{\"99999999999999999999\":{}}}"};
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    struct tokenizer *x = NULL;
    tokdata_json("demo", "demo", &b);
    assert_int_equal(tokenizer_open(b.data, b.len, good, strlen(good), "FILE", &x, &e), 0);
    assert_int_equal(tokenizer_size(x), 9001);
    size_t n = 0;
    assert_null(tokenizer_bytes(x, 8999, &n));
    IDS(x, "a<new>b", true, 64, 9000, 65);
    tokenizer_free(x);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(tokenizer_open(b.data, b.len, bad[i], strlen(bad[i]), "FILE", &x, &e) < 0);
        assert_non_null(strstr(e.msg, "tokenizer_config.json"));
    }
    buf_free(&b);
}

static int setup(void **state)
{
    (void)state;
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    tokdata_json("demo", "demo", &b);
    int rc = tokenizer_open(b.data, b.len, NULL, 0, "demo", &demo, &e);
    buf_truncate(&b, 0);
    tokdata_json("qwen3", "qwen3", &b);
    rc = rc < 0 ? rc : tokenizer_open(b.data, b.len, NULL, 0, "qwen3", &qwen3, &e);
    buf_free(&b);
    return rc;
}

static int teardown(void **state)
{
    (void)state;
    tokenizer_free(demo);
    tokenizer_free(qwen3);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits),
        cmocka_unit_test(known_ids),
        cmocka_unit_test(ill_formed_text_is_replaced),
        cmocka_unit_test(normalisation),
        cmocka_unit_test(long_pieces_like_short_ones),
        cmocka_unit_test(decoding),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(hostile_texts_come_back),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(changed_files_are_refused),
        cmocka_unit_test(config_adds_tokens),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
