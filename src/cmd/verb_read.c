/* quasar sessions list, search, show, export: what is stored, as lines, Markdown or
 * JSON. */
#include "config.h"
#include "cmd/verb.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "cmd/printsafe.h"
#include "cmd/sessout.h"
#include "sessions/lock.h"

#define TITLE_LEAST 16 /* cells of a title, however narrow the terminal is */

static long holder(const struct verb_in *in, int64_t conv)
{
    return (long)lock_holder(store_dir(in->store), conv);
}

/* ---- list, search ---- */

struct listing {
    const struct verb_in *in;
    json_t *all; /* NULL: lines */
    uint64_t bytes;
    int n;
};

/* A title is one line in a list, and on a terminal in the cells that are left of one. */
static void print_title(const struct verb_in *in, const char *s, int cells)
{
    const size_t n = strcspn(s, "\r\n");
    print_fit(stdout, n ? s : "-", n ? n : 1, true, in->tty ? cells : 0);
}

static bool list_one(void *ctx, const struct catalog_conv *v)
{
    struct listing *l = ctx;
    const long open_by = holder(l->in, v->id);
    l->n++;
    l->bytes += (uint64_t)v->state_bytes;
    if (l->all) {
        json_array_append_new(l->all, sessout_conv(v, open_by));
        return true;
    }
    char when[20], size[16], turns[16];
    struct buf head = BUF_INIT, tail = BUF_INIT;
    sessout_time(v->updated, when);
    sessout_size((uint64_t)v->state_bytes, size);
    snprintf(turns, sizeof turns, "%d", v->turns);
    buf_printf(&head, "%5lld  %s  %4s %-5s  %9s  ", (long long)v->id, when,
               v->turns < 0 ? "?" : turns, v->turns == 1 ? "turn" : "turns",
               v->state_bytes ? size
               : v->turns < 0 ? "?"
                              : "text only");
    if (v->tags) {
        buf_printf(&tail, "  [%s]", v->tags);
    }
    buf_adds(&tail, v->pinned ? "  pinned" : "");
    if (open_by) {
        buf_printf(&tail, "  open (process %ld)", open_by);
    }
    fputs(head.data, stdout);
    const int taken = print_cells(head.data, head.len) + print_cells(tail.data, tail.len);
    const int left = print_columns() - taken;
    print_title(l->in, v->title, left > TITLE_LEAST ? left : TITLE_LEAST);
    verb_safe(tail.data ? tail.data : "");
    putchar('\n');
    buf_free(&head);
    buf_free(&tail);
    return true;
}

int verb_list(struct verb_in *in, struct err *e)
{
    struct listing l = {.in = in, .all = in->json ? json_array() : NULL};
    const int rc = catalog_list(in->c, INT_MAX, list_one, &l, e);
    if ((rc < 0 && rc != QE_FORMAT) || in->json) {
        json_t *o = json_object();
        json_object_set_new(o, "conversations", l.all ? l.all : json_array());
        json_object_set_new(o, "state_bytes", json_integer((json_int_t)l.bytes));
        json_object_set_new(o, "state_budget", json_integer((json_int_t)store_budget(in->store)));
        if (rc < 0 && rc != QE_FORMAT) {
            json_decref(o);
        } else {
            json_print_take(o);
        }
        return rc;
    }
    if (rc < 0) {
        return rc; /* what could be read is listed */
    }
    char bytes[16], budget[16];
    sessout_size(l.bytes, bytes);
    sessout_size(store_budget(in->store), budget);
    if (l.n == 0) {
        puts("No conversation is stored.");
    } else if (in->tty) {
        printf("States take %s of %s.\n", bytes, budget);
    }
    return 0;
}

struct hits {
    const struct verb_in *in;
    json_t *all;
};

