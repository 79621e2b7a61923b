/* Grammars: what they let through and what not, by tables; and walks through their masks, which
 * must let exactly those tokens come whose bytes may, and end in what an own validator accepts. */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/grammar.h"
#include "grammar/walk.h"
#include "tests/unit/schemacheck.h"

/* ---- a vocabulary: every byte, and texts of several, whole characters and parts ---- */

#define END     0
#define HIDDEN  1
#define CALL    2
#define THOUGHT 3
#define BYTES   4
static const char *const longer[] = {
    "{\"",      "\":",      "\": ",     "\", \"", "\"}",      "\"]",
    "},",       "},{",      "[]",       "{}",     "true",     "false",
    "null",     "tru",      "name",     "\"name", "na",       "me\"",
    "red",      "gre",      "en\"",     "  ",     "    ",     "\n",
    "\n  ",     "\n\n",     "\t",       "00",     "123",      "12",
    "-1",       "1.5",      "0.",       "e-",     "999",      "\\u",
    "\\\"",     "\\n",      "u00",      "\xc3",   "\xc3\xa4", "\xbc\xc3",
    "\xe6\x97", "\xa5\xe6", "\xf0\x9f", "日本",   "abc",      "the ",
    " of",      "ab\"",     ", ",       ",\n",    "]}",       "}}",
    "]]",       "\"a",      "a\": 1",   "kind",   "circle",   "box\"",
    "/a/b",     "AB-",      "1234\"",   ">\n",    "</",       "think>",
    "x-",       "d41d8c",   "2024-",    "02-29",  "T10:",     "aaaaaaaaaaaaaaaa"};
#define N_LONGER ((int32_t)(sizeof longer / sizeof *longer))
#define VOCAB    (BYTES + 256 + N_LONGER)
#define WORDS    ((VOCAB + 31) / 32)

static const char *bytes_of(void *ctx, int32_t id, size_t *n)
{
    static const char *const added[] = {"<end>", "<hidden>", "<tool_call>", "</think>"};
    static char one[256];
    (void)ctx;
    if (id < BYTES) {
        *n = strlen(added[id]);
        return added[id];
    }
    if (id < BYTES + 256) {
        one[id - BYTES] = (char)(id - BYTES);
        *n = 1;
        return &one[id - BYTES];
    }
    *n = strlen(longer[id - BYTES - 256]);
    return longer[id - BYTES - 256];
}

static int added(void *ctx, int32_t id)
{
    (void)ctx;
    return id == END || id == HIDDEN ? 2 : id < BYTES;
}

static int encode(void *ctx, const char *p, size_t n, int32_t *ids, int most)
{
    (void)ctx;
    int k = 0;
    for (; (size_t)k < n && k < most; k++) {
        ids[k] = BYTES + (unsigned char)p[k];
    }
    return k;
}

static struct words *make_words(void)
{
    const struct words_source s = {.n = VOCAB, .bytes = bytes_of, .added = added, .encode = encode};
    return words_create(&s);
}

static bool bit(const uint32_t *m, int32_t id)
{
    return m[id / 32] >> (id % 32) & 1;
}

static uint64_t next_random(uint64_t *s)
{
    *s += 0x9E3779B97F4A7C15U;
    uint64_t z = *s;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

static struct grammar *compile(enum grammar_kind kind, const char *text)
{
    struct grammar *g = NULL;
    struct err e = ERR_INIT;
    const int rc = grammar_compile(kind, text, strlen(text), false, &g, NULL, &e);
    if (rc < 0) {
        print_error("%s: %s\n", text, e.msg);
    }
    assert_int_equal(rc, 0);
    return g;
}

/* ---- schemas ---- */

static json_t *fixtures(void)
{
    const char *src = getenv("QUASAR_SRCDIR");
    char path[4096];
    json_t *v = NULL;
    struct err e = ERR_INIT;
    snprintf(path, sizeof path, "%s/tests/data/schemas.json", src ? src : "..");
    const int rc = json_parse_file(path, 1 << 20, &v, &e);
    if (rc < 0) {
        print_error("%s\n", e.msg);
    }
    assert_int_equal(rc, 0);
    return v;
}

static struct grammar *of_schema(const json_t *schema)
{
    struct buf b = BUF_INIT;
    json_write_exact(schema, &b);
    struct grammar *g = compile(GK_SCHEMA, b.data);
    buf_free(&b);
    return g;
}

/* Written without blanks, with the usual ones, and over several lines. */
static void in_every_way(struct grammar *g, const json_t *v, bool valid, const char *name)
{
    for (int way = 0; way < 3; way++) {
        const size_t flags[] = {JSON_COMPACT, 0, JSON_INDENT(2)};
        char *text = json_dumps(v, flags[way] | JSON_ENCODE_ANY | JSON_PRESERVE_ORDER);
        if (grammar_matches(g, text, strlen(text)) != valid) {
            fail_msg("%s: %s is %s", name, text, valid ? "not let through" : "let through");
        }
        free(text);
    }
}

static void values(void **state)
{
    (void)state;
    json_t *all = fixtures();
    assert_true(json_array_size(all) >= 50);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i), *schema = json_object_get(one, "schema");
        const char *name = json_string_value(json_object_get(one, "name"));
        struct grammar *g = of_schema(schema);
        size_t k = 0;
        json_t *v = NULL;
        json_array_foreach(json_object_get(one, "valid"), k, v)
        {
            assert_true(schema_accepts(schema, schema, v));
            in_every_way(g, v, true, name);
        }
        json_array_foreach(json_object_get(one, "invalid"), k, v)
        {
            assert_false(schema_accepts(schema, schema, v));
            in_every_way(g, v, false, name);
        }
        grammar_free(g);
    }
    json_decref(all);
}

