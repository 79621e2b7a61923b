/* Looking for words in what was said: the index of words, asked so that nothing that is
 * typed can be an operator of its language. */
#include "config.h"
#include "sessions/catalog.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sessions/catalog_sql.h"

/* The words as FTS5 strings, so that no character of theirs is an operator. */
static void quote_words(const char *words, struct buf *out)
{
    const char *sep = "";
    while (*words) {
        words += strspn(words, " \t\r\n");
        size_t n = strcspn(words, " \t\r\n");
        if (n == 0) {
            break;
        }
        buf_adds(out, sep);
        buf_addc(out, '"');
        for (size_t i = 0; i < n; i++) {
            if (words[i] == '"') {
                buf_addc(out, '"');
            }
            buf_addc(out, words[i]);
        }
        buf_addc(out, '"');
        sep = " ";
        words += n;
    }
}

int catalog_search(struct catalog *c, const char *words, int limit,
                   bool (*fn)(void *ctx, int64_t conv, const struct catalog_turn *t), void *ctx,
                   struct err *e)
{
    struct buf match = BUF_INIT;
    quote_words(words, &match);
    if (match.len == 0) {
        buf_free(&match);
        return 0;
    }
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "SELECT " TURN_COLUMNS " FROM words JOIN turns ON turns.id = words.rowid"
                         " WHERE words MATCH ?1 ORDER BY rank LIMIT ?2",
                         &st, e);
    if (rc < 0) {
        goto out;
    }
    cat_bind_text(st, 1, match.data, match.len);
    sqlite3_bind_int(st, 2, limit);
    int step = 0;
    bool more = true;
    int32_t *ids = NULL;
    while (more && (step = sqlite3_step(st)) == SQLITE_ROW) {
        struct catalog_turn t;
        cat_read_turn(st, &t, &ids);
        more = fn(ctx, sqlite3_column_int64(st, TURN_CONVERSATION), &t);
    }
    rc = !more || step == SQLITE_DONE ? 0 : cat_fail(c, "search it", e);
    free(ids);
    sqlite3_finalize(st);
out:
    buf_free(&match);
    return rc;
}

/* ---- while it is typed ---- */

#define WORDS_MOST 16
#define STOP_EVERY 4000 /* steps of the database between two questions whether to end early */

static bool parts_words(char c)
{
    return (unsigned char)c < 0x80 && !isalnum((unsigned char)c);
}

/* The same for words that are still typed. Of a single letter nothing is looked for before it is
 * known to be all of the word: too many begin with it. */
static void quote_typed(const char *p, size_t n, struct buf *out)
{
    int count = 0;
    for (size_t i = 0; i < n && count < WORDS_MOST;) {
        size_t end = i;
        while (end < n && !parts_words(p[end])) {
            end++;
        }
        const bool open = end == n; /* it may go on */
        if (end - i > 1 || (end > i && !open)) {
            buf_adds(out, count++ ? " \"" : "\"");
            buf_add(out, p + i, end - i);
            buf_adds(out, open ? "\"*" : "\"");
        }
        i = end + 1;
    }
}

/* Whether to end early, asked by the database. */
struct stopping {
    bool (*stop)(void *ctx);
    void *ctx;
    bool ended;
};

static int may_stop(void *arg)
{
    struct stopping *s = arg;
    s->ended = s->ended || s->stop(s->ctx);
    return s->ended;
}

struct place {
    int64_t conv, turn;
    enum catalog_role role;
};

/* What was found of one conversation. */
struct places_of {
    int64_t conv;
    int told, more;
};

struct places {
    struct place *v;
    struct places_of *of; /* in the order they are told */
    size_t n, n_of;
};

/* Takes the next turn, newest first; false: there is no room for it. */
static bool take_place(struct places *p, const struct place *at, size_t most, int each)
{
    size_t k = 0;
    while (k < p->n_of && p->of[k].conv != at->conv) {
        k++;
    }
    if (k == p->n_of || p->of[k].told < each) {
        if (p->n == most) {
            return false;
        }
        if (k == p->n_of) {
            p->of[p->n_of++] = (struct places_of){.conv = at->conv};
        }
        p->of[k].told++;
        p->v[p->n++] = *at;
    } else {
        p->of[k].more++;
    }
    return true;
}

