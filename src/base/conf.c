/* The option table's values and where each came from. */
#include "config.h"
#include "base/conf.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
#include "base/utf8.h"

struct pair {
    char *key, *value, *where;
    enum conf_origin from;
};

struct value {
    char *text; /* NULL: unset */
    char **list;
    size_t n_list;
    struct pair *pairs;
    size_t n_pairs;
    enum conf_origin origin;
};

struct conf {
    const struct conf_opt *table;
    struct value *values;
    size_t n;
    char *file;
};

struct conf *conf_create(const struct conf_opt *table)
{
    struct conf *c = mem_zalloc(sizeof *c);
    c->table = table;
    while (table[c->n].name) {
        c->n++;
    }
    c->values = mem_array(c->n, sizeof *c->values);
    for (size_t i = 0; i < c->n; i++) {
        if (table[i].def) {
            c->values[i].text = mem_strdup(table[i].def);
        }
    }
    return c;
}

static void list_clear(struct value *v)
{
    for (size_t i = 0; i < v->n_list; i++) {
        free(v->list[i]);
    }
    free(v->list);
    v->list = NULL;
    v->n_list = 0;
}

void conf_free(struct conf *c)
{
    if (!c) {
        return;
    }
    for (size_t i = 0; i < c->n; i++) {
        struct value *v = &c->values[i];
        free(v->text);
        list_clear(v);
        for (size_t k = 0; k < v->n_pairs; k++) {
            free(v->pairs[k].key);
            free(v->pairs[k].value);
            free(v->pairs[k].where);
        }
        free(v->pairs);
    }
    free(c->values);
    free(c->file);
    free(c);
}

static size_t find(const struct conf *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++) {
        if (strcmp(c->table[i].name, name) == 0) {
            return i;
        }
    }
    return c->n;
}

static size_t must_find(const struct conf *c, const char *name)
{
    size_t i = find(c, name);
    assert(i < c->n);
    return i;
}

static bool word_in(const char *choices, const char *word)
{
    size_t n = strlen(word);
    const char *s = choices;
    while (s && *s) {
        const char *bar = strchr(s, '|');
        size_t k = bar ? (size_t)(bar - s) : strlen(s);
        if (k == n && memcmp(s, word, n) == 0) {
            return true;
        }
        s = bar ? bar + 1 : NULL;
    }
    return false;
}

static bool parse_bool(const char *s, bool *out)
{
    if (word_in("yes|true|on|1", s)) {
        *out = true;
        return true;
    }
    if (word_in("no|false|off|0", s)) {
        *out = false;
        return true;
    }
    return false;
}

bool conf_read_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    errno = 0;
    double v = strtod(text, &end);
    if (end == text || !(v >= 0) || errno) {
        return false;
    }
    const char *u = *end ? strchr(units, *end) : NULL;
    if (*end && (!u || end[1])) {
        return false;
    }
    for (ptrdiff_t i = u ? u - units : -1; i >= 0; i--) {
        v *= 1024;
    }
    if (!(v < 1e18)) {
        return false;
    }
    *out = (uint64_t)v;
    return true;
}

/* Whole numbers are written as such; a limit that is only what a number can be is named
 * when it is the one that was passed. */
static int outside(const struct conf_opt *o, const char *text, struct err *e)
{
    const bool below =
        o->lo <= o->hi ? strtod(text, NULL) < o->lo : text[strspn(text, " \t")] == '-';
    if (o->type == CONF_NUM) {
        return err_set(e, QE_USAGE, "%s: %s is outside %.15g to %.15g", o->name, text, o->lo,
                       o->hi);
    }
    const long long most = o->lo > o->hi || o->hi >= 0x1p63 ? LLONG_MAX : (long long)o->hi;
    const long long least = o->lo > o->hi ? LLONG_MIN : (long long)o->lo;
    if (most >= 1LL << 53) {
        return err_set(e, QE_USAGE, "%s: %s is %s than %lld", o->name, text,
                       below ? "less" : "more", below ? least : most);
    }
    return err_set(e, QE_USAGE, "%s: %s is outside %lld to %lld", o->name, text, least, most);
}