/* The mask of a place lets exactly those tokens come whose bytes can. */
static void check_mask(struct grammar *g, const struct buf *text, const uint32_t *m)
{
    for (int32_t id = BYTES; id < VOCAB; id++) {
        size_t n = 0;
        const char *p = bytes_of(NULL, id, &n);
        struct buf with = BUF_INIT;
        buf_add(&with, text->data ? text->data : "", text->len);
        buf_add(&with, p, n);
        if (bit(m, id) != grammar_begins(g, with.data, with.len)) {
            fail_msg("token \"%s\" behind \"%s\"", p, text->data ? text->data : "");
        }
        buf_free(&with);
    }
    assert_int_equal(bit(m, END), grammar_matches(g, text->data ? text->data : "", text->len));
    assert_false(bit(m, HIDDEN) || bit(m, CALL) || bit(m, THOUGHT));
}

/* A walk of random tokens, which ends when it may, mostly, and always after `most`, when it
 * goes the way of short texts. Returns whether it came to its end. */
static bool random_walk(struct grammar *g, struct words *words, uint64_t seed, int most, bool look,
                        struct buf *text)
{
    const int32_t end[] = {END};
    const struct walk_opts o = {
        .grammar = g, .words = words, .end = end, .n_end = 1, .call_opener = -1};
    struct walk *w = walk_create(&o);
    bool over = false;
    for (int k = 0; k < most && !over; k++) {
        uint32_t m[WORDS];
        int32_t may[VOCAB], n = 0;
        walk_row(w, NULL, 0, m, WORDS);
        if (look && k % 4 == 0) {
            check_mask(g, text, m);
        }
        for (int32_t id = 0; id < VOCAB; id++) {
            if (bit(m, id)) {
                may[n++] = id;
            }
        }
        assert_true(n > 0);
        int32_t id = may[next_random(&seed) % (uint64_t)n];
        if (bit(m, END) && next_random(&seed) % 2 == 0) {
            id = END;
        } else if (bit(m, BYTES + '"') && next_random(&seed) % 3 == 0) {
            id = BYTES + '"'; /* or strings are all there is */
        }
        over = id == END;
        if (!over) {
            size_t len = 0;
            const char *p = bytes_of(NULL, id, &len);
            buf_add(text, p, len);
        }
        assert_int_equal(walk_legal(w, &id, 1), 1);
        walk_take(w, id);
    }
    walk_free(w);
    return over;
}

static void walks(void **state)
{
    (void)state;
    json_t *all = fixtures();
    struct words *words = make_words();
    const int times = getenv("QUASAR_LONG") ? 400 : 24;
    size_t ended = 0, bounded = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *one = json_array_get(all, i), *schema = json_object_get(one, "schema");
        struct grammar *g = of_schema(schema);
        /* Where names are left open, those that would come twice are not let come either. */
        const bool look = !json_is_true(json_object_get(one, "open"));
        for (int t = 0; t < times; t++) {
            struct buf text = BUF_INIT;
            const bool over =
                random_walk(g, words, (uint64_t)t * 1000 + i, 600, look && t < 2, &text);
            const bool has = json_is_true(json_object_get(one, "bounded"));
            bounded += has;
            ended += has && over;
            assert_true(grammar_begins(g, text.data ? text.data : "", text.len));
            if (over && !schema_accepts_text(schema, text.data ? text.data : "", text.len)) {
                fail_msg("%s: %s", json_string_value(json_object_get(one, "name")), text.data);
            }
            buf_free(&text);
        }
        grammar_free(g);
    }
    words_free(words);
    json_decref(all);
    assert_true(ended * 100 >= bounded * 95);
}

