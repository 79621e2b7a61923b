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
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "tui/app.h"
#include "tui/term.h"

#define FRAME_NS  33000000LL
#define GAUGE_NS  500000000LL
#define RESIZE_NS 40000000LL

static int64_t now_ns(void)
{
    return clock_now(clock_real());
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
    a->dirty = true;
}

/* ---- leaving a conversation ---------------------------------------------- */

static void leave(struct app *a, int64_t to)
{
    a->leave_asked = 0;
    if (to == LEAVE_NEW) {
        command_new(a);
    } else {
        sessions_go_on(a, to);
    }
}

void app_leave(struct app *a, int64_t to)
{
    struct view_chat v;
    chat_view(a->chat, &v);
    if (a->fresh || v.saved || a->leave_asked == to) {
        leave(a, to);
    } else {
        a->leave_to = to;
        chat_flush(a->chat);
    }
}

/* The answer of chat_flush. */
static void on_stored(struct app *a, const char *why)
{
    const int64_t to = a->leave_to;
    a->leave_to = 0;
    if (to == 0) {
        return; /* something was said meanwhile: the user stays */
    }
    if (!why[0]) {
        leave(a, to);
        return;
    }
    a->leave_asked = to;
    app_note(a, R_BAD, "this conversation is not saved: %s; %s again leaves it all the same", why,
             to == LEAVE_NEW ? "/new" : "choosing that one");
}

/* ---- turns --------------------------------------------------------------- */

static void clock_text(char out[8], time_t t)
{
    struct tm tm;
    localtime_r(&t, &tm);
    snprintf(out, 8, "%02d:%02d", tm.tm_hour % 100, tm.tm_min % 100);
}

void app_start_turn(struct app *a, const struct message *m)
{
    struct err e = ERR_INIT;
    char at[8];
    clock_text(at, time(NULL));
    branch_take(a);
    a->leave_to = 0;
    a->leave_asked = 0;
    if (chat_send(a->chat, m->full.data, m->full.len, &e) < 0) {
        app_note(a, R_BAD, "not sent: %s", e.msg);
        composer_set(a->composer, m->full.data, m->full.len);
        return;
    }
    transcript_user(a->transcript, at, &m->shown, &m->full);
    transcript_follow(a->transcript);
    a->fresh = false;
    a->in_turn = true;
    a->held = false;
    a->thinking = false;
    a->begun = false;
    a->said = false;
    a->turn_start = now_ns();
    if (a->status.phase != P_LOADING) {
        a->status.phase = P_WAITING;
    }
}

void app_message_free(struct message *m)
{
    buf_free(&m->shown);
    buf_free(&m->full);
}

static void send_queued(struct app *a)
{
    if (a->n_queue == 0 || a->in_turn || a->held) {
        return;
    }
    struct message m = a->queue[0];
    a->n_queue--;
    memmove(a->queue, a->queue + 1, a->n_queue * sizeof *a->queue);
    app_start_turn(a, &m);
    app_message_free(&m);
}

static void enqueue(struct app *a, struct message m)
{
    if (a->n_queue == a->cap_queue) {
        a->cap_queue = a->cap_queue ? a->cap_queue * 2 : 8;
        a->queue = mem_realloc(a->queue, a->cap_queue * sizeof *a->queue);
    }
    a->queue[a->n_queue++] = m;
}

void app_stop(struct app *a)
{
    if (a->in_turn && a->status.phase != P_STOPPING) {
        chat_stop(a->chat);
        a->status.phase = P_STOPPING;
        a->held = a->n_queue > 0;
    }
}

static double since(int64_t t)
{
    return clock_seconds(now_ns() - t);
}

/* Makes the model's block when the first piece of an answer comes. */
static void open_block(struct app *a)
{
    if (!a->begun) {
        char at[8];
        a->begun = true;
        clock_text(at, time(NULL));
        transcript_model(a->transcript, at);
    }
}

static void thought_facts(struct app *a, bool over)
{
    struct view_chat v;
    chat_view(a->chat, &v);
    transcript_thought_facts(a->transcript, over, since(a->thought_start), v.output_tokens);
}

void app_gauges(struct app *a, bool over)
{
    if (a->in_turn) {
        struct view_spec v;
        conv_view_spec(a->conv, &v);
        gauges_take(&a->gauges, now_ns(), &v, over);
    }
}

