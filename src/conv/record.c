/* Keeps the catalogue in step with a chat, and keeps its troubles away from it.
 * Each turn is a row in memory until it is on disk as it stands; rows are written
 * in order, so a parent is always there before its children. */
#include "config.h"
#include "conv/record.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

struct record_row {
    int64_t id;                /* 0: not stored yet */
    int64_t after;             /* the parent's id, where before is NULL */
    struct record_row *before; /* the parent, not stored yet */
    bool changed, over;
    enum catalog_role role;
    char *text, *thought, *calls, *finish, *stats, *settings;
    size_t text_n, thought_n;
    int32_t *ids;
    size_t n_ids;
    size_t text_put, thought_put, ids_put; /* as far as record_more got */
    struct record_row *next;
};

/* ---- rows ---- */

static char *copy(const char *p, size_t n)
{
    if (!p) {
        return NULL;
    }
    char *q = mem_alloc(n + 1);
    memcpy(q, p, n);
    q[n] = 0;
    return q;
}

static char *copy_str(const char *s)
{
    return s ? copy(s, strlen(s)) : NULL;
}

static void row_clear(struct record_row *w)
{
    free(w->text);
    free(w->thought);
    free(w->calls);
    free(w->finish);
    free(w->stats);
    free(w->settings);
    free(w->ids);
}

static void row_set(struct record_row *w, const struct catalog_turn *t)
{
    row_clear(w);
    w->text = copy(t->text ? t->text : "", t->text_n);
    w->text_n = t->text_n;
    w->thought = copy(t->thought, t->thought_n);
    w->thought_n = t->thought_n;
    w->calls = copy_str(t->calls);
    w->finish = copy_str(t->finish);
    w->stats = copy_str(t->stats);
    w->settings = copy_str(t->settings);
    w->ids = mem_array(t->n_ids + 1, sizeof *w->ids);
    w->n_ids = t->n_ids;
    if (t->n_ids > 0) {
        memcpy(w->ids, t->ids, t->n_ids * sizeof *w->ids);
    }
    w->text_put = w->text_n;
    w->thought_put = w->thought_n;
    w->ids_put = w->n_ids;
    w->changed = true;
}

static struct catalog_turn row_as_turn(const struct record_row *w)
{
    return (struct catalog_turn){.role = w->role,
                                 .text = w->text,
                                 .text_n = w->text_n,
                                 .thought = w->thought,
                                 .thought_n = w->thought_n,
                                 .calls = w->calls,
                                 .ids = w->ids,
                                 .n_ids = w->n_ids,
                                 .finish = w->finish,
                                 .stats = w->stats,
                                 .settings = w->settings};
}

static struct record_row *add_row(struct record_chat *c, enum catalog_role role,
                                  struct record_row *before, int64_t after)
{
    struct record_row *w = mem_zalloc(sizeof *w);
    w->role = role;
    w->before = before;
    w->after = after;
    struct record_row **end = &c->rows;
    while (*end) {
        end = &(*end)->next;
    }
    *end = w;
    return w;
}

/* Drops the rows that are over and stored. */
static void drop_stored(struct record_chat *c)
{
    struct record_row **at = &c->rows;
    while (*at) {
        struct record_row *w = *at;
        if (!w->over || w->changed || w->id == 0 || w == c->leaf) {
            at = &w->next;
            continue;
        }
        for (struct record_row *k = c->rows; k; k = k->next) {
            if (k->before == w) {
                k->before = NULL;
                k->after = w->id;
            }
        }
        *at = w->next;
        row_clear(w);
        free(w);
    }
}

/* ---- writing ---- */

/* The conversation itself, and its lock. */
static int put_conv(struct record *r, struct record_chat *c, struct err *e)
{
    if (c->conv == 0) {
        const struct catalog_new n = {
            .model = c->model, .system = c->system, .directory = r->directory};
        int rc = catalog_begin(store_catalog(r->store), &n, &c->conv, e);
        if (rc < 0) {
            return rc;
        }
    }
    bool first = false;
    return c->lock ? 0 : lock_set_take(r->locks, c->conv, &c->lock, &first, e);
}

static int put_row(struct record *r, const struct record_chat *c, struct record_row *w,
                   struct err *e)
{
    const struct catalog_turn t = row_as_turn(w);
    struct catalog *cat = store_catalog(r->store);
    const int64_t parent = w->before ? w->before->id : w->after;
    int rc = w->id == 0 ? catalog_add(cat, c->conv, parent, &t, &w->id, e)
                        : catalog_update(cat, w->id, &t, e);
    w->changed = rc < 0;
    return rc;
}

