/* One pane: a conversation on the screen, with what is written and shown of
 * it. How it is filled from a stored conversation and how the user leaves it. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tui/app.h"
#include "tui/draft.h"
#include "tui/text.h"

#define BRANCH_CELLS 24 /* of a branch's first question, in its name */

static bool take_title(void *ctx, const struct conv_stored *s)
{
    struct pane *p = ctx;
    free(p->name);
    p->name = s->title && s->title[0] ? mem_strdup(s->title) : NULL;
    return false;
}

/* Which branch a pane is on: the one that ends with a turn (0: where the conversation stands). */
struct naming {
    struct pane *p;
    int64_t tip;
    int was; /* the number of the one it was on; 0: not known */
    bool found;
};

static bool take_branch(void *ctx, const struct conv_branch *b)
{
    struct naming *k = ctx;
    const bool exact = (k->tip > 0 && b->tip == k->tip) || b->number == k->was;
    if (exact || (b->current && !k->found)) {
        struct buf s = BUF_INIT;
        if (b->number == 1) {
            buf_adds(&s, "[main]");
        } else {
            size_t n = strlen(b->head);
            n = text_fit(b->head, n, BRANCH_CELLS);
            buf_printf(&s, "[main~%d: %.*s]", b->number, (int)n, b->head);
        }
        free(k->p->branch);
        k->p->branch = buf_take(&s);
        k->p->branch_number = b->number;
        k->found = exact;
    }
    return true;
}

/* What a stored conversation and the branch that ends with a turn are called. */
static void pane_names_of(struct pane *p, int64_t conversation, int64_t tip, int was)
{
    struct naming k = {.p = p, .tip = tip, .was = was};
    free(p->branch);
    p->branch = NULL;
    p->branch_number = 0;
    p->renamed = false;
    if (conv_get(p->app->conv, conversation, take_title, p, NULL) == 0) {
        (void)conv_branches(p->app->conv, &conversation, 1, take_branch, &k, NULL);
    }
}

#define DRAFT_NS 700000000LL /* from a key to the disk, so that not every key goes there */

void pane_draft_changed(struct pane *p)
{
    if (p->draft_due == 0) {
        p->draft_due = app_now() + DRAFT_NS;
    }
}

void pane_draft_keep(struct pane *p)
{
    struct buf b = BUF_INIT;
    struct draft *d = composer_copy(p->composer);
    p->draft_due = 0;
    draft_write(d, &b);
    draft_free(d);
    if (b.len != p->draft_kept.len || (b.len && memcmp(b.data, p->draft_kept.data, b.len) != 0)) {
        chat_draft(p->chat, b.data ? b.data : "", b.len);
        buf_free(&p->draft_kept);
        p->draft_kept = b;
    } else {
        buf_free(&b);
    }
}

void pane_draft_restore(struct pane *p)
{
    struct draft *d =
        p->draft_found.len ? draft_read(p->draft_found.data, p->draft_found.len) : NULL;
    if (d) {
        composer_restore(p->composer, d);
        draft_free(d);
    }
    buf_truncate(&p->draft_kept, 0);
    buf_add(&p->draft_kept, p->draft_found.data ? p->draft_found.data : "", p->draft_found.len);
    buf_truncate(&p->draft_found, 0);
}

struct pane *pane_create(struct app *a)
{
    struct pane *p = mem_zalloc(sizeof *p);
    p->app = a;
    p->chat = chat_create(a->conv);
    p->transcript = transcript_create();
    p->status.phase = P_LOADING;
    p->turn_start = app_now();
    return p;
}

void pane_free(struct pane *p)
{
    if (!p) {
        return;
    }
    for (size_t i = 0; i < p->n_queue; i++) {
        message_free(&p->queue[i]);
    }
    free(p->queue);
    branch_forget(p);
    chat_free(p->chat);
    transcript_free(p->transcript);
    search_free(p->search);
    buf_free(&p->find_text);
    buf_free(&p->seek_pattern);
    buf_free(&p->stored);
    buf_free(&p->draft_kept);
    buf_free(&p->draft_found);
    free(p->name);
    free(p->branch);
    free(p);
}

/* ---- a stored conversation ------------------------------------------------ */

static void show_calls(struct pane *p, const char *calls)
{
    static const char fence[] = "\n\n```json\n";
    transcript_text(p->transcript, fence, sizeof fence - 1);
    transcript_text(p->transcript, calls, strlen(calls));
    transcript_text(p->transcript, "\n```\n", 5);
}

/* Why a stored answer ended before its end, in the words that were said when it did; "": it did
 * not. */
static const char *finish_words(const char *finish)
{
    static const char *const words[][2] = {{"stop", ""},
                                           {"tool_calls", ""},
                                           {"cancelled", "stopped"},
                                           {"length", "cut off: the token limit is reached"},
                                           {"error", "failed"}};
    for (size_t i = 0; finish && i < sizeof words / sizeof *words; i++) {
        if (strcmp(finish, words[i][0]) == 0) {
            return words[i][1];
        }
    }
    return finish ? finish : "";
}

