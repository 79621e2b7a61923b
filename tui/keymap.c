/* The table in force. A row of the built-in table whose keys differ by context is split, so
 * that a row is always one set of keys in some contexts; lookup, help, palette and hints read
 * the rows and nothing else. */
#include "config.h"
#include "tui/keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct bound {
    char *where; /* the line that gave these keys; NULL: they are the built-in ones */
    size_t turn; /* … in which order */
};

struct keymap {
    struct key_action *rows;
    struct bound *from; /* beside them */
    size_t n, turns;
    char **names; /* key names that the rows point to */
    size_t n_names;
};

struct keymap *keymap_create(void)
{
    struct keymap *m = mem_zalloc(sizeof *m);
    const struct key_action *t = keys_table(&m->n);
    m->rows = mem_array(m->n, sizeof *m->rows);
    m->from = mem_array(m->n, sizeof *m->from);
    memcpy(m->rows, t, m->n * sizeof *t);
    return m;
}

void keymap_free(struct keymap *m)
{
    if (!m) {
        return;
    }
    for (size_t i = 0; i < m->n; i++) {
        free(m->from[i].where);
    }
    for (size_t i = 0; i < m->n_names; i++) {
        free(m->names[i]);
    }
    free(m->names);
    free(m->rows);
    free(m->from);
    free(m);
}

const struct key_action *keymap_rows(const struct keymap *m, size_t *n)
{
    *n = m->n;
    return m->rows;
}

static const char *ctx_name(unsigned ctx)
{
    return ctx == CTX_COMPOSER     ? "composer"
           : ctx == CTX_TRANSCRIPT ? "transcript"
           : ctx == CTX_STATS      ? "stats"
           : ctx == CTX_LOG        ? "log"
           : ctx == CTX_LISTEN     ? "listener"
           : ctx == CTX_SESSIONS   ? "sessions"
           : ctx == CTX_QUEUE      ? "queue"
           : ctx == CTX_FIND       ? "search"
           : ctx == CTX_LIST       ? "list"
                                   : "help";
}

/* ---- one line ---------------------------------------------------------------- */

static const char *keep_name(struct keymap *m, const char *name)
{
    m->names = mem_realloc(m->names, (m->n_names + 1) * sizeof *m->names);
    m->names[m->n_names] = mem_strdup(name);
    return m->names[m->n_names++];
}

/* A key or a chord of two as the table spells it; NULL: fine, else what is wrong. */
static const char *canonical(const char *p, size_t n, unsigned ctx, char out[2 * KEYS_NAME + 2])
{
    struct key k[2];
    size_t count = 0;
    out[0] = 0;
    for (size_t i = 0; i < n;) {
        size_t len = 0;
        while (i + len < n && p[i + len] != ' ') {
            len++;
        }
        if (len > 0) {
            if (count == 2) {
                return "is more than two keys";
            }
            if (!keys_parse(p + i, len, &k[count])) {
                return "is no key";
            }
            char name[KEYS_NAME];
            keys_name(&k[count], name);
            if (count++) {
                strcat(out, " "); /* two names and a blank fit */
            }
            strcat(out, name);
        }
        i += len + 1;
    }
    if (count == 0) {
        return "is no key";
    }
    if ((ctx & CTX_TYPED) && k[0].type == K_CHAR && k[0].mods == 0) {
        return ctx & CTX_COMPOSER ? "is a character that one types in the composer"
                                  : "is a character that one types there";
    }
    if ((ctx & CTX_LISTS) && count == 2) {
        return "are two keys, which lists do not know";
    }
    return NULL;
}

/* The keys of a line; false: one of them cannot be, which is said. */
static bool take_keys(const char *keys, unsigned ctx, const char *where, struct buf *complaints,
                      char out[KEYS_MOST][2 * KEYS_NAME + 2], size_t *n)
{
    *n = 0;
    if (strcmp(keys, "none") == 0) {
        return true;
    }
    for (const char *s = keys; *s;) {
        s += strspn(s, " ");
        const size_t len = strcspn(s, ",");
        size_t used = len;
        while (used > 0 && s[used - 1] == ' ') {
            used--;
        }
        const char *why =
            *n == KEYS_MOST ? "is one key too many (6 at most)" : canonical(s, used, ctx, out[*n]);
        if (why) {
            buf_printf(complaints, "%s: \"%.*s\" %s\n", where, used < 60 ? (int)used : 60, s, why);
            return false;
        }
        (*n)++;
        s += len + (s[len] == ',');
    }
    if (*n == 0) {
        buf_printf(complaints, "%s: there is no key; none takes all of them away\n", where);
        return false;
    }
    return true;
}

