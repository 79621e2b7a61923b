/* tokenizer.json and tokenizer_config.json. The vocabulary and the merges, all
 * but a few kilobytes of the file, go by in a forward reader; the small members
 * are cut out and parsed into trees. Whatever would change the ids and is not
 * what this family uses is refused by its name. */
#include "config.h"
#include "tokenizer/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "tokenizer/jscan.h"

enum member { M_MODEL, M_ADDED, M_NORMALIZER, M_PRETOK, M_POST, M_DECODER, M_COUNT };
static const char *const member_name[M_COUNT] = {"model",         "added_tokens",   "normalizer",
                                                 "pre_tokenizer", "post_processor", "decoder"};

static const char *type_of(const json_t *o)
{
    const char *s = json_string_value(json_object_get(o, "type"));
    return s ? s : "without a type";
}

static int unsupported(const char *what, const char *value, struct err *e)
{
    char q[QUOTED_MAX];
    return err_set(e, QE_UNSUPPORTED, "%s \"%s\" is not one that Quasar knows", what,
                   vocab_quote(value, strlen(value), q));
}

static bool is_on(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}

/* null, or an object of the given type. */
static int check_type(const json_t *v, const char *what, const char *type, struct err *e)
{
    return json_is_null(v) || strcmp(type_of(v), type) == 0 ? 0 : unsupported(what, type_of(v), e);
}

static int check_pretok(struct tokenizer *t, const json_t *v, struct err *e)
{
    if (strcmp(type_of(v), "Sequence") != 0) {
        return unsupported("the pre-tokenizer", type_of(v), e);
    }
    const json_t *list = json_object_get(v, "pretokenizers");
    const json_t *split = json_array_get(list, 0);
    const json_t *bytes = json_array_get(list, 1);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *type = type_of(json_array_get(list, i));
        if (i > 1 || strcmp(type, i == 0 ? "Split" : "ByteLevel") != 0) {
            return unsupported("the pre-tokenizer step", type, e);
        }
    }
    const json_t *regex = json_object_get(json_object_get(split, "pattern"), "Regex");
    const char *behavior = json_string_value(json_object_get(split, "behavior"));
    if (!json_is_string(regex) || !json_is_object(bytes)) {
        return err_set(e, QE_FORMAT,
                       "the pre-tokenizer is not a Split by a Regex followed by ByteLevel");
    }
    if (!behavior || strcmp(behavior, "Isolated") != 0 || is_on(split, "invert")) {
        return unsupported("the Split behavior", behavior ? behavior : "", e);
    }
    if (is_on(bytes, "add_prefix_space") || !json_is_false(json_object_get(bytes, "use_regex"))) {
        return unsupported("the ByteLevel option",
                           is_on(bytes, "add_prefix_space") ? "add_prefix_space" : "use_regex", e);
    }
    return pretok_create(json_string_value(regex), json_string_length(regex), &t->pretok, e);
}

static int add_token(struct tokenizer *t, const json_t *o, int64_t id, struct err *e)
{
    static const char *const options[] = {"single_word", "lstrip", "rstrip", "normalized"};
    const json_t *text = json_object_get(o, "content");
    if (!json_is_string(text)) {
        return err_set(e, QE_FORMAT, "the added token %" PRId64 " has no text (\"content\")", id);
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (is_on(o, options[i])) {
            return unsupported("the added-token option", options[i], e);
        }
    }
    return vocab_add_added(t, id, json_string_value(text), json_string_length(text),
                           is_on(o, "special"), e);
}

