/* Going on with a stored conversation, as far as the reader's thread does it: the
 * lock, the text, the messages. It has a handle of the catalogue of its own for as
 * long as that takes; the text is there before the model is. */
#include "config.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/jsonio.h"
#include "base/mem.h"
#include "conv/chat.h"

void resume_free(struct resume *r)
{
    if (r) {
        lock_release(r->lock);
        free(r->model);
        free(r->system);
        json_decref(r->messages);
        buf_free(&r->notice);
        waiting_list_free(&r->queue);
        buf_free(&r->draft);
        free(r);
    }
}

static char *copy_or_null(const char *s)
{
    return s ? mem_strdup(s) : NULL;
}

static bool take_conv(void *ctx, const struct catalog_conv *v)
{
    struct resume *r = ctx;
    r->model = copy_or_null(v->model);
    r->system = copy_or_null(v->system);
    return false;
}

struct telling {
    struct resume *r;
    const struct chat *chat;
    bool taken; /* another chat stands on the same branch */
    void (*fn)(void *ctx, const struct conv_turn *turn);
    void *ctx;
};

/* The same message as the turn left when it was said. */
static json_t *as_message(const struct catalog_turn *t)
{
    if (t->role != CAT_ASSISTANT) {
        json_t *m = json_object();
        json_object_set_new(m, "role", json_string(cat_roles[t->role]));
        json_object_set_new(m, "content", json_str_lossy(t->text, t->text_n));
        return m;
    }
    json_t *calls = NULL;
    if (t->calls && json_parse(t->calls, strlen(t->calls), "stored calls", &calls, NULL) < 0) {
        calls = NULL;
    }
    json_t *m = answer_as_message(t->text, t->text_n, t->thought, t->thought_n, calls);
    json_decref(calls);
    return m;
}

/* Whether another chat stands after a turn of a conversation. */
static bool is_place_of_another(const struct chat *mine, int64_t conv, int64_t turn)
{
    for (const struct chat *t = mine->reader->first; t; t = t->next) {
        struct view_chat v;
        chat_view(t, &v);
        if (t != mine && !t->freed && v.conversation == conv && v.turn == turn) {
            return true;
        }
    }
    return false;
}

/* What is stored of a thought beside its text; those of before it was counted have nothing. */
static void thought_of(const char *stats, int *tokens, double *seconds)
{
    json_t *o = NULL;
    *tokens = -1;
    *seconds = -1;
    if (stats && json_parse(stats, strlen(stats), "stored figures", &o, NULL) == 0) {
        const json_t *n = json_object_get(o, "thought_tokens"),
                     *s = json_object_get(o, "thought_s");
        *tokens = json_is_integer(n) ? (int)json_integer_value(n) : -1;
        *seconds = json_is_number(s) ? json_number_value(s) : -1;
    }
    json_decref(o);
}

static bool take_turn(void *ctx, const struct catalog_turn *t)
{
    struct telling *s = ctx;
    s->taken = s->taken || is_place_of_another(s->chat, s->r->conv, t->id);
    json_array_append_new(s->r->messages, as_message(t));
    s->r->last = t->id;
    if (s->fn) {
        int tokens = -1;
        double seconds = -1;
        thought_of(t->stats, &tokens, &seconds);
        const struct conv_turn turn = {.user = t->role != CAT_ASSISTANT,
                                       .text = t->text,
                                       .text_n = t->text_n,
                                       .thought = t->thought ? t->thought : "",
                                       .thought_n = t->thought_n,
                                       .calls = t->calls,
                                       .finish = t->finish,
                                       .created = t->created,
                                       .tokens = (int)t->n_ids,
                                       .thought_tokens = tokens,
                                       .thought_s = seconds};
        s->fn(s->ctx, &turn);
    }
    return true;
}

int conv_open_store(const struct conv *c, struct store **out, struct buf *notice, struct err *e)
{
    if (!c->opts.save) {
        return err_set(e, QE_USAGE,
                       "conversations are not saved (--no-save), so none can be gone "
                       "on with");
    }
    return store_open(c->dir, atomic_load(&c->budget), out, notice, e);
}

struct listing {
    bool (*fn)(void *ctx, const struct conv_stored *s);
    void *ctx;
};

static bool list_one(void *ctx, const struct catalog_conv *v)
{
    const struct listing *l = ctx;
    const struct conv_stored s = {.id = v->id,
                                  .updated = v->updated,
                                  .title = v->title,
                                  .turns = v->turns,
                                  .state_bytes = v->state_bytes,
                                  .pinned = v->pinned,
                                  .recovered = v->recovered};
    return l->fn(l->ctx, &s);
}

int conv_list(struct conv *c, int limit, bool (*fn)(void *ctx, const struct conv_stored *s),
              void *ctx, struct err *e)
{
    struct store *s = NULL;
    struct listing l = {fn, ctx};
    int rc = conv_open_store(c, &s, NULL, e);
    if (rc == 0) {
        rc = catalog_list(store_catalog(s), limit, list_one, &l, e);
    }
    store_close(s);
    return rc;
}

