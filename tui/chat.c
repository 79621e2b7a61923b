/* The screen's main loop: one thread that waits for keys, the conversation,
 * signals and its own deadlines, and draws when something changed. While a
 * command of the line editor waits for its next key, a turn of this loop runs
 * inside it, one level deep. Idle, there is no deadline and nothing wakes it. */
#include "config.h"
#include "tui/tui.h"

#include <curses.h>
#include <errno.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "base/vclock.h"
#include "tui/app.h"
#include "tui/capture.h"
#include "tui/term.h"

#define FRAME_NS  33000000LL
#define GAUGE_NS  500000000LL
#define RESIZE_NS 40000000LL

int64_t app_now(void)
{
    return clock_now(clock_main());
}

void app_note(struct app *a, enum role role, const char *fmt, ...)
{
    char s[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    buf_truncate(&a->note, 0);
    buf_adds(&a->note, s);
    a->note_role = role;
    if (role == R_WARN || role == R_BAD) {
        views_log(a, role, s);
    }
    a->dirty = true;
}

/* What the store tells names a command of the shell; on the screen there is a nearer way. */
static void nearer_way(const struct app *a, const char *msg, struct buf *out)
{
    static const char *const ways[][2] = {
        {"(quasar sessions list)", "lists them"},
        {"(quasar sessions fork ", "and the same key twice goes on with a copy"}};
    const char *rest = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !rest; i++) {
        const char *shell = strstr(msg, ways[i][0]);
        if (shell) {
            buf_add(out, msg, (size_t)(shell - msg));
            buf_printf(out, "(%s %s)", app_way(a, ACT_SESSIONS), ways[i][1]);
            rest = shell + strcspn(shell, ")");
            rest += *rest == ')';
        }
    }
    buf_adds(out, rest ? rest : msg);
}

void app_error(struct app *a, const struct err *e)
{
    struct buf b = BUF_INIT;
    const bool slip = e->code == QE_USAGE || e->code == QE_NOTFOUND || e->code == QE_BUSY ||
                      e->code == QE_NOMEM || e->code == QE_UNSUPPORTED;
    nearer_way(a, e->msg, &b);
    app_note(a, slip ? R_WARN : R_BAD, "%s", b.data ? b.data : "");
    buf_free(&b);
}

void app_suspend(struct app *a)
{
    term_leave();
    term_suspend();
    term_enter();
    a->redraw = true;
}

const char *app_way(const struct app *a, enum action act)
{
    return keymap_way(a->keys, act, a->cur->focus ? CTX_TRANSCRIPT : CTX_COMPOSER);
}

bool app_busy(const struct app *a)
{
    for (size_t i = 0; i < a->n_panes; i++) {
        if (a->panes[i]->in_turn || a->panes[i]->status.phase == P_LOADING) {
            return true;
        }
    }
    return a->views->load.running > 0 || a->views->load.waiting > 0;
}

/* ---- the loop ------------------------------------------------------------ */

static void apply_resize(struct app *a)
{
    int rows = 0;
    int cols = 0;
    term_size(&rows, &cols);
    resizeterm(rows, cols);
    a->resize_at = 0;
    a->dirty = true;
    a->urgent = true;
    a->redraw = true;
}

static void on_signal(struct app *a, int sig)
{
    switch (sig) {
    case SIGWINCH: {
        int rows = 0, cols = 0;
        term_size(&rows, &cols);
        vclock_saw_size(cols, rows);
        a->resize_at = app_now() + RESIZE_NS;
        break;
    }
    case SIGTSTP:
        app_suspend(a);
        a->dirty = true;
        a->urgent = true;
        break;
    case SIGCONT: /* stopped from outside: the modes may be gone */
        term_enter();
        a->redraw = true;
        a->dirty = true;
        a->urgent = true;
        break;
    default:
        a->signal = sig;
        a->quit = true;
        break;
    }
}

static int64_t sooner(int64_t x, int64_t y)
{
    return x < 0 ? y : y < 0 ? x : x < y ? x : y;
}

/* When the loop must wake although nothing comes; -1: never. */
static int64_t deadline(const struct app *a)
{
    int64_t d = keyin_deadline(a->input);
    for (size_t i = 0; i < a->n_panes && !composer_pending(a->cur->composer); i++) {
        d = a->panes[i]->stored_known ? 0 : d;
    }
    for (size_t i = 0; i < a->n_panes; i++) {
        d = a->panes[i]->draft_due ? sooner(d, a->panes[i]->draft_due) : d;
    }
    if (a->resize_at) {
        d = sooner(d, a->resize_at);
    }
    if (a->dirty) {
        d = sooner(d, a->urgent ? 0 : a->last_frame + a->frame_gap);
    }
    if (app_busy(a)) {
        d = sooner(d, a->last_frame + GAUGE_NS);
    }
    return d;
}

