/* From a damaged catalogue to a sound one. Rows are known by their shape, not by
 * the table they were in, since the schema may be what is damaged. The new file
 * is complete under its own name before the old one moves, so that a kill at any
 * moment leaves one of them to go on from. */
#include "config.h"
#include "sessions/salvage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "sessions/catalog_sql.h"
#include "sessions/pages.h"

enum { OLD_TURN_COLUMNS = 11, TURN_ROW = 12, OLD_CONV_COLUMNS = 6, CONV_ROW = 10 };

struct sv_conv {
    int64_t id, created, updated, leaf;
    char *title, *model, *system, *directory;
    bool named, pinned;
};

struct sv_turn {
    int64_t id, conv, parent, created;
    int role;
    char *text, *thought, *calls, *finish, *stats, *settings;
    size_t text_n, thought_n;
    int32_t *ids;
    size_t n_ids;
};

struct sv_state {
    int64_t turn, tokens, bytes;
    char *file, *compat;
};

struct sv_tag {
    int64_t conv;
    char *tag;
};

/* All rows that were found, not in order, perhaps more than once. */
struct found {
    struct sv_conv *convs;
    struct sv_turn *turns;
    struct sv_state *states;
    struct sv_tag *tags;
    size_t n_convs, n_turns, n_states, n_tags;
    int no_turn, no_head;
};

/* ---- recognising ---- */

static bool is_int(const struct cell *c)
{
    return c->kind == CELL_INT;
}

static bool is_text(const struct cell *c)
{
    return c->kind == CELL_TEXT;
}

static bool text_or_null(const struct cell *c)
{
    return c->kind == CELL_TEXT || c->kind == CELL_NULL;
}

static bool int_or_null(const struct cell *c)
{
    return c->kind == CELL_INT || c->kind == CELL_NULL;
}

static char *text_of(const struct cell *c)
{
    return c->kind == CELL_TEXT ? mem_strndup(c->n ? (const char *)c->p : "", c->n) : NULL;
}

/* A text that may hold any byte. */
static char *bytes_of(const struct cell *c, size_t *n)
{
    *n = 0;
    if (c->kind != CELL_TEXT) {
        return NULL;
    }
    char *p = mem_zalloc(c->n + 1);
    if (c->n > 0) {
        memcpy(p, c->p, c->n);
    }
    *n = c->n;
    return p;
}

static int role_of(const struct cell *c)
{
    for (int r = CAT_USER; is_text(c) && r <= CAT_SYSTEM; r++) {
        if (c->n == strlen(cat_roles[r]) && memcmp(c->p, cat_roles[r], c->n) == 0) {
            return r;
        }
    }
    return -1;
}

/* Room for one more of size bytes behind n of them. */
static void *grow(void *p, size_t n, size_t size)
{
    return (n & (n + 1)) == 0 || n == 0 ? mem_realloc(p, 2 * (n + 1) * size) : p;
}

static bool take_turn(struct found *f, int64_t id, const struct cell *c, int n)
{
    if (n < OLD_TURN_COLUMNS || n > TURN_ROW || c[0].kind != CELL_NULL || !is_int(&c[1]) ||
        !int_or_null(&c[2]) || role_of(&c[3]) < 0 || !is_text(&c[4]) || !text_or_null(&c[5]) ||
        !text_or_null(&c[6]) || (c[7].kind != CELL_BLOB && c[7].kind != CELL_NULL) ||
        !text_or_null(&c[8]) || !text_or_null(&c[9]) || !is_int(&c[10])) {
        return false;
    }
    f->turns = grow(f->turns, f->n_turns, sizeof *f->turns);
    struct sv_turn *t = &f->turns[f->n_turns++];
    *t = (struct sv_turn){.id = id,
                          .conv = c[1].i,
                          .parent = c[2].i,
                          .role = role_of(&c[3]),
                          .calls = text_of(&c[6]),
                          .finish = text_of(&c[8]),
                          .stats = text_of(&c[9]),
                          .created = c[10].i,
                          .settings = n > 11 ? text_of(&c[11]) : NULL};
    t->text = bytes_of(&c[4], &t->text_n);
    t->thought = bytes_of(&c[5], &t->thought_n);
    t->n_ids = c[7].n / 4;
    t->ids = mem_array(t->n_ids + 1, sizeof *t->ids);
    for (size_t i = 0; i < t->n_ids; i++) {
        const uint8_t *p = c[7].p + 4 * i;
        t->ids[i] = (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                              (uint32_t)p[3] << 24);
    }
    return true;
}

