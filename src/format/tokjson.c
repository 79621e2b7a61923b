/* The tokenizer's forms. The family's normaliser, split pattern and byte
 * alphabet never change, so lists of tokens and merges are all there is to a
 * tokenizer; the pattern has two generations. */
#include "config.h"
#include "format/tokjson.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "base/utf8.h"

#define MAX_TOKENS 2000000
#define MAX_MERGES 4000000

/* The published split patterns: marks belong to words since Qwen3.5. */
static const char pattern_marks[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char pattern_plain[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

void tok_list_fini(struct tok_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->tokens[i]);
    }
    for (size_t i = 0; i < l->n_merges; i++) {
        free(l->merges[i]);
    }
    free(l->tokens);
    free(l->types);
    free(l->merges);
    memset(l, 0, sizeof *l);
}

static int check_text(const char *s, size_t n, const char *kind, struct err *e)
{
    if (memchr(s, 0, n) || !utf8_valid(s, n)) {
        return err_set(e, QE_FORMAT, "the tokenizer has a %s that is no text", kind);
    }
    return 0;
}

int tok_list_token(struct tok_list *l, int64_t id, const char *s, size_t n, enum tok_type type,
                   struct err *e)
{
    if (id < 0 || id >= MAX_TOKENS) {
        return err_set(e, QE_FORMAT, "the tokenizer's id %lld is out of range", (long long)id);
    }
    int rc = check_text(s, n, "token", e);
    if (rc < 0) {
        return rc;
    }
    size_t i = (size_t)id;
    if (i >= l->cap) {
        l->cap = l->cap ? l->cap : 1024;
        while (i >= l->cap) {
            l->cap *= 2;
        }
        l->tokens = mem_realloc(l->tokens, l->cap * sizeof *l->tokens);
        l->types = mem_realloc(l->types, l->cap);
    }
    for (; l->n <= i; l->n++) {
        l->tokens[l->n] = NULL;
        l->types[l->n] = TOK_UNUSED;
    }
    free(l->tokens[i]);
    l->tokens[i] = mem_strndup(s, n);
    l->types[i] = (uint8_t)type;
    return 0;
}

int tok_list_merge(struct tok_list *l, const char *s, size_t n, struct err *e)
{
    int rc = check_text(s, n, "merge", e);
    if (rc == 0 && l->n_merges == MAX_MERGES) {
        rc = err_set(e, QE_FORMAT, "the tokenizer has more than %d merges", MAX_MERGES);
    }
    if (rc < 0) {
        return rc;
    }
    if ((l->n_merges & (l->n_merges - 1)) == 0) {
        size_t cap = l->n_merges ? 2 * l->n_merges : 1;
        l->merges = mem_realloc(l->merges, cap * sizeof *l->merges);
    }
    l->merges[l->n_merges++] = mem_strndup(s, n);
    return 0;
}

static int bad(struct err *e, const char *what)
{
    return err_set(e, QE_FORMAT, "tokenizer.json: %s", what);
}