/* ---- the other languages ---- */

struct row {
    const char *grammar;
    const char *yes[4], *no[4];
};

static void check_rows(enum grammar_kind kind, const struct row *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct grammar *g = compile(kind, r[i].grammar);
        for (int k = 0; k < 4; k++) {
            if (r[i].yes[k] && !grammar_matches(g, r[i].yes[k], strlen(r[i].yes[k]))) {
                fail_msg("%s does not match %s", r[i].grammar, r[i].yes[k]);
            }
            if (r[i].no[k] && grammar_matches(g, r[i].no[k], strlen(r[i].no[k]))) {
                fail_msg("%s matches %s", r[i].grammar, r[i].no[k]);
            }
        }
        grammar_free(g);
    }
}

static void languages(void **state)
{
    (void)state;
    static const struct row regex[] = {{"abc", {"abc"}, {"ab", "abcd", ""}},
                                       {"^a|b$", {"a", "b"}, {"ab", ""}},
                                       {"a*b+c?", {"b", "aabbc"}, {"a", "bcc"}},
                                       {"[a-c]{2,3}", {"ab", "cab"}, {"a", "abca", "xy"}},
                                       {"[^a-y]{1}", {"z", "ß", "😀"}, {"a", "zz", "\xff"}},
                                       {"(?:ab|cd){2}", {"abcd", "cdcd"}, {"ab", "abab1"}},
                                       {"(?<n>x)(?P<m>y)", {"xy"}, {"x"}},
                                       {"\\d+\\.\\d{2}", {"1.23", "12.00"}, {"1.2", "1,23"}},
                                       {"\\w\\s\\S\\D", {"a bc", "_\tx-"}, {"a b1", "abcd"}},
                                       {".{0,2}", {"", "ü", "日本"}, {"abc", "\n"}},
                                       {"\\u00e4\\x41\\u{1F600}\\ud83d\\ude00", {"äA😀😀"}, {"aA"}},
                                       {"a{,2}", {"", "a", "aa"}, {"aaa", "a{,2}"}},
                                       {"x{y}", {"x{y}"}, {"xy"}},
                                       {"[]a", {NULL}, {"a", "]"}},
                                       {"(a*)*b", {"b", "aaab"}, {"a"}},
                                       {"[\\d\\-x]+", {"1-x"}, {"y"}}};
    check_rows(GK_REGEX, regex, 13);
    check_rows(GK_REGEX, regex + 14, 2);
    static const struct row choice[] = {{"[\"yes\",\"no\",\"yesterday\",\"日\"]",
                                         {"yes", "no", "yesterday", "日"},
                                         {"yest", "y", ""}}};
    check_rows(GK_CHOICE, choice, 1);
    static const struct row rules[] = {
        {"root ::= \"a\" b* # comment\nb ::= [0-9] | \"(\" root \")\"",
         {"a", "a12", "a(a1)2"},
         {"a(", "b", ""}},
        {"start: \"x\" (\"y\" | 'z'){2,3} // other\n", {"xyz", "xzzz"}, {"xy", "xyyyy"}},
        {"first = /[a-z]+/ second? ; second = \"\\n\" .;", {"ab", "ab\nü"}, {"ab\n", "1"}},
        {"expr ::= term (\"+\" term)*\nterm ::= num | \"(\" expr \")\"\nnum ::= [0-9]+",
         {"1+(2+3)", "((7))"},
         {"1+", "(1", ")"}}};
    check_rows(GK_EBNF, rules, 4);
    struct grammar *g = compile(GK_OBJECT, "");
    assert_true(grammar_matches(g, "{\"a\": [1, -2.5e3, {\"b\": null}]}", 31));
    assert_false(grammar_matches(g, "[1]", 3));
    assert_false(grammar_matches(g, "{\"a\": 01}", 9));
    assert_false(grammar_matches(g, "{\"\\ud800\": 1}", 13));
    assert_false(grammar_matches(g, "{\"\xc0\xaf\": 1}", 9));
    grammar_free(g);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        enum grammar_kind kind;
        const char *text;
        bool strict;
        int code;
        const char *says;
    } t[] = {
        {GK_SCHEMA, "{", false, QE_FORMAT, "schema"},
        {GK_SCHEMA, "[]", false, QE_FORMAT, "neither"},
        {GK_SCHEMA, "false", false, QE_USAGE, "nothing can match"},
        {GK_SCHEMA, "{\"type\":\"strin\"}", false, QE_FORMAT, "no such type"},
        {GK_SCHEMA, "{\"$ref\":\"#/a\"}", false, QE_FORMAT, "nowhere"},
        {GK_SCHEMA, "{\"$ref\":\"http://x/y\"}", false, QE_USAGE, "its own"},
        {GK_SCHEMA, "{\"$ref\":\"#\"}", false, QE_USAGE, "nothing can match"},
        {GK_SCHEMA, "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", false, QE_USAGE,
         "itself"},
        {GK_SCHEMA, "{\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", false,
         QE_USAGE, "nothing can match"},
        {GK_SCHEMA, "{\"type\":\"array\",\"minItems\":-1}", false, QE_FORMAT, "bound"},
        {GK_SCHEMA, "{\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":3}", false, QE_USAGE,
         "nothing can match"},
        {GK_SCHEMA, "{\"type\":\"integer\",\"minimum\":18446744073709551616}", false, QE_USAGE,
         "beyond 64 bits cannot be kept exactly at #"},
        {GK_SCHEMA, "{\"items\":{\"exclusiveMaximum\":-9223372036854775809}}", false, QE_USAGE,
         "beyond 64 bits cannot be kept exactly at #/items"},
        {GK_SCHEMA, "{\"enum\":[1,18446744073709551615]}", false, QE_USAGE,
         "beyond 64 bits cannot be kept exactly"},
        {GK_SCHEMA, "{\"type\":\"array\",\"uniqueItems\":true}", true, QE_USAGE, "uniqueItems"},
        {GK_SCHEMA, "{\"type\":\"string\",\"pattern\":\"(?=a)b\"}", true, QE_USAGE, "pattern"},
        {GK_SCHEMA, "{\"type\":\"string\",\"pattern\":\"(a\"}", false, QE_FORMAT, "is missing"},
        {GK_REGEX, "a(", false, QE_FORMAT, "is missing"},
        {GK_REGEX, "a)", false, QE_FORMAT, "is missing"},
        {GK_REGEX, "[b-a]", false, QE_FORMAT, "wrong way"},
        {GK_REGEX, "a{3,2}", false, QE_FORMAT, "wrong way"},
        {GK_REGEX, "*a", false, QE_FORMAT, "nothing to repeat"},
        {GK_REGEX, "\\bx", false, QE_USAGE, "not understood"},
        {GK_REGEX, "(?!a)", false, QE_USAGE, "not understood"},
        {GK_REGEX, "\xff", false, QE_FORMAT, "UTF-8"},
        {GK_REGEX, "[^\\s\\S]", false, QE_USAGE, "nothing can match"},
        {GK_CHOICE, "[]", false, QE_FORMAT, "choices"},
        {GK_CHOICE, "[1]", false, QE_FORMAT, "choice 1"},
        {GK_EBNF, "", false, QE_FORMAT, "no rules"},
        {GK_EBNF, "a ::= b", false, QE_FORMAT, "no rule \"b\""},
        {GK_EBNF, "a ::= \"x", false, QE_FORMAT, "no end"},
        {GK_EBNF, "a ::= \"x\"\na ::= \"y\"", false, QE_FORMAT, "already in line 2"},
        {GK_EBNF, "a ::= a \"x\" | \"y\"", false, QE_USAGE, "begins with itself"},
        {GK_EBNF, "a ::= b? a | \"y\"\nb ::= \"z\"", false, QE_USAGE, "begins with itself"}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct grammar *g = NULL;
        struct err e = ERR_INIT;
        const int rc =
            grammar_compile(t[i].kind, t[i].text, strlen(t[i].text), t[i].strict, &g, NULL, &e);
        if (rc != t[i].code || !strstr(e.msg, t[i].says)) {
            fail_msg("%s: %d \"%s\"", t[i].text, rc, e.msg);
        }
    }
    struct buf notes = BUF_INIT;
    struct grammar *g = NULL;
    static const char loose[] = "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"type\":"
                                "\"string\",\"pattern\":\"\\\\bx\"}}";
    assert_int_equal(grammar_compile(GK_SCHEMA, loose, sizeof loose - 1, false, &g, &notes, NULL),
                     0);
    assert_non_null(strstr(notes.data, "uniqueItems at #"));
    assert_non_null(strstr(notes.data, "pattern at #/items"));
    grammar_free(g);
    buf_free(&notes);
}

