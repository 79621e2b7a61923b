/* quasar sessions: what is stored, from the outside. Each verb is one function;
 * conversations are named by number, title, or the beginning of one title. What
 * changes a conversation takes its lock first. */
#include "config.h"
#include "cmd/cmd.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/jsonio.h"
#include "base/mem.h"
#include "cmd/convopts.h"
#include "cmd/printsafe.h"
#include "cmd/session.h"
#include "cmd/sessout.h"
#include "sessions/lock.h"
#include "sessions/prefixdir.h"

#define TITLE_LEAST 16 /* cells of a title, however narrow the terminal is */

/* What a verb works with. */
struct verb_in {
    const struct conf *cf;
    struct store *store;
    struct catalog *c;
    int n; /* words after the verb */
    char **words;
    bool json, tty;
};

static int find(const struct verb_in *in, int i, int64_t *conv, struct err *e)
{
    return catalog_find(in->c, in->words[i], conv, e);
}

static long holder(const struct verb_in *in, int64_t conv)
{
    return (long)lock_holder(store_dir(in->store), conv);
}

/* A part of a line of ours: no control character goes out, wherever it goes. */
static void safe(const char *s)
{
    print_safe(stdout, s, strlen(s), true);
}

/* Each line of a notice is one of ours. */
static void print_notice(const struct buf *notice)
{
    const char *p = notice->len > 0 ? notice->data : "";
    for (size_t n = 0; *p; p += n + (p[n] == '\n')) {
        n = strcspn(p, "\n");
        fprintf(stderr, "quasar: %.*s\n", (int)n, p);
    }
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
    safe(tail.data ? tail.data : "");
    putchar('\n');
    buf_free(&head);
    buf_free(&tail);
    return true;
}

static int verb_list(struct verb_in *in, struct err *e)
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

static int verb_search(struct verb_in *in, struct err *e)
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
    int rc = find(in, 0, &conv, e);
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

static int verb_show(struct verb_in *in, struct err *e)
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
    int rc = find(in, 0, &conv, e);
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

static int verb_export(struct verb_in *in, struct err *e)
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

/* ---- changes ---- */

static void say_id(const struct verb_in *in, int64_t id)
{
    if (in->json) {
        json_print_take(json_pack("{s:I}", "id", (json_int_t)id));
    } else {
        printf("%lld\n", (long long)id);
    }
}

static int verb_fork(struct verb_in *in, struct err *e)
{
    int64_t conv = 0, fork = 0;
    int rc = in->n == 2 ? catalog_check_name(in->words[1], e) : 0;
    rc = rc < 0 ? rc : find(in, 0, &conv, e);
    rc = rc < 0 ? rc
                : catalog_fork(in->c, conv, conf_int(in->cf, "turn", 0),
                               in->n == 2 ? in->words[1] : NULL, &fork, e);
    if (rc == 0) {
        say_id(in, fork);
    }
    return rc;
}

/* What the words mean, each conversation once, before anything is done to one. */
static int find_all(const struct verb_in *in, int64_t **out, int *n, struct err *e)
{
    int64_t *v = mem_array((size_t)in->n, sizeof *v);
    int rc = 0;
    *n = 0;
    for (int i = 0; i < in->n && rc == 0; i++) {
        rc = find(in, i, &v[*n], e);
        bool again = false;
        for (int k = 0; k < *n; k++) {
            again = again || v[k] == v[*n];
        }
        *n += rc == 0 && !again;
    }
    *out = v;
    return rc;
}

static int verb_rm(struct verb_in *in, struct err *e)
{
    int64_t *v = NULL;
    int n = 0;
    int rc = find_all(in, &v, &n, e);
    struct session_lock **locks = mem_array((size_t)n + 1, sizeof *locks);
    for (int i = 0; i < n && rc == 0; i++) {
        rc = lock_take(store_dir(in->store), v[i], &locks[i], e);
    }
    for (int i = 0; i < n && rc == 0; i++) {
        rc = store_remove(in->store, v[i], e);
        if (rc == 0) {
            lock_release(locks[i]);
            locks[i] = NULL;
            lock_forget(store_dir(in->store), v[i]);
        }
    }
    for (int i = 0; i < n; i++) {
        lock_release(locks[i]);
    }
    free(locks);
    free(v);
    return rc;
}

static int verb_rename(struct verb_in *in, struct err *e)
{
    int64_t conv = 0;
    int rc = catalog_check_name(in->words[1], e);
    rc = rc < 0 ? rc : find(in, 0, &conv, e);
    return rc < 0 ? rc : catalog_rename(in->c, conv, in->words[1], e);
}

static int set_pin(const struct verb_in *in, bool on, struct err *e)
{
    int64_t *v = NULL;
    int n = 0;
    int rc = find_all(in, &v, &n, e);
    for (int i = 0; i < n && rc == 0; i++) {
        rc = catalog_pin(in->c, v[i], on, e);
    }
    free(v);
    return rc;
}