static int find_places(struct catalog *c, const struct buf *match, size_t most, int each,
                       struct places *out, bool *cut, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "SELECT turns.conversation, turns.id, turns.role FROM words"
                         " JOIN turns ON turns.id = words.rowid"
                         " WHERE words MATCH ?1 ORDER BY words.rowid DESC",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    cat_bind_text(st, 1, match->data, match->len);
    int step = 0;
    int looked = 0;
    *cut = false;
    while (!*cut && (step = sqlite3_step(st)) == SQLITE_ROW) {
        const struct place at = {.conv = sqlite3_column_int64(st, 0),
                                 .turn = sqlite3_column_int64(st, 1),
                                 .role = cat_role_at(st, 2)};
        *cut = looked == CATALOG_HITS_LOOKED || !take_place(out, &at, most, each);
        looked++;
    }
    rc = *cut || step == SQLITE_DONE ? 0 : cat_fail(c, "search it", e);
    sqlite3_finalize(st);
    return rc;
}

/* Tells one; *more: the caller wants others. */
static int tell_place(struct catalog *c, const struct buf *match, const struct place *at,
                      int others, bool (*fn)(void *ctx, const struct catalog_hit *h), void *ctx,
                      bool *more, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "SELECT snippet(words, 0, '" CATALOG_FOUND_ON "', '" CATALOG_FOUND_OFF
                         "', '\xE2\x80\xA6', 24) FROM words WHERE words MATCH ?1 AND rowid = ?2",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    cat_bind_text(st, 1, match->data, match->len);
    sqlite3_bind_int64(st, 2, at->turn);
    const int step = sqlite3_step(st);
    if (step == SQLITE_ROW) {
        size_t n = 0;
        const char *text = cat_text_at(st, 0, &n);
        const struct catalog_hit h = {.conv = at->conv,
                                      .turn = at->turn,
                                      .role = at->role,
                                      .around = text ? text : "",
                                      .more = others};
        *more = fn(ctx, &h);
    } else if (step != SQLITE_DONE) { /* gone meanwhile: it is not told */
        rc = cat_fail(c, "search it", e);
    }
    sqlite3_finalize(st);
    return rc;
}

int catalog_hits(struct catalog *c, const char *words, size_t n, int most, int each,
                 bool (*stop)(void *ctx), bool (*fn)(void *ctx, const struct catalog_hit *h),
                 void *ctx, bool *cut, struct err *e)
{
    struct buf match = BUF_INIT;
    const size_t room = most > 0 ? (size_t)most : 0;
    *cut = false;
    quote_typed(words, n, &match);
    if (match.len == 0) {
        buf_free(&match);
        return 0;
    }
    struct places p = {.v = mem_array(room + 1, sizeof *p.v),
                       .of = mem_array(room + 1, sizeof *p.of)};
    struct stopping s = {.stop = stop, .ctx = ctx};
    if (stop) {
        sqlite3_progress_handler(c->db, STOP_EVERY, may_stop, &s);
    }
    int rc = find_places(c, &match, room, each, &p, cut, e);
    bool more = true;
    for (size_t k = 0; k < p.n_of; k++) {
        for (size_t i = 0; i < p.n && more && rc == 0; i++) {
            if (p.v[i].conv == p.of[k].conv) {
                more = !stop || !may_stop(&s);
                rc = more ? tell_place(c, &match, &p.v[i], p.of[k].more, fn, ctx, &more, e) : 0;
            }
        }
    }
    sqlite3_progress_handler(c->db, 0, NULL, NULL);
    if (s.ended) {
        *cut = true;
        rc = 0;
    }
    free(p.v);
    free(p.of);
    buf_free(&match);
    return rc;
}
