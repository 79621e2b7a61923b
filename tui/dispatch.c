/* Where a key goes: to what is open over the transcript, to the action that the
 * table has for it, or to the composer. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "tui/app.h"
#include "tui/term.h"

#define COLOR_NS 100000000LL /* an answer that comes later does not count */

static void stop_or_quit(struct app *a, bool was_armed)
{
    if (a->overlay == OV_FIND) {
        find_close(a->cur);
    } else if (a->overlay == OV_SESSIONS) {
        sessions_open(a, "");
    } else if (a->overlay != OV_NONE) {
        a->overlay = OV_NONE;
    } else if (views_ctx(a) && !a->cur->in_turn) {
        views_open(a, VIEW_NONE);
    } else if (a->cur->in_turn) {
        turn_stop(a->cur);
    } else if (a->cur->forking) {
        branch_cancel(a);
    } else if (!composer_empty(a->cur->composer)) {
        submit_keep_draft(a->cur);
        app_note(a, R_TEXT, "the draft is in the history (Up)");
    } else if (was_armed) {
        a->quit = true;
    } else {
        a->quit_armed = true;
        app_note(a, R_TEXT, "%s again quits", app_way(a, ACT_STOP_OR_QUIT));
    }
}

static void escape(struct app *a, bool again)
{
    a->last_esc = false; /* unless this one does nothing */
    if (a->overlay != OV_NONE) {
        a->overlay = OV_NONE;
    } else if (composer_is_vi(a->cur->composer) && !again) {
        a->last_esc = true;
        struct key k = {.type = K_ESC};
        (void)composer_key(a->cur->composer, &k, NULL);
    } else if (a->cur->forking) {
        branch_cancel(a);
    } else if (again && !a->cur->in_turn && composer_empty(a->cur->composer)) {
        a->cur->focus = !transcript_is_empty(a->cur->transcript);
        transcript_select(a->cur->transcript, -1);
    } else {
        a->last_esc = !a->cur->in_turn;
        turn_stop(a->cur);
    }
}

/* The engine lives in this process: what is under way stops with it. */
static void suspend(struct app *a)
{
    size_t live = 0;
    struct view_listener l = {.on = false};
    for (size_t i = 0; i < a->n_panes; i++) {
        live += a->panes[i]->in_turn;
    }
    if (a->opts->requests) {
        requests_listener(a->opts->requests, &l);
    }
    const size_t served = l.live > 0 || l.queued > 0 ? (size_t)(l.live + l.queued) : 0;
    if (live + served > 0 && !a->suspend_told) {
        a->suspend_arm = true;
        app_note(a, R_WARN, "%zu %s%s will freeze; %s again suspends", live + served,
                 served > 0 ? "request" : "answer", live + served == 1 ? "" : "s",
                 app_way(a, ACT_SUSPEND));
    } else {
        app_suspend(a);
    }
}