static int verb_pin(struct verb_in *in, struct err *e)
{
    return set_pin(in, true, e);
}

static int verb_unpin(struct verb_in *in, struct err *e)
{
    return set_pin(in, false, e);
}

static int set_tags(const struct verb_in *in, bool on, struct err *e)
{
    int64_t conv = 0;
    int rc = find(in, 0, &conv, e);
    for (int i = 1; i < in->n && rc == 0; i++) {
        if (!in->words[i][0] || strchr(in->words[i], ',')) {
            return err_set(e, QE_USAGE, "\"%.40s\" cannot be a tag: it is empty or has a comma",
                           in->words[i]);
        }
        rc = catalog_tag(in->c, conv, in->words[i], on, e);
    }
    return rc;
}

static int verb_tag(struct verb_in *in, struct err *e)
{
    return set_tags(in, true, e);
}

static int verb_untag(struct verb_in *in, struct err *e)
{
    return set_tags(in, false, e);
}

/* ---- order ---- */

static int gc_status(const struct store_gc *done, struct err *e)
{
    return done->left == 0 ? 0
           : done->left > 1
               ? err_set(e, QE_IO, "%d things could not be read or deleted, first: %s", done->left,
                         done->first.msg)
               : err_set(e, QE_IO, "one thing could not be read or deleted: %s", done->first.msg);
}

static int verb_gc(struct verb_in *in, struct err *e)
{
    struct store_gc done;
    int prompts = 0;
    uint64_t prompt_bytes = 0;
    char *dir = NULL;
    int rc = convopts_prefix_dir(in->cf, &dir, e);
    rc = rc < 0 ? rc : store_gc(in->store, &done, e);
    if (rc < 0) {
        free(dir);
        return rc;
    }
    struct err why = ERR_INIT;
    if (dir && prefixdir_sweep(dir, &prompts, &prompt_bytes, &why) < 0 && done.left++ == 0) {
        done.first = why;
    }
    done.bytes += prompt_bytes;
    free(dir);
    if (in->json) {
        json_print_take(json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:i}", "states", done.states,
                                  "damaged", done.damaged, "damaged_prompts", prompts, "lost",
                                  done.lost, "leftovers", done.leftovers, "bytes",
                                  (json_int_t)done.bytes, "left", done.left));
        return gc_status(&done, e);
    }
    char size[16];
    sessout_size(done.bytes, size);
    printf("%d state%s deleted, %d whose file was gone forgotten, %d other file%s removed; %s "
           "freed\n",
           done.states, done.states == 1 ? "" : "s", done.lost, done.leftovers,
           done.leftovers == 1 ? "" : "s", size);
    if (done.damaged + prompts > 0) {
        printf("damaged, and deleted: %d state%s of conversations, %d of prompts; what was said is "
               "read again when it is gone on with\n",
               done.damaged, done.damaged == 1 ? "" : "s", prompts);
    }
    return gc_status(&done, e);
}

struct verdict {
    const struct verb_in *in;
    json_t *faults;
    int states, bad;
    bool reindexed;
};

static void verify_state(void *ctx, const struct catalog_state *st, const char *fault)
{
    struct verdict *v = ctx;
    v->states++;
    if (!fault) {
        return;
    }
    v->bad++;
    json_array_append_new(v->faults, json_str_lossy(fault, strlen(fault)));
    if (!v->in->json) {
        printf("conversation %lld, turn %lld: ", (long long)st->conv, (long long)st->turn);
        safe(fault);
        putchar('\n');
    }
}

/* What was salvaged on the way in, or by --repair; null: nothing was. */
static json_t *salvaged_json(const struct salvage *s)
{
    return s ? json_pack("{s:i, s:i, s:i, s:i, s:s}", "conversations", s->conversations, "turns",
                         s->turns, "lost_turns", s->no_turn, "lost_titles", s->no_head, "kept",
                         s->kept)
             : json_null();
}

/* Damage is status 1, mended or not: whoever asks learns of it once. */
static int verdict_of(const struct verdict *v, const struct salvage *s, const struct err *why,
                      struct err *e)
{
    if (why->code < 0) {
        return err_set(e, why->code, "%s", why->msg);
    }
    if (s) {
        return err_set(e, QE_FORMAT,
                       "the catalogue was damaged; it has been salvaged and is sound now, and the "
                       "damaged one is %s",
                       s->kept);
    }
    if (v->reindexed) {
        return err_set(e, QE_FORMAT,
                       "the index of words was not that of the texts; it has been made anew");
    }
    return v->bad == 0 ? 0
                       : err_set(e, QE_FORMAT,
                                 "%d saved state%s cannot be used; what was said is not touched by "
                                 "that (quasar sessions gc deletes %s)",
                                 v->bad, v->bad == 1 ? "" : "s", v->bad == 1 ? "it" : "them");
}

