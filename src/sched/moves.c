/* States that leave the scheduler and come back: the queue of transfers. */
#include "config.h"
#include "sched/inside.h"

bool moves_clear(struct sched *s, bool all)
{
    bool any = false;
    for (struct transfer **at = &s->leaving; *at;) {
        struct transfer *t = *at;
        if (!all && !transfer_left(t)) {
            at = &t->next;
            continue;
        }
        any = true;
        *at = t->next;
        transfer_clear(t, s->engine);
        transfer_unref(t);
    }
    return any;
}

bool moves_awaits(const struct sched *s, const struct live *l)
{
    for (const struct transfer *t = s->moving; t; t = t->next) {
        if (t->in && t->live == l) {
            return true;
        }
    }
    return false;
}

/* Behind those that wait already, in the order they were asked for. With the lock. */
void moves_take(struct sched *s)
{
    struct transfer *in_order = NULL;
    while (s->asked) {
        struct transfer *t = s->asked;
        s->asked = t->next;
        t->next = in_order;
        in_order = t;
    }
    struct transfer **end = &s->moving;
    while (*end) {
        end = &(*end)->next;
    }
    *end = in_order;
}

static int seq_for_state(void *ctx, int *seq, struct err *e)
{
    return lives_open_seq(ctx, seq, e);
}

void moves_step(struct sched *s)
{
    struct transfer *t = s->moving;
    if (!t) {
        return;
    }
    struct transfer *next = t->next;
    if (t->in) {
        lives_list(s, t->live);
    }
    if (!transfer_step(t, s->engine, work_waits(s) ? 0 : PATIENCE, seq_for_state, s)) {
        return;
    }
    s->moving = next;
    s->count.restored += t->in && t->err.code == 0;
    if (transfer_holds(t)) {
        t->next = s->leaving;
        s->leaving = t;
    } else {
        transfer_unref(t);
    }
}

void moves_drop_all(struct sched *s)
{
    while (s->moving) {
        struct transfer *t = s->moving;
        s->moving = t->next;
        transfer_drop(t, s->engine);
        transfer_unref(t);
    }
    (void)moves_clear(s, true);
}