static void draw_if_due(struct app *a)
{
    int64_t now = app_now();
    if (a->resize_at) {
        if (now >= a->resize_at) {
            apply_resize(a);
        } else {
            return; /* the size is still changing */
        }
    }
    if (app_busy(a) && now - a->last_frame >= GAUGE_NS) {
        a->dirty = true;
    }
    if (!a->dirty || (!a->urgent && now - a->last_frame < a->frame_gap)) {
        return;
    }
    for (size_t i = 0; i < a->n_panes; i++) {
        struct pane *p = a->panes[i];
        p->status.elapsed_s = clock_seconds(now - p->turn_start);
        p->status.prefill_s = clock_seconds(now - p->prefill_start);
    }
    screen_draw(a);
    a->last_frame = app_now();
}

static void keep_drafts(struct app *a)
{
    for (size_t i = 0; i < a->n_panes; i++) {
        if (a->panes[i]->draft_due && app_now() >= a->panes[i]->draft_due) {
            pane_draft_keep(a->panes[i]);
        }
    }
}

static void read_terminal(struct app *a)
{
    static char block[65536];
    ssize_t n = read(term_fd(), block, sizeof block);
    if (n > 0) {
        a->typed += (size_t)n;
        keyin_feed(a->input, block, (size_t)n, app_now());
    } else if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        a->signal = SIGHUP; /* the terminal is gone */
        a->quit = true;
    }
}

/* Whether all that the conversations tell is more text. */
static bool streams(const struct app *a)
{
    bool any = false;
    for (size_t i = 0; i < a->n_panes; i++) {
        const enum phase ph = a->panes[i]->status.phase;
        any = any || ph == P_THINKING || ph == P_ANSWERING;
        if (ph == P_WAITING || ph == P_PREFILL || ph == P_LOADING) {
            return false; /* times are taken of these */
        }
    }
    return any;
}

/* One turn: draw what is due, wait, take what came. Returns false when an
 * unfinished command of the composer should be given up. */
static bool loop_turn(void *ctx)
{
    struct app *a = ctx;
    if (a->quit || a->trying || a->deferred.type != K_NONE) {
        return false;
    }
    draw_if_due(a);
    keep_drafts(a);
    int64_t d = deadline(a);
    int64_t left = -1;
    if (d >= 0) {
        left = d - app_now();
        left = left > 0 ? left : 0;
    }
    /* what the conversation tells can wait when a frame is due soon that will show it: a wake-up
     * for each token costs more than the frames */
    const bool soon = a->dirty && streams(a) && d > app_now() && d <= a->last_frame + a->frame_gap;
    struct pollfd fds[6] = {{term_fd(), POLLIN, 0},
                            {soon ? -1 : conv_fd(a->conv), POLLIN, 0},
                            {term_signal_fd(), POLLIN, 0},
                            {capture_fd(), POLLIN, 0},
                            {a->opts->requests ? requests_fd(a->opts->requests) : -1, POLLIN, 0},
                            {sessions_fd(a), POLLIN, 0}};
    if (clock_poll(fds, 6, left, term_settled()) < 0 && errno != EINTR) {
        a->signal = SIGHUP;
        a->quit = true;
    }
    for (int sig = term_signal_next(); sig; sig = term_signal_next()) {
        on_signal(a, sig);
    }
    if (fds[0].revents) {
        read_terminal(a);
    }
    if (fds[3].revents) {
        capture_look();
        a->dirty = true;
    }
    if (fds[4].revents) {
        requests_look(a->opts->requests);
        a->dirty = true;
    }
    struct key k;
    while (!a->quit && a->deferred.type == K_NONE && keyin_next(a->input, app_now(), &k)) {
        dispatch_key(a, &k);
        compact_settle(a->cur, false);
    }
    if (fds[0].revents) {
        vclock_saw_input(a->typed - keyin_replies(a->input));
    }
    sessions_found(a);
    struct conv_event ev;
    memset(&ev, 0, sizeof ev);
    while (!a->quit && conv_next(a->conv, &ev)) {
        turn_event(a, &ev);
        conv_event_fini(&ev);
        memset(&ev, 0, sizeof ev);
    }
    return !a->quit && a->deferred.type == K_NONE;
}

/* What the store answered, when no line editor is in the middle of a command. */
static void settle_panes(struct app *a)
{
    for (size_t i = 0; i < a->n_panes; i++) {
        if (a->panes[i]->stored_known) {
            pane_settle(a->panes[i]);
            return; /* there may be one less; the next turn looks again */
        }
    }
}

/* The normal screen gets the last answer, so that it is not lost with the
 * alternate one. */
static void say_goodbye(const struct app *a)
{
    const struct buf *b = transcript_last_answer(a->cur->transcript);
    struct view_chat v;
    struct buf out = BUF_INIT;
    if (b) {
        text_filter(b->data, b->len, a->theme.ascii || !a->theme.utf8, NULL, &out);
    }
    if (!a->theme.utf8) {
        for (size_t i = 0; i < out.len; i++) {
            out.data[i] = (unsigned char)out.data[i] < 0x80 ? out.data[i] : '?';
        }
    }
    if (out.len && out.data[out.len - 1] != '\n') {
        buf_addc(&out, '\n');
    }
    for (size_t i = 0; i < a->n_panes; i++) {
        const struct pane *p = a->panes[i];
        chat_view(p->chat, &v);
        if (v.conversation > 0 && v.saved && transcript_last_answer(p->transcript)) {
            buf_printf(&out, "quasar --resume %lld goes on with %s conversation.\n",
                       (long long)v.conversation, a->n_panes == 1 ? "this" : "that");
        }
    }
    fwrite(out.data ? out.data : "", 1, out.len, stdout);
    fflush(stdout);
    buf_free(&out);
}