/* The line of a turn that has one of the words, or its first. */
static bool hit_one(void *ctx, int64_t conv, const struct catalog_turn *t)
{
    struct hits *h = ctx;
    if (h->all) {
        json_t *o = sessout_turn(t);
        json_object_set_new(o, "conversation", json_integer(conv));
        json_array_append_new(h->all, o);
        return true;
    }
    const char *from = t->text;
    for (int i = 0; i < h->in->n && from == t->text; i++) {
        const char *at = strcasestr(t->text, h->in->words[i]);
        from = at ? at : from;
    }
    while (from > t->text && from[-1] != '\n') {
        from--;
    }
    size_t n = strcspn(from, "\r\n");
    n = n > 100 ? 100 : n;
    while (n > 0 && ((unsigned char)from[n] & 0xC0) == 0x80) {
        n--;
    }
    printf("%5lld  turn %-6lld %-9s  ", (long long)conv, (long long)t->id, cat_roles[t->role]);
    print_safe(stdout, from, n, h->in->tty);
    putchar('\n');
    return true;
}

int verb_search(struct verb_in *in, struct err *e)
{
    struct buf words = BUF_INIT;
    for (int i = 0; i < in->n; i++) {
        buf_printf(&words, "%s%s", i ? " " : "", in->words[i]);
    }
    if (strspn(words.data, " \t\r\n") == words.len) {
        buf_free(&words);
        return err_set(e, QE_USAGE, "there is no word to search for");
    }
    struct hits h = {in, in->json ? json_array() : NULL};
    const int rc = catalog_search(in->c, words.data, 100, hit_one, &h, e);
    buf_free(&words);
    if (rc == 0 && in->json) {
        json_print_take(json_pack("{s:o}", "turns", h.all));
    } else {
        json_decref(h.all);
    }
    return rc;
}

/* ---- show, export ---- */

struct show {
    const struct verb_in *in;
    json_t *conv, *turns, *path;
    struct buf md;
    int64_t *on_path;
    size_t n_path;
    bool question; /* the last turn is one */
};

static bool show_conv(void *ctx, const struct catalog_conv *v)
{
    struct show *s = ctx;
    s->conv = sessout_conv(v, holder(s->in, v->id));
    sessout_md_head(v, &s->md);
    return false;
}

static bool show_turn(void *ctx, const struct catalog_turn *t)
{
    struct show *s = ctx;
    json_array_append_new(s->turns, sessout_turn(t));
    return true;
}

static bool path_turn(void *ctx, const struct catalog_turn *t)
{
    struct show *s = ctx;
    s->on_path = mem_realloc(s->on_path, (s->n_path + 1) * sizeof *s->on_path);
    s->on_path[s->n_path++] = t->id;
    s->question = t->role == CAT_USER;
    json_array_append_new(s->path, json_integer(t->id));
    sessout_md_turn(t, &s->md);
    return true;
}

static void show_free(struct show *s)
{
    json_decref(s->conv);
    json_decref(s->turns);
    json_decref(s->path);
    buf_free(&s->md);
    free(s->on_path);
}

/* Where the conversation is followed to: the turn that was named, else what its writer left
 * unfinished, else its leaf (0). */
static int path_end(const struct verb_in *in, int64_t conv, int64_t *turn, struct err *e)
{
    *turn = conf_int(in->cf, "turn", 0);
    return *turn > 0 ? 0 : catalog_tip(in->c, conv, false, turn, e);
}

/* Reads a conversation whole: its row, all its turns, those that lead to where it is
 * followed. */
static int show_read(const struct verb_in *in, struct show *s, struct err *e)
{
    int64_t conv = 0, turn = 0;
    *s = (struct show){.in = in, .turns = json_array(), .path = json_array()};
    int rc = verb_find(in, 0, &conv, e);
    rc = rc < 0 ? rc : catalog_get(in->c, conv, show_conv, s, e);
    rc = rc < 0 ? rc : catalog_turns(in->c, conv, show_turn, s, e);
    rc = rc < 0 ? rc : path_end(in, conv, &turn, e);
    rc = rc < 0 ? rc : catalog_path(in->c, conv, turn, path_turn, s, e);
    if (rc == 0 && turn > 0 && s->n_path == 0) {
        rc = err_set(e, QE_NOTFOUND, "conversation %lld has no turn %lld", (long long)conv,
                     (long long)turn);
    }
    if (rc == 0 && s->question && conf_int(in->cf, "turn", 0) == 0) {
        buf_adds(&s->md, "*(no answer)*\n\n");
    }
    return rc;
}

static bool is_on_path(const struct show *s, int64_t id)
{
    for (size_t i = 0; i < s->n_path; i++) {
        if (s->on_path[i] == id) {
            return true;
        }
    }
    return false;
}