static bool take_conv(struct found *f, int64_t id, const struct cell *c, int n)
{
    if ((n != OLD_CONV_COLUMNS && n != CONV_ROW) || c[0].kind != CELL_NULL || !is_int(&c[1]) ||
        !is_int(&c[2]) || !is_text(&c[3]) || !is_text(&c[4]) || !text_or_null(&c[5])) {
        return false;
    }
    const bool whole = n == CONV_ROW;
    if (whole &&
        (!is_int(&c[6]) || !is_int(&c[7]) || !text_or_null(&c[8]) || !int_or_null(&c[9]))) {
        return false;
    }
    f->convs = grow(f->convs, f->n_convs, sizeof *f->convs);
    f->convs[f->n_convs++] = (struct sv_conv){.id = id,
                                              .created = c[1].i,
                                              .updated = c[2].i,
                                              .title = text_of(&c[3]),
                                              .model = text_of(&c[4]),
                                              .system = text_of(&c[5]),
                                              .named = whole && c[6].i,
                                              .pinned = whole && c[7].i,
                                              .directory = whole ? text_of(&c[8]) : NULL,
                                              .leaf = whole ? c[9].i : 0};
    return true;
}

static bool take_state(struct found *f, const struct cell *c, int n)
{
    if (n != 8 || c[0].kind != CELL_NULL || !is_int(&c[1]) || !is_int(&c[2]) || !is_text(&c[3]) ||
        !is_text(&c[4]) || !is_int(&c[5]) || !is_int(&c[6]) || !is_int(&c[7])) {
        return false;
    }
    f->states = grow(f->states, f->n_states, sizeof *f->states);
    f->states[f->n_states++] = (struct sv_state){.turn = c[2].i,
                                                 .tokens = c[5].i,
                                                 .bytes = c[6].i,
                                                 .file = text_of(&c[3]),
                                                 .compat = text_of(&c[4])};
    return true;
}

static void take_row(void *ctx, int64_t rowid, const struct cell *c, int n)
{
    struct found *f = ctx;
    if (rowid <= 0 || take_turn(f, rowid, c, n) || take_conv(f, rowid, c, n) ||
        take_state(f, c, n)) {
        return;
    }
    if (n == 3 && c[0].kind == CELL_NULL && is_int(&c[1]) && is_text(&c[2])) {
        f->tags = grow(f->tags, f->n_tags, sizeof *f->tags);
        f->tags[f->n_tags++] = (struct sv_tag){c[1].i, text_of(&c[2])};
    }
}

/* Drops rows whose id was there before; v is in order of ids. */
#define UNIQUE(v, n, release)                                                                      \
    do {                                                                                           \
        size_t kept = 0;                                                                           \
        for (size_t i = 0; i < (n); i++) {                                                         \
            if (kept > 0 && (v)[kept - 1].id == (v)[i].id) {                                       \
                release(&(v)[i]);                                                                  \
            } else {                                                                               \
                (v)[kept++] = (v)[i];                                                              \
            }                                                                                      \
        }                                                                                          \
        (n) = kept;                                                                                \
    } while (0)

static void free_conv(struct sv_conv *c)
{
    free(c->title);
    free(c->model);
    free(c->system);
    free(c->directory);
}

static void free_turn(struct sv_turn *t)
{
    free(t->text);
    free(t->thought);
    free(t->calls);
    free(t->finish);
    free(t->stats);
    free(t->settings);
    free(t->ids);
}

static void free_found(struct found *f)
{
    for (size_t i = 0; i < f->n_convs; i++) {
        free_conv(&f->convs[i]);
    }
    for (size_t i = 0; i < f->n_turns; i++) {
        free_turn(&f->turns[i]);
    }
    for (size_t i = 0; i < f->n_states; i++) {
        free(f->states[i].file);
        free(f->states[i].compat);
    }
    for (size_t i = 0; i < f->n_tags; i++) {
        free(f->tags[i].tag);
    }
    free(f->convs);
    free(f->turns);
    free(f->states);
    free(f->tags);
}

