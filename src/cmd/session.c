/* The options that say which conversation is meant. */
#include "config.h"
#include "cmd/session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "cmd/printsafe.h"
#include "cmd/sessout.h"
#include "sessions/lock.h"

int session_store(const struct conf *cf, struct store **out, struct buf *notice, struct err *e)
{
    char *dir = io_xdg_state();
    const int rc = store_open(dir, conf_size(cf, "state-budget", STORE_AUTO), out, notice, e);
    free(dir);
    return rc;
}

void session_options(const struct conf *cf, struct conv_opts *o, char **directory)
{
    *directory = getcwd(NULL, 0);
    o->save = conf_flag(cf, "save");
    o->save_state = conf_flag(cf, "save-state");
    o->directory = *directory;
    o->state_budget = conf_size(cf, "state-budget", STORE_AUTO);
}

int session_must_save(const struct conf *cf, const char *option, struct err *e)
{
    if (conf_flag(cf, "save")) {
        return 0;
    }
    return conf_origin_of(cf, "save") == CONF_ARG
               ? err_set(e, QE_USAGE, "--%s does not go with --no-save", option)
               : err_set(e, QE_USAGE, "--%s does not go with save = no (%s): give --save", option,
                         conf_origin_text(cf, "save"));
}

/* Whether no other process has it open. */
static bool is_free(void *ctx, int64_t conversation)
{
    return lock_holder(ctx, conversation) == 0;
}

int session_pick(const struct conf *cf, const char *directory, struct session_pick *out,
                 struct err *e)
{
    const char *id = conf_str(cf, "resume");
    const bool last = conf_flag(cf, "continue");
    *out = (struct session_pick){.must = last || id};
    if (last && id) {
        return err_set(e, QE_USAGE, "--continue and --resume cannot be given together");
    }
    if (!conf_flag(cf, "save")) {
        return out->must ? session_must_save(cf, id ? "resume" : "continue", e) : 0;
    }
    struct store *s = NULL;
    int rc = session_store(cf, &s, &out->notice, e);
    if (rc < 0) {
        return out->must || rc == QE_USAGE ? rc : 0; /* the chat itself says what is wrong */
    }
    struct catalog *c = store_catalog(s);
    if (store_fixed(s)) {
        buf_truncate(&out->notice, 0); /* the conversation itself says it */
    } else {
        (void)store_recover(s, &out->notice, NULL);
    }
    if (id) {
        rc = catalog_find(c, id, &out->conversation, e);
    } else if (last || conf_is_word(cf, "start", "last")) {
        rc = catalog_last(c, directory, last ? NULL : is_free, (void *)(uintptr_t)store_dir(s),
                          &out->conversation, e);
        if (rc == 0 && last && out->conversation == 0) {
            rc = err_set(e, QE_NOTFOUND,
                         "no conversation was begun in %s (quasar sessions list shows all)",
                         directory ? directory : "this folder");
        }
        rc = last ? rc : 0;
    } else {
        rc = 0;
    }
    store_close(s);
    return rc;
}

static bool print_one(void *ctx, const struct catalog_conv *v)
{
    char when[20];
    const size_t n = strcspn(v->title, "\r\n");
    sessout_time(v->updated, when);
    char turns[16];
    snprintf(turns, sizeof turns, "%d", v->turns);
    printf("%5lld  %s  %4s %-5s  ", (long long)v->id, when, v->turns < 0 ? "?" : turns,
           v->turns == 1 ? "turn" : "turns");
    const bool tty = *(const bool *)ctx;
    const int left = print_columns() - 39;
    print_fit(stdout, v->title, n, true, tty ? left > 16 ? left : 16 : 0);
    putchar('\n');
    return true;
}

int session_print_latest(const struct conf *cf, struct err *e)
{
    struct store *s = NULL;
    bool tty = isatty(STDOUT_FILENO) == 1;
    int rc = session_store(cf, &s, NULL, e);
    if (rc == 0) {
        rc = catalog_list(store_catalog(s), 20, print_one, &tty, e);
        puts("quasar --resume ID goes on with one of them.");
    }
    store_close(s);
    return rc;
}
