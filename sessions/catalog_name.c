/* What conversations are called: which one a word means, and that no two are given
 * the same name. */
#include "config.h"
#include "sessions/catalog.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "sessions/catalog_sql.h"

static bool is_blank(uint32_t cp)
{
    return cp == ' ' || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) ||
           cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

/* Characters without width that letters and pictures do not need: with them, two names
 * would look like one. */
static bool is_unseen(uint32_t cp)
{
    char form[12];
    return (cp >= 0x200B && cp <= 0x200F) || (cp >= 0x2060 && cp <= 0x2064) || cp == 0xFEFF ||
           cp == 0xAD || cp == 0x34F || cp == 0x61C || cp == 0x180E || utf8_hidden_form(cp, form);
}

int catalog_take_name(const char *given, char **name, struct err *e)
{
    const size_t all = strlen(given);
    size_t from = 0, end = 0, count = 0;
    const char *wrong = NULL;
    for (size_t i = 0; i < all;) {
        uint32_t cp = 0;
        const size_t len = utf8_next(given + i, all - i, &cp);
        if (!is_blank(cp)) {
            from = end == 0 ? i : from;
            end = i + len;
        }
        if (cp < 0x20 || (cp >= 0x7F && cp < 0xA0)) {
            wrong = "it has a control character";
        } else if (is_unseen(cp) && !wrong) {
            wrong = "it has a character that is not seen";
        }
        i += len;
    }
    for (size_t i = from; i < end; count++) {
        uint32_t cp = 0;
        i += utf8_next(given + i, end - i, &cp);
    }
    if (end == 0) {
        return err_set(e, QE_USAGE, "the name of a conversation cannot be empty");
    }
    if (!wrong && strspn(given + from, "0123456789") >= end - from) {
        wrong = "a number means the one with that number";
    }
    if (count > CATALOG_NAME_MOST) {
        return err_set(e, QE_USAGE,
                       "the name of a conversation cannot have %zu characters: %d is the most",
                       count, CATALOG_NAME_MOST);
    }
    if (wrong) {
        return err_set(e, QE_USAGE, "\"%.*s\" cannot be the name of a conversation: %s",
                       (int)utf8_complete_prefix(given + from, end - from < 40 ? end - from : 40),
                       given + from, wrong);
    }
    *name = mem_strndup(given + from, end - from);
    return 0;
}

/* ---- finding ---- */

/* Ways in which a word may mean a conversation, the first that finds any decides. */
enum { BY_NUMBER, BY_NAME, BY_TITLE, BY_BEGINNING, N_WAYS };
static const char *const ways[N_WAYS] = {
    [BY_NUMBER] = "id = CAST(?1 AS INTEGER) AND ?1 NOT GLOB '*[^0-9]*'",
    [BY_NAME] = "title = ?1 AND named = 1",
    [BY_TITLE] = "title = ?1",
    [BY_BEGINNING] = "substr(title, 1, length(?1)) = ?1 AND ?1 <> ''",
};

/* Up to four conversations that are meant. */
struct meant {
    int64_t ids[4];
    int n;
    struct buf list;
};

static bool add_meant(void *ctx, const struct catalog_conv *v)
{
    struct meant *m = ctx;
    if (m->n < 3) {
        buf_printf(&m->list, "%s%lld \"%.40s\" (%d turn%s)", m->n ? ", " : "", (long long)v->id,
                   v->title, v->turns, v->turns == 1 ? "" : "s");
    }
    m->ids[m->n++] = v->id;
    return m->n < 4;
}

static int find_by(struct catalog *c, const char *where, const char *what, struct meant *m,
                   struct err *e)
{
    char sql[1500];
    sqlite3_snprintf((int)sizeof sql, sql,
                     "SELECT " CONV_COLUMNS " FROM conversations WHERE %s"
                     " ORDER BY updated DESC, id DESC LIMIT 4",
                     where);
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c, sql, &st, e);
    if (rc < 0) {
        return rc;
    }
    cat_bind_str(st, 1, what);
    return cat_convs_take(c, st, add_meant, m, e);
}

/* The one that is meant in one of the ways from first to last; *conv 0: none. */
static int resolve(struct catalog *c, const char *what, int first, int last, int64_t *conv,
                   struct err *e)
{
    struct meant m = {.n = 0};
    int rc = 0;
    for (int i = first; i <= last && rc == 0 && m.n == 0; i++) {
        rc = find_by(c, ways[i], what, &m, e);
    }
    if (rc == 0 && m.n > 1) {
        rc = err_set(e, QE_USAGE, "\"%.80s\" may mean %s%s: give the number", what, m.list.data,
                     m.n > 3 ? " and others" : "");
    } else if (rc == 0) {
        *conv = m.n ? m.ids[0] : 0;
    }
    buf_free(&m.list);
    return rc;
}