static int by_id(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int conv_order(const void *a, const void *b)
{
    return by_id(((const struct sv_conv *)a)->id, ((const struct sv_conv *)b)->id);
}

static int turn_order(const void *a, const void *b)
{
    return by_id(((const struct sv_turn *)a)->id, ((const struct sv_turn *)b)->id);
}

static struct sv_conv *conv_of(const struct found *f, int64_t id)
{
    const struct sv_conv key = {.id = id};
    return f->n_convs ? bsearch(&key, f->convs, f->n_convs, sizeof key, conv_order) : NULL;
}

static struct sv_turn *turn_of(const struct found *f, int64_t id)
{
    const struct sv_turn key = {.id = id};
    return f->n_turns ? bsearch(&key, f->turns, f->n_turns, sizeof key, turn_order) : NULL;
}

/* ---- putting together ---- */

/* A conversation whose own row is gone still has its turns. */
static void add_lost_convs(struct found *f)
{
    const size_t known = f->n_convs;
    for (size_t i = 0; i < f->n_turns; i++) {
        const struct sv_turn *t = &f->turns[i];
        const struct found old = {.convs = f->convs, .n_convs = known};
        bool there = conv_of(&old, t->conv) != NULL;
        for (size_t k = known; k < f->n_convs && !there; k++) {
            there = f->convs[k].id == t->conv;
        }
        if (there || t->conv <= 0) {
            continue;
        }
        f->convs = grow(f->convs, f->n_convs, sizeof *f->convs);
        f->convs[f->n_convs++] =
            (struct sv_conv){.id = t->conv,
                             .created = t->created,
                             .updated = t->created,
                             .title = mem_strndup(t->text, cat_title_len(t->text, t->text_n)),
                             .model = mem_strdup("")};
    }
    f->no_head = (int)(f->n_convs - known);
    if (f->n_convs > known) {
        qsort(f->convs, f->n_convs, sizeof *f->convs, conv_order);
    }
}

static int id_order(const void *a, const void *b)
{
    return by_id(*(const int64_t *)a, *(const int64_t *)b);
}

/* Turns that are named as a parent or a leaf, and are not among those that were read. */
static void count_lost_turns(struct found *f)
{
    int64_t *v = mem_array(f->n_turns + f->n_convs + 1, sizeof *v);
    size_t n = 0;
    for (size_t i = 0; i < f->n_turns; i++) {
        v[n] = f->turns[i].parent;
        n += v[n] > 0 && !turn_of(f, v[n]);
    }
    for (size_t i = 0; i < f->n_convs; i++) {
        v[n] = f->convs[i].leaf;
        n += v[n] > 0 && !turn_of(f, v[n]);
    }
    qsort(v, n, sizeof *v, id_order);
    for (size_t i = 0; i < n; i++) {
        f->no_turn += i == 0 || v[i] != v[i - 1];
    }
    free(v);
}

/* The turn before t in its conversation: the parent it names, or the latest earlier one
 * when that is lost. */
static int64_t parent_of(const struct found *f, size_t i)
{
    const struct sv_turn *t = &f->turns[i];
    if (t->parent <= 0) {
        return 0;
    }
    const struct sv_turn *p = t->parent < t->id ? turn_of(f, t->parent) : NULL;
    if (p && p->conv == t->conv) {
        return p->id;
    }
    while (i-- > 0) {
        if (f->turns[i].conv == t->conv) {
            return f->turns[i].id;
        }
    }
    return 0;
}

static int put_conv(struct catalog *c, const struct sv_conv *v, struct err *e)
{
    sqlite3_stmt *st = NULL;
    int rc = cat_prepare(c,
                         "INSERT INTO conversations(id, created, updated, title, named, pinned,"
                         " model, system, directory) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
                         &st, e);
    if (rc < 0) {
        return rc;
    }
    sqlite3_bind_int64(st, 1, v->id);
    sqlite3_bind_int64(st, 2, v->created);
    sqlite3_bind_int64(st, 3, v->updated);
    cat_bind_str(st, 4, v->title);
    sqlite3_bind_int(st, 5, v->named);
    sqlite3_bind_int(st, 6, v->pinned);
    cat_bind_str(st, 7, v->model);
    cat_bind_str(st, 8, v->system);
    cat_bind_str(st, 9, v->directory);
    return cat_run_take(c, st, "add a conversation", e);
}

static int put_turn(struct catalog *c, const struct found *f, size_t i, struct err *e)
{
    const struct sv_turn *t = &f->turns[i];
    const struct catalog_turn row = {.role = (enum catalog_role)t->role,
                                     .text = t->text,
                                     .text_n = t->text_n,
                                     .thought = t->thought,
                                     .thought_n = t->thought_n,
                                     .calls = t->calls,
                                     .ids = t->ids,
                                     .n_ids = t->n_ids,
                                     .finish = t->finish,
                                     .stats = t->stats,
                                     .settings = t->settings,
                                     .created = t->created};
    int64_t id = 0;
    return cat_insert_turn(c, t->id, t->conv, parent_of(f, i), &row, &id, e);
}

/* The turn a conversation stands after: as it said, else its last answer. */
static int put_leaf(struct catalog *c, const struct found *f, const struct sv_conv *v,
                    struct err *e)
{
    const struct sv_turn *leaf = v->leaf > 0 ? turn_of(f, v->leaf) : NULL;
    if (leaf && leaf->conv == v->id) {
        return catalog_set_leaf(c, v->id, leaf->id, e);
    }
    int64_t last = 0;
    for (size_t i = 0; i < f->n_turns; i++) {
        const struct sv_turn *t = &f->turns[i];
        last = t->conv == v->id && t->role == CAT_ASSISTANT && t->text_n > 0 ? t->id : last;
    }
    return last > 0 ? catalog_set_leaf(c, v->id, last, e) : 0;
}

static int put_all(struct catalog *c, struct found *f, struct salvage *out, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < f->n_convs && rc == 0; i++, out->conversations++) {
        rc = put_conv(c, &f->convs[i], e);
    }
    for (size_t i = 0; i < f->n_turns && rc == 0; i++) {
        if (conv_of(f, f->turns[i].conv)) {
            rc = put_turn(c, f, i, e);
            out->turns++;
        }
    }
    for (size_t i = 0; i < f->n_convs && rc == 0; i++) {
        rc = put_leaf(c, f, &f->convs[i], e);
    }
    for (size_t i = 0; i < f->n_tags && rc == 0; i++) {
        if (conv_of(f, f->tags[i].conv)) {
            rc = catalog_tag(c, f->tags[i].conv, f->tags[i].tag, true, e);
        }
    }
    for (size_t i = 0; i < f->n_states && rc == 0; i++) {
        const struct sv_state *s = &f->states[i];
        const struct catalog_state row = {.turn = s->turn,
                                          .file = s->file,
                                          .compat = s->compat,
                                          .tokens = s->tokens,
                                          .bytes = s->bytes};
        const struct sv_turn *t = turn_of(f, s->turn);
        rc = t && conv_of(f, t->conv) ? catalog_state_add(c, &row, e) : 0;
    }
    return rc;
}

