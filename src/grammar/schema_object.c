/* Objects and arrays. The members of an object come in the order of its schema, each once, those
 * that it does not name after them. */
#include "config.h"
#include "grammar/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "grammar/regex.h"

#define COUNTED_MOST 65536 /* members by numbers of those before them */

struct member {
    node pair;
    bool required;
};

struct object {
    struct member *member;
    size_t n;
    node more; /* one member that is not named; NODE_FAIL: there is none */
    int32_t least, most;
};

/* ---- objects ---- */

static bool is_required(const json_t *required, const char *key)
{
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name && strcmp(name, key) == 0) {
            return true;
        }
    }
    return false;
}

static void add_member(struct schema *c, struct object *o, const char *key, const json_t *v,
                       bool required)
{
    const size_t before = schema_enter(c, "properties", key);
    const node value = schema_node(c, v);
    schema_leave(c, before);
    if (value != NODE_FAIL || required) {
        const node name = syntax_string(&c->s, key, strlen(key));
        o->member[o->n++] = (struct member){syntax_pair(&c->s, name, value), required};
    }
}

static void named(struct schema *c, const json_t *v, struct object *o)
{
    const json_t *properties = json_object_get(v, "properties");
    const json_t *required = json_object_get(v, "required");
    const json_t *rest = json_object_get(v, "additionalProperties");
    const char *key = NULL;
    json_t *value = NULL;
    if ((properties && !json_is_object(properties)) ||
        (required && !json_is_array(required) && !json_is_boolean(required))) {
        schema_wrong(c, QE_FORMAT, "properties are no object, or required is no array");
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)properties, key, value)
    {
        add_member(c, o, key, value, is_required(required, key));
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (!name) {
            schema_wrong(c, QE_FORMAT, "required has something that is no string");
        } else if (!json_object_get(properties, name)) {
            json_t *any = json_true();
            add_member(c, o, name, rest ? rest : any, true);
        }
    }
}

/* Names that are all known, where the schema names no members: members of its own, none of which
 * must be there. Whether it is so. */
static bool named_by_list(struct schema *c, const json_t *v, struct object *o)
{
    const json_t *names = json_object_get(v, "propertyNames"),
                 *list = json_object_get(names, "enum");
    const json_t *rest = json_object_get(v, "additionalProperties");
    bool is = o->n == 0 && json_array_size(list) > 0 && !json_object_get(v, "patternProperties");
    for (size_t i = 0; i < json_array_size(list); i++) {
        is = is && json_is_string(json_array_get(list, i));
    }
    if (!is) {
        return false;
    }
    free(o->member);
    o->member = mem_array(json_array_size(list), sizeof *o->member);
    json_t *any = json_true(), *seen = json_object();
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (!json_object_get(seen, name)) {
            add_member(c, o, name, rest ? rest : any, false);
            json_object_set_new(seen, name, json_true());
        }
    }
    json_decref(seen);
    o->more = NODE_FAIL;
    return true;
}

static node by_patterns(struct schema *c, const json_t *patterns)
{
    struct nodes *x = c->s.x;
    const char *key = NULL;
    json_t *v = NULL;
    node all = NODE_FAIL;
    json_object_foreach((json_t *)(uintptr_t)patterns, key, v)
    {
        const struct regex_opts ro = {.form = CHARS_JSON, .any = c->s.text};
        const size_t before = schema_enter(c, "patternProperties", key);
        node name = NODE_FAIL;
        struct err e = ERR_INIT;
        if (regex_compile(x, key, strlen(key), &ro, &name, &e) < 0) {
            schema_left_out(c, "patternProperties");
        } else {
            name = nodes_seq3(x, nodes_byte(x, '"'), name, nodes_byte(x, '"'));
            all = nodes_alt(x, all, syntax_pair(&c->s, name, schema_node(c, v)));
        }
        schema_leave(c, before);
    }
    return all;
}