static void end_turn(struct app *a, const struct conv_event *ev)
{
    static const char anew[] = "/new starts a new conversation";
    char what[256] = "";
    enum role role = R_DIM;
    struct view_chat v;
    chat_view(a->chat, &v);
    bool full = a->status.model.ctx > 0 && v.context_used >= a->status.model.ctx;
    switch (ev->reason) {
    case CE_R_STOP:
    case CE_R_TOOL:
        break;
    case CE_R_LENGTH:
        role = R_WARN;
        snprintf(what, sizeof what, "cut off: %s%s",
                 full ? "the context is full; " : "the token limit is reached", full ? anew : "");
        break;
    case CE_R_CANCELLED:
        role = R_WARN;
        snprintf(what, sizeof what, "stopped");
        break;
    case CE_R_ERROR:
        role = R_BAD;
        snprintf(what, sizeof what, "failed: %.180s%s%s", ev->text.data ? ev->text.data : "",
                 full ? "; " : "", full ? anew : "");
        break;
    }
    if (a->thinking) {
        thought_facts(a, true);
        a->thinking = false;
    }
    if (a->begun) {
        transcript_end(a->transcript, role, what);
    } else if (what[0]) {
        transcript_notice(a->transcript, role, what);
    }
    if (a->said) {
        a->n_messages = transcript_kept(a->transcript, a->n_messages);
    }
    app_gauges(a, true);
    a->in_turn = false;
    a->status.phase = P_IDLE;
    send_queued(a);
}

static void on_ready(struct app *a)
{
    a->status.phase = a->in_turn ? P_WAITING : P_IDLE;
    struct view_model m;
    conv_view_model(a->conv, &m);
    if (m.fallback[0]) {
        app_note(a, R_WARN, "%s", m.fallback);
    }
}

static bool has_words(const struct buf *b)
{
    for (size_t i = 0; i < b->len; i++) {
        if (!strchr(" \t\r\n", b->data[i])) {
            return true;
        }
    }
    return false;
}

static void on_event(struct app *a, const struct conv_event *ev)
{
    if (ev->chat && ev->chat != a->chat) {
        return;
    }
    switch (ev->kind) {
    case CE_LOADING:
        a->status.phase = P_LOADING;
        a->status.progress = ev->progress;
        break;
    case CE_READY:
        on_ready(a);
        break;
    case CE_FAILED:
        err_set(&a->failed, ev->code < 0 ? ev->code : QE_IO, "%s",
                ev->text.data ? ev->text.data : "the model cannot be used");
        a->quit = true;
        break;
    case CE_QUEUED:
        if (a->status.phase != P_STOPPING) {
            a->status.phase = P_WAITING;
        }
        break;
    case CE_PREFILL:
        if (a->status.phase == P_STOPPING) {
            break;
        }
        if (a->status.phase != P_PREFILL) {
            a->prefill_start = now_ns();
        }
        a->status.phase = P_PREFILL;
        a->status.done = ev->done;
        a->status.total = ev->total;
        break;
    case CE_THOUGHT:
        a->said = a->said || has_words(&ev->text);
        open_block(a);
        if (!a->thinking) {
            a->thinking = true;
            a->thought_start = now_ns();
        }
        transcript_thought(a->transcript, ev->text.data, ev->text.len);
        thought_facts(a, false);
        if (a->status.phase != P_STOPPING) {
            a->status.phase = P_THINKING;
        }
        break;
    case CE_TEXT:
    case CE_TOOL:
        a->said = a->said || ev->text.len > 0;
        open_block(a);
        if (a->thinking) {
            thought_facts(a, true);
            a->thinking = false;
        }
        if (ev->kind == CE_TOOL) {
            transcript_text(a->transcript, "\n\n```json\n", 10);
            transcript_text(a->transcript, ev->text.data, ev->text.len);
            transcript_text(a->transcript, "\n```\n", 5);
        } else {
            transcript_text(a->transcript, ev->text.data, ev->text.len);
        }
        if (a->status.phase != P_STOPPING) {
            a->status.phase = P_ANSWERING;
        }
        break;
    case CE_END:
        end_turn(a, ev);
        break;
    case CE_NOTICE:
        transcript_notice(a->transcript, R_WARN, ev->text.data ? ev->text.data : "");
        break;
    case CE_STORED:
        on_stored(a, ev->text.data ? ev->text.data : "");
        break;
    case CE_SAVED:
        break;
    }
    a->dirty = true;
}