/* ---- files ---- */

static char *with(const char *path, const char *end)
{
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s%s", path, end);
    return buf_take(&b);
}

static void remove_with_sides(const char *path)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < 3; i++) {
        char *p = with(path, ends[i]);
        unlink(p);
        free(p);
    }
}

static int write_new(const char *path, struct found *f, struct salvage *out, struct err *e)
{
    remove_with_sides(path);
    struct catalog *c = NULL;
    int rc = catalog_open(path, &c, e);
    if (rc == 0) {
        rc = cat_begin_write(c, e);
        rc = rc < 0 ? rc : cat_end_write(c, put_all(c, f, out, e), e);
        /* all of it into the one file that will be moved */
        rc = rc < 0 ? rc : cat_exec(c, "PRAGMA journal_mode = DELETE", "close its log", e);
    }
    catalog_close(c);
    if (rc < 0) {
        remove_with_sides(path);
    }
    return rc;
}

/* A second name for the damaged file and its log, at a time nobody used yet. */
static int keep_aside(const char *path, char **kept, struct err *e)
{
    char stamp[40];
    const time_t now = time(NULL);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, ".damaged-%Y%m%d-%H%M%S", &tm);
    for (int i = 0; i < 100; i++) {
        struct buf b = BUF_INIT;
        buf_printf(&b, "%s%s", path, stamp);
        if (i > 0) {
            buf_printf(&b, "-%d", i);
        }
        *kept = buf_take(&b);
        if (link(path, *kept) == 0) {
            char *wal = with(path, "-wal"), *kept_wal = with(*kept, "-wal");
            (void)link(wal, kept_wal); /* there may be none */
            free(wal);
            free(kept_wal);
            return 0;
        }
        const int n = errno;
        free(*kept);
        *kept = NULL;
        if (n != EEXIST) {
            return err_sys(e, QE_IO, n, "cannot keep the damaged %s under another name", path);
        }
    }
    return err_set(e, QE_IO, "cannot find a name for the damaged %s", path);
}