/* Bounds that no double has, and those that have more than 64 bits. */
static void large_numbers(void **state)
{
    (void)state;
    static const struct row t[] = {
        {"{\"type\":\"integer\",\"minimum\":9007199254740993,\"exclusiveMinimum\":9007199254740992,"
         "\"maximum\":9007199254740995}",
         {"9007199254740993", "9007199254740995"},
         {"9007199254740992", "9007199254740996"}},
        {"{\"allOf\":[{\"type\":\"integer\",\"minimum\":9007199254740993},"
         "{\"minimum\":9007199254740992,\"maximum\":9007199254740999}]}",
         {"9007199254740993"},
         {"9007199254740992"}},
        {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":18446744073709551615}",
         {"0", "1000000000000000000", "9223372036854775807"},
         {"-1", "9223372036854775808", "18446744073709551616", "1e2"}},
        {"{\"type\":\"integer\",\"minimum\":-99999999999999999999,\"maximum\":-"
         "1000000000000000000}",
         {"-1000000000000000000", "-9223372036854775807"},
         {"-999999999999999999", "-9223372036854775809"}},
        {"{\"type\":\"number\",\"maximum\":1e300}", {"1.5", "-0.25", "0"}, {"1e99", "1e1"}},
        {"{\"type\":\"number\",\"minimum\":1e-30,\"maximum\":1}",
         {"0.5", "1", "0.000000000000000001"},
         {"0", "0.0", "-0.5"}},
        {"{\"type\":\"number\",\"maximum\":1e-30,\"minimum\":-1}", {"0", "-0.5"}, {"0.1"}},
        {"{\"type\":\"number\",\"minimum\":-1e-30,\"maximum\":1}", {"0", "0.1"}, {"-0.1"}}};
    check_rows(GK_SCHEMA, t, sizeof t / sizeof *t);
}