/* Whether text is a legal value of the option; the message names the option. */
static int check(const struct conf_opt *o, const char *text, struct err *e)
{
    switch (o->type) {
    case CONF_STR:
    case CONF_LIST:
    case CONF_MAYBE:
        return 0;
    case CONF_PAIRS:
        return text[0] && strchr(text + 1, '=')
                   ? 0
                   : err_set(e, QE_USAGE, "%s: \"%s\" is not %s", o->name, text, o->arg);
    case CONF_FLAG: {
        bool b = false;
        return parse_bool(text, &b)
                   ? 0
                   : err_set(e, QE_USAGE, "%s: \"%s\" is neither yes nor no", o->name, text);
    }
    case CONF_SIZE: {
        uint64_t bytes = 0;
        return (o->choices && word_in(o->choices, text)) || conf_read_size(text, &bytes)
                   ? 0
                   : err_set(e, QE_USAGE, "%s: \"%.40s\" is no size such as 800M or 20G%s%s",
                             o->name, text, o->choices ? ", nor " : "",
                             o->choices ? o->choices : "");
    }
    case CONF_ENUM:
        return word_in(o->choices, text)
                   ? 0
                   : err_set(e, QE_USAGE, "%s: \"%s\" is not one of %s", o->name, text, o->choices);
    case CONF_INT:
    case CONF_NUM: {
        if (o->choices && word_in(o->choices, text)) {
            return 0;
        }
        char *end = NULL;
        errno = 0;
        double x = strtod(text, &end);
        if (o->type == CONF_INT) {
            errno = 0;
            long long i = strtoll(text, &end, 10);
            x = (double)i;
            if (errno == ERANGE && end != text && !*end) {
                return outside(o, text, e);
            }
        }
        if (end == text || *end || errno || x != x) {
            return err_set(e, QE_USAGE, "%s: \"%s\" is not a %snumber%s%s", o->name, text,
                           o->type == CONF_INT ? "whole " : "", o->choices ? " or one of " : "",
                           o->choices ? o->choices : "");
        }
        return o->lo <= o->hi && (x < o->lo || x > o->hi) ? outside(o, text, e) : 0;
    }
    }
    return err_set(e, QE_INTERNAL, "%s has no type", o->name);
}

static char *trim(char *s)
{
    while (isspace((unsigned char)*s)) {
        s++;
    }
    size_t n = strlen(s);
    while (n > 0 && isspace((unsigned char)s[n - 1])) {
        s[--n] = 0;
    }
    return s;
}

/* Adds a pair behind those of its origin: what the command line says comes last. */
static void put_pair(struct value *v, const char *key, const char *text, const char *where,
                     enum conf_origin from)
{
    v->pairs = mem_realloc(v->pairs, (v->n_pairs + 1) * sizeof *v->pairs);
    size_t at = v->n_pairs++;
    for (; at > 0 && v->pairs[at - 1].from > from; at--) {
        v->pairs[at] = v->pairs[at - 1];
    }
    v->pairs[at] = (struct pair){mem_strdup(key), mem_strdup(text), mem_strdup(where), from};
    v->origin = from > v->origin ? from : v->origin;
}

/* KEY=VALUE of the command line. */
static void put_argument(struct value *v, const char *name, const char *text)
{
    char *copy = mem_strdup(text);
    char *eq = strchr(copy + 1, '=');
    char where[64];
    *eq = 0;
    snprintf(where, sizeof where, "--%s", name);
    put_pair(v, trim(copy), trim(eq + 1), where, CONF_ARG);
    free(copy);
}

static int put(struct conf *c, size_t i, const char *text, enum conf_origin from, struct err *e)
{
    struct value *v = &c->values[i];
    int rc = check(&c->table[i], text, e);
    if (rc == 0 && c->table[i].type == CONF_PAIRS) {
        put_argument(v, c->table[i].name, text);
        return 0;
    }
    if (rc < 0 || from < v->origin) {
        return rc;
    }
    if (c->table[i].type == CONF_LIST) {
        if (from > v->origin) {
            list_clear(v);
        }
        v->list = mem_realloc(v->list, (v->n_list + 1) * sizeof *v->list);
        v->list[v->n_list++] = mem_strdup(text);
    } else {
        char *copy = mem_strdup(text);
        free(v->text);
        v->text = copy;
    }
    v->origin = from;
    return 0;
}

int conf_set(struct conf *c, const char *name, const char *value, enum conf_origin from,
             struct err *e)
{
    size_t i = find(c, name);
    if (i == c->n) {
        return err_set(e, QE_USAGE, "there is no option \"%s\"", name);
    }
    return put(c, i, value, from, e);
}

bool conf_is_text(enum conf_type type)
{
    return type == CONF_STR || type == CONF_LIST || type == CONF_MAYBE;
}

/* Where a comment begins behind a value: after a blank, and behind the quotes of a quoted
 * one, the last that a # follows. A text without quotes may have a # of its own, so none
 * is looked for there. NULL: nowhere. */
