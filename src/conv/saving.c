/* The state of a chat on its way to disk and back: copied out of the engine when
 * it has been quiet for a while, written by the keeper; read by the keeper and put
 * into the engine before the first turn of a conversation that is gone on with.
 * Any step may fail; then the conversation is computed again, and one line says
 * why. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "conv/chat.h"

#define QUIET_NS 5000000000 /* after a turn, until its state is saved */

static void post_saved(struct chat *t)
{
    chat_publish(t);
    if (t->saving.asked) {
        t->saving.asked = false;
        struct post_item it = {.ev = {.kind = CE_SAVED, .chat = t}};
        post_put(t->reader->post, &it);
    }
}

/* Told once: a disk that is full stays so for a while. */
static void tell_unsaved(struct chat *t, const struct err *e)
{
    if (!t->conv->keep_failed) {
        struct buf b = BUF_INIT;
        buf_printf(&b,
                   "the engine's state is not saved: %s; the text is, and is read again when it is "
                   "gone on with",
                   e->msg);
        conv_notice(t->conv, t, b.data);
        buf_free(&b);
    }
    t->conv->keep_failed = true;
}

/* Nothing to tell of a conversation without a turn. */
static void tell_unloaded(struct chat *t, const struct err *e)
{
    if (json_array_size(t->messages) == 0) {
        return;
    }
    struct buf b = BUF_INIT;
    buf_printf(&b, "%s%s%s", e->msg[0] ? "the saved state cannot be used: " : "", e->msg,
               e->msg[0] ? "; the conversation is read again"
                         : "no state was saved; the conversation is read again");
    conv_notice(t->conv, t, b.data);
    buf_free(&b);
}

static struct keep_task *task_for(struct chat *t, enum keep_what what)
{
    const bool save = what == KEEP_SAVE;
    struct keep_task *k = mem_zalloc(sizeof *k);
    k->chat = t;
    k->what = what;
    k->conv = save ? t->saving.out_conv : t->record.conv;
    k->turn = save ? t->saving.out_turn : t->record.last;
    memcpy(k->compat, t->conv->compat, sizeof k->compat);
    memcpy(k->label, t->conv->label, sizeof k->label);
    return k;
}

/* ---- to disk ---- */

static void begin_export(struct chat *t)
{
    struct conv *c = t->conv;
    struct err e = ERR_INIT;
    t->saving.due = 0;
    t->saving.out_conv = t->record.conv;
    t->saving.out_turn = t->saving.turn;
    if (sched_export(c->sched, t->live, c->wake_fd, &t->saving.out, &e) < 0) {
        t->saving.out = NULL;
        post_saved(t);
    }
}

static void end_export(struct chat *t)
{
    struct saving *k = &t->saving;
    struct err e = ERR_INIT;
    const int rc = transfer_result(k->out, &e);
    live_free(k->left);
    k->left = NULL;
    if (rc == 0) {
        struct keep_task *task = task_for(t, KEEP_SAVE);
        task->copy = k->out;
        k->out = NULL;
        k->saving = true;
        keeper_put(t->conv->keeper, task);
        return;
    }
    transfer_free(k->out);
    k->out = NULL;
    if (rc != QE_CANCELLED && rc != QE_NOTFOUND) {
        tell_unsaved(t, &e);
    }
    post_saved(t);
}

/* ---- and back ---- */

static int read_state(void *ctx, uint64_t at, void *dst, size_t n, struct err *e)
{
    const struct keep_task *k = ctx;
    return state_read_at(k->file, KEEP_PART, at, dst, n, e);
}

/* What was found stays open until it has been brought in. */
static void begin_import(struct chat *t, struct keep_task *task)
{
    struct conv *c = t->conv;
    struct err e = ERR_INIT;
    const struct state_meta *m = state_meta(task->file);
    const struct engine_saved state = {
        .size = task->size, .unit = STATE_CHUNK, .read = read_state, .ctx = task};
    t->saving.found = task;
    if (sched_import(c->sched, t->live, m->ids, m->n_ids, &state, c->wake_fd, &t->saving.in, &e) <
        0) {
        t->saving.in = NULL;
        t->saving.found = NULL;
        keep_task_free(task);
        tell_unloaded(t, &e);
    }
}