/* Where other branches leave this one. */
static void print_branches(const struct show *s)
{
    size_t i = 0;
    json_t *t = NULL;
    json_array_foreach(s->turns, i, t)
    {
        const int64_t id = json_integer_value(json_object_get(t, "id"));
        const int64_t parent = json_integer_value(json_object_get(t, "parent"));
        if (!is_on_path(s, id) && (parent == 0 || is_on_path(s, parent))) {
            printf("another branch: turn %lld, after %lld\n", (long long)id, (long long)parent);
        }
    }
}

int verb_show(struct verb_in *in, struct err *e)
{
    struct show s;
    int rc = show_read(in, &s, e);
    if (rc == 0 && in->json) {
        json_object_set(s.conv, "path", s.path);
        json_object_set_new(s.conv, "all_turns", json_incref(s.turns));
        json_print_take(json_incref(s.conv));
    } else if (rc == 0) {
        print_safe(stdout, s.md.data, s.md.len, in->tty);
        print_branches(&s);
    }
    show_free(&s);
    return rc;
}

struct lines {
    struct buf out;
    bool unfinished; /* the last turn is */
};

/* An answer that has not begun is no message. */
static bool line_turn(void *ctx, const struct catalog_turn *t)
{
    struct lines *l = ctx;
    const bool open = t->role == CAT_ASSISTANT && !t->finish;
    l->unfinished = open || t->role == CAT_USER;
    if (open && t->text_n + t->thought_n == 0) {
        return true;
    }
    json_t *m = sessout_message(t);
    json_write(m, &l->out);
    buf_addc(&l->out, '\n');
    json_decref(m);
    return true;
}

static int export_lines(struct verb_in *in, struct buf *out, struct err *e)
{
    struct lines l = {.out = BUF_INIT};
    int64_t conv = 0, turn = 0;
    int rc = verb_find(in, 0, &conv, e);
    rc = rc < 0 ? rc : path_end(in, conv, &turn, e);
    rc = rc < 0 ? rc : catalog_path(in->c, conv, turn, line_turn, &l, e);
    if (rc == 0 && l.unfinished && conf_int(in->cf, "turn", 0) == 0) {
        /* messages have no place for it */
        fprintf(stderr, "quasar: the last turn of conversation %lld is unfinished\n",
                (long long)conv);
    }
    *out = l.out;
    return rc;
}

static int export_whole(struct verb_in *in, bool json, struct buf *out, struct err *e)
{
    struct show s;
    const int rc = show_read(in, &s, e);
    if (rc == 0 && json) {
        json_object_set(s.conv, "path", s.path);
        json_object_set_new(s.conv, "all_turns", json_incref(s.turns));
        json_write(s.conv, out);
        buf_addc(out, '\n');
    } else if (rc == 0) {
        buf_add(out, s.md.data, s.md.len);
    }
    show_free(&s);
    return rc;
}

/* Never over a file that is there, unless told so. */
static int write_file(const struct verb_in *in, const char *path, const struct buf *b,
                      struct err *e)
{
    if (!conf_flag(in->cf, "force") && access(path, F_OK) == 0) {
        return err_set(e, QE_IO, "%s is there already: name another file, or give --force", path);
    }
    struct tmp_out t = TMP_OUT_INIT;
    int rc = tmp_out_create(&t, path, 0600, e);
    rc = rc < 0 ? rc : io_write_all(t.fd, b->data ? b->data : "", b->len, path, e);
    rc = rc < 0 ? rc : tmp_out_commit(&t, path, e);
    tmp_out_fini(&t);
    return rc;
}

int verb_export(struct verb_in *in, struct err *e)
{
    const char *form = in->json ? "json" : conf_str(in->cf, "format");
    struct buf b = BUF_INIT;
    int rc = strcmp(form, "jsonl") == 0 ? export_lines(in, &b, e)
                                        : export_whole(in, strcmp(form, "json") == 0, &b, e);
    if (rc == 0 && in->n == 2 && strcmp(in->words[1], "-") != 0) {
        rc = write_file(in, in->words[1], &b, e);
    } else if (rc == 0) {
        print_safe(stdout, b.data ? b.data : "", b.len, in->tty);
    }
    buf_free(&b);
    return rc;
}