static void app_free(struct app *a)
{
    for (size_t i = 0; i < a->n_panes; i++) {
        pane_free(a->panes[i]);
    }
    for (size_t i = 0; i < PANES_MAX; i++) {
        composer_free(a->composers[i]);
    }
    history_free(a->history);
    keymap_free(a->keys);
    views_free(a->views);
    keyin_free(a->input);
    sessions_free(a);
    text_rows_free(&a->panel);
    text_rows_free(&a->help);
    file_names_free(&a->files);
    free(a->file_dir);
    buf_free(&a->query);
    buf_free(&a->note);
}

/* The table with the user's bindings in it; what is wrong with them goes to complaints. */
static struct keymap *bind_keys(const struct tui_opts *o, struct buf *complaints)
{
    struct keymap *m = keymap_create();
    for (size_t i = 0; i < o->n_binds; i++) {
        keymap_bind(m, o->binds[i].what, o->binds[i].keys, o->binds[i].where, complaints);
    }
    keymap_settle(m, complaints);
    return m;
}

int tui_chat(struct conv *c, const struct tui_opts *o, int *signal_out, struct err *e)
{
    struct app a;
    memset(&a, 0, sizeof a);
    struct err hist = ERR_INIT;
    a.conv = c;
    a.opts = o;
    a.theme.ascii = o->ascii;
    a.theme.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    a.theme.raw = o->unicode_full;
    a.theme.wide = o->ambiguous_wide;
    utf8_set_ambiguous(o->ambiguous_wide ? 2 : 1);
    (void)mouse_set(&a, o->mouse ? o->mouse : "off");
    a.frame_gap = FRAME_NS;
    a.views = views_create(o);
    if (o->theme) {
        (void)theme_named(o->theme, &a.theme.kind);
    }
    struct buf complaints = BUF_INIT;
    a.keys = bind_keys(o, &complaints);
    a.input = keyin_create();
    a.history = history_create(o->history, &hist);
    *signal_out = 0;
    a.cur = pane_create(&a);
    a.panes[a.n_panes++] = a.cur;
    tiles_init(&a.tiles);
    int rc = pane_open_first(a.cur, e);
    pane_notices(a.cur, complaints.data);
    buf_free(&complaints);
    for (size_t i = 0; i < PANES_MAX && rc == 0; i++) {
        a.composers[i] = composer_create(o->vi, a.history, loop_turn, &a, e);
        rc = a.composers[i] ? 0 : QE_IO;
    }
    a.cur->composer = a.composers[0];
    if (rc == 0) {
        pane_draft_restore(a.cur);
        rc = term_open(views_printed, a.views->log, e);
    }
    if (rc < 0) {
        app_free(&a);
        return rc;
    }
    theme_start(&a.theme);
    if (a.theme.kind == THEME_AUTO) {
        a.color_asked = app_now();
        term_ask_background();
    }
    if (hist.msg[0]) {
        app_note(&a, R_WARN, "%s", hist.msg);
    }
    a.dirty = true;
    a.urgent = true;
    while (!a.quit) {
        (void)loop_turn(&a);
        if (a.deferred.type != K_NONE && !a.quit) {
            struct key k = a.deferred;
            a.deferred.type = K_NONE;
            dispatch_key(&a, &k);
        }
        settle_panes(&a);
        sessions_refresh(&a);
    }
    for (size_t i = 0; i < a.n_panes; i++) {
        pane_draft_keep(a.panes[i]);
    }
    term_close();
    if (a.failed.code) {
        rc = err_set(e, a.failed.code, "%s", a.failed.msg);
    } else {
        say_goodbye(&a);
    }
    *signal_out = a.signal;
    app_free(&a);
    return rc;
}

void tui_die(int signal)
{
    term_die(signal);
}

void tui_reset_terminal(void)
{
    term_reset_by_hand();
}

void tui_print_keys(const struct tui_opts *o, FILE *f, FILE *complaints)
{
    struct buf b = BUF_INIT;
    struct buf wrong = BUF_INIT;
    struct keymap *m = bind_keys(o, &wrong);
    keymap_help(m, CTX_BOTH | CTX_VIEWS | CTX_LISTS, &b);
    buf_adds(&b, "\nNames for bind.NAME = KEYS in the settings\n");
    keymap_names(m, &b);
    fputs(b.data, f);
    fputs(wrong.data ? wrong.data : "", complaints);
    keymap_free(m);
    buf_free(&wrong);
    buf_free(&b);
}