static void end_import(struct chat *t)
{
    struct saving *k = &t->saving;
    struct err e = ERR_INIT;
    const int rc = transfer_result(k->in, &e);
    transfer_free(k->in);
    k->in = NULL;
    if (rc < 0 && rc != QE_CANCELLED) {
        tell_unloaded(t, &e);
    }
    if (rc == QE_FORMAT) {
        k->found->what = KEEP_BURY;
        k->saving = true;
        keeper_put(t->conv->keeper, k->found);
    } else {
        keep_task_free(k->found);
    }
    k->found = NULL;
    t->figures.state_saved = rc == 0;
}

static void end_save(struct chat *t, const struct keep_task *task)
{
    struct conv *c = t->conv;
    t->saving.saving = false;
    if (task->err.code < 0 && task->err.code != QE_NOTFOUND) {
        tell_unsaved(t, &task->err); /* not found: the conversation was removed meanwhile */
    }
    c->keep_failed = c->keep_failed && task->err.code < 0;
    t->figures.state_saved = task->err.code == 0 && t->saving.due == 0 && !chat_working(t);
    post_saved(t);
}

void saving_done(struct keep_task *task)
{
    struct chat *t = task->chat;
    switch (task->what) {
    case KEEP_SAVE:
        end_save(t, task);
        break;
    case KEEP_LOAD:
        t->saving.loading = false;
        if (task->err.code < 0) {
            tell_unloaded(t, &task->err);
        } else if (!t->closing) {
            begin_import(t, task);
            return;
        }
        break;
    case KEEP_BURY:
        t->saving.saving = false;
        break;
    }
    keep_task_free(task);
}

/* ---- what conv.c and turn.c call ---- */

void saving_turn_over(struct chat *t, int64_t turn)
{
    t->saving.turn = turn;
    t->figures.state_saved = false;
    t->saving.due = turn > 0 && t->conv->keeper ? clock_now(clock_main()) + QUIET_NS : 0;
}

/* What is not saved yet still is, from a live of its own. Before the record forgets. */
void saving_leave(struct chat *t)
{
    struct saving *k = &t->saving;
    if (k->due && !k->out && t->conv->state == SCHED_READY) {
        begin_export(t);
    }
    if (k->out && !k->left) {
        k->left = t->live;
        t->live = live_create();
    }
    k->turn = 0;
    k->due = 0;
}

void saving_restart(struct chat *t, bool load)
{
    t->saving.wanted = load && t->conv->keeper;
}

bool saving_loading(const struct chat *t)
{
    return t->saving.wanted || t->saving.loading || t->saving.in;
}

bool saving_busy(const struct chat *t)
{
    const struct saving *k = &t->saving;
    return k->out || k->in || k->loading || k->saving || (k->due && t->conv->state == SCHED_READY);
}

void saving_work(struct chat *t, bool flush)
{
    struct saving *k = &t->saving;
    if (k->out && transfer_done(k->out)) {
        end_export(t);
    }
    if (k->in && transfer_done(k->in)) {
        end_import(t);
    }
    if (t->closing || t->conv->state != SCHED_READY) {
        k->wanted = k->wanted && !t->closing;
    } else if (k->wanted) {
        k->wanted = false;
        k->loading = true;
        keeper_put(t->conv->keeper, task_for(t, KEEP_LOAD));
    }
    const bool quiet = !chat_working(t) && !t->inputs && !k->out && !k->saving;
    if (k->due && quiet && (flush || k->asked || clock_now(clock_main()) >= k->due)) {
        begin_export(t);
    } else if (k->asked && quiet && !k->due) {
        post_saved(t);
    }
}

void saving_free(struct chat *t)
{
    transfer_free(t->saving.out);
    transfer_free(t->saving.in);
    live_free(t->saving.left);
    memset(&t->saving, 0, sizeof t->saving);
}