static char *comment_in(char *val, bool text)
{
    const size_t n = strlen(val);
    const bool quoted = val[0] == '"';
    char *found = NULL;
    if (quoted ? n > 1 && val[n - 1] == '"' : text) {
        return NULL;
    }
    for (char *sign = val; (sign = strchr(sign, '#')) && (quoted || !found); sign++) {
        char *end = sign;
        while (end > val && isblank((unsigned char)end[-1])) {
            end--;
        }
        if ((end < sign || sign == val) && (!quoted || (end - val > 1 && end[-1] == '"'))) {
            found = end;
        }
    }
    return found;
}

/* The row of `name.KEY`; *key becomes KEY. c->n: it is no such. */
static size_t find_pairs(const struct conf *c, const char **key)
{
    for (size_t i = 0; i < c->n; i++) {
        const size_t n = strlen(c->table[i].name);
        if (c->table[i].type == CONF_PAIRS && strncmp(*key, c->table[i].name, n) == 0 &&
            (*key)[n] == '.' && (*key)[n + 1]) {
            *key += n + 1;
            return i;
        }
    }
    return c->n;
}

static int load_line(struct conf *c, char *line, const char *path, int lineno, struct err *e)
{
    char *s = trim(line);
    if (!*s || *s == '#') {
        return 0;
    }
    char *eq = strchr(s, '=');
    if (!eq) {
        return err_set(e, QE_USAGE, "%s:%d: expected \"key = value\"", path, lineno);
    }
    *eq = 0;
    char *key = trim(s);
    char *val = trim(eq + 1);
    const char *part = key;
    const size_t pairs = find_pairs(c, &part);
    size_t i = pairs < c->n ? pairs : find(c, key);
    if (i == c->n || c->table[i].cli_only || (pairs == c->n && c->table[i].type == CONF_PAIRS)) {
        return err_set(e, QE_USAGE, "%s:%d: there is no setting \"%s\" (man quasar lists them)",
                       path, lineno, key);
    }
    char *comment = comment_in(val, conf_is_text(c->table[i].type));
    if (comment) {
        *comment = 0;
    }
    size_t n = strlen(val);
    if (n >= 2 && val[0] == '"' && val[n - 1] == '"') {
        val[n - 1] = 0;
        val++;
    }
    if (pairs < c->n) {
        struct buf where = BUF_INIT;
        buf_printf(&where, "%s:%d", path, lineno);
        put_pair(&c->values[i], part, val, where.data, CONF_FILE);
        buf_free(&where);
        return 0;
    }
    struct err inner = ERR_INIT;
    int rc = put(c, i, val, CONF_FILE, &inner);
    return rc < 0 ? err_set(e, rc, "%s:%d: %s", path, lineno, inner.msg) : 0;
}

int conf_load_file(struct conf *c, const char *path, bool optional, struct err *e)
{
    struct buf b = BUF_INIT;
    struct err inner = ERR_INIT;
    int rc = io_read_file(path, 1 << 20, &b, &inner);
    if (rc == QE_NOTFOUND && optional) {
        rc = 0;
        goto out;
    }
    if (rc < 0) {
        err_set(e, rc, "%s", inner.msg);
        goto out;
    }
    free(c->file);
    c->file = mem_strdup(path);
    if (b.len && memchr(b.data, 0, b.len)) {
        rc = err_set(e, QE_USAGE, "%s holds a NUL byte: it is not a settings file", path);
        goto out;
    }
    int lineno = 0;
    char *first = b.data;
    if (b.len >= 3 && memcmp(first, "\xEF\xBB\xBF", 3) == 0) {
        first += 3; /* a byte order mark */
    }
    for (char *s = first; s && *s && rc == 0;) {
        char *nl = strchr(s, '\n');
        if (nl) {
            *nl = 0;
        }
        rc = load_line(c, s, path, ++lineno, e);
        s = nl ? nl + 1 : NULL;
    }
out:
    buf_free(&b);
    return rc;
}

int conf_load_env(struct conf *c, struct err *e)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->table[i].cli_only || c->table[i].type == CONF_PAIRS) {
            continue;
        }
        char name[64] = "QUASAR_";
        size_t k = strlen(name);
        for (const char *s = c->table[i].name; *s && k + 1 < sizeof name; s++) {
            name[k++] = *s == '-' ? '_' : (char)toupper((unsigned char)*s);
        }
        name[k] = 0;
        const char *v = getenv(name);
        if (v && *v) {
            struct err inner = ERR_INIT;
            int rc = put(c, i, v, CONF_ENV, &inner);
            if (rc < 0) {
                return err_set(e, rc, "environment variable %s: %s", name, inner.msg);
            }
        }
    }
    return 0;
}