/* The log goes first: beside the new file it would be taken for the new one's. */
static int swap(const char *path, const char *fresh, struct salvage *out, struct err *e)
{
    int rc = keep_aside(path, &out->kept, e);
    if (rc < 0) {
        return rc;
    }
    char *wal = with(path, "-wal"), *shm = with(path, "-shm");
    unlink(wal);
    unlink(shm);
    free(wal);
    free(shm);
    if (rename(fresh, path) < 0) {
        rc = err_sys(e, QE_IO, errno, "cannot move %s to %s", fresh, path);
    }
    return rc;
}

/* Whether it opens and SQLite finds no fault in it. */
static bool is_sound(const char *path)
{
    struct catalog *c = NULL;
    const bool sound = access(path, F_OK) == 0 && catalog_open(path, &c, NULL) == 0 &&
                       catalog_verify(c, NULL) == 0;
    catalog_close(c);
    return sound;
}

static bool any_conv(void *ctx, const struct catalog_conv *v)
{
    (void)v;
    *(bool *)ctx = true;
    return false;
}

/* A new file that an earlier salvage finished, but did not live to move: its rows came
 * in one transaction. */
static bool is_complete(const char *fresh)
{
    struct catalog *c = NULL;
    bool any = false;
    if (access(fresh, F_OK) == 0 && catalog_open(fresh, &c, NULL) == 0) {
        (void)catalog_list(c, 1, any_conv, &any, NULL);
        any = any && catalog_verify(c, NULL) == 0 &&
              cat_exec(c, "PRAGMA journal_mode = DELETE", "close its log", NULL) == 0;
    }
    catalog_close(c);
    return any;
}

static int find_rows(const char *path, struct found *f, struct err *e)
{
    const int rc = pages_rows(path, take_row, f, e);
    if (rc < 0) {
        return rc;
    }
    if (f->n_convs > 0) {
        qsort(f->convs, f->n_convs, sizeof *f->convs, conv_order);
        UNIQUE(f->convs, f->n_convs, free_conv);
    }
    if (f->n_turns > 0) {
        qsort(f->turns, f->n_turns, sizeof *f->turns, turn_order);
        UNIQUE(f->turns, f->n_turns, free_turn);
        add_lost_convs(f);
    }
    count_lost_turns(f);
    return 0;
}

static int salvage_locked(const char *path, const char *fresh, struct salvage *out, struct err *e)
{
    int rc = 0;
    if (!is_complete(fresh)) {
        if (is_sound(path)) {
            remove_with_sides(fresh); /* another process was here, or there is no damage */
            return 0;
        }
        struct found f = {.n_convs = 0};
        struct stat st;
        out->empty = stat(path, &st) == 0 && st.st_size == 0;
        rc = find_rows(path, &f, e);
        out->no_turn = f.no_turn;
        out->no_head = f.no_head;
        rc = rc < 0 ? rc : write_new(fresh, &f, out, e);
        free_found(&f);
    }
    if (rc == 0) {
        rc = swap(path, fresh, out, e);
    }
    if (rc < 0) {
        remove_with_sides(fresh);
    }
    return rc;
}

bool catalog_half_salvaged(const char *path)
{
    char *fresh = with(path, ".salvaged");
    const bool there = access(fresh, F_OK) == 0;
    free(fresh);
    return there;
}

int catalog_salvage(const char *path, struct salvage *out, struct err *e)
{
    *out = (struct salvage){.kept = NULL};
    char *lock = with(path, ".salvage-lock"), *fresh = with(path, ".salvaged");
    const int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int rc = 0;
    if (fd < 0 || flock(fd, LOCK_EX) < 0) {
        rc = err_sys(e, QE_IO, errno, "cannot lock %s", lock);
    } else {
        rc = salvage_locked(path, fresh, out, e);
    }
    if (fd >= 0) {
        close(fd);
    }
    free(lock);
    free(fresh);
    return rc;
}