static void do_action(struct app *a, enum action act, bool was_armed, bool was_esc)
{
    pane_draft_changed(
        a->cur); /* maybe: what was sent, queued or taken away is no draft any more */
    switch (act) {
    case ACT_STOP_OR_QUIT:
        stop_or_quit(a, was_armed);
        break;
    case ACT_HELP:
        command_help(a, overlay_ctx(a)  ? overlay_ctx(a)
                        : views_ctx(a)  ? views_ctx(a)
                        : a->cur->focus ? CTX_TRANSCRIPT
                                        : CTX_COMPOSER);
        break;
    case ACT_REDRAW:
        a->redraw = true;
        break;
    case ACT_SUSPEND:
        suspend(a);
        break;
    case ACT_PAGE_UP:
    case ACT_PAGE_DOWN:
        transcript_scroll(a->cur->transcript, screen_page(a) * (act == ACT_PAGE_UP ? -1 : 1));
        break;
    case ACT_TOP:
        transcript_top(a->cur->transcript);
        if (a->cur->focus) {
            transcript_select_end(a->cur->transcript, -1);
        }
        break;
    case ACT_BOTTOM:
        if (a->cur->focus) {
            transcript_select_end(a->cur->transcript, 1);
        }
        transcript_follow(a->cur->transcript);
        break;
    case ACT_FOCUS:
        if (a->cur->focus) {
            find_close(a->cur);
            a->cur->focus = false;
            transcript_select(a->cur->transcript, 0);
        } else if (!palette_complete(a) && !transcript_is_empty(a->cur->transcript)) {
            a->cur->focus = true;
            transcript_select(a->cur->transcript, -1);
        }
        break;
    case ACT_SEND:
        if (composer_enter(a->cur->composer)) {
            submit_draft(a);
        }
        break;
    case ACT_NEWLINE:
        composer_newline(a->cur->composer);
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
        submit_take_back(a);
        break;
    case ACT_QUEUE:
        queue_open(a);
        break;
    case ACT_HISTORY:
        a->overlay = OV_HISTORY;
        a->pick = 0;
        buf_truncate(&a->query, 0);
        break;
    case ACT_UNDO_EDIT:
        composer_undo(a->cur->composer);
        break;
    case ACT_PREV_BLOCK:
    case ACT_NEXT_BLOCK:
        transcript_select(a->cur->transcript, act == ACT_PREV_BLOCK ? -1 : 1);
        break;
    case ACT_FOLD:
        if (!transcript_fold(a->cur->transcript)) {
            app_note(a, R_TEXT, "there is no thought here to open or fold");
        }
        break;
    case ACT_FOLD_ALL:
        transcript_fold_all(a->cur->transcript);
        break;
    case ACT_COPY_BLOCK:
        command_copy_selected(a);
        break;
    case ACT_CODE: {
        const struct key_hint h = {ACT_COPY_BLOCK, ACT_NONE, "copies"};
        char hint[KEY_HINT];
        keymap_hint(a->keys, &h, CTX_TRANSCRIPT, hint);
        if (!transcript_next_code(a->cur->transcript, hint)) {
            app_note(a, R_WARN, "there is no code in this message");
        }
        break;
    }
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
    case ACT_LISTENER:
        views_toggle(a, VIEW_LISTEN);
        break;
    case ACT_LOG:
        views_toggle(a, VIEW_LOG);
        break;
    case ACT_SESSIONS:
        sessions_open(a, a->overlay == OV_FIND && a->cur->find_text.data ? a->cur->find_text.data
                                                                         : "");
        break;
    case ACT_PANE_BELOW:
    case ACT_PANE_BESIDE:
        (void)panes_split(a, act == ACT_PANE_BESIDE);
        break;
    case ACT_PANE_CLOSE:
        panes_close(a);
        break;
    case ACT_PANE_ONLY:
        panes_only(a);
        break;
    case ACT_PANE_OTHER:
        panes_other(a);
        break;
    case ACT_FIND:
        find_open(a, "");
        break;
    case ACT_FIND_OLDER:
    case ACT_FIND_NEWER:
        find_step(a, act == ACT_FIND_OLDER ? -1 : 1);
        break;
    case ACT_BACK:
        if (a->overlay != OV_NONE) { /* the figures, over the transcript */
            a->overlay = OV_NONE;
            break;
        }
        find_close(a->cur);
        a->cur->focus = false;
        transcript_select(a->cur->transcript, 0);
        break;
    case ACT_COPY_TURN:
        command_copy_turn(a);
        break;
    case ACT_EXPORT_HERE:
        command_export_here(a);
        break;
    case ACT_PAGER:
        command_pager(a);
        break;
    case ACT_PALETTE:
        palette_open(a);
        break;
    case ACT_NONE:
    case ACT_EARLIER:
    case ACT_LATER:
    case ACT_SPAN:
    case ACT_CSV:
    case ACT_MARK:
    case ACT_BODY:
    case ACT_CANCEL:
    case ACT_PAUSE:
    case ACT_CHOOSE:
    case ACT_CHOOSE_BESIDE:
    case ACT_RENAME_IT:
    case ACT_PIN_IT:
    case ACT_FORGET_IT:
    case ACT_EMPTY:
    case ACT_MOVE_UP:
    case ACT_MOVE_DOWN:
    case ACT_DROP:
    case ACT_LIBEDIT:
        break;
    default: /* those that are commands first of all */
        palette_command(a, act);
        break;
    }
}

void dispatch_action(struct app *a, enum action act)
{
    do_action(a, act, false, false);
}

static void to_composer(struct app *a, const struct key *k)
{
    struct err e = ERR_INIT;
    if (k->type == K_PASTE) {
        const struct buf *b = keyin_paste(a->input);
        pane_draft_changed(a->cur);
        if (composer_paste(a->cur->composer, b->data, b->len, &e) < 0) {
            app_error(a, &e);
        } else if (keyin_paste_cut(a->input)) {
            app_note(a, R_BAD, "the paste was longer than 64 MB; its end is missing");
        }
        return;
    }
    pane_draft_changed(a->cur);
    a->pick = 0;
    if (composer_key(a->cur->composer, k, &e) < 0) {
        app_error(a, &e);
    }
}

static bool is_text_key(const struct key *k)
{
    return k->type == K_CHAR && !(k->mods == KM_CTRL && k->code == 'c');
}

/* /keys debug: what a key sends, what it is called and what it does, until ^C. */
static void show_key(struct app *a, const struct key *k)
{
    const struct key none = {.type = K_NONE};
    struct buf b = BUF_INIT;
    char name[KEYS_NAME];
    bool is_prefix = false;
    size_t n = 0;
    const char *bytes = keyin_bytes(a->input, &n);
    if (k->type == K_CHAR && k->mods == KM_CTRL && k->code == 'c') {
        a->key_debug = false;
        app_note(a, R_TEXT, "keys work again");
        return;
    }
    for (size_t i = 0; i < n && i < 40; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c == 0x1B) {
            buf_adds(&b, "ESC ");
        } else if (c > 0x20 && c < 0x7F) {
            buf_printf(&b, "%c ", c);
        } else {
            buf_printf(&b, "%02X ", c);
        }
    }
    keys_name(k, name);
    const enum action act = keymap_lookup(a->keys, CTX_COMPOSER, &none, k, &is_prefix);
    const enum action there = keymap_lookup(a->keys, CTX_TRANSCRIPT, &none, k, &is_prefix);
    app_note(a, R_TEXT, "%sis %s: %s while typing, %s in the transcript (^C ends this)",
             b.len ? b.data : "a paste ", name[0] ? name : "no key that has a name",
             keymap_name(act), keymap_name(there));
    buf_free(&b);
}