/* The contexts before the action's name; false: there is no such context. */
static bool take_ctx(const char **what, unsigned *ctx)
{
    const char *dot = strchr(*what, '.');
    *ctx = 0;
    if (!dot) {
        return true;
    }
    for (unsigned c = CTX_COMPOSER; c <= CTX_LIST; c <<= 1) {
        const size_t n = strlen(ctx_name(c));
        if ((size_t)(dot - *what) == n && memcmp(*what, ctx_name(c), n) == 0) {
            *ctx = c;
        }
    }
    *what = dot + 1;
    return *ctx != 0;
}

/* Most of a word that is there, for "did you mean". */
static const char *nearest_action(const char *name)
{
    size_t n = 0, best = 2; /* letters in common at the beginning */
    const struct key_action *t = keys_table(&n);
    const char *found = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (t[i].name && name[k] && t[i].name[k] == name[k]) {
            k++;
        }
        if (k > best) {
            best = k;
            found = t[i].name;
        }
    }
    return found;
}

static void add_row(struct keymap *m, const struct key_action *row, struct bound from)
{
    m->rows = mem_realloc(m->rows, (m->n + 1) * sizeof *m->rows);
    m->from = mem_realloc(m->from, (m->n + 1) * sizeof *m->from);
    m->rows[m->n] = *row;
    m->rows[m->n].command = NULL; /* it stays with the first row */
    m->from[m->n] =
        (struct bound){.where = from.where ? mem_strdup(from.where) : NULL, .turn = from.turn};
    m->n++;
}

void keymap_bind(struct keymap *m, const char *what, const char *keys, const char *where,
                 struct buf *complaints)
{
    char names[KEYS_MOST][2 * KEYS_NAME + 2];
    const char *name = what;
    unsigned ctx = 0, has = 0;
    size_t n_keys = 0, first = m->n;
    if (!take_ctx(&name, &ctx)) {
        buf_printf(complaints,
                   "%s: \"%.40s\" begins with none of composer, transcript, help, stats, "
                   "log, listener, sessions, queue, search, list\n",
                   where, what);
        return;
    }
    for (size_t i = 0; i < m->n; i++) {
        if (m->rows[i].name && strcmp(m->rows[i].name, name) == 0) {
            first = first == m->n ? i : first;
            has |= m->rows[i].ctx;
        }
    }
    if (first == m->n) {
        const char *near = nearest_action(name);
        buf_printf(complaints, "%s: there is no action \"%.40s\"%s%s (quasar --keys names them)\n",
                   where, name, near ? "; did you mean " : "", near ? near : "");
        return;
    }
    /* where it has keys; an action that has none gets them in both */
    const unsigned far = has & ~(unsigned)CTX_LISTS; /* lists have keys of their own */
    const unsigned want = ctx ? ctx : far ? far : has ? has : CTX_BOTH;
    if (!take_keys(keys, want, where, complaints, names, &n_keys)) {
        return;
    }
    const size_t n = m->n;
    for (size_t i = 0; i < n; i++) {
        struct key_action *row = &m->rows[i];
        if (!row->name || strcmp(row->name, name) != 0 || i == first) {
            continue;
        }
        row->ctx &= ~want;
    }
    if (m->rows[first].ctx & ~want) { /* it keeps its keys in the other contexts */
        struct key_action rest = m->rows[first];
        rest.ctx &= ~want;
        add_row(m, &rest, m->from[first]);
    }
    struct key_action *row = &m->rows[first];
    row->ctx = want;
    for (size_t i = 0; i < KEYS_MOST; i++) {
        row->keys[i] = i < n_keys ? keep_name(m, names[i]) : NULL;
    }
    free(m->from[first].where);
    m->from[first] = (struct bound){.where = mem_strdup(where), .turn = ++m->turns};
}

/* ---- all of them --------------------------------------------------------------- */

static void take_key_away(struct key_action *row, size_t at)
{
    for (size_t i = at; i < KEYS_MOST; i++) {
        row->keys[i] = i + 1 < KEYS_MOST ? row->keys[i + 1] : NULL;
    }
}

/* Whether a begins the chord b. */
static bool begins(const char *a, const char *b)
{
    const size_t n = strlen(a);
    return strncmp(a, b, n) == 0 && b[n] == ' ';
}