static node any_name(struct schema *c, const json_t *names)
{
    const size_t before = schema_enter(c, "propertyNames", NULL);
    const json_t *text = json_pack("{s:s}", "type", "string");
    json_array_append_new(c->kept, (json_t *)(uintptr_t)text);
    const json_t *both = schema_merge(c, text, names);
    const node n = both ? schema_node(c, both) : NODE_FAIL;
    schema_leave(c, before);
    return n;
}

/* Members that have no name of their own. Absent, it is as if there were none, unless the schema
 * names none at all. */
static node unnamed(struct schema *c, const json_t *v)
{
    const json_t *properties = json_object_get(v, "properties");
    const json_t *required = json_object_get(v, "required");
    const json_t *patterns = json_object_get(v, "patternProperties");
    const json_t *rest = json_object_get(v, "additionalProperties");
    const json_t *names = json_object_get(v, "propertyNames");
    const size_t n = json_object_size(properties) + json_array_size(required);
    if (json_object_size(patterns) > 0 && n > 0) {
        schema_left_out(c, "patternProperties"); /* they could be the named ones again */
        patterns = NULL;
    }
    if (json_object_size(patterns) > 0) {
        c->open = true;
        return by_patterns(c, patterns);
    }
    if (json_is_false(rest) || (!rest && n > 0)) {
        return NODE_FAIL;
    }
    const char **keys = mem_array(n + 1, sizeof *keys);
    size_t k = 0;
    const char *key = NULL;
    json_t *member = NULL;
    json_object_foreach((json_t *)(uintptr_t)properties, key, member)
    {
        keys[k++] = key;
    }
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        if (name && !json_object_get(properties, name)) {
            keys[k++] = name;
        }
    }
    node name = NODE_FAIL;
    if (names && k == 0) {
        name = any_name(c, names);
    } else {
        if (names) {
            schema_left_out(c, "propertyNames");
        }
        name = syntax_other_key(&c->s, keys, k);
    }
    free(keys);
    const size_t before = schema_enter(c, "additionalProperties", NULL);
    const node value = rest ? schema_node(c, rest) : c->s.value;
    c->open = true;
    schema_leave(c, before);
    return syntax_pair(&c->s, name, value);
}

/* ---- members, one after the other ---- */

/* Behind the named members: those that have no name, and the end. */
static node tail(struct schema *c, const struct object *o, int32_t before)
{
    struct nodes *x = c->s.x;
    const node close = nodes_seq(x, c->s.space, nodes_byte(x, '}'));
    const node next = nodes_seq(x, c->s.comma, o->more);
    const int32_t owed = o->least > before ? o->least - before : 0;
    const int32_t room = o->most == REP_ANY ? REP_ANY : o->most > before ? o->most - before : 0;
    if (before > 0) {
        return owed > room ? NODE_FAIL : nodes_seq(x, nodes_rep(x, next, owed, room), close);
    }
    const node none = owed > 0 ? NODE_FAIL : nodes_byte(x, '}');
    if (room == 0 || owed > room) {
        return none;
    }
    const node more =
        nodes_rep(x, next, owed > 0 ? owed - 1 : 0, room == REP_ANY ? room : room - 1);
    return nodes_alt(x, none, nodes_seq3(x, o->more, more, close));
}

/* From the last member to the first, for each number of members that may be before. */
static node all_members(struct schema *c, const struct object *o)
{
    struct nodes *x = c->s.x;
    const bool bounded = o->most != REP_ANY;
    const int32_t kept = bounded ? o->most : o->least, n = (int32_t)o->n;
    const int32_t most = kept < 1 ? 1 : kept > n ? n : kept;
    node *next = mem_array((size_t)most + 1, sizeof *next);
    for (int32_t k = 0; k <= most; k++) {
        next[k] = tail(c, o, k);
    }
    for (int32_t i = n; i-- > 0;) {
        const struct member *m = &o->member[i];
        for (int32_t k = 0; k <= most; k++) { /* row k needs k and k + 1 of the one behind it */
            const bool may = !bounded || k < o->most;
            const node behind = next[k < most ? k + 1 : most];
            const node with =
                may ? nodes_seq3(x, k > 0 ? c->s.comma : NODE_EMPTY, m->pair, behind) : NODE_FAIL;
            next[k] = m->required ? with : nodes_alt(x, with, next[k]);
        }
    }
    const node first = next[0];
    free(next);
    return nodes_seq3(x, nodes_byte(x, '{'), c->s.space, first);
}

