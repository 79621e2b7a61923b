/* From what a request wants of its answer to one rule for the engine. */
#include "config.h"
#include "conv/answerrule.h"

#include <string.h>

#include "base/log.h"
#include "conv/bothrules.h"
#include "conv/budget.h"

/* ---- tools ---- */

static const char *name_of(const json_t *def)
{
    const json_t *fn = json_object_get(def, "function");
    return json_string_value(json_object_get(fn ? fn : def, "name"));
}

static bool is_listed(const char *list, const char *name)
{
    const size_t n = name ? strlen(name) : 0;
    bool is = false;
    for (const char *p = list; p && *p && !is; p += strcspn(p, "\n") + 1) {
        is = strcspn(p, "\n") == n && memcmp(p, name ? name : "", n) == 0;
    }
    return is;
}

json_t *answer_tools(const json_t *tools, const char *allowed)
{
    json_t *some = json_array();
    size_t i = 0;
    json_t *def = NULL;
    json_array_foreach((json_t *)(uintptr_t)tools, i, def)
    {
        if (!allowed || is_listed(allowed, name_of(def))) {
            json_array_append(some, def);
        }
    }
    return some;
}

/* The same tools, those of a list told to be strict, *n of them. New reference. */
static json_t *marked(const json_t *tools, const char *strict, size_t *n)
{
    json_t *all = json_array();
    size_t i = 0;
    *n = 0;
    json_t *def = NULL;
    json_array_foreach((json_t *)(uintptr_t)tools, i, def)
    {
        const json_t *fn = json_object_get(def, "function");
        json_t *copy = json_copy((json_t *)(uintptr_t)(fn ? fn : def));
        const bool is = is_listed(strict, name_of(def));
        json_object_set_new(copy, "strict", json_boolean(is));
        json_array_append_new(all, copy);
        *n += is;
    }
    return all;
}

/* ---- grammars ---- */

/* *out NULL: it cannot be had, and calls are as the model makes them. */
static void calls_grammar(struct forms *f, const struct grammar_tools *t, struct grammar **out)
{
    struct err e = ERR_INIT;
    if (forms_calls(f, t, out, &e) < 0) {
        log_line(LOG_WARN, "a tool call is not kept to its schema: %s", e.msg);
        *out = NULL;
    }
}

/* Of the one call that must come. */
static void must_call(struct forms *f, const struct answer_ask *a, struct grammar **out)
{
    json_t *some = answer_tools(a->tools, a->set->calls.allowed);
    const struct grammar_tools t = {
        .tools = some, .only = a->set->calls.only, .dialect = GD_XML, .from = GF_LINE};
    calls_grammar(f, &t, out);
    json_decref(some);
}

/* Wraps out: calls that may come are kept to the schemas of the tools that are strict; and beside a
 * form what begins as a call is one. */
static void may_call(struct forms *f, const struct answer_ask *a, struct engine_form *out)
{
    size_t n = 0;
    json_t *some = answer_tools(a->tools, a->set->calls.allowed);
    json_t *all = marked(some, a->set->calls.strict, &n);
    struct grammar *g = NULL;
    if (n > 0 || (json_array_size(some) > 0 && a->set->form.kind != CF_NONE)) {
        const struct grammar_tools t = {
            .tools = all, .dialect = GD_XML, .from = GF_TAG, .loose = true};
        calls_grammar(f, &t, &g);
    }
    if (g) {
        const struct form_walk how = {.grammar = g,
                                      .tok = a->tok,
                                      .end = a->end,
                                      .n_end = a->n_end,
                                      .in_thought = a->opens_thought,
                                      .between = true};
        struct engine_form calls = {.ctx = NULL};
        forms_rule(f, &how, &calls);
        both_rules(&calls, out);
    }
    grammar_free(g);
    json_decref(all);
    json_decref(some);
}

/* ---- all of it ---- */

static void keep_budget(struct forms *f, const struct answer_ask *a, struct engine_form *out)
{
    const struct settings *set = a->set;
    const int most = set->max_tokens > 0 && set->max_tokens < a->room ? set->max_tokens : a->room;
    const int budget = a->opens_thought ? budget_fit(set->think_budget, most) : -1;
    if (budget < 0) {
        return;
    }
    struct words *words = forms_words(f, a->tok);
    const struct budget_opts o = {
        .tok = a->tok, .words = words, .thought = budget, .end = a->end, .n_end = a->n_end};
    budget_rule(&o, out);
    words_free(words);
}

int answer_rule(struct forms *f, const struct answer_ask *a, struct engine_form *out, struct err *e)
{
    struct grammar *g = NULL;
    int rc = 0;
    *out = (struct engine_form){.ctx = NULL};
    if (a->opens_call) {
        must_call(f, a, &g);
    } else if (a->set->form.kind != CF_NONE) {
        rc = settings_check(a->set, e);
        rc = rc < 0 ? rc : forms_grammar(f, &a->set->form, &g, e);
    }
    if (rc < 0) {
        return rc;
    }
    if (g) {
        const struct form_walk how = {.grammar = g,
                                      .tok = a->tok,
                                      .end = a->end,
                                      .n_end = a->n_end,
                                      .in_thought = a->opens_thought,
                                      .may_call = !a->opens_call && json_array_size(a->tools) > 0};
        forms_rule(f, &how, out);
    }
    grammar_free(g);
    if (!a->opens_call) {
        may_call(f, a, out);
    }
    keep_budget(f, a, out);
    return 0;
}