/* ---- the composer's lists ------------------------------------------------ */

static size_t list_commands(const struct app *a, const char *text, size_t n, const char **entry,
                            const char **help, size_t max)
{
    size_t n_table = 0;
    const struct key_action *t = keys_table(&n_table);
    size_t found = 0;
    (void)a;
    for (size_t i = 0; i < n_table && found < max; i++) {
        if (t[i].command && strncmp(t[i].command, text, n) == 0) {
            entry[found] = t[i].command;
            help[found++] = t[i].help;
        }
    }
    return found;
}

static size_t list_history(const struct app *a, const char **entry, const char **help, size_t max)
{
    const char *query = a->query.data ? a->query.data : "";
    size_t found = 0;
    for (size_t i = history_count(a->history); i > 0 && found < max; i--) {
        const char *s = history_at(a->history, i - 1);
        bool again = false;
        for (size_t k = 0; k < found; k++) {
            again = again || strcmp(entry[k], s) == 0;
        }
        if (!again && strcasestr(s, query)) {
            entry[found] = s;
            help[found++] = NULL;
        }
    }
    for (size_t i = 0; i < found / 2; i++) { /* the newest stands lowest */
        const char *s = entry[i];
        entry[i] = entry[found - 1 - i];
        entry[found - 1 - i] = s;
    }
    return found;
}

size_t app_list(struct app *a, const char **entry, const char **help, size_t max)
{
    size_t n = 0;
    if (a->overlay == OV_HISTORY) {
        n = list_history(a, entry, help, max);
    } else if (a->overlay == OV_SESSIONS) {
        n = sessions_list(a, entry, help, max);
    } else if (!a->focus && !composer_pending(a->composer)) {
        struct buf b = BUF_INIT;
        composer_text(a->composer, &b);
        if (b.len && b.data[0] == '/' && !memchr(b.data, ' ', b.len) &&
            !memchr(b.data, '\n', b.len)) {
            n = list_commands(a, b.data, b.len, entry, help, max);
            if (n == 1 && strlen(entry[0]) == b.len) {
                n = 0; /* complete */
            }
        }
        buf_free(&b);
    }
    if (n && a->pick >= n) {
        a->pick = n - 1;
    }
    return n;
}

/* Tab in a command's name; false when there is nothing to complete. */
static bool complete(struct app *a)
{
    const char *entry[64];
    const char *help[64];
    size_t n = app_list(a, entry, help, 64);
    if (n == 0) {
        return false;
    }
    size_t common = strlen(entry[0]);
    for (size_t i = 1; i < n; i++) {
        size_t k = 0;
        while (k < common && entry[i][k] == entry[0][k]) {
            k++;
        }
        common = k;
    }
    struct buf b = BUF_INIT;
    buf_add(&b, entry[0], common);
    buf_adds(&b, n == 1 ? " " : "");
    composer_set(a->composer, b.data, b.len);
    buf_free(&b);
    return true;
}

/* ---- keys ---------------------------------------------------------------- */

static void remember(struct app *a, const struct buf *text)
{
    struct err e = ERR_INIT;
    if (history_add(a->history, text->data, text->len, &e) < 0) {
        app_note(a, R_WARN, "%s", e.msg);
    }
}

void app_keep_draft(struct app *a)
{
    if (!composer_empty(a->composer)) {
        struct buf b = BUF_INIT;
        composer_text(a->composer, &b);
        remember(a, &b);
        buf_free(&b);
        composer_clear(a->composer);
    }
}

/* Files that the draft names, and commands that do not work where they stand; false: the draft
 * is not to be sent now. */
static bool settle_commands(struct app *a)
{
    struct buf shown = BUF_INIT;
    composer_display(a->composer, &shown);
    const char *s = shown.data ? shown.data : "";
    const bool command = s[0] == '/' && s[1] != '/';
    const size_t word = strcspn(s, " \t\n");
    bool send = true;
    if (!command || (word == 7 && memcmp(s, "/attach", 7) == 0)) {
        const enum attached got = command_attach(a, !command);
        send = got == ATTACH_NONE || (got == ATTACH_FAILED && !command && a->asked);
        if (got == ATTACH_DONE && command && !strchr(s, '\n')) {
            remember(a, &shown);
        }
        if (got != ATTACH_DONE && !command && !a->asked) {
            a->asking = got == ATTACH_FAILED || command_misplaced(a, s);
            send = send && !a->asking;
        }
    }
    buf_free(&shown);
    return send;
}