static int parse_vocab(struct tok_list *l, const json_t *vocab, struct err *e)
{
    const char *key;
    size_t n;
    json_t *v;
    json_object_keylen_foreach((json_t *)(uintptr_t)vocab, key, n, v)
    {
        if (!json_is_integer(v)) {
            return bad(e, "an id in model.vocab is not an integer");
        }
        int rc = tok_list_token(l, json_integer_value(v), key, n, TOK_NORMAL, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int parse_merges(struct tok_list *l, const json_t *merges, struct err *e)
{
    struct buf b = BUF_INIT;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(merges); i++) {
        const json_t *m = json_array_get(merges, i);
        const json_t *left = json_array_get(m, 0);
        const json_t *right = json_array_get(m, 1);
        buf_truncate(&b, 0);
        if (json_is_string(m)) {
            buf_add(&b, json_string_value(m), json_string_length(m));
        } else if (json_is_string(left) && json_is_string(right)) {
            buf_add(&b, json_string_value(left), json_string_length(left));
            buf_addc(&b, ' ');
            buf_add(&b, json_string_value(right), json_string_length(right));
        } else {
            rc = bad(e, "a merge is neither a string nor a pair");
            break;
        }
        rc = tok_list_merge(l, b.data, b.len, e);
    }
    buf_free(&b);
    return rc;
}

static int parse_added(struct tok_list *l, const json_t *list, struct err *e)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *a = json_array_get(list, i);
        const json_t *id = json_object_get(a, "id");
        const json_t *s = json_object_get(a, "content");
        if (!json_is_integer(id) || !json_is_string(s)) {
            return bad(e, "an added token has no id or no content");
        }
        bool special = json_is_true(json_object_get(a, "special"));
        int rc = tok_list_token(l, json_integer_value(id), json_string_value(s),
                                json_string_length(s), special ? TOK_CONTROL : TOK_USER, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* added_tokens_decoder of tokenizer_config.json knows some that are not in
 * tokenizer.json */
static int parse_decoder(struct tok_list *l, const json_t *config, struct err *e)
{
    const char *key;
    json_t *v;
    json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, v)
    {
        const json_t *s = json_object_get(v, "content");
        char *end = NULL;
        long long id = strtoll(key, &end, 10);
        if (*end || end == key || !json_is_string(s)) {
            return err_set(e, QE_FORMAT,
                           "tokenizer_config.json: added_tokens_decoder has a bad entry");
        }
        if (id >= 0 && (size_t)id < l->n && l->tokens[id]) {
            continue;
        }
        bool special = json_is_true(json_object_get(v, "special"));
        int rc = tok_list_token(l, id, json_string_value(s), json_string_length(s),
                                special ? TOK_CONTROL : TOK_USER, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

/* Any pattern in the pre-tokenizer that gives marks to words. */
static bool has_marks(const json_t *pre)
{
    char *s = json_dumps(pre, JSON_COMPACT | JSON_ENCODE_ANY);
    bool found = s && strstr(s, "\\\\p{L}\\\\p{M}");
    free(s);
    return found;
}

int tok_list_parse(struct tok_list *l, const char *json, size_t n, const char *config,
                   size_t config_n, struct err *e)
{
    json_t *root = NULL;
    json_t *conf = NULL;
    int rc = json_parse(json, n, "tokenizer.json", &root, e);
    if (rc < 0) {
        return rc;
    }
    const json_t *model = json_object_get(root, "model");
    const json_t *vocab = json_object_get(model, "vocab");
    if (!json_is_object(vocab) || !json_is_array(json_object_get(model, "merges"))) {
        rc = bad(e, "it has no byte-pair model (model.vocab, model.merges)");
    }
    if (rc == 0) {
        rc = parse_vocab(l, vocab, e);
    }
    if (rc == 0) {
        rc = parse_merges(l, json_object_get(model, "merges"), e);
    }
    if (rc == 0) {
        rc = parse_added(l, json_object_get(root, "added_tokens"), e);
    }
    if (rc == 0 && config) {
        rc = json_parse(config, config_n, "tokenizer_config.json", &conf, e);
    }
    if (rc == 0 && conf) {
        rc = parse_decoder(l, conf, e);
    }
    l->marks_in_words = has_marks(json_object_get(root, "pre_tokenizer"));
    json_decref(root);
    json_decref(conf);
    return rc;
}

static json_t *byte_level(bool prefix)
{
    return json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", prefix,
                     "trim_offsets", 0, "use_regex", prefix);
}

int tok_list_json(const struct tok_list *l, char **out, struct err *e)
{
    json_t *added = json_array();
    json_t *vocab = json_object();
    json_t *merges = json_array();
    for (size_t i = 0; i < l->n; i++) {
        if (!l->tokens[i] || l->types[i] == TOK_UNUSED) {
            continue;
        }
        if (l->types[i] == TOK_NORMAL) {
            json_object_set_new(vocab, l->tokens[i], json_integer((json_int_t)i));
            continue;
        }
        json_array_append_new(added, json_pack("{s:I,s:s,s:b,s:b,s:b,s:b,s:b}", "id", (json_int_t)i,
                                               "content", l->tokens[i], "single_word", 0, "lstrip",
                                               0, "rstrip", 0, "normalized", 0, "special",
                                               l->types[i] == TOK_CONTROL));
    }
    for (size_t i = 0; i < l->n_merges; i++) {
        json_array_append_new(merges, json_string(l->merges[i]));
    }
    const char *pattern = l->marks_in_words ? pattern_marks : pattern_plain;
    json_t *split = json_pack("{s:s,s:{s:s},s:s,s:b}", "type", "Split", "pattern", "Regex", pattern,
                              "behavior", "Isolated", "invert", 0);
    json_t *pre =
        json_pack("{s:s,s:[o,o]}", "type", "Sequence", "pretokenizers", split, byte_level(false));
    json_t *model =
        json_pack("{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:b,s:o,s:o}", "type", "BPE", "dropout",
                  "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                  "byte_fallback", 0, "ignore_merges", 0, "vocab", vocab, "merges", merges);
    json_t *root = json_pack("{s:s,s:n,s:n,s:o,s:{s:s},s:o,s:o,s:o,s:o}", "version", "1.0",
                             "truncation", "padding", "added_tokens", added, "normalizer", "type",
                             "NFC", "pre_tokenizer", pre, "post_processor", byte_level(false),
                             "decoder", byte_level(true), "model", model);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    json_decref(root);
    if (!text) {
        return err_set(e, QE_INTERNAL, "the tokenizer cannot be written as JSON");
    }
    *out = text;
    return 0;
}

/* Little-endian numbers and strings of a .tok. */
struct cursor {
    const unsigned char *p;
    size_t n;
    bool bad;
};

static uint64_t take(struct cursor *c, size_t width)
{
    uint64_t v = 0;
    if (c->bad || c->n < width) {
        c->bad = true;
        return 0;
    }
    for (size_t i = 0; i < width; i++) {
        v |= (uint64_t)c->p[i] << (8 * i);
    }
    c->p += width;
    c->n -= width;
    return v;
}

static const char *take_str(struct cursor *c, size_t *n)
{
    *n = (size_t)take(c, 2);
    if (c->bad || c->n < *n) {
        c->bad = true;
        *n = 0;
    }
    const char *s = (const char *)c->p;
    c->p += *n;
    c->n -= *n;
    return s;
}

int tokjson_from_tok(const char *p, size_t n, const char *what, char **out, struct err *e)
{
    struct cursor c = {(const unsigned char *)p, n, false};
    struct tok_list l = {.marks_in_words = true}; /* version 1 holds nothing older */
    take(&c, 8);
    uint64_t count = take(&c, 4);
    take(&c, 8);
    int rc = 0;
    for (uint64_t i = 0; rc == 0 && i < count && !c.bad; i++) {
        size_t k = 0;
        const char *s = take_str(&c, &k);
        rc = tok_list_token(&l, (int64_t)i, s, k, TOK_NORMAL, e);
    }
    for (uint64_t i = 0; rc == 0 && i < count && !c.bad; i++) {
        l.types[i] = (uint8_t)take(&c, 1);
    }
    uint64_t merges = take(&c, 4);
    for (uint64_t i = 0; rc == 0 && i < merges && !c.bad; i++) {
        size_t k = 0;
        const char *s = take_str(&c, &k);
        rc = tok_list_merge(&l, s, k, e);
    }
    if (rc == 0 && c.bad) {
        rc = err_set(e, QE_FORMAT, "the tokenizer beside it (.tok) is cut off");
    }
    if (rc == 0) {
        rc = tok_list_json(&l, out, e);
    }
    tok_list_fini(&l);
    return rc < 0 ? err_wrap(e, rc, "%s", what) : 0;
}