int conv_get(struct conv *c, int64_t conversation,
             bool (*fn)(void *ctx, const struct conv_stored *s), void *ctx, struct err *e)
{
    struct store *s = NULL;
    struct listing l = {fn, ctx};
    int rc = conv_open_store(c, &s, NULL, e);
    rc = rc < 0 ? rc : catalog_get(store_catalog(s), conversation, list_one, &l, e);
    store_close(s);
    return rc;
}

int conv_rename(struct conv *c, int64_t conversation, const char *name, struct err *e)
{
    struct store *s = NULL;
    char *taken = NULL;
    int rc = catalog_take_name(name, &taken, e);
    rc = rc < 0 ? rc : conv_open_store(c, &s, NULL, e);
    rc = rc < 0 ? rc : catalog_rename(store_catalog(s), conversation, taken, e);
    store_close(s);
    free(taken);
    return rc;
}

int conv_pin(struct conv *c, int64_t conversation, bool pinned, struct err *e)
{
    struct store *s = NULL;
    int rc = conv_open_store(c, &s, NULL, e);
    rc = rc < 0 ? rc : catalog_pin(store_catalog(s), conversation, pinned, e);
    store_close(s);
    return rc;
}

int conv_fork(struct conv *c, int64_t conversation, int64_t *copy, struct err *e)
{
    struct store *s = NULL;
    int rc = conv_open_store(c, &s, NULL, e);
    rc = rc < 0 ? rc : catalog_fork(store_catalog(s), conversation, 0, NULL, copy, e);
    store_close(s);
    return rc;
}

int conv_find(struct conv *c, const char *what, int64_t *conversation, struct err *e)
{
    struct store *s = NULL;
    int rc = conv_open_store(c, &s, NULL, e);
    rc = rc < 0 ? rc : catalog_find(store_catalog(s), what, conversation, e);
    store_close(s);
    return rc;
}

int conv_forget(struct conv *c, int64_t conversation, uint64_t *bytes, struct err *e)
{
    struct store *s = NULL;
    int rc = conv_open_store(c, &s, NULL, e);
    rc = rc < 0 ? rc : store_forget_states(s, conversation, bytes, e);
    store_close(s);
    return rc;
}

struct branching {
    int64_t conv;
    bool (*fn)(void *ctx, const struct conv_branch *b);
    void *ctx;
    bool ended;
};

static bool tell_branch(void *ctx, const struct catalog_branch *b)
{
    struct branching *k = ctx;
    const struct conv_branch out = {.conversation = k->conv,
                                    .tip = b->tip,
                                    .number = b->number,
                                    .from = (int)b->from,
                                    .turns = b->turns,
                                    .head = b->head,
                                    .current = b->current};
    k->ended = !k->fn(k->ctx, &out);
    return !k->ended;
}

int conv_branches(struct conv *c, const int64_t *conversation, size_t n,
                  bool (*fn)(void *ctx, const struct conv_branch *b), void *ctx, struct err *e)
{
    struct store *s = NULL;
    int rc = conv_open_store(c, &s, NULL, e);
    struct branching k = {.fn = fn, .ctx = ctx};
    for (size_t i = 0; i < n && rc == 0 && !k.ended; i++) {
        k.conv = conversation[i];
        rc = catalog_branches(store_catalog(s), k.conv, tell_branch, &k, e);
    }
    store_close(s);
    return rc;
}

int conv_leads_to(struct conv *c, int64_t conversation, int64_t turn, int64_t at, int64_t *tip,
                  int *before, struct err *e)
{
    struct store *s = NULL;
    int rc = conv_open_store(c, &s, NULL, e);
    rc = rc < 0 ? rc : catalog_leads_to(store_catalog(s), conversation, turn, at, tip, before, e);
    store_close(s);
    return rc;
}

int conv_elsewhere(const struct conv *c, int64_t conversation)
{
    const pid_t pid = lock_holder(c->dir, conversation);
    return pid == getpid() ? 0 : (int)pid;
}

int conv_disk(struct conv *c, struct conv_disk *out, struct err *e)
{
    struct store *s = NULL;
    int rc = conv_open_store(c, &s, NULL, e);
    rc = rc < 0 ? rc : catalog_sizes(store_catalog(s), &out->text, &out->state, e);
    if (rc == 0) {
        out->budget = store_budget(s);
    }
    store_close(s);
    return rc;
}

int conv_set_budget(struct conv *c, uint64_t budget, uint64_t *bytes, struct err *e)
{
    struct store *s = NULL;
    *bytes = 0;
    atomic_store(&c->budget, budget);
    struct cmd *cmd = mem_zalloc(sizeof *cmd);
    cmd->kind = CMD_BUDGET;
    cmd->budget = budget;
    conv_command(c, cmd);
    int rc = conv_open_store(c, &s, NULL, e);
    rc = rc < 0 ? rc : store_trim(s, bytes, e);
    store_close(s);
    return rc;
}

static bool owner_is_gone(void *ctx, int64_t owner)
{
    (void)ctx;
    const pid_t pid = (pid_t)(owner >> 16);
    return pid != getpid() && kill(pid, 0) < 0 && errno == ESRCH;
}