static void submit(struct app *a)
{
    if (!settle_commands(a)) {
        return;
    }
    struct message m = {BUF_INIT, BUF_INIT};
    composer_text(a->composer, &m.full);
    composer_display(a->composer, &m.shown);
    size_t i = 0;
    while (i < m.full.len && (m.full.data[i] == ' ' || m.full.data[i] == '\n')) {
        i++;
    }
    if (i == m.full.len) {
        app_message_free(&m);
        if (a->held && !a->in_turn) {
            a->held = false;
            send_queued(a);
        }
        return;
    }
    if (m.shown.data[0] == '/' && m.shown.len > 1 && m.shown.data[1] == '/') {
        memmove(m.full.data, m.full.data + 1, m.full.len);
        m.full.len--;
        memmove(m.shown.data, m.shown.data + 1, m.shown.len);
        m.shown.len--;
    } else if (m.shown.data[0] == '/') {
        composer_clear(a->composer); /* a command may fill it */
        if (command_run(a, m.full.data, m.full.len)) {
            remember(a, &m.full);
        } else {
            composer_set(a->composer, m.full.data, m.full.len);
        }
        app_message_free(&m);
        return;
    }
    remember(a, &m.full);
    composer_clear(a->composer);
    if (a->in_turn || a->n_queue > 0) {
        enqueue(a, m);
        a->held = a->held && a->in_turn;
        send_queued(a);
    } else {
        app_start_turn(a, &m);
        app_message_free(&m);
    }
}

static void take_back(struct app *a)
{
    if (a->n_queue == 0) {
        app_note(a, R_WARN, "no message is queued");
        return;
    }
    struct message m = a->queue[--a->n_queue];
    struct buf draft = BUF_INIT;
    composer_text(a->composer, &draft);
    if (draft.len) { /* nothing typed is lost */
        buf_addc(&m.full, '\n');
        buf_add(&m.full, draft.data, draft.len);
    }
    composer_set(a->composer, m.full.data, m.full.len);
    buf_free(&draft);
    app_message_free(&m);
}

static void stop_or_quit(struct app *a, bool was_armed)
{
    if (a->overlay == OV_FIND) {
        find_close(a);
    } else if (a->overlay != OV_NONE) {
        a->overlay = OV_NONE;
    } else if (a->in_turn) {
        app_stop(a);
    } else if (a->forking) {
        branch_cancel(a);
    } else if (!composer_empty(a->composer)) {
        app_keep_draft(a);
        app_note(a, R_TEXT, "the draft is in the history (Up)");
    } else if (was_armed) {
        a->quit = true;
    } else {
        a->quit_armed = true;
        app_note(a, R_TEXT, "^C again quits");
    }
}

static void suspend(struct app *a)
{
    term_leave();
    term_suspend();
    term_enter();
    a->redraw = true;
}

static void escape(struct app *a, bool again)
{
    a->last_esc = false; /* unless this one does nothing */
    if (a->overlay != OV_NONE) {
        a->overlay = OV_NONE;
    } else if (composer_is_vi(a->composer) && !again) {
        a->last_esc = true;
        struct key k = {.type = K_ESC};
        (void)composer_key(a->composer, &k, NULL);
    } else if (a->forking) {
        branch_cancel(a);
    } else if (again && !a->in_turn && composer_empty(a->composer)) {
        a->focus = !transcript_is_empty(a->transcript);
        transcript_select(a->transcript, -1);
    } else {
        a->last_esc = !a->in_turn;
        app_stop(a);
    }
}

bool app_query_key(struct app *a, const struct key *k)
{
    if (k->type == K_BACKSPACE) {
        size_t n = a->query.len;
        while (n && ((unsigned char)a->query.data[n - 1] & 0xC0) == 0x80) {
            n--;
        }
        buf_truncate(&a->query, n ? n - 1 : 0);
    } else if (k->type == K_CHAR && k->mods == 0) {
        char name[32];
        keys_name(k, name);
        buf_adds(&a->query, k->code == ' ' ? " " : name);
    } else if (k->type == K_PASTE) {
        const struct buf *b = keyin_paste(a->input);
        const char *nl = b->len ? memchr(b->data, '\n', b->len) : NULL;
        buf_add(&a->query, b->data, nl ? (size_t)(nl - b->data) : b->len);
    } else {
        return false;
    }
    return true;
}

