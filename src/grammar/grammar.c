/* Grammars from their texts, and what their owners share. */
#include "config.h"
#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "grammar/ebnf.h"
#include "grammar/inside.h"
#include "grammar/regex.h"
#include "grammar/schema.h"

#define TEXT_MOST   (1 << 20)
#define CHOICE_MOST 65536
#define GAP_MOST    3 /* line breaks between a thought and the answer */

int grammar_of(struct nodes *x, node root, bool marks, struct grammar **out, struct err *e)
{
    const node gap = nodes_seq(x, nodes_rep(x, nodes_byte(x, '\n'), 0, GAP_MOST), root);
    const int rc = nodes_finish(x, root, e);
    if (rc < 0) {
        nodes_free(x);
        return rc;
    }
    struct grammar *g = mem_zalloc(sizeof *g);
    atomic_init(&g->refs, 1);
    g->nodes = x;
    g->root = root;
    g->gap = gap;
    g->marks = marks;
    pthread_mutex_init(&g->lock, NULL);
    g->a = auto_create(x);
    *out = g;
    return 0;
}

int grammar_of_json(struct nodes *x, node root, bool open, struct grammar **out, struct err *e)
{
    const int rc = grammar_of(x, root, false, out, e);
    if (rc == 0) {
        (*out)->open = open;
    }
    return rc;
}

void grammar_ref(struct grammar *g)
{
    atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
}

void grammar_free(struct grammar *g)
{
    if (!g || atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (size_t i = 0; i < g->cap_masks; i++) {
        free(g->masks[i].bits);
    }
    free(g->masks);
    auto_free(g->a);
    nodes_free(g->nodes);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* ---- from texts ---- */

static int of_schema(struct nodes *x, const char *p, size_t n, bool strict, node *out, bool *open,
                     struct buf *notes, struct err *e)
{
    json_t *v = NULL;
    int rc = json_parse(p, n, "the schema", &v, e);
    if (rc < 0) {
        return rc;
    }
    struct schema c;
    schema_init(&c, x, v, strict, notes, e);
    *out = schema_node(&c, v);
    rc = c.rc;
    *open = c.open;
    schema_fini(&c);
    json_decref(v);
    return rc;
}

static int of_choice(struct nodes *x, const char *p, size_t n, node *out, struct err *e)
{
    json_t *v = NULL;
    int rc = json_parse(p, n, "the choices", &v, e);
    const size_t many = json_array_size(v);
    if (rc == 0 && (many == 0 || many > CHOICE_MOST)) {
        rc = err_set(e, QE_FORMAT, "the choices are no array of 1 to %d strings", CHOICE_MOST);
    }
    struct node_text *t = mem_array(many + 1, sizeof *t);
    for (size_t i = 0; i < many && rc == 0; i++) {
        const json_t *one = json_array_get(v, i);
        t[i] = (struct node_text){json_string_value(one), json_string_length(one)};
        if (!t[i].p || t[i].n == 0) {
            rc = err_set(e, QE_FORMAT, "choice %zu is no text", i + 1);
        }
    }
    if (rc == 0) {
        *out = nodes_texts(x, t, many);
    }
    free(t);
    json_decref(v);
    return rc;
}

static int of_regex(struct nodes *x, const char *p, size_t n, node *out, struct err *e)
{
    const struct regex_opts ro = {.form = CHARS_RAW, .whole = true};
    return utf8_valid(p, n) ? regex_compile(x, p, n, &ro, out, e)
                            : err_set(e, QE_FORMAT, "the regular expression is not UTF-8");
}

static node any_object(struct nodes *x)
{
    struct syntax s;
    syntax_init(&s, x);
    return s.object;
}

int grammar_compile(enum grammar_kind kind, const char *p, size_t n, bool strict,
                    struct grammar **out, struct buf *notes, struct err *e)
{
    if (n > TEXT_MOST) {
        return err_set(e, QE_USAGE, "the form of the answer has %zu bytes; at most %d can be taken",
                       n, TEXT_MOST);
    }
    struct nodes *x = nodes_create();
    node root = NODE_FAIL;
    struct err why = ERR_INIT;
    bool open = kind == GK_OBJECT;
    int rc = 0;
    switch (kind) {
    case GK_OBJECT:
        root = any_object(x);
        break;
    case GK_SCHEMA:
        rc = of_schema(x, p, n, strict, &root, &open, notes, e);
        break;
    case GK_REGEX:
        rc = of_regex(x, p, n, &root, e);
        break;
    case GK_CHOICE:
        rc = of_choice(x, p, n, &root, e);
        break;
    case GK_EBNF:
        rc = ebnf_compile(x, p, n, &root, e);
        break;
    }
    if (rc < 0) {
        nodes_free(x);
        return rc;
    }
    static const char *const what[] = {"the object", "the schema", "the regular expression",
                                       "the choices", "the grammar"};
    rc = grammar_of_json(x, root, open, out, &why);
    return rc < 0 ? err_set(e, rc, "%s: %s", what[kind], why.msg) : 0;
}

/* ---- looking at texts ---- */

static bool run(struct grammar *g, const char *p, size_t n, bool whole)
{
    pthread_mutex_lock(&g->lock);
    struct automaton *a = auto_create(g->nodes); /* walks keep theirs */
    int32_t s = auto_start(a, g->root);
    for (size_t i = 0; i < n && s != AUTO_DEAD; i++) {
        s = auto_step(a, s, (unsigned char)p[i]);
        if (auto_large(a)) {
            auto_shrink(a, &s, 1);
        }
    }
    const bool is = s != AUTO_DEAD && (!whole || auto_accepts(a, s));
    auto_free(a);
    pthread_mutex_unlock(&g->lock);
    return is;
}

bool grammar_matches(struct grammar *g, const char *p, size_t n)
{
    return run(g, p, n, true);
}

bool grammar_begins(struct grammar *g, const char *p, size_t n)
{
    return run(g, p, n, false);
}