/* ---- walks in a conversation ---- */

static void must_take(struct walk *w, const char *text)
{
    for (; *text; text++) {
        const int32_t id = BYTES + (unsigned char)*text;
        assert_int_equal(walk_legal(w, &id, 1), 1);
        walk_take(w, id);
    }
}

static void thoughts(void **state)
{
    (void)state;
    struct words *words = make_words();
    struct grammar *g = compile(GK_REGEX, "[ab]{3}");
    const int32_t end[] = {END};
    struct walk_opts o = {.grammar = g,
                          .words = words,
                          .end = end,
                          .n_end = 1,
                          .in_thought = true,
                          .call_opener = CALL};
    uint32_t m[WORDS];
    struct walk *w = walk_create(&o);
    walk_row(w, NULL, 0, m, WORDS);
    assert_true(bit(m, BYTES + 'z') && bit(m, THOUGHT) && bit(m, CALL));
    assert_false(bit(m, END) || bit(m, HIDDEN));
    /* The switch comes inside a round: rows behind the end of the thought are of the answer. */
    const int32_t draft[] = {BYTES + 'z', THOUGHT, BYTES + '\n', BYTES + 'a', BYTES + 'c'};
    assert_int_equal(walk_legal(w, draft, 5), 4);
    walk_row(w, draft, 3, m, WORDS);
    assert_true(bit(m, BYTES + 'a') && bit(m, BYTES + '\n') && bit(m, CALL));
    assert_false(bit(m, BYTES + 'z') || bit(m, END) || bit(m, THOUGHT));
    walk_row(w, draft, 4, m, WORDS);
    assert_false(bit(m, BYTES + '\n') || bit(m, CALL));
    walk_row(w, draft, 5, m, WORDS);
    for (int i = 0; i < WORDS; i++) {
        assert_int_equal(m[i], 0);
    }
    /* Written out, the end of a thought is its end too. */
    must_take(w, "hm</thin</think>\n\nab");
    assert_false(walk_complete(w));
    must_take(w, "a");
    assert_true(walk_complete(w));
    walk_row(w, NULL, 0, m, WORDS);
    assert_true(bit(m, END));
    m[0] &= ~1U;
    for (int i = 0; i < WORDS; i++) {
        assert_int_equal(m[i], 0);
    }
    walk_free(w);
    /* A call in the place of the answer is free. */
    o.in_thought = false;
    w = walk_create(&o);
    const int32_t call[] = {CALL, BYTES + 'q', END};
    assert_int_equal(walk_legal(w, call, 3), 3);
    walk_take(w, BYTES + 'a');
    assert_int_equal(walk_legal(w, call, 3), 0);
    walk_free(w);
    grammar_free(g);
    words_free(words);
}

