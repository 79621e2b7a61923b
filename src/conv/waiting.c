/* What waits to be sent, on its way to disk: the messages in the reader's hands, and behind the
 * scenes the questions that were sent and have not begun, since those have no turn of their own
 * yet. Stored anew whenever they or the place they follow changed. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "conv/chat.h"

#define RETRY_NS 5000000000 /* as the text of the conversation */

/* ---- lists ---- */

void waiting_list_add(struct waiting_list *l, const char *shown, size_t shown_n,
                      const char *message, size_t message_n)
{
    if ((l->n & (l->n - 1)) == 0) {
        l->v = mem_realloc(l->v, (l->n ? 2 * l->n : 1) * sizeof *l->v);
    }
    struct waiting_text *w = &l->v[l->n++];
    *w = (struct waiting_text){BUF_INIT, BUF_INIT};
    buf_add(&w->shown, shown ? shown : "", shown_n);
    buf_add(&w->message, message ? message : "", message_n);
}

void waiting_list_free(struct waiting_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        buf_free(&l->v[i].shown);
        buf_free(&l->v[i].message);
    }
    free(l->v);
    *l = (struct waiting_list){0};
}

void waiting_list_copy(struct waiting_list *to, const struct waiting_list *from)
{
    waiting_list_free(to);
    for (size_t i = 0; i < from->n; i++) {
        const struct waiting_text *w = &from->v[i];
        waiting_list_add(to, w->shown.data, w->shown.len, w->message.data, w->message.len);
    }
}

/* ---- the worker's side ---- */

void waiting_set(struct chat *t, struct waiting_list *l)
{
    waiting_list_free(&t->waiting.list);
    t->waiting.list = *l;
    *l = (struct waiting_list){0};
    t->waiting.changed = true;
    t->waiting.retry_at = 0;
}

void waiting_found(struct chat *t, int64_t conv, int64_t turn, struct waiting_list *l)
{
    const bool any = l->n > 0;
    waiting_set(t, l);
    t->waiting.conv = any ? conv : 0;
    t->waiting.turn = turn;
    t->waiting.changed = any && turn != record_place(&t->record);
}

/* Questions that were sent and have not begun. */
static size_t count_unbegun(const struct chat *t)
{
    size_t n = 0;
    for (const struct input *in = t->inputs; in; in = in->next) {
        n += in->kind == IN_SEND;
    }
    return n;
}

static int store_list(struct chat *t, size_t n, struct err *e)
{
    struct record *r = &t->conv->record;
    struct waiting *w = &t->waiting;
    struct catalog_queued *q = mem_array(n + 1, sizeof *q);
    size_t k = 0;
    for (const struct input *in = t->inputs; in; in = in->next) {
        if (in->kind == IN_SEND) {
            q[k++] =
                (struct catalog_queued){in->text.data, in->text.len, in->text.data, in->text.len};
        }
    }
    for (size_t i = 0; i < w->list.n; i++) {
        const struct waiting_text *x = &w->list.v[i];
        q[k++] =
            (struct catalog_queued){x->shown.data, x->shown.len, x->message.data, x->message.len};
    }
    int rc = n > 0 ? record_begin(r, &t->record, e) : 0;
    if (rc == 0) {
        const bool same = w->conv == t->record.conv;
        const int64_t turn = record_place(&t->record);
        rc = catalog_queue_put(store_catalog(r->store), t->record.conv, same ? w->turn : turn, turn,
                               q, n, e);
        w->conv = rc == 0 ? (n > 0 ? t->record.conv : 0) : w->conv;
        w->turn = rc == 0 ? turn : w->turn;
    }
    free(q);
    return rc;
}

void waiting_work(struct chat *t)
{
    struct waiting *w = &t->waiting;
    const size_t n = w->list.n + (t->reader == &t->conv->screen ? count_unbegun(t) : 0);
    const bool stored = w->conv > 0 && w->conv == t->record.conv;
    if ((n == 0 && !stored) || !t->conv->record.store) {
        w->changed = false;
        return;
    }
    const int64_t now = clock_now(clock_main());
    if (now >= w->retry_at && (w->changed || !stored || w->turn != record_place(&t->record))) {
        struct err e = ERR_INIT; /* the text of the conversation tells of a disk that is full */
        w->changed = store_list(t, n, &e) < 0;
        w->retry_at = w->changed ? now + RETRY_NS : 0;
    }
}

void waiting_close(struct chat *t)
{
    struct waiting_list all = {0};
    for (const struct input *in = t->inputs; in; in = in->next) {
        if (in->kind == IN_SEND) {
            waiting_list_add(&all, in->text.data, in->text.len, in->text.data, in->text.len);
        }
    }
    if (all.n == 0 || t->reader != &t->conv->screen) {
        waiting_list_free(&all);
        return;
    }
    for (size_t i = 0; i < t->waiting.list.n; i++) {
        const struct waiting_text *w = &t->waiting.list.v[i];
        waiting_list_add(&all, w->shown.data, w->shown.len, w->message.data, w->message.len);
    }
    waiting_set(t, &all);
}

void waiting_leave(struct chat *t)
{
    if (t->waiting.changed) {
        waiting_work(t);
    }
    waiting_list_free(&t->waiting.list);
    t->waiting = (struct waiting){.conv = 0};
}