/* Edit distance, for "did you mean"; words are short. */
static unsigned distance(const char *a, const char *b)
{
    unsigned row[64];
    size_t nb = strlen(b);
    if (nb >= 63) {
        return 99;
    }
    for (size_t j = 0; j <= nb; j++) {
        row[j] = (unsigned)j;
    }
    for (size_t i = 0; a[i]; i++) {
        unsigned diag = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t j = 0; j < nb; j++) {
            unsigned up = row[j + 1];
            unsigned best = diag + (a[i] != b[j]);
            best = up + 1 < best ? up + 1 : best;
            best = row[j] + 1 < best ? row[j] + 1 : best;
            diag = up;
            row[j + 1] = best;
        }
    }
    return row[nb];
}

static int unknown(const struct conf *c, unsigned cmd, const char *name, struct err *e)
{
    const char *best = NULL;
    size_t half = strlen(name) / 2;
    unsigned least = half < 3 ? (unsigned)half + 1 : 4;
    for (size_t i = 0; i < c->n; i++) {
        unsigned d = (c->table[i].cmds & cmd) ? distance(name, c->table[i].name) : 99;
        if (d < least) {
            least = d;
            best = c->table[i].name;
        }
    }
    if (best) {
        return err_set(e, QE_USAGE, "there is no option --%s here; did you mean --%s?", name, best);
    }
    return err_set(e, QE_USAGE, "there is no option --%s here (--help lists them)", name);
}

/* One long option at argv[*k]; advances *k past a separate argument. */
static int parse_long(struct conf *c, unsigned cmd, int argc, char **argv, int *k, struct err *e)
{
    const char *s = argv[*k] + 2;
    const char *eq = strchr(s, '=');
    char name[64];
    size_t n = eq ? (size_t)(eq - s) : strlen(s);
    if (n >= sizeof name) {
        return err_set(e, QE_USAGE, "there is no option %.40s… here", argv[*k]);
    }
    memcpy(name, s, n);
    name[n] = 0;
    size_t i = find(c, name);
    if (i == c->n && strncmp(name, "no-", 3) == 0 && !eq) {
        i = find(c, name + 3);
        if (i < c->n && c->table[i].type == CONF_FLAG && (c->table[i].cmds & cmd)) {
            return put(c, i, "no", CONF_ARG, e);
        }
        i = c->n;
    }
    if (i == c->n || !(c->table[i].cmds & cmd)) {
        return unknown(c, cmd, name, e);
    }
    const char *val = eq ? eq + 1 : NULL;
    if (c->table[i].type == CONF_FLAG) {
        val = val ? val : "yes";
    } else if (!val && c->table[i].type == CONF_MAYBE &&
               (*k + 1 >= argc || argv[*k + 1][0] == '-')) {
        val = "";
    } else if (!val) {
        if (*k + 1 >= argc) {
            return err_set(e, QE_USAGE, "--%s needs a value (%s)", name, c->table[i].arg);
        }
        val = argv[++*k];
    }
    struct err inner = ERR_INIT;
    int rc = put(c, i, val, CONF_ARG, &inner);
    return rc < 0 ? err_set(e, rc, "--%s", inner.msg) : 0;
}

static int parse_short(struct conf *c, unsigned cmd, int argc, char **argv, int *k, struct err *e)
{
    const char *s = argv[*k] + 1;
    size_t i = 0;
    while (i < c->n && !(c->table[i].short_name == *s && (c->table[i].cmds & cmd))) {
        i++;
    }
    if (i == c->n) {
        uint32_t cp = 0;
        int len = utf8_decode(s, strlen(s), &cp);
        return err_set(e, QE_USAGE, "there is no option -%.*s here (--help lists them)",
                       len > 0 ? len : 1, s);
    }
    if (c->table[i].type == CONF_FLAG) {
        return s[1] ? err_set(e, QE_USAGE, "-%c takes no value", *s)
                    : put(c, i, "yes", CONF_ARG, e);
    }
    const char *val = s + 1;
    if (!*val) {
        if (*k + 1 >= argc) {
            return err_set(e, QE_USAGE, "-%c needs a value (%s)", *s, c->table[i].arg);
        }
        val = argv[++*k];
    }
    struct err inner = ERR_INIT;
    int rc = put(c, i, val, CONF_ARG, &inner);
    return rc < 0 ? err_set(e, rc, "--%s", inner.msg) : 0;
}