static int put_all(struct record *r, struct record_chat *c, struct err *e)
{
    int rc = put_conv(r, c, e);
    for (struct record_row *w = c->rows; w && rc == 0; w = w->next) {
        rc = w->changed ? put_row(r, c, w, e) : 0;
    }
    if (rc == 0 && c->leaf) {
        rc = catalog_set_leaf(store_catalog(r->store), c->conv, c->leaf->id, e);
    }
    return rc;
}

static void tell_failure(struct record *r, const struct err *e)
{
    r->why = *e;
    if (!r->failing) {
        buf_printf(&r->notice,
                   "the conversation cannot be saved: %s; it is kept in memory and saved when that "
                   "is over\n",
                   e->msg);
    }
    r->failing = true;
}

/* The catalogue is beyond help: from now on nothing is kept. */
static void give_up(struct record *r, const struct err *e)
{
    buf_printf(&r->notice, "this conversation is not saved any more: %s\n", e->msg);
    r->why = *e;
    store_close(r->store);
    r->store = NULL;
    r->given_up = true;
}

/* The conversation is not in the catalogue: what is in memory begins it anew. */
static void begin_anew(struct record_chat *c)
{
    lock_release(c->lock);
    c->lock = NULL;
    c->conv = 0;
    c->last = 0;
    for (struct record_row *w = c->rows; w; w = w->next) {
        w->id = 0;
        w->after = 0;
        w->changed = true;
    }
}

/* Opens the store, in the place of one that was open. notice: lines for the user, of a failure
 * too. */
static int open_store(struct record *r, struct buf *notice, struct err *e)
{
    struct store *s = NULL;
    int rc = store_open(r->dir, r->budget, &s, notice, e);
    if (rc == 0 && store_fixed(s)) {
        rc = err_set(e, QE_IO, "%s", store_fixed(s));
        store_close(s);
    } else if (rc == 0) {
        store_close(r->store);
        r->store = s;
    }
    return rc;
}

/* The folder may have been deleted under the open catalogue, or another one be there now. */
static int find_catalog(struct record *r, struct record_chat *c, struct err *e)
{
    int rc = catalog_in_place(store_catalog(r->store), e);
    if (rc == QE_NOTFOUND) {
        rc = open_store(r, &r->notice, e);
        r->generation += rc == 0;
    }
    if (rc == 0 && c->generation != r->generation) {
        if (c->conv > 0) {
            begin_anew(c);
        }
        c->generation = r->generation;
    }
    return rc;
}

/* One that could not be opened is tried again: there may be room by now, or the right to write. */
static bool have_store(struct record *r)
{
    if (!r->store && r->wanted && !r->given_up) {
        struct buf notice = BUF_INIT;
        if (open_store(r, &notice, &r->why) == 0) {
            buf_adds(&r->notice, notice.data ? notice.data : "");
        }
        buf_free(&notice);
    }
    return r->store != NULL;
}

static bool write_rows(struct record *r, struct record_chat *c)
{
    if (!have_store(r)) {
        return c->saved = false;
    }
    struct err e = ERR_INIT;
    int rc = find_catalog(r, c, &e);
    if (rc == 0 && c->retarget && c->conv > 0) {
        (void)catalog_retarget(store_catalog(r->store), c->conv, c->model, c->system, NULL);
    }
    c->retarget = c->retarget && rc < 0;
    rc = rc < 0 ? rc : put_all(r, c, &e);
    if (rc == QE_FORMAT) {
        struct err why = ERR_INIT;
        if (store_repair(r->store, &r->notice, &why) < 0) {
            give_up(r, &why);
            return c->saved = false;
        }
        rc = put_all(r, c, &e);
    }
    if (rc == QE_NOTFOUND) {
        /* removed by another process, or not among what could be saved: it begins anew */
        begin_anew(c);
        rc = put_all(r, c, &e);
    }
    c->saved = rc == 0;
    if (rc < 0) {
        tell_failure(r, &e);
    } else {
        if (r->failing) {
            buf_adds(&r->notice, "what was kept in memory is saved now\n");
        }
        r->failing = false;
        c->saved_at = clock_now(clock_main());
        if (c->leaf) {
            c->last = c->leaf->id;
            c->leaf = NULL;
        }
        drop_stored(c);
    }
    return c->saved;
}

/* ---- what turn.c calls ---- */

void record_open(struct record *r, const char *dir, uint64_t budget, const char *directory,
                 struct lock_set *locks)
{
    *r = (struct record){.directory = directory,
                         .locks = locks,
                         .wanted = dir != NULL,
                         .budget = budget,
                         .why = ERR_INIT};
    r->dir = dir ? mem_strdup(dir) : NULL;
    if (dir && open_store(r, &r->notice, &r->why) < 0) {
        r->failing = true;
        if (r->notice.len == 0) {
            buf_printf(&r->notice, "nothing is stored: %s\n", r->why.msg);
        }
    }
}