/* Bounds of the number of members, which cost a row for each. */
static void count_members(struct schema *c, const json_t *v, struct object *o)
{
    o->least = schema_bound(c, v, "minProperties", 0);
    o->most = schema_bound(c, v, "maxProperties", REP_ANY);
    if (o->more == NODE_FAIL && o->most != REP_ANY && (size_t)o->most >= o->n) {
        o->most = REP_ANY; /* there are no more */
    }
    const int32_t rows = o->most == REP_ANY ? o->least : o->most;
    if (rows > 0 && o->n > COUNTED_MOST / (size_t)rows && o->n > COUNTED_MOST / o->n) {
        schema_left_out(c, o->most == REP_ANY ? "minProperties" : "maxProperties");
        o->least = 0;
        o->most = REP_ANY;
    }
}

node schema_object(struct schema *c, const json_t *v)
{
    const size_t most = json_object_size(json_object_get(v, "properties")) +
                        json_array_size(json_object_get(v, "required"));
    struct object o = {.member = mem_array(most + 1, sizeof *o.member)};
    named(c, v, &o);
    if (c->rc == 0 && !named_by_list(c, v, &o)) {
        o.more = unnamed(c, v);
    }
    count_members(c, v, &o);
    const node n = c->rc < 0 ? NODE_FAIL : all_members(c, &o);
    free(o.member);
    return n;
}

/* ---- arrays ---- */

node schema_array(struct schema *c, const json_t *v)
{
    struct nodes *x = c->s.x;
    const json_t *items = json_object_get(v, "items"), *prefix = json_object_get(v, "prefixItems");
    const int32_t least = schema_bound(c, v, "minItems", 0);
    const int32_t most = schema_bound(c, v, "maxItems", REP_ANY);
    if (!prefix && json_is_array(items)) { /* as it was written before */
        prefix = items;
        items = json_object_get(v, "additionalItems");
    }
    const int32_t n = prefix ? (int32_t)json_array_size(prefix) : 0;
    size_t before = schema_enter(c, "items", NULL);
    c->open = c->open || (!items && !prefix);
    const node item = items ? schema_node(c, items) : prefix ? NODE_FAIL : c->s.value;
    schema_leave(c, before);
    if (c->rc < 0 || least > most) {
        return NODE_FAIL;
    }
    const node next = nodes_seq(x, c->s.comma, item);
    const int32_t more = most == REP_ANY ? REP_ANY : most > n ? most - n : 0;
    const int32_t owed = least > n ? least - n : 0;
    node rest = NODE_EMPTY;
    if (n > 0) {
        rest = nodes_rep(x, next, owed, more);
    } else if (more > 0) {
        rest = nodes_seq(
            x, item,
            nodes_rep(x, next, owed > 0 ? owed - 1 : 0, more == REP_ANY ? REP_ANY : more - 1));
        rest = owed > 0 ? rest : nodes_opt(x, rest);
    }
    for (int32_t i = n; i-- > 0;) {
        char name[16];
        snprintf(name, sizeof name, "%d", (int)i);
        before = schema_enter(c, "prefixItems", name);
        node one = schema_node(c, json_array_get(prefix, (size_t)i));
        schema_leave(c, before);
        one = nodes_seq3(x, i > 0 ? c->s.comma : NODE_EMPTY, one, rest);
        rest = i >= most ? NODE_EMPTY : i < least ? one : nodes_opt(x, one);
    }
    const node close = nodes_seq(x, c->s.space, nodes_byte(x, ']'));
    return nodes_seq3(x, nodes_byte(x, '['), c->s.space, nodes_seq(x, rest, close));
}