/* Keys of the history list; true when it was one. */
static bool list_key(struct app *a, const struct key *k)
{
    if (a->overlay == OV_FIND) {
        return find_key(a, k);
    }
    if (a->overlay != OV_HISTORY && a->overlay != OV_SESSIONS) {
        return false;
    }
    const char *entry[16];
    const char *help[16];
    if (k->type == K_UP || (k->type == K_CHAR && k->mods == KM_CTRL && k->code == 'r')) {
        a->pick++;
    } else if (k->type == K_DOWN) {
        a->pick -= a->pick > 0;
    } else if (k->type == K_ENTER || k->type == K_TAB) {
        if (a->overlay == OV_SESSIONS) {
            sessions_pick(a, a->pick);
            return true;
        }
        size_t n = app_list(a, entry, help, 10);
        if (n) {
            const char *s = entry[n - 1 - a->pick];
            composer_set(a->composer, s, strlen(s));
        }
        a->overlay = OV_NONE;
    } else if (app_query_key(a, k)) {
        a->pick = 0;
    } else {
        return false;
    }
    return true;
}

/* Keys of the help; false: it is closed, and the key goes where the focus is. */
static bool help_key(struct app *a, const struct key *k)
{
    bool is_prefix = false;
    const struct key none = {.type = K_NONE};
    const enum action here =
        keys_lookup(a->focus ? CTX_TRANSCRIPT : CTX_COMPOSER, &none, k, &is_prefix);
    switch (keys_lookup(CTX_HELP, &none, k, &is_prefix)) {
    case ACT_PREV_BLOCK:
        a->help_top--;
        return true;
    case ACT_NEXT_BLOCK:
        a->help_top++;
        return true;
    case ACT_PAGE_UP:
        a->help_top -= screen_page(a);
        return true;
    case ACT_PAGE_DOWN:
        a->help_top += screen_page(a);
        return true;
    case ACT_TOP:
        a->help_top = 0;
        return true;
    case ACT_BOTTOM:
        a->help_top = (int)a->help.n_rows; /* as far as there is something to show */
        return true;
    case ACT_REDRAW:
        a->redraw = true;
        return true;
    case ACT_SUSPEND:
        suspend(a);
        return true;
    case ACT_NONE:
        a->overlay = OV_NONE;
        return here == ACT_HELP || here == ACT_BACK; /* what opened it, or leaves */
    default:                                         /* it is closed */
        a->overlay = OV_NONE;
        a->last_esc = false;
        return true;
    }
}