void conv_draft_adopt(struct conv *c, struct buf *out)
{
    struct store *s = NULL;
    if (conv_open_store(c, &s, NULL, NULL) == 0 && !store_fixed(s)) {
        (void)catalog_draft_adopt(store_catalog(s), owner_is_gone, NULL, out, NULL);
    }
    store_close(s);
}

static bool take_waiting(void *ctx, const struct catalog_queued *q)
{
    waiting_list_add(ctx, q->shown, q->shown_n, q->message, q->message_n);
    return true;
}

/* tip 0: where it stands. notice is taken when it succeeds. */
static int resume(struct chat *t, struct store *s, int64_t conv, int64_t tip, struct buf *notice,
                  void (*fn)(void *ctx, const struct conv_turn *turn), void *ctx, struct err *e)
{
    struct catalog *c = store_catalog(s);
    struct resume *r = mem_zalloc(sizeof *r);
    struct telling tell = {.r = r, .chat = t, .fn = fn, .ctx = ctx};
    int unfinished = 0, tokens = 0;
    int64_t to = tip;
    const bool fixed = store_fixed(s); /* the record says so */
    bool first = false;
    r->conv = conv;
    r->messages = json_array();
    int rc = catalog_get(c, conv, take_conv, r, e);
    rc = rc < 0 || fixed ? rc : lock_set_take(t->conv->locks, conv, &r->lock, &first, e);
    /* what its last writer left, now that there is no other */
    rc = rc < 0 || !first ? rc : catalog_recover(c, conv, &unfinished, &tokens, e);
    rc = rc < 0 || !fixed || tip > 0 ? rc : catalog_tip(c, conv, true, &to, e);
    rc = rc < 0 ? rc : catalog_path(c, conv, to, take_turn, &tell, e);
    if (rc == 0 && tell.taken) {
        rc = err_set(e, QE_BUSY, "that branch of conversation %lld is open here already",
                     (long long)conv);
    }
    rc = rc < 0 || fixed || tip == 0 ? rc : catalog_set_leaf(c, conv, tip, e);
    if (rc < 0) {
        resume_free(r);
        return rc;
    }
    buf_truncate(&t->draft, 0);
    (void)catalog_draft_get(c, conv, r->last, &r->draft_after, &t->draft, NULL);
    buf_add(&r->draft, t->draft.data ? t->draft.data : "", t->draft.len);
    (void)catalog_queue_get(c, conv, r->last, &r->queue_after, take_waiting, &r->queue, NULL);
    waiting_list_copy(&t->queue, &r->queue);
    if (!fixed) {
        (void)catalog_seen(c, conv, NULL);
    }
    if (!t->settings.system || t->system_stored) {
        free(t->settings.system);
        t->settings.system = copy_or_null(r->system);
        t->system_stored = true;
    }
    if (!fixed) {
        r->notice = *notice;
        *notice = (struct buf)BUF_INIT;
    }
    conv_command_resume(t, r);
    return 0;
}

int chat_resume(struct chat *t, int64_t conversation,
                void (*fn)(void *ctx, const struct conv_turn *turn), void *ctx, struct err *e)
{
    return chat_resume_at(t, conversation, 0, fn, ctx, e);
}

int chat_resume_at(struct chat *t, int64_t conversation, int64_t tip,
                   void (*fn)(void *ctx, const struct conv_turn *turn), void *ctx, struct err *e)
{
    struct store *s = NULL;
    struct buf notice = BUF_INIT;
    int rc = conv_open_store(t->conv, &s, &notice, e);
    if (rc == 0) {
        rc = resume(t, s, conversation, tip, &notice, fn, ctx, e);
    }
    buf_free(&notice);
    store_close(s);
    return rc;
}

static bool is_number(const char *name)
{
    return name[0] && strspn(name, "0123456789") == strlen(name);
}

int chat_session(struct chat *t, const char *word, struct err *e)
{
    struct store *s = NULL;
    const bool number = is_number(word);
    char *name = NULL;
    int rc = number ? 0 : catalog_take_name(word, &name, e);
    if (rc < 0) {
        return rc;
    }
    struct buf notice = BUF_INIT;
    rc = conv_open_store(t->conv, &s, &notice, e);
    int64_t conv = 0;
    if (rc == 0 && number) {
        rc = catalog_numbered(store_catalog(s), word, &conv, e);
    } else if (rc == 0 && store_fixed(s)) {
        rc = catalog_named(store_catalog(s), name, &conv, e);
    } else if (rc == 0) {
        const struct catalog_new n = {
            .name = name, .system = t->settings.system, .directory = t->conv->opts.directory};
        rc = catalog_named_or_new(store_catalog(s), &n, &conv, e);
    }
    if (rc == 0 && conv > 0) { /* 0: one that cannot be begun */
        rc = resume(t, s, conv, 0, &notice, NULL, NULL, e);
    }
    buf_free(&notice);
    store_close(s);
    free(name);
    return rc;
}