/* Names come once in each object, also where drafts are before them. */
static void names_once(void **state)
{
    (void)state;
    struct words *words = make_words();
    struct grammar *g = compile(GK_OBJECT, "");
    const int32_t end[] = {END};
    const struct walk_opts o = {
        .grammar = g, .words = words, .end = end, .n_end = 1, .call_opener = -1};
    struct walk *w = walk_create(&o);
    uint32_t m[WORDS];
    int32_t draft[8], n = 0;
    must_take(w, "{\"ab\": {\"na\": \"\\\"x\", \"na\\n\": [{\"ab\": 1}]}, \"na");
    for (const char *p = "\": 1, \"a"; *p; p++) {
        draft[n++] = BYTES + (unsigned char)*p;
    }
    walk_row(w, NULL, 0, m, WORDS);
    assert_true(bit(m, BYTES + '"')); /* the one inside is another's */
    walk_row(w, draft, n, m, WORDS);
    assert_true(bit(m, BYTES + '"') && bit(m, BYTES + 'b'));
    must_take(w, "\": {\"na\": 1, \"n");
    walk_row(w, NULL, 0, m, WORDS);
    assert_true(bit(m, BYTES + '"') && bit(m, BYTES + 'a'));
    must_take(w, "a");
    walk_row(w, NULL, 0, m, WORDS);
    assert_false(bit(m, BYTES + '"'));
    must_take(w, "me\": {}}, \"a");
    walk_row(w, NULL, 0, m, WORDS);
    assert_true(bit(m, BYTES + '"') && bit(m, BYTES + 'b'));
    draft[0] = BYTES + 'b';
    walk_row(w, draft, 1, m, WORDS);
    assert_false(bit(m, BYTES + '"')); /* there from the beginning */
    assert_true(bit(m, BYTES + 'b'));
    walk_row(w, NULL, 0, m, WORDS);
    for (int32_t id = BYTES + 256; id < VOCAB; id++) {
        size_t len = 0;
        const char *p = bytes_of(NULL, id, &len);
        if (strcmp(p, "ab\"") == 0) {
            assert_true(bit(m, id)); /* aab */
        }
    }
    walk_free(w);
    grammar_free(g);
    words_free(words);
}

static void forced(void **state)
{
    (void)state;
    struct words *words = make_words();
    struct grammar *g =
        compile(GK_SCHEMA, "{\"type\":\"object\",\"properties\":{\"size\":{\"enum\":"
                           "[\"small\",\"large\"]}},\"required\":[\"size\"],"
                           "\"additionalProperties\":false}");
    const struct walk_opts o = {.grammar = g, .words = words, .call_opener = -1};
    struct walk *w = walk_create(&o);
    static const char *const parts[] = {"{\"size\": \"", "mall\"}"};
    for (int part = 0; part < 2; part++) {
        int32_t ids[32];
        const int n = walk_forced(w, ids, 32);
        assert_int_equal(n, strlen(parts[part]));
        for (int i = 0; i < n; i++) {
            assert_int_equal(ids[i], BYTES + (unsigned char)parts[part][i]);
        }
        assert_int_equal(walk_legal(w, ids, n), n);
        must_take(w, parts[part]);
        if (part == 0) {
            assert_int_equal(walk_forced(w, ids, 32), 0);
            must_take(w, "s");
        }
    }
    assert_true(walk_complete(w));
    walk_free(w);
    grammar_free(g);
    words_free(words);
}

/* Many states: they are forgotten on the way, and the walks go on. */
static void long_answers(void **state)
{
    (void)state;
    struct words *words = make_words();
    struct grammar *g = compile(GK_SCHEMA, "{\"type\":\"array\",\"items\":{\"type\":\"string\","
                                           "\"maxLength\":70000},\"maxItems\":3}");
    const int32_t end[] = {END};
    const struct walk_opts o = {
        .grammar = g, .words = words, .end = end, .n_end = 1, .call_opener = -1};
    struct walk *w = walk_create(&o), *other = walk_create(&o);
    must_take(w, "[\"");
    must_take(other, "[\"ab");
    uint32_t m[WORDS];
    for (int i = 0; i < 70000; i++) {
        const int32_t id = BYTES + 'x';
        if (walk_legal(w, &id, 1) != 1) {
            fail_msg("character %d", i);
        }
        walk_take(w, id);
    }
    walk_row(w, NULL, 0, m, WORDS);
    assert_true(bit(m, BYTES + '"'));
    assert_false(bit(m, BYTES + 'x'));
    must_take(w, "\"]");
    must_take(other, "c\", \"\"]");
    assert_true(walk_complete(w) && walk_complete(other));
    walk_free(w);
    walk_free(other);
    grammar_free(g);
    words_free(words);
}

