/* Forms of answers between conversations and the engine: compiled grammars kept by their texts,
 * the vocabulary as a tree, made when the first form asks for it, and walks as rules of jobs. */
#include "config.h"
#include "conv/form.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/jsonio.h"
#include "base/log.h"
#include "base/mem.h"
#include "grammar/walk.h"

#define KEPT 32 /* grammars */

struct kept {
    uint8_t digest[SHA256_BYTES];
    struct grammar *grammar; /* NULL: a free place */
    uint64_t used;
};

struct forms {
    pthread_mutex_t lock; /* all that follows */
    struct kept kept[KEPT];
    uint64_t clock;
    struct words *words; /* of tok; NULL: not made yet */
    const struct tokenizer *tok;
};

struct forms *forms_create(void)
{
    struct forms *f = mem_zalloc(sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    return f;
}

void forms_free(struct forms *f)
{
    if (!f) {
        return;
    }
    for (size_t i = 0; i < KEPT; i++) {
        grammar_free(f->kept[i].grammar);
    }
    words_free(f->words);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

/* ---- grammars ---- */

static struct grammar *look_up(struct forms *f, const uint8_t *digest)
{
    struct grammar *g = NULL;
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < KEPT && !g; i++) {
        struct kept *k = &f->kept[i];
        if (k->grammar && memcmp(k->digest, digest, SHA256_BYTES) == 0) {
            k->used = ++f->clock;
            g = k->grammar;
            grammar_ref(g);
        }
    }
    pthread_mutex_unlock(&f->lock);
    return g;
}

static void keep(struct forms *f, const uint8_t *digest, struct grammar *g)
{
    struct kept *oldest = f->kept;
    grammar_ref(g);
    pthread_mutex_lock(&f->lock);
    for (size_t i = 0; i < KEPT; i++) {
        oldest = f->kept[i].used < oldest->used ? &f->kept[i] : oldest;
    }
    struct grammar *old = oldest->grammar;
    memcpy(oldest->digest, digest, SHA256_BYTES);
    oldest->grammar = g;
    oldest->used = ++f->clock;
    pthread_mutex_unlock(&f->lock);
    grammar_free(old);
}

static void tell(const struct buf *notes)
{
    if (notes->len > 0) {
        log_line(LOG_WARN, "the form of an answer is kept without %s", notes->data);
    }
}

/* What identifies a grammar: all that it is made of. */
static void digest_of(const char *kind, size_t n_kind, const char *text, size_t n, uint8_t *out)
{
    struct sha256 *h = sha256_create();
    sha256_add(h, kind, n_kind);
    sha256_add(h, text, n);
    sha256_done(h, out);
    sha256_free(h);
}

static enum grammar_kind kind_of(const struct conv_form *form)
{
    switch (form->kind) {
    case CF_SCHEMA:
        return GK_SCHEMA;
    case CF_REGEX:
        return GK_REGEX;
    case CF_CHOICE:
        return GK_CHOICE;
    case CF_GRAMMAR:
        return GK_EBNF;
    case CF_NONE:
    case CF_OBJECT:
        break;
    }
    return GK_OBJECT;
}

/* The end of a compilation: what came of it is kept, and what is left out of it told. */
static int compiled(struct forms *f, const uint8_t *digest, int rc, struct grammar *g,
                    struct buf *notes, struct grammar **out)
{
    if (rc == 0) {
        tell(notes);
        keep(f, digest, g);
        *out = g;
    }
    buf_free(notes);
    return rc;
}

int forms_grammar(struct forms *f, const struct conv_form *form, struct grammar **out,
                  struct err *e)
{
    const char kind[2] = {(char)form->kind, form->strict};
    uint8_t digest[SHA256_BYTES];
    digest_of(kind, sizeof kind, form->text ? form->text : "", form->n, digest);
    *out = look_up(f, digest);
    if (*out) {
        return 0;
    }
    struct grammar *g = NULL;
    struct buf notes = BUF_INIT;
    const int rc = grammar_compile(kind_of(form), form->text, form->n, form->strict, &g, &notes, e);
    return compiled(f, digest, rc, g, &notes, out);
}

int forms_calls(struct forms *f, const struct grammar_tools *t, struct grammar **out, struct err *e)
{
    struct buf text = BUF_INIT, notes = BUF_INIT;
    uint8_t digest[SHA256_BYTES];
    const char kind[5] = {'c', (char)t->dialect, (char)t->several, (char)t->from, (char)t->loose};
    buf_adds(&text, t->only ? t->only : "");
    buf_addc(&text, '\n');
    json_write_exact(t->tools, &text);
    digest_of(kind, sizeof kind, text.data, text.len, digest);
    buf_free(&text);
    *out = look_up(f, digest);
    if (*out) {
        return 0;
    }
    struct grammar *g = NULL;
    const int rc = grammar_calls(t, &g, &notes, e);
    return compiled(f, digest, rc, g, &notes, out);
}

/* ---- tokens ---- */

static const char *token_bytes(void *ctx, int32_t id, size_t *n)
{
    return tokenizer_bytes(ctx, id, n);
}

static int token_added(void *ctx, int32_t id)
{
    return tokenizer_is_special(ctx, id) ? 2 : tokenizer_is_added(ctx, id);
}

static int token_encode(void *ctx, const char *p, size_t n, int32_t *ids, int most)
{
    struct tok_ids all = {0};
    tokenizer_encode(ctx, p, n, false, &all);
    const int k = all.n < (size_t)most ? (int)all.n : most;
    if (k > 0) {
        memcpy(ids, all.v, (size_t)k * sizeof *ids);
    }
    tok_ids_free(&all);
    return k;
}

struct words *forms_words(struct forms *f, const struct tokenizer *tok)
{
    pthread_mutex_lock(&f->lock);
    if (f->tok != tok) {
        words_free(f->words);
        const struct words_source s = {.n = tokenizer_size(tok),
                                       .bytes = token_bytes,
                                       .added = token_added,
                                       .encode = token_encode,
                                       .ctx = (void *)(uintptr_t)tok};
        f->words = words_create(&s);
        f->tok = tok;
    }
    struct words *w = f->words;
    words_ref(w);
    pthread_mutex_unlock(&f->lock);
    return w;
}

/* ---- rules ---- */

static void rule_row(void *ctx, const int32_t *draft, int n, uint32_t *allow, size_t n_words)
{
    walk_row(ctx, draft, n, allow, n_words);
}

static int rule_legal(void *ctx, const int32_t *draft, int n)
{
    return walk_legal(ctx, draft, n);
}

static int rule_forced(void *ctx, int32_t *ids, int most)
{
    return walk_forced(ctx, ids, most);
}

static void rule_take(void *ctx, int32_t id)
{
    walk_take(ctx, id);
}

static void rule_free(void *ctx)
{
    walk_free(ctx);
}

void forms_rule(struct forms *f, const struct form_walk *how, struct engine_form *out)
{
    static const struct engine_form_ops ops = {.row = rule_row,
                                               .legal = rule_legal,
                                               .forced = rule_forced,
                                               .take = rule_take,
                                               .free = rule_free};
    static const char opener[] = "<tool_call>";
    const bool calls = how->may_call || how->between;
    struct words *words = forms_words(f, how->tok);
    const struct walk_opts o = {
        .grammar = how->grammar,
        .words = words,
        .end = how->end,
        .n_end = how->n_end,
        .in_thought = how->in_thought,
        .call_opener = calls ? tokenizer_added_id(how->tok, opener, sizeof opener - 1) : -1,
        .between = how->between};
    *out = (struct engine_form){.ctx = walk_create(&o), .ops = &ops};
    words_free(words);
}
