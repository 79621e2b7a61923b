#ifndef QUASAR_TOOLS_TOOLSET_H
#define QUASAR_TOOLS_TOOLSET_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * The tools that a request declares: their names, and what their schemas say of parameters.
 * Schemas come from outside and may be anything; what is not understood in one says nothing.
 */
struct tool {
    const char *name;
    const json_t *schema;   /* of all parameters; NULL: none */
    const json_t *props;    /* its properties; NULL: none */
    const json_t *required; /* a list of names; NULL: none */
};

struct toolset {
    json_t *defs;
    struct tool *v;
    size_t n;
};

/* tools: an array of {"type": "function", "function": {"name", "parameters"}}, or of the inner
 * objects (also with "input_schema"); copied. NULL: no tools. */
struct toolset *toolset_create(const json_t *tools);
void toolset_free(struct toolset *s);

/* The tool of exactly this name; NULL: there is none. */
const struct tool *toolset_find(const struct toolset *s, const char *name, size_t n);
/* The tool that a name as models write it means: quotes and blanks around it do not count, nor
 * does case where only one tool remains. NULL: none, or several. */
const struct tool *toolset_resolve(const struct toolset *s, const char *name, size_t n);
/* Whether p may become a declared name. */
bool toolset_may_name(const struct toolset *s, const char *p, size_t n);
/* Whether some tool has a parameter of this name. */
bool toolset_has_key(const struct toolset *s, const char *key, size_t n);
/* The tool that arguments without a name belong to, by their keys: whose required ones they are
 * exactly; else the one that shares most (twice those it knows, less those it does not), and of
 * equal ones the only one that has all it requires. NULL: nobody can tell. Tools that require
 * nothing are never meant. all: only one that has all it requires is. */
const struct tool *toolset_infer(const struct toolset *s, const json_t *args, bool all);

/* Whether args has all that the tool requires. */
bool tool_satisfied(const struct tool *t, const json_t *args);
/* The schema of one parameter; NULL: there is none. */
const json_t *tool_param(const struct tool *t, const char *key, size_t n);

#endif