/* ---- calls ---- */

static void calls(void **state)
{
    (void)state;
    static const char text[] =
        "[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":"
        "\"object\","
        "\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":9},\"note\":{"
        "\"type\":"
        "\"string\"}},\"required\":[\"a\"]}}},{\"type\":\"function\",\"function\":{\"name\":"
        "\"stop\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}}}]";
    json_t *tools = json_loads(text, 0, NULL);
    struct grammar_tools t = {.tools = tools, .dialect = GD_XML, .several = true};
    struct grammar *g = NULL;
    static const struct {
        bool yes;
        const char *xml;
    } rows[] = {
        {true,
         "<tool_call>\n<function=add>\n<parameter=a>\n3\n</parameter>\n</function>\n</tool_call>"},
        {true, "<tool_call>\n<function=add>\n<parameter=a>\n3\n</parameter>\n<parameter=note>\nany "
               "<b>\n</p\n\n</parameter>\n</function>\n</tool_call>"},
        {true,
         "<tool_call>\n<function=stop>\n</function>\n</tool_call>\n<tool_call>\n<function=stop>\n"
         "</function>\n</tool_call>"},
        {false, "<tool_call>\n<function=add>\n</function>\n</tool_call>"},
        {false,
         "<tool_call>\n<function=add>\n<parameter=a>\n10\n</parameter>\n</function>\n</tool_call>"},
        {false, "<tool_call>\n<function=sub>\n</function>\n</tool_call>"},
        {false, "hello"}};
    assert_int_equal(grammar_calls(&t, &g, NULL, NULL), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(grammar_matches(g, rows[i].xml, strlen(rows[i].xml)), rows[i].yes);
    }
    grammar_free(g);
    t = (struct grammar_tools){.tools = tools, .dialect = GD_XML, .from = GF_TAG, .loose = true};
    json_object_set_new(json_object_get(json_array_get(tools, 0), "function"), "strict",
                        json_true());
    assert_int_equal(grammar_calls(&t, &g, NULL, NULL), 0);
    static const char *const loose[] = {
        "\n<function=add>\n<parameter=a>\n3\n</parameter>\n</function>\n</tool_call>",
        "\n<function=stop>\n<parameter=x-y.z>\nany\n</parameter>\n</function>\n</tool_call>"};
    assert_true(grammar_matches(g, loose[0], strlen(loose[0])));
    assert_true(grammar_matches(g, loose[1], strlen(loose[1])));
    assert_false(grammar_begins(g, "\n<function=add>\n<parameter=b", 30));
    grammar_free(g);
    t = (struct grammar_tools){.tools = tools, .only = "add", .dialect = GD_JSON, .from = GF_LINE};
    assert_int_equal(grammar_calls(&t, &g, NULL, NULL), 0);
    static const char json[] = "{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tool_call>";
    assert_true(grammar_matches(g, json, sizeof json - 1));
    assert_false(grammar_begins(g, "{\"name\": \"stop\"", 15));
    grammar_free(g);
    t.only = "none";
    struct err e = ERR_INIT;
    assert_int_equal(grammar_calls(&t, &g, NULL, &e), QE_USAGE);
    assert_non_null(strstr(e.msg, "none"));
    json_decref(tools);
}