int catalog_find(struct catalog *c, const char *what, int64_t *conv, struct err *e)
{
    int64_t id = 0;
    int rc = resolve(c, what, BY_NUMBER, BY_BEGINNING, &id, e);
    if (rc == 0 && id == 0) {
        struct buf near = BUF_INIT;
        cat_near(c, what, &near);
        rc =
            err_set(e, QE_NOTFOUND, "there is no conversation \"%.80s\"%s%s (quasar sessions list)",
                    what, near.len ? "; similar: " : "", near.len ? near.data : "");
        buf_free(&near);
    } else if (rc == 0) {
        *conv = id;
    }
    return rc;
}

int catalog_named(struct catalog *c, const char *name, int64_t *conv, struct err *e)
{
    return resolve(c, name, BY_NAME, BY_NAME, conv, e);
}

int catalog_numbered(struct catalog *c, const char *number, int64_t *conv, struct err *e)
{
    int64_t id = 0;
    int rc = resolve(c, number, BY_NUMBER, BY_NUMBER, &id, e);
    if (rc == 0 && id == 0) {
        rc = err_set(e, QE_NOTFOUND, "there is no conversation %.40s (quasar sessions list)",
                     number);
    } else if (rc == 0) {
        *conv = id;
    }
    return rc;
}

int catalog_named_or_new(struct catalog *c, const struct catalog_new *n, int64_t *conv,
                         struct err *e)
{
    int64_t id = 0;
    int rc = cat_begin_write(c, e);
    if (rc < 0) {
        return rc;
    }
    rc = catalog_named(c, n->name, &id, e);
    if (rc == 0 && id == 0) {
        rc = catalog_begin(c, n, &id, e);
    }
    rc = cat_end_write(c, rc, e);
    if (rc == 0) {
        *conv = id;
    }
    return rc;
}

/* ---- giving ---- */

int cat_name_free(struct catalog *c, const char *name, int64_t but, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int64_t has = 0;
    int rc = cat_prepare(
        c, "SELECT id FROM conversations WHERE title = ?1 AND named = 1 AND id <> ?2 LIMIT 1", &st,
        e);
    if (rc < 0) {
        return rc;
    }
    cat_bind_str(st, 1, name);
    sqlite3_bind_int64(st, 2, but);
    rc = cat_int_take(c, st, &has, e);
    if (rc == 0 && has > 0) {
        rc = err_set(e, QE_USAGE, "conversation %lld has the name \"%.80s\" already: give another",
                     (long long)has, name);
    }
    return rc;
}

static int rename_row(struct catalog *c, int64_t conv, const char *name, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_name_free(c, name, conv, e);
    rc = rc < 0 ? rc
                : cat_prepare(c, "UPDATE conversations SET title = ?2, named = 1 WHERE id = ?1",
                              &st, e);
    if (rc < 0) {
        return rc;
    }
    cat_bind_str(st, 2, name);
    return cat_change_take(c, st, conv, e);
}

int catalog_rename(struct catalog *c, int64_t conv, const char *name, struct err *e)
{
    const int rc = cat_begin_write(c, e);
    return rc < 0 ? rc : cat_end_write(c, rename_row(c, conv, name, e), e);
}

static bool take_title(void *ctx, const struct catalog_conv *v)
{
    *(char **)ctx = mem_strdup(v->title);
    return false;
}

/* The length of a title without the " (N)" of a copy. */
static size_t without_number(const char *title)
{
    const size_t n = strlen(title);
    size_t at = n;
    if (n == 0 || title[n - 1] != ')') {
        return n;
    }
    for (at = n - 1; at > 0 && title[at - 1] >= '0' && title[at - 1] <= '9'; at--) {
    }
    return at > 2 && at < n - 1 && title[at - 1] == '(' && title[at - 2] == ' ' ? at - 2 : n;
}

static int has_title(struct catalog *c, const char *title, int64_t *n, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c, "SELECT count(*) FROM conversations WHERE title = ?1", &st, e);
    if (rc < 0) {
        return rc;
    }
    cat_bind_str(st, 1, title);
    return cat_int_take(c, st, n, e);
}

int cat_title_of_copy(struct catalog *c, int64_t conv, char **out, struct err *e)
{
    char *title = NULL;
    int rc = catalog_get(c, conv, take_title, &title, e);
    if (rc < 0) {
        return rc;
    }
    const int keep = (int)without_number(title);
    int64_t taken = title[0] != 0;
    struct buf b = BUF_INIT;
    buf_adds(&b, title);
    for (int i = 2; rc == 0 && taken > 0; i++) {
        buf_truncate(&b, 0);
        buf_printf(&b, "%.*s (%d)", keep, title, i);
        rc = has_title(c, b.data, &taken, e);
    }
    free(title);
    if (rc == 0) {
        *out = buf_take(&b);
    }
    buf_free(&b);
    return rc;
}
