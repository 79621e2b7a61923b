/* What conversations are called: which one a word means, and that no two are given
 * the same name. */
#include "config.h"
#include "sessions/catalog.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sessions/catalog_sql.h"

int catalog_check_name(const char *name, struct err *e)
{
    if (!name[0]) {
        return err_set(e, QE_USAGE, "the name of a conversation cannot be empty");
    }
    for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
        if (*p < 0x20 || *p == 0x7F || (*p == 0xC2 && p[1] < 0xA0)) {
            return err_set(e, QE_USAGE,
                           "\"%.40s\" cannot be the name of a conversation: it has a control "
                           "character",
                           name);
        }
    }
    if (strspn(name, "0123456789") == strlen(name)) {
        return err_set(
            e, QE_USAGE,
            "\"%.40s\" cannot be the name of a conversation: a number means the one with "
            "that number",
            name);
    }
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
        rc = err_set(e, QE_NOTFOUND, "there is no conversation \"%.80s\" (quasar sessions list)",
                     what);
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
