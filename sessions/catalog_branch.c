/* The branches of a conversation, found in its tree of turns: where a turn has several
 * that follow it, the oldest goes on with the branch and each other one begins one. */
#include "config.h"
#include "sessions/catalog.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "sessions/catalog_sql.h"

struct node {
    int64_t id, parent;
    size_t branch;
    bool followed; /* its branch goes on after it */
};

struct tree {
    struct node *node; /* by id */
    size_t n, cap;
    struct catalog_branch *branch;
    char (*head)[CATALOG_HEAD_MOST + 1];
    bool *own; /* it has an answer of its own */
    size_t n_branch;
    bool rooted; /* a first turn was seen */
};

static struct node *find(const struct tree *t, int64_t id)
{
    size_t lo = 0;
    size_t hi = t->n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (t->node[mid].id < id) {
            lo = mid + 1;
        } else {
            hi = mid;
        }
    }
    return lo < t->n && t->node[lo].id == id ? &t->node[lo] : NULL;
}

static size_t new_branch(struct tree *t, size_t from)
{
    const size_t n = t->n_branch + 1;
    t->branch = mem_realloc(t->branch, n * sizeof *t->branch);
    t->head = mem_realloc(t->head, n * sizeof *t->head);
    t->own = mem_realloc(t->own, n * sizeof *t->own);
    t->branch[t->n_branch] = (struct catalog_branch){.from = from};
    t->head[t->n_branch][0] = 0;
    t->own[t->n_branch] = false;
    return t->n_branch++;
}

/* Takes the next turn by id; a parent comes before what follows it. */
static void take(struct tree *t, sqlite3_stmt *st, int64_t leaf)
{
    const int64_t id = sqlite3_column_int64(st, 0);
    struct node *parent = find(t, sqlite3_column_int64(st, 1));
    const char *role = (const char *)sqlite3_column_text(st, 2);
    const char *text = (const char *)sqlite3_column_text(st, 3);
    const bool user = role && strcmp(role, cat_roles[CAT_USER]) == 0;
    size_t k = 0;
    if (parent && !parent->followed) {
        parent->followed = true;
        k = parent->branch;
    } else if (!parent && !t->rooted) {
        t->rooted = true;
        k = new_branch(t, 0);
    } else {
        k = new_branch(t, parent ? parent->branch : 0);
    }
    struct catalog_branch *b = &t->branch[k];
    if (user) {
        b->turns++;
        if (!t->head[k][0] && text) {
            const size_t n = cat_title_len(text, strlen(text));
            memcpy(t->head[k], text, n);
            t->head[k][n] = 0;
        }
    } else {
        t->own[k] = true;
        b->tip = id;
    }
    b->current = b->current || id == leaf;
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 64;
        t->node = mem_realloc(t->node, t->cap * sizeof *t->node);
    }
    t->node[t->n++] = (struct node){.id = id, .parent = sqlite3_column_int64(st, 1), .branch = k};
}

static int leaf_of(struct catalog *c, int64_t conv, int64_t *leaf, struct err *e)
{
    sqlite3_stmt *st = NULL;
    const int rc =
        cat_prepare(c, "SELECT coalesce(leaf, 0) FROM conversations WHERE id = ?1", &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    return cat_int_take(c, st, leaf, e);
}

/* The tree of a conversation; the caller frees it, also on failure. */
static int read_tree(struct catalog *c, int64_t conv, struct tree *t, int64_t *leaf, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = leaf_of(c, conv, leaf, e);
    rc = rc < 0 ? rc
                : cat_prepare(c,
                              "SELECT id, parent, role, substr(text, 1, 80) FROM turns"
                              " WHERE conversation = ?1 ORDER BY id",
                              &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, conv);
    int step = 0;
    while ((step = sqlite3_step(st)) == SQLITE_ROW) {
        take(t, st, *leaf);
    }
    rc = step == SQLITE_DONE ? 0 : cat_fail(c, "read its turns", e);
    sqlite3_finalize(st);
    return rc;
}

static void free_tree(struct tree *t)
{
    free(t->node);
    free(t->branch);
    free(t->head);
    free(t->own);
}

int catalog_branches(struct catalog *c, int64_t conv,
                     bool (*fn)(void *ctx, const struct catalog_branch *b), void *ctx,
                     struct err *e)
{
    struct tree t = {0};
    int64_t leaf = 0;
    const int rc = read_tree(c, conv, &t, &leaf, e);
    int number = 0;
    for (size_t i = 0; i < t.n_branch && rc == 0; i++) {
        if (t.own[i]) { /* else a question without an answer */
            t.branch[i].head = t.head[i];
            t.branch[i].number = ++number;
            t.branch[i].from = t.branch[t.branch[i].from].number > 0 && i > 0
                                   ? (size_t)t.branch[t.branch[i].from].number
                                   : 0;
            if (!fn(ctx, &t.branch[i])) {
                break;
            }
        }
    }
    free_tree(&t);
    return rc;
}

/* The one before it; 0: it is the first. */
static int64_t before_it(const struct tree *t, int64_t turn)
{
    const struct node *k = find(t, turn);
    return k && k->parent < turn ? k->parent : 0; /* else it is damaged */
}

/* Whether a turn is `up` or before it. */
static bool is_before(const struct tree *t, int64_t turn, int64_t up)
{
    while (up > turn) {
        up = before_it(t, up);
    }
    return up == turn;
}

int catalog_leads_to(struct catalog *c, int64_t conv, int64_t turn, int64_t at, int64_t *tip,
                     int *before, struct err *e)
{
    struct tree t = {0};
    int64_t leaf = 0;
    int rc = read_tree(c, conv, &t, &leaf, e);
    *before = 0;
    const struct node *k = rc < 0 ? NULL : find(&t, turn);
    if (rc == 0 && !k) {
        rc = err_set(e, QE_NOTFOUND, "conversation %lld has no turn %lld", (long long)conv,
                     (long long)turn);
    } else if (rc == 0 && is_before(&t, turn, at > 0 ? at : leaf)) {
        *tip = at;
    } else if (rc == 0) {
        const int64_t last = t.branch[k->branch].tip;
        *tip = is_before(&t, turn, last) ? last : turn;
    }
    for (int64_t up = rc < 0 ? 0 : before_it(&t, turn); up > 0; up = before_it(&t, up)) {
        ++*before;
    }
    free_tree(&t);
    return rc;
}

int catalog_sizes(struct catalog *c, uint64_t *text, uint64_t *state, struct err *e)
{
    static const char *const sums[] = {
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
        "SELECT coalesce(sum(bytes), 0) FROM (SELECT max(bytes) AS bytes FROM states GROUP BY "
        "file)",
    };
    uint64_t *const out[] = {text, state};
    int rc = 0;
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        sqlite3_stmt *st = NULL;
        int64_t n = 0;
        rc = cat_prepare(c, sums[i], &st, e);
        rc = rc < 0 ? rc : cat_int_take(c, st, &n, e);
        *out[i] = n > 0 ? (uint64_t)n : 0;
    }
    return rc;
}