void record_close(struct record *r)
{
    store_close(r->store);
    r->store = NULL;
    buf_free(&r->notice);
    free(r->dir);
    r->dir = NULL;
}

static bool same(const char *a, const char *b)
{
    return (a && b) ? strcmp(a, b) == 0 : a == b;
}

bool record_user(struct record *r, struct record_chat *c, const char *model, const char *system,
                 const char *text, size_t n)
{
    c->saved = false;
    if (!r->wanted || r->given_up) {
        c->lost = r->wanted;
        return false;
    }
    if (!same(c->model, model) || !same(c->system, system)) {
        free(c->model);
        free(c->system);
        c->model = copy_str(model);
        c->system = copy_str(system);
        c->retarget = true;
    }
    c->user = add_row(c, CAT_USER, c->leaf, c->last);
    c->answer = NULL;
    row_set(c->user, &(struct catalog_turn){.text = text, .text_n = n});
    return write_rows(r, c);
}

void record_answer(struct record *r, struct record_chat *c, const struct catalog_turn *t)
{
    if (r->given_up || !c->user) {
        return;
    }
    if (!c->answer) {
        c->answer = add_row(c, CAT_ASSISTANT, c->user, 0);
    }
    row_set(c->answer, t);
    if (r->store) { /* else when the turn is over */
        (void)write_rows(r, c);
    }
}

bool record_more(struct record *r, struct record_chat *c, const struct catalog_turn *t)
{
    struct record_row *w = c->answer;
    if (!w || w->changed || w->id == 0 || !r->store || t->n_ids <= w->ids_put ||
        t->text_n < w->text_put || t->thought_n < w->thought_put) {
        return false;
    }
    const struct catalog_part p = {.text = t->text ? t->text + w->text_put : NULL,
                                   .text_n = t->text_n - w->text_put,
                                   .thought = t->thought ? t->thought + w->thought_put : NULL,
                                   .thought_n = t->thought_n - w->thought_put,
                                   .ids = t->ids + w->ids_put,
                                   .n_ids = t->n_ids - w->ids_put};
    if (catalog_part_add(store_catalog(r->store), w->id, &p, NULL) < 0) {
        return false; /* what is wrong is told when the whole is written */
    }
    w->text_put = t->text_n;
    w->thought_put = t->thought_n;
    w->ids_put = t->n_ids;
    return true;
}

int64_t record_done(struct record *r, struct record_chat *c, bool kept)
{
    struct record_row *answer = c->answer, *user = c->user;
    c->user = c->answer = NULL;
    if (!user) {
        return 0;
    }
    user->over = true;
    if (answer) {
        answer->over = true;
    }
    if (kept && answer) {
        c->leaf = answer;
    }
    const bool stored = write_rows(r, c);
    return stored && kept && answer ? c->last : 0;
}

struct path {
    int64_t *id;
    size_t n, cap;
};

static bool add_id(void *ctx, const struct catalog_turn *t)
{
    struct path *p = ctx;
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->id = mem_realloc(p->id, p->cap * sizeof *p->id);
    }
    p->id[p->n++] = t->id;
    return true;
}

void record_rewind(struct record *r, struct record_chat *c, size_t back)
{
    (void)record_flush(r, c);
    struct record_row *w = c->leaf; /* only what could not be written is still here */
    int64_t at = c->last;
    for (; w && back > 0; back--) {
        at = w->before ? 0 : w->after;
        w = w->before;
    }
    c->leaf = w;
    if (w || back == 0 || at == 0 || !r->store) {
        c->last = w ? c->last : back == 0 ? at : 0;
        return;
    }
    struct path p = {0};
    struct err e = ERR_INIT;
    if (catalog_path(store_catalog(r->store), c->conv, at, add_id, &p, &e) < 0) {
        buf_printf(&r->notice, "the new branch is stored without what is before it: %s\n", e.msg);
        p.n = 0;
    }
    c->last = p.n > back ? p.id[p.n - 1 - back] : 0;
    free(p.id);
}

bool record_stuck(const struct record *r, const struct record_chat *c)
{
    return r->store && r->failing && c->rows;
}

bool record_flush(struct record *r, struct record_chat *c)
{
    return !c->lost && (!c->rows || write_rows(r, c));
}

int record_begin(struct record *r, struct record_chat *c, struct err *e)
{
    const int rc = find_catalog(r, c, e);
    return rc < 0 ? rc : put_conv(r, c, e);
}

int64_t record_place(const struct record_chat *c)
{
    return c->user && c->user->id > 0 ? c->user->id : c->last;
}

void record_leave(struct record_chat *c)
{
    lock_release(c->lock);
    for (struct record_row *w = c->rows; w;) {
        struct record_row *next = w->next;
        row_clear(w);
        free(w);
        w = next;
    }
    free(c->model);
    free(c->system);
    memset(c, 0, sizeof *c);
}