static int verb_verify(struct verb_in *in, struct err *e)
{
    struct verdict v = {.in = in, .faults = json_array()};
    struct err why = ERR_INIT;
    int rc = catalog_verify(in->c, &why);
    if (rc == QE_FORMAT && conf_flag(in->cf, "repair") && !store_fixed(in->store)) {
        struct buf notice = BUF_INIT;
        why = (struct err)ERR_INIT;
        v.reindexed = catalog_reindex(in->c, NULL) == 0 && catalog_verify(in->c, NULL) == 0;
        rc = v.reindexed ? 0 : store_repair(in->store, &notice, e);
        in->c = store_catalog(in->store);
        print_notice(&notice);
        buf_free(&notice);
        if (rc < 0) {
            json_decref(v.faults);
            return rc;
        }
    } else if (rc < 0) {
        json_array_append_new(v.faults, json_str_lossy(why.msg, strlen(why.msg)));
    }
    const struct salvage *s = store_salvaged(in->store);
    const int states = rc == 0 ? store_verify_states(in->store, verify_state, &v, e) : 0;
    if (in->json) {
        json_print_take(json_pack("{s:b, s:o, s:i, s:i, s:O}", "catalog",
                                  rc == 0 && !s && !v.reindexed, "salvaged", salvaged_json(s),
                                  "states", v.states, "damaged_states", v.bad, "faults", v.faults));
    } else if (rc == 0 && states == 0) {
        printf("the catalogue is %s%s; %d of %d states can be used\n", s ? "salvaged" : "sound",
               v.reindexed ? " now" : "", v.states - v.bad, v.states);
    }
    json_decref(v.faults);
    return states < 0 ? states : verdict_of(&v, s, &why, e);
}

/* ---- the command ---- */

static const struct verb {
    const char *name;
    int (*run)(struct verb_in *in, struct err *e);
    int least, most; /* words */
    const char *words;
    bool writes;
} verbs[] = {
    {"list", verb_list, 0, 0, "", false},
    {"show", verb_show, 1, 1, "ID", false},
    {"search", verb_search, 1, INT_MAX, "WORD…", false},
    {"export", verb_export, 1, 2, "ID [FILE]", false},
    {"fork", verb_fork, 1, 2, "ID [NAME]", true},
    {"rename", verb_rename, 2, 2, "ID NAME", true},
    {"pin", verb_pin, 1, INT_MAX, "ID…", true},
    {"unpin", verb_unpin, 1, INT_MAX, "ID…", true},
    {"tag", verb_tag, 2, INT_MAX, "ID TAG…", true},
    {"untag", verb_untag, 2, INT_MAX, "ID TAG…", true},
    {"rm", verb_rm, 1, INT_MAX, "ID…", true},
    {"gc", verb_gc, 0, 0, "", true},
    {"verify", verb_verify, 0, 0, "", false},
};
#define N_VERBS (sizeof verbs / sizeof *verbs)

static const struct verb *verb_of(const char *word, struct err *e)
{
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < N_VERBS; i++) {
        if (word && strcmp(word, verbs[i].name) == 0) {
            buf_free(&b);
            return &verbs[i];
        }
        buf_printf(&b, "%s%s", i == 0 ? "" : i + 1 < N_VERBS ? ", " : " or ", verbs[i].name);
    }
    err_set(e, QE_USAGE, "quasar sessions %s%.40s%s: it must be %s", word ? "\"" : "needs a word",
            word ? word : "", word ? "\"" : "", b.data);
    buf_free(&b);
    return NULL;
}

int cmd_sessions(const struct conf *cf, int nargs, char **args, struct err *e)
{
    const struct verb *v = verb_of(nargs > 0 ? args[0] : NULL, e);
    if (!v) {
        return QE_USAGE;
    }
    if (nargs - 1 < v->least || nargs - 1 > v->most) {
        return err_set(e, QE_USAGE, "usage: quasar sessions %s%s%s", v->name,
                       v->words[0] ? " " : "", v->words);
    }
    struct verb_in in = {.cf = cf,
                         .n = nargs - 1,
                         .words = args + 1,
                         .json = conf_flag(cf, "json"),
                         .tty = isatty(STDOUT_FILENO) == 1};
    struct buf notice = BUF_INIT;
    int rc = session_store(cf, &in.store, &notice, e);
    const bool fixed = rc == 0 && store_fixed(in.store);
    if (fixed && v->writes && v->run != verb_gc) {
        rc = err_set(e, QE_IO, "quasar sessions %s: nothing can be stored: %s", v->name,
                     store_fixed(in.store));
    } else if (!fixed || v->run != verb_gc) { /* which may make the room it needs */
        print_notice(&notice);
    }
    buf_free(&notice);
    if (rc == 0) {
        in.c = store_catalog(in.store);
        rc = v->run(&in, e);
    }
    store_close(in.store);
    return rc;
}