static void do_action(struct app *a, enum action act, bool was_armed, bool was_esc)
{
    switch (act) {
    case ACT_STOP_OR_QUIT:
        stop_or_quit(a, was_armed);
        break;
    case ACT_HELP:
        command_help(a, a->focus ? CTX_TRANSCRIPT : CTX_COMPOSER);
        break;
    case ACT_REDRAW:
        a->redraw = true;
        break;
    case ACT_SUSPEND:
        suspend(a);
        break;
    case ACT_PAGE_UP:
    case ACT_PAGE_DOWN:
        transcript_scroll(a->transcript, screen_page(a) * (act == ACT_PAGE_UP ? -1 : 1));
        break;
    case ACT_TOP:
        transcript_top(a->transcript);
        break;
    case ACT_BOTTOM:
        transcript_follow(a->transcript);
        break;
    case ACT_FOCUS:
        if (a->focus) {
            find_close(a);
            a->focus = false;
            transcript_select(a->transcript, 0);
        } else if (!complete(a) && !transcript_is_empty(a->transcript)) {
            a->focus = true;
            transcript_select(a->transcript, -1);
        }
        break;
    case ACT_SEND:
        if (composer_enter(a->composer)) {
            submit(a);
        }
        break;
    case ACT_NEWLINE:
        composer_newline(a->composer);
        break;
    case ACT_ESCAPE:
        escape(a, was_esc);
        break;
    case ACT_EOF:
        a->quit = true;
        break;
    case ACT_EDITOR:
        command_editor(a);
        break;
    case ACT_UNQUEUE:
        take_back(a);
        break;
    case ACT_HISTORY:
        a->overlay = OV_HISTORY;
        a->pick = 0;
        buf_truncate(&a->query, 0);
        break;
    case ACT_UNDO_EDIT:
        composer_undo(a->composer);
        break;
    case ACT_PREV_BLOCK:
    case ACT_NEXT_BLOCK:
        transcript_select(a->transcript, act == ACT_PREV_BLOCK ? -1 : 1);
        break;
    case ACT_FOLD:
        transcript_fold(a->transcript);
        break;
    case ACT_FOLD_ALL:
        transcript_fold_all(a->transcript);
        break;
    case ACT_COPY_BLOCK:
        command_copy(a, transcript_selected_text(a->transcript));
        break;
    case ACT_RETRY:
        branch_retry(a);
        break;
    case ACT_EDIT:
        branch_edit(a, 0);
        break;
    case ACT_BRANCH:
        branch_here(a, 0);
        break;
    case ACT_STATS:
        screen_panel(a);
        break;
    case ACT_SESSIONS:
        if (a->overlay == OV_SESSIONS) {
            a->overlay = OV_NONE;
        } else {
            sessions_open(a);
        }
        break;
    case ACT_FIND:
        find_open(a, "");
        break;
    case ACT_FIND_OLDER:
    case ACT_FIND_NEWER:
        find_step(a, act == ACT_FIND_OLDER ? -1 : 1);
        break;
    case ACT_BACK:
        find_close(a);
        a->focus = false;
        transcript_select(a->transcript, 0);
        break;
    case ACT_NONE:
    case ACT_LIBEDIT:
    case ACT_ATTACH:
    case ACT_NEW:
    case ACT_THINK:
    case ACT_SYSTEM:
    case ACT_COPY:
    case ACT_EXPORT:
    case ACT_SET:
    case ACT_EMACS:
    case ACT_VI:
    case ACT_KEYS:
    case ACT_QUIT:
        break; /* no key leads here */
    }
}

static void to_composer(struct app *a, const struct key *k)
{
    struct err e = ERR_INIT;
    if (k->type == K_PASTE) {
        const struct buf *b = keyin_paste(a->input);
        if (composer_paste(a->composer, b->data, b->len, &e) < 0) {
            app_note(a, R_BAD, "%s", e.msg);
        } else if (keyin_paste_cut(a->input)) {
            app_note(a, R_BAD, "the paste was longer than 64 MB; its end is missing");
        }
        return;
    }
    a->pick = 0;
    if (composer_key(a->composer, k, &e) < 0) {
        app_note(a, R_BAD, "%s", e.msg);
    }
}

static bool is_text_key(const struct key *k)
{
    return k->type == K_CHAR && !(k->mods == KM_CTRL && k->code == 'c');
}

static void on_key(struct app *a, const struct key *k)
{
    bool was_armed = a->quit_armed;
    bool was_esc = a->last_esc;
    if (k->type == K_MODE) {
        term_mode_known(k->code, k->value);
        return;
    }
    a->dirty = true;
    a->urgent = true;
    if (composer_pending(a->composer)) {
        if (is_text_key(k) || k->type == K_ESC) {
            to_composer(a, k);
        } else {
            a->deferred = *k; /* after the unfinished command is given up */
            composer_give_up(a->composer);
        }
        return;
    }
    a->quit_armed = false;
    a->asked = a->asking;
    a->asking = false;
    a->last_esc = k->type == K_ESC && k->mods == 0;
    buf_truncate(&a->note, 0);
    if (list_key(a, k) || (a->overlay == OV_HELP && help_key(a, k))) {
        return;
    }
    enum key_ctx ctx = a->focus ? CTX_TRANSCRIPT : CTX_COMPOSER;
    struct key prefix = a->prefix;
    bool is_prefix = false;
    a->prefix.type = K_NONE;
    enum action act = keys_lookup(ctx, &prefix, k, &is_prefix);
    if (act == ACT_EOF && !composer_empty(a->composer)) {
        act = ACT_LIBEDIT;
    }
    if (act == ACT_NONE && is_prefix) {
        a->prefix = *k;
        return;
    }
    if (act != ACT_NONE && act != ACT_LIBEDIT) {
        do_action(a, act, was_armed, was_esc);
        return;
    }
    if (a->focus) {
        /* typing goes where one types */
        if ((k->type == K_CHAR && k->mods == 0) || k->type == K_PASTE) {
            app_note(a, R_TEXT, "Esc goes back to the composer");
        }
        return;
    }
    if (prefix.type != K_NONE) {
        to_composer(a, &prefix);
    }
    to_composer(a, k);
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
    case SIGWINCH:
        a->resize_at = now_ns() + RESIZE_NS;
        break;
    case SIGTSTP:
        suspend(a);
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
    if (a->resize_at) {
        d = sooner(d, a->resize_at);
    }
    if (a->dirty) {
        d = sooner(d, a->urgent ? 0 : a->last_frame + a->frame_gap);
    }
    if (a->in_turn || a->status.phase == P_LOADING) {
        d = sooner(d, a->last_frame + GAUGE_NS);
    }
    return d;
}