int conf_parse_args(struct conf *c, unsigned cmd, int argc, char **argv, int *nargs, char **args,
                    struct err *e)
{
    int n = 0;
    bool words_only = false;
    for (int k = 0; k < argc; k++) {
        const char *s = argv[k];
        int rc = 0;
        if (words_only || s[0] != '-' || !s[1]) {
            args[n++] = argv[k];
        } else if (strcmp(s, "--") == 0) {
            words_only = true;
        } else if (s[1] == '-') {
            rc = parse_long(c, cmd, argc, argv, &k, e);
        } else {
            rc = parse_short(c, cmd, argc, argv, &k, e);
        }
        if (rc < 0) {
            return rc;
        }
    }
    *nargs = n;
    return 0;
}

bool conf_is_set(const struct conf *c, const char *name)
{
    return c->values[must_find(c, name)].origin != CONF_DEFAULT;
}

const char *conf_str(const struct conf *c, const char *name)
{
    return c->values[must_find(c, name)].text;
}

bool conf_flag(const struct conf *c, const char *name)
{
    const char *s = conf_str(c, name);
    bool b = false;
    return s && parse_bool(s, &b) && b;
}

int64_t conf_int(const struct conf *c, const char *name, int64_t dflt)
{
    const char *s = conf_str(c, name);
    char *end = NULL;
    long long v = s ? strtoll(s, &end, 10) : 0;
    return s && end != s && !*end ? (int64_t)v : dflt;
}

double conf_num(const struct conf *c, const char *name, double dflt)
{
    const char *s = conf_str(c, name);
    char *end = NULL;
    double v = s ? strtod(s, &end) : 0;
    return s && end != s && !*end ? v : dflt;
}

uint64_t conf_size(const struct conf *c, const char *name, uint64_t dflt)
{
    const char *s = conf_str(c, name);
    uint64_t v = 0;
    return s && conf_read_size(s, &v) ? v : dflt;
}

bool conf_is_word(const struct conf *c, const char *name, const char *word)
{
    const char *s = conf_str(c, name);
    return s && strcmp(s, word) == 0;
}

size_t conf_list_len(const struct conf *c, const char *name)
{
    return c->values[must_find(c, name)].n_list;
}

const char *conf_list_at(const struct conf *c, const char *name, size_t i)
{
    const struct value *v = &c->values[must_find(c, name)];
    assert(i < v->n_list);
    return v->list[i];
}

size_t conf_pairs_len(const struct conf *c, const char *name)
{
    return c->values[must_find(c, name)].n_pairs;
}

struct conf_pair conf_pair_at(const struct conf *c, const char *name, size_t i)
{
    const struct value *v = &c->values[must_find(c, name)];
    assert(i < v->n_pairs);
    return (struct conf_pair){v->pairs[i].key, v->pairs[i].value, v->pairs[i].where};
}

enum conf_origin conf_origin_of(const struct conf *c, const char *name)
{
    return c->values[must_find(c, name)].origin;
}

const char *conf_origin_text(const struct conf *c, const char *name)
{
    switch (conf_origin_of(c, name)) {
    case CONF_FILE:
        return c->file;
    case CONF_ENV:
        return "environment";
    case CONF_ARG:
        return "command line";
    case CONF_DEFAULT:
        break;
    }
    return "default";
}

const struct conf_opt *conf_table(const struct conf *c)
{
    return c->table;
}

void conf_help(const struct conf *c, unsigned cmd, struct buf *out)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct conf_opt *o = &c->table[i];
        if (!(o->cmds & cmd)) {
            continue;
        }
        char left[64];
        char sh[8] = "    ";
        if (o->short_name) {
            snprintf(sh, sizeof sh, "-%c, ", o->short_name);
        }
        snprintf(left, sizeof left, "  %s--%s%s%s", sh, o->name, o->arg ? " " : "",
                 o->arg ? o->arg : "");
        int pad = 32; /* in cells: argument names may hold an ellipsis */
        for (size_t k = 0, n = strlen(left); k < n;) {
            uint32_t cp = 0;
            k += utf8_next(left + k, n - k, &cp);
            pad -= utf8_cells(cp);
        }
        buf_printf(out, "%s%*s %s", left, pad > 0 ? pad : 0, "", o->help);
        if (o->choices) {
            buf_printf(out, " (%s)", o->choices);
        }
        if (o->def && o->type != CONF_FLAG) {
            buf_printf(out, " [%s]", o->def);
        }
        buf_addc(out, '\n');
    }
}