static int add_tokens(struct tokenizer *t, const json_t *list, struct err *e)
{
    if (!json_is_array(list)) {
        return err_set(e, QE_FORMAT, "\"added_tokens\" is not a list");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *o = json_array_get(list, i);
        int64_t id = 0;
        int rc = json_get_int(o, "id", true, 0, VOCAB_MAX_IDS - 1, &id, e);
        if (rc < 0) {
            return err_wrap(e, rc, "added token number %zu", i);
        }
        rc = add_token(t, o, id, e);
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int read_vocab(struct tokenizer *t, struct jscan *s)
{
    int rc = jscan_expect(s, '{');
    bool first = true;
    while (rc == 0 && (rc = jscan_next(s, '}', &first)) == 1) {
        struct jtext text;
        int64_t id = 0;
        rc = jscan_key(s, &text);
        /* the text of a key with escapes lives until the next string: the id is none */
        rc = rc < 0 ? rc : jscan_int(s, &id);
        rc = rc < 0 ? rc : vocab_add_base(t, id, text.p, text.n, s->e);
    }
    return rc < 0 ? rc : vocab_index(t, s->e);
}

/* ["a", "b"] or "a b". keep holds the left side while the right one is read. */
static int read_merge(struct tokenizer *t, struct jscan *s, struct buf *keep)
{
    struct jtext a;
    if (jscan_peek(s) == '"') {
        int rc = jscan_string(s, &a);
        const char *blank = rc == 0 && a.n ? memchr(a.p, ' ', a.n) : NULL;
        if (rc == 0 && !blank) {
            return err_set(s->e, QE_FORMAT, "merge %zu is not two entries with a space between",
                           t->n_merges);
        }
        return rc < 0 ? rc
                      : vocab_add_merge(t, a.p, (size_t)(blank - a.p), blank + 1,
                                        a.n - (size_t)(blank - a.p) - 1, s->e);
    }
    struct jtext b;
    int rc = jscan_expect(s, '[');
    rc = rc < 0 ? rc : jscan_string(s, &a);
    if (rc == 0 && a.p == s->tmp.data) {
        buf_truncate(keep, 0);
        buf_add(keep, a.p, a.n);
        a.p = keep->data;
    }
    rc = rc < 0 ? rc : jscan_expect(s, ',');
    rc = rc < 0 ? rc : jscan_string(s, &b);
    rc = rc < 0 ? rc : jscan_expect(s, ']');
    return rc < 0 ? rc : vocab_add_merge(t, a.p, a.n, b.p, b.n, s->e);
}

static int read_merges(struct tokenizer *t, struct jscan *s)
{
    struct buf keep = BUF_INIT;
    int rc = jscan_expect(s, '[');
    bool first = true;
    while (rc == 0 && (rc = jscan_next(s, ']', &first)) == 1) {
        rc = read_merge(t, s, &keep);
    }
    buf_free(&keep);
    return rc;
}

/* A member of "model" besides the tables: must be absent or as we compute. */
static int check_model_key(const struct jtext *key, const struct jtext *v, struct err *e)
{
    static const struct {
        const char *key, *allowed[3];
    } t[] = {
        {"type", {"\"BPE\"", NULL, NULL}},
        {"dropout", {"null", "0.0", "0"}},
        {"unk_token", {"null", NULL, NULL}},
        {"continuing_subword_prefix", {"null", "\"\"", NULL}},
        {"end_of_word_suffix", {"null", "\"\"", NULL}},
        {"byte_fallback", {"false", NULL, NULL}},
        {"ignore_merges", {"false", NULL, NULL}},
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        if (!jtext_is(key, t[i].key)) {
            continue;
        }
        for (size_t k = 0; k < 3 && t[i].allowed[k]; k++) {
            if (jtext_is(v, t[i].allowed[k])) {
                return 0;
            }
        }
        char q[QUOTED_MAX];
        return err_set(e, QE_UNSUPPORTED, "the model's %s is %s; Quasar knows only %s", t[i].key,
                       vocab_quote(v->p, v->n, q), t[i].allowed[0]);
    }
    return 0;
}

static int read_model(struct tokenizer *t, struct jscan *s)
{
    struct jtext merges = {NULL, 0};
    bool typed = false;
    int rc = jscan_expect(s, '{');
    bool first = true;
    while (rc == 0 && (rc = jscan_next(s, '}', &first)) == 1) {
        struct jtext key;
        rc = jscan_key(s, &key);
        if (rc < 0) {
            return rc;
        }
        struct jtext v;
        if (jtext_is(&key, "vocab")) {
            rc = t->slot ? err_set(s->e, QE_FORMAT, "the model has two vocabularies")
                         : read_vocab(t, s);
        } else if (jtext_is(&key, "merges")) {
            if (merges.p) {
                return err_set(s->e, QE_FORMAT, "the model has two lists of merges");
            }
            merges.p = s->p;
            rc = t->slot ? read_merges(t, s) : jscan_skip(s, &merges);
        } else {
            typed = typed || jtext_is(&key, "type");
            char name[32] = "";
            memcpy(name, key.p, key.n < sizeof name - 1 ? key.n : sizeof name - 1);
            rc = jscan_skip(s, &v);
            key = (struct jtext){name, strlen(name)};
            rc = rc < 0 ? rc : check_model_key(&key, &v, s->e);
        }
    }
    if (rc == 0 && (!t->slot || !merges.p || !typed)) {
        return err_set(s->e, QE_FORMAT, "the model lacks its %s",
                       !t->slot    ? "vocabulary"
                       : !merges.p ? "merges"
                                   : "type");
    }
    if (rc == 0 && t->n_merges == 0 && merges.n > 0) {
        struct jscan again;
        jscan_init(&again, merges.p, merges.n, s->e);
        again.start = s->start;
        rc = read_merges(t, &again);
        jscan_fini(&again);
    }
    return rc;
}

static int use_members(struct tokenizer *t, const json_t *const tree[M_COUNT], struct err *e)
{
    t->nfc = !json_is_null(tree[M_NORMALIZER]);
    int rc = check_type(tree[M_NORMALIZER], "the normalizer", "NFC", e);
    rc = rc < 0 ? rc : check_type(tree[M_POST], "the post-processor", "ByteLevel", e);
    rc = rc < 0 ? rc : check_type(tree[M_DECODER], "the decoder", "ByteLevel", e);
    rc = rc < 0 ? rc : check_pretok(t, tree[M_PRETOK], e);
    return rc < 0 ? rc : add_tokens(t, tree[M_ADDED], e);
}

int load_json(struct tokenizer *t, const char *p, size_t n, struct err *e)
{
    struct jscan s;
    struct jtext text[M_COUNT] = {{NULL, 0}};
    json_t *tree[M_COUNT] = {NULL};
    jscan_init(&s, p, n, e);
    bool first = true;
    int rc = jscan_expect(&s, '{');
    while (rc == 0 && (rc = jscan_next(&s, '}', &first)) == 1) {
        struct jtext key;
        rc = jscan_key(&s, &key);
        int m = 0;
        while (rc == 0 && m < M_COUNT && !jtext_is(&key, member_name[m])) {
            m++;
        }
        struct jtext other;
        struct jtext *v = rc == 0 && m < M_COUNT ? &text[m] : &other;
        if (rc == 0 && v != &other && v->p) {
            rc = err_set(e, QE_FORMAT, "the member \"%s\" is there twice", member_name[m]);
        } else if (rc == 0 && m == M_MODEL) {
            v->p = s.p;
            rc = read_model(t, &s);
        } else if (rc == 0) {
            rc = jscan_skip(&s, v);
        }
    }
    if (rc == 0 && jscan_peek(&s) != 0) {
        rc = err_set(e, QE_FORMAT, "there is more after the end of the JSON text");
    }
    if (rc == 0 && !text[M_MODEL].p) {
        rc = err_set(e, QE_FORMAT, "it has no \"model\": this is not a tokenizer.json");
    }
    for (int m = M_ADDED; rc == 0 && m < M_COUNT; m++) {
        if (text[m].p) {
            rc = json_parse(text[m].p, text[m].n, member_name[m], &tree[m], e);
        } else {
            tree[m] = m == M_ADDED ? json_array() : json_null();
        }
    }
    rc = rc < 0 ? rc : use_members(t, (const json_t *const *)tree, e);
    for (int m = 0; m < M_COUNT; m++) {
        json_decref(tree[m]);
    }
    jscan_fini(&s);
    return rc;
}

int load_config(struct tokenizer *t, const char *p, size_t n, struct err *e)
{
    json_t *root = NULL;
    int rc = json_parse(p, n, "tokenizer_config.json", &root, e);
    if (rc < 0) {
        return rc;
    }
    json_t *list = json_object_get(root, "added_tokens_decoder");
    if (list && !json_is_object(list)) {
        rc = err_set(e, QE_FORMAT, "added_tokens_decoder is not an object");
    }
    const char *key = NULL;
    json_t *v = NULL;
    json_object_foreach(list, key, v)
    {
        char *end = NULL;
        errno = 0;
        long long id = strtoll(key, &end, 10);
        if (rc == 0 && (*end || end == key || errno != 0)) {
            char q[QUOTED_MAX];
            rc = err_set(e, QE_FORMAT, "added_tokens_decoder has the key \"%s\", which is no id",
                         vocab_quote(key, strlen(key), q));
        }
        rc = rc < 0 ? rc : add_token(t, v, id, e);
    }
    json_decref(root);
    return rc < 0 ? err_wrap(e, rc, "tokenizer_config.json") : 0;
}