/* Keys that nothing knows are told of. */
static void unknown_key(struct app *a, const struct key *prefix, const struct key *k)
{
    const bool odd = k->type == K_F || (k->type == K_CHAR && (k->mods & (KM_CTRL | KM_ALT)) != 0);
    char first[KEYS_NAME] = "", second[KEYS_NAME];
    if (!odd && prefix->type == K_NONE) {
        return;
    }
    if (prefix->type != K_NONE) {
        keys_name(prefix, first);
    }
    keys_name(k, second);
    app_note(a, R_TEXT, "%s%s%s does nothing here; %s tells the keys", first, first[0] ? " " : "",
             second, app_way(a, ACT_HELP));
}

/* A key that the table has not may still be the line editor's, or one of ~/.editrc; when it leaves
 * the draft and the cursor as they were, it is told of. One with Alt that means nothing there
 * either is taken for its letter: that is taken back. */
static void try_composer(struct app *a, const struct key *k)
{
    struct composer *c = a->cur->composer;
    const struct key none = {.type = K_NONE};
    struct buf before = BUF_INIT, after = BUF_INIT;
    const size_t at = composer_cursor(c);
    const bool alt = k->type == K_CHAR && (k->mods & KM_ALT) != 0;
    struct draft *was = alt ? composer_copy(c) : NULL;
    composer_display(c, &before);
    a->trying = alt && !(k->code >= '0' && k->code <= '9'); /* those count, and wait for a key */
    to_composer(a, k);
    a->trying = false;
    composer_display(c, &after);
    bool same = before.len == after.len && composer_cursor(c) == at &&
                (after.len == 0 || memcmp(before.data, after.data, after.len) == 0);
    if (alt && k->code < 0x80 && after.len == before.len + 1 && composer_cursor(c) == at + 1) {
        composer_restore(c, was);
        same = true;
    }
    if (same && a->note.len == 0) {
        unknown_key(a, &none, k);
    }
    draft_free(was);
    buf_free(&before);
    buf_free(&after);
}

void dispatch_key(struct app *a, const struct key *k)
{
    bool was_armed = a->quit_armed;
    bool was_esc = a->last_esc;
    if (k->type == K_MODE) {
        term_mode_known(k->code, k->value);
        return;
    }
    if (k->type == K_COLOR) {
        if (app_now() - a->color_asked <= COLOR_NS) {
            theme_background(&a->theme, k->value);
            a->redraw = true;
            a->dirty = true;
        }
        return;
    }
    a->dirty = true;
    a->urgent = true;
    if (composer_pending(a->cur->composer)) {
        if (is_text_key(k) || k->type == K_ESC) {
            to_composer(a, k);
        } else {
            a->deferred = *k; /* after the unfinished command is given up */
            composer_give_up(a->cur->composer);
        }
        return;
    }
    a->quit_armed = false;
    a->suspend_told = a->suspend_arm;
    a->suspend_arm = false;
    a->asked = a->asking;
    a->asking = false;
    a->last_esc = false; /* unless escape() says so */
    buf_truncate(&a->note, 0);
    if (a->key_debug) {
        show_key(a, k);
        return;
    }
    if (k->type == K_MOUSE) {
        mouse_key(a, k);
        return;
    }
    enum action act = ACT_NONE;
    if (overlay_key(a, k) || (a->overlay == OV_NONE && views_key(a, k, &act))) {
        return;
    }
    if (act != ACT_NONE) { /* of everywhere, in a view */
        do_action(a, act, was_armed, was_esc);
        return;
    }
    enum key_ctx ctx = a->cur->focus ? CTX_TRANSCRIPT : CTX_COMPOSER;
    struct key prefix = a->prefix;
    bool is_prefix = false;
    a->prefix.type = K_NONE;
    act = keymap_lookup(a->keys, ctx, &prefix, k, &is_prefix);
    if (act == ACT_EOF && !composer_empty(a->cur->composer)) {
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
    if (a->cur->focus) {
        /* typing goes where one types */
        if ((k->type == K_CHAR && k->mods == 0) || k->type == K_PASTE) {
            app_note(a, R_TEXT, "%s goes back to the composer", app_way(a, ACT_BACK));
        } else {
            unknown_key(a, &prefix, k);
        }
        return;
    }
    if (prefix.type != K_NONE) {
        unknown_key(a, &prefix, k);
    } else if (act == ACT_NONE && (k->type == K_F || (k->type == K_CHAR && k->mods != 0))) {
        try_composer(a, k);
    } else {
        to_composer(a, k);
    }
}