static void show_turn(void *ctx, const struct conv_turn *turn)
{
    struct pane *p = ctx;
    char at[8];
    turn_clock(at, turn->created);
    if (turn->user) {
        struct buf b = BUF_INIT;
        buf_add(&b, turn->text, turn->text_n);
        transcript_user(p->transcript, at, &b, &b);
        transcript_at(p->transcript, turn->created);
        buf_free(&b);
        p->n_messages = transcript_kept(p->transcript, p->n_messages);
        p->cut = CUT_ALL;
        return;
    }
    p->cut = turn->finish && strcmp(turn->finish, "interrupted") == 0 ? CUT_END : CUT_NOT;
    transcript_model(p->transcript, at);
    transcript_at(p->transcript, turn->created);
    if (turn->thought_n > 0) {
        transcript_thought(p->transcript, turn->thought, turn->thought_n);
        transcript_thought_facts(p->transcript, true, turn->thought_s, turn->thought_tokens);
    }
    transcript_text(p->transcript, turn->text, turn->text_n);
    if (turn->calls) {
        show_calls(p, turn->calls);
    }
    transcript_end(p->transcript, R_WARN, finish_words(turn->finish));
    p->n_messages = transcript_kept(p->transcript, p->n_messages);
}

void pane_tell_cut(struct pane *p)
{
    if (p->cut != CUT_NOT) {
        app_note(p->app, R_WARN, "%s; /retry asks it again",
                 p->cut == CUT_ALL ? "the last question has no answer"
                                   : "the last answer was cut off");
    }
    p->cut = CUT_NOT;
}

int pane_resume(struct pane *p, int64_t conversation, int64_t tip, struct err *e)
{
    const int rc = chat_resume_at(p->chat, conversation, tip, show_turn, p, e);
    if (rc == 0) {
        const struct buf *b = chat_draft_of(p->chat);
        buf_truncate(&p->draft_found, 0);
        buf_add(&p->draft_found, b->data ? b->data : "", b->len);
        pane_names_of(p, conversation, tip, 0);
    }
    return rc;
}

void pane_notices(struct pane *p, const char *lines)
{
    for (const char *s = lines; s && *s;) {
        const size_t n = strcspn(s, "\n");
        char *line = mem_strndup(s, n);
        transcript_notice(p->transcript, R_WARN, line);
        views_log(p->app, R_WARN, line);
        free(line);
        s += n + (s[n] != 0);
    }
}

int pane_open_first(struct pane *p, struct err *e)
{
    const struct tui_opts *o = p->app->opts;
    if (o->resume > 0) {
        struct err why = ERR_INIT;
        const int rc = pane_resume(p, o->resume, 0, &why);
        if (rc < 0 && o->must_resume) {
            *e = why;
            return rc;
        }
        if (rc < 0) {
            transcript_clear(p->transcript);
            p->n_messages = 0;
            transcript_notice(p->transcript, R_WARN, why.msg);
        } else {
            transcript_notice(p->transcript, R_DIM, "resumed; /new starts another conversation");
            pane_tell_cut(p);
            queue_restore(p);
        }
    }
    if (o->resume <= 0) {
        conv_draft_adopt(p->app->conv, &p->draft_found);
    }
    pane_notices(p, o->notice);
    return 0;
}

/* ---- leaving a conversation ---------------------------------------------- */

static void leave(struct pane *p, int64_t to, int64_t tip)
{
    p->leave_asked = 0;
    if (to == LEAVE_CLOSE) {
        panes_remove(p);
    } else if (to == LEAVE_NEW) {
        command_new(p);
    } else {
        sessions_go_on(p, to, tip);
    }
}

void pane_leave(struct pane *p, int64_t to, int64_t tip)
{
    struct view_chat v;
    chat_view(p->chat, &v);
    if (p->fresh || v.saved || p->leave_asked == to) {
        leave(p, to, tip);
    } else {
        p->leave_to = to;
        p->leave_tip = tip;
        chat_flush(p->chat);
    }
}

void pane_seek(struct pane *p, int64_t conversation, long before, const struct buf *pattern)
{
    p->seek_in = conversation;
    p->seek_before = before;
    buf_truncate(&p->seek_pattern, 0);
    buf_add(&p->seek_pattern, pattern->data ? pattern->data : "", pattern->len);
}

void pane_sought(struct pane *p, int64_t conversation)
{
    if (p->seek_in > 0 && p->seek_in == conversation) {
        find_in(p, p->seek_pattern.data ? p->seek_pattern.data : "", p->seek_before);
    }
    p->seek_in = 0;
}

/* How the user asks once more. */
static const char *again(int64_t to)
{
    return to == LEAVE_NEW ? "/new" : to == LEAVE_CLOSE ? "closing it" : "choosing that one";
}

void pane_settle(struct pane *p)
{
    struct app *a = p->app;
    const int64_t to = p->leave_to;
    p->leave_to = 0;
    p->stored_known = false;
    if (p->sending) {
        submit_settled(p);
        return;
    }
    if (to == 0) {
        return; /* something was said meanwhile: the user stays */
    }
    if (p->stored.len == 0) {
        leave(p, to, p->leave_tip);
        return;
    }
    p->leave_asked = to;
    if (p == a->cur) {
        app_note(a, R_BAD, "this conversation is not saved: %s; %s again leaves it all the same",
                 p->stored.data, again(to));
    } else {
        app_note(a, R_BAD,
                 "the conversation of pane %zu is not saved: %s; %s again leaves it all the same",
                 panes_number(a, p), p->stored.data, again(to));
    }
}

void pane_names(struct pane *p)
{
    struct view_chat v;
    chat_view(p->chat, &v);
    if (v.conversation > 0) {
        pane_names_of(p, v.conversation, v.turn, p->in_turn ? p->branch_number : 0);
    }
}
