/* What is being written, on its way to disk: kept after the turn that the chat stands at, the
 * question under way included, and moved when the chat goes on, so that it is found wherever the
 * program ends. */
#include "config.h"

#include "base/clock.h"
#include "conv/chat.h"

#include <unistd.h>

#define RETRY_NS 5000000000 /* as the text of the conversation */
#define NOWHERE  (-1)       /* drafting.conv: nothing is stored */

void drafting_init(struct chat *t)
{
    buf_free(&t->drafting.text);
    t->drafting = (struct drafting){.text = BUF_INIT, .conv = NOWHERE};
}

void drafting_set(struct chat *t, struct buf *text)
{
    struct drafting *d = &t->drafting;
    buf_free(&d->text);
    d->text = *text;
    *text = (struct buf)BUF_INIT;
    d->changed = true;
    d->retry_at = 0;
}

void drafting_found(struct chat *t, int64_t conv, int64_t turn, struct buf *text)
{
    struct drafting *d = &t->drafting;
    if (text->len == 0) {
        return;
    }
    drafting_set(t, text);
    d->conv = conv;
    d->turn = turn;
    d->changed = false;
}

/* Whose drafts are those without a conversation: this chat's, of this process. */
static int64_t owner_of(const struct chat *t)
{
    return (int64_t)getpid() << 16 | (int64_t)((uintptr_t)t >> 4 & 0xFFFF);
}

static int store_text(struct chat *t, int64_t conv, int64_t turn, struct err *e)
{
    struct drafting *d = &t->drafting;
    struct catalog *c = store_catalog(t->conv->record.store);
    const int64_t owner = owner_of(t);
    const bool moved = d->conv != NOWHERE && (d->conv != conv || d->turn != turn);
    int rc = catalog_draft_put(c, conv, turn, owner, d->text.data, d->text.len, e);
    if (rc == 0 && moved) { /* a conversation that is gone took its draft along */
        (void)catalog_draft_put(c, d->conv, d->turn, owner, "", 0, NULL);
    }
    if (rc == 0) {
        d->conv = d->text.len > 0 ? conv : NOWHERE;
        d->turn = turn;
    }
    return rc;
}

void drafting_work(struct chat *t)
{
    struct drafting *d = &t->drafting;
    if ((d->text.len == 0 && !d->changed) || !t->conv->record.store) {
        return;
    }
    const int64_t now = clock_now(clock_main());
    const int64_t conv = t->record.conv;
    const int64_t turn = conv > 0 ? record_place(&t->record) : 0;
    if (now >= d->retry_at && (d->changed || d->conv != conv || d->turn != turn)) {
        struct err e = ERR_INIT; /* the text of the conversation tells of a disk that is full */
        d->changed = store_text(t, conv, turn, &e) < 0;
        d->retry_at = d->changed ? now + RETRY_NS : 0;
    }
}

void drafting_leave(struct chat *t)
{
    if (t->drafting.changed) {
        drafting_work(t);
    }
    drafting_init(t);
}