static void draw_if_due(struct app *a)
{
    int64_t now = now_ns();
    if (a->resize_at) {
        if (now >= a->resize_at) {
            apply_resize(a);
        } else {
            return; /* the size is still changing */
        }
    }
    bool busy = a->in_turn || a->status.phase == P_LOADING;
    if (busy && now - a->last_frame >= GAUGE_NS) {
        a->dirty = true;
    }
    if (!a->dirty || (!a->urgent && now - a->last_frame < a->frame_gap)) {
        return;
    }
    a->status.elapsed_s = since(a->turn_start);
    a->status.prefill_s = since(a->prefill_start);
    screen_draw(a);
    a->last_frame = now_ns();
}

static void read_terminal(struct app *a)
{
    static char block[65536];
    ssize_t n = read(term_fd(), block, sizeof block);
    if (n > 0) {
        keyin_feed(a->input, block, (size_t)n, now_ns());
    } else if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        a->signal = SIGHUP; /* the terminal is gone */
        a->quit = true;
    }
}

/* One turn: draw what is due, wait, take what came. Returns false when an
 * unfinished command of the composer should be given up. */
static bool turn(void *ctx)
{
    struct app *a = ctx;
    if (a->quit || a->deferred.type != K_NONE) {
        return false;
    }
    draw_if_due(a);
    int64_t d = deadline(a);
    struct timespec wait = {0};
    if (d >= 0) {
        int64_t left = d - now_ns();
        left = left > 0 ? left : 0;
        wait.tv_sec = left / 1000000000;
        wait.tv_nsec = left % 1000000000;
    }
    struct pollfd fds[3] = {
        {term_fd(), POLLIN, 0}, {conv_fd(a->conv), POLLIN, 0}, {term_signal_fd(), POLLIN, 0}};
    if (ppoll(fds, 3, d >= 0 ? &wait : NULL, NULL) < 0 && errno != EINTR) {
        a->signal = SIGHUP;
        a->quit = true;
    }
    for (int sig = term_signal_next(); sig; sig = term_signal_next()) {
        on_signal(a, sig);
    }
    if (fds[0].revents) {
        read_terminal(a);
    }
    struct key k;
    while (!a->quit && a->deferred.type == K_NONE && keyin_next(a->input, now_ns(), &k)) {
        on_key(a, &k);
    }
    struct conv_event ev;
    memset(&ev, 0, sizeof ev);
    while (!a->quit && conv_next(a->conv, &ev)) {
        on_event(a, &ev);
        conv_event_fini(&ev);
        memset(&ev, 0, sizeof ev);
    }
    return !a->quit && a->deferred.type == K_NONE;
}

/* The normal screen gets the last answer, so that it is not lost with the
 * alternate one. */
static void say_goodbye(const struct app *a)
{
    const struct buf *b = transcript_last_answer(a->transcript);
    struct view_chat v;
    if (!b) {
        return;
    }
    chat_view(a->chat, &v);
    struct buf out = BUF_INIT;
    text_filter(b->data, b->len, a->theme.ascii || !a->theme.utf8, NULL, &out);
    if (!a->theme.utf8) {
        for (size_t i = 0; i < out.len; i++) {
            out.data[i] = (unsigned char)out.data[i] < 0x80 ? out.data[i] : '?';
        }
    }
    if (out.len && out.data[out.len - 1] != '\n') {
        buf_addc(&out, '\n');
    }
    if (v.conversation > 0 && v.saved) {
        buf_printf(&out, "quasar --resume %lld goes on with this conversation.\n",
                   (long long)v.conversation);
    }
    fwrite(out.data, 1, out.len, stdout);
    fflush(stdout);
    buf_free(&out);
}

/* ---- a stored conversation ------------------------------------------------ */

