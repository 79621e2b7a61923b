/* quasar sessions: the command, and the verbs that change a conversation, which take
 * its lock first. What reads is in verb_read.c, what keeps order in verb_order.c. */
#include "config.h"
#include "cmd/cmd.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "cmd/printsafe.h"
#include "cmd/session.h"
#include "cmd/verb.h"
#include "sessions/lock.h"

int verb_find(const struct verb_in *in, int i, int64_t *conv, struct err *e)
{
    return catalog_find(in->c, in->words[i], conv, e);
}

/* A part of a line of ours: no control character goes out, wherever it goes. */
void verb_safe(const char *s)
{
    print_safe(stdout, s, strlen(s), true);
}

/* Each line of a notice is one of ours. */
void verb_notice(const struct buf *notice)
{
    const char *p = notice->len > 0 ? notice->data : "";
    for (size_t n = 0; *p; p += n + (p[n] == '\n')) {
        n = strcspn(p, "\n");
        fprintf(stderr, "quasar: %.*s\n", (int)n, p);
    }
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
    char *name = NULL;
    int rc = in->n == 2 ? catalog_take_name(in->words[1], &name, e) : 0;
    rc = rc < 0 ? rc : verb_find(in, 0, &conv, e);
    rc = rc < 0 ? rc : catalog_fork(in->c, conv, conf_int(in->cf, "turn", 0), name, &fork, e);
    free(name);
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
        rc = verb_find(in, i, &v[*n], e);
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
    char *name = NULL;
    int rc = catalog_take_name(in->words[1], &name, e);
    rc = rc < 0 ? rc : verb_find(in, 0, &conv, e);
    rc = rc < 0 ? rc : catalog_rename(in->c, conv, name, e);
    free(name);
    return rc;
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
    int rc = verb_find(in, 0, &conv, e);
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
        verb_notice(&notice);
    }
    buf_free(&notice);
    if (rc == 0) {
        in.c = store_catalog(in.store);
        rc = v->run(&in, e);
    }
    store_close(in.store);
    return rc;
}