/* Whether the line of the settings names this action for some context. */
static bool was_bound(const struct keymap *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++) {
        if (m->from[i].where && m->rows[i].name && strcmp(m->rows[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Row i was bound and has the key; row j loses it where they meet. */
static void displace(struct keymap *m, size_t i, size_t j, size_t at, struct buf *complaints)
{
    const struct key_action *a = &m->rows[i];
    const unsigned shared = a->ctx & m->rows[j].ctx;
    const char *key = m->rows[j].keys[at];
    const bool both_bound = m->from[j].where != NULL;
    if (m->rows[j].act != a->act &&
        (both_bound || !m->rows[j].name || !was_bound(m, m->rows[j].name))) {
        buf_printf(complaints, "%s: %s is %s, no more %s\n", m->from[i].where, key, a->name,
                   m->rows[j].name ? m->rows[j].name : m->rows[j].help);
    }
    if (m->rows[j].ctx & ~shared) {
        struct key_action rest = m->rows[j];
        rest.ctx &= ~shared;
        add_row(m, &rest, m->from[j]);
        m->rows[j].ctx = shared;
    }
    take_key_away(&m->rows[j], at);
}

void keymap_settle(struct keymap *m, struct buf *complaints)
{
    for (size_t i = 0; i < m->n; i++) {
        for (size_t k = 0; m->from[i].where && k < KEYS_MOST && m->rows[i].keys[k]; k++) {
            for (size_t j = 0; j < m->n; j++) {
                for (size_t at = 0; at < KEYS_MOST && m->rows[j].keys[at];) {
                    const char *mine = m->rows[i].keys[k], *other = m->rows[j].keys[at];
                    const bool meet = i != j && (m->rows[i].ctx & m->rows[j].ctx) != 0;
                    if (meet && m->from[j].turn < m->from[i].turn && strcmp(mine, other) == 0) {
                        displace(m, i, j, at, complaints);
                        continue;
                    }
                    if (meet && begins(mine, other)) {
                        buf_printf(complaints, "%s: %s is %s, so %s (%s) cannot be typed\n",
                                   m->from[i].where, mine, m->rows[i].name, other,
                                   m->rows[j].name ? m->rows[j].name : m->rows[j].help);
                    }
                    at++;
                }
            }
        }
    }
}

/* ---- reading it ---------------------------------------------------------------- */

enum action keymap_lookup(const struct keymap *m, enum key_ctx ctx, const struct key *prefix,
                          const struct key *k, bool *is_prefix)
{
    char name[2 * KEYS_NAME + 2] = "";
    size_t n = 0;
    *is_prefix = false;
    if (prefix->type != K_NONE) {
        keys_name(prefix, name);
        n = strlen(name);
        name[n++] = ' ';
    }
    keys_name(k, name + n);
    for (size_t i = 0; i < m->n; i++) {
        if (!(m->rows[i].ctx & ctx)) {
            continue;
        }
        for (size_t j = 0; j < KEYS_MOST && m->rows[i].keys[j]; j++) {
            if (strcmp(m->rows[i].keys[j], name) == 0) {
                return m->rows[i].act;
            }
            *is_prefix = *is_prefix || begins(name, m->rows[i].keys[j]);
        }
    }
    return ACT_NONE;
}

const char *keymap_key(const struct keymap *m, enum action act, unsigned ctx)
{
    const char *wider = "";
    for (size_t i = 0; i < m->n; i++) {
        const struct key_action *row = &m->rows[i];
        if (row->act != act || !(row->ctx & ctx) || !row->keys[0]) {
            continue;
        }
        if (row->ctx == ctx) {
            return row->keys[0];
        }
        wider = wider[0] ? wider : row->keys[0];
    }
    return wider;
}

const char *keymap_way(const struct keymap *m, enum action act, unsigned ctx)
{
    const char *key = keymap_key(m, act, ctx);
    for (size_t i = 0; i < m->n && !key[0]; i++) {
        if (m->rows[i].act == act && m->rows[i].command) {
            key = m->rows[i].command;
        }
    }
    return key[0] ? key : keymap_name(act);
}

void keymap_hint(const struct keymap *m, const struct key_hint *h, unsigned ctx, char out[KEY_HINT])
{
    const char *a = keymap_key(m, h->act, ctx);
    const char *b = h->other != ACT_NONE ? keymap_key(m, h->other, ctx) : "";
    out[0] = 0;
    if (a[0] || b[0]) {
        snprintf(out, KEY_HINT, "%s%s%s%s%s", a, a[0] && b[0] ? " " : "", b, h->text[0] ? " " : "",
                 h->text);
    }
}

void keymap_hints(const struct keymap *m, const struct key_hint *h, size_t n, unsigned ctx,
                  char *out, size_t size)
{
    char one[KEY_HINT];
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < n; i++) {
        keymap_hint(m, &h[i], ctx, one);
        if (one[0] && used + strlen(one) + 3 <= size) {
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? "  " : "", one);
        }
    }
}

const char *keymap_name(enum action act)
{
    size_t n = 0;
    const struct key_action *t = keys_table(&n);
    for (size_t i = 0; i < n; i++) {
        if (t[i].act == act) {
            return t[i].name ? t[i].name : "the line editor's";
        }
    }
    return "nothing";
}

static void join_keys(const struct key_action *a, struct buf *out)
{
    buf_truncate(out, 0);
    for (size_t j = 0; j < KEYS_MOST && a->keys[j]; j++) {
        buf_printf(out, "%s%s", j ? ", " : "", a->keys[j]);
    }
}

static void section(const struct keymap *m, const char *title, unsigned ctx, struct buf *out)
{
    struct buf keys = BUF_INIT;
    buf_printf(out, "%s\n", title);
    for (size_t i = 0; i < m->n; i++) {
        const struct key_action *row = &m->rows[i];
        if ((row->ctx & CTX_BOTH) == ctx && row->keys[0]) {
            join_keys(row, &keys);
            buf_printf(out, "  %-27s %s\n", keys.data, row->help);
        }
    }
    buf_addc(out, '\n');
    buf_free(&keys);
}

/* The keys of these views (or lists, as the mask says), and of no other. */
static void view_section(const struct keymap *m, const char *title, unsigned ctx, unsigned mask,
                         struct buf *out)
{
    struct buf keys = BUF_INIT;
    buf_printf(out, "%s\n", title);
    for (size_t i = 0; i < m->n; i++) {
        const struct key_action *row = &m->rows[i];
        if ((row->ctx & mask) == ctx && !(row->ctx & CTX_BOTH) && row->keys[0]) {
            join_keys(row, &keys);
            buf_printf(out, "  %-27s %s\n", keys.data, row->help);
        }
    }
    buf_addc(out, '\n');
    buf_free(&keys);
}

/* The keys that a list has alone, and those that it shares with others. */
static void list_sections(const struct keymap *m, unsigned ctx, struct buf *out)
{
    static const struct {
        unsigned ctx;
        const char *title;
    } lists[] = {{CTX_SESSIONS, "In the list of conversations"},
                 {CTX_QUEUE, "In the list of messages that wait"},
                 {CTX_LIST, "In lists of actions, files and earlier prompts"},
                 {CTX_FIND, "While a search is typed"}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (ctx & lists[i].ctx) {
            view_section(m, lists[i].title, lists[i].ctx, CTX_LISTS, out);
        }
    }
    struct buf keys = BUF_INIT;
    for (size_t i = 0, any = 0; i < m->n; i++) {
        const struct key_action *row = &m->rows[i];
        const unsigned here = row->ctx & CTX_LISTS;
        if ((here & ctx) && (here & (here - 1)) && row->keys[0]) {
            buf_adds(out, any++ ? "" : "In all lists\n");
            join_keys(row, &keys);
            buf_printf(out, "  %-27s %s\n", keys.data, row->help);
        }
    }
    buf_adds(out, ctx & CTX_LISTS ? "\n" : "");
    buf_free(&keys);
}

void keymap_help(const struct keymap *m, unsigned ctx, struct buf *out)
{
    if (ctx & CTX_COMPOSER) {
        section(m, "While typing", CTX_COMPOSER, out);
    }
    if (ctx & CTX_TRANSCRIPT) {
        char title[96];
        snprintf(title, sizeof title, "In the transcript (%s goes there)",
                 keymap_way(m, ACT_FOCUS, CTX_COMPOSER));
        section(m, title, CTX_TRANSCRIPT, out);
    }
    if (ctx & CTX_STATS) {
        view_section(m, "In the statistics", CTX_STATS, CTX_VIEWS, out);
    }
    if (ctx & CTX_LISTEN) {
        view_section(m, "In the listener's view", CTX_LISTEN, CTX_VIEWS, out);
    }
    if (ctx & CTX_VIEWS) {
        view_section(m, "In the views of statistics, listener and log", CTX_VIEWS, CTX_VIEWS, out);
    }
    list_sections(m, ctx, out);
    section(m, "Anywhere", CTX_BOTH, out);
    buf_adds(out, "Commands (a message that starts with / is sent with //)\n");
    for (size_t i = 0; i < m->n; i++) {
        if (m->rows[i].command) {
            char call[64];
            snprintf(call, sizeof call, "%s%s%s", m->rows[i].command, m->rows[i].args ? " " : "",
                     m->rows[i].args ? m->rows[i].args : "");
            buf_printf(out, "  %-27s %s\n", call, m->rows[i].help);
        }
    }
}

void keymap_names(const struct keymap *m, struct buf *out)
{
    size_t at = 0;
    for (size_t i = 0; i < m->n; i++) {
        const char *name = m->rows[i].name;
        bool again = !name;
        for (size_t k = 0; k < i && !again; k++) {
            again = m->rows[k].name && strcmp(m->rows[k].name, name) == 0;
        }
        if (!again) {
            const size_t n = strlen(name);
            buf_adds(out, at > 0 && at + n > 76 ? "\n" : "");
            at = at > 0 && at + n > 76 ? 0 : at;
            buf_printf(out, " %s", name);
            at += n + 1;
        }
    }
    buf_addc(out, '\n');
}
