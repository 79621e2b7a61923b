/* quasar without a command: the conversation on the screen, in lines, or, when
 * standard input is no terminal, one question and its answer. */
#include "config.h"
#include "cmd/cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"
#include "cmd/convopts.h"
#include "cmd/listener.h"
#include "cmd/model.h"
#include "cmd/session.h"
#include "conv/conv.h"
#include "tui/tui.h"

bool chat_is_model(const char *word)
{
    size_t n = strlen(word);
    if (strchr(word, '/') ||
        (n > 4 && (strcmp(word + n - 4, ".qsr") == 0 || strcmp(word + n - 4, ".q27") == 0))) {
        return true; /* the word means a file, there or not */
    }
    char *path = NULL;
    if (model_find(word, &path, NULL) < 0) {
        return false;
    }
    free(path);
    return true;
}

static bool wants_lines(const struct conf *cf)
{
    const char *access = getenv("ACCESSIBLE");
    const char *term = getenv("TERM");
    return conf_flag(cf, "plain") || (access && access[0]) || !term || !term[0] ||
           strcmp(term, "dumb") == 0 || !isatty(STDOUT_FILENO);
}

/* What the screen is told by the options, but for where it opens; the caller frees *binds. */
static struct tui_opts screen_options(const struct conf *cf, struct tui_bind **binds)
{
    const size_t n = conf_pairs_len(cf, "bind");
    *binds = mem_array(n + 1, sizeof **binds);
    for (size_t i = 0; i < n; i++) {
        const struct conf_pair p = conf_pair_at(cf, "bind", i);
        (*binds)[i] = (struct tui_bind){p.key, p.value, p.where};
    }
    return (struct tui_opts){
        .ascii = conf_flag(cf, "ascii"),
        .vi = conf_is_word(cf, "editor", "vi"),
        .theme = conf_str(cf, "theme"),
        .mouse = conf_str(cf, "mouse"),
        .unicode_full = conf_is_word(cf, "unicode", "full"),
        .ambiguous_wide = conf_is_word(cf, "ambiguous", "2"),
        .binds = *binds,
        .n_binds = n,
    };
}

static int open_listener(void *ctx, const char *address, char note[256], struct err *e)
{
    struct listener *l = ctx;
    const int rc = listener_open(l, address, e);
    if (rc == 0) {
        snprintf(note, 256, "listening at %s%s%s", listener_scheme(l),
                 http_address(listener_http(l)),
                 listener_is_public(l) ? "; whoever reaches it may use the model" : "");
    }
    return rc;
}

static void close_listener(void *ctx)
{
    listener_close(ctx);
}

static int open_and_run(const struct conf *cf, const struct conv_opts *co,
                        const struct session_pick *pick, int *sig, struct err *e)
{
    struct conv *c = NULL;
    int rc = conv_open(co, &c, e);
    if (rc < 0) {
        return rc;
    }
    char *dir = io_xdg_state();
    char *history = io_join(dir, "history");
    struct tui_bind *binds = NULL;
    struct tui_opts o = screen_options(cf, &binds);
    o.history = history;
    o.resume = pick->conversation;
    o.must_resume = pick->must;
    o.notice = pick->notice.data;
    struct listener *l = NULL;
    rc = listener_create(cf, c, false, &l, e);
    if (rc == 0 && conf_is_set(cf, "listen")) {
        rc = listener_open(l, conf_str(cf, "listen"), e);
    }
    if (rc == 0) {
        const struct tui_listener tl = {l, open_listener, close_listener};
        o.requests = listener_requests(l);
        o.listener = &tl;
        rc = wants_lines(cf) ? tui_plain(c, &o, e) : tui_chat(c, &o, sig, e);
    }
    listener_free(l);
    struct err lost = ERR_INIT;
    if (conv_end(c, &lost) < 0 && rc == 0) {
        rc = err_set(e, lost.code, "%s", lost.msg);
    }
    free(binds);
    free(history);
    free(dir);
    return rc;
}

static int converse(const struct conf *cf, int *sig, struct err *e)
{
    struct conv_opts co;
    struct convopts s = {0};
    struct session_pick pick = {0};
    char *directory = NULL;
    int rc = convopts_from(cf, &co, &s, e);
    if (rc == 0) {
        co.slots = conf_is_set(cf, "listen") ? 1 + (int)conf_int(cf, "slots", 4) : 1;
        session_options(cf, &co, &directory);
    }
    if (rc == 0) {
        rc = session_pick(cf, directory, &pick, e);
    }
    if (rc == 0) {
        rc = open_and_run(cf, &co, &pick, sig, e);
    }
    buf_free(&pick.notice);
    free(directory);
    convopts_free(&s);
    return rc;
}

int cmd_chat(const struct conf *cf, int nargs, char **args, struct err *e)
{
    if (nargs > 1) {
        return err_set(e, QE_USAGE, "one model at a time (\"%s\" is too many)", args[1]);
    }
    if (conf_flag(cf, "reset-terminal")) {
        tui_reset_terminal();
        return 0;
    }
    if (conf_flag(cf, "keys")) {
        struct tui_bind *binds = NULL;
        const struct tui_opts o = screen_options(cf, &binds);
        tui_print_keys(&o, stdout, stderr);
        free(binds);
        return 0;
    }
    if (conf_is_word(cf, "resume", "")) {
        return session_print_latest(cf, e);
    }
    if (!isatty(STDIN_FILENO)) {
        return cmd_ask(cf, e);
    }
    int sig = 0;
    int rc = converse(cf, &sig, e);
    if (sig) {
        tui_die(sig);
    }
    return rc;
}