/* Texts of a call are written as they are, however its schema says that they are texts. */
static void values_of_calls(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *yes[4], *no[3];
    } t[] = {{"{\"enum\":[\"a b\",\"c\",1,null]}", {"a b", "c", "1", "null"}, {"\"c\"", "2", "d"}},
             {"{\"type\":[\"string\",\"integer\"],\"enum\":[\"c\",1,true]}",
              {"c", "1"},
              {"true", "\"c\""}},
             {"{\"const\":\"x\"}", {"x"}, {"\"x\"", "y"}},
             {"{\"const\":5}", {"5"}, {"6", "\"5\""}},
             {"{\"anyOf\":[{\"enum\":[\"on\",\"off\"]},{\"type\":\"null\"}]}",
              {"on", "null"},
              {"\"on\"", "x"}},
             {"{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]}",
              {"any <b>", "", "null"},
              {NULL}},
             {"{\"$ref\":\"#/$defs/c\"}", {"red"}, {"\"red\"", "1"}},
             {"{\"allOf\":[{\"$ref\":\"#/$defs/c\"}]}", {"red"}, {"\"red\""}},
             {"{\"type\":\"array\",\"items\":{\"enum\":[\"a\"]}}",
              {"[]", "[\"a\", \"a\"]"},
              {"a", "[a]"}},
             {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"boolean\"}]}",
              {"7", "true"},
              {"x", "\"7\""}}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct buf def = BUF_INIT;
        struct grammar *g = NULL;
        buf_printf(&def,
                   "[{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"v\":%s},"
                   "\"required\":[\"v\"],\"$defs\":{\"c\":{\"enum\":[\"red\"]}}}}]",
                   t[i].schema);
        json_t *tools = json_loads(def.data, 0, NULL);
        const struct grammar_tools how = {.tools = tools, .dialect = GD_XML, .from = GF_LINE};
        assert_int_equal(grammar_calls(&how, &g, NULL, NULL), 0);
        for (int k = 0; k < 7; k++) {
            const char *text = k < 4 ? t[i].yes[k] : t[i].no[k - 4];
            struct buf call = BUF_INIT;
            buf_printf(&call,
                       "<function=f>\n<parameter=v>\n%s\n</parameter>\n</function>\n</tool_call>",
                       text ? text : "");
            if (text && grammar_matches(g, call.data, call.len) != (k < 4)) {
                fail_msg("%s: %s", t[i].schema, text);
            }
            buf_free(&call);
        }
        grammar_free(g);
        json_decref(tools);
        buf_free(&def);
    }
}

/* Calls that may come are judged, and nothing around them is. */
static void between_calls(void **state)
{
    (void)state;
    struct words *words = make_words();
    struct grammar *g = compile(GK_REGEX, "\\n[ab]{2}!");
    const int32_t end[] = {END};
    struct walk_opts o = {.grammar = g,
                          .words = words,
                          .end = end,
                          .n_end = 1,
                          .in_thought = true,
                          .call_opener = CALL,
                          .between = true};
    uint32_t m[WORDS];
    for (int thought = 0; thought < 2; thought++) {
        o.in_thought = thought == 1;
        struct walk *w = walk_create(&o);
        int32_t ids[8];
        if (thought == 1) { /* one in a thought opens nothing */
            walk_take(w, CALL);
            walk_row(w, NULL, 0, m, WORDS);
            assert_true(bit(m, BYTES + 'z') && bit(m, END) && bit(m, HIDDEN));
            must_take(w, "hm</th");
            must_take(w, "ink>");
        }
        for (int times = 0; times < 2; times++) {
            must_take(w, "x\"y");
            /* In one round: text, a call, and text again. */
            const int32_t draft[] = {BYTES + 'q', CALL,        BYTES + '\n', BYTES + 'a',
                                     BYTES + 'b', BYTES + '!', BYTES + 'z'};
            assert_int_equal(walk_legal(w, draft, 7), 7);
            const int32_t wrong[] = {CALL, BYTES + '\n', END};
            assert_int_equal(walk_legal(w, wrong, 3), 2);
            assert_int_equal(walk_forced(w, ids, 8), 0);
            walk_row(w, draft, 3, m, WORDS);
            assert_true(bit(m, BYTES + 'a'));
            assert_false(bit(m, BYTES + 'z') || bit(m, END) || bit(m, CALL));
            walk_row(w, draft, 6, m, WORDS);
            assert_true(bit(m, BYTES + 'z') && bit(m, END) && bit(m, CALL));
            walk_take(w, CALL);
            must_take(w, "\nba");
            assert_int_equal(walk_forced(w, ids, 8), 1);
            assert_int_equal(ids[0], BYTES + '!');
            must_take(w, "!");
            assert_false(walk_complete(w));
        }
        walk_take(w, END);
        assert_true(walk_complete(w));
        walk_free(w);
    }
    grammar_free(g);
    words_free(words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),        cmocka_unit_test(walks),
        cmocka_unit_test(languages),     cmocka_unit_test(refusals),
        cmocka_unit_test(thoughts),      cmocka_unit_test(forced),
        cmocka_unit_test(long_answers),  cmocka_unit_test(calls),
        cmocka_unit_test(large_numbers), cmocka_unit_test(names_once),
        cmocka_unit_test(between_calls), cmocka_unit_test(values_of_calls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