static void show_calls(struct app *a, const char *calls)
{
    static const char fence[] = "\n\n```json\n";
    transcript_text(a->transcript, fence, sizeof fence - 1);
    transcript_text(a->transcript, calls, strlen(calls));
    transcript_text(a->transcript, "\n```\n", 5);
}

static void show_turn(void *ctx, const struct conv_turn *turn)
{
    struct app *a = ctx;
    char at[8];
    clock_text(at, (time_t)turn->created);
    if (turn->user) {
        struct buf b = BUF_INIT;
        buf_add(&b, turn->text, turn->text_n);
        transcript_user(a->transcript, at, &b, &b);
        buf_free(&b);
        a->n_messages = transcript_kept(a->transcript, a->n_messages);
        return;
    }
    transcript_model(a->transcript, at);
    if (turn->thought_n > 0) {
        transcript_thought(a->transcript, turn->thought, turn->thought_n);
        transcript_thought_facts(a->transcript, true, 0, turn->tokens);
    }
    transcript_text(a->transcript, turn->text, turn->text_n);
    if (turn->calls) {
        show_calls(a, turn->calls);
    }
    const bool cut = turn->finish && strcmp(turn->finish, "stop") != 0 &&
                     strcmp(turn->finish, "tool_calls") != 0;
    transcript_end(a->transcript, R_WARN, cut ? turn->finish : "");
    a->n_messages = transcript_kept(a->transcript, a->n_messages);
}

int app_resume(struct app *a, int64_t conversation, struct err *e)
{
    return chat_resume(a->chat, conversation, show_turn, a, e);
}

/* What the screen opens with. */
static int open_conversation(struct app *a, struct err *e)
{
    const struct tui_opts *o = a->opts;
    if (o->resume > 0) {
        struct err why = ERR_INIT;
        const int rc = app_resume(a, o->resume, &why);
        if (rc < 0 && o->must_resume) {
            *e = why;
            return rc;
        }
        if (rc < 0) {
            transcript_clear(a->transcript);
            a->n_messages = 0;
            transcript_notice(a->transcript, R_WARN, why.msg);
        } else {
            transcript_notice(a->transcript, R_DIM, "resumed; /new starts another conversation");
        }
    }
    for (const char *p = o->notice; p && *p;) {
        const size_t n = strcspn(p, "\n");
        char *line = mem_strndup(p, n);
        transcript_notice(a->transcript, R_WARN, line);
        free(line);
        p += n + (p[n] != 0);
    }
    return 0;
}

static void app_free(struct app *a)
{
    for (size_t i = 0; i < a->n_queue; i++) {
        app_message_free(&a->queue[i]);
    }
    free(a->queue);
    branch_forget(a);
    composer_free(a->composer);
    transcript_free(a->transcript);
    history_free(a->history);
    keyin_free(a->input);
    search_free(a->search);
    sessions_free(a);
    text_rows_free(&a->panel);
    text_rows_free(&a->help);
    buf_free(&a->query);
    buf_free(&a->note);
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
    a.frame_gap = FRAME_NS;
    a.status.phase = P_LOADING;
    a.transcript = transcript_create();
    a.input = keyin_create();
    a.history = history_create(o->history, &hist);
    *signal_out = 0;
    a.chat = chat_create(c);
    int rc = open_conversation(&a, e);
    if (rc == 0) {
        /* the line editor first: its terminal calls would disturb curses later */
        a.composer = composer_create(o->vi, a.history, turn, &a, e);
        rc = a.composer ? term_open(e) : QE_IO;
    }
    if (rc < 0) {
        chat_free(a.chat);
        app_free(&a);
        return rc;
    }
    theme_start(&a.theme);
    if (hist.msg[0]) {
        app_note(&a, R_WARN, "%s", hist.msg);
    }
    a.dirty = true;
    a.urgent = true;
    a.turn_start = now_ns();
    while (!a.quit) {
        (void)turn(&a);
        if (a.deferred.type != K_NONE && !a.quit) {
            struct key k = a.deferred;
            a.deferred.type = K_NONE;
            on_key(&a, &k);
        }
    }
    term_close();
    if (a.failed.code) {
        rc = err_set(e, a.failed.code, "%s", a.failed.msg);
    } else {
        say_goodbye(&a);
    }
    *signal_out = a.signal;
    chat_free(a.chat);
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

void tui_print_keys(FILE *f)
{
    keys_print(f);
}
